/* SPDX-License-Identifier: MIT
 *
 * All of these wait for memory: four elements a thread, as one load where arrays are aligned to it. Built with
 * -fmad=false, and without fast division and square root: the CPU's bits (see streams/cuda/kernels.h).
 */
#include "streams/cuda/kernels.h"

#include "streams/cuda/quads.cuh"

enum { THREADS = 256, TILE = THREADS * QUAD };

static_assert(EO_SUM_LANES == 32, "a lane is a thread of a warp");
static_assert(EO_SUM_CHUNK % TILE == 0 && EO_SUM_CHUNK * sizeof(float) <= 48 * 1024, "a chunk fits shared memory");

__device__ static uint64_t first_element()
{
    return ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * QUAD;
}

static unsigned blocks_for(uint64_t count)
{
    return (unsigned)((count + TILE - 1) / TILE);
}

/* --- element by element ------------------------------------------------------------------------------------------- */

__global__ static void fill_kernel(uint32_t *memory, uint32_t pattern, uint64_t count)
{
    const float word = __uint_as_float(pattern);
    store((float *)memory, first_element(), count, {word, word, word, word});
}

__global__ static void cast_kernel(uint16_t *to, const float *from, uint64_t count)
{
    const uint64_t i = first_element();
    const quad q = load(from, i, count);
    const uint16_t v[QUAD] = {float_to_bf16(q.x[0]), float_to_bf16(q.x[1]), float_to_bf16(q.x[2]),
                              float_to_bf16(q.x[3])};
    store_16(to, i, count, v);
}

/* What the arrays' elements i ... i + 3 become, stored too; to NULL: what they are. */
template <typename T>
__device__ static quad accumulated(float *to, const T *from, bool overwrite, uint64_t i, uint64_t count)
{
    quad q = load(from, i, count);
    if (to && !overwrite) {
        const quad old = load((const float *)to, i, count);
        for (int k = 0; k < QUAD; k++)
            q.x[k] = old.x[k] + q.x[k];
    }
    if (to)
        store(to, i, count, q);
    return q;
}

