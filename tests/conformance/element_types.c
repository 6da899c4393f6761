/* SPDX-License-Identifier: MIT
 *
 * Element types: weights in fp32 and as split bf16, reductions in fp32 and bf16. Every memory mode, with any slots and
 * streams, ends in the bits of a training written out here without shards, buffers or streams.
 *
 * Method: a network without products. The gradient of an element is a number made of its weight, as it was gathered,
 * and of (rank, step, micro-batch, position, element); it is added up over ranks in rank order, then over contributions
 * in the order of backward passes. The network sees device memory through eo_runtime_upload and eo_runtime_download
 * alone, so it runs on any device: EO_TEST_DEVICE names it.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <evenodd/evenodd.h>

#include "ranks.h"
#include "runtime/plan_internal.h"
#include "streams/bf16.h"
#include "tests/unit/plan_models.h"

enum { RANKS_MAX = 3, STEPS = 4, LAYER_ELEMENTS_MAX = 16384 };

static const char *device_name;

struct scene {
    const char *model_name;
    eo_plan_params settings;
    eo_memory memory;
    bool debug;
    eo_model *model;
    eo_plan *plan;
    eo_world *worlds[RANKS_MAX];
    float *reference; /* master weights by parameter of the plan, one after the other */
};

static void must(eo_status status, const char *what, const eo_runtime *rt)
{
    if (status >= 0)
        return;
    printf("Bail out! %s: %s %s\n", what, eo_runtime_error(rt), eo_test_text);
    exit(1);
}

/* -- the network, in numbers -----------------------------------------------------------------------------------------*/

static float unit(uint64_t salt, uint64_t a, uint64_t b)
{
    return (float)(int32_t)(uint32_t)test_hash(salt, a, b) / 2147483648.0f;
}

/* Not a bf16 number, as a rule. */
static float first_weight(uint32_t parameter, uint64_t i)
{
    return unit(17, parameter, i);
}

struct pass_of {
    uint32_t rank, step, micro_batch, position;
};

static float gradient_of(const struct pass_of *pass, uint32_t parameter, uint64_t i, float weight)
{
    const uint64_t salt = ((uint64_t)pass->step * 64 + pass->micro_batch) * 64 + pass->position;
    volatile float scaled = weight * 0.125f, noise = unit(salt, pass->rank, parameter * UINT64_C(65536) + i);
    return scaled + noise;
}

static eo_step_params step_params(uint32_t step)
{
    return (eo_step_params){.learning_rate = 1e-2f / (float)(step + 1), .weight_decay = 0.1f};
}

static float as_gathered(const struct scene *scene, float weight)
{
    return scene->settings.dtype == EO_DTYPE_BF16 ? eo_bf16_to_float(eo_bf16_round(weight)) : weight;
}

static bool gets_gradient(const eo_plan *plan, uint32_t position, const struct plan_parameter *parameter)
{
    const struct plan_position *p = &plan->positions[position];
    for (uint32_t z = 0; z < p->zero_count; z++) {
        const struct plan_range *range = &plan->zero_ranges[p->zero_begin + z];
        if (parameter->offset >= range->offset && parameter->offset < range->offset + range->count)
            return false;
    }
    return true;
}

/* -- the training written out ----------------------------------------------------------------------------------------*/

static float reduced(const struct scene *scene, struct pass_of pass, uint32_t parameter, uint64_t i, float weight)
{
    const bool bf16 = scene->settings.reduce_dtype == EO_DTYPE_BF16;
    volatile float sum = 0;
    for (pass.rank = 0; pass.rank < scene->settings.rank_count; pass.rank++) {
        float value = gradient_of(&pass, parameter, i, weight);
        if (bf16)
            value = eo_bf16_to_float(eo_bf16_round(value));
        sum = pass.rank == 0 ? value : sum + value;
    }
    return bf16 ? eo_bf16_to_float(eo_bf16_round(sum)) : sum;
}

struct moments {
    float m, v;
};

