/* SPDX-License-Identifier: MIT
 *
 * The transformer as an object, and the order of its passes: what any trainer does with the runtime's calls.
 */
#include "layers/transformer/cached_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers/denormals.h"
#include "layers/kernel_table.h"
#include "layers/transformer/config.h"

static eo_status choose_kernels(eo_transformer *t)
{
    const char *reason = NULL;
    const struct eo_team_backend *backend = eo_team_backend_find(t->params.device, &reason);
    if (!backend) {
        eo_layers_log(&t->log, EO_LOG_ERROR, "transformer: no device \"%s\": %s", t->params.device, reason);
        return EO_ERR_UNSUPPORTED;
    }
    t->types = (struct eo_types){t->params.dtype, t->params.reduce_dtype};
    t->params.device = backend->device;
    t->params.fp32_norms = t->params.fp32_norms && t->params.dtype == EO_DTYPE_BF16; /* else all is fp32 */
    t->kernels = eo_team_backend_kernels(backend, t->types.compute, t->types.gradient);
    LAYERS_REQUIRE(&t->log, !t->params.float8_products || t->params.dtype == EO_DTYPE_BF16,
                   "transformer: float8_products needs dtype bf16, not %s", eo_dtype_name(t->params.dtype));
    LAYERS_REQUIRE(&t->log, !t->params.float8_products || !t->kernels || t->kernels->float8_scratch_bytes,
                   "transformer: device \"%s\" has no products in float8; leave float8_products out", backend->device);
    if (t->kernels)
        return EO_OK;
    eo_layers_log(&t->log, EO_LOG_ERROR, "transformer: device \"%s\" has no kernels in fp32 with gradients in bf16; compute "
                  "in bf16, or reduce in fp32", backend->device);
    return EO_ERR_UNSUPPORTED;
}

static eo_status transformer_init(eo_transformer *t, const eo_transformer_params *params)
{
    EO_TRY(eo_transformer_check(params, &t->params));
    if (params->log)
        t->log = *params->log;
    t->params.log = &t->log;
    EO_TRY(choose_kernels(t));
    const eo_transformer_config *c = &t->params.config;
    t->half_count = 2 * c->layer_count;
    t->halves = calloc(t->half_count, sizeof(*t->halves));
    t->stream = calloc(t->half_count + 1, sizeof(*t->stream));
    if (!is_gpt2(t)) {
        t->rope_table = malloc(eo_rope_table_floats(t->params.seq, c->head_size) * sizeof(float));
        if (t->rope_table)
            eo_rope_table(t->rope_table, t->params.seq, c->head_size, c->rope_theta, &c->rope_scaling);
    }
    if (!t->halves || !t->stream || (!is_gpt2(t) && !t->rope_table)) {
        eo_layers_log(&t->log, EO_LOG_ERROR, "transformer: no memory to describe %u layers", c->layer_count);
        return EO_ERR_NO_MEMORY;
    }
    EO_TRY(eo_model_create(&t->model, &(eo_model_params){
        .name = is_gpt2(t) ? "gpt2" : c->qk_norm ? "qwen3" : c->qkv_bias ? "qwen2" : "llama", .log = &t->log}));
    EO_TRY(eo_transformer_describe(t));
    return eo_transformer_add_buffers(t);
}

eo_status eo_transformer_create(eo_transformer **out, const eo_transformer_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!params)
        return EO_ERR_INVALID;
    eo_transformer *t = calloc(1, sizeof(*t));
    if (!t) {
        eo_layers_log(params->log, EO_LOG_ERROR, "transformer: no memory");
        return EO_ERR_NO_MEMORY;
    }
    const eo_status status = transformer_init(t, params);
    if (status < 0)
        eo_transformer_destroy(&t);
    *out = t;
    return status;
}

void eo_transformer_destroy(eo_transformer **transformer)
{
    if (!transformer || !*transformer)
        return;
    eo_transformer *t = *transformer;
    eo_model_destroy(&t->model);
    free(t->adapter_targets);
    free(t->rope_table);
    free(t->stream);
    free(t->halves);
    free(t);
    *transformer = NULL;
}

const eo_model *eo_transformer_model(const eo_transformer *transformer)
{
    return transformer ? transformer->model : NULL;
}