template <typename T> __global__ static void accumulate_kernel(float *to, const T *from, bool overwrite, uint64_t count)
{
    (void)accumulated(to, from, overwrite, first_element(), count);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

__device__ static double fold(double sum)
{
    for (int width = EO_SUM_LANES / 2; width > 0; width /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, width);
    return sum;
}

/*
 * A block a chunk. All threads bring a tile of it into shared memory; then one warp is the lanes, which go through it in their
 * order: not the same one in all blocks, for a warp's number says which quarter of a multiprocessor has it, and a quarter alone
 * has too few units for double. What lies past the end is zero there, and adds nothing to a sum of squares.
 */
template <typename T>
__global__ static void chunks_kernel(double *chunks, float *to, const T *from, bool overwrite, uint64_t count,
                                     uint64_t chunk)
{
    __shared__ alignas(16) float tile[EO_SUM_CHUNK];
    const uint64_t begin = blockIdx.x * chunk, left = count - begin, end = begin + (left < chunk ? left : chunk);
    const uint32_t lane = threadIdx.x % EO_SUM_LANES, lanes_warp = (blockIdx.x * 0x9e3779b1u >> 16) % (THREADS / EO_SUM_LANES);
    const bool is_lane = threadIdx.x / EO_SUM_LANES == lanes_warp;
    double sum = 0;
    for (uint64_t at = begin; at < end; at += EO_SUM_CHUNK) {
#pragma unroll
        for (uint32_t i = threadIdx.x * QUAD; i < EO_SUM_CHUNK; i += TILE)
            *(quad *)(tile + i) = accumulated(to, from, overwrite, at + i, end);
        __syncthreads();
        if (is_lane) {
#pragma unroll 16
            for (uint32_t i = lane; i < EO_SUM_CHUNK; i += EO_SUM_LANES)
                sum += (double)tile[i] * (double)tile[i];
        }
        __syncthreads();
    }
    if (is_lane) {
        sum = fold(sum);
        if (lane == 0)
            chunks[blockIdx.x] = sum;
    }
}

enum { TILE_CHUNKS = 8 * THREADS, FEW_CHUNKS = 4 * EO_SUM_LANES };

/* One block: all threads bring the chunks' sums, so that they come at once; its first warp is the lanes. */
__global__ static void sum_chunks_kernel(double *out, const double *chunks, uint32_t count)
{
    __shared__ double tile[TILE_CHUNKS];
    double sum = 0;
    for (uint32_t begin = 0; begin < count; begin += TILE_CHUNKS) {
        const uint32_t left = count - begin, here = left < TILE_CHUNKS ? left : TILE_CHUNKS;
#pragma unroll 8
        for (uint32_t i = threadIdx.x; i < here; i += blockDim.x)
            tile[i] = chunks[begin + i];
        __syncthreads();
        if (threadIdx.x < EO_SUM_LANES) {
#pragma unroll 16
            for (uint32_t i = threadIdx.x; i < here; i += EO_SUM_LANES)
                sum += tile[i];
        }
        __syncthreads();
    }
    if (threadIdx.x < EO_SUM_LANES) {
        sum = fold(sum);
        if (threadIdx.x == 0)
            *out = sum;
    }
}

/* As kernel arguments: a captured step keeps them. Of the 4 KiB that every device takes. */
enum { PARTIALS_A_LAUNCH = 320 };

struct norm_terms {
    const double *at[PARTIALS_A_LAUNCH];
    uint32_t into[PARTIALS_A_LAUNCH];
};

static_assert(sizeof(norm_terms) + sizeof(eo_step_memory) <= 4000, "the arguments of a kernel are limited to 4 KiB");

/* A thread a sum: all go through the terms, and each takes its own. */
__global__ static void norm_local_kernel(double *out, const norm_terms terms, uint32_t count, bool is_first,
                                         const eo_step_memory step, const double *device_values)
{
    __shared__ double values[PARTIALS_A_LAUNCH];
    const uint32_t sum_count = 1 + step.layer_count + step.clip_count;
    for (uint32_t i = threadIdx.x; i < count; i += THREADS)
        values[i] = *terms.at[i];
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < sum_count; s += THREADS) {
        const uint32_t into = s == 0 ? 0 : EO_NORM_VALUES - 1 + s;
        double sum = is_first ? 0 : out[into];
        for (uint32_t i = 0; i < count; i++)
            if (terms.into[i] == into)
                sum += values[i];
        out[into] = sum;
    }
    if (threadIdx.x < EO_STEP_VALUES) {
        const double value = step.scalars->values[threadIdx.x];
        out[1 + threadIdx.x] = device_values ? value + device_values[threadIdx.x] : value;
    } else if (threadIdx.x == EO_STEP_VALUES) {
        out[1 + EO_STEP_VALUES] = step.scalars->weight;
    }
}

__device__ static double clip_factor(double norm, double clip)
{
    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1; /* 1e-6: as the CPU device */
}

/* As the CPU device. */
__device__ static double norm_of(double squares, double divisor)
{
    const double norm = sqrt(squares) / divisor, most = 3.4028234663852886e38; /* of floats */
    return divisor < 1 && (norm > most || 1 / divisor > most) ? (double)INFINITY : norm;
}

__global__ static void norm_sum_kernel(const double *gathered, uint32_t rank_count, const eo_step_memory step)
{
    eo_norm_result *out = step.norm;
    const uint32_t value = threadIdx.x;
    double sum = 0, weight = 0;
    const uint64_t stride = EO_NORM_VALUES + step.layer_count + step.clip_count;
    for (uint32_t r = 0; r < rank_count; r++)
        sum += gathered[r * stride + value];
    if (value > 0) {
        out->values[value - 1] = sum;
        return;
    }
    for (uint32_t r = 0; r < rank_count; r++)
        weight += gathered[r * stride + 1 + EO_STEP_VALUES];
    const double divisor = (weight > 0 ? weight : 1) * step.scalars->loss_scale;
    const double norm = norm_of(sum, divisor), factor = clip_factor(norm, step.scalars->clip);
    out->norm = norm;
    out->clip_factor = factor;
    out->weight = weight;
    const float scale = isfinite(norm) ? (float)(factor / divisor) : __uint_as_float(0x7fc00000u);
    const uint32_t group_count = step.scalars->group_count;
    out->gradient_scale = scale;
    out->skipped += !isfinite(norm);
    for (uint32_t g = 0; g < group_count; g++)
        step.results[g].gradient_scale = scale;
}

