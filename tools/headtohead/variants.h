/* SPDX-License-Identifier: MIT
 *
 * What is compared: the command line's training, each time with other options. Without --compare these are the memory modes.
 */
#ifndef EO_TOOLS_HEADTOHEAD_VARIANTS_H
#define EO_TOOLS_HEADTOHEAD_VARIANTS_H

#include <evenodd/runtime.h>

enum { TOOL_VARIANTS_MAX = 8, TOOL_VARIANT_NAME_MAX = 48 };

struct tool_variant {
    char name[TOOL_VARIANT_NAME_MAX];  /* "auto-wrap:4MiB" */
    eo_memory memory;
    const char *option;                /* beside the memory mode; NULL: none */
    char value[TOOL_VARIANT_NAME_MAX]; /* of the option */
};

/* The memory modes: those of a GPU have one more. Their number. */
int tool_variants_of_memory(struct tool_variant variants[TOOL_VARIANTS_MAX], bool on_gpu);

/*
 * "ddp,zero3,auto-wrap:4MiB,dynamic:malloc": their number, at least 2. 0: in `why` the reason.
 *
 *     zero3, zero2, zero1, ddp, hsdp:S       a strategy
 *     one-unit, auto-wrap:BYTES, block, half, blocks:N   units of sharding; one-unit: all blocks
 *     no-recompute, recompute:WHAT           recompute
 *     fp32, bf16                             element type
 *     static, dynamic:malloc, dynamic:pool, dynamic:caching   memory mode
 */
int tool_variants_parse(struct tool_variant variants[TOOL_VARIANTS_MAX], const char *text, char *why, size_t why_bytes);

#endif
