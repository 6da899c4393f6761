/* SPDX-License-Identifier: MIT
 *
 * What a device promises, for any device. Device memory is reached by upload and download alone, so the same program
 * runs on a GPU, on the CPU, and in the simulator.
 */
#include "tests/conformance/device/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/ranks.h"
#include "streams/sum_order.h"

uint64_t test_event_elements = 1 << 20;

void *test_bed_take(struct test_bed *bed, uint64_t bytes, uint64_t skew)
{
    const uint64_t at = (bed->used + 255) / 256 * 256 + skew;
    if (at + bytes > BED_BYTES) {
        printf("Bail out! the test bed is too small\n");
        exit(1);
    }
    bed->used = at + bytes;
    return bed->memory + at;
}

void *test_bed_take_guarded(struct test_bed *bed, uint64_t bytes, uint64_t guard_bytes, uint64_t skew)
{
    return test_bed_take(bed, bytes + guard_bytes, skew);
}

void test_bed_reset(struct test_bed *bed)
{
    bed->used = 0;
}

void test_bed_put(struct test_bed *bed, void *to, const void *from, uint64_t bytes)
{
    const struct eo_device_ops *ops = bed->device->ops;
    if (bytes > 0)
        memcpy(bed->host, from, bytes);
    ops->upload(bed->device, to, bed->host, bytes);
    TEST_HOLDS(NULL, ops->drain(bed->device) == EO_OK);
}

void test_bed_get(struct test_bed *bed, void *to, const void *from, uint64_t bytes)
{
    const struct eo_device_ops *ops = bed->device->ops;
    ops->download(bed->device, bed->host, from, bytes);
    TEST_HOLDS(NULL, ops->drain(bed->device) == EO_OK);
    if (bytes > 0)
        memcpy(to, bed->host, bytes);
}

/* More than the device has, and not more addresses than a driver gives: that it may call an invalid argument. */
static uint64_t too_much(const struct test_bed *bed)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    TEST_HOLDS(NULL, bed->device->ops->available(bed->device, &free_bytes, &total_bytes) == EO_OK && total_bytes > 0);
    return total_bytes + ((uint64_t)1 << 30);
}

/* Goal: each kind of memory comes zeroed and aligned; what cannot be had is refused, and nothing else is broken. */
static void memory_of_every_kind_is_zero_and_aligned(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    unsigned char *bytes = malloc(100000);
    for (int kind = 0; kind < EO_MEMORY_KIND_COUNT; kind++) {
        for (int again = 0; again < 2; again++) { /* the second time it may be the same memory */
            void *memory = NULL;
            const eo_status status = ops->reserve(bed->device, (enum eo_memory_kind)kind, 100000, &memory);
            TEST_EXPECT(NULL, status == EO_OK && memory, "kind %d: %s", kind, eo_status_text(status));
            if (status != EO_OK)
                continue;
            TEST_HOLDS(NULL, (uintptr_t)memory % 4096 == 0);
            memset(bytes, 1, 100000);
            if (kind == EO_MEMORY_KIND_HOST) {
                memcpy(bytes, memory, 100000);
                memset(memory, 7, 100000);
            } else {
                test_bed_get(bed, bytes, memory, 100000);
                ops->fill(bed->device, memory, 0x07070707, 100000);
            }
            for (int i = 0; i < 100000; i++)
                TEST_HOLDS(NULL, bytes[i] == 0);
            ops->release(bed->device, (enum eo_memory_kind)kind, memory, 100000);
        }
        if (kind == EO_MEMORY_KIND_HOST)
            continue;
        void *memory = bed;
        TEST_HOLDS(NULL, ops->reserve(bed->device, (enum eo_memory_kind)kind, too_much(bed), &memory) == EO_ERR_NO_MEMORY);
        TEST_HOLDS(NULL, memory == NULL);
    }
    free(bytes);
    uint64_t free_bytes = 0, total_bytes = 0;
    TEST_HOLDS(NULL, ops->available(bed->device, &free_bytes, &total_bytes) == EO_OK);
    TEST_HOLDS(NULL, free_bytes > 0 && free_bytes <= total_bytes);
    TEST_HOLDS(NULL, ops->drain(bed->device) == EO_OK);
    test_report("memory of every kind is zeroed and aligned, and too much is refused", 1);
}

/*
 * Goal: an event orders queues both ways; an event never recorded orders nothing; a record replaces the one before.
 * Method: a cast on queue 1 reads what a long row of fills on the compute queue leaves, and its result is read there.
 */
