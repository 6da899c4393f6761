/* SPDX-License-Identifier: MIT
 *
 * The options of memplan, parsed and held against each other: what is asked for.
 */
#ifndef EO_TOOLS_MEMPLAN_OPTIONS_OPTIONS_H
#define EO_TOOLS_MEMPLAN_OPTIONS_OPTIONS_H

#include <argp.h>

#include "tools/memplan/search/budget.h"
#include "tools/memplan/search/search.h"
#include "tools/memplan/estimate/estimate.h"

enum memplan_key {
    KEY_MODEL = 0x100,
    KEY_SET,
    KEY_WORLD,
    KEY_NODE,
    KEY_STRATEGY,
    KEY_SEQ,
    KEY_BATCH,
    KEY_MICRO_BATCHES,
    KEY_DTYPE,
    KEY_GATHER,
    KEY_PRODUCTS,
    KEY_NORMS,
    KEY_REDUCE,
    KEY_PACK,
    KEY_DROPOUT,
    KEY_EMA,
    KEY_OPTIMIZER,
    KEY_LORA,
    KEY_FROZEN,
    KEY_SLOTS,
    KEY_BUCKETING,
    KEY_NORMS_BESIDE,
    KEY_GRADIENTS_APART,
    KEY_OFFLOAD_LAYERS,
    KEY_OFFLOAD_SLOTS,
    KEY_OFFLOAD_GRADIENTS,
    KEY_LATE_UPDATES,
    KEY_OFFLOAD_ACTIVATIONS,
    KEY_RECOMPUTE,
    KEY_GRANULARITY,
    KEY_HEAD_CHUNKS,
    KEY_KERNELS,
    KEY_THREADS,
    KEY_GRAPH,
    KEY_SYSTEM,
    KEY_TENSOR,
    KEY_PIPELINE,
    KEY_CONTEXT,
    KEY_EXPERT,
    KEY_EXPERT_TENSOR,
    KEY_VIRTUAL_STAGES,
    KEY_SEQUENCE_PARALLEL,
    KEY_GLOBAL_BATCH,
    KEY_COMPARE,
    KEY_TIME,
    KEY_TOKENS,
    KEY_PRICE,
    KEY_NETWORK,
    KEY_STATE_DTYPE,
    KEY_OFFLOAD,
    KEY_DEVICE_MEMORY,
    KEY_HEADROOM,
    KEY_DEVICE,
    KEY_DEVICES,
    KEY_OUTSIDE,
    KEY_FIT,
    KEY_JSON,
    KEY_CSV,
    KEY_SVG,
    KEY_HTML,
    KEY_EXPLAIN,
    KEY_DIFF,
    KEY_VERIFY,
    KEY_PUBLISHED,
    KEY_BUDGET,
    KEY_RATES,
    KEY_MAY_CHANGE_BITS,
    KEY_END,
};
_Static_assert(KEY_END - KEY_MODEL <= 128, "options have a bit each");

/* Of options, a bit each. */
__extension__ typedef unsigned __int128 tool_memplan_bits;

enum { TOOL_ASKED_WORDS_MAX = 256 };

struct tool_memplan_asked {
    const char *model, *sets[TOOL_CONFIG_SETS_MAX];
    uint32_t set_count;
    struct tool_memplan_settings settings;
    const struct tool_device_memory *device;
    const char *device_name, *devices_path;
    double headroom_share;
    uint64_t headroom_bytes;
    enum tool_fit_kind fit;
    bool json, csv, explain, published, all_strategies, compare, others_recompute, others_frozen;
    const char *svg_path, *html_path, *diff_a, *diff_b, *verify_path;
    char otherwise[TOOL_PLAN_WORDS_MAX]; /* what the command line says otherwise than the log of --verify */
    tool_memplan_bits given;
    struct tool_asked_word {
        enum memplan_key key;
        const char *value; /* NULL: it takes none */
    } words[TOOL_ASKED_WORDS_MAX]; /* as they were given */
    uint32_t word_count;
    struct tool_estimate_request estimate;
    struct tool_memplan_budget budget;
};

extern const struct argp_option tool_memplan_options[];

struct tool_memplan_asked tool_memplan_defaults(void);

/* argp's parser; its input is a struct tool_memplan_asked. */
error_t tool_memplan_parse(int key, char *text, struct argp_state *state);

/* One option of the group "Run". */
void tool_memplan_parse_run(const struct argp_state *state, struct tool_memplan_asked *asked, int key, const char *text);

/* checks.c: after the last option. Ends the program by argp_error where options do not go together. */
void tool_memplan_check_together(const struct argp_state *state, struct tool_memplan_asked *asked);

const char *tool_memplan_option_name(int key);

static inline tool_memplan_bits tool_memplan_bit(enum memplan_key key)
{
    return (tool_memplan_bits)1 << (key - KEY_MODEL);
}

/* Whether the option was given. */
static inline bool tool_memplan_given(const struct tool_memplan_asked *asked, enum memplan_key key)
{
    return (asked->given & tool_memplan_bit(key)) != 0;
}

#endif
