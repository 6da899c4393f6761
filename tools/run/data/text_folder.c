/* SPDX-License-Identifier: MIT
 *
 * The bytes of files and folders, one after the other.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run/data/batches.h"
#include "tools/shared/open_file.h"

#define FOLDER_FILE_BYTES_MAX ((uint64_t)64 << 20)
enum { FOLDER_DEPTH_MAX = 64 };

struct text {
    uint8_t *bytes;
    uint64_t count, capacity;
    uint32_t file_count, json_count;
    char json_path[160]; /* of the first file of JSON */
    uint32_t left_out;   /* links, and files that are too large for what may lie in a folder */
    char left_path[160]; /* the first of them */
    struct tool_problem *problem;
};

static eo_status reserve(struct text *text, uint64_t more)
{
    if (more <= text->capacity - text->count)
        return EO_OK;
    uint64_t capacity = text->capacity ? text->capacity : 1 << 20;
    while (capacity - text->count < more)
        capacity *= 2;
    uint8_t *bytes = realloc(text->bytes, capacity);
    if (!bytes)
        return tool_problem_set(text->problem, EO_ERR_NO_MEMORY, "--text: no memory for %llu bytes of text",
                                (unsigned long long)capacity);
    text->bytes = bytes;
    text->capacity = capacity;
    return EO_OK;
}

static eo_status read_all(struct text *text, int file, const char *path)
{
    for (;;) {
        EO_TRY(reserve(text, 1 << 16));
        const ssize_t got = read(file, text->bytes + text->count, text->capacity - text->count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tool_problem_set(text->problem, EO_ERR_IO, "--text %s: cannot be read: %s", path, strerror(errno));
        if (got == 0)
            return EO_OK;
        text->count += (uint64_t)got;
    }
}

/* What a file is that is no text, as its first bytes or a NUL tell. NULL: it may be text. */
static const char *kind_of_binary(const uint8_t *bytes, uint64_t count)
{
    static const struct {
        const char *bytes, *kind;
    } kinds[] = {{"PAR1", "a Parquet file"}, {"\x1f\x8b", "packed by gzip"}, {"PK\x03\x04", "a zip archive"},
                 {"\x28\xb5\x2f\xfd", "packed by zstd"}, {"\xfd" "7zXZ", "packed by xz"},
                 {"\x88\xd8\x34\x01", "a token file, for --tokens"}, {"\xa1\xd9\x34\x01", "a token file, for --tokens"}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (count >= strlen(kinds[i].bytes) && memcmp(bytes, kinds[i].bytes, strlen(kinds[i].bytes)) == 0)
            return kinds[i].kind;
    return memchr(bytes, 0, count) ? "binary: it holds bytes of value 0" : NULL;
}

static bool is_json_lines(const char *path)
{
    const char *end = strrchr(path, '.');
    return end && (strcmp(end, ".jsonl") == 0 || strcmp(end, ".ndjson") == 0);
}

static void note_json_lines(struct text *text, const char *path)
{
    if (text->json_count++ == 0)
        snprintf(text->json_path, sizeof(text->json_path), "%.150s", path);
}

/* A file found in a folder is left out again when it is no text. */
static eo_status add_file(struct text *text, const char *path, bool found)
{
    int file;
    EO_TRY(tool_open_input(&file, NULL, "--text", path, text->problem));
    const uint64_t before = text->count;
    const eo_status status = read_all(text, file, path);
    close(file);
    EO_TRY(status);
    const char *kind = text->count > before ? kind_of_binary(text->bytes + before, text->count - before) : NULL;
    if (kind && !found)
        return tool_problem_set(text->problem, EO_ERR_INVALID, "--text %s: is not text, but %s; give plain text (UTF-8)", path,
                                kind);
    if (kind)
        text->count = before;
    if (text->count > before && is_json_lines(path))
        note_json_lines(text, path);
    if (text->count > before)
        text->file_count++;
    return EO_OK;
}

static bool has_entry(const char *folder, const char *name)
{
    char path[4096 + 64];
    struct stat info;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return stat(path, &info) == 0;
}

static bool is_build_folder(const char *folder)
{
    return has_entry(folder, "build.ninja") || has_entry(folder, "CMakeCache.txt") ||
           has_entry(folder, "CACHEDIR.TAG") || has_entry(folder, "pyvenv.cfg");
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* By bytes, not by the locale: the order is part of what a run is. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static eo_status add_folder(struct text *text, const char *folder, int depth);

static eo_status add_found(struct text *text, const char *path, int depth)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return EO_OK; /* gone since the folder was read */
    if (S_ISDIR(info.st_mode) && depth < FOLDER_DEPTH_MAX)
        return is_build_folder(path) ? EO_OK : add_folder(text, path, depth + 1);
    if (S_ISREG(info.st_mode) && (uint64_t)info.st_size <= FOLDER_FILE_BYTES_MAX)
        return add_file(text, path, true);
    if ((S_ISREG(info.st_mode) || S_ISLNK(info.st_mode)) && text->left_out++ == 0)
        snprintf(text->left_path, sizeof(text->left_path), "%.150s", path);
    return EO_OK;
}

static eo_status add_folder(struct text *text, const char *folder, int depth)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, is_visible, by_name);
    if (count < 0)
        return tool_problem_set(text->problem, EO_ERR_IO, "--text %s: the folder cannot be read: %s", folder, strerror(errno));
    eo_status status = EO_OK;
    for (int i = 0; i < count; i++) {
        char path[4096];
        const int length = snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        if (status >= 0 && length > 0 && (size_t)length < sizeof(path))
            status = add_found(text, path, depth);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static eo_status add_named(struct text *text, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return tool_problem_set(text->problem, EO_ERR_IO, "--text %s: cannot be opened: %s; check the path", path,
                                strerror(errno));
    return S_ISDIR(info.st_mode) ? add_folder(text, path, 0) : add_file(text, path, false);
}

eo_status tool_data_load_text(struct tool_data *data, const char *const *paths, uint32_t path_count,
                              struct tool_problem *problem)
{
    struct text text = {.problem = problem};
    eo_status status = EO_OK;
    for (uint32_t i = 0; i < path_count && status >= 0; i++)
        status = add_named(&text, paths[i]);
    char left_out[300] = "";
    if (text.left_out)
        snprintf(left_out, sizeof(left_out),
                 "links and files above 64 MiB of a folder are left out: %u, such as %s; name them with --text", text.left_out,
                 text.left_path);
    if (status >= 0 && text.count == 0)
        status = tool_problem_set(problem, EO_ERR_INVALID, "--text %s: holds no text%s%s; give a file or folder with some",
                                  path_count ? paths[0] : "", left_out[0] ? ": " : "", left_out);
    if (status < 0) {
        free(text.bytes);
        return status;
    }
    *data = (struct tool_data){
        .is_text = true,
        .token_bytes = 1,
        .tokens = text.bytes,
        .count = text.count,
        .own_count = text.count,
        .training_count = text.count - text.count / 10,
        .file_count = text.file_count,
        .owned = text.bytes,
    };
    const char *json = text.json_count ? text.json_path : "";
    snprintf(data->warning, sizeof(data->warning), "%s%s%s%s%s%s%s", left_out[0] ? "--text: " : "", left_out,
             left_out[0] && json[0] ? "; " : "", json[0] ? "--text " : "", json, text.json_count > 1 ? " and others" : "",
             json[0] ? ": trained on as it is, with the signs and names of JSON; extract the text first (jq -r .text)" : "");
    return EO_OK;
}
