/* SPDX-License-Identifier: MIT */
#include "tools/shared/open_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/shared/json_output.h"

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                            : "something else";
}

static const char *space_after(const char *option)
{
    return option[0] ? " " : "";
}

static eo_status refuse_kind(const char *option, const char *path, mode_t mode, struct tool_problem *problem)
{
    return tool_problem_set(problem, EO_ERR_INVALID, "%s%s%s: is not a file, but %s; name a file", option, space_after(option),
                            path, kind_of(mode));
}

static eo_status tell_error(const char *option, const char *path, int error, struct tool_problem *problem)
{
    return tool_problem_set(problem, EO_ERR_IO, "%s%s%s: %s%s", option, space_after(option), path, strerror(error),
                            error == ENOENT ? "; check the path" : "");
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

eo_status tool_open_input(int *out, uint64_t *bytes, const char *option, const char *path, struct tool_problem *problem)
{
    struct stat info;
    *out = -1;
    /* A device may act when it is opened: it is asked before what it is, and afterwards, if it has become another. */
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return refuse_kind(option, path, info.st_mode, problem);
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return tell_error(option, path, errno, problem);
    eo_status status = EO_OK;
    if (fstat(file, &info) != 0)
        status = tell_error(option, path, errno, problem);
    else if (!S_ISREG(info.st_mode))
        status = refuse_kind(option, path, info.st_mode, problem);
    if (status < 0) {
        close(file);
        return status;
    }
    if (bytes)
        *bytes = (uint64_t)info.st_size;
    *out = file;
    return EO_OK;
}

eo_status tool_open_stream(FILE **out, const char *option, const char *path, struct tool_problem *problem)
{
    int file;
    *out = NULL;
    EO_TRY(tool_open_input(&file, NULL, option, path, problem));
    *out = fdopen(file, "r");
    if (*out)
        return EO_OK;
    const int error = errno;
    close(file);
    return tell_error(option, path, error, problem);
}

/* NULL: errno says why not. */
static char *read_text(int file, uint64_t *bytes)
{
    char *text = malloc(*bytes + 1);
    uint64_t used = 0;
    ssize_t got = text ? 1 : -1;
    while (used < *bytes && got > 0) {
        do
            got = read(file, text + used, *bytes - used);
        while (got < 0 && errno == EINTR);
        used += got > 0 ? (uint64_t)got : 0;
    }
    *bytes = used;
    if (got >= 0)
        return text;
    const int error = errno;
    free(text);
    errno = error;
    return NULL;
}

static eo_status parse_json(json_t **out, uint64_t values_max, const char *text, uint64_t bytes, const char *option,
                            const char *path, struct tool_problem *problem)
{
    json_error_t error;
    const uint64_t values = tool_json_values(text, bytes);
    if (values > values_max)
        return tool_problem_set(problem, EO_ERR_INVALID, "%s%s%s: has about %" PRIu64 " values; at most %" PRIu64 " are read",
                                option, space_after(option), path, values, values_max);
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    return *out ? EO_OK
                : tool_problem_set(problem, EO_ERR_INVALID, "%s%s%s: line %d: %s", option, space_after(option), path,
                                   error.line, error.text);
}

eo_status tool_open_json(json_t **out, uint64_t bytes_max, const char *option, const char *path, struct tool_problem *problem)
{
    int file;
    uint64_t bytes;
    *out = NULL;
    EO_TRY(tool_open_input(&file, &bytes, option, path, problem));
    const bool fits = bytes <= bytes_max;
    char *text = fits ? read_text(file, &bytes) : NULL;
    const int error = errno;
    close(file);
    if (!fits)
        return tool_problem_set(problem, EO_ERR_INVALID, "%s%s%s: has %" PRIu64 " bytes; at most %" PRIu64 " are read",
                                option, space_after(option), path, bytes, bytes_max);
    if (!text && error == ENOMEM)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s%s%s: no memory", option, space_after(option), path);
    if (!text)
        return tell_error(option, path, error, problem);
    const eo_status status = parse_json(out, bytes_max / TOOL_JSON_VALUE_BYTES, text, bytes, option, path, problem);
    free(text);
    return status;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

int tool_open_own_output(const struct stat *info)
{
    struct stat own;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (fstat(fd, &own) == 0 && own.st_dev == info->st_dev && own.st_ino == info->st_ino)
            return fd;
    return -1;
}

static bool may_write(const struct stat *info)
{
    return S_ISREG(info->st_mode) || S_ISCHR(info->st_mode) || tool_open_own_output(info) >= 0;
}

eo_status tool_open_check_output(const char *option, const char *path, struct tool_problem *problem)
{
    struct stat info;
    return stat(path, &info) != 0 || may_write(&info) ? EO_OK : refuse_kind(option, path, info.st_mode, problem);
}

/* -1: errno says why. */
static int create(const char *path)
{
    struct stat info;
    const int own = stat(path, &info) == 0 ? tool_open_own_output(&info) : -1;
    if (own >= 0) {
        fflush(stdout);
        return fcntl(own, F_DUPFD_CLOEXEC, 3);
    }
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (file >= 0)
        (void)fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
    return file;
}

eo_status tool_open_output(FILE **out, const char *option, const char *path, struct tool_problem *problem)
{
    struct stat info;
    *out = NULL;
    EO_TRY(tool_open_check_output(option, path, problem));
    const int file = create(path);
    if (file >= 0 && fstat(file, &info) == 0 && !may_write(&info)) { /* it has become another one */
        close(file);
        return refuse_kind(option, path, info.st_mode, problem);
    }
    *out = file >= 0 ? fdopen(file, "w") : NULL;
    if (*out)
        return EO_OK;
    const int error = errno;
    if (file >= 0)
        close(file);
    return tool_problem_set(problem, EO_ERR_IO, "%s%s%s: cannot be created: %s; choose another path", option,
                            space_after(option), path, strerror(error));
}

bool tool_sync(int file)
{
    return fsync(file) == 0 || errno == EINVAL || errno == EOPNOTSUPP;
}
