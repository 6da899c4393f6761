/* SPDX-License-Identifier: MIT
 *
 * The kernels of streams/cuda on the host: the conformance cases of a device's kernels against plain loops, bit by bit
 * (tests/conformance/device/kernels.c), and the sums of the local collectives.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alone.h"
#include "streams/bf16.h"
#include "streams/cuda/collective_kernels.h"
#include "streams/cuda/kernels.h"
#include "tests/conformance/device/table.h"
#include "tests/conformance/ranks.h"

/* chunks.cu */
cudaError_t kernels_chunks(double *chunks, float *to, const float *from, bool overwrite, uint64_t count, uint64_t chunk);
cudaError_t kernels_sum_chunks(double *out, const double *sums, uint32_t count);

static unsigned char memory[BED_BYTES];
static double chunks[EO_SUM_CHUNKS_MAX];

/* In place of tests/conformance/ranks.c: there are no ranks. */
void test_fail(const struct test_rank *self, const char *file, int line, const char *format, ...)
{
    va_list arguments;
    (void)self;
    va_start(arguments, format);
    tap_vnote(file, line, format, arguments);
    va_end(arguments);
}

void test_report(const char *name, uint32_t rank_count)
{
    (void)rank_count;
    tap_case(name);
}

static void must(cudaError_t error)
{
    TEST_EXPECT(NULL, error == cudaSuccess, "%s", alone_objection());
}

void *test_bed_take_guarded(struct test_bed *bed, uint64_t bytes, uint64_t guard_bytes, uint64_t skew)
{
    const uint64_t at = (bed->used + 255) / 256 * 256 + skew;
    if (at + bytes + guard_bytes > BED_BYTES)
        abort();
    bed->used = at + bytes + guard_bytes;
    alone_allow(memory + at, bytes);
    return memory + at;
}

void *test_bed_take(struct test_bed *bed, uint64_t bytes, uint64_t skew)
{
    return test_bed_take_guarded(bed, bytes, 0, skew);
}

void test_bed_reset(struct test_bed *bed)
{
    bed->used = 0;
    alone_allow_nothing();
    alone_allow(chunks, sizeof(chunks));
}

void test_bed_put(struct test_bed *bed, void *to, const void *from, uint64_t bytes)
{
    (void)bed;
    memcpy(to, from, bytes);
}

void test_bed_get(struct test_bed *bed, void *to, const void *from, uint64_t bytes)
{
    (void)bed;
    memcpy(to, from, bytes);
}

/* --- a device of kernels alone --- */

static void copy(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes)
{
    (void)device;
    (void)queue;
    memcpy(to, from, bytes);
}

static void zero(struct eo_device *device, void *at, uint64_t bytes)
{
    (void)device;
    memset(at, 0, bytes);
}

static void fill(struct eo_device *device, void *at, uint32_t pattern, uint64_t bytes)
{
    (void)device;
    must(eo_cuda_fill(at, pattern, bytes, NULL));
}

static void cast_bf16(struct eo_device *device, uint32_t queue, uint16_t *to, const float *from, uint64_t count)
{
    (void)device, (void)queue;
    must(eo_cuda_cast_bf16(to, from, count, NULL));
}

static void narrow(struct eo_device *device, const struct eo_float8_run *runs, uint32_t count)
{
    (void)device;
    for (uint32_t done = 0; done < count; done += EO_CUDA_FLOAT8_RUNS)
        must(eo_cuda_narrow(runs + done, count - done < EO_CUDA_FLOAT8_RUNS ? count - done : EO_CUDA_FLOAT8_RUNS,
                            (uint32_t *)chunks, NULL));
}

static void widen(struct eo_device *device, const struct eo_float8_run *runs, uint32_t count)
{
    (void)device;
    for (uint32_t done = 0; done < count; done += EO_CUDA_FLOAT8_RUNS)
        must(eo_cuda_widen(runs + done, count - done < EO_CUDA_FLOAT8_RUNS ? count - done : EO_CUDA_FLOAT8_RUNS, NULL));
}

static void widen_mxfp8(struct eo_device *device, const struct eo_mxfp8_run *runs, uint32_t count)
{
    (void)device;
    for (uint32_t done = 0; done < count; done += EO_CUDA_FLOAT8_RUNS)
        must(eo_cuda_widen_mxfp8(runs + done, count - done < EO_CUDA_FLOAT8_RUNS ? count - done : EO_CUDA_FLOAT8_RUNS, NULL));
}

