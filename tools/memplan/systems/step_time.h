/* SPDX-License-Identifier: MIT
 *
 * The time of a step by a few rules, for plans of clusters: an estimate. Its constants are fitted on one half of published
 * steps and scored on the other (tools/memplan/systems/published_steps.c).
 */
#ifndef EO_TOOLS_MEMPLAN_SYSTEMS_STEP_TIME_H
#define EO_TOOLS_MEMPLAN_SYSTEMS_STEP_TIME_H

#include "tools/memplan/systems/systems.h"

/* Of a GPU: data sheets, and of the links what collectives reach in a node, one way. */
struct tool_device_rates {
    const char *name;                      /* how names of devices begin */
    double product_flops, memory_bytes;    /* a second, dense bf16 */
    double node_bytes, network_bytes;      /* a second and GPU */
    double product_share, attention_share; /* of product_flops: fitted */
    const char *source;
};
const struct tool_device_rates *tool_device_rates_find(const char *device); /* NULL: none */

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

#endif
