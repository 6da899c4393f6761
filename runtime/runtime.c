/* SPDX-License-Identifier: MIT
 *
 * The front of a runtime: create and destroy, the order of calls, statistics.
 */
#include "runtime/runtime_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "eo_config.h"

/* -- errors ------------------------------------------------------------------------------------------------------ */

eo_status eo_runtime_fail(struct eo_runtime *rt, eo_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int used = snprintf(rt->error, sizeof(rt->error), "rank %u: ", rt->world->rank);
    used += vsnprintf(rt->error + used, sizeof(rt->error) - (size_t)used, format, arguments);
    va_end(arguments);
    if ((status == EO_ERR_COMM || status == EO_ERR_TIMEOUT) && (size_t)used + 3 < sizeof(rt->error)) {
        memcpy(rt->error + used, ": ", 3);
        eo_world_failure(rt->world, rt->error + used + 2, sizeof(rt->error) - (size_t)used - 2);
    }
    eo_log_write(&rt->log, EO_LOG_ERROR, "%s", rt->error);
    if (status == EO_ERR_INVALID || status == EO_ERR_UNSUPPORTED) {
        if (EO_DEBUG_ABORT && status == EO_ERR_INVALID)
            eo_fatal("%s", rt->error);
        return status;
    }
    rt->phase = PHASE_FAILED;
    /* The others learn of it at once instead of waiting for this rank; all of them see a bad norm by themselves. */
    if (status == EO_ERR_NO_MEMORY || status == EO_ERR_DEVICE)
        eo_world_abort(rt->world, rt->error);
    return status;
}

const char *eo_runtime_error(const eo_runtime *runtime)
{
    return runtime ? runtime->error : "";
}

/* -- names and timeline -------------------------------------------------------------------------------------------*/

static size_t name_index(const struct eo_plan *plan, eo_operation_kind kind, uint32_t position, uint32_t layer)
{
    const size_t stride = (size_t)plan->position_count + plan->layer_count + 1;
    const size_t what = position != EO_NONE ? position
                        : layer != EO_NONE  ? (size_t)plan->position_count + layer
                                            : stride - 1;
    return (size_t)kind * stride + what;
}

const char *eo_runtime_name(const struct eo_runtime *rt, eo_operation_kind kind, uint32_t position, uint32_t layer)
{
    return rt->names[name_index(rt->plan, kind, position, layer)];
}

static eo_status make_names(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    const size_t count = name_index(plan, EO_OP_KIND_COUNT, 0, 0);
    rt->names = calloc(count, sizeof(*rt->names));
    if (!rt->names)
        return EO_ERR_NO_MEMORY;
    for (uint32_t kind = 0; kind < EO_OP_KIND_COUNT; kind++) {
        for (uint32_t i = 0; i < plan->position_count + plan->layer_count + 1; i++) {
            const struct eo_operation operation = {
                .kind = (eo_operation_kind)kind,
                .position = i < plan->position_count ? i : EO_NONE,
                .layer = i >= plan->position_count && i < plan->position_count + plan->layer_count
                             ? i - plan->position_count
                             : EO_NONE,
                .micro_batch = EO_NONE,
            };
            char text[EO_NAME_MAX * 2];
            eo_plan_operation_text(plan, &operation, text, sizeof(text));
            char *copy = strdup(text);
            if (!copy)
                return EO_ERR_NO_MEMORY;
            rt->names[name_index(plan, operation.kind, operation.position, operation.layer)] = copy;
        }
    }
    return EO_OK;
}

struct eo_timeline_entry *eo_runtime_entry(struct eo_runtime *rt, eo_operation_kind kind, eo_stream_id stream,
                                           uint32_t position, uint32_t layer, uint32_t operation)
{
    struct eo_timeline_entry *entry = rt->recording ? eo_graph_times_entry(rt) : eo_timeline_add(&rt->timeline);
    *entry = (struct eo_timeline_entry){
        .name = eo_runtime_name(rt, kind, position, layer),
        .category = eo_operation_kind_name(kind),
        .operation = operation,
        .kind = kind,
        .queue = stream,
        .name_index = (uint32_t)name_index(rt->plan, kind, position, layer),
        .step = rt->step,
    };
    if (stream == EO_STREAM_COMPUTE)
        rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.ready_ns);
    else
        entry->span.ready_ns = eo_now_ns();
    if (rt->params.recorder && !rt->recording)
        eo_flight_recorder_mark(rt->params.recorder, entry->name_index, rt->step, rt->timeline.count);
    return entry;
}

