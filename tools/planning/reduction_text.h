/* SPDX-License-Identifier: MIT
 *
 * In which type gradients are reduced, in words: what --reduce asks for, and where the strategy does otherwise.
 */
#ifndef EO_TOOLS_PLANNING_REDUCTION_TEXT_H
#define EO_TOOLS_PLANNING_REDUCTION_TEXT_H

#include <evenodd/plan.h>

/* Of the plan's own operations: "bf16", "fp32", or where it is the one and where the other. */
void tool_reduction_text(const eo_plan *plan, char *text, size_t bytes);

#endif
