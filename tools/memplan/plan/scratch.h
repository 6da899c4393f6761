/* SPDX-License-Identifier: MIT
 *
 * What the kernels of a described model take as scratch.
 */
#ifndef EO_TOOLS_MEMPLAN_PLAN_SCRATCH_H
#define EO_TOOLS_MEMPLAN_PLAN_SCRATCH_H

#include "tools/planning/settings.h"

struct tool_scratch {
    struct tool_plan_settings settings; /* it is that of ... */
    eo_transformer_config shape;        /* ... and one block of this */
    uint64_t forward, attention, norm, head, embedding, product;
    uint64_t mlp; /* GPT-2's, of the whole half */
    bool remakes; /* the kernel of an activation's gradient gives the activation again: it is not kept */
    uint64_t chunk, logits, word_padding; /* of the head: tokens, bytes, elements */
};

/* What was found last: plans of a search, and stages of a plan, are alike in it. {0}: nothing. */
enum { TOOL_SCRATCH_KEPT = 32 };
struct tool_scratch_memory {
    struct tool_scratch found[TOOL_SCRATCH_KEPT];
    uint32_t count; /* of all that were found */
};

#endif
