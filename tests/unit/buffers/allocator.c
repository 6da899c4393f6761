/* SPDX-License-Identifier: MIT
 *
 * The allocators of the dynamic mode: blocks are aligned, apart from each other and counted; the pool reuses.
 * Method: random calls against a list of what is live, its bytes filled and read back; exact segment sizes; the free
 * tree against a search through an array.
 */
#include "buffers/allocator.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "buffers/free_tree.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef HAVE_ADDRESS_SANITIZER
#define HAVE_ADDRESS_SANITIZER 0
#endif

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

static uint64_t random_state = 1;

static uint64_t random_below(uint64_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % below;
}

static struct eo_allocator *allocator_of(const char *kind)
{
    struct eo_allocator *allocator;
    cr_assert_eq(eo_allocator_create(&allocator, kind, NULL), EO_OK);
    return allocator;
}

static struct eo_allocator_stats stats_of(const struct eo_allocator *allocator)
{
    struct eo_allocator_stats stats;
    eo_allocator_get_stats(allocator, &stats);
    return stats;
}

struct kind_case {
    char kind[16];
};
static struct kind_case kinds[] = {{"malloc"}, {"pool"}};

/* Content is checked at both ends and at every 4032nd byte: overlapping blocks cannot both keep theirs. */
static void fill(unsigned char *memory, uint64_t bytes, unsigned char value)
{
    for (uint64_t at = 0; at < bytes; at += at + 64 < bytes && at >= 64 ? 4032 : 1)
        memory[at] = value;
    if (bytes > 0)
        memory[bytes - 1] = value;
}

static bool holds(const unsigned char *memory, uint64_t bytes, unsigned char value)
{
    for (uint64_t at = 0; at < bytes; at += at + 64 < bytes && at >= 64 ? 4032 : 1)
        if (memory[at] != value)
            return false;
    return bytes == 0 || memory[bytes - 1] == value;
}

static uint64_t random_size(void)
{
    switch (random_below(8)) {
    case 0:
        return random_below(3);
    case 1:
        return MIB + random_below(20 * MIB);
    case 2:
        return random_below(2 * MIB);
    default:
        return random_below(64 * KIB);
    }
}

ParameterizedTestParameters(allocator, random_blocks_keep_their_content_and_the_counts_are_exact)
{
    return cr_make_param_array(struct kind_case, kinds, 2);
}

ParameterizedTest(struct kind_case *kind, allocator, random_blocks_keep_their_content_and_the_counts_are_exact)
{
    enum { LIVE_MAX = 300, CALLS = 6000 };
    static struct {
        unsigned char *memory;
        uint64_t bytes;
        unsigned char value;
    } live[LIVE_MAX];
    struct eo_allocator *allocator = allocator_of(kind->kind);
    uint32_t live_count = 0;
    struct eo_allocator_stats expected = {0};
    random_state = 7;
    for (uint32_t call = 0; call < CALLS; call++) {
        const bool grows = call / 1000 % 2 == 0; /* in waves, so that there is much to reuse */
        if (live_count < LIVE_MAX && (live_count == 0 || random_below(10) < (grows ? 7u : 3u))) {
            const uint64_t bytes = random_size();
            unsigned char *memory = eo_allocate(allocator, bytes, 0);
            cr_assert_not_null(memory);
            cr_assert_eq((uintptr_t)memory % 64, 0);
            live[live_count].memory = memory;
            live[live_count].bytes = bytes;
            live[live_count].value = (unsigned char)random_below(256);
            fill(memory, bytes, live[live_count].value);
            live_count++;
            expected.allocated_bytes += bytes;
            expected.live_bytes += bytes;
        } else {
            const uint32_t gone = (uint32_t)random_below(live_count);
            cr_assert(holds(live[gone].memory, live[gone].bytes, live[gone].value), "call %u", call);
            eo_free(allocator, live[gone].memory, 0);
            expected.live_bytes -= live[gone].bytes;
            live[gone] = live[--live_count];
        }
        expected.calls++;
        if (expected.live_bytes > expected.live_peak_bytes)
            expected.live_peak_bytes = expected.live_bytes;
        const struct eo_allocator_stats stats = stats_of(allocator);
        cr_assert_eq(stats.calls, expected.calls);
        cr_assert_eq(stats.allocated_bytes, expected.allocated_bytes);
        cr_assert_eq(stats.live_bytes, expected.live_bytes);
        cr_assert_eq(stats.live_peak_bytes, expected.live_peak_bytes);
        cr_assert(stats.reserved_bytes >= stats.live_bytes && stats.reserved_peak_bytes >= stats.reserved_bytes);
    }
    for (uint32_t k = 0; k < live_count; k++)
        cr_assert(holds(live[k].memory, live[k].bytes, live[k].value));
    cr_assert_gt(live_count, 0);
    eo_allocator_destroy(&allocator);
}

