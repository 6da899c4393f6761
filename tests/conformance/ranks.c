/* SPDX-License-Identifier: MIT */
#include "tests/conformance/ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/tap/threads.h"

enum { TAKE_ALIGN = 64 };

static enum test_kind kind;
static bool hides_memory;
static struct {
    const char *collectives;
    uint32_t rank, rank_count;
    struct eo_exchange exchange;
} started;

/* The first error of the library in this process, where a case has no log of its own: why it bails. */
static char heard[300];

static void hear(void *user, eo_log_level level, const char *text)
{
    (void)user;
    if (level == EO_LOG_ERROR && !heard[0])
        snprintf(heard, sizeof(heard), ": %s", text);
}

static const eo_log listener = {.write = hear, .level = EO_LOG_ERROR};

static _Noreturn void bail(const char *what)
{
    printf("Bail out! %s%s\n", what, heard);
    fflush(stdout);
    _exit(1);
}

enum test_kind test_kind(void)
{
    return kind;
}

void test_use(enum test_kind used)
{
    kind = used;
    if (!tap_program.shared_notes)
        tap_program.shared_notes = test_shared(sizeof(*tap_program.shared_notes));
}

void test_use_started(const char *collectives, uint32_t rank, uint32_t rank_count, const struct eo_exchange *exchange)
{
    test_use(TEST_STARTED);
    started.collectives = collectives;
    started.rank = rank;
    started.rank_count = rank_count;
    started.exchange = *exchange;
    tap_program.is_silent = rank != 0;
}

void test_hide_memory(bool hide)
{
    hides_memory = hide;
}

static uint32_t sum_of_started(uint32_t value)
{
    uint32_t values[TEST_RANKS_MAX], sum = 0;
    if (started.exchange.all_gather(started.exchange.user, &value, sizeof(value), values) < 0)
        bail("the exchange of ranks that were started failed");
    for (uint32_t r = 0; r < started.rank_count; r++)
        sum += values[r];
    return sum;
}

void test_spread(void *data, uint32_t bytes)
{
    if (kind != TEST_STARTED)
        return;
    char *all = malloc((size_t)started.rank_count * bytes);
    if (!all || started.exchange.all_gather(started.exchange.user, data, bytes, all) < 0)
        bail("the exchange of ranks that were started failed");
    memcpy(data, all, bytes);
    free(all);
}

