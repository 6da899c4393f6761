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
 * - The copy of the own slice into the gather's output is made as part of the collective. In bf16 the shards are fp32
 *   and cast before every gather, on the communication stream; FSDP2 has a third stream for it. What was cast is kept
 *   until the gather after it has ended, for until then slower ranks may read it.
 * - A reduction in bf16 is turned into fp32, and later contributions are added, on the compute stream.
 *
 * Queues: each block belongs to the queue whose work uses it first, as FSDP2's do: outputs of collectives and what is
 * cast to the communication queues, all else to compute. A block goes back when its queue comes after all its uses.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "buffers/allocator.h"
#include "runtime/runtime_internal.h"

struct group { /* a layer */
    void *output;  /* of its all-gather; NULL: none */
    uint64_t gather; /* the how-manieth of all it was, from 1 */
    struct eo_event gathered, copied_out;
    bool unsharded; /* its parameters are there */
};

struct reduction {
    uint32_t position;
    void *input, *output;
    struct eo_event filled, done;
};

/* What was cast for a gather. */
struct cast {
    uint64_t gather;
    void *memory;
};

/* Buffers to be taken or given back at a moment. */
struct agenda {
    uint32_t *begin, *buffers;
};

struct dynamic_state {
    struct eo_allocator *allocator;
    void *host; /* host memory: steps, then staging */
    uint64_t host_bytes;
    struct group *groups;
    void *held; /* forward: the output of the layer before */
    struct group *held_of;
    uint64_t gather_count;
    struct cast *casts; /* a ring */
    uint32_t cast_first, cast_count, cast_capacity;
    uint32_t reduce_queue;
    struct eo_event optimizer_done;
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

static eo_status take(struct eo_runtime *rt, uint32_t queue, uint64_t bytes, const char *what, void **out)
{
    *out = eo_allocate(state_of(rt)->allocator, bytes, queue);
    if (!*out)
        return eo_runtime_fail(rt, EO_ERR_NO_MEMORY, "out of memory: %llu bytes for %s", (unsigned long long)bytes,
                               what);
    return EO_OK;
}

static void give(struct eo_runtime *rt, uint32_t queue, void **memory)
{
    eo_free(state_of(rt)->allocator, *memory, queue);
    *memory = NULL;
}

/* What is issued to `queue` from now on comes after the event. */
static eo_status order(struct eo_runtime *rt, uint32_t queue, const struct eo_event *event)
{
    const eo_status status = rt->device->ops->wait(rt->device, queue, event);
    if (status < 0)
        return eo_runtime_fail(rt, status, "step %llu", (unsigned long long)rt->step + 1);
    return EO_OK;
}

static eo_status take_zeroed(struct eo_runtime *rt, uint64_t bytes, const char *what, void **out)
{
    EO_TRY(take(rt, EO_QUEUE_COMPUTE, bytes, what, out));
    rt->device->ops->zero(rt->device, *out, bytes);
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
        EO_TRY(take(rt, EO_QUEUE_COMPUTE, row->bytes, row->name, &rt->buffers[agenda->buffers[i]]));
    }
    return EO_OK;
}

