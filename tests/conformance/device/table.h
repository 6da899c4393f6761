/* SPDX-License-Identifier: MIT
 *
 * For the conformance program of one device: its memory, and the way of values into it and back.
 */
#ifndef EO_TESTS_CONFORMANCE_DEVICE_TABLE_H
#define EO_TESTS_CONFORMANCE_DEVICE_TABLE_H

#include "streams/device.h"

#define BED_BYTES ((uint64_t)48 << 20)

struct test_bed {
    struct eo_device *device;
    unsigned char *memory; /* of the device, BED_BYTES */
    unsigned char *host;   /* pinned, BED_BYTES */
    uint64_t used;         /* of memory */
};

/* A piece of the bed's memory, `skew` bytes past an alignment of 256. test_bed_reset() gives all back. */
void *test_bed_take(struct test_bed *bed, uint64_t bytes, uint64_t skew);
void *test_bed_take_guarded(struct test_bed *bed, uint64_t bytes, uint64_t guard_bytes, uint64_t skew); /* kernels stay out */
void test_bed_reset(struct test_bed *bed);

/* Wait for the device. */
void test_bed_put(struct test_bed *bed, void *to, const void *from, uint64_t bytes);
void test_bed_get(struct test_bed *bed, void *to, const void *from, uint64_t bytes);

extern uint64_t test_event_elements; /* [2^20] enough that kernels take a while */

/* On the device; what stands in `from`, with `groups` groups. */
struct eo_step_memory test_bed_put_step(struct test_bed *bed, const struct eo_step_memory *from, uint32_t groups);

/* table.c: all cases on the device of this name. False: there is none. */
bool test_device_table(const char *name);

/* Against plain loops: all kernels; those of norms.c and updates.c are part of it. */
void test_device_kernels(struct test_bed *bed);
void test_device_norms(struct test_bed *bed);
void test_device_updates(struct test_bed *bed);

#endif
