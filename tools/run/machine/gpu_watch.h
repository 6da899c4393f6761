/* SPDX-License-Identifier: MIT
 *
 * What GPUs really ran (--cupti on): the sums of it, which way collectives took, and a trace beside those of the ranks.
 */
#ifndef EO_TOOLS_RUN_MACHINE_GPU_WATCH_H
#define EO_TOOLS_RUN_MACHINE_GPU_WATCH_H

#include <evenodd/gpu_profile.h>

#include "tools/run/options/options.h"
#include "tools/shared/problem.h"
#include "tools/run/reports/trace_merge.h"

struct tool_gpu_watch {
    eo_gpu_profile *profile; /* NULL: nothing is watched */
    uint64_t begin_ns;       /* what began before does not count */
    uint32_t first_gpu;      /* [0] in traces, GPUs of the hosts before this one */
};

/* Sums of the activities that count. */
struct tool_gpu_sums {
    uint64_t count[EO_GPU_ACTIVITY_KIND_COUNT];
    double seconds[EO_GPU_ACTIVITY_KIND_COUNT];
    uint64_t lost;
};

/* Nothing, where it is not asked for. EO_ERR_UNSUPPORTED: it cannot be. */
EO_NODISCARD eo_status tool_gpu_watch_start(struct tool_gpu_watch *watch, const struct tool_options *options,
                                            struct tool_problem *problem);
/* What begins from now on counts. */
void tool_gpu_watch_from_now(struct tool_gpu_watch *watch);
/* When all work has ended. */
void tool_gpu_watch_stop(struct tool_gpu_watch *watch);
void tool_gpu_watch_fini(struct tool_gpu_watch *watch);

struct tool_gpu_sums tool_gpu_watch_sums(const struct tool_gpu_watch *watch);
void tool_gpu_watch_print(const struct tool_gpu_watch *watch, FILE *out);
/* The activities as a document of their own, for tool_trace_merge; text is for free(). EO_ERR_NO_MEMORY. */
EO_NODISCARD eo_status tool_gpu_watch_trace(const struct tool_gpu_watch *watch, struct tool_trace_text *out);

/* A kernel's name without what the linker put around it; into `out`, which is returned. */
const char *tool_kernel_name(const char *name, char *out, size_t bytes);

#endif