const eo_transformer_params *eo_transformer_get_params(const eo_transformer *transformer)
{
    return transformer ? &transformer->params : NULL;
}

const char *eo_transformer_kernels(const eo_transformer *transformer)
{
    if (!transformer)
        return "";
    const struct eo_kernel_ops *kernels = transformer->kernels;
    return kernels == &eo_kernels_cpu_ops ? eo_kernels()->name : kernels == &eo_kernels_cpu_bf16_ops ? eo_kernels_name() : kernels->name;
}

/* ---- what a pass is called with ---- */

/* Other types or another device would be read as something that they are not. */
eo_status eo_transformer_check_runtime(const eo_transformer *t, const eo_runtime *runtime)
{
    const char *device = eo_runtime_device(runtime);
    eo_plan_summary plan;
    eo_plan_get_summary(eo_runtime_plan(runtime), &plan);
    LAYERS_REQUIRE(&t->log, strcmp(device, t->params.device) == 0,
                   "transformer: described for device \"%s\", but the runtime's world is on \"%s\"", t->params.device,
                   device);
    LAYERS_REQUIRE(&t->log, plan.params.dtype == t->params.dtype && plan.params.reduce_dtype == t->params.reduce_dtype,
                   "transformer: described with dtype %s and reduce_dtype %s, but the plan was made with %s and %s; give "
                   "eo_transformer_params and eo_plan_params the same", eo_dtype_name(t->params.dtype),
                   eo_dtype_name(t->params.reduce_dtype), eo_dtype_name(plan.params.dtype),
                   eo_dtype_name(plan.params.reduce_dtype));
    return EO_OK;
}

static eo_status check_team(const eo_transformer *t, const eo_team *team)
{
    const char *device = eo_team_backend_of(team)->device;
    LAYERS_REQUIRE(&t->log, device == t->params.device,
                   "transformer: described for device \"%s\", but the team computes on \"%s\"", t->params.device, device);
    LAYERS_REQUIRE(&t->log, eo_team_thread_count(team) <= t->params.thread_count,
                   "transformer: a team of %u threads, but scratch memory for %u; set thread_count of eo_transformer_params",
                   eo_team_thread_count(team), t->params.thread_count);
    return EO_OK;
}

eo_status eo_transformer_check_tokens(const eo_transformer *t, const int32_t *tokens, uint64_t count)
{
    LAYERS_REQUIRE(&t->log, tokens, "transformer: tokens is NULL");
    for (uint64_t i = 0; i < count; i++)
        LAYERS_REQUIRE(&t->log, tokens[i] >= 0 && (uint32_t)tokens[i] < t->params.config.vocabulary,
                       "transformer: tokens[%llu] is %d, outside the vocabulary of %u", (unsigned long long)i, (int)tokens[i],
                       t->params.config.vocabulary);
    return EO_OK;
}

/* Those below 0 are ignored; a mean over the others would be another divisor on each rank. An evaluation has no gradient that
 * it could make wrong: its divisor stays. */
static eo_status check_targets(const eo_transformer *t, const int32_t *targets, uint64_t count, bool evaluates)
{
    LAYERS_REQUIRE(&t->log, targets, "transformer: targets is NULL");
    if (!t->params.summed_loss && !evaluates)
        for (uint64_t i = 0; i < count; i++)
            LAYERS_REQUIRE(&t->log, targets[i] >= 0, "transformer: targets[%llu] is %d: to ignore targets, set summed_loss of "
                           "eo_transformer_params, and give the count of the others as eo_step_params.weight",
                           (unsigned long long)i, (int)targets[i]);
    for (uint64_t i = 0; i < count; i++)
        LAYERS_REQUIRE(&t->log, targets[i] < 0 || (uint32_t)targets[i] < t->params.config.vocabulary,
                       "transformer: targets[%llu] is %d, outside the vocabulary of %u", (unsigned long long)i, (int)targets[i],
                       t->params.config.vocabulary);
    return EO_OK;
}

static struct pass pass_of(const eo_transformer *t, eo_runtime *runtime, eo_team *team, uint32_t batch, uint32_t seq)
{
    return (struct pass){.transformer = t, .runtime = runtime, .team = team, .kernels = t->kernels, .types = t->types,
                         .batch = batch, .seq = seq, .rows = (uint64_t)batch * seq};
}

