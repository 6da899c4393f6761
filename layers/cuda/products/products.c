/* SPDX-License-Identifier: MIT
 *
 * Products by cuBLASLt: fp32 sums for both types, each by the plan of its shape.
 */
#include "layers/cuda/internal.h"
#include "layers/cuda/kernels.h"

enum { FLOAT8_SINCE = 120900 }; /* cuBLASLt's vectors of scales */

/* A plan from the file is taken as it is, if this cuBLASLt still can. */
static bool revive(struct eo_cuda_team *team, struct eo_product_plan *plan)
{
    cublasLtMatmulHeuristicResult_t result;
    if (eo_cuda_plan_describe(team, plan) < 0)
        return false;
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(team->blas, &plan->operation, &plan->a, &plan->b, &plan->d,
                                                          &plan->d, &plan->algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > EO_CUDA_WORKSPACE_BYTES)
        return false;
    plan->state = EO_PLAN_READY;
    return true;
}

static eo_status ready_plan(struct eo_cuda_team *team, const struct eo_product_key *key, bool with_timing,
                            struct eo_product_plan **out)
{
    struct eo_product_plan *plan = eo_cuda_plan_find(team, key);
    if (!plan)
        return EO_ERR_UNSUPPORTED;
    *out = plan;
    if (plan->state == EO_PLAN_READY || (plan->state == EO_PLAN_READ && revive(team, plan)))
        return EO_OK;
    const bool is_new = plan->state == EO_PLAN_NONE;
    EO_TRY(eo_cuda_plan_choose(team, plan, with_timing));
    plan->state = EO_PLAN_READY;
    team->plan_count += is_new;
    team->plans_changed = team->plans_changed || plan->timed;
    return EO_OK;
}

/* *out NULL: the product is none in float8, or its plan is absent. */
static eo_status float8_plan(struct eo_cuda_team *team, const struct eo_multiply *product, bool with_timing,
                             struct eo_product_plan **out)
{
    *out = NULL;
    if (!eo_is_float8_product(product) || !team->is_hopper || cublasLtGetVersion() < FLOAT8_SINCE)
        return EO_OK;
    const struct eo_product_key key = eo_product_key_of_float8(product);
    EO_TRY(ready_plan(team, &key, with_timing, out));
    if ((*out)->is_absent)
        *out = NULL;
    return EO_OK;
}

eo_status eo_cuda_product_prepare(struct eo_cuda_team *team, const struct eo_multiply *product,
                                  const struct eo_cuda_batch *batch)
{
    const struct eo_product_key key = eo_product_key_of(product, batch);
    /* What is fastest may be another algorithm tomorrow, unless a file keeps it. */
    const bool with_timing = !team->repeatable || team->plan_cache;
    struct eo_product_plan *plan;
    EO_TRY(float8_plan(team, product, with_timing, &plan));
    if (plan)
        return EO_OK;
    if (product->float8 && !team->has_told_float8)
        eo_layers_log(&team->log, EO_LOG_WARN, "cuda: products stay bf16 where they cannot be float8, which needs a GPU of "
                      "compute capability 9.0, cuBLASLt 12.9 and sizes in multiples of 16");
    team->has_told_float8 = team->has_told_float8 || product->float8;
    return ready_plan(team, &key, with_timing, &plan);
}

eo_status eo_cuda_product_run(struct eo_cuda_team *team, const struct eo_multiply *product,
                              const struct eo_cuda_batch *batch)
{
    const struct eo_product_key key = eo_product_key_of(product, batch);
    const void *a = product->a.values, *b = product->b.values;
    struct eo_product_plan *plan;
    EO_TRY(float8_plan(team, product, false, &plan));
    if (plan) {
        const struct eo_float8_scratch at = eo_float8_scratch_of(product->m, product->n, product->k);
        const char *scratch = product->scratch;
        CUDA_TRY(team, eo_cuda_float8_rows(product, team->stream), "the operands of a float8 product");
        BLAS_TRY(team, eo_cuda_plan_set_scales(plan, (const float *)(scratch + at.a_scales),
                                               (const float *)(scratch + at.b_scales)), "a product's scales");
        a = scratch + at.a;
        b = scratch + at.b;
    } else {
        EO_TRY(ready_plan(team, &key, false, &plan));
    }
    const void *bias = product->epilogue == EO_EPILOGUE_BIAS_GRADIENT ? product->bias_gradient : product->bias;
    BLAS_TRY(team, eo_cuda_plan_set_pointers(plan, bias, product->aux), "a product's epilogue pointers");
    const void *added = product->residual ? product->residual : product->c;
    BLAS_TRY(team, eo_cuda_plan_run(team, plan, a, b, added, product->c), "cublasLtMatmul");
    if (!plan->fused && product->epilogue != EO_EPILOGUE_NONE)
        CUDA_TRY(team, eo_cuda_epilogue_alone(team, product), "the epilogue of a product");
    return EO_OK;
}
