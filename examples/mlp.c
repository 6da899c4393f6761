/* SPDX-License-Identifier: MIT
 *
 * A multi-layer perceptron, trained by two ranks. It learns to tell points inside a circle (1) from points outside (-1).
 *
 * Each rank is a thread, and owns a half of every layer: weights, gradients and optimizer state. Both halves of the weights
 * are there between a `begin` and its `end`. The ranks see different points; evenodd adds their gradients, so both take the
 * same step. To compile: cc -std=c11 mlp.c $(pkg-config --cflags --libs evenodd) -lm
 */
#include <evenodd/evenodd.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

enum { RANKS = 2, LAYERS = 3, WIDTH = 33, POINTS = 64 /* of a rank, in a step */, STEPS = 300 };
static const char *const names[LAYERS] = {"first", "second", "third"};
static const int ins[LAYERS] = {3, WIDTH, WIDTH}, outs[LAYERS] = {WIDTH - 1, WIDTH - 1, 1}; /* one input is 1: its weights are the bias */
static eo_plan *plan;

struct rank {
    pthread_t thread;
    eo_world *world;
    uint64_t random;
    eo_status status;
    float at[LAYERS + 1][POINTS][WIDTH];    /* a layer's inputs; the last one is the answer */
    float slope[LAYERS + 1][POINTS][WIDTH]; /* the slope of the loss by each of these */
};

/* A failed call ends the function with its status. */
static void mlp_log_line(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level, fprintf(stderr, "%s\n", text);
}
static const eo_log mlp_log = {.write = mlp_log_line, .level = EO_LOG_WARN};

static float random_number(uint64_t *state) /* from -1 to 1 */
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (1 << 23) - 1;
}

/* The kernels are yours. Here y = tanh(W x), without the tanh in the last layer. */
static void forward(struct rank *r, int l, const float *weight)
{
    for (int p = 0; p < POINTS; p++) {
        r->at[l][p][ins[l] - 1] = 1;
        for (int o = 0; o < outs[l]; o++) {
            float sum = 0;
            for (int i = 0; i < ins[l]; i++)
                sum += weight[o * ins[l] + i] * r->at[l][p][i];
            r->at[l + 1][p][o] = l + 1 < LAYERS ? tanhf(sum) : sum;
        }
    }
}

/* Adds to the gradient, which begins as zeros (`zero_gradients` below). */
static void backward(struct rank *r, int l, const float *weight, float *gradient)
{
    for (int p = 0; p < POINTS; p++) {
        for (int i = 0; i < ins[l]; i++) {
            float sum = 0;
            for (int o = 0; o < outs[l]; o++) {
                sum += weight[o * ins[l] + i] * r->slope[l + 1][p][o];
                gradient[o * ins[l] + i] += r->at[l][p][i] * r->slope[l + 1][p][o];
            }
            r->slope[l][p][i] = sum * (1 - r->at[l][p][i] * r->at[l][p][i]); /* through the tanh of the layer below */
        }
    }
}

/* One step: evenodd's calls around the kernels, in the plan's order. */
static eo_status train_step(struct rank *r, eo_runtime *rt, eo_step_report *report)
{
    double loss = 0;
    const eo_view *view;
    for (int i = 0; i < 2 * POINTS; i++) /* fresh points, different ones on each rank */
        r->at[0][i / 2][i % 2] = random_number(&r->random);
    EO_TRY(eo_step_begin(rt));
    for (uint32_t l = 0; l < LAYERS; l++) {
        EO_TRY(eo_forward_begin(rt, l, &view)); /* waits for the layer's full weights */
        forward(r, (int)l, view->weights[0]);
        EO_TRY(eo_forward_end(rt, l)); /* from here on their buffer may take another layer */
    }
    for (int p = 0; p < POINTS; p++) { /* the mean of squared errors, and its slope */
        const float *x = r->at[0][p], error = r->at[LAYERS][p][0] - (x[0] * x[0] + x[1] * x[1] < 0.5f ? 1.0f : -1.0f);
        loss += (double)(error * error) / POINTS;
        r->slope[LAYERS][p][0] = 2 * error / POINTS * eo_loss_scale(rt); /* 1 / ranks, because gradients are summed */
    }
    for (uint32_t l = LAYERS; l-- > 0;) {
        EO_TRY(eo_backward_begin(rt, l, &view));  /* the weights again */
        EO_TRY(eo_gradients_begin(rt, l, &view)); /* waits until the gradient buffer is free */
        backward(r, (int)l, view->weights[0], view->gradients[0]);
        EO_TRY(eo_backward_end(rt, l)); /* the ranks' gradients are added during the next layer's work */
    }
    return eo_step_end(rt, eo_step_params(.learning_rate = 0.01f, .clip = 1, .values = {loss}), report); /* AdamW */
}

static eo_status train(struct rank *r, eo_runtime *rt)
{
    float weights[WIDTH * WIDTH];
    uint64_t random = 1; /* equal on all ranks: each keeps its part */
    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < ins[l] * outs[l]; i++)
            weights[i] = random_number(&random) / sqrtf((float)ins[l]);
        EO_TRY(eo_weights_write(rt, names[l], weights));
    }
    eo_step_report report;
    for (int step = 1; step <= STEPS; step++) {
        EO_TRY(train_step(r, rt, &report));
        if (eo_runtime_rank(rt) == 0 && (step == 1 || step % 50 == 0))
            printf("step %3d   loss %.4f\n", step, report.values[0] / RANKS); /* values come back summed over the ranks */
    }
    return EO_OK;
}

static void *rank_main(void *arg)
{
    struct rank *r = arg; eo_runtime *rt = NULL;
    r->status = eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = r->world, .zero_gradients = true, .log = &mlp_log));
    if (r->status < 0 || (r->status = train(r, rt)) < 0)
        eo_world_abort(r->world, eo_status_text(r->status)); /* or the other rank waits for this one */
    eo_runtime_destroy(&rt);
    return NULL;
}

/* Layers in order of execution, each with its parameters; then a place for every buffer of a step, and its proof. */
static eo_status make_plan(eo_model *model)
{
    for (uint32_t l = 0; l < LAYERS; l++) {
        EO_TRY(eo_model_add_layer(model, eo_layer_params(.name = names[l]), NULL));
        EO_TRY(eo_model_add_parameter(model, eo_parameter_params(.layer = l, .name = names[l], .dim_count = 2,
                                                              .dims = {(uint64_t)outs[l], (uint64_t)ins[l]}), NULL));
        EO_TRY(eo_model_add_position(model, eo_position_params(.layer = l), NULL));
    }
    return eo_plan_create(&plan, model, eo_plan_params(.rank_count = RANKS));
}

int main(void)
{
    static struct rank ranks[RANKS];
    eo_world *worlds[RANKS] = {NULL};
    eo_model *model = NULL;
    bool good = eo_model_create(&model, eo_model_params(.name = "mlp", .log = &mlp_log)) >= 0 && make_plan(model) >= 0 &&
                eo_world_create_local(worlds, eo_world_params(.rank_count = RANKS, .log = &mlp_log)) >= 0;
    for (int r = 0; r < RANKS && worlds[0]; r++) {
        ranks[r].world = worlds[r], ranks[r].random = (uint64_t)r + 100;
        pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]);
    }
    for (int r = 0; r < RANKS && worlds[0]; r++)
        good = pthread_join(ranks[r].thread, NULL) == 0 && ranks[r].status >= 0 && good;
    for (int r = 0; r < RANKS; r++) eo_world_destroy(&worlds[r]);
    eo_plan_destroy(&plan), eo_model_destroy(&model);
    return !good;
}
