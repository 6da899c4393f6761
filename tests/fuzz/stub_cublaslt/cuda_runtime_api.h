/* SPDX-License-Identifier: MIT
 *
 * See cublasLt.h beside it.
 */
#ifndef EO_TESTS_FUZZ_STUB_CUBLASLT_CUDA_RUNTIME_API_H
#define EO_TESTS_FUZZ_STUB_CUBLASLT_CUDA_RUNTIME_API_H

typedef struct CUstream_st *cudaStream_t;
typedef int cudaError_t;

#endif