static void events_order_the_queues(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    enum { FILLS = 20 };
    const uint64_t count = test_event_elements;
    float *from = test_bed_take(bed, count * sizeof(float), 0);
    uint16_t *to = test_bed_take(bed, count * sizeof(uint16_t), 0), *got = malloc(count * sizeof(uint16_t));
    struct eo_event never = {0}, filled = {0}, cast = {0};
    TEST_HOLDS(NULL, ops->is_complete(bed->device, &never) && ops->await(bed->device, &never) == EO_OK);
    TEST_HOLDS(NULL, ops->wait(bed->device, EO_QUEUE_COMM, &never) == EO_OK);
    for (uint32_t round = 1; round <= 5; round++) {
        const float value = (float)round;
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        for (uint32_t f = 0; f < FILLS; f++)
            ops->fill(bed->device, from, f + 1 == FILLS ? bits : 0x7fc00000u, count * sizeof(float));
        ops->record(bed->device, EO_QUEUE_COMPUTE, &filled);
        TEST_HOLDS(NULL, ops->wait(bed->device, EO_QUEUE_COMM, &filled) == EO_OK);
        ops->cast_bf16(bed->device, EO_QUEUE_COMM, to, from, count);
        ops->record(bed->device, EO_QUEUE_COMM, &cast);
        TEST_HOLDS(NULL, ops->wait(bed->device, EO_QUEUE_COMPUTE, &cast) == EO_OK);
        ops->download(bed->device, bed->host, to, count * sizeof(uint16_t));
        ops->record(bed->device, EO_QUEUE_COMPUTE, &filled);
        TEST_HOLDS(NULL, ops->await(bed->device, &filled) == EO_OK);
        TEST_HOLDS(NULL, ops->is_complete(bed->device, &filled) && ops->is_complete(bed->device, &cast));
        memcpy(got, bed->host, count * sizeof(uint16_t));
        for (uint32_t i = 0; i < count; i++)
            TEST_EXPECT(NULL, got[i] == bits >> 16, "round %u: element %u is %04x", round, i, (unsigned)got[i]);
    }
    free(got);
    test_bed_reset(bed);
    test_report("events order the queues", 1);
}

/* Goal: sums on two queues at once have rooms of their own for what is partial. */
static void two_queues_sum_at_once(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    enum { COUNT = 5 * EO_SUM_CHUNK + 77 };
    static float plain[COUNT];
    float *values[2];
    double *sums = test_bed_take(bed, 2 * sizeof(double), 0), wants[2], got[2];
    struct eo_event ready = {0}, done = {0};
    for (uint32_t q = 0; q < 2; q++) {
        values[q] = test_bed_take(bed, sizeof(plain), 0);
        for (uint32_t i = 0; i < COUNT; i++)
            plain[i] = (float)(test_hash(40 + q, 0, i) % 1000) * 1e-3f;
        test_bed_put(bed, values[q], plain, sizeof(plain));
        wants[q] = eo_sum_squares_plain(plain, COUNT);
    }
    for (int round = 0; round < 3; round++) {
        ops->zero(bed->device, sums, 2 * sizeof(double));
        ops->record(bed->device, EO_QUEUE_COMPUTE, &ready);
        TEST_HOLDS(NULL, ops->wait(bed->device, EO_QUEUE_COMM, &ready) == EO_OK);
        ops->sum_squares(bed->device, EO_QUEUE_COMM, sums + 1, values[1], COUNT, NULL);
        ops->sum_squares(bed->device, EO_QUEUE_COMPUTE, sums, values[0], COUNT, NULL);
        ops->record(bed->device, EO_QUEUE_COMM, &done);
        TEST_HOLDS(NULL, ops->wait(bed->device, EO_QUEUE_COMPUTE, &done) == EO_OK);
        test_bed_get(bed, got, sums, sizeof(got));
        TEST_EXPECT(NULL, memcmp(got, wants, sizeof(got)) == 0, "round %d: %a and %a, not %a and %a", round, got[0], got[1],
                    wants[0], wants[1]);
    }
    test_bed_reset(bed);
    test_report("sums of squares on two queues at once have their own bits", 1);
}

