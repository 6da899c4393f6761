/* SPDX-License-Identifier: MIT
 *
 * Built with -ffp-contract=off (the project's arguments): a fused multiply-add in one of the sets would change bits.
 */
#include "streams/cpu/kernels.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/float8.h"
#include "streams/bf16.h"

#if defined(__x86_64__)

#define KERNEL(name)   avx512_##name
#define KERNEL_TARGET  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define VECTOR_FLOATS  16
#define VECTOR_SQRT(v) (avx512_f32) _mm512_sqrt_ps((__m512)(v))
#define VECTOR_STREAM(p, v) _mm512_stream_ps((float *)(p), (__m512)(v))
#define VECTOR_STREAM_END _mm_sfence()
#define VECTOR_NAME    "avx512"
#include "streams/cpu/kernels_body.h"

#define KERNEL(name)   avx2_##name
#define KERNEL_TARGET  __attribute__((target("avx2")))
#define VECTOR_FLOATS  8
#define VECTOR_SQRT(v) (avx2_f32) _mm256_sqrt_ps((__m256)(v))
#define VECTOR_STREAM(p, v) _mm256_stream_ps((float *)(p), (__m256)(v))
#define VECTOR_STREAM_END _mm_sfence()
#define VECTOR_NAME    "avx2"
#include "streams/cpu/kernels_body.h"

#define VECTOR_SQRT(v) (plain_f32) _mm_sqrt_ps((__m128)(v))
#define VECTOR_STREAM(p, v) _mm_stream_ps((float *)(p), (__m128)(v))
#define VECTOR_STREAM_END _mm_sfence()

#else

typedef float sqrt_argument __attribute__((vector_size(16), aligned(4)));

static sqrt_argument plain_sqrt(sqrt_argument v)
{
    for (int i = 0; i < 4; i++)
        v[i] = sqrtf(v[i]);
    return v;
}

#define VECTOR_SQRT(v) (plain_f32) plain_sqrt((sqrt_argument)(v))
#define VECTOR_STREAM(p, v) *(p) = (v)
#define VECTOR_STREAM_END (void)0

#endif

#define KERNEL(name)  plain_##name
#define KERNEL_TARGET
#define VECTOR_FLOATS 4
#define VECTOR_NAME   "plain"
#include "streams/cpu/kernels_body.h"

static const struct eo_cpu_kernels *const kernel_tables[] = { /* fastest first */
#if defined(__x86_64__)
    &avx512_table,
    &avx2_table,
#endif
    &plain_table,
};

uint32_t eo_cpu_kernels_count(void)
{
    return sizeof(kernel_tables) / sizeof(kernel_tables[0]);
}

const struct eo_cpu_kernels *eo_cpu_kernels_at(uint32_t index)
{
    const struct eo_cpu_kernels *table = kernel_tables[index];
#if defined(__x86_64__)
    if (table == &avx512_table && !(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
        return NULL;
    if (table == &avx2_table && !__builtin_cpu_supports("avx2"))
        return NULL;
#endif
    return table;
}

const struct eo_cpu_kernels *eo_cpu_kernels_best(void)
{
    uint32_t index = 0;
    while (!eo_cpu_kernels_at(index))
        index++;
    return eo_cpu_kernels_at(index);
}
