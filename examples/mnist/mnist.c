/* SPDX-License-Identifier: MIT
 *
 * The example of PyTorch's tutorial on FSDP: a convolutional network on MNIST, with dropout, Adadelta, a learning rate that
 * falls every epoch, a pass over the test images, and units of sharding by size.
 *
 *     mnist FOLDER [--ranks N] [--epochs N] [--batch N] [--lr X] [--gamma X] [--seed N] [--unit ELEMENTS]
 *
 * FOLDER has MNIST's four IDX files; digits.py makes smaller ones without a network. --unit joins neighbouring modules until a
 * unit has so many parameters, as PyTorch's size_based_auto_wrap_policy(min_num_params) does; --batch is that of all ranks.
 */
#include <argp.h>
#include <evenodd/evenodd.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../update_rules.h"
#include "idx.h"
#include "network.h"

enum { RANKS_MAX = 16, NAME_BYTES = 32 };
static const float mean = 0.1307f, deviation = 0.3081f; /* of MNIST's pixels */

/* A unit of sharding: a layer of evenodd. */
struct unit {
    uint32_t first, end; /* modules [first, end) */
};

struct buffers {
    uint32_t images, scratch, raw[MODULES], out[MODULES], slope[MODULES];
};

static struct {
    const char *folder;
    uint32_t rank_count, epochs, batch, batch_of_rank;
    double learning_rate, gamma;
    uint64_t seed, unit_elements;
    struct images train, test;
    struct module modules[MODULES];
    struct unit units[MODULES];
    uint32_t unit_count;
    struct buffers buffers;
    eo_plan *plan;
} job = {.rank_count = 2, .epochs = 14, .batch = 64, .learning_rate = 1, .gamma = 0.7, .seed = 1, .unit_elements = 10000};

struct rank {
    pthread_t thread;
    eo_world *world;
    eo_runtime *runtime;
    eo_status status;
    uint32_t rank;
    struct adadelta optimizer;
    uint32_t *order;     /* of the training images, in this epoch: equal on all ranks */
    const uint8_t *labels[1 << 12];
};


/* --- the passes of a unit ----------------------------------------------------------------------------------------- */

static float *buffer(const struct rank *r, uint32_t index)
{
    return eo_buffer(r->runtime, index);
}

/* A module's input for sample b of this rank. */
static const float *input(const struct rank *r, uint32_t module, uint32_t b)
{
    const uint32_t index = module ? job.buffers.out[module - 1] : job.buffers.images;
    return buffer(r, index) + (uint64_t)b * module_in(&job.modules[module]);
}

static struct draw draw_of(const struct rank *r, uint64_t step, uint32_t b, uint32_t module, bool training)
{
    const uint64_t sample = (uint64_t)r->rank * job.batch_of_rank + b;
    return (struct draw){{.seed = job.seed, .step = step, .sample = sample, .position = module}, training};
}

static void unit_forward(const struct rank *r, uint32_t u, const eo_view *view, uint64_t step, bool training)
{
    for (uint32_t m = job.units[u].first; m < job.units[u].end; m++) {
        const struct module *module = &job.modules[m];
        const uint32_t at = 2 * (m - job.units[u].first);
        for (uint32_t b = 0; b < job.batch_of_rank; b++) {
            const struct draw draw = draw_of(r, step, b, m, training);
            module_forward(module, &draw, view->weights[at], view->weights[at + 1], input(r, m, b),
                           buffer(r, job.buffers.raw[m]) + b * module_raw(module),
                           buffer(r, job.buffers.out[m]) + b * module_out(module));
        }
    }
}

static void unit_backward(const struct rank *r, uint32_t u, const eo_view *view, uint64_t step)
{
    for (uint32_t m = job.units[u].end; m-- > job.units[u].first;) {
        const struct module *module = &job.modules[m];
        const uint32_t at = 2 * (m - job.units[u].first);
        for (uint32_t b = 0; b < job.batch_of_rank; b++) {
            const struct draw draw = draw_of(r, step, b, m, true);
            float *in_slope = m ? buffer(r, job.buffers.slope[m - 1]) + b * module_in(module) : NULL;
            module_backward(module, &draw, view->weights[at], input(r, m, b),
                            buffer(r, job.buffers.raw[m]) + b * module_raw(module),
                            buffer(r, job.buffers.slope[m]) + b * module_out(module), in_slope, view->gradients[at],
                            view->gradients[at + 1], buffer(r, job.buffers.scratch));
        }
    }
}

