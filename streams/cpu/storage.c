/* SPDX-License-Identifier: MIT
 *
 * A file without a name, read and written past the page cache where the file system lets us, so that what is on disk takes no
 * memory. Where it does not, what passes is taken out of the cache again, piece by piece (storage_cache.h).
 */
#include "streams/cpu/device.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "base/plain_text.h"
#include "base/reserve.h"
#include "streams/cpu/storage_cache.h"
#include "streams/cpu/storage_file.h"
#include "streams/cpu/storage_ring.h"
#include "streams/cpu/storage_sums.h"

enum { PIECE_BYTES = 8 << 20, TMPFS = 0x01021994, RAMFS = (int)0x858458f6 };

struct eo_storage {
    int fd;
    bool is_cached;               /* no O_DIRECT */
    struct eo_storage_ring *ring; /* NULL: the queue's thread reads and writes by itself */
    struct eo_device *device;
    char folder[];
};

static const char *reason_of(int number)
{
    return number == EBADMSG ? "it does not hold what was written there (checksum mismatch); check the disk, and start again from "
                               "the last checkpoint"
                             : strerror(number);
}

static eo_status complain(const struct eo_device *device, eo_status status, const char *what, const char *folder)
{
    eo_log_write(&device->log, EO_LOG_ERROR, "rank %u: %s in the offload folder %s: %s", device->params.rank, what, folder,
                 reason_of(errno));
    return status;
}

eo_status eo_cpu_storage_check(struct eo_device *device, const char *folder, uint64_t bytes, uint32_t sharers)
{
    struct statvfs room;
    struct statfs kind;
    if (statvfs(folder, &room) != 0 || statfs(folder, &kind) != 0)
        return complain(device, EO_ERR_INVALID, "cannot look at the disk", folder);
    if (kind.f_type == TMPFS || (int)kind.f_type == RAMFS) {
        eo_log_write(&device->log, EO_LOG_ERROR, "rank %u: the offload folder %s lies in memory (tmpfs), so nothing would be saved "
                     "there; name a folder on a disk", device->params.rank, folder);
        return EO_ERR_INVALID;
    }
    const uint32_t left = eo_storage_file_remove_left(folder);
    if (left > 0 && statvfs(folder, &room) != 0)
        return complain(device, EO_ERR_INVALID, "cannot look at the disk", folder);
    if (left > 0)
        eo_log_write(&device->log, EO_LOG_WARN, "rank %u: removed %u file%s that killed jobs had left in the offload folder %s",
                     device->params.rank, left, left == 1 ? "" : "s", folder);
    const uint64_t free_bytes = (uint64_t)room.f_bavail * room.f_frsize, most = free_bytes / 5 * 4 / (sharers ? sharers : 1);
    if (bytes <= most || room.f_blocks == 0) /* a file system that does not know its size: the reservation will tell */
        return EO_OK;
    eo_log_write(&device->log, EO_LOG_ERROR,
                 "rank %u: the disk of the offload folder %s has no room: %.1f MiB needed by each of %u ranks, %.1f MiB free, of "
                 "which at most 80 %% are taken; name another folder, or offload fewer layers",
                 device->params.rank, folder, (double)bytes / (1 << 20), sharers ? sharers : 1, (double)free_bytes / (1 << 20));
    return EO_ERR_IO;
}

struct queued_copy {
    struct eo_storage *storage;
    struct eo_storage_copy copy;
};
_Static_assert(sizeof(struct queued_copy) <= EO_CPU_ARGUMENT_BYTES, "a copy is an item of a queue");

/* A part of a piece, or all of it; < 0: errno. */
static ssize_t move_piece(const struct eo_storage *storage, bool writes, char *memory, size_t bytes, off_t at)
{
    ssize_t moved;
    do
        moved = writes ? pwrite(storage->fd, memory, bytes, at) : pread(storage->fd, memory, bytes, at);
    while (moved < 0 && errno == EINTR);
    if (moved == 0)
        errno = EIO; /* the file is shorter than it was made */
    return moved > 0 ? moved : -1;
}

