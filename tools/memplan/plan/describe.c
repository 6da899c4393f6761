/* SPDX-License-Identifier: MIT
 *
 * A model of a family that the layers have no kernels for, described as the layers describe theirs: the same layers,
 * positions, rows and lifetimes, with what the family has more (experts, biases behind products). What a kernel takes as
 * scratch is asked of the layers, with a model of one block that has the same attention.
 *
 * Every rank gathers all experts of a layer, and keeps as many rows as its tokens have experts: no row depends on how
 * the router spreads them.
 */
#include <stdio.h>
#include <string.h>

#include "tools/interchange/model_blocks.h"
#include "tools/memplan/plan/block_rows.h"
#include "tools/memplan/plan/plan.h"

struct description {
    eo_model *model;
    const struct tool_model_config *config;
    const struct tool_plan_settings *settings;
    const eo_log *log;
    uint64_t rows, element_bytes; /* tokens of a micro-batch; of an activation */
    uint64_t forward_scratch, attention_scratch, norm_scratch, head_scratch, embedding_scratch, product_scratch;
    uint64_t chunk, logits, word_padding; /* of the head: tokens, bytes, elements */
    const struct tool_slice *slice;
    uint64_t stream_rows;            /* of `rows`, those of the residual stream that lie on this rank */
    uint32_t position;
    bool recompute;                  /* of the block at hand */
    bool is_first, is_last;          /* stage */
};

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

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

static eo_status find_padding(struct description *d, const eo_model *model)
{
    const char *name = d->config->tied_head ? "model.embed_tokens.weight" : "lm_head.weight";
    eo_parameter_info head;
    uint32_t index;
    EO_TRY(eo_model_find_parameter(model, name, &index));
    EO_TRY(eo_model_parameter(model, index, &head));
    d->word_padding = head.padding;
    return EO_OK;
}

/* One block of the layers with this attention and the widest MLP, as halves; its rows under the names that the layers give
 * them. */
