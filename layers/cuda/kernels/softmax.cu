/* SPDX-License-Identifier: MIT
 *
 * What stands between the products of attention/blocks.c: causal softmax of a block's scores, and its gradient. A block
 * of threads takes one query of one head.
 */
#include "layers/cuda/kernels/lanes.cuh"

namespace {

enum { THREADS = 256 };

__device__ __forceinline__ float block_max(float value)
{
    __shared__ float parts[THREADS / 32];
#pragma unroll
    for (int other = 16; other > 0; other /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, other));
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    for (unsigned part = 0; part < blockDim.x / 32; part++)
        value = fmaxf(value, parts[part]);
    return value;
}

/* The first key that a query sees: of its document's. */
__device__ __forceinline__ uint32_t first_key(const int32_t *positions, uint32_t first, uint32_t query)
{
    return positions ? first + query - (uint32_t)positions[query] : 0;
}

/* weights may be the scores: behind the last barrier an element is read and written by one thread. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    softmax_forward_kernel(const float *scores, T *weights, float *log_sum_exp, uint64_t log_sum_exp_stride,
                           const int32_t *positions, uint32_t first, uint32_t keys, float scale)
{
    const uint32_t query = blockIdx.x, head = blockIdx.y;
    const uint32_t hidden = first_key(positions, first, query), seen = first + query + 1;
    const uint64_t base = ((uint64_t)head * gridDim.x + query) * keys;
    float max = -INFINITY, sum = 0;
    for (uint32_t key = hidden + threadIdx.x; key < seen; key += blockDim.x)
        max = fmaxf(max, scale * scores[base + key]);
    max = block_max(max);
    for (uint32_t key = hidden + threadIdx.x; key < seen; key += blockDim.x)
        sum += expf(scale * scores[base + key] - max);
    sum = block_sum(make_float2(sum, 0)).x;
    __syncthreads(); /* the sum of a lone warp has none, and a hidden key shifts who reads what */
    for (uint32_t key = threadIdx.x; key < keys; key += blockDim.x)
        weights[base + key] = narrow<T>(key >= hidden && key < seen ? expf(scale * scores[base + key] - max) / sum : 0.0f);
    if (threadIdx.x == 0)
        log_sum_exp[head * log_sum_exp_stride + query] = max + logf(sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    softmax_backward_kernel(const eo_cuda_softmax_gradient g)
{
    const eo_cuda_softmax &s = g.softmax;
    const T *out = (const T *)g.out, *out_gradient = (const T *)g.out_gradient;
    T *weights = (T *)s.weights, *scores_gradient = (T *)g.scores_gradient;
    const uint32_t query = blockIdx.x, head = blockIdx.y;
    const uint32_t hidden = first_key(s.positions, s.first, query), seen = s.first + query + 1;
    const uint64_t base = ((uint64_t)head * gridDim.x + query) * s.keys;
    const uint64_t row = head * g.out_head_stride + query * g.out_stride;
    float dot = 0;
    for (uint32_t i = threadIdx.x; i < g.head_size; i += blockDim.x)
        dot += widen(out[row + i]) * widen(out_gradient[row + i]);
    dot = block_sum(make_float2(dot, 0)).x;
    const float lse = s.log_sum_exp[head * s.log_sum_exp_stride + query];
    for (uint32_t key = threadIdx.x; key < s.keys; key += blockDim.x) {
        const bool sees = key >= hidden && key < seen;
        const float weight = sees ? expf(s.scale * s.scores[base + key] - lse) : 0.0f;
        const float gradient = sees ? s.scale * weight * (g.weights_gradient[base + key] - dot) : 0.0f;
        weights[base + key] = narrow<T>(weight);
        scores_gradient[base + key] = narrow<T>(gradient);
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    narrow_rows_kernel(T *to, uint64_t stride, const float *from, uint64_t width)
{
    const uint64_t column = (uint64_t)blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x;
    if (column < width)
        to[row * stride + column] = narrow<T>(from[row * width + column]);
}

} /* namespace */

cudaError_t eo_cuda_softmax_forward(const struct eo_cuda_softmax *s, cudaStream_t stream)
{
    return dispatch(s->dtype, false, [&](auto v) {
        using T = typename decltype(v)::T;
        softmax_forward_kernel<T><<<dim3(s->queries, s->heads), row_threads(s->keys, THREADS), 0, stream>>>(
            s->scores, (T *)s->weights, s->log_sum_exp, s->log_sum_exp_stride, s->positions, s->first, s->keys, s->scale);
    });
}

cudaError_t eo_cuda_softmax_backward(const struct eo_cuda_softmax_gradient *g, cudaStream_t stream)
{
    const struct eo_cuda_softmax *s = &g->softmax;
    const unsigned threads = row_threads(s->keys > g->head_size ? s->keys : g->head_size, THREADS);
    return dispatch(s->dtype, false, [&](auto v) {
        using T = typename decltype(v)::T;
        softmax_backward_kernel<T><<<dim3(s->queries, s->heads), threads, 0, stream>>>(*g);
    });
}

cudaError_t eo_cuda_narrow_rows(void *to, uint64_t stride, const float *from, uint64_t rows, uint64_t width,
                                eo_dtype dtype, cudaStream_t stream)
{
    const unsigned threads = row_threads(width, THREADS);
    return dispatch(dtype, false, [&](auto v) {
        using T = typename decltype(v)::T;
        narrow_rows_kernel<T><<<dim3((unsigned)rows, (unsigned)divide_up(width, threads)), threads, 0, stream>>>(
            (T *)to, stride, from, width);
    });
}

cudaError_t eo_cuda_load_softmax(void)
{
    return for_all_variants([](auto v) {
        using T = typename decltype(v)::T;
        return load_kernels(softmax_forward_kernel<T>,
                            softmax_backward_kernel<T>,
                            narrow_rows_kernel<T>);
    });
}
