/* SPDX-License-Identifier: MIT
 *
 * How a run goes, while it goes: one line that is written over on a terminal, else plain lines now and then.
 */
#ifndef EO_TOOLS_PROGRESS_H
#define EO_TOOLS_PROGRESS_H

#include "tools/job.h"

struct eo_progress {
    const struct eo_job *job;
    bool terminal;
    uint64_t begin_ns, shown_ns;
    uint64_t recent_ns[16]; /* of the last steps: the speed shown is theirs */
    uint64_t count;
};

void eo_progress_begin(struct eo_progress *progress, const struct eo_job *job);
void eo_progress_step(struct eo_progress *progress, const struct eo_job_step *step);
void eo_progress_validation(struct eo_progress *progress, uint64_t step, double loss);
void eo_progress_saved(struct eo_progress *progress, const struct eo_job_saved *saved);
void eo_progress_end(struct eo_progress *progress);

/* Of the machine's measured peak, what a step of this length uses; 0: not measured. */
double eo_peak_share(const struct eo_job *job, double step_s);
uint64_t eo_step_tokens(const struct eo_job *job);

#endif