static eo_status move_by_calls(const struct eo_storage *storage, const struct eo_storage_copy *c)
{
    const uint64_t piece = storage->is_cached ? EO_STORAGE_CACHE_PIECE : PIECE_BYTES;
    struct eo_storage_cache cache = {.fd = storage->fd, .writes = c->writes};
    char *memory = c->memory;
    bool holds = true;
    if (c->writes)
        eo_storage_sums_set(memory, c->bytes, c->sums);
    for (uint64_t done = 0; done < c->bytes && holds;) {
        const ssize_t moved = move_piece(storage, c->writes, memory + done, eo_min_u64(piece, c->bytes - done),
                                         (off_t)(c->offset + done));
        holds = moved > 0 && (!storage->is_cached || eo_storage_cache_pass(&cache, c->offset + done, (uint64_t)moved));
        done += holds ? (uint64_t)moved : 0;
    }
    const int error = errno;
    if (!eo_storage_cache_end(&cache))
        return EO_ERR_IO;
    errno = error;
    if (!holds)
        return EO_ERR_IO;
    if (c->writes || eo_storage_sums_hold(memory, c->bytes, c->sums))
        return EO_OK;
    errno = EBADMSG;
    return EO_ERR_IO;
}

static eo_status move(const struct eo_storage *storage, const struct eo_storage_copy *c)
{
    return storage->ring ? eo_storage_ring_move(storage->ring, storage->fd, c) : move_by_calls(storage, c);
}

static const char *cannot(const struct eo_storage_copy *copy)
{
    return copy->writes ? "cannot write the offload file" : "cannot read the offload file";
}

eo_status eo_cpu_storage_peek(struct eo_storage *storage, const struct eo_storage_copy *copy)
{
    const eo_status status = move_by_calls(storage, copy);
    return status < 0 ? complain(storage->device, status, cannot(copy), storage->folder) : status;
}

/* Whether the disk takes what is a multiple of EO_STORAGE_ALIGN past the page cache; some want more. */
static bool takes_direct(const struct eo_storage *storage)
{
    char *zeros = aligned_alloc(EO_STORAGE_ALIGN, 2 * EO_STORAGE_ALIGN);
    if (!zeros)
        return true; /* told later */
    memset(zeros, 0, 2 * EO_STORAGE_ALIGN);
    /* In memory and in the file at no larger multiple. */
    char *memory = zeros + ((uintptr_t)zeros / EO_STORAGE_ALIGN % 2 ? 0 : EO_STORAGE_ALIGN);
    const bool takes = pwrite(storage->fd, memory, EO_STORAGE_ALIGN, EO_STORAGE_ALIGN) >= 0 || errno != EINVAL;
    free(zeros);
    return takes;
}

/* The same as a reservation, only slower. */
static eo_status write_zeros(struct eo_storage *storage, uint64_t bytes)
{
    char *zeros = aligned_alloc(EO_STORAGE_ALIGN, PIECE_BYTES);
    if (!zeros)
        return EO_ERR_NO_MEMORY;
    memset(zeros, 0, PIECE_BYTES);
    eo_status status = EO_OK;
    for (uint64_t done = 0; done < bytes && status >= 0; done += PIECE_BYTES)
        status = move(storage, &(const struct eo_storage_copy){.memory = zeros, .offset = done, .writes = true,
                                                               .bytes = eo_min_u64(PIECE_BYTES, bytes - done)});
    const int error = errno;
    free(zeros);
    errno = error;
    return status;
}

/* Every block, so that no step finds the disk full. The C library's way for file systems without such a call, NFS among them,
 * writes single bytes, which O_DIRECT refuses. */
static eo_status reserve(struct eo_storage *storage, uint64_t bytes)
{
    eo_status status = eo_reserve_bytes(storage->fd, bytes) ? EO_OK : EO_ERR_IO;
    if (status < 0 && errno == EOPNOTSUPP)
        status = write_zeros(storage, bytes);
    return status != EO_ERR_IO ? status : complain(storage->device, status, "cannot reserve the offload file", storage->folder);
}

