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
 *   group does, but is reduced after each use: adding up before the reduction would round differently from static mode.
 * - On the CPU a host thread cannot run ahead of the device, so FSDP2's implicit forward prefetch would hide nothing:
 *   the explicit kind, one layer ahead, is the default here.
 * - The copy of the own slice into the gather's output is made by the communication thread as part of the collective.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "buffers/allocator.h"
#include "runtime/runtime_internal.h"

struct group { /* a layer */
    void *output;  /* of its all-gather; NULL: none */
    struct eo_event gathered;
    bool unsharded; /* its parameters are there */
};

struct reduction {
    uint32_t position;
    void *input, *output;
    struct eo_event done;
};

/* Buffers to be taken or given back at a moment. */
struct agenda {
    uint32_t *begin, *buffers;
};

struct dynamic_state {
    struct eo_allocator *allocator;
    struct group *groups;
    void *held; /* forward: the output of the layer before */
    struct reduction *reductions; /* in flight, a ring */
    uint32_t reduction_first, reduction_count, reduction_limit;
    struct agenda take, give;         /* by moment of a training micro-batch */
    struct agenda evaluation_give;    /* by position */
    uint32_t operation;               /* counts within a step */
};

static struct dynamic_state *state_of(const struct eo_runtime *rt)
{
    return rt->mode_state;
}

/* -- memory ----------------------------------------------------------------------------------------------------------*/

static eo_status take(struct eo_runtime *rt, uint64_t bytes, const char *what, void **out)
{
    *out = eo_allocate(state_of(rt)->allocator, bytes);
    if (!*out)
        return eo_runtime_fail(rt, EO_ERR_NO_MEMORY, "out of memory: %llu bytes for %s", (unsigned long long)bytes,
                               what);
    return EO_OK;
}

static void give(struct eo_runtime *rt, void **memory)
{
    eo_free(state_of(rt)->allocator, *memory);
    *memory = NULL;
}

static eo_status take_zeroed(struct eo_runtime *rt, uint64_t bytes, const char *what, void **out)
{
    EO_TRY(take(rt, bytes, what, out));
    memset(*out, 0, bytes);
    return EO_OK;
}

static void copy(struct eo_runtime *rt, void *to, const void *from, uint64_t bytes)
{
    rt->device->ops->copy(rt->device, to, from, bytes);
    rt->stats.copied_bytes += 2 * bytes;
}

static uint32_t moment(const struct eo_runtime *rt, eo_pass pass, uint32_t position)
{
    return eo_moment_order((eo_moment){pass, position}, rt->plan->position_count);
}

static uint32_t forward_moment(const struct eo_runtime *rt, uint32_t p)
{
    return moment(rt, rt->plan->positions[p].forward_in_backward ? EO_PASS_BACKWARD : EO_PASS_FORWARD, p);
}

static eo_status take_buffers(struct eo_runtime *rt, uint32_t at)
{
    const struct agenda *agenda = &state_of(rt)->take;
    for (uint32_t i = agenda->begin[at]; i < agenda->begin[at + 1]; i++) {
        const struct plan_row *row = &rt->plan->rows[rt->plan->buffers[agenda->buffers[i]].row];
        EO_TRY(take(rt, row->bytes, row->name, &rt->buffers[agenda->buffers[i]]));
    }
    return EO_OK;
}

static void give_buffers(struct eo_runtime *rt, const struct agenda *agenda, uint32_t at)
{
    for (uint32_t i = agenda->begin[at]; i < agenda->begin[at + 1]; i++)
        give(rt, &rt->buffers[agenda->buffers[i]]);
}

/* -- start -----------------------------------------------------------------------------------------------------------*/

/* The position after whose forward-only pass a buffer is done with. */
static uint32_t evaluation_end(const struct eo_runtime *rt, const struct plan_buffer *buffer)
{
    const uint32_t last = eo_moment_order(buffer->last, rt->plan->position_count);
    uint32_t end = EO_NONE;
    for (uint32_t p = 0; p < rt->plan->position_count; p++)
        if (eo_begins_in_forward(rt->plan, buffer, p) || (end != EO_NONE && forward_moment(rt, p) <= last))
            end = p;
    return end;
}

