/* SPDX-License-Identifier: MIT
 *
 * Goal: norms by layer and by group, and clipping of each clip group by its own norm, under every strategy and memory mode, with
 * micro-batches, numbers that change from step to step, and frozen parameters. What cannot be is refused.
 * Method: gradients are written by formula, and added up here in double. The optimizer is SGD without momentum, so that a step
 * moves each weight by its gradient times its group's factor. EO_TEST_DEVICE names the device.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <evenodd/evenodd.h>

#include "eo_config.h"
#include "tests/tap/tap.h"
#include "tests/tap/threads.h"

enum { LAYERS = 3, PARAMETERS = 9, GROUPS = 4, STEPS = 5, RANKS_MAX = 4, COUNT_MAX = 960, MESSAGE = 512 };

static const struct parameter {
    uint32_t layer, count, group;
    bool joined, frozen;
} parameters[PARAMETERS] = {
    {0, 320, 0, false, false}, /* as q, k and v of a block: one product, three groups */
    {0, 144, 1, true, false},
    {0, 96, 2, true, false},
    {0, 40, 0, false, false}, /* in fp32 where marked: beside one in bf16 of its group */
    {0, 120, 0, false, false},
    {1, 960, 0, false, false}, /* one group alone */
    {1, 33, 0, false, false},
    {2, 500, 3, false, false},
    {2, 128, 1, false, true}, /* frozen for good, beside a trainable one */
};

struct variant {
    const char *name;
    eo_strategy strategy;
    uint32_t ranks, shard_group, micro_batches;
    eo_memory memory;
    bool beside, debug, offloaded, on_host, own_optimizer;
    bool marked; /* in bf16, but for three parameters in fp32 */
};

struct rank {
    const struct variant *variant;
    uint32_t rank;
    const eo_plan *plan;
    eo_world *world;
    eo_runtime *runtime;
};

static const char *device_name;
static char message[MESSAGE];
static const float rate = 0.5f;

static void must(eo_status status, const char *what)
{
    if (status >= 0)
        return;
    printf("Bail out! %s: %s %s\n", what, eo_status_text(status), message);
    exit(1);
}

static void keep_error(void *user, eo_log_level level, const char *text)
{
    (void)user;
    if (level == EO_LOG_ERROR)
        snprintf(message, sizeof(message), "%s", text);
}

static const eo_log test_log = {.write = keep_error, .level = EO_LOG_ERROR};

/* ---- the numbers, by formula ---- */

/* Exact in fp32, and so are the sums over ranks and micro-batches. */
static float gradient_of(uint32_t p, uint64_t i, uint32_t step, uint32_t rank, uint32_t batch)
{
    const uint64_t word = i * 53 + 29 * p + 17 * step + 7 * rank + 3 * batch;
    return (float)((int)(word % 97) - 48 + (int)p * 8) / 64;
}

static double global_gradient(const struct variant *v, uint32_t p, uint64_t i, uint32_t step)
{
    double sum = 0;
    for (uint32_t r = 0; r < v->ranks; r++)
        for (uint32_t b = 0; b < v->micro_batches; b++)
            sum += (double)gradient_of(p, i, step, r, b);
    return sum;
}

/* Together; each for itself; two of them together; nothing is clipped; one is frozen, whose norm counts with the others. */
static void set_groups(uint32_t step, eo_parameter_group groups[GROUPS], float *clip)
{
    static const uint32_t clip_groups[STEPS][GROUPS] = {{0}, {0, 1, 2, 255}, {0, 5, 0, 5}, {3, 3, 3, 3}, {0, 1, 1, 0}};
    static const float clips[STEPS][GROUPS] = {{0}, {0, 2.5f, 0.5f, 0}, {0, 0, 0, 4}, {0}, {0, 1, 1, 0}};
    memset(groups, 0, GROUPS * sizeof(*groups));
    for (uint32_t g = 0; g < GROUPS; g++) {
        groups[g].clip_group = clip_groups[step][g];
        groups[g].clip = clips[step][g];
        groups[g].frozen = step == 4 && g == 1;
    }
    *clip = step == 3 ? 0 : 3;
}

