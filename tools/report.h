/* SPDX-License-Identifier: MIT
 *
 * What is printed before and after a run: the plan's figures, the loss as a curve, memory by category, time by cause.
 */
#ifndef EO_TOOLS_REPORT_H
#define EO_TOOLS_REPORT_H

#include "tools/job.h"

void eo_report_start(const struct eo_job *job);

/* Losses of steps 1 ... count. */
void eo_report_loss(const double *losses, uint64_t count);
void eo_report_memory(const struct eo_job *job, uint64_t resident_peak_bytes);

/* All that is measured beside the plan. */
uint64_t eo_gpu_outside_bytes(const struct eo_gpu_memory *gpu);

/* Means over the ranks, of the steps after the first; the medians are rank 0's. host: 0 where there is no GPU. */
void eo_report_time(const struct eo_job *job, double step_s_median, double host_s_median);

/* Bytes as text, others as numbers; the first `prompt_count` were given. */
void eo_report_sample(const int32_t *tokens, uint32_t prompt_count, uint32_t count, bool is_text);

/* The median of values, which it sorts; 0 of none. */
double eo_median(double *values, uint64_t count);

#endif
