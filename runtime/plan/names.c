/* SPDX-License-Identifier: MIT
 *
 * The names of things in a plan.
 */
#include <stdio.h>

#include "runtime/plan/internal.h"

const char *eo_category_name(eo_category category)
{
    static const char *const names[EO_CATEGORY_COUNT] = {
        [EO_CATEGORY_MASTER] = "master weights",
        [EO_CATEGORY_COMPUTE_SHARD] = "compute shards",
        [EO_CATEGORY_GRADIENT] = "gradient shards",
        [EO_CATEGORY_OPTIMIZER] = "optimizer state",
        [EO_CATEGORY_GATHER_BUFFER] = "gather buffers",
        [EO_CATEGORY_GRADIENT_BUFFER] = "gradient buffers",
        [EO_CATEGORY_ACTIVATION] = "activations",
        [EO_CATEGORY_SCRATCH] = "recompute and scratch",
        [EO_CATEGORY_HEAD] = "head",
        [EO_CATEGORY_OTHER] = "other",
    };
    return (unsigned)category < EO_CATEGORY_COUNT ? names[category] : "unknown";
}

const char *eo_operation_kind_name(eo_operation_kind kind)
{
    static const char *const names[EO_OP_KIND_COUNT] = {
        [EO_OP_ALL_GATHER] = "all-gather",
        [EO_OP_FORWARD] = "forward",
        [EO_OP_RECOMPUTE] = "recompute",
        [EO_OP_BACKWARD] = "backward",
        [EO_OP_REDUCE_SCATTER] = "reduce-scatter",
        [EO_OP_ALL_REDUCE] = "all-reduce",
        [EO_OP_ACCUMULATE] = "accumulate",
        [EO_OP_NORM_PARTIAL] = "norm partial",
        [EO_OP_NORM_LOCAL] = "local norm",
        [EO_OP_NORM_GATHER] = "all-gather of norms",
        [EO_OP_NORM_SUM] = "norm",
        [EO_OP_UPDATE] = "update",
        [EO_OP_FETCH] = "fetch",
        [EO_OP_EVICT] = "eviction",
        [EO_OP_NARROW] = "narrow",
        [EO_OP_WIDEN] = "widen",
        [EO_OP_DIRECTION] = "direction",
        [EO_OP_MATRIX_GATHER] = "gather of matrices",
        [EO_OP_ORTHOGONALIZE] = "orthogonalization",
        [EO_OP_MATRIX_SCATTER] = "scatter of matrices",
        [EO_OP_COPY_OUT] = "copy out",
        [EO_OP_COPY_IN] = "copy in",
    };
    return (unsigned)kind < EO_OP_KIND_COUNT ? names[kind] : "unknown";
}

void eo_plan_operation_text(const struct eo_plan *plan, const struct eo_operation *operation, char *text, size_t bytes)
{
    const bool saved = operation->position != EO_NONE; /* of fetches and evictions; layers have no position */
    const char *kind = operation->gradient ? "eviction of gradient"
                       : saved && operation->kind == EO_OP_FETCH ? "fetch of activations"
                       : saved && operation->kind == EO_OP_EVICT ? "eviction of activations"
                       : operation->fence ? "fence after the norms" : eo_operation_kind_name(operation->kind);
    const char *what = operation->position != EO_NONE ? plan->positions[operation->position].name
                       : operation->layer != EO_NONE  ? plan->layers[operation->layer].name
                                                      : NULL;
    int used = what ? snprintf(text, bytes, "%s of %s", kind, what) : snprintf(text, bytes, "%s", kind);
    if (operation->more && used > 0 && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, " to %s",
                         plan->positions[eo_operation_position(operation, operation->more)].name);
    if (operation->micro_batch != EO_NONE && plan->params.micro_batches > 1 && used > 0 && (size_t)used < bytes)
        snprintf(text + used, bytes - (size_t)used, " (micro-batch %u)", operation->micro_batch);
}
