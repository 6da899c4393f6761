/* SPDX-License-Identifier: MIT
 *
 * Standard output and standard error whose writers never wait for a reader. What a terminal that was stopped, a pager or a
 * full pipe does not take is kept, and a thread writes it when it is taken; everything else is written at once, as always.
 * Rank 0 prints between two steps: were it to wait there, all other ranks would wait for it, and name it as lost.
 */
#ifndef EO_TOOLS_SHARED_PATIENT_OUTPUT_H
#define EO_TOOLS_SHARED_PATIENT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* *stream (stdout or stderr, of STDOUT_FILENO or STDERR_FILENO) from now on; buffered as `mode` says (_IOLBF ...). Where it
 * cannot be, or is already, it stays as it is. For the life of the process. */
void tool_patient_begin(FILE **stream, int fd, int mode);

/* Bytes that nobody has taken yet. */
size_t tool_patient_kept(int fd);

/* Waits until all is taken, or so long; ms < 0: as long as it takes, and SIGINT and SIGTERM end the program meanwhile.
 * False: something is left (EAGAIN), or could not be written; with errno. */
bool tool_patient_end(int ms);

#endif
