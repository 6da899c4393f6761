/* SPDX-License-Identifier: MIT
 *
 * A runtime: errors, create and destroy, and what it says of itself.
 */
#include "runtime/runtime_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
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

/* -- create and destroy ------------------------------------------------------------------------------------------ */

enum { REDUCE_INPUTS_MAX = 64 };

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
    EO_REQUIRE(log, (unsigned)params->memory <= EO_MEMORY_DYNAMIC_CACHING, "unknown memory mode %d", (int)params->memory);
    EO_REQUIRE(log, params->dynamic_reduce_inputs <= REDUCE_INPUTS_MAX,
               "%u reduce-scatter inputs in flight (dynamic_reduce_inputs); at most %d are possible",
               params->dynamic_reduce_inputs, REDUCE_INPUTS_MAX);
    EO_REQUIRE(log, params->parallel.run || params->parallel.thread_count <= 1,
               "parallel has %u threads and no function that runs them: set parallel.run", params->parallel.thread_count);
    EO_REQUIRE(log, params->update || plan->params.optimizer_states >= 2,
               "AdamW needs 2 optimizer states a parameter, the plan has %u", plan->params.optimizer_states);
    return EO_OK;
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
        rt->plans_differ = others[0] != rt->plan->fingerprint;
        if (rt->plans_differ)
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

/* How many ranks take from the memory that this one sees. */
static uint32_t count_memory_ranks(const struct eo_runtime *rt)
{
    const struct eo_world *world = rt->world;
    const uint32_t devices = rt->device->count ? rt->device->count : 1;
    return world->memory_ranks ? world->memory_ranks
                               : (world->rank_count - 1 - world->rank % devices) / devices + 1; /* counted around */
}

/* The host's together with the ranks that share it: nobody takes any before all have looked, for pages that are not there
 * end processes. A GPU refuses by itself, so there its size is enough to know. */
static eo_status look_at_memory(struct eo_runtime *rt)
{
    const struct eo_device_ops *ops = rt->device->ops;
    rt->memory_ranks = count_memory_ranks(rt);
    if (ops->is_host_memory)
        EO_TRY(ops->available(rt->device, &rt->memory_free_bytes, &rt->memory_total_bytes));
    EO_TRY(eo_communicators_open(rt));
    if (!ops->is_host_memory) /* communicators have taken theirs */
        return ops->available(rt->device, &rt->memory_free_bytes, &rt->memory_total_bytes);
    /* Of all ranks: those of another host may share their memory with nobody, and must meet all the same. */
    return rt->world->rank_count > 1 ? rt->world->ops->quiesce(rt->world_comm) : EO_OK;
}

/* Collectives that may wait in one queue: in static mode what the plan has proven, in the dynamic ones gathers and casts of
 * a few layers, and the reductions that are let under way at one time. */
static uint32_t ring_capacity(const struct eo_plan *plan, const eo_runtime_params *params)
{
    enum { OUTSIDE_ITEMS = 4 }; /* barriers and what stands outside the schedule */
    const uint32_t slots = plan->params.gather_slots + plan->params.gradient_slots;
    const uint64_t reductions = eo_min_u64(params->dynamic_reduce_inputs,
                                           (uint64_t)plan->position_count * plan->params.micro_batches);
    const uint32_t *items = plan->schedule.queue_items;
    if (params->memory != EO_MEMORY_STATIC)
        return (uint32_t)(4 * (slots + reductions) + 16);
    return (uint32_t)eo_max_u64(items[EO_STREAM_COMM], items[EO_STREAM_REDUCE]) + OUTSIDE_ITEMS;
}

static eo_status runtime_init(struct eo_runtime *rt, const eo_runtime_params *params)
{
    const struct eo_plan *plan = rt->plan;
    const eo_plan_params *settings = &plan->params;
    rt->mode = params->memory == EO_MEMORY_STATIC ? &eo_static_mode : &eo_dynamic_mode;
    rt->restart = true;
    rt->split = plan->params.dtype == EO_DTYPE_BF16 && rt->mode == &eo_static_mode;
    const uint32_t timeline_capacity = 4 * plan->schedule.lists[EO_LIST_FIRST].count + 64;
    EO_TRY(eo_device_create(&rt->device, rt->world->device,
                            &(struct eo_device_params){
                                .queue_count = settings->separate_reduce_stream ? 3 : 2,
                                .ring_capacity = ring_capacity(plan, params),
                                .rank = rt->world->rank,
                                .rank_count = rt->world->rank_count,
                                .share_rank = rt->world->share_rank,
                                .share_ranks = rt->world->share_ranks,
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
    EO_TRY(look_at_memory(rt));
    rt->shards = calloc(plan->layer_count, sizeof(*rt->shards));
    rt->buffers = calloc((size_t)plan->buffer_count + 1, sizeof(*rt->buffers));
    if (!rt->shards || !rt->buffers)
        return EO_ERR_NO_MEMORY;
    EO_TRY(eo_runtime_names_init(rt));
    EO_TRY(eo_runtime_views_init(rt));
    EO_TRY(make_passes(rt));
    if (params->recorder)
        EO_TRY(eo_flight_recorder_begin(params->recorder, &rt->timeline, timeline_capacity, rt->names,
                                        (uint32_t)eo_runtime_name_count(plan)));
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
        char reason[sizeof(rt->error) + 64];
        snprintf(reason, sizeof(reason), "its runtime could not be created: %s",
                 rt->error[0] ? rt->error : eo_status_text(status));
        if (rt->plans_differ) /* which every rank finds by itself */
            status = EO_ERR_COMM;
        else
            eo_world_abort(rt->world, reason);
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
    eo_runtime_names_fini(rt);
    free(rt->shards);
    free(rt->ranges);
    free(rt->adamw);
    free(rt->norm_partials);
    free(rt->waits);
    free(rt->buffers);
    eo_runtime_views_fini(rt);
    free(rt->passes);
    free(rt);
    *runtime = NULL;
}

/* -- what it is ------------------------------------------------------------------------------------------------- */

void eo_runtime_get_stats(const eo_runtime *rt, eo_runtime_stats *out)
{
    if (!out)
        return;
    *out = rt ? rt->stats : (eo_runtime_stats){0};
    if (rt)
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
