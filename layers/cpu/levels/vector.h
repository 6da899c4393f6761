/* SPDX-License-Identifier: MIT
 *
 * Vectors of floats at the width of a level. The including file sets EO_LEVEL (512, 256, or 0: four floats, whatever the
 * machine has). All here is static: each level has its own, and with EO_ELEMENT_BF16 another one, whose elements in memory
 * are bf16. In registers all are floats.
 *
 * Loads and stores come in two forms: whole vectors, and the first `count` elements (what lies beyond is neither read
 * nor written; a load gives zeros there).
 */
#ifndef EO_LAYERS_CPU_LEVELS_VECTOR_H
#define EO_LAYERS_CPU_LEVELS_VECTOR_H

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#if EO_LEVEL == 512
enum { V = 16 };
#elif EO_LEVEL == 256
enum { V = 8 };
#else
enum { V = 4 };
#endif

typedef float vf __attribute__((vector_size(4 * V)));
typedef int32_t vi __attribute__((vector_size(4 * V)));
typedef uint32_t vu __attribute__((vector_size(4 * V)));

INLINE vf v_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof(v));
    return v;
}

INLINE void v_store(float *p, vf v)
{
    memcpy(p, &v, sizeof(v));
}

INLINE vf v_set(float x)
{
#if EO_LEVEL == 512
    return (vf)_mm512_set1_ps(x);
#elif EO_LEVEL == 256
    return (vf)_mm256_set1_ps(x);
#else
    return (vf){x, x, x, x};
#endif
}

INLINE vf v_pick(vi where, vf yes, vf no)
{
    return (vf)((where & (vi)yes) | (~where & (vi)no));
}

#if EO_LEVEL == 512

INLINE vf v_load_part(const float *p, uint64_t count)
{
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), p);
}

INLINE void v_store_part(float *p, vf v, uint64_t count)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), (__m512)v);
}

INLINE vf v_fma(vf a, vf b, vf c)
{
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

/* Of these two, b where either is NaN. */
INLINE vf v_max(vf a, vf b)
{
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}

INLINE vf v_min(vf a, vf b)
{
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
}

/* 1 / x to the last bit or two, for 1e-37 < x < 1e37. */
INLINE vf v_reciprocal(vf x)
{
    const vf r = (vf)_mm512_rcp14_ps((__m512)x);
    return v_fma(r, (vf)_mm512_fnmadd_ps((__m512)x, (__m512)r, _mm512_set1_ps(1)), r);
}

#elif EO_LEVEL == 256

INLINE __m256i part_mask(uint64_t count)
{
    static const int32_t ones_zeros[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones_zeros + 8 - count));
}

INLINE vf v_load_part(const float *p, uint64_t count)
{
    return (vf)_mm256_maskload_ps(p, part_mask(count));
}

INLINE void v_store_part(float *p, vf v, uint64_t count)
{
    _mm256_maskstore_ps(p, part_mask(count), (__m256)v);
}

