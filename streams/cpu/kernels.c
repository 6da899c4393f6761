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
#include "base/mxfp8.h"
#include "streams/bf16.h"
#include "streams/state8.h"

/* The bounds between the decades of a map of streams/state8.h, and the same by a number's last five bits of exponent, 0 at
 * 2^-31: how many bounds lie below numbers with it, and the one among them, for there is one at most. */
struct state8_steps {
    float bounds[EO_STATE8_BOUNDS], among[32];
    int32_t below[32];
};

static void state8_steps_make(struct state8_steps steps[2])
{
    static const float bounds[2][EO_STATE8_BOUNDS] = {EO_STATE8_UNSIGNED_BOUNDS, EO_STATE8_SIGNED_BOUNDS};
    for (int s = 0; s < 2; s++) {
        memcpy(steps[s].bounds, bounds[s], sizeof(bounds[s]));
        for (int e = 0; e < 32; e++) {
            const float first = ldexpf(1, e - 31);
            steps[s].below[e] = 0;
            while (steps[s].below[e] < EO_STATE8_BOUNDS && bounds[s][steps[s].below[e]] <= first)
                steps[s].below[e]++;
            steps[s].among[e] = steps[s].below[e] < EO_STATE8_BOUNDS ? bounds[s][steps[s].below[e]] : NAN;
        }
    }
}

#define COMPARED_STEPS(v, steps) \
    (0 - ((v) >= (steps)->bounds[0]) - ((v) >= (steps)->bounds[1]) - ((v) >= (steps)->bounds[2]) - ((v) >= (steps)->bounds[3]) - \
     ((v) >= (steps)->bounds[4]) - ((v) >= (steps)->bounds[5]) - ((v) >= (steps)->bounds[6]))

static float largest_of(const float *values, uint32_t count)
{
    float largest = 0;
    for (uint32_t i = 0; i < count; i++)
        largest = values[i] > largest ? values[i] : largest;
    return largest;
}

#if defined(__x86_64__)

__attribute__((target("avx512f"))) static inline __m512i avx512_steps(__m512 v, const struct state8_steps *steps)
{
    const __m512 large = _mm512_max_ps(v, _mm512_set1_ps(0x1p-31f));
    const __m512i exponent = _mm512_srli_epi32(_mm512_castps_si512(large), 23);
    const __m512 bound = _mm512_permutex2var_ps(_mm512_loadu_ps(steps->among), exponent, _mm512_loadu_ps(steps->among + 16));
    const __m512i below = _mm512_permutex2var_epi32(_mm512_loadu_si512(steps->below), exponent, _mm512_loadu_si512(steps->below + 16));
    return _mm512_mask_add_epi32(below, _mm512_cmp_ps_mask(v, bound, _CMP_GE_OQ), below, _mm512_set1_epi32(1));
}

#define KERNEL(name)   avx512_##name
#define KERNEL_TARGET  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define VECTOR_FLOATS  16
#define VECTOR_SQRT(v) (avx512_f32) _mm512_sqrt_ps((__m512)(v))
#define VECTOR_MIN(v, w) (avx512_f32) _mm512_min_ps((__m512)(v), (__m512)(w))
#define VECTOR_UNLESS_0(code, v) \
    (avx512_f32) _mm512_maskz_mov_ps(_mm512_test_epi32_mask((__m512i)(code), (__m512i)(code)), (__m512)(v))
#define VECTOR_LARGEST(v) _mm512_reduce_max_ps((__m512)(v))
#define VECTOR_MAX(v, w) (avx512_f32) _mm512_max_ps((__m512)(v), (__m512)(w))
#define VECTOR_SIGNED_BYTES(p) (avx512_s32) _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)(p)))
#define VECTOR_BYTES(p) (avx512_s32) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)(p)))
#define VECTOR_STEPS(v, steps) (avx512_s32) avx512_steps((__m512)(v), steps)
#define VECTOR_LOOKUP(table, index) \
    (avx512_f32) _mm512_permutexvar_ps((__m512i)(index), _mm512_broadcast_f32x8(_mm256_loadu_ps(table)))
