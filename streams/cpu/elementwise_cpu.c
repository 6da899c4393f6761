/* SPDX-License-Identifier: MIT
 *
 * The element-wise operations of the device: cut into chunks whose number follows from the sizes alone, and spread
 * over the trainer's threads. Which thread takes which chunk changes no result.
 */
#include <string.h>

#include "base/arithmetic.h"
#include "streams/cpu/device_cpu.h"

/* Large enough to be worth waking a thread, small enough to share a layer's shard between a few. */
#define CHUNK_ELEMENTS ((uint64_t)1 << 17)
#define CHUNK_BYTES    (CHUNK_ELEMENTS * 4)

static void run_chunks(struct eo_device *device, uint64_t chunk_count, void (*task)(void *arg, uint32_t index), void *arg)
{
    const struct eo_workers *workers = &device->params.workers;
    EO_ASSERT(chunk_count <= UINT32_MAX);
    if (workers->run && chunk_count > 1) {
        workers->run(workers->team, (uint32_t)chunk_count, task, arg);
        return;
    }
    for (uint32_t i = 0; i < chunk_count; i++)
        task(arg, i);
}

struct bytes_job {
    const struct eo_cpu_kernels *kernels;
    unsigned char *to;
    const unsigned char *from; /* NULL: zero */
    uint64_t bytes;
};

static void bytes_task(void *arg, uint32_t index)
{
    const struct bytes_job *job = arg;
    const uint64_t begin = index * CHUNK_BYTES;
    const uint64_t bytes = eo_min_u64(CHUNK_BYTES, job->bytes - begin);
    if (job->from && job->bytes >= EO_STREAM_BYTES)
        job->kernels->stream_copy(job->to + begin, job->from + begin, bytes);
    else if (job->from)
        memcpy(job->to + begin, job->from + begin, bytes);
    else
        memset(job->to + begin, 0, bytes);
}

void eo_cpu_zero(struct eo_device *device, void *memory, uint64_t bytes)
{
    struct bytes_job job = {eo_cpu_of(device)->kernels, memory, NULL, bytes};
    run_chunks(device, eo_div_up(bytes, CHUNK_BYTES), bytes_task, &job);
}

void eo_cpu_copy(struct eo_device *device, void *to, const void *from, uint64_t bytes)
{
    if (to == from)
        return;
    struct bytes_job job = {eo_cpu_of(device)->kernels, to, from, bytes};
    run_chunks(device, eo_div_up(bytes, CHUNK_BYTES), bytes_task, &job);
}

struct sum_job {
    const struct eo_cpu_kernels *kernels;
    float *to;
    const float *from;
    double *partials;
    uint64_t count, chunk;
};

static void accumulate_task(void *arg, uint32_t index)
{
    const struct sum_job *job = arg;
    const uint64_t begin = index * job->chunk;
    job->kernels->accumulate(job->to + begin, job->from + begin, eo_min_u64(job->chunk, job->count - begin));
}

void eo_cpu_accumulate(struct eo_device *device, float *to, const float *from, uint64_t count)
{
    struct sum_job job = {.kernels = eo_cpu_of(device)->kernels, .to = to, .from = from, .count = count,
                          .chunk = CHUNK_ELEMENTS};
    run_chunks(device, eo_div_up(count, job.chunk), accumulate_task, &job);
}

static void sum_squares_task(void *arg, uint32_t index)
{
    const struct sum_job *job = arg;
    const uint64_t begin = index * job->chunk;
    const uint64_t count = eo_min_u64(job->chunk, job->count - begin);
    job->partials[index] = job->to ? job->kernels->accumulate_sum_squares(job->to + begin, job->from + begin, count)
                                   : job->kernels->sum_squares(job->from + begin, count);
}

/* The chunk grows with the array where the partial sums would not fit: still a matter of `count` alone. */
static void sum_squares(struct eo_device *device, double *out, float *to, const float *from, uint64_t count)
{
    struct eo_cpu *cpu = eo_cpu_of(device);
    const uint64_t even = eo_align_up(eo_div_up(count, EO_CPU_PARTIALS_MAX), EO_SUM_LANES);
    struct sum_job job = {.kernels = cpu->kernels, .to = to, .from = from, .partials = cpu->partials, .count = count,
                          .chunk = eo_max_u64(CHUNK_ELEMENTS, even)};
    const uint64_t chunk_count = eo_div_up(count, job.chunk);
    EO_ASSERT(chunk_count <= EO_CPU_PARTIALS_MAX);
    run_chunks(device, chunk_count, sum_squares_task, &job);
    double sum = 0;
    for (uint64_t i = 0; i < chunk_count; i++)
        sum += cpu->partials[i];
    *out = sum;
}

void eo_cpu_sum_squares(struct eo_device *device, double *out, const float *values, uint64_t count)
{
    sum_squares(device, out, NULL, values, count);
}

void eo_cpu_accumulate_sum_squares(struct eo_device *device, double *out, float *to, const float *from,
                                   uint64_t count)
{
    sum_squares(device, out, to, from, count);
}

struct adamw_job {
    const struct eo_cpu_kernels *kernels;
    const struct eo_adamw *ranges;
};

/* All ranges in one run of the team: many are shorter than a chunk. */
static void adamw_task(void *arg, uint32_t index)
{
    const struct adamw_job *job = arg;
    const struct eo_adamw *range = job->ranges;
    uint64_t chunk = index;
    while (chunk >= eo_div_up(range->count, CHUNK_ELEMENTS)) {
        chunk -= eo_div_up(range->count, CHUNK_ELEMENTS);
        range++;
    }
    const uint64_t begin = chunk * CHUNK_ELEMENTS;
    job->kernels->adamw(range, begin, eo_min_u64(CHUNK_ELEMENTS, range->count - begin));
}

void eo_cpu_adamw(struct eo_device *device, const struct eo_adamw *ranges, uint32_t range_count)
{
    struct adamw_job job = {eo_cpu_of(device)->kernels, ranges};
    uint64_t chunk_count = 0;
    for (uint32_t i = 0; i < range_count; i++)
        chunk_count += eo_div_up(ranges[i].count, CHUNK_ELEMENTS);
    run_chunks(device, chunk_count, adamw_task, &job);
}
