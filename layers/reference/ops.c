/* SPDX-License-Identifier: MIT
 *
 * The table "reference": the kernels of layers/reference/kernels.h, split over a team of the CPU. The parts change no bits.
 */
#include "base/float8.h"
#include "layers/reference/kernels.h"
#include "layers/split.h"

static bool supports(struct eo_types types)
{
    (void)types;
    return true;
}

static uint64_t no_scratch_bytes(uint64_t rows, uint64_t width)
{
    (void)rows;
    (void)width;
    return 0;
}

static uint64_t attention_scratch_bytes(struct eo_types types, const struct eo_attention_shape *shape,
                                        uint32_t thread_count)
{
    (void)types;
    return thread_count * eo_ref_attention_scratch_bytes(shape);
}

static uint64_t embedding_scratch_bytes(uint64_t rows, uint64_t width, uint64_t vocabulary)
{
    (void)rows;
    (void)width;
    (void)vocabulary;
    return 0;
}

/* A kernel's arguments and how its rows, columns or heads are cut: `total` of them, `part` a task. */
struct parts {
    const void *arguments;
    uint64_t total, part;
};

static uint64_t parts_first(const struct parts *parts, uint32_t index)
{
    return index * parts->part;
}

static uint64_t parts_count(const struct parts *parts, uint32_t index)
{
    return eo_split_min(parts->part, parts->total - parts_first(parts, index));
}

static eo_status parts_run(eo_team *team, const void *arguments, uint64_t total, uint64_t part,
                           void (*task)(void *arg, uint32_t index))
{
    struct parts parts = {arguments, total, part};
    eo_team_run(team, (uint32_t)eo_split_up(total, part), task, &parts);
    return EO_OK;
}

/* So that every thread has something to do, in multiples of `unit`. */
static uint64_t part_of(const eo_team *team, uint64_t total, uint64_t unit)
{
    const uint64_t part = eo_split_up(eo_split_up(total, 4 * (uint64_t)eo_team_thread_count(team)), unit) * unit;
    return part == 0 ? unit : part;
}

/* A pointer of the arguments' copy moves to its part. */
#define MOVE(dtype, pointer, elements) ((pointer) = eo_element_at((dtype), (pointer), (elements)))
#define MOVE_MUTABLE(dtype, pointer, elements) ((pointer) = eo_element_at_mutable((dtype), (pointer), (elements)))

/* ---- products: by rows of C ---- */

static void multiply_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    struct eo_multiply p = *(const struct eo_multiply *)parts->arguments;
    const uint64_t row = parts_first(parts, index);
    p.m = parts_count(parts, index);
    MOVE(p.types.compute, p.a.values, p.a.transposed ? row : row * p.a.stride);
    MOVE_MUTABLE(p.weight_gradient ? p.types.gradient : p.types.compute, p.c, row * p.c_stride);
    MOVE_MUTABLE(p.types.compute, p.aux, row * p.aux_stride);
    if (p.residual)
        MOVE(p.types.compute, p.residual, row * p.c_stride);
    eo_ref_multiply(&p);
}

/* bf16 holds what float8 with a power of two as scale does: a product of the rounded operands is a product in bf16. */
static struct eo_operand rounded_rows(const struct eo_operand *from, uint64_t rows, uint64_t k, uint16_t *to)
{
    for (uint64_t row = 0; row < rows; row++) {
        const uint16_t *in = (const uint16_t *)from->values + row * from->stride;
        uint16_t largest = 0;
        for (uint64_t i = 0; i < k; i++)
            largest = (in[i] & 0x7fff) > largest ? in[i] & 0x7fff : largest;
        const float scale = eo_float8_scale(largest), inverse = eo_float8_inverse(scale);
        for (uint64_t i = 0; i < k; i++)
            to[row * k + i] = eo_float8_widen(eo_float8_narrow(in[i], inverse), scale);
    }
    return (struct eo_operand){to, k, from->transposed};
}

static uint64_t float8_scratch_bytes(uint64_t m, uint64_t n, uint64_t k)
{
    return (m + n) * k * sizeof(uint16_t);
}

static eo_status multiply(eo_team *team, const struct eo_multiply *p)
{
    struct eo_multiply rounded = *p;
    if (eo_is_float8_product(p)) {
        rounded.a = rounded_rows(&p->a, p->m, p->k, p->scratch);
        rounded.b = rounded_rows(&p->b, p->n, p->k, (uint16_t *)p->scratch + p->m * p->k);
        p = &rounded;
    }
    return parts_run(team, p, p->m, part_of(team, p->m, 32), multiply_task);
}