struct expected {
    double squares, layers[LAYERS], groups[GROUPS], factors[GROUPS], factor;
};

static double together(const struct expected *e, const eo_parameter_group groups[GROUPS], uint32_t clip_group)
{
    double sum = 0;
    for (uint32_t g = 0; g < GROUPS; g++)
        sum += groups[g].clip_group == clip_group ? e->groups[g] : 0;
    return sqrt(sum);
}

static double factor_of(double norm, double clip)
{
    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
}

static void expect(const struct variant *v, uint32_t step, struct expected *e)
{
    eo_parameter_group groups[GROUPS];
    float clip;
    set_groups(step, groups, &clip);
    memset(e, 0, sizeof(*e));
    for (uint32_t p = 0; p < PARAMETERS; p++) {
        for (uint64_t i = 0; i < parameters[p].count && !parameters[p].frozen; i++) {
            const double square = pow(global_gradient(v, p, i, step), 2);
            e->squares += square;
            e->layers[parameters[p].layer] += square;
            e->groups[parameters[p].group] += square;
        }
    }
    e->factor = factor_of(together(e, groups, 0), (double)clip);
    for (uint32_t g = 0; g < GROUPS; g++) {
        double limit = groups[g].clip_group ? 0 : (double)clip;
        for (uint32_t h = 0; h < GROUPS && groups[g].clip_group; h++)
            limit = groups[h].clip_group == groups[g].clip_group && groups[h].clip > 0 ? (double)groups[h].clip : limit;
        e->factors[g] = factor_of(together(e, groups, groups[g].clip_group), limit);
    }
}

/* ---- the training ---- */

/* Frozen parameters beside trainable ones are of the static mode alone. */
static uint32_t parameter_count(const struct variant *v)
{
    return v->memory == EO_MEMORY_STATIC ? PARAMETERS : PARAMETERS - 1;
}

static eo_model *make_model(const struct variant *v)
{
    eo_model *model;
    char name[32];
    must(eo_model_create(&model, eo_model_params(.name = "groups", .log = &test_log)), "model");
    for (uint32_t l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof(name), "layer%u", l);
        must(eo_model_add_layer(model, eo_layer_params(.name = name), NULL), "layer");
    }
    for (uint32_t p = 0; p < parameter_count(v); p++) {
        const struct parameter *from = &parameters[p];
        snprintf(name, sizeof(name), "parameter%u", p);
        must(eo_model_add_parameter(model, &(const eo_parameter_params){.layer = from->layer, .name = name, .dim_count = 1,
                                    .dims = {from->count}, .group = from->group, .joined = from->joined, .frozen = from->frozen,
                                    .fp32 = v->marked && (p == 3 || p == 5 || p == 7)},
                                    NULL), "parameter");
    }
    for (uint32_t l = 0; l < LAYERS; l++)
        must(eo_model_add_position(model, eo_position_params(.layer = l), NULL), "position");
    return model;
}

static eo_status fill_zero(void *user, uint64_t offset, uint64_t count, float *values)
{
    (void)user, (void)offset;
    memset(values, 0, count * sizeof(*values));
    return EO_OK;
}

static void backward(const struct rank *self, uint32_t step, uint32_t batch, uint32_t layer)
{
    const eo_view *view;
    float values[COUNT_MAX];
    uint32_t k = 0;
    must(eo_backward_begin(self->runtime, layer, &view), "backward");
    must(eo_gradients_begin(self->runtime, layer, &view), "gradients");
    for (uint32_t p = 0; p < PARAMETERS; p++) {
        if (parameters[p].layer != layer || parameters[p].frozen) /* which is the last of its layer */
            continue;
        void *gradient = view->gradients[k++];
        for (uint64_t i = 0; i < parameters[p].count; i++)
            values[i] = gradient_of(p, i, step, self->rank, batch);
        must(eo_runtime_upload(self->runtime, gradient, values, parameters[p].count * sizeof(float)), "upload");
    }
    must(eo_backward_end(self->runtime, layer), "backward");
}

