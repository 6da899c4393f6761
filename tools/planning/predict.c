/* SPDX-License-Identifier: MIT */
#include "tools/planning/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Element-wise bytes of a block's pass over a token, in widths of the model and of the MLP, counted over norms, residuals and
 * activations as read and written once each. Norms and the MLP's activation come again with their gradients. Made again by
 * itself: q and k behind the norms of heads, and GELU's result on GPUs. */
static const struct {
    double width, mlp;
} forward_bytes = {14, 3}, backward_bytes = {26, 6}, gelu_bytes = {0, 2};

enum { COPY_LATENCY_US = 100 };

struct prediction {
    const struct tool_plan_settings *settings;
    const eo_transformer_config *config;
    const struct tool_rates *rates;
    bool is_tried;                  /* in this shape */
    double tokens;                  /* of a micro-batch */
    double blocks;                  /* of a position between embedding and head */
    double block_flops, head_flops; /* forward and backward, of a micro-batch; of a position */
    double head_bytes;              /* each piece reads its weights twice, and adds to their gradient */
    uint32_t position_count, group; /* ranks of a group */
};

static uint32_t unit_blocks_of(const struct tool_plan_settings *settings)
{
    return settings->unit_blocks > 1 ? settings->unit_blocks : 1;
}

static double elementwise_seconds(const struct prediction *p, double width, double mlp)
{
    const eo_transformer_config *c = p->config;
    const double mlp_width = c->mlp_width ? c->mlp_width : 4.0 * c->width;
    return p->tokens * (width * c->width + mlp * mlp_width) * p->blocks * (double)eo_dtype_bytes(p->settings->dtype) /
           p->rates->memory_bytes_per_s;
}

static bool is_recomputed(const struct prediction *p, uint32_t position)
{
    const uint32_t block = p->settings->half_blocks ? (position - 1) / 2 : (position - 1) * unit_blocks_of(p->settings);
    return p->settings->recompute == EO_RECOMPUTE_BLOCKS && block < p->settings->recompute_blocks;
}

static double forward_seconds(const struct prediction *p)
{
    if (p->is_tried)
        return p->rates->tried.block_forward_s * p->tokens * p->blocks;
    return p->block_flops / 3 / p->rates->products_flops_per_s + elementwise_seconds(p, forward_bytes.width, forward_bytes.mlp);
}

static double backward_seconds(const struct prediction *p)
{
    if (p->is_tried)
        return p->rates->tried.block_backward_s * p->tokens * p->blocks;
    return p->block_flops * 2 / 3 / p->rates->products_flops_per_s +
           elementwise_seconds(p, backward_bytes.width, backward_bytes.mlp);
}

static double recompute_seconds(const struct prediction *p, uint32_t position)
{
    const double tried = p->is_tried ? p->rates->tried.block_recompute_s * p->tokens * p->blocks : 0;
    if (is_recomputed(p, position))
        return tried > 0 ? tried : forward_seconds(p);
    if (p->settings->recompute != EO_RECOMPUTE_CHEAP)
        return 0;
    const double q = (double)p->config->head_count * p->config->head_size,
                 kv = (double)p->config->kv_head_count * p->config->head_size;
    const double heads = 2 * (q + 2 * kv) + 2 * (q + kv); /* the norms copy v, too; then rotary positions */
    return (p->config->qk_norm ? elementwise_seconds(p, heads / p->config->width, 0) : 0) +
           (tool_recomputes_gelu(p->config, p->settings) ? elementwise_seconds(p, gelu_bytes.width, gelu_bytes.mlp) : 0);
}

static double embedding_seconds(const struct prediction *p, eo_operation_kind kind)
{
    const struct tool_tried *tried = &p->rates->tried;
    if (!p->is_tried)
        return 0;
    return kind == EO_OP_FORWARD    ? tried->embedding_forward_s * p->tokens
           : kind == EO_OP_BACKWARD ? tried->embedding_backward_s
                                    : 0;
}

/* All of it in its backward pass. */
static double head_seconds(const struct prediction *p, eo_operation_kind kind)
{
    if (kind != EO_OP_BACKWARD)
        return 0;
    return p->is_tried ? p->rates->tried.head_s * p->tokens
                       : p->head_flops / p->rates->products_flops_per_s + p->head_bytes / p->rates->memory_bytes_per_s;
}

static double pass_seconds(const struct prediction *p, const eo_plan_operation *o)
{
    if (o->position == 0)
        return embedding_seconds(p, o->kind);
    if (o->position + 1 == p->position_count)
        return head_seconds(p, o->kind);
    return o->kind == EO_OP_FORWARD    ? forward_seconds(p)
           : o->kind == EO_OP_BACKWARD ? backward_seconds(p)
                                       : recompute_seconds(p, o->position);
}

static double update_seconds(const struct prediction *p, double elements)
{
    return p->is_tried && p->rates->tried.update_s > 0
               ? p->rates->tried.update_s * elements
               : tool_update_bytes(p->settings) * elements / p->rates->memory_bytes_per_s;
}

