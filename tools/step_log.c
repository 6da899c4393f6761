/* SPDX-License-Identifier: MIT */
#include "tools/step_log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/overwrite.h"

eo_status eo_check_writable(const char *option, const char *path, struct eo_problem *problem)
{
    if (!path)
        return EO_OK;
    char folder[4096];
    struct stat info;
    if (strlen(path) == 0 || strlen(path) >= sizeof(folder))
        return eo_problem_set(problem, EO_ERR_INVALID, "%s: a path of %zu bytes; give another", option, strlen(path));
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode))
            return eo_problem_set(problem, EO_ERR_INVALID, "%s %s: is a folder; name a file in it", option, path);
        if (access(path, W_OK) != 0)
            return eo_problem_set(problem, EO_ERR_IO, "%s %s: cannot be written: %s", option, path, strerror(errno));
        return eo_overwrite_check(option, path, problem);
    }
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    if (access(slash ? folder : ".", W_OK | X_OK) != 0)
        return eo_problem_set(problem, EO_ERR_IO, "%s %s: the folder cannot be written to: %s; make it, or choose "
                              "another", option, path, strerror(errno));
    return EO_OK;
}

eo_status eo_step_log_open(struct eo_step_log *log, const char *path, struct eo_problem *problem)
{
    *log = (struct eo_step_log){.path = path};
    if (!path)
        return EO_OK;
    return eo_overwrite_open(&log->file, "--log", path, problem);
}

static void give_up(struct eo_step_log *log, const char *why)
{
    fprintf(stderr, "%s: --log %s: cannot be written: %s; training goes on without it\n", program_invocation_short_name,
            log->path, why);
    fclose(log->file);
    log->file = NULL;
}

void eo_step_log_write(struct eo_step_log *log, json_t *object)
{
    if (log->file) {
        char *line = json_dumps(object, JSON_COMPACT);
        if (!line)
            give_up(log, "no memory");
        else if (fprintf(log->file, "%s\n", line) < 0 || fflush(log->file) != 0)
            give_up(log, strerror(errno));
        free(line);
    }
    json_decref(object);
}

void eo_step_log_close(struct eo_step_log *log)
{
    if (!log->file)
        return;
    FILE *file = log->file;
    log->file = NULL;
    if (fclose(file) != 0)
        fprintf(stderr, "%s: --log %s: the end may be missing: %s\n", program_invocation_short_name, log->path,
                strerror(errno));
}

eo_status eo_write_file(const char *option, const char *path, const char *text, size_t bytes,
                        struct eo_problem *problem)
{
    FILE *file;
    TOOLS_TRY(eo_overwrite_open(&file, option, path, problem));
    bool written = fwrite(text, 1, bytes, file) == bytes && fflush(file) == 0;
    int error = errno;
    if (fclose(file) != 0 && written) {
        written = false;
        error = errno;
    }
    struct stat info;
    if (!written && lstat(path, &info) == 0 && S_ISREG(info.st_mode))
        unlink(path); /* half a file is worse than none */
    return written ? EO_OK : eo_problem_set(problem, EO_ERR_IO, "%s %s: cannot be written: %s", option, path,
                                            strerror(error));
}

json_t *eo_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}
