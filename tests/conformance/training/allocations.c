/* SPDX-License-Identifier: MIT
 *
 * A step after the first calls no allocator: counted, not claimed, on all threads of all ranks. What other libraries
 * call is printed apart, by caller; in bf16 they call nothing either. The count itself is tested first: a counter that counts nothing proves nothing.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/conformance/training/heap_calls.h"
#include "tests/conformance/over_mpi.h"
#include "tests/conformance/ranks.h"
#include "tests/conformance/training/runs.h"

enum { STEPS = 12 };

static bool sees_system_calls;
static struct heap_calls *early, *late; /* rank 0 may be another process */

/* Rank 0 has ended a step: the others are at its end or in it, beyond the first in any case. */
static void watch(uint32_t rank, uint32_t step)
{
    if (rank != 0)
        return;
    if (step == 3)
        heap_calls_start();
    if (step == 6) {
        heap_calls_stop(early);
        heap_calls_start();
    }
    if (step == 9)
        heap_calls_stop(late);
}

static void print_calls(const char *name, const struct heap_calls *calls)
{
    printf("# %s, three steps: ours %" PRIu64 ", system calls %" PRIu64, name, calls->ours, calls->system_calls);
    for (uint32_t c = 0; c < calls->caller_count; c++)
        printf(", %s %" PRIu64, calls->callers[c].name, calls->callers[c].count);
    puts("");
}

/*
 * The counter sees each kind of call, made here and by a library, and none while it is not asked to count.
 * Method: one call of each kind; the volatile pointer keeps the compiler from leaving them out.
 */
static void counter_counts(void)
{
    struct heap_calls calls;
    void *volatile memory, *volatile other = NULL;
    void *aligned = NULL;
    heap_calls_start();
    memory = malloc(100);
    memory = realloc(memory, 200);
    free(memory);
    memory = calloc(3, 5);
    free(memory);
    const int failed = posix_memalign(&aligned, 64, 100);
    other = aligned;
    free(other);
    memory = aligned_alloc(64, 128);
    free(memory);
    heap_calls_stop(&calls);
    TEST_HOLDS(NULL, failed == 0);
    TEST_EXPECT(NULL, calls.ours == 9, "%" PRIu64 " calls were counted, 9 made", calls.ours);

    heap_calls_start();
    char *copy = strdup("made by the C library");
    heap_calls_stop(&calls);
    TEST_EXPECT(NULL, calls.ours == 0 && calls.others == 1, "ours %" PRIu64 ", others %" PRIu64, calls.ours, calls.others);
    free(copy);
    heap_calls_start();
    heap_calls_stop(&calls);
    TEST_HOLDS(NULL, calls.ours == 0 && calls.others == 0 && calls.system_calls == 0);

    heap_calls_start();
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(mapped, 4096);
    heap_calls_stop(&calls);
    TEST_EXPECT(NULL, calls.system_calls == 2 || !sees_system_calls, "%" PRIu64 " system calls, 2 made", calls.system_calls);
    if (!sees_system_calls)
        puts("# this system lets nobody count system calls: heap calls alone are checked");
}

static void run(const char *name, struct train_settings settings)
{
    struct train_result result;
    settings.steps = STEPS;
    settings.after_step = watch;
    train_run(&settings, &result);
    test_spread(early, sizeof(*early));
    test_spread(late, sizeof(*late));
    print_calls(name, late);
}

/*
 * Static mode: no heap call of ours in any step after the first, and no memory system call by anyone more in later
 * steps than in earlier ones; with micro-batches, recompute, teams, a fabric, evaluation between steps.
 */
