/* SPDX-License-Identifier: MIT
 *
 * What passes between the host and the device: the parameters of steps in flight, and data in pieces through a ring of
 * pinned memory. And how the host waits.
 */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "runtime/internal.h"

void eo_host_set(struct runtime_host *host, const struct eo_plan *plan, void *steps, void *staging)
{
    const uint64_t scalars_bytes = eo_plan_scalars_bytes(plan), bytes = scalars_bytes + eo_plan_result_bytes(plan);
    for (uint32_t s = 0; s < EO_HOST_STEPS; s++) {
        char *at = (char *)steps + s * bytes;
        host->steps[s].memory = eo_plan_step_memory(plan, at, at + scalars_bytes);
    }
    host->staging = staging;
    host->piece_bytes = eo_plan_staging_bytes(plan);
}

/* -- waiting -------------------------------------------------------------------------------------------------------*/

static eo_status poll_collectives(struct eo_runtime *rt)
{
    for (uint32_t c = 0; c < rt->comms.count; c++)
        EO_TRY(rt->world->ops->poll(rt->comms.all[c]));
    return EO_OK;
}

/* Collectives that can fail while nobody waits for them are looked after by whoever waits for anything. */
static eo_status await(struct eo_runtime *rt, const struct eo_event *event)
{
    const struct eo_device_ops *ops = rt->device->ops;
    if (!rt->world->ops->poll)
        return ops->await(rt->device, event);
    const struct timespec pause = {.tv_nsec = 20000};
    const uint64_t soon_ns = eo_now_ns() + 50000;
    while (!ops->is_complete(rt->device, event)) {
        EO_TRY(poll_collectives(rt));
        if (eo_now_ns() < soon_ns)
            sched_yield();
        else
            (void)nanosleep(&pause, NULL);
    }
    EO_TRY(poll_collectives(rt));
    return ops->await(rt->device, event);
}

eo_status eo_host_await(struct eo_runtime *rt, const struct eo_event *event, const char *what)
{
    const uint64_t begin_ns = eo_now_ns();
    const eo_status status = await(rt, event);
    rt->stats.host_wait_ns += eo_now_ns() - begin_ns;
    return status < 0 ? eo_runtime_fail(rt, status, "%s", what) : EO_OK;
}

static eo_status drain(struct eo_runtime *rt)
{
    const struct eo_device_ops *ops = rt->device->ops;
    for (uint32_t q = 0; rt->world->ops->poll && q < rt->device->params.queue_count; q++) {
        ops->record(rt->device, q, &rt->queues.drained[q]);
        EO_TRY(await(rt, &rt->queues.drained[q]));
    }
    return ops->drain(rt->device);
}

eo_status eo_host_drain(struct eo_runtime *rt)
{
    const uint64_t begin_ns = eo_now_ns();
    const eo_status status = drain(rt);
    rt->stats.host_wait_ns += eo_now_ns() - begin_ns;
    return status;
}

/* -- pieces --------------------------------------------------------------------------------------------------------*/

eo_status eo_host_piece(struct eo_runtime *rt, void **piece)
{
    struct runtime_host *host = &rt->host;
    *piece = host->staging + host->next_piece * host->piece_bytes;
    return eo_host_await(rt, &host->staged[host->next_piece], "waiting for room in the copy buffers");
}

void eo_host_piece_issued(struct eo_runtime *rt)
{
    struct runtime_host *host = &rt->host;
    rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &host->staged[host->next_piece]);
    host->next_piece = (host->next_piece + 1) % EO_STAGING_PIECES;
}

eo_status eo_host_upload(struct eo_runtime *rt, void *to, const void *from, uint64_t bytes)
{
    if (rt->device->ops->is_host_memory) {
        rt->device->ops->upload(rt->device, to, from, bytes);
        return EO_OK;
    }
    for (uint64_t at = 0; at < bytes; at += rt->host.piece_bytes) {
        const uint64_t part = eo_min_u64(rt->host.piece_bytes, bytes - at);
        void *piece;
        EO_TRY(eo_host_piece(rt, &piece));
        memcpy(piece, (const char *)from + at, part);
        rt->device->ops->upload(rt->device, (char *)to + at, piece, part);
        eo_host_piece_issued(rt);
    }
    return EO_OK;
}