/* While its results hold squares. */
__device__ static double norm_of_clip_group(const eo_step_memory &step, uint32_t clip_group, double divisor)
{
    double sum = 0;
    for (uint32_t g = 0; g < step.clip_count; g++)
        if (step.clips[g].clip_group == clip_group)
            sum += step.clip_results[g].norm;
    return sqrt(sum) / divisor;
}

__device__ static void clip_apart(const eo_step_memory &step, double divisor)
{
    const uint32_t group_count = step.scalars->group_count;
    const bool is_finite = isfinite(step.norm->norm);
    for (uint32_t c = threadIdx.x; c < step.clip_count; c += THREADS) {
        const double norm = norm_of_clip_group(step, step.clips[c].clip_group, divisor);
        step.clip_results[c].clip_factor = clip_factor(norm, step.clips[c].clip);
    }
    if (threadIdx.x == 0) {
        const double factor = clip_factor(norm_of_clip_group(step, 0, divisor), step.scalars->clip);
        step.norm->clip_factor = factor;
        if (is_finite)
            step.norm->gradient_scale = (float)(factor / divisor);
    }
    __syncthreads();
    for (uint32_t g = threadIdx.x; is_finite && g < group_count; g += THREADS)
        step.results[g].gradient_scale = (float)(step.clip_results[step.groups[g].clip].clip_factor / divisor);
}

/* After norm_sum_kernel, where there are parts: a block, a thread a sum. */
__global__ static void norm_parts_kernel(const double *gathered, uint32_t rank_count, const eo_step_memory step)
{
    const uint32_t sum_count = step.layer_count + step.clip_count;
    const double weight = step.norm->weight, divisor = (weight > 0 ? weight : 1) * step.scalars->loss_scale;
    const double factor = step.norm->clip_factor; /* clip_apart writes another, behind the barrier */
    for (uint32_t s = threadIdx.x; s < sum_count; s += THREADS) {
        double sum = 0;
        for (uint32_t r = 0; r < rank_count; r++)
            sum += gathered[(uint64_t)r * (EO_NORM_VALUES + sum_count) + EO_NORM_VALUES + s];
        if (s < step.layer_count)
            step.layer_norms[s] = sqrt(sum) / divisor;
        else
            step.clip_results[s - step.layer_count] = {sum, factor};
    }
    __syncthreads();
    if (step.scalars->clips_apart)
        clip_apart(step, divisor); /* squares are read before its barrier alone */
    for (uint32_t g = threadIdx.x; g < step.clip_count; g += THREADS)
        step.clip_results[g].norm = sqrt(step.clip_results[g].norm) / divisor;
}

/* --- optimizers --------------------------------------------------------------------------------------------------- */

struct update_ranges {
    eo_update_range at[EO_CUDA_UPDATE_RANGES];
    uint32_t first_block[EO_CUDA_UPDATE_RANGES + 1];
    uint32_t count;
};

static_assert(sizeof(update_ranges) + sizeof(eo_step_memory) <= 4000, "the arguments of a kernel are limited to 4 KiB");

