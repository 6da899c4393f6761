/* SPDX-License-Identifier: MIT
 *
 * The end of a step against an unsharded computation in double: global norm, clipping, AdamW and the trainer's own
 * optimizer, with a tied layer, a frozen one, parameters without decay, parameters without a gradient, odd sizes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <evenodd/evenodd.h>

#include "tests/conformance/ranks.h"
#include "tests/conformance/training/training.h"
#include "tests/tap/threads.h"

enum { LAYERS = 4, PARAMETERS = 6, POSITIONS = 5, STEPS = 4, ELEMENTS_MAX = 1100 };

/* In the order they are added. The first layer is used at both ends; the last use gives its table a gradient only. */
static const struct {
    const char *name;
    uint32_t layer;
    uint64_t dims[2];
    bool no_weight_decay;
} parameters[PARAMETERS] = {
    {"table", 0, {13, 7}, false}, {"extra", 0, {5, 1}, true},    {"matrix", 1, {33, 31}, false},
    {"bias", 1, {31, 1}, true},   {"stone", 2, {17, 3}, false}, {"last", 3, {1, 1}, false},
};
static const uint32_t layer_of_position[POSITIONS] = {0, 1, 2, 3, 0};

struct norm_case {
    uint32_t ranks, micro_batches;
    eo_memory memory;
    bool own_optimizer, padded;
    float clip;
};

struct shared {
    struct norm_case c;
    eo_model *model;
    eo_plan *plan;
    eo_world *worlds[TEST_RANKS_MAX];
};

struct body {
    struct shared *shared;
    uint32_t rank;
};

static uint64_t count_of(uint32_t parameter)
{
    return parameters[parameter].dims[0] * parameters[parameter].dims[1];
}

/* Elements behind a parameter, where the case has them: of the first in its layer, and of the last. */
static uint64_t padding_of(const struct norm_case *c, uint32_t parameter)
{
    return !c->padded ? 0 : parameter == 2 ? 41 : parameter == 5 ? 300 : 0;
}

static float start_value(uint32_t parameter, uint64_t element)
{
    return (float)(test_hash(1, parameter, element) % 2001) / 1000 - 1;
}

static bool gets_gradient(uint32_t position, uint32_t parameter)
{
    return parameters[parameter].layer == layer_of_position[position] && parameters[parameter].layer != 2 &&
           !(position == 4 && parameter == 1);
}

/* A rank's gradient of one use in one micro-batch, before the loss scale. */
static float gradient_value(uint32_t step, uint32_t rank, uint32_t micro_batch, uint32_t position, uint32_t parameter,
                            uint64_t element)
{
    const uint64_t place = ((step * 8 + rank) * 8 + micro_batch) * 8 + position;
    return (float)((double)(test_hash(2 + parameter, place, element) % 2001) / 1000 - 1);
}

/* -- the plain computation ---------------------------------------------------------------------------------------- */

struct plain {
    double weights[PARAMETERS][ELEMENTS_MAX], first[PARAMETERS][ELEMENTS_MAX], second[PARAMETERS][ELEMENTS_MAX];
    double gradient[PARAMETERS][ELEMENTS_MAX];
    double norm;
};

static void plain_start(struct plain *plain)
{
    memset(plain, 0, sizeof(*plain));
    for (uint32_t k = 0; k < PARAMETERS; k++)
        for (uint64_t i = 0; i < count_of(k); i++)
            plain->weights[k][i] = start_value(k, i);
}

/* A large eps: sums that cancel must not be blown up to the size of a step. */
static const eo_step_params step_params = {.learning_rate = 0.02F, .beta1 = 0.8F, .beta2 = 0.95F, .eps = 1e-3F,
                                           .weight_decay = 0.1F};

