/* SPDX-License-Identifier: MIT
 *
 * GPT-2, Llama, Qwen2 and Qwen3 forward in double, written down as the papers have them, a token at a time, with no care for speed:
 * what the transformers of layers/ are held against, by value and by finite differences.
 */
#ifndef EO_TESTS_UNIT_LAYERS_REFERENCE_MODEL_H
#define EO_TESTS_UNIT_LAYERS_REFERENCE_MODEL_H

#include <evenodd/layers.h>

/* The parameters are those of the model, in its order, found by name. */
struct reference_model {
    eo_transformer_config config; /* filled in */
    const eo_model *model;
    double *const *parameters;
    float dropout;          /* of each half; 0: none */
    eo_random_place random; /* then, of the first sequence */
};

/* The mean loss. logits (or NULL): vocabulary values of the last token of sequence 0. */
double reference_loss(const struct reference_model *reference, const int32_t *tokens, const int32_t *targets,
                      uint32_t batch, uint32_t seq, double *logits);

#endif
