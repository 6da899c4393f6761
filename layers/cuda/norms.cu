/* SPDX-License-Identifier: MIT
 *
 * LayerNorm and RMSNorm. A block takes a row; a thread keeps the elements it has read in its part of shared memory,
 * [element][thread], so that a row is read once. Rows that do not fit there are read again.
 */
#include "layers/cuda/columns.cuh"

namespace {

enum { FORWARD_THREADS = 256, BACKWARD_THREADS = 512, SHARED_BYTES = 47 << 10 /* 48 less block_sum's */ };

/* One expression for forward and again: the same bits. */
template <bool CENTERED> __device__ __forceinline__ float normed(float x, float mean, float rstd, float w, float b)
{
    return CENTERED ? fmaf((x - mean) * rstd, w, b) : x * rstd * w;
}

struct forward_args {
    void *sum, *out;
    float *mean, *rstd;
    const void *residual, *branch, *branch_bias, *weight, *bias;
    float eps;
    uint64_t width;
};

/* Reads N elements of what is normed; the first time it is added up, rounded and stored. */
template <typename T, int N>
__device__ __forceinline__ void add_up(float (&x)[N], const forward_args &a, uint64_t base, uint64_t column)
{
    lanes<T, N>::load(x, (const T *)a.residual + base + column);
    if (!a.branch)
        return;
    float y[N], bias[N] = {};
    lanes<T, N>::load(y, (const T *)a.branch + base + column);
    if (a.branch_bias)
        lanes<T, N>::load(bias, (const T *)a.branch_bias + column);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = rounded<T>(x[i] + (y[i] + bias[i]));
    lanes<T, N>::store((T *)a.sum + base + column, x);
}

template <typename T, int N, bool CENTERED, bool CACHED>
__global__ void __launch_bounds__(FORWARD_THREADS) norm_forward_kernel(const forward_args a)
{
    extern __shared__ float cache[];
    const uint64_t base = blockIdx.x * a.width, step = (uint64_t)blockDim.x * N;
    const T *normed_row = (const T *)(a.branch ? a.sum : a.residual) + base;
    const float count = (float)a.width;

    float total = 0, squares = 0;
    uint32_t slot = threadIdx.x;
    for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
        float x[N];
        add_up<T, N>(x, a, base, column);
#pragma unroll
        for (int i = 0; i < N; i++) {
            total += x[i];
            squares += x[i] * x[i];
            if (CACHED)
                cache[slot] = x[i], slot += blockDim.x;
        }
    }
    float mean = 0, variance;
    if (CENTERED) {
        mean = block_sum(make_float2(total, 0)).x / count;
        squares = 0;
        slot = threadIdx.x;
        for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
            float x[N];
            if (!CACHED)
                lanes<T, N>::load(x, normed_row + column);
#pragma unroll
            for (int i = 0; i < N; i++) {
                if (CACHED)
                    x[i] = cache[slot], slot += blockDim.x;
                squares += (x[i] - mean) * (x[i] - mean);
            }
        }
    }
    variance = block_sum(make_float2(squares, 0)).x / count;
    const float rstd = 1.0f / sqrtf(variance + a.eps);
    if (threadIdx.x == 0) {
        if (CENTERED && a.mean)
            a.mean[blockIdx.x] = mean;
        if (a.rstd)
            a.rstd[blockIdx.x] = rstd;
    }
    slot = threadIdx.x;
    for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
        float x[N], w[N], b[N] = {};
        if (!CACHED)
            lanes<T, N>::load(x, normed_row + column);
        lanes<T, N>::load(w, (const T *)a.weight + column);
        if (CENTERED)
            lanes<T, N>::load(b, (const T *)a.bias + column);
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (CACHED)
                x[i] = cache[slot], slot += blockDim.x;
            x[i] = normed<CENTERED>(x[i], mean, rstd, w[i], b[i]);
        }
        lanes<T, N>::store((T *)a.out + base + column, x);
    }
}

