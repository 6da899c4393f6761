/* SPDX-License-Identifier: MIT
 *
 * Goal: optimizers do what PyTorch's of the same names do, on any number of ranks.
 * Method: the problem of tests/fixtures/optimizers/make.py, a sum of c (w - t)^2 whose numbers are exact in fp32; its losses
 * over 50 steps are held against PyTorch's, committed in losses.h; of gradients clipped by group the groups' norms, too.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/update_rules.h"
#include "tests/fixtures/optimizers/losses.h"
#include "tests/tap/tap.h"
#include "tests/tap/threads.h"

enum { STEPS = 50, LAYERS = 2, PARAMETERS = 4, RANKS_MAX = 8, RANKS_COMPARED = 4, GROUPS = 3 };

struct optimizer {
    const char *name;
    eo_plan_params plan;
    eo_step_params step;
    const double *losses;
    double tolerance; /* relative */
    void (*update)(void *user, const eo_shard *shard); /* NULL: the library's */
    void *update_user;
};

struct rank {
    const struct optimizer *optimizer;
    uint32_t rank;
    const eo_plan *plan;
    eo_world *world;
    double losses[STEPS + 1]; /* rank 0's */
    double worst_norm; /* of a group, in any step: relative to PyTorch's */
};

static void must(eo_status status, const char *what)
{
    if (status >= 0)
        return;
    printf("Bail out! %s: %s\n", what, eo_status_text(status));
    exit(1);
}

/* ---- the problem ---- */

static const uint32_t group_of[PARAMETERS] = {0, 1, 2, 1};
static const uint64_t shapes[PARAMETERS][2] = {{24, 40}, {40, 0}, {48, 32}, {32, 0}};

static float number(uint32_t parameter, uint64_t i, uint32_t salt, uint32_t modulus, int half, float scale)
{
    return (float)((int)((i * salt + 11 * parameter + 7) % modulus) - half) / scale;
}

static float start(uint32_t p, uint64_t i)
{
    return number(p, i, 53, 97, 48, 64);
}

static float target(uint32_t p, uint64_t i)
{
    return number(p, i, 37, 101, 50, 64);
}

static float cost(uint32_t p, uint64_t i)
{
    return number(p, i, 5, 7, -1, 8);
}

static eo_model *make_model(void)
{
    eo_model *model;
    char name[32];
    must(eo_model_create(&model, eo_model_params(.name = "squares")), "model");
    for (uint32_t p = 0; p < PARAMETERS; p++) {
        snprintf(name, sizeof(name), "layer%u", p / 2);
        if (p % 2 == 0)
            must(eo_model_add_layer(model, eo_layer_params(.name = name), NULL), "layer");
        snprintf(name, sizeof(name), "parameter%u", p);
        must(eo_model_add_parameter(model, &(const eo_parameter_params){.layer = p / 2, .name = name,
                 .dim_count = p % 2 ? 1 : 2, .matrix = p % 2 == 0, .dims = {shapes[p][0], shapes[p][1]},
                 .group = group_of[p]}, NULL), "parameter");
    }
    for (uint32_t l = 0; l < LAYERS; l++)
        must(eo_model_add_position(model, eo_position_params(.layer = l), NULL), "position");
    return model;
}

static uint64_t count_of(uint32_t p)
{
    return shapes[p][0] * (p % 2 ? 1 : shapes[p][1]);
}

/* ---- a training ---- */

static eo_status produce(void *user, uint64_t offset, uint64_t count, float *values)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = start(*(const uint32_t *)user, offset + i);
    return EO_OK;
}

struct sum {
    uint32_t parameter;
    double loss;
};

static eo_status add_loss(void *user, const eo_parameter_info *info, const float *values)
{
    struct sum *sum = user;
    const uint32_t p = sum->parameter++;
    for (uint64_t i = 0; i < info->element_count; i++)
        sum->loss += (double)cost(p, i) * pow((double)values[i] - (double)target(p, i), 2);
    return EO_OK;
}

static float weight_of(const struct optimizer *optimizer, const void *weights, uint64_t i)
{
    if (optimizer->plan.dtype == EO_DTYPE_FP32)
        return ((const float *)weights)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)weights)[i] << 16;
    float weight;
    memcpy(&weight, &bits, sizeof(weight));
    return weight;
}

/* All of the gradient is rank 0's. */
static double backward(eo_runtime *rt, const struct optimizer *optimizer, uint32_t rank, uint32_t l)
{
    const eo_view *view;
    double loss = 0;
    must(eo_backward_begin(rt, l, &view), "backward");
    const void *weights[2] = {view->weights[0], view->weights[1]};
    must(eo_gradients_begin(rt, l, &view), "gradients");
    for (uint32_t k = 0; k < 2; k++) {
        float *gradient = view->gradients[k];
        const uint32_t p = 2 * l + k;
        for (uint64_t i = 0; i < count_of(p); i++) {
            const float apart = weight_of(optimizer, weights[k], i) - target(p, i);
            gradient[i] = rank == 0 ? 2 * cost(p, i) * apart : 0;
            loss += (double)cost(p, i) * (double)apart * (double)apart;
        }
    }
    must(eo_backward_end(rt, l), "backward");
    return loss;
}

