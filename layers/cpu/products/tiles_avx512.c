/* SPDX-License-Identifier: MIT
 *
 * The inner part of products for processors with avx512f, avx512bw, avx512dq, avx512vl, avx2, fma; the rest of the library keeps the baseline.
 */
#include "layers/cpu/products/tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif

#define EO_LEVEL 512
#include "layers/cpu/products/tiles_vector.h"

const struct eo_tiles eo_tiles_fp32_avx512 = TILES_FP32("avx512", EO_UNITS_FP32, NULL);
const struct eo_tiles eo_tiles_bf16_avx512 = TILES_FP32("avx512", EO_UNITS_WIDENED, eo_pack_across_avx512);

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
