/* SPDX-License-Identifier: MIT
 *
 * The answer: three lines of at most 100 columns, then a table of what is there at the peak, which adds up to it.
 */
#ifndef EO_TOOLS_MEMPLAN_REPORT_ANSWER_H
#define EO_TOOLS_MEMPLAN_REPORT_ANSWER_H

#include "tools/memplan/plan/parts.h"
#include "tools/memplan/report/report.h"

/* Verdict, peak, and what to try; the table. */
void tool_answer_print(FILE *out, const struct tool_memplan_view *view);

/* What would fit where this does not: settings close by, more GPUs, a larger device. "--recompute all (21.9 GiB)", ... A
 * global batch is kept (0: none). */
void tool_answer_remedies(const struct tool_model_config *config, const struct tool_memplan_settings *settings,
                          uint32_t global_batch, char *text, size_t bytes);

#endif
