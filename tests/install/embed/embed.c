/* SPDX-License-Identifier: MIT
 *
 * Goal: the library serves trainers that are not ours. This is a project of its own, which found it by pkg-config.
 * Method: a small network with its own kernels is trained sharded over 1, 2 and 3 ranks, and must agree with the same
 * training unsharded and in double (embed_network.h) to 1e-5; what only moves memory around must not change a bit.
 *
 *     struct run      what a training shall be, and what came of it
 *     struct trainer  one rank's part of it: its runtime and its activations
 *     struct rank     a thread, with one trainer, or two at once
 */
#include <evenodd/evenodd.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "embed_network.h"

enum { MICRO_BATCHES = 2, RANKS_MAX = 3, SAMPLES_MAX = EMBED_BATCH / MICRO_BATCHES, RUNS_AT_ONCE = 2 };

struct run {
    uint64_t seed;
    uint32_t rank_count;
    eo_memory memory;
    bool own_activations; /* in the trainer's memory, and not placed by the plan */
    bool own_optimizer;   /* SGD with momentum on the shards */
    bool fill;            /* initial weights by eo_weights_fill, and not by name */
    bool misuse;          /* calls out of order between, which must be refused and change nothing */
    bool debug;           /* dead memory is filled with NaN */
    bool rewrite;         /* at the end a parameter is written and read again */

    eo_model *model;
    eo_plan *plan;
    uint32_t outputs[EMBED_POSITIONS], gradients[EMBED_POSITIONS]; /* buffers the plan has placed */

    double loss[EMBED_STEPS], norm[EMBED_STEPS];
    float weights[EMBED_WEIGHTS];
    char error[512]; /* "" when all went well */
};

struct trainer {
    struct run *run;
    eo_runtime *runtime;
    uint32_t rank;
    int samples; /* a micro-batch */
    float input[SAMPLES_MAX * EMBED_IN], target[SAMPLES_MAX * EMBED_OUT];
    float outputs[EMBED_POSITIONS][SAMPLES_MAX * EMBED_WIDTH];
    float gradients[EMBED_POSITIONS][SAMPLES_MAX * EMBED_WIDTH];
};

struct rank {
    eo_world *world;
    struct run *runs[RUNS_AT_ONCE];
    uint32_t run_count;
    struct trainer trainers[RUNS_AT_ONCE];
};

