/* SPDX-License-Identifier: MIT */
#include "tools/interchange/adapters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/interchange/model_blocks.h"

#define LORA_A ".lora_A.weight"
#define LORA_B ".lora_B.weight"

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), end_length = strlen(end);
    return length > end_length && strcmp(name + length - end_length, end) == 0;
}

bool tool_is_adapter(const char *name)
{
    return ends_with(name, LORA_A) || ends_with(name, LORA_B);
}

eo_status tool_adapters_model(eo_model **out, const eo_model *whole)
{
    uint32_t layer;
    EO_TRY(eo_model_create(out, eo_model_params(.name = "adapters")));
    eo_status status = eo_model_add_layer(*out, eo_layer_params(.name = "adapters"), &layer);
    for (uint32_t k = 0; status >= 0 && k < eo_model_parameter_count(whole); k++) {
        eo_parameter_info info;
        status = eo_model_parameter(whole, k, &info);
        if (status >= 0 && tool_is_adapter(info.name))
            status = eo_model_add_parameter(*out, eo_parameter_params(.layer = layer, .name = info.name, .dim_count = 2,
                                                                      .dims = {info.dims[0], info.dims[1]}), NULL);
    }
    if (status < 0)
        eo_model_destroy(out);
    return status;
}

/* --- PEFT's folder ------------------------------------------------------------------------------------------------ */

/* "h.0.attn.c_attn" of its adapter's name. */
static void module_of(const char *adapter, char module[EO_NAME_MAX])
{
    snprintf(module, EO_NAME_MAX, "%.*s", (int)(strlen(adapter) - strlen(LORA_A)), adapter);
}

eo_status tool_export_describe_adapters(struct tool_export *export, const struct tool_export_model *model,
                                        struct tool_problem *problem)
{
    for (uint32_t k = 0; k < export->tensor_count; k++) {
        eo_parameter_info info;
        char module[EO_NAME_MAX], weight[EO_NAME_MAX + 16], fused[TOOL_FUSED_NAME_BYTES];
        uint64_t before;
        EO_TRY(eo_model_parameter(model->model, k, &info));
        module_of(info.name, module);
        snprintf(weight, sizeof(weight), "%s.weight", module);
        if (tool_fused_tensor(export->config, weight, fused, &before))
            return tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--export %s: files of family %s have %s inside %s, and PEFT no "
                                    "adapter for a part; take it out of the targets of --lora, or give --export-merged",
                                    export->path, tool_config_family_name(export->config->family), weight, fused);
        snprintf(export->tensors[k].name, sizeof(export->tensors[k].name), "base_model.model.%s%s",
                 export->config->family == TOOL_CONFIG_GPT2 ? "transformer." : "", info.name);
    }
    return EO_OK;
}

/* The last part of the names of all layers with adapters, once. */
static void write_all_targets(struct eo_json *json, const eo_model *model)
{
    json_t *seen = json_object();
    for (uint32_t k = 0; seen && k < eo_model_parameter_count(model); k++) {
        eo_parameter_info info;
        char module[EO_NAME_MAX];
        if (eo_model_parameter(model, k, &info) < 0)
            continue;
        module_of(info.name, module);
        const char *last = strrchr(module, '.') ? strrchr(module, '.') + 1 : module;
        if (!json_object_get(seen, last))
            eo_json_write(json, "%s", last);
        json_object_set_new(seen, last, json_true());
    }
    json_decref(seen);
}

static void write_targets(struct eo_json *json, const struct tool_export_model *model)
{
    const char *targets = model->lora->targets;
    if (strstr(targets, "all-linear")) {
        write_all_targets(json, model->model);
        return;
    }
    for (const char *next = targets; next; next = strchr(next, '+') ? strchr(next, '+') + 1 : NULL) {
        char name[EO_NAME_MAX];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(next, "+"), next);
        eo_json_write(json, "%s", name);
    }
}

void tool_export_adapter_config(struct eo_json *json, const void *user)
{
    const struct tool_export_model *model = user;
    eo_json_write(json, "{'peft_type': 'LORA', 'task_type': 'CAUSAL_LM', 'base_model_name_or_path': %s, 'r': %u, 'lora_alpha': %g,"
                  "'lora_dropout': %g, 'bias': 'none', 'fan_in_fan_out': %i, 'inference_mode': %i, 'target_modules': [",
                  model->base, model->lora->rank, (double)model->lora->alpha, 0.0, model->config.family == EO_FAMILY_GPT2, true);
    write_targets(json, model);
    eo_json_write(json, "]}");
}

/* --- merging ------------------------------------------------------------------------------------------------------ */

void tool_merge_keep(struct tool_merge *merge, const eo_parameter_info *adapter, const float *values)
{
    float **kept = realloc(merge->kept, (merge->count + 1) * sizeof(*kept));
    float *copy = malloc(adapter->element_count * sizeof(*copy));
    if (kept)
        merge->kept = kept;
    if (!merge->places)
        merge->places = json_object();
    if (!kept || !copy || json_object_set_new(merge->places, adapter->name, json_integer(merge->count)) != 0) {
        merge->failed = true;
        free(copy);
        return;
    }
    memcpy(copy, values, adapter->element_count * sizeof(*copy));
    kept[merge->count++] = copy;
}

static const float *kept_of(const struct tool_merge *merge, const eo_parameter_info *weight, const char *end)
{
    char name[EO_NAME_MAX + 16];
    snprintf(name, sizeof(name), "%.*s%s", (int)(strlen(weight->name) - strlen(".weight")), weight->name, end);
    const json_t *place = json_object_get(merge->places, name);
    return place ? merge->kept[json_integer_value(place)] : NULL;
}

float *tool_merge_into(struct tool_merge *merge, const eo_parameter_info *weight, const float *values)
{
    if (weight->dim_count != 2 || !ends_with(weight->name, ".weight"))
        return NULL;
    const float *a = kept_of(merge, weight, LORA_A), *b = kept_of(merge, weight, LORA_B);
    const uint64_t out = weight->dims[0], in = weight->dims[1], rank = merge->lora->rank;
    const float scale = merge->lora->alpha / (float)rank;
    if (!a || !b)
        return NULL;
    float *merged = malloc(weight->element_count * sizeof(*merged));
    if (!merged) {
        merge->failed = true;
        return NULL;
    }
    memcpy(merged, values, weight->element_count * sizeof(*merged));
    for (uint64_t o = 0; o < out; o++)
        for (uint64_t r = 0; r < rank; r++)
            for (uint64_t i = 0; i < in; i++)
                merged[o * in + i] += scale * b[o * rank + r] * a[r * in + i];
    return merged;
}

void tool_merge_fini(struct tool_merge *merge)
{
    for (uint32_t k = 0; k < merge->count; k++)
        free(merge->kept[k]);
    free(merge->kept);
    json_decref(merge->places);
    *merge = (struct tool_merge){.lora = NULL};
}
