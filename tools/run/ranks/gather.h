/* SPDX-License-Identifier: MIT
 *
 * What rank 0 tells of all ranks where they are processes: their figures and their traces come to it by the rendezvous, when
 * the run has ended. Without a rendezvous these do nothing. All ranks make the same calls.
 */
#ifndef EO_TOOLS_RUN_RANKS_GATHER_H
#define EO_TOOLS_RUN_RANKS_GATHER_H

#include "tools/run/ranks/world.h"
#include "tools/run/reports/trace_merge.h"

/* Of more ranks nobody looks at one picture. */
enum { TOOL_TRACE_RANKS_MAX = 64 };

/* Fills job->ranks of rank 0, and job->told_count. `traces`: this rank was asked for a trace; what rank 0 was asked for is
 * what all do, and is returned. */
bool tool_job_gather_figures(struct tool_job *job, bool traces);

/*
 * Writes the ranks' traces to `path`, which rank 0 was given: those of this process (`count` texts; 0: it has none), and
 * where ranks are processes and no more than TOOL_TRACE_RANKS_MAX, all others', piece by piece as they come: no rank holds
 * another's. Times of other machines are moved to rank 0's clock, by when all left one exchange: right to about a message's
 * way. EO_ERR_IO: rank 0 cannot write. EO_ERR_INVALID: this rank's is no trace. Other ranks go on then.
 */
EO_NODISCARD eo_status tool_job_write_trace(struct tool_job *job, const struct tool_trace_text *texts, uint32_t count,
                                            const char *path, struct tool_problem *problem);

#endif