/* Goal: stamps come in the order of the work, between the host's own times. */
static void stamps_tell_when(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    uint64_t at[6] = {0};
    const uint64_t slack_ns = 50000000; /* two clocks, compared at a drain */
    TEST_HOLDS(NULL, ops->drain(bed->device) == EO_OK);
    const uint64_t before = eo_now_ns();
    for (int i = 0; i < 6; i++) {
        ops->stamp(bed->device, EO_QUEUE_COMPUTE, &at[i]);
        ops->fill(bed->device, bed->memory, 1, BED_BYTES);
    }
    TEST_HOLDS(NULL, ops->drain(bed->device) == EO_OK);
    ops->resolve_stamps(bed->device);
    const uint64_t after = eo_now_ns();
    for (int i = 0; i < 6; i++) {
        TEST_EXPECT(NULL, at[i] + slack_ns >= before && at[i] <= after + slack_ns, "stamp %d: %lld ns after the start",
                    i, (long long)(at[i] - before));
        TEST_HOLDS(NULL, i == 0 || at[i] >= at[i - 1]);
    }
    test_report("stamps tell when the device came there", 1);
}

/*
 * Goal: a captured row of work runs again and again, with what lies in memory then; the work around it, on all queues
 * and with events from before, stands before and after.
 */
static void a_captured_row_runs_again(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    enum { COUNT = 100000, LAUNCHES = 3 };
    if (!ops->capture_begin) {
        printf("# device %s has no graphs\n", ops->name);
        return;
    }
    float *source = test_bed_take(bed, COUNT * 4, 0), *sum = test_bed_take(bed, COUNT * 4, 0);
    uint16_t *rounded = test_bed_take(bed, COUNT * 2, 0), got[16];
    const float one = 1.0f, two = 2.0f;
    uint32_t one_bits, two_bits;
    memcpy(&one_bits, &one, 4);
    memcpy(&two_bits, &two, 4);
    struct eo_event ready = {0}, inside = {0}, done = {0};
    ops->fill(bed->device, source, two_bits, COUNT * 4);
    ops->zero(bed->device, sum, COUNT * 4);
    ops->record(bed->device, EO_QUEUE_COMPUTE, &ready);

    void *graph = NULL;
    TEST_HOLDS(NULL, ops->capture_begin(bed->device) == EO_OK);
    TEST_HOLDS(NULL, ops->wait(bed->device, EO_QUEUE_COMM, &ready) == EO_OK); /* from before: nothing to wait for */
    ops->accumulate(bed->device, sum, source, EO_DTYPE_FP32, false, COUNT);
    ops->record(bed->device, EO_QUEUE_COMPUTE, &inside);
    TEST_HOLDS(NULL, ops->wait(bed->device, EO_QUEUE_COMM, &inside) == EO_OK);
    ops->cast_bf16(bed->device, EO_QUEUE_COMM, rounded, sum, COUNT);
    ops->record(bed->device, EO_QUEUE_COMM, &done); /* and nobody waits for it inside */
    const eo_status status = ops->capture_end(bed->device, &graph);
    TEST_EXPECT(NULL, status == EO_OK && graph, "%s", eo_status_text(status));
    for (int launch = 1; graph && launch <= LAUNCHES; launch++) {
        TEST_HOLDS(NULL, ops->graph_launch(bed->device, graph) == EO_OK);
        TEST_HOLDS(NULL, ops->wait(bed->device, EO_QUEUE_COMPUTE, &done) == EO_OK); /* of a captured record */
        ops->download(bed->device, bed->host, rounded, sizeof(got));
        ops->fill(bed->device, source, one_bits, COUNT * 4); /* the next launch adds this */
        TEST_HOLDS(NULL, ops->await(bed->device, &done) == EO_OK);
        TEST_HOLDS(NULL, ops->drain(bed->device) == EO_OK);
        memcpy(got, bed->host, sizeof(got));
        const float want = (float)(launch + 1);
        uint32_t want_bits;
        memcpy(&want_bits, &want, 4);
        TEST_EXPECT(NULL, got[0] == want_bits >> 16 && got[15] == want_bits >> 16, "launch %d: %04x", launch,
                    (unsigned)got[0]);
    }
    if (graph)
        ops->graph_destroy(bed->device, &graph);
    TEST_HOLDS(NULL, graph == NULL);
    test_bed_reset(bed);
    test_report("a captured row of work runs again, and all else stands before or after it", 1);
}

/*
 * Goal: live blocks do not overlap, frees tell what was asked, and a caching allocator takes nothing new when the same
 * sizes come again.
 */
