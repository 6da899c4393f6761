/* SPDX-License-Identifier: MIT
 *
 * Goal: a rank may run ahead, and still nobody overwrites what a peer reads.
 * Method: many collectives without a wait between them, random delays in all queues, and buffers that are spoiled as
 * soon as the contract allows it.
 */
#include "tests/conformance/collectives/collectives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/ranks.h"

enum { WORDS = 3001, BUFFERS = 4, MEMORY_BYTES = 4 << 20 };

static uint64_t word_of(uint64_t salt, uint32_t rank, uint64_t index)
{
    return test_hash(salt, rank, index);
}

static void check_gathered(struct test_rank *self, const uint64_t *recv, uint64_t salt, uint64_t words)
{
    for (uint32_t r = 0; r < self->rank_count; r++) {
        for (uint64_t i = 0; i < words; i++)
            TEST_EXPECT(self, recv[r * words + i] == word_of(salt, r, i), "collective %llu: word %llu of rank %u",
                        (unsigned long long)salt, (unsigned long long)i, r);
    }
}

/*
 * Reduce-scatters and all-gathers in a random order that is the same on all ranks, up to BUFFERS in flight. The input
 * of a reduce-scatter is spoiled as soon as its event completes; that of an all-gather when a later collective of the
 * communicator has.
 */
static void back_to_back_body(struct test_rank *self)
{
    enum { COLLECTIVES = 150 };
    struct {
        bool is_gather, is_valid;
        uint64_t words;
        struct eo_event event;
        uint64_t *send, *recv;
    } slots[BUFFERS];
    memset(slots, 0, sizeof(slots));
    for (int b = 0; b < BUFFERS; b++) {
        slots[b].send = test_take(self, WORDS * TEST_RANKS_MAX * 8);
        slots[b].recv = test_take(self, WORDS * TEST_RANKS_MAX * 8);
    }
    for (uint64_t s = 0; s < COLLECTIVES + BUFFERS - 1; s++) {
        const uint64_t old = s - (BUFFERS - 1); /* the oldest in flight; its slot is the next one's neighbour */
        if (s >= BUFFERS - 1 && slots[old % BUFFERS].is_valid) {
            const uint64_t b = old % BUFFERS, words = slots[b].words;
            TEST_HOLDS(self, self->device->ops->wait(self->device, EO_QUEUE_COMPUTE, &slots[b].event) == EO_OK);
            TEST_HOLDS(self, self->device->ops->is_complete(self->device, &slots[b].event));
            if (slots[b].is_gather) {
                check_gathered(self, slots[b].recv, old, words);
            } else {
                for (uint64_t i = 0; i < words; i++) {
                    float want = 0;
                    for (uint32_t r = 0; r < self->rank_count; r++)
                        want += (float)(word_of(old, r, self->rank * words + i) % 1000);
                    TEST_EXPECT(self, ((float *)slots[b].recv)[i] == want, "collective %llu: element %llu",
                                (unsigned long long)old, (unsigned long long)i);
                }
                memset(slots[b].send, 0xff, WORDS * TEST_RANKS_MAX * 8);
            }
            /* The collective before this one is complete too, so nobody reads its send. */
            memset(slots[(old + BUFFERS - 1) % BUFFERS].send, 0xff, WORDS * TEST_RANKS_MAX * 8);
        }
        if (s >= COLLECTIVES)
            continue;
        const uint64_t b = s % BUFFERS, random = test_hash(77, 0, s), words = random % WORDS;
        slots[b].is_gather = (random >> 32 & 1) != 0;
        slots[b].is_valid = true;
        slots[b].words = words;
        if (slots[b].is_gather) {
            for (uint64_t i = 0; i < words; i++)
                slots[b].send[i] = word_of(s, self->rank, i);
            TEST_HOLDS(self, self->ops->all_gather(self->gather, slots[b].recv, slots[b].send, words * 8, "random",
                                                    NULL) == EO_OK);
        } else {
            for (uint64_t i = 0; i < words * self->rank_count; i++)
                ((float *)slots[b].send)[i] = (float)(word_of(s, self->rank, i) % 1000);
            TEST_HOLDS(self, self->ops->reduce_scatter(self->gather, slots[b].recv, slots[b].send, words,
                                                        EO_DTYPE_FP32, "random", NULL) == EO_OK);
        }
        self->device->ops->record(self->device, EO_QUEUE_COMM, &slots[b].event);
    }
    TEST_HOLDS(self, self->ops->quiesce(self->gather) == EO_OK);
    for (int b = 0; b < BUFFERS; b++) {
        test_give(self, slots[b].send);
        test_give(self, slots[b].recv);
    }
}

