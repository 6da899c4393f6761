/* SPDX-License-Identifier: MIT
 *
 * Room on a disk, or in a file of memory, taken before it is needed.
 */
#ifndef EO_BASE_RESERVE_H
#define EO_BASE_RESERVE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

/* The first bytes of a file. false: errno. A signal ends a long call, whatever its handler asks for: then once more. */
static inline bool eo_reserve_bytes(int fd, uint64_t bytes)
{
    int result;
    do
        result = fallocate(fd, 0, 0, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

#endif
