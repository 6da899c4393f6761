/* SPDX-License-Identifier: MIT
 *
 * Trainings of small transformers, on the CPU with the reference kernels, or on simulated GPUs.
 */
#ifndef EO_TESTS_SIMULATOR_TRANSFORMER_H
#define EO_TESTS_SIMULATOR_TRANSFORMER_H

#include <evenodd/evenodd.h>
#include <evenodd/layers.h>

enum { TRANSFORMER_RANKS_MAX = 4, TRANSFORMER_STEPS = 4 };

struct transformer_settings {
    const char *device; /* "cpu", or "cuda": between sim_start and sim_finish */
    eo_family family;
    eo_dtype dtype, reduce_dtype;
    uint32_t ranks, micro_batches, head_chunks, steps /* [3]; with a graph the last but one is recorded */;
    eo_recompute recompute;
    eo_memory memory;
    bool fp32_norms;
    bool qkv_bias, qk_norm; /* Llama; with qk_norm heads together are wider than the model */
    eo_rope_scaling rope_scaling; /* Llama */
    bool debug; /* of the runtime; static memory only */
    uint32_t unit_blocks;
    bool graph, half_blocks, odd_widths /* with which no epilogue is fused */, evaluates;
    const char *plan_cache;
    bool packed; /* two documents a sequence, and targets that do not count */
    bool float8_products; /* with 16 tokens in place of 18, for products in float8 want that */
    eo_lora lora;
    bool float8_frozen;
    eo_optimizer optimizer;
    bool leaves_error; /* of CUDA, unread, before each micro-batch; on "cuda" */
};

struct transformer_result {
    double losses[TRANSFORMER_STEPS], norms[TRANSFORMER_STEPS], evaluation;
    uint64_t weights; /* a hash of all */
    float first_logit;
    eo_status status;
    char error[512], warning[512]; /* the first of each */
};

void transformer_train(const struct transformer_settings *settings, struct transformer_result *out);

#endif
