/* SPDX-License-Identifier: MIT
 *
 * Goal: eo_input_gradients_begin brings the gradient of a network's inputs on every rank, moves no gradients of weights, and
 * leaves the training as it is: what a GAN's generator needs of its discriminator.
 * Method: a network of three layers and a head that computes its loss in the backward pass. Its input gradients are those of
 * the same kernels on weights read back, to the bit, before and between steps; steps with such runs between them end in the
 * bits of steps without; the runs carry the bytes of their gathers. Where all layers are frozen ordinary steps do the same.
 */
#include <evenodd/evenodd.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap/tap.h"
#include "tests/tap/threads.h"

enum { WIDTH = 24, LAYERS = 3, RANKS_MAX = 3, STEPS = 3, BATCHES = 2 };

static const struct variant {
    const char *name;
    eo_plan_params plan;
    eo_memory memory;
    bool debug;
} variants[] = {
    {"static", {0}, EO_MEMORY_STATIC, false},
    {"debug", {0}, EO_MEMORY_STATIC, true},
    {"dynamic", {0}, EO_MEMORY_DYNAMIC_POOL, false},
    {"saved buffers offloaded", {.offload_activations = UINT32_MAX}, EO_MEMORY_STATIC, true},
    {"late updates", {.offload_layers = UINT32_MAX, .late_updates = true}, EO_MEMORY_STATIC, true},
    {"one slot, no prefetch", {.gather_slots = 1, .gradient_slots = 1, .no_prefetch = true}, EO_MEMORY_STATIC, true},
    {"ddp", {.strategy = EO_STRATEGY_DDP}, EO_MEMORY_STATIC, false},
};

struct rank {
    const struct variant *variant;
    const eo_plan *plan;
    eo_world *world;
    bool finds_inputs, is_frozen;
    float (*weights)[WIDTH * WIDTH];
};

static void must(eo_status status, const char *what, const eo_runtime *rt)
{
    if (status >= 0)
        return;
    printf("Bail out! %s: %s %s\n", what, eo_status_text(status), eo_runtime_error(rt));
    exit(1);
}

/* -- the network: y = tanh(W x) thrice, and a loss w . y -------------------------------------------------------------*/

static void layer_forward(const float *w, const float *x, float *y)
{
    for (int i = 0; i < WIDTH; i++) {
        float sum = 0;
        for (int k = 0; k < WIDTH; k++)
            sum += w[i * WIDTH + k] * x[k];
        y[i] = tanhf(sum);
    }
}

static void layer_backward(const float *w, const float *y, const float *dy, float *dx)
{
    memset(dx, 0, WIDTH * sizeof(*dx));
    for (int i = 0; i < WIDTH; i++)
        for (int k = 0; k < WIDTH; k++)
            dx[k] += w[i * WIDTH + k] * dy[i] * (1 - y[i] * y[i]);
}

static void layer_gradient(const float *x, const float *y, const float *dy, float *dw)
{
    for (int i = 0; i < WIDTH; i++)
        for (int k = 0; k < WIDTH; k++)
            dw[i * WIDTH + k] = dy[i] * (1 - y[i] * y[i]) * x[k];
}

static void make_input(uint32_t rank, uint32_t number, float *x)
{
    for (uint32_t k = 0; k < WIDTH; k++)
        x[k] = (float)((rank * 7 + number * 5 + k * 3) % 17) / 16 - 0.5f;
}

/* Buffers: outputs of the layers, then gradients of their inputs. That of position 0 is the caller's. */
static eo_model *make_model(bool is_frozen)
{
    eo_model *model;
    char name[32];
    must(eo_model_create(&model, eo_model_params(.name = "discriminator")), "model", NULL);
    for (uint32_t l = 0; l <= LAYERS; l++) {
        snprintf(name, sizeof(name), "w%u", l);
        must(eo_model_add_layer(model, eo_layer_params(.name = name, .frozen = is_frozen), NULL), "layer", NULL);
        must(eo_model_add_parameter(
                 model, eo_parameter_params(.layer = l, .name = name, .dim_count = 2, .dims = {l < LAYERS ? WIDTH : 1, WIDTH}),
                 NULL),
             "parameter", NULL);
        must(eo_model_add_position(model, eo_position_params(.layer = l, .forward_in_backward = l == LAYERS), NULL), "position",
             NULL);
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof(name), "y%u", l);
        must(eo_model_add_buffer(model,
                                 eo_buffer_params(.name = name, .bytes = WIDTH * sizeof(float),
                                                  .category = EO_CATEGORY_ACTIVATION, .first = {EO_PASS_FORWARD, l},
                                                  .last = {EO_PASS_BACKWARD, l + 1}),
                                 NULL),
             "buffer", NULL);
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof(name), "dy%u", l);
        must(eo_model_add_buffer(model,
                                 eo_buffer_params(.name = name, .bytes = WIDTH * sizeof(float), .category = EO_CATEGORY_SCRATCH,
                                                  .first = {EO_PASS_RECOMPUTE, l + 1}, .last = {EO_PASS_BACKWARD, l}),
                                 NULL),
             "buffer", NULL);
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof(name), "saved%u", l); /* y once more, which backward reads */
        must(eo_model_add_buffer(model,
                                 eo_buffer_params(.name = name, .bytes = WIDTH * sizeof(float),
                                                  .category = EO_CATEGORY_ACTIVATION, .first = {EO_PASS_FORWARD, l},
                                                  .last = {EO_PASS_BACKWARD, l}, .saved = true),
                                 NULL),
             "buffer", NULL);
    }
    return model;
}

