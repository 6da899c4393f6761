/* SPDX-License-Identifier: MIT
 *
 * The network of a training written out, in numbers: weights as passes see them, gradients, and what its steps are given.
 */
#ifndef EO_TESTS_WRITTEN_OUT_NETWORK_H
#define EO_TESTS_WRITTEN_OUT_NETWORK_H

#include "runtime/plan/internal.h"
#include "tests/conformance/written_out.h"

struct pass_of {
    uint32_t rank, step, micro_batch, position;
};

enum { GROUPS = 2 };

bool is_left_out(const eo_plan *plan, uint32_t rank, uint32_t step, uint32_t micro_batch);
float gradient_of(const struct pass_of *pass, uint32_t parameter, uint64_t i, float weight);
void set_groups(uint32_t step, eo_parameter_group groups[GROUPS]);
eo_step_params step_params(uint32_t step);
double weight_of(uint32_t rank, uint32_t step);
double weight_of_all(const eo_plan *plan, uint32_t step);
float gradient_scale(const eo_plan *plan, uint32_t step);
bool is_narrow(const struct scene *scene, uint32_t k);
void as_gathered(const struct scene *scene, uint32_t k, const float *weights, float *seen);
void as_filled(const struct scene *scene, uint32_t k, float *seen);
bool gets_gradient(const eo_plan *plan, uint32_t position, const struct plan_parameter *parameter);

#endif
