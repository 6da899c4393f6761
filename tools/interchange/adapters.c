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

/* Whether both are of one half of a block: the same up to the layer's name, "h.0.attn." */
static bool are_beside(const char *one, const char *other)
{
    const size_t module = strlen(one) - strlen(LORA_A);
    size_t length = module;
    while (length > 0 && one[length - 1] != '.')
        length--;
    return strncmp(one, other, length) == 0 &&
           strcspn(other + length, ".") == strlen(other + length) - strlen(LORA_A);
}

static eo_status add_adapter(eo_model *adapters, const eo_parameter_info *info)
{
    return eo_model_add_parameter(adapters, eo_parameter_params(.layer = 0, .name = info->name, .dim_count = 2,
                                                                .dims = {info->dims[0], info->dims[1]}), NULL);
}

/* From parameter k on those with this end, as long as they are of k's half. Their end goes to *end. */
static eo_status add_half(eo_model *adapters, const eo_model *whole, uint32_t k, const char *last, uint32_t *end)
{
    eo_parameter_info first, info;
    EO_TRY(eo_model_parameter(whole, k, &first));
    for (*end = k; *end < eo_model_parameter_count(whole); ++*end) {
        EO_TRY(eo_model_parameter(whole, *end, &info));
        if (!tool_is_adapter(info.name))
            continue;
        if (!are_beside(first.name, info.name))
            break;
        if (ends_with(info.name, last))
            EO_TRY(add_adapter(adapters, &info));
    }
    return EO_OK;
}

static eo_status add_adapters(eo_model *adapters, const eo_model *whole)
{
    EO_TRY(eo_model_add_layer(adapters, eo_layer_params(.name = "adapters"), NULL));
    for (uint32_t k = 0, end; k < eo_model_parameter_count(whole); k = end) {
        eo_parameter_info info;
        EO_TRY(eo_model_parameter(whole, k, &info));
        end = k + 1;
        if (!tool_is_adapter(info.name))
            continue;
        EO_TRY(add_half(adapters, whole, k, LORA_A, &end));
        EO_TRY(add_half(adapters, whole, k, LORA_B, &end));
    }
    return EO_OK;
}

eo_status tool_adapters_model(eo_model **out, const eo_model *whole)
{
    EO_TRY(eo_model_create(out, eo_model_params(.name = "adapters")));
    const eo_status status = add_adapters(*out, whole);
    if (status < 0)
        eo_model_destroy(out);
    return status;
}

/* --- PEFT's folder ------------------------------------------------------------------------------------------------ */

/* "h.0.attn.c_attn" of its adapter's name. */
static void module_of(const char *adapter, char module[TOOL_FUSED_NAME_BYTES])
{
    snprintf(module, TOOL_FUSED_NAME_BYTES, "%.*s", (int)(strlen(adapter) - strlen(LORA_A)), adapter);
}

/* The name in files of the layer that adapter k stands beside, without ".weight". True: the layer is a part of it. */
static bool file_module(const struct tool_export *export, const char *adapter, char module[TOOL_FUSED_NAME_BYTES])
{
    char weight[TOOL_FUSED_NAME_BYTES + 8];
    uint64_t before;
    module_of(adapter, module);
    snprintf(weight, sizeof(weight), "%s.weight", module);
    const bool fused = tool_fused_tensor(export->config, weight, module, &before);
    module[strlen(module) - (fused ? strlen(".weight") : 0)] = '\0';
    return fused;
}

/* Adapters k ... of one fused layer, A or B: all of its parts, or it is an error. */
static eo_status describe_fused(struct tool_export *export, const struct tool_export_model *model, uint32_t k, const char *module,
                                struct tool_problem *problem)
{
    const uint32_t parts = ends_with(module, ".qkv_proj") ? 3 : 2;
    for (uint32_t part = 0; part < parts; part++) {
        struct tool_export_tensor *tensor = &export->tensors[k + part];
        char other[TOOL_FUSED_NAME_BYTES] = "";
        eo_parameter_info info;
        if (k + part < export->tensor_count)
            EO_TRY(eo_model_parameter(model->model, k + part, &info));
        if (k + part >= export->tensor_count || !file_module(export, info.name, other) || strcmp(other, module) != 0)
            return tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--export %s: files of family %s have several layers in %s, and --lora "
                                    "names a part of them; add %s to its targets, or give --export-merged", export->path,
                                    tool_config_family_name(export->config->family), module, strrchr(module, '.') + 1);
        snprintf(tensor->name, sizeof(tensor->name), "base_model.model.%s%s", module,
                 ends_with(info.name, LORA_B) ? LORA_B : LORA_A);
        tensor->goes_on = part > 0;
        tensor->part = part;
    }
    return EO_OK;
}

