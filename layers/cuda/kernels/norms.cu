/* SPDX-License-Identifier: MIT
 *
 * LayerNorm and RMSNorm. A block takes a row; a thread keeps the elements it has read in shared memory, so that a row is
 * read once. Rows that do not fit there are read again.
 */
#include "layers/cuda/kernels/columns.cuh"

namespace {

enum { FORWARD_THREADS = 256, BACKWARD_THREADS = EO_CUDA_NORM_THREADS, SHARED_BYTES = EO_CUDA_NORM_SHARED_BYTES };

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
    bool fp32_weights;
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
    extern __shared__ uint4 cache[];
    const uint64_t base = blockIdx.x * a.width, step = (uint64_t)blockDim.x * N;
    const T *row = CACHED ? (const T *)cache : (const T *)(a.branch ? a.sum : a.residual) + base;
    const float count = (float)a.width;

    float total = 0, squares = 0;
    for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
        float x[N];
        add_up<T, N>(x, a, base, column);
        if (CACHED)
            lanes<T, N>::store((T *)cache + column, x); /* the same numbers: all are T's */
#pragma unroll
        for (int i = 0; i < N; i++) {
            total += x[i];
            squares += x[i] * x[i];
        }
    }
    float mean = 0, variance;
    if (CENTERED) {
        mean = block_sum(make_float2(total, 0)).x / count;
        squares = 0;
        for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
            float x[N];
            lanes<T, N>::load(x, row + column);
#pragma unroll
            for (int i = 0; i < N; i++)
                squares += (x[i] - mean) * (x[i] - mean);
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
    for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
        float x[N], w[N], b[N] = {};
        lanes<T, N>::load(x, row + column);
        load_weights<T, N>(w, a.weight, a.fp32_weights, column);
        if (CENTERED)
            load_weights<T, N>(b, a.bias, a.fp32_weights, column);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = normed<CENTERED>(x[i], mean, rstd, w[i], b[i]);
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
        load_weights<T, N>(w, a.weight, a.fp32_weights, column);
        if (CENTERED)
            load_weights<T, N>(b, a.bias, a.fp32_weights, column);
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
    float *partials; /* [block][weight, bias][width]; NULL: not wanted */
    uint64_t rows, width, block_rows;
    bool fp32_weights;
};

template <typename T, int N, bool CENTERED, bool SHARED>
__global__ void __launch_bounds__(BACKWARD_THREADS) norm_backward_kernel(const backward_args a)
{
    extern __shared__ float shared_sums[];
    const uint64_t step = (uint64_t)blockDim.x * N, slots = (a.width + step - 1) / step * step;
    float *partials = a.partials + blockIdx.x * (CENTERED ? 2 : 1) * a.width;
    const float count = (float)a.width;

    /* A sum's place: in shared memory [element][thread], no two threads of a warp in one bank. */
    const auto place = [&](uint64_t column, int i) {
        return SHARED ? (column / step * N + i) * blockDim.x + threadIdx.x : column + i;
    };
    float *weight_sums = SHARED ? shared_sums : partials;
    float *bias_sums = weight_sums + (SHARED ? slots : a.width);
    for (uint64_t column = (uint64_t)threadIdx.x * N; a.partials && column < a.width; column += step)
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
            load_weights<T, N>(w, a.weight, a.fp32_weights, column);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float xhat = (x[i] - mean) * rstd, g = d[i] * w[i];
                sums.x += g;
                sums.y += g * xhat;
                if (a.partials)
                    weight_sums[place(column, i)] += d[i] * xhat;
                if (CENTERED && a.partials)
                    bias_sums[place(column, i)] += d[i];
            }
        }
        sums = block_sum(sums);
        const float g_mean = CENTERED ? sums.x / count : 0.0f, gx_mean = sums.y / count;
        for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
            float x[N], d[N], w[N], skip[N] = {};
            lanes<T, N>::load(x, in + column);
            lanes<T, N>::load(d, out_gradient + column);
            load_weights<T, N>(w, a.weight, a.fp32_weights, column);
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
        for (uint64_t column = (uint64_t)threadIdx.x * N; a.partials && column < a.width; column += step)
#pragma unroll
            for (int i = 0; i < N; i++) {
                partials[column + i] = weight_sums[place(column, i)];
                if (CENTERED)
                    partials[a.width + column + i] = bias_sums[place(column, i)];
            }
}

/*
 * The same where a thread's packs of a row fit in registers. A block has as many groups of threads (blockDim.y) as there is
 * room for; a group takes ROWS rows at a time, and while it sums them the next ones are on their way: few blocks, so few
 * partial sums, keep the memory busy. Columns keep their sums in registers; at the end the groups' are added up.
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

constexpr int BACKWARD_WARPS = BACKWARD_THREADS / 32;

/* Sums of COUNT values over a group, in its threads. `parts` is one of two that take turns: one barrier a call. */
template <int COUNT> __device__ __forceinline__ void group_sums(float (&values)[COUNT], float (&parts)[BACKWARD_WARPS][COUNT])
{
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, first = threadIdx.y * warps, warp = first + threadIdx.x / 32;
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
        values[i] = warp_sum(lane < warps ? parts[first + lane][i] : 0.0f);
}