template <typename T, int N, bool CENTERED>
__global__ void __launch_bounds__(FORWARD_THREADS) norm_again_kernel(const forward_args a)
{
    const uint64_t base = blockIdx.x * a.width, step = (uint64_t)blockDim.x * N;
    const float mean = CENTERED ? a.mean[blockIdx.x] : 0.0f, rstd = a.rstd[blockIdx.x];
    for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
        float x[N], w[N], b[N] = {};
        lanes<T, N>::load(x, (const T *)a.residual + base + column);
        lanes<T, N>::load(w, (const T *)a.weight + column);
        if (CENTERED)
            lanes<T, N>::load(b, (const T *)a.bias + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = normed<CENTERED>(x[i], mean, rstd, w[i], b[i]);
        lanes<T, N>::store((T *)a.out + base + column, x);
    }
}

/*
 * ---- backward ----
 *
 * With g = out_gradient x weight and xhat = (in - mean) x rstd:
 *
 *     in_gradient = skip + rstd x (g - mean over the row of g - xhat x mean over the row of g x xhat)
 *
 * A block takes rows that follow each other and keeps its sums of weight and bias gradients in shared memory, or, where
 * a row does not fit, in its part of the scratch; then finish_columns adds the blocks up.
 */
struct backward_args {
    void *in_gradient;
    const void *skip_gradient, *out_gradient, *in, *weight;
    const float *mean, *rstd;
    float *partials; /* [block][weight, bias][width] */
    uint64_t rows, width, block_rows;
};

template <typename T, int N, bool CENTERED, bool SHARED>
__global__ void __launch_bounds__(BACKWARD_THREADS) norm_backward_kernel(const backward_args a)
{
    extern __shared__ float shared_sums[];
    const uint64_t step = (uint64_t)blockDim.x * N, slots = (a.width + step - 1) / step * step;
    float *partials = a.partials + blockIdx.x * (CENTERED ? 2 : 1) * a.width;
    const float count = (float)a.width;
    const T *weight = (const T *)a.weight;

    /* A sum's place: in shared memory [element][thread], no two threads of a warp in one bank. */
    const auto place = [&](uint64_t column, int i) {
        return SHARED ? (column / step * N + i) * blockDim.x + threadIdx.x : column + i;
    };
    float *weight_sums = SHARED ? shared_sums : partials;
    float *bias_sums = weight_sums + (SHARED ? slots : a.width);
    for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step)
#pragma unroll
        for (int i = 0; i < N; i++) {
            weight_sums[place(column, i)] = 0;
            if (CENTERED)
                bias_sums[place(column, i)] = 0;
        }

    const uint64_t first = blockIdx.x * a.block_rows;
    const uint64_t end = first + a.block_rows < a.rows ? first + a.block_rows : a.rows;
    for (uint64_t row = first; row < end; row++) {
        const uint64_t base = row * a.width;
        const T *in = (const T *)a.in + base, *out_gradient = (const T *)a.out_gradient + base;
        const float mean = CENTERED ? a.mean[row] : 0.0f, rstd = a.rstd[row];
        float2 sums = make_float2(0, 0);
        for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
            float x[N], d[N], w[N];
            lanes<T, N>::load(x, in + column);
            lanes<T, N>::load(d, out_gradient + column);
            lanes<T, N>::load(w, weight + column);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float xhat = (x[i] - mean) * rstd, g = d[i] * w[i];
                sums.x += g;
                sums.y += g * xhat;
                weight_sums[place(column, i)] += d[i] * xhat;
                if (CENTERED)
                    bias_sums[place(column, i)] += d[i];
            }
        }
        sums = block_sum(sums);
        const float g_mean = CENTERED ? sums.x / count : 0.0f, gx_mean = sums.y / count;
        for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
            float x[N], d[N], w[N], skip[N] = {};
            lanes<T, N>::load(x, in + column);
            lanes<T, N>::load(d, out_gradient + column);
            lanes<T, N>::load(w, weight + column);
            if (a.skip_gradient)
                lanes<T, N>::load(skip, (const T *)a.skip_gradient + base + column);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float xhat = (x[i] - mean) * rstd;
                x[i] = skip[i] + rstd * (d[i] * w[i] - g_mean - xhat * gx_mean);
            }
            lanes<T, N>::store((T *)a.in_gradient + base + column, x);
        }
    }
    if constexpr (SHARED)
        for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step)
