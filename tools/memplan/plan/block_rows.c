/* SPDX-License-Identifier: MIT */
#include "tools/memplan/plan/block_rows.h"

#include <stdio.h>

struct list {
    struct tool_block_row *rows;
    uint32_t count;
    bool in_mlp, layer_norm /* its statistics are two */;
};

enum { KEPT = 0, CHEAP = 1, CUT = 2, FP32 = 4, ROUTED = 8, ROUTES = 16, REMADE = 32 | CHEAP, NORM = 64 | CHEAP };

static void put(struct list *l, const char *name, const char *words, uint64_t width, int flags)
{
    l->rows[l->count++] = (struct tool_block_row){.name = name,
                                                  .words = words,
                                                  .width = width,
                                                  .bytes = flags & FP32 ? sizeof(float) : 0,
                                                  .in_mlp = l->in_mlp,
                                                  .cheap = flags & CHEAP,
                                                  .gradient_remakes = (flags & REMADE) == REMADE,
                                                  .norm = (flags & NORM) == NORM,
                                                  .cut = flags & CUT,
                                                  .routed = flags & ROUTED,
                                                  .routes = flags & ROUTES};
}

/* What a norm in front makes, and what one behind reads. */
static void put_norm(struct list *l, uint64_t width)
{
    put(l, "norm", "h", width, NORM | (l->in_mlp ? ROUTES : 0));
    put(l, "norm_stats", l->layer_norm ? "2" : "1", l->layer_norm ? 2 : 1, FP32);
}

static void put_norm_behind(struct list *l, uint64_t width)
{
    put(l, "output", "h", width, KEPT);
    put(l, "output_stats", "1", 1, FP32);
}

static void put_heads(struct list *l, const struct tool_model_config *c, bool remakes)
{
    const uint64_t q = (uint64_t)c->head_count * c->head_size, kv = (uint64_t)c->kv_head_count * c->head_size;
    /* With norms of q and k what they read is kept; where what they make is made again, v is kept beside it. */
    if (c->qk_norm && remakes)
        put(l, "qkv_before_norm", "(a d + 2 k d)", q + 2 * kv, CUT);
    else if (c->qk_norm)
        put(l, "qk_before_norm", "(a d + k d)", q + kv, CUT);
    put(l, "qkv", "(a d + 2 k d)", q + 2 * kv, CUT | (c->qk_norm && remakes ? CHEAP : KEPT));
    if (c->gates_heads)
        put(l, "gate", "a d", q, CUT);
    put(l, "heads", "a d", q, CUT);
    put(l, "log_sum_exp", "a", c->head_count, CUT | FP32);
    if (c->gates_heads)
        put(l, "gated", "a d", q, CUT | CHEAP);
}

static void put_latent(struct list *l, const struct tool_model_config *c)
{
    const struct tool_latent *r = &c->latent;
    if (r->q_rank) {
        put(l, "q_low", "q_lora_rank", r->q_rank, KEPT);
        put(l, "q_low_stats", "1", 1, FP32);
        put(l, "q_low_norm", "q_lora_rank", r->q_rank, CHEAP);
    }
    put(l, "kv_low", "(kv_lora_rank + rope)", r->kv_rank + r->rope, KEPT);
    put(l, "kv_low_stats", "1", 1, FP32);
    put(l, "kv_low_norm", "kv_lora_rank", r->kv_rank, CHEAP);
    put(l, "qkv", "a (2 (nope + rope) + v)", (uint64_t)c->head_count * (2 * c->head_size + r->value), CUT);
    put(l, "heads", "a v", (uint64_t)c->head_count * r->value, CUT);
    put(l, "log_sum_exp", "a", c->head_count, CUT | FP32);
}

/* The delta rule in chunks: it keeps what goes in and the products within chunks; states are made again in backward. */
static void put_linear(struct list *l, const struct tool_linear *n)
{
    const uint64_t key = (uint64_t)n->key_heads * n->key_size, value = (uint64_t)n->value_heads * n->value_size;
    put(l, "projected", "2 (keys + values)", 2 * (key + value), CUT);
    put(l, "gates", "2 value heads", 2 * (uint64_t)n->value_heads, CUT);
    put(l, "convolved", "(2 keys + values)", 2 * key + value, CUT | CHEAP);
    put(l, "decays", "2 value heads", 2 * (uint64_t)n->value_heads, CUT | FP32);
    put(l, "chunk_products", "64 value heads", TOOL_LINEAR_CHUNK * (uint64_t)n->value_heads, CUT);
    put(l, "heads", "values", value, CUT);
    put(l, "heads_stats", "value heads", n->value_heads, CUT | FP32);
    put(l, "gated", "values", value, CUT | CHEAP);
}

static void put_experts(struct list *l, const struct tool_model_config *c)
{
    const uint64_t h = c->width, used = c->experts_per_token, f = c->expert_width, shared = c->shared_width;
    put(l, "router_logits", "E", c->expert_count, FP32);
    put(l, "router_choice", "2 K", 2 * used, FP32 | ROUTES); /* an index and a weight */
    put(l, "expert_inputs", "K h", used * h, CHEAP | CUT | ROUTED);
    put(l, "hidden", "K 2 F", used * 2 * f, CUT | ROUTED);
    put(l, "activation", "K F", used * f, REMADE | CUT | ROUTED);
    put(l, "expert_outputs", "K h", used * h, CUT | ROUTED);
    if (shared == 0)
        return;
    put(l, "shared_hidden", "2 shared F", 2 * shared, CUT);
    put(l, "shared_activation", "shared F", shared, REMADE | CUT);
    if (!c->gates_shared)
        return;
    put(l, "shared_output", "h", h, KEPT);
    put(l, "shared_gate", "1", 1, FP32);
}

uint32_t tool_block_rows(const struct tool_model_config *config, uint32_t layer, bool remakes,
                         struct tool_block_row rows[TOOL_BLOCK_ROWS_MAX])
{
    const struct tool_model_config *c = config;
    const bool gpt2 = c->family == TOOL_CONFIG_GPT2;
    struct list l = {.rows = rows, .layer_norm = gpt2};
    if (c->norms != TOOL_NORMS_AFTER)
        put_norm(&l, c->width);
    if (c->mixers[layer] == TOOL_MIXER_LINEAR)
        put_linear(&l, &c->linear);
    else if (c->latent.kv_rank)
        put_latent(&l, c);
    else
        put_heads(&l, c, remakes);
    if (c->norms != TOOL_NORMS_BEFORE)
        put_norm_behind(&l, c->width);
    l.in_mlp = true;
    if (c->norms != TOOL_NORMS_AFTER)
        put_norm(&l, c->width);
    if (tool_config_has_experts(c, layer)) {
        put_experts(&l, c);
    } else {
        put(&l, "hidden", gpt2 ? "f" : "2 f", (gpt2 ? 1 : 2) * (uint64_t)c->mlp_width, CUT);
        put(&l, "activation", "f", c->mlp_width, REMADE | CUT);
    }
    if (c->norms != TOOL_NORMS_BEFORE)
        put_norm_behind(&l, c->width);
    return l.count;
}
