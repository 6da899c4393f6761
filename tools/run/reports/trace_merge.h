/* SPDX-License-Identifier: MIT
 *
 * One Chrome / Perfetto trace from those of the ranks.
 */
#ifndef EO_TOOLS_RUN_REPORTS_TRACE_MERGE_H
#define EO_TOOLS_RUN_REPORTS_TRACE_MERGE_H

#include <stddef.h>

#include <evenodd/runtime.h>

#include "tools/shared/problem.h"

struct tool_trace_text {
    char *text; /* NULL: none */
    size_t bytes;
};

/* This rank's trace as text, to be given to free(). EO_ERR_NO_MEMORY. */
EO_NODISCARD eo_status tool_trace_take(const eo_runtime *runtime, struct tool_trace_text *out);

/* All ranks' events in one document. *out is for free(). EO_ERR_INVALID: a rank's text is no trace. */
EO_NODISCARD eo_status tool_trace_merge(const struct tool_trace_text *texts, uint32_t count, char **out,
                                        struct tool_problem *problem);

#endif
