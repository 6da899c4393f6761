/* SPDX-License-Identifier: MIT
 *
 * Open files and sockets in which a forked child has no part. A child that runs no other program would keep them: the other
 * ends of connections would wait for a process that has ended, names stay in use, and locks held. So it closes all of them.
 */
#ifndef EO_BASE_OWN_FILES_H
#define EO_BASE_OWN_FILES_H

/* No fork comes between the two; what is opened there must not wait. `end` returns it, or -1 with its errno. */
void eo_own_files_begin(void);
int eo_own_files_end(int fd);

void eo_own_file_close(int fd);

#endif
