/* SPDX-License-Identifier: MIT
 *
 * Twins of the layers' kernels on CUDA: the same launch functions as the .cu files of layers/cuda have, which enqueue the
 * reference kernels on a simulated stream, with what they read and write. Sums go in the reference's order: a training on
 * the simulated device ends in the bits of the CPU's backend "reference".
 */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "layers/cuda/kernels.h"
#include "layers/reference/kernels.h"
#include "tests/simulator/cublaslt/cublaslt.h"
#include "tests/simulator/cuda/sim.h"
#include "twin_layers.h"

uint64_t twin_vocabulary = 1;

enum { OPERANDS_MAX = 12, ARGUMENT_BYTES_MAX = 256 };

/* A pointer among a kernel's arguments, and the bytes it points to. */
struct operand {
    size_t field;
    uint64_t bytes;
    bool writes;
};

struct launch {
    void (*run)(const void *arguments);
    uint32_t operand_count;
    struct operand operands[OPERANDS_MAX];
    _Alignas(16) unsigned char arguments[ARGUMENT_BYTES_MAX];
};

/* The arguments with the host's pointers in place of the device's. */
static void launch_body(const void *copy)
{
    struct launch launch = *(const struct launch *)copy;
    for (uint32_t i = 0; i < launch.operand_count; i++) {
        const struct operand *o = &launch.operands[i];
        void *pointer;
        memcpy(&pointer, launch.arguments + o->field, sizeof(pointer));
        if (!pointer || o->bytes == 0)
            continue;
        pointer = o->writes ? sim_at_write(pointer, o->bytes) : (void *)(uintptr_t)sim_at_read(pointer, o->bytes);
        memcpy(launch.arguments + o->field, &pointer, sizeof(pointer));
    }
    launch.run(launch.arguments);
}

static cudaError_t enqueue(const char *name, cudaStream_t stream, void (*run)(const void *), const void *arguments,
                           size_t bytes, const struct operand *operands, uint32_t count)
{
    struct launch launch = {.run = run, .operand_count = count};
    struct sim_range ranges[OPERANDS_MAX];
    assert(bytes <= ARGUMENT_BYTES_MAX && count <= OPERANDS_MAX);
    memcpy(launch.arguments, arguments, bytes);
    memcpy(launch.operands, operands, count * sizeof(*operands));
    for (uint32_t i = 0; i < count; i++) {
        void *pointer;
        memcpy(&pointer, launch.arguments + operands[i].field, sizeof(pointer));
        ranges[i] = (struct sim_range){pointer, pointer ? operands[i].bytes : 0, operands[i].writes};
    }
    return sim_kernel(name, stream, launch_body, &launch, sizeof(launch), ranges, count);
}

#define LAUNCH(name, stream, run, args, operands)                                                                     \
    enqueue(name, stream, run, args, sizeof(*(args)), operands, sizeof(operands) / sizeof((operands)[0]))
#define READS(type, field, bytes) {offsetof(struct type, field), (bytes), false}
#define WRITES(type, field, bytes) {offsetof(struct type, field), (bytes), true}

static uint64_t elements(eo_dtype dtype, uint64_t count)
{
    return count * eo_dtype_bytes(dtype);
}

/* From the first element of the first row to the last of the last. */
static uint64_t rows_bytes(eo_dtype dtype, uint64_t rows, uint64_t stride, uint64_t width)
{
    return elements(dtype, (rows - 1) * stride + width);
}

/* ---- element-wise ---- */

#define RUN(name, type, function)                                                                                     \
    static void name(const void *arguments)                                                                           \
    {                                                                                                                 \
        function((const struct type *)arguments);                                                                     \
    }

RUN(residual_body, eo_residual, eo_ref_residual_add)
RUN(gelu_body, eo_gelu, eo_ref_gelu_forward)
RUN(swiglu_forward_body, eo_swiglu, eo_ref_swiglu_forward)
RUN(swiglu_backward_body, eo_swiglu, eo_ref_swiglu_backward)
RUN(norm_forward_body, eo_norm, eo_ref_norm_forward)
RUN(norm_again_body, eo_norm, eo_ref_norm_again)
RUN(norm_backward_body, eo_norm_gradient, eo_ref_norm_backward)
RUN(loss_body, eo_loss, eo_ref_cross_entropy)