/* Gives up a call that failed: the reason is kept, and the caller passes the failure on. */
#define TRY(call)                              \
    do {                                       \
        const eo_status try_status = (call);   \
        if (try_status < 0)                    \
            return fail(t, #call, try_status); \
    } while (0)

static bool fail(struct trainer *t, const char *call, eo_status status)
{
    snprintf(t->run->error, sizeof(t->run->error), "rank %u: %s: %s: %.300s", t->rank, call, eo_status_text(status),
             t->runtime != NULL ? eo_runtime_error(t->runtime) : "");
    return false;
}

/* --- the description --- */

static bool add_buffer(struct run *run, const char *kind, int position, int width, eo_moment first, uint32_t *out)
{
    char name[32];
    snprintf(name, sizeof(name), "%s.%d", kind, position);
    const uint64_t bytes = sizeof(float) * (uint64_t)(width * EMBED_BATCH / MICRO_BATCHES) / run->rank_count;
    return eo_model_add_buffer(run->model,
                               eo_buffer_params(.name = name, .bytes = bytes, .category = EO_CATEGORY_ACTIVATION,
                                                .first = first, .last = {EO_PASS_BACKWARD, (uint32_t)position}),
                               out) == EO_OK;
}

static bool describe(struct run *run)
{
    bool good = eo_model_create(&run->model, eo_model_params(.name = "embedded")) == EO_OK;
    for (uint32_t l = 0; good && l < EMBED_LAYERS; l++) {
        const struct embed_layer *layer = &embed_layers[l];
        char name[16];
        snprintf(name, sizeof(name), "layer.%u", l);
        const uint64_t in = (uint64_t)layer->in, out = (uint64_t)layer->out;
        good =
            eo_model_add_layer(run->model, eo_layer_params(.name = name, .frozen = layer->frozen), NULL) == EO_OK &&
            eo_model_add_parameter(
                run->model, eo_parameter_params(.layer = l, .name = layer->weight, .dim_count = 2, .dims = {out, in}),
                NULL) == EO_OK &&
            eo_model_add_parameter(run->model,
                                   eo_parameter_params(.layer = l, .name = layer->bias, .dim_count = 1, .dims = {out},
                                                       .no_weight_decay = true),
                                   NULL) == EO_OK;
    }
    for (int p = 0; good && p < EMBED_POSITIONS; p++) {
        char name[16];
        snprintf(name, sizeof(name), "position.%d", p);
        /* Nobody wants the gradient of the data, so the first backward pass reads no weights. */
        good = eo_model_add_position(run->model,
                                     eo_position_params(.layer = (uint32_t)embed_layer_of[p], .name = name,
                                                        .backward_without_weights = p == 0),
                                     NULL) == EO_OK;
    }
    for (int p = 0; good && !run->own_activations && p < EMBED_POSITIONS; p++) {
        const int width = embed_layers[embed_layer_of[p]].out;
        /* The gradient of an output is written by the position above (the last one's by the loss), before that asks
         * for its gradient buffer: in terms of lifetimes that is where it would recompute. */
        const uint32_t writer = (uint32_t)(p + 1 < EMBED_POSITIONS ? p + 1 : p);
        good = add_buffer(run, "output", p, width, (eo_moment){EO_PASS_FORWARD, (uint32_t)p}, &run->outputs[p]) &&
               add_buffer(run, "gradient", p, width, (eo_moment){EO_PASS_RECOMPUTE, writer}, &run->gradients[p]);
    }
    return good && eo_plan_create(&run->plan, run->model,
                                  eo_plan_params(.rank_count = run->rank_count, .micro_batches = MICRO_BATCHES,
                                                 .optimizer_states = run->own_optimizer ? 1 : 2)) == EO_OK;
}

/* --- one rank --- */

static void sgd(void *user, const eo_shard *shard)
{
    (void)user;
    for (uint64_t i = 0; i < shard->count; i++) {
        float *m = &shard->state[0][i];
        *m = (float)embed_momentum * *m + shard->gradient[i] * shard->gradient_scale;
        shard->weights[i] -= (float)embed_rate * *m;
    }
}

static eo_status fill(void *user, uint64_t offset, uint64_t count, float *values)
{
    memcpy(values, (const float *)user + offset, count * sizeof(*values));
    return EO_OK;
}

static bool trainer_open(struct trainer *t, struct run *run, eo_world *world)
{
    t->run = run;
    t->rank = eo_world_rank(world);
    t->samples = EMBED_BATCH / MICRO_BATCHES / (int)run->rank_count;
    TRY(eo_runtime_create(&t->runtime,
                          eo_runtime_params(.plan = run->plan, .world = world, .memory = run->memory,
                                            .update = run->own_optimizer ? sgd : NULL, .debug = run->debug)));
    float initial[EMBED_WEIGHTS];
    embed_initial_weights(run->seed, initial);
    for (uint32_t l = 0; l < EMBED_LAYERS; l++) {
        const struct embed_layer *layer = &embed_layers[l];
        float *weight = initial + layer->offset, *bias = weight + layer->in * layer->out;
        if (run->fill) {
            TRY(eo_weights_fill(t->runtime, 2 * l, fill, weight));
            TRY(eo_weights_fill(t->runtime, 2 * l + 1, fill, bias));
        } else {
            TRY(eo_weights_write(t->runtime, layer->weight, weight));
            TRY(eo_weights_write(t->runtime, layer->bias, bias));
        }
    }
    return true;
}

static float *output(struct trainer *t, int p)
{
    return t->run->own_activations ? t->outputs[p] : eo_buffer(t->runtime, t->run->outputs[p]);
}

static float *gradient(struct trainer *t, int p)
{
    return t->run->own_activations ? t->gradients[p] : eo_buffer(t->runtime, t->run->gradients[p]);
}

static bool refuses(struct trainer *t, eo_status status)
{
    return (status == EO_ERR_INVALID && eo_runtime_error(t->runtime)[0] != '\0') ||
           fail(t, "a call out of order was not refused with a text", status);
}

static bool micro_batch(struct trainer *t, int step, int m, double *loss)
{
    const eo_view *view;
    /* Sample by sample the same global batch, however many ranks there are. */
    const int first = (m * (int)t->run->rank_count + (int)t->rank) * t->samples;
    for (int s = 0; s < t->samples; s++)
        embed_sample(t->run->seed, step, first + s, t->input + s * EMBED_IN, t->target + s * EMBED_OUT);

    for (int p = 0; p < EMBED_POSITIONS; p++) {
        const struct embed_layer *layer = &embed_layers[embed_layer_of[p]];
        if (t->run->misuse && !refuses(t, eo_forward_begin(t->runtime, (uint32_t)(p + 1), &view)))
            return false;
        TRY(eo_forward_begin(t->runtime, (uint32_t)p, &view));
        embed_forward(layer, embed_has_tanh(p), t->samples, view->weights[0], view->weights[1],
                      p > 0 ? output(t, p - 1) : t->input, output(t, p));
        TRY(eo_forward_end(t->runtime, (uint32_t)p));
    }
    for (int p = EMBED_POSITIONS - 1; p >= 0; p--) {
        const struct embed_layer *layer = &embed_layers[embed_layer_of[p]];
        if (t->run->misuse && !refuses(t, eo_backward_end(t->runtime, (uint32_t)p)))
            return false;
        TRY(eo_backward_begin(t->runtime, (uint32_t)p, &view));
        float *dy = gradient(t, p);
        if (p == EMBED_POSITIONS - 1)
            *loss += embed_loss(t->samples, output(t, p), t->target, eo_loss_scale(t->runtime), dy);
        else
            embed_tanh_gradient(layer, t->samples, output(t, p), dy);
        if (p > 0)
            embed_input_gradient(layer, t->samples, view->weights[0], dy, gradient(t, p - 1));
        if (!layer->frozen) {
            TRY(eo_gradients_begin(t->runtime, (uint32_t)p, &view));
            embed_weight_gradient(layer, t->samples, p > 0 ? output(t, p - 1) : t->input, dy, view->gradients[0],
                                  view->gradients[1]);
        }
        TRY(eo_backward_end(t->runtime, (uint32_t)p));
    }
    return true;
}

static bool trainer_step(struct trainer *t, int step)
{
    double loss = 0;
    if (t->run->misuse && !refuses(t, eo_step_end(t->runtime, eo_step_params(.learning_rate = 1), NULL)))
        return false;
    TRY(eo_step_begin(t->runtime));
    for (int m = 0; m < MICRO_BATCHES; m++)
        if (!micro_batch(t, step, m, &loss))
            return false;
    eo_step_report report;
    TRY(eo_step_end(t->runtime,
                    eo_step_params(.learning_rate = (float)embed_rate, .beta1 = (float)embed_beta1,
                                   .beta2 = (float)embed_beta2, .eps = (float)embed_eps,
                                   .weight_decay = (float)embed_decay, .clip = (float)embed_clip, .values = {loss}),
                    &report));
    if (t->rank == 0) {
        t->run->loss[step] = report.values[0] / (MICRO_BATCHES * (double)t->run->rank_count);
        t->run->norm[step] = report.gradient_norm;
    }
    return true;
}

/* All weights by name into one array; reading is collective, but only rank 0 wants the values. */
static bool trainer_read(struct trainer *t)
{
    for (int l = 0; l < EMBED_LAYERS; l++) {
        const struct embed_layer *layer = &embed_layers[l];
        float *weight = t->run->weights + layer->offset, *bias = weight + layer->in * layer->out;
        TRY(eo_weights_read(t->runtime, layer->weight, t->rank == 0 ? weight : NULL));
        TRY(eo_weights_read(t->runtime, layer->bias, t->rank == 0 ? bias : NULL));
    }
    if (t->run->rewrite) {
        float wanted[EMBED_WIDTH * EMBED_WIDTH], got[EMBED_WIDTH * EMBED_WIDTH];
        for (int i = 0; i < EMBED_WIDTH * EMBED_WIDTH; i++)
            wanted[i] = 0.25f * (float)i;
        TRY(eo_weights_write(t->runtime, "body.weight", wanted));
        TRY(eo_weights_read(t->runtime, "body.weight", got));
        if (memcmp(wanted, got, sizeof(got)) != 0)
            return fail(t, "what was written is not what was read", EO_OK);
        return refuses(t, eo_weights_read(t->runtime, "no.such.weight", got));
    }
    return true;
}

static bool rank_train(struct rank *rank)
{
    for (uint32_t i = 0; i < rank->run_count; i++)
        if (!trainer_open(&rank->trainers[i], rank->runs[i], rank->world))
            return false;
    for (int step = 0; step < EMBED_STEPS; step++)
        for (uint32_t i = 0; i < rank->run_count; i++)
            if (!trainer_step(&rank->trainers[i], step))
                return false;
    for (uint32_t i = 0; i < rank->run_count; i++)
        if (!trainer_read(&rank->trainers[i]))
            return false;
    return true;
}

static void *rank_main(void *argument)
{
    struct rank *rank = argument;
    if (!rank_train(rank))
        eo_world_abort(rank->world, "the trainer gives up"); /* or the others would wait for this rank */
    for (uint32_t i = 0; i < rank->run_count; i++)
        eo_runtime_destroy(&rank->trainers[i].runtime);
    return NULL;
}

/* Trains one run, or two at once in the same process and world. */
static bool train(struct run *const runs[], uint32_t run_count)
{
    static struct rank ranks[RANKS_MAX];
    eo_world *worlds[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    const uint32_t rank_count = runs[0]->rank_count;
    if (rank_count > RANKS_MAX)
        return false;

    bool good = eo_world_create_local(worlds, eo_world_params(.rank_count = rank_count)) == EO_OK;
    for (uint32_t i = 0; good && i < run_count; i++)
        good = describe(runs[i]);
    for (uint32_t r = 0; good && r < rank_count; r++) {
        memset(&ranks[r], 0, sizeof(ranks[r]));
        ranks[r].world = worlds[r];
        ranks[r].run_count = run_count;
        memcpy(ranks[r].runs, runs, sizeof(*runs) * run_count);
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]) != 0)
            abort();
    }
    for (uint32_t r = 0; good && r < rank_count; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < rank_count; r++)
        eo_world_destroy(&worlds[r]);
    for (uint32_t i = 0; i < run_count; i++) {
        if (runs[i]->error[0] != '\0')
            printf("# %s\n", runs[i]->error);
        good = good && runs[i]->error[0] == '\0';
        eo_plan_destroy(&runs[i]->plan);
        eo_model_destroy(&runs[i]->model);
    }
    return good;
}

