/* SPDX-License-Identifier: MIT
 *
 * Attention by products: a block of queries against all keys, so that seq x seq is never stored. For fp32, and where cuDNN is
 * not built in or has no plan. Plain rather than fast: half of the products is zeros.
 *
 * One sequence after the other. Query heads that share a key head are taken one after the other too (`member` of the
 * group), so that each product is a batch over the key heads with one step.
 */
#include <math.h>

#include "layers/cuda/internal.h"
#include "layers/cuda/kernels.h"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool blocks_supports(struct eo_types types, const struct eo_attention_shape *shape)
{
    (void)types, (void)shape;
    return true;
}

/* One block of one member of the groups. q, out and their like point to the sequence's row 0 of this member. */
struct block {
    struct eo_cuda_team *team;
    const struct eo_attention *attention;
    uint32_t first, queries, keys;
    uint64_t sequence, member;
    char *scratch;
    struct eo_cuda_blocks_scratch at;
    eo_status (*product)(struct eo_cuda_team *team, const struct eo_multiply *product,
                         const struct eo_cuda_batch *batch);
};

/* Elements; a NULL tensor (a plan is made) stays NULL. */
static void *shifted(eo_dtype dtype, const void *values, uint64_t elements)
{
    return values ? (char *)(uintptr_t)values + elements * eo_dtype_bytes(dtype) : NULL;
}

static void *query_rows(const struct block *b, const void *values, uint64_t stride)
{
    const struct eo_attention_shape *s = &b->attention->shape;
    return shifted(b->attention->types.compute, values,
                   (b->sequence * s->seq + b->first) * stride + b->member * s->head_size);
}

static void *key_rows(const struct block *b, const void *values)
{
    const struct eo_attention_shape *s = &b->attention->shape;
    return shifted(b->attention->types.compute, values, b->sequence * s->seq * s->kv_stride);
}

static void *scratch_at(const struct block *b, uint64_t bytes)
{
    return b->scratch ? b->scratch + bytes : NULL;
}

/* A matrix a head: where head 0's begins, the stride of its rows, and how far the next key head's is. */
struct heads {
    void *values;
    uint64_t stride, step;
    bool transposed; /* as an operand */
};

static struct heads transposed(struct heads heads)
{
    heads.transposed = true;
    return heads;
}

static struct heads of_queries(const struct block *b, const void *values, uint64_t stride)
{
    const struct eo_attention_shape *s = &b->attention->shape;
    const uint64_t group = s->head_count / s->kv_head_count;
    return (struct heads){query_rows(b, values, stride), stride, group * s->head_size, false};
}

static struct heads of_keys(const struct block *b, const void *values)
{
    return (struct heads){key_rows(b, values), b->attention->shape.kv_stride, b->attention->shape.head_size, false};
}

static struct heads of_scores(const struct block *b, uint64_t at)
{
    return (struct heads){scratch_at(b, at), b->keys, (uint64_t)b->queries * b->keys, false};
}

static struct heads of_sums(const struct block *b, uint64_t at)
{
    const struct eo_attention_shape *s = &b->attention->shape;
    return (struct heads){scratch_at(b, at), s->head_size, (uint64_t)s->seq * s->head_size, false};
}

enum result { TO_COMPUTE, TO_FLOAT, ADD_TO_FLOAT };

/* C[m][n] = A[m][k] B[k][n] for every key head. */
static eo_status multiply(const struct block *b, enum result result, struct heads c, struct heads left,
                          struct heads right, uint64_t m, uint64_t n, uint64_t k)
{
    const struct eo_multiply product = {
        .types = {b->attention->types.compute, EO_DTYPE_FP32},
        .weight_gradient = result != TO_COMPUTE,
        .c = c.values,
        .c_stride = c.stride,
        .a = {left.values, left.stride, left.transposed},
        .b = {right.values, right.stride, right.transposed},
        .m = m,
        .n = n,
        .k = k,
        .accumulate = result == ADD_TO_FLOAT,
    };
    const struct eo_cuda_batch batch = {b->attention->shape.kv_head_count, left.step, right.step, c.step};
    return b->product(b->team, &product, &batch);
}

