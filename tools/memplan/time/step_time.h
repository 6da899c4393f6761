/* SPDX-License-Identifier: MIT
 *
 * The time of a step by a few rules, for plans of clusters: an estimate. Its constants are fitted on one half of published
 * steps and scored on the other (tools/memplan/published/steps.c).
 */
#ifndef EO_TOOLS_MEMPLAN_TIME_STEP_TIME_H
#define EO_TOOLS_MEMPLAN_TIME_STEP_TIME_H

#include "tools/memplan/plan/devices.h"
#include "tools/memplan/systems/systems.h"

struct tool_step_time {
    double seconds, tokens_per_second; /* tokens of all ranks */
    double mfu; /* 6 flops a multiplied parameter and token, 6 for causal attention; nothing recomputed */
    double compute_seconds, exposed_seconds, bubble_seconds, rest_seconds; /* add up to `seconds` */
    const char *bound_by; /* the largest of products, memory, communication, bubble, rest */
};

/* Settings are checked. evenodd and fsdp2 shard weights; megatron shards as `strategy` says. */
struct tool_step_time tool_step_time(enum tool_system system, const struct tool_shape *shape,
                                     const struct tool_system_settings *settings, const struct tool_device_rates *rates,
                                     uint32_t gpus_per_node);

/* A block's passes of one micro-batch on a rank, with what tensor parallelism and experts send; and the head's. */
struct tool_pass_seconds {
    double forward, backward;
    double head;         /* forward and backward */
    double memory_share; /* of all of these */
    double expert_share; /* of a block's time: its experts' */
    double useful_flops; /* of the micro-batch, on all ranks that share it */
};
struct tool_pass_seconds tool_pass_seconds(const struct tool_shape *shape, const struct tool_system_settings *settings,
                                           const struct tool_device_rates *rates, uint32_t gpus_per_node);

/* Bytes a second and rank of a group of ranks `stride` apart: in a node its links, else its part of the node's network cards. */
double tool_group_bytes(const struct tool_device_rates *rates, uint32_t group, uint32_t stride, uint32_t gpus_per_node,
                        double network_share);

#endif
