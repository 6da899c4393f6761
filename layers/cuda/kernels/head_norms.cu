/* SPDX-License-Identifier: MIT
 *
 * RMSNorm of each head of q and k. A warp takes a head: heads are small, and a row has many.
 */
#include "layers/cuda/kernels/columns.cuh"

namespace {

enum { WARP = 32, FORWARD_WARPS = 8, BACKWARD_WARPS = 16, SHARED_BYTES = 47 << 10 };

/* 1 / sqrt(mean of squares + eps) of the head at x, in every lane. */
template <typename T, int N> __device__ __forceinline__ float head_rstd(const T *x, uint32_t size, float eps)
{
    float squares = 0;
    for (uint32_t column = threadIdx.x % WARP * N; column < size; column += WARP * N) {
        float values[N];
        lanes<T, N>::load(values, x + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            squares += values[i] * values[i];
    }
    return 1.0f / sqrtf(warp_sum(squares) / (float)size + eps);
}

/* A kernel argument with an index known only when it runs would be copied to local memory: here it is compared. */
template <typename T> __device__ __forceinline__ T choose(bool second, T first, T other)
{
    return second ? other : first;
}

/* Units of work follow each other: a row's heads, then, where there are any, its copied elements. */
template <typename T, int N>
__global__ void __launch_bounds__(FORWARD_WARPS *WARP) head_norm_forward_kernel(const struct eo_head_norm n)
{
    const uint32_t heads = n.head_count[0] + n.head_count[1], units = heads + (n.copied ? 1 : 0);
    const uint64_t unit = (uint64_t)blockIdx.x * FORWARD_WARPS + threadIdx.x / WARP, row = unit / units;
    const uint32_t head = (uint32_t)(unit % units), lane = threadIdx.x % WARP;
    if (row >= n.rows)
        return;
    const uint64_t at = (uint64_t)head * n.head_size;
    const T *in = (const T *)n.in + row * n.in_stride + at;
    T *out = (T *)n.out + row * n.out_stride + at;
    float x[N], w[N];
    if (head == heads) {
        for (uint64_t column = lane * N; column < n.copied; column += WARP * N) {
            lanes<T, N>::load(x, in + column);
            lanes<T, N>::store(out + column, x);
        }
        return;
    }
    const void *weight = choose(head >= n.head_count[0], n.weight[0], n.weight[1]);
    const float rstd = head_rstd<T, N>(in, n.head_size, n.eps);
    for (uint32_t column = lane * N; column < n.head_size; column += WARP * N) {
        lanes<T, N>::load(x, in + column);
        load_weights<T, N>(w, weight, n.fp32_weights, column);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = x[i] * rstd * w[i];
        lanes<T, N>::store(out + column, x);
    }
}

/*
 * With g = gradient x weight and xhat = in x rstd: gradient = rstd x (g - xhat x mean of g x xhat). A block takes one part
 * of the rows; each warp adds up its heads' sums in shared memory, then the block adds up its warps'. Heads that do not fit
 * there go one warp a block, which sums in the result itself.
 */
template <typename T, int N, bool SHARED>
__global__ void __launch_bounds__(BACKWARD_WARPS *WARP)
    head_norm_backward_kernel(const struct eo_head_norm_gradient n, uint64_t part_rows)
{
    extern __shared__ float shared_sums[];
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP, size = n.head_size;
    const uint32_t heads = n.head_count[0] + n.head_count[1], step = WARP * N;
    const uint64_t slots = (uint64_t)(size + step - 1) / step * step;
    /* A sum's place: in shared memory [element][lane], no two lanes in one bank. */
    const auto place = [&](uint32_t column, int i) {
        return SHARED ? (column / step * N + i) * WARP + column % step / N : column + i;
    };
    /* Two of each, of q and of k, the second so many elements behind the first. */
    float *result = n.sums + (uint64_t)blockIdx.x * size, *sums = SHARED ? shared_sums + warp * 2 * slots : result;
    const uint64_t result_step = (uint64_t)gridDim.x * size, sums_step = SHARED ? slots : result_step;
    for (uint32_t column = lane * N; column < size; column += step)
#pragma unroll
        for (int i = 0; i < N; i++)
            sums[place(column, i)] = sums[sums_step + place(column, i)] = 0;

    const uint64_t first = blockIdx.x * part_rows;
    const uint64_t rows = first + part_rows < n.rows ? part_rows : n.rows - first;
    for (uint64_t unit = warp; unit < rows * heads; unit += warps) {
        const uint64_t row = first + unit / heads, head = unit % heads;
        const bool is_k = head >= n.head_count[0];
        const T *in = (const T *)n.in + row * n.in_stride + head * size;
        const void *weight = choose(is_k, n.weight[0], n.weight[1]);
        float *own_sums = is_k ? sums + sums_step : sums;
        T *gradient = (T *)n.gradient + row * n.stride + head * size;
        const float rstd = head_rstd<T, N>(in, size, n.eps);
        float sum = 0, x[N], d[N], w[N];
        for (uint32_t column = lane * N; column < size; column += step) {
            lanes<T, N>::load(x, in + column);
            lanes<T, N>::load(d, gradient + column);
            load_weights<T, N>(w, weight, n.fp32_weights, column);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float xhat = x[i] * rstd;
                sum += d[i] * w[i] * xhat;
                own_sums[place(column, i)] += d[i] * xhat;
            }
        }
        const float mean = warp_sum(sum) / (float)size;
        for (uint32_t column = lane * N; column < size; column += step) {
            lanes<T, N>::load(x, in + column);
            lanes<T, N>::load(d, gradient + column);
            load_weights<T, N>(w, weight, n.fp32_weights, column);
#pragma unroll
            for (int i = 0; i < N; i++)
                d[i] = rstd * (d[i] * w[i] - x[i] * rstd * mean);
            lanes<T, N>::store(gradient + column, d);
        }
    }
    if constexpr (SHARED) {
        __syncthreads();
        for (uint32_t column = threadIdx.x; column < 2 * size; column += blockDim.x) {
            const uint32_t k = column >= size;
            const uint32_t at = column - k * size;
            float sum = 0;
            for (uint32_t other = 0; other < warps; other++)
                sum += shared_sums[(other * 2 + k) * slots + place(at / N * N, (int)(at % N))];
            result[k * result_step + at] = sum;
        }
    }
}

} /* namespace */

