/* SPDX-License-Identifier: MIT
 *
 * A model of a family that the layers have no kernels for, described as the layers describe theirs: the same layers,
 * positions, rows and lifetimes, with what the family has more (experts, biases behind products).
 *
 * Every rank gathers all experts of a layer, and keeps as many rows as its tokens have experts: no row depends on how
 * the router spreads them. Beside expert parallelism experts are a layer of their own, of fewer ranks, with as many rows.
 */
#include <stdio.h>
#include <string.h>

#include "tools/interchange/model_blocks.h"
#include "tools/memplan/plan/block_rows.h"
#include "tools/memplan/plan/description.h"

/* --- parameters --------------------------------------------------------------------------------------------------- */

static eo_status add_words(struct tool_description *d, uint32_t layer, const char *name, bool is_head)
{
    return eo_model_add_parameter(d->model, &(eo_parameter_params){
        .layer = layer, .name = name, .dim_count = 2, .dims = {d->config->vocabulary, d->config->width},
        .padding = is_head ? d->scratch.word_padding : 0}, NULL);
}

static bool is_gpt2(const struct tool_description *d)
{
    return d->config->family == TOOL_CONFIG_GPT2;
}

/* --norms fp32, of a tensor of published files. */
static bool is_fp32(const struct tool_description *d, const char *name)
{
    return d->settings->fp32_norms && d->settings->dtype == EO_DTYPE_BF16 &&
           (strstr(name, "norm") != NULL || strncmp(name, "ln_", 3) == 0);
}

static eo_status add_norm(struct tool_description *d, uint32_t layer)
{
    static const char *const names[2][2] = {{"model.norm.weight"}, {"ln_f.weight", "ln_f.bias"}};
    for (int i = 0; i <= is_gpt2(d); i++)
        EO_TRY(eo_model_add_parameter(d->model, &(eo_parameter_params){
            .layer = layer, .name = names[is_gpt2(d)][i], .dim_count = 1, .dims = {d->config->width}, .no_weight_decay = true,
            .fp32 = is_fp32(d, names[is_gpt2(d)][i])}, NULL));
    return EO_OK;
}

enum part { PART_ATTENTION, PART_MLP, PART_EXPERTS };

static bool has_apart(const struct tool_description *d, uint32_t block)
{
    return d->expert_parts > 1 && tool_config_has_experts(d->config, block);
}

