/* SPDX-License-Identifier: MIT
 *
 * LayerNorm and RMSNorm. Forward, a block takes a row; its threads keep what they have read in registers, so that a row is read
 * once. Rows that do not fit there are read again.
 */
#include "layers/cuda/kernels/columns.cuh"

namespace {

enum {
    FORWARD_THREADS = 512,
    FORWARD_PACKS = 4, /* of a thread, in registers */
    BACKWARD_THREADS = EO_CUDA_NORM_THREADS
};

/* One expression for forward and backward: the same bits. */
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

template <typename T, int N> struct alignas(sizeof(T) * N) pack {
    T at[N];
};

/* To what is normed comes the branch: added up, rounded and stored. */
template <typename T, int N>
__device__ __forceinline__ void add_branch(pack<T, N> &packed, const forward_args &a, uint64_t base, uint64_t column)
{
    float x[N], y[N], bias[N] = {};
    lanes<T, N>::load(y, (const T *)a.branch + base + column);
    if (a.branch_bias)
        lanes<T, N>::load(bias, (const T *)a.branch_bias + column);
#pragma unroll
    for (int i = 0; i < N; i++) {
        packed.at[i] = narrow<T>(widen(packed.at[i]) + (y[i] + bias[i]));
        x[i] = widen(packed.at[i]);
    }
    lanes<T, N>::store((T *)a.sum + base + column, x);
}

/* Mean and 1 / deviation of a row, in every thread; `each(body)` calls body(x) for each of the thread's elements. */
template <bool CENTERED, typename Each> __device__ __forceinline__ float2 row_statistics(const forward_args &a, Each each)
{
    const float count = (float)a.width;
    float mean = 0, squares = 0;
    if (CENTERED) {
        float total = 0;
        each([&](float x) { total += x; });
        mean = block_sum(make_float2(total, 0)).x / count;
    }
    each([&](float x) { squares += (x - mean) * (x - mean); });
    const float rstd = 1.0f / sqrtf(block_sum(make_float2(squares, 0)).x / count + a.eps);
    if (threadIdx.x == 0) {
        if (CENTERED && a.mean)
            a.mean[blockIdx.x] = mean;
        if (a.rstd)
            a.rstd[blockIdx.x] = rstd;
    }
    return make_float2(mean, rstd);
}

/* x: the norm's input, and then the norm, for `out`. */
template <typename T, int N, bool CENTERED, typename Args>
__device__ __forceinline__ void store_normed(const Args &a, void *out, uint64_t base, uint64_t column, float (&x)[N],
                                             float2 statistics)
{
    float w[N], b[N] = {};
    load_weights<T, N>(w, a.weight, a.fp32_weights, column);
    if (CENTERED)
        load_weights<T, N>(b, a.bias, a.fp32_weights, column);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = normed<CENTERED>(x[i], statistics.x, statistics.y, w[i], b[i]);
    lanes<T, N>::store((T *)out + base + column, x);
}

/* A row whose packs fit in registers. Few threads have it, so that many rows are on their way. */
template <typename T, int N, bool CENTERED>
__global__ void __launch_bounds__(FORWARD_THREADS) norm_forward_kernel(const forward_args a)
{
    const uint64_t base = blockIdx.x * a.width;
    pack<T, N> packs[FORWARD_PACKS];
    const auto column_of = [&](int p) { return ((uint64_t)p * blockDim.x + threadIdx.x) * N; };
#pragma unroll
    for (int p = 0; p < FORWARD_PACKS; p++)
        if (column_of(p) < a.width)
            packs[p] = *(const pack<T, N> *)((const T *)a.residual + base + column_of(p));
    if (a.branch) {
#pragma unroll
        for (int p = 0; p < FORWARD_PACKS; p++)
            if (column_of(p) < a.width)
                add_branch<T, N>(packs[p], a, base, column_of(p));
    }
    const float2 statistics = row_statistics<CENTERED>(a, [&](auto body) {
#pragma unroll
        for (int p = 0; p < FORWARD_PACKS; p++)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (column_of(p) < a.width)
                    body(widen(packs[p].at[i]));
    });
#pragma unroll
    for (int p = 0; p < FORWARD_PACKS; p++) {
        float x[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = widen(packs[p].at[i]);
        if (column_of(p) < a.width)
            store_normed<T, N, CENTERED>(a, a.out, base, column_of(p), x, statistics);
    }
}

/* Wider rows, of a block each, are read again. */
template <typename T, int N, bool CENTERED>
__global__ void __launch_bounds__(FORWARD_THREADS) norm_forward_wide_kernel(const forward_args a)
{
    const uint64_t base = blockIdx.x * a.width, step = (uint64_t)blockDim.x * N;
    const T *row = (const T *)(a.branch ? a.sum : a.residual) + base;
    for (uint64_t column = (uint64_t)threadIdx.x * N; a.branch && column < a.width; column += step) {
        pack<T, N> x = *(const pack<T, N> *)((const T *)a.residual + base + column);
        add_branch<T, N>(x, a, base, column);
    }
    const float2 statistics = row_statistics<CENTERED>(a, [&](auto body) {
        for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
            float x[N];
            lanes<T, N>::load(x, row + column);
#pragma unroll
            for (int i = 0; i < N; i++)
                body(x[i]);
        }
    });
    for (uint64_t column = (uint64_t)threadIdx.x * N; column < a.width; column += step) {
        float x[N];
        lanes<T, N>::load(x, row + column);
        store_normed<T, N, CENTERED>(a, a.out, base, column, x, statistics);
    }
}

/*
 * ---- backward ----
 *
 * With g = out_gradient x weight and xhat = (in - mean) x rstd:
 *
 *     in_gradient = skip + rstd x (g - mean over the row of g - xhat x mean over the row of g x xhat)
 *
 * and the norm itself, `again`, where it is wanted. out_gradient has been read by then, by the same thread: the two may be one.
 *
 * A block takes rows that follow each other and keeps its sums of weight and bias gradients in shared memory, or, where
 * a row does not fit, in its part of the scratch; then finish_columns adds the blocks up.
 */
struct backward_args {
    void *in_gradient, *again;
    const void *skip_gradient, *out_gradient, *in, *weight, *bias;
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
        for (uint64_t column = (uint64_t)threadIdx.x * N; a.again && column < a.width; column += step) {
            float x[N];
            lanes<T, N>::load(x, in + column);
            store_normed<T, N, CENTERED>(a, a.again, base, column, x, make_float2(mean, rstd));
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
 * The same where a thread's packs of a row fit in registers: what is read stays there until the row's sums are known, and columns
 * keep their sums in registers. Several small blocks of a multiprocessor, each at a place of its own, keep the memory busy. Only
 * where rows are too few for that a block has groups of threads (blockDim.y), a row each, whose sums are added up at the end:
 * they wait for each other, which took a third longer with many rows (tools/dev gpu --only kernels).
 */
constexpr int BACKWARD_WARPS = BACKWARD_THREADS / 32;

/* Sums of two values over a group, in its threads. `parts` is one of two that take turns: one barrier a call. */
__device__ __forceinline__ float2 group_sum(float2 value, float2 (&parts)[BACKWARD_WARPS])
{
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, first = threadIdx.y * warps;
    value = make_float2(warp_sum(value.x), warp_sum(value.y));
    if (lane == 0)
        parts[first + threadIdx.x / 32] = value;
    __syncthreads();
    value = lane < warps ? parts[first + lane] : make_float2(0, 0);
    return make_float2(warp_sum(value.x), warp_sum(value.y));
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
    for (uint32_t group = 1; threadIdx.y == 0 && group < blockDim.y; group++)
#pragma unroll
        for (int p = 0; p < PACKS; p++)
#pragma unroll
            for (int i = 0; i < N; i++) {
                weight_sums[p][i] += others[place(group, 0, p, i)];
                if (CENTERED)
                    bias_sums[p][i] += others[place(group, 1, p, i)];
            }
}

template <typename T, int N> __device__ __forceinline__ pack<T, N> load_pack(const void *values, uint64_t at)
{
    return *(const pack<T, N> *)((const T *)values + at);
}

template <typename T, int N, bool CENTERED, int PACKS>
__global__ void __launch_bounds__(BACKWARD_THREADS, PACKS == 1 ? 2 : 1) norm_backward_rows_kernel(const backward_args a)
{
    __shared__ float2 parts[2][BACKWARD_WARPS];
    const float count = (float)a.width;
    float weight_sums[PACKS][N] = {}, bias_sums[PACKS][N] = {};
    pack<T, N> weight[PACKS] = {};
    const auto column_of = [&](int p) { return ((uint64_t)p * blockDim.x + threadIdx.x) * N; };
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (column_of(p) < a.width)
            weight[p] = load_pack<T, N>(a.weight, column_of(p));
    const uint64_t first = blockIdx.x * a.block_rows;
    const uint64_t end = first + a.block_rows < a.rows ? first + a.block_rows : a.rows;
    int turn = 0;
    for (uint64_t all = first; all < end; all += blockDim.y, turn ^= 1) {
        const uint64_t row = all + threadIdx.y, base = row * a.width;
        const bool is_row = row < end; /* else zeros, which add nothing */
        const float mean = CENTERED && is_row ? a.mean[row] : 0.0f, rstd = is_row ? a.rstd[row] : 0.0f;
        pack<T, N> in[PACKS] = {}, out_gradient[PACKS] = {}, skip[PACKS] = {};
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if (!is_row || column_of(p) >= a.width)
                continue;
            in[p] = load_pack<T, N>(a.in, base + column_of(p));
            out_gradient[p] = load_pack<T, N>(a.out_gradient, base + column_of(p));
            if (a.skip_gradient)
                skip[p] = load_pack<T, N>(a.skip_gradient, base + column_of(p));
        }
        float2 sums = make_float2(0, 0);
#pragma unroll
        for (int p = 0; p < PACKS; p++)
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float d = widen(out_gradient[p].at[i]), g = d * widen(weight[p].at[i]);
                const float xhat = (widen(in[p].at[i]) - mean) * rstd;
                sums.x += g;
                sums.y += g * xhat;
                weight_sums[p][i] += d * xhat;
                bias_sums[p][i] += d;
            }
        sums = group_sum(sums, parts[turn]);
        const float g_mean = CENTERED ? sums.x / count : 0.0f, gx_mean = sums.y / count;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            float x[N];
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float xhat = (widen(in[p].at[i]) - mean) * rstd;
                const float g = widen(out_gradient[p].at[i]) * widen(weight[p].at[i]);
                x[i] = widen(skip[p].at[i]) + rstd * (g - g_mean - xhat * gx_mean);
            }
            if (is_row && column_of(p) < a.width)
                lanes<T, N>::store((T *)a.in_gradient + base + column_of(p), x);
        }
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            float x[N];
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] = widen(in[p].at[i]);
            if (a.again && is_row && column_of(p) < a.width)
                store_normed<T, N, CENTERED>(a, a.again, base, column_of(p), x, make_float2(mean, rstd));
        }
    }
    if (!a.partials)
        return;
    if (blockDim.y > 1)
        add_groups<N, CENTERED, PACKS>(weight_sums, bias_sums);
    if (threadIdx.y != 0)
        return;
    float *partials = a.partials + blockIdx.x * (CENTERED ? 2 : 1) * a.width;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (column_of(p) >= a.width)
            continue;
        store_sums(partials + column_of(p), weight_sums[p]);
        if (CENTERED)
            store_sums(partials + a.width + column_of(p), bias_sums[p]);
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
        norm_backward_rows_kernel<T, N, CENTERED, 1><<<grid, threads, b.shared_bytes, stream>>>(a);
    else if constexpr (!CENTERED)
        norm_backward_rows_kernel<T, N, CENTERED, 2><<<grid, threads, b.shared_bytes, stream>>>(a);
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
        const uint64_t packs = divide_up(n->width, N);
        const unsigned threads = row_threads(divide_up(packs, FORWARD_PACKS), FORWARD_THREADS);
        const unsigned rows = (unsigned)n->rows;
        const bool fits = packs <= (uint64_t)threads * FORWARD_PACKS;
        if (fits && n->centered)
            norm_forward_kernel<T, N, true><<<rows, threads, 0, stream>>>(a);
        else if (fits)
            norm_forward_kernel<T, N, false><<<rows, threads, 0, stream>>>(a);
        else if (n->centered)
            norm_forward_wide_kernel<T, N, true><<<rows, threads, 0, stream>>>(a);
        else
            norm_forward_wide_kernel<T, N, false><<<rows, threads, 0, stream>>>(a);
    });
}

