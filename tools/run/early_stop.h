/* SPDX-License-Identifier: MIT
 *
 * Early stopping: a run ends when so many losses on held-back data in a row were no lower than the lowest before. All ranks
 * know the same losses, so all end together. Checkpoints keep what was seen.
 */
#ifndef EO_TOOLS_RUN_EARLY_STOP_H
#define EO_TOOLS_RUN_EARLY_STOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tool_early_stop {
    uint64_t patience;     /* 0: never */
    uint64_t seen_step;    /* of the last loss; 0: none yet */
    uint64_t lowest_step;  /* 0: none yet */
    double lowest_loss;
    uint64_t since_lowest; /* losses after it */
    uint64_t data;         /* a hash of what the losses are of; 0: this run has none */
};

/* A loss that is not finite is not lower. */
void tool_early_stop_see(struct tool_early_stop *early, uint64_t step, double loss);
bool tool_early_stop_is_due(const struct tool_early_stop *early);

/* Whether a run that goes on from this step, with a validation every so many steps, has to make the one of this step first: a
 * run that is told to stop saves in its place. */
bool tool_early_stop_lacks(const struct tool_early_stop *early, uint64_t every, uint64_t step);

/* Into the object that `settings` holds, before its last brace; `bytes` with it. Nothing where there is no room. */
enum { TOOL_EARLY_STOP_BYTES_MAX = 256 };
uint32_t tool_early_stop_write(const struct tool_early_stop *early, char *settings, uint32_t bytes, uint32_t bytes_max);
/* What was seen; without it, as at the start. False: it was seen of other data than early->data, so as at the start
 * too, but for seen_step. */
bool tool_early_stop_read(struct tool_early_stop *early, const json_t *settings);

#endif