static void give_buffers(struct eo_runtime *rt, const struct agenda *agenda, uint32_t at)
{
    for (uint32_t i = agenda->begin[at]; i < agenda->begin[at + 1]; i++)
        give(rt, EO_QUEUE_COMPUTE, &rt->buffers[agenda->buffers[i]]);
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

static eo_status reserve_host(struct eo_runtime *rt)
{
    struct dynamic_state *state = state_of(rt);
    const uint64_t steps_bytes = eo_align_up(EO_HOST_STEPS * sizeof(struct host_step), 64);
    state->host_bytes = steps_bytes + EO_STAGING_PIECES * eo_plan_staging_bytes(rt->plan);
    EO_TRY(rt->device->ops->reserve(rt->device, EO_MEMORY_KIND_HOST, state->host_bytes, &state->host));
    eo_host_set(rt, state->host, (char *)state->host + steps_bytes);
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
    EO_TRY(make_agenda(rt, &state->take, 3 * plan->position_count, 0));
    EO_TRY(make_agenda(rt, &state->give, 3 * plan->position_count, 1));
    EO_TRY(make_agenda(rt, &state->evaluation_give, plan->position_count, 2));
    EO_TRY(take_shards(rt));
    const uint64_t norm_bytes = EO_NORM_VALUES * sizeof(double);
    EO_TRY(take_zeroed(rt, norm_bytes, "norms", (void **)&rt->norm_local));
    EO_TRY(take_zeroed(rt, norm_bytes * plan->params.rank_count, "norms", (void **)&rt->norm_gathered));
    EO_TRY(take_zeroed(rt, sizeof(*rt->norm_result), "norms", (void **)&rt->norm_result));
    EO_TRY(take_zeroed(rt, sizeof(*rt->scalars), "a step's parameters", (void **)&rt->scalars));
    EO_TRY(take_zeroed(rt, EO_STEP_VALUES * sizeof(*rt->values), "a step's values", (void **)&rt->values));
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
    if (state->host)
        rt->device->ops->release(rt->device, EO_MEMORY_KIND_HOST, state->host, state->host_bytes);
    free(state->casts);
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
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.start_ns);
    rt->open_entry = entry;
    eo_runtime_range_begin(rt, entry->name);
}

static void end_pass(struct eo_runtime *rt)
{
    eo_runtime_range_end(rt);
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &rt->open_entry->span.end_ns);
    note_live(rt, rt->open_entry);
}

/* -- weights ---------------------------------------------------------------------------------------------------------*/

static uint32_t layer_of(const struct eo_runtime *rt, uint32_t position)
{
    return rt->plan->positions[position].layer;
}

/* All gathers before this one have ended on every rank, for all have entered it: what was cast for them is not read any
 * more. */
static void drop_casts(struct eo_runtime *rt, uint64_t ended_gather)
{
    struct dynamic_state *state = state_of(rt);
    while (state->cast_count && state->casts[state->cast_first].gather < ended_gather) {
        give(rt, EO_QUEUE_COMM, &state->casts[state->cast_first].memory);
        state->cast_first = (state->cast_first + 1) % state->cast_capacity;
        state->cast_count--;
    }
}

/* What a gather sends: the fp32 shard itself, or its cast. */
static eo_status make_input(struct eo_runtime *rt, uint32_t l, const void **out)
{
    struct dynamic_state *state = state_of(rt);
    const uint64_t count = rt->plan->layers[l].layout.shard_count;
    *out = rt->shards[l].weights;
    if (rt->plan->params.dtype == EO_DTYPE_FP32)
        return EO_OK;
    EO_ASSERT(state->cast_count < state->cast_capacity);
    struct cast *cast = &state->casts[(state->cast_first + state->cast_count) % state->cast_capacity];
    EO_TRY(take(rt, EO_QUEUE_COMM, count * sizeof(uint16_t), "the cast of a shard", &cast->memory));
    cast->gather = state->gather_count;
    state->cast_count++;
    rt->device->ops->cast_bf16(rt->device, EO_QUEUE_COMM, cast->memory, rt->shards[l].weights, count);
    rt->stats.cast_bytes += count * (sizeof(float) + sizeof(uint16_t));
    rt->stats.copied_bytes += count * (sizeof(float) + sizeof(uint16_t));
    *out = cast->memory;
    return EO_OK;
}