static void accumulate(struct eo_device *device, float *to, const void *from, eo_dtype dtype, bool overwrite, uint64_t count)
{
    (void)device;
    must(eo_cuda_accumulate(to, from, dtype, overwrite, count, NULL));
}

static void sum_squares(struct eo_device *device, uint32_t queue, double *out, const float *values, uint64_t count,
                        struct eo_span *span)
{
    (void)device;
    (void)queue;
    (void)span;
    must(eo_cuda_sum_squares(out, chunks, values, count, NULL));
}

static void accumulate_sum_squares(struct eo_device *device, double *out, float *to, const void *from, eo_dtype dtype,
                                   bool overwrite, uint64_t count)
{
    (void)device;
    must(eo_cuda_accumulate_sum_squares(out, chunks, to, from, dtype, overwrite, count, NULL));
}

static void norm_local(struct eo_device *device, double *out, const struct eo_norm_term *terms, uint32_t count,
                       const struct eo_step_memory *step, const double *device_values)
{
    (void)device;
    must(eo_cuda_norm_local(out, terms, count, step, device_values, NULL));
}

static void norm_sum(struct eo_device *device, const double *gathered, uint32_t rank_count, const struct eo_step_memory *step)
{
    (void)device;
    must(eo_cuda_norm_sum(gathered, rank_count, step, NULL));
}

static void update(struct eo_device *device, enum eo_rule rule, const struct eo_update_range *ranges, uint32_t count,
                   const struct eo_step_memory *step)
{
    (void)device;
    for (uint32_t done = 0; done < count; done += EO_CUDA_UPDATE_RANGES)
        must(eo_cuda_update_ranges(rule, ranges + done,
                                   count - done < EO_CUDA_UPDATE_RANGES ? count - done : EO_CUDA_UPDATE_RANGES, step, NULL));
}

static void combine(struct eo_device *device, float *out, const float *a, float x, const float *b, float y,
                    const double *squares, uint64_t count)
{
    (void)device;
    must(eo_cuda_combine(out, a, x, b, y, squares, count, NULL));
}

static void average(struct eo_device *device, const struct eo_average *all, enum eo_average_mode mode,
                    const struct eo_update_scalars *scalars, const struct eo_norm_result *norm)
{
    (void)device;
    must(eo_cuda_average(all, mode, scalars, norm, NULL));
}

static const struct eo_device_ops ops = {
    .name = "alone",
    .copy = copy,
    .zero = zero,
    .fill = fill,
    .cast_bf16 = cast_bf16,
    .narrow = narrow,
    .widen = widen,
    .widen_mxfp8 = widen_mxfp8,
    .accumulate = accumulate,
    .sum_squares = sum_squares,
    .accumulate_sum_squares = accumulate_sum_squares,
    .norm_local = norm_local,
    .norm_sum = norm_sum,
    .update = update,
    .combine = combine,
    .average = average,
};

/* --- sums of ranks --- */

