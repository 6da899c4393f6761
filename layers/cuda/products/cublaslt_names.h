/* SPDX-License-Identifier: MIT
 *
 * Before cublasLt.h, in place of linking the library: the functions of it that we call get names of our own, behind
 * which cublaslt_import.c has the loaded ones. Linked, it would cost every process 200 MB and 60 ms at its start, those that
 * train on the CPU as well. Names, and not a table as cuDNN's, because functions inside cublasLt.h call others. Whoever
 * stands in for the library defines these names.
 */
#ifndef EO_LAYERS_CUDA_PRODUCTS_CUBLASLT_NAMES_H
#define EO_LAYERS_CUDA_PRODUCTS_CUBLASLT_NAMES_H

#define cublasLtCreate                         eo_cublasLtCreate
#define cublasLtDestroy                        eo_cublasLtDestroy
#define cublasLtGetStatusName                  eo_cublasLtGetStatusName
#define cublasLtGetVersion                     eo_cublasLtGetVersion
#define cublasLtMatmul                         eo_cublasLtMatmul
#define cublasLtMatmulAlgoCheck                eo_cublasLtMatmulAlgoCheck
#define cublasLtMatmulAlgoGetHeuristic         eo_cublasLtMatmulAlgoGetHeuristic
#define cublasLtMatmulDescInit_internal        eo_cublasLtMatmulDescInit_internal
#define cublasLtMatmulDescSetAttribute         eo_cublasLtMatmulDescSetAttribute
#define cublasLtMatmulPreferenceInit_internal  eo_cublasLtMatmulPreferenceInit_internal
#define cublasLtMatmulPreferenceSetAttribute   eo_cublasLtMatmulPreferenceSetAttribute
#define cublasLtMatrixLayoutInit_internal      eo_cublasLtMatrixLayoutInit_internal
#define cublasLtMatrixLayoutSetAttribute       eo_cublasLtMatrixLayoutSetAttribute

#endif