eo_status eo_host_fill(struct eo_runtime *rt, float *to, uint64_t offset, uint64_t count, eo_produce_fn produce, void *user)
{
    struct eo_device *device = rt->shards.device;
    if (device->ops->is_host_memory)
        return produce(user, offset, count, to);
    const uint64_t room = rt->host.piece_bytes / sizeof(float);
    for (uint64_t done = 0; done < count; done += room) {
        const uint64_t part = eo_min_u64(room, count - done);
        void *piece;
        EO_TRY(eo_host_piece(rt, &piece));
        EO_TRY(produce(user, offset + done, part, piece));
        device->ops->upload(device, to + done, piece, part * sizeof(float));
        eo_host_piece_issued(rt);
    }
    return EO_OK;
}

eo_status eo_host_download(struct eo_runtime *rt, void *to, const void *from, uint64_t bytes)
{
    struct runtime_host *host = &rt->host;
    if (rt->device->ops->is_host_memory) {
        rt->device->ops->download(rt->device, to, from, bytes);
        return EO_OK;
    }
    for (uint64_t at = 0; at < bytes; at += host->piece_bytes) {
        const uint64_t part = eo_min_u64(host->piece_bytes, bytes - at);
        const struct eo_event *const done = &host->staged[host->next_piece];
        void *piece;
        EO_TRY(eo_host_piece(rt, &piece));
        rt->device->ops->download(rt->device, piece, (const char *)from + at, part);
        eo_host_piece_issued(rt);
        EO_TRY(eo_host_await(rt, done, "waiting for data from the device"));
        memcpy((char *)to + at, piece, part);
    }
    return EO_OK;
}

static eo_status check_copy(struct eo_runtime *rt, const void *to, const void *from, const char *call)
{
    if (!rt)
        return EO_ERR_INVALID;
    const bool fills = rt->cursor.phase == PHASE_FILL; /* the piece that it fills is the next one that a copy would take */
    if (rt->cursor.phase == PHASE_FAILED || fills || rt->graph.recording || !to || !from)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%s %s", call,
                               rt->graph.recording                ? "during the recording of a step: copy before eo_step_begin"
                               : rt->cursor.phase == PHASE_FAILED ? "after an error: destroy the runtime"
                               : fills                            ? "from a callback of eo_weights_fill: copy before or after it"
                                                                  : "with a NULL pointer");
    return EO_OK;
}

eo_status eo_runtime_upload(eo_runtime *rt, void *to, const void *from, uint64_t bytes)
{
    EO_TRY(check_copy(rt, to, from, "eo_runtime_upload"));
    return eo_host_upload(rt, to, from, bytes);
}

eo_status eo_runtime_download(eo_runtime *rt, void *to, const void *from, uint64_t bytes)
{
    EO_TRY(check_copy(rt, to, from, "eo_runtime_download"));
    return eo_host_download(rt, to, from, bytes);
}

/* -- steps in flight -----------------------------------------------------------------------------------------------*/

/* The last layer whose norm is to blame: backward came to it first, and gave what is not finite to those before it. What lies
 * on the device is of the newest step: as a rule that one fails like this. */
static void find_culprit(struct eo_runtime *rt, uint64_t step, bool too_large, char *text, size_t bytes)
{
    const bool is_newest = step == rt->steps.newest;
    uint32_t last = EO_NONE, count = 0;
    for (uint32_t l = 0; l < rt->plan->layer_count; l++) {
        double norm = 0;
        if (rt->plan->layers[l].frozen || eo_host_download(rt, &norm, rt->shards.layers[l].norm, sizeof(norm)) < 0 ||
            isfinite(norm))
            continue;
        last = l;
        count++;
    }
    if (count == 0) {
        snprintf(text, bytes, "%s",
                 too_large   ? "loss_scale or weight is so small that gradients divided by it are too large"
                 : is_newest ? "another rank's shard"
                             : "found late: ask for a report to learn the layer");
        return;
    }
    size_t used = 0;
    if (!is_newest)
        used = (size_t)snprintf(text, bytes, "in step %llu it is ", (unsigned long long)rt->steps.newest);
    used += (size_t)snprintf(text + used, bytes - used, "%s", rt->plan->layers[last].name);
    if (count > 1)
        snprintf(text + used, bytes - used, ", and %u before it", count - 1);
}

static uint32_t slot_of(uint64_t step)
{
    return (uint32_t)(step % EO_HOST_STEPS);
}

struct host_step *eo_host_step(struct runtime_host *host, uint64_t step)
{
    return &host->steps[slot_of(step)];
}

bool eo_host_freezes(const struct eo_runtime *rt, uint64_t step, uint32_t group)
{
    return step > 0 && rt->host.pending[slot_of(step)] == step && rt->host.steps[slot_of(step)].memory.groups[group].frozen;
}

