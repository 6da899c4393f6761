/* SPDX-License-Identifier: MIT
 *
 * The log of a run, a JSON object a line. A line is written at once, so that what was trained is there when the run
 * is not. When it cannot be written, that is said once on standard error, and training goes on without a log.
 */
#ifndef EO_TOOLS_STEP_LOG_H
#define EO_TOOLS_STEP_LOG_H

#include <jansson.h>
#include <stdio.h>

#include "tools/problem.h"

struct eo_step_log {
    FILE *file; /* NULL: not asked for, or given up */
    const char *path;
};

/* A path of NULL is no log. EO_ERR_IO: cannot be created; EO_ERR_INVALID: what is there is no log. Nothing was written. */
EO_NODISCARD eo_status eo_step_log_open(struct eo_step_log *log, const char *path, struct eo_problem *problem);

/* Goes on with a log whose run was saved after this step: what it says of later steps, and its summary, are left out. The
 * old file stays until the new one has all that is kept. */
EO_NODISCARD eo_status eo_step_log_resume(struct eo_step_log *log, const char *path, uint64_t step,
                                          struct eo_problem *problem);

/* Takes the object over. */
void eo_step_log_write(struct eo_step_log *log, json_t *object);
void eo_step_log_close(struct eo_step_log *log);

/* Whether a file of this name can be created, or replaces one of its kind (overwrite.h), without doing it. NULL: no file. */
EO_NODISCARD eo_status eo_check_writable(const char *option, const char *path, struct eo_problem *problem);

/* Writes text to a new file, or replaces one of its kind. EO_ERR_IO, EO_ERR_INVALID, with the reason. */
EO_NODISCARD eo_status eo_write_file(const char *option, const char *path, const char *text, size_t bytes,
                                     struct eo_problem *problem);

/* A number for JSON, which has no infinity and no NaN: null then. */
json_t *eo_json_real(double value);

#endif