static float scale_of(const struct eo_attention_shape *s)
{
    return 1.0f / sqrtf((float)s->head_size);
}

static struct eo_cuda_softmax softmax_of(const struct block *b)
{
    const struct eo_attention_shape *s = &b->attention->shape;
    const uint64_t group = s->head_count / s->kv_head_count;
    const uint64_t row = (b->sequence * s->head_count + b->member) * s->seq + b->first;
    return (struct eo_cuda_softmax){
        .scores = scratch_at(b, b->at.scores),
        .weights = scratch_at(b, b->at.weights),
        .log_sum_exp = b->attention->log_sum_exp ? b->attention->log_sum_exp + row : NULL,
        .log_sum_exp_stride = group * s->seq,
        .heads = s->kv_head_count,
        .queries = b->queries,
        .first = b->first,
        .keys = b->keys,
        .scale = scale_of(s),
        .dtype = b->attention->types.compute,
        .positions = b->attention->positions ? b->attention->positions + b->sequence * s->seq + b->first : NULL,
    };
}

static eo_status scores(const struct block *b)
{
    const struct eo_attention *a = b->attention;
    return multiply(b, TO_FLOAT, of_scores(b, b->at.scores), of_queries(b, a->q, a->shape.q_stride),
                    transposed(of_keys(b, a->k)), b->queries, b->keys, a->shape.head_size);
}

static eo_status block_forward(const struct block *b, bool plans_only)
{
    const struct eo_attention *a = b->attention;
    EO_TRY(scores(b));
    if (!plans_only) {
        const struct eo_cuda_softmax softmax = softmax_of(b);
        CUDA_TRY(b->team, eo_cuda_softmax_forward(&softmax, b->team->stream), "kernel softmax_forward");
    }
    return multiply(b, TO_COMPUTE, of_queries(b, a->out, a->shape.out_stride), of_scores(b, b->at.weights),
                    of_keys(b, a->v), b->queries, a->shape.head_size, b->keys);
}

static eo_status block_backward(const struct block *b, bool plans_only)
{
    const struct eo_attention *a = b->attention;
    const struct eo_attention_shape *s = &a->shape;
    const struct heads q = of_queries(b, a->q, s->q_stride);
    const struct heads out_gradient = of_queries(b, a->out_gradient, s->out_stride);
    EO_TRY(scores(b));
    EO_TRY(multiply(b, TO_FLOAT, of_scores(b, b->at.weights_gradient), out_gradient, transposed(of_keys(b, a->v)),
                    b->queries, b->keys, s->head_size));
    if (!plans_only) {
        const struct eo_cuda_softmax_gradient gradient = {
            .softmax = softmax_of(b),
            .weights_gradient = scratch_at(b, b->at.weights_gradient),
            .scores_gradient = scratch_at(b, b->at.scores_gradient),
            .out = query_rows(b, a->out, s->out_stride),
            .out_gradient = out_gradient.values,
            .out_stride = s->out_stride,
            .out_head_stride = out_gradient.step,
            .head_size = s->head_size,
        };
        CUDA_TRY(b->team, eo_cuda_softmax_backward(&gradient, b->team->stream), "kernel softmax_backward");
    }
    const struct heads weights = of_scores(b, b->at.weights), ds = of_scores(b, b->at.scores_gradient);
    EO_TRY(multiply(b, ADD_TO_FLOAT, of_sums(b, b->at.v_gradient), transposed(weights), out_gradient, b->keys,
                    s->head_size, b->queries));
    EO_TRY(multiply(b, ADD_TO_FLOAT, of_sums(b, b->at.k_gradient), transposed(ds), q, b->keys, s->head_size,
                    b->queries));
    return multiply(b, TO_COMPUTE, of_queries(b, a->q_gradient, s->q_stride), ds, of_keys(b, a->k), b->queries,
                    s->head_size, b->keys);
}

