/* SPDX-License-Identifier: MIT
 *
 * What lies beside the weights in a folder: the files that an export writes itself, and copies of the tokenizer and of the
 * settings for generation of the folder that the model was made from. Without a tokenizer readers stop, or make up an empty
 * one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/interchange/export/export.h"
#include "tools/interchange/foreign.h"
#include "tools/shared/open_file.h"

static const char *const other_names[] = {
    "config.json",
    "adapter_config.json",
    "model.safetensors.index.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "chat_template.jinja",
    NULL,
};
enum { GENERATION = 3, TOKENIZER, TOKENIZERS_END = TOKENIZER + 3 }; /* one of these three makes a tokenizer */
enum { COMPANION_BYTES_MAX = 256 << 20 };                           /* as train reads a tokenizer.json */

const char *const *tool_export_other_names(void)
{
    return other_names;
}

/* The folder of a file of this name; false: it has another name. */
static bool folder_of(char *folder, size_t bytes, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    if (strcmp(slash ? slash + 1 : path, name) != 0)
        return false;
    return (size_t)snprintf(folder, bytes, "%.*s", slash ? (int)(slash - path) + 1 : 2, slash ? path : "./") < bytes;
}

bool tool_export_tokenizer_folder(char *folder, size_t bytes, const char *tokenizer)
{
    struct stat info;
    if (tokenizer && stat(tokenizer, &info) == 0 && S_ISDIR(info.st_mode))
        return (size_t)snprintf(folder, bytes, "%s/", tokenizer) < bytes;
    return tokenizer && folder_of(folder, bytes, tokenizer, other_names[TOKENIZER]);
}

json_t *tool_export_open_companion(const char *folder, const char *name)
{
    char path[4096 + 64];
    json_t *object = NULL;
    struct tool_problem problem;
    snprintf(path, sizeof(path), "%s%s", folder, name);
    return tool_open_json(&object, COMPANION_BYTES_MAX, "", path, &problem) >= 0 ? object : NULL;
}

/* What cannot be read is left out, with a word: the weights are worth more. */
static eo_status copy_from(int in, const char *from, int out, const char *to, struct tool_problem *problem)
{
    char part[65536];
    uint64_t at = 0;
    ssize_t count;
    while ((count = pread(in, part, sizeof(part), (off_t)at)) > 0) {
        EO_TRY(tool_write_at(out, to, part, (uint64_t)count, at, problem));
        at += (uint64_t)count;
    }
    if (count < 0) {
        fprintf(stderr, "%s: warning: %s: cannot be read: %s; the exported folder lacks it\n", program_invocation_short_name,
                from, strerror(errno));
        unlink(to);
    }
    return tool_sync(out) ? EO_OK
                          : tool_problem_set(problem, EO_ERR_IO, "%s: cannot be synced to disk: %s", to, strerror(errno));
}

static eo_status copy_file(const struct tool_export *export, const char *folder, const char *name, bool *copied,
                           struct tool_problem *problem)
{
    char from[sizeof(export->path) + 64], to[sizeof(export->partial) + 64];
    struct tool_problem why;
    uint64_t bytes;
    int in;
    *copied = false;
    snprintf(from, sizeof(from), "%s%s", folder, name);
    snprintf(to, sizeof(to), "%s/%s", export->partial, name);
    if (access(from, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return EO_OK;
    eo_status status = tool_open_input(&in, &bytes, "", from, &why);
    if (status >= 0 && bytes > COMPANION_BYTES_MAX) {
        close(in);
        status = tool_problem_set(&why, EO_ERR_INVALID, "%s: has %llu bytes, and %d at most are copied", from,
                                  (unsigned long long)bytes, COMPANION_BYTES_MAX);
    } else if (status >= 0 && tool_foreign_is_pointer(from)) {
        close(in);
        status =
            tool_problem_set(&why, EO_ERR_INVALID, "%s: is a pointer of Git LFS, not the file: get it with git lfs pull", from);
    }
    if (status < 0) {
        fprintf(stderr, "%s: warning: %s; the exported folder lacks it\n", program_invocation_short_name, why.text);
        return EO_OK;
    }
    const int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    status = out < 0 ? tool_problem_set(problem, EO_ERR_IO, "%s: cannot be created: %s", to, strerror(errno))
                     : copy_from(in, from, out, to, problem);
    *copied = status >= 0 && access(to, F_OK) == 0;
    close(in);
    if (out >= 0)
        close(out);
    return status;
}

/* Ids that the model does not have are another tokenizer's: readers would wait for an end that never comes. */
static bool ids_fit(const struct tool_export_model *model, const char *folder)
{
    static const char *const names[] = {"config.json", "generation_config.json"};
    bool fit = true;
    for (int i = 0; i < 2; i++) {
        json_t *object = tool_export_open_companion(folder, names[i]);
        if (!tool_export_ids_fit(object, model->config.vocabulary)) {
            fprintf(stderr,
                    "%s: warning: %s%s: names special tokens beyond the model's vocabulary of %u; the exported folder lacks "
                    "%s\n",
                    program_invocation_short_name, folder, names[i], model->config.vocabulary, i == 0 ? "these" : "the file");
            fit = i == 0 && fit;
        }
        json_decref(object);
    }
    return fit;
}

eo_status tool_export_copy_companions(const struct tool_export *export, const struct tool_export_model *model,
                                      struct tool_problem *problem)
{
    char origin[sizeof(export->path)] = "", named[sizeof(export->path)] = "";
    bool copied, has_tokenizer = false;
    const char *tokenizer = origin;
    if (!model->origin || !model->origin->from_file || !folder_of(origin, sizeof(origin), model->origin->source, "config.json"))
        origin[0] = '\0';
    if (model->tokenizer) { /* never files of two tokenizers */
        tokenizer = named;
        if (!tool_export_tokenizer_folder(named, sizeof(named), model->tokenizer))
            named[0] = '\0';
    }
    for (size_t i = TOKENIZER; tokenizer[0] && other_names[i]; i++) {
        EO_TRY(copy_file(export, tokenizer, other_names[i], &copied, problem));
        has_tokenizer = has_tokenizer || (copied && i < TOKENIZERS_END);
    }
    if (origin[0] && ids_fit(model, origin))
        EO_TRY(copy_file(export, origin, other_names[GENERATION], &copied, problem));
    if (!has_tokenizer && model->needs_tokenizer)
        fprintf(stderr,
                "%s: --export %s: gets no tokenizer: %s%s; programs that read text need its files there: copy them\n",
                program_invocation_short_name, export->path,
                tokenizer[0] ? "there is none in " : "the run knows no folder with one", tokenizer);
    return EO_OK;
}
