/* SPDX-License-Identifier: MIT
 *
 * The times of a recorded step's operations and waits, if params.graph_times asks for them.
 */
#ifndef EO_RUNTIME_GRAPH_TIMES_H
#define EO_RUNTIME_GRAPH_TIMES_H

#include <evenodd/runtime.h>

#include "runtime/plan/internal.h"
#include "streams/trace/timeline.h"

struct graph_times;

uint32_t eo_graph_stamp_count(const eo_runtime_params *params);
EO_NODISCARD eo_status eo_graph_times_create(struct graph_times **out, const eo_runtime_params *params);
void eo_graph_times_destroy(struct graph_times **times);

/* While a step is recorded: its entries, and the waits of the compute queue, each called after the wait. */
void eo_graph_times_begin(struct graph_times *times);
struct eo_timeline_entry *eo_graph_times_entry(struct graph_times *times);
void eo_graph_times_wait(struct graph_times *times, struct eo_device *device, eo_wait kind);
void eo_graph_times_end(struct graph_times *times); /* the recording is the graph now */

/* Before and after a launch; false: nothing will be known of its times. */
void eo_graph_times_launch(struct graph_times *times, struct eo_device *device);
bool eo_graph_times_launched(struct graph_times *times, struct eo_device *device, uint64_t step);

/* The end of a launch with times still to be told, or NULL; once it has passed, they go to the timeline and to `wait_ns`. */
const struct eo_event *eo_graph_times_untold(const struct graph_times *times);
void eo_graph_times_tell(struct graph_times *times, struct eo_device *device, struct eo_timeline *timeline, uint64_t *wait_ns);

#endif
