/* SPDX-License-Identifier: MIT */
#include "ranks.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DIAGNOSTICS_MAX = 8 };

static _Atomic uint32_t failure_count;
static uint32_t case_count, failed_case_count;

void test_fail(const struct test_rank *self, const char *file, int line, const char *format, ...)
{
    if (atomic_fetch_add(&failure_count, 1) >= DIAGNOSTICS_MAX)
        return;
    char text[1500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    printf("# %s:%d: rank %d: %s\n", file, line, self ? (int)self->rank : -1, text);
}

void test_report(const char *name, uint32_t rank_count)
{
    const uint32_t failures = atomic_exchange(&failure_count, 0);
    case_count++;
    failed_case_count += failures != 0;
    printf("%s %u - %s (%u ranks)\n", failures == 0 ? "ok" : "not ok", case_count, name, rank_count);
    fflush(stdout);
}

int test_finish(void)
{
    printf("1..%u\n", case_count);
    return failed_case_count != 0 || case_count == 0;
}

eo_status test_await(struct test_rank *self, uint32_t queue)
{
    struct eo_event *event = &self->awaited[queue];
    self->device->ops->record(self->device, queue, event);
    return self->device->ops->await(self->device, event);
}

void test_pause_ms(long ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

struct start {
    struct test_rank rank;
    const struct test_settings *settings;
    void (*body)(struct test_rank *self);
};

static void *rank_thread(void *arg)
{
    struct start *start = arg;
    struct test_rank *self = &start->rank;
    const struct eo_device_params params = {.queue_count = 3,
                                            .ring_capacity = TEST_RING,
                                            .rank = self->rank,
                                            .rank_count = self->rank_count,
                                            .event_count = 64,
                                            .stamp_count = 64,
                                            .delay_seed = start->settings->delay_seed};
    if (eo_device_create(&self->device, "cpu", &params) < 0 ||
        self->ops->open(&self->gather, self->group, self->rank, self->device, EO_QUEUE_COMM) < 0 ||
        self->ops->open(&self->reduce, self->group, self->rank, self->device, EO_QUEUE_REDUCE) < 0) {
        puts("Bail out! a device or communicator cannot be made");
        exit(1);
    }
    start->body(self);
    self->ops->close(self->gather);
    self->ops->close(self->reduce);
    eo_device_destroy(&self->device);
    self->ops->group_release(self->group);
    return NULL;
}

void test_run_ranks(const struct test_settings *settings, void (*body)(struct test_rank *self))
{
    const uint32_t rank_count = settings->rank_count;
    const struct eo_comm_ops *ops = eo_comm_find("local");
    struct eo_group *group;
    const struct eo_group_params params = {.rank_count = rank_count,
                                           .timeout_ms = settings->timeout_ms ? settings->timeout_ms : 60000,
                                           .fabric_gigabytes_per_s = settings->fabric_gigabytes_per_s,
                                           .fabric_latency_us = settings->fabric_latency_us,
                                           .log = settings->log};
    pthread_barrier_t barrier;
    pthread_t threads[TEST_RANKS_MAX];
    struct start starts[TEST_RANKS_MAX];
    if (rank_count > TEST_RANKS_MAX || !ops || ops->group_create(&group, &params) < 0 ||
        pthread_barrier_init(&barrier, NULL, rank_count) != 0) {
        puts("Bail out! a group cannot be made");
        exit(1);
    }
    for (uint32_t r = 0; r < rank_count; r++) {
        starts[r] = (struct start){.rank = {.rank = r, .rank_count = rank_count, .ops = ops, .group = group,
                                            .barrier = &barrier, .shared = settings->shared},
                                   .settings = settings, .body = body};
        if (pthread_create(&threads[r], NULL, rank_thread, &starts[r]) != 0) {
            puts("Bail out! a thread cannot be made");
            exit(1);
        }
    }
    for (uint32_t r = 0; r < rank_count; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&barrier);
}