cudaError_t eo_cuda_norm_backward(const struct eo_norm_gradient *n, cudaStream_t stream)
{
    const bool wide = n->width % lanes_of(n->types.compute) == 0 &&
                      aligned(n->in_gradient, n->skip_gradient, n->out_gradient, n->in, n->weight) && aligned(n->again, n->bias);
    const struct eo_cuda_norm_blocks b = eo_cuda_norm_blocks_of(n, wide ? lanes_of(n->types.compute) : 1);
    float *partials = n->weight_gradient ? (float *)n->scratch : nullptr;
    const backward_args a = {n->in_gradient, n->again, n->skip_gradient, n->out_gradient, n->in,        n->weight,      n->bias,
                             n->mean,        n->rstd,  partials,         n->rows,         n->width, b.block_rows, n->fp32_weights};
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
                            norm_forward_kernel<T, N, true>,
                            norm_forward_kernel<T, N, false>,
                            norm_forward_wide_kernel<T, N, true>,
                            norm_forward_wide_kernel<T, N, false>,
                            norm_backward_rows_kernel<T, N, true, 1>,
                            norm_backward_rows_kernel<T, N, false, 1>,
                            norm_backward_rows_kernel<T, N, false, 2>,
                            norm_backward_kernel<T, N, true, true>,
                            norm_backward_kernel<T, N, false, true>,
                            norm_backward_kernel<T, N, true, false>,
                            norm_backward_kernel<T, N, false, false>);
    });
}