/* They stand behind the losses. */
static void compare_norms(struct rank *self, const eo_step_report *report)
{
    const double *want = self->optimizer->losses + STEPS + (report->step - 1) * GROUPS;
    for (uint32_t g = 0; g < report->group_count; g++)
        self->worst_norm = fmax(self->worst_norm, fabs(report->group_norms[g].norm / want[g] - 1));
}

static double step(eo_runtime *rt, struct rank *self)
{
    const eo_view *view;
    double loss = 0;
    must(eo_step_begin(rt), "step");
    for (uint32_t l = 0; l < LAYERS; l++) {
        must(eo_forward_begin(rt, l, &view), "forward");
        must(eo_forward_end(rt, l), "forward");
    }
    for (uint32_t l = LAYERS; l-- > 0;)
        loss += backward(rt, self->optimizer, self->rank, l);
    eo_step_report report;
    must(eo_step_end(rt, &self->optimizer->step, &report), "end");
    compare_norms(self, &report);
    return loss;
}

static void *train(void *arg)
{
    struct rank *self = arg;
    eo_runtime *rt;
    struct sum sum = {0, 0};
    must(eo_runtime_create(&rt, eo_runtime_params(.plan = self->plan, .world = self->world,
                                                  .update = self->optimizer->update,
                                                  .update_user = self->optimizer->update_user)), "runtime");
    for (uint32_t p = 0; p < PARAMETERS; p++)
        must(eo_weights_fill(rt, p, produce, &p), "fill");
    for (uint32_t s = 0; s < STEPS; s++)
        self->losses[s] = step(rt, self);
    if (self->optimizer->plan.ema)
        must(eo_weights_swap_ema(rt), "swap");
    must(eo_weights_visit(rt, add_loss, &sum), "visit");
    self->losses[STEPS] = sum.loss;
    eo_runtime_destroy(&rt);
    return NULL;
}

/* The losses of rank 0. */
static void run(const struct optimizer *optimizer, uint32_t ranks, double losses[STEPS + 1])
{
    struct rank all[RANKS_MAX];
    eo_world *worlds[RANKS_MAX];
    eo_model *model = make_model();
    eo_plan *plan;
    eo_plan_params settings = optimizer->plan;
    settings.rank_count = ranks;
    must(eo_plan_create(&plan, model, &settings), "plan");
    must(eo_world_create_local(worlds, eo_world_params(.rank_count = ranks)), "world");
    for (uint32_t r = 0; r < ranks; r++)
        all[r] = (struct rank){.optimizer = optimizer, .rank = r, .plan = plan, .world = worlds[r]};
    run_as_threads(train, all, ranks, sizeof(all[0]));
    for (uint32_t r = 0; r < ranks; r++)
        eo_world_destroy(&worlds[r]);
    memcpy(losses, all[0].losses, sizeof(all[0].losses));
    if (!(all[0].worst_norm <= optimizer->tolerance))
        tap_note(__FILE__, __LINE__, "%s, %u ranks: a group's norm is by %g another than PyTorch's", optimizer->name, ranks,
                 all[0].worst_norm);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

static void check(const struct optimizer *optimizer)
{
    const uint32_t count = optimizer->plan.ema ? STEPS + 1 : STEPS;
    for (uint32_t ranks = 1; ranks <= RANKS_COMPARED; ranks++) {
        double losses[STEPS + 1];
        run(optimizer, ranks, losses);
        for (uint32_t s = 0; s < count; s++)
            if (!(fabs(losses[s] - optimizer->losses[s]) <= optimizer->tolerance * optimizer->losses[s])) {
                tap_note(__FILE__, __LINE__, "%s, %u ranks: loss %u is %.9g, PyTorch's is %.9g", optimizer->name, ranks, s,
                         losses[s], optimizer->losses[s]);
                break;
            }
    }
    char text[128];
    snprintf(text, sizeof(text), "%s: PyTorch's losses over %d steps, on 1 to %d ranks", optimizer->name, STEPS,
             RANKS_COMPARED);
    tap_case(text);
}

/* Blocks of state begin with parameters, and ranks' parts with blocks. The last loss is that of all weights, in double: two
 * weights that differ make another, but by chance. */
static void same_bits(eo_dtype dtype)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 8};
    const struct optimizer optimizer = {.plan = {.optimizer = EO_OPTIMIZER_ADAMW8BIT, .dtype = dtype, .align_bytes = 64, .ema = true},
                                        .step = {.learning_rate = 0.01f, .weight_decay = 0.1f, .ema_decay = 0.9f}};
    double first[STEPS + 1], losses[STEPS + 1];
    char text[128];
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        run(&optimizer, counts[i], losses);
        memcpy(first, i == 0 ? losses : first, sizeof(first));
        if (memcmp(first, losses, sizeof(losses)) != 0)
            tap_note(__FILE__, __LINE__, "%u ranks: the last loss is %.17g, of 1 rank %.17g", counts[i], losses[STEPS - 1],
                     first[STEPS - 1]);
    }
    snprintf(text, sizeof(text), "AdamW in 8 bits has the same bits on 1, 2, 3, 4 and 8 ranks, %s", eo_dtype_name(dtype));
    tap_case(text);
}