void eo_runtime_begin_entries(struct eo_runtime *rt)
{
    rt->step_entry[2] = rt->step_entry[1];
    rt->step_entry[1] = rt->step_entry[0];
    rt->step_entry[0] = rt->timeline.count;
}

/* The step whose collectives have surely all ended is the last but one: gathers at the end of the last may still run
 * until the first passes of the next have waited for them. */
uint32_t eo_runtime_timeline(const eo_runtime *rt, eo_timeline_record *records, uint32_t capacity)
{
    if (!rt || !records || rt->step < 2)
        return 0;
    rt->device->ops->resolve_stamps(rt->device);
    const uint32_t in_step = rt->phase == PHASE_STEP; /* then the newest begin is of a step not finished yet */
    const uint64_t begin = rt->step_entry[in_step + 1], end = rt->step_entry[in_step];
    uint32_t count = 0;
    for (uint64_t i = begin; i < end && count < capacity; i++) {
        if (i + rt->timeline.capacity < rt->timeline.count)
            continue; /* overwritten: the ring is smaller than two steps */
        const struct eo_timeline_entry *entry = &rt->timeline.entries[i % rt->timeline.capacity];
        records[count++] = (eo_timeline_record){
            .operation = entry->operation,
            .kind = (eo_operation_kind)entry->kind,
            .stream = (eo_stream_id)entry->queue,
            .name = entry->name,
            .ready_ns = entry->span.ready_ns,
            .start_ns = entry->span.start_ns,
            .end_ns = entry->span.end_ns,
            .live_bytes = entry->live_bytes,
        };
    }
    return count;
}

void eo_runtime_write_trace(const eo_runtime *rt, eo_write_fn write, void *user)
{
    if (!rt || !write)
        return;
    (void)rt->device->ops->drain(rt->device);
    rt->device->ops->resolve_stamps(rt->device);
    eo_timeline_write(&rt->timeline, rt->world->rank, write, user);
}

/* -- create and destroy ------------------------------------------------------------------------------------------ */

static eo_status check_params(const eo_log *log, const eo_runtime_params *params)
{
    EO_REQUIRE(log, params->plan && params->world, "a runtime needs a plan and a world");
    const struct eo_plan *plan = params->plan;
    EO_REQUIRE(log, plan->params.rank_count == params->world->rank_count,
               "the plan is for %u ranks, the world has %u: plan again", plan->params.rank_count,
               params->world->rank_count);
    EO_TRY(eo_communicators_check(log, plan, params->world));
    if (params->memory != EO_MEMORY_STATIC && plan->params.strategy != EO_STRATEGY_ZERO3) {
        eo_log_write(log, EO_LOG_ERROR, "strategy %s is planned memory's alone: the dynamic modes are FSDP2's full sharding "
                     "(zero3); give a plan of zero3, or EO_MEMORY_STATIC", eo_strategy_name(plan->params.strategy));
        return EO_ERR_UNSUPPORTED;
    }
    EO_REQUIRE(log, params->memory <= EO_MEMORY_DYNAMIC_CACHING, "unknown memory mode %d", (int)params->memory);
    EO_REQUIRE(log, params->update || plan->params.optimizer_states >= 2,
               "AdamW needs 2 optimizer states a parameter, the plan has %u", plan->params.optimizer_states);
    return EO_OK;
}

static eo_status make_views(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    uint32_t total = 0;
    rt->pointer_begin = calloc(plan->position_count, sizeof(*rt->pointer_begin));
    if (!rt->pointer_begin)
        return EO_ERR_NO_MEMORY;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        rt->pointer_begin[p] = total;
        total += plan->layers[plan->positions[p].layer].parameter_count;
    }
    rt->weight_pointers = calloc(total, sizeof(void *));
    rt->gradient_pointers = calloc(total, sizeof(void *));
    rt->forward_views = calloc(plan->position_count, sizeof(eo_view));
    rt->backward_views = calloc(plan->position_count, sizeof(eo_view));
    rt->gradient_views = calloc(plan->position_count, sizeof(eo_view));
    if (!rt->weight_pointers || !rt->gradient_pointers || !rt->forward_views || !rt->backward_views ||
        !rt->gradient_views)
        return EO_ERR_NO_MEMORY;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        void *const *weights = rt->weight_pointers + rt->pointer_begin[p];
        const uint32_t count = plan->layers[plan->positions[p].layer].parameter_count;
        void *const *in_backward = plan->positions[p].backward_without_weights ? NULL : weights;
        rt->forward_views[p] = (eo_view){count, weights, NULL};
        rt->backward_views[p] = (eo_view){count, in_backward, NULL};
        rt->gradient_views[p] = (eo_view){count, in_backward, rt->gradient_pointers + rt->pointer_begin[p]};
    }
    return EO_OK;
}

