/* SPDX-License-Identifier: MIT
 *
 * The kernels of plain.c for elements in bf16.
 */
#define EO_ELEMENT_BF16 1
#include "layers/cpu/levels/plain.c"
