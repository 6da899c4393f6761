/* SPDX-License-Identifier: MIT
 *
 * Names and shapes of a model's tensors in published files. GPT-2's matrices lie [in][out] there.
 */
#include <stdarg.h>
#include <stdio.h>

#include "tools/interchange/model_config.h"

struct tensors {
    json_t *object;
    bool failed;
};

/* `rows` 0: a vector. */
static void add(struct tensors *t, uint64_t rows, uint64_t columns, const char *format, ...) EO_PRINTF(4, 5);

static void add(struct tensors *t, uint64_t rows, uint64_t columns, const char *format, ...)
{
    char name[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof(name), format, arguments);
    va_end(arguments);
    json_t *shape = rows ? json_pack("[I, I]", (json_int_t)rows, (json_int_t)columns)
                         : json_pack("[I]", (json_int_t)columns);
    if (!shape || json_object_set_new(t->object, name, shape) != 0)
        t->failed = true;
}

static void add_gpt2(struct tensors *t, const struct tool_model_config *c)
{
    const uint64_t h = c->width, f = c->mlp_width;
    add(t, c->vocabulary, h, "wte.weight");
    add(t, c->context, h, "wpe.weight");
    for (uint32_t i = 0; i < c->layer_count; i++) {
        for (int n = 1; n <= 2; n++) {
            add(t, 0, h, "h.%u.ln_%d.weight", i, n);
            add(t, 0, h, "h.%u.ln_%d.bias", i, n);
        }
        add(t, h, 3 * h, "h.%u.attn.c_attn.weight", i);
        add(t, 0, 3 * h, "h.%u.attn.c_attn.bias", i);
        add(t, h, h, "h.%u.attn.c_proj.weight", i);
        add(t, 0, h, "h.%u.attn.c_proj.bias", i);
        add(t, h, f, "h.%u.mlp.c_fc.weight", i);
        add(t, 0, f, "h.%u.mlp.c_fc.bias", i);
        add(t, f, h, "h.%u.mlp.c_proj.weight", i);
        add(t, 0, h, "h.%u.mlp.c_proj.bias", i);
    }
    add(t, 0, h, "ln_f.weight");
    add(t, 0, h, "ln_f.bias");
    if (!c->tied_head)
        add(t, c->vocabulary, h, "lm_head.weight");
}

static void add_attention(struct tensors *t, const struct tool_model_config *c, uint32_t i)
{
    const uint64_t h = c->width, q = (uint64_t)c->head_count * c->head_size;
    const uint64_t kv = (uint64_t)c->kv_head_count * c->head_size;
    const struct {
        char letter;
        uint64_t width;
    } ins[] = {{'q', q}, {'k', kv}, {'v', kv}};
    for (int k = 0; k < 3; k++) {
        add(t, ins[k].width, h, "model.layers.%u.self_attn.%c_proj.weight", i, ins[k].letter);
        if (c->qkv_bias)
            add(t, 0, ins[k].width, "model.layers.%u.self_attn.%c_proj.bias", i, ins[k].letter);
        if (c->qk_norm && k < 2)
            add(t, 0, c->head_size, "model.layers.%u.self_attn.%c_norm.weight", i, ins[k].letter);
    }
    add(t, h, q, "model.layers.%u.self_attn.o_proj.weight", i);
    if (c->out_bias)
        add(t, 0, h, "model.layers.%u.self_attn.o_proj.bias", i);
}

static void add_experts(struct tensors *t, const struct tool_model_config *c, uint32_t i)
{
    const bool mixtral = c->family == TOOL_CONFIG_MIXTRAL;
    static const char *const names[2][3] = {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};
    const char *part = mixtral ? "block_sparse_moe" : "mlp";
    add(t, c->expert_count, c->width, "model.layers.%u.%s.gate.weight", i, part);
    for (uint32_t e = 0; e < c->expert_count; e++)
        for (int k = 0; k < 3; k++)
            add(t, k == 2 ? c->width : c->expert_width, k == 2 ? c->expert_width : c->width,
                "model.layers.%u.%s.experts.%u.%s.weight", i, part, e, names[mixtral][k]);
}

static void add_dense(struct tensors *t, const struct tool_model_config *c, uint32_t i)
{
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    for (int k = 0; k < 3; k++) {
        const uint64_t out = k == 2 ? c->width : c->mlp_width, in = k == 2 ? c->mlp_width : c->width;
        add(t, out, in, "model.layers.%u.mlp.%s.weight", i, names[k]);
        if (c->mlp_bias)
            add(t, 0, out, "model.layers.%u.mlp.%s.bias", i, names[k]);
    }
}

uint64_t tool_model_config_tensor_count(const struct tool_model_config *config)
{
    const struct tool_model_config *c = config;
    const uint64_t head = c->tied_head ? 0 : 1;
    if (c->family == TOOL_CONFIG_GPT2)
        return 2 + 12 * (uint64_t)c->layer_count + 2 + head;
    const uint64_t block = 2 + 4 + (c->qkv_bias ? 3 : 0) + (c->qk_norm ? 2 : 0) + (c->out_bias ? 1 : 0);
    uint64_t count = 1 + 1 + head;
    for (uint32_t i = 0; i < c->layer_count; i++)
        count += block + (c->expert_count && !c->dense[i] ? 1 + 3 * (uint64_t)c->expert_count : c->mlp_bias ? 6 : 3);
    return count;
}

json_t *tool_model_config_tensors(const struct tool_model_config *config)
{
    const struct tool_model_config *c = config;
    struct tensors t = {.object = json_object()};
    if (!t.object)
        return NULL;
    if (c->family == TOOL_CONFIG_GPT2) {
        add_gpt2(&t, c);
    } else {
        add(&t, c->vocabulary, c->width, "model.embed_tokens.weight");
        for (uint32_t i = 0; i < c->layer_count; i++) {
            add(&t, 0, c->width, "model.layers.%u.input_layernorm.weight", i);
            add_attention(&t, c, i);
            add(&t, 0, c->width, "model.layers.%u.post_attention_layernorm.weight", i);
            if (c->expert_count && !c->dense[i])
                add_experts(&t, c, i);
            else
                add_dense(&t, c, i);
        }
        add(&t, 0, c->width, "model.norm.weight");
        if (!c->tied_head)
            add(&t, c->vocabulary, c->width, "lm_head.weight");
    }
    if (t.failed) {
        json_decref(t.object);
        return NULL;
    }
    return t.object;
}
