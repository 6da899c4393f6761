/* SPDX-License-Identifier: MIT
 *
 * A page has no files: what memplan does with them is refused here, and the text of a config.json comes by standard input.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/search/budget.h"
#include "tools/memplan/report/compare.h"
#include "tools/memplan/plan/devices.h"
#include "tools/shared/overwrite.h"

eo_status tool_model_config_load(struct tool_model_config *config, const char *model, const char *const *sets,
                                 uint32_t set_count, struct tool_problem *problem)
{
    eo_status status;
    if (tool_model_config_is_name(model))
        return tool_model_config_named(config, model, sets, set_count, problem);
    char *text = malloc(TOOL_CONFIG_BYTES_MAX + 1);
    const size_t bytes = text ? fread(text, 1, TOOL_CONFIG_BYTES_MAX + 1, stdin) : 0;
    if (!text)
        status = tool_problem_set(problem, EO_ERR_NO_MEMORY, "--model %s: no memory", model);
    else if (bytes > TOOL_CONFIG_BYTES_MAX)
        status = tool_problem_set(problem, EO_ERR_INVALID, "--model %s: is larger than %d MiB, the limit of a config.json", model,
                                  TOOL_CONFIG_BYTES_MAX >> 20);
    else if (bytes == 0)
        status = tool_model_config_named(config, model, sets, set_count, problem);
    else
        status = tool_model_config_parse(config, model, text, bytes, sets, set_count, problem);
    free(text);
    return status;
}

eo_status tool_devices_read(const char *path, struct tool_problem *problem)
{
    return tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--devices %s: a page has no files; use the program", path);
}

bool tool_memplan_logged_settings(const char *path, char words[TOOL_PLAN_WORDS_MAX])
{
    (void)path;
    words[0] = '\0';
    return false;
}

bool tool_overwrite_is_same(const char *a, const char *b)
{
    (void)a;
    (void)b;
    return false;
}

eo_status tool_memplan_budget_choose(struct tool_memplan_budget *budget, const struct tool_model_config *config,
                                     struct tool_memplan_settings *settings, struct tool_problem *problem)
{
    (void)budget;
    (void)config;
    (void)settings;
    return tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--budget reads a file of rates, and a page has none; use the program");
}

void tool_memplan_budget_print(FILE *out, const struct tool_memplan_budget *budget)
{
    (void)out;
    (void)budget;
}

void tool_memplan_budget_json(struct eo_json *json, const struct tool_memplan_budget *budget)
{
    (void)json;
    (void)budget;
}
