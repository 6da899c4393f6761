/* SPDX-License-Identifier: MIT
 *
 * The functions named in cublaslt_names.h: each passes its call on to the loaded library. Teams load it when they are made;
 * without it the functions fail.
 */
#include "layers/cuda/internal.h"


#include "base/library.h"

/* Type, result without the library, name, parameters, arguments. */
#define FUNCTIONS(X)                                                                                                  \
    X(size_t, 0, cublasLtGetVersion, (void), ())                                                                      \
    X(const char *, "not loaded", cublasLtGetStatusName, (cublasStatus_t status), (status))                           \
    X(cublasStatus_t, ABSENT, cublasLtCreate, (cublasLtHandle_t * handle), (handle))                                  \
    X(cublasStatus_t, ABSENT, cublasLtDestroy, (cublasLtHandle_t handle), (handle))                                   \
    X(cublasStatus_t, ABSENT, cublasLtMatmul,                                                                         \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha, const void *a,                     \
       cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,             \
       const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,                      \
       const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes, cudaStream_t stream),          \
      (handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm, workspace,      \
       workspace_bytes, stream))                                                                                      \
    X(cublasStatus_t, ABSENT, cublasLtMatmulAlgoCheck,                                                                \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,   \
       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,                     \
       cublasLtMatmulHeuristicResult_t *result),                                                                      \
      (handle, operation, a, b, c, d, algorithm, result))                                                             \
    X(cublasStatus_t, ABSENT, cublasLtMatmulAlgoGetHeuristic,                                                         \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,   \
       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,         \
       cublasLtMatmulHeuristicResult_t results[], int *found),                                                        \
      (handle, operation, a, b, c, d, preference, wanted, results, found))                                            \
    X(cublasStatus_t, ABSENT, cublasLtMatmulDescInit_internal,                                                        \
      (cublasLtMatmulDesc_t operation, size_t bytes, cublasComputeType_t compute, cudaDataType_t scale),              \
      (operation, bytes, compute, scale))                                                                             \
    X(cublasStatus_t, ABSENT, cublasLtMatmulDescSetAttribute,                                                         \
      (cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes),    \
      (operation, attribute, value, bytes))                                                                           \
    X(cublasStatus_t, ABSENT, cublasLtMatmulPreferenceInit_internal,                                                  \
      (cublasLtMatmulPreference_t preference, size_t bytes), (preference, bytes))                                     \
    X(cublasStatus_t, ABSENT, cublasLtMatmulPreferenceSetAttribute,                                                   \
      (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void *value,      \
       size_t bytes),                                                                                                 \
      (preference, attribute, value, bytes))                                                                          \
    X(cublasStatus_t, ABSENT, cublasLtMatrixLayoutInit_internal,                                                      \
      (cublasLtMatrixLayout_t layout, size_t bytes, cudaDataType type, uint64_t rows, uint64_t columns,               \
       int64_t leading),                                                                                              \
      (layout, bytes, type, rows, columns, leading))                                                                  \
    X(cublasStatus_t, ABSENT, cublasLtMatrixLayoutSetAttribute,                                                       \
      (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t bytes),    \
      (layout, attribute, value, bytes))

#define ABSENT     CUBLAS_STATUS_NOT_INITIALIZED
#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

static struct {
#define DECLARE(type, absent, name, parameters, arguments) __typeof__(&name) name;
    FUNCTIONS(DECLARE)
#undef DECLARE
} library_functions;

eo_status eo_cublaslt_load(const eo_log *log)
{
    static const char *const names[] = {
#define NAME(type, absent, name, parameters, arguments) #name,
        FUNCTIONS(NAME)
#undef NAME
    };
    static struct eo_library library = {
        .title = "cuBLASLt",
        .file = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR),
        .folder = EO_LAYERS_CUDA_FOLDER,
        .remedy = "Products on a GPU need it: install it (it comes with CUDA's toolkit), or add its folder to LD_LIBRARY_PATH",
        .functions = names,
        .function_count = sizeof(names) / sizeof(names[0]),
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    char text[1000];
    if (eo_library_load(&library, &library_functions, text, sizeof(text)))
        return EO_OK;
    eo_layers_log(log, EO_LOG_ERROR, "%s", text);
    return EO_ERR_UNSUPPORTED;
}

#define PASS_ON(type, absent, name, parameters, arguments)                                                            \
    type name parameters                                                                                              \
    {                                                                                                                 \
        return library_functions.name ? library_functions.name arguments : absent;                                    \
    }
FUNCTIONS(PASS_ON)