static void must_have_no_gradients(const eo_view *view)
{
    CHECK_THAT(view->gradients && view->weights);
    for (uint32_t k = 0; k < view->parameter_count; k++)
        CHECK_THAT(!view->gradients[k]);
}

/* `dx`: of a run for inputs alone, or of frozen layers; NULL: of a step. */
static void passes(eo_runtime *rt, const float *x, float *dx, bool is_frozen)
{
    const eo_view *view;
    for (uint32_t l = 0; l < LAYERS; l++) {
        must(eo_forward_begin(rt, l, &view), "forward", rt);
        float *y = eo_buffer(rt, l);
        layer_forward(view->weights[0], l ? eo_buffer(rt, l - 1) : x, y);
        memcpy(eo_buffer(rt, 2 * LAYERS + l), y, WIDTH * sizeof(float));
        must(eo_forward_end(rt, l), "forward", rt);
    }
    must(eo_backward_begin(rt, LAYERS, &view), "backward", rt);
    memcpy(eo_buffer(rt, 2 * LAYERS - 1), view->weights[0], WIDTH * sizeof(float));
    if (!is_frozen)
        must(eo_gradients_begin(rt, LAYERS, &view), "gradients", rt);
    if (dx && !is_frozen)
        must_have_no_gradients(view);
    else if (!dx)
        memcpy(view->gradients[0], eo_buffer(rt, LAYERS - 1), WIDTH * sizeof(float));
    must(eo_backward_end(rt, LAYERS), "backward", rt);
    for (uint32_t l = LAYERS; l-- > 0;) {
        float unused[WIDTH];
        must(eo_backward_begin(rt, l, &view), "backward", rt);
        layer_backward(view->weights[0], eo_buffer(rt, 2 * LAYERS + l), eo_buffer(rt, LAYERS + l),
                       l    ? eo_buffer(rt, LAYERS + l - 1)
                       : dx ? dx
                            : unused);
        if (!is_frozen)
            must(eo_gradients_begin(rt, l, &view), "gradients", rt);
        if (dx && !is_frozen)
            must_have_no_gradients(view);
        else if (!dx)
            layer_gradient(l ? eo_buffer(rt, l - 1) : x, eo_buffer(rt, 2 * LAYERS + l), eo_buffer(rt, LAYERS + l),
                           view->gradients[0]);
        must(eo_backward_end(rt, l), "backward", rt);
    }
}

/* The same without shards. */
static void expect_inputs(float w[LAYERS + 1][WIDTH * WIDTH], const float *x, float *dx)
{
    float y[LAYERS][WIDTH], dy[WIDTH];
    for (uint32_t l = 0; l < LAYERS; l++)
        layer_forward(w[l], l ? y[l - 1] : x, y[l]);
    memcpy(dy, w[LAYERS], sizeof(dy));
    for (uint32_t l = LAYERS; l-- > 0;) {
        layer_backward(w[l], y[l], dy, dx);
        memcpy(dy, dx, sizeof(dy));
    }
}

static void read_weights(eo_runtime *rt, float w[LAYERS + 1][WIDTH * WIDTH])
{
    char name[8];
    for (uint32_t l = 0; l <= LAYERS; l++) {
        snprintf(name, sizeof(name), "w%u", l);
        must(eo_weights_read(rt, name, w[l]), "read", rt);
    }
}

static uint64_t gathered_bytes(const eo_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < eo_plan_operation_count(plan, EO_LIST_INPUTS); i++) {
        eo_plan_operation o;
        must(eo_plan_get_operation(plan, EO_LIST_INPUTS, i, &o), "operation", NULL);
        CHECK(o.kind == EO_OP_ALL_GATHER || o.kind == EO_OP_FORWARD || o.kind == EO_OP_RECOMPUTE || o.kind == EO_OP_BACKWARD ||
                  o.kind == EO_OP_FETCH || o.kind == EO_OP_EVICT,
              "the list has %s", o.name);
        bytes += o.kind == EO_OP_ALL_GATHER ? o.bytes : 0;
    }
    return bytes;
}

