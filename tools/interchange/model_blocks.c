/* SPDX-License-Identifier: MIT */
#include "tools/interchange/model_blocks.h"

#include <stdio.h>
#include <string.h>

struct list {
    const struct tool_model_config *config;
    struct tool_block_tensor *tensors;
    uint32_t count;
    bool in_mlp;
};

static struct tool_block_tensor *add(struct list *l, const char *name, enum tool_tensor_kind kind, uint64_t a, uint64_t b,
                                     uint64_t c)
{
    l->tensors[l->count] = (struct tool_block_tensor){
        .name = name, .kind = kind, .in_mlp = l->in_mlp, .multiplies = b != 0, .count = 1, .dims = {a, b, c}};
    return &l->tensors[l->count++];
}

static void matrix(struct list *l, const char *name, enum tool_tensor_kind kind, uint64_t out, uint64_t in)
{
    add(l, name, kind, out, in, 0);
}

static void vector(struct list *l, const char *name, enum tool_tensor_kind kind, uint64_t n)
{
    add(l, name, kind, n, 0, 0);
}

/* A norm of RMSNorm over the residual's width. */
static void norm(struct list *l, const char *name)
{
    vector(l, name, TOOL_TENSOR_WHOLE, l->config->width);
}

/* --- GPT-2 -------------------------------------------------------------------------------------------------------- */