static void static_steps_allocate_nothing(void)
{
    static const struct {
        const char *name;
        struct train_settings settings;
    } cases[] = {
        {"GPT-2, 2 ranks", {.ranks = 2}},
        {"GPT-2, 1 rank", {.ranks = 1}},
        {"Llama, 3 ranks, recompute all", {.family = EO_FAMILY_LLAMA, .ranks = 3, .recompute = EO_RECOMPUTE_BLOCKS,
                                           .recompute_blocks = UINT32_MAX}},
        {"GPT-2, 2 ranks x 2 threads, 3 micro-batches", {.ranks = 2, .threads = 2, .micro_batches = 3}},
        {"Llama, 2 ranks, fabric, own stream", {.family = EO_FAMILY_LLAMA, .ranks = 2, .fabric_gigabytes_per_s = 1,
                                                .fabric_latency_us = 20, .separate_reduce_stream = true}},
        {"GPT-2, 2 ranks, evaluation between", {.ranks = 2, .evaluates = true}},
        {"GPT-2 in bf16, 2 ranks x 2 threads", {.ranks = 2, .threads = 2, .dtype = EO_DTYPE_BF16}},
        {"Llama in bf16, 2 ranks", {.family = EO_FAMILY_LLAMA, .ranks = 2, .dtype = EO_DTYPE_BF16,
                                    .reduce_dtype = EO_DTYPE_BF16}},
        {"GPT-2 gathered in float8, 2 ranks x 2 threads", {.ranks = 2, .threads = 2, .dtype = EO_DTYPE_BF16,
                                                           .float8_gather = true}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run(cases[i].name, cases[i].settings);
        TEST_EXPECT(NULL, early->ours == 0 && late->ours == 0,
                    "%s: %" PRIu64 " and %" PRIu64 " calls, the first from program + 0x%" PRIxPTR, cases[i].name,
                    early->ours, late->ours, early->first_ours ? early->first_ours : late->first_ours);
        if (cases[i].settings.dtype == EO_DTYPE_BF16) /* its products need no library */
            TEST_EXPECT(NULL, early->others == 0 && late->others == 0, "%s: %" PRIu64 " and %" PRIu64 " calls of libraries",
                        cases[i].name, early->others, late->others);
        TEST_EXPECT(NULL, late->system_calls <= early->system_calls,
                    "%s: memory system calls grow: %" PRIu64 " in three steps, then %" PRIu64, cases[i].name,
                    early->system_calls, late->system_calls);
    }
}

/* Dynamic modes: the malloc one calls in every step, and is seen to; the pool has what it needs after a few. */
static void dynamic_steps_are_seen(void)
{
    run("GPT-2, 2 ranks, dynamic:malloc", (struct train_settings){.ranks = 2, .memory = EO_MEMORY_DYNAMIC_MALLOC});
    TEST_EXPECT(NULL, late->ours > 2 * 3 * 50, "%" PRIu64 " calls in three steps of two ranks", late->ours);
    run("GPT-2, 2 ranks, dynamic:pool", (struct train_settings){.ranks = 2, .memory = EO_MEMORY_DYNAMIC_POOL});
    TEST_EXPECT(NULL, late->ours == 0, "%" PRIu64 " calls of a pool that has seen these steps before", late->ours);
}

/* Ranks that are processes, `most` of them: counted in rank 0's. System calls are the parent's to count. What MPI calls
 * itself is printed, as of other libraries. */
static void processes_allocate_nothing(uint32_t most)
{
    static const struct {
        const char *name;
        struct train_settings settings;
    } cases[] = {
        {"GPT-2, 2 processes", {.ranks = 2}},
        {"Llama, 3 processes, own stream", {.family = EO_FAMILY_LLAMA, .ranks = 3, .separate_reduce_stream = true}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].settings.ranks > most)
            continue;
        memset(early, 0xff, sizeof(*early));
        memset(late, 0xff, sizeof(*late));
        run(cases[i].name, cases[i].settings);
        TEST_EXPECT(NULL, early->ours == 0 && late->ours == 0, "%s: %" PRIu64 " and %" PRIu64 " calls", cases[i].name,
                    early->ours, late->ours);
    }
    run("GPT-2, 2 processes, dynamic:malloc", (struct train_settings){.ranks = 2, .memory = EO_MEMORY_DYNAMIC_MALLOC});
    TEST_EXPECT(NULL, late->ours > 3 * 50, "%" PRIu64 " calls in three steps of a process", late->ours);
}

static void mpi_allocates_nothing(uint32_t rank_count)
{
    processes_allocate_nothing(rank_count);
    test_report("steps of processes after the first allocate nothing", rank_count);
}

int main(int argc, char **argv)
{
    sees_system_calls = heap_calls_init();
    early = test_shared(sizeof(*early));
    late = test_shared(sizeof(*late));
    if (argc > 1 && strcmp(argv[1], "mpi") == 0) /* mpirun -n 2 allocations mpi */
        return test_over_mpi(NULL, NULL, mpi_allocates_nothing);
    counter_counts();
    test_report("the counter counts", 1);
    static_steps_allocate_nothing();
    test_report("steps after the first allocate nothing", 2);
    dynamic_steps_are_seen();
    test_report("the dynamic modes' calls are seen", 2);
    test_use(TEST_SHARED_PROCESSES);
    processes_allocate_nothing(TRAIN_RANKS_MAX);
    test_report("steps of processes after the first allocate nothing", 2);
    return tap_end();
}
