/* SPDX-License-Identifier: MIT
 *
 * The ways to compute attention on the simulated device: the reference kernels, with the CPU's bits; or, where a test asks for
 * the program's own ways, cuDNN (simulated: tests/simulator/cudnn/cudnn.h), and then the products over blocks of queries, as they are.
 */
#include "layers/cuda/internal.h"
#include "layers/reference/kernels.h"
#include "tests/simulator/cuda/sim.h"
#include "twin_layers.h"

bool twin_attention_by_program;

static bool supports(struct eo_types types, const struct eo_attention_shape *shape)
{
    (void)types, (void)shape;
    return !twin_attention_by_program;
}

static uint64_t scratch_bytes(struct eo_types types, const struct eo_attention_shape *shape)
{
    (void)types;
    return eo_ref_attention_scratch_bytes(shape);
}

static eo_status prepare(struct eo_cuda_team *team, struct eo_types types, const struct eo_attention_shape *shape,
                         void **state)
{
    (void)team, (void)types, (void)shape;
    *state = NULL;
    return EO_OK;
}

static void release(struct eo_cuda_team *team, void *state)
{
    (void)team, (void)state;
}

/* Bytes from the first to the last element of a tensor of `heads` heads. */
static uint64_t span(const struct eo_attention *a, uint64_t stride, uint32_t heads)
{
    const struct eo_attention_shape *s = &a->shape;
    const uint64_t rows = (uint64_t)s->batch * s->seq;
    return ((rows - 1) * stride + (uint64_t)heads * s->head_size) * eo_dtype_bytes(a->types.compute);
}

struct spans {
    uint64_t q, kv, out, log_sum_exp, scratch;
};

static struct spans spans_of(const struct eo_attention *a)
{
    const struct eo_attention_shape *s = &a->shape;
    return (struct spans){
        .q = span(a, s->q_stride, s->head_count),
        .kv = span(a, s->kv_stride, s->kv_head_count),
        .out = span(a, s->out_stride, s->head_count),
        .log_sum_exp = (uint64_t)s->batch * s->head_count * s->seq * sizeof(float),
        .scratch = eo_ref_attention_scratch_bytes(s),
    };
}

static struct eo_attention on_host(const struct eo_attention *from, bool backward)
{
    struct eo_attention a = *from;
    const struct spans n = spans_of(from);
    a.q = sim_at_read(a.q, n.q);
    a.k = sim_at_read(a.k, n.kv);
    a.v = sim_at_read(a.v, n.kv);
    a.scratch = sim_at_write(a.scratch, n.scratch);
    if (!backward) {
        a.out = sim_at_write(a.out, n.out);
        a.log_sum_exp = sim_at_write(a.log_sum_exp, n.log_sum_exp);
        return a;
    }
    a.out = (void *)(uintptr_t)sim_at_read(a.out, n.out);
    a.log_sum_exp = (float *)(uintptr_t)sim_at_read(a.log_sum_exp, n.log_sum_exp);
    a.out_gradient = sim_at_read(a.out_gradient, n.out);
    a.q_gradient = sim_at_write(a.q_gradient, n.q);
    a.k_gradient = sim_at_write(a.k_gradient, n.kv);
    a.v_gradient = sim_at_write(a.v_gradient, n.kv);
    return a;
}

static void forward_body(const void *arguments)
{
    const struct eo_attention a = on_host(arguments, false);
    eo_ref_attention_forward(&a, 0, (uint64_t)a.shape.batch * a.shape.kv_head_count, a.scratch);
}

static void backward_body(const void *arguments)
{
    const struct eo_attention a = on_host(arguments, true);
    eo_ref_attention_backward(&a, 0, (uint64_t)a.shape.batch * a.shape.kv_head_count, a.scratch);
}

static eo_status forward(struct eo_cuda_team *team, void *state, const struct eo_attention *a)
{
    const struct spans n = spans_of(a);
    const struct sim_range ranges[] = {
        SIM_READS(a->q, n.q),     SIM_READS(a->k, n.kv),
        SIM_READS(a->v, n.kv),    SIM_WRITES(a->out, n.out),
        SIM_WRITES(a->log_sum_exp, n.log_sum_exp), SIM_WRITES(a->scratch, n.scratch),
    };
    (void)state;
    return eo_cuda_check(team, sim_kernel("attention_forward", team->stream, forward_body, a, sizeof(*a), ranges, 6),
                         "attention forward");
}

static eo_status backward(struct eo_cuda_team *team, void *state, const struct eo_attention *a)
{
    const struct spans n = spans_of(a);
    const struct sim_range ranges[] = {
        SIM_READS(a->q, n.q),
        SIM_READS(a->k, n.kv),
        SIM_READS(a->v, n.kv),
        SIM_READS(a->out, n.out),
        SIM_READS(a->log_sum_exp, n.log_sum_exp),
        SIM_READS(a->out_gradient, n.out),
        SIM_WRITES(a->q_gradient, n.q),
        SIM_WRITES(a->k_gradient, n.kv),
        SIM_WRITES(a->v_gradient, n.kv),
        SIM_WRITES(a->scratch, n.scratch),
    };
    (void)state;
    return eo_cuda_check(team, sim_kernel("attention_backward", team->stream, backward_body, a, sizeof(*a), ranges, 10),
                         "attention backward");
}

static const struct eo_cuda_attention_ops twin_ops = {
    .name = "the reference",
    .repeatable = false, /* as cuDNN's: a team that is to be repeatable takes the products */
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .prepare = prepare,
    .release = release,
    .forward = forward,
    .backward = backward,
};

const struct eo_cuda_attention_ops *const eo_cuda_attention_ways[] = {
    &twin_ops,
#if defined(EO_SIM_CUDNN)
    &eo_cuda_attention_cudnn_ops,
#endif
    &eo_cuda_attention_blocks_ops,
    NULL,
};
