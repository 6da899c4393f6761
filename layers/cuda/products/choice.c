/* SPDX-License-Identifier: MIT
 *
 * Which of cuBLASLt's algorithms a shape gets, and whether with its epilogue: the first that its heuristics name, or, at
 * start, the fastest of a few, the kernel that then does the epilogue included.
 * Only algorithms whose result does not depend on time: split sums are added up in fp32, in order.
 */
#include "layers/cuda/internal.h"

#include <stdlib.h>

#include "layers/cuda/kernels.h"

enum { CANDIDATES = 8, TIMED_RUNS = 5, TRIAL_PIECE_BYTES = 1 << 20 };

static const float WORTH_IT = 0.98f; /* another than the heuristics' first must be 2 % faster: less than that is noise */

static eo_status prefer(struct eo_cuda_team *team, cublasLtMatmulPreferenceOpaque_t *preference, uint64_t alignment)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    };
    const uint64_t workspace = EO_CUDA_WORKSPACE_BYTES;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, bytes = (uint32_t)alignment;
    BLAS_TRY(team, cublasLtMatmulPreferenceInit(preference), "cublasLtMatmulPreferenceInit");
    BLAS_TRY(team,
             cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                  sizeof(workspace)),
             "the workspace of products");
    BLAS_TRY(team,
             cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                  sizeof(schemes)),
             "the reduction schemes of products");
    for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]); i++)
        BLAS_TRY(team, cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &bytes, sizeof(bytes)),
                 "the alignment of products");
    return EO_OK;
}

/* *count 0: cuBLASLt has none for this. */
static eo_status candidates_of(struct eo_cuda_team *team, struct eo_product_plan *plan, bool fused, int wanted,
                               cublasLtMatmulHeuristicResult_t *results, int *count)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    *count = 0;
    plan->fused = fused;
    EO_TRY(eo_cuda_plan_describe(team, plan));
    EO_TRY(prefer(team, &preference, plan->key.alignment));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        team->blas, &plan->operation, &plan->a, &plan->b, &plan->d, &plan->d, &preference, wanted, results, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (fused && status == CUBLAS_STATUS_INVALID_VALUE))
        return EO_OK;
    BLAS_TRY(team, status, "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < found; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= EO_CUDA_WORKSPACE_BYTES)
            results[(*count)++] = results[i];
    return EO_OK;
}

/* ---- timing ---- */

/* Operands for the time of a choice. `memory` NULL: there was none to be had. */
struct trial {
    char *memory;
    const void *a, *b;
    const float *scales; /* of a float8 product: of either operand */
    void *c, *bias, *aux, *scratch;
    cudaEvent_t begin, end;
};

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static void trial_end(struct trial *trial)
{
    if (trial->begin)
        cudaEventDestroy(trial->begin);
    if (trial->end)
        cudaEventDestroy(trial->end);
    if (trial->memory)
        cudaFree(trial->memory);
    *trial = (struct trial){0};
}

/*
 * Numbers from 1/128 to 2, of both signs, with random fractions: constants run faster than what a training has, for a GPU
 * takes less power where few bits change. The same in every run. Pairs of bf16 are numbers of fp32 as well.
 */
static uint32_t trial_number(eo_dtype dtype, uint64_t i)
{
    uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    const uint32_t random = (uint32_t)(bits >> 32), eighth = (uint32_t)bits;
    if (dtype == EO_DTYPE_FLOAT8) /* a number a byte, none of them NaN */
        return random & 0xbfbfbfbfu;
    if (dtype == EO_DTYPE_BF16)
        return (random & 0x807f807fu) | (120 + (eighth & 7)) << 7 | (120 + (eighth >> 3 & 7)) << 23;
    return (random & 0x807fffffu) | (120 + (eighth & 7)) << 23;
}