#define VECTOR_STREAM(p, v) _mm512_stream_ps((float *)(p), (__m512)(v))
#define VECTOR_STREAM_END _mm_sfence()
#define VECTOR_NAME    "avx512"
#include "streams/cpu/kernels_body.h"

#define KERNEL(name)   avx2_##name
#define KERNEL_TARGET  __attribute__((target("avx2")))
#define VECTOR_FLOATS  8
#define VECTOR_SQRT(v) (avx2_f32) _mm256_sqrt_ps((__m256)(v))
#define VECTOR_MIN(v, w) (avx2_f32) _mm256_min_ps((__m256)(v), (__m256)(w))
#define VECTOR_LARGEST(v) largest_of((const float *)&(v), 8)
#define VECTOR_MAX(v, w) (avx2_f32) _mm256_max_ps((__m256)(v), (__m256)(w))
#define VECTOR_SIGNED_BYTES(p) (avx2_s32) _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)(p)))
#define VECTOR_BYTES(p) (avx2_s32) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i_u *)(p)))
#define VECTOR_STEPS(v, steps) COMPARED_STEPS(v, steps)
#define VECTOR_LOOKUP(table, index) (avx2_f32) _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)(index))
#define VECTOR_STREAM(p, v) _mm256_stream_ps((float *)(p), (__m256)(v))
#define VECTOR_STREAM_END _mm_sfence()
#define VECTOR_NAME    "avx2"
#include "streams/cpu/kernels_body.h"

#define VECTOR_SQRT(v) (plain_f32) _mm_sqrt_ps((__m128)(v))
#define VECTOR_MIN(v, w) (plain_f32) _mm_min_ps((__m128)(v), (__m128)(w))
#define VECTOR_MAX(v, w) (plain_f32) _mm_max_ps((__m128)(v), (__m128)(w))
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

static sqrt_argument plain_min(sqrt_argument v, sqrt_argument w)
{
    for (int i = 0; i < 4; i++)
        v[i] = v[i] < w[i] ? v[i] : w[i];
    return v;
}

static sqrt_argument plain_max(sqrt_argument v, sqrt_argument w)
{
    for (int i = 0; i < 4; i++)
        v[i] = v[i] > w[i] ? v[i] : w[i];
    return v;
}

#define VECTOR_SQRT(v) (plain_f32) plain_sqrt((sqrt_argument)(v))
#define VECTOR_MAX(v, w) (plain_f32) plain_max((sqrt_argument)(v), (sqrt_argument)(w))
#define VECTOR_MIN(v, w) (plain_f32) plain_min((sqrt_argument)(v), (sqrt_argument)(w))
#define VECTOR_STREAM(p, v) *(p) = (v)
#define VECTOR_STREAM_END (void)0

#endif

typedef float lookup_result __attribute__((vector_size(16), aligned(4)));
typedef int32_t lookup_index __attribute__((vector_size(16), aligned(4)));

static lookup_result plain_lookup(const float table[8], lookup_index index)
{
    return (lookup_result){table[index[0] & 7], table[index[1] & 7], table[index[2] & 7], table[index[3] & 7]};
}

#define VECTOR_LARGEST(v) largest_of((const float *)&(v), 4)
#define VECTOR_STEPS(v, steps) COMPARED_STEPS(v, steps)
#define VECTOR_SIGNED_BYTES(p) __builtin_convertvector(*(const plain_s8 *)(p), plain_s32)
#define VECTOR_BYTES(p) __builtin_convertvector(*(const plain_u8 *)(p), plain_s32)
#define VECTOR_LOOKUP(table, index) (plain_f32) plain_lookup(table, (lookup_index)(index))
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