/* ---- element-wise: by rows ---- */

static void residual_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    struct eo_residual r = *(const struct eo_residual *)parts->arguments;
    const uint64_t at = parts_first(parts, index) * r.width;
    r.rows = parts_count(parts, index);
    MOVE_MUTABLE(r.types.compute, r.output, at);
    MOVE(r.types.compute, r.residual, at);
    eo_ref_residual_add(&r);
}

static eo_status residual_add(eo_team *team, const struct eo_residual *r)
{
    return parts_run(team, r, r->rows, part_of(team, r->rows, 1), residual_task);
}

static void gelu_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    struct eo_gelu g = *(const struct eo_gelu *)parts->arguments;
    const uint64_t at = parts_first(parts, index) * g.width;
    g.rows = parts_count(parts, index);
    MOVE_MUTABLE(g.types.compute, g.out, at);
    MOVE(g.types.compute, g.in, at);
    eo_ref_gelu_forward(&g);
}

static eo_status gelu_forward(eo_team *team, const struct eo_gelu *g)
{
    return parts_run(team, g, g->rows, part_of(team, g->rows, 1), gelu_task);
}

/* In place, as a table with epilogues is asked. */
static void gelu_backward_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    const struct eo_gelu_gradient *g = parts->arguments;
    const eo_dtype dtype = g->types.compute;
    const uint64_t at = parts_first(parts, index) * g->width;
    eo_ref_gelu_gradient(eo_element_at_mutable(dtype, g->in_gradient, at), eo_element_at(dtype, g->in, at),
                         eo_element_at_mutable(dtype, g->again, at), dtype, parts_count(parts, index) * g->width);
}

static eo_status gelu_backward(eo_team *team, const struct eo_gelu_gradient *g)
{
    return parts_run(team, g, g->rows, part_of(team, g->rows, 1), gelu_backward_task);
}

struct scaling {
    eo_dtype dtype;
    void *values;
    float factor;
};

static void scale_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    const struct scaling *s = parts->arguments;
    const uint64_t first = parts_first(parts, index), end = first + parts_count(parts, index);
    for (uint64_t i = first; i < end; i++)
        eo_element_store(s->dtype, s->values, i, eo_element_load(s->dtype, s->values, i) * s->factor);
}

eo_status eo_host_scale(eo_team *team, eo_dtype dtype, void *values, uint64_t count, float factor)
{
    const struct scaling scaling = {dtype, values, factor};
    return parts_run(team, &scaling, count, part_of(team, count, 1024), scale_task);
}

static struct eo_swiglu swiglu_part(const struct parts *parts, uint32_t index)
{
    struct eo_swiglu s = *(const struct eo_swiglu *)parts->arguments;
    const uint64_t row = parts_first(parts, index);
    s.rows = parts_count(parts, index);
    MOVE_MUTABLE(s.types.compute, s.out, row * s.width);
    MOVE(s.types.compute, s.gate, row * s.stride);
    MOVE(s.types.compute, s.up, row * s.stride);
    MOVE(s.types.compute, s.out_gradient, row * s.width);
    MOVE_MUTABLE(s.types.compute, s.gate_gradient, row * s.stride);
    MOVE_MUTABLE(s.types.compute, s.up_gradient, row * s.stride);
    return s;
}

static void swiglu_forward_task(void *arg, uint32_t index)
{
    const struct eo_swiglu s = swiglu_part(arg, index);
    eo_ref_swiglu_forward(&s);
}

static eo_status swiglu_forward(eo_team *team, const struct eo_swiglu *s)
{
    return parts_run(team, s, s->rows, part_of(team, s->rows, 1), swiglu_forward_task);
}

static void swiglu_backward_task(void *arg, uint32_t index)
{
    const struct eo_swiglu s = swiglu_part(arg, index);
    eo_ref_swiglu_backward(&s);
}

static eo_status swiglu_backward(eo_team *team, const struct eo_swiglu *s)
{
    return parts_run(team, s, s->rows, part_of(team, s->rows, 1), swiglu_backward_task);
}

static void rotate_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    struct eo_rotation r = *(const struct eo_rotation *)parts->arguments;
    r.rows = parts_count(parts, index);
    eo_ref_rotate(&r, parts_first(parts, index));
}

