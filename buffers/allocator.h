/* SPDX-License-Identifier: MIT
 *
 * Allocators of the dynamic mode, as a table: `malloc` hands every request to the system's allocator; `pool` keeps
 * freed blocks and hands them out again (a caching allocator: sizes rounded to 512 bytes; up to 1 MiB cut from 2 MiB
 * segments, up to 10 MiB from 20 MiB segments, above that a segment of its own rounded to 2 MiB; best fit; blocks are
 * split when the rest is at least 512 bytes (small) or above 1 MiB (large); free neighbours of a segment merge).
 * `caching` is another name for it. A device may bring its own, under the same names (streams/device.h).
 * One thread at a time. All blocks are aligned to 64 bytes.
 *
 * A block belongs to the queue that it was allocated for. These kinds here know no queues: free only what nobody uses
 * any more. A device's own are ordered: what still runs on the block's queue, or is waited for there, goes first.
 */
#ifndef EO_BUFFERS_ALLOCATOR_H
#define EO_BUFFERS_ALLOCATOR_H

#include <evenodd/common.h>
#include <evenodd/status.h>

#include "streams/device.h"

struct eo_allocator;

struct eo_allocator_stats {
    uint64_t calls;           /* allocate + free */
    uint64_t allocated_bytes; /* asked, added up */
    uint64_t live_bytes, live_peak_bytes;
    uint64_t reserved_bytes, reserved_peak_bytes; /* taken from the system; malloc: rounded, with a header of 64 */
};

/* kind "malloc", "pool" or "caching"; EO_ERR_INVALID for another, EO_ERR_NO_MEMORY. device NULL: the host's. */
EO_NODISCARD eo_status eo_allocator_create(struct eo_allocator **out, const char *kind, struct eo_device *device);
void eo_allocator_destroy(struct eo_allocator **allocator); /* live blocks are freed as well */
/* NULL: out of memory. Content undefined. */
void *eo_allocate(struct eo_allocator *allocator, uint64_t bytes, uint32_t queue);
/* NULL is taken. `queue`: the one it was allocated for. */
void eo_free(struct eo_allocator *allocator, void *memory, uint32_t queue);
void eo_allocator_get_stats(const struct eo_allocator *allocator, struct eo_allocator_stats *out);

#endif
