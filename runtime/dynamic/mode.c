/* SPDX-License-Identifier: MIT
 *
 * The dynamic mode: the baseline that users come from. It does what PyTorch's FSDP2 does, from the same model, with
 * the same kernels and collectives: gathered weights, copies of them as separate tensors, gradients, inputs and outputs
 * of reductions, activations: all taken when needed and given back when not.
 *
 *     forward   take output, all-gather, take K parameters, copy out, [gather of the next layer], pass, free parameters
 *               (the output is dropped when the next layer has its own)
 *     backward  as above, but the output is dropped at once and the layer before is gathered ahead; then take K
 *               gradients, pass, free parameters, wait until fewer than k reductions are in flight, take input, copy in,
 *               free gradients, take output, reduce-scatter; the output becomes the gradient shard, or is added to it
 *
 * Where it differs from FSDP2, and why:
 * - Shards are cut from the flat layer, as in static mode, so the copy out is one run a parameter instead of W. The
 *   bytes are the same.
 * - A layer with several positions (a tied embedding) stays gathered from its first use to its last, as FSDP2's root
 *   group does. It is reduced after each use, but for those that add their gradients to the next one's, as FSDP2's all do.
 * - On the CPU a host thread cannot run ahead of the device, so FSDP2's implicit forward prefetch would hide nothing:
 *   the explicit kind, one layer ahead, is the default here.
 * - The copy of the own slice into the gather's output is made as part of the collective. In bf16 the shards are fp32
 *   and cast before every gather, on the communication stream; FSDP2 has a third stream for it. What was cast is kept
 *   until the gather after it has ended, for until then slower ranks may read it.
 * - A reduction in bf16 is turned into fp32, and later contributions are added, on the compute stream.
 *
 * With `dynamic_offload` the shards lie on the host, and the optimizer runs there: runtime/dynamic/offload.c.
 *
 * Queues: each block belongs to the queue whose work uses it first, as FSDP2's do: outputs of collectives and what is
 * cast to the communication queues, all else to compute. A block goes back when its queue comes after all its uses.
 */
#include "runtime/dynamic/internal.h"

#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/check.h"

/* -- memory ----------------------------------------------------------------------------------------------------------*/

static eo_status take_zeroed(struct eo_runtime *rt, uint64_t bytes, const char *what, void **out)
{
    EO_TRY(eo_dynamic_take(rt, EO_QUEUE_COMPUTE, bytes, what, out));
    rt->device->ops->zero(rt->device, *out, bytes);
    return EO_OK;
}

static uint32_t moment(const struct eo_runtime *rt, eo_pass pass, uint32_t position)
{
    return eo_moment_order((eo_moment){pass, position}, rt->plan->position_count);
}

static eo_status take_buffers(struct eo_runtime *rt, const struct buffer_agenda *agenda, uint32_t at)
{
    for (uint32_t i = agenda->begin[at]; i < agenda->begin[at + 1]; i++) {
        const struct plan_row *row = &rt->plan->rows[rt->plan->buffers[agenda->buffers[i]].row];
        EO_TRY(eo_dynamic_take(rt, EO_QUEUE_COMPUTE, row->bytes, row->name, &rt->views.buffers[agenda->buffers[i]]));
    }
    return EO_OK;
}

static void give_buffers(struct eo_runtime *rt, const struct buffer_agenda *agenda, uint32_t at)
{
    for (uint32_t i = agenda->begin[at]; i < agenda->begin[at + 1]; i++)
        eo_dynamic_give(rt, EO_QUEUE_COMPUTE, &rt->views.buffers[agenda->buffers[i]]);
}

/* -- start -----------------------------------------------------------------------------------------------------------*/

static eo_status take_shards(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        const struct plan_layer *layer = &plan->layers[l];
        const uint64_t bytes = layer->layout.shard_count * sizeof(float);
        struct layer_shard *shard = &rt->shards.layers[l];
        EO_TRY(take_zeroed(rt, bytes, plan->rows[layer->shard_row].name, (void **)&shard->weights));
        if (layer->float8_gather)
            EO_TRY(take_zeroed(rt, layer->narrow_bytes, plan->rows[layer->narrow_row].name, &shard->narrow));
        if (layer->frozen)
            continue;
        EO_TRY(take_zeroed(rt, eo_plan_layer_sums(plan, layer) * sizeof(double), plan->rows[layer->norm_row].name, (void **)&shard->norm));
        for (uint32_t k = 0; k < plan->state_count; k++)
            EO_TRY(take_zeroed(rt, eo_plan_state_bytes(plan, k, layer->layout.shard_count), plan->rows[layer->state_rows[k]].name,
                               (void **)&shard->state[k]));
    }
    return EO_OK;
}

