/* SPDX-License-Identifier: MIT
 *
 * What the optimizer updates of a rank's shard: runs of one group, and where they lie in the arrays of state.
 */
#include <stdlib.h>

#include "base/arithmetic.h"
#include "runtime/plan/internal.h"
#include "runtime/plan/optimizers.h"

enum { SECOND_ALIGN = 16 }; /* elements */

bool eo_plan_is_sparse(const struct plan_layer *layer, uint32_t state)
{
    return layer->has_matrices && state == 1;
}

/* Elements of the flat layer up to which a parameter has the padding behind it. */
static uint64_t end_with_padding(const struct eo_plan *plan, const struct plan_layer *layer, uint32_t k)
{
    return k + 1 == layer->parameter_count ? layer->layout.padded_count : plan->parameters[layer->parameter_begin + k + 1].offset;
}

/* One behind the other, each at its own place in a line of memory: so vectors are aligned as in the other arrays. */
static void place_in_second(const struct eo_plan *plan, const struct plan_layer *layer, struct shard_range *ranges, uint32_t count)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < count; i++) {
        ranges[i].second = ranges[i].offset;
        if (!layer->has_matrices || plan->groups[ranges[i].group].matrix)
            continue;
        ranges[i].second = end + (ranges[i].offset - end) % SECOND_ALIGN;
        end = ranges[i].second + ranges[i].count;
    }
}

uint32_t eo_plan_shard_ranges(const struct eo_plan *plan, uint32_t l, uint32_t rank, struct shard_range *out)
{
    const struct plan_layer *layer = &plan->layers[l];
    const uint64_t begin = layer->layout.shard_count * rank, end = begin + layer->layout.shard_count;
    /* Frozen layers have no state, and are not padded to its blocks. */
    const uint32_t block = layer->frozen ? 1 : eo_plan_optimizer(plan->params.optimizer)->block_elements;
    uint32_t count = 0;
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &plan->parameters[layer->parameter_begin + k];
        const uint64_t first = eo_max_u64(parameter->offset, begin), stop = eo_min_u64(end_with_padding(plan, layer, k), end);
        const struct shard_range range = {.offset = first - begin, .count = stop - first, .group = parameter->group};
        if (first >= stop)
            continue;
        if (parameter->fp32 && parameter->offset >= begin) { /* else its end alone reaches into this shard: padding */
            out[count] = range;
            out[count++].count = eo_align_up(parameter->element_count, block);
        } else if (parameter->fp32) {
            continue;
        } else if (count && parameter->group == out[count - 1].group) {
            out[count - 1].count += stop - first;
        } else {
            out[count++] = range;
        }
    }
    place_in_second(plan, layer, out, count);
    return count;
}

/* Rows are as large on all ranks: as that of the rank with most. None is empty. */
eo_status eo_plan_second_count(const struct eo_plan *plan, uint32_t l, uint64_t *out)
{
    const struct plan_layer *layer = &plan->layers[l];
    const uint64_t shard = layer->layout.shard_count;
    struct shard_range *ranges = calloc(layer->parameter_count + 1, sizeof(*ranges));
    *out = SECOND_ALIGN;
    for (uint32_t k = 0; ranges && k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &plan->parameters[layer->parameter_begin + k];
        if (plan->groups[parameter->group].matrix)
            continue;
        for (uint64_t r = parameter->offset / shard; r * shard < end_with_padding(plan, layer, k); r++) {
            const uint32_t count = eo_plan_shard_ranges(plan, l, (uint32_t)r, ranges);
            for (uint32_t i = 0; i < count; i++)
                if (!plan->groups[ranges[i].group].matrix)
                    *out = eo_max_u64(*out, ranges[i].second + ranges[i].count);
        }
    }
    const eo_status status = ranges ? EO_OK : EO_ERR_NO_MEMORY;
    free(ranges);
    return status;
}
