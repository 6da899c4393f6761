/* SPDX-License-Identifier: MIT
 *
 * One step of a rank: in the ordinary way, or, where steps run as graphs, recorded once and then replayed.
 *
 *     step 1      ordinary (it runs the first-step list)
 *     step 2      recorded, and run as a graph
 *     step 3 ..   the graph again; after a validation one ordinary step comes between
 */
#ifndef EO_TOOLS_JOB_STEP_H
#define EO_TOOLS_JOB_STEP_H

#include "tools/job.h"

EO_NODISCARD eo_status eo_job_step_run(struct eo_job_rank *rank, uint64_t step, struct eo_job_step *out, bool *stop);

/* The runtime did something else than a step: the next one is no repetition. */
void eo_job_step_interrupted(struct eo_job_rank *rank);

#endif