void eo_runtime_set_weights(struct eo_runtime *rt, uint32_t position, void *base)
{
    const struct plan_layer *layer = &rt->plan->layers[rt->plan->positions[position].layer];
    for (uint32_t k = 0; k < layer->parameter_count; k++)
        rt->weight_pointers[rt->pointer_begin[position] + k] =
            (char *)base +
            rt->plan->parameters[layer->parameter_begin + k].offset * eo_dtype_bytes(rt->plan->params.dtype);
}

void eo_runtime_set_gradients(struct eo_runtime *rt, uint32_t position, void *base)
{
    const struct plan_layer *layer = &rt->plan->layers[rt->plan->positions[position].layer];
    for (uint32_t k = 0; k < layer->parameter_count; k++)
        rt->gradient_pointers[rt->pointer_begin[position] + k] =
            (char *)base +
            rt->plan->parameters[layer->parameter_begin + k].offset * eo_dtype_bytes(rt->plan->params.reduce_dtype);
}

static eo_status make_passes(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    rt->passes = calloc(2 * (size_t)plan->position_count, sizeof(*rt->passes));
    if (!rt->passes)
        return EO_ERR_NO_MEMORY;
    for (uint32_t p = 0; p < plan->position_count; p++)
        if (!plan->positions[p].forward_in_backward)
            rt->passes[rt->pass_count++] = (struct api_pass){false, p};
    for (uint32_t p = plan->position_count; p-- > 0;)
        rt->passes[rt->pass_count++] = (struct api_pass){true, p};
    return EO_OK;
}

/* Every rank sends its plan's fingerprint before anything else is sent. */
static eo_status compare_plans(struct eo_runtime *rt)
{
    const uint64_t bytes = EO_NORM_VALUES * sizeof(double);
    uint64_t mine[EO_NORM_VALUES] = {rt->plan->fingerprint}, others[EO_NORM_VALUES];
    _Static_assert(sizeof(mine) == EO_NORM_VALUES * sizeof(double), "a fingerprint lies where a double does");
    EO_TRY(eo_host_upload(rt, rt->norm_local, mine, bytes));
    EO_TRY(eo_runtime_gather(rt, rt->world_comm, rt->norm_gathered, rt->norm_local, bytes, "comparison of plans", EO_WAIT_NORM));
    for (uint32_t r = 0; r < rt->world->rank_count; r++) {
        EO_TRY(eo_host_download(rt, others, rt->norm_gathered + (size_t)r * EO_NORM_VALUES, bytes));
        if (others[0] != rt->plan->fingerprint)
            return eo_runtime_fail(rt, EO_ERR_INVALID,
                                   "rank %u has another plan (fingerprint %016" PRIx64 ", here %016" PRIx64
                                   "): give all ranks the same model and settings",
                                   r, others[0], rt->plan->fingerprint);
    }
    return EO_OK;
}

/* The plan does not know of it. Ranks that share the device see each other's as well. */
void eo_runtime_log_outside(struct eo_runtime *rt, const char *what)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    if (rt->device->ops->is_host_memory || rt->device->ops->available(rt->device, &free_bytes, &total_bytes) < 0)
        return;
    if (what && free_bytes < rt->free_bytes) {
        rt->stats.outside_bytes += rt->free_bytes - free_bytes;
        eo_log_write(&rt->log, EO_LOG_INFO, "rank %u: outside the plan: %.1f MiB of the device for %s", rt->world->rank,
                     (double)(rt->free_bytes - free_bytes) / (1 << 20), what);
    }
    rt->free_bytes = free_bytes;
}

