/* SPDX-License-Identifier: MIT
 *
 * For plain TAP programs: runs a body on every rank, each with a device and communicators of its own in one group, and
 * counts what did not hold. Ranks are threads, or, where a program says so, processes.
 */
#ifndef EO_TESTS_CONFORMANCE_RANKS_H
#define EO_TESTS_CONFORMANCE_RANKS_H

#include <pthread.h>

#include "streams/collective.h"
#include "tests/tap/tap.h"

enum { TEST_RANKS_MAX = 4, TEST_RING = 16 };

struct test_rank {
    uint32_t rank, rank_count;
    struct eo_device *device;
    const struct eo_comm_ops *ops;
    struct eo_group *group;
    struct eo_comm *gather; /* on EO_QUEUE_COMM */
    struct eo_comm *reduce; /* on EO_QUEUE_REDUCE */
    struct test_meeting *meeting;
    struct eo_event awaited[EO_QUEUES_MAX];
    void *shared; /* the case's own */
    unsigned char *memory; /* of test_take; NULL: malloc's */
    uint64_t memory_bytes, taken_bytes, taken_count;
};

/* What the ranks of the next cases are. */
enum test_kind {
    TEST_LOCAL,            /* threads in one group of `local`; so without test_use */
    TEST_SHARED_THREADS,   /* threads that join one of `shared` each by itself */
    TEST_SHARED_PROCESSES, /* and processes */
    TEST_STARTED,          /* processes that were started as such, this one among them: test_use_started */
};
void test_use(enum test_kind kind);
enum test_kind test_kind(void);
/* From now on communicators are told of no memory, whatever the settings say. */
void test_hide_memory(bool hide);

/* This process is `rank` of rank_count; all run the same cases, with so many ranks. The exchange stays valid. */
void test_use_started(const char *collectives, uint32_t rank, uint32_t rank_count, const struct eo_exchange *exchange);

struct test_settings {
    uint32_t rank_count, timeout_ms; /* 0: 60 s, which no test may wait for */
    double fabric_gigabytes_per_s, fabric_latency_us;
    uint64_t delay_seed;
    const eo_log *log;
    void *shared;          /* of test_shared, where ranks are processes */
    uint64_t memory_bytes; /* a rank: test_take takes from memory that the communicators were told of */
    bool may_die;          /* a process of a rank */
};

/* Runs body on each rank and waits for all. The body leaves the queues as they are: they are drained here. */
void test_run_ranks(const struct test_settings *settings, void (*body)(struct test_rank *self));

/* tap_note, with the rank. */
void test_fail(const struct test_rank *self, const char *file, int line, const char *format, ...) EO_PRINTF(4, 5);

/* With a text of its own, and without. */
#define TEST_EXPECT(self, condition, ...)                                                                             \
    do {                                                                                                              \
        if (!(condition))                                                                                             \
            test_fail(self, __FILE__, __LINE__, __VA_ARGS__);                                                         \
    } while (0)
#define TEST_HOLDS(self, condition) TEST_EXPECT(self, condition, "%s does not hold", #condition)

/* Blocks until all that is enqueued on `queue` is done. */
eo_status test_await(struct test_rank *self, uint32_t queue);

void test_pause_ms(long ms);

/* Of ranks that were started: rank 0's data to all. Elsewhere all have test_shared. */
void test_spread(void *data, uint32_t bytes);

/* All ranks have come here; outside the group, so a failure does not end it. */
void test_barrier(struct test_rank *self);

/* Memory for collectives; given back in any order. */
void *test_take(struct test_rank *self, uint64_t bytes);
void test_give(struct test_rank *self, void *memory);

/* Zeroed; ranks that are processes see each other's writes. A mutex for it. Never freed. */
void *test_shared(uint64_t bytes);
void test_mutex_init(pthread_mutex_t *mutex);

/* tap_case, with the kind of ranks, over those of all processes: "ok n - name (rank_count ranks)". */
void test_report(const char *name, uint32_t rank_count);

/* A number that differs for every (salt, rank, index). */
static inline uint64_t test_hash(uint64_t salt, uint64_t rank, uint64_t index)
{
    uint64_t z = salt * 0x9e3779b97f4a7c15u + rank * 0xd1b54a32d192ed03u + index * 0x8cb92ba72f3d8dd7u + 1;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    return z ^ (z >> 32);
}

#endif
