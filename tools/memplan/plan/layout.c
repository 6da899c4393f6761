/* SPDX-License-Identifier: MIT */
#include "tools/memplan/plan/layout.h"

#include "tools/interchange/model_blocks.h"
#include "tools/memplan/plan/block_rows.h"

struct tool_shape tool_shape_of(const struct tool_model_config *config)
{
    const struct tool_model_config *c = config;
    const bool gpt2 = c->family == TOOL_CONFIG_GPT2;
    return (struct tool_shape){.layers = c->layer_count,
                               .width = c->width,
                               .heads = c->head_count,
                               .kv_heads = c->kv_head_count,
                               .head_size = c->head_size,
                               .mlp_width = c->mlp_width,
                               .vocabulary = c->vocabulary,
                               .positions = gpt2 ? c->context : 0,
                               .norm_tensors = gpt2 ? 2 : 1,
                               .tied_head = c->tied_head,
                               .gated = !gpt2,
                               .qkv_bias = gpt2 || c->qkv_bias,
                               .out_bias = gpt2 || c->out_bias,
                               .mlp_bias = gpt2 || c->mlp_bias,
                               .qk_norm = c->qk_norm,
                               .drops_residual = c->drops_residual,
                               .drops_attention = c->drops_attention,
                               .experts = c->expert_count,
                               .experts_per_token = c->experts_per_token,
                               .expert_width = c->expert_width,
                               .config = c};
}

static void add_tensor(struct tool_block_average *out, const struct tool_block_tensor *t, const struct tool_model_config *c)
{
    const bool fused = t->dims[2] != 0; /* experts in one tensor */
    const double n = (double)tool_block_tensor_elements(t), many = fused ? (double)t->dims[0] : t->count;
    const double sides = many * (double)(t->dims[fused] + t->dims[1 + fused]);
    if (!t->multiplies)
        return;
    out->stored += n;
    out->experts += t->kind == TOOL_TENSOR_EXPERT ? n : 0;
    out->multiplied += t->kind == TOOL_TENSOR_EXPERT ? n / c->expert_count * c->experts_per_token : n;
    if (!t->is_fine)
        *(t->kind == TOOL_TENSOR_EXPERT  ? &out->expert_sides
          : t->kind == TOOL_TENSOR_WHOLE ? &out->whole_sides
                                         : &out->cut_sides) += sides;
}

static void add_row(struct tool_block_average *out, const struct tool_block_row *r)
{
    const double bytes = (double)r->width * (r->bytes ? r->bytes : 2);
    double *part = r->in_mlp ? r->cheap ? &out->product_bytes : &out->mlp_bytes : &out->attention_bytes;
    if (!r->cut)
        part = r->cheap ? &out->norm_bytes : &out->whole_bytes;
    *part += bytes;
    out->kept_bytes += bytes;
}

bool tool_shape_average(const struct tool_shape *shape, uint32_t seq, struct tool_block_average *out)
{
    const struct tool_model_config *c = shape->config;
    if (!c || c->family < TOOL_CONFIG_PLANNED)
        return false;
    *out = (struct tool_block_average){.core_flops = tool_model_config_core_flops(c, seq)};
    for (uint32_t i = 0; i < c->layer_count; i++) {
        struct tool_block_tensor tensors[TOOL_BLOCK_TENSORS_MAX];
        struct tool_block_row rows[TOOL_BLOCK_ROWS_MAX];
        const struct tool_block_row inputs = {.width = 2 * (uint64_t)c->width}; /* of both halves */
        add_row(out, &inputs);
        for (uint32_t k = tool_block_tensors(c, i, tensors); k > 0; k--)
            add_tensor(out, &tensors[k - 1], c);
        for (uint32_t k = tool_block_rows(c, i, false, rows); k > 0; k--)
            add_row(out, &rows[k - 1]);
    }
    double *const sums[] = {&out->multiplied,    &out->stored,      &out->core_flops,  &out->kept_bytes,      &out->experts,
                            &out->whole_bytes,   &out->norm_bytes,  &out->mlp_bytes,   &out->attention_bytes, &out->cut_sides,
                            &out->product_bytes, &out->whole_sides, &out->expert_sides};
    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
        *sums[i] /= c->layer_count;
    return true;
}

