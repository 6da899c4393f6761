/* SPDX-License-Identifier: MIT
 *
 * Reads and writes with several pieces under way at a time, by io_uring: a disk is faster so.
 */
#ifndef EO_STREAMS_CPU_STORAGE_RING_H
#define EO_STREAMS_CPU_STORAGE_RING_H

#include <evenodd/common.h>
#include <evenodd/status.h>

#include "streams/device.h"

struct eo_storage_ring;

/* EO_ERR_UNSUPPORTED: not built in, refused by the system, as in many containers, or too old. */
EO_NODISCARD eo_status eo_storage_ring_create(struct eo_storage_ring **out);
void eo_storage_ring_destroy(struct eo_storage_ring **ring);

/* Waits for all of it, after an error too. EO_ERR_IO: errno has the reason, EBADMSG of a sum that differs. One thread at a
 * time. */
EO_NODISCARD eo_status eo_storage_ring_move(struct eo_storage_ring *ring, int fd, const struct eo_storage_copy *copy);

#endif
