/* SPDX-License-Identifier: MIT
 *
 * The kernels for processors with avx512f, avx512bw, avx512dq, avx512vl, avx2, fma; the rest of the library keeps the
 * baseline.
 */
#include "layers/kernel_table.h"

#if defined(__x86_64__)
#include <math.h>
#include <string.h>
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif

#define EO_LEVEL      512
#define EO_LEVEL_NAME "avx512"
#ifdef EO_ELEMENT_BF16
#define EO_LEVEL_TABLE eo_kernels_avx512_bf16
#else
#define EO_LEVEL_TABLE eo_kernels_avx512
#endif
#include "layers/cpu/levels/level.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