void test_fail(const struct test_rank *self, const char *file, int line, const char *format, ...)
{
    char text[1500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    tap_note(file, line, "rank %d: %s", self ? (int)self->rank : -1, text);
}

void test_report(const char *name, uint32_t rank_count)
{
    static const char *const kinds[] = {"", ", shared by threads", ", shared by processes", ", started as such"};
    uint32_t notes = atomic_exchange(tap_notes(), 0);
    if (kind == TEST_STARTED)
        notes = sum_of_started(notes);
    tap(notes == 0, "%s (%u ranks%s%s)", name, rank_count, kinds[kind], hides_memory ? ", memory unknown" : "");
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

/* -- memory ---------------------------------------------------------------------------------------------------------- */

void *test_shared(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bail("no memory");
    return memory;
}

void test_mutex_init(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void *test_take(struct test_rank *self, uint64_t bytes)
{
    if (!self->memory)
        return malloc(bytes ? bytes : 1);
    if (self->taken_count == 0)
        self->taken_bytes = 0;
    if (bytes > self->memory_bytes - self->taken_bytes)
        bail("a case takes more memory than its settings say");
    void *memory = self->memory + self->taken_bytes;
    self->taken_bytes += (bytes + TAKE_ALIGN - 1) / TAKE_ALIGN * TAKE_ALIGN;
    self->taken_count++;
    return memory;
}

void test_give(struct test_rank *self, void *memory)
{
    if (!self->memory)
        free(memory);
    else
        self->taken_count--;
}

/* -- outside the group ----------------------------------------------------------------------------------------------- */

struct test_meeting {
    pthread_barrier_t barrier;
    unsigned char blobs[TEST_RANKS_MAX][EO_EXCHANGE_BYTES_MAX];
};

static struct test_meeting *make_meeting(uint32_t rank_count)
{
    struct test_meeting *meeting = test_shared(sizeof(*meeting));
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&meeting->barrier, &attributes, rank_count);
    pthread_barrierattr_destroy(&attributes);
    return meeting;
}

void test_barrier(struct test_rank *self)
{
    if (kind == TEST_STARTED)
        (void)sum_of_started(0);
    else
        pthread_barrier_wait(&self->meeting->barrier);
}

static eo_status exchange_by_page(void *user, const void *send, uint32_t bytes, void *recv)
{
    struct test_rank *self = user;
    struct test_meeting *meeting = self->meeting;
    if (bytes > EO_EXCHANGE_BYTES_MAX)
        return EO_ERR_INVALID;
    memcpy(meeting->blobs[self->rank], send, bytes);
    pthread_barrier_wait(&meeting->barrier);
    for (uint32_t r = 0; r < self->rank_count; r++)
        memcpy((char *)recv + r * bytes, meeting->blobs[r], bytes);
    pthread_barrier_wait(&meeting->barrier);
    return EO_OK;
}

/* -- ranks ----------------------------------------------------------------------------------------------------------- */

struct start {
    struct test_rank rank;
    const struct test_settings *settings;
    void (*body)(struct test_rank *self);
};

static struct eo_group_params group_params(const struct test_settings *settings)
{
    return (struct eo_group_params){.rank_count = settings->rank_count,
                                    .timeout_ms = settings->timeout_ms ? settings->timeout_ms : 60000,
                                    .fabric_gigabytes_per_s = settings->fabric_gigabytes_per_s,
                                    .fabric_latency_us = settings->fabric_latency_us,
                                    .log = settings->log ? settings->log : &listener};
}

static void join_group(struct start *start)
{
    struct test_rank *self = &start->rank;
    const struct eo_exchange exchange = kind == TEST_STARTED ? started.exchange
                                                             : (struct eo_exchange){exchange_by_page, self};
    const struct eo_group_join join = {.rank = self->rank, .exchange = &exchange};
    struct eo_group_params params = group_params(start->settings);
    params.join = &join;
    if (self->ops->group_create(&self->group, &params) < 0)
        bail("a group cannot be joined");
}

static void take_memory(struct start *start)
{
    struct test_rank *self = &start->rank;
    void *memory;
    self->memory_bytes = start->settings->memory_bytes;
    if (self->memory_bytes == 0 || !self->ops->register_memory || hides_memory)
        return;
    test_barrier(self); /* the group's deadline may be short */
    if (self->device->ops->reserve(self->device, EO_MEMORY_KIND_GATHER, self->memory_bytes, &memory) < 0 ||
        self->ops->register_memory(self->gather, memory, self->memory_bytes) < 0 ||
        self->ops->register_memory(self->reduce, memory, self->memory_bytes) < 0)
        bail("memory cannot be registered");
    self->memory = memory;
}

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
                                            .share_memory = self->ops->shares_memory,
                                            .delay_seed = start->settings->delay_seed};
    if (kind != TEST_LOCAL)
        join_group(start);
    if (eo_device_create(&self->device, "cpu", &params) < 0 ||
        self->ops->open(&self->gather, self->group, self->rank, self->device, EO_QUEUE_COMM, false) < 0 ||
        self->ops->open(&self->reduce, self->group, self->rank, self->device, EO_QUEUE_REDUCE, true) < 0)
        bail("a device or communicator cannot be made");
    take_memory(start);
    start->body(self);
    self->ops->close(self->gather);
    self->ops->close(self->reduce);
    if (self->memory)
        self->device->ops->release(self->device, EO_MEMORY_KIND_GATHER, self->memory, self->memory_bytes);
    eo_device_destroy(&self->device);
    self->ops->group_release(self->group);
    return NULL;
}

static void run_processes(struct start *starts, uint32_t rank_count)
{
    pid_t children[TEST_RANKS_MAX];
    fflush(stdout);
    for (uint32_t r = 0; r < rank_count; r++) {
        children[r] = fork();
        if (children[r] < 0)
            bail("a process cannot be made");
        if (children[r] == 0) {
            rank_thread(&starts[r]);
            fflush(stdout);
            _exit(0);
        }
    }
    for (uint32_t r = 0; r < rank_count; r++) {
        int status;
        waitpid(children[r], &status, 0);
        TEST_EXPECT(&starts[r].rank, status == 0 || starts[r].settings->may_die, "its process ended with status 0x%x",
                    (unsigned)status);
    }
}

void test_run_ranks(const struct test_settings *settings, void (*body)(struct test_rank *self))
{
    const uint32_t rank_count = settings->rank_count;
    const struct eo_comm_ops *ops = eo_comm_find(kind == TEST_LOCAL     ? "local"
                                                 : kind == TEST_STARTED ? started.collectives
                                                                        : "shared");
    const struct eo_group_params params = group_params(settings);
    struct eo_group *group = NULL;
    struct start starts[TEST_RANKS_MAX];
    if (rank_count > TEST_RANKS_MAX || !ops || (kind == TEST_LOCAL && ops->group_create(&group, &params) < 0))
        bail("a group cannot be made");
    struct test_meeting *meeting = make_meeting(rank_count);
    for (uint32_t r = 0; r < rank_count; r++)
        starts[r] = (struct start){.rank = {.rank = r, .rank_count = rank_count, .ops = ops, .group = group,
                                            .meeting = meeting, .shared = settings->shared},
                                   .settings = settings, .body = body};
    if (kind == TEST_STARTED)
        rank_thread(&starts[started.rank]);
    else if (kind == TEST_SHARED_PROCESSES)
        run_processes(starts, rank_count);
    else
        run_as_threads(rank_thread, starts, rank_count, sizeof(*starts));
    pthread_barrier_destroy(&meeting->barrier);
    munmap(meeting, sizeof(*meeting));
}