uint32_t tool_layout_data_parallel(const struct tool_layout *layout)
{
    return layout->ranks / (layout->tensor * layout->pipeline * layout->context);
}

uint32_t tool_layout_expert_tensor(const struct tool_layout *layout)
{
    return layout->expert_tensor ? layout->expert_tensor : layout->tensor;
}

uint32_t tool_layout_expert_same(const struct tool_layout *layout)
{
    return layout->ranks / layout->pipeline / (tool_layout_expert_tensor(layout) * layout->expert);
}

static eo_status check_groups(const struct tool_layout *l, const struct tool_shape *s, struct tool_problem *problem)
{
    const uint64_t group = (uint64_t)l->tensor * l->pipeline * l->context;
    if (l->ranks % group)
        return tool_problem_set(problem, EO_ERR_INVALID, "--ranks %u is not a multiple of --tp %u x --pp %u x --cp %u = %llu",
                                l->ranks, l->tensor, l->pipeline, l->context, (unsigned long long)group);
    if (l->expert > 1 && s->experts % l->expert)
        return tool_problem_set(problem, EO_ERR_INVALID, "--ep %u does not divide the model's experts, %llu", l->expert,
                                (unsigned long long)s->experts);
    if (l->expert > 1 && s->experts == 0)
        return tool_problem_set(problem, EO_ERR_INVALID, "--ep %u: the model has no experts", l->expert);
    if (l->expert_tensor && s->experts == 0)
        return tool_problem_set(problem, EO_ERR_INVALID, "--etp %u: the model has no experts", l->expert_tensor);
    const uint32_t shared = tool_layout_expert_tensor(l);
    if (l->ranks / l->pipeline % (shared * l->expert))
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--ep %u does not divide the %u ranks of a stage that hold the same "
                                "parts of a layer",
                                l->expert, l->ranks / l->pipeline / shared);
    return EO_OK;
}

eo_status tool_layout_check(const struct tool_layout *layout, const struct tool_shape *shape, struct tool_problem *problem)
{
    const struct tool_layout *l = layout;
    EO_TRY(check_groups(l, shape, problem));
    if (shape->layers % ((uint64_t)l->pipeline * l->virtual_stages))
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--pp %u x --virtual-stages %u does not divide the model's %llu blocks", l->pipeline,
                                l->virtual_stages, (unsigned long long)shape->layers);
    if (l->virtual_stages > 1 && (l->pipeline == 1 || l->micro_batches % l->pipeline))
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--virtual-stages %u: give --pp above 1, and micro-batches in a multiple "
                                "of it (there are %u)",
                                l->virtual_stages, l->micro_batches);
    if (shape->heads % l->tensor || shape->mlp_width % l->tensor || shape->expert_width % tool_layout_expert_tensor(l))
        return tool_problem_set(problem, EO_ERR_INVALID, "--tp %u does not divide the model's heads, %llu, or its MLP",
                                l->tensor, (unsigned long long)shape->heads);
    const uint64_t value_heads = shape->config ? shape->config->linear.value_heads : 0;
    if (value_heads % l->tensor)
        return tool_problem_set(problem, EO_ERR_INVALID, "--tp %u does not divide the model's linear value heads, %llu",
                                l->tensor, (unsigned long long)value_heads);
    if (l->seq % (l->context * (l->sequence_parallel ? l->tensor : 1)))
        return tool_problem_set(problem, EO_ERR_INVALID, "--seq %u is not a multiple of --cp %u%s", l->seq, l->context,
                                l->sequence_parallel ? " x --tp" : "");
    return EO_OK;
}

uint64_t tool_padded_vocabulary(const struct tool_shape *shape, const struct tool_layout *layout)
{
    const uint64_t unit = (uint64_t)layout->vocabulary_multiple * layout->tensor;
    return unit ? (shape->vocabulary + unit - 1) / unit * unit : shape->vocabulary;
}

/* Norms, and biases of what is added to the residual, are whole on every rank. Few heads of k and v are copied. */
static uint64_t attention_elements(const struct tool_shape *s, uint64_t t)
{
    const uint64_t q = s->heads * s->head_size / t, kv = (s->kv_heads + t - 1) / t * s->head_size;
    return s->width * (q + 2 * kv) + q * s->width + (s->qkv_bias ? q + 2 * kv : 0) + (s->out_bias ? s->width : 0) +
           2 * s->norm_tensors * s->width + (s->qk_norm ? 2 * s->norm_tensors * s->head_size : 0);
}