static float adamw(float weight, float gradient, struct moments *at, uint32_t step, bool decays)
{
    const eo_step_params params = step_params(step);
    const float beta1 = 0.9f, beta2 = 0.999f, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    volatile float a = beta1 * at->m, b = rest1 * gradient, c = beta2 * at->v, d = rest2 * gradient, e = d * gradient;
    volatile float m = a + b, v = c + e;
    volatile float mean = m / (float)(1 - pow(beta1, step + 1)), variance = v / (float)(1 - pow(beta2, step + 1));
    volatile float root = sqrtf(variance), sum = root + 1e-8f, ratio = mean / sum;
    volatile float decay = (decays ? params.weight_decay : 0) * weight, both = ratio + decay;
    volatile float change = params.learning_rate * both;
    at->m = m;
    at->v = v;
    return weight - change;
}

static float train_element(const struct scene *scene, uint32_t k, uint64_t i)
{
    const eo_plan *plan = scene->plan;
    const struct plan_parameter *parameter = &plan->parameters[k];
    const bool frozen = plan->layers[parameter->layer].frozen;
    struct moments at = {0};
    float weight = first_weight(k, i);
    if (frozen)
        return as_gathered(scene, weight);
    for (uint32_t step = 0; step < STEPS; step++) {
        float gradient = 0;
        bool first = true;
        for (uint32_t b = 0; b < plan->params.micro_batches; b++) {
            for (uint32_t p = plan->position_count; p-- > 0;) {
                if (plan->positions[p].layer != parameter->layer)
                    continue;
                const float seen = plan->positions[p].backward_without_weights ? 0 : as_gathered(scene, weight);
                const struct pass_of pass = {0, step, b, p};
                const float more = gets_gradient(plan, p, parameter) ? reduced(scene, pass, k, i, seen) : 0;
                gradient = first ? more : gradient + more;
                first = false;
            }
        }
        weight = adamw(weight, gradient, &at, step, !parameter->no_weight_decay);
    }
    return weight;
}

static void make_reference(struct scene *scene)
{
    uint64_t at = 0;
    scene->reference = malloc(scene->plan->element_count * sizeof(float));
    for (uint32_t k = 0; k < scene->plan->parameter_count; k++)
        for (uint64_t i = 0; i < scene->plan->parameters[k].element_count; i++)
            scene->reference[at++] = train_element(scene, k, i);
}

/* -- the same through the runtime ------------------------------------------------------------------------------------*/

static void produce(void *user, uint64_t offset, uint64_t count, float *values)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = first_weight(*(const uint32_t *)user, offset + i);
}

static void fill(eo_runtime *rt, const eo_plan *plan)
{
    for (uint32_t k = 0; k < plan->parameter_count; k++)
        must(eo_weights_fill(rt, plan->parameters[k].model_index, produce, &k), "fill", rt);
}

/* A parameter as the pass sees it, widened. */
static void read_weights(eo_runtime *rt, const struct scene *scene, const void *weights, uint64_t count, float *out)
{
    static _Thread_local uint16_t narrow[LAYER_ELEMENTS_MAX];
    if (scene->settings.dtype == EO_DTYPE_FP32) {
        must(eo_runtime_download(rt, out, weights, count * sizeof(float)), "download", rt);
        return;
    }
    must(eo_runtime_download(rt, narrow, weights, count * sizeof(uint16_t)), "download", rt);
    for (uint64_t i = 0; i < count; i++)
        out[i] = eo_bf16_to_float(narrow[i]);
}

static void write_gradients(eo_runtime *rt, const struct scene *scene, void *gradients, uint64_t count, float *values)
{
    static _Thread_local uint16_t narrow[LAYER_ELEMENTS_MAX];
    for (uint64_t i = 0; i < count; i++)
        narrow[i] = eo_bf16_round(values[i]);
    if (scene->settings.reduce_dtype == EO_DTYPE_FP32)
        must(eo_runtime_upload(rt, gradients, values, count * sizeof(float)), "upload", rt);
    else
        must(eo_runtime_upload(rt, gradients, narrow, count * sizeof(uint16_t)), "upload", rt);
}

/* Whatever a live buffer holds is no part of a weight or gradient. Only debug mode says which are live. */
static void scribble(eo_runtime *rt, const struct scene *scene)
{
    static const char rubbish[4096] = {1, 2, 3};
    for (uint32_t b = 0; scene->debug && b < scene->plan->buffer_count; b++) {
        char *buffer = eo_buffer(rt, b);
        const uint64_t bytes = scene->plan->rows[scene->plan->buffers[b].row].bytes;
        for (uint64_t at = 0; buffer && at < bytes; at += sizeof(rubbish)) {
            const uint64_t part = bytes - at < sizeof(rubbish) ? bytes - at : sizeof(rubbish);
            must(eo_runtime_upload(rt, buffer + at, rubbish, part), "upload", rt);
        }
    }
}

