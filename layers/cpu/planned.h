/* SPDX-License-Identifier: MIT
 *
 * The part of the tables "cpu" that descriptions ask. A build that only plans has nothing else of them (planned.c).
 */
#ifndef EO_LAYERS_CPU_PLANNED_H
#define EO_LAYERS_CPU_PLANNED_H

#include "layers/cpu/kernels.h"
#include "layers/cpu/products/tiles.h"

static inline uint64_t eo_cpu_column_scratch_bytes(uint64_t rows, uint64_t width)
{
    (void)rows;
    (void)width;
    return 0;
}

static inline uint64_t eo_cpu_embedding_scratch_bytes(uint64_t rows, uint64_t width, uint64_t vocabulary)
{
    (void)rows;
    (void)width;
    (void)vocabulary;
    return 0;
}

#define EO_CPU_PLANNED_OPS                                                                                             \
    .name = "cpu", .host_memory = true, .gradients_in_place = true, .remakes_gelu = true, .remakes_swiglu = true,      \
    .scratch_alignment = 64, .word_multiple = 1, .chunk_multiple = 1, .norm_scratch_bytes = eo_cpu_norm_scratch_bytes, \
    .column_scratch_bytes = eo_cpu_column_scratch_bytes

#define EO_CPU_PLANNED_FP32_OPS \
    EO_CPU_PLANNED_OPS, .attention_scratch_bytes = eo_cpu_attention_scratch_bytes, \
    .embedding_scratch_bytes = eo_cpu_embedding_scratch_bytes

#define EO_CPU_PLANNED_BF16_OPS \
    EO_CPU_PLANNED_OPS, .fused_epilogues = true, .attention_scratch_bytes = eo_cpu_attention_bf16_scratch_bytes, \
    .multiply_scratch_bytes = eo_product_scratch_bytes, .loss_scratch_bytes = eo_cpu_loss_bf16_scratch_bytes, \
    .embedding_scratch_bytes = eo_cpu_embedding_bf16_scratch_bytes

#endif