void eo_host_download_result(struct eo_runtime *rt, uint64_t step)
{
    struct host_step *at = eo_host_step(&rt->host, step);
    rt->device->ops->download(rt->device, at->memory.norm, rt->update.step.norm, eo_plan_result_bytes(rt->plan));
    at->done_ns = 0;
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &at->done_ns);
    rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &rt->host.step_done[slot_of(step)]);
    rt->host.pending[slot_of(step)] = rt->steps.newest = step;
}

static void report_parts(struct eo_runtime *rt, const struct eo_step_memory *from, eo_step_report *report)
{
    const uint64_t slot = report->step % EO_REPORTS_KEPT;
    if (!rt->plan->params.norm_parts)
        return;
    double *layers = rt->steps.layer_norms + slot * from->layer_count;
    eo_group_norm *groups = rt->steps.group_norms + slot * from->clip_count;
    memcpy(layers, from->layer_norms, from->layer_count * sizeof(*layers));
    for (uint32_t g = 0; g < from->clip_count; g++)
        groups[g] = (eo_group_norm){from->clip_results[g].norm, from->clip_results[g].clip_factor};
    report->layer_norms = layers;
    report->layer_count = from->layer_count;
    report->group_norms = groups;
    report->group_count = from->clip_count;
}

/* The step's result is there, and its stamp has passed; but stamps are told in the order of issue, and one before it may be of
 * a queue that goes on. */
static eo_status await_stamp(struct eo_runtime *rt, uint64_t step)
{
    const struct eo_device_ops *ops = rt->device->ops;
    const struct timespec pause = {.tv_nsec = 20000};
    const uint64_t begin_ns = eo_now_ns();
    eo_status status = EO_OK;
    ops->resolve_stamps(rt->device);
    while (status >= 0 && eo_host_step(&rt->host, step)->done_ns == 0) {
        (void)nanosleep(&pause, NULL);
        ops->resolve_stamps(rt->device);
        status = await(rt, &rt->host.step_done[slot_of(step)]); /* tells failures, too */
    }
    rt->stats.host_wait_ns += eo_now_ns() - begin_ns;
    RUNTIME_TRY(rt, status, "step %llu", (unsigned long long)step);
    return EO_OK;
}

static eo_status finish_step(struct eo_runtime *rt, uint64_t step)
{
    const struct host_step *at = eo_host_step(&rt->host, step);
    const struct eo_norm_result *result = at->memory.norm;
    char what[64];
    snprintf(what, sizeof(what), "step %llu", (unsigned long long)step);
    EO_TRY(eo_host_await(rt, &rt->host.step_done[slot_of(step)], what));
    EO_TRY(await_stamp(rt, step));
    rt->host.pending[slot_of(step)] = 0;
    eo_step_report *report = &rt->steps.reports[step % EO_REPORTS_KEPT];
    *report = (eo_step_report){.gradient_norm = result->norm, .clip_factor = result->clip_factor, .step = step};
    memcpy(report->values, result->values, sizeof(report->values));
    report->weight = result->weight;
    report->loss_scale = (float)at->memory.scalars->loss_scale;
    report->skipped = !isfinite(result->norm);
    rt->steps.skipped_here = result->skipped;
    report->skipped_count = rt->steps.skipped + rt->steps.skipped_here;
    for (uint32_t g = 0; g < rt->plan->group_count; g++)
        rt->steps.frozen[g] += !report->skipped && at->memory.groups[g].frozen;
    report->done_ns = at->done_ns;
    report_parts(rt, &at->memory, report);
    if (!report->skipped || at->on_not_finite == EO_SKIP)
        return EO_OK;
    char culprit[EO_NAME_MAX + 96];
    const bool is_poisoned = rt->params.debug && rt->params.memory == EO_MEMORY_STATIC && !isinf(result->norm);
    const double weight = result->weight > 0 ? result->weight : 1;
    find_culprit(rt, step, isinf(result->norm) && weight * report->loss_scale < 1, culprit, sizeof(culprit));
    return eo_runtime_fail(rt, EO_ERR_NOT_FINITE, "step %llu: the gradient norm is not finite (%s); %s; %s",
                           (unsigned long long)step, culprit,
                           step == rt->steps.newest ? "the weights are unchanged"
                                                    : "it left the weights unchanged, and later steps went on from there",
                           is_poisoned ? "debug mode fills dead memory with NaN: was some of it read before it was written?"
                                       : "with on_not_finite EO_SKIP training goes on");
}

eo_status eo_host_finish_steps(struct eo_runtime *rt, uint64_t last)
{
    for (uint64_t step = last > EO_HOST_STEPS ? last - EO_HOST_STEPS : 1; step <= last; step++)
        if (rt->host.pending[slot_of(step)] == step)
            EO_TRY(finish_step(rt, step));
    return EO_OK;
}
