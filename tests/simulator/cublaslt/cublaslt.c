/* SPDX-License-Identifier: MIT
 *
 * The part of cuBLASLt that evenodd calls, on simulated streams. A product is checked more strictly than cuBLASLt does: sizes
 * that fit together, an algorithm used with nothing but what it was found for, pointers as aligned as was promised, a
 * workspace large enough.
 */
#include "layers/cuda/internal.h" /* cublasLt.h, by the names that evenodd calls */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hashing.h"
#include "tests/simulator/cuda/sim.h"
#include "cublaslt.h"
#include "product.h"
#include "tests/simulator/cuda/internal.h"

enum { NEEDED_WORKSPACE = 1 << 20 };

/* What we keep in cuBLASLt's opaque structures. */
struct layout {
    uint64_t type, rows, columns, leading, batch, step;
};
struct operation {
    uint64_t a_transposed, b_transposed, epilogue, bias, aux, aux_leading;
    uint64_t a_scale_mode, b_scale_mode, a_scale, b_scale;
};
struct algorithm {
    uint64_t alignment[4], epilogue_alignment, shape;
};
struct preference {
    uint64_t workspace, schemes, alignment[4];
};
_Static_assert(sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "a layout does not fit");
_Static_assert(sizeof(struct operation) <= sizeof(cublasLtMatmulDescOpaque_t), "an operation does not fit");
_Static_assert(sizeof(struct algorithm) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm does not fit");
_Static_assert(sizeof(struct preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "a preference does not fit");

struct sim_cublaslt_counts sim_cublaslt_counted;
static int handle_object;
uint32_t sim_cublaslt_fused_is_slower;
uint64_t sim_cublaslt_no_float8_width;

/* Where a thread a stream runs, times are real, and a machine may be busy with something else for a while. */
static void take_time(const void *arguments)
{
    (void)arguments;
    if (sim.config.executor == SIM_THREADS)
        (void)poll(NULL, 0, 1);
}

void sim_cublaslt_take_time(cudaStream_t stream, uint32_t kernels)
{
    for (uint32_t i = 0; i < kernels; i++)
        (void)sim_kernel("takes time", stream, take_time, NULL, 0, NULL, 0);
}

struct sim_cublaslt_counts sim_cublaslt_counts(void)
{
    return sim_cublaslt_counted;
}

static cublasStatus_t refuse(const char *why)
{
    if (sim_cublaslt_counted.refused == 0)
        snprintf(sim_cublaslt_counted.first_refusal, sizeof(sim_cublaslt_counted.first_refusal), "%s", why);
    sim_cublaslt_counted.refused++;
    return CUBLAS_STATUS_INVALID_VALUE;
}

eo_status eo_cublaslt_load(const eo_log *log)
{
    if (!sim_lacks("cublaslt"))
        return EO_OK;
    eo_layers_log(log, EO_LOG_ERROR, "cuBLASLt cannot be loaded: the simulated machine has none");
    return EO_ERR_UNSUPPORTED;
}

size_t cublasLtGetVersion(void) { return 130000; }
const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS of the simulator";
}

/* A kernel more is slower than a fused epilogue, whatever the schedule. */
static void on_launch(const char *kernel, cudaStream_t stream)
{
    if (strcmp(kernel, "epilogue_kernel") == 0)
        sim_cublaslt_take_time(stream, 4);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    sim_on_launch = on_launch;
    if (sim_is_to_fail("cublasLtCreate"))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    sim_cublaslt_counted.handles++;
    *handle = (cublasLtHandle_t)&handle_object;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    (void)handle;
    sim_cublaslt_counted.handles--;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t out, size_t bytes, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t leading)
{
    const struct layout layout = {type, rows, columns, (uint64_t)leading, 1, 0};
    memset(out, 0, bytes);
    memcpy(out, &layout, sizeof(layout));
    return leading > 0 && (uint64_t)leading >= rows ? CUBLAS_STATUS_SUCCESS : refuse("a leading dimension below the rows");
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t out, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes)
{
    struct layout *layout = (struct layout *)out;
    int32_t count;
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof(count)) {
        memcpy(&count, value, bytes);
        layout->batch = (uint64_t)count;
    } else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof(layout->step)) {
        memcpy(&layout->step, value, bytes);
    } else {
        return refuse("a layout's attribute");
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t out, size_t bytes, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    const struct operation operation = {.epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    memset(out, 0, bytes);
    memcpy(out, &operation, sizeof(operation));
    return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : refuse("sums not in fp32");
}

static bool has_aux(uint64_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_DGELU;
}

static bool has_bias(uint64_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_BIAS;
}

/* The same pointer is written: a number for each column of D, in D's type, the sum of B over k. */
static bool has_bias_gradient(uint64_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

static bool is_epilogue(uint64_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_DEFAULT || has_aux(epilogue) || has_bias(epilogue) || has_bias_gradient(epilogue);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t out, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    struct operation *operation = (struct operation *)out;
    uint32_t word = 0;
    uint64_t wide = 0;
    if (bytes == sizeof(word))
        memcpy(&word, value, bytes);
    else if (bytes == sizeof(wide))
        memcpy(&wide, value, bytes);
    if (attribute == CUBLASLT_MATMUL_DESC_TRANSA && bytes == sizeof(word))
        operation->a_transposed = word == CUBLAS_OP_T;
    else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB && bytes == sizeof(word))
        operation->b_transposed = word == CUBLAS_OP_T;
    else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE && bytes == sizeof(word) && is_epilogue(word))
        operation->epilogue = word;
    else if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER && bytes == sizeof(wide))
        operation->bias = wide;
    else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER && bytes == sizeof(wide))
        operation->aux = wide;
    else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD && bytes == sizeof(wide))
        operation->aux_leading = wide;
    else if (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_MODE && bytes == sizeof(word))
        operation->a_scale_mode = word;
    else if (attribute == CUBLASLT_MATMUL_DESC_B_SCALE_MODE && bytes == sizeof(word))
        operation->b_scale_mode = word;
    else if (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER && bytes == sizeof(wide))
        operation->a_scale = wide;
    else if (attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER && bytes == sizeof(wide))
        operation->b_scale = wide;
    else
        return refuse("an operation's attribute");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t out, size_t bytes)
{
    const struct preference preference = {0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}}; /* its defaults */
    memset(out, 0, bytes);
    memcpy(out, &preference, sizeof(preference));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t out,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    struct preference *preference = (struct preference *)out;
    uint32_t word = 0;
    if (bytes == sizeof(word))
        memcpy(&word, value, bytes);
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof(uint64_t))
        memcpy(&preference->workspace, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == sizeof(word))
        preference->schemes = word;
    else if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
             attribute <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES && bytes == sizeof(word))
        preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = word;
    else
        return refuse("a preference's attribute");
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- algorithms ---- */

