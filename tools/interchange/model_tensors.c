/* SPDX-License-Identifier: MIT
 *
 * Names and shapes of a model's tensors in published files. GPT-2's matrices lie [in][out] there.
 */
#include <stdarg.h>
#include <stdio.h>

#include "tools/interchange/model_blocks.h"

struct tensors {
    json_t *object;
    bool failed;
};

static void add(struct tensors *t, const uint64_t dims[3], const char *format, ...) EO_PRINTF(3, 4);

static void add(struct tensors *t, const uint64_t dims[3], const char *format, ...)
{
    char name[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof(name), format, arguments);
    va_end(arguments);
    json_t *shape = json_array();
    for (int d = 0; d < 3 && dims[d]; d++)
        if (json_array_append_new(shape, json_integer((json_int_t)dims[d])) != 0)
            t->failed = true;
    if (!shape || json_object_set_new(t->object, name, shape) != 0)
        t->failed = true;
}

static void add_block(struct tensors *t, const struct tool_model_config *c, uint32_t layer)
{
    struct tool_block_tensor tensors[TOOL_BLOCK_TENSORS_MAX];
    const uint32_t count = tool_block_tensors(c, layer, tensors);
    const char *prefix = c->family == TOOL_CONFIG_GPT2 ? "h" : "model.layers";
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t e = 0; e < tensors[i].count; e++)
            if (tensors[i].each)
                add(t, tensors[i].dims, "%s.%u.%s%u.%s", prefix, layer, tensors[i].name, e, tensors[i].each);
            else
                add(t, tensors[i].dims, "%s.%u.%s", prefix, layer, tensors[i].name);
}

uint64_t tool_model_config_tensor_count(const struct tool_model_config *config)
{
    struct tool_block_tensor tensors[TOOL_BLOCK_TENSORS_MAX];
    uint64_t count = (config->family == TOOL_CONFIG_GPT2 ? 4 : 2) + (config->tied_head ? 0 : 1);
    for (uint32_t i = 0; i < config->layer_count; i++)
        for (uint32_t k = tool_block_tensors(config, i, tensors); k > 0; k--)
            count += tensors[k - 1].count;
    return count;
}

json_t *tool_model_config_tensors(const struct tool_model_config *config)
{
    const struct tool_model_config *c = config;
    const bool is_gpt2 = c->family == TOOL_CONFIG_GPT2;
    const uint64_t table[] = {c->vocabulary, c->width, 0}, positions[] = {c->context, c->width, 0}, norm[] = {c->width, 0, 0};
    struct tensors t = {.object = json_object()};
    if (!t.object)
        return NULL;
    add(&t, table, "%s", is_gpt2 ? "wte.weight" : "model.embed_tokens.weight");
    if (is_gpt2)
        add(&t, positions, "wpe.weight");
    for (uint32_t i = 0; i < c->layer_count; i++)
        add_block(&t, c, i);
    add(&t, norm, "%s", is_gpt2 ? "ln_f.weight" : "model.norm.weight");
    if (is_gpt2)
        add(&t, norm, "ln_f.bias");
    if (!c->tied_head)
        add(&t, table, "lm_head.weight");
    if (t.failed) {
        json_decref(t.object);
        return NULL;
    }
    return t.object;
}
