/* SPDX-License-Identifier: MIT
 *
 * What a model's description needs to know of the GPU's kernels: their scratch, and how they are used. No header of CUDA: a
 * build without it plans the same bytes.
 */
#ifndef EO_LAYERS_CUDA_SCRATCH_H
#define EO_LAYERS_CUDA_SCRATCH_H

#include "layers/kernel_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

uint64_t eo_cuda_norm_scratch_bytes(uint64_t rows, uint64_t width); /* norm_backward */
enum { EO_CUDA_COLUMN_PARTS = 256 };
uint64_t eo_cuda_column_scratch_bytes(uint64_t rows, uint64_t width); /* column_sums */
uint64_t eo_cuda_embedding_scratch_bytes(uint64_t rows, uint64_t width, uint64_t vocabulary);

/* The blocks of a norm's backward pass, for packs of so many elements: each takes rows that follow each other, as many at a time
 * as it has `groups` of `threads`, and keeps its sums for weight and bias until the last one. */
enum {
    EO_CUDA_NORM_THREADS = 512,
    EO_CUDA_NORM_SHARED_BYTES = 47 << 10, /* 48 less those of sums over a block */
    EO_CUDA_NORM_BLOCKS = 256,            /* with sums in shared memory, or in memory */
    /* With sums in registers a multiprocessor of an H100, one of 132, has 1024 threads of them. */
    EO_CUDA_NORM_MULTIPROCESSORS = 132, EO_CUDA_NORM_MULTIPROCESSOR_THREADS = 1024,
};
enum eo_cuda_sums { EO_CUDA_SUMS_IN_REGISTERS, EO_CUDA_SUMS_IN_SHARED, EO_CUDA_SUMS_IN_MEMORY };
struct eo_cuda_norm_blocks {
    enum eo_cuda_sums sums;
    uint32_t threads, groups, thread_packs, shared_bytes;
    uint64_t blocks, block_rows;
};
struct eo_cuda_norm_blocks eo_cuda_norm_blocks_of(const struct eo_norm_gradient *norm, uint64_t pack_size);

/* Attention by products: a block of queries, the largest. Places in bytes; in fp32 weights and scores_gradient take the place
 * of what they are made of. */
enum { EO_CUDA_BLOCK_QUERIES = 128 };
struct eo_cuda_blocks_scratch {
    uint64_t scores, weights, weights_gradient, scores_gradient; /* [kv heads][queries][keys] */
    uint64_t k_gradient, v_gradient;                             /* fp32 [kv heads][seq][head_size] */
    uint64_t total;
};
struct eo_cuda_blocks_scratch eo_cuda_blocks_scratch_of(struct eo_types types, const struct eo_attention_shape *shape);

/* Flash attention by cuDNN. */
struct eo_cuda_flash_scratch {
    uint64_t dot_sum, q_sum, workspace;
    uint64_t workspace_limit, total;
};
bool eo_cuda_flash_supports(struct eo_types types, const struct eo_attention_shape *shape);
struct eo_cuda_flash_scratch eo_cuda_flash_scratch_of(const struct eo_attention_shape *shape);

/* Enough for every way: which one it will be is known when the device is. */
uint64_t eo_cuda_attention_scratch_bytes(struct eo_types types, const struct eo_attention_shape *shape, uint32_t thread_count);

uint64_t eo_cuda_float8_scratch_bytes(uint64_t m, uint64_t n, uint64_t k);

bool eo_cuda_supports(struct eo_types types);

/* The part of the table that descriptions ask. gradients_in_place: flash attention reads keys and values until its last block;
 * remakes_gelu: GELU's slope is an epilogue of cuBLASLt; scratch_alignment: cuDNN's and cuBLASLt's, of their workspaces; the
 * multiples: an odd width is slow on tensor cores. */
#define EO_CUDA_PLANNED_OPS                                                                                                 \
    .name = "cuda", .fused_epilogues = true, .gelu_apart = true, .fused_bias_gradients = true, .fused_residuals = true,     \
    .joined_products = true, .gradients_in_place = false, .remakes_swiglu = true, .host_memory = false,                     \
    .scratch_alignment = 256, .word_multiple = 64, .chunk_multiple = 128, .supports = eo_cuda_supports,                     \
    .norm_scratch_bytes = eo_cuda_norm_scratch_bytes, .column_scratch_bytes = eo_cuda_column_scratch_bytes,                 \
    .attention_scratch_bytes = eo_cuda_attention_scratch_bytes, .embedding_scratch_bytes = eo_cuda_embedding_scratch_bytes, \
    .float8_scratch_bytes = eo_cuda_float8_scratch_bytes

#ifdef __cplusplus
}
#endif

#endif