/* All that an algorithm was found for, but for the pointers. */
static uint64_t shape_of(const struct operation *operation, const struct layout *a, const struct layout *b,
                         const struct layout *d)
{
    struct operation plain = *operation;
    plain.bias = plain.aux = plain.a_scale = plain.b_scale = 0;
    uint64_t hash = eo_hash64(&plain, sizeof(plain));
    hash = eo_hash64_more(hash, a, sizeof(*a));
    hash = eo_hash64_more(hash, b, sizeof(*b));
    return eo_hash64_more(hash, d, sizeof(*d));
}

static uint64_t alignment_of(uint64_t address)
{
    const uint64_t lowest = address & (~address + 1);
    return address == 0 || lowest > 256 ? 256 : lowest;
}

/* As the documentation has it: rows of the auxiliary tensor in steps of 8 elements, its pointer on 16 bytes. Gradients of
 * biases: widths that are odd take no fused one here, so that both ways run. */
static bool epilogue_is_supported(const struct operation *operation, const struct layout *d)
{
    if (has_bias_gradient(operation->epilogue))
        return d->batch == 1 && d->columns % 8 == 0 && operation->bias % 16 == 0;
    return !has_aux(operation->epilogue) || (operation->aux_leading % 8 == 0 && operation->aux % 16 == 0);
}

static bool is_float8(const struct layout *layout)
{
    return layout->type == CUDA_R_8F_E4M3;
}

enum { OUTER_VECTORS = 3 }; /* CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F of 12.9 */

/* The rules of cuBLASLt for float8 on Hopper: both operands lie as rows of k (its TN), sizes and rows in units of 16 bytes, a
 * scale for each row or a scalar; the result is wider. Tests want one shape that it has no algorithm for. */