static uint64_t mlp_elements(const struct tool_shape *s, uint64_t width, uint64_t t)
{
    const uint64_t up = (s->gated ? 2 : 1) * width / t;
    return s->width * up + width / t * s->width + (s->mlp_bias ? up + s->width : 0);
}

/* Of a rank; `experts` apart. */
static uint64_t block_elements(const struct tool_shape *s, const struct tool_layout *l, uint32_t layer, uint64_t *experts)
{
    const uint64_t t = l->tensor;
    uint64_t rest = 0;
    *experts = s->experts / l->expert * mlp_elements(s, s->expert_width, tool_layout_expert_tensor(l));
    if (!s->config)
        return attention_elements(s, t) + (s->experts ? s->width * s->experts : mlp_elements(s, s->mlp_width, t));
    struct tool_block_tensor tensors[TOOL_BLOCK_TENSORS_MAX];
    *experts = 0;
    for (uint32_t k = tool_block_tensors(s->config, layer, tensors); k > 0; k--) {
        const enum tool_tensor_kind kind = tensors[k - 1].kind;
        const uint64_t n = tool_block_tensor_elements(&tensors[k - 1]);
        if (kind == TOOL_TENSOR_EXPERT)
            *experts += n / l->expert / tool_layout_expert_tensor(l);
        else if (kind != TOOL_TENSOR_BUFFER)
            rest += kind == TOOL_TENSOR_WHOLE ? n
                    : kind == TOOL_TENSOR_CUT ? n / t
                                              : n / s->kv_heads * ((s->kv_heads + t - 1) / t);
    }
    return rest;
}

struct tool_stage_elements tool_stage_elements(const struct tool_shape *shape, const struct tool_layout *layout, uint32_t stage)
{
    const struct tool_shape *s = shape;
    const uint64_t t = layout->tensor, chunk = s->layers / ((uint64_t)layout->pipeline * layout->virtual_stages);
    const uint64_t table = tool_padded_vocabulary(s, layout) / t * s->width;
    const bool first = stage == 0, last = stage + 1 == layout->pipeline;
    struct tool_stage_elements e = {.head = last ? table : 0};
    for (uint64_t i = 0; i < s->layers; i++) {
        if (i / chunk % layout->pipeline != stage)
            continue;
        uint64_t experts;
        const uint64_t rest = block_elements(s, layout, (uint32_t)i, &experts);
        e.dense += rest;
        e.experts += experts;
        e.largest_block = rest + experts > e.largest_block ? rest + experts : e.largest_block;
    }
    e.tables = first ? table + s->positions * s->width : 0;
    e.tables += last && (!s->tied_head || !first) ? table : 0; /* a tied head of another stage is a copy */
    e.dense += e.tables + (last ? s->norm_tensors * s->width : 0);
    return e;
}

uint64_t tool_adapter_elements(const struct tool_shape *shape, const struct tool_layout *layout, uint64_t rank)
{
    const struct tool_shape *s = shape;
    struct tool_block_average a;
    if (tool_shape_average(s, layout->seq, &a)) /* of two sides one is cut */
        return rank * (uint64_t)(a.whole_sides + a.cut_sides * (1 + 1.0 / layout->tensor) / 2 + a.expert_sides / layout->expert);
    const uint64_t t = layout->tensor, h = s->width, q = s->heads * s->head_size, kv = s->kv_heads * s->head_size;
    const uint64_t inner = s->experts ? s->expert_width : s->mlp_width, ups = s->gated ? 2 : 1;
    const uint64_t attention = 3 * h + (q + 2 * kv) / t + q / t + h, mlp = ups * (h + inner / t) + inner / t + h;
    return rank * (attention + mlp * (s->experts ? s->experts / layout->expert : 1));
}

uint64_t tool_blocks_in_flight(const struct tool_shape *shape, const struct tool_layout *layout, uint32_t stage)
{
    const uint64_t p = layout->pipeline, v = layout->virtual_stages, m = layout->micro_batches, before = p - stage - 1;
    const uint64_t chunks = v == 1 ? before + 1 : 2 * before + (v - 1) * p + 1;
    return (chunks < m * v ? chunks : m * v) * (shape->layers / (p * v));
}
