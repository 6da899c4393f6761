/* SPDX-License-Identifier: MIT
 *
 * One run of a comparison, in the process that was made for it: trains, and tells all that was measured as one JSON
 * object. Times are in seconds. What is told of a step leaves the first one out, which finds everything cold.
 *
 *     mode, weights_hash, tokens_per_step
 *     steps_s                        of rank 0
 *     host_s                         of rank 0, by step: what the host does but wait for the GPU; 0 on a CPU
 *     offload_bytes                  of a rank, on disk or in host memory
 *     offload_moved_bytes            there and back, a step, of the largest rank
 *     allocator_calls, allocated_bytes, copied_bytes, cast_bytes (part of copied)    a step, of the largest rank
 *     page_faults                    a step, of the process
 *     arena_bytes, live_peak_bytes, reserved_peak_bytes  of the largest rank
 *     resident_peak_bytes            of the process
 *     wait_s                         a step, mean of the ranks: compute idle for {all_gather, reduce_scatter, norm, fetch};
 *                                    waiting for ranks that are late is part of it
 *     collective_s, exposed_s        likewise: from all ranks' entry to the end, and what of it compute stood still in
 *     start_delay_s, late_ranks_s    static mode: mean of a collective's, {all_gather, reduce_scatter, norm}; see
 *                                    tools/headtohead/start_delay.h
 *     start_delays                   [[name, start delay, late ranks], ...]: each collective's own, means over the steps
 *     delayed_collectives, early_collectives   how many these are of; how many began before they were ready: none
 *     simulated_s                    static mode: the plan's list on all ranks, with each step's own operation times
 *     simulated_measured_s           the same steps as rank 0 measured them
 *     simulated_medians_s            the list on one rank (the slowest) with the median of each operation
 *     gpu                            with --cupti on: {kernels, copies, peer_copies, fills, kernel_s, copy_s}, a step, of
 *                                    all ranks: what the GPUs really ran
 *     categories                     {name: bytes when most is live}, planned
 *     timeline                       by rank: [[kind, stream, name, start, end, live bytes], ...], the last whole step
 */
#ifndef EO_TOOLS_HEADTOHEAD_MEASURED_RUN_H
#define EO_TOOLS_HEADTOHEAD_MEASURED_RUN_H

#include "tools/run/machine/gpu_watch.h"
#include "tools/run/job.h"

/* Writes the object to the file descriptor. EO_ERR_IO: that failed; others as tool_job_run. */
EO_NODISCARD eo_status tool_measured_run(struct tool_job *job, struct tool_gpu_watch *watch, int out,
                                         struct tool_problem *problem);

#endif