/* The rules of streams/cpu/update_body.h, operation by operation. */
template <eo_rule RULE>
__device__ static void update_element(const eo_group_scalars &group, uint64_t unknown, float g, float &w, float &m, float &v)
{
    const float rate = group.learning_rate, decay = group.weight_decay;
    const float beta1 = group.beta1, beta2 = group.beta2, momentum = group.momentum;
    if (RULE == EO_RULE_ADAMW) {
        m = beta1 * m + (1.0f - beta1) * g;
        v = beta2 * v + (1.0f - beta2) * g * g;
        const float root = sqrtf(v / group.bias_correction2[unknown]);
        w = w - rate * (m / group.bias_correction1[unknown] / (root + group.eps) + decay * w);
    } else if (RULE == EO_RULE_SGD) {
        m = beta1 * m + (g + decay * w);
        w = w - rate * m;
    } else if (RULE == EO_RULE_MUON) {
        m = momentum * m + (1.0f - momentum) * g;
        w = w - rate * (v + decay * w);
    } else if (RULE == EO_RULE_DIRECTION) {
        v = (1.0f - momentum) * g + momentum * (momentum * m + (1.0f - momentum) * g);
    } else {
        const float direction = beta1 * m + (1.0f - beta1) * g;
        const float sign = (float)((direction > 0.0f) - (direction < 0.0f));
        m = beta2 * m + (1.0f - beta2) * g;
        w = w - rate * (sign + decay * w);
    }
}

template <eo_rule RULE> __global__ static void update_kernel(const update_ranges ranges, const eo_step_memory step)
{
    if (isnan(step.norm->gradient_scale))
        return;
    uint32_t index = 0;
    while (blockIdx.x >= ranges.first_block[index + 1]) /* the last range's next is the end of the grid */
        index++;
    const eo_update_range &range = ranges.at[index];
    const uint64_t count = range.count;
    const uint64_t i = ((uint64_t)(blockIdx.x - ranges.first_block[index]) * THREADS + threadIdx.x) * QUAD;
    const eo_group_scalars &group = step.groups[range.group];
    if (i >= count || group.frozen)
        return;

    const float scale = step.results[range.group].gradient_scale;
    const uint64_t unknown = step.norm->skipped - step.scalars->skipped;
    constexpr bool updates = RULE != EO_RULE_DIRECTION;
    constexpr bool reads_second = RULE == EO_RULE_ADAMW || RULE == EO_RULE_MUON;
    constexpr bool makes_second = RULE == EO_RULE_ADAMW || RULE == EO_RULE_DIRECTION;
    const bool is_split = !range.weights;
    quad w = {}, m = load((const float *)range.first_moment, i, count), v = {};
    if (updates)
        w = is_split ? load_split(range.high, range.low, i, count) : load((const float *)range.weights, i, count);
    if (reads_second)
        v = load((const float *)range.second_moment, i, count);
    const quad gradient = load(range.gradient, i, count);
    for (int k = 0; k < QUAD; k++)
        update_element<RULE>(group, unknown, gradient.x[k] * scale, w.x[k], m.x[k], v.x[k]);
    if (makes_second)
        store(range.second_moment, i, count, v);
    if (!updates)
        return;
    store(range.first_moment, i, count, m);
    if (is_split)
        store_split(range.high, range.low, i, count, w);
    else
        store(range.weights, i, count, w);
}

/* --- Muon's sums of matrices -------------------------------------------------------------------------------------- */

/* The root and its inverse in double, as on the CPU. */
__global__ static void combine_kernel(float *out, const float *a, float x, const float *b, float y, const double *squares,
                                      uint64_t count)
{
    const uint64_t i = first_element();
    const float factor = squares ? (float)(1 / fmax(sqrt(*squares), 1e-7)) : 1.0f;
    const float fx = factor * x, fy = factor * y;
    quad sum = load(a, i, count), second = {};
    if (b)
        second = load(b, i, count);
    for (int k = 0; k < QUAD; k++)
        sum.x[k] = b ? fx * sum.x[k] + fy * second.x[k] : fx * sum.x[k];
    store(out, i, count, sum);
}

/* --- the average of the weights ------------------------------------------------------------------------------------ */