static struct pass batch_pass_of(const eo_transformer *t, eo_runtime *runtime, eo_team *team)
{
    return pass_of(t, runtime, team, t->params.batch, t->params.seq);
}

static int32_t *slot_of(const struct pass *pass, uint32_t buffer, uint32_t slot)
{
    const eo_transformer_params *p = &pass->transformer->params;
    return (int32_t *)eo_buffer(pass->runtime, buffer) + (uint64_t)slot * p->batch * p->seq;
}

static eo_random_place *random_of(const struct pass *pass, uint32_t slot)
{
    return (eo_random_place *)eo_buffer(pass->runtime, pass->transformer->random) + slot;
}

static eo_status check_positions(const struct pass *pass, const int32_t *positions)
{
    const eo_transformer *t = pass->transformer;
    if (!t->params.packed)
        return EO_OK;
    LAYERS_REQUIRE(&t->log, positions, "transformer: positions is NULL; with packed they say where documents begin");
    for (uint64_t i = 0; i < pass->rows; i++)
        LAYERS_REQUIRE(&t->log, positions[i] == 0 || (i % pass->seq && positions[i] == positions[i - 1] + 1),
                       "transformer: positions[%llu] is %d; a document begins at 0, with each sequence too, and counts on by 1",
                       (unsigned long long)i, (int)positions[i]);
    return EO_OK;
}

static const int32_t *positions_of(const struct pass *pass, uint32_t slot)
{
    return pass->transformer->params.packed ? slot_of(pass, pass->transformer->positions, slot) : NULL;
}

/* To the device, unless they are there. */
static eo_status load_tokens(const struct pass *pass, const eo_tokens *tokens, bool evaluates)
{
    const eo_transformer *t = pass->transformer;
    LAYERS_REQUIRE(&t->log, tokens->slot < t->params.token_slots,
                   "transformer: token slot %u of %u; set token_slots of eo_transformer_params", tokens->slot,
                   t->params.token_slots);
    if (!tokens->tokens && !tokens->targets)
        return EO_OK;
    EO_TRY(eo_transformer_check_tokens(t, tokens->tokens, pass->rows));
    EO_TRY(check_targets(t, tokens->targets, pass->rows, evaluates));
    EO_TRY(check_positions(pass, tokens->positions));
    const uint64_t bytes = pass->rows * sizeof(int32_t);
    EO_TRY(eo_pass_upload(pass, slot_of(pass, t->tokens, tokens->slot), tokens->tokens, bytes));
    EO_TRY(eo_pass_upload(pass, slot_of(pass, t->targets, tokens->slot), tokens->targets, bytes));
    if (t->params.packed)
        EO_TRY(eo_pass_upload(pass, slot_of(pass, t->positions, tokens->slot), tokens->positions, bytes));
    return t->random == NO_BUFFER ? EO_OK
                                  : eo_pass_upload(pass, random_of(pass, tokens->slot), &tokens->random, sizeof(tokens->random));
}

eo_status eo_transformer_load(const eo_transformer *transformer, eo_runtime *runtime, const eo_tokens *tokens)
{
    if (!transformer || !runtime || !tokens)
        return EO_ERR_INVALID;
    const struct pass pass = batch_pass_of(transformer, runtime, NULL);
    EO_TRY(eo_transformer_check_runtime(transformer, runtime));
    return load_tokens(&pass, tokens, false);
}

static eo_status begin_batch(struct pass *out, const eo_transformer *t, eo_runtime *runtime, eo_team *team,
                             const eo_tokens *tokens, bool evaluates)
{
    if (!t || !runtime || !tokens)
        return EO_ERR_INVALID;
    *out = batch_pass_of(t, runtime, team);
    EO_TRY(eo_transformer_check_runtime(t, runtime));
    EO_TRY(check_team(t, team));
    return load_tokens(out, tokens, evaluates);
}

/* ---- forward ---- */

eo_status eo_pass_embedding(const struct pass *pass, const int32_t *tokens)
{
    const eo_transformer *t = pass->transformer;
    const uint64_t first = pass->decoder ? pass->decoder->count : 0;
    return pass->kernels->embedding_forward(pass->team, &(struct eo_embedding){
        .types = pass->types,
        .out = pass_buffer(pass, t->stream[0]),
        .tokens = tokens,
        .token_table = pass_weight(pass, 0),
        .position_table = is_gpt2(t) ? pass_at(pass, pass_weight(pass, 1), first * t->params.config.width) : NULL,
        .rows = pass->rows,
        .width = t->params.config.width,
        .seq = pass->seq,
        .positions = pass->positions,
    });
}

