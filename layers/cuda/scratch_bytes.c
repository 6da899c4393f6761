/* SPDX-License-Identifier: MIT */
#include "layers/cuda/kernels.h"

/* Partial sums of blocks: a norm's weights and bias side by side. Column sums have no more parts than a norm has blocks. */
_Static_assert(EO_CUDA_COLUMN_PARTS <= 2 * EO_CUDA_NORM_BLOCKS, "column sums do not fit into a norm's scratch");

uint64_t eo_cuda_column_scratch_bytes(uint64_t rows, uint64_t width)
{
    const uint64_t blocks = rows < EO_CUDA_NORM_BLOCKS ? rows : EO_CUDA_NORM_BLOCKS;
    return 2 * blocks * width * sizeof(float);
}

/* The rows in the order of their tokens. */
uint64_t eo_cuda_embedding_scratch_bytes(uint64_t rows, uint64_t width, uint64_t vocabulary)
{
    (void)width, (void)vocabulary;
    return rows * sizeof(int32_t);
}
