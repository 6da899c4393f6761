/* SPDX-License-Identifier: MIT
 *
 * Published times of steps, beside the estimate of tools/memplan/time/step_time.c.
 */
#ifndef EO_TOOLS_MEMPLAN_PUBLISHED_STEPS_H
#define EO_TOOLS_MEMPLAN_PUBLISHED_STEPS_H

#include <stdio.h>

#include "tools/memplan/time/step_time.h"

struct tool_published_step {
    const char *source, *model, *device;
    uint32_t number, ranks, seq, batch, tensor, pipeline, micro_batches, recomputed_blocks;
    bool selective, small_memory; /* A100-40GB */
    bool fitting;    /* constants are fitted on it */
    bool told_alone; /* in the table; else in its group alone */
    double seconds, estimated_seconds;
};

/* False: past the last. */
bool tool_published_step_at(uint32_t index, struct tool_published_step *out);

/* Two tables in Markdown: steps, and errors by source and half. */
void tool_published_steps_print(FILE *out);

/* tools/memplan/published/choices.c: steps of one source, model, device, number of ranks and sequence that differ in
 * layout, recompute or batch; and which of them the estimate would recommend. */
struct tool_published_choice {
    struct tool_published_step recommended;
    uint32_t count;
    double recommended_speed, best; /* published tokens a second and GPU: its own, the best one's */
};
bool tool_published_choice_at(uint32_t index, struct tool_published_choice *out);
void tool_published_choices_print(FILE *out);

#endif
