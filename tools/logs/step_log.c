/* SPDX-License-Identifier: MIT */
#include "tools/logs/step_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/shared/open_file.h"
#include "tools/shared/overwrite.h"

eo_status tool_step_log_open(struct tool_step_log *log, const char *option, const char *path, struct tool_problem *problem)
{
    *log = (struct tool_step_log){.option = option, .path = path};
    if (!path)
        return EO_OK;
    EO_TRY(tool_overwrite_open(&log->file, option, path, problem));
    tool_step_log_append(log);
    return EO_OK;
}

static bool is_own_file(const struct tool_step_log *log, struct stat *info)
{
    return fstat(fileno(log->file), info) == 0 && S_ISREG(info->st_mode) && tool_open_own_output(info) < 0;
}

void tool_step_log_append(struct tool_step_log *log)
{
    struct stat info;
    const int descriptor = fileno(log->file);
    if (is_own_file(log, &info))
        (void)fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_APPEND);
}

/* A line without an end is refused by who reads the file; taking it out needs no room. */
static void drop_cut_line(const struct tool_step_log *log)
{
    struct stat info;
    __fpurge(log->file);
    if (is_own_file(log, &info) && info.st_size > log->whole_bytes)
        (void)!ftruncate(fileno(log->file), log->whole_bytes);
}

static void give_up(struct tool_step_log *log, const char *why)
{
    fprintf(stderr, "%s: %s %s: cannot be written: %s; training continues without it\n", program_invocation_short_name,
            log->option, log->path, why);
    drop_cut_line(log);
    fclose(log->file);
    log->file = NULL;
    log->is_lost = true;
}

/* A line of the file is an object: the ends of lines in it are left out. */
static void add_to_line(void *user, const char *text, size_t bytes)
{
    const struct tool_step_log *log = user;
    for (size_t i = 0; log->file && i < bytes; i++)
        if (text[i] != '\n')
            putc(text[i], log->file);
}

struct eo_json tool_step_log_line(struct tool_step_log *log)
{
    return (struct eo_json){.write = add_to_line, .user = log};
}

void tool_step_log_end(struct tool_step_log *log)
{
    if (log->file && (putc('\n', log->file) == EOF || fflush(log->file) != 0 || ferror(log->file)))
        give_up(log, strerror(errno));
    if (log->file)
        log->whole_bytes = ftello(log->file);
}

void tool_step_log_close(struct tool_step_log *log)
{
    if (!log->file)
        return;
    FILE *file = log->file;
    log->file = NULL;
    if (fclose(file) == 0)
        return;
    fprintf(stderr, "%s: %s %s: the end may be missing: %s\n", program_invocation_short_name, log->option, log->path,
            strerror(errno));
    log->is_lost = true;
}
