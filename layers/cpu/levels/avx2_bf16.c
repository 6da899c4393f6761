/* SPDX-License-Identifier: MIT
 *
 * The kernels of avx2.c for elements in bf16.
 */
#define EO_ELEMENT_BF16 1
#include "layers/cpu/levels/avx2.c"
