/* SPDX-License-Identifier: MIT
 *
 * Without liburing.
 */
#include "streams/cpu/storage_ring.h"

#include <errno.h>
#include <stddef.h>

eo_status eo_storage_ring_create(struct eo_storage_ring **out)
{
    *out = NULL;
    return EO_ERR_UNSUPPORTED;
}

void eo_storage_ring_destroy(struct eo_storage_ring **ring)
{
}

eo_status eo_storage_ring_move(struct eo_storage_ring *ring, int fd, const struct eo_storage_copy *copy)
{
    errno = ENOSYS;
    return EO_ERR_IO;
}
