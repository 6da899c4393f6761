/* SPDX-License-Identifier: MIT
 *
 * The training of a random case without shards, buffers or streams, in integers. All values are small enough that sums
 * of floats are exact in any order, and exact in bf16 where the runtime rounds; so every strategy, element type and
 * schedule must end in these numbers.
 *
 *     weight    odd with AdamW, which leaves 1e-30 where it should leave 0; from -15 to 15
 *     gradient  of one contribution: the weight times -1, 0 or 1, and noise from -2 to 2
 *     update    with the library's: a step of 2 against the gradient's sign (betas are so small that only the last gradient
 *               counts, and Muon's longer side is 25: 0.2 sqrt(25) is 1), none where the step is skipped; with an optimizer of the trainer's own: weight + 2 gradient, folded into -7 ... 7
 */
#ifndef EO_TESTS_RANDOM_INTEGER_MODEL_H
#define EO_TESTS_RANDOM_INTEGER_MODEL_H

#include "tests/random/generator.h"

/* Weights as they are before the actions of a gap, and in the step after it. */
enum { INTEGER_VERSIONS = 2 * CASE_STEPS_MAX + 2 };
#define INTEGER_BEFORE(step) (2 * (step))
#define INTEGER_IN(step) (2 * (step) + 1)

/* Who contributes: a use of a parameter in a micro-batch, on a rank. */
struct integer_place {
    uint32_t step, rank, micro_batch, position, parameter; /* of the layer */
};

struct integer_model {
    int32_t *weights[INTEGER_VERSIONS][CASE_LAYERS_MAX][CASE_PARAMETERS_MAX];
    double norms[CASE_STEPS_MAX]; /* of the gradients, squared */
    double layer_norms[CASE_STEPS_MAX][CASE_LAYERS_MAX], group_norms[CASE_STEPS_MAX][CASE_GROUPS_MAX]; /* likewise */
};

int32_t integer_first_weight(const struct random_case *c, uint32_t layer, uint32_t parameter, uint64_t element);
/* Of a replacement before a step. */
int32_t integer_replaced_weight(const struct random_case *c, uint32_t step, uint64_t element);
int32_t integer_gradient(const struct random_case *c, const struct integer_place *at, uint64_t element, int32_t weight);
int32_t integer_update(const struct random_case *c, int32_t weight, int32_t gradient);

/* What rank `rank` says in a step, for the sum over all. */
double integer_value(uint32_t step, uint32_t rank);

/* The whole training. false: no memory. */
bool integer_model_train(struct integer_model *model, const struct random_case *c);
void integer_model_end(struct integer_model *model);

#endif
