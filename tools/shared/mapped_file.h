/* SPDX-License-Identifier: MIT
 *
 * Files that are read through memory. One that becomes shorter while it is mapped, or a disk that fails, ends a process by
 * SIGBUS without a word. Here the missing pages read as zeros instead, and that they do is known: who reads asks afterwards.
 */
#ifndef EO_TOOLS_SHARED_MAPPED_FILE_H
#define EO_TOOLS_SHARED_MAPPED_FILE_H

#include "tools/shared/problem.h"

/* Maps all of an open file for reading; `what` (an option and a path, copied) is how it is called in what is said. Before
 * there are other threads. EO_ERR_IO, EO_ERR_NO_MEMORY (too many files). */
EO_NODISCARD eo_status tool_map_file(const void **out, int file, uint64_t bytes, const char *what,
                                     struct tool_problem *problem);
void tool_unmap_file(const void *map, uint64_t bytes); /* NULL is taken */

/* EO_ERR_IO: a part of a mapped file could not be read, so what was read of it is worth nothing. Any thread. */
EO_NODISCARD eo_status tool_map_check(struct tool_problem *problem);

#endif