static eo_status rotate(eo_team *team, const struct eo_rotation *r)
{
    return parts_run(team, r, r->rows, part_of(team, r->rows, 1), rotate_task);
}

static void column_sums_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    eo_ref_column_sums(parts->arguments, parts_first(parts, index), parts_count(parts, index));
}

static eo_status column_sums(eo_team *team, const struct eo_column_sums *s)
{
    return parts_run(team, s, s->width, part_of(team, s->width, 64), column_sums_task);
}

/* ---- norms: rows, but for the gradients of weights ---- */

static struct eo_norm norm_part(const struct parts *parts, uint32_t index)
{
    struct eo_norm n = *(const struct eo_norm *)parts->arguments;
    const uint64_t row = parts_first(parts, index);
    n.rows = parts_count(parts, index);
    MOVE_MUTABLE(n.types.compute, n.sum, row * n.width);
    MOVE_MUTABLE(n.types.compute, n.out, row * n.width);
    MOVE(n.types.compute, n.residual, row * n.width);
    MOVE(n.types.compute, n.branch, row * n.width);
    n.mean = eo_row_mutable(n.mean, row, 1);
    n.rstd = eo_row_mutable(n.rstd, row, 1);
    return n;
}

static void norm_forward_task(void *arg, uint32_t index)
{
    const struct eo_norm n = norm_part(arg, index);
    eo_ref_norm_forward(&n);
}

static eo_status norm_forward(eo_team *team, const struct eo_norm *n)
{
    return parts_run(team, n, n->rows, part_of(team, n->rows, 1), norm_forward_task);
}

static void norm_weight_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    eo_ref_norm_weight_gradient(parts->arguments, parts_first(parts, index), parts_count(parts, index));
}

static void norm_input_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    struct eo_norm_gradient n = *(const struct eo_norm_gradient *)parts->arguments;
    const uint64_t row = parts_first(parts, index);
    n.rows = parts_count(parts, index);
    MOVE_MUTABLE(n.types.compute, n.in_gradient, row * n.width);
    MOVE_MUTABLE(n.types.compute, n.again, row * n.width);
    MOVE(n.types.compute, n.skip_gradient, row * n.width);
    MOVE(n.types.compute, n.out_gradient, row * n.width);
    MOVE(n.types.compute, n.in, row * n.width);
    n.mean = eo_row(n.mean, row, 1);
    n.rstd = eo_row(n.rstd, row, 1);
    eo_ref_norm_input_gradient(&n);
}

/* in_gradient may be out_gradient, which the weights' gradients read: they come first. */
static eo_status norm_backward(eo_team *team, const struct eo_norm_gradient *n)
{
    if (n->weight_gradient)
        (void)parts_run(team, n, n->width, part_of(team, n->width, 64), norm_weight_task);
    return parts_run(team, n, n->rows, part_of(team, n->rows, 1), norm_input_task);
}

static void head_norm_forward_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    struct eo_head_norm n = *(const struct eo_head_norm *)parts->arguments;
    const uint64_t row = parts_first(parts, index);
    n.rows = parts_count(parts, index);
    MOVE(n.types.compute, n.in, row * n.in_stride);
    MOVE_MUTABLE(n.types.compute, n.out, row * n.out_stride);
    eo_ref_head_norm_forward(&n);
}

static eo_status head_norm_forward(eo_team *team, const struct eo_head_norm *n)
{
    return parts_run(team, n, n->rows, part_of(team, n->rows, 1), head_norm_forward_task);
}

static void head_norm_backward_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    eo_ref_head_norm_backward(parts->arguments, parts_first(parts, index), parts_count(parts, index));
}

static eo_status head_norm_backward(eo_team *team, const struct eo_head_norm_gradient *n)
{
    const uint64_t count = eo_head_norm_parts(n->rows);
    return parts_run(team, n, count, part_of(team, count, 1), head_norm_backward_task);
}

static eo_status head_norm_weights(eo_team *team, const struct eo_head_norm_weights *w)
{
    (void)team;
    eo_ref_head_norm_weights(w);
    return EO_OK;
}

/* ---- attention: pairs of sequence and key/value head, as many tasks as there is scratch for ---- */

static uint64_t attention_part(const eo_team *team, const struct eo_attention *a)
{
    return eo_split_up((uint64_t)a->shape.batch * a->shape.kv_head_count, eo_team_thread_count(team));
}

