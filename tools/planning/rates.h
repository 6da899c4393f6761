/* SPDX-License-Identifier: MIT
 *
 * What one rank reaches while all ranks work: what step times are predicted by.
 */
#ifndef EO_TOOLS_PLANNING_RATES_H
#define EO_TOOLS_PLANNING_RATES_H

#include <jansson.h>
#include <stddef.h>

#include "tools/shared/json_output.h"
#include "tools/shared/problem.h"

/* What a model of two blocks took: seconds, of each block. Predictions of the same shape take these instead of rates. */
enum { TOOL_TRIED_SHAPE_MAX = 256 };
struct tool_tried {
    double block_forward_s, block_backward_s; /* a token */
    double block_recompute_s;                 /* a token: more than the backward pass; 0: as forward */
    double head_s;                            /* a token: forward and backward */
    double embedding_forward_s;               /* a token */
    double embedding_backward_s;              /* a micro-batch */
    double update_s;                          /* an element */
    char shape[TOOL_TRIED_SHAPE_MAX];         /* tool_tried_shape's; "": nothing was tried */
};

struct tool_rates {
    double products_flops_per_s; /* matrix products in the job's type */
    double memory_bytes_per_s;   /* read + written by element-wise work */
    double disk_bytes_per_s;     /* read or written, in turn; 0: there is no disk */
    double link_bytes_per_s;     /* of a collective's full buffer, */
    double link_latency_s;       /* behind what each collective takes else; may be 0 */
    double fp32_products_flops_per_s; /* matrix products in fp32, Muon's iteration; 0: as those in the job's type */
    double disk_cache_bytes;          /* of memory, for a file that cannot be accessed past the page cache; may be 0 */
    struct tool_tried tried;
};

/* NULL, or the field that is missing or no speed; only the speeds of products, memory and link must be there. */
const char *tool_rates_parse(const json_t *object, struct tool_rates *out);
/* Of --rates. */
EO_NODISCARD eo_status tool_rates_read(const char *path, struct tool_rates *out, struct tool_problem *problem);
void tool_rates_write(struct eo_json *json, const struct tool_rates *rates);
/* As tool_rates_parse: the first field of measured rates that is no speed. */
const char *tool_rates_lack(const struct tool_rates *rates);

/* Of Muon's iteration. */
double tool_rates_fp32_products(const struct tool_rates *rates);

/* The slower of both in each, and the larger cache. What was tried in different shapes is left out. */
void tool_rates_slower(struct tool_rates *rates, const struct tool_rates *other);

/* "products 98 GFLOP/s, memory 22.2 GB/s, no disk, link 22.2 GB/s"; a GPU's disk is the memory of its host. */
enum { TOOL_RATES_TEXT_MAX = 320 };
void tool_rates_text(const struct tool_rates *rates, bool on_gpu, char *text, size_t bytes);

#endif
