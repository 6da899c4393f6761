/* SPDX-License-Identifier: MIT
 *
 * The functions named in cublaslt_names.h: each passes its call on to the library, which the first of them loads. Where
 * it is not to be had, they say that it is not initialized, which is what cublasLtCreate's caller reports.
 */
#include "layers/cuda/cublaslt_names.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)
/* Of the headers' major version: within one, the interface stays. */
#define LIBRARY "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

static struct {
    __typeof__(&cublasLtCreate) create;
    __typeof__(&cublasLtDestroy) destroy;
    __typeof__(&cublasLtGetStatusName) get_status_name;
    __typeof__(&cublasLtGetVersion) get_version;
    __typeof__(&cublasLtMatmul) matmul;
    __typeof__(&cublasLtMatmulAlgoCheck) algo_check;
    __typeof__(&cublasLtMatmulAlgoGetHeuristic) algo_get_heuristic;
    __typeof__(&cublasLtMatmulDescInit_internal) desc_init;
    __typeof__(&cublasLtMatmulDescSetAttribute) desc_set;
    __typeof__(&cublasLtMatmulPreferenceInit_internal) preference_init;
    __typeof__(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    __typeof__(&cublasLtMatrixLayoutInit_internal) layout_init;
    __typeof__(&cublasLtMatrixLayoutSetAttribute) layout_set;
} lt;

static bool is_loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* It stays loaded: libraries with device code are not made for being unloaded. */
static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cublasLtCreate", &lt.create},
        {"cublasLtDestroy", &lt.destroy},
        {"cublasLtGetStatusName", &lt.get_status_name},
        {"cublasLtGetVersion", &lt.get_version},
        {"cublasLtMatmul", &lt.matmul},
        {"cublasLtMatmulAlgoCheck", &lt.algo_check},
        {"cublasLtMatmulAlgoGetHeuristic", &lt.algo_get_heuristic},
        {"cublasLtMatmulDescInit_internal", &lt.desc_init},
        {"cublasLtMatmulDescSetAttribute", &lt.desc_set},
        {"cublasLtMatmulPreferenceInit_internal", &lt.preference_init},
        {"cublasLtMatmulPreferenceSetAttribute", &lt.preference_set},
        {"cublasLtMatrixLayoutInit_internal", &lt.layout_init},
        {"cublasLtMatrixLayoutSetAttribute", &lt.layout_set},
    };
    bool has_all = true;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void **function = functions[i].function;
        *function = dlsym(library, functions[i].name);
        has_all = has_all && *function;
    }
    is_loaded = has_all;
}

static bool has_library(void)
{
    (void)pthread_once(&once, load);
    return is_loaded;
}

#define PASS_ON(call) return has_library() ? lt.call : CUBLAS_STATUS_NOT_INITIALIZED

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    PASS_ON(create(handle));
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    PASS_ON(destroy(handle));
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return has_library() ? lt.get_status_name(status) : LIBRARY " cannot be loaded";
}

size_t cublasLtGetVersion(void)
{
    return has_library() ? lt.get_version() : 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    PASS_ON(matmul(handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,
                   workspace, workspace_bytes, stream));
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    PASS_ON(algo_check(handle, operation, a, b, c, d, algorithm, result));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    PASS_ON(algo_get_heuristic(handle, operation, a, b, c, d, preference, wanted, results, found));
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, size_t bytes,
                                               cublasComputeType_t compute, cudaDataType_t scale)
{
    PASS_ON(desc_init(operation, bytes, compute, scale));
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    PASS_ON(desc_set(operation, attribute, value, bytes));
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t bytes)
{
    PASS_ON(preference_init(preference, bytes));
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    PASS_ON(preference_set(preference, attribute, value, bytes));
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t bytes, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t leading)
{
    PASS_ON(layout_init(layout, bytes, type, rows, columns, leading));
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes)
{
    PASS_ON(layout_set(layout, attribute, value, bytes));
}