static eo_status gather(struct eo_runtime *rt, uint32_t position)
{
    const uint32_t l = layer_of(rt, position);
    const struct plan_layer *layer = &rt->plan->layers[l];
    struct group *group = &state_of(rt)->groups[l];
    const void *input;
    if (group->output || group->unsharded)
        return EO_OK;
    const uint64_t bytes = layer->layout.shard_count * eo_dtype_bytes(rt->plan->params.dtype);
    group->gather = ++state_of(rt)->gather_count;
    EO_TRY(make_input(rt, l, &input));
    EO_TRY(take(rt, EO_QUEUE_COMM, bytes * rt->world->rank_count, "the output of an all-gather", &group->output));
    struct eo_timeline_entry *entry = begin_entry(rt, EO_OP_ALL_GATHER, EO_STREAM_COMM, position, l);
    note_live(rt, entry);
    rt->stats.copied_bytes += 2 * bytes; /* the own slice */
    rt->stats.collective_count++;
    rt->stats.collective_bytes += bytes * rt->world->rank_count;
    EO_TRY(rt->world->ops->all_gather(rt->gather_comm, group->output, input, bytes, entry->name, &entry->span));
    rt->device->ops->record(rt->device, EO_QUEUE_COMM, &group->gathered);
    return EO_OK;
}

static eo_status give_held(struct eo_runtime *rt)
{
    struct dynamic_state *state = state_of(rt);
    if (!state->held)
        return EO_OK;
    EO_TRY(order(rt, EO_QUEUE_COMM, &state->held_of->copied_out));
    give(rt, EO_QUEUE_COMM, &state->held);
    return EO_OK;
}

/* Waits for the gather, and copies its output out into one tensor a parameter. */
static eo_status unshard(struct eo_runtime *rt, uint32_t position, bool backward)
{
    struct dynamic_state *state = state_of(rt);
    const uint32_t l = layer_of(rt, position);
    const struct plan_layer *layer = &rt->plan->layers[l];
    struct group *group = &state->groups[l];
    const uint64_t size = eo_dtype_bytes(rt->plan->params.dtype);
    if (group->unsharded)
        return EO_OK;
    EO_TRY(gather(rt, position));
    EO_TRY(eo_runtime_wait(rt, &group->gathered, EO_WAIT_ALL_GATHER));
    drop_casts(rt, group->gather);
    EO_TRY(give_held(rt));
    void **const first = &rt->weight_pointers[rt->pointer_begin[layer->first_position]];
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        const uint64_t bytes = parameter->element_count * size;
        EO_TRY(take(rt, EO_QUEUE_COMPUTE, bytes, parameter->name, &first[k]));
        copy(rt, first[k], (const char *)group->output + parameter->offset * size, bytes);
    }
    rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &group->copied_out);
    for (uint32_t p = layer->first_position + 1; layer->use_count > 1 && p < rt->plan->position_count; p++)
        if (layer_of(rt, p) == l)
            memcpy(&rt->weight_pointers[rt->pointer_begin[p]], first, layer->parameter_count * sizeof(*first));
    group->unsharded = true;
    state->held = group->output;
    state->held_of = group;
    group->output = NULL;
    return backward ? give_held(rt) : EO_OK;
}

static void reshard(struct eo_runtime *rt, uint32_t l)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    struct group *group = &state_of(rt)->groups[l];
    for (uint32_t k = 0; group->unsharded && k < layer->parameter_count; k++)
        give(rt, EO_QUEUE_COMPUTE, &rt->weight_pointers[rt->pointer_begin[layer->first_position] + k]);
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

/* The queue that a gradient shard belongs to: as a rule it is the output of a reduction. */
static uint32_t gradient_queue(const struct eo_runtime *rt)
{
    return rt->plan->params.reduce_dtype == EO_DTYPE_FP32 ? state_of(rt)->reduce_queue : EO_QUEUE_COMPUTE;
}

