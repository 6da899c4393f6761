/* SPDX-License-Identifier: MIT
 *
 * The CPU device: queues, events, waits, memory, places of threads. And how long ranks wait for each other.
 */
#include "streams/cpu/device.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "streams/patience.h"

enum { RING = 8 };

static struct eo_device *make_device(uint64_t delay_seed)
{
    struct eo_device *device;
    const struct eo_device_params params = {
        .queue_count = 3, .ring_capacity = RING, .rank_count = 1, .delay_seed = delay_seed};
    cr_assert_eq(eo_device_create(&device, "cpu", &params), EO_OK);
    return device;
}

static void short_sleep(long us)
{
    const struct timespec time = {0, us * 1000};
    nanosleep(&time, NULL);
}

/* Appends its number to a list, after `us` microseconds and once *gate is true; fails with `status`. */
struct note {
    uint32_t *list;
    _Atomic uint32_t *count;
    uint32_t number;
    long us;
    _Atomic bool *gate;
    eo_status status;
};

static eo_status take_note(void *arguments)
{
    const struct note *note = arguments;
    while (note->gate && !atomic_load(note->gate))
        short_sleep(100);
    if (note->us > 0)
        short_sleep(note->us);
    note->list[atomic_fetch_add(note->count, 1)] = note->number;
    return note->status;
}

static void enqueue_note(struct eo_device *device, uint32_t queue, struct note note)
{
    eo_cpu_enqueue(device, queue, take_note, &note, sizeof(note));
}

/*
 * Goal: parameters that make no sense are refused, before anything is made.
 * Method: one wrong field at a time beside the right ones.
 */
Test(device, parameters_that_make_no_sense_are_refused)
{
    struct eo_device *device = (struct eo_device *)&device;
    const struct eo_device_params good = {.queue_count = 2, .ring_capacity = 1, .rank_count = 1};
    struct eo_device_params bad[5];
    for (int i = 0; i < 5; i++)
        bad[i] = good;
    bad[0].queue_count = 0;
    bad[1].queue_count = EO_QUEUES_MAX + 1;
    bad[2].ring_capacity = 0;
    bad[3].rank_count = 0;
    bad[4].rank = 1;
    for (int i = 0; i < 5; i++) {
        cr_expect_eq(eo_device_create(&device, "cpu", &bad[i]), EO_ERR_INVALID, "case %d", i);
        cr_expect_null(device);
    }
    cr_expect_eq(eo_device_create(&device, "abacus", &good), EO_ERR_UNSUPPORTED);
    cr_expect_null(device);
    cr_assert_eq(eo_device_create(&device, "cpu", &good), EO_OK);
    eo_device_destroy(&device);
    cr_expect_null(device);
    eo_device_destroy(&device); /* takes NULL */
}

/*
 * Goal: a queue runs its items one after the other in the order of issue, round and round its ring, with delays too.
 * Method: items that append their number; a wait for the oldest before the ring is full.
 */
Test(queue, runs_items_in_the_order_of_issue)
{
    enum { ITEMS = 300 };
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct eo_device *device = make_device(seed);
        static uint32_t list[ITEMS];
        _Atomic uint32_t count = 0;
        struct eo_event events[ITEMS];
        for (uint32_t i = 0; i < ITEMS; i++) {
            if (i >= RING)
                cr_assert_eq(device->ops->wait(device, EO_QUEUE_COMPUTE, &events[i - RING]), EO_OK);
            enqueue_note(device, EO_QUEUE_COMM, (struct note){list, &count, i, i % 7 == 0 ? 50 : 0, NULL, EO_OK});
            device->ops->record(device, EO_QUEUE_COMM, &events[i]);
            cr_assert_eq(events[i].sequence, i + 1);
        }
        cr_assert_eq(device->ops->drain(device), EO_OK);
        cr_assert_eq(count, ITEMS);
        for (uint32_t i = 0; i < ITEMS; i++)
            cr_assert_eq(list[i], i);
        eo_device_destroy(&device);
    }
}