static eo_status find_scratch(struct description *d)
{
    const uint32_t mlp = d->config->mlp_width > d->config->expert_width ? d->config->mlp_width : d->config->expert_width;
    const struct tool_plan_settings *s = d->settings;
    eo_transformer *transformer = NULL;
    eo_plan *plan = NULL;
    eo_transformer_config shape;
    tool_model_config_transformer(d->config, &shape);
    shape.layer_count = 1;
    shape.mlp_width = mlp;
    shape.context = s->seq;
    const struct tool_plan_settings one = {
        .batch = s->batch, .seq = s->seq, .head_chunks = s->head_chunks, .threads = s->threads, .half_blocks = true,
        .dtype = s->dtype, .reduce_dtype = s->reduce_dtype, .device = s->device};
    const struct tool_plan_params params = tool_plan_params_of(&one, &shape, d->log);
    EO_TRY(eo_transformer_create(&transformer, &params.transformer));
    eo_status status = eo_plan_create(&plan, eo_transformer_model(transformer), &params.plan);
    if (status >= 0) {
        eo_plan_summary summary;
        eo_plan_get_summary(plan, &summary);
        d->forward_scratch = row_bytes(plan, summary.row_count, "block.0.attention.forward_scratch");
        d->attention_scratch = row_bytes(plan, summary.row_count, "block.0.attention.scratch");
        d->head_scratch = row_bytes(plan, summary.row_count, "head.scratch");
        d->chunk = row_bytes(plan, summary.row_count, "head.losses") / sizeof(float);
        d->logits = row_bytes(plan, summary.row_count, "head.logits");
        d->embedding_scratch = row_bytes(plan, summary.row_count, "embedding.scratch");
        d->product_scratch = row_bytes(plan, summary.row_count, "product_scratch");
        /* An MLP's is the gradient of what is widest in it, and what the norm's kernel asks for. */
        d->norm_scratch = row_bytes(plan, summary.row_count, "block.0.mlp.scratch") -
                          align_up(d->rows * max_u64(mlp, d->config->width) * d->element_bytes);
        eo_plan_destroy(&plan);
    }
    if (status >= 0)
        status = find_padding(d, eo_transformer_model(transformer));
    eo_transformer_destroy(&transformer);
    return status;
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

static eo_status add_words(struct description *d, uint32_t layer, const char *name, bool is_head)
{
    return eo_model_add_parameter(d->model, &(eo_parameter_params){
        .layer = layer, .name = name, .dim_count = 2, .dims = {d->config->vocabulary, d->config->width},
        .padding = is_head ? d->word_padding : 0}, NULL);
}

static eo_status add_norm(struct description *d, uint32_t layer)
{
    return eo_model_add_parameter(
        d->model,
        &(eo_parameter_params){
            .layer = layer, .name = "model.norm.weight", .dim_count = 1, .dims = {d->config->width}, .no_weight_decay = true},
        NULL);
}

/* Of one half of a block, as published files have them; experts one after the other in one tensor. */
static eo_status add_block_parameters(struct description *d, uint32_t layer, uint32_t block, bool in_mlp)
{
    struct tool_block_tensor tensors[TOOL_BLOCK_TENSORS_MAX];
    const uint32_t count = tool_block_tensors(d->config, block, tensors);
    for (uint32_t i = 0; i < count; i++) {
        const struct tool_block_tensor *t = &tensors[i];
        eo_parameter_params params = {
            .layer = layer, .no_weight_decay = !t->multiplies, .float8_gather = t->multiplies && !t->is_fine};
        char name[EO_NAME_MAX * 2];
        if (t->in_mlp != in_mlp || t->kind == TOOL_TENSOR_BUFFER)
            continue;
        snprintf(name, sizeof(name), "model.layers.%u.%s%s", block, t->name, t->each ? t->each : "");
        params.name = name;
        if (t->count > 1)
            params.dims[params.dim_count++] = t->count;
        for (int k = 0; k < 3 && t->dims[k]; k++)
            params.dims[params.dim_count++] = t->dims[k];
        EO_TRY(eo_model_add_parameter(d->model, &params, NULL));
    }
    return EO_OK;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static eo_status add_row(struct description *d, const char *name, uint64_t bytes, eo_category category, eo_moment first,
                         eo_moment last)
{
    return eo_model_add_buffer(d->model, &(eo_buffer_params){
        .name = name, .bytes = max_u64(bytes, 1), .category = category, .first = first, .last = last}, NULL);
}

/* From a forward pass to the backward pass at hand. With several micro-batches under way each has its own: backward of one
 * follows on forward of a later one. */
static eo_status add_kept(struct description *d, const char *name, uint64_t bytes, eo_moment first)
{
    if (d->slice->in_flight <= 1)
        return add_row(d, name, bytes, EO_CATEGORY_ACTIVATION, first, (eo_moment){EO_PASS_BACKWARD, d->position});
    return eo_model_add_buffer(d->model, &(eo_buffer_params){
        .name = name, .bytes = d->slice->in_flight * align_up(max_u64(bytes, 1)), .category = EO_CATEGORY_ACTIVATION,
        .persistent = true}, NULL);
}

/* Of the position at hand: kept to its backward pass, or made again there. */
static eo_status add_tensor(struct description *d, uint32_t block, const char *part, const char *name, bool cheap,
                            uint64_t bytes)
{
    const eo_moment forward = {EO_PASS_FORWARD, d->position}, recompute = {EO_PASS_RECOMPUTE, d->position};
    const eo_moment backward = {EO_PASS_BACKWARD, d->position};
    char text[EO_NAME_MAX], again[EO_NAME_MAX + 8];
    snprintf(text, sizeof(text), "block.%u.%s.%s", block, part, name);
    if (!d->recompute && !(cheap && d->settings->recompute == EO_RECOMPUTE_CHEAP))
        return add_kept(d, text, bytes, forward);
    snprintf(again, sizeof(again), "%s.again", text);
    EO_TRY(add_row(d, text, bytes, EO_CATEGORY_SCRATCH, forward, forward));
    return add_row(d, again, bytes, EO_CATEGORY_SCRATCH, recompute, backward);
}

static eo_status add_block_rows(struct description *d, uint32_t block, bool in_mlp)
{
    struct tool_block_row rows[TOOL_BLOCK_ROWS_MAX];
    const bool remakes = !d->recompute && d->settings->recompute == EO_RECOMPUTE_CHEAP;
    const uint32_t count = tool_block_rows(d->config, block, remakes, rows);
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].in_mlp == in_mlp)
            EO_TRY(add_tensor(d, block, in_mlp ? "mlp" : "attention", rows[i].name, rows[i].cheap,
                              (rows[i].cut ? d->rows : d->stream_rows) * rows[i].width *
                                  (rows[i].bytes ? rows[i].bytes : d->element_bytes)));
    return EO_OK;
}