Test(allocator, destroy_frees_live_blocks_too)
{
    struct eo_allocator *allocator = allocator_of("malloc");
    eo_allocator_destroy(&allocator); /* once before: the C library keeps small blocks, and counts them as used */
    const struct mallinfo2 before = mallinfo2(); /* counts nothing under a sanitizer, which has a leak check */
    allocator = allocator_of("malloc");
    for (uint64_t bytes = 4 * KIB; bytes < 4 * MIB; bytes *= 3)
        cr_assert_not_null(eo_allocate(allocator, bytes, 0));
    eo_allocator_destroy(&allocator);
    cr_assert_null(allocator);
    eo_allocator_destroy(&allocator); /* of nothing is harmless */
    const struct mallinfo2 after = mallinfo2();
    /* Less than the smallest block asked for: the C library counts freed small blocks that it caches as used. */
    cr_assert_lt(after.uordblks + after.hblkhd, before.uordblks + before.hblkhd + 4 * KIB);

    allocator = allocator_of("pool");
    void *small = eo_allocate(allocator, 1, 0), *large = eo_allocate(allocator, 30 * MIB, 0);
    unsigned char is_resident;
    cr_assert_eq(mincore(small, 1, &is_resident), 0);
    eo_allocator_destroy(&allocator);
    cr_assert_eq(mincore(small, 1, &is_resident), -1, "no longer mapped");
    cr_assert_eq(mincore(large, 1, &is_resident), -1);
}

Test(allocator, unknown_kinds_are_refused)
{
    struct eo_allocator *allocator = (struct eo_allocator *)&allocator;
    cr_assert_eq(eo_allocator_create(&allocator, "mallo", NULL), EO_ERR_INVALID);
    cr_assert_null(allocator);
}

ParameterizedTestParameters(allocator, impossible_sizes_give_null_and_change_nothing)
{
    return cr_make_param_array(struct kind_case, kinds, 2);
}

ParameterizedTest(struct kind_case *kind, allocator, impossible_sizes_give_null_and_change_nothing)
{
    struct eo_allocator *allocator = allocator_of(kind->kind);
    const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 64, INT64_MAX, (uint64_t)1 << 62};
    /* The last one goes to the system, where the address sanitizer aborts rather than fail. */
    const size_t size_count = sizeof(sizes) / sizeof(sizes[0]) - (HAVE_ADDRESS_SANITIZER ? 1 : 0);
    for (size_t k = 0; k < size_count; k++)
        cr_assert_null(eo_allocate(allocator, sizes[k], 0));
    eo_free(allocator, NULL, 0);
    const struct eo_allocator_stats stats = stats_of(allocator), none = {0};
    cr_assert_eq(memcmp(&stats, &none, sizeof(stats)), 0);
    void *memory = eo_allocate(allocator, 0, 0);
    cr_assert_not_null(memory, "nothing is something one can free");
    eo_free(allocator, memory, 0);
    eo_allocator_destroy(&allocator);
}

Test(allocator, malloc_gives_every_block_back_at_once)
{
    struct eo_allocator *allocator = allocator_of("malloc");
    void *a = eo_allocate(allocator, 100, 0), *b = eo_allocate(allocator, MIB, 0);
    cr_assert_eq(stats_of(allocator).reserved_bytes, (64 + 128) + (64 + MIB));
    eo_free(allocator, a, 0);
    cr_assert_eq(stats_of(allocator).reserved_bytes, 64 + MIB);
    eo_free(allocator, b, 0);
    cr_assert_eq(stats_of(allocator).reserved_bytes, 0);
    cr_assert_eq(stats_of(allocator).reserved_peak_bytes, (64 + 128) + (64 + MIB));
    cr_assert_eq(stats_of(allocator).calls, 4);
    eo_allocator_destroy(&allocator);
}