static eo_status runtime_init(struct eo_runtime *rt, const eo_runtime_params *params)
{
    const struct eo_plan *plan = rt->plan;
    const eo_plan_params *settings = &plan->params;
    const uint32_t slots = settings->gather_slots + settings->gradient_slots;
    rt->mode = params->memory == EO_MEMORY_STATIC ? &eo_static_mode : &eo_dynamic_mode;
    rt->restart = true;
    rt->split = plan->params.dtype == EO_DTYPE_BF16 && rt->mode == &eo_static_mode;
    const uint32_t timeline_capacity = 4 * plan->schedule.lists[EO_LIST_FIRST].count + 64;
    EO_TRY(eo_device_create(&rt->device, rt->world->device,
                            &(struct eo_device_params){
                                .queue_count = settings->separate_reduce_stream ? 3 : 2,
                                .ring_capacity = 4 * slots + 16,
                                .rank = rt->world->rank,
                                .rank_count = rt->world->rank_count,
                                .place_threads = params->place_threads,
                                .share_memory = rt->world->ops->shares_memory,
                                .device_index = rt->world->device_index,
                                .event_count = plan->schedule.id_count + 2 * plan->layer_count +
                                               params->dynamic_reduce_inputs + 64,
                                /* An entry and a wait have five at most, and no more than these are kept. */
                                .stamp_count = 5 * timeline_capacity,
                                .graph_stamp_count = eo_graph_stamp_count(params),
                                .delay_seed = params->delay_seed,
                                .workers = {params->parallel.run, params->parallel.team,
                                            params->parallel.thread_count ? params->parallel.thread_count : 1},
                                .log = &rt->log,
                            }));
    EO_TRY(eo_communicators_open(rt));
    rt->shards = calloc(plan->layer_count, sizeof(*rt->shards));
    rt->buffers = calloc((size_t)plan->buffer_count + 1, sizeof(*rt->buffers));
    if (!rt->shards || !rt->buffers)
        return EO_ERR_NO_MEMORY;
    EO_TRY(make_names(rt));
    EO_TRY(make_views(rt));
    EO_TRY(make_passes(rt));
    if (params->recorder)
        EO_TRY(eo_flight_recorder_begin(params->recorder, &rt->timeline, timeline_capacity, rt->names,
                                        (uint32_t)name_index(plan, EO_OP_KIND_COUNT, 0, 0)));
    else
        EO_TRY(eo_timeline_init(&rt->timeline, timeline_capacity));
    EO_TRY(eo_graph_times_init(rt));
    rt->wait_capacity = timeline_capacity;
    rt->waits = calloc(timeline_capacity, sizeof(*rt->waits));
    if (!rt->waits)
        return EO_ERR_NO_MEMORY;
    EO_TRY(rt->mode->init(rt));
    EO_TRY(eo_update_init(rt));
    eo_runtime_log_outside(rt, NULL); /* that was the plan's */
    EO_TRY(compare_plans(rt));
    if (rt->mode->warm_up && rt->world->ops->warms_up)
        EO_TRY(rt->mode->warm_up(rt));
    eo_runtime_log_outside(rt, "the first run of each collective");
    return eo_runtime_quiesce(rt);
}

eo_status eo_runtime_create(eo_runtime **out, const eo_runtime_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!params)
        return EO_ERR_INVALID;
    const eo_log log = params->log ? *params->log : (eo_log){0};
    EO_TRY(check_params(&log, params));
    struct eo_runtime *rt = calloc(1, sizeof(*rt));
    if (!rt)
        return EO_ERR_NO_MEMORY;
    rt->params = *params;
    rt->plan = params->plan;
    rt->world = params->world;
    rt->log = log;
    eo_status status = runtime_init(rt, params);
    if (status < 0) {
        if (status != EO_ERR_INVALID && status != EO_ERR_COMM && status != EO_ERR_TIMEOUT)
            eo_world_abort(rt->world, "its runtime could not be created");
        if (status == EO_ERR_INVALID)
            status = EO_ERR_COMM; /* the arguments were checked before: only the plans can differ */
        eo_runtime_destroy(&rt);
        return status;
    }
    *out = rt;
    return EO_OK;
}