/* A piece from the host, doubled until all is full. */
static eo_status fill(struct eo_cuda_team *team, char *memory, uint64_t bytes, eo_dtype dtype)
{
    const uint64_t piece = bytes < TRIAL_PIECE_BYTES ? bytes : (uint64_t)TRIAL_PIECE_BYTES;
    uint32_t *numbers = malloc(TRIAL_PIECE_BYTES);
    if (!numbers)
        return EO_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < piece / sizeof(*numbers); i++)
        numbers[i] = trial_number(dtype, i);
    cudaError_t error = cudaMemcpy(memory, numbers, piece, cudaMemcpyHostToDevice);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cudaStreamLegacy); /* the copy may return before it has arrived */
    free(numbers);
    EO_TRY(eo_cuda_check(team, error, "filling the operands of a trial"));
    for (uint64_t full = piece; full < bytes; full *= 2)
        CUDA_TRY(team,
                 cudaMemcpyAsync(memory + full, memory, full < bytes - full ? full : bytes - full,
                                 cudaMemcpyDeviceToDevice, team->stream),
                 "filling the operands of a trial");
    return EO_OK;
}

/* Its epilogue as a kernel of ours takes scratch. */
static bool sums_bias(const struct eo_product_plan *plan)
{
    return plan->key.epilogue == EO_EPILOGUE_BIAS_GRADIENT;
}

