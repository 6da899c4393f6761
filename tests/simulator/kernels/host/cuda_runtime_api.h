/* SPDX-License-Identifier: MIT
 *
 * CUDA C++ for the host's compiler: all that the .cu files of streams/cuda and layers/cuda use of it. It stands in place of
 * CUDA's header of the same name when compile.py compiles them; calls and types are those of the real one, so that its
 * objects link with programs that were compiled against that.
 *
 * compile.py rewrites the forms that no header can: `__shared__` variables, `__launch_bounds__` and `<<<>>>`. run.c runs the
 * threads.
 */
#ifndef EO_TESTS_SIMULATOR_KERNELS_HOST_CUDA_RUNTIME_API_H
#define EO_TESTS_SIMULATOR_KERNELS_HOST_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorIllegalAddress = 700,
} cudaError_t;
typedef struct CUstream_st *cudaStream_t;

enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct cudaFuncAttributes {
    int maxThreadsPerBlock;
};

cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel);
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value);

#ifdef __cplusplus
}

#include <math.h>

#include <tuple>
#include <type_traits>

#include "tests/simulator/kernels/kernels.h"

#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(4) uchar4 {
    unsigned char x, y, z, w;
};
struct alignas(8) ushort4 {
    unsigned short x, y, z, w;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w)
{
    return {x, y, z, w};
}

static inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w)
{
    return {x, y, z, w};
}

/* A thread's own numbers never change while it runs. */
extern "C" uint3 kernel_thread_index(void) __attribute__((const));
extern "C" uint3 kernel_block_index(void) __attribute__((const));
extern "C" uint3 kernel_block_size(void) __attribute__((const));
extern "C" uint3 kernel_grid_size(void) __attribute__((const));
#define threadIdx kernel_thread_index()
#define blockIdx kernel_block_index()
#define blockDim kernel_block_size()
#define gridDim kernel_grid_size()

static inline uint32_t __float_as_uint(float value) { return __builtin_bit_cast(uint32_t, value); }
static inline float __uint_as_float(uint32_t value) { return __builtin_bit_cast(float, value); }
static inline uint32_t max(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
#define __expf(x) expf(x) /* a function of that name is the C library's */
static inline float __fdividef(float a, float b) { return a / b; }
static inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector)
{
    const uint64_t bytes = (uint64_t)high << 32 | low;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++)
        out |= (uint32_t)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return out;
}

#define __syncthreads() ((void)kernel_barrier(0, __FILE__, __LINE__))
#define __syncthreads_or(condition) (kernel_barrier((condition) != 0, __FILE__, __LINE__) > 0)
#define __syncwarp(mask) kernel_warp_barrier(mask, __FILE__, __LINE__)
#define __shfl_sync(mask, value, lane) kernel_shuffle(mask, value, KERNEL_SHUFFLE_FROM, lane, __FILE__, __LINE__)
#define __shfl_xor_sync(mask, value, lane) kernel_shuffle(mask, value, KERNEL_SHUFFLE_XOR, lane, __FILE__, __LINE__)
#define __shfl_down_sync(mask, value, lanes) kernel_shuffle(mask, value, KERNEL_SHUFFLE_DOWN, lanes, __FILE__, __LINE__)

template <typename T>
static inline T kernel_shuffle(uint32_t mask, T value, enum kernel_shuffle_kind kind, int operand, const char *file, int line)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = kernel_shuffle_bits(mask, bits, kind, (uint32_t)operand, file, line);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}

/* Threads run one after the other, so any update is atomic: the checker only has to know. */
template <typename T, typename Update>
__attribute__((noinline, no_sanitize("thread"))) static T kernel_atomic(T *at, Update update)
{
    kernel_touch_atomic(at, sizeof(T));
    const T before = *(volatile T *)at;
    *(volatile T *)at = update(before);
    return before;
}
template <typename T> static inline T atomicAdd(T *at, T value)
{
    return kernel_atomic(at, [value](T before) { return (T)(before + value); });
}
template <typename T> static inline T atomicExch(T *at, T value)
{
    return kernel_atomic(at, [value](T) { return value; });
}

/* What compile.py makes of `__shared__ T name` and `kernel<<<...>>>(...)`. */
template <typename T, unsigned ALIGN, int ID> static inline T &kernel_shared()
{
    return *(T *)kernel_shared_piece(ID, sizeof(T), ALIGN > alignof(T) ? ALIGN : alignof(T));
}

struct kernel_config {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    kernel_config(dim3 grid, dim3 block, size_t shared_bytes = 0, cudaStream_t stream = NULL)
        : grid(grid), block(block), shared_bytes(shared_bytes), stream(stream)
    {
    }
};

/* Device pointers become those under which the host reaches the bytes: pointers by their type, and any word of a structure
 * that lies in the device's range of addresses. */
template <typename P> static inline void kernel_reach(P &value)
{
    if constexpr (__is_class(P))
        kernel_reach_words(&value, sizeof(P) / sizeof(void *));
}
template <typename P> static inline void kernel_reach(P *&pointer)
{
    kernel_reach_words(&pointer, 1);
}

/* A structure that a kernel takes by value is one for all threads, as on a GPU: compile.py makes it `const T &`. */
template <typename... P> struct kernel_call {
    typedef std::tuple<std::decay_t<P>...> values;

    const char *name;
    void (*kernel)(P...);
    uint32_t threads_max;
    kernel_config config;

    static void reach(void *arguments)
    {
        std::apply([](auto &...each) { (kernel_reach(each), ...); }, *(values *)arguments);
    }
    static void thread(const void *kernel, const void *arguments)
    {
        std::apply((void (*)(P...))kernel, *(const values *)arguments);
    }
    template <typename... A> void operator()(A... given) const
    {
        values arguments(given...);
        const struct kernel_launch launch = {name,
                                             (const void *)kernel,
                                             {config.grid.x, config.grid.y, config.grid.z},
                                             {config.block.x, config.block.y, config.block.z},
                                             threads_max,
                                             config.shared_bytes,
                                             reach,
                                             thread};
        kernel_enqueue(&launch, &arguments, sizeof(arguments), config.stream);
    }
};

template <typename... P>
static inline kernel_call<P...> kernel_call_of(const char *name, void (*kernel)(P...), uint32_t threads_max,
                                               kernel_config config)
{
    return {name, kernel, threads_max, config};
}

#endif
#endif
