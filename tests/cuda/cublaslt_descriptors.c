/* SPDX-License-Identifier: MIT
 *
 * Goal: the real cuBLASLt takes every description that a product is given to it by: attributes, their sizes, preferences.
 * Method: descriptors need no GPU, handles do. A choice of an algorithm without a handle comes as far as the question for
 * algorithms, and is refused there, and nowhere before. What was set is read back from the library.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "layers/cuda/internal.h"
#include "layers/cuda/kernels.h"
#include "tests/tap/tap.h"

enum { OUTER_VECTORS = 3 }; /* CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F of 12.9 */

static char told[1000];

static void take_log(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level;
    snprintf(told, sizeof(told), "%s", text);
}

/* No product runs here, and no kernel after one. */
cudaError_t eo_cuda_epilogue(const struct eo_multiply *product, cudaStream_t stream)
{
    (void)product, (void)stream;
    return cudaErrorNotSupported;
}

cudaError_t eo_cuda_column_sums(const struct eo_column_sums *sums, cudaStream_t stream)
{
    (void)sums, (void)stream;
    return cudaErrorNotSupported;
}

static __typeof__(&cublasLtMatmulDescSetAttribute) real_set;
static cublasStatus_t (*real_get)(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, void *, size_t, size_t *);
static cublasStatus_t (*real_get_layout)(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, void *, size_t, size_t *);

static uint64_t read_back(struct eo_product_plan *plan, cublasLtMatmulDescAttributes_t attribute, size_t bytes)
{
    uint64_t value = 0;
    size_t written = 0;
    CHECK_IS(real_get(&plan->operation, attribute, &value, bytes, &written), CUBLAS_STATUS_SUCCESS);
    CHECK(written == bytes, "attribute %d has %zu bytes, %zu were written", (int)attribute, bytes, written);
    return value;
}

static uint64_t read_layout(cublasLtMatrixLayoutOpaque_t *layout, cublasLtMatrixLayoutAttribute_t attribute, size_t bytes)
{
    uint64_t value = 0;
    size_t written = 0;
    CHECK_IS(real_get_layout(layout, attribute, &value, bytes, &written), CUBLAS_STATUS_SUCCESS);
    CHECK(written == bytes, "attribute %d of a layout has %zu bytes, %zu were written", (int)attribute, bytes, written);
    return value;
}

static void check_layout(cublasLtMatrixLayoutOpaque_t *layout, const struct eo_product_matrix *matrix, uint64_t batch)
{
    CHECK(read_layout(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, 8) == matrix->rows &&
          read_layout(layout, CUBLASLT_MATRIX_LAYOUT_COLS, 8) == matrix->columns &&
          read_layout(layout, CUBLASLT_MATRIX_LAYOUT_LD, 8) == matrix->leading, "a layout's sizes are others");
    CHECK(read_layout(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, 4) == CUBLASLT_ORDER_COL, "a layout's order is another");
    CHECK(read_layout(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4) == batch, "a layout's batch is another");
    CHECK(batch == 1 || read_layout(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8) == matrix->step,
          "a batch's step is another");
    CHECK(read_layout(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, 4) ==
              (uint64_t)(matrix->dtype == EO_DTYPE_FLOAT8 ? CUDA_R_8F_E4M3
                         : matrix->dtype == EO_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F), "a layout's type is another");
}