cudaError_t eo_cuda_residual_add(const struct eo_residual *r, cudaStream_t stream)
{
    const uint64_t all = elements(r->types.compute, r->rows * r->width), row = elements(r->types.compute, r->width);
    const struct operand operands[] = {WRITES(eo_residual, output, all), READS(eo_residual, residual, all),
                                       READS(eo_residual, bias, row)};
    return LAUNCH("residual_add", stream, residual_body, r, operands);
}

static void column_sums_body(const void *arguments)
{
    const struct eo_column_sums *s = arguments;
    eo_ref_column_sums(s, 0, s->width);
}

cudaError_t eo_cuda_column_sums(const struct eo_column_sums *s, cudaStream_t stream)
{
    const struct operand operands[] = {
        WRITES(eo_column_sums, bias_gradient, elements(s->types.gradient, s->width)),
        READS(eo_column_sums, gradient,
              rows_bytes(s->types.compute, s->rows, s->stride ? s->stride : s->width, s->width)),
        WRITES(eo_column_sums, scratch, eo_cuda_column_scratch_bytes(s->rows, s->width)),
    };
    return LAUNCH("column_sums", stream, column_sums_body, s, operands);
}

cudaError_t eo_cuda_gelu_forward(const struct eo_gelu *g, cudaStream_t stream)
{
    const uint64_t all = elements(g->types.compute, g->rows * g->width);
    const struct operand operands[] = {WRITES(eo_gelu, out, all), READS(eo_gelu, in, all),
                                       READS(eo_gelu, bias, elements(g->types.compute, g->width))};
    return LAUNCH("gelu_forward", stream, gelu_body, g, operands);
}

cudaError_t eo_cuda_swiglu_forward(const struct eo_swiglu *s, cudaStream_t stream)
{
    const uint64_t in = rows_bytes(s->types.compute, s->rows, s->stride, s->width);
    const struct operand operands[] = {WRITES(eo_swiglu, out, elements(s->types.compute, s->rows * s->width)),
                                       READS(eo_swiglu, gate, in), READS(eo_swiglu, up, in)};
    return LAUNCH("swiglu_forward", stream, swiglu_forward_body, s, operands);
}

cudaError_t eo_cuda_swiglu_backward(const struct eo_swiglu *s, cudaStream_t stream)
{
    const uint64_t in = rows_bytes(s->types.compute, s->rows, s->stride, s->width);
    const struct operand operands[] = {
        WRITES(eo_swiglu, gate_gradient, in), WRITES(eo_swiglu, up_gradient, in), READS(eo_swiglu, gate, in),
        READS(eo_swiglu, up, in), READS(eo_swiglu, out_gradient, elements(s->types.compute, s->rows * s->width)),
    };
    return LAUNCH("swiglu_backward", stream, swiglu_backward_body, s, operands);
}

static void rotate_body(const void *arguments)
{
    eo_ref_rotate(arguments, 0);
}

cudaError_t eo_cuda_rotate(const struct eo_rotation *r, cudaStream_t stream)
{
    const struct operand operands[] = {
        WRITES(eo_rotation, values, rows_bytes(r->types.compute, r->rows, r->stride, (uint64_t)r->head_count * r->head_size)),
        READS(eo_rotation, table, (uint64_t)r->seq * r->head_size * sizeof(float)),
    };
    return LAUNCH("rotate", stream, rotate_body, r, operands);
}