int main(void)
{
    const eo_step_params adamw = {.learning_rate = 0.01f, .beta2 = 0.95f, .weight_decay = 0.1f};
    const eo_step_params averaged = {.learning_rate = 0.01f, .beta2 = 0.95f, .weight_decay = 0.1f, .ema_decay = 0.9f};
    const eo_step_params none = {.learning_rate = 0}; /* the settings are the rule's own */
    const eo_step_params sgd_step = {.learning_rate = 0.02f, .weight_decay = 0.01f};
    const eo_parameter_group clip_groups[GROUPS] = {{0}, {.clip_group = 1, .clip = 6}, {.clip_group = 1}};
    const eo_step_params clipped_step = {.learning_rate = 0.02f, .weight_decay = 0.01f, .clip = 4, .groups = clip_groups,
                                         .group_count = GROUPS};
    const eo_step_params lion_step = {.learning_rate = 0.01f, .weight_decay = 0.1f};
    /* `exact` is about four of the numbers: the momentum is the default. */
    const eo_step_params muon_step = {
        .learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .exact = true};
    const eo_step_params muon_defaults = {.learning_rate = 0.01f, .weight_decay = 0.1f};
    struct sgd sgd = {.learning_rate = 0.02f, .momentum = 0.9f, .weight_decay = 0.01f};
    struct sgd clipped = {.learning_rate = 0.02f, .momentum = 0.9f, .weight_decay = 0.01f};
    struct sgd nesterov = {.learning_rate = 0.02f, .momentum = 0.9f, .nesterov = true};
    struct lion lion = {.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f};
    struct adadelta adadelta = {.learning_rate = 1, .rho = 0.9f, .eps = 1e-6f, .weight_decay = 0.01f};
    /* Parameters begin on 16 elements; none of these layers needs any between its two. */
    const struct adafactor_parameter parameters[] = {{0, 0, 24, 40}, {0, 960, 1, 40}, {1, 0, 48, 32}, {1, 1536, 1, 32}};
    struct adafactor adafactor = {0.05f, -0.8f, 1e-3f, 1, parameters, PARAMETERS};
    const struct optimizer optimizers[] = {
        {"AdamW, and the average of its weights", {.ema = true}, averaged, losses_of_adamw_ema, 1e-6, NULL, NULL},
        {"AdamW in 8 bits", {.optimizer = EO_OPTIMIZER_ADAMW8BIT}, adamw, losses_of_adamw8bit, 1e-4, NULL, NULL},
        {"the library's SGD", {.optimizer = EO_OPTIMIZER_SGD}, sgd_step, losses_of_sgd, 1e-5, NULL, NULL},
        {"SGD, gradients clipped by group", {.optimizer = EO_OPTIMIZER_SGD, .norm_parts = true}, clipped_step, losses_of_clipped,
         1e-5, NULL, NULL},
        {"the library's Lion", {.optimizer = EO_OPTIMIZER_LION}, lion_step, losses_of_lion, 1e-5, NULL, NULL},
        {"Muon, iterated in fp32", {.optimizer = EO_OPTIMIZER_MUON}, muon_step, losses_of_muon_in_fp32, 1e-5, NULL, NULL},
        {"Muon by its defaults", {.optimizer = EO_OPTIMIZER_MUON}, muon_defaults, losses_of_muon_in_fp32, 1e-5, NULL, NULL},
        {"Muon as it is, iterated in bf16", {.optimizer = EO_OPTIMIZER_MUON}, muon_step, losses_of_muon, 1e-4, NULL, NULL},
        {"SGD", {.optimizer_states = 1}, none, losses_of_sgd, 1e-5, sgd_update, &sgd},
        {"SGD of one's own, clipped by group", {.optimizer_states = 1, .norm_parts = true}, clipped_step, losses_of_clipped, 1e-5,
         sgd_update, &clipped},
        {"SGD, Nesterov's", {.optimizer_states = 1}, none, losses_of_nesterov, 1e-5, sgd_update, &nesterov},
        {"Lion", {.optimizer_states = 1}, none, losses_of_lion, 1e-5, lion_update, &lion},
        {"Adadelta", {.optimizer_states = 2}, none, losses_of_adadelta, 1e-5, adadelta_update, &adadelta},
        {"Adafactor", {.optimizer_states = 1, .strategy = EO_STRATEGY_DDP}, none, losses_of_adafactor, 1e-5, adafactor_update,
         &adafactor},
    };
    for (size_t i = 0; i < sizeof(optimizers) / sizeof(optimizers[0]); i++)
        check(&optimizers[i]);
    same_bits(EO_DTYPE_FP32);
    same_bits(EO_DTYPE_BF16);
    return tap_end();
}
