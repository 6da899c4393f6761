/* SPDX-License-Identifier: MIT
 *
 * What works element by element, or row by row without a sum: residuals, activations, rotary positions; and the sums of
 * columns. All of it waits for memory: a thread takes 16 bytes at a time.
 */
#include "layers/cuda/kernels/columns.cuh"

namespace {

enum { THREADS = 256 };

/* A grid over rows (x) and pieces of a row (y). */
struct row_grid {
    dim3 grid;
    unsigned threads;
};

static row_grid grid_of_rows(uint64_t rows, uint64_t packs)
{
    const unsigned pieces = (unsigned)divide_up(packs, THREADS), threads = row_threads(divide_up(packs, pieces), THREADS);
    return {dim3((unsigned)rows, pieces), threads};
}

/* The element with which the thread begins; beyond the row's end where there is nothing to do. */
template <int N> __device__ __forceinline__ uint64_t first_column()
{
    return ((uint64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
}

/* ---- GELU, the tanh form ---- */

/* Beside T's own rounding: with bf16 the device's quick exponential and division, exact to a few units of 2^-22. Else activations
 * would wait for arithmetic, not for memory. */
template <typename T> __device__ __forceinline__ float sigmoid(float x);
template <> __device__ __forceinline__ float sigmoid<float>(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
template <> __device__ __forceinline__ float sigmoid<bf16>(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

/* (1 + tanh(u)) / 2 is the sigmoid of 2u; for fp32 tanhf, which loses less where u is small. */
template <typename T> __device__ __forceinline__ float gelu_share(float x)
{
    const float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return sizeof(T) == 4 ? 0.5f * (1.0f + tanhf(u)) : sigmoid<T>(2.0f * u);
}

template <typename T> __device__ __forceinline__ float gelu(float x)
{
    return x * gelu_share<T>(x);
}

template <typename T> __device__ __forceinline__ float gelu_slope(float x)
{
    const float s = gelu_share<T>(x);
    return s + 2.0f * x * s * (1.0f - s) * 0.7978845608028654f * (1.0f + 3.0f * 0.044715f * x * x);
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS) gelu_forward_kernel(T *out, const T *in, const T *bias, uint64_t width)
{
    const uint64_t column = first_column<N>(), at = blockIdx.x * width + column;
    if (column >= width)
        return;
    float x[N], b[N] = {};
    lanes<T, N>::load(x, in + at);
    if (bias)
        lanes<T, N>::load(b, bias + column);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = gelu<T>(x[i] + b[i]);
    lanes<T, N>::store(out + at, x);
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    epilogue_kernel(enum eo_epilogue epilogue, T *c, uint64_t c_stride, const T *bias, const T *aux,
                    uint64_t aux_stride, uint64_t width)
{
    const uint64_t column = first_column<N>();
    if (column >= width)
        return;
    T *to = c + blockIdx.x * c_stride + column;
    float x[N], other[N];
    lanes<T, N>::load(x, to);
    if (epilogue == EO_EPILOGUE_GELU_GRADIENT) {
        lanes<T, N>::load(other, aux + blockIdx.x * aux_stride + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] *= gelu_slope<T>(other[i]);
    } else {
        lanes<T, N>::load(other, bias + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] += other[i];
    }
    lanes<T, N>::store(to, x);
}

/* ---- residual ---- */

template <typename T, int N>
__global__ void __launch_bounds__(THREADS) residual_kernel(T *output, const T *residual, const T *bias, uint64_t width)
{
    const uint64_t column = first_column<N>(), at = blockIdx.x * width + column;
    if (column >= width)
        return;
    float x[N], r[N], b[N] = {};
    lanes<T, N>::load(x, output + at);
    lanes<T, N>::load(r, residual + at);
    if (bias)
        lanes<T, N>::load(b, bias + column);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = r[i] + (x[i] + b[i]);
    lanes<T, N>::store(output + at, x);
}

/* ---- scale ---- */

template <typename T, int N>
__global__ void __launch_bounds__(THREADS) scale_kernel(T *values, uint64_t count, float factor)
{
    const uint64_t at = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (at >= count)
        return;
    float x[N];
    lanes<T, N>::load(x, values + at);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] *= factor;
    lanes<T, N>::store(values + at, x);
}

/* ---- dropout ---- */

/* Elements of a pack may be of two blocks of random words where rows begin at odd places. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS) dropout_kernel(const eo_dropout d)
{
    const uint64_t column = first_column<N>(), row = blockIdx.x, at = row * d.width + column;
    if (column >= d.width)
        return;
    eo_random_place place = *d.place;
    place.sample += row / d.seq;
    place.position = d.position;
    const uint32_t threshold = eo_random_threshold(d.probability);
    const float scale = 1.0f / (1.0f - d.probability);
    const uint64_t first = row % d.seq * d.width + column;
    uint32_t words[4];
    float x[N], r[N] = {}, b[N] = {};
    lanes<T, N>::load(x, (const T *)d.in + at);
    if (d.residual)
        lanes<T, N>::load(r, (const T *)d.residual + at);
    if (d.bias)
        lanes<T, N>::load(b, (const T *)d.bias + column);
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i == 0 || (first + i) % 4 == 0)
            eo_random_words(&place, (uint32_t)((first + i) / 4), words);
        x[i] = r[i] + (words[(first + i) % 4] >= threshold ? (x[i] + b[i]) * scale : 0.0f);
    }
    lanes<T, N>::store((T *)d.out + at, x);
}

/* ---- SwiGLU ---- */

template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    swiglu_forward_kernel(T *out, const T *gate, const T *up, uint64_t stride, uint64_t width)
{
    const uint64_t column = first_column<N>(), at = blockIdx.x * stride + column;
    if (column >= width)
        return;
    float g[N], u[N];
    lanes<T, N>::load(g, gate + at);
    lanes<T, N>::load(u, up + at);
#pragma unroll
    for (int i = 0; i < N; i++)
        g[i] = g[i] * sigmoid<T>(g[i]) * u[i];
    lanes<T, N>::store(out + blockIdx.x * width + column, g);
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    swiglu_backward_kernel(T *gate_gradient, T *up_gradient, T *out, const T *out_gradient, const T *gate, const T *up,
                           uint64_t stride, uint64_t width)
{
    const uint64_t column = first_column<N>(), at = blockIdx.x * stride + column;
    if (column >= width)
        return;
    float g[N], u[N], d[N], again[N];
    lanes<T, N>::load(g, gate + at);
    lanes<T, N>::load(u, up + at);
    lanes<T, N>::load(d, out_gradient + blockIdx.x * width + column);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float s = sigmoid<T>(g[i]), silu = g[i] * s;
        const float slope = s * (1.0f + g[i] * (1.0f - s));
        again[i] = silu * u[i];
        g[i] = d[i] * u[i] * slope;
        u[i] = d[i] * silu;
    }
    lanes<T, N>::store(gate_gradient + at, g);
    lanes<T, N>::store(up_gradient + at, u);
    if (out != nullptr)
        lanes<T, N>::store(out + blockIdx.x * width + column, again);
}

/* ---- rotary positions: element i of a head turns with element i + half ---- */

template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    rotate_kernel(T *values, uint64_t stride, const float *table, const int32_t *positions, uint32_t seq, uint32_t half,
                  uint64_t pairs, float sign)
{
    const uint64_t pair = first_column<N>(); /* of the row's: head after head */
    if (pair >= pairs)
        return;
    const uint32_t position = positions ? (uint32_t)positions[blockIdx.x] : blockIdx.x % seq, i = (uint32_t)(pair % half);
    T *low = values + blockIdx.x * stride + pair / half * 2 * half + i, *high = low + half;
    const float *cosines = table + (uint64_t)position * 2 * half + i, *sines = cosines + half;
    float a[N], b[N];
    lanes<T, N>::load(a, low);
    lanes<T, N>::load(b, high);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float c = cosines[j], s = sign * sines[j], x = a[j], y = b[j];
        a[j] = x * c - y * s;
        b[j] = y * c + x * s;
    }
    lanes<T, N>::store(low, a);
    lanes<T, N>::store(high, b);
}

/* ---- sums of columns ---- */

enum { SUM_COLUMNS = 32, SUM_ROWS = 8 };

/* A block sums the rows of its part: 32 x N columns, its eight rows of threads take every eighth row. */
template <typename T, int N>
__global__ void __launch_bounds__(SUM_COLUMNS *SUM_ROWS)
    column_sums_kernel(float *partials, const T *gradient, uint64_t stride, uint64_t rows, uint64_t width,
                       uint64_t part_rows)
{
    __shared__ float sums[SUM_ROWS][SUM_COLUMNS][N + 1];
    const uint64_t column = ((uint64_t)blockIdx.x * SUM_COLUMNS + threadIdx.x) * N;
    const uint64_t first = blockIdx.y * part_rows, end = first + part_rows < rows ? first + part_rows : rows;
    float sum[N] = {};
    if (column < width) {
#pragma unroll 4
        for (uint64_t row = first + threadIdx.y; row < end; row += SUM_ROWS) {
            float x[N];
            lanes<T, N>::load(x, gradient + row * stride + column);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[i] += x[i];
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        sums[threadIdx.y][threadIdx.x][i] = sum[i];
    __syncthreads();
    if (threadIdx.y != 0 || column >= width)
        return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        for (int y = 1; y < SUM_ROWS; y++)
            sum[i] += sums[y][threadIdx.x][i];
        partials[blockIdx.y * width + column + i] = sum[i];
    }
}

/* ---- finite ---- */

template <typename T, int N>
__global__ void __launch_bounds__(THREADS) finite_kernel(uint32_t *flag, const T *values, uint64_t count)
{
    bool bad = false;
    const uint64_t step = (uint64_t)gridDim.x * THREADS * N;
    for (uint64_t at = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < count; at += step) {
        float x[N];
        lanes<T, N>::load(x, values + at);
#pragma unroll
        for (int i = 0; i < N; i++)
            bad = bad || !isfinite(x[i]);
    }
    if (bad)
        atomicExch(flag, 1u); /* whoever writes, writes the same */
}

} /* namespace */

cudaError_t eo_cuda_residual_add(const struct eo_residual *r, cudaStream_t stream)
{
    const uint64_t n = lanes_of(r->types.compute);
    const bool wide = r->width % n == 0 && aligned(r->output, r->residual, r->bias);
    return dispatch(r->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const row_grid g = grid_of_rows(r->rows, r->width / N);
        residual_kernel<T, N><<<g.grid, g.threads, 0, stream>>>((T *)r->output, (const T *)r->residual,
                                                                (const T *)r->bias, r->width);
    });
}

cudaError_t eo_cuda_scale(eo_dtype dtype, void *values, uint64_t count, float factor, cudaStream_t stream)
{
    return dispatch(dtype, count % lanes_of(dtype) == 0 && aligned(values), [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        scale_kernel<T, N><<<(unsigned)divide_up(count, (uint64_t)THREADS * N), THREADS, 0, stream>>>((T *)values, count, factor);
    });
}

cudaError_t eo_cuda_dropout(const struct eo_dropout *d, cudaStream_t stream)
{
    const uint64_t n = lanes_of(d->types.compute);
    const bool wide = d->width % n == 0 && aligned(d->out, d->in, d->residual, d->bias);
    return dispatch(d->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const row_grid g = grid_of_rows(d->rows, d->width / N);
        dropout_kernel<T, N><<<g.grid, g.threads, 0, stream>>>(*d);
    });
}

cudaError_t eo_cuda_column_sums(const struct eo_column_sums *s, cudaStream_t stream)
{
    const uint64_t n = lanes_of(s->types.compute);
    const uint64_t stride = s->stride ? s->stride : s->width;
    const bool wide = s->width % n == 0 && stride % n == 0 && aligned(s->gradient);
    const uint64_t most = s->rows < EO_CUDA_COLUMN_PARTS ? s->rows : EO_CUDA_COLUMN_PARTS;
    const uint64_t by_rows = divide_up(s->rows, 8 * SUM_ROWS), wanted = by_rows < most ? by_rows : most;
    const uint64_t part_rows = divide_up(s->rows, wanted), parts = divide_up(s->rows, part_rows);
    float *partials = (float *)s->scratch;
    const cudaError_t error = dispatch(s->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const dim3 grid((unsigned)divide_up(s->width, SUM_COLUMNS * N), (unsigned)parts);
        column_sums_kernel<T, N><<<grid, dim3(SUM_COLUMNS, SUM_ROWS), 0, stream>>>(
            partials, (const T *)s->gradient, stride, s->rows, s->width, part_rows);
    });
    if (error != cudaSuccess)
        return error;
    finish_columns(s->bias_gradient, s->types.gradient, partials, (uint32_t)parts, s->width, s->width, false, stream);
    return cudaPeekAtLastError();
}

cudaError_t eo_cuda_gelu_forward(const struct eo_gelu *g, cudaStream_t stream)
{
    const uint64_t n = lanes_of(g->types.compute);
    const bool wide = g->width % n == 0 && aligned(g->out, g->in, g->bias);
    return dispatch(g->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const row_grid r = grid_of_rows(g->rows, g->width / N);
        gelu_forward_kernel<T, N>
            <<<r.grid, r.threads, 0, stream>>>((T *)g->out, (const T *)g->in, (const T *)g->bias, g->width);
    });
}