static double operation_seconds(const struct prediction *p, const eo_plan *plan, const eo_plan_operation *o)
{
    const struct tool_rates *r = p->rates;
    eo_shard_range shard = {0};
    if (o->layer != UINT32_MAX && eo_plan_shard_range(plan, o->layer, 0, &shard) < 0)
        return 0;
    const double elements = (double)shard.count;
    switch ((int)o->kind) { /* the norm takes nothing */
    case EO_OP_FORWARD:
    case EO_OP_RECOMPUTE:
    case EO_OP_BACKWARD: return pass_seconds(p, o);
    case EO_OP_ALL_GATHER:
    case EO_OP_REDUCE_SCATTER:
    case EO_OP_MATRIX_GATHER:
    case EO_OP_MATRIX_SCATTER:
    case EO_OP_ALL_REDUCE:
    case EO_OP_NORM_GATHER: return (double)o->bytes / r->link_bytes_per_s + r->link_latency_s;
    case EO_OP_ACCUMULATE:
        return 3 * (double)o->bytes / r->memory_bytes_per_s; /* two are read, one is written */
    case EO_OP_NORM_PARTIAL: return 4 * elements / r->memory_bytes_per_s;
    case EO_OP_NARROW: return 5 * elements / r->memory_bytes_per_s; /* read twice in bf16, written in float8 */
    case EO_OP_WIDEN: return (double)(1 + eo_dtype_bytes(p->settings->dtype)) * elements * p->group / r->memory_bytes_per_s;
    case EO_OP_DIRECTION: return TOOL_DIRECTION_BYTES * elements / r->memory_bytes_per_s;
    case EO_OP_ORTHOGONALIZE:
        return o->flops / shard.ranks / tool_rates_fp32_products(r) +
               TOOL_ORTHOGONALIZE_BYTES * elements / r->memory_bytes_per_s;
    case EO_OP_UPDATE: return update_seconds(p, elements);
    case EO_OP_FETCH:
    case EO_OP_EVICT: return (double)o->bytes / r->disk_bytes_per_s + COPY_LATENCY_US * 1e-6;
    default: return 0;
    }
}

static struct prediction prediction_of(const eo_plan *plan, const eo_transformer *transformer,
                                       const struct tool_plan_settings *settings, const eo_transformer_config *config,
                                       const struct tool_rates *rates)
{
    const double tokens = (double)settings->batch * settings->seq;
    const uint32_t unit = unit_blocks_of(settings), units = (config->layer_count + unit - 1) / unit;
    struct prediction p = {.settings = settings,
                           .config = config,
                           .rates = rates,
                           .tokens = tokens,
                           .blocks = settings->half_blocks ? 0.5 : unit,
                           .head_flops = 6.0 * config->vocabulary * config->width * tokens,
                           .head_bytes = 2.0 * settings->head_chunks * config->vocabulary * config->width *
                                         (double)(eo_dtype_bytes(settings->dtype) + eo_dtype_bytes(settings->reduce_dtype)),
                           .position_count = 2 + units * (settings->half_blocks ? 2 : 1)};
    char shape[TOOL_TRIED_SHAPE_MAX];
    eo_plan_summary summary;
    eo_plan_get_summary(plan, &summary);
    p.group = summary.params.shard_group;
    p.block_flops = (eo_transformer_flops(transformer) - p.head_flops) / (p.position_count - 2);
    tool_tried_shape(settings, config, shape);
    p.is_tried = strcmp(rates->tried.shape, shape) == 0;
    return p;
}

eo_status tool_predict_step(const eo_plan *plan, const eo_transformer *transformer, const struct tool_plan_settings *settings,
                            const eo_transformer_config *config, const struct tool_rates *rates, double *seconds)
{
    enum { STEPS = 3, LONGEST_S = 1000000 }; /* of an operation: sums of them stay numbers of 64 bits */
    const uint32_t count = eo_plan_operation_count(plan, EO_LIST_STEADY);
    const struct prediction p = prediction_of(plan, transformer, settings, config, rates);
    uint64_t *durations_ns = calloc(count, sizeof(*durations_ns)), step_ns = 0;
    eo_status status = durations_ns ? EO_OK : EO_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < count && status >= 0; i++) {
        eo_plan_operation o;
        status = eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o);
        if (status >= 0)
            durations_ns[i] = (uint64_t)(fmin(operation_seconds(&p, plan, &o), LONGEST_S) * 1e9);
    }
    if (status >= 0)
        status = eo_plan_simulate(plan, EO_LIST_STEADY, durations_ns, STEPS, &step_ns);
    free(durations_ns);
    *seconds = (double)step_ns * 1e-9;
    return status;
}

void tool_tried_shape(const struct tool_plan_settings *s, const eo_transformer_config *c, char shape[TOOL_TRIED_SHAPE_MAX])
{
    char lora[TOOL_LORA_TEXT_MAX];
    int used = snprintf(shape, TOOL_TRIED_SHAPE_MAX,
                        "family %d, width %u, heads %u/%u of %u, mlp %u, vocabulary %u, flags %d%d%d%d%d%d%d%d, "
                        "seq %u, %s/%s, %u thread%s, %s, %s",
                        (int)c->family, c->width, c->head_count, c->kv_head_count, c->head_size, c->mlp_width, c->vocabulary,
                        c->tied_head, c->qkv_bias, c->qk_norm, s->packed, s->float8_products, s->float8_frozen, s->fp32_norms,
                        s->dropout > 0, s->seq, eo_dtype_name(s->dtype), eo_dtype_name(s->reduce_dtype), s->threads,
                        s->threads == 1 ? "" : "s", s->device, eo_optimizer_name(s->optimizer));
    if (s->lora.rank && used > 0 && used < TOOL_TRIED_SHAPE_MAX)
        used += snprintf(shape + used, TOOL_TRIED_SHAPE_MAX - (size_t)used, ", lora %s", tool_lora_text(&s->lora, lora));
    if (s->ema_decay > 0 && used > 0 && used < TOOL_TRIED_SHAPE_MAX)
        used += snprintf(shape + used, TOOL_TRIED_SHAPE_MAX - (size_t)used, ", ema");
    if (s->gradients_apart && used > 0 && used < TOOL_TRIED_SHAPE_MAX)
        snprintf(shape + used, TOOL_TRIED_SHAPE_MAX - (size_t)used, ", gradients apart");
}