#pragma unroll
            for (int i = 0; i < N; i++) {
                partials[column + i] = weight_sums[place(column, i)];
                if (CENTERED)
                    partials[a.width + column + i] = bias_sums[place(column, i)];
            }
}

/*
 * The same where a thread's packs of a row fit in registers. A block takes ROWS rows at a time, and while it sums them the
 * next ones are on their way: few blocks keep the memory busy. Columns keep their sums in registers; a thread's columns
 * are its own in all rows.
 */
template <typename T, int N> struct alignas(sizeof(T) * N) pack {
    T at[N];
};

template <typename T, int N, int PACKS, int ROWS> struct loaded_rows {
    pack<T, N> in[ROWS][PACKS], out_gradient[ROWS][PACKS], skip[ROWS][PACKS];
    float mean[ROWS], rstd[ROWS];
};

/* Rows from `end` on are zeros, which add nothing. */
template <typename T, int N, bool CENTERED, int PACKS, int ROWS>
__device__ __forceinline__ void load_rows(loaded_rows<T, N, PACKS, ROWS> &to, const backward_args &a, uint64_t row,
                                          uint64_t end)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const bool is_row = row + r < end;
        to.mean[r] = CENTERED && is_row ? a.mean[row + r] : 0.0f;
        to.rstd[r] = is_row ? a.rstd[row + r] : 0.0f;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const uint64_t column = ((uint64_t)p * blockDim.x + threadIdx.x) * N, at = (row + r) * a.width + column;
            to.in[r][p] = to.out_gradient[r][p] = to.skip[r][p] = {};
            if (!is_row || column >= a.width)
                continue;
            to.in[r][p] = *(const pack<T, N> *)((const T *)a.in + at);
            to.out_gradient[r][p] = *(const pack<T, N> *)((const T *)a.out_gradient + at);
            if (a.skip_gradient)
                to.skip[r][p] = *(const pack<T, N> *)((const T *)a.skip_gradient + at);
        }
    }
}

/* Sums of COUNT values over the block, in every thread. `parts` is one of two that take turns: one barrier a call. */
template <int COUNT> __device__ __forceinline__ void block_sums(float (&values)[COUNT], float (&parts)[32][COUNT])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        values[i] = warp_sum(values[i]);
    if (lane == 0)
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            parts[warp][i] = values[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        values[i] = warp_sum(lane < warps ? parts[lane][i] : 0.0f);
}

template <typename T, int N, bool CENTERED, int PACKS, int ROWS>
__global__ void __launch_bounds__(BACKWARD_THREADS) norm_backward_rows_kernel(const backward_args a)
{
    __shared__ float parts[2][32][2 * ROWS];
    const float count = (float)a.width;
    float weight_sums[PACKS][N] = {}, bias_sums[PACKS][N] = {};
    pack<T, N> weight[PACKS] = {};
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const uint64_t column = ((uint64_t)p * blockDim.x + threadIdx.x) * N;
        if (column < a.width)
            weight[p] = *(const pack<T, N> *)((const T *)a.weight + column);
    }
    const uint64_t first = blockIdx.x * a.block_rows;
    const uint64_t end = first + a.block_rows < a.rows ? first + a.block_rows : a.rows;
    loaded_rows<T, N, PACKS, ROWS> rows, next;
    load_rows<T, N, CENTERED>(next, a, first, end);
    int turn = 0;
    for (uint64_t row = first; row < end; row += ROWS, turn ^= 1) {
        float sums[2 * ROWS] = {};
        rows = next;
        load_rows<T, N, CENTERED>(next, a, row + ROWS, end);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int p = 0; p < PACKS; p++)
