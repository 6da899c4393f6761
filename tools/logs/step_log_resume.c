/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/logs/csv.h"
#include "tools/shared/open_file.h"
#include "tools/shared/overwrite.h"
#include "tools/logs/step_log.h"

/* A line of a step that the checkpoint knows of; plan and summary are written by each run itself. */
static bool is_kept_object(const char *line, const struct tool_step_log_kept *kept)
{
    json_t *object = json_loads(line, 0, NULL);
    const struct {
        const json_t *number;
        uint64_t last;
    } kinds[] = {{json_object_get(object, "step"), kept->step},
                 {json_object_get(json_object_get(object, "validation"), "step"), kept->validation},
                 {json_object_get(json_object_get(object, "checkpoint"), "step"), kept->step}};
    bool is_kept = false;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        is_kept |= json_is_integer(kinds[i].number) && (uint64_t)json_integer_value(kinds[i].number) <= kinds[i].last;
    json_decref(object);
    return is_kept;
}

/* A row of a table, which begins with its step, or the table's head. That of a validation has no loss of the step. */
static bool is_kept_row(const char *line, const struct tool_step_log_kept *kept)
{
    char *end;
    const unsigned long long number = strtoull(line, &end, 10);
    const uint64_t last = strncmp(end, ",,", 2) == 0 ? kept->validation : kept->step;
    return strncmp(line, TOOL_CSV_HEAD, strlen(TOOL_CSV_HEAD)) == 0 ||
           (line[0] >= '0' && line[0] <= '9' && *end == ',' && number <= last && strchr(end, '\n'));
}

static bool is_kept(const char *option, const char *line, const struct tool_step_log_kept *kept)
{
    return strcmp(option, "--csv") == 0 ? is_kept_row(line, kept) : is_kept_object(line, kept);
}

static bool copy_lines(FILE *from, FILE *to, const char *option, const struct tool_step_log_kept *kept)
{
    char *line = NULL;
    size_t room = 0;
    bool good = true;
    ssize_t length;
    while (good && (length = getline(&line, &room, from)) > 0) {
        if (length > 1 && strcmp(line + length - 2, "\r\n") == 0) /* saved by another program: one end for all lines */
            strcpy(line + length - 2, "\n");
        if (is_kept(option, line, kept))
            good = fputs(line, to) >= 0 && (strchr(line, '\n') || fputc('\n', to) != EOF); /* the last one may be cut */
    }
    free(line);
    return good && !ferror(from) && fflush(to) == 0 && tool_sync(fileno(to));
}

/* In the folder of `path`, with the rights of the old one where the disk knows rights. Where the file system can, without a
 * name until it is whole: a run that is killed meanwhile leaves nothing behind. Else `path` becomes a name that no file has. */
static FILE *open_new(char *path, FILE *old, bool *is_named)
{
    struct stat info;
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    *strrchr(folder, '/') = '\0';
    const bool has_links = access("/proc/self/fd", X_OK) == 0;
    const int unnamed = has_links ? open(folder[0] ? folder : "/", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600) : -1;
    *is_named = unnamed < 0;
    const int descriptor = *is_named ? mkostemp(path, O_CLOEXEC) : unnamed;
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    if (file && fstat(fileno(old), &info) == 0)
        (void)!fchmod(descriptor, info.st_mode & 0777);
    if (descriptor >= 0 && !file)
        close(descriptor);
    if (descriptor >= 0 && !file && *is_named)
        remove(path);
    return file;
}

/* A link cannot take another file's place, so it gets a name of its own before. */
static bool give_name(FILE *file, char *path, const char *real_path)
{
    enum { TRIES = 100 };
    char link[64];
    int result = -1;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fileno(file));
    for (int i = 0; i < TRIES && result != 0; i++) {
        snprintf(path, PATH_MAX, "%s.%d-%d", real_path, (int)getpid(), i);
        result = linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
        if (result != 0 && errno != EEXIST)
            return false;
    }
    return result == 0;
}

eo_status tool_step_log_resume(struct tool_step_log *log, const char *option, const char *path,
                               const struct tool_step_log_kept *kept, struct tool_problem *problem)
{
    enum { NAME_BYTES = 32 };
    char real_path[PATH_MAX], new_path[PATH_MAX]; /* a link stays one */
    if (!path || !tool_overwrite_holds_something(path))
        return tool_step_log_open(log, option, path, problem);
    *log = (struct tool_step_log){.option = option, .path = path};
    EO_TRY(tool_overwrite_check(option, path, problem));
    if (!realpath(path, real_path) || strlen(real_path) + NAME_BYTES > sizeof(new_path))
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: a path of %zu bytes; give another", option, strlen(path));
    FILE *from, *to;
    bool is_named;
    EO_TRY(tool_open_stream(&from, option, path, problem));
    snprintf(new_path, sizeof(new_path), "%s.XXXXXX", real_path);
    to = open_new(new_path, from, &is_named);
    bool good = to && copy_lines(from, to, option, kept);
    if (good && !is_named)
        good = is_named = give_name(to, new_path, real_path);
    good = good && rename(new_path, real_path) == 0;
    const int error = errno;
    fclose(from);
    if (!good && to)
        fclose(to);
    if (!good && to && is_named)
        remove(new_path);
    if (!good)
        return tool_problem_set(problem, EO_ERR_IO, "%s %s: cannot be continued: %s; choose another path", option, path,
                                strerror(error));
    log->file = to;
    log->whole_bytes = ftello(to);
    return EO_OK;
}
