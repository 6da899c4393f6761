/* SPDX-License-Identifier: MIT
 *
 * The transformer as an object, and the order of its passes: what any trainer does with the runtime's calls.
 */
#include "layers/transformer.h"

#include <math.h>
#include <stdlib.h>

#include "layers/config.h"

static eo_status transformer_init(eo_transformer *t, const eo_transformer_params *params)
{
    LAYERS_TRY(eo_transformer_check(params, &t->params));
    if (params->log)
        t->log = *params->log;
    t->params.log = &t->log;
    const eo_transformer_config *c = &t->params.config;
    t->half_count = 2 * c->layer_count;
    t->halves = calloc(t->half_count, sizeof(*t->halves));
    t->stream = calloc(t->half_count + 1, sizeof(*t->stream));
    if (!is_gpt2(t)) {
        const uint32_t head_size = c->width / c->head_count;
        t->rope_table = malloc(eo_rope_table_floats(t->params.seq, head_size) * sizeof(float));
        if (t->rope_table)
            eo_rope_table(t->rope_table, t->params.seq, head_size, c->rope_theta);
    }
    if (!t->halves || !t->stream || (!is_gpt2(t) && !t->rope_table)) {
        eo_layers_log(&t->log, EO_LOG_ERROR, "transformer: no memory to describe %u layers", c->layer_count);
        return EO_ERR_NO_MEMORY;
    }
    LAYERS_TRY(eo_model_create(&t->model, &(eo_model_params){
        .name = is_gpt2(t) ? "gpt2" : "llama", .log = &t->log}));
    LAYERS_TRY(eo_transformer_describe(t));
    return eo_transformer_add_buffers(t);
}

eo_status eo_transformer_create(eo_transformer **out, const eo_transformer_params *params)
{
    *out = NULL;
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
    free(t->rope_table);
    free(t->stream);
    free(t->halves);
    free(t);
    *transformer = NULL;
}

const eo_model *eo_transformer_model(const eo_transformer *transformer)
{
    return transformer->model;
}

const eo_transformer_params *eo_transformer_get_params(const eo_transformer *transformer)
{
    return &transformer->params;
}

static eo_status check_team(const eo_transformer *t, const eo_team *team)
{
    LAYERS_REQUIRE(&t->log, eo_team_thread_count(team) <= t->params.thread_count,
                   "transformer: a team of %u threads, but scratch for %u; set thread_count of eo_transformer_params",
                   eo_team_thread_count(team), t->params.thread_count);
    return EO_OK;
}

static eo_status check_tokens(const eo_transformer *t, const int32_t *tokens, uint64_t count, const char *what)
{
    LAYERS_REQUIRE(&t->log, tokens, "transformer: %s is NULL", what);
    for (uint64_t i = 0; i < count; i++)
        LAYERS_REQUIRE(&t->log, tokens[i] >= 0 && (uint32_t)tokens[i] < t->params.config.vocabulary,
                       "transformer: %s[%llu] is %d; the vocabulary has %u", what, (unsigned long long)i,
                       (int)tokens[i], t->params.config.vocabulary);
    return EO_OK;
}

static struct pass pass_of(const eo_transformer *t, eo_runtime *runtime, eo_team *team, uint32_t batch, uint32_t seq)
{
    return (struct pass){.transformer = t, .runtime = runtime, .team = team, .batch = batch, .seq = seq,
                         .rows = (uint64_t)batch * seq};
}

/* ---- forward ---- */

static void embedding_forward(const struct pass *pass, const int32_t *tokens)
{
    const eo_transformer *t = pass->transformer;
    eo_embedding_forward(pass->team, pass_buffer(pass, t->stream[0]), tokens, pass_weight(pass, 0),
                         is_gpt2(t) ? pass_weight(pass, 1) : NULL, pass->rows, pass->seq, t->params.config.width);
}