/* Of the gated delta rule: gradients of what is projected, and a state a chunk and head, made again. */
static uint64_t linear_scratch(const struct description *d)
{
    const struct tool_linear *n = &d->config->linear;
    const uint64_t key = (uint64_t)n->key_heads * n->key_size, value = (uint64_t)n->value_heads * n->value_size;
    const uint64_t chunks = d->settings->batch * (((uint64_t)d->settings->seq + TOOL_LINEAR_CHUNK - 1) / TOOL_LINEAR_CHUNK);
    return align_up(d->rows * 2 * (key + value) * d->element_bytes) +
           align_up(chunks * n->key_size * value * d->element_bytes) + align_up(d->norm_scratch);
}

static uint64_t attention_scratch(const struct description *d, uint32_t block)
{
    return d->config->mixers[block] == TOOL_MIXER_LINEAR ? linear_scratch(d) : d->attention_scratch;
}

static uint64_t mlp_scratch(const struct description *d, uint32_t block)
{
    const struct tool_model_config *c = d->config;
    const uint64_t row = d->rows * d->element_bytes, kernels = align_up(d->norm_scratch);
    if (tool_config_has_experts(d->config, block)) /* gradients of the experts' rows, and of the norm's */
        return align_up(row * c->experts_per_token * max_u64(c->expert_width, c->width)) + align_up(row * c->width) +
               align_up(row * c->shared_width) + kernels;
    return align_up(row * max_u64(c->mlp_width, c->width)) + kernels;
}

static eo_status add_scratch(struct description *d, uint32_t block, const char *part, uint64_t backward, bool attention)
{
    const eo_moment forward = {EO_PASS_FORWARD, d->position}, recompute = {EO_PASS_RECOMPUTE, d->position};
    char text[EO_NAME_MAX];
    if (attention) {
        snprintf(text, sizeof(text), "block.%u%s.forward_scratch", block, part);
        EO_TRY(add_row(d, text, d->forward_scratch, EO_CATEGORY_SCRATCH, forward, forward));
    }
    snprintf(text, sizeof(text), "block.%u%s.scratch", block, part);
    return add_row(d, text, backward, EO_CATEGORY_SCRATCH, recompute, (eo_moment){EO_PASS_BACKWARD, d->position});
}

/* --- positions ---------------------------------------------------------------------------------------------------- */

static eo_status add_position(struct description *d, const char *name, uint32_t *layer)
{
    EO_TRY(eo_model_add_layer(d->model, &(eo_layer_params){.name = name}, layer));
    return eo_model_add_position(d->model, &(eo_position_params){.layer = *layer}, &d->position);
}

/* The residual stream's row into a half: written by the position before, or in the middle of this one. */
static eo_status add_input(struct description *d, uint32_t block, const char *part, uint32_t writer)
{
    const uint64_t bytes = d->stream_rows * d->config->width * d->element_bytes;
    char text[EO_NAME_MAX];
    snprintf(text, sizeof(text), "block.%u.%s.input", block, part);
    if (writer == UINT32_MAX) /* received, and kept though the block may be made again */
        return add_kept(d, text, bytes, (eo_moment){EO_PASS_FORWARD, d->position});
    if (writer == d->position)
        return add_tensor(d, block, part, "input", false, bytes);
    return add_kept(d, text, bytes, (eo_moment){EO_PASS_FORWARD, writer});
}

