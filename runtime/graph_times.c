/* SPDX-License-Identifier: MIT
 *
 * When the operations of recorded steps ran. While a step is recorded, its timeline entries and waits go into a fixed
 * table instead of the ring, and the stamps that they ask for become nodes of the graph. When a launch has run, the
 * times are read into the table, and a copy of it goes to the end of the ring: the same timeline as of ordinary steps.
 *
 * The next launch writes the same times, so it waits until they have been read: with times the host is never a step
 * ahead. That, and a node for each time, is why they have to be asked for.
 */
#include "runtime/graph_times.h"

#include <stdlib.h>

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

eo_status eo_graph_times_create(struct graph_times **out, const eo_runtime_params *params)
{
    struct graph_times *times = calloc(1, sizeof(*times));
    *out = times;
    if (!times)
        return EO_ERR_NO_MEMORY;
    times->is_wanted = params->graph_times;
    times->capacity = times->is_wanted ? params->plan->schedule.lists[EO_LIST_STEADY].count + 1 : 1;
    times->entries = calloc(times->capacity, sizeof(*times->entries));
    times->waits = calloc((size_t)times->capacity * EO_STREAM_COUNT, sizeof(*times->waits));
    return times->entries && times->waits ? EO_OK : EO_ERR_NO_MEMORY;
}

void eo_graph_times_destroy(struct graph_times **times)
{
    if (!*times)
        return;
    free((*times)->entries);
    free((*times)->waits);
    free(*times);
    *times = NULL;
}

/* -- while a step is recorded --------------------------------------------------------------------------------------*/

void eo_graph_times_begin(struct graph_times *times)
{
    times->entry_count = times->wait_count = 0;
    times->is_valid = false;
    times->last_ns = NULL;
}

void eo_graph_times_end(struct graph_times *times)
{
    times->is_valid = times->is_wanted;
}

/* The last place is nobody's: what does not fit, and everything where no times are wanted, lands there. */
struct eo_timeline_entry *eo_graph_times_entry(struct graph_times *times)
{
    struct eo_timeline_entry *entry = &times->entries[times->entry_count];
    if (times->entry_count + 1 < times->capacity)
        times->entry_count++;
    times->last_ns = &entry->span.ready_ns;
    return entry;
}

void eo_graph_times_wait(struct graph_times *times, struct eo_device *device, eo_wait kind)
{
    if (!times->is_wanted || !times->last_ns || times->wait_count == times->capacity * EO_STREAM_COUNT)
        return;
    struct graph_wait *wait = &times->waits[times->wait_count++];
    *wait = (struct graph_wait){.begin_ns = times->last_ns, .wait = kind};
    device->ops->stamp(device, EO_QUEUE_COMPUTE, &wait->end_ns);
    times->last_ns = &wait->end_ns;
}

/* -- when it runs --------------------------------------------------------------------------------------------------*/

/* An ordinary stamp now and then keeps the device's own near the point that times are counted from. */
void eo_graph_times_launch(struct graph_times *times, struct eo_device *device)
{
    times->launch_ns = eo_now_ns();
    if (times->is_valid)
        device->ops->stamp(device, EO_QUEUE_COMPUTE, &times->queue_ns);
}

bool eo_graph_times_launched(struct graph_times *times, struct eo_device *device, uint64_t step)
{
    times->step = step;
    times->is_untold = times->is_valid;
    if (times->is_valid)
        device->ops->record(device, EO_QUEUE_COMPUTE, &times->done);
    return times->is_valid;
}

const struct eo_event *eo_graph_times_untold(const struct graph_times *times)
{
    return times->is_untold ? &times->done : NULL;
}

void eo_graph_times_tell(struct graph_times *times, struct eo_device *device, struct eo_timeline *timeline, uint64_t *wait_ns)
{
    times->is_untold = false;
    device->ops->resolve_graph_stamps(device);
    for (uint32_t i = 0; i < times->entry_count; i++) {
        struct eo_timeline_entry *entry = eo_timeline_add(timeline);
        *entry = times->entries[i];
        entry->step = times->step;
        if (entry->queue != EO_QUEUE_COMPUTE) /* issued with all the others */
            entry->span.ready_ns = times->launch_ns;
    }
    for (uint32_t i = 0; i < times->wait_count; i++) {
        const struct graph_wait *wait = &times->waits[i];
        if (wait->end_ns > *wait->begin_ns)
            wait_ns[wait->wait] += wait->end_ns - *wait->begin_ns;
    }
}
