/* SPDX-License-Identifier: MIT
 *
 * How long a step of a plan takes: its list on a clock, with the time of each operation from rates, or, where blocks of this
 * shape were tried out, from what they took.
 */
#ifndef EO_TOOLS_PLANNING_PREDICT_H
#define EO_TOOLS_PLANNING_PREDICT_H

#include "tools/planning/rates.h"
#include "tools/planning/settings.h"

/* Of a step after the first, in seconds. */
EO_NODISCARD eo_status tool_predict_step(const eo_plan *plan, const eo_transformer *transformer,
                                         const struct tool_plan_settings *settings, const eo_transformer_config *config,
                                         const struct tool_rates *rates, double *seconds);

/* All that the time of a token in a block, in the head or in an update depends on, but for the machine. */
void tool_tried_shape(const struct tool_plan_settings *settings, const eo_transformer_config *config,
                      char shape[TOOL_TRIED_SHAPE_MAX]);

#endif
