/* SPDX-License-Identifier: MIT
 *
 * A rank's part of a model whose trainer has tensor, pipeline and context groups of its own: a smaller model, sharded over the
 * ranks that hold the same part. The runtime of such a rank plans this model, and memplan plans it with the same code.
 */
#ifndef EO_TOOLS_MEMPLAN_PLAN_SLICE_H
#define EO_TOOLS_MEMPLAN_PLAN_SLICE_H

#include "tools/interchange/model_config.h"

struct tool_slice {
    uint32_t tensor, pipeline, context; /* ranks of each group; 0: 1 */
    uint32_t stage;                     /* TOOL_SLICE_FULLEST: that which takes most */
    bool sequence_parallel;             /* tensor ranks share the residual stream, too */
    uint32_t in_flight;                 /* micro-batches whose activations a stage holds: 1F1B */
};
#define TOOL_SLICE_FULLEST UINT32_MAX

bool tool_slice_is_whole(const struct tool_slice *slice);
uint32_t tool_slice_cuts(const struct tool_slice *slice); /* parts of the weights: tensor x pipeline */

/* Heads, widths and words of a rank. The blocks stay, with their numbers. */
void tool_slice_config(struct tool_model_config *out, const struct tool_model_config *config, const struct tool_slice *slice);

/* " tp4 pp2"; of the whole model "". */
void tool_slice_text(const struct tool_slice *slice, char *text, size_t bytes);

bool tool_slice_has_block(const struct tool_slice *slice, const struct tool_model_config *config, uint32_t block);

#endif