/* --- the cases --- */

static int case_count, failure_count;

static void report(bool good, const char *text)
{
    case_count++;
    failure_count += !good;
    printf("%s %d - %s\n", good ? "ok" : "not ok", case_count, text);
}

static bool near(const char *what, int index, double got, double wanted, double scale)
{
    const bool good = fabs(got - wanted) <= 1e-5 * scale; /* false for NaN */
    if (!good)
        printf("# %s %d: %.9g, unsharded %.9g\n", what, index, got, wanted);
    return good;
}

static bool agrees(const struct run *run, const struct embed_reference *reference)
{
    bool good = true;
    double largest = 0;
    for (int step = 0; good && step < EMBED_STEPS; step++)
        good = near("loss of step", step, run->loss[step], reference->loss[step], reference->loss[step]) &&
               near("norm of step", step, run->norm[step], reference->norm[step], reference->norm[step]);
    for (int i = 0; i < EMBED_WEIGHTS; i++)
        largest = fmax(largest, fabs(reference->weights[i]));
    for (int i = 0; good && i < EMBED_WEIGHTS; i++)
        good = near("weight", i, (double)run->weights[i], reference->weights[i], largest);
    return good;
}

static bool same_bits(const struct run *a, const struct run *b)
{
    return memcmp(a->weights, b->weights, sizeof(a->weights)) == 0 &&
           memcmp(a->loss, b->loss, sizeof(a->loss)) == 0 && memcmp(a->norm, b->norm, sizeof(a->norm)) == 0;
}

