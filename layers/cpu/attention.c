/* SPDX-License-Identifier: MIT */
#include "layers/cpu/kernels.h"

#include <stdatomic.h>

#include "layers/kernel_table.h"
#include "layers/split.h"

/* As many lanes as threads, each with a scratch of its own; a lane takes the next head until none is left. A head's documents
 * are computed one after the other, each as if it were alone. */
struct attention_job {
    struct eo_attention_shape shape;
    eo_dtype dtype;
    struct eo_attention_head base;
    const int32_t *positions;
    const struct eo_kernel_table *kernels;
    float *scratch;
    uint64_t lane_floats;
    uint64_t item_count; /* heads of all sequences: query heads forward, key/value heads backward */
    _Atomic uint64_t next;
};

/* Floats of one thread's scratch: the sum of what lane_of() in levels/attention.h takes, in its order. */
static uint64_t attention_lane_floats(const struct eo_attention_shape *shape)
{
    const uint64_t keys = eo_split_up(shape->seq, EO_TILE_PAD) * EO_TILE_PAD;
    const uint64_t head = eo_split_up(shape->head_size, EO_HEAD_PAD) * EO_HEAD_PAD;
    const uint64_t row = eo_split_min(keys, EO_KEY_CHUNK) + EO_HEAD_PAD;
    return 3 * EO_QUERY_BLOCK * head + 2 * EO_QUERY_BLOCK * row + 5 * keys * head;
}

uint64_t eo_cpu_attention_scratch_bytes(struct eo_types types, const struct eo_attention_shape *shape,
                                        uint32_t thread_count)
{
    (void)types;
    return thread_count * attention_lane_floats(shape) * sizeof(float);
}

/* Of a sequence's document that begins at token `first`. */
static struct eo_attention_head head_at(const struct attention_job *job, uint32_t lane, uint64_t sequence, uint32_t first,
                                        uint32_t query_head, uint32_t kv_head)
{
    const struct eo_attention_shape *s = &job->shape;
    struct eo_attention_head h = job->base;
    const uint64_t token = sequence * s->seq + first;
    const uint64_t q = token * s->q_stride + (uint64_t)query_head * s->head_size;
    const uint64_t kv = token * s->kv_stride + (uint64_t)kv_head * s->head_size;
    const uint64_t out = token * s->out_stride + (uint64_t)query_head * s->head_size;
    const uint64_t row = (sequence * s->head_count + query_head) * s->seq + first;
    h.q = eo_element_at(job->dtype, h.q, q);
    h.k = eo_element_at(job->dtype, h.k, kv);
    h.v = eo_element_at(job->dtype, h.v, kv);
    h.out_gradient = eo_element_at(job->dtype, h.out_gradient, out);
    h.saved_out = eo_element_at(job->dtype, h.saved_out, out);
    h.saved_log_sum_exp = eo_row(h.saved_log_sum_exp, row, 1);
    h.out = eo_element_at_mutable(job->dtype, h.out, out);
    h.log_sum_exp = eo_row_mutable(h.log_sum_exp, row, 1);
    h.q_gradient = eo_element_at_mutable(job->dtype, h.q_gradient, q);
    h.k_gradient = eo_element_at_mutable(job->dtype, h.k_gradient, kv);
    h.v_gradient = eo_element_at_mutable(job->dtype, h.v_gradient, kv);
    h.scratch = job->scratch + lane * job->lane_floats;
    return h;
}

static void run_head(const struct attention_job *job, uint32_t lane, uint64_t sequence, uint32_t query_head, uint32_t kv_head,
                     void (*run)(const struct eo_attention_head *head))
{
    const uint32_t seq = job->shape.seq;
    const int32_t *positions = job->positions ? job->positions + sequence * seq : NULL;
    for (uint32_t first = 0, end; first < seq; first = end) {
        end = eo_document_end(positions, first, seq);
        struct eo_attention_head head = head_at(job, lane, sequence, first, query_head, kv_head);
        head.seq = end - first;
        run(&head);
    }
}

static void attention_forward_task(void *arg, uint32_t lane)
{
    struct attention_job *job = arg;
    const uint32_t heads = job->shape.head_count;
    uint64_t item;
    while ((item = atomic_fetch_add(&job->next, 1)) < job->item_count) {
        const uint32_t query_head = (uint32_t)(item % heads);
        run_head(job, lane, item / heads, query_head, query_head / job->base.group, job->kernels->attention_forward);
    }
}

static void attention_backward_task(void *arg, uint32_t lane)
{
    struct attention_job *job = arg;
    const uint32_t heads = job->shape.kv_head_count;
    uint64_t item;
    while ((item = atomic_fetch_add(&job->next, 1)) < job->item_count) {
        const uint32_t kv_head = (uint32_t)(item % heads);
        run_head(job, lane, item / heads, kv_head * job->base.group, kv_head, job->kernels->attention_backward);
    }
}

static eo_status attention_run(eo_team *team, struct attention_job *job, void (*task)(void *arg, uint32_t lane))
{
    const struct eo_attention_shape *s = &job->shape;
    job->base.head_size = s->head_size;
    job->base.group = s->head_count / s->kv_head_count;
    job->base.q_stride = s->q_stride;
    job->base.kv_stride = s->kv_stride;
    job->base.out_stride = s->out_stride;
    job->base.statistic_stride = s->seq;
    job->kernels = eo_kernels_of(job->dtype);
    job->lane_floats = attention_lane_floats(s);
    eo_team_run(team, eo_team_thread_count(team), task, job);
    return EO_OK;
}

eo_status eo_cpu_attention_forward(eo_team *team, const struct eo_attention *a)
{
    struct attention_job job = {
        .shape = a->shape,
        .dtype = a->types.compute,
        .base = {.q = a->q, .k = a->k, .v = a->v, .out = a->out, .log_sum_exp = a->log_sum_exp},
        .positions = a->positions,
        .scratch = a->scratch,
        .item_count = (uint64_t)a->shape.batch * a->shape.head_count,
    };
    return attention_run(team, &job, attention_forward_task);
}

eo_status eo_cpu_attention_backward(eo_team *team, const struct eo_attention *a)
{
    struct attention_job job = {
        .shape = a->shape,
        .dtype = a->types.compute,
        .base = {.q = a->q,
                 .k = a->k,
                 .v = a->v,
                 .out_gradient = a->out_gradient,
                 .saved_out = a->out,
                 .saved_log_sum_exp = a->log_sum_exp,
                 .q_gradient = a->q_gradient,
                 .k_gradient = a->k_gradient,
                 .v_gradient = a->v_gradient},
        .positions = a->positions,
        .scratch = a->scratch,
        .item_count = (uint64_t)a->shape.batch * a->shape.kv_head_count,
    };
    return attention_run(team, &job, attention_backward_task);
}
