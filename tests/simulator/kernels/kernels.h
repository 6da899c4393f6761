/* SPDX-License-Identifier: MIT
 *
 * The GPU's kernels on the host: the .cu files themselves, compiled by compile.py, each block's threads as fibers of one
 * thread of the system. Every access to memory is checked before it happens. What the checker objects to:
 *
 *     launches   empty or too large grids and blocks; blocks beyond __launch_bounds__; shared memory above 48 KiB without
 *                opt-in; a kernel never loaded
 *     barriers   not reached by all threads of the block, or reached in two places at one time
 *     shuffles   whose mask names lanes that are not there, or not their own; that read from a lane not in the mask
 *     memory     accesses outside allocations, or outside what shared memory was asked for; such that are not aligned to
 *                their type; reads of shared memory that nothing has written
 *     races      two threads at one address, one of them writing, and no barrier or atomic between; threads of two blocks
 *                are never ordered
 *
 * The first objection ends the kernel. Threads and blocks go in an order picked by the seed.
 *
 * The runner knows nothing of streams. Who embeds it (the simulator, or alone.c) gives it three functions.
 */
#ifndef EO_TESTS_SIMULATOR_KERNELS_KERNELS_H
#define EO_TESTS_SIMULATOR_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

enum { KERNEL_THREADS_MAX = 1024 }; /* a block */

struct kernel_launch {
    const char *name;
    const void *kernel;
    uint32_t grid[3], block[3];
    uint32_t threads_max; /* of its __launch_bounds__ */
    uint64_t shared_bytes;
    void (*reach)(void *arguments); /* device pointers among them become the host's */
    void (*thread)(const void *kernel, const void *arguments);
};

/* --- given by who embeds the runner --- */

/* Called by a launch; the structure and the arguments are to be copied. Errors come up in cudaGetLastError. */
void kernel_enqueue(const struct kernel_launch *launch, const void *arguments, size_t argument_bytes,
                    struct CUstream_st *stream);
/* The memory that a kernel may touch around `at`, as the host reaches it; NULL, or what is wrong with it. */
const char *kernel_memory_at(uintptr_t at, uintptr_t *from, uintptr_t *to);
/* Where the host reaches a byte of the device; other addresses stay what they are. */
void *kernel_host_address(void *device_address);

/* --- given by the runner --- */

/* NULL, or what a GPU would refuse in the launch itself. */
const char *kernel_launch_fault(const struct kernel_launch *launch, size_t argument_bytes, char *text, size_t text_bytes);

/* How much global memory a launch read and wrote, each address counted once. */
struct kernel_traffic {
    const char *name;
    uint64_t read_bytes, written_bytes;
    uint32_t grid[3], block[3];
};
extern void (*kernel_on_traffic)(const struct kernel_traffic *traffic); /* [NULL] after each launch */

struct kernel_options {
    uint64_t seed;
    bool unchecked; /* no accesses are looked at: several threads of the system run kernels at one time */
    void (*touched)(uintptr_t at, uint32_t bytes, bool writes); /* where unchecked [NULL]: each access to global memory */
};
/* Runs all blocks; NULL, or the objection: static, of this thread. `arguments` changes: its pointers become the host's. */
const char *kernel_run(const struct kernel_launch *launch, void *arguments, size_t argument_bytes,
                       const struct kernel_options *options);
/* Of the last kernel_run of this thread: the stretches of global memory that it touched, in order of addresses. */
void kernel_each_touched(void (*each)(void *user, uintptr_t from, uintptr_t to, bool writes), void *user);

void kernel_forget_loaded(void); /* as in a new process: every kernel has to be loaded again */

/* --- called by kernels --- */

enum kernel_shuffle_kind { KERNEL_SHUFFLE_FROM, KERNEL_SHUFFLE_XOR, KERNEL_SHUFFLE_DOWN };

uint32_t kernel_barrier(uint32_t condition, const char *file, int line); /* in how many threads it holds */
void kernel_warp_barrier(uint32_t mask, const char *file, int line);
uint64_t kernel_shuffle_bits(uint32_t mask, uint64_t bits, enum kernel_shuffle_kind kind, uint32_t operand,
                             const char *file, int line);
void *kernel_shared_piece(int id, uint64_t bytes, uint64_t align);
void *kernel_shared_dynamic(void);
void kernel_touch_atomic(void *at, uint32_t bytes);
void kernel_reach_words(void *words, size_t count);

#ifdef __cplusplus
}
#endif

#endif
