/* SPDX-License-Identifier: MIT
 *
 * A plan of a product: its place in the team's table, keyed by shape; its description for cuBLASLt; its run.
 */
#include <stdlib.h>
#include <string.h>

#include "layers/cuda/internal.h"
#include "layers/cuda/kernels.h"

eo_status eo_cuda_check_blas(const struct eo_cuda_team *team, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return EO_OK;
    eo_cuda_tell(team, "cuda", what, cublasLtGetStatusName(status));
    return status == CUBLAS_STATUS_ALLOC_FAILED ? EO_ERR_NO_MEMORY : EO_ERR_DEVICE;
}

static cudaDataType_t data_type(eo_dtype dtype)
{
    return dtype == EO_DTYPE_FLOAT8 ? CUDA_R_8F_E4M3 : dtype == EO_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static struct eo_product_plan *place_of(struct eo_product_plan *plans, const struct eo_product_key *key)
{
    uint32_t place = (uint32_t)eo_product_key_hash(key) % EO_CUDA_PLANS_MAX;
    while (plans[place].state != EO_PLAN_NONE && memcmp(&plans[place].key, key, sizeof(*key)) != 0)
        place = (place + 1) % EO_CUDA_PLANS_MAX;
    return &plans[place];
}

/* Who asks for one token more each time has a new shape each time: those plans make room. Never in a training's steps. */
static bool forget_untimed(struct eo_cuda_team *team)
{
    struct eo_product_plan *kept = calloc(EO_CUDA_PLANS_MAX, sizeof(*kept));
    if (!kept)
        return false;
    team->plan_count = 0;
    for (uint32_t i = 0; i < EO_CUDA_PLANS_MAX; i++)
        if (team->plans[i].timed) {
            *place_of(kept, &team->plans[i].key) = team->plans[i];
            team->plan_count++;
        }
    free(team->plans);
    team->plans = kept;
    return team->plan_count < EO_CUDA_PLANS_FULL;
}

struct eo_product_plan *eo_cuda_plan_find(struct eo_cuda_team *team, const struct eo_product_key *key)
{
    struct eo_product_plan *plan = place_of(team->plans, key);
    if (plan->state != EO_PLAN_NONE)
        return plan;
    if (team->plan_count >= EO_CUDA_PLANS_FULL) {
        if (!forget_untimed(team)) {
            eo_layers_log(&team->log, EO_LOG_ERROR, "cuda: more than %d shapes of products", EO_CUDA_PLANS_FULL);
            return NULL;
        }
        plan = place_of(team->plans, key);
    }
    plan->key = *key;
    return plan;
}

static eo_status describe_matrix(struct eo_cuda_team *team, cublasLtMatrixLayoutOpaque_t *out,
                                 const struct eo_product_matrix *matrix, uint64_t batch)
{
    BLAS_TRY(team,
             cublasLtMatrixLayoutInit(out, data_type(matrix->dtype), matrix->rows, matrix->columns,
                                      (int64_t)matrix->leading),
             "cublasLtMatrixLayoutInit");
    if (batch == 1)
        return EO_OK;
    const int32_t count = (int32_t)batch;
    const int64_t step = (int64_t)matrix->step;
    BLAS_TRY(team, cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
             "a product's batch count");
    BLAS_TRY(team,
             cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step)),
             "a product's batch step");
    return EO_OK;
}

static cublasStatus_t set(cublasLtMatmulDescOpaque_t *operation, cublasLtMatmulDescAttributes_t attribute,
                          const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(operation, attribute, value, bytes);
}