static void forward(eo_runtime *rt, const struct scene *scene, uint32_t position)
{
    const eo_view *view;
    must(eo_forward_begin(rt, position, &view), "forward", rt);
    scribble(rt, scene);
    must(eo_forward_end(rt, position), "forward", rt);
}

static void backward(eo_runtime *rt, const struct scene *scene, const struct pass_of *pass)
{
    static _Thread_local float seen[2][LAYER_ELEMENTS_MAX], values[LAYER_ELEMENTS_MAX];
    const eo_plan *plan = scene->plan;
    const struct plan_layer *layer = &plan->layers[plan->positions[pass->position].layer];
    const struct plan_parameter *parameters = &plan->parameters[layer->parameter_begin];
    const eo_view *view;
    must(eo_backward_begin(rt, pass->position, &view), "backward", rt);
    scribble(rt, scene);
    memset(seen, 0, sizeof(seen));
    for (uint32_t k = 0; view->weights && k < layer->parameter_count && k < 2; k++)
        read_weights(rt, scene, view->weights[k], parameters[k].element_count, seen[k]);
    if (!layer->frozen) {
        must(eo_gradients_begin(rt, pass->position, &view), "gradients", rt);
        scribble(rt, scene);
        for (uint32_t k = 0; k < layer->parameter_count && k < 2; k++) {
            if (!gets_gradient(plan, pass->position, &parameters[k]))
                continue;
            for (uint64_t i = 0; i < parameters[k].element_count; i++)
                values[i] = gradient_of(pass, layer->parameter_begin + k, i, seen[k][i]);
            write_gradients(rt, scene, view->gradients[k], parameters[k].element_count, values);
        }
    }
    must(eo_backward_end(rt, pass->position), "backward", rt);
}

/* Rank r adds (r + 1) at eo_step_values, and gives 10 (r + 1) with the step. */
static void run_step(eo_runtime *rt, const struct scene *scene, uint32_t rank, uint32_t step)
{
    const eo_plan *plan = scene->plan;
    must(eo_step_begin(rt), "begin", rt);
    for (uint32_t b = 0; b < plan->params.micro_batches; b++) {
        for (uint32_t p = 0; p < plan->position_count; p++)
            if (!plan->positions[p].forward_in_backward)
                forward(rt, scene, p);
        for (uint32_t p = plan->position_count; p-- > 0;)
            backward(rt, scene, &(struct pass_of){rank, step, b, p});
        double value;
        must(eo_runtime_download(rt, &value, eo_step_values(rt) + 2, sizeof(value)), "download", rt);
        value += rank + 1;
        must(eo_runtime_upload(rt, eo_step_values(rt) + 2, &value, sizeof(value)), "upload", rt);
    }
    eo_step_report report = {0};
    eo_step_params params = step_params(step);
    params.values[2] = 10.0 * (rank + 1);
    must(eo_step_end(rt, &params, step % 2 ? &report : NULL), "end", rt);
    const double ranks = plan->params.rank_count;
    if (step % 2)
        TEST_EXPECT(NULL,
                    report.step == step + 1 &&
                        report.values[2] == (10 + plan->params.micro_batches) * ranks * (ranks + 1) / 2 &&
                        report.values[0] == 0 && report.gradient_norm > 0 && report.clip_factor == 1,
                    "report of step %u: step %d, value %g, norm %g", step, (int)report.step, report.values[2],
                    report.gradient_norm);
}

struct visitor {
    const struct scene *scene;
    uint64_t at;
    bool trained;
    uint32_t parameter, wrong;
};

static void compare(void *user, const eo_parameter_info *info, const float *values)
{
    struct visitor *visitor = user;
    const struct scene *scene = visitor->scene;
    for (uint64_t i = 0; i < info->element_count; i++, visitor->at++) {
        const float first = first_weight(visitor->parameter, i);
        const float want = visitor->trained ? scene->reference[visitor->at]
                           : info->frozen   ? as_gathered(scene, first)
                                            : first;
        if (memcmp(&values[i], &want, sizeof(want)) != 0 && visitor->wrong++ == 0)
            TEST_EXPECT(NULL, false, "%s: element %d of '%s' is %a, not %a", visitor->trained ? "trained" : "filled",
                        (int)i, info->name, (double)values[i], (double)want);
    }
    visitor->parameter++;
}

