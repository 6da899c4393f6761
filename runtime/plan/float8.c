/* SPDX-License-Identifier: MIT
 *
 * What travels in a float8 gather. Each rank sends its part of a layer like this, in as many bytes as the largest part takes:
 *
 *     | scales | run | run | ... |        a scale for each float8 parameter of the layer; of those that the rank has
 *                                         nothing of, the places are empty
 *
 * A run is what a rank has of one parameter: float8 with the rank's own scale, or bf16 as it is. Parameters lie on 16
 * elements, shards on more, so runs are aligned for vectors in both forms.
 *
 * Frozen weights with float8_frozen lie like that, and not just for a gather. They have no scales of the rank's own: a run is
 * MXFP8, first the exponents of its blocks, or of the plan's dtype. Parameters and shards begin with blocks, so the blocks are
 * the same for all numbers of ranks.
 */
#include "base/arithmetic.h"
#include "base/check.h"
#include "base/mxfp8.h"
#include "runtime/plan/internal.h"

enum { RUN_ALIGN = 16 };

bool eo_plan_is_float8_frozen(const struct eo_plan *plan, const struct plan_layer *layer)
{
    bool any = false;
    for (uint32_t k = 0; k < layer->parameter_count; k++)
        any = any || plan->parameters[layer->parameter_begin + k].float8_gather;
    return plan->params.float8_frozen && layer->frozen && any;
}

/* Places a run's elements, behind the exponents if it has any; its end. */
static uint64_t place_run(const struct eo_plan *plan, const struct plan_layer *layer, struct plan_float8_run *run)
{
    const bool is_narrow = run->scale != EO_NONE;
    run->element_bytes = run->narrow_bytes;
    if (is_narrow && layer->float8_frozen)
        run->element_bytes += eo_align_up(eo_mxfp8_blocks(run->count), RUN_ALIGN);
    return run->element_bytes + eo_align_up(run->count * eo_dtype_bytes(is_narrow ? EO_DTYPE_FLOAT8 : plan->params.dtype), RUN_ALIGN);
}

uint64_t eo_plan_float8_runs(const struct eo_plan *plan, uint32_t l, uint32_t rank, struct plan_float8_run *out,
                             uint32_t *out_count)
{
    const struct plan_layer *layer = &plan->layers[l];
    const uint64_t begin = layer->layout.shard_count * rank, end = begin + layer->layout.shard_count;
    uint32_t scales = 0, count = 0;
    for (uint32_t k = 0; k < layer->parameter_count && !layer->float8_frozen; k++)
        scales += plan->parameters[layer->parameter_begin + k].float8_gather;
    uint64_t bytes = eo_align_up(scales * sizeof(float), RUN_ALIGN);
    scales = 0;
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &plan->parameters[layer->parameter_begin + k];
        const uint64_t first = eo_max_u64(begin, parameter->offset);
        const uint64_t last = eo_min_u64(end, parameter->offset + parameter->room);
        const uint32_t scale = !parameter->float8_gather ? EO_NONE : layer->float8_frozen ? 0 : scales++;
        if (first >= last)
            continue;
        struct plan_float8_run run = {.parameter = k, .scale = scale, .from = first - parameter->offset, .at = first - begin,
                                      .count = last - first, .narrow_bytes = bytes};
        bytes = place_run(plan, layer, &run);
        if (out)
            out[count] = run;
        count++;
    }
    if (out_count)
        *out_count = count;
    return bytes;
}

eo_status eo_plan_take_float8(struct eo_plan *plan)
{
    bool any = false, any_frozen = false;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        struct plan_layer *layer = &plan->layers[l];
        layer->float8_frozen = layer->float8_gather = eo_plan_is_float8_frozen(plan, layer);
        any_frozen = any_frozen || layer->float8_frozen;
        for (uint32_t k = 0; k < layer->parameter_count; k++)
            layer->float8_gather = layer->float8_gather ||
                                   (plan->params.float8_gather && plan->parameters[layer->parameter_begin + k].float8_gather);
        any = any || layer->float8_gather;
        for (uint32_t r = 0; layer->float8_gather && r < eo_plan_layer_ranks(plan, layer); r++)
            layer->narrow_bytes = eo_max_u64(layer->narrow_bytes, eo_plan_float8_runs(plan, l, r, NULL, NULL));
        layer->narrow_bytes = eo_align_up(layer->narrow_bytes, plan->params.align_bytes);
    }
    EO_REQUIRE(&plan->log, any || !plan->params.float8_gather,
               "float8_gather would have no effect: model '%s' has no parameter with .float8_gather", plan->model_name);
    EO_REQUIRE(&plan->log, any_frozen || !plan->params.float8_frozen,
               "float8_frozen would have no effect: model '%s' has no frozen parameter with .float8_gather", plan->model_name);
    return EO_OK;
}
