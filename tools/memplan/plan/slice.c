/* SPDX-License-Identifier: MIT */
#include "tools/memplan/plan/slice.h"

#include <stdio.h>

static uint32_t group_of(uint32_t ranks)
{
    return ranks ? ranks : 1;
}

bool tool_slice_is_whole(const struct tool_slice *slice)
{
    return (uint64_t)group_of(slice->tensor) * group_of(slice->pipeline) * group_of(slice->context) * group_of(slice->expert) *
               group_of(slice->expert_tensor) ==
           1;
}

uint64_t tool_slice_cuts(const struct tool_slice *slice)
{
    return (uint64_t)group_of(slice->tensor) * group_of(slice->pipeline);
}

uint32_t tool_slice_chunks(const struct tool_slice *slice)
{
    return group_of(slice->virtual_stages);
}

uint32_t tool_slice_expert_parts(const struct tool_slice *slice)
{
    const uint32_t each = slice->expert_tensor ? slice->expert_tensor : group_of(slice->tensor);
    const uint32_t parts = each * group_of(slice->expert);
    return parts % group_of(slice->tensor) ? 0 : parts / group_of(slice->tensor);
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
    out->expert_width = part_of(config->expert_width, slice->expert_tensor ? slice->expert_tensor : t);
    out->shared_width = part_of(config->shared_width, t);
    out->linear.key_heads = part_of(config->linear.key_heads, t);
    out->linear.value_heads = part_of(config->linear.value_heads, t);
    out->vocabulary = part_of(config->vocabulary, t);
    out->tied_head = config->tied_head && group_of(slice->pipeline) == 1; /* a copy, in another stage */
}

void tool_slice_text(const struct tool_slice *slice, char *text, size_t bytes)
{
    char tensor[16] = "", pipeline[32] = "", context[16] = "", expert[32] = "", chunks[16] = "";
    if (slice->tensor > 1)
        snprintf(tensor, sizeof(tensor), " tp%u", slice->tensor);
    if (slice->pipeline > 1)
        snprintf(pipeline, sizeof(pipeline), " pp%u", slice->pipeline);
    if (slice->context > 1)
        snprintf(context, sizeof(context), " cp%u", slice->context);
    if (slice->expert > 1)
        snprintf(expert, sizeof(expert), " ep%u", slice->expert);
    if (tool_slice_chunks(slice) > 1)
        snprintf(chunks, sizeof(chunks), " v%u", slice->virtual_stages);
    snprintf(text, bytes, "%s%s%s%s%s", tensor, context, expert, pipeline, chunks);
}

uint32_t tool_slice_chunk_blocks(const struct tool_slice *slice, const struct tool_model_config *config)
{
    return config->layer_count / (group_of(slice->pipeline) * tool_slice_chunks(slice));
}

/* The schedule, forward by forward: micro-batches go through a chunk in groups of as many as there are stages. */
uint32_t tool_slice_in_flight(const struct tool_slice *slice, uint32_t chunk)
{
    const uint32_t p = group_of(slice->pipeline), v = tool_slice_chunks(slice), m = group_of(slice->micro_batches);
    const uint32_t before = p - slice->stage - 1, all = m * v, first = v == 1 ? before : 2 * before + (v - 1) * p;
    uint32_t held = 0, total = 0, most = 0, then = 0;
    for (uint32_t i = 0; i < all; i++) {
        held += i % (p * v) / p == chunk;
        if (++total > most) {
            most = total;
            then = held;
        }
        if (i < first)
            continue;
        held -= v - 1 - (i - first) % (p * v) / p == chunk;
        total--;
    }
    return then;
}

bool tool_slice_has_block(const struct tool_slice *slice, const struct tool_model_config *config, uint32_t block)
{
    return group_of(slice->pipeline) == 1 ||
           block / tool_slice_chunk_blocks(slice, config) % slice->pipeline == slice->stage;
}