cublasStatus_t eo_cuda_plan_set_pointers(struct eo_product_plan *plan, const void *bias, const void *aux)
{
    const enum eo_epilogue epilogue = plan->fused ? (enum eo_epilogue)plan->key.epilogue : EO_EPILOGUE_NONE;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (epilogue == EO_EPILOGUE_BIAS || epilogue == EO_EPILOGUE_BIAS_GRADIENT)
        status = set(&plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
    if (status == CUBLAS_STATUS_SUCCESS && epilogue == EO_EPILOGUE_GELU_GRADIENT)
        status = set(&plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof(aux));
    return status;
}

/* Our B is cuBLASLt's A. */
cublasStatus_t eo_cuda_plan_set_scales(struct eo_product_plan *plan, const float *a_scales, const float *b_scales)
{
    const cublasStatus_t status = set(&plan->operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b_scales, sizeof(b_scales));
    return status != CUBLAS_STATUS_SUCCESS
               ? status
               : set(&plan->operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a_scales, sizeof(a_scales));
}

/* Vectors of scales: cuBLASLt 12.9 has them, on Hopper; older headers lack the name. */
static eo_status describe_scales(struct eo_cuda_team *team, struct eo_product_plan *plan)
{
    const int32_t outer_vectors = 3; /* CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F */
    const float *aligned = (const float *)(uintptr_t)256;
    if (plan->key.compute != EO_DTYPE_FLOAT8)
        return EO_OK;
    BLAS_TRY(team, set(&plan->operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &outer_vectors, sizeof(outer_vectors)),
             "a product's scales");
    BLAS_TRY(team, set(&plan->operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &outer_vectors, sizeof(outer_vectors)),
             "a product's scales");
    BLAS_TRY(team, eo_cuda_plan_set_scales(plan, aligned, aligned), "a product's scales");
    return EO_OK;
}

static eo_status describe_epilogue(struct eo_cuda_team *team, struct eo_product_plan *plan)
{
    static const cublasLtEpilogue_t epilogues[] = {
        [EO_EPILOGUE_NONE] = CUBLASLT_EPILOGUE_DEFAULT,
        [EO_EPILOGUE_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [EO_EPILOGUE_GELU_GRADIENT] = CUBLASLT_EPILOGUE_DGELU,
        [EO_EPILOGUE_BIAS_GRADIENT] = CUBLASLT_EPILOGUE_BGRADB, /* of its B, which is our A; in the type of the result */
    };
    const enum eo_epilogue epilogue = plan->fused ? (enum eo_epilogue)plan->key.epilogue : EO_EPILOGUE_NONE;
    BLAS_TRY(team,
             set(&plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogues[epilogue], sizeof(epilogues[epilogue])),
             "a product's epilogue");
    if (epilogue == EO_EPILOGUE_NONE)
        return EO_OK;
    if (plan->key.aux_stride != 0) {
        const int64_t stride = (int64_t)plan->key.aux_stride;
        BLAS_TRY(team, set(&plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &stride, sizeof(stride)),
                 "a product's auxiliary stride");
    }
    /* The heuristics read the alignment from the pointer. */
    const void *aligned = (const void *)(uintptr_t)plan->key.alignment;
    BLAS_TRY(team, eo_cuda_plan_set_pointers(plan, aligned, aligned), "a product's epilogue pointers");
    return EO_OK;
}

eo_status eo_cuda_plan_describe(struct eo_cuda_team *team, struct eo_product_plan *plan)
{
    const struct eo_product_layout layout = eo_product_layout_of(&plan->key);
    const cublasOperation_t a_op = layout.a.transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b_op = layout.b.transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    BLAS_TRY(team, cublasLtMatmulDescInit(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
    BLAS_TRY(team, set(&plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &a_op, sizeof(a_op)), "a product's operation");
    BLAS_TRY(team, set(&plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &b_op, sizeof(b_op)), "a product's operation");
    EO_TRY(describe_matrix(team, &plan->a, &layout.a, plan->key.batch));
    EO_TRY(describe_matrix(team, &plan->b, &layout.b, plan->key.batch));
    EO_TRY(describe_matrix(team, &plan->d, &layout.d, plan->key.batch));
    EO_TRY(describe_scales(team, plan));
    return describe_epilogue(team, plan);
}

/* Our B is cuBLASLt's A: see shape.h. */
cublasStatus_t eo_cuda_plan_run(struct eo_cuda_team *team, struct eo_product_plan *plan, const void *a, const void *b,
                                const void *added, void *c)
{
    const float one = 1, beta = plan->key.accumulate ? 1 : 0;
    return cublasLtMatmul(team->blas, &plan->operation, &one, b, &plan->a, a, &plan->b, &beta, added,
                          &plan->d, c, &plan->d, &plan->algorithm, team->workspace, EO_CUDA_WORKSPACE_BYTES, team->stream);
}

cudaError_t eo_cuda_epilogue_alone(struct eo_cuda_team *team, const struct eo_multiply *p)
{
    if (p->epilogue != EO_EPILOGUE_BIAS_GRADIENT)
        return eo_cuda_epilogue(p, team->stream);
    return eo_cuda_column_sums(&(struct eo_column_sums){
        .types = p->types, .bias_gradient = p->bias_gradient, .gradient = p->a.values, .stride = p->a.stride, .rows = p->k,
        .width = p->m, .scratch = p->scratch}, team->stream);
}
