/* SPDX-License-Identifier: MIT
 *
 * How memplan answers what it was asked: from options and a config to a report, without files. The page does the same
 * (tools/memplan/web/).
 */
#ifndef EO_TOOLS_MEMPLAN_REPLY_H
#define EO_TOOLS_MEMPLAN_REPLY_H

#include "tools/memplan/options/options.h"
#include "tools/memplan/report/report.h"

struct tool_reply {
    struct tool_memplan_asked asked;
    struct tool_time_answer time;
    struct tool_model_config config;
    struct tool_safetensors_check safetensors;
    struct tool_memplan plan;
    struct tool_memplan fewer; /* with fewer micro-batches, where the step is too long to be shown */
    struct tool_lifetimes lifetimes;
    struct tool_fit found;
    char remedies[512];
};

/* Both with the config loaded; `asked` is what tool_memplan_parse has filled. To be released, whatever comes back. */

/* Another system, or all side by side. */
bool tool_reply_is_estimate(const struct tool_reply *m);
EO_NODISCARD eo_status tool_reply_estimate(FILE *out, struct tool_reply *m, bool *fits, struct tool_problem *problem);

/* evenodd's own plan, its search and its time. */
EO_NODISCARD eo_status tool_reply_plan(struct tool_reply *m, struct tool_problem *problem);
struct tool_memplan_view tool_reply_view(const struct tool_reply *m);
void tool_reply_print(FILE *out, struct tool_reply *m);

void tool_reply_fini(struct tool_reply *m);

#endif
