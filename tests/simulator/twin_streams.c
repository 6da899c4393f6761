/* SPDX-License-Identifier: MIT
 *
 * Twins of the CUDA device's kernels and of the local collectives' ones: the same functions as the .cu files have, which
 * enqueue the CPU's kernels on a simulated stream, with what they read and write.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulator/cuda/sim.h"
#include "streams/cpu/kernels.h"
#include "streams/cuda/collective_kernels.h"
#include "streams/cuda/kernels.h"

#define LAUNCH(name, stream, body, args, ranges)                                                                      \
    sim_kernel(name, stream, body, &(args), sizeof(args), ranges, sizeof(ranges) / sizeof((ranges)[0]))

cudaError_t eo_cuda_kernels_load(void) { return cudaSuccess; }
cudaError_t eo_cuda_sum_load(void) { return cudaSuccess; }

static uint64_t element_bytes(eo_dtype dtype) { return dtype == EO_DTYPE_BF16 ? 2 : 4; }

/* --- fill, cast --- */

struct fill_args {
    void *memory;
    uint32_t pattern;
    uint64_t bytes;
};

static void fill_body(const void *arguments)
{
    const struct fill_args *args = arguments;
    unsigned char *memory = sim_at_write(args->memory, args->bytes);
    for (uint64_t i = 0; i < args->bytes; i += 4)
        memcpy(memory + i, &args->pattern, 4);
}

cudaError_t eo_cuda_fill(void *memory, uint32_t pattern, uint64_t bytes, cudaStream_t stream)
{
    const struct fill_args args = {memory, pattern, bytes};
    const struct sim_range ranges[] = {SIM_WRITES(memory, bytes)};
    return LAUNCH("fill", stream, fill_body, args, ranges);
}

struct cast_args {
    uint16_t *to;
    const float *from;
    uint64_t count;
};

static void cast_body(const void *arguments)
{
    const struct cast_args *args = arguments;
    eo_cpu_kernels_best()->round_bf16(sim_at_write(args->to, args->count * 2), sim_at_read(args->from, args->count * 4),
                                      args->count);
}

cudaError_t eo_cuda_cast_bf16(uint16_t *to, const float *from, uint64_t count, cudaStream_t stream)
{
    const struct cast_args args = {to, from, count};
    const struct sim_range ranges[] = {SIM_READS(from, count * 4), SIM_WRITES(to, count * 2)};
    return LAUNCH("cast_bf16", stream, cast_body, args, ranges);
}

/* --- accumulate, sums of squares --- */

struct sum_args {
    double *out, *chunks; /* NULL: no sum is wanted */
    float *to;            /* NULL: `values` are summed as they are */
    const void *from;
    const float *values;
    eo_dtype dtype;
    bool overwrite;
    uint64_t count;
};

static void accumulate(const struct sum_args *args, float *to, const void *from)
{
    const struct eo_cpu_kernels *kernels = eo_cpu_kernels_best();
    if (args->dtype == EO_DTYPE_BF16)
        kernels->widen_bf16(to, from, !args->overwrite, args->count);
    else if (args->overwrite)
        memcpy(to, from, args->count * 4);
    else
        kernels->accumulate(to, from, args->count);
}

static uint64_t chunk_count(uint64_t count)
{
    const uint64_t chunk = eo_sum_chunk(count);
    return count / chunk + (count % chunk != 0);
}

static void sum_body(const void *arguments)
{
    const struct sum_args *args = arguments;
    const float *values;
    if (args->to && args->count) {
        float *to = sim_at_write(args->to, args->count * 4);
        accumulate(args, to, sim_at_read(args->from, args->count * element_bytes(args->dtype)));
        values = to;
    } else {
        values = sim_at_read(args->values, args->count * 4);
    }
    if (!args->out)
        return;
    const uint64_t chunk = eo_sum_chunk(args->count), chunks = chunk_count(args->count);
    double *partials = sim_at_write(args->chunks, chunks * sizeof(double));
    for (uint64_t c = 0; c < chunks; c++) {
        const uint64_t begin = c * chunk, left = args->count - begin;
        partials[c] = eo_cpu_kernels_best()->sum_squares(values + begin, left < chunk ? left : chunk);
    }
    *(double *)sim_at_write(args->out, sizeof(double)) = eo_sum_chunks(partials, chunks);
}

static cudaError_t launch_sum(const char *name, const struct sum_args *args, cudaStream_t stream)
{
    struct sim_range ranges[4] = {{0}};
    ranges[0] = args->to ? SIM_WRITES(args->to, args->count * 4) : SIM_READS(args->values, args->count * 4);
    if (args->to)
        ranges[1] = SIM_READS(args->from, args->count * element_bytes(args->dtype));
    if (args->out) {
        ranges[2] = SIM_WRITES(args->chunks, chunk_count(args->count) * sizeof(double));
        ranges[3] = SIM_WRITES(args->out, sizeof(double));
    }
    return LAUNCH(name, stream, sum_body, *args, ranges);
}