/* The images with these numbers; those beyond `count` are the first one again. */
static void load(struct rank *r, const struct images *images, const uint32_t *order, uint64_t first)
{
    const uint32_t pixels = images->height * images->width;
    float *in = buffer(r, job.buffers.images);
    for (uint32_t b = 0; b < job.batch_of_rank; b++) {
        const uint64_t place = first + b < images->count ? first + b : 0;
        const uint32_t image = order ? order[place] : (uint32_t)place;
        for (uint32_t i = 0; i < pixels; i++)
            in[b * pixels + i] = ((float)images->pixels[(uint64_t)image * pixels + i] / 255 - mean) / deviation;
        r->labels[b] = &images->labels[image];
    }
}

/* --- steps and evaluation ----------------------------------------------------------------------------------------- */

static eo_status train_step(struct rank *r, uint64_t step, double *loss)
{
    const float scale = eo_loss_scale(r->runtime) / (float)job.batch_of_rank;
    const eo_view *view;
    eo_step_report report;
    double own = 0;
    EO_TRY(eo_step_begin(r->runtime));
    for (uint32_t u = 0; u < job.unit_count; u++) {
        EO_TRY(eo_forward_begin(r->runtime, u, &view));
        unit_forward(r, u, view, step, true);
        EO_TRY(eo_forward_end(r->runtime, u));
    }
    for (uint32_t u = job.unit_count; u-- > 0;) {
        EO_TRY(eo_backward_begin(r->runtime, u, &view));
        EO_TRY(eo_gradients_begin(r->runtime, u, &view));
        for (uint32_t b = 0; u + 1 == job.unit_count && b < job.batch_of_rank; b++)
            own += (double)network_loss(buffer(r, job.buffers.out[MODULES - 1]) + b * CLASSES, *r->labels[b], scale,
                                        buffer(r, job.buffers.slope[MODULES - 1]) + b * CLASSES);
        unit_backward(r, u, view, step);
        EO_TRY(eo_backward_end(r->runtime, u));
    }
    EO_TRY(eo_step_end(r->runtime, eo_step_params(.values = {own / job.batch}), &report));
    *loss = report.values[0];
    return EO_OK;
}

/* Mean loss and part of right answers over all test images; the ranks share them. */
static eo_status evaluate(struct rank *r, double *loss, double *right)
{
    double sums[2] = {0, 0};
    for (uint64_t first = 0; first < job.test.count; first += job.batch) {
        const uint64_t own = first + (uint64_t)r->rank * job.batch_of_rank;
        const eo_view *view;
        load(r, &job.test, NULL, own);
        EO_TRY(eo_evaluation_begin(r->runtime));
        for (uint32_t u = 0; u < job.unit_count; u++) {
            EO_TRY(eo_forward_begin(r->runtime, u, &view));
            unit_forward(r, u, view, 0, false);
            for (uint32_t b = 0; u + 1 == job.unit_count && b < job.batch_of_rank && own + b < job.test.count; b++) {
                const float *out = buffer(r, job.buffers.out[MODULES - 1]) + b * CLASSES;
                uint32_t best = 0;
                for (uint32_t c = 1; c < CLASSES; c++)
                    best = out[c] > out[best] ? c : best;
                sums[0] += (double)network_loss(out, *r->labels[b], 1, NULL);
                sums[1] += best == *r->labels[b];
            }
            EO_TRY(eo_forward_end(r->runtime, u));
        }
        EO_TRY(eo_evaluation_end(r->runtime));
    }
    EO_TRY(eo_sum(r->runtime, sums, 2));
    *loss = sums[0] / job.test.count;
    *right = sums[1] / job.test.count;
    return EO_OK;
}