/* What fails from here on failed there. */
static void stand_at(const struct pass *pass, uint32_t position, const char *name)
{
    if (!pass->team)
        return;
    pass->team->layer = eo_model_position_name(pass->transformer->model, position);
    pass->team->pass = name;
    pass->team->rank = eo_runtime_rank(pass->runtime);
}

static eo_status stand_nowhere(const struct pass *pass, eo_status status)
{
    if (pass->team)
        pass->team->layer = pass->team->pass = NULL;
    return status;
}

/* Positions 0 ... P-2; the head is the caller's. */
static eo_status run_forward(struct pass *pass, const int32_t *tokens)
{
    const eo_transformer *t = pass->transformer;
    pass->backward = false;
    for (uint32_t position = 0; position < t->head.position; position++) {
        stand_at(pass, position, "forward");
        EO_TRY(eo_forward_begin(pass->runtime, position, &pass->view));
        if (position == 0)
            EO_TRY(eo_pass_embedding(pass, tokens));
        else
            EO_TRY(eo_block_forward(pass, position));
        EO_TRY(eo_forward_end(pass->runtime, position));
    }
    return EO_OK;
}

/* ---- backward ---- */

/* The loss is not finite: the residual stream, all of which is still there, tells which position spoiled it. */
static eo_status report_not_finite(const struct pass *pass, double loss)
{
    const eo_transformer *t = pass->transformer;
    uint32_t culprit = t->head.position;
    for (uint32_t h = t->half_count + 1; h-- > 0;) {
        const uint32_t writer = h == 0 ? 0 : t->halves[h - 1].position;
        if (t->stream[h].forward != t->stream[h].backward)
            continue;
        bool is_finite = true;
        EO_TRY(pass->kernels->all_finite(pass->team, pass->types.compute,
                                         eo_buffer(pass->runtime, t->stream[h].forward),
                                         pass->rows * t->params.config.width, &is_finite));
        if (!is_finite)
            culprit = writer;
    }
    eo_layers_log(&t->log, EO_LOG_ERROR, "transformer: the loss is %g; position %u (%s) is the first without a finite output; "
                  "lower the learning rate, or check the loaded weights", loss, culprit,
                  eo_model_position_name(t->model, culprit));
    return EO_ERR_NOT_FINITE;
}

/* To the host, which waits for it; or, where it is not wanted yet, to the step's values on the device. */
static eo_status deliver_loss(const struct pass *pass, double *loss)
{
    double *on_device = eo_buffer(pass->runtime, pass->transformer->head.loss);
    const double divisor = pass_loss_divisor(pass);
    if (!loss)
        return pass->kernels->loss_add(pass->team, eo_step_values(pass->runtime), on_device, 1 / divisor);
    double sum;
    EO_TRY(eo_pass_download(pass, &sum, on_device, sizeof(sum)));
    if (!isfinite(sum))
        return report_not_finite(pass, sum / divisor);
    *loss = sum / divisor;
    return EO_OK;
}

/* A frozen position has none, and goes on with the view of its weights. */
static eo_status gradients_begin(struct pass *pass, uint32_t position)
{
    if (!eo_position_trains(pass->transformer, position))
        return EO_OK;
    EO_TRY(eo_gradients_begin(pass->runtime, position, &pass->view));
    bool has_any = false;
    for (uint32_t k = 0; k < pass->view->parameter_count; k++)
        has_any = has_any || pass->view->gradients[k] != NULL;
    LAYERS_REQUIRE(
        &pass->transformer->log, has_any,
        "transformer: a micro-batch behind eo_input_gradients_begin, which has no gradients of weights; call it in a step");
    return EO_OK;
}

