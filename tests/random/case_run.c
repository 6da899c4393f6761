/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "streams/bf16.h"
#include "tests/random/case_runner.h"
#include "tests/random/integer_model.h"

enum { ELEMENTS_MAX = 5000, BUFFER_BYTES_MAX = 20000 };

/* What the ranks of a run share. */
struct case_world {
    const struct random_case *c;
    eo_plan *plan;
    eo_world *worlds[CASE_RANKS_MAX];
    struct integer_model expected; /* after the last step */
    struct case_outcome *out;
    pthread_mutex_t lock; /* of out */
};

struct case_rank {
    struct case_world *world;
    uint32_t rank;
    pthread_t thread;
    eo_runtime *rt;
    float values[ELEMENTS_MAX];
    uint16_t narrow[ELEMENTS_MAX];
    unsigned char bytes[BUFFER_BYTES_MAX], found[BUFFER_BYTES_MAX];
    uint64_t holds[CASE_BUFFERS_MAX]; /* the content that was written last */
    uint32_t parameter;               /* that is visited next, in model order */
};

static void case_complain(struct case_world *world, const char *format, ...) EO_PRINTF(2, 3);

static void case_complain(struct case_world *world, const char *format, ...)
{
    pthread_mutex_lock(&world->lock);
    if (world->out->text[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(world->out->text, sizeof(world->out->text), format, arguments);
        va_end(arguments);
    }
    pthread_mutex_unlock(&world->lock);
}

/* -- buffers ---------------------------------------------------------------------------------------------------------*/

/* The moment of a forward-only run at a position, as evenodd/model.h says. */
static uint32_t evaluation_moment(const struct random_case *c, uint32_t p)
{
    const eo_pass pass = c->positions[p].forward_in_backward ? EO_PASS_BACKWARD : EO_PASS_FORWARD;
    return random_case_moment(c, (eo_moment){pass, p});
}

static bool is_within(const struct random_case *c, const struct case_buffer *buffer, uint32_t moment)
{
    return buffer->persistent || (random_case_moment(c, buffer->first) <= moment &&
                                  moment <= random_case_moment(c, buffer->last));
}

/* Fills a buffer at its first use, and else looks whether it holds what it was filled with. `content` names a micro-batch
 * or an evaluation; that of persistent ones is always the same. */
static eo_status use_buffer(struct case_rank *self, uint32_t index, uint64_t content)
{
    const struct case_buffer *buffer = &self->world->c->buffers[index];
    unsigned char *at = eo_buffer(self->rt, index);
    if (!at) {
        case_complain(self->world, "buffer %u is not there", index);
        return EO_ERR_INVALID;
    }
    content = buffer->persistent ? 1 : content;
    memset(self->bytes, (int)(random_hash(content, index, self->rank) & 0xff), buffer->bytes);
    if (self->holds[index] != content) {
        self->holds[index] = content;
        return eo_runtime_upload(self->rt, at, self->bytes, buffer->bytes);
    }
    EO_TRY(eo_runtime_download(self->rt, self->found, at, buffer->bytes));
    if (memcmp(self->found, self->bytes, buffer->bytes) != 0)
        case_complain(self->world, "buffer %u does not hold what was written into it", index);
    return EO_OK;
}

/* All that may be used in this pass. */
static eo_status use_buffers(struct case_rank *self, eo_moment moment, uint64_t content)
{
    const struct random_case *c = self->world->c;
    const uint32_t now = random_case_moment(c, moment);
    for (uint32_t b = 0; b < c->buffer_count; b++) {
        const struct case_buffer *buffer = &c->buffers[b];
        if (!is_within(c, buffer, now)) {
            if (c->debug && eo_buffer(self->rt, b))
                case_complain(self->world, "buffer %u is given out when it is not live", b);
            continue;
        }
        EO_TRY(use_buffer(self, b, content));
    }
    return EO_OK;
}

static eo_status use_evaluation_buffers(struct case_rank *self, uint32_t p, uint64_t content)
{
    const struct random_case *c = self->world->c;
    for (uint32_t b = 0; b < c->buffer_count; b++)
        if (is_within(c, &c->buffers[b], evaluation_moment(c, p)))
            EO_TRY(use_buffer(self, b, content));
    return EO_OK;
}

/* -- weights and gradients -------------------------------------------------------------------------------------------*/

/* A parameter as a pass sees it, into values[]. */
static eo_status read_parameter(struct case_rank *self, const void *weights, uint32_t count)
{
    if (self->world->c->settings.dtype == EO_DTYPE_FP32)
        return eo_runtime_download(self->rt, self->values, weights, count * sizeof(float));
    EO_TRY(eo_runtime_download(self->rt, self->narrow, weights, count * sizeof(uint16_t)));
    for (uint32_t i = 0; i < count; i++)
        self->values[i] = eo_bf16_to_float(self->narrow[i]);
    return EO_OK;
}

static eo_status write_parameter(struct case_rank *self, void *gradients, uint32_t count)
{
    if (self->world->c->settings.reduce_dtype == EO_DTYPE_FP32)
        return eo_runtime_upload(self->rt, gradients, self->values, count * sizeof(float));
    for (uint32_t i = 0; i < count; i++)
        self->narrow[i] = eo_bf16_round(self->values[i]);
    return eo_runtime_upload(self->rt, gradients, self->narrow, count * sizeof(uint16_t));
}

/* Weights are whole numbers wherever they are seen; which ones follows from the gradients made of them. */
static eo_status look_at_weights(struct case_rank *self, uint32_t position, const eo_view *view)
{
    const struct case_layer *layer = &self->world->c->layers[self->world->c->positions[position].layer];
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        EO_TRY(read_parameter(self, view->weights[k], layer->elements[k]));
        for (uint32_t i = 0; i < layer->elements[k]; i++) {
            if (self->values[i] >= -9 && self->values[i] <= 9 && self->values[i] == rintf(self->values[i]))
                continue;
            case_complain(self->world, "position %u sees weight %g", position, (double)self->values[i]);
            return EO_OK;
        }
    }
    return EO_OK;
}

