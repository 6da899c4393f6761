/* SPDX-License-Identifier: MIT
 *
 * Token after token (eo_decoder of evenodd/layers.h): the passes of training, over the new tokens alone. Their keys and
 * values go to a cache, and their queries look at all of it.
 *
 *     keys, values of a block    [seq][key/value heads x head size], in the compute type; `count` rows are there
 *
 * Weights and buffers are the decoder's own, in one piece of host memory: buffers are for a few tokens, and a half's take the
 * place of those of the half before.
 */
#ifndef EO_LAYERS_TRANSFORMER_CACHED_ATTENTION_H
#define EO_LAYERS_TRANSFORMER_CACHED_ATTENTION_H

#include "layers/transformer/internal.h"

struct eo_decoder {
    const eo_transformer *transformer;
    uint32_t thread_count; /* of the largest team */
    uint32_t count;        /* tokens that the cache holds */
    eo_view *views;        /* by layer: weights */
    void **keys, **values; /* by block */
    void **memory;         /* by the transformer's buffer */
    float *scores;         /* [head_count][seq] */
    char *base;            /* all of it; NULL: it is only counted */
    uint64_t bytes;
};

/* Keys and values of the pass's rows into the cache; then out = attention of its queries over the whole cache. */
eo_status eo_decode_attention(const struct pass *pass, uint32_t block, const struct eo_attention *attention);

#endif
