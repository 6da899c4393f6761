/* SPDX-License-Identifier: MIT */
#include "tools/memplan/plan/parts.h"

#include <string.h>

const char *tool_part_name(enum tool_part part)
{
    static const char *const names[TOOL_PART_COUNT] = {"activations", "optimizer", "weights", "gradients", "buffers",
                                                       "scratch", "head", "other", "gaps", "outside"};
    return (unsigned)part < TOOL_PART_COUNT ? names[part] : "unknown";
}

const char *tool_part_explanation(enum tool_part part)
{
    static const char *const texts[TOOL_PART_COUNT] = {
        [TOOL_PART_ACTIVATIONS] = "kept from forward to backward",
        [TOOL_PART_OPTIMIZER] = "the optimizer's arrays, and --ema's",
        [TOOL_PART_WEIGHTS] = "the rank's, master and of compute",
        [TOOL_PART_GRADIENTS] = "of the rank's weights, or whole",
        [TOOL_PART_BUFFERS] = "full weights, gradients of layers",
        [TOOL_PART_SCRATCH] = "recomputed tensors, kernels' own",
        [TOOL_PART_HEAD] = "logits, and what belongs to them",
        [TOOL_PART_OTHER] = "inputs, partial sums",
        [TOOL_PART_GAPS] = "the arena above its lower bound",
        [TOOL_PART_OUTSIDE] = "context, NCCL, libraries: published",
    };
    return (unsigned)part < TOOL_PART_COUNT ? texts[part] : "";
}

/* Full weights that stay lie in gather buffers: they are weights. */
static uint64_t resident_weights(const struct tool_memplan *m)
{
    const uint64_t align = m->summary.params.align_bytes;
    uint64_t sum = 0;
    for (uint32_t r = 0; r < m->summary.row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(m->plan, r, &row) >= 0 && row.always_live && row.category == EO_CATEGORY_GATHER_BUFFER)
            sum += (row.bytes + align - 1) / align * align;
    }
    return sum;
}

void tool_parts_of(const struct tool_memplan *m, uint64_t bytes[TOOL_PART_COUNT])
{
    static const enum tool_part parts[EO_CATEGORY_COUNT] = {
        [EO_CATEGORY_MASTER] = TOOL_PART_WEIGHTS,         [EO_CATEGORY_COMPUTE_SHARD] = TOOL_PART_WEIGHTS,
        [EO_CATEGORY_GRADIENT] = TOOL_PART_GRADIENTS,     [EO_CATEGORY_OPTIMIZER] = TOOL_PART_OPTIMIZER,
        [EO_CATEGORY_GATHER_BUFFER] = TOOL_PART_BUFFERS,  [EO_CATEGORY_GRADIENT_BUFFER] = TOOL_PART_BUFFERS,
        [EO_CATEGORY_ACTIVATION] = TOOL_PART_ACTIVATIONS, [EO_CATEGORY_SCRATCH] = TOOL_PART_SCRATCH,
        [EO_CATEGORY_HEAD] = TOOL_PART_HEAD,              [EO_CATEGORY_OTHER] = TOOL_PART_OTHER};
    const eo_plan_summary *s = &m->summary;
    const uint64_t resident = resident_weights(m);
    memset(bytes, 0, TOOL_PART_COUNT * sizeof(bytes[0]));
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        bytes[parts[c]] += s->category_bytes_at_peak[c];
    bytes[TOOL_PART_WEIGHTS] += resident;
    bytes[TOOL_PART_BUFFERS] -= resident;
    if (m->settings.on_gpu) /* pinned memory of the host, always live */
        bytes[TOOL_PART_OTHER] -= s->space_bytes[EO_SPACE_HOST];
    bytes[TOOL_PART_GAPS] = s->arena_bytes - s->lower_bound_bytes;
    bytes[TOOL_PART_OUTSIDE] = m->outside_bytes;
}