static eo_status give_gradients(struct case_rank *self, const struct integer_place *pass, const eo_view *view)
{
    const struct random_case *c = self->world->c;
    const struct case_position *position = &c->positions[pass->position];
    const struct case_layer *layer = &c->layers[position->layer];
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        struct integer_place at = *pass;
        at.parameter = k;
        if (!(position->gradients >> k & 1))
            continue;
        memset(self->values, 0, layer->elements[k] * sizeof(float));
        if (view->weights)
            EO_TRY(read_parameter(self, view->weights[k], layer->elements[k]));
        for (uint32_t i = 0; i < layer->elements[k]; i++)
            self->values[i] = (float)integer_gradient(c, &at, i, (int32_t)self->values[i]);
        EO_TRY(write_parameter(self, view->gradients[k], layer->elements[k]));
    }
    return EO_OK;
}

static void fold_weights(void *user, const eo_shard *shard)
{
    const struct random_case *c = user;
    for (uint64_t i = 0; i < shard->count; i++) {
        const float weight = shard->weights ? shard->weights[i]
                                            : eo_bf16_join(shard->weights_high[i], shard->weights_low[i]);
        const float next = (float)integer_update(c, (int32_t)weight, (int32_t)shard->gradient[i]);
        if (shard->weights)
            shard->weights[i] = next;
        else
            eo_bf16_split(next, &shard->weights_high[i], &shard->weights_low[i]);
    }
}

/* -- a rank ----------------------------------------------------------------------------------------------------------*/

static eo_status run_micro_batch(struct case_rank *self, uint32_t step, uint32_t b)
{
    const struct random_case *c = self->world->c;
    const uint64_t content = 10 + 8 * step + b;
    const eo_view *view;
    for (uint32_t p = 0; p < c->position_count; p++) {
        if (c->positions[p].forward_in_backward)
            continue;
        EO_TRY(eo_forward_begin(self->rt, p, &view));
        EO_TRY(look_at_weights(self, p, view));
        EO_TRY(use_buffers(self, (eo_moment){EO_PASS_FORWARD, p}, content));
        EO_TRY(eo_forward_end(self->rt, p));
    }
    for (uint32_t p = c->position_count; p-- > 0;) {
        const struct integer_place pass = {step, self->rank, b, p, 0};
        EO_TRY(eo_backward_begin(self->rt, p, &view));
        EO_TRY(use_buffers(self, (eo_moment){EO_PASS_RECOMPUTE, p}, content));
        if (!c->layers[c->positions[p].layer].frozen) {
            EO_TRY(eo_gradients_begin(self->rt, p, &view));
            EO_TRY(use_buffers(self, (eo_moment){EO_PASS_BACKWARD, p}, content));
            EO_TRY(give_gradients(self, &pass, view));
        }
        EO_TRY(eo_backward_end(self->rt, p));
    }
    return EO_OK;
}

static eo_status run_case_step(struct case_rank *self, uint32_t step)
{
    const struct random_case *c = self->world->c;
    eo_step_params params = {.learning_rate = 2, .beta1 = 1.2e-38f, .beta2 = 1.2e-38f,
                             .values = {integer_value(step, self->rank)}};
    eo_step_report report;
    EO_TRY(eo_step_begin(self->rt));
    for (uint32_t b = 0; b < c->settings.micro_batches; b++)
        EO_TRY(run_micro_batch(self, step, b));
    EO_TRY(eo_step_end(self->rt, &params, &report));
    double sum = 0;
    for (uint32_t r = 0; r < c->settings.rank_count; r++)
        sum += integer_value(step, r);
    const double norm = sqrt(self->world->expected.norms[step]);
    if (report.values[0] != sum || fabs(report.gradient_norm - norm) > 1e-6 * norm)
        case_complain(self->world, "step %u: values %g, not %g; norm %.9g, not %.9g", step, report.values[0], sum,
                      report.gradient_norm, norm);
    return EO_OK;
}

