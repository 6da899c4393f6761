/* SPDX-License-Identifier: MIT */
#include "base/kernel_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The files read here are short, but memory.stat. */
enum { TEXT_BYTES = 8192, PATH_BYTES = 4096 };

bool eo_kernel_text(const char *path, char *text, size_t bytes)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    size_t used = 0;
    for (;;) {
        const ssize_t got = read(file, text + used, bytes - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(file);
    text[used] = '\0';
    return used > 0;
}

static bool find_number(const char *text, const char *key, uint64_t *out)
{
    const size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) != 0)
            continue;
        char *end;
        *out = strtoull(line + length, &end, 10);
        return end != line + length;
    }
    return false;
}

bool eo_kernel_number(const char *folder, const char *name, const char *key, uint64_t *out)
{
    char path[PATH_BYTES + 64], text[TEXT_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return eo_kernel_text(path, text, sizeof(text)) && find_number(text, key, out);
}