#pragma unroll
                for (int i = 0; i < N; i++) {
                    const float d = widen(rows.out_gradient[r][p].at[i]), g = d * widen(weight[p].at[i]);
                    const float xhat = (widen(rows.in[r][p].at[i]) - rows.mean[r]) * rows.rstd[r];
                    sums[2 * r] += g;
                    sums[2 * r + 1] += g * xhat;
                    weight_sums[p][i] += d * xhat;
                    bias_sums[p][i] += d;
                }
        block_sums(sums, parts[turn]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float g_mean = CENTERED ? sums[2 * r] / count : 0.0f, gx_mean = sums[2 * r + 1] / count;
#pragma unroll
            for (int p = 0; p < PACKS; p++) {
                const uint64_t column = ((uint64_t)p * blockDim.x + threadIdx.x) * N;
                float x[N];
#pragma unroll
                for (int i = 0; i < N; i++) {
                    const float xhat = (widen(rows.in[r][p].at[i]) - rows.mean[r]) * rows.rstd[r];
                    const float g = widen(rows.out_gradient[r][p].at[i]) * widen(weight[p].at[i]);
                    x[i] = widen(rows.skip[r][p].at[i]) + rows.rstd[r] * (g - g_mean - xhat * gx_mean);
                }
                if (row + r < end && column < a.width)
                    lanes<T, N>::store((T *)a.in_gradient + (row + r) * a.width + column, x);
            }
        }
    }
    float *partials = a.partials + blockIdx.x * (CENTERED ? 2 : 1) * a.width;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const uint64_t column = ((uint64_t)p * blockDim.x + threadIdx.x) * N;
        if (column >= a.width)
            continue;
#pragma unroll
        for (int i = 0; i < N; i++) {
            partials[column + i] = weight_sums[p][i];
            if (CENTERED)
                partials[a.width + column + i] = bias_sums[p][i];
        }
    }
}

/* In a row of so many packs; false: they do not fit in registers. Two packs of a thread, with the sums of weight and bias,
 * do not. */
template <typename T, int N, bool CENTERED>
static bool launch_rows(const backward_args &a, uint64_t packs, unsigned grid, cudaStream_t stream)
{
    if (packs <= BACKWARD_THREADS) {
        norm_backward_rows_kernel<T, N, CENTERED, 1, 2><<<grid, row_threads(packs, BACKWARD_THREADS), 0, stream>>>(a);
        return true;
    }
    if constexpr (!CENTERED)
        if (packs <= 2 * BACKWARD_THREADS) {
            norm_backward_rows_kernel<T, N, CENTERED, 2, 1>
                <<<grid, row_threads(divide_up(packs, 2), BACKWARD_THREADS), 0, stream>>>(a);
            return true;
        }
    return false;
}

static forward_args forward_args_of(const struct eo_norm *n)
{
    return {n->sum,    n->out,         n->mean,   n->rstd, n->residual,
            n->branch, n->branch_bias, n->weight, n->bias, n->eps, n->width};
}

static bool forward_is_wide(const struct eo_norm *n)
{
    return n->width % lanes_of(n->types.compute) == 0 &&
           aligned(n->sum, n->out, n->residual, n->branch, n->branch_bias) && aligned(n->weight, n->bias);
}

/* Floats that the threads' parts of a row take. */
static uint64_t row_slots(uint64_t width, unsigned threads, int n)
{
    return divide_up(width, (uint64_t)threads * n) * threads * n;
}

} /* namespace */

cudaError_t eo_cuda_norm_forward(const struct eo_norm *n, cudaStream_t stream)
{
    const forward_args a = forward_args_of(n);
    return dispatch(n->types.compute, forward_is_wide(n), [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const unsigned threads = row_threads(divide_up(n->width, N), FORWARD_THREADS);
        const uint64_t bytes = row_slots(n->width, threads, N) * sizeof(float);
        const unsigned rows = (unsigned)n->rows;
        if (bytes <= SHARED_BYTES && n->centered)
            norm_forward_kernel<T, N, true, true><<<rows, threads, bytes, stream>>>(a);
        else if (bytes <= SHARED_BYTES)
            norm_forward_kernel<T, N, false, true><<<rows, threads, bytes, stream>>>(a);
        else if (n->centered)
            norm_forward_kernel<T, N, true, false><<<rows, threads, 0, stream>>>(a);
        else
            norm_forward_kernel<T, N, false, false><<<rows, threads, 0, stream>>>(a);
    });
}

