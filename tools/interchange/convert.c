/* SPDX-License-Identifier: MIT */
#include "tools/interchange/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/interchange/adapters.h"

/* The first error that the library logged: a status alone says too little. */
struct first_error {
    char text[1024];
};

static void keep_first(void *user, eo_log_level level, const char *text)
{
    struct first_error *error = user;
    if (level == EO_LOG_ERROR && !error->text[0])
        snprintf(error->text, sizeof(error->text), "%s", text);
}

static eo_status failed(const struct first_error *error, const char *path, eo_status status, struct tool_problem *problem)
{
    return tool_problem_set(problem, status, "%s: %s", path, error->text[0] ? error->text : eo_status_text(status));
}

/* --- ours to others' ---------------------------------------------------------------------------------------------- */

/* Of a layer: its weights, or their average, which is the last array of state. What is frozen has none, and needs none. */
static eo_status find_array(const eo_checkpoint *checkpoint, uint32_t layer, bool averaged, uint32_t *array)
{
    eo_checkpoint_info whole;
    eo_checkpoint_layer info;
    eo_checkpoint_get_info(checkpoint, &whole);
    EO_TRY(eo_checkpoint_get_layer(checkpoint, layer, &info));
    *array = averaged && !info.frozen ? whole.optimizer_states : 0;
    return EO_OK;
}

static eo_status put_parameters(eo_checkpoint *checkpoint, const eo_model *model, bool averaged, struct tool_export *export,
                                struct tool_problem *problem)
{
    eo_checkpoint_info whole;
    eo_checkpoint_get_info(checkpoint, &whole);
    for (uint32_t k = 0; k < eo_model_parameter_count(model); k++) {
        eo_parameter_info info;
        eo_checkpoint_parameter saved;
        uint32_t index, array;
        EO_TRY(eo_model_parameter(model, k, &info));
        if (eo_checkpoint_find_parameter(checkpoint, info.name, &index) < 0 ||
            eo_checkpoint_get_parameter(checkpoint, index, &saved) < 0 || saved.info.element_count != info.element_count ||
            find_array(checkpoint, saved.info.layer, averaged, &array) < 0)
            return tool_problem_set(problem, EO_ERR_INVALID, "%s: has no '%s' of %llu elements; it belongs to another model",
                                    whole.path, info.name, (unsigned long long)info.element_count);
        float *values = malloc(info.element_count * sizeof(*values));
        if (!values)
            return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory for '%s'", whole.path, info.name);
        const eo_status status =
            eo_checkpoint_read(checkpoint, saved.info.layer, array, saved.offset, info.element_count, values);
        if (status >= 0)
            tool_export_put(export, k, values);
        free(values);
        if (status < 0)
            return tool_problem_set(problem, status, "%s: cannot read '%s'; tools/checkpoint verify says more", whole.path,
                                    info.name);
    }
    return EO_OK;
}

static eo_status write_model(eo_checkpoint *checkpoint, const struct tool_export_model *model, bool averaged,
                             const struct tool_export_settings *settings, struct tool_problem *problem)
{
    struct tool_export export;
    EO_TRY(tool_export_check(settings, model, problem));
    EO_TRY(tool_export_begin(&export, settings, model, problem));
    const eo_status status = put_parameters(checkpoint, model->model, averaged, &export, problem);
    if (status < 0) {
        tool_export_drop(&export);
        return status;
    }
    return tool_export_end(&export, problem);
}

eo_status tool_convert_to_files(eo_checkpoint *checkpoint, const struct tool_convert_model *what,
                                const struct tool_export_settings *settings, struct tool_problem *problem)
{
    struct first_error error = {""};
    const eo_log log = {.write = keep_first, .user = &error, .level = EO_LOG_ERROR};
    eo_transformer *transformer;
    eo_model *adapters = NULL;
    eo_status status = eo_transformer_create(
        &transformer, eo_transformer_params(.config = what->config, .lora = what->lora, .seq = 1, .log = &log));
    if (status >= 0 && what->lora.rank)
        status = tool_adapters_model(&adapters, eo_transformer_model(transformer));
    if (status < 0) {
        eo_transformer_destroy(&transformer);
        return failed(&error, settings->path, status, problem);
    }
    const eo_transformer_params *params = eo_transformer_get_params(transformer);
    const struct tool_export_model model = {.model = adapters ? adapters : eo_transformer_model(transformer),
                                            .config = params->config,
                                            .published = what->published,
                                            .lora = adapters ? &params->lora : NULL};
    status = write_model(checkpoint, &model, what->averaged, settings, problem);
    eo_model_destroy(&adapters);
    eo_transformer_destroy(&transformer);
    static const char option[] = "--export "; /* is none here */
    if (status < 0 && strncmp(problem->text, option, sizeof(option) - 1) == 0)
        memmove(problem->text, problem->text + sizeof(option) - 1, strlen(problem->text) - sizeof(option) + 2);
    return status;
}

/* --- others' to ours ---------------------------------------------------------------------------------------------- */

struct reading {
    const struct tool_import *import;
    struct tool_problem *problem;
};

static eo_status read_part(void *user, uint32_t parameter, uint64_t offset, uint64_t count, float *values)
{
    const struct reading *reading = user;
    return tool_import_read(reading->import, parameter, offset, count, values, reading->problem);
}

eo_status tool_convert_from_files(struct tool_import *import, const char *folder, uint32_t rank_count, const void *blob,
                                  uint32_t blob_bytes, struct tool_problem *problem)
{
    struct first_error error = {""};
    const eo_log log = {.write = keep_first, .user = &error, .level = EO_LOG_ERROR};
    struct reading reading = {import, problem};
    eo_transformer *transformer = NULL;
    eo_plan *plan = NULL;
    problem->text[0] = '\0';
    eo_status status =
        eo_transformer_create(&transformer, eo_transformer_params(.config = import->config, .seq = 1, .log = &log));
    if (status >= 0)
        status = eo_plan_create(&plan, eo_transformer_model(transformer), eo_plan_params(.rank_count = rank_count,
                                                                                         .log = &log));
    if (status >= 0)
        status = tool_import_bind(import, eo_transformer_model(transformer), problem);
    if (status >= 0)
        status = eo_checkpoint_make(plan, folder, read_part, &reading, blob, blob_bytes, &log);
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
    return status < 0 && !problem->text[0] ? failed(&error, folder, status, problem) : status;
}
