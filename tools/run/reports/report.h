/* SPDX-License-Identifier: MIT
 *
 * What is printed before and after a run: the plan's figures, the loss as a curve, memory by category, time by cause.
 */
#ifndef EO_TOOLS_RUN_REPORTS_REPORT_H
#define EO_TOOLS_RUN_REPORTS_REPORT_H

#include "tools/run/job.h"
#include "tools/run/reports/course.h"

void tool_report_start(const struct tool_job *job);

/* Of the steps behind the first ones. */
void tool_report_loss(const struct tool_course *course, uint64_t first_step);
void tool_report_memory(const struct tool_job *job, uint64_t resident_peak_bytes);

/* All that is measured beside the plan. */
uint64_t tool_gpu_outside_bytes(const struct tool_gpu_memory *gpu);

/* Means over the ranks, of the steps after the first; the medians are rank 0's. host: 0 where there is no GPU. */
void tool_report_time(const struct tool_job *job, double step_s_median, double host_s_median);

/* Bytes as text, others as numbers; the first `prompt_count` were given. */
/* As text where tokens are bytes, or the tokenizer knows theirs (NULL, or one without tokens: it does not); else as numbers. */
void tool_report_sample(const int32_t *tokens, uint32_t prompt_count, uint32_t count, bool is_text,
                        const struct tool_tokenizer *tokenizer);

/* The median of values, which it sorts; 0 of none. */
double tool_median(double *values, uint64_t count);

#endif
