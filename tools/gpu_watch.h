/* SPDX-License-Identifier: MIT
 *
 * What GPUs really ran (--cupti on): the sums of it, which way collectives took, and a trace beside those of the ranks.
 */
#ifndef EO_TOOLS_GPU_WATCH_H
#define EO_TOOLS_GPU_WATCH_H

#include <evenodd/gpu_profile.h>

#include "tools/options.h"
#include "tools/problem.h"
#include "tools/trace_merge.h"

struct eo_gpu_watch {
    eo_gpu_profile *profile; /* NULL: nothing is watched */
    uint64_t begin_ns;       /* what began before does not count */
    uint32_t first_gpu;      /* [0] in traces, GPUs of the hosts before this one */
};

/* Sums of the activities that count. */
struct eo_gpu_sums {
    uint64_t count[EO_GPU_ACTIVITY_KIND_COUNT];
    double seconds[EO_GPU_ACTIVITY_KIND_COUNT];
    uint64_t lost;
};

/* Nothing, where it is not asked for. EO_ERR_UNSUPPORTED: it cannot be. */
EO_NODISCARD eo_status eo_gpu_watch_start(struct eo_gpu_watch *watch, const struct eo_options *options,
                                          struct eo_problem *problem);
/* What begins from now on counts. */
void eo_gpu_watch_from_now(struct eo_gpu_watch *watch);
/* When all work has ended. */
void eo_gpu_watch_stop(struct eo_gpu_watch *watch);
void eo_gpu_watch_fini(struct eo_gpu_watch *watch);

struct eo_gpu_sums eo_gpu_watch_sums(const struct eo_gpu_watch *watch);
void eo_gpu_watch_print(const struct eo_gpu_watch *watch, FILE *out);
/* The activities as a document of their own, for eo_trace_merge; text is for free(). EO_ERR_NO_MEMORY. */
EO_NODISCARD eo_status eo_gpu_watch_trace(const struct eo_gpu_watch *watch, struct eo_trace_text *out);

/* A kernel's name without what the linker put around it; into `out`, which is returned. */
const char *eo_kernel_name(const char *name, char *out, size_t bytes);

#endif