/* Of one part of a block, as published files have them; experts one after the other in one tensor. */
static eo_status add_block_parameters(struct tool_description *d, uint32_t layer, uint32_t block, enum part part)
{
    struct tool_block_tensor tensors[TOOL_BLOCK_TENSORS_MAX];
    const uint32_t count = tool_block_tensors(d->config, block, tensors);
    for (uint32_t i = 0; i < count; i++) {
        const struct tool_block_tensor *t = &tensors[i];
        eo_parameter_params params = {
            .layer = layer, .no_weight_decay = !t->multiplies, .float8_gather = t->multiplies && !t->is_fine,
            .fp32 = is_fp32(d, t->name)};
        char name[EO_NAME_MAX * 2];
        const bool is_expert = t->kind == TOOL_TENSOR_EXPERT;
        const enum part own = is_expert && has_apart(d, block) ? PART_EXPERTS : t->in_mlp ? PART_MLP : PART_ATTENTION;
        const uint32_t share = is_expert && d->slice->expert ? d->slice->expert : 1;
        if (own != part || t->kind == TOOL_TENSOR_BUFFER)
            continue;
        snprintf(name, sizeof(name), "%s.%u.%s%s", is_gpt2(d) ? "h" : "model.layers", block, t->name, t->each ? t->each : "");
        params.name = name;
        if (t->count > 1)
            params.dims[params.dim_count++] = t->count / share;
        for (int k = 0; k < 3 && t->dims[k]; k++)
            params.dims[params.dim_count++] = t->dims[k] / (t->count > 1 || k > 0 ? 1 : share);
        params.matrix = t->multiplies && params.dim_count == 2;
        EO_TRY(eo_model_add_parameter(d->model, &params, NULL));
    }
    return EO_OK;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static eo_status add_row(struct tool_description *d, const char *name, uint64_t bytes, eo_category category, eo_moment first,
                         eo_moment last)
{
    return eo_model_add_buffer(d->model, &(eo_buffer_params){
        .name = name, .bytes = tool_description_max(bytes, 1), .category = category, .first = first, .last = last}, NULL);
}

/* From a forward pass to the backward pass at hand. With several micro-batches under way each has its own: backward of one
 * follows on forward of a later one. */
static eo_status add_kept(struct tool_description *d, const char *name, uint64_t bytes, eo_moment first)
{
    if (d->in_flight <= 1)
        return add_row(d, name, bytes, EO_CATEGORY_ACTIVATION, first, (eo_moment){EO_PASS_BACKWARD, d->position});
    return eo_model_add_buffer(d->model, &(eo_buffer_params){
        .name = name, .bytes = d->in_flight * tool_description_align(tool_description_max(bytes, 1)), .category = EO_CATEGORY_ACTIVATION,
        .persistent = true}, NULL);
}

/* Of the position at hand and its forward pass alone: one for all its halves, which run one after the other. */
static eo_status add_passing(struct tool_description *d, uint32_t block, const char *part, const char *name, uint64_t bytes)
{
    const eo_moment forward = {EO_PASS_FORWARD, d->position};
    char text[EO_NAME_MAX];
    for (uint32_t i = 0; i < d->passing_count; i++)
        if (d->passing[i].bytes == bytes && strcmp(d->passing[i].name, name) == 0)
            return EO_OK;
    if (d->passing_count < sizeof(d->passing) / sizeof(d->passing[0])) {
        d->passing[d->passing_count].name = name;
        d->passing[d->passing_count++].bytes = bytes;
    }
    snprintf(text, sizeof(text), "block.%u.%s.%s", block, part, name);
    return add_row(d, text, bytes, EO_CATEGORY_SCRATCH, forward, forward);
}

/* Of the position at hand: kept to its backward pass, or made again there. */
static eo_status add_tensor(struct tool_description *d, uint32_t block, const char *part, const char *name, bool cheap,
                            bool keeps, uint64_t bytes)
{
    const eo_moment forward = {EO_PASS_FORWARD, d->position}, recompute = {EO_PASS_RECOMPUTE, d->position};
    const eo_moment backward = {EO_PASS_BACKWARD, d->position};
    const bool is_input = strcmp(name, "input") == 0; /* which the next half reads: it has its own */
    char text[EO_NAME_MAX], again[EO_NAME_MAX + 8];
    snprintf(text, sizeof(text), "block.%u.%s.%s", block, part, name);
    if (!d->recompute && !(cheap && d->settings->recompute == EO_RECOMPUTE_CHEAP))
        return add_kept(d, text, bytes, forward);
    if (keeps) /* what experts of their own layer are made again from */
        return add_kept(d, text, bytes, forward);
    snprintf(again, sizeof(again), "%s.again", text);
    EO_TRY(is_input ? add_row(d, text, bytes, EO_CATEGORY_SCRATCH, forward, forward)
                    : add_passing(d, block, part, name, bytes));
    return add_row(d, again, bytes, EO_CATEGORY_SCRATCH, recompute, backward);
}

/* Whether the kernel of its gradient gives the tensor again, so that it need not be kept. A recompute makes it for what
 * follows: behind a norm something does, and behind experts, and before a norm behind the MLP. What experts are chosen by is
 * kept. */
static bool is_remade(const struct tool_description *d, uint32_t block, const struct tool_block_row *row)
{
    const bool has_experts = tool_config_has_experts(d->config, block);
    if (row->norm)
        return !d->recompute && !(row->in_mlp && has_experts);
    return d->scratch.remakes && row->gradient_remakes && !(d->recompute && (has_experts || d->config->norms != TOOL_NORMS_BEFORE));
}

static eo_status add_block_rows(struct tool_description *d, uint32_t block, enum part part)
{
    struct tool_block_row rows[TOOL_BLOCK_ROWS_MAX];
    const bool remakes = !d->recompute && d->settings->recompute == EO_RECOMPUTE_CHEAP;
    const uint32_t count = tool_block_rows(d->config, block, remakes, rows);
    for (const struct tool_block_row *row = rows; row < rows + count; row++) {
        const char *half = row->in_mlp ? "mlp" : "attention";
        const uint64_t bytes =
            (row->cut ? d->rows : d->stream_rows) * row->width * (row->bytes ? row->bytes : d->element_bytes);
        if (part != (row->routed && has_apart(d, block) ? PART_EXPERTS : row->in_mlp ? PART_MLP : PART_ATTENTION))
            continue;
        EO_TRY(is_remade(d, block, row) ? add_passing(d, block, half, row->name, bytes)
                                        : add_tensor(d, block, half, row->name, row->cheap && !row->norm,
                                                     row->routes && has_apart(d, block), bytes));
    }
    return EO_OK;
}

static eo_status add_scratch(struct tool_description *d, uint32_t block, const char *part, uint64_t backward, bool attention)
{
    const eo_moment forward = {EO_PASS_FORWARD, d->position}, recompute = {EO_PASS_RECOMPUTE, d->position};
    char text[EO_NAME_MAX];
    if (attention) {
        snprintf(text, sizeof(text), "block.%u%s.forward_scratch", block, part);
        EO_TRY(add_row(d, text, d->scratch.forward, EO_CATEGORY_SCRATCH, forward, forward));
    }
    snprintf(text, sizeof(text), "block.%u%s.scratch", block, part);
    return add_row(d, text, backward, EO_CATEGORY_SCRATCH, recompute, (eo_moment){EO_PASS_BACKWARD, d->position});
}

/* --- positions ---------------------------------------------------------------------------------------------------- */

static eo_status add_position(struct tool_description *d, const char *name, uint32_t *layer)
{
    EO_TRY(eo_model_add_layer(d->model, &(eo_layer_params){.name = name}, layer));
    d->passing_count = 0;
    return eo_model_add_position(d->model, &(eo_position_params){.layer = *layer}, &d->position);
}

/* The residual stream's row into a half: written by the position before, or in the middle of this one. */
static eo_status add_input(struct tool_description *d, uint32_t block, const char *part, uint32_t writer)
{
    const uint64_t bytes = d->stream_rows * d->config->width * d->element_bytes;
    char text[EO_NAME_MAX];
    snprintf(text, sizeof(text), "block.%u.%s.input", block, part);
    if (writer == UINT32_MAX) /* received, and kept though the block may be made again */
        return add_kept(d, text, bytes, (eo_moment){EO_PASS_FORWARD, d->position});
    if (writer == d->position)
        return add_tensor(d, block, part, "input", false, has_apart(d, block) && strcmp(part, "mlp") == 0, bytes);
    return add_kept(d, text, bytes, (eo_moment){EO_PASS_FORWARD, writer});
}

/* The first block of a chunk gets its input from another stage. */
static bool is_received(const struct tool_description *d, uint32_t block)
{
    return block > 0 && d->slice->pipeline > 1 && block % tool_slice_chunk_blocks(d->slice, d->config) == 0;
}

/* Experts whose layer fewer ranks share. */
static eo_status add_experts(struct tool_description *d, uint32_t block)
{
    char name[EO_NAME_MAX];
    uint32_t layer;
    snprintf(name, sizeof(name), "block.%u.experts", block);
    EO_TRY(eo_model_add_layer(d->model, &(eo_layer_params){.name = name, .parts = d->expert_parts}, &layer));
    d->passing_count = 0;
    EO_TRY(eo_model_add_position(d->model, &(eo_position_params){.layer = layer}, &d->position));
    EO_TRY(add_block_parameters(d, layer, block, PART_EXPERTS));
    EO_TRY(add_block_rows(d, block, PART_EXPERTS));
    return add_scratch(d, block, ".experts", tool_description_expert_scratch(d), false);
}

static eo_status add_block(struct tool_description *d, uint32_t block)
{
    const bool halves = d->settings->half_blocks;
    const uint64_t attention = tool_description_attention_scratch(d, block), mlp = tool_description_mlp_scratch(d, block);
    char name[EO_NAME_MAX];
    uint32_t layer;
    d->recompute = d->settings->recompute == EO_RECOMPUTE_BLOCKS && block < d->settings->recompute_blocks;
    snprintf(name, sizeof(name), "block.%u%s", block, halves ? ".attention" : "");
    EO_TRY(add_position(d, name, &layer));
    EO_TRY(add_block_parameters(d, layer, block, PART_ATTENTION));
    EO_TRY(add_input(d, block, "attention", d->position && !is_received(d, block) ? d->position - 1 : UINT32_MAX));
    EO_TRY(add_block_rows(d, block, PART_ATTENTION));
    if (halves) {
        EO_TRY(add_scratch(d, block, ".attention", attention, true));
        snprintf(name, sizeof(name), "block.%u.mlp", block);
        EO_TRY(add_position(d, name, &layer));
    }
    EO_TRY(add_block_parameters(d, layer, block, PART_MLP));
    EO_TRY(add_input(d, block, "mlp", halves ? d->position - 1 : d->position));
    EO_TRY(add_block_rows(d, block, PART_MLP));
    EO_TRY(halves ? add_scratch(d, block, ".mlp", mlp, false)
                  : add_scratch(d, block, "", tool_description_max(attention, mlp), true));
    return has_apart(d, block) ? add_experts(d, block) : EO_OK;
}

static eo_status add_embedding(struct tool_description *d, uint32_t *layer)
{
    const struct tool_model_config *c = d->config;
    static const uint32_t tables[] = {0, 1};
    EO_TRY(eo_model_add_layer(d->model, &(eo_layer_params){.name = "embedding"}, layer));
    EO_TRY(add_words(d, *layer, is_gpt2(d) ? "wte.weight" : "model.embed_tokens.weight", c->tied_head));
    if (is_gpt2(d))
        EO_TRY(eo_model_add_parameter(d->model, &(eo_parameter_params){
            .layer = *layer, .name = "wpe.weight", .dim_count = 2, .dims = {c->context, c->width}}, NULL));
    if (c->tied_head)
        EO_TRY(add_norm(d, *layer));
    return eo_model_add_position(d->model,
                                 &(eo_position_params){.layer = *layer,
                                                       .backward_without_weights = true,
                                                       .parameters = tables,
                                                       .parameter_count = is_gpt2(d) ? 2 : 1,
                                                       .adds_gradients = c->tied_head && d->is_last},
                                 &d->position);
}

static eo_status add_head(struct tool_description *d, uint32_t embedding)
{
    const struct tool_model_config *c = d->config;
    const uint32_t last = d->position;
    uint32_t layer = embedding;
    if (!c->tied_head) {
        EO_TRY(eo_model_add_layer(d->model, &(eo_layer_params){.name = "head"}, &layer));
        EO_TRY(add_norm(d, layer));
        EO_TRY(add_words(d, layer, "lm_head.weight", true));
    }
    static const uint32_t tied[] = {0, 2, 3}; /* of GPT-2's embedding all but the places */
    const bool has_places = c->tied_head && is_gpt2(d);
    EO_TRY(eo_model_add_position(d->model, &(eo_position_params){
        .layer = layer, .name = "head", .forward_in_backward = true, .parameters = has_places ? tied : NULL,
        .parameter_count = has_places ? 3 : 0}, &d->position));
    const eo_moment from = {EO_PASS_RECOMPUTE, d->position}, to = {EO_PASS_BACKWARD, d->position};
    const uint64_t chunk = d->scratch.chunk, stream = d->stream_rows * c->width * d->element_bytes;
    EO_TRY(add_row(d, "head.input", stream, EO_CATEGORY_ACTIVATION, (eo_moment){EO_PASS_FORWARD, last}, to));
    EO_TRY(add_row(d, "stream.gradient", stream, EO_CATEGORY_SCRATCH, from, (eo_moment){EO_PASS_BACKWARD, 0}));
    EO_TRY(add_row(d, "head.norm", chunk * c->width * d->element_bytes, EO_CATEGORY_HEAD, from, to));
    EO_TRY(add_row(d, "head.norm_stats", 2 * chunk * sizeof(float), EO_CATEGORY_HEAD, from, to));
    EO_TRY(add_row(d, "head.logits", d->scratch.logits, EO_CATEGORY_HEAD, from, to));
    EO_TRY(add_row(d, "head.losses", chunk * sizeof(float), EO_CATEGORY_HEAD, from, to));
    EO_TRY(add_row(d, "head.loss", sizeof(double), EO_CATEGORY_HEAD, from, to));
    return add_row(d, "head.scratch", d->scratch.head, EO_CATEGORY_HEAD, from, to);
}

/* What goes to the next stage, behind each chunk of blocks. */
static eo_status add_sent(struct tool_description *d, uint32_t chunk)
{
    const eo_moment end = {EO_PASS_FORWARD, d->position};
    char name[EO_NAME_MAX] = "stage.output";
    if (tool_slice_chunks(d->slice) > 1)
        snprintf(name, sizeof(name), "stage.output.%u", chunk);
    return add_row(d, name, d->stream_rows * d->config->width * d->element_bytes, EO_CATEGORY_SCRATCH, end, end);
}

/* The gradient that comes from the next stage. */
static eo_status add_received_gradient(struct tool_description *d)
{
    return add_row(d, "stream.gradient", d->stream_rows * d->config->width * d->element_bytes, EO_CATEGORY_SCRATCH,
                   (eo_moment){EO_PASS_RECOMPUTE, d->position}, (eo_moment){EO_PASS_BACKWARD, 0});
}

/* The stage's own, chunk by chunk. */
static eo_status add_blocks(struct tool_description *d)
{
    const uint32_t blocks = tool_slice_chunk_blocks(d->slice, d->config), chunks = tool_slice_chunks(d->slice);
    for (uint32_t block = 0; block < d->config->layer_count; block++) {
        if (!tool_slice_has_block(d->slice, d->config, block))
            continue;
        const uint32_t chunk = d->slice->pipeline > 1 ? block / blocks / d->slice->pipeline : 0;
        d->in_flight = d->slice->pipeline > 1 ? tool_slice_in_flight(d->slice, chunk) : 1;
        EO_TRY(add_block(d, block));
        if (d->slice->pipeline > 1 && (block + 1) % blocks == 0 && !(d->is_last && chunk + 1 == chunks))
            EO_TRY(add_sent(d, chunk));
    }
    return EO_OK;
}

static eo_status add_persistent(struct tool_description *d, const char *name, uint64_t bytes)
{
    return eo_model_add_buffer(d->model, &(eo_buffer_params){
        .name = name, .bytes = bytes, .category = EO_CATEGORY_OTHER, .persistent = true}, NULL);
}

/* Before anything is built. */
static eo_status check_layers(const struct tool_description *d)
{
    const uint32_t layers = d->config->layer_count, others = d->config->tied_head ? 1 : 2;
    const uint32_t parts = (d->settings->half_blocks ? 2 : 1) + (d->expert_parts > 1), most = (TOOL_CONFIG_LAYERS_MAX - others) / parts;
    char text[200];
    if (layers <= most)
        return EO_OK;
    snprintf(text, sizeof(text), "%u blocks%s and %s are more than the limit of %d layers; at most %u blocks are possible",
             layers, parts > 1 ? " in parts" : "", others == 1 ? "the embedding" : "embedding and head",
             TOOL_CONFIG_LAYERS_MAX, most);
    d->log->write(d->log->user, EO_LOG_ERROR, text);
    return EO_ERR_INVALID;
}

static eo_status describe_all(struct tool_description *d, struct tool_scratch_memory *memory)
{
    const struct tool_plan_settings *s = d->settings;
    uint32_t embedding = UINT32_MAX;
    EO_TRY(check_layers(d));
    EO_TRY(tool_description_find_scratch(d, memory));
    if (d->is_first)
        EO_TRY(add_embedding(d, &embedding));
    EO_TRY(add_blocks(d));
    EO_TRY(d->is_last ? add_head(d, embedding) : add_received_gradient(d));
    const uint64_t token_bytes = d->rows * sizeof(int32_t) * (s->graph ? s->micro_batches : 1);
    EO_TRY(add_persistent(d, "tokens", token_bytes));
    EO_TRY(add_persistent(d, "targets", token_bytes));
    if (strcmp(s->device, "cpu") != 0 && !is_gpt2(d)) /* cosine and sine of every position and pair */
        EO_TRY(add_persistent(d, "rope_table", (uint64_t)s->seq * d->config->head_size * sizeof(float)));
    if (d->scratch.product > 0)
        EO_TRY(add_persistent(d, "product_scratch", d->scratch.product));
    return d->scratch.embedding == 0 || !d->is_first
               ? EO_OK
               : add_row(d, "embedding.scratch", d->scratch.embedding, EO_CATEGORY_SCRATCH,
                         (eo_moment){EO_PASS_BACKWARD, 0}, (eo_moment){EO_PASS_BACKWARD, 0});
}

eo_status tool_memplan_describe(eo_model **out, const struct tool_model_config *config,
                                const struct tool_plan_settings *settings, const struct tool_slice *slice,
                                struct tool_scratch_memory *memory, const eo_log *log)
{
    struct tool_description d = {.config = config,
                            .settings = settings,
                            .log = log,
                            .rows = (uint64_t)settings->batch * settings->seq,
                            .slice = slice, .is_first = slice->stage == 0, .is_last = slice->pipeline <= 1 || slice->stage + 1 == slice->pipeline,
                            .stream_rows = (uint64_t)settings->batch * settings->seq / (slice->sequence_parallel && slice->tensor ? slice->tensor : 1),
                            .expert_parts = tool_slice_expert_parts(slice),
                            .element_bytes = eo_dtype_bytes(settings->dtype)};
    *out = NULL;
    EO_TRY(eo_model_create(&d.model, &(eo_model_params){.name = tool_config_family_name(config->family), .log = log}));
    const eo_status status = describe_all(&d, memory);
    if (status < 0)
        eo_model_destroy(&d.model);
    *out = d.model;
    return status;
}