static eo_status reserve_host(struct eo_runtime *rt)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    const uint64_t step_bytes = eo_plan_scalars_bytes(rt->plan) + eo_plan_result_bytes(rt->plan);
    const uint64_t steps_bytes = eo_align_up(EO_HOST_STEPS * step_bytes, 64);
    state->host_bytes = steps_bytes + EO_STAGING_PIECES * eo_plan_staging_bytes(rt->plan);
    EO_TRY(rt->device->ops->reserve(rt->device, EO_MEMORY_KIND_HOST, state->host_bytes, &state->host));
    eo_host_set(&rt->host, rt->plan, state->host, (char *)state->host + steps_bytes);
    return EO_OK;
}

static eo_status dynamic_init(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    struct dynamic_state *state = calloc(1, sizeof(*state));
    rt->mode_state = state;
    if (!state)
        return EO_ERR_NO_MEMORY;
    const char *kind = rt->params.memory == EO_MEMORY_DYNAMIC_MALLOC ? "malloc"
                       : rt->params.memory == EO_MEMORY_DYNAMIC_POOL ? "pool"
                                                                     : "caching";
    EO_TRY(eo_allocator_create(&state->allocator, kind, rt->device));
    EO_TRY(reserve_host(rt));
    state->reduce_queue = plan->params.separate_reduce_stream ? EO_QUEUE_REDUCE : EO_QUEUE_COMM;
    state->reduction_limit = rt->params.dynamic_reduce_inputs ? rt->params.dynamic_reduce_inputs : 1;
    state->groups = calloc(plan->layer_count, sizeof(*state->groups));
    state->reductions = calloc(state->reduction_limit, sizeof(*state->reductions));
    state->cast_capacity = plan->layer_count + 2;
    state->casts = calloc(state->cast_capacity, sizeof(*state->casts));
    if (!state->groups || !state->reductions || !state->casts)
        return EO_ERR_NO_MEMORY;
    EO_TRY(eo_buffer_agenda_make(&state->take, plan, AGENDA_FIRST));
    EO_TRY(eo_buffer_agenda_make(&state->give, plan, AGENDA_LAST));
    EO_TRY(eo_buffer_agenda_make(&state->evaluation_take, plan, AGENDA_EVALUATION_FIRST));
    EO_TRY(eo_buffer_agenda_make(&state->evaluation_give, plan, AGENDA_EVALUATION_LAST));
    EO_TRY(rt->params.dynamic_offload ? eo_dynamic_offload_init(rt) : take_shards(rt));
    const uint64_t norm_bytes = eo_plan_norm_bytes(plan);
    void *result, *scalars;
    EO_TRY(take_zeroed(rt, norm_bytes, "norms", (void **)&rt->update.norm_local));
    EO_TRY(take_zeroed(rt, norm_bytes * plan->params.rank_count, "norms", (void **)&rt->update.norm_gathered));
    EO_TRY(take_zeroed(rt, eo_plan_result_bytes(plan), "norms", &result));
    EO_TRY(take_zeroed(rt, eo_plan_scalars_bytes(plan), "a step's parameters", &scalars));
    rt->update.step = eo_plan_step_memory(plan, scalars, result);
    EO_TRY(take_zeroed(rt, EO_STEP_VALUES * sizeof(*rt->update.values), "a step's values", (void **)&rt->update.values));
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].persistent)
            EO_TRY(take_zeroed(rt, plan->rows[plan->buffers[b].row].bytes, plan->rows[plan->buffers[b].row].name,
                               &rt->views.buffers[b]));
    return EO_OK;
}