__global__ static void average_kernel(const eo_average all, eo_average_mode mode, const eo_update_scalars *scalars,
                                      const eo_norm_result *norm)
{
    const bool is_split = !all.weights, updates = mode == EO_AVERAGE_UPDATE;
    const uint64_t i = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * QUAD;
    if (i >= all.count || (updates && isnan(norm->gradient_scale)))
        return;
    const float rest = updates ? 1.0f - scalars->ema_decay : 1.0f;
    const quad w = is_split ? load_split(all.high, all.low, i, all.count) : load((const float *)all.weights, i, all.count);
    quad a = w, before = {};
    if (mode != EO_AVERAGE_BEGIN)
        before = load((const float *)all.average, i, all.count);
    for (int k = 0; updates && k < QUAD; k++)
        a.x[k] = before.x[k] + rest * (w.x[k] - before.x[k]);
    store(all.average, i, all.count, a);
    if (mode == EO_AVERAGE_SWAP && is_split)
        store_split(all.high, all.low, i, all.count, before);
    else if (mode == EO_AVERAGE_SWAP)
        store(all.weights, i, all.count, before);
}

/* --- launches ------------------------------------------------------------------------------------------------------ */

extern "C" cudaError_t eo_cuda_kernels_load(void)
{
    return load_kernels(fill_kernel, cast_kernel, accumulate_kernel<float>, accumulate_kernel<uint16_t>,
                        chunks_kernel<float>, chunks_kernel<uint16_t>, sum_chunks_kernel, norm_local_kernel,
                        norm_sum_kernel, norm_parts_kernel, update_kernel<EO_RULE_ADAMW>, update_kernel<EO_RULE_SGD>,
                        update_kernel<EO_RULE_LION>, update_kernel<EO_RULE_MUON>, update_kernel<EO_RULE_DIRECTION>,
                        combine_kernel, average_kernel);
}

extern "C" cudaError_t eo_cuda_fill(void *memory, uint32_t pattern, uint64_t bytes, cudaStream_t stream)
{
    if (bytes < 4)
        return cudaSuccess;
    fill_kernel<<<blocks_for(bytes / 4), THREADS, 0, stream>>>((uint32_t *)memory, pattern, bytes / 4);
    return cudaGetLastError();
}

extern "C" cudaError_t eo_cuda_cast_bf16(uint16_t *to, const float *from, uint64_t count, cudaStream_t stream)
{
    if (count == 0)
        return cudaSuccess;
    cast_kernel<<<blocks_for(count), THREADS, 0, stream>>>(to, from, count);
    return cudaGetLastError();
}

