/* SPDX-License-Identifier: MIT
 *
 * Causal attention in bf16. With tiles of widened units it is that of fp32 (attention.c), of elements widened while they are
 * packed; with tiles of pairs it goes by packed products (products/tiles.h). There everything stands with keys in rows and
 * queries in columns:
 *
 *     forward    S = K Q^T,  P = exp(S - max),  O^T = V^T P          sums of the keys before are corrected to a new maximum
 *     backward   S = K Q^T,  dP = V dO^T,  dS = P (dP - delta),  dV += P dO,  dK += dS Q,  dQ^T = K^T dS
 *
 * so a query's maximum and sum run down a lane of a vector, P and dS are written as the products read them, and only dS
 * in two ways: rows of A, panels of B. Queries go by panels (forward: attention_forward_pairs.c) or blocks of panels
 * (backward: attention_backward_pairs.c), keys by chunks; panels behind the diagonal are left out. K, V, K^T and V^T are
 * packed whole, as tiles of A.
 */
#include "layers/cpu/kernels.h"

#include <math.h>
#include <stdatomic.h>

#include "layers/cpu/attention_pairs.h"

uint64_t eo_cpu_attention_bf16_scratch_bytes(struct eo_types types, const struct eo_attention_shape *shape,
                                             uint32_t thread_count)
{
    struct eo_pairs_lane lane;
    const uint64_t by_pairs = thread_count * eo_pairs_place(&lane, shape, NULL);
    const uint64_t widened = eo_cpu_attention_scratch_bytes(types, shape, thread_count);
    return by_pairs > widened ? by_pairs : widened;
}

/* As many lanes as threads, each with a scratch of its own; a lane takes the next pair of a sequence and a key/value head
 * until none is left. */
struct attention_job {
    const struct eo_attention *a;
    const struct eo_tiles *tiles;
    const struct eo_kernel_table *kernels;
    void (*pair_run)(const struct eo_pairs_lane *lane, uint64_t pair);
    uint32_t lane_count;
    _Atomic uint64_t next;
};

/* Each document as if it were alone. */
static void run_pair(const struct attention_job *job, struct eo_pairs_lane *lane, uint64_t pair)
{
    const struct eo_attention *a = job->a;
    const uint32_t seq = a->shape.seq;
    const int32_t *positions = a->positions ? a->positions + pair / a->shape.kv_head_count * seq : NULL;
    for (uint32_t first = 0, end; first < seq; first = end) {
        end = eo_document_end(positions, first, seq);
        lane->first = first;
        lane->seq = end - first;
        job->pair_run(lane, pair);
    }
}

static void attention_task(void *arg, uint32_t index)
{
    struct attention_job *job = arg;
    const struct eo_attention_shape *s = &job->a->shape;
    const struct eo_tiles *t = job->tiles;
    struct eo_pairs_lane lane = {.a = job->a,
                                 .tiles = t,
                                 .kernels = job->kernels,
                                 .scale = (float)(1 / sqrt(s->head_size)),
                                 .lane_count = job->lane_count};
    const uint64_t bytes = eo_pairs_place(&lane, s, NULL);
    eo_pairs_place(&lane, s, (char *)job->a->scratch + index * bytes);
    lane.head = s->head_size;
    lane.head_units = eo_tiles_units(t, s->head_size);
    lane.head_rows = eo_pairs_round_up(s->head_size, t->rows);
    lane.head_columns = eo_pairs_round_up(s->head_size, EO_PANEL);
    if (t->begin)
        t->begin();
    uint64_t pair;
    while ((pair = atomic_fetch_add(&job->next, 1)) < (uint64_t)s->batch * s->kv_head_count)
        run_pair(job, &lane, pair);
    if (t->end)
        t->end();
}

eo_status eo_cpu_attention_bf16_by(eo_team *team, const struct eo_attention *a, const struct eo_tiles *tiles, bool backward)
{
    if (tiles->units != EO_UNITS_PAIRS)
        return backward ? eo_cpu_attention_backward(team, a) : eo_cpu_attention_forward(team, a);
    struct attention_job job = {.a = a,
                                .tiles = tiles,
                                .kernels = eo_kernels_of(EO_DTYPE_BF16),
                                .pair_run = backward ? eo_pairs_backward : eo_pairs_forward,
                                .lane_count = eo_team_thread_count(team)};
    eo_team_run(team, job.lane_count, attention_task, &job);
    return EO_OK;
}

eo_status eo_cpu_attention_bf16_forward(eo_team *team, const struct eo_attention *attention)
{
    return eo_cpu_attention_bf16_by(team, attention, eo_tiles_of(EO_DTYPE_BF16), false);
}

eo_status eo_cpu_attention_bf16_backward(eo_team *team, const struct eo_attention *attention)
{
    return eo_cpu_attention_bf16_by(team, attention, eo_tiles_of(EO_DTYPE_BF16), true);
}