void eo_runtime_destroy(eo_runtime **runtime)
{
    if (!runtime || !*runtime)
        return;
    struct eo_runtime *rt = *runtime;
    if (rt->device && rt->is_connected) {
        eo_graph_fini(rt);
        (void)eo_host_drain(rt);
    }
    eo_communicators_close(rt);
    if (rt->mode)
        rt->mode->fini(rt);
    eo_device_destroy(&rt->device);
    if (rt->timeline.borrowed)
        eo_flight_recorder_end(rt->params.recorder, rt->phase == PHASE_IDLE);
    eo_timeline_fini(&rt->timeline);
    eo_graph_times_fini(rt);
    for (size_t i = 0; rt->names && i < name_index(rt->plan, EO_OP_KIND_COUNT, 0, 0); i++)
        free((char *)rt->names[i]);
    free(rt->names);
    free(rt->shards);
    free(rt->ranges);
    free(rt->adamw);
    free(rt->norm_partials);
    free(rt->waits);
    free(rt->buffers);
    free(rt->weight_pointers);
    free(rt->gradient_pointers);
    free(rt->pointer_begin);
    free(rt->forward_views);
    free(rt->backward_views);
    free(rt->gradient_views);
    free(rt->passes);
    free(rt);
    *runtime = NULL;
}

/* -- waiting ------------------------------------------------------------------------------------------------------*/

/* Waits whose stamps are known are added to the statistics, oldest first. */
static void book_waits(struct eo_runtime *rt)
{
    rt->device->ops->resolve_stamps(rt->device);
    for (; rt->wait_begin < rt->wait_end; rt->wait_begin++) {
        const struct wait_record *record = &rt->waits[rt->wait_begin % rt->wait_capacity];
        if (!record->begin_ns || !record->end_ns)
            return;
        rt->stats.wait_ns[record->wait] += record->end_ns - record->begin_ns;
    }
}

static struct wait_record *new_wait(struct eo_runtime *rt, eo_wait wait)
{
    if (rt->wait_end - rt->wait_begin == rt->wait_capacity)
        book_waits(rt);
    if (rt->wait_end - rt->wait_begin == rt->wait_capacity)
        return NULL; /* the device is far behind: not counted */
    struct wait_record *record = &rt->waits[rt->wait_end++ % rt->wait_capacity];
    *record = (struct wait_record){.wait = wait};
    return record;
}

eo_status eo_runtime_wait(struct eo_runtime *rt, const struct eo_event *event, eo_wait wait)
{
    const struct eo_device_ops *ops = rt->device->ops;
    const bool untold = rt->recording || ops->is_complete(rt->device, event);
    struct wait_record *record = untold ? NULL : new_wait(rt, wait);
    if (record)
        ops->stamp(rt->device, EO_QUEUE_COMPUTE, &record->begin_ns);
    const eo_status status = ops->wait(rt->device, EO_QUEUE_COMPUTE, event);
    if (record)
        ops->stamp(rt->device, EO_QUEUE_COMPUTE, &record->end_ns);
    if (rt->recording)
        eo_graph_times_wait(rt, wait);
    if (status < 0)
        return eo_runtime_fail(rt, status, "step %llu", (unsigned long long)rt->step + 1);
    return EO_OK;
}

eo_status eo_runtime_order_queues(struct eo_runtime *rt)
{
    const struct eo_device_ops *ops = rt->device->ops;
    ops->record(rt->device, EO_QUEUE_COMPUTE, &rt->issued);
    for (uint32_t q = 1; q < rt->device->params.queue_count; q++) {
        const eo_status status = ops->wait(rt->device, q, &rt->issued);
        if (status < 0)
            return eo_runtime_fail(rt, status, "after step %llu", (unsigned long long)rt->step);
    }
    return EO_OK;
}

eo_status eo_runtime_gather(struct eo_runtime *rt, struct eo_comm *comm, void *recv, const void *send,
                            uint64_t send_bytes, const char *label, eo_wait wait)
{
    EO_TRY(eo_runtime_order_queues(rt));
    const eo_status status = rt->world->ops->all_gather(comm, recv, send, send_bytes, label, NULL);
    if (status < 0)
        return eo_runtime_fail(rt, status, "%s", label);
    rt->device->ops->record(rt->device, EO_QUEUE_COMM, &rt->outside);
    return eo_runtime_wait(rt, &rt->outside, wait);
}

eo_status eo_runtime_quiesce(struct eo_runtime *rt)
{
    if (rt->quiet)
        return EO_OK;
    eo_status status = eo_host_drain(rt);
    for (uint32_t c = 0; c < rt->comm_count && status >= 0; c++)
        status = rt->world->ops->quiesce(rt->comms[c]);
    if (status < 0)
        return eo_runtime_fail(rt, status, "after step %llu", (unsigned long long)rt->step);
    rt->quiet = true;
    return EO_OK;
}

