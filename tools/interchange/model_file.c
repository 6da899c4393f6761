/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/interchange/config/model_config.h"
#include "tools/shared/open_file.h"

eo_status tool_model_config_read(const char *path, char **text, size_t *bytes, struct tool_problem *problem)
{
    FILE *file;
    EO_TRY(tool_open_stream(&file, "--model", path, problem));
    eo_status status = EO_OK;
    *text = calloc(TOOL_CONFIG_BYTES_MAX + 2, 1);
    if (!*text) {
        status = tool_problem_set(problem, EO_ERR_NO_MEMORY, "--model %s: no memory", path);
    } else {
        *bytes = fread(*text, 1, TOOL_CONFIG_BYTES_MAX + 1, file);
        if (ferror(file))
            status = tool_problem_set(problem, EO_ERR_IO, "--model %s: cannot be read: %s", path, strerror(errno));
        else if (*bytes > TOOL_CONFIG_BYTES_MAX)
            status = tool_problem_set(problem, EO_ERR_INVALID,
                                      "--model %s: is larger than %d MiB, the limit of a config.json",
                                      path, TOOL_CONFIG_BYTES_MAX >> 20);
    }
    fclose(file);
    if (status < 0) {
        free(*text);
        *text = NULL;
    }
    return status;
}

const char *tool_model_path_hint(const char *path)
{
    struct stat info;
    const char *slash = strchr(path, '/');
    const size_t legal = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./");
    const char *end = strrchr(path, '.');
    const bool is_file = end && (strcmp(end, ".json") == 0 || strcmp(end, ".bin") == 0 || strcmp(end, ".safetensors") == 0);
    const bool may_be_id = !is_file && path[0] != '.' && path[legal] == '\0' && stat(path, &info) != 0;
    if (may_be_id && !slash)
        return "; check the path; names of the Hub are not downloaded: give the folder of a model on disk";
    return may_be_id && slash != path && slash[1] != '\0' && !strchr(slash + 1, '/')
               ? "; Hub ids are not downloaded: download the model, and name its folder"
               : "";
}

static bool is_safetensors(const char *path)
{
    const char *end = strrchr(path, '.');
    return end && strcmp(end, ".safetensors") == 0;
}

eo_status tool_model_config_load(struct tool_model_config *config, const char *model, const char *const *sets,
                                 uint32_t set_count, struct tool_problem *problem)
{
    struct stat info;
    if (strlen(model) == 0 || strlen(model) > sizeof(config->source) - 32)
        return tool_problem_set(problem, EO_ERR_INVALID, "--model: %zu bytes are not a valid name", strlen(model));
    /* A known name is the model, not a folder that happens to be called so: ./base is that. */
    if (tool_model_config_is_name(model))
        return tool_model_config_named(config, model, sets, set_count, problem);
    if (stat(model, &info) != 0)
        return strchr(model, '/') ? tool_problem_set(problem, EO_ERR_IO, "--model %s: %s%s", model, strerror(errno),
                                                     tool_model_path_hint(model))
                                  : tool_model_config_named(config, model, sets, set_count, problem);
    if (is_safetensors(model) && !S_ISDIR(info.st_mode))
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--model %s: this is a file of weights; name its folder, with config.json beside them",
                                model);
    char path[sizeof(config->source)];
    snprintf(path, sizeof(path), "%s%s", model, S_ISDIR(info.st_mode) ? "/config.json" : "");
    char *text = NULL;
    size_t bytes = 0;
    EO_TRY(tool_model_config_read(path, &text, &bytes, problem));
    const eo_status status = tool_model_config_parse(config, path, text, bytes, sets, set_count, problem);
    free(text);
    config->from_file = true;
    return status;
}
