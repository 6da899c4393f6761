/* SPDX-License-Identifier: MIT
 *
 * Muon in a trainer of your own: the matrices between the first and the last layer are moved by Muon, all else by AdamW, in one
 * plan and one step. Two ranks fit a curve of eight variables; peer.py is the same training in PyTorch.
 *
 * Muon needs whole matrices, and a rank has half of each. So every matrix has an owner, which gathers it, makes its momentum
 * orthogonal, and gives the ranks their parts of the result. The library plans all of it; the trainer marks the matrices.
 */
#include <evenodd/evenodd.h>
#include <math.h>
#include <stdio.h>
#include <threads.h>

enum { RANKS = 2, LAYERS = 4, WIDTH = 48, POINTS = 64 /* of a rank, in a step */, STEPS = 100 };
static const struct layer {
    const char *name, *bias;
    uint32_t in, out;
    bool matrix; /* Muon's */
} layers[LAYERS] = {
    {"first", "first.bias", 8, 24, false}, {"up", "up.bias", 24, 48, true}, {"down", "down.bias", 48, 24, true},
    {"last", "last.bias", 24, 1, false},
};
static eo_plan *plan;

struct rank {
    eo_world *world;
    float at[LAYERS + 1][POINTS][WIDTH];    /* a layer's inputs; the last one is the answer */
    float slope[LAYERS + 1][POINTS][WIDTH]; /* the slope of the loss by each of these */
};

static void muon_log_line(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level, fprintf(stderr, "%s\n", text);
}
static const eo_log muon_log = {.write = muon_log_line, .level = EO_LOG_WARN};

/* In [-1, 1), from a number. */
static float spread(uint32_t number)
{
    number = (number ^ (number >> 16)) * 0x7FEB352Du;
    number = (number ^ (number >> 15)) * 0x846CA68Bu;
    return (float)((number ^ (number >> 16)) >> 8) * 0x1p-23f - 1;
}

static eo_status fill(void *user, uint64_t offset, uint64_t count, float *values)
{
    const uint32_t *l = user; /* 0 in biases: they stay zero */
    for (uint64_t i = 0; i < count; i++)
        values[i] = spread(*l * 100000 + (uint32_t)(offset + i)) / sqrtf((float)layers[*l].in);
    return EO_OK;
}

/* y = tanh(W x + b), without the tanh in the last layer. */
static void forward(struct rank *r, uint32_t l, const float *weight, const float *bias)
{
    for (int p = 0; p < POINTS; p++)
        for (uint32_t o = 0; o < layers[l].out; o++) {
            float sum = bias[o];
            for (uint32_t i = 0; i < layers[l].in; i++)
                sum += weight[o * layers[l].in + i] * r->at[l][p][i];
            r->at[l + 1][p][o] = l + 1 < LAYERS ? tanhf(sum) : sum;
        }
}

/* Adds to the gradients, which begin as zeros (`zero_gradients` below). */
static void backward(struct rank *r, uint32_t l, const float *weight, float *d_weight, float *d_bias)
{
    for (int p = 0; p < POINTS; p++) {
        for (uint32_t i = 0; i < layers[l].in; i++) {
            float sum = 0;
            for (uint32_t o = 0; o < layers[l].out; o++) {
                sum += weight[o * layers[l].in + i] * r->slope[l + 1][p][o];
                d_weight[o * layers[l].in + i] += r->at[l][p][i] * r->slope[l + 1][p][o];
            }
            r->slope[l][p][i] = sum * (1 - r->at[l][p][i] * r->at[l][p][i]); /* through the tanh of the layer below */
        }
        for (uint32_t o = 0; o < layers[l].out; o++)
            d_bias[o] += r->slope[l + 1][p][o];
    }
}

/* Sets the points of this rank, fresh ones in each step. */
static void draw(struct rank *r, uint32_t step)
{
    const uint32_t first = (step * RANKS + eo_world_rank(r->world)) * POINTS;
    for (uint32_t p = 0; p < POINTS; p++)
        for (uint32_t i = 0; i < layers[0].in; i++)
            r->at[0][p][i] = spread(0x40000000u + (first + p) * layers[0].in + i);
}