static void dynamic_fini(struct eo_runtime *rt)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    if (!state)
        return;
    eo_allocator_destroy(&state->allocator); /* and all that is still out */
    eo_dynamic_offload_fini(rt);
    if (state->host)
        rt->device->ops->release(rt->device, EO_MEMORY_KIND_HOST, state->host, state->host_bytes);
    free(state->casts);
    eo_buffer_agenda_free(&state->take);
    eo_buffer_agenda_free(&state->give);
    eo_buffer_agenda_free(&state->evaluation_take);
    eo_buffer_agenda_free(&state->evaluation_give);
    free(state->groups);
    free(state->reductions);
    free(state);
    rt->mode_state = NULL;
}

/* -- the mode --------------------------------------------------------------------------------------------------------*/

/* After all that has to be there: it waits for nothing more. */
static void open_pass(struct eo_runtime *rt, eo_operation_kind kind, uint32_t position)
{
    eo_runtime_open_pass(rt, eo_dynamic_entry(rt, kind, EO_STREAM_COMPUTE, position, eo_dynamic_layer(rt, position)));
}

static void end_pass(struct eo_runtime *rt)
{
    eo_runtime_close_pass(rt);
    eo_dynamic_note_live(rt, rt->timeline.open);
}

static eo_status dynamic_step_begin(struct eo_runtime *rt)
{
    eo_dynamic_state(rt)->operation = 0;
    rt->steps.restart = false;
    return eo_runtime_order_queues(rt); /* after the optimizer */
}

static eo_status dynamic_forward_begin(struct eo_runtime *rt, uint32_t position)
{
    if (rt->cursor.phase == PHASE_EVALUATION)
        EO_TRY(take_buffers(rt, &eo_dynamic_state(rt)->evaluation_take, position));
    else
        EO_TRY(take_buffers(rt, &eo_dynamic_state(rt)->take, moment(rt, EO_PASS_FORWARD, position)));
    EO_TRY(eo_dynamic_unshard(rt, position, false));
    if (!rt->params.dynamic_implicit_prefetch && position + 1 < rt->plan->position_count)
        EO_TRY(eo_dynamic_gather(rt, position + 1));
    open_pass(rt, EO_OP_FORWARD, position);
    return EO_OK;
}

static eo_status dynamic_forward_end(struct eo_runtime *rt, uint32_t position)
{
    const uint32_t l = eo_dynamic_layer(rt, position);
    end_pass(rt);
    if (rt->cursor.phase == PHASE_EVALUATION) {
        give_buffers(rt, &eo_dynamic_state(rt)->evaluation_give, position);
        bool used_later = false;
        for (uint32_t p = position + 1; p < rt->plan->position_count; p++)
            used_later = used_later || eo_dynamic_layer(rt, p) == l;
        if (!used_later)
            eo_dynamic_reshard(rt, l);
        return EO_OK;
    }
    give_buffers(rt, &eo_dynamic_state(rt)->give, moment(rt, EO_PASS_FORWARD, position));
    if (rt->plan->layers[l].use_count == 1)
        eo_dynamic_reshard(rt, l);
    return EO_OK;
}

static eo_status dynamic_backward_begin(struct eo_runtime *rt, uint32_t position)
{
    EO_TRY(take_buffers(rt, &eo_dynamic_state(rt)->take, moment(rt, EO_PASS_RECOMPUTE, position)));
    if (!rt->plan->positions[position].backward_without_weights)
        EO_TRY(eo_dynamic_unshard(rt, position, true));
    EO_TRY(eo_dynamic_give_held(rt));
    if (position > 0 && !rt->plan->positions[position - 1].backward_without_weights)
        EO_TRY(eo_dynamic_gather(rt, position - 1));
    open_pass(rt, EO_OP_RECOMPUTE, position);
    return EO_OK;
}

/* The one whose backward pass has them all. */
static uint32_t contributing_position(const struct eo_plan *plan, uint32_t position)
{
    for (uint32_t p = position; p-- > 0 && !plan->positions[position].contributes;)
        if (plan->positions[p].adds_to == position)
            position = p;
    return position;
}