cudaError_t eo_cuda_epilogue(const struct eo_multiply *p, cudaStream_t stream)
{
    const uint64_t n = lanes_of(p->types.compute);
    const bool wide = p->n % n == 0 && p->c_stride % n == 0 && p->aux_stride % n == 0 && aligned(p->c, p->bias, p->aux);
    return dispatch(p->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const row_grid g = grid_of_rows(p->m, p->n / N);
        epilogue_kernel<T, N><<<g.grid, g.threads, 0, stream>>>(p->epilogue, (T *)p->c, p->c_stride,
                                                                (const T *)p->bias, (const T *)p->aux, p->aux_stride, p->n);
    });
}

static bool swiglu_is_wide(const struct eo_swiglu *s)
{
    const uint64_t n = lanes_of(s->types.compute);
    return s->width % n == 0 && s->stride % n == 0 && aligned(s->out, s->gate, s->up, s->out_gradient) &&
           aligned(s->gate_gradient, s->up_gradient);
}

cudaError_t eo_cuda_swiglu_forward(const struct eo_swiglu *s, cudaStream_t stream)
{
    return dispatch(s->types.compute, swiglu_is_wide(s), [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const row_grid g = grid_of_rows(s->rows, s->width / N);
        swiglu_forward_kernel<T, N><<<g.grid, g.threads, 0, stream>>>((T *)s->out, (const T *)s->gate,
                                                                      (const T *)s->up, s->stride, s->width);
    });
}

