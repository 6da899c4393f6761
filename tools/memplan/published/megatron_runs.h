/* SPDX-License-Identifier: MIT
 *
 * Runs of Megatron-LM's own tests: what they allocated, beside the estimate of tools/memplan/systems/systems.c.
 */
#ifndef EO_TOOLS_MEMPLAN_PUBLISHED_MEGATRON_RUNS_H
#define EO_TOOLS_MEMPLAN_PUBLISHED_MEGATRON_RUNS_H

#include "tools/memplan/systems/systems.h"

struct tool_megatron_run {
    const char *name;
    bool fitting; /* of the half that constants are fitted on; the other half says how good they are */
    enum tool_system system;
    bool held;    /* false: it does what the estimate does not know */
    uint64_t allocated_bytes, peak_bytes;                     /* between two steps; the most */
    uint64_t estimated_allocated_bytes, estimated_peak_bytes;
};

/* False: past the last. */
bool tool_megatron_run_at(uint32_t index, struct tool_megatron_run *out);

#endif