static void plain_step(struct plain *plain, const struct norm_case *c, uint32_t step)
{
    const double scale = 1.0 / (c->ranks * c->micro_batches);
    double squares = 0;
    for (uint32_t k = 0; k < PARAMETERS; k++) {
        for (uint64_t i = 0; i < count_of(k); i++) {
            double sum = 0;
            for (uint32_t r = 0; r < c->ranks; r++)
                for (uint32_t m = 0; m < c->micro_batches; m++)
                    for (uint32_t p = 0; p < POSITIONS; p++)
                        sum += gets_gradient(p, k) ? scale * (double)gradient_value(step, r, m, p, k, i) : 0.0;
            plain->gradient[k][i] = sum;
            squares += sum * sum;
        }
    }
    plain->norm = sqrt(squares);
    const double clip = c->clip > 0 && plain->norm > c->clip ? c->clip / plain->norm : 1;
    const double lr = (double)step_params.learning_rate, beta1 = (double)step_params.beta1;
    const double beta2 = (double)step_params.beta2, decay = (double)step_params.weight_decay;
    for (uint32_t k = 0; k < PARAMETERS; k++) {
        for (uint64_t i = 0; parameters[k].layer != 2 && i < count_of(k); i++) {
            const double g = plain->gradient[k][i] * clip;
            double *w = &plain->weights[k][i], *m = &plain->first[k][i], *v = &plain->second[k][i];
            if (c->own_optimizer) {
                *w -= 0.5 * g;
                continue;
            }
            *m = beta1 * *m + (1 - beta1) * g;
            *v = beta2 * *v + (1 - beta2) * g * g;
            *w *= 1 - lr * (parameters[k].no_weight_decay ? 0 : decay);
            *w -= lr * (*m / (1 - pow(beta1, step + 1))) /
                  (sqrt(*v / (1 - pow(beta2, step + 1))) + (double)step_params.eps);
        }
    }
}

/* -- the sharded one -----------------------------------------------------------------------------------------------*/

static eo_status fill(void *user, uint64_t offset, uint64_t count, float *values)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = start_value(*(const uint32_t *)user, offset + i);
    return EO_OK;
}

static void own_update(void *user, const eo_shard *shard)
{
    uint32_t *calls = user;
    (*calls)++;
    for (uint64_t i = 0; i < shard->count; i++)
        shard->weights[i] -= 0.5F * shard->gradient_scale * shard->gradient[i];
}

/* Whether the view's weights are the plain computation's. `first` is the layer's first parameter. */
static void check_weights(const struct body *self, const eo_view *view, uint32_t position, const struct plain *plain,
                          const char *when)
{
    uint32_t k = 0;
    while (parameters[k].layer != layer_of_position[position])
        k++;
    for (uint32_t v = 0; v < view->parameter_count; v++) {
        const float *weights = view->weights[v];
        for (uint64_t i = 0; i < count_of(k + v); i++) {
            if (fabs((double)weights[i] - plain->weights[k + v][i]) <= 2e-5)
                continue;
            test_fail(NULL, __FILE__, __LINE__, "rank %u, %s, %s[%llu]: %.8g, and %.8g by the plain computation",
                      self->rank, when, parameters[k + v].name, (unsigned long long)i, (double)weights[i],
                      plain->weights[k + v][i]);
            return;
        }
        for (uint64_t i = 0; i < padding_of(&self->shared->c, k + v); i++)
            TEST_EXPECT(NULL, weights[count_of(k + v) + i] == 0, "rank %u, %s: padding %llu of %s is %g", self->rank, when,
                        (unsigned long long)i, parameters[k + v].name, (double)weights[count_of(k + v) + i]);
    }
}

static void write_gradients(const struct body *self, const eo_view *view, uint32_t step, uint32_t m, uint32_t position,
                            float scale)
{
    uint32_t k = 0;
    while (parameters[k].layer != layer_of_position[position])
        k++;
    for (uint32_t v = 0; v < view->parameter_count; v++) {
        for (uint64_t i = 0; gets_gradient(position, k + v) && i < count_of(k + v); i++)
            ((float *)view->gradients[v])[i] = scale * gradient_value(step, self->rank, m, position, k + v, i);
        for (uint64_t i = 0; m % 2 == 0 && i < padding_of(&self->shared->c, k + v); i++)
            ((float *)view->gradients[v])[count_of(k + v) + i] = 0;
    }
}