static bool float8_is_supported(const struct operation *o, const struct layout *a, const struct layout *b,
                                const struct layout *d)
{
    if (!is_float8(a) && !is_float8(b))
        return true;
    return is_float8(a) && is_float8(b) && sim.config.architecture == 90 && o->a_transposed && !o->b_transposed &&
           a->rows % 16 == 0 && a->columns % 16 == 0 && b->columns % 16 == 0 && a->leading % 16 == 0 && b->leading % 16 == 0 &&
           o->a_scale_mode == OUTER_VECTORS && o->a_scale_mode == o->b_scale_mode && d->type == CUDA_R_16BF && a->batch == 1 &&
           !has_aux(o->epilogue) && a->columns != sim_cublaslt_no_float8_width;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation_of,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference_of, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    const struct operation *operation = (const struct operation *)operation_of;
    const struct preference *preference = (const struct preference *)preference_of;
    (void)handle, (void)c;
    *found = 0;
    if (sim_is_to_fail("cublasLtMatmulAlgoGetHeuristic"))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    *found = 0;
    if ((preference->schemes & ~(uint64_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0)
        return refuse("a reduction whose result depends on time, or is not summed in fp32");
    if (!epilogue_is_supported(operation, (struct layout *)d) ||
        !float8_is_supported(operation, (struct layout *)a, (struct layout *)b, (struct layout *)d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    struct algorithm algorithm = {.shape = shape_of(operation, (struct layout *)a, (struct layout *)b, (struct layout *)d),
                                  .epilogue_alignment = alignment_of(operation->bias | operation->aux)};
    memcpy(algorithm.alignment, preference->alignment, sizeof(algorithm.alignment));
    for (int i = 0; i < wanted && i < 3; i++) {
        results[i] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS, .workspaceSize = NEEDED_WORKSPACE};
        memcpy(&results[i].algo, &algorithm, sizeof(algorithm));
        if (preference->workspace < NEEDED_WORKSPACE)
            results[i].state = CUBLAS_STATUS_NOT_SUPPORTED;
        (*found)++;
    }
    sim_cublaslt_counted.heuristics++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
    struct algorithm algorithm;
    (void)handle, (void)c;
    memcpy(&algorithm, algo, sizeof(algorithm));
    *result = (cublasLtMatmulHeuristicResult_t){.algo = *algo, .workspaceSize = NEEDED_WORKSPACE};
    sim_cublaslt_counted.checks++;
    return algorithm.shape == shape_of((struct operation *)operation, (struct layout *)a, (struct layout *)b, (struct layout *)d)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---- the product ---- */

static eo_dtype dtype_of(uint64_t type)
{
    return type == CUDA_R_8F_E4M3 ? EO_DTYPE_FLOAT8 : type == CUDA_R_16BF ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
}

static uint64_t span_bytes(const struct layout *layout)
{
    const uint64_t last = (layout->batch - 1) * layout->step + (layout->columns - 1) * layout->leading + layout->rows;
    return last * eo_dtype_bytes(dtype_of(layout->type));
}

static enum eo_epilogue epilogue_of(uint64_t epilogue)
{
    switch (epilogue) {
    case CUBLASLT_EPILOGUE_BIAS: return EO_EPILOGUE_BIAS;
    case CUBLASLT_EPILOGUE_DGELU: return EO_EPILOGUE_GELU_GRADIENT;
    default: return EO_EPILOGUE_NONE;
    }
}

static cublasStatus_t check(const struct operation *o, const struct layout *a, const struct layout *b,
                            const struct layout *d, const struct algorithm *algorithm, const uint64_t pointers[4])
{
    const uint64_t n = o->a_transposed ? a->columns : a->rows, k = o->a_transposed ? a->rows : a->columns;
    if (n != d->rows || (o->b_transposed ? b->rows : b->columns) != d->columns ||
        (o->b_transposed ? b->columns : b->rows) != k)
        return refuse("sizes that do not fit together");
    if (a->type != b->type || a->batch != b->batch || a->batch != d->batch)
        return refuse("types or batches that do not fit together");
    if (d->type != a->type && !(a->type == CUDA_R_16BF && d->type == CUDA_R_32F) && !is_float8(a))
        return refuse("a result type that cuBLASLt does not have");
    if (!float8_is_supported(o, a, b, d))
        return refuse("a float8 product that cuBLASLt does not have");
    if (is_float8(a) && (o->a_scale == 0 || o->b_scale == 0 || (o->a_scale | o->b_scale) % 16 != 0))
        return refuse("a float8 product without its scales");
    if (algorithm->shape != shape_of(o, a, b, d))
        return refuse("an algorithm that was found for something else");
    for (int i = 0; i < 4; i++)
        if (pointers[i] == 0 || alignment_of(pointers[i]) < algorithm->alignment[i])
            return refuse("a pointer less aligned than was promised");
    if (has_bias_gradient(o->epilogue) && !o->b_transposed)
        return refuse("the gradient of a bias from a matrix that does not lie as rows of k");
    const bool has_vector = has_bias(o->epilogue) || has_bias_gradient(o->epilogue);
    if ((has_vector && (o->bias == 0 || alignment_of(o->bias) < algorithm->epilogue_alignment)) ||
        (has_aux(o->epilogue) && (o->aux == 0 || alignment_of(o->aux) < algorithm->epilogue_alignment)))
        return refuse("an epilogue's pointer less aligned than was promised");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation_of, const void *alpha,
                              const void *a_at, cublasLtMatrixLayout_t a_of, const void *b_at,
                              cublasLtMatrixLayout_t b_of, const void *beta_at, const void *c_at,
                              cublasLtMatrixLayout_t c_of, void *d_at, cublasLtMatrixLayout_t d_of,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    const struct operation *o = (const struct operation *)operation_of;
    const struct layout *a = (struct layout *)a_of, *b = (struct layout *)b_of, *d = (struct layout *)d_of;
    if (sim_is_to_fail("cublasLtMatmul"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    const uint64_t pointers[4] = {(uintptr_t)a_at, (uintptr_t)b_at, (uintptr_t)c_at, (uintptr_t)d_at};
    const float one = *(const float *)alpha, beta = *(const float *)beta_at;
    struct algorithm algorithm;
    memcpy(&algorithm, algo, sizeof(algorithm));
    sim_cublaslt_counted.products++;
    if (handle != (cublasLtHandle_t)&handle_object || memcmp(c_of, d_of, sizeof(struct layout)) != 0)
        return refuse("C in another layout than D");
    const bool has_residual = beta == 1 && (c_at != d_at || o->epilogue == CUBLASLT_EPILOGUE_BIAS);
    if (one != 1 || (beta != 0 && beta != 1) || (beta == 0 && c_at != d_at) ||
        (beta == 1 && o->epilogue != CUBLASLT_EPILOGUE_DEFAULT && !has_residual))
        return refuse("factors that evenodd does not use");
    if (has_residual && (d->batch != 1 || (a->type != d->type && !is_float8(a))))
        return refuse("a residual that evenodd does not use");
    if (!workspace || workspace_bytes < NEEDED_WORKSPACE)
        return refuse("a workspace smaller than what the algorithm needs");
    if ((uintptr_t)workspace % 256 != 0)
        return refuse("a workspace that is not aligned to 256 bytes");
    const cublasStatus_t status = check(o, a, b, d, &algorithm, pointers);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;

    const eo_dtype compute = is_float8(a) ? dtype_of(d->type) : dtype_of(a->type);
    struct sim_cublaslt_product p;
    memset(&p, 0, sizeof(p));
    p = (struct sim_cublaslt_product){
        /* Columns first is row-major turned round: its B is our A. */
        .multiply = {.types = {compute, dtype_of(d->type)}, .weight_gradient = true, .c = d_at, .c_stride = d->leading,
                     .a = {b_at, b->leading, o->b_transposed}, .b = {a_at, a->leading, o->a_transposed},
                     .m = d->columns, .n = d->rows, .k = o->a_transposed ? a->rows : a->columns,
                     .accumulate = beta == 1 && !has_residual, .residual = has_residual ? c_at : NULL,
                     .epilogue = epilogue_of(o->epilogue),
                     .bias = (const void *)(uintptr_t)o->bias, .aux = (void *)(uintptr_t)o->aux,
                     .aux_stride = o->aux_leading},
        .batch = d->batch, .a_step = b->step, .b_step = a->step, .c_step = d->step,
        .a_scales = is_float8(a) ? (const float *)(uintptr_t)o->b_scale : NULL,
        .b_scales = is_float8(a) ? (const float *)(uintptr_t)o->a_scale : NULL,
        .bytes = {.a = span_bytes(b), .b = span_bytes(a), .c = span_bytes(d)},
    };
    if (has_bias(o->epilogue))
        p.bytes.bias = d->rows * eo_dtype_bytes(compute);
    if (has_bias_gradient(o->epilogue)) {
        p.multiply.bias_gradient = (void *)(uintptr_t)o->bias;
        p.bytes.bias_gradient = d->columns * eo_dtype_bytes(dtype_of(d->type));
    }
    if (has_aux(o->epilogue))
        p.bytes.aux = ((d->columns - 1) * o->aux_leading + d->rows) * eo_dtype_bytes(compute);
    const struct sim_range ranges[] = {
        SIM_READS(b_at, p.bytes.a),
        SIM_READS(a_at, p.bytes.b),
        SIM_WRITES(d_at, p.bytes.c),
        SIM_READS(c_at, has_residual && c_at != d_at ? p.bytes.c : 0),
        SIM_READS(p.multiply.bias, p.bytes.bias),
        SIM_WRITES(p.multiply.bias_gradient, p.bytes.bias_gradient),
        SIM_READS(p.multiply.aux, p.bytes.aux),
        SIM_WRITES(workspace, NEEDED_WORKSPACE),
        SIM_READS(p.a_scales, p.a_scales ? d->columns * sizeof(float) : 0),
        SIM_READS(p.b_scales, p.b_scales ? d->rows * sizeof(float) : 0),
    };
    const cudaError_t error =
        sim_kernel("cublasLtMatmul", stream, sim_cublaslt_product, &p, sizeof(p), ranges, sizeof(ranges) / sizeof(ranges[0]));
    if (o->epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
        sim_cublaslt_counted.fused++;
        sim_cublaslt_take_time(stream, sim_cublaslt_fused_is_slower);
    }
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