/* Buffers sorted by key; those with key EO_NONE are left out. */
static eo_status make_agenda(struct eo_runtime *rt, struct agenda *out, uint32_t key_count, int kind)
{
    const struct eo_plan *plan = rt->plan;
    out->begin = calloc((size_t)key_count + 2, sizeof(*out->begin));
    out->buffers = calloc((size_t)plan->buffer_count + 1, sizeof(*out->buffers));
    if (!out->begin || !out->buffers)
        return EO_ERR_NO_MEMORY;
    for (int round = 0; round < 2; round++) {
        for (uint32_t b = 0; b < plan->buffer_count; b++) {
            const struct plan_buffer *buffer = &plan->buffers[b];
            const uint32_t key = buffer->persistent ? EO_NONE
                                 : kind == 0        ? eo_moment_order(buffer->first, plan->position_count)
                                 : kind == 1        ? eo_moment_order(buffer->last, plan->position_count)
                                                    : evaluation_end(rt, buffer);
            if (key == EO_NONE)
                continue;
            if (round == 0)
                out->begin[key + 2]++;
            else
                out->buffers[out->begin[key + 1]++] = b;
        }
        for (uint32_t k = 2; round == 0 && k < key_count + 2; k++)
            out->begin[k] += out->begin[k - 1];
    }
    return EO_OK;
}

static eo_status take_shards(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        const struct plan_layer *layer = &plan->layers[l];
        const uint64_t bytes = layer->layout.shard_count * sizeof(float);
        struct layer_shard *shard = &rt->shards[l];
        EO_TRY(take_zeroed(rt, bytes, plan->rows[layer->shard_row].name, (void **)&shard->weights));
        if (layer->frozen)
            continue;
        EO_TRY(take_zeroed(rt, sizeof(double), plan->rows[layer->norm_row].name, (void **)&shard->norm));
        for (uint32_t k = 0; k < plan->params.optimizer_states; k++)
            EO_TRY(take_zeroed(rt, bytes, plan->rows[layer->state_rows[k]].name, (void **)&shard->state[k]));
    }
    return EO_OK;
}

static eo_status dynamic_init(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    struct dynamic_state *state = calloc(1, sizeof(*state));
    rt->mode_state = state;
    if (!state)
        return EO_ERR_NO_MEMORY;
    EO_TRY(eo_allocator_create(&state->allocator, rt->params.memory == EO_MEMORY_DYNAMIC_POOL ? "pool" : "malloc"));
    state->reduction_limit = rt->params.dynamic_reduce_inputs ? rt->params.dynamic_reduce_inputs : 1;
    state->groups = calloc(plan->layer_count, sizeof(*state->groups));
    state->reductions = calloc(state->reduction_limit, sizeof(*state->reductions));
    if (!state->groups || !state->reductions)
        return EO_ERR_NO_MEMORY;
    EO_TRY(make_agenda(rt, &state->take, 3 * plan->position_count, 0));
    EO_TRY(make_agenda(rt, &state->give, 3 * plan->position_count, 1));
    EO_TRY(make_agenda(rt, &state->evaluation_give, plan->position_count, 2));
    EO_TRY(take_shards(rt));
    const uint64_t norm_bytes = EO_NORM_VALUES * sizeof(double);
    EO_TRY(take_zeroed(rt, norm_bytes, "norms", (void **)&rt->norm_local));
    EO_TRY(take_zeroed(rt, norm_bytes * plan->params.rank_count, "norms", (void **)&rt->norm_gathered));
    EO_TRY(take_zeroed(rt, sizeof(*rt->norm_result), "norms", (void **)&rt->norm_result));
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].persistent)
            EO_TRY(take_zeroed(rt, plan->rows[plan->buffers[b].row].bytes, plan->rows[plan->buffers[b].row].name,
                               &rt->buffers[b]));
    return EO_OK;
}

static void dynamic_fini(struct eo_runtime *rt)
{
    struct dynamic_state *state = state_of(rt);
    if (!state)
        return;
    eo_allocator_destroy(&state->allocator); /* and all that is still out */
    struct agenda *const agendas[] = {&state->take, &state->give, &state->evaluation_give};
    for (int a = 0; a < 3; a++) {
        free(agendas[a]->begin);
        free(agendas[a]->buffers);
    }
    free(state->groups);
    free(state->reductions);
    free(state);
    rt->mode_state = NULL;
}