cudaError_t eo_cuda_norm_again(const struct eo_norm *n, cudaStream_t stream)
{
    const forward_args a = forward_args_of(n);
    return dispatch(n->types.compute, forward_is_wide(n), [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const unsigned threads = row_threads(divide_up(n->width, N), FORWARD_THREADS);
        if (n->centered)
            norm_again_kernel<T, N, true><<<(unsigned)n->rows, threads, 0, stream>>>(a);
        else
            norm_again_kernel<T, N, false><<<(unsigned)n->rows, threads, 0, stream>>>(a);
    });
}

cudaError_t eo_cuda_norm_backward(const struct eo_norm_gradient *n, cudaStream_t stream)
{
    const bool wide = n->width % lanes_of(n->types.compute) == 0 &&
                      aligned(n->in_gradient, n->skip_gradient, n->out_gradient, n->in, n->weight);
    const int pack_size = wide ? (int)lanes_of(n->types.compute) : 1;
    const uint64_t packs = divide_up(n->width, pack_size);
    const unsigned threads = row_threads(packs, BACKWARD_THREADS);
    const uint64_t bytes = row_slots(n->width, threads, pack_size) * (n->centered ? 2 : 1) * sizeof(float);
    /* Sums in memory are read and written once more by each block: half as many. */
    const bool in_memory = packs > (n->centered ? 1 : 2) * BACKWARD_THREADS && bytes > SHARED_BYTES;
    const uint64_t block_rows = divide_up(n->rows, in_memory ? EO_CUDA_NORM_BLOCKS / 2 : EO_CUDA_NORM_BLOCKS);
    const uint64_t blocks = divide_up(n->rows, block_rows);
    float *partials = (float *)n->scratch;
    const backward_args a = {n->in_gradient, n->skip_gradient, n->out_gradient, n->in,    n->weight, n->mean,
                             n->rstd,        partials,         n->rows,         n->width, block_rows};
    const cudaError_t error = dispatch(n->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const unsigned grid = (unsigned)blocks;
        if (n->centered ? launch_rows<T, N, true>(a, packs, grid, stream) : launch_rows<T, N, false>(a, packs, grid, stream))
            return;
        if (!in_memory && n->centered)
            norm_backward_kernel<T, N, true, true><<<grid, threads, bytes, stream>>>(a);
        else if (!in_memory)
            norm_backward_kernel<T, N, false, true><<<grid, threads, bytes, stream>>>(a);
        else if (n->centered)
            norm_backward_kernel<T, N, true, false><<<grid, threads, 0, stream>>>(a);
        else
            norm_backward_kernel<T, N, false, false><<<grid, threads, 0, stream>>>(a);
    });
    if (error != cudaSuccess || !n->weight_gradient)
        return error;
    const uint64_t sums = (n->centered ? 2 : 1) * n->width;
    finish_columns({n->weight_gradient, n->bias_gradient, n->width, sums}, n->types.gradient, partials, (uint32_t)blocks,
                   sums, n->accumulate, stream);
    return cudaPeekAtLastError();
}

cudaError_t eo_cuda_load_norms(void)
{
    return for_all_variants([](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        return load_kernels(finish_columns_kernel,
                            norm_forward_kernel<T, N, true, true>,
                            norm_forward_kernel<T, N, false, true>,
                            norm_forward_kernel<T, N, true, false>,
                            norm_forward_kernel<T, N, false, false>,
                            norm_again_kernel<T, N, true>,
                            norm_again_kernel<T, N, false>,
                            norm_backward_rows_kernel<T, N, true, 1, 2>,
                            norm_backward_rows_kernel<T, N, false, 1, 2>,
                            norm_backward_rows_kernel<T, N, false, 2, 1>,
                            norm_backward_kernel<T, N, true, true>,
                            norm_backward_kernel<T, N, false, true>,
                            norm_backward_kernel<T, N, true, false>,
                            norm_backward_kernel<T, N, false, false>);
    });
}