#define CALL(call)                                                                                           \
    do {                                                                                                     \
        const eo_status status_ = (call);                                                                    \
        if (status_ < 0) {                                                                                   \
            test_fail(NULL, __FILE__, __LINE__, "rank %u: %s: %s", self->rank, #call, eo_runtime_error(rt)); \
            return false;                                                                                    \
        }                                                                                                    \
    } while (0)

static bool run_step(const struct body *self, eo_runtime *rt, uint32_t step, const struct plain *plain)
{
    const struct norm_case *c = &self->shared->c;
    const eo_view *view;
    CALL(eo_step_begin(rt));
    for (uint32_t m = 0; m < c->micro_batches; m++) {
        for (uint32_t p = 0; p < POSITIONS; p++) {
            CALL(eo_forward_begin(rt, p, &view));
            check_weights(self, view, p, plain, "forward");
            CALL(eo_forward_end(rt, p));
        }
        for (uint32_t p = POSITIONS; p-- > 0;) {
            CALL(eo_backward_begin(rt, p, &view));
            check_weights(self, view, p, plain, "backward");
            if (layer_of_position[p] != 2) {
                CALL(eo_gradients_begin(rt, p, &view));
                check_weights(self, view, p, plain, "gradients");
                write_gradients(self, view, step, m, p, eo_loss_scale(rt));
            }
            CALL(eo_backward_end(rt, p));
        }
    }
    return true;
}

static bool run_body(struct body *self, eo_runtime *rt, const uint32_t *updates, struct plain *plain)
{
    const struct norm_case *c = &self->shared->c;
    for (uint32_t k = 0; k < PARAMETERS; k++)
        CALL(eo_weights_fill(rt, k, fill, &k));
    plain_start(plain);
    for (uint32_t step = 0; step < STEPS; step++) {
        if (!run_step(self, rt, step, plain))
            return false;
        eo_step_params params = step_params;
        eo_step_report report;
        params.clip = c->clip;
        params.values[0] = self->rank + 1;
        params.values[3] = 0.5;
        CALL(eo_step_end(rt, &params, &report));
        plain_step(plain, c, step);
        TEST_EXPECT(NULL, fabs(report.gradient_norm - plain->norm) <= 1e-6 * plain->norm, "step %u: norm %.10g, plain %.10g",
                    step, report.gradient_norm, plain->norm);
        const bool clips = c->clip > 0 && plain->norm > c->clip;
        TEST_EXPECT(NULL, fabs(report.clip_factor - (clips ? c->clip / plain->norm : 1)) <= 2e-6, "step %u: factor %.10g",
                    step, report.clip_factor);
        TEST_HOLDS(NULL, report.values[0] == c->ranks * (c->ranks + 1) / 2.0 && report.values[3] == 0.5 * c->ranks);
        TEST_HOLDS(NULL, report.step == step + 1);
        for (uint32_t back = 0; back <= step; back++) {
            eo_step_report again;
            CALL(eo_runtime_get_report(rt, step + 1 - back, &again));
            TEST_HOLDS(NULL, again.step == step + 1 - back && (back || again.gradient_norm == report.gradient_norm));
        }
        eo_step_report none;
        TEST_HOLDS(NULL, eo_runtime_get_report(rt, step + 2, &none) == EO_ERR_INVALID);
        TEST_HOLDS(NULL, eo_runtime_get_report(rt, 0, &none) == EO_ERR_INVALID);
    }
    TEST_EXPECT(NULL, *updates == (c->own_optimizer ? 3 * STEPS : 0), "the optimizer was called %u times", *updates);
    return true;
}

static void *body_main(void *arg)
{
    struct body *self = arg;
    const struct norm_case *c = &self->shared->c;
    struct plain *plain = malloc(sizeof(*plain));
    eo_runtime *rt = NULL;
    uint32_t updates = 0;
    const eo_status status =
        eo_runtime_create(&rt, eo_runtime_params(.plan = self->shared->plan, .world = self->shared->worlds[self->rank],
                                                 .memory = c->memory, .update = c->own_optimizer ? own_update : NULL,
                                                 .update_user = &updates, .debug = c->ranks == 3));
    TEST_EXPECT(NULL, status >= 0, "no runtime: %s", eo_status_text(status));
    if (!plain || !rt || !run_body(self, rt, &updates, plain))
        eo_world_abort(self->shared->worlds[self->rank], "its test failed");
    eo_runtime_destroy(&rt);
    free(plain);
    return NULL;
}

static eo_model *describe(const struct norm_case *c)
{
    static const char *const layers[LAYERS] = {"ends", "body", "frozen", "small"};
    const uint32_t table_only = 0;
    eo_model *model;
    bool ok = eo_model_create(&model, eo_model_params(.name = "norm")) >= 0;
    for (uint32_t l = 0; l < LAYERS; l++)
        ok = ok && eo_model_add_layer(model, eo_layer_params(.name = layers[l], .frozen = l == 2), NULL) >= 0;
    for (uint32_t k = 0; k < PARAMETERS; k++)
        ok = ok && eo_model_add_parameter(model,
                                          eo_parameter_params(.layer = parameters[k].layer, .name = parameters[k].name,
                                                              .dim_count = 2,
                                                              .dims = {parameters[k].dims[0], parameters[k].dims[1]},
                                                              .no_weight_decay = parameters[k].no_weight_decay,
                                                              .padding = padding_of(c, k)),
                                          NULL) >= 0;
    for (uint32_t p = 0; p < POSITIONS; p++)
        ok = ok && eo_model_add_position(model,
                                         eo_position_params(.layer = layer_of_position[p],
                                                            .parameters = p == 4 ? &table_only : NULL,
                                                            .parameter_count = p == 4),
                                         NULL) >= 0;
    if (!ok) {
        puts("Bail out! the model is refused");
        exit(1);
    }
    return model;
}

static void run_case(const struct norm_case *c)
{
    struct shared shared = {.c = *c, .model = describe(c)};
    struct body bodies[TEST_RANKS_MAX];
    if (eo_plan_create(&shared.plan, shared.model,
                       eo_plan_params(.rank_count = c->ranks, .micro_batches = c->micro_batches,
                                      .optimizer_states = c->own_optimizer ? EO_NO_STATE : 2)) < 0 ||
        eo_world_create_local(shared.worlds, eo_world_params(.rank_count = c->ranks)) < 0) {
        puts("Bail out! no plan, or no world");
        exit(1);
    }
    for (uint32_t r = 0; r < c->ranks; r++)
        bodies[r] = (struct body){&shared, r};
    run_as_threads(body_main, bodies, c->ranks, sizeof(bodies[0]));
    for (uint32_t r = 0; r < c->ranks; r++)
        eo_world_destroy(&shared.worlds[r]);
    eo_plan_destroy(&shared.plan);
    eo_model_destroy(&shared.model);
}

/*
 * Norm, clip factor and every weight follow the plain computation, on 1 to 4 ranks, in every memory mode, with 1 to 3
 * micro-batches, clipped and not, with AdamW and with an optimizer of the trainer's own.
 * Method: gradients that are a function of where they are, so that a wrong rank, use or micro-batch shows; every view's
 * weights are looked at in every pass.
 */
void training_norm_cases(void)
{
    static const float clips[] = {0, 0.5F, 1e6F};
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        for (uint32_t n = 0; n < 18; n++)
            run_case(&(struct norm_case){.ranks = ranks, .micro_batches = 1 + n % 3, .memory = (eo_memory)(n / 3 % 3),
                                         .own_optimizer = n / 9, .padded = n % 2, .clip = clips[(n + ranks) % 3]});
        test_report("norm, clipping and weights are those of an unsharded computation", ranks);
    }
}