/* -- order of calls -----------------------------------------------------------------------------------------------*/

static void expected_text(const struct eo_runtime *rt, char *text, size_t bytes)
{
    if (rt->phase == PHASE_FAILED) {
        snprintf(text, bytes, "nothing but eo_runtime_destroy after the error before");
    } else if (rt->phase == PHASE_IDLE) {
        snprintf(text, bytes, "eo_step_begin or eo_evaluation_begin");
    } else if (rt->phase == PHASE_EVALUATION) {
        if (rt->pass == rt->plan->position_count)
            snprintf(text, bytes, "eo_evaluation_end");
        else
            snprintf(text, bytes, "%s forward of %s", rt->progress == PASS_NEXT ? "begin of" : "end of",
                     rt->plan->positions[rt->pass].name);
    } else if (rt->micro_batch == rt->plan->params.micro_batches) {
        snprintf(text, bytes, "eo_step_end");
    } else {
        const struct api_pass *pass = &rt->passes[rt->pass];
        const bool frozen = rt->plan->positions[pass->position].buffer_row == EO_NONE;
        const char *what = rt->progress == PASS_NEXT                                  ? "begin of"
                           : pass->backward && rt->progress == PASS_BEGUN && !frozen ? "eo_gradients_begin in"
                                                                                      : "end of";
        snprintf(text, bytes, "%s %s of %s", what, pass->backward ? "backward" : "forward",
                 rt->plan->positions[pass->position].name);
    }
}

static eo_status out_of_order(struct eo_runtime *rt, const char *call, uint32_t position)
{
    char expected[EO_NAME_MAX * 2 + 64];
    expected_text(rt, expected, sizeof(expected));
    const char *of = position == EO_NONE                       ? ""
                     : position < rt->plan->position_count ? rt->plan->positions[position].name
                                                           : "a position that does not exist";
    return eo_runtime_fail(rt, EO_ERR_INVALID, "%s was expected, got %s%s%s", expected, call,
                           position == EO_NONE ? "" : " of ", of);
}

static bool is_next(const struct eo_runtime *rt, bool backward, uint32_t position, enum pass_progress progress)
{
    if (rt->progress != progress)
        return false;
    if (rt->phase == PHASE_EVALUATION)
        return !backward && rt->pass == position && position < rt->plan->position_count;
    return rt->phase == PHASE_STEP && rt->micro_batch < rt->plan->params.micro_batches &&
           rt->passes[rt->pass].backward == backward && rt->passes[rt->pass].position == position;
}

static void next_pass(struct eo_runtime *rt)
{
    rt->progress = PASS_NEXT;
    rt->pass++;
    if (rt->phase == PHASE_STEP && rt->pass == rt->pass_count) {
        rt->pass = 0;
        rt->micro_batch++;
    }
}

#define TRY_ORDER(condition, call, position)                                                                          \
    do {                                                                                                              \
        if (!rt)                                                                                                      \
            return EO_ERR_INVALID;                                                                                    \
        if (!(condition))                                                                                             \
            return out_of_order(rt, call, position);                                                                  \
    } while (0)

eo_status eo_step_begin(eo_runtime *rt)
{
    TRY_ORDER(rt->phase == PHASE_IDLE, "eo_step_begin", EO_NONE);
    EO_TRY(eo_update_begin(rt));
    EO_TRY(eo_graph_times_take(rt, true));
    if (rt->record_next)
        EO_TRY(eo_graph_begin(rt));
    else if (rt->restart)
        EO_TRY(eo_runtime_order_queues(rt)); /* after weights that were filled, or a graph */
    rt->step_begin_ns = eo_now_ns();
    if (!rt->recording)
        eo_runtime_begin_entries(rt);
    rt->phase = PHASE_STEP;
    rt->pass = rt->micro_batch = 0;
    rt->progress = PASS_NEXT;
    rt->quiet = rt->steps_in_graph = false;
    rt->device->ops->zero(rt->device, rt->values, EO_STEP_VALUES * sizeof(*rt->values));
    return rt->mode->step_begin(rt);
}