/* Matrices lie [in][out]. */
static void add_gpt2(struct list *l)
{
    const uint64_t h = l->config->width, f = l->config->mlp_width;
    const uint64_t q = (uint64_t)l->config->head_count * l->config->head_size; /* h, of a whole model */
    norm(l, "ln_1.weight");
    norm(l, "ln_1.bias");
    matrix(l, "attn.c_attn.weight", TOOL_TENSOR_CUT, h, 3 * q);
    vector(l, "attn.c_attn.bias", TOOL_TENSOR_CUT, 3 * q);
    matrix(l, "attn.c_proj.weight", TOOL_TENSOR_CUT, q, h);
    norm(l, "attn.c_proj.bias");
    l->in_mlp = true;
    norm(l, "ln_2.weight");
    norm(l, "ln_2.bias");
    matrix(l, "mlp.c_fc.weight", TOOL_TENSOR_CUT, h, f);
    vector(l, "mlp.c_fc.bias", TOOL_TENSOR_CUT, f);
    matrix(l, "mlp.c_proj.weight", TOOL_TENSOR_CUT, f, h);
    norm(l, "mlp.c_proj.bias");
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

static void add_heads(struct list *l)
{
    const struct tool_model_config *c = l->config;
    const uint64_t h = c->width, q = (uint64_t)c->head_count * c->head_size, kv = (uint64_t)c->kv_head_count * c->head_size;
    static const struct {
        const char *weight, *bias, *norm;
    } ins[] = {{"self_attn.q_proj.weight", "self_attn.q_proj.bias", "self_attn.q_norm.weight"},
               {"self_attn.k_proj.weight", "self_attn.k_proj.bias", "self_attn.k_norm.weight"},
               {"self_attn.v_proj.weight", "self_attn.v_proj.bias", NULL}};
    for (int i = 0; i < 3 && c->family != TOOL_CONFIG_PHI3; i++) {
        const enum tool_tensor_kind kind = i == 0 ? TOOL_TENSOR_CUT : TOOL_TENSOR_KV;
        const uint64_t heads = i == 0 ? q : kv, out = i == 0 && c->gates_heads ? 2 * q : heads;
        matrix(l, ins[i].weight, kind, out, h);
        if (c->qkv_bias)
            vector(l, ins[i].bias, kind, out);
        if (c->qk_norm && ins[i].norm)
            vector(l, ins[i].norm, c->wide_qk_norm ? kind : TOOL_TENSOR_WHOLE, c->wide_qk_norm ? heads : c->head_size);
    }
    if (c->family == TOOL_CONFIG_PHI3)
        matrix(l, "self_attn.qkv_proj.weight", TOOL_TENSOR_CUT, q + 2 * kv, h);
    matrix(l, "self_attn.o_proj.weight", TOOL_TENSOR_CUT, h, q);
    if (c->out_bias)
        norm(l, "self_attn.o_proj.bias");
    if (c->sinks)
        vector(l, "self_attn.sinks", TOOL_TENSOR_CUT, c->head_count);
}

static void add_latent(struct list *l)
{
    const struct tool_model_config *c = l->config;
    const struct tool_latent *r = &c->latent;
    const uint64_t h = c->width, a = c->head_count, q = a * c->head_size;
    if (r->q_rank) {
        matrix(l, "self_attn.q_a_proj.weight", TOOL_TENSOR_WHOLE, r->q_rank, h);
        if (c->qkv_bias)
            vector(l, "self_attn.q_a_proj.bias", TOOL_TENSOR_WHOLE, r->q_rank);
        vector(l, "self_attn.q_a_layernorm.weight", TOOL_TENSOR_WHOLE, r->q_rank);
        matrix(l, "self_attn.q_b_proj.weight", TOOL_TENSOR_CUT, q, r->q_rank);
    } else {
        matrix(l, "self_attn.q_proj.weight", TOOL_TENSOR_CUT, q, h);
    }
    matrix(l, "self_attn.kv_a_proj_with_mqa.weight", TOOL_TENSOR_WHOLE, r->kv_rank + r->rope, h);
    if (c->qkv_bias)
        vector(l, "self_attn.kv_a_proj_with_mqa.bias", TOOL_TENSOR_WHOLE, r->kv_rank + r->rope);
    vector(l, "self_attn.kv_a_layernorm.weight", TOOL_TENSOR_WHOLE, r->kv_rank);
    matrix(l, "self_attn.kv_b_proj.weight", TOOL_TENSOR_CUT, a * (r->nope + r->value), r->kv_rank);
    matrix(l, "self_attn.o_proj.weight", TOOL_TENSOR_CUT, h, a * r->value);
    if (c->out_bias)
        norm(l, "self_attn.o_proj.bias");
}

static void add_linear(struct list *l)
{
    const struct tool_linear *n = &l->config->linear;
    const uint64_t h = l->config->width, key = (uint64_t)n->key_heads * n->key_size;
    const uint64_t value = (uint64_t)n->value_heads * n->value_size;
    vector(l, "linear_attn.dt_bias", TOOL_TENSOR_CUT, n->value_heads);
    vector(l, "linear_attn.A_log", TOOL_TENSOR_CUT, n->value_heads);
    add(l, "linear_attn.conv1d.weight", TOOL_TENSOR_CUT, 2 * key + value, 1, n->kernel)->is_fine = true;
    matrix(l, "linear_attn.in_proj_qkvz.weight", TOOL_TENSOR_CUT, 2 * key + 2 * value, h);
    matrix(l, "linear_attn.in_proj_ba.weight", TOOL_TENSOR_CUT, 2 * (uint64_t)n->value_heads, h);
    vector(l, "linear_attn.norm.weight", TOOL_TENSOR_WHOLE, n->value_size);
    matrix(l, "linear_attn.out_proj.weight", TOOL_TENSOR_CUT, h, value);
}

/* --- MLP ---------------------------------------------------------------------------------------------------------- */

static void add_gated(struct list *l, const char *const names[3], uint64_t width)
{
    for (int i = 0; i < 3; i++)
        matrix(l, names[i], TOOL_TENSOR_CUT, i == 2 ? l->config->width : width, i == 2 ? width : l->config->width);
}

static void add_dense(struct list *l)
{
    const struct tool_model_config *c = l->config;
    const uint64_t h = c->width, f = c->mlp_width;
    static const char *const names[] = {"mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"};
    static const char *const biases[] = {"mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.bias"};
    if (c->family == TOOL_CONFIG_PHI3) {
        matrix(l, "mlp.gate_up_proj.weight", TOOL_TENSOR_CUT, 2 * f, h);
        matrix(l, "mlp.down_proj.weight", TOOL_TENSOR_CUT, h, f);
        return;
    }
    add_gated(l, names, f);
    for (int i = 0; i < 3 && c->mlp_bias; i++)
        vector(l, biases[i], i == 2 ? TOOL_TENSOR_WHOLE : TOOL_TENSOR_CUT, i == 2 ? h : f);
}

static void add_router(struct list *l, const char *name)
{
    add(l, name, TOOL_TENSOR_WHOLE, l->config->expert_count, l->config->width, 0)->is_fine = true;
}

/* All experts in one tensor, [in][out]. */
static void add_fused_experts(struct list *l)
{
    const struct tool_model_config *c = l->config;
    const uint64_t h = c->width, f = c->expert_width, n = c->expert_count;
    add_router(l, "mlp.router.weight");
    vector(l, "mlp.router.bias", TOOL_TENSOR_WHOLE, n);
    add(l, "mlp.experts.gate_up_proj", TOOL_TENSOR_EXPERT, n, h, 2 * f);
    add(l, "mlp.experts.gate_up_proj_bias", TOOL_TENSOR_EXPERT, n, 2 * f, 0)->multiplies = false;
    add(l, "mlp.experts.down_proj", TOOL_TENSOR_EXPERT, n, f, h);
    add(l, "mlp.experts.down_proj_bias", TOOL_TENSOR_EXPERT, n, h, 0)->multiplies = false;
}

static void add_experts(struct list *l)
{
    const struct tool_model_config *c = l->config;
    const bool is_mixtral = c->family == TOOL_CONFIG_MIXTRAL, is_deepseek = c->family == TOOL_CONFIG_DEEPSEEK_V3;
    static const char *const names[2][3] = {{"gate_proj.weight", "up_proj.weight", "down_proj.weight"},
                                            {"w1.weight", "w3.weight", "w2.weight"}};
    static const char *const shared[2][3] = {
        {"mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight", "mlp.shared_expert.down_proj.weight"},
        {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight", "mlp.shared_experts.down_proj.weight"}};
    add_router(l, is_mixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight");
    if (is_deepseek)
        vector(l, "mlp.gate.e_score_correction_bias", TOOL_TENSOR_BUFFER, c->expert_count);
    for (int i = 0; i < 3; i++) {
        const uint64_t out = i == 2 ? c->width : c->expert_width, in = i == 2 ? c->expert_width : c->width;
        struct tool_block_tensor *t =
            add(l, is_mixtral ? "block_sparse_moe.experts." : "mlp.experts.", TOOL_TENSOR_EXPERT, out, in, 0);
        t->each = names[is_mixtral][i];
        t->count = c->expert_count;
    }
    if (c->shared_width)
        add_gated(l, shared[is_deepseek], c->shared_width);
    if (c->gates_shared)
        add(l, "mlp.shared_expert_gate.weight", TOOL_TENSOR_WHOLE, 1, c->width, 0)->is_fine = true;
}

/* --- tensors of several parameters -------------------------------------------------------------------------------- */

bool tool_fused_tensor(const struct tool_model_config *config, const char *parameter, char name[TOOL_FUSED_NAME_BYTES],
                       uint64_t *first_row)
{
    const uint64_t q = (uint64_t)config->head_count * config->head_size, kv = (uint64_t)config->kv_head_count * config->head_size;
    const struct {
        const char *part, *whole;
        uint64_t first;
    } parts[] = {{".q_proj.weight", ".qkv_proj.weight", 0},       {".k_proj.weight", ".qkv_proj.weight", q},
                 {".v_proj.weight", ".qkv_proj.weight", q + kv}, {".gate_proj.weight", ".gate_up_proj.weight", 0},
                 {".up_proj.weight", ".gate_up_proj.weight", config->mlp_width}};
    const char *end = config->family == TOOL_CONFIG_PHI3 ? strstr(parameter, "_proj.weight") : NULL;
    while (end && end > parameter && *end != '.')
        end--;
    for (size_t i = 0; end && i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(end, parts[i].part) == 0) {
            snprintf(name, TOOL_FUSED_NAME_BYTES, "%.*s%s", (int)(end - parameter), parameter, parts[i].whole);
            *first_row = parts[i].first;
            return true;
        }
    return false;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

uint32_t tool_block_tensors(const struct tool_model_config *config, uint32_t layer,
                            struct tool_block_tensor tensors[TOOL_BLOCK_TENSORS_MAX])
{
    const struct tool_model_config *c = config;
    struct list l = {.config = c, .tensors = tensors};
    if (c->family == TOOL_CONFIG_GPT2) {
        add_gpt2(&l);
        return l.count;
    }
    if (c->norms != TOOL_NORMS_AFTER)
        norm(&l, "input_layernorm.weight");
    if (c->mixers[layer] == TOOL_MIXER_LINEAR)
        add_linear(&l);
    else if (c->latent.kv_rank)
        add_latent(&l);
    else
        add_heads(&l);
    l.in_mlp = c->norms == TOOL_NORMS_BEFORE;
    norm(&l, "post_attention_layernorm.weight");
    l.in_mlp = true;
    if (c->norms == TOOL_NORMS_BOTH)
        norm(&l, "pre_feedforward_layernorm.weight");
    if (!tool_config_has_experts(c, layer))
        add_dense(&l);
    else if (c->expert_bias)
        add_fused_experts(&l);
    else
        add_experts(&l);
    if (c->norms != TOOL_NORMS_BEFORE)
        norm(&l, "post_feedforward_layernorm.weight");
    return l.count;
}

uint64_t tool_block_tensor_elements(const struct tool_block_tensor *tensor)
{
    uint64_t n = tensor->count;
    for (int d = 0; d < 3 && tensor->dims[d]; d++)
        n *= tensor->dims[d];
    return n;
}