/* The fused ones' formulas, on sums that were rounded before. */
static void epilogue_body(const void *arguments)
{
    const struct eo_multiply *p = arguments;
    const eo_dtype dtype = p->types.compute;
    for (uint64_t row = 0; row < p->m; row++) {
        void *c = eo_element_at_mutable(dtype, p->c, row * p->c_stride);
        void *aux = eo_element_at_mutable(dtype, p->aux, row * p->aux_stride);
        if (p->epilogue == EO_EPILOGUE_GELU_GRADIENT) {
            eo_ref_gelu_gradient(c, aux, dtype, p->n);
            continue;
        }
        for (uint64_t i = 0; i < p->n; i++) {
            const float x = eo_element_load(dtype, c, i) + eo_element_load(dtype, p->bias, i);
            eo_element_store(dtype, p->epilogue == EO_EPILOGUE_BIAS_GELU ? aux : c, i, x);
        }
        if (p->epilogue == EO_EPILOGUE_BIAS_GELU)
            eo_ref_gelu_forward(&(struct eo_gelu){.types = p->types, .out = c, .in = aux, .rows = 1, .width = p->n});
    }
}

cudaError_t eo_cuda_epilogue(const struct eo_multiply *p, cudaStream_t stream)
{
    const bool aux = p->epilogue != EO_EPILOGUE_BIAS, bias = p->epilogue != EO_EPILOGUE_GELU_GRADIENT;
    const struct operand operands[] = {
        WRITES(eo_multiply, c, rows_bytes(p->types.compute, p->m, p->c_stride, p->n)),
        READS(eo_multiply, bias, bias ? elements(p->types.compute, p->n) : 0),
        WRITES(eo_multiply, aux, aux ? rows_bytes(p->types.compute, p->m, p->aux_stride, p->n) : 0),
    };
    sim_cublaslt_take_time(stream, 4); /* a kernel more is slower than a fused epilogue, whatever the schedule */
    return LAUNCH("epilogue", stream, epilogue_body, p, operands);
}

struct finite_args {
    uint32_t *flag;
    const void *values;
    uint64_t count;
    eo_dtype dtype;
};

static void finite_body(const void *arguments)
{
    const struct finite_args *args = arguments;
    if (!eo_ref_all_finite(args->dtype, args->values, args->count))
        *args->flag = 1;
}

cudaError_t eo_cuda_check_finite(uint32_t *flag, const void *values, uint64_t count, eo_dtype dtype, cudaStream_t stream)
{
    const struct finite_args args = {flag, values, count, dtype};
    const struct operand operands[] = {WRITES(finite_args, flag, sizeof(*flag)),
                                       READS(finite_args, values, elements(dtype, count))};
    return LAUNCH("check_finite", stream, finite_body, &args, operands);
}

/* ---- norms ---- */

static cudaError_t norm_launch(const char *name, void (*body)(const void *), bool again, const struct eo_norm *n,
                               cudaStream_t stream)
{
    const uint64_t all = elements(n->types.compute, n->rows * n->width), row = elements(n->types.compute, n->width);
    const uint64_t stats = n->rows * sizeof(float);
    const struct operand operands[] = {
        WRITES(eo_norm, sum, all),           WRITES(eo_norm, out, all),    READS(eo_norm, residual, all),
        READS(eo_norm, branch, all),         READS(eo_norm, branch_bias, row),
        {offsetof(struct eo_norm, mean), stats, !again}, {offsetof(struct eo_norm, rstd), stats, !again},
        READS(eo_norm, weight, row),         READS(eo_norm, bias, row),
    };
    return LAUNCH(name, stream, body, n, operands);
}

cudaError_t eo_cuda_norm_forward(const struct eo_norm *n, cudaStream_t stream)
{
    return norm_launch("norm_forward", norm_forward_body, false, n, stream);
}

cudaError_t eo_cuda_norm_again(const struct eo_norm *n, cudaStream_t stream)
{
    return norm_launch("norm_again", norm_again_body, true, n, stream);
}

cudaError_t eo_cuda_norm_backward(const struct eo_norm_gradient *n, cudaStream_t stream)
{
    const uint64_t all = elements(n->types.compute, n->rows * n->width), row = elements(n->types.compute, n->width);
    const uint64_t stats = n->rows * sizeof(float), gradient = elements(n->types.gradient, n->width);
    const struct operand operands[] = {
        WRITES(eo_norm_gradient, in_gradient, all),
        READS(eo_norm_gradient, skip_gradient, all),
        READS(eo_norm_gradient, out_gradient, all),
        READS(eo_norm_gradient, in, all),
        READS(eo_norm_gradient, weight, row),
        READS(eo_norm_gradient, mean, stats),
        READS(eo_norm_gradient, rstd, stats),
        WRITES(eo_norm_gradient, weight_gradient, gradient),
        WRITES(eo_norm_gradient, bias_gradient, gradient),
        WRITES(eo_norm_gradient, scratch, eo_cuda_column_scratch_bytes(n->rows, n->width)),
    };
    return LAUNCH("norm_backward", stream, norm_backward_body, n, operands);
}