/*
 * Goal: an event is complete exactly when what was issued before its record is done.
 * Method: an item held back by a flag between two events.
 */
Test(event, is_complete_when_what_came_before_is_done)
{
    struct eo_device *device = make_device(0);
    uint32_t list[4];
    _Atomic uint32_t count = 0;
    _Atomic bool gate = false;
    struct eo_event never = {.queue = EO_QUEUE_COMM}, before, after;
    cr_expect(device->ops->is_complete(device, &never), "never recorded");
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_COMPUTE, &never), EO_OK);
    enqueue_note(device, EO_QUEUE_COMM, (struct note){list, &count, 0, 0, NULL, EO_OK});
    device->ops->record(device, EO_QUEUE_COMM, &before);
    enqueue_note(device, EO_QUEUE_COMM, (struct note){list, &count, 1, 0, &gate, EO_OK});
    device->ops->record(device, EO_QUEUE_COMM, &after);
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_COMPUTE, &before), EO_OK);
    short_sleep(20000);
    cr_expect(device->ops->is_complete(device, &before));
    cr_expect_not(device->ops->is_complete(device, &after));
    atomic_store(&gate, true);
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_COMPUTE, &after), EO_OK);
    cr_expect(device->ops->is_complete(device, &after));
    cr_expect_eq(count, 2);
    /* The compute queue is the calling thread: what it has recorded, it has done. */
    struct eo_event here;
    device->ops->record(device, EO_QUEUE_COMPUTE, &here);
    cr_expect(device->ops->is_complete(device, &here));
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_COMM, &here), EO_OK);
    eo_device_destroy(&device);
}

/*
 * Goal: a wait between two queues orders what is issued after it, holds nobody up who issues, and is part of a point
 * recorded behind it.
 * Method: the waited-for item is held back; the waiting queue must not have run, the calling thread must go on.
 */
Test(event, orders_one_queue_after_another)
{
    struct eo_device *device = make_device(0);
    uint32_t list[4];
    _Atomic uint32_t count = 0;
    _Atomic bool gate = false;
    struct eo_event first, point, second;
    enqueue_note(device, EO_QUEUE_COMM, (struct note){list, &count, 0, 0, &gate, EO_OK});
    device->ops->record(device, EO_QUEUE_COMM, &first);
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_REDUCE, &first), EO_OK);
    device->ops->record(device, EO_QUEUE_REDUCE, &point);
    enqueue_note(device, EO_QUEUE_REDUCE, (struct note){list, &count, 1, 0, NULL, EO_OK});
    device->ops->record(device, EO_QUEUE_REDUCE, &second);
    short_sleep(20000);
    cr_expect_eq(count, 0);
    cr_expect_not(device->ops->is_complete(device, &point), "a point behind a wait");
    cr_expect_not(device->ops->is_complete(device, &second));
    atomic_store(&gate, true);
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_COMPUTE, &second), EO_OK);
    cr_expect_eq(count, 2);
    cr_expect_eq(list[0], 0);
    cr_expect_eq(list[1], 1);
    eo_device_destroy(&device);
}

/*
 * Goal: the first failure of a queue stays; nothing runs after it; who waits for the queue fails too.
 * Method: one failing item among others, on one queue, and a second queue that waits for the first.
 */
