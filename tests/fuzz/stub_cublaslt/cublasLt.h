/* SPDX-License-Identifier: MIT
 *
 * What layers/cuda/internal.h takes from cuBLASLt, so that the file of products is fuzzed where there is no CUDA.
 */
#ifndef EO_TESTS_FUZZ_STUB_CUBLASLT_CUBLASLT_H
#define EO_TESTS_FUZZ_STUB_CUBLASLT_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
    uint64_t data[32];
} cublasLtMatmulDescOpaque_t;
typedef struct {
    uint64_t data[8];
} cublasLtMatrixLayoutOpaque_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef int cublasStatus_t;

size_t cublasLtGetVersion(void);

#endif