INLINE vf v_fma(vf a, vf b, vf c)
{
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

INLINE vf v_max(vf a, vf b)
{
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
}

INLINE vf v_min(vf a, vf b)
{
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
}

INLINE vf v_reciprocal(vf x)
{
    return v_set(1) / x;
}

#else

INLINE vf v_load_part(const float *p, uint64_t count)
{
    vf v = v_set(0);
    for (uint64_t i = 0; i < count; i++)
        v[i] = p[i];
    return v;
}

INLINE void v_store_part(float *p, vf v, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        p[i] = v[i];
}

INLINE vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

INLINE vf v_max(vf a, vf b)
{
    return v_pick(a > b, a, b);
}

INLINE vf v_min(vf a, vf b)
{
    return v_pick(a < b, a, b);
}

INLINE vf v_reciprocal(vf x)
{
    return v_set(1) / x;
}

#endif

INLINE float v_sum(vf v)
{
    float x[V];
    v_store(x, v);
    for (int half = V / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    return x[0];
}

INLINE float v_max_element(vf v)
{
    float x[V];
    v_store(x, v);
    float max = x[0];
    for (int i = 1; i < V; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

/*
 * e^x for -87 <= x <= 88, relative error below 2e-7; NaN stays NaN. At 89 infinity.
 * 2^n e^r with n = x / ln 2 rounded, so |r| <= ln(2) / 2, where 1 + r + r^2 q(r) with a minimax q is off by 3e-9.
 * Adding 1.5 x 2^23 rounds and leaves n in the low bits, from where it is shifted to the place of the exponent; no
 * denormal arises.
 */
INLINE vf v_exp_inside(vf x)
{
    const vf shift = v_set(12582912.0f);
    const vf shifted = v_fma(x, v_set(1.44269504f), shift);
    const vf n = shifted - shift;
    vf r = v_fma(n, v_set(-0.693145752f), x); /* ln 2 in two pieces; the first one's product with n is exact */
    r = v_fma(n, v_set(-1.42860677e-6f), r);
    vf q = v_set(0.00138145406f);
    q = v_fma(q, r, v_set(0.00836874545f));
    q = v_fma(q, r, v_set(0.041668389f));
    q = v_fma(q, r, v_set(0.166665211f));
    q = v_fma(q, r, v_set(0.49999994f));
    q = v_fma(q, r * r, r) + v_set(1);
#if EO_LEVEL == 512
    return (vf)_mm512_scalef_ps((__m512)q, (__m512)n);
#else
    return q * (vf)(((vu)shifted << 23) + 0x3f800000u); /* not added to q's own bits: those of a NaN would wrap */
#endif
}

/* Beyond these bounds: the value at the bound (1.6e-38, 1.7e38). */
INLINE vf v_exp(vf x)
{
    return v_exp_inside(v_min(v_set(88.0f), v_max(v_set(-87.0f), x)));
}

/* 1 / (1 + e^x): 0 where e^x overflows, so that -x times it stays small; below -80 its value there, 1. */
INLINE vf v_sigmoid_of_negated(vf x)
{
#if EO_LEVEL == 512
    const __mmask16 counts = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(87), _CMP_NGT_UQ); /* NaN does */
    const vf inside = (vf)_mm512_maskz_max_ps(counts, _mm512_set1_ps(-80), (__m512)x); /* 0 where it does not: no exception */
    return (vf)_mm512_maskz_mov_ps(counts, (__m512)v_reciprocal(v_set(1) + v_exp_inside(inside)));
#else
    return v_reciprocal(v_set(1) + v_exp_inside(v_max(v_set(-80), v_min(v_set(89), x)))); /* e^89: infinity's bits */
#endif
}

INLINE vf v_sigmoid(vf x)
{
    return v_sigmoid_of_negated(v_set(0) - x);
}

/*
 * bf16, bit for bit as in layers/element.h: ties go to even, a NaN is made quiet. The processor's own conversion
 * (vcvtneps2bf16) takes denormals for 0, so it is of no use here. rounded_bits: the upper half of each is the bf16.
 */
typedef uint16_t vh __attribute__((vector_size(2 * V)));

/* Of a NaN it may be none. */
INLINE vu rounded_number(vf v)
{
    const vu bits = (vu)v;
    return bits + 0x7fffu + (bits >> 16 & 1);
}

#if EO_LEVEL == 512

INLINE vf floats_of(vh v)
{
    return (vf)((vu)_mm512_cvtepu16_epi32((__m256i)v) << 16);
}

INLINE vu rounded_bits(vf v)
{
    const vu bits = (vu)v;
    const __mmask16 is_number = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_ORD_Q);
    return (vu)_mm512_mask_mov_epi32((__m512i)(bits | 0x400000u), is_number, (__m512i)rounded_number(v));
}

INLINE vh high_halves(vu bits)
{
    return (vh)_mm512_cvtepi32_epi16((__m512i)(bits >> 16));
}

INLINE vh halves_of(vf v)
{
    return high_halves(rounded_bits(v));
}

INLINE vf v_load_bf16_part(const uint16_t *p, uint64_t count)
{
    return floats_of((vh)_mm256_maskz_loadu_epi16((__mmask16)((1u << count) - 1), p));
}

INLINE void v_store_bf16_part(uint16_t *p, vf v, uint64_t count)
{
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << count) - 1), (__m256i)halves_of(v));
}

#else

#if EO_LEVEL == 256
INLINE vf floats_of(vh v)
{
    return (vf)((vu)_mm256_cvtepu16_epi32((__m128i)v) << 16);
}