/* One rank for all adapters, that of the layer with the most parts: readers other than PEFT know one alone. B gets columns of
 * zeros, A rows behind its own, which nobody writes; a B comes behind them in the file, so they read as zeros. */
static void widen(struct tool_export *export)
{
    uint32_t most = 1;
    for (uint32_t k = 0; k < export->tensor_count; k++)
        most = export->tensors[k].part >= most ? export->tensors[k].part + 1 : most;
    for (uint32_t k = 0; most > 1 && k < export->tensor_count; k++) {
        struct tool_export_tensor *tensor = &export->tensors[k];
        const bool is_last = k + 1 == export->tensor_count || !export->tensors[k + 1].goes_on;
        if (ends_with(tensor->name, LORA_B)) {
            tensor->parts = most;
            tensor->columns *= most, tensor->element_count *= most;
        } else if (is_last) {
            tensor->zero_rows = (most - 1 - tensor->part) * tensor->rows;
        }
    }
}

eo_status tool_export_describe_adapters(struct tool_export *export, const struct tool_export_model *model,
                                        struct tool_problem *problem)
{
    for (uint32_t k = 0; k < export->tensor_count; k++) {
        eo_parameter_info info;
        char module[TOOL_FUSED_NAME_BYTES];
        EO_TRY(eo_model_parameter(model->model, k, &info));
        if (file_module(export, info.name, module)) {
            if (!export->tensors[k].goes_on && export->tensors[k].name[0] == '\0')
                EO_TRY(describe_fused(export, model, k, module, problem));
            continue;
        }
        snprintf(export->tensors[k].name, sizeof(export->tensors[k].name), "base_model.model.%s%s",
                 export->config->family == TOOL_CONFIG_GPT2 ? "transformer." : "", info.name);
    }
    widen(export);
    return EO_OK;
}

/* The last part of the names of all layers with adapters, once. */
static void write_layers(struct eo_json *json, const struct tool_export_adapters *adapters)
{
    json_t *seen = json_object();
    for (uint32_t k = 0; seen && k < eo_model_parameter_count(adapters->model->model); k++) {
        eo_parameter_info info;
        char module[TOOL_FUSED_NAME_BYTES];
        if (eo_model_parameter(adapters->model->model, k, &info) < 0)
            continue;
        file_module(adapters->export, info.name, module);
        const char *last = strrchr(module, '.') ? strrchr(module, '.') + 1 : module;
        if (!json_object_get(seen, last))
            eo_json_write(json, "%s", last);
        json_object_set_new(seen, last, json_true());
    }
    json_decref(seen);
}

static void write_targets(struct eo_json *json, const struct tool_export_adapters *adapters)
{
    const char *targets = adapters->model->lora->targets;
    if (strstr(targets, "all-linear") || adapters->export->config->family == TOOL_CONFIG_PHI3) {
        write_layers(json, adapters);
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
    const struct tool_export_adapters *adapters = user;
    const struct tool_export_model *model = adapters->model;
    uint32_t parts = 1;
    for (uint32_t k = 0; k < adapters->export->tensor_count; k++)
        parts = adapters->export->tensors[k].parts > parts ? adapters->export->tensors[k].parts : parts;
    eo_json_write(json,
                  "{'peft_type': 'LORA', 'task_type': 'CAUSAL_LM', 'base_model_name_or_path': %s, 'r': %u, 'lora_alpha': %g,"
                  "'lora_dropout': %g, 'bias': 'none', 'fan_in_fan_out': %i, 'inference_mode': %i, 'rank_pattern': {},"
                  "'alpha_pattern': {}, 'target_modules': [",
                  model->base, parts * model->lora->rank, parts * (double)model->lora->alpha, 0.0,
                  model->config.family == EO_FAMILY_GPT2, true);
    write_targets(json, adapters);
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
