/* SPDX-License-Identifier: MIT
 *
 * Products by cuBLASLt: fp32 sums for both types, each by the plan of its shape.
 */
#include "layers/cuda/internal.h"
#include "layers/cuda/kernels.h"

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

eo_status eo_cuda_product_prepare(struct eo_cuda_team *team, const struct eo_multiply *product,
                                  const struct eo_cuda_batch *batch)
{
    const struct eo_product_key key = eo_product_key_of(product, batch);
    struct eo_product_plan *plan;
    /* What is fastest may be another algorithm tomorrow, unless a file keeps it. */
    return ready_plan(team, &key, !team->repeatable || team->plan_cache, &plan);
}

cudaError_t eo_cuda_epilogue_alone(struct eo_cuda_team *team, const struct eo_multiply *p)
{
    if (p->epilogue != EO_EPILOGUE_BIAS_GRADIENT)
        return eo_cuda_epilogue(p, team->stream);
    return eo_cuda_column_sums(&(struct eo_column_sums){
        .types = p->types, .bias_gradient = p->bias_gradient, .gradient = p->a.values, .stride = p->a.stride, .rows = p->k,
        .width = p->m, .scratch = p->scratch}, team->stream);
}

eo_status eo_cuda_product_run(struct eo_cuda_team *team, const struct eo_multiply *product,
                              const struct eo_cuda_batch *batch)
{
    const struct eo_product_key key = eo_product_key_of(product, batch);
    struct eo_product_plan *plan;
    EO_TRY(ready_plan(team, &key, false, &plan));
    const void *bias = product->epilogue == EO_EPILOGUE_BIAS_GRADIENT ? product->bias_gradient : product->bias;
    BLAS_TRY(team, eo_cuda_plan_set_pointers(plan, bias, product->aux), "a product's epilogue pointers");
    const void *added = product->residual ? product->residual : product->c;
    BLAS_TRY(team, eo_cuda_plan_run(team, plan, product->a.values, product->b.values, added, product->c), "cublasLtMatmul");
    if (!plan->fused && product->epilogue != EO_EPILOGUE_NONE)
        CUDA_TRY(team, eo_cuda_epilogue_alone(team, product), "the epilogue of a product");
    return EO_OK;
}