static void passes(const struct rank *self, uint32_t step)
{
    const eo_view *view;
    must(eo_step_begin(self->runtime), "step");
    for (uint32_t b = 0; b < self->variant->micro_batches; b++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            must(eo_forward_begin(self->runtime, l, &view), "forward");
            must(eo_forward_end(self->runtime, l), "forward");
        }
        for (uint32_t l = LAYERS; l-- > 0;)
            backward(self, step, b, l);
    }
}

/* The trainer's own, of the same rule. */
static void own_update(void *user, const eo_shard *shard)
{
    const uint32_t step = *(const uint32_t *)user;
    for (uint32_t k = 0; k < shard->part_count; k++) {
        const eo_shard_part *part = &shard->parts[k];
        const float scale = shard->group_scales ? shard->group_scales[part->group] : shard->gradient_scale;
        if (step == 4 && part->group == 1)
            continue;
        for (uint64_t i = part->at; i < part->at + part->count; i++)
            shard->weights[i] -= rate * (shard->gradient[i] * scale);
    }
}

static bool near(double got, double want)
{
    return fabs(got - want) <= 1e-12 * fabs(want);
}

static void check_report(const struct rank *self, const eo_step_report *report, uint32_t step)
{
    struct expected e;
    expect(self->variant, step, &e);
    bool good = report->layer_count == LAYERS && report->group_count == GROUPS && near(report->gradient_norm, sqrt(e.squares)) &&
                near(report->clip_factor, e.factor);
    for (uint32_t l = 0; l < LAYERS && good; l++)
        good = near(report->layer_norms[l], sqrt(e.layers[l]));
    for (uint32_t g = 0; g < GROUPS && good; g++)
        good = near(report->group_norms[g].norm, sqrt(e.groups[g])) && near(report->group_norms[g].clip_factor, e.factors[g]);
    if (!good)
        tap_note(__FILE__, __LINE__, "%s, %u ranks, step %u: another norm or factor: %.17g, %.17g; expected %.17g, %.17g",
                 self->variant->name, self->variant->ranks, step, report->gradient_norm, report->clip_factor, sqrt(e.squares),
                 e.factor);
}

static void check_weights(const struct rank *self, uint32_t step, float weights[PARAMETERS][COUNT_MAX])
{
    struct expected e;
    float now[COUNT_MAX];
    char name[32];
    expect(self->variant, step, &e);
    for (uint32_t p = 0; p < parameter_count(self->variant); p++) {
        uint32_t wrong = 0;
        snprintf(name, sizeof(name), "parameter%u", p);
        must(eo_weights_read(self->runtime, name, now), "read");
        const bool moves = !parameters[p].frozen && !(step == 4 && parameters[p].group == 1);
        for (uint64_t i = 0; i < parameters[p].count; i++) {
            const double change = (double)rate * e.factors[parameters[p].group] * global_gradient(self->variant, p, i, step);
            const double want = (double)weights[p][i] - (moves ? change : 0);
            wrong += !(fabs((double)now[i] - want) <= 4e-7 * (fabs(want) + fabs(change)));
        }
        if (wrong)
            tap_note(__FILE__, __LINE__, "%s, %u ranks, step %u: %u weights of %s are not where their group's factor brings them",
                     self->variant->name, self->variant->ranks, step, wrong, name);
        memcpy(weights[p], now, sizeof(now));
    }
}

