/* SPDX-License-Identifier: MIT
 *
 * Which of cuBLASLt's algorithms a shape gets: the first that its heuristics name, or, at start, the fastest of a few.
 * Only algorithms whose result does not depend on time: split sums are added up in fp32, in order.
 */
#include "layers/cuda/internal.h"

enum { CANDIDATES = 8, TIMED_RUNS = 5 };

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
    void *c;
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

static eo_status trial_begin(struct eo_cuda_team *team, const struct eo_product_plan *plan, struct trial *trial)
{
    const struct eo_product_layout layout = eo_product_layout_of(&plan->key);
    const uint64_t batch = plan->key.batch, element = eo_dtype_bytes((eo_dtype)plan->key.compute);
    const uint64_t a = 0, b = a + align_up(eo_product_matrix_bytes(&layout.b, batch));
    const uint64_t c = b + align_up(eo_product_matrix_bytes(&layout.a, batch));
    const uint64_t bias = c + align_up(eo_product_matrix_bytes(&layout.d, batch));
    const uint64_t aux = bias + align_up(plan->key.n * element);
    const uint64_t bytes = aux + align_up(plan->key.m * plan->key.aux_stride * element);
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
    trial->c = trial->memory + c;
    CUDA_TRY(team, cudaEventCreate(&trial->begin), "cudaEventCreate");
    CUDA_TRY(team, cudaEventCreate(&trial->end), "cudaEventCreate");
    /* 0x3c3c is 0.01 in bf16, and 0x3c3c3c3c in fp32: ordinary numbers. */
    CUDA_TRY(team, cudaMemsetAsync(trial->memory, 0x3c, bytes, team->stream), "cudaMemsetAsync");
    return EO_OK;
}

static void point_epilogue(struct eo_product_plan *plan, const struct trial *trial)
{
    const struct eo_product_layout layout = eo_product_layout_of(&plan->key);
    const char *bias = (const char *)trial->c + align_up(eo_product_matrix_bytes(&layout.d, plan->key.batch));
    const char *aux = bias + align_up(plan->key.n * eo_dtype_bytes((eo_dtype)plan->key.compute));
    (void)eo_cuda_plan_set_pointers(plan, bias, aux);
}

/* Milliseconds of a run; an algorithm that does not run at all gives none. */
static bool time_plan(struct eo_cuda_team *team, struct eo_product_plan *plan, const struct trial *trial,
                      float *milliseconds)
{
    bool good = eo_cuda_plan_run(team, plan, trial->a, trial->b, trial->c) == CUBLAS_STATUS_SUCCESS; /* loads it */
    good = good && cudaEventRecord(trial->begin, team->stream) == cudaSuccess;
    for (int run = 0; run < TIMED_RUNS && good; run++)
        good = eo_cuda_plan_run(team, plan, trial->a, trial->b, trial->c) == CUBLAS_STATUS_SUCCESS;
    good = good && cudaEventRecord(trial->end, team->stream) == cudaSuccess;
    good = cudaStreamSynchronize(team->stream) == cudaSuccess && good;
    good = good && cudaEventElapsedTime(milliseconds, trial->begin, trial->end) == cudaSuccess;
    *milliseconds /= TIMED_RUNS;
    return good;
}

static void choose_fastest(struct eo_cuda_team *team, struct eo_product_plan *plan, const struct trial *trial,
                           const cublasLtMatmulHeuristicResult_t *results, int count)
{
    float best = 0;
    int chosen = -1;
    point_epilogue(plan, trial);
    for (int i = 0; i < count; i++) {
        float milliseconds = 0;
        plan->algorithm = results[i].algo;
        if (time_plan(team, plan, trial, &milliseconds) && (chosen < 0 || milliseconds < best * WORTH_IT)) {
            best = milliseconds;
            chosen = i;
        }
    }
    plan->algorithm = results[chosen < 0 ? 0 : chosen].algo;
    plan->timed = chosen >= 0;
    const double flops = 2.0 * (double)plan->key.m * (double)plan->key.n * (double)plan->key.k * (double)plan->key.batch;
    if (best > 0)
        eo_layers_log(&team->log, EO_LOG_DEBUG,
                      "cuda: product %llu x %llu x %llu: candidate %d of %d, %.3f ms, %.1f TFLOP/s",
                      (unsigned long long)plan->key.m, (unsigned long long)plan->key.n,
                      (unsigned long long)plan->key.k, chosen, count, (double)best, flops / (double)best * 1e-9);
}

eo_status eo_cuda_plan_choose(struct eo_cuda_team *team, struct eo_product_plan *plan, bool with_timing)
{
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    const int wanted = with_timing ? CANDIDATES : 1;
    int count = 0;
    EO_TRY(candidates_of(team, plan, true, wanted, results, &count));
    if (count == 0 && plan->key.epilogue != EO_EPILOGUE_NONE)
        EO_TRY(candidates_of(team, plan, false, wanted, results, &count));
    if (count == 0) {
        eo_layers_log(&team->log, EO_LOG_ERROR,
                      "cuda: cuBLASLt has no algorithm for the product %llu x %llu x %llu (%s, alignment %llu); choose "
                      "multiples of 8 as widths",
                      (unsigned long long)plan->key.m, (unsigned long long)plan->key.n,
                      (unsigned long long)plan->key.k, eo_dtype_name((eo_dtype)plan->key.compute),
                      (unsigned long long)plan->key.alignment);
        return EO_ERR_UNSUPPORTED;
    }
    plan->algorithm = results[0].algo;
    plan->timed = with_timing && count == 1; /* nothing to compare */
    if (!with_timing || count == 1)
        return EO_OK;
    struct trial trial;
    eo_status status = trial_begin(team, plan, &trial);
    if (status == EO_OK && trial.memory)
        choose_fastest(team, plan, &trial, results, count);
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
