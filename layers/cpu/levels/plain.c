/* SPDX-License-Identifier: MIT
 *
 * The kernels for any machine: vectors of four floats, which the compiler maps to what its baseline has.
 */
#include "layers/kernel_table.h"

#define EO_LEVEL      0
#define EO_LEVEL_NAME "plain"
#ifdef EO_ELEMENT_BF16
#define EO_LEVEL_TABLE eo_kernels_plain_bf16
#else
#define EO_LEVEL_TABLE eo_kernels_plain
#endif
#include "layers/cpu/levels/level.h"