static eo_status add_block(struct description *d, uint32_t block)
{
    const bool halves = d->settings->half_blocks;
    char name[EO_NAME_MAX];
    uint32_t layer;
    d->recompute = d->settings->recompute == EO_RECOMPUTE_BLOCKS && block < d->settings->recompute_blocks;
    snprintf(name, sizeof(name), "block.%u%s", block, halves ? ".attention" : "");
    EO_TRY(add_position(d, name, &layer));
    EO_TRY(add_block_parameters(d, layer, block, false));
    EO_TRY(add_input(d, block, "attention", d->position ? d->position - 1 : UINT32_MAX));
    EO_TRY(add_block_rows(d, block, false));
    if (halves) {
        EO_TRY(add_scratch(d, block, ".attention", attention_scratch(d, block), true));
        snprintf(name, sizeof(name), "block.%u.mlp", block);
        EO_TRY(add_position(d, name, &layer));
    }
    EO_TRY(add_block_parameters(d, layer, block, true));
    EO_TRY(add_input(d, block, "mlp", halves ? d->position - 1 : d->position));
    EO_TRY(add_block_rows(d, block, true));
    return halves ? add_scratch(d, block, ".mlp", mlp_scratch(d, block), false)
                  : add_scratch(d, block, "", max_u64(attention_scratch(d, block), mlp_scratch(d, block)), true);
}

static eo_status add_embedding(struct description *d, uint32_t *layer)
{
    const struct tool_model_config *c = d->config;
    static const uint32_t table[] = {0};
    EO_TRY(eo_model_add_layer(d->model, &(eo_layer_params){.name = "embedding"}, layer));
    EO_TRY(add_words(d, *layer, "model.embed_tokens.weight", c->tied_head));
    if (c->tied_head)
        EO_TRY(add_norm(d, *layer));
    return eo_model_add_position(d->model, &(eo_position_params){
        .layer = *layer, .backward_without_weights = true, .parameters = table, .parameter_count = 1}, &d->position);
}

static eo_status add_head(struct description *d, uint32_t embedding)
{
    const struct tool_model_config *c = d->config;
    const uint32_t last = d->position;
    uint32_t layer = embedding;
    if (!c->tied_head) {
        EO_TRY(eo_model_add_layer(d->model, &(eo_layer_params){.name = "head"}, &layer));
        EO_TRY(add_norm(d, layer));
        EO_TRY(add_words(d, layer, "lm_head.weight", true));
    }
    EO_TRY(eo_model_add_position(d->model, &(eo_position_params){
        .layer = layer, .name = "head", .forward_in_backward = true}, &d->position));
    const eo_moment from = {EO_PASS_RECOMPUTE, d->position}, to = {EO_PASS_BACKWARD, d->position};
    const uint64_t chunk = d->chunk, stream = d->stream_rows * c->width * d->element_bytes;
    EO_TRY(add_row(d, "head.input", stream, EO_CATEGORY_ACTIVATION, (eo_moment){EO_PASS_FORWARD, last}, to));
    EO_TRY(add_row(d, "stream.gradient", stream, EO_CATEGORY_SCRATCH, from, (eo_moment){EO_PASS_BACKWARD, 0}));
    EO_TRY(add_row(d, "head.norm", chunk * c->width * d->element_bytes, EO_CATEGORY_HEAD, from, to));
    EO_TRY(add_row(d, "head.norm_stats", 2 * chunk * sizeof(float), EO_CATEGORY_HEAD, from, to));
    EO_TRY(add_row(d, "head.logits", d->logits, EO_CATEGORY_HEAD, from, to));
    EO_TRY(add_row(d, "head.losses", chunk * sizeof(float), EO_CATEGORY_HEAD, from, to));
    EO_TRY(add_row(d, "head.loss", sizeof(double), EO_CATEGORY_HEAD, from, to));
    return add_row(d, "head.scratch", d->head_scratch, EO_CATEGORY_HEAD, from, to);
}

