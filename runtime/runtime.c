/* SPDX-License-Identifier: MIT
 *
 * A runtime: create and destroy, and facts about it.
 */
#include "runtime/internal.h"
#include "runtime/plan/optimizers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/sized.h"
#include "runtime/graph_times.h"

/* -- create and destroy ------------------------------------------------------------------------------------------ */

enum { REDUCE_INPUTS_MAX = 64 };

static eo_status check_dynamic_offload(const eo_log *log, const eo_runtime_params *params)
{
    if (!params->dynamic_offload)
        return EO_OK;
    EO_REQUIRE(log, params->memory != EO_MEMORY_STATIC, "dynamic_offload is of the dynamic modes; static memory offloads as the plan "
               "says (offload_layers)");
    EO_REQUIRE(log, !params->update && !params->gradient, "dynamic_offload runs the plan's optimizer on the host; leave update and "
               "gradient out");
    for (uint32_t l = 0; l < params->plan->layer_count; l++)
        EO_REQUIRE(log, !params->plan->layers[l].float8_gather, "layer '%s' is gathered in float8, which dynamic_offload does not "
                   "do; plan without float8 gathers", params->plan->layers[l].name);
    return EO_OK;
}

static eo_status check_params(const eo_log *log, const eo_runtime_params *params)
{
    EO_REQUIRE(log, params->plan && params->world, "a runtime needs a plan and a world");
    const struct eo_plan *plan = params->plan;
    EO_REQUIRE(log, plan->params.rank_count == params->world->rank_count,
               "the plan is for %u ranks, the world has %u; plan again", plan->params.rank_count, params->world->rank_count);
    EO_REQUIRE(log, !plan->params.draft, "the plan is a draft, which is not proven; plan again without `draft`");
    EO_TRY(eo_communicators_check(log, plan, params->world));
    if (params->memory != EO_MEMORY_STATIC && plan->params.strategy != EO_STRATEGY_ZERO3) {
        eo_log_write(log, EO_LOG_ERROR, "strategy %s needs planned memory: the dynamic modes are FSDP2's full sharding "
                     "(zero3); give a plan of zero3, or EO_MEMORY_STATIC", eo_strategy_name(plan->params.strategy));
        return EO_ERR_UNSUPPORTED;
    }
    if (params->memory != EO_MEMORY_STATIC && (plan->params.offload_layers || plan->params.offload_activations)) {
        eo_log_write(log, EO_LOG_ERROR, "the plan offloads to disk, which needs planned memory; give EO_MEMORY_STATIC, or "
                     "a plan without offload_layers and offload_activations");
        return EO_ERR_UNSUPPORTED;
    }
    EO_REQUIRE(log, !plan->params.late_updates || (!params->update && !params->gradient), "update and gradient would be called in the "
               "next step for layers with late_updates; plan without late_updates");
    EO_TRY(check_dynamic_offload(log, params));
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        if (plan->layers[l].parts == 1)
            continue;
        eo_log_write(log, EO_LOG_ERROR, "layer '%s' is shared by a part of its group (%u parts), which is planned and not run yet; give "
                     "a model without parts", plan->layers[l].name, plan->layers[l].parts);
        return EO_ERR_UNSUPPORTED;
    }
    for (uint32_t l = 0; l < plan->layer_count && params->memory != EO_MEMORY_STATIC; l++) {
        if (plan->layers[l].frozen_part == EO_NONE)
            continue;
        eo_log_write(log, EO_LOG_ERROR, "layer '%s' has frozen parameters beside trainable ones, which needs planned memory; give "
                     "EO_MEMORY_STATIC, or freeze parameters by group and step", plan->layers[l].name);
        return EO_ERR_UNSUPPORTED;
    }
    if (params->memory != EO_MEMORY_STATIC && plan->params.float8_frozen) {
        eo_log_write(log, EO_LOG_ERROR, "frozen weights in MXFP8 (float8_frozen) need planned memory; give EO_MEMORY_STATIC, or a plan "
                     "without float8_frozen");
        return EO_ERR_UNSUPPORTED;
    }
    EO_REQUIRE(log, (unsigned)params->memory <= EO_MEMORY_DYNAMIC_CACHING, "unknown memory mode %d", (int)params->memory);
    EO_REQUIRE(log, params->dynamic_reduce_inputs <= REDUCE_INPUTS_MAX,
               "%u reduce-scatter inputs in flight (dynamic_reduce_inputs); at most %d are possible",
               params->dynamic_reduce_inputs, REDUCE_INPUTS_MAX);
    EO_REQUIRE(log, params->parallel.run || params->parallel.thread_count <= 1,
               "parallel has %u threads but no function to run them; set parallel.run", params->parallel.thread_count);
    const struct plan_optimizer *optimizer = eo_plan_optimizer(plan->params.optimizer);
    EO_REQUIRE(
        log, params->update || plan->params.optimizer_states >= optimizer->state_count,
        "optimizer %s needs %u optimizer states a parameter, the plan has %u; plan with those, or give an update of your own",
        eo_optimizer_name(plan->params.optimizer), optimizer->state_count, plan->params.optimizer_states);
    EO_REQUIRE(log, !params->update || plan->params.optimizer == EO_OPTIMIZER_ADAMW,
               "update is given, but the plan has optimizer %s; leave one of them out",
               eo_optimizer_name(plan->params.optimizer));
    EO_REQUIRE(log, plan->params.optimizer != EO_OPTIMIZER_MUON || params->memory == EO_MEMORY_STATIC,
               "optimizer muon runs in static memory alone; use EO_MEMORY_STATIC or another optimizer");
    return EO_OK;
}

