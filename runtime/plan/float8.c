/* SPDX-License-Identifier: MIT
 *
 * What travels in a float8 gather. Each rank sends its part of a layer like this, in as many bytes as the largest part takes:
 *
 *     | scales | run | run | ... |        a scale for each float8 parameter of the layer; of those that the rank has
 *                                         nothing of, the places are empty
 *
 * A run is what a rank has of one parameter: float8 with the rank's own scale, or bf16 as it is. Parameters lie on 16
 * elements, shards on more, so runs are aligned for vectors in both forms.
 */
#include "base/arithmetic.h"
#include "base/check.h"
#include "runtime/plan/internal.h"

enum { RUN_ALIGN = 16 };

uint64_t eo_plan_float8_runs(const struct eo_plan *plan, uint32_t l, uint32_t rank, struct plan_float8_run *out,
                             uint32_t *out_count)
{
    const struct plan_layer *layer = &plan->layers[l];
    const uint64_t begin = layer->layout.shard_count * rank, end = begin + layer->layout.shard_count;
    uint32_t scales = 0, count = 0;
    for (uint32_t k = 0; k < layer->parameter_count; k++)
        scales += plan->parameters[layer->parameter_begin + k].float8_gather;
    uint64_t bytes = eo_align_up(scales * sizeof(float), RUN_ALIGN);
    scales = 0;
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &plan->parameters[layer->parameter_begin + k];
        const uint64_t first = eo_max_u64(begin, parameter->offset);
        const uint64_t last = eo_min_u64(end, parameter->offset + parameter->room);
        const uint32_t scale = parameter->float8_gather ? scales++ : EO_NONE;
        if (first >= last)
            continue;
        if (out)
            out[count] = (struct plan_float8_run){.parameter = k, .scale = scale, .from = first - parameter->offset,
                                                  .at = first - begin, .count = last - first, .narrow_bytes = bytes};
        count++;
        bytes += eo_align_up((last - first) * eo_dtype_bytes(scale == EO_NONE ? EO_DTYPE_BF16 : EO_DTYPE_FLOAT8), RUN_ALIGN);
    }
    if (out_count)
        *out_count = count;
    return bytes;
}

eo_status eo_plan_take_float8(struct eo_plan *plan)
{
    bool any = false;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        struct plan_layer *layer = &plan->layers[l];
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
    return EO_OK;
}