/* -- timeline --------------------------------------------------------------------------------------------------------*/

static struct eo_timeline_entry *begin_entry(struct eo_runtime *rt, eo_operation_kind kind, eo_stream_id stream,
                                             uint32_t position, uint32_t layer)
{
    return eo_runtime_entry(rt, kind, stream, position, layer, state_of(rt)->operation++);
}

static void note_live(struct eo_runtime *rt, struct eo_timeline_entry *entry)
{
    struct eo_allocator_stats stats;
    eo_allocator_get_stats(state_of(rt)->allocator, &stats);
    entry->live_bytes = stats.live_bytes;
}

static void begin_pass(struct eo_runtime *rt, struct eo_timeline_entry *entry)
{
    entry->span.start_ns = eo_now_ns();
    rt->open_entry = entry;
}

static void end_pass(struct eo_runtime *rt)
{
    rt->open_entry->span.end_ns = eo_now_ns();
    note_live(rt, rt->open_entry);
}

/* -- weights ---------------------------------------------------------------------------------------------------------*/

static uint32_t layer_of(const struct eo_runtime *rt, uint32_t position)
{
    return rt->plan->positions[position].layer;
}

static eo_status gather(struct eo_runtime *rt, uint32_t position)
{
    const uint32_t l = layer_of(rt, position);
    const struct plan_layer *layer = &rt->plan->layers[l];
    struct group *group = &state_of(rt)->groups[l];
    if (group->output || group->unsharded)
        return EO_OK;
    const uint64_t bytes = layer->layout.shard_count * sizeof(float);
    EO_TRY(take(rt, bytes * rt->world->rank_count, "the output of an all-gather", &group->output));
    struct eo_timeline_entry *entry = begin_entry(rt, EO_OP_ALL_GATHER, EO_STREAM_COMM, position, l);
    note_live(rt, entry);
    rt->stats.copied_bytes += 2 * bytes; /* the own slice */
    rt->stats.collective_count++;
    rt->stats.collective_bytes += bytes * rt->world->rank_count;
    EO_TRY(rt->world->ops->all_gather(rt->gather_comm, group->output, rt->shards[l].weights, bytes, entry->name,
                                      &entry->span));
    rt->device->ops->record(rt->device, EO_QUEUE_COMM, &group->gathered);
    return EO_OK;
}

/* Waits for the gather, and copies its output out into one tensor a parameter. */
static eo_status unshard(struct eo_runtime *rt, uint32_t position, bool backward)
{
    struct dynamic_state *state = state_of(rt);
    const uint32_t l = layer_of(rt, position);
    const struct plan_layer *layer = &rt->plan->layers[l];
    struct group *group = &state->groups[l];
    if (group->unsharded)
        return EO_OK;
    EO_TRY(gather(rt, position));
    EO_TRY(eo_runtime_wait(rt, &group->gathered, EO_WAIT_ALL_GATHER));
    give(rt, &state->held);
    void **const first = &rt->weight_pointers[rt->pointer_begin[layer->first_position]];
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        const uint64_t bytes = parameter->element_count * sizeof(float);
        EO_TRY(take(rt, bytes, parameter->name, &first[k]));
        copy(rt, first[k], (const float *)group->output + parameter->offset, bytes);
    }
    for (uint32_t p = layer->first_position + 1; layer->use_count > 1 && p < rt->plan->position_count; p++)
        if (layer_of(rt, p) == l)
            memcpy(&rt->weight_pointers[rt->pointer_begin[p]], first, layer->parameter_count * sizeof(*first));
    group->unsharded = true;
    if (backward)
        give(rt, &group->output);
    else
        state->held = group->output;
    group->output = NULL;
    return EO_OK;
}

static void reshard(struct eo_runtime *rt, uint32_t l)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    struct group *group = &state_of(rt)->groups[l];
    for (uint32_t k = 0; group->unsharded && k < layer->parameter_count; k++)
        give(rt, &rt->weight_pointers[rt->pointer_begin[layer->first_position] + k]);
    group->unsharded = false;
}

/* -- gradients -------------------------------------------------------------------------------------------------------*/

