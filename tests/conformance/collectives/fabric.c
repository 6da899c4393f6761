/* SPDX-License-Identifier: MIT
 *
 * Goal: over a simulated link a collective takes at least the link's time, and the processor stays free.
 * Method: lower bounds on time from the settings; processor time of the whole process, with a wide margin. That the link is no
 * slower than it says is read where it is kept, for a busy machine delays any rank.
 */
#include "tests/conformance/collectives/collectives.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "streams/local/cpu.h"
#include "tests/conformance/ranks.h"

enum { SLICE_BYTES = 1000000, OPERATIONS = 3, LATENCY_US = 5000 };
#define GIGABYTES_PER_S 0.05 /* 20 ms a slice */

/* Sanitizers make each access of the sums and copies a call: what they use says nothing. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED true
#elif defined(__has_feature)
#define IS_SANITIZED (__has_feature(thread_sanitizer) || __has_feature(address_sanitizer))
#else
#define IS_SANITIZED false
#endif

static uint64_t processor_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* What all but one of the slices take, and the latency, in ns. */
static uint64_t link_ns(uint32_t rank_count)
{
    return (rank_count - 1) * (uint64_t)(SLICE_BYTES / GIGABYTES_PER_S) + LATENCY_US * UINT64_C(1000);
}

static void one_after_the_other_body(struct test_rank *self)
{
    float *send = calloc(SLICE_BYTES * TEST_RANKS_MAX, 1), *recv = calloc(SLICE_BYTES * TEST_RANKS_MAX, 1);
    /* Once before it counts: the first touch of a page costs processor time of its own. */
    memset(send, 0, SLICE_BYTES * TEST_RANKS_MAX);
    memset(recv, 0, SLICE_BYTES * TEST_RANKS_MAX);
    TEST_HOLDS(self, self->ops->all_gather(self->gather, recv, send, SLICE_BYTES, "warm", NULL) == EO_OK);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_OK);
    test_barrier(self);
    const uint64_t begin_ns = eo_now_ns(), begin_processor_ns = processor_ns();
    for (int i = 0; i < OPERATIONS; i++) {
        struct eo_span span;
        if (i % 2 == 0)
            (void)self->ops->all_gather(self->gather, recv, send, SLICE_BYTES, "link", &span);
        else
            (void)self->ops->reduce_scatter(self->gather, recv, send, SLICE_BYTES / 4, EO_DTYPE_FP32, "link", &span);
        TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_OK);
        TEST_EXPECT(self, self->rank_count == 1 || span.end_ns - span.start_ns >= link_ns(self->rank_count),
                    "operation %d took %.2f ms, its link %.2f", i, (double)(span.end_ns - span.start_ns) / 1e6,
                    (double)link_ns(self->rank_count) / 1e6);
        if (test_kind() == TEST_STARTED || self->rank_count == 1) /* which have no such line, or no link */
            continue;
        const struct eo_local_end *end = &self->gather->end;
        const uint64_t planned_ns = end->line->link[end->sequence & 1].end_ns - span.start_ns;
        TEST_EXPECT(self, planned_ns <= link_ns(self->rank_count) + 1000, "operation %d has the link for %.2f ms, not %.2f", i,
                    (double)planned_ns / 1e6, (double)link_ns(self->rank_count) / 1e6);
    }
    const uint64_t wall_ns = eo_now_ns() - begin_ns, used_ns = processor_ns() - begin_processor_ns;
    const uint64_t least_ns = self->rank_count == 1 ? 0 : OPERATIONS * link_ns(self->rank_count);
    TEST_EXPECT(self, wall_ns >= least_ns, "%.2f ms, the link needs %.2f", (double)wall_ns / 1e6,
                (double)least_ns / 1e6);
    TEST_EXPECT(self, self->rank_count == 1 || IS_SANITIZED || used_ns < wall_ns / 5,
                "%.2f ms of processor time in %.2f ms", (double)used_ns / 1e6, (double)wall_ns / 1e6);
    TEST_HOLDS(self, self->ops->quiesce(self->gather) == EO_OK);
    free(send);
    free(recv);
}

static void shared_link_body(struct test_rank *self)
{
    float *send = calloc(SLICE_BYTES * TEST_RANKS_MAX, 1);
    float *recv[2] = {calloc(SLICE_BYTES * TEST_RANKS_MAX, 1), calloc(SLICE_BYTES * TEST_RANKS_MAX, 1)};
    test_barrier(self);
    const uint64_t begin_ns = eo_now_ns();
    (void)self->ops->all_gather(self->gather, recv[0], send, SLICE_BYTES, "one", NULL);
    (void)self->ops->all_gather(self->reduce, recv[1], send, SLICE_BYTES, "two", NULL);
    TEST_HOLDS(self, self->device->ops->drain(self->device) == EO_OK);
    const uint64_t wall_ns = eo_now_ns() - begin_ns;
    const uint64_t least_ns = 2 * (link_ns(self->rank_count) - LATENCY_US * UINT64_C(1000)); /* latencies overlap */
    TEST_EXPECT(self, self->rank_count == 1 || wall_ns >= least_ns, "%.2f ms, the link needs %.2f",
                (double)wall_ns / 1e6, (double)least_ns / 1e6);
    TEST_HOLDS(self, self->ops->quiesce(self->gather) == EO_OK && self->ops->quiesce(self->reduce) == EO_OK);
    free(send);
    free(recv[0]);
    free(recv[1]);
}

/* Half a minute on the link: the abort does not wait for it. */
static void slow_abort_body(struct test_rank *self)
{
    float *send = calloc(SLICE_BYTES * TEST_RANKS_MAX, 1), *recv = calloc(SLICE_BYTES * TEST_RANKS_MAX, 1);
    const uint64_t begin_ns = eo_now_ns();
    (void)self->ops->all_gather(self->gather, recv, send, SLICE_BYTES, "slow", NULL);
    if (self->rank == 0) {
        test_pause_ms(100);
        self->ops->group_abort(self->group, 0, "enough");
    }
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_ERR_COMM);
    TEST_EXPECT(self, eo_now_ns() - begin_ns < UINT64_C(15000000000), "the abort waited for the link");
    test_barrier(self);
    free(send);
    free(recv);
}

void fabric_cases(uint32_t rank_count)
{
    struct test_settings settings = {
        .rank_count = rank_count, .fabric_gigabytes_per_s = GIGABYTES_PER_S, .fabric_latency_us = LATENCY_US};
    test_run_ranks(&settings, one_after_the_other_body);
    test_report("a collective takes the link's time without the processor; one rank has no link", rank_count);
    test_run_ranks(&settings, shared_link_body);
    test_report("two communicators share one link", rank_count);
    if (rank_count > 1) {
        settings.fabric_gigabytes_per_s = SLICE_BYTES / 30e9;
        test_run_ranks(&settings, slow_abort_body);
        test_report("an abort does not wait for a slow link", rank_count);
    }
}
