/* SPDX-License-Identifier: MIT
 *
 * What the sums over an offload file cost: copies of 96 MiB to and from a file, with and without them, in turn, and the sums
 * alone. usage: bench_storage [FOLDER]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "streams/cpu/storage_sums.h"

enum { BYTES = 96 << 20, ROUNDS = 9 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(*values), by_value);
    return values[ROUNDS / 2];
}

/* Seconds of a write and a read. */
static double copy_once(struct eo_device *device, struct eo_storage *storage, char *memory, uint64_t *sums)
{
    struct eo_event copied = {0};
    const uint64_t begin_ns = eo_now_ns();
    for (int writes = 1; writes >= 0; writes--)
        device->ops->storage_copy(
            device, storage, &(const struct eo_storage_copy){.memory = memory, .bytes = BYTES, .sums = sums, .writes = writes});
    device->ops->record(device, EO_QUEUE_COPY, &copied);
    if (device->ops->await(device, &copied) < 0)
        exit(1);
    return (double)(eo_now_ns() - begin_ns) * 1e-9;
}

int main(int argc, char **argv)
{
    static uint64_t sums[BYTES / EO_STORAGE_PIECE];
    const eo_log log = {0};
    const char *folder = argc > 1 ? argv[1] : ".";
    struct eo_device *device = NULL;
    struct eo_storage *storage = NULL;
    double with[ROUNDS], without[ROUNDS], alone[ROUNDS];
    char *memory = aligned_alloc(EO_STORAGE_ALIGN, BYTES);
    const struct eo_device_params params = {
        .queue_count = 4, .ring_capacity = 4, .rank_count = 1, .event_count = 4, .stamp_count = 4, .log = &log};
    if (!memory || eo_device_create(&device, "cpu", &params) < 0 ||
        device->ops->storage_open(device, folder, BYTES, &storage) < 0) {
        fprintf(stderr, "bench_storage: no file of 96 MiB in %s\n", folder);
        return 1;
    }
    memset(memory, 1, BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        without[round] = copy_once(device, storage, memory, NULL);
        with[round] = copy_once(device, storage, memory, sums);
        const uint64_t begin_ns = eo_now_ns();
        eo_storage_sums_set(memory, BYTES, sums);
        alone[round] = (double)(eo_now_ns() - begin_ns) * 1e-9;
    }
    const double base = median(without), summed = median(with), sum = median(alone);
    printf("copies %.2f GB/s, with sums %.2f GB/s (%+.1f %% of the time); sums alone %.1f GB/s, %.1f %% of the time\n",
           2e-9 * BYTES / base, 2e-9 * BYTES / summed, 100 * (summed / base - 1), 1e-9 * BYTES / sum, 100 * 2 * sum / base);
    device->ops->storage_close(device, &storage);
    eo_device_destroy(&device);
    free(memory);
    return 0;
}