static eo_status open_storage(struct eo_device *device, const char *folder, uint64_t bytes, struct eo_storage **out)
{
    struct eo_storage *storage = calloc(1, sizeof(*storage) + strlen(folder) + 1);
    if (!storage)
        return EO_ERR_NO_MEMORY;
    strcpy(storage->folder, folder);
    storage->device = device;
    storage->fd = eo_storage_file_open(folder, O_DIRECT);
    storage->is_cached = storage->fd < 0 && errno == EINVAL; /* a file system without O_DIRECT */
    if (storage->is_cached)
        storage->fd = eo_storage_file_open(folder, 0);
    else if (storage->fd >= 0 && !takes_direct(storage))
        storage->is_cached = fcntl(storage->fd, F_SETFL, 0) == 0;
    eo_status status = storage->fd >= 0 ? EO_OK : complain(device, EO_ERR_IO, "cannot make the offload file", folder);
    if (status >= 0 && storage->is_cached) {
        eo_storage_cache_expect_pieces(storage->fd);
        eo_log_write(&device->log, EO_LOG_INFO,
                     "rank %u: the offload folder %s takes no direct access; a thread reads and writes by the page cache, "
                     "which holds at most %u MiB of the file at a time",
                     device->params.rank, folder, (unsigned)(EO_STORAGE_CACHE_BYTES >> 20));
    } else if (status >= 0 && eo_storage_ring_create(&storage->ring) < 0) {
        eo_log_write(&device->log, EO_LOG_INFO, "rank %u: io_uring is refused here, or too old; a thread reads and writes the "
                     "offload file", device->params.rank);
    }
    if (status >= 0)
        status = reserve(storage, bytes);
    if (status < 0)
        eo_cpu_storage_close(device, &storage);
    *out = storage;
    return status;
}

/* By the trainer's thread; what comes later is written by the queue's, which has its signals blocked. */
eo_status eo_cpu_storage_open(struct eo_device *device, const char *folder, uint64_t bytes, struct eo_storage **out)
{
    sigset_t before;
    *out = NULL;
    eo_size_limit_begin(&before);
    const eo_status status = open_storage(device, folder, bytes, out);
    eo_size_limit_end(&before);
    return status;
}

void eo_cpu_storage_close(struct eo_device *device, struct eo_storage **storage)
{
    if (!*storage)
        return;
    eo_storage_ring_destroy(&(*storage)->ring);
    if ((*storage)->fd >= 0)
        close((*storage)->fd);
    free(*storage);
    *storage = NULL;
}

uint64_t eo_cpu_storage_cache_bytes(const struct eo_storage *storage)
{
    return storage->is_cached ? EO_STORAGE_CACHE_BYTES : 0;
}

/* ---- on the queue ---- */

static void keep_failure(struct eo_device *device, const char *what, const char *folder)
{
    struct eo_cpu *cpu = eo_cpu_of(device);
    const int error = errno;
    char whole[PATH_MAX + 256];
    snprintf(whole, sizeof(whole), "%s in the offload folder %s: %s", what, folder, reason_of(error));
    (void)eo_text_fit(cpu->storage_failure, sizeof(cpu->storage_failure), whole);
    atomic_store(&cpu->has_storage_failed, true);
    errno = error;
}

const char *eo_cpu_storage_failure(const struct eo_device *device)
{
    const struct eo_cpu *cpu = eo_cpu_of(device);
    return atomic_load(&cpu->has_storage_failed) ? cpu->storage_failure : "";
}

static eo_status run_copy(void *arguments)
{
    const struct queued_copy *queued = arguments;
    const struct eo_storage_copy *c = &queued->copy;
    const uint64_t start_ns = eo_now_ns();
    const eo_status status = move(queued->storage, c);
    if (status < 0) {
        keep_failure(queued->storage->device, cannot(c), queued->storage->folder);
        return complain(queued->storage->device, status, cannot(c), queued->storage->folder);
    }
    if (c->span && !c->continues)
        c->span->start_ns = start_ns;
    if (c->span)
        c->span->end_ns = eo_now_ns();
    return EO_OK;
}

void eo_cpu_storage_copy(struct eo_device *device, struct eo_storage *storage, const struct eo_storage_copy *copy)
{
    EO_ASSERT((uintptr_t)copy->memory % EO_STORAGE_ALIGN == 0 && copy->offset % EO_STORAGE_ALIGN == 0 &&
              copy->bytes % EO_STORAGE_ALIGN == 0 && copy->queue == EO_QUEUE_COPY);
    eo_cpu_enqueue(device, EO_QUEUE_COPY, run_copy, &(struct queued_copy){storage, *copy}, sizeof(struct queued_copy));
}