static void *attention_lane(const struct eo_attention *a, uint32_t index)
{
    return (char *)a->scratch + index * eo_ref_attention_scratch_bytes(&a->shape);
}

static void attention_forward_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    eo_ref_attention_forward(parts->arguments, parts_first(parts, index), parts_count(parts, index),
                             attention_lane(parts->arguments, index));
}

static eo_status attention_forward(eo_team *team, const struct eo_attention *a)
{
    const uint64_t pairs = (uint64_t)a->shape.batch * a->shape.kv_head_count;
    return parts_run(team, a, pairs, attention_part(team, a), attention_forward_task);
}

static void attention_backward_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    eo_ref_attention_backward(parts->arguments, parts_first(parts, index), parts_count(parts, index),
                              attention_lane(parts->arguments, index));
}

static eo_status attention_backward(eo_team *team, const struct eo_attention *a)
{
    const uint64_t pairs = (uint64_t)a->shape.batch * a->shape.kv_head_count;
    return parts_run(team, a, pairs, attention_part(team, a), attention_backward_task);
}

/* ---- embedding and loss ---- */

static void embedding_forward_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    struct eo_embedding e = *(const struct eo_embedding *)parts->arguments;
    e.rows = parts_count(parts, index);
    eo_ref_embedding_forward(&e, parts_first(parts, index));
}

static eo_status embedding_forward(eo_team *team, const struct eo_embedding *e)
{
    return parts_run(team, e, e->rows, part_of(team, e->rows, 1), embedding_forward_task);
}

static void embedding_backward_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    eo_ref_embedding_backward(parts->arguments, parts_first(parts, index), parts_count(parts, index));
}

/* Every task searches all tokens, so there are no more of them than threads. */
static eo_status embedding_backward(eo_team *team, const struct eo_embedding_gradient *e)
{
    return parts_run(team, e, e->width, eo_split_up(e->width, eo_team_thread_count(team)), embedding_backward_task);
}

static void loss_task(void *arg, uint32_t index)
{
    const struct parts *parts = arg;
    const uint64_t first = parts_first(parts, index), count = parts_count(parts, index);
    for (uint64_t row = first; row < first + count; row++)
        eo_ref_loss_row(parts->arguments, row);
}

static eo_status cross_entropy(eo_team *team, const struct eo_loss *l)
{
    (void)parts_run(team, l, l->rows, part_of(team, l->rows, 1), loss_task);
    double total = 0;
    for (uint64_t row = 0; row < l->rows; row++)
        total += l->losses[row];
    *l->loss_sum += total;
    return EO_OK;
}

eo_status eo_host_loss_zero(eo_team *team, double *loss)
{
    (void)team;
    *loss = 0;
    return EO_OK;
}

eo_status eo_host_loss_add(eo_team *team, double *to, const double *loss, double factor)
{
    (void)team;
    *to += *loss * factor;
    return EO_OK;
}

eo_status eo_host_all_finite(eo_team *team, eo_dtype dtype, const void *values, uint64_t count, bool *out)
{
    (void)team;
    *out = eo_ref_all_finite(dtype, values, count);
    return EO_OK;
}

const struct eo_kernel_ops eo_kernels_reference_ops = {
    .name = "reference",
    .fused_epilogues = true,
    .fused_residuals = true,
    .joined_products = true,
    .remakes_gelu = true,
    .remakes_swiglu = true,
    .host_memory = true,
    .scratch_alignment = 64,
    .word_multiple = 1, .chunk_multiple = 1,
    .supports = supports,
    .norm_scratch_bytes = no_scratch_bytes,
    .column_scratch_bytes = no_scratch_bytes,
    .attention_scratch_bytes = attention_scratch_bytes,
    .embedding_scratch_bytes = embedding_scratch_bytes,
    .float8_scratch_bytes = float8_scratch_bytes,
    .multiply = multiply,
    .residual_add = residual_add,
    .scale = eo_host_scale,
    .dropout = eo_host_dropout,
    .column_sums = column_sums,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .head_norm_forward = head_norm_forward,
    .head_norm_backward = head_norm_backward,
    .head_norm_weights = head_norm_weights,
    .rotate = rotate,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .cross_entropy = cross_entropy,
    .loss_zero = eo_host_loss_zero,
    .loss_add = eo_host_loss_add,
    .all_finite = eo_host_all_finite,
};