static void check_weights(eo_runtime *rt, const struct scene *scene, bool trained)
{
    struct visitor visitor = {.scene = scene, .trained = trained};
    must(eo_weights_visit(rt, compare, &visitor), "visit", rt);
    TEST_HOLDS(NULL, visitor.at == scene->plan->element_count && visitor.parameter == scene->plan->parameter_count);
}

/* Weights and gradients of an evaluation are what they are in a step, rounded. */
static void evaluate(eo_runtime *rt, const struct scene *scene)
{
    static _Thread_local float seen[LAYER_ELEMENTS_MAX];
    const eo_plan *plan = scene->plan;
    const eo_view *view;
    must(eo_evaluation_begin(rt), "evaluation", rt);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct plan_layer *layer = &plan->layers[plan->positions[p].layer];
        const struct plan_parameter *parameter = &plan->parameters[layer->parameter_begin];
        must(eo_forward_begin(rt, p, &view), "forward", rt);
        read_weights(rt, scene, view->weights[0], parameter->element_count, seen);
        uint32_t wrong = 0;
        for (uint64_t i = 0; i < parameter->element_count; i++)
            wrong += seen[i] != as_gathered(scene, first_weight(layer->parameter_begin, i));
        TEST_EXPECT(NULL, wrong == 0, "%u weights of '%s' are not what was filled", wrong, parameter->name);
        must(eo_forward_end(rt, p), "forward", rt);
    }
    must(eo_evaluation_end(rt), "evaluation", rt);
}

struct actor {
    struct scene *scene;
    uint32_t rank;
};

static void *act(void *arg)
{
    const struct actor *self = arg;
    struct scene *scene = self->scene;
    eo_runtime *rt = NULL;
    must(eo_runtime_create(&rt, eo_runtime_params(.plan = scene->plan, .world = scene->worlds[self->rank],
                                                  .memory = scene->memory, .debug = scene->debug,
                                                  .delay_seed = self->rank, .log = &eo_test_log)),
         "create", rt);
    fill(rt, scene->plan);
    check_weights(rt, scene, false);
    evaluate(rt, scene);
    for (uint32_t step = 0; step < STEPS; step++)
        run_step(rt, scene, self->rank, step);
    check_weights(rt, scene, true);
    eo_runtime_destroy(&rt);
    return NULL;
}

static void run(struct scene *scene)
{
    pthread_t threads[RANKS_MAX];
    struct actor actors[RANKS_MAX];
    const uint32_t ranks = scene->settings.rank_count;
    must(eo_world_create_local(scene->worlds, eo_world_params(.rank_count = ranks, .device = device_name,
                                                              .log = &eo_test_log)),
         "world", NULL);
    for (uint32_t r = 0; r < ranks; r++) {
        actors[r] = (struct actor){scene, r};
        if (pthread_create(&threads[r], NULL, act, &actors[r]) != 0)
            exit(1);
    }
    for (uint32_t r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < ranks; r++)
        eo_world_destroy(&scene->worlds[r]);
}

static void plan_anew(struct scene *scene)
{
    eo_plan_destroy(&scene->plan);
    must(eo_plan_create(&scene->plan, scene->model, &scene->settings), "plan", NULL);
}

/* -- an optimizer of the trainer's own -------------------------------------------------------------------------------*/

/* Host memory: this optimizer is for the CPU. */
static void descend(void *user, const eo_shard *shard)
{
    const bool split = *(const bool *)user;
    if (split != !shard->weights || split != (shard->weights_high && shard->weights_low))
        TEST_EXPECT(NULL, false, "weights in the wrong form");
    for (uint64_t i = 0; i < shard->count; i++) {
        const float weight = split ? eo_bf16_join(shard->weights_high[i], shard->weights_low[i]) : shard->weights[i];
        volatile float change = 1e-3f * shard->gradient[i];
        if (split)
            eo_bf16_split(weight - change, &shard->weights_high[i], &shard->weights_low[i]);
        else
            shard->weights[i] = weight - change;
    }
}

static void keep_weights(void *user, const eo_parameter_info *info, const float *values)
{
    float **at = user;
    memcpy(*at, values, info->element_count * sizeof(float));
    *at += info->element_count;
}

