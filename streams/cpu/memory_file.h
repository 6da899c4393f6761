/* SPDX-License-Identifier: MIT
 *
 * Files of memory without a name, sealed: nobody can change their size.
 */
#ifndef EO_STREAMS_CPU_MEMORY_FILE_H
#define EO_STREAMS_CPU_MEMORY_FILE_H

#include <stdbool.h>
#include <stdint.h>

/* A new file of `bytes`. -1: errno. */
int eo_memory_file_make(const char *name, uint64_t bytes);
/* Whether `fd` is such a file, of `bytes`, and can be written. */
bool eo_memory_file_is(int fd, uint64_t bytes);

#endif