eo_status eo_forward_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    TRY_ORDER(view && is_next(rt, false, position, PASS_NEXT), "begin of forward", position);
    EO_TRY(rt->mode->forward_begin(rt, position));
    rt->progress = PASS_BEGUN;
    *view = &rt->forward_views[position];
    return EO_OK;
}

eo_status eo_forward_end(eo_runtime *rt, uint32_t position)
{
    TRY_ORDER(is_next(rt, false, position, PASS_BEGUN), "end of forward", position);
    next_pass(rt);
    return rt->mode->forward_end(rt, position);
}

eo_status eo_backward_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    TRY_ORDER(view && is_next(rt, true, position, PASS_NEXT), "begin of backward", position);
    EO_TRY(rt->mode->backward_begin(rt, position));
    rt->progress = PASS_BEGUN;
    *view = &rt->backward_views[position];
    return EO_OK;
}

eo_status eo_gradients_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    TRY_ORDER(view && is_next(rt, true, position, PASS_BEGUN) &&
                  rt->plan->positions[position].buffer_row != EO_NONE,
              "eo_gradients_begin", position);
    EO_TRY(rt->mode->gradients_begin(rt, position));
    rt->progress = PASS_GRADIENTS;
    *view = &rt->gradient_views[position];
    return EO_OK;
}

eo_status eo_backward_end(eo_runtime *rt, uint32_t position)
{
    const bool frozen = rt && position < rt->plan->position_count &&
                        rt->plan->positions[position].buffer_row == EO_NONE;
    TRY_ORDER(is_next(rt, true, position, frozen ? PASS_BEGUN : PASS_GRADIENTS), "end of backward", position);
    if (frozen)
        EO_TRY(rt->mode->gradients_begin(rt, position)); /* an operation all the same, without a buffer */
    next_pass(rt);
    return rt->mode->backward_end(rt, position);
}

eo_status eo_step_end(eo_runtime *rt, const eo_step_params *params, eo_step_report *report)
{
    TRY_ORDER(rt->phase == PHASE_STEP && rt->micro_batch == rt->plan->params.micro_batches &&
                  rt->progress == PASS_NEXT,
              "eo_step_end", EO_NONE);
    EO_TRY(eo_update_check(rt, params));
    rt->step_params = *params;
    if (rt->recording) {
        EO_TRY(rt->mode->step_end(rt));
        EO_TRY(eo_graph_end(rt));
        EO_TRY(eo_graph_launch(rt));
        book_waits(rt);
        EO_TRY(eo_update_finish(rt, report));
        return report ? eo_graph_times_take(rt, true) : EO_OK;
    }
    eo_update_upload_scalars(rt);
    EO_TRY(rt->mode->step_end(rt));
    book_waits(rt);
    return eo_update_finish(rt, report);
}

eo_status eo_evaluation_begin(eo_runtime *rt)
{
    TRY_ORDER(rt->phase == PHASE_IDLE, "eo_evaluation_begin", EO_NONE);
    EO_TRY(eo_runtime_quiesce(rt));
    rt->phase = PHASE_EVALUATION;
    rt->pass = 0;
    rt->progress = PASS_NEXT;
    rt->quiet = rt->steps_in_graph = false;
    rt->restart = true;
    EO_TRY(eo_runtime_order_queues(rt));
    return rt->mode->evaluation_begin(rt);
}

eo_status eo_evaluation_end(eo_runtime *rt)
{
    TRY_ORDER(rt->phase == PHASE_EVALUATION && rt->pass == rt->plan->position_count && rt->progress == PASS_NEXT,
              "eo_evaluation_end", EO_NONE);
    EO_TRY(rt->mode->evaluation_end(rt));
    EO_TRY(eo_runtime_quiesce(rt));
    rt->phase = PHASE_IDLE;
    return EO_OK;
}

float eo_loss_scale(const eo_runtime *rt)
{
    return 1.0f / ((float)rt->world->rank_count * (float)rt->plan->params.micro_batches);
}

/* -- buffers, views, statistics ------------------------------------------------------------------------------------*/

