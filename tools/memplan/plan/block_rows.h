/* SPDX-License-Identifier: MIT
 *
 * What a block of a described model keeps for its backward pass: inputs of products and norms, and statistics, as the kernels
 * of the layers keep them. Parts without a kernel here follow the same rule, so they are estimates.
 */
#ifndef EO_TOOLS_MEMPLAN_PLAN_BLOCK_ROWS_H
#define EO_TOOLS_MEMPLAN_PLAN_BLOCK_ROWS_H

#include "tools/interchange/config/model_config.h"

struct tool_block_row {
    const char *name;  /* behind "block.7.attention." or "block.7.mlp." */
    const char *words; /* its width, for people */
    uint64_t width;    /* elements of a token */
    uint32_t bytes;    /* of an element; 0: of an activation */
    bool in_mlp, cheap /* made again without a matrix product */, cut /* by tensor parallelism */;
    bool gradient_remakes; /* the kernel of its gradient gives it again, where the kernels say so */
    bool norm;             /* in front of a half: the kernel of its gradient always does */
    bool routed /* of the experts themselves */, routes /* what their rows are made of, from a token */;
};

enum { TOOL_BLOCK_ROWS_MAX = 32, TOOL_LINEAR_CHUNK = 64 /* tokens of a chunk of the delta rule */ };

/* Their number. `remakes`: norms of q and k are made again. */
uint32_t tool_block_rows(const struct tool_model_config *config, uint32_t layer, bool remakes,
                         struct tool_block_row rows[TOOL_BLOCK_ROWS_MAX]);

#endif
