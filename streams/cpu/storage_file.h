/* SPDX-License-Identifier: MIT
 *
 * The file for what does not fit into memory. It has no name where the file system can make such (O_TMPFILE); else its name
 * goes at once, and is under a lock from its first moment until the file is closed. So a name without a lock is of a job
 * that was killed before it could take the name away.
 */
#ifndef EO_STREAMS_CPU_STORAGE_FILE_H
#define EO_STREAMS_CPU_STORAGE_FILE_H

#include <stdint.h>

/* As open(): -1 and errno. */
int eo_storage_file_open(const char *folder, int flags);

/*
 * Removes the files of this user that killed jobs have left, of any host, and says how many. Where the file system has no
 * locks, none is removed. Anything that has another form of name, or is no plain file, stays.
 */
uint32_t eo_storage_file_remove_left(const char *folder);

#endif