static void *train(void *arg)
{
    struct rank *self = arg;
    const struct variant *v = self->variant;
    uint32_t step = 0;
    static _Thread_local float weights[PARAMETERS][COUNT_MAX];
    memset(weights, 0, sizeof(weights));
    must(eo_runtime_create(&self->runtime, eo_runtime_params(.plan = self->plan, .world = self->world, .memory = v->memory,
                                                             .debug = v->debug, .dynamic_offload = v->on_host,
                                                             .update = v->own_optimizer ? own_update : NULL,
                                                             .update_user = &step, .log = &test_log)), "runtime");
    for (uint32_t p = 0; p < parameter_count(v); p++)
        must(eo_weights_fill(self->runtime, p, fill_zero, NULL), "fill");
    for (; step < STEPS; step++) {
        eo_parameter_group groups[GROUPS];
        eo_step_report report;
        eo_step_params params = {.learning_rate = rate, .exact = true, .groups = groups, .group_count = GROUPS};
        set_groups(step, groups, &params.clip);
        groups[1].frozen = groups[1].frozen && !v->own_optimizer; /* which leaves them out by itself */
        passes(self, step);
        must(eo_step_end(self->runtime, &params, &report), "end");
        check_report(self, &report, step);
        check_weights(self, step, weights);
    }
    eo_runtime_destroy(&self->runtime);
    return NULL;
}

static void run(const struct variant *v)
{
    struct rank all[RANKS_MAX];
    eo_world *worlds[RANKS_MAX];
    eo_model *model = make_model(v);
    eo_plan *plan;
    must(eo_plan_create(&plan, model, eo_plan_params(.rank_count = v->ranks, .strategy = v->strategy, .shard_group = v->shard_group,
                                                     .micro_batches = v->micro_batches,
                                                     .dtype = v->marked ? EO_DTYPE_BF16 : EO_DTYPE_FP32,
                                                     .optimizer = v->own_optimizer ? EO_OPTIMIZER_ADAMW : EO_OPTIMIZER_SGD,
                                                     .optimizer_states = v->own_optimizer ? EO_NO_STATE : 0,
                                                     .norms_beside = v->beside, .norm_parts = true,
                                                     .offload_layers = v->offloaded ? UINT32_MAX : 0,
                                                     .offload_gradients = v->offloaded, .log = &test_log)), "plan");
    must(eo_world_create_local(worlds, eo_world_params(.rank_count = v->ranks, .device = device_name, .log = &test_log)), "world");
    for (uint32_t r = 0; r < v->ranks; r++)
        all[r] = (struct rank){.variant = v, .rank = r, .plan = plan, .world = worlds[r]};
    run_as_threads(train, all, v->ranks, sizeof(all[0]));
    for (uint32_t r = 0; r < v->ranks; r++)
        eo_world_destroy(&worlds[r]);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

static void variants(void)
{
    static const struct variant all[] = {
        {.name = "zero3", .strategy = EO_STRATEGY_ZERO3},
        {.name = "zero3, norms beside, poison", .strategy = EO_STRATEGY_ZERO3, .beside = true, .debug = true},
        {.name = "zero2", .strategy = EO_STRATEGY_ZERO2},
        {.name = "zero1", .strategy = EO_STRATEGY_ZERO1},
        {.name = "ddp", .strategy = EO_STRATEGY_DDP},
        {.name = "hsdp", .strategy = EO_STRATEGY_HSDP, .shard_group = 2},
        {.name = "offloaded", .strategy = EO_STRATEGY_ZERO3, .offloaded = true, .debug = true},
        {.name = "memory by malloc", .memory = EO_MEMORY_DYNAMIC_MALLOC},
        {.name = "memory from a pool", .memory = EO_MEMORY_DYNAMIC_POOL},
        {.name = "an optimizer of the trainer's own", .own_optimizer = true},
        {.name = "bf16 with parameters in fp32", .marked = true, .debug = true},
        {.name = "bf16 with parameters in fp32, hsdp", .strategy = EO_STRATEGY_HSDP, .shard_group = 2, .marked = true},
        {.name = "bf16 with parameters in fp32, memory by malloc", .memory = EO_MEMORY_DYNAMIC_MALLOC, .marked = true},
        {.name = "dynamic, all on the host", .memory = EO_MEMORY_DYNAMIC_POOL, .on_host = true},
        {.name = "dynamic, all on the host, bf16 with parameters in fp32", .memory = EO_MEMORY_DYNAMIC_MALLOC, .on_host = true,
         .marked = true},
    };
    for (size_t n = 0; n < sizeof(all) / sizeof(all[0]); n++) {
        for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
            for (uint32_t batches = 1; batches <= 2; batches++) {
                struct variant v = all[n];
                v.ranks = ranks;
                v.micro_batches = batches;
                if (ranks % (v.shard_group ? v.shard_group : 1))
                    continue;
                run(&v);
            }
        }
        char text[160];
        snprintf(text, sizeof(text), "%s: norms by layer and group, and each clip group's factor, as by formula", all[n].name);
        tap_case(text);
    }
}

