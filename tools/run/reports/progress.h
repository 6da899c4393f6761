/* SPDX-License-Identifier: MIT
 *
 * How a run goes, while it goes: one line that is written over on a terminal, else plain lines now and then.
 */
#ifndef EO_TOOLS_RUN_REPORTS_PROGRESS_H
#define EO_TOOLS_RUN_REPORTS_PROGRESS_H

#include "tools/run/job.h"

struct tool_progress {
    const struct tool_job *job;
    bool terminal;
    uint64_t shown_ns;
    uint64_t recent_ns[16]; /* of the last steps: the speed shown is theirs */
    uint64_t count;
};

void tool_progress_begin(struct tool_progress *progress, const struct tool_job *job);
void tool_progress_step(struct tool_progress *progress, const struct tool_job_step *step);
void tool_progress_validation(struct tool_progress *progress, uint64_t step, double loss);
void tool_progress_saved(struct tool_progress *progress, const struct tool_job_saved *saved);
void tool_progress_end(struct tool_progress *progress);

/* Of the machine's measured peak, what a step of this length uses; 0: not measured. */
double tool_peak_share(const struct tool_job *job, double step_s);
uint64_t tool_step_tokens(const struct tool_job *job);
/* Those of them that are no padding of packed documents, on average: what a speed counts. */
uint64_t tool_step_inputs(const struct tool_job *job);

#endif