struct segment_case {
    uint64_t bytes, segment_bytes;
};

ParameterizedTestParameters(allocator, pool_takes_segments_of_the_stated_sizes)
{
    static struct segment_case cases[] = {
        {1, 2 * MIB},         {MIB, 2 * MIB},           {MIB + 1, 20 * MIB},
        {10 * MIB, 20 * MIB}, {10 * MIB + 1, 12 * MIB}, {20 * MIB, 20 * MIB},
        {20 * MIB + 1, 22 * MIB},
    };
    return cr_make_param_array(struct segment_case, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct segment_case *expected, allocator, pool_takes_segments_of_the_stated_sizes)
{
    struct eo_allocator *allocator = allocator_of("pool");
    void *memory = eo_allocate(allocator, expected->bytes, 0);
    cr_assert_eq(stats_of(allocator).reserved_bytes, expected->segment_bytes);
    eo_free(allocator, memory, 0);
    cr_assert_eq(stats_of(allocator).reserved_bytes, expected->segment_bytes, "kept");
    cr_assert_eq(eo_allocate(allocator, expected->bytes, 0), memory, "and handed out again");
    eo_allocator_destroy(&allocator);
}

Test(allocator, pool_fills_a_segment_to_the_last_byte)
{
    struct eo_allocator *allocator = allocator_of("pool");
    char *first = NULL;
    for (uint64_t k = 0; k < 2 * MIB / 512; k++) {
        char *memory = eo_allocate(allocator, 512 - k % 512, 0);
        first = first ? first : memory;
        cr_assert_eq(memory, first + 512 * k, "cut from the front");
    }
    cr_assert_eq(stats_of(allocator).reserved_bytes, 2 * MIB);
    (void)eo_allocate(allocator, 1, 0);
    cr_assert_eq(stats_of(allocator).reserved_bytes, 4 * MIB);
    eo_allocator_destroy(&allocator);
}

Test(allocator, pool_takes_the_best_fit_and_merges_free_neighbours)
{
    struct eo_allocator *allocator = allocator_of("pool");
    char *blocks[6];
    const uint64_t sizes[] = {8 * KIB, KIB, 4 * KIB, KIB, 16 * KIB, KIB};
    for (int k = 0; k < 6; k++)
        blocks[k] = eo_allocate(allocator, sizes[k], 0);
    eo_free(allocator, blocks[0], 0);
    eo_free(allocator, blocks[2], 0);
    eo_free(allocator, blocks[4], 0);
    cr_assert_eq(eo_allocate(allocator, 3 * KIB, 0), blocks[2], "4 KiB is the smallest that fits");
    cr_assert_eq(eo_allocate(allocator, KIB, 0), blocks[2] + 3 * KIB, "its rest was cut off");
    eo_free(allocator, blocks[2], 0);
    eo_free(allocator, blocks[2] + 3 * KIB, 0);
    eo_free(allocator, blocks[1], 0);
    eo_free(allocator, blocks[3], 0);
    cr_assert_eq(eo_allocate(allocator, 30 * KIB, 0), blocks[0], "8 + 1 + 4 + 1 + 16 KiB are one block again");
    cr_assert_eq(stats_of(allocator).reserved_bytes, 2 * MIB);
    eo_allocator_destroy(&allocator);
}

Test(allocator, pool_splits_a_large_block_only_when_more_than_1_mib_is_left)
{
    struct eo_allocator *allocator = allocator_of("pool");
    (void)eo_allocate(allocator, 9 * MIB, 0);
    (void)eo_allocate(allocator, 10 * MIB, 0); /* 11 MiB are left: 1 MiB stays inside */
    cr_assert_eq(stats_of(allocator).reserved_bytes, 20 * MIB);
    (void)eo_allocate(allocator, 1, 0); /* not from there: small blocks have segments of their own */
    cr_assert_eq(stats_of(allocator).reserved_bytes, 22 * MIB);
    char *a = eo_allocate(allocator, 9 * MIB, 0), *b = eo_allocate(allocator, 9 * MIB, 0);
    cr_assert_eq(b, a + 9 * MIB);
    char *c = eo_allocate(allocator, MIB + 1, 0);
    cr_assert_eq(c, b + 9 * MIB, "the last 2 MiB");
    cr_assert_eq(stats_of(allocator).reserved_bytes, 42 * MIB);
    eo_allocator_destroy(&allocator);
}

Test(allocator, pool_takes_nothing_more_in_the_second_round)
{
    /* A step of training: the same sizes in the same order, freed in another. */
    struct eo_allocator *allocator = allocator_of("pool");
    enum { BLOCKS = 400 };
    void *blocks[BLOCKS];
    uint64_t reserved_bytes = 0;
    for (int round = 0; round < 5; round++) {
        random_state = 99;
        for (int k = 0; k < BLOCKS; k++) {
            blocks[k] = eo_allocate(allocator, random_size(), 0);
            if (k % 3 == 2) {
                eo_free(allocator, blocks[k - 1], 0);
                blocks[k - 1] = NULL;
            }
        }
        for (int k = BLOCKS; k-- > 0;)
            eo_free(allocator, blocks[k], 0);
        const struct eo_allocator_stats stats = stats_of(allocator);
        cr_assert_eq(stats.live_bytes, 0);
        if (round == 0)
            reserved_bytes = stats.reserved_bytes;
        cr_assert_eq(stats.reserved_bytes, reserved_bytes);
        cr_assert_eq(stats.reserved_peak_bytes, reserved_bytes);
    }
    eo_allocator_destroy(&allocator);
}

/* The address space that is in use: libraries take some. */
static uint64_t mapped_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

Test(allocator, pool_gives_free_segments_back_when_the_system_has_no_more)
{
    if (HAVE_ADDRESS_SANITIZER)
        cr_skip_test("the sanitizer needs more address space than the limit of this test");
    struct eo_allocator *allocator = allocator_of("pool");
    void *a = eo_allocate(allocator, 300 * MIB, 0), *kept = eo_allocate(allocator, 300 * MIB, 0);
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_AS, &limit), 0);
    const struct rlimit tight = {.rlim_cur = mapped_bytes() + 400 * MIB, .rlim_max = limit.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_AS, &tight), 0);
    cr_assert_null(eo_allocate(allocator, 500 * MIB, 0), "the limit works");
    eo_free(allocator, a, 0);
    void *b = eo_allocate(allocator, 500 * MIB, 0);
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    cr_assert_not_null(b);
    cr_assert_eq(stats_of(allocator).reserved_bytes, 800 * MIB);
    eo_free(allocator, kept, 0);
    eo_free(allocator, b, 0);
    eo_allocator_destroy(&allocator);
}

