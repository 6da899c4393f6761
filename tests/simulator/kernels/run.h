/* SPDX-License-Identifier: MIT
 *
 * What runs a kernel (run.c) and what checks its accesses (check.c) know of each other: the block that runs now on this
 * thread of the system.
 */
#ifndef EO_TESTS_SIMULATOR_KERNELS_RUN_H
#define EO_TESTS_SIMULATOR_KERNELS_RUN_H

#include "kernels.h"

enum {
    THREADS_MAX = KERNEL_THREADS_MAX,
    WARP = 32,
    WARPS_MAX = THREADS_MAX / WARP,
    STACK_BYTES = 64 << 10,
    SHARED_MAX = 227 << 10,     /* with opt-in */
    SHARED_DEFAULT = 48 << 10,
    SHARED_GAP = 64,            /* between two pieces: nobody's */
    PIECES_MAX = 16,
    SHARED_ROOM = SHARED_MAX + PIECES_MAX * 2 * SHARED_GAP,
};

struct piece {
    int id;
    uint32_t from, to;
};

struct checks; /* check.c */

struct runner {
    const struct kernel_launch *launch;
    struct kernel_options options;
    const void *arguments;
    uintptr_t stacks, stacks_end, arguments_at, arguments_end;
    uint32_t thread_count, current; /* the thread that runs, or NONE */
    uint32_t block_index[3], thread_index[THREADS_MAX][3], indexed[3]; /* the block that thread_index was made for */

    /* A warp's clock goes on at each barrier of the block or the warp. What a thread did at clock c of its warp comes before
     * what another does now: of the same warp, where the clock is beyond c; else where c is not after the last barrier of the
     * block. */
    uint32_t epoch; /* barriers of the block so far */
    uint16_t warp_clock[WARPS_MAX], warp_clock_at_barrier[WARPS_MAX];

    unsigned char *shared;
    uint32_t shared_bytes, piece_count;
    struct piece pieces[PIECES_MAX]; /* that some thread has come upon in this block; of all blocks the same */
    struct checks *checks;
    char objection[600];
};
#define NONE UINT32_MAX

extern _Thread_local struct runner *kernel_runner __attribute__((tls_model("initial-exec"))); /* read at each access */

/* From within a thread of a kernel: ends the launch. Does not return. */
_Noreturn void kernel_object(const char *format, ...) __attribute__((format(printf, 1, 2)));

void kernel_checks_begin_launch(struct runner *runner);
void kernel_checks_begin_block(struct runner *runner);
void kernel_checks_end_launch(struct runner *runner);
void kernel_checks_free(struct checks *checks);

#endif