static eo_status head_pass(struct pass *pass, const int32_t *targets, double *loss)
{
    const uint32_t position = pass->transformer->head.position;
    stand_at(pass, position, "loss and backward");
    EO_TRY(eo_backward_begin(pass->runtime, position, &pass->view));
    EO_TRY(eo_head_backward_first(pass, targets));
    EO_TRY(gradients_begin(pass, position));
    EO_TRY(eo_head_backward(pass, targets));
    EO_TRY(deliver_loss(pass, loss));
    return eo_backward_end(pass->runtime, position);
}

static eo_status block_pass(struct pass *pass, uint32_t position)
{
    stand_at(pass, position, "backward");
    EO_TRY(eo_backward_begin(pass->runtime, position, &pass->view));
    EO_TRY(eo_block_recompute(pass, position));
    EO_TRY(eo_block_backward_first(pass, position));
    EO_TRY(gradients_begin(pass, position));
    EO_TRY(eo_block_backward(pass, position));
    return eo_backward_end(pass->runtime, position);
}

/* Positions that restart within a sequence are summed as tokens are. */
static eo_status embedding_gradients(const struct pass *pass, const int32_t *tokens)
{
    const eo_transformer *t = pass->transformer;
    struct eo_embedding_gradient of = {
        .types = pass->types,
        .token_gradient = pass_gradient(pass, 0),
        .position_gradient = is_gpt2(t) && !pass->positions ? pass_gradient(pass, 1) : NULL,
        .out_gradient = eo_buffer(pass->runtime, t->stream_gradient),
        .tokens = tokens,
        .rows = pass->rows,
        .width = t->params.config.width,
        .vocabulary = t->params.config.vocabulary,
        .positions = t->params.config.context,
        .seq = pass->seq,
        .adds = t->params.config.tied_head,
        .scratch = t->embedding_scratch == NO_BUFFER ? NULL : eo_buffer(pass->runtime, t->embedding_scratch),
    };
    EO_TRY(pass->kernels->embedding_backward(pass->team, &of));
    if (!is_gpt2(t) || !pass->positions)
        return EO_OK;
    of.token_gradient = pass_gradient(pass, 1);
    of.tokens = pass->positions;
    of.vocabulary = t->params.config.context;
    of.adds = false;
    return pass->kernels->embedding_backward(pass->team, &of);
}

static eo_status embedding_pass(struct pass *pass, const int32_t *tokens)
{
    stand_at(pass, 0, "backward");
    EO_TRY(eo_backward_begin(pass->runtime, 0, &pass->view));
    EO_TRY(gradients_begin(pass, 0));
    if (eo_position_trains(pass->transformer, 0))
        EO_TRY(embedding_gradients(pass, tokens));
    return eo_backward_end(pass->runtime, 0);
}

static eo_status run_micro_batch(struct pass *pass, uint32_t slot, double *loss)
{
    const eo_transformer *t = pass->transformer;
    const int32_t *tokens = slot_of(pass, t->tokens, slot);
    pass->random = t->random == NO_BUFFER ? NULL : random_of(pass, slot);
    pass->positions = positions_of(pass, slot);
    EO_TRY(run_forward(pass, tokens));
    pass->backward = true;
    EO_TRY(head_pass(pass, slot_of(pass, t->targets, slot), loss));
    for (uint32_t position = t->head.position - 1; position > 0; position--)
        EO_TRY(block_pass(pass, position));
    return embedding_pass(pass, tokens);
}

eo_status eo_transformer_micro_batch(const eo_transformer *transformer, eo_runtime *runtime, eo_team *team,
                                     const eo_tokens *tokens, double *loss)
{
    struct pass pass;
    EO_TRY(begin_batch(&pass, transformer, runtime, team, tokens, false));
    double mean = 0;
    const uint64_t saved = eo_flush_denormals_begin();
    const eo_status status = stand_nowhere(&pass, run_micro_batch(&pass, tokens->slot, loss ? &mean : NULL));
    eo_flush_denormals_end(saved);
    if (status >= 0 && loss)
        *loss = mean;
    return status;
}

/* ---- forward only ---- */

/* What the head is to do with its pass. */
struct head_task {
    bool wants_loss; /* or, if not, */
    uint64_t row;    /* the logits of this row */
    double loss_sum;
    float *logits;
};

/* bf16 comes into the second half of the caller's floats, and is widened from the first on: a float is written behind
 * what is still to be read. */
