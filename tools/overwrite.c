/* SPDX-License-Identifier: MIT */
#include "tools/overwrite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/open_file.h"

enum { HEAD_BYTES = 1024, OVERWRITE_PATH_MAX = 4096 };

/* How the files of an option begin. `within`: somewhere in the first HEAD_BYTES. */
static const struct file_mark {
    const char *option, *what, *begin, *within;
} file_marks[] = {
    {"--log", "log of train", "{\"plan\":{", NULL},
    {"--log", "log of train", "{\"step\":", "\"grad_norm\":"},
    {"--log", "log of train", "{\"validation\":{\"step\":", NULL},
    {"--log", "log of train", "{\"checkpoint\":{\"step\":", NULL},
    {"--trace", "trace", "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", NULL},
    {"--json", "comparison of headtohead", "{\n \"schema\": 1,\n \"settings\":", NULL},
    {"--html", "page of evenodd", "<!doctype html>\n", "<title>evenodd: planned and dynamic memory</title>"},
    {"--html", "page of evenodd", "<!doctype html>\n", "<title>memory plan</title>"},
    {"--svg", "picture of memplan", "<?xml ", "aria-label=\"memory of a step by offset and time\""},
    {"--product-cache", "file of product plans", "evenodd product plans ", NULL},
};
enum { FILE_MARK_COUNT = sizeof(file_marks) / sizeof(file_marks[0]) };

static const char *what_of(const char *option)
{
    for (int i = 0; i < FILE_MARK_COUNT; i++)
        if (strcmp(file_marks[i].option, option) == 0)
            return file_marks[i].what;
    return "output";
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* A file with something in it, that a write would lose. */
static bool holds_something(const char *path, struct stat *info)
{
    return stat(path, info) == 0 && S_ISREG(info->st_mode) && info->st_size > 0 && eo_open_own_output(info) < 0;
}

static bool begins_as_ours(const char *option, const char *head)
{
    for (int i = 0; i < FILE_MARK_COUNT; i++) {
        const struct file_mark *mark = &file_marks[i];
        if (strcmp(mark->option, option) == 0 && strncmp(head, mark->begin, strlen(mark->begin)) == 0 &&
            (!mark->within || strstr(head, mark->within)))
            return true;
    }
    return false;
}

eo_status eo_overwrite_check(const char *option, const char *path, struct eo_problem *problem)
{
    char head[HEAD_BYTES + 1];
    struct stat info;
    TOOLS_TRY(eo_open_check_output(option, path, problem));
    if (!holds_something(path, &info))
        return EO_OK;
    FILE *file;
    TOOLS_TRY(eo_open_stream(&file, option, path, problem));
    head[fread(head, 1, HEAD_BYTES, file)] = '\0';
    fclose(file);
    if (begins_as_ours(option, head))
        return EO_OK;
    return eo_problem_set(problem, EO_ERR_INVALID, "%s %s: is there already and is no %s, so it is not overwritten; choose "
                          "another path, or remove the file", option, path, what_of(option));
}

/* The path without links and dots, of a file that need not be there. False: its folder is not there, or too long. */
static bool real_path_of(const char *path, char *out)
{
    char folder[OVERWRITE_PATH_MAX], real[OVERWRITE_PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (realpath(path, out))
        return true;
    if (strlen(path) >= sizeof(folder))
        return false;
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    return realpath(folder, real) && snprintf(out, OVERWRITE_PATH_MAX, "%s/%s", real, name) < OVERWRITE_PATH_MAX;
}

static bool is_in(const char *path, const char *folder)
{
    char real[OVERWRITE_PATH_MAX], real_folder[OVERWRITE_PATH_MAX];
    struct stat info;
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode) || !realpath(path, real) || !realpath(folder, real_folder))
        return false;
    const size_t length = strlen(real_folder);
    return strncmp(real, real_folder, length) == 0 && (real[length] == '/' || (length > 0 && real_folder[length - 1] == '/'));
}

eo_status eo_overwrite_no_input(const char *option, const char *path, const struct eo_input *inputs, uint32_t count,
                                struct eo_problem *problem)
{
    struct stat info, input;
    if (!path || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return EO_OK;
    for (uint32_t i = 0; i < count; i++) {
        if (!inputs[i].path)
            continue;
        if ((stat(inputs[i].path, &input) == 0 && is_same_file(&info, &input)) ||
            (strcmp(inputs[i].option, "--text") == 0 && is_in(path, inputs[i].path)))
            return eo_problem_set(problem, EO_ERR_INVALID, "%s %s: is read by %s %s, so it is not overwritten; choose another "
                                  "path", option, path, inputs[i].option, inputs[i].path);
    }
    return EO_OK;
}

bool eo_overwrite_is_same(const char *path, const char *other)
{
    char real[OVERWRITE_PATH_MAX], real_other[OVERWRITE_PATH_MAX];
    struct stat info, other_info;
    if (!path || !other)
        return false;
    const bool is_there = stat(path, &info) == 0;
    if (is_there && (!S_ISREG(info.st_mode) || eo_open_own_output(&info) >= 0))
        return false;
    if (is_there && stat(other, &other_info) == 0)
        return is_same_file(&info, &other_info);
    return real_path_of(path, real) && real_path_of(other, real_other) && strcmp(real, real_other) == 0;
}

eo_status eo_overwrite_open(FILE **out, const char *option, const char *path, struct eo_problem *problem)
{
    struct stat info;
    *out = NULL;
    TOOLS_TRY(eo_overwrite_check(option, path, problem));
    const bool replaces = holds_something(path, &info);
    TOOLS_TRY(eo_open_output(out, option, path, problem));
    if (replaces)
        fprintf(stderr, "%s: %s %s: the %s that was there is replaced\n", program_invocation_short_name, option, path,
                what_of(option));
    return EO_OK;
}