/* After quiesce the input of an all-gather may be spoiled at once. */
static void quiesce_body(struct test_rank *self)
{
    uint64_t *send = test_take(self, WORDS * 8), *recv = test_take(self, WORDS * 8 * self->rank_count);
    for (uint64_t s = 0; s < 30; s++) {
        for (uint64_t i = 0; i < WORDS; i++)
            send[i] = word_of(s, self->rank, i);
        TEST_HOLDS(self, self->ops->all_gather(self->gather, recv, send, WORDS * 8, "quiesce", NULL) == EO_OK);
        TEST_HOLDS(self, self->ops->quiesce(self->gather) == EO_OK);
        memset(send, 0xff, WORDS * 8);
        check_gathered(self, recv, s, WORDS);
    }
    test_give(self, send);
    test_give(self, recv);
}

/*
 * Two communicators at once: what the reduction queue sums is what the communication queue has gathered, ordered by a
 * wait between the two queues alone.
 */
static void two_queues_body(struct test_rank *self)
{
    enum { COUNT = 5000, ROUNDS = 40 };
    float *send = test_take(self, COUNT * 4), *all = test_take(self, COUNT * 4 * self->rank_count);
    float *sum = test_take(self, COUNT * 4);
    struct eo_event gathered, reduced = {0};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < COUNT; i++)
            send[i] = (float)(test_hash(round, self->rank, i) % 1000);
        TEST_HOLDS(self, self->device->ops->wait(self->device, EO_QUEUE_COMM, &reduced) == EO_OK);
        TEST_HOLDS(self, self->ops->all_gather(self->gather, all, send, COUNT * 4, "two", NULL) == EO_OK);
        self->device->ops->record(self->device, EO_QUEUE_COMM, &gathered);
        TEST_HOLDS(self, self->device->ops->wait(self->device, EO_QUEUE_REDUCE, &gathered) == EO_OK);
        TEST_HOLDS(self, self->ops->reduce_scatter(self->reduce, sum, all, COUNT, EO_DTYPE_FP32, "two", NULL) == EO_OK);
        self->device->ops->record(self->device, EO_QUEUE_REDUCE, &reduced);
        TEST_HOLDS(self, self->device->ops->wait(self->device, EO_QUEUE_COMPUTE, &reduced) == EO_OK);
        for (uint64_t i = 0; i < COUNT; i++) {
            const float want = (float)(test_hash(round, self->rank, i) % 1000) * (float)self->rank_count;
            TEST_EXPECT(self, sum[i] == want, "round %u: element %llu is %g, not %g", round, (unsigned long long)i,
                        (double)sum[i], (double)want);
        }
        memset(all, 0, COUNT * 4 * self->rank_count);
    }
    test_give(self, send);
    test_give(self, all);
    test_give(self, sum);
}