static eo_status trial_begin(struct eo_cuda_team *team, const struct eo_product_plan *plan, struct trial *trial)
{
    const struct eo_product_layout layout = eo_product_layout_of(&plan->key);
    const uint64_t batch = plan->key.batch, element = eo_dtype_bytes(eo_product_value_type(&plan->key));
    const bool has_scales = plan->key.compute == EO_DTYPE_FLOAT8;
    const uint64_t a = 0, b = a + align_up(eo_product_matrix_bytes(&layout.b, batch));
    const uint64_t scales = b + align_up(eo_product_matrix_bytes(&layout.a, batch));
    const uint64_t bias = scales + (has_scales ? align_up((plan->key.m + plan->key.n) * sizeof(float)) : 0);
    const uint64_t aux = bias + align_up(eo_product_bias_bytes(&plan->key));
    const uint64_t sums = aux + align_up(plan->key.m * plan->key.aux_stride * element);
    const uint64_t c = sums + (sums_bias(plan) ? align_up(eo_cuda_column_scratch_bytes(plan->key.k, plan->key.m)) : 0);
    const uint64_t bytes = c + align_up(eo_product_matrix_bytes(&layout.d, batch));
    *trial = (struct trial){0};
    if (cudaMalloc((void **)&trial->memory, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        trial->memory = NULL;
        eo_layers_log(&team->log, EO_LOG_INFO, "cuda: no %llu MiB free to time a product; using the heuristics' choice",
                      (unsigned long long)(bytes >> 20));
        return EO_OK;
    }
    trial->a = trial->memory + a;
    trial->b = trial->memory + b;
    trial->scales = has_scales ? (const float *)(trial->memory + scales) : NULL;
    trial->bias = trial->memory + bias;
    trial->aux = trial->memory + aux;
    trial->scratch = trial->memory + sums;
    trial->c = trial->memory + c;
    CUDA_TRY(team, cudaEventCreate(&trial->begin), "cudaEventCreate");
    CUDA_TRY(team, cudaEventCreate(&trial->end), "cudaEventCreate");
    EO_TRY(fill(team, trial->memory, has_scales ? scales : c, (eo_dtype)plan->key.compute));
    if (has_scales) {
        EO_TRY(fill(team, trial->memory + scales, bias - scales, EO_DTYPE_FP32));
        EO_TRY(fill(team, trial->memory + bias, c - bias, eo_product_value_type(&plan->key)));
    }
    return fill(team, trial->c, bytes - c, (eo_dtype)plan->key.result);
}

/* The product, and its epilogue where that is a kernel of ours. */
static bool run_once(struct eo_cuda_team *team, struct eo_product_plan *plan, const struct trial *trial)
{
    const struct eo_product_key *key = &plan->key;
    if (eo_cuda_plan_run(team, plan, trial->a, trial->b, trial->c, trial->c) != CUBLAS_STATUS_SUCCESS)
        return false;
    if (plan->fused || key->epilogue == EO_EPILOGUE_NONE)
        return true;
    const struct eo_multiply product = {
        .types = {eo_product_value_type(key), (eo_dtype)key->result},
        .c = trial->c,
        .c_stride = key->c_stride,
        .a = {trial->a, key->a_stride, key->a_transposed},
        .m = key->m,
        .n = key->n,
        .k = key->k,
        .epilogue = (enum eo_epilogue)key->epilogue,
        .bias = trial->bias,
        .aux = trial->aux,
        .aux_stride = key->aux_stride,
        .bias_gradient = trial->bias,
        .scratch = trial->scratch,
    };
    return eo_cuda_epilogue_alone(team, &product) == cudaSuccess;
}

/* Milliseconds of a run; an algorithm that does not run at all gives none. */
static bool time_plan(struct eo_cuda_team *team, struct eo_product_plan *plan, const struct trial *trial,
                      float *milliseconds)
{
    bool good = run_once(team, plan, trial); /* loads it */
    good = good && cudaEventRecord(trial->begin, team->stream) == cudaSuccess;
    for (int run = 0; run < TIMED_RUNS && good; run++)
        good = run_once(team, plan, trial);
    good = good && cudaEventRecord(trial->end, team->stream) == cudaSuccess;
    good = cudaStreamSynchronize(team->stream) == cudaSuccess && good;
    good = good && cudaEventElapsedTime(milliseconds, trial->begin, trial->end) == cudaSuccess;
    *milliseconds /= TIMED_RUNS;
    return good;
}

/* Algorithms for a product with its epilogue ([true]), and for one whose epilogue follows as a kernel of ours. */
struct candidates {
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    int count;
};

static eo_status take(struct eo_cuda_team *team, struct eo_product_plan *plan, const struct candidates candidates[2],
                      bool fused, int which)
{
    plan->fused = fused;
    EO_TRY(eo_cuda_plan_describe(team, plan));
    plan->algorithm = candidates[fused].results[which].algo;
    return EO_OK;
}

/* `plan` has the first one, and keeps it where none could be timed. */
static eo_status choose_fastest(struct eo_cuda_team *team, struct eo_product_plan *plan, const struct trial *trial,
                                const struct candidates candidates[2])
{
    bool best_fused = plan->fused;
    int best = 0;
    float best_milliseconds = 0;
    for (int fused = 1; fused >= 0; fused--) {
        for (int i = 0; i < candidates[fused].count; i++) {
            float milliseconds = 0;
            EO_TRY(take(team, plan, candidates, fused, i));
            (void)eo_cuda_plan_set_pointers(plan, trial->bias, trial->aux);
            if (trial->scales)
                (void)eo_cuda_plan_set_scales(plan, trial->scales, trial->scales);
            if (time_plan(team, plan, trial, &milliseconds) &&
                (!plan->timed || milliseconds < best_milliseconds * WORTH_IT)) {
                best_milliseconds = milliseconds;
                best_fused = fused;
                best = i;
                plan->timed = true;
            }
        }
    }
    EO_TRY(take(team, plan, candidates, best_fused, best));
    const double flops = 2.0 * (double)plan->key.m * (double)plan->key.n * (double)plan->key.k * (double)plan->key.batch;
    if (best_milliseconds > 0)
        eo_layers_log(&team->log, EO_LOG_DEBUG,
                      "cuda: product %llu x %llu x %llu%s: candidate %d of %d, %.3f ms, %.1f TFLOP/s",
                      (unsigned long long)plan->key.m, (unsigned long long)plan->key.n, (unsigned long long)plan->key.k,
                      plan->key.epilogue == EO_EPILOGUE_NONE ? ""
                      : best_fused                           ? ", epilogue fused"
                                                             : ", epilogue by a kernel",
                      best, candidates[best_fused].count, (double)best_milliseconds,
                      flops / (double)best_milliseconds * 1e-9);
    return EO_OK;
}

eo_status eo_cuda_plan_choose(struct eo_cuda_team *team, struct eo_product_plan *plan, bool with_timing)
{
    struct candidates candidates[2] = {{.count = 0}};
    const bool has_epilogue = plan->key.epilogue != EO_EPILOGUE_NONE;
    const int wanted = with_timing ? CANDIDATES : 1;
    plan->timed = false;
    EO_TRY(candidates_of(team, plan, true, wanted, candidates[true].results, &candidates[true].count));
    if (has_epilogue && (with_timing || candidates[true].count == 0))
        EO_TRY(candidates_of(team, plan, false, wanted, candidates[false].results, &candidates[false].count));
    const int count = candidates[true].count + candidates[false].count;
    plan->is_absent = count == 0 && plan->key.compute == EO_DTYPE_FLOAT8;
    if (plan->is_absent) {
        eo_layers_log(&team->log, EO_LOG_INFO, "cuda: cuBLASLt has no float8 product %llu x %llu x %llu; it is bf16's",
                      (unsigned long long)plan->key.m, (unsigned long long)plan->key.n, (unsigned long long)plan->key.k);
        return EO_OK;
    }
    if (count == 0) {
        eo_layers_log(&team->log, EO_LOG_ERROR,
                      "cuda: cuBLASLt has no algorithm for the product %llu x %llu x %llu (%s, alignment %llu); choose "
                      "multiples of 8 as widths",
                      (unsigned long long)plan->key.m, (unsigned long long)plan->key.n,
                      (unsigned long long)plan->key.k, eo_dtype_name((eo_dtype)plan->key.compute),
                      (unsigned long long)plan->key.alignment);
        return EO_ERR_UNSUPPORTED;
    }
    EO_TRY(take(team, plan, candidates, candidates[true].count > 0, 0));
    if (!with_timing)
        return EO_OK;
    if (count == 1) { /* nothing to compare */
        plan->timed = true;
        return EO_OK;
    }
    struct trial trial;
    eo_status status = trial_begin(team, plan, &trial);
    if (status == EO_OK && trial.memory)
        status = choose_fastest(team, plan, &trial, candidates);
    trial_end(&trial);
    return status;
}

/* In bf16, as one trains on a GPU. */
eo_status eo_cuda_product_measure(eo_team *team_of, const eo_product *product, double *flops_per_s)
{
    struct eo_cuda_team *team = eo_cuda_team_of(team_of);
    const struct eo_multiply multiply = {
        .types = {product->dtype, EO_DTYPE_FP32},
        .c_stride = product->n,
        .a = {NULL, product->transpose_a ? product->m : product->k, product->transpose_a},
        .b = {NULL, product->transpose_b ? product->k : product->n, product->transpose_b},
        .m = product->m,
        .n = product->n,
        .k = product->k,
    };
    struct eo_product_plan plan = {.key = eo_product_key_of(&multiply, NULL)};
    struct trial trial;
    float milliseconds = 0;
    EO_TRY(eo_cuda_plan_choose(team, &plan, true));
    eo_status status = trial_begin(team, &plan, &trial);
    if (status == EO_OK && !trial.memory)
        status = EO_ERR_NO_MEMORY;
    if (status == EO_OK && !time_plan(team, &plan, &trial, &milliseconds))
        status = EO_ERR_DEVICE;
    trial_end(&trial);
    if (status == EO_OK)
        *flops_per_s = 2e3 * (double)product->m * (double)product->n * (double)product->k / (double)milliseconds;
    return status;
}