static void allocators_keep_blocks_apart(struct test_bed *bed, const char *kind)
{
    enum { BLOCKS = 40, ROUNDS = 3 };
    const struct eo_device_allocator_ops *ops = bed->device->ops->allocator(kind);
    void *allocator = NULL, *blocks[BLOCKS];
    uint64_t bytes[BLOCKS], reserved = 0, peak = 0, first_peak = 0;
    TEST_EXPECT(NULL, ops && ops->create(&allocator, bed->device) == EO_OK, "allocator %s", kind);
    if (!allocator)
        return;
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t b = 0; b < BLOCKS; b++) {
            bytes[b] = b % 4 == 0 ? 4 * (1 + test_hash(1, 0, b) % 500000) : 4 * (1 + test_hash(2, 0, b) % 3000);
            blocks[b] = ops->allocate(allocator, bytes[b], b % 2);
            TEST_EXPECT(NULL, blocks[b], "allocator %s: %llu bytes", kind, (unsigned long long)bytes[b]);
            if (b % 2 == 0)
                bed->device->ops->fill(bed->device, blocks[b], b, bytes[b]);
        }
        for (uint32_t b = 0; b < BLOCKS; b += 2) { /* those of queue 0 */
            uint32_t ends[2] = {77, 77};
            test_bed_get(bed, &ends[0], blocks[b], 4);
            test_bed_get(bed, &ends[1], (unsigned char *)blocks[b] + bytes[b] - 4, 4);
            TEST_EXPECT(NULL, ends[0] == b && ends[1] == b, "allocator %s: block %u was overwritten", kind, b);
        }
        for (uint32_t i = 0; i < BLOCKS; i++) {
            const uint32_t b = (i * 7 + 3) % BLOCKS;
            TEST_HOLDS(NULL, ops->free(allocator, blocks[b], b % 2) == bytes[b]);
        }
        TEST_HOLDS(NULL, bed->device->ops->drain(bed->device) == EO_OK);
        ops->reserved(allocator, &reserved, &peak);
        TEST_HOLDS(NULL, peak > 0 && reserved <= peak);
        first_peak = round == 0 ? peak : first_peak;
        TEST_EXPECT(NULL, peak == first_peak, "allocator %s: %llu, then %llu bytes", kind,
                    (unsigned long long)first_peak, (unsigned long long)peak);
    }
    TEST_HOLDS(NULL, strcmp(kind, "malloc") != 0 || reserved == 0);
    TEST_HOLDS(NULL, strcmp(kind, "caching") != 0 || (reserved == peak && peak % (2 << 20) == 0));
    TEST_HOLDS(NULL, ops->allocate(allocator, too_much(bed), 0) == NULL);
    blocks[0] = ops->allocate(allocator, 1000, 0); /* still serves, and is freed by destroy */
    TEST_HOLDS(NULL, blocks[0] != NULL);
    ops->destroy(&allocator);
    TEST_HOLDS(NULL, allocator == NULL && bed->device->ops->drain(bed->device) == EO_OK);
}

bool test_device_table(const char *name)
{
    struct test_bed bed = {NULL, NULL, NULL, 0};
    const struct eo_device_params params = {.queue_count = 3, .ring_capacity = 64, .rank_count = 1, .event_count = 16,
                                            .stamp_count = 8};
    const eo_status status = eo_device_create(&bed.device, name, &params);
    if (status == EO_ERR_UNSUPPORTED)
        return false;
    TEST_EXPECT(NULL, status == EO_OK, "device %s: %s", name, eo_status_text(status));
    void *memory = NULL, *host = NULL;
    if (status == EO_OK) {
        TEST_HOLDS(NULL, bed.device->ops->reserve(bed.device, EO_MEMORY_KIND_PRIVATE, BED_BYTES, &memory) == EO_OK);
        TEST_HOLDS(NULL, bed.device->ops->reserve(bed.device, EO_MEMORY_KIND_HOST, BED_BYTES, &host) == EO_OK);
    }
    const bool begins = memory && host;
    bed.memory = memory;
    bed.host = host;
    test_report("a device is created, with memory", 1);
    if (!begins) {
        eo_device_destroy(&bed.device);
        return true;
    }
    memory_of_every_kind_is_zero_and_aligned(&bed);
    test_device_kernels(&bed);
    events_order_the_queues(&bed);
    two_queues_sum_at_once(&bed);
    stamps_tell_when(&bed);
    a_captured_row_runs_again(&bed);
    if (bed.device->ops->allocator) {
        static const char *const kinds[] = {"malloc", "pool", "caching"};
        for (int k = 0; k < 3; k++)
            allocators_keep_blocks_apart(&bed, kinds[k]);
        TEST_HOLDS(NULL, bed.device->ops->allocator("none") == NULL);
        test_report("allocators keep blocks apart and use them again", 1);
    }
    bed.device->ops->release(bed.device, EO_MEMORY_KIND_PRIVATE, memory, BED_BYTES);
    bed.device->ops->release(bed.device, EO_MEMORY_KIND_HOST, host, BED_BYTES);
    eo_device_destroy(&bed.device);
    return true;
}
