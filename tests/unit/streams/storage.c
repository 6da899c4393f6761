/* SPDX-License-Identifier: MIT
 *
 * Goal: copies to and from a disk by io_uring are whole, whatever the system says on the way; other bytes than were written are
 *       an error.
 * Method: the ring's source, with a submission of ours between it and the system.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    int refusal, refusals; /* how so many of the next submissions end */
    unsigned most;         /* bytes that a piece moves at a time; 0: all */
} faults;

static int submit_with_faults(struct io_uring *ring, unsigned wait)
{
    for (unsigned at = ring->sq.sqe_head; faults.most && at != ring->sq.sqe_tail; at++) {
        struct io_uring_sqe *entry = &ring->sq.sqes[at & *ring->sq.kring_mask];
        entry->len = entry->len > faults.most ? faults.most : entry->len;
    }
    if (faults.refusals > 0) {
        faults.refusals--;
        return faults.refusal;
    }
    return io_uring_submit_and_wait(ring, wait);
}

#define io_uring_submit_and_wait submit_with_faults
#define eo_storage_ring_create ring_create
#define eo_storage_ring_destroy ring_destroy
#define eo_storage_ring_move ring_move
#include "streams/cpu/storage_ring.c" /* NOLINT */

enum { BYTES = 3 * (1 << 20) + 5 * 4096 };

struct scene {
    struct eo_storage_ring *ring;
    int fd;
    char *memory, *back;
    uint64_t sums[BYTES / EO_STORAGE_PIECE + 1];
};

/* False: no io_uring here. */
static bool scene_open(struct scene *scene)
{
    char path[] = "storage.XXXXXX";
    memset(&faults, 0, sizeof(faults));
    *scene = (struct scene){.fd = mkstemp(path), .memory = aligned_alloc(4096, BYTES), .back = aligned_alloc(4096, BYTES)};
    cr_assert(scene->fd >= 0 && scene->memory && scene->back);
    cr_assert_eq(unlink(path), 0);
    for (uint32_t i = 0; i < BYTES; i++)
        scene->memory[i] = (char)(i * 2654435761u >> 13);
    return ring_create(&scene->ring) >= 0;
}

static void scene_close(struct scene *scene)
{
    ring_destroy(&scene->ring);
    close(scene->fd);
    free(scene->memory);
    free(scene->back);
}

static eo_status move_all(struct scene *scene, bool writes)
{
    const struct eo_storage_copy copy = {.memory = writes ? scene->memory : scene->back, .offset = 4096, .bytes = BYTES,
                                         .sums = scene->sums, .writes = writes};
    return ring_move(scene->ring, scene->fd, &copy);
}

Test(storage, what_is_written_comes_back_whole)
{
    static const int refusals[] = {0, -EAGAIN, -EBUSY, -EINTR};
    static const unsigned mosts[] = {0, 4096, 12288, 700 << 10};
    struct scene scene;
    for (size_t r = 0; r < sizeof(refusals) / sizeof(refusals[0]); r++)
        for (size_t m = 0; m < sizeof(mosts) / sizeof(mosts[0]); m++) {
            if (!scene_open(&scene))
                cr_skip_test("no io_uring here");
            faults.refusal = refusals[r];
            faults.refusals = refusals[r] ? 5 : 0;
            faults.most = mosts[m];
            memset(scene.back, 0, BYTES);
            cr_assert(move_all(&scene, true) >= 0 && move_all(&scene, false) >= 0, "%s, %u bytes at a time",
                      strerror(-refusals[r]), mosts[m]);
            cr_assert_eq(memcmp(scene.memory, scene.back, BYTES), 0, "%s, %u bytes at a time", strerror(-refusals[r]), mosts[m]);
            cr_assert_eq(faults.refusals, 0);
            scene_close(&scene);
        }
}

Test(storage, other_failures_are_told_with_their_reason)
{
    struct scene scene;
    if (!scene_open(&scene))
        cr_skip_test("no io_uring here");
    faults.refusal = -ENOMEM;
    faults.refusals = 1;
    cr_assert(move_all(&scene, true) == EO_ERR_IO && errno == ENOMEM);
    scene_close(&scene);
    cr_assert(scene_open(&scene));
    cr_assert(move_all(&scene, true) >= 0);
    cr_assert_eq(ftruncate(scene.fd, BYTES / 2), 0);
    cr_assert(move_all(&scene, false) == EO_ERR_IO && errno == EIO, "a file that was cut off");
    scene_close(&scene);
}

Test(storage, a_block_of_other_bytes_is_an_error)
{
    struct scene scene;
    if (!scene_open(&scene))
        cr_skip_test("no io_uring here");
    for (uint32_t block = 0; block < BYTES / 4096; block += 37) {
        const uint32_t at = block * 4096 + block % 64;
        const char wrong = (char)(scene.memory[at] ^ 32);
        cr_assert(move_all(&scene, true) >= 0);
        cr_assert_eq(pwrite(scene.fd, &wrong, 1, 4096 + (off_t)at), 1);
        cr_assert(move_all(&scene, false) == EO_ERR_IO && errno == EBADMSG, "byte %u", at);
    }
    memset(scene.sums, 0, sizeof(scene.sums));
    cr_assert(move_all(&scene, false) == EO_ERR_IO, "what was never written is zeros");
    cr_assert(ftruncate(scene.fd, 0) == 0 && ftruncate(scene.fd, 4096 + BYTES) == 0);
    cr_assert(move_all(&scene, false) >= 0);
    scene_close(&scene);
}
