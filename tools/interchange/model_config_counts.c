/* SPDX-License-Identifier: MIT
 *
 * What follows from a config: its parameters, and whether the layers run it.
 */
#include "tools/interchange/model_config.h"

#include <stdio.h>

static bool has_experts(const struct tool_model_config *c, uint32_t layer)
{
    return c->expert_count && !c->dense[layer];
}

static uint64_t layer_elements(const struct tool_model_config *c, uint32_t layer, uint64_t experts)
{
    const uint64_t h = c->width, f = c->mlp_width, q = (uint64_t)c->head_count * c->head_size;
    const uint64_t kv = (uint64_t)c->kv_head_count * c->head_size;
    if (c->family == TOOL_CONFIG_GPT2)
        return 4 * h * h + 2 * h * f + f + 9 * h;
    uint64_t n = 2 * h * q + 2 * h * kv + 2 * h;
    n += (c->qkv_bias ? q + 2 * kv : 0) + (c->out_bias ? h : 0) + (c->qk_norm ? 2 * (uint64_t)c->head_size : 0);
    if (has_experts(c, layer))
        return n + experts * 3 * h * c->expert_width + h * c->expert_count;
    return n + 3 * h * f + (c->mlp_bias ? 2 * f + h : 0);
}

uint64_t tool_model_config_layer_parameters(const struct tool_model_config *config, uint32_t layer)
{
    return layer_elements(config, layer, config->expert_count);
}

static uint64_t all_elements(const struct tool_model_config *c, uint64_t experts)
{
    uint64_t n = (uint64_t)c->vocabulary * c->width * (c->tied_head ? 1 : 2);
    n += c->family == TOOL_CONFIG_GPT2 ? (uint64_t)c->context * c->width + 2 * (uint64_t)c->width : c->width;
    for (uint32_t i = 0; i < c->layer_count; i++)
        n += layer_elements(c, i, experts);
    return n;
}

uint64_t tool_model_config_parameters(const struct tool_model_config *config)
{
    return all_elements(config, config->expert_count);
}

uint64_t tool_model_config_active_parameters(const struct tool_model_config *config)
{
    return all_elements(config, config->experts_per_token);
}

bool tool_model_config_runs(const struct tool_model_config *config, char *why, size_t why_bytes)
{
    const struct tool_model_config *c = config;
    why[0] = '\0';
    if (c->expert_count)
        snprintf(why, why_bytes, "the layers have no experts");
    else if (c->out_bias || c->mlp_bias)
        snprintf(why, why_bytes, "the layers of Llama have biases of q, k and v only");
    return why[0] == '\0';
}

void tool_model_config_transformer(const struct tool_model_config *config, eo_transformer_config *out)
{
    *out = (eo_transformer_config){
        .family = config->family == TOOL_CONFIG_GPT2 ? EO_FAMILY_GPT2 : EO_FAMILY_LLAMA,
        .layer_count = config->layer_count,
        .width = config->width,
        .head_count = config->head_count,
        .kv_head_count = config->kv_head_count,
        .mlp_width = config->mlp_width,
        .vocabulary = config->vocabulary,
        .context = config->context,
        .tied_head = config->tied_head,
        .norm_eps = (float)config->norm_eps,
        .rope_theta = (float)config->rope_theta,
        .head_size = config->head_size,
        .qkv_bias = config->qkv_bias,
        .qk_norm = config->qk_norm,
        .rope_scaling = config->rope_scaling,
    };
}

eo_status tool_model_config_transformer_exact(const struct tool_model_config *config, eo_transformer_config *out,
                                              struct tool_problem *problem)
{
    if (config->not_computed[0])
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED,
                                "%s: its weights need %s, unknown to the layers: they would be another model here",
                                config->source, config->not_computed);
    tool_model_config_transformer(config, out);
    if (config->window)
        out->context = config->window;
    return EO_OK;
}
