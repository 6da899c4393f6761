/* SPDX-License-Identifier: MIT */
#include "tools/memplan/time/plan_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct tool_walk_rules tool_walk_rules = {
    .network_share = 0.41, .slowdown = 0.275, .collective_seconds = 8.5e-4, .step_seconds = 0.072};

enum { NORM_BYTES = 4, NARROW_BYTES = 5 }; /* of an element */

struct clock {
    const struct tool_memplan *memplan;
    const struct tool_device_rates *rates;
    const struct tool_walk_rules *rules;
    struct tool_pass_seconds pass;
    uint32_t group, replicas, stride, node;
    uint32_t block_count; /* of the model */
    bool experts_apart;
    double again_bytes; /* of a block: what a cheap recompute writes */
};

/* The rows of those tensors, over the blocks that have some. */
static double again_bytes_of(const struct tool_memplan *memplan)
{
    static const char suffix[] = ".again";
    const eo_model *model = tool_memplan_model(memplan);
    double bytes = 0;
    uint32_t blocks = 0;
    eo_plan_row row;
    for (uint32_t r = 0; r < memplan->summary.row_count && eo_plan_get_row(memplan->plan, r, &row) >= 0; r++) {
        const size_t length = strlen(row.name);
        if (length > strlen(suffix) && strcmp(row.name + length - strlen(suffix), suffix) == 0)
            bytes += (double)row.bytes;
    }
    for (uint32_t p = 0; p < eo_model_position_count(model); p++) {
        const char *name = eo_model_position_name(model, p);
        blocks += name && strncmp(name, "block.", 6) == 0;
    }
    return blocks ? bytes / blocks : 0;
}

/* Of a position "block.3", "block.3.mlp", "block.4-7" or "block.3.experts". */
static bool block_of(const struct clock *c, uint32_t position, uint32_t *block, const char **part)
{
    const char *name = eo_model_position_name(tool_memplan_model(c->memplan), position);
    *part = name && sscanf(name, "block.%u", block) == 1 ? strchr(name + strlen("block."), '.') : NULL;
    return name && strncmp(name, "block.", 6) == 0;
}

static double pass_seconds(const struct clock *c, const eo_plan_operation *o)
{
    const struct tool_plan_settings *s = &c->memplan->settings.plan;
    const uint32_t unit = s->unit_blocks > 1 ? s->unit_blocks : 1;
    const char *part;
    uint32_t block;
    if (!block_of(c, o->position, &block, &part)) /* looking up words is nothing, and the head does all in its backward pass */
        return o->kind == EO_OP_BACKWARD && o->position > 0 ? c->pass.head : 0;
    const bool is_experts = part && strcmp(part, ".experts") == 0;
    double blocks = s->half_blocks ? 0.5 : fmin(unit, (double)c->block_count - block);
    if (c->experts_apart)
        blocks = is_experts ? c->pass.expert_share : blocks * (1 - c->pass.expert_share);
    if (o->kind == EO_OP_FORWARD)
        return c->pass.forward * blocks;
    if (o->kind == EO_OP_BACKWARD)
        return c->pass.backward * blocks;
    if (s->recompute == EO_RECOMPUTE_BLOCKS && block < s->recompute_blocks)
        return c->pass.forward * fmin(blocks, (double)s->recompute_blocks - block);
    /* Read about as much, and written. */
    return s->recompute == EO_RECOMPUTE_CHEAP ? 2 * c->again_bytes / c->rates->memory_bytes : 0;
}

/* Bytes of the full buffer, of which a rank has a part. */
static double collective_seconds(const struct clock *c, uint64_t bytes, uint32_t ranks, uint32_t stride)
{
    if (ranks < 2)
        return 0;
    const double speed = tool_group_bytes(c->rates, ranks, stride, c->node, c->rules->network_share);
    return (double)bytes * (ranks - 1.0) / ranks / speed + c->rules->collective_seconds * log2(ranks) / 6;
}

static double operation_seconds(const struct clock *c, const eo_plan_operation *o)
{
    const double memory = c->rates->memory_bytes;
    eo_shard_range shard = {0};
    if (o->layer != UINT32_MAX && eo_plan_shard_range(c->memplan->plan, o->layer, 0, &shard) < 0)
        return 0;
    const double elements = (double)shard.count;
    switch ((int)o->kind) {
    case EO_OP_FORWARD:
    case EO_OP_RECOMPUTE:
    case EO_OP_BACKWARD: return pass_seconds(c, o);
    case EO_OP_ALL_GATHER:
    case EO_OP_REDUCE_SCATTER:
    case EO_OP_MATRIX_GATHER:
    case EO_OP_MATRIX_SCATTER: /* parts of a group are ranks beside each other */
        return collective_seconds(c, o->bytes, shard.ranks, c->stride * (c->group / shard.ranks));
    case EO_OP_ALL_REDUCE: /* of a shard among replicas, or of a layer that every rank has whole */
        return 2 * collective_seconds(c, o->bytes, c->replicas, c->stride * c->group);
    case EO_OP_ACCUMULATE:
        return 3 * (double)o->bytes / memory; /* two are read, one is written */
    case EO_OP_NORM_PARTIAL: return NORM_BYTES * elements / memory;
    case EO_OP_NARROW: return NARROW_BYTES * elements / memory;
    case EO_OP_WIDEN: return (1 + eo_dtype_bytes(c->memplan->summary.params.dtype)) * elements * shard.ranks / memory;
    case EO_OP_DIRECTION: return TOOL_DIRECTION_BYTES * elements / memory;
    case EO_OP_ORTHOGONALIZE: /* as long as a rank's equal part: owners have equal work in a step, not in a layer */
        return o->flops / shard.ranks / (c->rates->fp32_flops * c->rates->product_share) +
               TOOL_ORTHOGONALIZE_BYTES * elements / memory;
    case EO_OP_UPDATE:
        return tool_update_bytes(&c->memplan->settings.plan) * elements / memory;
    case EO_OP_FETCH:
    case EO_OP_EVICT: return (double)o->bytes / c->rates->host_bytes;
    default: return 0;
    }
}