cudaError_t eo_cuda_accumulate(float *to, const void *from, eo_dtype dtype, bool overwrite, uint64_t count,
                               cudaStream_t stream)
{
    return launch_sum("accumulate", &(struct sum_args){.to = to, .from = from, .dtype = dtype, .overwrite = overwrite,
                                                       .count = count}, stream);
}

cudaError_t eo_cuda_sum_squares(double *out, double *chunks, const float *values, uint64_t count, cudaStream_t stream)
{
    return launch_sum("sum_squares", &(struct sum_args){.out = out, .chunks = chunks, .values = values, .count = count},
                      stream);
}

cudaError_t eo_cuda_accumulate_sum_squares(double *out, double *chunks, float *to, const void *from, eo_dtype dtype,
                                           bool overwrite, uint64_t count, cudaStream_t stream)
{
    return launch_sum("accumulate_sum_squares", &(struct sum_args){out, chunks, to, from, NULL, dtype, overwrite, count},
                      stream);
}

/* --- norms --- */

struct norm_local_args {
    double *out;
    const struct eo_update_scalars *scalars;
    const double *device_values;
    uint32_t count;
    const double *partials[];
};

static void norm_local_body(const void *arguments)
{
    const struct norm_local_args *args = arguments;
    const struct eo_update_scalars *scalars = sim_at_read(args->scalars, sizeof(*scalars));
    const double *values = args->device_values ? sim_at_read(args->device_values, EO_STEP_VALUES * sizeof(double)) : NULL;
    double *out = sim_at_write(args->out, (1 + EO_STEP_VALUES) * sizeof(double)), sum = 0;
    for (uint32_t i = 0; i < args->count; i++)
        sum += *(const double *)sim_at_read(args->partials[i], sizeof(double));
    out[0] = sum;
    for (int v = 0; v < EO_STEP_VALUES; v++)
        out[1 + v] = values ? scalars->values[v] + values[v] : scalars->values[v];
}

cudaError_t eo_cuda_norm_local(double *out, const double *const *partials, uint32_t count,
                               const struct eo_update_scalars *scalars, const double *device_values, cudaStream_t stream)
{
    const size_t bytes = sizeof(struct norm_local_args) + count * sizeof(double *);
    struct norm_local_args *args = malloc(bytes);
    struct sim_range *ranges = calloc(count + 3u, sizeof(*ranges));
    if (!args || !ranges)
        abort();
    *args = (struct norm_local_args){out, scalars, device_values, count};
    for (uint32_t i = 0; i < count; i++) {
        args->partials[i] = partials[i];
        ranges[i] = SIM_READS(partials[i], sizeof(double));
    }
    ranges[count] = SIM_WRITES(out, (1 + EO_STEP_VALUES) * sizeof(double));
    ranges[count + 1] = SIM_READS(scalars, sizeof(*scalars));
    if (device_values)
        ranges[count + 2] = SIM_READS(device_values, EO_STEP_VALUES * sizeof(double));
    const cudaError_t error = sim_kernel("norm_local", stream, norm_local_body, args, bytes, ranges, count + 3);
    free(args);
    free(ranges);
    return error;
}

struct norm_sum_args {
    struct eo_norm_result *out;
    const double *gathered;
    uint32_t rank_count;
    const struct eo_update_scalars *scalars;
};

static void norm_sum_body(const void *arguments)
{
    const struct norm_sum_args *args = arguments;
    const uint64_t row = 1 + EO_STEP_VALUES;
    const double *gathered = sim_at_read(args->gathered, args->rank_count * row * sizeof(double));
    const struct eo_update_scalars *scalars = sim_at_read(args->scalars, sizeof(*scalars));
    struct eo_norm_result *out = sim_at_write(args->out, sizeof(*out));
    double sums[1 + EO_STEP_VALUES] = {0};
    for (uint32_t r = 0; r < args->rank_count; r++)
        for (uint64_t v = 0; v < row; v++)
            sums[v] += gathered[r * row + v];
    const double norm = sqrt(sums[0]), clip = (double)scalars->clip;
    out->norm = norm;
    out->clip_factor = clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
    out->gradient_scale = isfinite(norm) ? (float)out->clip_factor : NAN;
    memcpy(out->values, sums + 1, sizeof(out->values));
}

cudaError_t eo_cuda_norm_sum(struct eo_norm_result *out, const double *gathered, uint32_t rank_count,
                             const struct eo_update_scalars *scalars, cudaStream_t stream)
{
    const struct norm_sum_args args = {out, gathered, rank_count, scalars};
    const struct sim_range ranges[] = {
        SIM_WRITES(out, sizeof(*out)), SIM_READS(gathered, rank_count * (1 + EO_STEP_VALUES) * sizeof(double)),
        SIM_READS(scalars, sizeof(*scalars))};
    return LAUNCH("norm_sum", stream, norm_sum_body, args, ranges);
}

/* --- adamw --- */

struct adamw_args {
    struct eo_adamw ranges[EO_CUDA_ADAMW_RANGES];
    uint32_t range_count;
    const struct eo_update_scalars *scalars;
    const struct eo_norm_result *norm;
};

