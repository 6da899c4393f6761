/* SPDX-License-Identifier: MIT
 *
 * The files of a page: their texts come by standard input, as one JSON object of names and texts. What memplan does with any
 * others is refused.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/report/compare.h"
#include "tools/shared/open_file.h"
#include "tools/shared/overwrite.h"

enum { INPUT_BYTES_MAX = 64 << 20 };

/* A text of the page; NULL: it has none of this name. */
static const json_t *file_of(const char *name)
{
    static json_t *files;
    static char *input;
    if (!input) {
        input = malloc(INPUT_BYTES_MAX);
        files = input ? json_loadb(input, fread(input, 1, INPUT_BYTES_MAX, stdin), JSON_ALLOW_NUL, NULL) : NULL;
    }
    return json_object_get(files, name);
}

eo_status tool_open_json(json_t **out, uint64_t bytes_max, const char *option, const char *path, struct tool_problem *problem)
{
    json_error_t error;
    const json_t *text = file_of(path);
    const size_t bytes = json_string_length(text);
    *out = NULL;
    if (!text)
        return tool_problem_set(problem, EO_ERR_IO, "%s %s: %s; check the path", option, path, strerror(ENOENT));
    if (bytes > bytes_max)
        return tool_problem_set(problem, EO_ERR_INVALID, "%s %s: has %zu bytes; at most %" PRIu64 " are read", option, path, bytes,
                                bytes_max);
    *out = json_loadb(json_string_value(text), bytes, JSON_REJECT_DUPLICATES, &error);
    return *out ? EO_OK : tool_problem_set(problem, EO_ERR_INVALID, "%s %s: line %d: %s", option, path, error.line, error.text);
}

eo_status tool_model_config_load(struct tool_model_config *config, const char *model, const char *const *sets,
                                 uint32_t set_count, struct tool_problem *problem)
{
    const json_t *text = tool_model_config_is_name(model) ? NULL : file_of(model);
    const size_t bytes = json_string_length(text);
    if (bytes == 0)
        return tool_model_config_named(config, model, sets, set_count, problem);
    if (bytes > TOOL_CONFIG_BYTES_MAX)
        return tool_problem_set(problem, EO_ERR_INVALID, "--model %s: is larger than %d MiB, the limit of a config.json", model,
                                TOOL_CONFIG_BYTES_MAX >> 20);
    return tool_model_config_parse(config, model, json_string_value(text), bytes, sets, set_count, problem);
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
