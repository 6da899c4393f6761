/* SPDX-License-Identifier: MIT
 *
 * Published times of steps, beside the estimate of tools/memplan/systems/step_time.c.
 */
#ifndef EO_TOOLS_MEMPLAN_SYSTEMS_PUBLISHED_STEPS_H
#define EO_TOOLS_MEMPLAN_SYSTEMS_PUBLISHED_STEPS_H

#include <stdio.h>

#include "tools/memplan/systems/step_time.h"

struct tool_published_step {
    const char *source, *model, *device;
    uint32_t number, ranks, seq, batch, tensor, pipeline;
    bool fitting;    /* constants are fitted on it */
    bool told_alone; /* in the table; else in its group alone */
    double seconds, estimated_seconds;
};

/* False: past the last. */
bool tool_published_step_at(uint32_t index, struct tool_published_step *out);

/* Two tables in Markdown: steps, and errors by source and half. */
void tool_published_steps_print(FILE *out);

#endif