static eo_status download_logits(const struct pass *pass, float *to, const void *logits)
{
    const uint64_t count = pass->transformer->params.config.vocabulary;
    if (pass->types.compute == EO_DTYPE_FP32)
        return eo_pass_download(pass, to, logits, count * sizeof(float));
    char *halves = (char *)to + count * sizeof(uint16_t);
    EO_TRY(eo_pass_download(pass, halves, logits, count * sizeof(uint16_t)));
    for (uint64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, halves + i * sizeof(half), sizeof(half));
        to[i] = eo_element_from_bf16(half);
    }
    return EO_OK;
}

static eo_status head_evaluation(const struct pass *pass, uint32_t slot, struct head_task *task)
{
    const eo_transformer *t = pass->transformer;
    if (!task->wants_loss) {
        void *logits = NULL;
        EO_TRY(eo_head_logits(pass, task->row, &logits));
        return download_logits(pass, task->logits, logits);
    }
    EO_TRY(eo_head_loss(pass, slot_of(pass, t->targets, slot)));
    return eo_pass_download(pass, &task->loss_sum, eo_buffer(pass->runtime, t->head.loss), sizeof(task->loss_sum));
}

static eo_status run_evaluation(struct pass *pass, uint32_t slot, struct head_task *task)
{
    const eo_transformer *t = pass->transformer;
    EO_TRY(eo_evaluation_begin(pass->runtime));
    EO_TRY(run_forward(pass, slot_of(pass, t->tokens, slot)));
    stand_at(pass, t->head.position, "evaluation");
    EO_TRY(eo_forward_begin(pass->runtime, t->head.position, &pass->view));
    EO_TRY(head_evaluation(pass, slot, task));
    EO_TRY(eo_forward_end(pass->runtime, t->head.position));
    return eo_evaluation_end(pass->runtime);
}

eo_status eo_transformer_evaluate(const eo_transformer *transformer, eo_runtime *runtime, eo_team *team,
                                  const eo_tokens *tokens, double *loss)
{
    struct pass pass;
    if (!loss)
        return EO_ERR_INVALID;
    EO_TRY(begin_batch(&pass, transformer, runtime, team, tokens, true));
    pass.positions = positions_of(&pass, tokens->slot);
    struct head_task task = {.wants_loss = true};
    const uint64_t saved = eo_flush_denormals_begin();
    const eo_status status = stand_nowhere(&pass, run_evaluation(&pass, tokens->slot, &task));
    eo_flush_denormals_end(saved);
    if (status >= 0)
        *loss = task.loss_sum / pass_loss_divisor(&pass);
    return status;
}

/* Nothing after `position`, and no other sequence, can reach it: they are left out. But a device with plans of attention builds
 * them for each length, which takes longer than a pass: there the lengths are few, 128 tokens or twice the one before, and
 * behind the text lie tokens of another, or the zeros that the buffer began with. */
static uint32_t logits_seq(const eo_transformer *t, uint32_t position)
{
    uint64_t seq = t->kernels->host_memory ? position + UINT64_C(1) : 128;
    while (seq <= position)
        seq *= 2;
    return seq < t->params.seq ? (uint32_t)seq : t->params.seq;
}

eo_status eo_transformer_logits(const eo_transformer *transformer, eo_runtime *runtime, eo_team *team,
                                const int32_t *tokens, uint32_t position, float *logits)
{
    if (!transformer || !runtime || !logits)
        return EO_ERR_INVALID;
    EO_TRY(eo_transformer_check_runtime(transformer, runtime));
    EO_TRY(check_team(transformer, team));
    LAYERS_REQUIRE(&transformer->log, position < transformer->params.seq,
                   "transformer: logits of token %u of a sequence of %u", position, transformer->params.seq);
    const uint64_t count = position + UINT64_C(1);
    struct pass pass = pass_of(transformer, runtime, team, 1, logits_seq(transformer, position));
    EO_TRY(eo_transformer_check_tokens(transformer, tokens, count));
    EO_TRY(eo_pass_upload(&pass, slot_of(&pass, transformer->tokens, 0), tokens, count * sizeof(int32_t)));
    struct head_task task = {.row = position, .logits = logits};
    const uint64_t saved = eo_flush_denormals_begin();
    const eo_status status = stand_nowhere(&pass, run_evaluation(&pass, 0, &task));
    eo_flush_denormals_end(saved);
    return status;
}
