/* SPDX-License-Identifier: MIT
 *
 * When the operations of recorded steps ran. While a step is recorded, its timeline entries and waits go into a fixed
 * table instead of the ring, and the stamps that they ask for become nodes of the graph. When a launch has run, the
 * times are read into the table, and a copy of it goes to the end of the ring: the same timeline as of ordinary steps.
 *
 * The next launch writes the same times, so it waits until they have been read: with times the host is never a step
 * ahead. That, and a node for each time, is why they have to be asked for.
 */
#include <stdlib.h>

#include "base/check.h"
#include "runtime/runtime_internal.h"

struct graph_wait {
    const uint64_t *begin_ns; /* the stamp before it on the compute queue */
    uint64_t end_ns;
    eo_wait wait;
};

struct graph_times {
    bool is_wanted;
    bool is_valid;   /* the table is that of the graph that there is */
    bool is_untold;  /* it was launched, and its times have not been read */
    uint64_t launch_ns, step;
    uint64_t queue_ns;   /* when the compute queue came to the launch */
    struct eo_event done; /* all of the latest launch has run */
    struct eo_timeline_entry *entries;
    struct graph_wait *waits;
    const uint64_t *last_ns;
    uint32_t capacity, entry_count, wait_count;
};

uint32_t eo_graph_stamp_count(const eo_runtime_params *params)
{
    const uint32_t count = params->plan->schedule.lists[EO_LIST_STEADY].count;
    return params->graph_times ? (3 + EO_STREAM_COUNT) * count + 16 : 0;
}

eo_status eo_graph_times_init(struct eo_runtime *rt)
{
    struct graph_times *times = calloc(1, sizeof(*times));
    rt->graph_times = times;
    if (!times)
        return EO_ERR_NO_MEMORY;
    times->is_wanted = rt->params.graph_times;
    times->capacity = times->is_wanted ? rt->plan->schedule.lists[EO_LIST_STEADY].count + 1 : 1;
    times->entries = calloc(times->capacity, sizeof(*times->entries));
    times->waits = calloc((size_t)times->capacity * EO_STREAM_COUNT, sizeof(*times->waits));
    return times->entries && times->waits ? EO_OK : EO_ERR_NO_MEMORY;
}

void eo_graph_times_fini(struct eo_runtime *rt)
{
    if (rt->graph_times) {
        free(rt->graph_times->entries);
        free(rt->graph_times->waits);
    }
    free(rt->graph_times);
    rt->graph_times = NULL;
}

/* -- while a step is recorded --------------------------------------------------------------------------------------*/

void eo_graph_times_begin(struct eo_runtime *rt)
{
    struct graph_times *times = rt->graph_times;
    times->entry_count = times->wait_count = 0;
    times->is_valid = false;
    times->last_ns = NULL;
}

void eo_graph_times_end(struct eo_runtime *rt)
{
    rt->graph_times->is_valid = rt->graph_times->is_wanted;
}

/* The last place is nobody's: what does not fit, and everything where no times are wanted, lands there. */
struct eo_timeline_entry *eo_graph_times_entry(struct eo_runtime *rt)
{
    struct graph_times *times = rt->graph_times;
    struct eo_timeline_entry *entry = &times->entries[times->entry_count];
    if (times->entry_count + 1 < times->capacity)
        times->entry_count++;
    times->last_ns = &entry->span.ready_ns;
    return entry;
}

void eo_graph_times_wait(struct eo_runtime *rt, eo_wait kind)
{
    struct graph_times *times = rt->graph_times;
    if (!times->is_wanted || !times->last_ns || times->wait_count == times->capacity * EO_STREAM_COUNT)
        return;
    struct graph_wait *wait = &times->waits[times->wait_count++];
    *wait = (struct graph_wait){.begin_ns = times->last_ns, .wait = kind};
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &wait->end_ns);
    times->last_ns = &wait->end_ns;
}

/* -- when it runs --------------------------------------------------------------------------------------------------*/

/* An ordinary stamp now and then keeps the device's own near the point that times are counted from. */
void eo_graph_times_launch(struct eo_runtime *rt)
{
    struct graph_times *times = rt->graph_times;
    times->launch_ns = eo_now_ns();
    if (times->is_valid)
        rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &times->queue_ns);
}

/* rt->step is that of the step before until this one is finished. */
void eo_graph_times_launched(struct eo_runtime *rt)
{
    struct graph_times *times = rt->graph_times;
    times->step = rt->step;
    times->is_untold = times->is_valid;
    if (times->is_valid)
        rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &times->done);
    else
        eo_runtime_begin_entries(rt); /* in which nothing is known */
}

static void book(struct eo_runtime *rt)
{
    const struct graph_times *times = rt->graph_times;
    rt->device->ops->resolve_graph_stamps(rt->device);
    eo_runtime_begin_entries(rt);
    for (uint32_t i = 0; i < times->entry_count; i++) {
        struct eo_timeline_entry *entry = eo_timeline_add(&rt->timeline);
        *entry = times->entries[i];
        entry->step = times->step;
        if (entry->queue != EO_QUEUE_COMPUTE) /* issued with all the others */
            entry->span.ready_ns = times->launch_ns;
    }
    for (uint32_t i = 0; i < times->wait_count; i++) {
        const struct graph_wait *wait = &times->waits[i];
        if (wait->end_ns > *wait->begin_ns)
            rt->stats.wait_ns[wait->wait] += wait->end_ns - *wait->begin_ns;
    }
}

eo_status eo_graph_times_take(struct eo_runtime *rt, bool waits)
{
    struct graph_times *times = rt->graph_times;
    if (!times->is_untold || (!waits && !rt->device->ops->is_complete(rt->device, &times->done)))
        return EO_OK;
    EO_TRY(eo_host_await(rt, &times->done, "waiting for a recorded step, whose times are wanted"));
    times->is_untold = false;
    const uint64_t begin_ns = eo_now_ns();
    book(rt);
    rt->stats.host_wait_ns += eo_now_ns() - begin_ns;
    return EO_OK;
}
