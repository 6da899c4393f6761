/* SPDX-License-Identifier: MIT
 *
 * Whole steps without a model's products, so that the optimizer is most of them: with 20 groups of parameters against one,
 * steps that are skipped against steps that are not, and state in 8 bits against fp32. The kinds take turns, so that what else the machine does meets all alike;
 * it only ever makes a step longer, so the shortest one counts. Prints JSON: milliseconds, and ratios.
 */
#include <evenodd/evenodd.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAYERS = 12, PARAMETERS = 20, ELEMENTS = 64 << 10, GROUPS = 20, ROUNDS = 60 };

static void must(eo_status status, const char *what)
{
    if (status >= 0)
        return;
    fprintf(stderr, "bench_update: %s: %s\n", what, eo_status_text(status));
    exit(1);
}

static void print_line(void *user, eo_log_level level, const char *text)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", text);
}

struct training {
    eo_model *model;
    eo_plan *plan;
    eo_world *world;
    eo_runtime *runtime;
    uint32_t groups;
    bool skips;
    eo_optimizer optimizer;
    double ms[ROUNDS];
};

static void open_training(struct training *t)
{
    static const eo_log log = {.write = print_line, .level = EO_LOG_WARN};
    must(eo_model_create(&t->model, eo_model_params(.name = "update", .log = &log)), "model");
    for (uint32_t l = 0; l < LAYERS; l++) {
        char name[EO_NAME_MAX];
        snprintf(name, sizeof(name), "layer%u", l);
        must(eo_model_add_layer(t->model, eo_layer_params(.name = name), NULL), "layer");
        for (uint32_t k = 0; k < PARAMETERS; k++) {
            snprintf(name, sizeof(name), "layer%u.%u", l, k);
            must(eo_model_add_parameter(t->model,
                                        eo_parameter_params(.layer = l, .name = name, .dim_count = 1, .dims = {ELEMENTS},
                                                            .group = k % t->groups),
                                        NULL),
                 "parameter");
        }
        must(eo_model_add_position(t->model, eo_position_params(.layer = l), NULL), "position");
    }
    must(eo_plan_create(&t->plan, t->model, eo_plan_params(.log = &log, .optimizer = t->optimizer)), "plan");
    must(eo_world_create_local(&t->world, eo_world_params(.log = &log)), "world");
    must(eo_runtime_create(&t->runtime, eo_runtime_params(.plan = t->plan, .world = t->world, .log = &log)), "runtime");
}

static void close_training(struct training *t)
{
    eo_runtime_destroy(&t->runtime);
    eo_world_destroy(&t->world);
    eo_plan_destroy(&t->plan);
    eo_model_destroy(&t->model);
}

static void run_passes(const struct training *t)
{
    const eo_view *view;
    for (uint32_t p = 0; p < LAYERS; p++) {
        must(eo_forward_begin(t->runtime, p, &view), "forward");
        must(eo_forward_end(t->runtime, p), "forward");
    }
    for (uint32_t p = LAYERS; p-- > 0;) {
        must(eo_backward_begin(t->runtime, p, &view), "backward");
        must(eo_gradients_begin(t->runtime, p, &view), "gradients");
        for (uint32_t k = 0; k < PARAMETERS; k++)
            memset(view->gradients[k], 0x11, ELEMENTS * sizeof(float));
        *(float *)view->gradients[0] = t->skips && p == 0 ? INFINITY : 1;
        must(eo_backward_end(t->runtime, p), "backward");
    }
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void step(struct training *t, int round)
{
    eo_parameter_group groups[GROUPS];
    for (uint32_t g = 0; g < t->groups; g++)
        groups[g] = (eo_parameter_group){.learning_rate_factor = 1 + (float)g, .beta2 = 0.9f + 0.001f * (float)g};
    const double begin_ms = now_ms();
    eo_step_report report;
    must(eo_step_begin(t->runtime), "step");
    run_passes(t);
    must(eo_step_end(t->runtime,
                     eo_step_params(.learning_rate = 1e-3f, .weight_decay = 0.1f, .clip = 1, .on_not_finite = EO_SKIP,
                                    .groups = groups, .group_count = t->groups),
                     &report),
         "step");
    t->ms[round] = now_ms() - begin_ms;
    if (report.skipped != t->skips)
        must(EO_ERR_INVALID, "a step was skipped that should not, or the other way round");
}

static double shortest(const double *values)
{
    double least = values[0];
    for (int i = 1; i < ROUNDS; i++)
        least = values[i] < least ? values[i] : least;
    return least;
}

int main(void)
{
    enum { KINDS = 4 };
    struct training kinds[KINDS] = {{.groups = 1}, {.groups = GROUPS}, {.groups = 1, .skips = true},
                                    {.groups = 1, .optimizer = EO_OPTIMIZER_ADAMW8BIT}};
    double ms[KINDS];
    for (int k = 0; k < KINDS; k++)
        open_training(&kinds[k]);
    for (int round = -2; round < ROUNDS; round++) /* the first ones touch memory */
        for (int k = 0; k < KINDS; k++)
            step(&kinds[k], round < 0 ? 0 : round);
    for (int k = 0; k < KINDS; k++) {
        ms[k] = shortest(kinds[k].ms);
        close_training(&kinds[k]);
    }
    printf("{\"one_group_ms\": %.3f, \"groups_ms\": %.3f, \"skipped_ms\": %.3f, \"narrow_ms\": %.3f, \"groups_ratio\": %.4f, "
           "\"skipped_ratio\": %.4f, \"narrow_ratio\": %.4f}\n",
           ms[0], ms[1], ms[2], ms[3], ms[1] / ms[0], ms[2] / ms[0], ms[3] / ms[0]);
    return 0;
}
