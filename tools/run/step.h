/* SPDX-License-Identifier: MIT
 *
 * One step of a rank: in the ordinary way, or, where steps run as graphs, recorded once and then replayed.
 *
 *     step 1      ordinary (it runs the first-step list)
 *     step 2      recorded, and run as a graph
 *     step 3 ..   the graph again; after a validation, and with late updates after a checkpoint, one ordinary step comes between
 */
#ifndef EO_TOOLS_RUN_STEP_H
#define EO_TOOLS_RUN_STEP_H

#include "tools/run/job.h"

/* wants_report: waits until its report is there. Where reports are late that costs a GPU the time it then stands still. */
EO_NODISCARD eo_status tool_job_step_run(struct tool_job_rank *rank, uint64_t step, bool wants_report);

/* The reports of steps up to `last` (from 1), one a call, in their order; *has false: there are none left. Of steps that have
 * just been issued it waits for the end. */
EO_NODISCARD eo_status tool_job_step_next(struct tool_job_rank *rank, uint64_t last, struct tool_job_step *out, bool *stop,
                                          bool *has);

/* The runtime did something else than a step: the next one is no repetition. */
void tool_job_step_interrupted(struct tool_job_rank *rank);

/* With --ema: the average takes the weights' place, or they are back. Collective, between steps. */
eo_status tool_job_swap_average(struct tool_job_rank *rank);

/* Whether what was read of the data is what is in it: after each batch. EO_ERR_IO, with the reason in the rank's log. */
EO_NODISCARD eo_status tool_job_check_data(struct tool_job_rank *rank);

#endif