/* Every rank sends its plan's fingerprint before anything else is sent. */
static eo_status compare_plans(struct eo_runtime *rt)
{
    const uint64_t bytes = EO_NORM_VALUES * sizeof(double);
    uint64_t mine[EO_NORM_VALUES] = {rt->plan->fingerprint, rt->plan->settings_print, rt->plan->parameters_print};
    uint64_t others[EO_NORM_VALUES];
    _Static_assert(sizeof(mine) == EO_NORM_VALUES * sizeof(double), "a fingerprint lies where a double does");
    EO_TRY(eo_host_upload(rt, rt->update.norm_local, mine, bytes));
    EO_TRY(eo_runtime_gather(rt, rt->comms.world, rt->update.norm_gathered, rt->update.norm_local, bytes, "comparison of plans",
                             EO_WAIT_NORM));
    for (uint32_t r = 0; r < rt->world->rank_count; r++) {
        EO_TRY(eo_host_download(rt, others, rt->update.norm_gathered + (size_t)r * EO_NORM_VALUES, bytes));
        rt->errors.plans_differ = others[0] != rt->plan->fingerprint;
        if (rt->errors.plans_differ)
            return eo_runtime_fail(rt, EO_ERR_INVALID,
                                   "rank %u has another plan (fingerprint %016" PRIx64 ", here %016" PRIx64 "): %s differ; give "
                                   "all ranks the same model and settings",
                                   r, others[0], mine[0],
                                   others[1] != mine[1]   ? "settings (eo_plan_params) or the names of the models"
                                   : others[2] != mine[2] ? "layers or their parameters"
                                                          : "positions or buffers");
    }
    return EO_OK;
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
 * end processes; and the disk likewise. A GPU refuses by itself, so there its size is enough to know. */
static eo_status look_at_memory(struct eo_runtime *rt)
{
    const struct eo_device_ops *ops = rt->device->ops;
    rt->memory.ranks = count_memory_ranks(rt);
    if (ops->is_host_memory)
        EO_TRY(ops->available(rt->device, &rt->memory.free_bytes, &rt->memory.total_bytes));
    EO_TRY(eo_offload_check(rt));
    EO_TRY(eo_communicators_open(rt));
    if (!ops->is_host_memory) /* communicators have taken theirs */
        EO_TRY(ops->available(rt->device, &rt->memory.free_bytes, &rt->memory.total_bytes));
    const bool has_met = rt->world->ops->register_memory != NULL; /* nccl: all have come to open */
    if (!ops->is_host_memory && (has_met || rt->plan->space_bytes[EO_SPACE_DISK] == 0))
        return EO_OK;
    /* Of all ranks: those of another host may share their memory with nobody, and must meet all the same. */
    if (rt->world->rank_count > 1)
        RUNTIME_TRY(rt, rt->world->ops->quiesce(rt->comms.world), "waiting for all ranks in eo_runtime_create");
    return EO_OK;
}

/* Of one fetch or eviction: of a layer, its state and its gradient; of a position, each buffer that it saves. */
static uint32_t most_copies(const struct eo_plan *plan)
{
    uint32_t most = 2;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        uint32_t count = 0;
        for (uint32_t b = 0; plan->positions[p].leaves && b < plan->buffer_count; b++)
            count += plan->buffers[b].disk_row != EO_NONE && plan->buffers[b].first.position == p;
        most = (uint32_t)eo_max_u64(most, count);
    }
    return most;
}

