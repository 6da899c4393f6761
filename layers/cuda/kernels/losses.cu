/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy: a block takes a row of logits, twice: for the maximum and the sum of exponentials at once (the
 * sum is scaled when a larger maximum turns up), then for the gradient, which is written over the logits.
 */
#include "layers/cuda/kernels/lanes.cuh"

namespace {

enum { THREADS = 512, SUM_THREADS = 1024 };

/* Of bf16 logits by the device's quick exponential, exact to 2^-21: else rows would wait for arithmetic, not for memory. */
template <typename T> __device__ __forceinline__ float exponential(float x)
{
    return sizeof(T) == 4 ? expf(x) : __expf(x);
}

/* What a part of a row gives: sum is of exp(x - max). */
struct part {
    float max, sum;
};

__device__ __forceinline__ part joined(part a, part b)
{
    const float max = fmaxf(a.max, b.max);
    /* Both empty (or -inf throughout): the difference would be NaN. */
    const float of_a = a.max == max ? a.sum : a.sum * expf(a.max - max);
    const float of_b = b.max == max ? b.sum : b.sum * expf(b.max - max);
    return {max, of_a + of_b};
}

/* The same part in every thread. A butterfly's partners must join in the same order to get the same bits: addition of
 * two commutes, so they do. */
__device__ __forceinline__ part joined_warp(part mine)
{
#pragma unroll
    for (int other = 16; other > 0; other /= 2)
        mine = joined(mine, {__shfl_xor_sync(0xffffffffu, mine.max, other), __shfl_xor_sync(0xffffffffu, mine.sum, other)});
    return mine;
}

template <typename T, int N>
__device__ __forceinline__ void ignore_row(float *loss, T *row, uint64_t vocabulary, bool backward)
{
    const uint64_t whole = vocabulary / N * N;
    const float zeros[N] = {};
    if (threadIdx.x == 0)
        *loss = 0;
    if (!backward)
        return;
    for (uint64_t at = (uint64_t)threadIdx.x * N; at < whole; at += (uint64_t)blockDim.x * N)
        lanes<T, N>::store(row + at, zeros);
    for (uint64_t at = whole + threadIdx.x; at < vocabulary; at += blockDim.x)
        row[at] = narrow<T>(0.0f);
}

template <typename T, int N, bool BACKWARD>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_kernel(float *losses, T *logits, const int32_t *targets, uint64_t stride, uint64_t vocabulary,
                         float scale)
{
    __shared__ part parts[THREADS / 32];
    T *row = logits + blockIdx.x * stride;
    const uint32_t target = (uint32_t)targets[blockIdx.x];
    const uint64_t whole = vocabulary / N * N;
    if (targets[blockIdx.x] < 0) { /* ignored, by all threads of the block */
        ignore_row<T, N>(losses + blockIdx.x, row, vocabulary, BACKWARD);
        return;
    }

    part mine = {-INFINITY, 0};
    bool bad = false; /* fmaxf passes over a NaN */
    for (uint64_t at = (uint64_t)threadIdx.x * N; at < whole; at += (uint64_t)blockDim.x * N) {
        float x[N], max = mine.max;
        lanes<T, N>::load(x, row + at);
#pragma unroll
        for (int i = 0; i < N; i++) {
            max = fmaxf(max, x[i]);
            bad = bad || isnan(x[i]);
        }
        if (max == -INFINITY) /* nothing but exp(-inf) so far; -inf less -inf would be a NaN */
            continue;
        float sum = mine.max == max ? mine.sum : mine.sum * expf(mine.max - max);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum += exponential<T>(x[i] - max);
        mine = {max, sum};
    }
    for (uint64_t at = whole + threadIdx.x; at < vocabulary; at += blockDim.x) {
        const float x = widen(row[at]);
        bad = bad || isnan(x) || x == INFINITY; /* whose exp(x - max) is a NaN above */
        mine = joined(mine, {x, x == -INFINITY ? 0.0f : 1.0f});
    }
    mine = joined_warp(mine);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = mine;
    bad = __syncthreads_or(bad);
    part all = joined_warp(threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : part{-INFINITY, 0});
    if (bad)
        all.sum = NAN;
    if (threadIdx.x == 0)
        losses[blockIdx.x] = logf(all.sum) + all.max - widen(row[target]);
    if (!BACKWARD)
        return;

    __syncthreads(); /* the target's logit has been read */
    const float factor = scale / all.sum;
    for (uint64_t at = (uint64_t)threadIdx.x * N; at < whole; at += (uint64_t)blockDim.x * N) {
        float x[N];
        lanes<T, N>::load(x, row + at);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = exponential<T>(x[i] - all.max) * factor - (at + i == target ? scale : 0.0f);
        lanes<T, N>::store(row + at, x);
    }
    for (uint64_t at = whole + threadIdx.x; at < vocabulary; at += blockDim.x)
        row[at] = narrow<T>(expf(widen(row[at]) - all.max) * factor - (at == target ? scale : 0.0f));
}

} /* namespace */

/* Kernels that are no templates stand outside: in it nvcc would give their stubs names that others see. */

/* One block: thread t takes the rows t, t + 1024, ...; then a tree. */
static __global__ void __launch_bounds__(SUM_THREADS)
    loss_sum_kernel(double *loss_sum, const float *losses, uint64_t rows)
{
    __shared__ double sums[SUM_THREADS];
    double sum = 0;
    for (uint64_t row = threadIdx.x; row < rows; row += SUM_THREADS)
        sum += losses[row];
    sums[threadIdx.x] = sum;
    for (unsigned half = SUM_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        *loss_sum += sums[0];
}

static __global__ void loss_add_kernel(double *to, const double *loss, double factor)
{
    *to += *loss * factor;
}

cudaError_t eo_cuda_cross_entropy(const struct eo_loss *l, cudaStream_t stream)
{
    const bool wide = l->stride % lanes_of(l->types.compute) == 0 && aligned(l->logits);
    const cudaError_t error = dispatch(l->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const unsigned rows = (unsigned)l->rows, threads = row_threads(divide_up(l->vocabulary, N), THREADS);
        if (l->backward)
            cross_entropy_kernel<T, N, true><<<rows, threads, 0, stream>>>(
                l->losses, (T *)l->logits, l->targets, l->stride, l->vocabulary, l->scale);
        else
            cross_entropy_kernel<T, N, false><<<rows, threads, 0, stream>>>(
                l->losses, (T *)l->logits, l->targets, l->stride, l->vocabulary, l->scale);
    });
    if (error != cudaSuccess)
        return error;
    loss_sum_kernel<<<1, SUM_THREADS, 0, stream>>>(l->loss_sum, l->losses, l->rows);
    return cudaPeekAtLastError();
}

cudaError_t eo_cuda_loss_add(double *to, const double *loss, double factor, cudaStream_t stream)
{
    loss_add_kernel<<<1, 1, 0, stream>>>(to, loss, factor);
    return cudaPeekAtLastError();
}

cudaError_t eo_cuda_load_losses(void)
{
    return for_all_variants([](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        return load_kernels(loss_sum_kernel,
                            loss_add_kernel,
                            cross_entropy_kernel<T, N, true>,
                            cross_entropy_kernel<T, N, false>);
    });
}
