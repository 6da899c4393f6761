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

/* Each run writes them itself, and none says a step again. Long ones may be cut off with their run. */
static bool is_of_a_run(const char *line)
{
    return (strncmp(line, "{\"plan\":", 8) == 0 || strncmp(line, "{\"summary\":", 11) == 0) && strchr(line, '\n');
}

/* Where no other file can take its place: one that is mounted, say, another's in a folder of all, one that may only grow, or a
 * name without room for more. It is cut off where the first later step begins: plans and summaries of the runs before stay, and
 * a validation that is made again; the line of a checkpoint that became whole only later goes. NULL: a step would go, too. */
static FILE *open_in_place(const char *path, const char *option, const struct tool_step_log_kept *kept)
{
    const struct tool_step_log_kept all = {.step = kept->step, .validation = kept->step};
    const int descriptor = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "a+") : NULL;
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int64_t at = 0, end = 0;
    bool good = file, is_cut = false;
    while (good && (length = getline(&line, &room, file)) > 0) {
        at += length;
        const bool is_wanted = is_kept(option, line, &all);
        good = !is_cut || !is_wanted || strncmp(line, "{\"checkpoint\":", 14) == 0;
        is_cut |= !is_wanted && !is_of_a_run(line);
        end = is_cut ? end : at;
        if (!is_cut && line[length - 1] != '\n')
            good = putc('\n', file) != EOF && fflush(file) == 0;
    }
    free(line);
    good = good && !ferror(file) && (!is_cut || ftruncate(descriptor, end) == 0) && fseeko(file, 0, SEEK_END) == 0;
    if (!good && file)
        fclose(file);
    else if (!good && descriptor >= 0)
        close(descriptor);
    return good ? file : NULL;
}

/* NULL: errno says why. */
static FILE *replace(const char *real_path, FILE *old, const char *option, const struct tool_step_log_kept *kept)
{
    char new_path[PATH_MAX];
    bool is_named;
    snprintf(new_path, sizeof(new_path), "%s.XXXXXX", real_path);
    FILE *file = open_new(new_path, old, &is_named);
    bool good = file && copy_lines(old, file, option, kept);
    if (good && !is_named)
        good = is_named = give_name(file, new_path, real_path);
    if (good && rename(new_path, real_path) == 0)
        return file;
    const int error = errno;
    if (file)
        fclose(file);
    if (file && is_named)
        remove(new_path);
    errno = error;
    return NULL;
}

eo_status tool_step_log_resume(struct tool_step_log *log, const char *option, const char *path,
                               const struct tool_step_log_kept *kept, struct tool_problem *problem)
{
    enum { NAME_BYTES = 32 };
    char real_path[PATH_MAX]; /* a link stays one */
    if (!path || !tool_overwrite_holds_something(path))
        return tool_step_log_open(log, option, path, problem);
    *log = (struct tool_step_log){.option = option, .path = path};
    EO_TRY(tool_overwrite_check(option, path, problem));
    if (!realpath(path, real_path) || strlen(real_path) + NAME_BYTES > sizeof(real_path))
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: a path of %zu bytes; give another", option, strlen(path));
    FILE *from;
    EO_TRY(tool_open_stream(&from, option, path, problem));
    log->file = replace(real_path, from, option, kept);
    const int error = errno;
    fclose(from);
    if (!log->file)
        log->file = open_in_place(real_path, option, kept);
    if (!log->file)
        return tool_problem_set(problem, EO_ERR_IO, "%s %s: cannot be continued: %s; choose another path", option, path,
                                strerror(error));
    log->whole_bytes = ftello(log->file);
    tool_step_log_append(log);
    return EO_OK;
}