static const char *bound_of(double compute, double exposed, const struct tool_pass_seconds *pass)
{
    const double memory = pass->memory_share * compute;
    return exposed > compute - memory && exposed > memory ? "communication" : memory > compute - memory ? "memory" : "products";
}

/* Sums by stream of the compute, and the walk. */
static eo_status run_clock(const struct clock *c, double *compute, double *seconds)
{
    const uint32_t count = eo_plan_operation_count(c->memplan->plan, EO_LIST_STEADY);
    double *durations = calloc(count + 1, sizeof(*durations));
    eo_status status = durations ? EO_OK : EO_ERR_NO_MEMORY;
    *compute = *seconds = 0;
    for (uint32_t i = 0; i < count && status >= 0; i++) {
        eo_plan_operation o;
        status = eo_plan_get_operation(c->memplan->plan, EO_LIST_STEADY, i, &o);
        if (status < 0)
            break;
        durations[i] = operation_seconds(c, &o);
        *compute += o.stream == EO_STREAM_COMPUTE ? durations[i] : 0;
    }
    if (status >= 0)
        status = tool_walk_list(c->memplan->plan, durations, c->rules->slowdown, seconds);
    free(durations);
    return status;
}

static double longer(double few, double more, double steps)
{
    return more + (more - few) * steps;
}

struct tool_step_time tool_step_longer(const struct tool_step_time *few, uint32_t few_count, const struct tool_step_time *more,
                                       uint32_t more_count, uint32_t count)
{
    const double steps = ((double)count - more_count) / (more_count - few_count);
    const double tokens = more->tokens_per_second * more->seconds / more_count, useful = more->mfu * more->seconds / more_count;
    struct tool_step_time t = *more;
    t.compute_seconds = longer(few->compute_seconds, more->compute_seconds, steps);
    t.seconds = fmax(longer(few->seconds, more->seconds, steps), t.compute_seconds + t.bubble_seconds + t.rest_seconds);
    t.exposed_seconds = fmax(0, t.seconds - t.compute_seconds - t.bubble_seconds - t.rest_seconds);
    t.tokens_per_second = tokens * count / t.seconds;
    t.mfu = useful * count / t.seconds;
    return t;
}

eo_status tool_plan_step_time(struct tool_step_time *out, const struct tool_memplan *memplan, const struct tool_shape *shape,
                              const struct tool_system_settings *settings, const struct tool_device_rates *rates,
                              const struct tool_walk_rules *rules)
{
    const struct tool_layout *l = &settings->layout;
    const uint32_t ranks = memplan->summary.params.rank_count, group = memplan->summary.params.shard_group;
    const struct clock c = {.memplan = memplan,
                            .rates = rates,
                            .rules = rules,
                            .pass = tool_pass_seconds(shape, settings, rates, memplan->settings.gpus_per_node),
                            .group = group,
                            .replicas = ranks / group,
                            .stride = l->tensor,
                            .node = memplan->settings.gpus_per_node,
                            .block_count = (uint32_t)shape->layers,
                            .experts_apart = tool_slice_expert_parts(&memplan->settings.slice) > 1,
                            .again_bytes = again_bytes_of(memplan)};
    double compute, seconds;
    EO_TRY(run_clock(&c, &compute, &seconds));
    const double tokens = (double)l->batch * l->seq * l->micro_batches * tool_layout_data_parallel(l);
    *out = (struct tool_step_time){.compute_seconds = compute,
                                   .exposed_seconds = fmax(0, seconds - compute), /* rounding: no "-0.000" */
                                   .rest_seconds = ranks > 1 ? rules->step_seconds : 0};
    out->bubble_seconds = (l->pipeline - 1.0) * compute / l->micro_batches / l->virtual_stages;
    out->seconds = seconds + out->rest_seconds + out->bubble_seconds;
    out->tokens_per_second = tokens / out->seconds;
    out->mfu = c.pass.useful_flops * l->micro_batches * tool_layout_data_parallel(l) /
               (out->seconds * l->ranks * rates->product_flops);
    out->bound_by = bound_of(compute, out->exposed_seconds, &c.pass);
    return EO_OK;
}
