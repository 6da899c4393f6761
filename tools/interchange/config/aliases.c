/* SPDX-License-Identifier: MIT
 *
 * One field under two names: a family's own, and another that its files may have instead (transformers' attribute_map; its
 * version 5 saves Qwen3-MoE's experts under Mixtral's name).
 */
#include <string.h>

#include "tools/interchange/config/fields.h"

static const struct alias {
    enum tool_config_family family;
    const char *name, *own_name;
} aliases[] = {
    {TOOL_CONFIG_GPT2, "num_hidden_layers", "n_layer"},
    {TOOL_CONFIG_GPT2, "hidden_size", "n_embd"},
    {TOOL_CONFIG_GPT2, "num_attention_heads", "n_head"},
    {TOOL_CONFIG_GPT2, "max_position_embeddings", "n_positions"},
    {TOOL_CONFIG_MIXTRAL, "num_experts", "num_local_experts"},
    {TOOL_CONFIG_QWEN3_MOE, "num_local_experts", "num_experts"},
    {TOOL_CONFIG_GPT_OSS, "num_experts", "num_local_experts"},
    {TOOL_CONFIG_DEEPSEEK_V3, "num_local_experts", "n_routed_experts"},
    {TOOL_CONFIG_DEEPSEEK_V3, "num_mtp_layers", "num_nextn_predict_layers"},
};
enum { ALIASES = sizeof(aliases) / sizeof(aliases[0]) };

const char *tool_config_own_name(enum tool_config_family family, const char *name)
{
    for (uint32_t i = 0; i < ALIASES; i++)
        if (aliases[i].family == family && strcmp(aliases[i].name, name) == 0)
            return aliases[i].own_name;
    return name;
}

static bool say_the_same(const json_t *a, const json_t *b)
{
    return json_equal(a, b) || (json_is_number(a) && json_is_number(b) && json_number_value(a) == json_number_value(b));
}

eo_status tool_config_rename_aliases(struct tool_config_reader *r)
{
    for (uint32_t i = 0; i < ALIASES; i++) {
        const struct alias *a = &aliases[i];
        json_t *value = a->family == r->config->family ? tool_config_field(r, a->name) : NULL;
        json_t *own = tool_config_field(r, a->own_name);
        char shown[96], own_shown[96];
        if (value && own && !say_the_same(value, own)) {
            tool_config_show_value(value, shown, sizeof(shown));
            tool_config_show_value(own, own_shown, sizeof(own_shown));
            return tool_config_refuse(r, "%s is %s but %s is %s; both name the same thing", a->name, shown, a->own_name,
                                      own_shown);
        }
        if (value && !own)
            json_object_set(r->object, a->own_name, value);
        if (value)
            json_object_del(r->object, a->name);
    }
    return EO_OK;
}