Test(queue, keeps_its_first_error)
{
    struct eo_device *device = make_device(0);
    uint32_t list[8];
    _Atomic uint32_t count = 0;
    _Atomic bool gate = false;
    struct eo_event before, failed, after, other;
    enqueue_note(device, EO_QUEUE_COMM, (struct note){list, &count, 0, 0, NULL, EO_OK});
    device->ops->record(device, EO_QUEUE_COMM, &before);
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_COMPUTE, &before), EO_OK);
    enqueue_note(device, EO_QUEUE_COMM, (struct note){list, &count, 1, 0, &gate, EO_ERR_TIMEOUT});
    device->ops->record(device, EO_QUEUE_COMM, &failed);
    enqueue_note(device, EO_QUEUE_COMM, (struct note){list, &count, 2, 0, NULL, EO_ERR_COMM});
    device->ops->record(device, EO_QUEUE_COMM, &after);
    (void)device->ops->wait(device, EO_QUEUE_REDUCE, &failed);
    enqueue_note(device, EO_QUEUE_REDUCE, (struct note){list, &count, 3, 0, NULL, EO_OK});
    device->ops->record(device, EO_QUEUE_REDUCE, &other);
    atomic_store(&gate, true);
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_COMPUTE, &failed), EO_ERR_TIMEOUT);
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_COMPUTE, &after), EO_ERR_TIMEOUT);
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_COMPUTE, &before), EO_ERR_TIMEOUT, "goes on returning it");
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_COMPUTE, &other), EO_ERR_TIMEOUT, "passed on");
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_REDUCE, &after), EO_ERR_TIMEOUT);
    cr_expect_eq(device->ops->drain(device), EO_ERR_TIMEOUT);
    cr_expect_eq(count, 2, "items behind the failed one have run");
    eo_device_destroy(&device);
}

/*
 * Goal: the ring takes one item in progress and ring_capacity behind it.
 * Method: the first item is held back while the ring is filled to the last place.
 */
Test(queue, takes_as_many_items_as_promised)
{
    struct eo_device *device = make_device(0);
    uint32_t list[RING + 1];
    _Atomic uint32_t count = 0;
    _Atomic bool gate = false;
    for (uint32_t i = 0; i <= RING; i++)
        enqueue_note(device, EO_QUEUE_COMM, (struct note){list, &count, i, 0, &gate, EO_OK});
    atomic_store(&gate, true);
    eo_device_destroy(&device); /* waits for what is issued */
    cr_expect_eq(count, RING + 1);
}

/* And one more is a bug of who issues it: abort, not a lost item. */
Test(queue, overrun_aborts, .signal = SIGABRT)
{
    struct eo_device *device = make_device(0);
    uint32_t list[RING + 2];
    _Atomic uint32_t count = 0;
    _Atomic bool gate = false;
    for (uint32_t i = 0; i < RING + 2; i++)
        enqueue_note(device, EO_QUEUE_COMM, (struct note){list, &count, i, 0, &gate, EO_OK});
}

/*
 * Goal: a long wait sleeps.
 * Method: processor time of the whole process while an item takes 300 ms, with a wide margin: on a busy machine a
 * thread that spins gets only a part of them.
 */
