/* SPDX-License-Identifier: MIT
 *
 * An estimate of what was asked for, before it is printed.
 */
#ifndef EO_TOOLS_MEMPLAN_ESTIMATE_ANSWER_H
#define EO_TOOLS_MEMPLAN_ESTIMATE_ANSWER_H

#include "tools/memplan/estimate/estimate.h"

struct tool_estimate_answer {
    const struct tool_estimate_request *request;
    struct tool_shape shape;
    struct tool_system_settings settings;
    struct tool_system_estimate estimate;
    uint64_t outside_bytes, total_bytes;
    bool fits;
};

uint32_t tool_estimate_seq(const struct tool_estimate_request *request);

/* What `system` would be run with. EO_ERR_INVALID: it has no such setting. */
EO_NODISCARD eo_status tool_estimate_settings(struct tool_system_settings *out, const struct tool_estimate_request *request,
                                              enum tool_system system, const struct tool_shape *shape,
                                              struct tool_problem *problem);
EO_NODISCARD eo_status tool_estimate_answer_of(struct tool_estimate_answer *out, const struct tool_estimate_request *request,
                                               enum tool_system system, struct tool_problem *problem);

#endif