cudaError_t eo_cuda_head_norm_forward(const struct eo_head_norm *n, cudaStream_t stream)
{
    const uint64_t lanes = lanes_of(n->types.compute);
    const bool wide = n->head_size % lanes == 0 && n->in_stride % lanes == 0 && n->out_stride % lanes == 0 &&
                      n->copied % lanes == 0 && aligned(n->in, n->out, n->weight[0], n->weight[1]);
    const uint64_t units = n->rows * (n->head_count[0] + n->head_count[1] + (n->copied ? 1 : 0));
    return dispatch(n->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        head_norm_forward_kernel<T, N>
            <<<(unsigned)divide_up(units, FORWARD_WARPS), FORWARD_WARPS * WARP, 0, stream>>>(*n);
    });
}

cudaError_t eo_cuda_head_norm_backward(const struct eo_head_norm_gradient *n, cudaStream_t stream)
{
    const uint64_t lanes = lanes_of(n->types.compute);
    const bool wide = n->head_size % lanes == 0 && n->in_stride % lanes == 0 && n->stride % lanes == 0 &&
                      aligned(n->in, n->gradient, n->weight[0], n->weight[1]);
    const uint64_t part_rows = eo_head_norm_part_rows(n->rows);
    const unsigned parts = (unsigned)eo_head_norm_parts(n->rows);
    return dispatch(n->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const uint64_t warp_bytes = 2 * divide_up(n->head_size, WARP * N) * WARP * N * sizeof(float);
        const uint64_t fitting = SHARED_BYTES / warp_bytes;
        const unsigned warps = fitting < BACKWARD_WARPS ? (unsigned)fitting : BACKWARD_WARPS;
        if (warps)
            head_norm_backward_kernel<T, N, true><<<parts, warps * WARP, warps * warp_bytes, stream>>>(*n, part_rows);
        else
            head_norm_backward_kernel<T, N, false><<<parts, WARP, 0, stream>>>(*n, part_rows);
    });
}

cudaError_t eo_cuda_head_norm_weights(const struct eo_head_norm_weights *w, cudaStream_t stream)
{
    const uint64_t parts = eo_head_norm_parts(w->rows), size = w->head_size;
    for (int k = 0; k < 2; k++)
        finish_columns(w->weight_gradient[k], w->types.gradient, w->sums + k * parts * size, (uint32_t)parts, size, size,
                       false, stream);
    return cudaPeekAtLastError();
}

cudaError_t eo_cuda_load_head_norms(void)
{
    return for_all_variants([](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        return load_kernels(finish_columns_kernel,
                            head_norm_forward_kernel<T, N>,
                            head_norm_backward_kernel<T, N, true>,
                            head_norm_backward_kernel<T, N, false>);
    });
}