Test(queue, waits_leave_the_processor_alone)
{
    struct eo_device *device = make_device(0);
    uint32_t list[1];
    _Atomic uint32_t count = 0;
    struct eo_event event;
    struct timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    enqueue_note(device, EO_QUEUE_COMM, (struct note){list, &count, 0, 300000, NULL, EO_OK});
    device->ops->record(device, EO_QUEUE_COMM, &event);
    cr_expect_eq(device->ops->wait(device, EO_QUEUE_COMPUTE, &event), EO_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    const double ms = (double)(end.tv_sec - begin.tv_sec) * 1e3 + (double)(end.tv_nsec - begin.tv_nsec) / 1e6;
    cr_expect_lt(ms, 30, "%.1f ms of processor time", ms);
    eo_device_destroy(&device);
}

struct text {
    char text[1000];
};

static void keep_text(void *user, eo_log_level level, const char *text)
{
    strncat(((struct text *)user)->text, text, 400);
}

/*
 * Goal: reserved memory is zero, all there, aligned; more than there is, is refused with both figures.
 * Method: sizes around pages; mincore() says what is resident; a size no machine has.
 */
Test(reserve, gives_zeroed_resident_memory_or_says_what_is_missing)
{
    struct text said = {""};
    const eo_log log = {keep_text, &said, EO_LOG_ERROR};
    struct eo_device *device;
    const struct eo_device_params params = {.queue_count = 1, .rank_count = 1, .log = &log};
    cr_assert_eq(eo_device_create(&device, "cpu", &params), EO_OK);
    static const uint64_t sizes[] = {1, 4096, 4097, (2 << 20) - 1, 2 << 20, (5 << 20) + 12345};
    static unsigned char resident[4096];
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        void *memory;
        cr_assert_eq(device->ops->reserve(device, EO_MEMORY_KIND_PRIVATE, sizes[k], &memory), EO_OK);
        cr_expect_eq((uintptr_t)memory % (sizes[k] >= 2 << 20 ? 2 << 20 : 4096), 0);
        cr_assert_eq(mincore(memory, sizes[k], resident), 0);
        for (uint64_t page = 0; page * page_bytes < sizes[k]; page++)
            cr_assert(resident[page] & 1, "page %d of %d bytes is not there", (int)page, (int)sizes[k]);
        for (uint64_t i = 0; i < sizes[k]; i++)
            cr_assert_eq(((unsigned char *)memory)[i], 0);
        memset(memory, 1, sizes[k]);
        device->ops->release(device, EO_MEMORY_KIND_PRIVATE, memory, sizes[k]);
    }
    void *memory = &said;
    cr_expect_eq(device->ops->reserve(device, EO_MEMORY_KIND_PRIVATE, (uint64_t)1 << 50, &memory), EO_ERR_NO_MEMORY);
    cr_expect_null(memory);
    cr_expect(strstr(said.text, "1073741824.0 MiB needed") && strstr(said.text, "available"), "%s", said.text);
    cr_expect_eq(device->ops->reserve(device, EO_MEMORY_KIND_PRIVATE, UINT64_MAX, &memory), EO_ERR_NO_MEMORY, "wraps");
    device->ops->release(device, EO_MEMORY_KIND_PRIVATE, NULL, 0);
    eo_device_destroy(&device);
}