/* Positions 0 ... P-2; the head is the caller's. */
static eo_status run_forward(struct pass *pass, const int32_t *tokens)
{
    const eo_transformer *t = pass->transformer;
    pass->backward = false;
    for (uint32_t position = 0; position < t->head.position; position++) {
        LAYERS_TRY(eo_forward_begin(pass->runtime, position, &pass->view));
        if (position == 0)
            embedding_forward(pass, tokens);
        else
            LAYERS_TRY(eo_block_forward(pass, position));
        LAYERS_TRY(eo_forward_end(pass->runtime, position));
    }
    return EO_OK;
}

/* ---- backward ---- */

static bool all_finite(const float *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

/* The loss is not finite: the residual stream, all of which is still there, tells which position spoiled it. */
static eo_status report_not_finite(const struct pass *pass, double loss)
{
    const eo_transformer *t = pass->transformer;
    uint32_t culprit = t->head.position;
    for (uint32_t h = t->half_count + 1; h-- > 0;) {
        const uint32_t writer = h == 0 ? 0 : t->halves[h - 1].position;
        const bool live = t->stream[h].forward == t->stream[h].backward;
        if (live && !all_finite(eo_buffer(pass->runtime, t->stream[h].forward),
                                pass->rows * t->params.config.width))
            culprit = writer;
    }
    eo_layers_log(&t->log, EO_LOG_ERROR, "transformer: the loss is %g; position %u (%s) is the first whose output is "
                  "not finite: lower the learning rate, or look at the weights that were loaded", loss, culprit,
                  eo_model_position_name(t->model, culprit));
    return EO_ERR_NOT_FINITE;
}

static eo_status head_pass(struct pass *pass, const int32_t *targets, double *loss_sum)
{
    const uint32_t position = pass->transformer->head.position;
    LAYERS_TRY(eo_backward_begin(pass->runtime, position, &pass->view));
    LAYERS_TRY(eo_head_backward_first(pass, targets, loss_sum));
    LAYERS_TRY(eo_gradients_begin(pass->runtime, position, &pass->view));
    LAYERS_TRY(eo_head_backward(pass, targets, loss_sum));
    if (!isfinite(*loss_sum))
        return report_not_finite(pass, *loss_sum / (double)pass->rows);
    return eo_backward_end(pass->runtime, position);
}

static eo_status block_pass(struct pass *pass, uint32_t position)
{
    LAYERS_TRY(eo_backward_begin(pass->runtime, position, &pass->view));
    LAYERS_TRY(eo_block_recompute(pass, position));
    LAYERS_TRY(eo_block_backward_first(pass, position));
    LAYERS_TRY(eo_gradients_begin(pass->runtime, position, &pass->view));
    LAYERS_TRY(eo_block_backward(pass, position));
    return eo_backward_end(pass->runtime, position);
}

static eo_status embedding_pass(struct pass *pass, const int32_t *tokens)
{
    const eo_transformer *t = pass->transformer;
    LAYERS_TRY(eo_backward_begin(pass->runtime, 0, &pass->view));
    LAYERS_TRY(eo_gradients_begin(pass->runtime, 0, &pass->view));
    eo_embedding_backward(pass->team, pass_gradient(pass, 0), is_gpt2(t) ? pass_gradient(pass, 1) : NULL,
                          eo_buffer(pass->runtime, t->stream_gradient), tokens, pass->rows, pass->seq,
                          t->params.config.width, t->params.config.vocabulary, t->params.config.context, false);
    return eo_backward_end(pass->runtime, 0);
}

static eo_status run_backward(struct pass *pass, const eo_tokens *tokens, double *loss_sum)
{
    pass->backward = true;
    LAYERS_TRY(head_pass(pass, tokens->targets, loss_sum));
    for (uint32_t position = pass->transformer->head.position - 1; position > 0; position--)
        LAYERS_TRY(block_pass(pass, position));
    return embedding_pass(pass, tokens->tokens);
}

static eo_status run_micro_batch(struct pass *pass, const eo_tokens *tokens, double *loss_sum)
{
    LAYERS_TRY(run_forward(pass, tokens->tokens));
    return run_backward(pass, tokens, loss_sum);
}

eo_status eo_transformer_micro_batch(const eo_transformer *transformer, eo_runtime *runtime, eo_team *team,
                                     const eo_tokens *tokens, double *loss)
{
    const eo_transformer_params *p = &transformer->params;
    struct pass pass = pass_of(transformer, runtime, team, p->batch, p->seq);
    LAYERS_TRY(check_team(transformer, team));
    LAYERS_TRY(check_tokens(transformer, tokens->tokens, pass.rows, "tokens"));
    LAYERS_TRY(check_tokens(transformer, tokens->targets, pass.rows, "targets"));
    double loss_sum = 0;
    const uint32_t saved = eo_flush_denormals_begin();
    const eo_status status = run_micro_batch(&pass, tokens, &loss_sum);
    eo_flush_denormals_end(saved);
    if (status >= 0)
        *loss = loss_sum / (double)pass.rows;
    return status;
}

/* ---- forward only ---- */

/* What the head is to do with its pass. */
struct head_task {
    const int32_t *targets; /* the loss, or, if NULL, */
    uint64_t row;           /* the logits of this row */
    double loss_sum;
    float *logits;
};

static eo_status run_evaluation(struct pass *pass, const int32_t *tokens, struct head_task *task)
{
    const uint32_t position = pass->transformer->head.position;
    LAYERS_TRY(eo_evaluation_begin(pass->runtime));
    LAYERS_TRY(run_forward(pass, tokens));
    LAYERS_TRY(eo_forward_begin(pass->runtime, position, &pass->view));
    if (task->targets)
        LAYERS_TRY(eo_head_loss(pass, task->targets, &task->loss_sum));
    else
        LAYERS_TRY(eo_head_logits(pass, task->row, task->logits));
    LAYERS_TRY(eo_forward_end(pass->runtime, position));
    return eo_evaluation_end(pass->runtime);
}

eo_status eo_transformer_evaluate(const eo_transformer *transformer, eo_runtime *runtime, eo_team *team,
                                  const eo_tokens *tokens, double *loss)
{
    const eo_transformer_params *p = &transformer->params;
    struct pass pass = pass_of(transformer, runtime, team, p->batch, p->seq);
    LAYERS_TRY(check_team(transformer, team));
    LAYERS_TRY(check_tokens(transformer, tokens->tokens, pass.rows, "tokens"));
    LAYERS_TRY(check_tokens(transformer, tokens->targets, pass.rows, "targets"));
    struct head_task task = {.targets = tokens->targets};
    const uint32_t saved = eo_flush_denormals_begin();
    const eo_status status = run_evaluation(&pass, tokens->tokens, &task);
    eo_flush_denormals_end(saved);
    if (status >= 0)
        *loss = task.loss_sum / (double)pass.rows;
    return status;
}

eo_status eo_transformer_logits(const eo_transformer *transformer, eo_runtime *runtime, eo_team *team,
                                const int32_t *tokens, uint32_t position, float *logits)
{
    LAYERS_TRY(check_team(transformer, team));
    LAYERS_REQUIRE(&transformer->log, position < transformer->params.seq,
                   "transformer: logits of token %u of a sequence of %u", position, transformer->params.seq);
    /* Nothing after `position`, and no other sequence, can reach it: they are left out. */
    struct pass pass = pass_of(transformer, runtime, team, 1, position + 1);
    LAYERS_TRY(check_tokens(transformer, tokens, pass.rows, "tokens"));
    struct head_task task = {.row = position, .logits = logits};
    const uint32_t saved = eo_flush_denormals_begin();
    const eo_status status = run_evaluation(&pass, tokens, &task);
    eo_flush_denormals_end(saved);
    return status;
}
