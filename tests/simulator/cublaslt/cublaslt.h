/* SPDX-License-Identifier: MIT */
#ifndef EO_TESTS_SIMULATOR_CUBLASLT_CUBLASLT_H
#define EO_TESTS_SIMULATOR_CUBLASLT_CUBLASLT_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

/* Of all handles since the program's start. refused: calls that cuBLASLt would refuse, or that would compute nonsense.
 * constant: products of an operand with one value everywhere, whose time would be no training's. */
struct sim_cublaslt_counts {
    int handles, heuristics, checks, products, fused, constant, refused, float8;
    char first_refusal[96];
};
struct sim_cublaslt_counts sim_cublaslt_counts(void);

/* Empty kernels after a product with an epilogue: it is slower than the product alone and a kernel that does the epilogue. */
extern uint32_t sim_cublaslt_fused_is_slower;
/* Float8 products with so many columns have no algorithm. */
extern uint64_t sim_cublaslt_no_float8_width;
void sim_cublaslt_take_time(cudaStream_t stream, uint32_t kernels);

#endif