static bool gets_gradient(const struct eo_runtime *rt, uint32_t position, const struct plan_parameter *parameter)
{
    const struct plan_position *p = &rt->plan->positions[position];
    for (uint32_t z = 0; z < p->zero_count; z++) {
        const struct plan_range *range = &rt->plan->zero_ranges[p->zero_begin + z];
        if (parameter->offset >= range->offset && parameter->offset < range->offset + range->count)
            return false;
    }
    return true;
}

/* The oldest reduction's input is dropped, its output becomes the gradient shard or is added to it. */
static eo_status finish_reduction(struct eo_runtime *rt)
{
    struct dynamic_state *state = state_of(rt);
    struct reduction *reduction = &state->reductions[state->reduction_first];
    const uint32_t l = layer_of(rt, reduction->position);
    struct layer_shard *shard = &rt->shards[l];
    EO_TRY(eo_runtime_wait(rt, &reduction->done, EO_WAIT_REDUCE_SCATTER));
    give(rt, &reduction->input);
    if (!shard->gradient) {
        shard->gradient = reduction->output;
    } else {
        struct eo_timeline_entry *entry =
            begin_entry(rt, EO_OP_ACCUMULATE, EO_STREAM_COMPUTE, reduction->position, l);
        entry->span.start_ns = entry->span.ready_ns;
        rt->device->ops->accumulate(rt->device, shard->gradient, reduction->output, EO_DTYPE_FP32, false,
                                    rt->plan->layers[l].layout.shard_count);
        give(rt, &reduction->output);
        entry->span.end_ns = eo_now_ns();
        note_live(rt, entry);
    }
    state->reduction_first = (state->reduction_first + 1) % state->reduction_limit;
    state->reduction_count--;
    return EO_OK;
}

/* The gradients of a pass, chunked and padded into one input, which is reduced. */
static eo_status reduce(struct eo_runtime *rt, uint32_t position)
{
    struct dynamic_state *state = state_of(rt);
    const struct plan_position *p = &rt->plan->positions[position];
    const struct plan_layer *layer = &rt->plan->layers[p->layer];
    const uint64_t count = layer->layout.shard_count;
    while (state->reduction_count >= state->reduction_limit)
        EO_TRY(finish_reduction(rt));
    struct reduction *reduction =
        &state->reductions[(state->reduction_first + state->reduction_count) % state->reduction_limit];
    *reduction = (struct reduction){.position = position};
    EO_TRY(take(rt, layer->layout.padded_count * sizeof(float), "the input of a reduce-scatter", &reduction->input));
    float *input = reduction->input;
    void **gradients = &rt->gradient_pointers[rt->pointer_begin[position]];
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        if (gradients[k])
            copy(rt, input + parameter->offset, gradients[k], parameter->element_count * sizeof(float));
        give(rt, &gradients[k]);
    }
    for (uint32_t z = 0; z < p->zero_count; z++) {
        const struct plan_range *range = &rt->plan->zero_ranges[p->zero_begin + z];
        rt->device->ops->zero(rt->device, input + range->offset, range->count * sizeof(float));
    }
    EO_TRY(take(rt, count * sizeof(float), "the output of a reduce-scatter", &reduction->output));
    struct eo_timeline_entry *entry = begin_entry(rt, EO_OP_REDUCE_SCATTER, EO_STREAM_COMM, position, p->layer);
    note_live(rt, entry);
    rt->stats.collective_count++;
    rt->stats.collective_bytes += count * sizeof(float) * rt->world->rank_count;
    state->reduction_count++;
    EO_TRY(rt->world->ops->reduce_scatter(rt->reduce_comm, reduction->output, reduction->input, count,
                                          EO_DTYPE_FP32, entry->name, &entry->span));
    rt->device->ops->record(rt->device, rt->plan->params.separate_reduce_stream ? EO_QUEUE_REDUCE : EO_QUEUE_COMM,
                            &reduction->done);
    return EO_OK;
}

/* -- the mode --------------------------------------------------------------------------------------------------------*/

static eo_status dynamic_step_begin(struct eo_runtime *rt)
{
    state_of(rt)->operation = 0;
    rt->restart = false;
    return EO_OK;
}