extern "C" cudaError_t eo_cuda_accumulate(float *to, const void *from, eo_dtype dtype, bool overwrite, uint64_t count,
                                          cudaStream_t stream)
{
    if (count == 0)
        return cudaSuccess;
    if (dtype == EO_DTYPE_BF16)
        accumulate_kernel<uint16_t>
            <<<blocks_for(count), THREADS, 0, stream>>>(to, (const uint16_t *)from, overwrite, count);
    else
        accumulate_kernel<float>
            <<<blocks_for(count), THREADS, 0, stream>>>(to, (const float *)from, overwrite, count);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t launch_sum(double *out, double *chunks, float *to, const T *from, bool overwrite, uint64_t count,
                              cudaStream_t stream)
{
    const uint64_t chunk = eo_sum_chunk(count);
    const unsigned chunk_count = (unsigned)((count + chunk - 1) / chunk);
    if (chunk_count > 0)
        chunks_kernel<T><<<chunk_count, THREADS, 0, stream>>>(chunks, to, from, overwrite, count, chunk);
    const unsigned threads = chunk_count <= FEW_CHUNKS ? (unsigned)EO_SUM_LANES : (unsigned)THREADS;
    sum_chunks_kernel<<<1, threads, 0, stream>>>(out, chunks, chunk_count);
    return cudaGetLastError();
}

extern "C" cudaError_t eo_cuda_sum_squares(double *out, double *chunks, const float *values, uint64_t count,
                                           cudaStream_t stream)
{
    return launch_sum(out, chunks, (float *)NULL, values, false, count, stream);
}

extern "C" cudaError_t eo_cuda_accumulate_sum_squares(double *out, double *chunks, float *to, const void *from,
                                                      eo_dtype dtype, bool overwrite, uint64_t count,
                                                      cudaStream_t stream)
{
    if (dtype == EO_DTYPE_BF16)
        return launch_sum(out, chunks, to, (const uint16_t *)from, overwrite, count, stream);
    return launch_sum(out, chunks, to, (const float *)from, overwrite, count, stream);
}

extern "C" cudaError_t eo_cuda_norm_local(double *out, const struct eo_norm_term *terms, uint32_t count,
                                          const struct eo_step_memory *step, const double *device_values,
                                          cudaStream_t stream)
{
    uint32_t done = 0;
    do {
        norm_terms some = {};
        const uint32_t some_count = count - done < PARTIALS_A_LAUNCH ? count - done : (uint32_t)PARTIALS_A_LAUNCH;
        for (uint32_t i = 0; i < some_count; i++) {
            some.at[i] = terms[done + i].partial;
            some.into[i] = terms[done + i].into;
        }
        norm_local_kernel<<<1, THREADS, 0, stream>>>(out, some, some_count, done == 0, *step, device_values);
        done += some_count;
    } while (done < count);
    return cudaGetLastError();
}

extern "C" cudaError_t eo_cuda_norm_sum(const double *gathered, uint32_t rank_count, const struct eo_step_memory *step,
                                        cudaStream_t stream)
{
    norm_sum_kernel<<<1, 1 + EO_STEP_VALUES, 0, stream>>>(gathered, rank_count, *step);
    if (step->layer_count + step->clip_count > 0)
        norm_parts_kernel<<<1, THREADS, 0, stream>>>(gathered, rank_count, *step);
    return cudaGetLastError();
}

extern "C" cudaError_t eo_cuda_update_ranges(enum eo_rule rule, const struct eo_update_range *ranges, uint32_t range_count,
                                             const struct eo_step_memory *step, cudaStream_t stream)
{
    if (range_count > EO_CUDA_UPDATE_RANGES)
        return cudaErrorInvalidValue;
    update_ranges all = {};
    for (uint32_t i = 0; i < range_count; i++) {
        if (ranges[i].count == 0)
            continue;
        all.at[all.count++] = ranges[i];
        all.first_block[all.count] = all.first_block[all.count - 1] + blocks_for(ranges[i].count);
    }
    if (all.count == 0)
        return cudaSuccess;
    const unsigned blocks = all.first_block[all.count];
    switch (rule) {
    case EO_RULE_ADAMW: update_kernel<EO_RULE_ADAMW><<<blocks, THREADS, 0, stream>>>(all, *step); break;
    case EO_RULE_SGD: update_kernel<EO_RULE_SGD><<<blocks, THREADS, 0, stream>>>(all, *step); break;
    case EO_RULE_ADAMW8BIT: return eo_cuda_update_blocks(ranges, range_count, step, stream);
    case EO_RULE_LION: update_kernel<EO_RULE_LION><<<blocks, THREADS, 0, stream>>>(all, *step); break;
    case EO_RULE_MUON: update_kernel<EO_RULE_MUON><<<blocks, THREADS, 0, stream>>>(all, *step); break;
    case EO_RULE_DIRECTION: update_kernel<EO_RULE_DIRECTION><<<blocks, THREADS, 0, stream>>>(all, *step); break;
    default: return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

extern "C" cudaError_t eo_cuda_combine(float *out, const float *a, float x, const float *b, float y, const double *squares,
                                       uint64_t count, cudaStream_t stream)
{
    if (count == 0)
        return cudaSuccess;
    combine_kernel<<<blocks_for(count), THREADS, 0, stream>>>(out, a, x, b, y, squares, count);
    return cudaGetLastError();
}

extern "C" cudaError_t eo_cuda_average(const struct eo_average *average, enum eo_average_mode mode,
                                       const struct eo_update_scalars *scalars, const struct eo_norm_result *norm,
                                       cudaStream_t stream)
{
    if (average->count == 0)
        return cudaSuccess;
    average_kernel<<<blocks_for(average->count), THREADS, 0, stream>>>(*average, mode, scalars, norm);
    return cudaGetLastError();
}
