/* SPDX-License-Identifier: MIT
 *
 * What a GPU has and reaches: tools/memplan/plan/devices.json, which the build embeds, and a file of the user's of the same form.
 * Each figure has its source.
 */
#ifndef EO_TOOLS_MEMPLAN_PLAN_DEVICES_H
#define EO_TOOLS_MEMPLAN_PLAN_DEVICES_H

#include <jansson.h>

#include "tools/shared/problem.h"

struct tool_device_memory {
    const char *name;
    uint64_t bytes; /* that a program can have, as far as was published */
    const char *source;
};

/* A second, of one GPU. Of the links what collectives reach on large messages, one way. */
struct tool_device_rates {
    double product_flops, memory_bytes; /* dense bf16 */
    double node_bytes, network_bytes;   /* to GPUs of the node, to other nodes */
    double host_bytes;                  /* to and from the host's memory */
    double product_share, attention_share; /* of product_flops, that training reaches */
    double flash_share;                    /* ... attention by kernels of today */
    double float8_flops, float8_share;     /* dense float8, and what training reaches; 0: it has none */
    double fp32_flops;                     /* products in fp32, which Muon's iteration is in; 0: unknown */
    double host_memory_bytes, disk_bytes;  /* of the host for one GPU: its memory, and a disk; 0: unknown */
};

/* Its devices stand before those that were there, under their names. EO_ERR_INVALID names what is wrong. */
EO_NODISCARD eo_status tool_devices_parse(const json_t *root, const char *path, struct tool_problem *problem);
/* tools/memplan/plan/device_file.c: of --devices. */
EO_NODISCARD eo_status tool_devices_read(const char *path, struct tool_problem *problem);

const struct tool_device_memory *tool_device_memory_find(const char *name); /* NULL: not in the table */
const struct tool_device_memory *tool_device_memory_at(uint32_t index);     /* NULL past the last */
const struct tool_device_rates *tool_device_rates_find(const char *device); /* NULL: none are known */

#endif