/* The mean of the squared errors, and its slope. */
static double loss_of(struct rank *r, float scale)
{
    double loss = 0;
    for (int p = 0; p < POINTS; p++) {
        const float *x = r->at[0][p], error = r->at[LAYERS][p][0] - (sinf(3 * x[0]) + x[1] * x[2]);
        loss += (double)(error * error) / POINTS;
        r->slope[LAYERS][p][0] = 2 * error / POINTS * scale;
    }
    return loss;
}

static eo_status train_step(struct rank *r, eo_runtime *rt, eo_step_report *report)
{
    const eo_view *view;
    EO_TRY(eo_step_begin(rt));
    for (uint32_t l = 0; l < LAYERS; l++) {
        EO_TRY(eo_forward_begin(rt, l, &view));
        forward(r, l, view->weights[0], view->weights[1]);
        EO_TRY(eo_forward_end(rt, l));
    }
    const double loss = loss_of(r, eo_loss_scale(rt));
    for (uint32_t l = LAYERS; l-- > 0;) {
        EO_TRY(eo_backward_begin(rt, l, &view));
        EO_TRY(eo_gradients_begin(rt, l, &view));
        backward(r, l, view->weights[0], view->gradients[0], view->gradients[1]);
        EO_TRY(eo_backward_end(rt, l));
    }
    /* One learning rate serves both. The momentum is Muon's, the other numbers are AdamW's. */
    return eo_step_end(rt, eo_step_params(.learning_rate = 0.01f, .momentum = 0.95f, .beta2 = 0.95f, .eps = 1e-8f,
                                          .weight_decay = 0.1f, .values = {loss}), report);
}

static eo_status train(struct rank *r, eo_runtime **rt)
{
    eo_step_report report;
    EO_TRY(eo_runtime_create(rt, eo_runtime_params(.plan = plan, .world = r->world, .zero_gradients = true, .log = &muon_log)));
    for (uint32_t l = 0; l < LAYERS; l++)
        EO_TRY(eo_weights_fill(*rt, 2 * l, fill, &l));
    for (uint32_t step = 0; step < STEPS; step++) {
        draw(r, step);
        EO_TRY(train_step(r, *rt, &report));
        if (eo_world_rank(r->world) == 0 && (step % 10 == 0 || step + 1 == STEPS))
            printf("step %u loss %.6f\n", step + 1, report.values[0] / RANKS);
    }
    return EO_OK;
}

static int rank_main(void *arg)
{
    struct rank *r = arg;
    eo_runtime *rt = NULL;
    const eo_status status = train(r, &rt);
    if (status < 0)
        eo_world_abort(r->world, eo_status_text(status)); /* or the other rank waits for this one */
    eo_runtime_destroy(&rt);
    return status < 0;
}

static eo_status describe(eo_model **model)
{
    EO_TRY(eo_model_create(model, eo_model_params(.name = "a curve", .log = &muon_log)));
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct layer *layer = &layers[l];
        EO_TRY(eo_model_add_layer(*model, eo_layer_params(.name = layer->name), NULL));
        EO_TRY(eo_model_add_parameter(*model, eo_parameter_params(.layer = l, .name = layer->name, .dim_count = 2,
                                                               .dims = {layer->out, layer->in}, .matrix = layer->matrix), NULL));
        EO_TRY(eo_model_add_parameter(*model, eo_parameter_params(.layer = l, .name = layer->bias, .dim_count = 1,
                                                               .dims = {layer->out}, .no_weight_decay = true), NULL));
        EO_TRY(eo_model_add_position(*model, eo_position_params(.layer = l), NULL));
    }
    return eo_plan_create(&plan, *model, eo_plan_params(.rank_count = RANKS, .optimizer = EO_OPTIMIZER_MUON));
}

int main(void)
{
    static struct rank ranks[RANKS];
    eo_model *model = NULL;
    eo_world *worlds[RANKS] = {NULL};
    thrd_t threads[RANKS];
    int failed[RANKS] = {1, 1};
    const bool made = describe(&model) >= 0 && eo_world_create_local(worlds, eo_world_params(.rank_count = RANKS, .log = &muon_log)) >= 0;
    for (int r = 0; r < RANKS && made; r++) {
        ranks[r].world = worlds[r];
        thrd_create(&threads[r], rank_main, &ranks[r]);
    }
    for (int r = 0; r < RANKS && made; r++)
        thrd_join(threads[r], &failed[r]);
    for (int r = 0; r < RANKS; r++)
        eo_world_destroy(&worlds[r]);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
    return failed[0] || failed[1];
}