/* ---- refusals ---- */

static void refuse(eo_runtime *rt, const eo_parameter_group *groups, uint32_t count, const char *words)
{
    const eo_status status = eo_step_end(rt, eo_step_params(.learning_rate = 1, .groups = groups, .group_count = count), NULL);
    if (status != EO_ERR_INVALID || !strstr(eo_runtime_error(rt), words))
        tap_note(__FILE__, __LINE__, "not refused with '%s': %s", words, eo_runtime_error(rt));
}

/* A block of state has one scale: it belongs to one group. */
static void refuse_joined(void)
{
    eo_model *model = make_model(&(struct variant){0});
    eo_plan *plan;
    if (eo_plan_create(&plan, model, eo_plan_params(.optimizer = EO_OPTIMIZER_ADAMW8BIT, .log = &test_log)) != EO_ERR_INVALID ||
        !strstr(message, "'parameter1' is joined to 'parameter0' of another group, within a block of 256"))
        tap_note(__FILE__, __LINE__, "joined parameters of other groups within a block of state: %s", message);
    eo_model_destroy(&model);
}

static void refusals(void)
{
    if (EO_DEBUG_ABORT) /* what is refused aborts */
        return;
    for (uint32_t with = 0; with < 2; with++) {
        const struct variant v = {.ranks = 1, .micro_batches = 1};
        eo_model *model = make_model(&v);
        eo_plan *plan;
        struct rank self = {.variant = &v};
        eo_step_report report;
        memset(&report, 0xff, sizeof(report));
        must(eo_plan_create(&plan, model, eo_plan_params(.optimizer = EO_OPTIMIZER_SGD, .norm_parts = with)), "plan");
        must(eo_world_create_local(&self.world, eo_world_params(.rank_count = 1)), "world");
        must(eo_runtime_create(&self.runtime, eo_runtime_params(.plan = plan, .world = self.world)), "runtime");
        passes(&self, 0);
        refuse(self.runtime, &(eo_parameter_group){.clip = 1}, 1, "groups[0].clip is 1 without a clip_group");
        refuse(self.runtime, &(eo_parameter_group){.clip_group = 256, .clip = 1}, 1, "clip_group is 256");
        refuse(self.runtime, &(eo_parameter_group){.clip_group = 1, .clip = -1}, 1, "clip is -1");
        refuse(self.runtime, &(eo_parameter_group){.clip_group = 1, .clip = NAN}, 1, "clip is");
        if (with)
            refuse(self.runtime, (const eo_parameter_group[]){{.clip_group = 2, .clip = 1}, {.clip_group = 2, .clip = 3}}, 2,
                   "groups[1].clip is 3, that of another group of clip_group 2 is 1");
        else
            refuse(self.runtime, &(eo_parameter_group){.clip_group = 1}, 1, "plan with norm_parts");
        must(eo_step_end(self.runtime, eo_step_params(.learning_rate = 1), &report), "a step after refusals");
        if ((report.layer_norms != NULL) != with || (report.group_norms != NULL) != with ||
            report.layer_count != (with ? LAYERS : 0) || report.group_count != (with ? GROUPS : 0))
            tap_note(__FILE__, __LINE__, "norms of parts are there without norm_parts, or the other way round");
        eo_runtime_destroy(&self.runtime);
        eo_world_destroy(&self.world);
        eo_plan_destroy(&plan);
        eo_model_destroy(&model);
    }
    refuse_joined();
    tap_case("clip groups without norm_parts, without their limit, or with two are refused, and the step goes on; reports say "
             "nothing of parts that were not asked for");
}

int main(void)
{
    device_name = getenv("EO_TEST_DEVICE");
    variants();
    refusals();
    return tap_end();
}