static eo_status dynamic_forward_begin(struct eo_runtime *rt, uint32_t position)
{
    struct eo_timeline_entry *entry =
        begin_entry(rt, EO_OP_FORWARD, EO_STREAM_COMPUTE, position, layer_of(rt, position));
    EO_TRY(take_buffers(rt, moment(rt, EO_PASS_FORWARD, position)));
    if (rt->plan->positions[position].forward_in_backward) { /* evaluation: what its backward pass would take */
        EO_TRY(take_buffers(rt, moment(rt, EO_PASS_RECOMPUTE, position)));
        EO_TRY(take_buffers(rt, moment(rt, EO_PASS_BACKWARD, position)));
    }
    EO_TRY(unshard(rt, position, false));
    if (!rt->params.dynamic_implicit_prefetch && position + 1 < rt->plan->position_count)
        EO_TRY(gather(rt, position + 1));
    begin_pass(rt, entry);
    return EO_OK;
}

static eo_status dynamic_forward_end(struct eo_runtime *rt, uint32_t position)
{
    const uint32_t l = layer_of(rt, position);
    end_pass(rt);
    if (rt->phase == PHASE_EVALUATION) {
        give_buffers(rt, &state_of(rt)->evaluation_give, position);
        bool used_later = false;
        for (uint32_t p = position + 1; p < rt->plan->position_count; p++)
            used_later = used_later || layer_of(rt, p) == l;
        if (!used_later)
            reshard(rt, l);
        return EO_OK;
    }
    give_buffers(rt, &state_of(rt)->give, moment(rt, EO_PASS_FORWARD, position));
    if (rt->plan->layers[l].use_count == 1)
        reshard(rt, l);
    return EO_OK;
}

static eo_status dynamic_backward_begin(struct eo_runtime *rt, uint32_t position)
{
    const struct plan_position *p = &rt->plan->positions[position];
    struct eo_timeline_entry *entry = begin_entry(rt, EO_OP_RECOMPUTE, EO_STREAM_COMPUTE, position, p->layer);
    EO_TRY(take_buffers(rt, moment(rt, EO_PASS_RECOMPUTE, position)));
    if (!p->backward_without_weights)
        EO_TRY(unshard(rt, position, true));
    give(rt, &state_of(rt)->held);
    if (position > 0 && !rt->plan->positions[position - 1].backward_without_weights)
        EO_TRY(gather(rt, position - 1));
    begin_pass(rt, entry);
    return EO_OK;
}

static eo_status dynamic_gradients_begin(struct eo_runtime *rt, uint32_t position)
{
    const struct plan_position *p = &rt->plan->positions[position];
    const struct plan_layer *layer = &rt->plan->layers[p->layer];
    end_pass(rt);
    struct eo_timeline_entry *entry = begin_entry(rt, EO_OP_BACKWARD, EO_STREAM_COMPUTE, position, p->layer);
    give_buffers(rt, &state_of(rt)->give, moment(rt, EO_PASS_RECOMPUTE, position));
    EO_TRY(take_buffers(rt, moment(rt, EO_PASS_BACKWARD, position)));
    for (uint32_t k = 0; !layer->frozen && k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        void **gradient = &rt->gradient_pointers[rt->pointer_begin[position] + k];
        if (gets_gradient(rt, position, parameter))
            EO_TRY(take(rt, parameter->element_count * sizeof(float), parameter->name, gradient));
    }
    begin_pass(rt, entry);
    return EO_OK;
}

static eo_status dynamic_backward_end(struct eo_runtime *rt, uint32_t position)
{
    const struct plan_position *p = &rt->plan->positions[position];
    const struct plan_layer *layer = &rt->plan->layers[p->layer];
    end_pass(rt);
    if (p->use + 1 == layer->use_count)
        reshard(rt, p->layer);
    give_buffers(rt, &state_of(rt)->give, moment(rt, EO_PASS_BACKWARD, position));
    return layer->frozen ? EO_OK : reduce(rt, position);
}

