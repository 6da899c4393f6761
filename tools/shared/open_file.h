/* SPDX-License-Identifier: MIT
 *
 * How the programs open files. A path can name anything: a pipe that nobody writes to would be waited for, and /dev/zero
 * never ends. So nothing is waited for, and what is read is a regular file, or the word says what it is instead. Links are
 * followed: what they lead to counts.
 *
 * Where a function takes an option, its name stands before the path in what is said; "" is none.
 */
#ifndef EO_TOOLS_SHARED_OPEN_FILE_H
#define EO_TOOLS_SHARED_OPEN_FILE_H

#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tools/shared/problem.h"

/* For reading. EO_ERR_IO: cannot be opened; EO_ERR_INVALID: is no file. *bytes (NULL is taken) gets its size. */
EO_NODISCARD eo_status tool_open_input(int *out, uint64_t *bytes, const char *option, const char *path,
                                       struct tool_problem *problem);
EO_NODISCARD eo_status tool_open_stream(FILE **out, const char *option, const char *path, struct tool_problem *problem);

/* Reads JSON, of at most so many bytes, and a value for each TOOL_JSON_VALUE_BYTES of them (tool_json_values), so parsed it has
 * about as many; with no name twice in an object. To be released by the caller. */
enum { TOOL_JSON_VALUE_BYTES = 64 };
EO_NODISCARD eo_status tool_open_json(json_t **out, uint64_t bytes_max, const char *option, const char *path,
                                      struct tool_problem *problem);

/* The descriptor, 1 or 2, that this program writes to anyway: its place in a file is shared, a pipe of it has somebody who
 * reads. -1: neither. */
int tool_open_own_output(const struct stat *info);

/* Whether it may be written to, without opening it: it is a file, a device (/dev/null), this program's own output
 * (/dev/stdout, a pipe too) or not there. EO_ERR_INVALID. */
EO_NODISCARD eo_status tool_open_check_output(const char *option, const char *path, struct tool_problem *problem);

/* The same, and creates or empties it. */
EO_NODISCARD eo_status tool_open_output(FILE **out, const char *option, const char *path, struct tool_problem *problem);

/* Whether a file, or a folder, is on the disk, or the file system has no such call, as some of networks and in user space. */
bool tool_sync(int file);

#endif
