/* SPDX-License-Identifier: MIT */
#ifndef EO_TESTS_SIMULATOR_KERNELS_ALONE_ALIGNMENT_H
#define EO_TESTS_SIMULATOR_KERNELS_ALONE_ALIGNMENT_H

void alone_alignment_cases(void); /* one TAP line, after sides_begin */

#endif