/* The first group's sums become the block's: those of the groups in their order, [group - 1][weight, bias][element][thread]. */
template <int N, bool CENTERED, int PACKS>
__device__ __forceinline__ void add_groups(float (&weight_sums)[PACKS][N], float (&bias_sums)[PACKS][N])
{
    extern __shared__ float others[];
    constexpr uint32_t KINDS = CENTERED ? 2 : 1;
    const auto place = [&](uint32_t group, uint32_t kind, int p, int i) {
        return ((((group - 1) * KINDS + kind) * PACKS + p) * N + i) * blockDim.x + threadIdx.x;
    };
    if (threadIdx.y > 0)
#pragma unroll
        for (int p = 0; p < PACKS; p++)
#pragma unroll
            for (int i = 0; i < N; i++) {
                others[place(threadIdx.y, 0, p, i)] = weight_sums[p][i];
                if (CENTERED)
                    others[place(threadIdx.y, 1, p, i)] = bias_sums[p][i];
            }
    __syncthreads();
    if (threadIdx.y > 0)
        return;
    for (uint32_t group = 1; group < blockDim.y; group++)
#pragma unroll
        for (int p = 0; p < PACKS; p++)
#pragma unroll
            for (int i = 0; i < N; i++) {
                weight_sums[p][i] += others[place(group, 0, p, i)];
                if (CENTERED)
                    bias_sums[p][i] += others[place(group, 1, p, i)];
            }
}

template <typename T, int N, bool CENTERED, int PACKS, int ROWS>
__global__ void __launch_bounds__(BACKWARD_THREADS) norm_backward_rows_kernel(const backward_args a)
{
    __shared__ float parts[2][BACKWARD_WARPS][2 * ROWS];
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
    const uint64_t step = (uint64_t)blockDim.y * ROWS;
    loaded_rows<T, N, PACKS, ROWS> rows, next;
    load_rows<T, N, CENTERED>(next, a, first + threadIdx.y * ROWS, end);
    int turn = 0;
    for (uint64_t all = first; all < end; all += step, turn ^= 1) {
        const uint64_t row = all + threadIdx.y * ROWS;
        float sums[2 * ROWS] = {};
        rows = next;
        load_rows<T, N, CENTERED>(next, a, row + step, end);
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
        group_sums(sums, parts[turn]);
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
    if (!a.partials)
        return;
    add_groups<N, CENTERED, PACKS>(weight_sums, bias_sums);
    if (threadIdx.y != 0)
        return;
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

template <typename T, int N, bool CENTERED>
static void launch_backward(const backward_args &a, const struct eo_cuda_norm_blocks &b, cudaStream_t stream)
{
    const dim3 threads(b.threads, b.groups);
    const unsigned grid = (unsigned)b.blocks;
    if (b.sums == EO_CUDA_SUMS_IN_MEMORY)
        norm_backward_kernel<T, N, CENTERED, false><<<grid, threads, 0, stream>>>(a);
    else if (b.sums == EO_CUDA_SUMS_IN_SHARED)
        norm_backward_kernel<T, N, CENTERED, true><<<grid, threads, b.shared_bytes, stream>>>(a);
    else if (b.thread_packs == 1)
        norm_backward_rows_kernel<T, N, CENTERED, 1, 2><<<grid, threads, b.shared_bytes, stream>>>(a);
    else if constexpr (!CENTERED)
        norm_backward_rows_kernel<T, N, CENTERED, 2, 1><<<grid, threads, b.shared_bytes, stream>>>(a);
}

static forward_args forward_args_of(const struct eo_norm *n)
{
    return {n->sum,    n->out,         n->mean,   n->rstd, n->residual,
            n->branch, n->branch_bias, n->weight, n->bias, n->eps, n->width, n->fp32_weights};
}

static bool forward_is_wide(const struct eo_norm *n)
{
    return n->width % lanes_of(n->types.compute) == 0 &&
           aligned(n->sum, n->out, n->residual, n->branch, n->branch_bias) && aligned(n->weight, n->bias);
}

} /* namespace */

cudaError_t eo_cuda_norm_forward(const struct eo_norm *n, cudaStream_t stream)
{
    const forward_args a = forward_args_of(n);
    return dispatch(n->types.compute, forward_is_wide(n), [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const unsigned threads = row_threads(divide_up(n->width, N), FORWARD_THREADS);
        const uint64_t bytes = n->width * sizeof(T);
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
    const struct eo_cuda_norm_blocks b = eo_cuda_norm_blocks_of(n, wide ? lanes_of(n->types.compute) : 1);
    float *partials = n->weight_gradient ? (float *)n->scratch : nullptr;
    const backward_args a = {n->in_gradient, n->skip_gradient, n->out_gradient, n->in,    n->weight, n->mean,
                             n->rstd,        partials,         n->rows,         n->width, b.block_rows, n->fp32_weights};
    const cudaError_t error = dispatch(n->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        if (n->centered)
            launch_backward<T, N, true>(a, b, stream);
        else
            launch_backward<T, N, false>(a, b, stream);
    });
    if (error != cudaSuccess || !n->weight_gradient)
        return error;
    const uint64_t sums = (n->centered ? 2 : 1) * n->width;
    finish_columns({n->weight_gradient, n->bias_gradient, n->width, sums}, n->types.gradient, partials, (uint32_t)b.blocks,
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