static uint64_t own_addresses(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    cr_assert(file && fscanf(file, "%llu", &pages) == 1 && fclose(file) == 0);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/*
 * Goal: under a limit on addresses what is told to be available is what the limit leaves, not what the machine has.
 * Method: a limit 64 MiB above what this process has, and 256 MiB wanted.
 */
Test(reserve, names_the_limit_that_is_in_the_way)
{
    struct text said = {""};
    const eo_log log = {keep_text, &said, EO_LOG_ERROR};
    struct eo_device *device;
    struct rlimit before, limit;
    double needed = 0, available = 1e9;
    cr_assert_eq(eo_device_create(&device, "cpu", &(struct eo_device_params){.queue_count = 1, .rank_count = 1, .log = &log}),
                 EO_OK);
    cr_assert_eq(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = own_addresses() + (64 << 20);
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    void *memory;
    const eo_status status = device->ops->reserve(device, EO_MEMORY_KIND_PRIVATE, 256 << 20, &memory);
    cr_assert_eq(setrlimit(RLIMIT_AS, &before), 0);
    cr_expect_eq(status, EO_ERR_NO_MEMORY);
    cr_expect(sscanf(said.text, "rank 0: out of memory: %lf MiB needed, %lf MiB available", &needed, &available) == 2 &&
              needed > available && strstr(said.text, "(ulimit -v)"), "%s", said.text);
    eo_device_destroy(&device);
}

/* Goal: a limit of a process is not divided among the processes that share a host. */
Test(reserve, each_process_has_its_limit)
{
    struct eo_device *device;
    struct rlimit before, limit;
    uint64_t free_bytes = 0, total_bytes;
    cr_assert_eq(eo_device_create(&device, "cpu", &(struct eo_device_params){.queue_count = 1, .rank_count = 4, .processes = 4}),
                 EO_OK);
    cr_assert_eq(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = own_addresses() + (64 << 20);
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    const eo_status status = device->ops->available(device, &free_bytes, &total_bytes);
    cr_assert_eq(setrlimit(RLIMIT_AS, &before), 0);
    cr_assert_eq(status, EO_OK);
    cr_expect(free_bytes > 3 * (64 << 20) && free_bytes <= 4 * (64 << 20), "%llu", (unsigned long long)free_bytes);
    eo_device_destroy(&device);
}

static eo_status keep_places(void *arguments)
{
    cpu_set_t **places = arguments;
    sched_getaffinity(0, sizeof(**places), *places);
    return EO_OK;
}

/* How many cores these processors are of: threads of one core have the same first processor in their lists. */
static int cores_of(const cpu_set_t *processors)
{
    cpu_set_t firsts;
    CPU_ZERO(&firsts);
    for (int processor = 0; processor < CPU_SETSIZE; processor++) {
        char path[96];
        int first;
        if (!CPU_ISSET(processor, processors))
            continue;
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", processor);
        FILE *file = fopen(path, "r");
        CPU_SET(file && fscanf(file, "%d", &first) == 1 ? first : processor, &firsts);
        if (file)
            fclose(file);
    }
    return CPU_COUNT(&firsts);
}

/*
 * Goal: placed threads run on their rank's cores alone; the caller gets its own back; not asked, nothing changes.
 * Method: the affinity of the calling thread and of a worker, as rank 0 and 1 of 2.
 */
Test(places, threads_are_bound_to_their_ranks_share_while_the_device_lives)
{
    cpu_set_t before, seen[2], worker, after;
    sched_getaffinity(0, sizeof(before), &before);
    if (cores_of(&before) < 2 || strcmp(eo_affinity_best()->name, "none") == 0)
        cr_skip_test("one core, or no hwloc");
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (int place = 0; place < 2; place++) {
            struct eo_device *device;
            const struct eo_device_params params = {.queue_count = 2, .ring_capacity = 2, .rank = rank,
                                                    .rank_count = 2, .place_threads = place != 0};
            cr_assert_eq(eo_device_create(&device, "cpu", &params), EO_OK);
            sched_getaffinity(0, sizeof(seen[rank]), &seen[rank]);
            cpu_set_t *pointer = &worker;
            eo_cpu_enqueue(device, EO_QUEUE_COMM, keep_places, &pointer, sizeof(pointer));
            cr_assert_eq(device->ops->drain(device), EO_OK);
            cr_expect(CPU_EQUAL(&worker, &seen[rank]));
            if (place)
                cr_expect_lt(CPU_COUNT(&seen[rank]), CPU_COUNT(&before));
            else
                cr_expect(CPU_EQUAL(&seen[rank], &before), "moved without being asked");
            void *memory;
            cr_expect_eq(device->ops->reserve(device, EO_MEMORY_KIND_PRIVATE, 1 << 20, &memory), EO_OK);
            device->ops->release(device, EO_MEMORY_KIND_PRIVATE, memory, 1 << 20);
            eo_device_destroy(&device);
            sched_getaffinity(0, sizeof(after), &after);
            cr_expect(CPU_EQUAL(&after, &before), "not given back");
        }
    }
    cpu_set_t both;
    CPU_AND(&both, &seen[0], &seen[1]);
    cr_expect_eq(CPU_COUNT(&both), 0, "two ranks share a core while another is free");
}

/* A short save waits no longer for having been made beside, or after, a long one. */
Test(patience, the_longest_holds_until_the_last_has_ended)
{
    const struct eo_group_params params = {.timeout_ms = 1000};
    cr_expect_eq(eo_patience_ms(&params), 1000);
    eo_patience_begin(500);
    eo_patience_begin(90000);
    eo_patience_begin(0);
    eo_patience_end(0);
    cr_expect_eq(eo_patience_ms(&params), 91000);
    eo_patience_end(500);
    cr_expect_eq(eo_patience_ms(&params), 91000);
    eo_patience_end(90000);
    cr_expect_eq(eo_patience_ms(&params), 1000);
    eo_patience_begin(500);
    cr_expect_eq(eo_patience_ms(&params), 1500);
    eo_patience_end(500);
    eo_patience_begin(UINT32_MAX);
    cr_expect_eq(eo_patience_ms(&params), UINT32_MAX);
    eo_patience_end(UINT32_MAX);
    cr_expect_eq(eo_patience_ms(&params), 1000);
}