/* ---- norms of heads ---- */

RUN(head_norm_forward_body, eo_head_norm, eo_ref_head_norm_forward)
RUN(head_norm_weights_body, eo_head_norm_weights, eo_ref_head_norm_weights)

cudaError_t eo_cuda_head_norm_forward(const struct eo_head_norm *n, cudaStream_t stream)
{
    const eo_dtype dtype = n->types.compute;
    const uint64_t width = (uint64_t)(n->head_count[0] + n->head_count[1]) * n->head_size + n->copied;
    const struct operand operands[] = {
        WRITES(eo_head_norm, out, rows_bytes(dtype, n->rows, n->out_stride, width)),
        READS(eo_head_norm, in, rows_bytes(dtype, n->rows, n->in_stride, width)),
        READS(eo_head_norm, weight[0], elements(dtype, n->head_size)),
        READS(eo_head_norm, weight[1], elements(dtype, n->head_size)),
    };
    return LAUNCH("head_norm_forward", stream, head_norm_forward_body, n, operands);
}

static void head_norm_backward_body(const void *arguments)
{
    const struct eo_head_norm_gradient *n = arguments;
    eo_ref_head_norm_backward(n, 0, eo_head_norm_parts(n->rows));
}

cudaError_t eo_cuda_head_norm_backward(const struct eo_head_norm_gradient *n, cudaStream_t stream)
{
    const eo_dtype dtype = n->types.compute;
    const uint64_t width = (uint64_t)(n->head_count[0] + n->head_count[1]) * n->head_size;
    const struct operand operands[] = {
        WRITES(eo_head_norm_gradient, gradient, rows_bytes(dtype, n->rows, n->stride, width)),
        READS(eo_head_norm_gradient, in, rows_bytes(dtype, n->rows, n->in_stride, width)),
        READS(eo_head_norm_gradient, weight[0], elements(dtype, n->head_size)),
        READS(eo_head_norm_gradient, weight[1], elements(dtype, n->head_size)),
        WRITES(eo_head_norm_gradient, sums, 2 * eo_head_norm_parts(n->rows) * n->head_size * sizeof(float)),
    };
    return LAUNCH("head_norm_backward", stream, head_norm_backward_body, n, operands);
}

cudaError_t eo_cuda_head_norm_weights(const struct eo_head_norm_weights *w, cudaStream_t stream)
{
    const struct operand operands[] = {
        WRITES(eo_head_norm_weights, weight_gradient[0], elements(w->types.gradient, w->head_size)),
        WRITES(eo_head_norm_weights, weight_gradient[1], elements(w->types.gradient, w->head_size)),
        READS(eo_head_norm_weights, sums, 2 * eo_head_norm_parts(w->rows) * w->head_size * sizeof(float)),
    };
    return LAUNCH("head_norm_weights", stream, head_norm_weights_body, w, operands);
}

/* ---- embedding ---- */

static void embedding_forward_body(const void *arguments)
{
    eo_ref_embedding_forward(arguments, 0);
}

/* How many rows the token table has is not among the arguments. */
cudaError_t eo_cuda_embedding_forward(const struct eo_embedding *e, cudaStream_t stream)
{
    const struct operand operands[] = {
        WRITES(eo_embedding, out, elements(e->types.compute, e->rows * e->width)),
        READS(eo_embedding, tokens, e->rows * sizeof(int32_t)),
        READS(eo_embedding, token_table, elements(e->types.compute, twin_vocabulary * e->width)),
        READS(eo_embedding, position_table, elements(e->types.compute, (uint64_t)e->seq * e->width)),
    };
    return LAUNCH("embedding_forward", stream, embedding_forward_body, e, operands);
}