cudaError_t eo_cuda_swiglu_backward(const struct eo_swiglu *s, cudaStream_t stream)
{
    return dispatch(s->types.compute, swiglu_is_wide(s), [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const row_grid g = grid_of_rows(s->rows, s->width / N);
        swiglu_backward_kernel<T, N><<<g.grid, g.threads, 0, stream>>>(
            (T *)s->gate_gradient, (T *)s->up_gradient, (T *)s->out, (const T *)s->out_gradient, (const T *)s->gate,
            (const T *)s->up, s->stride, s->width);
    });
}

cudaError_t eo_cuda_rotate(const struct eo_rotation *r, cudaStream_t stream)
{
    const uint64_t n = lanes_of(r->types.compute);
    const uint32_t half = r->head_size / 2;
    const bool wide = half % n == 0 && r->stride % n == 0 && aligned(r->values);
    return dispatch(r->types.compute, wide, [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const uint64_t pairs = (uint64_t)r->head_count * half;
        const row_grid g = grid_of_rows(r->rows, pairs / N);
        rotate_kernel<T, N><<<g.grid, g.threads, 0, stream>>>((T *)r->values, r->stride, r->table, r->positions, r->seq, half,
                                                              pairs, r->backward ? -1.0f : 1.0f);
    });
}

cudaError_t eo_cuda_check_finite(uint32_t *flag, const void *values, uint64_t count, eo_dtype dtype,
                                 cudaStream_t stream)
{
    const uint64_t n = lanes_of(dtype);
    return dispatch(dtype, count % n == 0 && aligned(values), [&](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        const uint64_t blocks = divide_up(count, (uint64_t)THREADS * N);
        finite_kernel<T, N><<<(unsigned)(blocks < 1024 ? blocks : 1024), THREADS, 0, stream>>>(
            flag, (const T *)values, count);
    });
}

cudaError_t eo_cuda_load_elementwise(void)
{
    return for_all_variants([](auto v) {
        using T = typename decltype(v)::T;
        constexpr int N = decltype(v)::lanes_count;
        return load_kernels(finish_columns_kernel,
                            gelu_forward_kernel<T, N>,
                            epilogue_kernel<T, N>,
                            residual_kernel<T, N>, scale_kernel<T, N>, dropout_kernel<T, N>,
                            swiglu_forward_kernel<T, N>,
                            swiglu_backward_kernel<T, N>,
                            rotate_kernel<T, N>,
                            column_sums_kernel<T, N>,
                            finite_kernel<T, N>);
    });
}