static void sums_of_ranks(struct test_bed *bed, uint32_t ranks, uint64_t count, uint64_t skew, bool in_place)
{
    const float *in[EO_CUDA_SUM_INPUTS_MAX];
    const uint16_t *halves[EO_CUDA_SUM_INPUTS_MAX];
    float *want = malloc(count * sizeof(float));
    uint16_t *want_half = malloc(count * sizeof(uint16_t));
    for (uint32_t r = 0; r < ranks; r++) {
        in[r] = test_bed_take(bed, count * sizeof(float), skew);
        halves[r] = test_bed_take(bed, count * sizeof(uint16_t), skew);
        for (uint64_t i = 0; i < count; i++) {
            const float x = (float)(int64_t)(test_hash(r, 5, i) % 2001) / 7 - 143;
            ((float *)(uintptr_t)in[r])[i] = x;
            ((uint16_t *)(uintptr_t)halves[r])[i] = eo_bf16_round(x);
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        float half = eo_bf16_to_float(halves[0][i]);
        want[i] = in[0][i];
        for (uint32_t r = 1; r < ranks; r++) {
            want[i] += in[r][i];
            half += eo_bf16_to_float(halves[r][i]);
        }
        want_half[i] = eo_bf16_of_sum(half);
    }
    float *out = in_place ? (float *)(uintptr_t)in[ranks - 1] : test_bed_take(bed, count * sizeof(float), skew);
    uint16_t *out_half = in_place ? (uint16_t *)(uintptr_t)halves[0] : test_bed_take(bed, count * sizeof(uint16_t), skew);
    must(eo_cuda_sum_fp32(out, in, ranks, count, NULL));
    must(eo_cuda_sum_bf16(out_half, halves, ranks, count, NULL));
    TEST_EXPECT(NULL, memcmp(out, want, count * sizeof(float)) == 0, "fp32, %u ranks, %llu elements", ranks,
                (unsigned long long)count);
    TEST_EXPECT(NULL, memcmp(out_half, want_half, count * sizeof(uint16_t)) == 0, "bf16, %u ranks, %llu elements", ranks,
                (unsigned long long)count);
    free(want);
    free(want_half);
    test_bed_reset(bed);
}

/* --- chunks of several tiles --- */

static void long_chunks(struct test_bed *bed, uint64_t count, uint64_t chunk, uint64_t skew, bool accumulates)
{
    float *from = test_bed_take(bed, count * sizeof(float), skew), *to = test_bed_take(bed, count * sizeof(float), skew);
    float *want = malloc(count * sizeof(float));
    for (uint64_t i = 0; i < count; i++) {
        from[i] = (float)(int64_t)(test_hash(1, 6, i) % 2001) / 7 - 143;
        to[i] = (float)(int64_t)(test_hash(2, 6, i) % 2001) / 9 - 111;
        want[i] = accumulates ? to[i] + from[i] : from[i];
    }
    must(kernels_chunks(chunks, accumulates ? to : NULL, from, false, count, chunk));
    TEST_EXPECT(NULL, !accumulates || memcmp(to, want, count * sizeof(float)) == 0, "%llu elements in chunks of %llu: the sum",
                (unsigned long long)count, (unsigned long long)chunk);
    for (uint64_t begin = 0; begin < count; begin += chunk) {
        double lanes[EO_SUM_LANES] = {0};
        for (uint64_t i = begin; i < begin + chunk && i < count; i++)
            lanes[(i - begin) % EO_SUM_LANES] += (double)want[i] * (double)want[i];
        TEST_EXPECT(NULL, chunks[begin / chunk] == eo_sum_fold(lanes),
                    "%llu elements in chunks of %llu: the sum of squares at %llu", (unsigned long long)count,
                    (unsigned long long)chunk, (unsigned long long)begin);
    }
    free(want);
    test_bed_reset(bed);
}

/* Of the sums of chunks, so many that they have several tiles, too. */
static void many_chunks(struct test_bed *bed, uint32_t count)
{
    double *sums = test_bed_take(bed, count * sizeof(double), 0), *out = test_bed_take(bed, sizeof(double), 0);
    double lanes[EO_SUM_LANES] = {0};
    for (uint32_t i = 0; i < count; i++) {
        sums[i] = (double)(test_hash(3, 6, i) % 2001) / 7;
        lanes[i % EO_SUM_LANES] += sums[i];
    }
    must(kernels_sum_chunks(out, sums, count));
    TEST_EXPECT(NULL, *out == eo_sum_fold(lanes), "the sum of %u chunks", count);
    test_bed_reset(bed);
}

int main(void)
{
    struct eo_device device = {.ops = &ops};
    struct test_bed bed = {.device = &device, .memory = memory};
    if (eo_cuda_kernels_load() || eo_cuda_float8_load() || eo_cuda_state8_load() || eo_cuda_sum_load())
        abort();
    test_bed_reset(&bed);
    test_device_kernels(&bed);
    static const uint64_t counts[] = {1, 7, 8, 9, 1000, 4099, 300007};
    for (uint32_t way = 0; way < 7 * 4; way++)
        sums_of_ranks(&bed, way % 4 == 3 ? EO_CUDA_SUM_INPUTS_MAX / (way > 20 ? 16 : 1) : 1 + way % 4, counts[way / 4],
                      way % 2 ? 4 : 0, way % 3 == 0);
    test_report("sums of ranks have the bits of plain loops, in place too", 1);
    for (uint32_t way = 0; way < 4; way++)
        long_chunks(&bed, 40000, way & 1 ? 2 * EO_SUM_CHUNK + 96 : EO_SUM_CHUNK + EO_SUM_LANES, way & 1 ? 4 : 0, way & 2);
    static const uint32_t chunk_counts[] = {0, 1, 33, 2047, 2048, 2049, 5003, EO_SUM_CHUNKS_MAX};
    for (uint32_t i = 0; i < sizeof(chunk_counts) / sizeof(chunk_counts[0]); i++)
        many_chunks(&bed, chunk_counts[i]);
    test_report("sums of squares of chunks that have several tiles are those of plain loops, in their order", 1);
    tap(alone_objections() == 0, "no kernel does what a GPU would not, and none depends on the order of its threads");
    return tap_end();
}