/* Parameters with fp32 of a layer: each is copied into the cast of a shard. */
static uint32_t most_fp32(const struct eo_plan *plan)
{
    uint32_t most = 0, count = 0;
    for (uint32_t p = 0; p < plan->parameter_count; p++) {
        count = (p && plan->parameters[p].layer == plan->parameters[p - 1].layer ? count : 0) + plan->parameters[p].fp32;
        most = count > most ? count : most;
    }
    return most;
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
        return (uint32_t)(((params->dynamic_offload ? 6 : 4) + most_fp32(plan)) * (slots + reductions) + 16);
    uint64_t run = eo_max_u64(plan->params.gather_run, plan->params.gradient_run); /* an item for each position, */
    for (uint32_t l = 0; l < plan->layer_count && plan->params.norms_beside; l++)
        run = eo_max_u64(run, eo_plan_layer_sums(plan, &plan->layers[l])); /* for each sum of a norm, */
    const uint64_t gathered = 2 * (uint64_t)items[EO_STREAM_COMM]; /* and for each frozen part */
    return (uint32_t)eo_max_u64(run * eo_max_u64(gathered, items[EO_STREAM_REDUCE]),
                                eo_max_u64((uint64_t)most_copies(plan) * (items[EO_STREAM_COPY] + items[EO_STREAM_EVICT]),
                                           2 * plan->params.offload_slots)) +
           OUTSIDE_ITEMS;
}

static uint32_t queue_count(const struct eo_runtime *rt, const eo_runtime_params *params)
{
    const eo_plan_params *settings = &rt->plan->params;
    const bool has_disk = rt->plan->space_bytes[EO_SPACE_DISK] != 0;
    return has_disk && settings->separate_evict_stream && !eo_device_is_host(rt->world->device) ? 5
           : has_disk || params->dynamic_offload                                               ? 4
           : settings->separate_reduce_stream                                                  ? 3
                                                                                               : 2;
}

