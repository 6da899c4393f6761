/* SPDX-License-Identifier: MIT
 *
 * What the runs of a comparison say together: figures by variant (by default the memory modes), as a table, as JSON, as a
 * page. The first variant is what the others are held against.
 */
#ifndef EO_TOOLS_HEADTOHEAD_COMPARISON_H
#define EO_TOOLS_HEADTOHEAD_COMPARISON_H

#include <evenodd/runtime.h>

#include "tools/headtohead/variants.h"
#include "tools/shared/json_output.h"

/* Medians over the runs, unless said otherwise. Times in seconds, of a step. */
struct tool_mode_figures {
    double step_s, step_min_s, step_p99_s;          /* over all steps of all runs */
    double host_s;                                  /* of a step, what the host does but wait; 0 on a CPU */
    double ratio, ratio_low, ratio_high;            /* to the first, of the runs of one round */
    double tokens_per_s;
    double allocator_calls, allocated_bytes, copied_bytes, cast_bytes, page_faults;
    double offload_bytes, offload_moved_bytes;
    double collectives, sent_bytes; /* of a rank, in a step */
    double live_peak_bytes, reserved_peak_bytes, resident_peak_bytes;
    double wait_s[EO_WAIT_COUNT], collective_s[EO_WAIT_COUNT], exposed_s[EO_WAIT_COUNT];
    double start_delay_s[EO_WAIT_COUNT], late_s[EO_WAIT_COUNT]; /* of a collective: see tools/headtohead/start_delay.h */
    double delayed;                      /* collectives that these are of; 0: none, the plan's list was not run */
    double gpu_kernels, gpu_copies, gpu_fills, gpu_kernel_s, gpu_copy_s; /* as CUPTI tells; 0: it was not asked */
    double slowdown;                     /* passes of blocks while a collective runs, against alone; 0: not known */
    double timeline_steps;               /* whose waits, collectives and passes are known; 0: of none, steps were graphs */
    double simulated_s, simulated_medians_s, simulated_measured_s; /* 0: none */
    char weights_hash[32]; /* of the first run */
};

struct tool_comparison {
    uint32_t run_count;
    int mode_count;
    struct tool_variant variants[TOOL_VARIANTS_MAX];
    json_t *runs[TOOL_VARIANTS_MAX]; /* arrays of what tool_measured_run tells */
    struct tool_mode_figures figures[TOOL_VARIANTS_MAX];
    enum tool_sums {
        TOOL_SUMS_EQUAL,    /* all variants end with the same weights */
        TOOL_SUMS_STRATEGY, /* the static runs have a strategy that sums in an order of its own */
        TOOL_SUMS_CHOSEN,   /* variants of --compare may sum in orders of their own */
    } sums;
    bool sums_in_time; /* a GPU without --repeatable: sums and choices of products depend on time */
    bool equal;        /* weights that should be the same at the end are */
    char settings[1024]; /* of the command line, for people */
    char machine[256];
};

/* From the runs: fills in the rest. */
void tool_comparison_sum_up(struct tool_comparison *comparison);
const char *tool_comparison_verdict(const struct tool_comparison *comparison); /* of the weights */
void tool_comparison_print(const struct tool_comparison *comparison, FILE *out);
void tool_comparison_json(struct eo_json *json, const void *comparison); /* a struct tool_comparison */

/* comparison_page.c: a page that stands alone. */
void tool_comparison_write_page(const struct tool_comparison *comparison, FILE *out);

#endif