static eo_status dynamic_step_end(struct eo_runtime *rt)
{
    struct dynamic_state *state = state_of(rt);
    const struct eo_plan *plan = rt->plan;
    while (state->reduction_count)
        EO_TRY(finish_reduction(rt));
    struct eo_timeline_entry *entry = begin_entry(rt, EO_OP_NORM_LOCAL, EO_STREAM_COMPUTE, EO_NONE, EO_NONE);
    entry->span.start_ns = entry->span.ready_ns;
    for (uint32_t l = 0; l < plan->layer_count; l++)
        if (!plan->layers[l].frozen)
            rt->device->ops->sum_squares(rt->device, rt->shards[l].norm, rt->shards[l].gradient,
                                         plan->layers[l].layout.shard_count);
    eo_update_norm_local(rt);
    entry->span.end_ns = eo_now_ns();

    struct eo_event done;
    entry = begin_entry(rt, EO_OP_NORM_GATHER, EO_STREAM_COMM, EO_NONE, EO_NONE);
    rt->stats.collective_count++;
    EO_TRY(rt->world->ops->all_gather(rt->gather_comm, rt->norm_gathered, rt->norm_local,
                                      EO_NORM_VALUES * sizeof(double), entry->name, &entry->span));
    rt->device->ops->record(rt->device, EO_QUEUE_COMM, &done);
    entry = begin_entry(rt, EO_OP_NORM_SUM, EO_STREAM_COMPUTE, EO_NONE, EO_NONE);
    EO_TRY(eo_runtime_wait(rt, &done, EO_WAIT_NORM));
    entry->span.start_ns = eo_now_ns();
    EO_TRY(eo_update_norm_sum(rt));
    entry->span.end_ns = eo_now_ns();
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const uint32_t l = layer_of(rt, p);
        if (plan->layers[l].first_position != p || plan->layers[l].frozen)
            continue;
        entry = begin_entry(rt, EO_OP_UPDATE, EO_STREAM_COMPUTE, EO_NONE, l);
        entry->span.start_ns = entry->span.ready_ns;
        eo_update_layer(rt, l);
        entry->span.end_ns = eo_now_ns();
        note_live(rt, entry);
    }
    for (uint32_t l = 0; l < plan->layer_count; l++) /* zero_grad(set_to_none) */
        give(rt, (void **)&rt->shards[l].gradient);
    return EO_OK;
}

static eo_status dynamic_evaluation_begin(struct eo_runtime *rt)
{
    (void)rt;
    return EO_OK;
}

static eo_status dynamic_evaluation_end(struct eo_runtime *rt)
{
    give(rt, &state_of(rt)->held);
    return EO_OK;
}

static eo_status dynamic_layer_gather(struct eo_runtime *rt, uint32_t l, void **weights)
{
    const uint64_t bytes = rt->plan->layers[l].layout.shard_count * sizeof(float);
    struct eo_event done;
    EO_TRY(take(rt, bytes * rt->world->rank_count, "a layer's weights", weights));
    EO_TRY(rt->world->ops->all_gather(rt->gather_comm, *weights, rt->shards[l].weights, bytes,
                                      "weights outside the schedule", NULL));
    rt->device->ops->record(rt->device, EO_QUEUE_COMM, &done);
    return eo_runtime_wait(rt, &done, EO_WAIT_ALL_GATHER);
}

static void dynamic_layer_release(struct eo_runtime *rt, uint32_t layer, void *weights)
{
    (void)layer;
    give(rt, &weights);
}

static void dynamic_get_stats(const struct eo_runtime *rt, eo_runtime_stats *out)
{
    struct eo_allocator_stats stats;
    eo_allocator_get_stats(state_of(rt)->allocator, &stats);
    out->allocator_calls = stats.calls;
    out->allocated_bytes = stats.allocated_bytes;
    out->live_peak_bytes = stats.live_peak_bytes;
    out->reserved_peak_bytes = stats.reserved_peak_bytes;
}

const struct mode_ops eo_dynamic_mode = {
    .name = "dynamic",
    .init = dynamic_init,
    .fini = dynamic_fini,
    .step_begin = dynamic_step_begin,
    .forward_begin = dynamic_forward_begin,
    .forward_end = dynamic_forward_end,
    .backward_begin = dynamic_backward_begin,
    .gradients_begin = dynamic_gradients_begin,
    .backward_end = dynamic_backward_end,
    .step_end = dynamic_step_end,
    .evaluation_begin = dynamic_evaluation_begin,
    .evaluation_end = dynamic_evaluation_end,
    .layer_gather = dynamic_layer_gather,
    .layer_release = dynamic_layer_release,
    .get_stats = dynamic_get_stats,
};
