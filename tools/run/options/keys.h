/* SPDX-License-Identifier: MIT
 *
 * A key (and a place in tool_options.given) for each option that training programs share.
 */
#ifndef EO_TOOLS_RUN_OPTIONS_KEYS_H
#define EO_TOOLS_RUN_OPTIONS_KEYS_H

#include "tools/run/options/options.h"

enum option_key {
    OPTION_MODEL = 0x100,
    OPTION_TEXT,
    OPTION_TOKENS,
    OPTION_SHUFFLE,
    OPTION_PACK,
    OPTION_TOKENIZER,
    OPTION_INIT,
    OPTION_RANKS,
    OPTION_DEVICE,
    OPTION_DTYPE,
    OPTION_GATHER,
    OPTION_PRODUCTS,
    OPTION_NORMS,
    OPTION_REDUCE,
    OPTION_GRAPH,
    OPTION_GRAPH_TIMES,
    OPTION_CUPTI,
    OPTION_CUPTI_LIBRARY,
    OPTION_PLAN_CACHE,
    OPTION_REPEATABLE,
    OPTION_THREADS,
    OPTION_MEMORY,
    OPTION_STRATEGY,
    OPTION_SLOTS,
    OPTION_FABRIC,
    OPTION_BATCH,
    OPTION_SEQ,
    OPTION_MICRO_BATCHES,
    OPTION_STEPS,
    OPTION_OPTIMIZER,
    OPTION_LR,
    OPTION_WARMUP,
    OPTION_BETA1,
    OPTION_MOMENTUM,
    OPTION_BETA2,
    OPTION_EPS,
    OPTION_WEIGHT_DECAY,
    OPTION_CLIP,
    OPTION_ON_NOT_FINITE,
    OPTION_DROPOUT,
    OPTION_EMA,
    OPTION_SEED,
    OPTION_SCHEDULE,
    OPTION_MINIMUM_RATE,
    OPTION_RECOMPUTE,
    OPTION_HEAD_CHUNKS,
    OPTION_BUDGET,
    OPTION_RATES,
    OPTION_MAY_CHANGE_BITS,
    OPTION_BUCKETING,
    OPTION_OFFLOAD_LAYERS,
    OPTION_OFFLOAD_SLOTS,
    OPTION_OFFLOAD_GRADIENTS,
    OPTION_LATE_UPDATES,
    OPTION_OFFLOAD_ACTIVATIONS,
    OPTION_OFFLOAD_FOLDER,
    OPTION_GRANULARITY,
    OPTION_NO_PREFETCH,
    OPTION_NORMS_BESIDE,
    OPTION_GRADIENTS_APART,
    OPTION_IMPLICIT_PREFETCH,
    OPTION_REDUCE_INPUTS,
    OPTION_DYNAMIC_OFFLOAD,
    OPTION_PLACE_THREADS,
    OPTION_PEAK_SECONDS,
    OPTION_PEAK_TFLOPS,
    OPTION_INSTRUCTION_SET,
    OPTION_END,
};

_Static_assert((int)OPTION_END - (int)OPTION_MODEL <= (int)TOOL_OPTIONS_MAX, "tool_options.given has a place for each");

/* A row without key and name is a heading; the last one is empty. */
extern const struct argp_option tool_option_table[];

const char *tool_option_name(int key); /* NULL: no key of the table */
bool tool_option_is_given(const struct tool_options *options, int key);

/* At the end of the options: fills defaults in, and ends the program where options contradict each other. */
void tool_options_check_together(const struct argp_state *state, struct tool_options *options);

#endif
