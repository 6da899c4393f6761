/* SPDX-License-Identifier: MIT
 *
 * Learning-rate schedules: warm-up, then one of a table. Steps are counted from 0 here.
 *
 *     cosine     half a cosine down to the minimum at the end (Loshchilov and Hutter, "SGDR")
 *     linear     a straight line down to the minimum at the end
 *     constant   stays
 *     wsd:F      warm-up, stable, decay: stays, then a straight line over the last F of the run's steps (Hu and others,
 *                "MiniCPM")
 *     step:N,G   times G every N steps after the warm-up, as PyTorch's StepLR
 */
#ifndef EO_TOOLS_RUN_LEARNING_RATE_H
#define EO_TOOLS_RUN_LEARNING_RATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tool_schedule_kind {
    TOOL_SCHEDULE_COSINE,
    TOOL_SCHEDULE_LINEAR,
    TOOL_SCHEDULE_CONSTANT,
    TOOL_SCHEDULE_WSD,
    TOOL_SCHEDULE_STEP,
};

struct tool_schedule {
    enum tool_schedule_kind kind;
    double decay_part; /* of wsd: of all steps */
    uint64_t every;    /* of step */
    double factor;     /* of step */
};

struct tool_schedule_run {
    double learning_rate; /* after warm-up */
    double minimum;       /* at the end; negative: the schedule's own */
    uint64_t warmup, steps;
};

/* "wsd:0.2": fills kind and its numbers. False, and in `why` the reason, with the names that there are. */
bool tool_schedule_parse(struct tool_schedule *schedule, const char *text, char *why, size_t why_bytes);

/* As it is parsed, with all its numbers. */
enum { TOOL_SCHEDULE_TEXT_MAX = 64 };
const char *tool_schedule_text(const struct tool_schedule *schedule, char text[TOOL_SCHEDULE_TEXT_MAX]);

/* Whether it ends at a minimum, its own: of cosine a tenth of the learning rate, of linear and wsd 0. */
bool tool_schedule_has_minimum(const struct tool_schedule *schedule);

double tool_schedule_at(const struct tool_schedule *schedule, const struct tool_schedule_run *run, uint64_t step);

#endif
