/* SPDX-License-Identifier: MIT
 *
 * Settings of a plan as options of a command line.
 */
#ifndef EO_TOOLS_PLANNING_OPTIONS_H
#define EO_TOOLS_PLANNING_OPTIONS_H

#include <argp.h>

#include "tools/planning/settings.h"

/* Values of options; what is wrong ends the program with a usage error. */
/* Of --budget: bytes, or "DEVICE,HOST"; *host is 0 without. */
void tool_option_budget(const struct argp_state *state, const char *text, uint64_t *bytes, uint64_t *host);
/* With GPUs both are needed, elsewhere one. */
void tool_option_check_budget(const struct argp_state *state, bool on_gpu, uint64_t host);
/* "auto": true, and nothing is set. */
bool tool_option_bucketing(const struct argp_state *state, const char *text, struct tool_plan_settings *settings);
void tool_option_slots(const struct argp_state *state, const char *text, struct tool_plan_settings *settings);
/* block, half, blocks:N, size:BYTES. */
void tool_option_granularity(const struct argp_state *state, const char *text, struct tool_plan_settings *settings);
void tool_option_recompute(const struct argp_state *state, const char *text, struct tool_plan_settings *settings);
bool tool_option_gather(const struct argp_state *state, const char *text); /* float8 */
bool tool_option_products(const struct argp_state *state, const char *text); /* float8 */
bool tool_option_norms(const struct argp_state *state, const char *text);    /* fp32 */
/* Whether they go with device and type. */
void tool_option_check_products(const struct argp_state *state, const struct tool_plan_settings *settings,
                                const char *device_option);
/* Whether float8 goes with the other settings. */
void tool_option_check_gather(const struct argp_state *state, const struct tool_plan_settings *settings);
eo_dtype tool_option_dtype(const struct argp_state *state, const char *name, const char *text);
/* RANK, or r=RANK,alpha=X,targets=NAME+NAME... */
/* --frozen: true for mxfp8. */
bool tool_option_frozen(const struct argp_state *state, const char *text);
/* What it does not go with. */
void tool_option_check_frozen(const struct argp_state *state, const struct tool_plan_settings *s);
void tool_option_check_offload(const struct argp_state *state, const struct tool_plan_settings *s);
/* Adapters are no matrices of Muon's. */
void tool_option_check_lora(const struct argp_state *state, const struct tool_plan_settings *s);
void tool_option_lora(const struct argp_state *state, const char *text, struct tool_lora *lora);
double tool_option_ema(const struct argp_state *state, const char *text);
void tool_option_offload_layers(const struct argp_state *state, const char *text, struct tool_plan_settings *settings);
void tool_option_offload_activations(const struct argp_state *state, const char *text, struct tool_plan_settings *settings);

#endif