/* Adds a reduction's output to the gradient shard, or makes one of it where it is not fp32. */
static eo_status add_output(struct eo_runtime *rt, struct reduction *reduction)
{
    const uint32_t l = layer_of(rt, reduction->position);
    struct layer_shard *shard = &rt->shards[l];
    const uint64_t count = rt->plan->layers[l].layout.shard_count;
    const bool first = !shard->gradient;
    struct eo_timeline_entry *entry = begin_entry(rt, EO_OP_ACCUMULATE, EO_STREAM_COMPUTE, reduction->position, l);
    if (first)
        EO_TRY(take(rt, EO_QUEUE_COMPUTE, count * sizeof(float), "a gradient shard", (void **)&shard->gradient));
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.start_ns);
    rt->device->ops->accumulate(rt->device, shard->gradient, reduction->output, rt->plan->params.reduce_dtype, first,
                                count);
    rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &reduction->filled);
    EO_TRY(order(rt, state_of(rt)->reduce_queue, &reduction->filled));
    give(rt, state_of(rt)->reduce_queue, &reduction->output);
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.end_ns);
    note_live(rt, entry);
    return EO_OK;
}

/* The oldest reduction's input is dropped, its output becomes the gradient shard or is added to it. */
static eo_status finish_reduction(struct eo_runtime *rt)
{
    struct dynamic_state *state = state_of(rt);
    struct reduction *reduction = &state->reductions[state->reduction_first];
    struct layer_shard *shard = &rt->shards[layer_of(rt, reduction->position)];
    EO_TRY(eo_runtime_wait(rt, &reduction->done, EO_WAIT_REDUCE_SCATTER));
    give(rt, EO_QUEUE_COMPUTE, &reduction->input);
    if (!shard->gradient && rt->plan->params.reduce_dtype == EO_DTYPE_FP32)
        shard->gradient = reduction->output;
    else
        EO_TRY(add_output(rt, reduction));
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
    const uint64_t count = layer->layout.shard_count, size = eo_dtype_bytes(rt->plan->params.reduce_dtype);
    while (state->reduction_count >= state->reduction_limit)
        EO_TRY(finish_reduction(rt));
    struct reduction *reduction =
        &state->reductions[(state->reduction_first + state->reduction_count) % state->reduction_limit];
    reduction->position = position;
    EO_TRY(take(rt, EO_QUEUE_COMPUTE, layer->layout.padded_count * size, "the input of a reduce-scatter",
                &reduction->input));
    char *input = reduction->input;
    void **gradients = &rt->gradient_pointers[rt->pointer_begin[position]];
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        if (gradients[k])
            copy(rt, input + parameter->offset * size, gradients[k], parameter->element_count * size);
        give(rt, EO_QUEUE_COMPUTE, &gradients[k]);
    }
    for (uint32_t z = 0; z < p->zero_count; z++) {
        const struct plan_range *range = &rt->plan->zero_ranges[p->zero_begin + z];
        rt->device->ops->zero(rt->device, input + range->offset * size, range->count * size);
    }
    rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &reduction->filled);
    EO_TRY(order(rt, state->reduce_queue, &reduction->filled));
    EO_TRY(take(rt, state->reduce_queue, count * size, "the output of a reduce-scatter", &reduction->output));
    struct eo_timeline_entry *entry =
        begin_entry(rt, EO_OP_REDUCE_SCATTER, (eo_stream_id)state->reduce_queue, position, p->layer);
    note_live(rt, entry);
    rt->stats.collective_count++;
    rt->stats.collective_bytes += count * size * rt->world->rank_count;
    state->reduction_count++;
    EO_TRY(rt->world->ops->reduce_scatter(rt->reduce_comm, reduction->output, reduction->input, count,
                                          rt->plan->params.reduce_dtype, entry->name, &entry->span));
    rt->device->ops->record(rt->device, state->reduce_queue, &reduction->done);
    return EO_OK;
}

/* -- the mode --------------------------------------------------------------------------------------------------------*/

static eo_status dynamic_step_begin(struct eo_runtime *rt)
{
    state_of(rt)->operation = 0;
    rt->restart = false;
    return eo_runtime_order_queues(rt); /* after the optimizer */
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
    EO_TRY(give_held(rt));
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
            EO_TRY(take(rt, EO_QUEUE_COMPUTE,
                        parameter->element_count * eo_dtype_bytes(rt->plan->params.reduce_dtype), parameter->name,
                        gradient));
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

static void start(struct eo_runtime *rt, struct eo_timeline_entry *entry)
{
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.start_ns);
}

