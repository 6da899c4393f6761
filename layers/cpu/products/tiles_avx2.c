/* SPDX-License-Identifier: MIT
 *
 * The inner part of products for processors with avx2, fma; the rest of the library keeps the baseline.
 */
#include "layers/cpu/products/tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define EO_LEVEL 256
#include "layers/cpu/products/tiles_vector.h"

const struct eo_tiles eo_tiles_fp32_avx2 = TILES_FP32("avx2", EO_UNITS_FP32, NULL);
const struct eo_tiles eo_tiles_bf16_avx2 = TILES_FP32("avx2", EO_UNITS_WIDENED, eo_pack_across_avx2);

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
