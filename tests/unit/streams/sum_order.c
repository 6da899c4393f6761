/* SPDX-License-Identifier: MIT
 *
 * The order of sums of squares, which every device keeps to the bit.
 */
#include "streams/sum_order.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "streams/device.h"

/*
 * Goal: what a device sums has the bits of the order as it is written down, also where chunks are longer than usual.
 * Method: random values of very different sizes, so that another order shows; lengths around lanes, chunks and the
 * number of chunks.
 */
Test(sum_order, the_cpu_sums_squares_in_the_order_that_is_written_down)
{
    static const uint64_t counts[] = {0,     1,      31,     32,      33,     8191,   8192,
                                      8193,  16384,  131071, 131073,  300000, 262144 + 5,
                                      (uint64_t)EO_SUM_CHUNK * EO_SUM_CHUNKS_MAX + 77};
    enum { COUNTS = sizeof(counts) / sizeof(counts[0]) };
    struct eo_device *device;
    cr_assert_eq(eo_device_create(&device, "cpu", &(struct eo_device_params){.queue_count = 2, .ring_capacity = 1,
                                                                             .rank_count = 1}), EO_OK);
    float *values = malloc(counts[COUNTS - 1] * sizeof(float));
    cr_assert_not_null(values);
    uint64_t state = 7;
    for (uint64_t i = 0; i < counts[COUNTS - 1]; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)(int32_t)(state >> 32) * ((state >> 20 & 7) ? 1e-9f : 1e-3f);
    }
    for (size_t c = 0; c < COUNTS; c++) {
        const double want = eo_sum_squares_plain(values, counts[c]);
        for (uint32_t queue = EO_QUEUE_COMPUTE; queue <= EO_QUEUE_COMM; queue++) {
            double got = -1;
            struct eo_span span = {0};
            device->ops->sum_squares(device, queue, &got, values, counts[c], &span);
            cr_assert_eq(device->ops->drain(device), EO_OK);
            cr_expect_eq(memcmp(&got, &want, sizeof(got)), 0, "%llu values on queue %u: %a, not %a",
                         (unsigned long long)counts[c], queue, got, want);
            cr_expect(span.start_ns > 0 && span.end_ns >= span.start_ns);
        }
    }
    free(values);
    eo_device_destroy(&device);
}

/* Goal: every element is in one chunk, and there is room for all chunks. Method: lengths up to very long ones. */
Test(sum_order, chunks_cover_the_array_and_are_never_too_many)
{
    for (uint64_t count = 1; count < (uint64_t)1 << 50; count = count * 3 + 1) {
        const uint64_t chunk = eo_sum_chunk(count);
        cr_assert(chunk % EO_SUM_LANES == 0 && chunk >= EO_SUM_CHUNK);
        cr_assert_leq((count + chunk - 1) / chunk, EO_SUM_CHUNKS_MAX);
    }
    cr_assert_eq(eo_sum_chunk((uint64_t)EO_SUM_CHUNK * EO_SUM_CHUNKS_MAX), EO_SUM_CHUNK);
    cr_assert_eq(eo_sum_chunk((uint64_t)EO_SUM_CHUNK * EO_SUM_CHUNKS_MAX + 1), EO_SUM_CHUNK + EO_SUM_LANES);
}
