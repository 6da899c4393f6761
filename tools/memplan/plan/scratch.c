/* SPDX-License-Identifier: MIT
 *
 * What the kernels of a described model take as scratch: that of the nearest kernels there are, asked of the layers with a model
 * of one block that has the same attention.
 */
#include "tools/memplan/plan/description.h"

#include <string.h>

#include "tools/memplan/plan/block_rows.h"

/* --- scratch, asked of the layers --------------------------------------------------------------------------------- */

static uint64_t row_bytes(const eo_plan *plan, uint32_t row_count, const char *name)
{
    for (uint32_t r = 0; r < row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(plan, r, &row) >= 0 && strcmp(row.name, name) == 0)
            return row.bytes == 1 ? 0 : row.bytes; /* a row cannot be of no bytes: 1 stands for none */
    }
    return 0;
}

static bool is_kept(const eo_plan *plan, uint32_t row_count, const char *name)
{
    eo_plan_row row;
    for (uint32_t r = 0; r < row_count; r++)
        if (eo_plan_get_row(plan, r, &row) >= 0 && strcmp(row.name, name) == 0)
            return row.category == EO_CATEGORY_ACTIVATION;
    return false;
}

static eo_status find_padding(struct tool_description *d, const eo_model *model, bool gpt2)
{
    const char *name = !d->config->tied_head ? "lm_head.weight" : gpt2 ? "wte.weight" : "model.embed_tokens.weight";
    eo_parameter_info head;
    uint32_t index;
    EO_TRY(eo_model_find_parameter(model, name, &index));
    EO_TRY(eo_model_parameter(model, index, &head));
    d->scratch.word_padding = head.padding;
    return EO_OK;
}

/* One block of the layers, as halves; its rows under the names that the layers give them. */
static eo_status find_rows(struct tool_description *d, const eo_transformer_config *shape)
{
    eo_transformer *transformer = NULL;
    eo_plan *plan = NULL;
    const struct tool_plan_params params = tool_plan_params_of(&d->scratch.settings, shape, d->log);
    EO_TRY(eo_transformer_create(&transformer, &params.transformer));
    eo_status status = eo_plan_create(&plan, eo_transformer_model(transformer), &params.plan);
    if (status >= 0) {
        eo_plan_summary summary;
        eo_plan_get_summary(plan, &summary);
        d->scratch.forward = row_bytes(plan, summary.row_count, "block.0.attention.forward_scratch");
        d->scratch.attention = row_bytes(plan, summary.row_count, "block.0.attention.scratch");
        d->scratch.mlp = row_bytes(plan, summary.row_count, "block.0.mlp.scratch");
        d->scratch.remakes = !is_kept(plan, summary.row_count, "block.0.mlp.activation");
        d->scratch.head = row_bytes(plan, summary.row_count, "head.scratch");
        d->scratch.chunk = row_bytes(plan, summary.row_count, "head.losses") / sizeof(float);
        d->scratch.logits = row_bytes(plan, summary.row_count, "head.logits");
        d->scratch.embedding = row_bytes(plan, summary.row_count, "embedding.scratch");
        d->scratch.product = row_bytes(plan, summary.row_count, "product_scratch");
        eo_plan_destroy(&plan);
    }
    if (status >= 0)
        status = find_padding(d, eo_transformer_model(transformer), shape->family == EO_FAMILY_GPT2);
    eo_transformer_destroy(&transformer);
    return status;
}

/* Gradients of `inner` elements a token, then of `outer` ones: in one place, unless what lay there first is made again. */
static uint64_t gradient_bytes(const struct tool_description *d, uint64_t inner, uint64_t outer)
{
    const uint64_t row = d->rows * d->element_bytes;
    return d->scratch.remakes ? tool_description_align(row * inner) + tool_description_align(row * outer)
                      : tool_description_align(row * tool_description_max(inner, outer));
}

