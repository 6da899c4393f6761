/* SPDX-License-Identifier: MIT */
#include "tools/shared/overwrite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/shared/open_file.h"

enum { HEAD_BYTES = 1024, OVERWRITE_PATH_MAX = 4096 };

/* How the files of an option begin. `within`: somewhere in the first HEAD_BYTES. */
static const struct file_mark {
    const char *option, *what, *begin, *within;
} file_marks[] = {
    {"--log", "log of train", "{\"plan\":{", NULL},
    {"--log", "log of train", "{\"step\":", "\"grad_norm\":"},
    {"--log", "log of train", "{\"validation\":{\"step\":", NULL},
    {"--log", "log of train", "{\"checkpoint\":{\"step\":", NULL},
    {"--csv", "table of train", "step,loss,grad_norm,lr,", NULL},
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

bool tool_overwrite_holds_something(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 && tool_open_own_output(&info) < 0;
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

eo_status tool_overwrite_check(const char *option, const char *path, struct tool_problem *problem)
{
    char head[HEAD_BYTES + 1];
    EO_TRY(tool_open_check_output(option, path, problem));
    if (!tool_overwrite_holds_something(path))
        return EO_OK;
    FILE *file;
    EO_TRY(tool_open_stream(&file, option, path, problem));
    head[fread(head, 1, HEAD_BYTES, file)] = '\0';
    fclose(file);
    if (begins_as_ours(option, head))
        return EO_OK;
    return tool_problem_set(problem, EO_ERR_INVALID,
                            "%s %s: already exists and is not a %s, so it is not overwritten; choose another path, or remove "
                            "the file",
                            option, path, what_of(option));
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

eo_status tool_overwrite_no_input(const char *option, const char *path, const struct tool_input *inputs, uint32_t count,
                                  struct tool_problem *problem)
{
    struct stat info, input;
    if (!path || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return EO_OK;
    for (uint32_t i = 0; i < count; i++) {
        if (!inputs[i].path)
            continue;
        if ((stat(inputs[i].path, &input) == 0 && is_same_file(&info, &input)) ||
            (strcmp(inputs[i].option, "--text") == 0 && is_in(path, inputs[i].path)))
            return tool_problem_set(problem, EO_ERR_INVALID,
                                    "%s %s: is also read by %s %s, so it is not overwritten; choose another path",
                                    option, path, inputs[i].option, inputs[i].path);
    }
    return EO_OK;
}

bool tool_overwrite_is_same(const char *path, const char *other)
{
    char real[OVERWRITE_PATH_MAX], real_other[OVERWRITE_PATH_MAX];
    struct stat info, other_info;
    if (!path || !other)
        return false;
    const bool is_there = stat(path, &info) == 0;
    if (is_there && (!S_ISREG(info.st_mode) || tool_open_own_output(&info) >= 0))
        return false;
    if (is_there && stat(other, &other_info) == 0)
        return is_same_file(&info, &other_info);
    return real_path_of(path, real) && real_path_of(other, real_other) && strcmp(real, real_other) == 0;
}

eo_status tool_overwrite_open(FILE **out, const char *option, const char *path, struct tool_problem *problem)
{
    *out = NULL;
    EO_TRY(tool_overwrite_check(option, path, problem));
    const bool replaces = tool_overwrite_holds_something(path);
    EO_TRY(tool_open_output(out, option, path, problem));
    if (replaces) {
        struct tool_problem note; /* cleaned for a terminal */
        (void)tool_problem_set(&note, EO_OK, "%s %s: replacing an older %s", option, path, what_of(option));
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, note.text);
    }
    return EO_OK;
}

/* Of a file errno says that it is no folder. */
static bool can_write_in(const char *folder)
{
    char inside[OVERWRITE_PATH_MAX + 2];
    snprintf(inside, sizeof(inside), "%s/.", folder);
    return access(inside, W_OK | X_OK) == 0;
}

eo_status tool_check_writable(const char *option, const char *path, struct tool_problem *problem)
{
    if (!path)
        return EO_OK;
    char folder[4096];
    struct stat info;
    if (strlen(path) == 0 || strlen(path) >= sizeof(folder))
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: a path of %zu bytes; give another", option, strlen(path));
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode))
            return tool_problem_set(problem, EO_ERR_INVALID, "%s %s: is a folder; name a file in it", option, path);
        if (access(path, W_OK) != 0)
            return tool_problem_set(problem, EO_ERR_IO, "%s %s: cannot be written: %s", option, path, strerror(errno));
        return tool_overwrite_check(option, path, problem);
    }
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    if (!can_write_in(slash ? folder : "."))
        return tool_problem_set(problem, EO_ERR_IO, "%s %s: cannot write to the folder: %s; %schoose another", option, path,
                                strerror(errno), errno == ENOENT ? "create it, or " : "");
    return EO_OK;
}

eo_status tool_check_folder(const char *option, const char *path, struct tool_problem *problem)
{
    char parent[OVERWRITE_PATH_MAX];
    struct stat info;
    if (!path)
        return EO_OK;
    if (strlen(path) == 0 || strlen(path) >= sizeof(parent) - 128)
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: a path of %zu bytes; give another", option, strlen(path));
    if (stat(path, &info) == 0) {
        if (!S_ISDIR(info.st_mode))
            return tool_problem_set(problem, EO_ERR_INVALID, "%s %s: is not a folder; name one", option, path);
        if (access(path, W_OK | X_OK) != 0)
            return tool_problem_set(problem, EO_ERR_IO, "%s %s: cannot be written to: %s; choose another folder", option, path,
                                    strerror(errno));
        return EO_OK;
    }
    snprintf(parent, sizeof(parent), "%s", path);
    for (size_t end = strlen(parent); end > 1 && parent[end - 1] == '/'; end--)
        parent[end - 1] = '\0';
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    if (!can_write_in(slash ? parent : "."))
        return tool_problem_set(problem, EO_ERR_IO, "%s %s: cannot be created: %s; %schoose another", option, path,
                                strerror(errno), errno == ENOENT ? "create its parent folder, or " : "");
    return EO_OK;
}

eo_status tool_end_file(FILE *file, const char *option, const char *path, bool is_whole, struct tool_problem *problem)
{
    struct stat info;
    bool written = fflush(file) == 0 && !ferror(file);
    int error = errno;
    if (fclose(file) != 0 && written) {
        written = false;
        error = errno;
    }
    if ((!is_whole || !written) && lstat(path, &info) == 0 && S_ISREG(info.st_mode))
        unlink(path); /* half a file is worse than none */
    return written ? EO_OK
                   : tool_problem_set(problem, EO_ERR_IO, "%s %s: cannot be written: %s", option, path, strerror(error));
}

eo_status tool_write_file(const char *option, const char *path, const char *text, size_t bytes, struct tool_problem *problem)
{
    FILE *file;
    EO_TRY(tool_overwrite_open(&file, option, path, problem));
    fwrite(text, 1, bytes, file);
    return tool_end_file(file, option, path, true, problem);
}
