/* SPDX-License-Identifier: MIT
 *
 * Embeddings. The gradient of a word is the sum over the rows with that token, in their order: the rows are put in the order
 * of their tokens first (each row counts those that come before it; equal tokens keep their order), and then a block of each
 * word sums its run of equal tokens, or writes zeros: the table is written once, or, where sums are added, only words with rows
 * are. No atomic sums, so the bits are the same every time.
 */
#include "layers/cuda/kernels/lanes.cuh"

namespace {

enum { THREADS = 256 };

template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    embedding_kernel(T *out, const int32_t *tokens, const int32_t *positions, const T *token_table, const T *position_table,
                     uint32_t seq, uint64_t width)
{
    const uint64_t column = ((uint64_t)blockIdx.y * blockDim.x + threadIdx.x) * N, row = blockIdx.x;
    if (column >= width)
        return;
    float x[N], position[N] = {};
    lanes<T, N>::load(x, token_table + (uint64_t)(uint32_t)tokens[row] * width + column);
    if (position_table)
        lanes<T, N>::load(position, position_table + (positions ? (uint64_t)positions[row] : row % seq) * width + column);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] += position[i];
    lanes<T, N>::store(out + row * width + column, x);
}

/* Where a word's rows stand in the order, and how many there are. */
struct run {
    uint32_t first, count;
};

template <typename T, typename G, int N>
__global__ void __launch_bounds__(THREADS) token_gradient_kernel(G *token_gradient, const T *out_gradient, const int32_t *order,
                                                                 const run *runs, uint64_t width, bool adds)
{
    const uint64_t column = ((uint64_t)blockIdx.y * blockDim.x + threadIdx.x) * N, word = blockIdx.x;
    if (column >= width)
        return;
    const uint32_t first = runs[word].first, end = first + runs[word].count;
    if (adds && first == end)
        return;
    float sum[N] = {};
#pragma unroll 8
    for (uint32_t next = first; next < end; next++) {
        float x[N];
        lanes<T, N>::load(x, out_gradient + (uint64_t)order[next] * width + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] += x[i];
    }
    if (adds)
        add_stored(sum, token_gradient + word * width + column);
    store_sums(token_gradient + word * width + column, sum);
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
    store_sums(position_gradient + position * width + column, sum);
}

template <typename T, typename G, int N>
void gradients(const struct eo_embedding_gradient *e, const int32_t *order, const run *runs, cudaStream_t stream)
{
    const uint64_t packs = e->width / N;
    const unsigned threads = row_threads(packs, THREADS), pieces = (unsigned)divide_up(packs, threads);
    token_gradient_kernel<T, G, N><<<dim3((unsigned)e->vocabulary, pieces), threads, 0, stream>>>(
        (G *)e->token_gradient, (const T *)e->out_gradient, order, runs, e->width, e->adds);
    if (e->position_gradient)
        position_gradient_kernel<T, G, N><<<dim3((unsigned)e->positions, pieces), threads, 0, stream>>>(
            (G *)e->position_gradient, (const T *)e->out_gradient, e->rows, e->seq, e->width);
}

} /* namespace */

/* order[place] = row, and the runs of the words that are there. rows^2 comparisons of numbers in shared memory: cheaper than
 * a sort's launches below 2^17 rows. */
static __global__ void __launch_bounds__(THREADS)
    order_kernel(int32_t *order, run *runs, const int32_t *tokens, uint32_t rows)
{
    __shared__ int4 tile[THREADS / 4];
    const uint32_t row = blockIdx.x * THREADS + threadIdx.x;
    const int32_t mine = row < rows ? tokens[row] : 0;
    uint32_t less = 0, equal = 0, equal_before = 0;
    for (uint32_t first = 0; first < rows; first += THREADS) {
        const uint32_t at = first + threadIdx.x;
        __syncthreads();
        ((int32_t *)tile)[threadIdx.x] = at < rows ? tokens[at] : INT32_MAX; /* no word: not less than any, and equal to none */
        __syncthreads();
#pragma unroll 8
        for (uint32_t i = 0; i < THREADS / 4; i++) {
            const int4 four = tile[i];
            const int32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (uint32_t w = 0; w < 4; w++) {
                less += words[w] < mine;
                equal += words[w] == mine;
                equal_before += words[w] == mine && first + 4 * i + w < row;
            }
        }
    }
    if (row >= rows)
        return;
    order[less + equal_before] = (int32_t)row;
    if (equal_before == 0)
        runs[mine] = {less, equal};
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
            (T *)e->out, e->tokens, e->positions, (const T *)e->token_table, (const T *)e->position_table, e->seq, e->width);
    });
}

cudaError_t eo_cuda_embedding_backward(const struct eo_embedding_gradient *e, cudaStream_t stream)
{
    run *runs = (run *)e->scratch; /* of each word; then the order */
    int32_t *order = (int32_t *)(runs + e->vocabulary);
    const cudaError_t error = cudaMemsetAsync(runs, 0, e->vocabulary * sizeof(run), stream);
    if (error != cudaSuccess)
        return error;
    order_kernel<<<(unsigned)divide_up(e->rows, THREADS), THREADS, 0, stream>>>(order, runs, e->tokens, (uint32_t)e->rows);
    const bool wide = e->width % lanes_of(e->types.compute) == 0 &&
                      aligned(e->out_gradient, e->token_gradient, e->position_gradient);
    return dispatch(e->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        if (e->types.gradient == EO_DTYPE_BF16)
            gradients<T, bf16, N>(e, order, runs, stream);
        else
            gradients<T, float, N>(e, order, runs, stream);
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