/* With this attention and the widest MLP. Of a part of a GPT-2 the attention is a Llama's: the layers' GPT-2 has all heads. */
static eo_status ask_layers(struct tool_description *d)
{
    const struct tool_model_config *c = d->config;
    const bool gpt2 = c->family == TOOL_CONFIG_GPT2, has_part = gpt2 && c->head_count * c->head_size != c->width;
    eo_transformer_config shape = d->scratch.shape;
    if (has_part) {
        shape.family = EO_FAMILY_LLAMA;
        EO_TRY(find_rows(d, &shape));
        shape.family = EO_FAMILY_GPT2;
        shape.head_count = shape.kv_head_count = c->width / c->head_size;
    }
    const uint64_t forward = d->scratch.forward, attention = d->scratch.attention;
    EO_TRY(find_rows(d, &shape));
    if (has_part) {
        d->scratch.forward = forward;
        d->scratch.attention = attention;
    }
    /* An MLP's is the gradient of what is widest in it, and what the norm's kernel asks for. */
    d->scratch.norm = d->scratch.mlp - gradient_bytes(d, shape.mlp_width, c->width);
    return EO_OK;
}

eo_status tool_description_find_scratch(struct tool_description *d, struct tool_scratch_memory *memory)
{
    const struct tool_plan_settings *s = d->settings;
    const struct tool_model_config *c = d->config;
    struct tool_scratch *asked = &d->scratch;
    asked->settings = (struct tool_plan_settings){
        .batch = s->batch, .seq = s->seq, .head_chunks = s->head_chunks, .threads = s->threads, .half_blocks = true,
        .dtype = s->dtype, .reduce_dtype = s->reduce_dtype, .device = s->device};
    tool_model_config_transformer(c, &asked->shape);
    asked->shape.layer_count = 1;
    asked->shape.mlp_width = c->mlp_width > c->expert_width ? c->mlp_width : c->expert_width;
    asked->shape.context = s->seq;
    for (uint32_t k = 0; k < memory->count && k < TOOL_SCRATCH_KEPT; k++) {
        const struct tool_scratch *found = &memory->found[k];
        if (memcmp(&found->settings, &asked->settings, sizeof(asked->settings)) == 0 &&
            memcmp(&found->shape, &asked->shape, sizeof(asked->shape)) == 0) {
            *asked = *found;
            return EO_OK;
        }
    }
    EO_TRY(ask_layers(d));
    memory->found[memory->count++ % TOOL_SCRATCH_KEPT] = *asked;
    return EO_OK;
}

/* Of the gated delta rule: gradients of what is projected, and a state a chunk and head, made again. */
static uint64_t linear_scratch(const struct tool_description *d)
{
    const struct tool_linear *n = &d->config->linear;
    const uint64_t key = (uint64_t)n->key_heads * n->key_size, value = (uint64_t)n->value_heads * n->value_size;
    const uint64_t chunks = d->settings->batch * (((uint64_t)d->settings->seq + TOOL_LINEAR_CHUNK - 1) / TOOL_LINEAR_CHUNK);
    return tool_description_align(d->rows * 2 * (key + value) * d->element_bytes) +
           tool_description_align(chunks * n->key_size * value * d->element_bytes) + tool_description_align(d->scratch.norm);
}

uint64_t tool_description_attention_scratch(const struct tool_description *d, uint32_t block)
{
    return d->config->mixers[block] == TOOL_MIXER_LINEAR ? linear_scratch(d) : d->scratch.attention;
}

/* Gradients of the experts' rows. */
uint64_t tool_description_expert_scratch(const struct tool_description *d)
{
    const struct tool_model_config *c = d->config;
    return gradient_bytes(d, (uint64_t)c->experts_per_token * c->expert_width, (uint64_t)c->experts_per_token * c->width);
}

uint64_t tool_description_mlp_scratch(const struct tool_description *d, uint32_t block)
{
    const struct tool_model_config *c = d->config;
    const uint64_t row = d->rows * d->element_bytes, kernels = tool_description_align(d->scratch.norm);
    if (c->family == TOOL_CONFIG_GPT2)
        return d->scratch.mlp;
    if (tool_config_has_experts(c, block)) /* and of the norm's */
        return (d->expert_parts > 1 ? 0 : tool_description_expert_scratch(d)) + tool_description_align(row * c->width) +
               tool_description_align(row * c->shared_width) + kernels;
    return gradient_bytes(d, c->mlp_width, c->width) + kernels;
}
