/* SPDX-License-Identifier: MIT
 *
 * What a transformer's params may be: defaults filled in, bounds checked once, so that nothing after it can overflow.
 */
#ifndef EO_LAYERS_TRANSFORMER_CONFIG_H
#define EO_LAYERS_TRANSFORMER_CONFIG_H

#include <evenodd/layers.h>

/* Bounds whose products stay far below 2^64: tokens x vocabulary x 4 bytes is the largest buffer. */
#define TRANSFORMER_LAYERS_MAX     4096u
#define TRANSFORMER_WIDTH_MAX      (1u << 20)
#define TRANSFORMER_MLP_MAX        (1u << 24)
#define TRANSFORMER_VOCABULARY_MAX (1u << 30)
#define TRANSFORMER_CONTEXT_MAX    (1u << 24)
#define TRANSFORMER_THREADS_MAX    4096u
#define TRANSFORMER_SLOTS_MAX      4096u
#define TRANSFORMER_TOKENS_MAX     ((uint64_t)1 << 28)

/* Copies params to *out with the defaults filled in. EO_OK, EO_ERR_INVALID (logged: which field, why). */
eo_status eo_transformer_check(const eo_transformer_params *params, eo_transformer_params *out);

#endif