INLINE vu rounded_bits(vf v)
{
    const vu bits = (vu)v;
    const __m256 is_nan = _mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q);
    return (vu)_mm256_blendv_ps((__m256)rounded_number(v), (__m256)(bits | 0x400000u), is_nan);
}

INLINE vh high_halves(vu bits)
{
    const __m256i high = (__m256i)(bits >> 16);
    return (vh)_mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
#else
INLINE vf floats_of(vh v)
{
    return (vf)(__builtin_convertvector(v, vu) << 16);
}

INLINE vu rounded_bits(vf v)
{
    const vu bits = (vu)v;
    return (vu)v_pick(v != v, (vf)(bits | 0x400000u), (vf)rounded_number(v));
}

INLINE vh high_halves(vu bits)
{
    return __builtin_convertvector(bits >> 16, vh);
}
#endif

INLINE vh halves_of(vf v)
{
    return high_halves(rounded_bits(v));
}

INLINE vf v_load_bf16_part(const uint16_t *p, uint64_t count)
{
    vh v = {0};
    for (uint64_t i = 0; i < count; i++)
        v[i] = p[i];
    return floats_of(v);
}

INLINE void v_store_bf16_part(uint16_t *p, vf v, uint64_t count)
{
    const vh halves = halves_of(v);
    for (uint64_t i = 0; i < count; i++)
        p[i] = halves[i];
}

#endif

INLINE vf v_load_bf16(const uint16_t *p)
{
    vh v;
    memcpy(&v, p, sizeof(v));
    return floats_of(v);
}

INLINE void v_store_bf16(uint16_t *p, vf v)
{
    const vh halves = halves_of(v);
    memcpy(p, &halves, sizeof(halves));
}

/* Loads and stores of a loop's body that serves whole vectors (whole true, a constant) and the rest of a row. */
INLINE vf load_n(const float *p, bool whole, uint64_t count)
{
    return whole ? v_load(p) : v_load_part(p, count);
}

INLINE vf load_bf16_n(const uint16_t *p, bool whole, uint64_t count)
{
    return whole ? v_load_bf16(p) : v_load_bf16_part(p, count);
}

INLINE void store_n(float *p, vf v, bool whole, uint64_t count)
{
    if (whole)
        v_store(p, v);
    else
        v_store_part(p, v, count);
}

INLINE void store_bf16_n(uint16_t *p, vf v, bool whole, uint64_t count)
{
    if (whole)
        v_store_bf16(p, v);
    else
        v_store_bf16_part(p, v, count);
}

/* What the kernels' `void *` operands hold. */
#ifdef EO_ELEMENT_BF16
typedef uint16_t element;
#else
typedef float element;
#endif

INLINE float float_of(element x)
{
#ifdef EO_ELEMENT_BF16
    return eo_element_from_bf16(x);
#else
    return x;
#endif
}

/*
 * Runs a body for i = 0, V, 2 V ... below n; it sees `whole` (a constant: V elements are left) and `left`. Written
 * once, compiled twice.
 */
#define FOR_VECTORS(i, n, ...)            \
    do {                                  \
        uint64_t i = 0;                   \
        for (; i + V <= (n); i += V) {    \
            enum { whole = 1, left = V }; \
            __VA_ARGS__                   \
        }                                 \
        if (i < (n)) {                    \
            enum { whole = 0 };           \
            const uint64_t left = (n)-i;  \
            __VA_ARGS__                   \
        }                                 \
    } while (0)

/* Of floats or of bf16, as the pointer says: sums and tables are floats beside elements of either type. */
#define OF_POINTER(p, floats, halves) \
    _Generic((p), const float *: floats, float *: floats, const uint16_t *: halves, uint16_t *: halves)
#define LOAD_WHOLE(p)     OF_POINTER(p, v_load, v_load_bf16)(p)
#define LOAD(p)           OF_POINTER(p, load_n, load_bf16_n)((p), whole, left)
#define STORE_WHOLE(p, v) OF_POINTER(p, v_store, v_store_bf16)((p), (v))
#define STORE(p, v)       OF_POINTER(p, store_n, store_bf16_n)((p), (v), whole, left)

#endif
