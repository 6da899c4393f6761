/* SPDX-License-Identifier: MIT
 *
 * What --budget and --bucketing auto chose, and by which rates, and a bucketing given by hand: checkpoints keep all of it, and
 * --resume goes on with it, but for what its own options say. No bit depends on it. And a sliding window that cut the context of
 * the model's weights: it holds for a run that names the model without --init, too.
 */
#ifndef EO_TOOLS_RUN_CHECKPOINT_KEPT_CHOICE_H
#define EO_TOOLS_RUN_CHECKPOINT_KEPT_CHOICE_H

#include "tools/run/checkpoint/checkpoint.h"

struct tool_kept_bucketing {
    bool is_there;
    uint32_t gather_run, gradient_run;
    struct tool_rates rates; /* all 0: given by hand */
};

/* Plain values, for ranks exchange them. */
struct tool_kept_choice {
    bool is_there;
    eo_recompute recompute;
    uint32_t recompute_blocks, gather_slots, gradient_slots, offload_layers, offload_slots;
    bool offload_gradients, late_updates;
    uint32_t offload_activations;
    uint32_t head_chunks; /* 0: not chosen */
    struct tool_rates rates;
    struct tool_kept_bucketing bucketing; /* there or not by itself */
    uint32_t window;                      /* likewise; 0: none */
};

/* Fields of a checkpoint's settings; nothing of a run without a choice. */
void tool_kept_choice_write(struct eo_json *json, const struct tool_options *options);
/* False: --budget chose nothing, or what is there is no choice. */
bool tool_kept_choice_parse(const json_t *settings, struct tool_kept_choice *out);
/* Of the newest checkpoint that can be read where --resume looks. */
void tool_kept_choice_find(const struct tool_checkpoint_options *options, struct tool_kept_choice *out);
/* Sets what no option says, bucketing apart. */
void tool_kept_choice_apply(const struct tool_kept_choice *kept, const struct tool_options *options,
                            struct tool_plan_settings *settings);

#endif