static void adamw_body(const void *arguments)
{
    const struct adamw_args *args = arguments;
    const struct eo_update_scalars *scalars = sim_at_read(args->scalars, sizeof(*scalars));
    const struct eo_norm_result *norm = sim_at_read(args->norm, sizeof(*norm));
    if (isnan(norm->gradient_scale))
        return;
    for (uint32_t i = 0; i < args->range_count; i++) {
        struct eo_adamw range = args->ranges[i];
        const uint64_t count = range.count;
        if (count == 0)
            continue;
        if (range.weights) {
            range.weights = sim_at_write(range.weights, count * 4);
        } else {
            range.high = sim_at_write(range.high, count * 2);
            range.low = sim_at_write(range.low, count * 2);
        }
        range.first_moment = sim_at_write(range.first_moment, count * 4);
        range.second_moment = sim_at_write(range.second_moment, count * 4);
        range.gradient = sim_at_read(range.gradient, count * 4);
        eo_cpu_kernels_best()->adamw(&range, scalars, norm->gradient_scale, 0, count);
    }
}

cudaError_t eo_cuda_adamw(const struct eo_adamw *ranges, uint32_t range_count, const struct eo_update_scalars *scalars,
                          const struct eo_norm_result *norm, cudaStream_t stream)
{
    struct adamw_args args = {.range_count = range_count, .scalars = scalars, .norm = norm};
    struct sim_range touched[5 * EO_CUDA_ADAMW_RANGES + 2];
    uint32_t count = 0;
    if (range_count > EO_CUDA_ADAMW_RANGES)
        return cudaErrorInvalidValue;
    memcpy(args.ranges, ranges, range_count * sizeof(*ranges));
    for (uint32_t i = 0; i < range_count; i++) {
        const struct eo_adamw *range = &ranges[i];
        if (range->weights) {
            touched[count++] = SIM_WRITES(range->weights, range->count * 4);
        } else {
            touched[count++] = SIM_WRITES(range->high, range->count * 2);
            touched[count++] = SIM_WRITES(range->low, range->count * 2);
        }
        touched[count++] = SIM_WRITES(range->first_moment, range->count * 4);
        touched[count++] = SIM_WRITES(range->second_moment, range->count * 4);
        touched[count++] = SIM_READS(range->gradient, range->count * 4);
    }
    touched[count++] = SIM_READS(scalars, sizeof(*scalars));
    touched[count++] = SIM_READS(norm, sizeof(*norm));
    return sim_kernel("adamw", stream, adamw_body, &args, sizeof(args), touched, count);
}

/* --- the local collectives' sums --- */

struct rank_sum_args {
    void *out;
    const void *in[EO_CUDA_SUM_INPUTS_MAX];
    uint32_t in_count;
    uint64_t count;
    eo_dtype dtype;
};

static void rank_sum_body(const void *arguments)
{
    const struct rank_sum_args *args = arguments;
    const uint64_t bytes = args->count * element_bytes(args->dtype);
    const void *in[EO_CUDA_SUM_INPUTS_MAX];
    for (uint32_t i = 0; i < args->in_count; i++)
        in[i] = sim_at_read(args->in[i], bytes);
    void *out = sim_at_write(args->out, bytes);
    if (args->dtype == EO_DTYPE_BF16) {
        const uint16_t *halves[EO_CUDA_SUM_INPUTS_MAX];
        for (uint32_t i = 0; i < args->in_count; i++)
            halves[i] = in[i];
        eo_cpu_kernels_best()->sum_bf16(out, halves, args->in_count, args->count);
    } else {
        const float *floats[EO_CUDA_SUM_INPUTS_MAX];
        for (uint32_t i = 0; i < args->in_count; i++)
            floats[i] = in[i];
        eo_cpu_kernels_best()->sum_fp32(out, floats, args->in_count, args->count, false);
    }
}

static cudaError_t launch_rank_sum(const struct rank_sum_args *args, cudaStream_t stream)
{
    struct sim_range ranges[EO_CUDA_SUM_INPUTS_MAX + 1];
    const uint64_t bytes = args->count * element_bytes(args->dtype);
    for (uint32_t i = 0; i < args->in_count; i++)
        ranges[i] = SIM_READS(args->in[i], bytes);
    ranges[args->in_count] = SIM_WRITES(args->out, bytes);
    return sim_kernel("rank sum", stream, rank_sum_body, args, sizeof(*args), ranges, args->in_count + 1);
}

cudaError_t eo_cuda_sum_fp32(float *out, const float *const *in, uint32_t in_count, uint64_t count, cudaStream_t stream)
{
    struct rank_sum_args args = {.out = out, .in_count = in_count, .count = count, .dtype = EO_DTYPE_FP32};
    for (uint32_t i = 0; i < in_count; i++)
        args.in[i] = in[i];
    return launch_rank_sum(&args, stream);
}

cudaError_t eo_cuda_sum_bf16(uint16_t *out, const uint16_t *const *in, uint32_t in_count, uint64_t count,
                             cudaStream_t stream)
{
    struct rank_sum_args args = {.out = out, .in_count = in_count, .count = count, .dtype = EO_DTYPE_BF16};
    for (uint32_t i = 0; i < in_count; i++)
        args.in[i] = in[i];
    return launch_rank_sum(&args, stream);
}