/* All blocks of all members of one sequence. */
static eo_status run_sequence(struct block *b, eo_status (*one)(const struct block *b, bool plans_only), bool plans_only)
{
    const struct eo_attention_shape *s = &b->attention->shape;
    for (b->member = 0; b->member < s->head_count / s->kv_head_count; b->member++)
        for (b->first = 0; b->first < s->seq; b->first += b->queries) {
            b->queries = (uint32_t)min_u64(EO_CUDA_BLOCK_QUERIES, s->seq - b->first);
            b->keys = s->seq;
            EO_TRY(one(b, plans_only));
        }
    return EO_OK;
}

static struct block block_of(struct eo_cuda_team *team, const struct eo_attention *attention)
{
    return (struct block){
        .team = team,
        .attention = attention,
        .scratch = attention->scratch,
        .at = eo_cuda_blocks_scratch_of(attention->types, &attention->shape),
        .product = eo_cuda_product_run,
    };
}

/* Every sequence has the same shapes of products: one is enough. */
static eo_status blocks_prepare(struct eo_cuda_team *team, struct eo_types types,
                                const struct eo_attention_shape *shape, void **state)
{
    const struct eo_attention attention = {.types = types, .shape = *shape};
    struct block b = block_of(team, &attention);
    b.product = eo_cuda_product_prepare; /* makes a plan where there is none yet */
    *state = NULL;
    EO_TRY(run_sequence(&b, block_forward, true));
    return run_sequence(&b, block_backward, true);
}

static void blocks_release(struct eo_cuda_team *team, void *state)
{
    (void)team, (void)state;
}

static eo_status blocks_forward(struct eo_cuda_team *team, void *state, const struct eo_attention *attention)
{
    (void)state;
    struct block b = block_of(team, attention);
    for (b.sequence = 0; b.sequence < attention->shape.batch; b.sequence++)
        EO_TRY(run_sequence(&b, block_forward, false));
    return EO_OK;
}

/* A key head's gradients are rows of [seq][head_size]; in the tensor they lie side by side. */
static eo_status put_key_gradients(const struct block *b)
{
    const struct eo_attention *a = b->attention;
    const struct eo_attention_shape *s = &a->shape;
    for (uint32_t head = 0; head < s->kv_head_count; head++) {
        const uint64_t from = (uint64_t)head * s->seq * s->head_size, to = (uint64_t)head * s->head_size;
        const float *k = scratch_at(b, b->at.k_gradient), *v = scratch_at(b, b->at.v_gradient);
        CUDA_TRY(b->team,
                 eo_cuda_narrow_rows(shifted(a->types.compute, key_rows(b, a->k_gradient), to), s->kv_stride, k + from,
                                     s->seq, s->head_size, a->types.compute, b->team->stream),
                 "kernel narrow_rows");
        CUDA_TRY(b->team,
                 eo_cuda_narrow_rows(shifted(a->types.compute, key_rows(b, a->v_gradient), to), s->kv_stride, v + from,
                                     s->seq, s->head_size, a->types.compute, b->team->stream),
                 "kernel narrow_rows");
    }
    return EO_OK;
}

static eo_status blocks_backward(struct eo_cuda_team *team, void *state, const struct eo_attention *attention)
{
    (void)state;
    struct block b = block_of(team, attention);
    for (b.sequence = 0; b.sequence < attention->shape.batch; b.sequence++) {
        CUDA_TRY(team,
                 cudaMemsetAsync(scratch_at(&b, b.at.k_gradient), 0, b.at.total - b.at.k_gradient, team->stream),
                 "zeroing key gradients");
        EO_TRY(run_sequence(&b, block_backward, false));
        EO_TRY(put_key_gradients(&b));
    }
    return EO_OK;
}

const struct eo_cuda_attention_ops eo_cuda_attention_blocks_ops = {
    .name = "products over blocks of queries",
    .repeatable = true,
    .supports = blocks_supports,
    .prepare = blocks_prepare,
    .release = blocks_release,
    .forward = blocks_forward,
    .backward = blocks_backward,
};