/* A tensor for each gradient of this position and of those that add to it. */
static eo_status take_gradients(struct eo_runtime *rt, uint32_t position)
{
    const struct plan_position *p = &rt->plan->positions[position];
    const struct plan_layer *layer = &rt->plan->layers[p->layer];
    const uint64_t size = eo_dtype_bytes(rt->plan->params.reduce_dtype);
    const uint32_t last = contributing_position(rt->plan, position);
    void **gradients = rt->views.positions[position].gradients;
    for (uint32_t k = 0; p->adds_to != EO_NONE && k < layer->parameter_count; k++) {
        gradients[k] = rt->views.positions[p->adds_to].gradients[k];
        rt->views.positions[p->adds_to].gradients[k] = NULL;
    }
    for (uint32_t k = 0; p->adds_to == EO_NONE && k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        if (!eo_views_gets_gradient(rt->plan, last, parameter))
            continue;
        EO_TRY(eo_dynamic_take_tensor(rt, layer, k, size, gradients));
        if (rt->params.zero_gradients || p->adds_to_zeros || !eo_views_gets_gradient(rt->plan, position, parameter))
            rt->device->ops->zero(rt->device, gradients[k], parameter->room * size);
    }
    return EO_OK;
}

static eo_status dynamic_gradients_begin(struct eo_runtime *rt, uint32_t position)
{
    const struct plan_position *p = &rt->plan->positions[position];
    const struct plan_layer *layer = &rt->plan->layers[p->layer];
    const bool has_gradients = !layer->frozen && rt->cursor.phase == PHASE_STEP;
    end_pass(rt);
    give_buffers(rt, &eo_dynamic_state(rt)->give, moment(rt, EO_PASS_RECOMPUTE, position));
    EO_TRY(take_buffers(rt, &eo_dynamic_state(rt)->take, moment(rt, EO_PASS_BACKWARD, position)));
    EO_TRY(has_gradients ? take_gradients(rt, position) : EO_OK);
    open_pass(rt, EO_OP_BACKWARD, position);
    return EO_OK;
}

static eo_status dynamic_backward_end(struct eo_runtime *rt, uint32_t position)
{
    const struct plan_position *p = &rt->plan->positions[position];
    const struct plan_layer *layer = &rt->plan->layers[p->layer];
    end_pass(rt);
    if (layer->first_position == position)
        eo_dynamic_reshard(rt, p->layer);
    give_buffers(rt, &eo_dynamic_state(rt)->give, moment(rt, EO_PASS_BACKWARD, position));
    return layer->frozen || rt->cursor.phase == PHASE_INPUTS || !p->contributes ? EO_OK : eo_dynamic_reduce(rt, position);
}

static void start(struct eo_runtime *rt, struct eo_timeline_entry *entry)
{
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.start_ns);
}

static void end(struct eo_runtime *rt, struct eo_timeline_entry *entry)
{
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.end_ns);
    eo_dynamic_note_live(rt, entry);
}

static eo_status norm(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    struct eo_timeline_entry *entry = eo_dynamic_entry(rt, EO_OP_NORM_LOCAL, EO_STREAM_COMPUTE, EO_NONE, EO_NONE);
    if (rt->params.dynamic_offload)
        EO_TRY(eo_dynamic_await_gradients(rt));
    start(rt, entry);
    if (rt->params.dynamic_offload)
        eo_dynamic_sum_on_host(rt);
    for (uint32_t l = 0; !rt->params.dynamic_offload && l < plan->layer_count; l++)
        if (!plan->layers[l].frozen)
            eo_norms_of_layer(rt, l, EO_QUEUE_COMPUTE, NULL);
    eo_norms_local(rt);
    end(rt, entry);

    EO_TRY(eo_runtime_order_queues(rt));
    entry = eo_dynamic_entry(rt, EO_OP_NORM_GATHER, EO_STREAM_COMM, EO_NONE, EO_NONE);
    rt->stats.collective_count++;
    EO_TRY(rt->world->ops->all_gather(rt->comms.gather, rt->update.norm_gathered, rt->update.norm_local,
                                      eo_plan_norm_bytes(plan), eo_norms_label(rt), &entry->span));
    rt->device->ops->record(rt->device, EO_QUEUE_COMM, &rt->queues.outside);
    entry = eo_dynamic_entry(rt, EO_OP_NORM_SUM, EO_STREAM_COMPUTE, EO_NONE, EO_NONE);
    EO_TRY(eo_runtime_wait(rt, &rt->queues.outside, EO_WAIT_NORM));
    EO_TRY(eo_dynamic_drop_casts(rt, UINT64_MAX));
    start(rt, entry);
    EO_TRY(eo_norms_sum(rt));
    end(rt, entry);
    if (rt->params.dynamic_offload) /* it updates by what came of it */
        EO_TRY(eo_host_finish_steps(rt, rt->steps.finished + 1));
    return EO_OK;
}