/* The last rank comes late, and sends when: the others' span shows that they could not start before it. */
static void span_body(struct test_rank *self)
{
    enum { LATE_MS = 40, CLOCKS_MS = 10 }; /* a device's clock is brought to ours to within less */
    const uint32_t last = self->rank_count - 1;
    uint64_t late_ns;
    unsigned char send[64] = {0}, recv[64 * TEST_RANKS_MAX];
    struct eo_span spans[2];
    memset(spans, 0, sizeof(spans));
    TEST_HOLDS(self, self->ops->all_gather(self->gather, recv, send, 64, "first", &spans[0]) == EO_OK);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_OK);
    test_barrier(self);
    const uint64_t begin_ns = eo_now_ns();
    if (self->rank == last)
        test_pause_ms(LATE_MS);
    late_ns = eo_now_ns();
    memcpy(send, &late_ns, sizeof(late_ns));
    TEST_HOLDS(self, self->ops->all_gather(self->gather, recv, send, 64, "second", &spans[1]) == EO_OK);
    const uint64_t enqueued_ns = eo_now_ns();
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_OK);
    for (int i = 0; i < 2; i++)
        TEST_EXPECT(self, 0 < spans[i].ready_ns && spans[i].ready_ns <= spans[i].start_ns &&
                              spans[i].start_ns <= spans[i].end_ns, "span %d is out of order", i);
    TEST_HOLDS(self, begin_ns <= spans[1].ready_ns && spans[1].ready_ns <= enqueued_ns);
    memcpy(&late_ns, recv + 64 * last, sizeof(late_ns));
    TEST_EXPECT(self, late_ns > 0 && spans[1].start_ns + CLOCKS_MS * UINT64_C(1000000) >= late_ns,
                "started %.1f ms before the last rank had come", ((double)late_ns - (double)spans[1].start_ns) / 1e6);
    TEST_HOLDS(self, self->ops->quiesce(self->gather) == EO_OK); /* slower peers may still read `send` */
}

/* Two gathers as one operation; all have ended the first when the last rank comes to the second. */
static void joined_body(struct test_rank *self)
{
    enum { LATE_MS = 40 };
    unsigned char send[64] = {0}, recv[64 * TEST_RANKS_MAX];
    struct eo_span span = {0};
    const uint64_t issued_ns = eo_now_ns();
    self->ops->join(self->gather, 2);
    TEST_HOLDS(self, self->ops->all_gather(self->gather, recv, send, 64, "joined", &span) == EO_OK);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_OK);
    const uint64_t between_ns = eo_now_ns();
    test_barrier(self);
    if (self->rank + 1 == self->rank_count)
        test_pause_ms(LATE_MS);
    TEST_HOLDS(self, self->ops->all_gather(self->gather, recv, send, 64, "joined", &span) == EO_OK);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_OK);
    TEST_EXPECT(self,
                issued_ns <= span.ready_ns && span.ready_ns <= span.start_ns && span.start_ns <= between_ns &&
                    between_ns + LATE_MS / 2 * UINT64_C(1000000) <= span.end_ns,
                "from the first: issued %.1f, began %.1f, ended %.1f ms", ((double)span.ready_ns - (double)between_ns) / 1e6,
                ((double)span.start_ns - (double)between_ns) / 1e6, ((double)span.end_ns - (double)between_ns) / 1e6);
    TEST_HOLDS(self, self->ops->all_gather(self->gather, recv, send, 64, "alone", &span) == EO_OK);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_OK);
    TEST_EXPECT(self, between_ns < span.ready_ns && span.ready_ns <= span.start_ns, "one behind them has a span of its own");
    TEST_HOLDS(self, self->ops->quiesce(self->gather) == EO_OK);
}

void order_cases(uint32_t rank_count)
{
    struct test_settings settings = {.rank_count = rank_count, .memory_bytes = MEMORY_BYTES};
    test_run_ranks(&settings, span_body);
    test_report("a span says when work was enqueued, could start and ended", rank_count);
    test_run_ranks(&settings, joined_body);
    test_report("joined collectives have one span, from the begin of the first to the end of the last", rank_count);
    for (uint64_t seed = 0; seed <= 2; seed++) {
        settings.delay_seed = seed;
        char name[160];
        snprintf(name, sizeof(name), "collectives back to back keep their values, delays from seed %d", (int)seed);
        test_run_ranks(&settings, back_to_back_body);
        test_report(name, rank_count);
        snprintf(name, sizeof(name), "after quiesce nobody reads a send buffer, delays from seed %d", (int)seed);
        test_run_ranks(&settings, quiesce_body);
        test_report(name, rank_count);
        snprintf(name, sizeof(name), "two communicators run at once, ordered by events, delays from seed %d",
                 (int)seed);
        test_run_ranks(&settings, two_queues_body);
        test_report(name, rank_count);
    }
}
