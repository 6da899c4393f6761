/* SPDX-License-Identifier: MIT */
#include "layers/cuda/attention/graphs.h"

static const cudnnDataType_t BF16 = CUDNN_DATA_BFLOAT16, FP32 = CUDNN_DATA_FLOAT;

/* What both graphs say about sizes. b batch, h heads, hk heads of keys, s tokens, d elements of a head. */
struct form {
    struct eo_cudnn_graph *graph;
    int64_t b, h, hk, s, d;
    int64_t q_row, kv_row, out_row; /* elements from token to token */
};

static struct form form_of(struct eo_cudnn_graph *graph, const struct eo_attention_shape *shape)
{
    return (struct form){
        .graph = graph,
        .b = shape->batch,
        .h = shape->head_count,
        .hk = shape->kv_head_count,
        .s = shape->seq,
        .d = shape->head_size,
        .q_row = (int64_t)shape->q_stride,
        .kv_row = (int64_t)shape->kv_stride,
        .out_row = (int64_t)shape->out_stride,
    };
}

static eo_cudnn_node tensor(const struct form *f, int64_t id, cudnnDataType_t type, const int64_t size[4],
                            const int64_t stride[4])
{
    struct eo_cudnn_tensor t = {.id = id, .type = type};
    for (int i = 0; i < 4; i++) {
        t.size[i] = size[i];
        t.stride[i] = stride[i];
    }
    return eo_cudnn_tensor(f->graph, &t);
}

/* [b, heads, s, d], a head's elements side by side, rows `row` apart. */
static eo_cudnn_node heads(const struct form *f, int64_t id, int64_t head_count, int64_t row)
{
    const int64_t size[4] = {f->b, head_count, f->s, f->d}, stride[4] = {f->s * row, f->d, row, 1};
    return tensor(f, id, BF16, size, stride);
}

/* The same memory seen as [b, heads, d, s]. */
static eo_cudnn_node heads_transposed(const struct form *f, int64_t id, int64_t head_count, int64_t row)
{
    const int64_t size[4] = {f->b, head_count, f->d, f->s}, stride[4] = {f->s * row, f->d, 1, row};
    return tensor(f, id, BF16, size, stride);
}

/* [b, h, s, 1] in fp32: one number a query. */
static eo_cudnn_node per_query(const struct form *f, int64_t id)
{
    const int64_t size[4] = {f->b, f->h, f->s, 1}, stride[4] = {f->h * f->s, f->s, 1, 1};
    return tensor(f, id, FP32, size, stride);
}

/* [b, h, s, d] without gaps. */
static eo_cudnn_node packed_heads(const struct form *f, int64_t id, cudnnDataType_t type)
{
    const int64_t size[4] = {f->b, f->h, f->s, f->d}, stride[4] = {f->h * f->s * f->d, f->s * f->d, f->d, 1};
    return tensor(f, id, type, size, stride);
}

/* Virtual [b, h, s, s]: scores and what becomes of them. */
static eo_cudnn_node scores(const struct form *f, cudnnDataType_t type)
{
    const int64_t size[4] = {f->b, f->h, f->s, f->s}, stride[4] = {f->h * f->s * f->s, f->s * f->s, f->s, 1};
    return tensor(f, 0, type, size, stride);
}

static eo_cudnn_node scores_transposed(const struct form *f)
{
    const int64_t size[4] = {f->b, f->h, f->s, f->s}, stride[4] = {f->h * f->s * f->s, f->s * f->s, 1, f->s};
    return tensor(f, 0, BF16, size, stride);
}

static eo_cudnn_node by_value(const struct form *f, int64_t id)
{
    const struct eo_cudnn_tensor t = {
        .id = id, .type = FP32, .size = {1, 1, 1, 1}, .stride = {1, 1, 1, 1}, .by_value = true};
    return eo_cudnn_tensor(f->graph, &t);
}

/* y = mode(x, b), virtual scores in fp32. */
static eo_cudnn_node score_step(const struct form *f, cudnnPointwiseMode_t mode, eo_cudnn_node x, eo_cudnn_node b)
{
    eo_cudnn_node y = scores(f, FP32);
    eo_cudnn_pointwise(f->graph, mode, -1, x, b, NULL, y);
    return y;
}

/* Scores of keys after the query become -infinity: row index >= column index stays. */
static eo_cudnn_node masked(const struct form *f, eo_cudnn_node x)
{
    eo_cudnn_node row = scores(f, CUDNN_DATA_INT32), column = scores(f, CUDNN_DATA_INT32);
    eo_cudnn_node seen = scores(f, CUDNN_DATA_BOOLEAN), y = scores(f, FP32);
    eo_cudnn_pointwise(f->graph, CUDNN_POINTWISE_GEN_INDEX, 2, x, NULL, NULL, row);
    eo_cudnn_pointwise(f->graph, CUDNN_POINTWISE_GEN_INDEX, 3, x, NULL, NULL, column);
    eo_cudnn_pointwise(f->graph, CUDNN_POINTWISE_CMP_GE, -1, row, column, NULL, seen);
    eo_cudnn_pointwise(f->graph, CUDNN_POINTWISE_BINARY_SELECT, -1, x, by_value(f, EO_ATTENTION_MINUS_INFINITY), seen, y);
    return y;
}

static eo_cudnn_node scaled_scores(const struct form *f, eo_cudnn_node q, eo_cudnn_node k_transposed,
                                   eo_cudnn_node scale)
{
    eo_cudnn_node product = scores(f, FP32);
    eo_cudnn_matmul(f->graph, q, k_transposed, product);
    return score_step(f, CUDNN_POINTWISE_MUL, product, scale);
}