/* Whether a buffer is live in the pass that is under way. */
static bool is_live(const struct eo_runtime *rt, const struct plan_buffer *buffer)
{
    const struct eo_plan *plan = rt->plan;
    if (buffer->persistent)
        return true;
    if (rt->progress == PASS_NEXT || (rt->phase != PHASE_STEP && rt->phase != PHASE_EVALUATION))
        return false;
    eo_moment now = {EO_PASS_FORWARD, rt->pass};
    if (rt->phase == PHASE_STEP) {
        now.position = rt->passes[rt->pass].position;
        if (rt->passes[rt->pass].backward)
            now.pass = rt->progress == PASS_GRADIENTS ? EO_PASS_BACKWARD : EO_PASS_RECOMPUTE;
    } else if (plan->positions[rt->pass].forward_in_backward) {
        now.pass = EO_PASS_BACKWARD;
    }
    const uint32_t at = eo_moment_order(now, plan->position_count);
    return eo_moment_order(buffer->first, plan->position_count) <= at &&
           at <= eo_moment_order(buffer->last, plan->position_count);
}

void *eo_buffer(const eo_runtime *rt, uint32_t buffer)
{
    if (!rt || buffer >= rt->plan->buffer_count)
        return NULL;
    if (rt->params.debug && !is_live(rt, &rt->plan->buffers[buffer])) {
        char now[EO_NAME_MAX * 2 + 64];
        expected_text(rt, now, sizeof(now));
        eo_log_write(&rt->log, EO_LOG_ERROR, "buffer '%s' is not live here (before: %s)",
                     rt->plan->rows[rt->plan->buffers[buffer].row].name, now);
        return NULL;
    }
    return rt->buffers[buffer];
}

/* The position whose view it is, or EO_NONE. */
static uint32_t view_position(const struct eo_runtime *rt, const eo_view *view, const char **pass)
{
    const struct {
        const eo_view *views;
        const char *pass;
    } tables[] = {{rt->forward_views, "forward"}, {rt->backward_views, "backward"}, {rt->gradient_views, "backward"}};
    for (int t = 0; t < 3; t++) {
        for (uint32_t p = 0; p < rt->plan->position_count; p++) {
            if (view != &tables[t].views[p])
                continue;
            *pass = tables[t].pass;
            return p;
        }
    }
    return EO_NONE;
}

bool eo_view_is_stale(const eo_runtime *rt, const eo_view *view)
{
    const char *pass = "";
    if (!rt || !rt->params.debug)
        return false;
    const uint32_t position = view_position(rt, view, &pass);
    if (position == EO_NONE || rt->progress == PASS_NEXT)
        return true;
    const bool backward = pass[0] == 'b';
    if (rt->phase == PHASE_EVALUATION)
        return backward || rt->pass != position;
    return rt->phase != PHASE_STEP || rt->passes[rt->pass].backward != backward ||
           rt->passes[rt->pass].position != position;
}

static void *from_view(const eo_runtime *rt, const eo_view *view, void *const *pointers, uint32_t index,
                       const char *what)
{
    if (!view || !pointers || index >= view->parameter_count)
        return NULL;
    if (eo_view_is_stale(rt, view)) {
        const char *pass = "a";
        const uint32_t position = view_position(rt, view, &pass);
        eo_log_write(&rt->log, EO_LOG_ERROR, "%s of %s used after its %s pass has ended", what,
                     position != EO_NONE ? rt->plan->positions[position].name : "another runtime", pass);
        return NULL;
    }
    return pointers[index];
}

void *eo_view_weight(const eo_runtime *rt, const eo_view *view, uint32_t index)
{
    return from_view(rt, view, view ? view->weights : NULL, index, "weights");
}

void *eo_view_gradient(const eo_runtime *rt, const eo_view *view, uint32_t index)
{
    return from_view(rt, view, view ? view->gradients : NULL, index, "gradients");
}

void eo_runtime_get_stats(const eo_runtime *rt, eo_runtime_stats *out)
{
    *out = rt->stats;
    rt->mode->get_stats(rt, out);
}

double *eo_step_values(const eo_runtime *rt)
{
    return rt ? rt->values : NULL;
}

const char *eo_runtime_device(const eo_runtime *rt)
{
    return rt ? rt->device->ops->name : "";
}

uint32_t eo_runtime_rank(const eo_runtime *rt)
{
    return rt ? rt->world->rank : 0;
}

const eo_plan *eo_runtime_plan(const eo_runtime *rt)
{
    return rt ? rt->plan : NULL;
}

void *eo_runtime_stream(const eo_runtime *rt)
{
    return rt ? rt->device->ops->queue_handle(rt->device, EO_QUEUE_COMPUTE) : NULL;
}