static void embedding_backward_body(const void *arguments)
{
    const struct eo_embedding_gradient *e = arguments;
    eo_ref_embedding_backward(e, 0, e->width);
}

cudaError_t eo_cuda_embedding_backward(const struct eo_embedding_gradient *e, cudaStream_t stream)
{
    const struct operand operands[] = {
        WRITES(eo_embedding_gradient, token_gradient, elements(e->types.gradient, e->vocabulary * e->width)),
        WRITES(eo_embedding_gradient, position_gradient, elements(e->types.gradient, e->positions * e->width)),
        READS(eo_embedding_gradient, out_gradient, elements(e->types.compute, e->rows * e->width)),
        READS(eo_embedding_gradient, tokens, e->rows * sizeof(int32_t)),
        WRITES(eo_embedding_gradient, scratch, eo_cuda_embedding_scratch_bytes(e->rows, e->width, e->vocabulary)),
    };
    return LAUNCH("embedding_backward", stream, embedding_backward_body, e, operands);
}

/* ---- loss ---- */

cudaError_t eo_cuda_cross_entropy(const struct eo_loss *l, cudaStream_t stream)
{
    const struct operand operands[] = {
        {offsetof(struct eo_loss, logits), rows_bytes(l->types.compute, l->rows, l->stride, l->vocabulary), l->backward},
        WRITES(eo_loss, losses, l->rows * sizeof(float)),
        WRITES(eo_loss, loss_sum, sizeof(double)),
        READS(eo_loss, targets, l->rows * sizeof(int32_t)),
    };
    return LAUNCH("cross_entropy", stream, loss_body, l, operands);
}

struct loss_add_args {
    double *to;
    const double *loss;
    double factor;
};

static void loss_add_body(const void *arguments)
{
    const struct loss_add_args *args = arguments;
    *args->to += *args->loss * args->factor;
}

cudaError_t eo_cuda_loss_add(double *to, const double *loss, double factor, cudaStream_t stream)
{
    const struct loss_add_args args = {to, loss, factor};
    const struct operand operands[] = {WRITES(loss_add_args, to, sizeof(*to)), READS(loss_add_args, loss, sizeof(*loss))};
    return LAUNCH("loss_add", stream, loss_add_body, &args, operands);
}

/* ---- attention by products ---- */

static uint64_t score_count(const struct eo_cuda_softmax *s)
{
    return (uint64_t)s->heads * s->queries * s->keys;
}

static uint64_t log_sum_exp_bytes(const struct eo_cuda_softmax *s)
{
    return ((s->heads - 1) * s->log_sum_exp_stride + s->queries) * sizeof(float);
}

static uint32_t keys_seen(const struct eo_cuda_softmax *s, uint32_t query)
{
    return s->first + query < s->keys ? s->first + query + 1 : s->keys;
}

static void softmax_forward_body(const void *arguments)
{
    const struct eo_cuda_softmax *s = arguments;
    for (uint32_t head = 0; head < s->heads; head++)
        for (uint32_t query = 0; query < s->queries; query++) {
            const uint64_t at = ((uint64_t)head * s->queries + query) * s->keys;
            const uint32_t seen = keys_seen(s, query);
            float max = -INFINITY, sum = 0;
            for (uint32_t key = 0; key < seen; key++)
                max = fmaxf(max, s->scale * s->scores[at + key]);
            for (uint32_t key = 0; key < seen; key++)
                sum += expf(s->scale * s->scores[at + key] - max);
            for (uint32_t key = 0; key < s->keys; key++)
                eo_element_store(s->dtype, s->weights, at + key,
                                 key < seen ? expf(s->scale * s->scores[at + key] - max) / sum : 0);
            s->log_sum_exp[head * s->log_sum_exp_stride + query] = max + logf(sum);
        }
}

cudaError_t eo_cuda_softmax_forward(const struct eo_cuda_softmax *s, cudaStream_t stream)
{
    const struct operand operands[] = {
        READS(eo_cuda_softmax, scores, score_count(s) * sizeof(float)),
        WRITES(eo_cuda_softmax, weights, elements(s->dtype, score_count(s))),
        WRITES(eo_cuda_softmax, log_sum_exp, log_sum_exp_bytes(s)),
    };
    return LAUNCH("softmax_forward", stream, softmax_forward_body, s, operands);
}