void eo_attention_graph_forward(struct eo_cudnn_graph *graph, const struct eo_attention_shape *shape)
{
    const struct form form = form_of(graph, shape), *f = &form;
    eo_cudnn_node q = heads(f, EO_ATTENTION_Q, f->h, f->q_row), v = heads(f, EO_ATTENTION_V, f->hk, f->kv_row);
    eo_cudnn_node k = heads_transposed(f, EO_ATTENTION_K, f->hk, f->kv_row);
    eo_cudnn_node out = heads(f, EO_ATTENTION_OUT, f->h, f->out_row);
    eo_cudnn_node log_sum_exp = per_query(f, EO_ATTENTION_LOG_SUM_EXP);
    eo_cudnn_node max = per_query(f, 0), sum = per_query(f, 0), log_sum = per_query(f, 0);

    eo_cudnn_node s = masked(f, scaled_scores(f, q, k, by_value(f, EO_ATTENTION_SCALE)));
    eo_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_MAX, s, max);
    s = score_step(f, CUDNN_POINTWISE_SUB, s, max);
    s = score_step(f, CUDNN_POINTWISE_EXP, s, NULL);
    eo_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, s, sum);
    eo_cudnn_pointwise(graph, CUDNN_POINTWISE_LOG, -1, sum, NULL, NULL, log_sum);
    eo_cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, -1, max, log_sum, NULL, log_sum_exp);
    eo_cudnn_node weights = scores(f, BF16);
    eo_cudnn_pointwise(graph, CUDNN_POINTWISE_DIV, -1, s, sum, NULL, weights);
    eo_cudnn_matmul(graph, weights, v, out);
}

/* c = a^T b, where a are scores; for shared heads of keys, summed over those that share one. */
static void key_gradient(const struct form *f, eo_cudnn_node a, eo_cudnn_node b, enum eo_attention_tensor id)
{
    eo_cudnn_node transposed = scores_transposed(f), c = heads(f, id, f->hk, f->kv_row);
    eo_cudnn_reshape(f->graph, a, transposed);
    if (f->h == f->hk) {
        eo_cudnn_matmul(f->graph, transposed, b, c);
        return;
    }
    eo_cudnn_node all_heads = packed_heads(f, 0, BF16);
    eo_cudnn_matmul(f->graph, transposed, b, all_heads);
    eo_cudnn_reduce(f->graph, CUDNN_REDUCE_TENSOR_ADD, all_heads, c);
}

void eo_attention_graph_backward(struct eo_cudnn_graph *graph, const struct eo_attention_shape *shape)
{
    const struct form form = form_of(graph, shape), *f = &form;
    eo_cudnn_node q = heads(f, EO_ATTENTION_Q, f->h, f->q_row);
    eo_cudnn_node k = heads_transposed(f, EO_ATTENTION_K, f->hk, f->kv_row);
    eo_cudnn_node v = heads_transposed(f, EO_ATTENTION_V, f->hk, f->kv_row);
    eo_cudnn_node out = heads(f, EO_ATTENTION_OUT, f->h, f->out_row);
    eo_cudnn_node out_gradient = heads(f, EO_ATTENTION_OUT_GRADIENT, f->h, f->out_row);
    eo_cudnn_node log_sum_exp = per_query(f, EO_ATTENTION_LOG_SUM_EXP);
    eo_cudnn_node scale = by_value(f, EO_ATTENTION_SCALE);

    /* The dot product of a query's out and out_gradient: the mean that the softmax's gradient subtracts. */
    const int64_t size[4] = {f->b, f->h, f->s, f->d}, stride[4] = {f->h * f->s * f->d, f->s * f->d, f->h * f->d, 1};
    eo_cudnn_node both = tensor(f, 0, FP32, size, stride), dot = per_query(f, 0);
    eo_cudnn_node dot_sum = per_query(f, EO_ATTENTION_DOT_SUM);
    eo_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, -1, out_gradient, out, NULL, both);
    eo_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, both, dot);
    eo_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, -1, dot, by_value(f, EO_ATTENTION_ONE), NULL, dot_sum);

    eo_cudnn_node s = score_step(f, CUDNN_POINTWISE_SUB, scaled_scores(f, q, k, scale), log_sum_exp);
    eo_cudnn_node weights = score_step(f, CUDNN_POINTWISE_EXP, masked(f, s), NULL);
    key_gradient(f, weights, out_gradient, EO_ATTENTION_V_GRADIENT);

    eo_cudnn_node g = scores(f, FP32);
    eo_cudnn_matmul(graph, out_gradient, v, g);
    g = score_step(f, CUDNN_POINTWISE_SUB, g, dot_sum);
    g = score_step(f, CUDNN_POINTWISE_MUL, g, weights);
    eo_cudnn_node scores_gradient = scores(f, BF16);
    eo_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, -1, g, scale, NULL, scores_gradient);
    key_gradient(f, scores_gradient, q, EO_ATTENTION_K_GRADIENT);

    eo_cudnn_node k_rows = heads(f, 0, f->hk, f->kv_row);
    eo_cudnn_node q_sum = packed_heads(f, EO_ATTENTION_Q_SUM, FP32);
    eo_cudnn_reshape(graph, k, k_rows);
    eo_cudnn_matmul(graph, scores_gradient, k_rows, q_sum);
    eo_cudnn_pointwise(graph, CUDNN_POINTWISE_IDENTITY, -1, q_sum, NULL, NULL,
                       heads(f, EO_ATTENTION_Q_GRADIENT, f->h, f->q_row));
}