static eo_status runtime_init(struct eo_runtime *rt, const eo_runtime_params *params)
{
    const struct eo_plan *plan = rt->plan;
    const eo_plan_params *settings = &plan->params;
    rt->mode = params->memory == EO_MEMORY_STATIC ? &eo_static_mode : &eo_dynamic_mode;
    rt->steps.restart = true;
    rt->shards.split = plan->params.dtype == EO_DTYPE_BF16 && rt->mode == &eo_static_mode;
    const bool has_disk = plan->space_bytes[EO_SPACE_DISK] != 0;
    const uint32_t most_operations = (uint32_t)eo_max_u64(plan->schedule.lists[EO_LIST_FIRST].count,
                                                          plan->schedule.lists[EO_LIST_STEADY].count);
    const uint32_t timeline_capacity = 4 * most_operations + 64;
    EO_TRY(eo_device_create(&rt->device, rt->world->device,
                            &(struct eo_device_params){
                                .queue_count = queue_count(rt, params),
                                .ring_capacity = ring_capacity(plan, params),
                                .rank = rt->world->rank,
                                .rank_count = rt->world->rank_count,
                                .share_rank = rt->world->share_rank,
                                .share_ranks = rt->world->share_ranks,
                                .processes = rt->world->processes,
                                .place_threads = params->place_threads,
                                .share_memory = rt->world->ops->shares_memory,
                                .device_index = rt->world->device_index,
                                .event_count = plan->schedule.id_count + 2 * plan->layer_count +
                                               2 * params->dynamic_reduce_inputs + 64,
                                /* An entry and a wait have five at most, and no more than these are kept. */
                                .stamp_count = 5 * timeline_capacity,
                                .graph_stamp_count = eo_graph_stamp_count(params),
                                .delay_seed = params->delay_seed,
                                .workers = {params->parallel.run, params->parallel.team,
                                            params->parallel.thread_count ? params->parallel.thread_count : 1},
                                .log = &rt->log,
                            }));
    rt->shards.device = rt->device;
    if (has_disk && !rt->device->ops->storage_open)
        return eo_runtime_fail(rt, EO_ERR_UNSUPPORTED, "the plan offloads layers, which device %s cannot; plan without "
                               "offload_layers", rt->device->ops->name);
    if (settings->float8_frozen && !rt->device->ops->widen_mxfp8)
        return eo_runtime_fail(rt, EO_ERR_UNSUPPORTED, "device %s cannot widen weights in MXFP8; plan without float8_frozen",
                               rt->device->ops->name);
    if (settings->optimizer == EO_OPTIMIZER_MUON && !params->product && !rt->device->ops->is_host_memory)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "optimizer muon on device %s needs a matrix product: set "
                               "eo_runtime_params.product (eo_team_product of evenodd/layers.h, say)", rt->device->ops->name);
    EO_TRY(look_at_memory(rt));
    rt->shards.layers = calloc(plan->layer_count, sizeof(*rt->shards.layers));
    rt->waits.capacity = timeline_capacity;
    rt->waits.records = calloc(timeline_capacity, sizeof(*rt->waits.records));
    if (!rt->shards.layers || !rt->waits.records)
        return EO_ERR_NO_MEMORY;
    EO_TRY(eo_runtime_names_init(&rt->timeline, plan));
    EO_TRY(eo_views_init(&rt->views, plan));
    EO_TRY(eo_cursor_init(&rt->cursor, plan));
    if (params->recorder)
        EO_TRY(eo_flight_recorder_begin(params->recorder, &rt->timeline.ring, timeline_capacity, rt->timeline.names,
                                        (uint32_t)eo_runtime_name_count(plan)));
    else
        EO_TRY(eo_timeline_init(&rt->timeline.ring, timeline_capacity));
    EO_TRY(eo_graph_times_create(&rt->graph.times, params));
    EO_TRY(rt->mode->init(rt));
    EO_TRY(eo_update_init(rt));
    EO_TRY(eo_float8_init(rt));
    eo_runtime_log_outside(rt, NULL); /* that was the plan's */
    EO_TRY(compare_plans(rt));
    if (rt->mode->warm_up && rt->world->ops->warms_up)
        EO_TRY(rt->mode->warm_up(rt));
    eo_runtime_log_outside(rt, "the first run of each collective");
    return eo_runtime_quiesce(rt, "eo_runtime_create");
}

/* Another rank may have said why, and this one's status says less. What this one has said itself is in the world's log, which
 * need not be the runtime's. */
static void tell_world_failure(struct eo_runtime *rt)
{
    char own[32];
    const char *const text = rt->errors.text;
    const size_t length = (size_t)snprintf(own, sizeof(own), "rank %u", rt->world->rank);
    eo_world_failure(rt->world, rt->errors.text, sizeof(rt->errors.text));
    const bool is_own = strncmp(text, own, length) == 0 && (text[length] < '0' || text[length] > '9');
    if (text[0])
        eo_log_write(&rt->log, EO_LOG_ERROR, "%s%s%s", is_own ? "" : own, is_own ? "" : ": ", text);
}

/* The failure of a runtime before stays, and would be told as one of this. */
static eo_status check_world(const eo_log *log, const eo_world *world)
{
    char failure[512] = "";
    if (world->had_runtime)
        eo_world_failure(world, failure, sizeof(failure));
    if (failure[0])
        eo_log_write(log, EO_LOG_ERROR, "rank %u: this world has failed before, make another one: %s", world->rank, failure);
    return failure[0] ? EO_ERR_COMM : EO_OK;
}

