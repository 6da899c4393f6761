/* SPDX-License-Identifier: MIT
 *
 * Weights to float8 for a gather, and back, and from MXFP8: runs are cut into chunks and spread over the trainer's threads.
 */
#include <string.h>

#include "base/arithmetic.h"
#include "base/float8.h"
#include "base/mxfp8.h"
#include "streams/cpu/device.h"

enum { RUNS_A_ROUND = 64 };

struct float8_job {
    const struct eo_cpu_kernels *kernels;
    const struct eo_float8_run *runs;
    uint32_t largest[RUNS_A_ROUND]; /* written by any thread */
};

static uint64_t chunks_of(const struct eo_float8_run *run)
{
    return eo_div_up(run->count, EO_CPU_CHUNK_ELEMENTS);
}

/* The run of a task; its elements are [*begin, *begin + *count). */
static uint32_t find_chunk(const struct float8_job *job, uint64_t chunk, uint64_t *begin, uint64_t *count)
{
    uint32_t r = 0;
    for (; chunk >= chunks_of(&job->runs[r]); r++)
        chunk -= chunks_of(&job->runs[r]);
    *begin = chunk * EO_CPU_CHUNK_ELEMENTS;
    *count = eo_min_u64(EO_CPU_CHUNK_ELEMENTS, job->runs[r].count - *begin);
    return r;
}

/* A maximum is the same in every order. */
static void largest_task(void *arg, uint32_t index)
{
    struct float8_job *job = arg;
    uint64_t begin, count;
    const uint32_t r = find_chunk(job, index, &begin, &count);
    if (!job->runs[r].scale)
        return;
    const uint32_t largest = job->kernels->largest_bf16(job->runs[r].wide + begin, count);
    uint32_t seen = __atomic_load_n(&job->largest[r], __ATOMIC_RELAXED);
    while (seen < largest &&
           !__atomic_compare_exchange_n(&job->largest[r], &seen, largest, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static void narrow_task(void *arg, uint32_t index)
{
    const struct float8_job *job = arg;
    uint64_t begin, count;
    const struct eo_float8_run *run = &job->runs[find_chunk(job, index, &begin, &count)];
    if (run->scale)
        job->kernels->narrow_float8((uint8_t *)run->narrow + begin, run->wide + begin, eo_float8_inverse(*run->scale), count);
    else
        memcpy((uint16_t *)run->narrow + begin, run->wide + begin, count * sizeof(uint16_t));
}

static void widen_task(void *arg, uint32_t index)
{
    const struct float8_job *job = arg;
    uint64_t begin, count;
    const struct eo_float8_run *run = &job->runs[find_chunk(job, index, &begin, &count)];
    if (run->scale)
        job->kernels->widen_float8(run->wide + begin, (const uint8_t *)run->narrow + begin, *run->scale, count);
    else
        memcpy(run->wide + begin, (const uint16_t *)run->narrow + begin, count * sizeof(uint16_t));
}

static uint64_t count_chunks(const struct eo_float8_run *runs, uint32_t run_count)
{
    uint64_t chunks = 0;
    for (uint32_t r = 0; r < run_count; r++)
        chunks += chunks_of(&runs[r]);
    return chunks;
}

void eo_cpu_narrow(struct eo_device *device, const struct eo_float8_run *runs, uint32_t run_count)
{
    for (uint32_t done = 0; done < run_count; done += RUNS_A_ROUND) {
        const uint32_t round = (uint32_t)eo_min_u64(RUNS_A_ROUND, run_count - done);
        struct float8_job job = {.kernels = eo_cpu_of(device)->kernels, .runs = runs + done};
        eo_cpu_run_chunks(device, count_chunks(job.runs, round), largest_task, &job);
        for (uint32_t r = 0; r < round; r++)
            if (job.runs[r].scale && job.runs[r].count)
                *job.runs[r].scale = eo_float8_scale((uint16_t)job.largest[r]);
        eo_cpu_run_chunks(device, count_chunks(job.runs, round), narrow_task, &job);
    }
}

void eo_cpu_widen(struct eo_device *device, const struct eo_float8_run *runs, uint32_t run_count)
{
    struct float8_job job = {.kernels = eo_cpu_of(device)->kernels, .runs = runs};
    eo_cpu_run_chunks(device, count_chunks(runs, run_count), widen_task, &job);
}

struct mxfp8_job {
    const struct eo_cpu_kernels *kernels;
    const struct eo_mxfp8_run *runs;
};

/* Chunks begin with blocks. */
static void widen_mxfp8_task(void *arg, uint32_t index)
{
    const struct mxfp8_job *job = arg;
    const struct eo_mxfp8_run *run = job->runs;
    uint64_t chunk = index;
    for (; chunk >= eo_div_up(run->count, EO_CPU_CHUNK_ELEMENTS); run++)
        chunk -= eo_div_up(run->count, EO_CPU_CHUNK_ELEMENTS);
    const uint64_t begin = chunk * EO_CPU_CHUNK_ELEMENTS, count = eo_min_u64(EO_CPU_CHUNK_ELEMENTS, run->count - begin);
    const uint64_t bytes = eo_dtype_bytes(run->dtype);
    const uint8_t *exponents = run->exponents ? run->exponents + begin / EO_MXFP8_BLOCK : NULL;
    if (!run->exponents)
        memcpy((char *)run->wide + begin * bytes, run->narrow + begin * bytes, count * bytes);
    else if (run->dtype == EO_DTYPE_BF16)
        job->kernels->widen_mxfp8((uint16_t *)run->wide + begin, exponents, run->narrow + begin, count);
    else
        job->kernels->widen_mxfp8_to_fp32((float *)run->wide + begin, exponents, run->narrow + begin, count);
}

void eo_cpu_widen_mxfp8(struct eo_device *device, const struct eo_mxfp8_run *runs, uint32_t run_count)
{
    struct mxfp8_job job = {.kernels = eo_cpu_of(device)->kernels, .runs = runs};
    uint64_t chunks = 0;
    for (uint32_t r = 0; r < run_count; r++)
        chunks += eo_div_up(runs[r].count, EO_CPU_CHUNK_ELEMENTS);
    eo_cpu_run_chunks(device, chunks, widen_mxfp8_task, &job);
}
