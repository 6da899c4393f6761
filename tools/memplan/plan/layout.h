/* SPDX-License-Identifier: MIT
 *
 * A model cut over groups of ranks: tensor, pipeline, context and expert parallelism beside data parallelism. What a rank of a
 * stage holds of it, in elements. These are the cuts of other systems; evenodd's own plans come from the planner.
 */
#ifndef EO_TOOLS_MEMPLAN_PLAN_LAYOUT_H
#define EO_TOOLS_MEMPLAN_PLAN_LAYOUT_H

#include "tools/interchange/config/model_config.h"

/* Of a model, what decides bytes and products. */
struct tool_shape {
    uint64_t layers, width, heads, kv_heads, head_size, mlp_width, vocabulary;
    uint64_t positions;    /* learned ones; 0: rotary */
    uint64_t norm_tensors; /* 1: weights (RMSNorm); 2: and biases */
    bool tied_head, gated, qkv_bias, out_bias, mlp_bias, qk_norm;
    bool drops_residual, drops_attention;
    uint64_t experts, experts_per_token, expert_width;
    /* Its blocks one by one; NULL: they are as the numbers above say, and alike. */
    const struct tool_model_config *config;
};

struct tool_layout {
    uint32_t ranks, tensor, pipeline, context, expert; /* each at least 1 */
    uint32_t virtual_stages;                           /* of a rank */
    bool sequence_parallel;
    uint32_t batch, seq, micro_batches;
    uint32_t vocabulary_multiple; /* the vocabulary is padded to it, times `tensor`; 0: not padded */
    uint32_t expert_tensor;       /* ranks that share each expert; 0: `tensor` */
};

struct tool_shape tool_shape_of(const struct tool_model_config *config);

/* Averages of a block where the numbers of a shape cannot say them. False: they can. */
struct tool_block_average {
    double multiplied, stored, experts; /* elements of matrices: that a token meets, all, and of these the experts' */
    double core_flops;         /* of attention, forward */
    /* Kept of a token, in bf16: all of it, and its parts. Tensor parallelism cuts the last three. */
    double kept_bytes, whole_bytes, norm_bytes /* made by norms */, attention_bytes, mlp_bytes, product_bytes;
    double whole_sides, cut_sides, expert_sides; /* inputs and outputs of matrices, for adapters */
};
bool tool_shape_average(const struct tool_shape *shape, uint32_t seq, struct tool_block_average *out);

/* EO_ERR_INVALID: it cannot be cut so. */
EO_NODISCARD eo_status tool_layout_check(const struct tool_layout *layout, const struct tool_shape *shape,
                                         struct tool_problem *problem);

/* Ranks that share an expert, and those of a stage that hold the same ones. */
uint32_t tool_layout_expert_tensor(const struct tool_layout *layout);
uint32_t tool_layout_expert_same(const struct tool_layout *layout);

uint32_t tool_layout_data_parallel(const struct tool_layout *layout); /* ranks / (tensor x pipeline x context) */

/* Elements on a rank. Experts are apart: fewer ranks hold the same ones. */
struct tool_stage_elements {
    uint64_t dense, experts;
    uint64_t largest_block, head; /* of one block, and of the output matrix where the stage has it */
    uint64_t tables;              /* of `dense`: embedding, positions and output matrix */
};
struct tool_stage_elements tool_stage_elements(const struct tool_shape *shape, const struct tool_layout *layout,
                                               uint32_t stage);

/* Elements of adapters of a rank (LoRA) beside all products of a block: in x r and r x out, the cut side in parts. */
uint64_t tool_adapter_elements(const struct tool_shape *shape, const struct tool_layout *layout, uint64_t rank);

uint64_t tool_padded_vocabulary(const struct tool_shape *shape, const struct tool_layout *layout);

/* Blocks whose activations a stage holds at its fullest moment: 1F1B, or interleaved with virtual stages. */
uint64_t tool_blocks_in_flight(const struct tool_shape *shape, const struct tool_layout *layout, uint32_t stage);

#endif
