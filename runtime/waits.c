/* SPDX-License-Identifier: MIT
 *
 * The waits of the compute queue, and what they cost; collectives and barriers outside the schedule.
 */
#include "runtime/internal.h"

#include "base/check.h"
#include "runtime/graph_times.h"

void eo_runtime_book_waits(struct eo_runtime *rt)
{
    rt->device->ops->resolve_stamps(rt->device);
    for (; rt->waits.begin < rt->waits.end; rt->waits.begin++) {
        const struct wait_record *record = &rt->waits.records[rt->waits.begin % rt->waits.capacity];
        if (!record->begin_ns || !record->end_ns)
            return;
        rt->stats.wait_ns[record->wait] += record->end_ns - record->begin_ns;
    }
}

static struct wait_record *new_wait(struct eo_runtime *rt, eo_wait wait)
{
    if (rt->waits.end - rt->waits.begin == rt->waits.capacity)
        eo_runtime_book_waits(rt);
    if (rt->waits.end - rt->waits.begin == rt->waits.capacity)
        return NULL; /* the device is far behind: not counted */
    struct wait_record *record = &rt->waits.records[rt->waits.end++ % rt->waits.capacity];
    *record = (struct wait_record){.wait = wait};
    return record;
}

eo_status eo_runtime_wait(struct eo_runtime *rt, const struct eo_event *event, eo_wait wait)
{
    const struct eo_device_ops *ops = rt->device->ops;
    const bool untold = rt->graph.recording || rt->cursor.phase != PHASE_STEP || ops->is_complete(rt->device, event);
    struct wait_record *record = untold ? NULL : new_wait(rt, wait);
    if (record)
        ops->stamp(rt->device, EO_QUEUE_COMPUTE, &record->begin_ns);
    const eo_status status = ops->wait(rt->device, EO_QUEUE_COMPUTE, event);
    if (record)
        ops->stamp(rt->device, EO_QUEUE_COMPUTE, &record->end_ns);
    if (rt->graph.recording)
        eo_graph_times_wait(rt->graph.times, rt->device, wait);
    RUNTIME_TRY(rt, status, "step %llu", (unsigned long long)rt->steps.finished + 1);
    return EO_OK;
}

eo_status eo_runtime_order_queues(struct eo_runtime *rt)
{
    const struct eo_device_ops *ops = rt->device->ops;
    ops->record(rt->device, EO_QUEUE_COMPUTE, &rt->queues.issued);
    for (uint32_t q = 1; q < rt->device->params.queue_count; q++) {
        RUNTIME_TRY(rt, ops->wait(rt->device, q, &rt->queues.issued), "after step %llu",
                    (unsigned long long)rt->steps.finished);
    }
    return EO_OK;
}

eo_status eo_runtime_gather(struct eo_runtime *rt, struct eo_comm *comm, void *recv, const void *send,
                            uint64_t send_bytes, const char *label, eo_wait wait)
{
    EO_TRY(eo_runtime_order_queues(rt));
    RUNTIME_TRY(rt, rt->world->ops->all_gather(comm, recv, send, send_bytes, label, NULL), "%s", label);
    rt->device->ops->record(rt->device, EO_QUEUE_COMM, &rt->queues.outside);
    return eo_runtime_wait(rt, &rt->queues.outside, wait);
}

eo_status eo_runtime_quiesce(struct eo_runtime *rt, const char *call)
{
    if (rt->comms.quiet)
        return EO_OK;
    eo_status status = eo_host_drain(rt);
    for (uint32_t c = 0; c < rt->comms.count && status >= 0; c++)
        status = rt->world->ops->quiesce(rt->comms.all[c]);
    RUNTIME_TRY(rt, status, "%s after step %llu", call, (unsigned long long)rt->steps.finished);
    rt->comms.quiet = true;
    return EO_OK;
}

eo_status eo_runtime_leave_schedule(struct eo_runtime *rt, const char *call)
{
    EO_TRY(eo_runtime_quiesce(rt, call));
    if (rt->steps.is_late) {
        EO_TRY(rt->mode->finish_updates(rt));
        EO_TRY(eo_host_drain(rt));
    }
    rt->steps.is_late = false;
    rt->steps.restart = true;
    rt->graph.ran_last = false;
    return EO_OK;
}