static eo_status run_evaluation(struct case_rank *self, uint64_t content)
{
    const struct random_case *c = self->world->c;
    const eo_view *view;
    EO_TRY(eo_evaluation_begin(self->rt));
    for (uint32_t p = 0; p < c->position_count; p++) {
        EO_TRY(eo_forward_begin(self->rt, p, &view));
        EO_TRY(look_at_weights(self, p, view));
        EO_TRY(use_evaluation_buffers(self, p, content));
        EO_TRY(eo_forward_end(self->rt, p));
    }
    return eo_evaluation_end(self->rt);
}

struct first_weights {
    const struct random_case *c;
    uint32_t layer, parameter;
};

static void give_first_weights(void *user, uint64_t offset, uint64_t count, float *values)
{
    const struct first_weights *of = user;
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)integer_first_weight(of->c, of->layer, of->parameter, offset + i);
}

static eo_status fill_weights(struct case_rank *self)
{
    struct first_weights of = {.c = self->world->c};
    uint32_t index = 0;
    for (of.layer = 0; of.layer < of.c->layer_count; of.layer++)
        for (of.parameter = 0; of.parameter < of.c->layers[of.layer].parameter_count; of.parameter++)
            EO_TRY(eo_weights_fill(self->rt, index++, give_first_weights, &of));
    return EO_OK;
}

static void compare_weights(void *user, const eo_parameter_info *info, const float *values)
{
    struct case_rank *self = user;
    uint32_t first = 0;
    for (uint32_t l = 0; l < info->layer; l++)
        first += self->world->c->layers[l].parameter_count;
    const uint32_t k = self->parameter++ - first;
    for (uint64_t i = 0; i < info->element_count; i++) {
        const float want = (float)self->world->expected.weights[info->layer][k][i];
        if (values[i] == want)
            continue;
        case_complain(self->world, "element %d of '%s' is %.9g after training, not %g", (int)i, info->name,
                      (double)values[i], (double)want);
        return;
    }
}

static eo_status run_rank(struct case_rank *self)
{
    const struct random_case *c = self->world->c;
    EO_TRY(eo_runtime_create(&self->rt, eo_runtime_params(.plan = self->world->plan,
                                                          .world = self->world->worlds[self->rank], .memory = c->memory,
                                                          .debug = c->debug, .update_user = (void *)c,
                                                          .update = c->own_optimizer ? fold_weights : NULL,
                                                          .dynamic_reduce_inputs = c->reduce_inputs,
                                                          .dynamic_implicit_prefetch = c->implicit_prefetch,
                                                          .delay_seed = c->delay_seed ? c->delay_seed + self->rank : 0)));
    EO_TRY(fill_weights(self));
    EO_TRY(run_evaluation(self, 1000));
    for (uint32_t step = 0; step < INTEGER_STEPS; step++)
        EO_TRY(run_case_step(self, step));
    EO_TRY(run_evaluation(self, 2000));
    return eo_weights_visit(self->rt, compare_weights, self);
}

static void *case_thread(void *arg)
{
    struct case_rank *self = arg;
    const eo_status status = run_rank(self);
    if (status < 0) {
        case_complain(self->world, "rank %u: %s: %s", self->rank, eo_status_text(status), eo_runtime_error(self->rt));
        eo_world_abort(self->world->worlds[self->rank], "its part of the case failed");
    }
    eo_runtime_destroy(&self->rt);
    return NULL;
}

static void run_ranks_of_case(struct case_world *world)
{
    const uint32_t count = world->c->settings.rank_count;
    struct case_rank *ranks = calloc(count, sizeof(*ranks));
    if (!ranks)
        eo_fatal("out of memory");
    for (uint32_t r = 0; r < count; r++) {
        ranks[r].world = world;
        ranks[r].rank = r;
        if (pthread_create(&ranks[r].thread, NULL, case_thread, &ranks[r]) != 0)
            eo_fatal("no thread for rank %u", r);
    }
    for (uint32_t r = 0; r < count; r++)
        pthread_join(ranks[r].thread, NULL);
    free(ranks);
}

bool case_run(const struct random_case *c, struct case_outcome *out)
{
    struct case_world *world = calloc(1, sizeof(*world));
    eo_model *model = NULL;
    eo_status status = EO_ERR_NO_MEMORY;
    out->text[0] = '\0';
    if (!world)
        eo_fatal("out of memory");
    world->c = c;
    world->out = out;
    pthread_mutex_init(&world->lock, NULL);
    if (integer_model_begin(&world->expected, c))
        status = random_case_model(c, NULL, &model);
    for (uint32_t step = 0; step < INTEGER_STEPS && status >= 0; step++)
        integer_model_step(&world->expected, c, step);
    if (status >= 0)
        status = eo_plan_create(&world->plan, model, &c->settings);
    if (status >= 0)
        status = eo_world_create_local(world->worlds, eo_world_params(.rank_count = c->settings.rank_count));
    if (status >= 0)
        run_ranks_of_case(world);
    else
        case_complain(world, "not run: %s", eo_status_text(status));
    for (uint32_t r = 0; r < c->settings.rank_count; r++)
        eo_world_destroy(&world->worlds[r]);
    eo_plan_destroy(&world->plan);
    eo_model_destroy(&model);
    integer_model_end(&world->expected);
    pthread_mutex_destroy(&world->lock);
    free(world);
    return out->text[0] == '\0';
}