static eo_status dynamic_step_end(struct eo_runtime *rt)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    const struct eo_plan *plan = rt->plan;
    while (state->reduction_count)
        EO_TRY(eo_dynamic_finish_reduction(rt));
    EO_TRY(norm(rt));
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const uint32_t l = eo_dynamic_layer(rt, p);
        if (plan->layers[l].first_position != p || plan->layers[l].frozen)
            continue;
        struct eo_timeline_entry *entry = eo_dynamic_entry(rt, EO_OP_UPDATE, EO_STREAM_COMPUTE, EO_NONE, l);
        start(rt, entry);
        eo_update_layer(rt, l);
        end(rt, entry);
        if (plan->layers[l].float8_gather) {
            entry = eo_dynamic_entry(rt, EO_OP_NARROW, EO_STREAM_COMPUTE, EO_NONE, l);
            start(rt, entry);
            EO_TRY(eo_dynamic_narrow(rt, l));
            end(rt, entry);
        }
    }
    rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &state->optimizer_done);
    EO_TRY(eo_dynamic_order(rt, state->reduce_queue, &state->optimizer_done));
    for (uint32_t l = 0; l < plan->layer_count; l++) { /* zero_grad(set_to_none) */
        if (rt->params.dynamic_offload)
            rt->shards.layers[l].gradient = NULL;
        else
            eo_dynamic_give(rt, eo_dynamic_gradient_queue(rt), (void **)&rt->shards.layers[l].gradient);
    }
    return EO_OK;
}

/* The shards are fp32, also where what is computed with is not. */
static eo_status dynamic_layer_gather(struct eo_runtime *rt, uint32_t l, enum weight_half half, void **weights)
{
    const uint64_t bytes = rt->plan->layers[l].layout.shard_count * sizeof(float);
    EO_ASSERT(half == HALF_WHOLE);
    const void *shard = rt->shards.layers[l].weights;
    if (rt->params.dynamic_offload)
        EO_TRY(eo_dynamic_bring_whole(rt, l, &shard));
    EO_TRY(eo_dynamic_take(rt, EO_QUEUE_COMM, bytes * rt->world->rank_count, "a layer's weights", weights));
    EO_TRY(eo_runtime_gather(rt, rt->comms.gather, *weights, shard, bytes, eo_runtime_weights_name(rt, l), EO_WAIT_ALL_GATHER));
    return eo_dynamic_drop_casts(rt, eo_dynamic_state(rt)->gather_count);
}

/* The host has read them: nothing uses them any more. */
static void dynamic_layer_release(struct eo_runtime *rt, uint32_t layer, void *weights)
{
    (void)layer;
    eo_dynamic_give(rt, EO_QUEUE_COMM, &weights);
}

static void dynamic_get_stats(const struct eo_runtime *rt, eo_runtime_stats *out)
{
    struct eo_allocator_stats stats;
    eo_allocator_get_stats(eo_dynamic_state(rt)->allocator, &stats);
    out->allocator_calls = stats.calls;
    out->allocated_bytes = stats.allocated_bytes;
    out->live_peak_bytes = stats.live_peak_bytes;
    out->reserved_peak_bytes = stats.reserved_peak_bytes;
    out->offload_bytes = eo_dynamic_state(rt)->offload.bytes;
}

const struct mode_ops eo_dynamic_mode = {
    .init = dynamic_init,
    .fini = dynamic_fini,
    .step_begin = dynamic_step_begin,
    .forward_begin = dynamic_forward_begin,
    .forward_end = dynamic_forward_end,
    .backward_begin = dynamic_backward_begin,
    .gradients_begin = dynamic_gradients_begin,
    .backward_end = dynamic_backward_end,
    .step_end = dynamic_step_end,
    .narrow = eo_dynamic_narrow,
    .evaluation_end = eo_dynamic_give_held,
    .layer_gather = dynamic_layer_gather,
    .layer_release = dynamic_layer_release,
    .get_stats = dynamic_get_stats,
};
