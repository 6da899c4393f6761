/* SPDX-License-Identifier: MIT
 *
 * What an output may be written over: nothing, an empty file, or a file that the same option wrote before. Devices and
 * pipes, and the program's own standard output, are written to as they are.
 */
#ifndef EO_TOOLS_SHARED_OVERWRITE_H
#define EO_TOOLS_SHARED_OVERWRITE_H

#include <stdio.h>

#include "tools/shared/problem.h"

/* A file or folder that the program reads. A path of NULL: none. */
struct tool_input {
    const char *option, *path;
};

/* Whether a file with something in it is there, which a write would lose; not a device, nor the program's own output. */
bool tool_overwrite_holds_something(const char *path);

/* EO_ERR_INVALID: something else is there, which is not overwritten. `option`: such as "--log". */
EO_NODISCARD eo_status tool_overwrite_check(const char *option, const char *path, struct tool_problem *problem);

/* EO_ERR_INVALID: the output is one of the inputs, or, of --text, which reads all of a folder, lies in it. A path of NULL is no
 * output. */
EO_NODISCARD eo_status tool_overwrite_no_input(const char *option, const char *path, const struct tool_input *inputs,
                                               uint32_t count, struct tool_problem *problem);

/* Whether two outputs would be one file; false where either is NULL, or a device. */
bool tool_overwrite_is_same(const char *path, const char *other);

/* Checks once more, for a file may have come while the program ran; opens the output and empties it, and says on standard
 * error where it replaces a file. EO_ERR_INVALID, EO_ERR_IO: *out is NULL. */
EO_NODISCARD eo_status tool_overwrite_open(FILE **out, const char *option, const char *path, struct tool_problem *problem);

/* Whether a file of this name can be created, or replaces one of its kind, without doing it. NULL: no file. */
EO_NODISCARD eo_status tool_check_writable(const char *option, const char *path, struct tool_problem *problem);

/* Whether files can be written in a folder of this name, or the folder can be made, without doing it. NULL: no folder. */
EO_NODISCARD eo_status tool_check_folder(const char *option, const char *path, struct tool_problem *problem);

/* Writes text to a new file, or replaces one of its kind. EO_ERR_IO, EO_ERR_INVALID, with the reason. */
EO_NODISCARD eo_status tool_write_file(const char *option, const char *path, const char *text, size_t bytes,
                                       struct tool_problem *problem);
/* Closes it; removes it if it is not whole, or cannot be written. EO_ERR_IO. */
EO_NODISCARD eo_status tool_end_file(FILE *file, const char *option, const char *path, bool is_whole,
                                     struct tool_problem *problem);

#endif
