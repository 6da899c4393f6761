/* SPDX-License-Identifier: MIT
 *
 * A rank's part of a model whose trainer has tensor, pipeline and context groups of its own: a smaller model, sharded over the
 * ranks that hold the same part. The runtime of such a rank plans this model, and memplan plans it with the same code.
 */
#ifndef EO_TOOLS_MEMPLAN_PLAN_SLICE_H
#define EO_TOOLS_MEMPLAN_PLAN_SLICE_H

#include "tools/interchange/config/model_config.h"

struct tool_slice {
    uint32_t tensor, pipeline, context; /* ranks of each group; 0: 1 */
    uint32_t stage;                     /* TOOL_SLICE_FULLEST: that which takes most */
    bool sequence_parallel;             /* tensor ranks share the residual stream, too */
    uint32_t in_flight;                 /* micro-batches whose activations a stage holds at most, of all of its chunks */
    uint32_t virtual_stages;            /* chunks of blocks of a rank, interleaved; 0: 1 */
    uint32_t expert, expert_tensor;     /* ranks that share the experts, and each expert; 0: 1, `tensor` */
    uint32_t micro_batches;             /* of a step, for the schedule of stages */
};
#define TOOL_SLICE_FULLEST UINT32_MAX

bool tool_slice_is_whole(const struct tool_slice *slice);
uint64_t tool_slice_cuts(const struct tool_slice *slice); /* parts of the weights: tensor x pipeline */
uint32_t tool_slice_chunks(const struct tool_slice *slice);
/* Different experts' layers that the ranks hold who share all other weights. 0: no whole number. */
uint32_t tool_slice_expert_parts(const struct tool_slice *slice);

/* Heads, widths and words of a rank. The blocks stay, with their numbers. */
void tool_slice_config(struct tool_model_config *out, const struct tool_model_config *config, const struct tool_slice *slice);

/* " tp4 pp2"; of the whole model "". */
void tool_slice_text(const struct tool_slice *slice, char *text, size_t bytes);

uint32_t tool_slice_chunk_blocks(const struct tool_slice *slice, const struct tool_model_config *config);

/* Micro-batches of one chunk whose activations the stage holds when it holds most of all chunks: 1F1B, interleaved where there
 * are several. Chunks are alike, and the rows that one leaves are another's. */
uint32_t tool_slice_in_flight(const struct tool_slice *slice, uint32_t chunk);

bool tool_slice_has_block(const struct tool_slice *slice, const struct tool_model_config *config, uint32_t block);

#endif
