/* SPDX-License-Identifier: MIT
 *
 * The kernels without the simulator, and without CUDA's headers: a launch runs at once, under two orders of its threads and
 * blocks, of which one is checked, and which must leave the same bits. Device memory is the program's own; kernels reach what
 * was allowed.
 */
#ifndef EO_TESTS_SIMULATOR_KERNELS_ALONE_H
#define EO_TESTS_SIMULATOR_KERNELS_ALONE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

void alone_allow(const void *at, uint64_t bytes);
void alone_allow_nothing(void);

uint32_t alone_objections(void);
const char *alone_objection(void); /* the first since it was last asked; "" where there is none */

#endif
