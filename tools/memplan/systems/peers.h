/* SPDX-License-Identifier: MIT
 *
 * What others would hold or say they hold, by their own rules: models of them, not of evenodd. Figures of theirs that are
 * published are in tools/memplan/published/published.c, beside what these give.
 */
#ifndef EO_TOOLS_MEMPLAN_SYSTEMS_PEERS_H
#define EO_TOOLS_MEMPLAN_SYSTEMS_PEERS_H

#include "tools/memplan/plan/plan.h"

/* FSDP2 with bf16 parameters and fp32 reduction, uniform groups of n elements, k inputs of reduce-scatter in flight. */
struct tool_fsdp2_estimate {
    uint64_t group_elements;
    uint64_t state_bytes;                          /* 16 P / W */
    uint64_t forward_live_bytes, forward_reserved_bytes; /* explicit prefetch of one */
    uint64_t backward_live_bytes[2], backward_reserved_bytes[2]; /* k = 1, 2 */
};
struct tool_fsdp2_estimate tool_fsdp2_estimate(const struct tool_model_config *config, uint32_t world);

/* DeepSpeed's estimators for ZeRO-2 (its code and its documentation differ) and ZeRO-3. */
struct tool_deepspeed_estimate {
    uint64_t largest_elements; /* of a leaf module */
    uint64_t zero2_code_bytes, zero2_documented_bytes, zero3_bytes;
};
struct tool_deepspeed_estimate tool_deepspeed_estimate(const struct tool_model_config *config, uint32_t world);

/* Megatron-LM's report_theoretical_memory with one tensor and pipeline rank: selective recompute, and full recompute of some
 * layers, which keep their input alone. */
struct tool_megatron_estimate {
    uint64_t state_bytes, state_distributed_bytes; /* 18 P; (6 + 12 / W) P */
    uint64_t activation_bytes;
};
struct tool_megatron_estimate tool_megatron_estimate(const struct tool_model_config *config, uint32_t world, uint64_t batch,
                                                     uint64_t seq, uint32_t recomputed_layers);

/* Activations of llm.c's train_gpt2.cu in bf16 with cuDNN attention. */
uint64_t tool_llmc_activation_bytes(uint64_t layers, uint64_t width, uint64_t heads, uint64_t padded_vocabulary, uint64_t batch,
                                    uint64_t seq, int recompute);
uint64_t tool_llmc_parameters(uint64_t layers, uint64_t width, uint64_t padded_vocabulary, uint64_t positions);

/* YaFSDP v1: norms apart and gathered, two and two buffers of the largest unit, fp32 staging. */
struct tool_yafsdp_estimate {
    uint64_t unit_elements, norm_elements, shard_bytes, buffer_bytes;
    uint64_t activations_full_bytes, activations_cheap_bytes, head_bytes, scratch_bytes, peak_full_bytes, peak_cheap_bytes;
    uint32_t least_recompute_full, least_recompute_cheap; /* blocks that must be recomputed for the limit */
};
struct tool_yafsdp_estimate tool_yafsdp_estimate(const struct tool_model_config *config, uint32_t world, uint64_t tokens,
                                                 uint64_t limit_bytes);

#endif