/* Fisher and Yates' shuffle, with the same numbers on all ranks. */
static void shuffle(struct rank *r, uint32_t epoch)
{
    const eo_random_place place = {.seed = job.seed, .step = epoch, .sample = UINT32_MAX}; /* no sample of a step */
    for (uint32_t i = 0; i < job.train.count; i++)
        r->order[i] = i;
    for (uint32_t i = job.train.count - 1; i > 0; i--) {
        const uint32_t other = (uint32_t)(network_random(&place, i) * (float)(i + 1)) % (i + 1);
        const uint32_t kept = r->order[i];
        r->order[i] = r->order[other];
        r->order[other] = kept;
    }
}

/* As PyTorch does it: even over +-1 / sqrt(inputs of an output). */
static eo_status fill_weights(struct rank *r)
{
    char name[NAME_BYTES];
    for (uint32_t m = 0; m < MODULES; m++) {
        const struct module *module = &job.modules[m];
        const uint32_t patch = module_patch(module), counts[2] = {patch * module->out_channels, module->out_channels};
        float *values = malloc(counts[0] * sizeof(*values));
        eo_status status = values ? EO_OK : EO_ERR_NO_MEMORY;
        for (uint32_t part = 0; part < 2 && status >= 0; part++) {
            const eo_random_place place = {.seed = job.seed, .position = 2 * m + part}; /* of step 0: training begins with 1 */
            for (uint32_t i = 0; i < counts[part]; i++)
                values[i] = (2 * network_random(&place, i) - 1) / sqrtf((float)patch);
            snprintf(name, sizeof(name), "%s.%s", module->name, part ? "bias" : "weight");
            status = eo_weights_write(r->runtime, name, values);
        }
        free(values);
        EO_TRY(status);
    }
    return EO_OK;
}

static eo_status train(struct rank *r)
{
    const uint32_t steps = job.train.count / job.batch; /* of an epoch: the rest is left out, another one each time */
    uint64_t step = 0;
    EO_TRY(fill_weights(r));
    for (uint32_t epoch = 0; epoch < job.epochs; epoch++) {
        double loss = 0, test_loss, right;
        r->optimizer.learning_rate = (float)(job.learning_rate * pow(job.gamma, epoch));
        shuffle(r, epoch);
        for (uint32_t i = 0; i < steps; i++) {
            load(r, &job.train, r->order, (uint64_t)i * job.batch + (uint64_t)r->rank * job.batch_of_rank);
            EO_TRY(train_step(r, ++step, &loss));
        }
        EO_TRY(evaluate(r, &test_loss, &right));
        if (r->rank == 0)
            printf("epoch %2u   loss %.4f   test loss %.4f   accuracy %.2f %%\n", epoch + 1, loss, test_loss, 100 * right);
    }
    return EO_OK;
}

/* --- model and plan ----------------------------------------------------------------------------------------------- */

static uint64_t module_elements(const struct module *m)
{
    return ((uint64_t)module_patch(m) + 1) * m->out_channels;
}

/* Neighbours join until they have enough; what is left at the end joins the last unit. */
static void make_units(void)
{
    uint64_t elements = 0;
    job.unit_count = 0;
    for (uint32_t m = 0, first = 0; m < MODULES; m++) {
        elements += module_elements(&job.modules[m]);
        if (elements >= job.unit_elements || (m + 1 == MODULES && !job.unit_count)) {
            job.units[job.unit_count++] = (struct unit){first, m + 1};
            first = m + 1;
            elements = 0;
        }
    }
    job.units[job.unit_count - 1].end = MODULES;
}

static uint32_t unit_of(uint32_t module)
{
    uint32_t u = 0;
    while (job.units[u].end <= module)
        u++;
    return u;
}

static eo_status add_layer(eo_model *model, uint32_t u)
{
    char name[NAME_BYTES];
    uint32_t layer;
    snprintf(name, sizeof(name), "unit%u", u);
    EO_TRY(eo_model_add_layer(model, eo_layer_params(.name = name), &layer));
    for (uint32_t m = job.units[u].first; m < job.units[u].end; m++) {
        const struct module *module = &job.modules[m];
        snprintf(name, sizeof(name), "%s.weight", module->name);
        EO_TRY(eo_model_add_parameter(model, eo_parameter_params(.layer = layer, .name = name, .dim_count = 2,
                                                              .dims = {module_patch(module), module->out_channels}), NULL));
        snprintf(name, sizeof(name), "%s.bias", module->name);
        EO_TRY(eo_model_add_parameter(model, eo_parameter_params(.layer = layer, .name = name, .dim_count = 1,
                                                              .dims = {module->out_channels}), NULL));
    }
    return eo_model_add_position(model, eo_position_params(.layer = layer), NULL);
}