/* Whether it was described as the key says; fused: with the epilogue. */
static void check_description(struct eo_product_plan *plan, bool fused)
{
    static const cublasLtEpilogue_t epilogues[] = {
        [EO_EPILOGUE_NONE] = CUBLASLT_EPILOGUE_DEFAULT, [EO_EPILOGUE_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [EO_EPILOGUE_GELU_GRADIENT] = CUBLASLT_EPILOGUE_DGELU, [EO_EPILOGUE_BIAS_GRADIENT] = CUBLASLT_EPILOGUE_BGRADB};
    const struct eo_product_key *key = &plan->key;
    const struct eo_product_layout layout = eo_product_layout_of(key);
    const enum eo_epilogue epilogue = fused ? (enum eo_epilogue)key->epilogue : EO_EPILOGUE_NONE;
    CHECK(read_back(plan, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 4) == CUBLAS_COMPUTE_32F, "sums are not in fp32");
    CHECK(read_back(plan, CUBLASLT_MATMUL_DESC_SCALE_TYPE, 4) == CUDA_R_32F, "factors are not in fp32");
    CHECK(read_back(plan, CUBLASLT_MATMUL_DESC_TRANSA, 4) == (layout.a.transpose ? CUBLAS_OP_T : CUBLAS_OP_N), "a's operation");
    CHECK(read_back(plan, CUBLASLT_MATMUL_DESC_TRANSB, 4) == (layout.b.transpose ? CUBLAS_OP_T : CUBLAS_OP_N), "b's operation");
    CHECK(read_back(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, 4) == epilogues[epilogue], "the epilogue is another");
    CHECK(read_back(plan, CUBLASLT_MATMUL_DESC_POINTER_MODE, 4) == CUBLASLT_POINTER_MODE_HOST, "factors lie on the host");
    if (epilogue == EO_EPILOGUE_BIAS || epilogue == EO_EPILOGUE_BIAS_GRADIENT) /* -1: of the type of D */
        CHECK(read_back(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8) == key->alignment &&
              (int32_t)read_back(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 4) == -1, "the bias is another");
    if (epilogue == EO_EPILOGUE_GELU_GRADIENT)
        CHECK(read_back(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 8) == key->alignment &&
              read_back(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 8) == key->aux_stride, "the auxiliary tensor is another");
    if (key->compute == EO_DTYPE_FLOAT8) /* the number stands in plan.c, for headers that lack its name */
        CHECK(read_back(plan, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, 4) == OUTER_VECTORS &&
                  read_back(plan, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, 4) == OUTER_VECTORS &&
                  read_back(plan, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 8) != 0,
              "the scales are others");
    check_layout(&plan->a, &layout.a, key->batch);
    check_layout(&plan->b, &layout.b, key->batch);
    check_layout(&plan->d, &layout.d, key->batch);
}

static void try_product(struct eo_cuda_team *team, const struct eo_product_key *key)
{
    struct eo_product_plan plan;
    for (int fused = 1; fused >= 0; fused--) {
        memset(&plan, 0xff, sizeof(plan)); /* what a descriptor's beginning leaves would show */
        plan.key = *key;
        plan.fused = fused;
        CHECK_IS(eo_cuda_plan_describe(team, &plan), EO_OK);
        check_description(&plan, fused);
    }
    plan = (struct eo_product_plan){.key = *key};
    told[0] = 0;
    CHECK_IS(eo_cuda_plan_choose(team, &plan, true), EO_ERR_DEVICE);
    CHECK(strstr(told, "cublasLtMatmulAlgoGetHeuristic failed") && strstr(told, "CUBLAS_STATUS_NOT_INITIALIZED"),
          "the first call to fail is another: %s", told);
}

/* As the layers multiply: forward, gradients of inputs, gradients of weights, attention by products. */
static void every_product(struct eo_cuda_team *team, eo_dtype compute, eo_dtype gradient, uint64_t vocabulary)
{
    static char memory[64] __attribute__((aligned(64)));
    const uint64_t m = 128, n = vocabulary, k = 64;
    const struct eo_types types = {compute, gradient};
    for (uint32_t way = 0; way < 2 * EO_EPILOGUE_BIAS_GRADIENT + 2; way++) {
        const enum eo_epilogue epilogue = (enum eo_epilogue)(way / 2);
        const bool of_weights = epilogue == EO_EPILOGUE_BIAS_GRADIENT;
        const struct eo_multiply product = {
            .types = types, .weight_gradient = of_weights, .c_stride = n, .a = {memory, of_weights ? m : k, of_weights},
            .b = {memory + (way % 2 ? 2 : 0), way % 4 < 2 ? n : k, way % 4 >= 2}, .m = m, .n = n, .k = k, .epilogue = epilogue,
            .aux_stride = n};
        const struct eo_product_key key = eo_product_key_of(&product, NULL);
        CHECK(key.alignment == (way % 2 ? 2 : 16), "the alignment is %d", (int)key.alignment);
        try_product(team, &key);
    }
    const struct eo_multiply scores = {.types = types, .weight_gradient = true, .c_stride = m, .a = {NULL, 3 * k, false},
                                       .b = {NULL, 3 * k, true}, .m = m, .n = m, .k = k, .accumulate = true};
    const struct eo_product_key batched = eo_product_key_of(&scores, &(const struct eo_cuda_batch){4, k, k, m * m});
    try_product(team, &batched);
}

int main(void)
{
    const eo_log log = {take_log, NULL, EO_LOG_DEBUG};
    struct eo_cuda_team team = {.log = log, .device_name = "none"};
    if (eo_cublaslt_load(&log) < 0) {
        printf("1..0 # SKIP cuBLASLt cannot be loaded: %s\n", told);
        return 0;
    }
    char file[64];
    snprintf(file, sizeof(file), "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    void *library = dlopen(file, RTLD_NOW | RTLD_NOLOAD); /* the one that was loaded */
    if (!library) { /* by its folder */
        char path[1000];
        snprintf(path, sizeof(path), "%s/%s", EO_LAYERS_CUDA_FOLDER, file);
        library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    }
    if (library) {
        *(void **)&real_set = dlsym(library, "cublasLtMatmulDescSetAttribute");
        *(void **)&real_get = dlsym(library, "cublasLtMatmulDescGetAttribute");
        *(void **)&real_get_layout = dlsym(library, "cublasLtMatrixLayoutGetAttribute");
    }
    if (!real_set || !real_get || !real_get_layout) {
        tap(false, "the loaded cuBLASLt is found");
        return tap_end();
    }
    every_product(&team, EO_DTYPE_BF16, EO_DTYPE_FP32, 256);
    every_product(&team, EO_DTYPE_BF16, EO_DTYPE_BF16, 50257);
    every_product(&team, EO_DTYPE_FP32, EO_DTYPE_FP32, 50257);
    tap_case("bf16 and fp32: forward, gradients, biases, GELU's slope, batches, odd widths");
    const struct eo_multiply float8 = {.types = {EO_DTYPE_BF16, EO_DTYPE_FP32}, .c_stride = 256, .a = {NULL, 64, false},
                                       .b = {NULL, 64, true}, .m = 128, .n = 256, .k = 64, .epilogue = EO_EPILOGUE_BIAS,
                                       .float8 = true};
    const struct eo_product_key key = eo_product_key_of_float8(&float8);
    try_product(&team, &key);
    tap_case("float8 with a scale a row");

    cublasLtMatmulDescOpaque_t operation;
    const int16_t narrow = CUBLAS_OP_T;
    CHECK_IS(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    CHECK_IS(real_set(&operation, CUBLASLT_MATMUL_DESC_TRANSA, &narrow, sizeof(narrow)), CUBLAS_STATUS_INVALID_VALUE);
    tap_case("an attribute of another size is refused: the library does look");
    return tap_end();
}
