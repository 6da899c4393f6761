/* SPDX-License-Identifier: MIT
 *
 * Buffered access that leaves nothing behind: the page cache counts as the process's memory, is what the machine lacks here, and
 * is of no use, for a piece comes back once a step. So each piece is on its way to the disk when the next is begun, and leaves
 * the cache when that one is written; what was read leaves at once.
 */
#ifndef EO_STREAMS_CPU_STORAGE_CACHE_H
#define EO_STREAMS_CPU_STORAGE_CACHE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "streams/device.h"

/* Two pieces of a copy, one of a read beside it (storage_peek), and one to spare: huge pages and the lists of the kernel's. */
enum { EO_STORAGE_CACHE_PIECE = EO_STORAGE_CACHE_BYTES / 4 };

/* A copy's last piece. */
struct eo_storage_cache {
    int fd;
    bool writes;
    uint64_t offset, bytes;
};

/* No reading ahead: a copy asks for all that it wants. */
static inline void eo_storage_cache_expect_pieces(int fd)
{
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
}

static inline bool eo_storage_cache_sync(const struct eo_storage_cache *cache, unsigned flags)
{
    int result;
    do
        result = sync_file_range(cache->fd, (off_t)cache->offset, (off_t)cache->bytes, flags);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

/* false: errno. Of a file system that cannot write a range alone all is written. */
static inline bool eo_storage_cache_end(struct eo_storage_cache *cache)
{
    enum { ALL = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER };
    if (cache->bytes == 0)
        return true;
    if (cache->writes && !eo_storage_cache_sync(cache, ALL) &&
        (!(errno == ENOSYS || errno == ESPIPE || errno == EINVAL) || fdatasync(cache->fd) != 0))
        return false;
    (void)posix_fadvise(cache->fd, (off_t)cache->offset, (off_t)cache->bytes, POSIX_FADV_DONTNEED);
    cache->bytes = 0;
    return true;
}

/* Another piece has passed. */
static inline bool eo_storage_cache_pass(struct eo_storage_cache *cache, uint64_t offset, uint64_t bytes)
{
    struct eo_storage_cache piece = *cache;
    piece.offset = offset;
    piece.bytes = bytes;
    if (piece.writes)
        (void)eo_storage_cache_sync(&piece, SYNC_FILE_RANGE_WRITE); /* begun: its end is asked for later */
    const bool holds = eo_storage_cache_end(cache);
    *cache = piece;
    return holds;
}

#endif