static eo_status add_buffer(eo_model *model, const char *name, const char *kind, uint64_t elements, eo_moment first,
                            eo_moment last, uint32_t *out)
{
    char text[NAME_BYTES];
    snprintf(text, sizeof(text), "%s of %s", kind, name);
    return eo_model_add_buffer(model, eo_buffer_params(.name = text, .bytes = elements * sizeof(float), .first = first,
                                                       .last = last, .category = EO_CATEGORY_ACTIVATION), out);
}

/* Their bytes are planned too, each from its first use to its last. */
static eo_status add_buffers(eo_model *model)
{
    uint64_t scratch = 0;
    for (uint32_t m = 0; m < MODULES; m++) {
        const struct module *module = &job.modules[m];
        const uint64_t batch = job.batch_of_rank;
        const eo_moment forward = {EO_PASS_FORWARD, unit_of(m)}, backward = {EO_PASS_BACKWARD, unit_of(m)};
        const eo_moment after = {EO_PASS_BACKWARD, unit_of(m + 1 < MODULES ? m + 1 : m)}; /* of the module that reads it */
        EO_TRY(add_buffer(model, module->name, "product", batch * module_raw(module), forward, backward, &job.buffers.raw[m]));
        EO_TRY(add_buffer(model, module->name, "output", batch * module_out(module), forward, after, &job.buffers.out[m]));
        EO_TRY(add_buffer(model, module->name, "slope", batch * module_out(module), after, backward, &job.buffers.slope[m]));
        scratch = module_raw(module) > scratch ? module_raw(module) : scratch;
    }
    const uint64_t pixels = (uint64_t)job.train.height * job.train.width * job.batch_of_rank;
    EO_TRY(eo_model_add_buffer(model, eo_buffer_params(.name = "images", .bytes = pixels * sizeof(float), .persistent = true,
                                                    .category = EO_CATEGORY_OTHER), &job.buffers.images));
    return eo_model_add_buffer(model, eo_buffer_params(.name = "scratch", .bytes = scratch * sizeof(float), .persistent = true,
                                                       .category = EO_CATEGORY_SCRATCH), &job.buffers.scratch);
}

static eo_status make_plan(eo_model *model)
{
    for (uint32_t u = 0; u < job.unit_count; u++)
        EO_TRY(add_layer(model, u));
    EO_TRY(add_buffers(model));
    return eo_plan_create(&job.plan, model, eo_plan_params(.rank_count = job.rank_count, .optimizer_states = 2));
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    r->order = calloc(job.train.count, sizeof(*r->order));
    const eo_runtime_params *params = eo_runtime_params(.plan = job.plan, .world = r->world, .update = adadelta_update,
                                                        .update_user = &r->optimizer, .zero_gradients = true);
    r->status = r->order ? eo_runtime_create(&r->runtime, params) : EO_ERR_NO_MEMORY;
    if (r->status < 0 || (r->status = train(r)) < 0)
        eo_world_abort(r->world, eo_status_text(r->status)); /* or the others wait for this one */
    eo_runtime_destroy(&r->runtime);
    free(r->order);
    return NULL;
}