/* More than it reads may be meant for an update that was forgotten. */
static void warn_of_states(const eo_log *log, const eo_runtime_params *params)
{
    const eo_plan_params *settings = &params->plan->params;
    const uint32_t read = eo_plan_optimizer(settings->optimizer)->state_count;
    if (!params->update && settings->optimizer_states > read && params->world->rank == 0)
        eo_log_write(log, EO_LOG_WARN, "the plan has %u optimizer states a parameter, of which %s uses %u: was `update` forgotten?",
                     settings->optimizer_states, eo_optimizer_name(settings->optimizer), read);
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
    EO_TRY(check_world(&log, params->world));
    warn_of_states(&log, params);
    struct eo_runtime *rt = calloc(1, sizeof(*rt));
    if (!rt)
        return EO_ERR_NO_MEMORY;
    rt->params = *params;
    rt->plan = params->plan;
    eo_plan_use(rt->plan);
    rt->world = params->world;
    rt->world->runtime_count++;
    rt->world->had_runtime = true;
    rt->owner = getpid();
    rt->log = log;
    eo_status status = runtime_init(rt, params);
    if (status < 0) {
        char reason[sizeof(rt->errors.text) + 64];
        if (!rt->errors.text[0])
            tell_world_failure(rt);
        snprintf(reason, sizeof(reason), "cannot create its runtime: %s",
                 rt->errors.text[0] ? rt->errors.text : eo_status_text(status));
        if (rt->errors.plans_differ) /* which every rank finds by itself */
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
    if (rt->owner != getpid()) { /* its threads are another process's */
        *runtime = NULL;
        return;
    }
    if (rt->saver_count) {
        eo_log_write(&rt->log, EO_LOG_ERROR,
                     "rank %u: eo_runtime_destroy: savers of this runtime are left (%u); destroy them before it",
                     rt->world->rank, rt->saver_count);
        return;
    }
    if (eo_cursor_caller(&rt->cursor)) {
        eo_log_write(&rt->log, EO_LOG_ERROR, "rank %u: eo_runtime_destroy: not from a callback of %s; return an error from it, then "
                     "destroy", rt->world->rank, eo_cursor_caller(&rt->cursor));
        return;
    }
    if (rt->device && rt->comms.are_open) {
        eo_graph_fini(rt);
        (void)eo_host_drain(rt);
    }
    eo_communicators_close(&rt->comms, rt->world);
    if (rt->mode)
        rt->mode->fini(rt);
    eo_device_destroy(&rt->device);
    if (rt->timeline.ring.borrowed)
        eo_flight_recorder_end(rt->params.recorder, rt->cursor.phase == PHASE_IDLE);
    eo_timeline_fini(&rt->timeline.ring);
    eo_graph_times_destroy(&rt->graph.times);
    eo_runtime_names_fini(&rt->timeline, rt->plan);
    free(rt->shards.layers);
    eo_update_fini(rt);
    eo_float8_fini(&rt->float8);
    free(rt->waits.records);
    eo_views_fini(&rt->views);
    eo_cursor_fini(&rt->cursor);
    rt->world->runtime_count--;
    eo_plan_leave(rt->plan);
    free(rt);
    *runtime = NULL;
}

/* -- what it is ------------------------------------------------------------------------------------------------- */

void eo_runtime_get_stats_sized(const eo_runtime *rt, eo_runtime_stats *out, size_t out_bytes)
{
    eo_runtime_stats stats = rt ? rt->stats : (eo_runtime_stats){0};
    stats.offload_bytes = rt ? rt->plan->space_bytes[EO_SPACE_DISK] : 0;
    if (rt && rt->mode->get_stats)
        rt->mode->get_stats(rt, &stats);
    eo_give_sized(out, out_bytes, &stats, sizeof(stats));
}

double *eo_step_values(const eo_runtime *rt)
{
    return rt ? rt->update.values : NULL;
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
