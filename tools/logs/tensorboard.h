/* SPDX-License-Identifier: MIT
 *
 * The steps of a run as event files of TensorBoard (--tensorboard). A file holds records (TFRecord): length, checksum of it,
 * data, checksum of them; the data are Event messages of TensorFlow's event.proto in protocol-buffer encoding. A run that goes
 * on from a checkpoint writes a file of its own, whose first event tells TensorBoard to leave out what the run before said of
 * later steps (SessionLog START).
 */
#ifndef EO_TOOLS_LOGS_TENSORBOARD_H
#define EO_TOOLS_LOGS_TENSORBOARD_H

#include <stdio.h>

#include "tools/shared/problem.h"

struct tool_tensorboard {
    FILE *file; /* NULL: not asked for, or given up */
    bool is_lost; /* in part at least: it was told */
    const char *folder;
};

struct tool_tensorboard_scalar {
    const char *tag; /* "train/loss" */
    double value;    /* written as a float */
};

/* Makes the folder, if it is not there, and in it a new file, for steps after first_step. NULL: none. EO_ERR_IO,
 * EO_ERR_INVALID. */
EO_NODISCARD eo_status tool_tensorboard_open(struct tool_tensorboard *board, const char *folder, uint64_t first_step,
                                             struct tool_problem *problem);

/* One event with all of them, in the file at once. If it cannot be written, that is said once, and training goes on without. */
void tool_tensorboard_write(struct tool_tensorboard *board, uint64_t step, const struct tool_tensorboard_scalar *scalars,
                            uint32_t count);
void tool_tensorboard_close(struct tool_tensorboard *board);

#endif