static bool train_one(struct run *run)
{
    struct run *const runs[] = {run};
    return train(runs, 1);
}

int main(void)
{
    static struct embed_reference reference;
    static struct run plain, other;
    char text[128];
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was reported is not lost if a case crashes */

    embed_reference_train(&reference, 1, 0);
    report(reference.loss[EMBED_STEPS - 1] < 0.5 * reference.loss[0] && reference.norm[0] > embed_clip,
           "the unsharded training learns, and its gradients are clipped");
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        plain = (struct run){.seed = 1, .rank_count = ranks};
        snprintf(text, sizeof(text), "%u ranks agree with the unsharded training", ranks);
        report(train_one(&plain) && agrees(&plain, &reference), text);
    }

    /* plain has 3 ranks from here on. */
    float initial[EMBED_WEIGHTS];
    embed_initial_weights(1, initial);
    const struct embed_layer *fixed = &embed_layers[2], *body = &embed_layers[1];
    report(memcmp(initial + fixed->offset, plain.weights + fixed->offset, sizeof(float) * 182) == 0 &&
               memcmp(initial + body->offset, plain.weights + body->offset, sizeof(float) * 182) != 0,
           "frozen weights stay as they are, others do not");

    other = (struct run){.seed = 1, .rank_count = 3, .own_activations = true};
    report(train_one(&other) && same_bits(&plain, &other), "activations in the trainer's own memory change no bit");
    other = (struct run){.seed = 1, .rank_count = 3, .fill = true};
    report(train_one(&other) && same_bits(&plain, &other),
           "initial weights shard by shard are those written by name");
    other = (struct run){.seed = 1, .rank_count = 3, .misuse = true};
    report(train_one(&other) && same_bits(&plain, &other), "calls out of order are refused and change nothing");
    other = (struct run){.seed = 1, .rank_count = 3, .debug = true};
    report(train_one(&other) && same_bits(&plain, &other), "poison in dead memory never reaches a result");
    other = (struct run){.seed = 1, .rank_count = 3, .rewrite = true};
    report(train_one(&other) && same_bits(&plain, &other), "full weights by name can be written and read again");
    other = (struct run){.seed = 1, .rank_count = 3, .memory = EO_MEMORY_DYNAMIC_MALLOC};
    report(train_one(&other) && same_bits(&plain, &other), "memory from malloc changes no bit");
    other = (struct run){.seed = 1, .rank_count = 3, .memory = EO_MEMORY_DYNAMIC_POOL};
    report(train_one(&other) && same_bits(&plain, &other), "memory from a pool changes no bit");

    static struct run second, second_alone;
    other = (struct run){.seed = 1, .rank_count = 3};
    second = second_alone = (struct run){.seed = 2, .rank_count = 3};
    struct run *const both[] = {&other, &second};
    report(train(both, 2) && train_one(&second_alone) && same_bits(&plain, &other) &&
               same_bits(&second_alone, &second) && !same_bits(&plain, &second),
           "two runtimes in one process are each what they are alone");

    embed_reference_train(&reference, 1, 1);
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        other = (struct run){.seed = 1, .rank_count = ranks, .own_optimizer = true};
        snprintf(text, sizeof(text), "SGD with momentum of our own on the shards of %u ranks agrees too", ranks);
        report(train_one(&other) && agrees(&other, &reference), text);
    }
    printf("1..%d\n", case_count);
    return failure_count != 0;
}