ParameterizedTestParameters(allocator, freeing_twice_aborts)
{
    return cr_make_param_array(struct kind_case, kinds, 2);
}

ParameterizedTest(struct kind_case *kind, allocator, freeing_twice_aborts, .signal = SIGABRT)
{
    if (HAVE_ADDRESS_SANITIZER && strcmp(kind->kind, "malloc") == 0)
        abort(); /* the sanitizer reports it in its own way */
    struct eo_allocator *allocator;
    if (eo_allocator_create(&allocator, kind->kind, NULL) != EO_OK)
        exit(1);
    void *memory = eo_allocate(allocator, 1000, 0);
    eo_free(allocator, memory, 0);
    eo_free(allocator, memory, 0);
}

Test(allocator, the_free_tree_finds_what_a_search_through_all_finds)
{
    enum { NODES = 400 };
    static struct eo_free_node nodes[NODES];
    static bool inside[NODES];
    struct eo_free_node *root = NULL;
    random_state = 3;
    for (uint32_t k = 0; k < NODES; k++)
        nodes[k].address = 4096 * (uint64_t)(k + 1);
    for (int round = 0; round < 20000; round++) {
        const uint32_t k = (uint32_t)random_below(NODES);
        if (inside[k]) {
            eo_free_tree_remove(&root, &nodes[k]);
        } else {
            nodes[k].bytes = random_below(100); /* many of equal size */
            eo_free_tree_insert(&root, &nodes[k]);
        }
        inside[k] = !inside[k];
        const uint64_t wanted = random_below(110);
        const struct eo_free_node *best = NULL;
        for (uint32_t j = 0; j < NODES; j++)
            if (inside[j] && nodes[j].bytes >= wanted && (!best || nodes[j].bytes < best->bytes))
                best = &nodes[j]; /* addresses rise with j */
        cr_assert_eq(eo_free_tree_best_fit(root, wanted), best, "round %d", round);
    }
}
