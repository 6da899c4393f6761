/* SPDX-License-Identifier: MIT
 *
 * What follows from a config: its parameters, and whether the layers run it.
 */
#include "tools/interchange/model_blocks.h"

#include <stdio.h>

/* `experts` of them counted. */
static uint64_t layer_elements(const struct tool_model_config *c, uint32_t layer, uint64_t experts)
{
    struct tool_block_tensor tensors[TOOL_BLOCK_TENSORS_MAX];
    uint64_t n = 0;
    for (uint32_t k = tool_block_tensors(c, layer, tensors); k > 0; k--) {
        const struct tool_block_tensor *t = &tensors[k - 1];
        const uint64_t elements = tool_block_tensor_elements(t);
        n += t->kind == TOOL_TENSOR_BUFFER   ? 0
             : t->kind == TOOL_TENSOR_EXPERT ? elements / c->expert_count * experts
                                             : elements;
    }
    return n;
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

double tool_model_config_core_flops(const struct tool_model_config *config, uint32_t seq)
{
    const struct tool_model_config *c = config;
    const double q = (double)c->head_count * c->head_size, v = c->latent.kv_rank ? (double)c->head_count * c->latent.value : q;
    const double state = (double)c->linear.value_heads * c->linear.key_size * c->linear.value_size, s = seq, w = c->window;
    double flops = 0;
    for (uint32_t i = 0; i < c->layer_count; i++)
        flops += c->mixers[i] == TOOL_MIXER_LINEAR              ? 6 * state
                 : c->mixers[i] == TOOL_MIXER_WINDOW && seq > w ? 2 * (q + v) * (w - w * w / (2 * s))
                                                                : (q + v) * s;
    return flops;
}

bool tool_model_config_runs(const struct tool_model_config *config, char *why, size_t why_bytes)
{
    const struct tool_model_config *c = config;
    why[0] = '\0';
    if (c->linear.kernel)
        snprintf(why, why_bytes, "the layers have no linear attention, and no experts");
    else if (c->latent.kv_rank)
        snprintf(why, why_bytes, "the layers have no latent attention, and no experts");
    else if (c->expert_count)
        snprintf(why, why_bytes, "the layers have no experts");
    else if (c->norms != TOOL_NORMS_BEFORE)
        snprintf(why, why_bytes, "the layers have no norms behind attention and MLP");
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
        .unrotated_interval = config->unrotated_interval,
        .initial_deviation = (float)config->initializer_range,
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