/* What goes to the next stage, and the gradient that comes from it. */
static eo_status add_sent(struct description *d)
{
    const uint64_t bytes = d->stream_rows * d->config->width * d->element_bytes;
    const eo_moment end = {EO_PASS_FORWARD, d->position};
    EO_TRY(add_row(d, "stage.output", bytes, EO_CATEGORY_SCRATCH, end, end));
    return add_row(d, "stream.gradient", bytes, EO_CATEGORY_SCRATCH, (eo_moment){EO_PASS_RECOMPUTE, d->position},
                   (eo_moment){EO_PASS_BACKWARD, 0});
}

static eo_status add_persistent(struct description *d, const char *name, uint64_t bytes)
{
    return eo_model_add_buffer(d->model, &(eo_buffer_params){
        .name = name, .bytes = bytes, .category = EO_CATEGORY_OTHER, .persistent = true}, NULL);
}

/* Before anything is built. */
static eo_status check_layers(const struct description *d)
{
    const uint32_t layers = d->config->layer_count, others = d->config->tied_head ? 1 : 2;
    const uint32_t parts = d->settings->half_blocks ? 2 : 1, most = (TOOL_CONFIG_LAYERS_MAX - others) / parts;
    char text[200];
    if (layers <= most)
        return EO_OK;
    snprintf(text, sizeof(text), "%u blocks%s and %s are more than the limit of %d layers; at most %u blocks are possible",
             layers, parts == 2 ? " in halves" : "", others == 1 ? "the embedding" : "embedding and head",
             TOOL_CONFIG_LAYERS_MAX, most);
    d->log->write(d->log->user, EO_LOG_ERROR, text);
    return EO_ERR_INVALID;
}

static eo_status describe_all(struct description *d)
{
    const struct tool_plan_settings *s = d->settings;
    uint32_t embedding = UINT32_MAX;
    EO_TRY(check_layers(d));
    EO_TRY(find_scratch(d));
    if (d->is_first)
        EO_TRY(add_embedding(d, &embedding));
    for (uint32_t block = 0; block < d->config->layer_count; block++)
        if (tool_slice_has_block(d->slice, d->config, block))
            EO_TRY(add_block(d, block));
    EO_TRY(d->is_last ? add_head(d, embedding) : add_sent(d));
    const uint64_t token_bytes = d->rows * sizeof(int32_t) * (s->graph ? s->micro_batches : 1);
    EO_TRY(add_persistent(d, "tokens", token_bytes));
    EO_TRY(add_persistent(d, "targets", token_bytes));
    if (strcmp(s->device, "cpu") != 0) /* cosine and sine of every position and pair */
        EO_TRY(add_persistent(d, "rope_table", (uint64_t)s->seq * d->config->head_size * sizeof(float)));
    if (d->product_scratch > 0)
        EO_TRY(add_persistent(d, "product_scratch", d->product_scratch));
    return d->embedding_scratch == 0 || !d->is_first
               ? EO_OK
               : add_row(d, "embedding.scratch", d->embedding_scratch, EO_CATEGORY_SCRATCH,
                         (eo_moment){EO_PASS_BACKWARD, 0}, (eo_moment){EO_PASS_BACKWARD, 0});
}

eo_status tool_memplan_describe(eo_model **out, const struct tool_model_config *config,
                                const struct tool_plan_settings *settings, const struct tool_slice *slice, const eo_log *log)
{
    struct description d = {.config = config,
                            .settings = settings,
                            .log = log,
                            .rows = (uint64_t)settings->batch * settings->seq,
                            .slice = slice, .is_first = slice->stage == 0, .is_last = slice->pipeline <= 1 || slice->stage + 1 == slice->pipeline,
        .stream_rows = (uint64_t)settings->batch * settings->seq / (slice->sequence_parallel && slice->tensor ? slice->tensor : 1),
        .element_bytes = eo_dtype_bytes(settings->dtype)};
    *out = NULL;
    EO_TRY(eo_model_create(&d.model, &(eo_model_params){.name = tool_config_family_name(config->family), .log = log}));
    const eo_status status = describe_all(&d);
    if (status < 0)
        eo_model_destroy(&d.model);
    *out = d.model;
    return status;
}
