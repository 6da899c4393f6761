/* SPDX-License-Identifier: MIT
 *
 * Counts the memory calls of the whole process, on all threads, by who made them: this program (evenodd and its layers
 * are linked into it) or a shared library. The functions of the C library are replaced in the program that links this.
 * Memory system calls are counted as the kernel sees them, where it lets us (a seccomp filter).
 */
#ifndef EO_TESTS_CONFORMANCE_TRAINING_HEAP_CALLS_H
#define EO_TESTS_CONFORMANCE_TRAINING_HEAP_CALLS_H

#include <stdbool.h>
#include <stdint.h>

enum { HEAP_CALLERS_MAX = 32 };

struct heap_calls {
    uint64_t ours;   /* made by the program itself */
    uint64_t others; /* made by shared libraries */
    struct {
        char name[64]; /* of the library */
        uint64_t count;
    } callers[HEAP_CALLERS_MAX];
    uint32_t caller_count;
    uint64_t system_calls; /* mmap, munmap, mremap, brk, of anyone, but for those that make an arena of glibc's */
    uintptr_t first_ours;  /* where the first of ours was made */
};

/* Before any other thread is started. False: system calls are not counted here. */
bool heap_calls_init(void);

/* Between the two, calls are counted. */
void heap_calls_start(void);
void heap_calls_stop(struct heap_calls *out);

#endif
