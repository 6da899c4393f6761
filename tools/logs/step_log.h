/* SPDX-License-Identifier: MIT
 *
 * The log of a run in lines: JSON objects (--log), or a table (--csv, csv.h). A line is written at once, so that what was
 * trained is there when the run is not. When it cannot be written, that is said once on standard error, and training goes on
 * without a log; the program's exit status says it again.
 */
#ifndef EO_TOOLS_RUN_STEP_LOG_H
#define EO_TOOLS_RUN_STEP_LOG_H

#include "tools/shared/json_output.h"
#include "tools/shared/problem.h"

struct tool_step_log {
    FILE *file; /* NULL: not asked for, or given up */
    bool is_lost; /* in part at least: it was told */
    const char *option, *path;
    int64_t whole_bytes; /* of the file, up to the end of its last line */
};

/* `option`: that named the path, --log or --csv. A path of NULL is no log. EO_ERR_IO: cannot be created; EO_ERR_INVALID: what is there is no log. Nothing was written. */
EO_NODISCARD eo_status tool_step_log_open(struct tool_step_log *log, const char *option, const char *path,
                                          struct tool_problem *problem);

/* Lines go to the file's end from now on, wherever that is: others may empty it when they have rotated it. */
void tool_step_log_append(struct tool_step_log *log);

/* What a run that goes on keeps of a log. */
struct tool_step_log_kept {
    uint64_t step;       /* that of its checkpoint: what is said of later ones, and the summary, are left out */
    uint64_t validation; /* likewise of losses on held-back data: the run may make that of its first step again */
};

/* Goes on with a log. The old file stays until the new one has all that is kept. */
EO_NODISCARD eo_status tool_step_log_resume(struct tool_step_log *log, const char *option, const char *path,
                                            const struct tool_step_log_kept *kept, struct tool_problem *problem);

/* The writer of a line's object, and the line's end. Without a file neither does anything. */
struct eo_json tool_step_log_line(struct tool_step_log *log);
void tool_step_log_end(struct tool_step_log *log);
void tool_step_log_close(struct tool_step_log *log);

#endif
