/* SPDX-License-Identifier: MIT */
#include "layers/cuda/scratch.h"

enum { ALIGN = 256, CUDNN_WORKSPACE_LEAST = 1 << 20 };

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* cuBLASLt has no product of fp32 operands with a bf16 result. */
bool eo_cuda_supports(struct eo_types types)
{
    return types.compute == EO_DTYPE_BF16 || types.gradient == EO_DTYPE_FP32;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t eo_cuda_column_scratch_bytes(uint64_t rows, uint64_t width)
{
    return least(rows, EO_CUDA_COLUMN_PARTS) * width * sizeof(float);
}

static uint32_t norm_threads(uint64_t packs)
{
    enum { WARP = 32 };
    return (uint32_t)least(divide_up(packs, WARP) * WARP, EO_CUDA_NORM_THREADS);
}

/* Whose sums are in registers. */
static uint64_t resident_blocks(uint64_t threads)
{
    return EO_CUDA_NORM_MULTIPROCESSORS * (EO_CUDA_NORM_MULTIPROCESSOR_THREADS / threads);
}

struct eo_cuda_norm_blocks eo_cuda_norm_blocks_of(const struct eo_norm_gradient *n, uint64_t pack_size)
{
    const uint64_t kinds = n->centered ? 2 : 1, packs = divide_up(n->width, pack_size);
    struct eo_cuda_norm_blocks b = {.thread_packs = (uint32_t)divide_up(packs, EO_CUDA_NORM_THREADS), .groups = 1};
    /* Two packs of a thread, with the sums of weight and bias, do not fit in registers; nor do fp32 weights beside bf16. */
    const bool in_registers = !n->fp32_weights && b.thread_packs <= (n->centered ? 1 : 2);
    b.threads = norm_threads(in_registers ? divide_up(packs, b.thread_packs) : packs);
    const uint64_t sums_bytes = divide_up(packs, b.threads) * b.threads * pack_size * kinds * sizeof(float);
    if (!in_registers && sums_bytes <= EO_CUDA_NORM_SHARED_BYTES) {
        b.sums = EO_CUDA_SUMS_IN_SHARED;
        b.shared_bytes = (uint32_t)sums_bytes;
    } else if (!in_registers) {
        b.sums = EO_CUDA_SUMS_IN_MEMORY;
    }
    /* A block's sums are written, and read to be added up; in memory they are read once more. So many rows a block have ten
     * times their bytes. */
    const uint64_t sum_bytes = (b.sums == EO_CUDA_SUMS_IN_MEMORY ? 3 : 2) * kinds * sizeof(float);
    const uint64_t row_bytes = (n->skip_gradient ? 4 : 3) * (n->types.compute == EO_DTYPE_BF16 ? 2 : 4);
    const uint64_t least_rows = divide_up(10 * sum_bytes, row_bytes);
    const uint64_t most = in_registers                        ? resident_blocks(b.threads)
                          : b.sums == EO_CUDA_SUMS_IN_MEMORY ? EO_CUDA_NORM_BLOCKS / 2
                                                              : EO_CUDA_NORM_BLOCKS;
    b.blocks = n->rows < least_rows ? 1 : least(n->rows / least_rows, most);
    b.block_rows = divide_up(n->rows, b.blocks);
    b.blocks = divide_up(n->rows, b.block_rows);
    if (in_registers && b.blocks < most) { /* too few rows for blocks to have one at a time */
        b.groups = (uint32_t)least(least(most / b.blocks, EO_CUDA_NORM_THREADS / b.threads), b.block_rows);
        b.shared_bytes = (uint32_t)((b.groups - 1) * sums_bytes);
    }
    return b;
}

/* Of both kinds. The smallest blocks, so the most, are those of bf16 by packs; RMSNorm in fp32 has 5 rows a block at least. */
uint64_t eo_cuda_norm_scratch_bytes(uint64_t rows, uint64_t width)
{
    enum { PACK = 8, LEAST_ROWS = 5 };
    const uint64_t resident = resident_blocks(norm_threads(divide_up(width, PACK)));
    const uint64_t most = resident > EO_CUDA_NORM_BLOCKS ? resident : EO_CUDA_NORM_BLOCKS;
    return 2 * least(divide_up(rows, LEAST_ROWS), most) * width * sizeof(float);
}

uint64_t eo_cuda_float8_scratch_bytes(uint64_t m, uint64_t n, uint64_t k)
{
    return eo_float8_scratch_of(m, n, k).total;
}

/* Two numbers for each word, and the rows in the order of their tokens. */
uint64_t eo_cuda_embedding_scratch_bytes(uint64_t rows, uint64_t width, uint64_t vocabulary)
{
    (void)width;
    return (2 * vocabulary + rows) * sizeof(int32_t);
}

struct eo_cuda_blocks_scratch eo_cuda_blocks_scratch_of(struct eo_types types, const struct eo_attention_shape *s)
{
    const uint64_t queries = s->seq < EO_CUDA_BLOCK_QUERIES ? s->seq : EO_CUDA_BLOCK_QUERIES;
    const uint64_t block = s->kv_head_count * queries * s->seq;
    const uint64_t floats = align_up(block * sizeof(float));
    const uint64_t gradient = align_up((uint64_t)s->kv_head_count * s->seq * s->head_size * sizeof(float));
    const uint64_t narrow = types.compute == EO_DTYPE_BF16 ? align_up(block * 2) : 0;
    struct eo_cuda_blocks_scratch at = {.scores = 0};
    at.weights = narrow ? floats : 0;
    at.weights_gradient = floats + narrow;
    at.scores_gradient = narrow ? at.weights_gradient + floats : at.weights_gradient;
    at.k_gradient = at.weights_gradient + floats + narrow;
    at.v_gradient = at.k_gradient + gradient;
    at.total = at.v_gradient + gradient;
    return at;
}

/* What flash attention takes somewhere; whether this device does, the heuristics say. */
bool eo_cuda_flash_supports(struct eo_types types, const struct eo_attention_shape *s)
{
    return types.compute == EO_DTYPE_BF16 && !s->packed && s->head_size % 8 == 0 && s->head_size <= 256 && s->seq > 1 &&
           s->q_stride % 8 == 0 && s->kv_stride % 8 == 0 && s->out_stride % 8 == 0;
}

/* Plans say what they need only once they are built: what cuDNN's plans took for these graphs, and no more, is placed. */
struct eo_cuda_flash_scratch eo_cuda_flash_scratch_of(const struct eo_attention_shape *s)
{
    const uint64_t queries = (uint64_t)s->batch * s->head_count * s->seq;
    const uint64_t q_sum = align_up(queries * s->head_size * sizeof(float));
    struct eo_cuda_flash_scratch at = {.dot_sum = 0};
    at.q_sum = align_up(queries * sizeof(float));
    at.workspace = at.q_sum + q_sum;
    at.workspace_limit = CUDNN_WORKSPACE_LEAST + (s->kv_head_count < s->head_count ? 2 : 1) * q_sum;
    at.total = at.workspace + at.workspace_limit;
    return at;
}

uint64_t eo_cuda_attention_scratch_bytes(struct eo_types types, const struct eo_attention_shape *shape, uint32_t thread_count)
{
    const uint64_t blocks = eo_cuda_blocks_scratch_of(types, shape).total;
    const uint64_t flash = eo_cuda_flash_supports(types, shape) ? eo_cuda_flash_scratch_of(shape).total : 0;
    (void)thread_count;
    return blocks > flash ? blocks : flash;
}