static void softmax_backward_body(const void *arguments)
{
    const struct eo_cuda_softmax_gradient *g = arguments;
    const struct eo_cuda_softmax *s = &g->softmax;
    for (uint32_t head = 0; head < s->heads; head++)
        for (uint32_t query = 0; query < s->queries; query++) {
            const uint64_t at = ((uint64_t)head * s->queries + query) * s->keys;
            const uint64_t row = head * g->out_head_stride + query * g->out_stride;
            const float lse = s->log_sum_exp[head * s->log_sum_exp_stride + query];
            float dot = 0;
            for (uint32_t i = 0; i < g->head_size; i++)
                dot += eo_element_load(s->dtype, g->out, row + i) * eo_element_load(s->dtype, g->out_gradient, row + i);
            for (uint32_t key = 0; key < s->keys; key++) {
                const bool seen = key < keys_seen(s, query);
                const float weight = seen ? expf(s->scale * s->scores[at + key] - lse) : 0;
                const float gradient = seen ? s->scale * weight * (g->weights_gradient[at + key] - dot) : 0;
                eo_element_store(s->dtype, s->weights, at + key, weight);
                eo_element_store(s->dtype, g->scores_gradient, at + key, gradient);
            }
        }
}

cudaError_t eo_cuda_softmax_backward(const struct eo_cuda_softmax_gradient *g, cudaStream_t stream)
{
    const struct eo_cuda_softmax *s = &g->softmax;
    const uint64_t out = elements(s->dtype, (s->heads - 1) * g->out_head_stride + (s->queries - 1) * g->out_stride +
                                                g->head_size);
    const struct operand operands[] = {
        READS(eo_cuda_softmax_gradient, softmax.scores, score_count(s) * sizeof(float)),
        WRITES(eo_cuda_softmax_gradient, softmax.weights, elements(s->dtype, score_count(s))),
        READS(eo_cuda_softmax_gradient, softmax.log_sum_exp, log_sum_exp_bytes(s)),
        READS(eo_cuda_softmax_gradient, weights_gradient, score_count(s) * sizeof(float)),
        WRITES(eo_cuda_softmax_gradient, scores_gradient, elements(s->dtype, score_count(s))),
        READS(eo_cuda_softmax_gradient, out, out),
        READS(eo_cuda_softmax_gradient, out_gradient, out),
    };
    return LAUNCH("softmax_backward", stream, softmax_backward_body, g, operands);
}

struct narrow_args {
    void *to;
    const float *from;
    uint64_t stride, rows, width;
    eo_dtype dtype;
};

static void narrow_body(const void *arguments)
{
    const struct narrow_args *args = arguments;
    for (uint64_t row = 0; row < args->rows; row++)
        for (uint64_t i = 0; i < args->width; i++)
            eo_element_store(args->dtype, args->to, row * args->stride + i, args->from[row * args->width + i]);
}

cudaError_t eo_cuda_narrow_rows(void *to, uint64_t stride, const float *from, uint64_t rows, uint64_t width,
                                eo_dtype dtype, cudaStream_t stream)
{
    const struct narrow_args args = {to, from, stride, rows, width, dtype};
    const struct operand operands[] = {WRITES(narrow_args, to, rows_bytes(dtype, rows, stride, width)),
                                       READS(narrow_args, from, rows * width * sizeof(float))};
    return LAUNCH("narrow_rows", stream, narrow_body, &args, operands);
}

/* --- what a team loads when it is made --- */

uint32_t twin_files_loaded;

#define LOAD(name, bit)                                                                                               \
    cudaError_t eo_cuda_load_##name(void)                                                                             \
    {                                                                                                                 \
        twin_files_loaded |= 1u << (bit);                                                                             \
        return cudaSuccess;                                                                                           \
    }
LOAD(elementwise, 0)
LOAD(embeddings, 1)
LOAD(head_norms, 2)
LOAD(losses, 3)
LOAD(norms, 4)
LOAD(softmax, 5)
