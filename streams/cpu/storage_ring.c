/* SPDX-License-Identifier: MIT */
#include "streams/cpu/storage_ring.h"

#include <errno.h>
#include <stdlib.h>

#include <liburing.h>

#include "streams/cpu/storage_sums.h"

enum { DEPTH = 8, PIECE_BYTES = 1 << 20 };

_Static_assert(PIECE_BYTES % EO_STORAGE_PIECE == 0, "sums are of whole pieces");

/* A part of the copy that is under way: what is left of it, and all of it. */
struct piece {
    char *memory;
    uint64_t offset, bytes;
    const char *all;
    uint64_t all_bytes, *sums;
};

struct eo_storage_ring {
    struct io_uring ring;
    struct piece pieces[DEPTH];
};

/* Linux 5.1 to 5.5 have io_uring, but not these operations, nor a way to ask for them. */
static bool reads_and_writes(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    const bool both =
        probe && io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    return both;
}

eo_status eo_storage_ring_create(struct eo_storage_ring **out)
{
    struct eo_storage_ring *ring = calloc(1, sizeof(*ring));
    *out = NULL;
    if (!ring)
        return EO_ERR_NO_MEMORY;
    if (io_uring_queue_init(DEPTH, &ring->ring, 0) < 0) {
        free(ring);
        return EO_ERR_UNSUPPORTED;
    }
    if (!reads_and_writes(&ring->ring)) {
        eo_storage_ring_destroy(&ring);
        return EO_ERR_UNSUPPORTED;
    }
    *out = ring;
    return EO_OK;
}

void eo_storage_ring_destroy(struct eo_storage_ring **ring)
{
    if (!*ring)
        return;
    io_uring_queue_exit(&(*ring)->ring);
    free(*ring);
    *ring = NULL;
}

/* The ring has an entry for each piece. */
static void submit(struct eo_storage_ring *ring, int fd, uint32_t index, bool writes)
{
    const struct piece *piece = &ring->pieces[index];
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->ring);
    if (writes)
        io_uring_prep_write(entry, fd, piece->memory, (unsigned)piece->bytes, piece->offset);
    else
        io_uring_prep_read(entry, fd, piece->memory, (unsigned)piece->bytes, piece->offset);
    io_uring_sqe_set_data(entry, &ring->pieces[index]);
}

static struct piece piece_at(const struct eo_storage_copy *copy, uint64_t at)
{
    char *memory = (char *)copy->memory + at;
    const uint64_t bytes = eo_min_u64(PIECE_BYTES, copy->bytes - at);
    return (struct piece){memory, copy->offset + at, bytes, memory, bytes, copy->sums ? copy->sums + at / EO_STORAGE_PIECE : NULL};
}

/* Takes in one result. True: more of its piece is to be moved. */
static bool take_result(struct piece *piece, int result, int *error)
{
    if (result == -EINTR || result == -EAGAIN)
        return true;
    if (result <= 0) {
        *error = result < 0 ? -result : EIO; /* the file is shorter than it was made */
        return false;
    }
    piece->memory += result;
    piece->offset += (uint64_t)result;
    piece->bytes -= (uint64_t)result;
    return piece->bytes > 0;
}

/* While the pieces beside it are under way. */
static void check_read(const struct piece *piece, int *error)
{
    if (*error == 0 && !eo_storage_sums_hold(piece->all, piece->all_bytes, piece->sums))
        *error = EBADMSG;
}

eo_status eo_storage_ring_move(struct eo_storage_ring *ring, int fd, const struct eo_storage_copy *copy)
{
    uint32_t idle[DEPTH], idle_count = 0, under_way = 0;
    uint64_t begun = 0;
    int error = 0;
    for (uint32_t i = 0; i < DEPTH; i++)
        idle[idle_count++] = i;
    while (under_way > 0 || (begun < copy->bytes && error == 0)) {
        for (; idle_count > 0 && begun < copy->bytes && error == 0; under_way++) {
            const uint32_t index = idle[--idle_count];
            struct piece *piece = &ring->pieces[index];
            *piece = piece_at(copy, begun);
            begun += piece->bytes;
            if (copy->writes)
                eo_storage_sums_set(piece->all, piece->all_bytes, piece->sums);
            submit(ring, fd, index, copy->writes);
        }
        const int submitted = io_uring_submit_and_wait(&ring->ring, 1);
        if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) {
            errno = -submitted; /* nothing is known of what is under way: the process is to end */
            return EO_ERR_IO;
        }
        struct io_uring_cqe *result;
        while (under_way > 0 && io_uring_peek_cqe(&ring->ring, &result) == 0) {
            struct piece *piece = io_uring_cqe_get_data(result);
            const uint32_t index = (uint32_t)(piece - ring->pieces);
            const int moved = result->res;
            io_uring_cqe_seen(&ring->ring, result);
            if (take_result(piece, moved, &error) && error == 0) {
                submit(ring, fd, index, copy->writes);
            } else {
                if (!copy->writes)
                    check_read(piece, &error);
                idle[idle_count++] = index;
                under_way--;
            }
        }
    }
    errno = error;
    return error ? EO_ERR_IO : EO_OK;
}
