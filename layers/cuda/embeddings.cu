/* SPDX-License-Identifier: MIT
 *
 * Embeddings. The gradient of a token's row is the sum over the rows with that token, in their order: the rows are put in
 * the order of their tokens first (each row counts those that come before it; equal tokens keep their order), and then a
 * block sums a run of equal tokens. No atomic sums, so the bits are the same every time.
 */
#include "layers/cuda/lanes.cuh"

namespace {

enum { THREADS = 256 };

template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    embedding_kernel(T *out, const int32_t *tokens, const T *token_table, const T *position_table, uint32_t seq,
                     uint64_t width)
{
    const uint64_t column = ((uint64_t)blockIdx.y * blockDim.x + threadIdx.x) * N, row = blockIdx.x;
    if (column >= width)
        return;
    float x[N], position[N] = {};
    lanes<T, N>::load(x, token_table + (uint64_t)(uint32_t)tokens[row] * width + column);
    if (position_table)
        lanes<T, N>::load(position, position_table + row % seq * width + column);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] += position[i];
    lanes<T, N>::store(out + row * width + column, x);
}

template <typename G> __device__ __forceinline__ void put(G *to, float value)
{
    *to = narrow<G>(value);
}

/* The block of a run's first place sums the run; the others have nothing to do. */
template <typename T, typename G, int N>
__global__ void __launch_bounds__(THREADS)
    token_gradient_kernel(G *token_gradient, const T *out_gradient, const int32_t *order, const int32_t *tokens,
                          uint32_t rows, uint64_t width)
{
    const uint32_t place = blockIdx.x;
    const int32_t token = tokens[order[place]];
    if (place > 0 && tokens[order[place - 1]] == token)
        return;
    const uint64_t column = ((uint64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (column >= width)
        return;
    uint32_t end = place + 1, limit = rows; /* the run's end lies in [end, limit] */
    while (end < limit) {
        const uint32_t middle = end + (limit - end) / 2;
        if (tokens[order[middle]] == token)
            end = middle + 1;
        else
            limit = middle;
    }
    float sum[N] = {};
#pragma unroll 8
    for (uint32_t next = place; next < end; next++) {
        float x[N];
        lanes<T, N>::load(x, out_gradient + (uint64_t)order[next] * width + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] += x[i];
    }
    G *to = token_gradient + (uint64_t)token * width + column;
#pragma unroll
    for (int i = 0; i < N; i++)
        put(to + i, sum[i]);
}

/* A position's rows lie seq apart. Positions from seq on have none: zeros. */
template <typename T, typename G, int N>
__global__ void __launch_bounds__(THREADS)
    position_gradient_kernel(G *position_gradient, const T *out_gradient, uint64_t rows, uint32_t seq, uint64_t width)
{
    const uint64_t column = ((uint64_t)blockIdx.y * blockDim.x + threadIdx.x) * N, position = blockIdx.x;
    if (column >= width)
        return;
    float sum[N] = {};
    for (uint64_t row = position; position < seq && row < rows; row += seq) {
        float x[N];
        lanes<T, N>::load(x, out_gradient + row * width + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] += x[i];
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        put(position_gradient + position * width + column + i, sum[i]);
}

template <typename T, typename G, int N>
void gradients(const struct eo_embedding_gradient *e, const int32_t *order, cudaStream_t stream)
{
    const uint64_t packs = e->width / N;
    const unsigned threads = row_threads(packs, THREADS), pieces = (unsigned)divide_up(packs, threads);
    token_gradient_kernel<T, G, N><<<dim3((unsigned)e->rows, pieces), threads, 0, stream>>>(
        (G *)e->token_gradient, (const T *)e->out_gradient, order, e->tokens, (uint32_t)e->rows, e->width);
    if (e->position_gradient)
        position_gradient_kernel<T, G, N><<<dim3((unsigned)e->positions, pieces), threads, 0, stream>>>(
            (G *)e->position_gradient, (const T *)e->out_gradient, e->rows, e->seq, e->width);
}

} /* namespace */

/* order[place] = row. rows^2 comparisons of numbers in shared memory: cheaper than a sort's launches below 2^17 rows. */
static __global__ void __launch_bounds__(THREADS) order_kernel(int32_t *order, const int32_t *tokens, uint32_t rows)
{
    __shared__ int32_t tile[THREADS];
    const uint32_t row = blockIdx.x * THREADS + threadIdx.x;
    const int32_t mine = row < rows ? tokens[row] : 0;
    uint32_t before = 0;
    for (uint32_t first = 0; first < rows; first += THREADS) {
        __syncthreads();
        if (first + threadIdx.x < rows)
            tile[threadIdx.x] = tokens[first + threadIdx.x];
        __syncthreads();
        const uint32_t count = rows - first < THREADS ? rows - first : THREADS;
        for (uint32_t i = 0; i < count; i++)
            before += tile[i] < mine || (tile[i] == mine && first + i < row);
    }
    if (row < rows)
        order[before] = (int32_t)row;
}

cudaError_t eo_cuda_embedding_forward(const struct eo_embedding *e, cudaStream_t stream)
{
    const bool wide = e->width % lanes_of(e->types.compute) == 0 && aligned(e->out, e->token_table, e->position_table);
    return dispatch(e->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const uint64_t packs = e->width / N;
        const unsigned threads = row_threads(packs, THREADS);
        embedding_kernel<T, N><<<dim3((unsigned)e->rows, (unsigned)divide_up(packs, threads)), threads, 0, stream>>>(
            (T *)e->out, e->tokens, (const T *)e->token_table, (const T *)e->position_table, e->seq, e->width);
    });
}

cudaError_t eo_cuda_embedding_backward(const struct eo_embedding_gradient *e, cudaStream_t stream)
{
    int32_t *order = (int32_t *)e->scratch;
    const cudaError_t error = cudaMemsetAsync(
        e->token_gradient, 0, e->vocabulary * e->width * eo_dtype_bytes(e->types.gradient), stream);
    if (error != cudaSuccess)
        return error;
    order_kernel<<<(unsigned)divide_up(e->rows, THREADS), THREADS, 0, stream>>>(order, e->tokens, (uint32_t)e->rows);
    const bool wide = e->width % lanes_of(e->types.compute) == 0 && aligned(e->out_gradient);
    return dispatch(e->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        if (e->types.gradient == EO_DTYPE_BF16)
            gradients<T, bf16, N>(e, order, stream);
        else
            gradients<T, float, N>(e, order, stream);
    });
}

cudaError_t eo_cuda_load_embeddings(void)
{
    return for_all_variants([](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        return load_kernels(order_kernel,
                            embedding_kernel<T, N>,
                            token_gradient_kernel<T, bf16, N>,
                            token_gradient_kernel<T, float, N>,
                            position_gradient_kernel<T, bf16, N>,
                            position_gradient_kernel<T, float, N>);
    });
}