/*
 * Goal: a trainer's optimizer works on both halves as it does on whole weights.
 * Method: the same descent in static mode, where they are split, and in dynamic mode, where they are not.
 */
static void check_own_optimizer(void)
{
    struct scene scene = {.model = eo_plan_model("tied"),
                          .settings = {.rank_count = 1, .dtype = EO_DTYPE_BF16, .log = &eo_test_log}};
    plan_anew(&scene);
    float *weights[2];
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        bool split = !dynamic;
        eo_runtime *rt;
        must(eo_world_create_local(scene.worlds, eo_world_params(.log = &eo_test_log)), "world", NULL);
        must(eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0], .update = descend,
                                                      .update_user = &split, .log = &eo_test_log,
                                                      .memory = dynamic ? EO_MEMORY_DYNAMIC_POOL : EO_MEMORY_STATIC)),
             "create", NULL);
        fill(rt, scene.plan);
        for (uint32_t step = 0; step < STEPS; step++)
            run_step(rt, &scene, 0, step);
        weights[dynamic] = malloc(scene.plan->element_count * sizeof(float));
        float *at = weights[dynamic];
        must(eo_weights_visit(rt, keep_weights, &at), "visit", rt);
        eo_runtime_destroy(&rt);
        eo_world_destroy(&scene.worlds[0]);
    }
    TEST_HOLDS(NULL, memcmp(weights[0], weights[1], scene.plan->element_count * sizeof(float)) == 0);
    TEST_HOLDS(NULL, weights[0][0] != first_weight(0, 0));
    free(weights[0]);
    free(weights[1]);
    eo_plan_destroy(&scene.plan);
    eo_model_destroy(&scene.model);
}

/* One reference; then every mode, and slots, streams and reservations that change no number. */
static void check_numbers(struct scene *scene)
{
    static const eo_memory memories[] = {EO_MEMORY_STATIC, EO_MEMORY_DYNAMIC_MALLOC, EO_MEMORY_DYNAMIC_POOL,
                                         EO_MEMORY_DYNAMIC_CACHING};
    plan_anew(scene);
    make_reference(scene);
    for (size_t m = 0; m < sizeof(memories) / sizeof(memories[0]); m++) {
        scene->memory = memories[m];
        scene->debug = memories[m] == EO_MEMORY_STATIC;
        run(scene);
    }
    scene->memory = EO_MEMORY_STATIC;
    scene->debug = true;
    for (uint32_t slots = 1; slots <= 3; slots += 2) {
        scene->settings.gather_slots = slots;
        scene->settings.gradient_slots = 4 - slots;
        scene->settings.separate_reduce_stream = slots == 3;
        scene->settings.separate_reservations = slots == 3;
        scene->settings.no_prefetch = slots == 1;
        plan_anew(scene);
        run(scene);
    }
    free(scene->reference);
}

int main(void)
{
    static const char *const models[] = {"tied", "frozen", "edges", "tied_in_the_middle"};
    static const eo_dtype types[][2] = {{EO_DTYPE_FP32, EO_DTYPE_FP32},
                                        {EO_DTYPE_BF16, EO_DTYPE_FP32},
                                        {EO_DTYPE_BF16, EO_DTYPE_BF16},
                                        {EO_DTYPE_FP32, EO_DTYPE_BF16}};
    device_name = getenv("EO_TEST_DEVICE");
    for (uint32_t t = 0; t < 4; t++) {
        for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
            for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
                struct scene scene = {.model_name = models[m],
                                      .model = eo_plan_model(models[m]),
                                      .settings = {.rank_count = ranks, .micro_batches = 1 + (uint32_t)m % 3,
                                                   .dtype = types[t][0], .reduce_dtype = types[t][1],
                                                   .log = &eo_test_log}};
                check_numbers(&scene);
                eo_plan_destroy(&scene.plan);
                eo_model_destroy(&scene.model);
            }
            char name[128];
            snprintf(name, sizeof(name), "weights in %s, reductions in %s: all modes have the bits written out",
                     types[t][0] ? "bf16" : "fp32", types[t][1] ? "bf16" : "fp32");
            test_report(name, ranks);
        }
    }
    if (!device_name || strcmp(device_name, "cpu") == 0) {
        check_own_optimizer();
        test_report("an optimizer of the trainer's own works on both halves as on whole weights", 1);
    }
    return test_finish();
}
