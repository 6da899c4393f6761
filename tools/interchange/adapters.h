/* SPDX-License-Identifier: MIT
 *
 * Low-rank adapters in the format of PEFT: a folder with adapter_config.json and adapter_model.safetensors, beside the model that
 * they belong to. Or merged into it: W + alpha / rank B A in the place of W.
 *
 * Phi-3's files have q, k and v in one layer, which has one adapter. Theirs are three: then A has the rows of all, and B each one's
 * columns beside zeros. So the rank is three times as large, and alpha too; the same with gate and up, two. The folder's other
 * adapters get that rank by zeros: many readers know one rank alone.
 */
#ifndef EO_TOOLS_INTERCHANGE_ADAPTERS_H
#define EO_TOOLS_INTERCHANGE_ADAPTERS_H

#include "tools/interchange/export/export.h"

/* Whether a parameter of that name is an adapter's: "...lora_A.weight", "...lora_B.weight". */
bool tool_is_adapter(const char *name);

/* A model's adapters as a model of their own, for an export; to be destroyed. Those of one half of a block stand together, A before
 * B, as fused tensors of files need them. */
EO_NODISCARD eo_status tool_adapters_model(eo_model **out, const eo_model *whole);

/* --- for exports --- */

EO_NODISCARD eo_status tool_export_describe_adapters(struct tool_export *export, const struct tool_export_model *model,
                                                     struct tool_problem *problem);
/* An adapter_config.json; `adapters` is a struct tool_export_adapters. */
struct tool_export_adapters {
    const struct tool_export *export;
    const struct tool_export_model *model;
};
void tool_export_adapter_config(struct eo_json *json, const void *adapters);

/* Adapters on their way into the weights that they stand beside: each comes before its weight. */
struct tool_merge {
    const eo_lora *lora;
    json_t *places; /* by name: the place among `kept` */
    float **kept;
    uint32_t count;
    bool failed;    /* there was no memory */
};
/* Keeps an adapter's values. */
void tool_merge_keep(struct tool_merge *merge, const eo_parameter_info *adapter, const float *values);
/* A copy with its adapter, to be freed; NULL: the weight has none, or there is no memory. */
float *tool_merge_into(struct tool_merge *merge, const eo_parameter_info *weight, const float *values);
void tool_merge_fini(struct tool_merge *merge);

#endif
