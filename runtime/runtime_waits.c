/* SPDX-License-Identifier: MIT
 *
 * The waits of the compute queue, and what they cost; collectives and barriers outside the schedule.
 */
#include "runtime/runtime_internal.h"

#include "base/check.h"

void eo_runtime_book_waits(struct eo_runtime *rt)
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
        eo_runtime_book_waits(rt);
    if (rt->wait_end - rt->wait_begin == rt->wait_capacity)
        return NULL; /* the device is far behind: not counted */
    struct wait_record *record = &rt->waits[rt->wait_end++ % rt->wait_capacity];
    *record = (struct wait_record){.wait = wait};
    return record;
}

eo_status eo_runtime_wait(struct eo_runtime *rt, const struct eo_event *event, eo_wait wait)
{
    const struct eo_device_ops *ops = rt->device->ops;
    const bool untold = rt->recording || rt->phase != PHASE_STEP || ops->is_complete(rt->device, event);
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
