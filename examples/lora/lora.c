/* SPDX-License-Identifier: MIT
 *
 * A low-rank adapter (LoRA) in a trainer of your own: y = W x + B (A x), with W frozen beside A and B in one layer. The data are of
 * W plus a matrix of rank 1, which two ranks find: the loss goes down by orders of magnitude, and W stays as it was.
 */
#include <evenodd/evenodd.h>
#include <stdio.h>
#include <string.h>
#include <threads.h>

enum { IN = 8, OUT = 6, RANK = 2, RANKS = 2, STEPS = 400 };
enum { W, A, B }; /* places in views: the order in which parameters are added */
static void lora_log_line(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level, fprintf(stderr, "%s\n", text);
}
static const eo_log lora_log = {.write = lora_log_line, .level = EO_LOG_WARN};

static eo_plan *plan;

/* In [-1, 1], from a number. */
static float spread(uint32_t number)
{
    return (float)(number * 2654435761u >> 8) * 0x1p-23f - 1;
}

static eo_status fill(void *user, uint64_t offset, uint64_t count, float *values)
{
    const uint32_t *parameter = user;
    for (uint64_t i = 0; i < count; i++) /* B begins as zeros: the first output is that of W alone */
        values[i] = *parameter == B ? 0 : spread((uint32_t)(offset + i) + 1000 * *parameter);
    return EO_OK;
}

static void multiply(const float *matrix, const float *x, int rows, int columns, float *out)
{
    for (int r = 0; r < rows; r++) {
        out[r] = 0;
        for (int c = 0; c < columns; c++)
            out[r] += matrix[r * columns + c] * x[c];
    }
}

/* One sample a step: forward, and the gradients of A and B. W has none: its place in the view of gradients is NULL. */
static eo_status run_step(eo_runtime *rt, uint32_t number, eo_step_report *report)
{
    const eo_view *view;
    float x[IN], low[RANK], y[OUT], error[OUT], d_low[RANK] = {0}, loss = 0, along = 0;
    for (uint32_t i = 0; i < IN; i++)
        x[i] = spread(number * IN + i);
    EO_TRY(eo_step_begin(rt));
    EO_TRY(eo_forward_begin(rt, 0, &view));
    multiply(view->weights[W], x, OUT, IN, y);
    multiply(view->weights[A], x, RANK, IN, low);
    for (int i = 0; i < IN; i++)
        along += x[i] / IN;
    for (int o = 0; o < OUT; o++) {
        const float *b = (const float *)view->weights[B] + o * RANK, added = b[0] * low[0] + b[1] * low[1];
        error[o] = added - (float)(o + 1) * along; /* the data: W x plus this */
        loss += error[o] * error[o] / 2;
    }
    EO_TRY(eo_forward_end(rt, 0));
    EO_TRY(eo_backward_begin(rt, 0, &view));
    EO_TRY(eo_gradients_begin(rt, 0, &view));
    float *a = view->gradients[A], *b = view->gradients[B];
    for (int o = 0; o < OUT; o++)
        for (int r = 0; r < RANK; r++) {
            const float scaled = error[o] * eo_loss_scale(rt);
            b[o * RANK + r] = scaled * low[r];
            d_low[r] += scaled * ((const float *)view->weights[B])[o * RANK + r];
        }
    for (int r = 0; r < RANK; r++)
        for (int i = 0; i < IN; i++)
            a[r * IN + i] = d_low[r] * x[i];
    EO_TRY(eo_backward_end(rt, 0));
    return eo_step_end(rt, eo_step_params(.learning_rate = 0.02f, .values = {(double)loss}), report);
}

/* Whether W is what it was filled with. */
static eo_status check_frozen(void *user, const eo_parameter_info *parameter, const float *values)
{
    bool *same = user;
    for (uint32_t i = 0; strcmp(parameter->name, "W") == 0 && i < parameter->element_count; i++)
        *same = *same && values[i] == spread(i);
    return EO_OK;
}

static eo_status train(eo_world *world, eo_runtime **rt)
{
    eo_step_report report = {0};
    bool same = true;
    EO_TRY(eo_runtime_create(rt, eo_runtime_params(.plan = plan, .world = world, .log = &lora_log)));
    for (uint32_t parameter = W; parameter <= B; parameter++)
        EO_TRY(eo_weights_fill(*rt, parameter, fill, &parameter));
    for (uint32_t step = 0; step < STEPS; step++) {
        EO_TRY(run_step(*rt, step * RANKS + eo_world_rank(world), &report));
        if (eo_world_rank(world) == 0 && (step % 100 == 0 || step + 1 == STEPS))
            printf("step %u loss %g\n", step + 1, report.values[0]);
    }
    EO_TRY(eo_weights_visit(*rt, check_frozen, &same));
    if (eo_world_rank(world) == 0)
        printf("W is %s\n", same ? "as it was" : "another one");
    return EO_OK;
}

static int rank_main(void *world)
{
    eo_runtime *rt = NULL;
    const eo_status status = train(world, &rt);
    if (status < 0)
        eo_world_abort(world, eo_status_text(status)); /* or the others wait for this rank */
    eo_runtime_destroy(&rt);
    return status < 0;
}

static eo_status describe(eo_model **model)
{
    EO_TRY(eo_model_create(model, eo_model_params(.name = "an adapter", .log = &lora_log)));
    EO_TRY(eo_model_add_layer(*model, eo_layer_params(.name = "linear"), NULL));
    EO_TRY(eo_model_add_parameter(*model, eo_parameter_params(.name = "W", .dim_count = 2, .dims = {OUT, IN}, .frozen = true), NULL));
    EO_TRY(eo_model_add_parameter(*model, eo_parameter_params(.name = "A", .dim_count = 2, .dims = {RANK, IN}), NULL));
    EO_TRY(eo_model_add_parameter(*model, eo_parameter_params(.name = "B", .dim_count = 2, .dims = {OUT, RANK}), NULL));
    EO_TRY(eo_model_add_position(*model, eo_position_params(.layer = 0), NULL));
    return eo_plan_create(&plan, *model, eo_plan_params(.rank_count = RANKS));
}

int main(void)
{
    eo_model *model = NULL;
    eo_world *worlds[RANKS] = {NULL};
    thrd_t threads[RANKS];
    int failed[RANKS] = {1, 1};
    const bool made = describe(&model) >= 0 && eo_world_create_local(worlds, eo_world_params(.rank_count = RANKS, .log = &lora_log)) >= 0;
    for (int r = 0; r < RANKS && made; r++)
        thrd_create(&threads[r], rank_main, worlds[r]);
    for (int r = 0; r < RANKS && made; r++)
        thrd_join(threads[r], &failed[r]);
    for (int r = 0; r < RANKS; r++)
        eo_world_destroy(&worlds[r]);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
    return failed[0] || failed[1];
}