static void find_inputs(const struct rank *self, eo_runtime *rt, uint32_t number)
{
    float w[LAYERS + 1][WIDTH * WIDTH], x[WIDTH], dx[WIDTH], expected[WIDTH];
    eo_runtime_stats before, after;
    make_input(eo_runtime_rank(rt), number, x);
    eo_runtime_get_stats(rt, &before);
    must(eo_input_gradients_begin(rt), "inputs", rt);
    passes(rt, x, dx, false);
    must(eo_input_gradients_end(rt), "inputs", rt);
    eo_runtime_get_stats(rt, &after);
    CHECK_THAT(self->variant->memory != EO_MEMORY_STATIC ||
               after.collective_bytes - before.collective_bytes == gathered_bytes(self->plan));
    CHECK_THAT(after.steps == before.steps);
    read_weights(rt, w);
    expect_inputs(w, x, expected);
    CHECK(memcmp(dx, expected, sizeof(dx)) == 0, "run %u: the gradient begins with %g, not %g", number, (double)dx[0],
          (double)expected[0]);
}

static eo_status fill(void *user, uint64_t offset, uint64_t count, float *values)
{
    (void)user;
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)((offset + i) * 37 % 101) / 200 - 0.25f;
    return EO_OK;
}

static void *train(void *arg)
{
    const struct rank *self = arg;
    eo_runtime *rt;
    float x[WIDTH];
    must(eo_runtime_create(&rt, eo_runtime_params(.plan = self->plan, .world = self->world, .memory = self->variant->memory,
                                                  .debug = self->variant->debug)),
         "runtime", NULL);
    for (uint32_t l = 0; l <= LAYERS; l++)
        must(eo_weights_fill(rt, l, fill, NULL), "fill", rt);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t n = 0; n < step + 1 && self->finds_inputs; n++)
            find_inputs(self, rt, step * STEPS + n);
        must(eo_step_begin(rt), "step", rt);
        for (uint32_t b = 0; b < BATCHES; b++) {
            make_input(eo_runtime_rank(rt), 100 + step * BATCHES + b, x);
            passes(rt, x, NULL, false);
        }
        must(eo_step_end(rt, eo_step_params(.learning_rate = 0.01f), NULL), "step", rt);
    }
    read_weights(rt, self->weights);
    eo_runtime_destroy(&rt);
    return NULL;
}

/* All layers are frozen: steps need no learning rate. */
static void *step_frozen(void *arg)
{
    const struct rank *self = arg;
    eo_runtime *rt;
    float x[WIDTH], dx[WIDTH], expected[WIDTH];
    must(eo_runtime_create(&rt, eo_runtime_params(.plan = self->plan, .world = self->world, .memory = self->variant->memory,
                                                  .debug = self->variant->debug)),
         "runtime", NULL);
    for (uint32_t l = 0; l <= LAYERS; l++)
        must(eo_weights_fill(rt, l, fill, NULL), "fill", rt);
    read_weights(rt, self->weights);
    for (uint32_t step = 0; step < STEPS; step++) {
        must(eo_step_begin(rt), "step", rt);
        for (uint32_t b = 0; b < BATCHES; b++) {
            make_input(eo_runtime_rank(rt), step * BATCHES + b, x);
            passes(rt, x, dx, true);
            expect_inputs(self->weights, x, expected);
            CHECK(memcmp(dx, expected, sizeof(dx)) == 0, "frozen, step %u: the gradient begins with %g, not %g", step,
                  (double)dx[0], (double)expected[0]);
        }
        must(eo_step_end(rt, eo_step_params(.clip = 1), NULL), "step", rt);
    }
    eo_runtime_destroy(&rt);
    return NULL;
}

static void run(const struct variant *v, uint32_t ranks, bool finds_inputs, bool is_frozen,
                float weights[LAYERS + 1][WIDTH * WIDTH])
{
    static float others[RANKS_MAX][LAYERS + 1][WIDTH * WIDTH];
    struct rank all[RANKS_MAX];
    eo_world *worlds[RANKS_MAX];
    eo_model *model = make_model(is_frozen);
    eo_plan *plan;
    eo_plan_params params = v->plan;
    params.rank_count = ranks;
    params.micro_batches = BATCHES;
    params.input_gradients = finds_inputs;
    must(eo_plan_create(&plan, model, &params), "plan", NULL);
    must(eo_world_create_local(worlds, eo_world_params(.rank_count = ranks)), "world", NULL);
    for (uint32_t r = 0; r < ranks; r++)
        all[r] = (struct rank){v, plan, worlds[r], finds_inputs, is_frozen, r ? others[r] : weights};
    run_as_threads(is_frozen ? step_frozen : train, all, ranks, sizeof(all[0]));
    for (uint32_t r = 0; r < ranks; r++)
        eo_world_destroy(&worlds[r]);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

int main(void)
{
    for (size_t v = 0; v < sizeof(variants) / sizeof(variants[0]); v++) {
        char text[128];
        for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
            static float with[LAYERS + 1][WIDTH * WIDTH], without[LAYERS + 1][WIDTH * WIDTH];
            run(&variants[v], ranks, true, false, with);
            run(&variants[v], ranks, false, false, without);
            CHECK(memcmp(with, without, sizeof(with)) == 0, "%u ranks: the training ends in other weights", ranks);
            if (!variants[v].plan.offload_layers)
                run(&variants[v], ranks, false, true, with);
        }
        snprintf(text, sizeof(text), "%s: gradients of inputs alone, on one to three ranks", variants[v].name);
        tap_case(text);
    }
    return tap_end();
}