static bool run(void)
{
    static struct rank ranks[RANKS_MAX];
    eo_world *worlds[RANKS_MAX] = {NULL};
    eo_model *model = NULL;
    eo_plan_summary summary;
    eo_status status = eo_model_create(&model, eo_model_params(.name = "mnist"));
    status = status < 0 ? status : make_plan(model);
    status = status < 0 ? status : eo_world_create_local(worlds, eo_world_params(.rank_count = job.rank_count));
    if (status >= 0) {
        eo_plan_get_summary(job.plan, &summary);
        printf("%llu parameters in %u unit%s, %u rank%s, %.2f MiB planned for each\n", (unsigned long long)summary.element_count,
               job.unit_count, job.unit_count == 1 ? "" : "s", job.rank_count, job.rank_count == 1 ? "" : "s",
               (double)summary.arena_bytes / (1 << 20));
    }
    for (uint32_t i = 0; i < job.rank_count && status >= 0; i++) {
        ranks[i] = (struct rank){.world = worlds[i], .rank = i, .optimizer = {.rho = 0.9f, .eps = 1e-6f}};
        pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]);
    }
    for (uint32_t i = 0; i < job.rank_count && worlds[0]; i++) {
        pthread_join(ranks[i].thread, NULL);
        status = ranks[i].status < 0 ? ranks[i].status : status;
    }
    for (uint32_t i = 0; i < job.rank_count; i++)
        eo_world_destroy(&worlds[i]);
    eo_plan_destroy(&job.plan);
    eo_model_destroy(&model);
    if (status < 0)
        fprintf(stderr, "mnist: %s\n", eo_status_text(status));
    return status >= 0;
}

static double number(const struct argp_state *state, const char *name, const char *text, double least, double most)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most))
        argp_error(state, "--%s is '%s'; give a number from %g to %g", name, text, least, most);
    return value;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    switch (key) {
    case 'r': job.rank_count = (uint32_t)number(state, "ranks", text, 1, RANKS_MAX); return 0;
    case 'e': job.epochs = (uint32_t)number(state, "epochs", text, 1, 1000); return 0;
    case 'b': job.batch = (uint32_t)number(state, "batch", text, 1, 1 << 12); return 0;
    case 'l': job.learning_rate = number(state, "lr", text, 0, 1000); return 0;
    case 'g': job.gamma = number(state, "gamma", text, 0, 1); return 0;
    case 's': job.seed = (uint64_t)number(state, "seed", text, 0, 1e9); return 0;
    case 'u': job.unit_elements = (uint64_t)number(state, "unit", text, 0, 1e9); return 0;
    case ARGP_KEY_ARG:
        if (job.folder)
            argp_error(state, "'%s' is a second folder; give one", text);
        job.folder = text;
        return 0;
    case ARGP_KEY_END:
        if (!job.folder)
            argp_error(state, "name the folder with MNIST's files");
        if (job.batch % job.rank_count)
            argp_error(state, "--batch %u is not a multiple of --ranks %u", job.batch, job.rank_count);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"ranks", 'r', "N", 0, "ranks, as threads [2]", 0},
        {"epochs", 'e', "N", 0, "passes over the training images [14]", 0},
        {"batch", 'b', "N", 0, "images of a step, of all ranks [64]", 0},
        {"lr", 'l', "X", 0, "Adadelta's learning rate [1]", 0},
        {"gamma", 'g', "X", 0, "factor of the learning rate after each epoch [0.7]", 0},
        {"seed", 's', "N", 0, "random seed [1]", 0},
        {"unit", 'u', "ELEMENTS", 0, "least parameters of a unit of sharding [10000]", 0},
        {0},
    };
    const struct argp argp = {.options = options, .parser = parse, .args_doc = "FOLDER",
                              .doc = "Trains the network of PyTorch's MNIST example, sharded over ranks."};
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    bool good = images_read(&job.train, job.folder, "train") && images_read(&job.test, job.folder, "t10k");
    if (good && (job.train.height != job.test.height || job.train.width != job.test.width ||
                 !network_init(job.modules, job.train.height, job.train.width))) {
        fprintf(stderr, "mnist: %s: images of %u x %u and %u x %u; the network needs one size of at least 6 x 6\n", job.folder,
                job.train.height, job.train.width, job.test.height, job.test.width);
        good = false;
    }
    if (good && job.train.count < job.batch) {
        fprintf(stderr, "mnist: %s: %u images are fewer than a step's %u; lower --batch\n", job.folder, job.train.count, job.batch);
        good = false;
    }
    job.batch_of_rank = job.batch / job.rank_count;
    if (good)
        make_units();
    const int status = !good ? 2 : !run();
    images_free(&job.train);
    images_free(&job.test);
    return status;
}
