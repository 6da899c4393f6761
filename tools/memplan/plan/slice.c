/* SPDX-License-Identifier: MIT */
#include "tools/memplan/plan/slice.h"

#include <stdio.h>

static uint32_t group_of(uint32_t ranks)
{
    return ranks ? ranks : 1;
}

bool tool_slice_is_whole(const struct tool_slice *slice)
{
    return group_of(slice->tensor) * group_of(slice->pipeline) * group_of(slice->context) == 1;
}

uint32_t tool_slice_cuts(const struct tool_slice *slice)
{
    return group_of(slice->tensor) * group_of(slice->pipeline);
}

static uint32_t part_of(uint32_t count, uint32_t ranks)
{
    return (count + ranks - 1) / ranks;
}

void tool_slice_config(struct tool_model_config *out, const struct tool_model_config *config, const struct tool_slice *slice)
{
    const uint32_t t = group_of(slice->tensor);
    *out = *config;
    out->head_count = part_of(config->head_count, t);
    out->kv_head_count = part_of(config->kv_head_count, t); /* few ones are copied */
    out->mlp_width = part_of(config->mlp_width, t);
    out->expert_width = part_of(config->expert_width, t);
    out->shared_width = part_of(config->shared_width, t);
    out->linear.key_heads = part_of(config->linear.key_heads, t);
    out->linear.value_heads = part_of(config->linear.value_heads, t);
    out->vocabulary = part_of(config->vocabulary, t);
    out->tied_head = config->tied_head && group_of(slice->pipeline) == 1; /* a copy, in another stage */
}

void tool_slice_text(const struct tool_slice *slice, char *text, size_t bytes)
{
    char tensor[16] = "", pipeline[32] = "", context[16] = "";
    if (slice->tensor > 1)
        snprintf(tensor, sizeof(tensor), " tp%u", slice->tensor);
    if (slice->pipeline > 1)
        snprintf(pipeline, sizeof(pipeline), " pp%u", slice->pipeline);
    if (slice->context > 1)
        snprintf(context, sizeof(context), " cp%u", slice->context);
    snprintf(text, bytes, "%s%s%s", tensor, context, pipeline);
}

bool tool_slice_has_block(const struct tool_slice *slice, const struct tool_model_config *config, uint32_t block)
{
    return block / (config->layer_count / group_of(slice->pipeline)) == slice->stage || group_of(slice->pipeline) == 1;
}
