/* SPDX-License-Identifier: MIT
 *
 * The training of a random case without shards, buffers or streams, in integers. All values are small enough that sums
 * of floats are exact in any order, and exact in bf16 where the runtime rounds; so every strategy, element type and
 * schedule must end in these numbers.
 *
 *     weight    odd, from -9 to 9
 *     gradient  of one contribution: the weight times -1, 0 or 1, and noise from -2 to 2
 *     update    with AdamW: a step of 2 against the gradient's sign (its betas are so small that only the last gradient
 *               counts); with an optimizer of the trainer's own: weight + 2 gradient, folded into -7 ... 7
 */
#ifndef EO_TESTS_RANDOM_INTEGER_MODEL_H
#define EO_TESTS_RANDOM_INTEGER_MODEL_H

#include "tests/random/generator.h"

enum { INTEGER_STEPS = 3 };

/* Who contributes: a use of a parameter in a micro-batch, on a rank. */
struct integer_place {
    uint32_t step, rank, micro_batch, position, parameter; /* of the layer */
};

struct integer_model {
    int32_t *weights[CASE_LAYERS_MAX][CASE_PARAMETERS_MAX];
    double norms[INTEGER_STEPS]; /* of the gradients, squared */
};

int32_t integer_first_weight(const struct random_case *c, uint32_t layer, uint32_t parameter, uint64_t element);
int32_t integer_gradient(const struct random_case *c, const struct integer_place *at, uint64_t element, int32_t weight);
int32_t integer_update(const struct random_case *c, int32_t weight, int32_t gradient);

/* What rank `rank` says in a step, for the sum over all. */
double integer_value(uint32_t step, uint32_t rank);

/* Weights as they are filled; then one step after the other. false: no memory. */
bool integer_model_begin(struct integer_model *model, const struct random_case *c);
void integer_model_step(struct integer_model *model, const struct random_case *c, uint32_t step);
void integer_model_end(struct integer_model *model);

#endif
