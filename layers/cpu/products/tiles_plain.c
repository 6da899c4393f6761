/* SPDX-License-Identifier: MIT
 *
 * The inner part of products in plain C.
 */
#include "layers/cpu/products/tiles.h"

#define EO_LEVEL 0
#include "layers/cpu/products/tiles_vector.h"

const struct eo_tiles eo_tiles_fp32_plain = TILES_FP32("plain", EO_UNITS_FP32, NULL);
const struct eo_tiles eo_tiles_bf16_plain = TILES_FP32("plain", EO_UNITS_WIDENED, NULL);
