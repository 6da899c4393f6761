/* SPDX-License-Identifier: MIT
 *
 * Muon's matrices and their owners. The iteration needs whole matrices, so each has an owner in the group, which gets it of the
 * ranks' shards and gives the result back. The largest first, each to the rank with the least work so far: the loads of a
 * transformer differ by less than a matrix of it. Equal matrices take turns, so neighbouring layers make up for each other.
 */
#include <stdlib.h>

#include "base/arithmetic.h"
#include "runtime/plan/internal.h"

/* A step has a product with the transposed matrix, one of the smaller square ones, and one of both. */
double eo_plan_matrix_work(const struct plan_parameter *parameter)
{
    const double small = (double)eo_min_u64(parameter->dims[0], parameter->dims[1]);
    const double large = (double)eo_max_u64(parameter->dims[0], parameter->dims[1]);
    return small * small * (2 * large + small);
}

double eo_plan_layer_orthogonal_flops(const struct eo_plan *plan, uint32_t l)
{
    const struct plan_layer *layer = &plan->layers[l];
    double work = 0;
    for (uint32_t p = layer->parameter_begin; p < layer->parameter_begin + layer->parameter_count; p++)
        work += plan->groups[plan->parameters[p].group].matrix ? eo_plan_matrix_work(&plan->parameters[p]) : 0;
    return 2 * EO_MATRIX_STEPS * work;
}

static int by_work(const void *a, const void *b)
{
    const struct plan_parameter *x = *(struct plan_parameter *const *)a, *y = *(struct plan_parameter *const *)b;
    const double more = eo_plan_matrix_work(y) - eo_plan_matrix_work(x);
    if (more != 0)
        return more > 0 ? 1 : -1;
    if (x->dims[0] != y->dims[0]) /* high ones and wide ones take different times: each kind is shared out alone */
        return x->dims[0] > y->dims[0] ? 1 : -1;
    return x < y ? -1 : 1;
}

static double work_in_layer(const struct eo_plan *plan, uint32_t l, uint32_t rank)
{
    const struct plan_layer *layer = &plan->layers[l];
    double work = 0;
    for (uint32_t p = layer->parameter_begin; p < layer->parameter_begin + layer->parameter_count; p++)
        work += plan->parameters[p].owner == rank ? eo_plan_matrix_work(&plan->parameters[p]) : 0;
    return work;
}

/* Of the ranks with the least work, the one that has the least in this layer. */
static uint32_t next_owner(const struct eo_plan *plan, uint32_t l, const double *loads)
{
    const uint32_t ranks = eo_plan_layer_ranks(plan, &plan->layers[l]);
    uint32_t least = 0;
    for (uint32_t r = 1; r < ranks; r++)
        if (loads[r] < loads[least] ||
            (loads[r] == loads[least] && work_in_layer(plan, l, r) < work_in_layer(plan, l, least)))
            least = r;
    return least;
}

eo_status eo_plan_own_matrices(struct eo_plan *plan)
{
    struct plan_parameter **matrices = calloc(plan->parameter_count + 1, sizeof(*matrices));
    double *loads = calloc(plan->params.shard_group, sizeof(*loads));
    uint32_t count = 0;
    for (uint32_t p = 0; matrices && loads && p < plan->parameter_count; p++) {
        struct plan_parameter *parameter = &plan->parameters[p];
        parameter->owner = EO_NONE;
        if (!plan->groups[parameter->group].matrix || plan->layers[parameter->layer].frozen)
            continue;
        plan->layers[parameter->layer].has_matrices = true;
        matrices[count++] = parameter;
    }
    if (count)
        qsort(matrices, count, sizeof(struct plan_parameter *), by_work);
    for (uint32_t i = 0; i < count; i++) {
        matrices[i]->owner = next_owner(plan, matrices[i]->layer, loads);
        loads[matrices[i]->owner] += eo_plan_matrix_work(matrices[i]);
    }
    const eo_status status = matrices && loads ? EO_OK : EO_ERR_NO_MEMORY;
    free(matrices);
    free(loads);
    return status;
}

/* A second matrix to iterate into, and two of the smaller square ones. */
uint64_t eo_plan_orthogonal_bytes(const struct eo_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t p = 0; p < plan->parameter_count; p++) {
        const struct plan_parameter *parameter = &plan->parameters[p];
        const uint64_t small = eo_min_u64(parameter->dims[0], parameter->dims[1]);
        if (parameter->owner != EO_NONE)
            most = eo_max_u64(most, eo_align_up(parameter->element_count, 16) + 2 * eo_align_up(small * small, 16));
    }
    return EO_MATRIX_SUM_BYTES + most * sizeof(float);
}