static void end(struct eo_runtime *rt, struct eo_timeline_entry *entry)
{
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.end_ns);
    note_live(rt, entry);
}

static eo_status norm(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    struct eo_timeline_entry *entry = begin_entry(rt, EO_OP_NORM_LOCAL, EO_STREAM_COMPUTE, EO_NONE, EO_NONE);
    start(rt, entry);
    for (uint32_t l = 0; l < plan->layer_count; l++)
        if (!plan->layers[l].frozen)
            rt->device->ops->sum_squares(rt->device, rt->shards[l].norm, rt->shards[l].gradient,
                                         plan->layers[l].layout.shard_count);
    eo_update_norm_local(rt);
    end(rt, entry);

    EO_TRY(eo_runtime_order_queues(rt));
    entry = begin_entry(rt, EO_OP_NORM_GATHER, EO_STREAM_COMM, EO_NONE, EO_NONE);
    rt->stats.collective_count++;
    EO_TRY(rt->world->ops->all_gather(rt->gather_comm, rt->norm_gathered, rt->norm_local,
                                      EO_NORM_VALUES * sizeof(double), entry->name, &entry->span));
    rt->device->ops->record(rt->device, EO_QUEUE_COMM, &rt->outside);
    entry = begin_entry(rt, EO_OP_NORM_SUM, EO_STREAM_COMPUTE, EO_NONE, EO_NONE);
    EO_TRY(eo_runtime_wait(rt, &rt->outside, EO_WAIT_NORM));
    drop_casts(rt, UINT64_MAX);
    start(rt, entry);
    EO_TRY(eo_update_norm_sum(rt));
    end(rt, entry);
    return EO_OK;
}

static eo_status dynamic_step_end(struct eo_runtime *rt)
{
    struct dynamic_state *state = state_of(rt);
    const struct eo_plan *plan = rt->plan;
    while (state->reduction_count)
        EO_TRY(finish_reduction(rt));
    EO_TRY(norm(rt));
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const uint32_t l = layer_of(rt, p);
        if (plan->layers[l].first_position != p || plan->layers[l].frozen)
            continue;
        struct eo_timeline_entry *entry = begin_entry(rt, EO_OP_UPDATE, EO_STREAM_COMPUTE, EO_NONE, l);
        start(rt, entry);
        eo_update_layer(rt, l);
        end(rt, entry);
    }
    rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &state->optimizer_done);
    EO_TRY(order(rt, state->reduce_queue, &state->optimizer_done));
    for (uint32_t l = 0; l < plan->layer_count; l++) /* zero_grad(set_to_none) */
        give(rt, gradient_queue(rt), (void **)&rt->shards[l].gradient);
    return EO_OK;
}

static eo_status dynamic_evaluation_begin(struct eo_runtime *rt)
{
    (void)rt;
    return EO_OK;
}

static eo_status dynamic_evaluation_end(struct eo_runtime *rt)
{
    return give_held(rt);
}

/* The shards are fp32, also where what is computed with is not. */
static eo_status dynamic_layer_gather(struct eo_runtime *rt, uint32_t l, enum weight_half half, void **weights)
{
    const uint64_t bytes = rt->plan->layers[l].layout.shard_count * sizeof(float);
    EO_ASSERT(half == HALF_WHOLE);
    EO_TRY(take(rt, EO_QUEUE_COMM, bytes * rt->world->rank_count, "a layer's weights", weights));
    return eo_runtime_gather(rt, rt->gather_comm, *weights, rt->shards[l].weights, bytes, "weights outside the schedule",
                             EO_WAIT_ALL_GATHER);
}

/* The host has read them: nothing uses them any more. */
static void dynamic_layer_release(struct eo_runtime *rt, uint32_t layer, void *weights)
{
    (void)layer;
    give(rt, EO_QUEUE_COMM, &weights);
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
