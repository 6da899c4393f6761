/* SPDX-License-Identifier: MIT
 *
 * The training written out, through the runtime.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "streams/bf16.h"
#include "tests/conformance/ranks.h"
#include "tests/conformance/written_out_network.h"
#include "tests/unit/plan/models.h"
#include "tests/tap/threads.h"

const char *device_name;

void must(eo_status status, const char *what, const eo_runtime *rt)
{
    if (status >= 0)
        return;
    printf("Bail out! %s: %s %s\n", what, eo_runtime_error(rt), eo_test_text);
    exit(1);
}

static eo_status produce(void *user, uint64_t offset, uint64_t count, float *values)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = first_weight(*(const uint32_t *)user, offset + i);
    return EO_OK;
}

void fill(eo_runtime *rt, const eo_plan *plan)
{
    for (uint32_t k = 0; k < plan->parameter_count; k++)
        must(eo_weights_fill(rt, plan->parameters[k].model_index, produce, &k), "fill", rt);
}

/* A parameter as the pass sees it, widened. */
static void read_weights(eo_runtime *rt, const struct scene *scene, uint32_t k, const eo_view *view, float *out)
{
    const uint64_t count = scene->plan->parameters[k].element_count;
    const void *weights = view->weights[scene->plan->parameters[k].view_index];
    static _Thread_local uint16_t narrow[LAYER_ELEMENTS_MAX];
    if (!is_narrow(scene, k)) {
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

/* A frozen layer, or what is gathered beside what is trained: as it was filled; it has no gradients. */
static void check_frozen(eo_runtime *rt, const struct scene *scene, uint32_t position, const eo_view *view)
{
    static _Thread_local float seen[LAYER_ELEMENTS_MAX], filled[LAYER_ELEMENTS_MAX], want[LAYER_ELEMENTS_MAX];
    const struct plan_layer *layer = &scene->plan->layers[scene->plan->positions[position].layer];
    const struct plan_layer *frozen = layer->frozen ? layer : NULL;
    if (layer->frozen_part != EO_NONE)
        frozen = &scene->plan->layers[layer->frozen_part];
    for (uint32_t k = 0; frozen && view->weights && k < frozen->parameter_count; k++) {
        const struct plan_parameter *parameter = &scene->plan->parameters[frozen->parameter_begin + k];
        uint32_t wrong = 0;
        read_weights(rt, scene, frozen->parameter_begin + k, view, seen);
        as_filled(scene, frozen->parameter_begin + k, filled);
        as_gathered(scene, frozen->parameter_begin + k, filled, want);
        for (uint64_t i = 0; i < parameter->element_count; i++)
            wrong += seen[i] != want[i];
        TEST_EXPECT(NULL, wrong == 0, "%u frozen weights of '%s' are not what was filled", wrong, parameter->name);
        TEST_HOLDS(NULL, !view->gradients || !view->gradients[parameter->view_index]);
    }
}

static void forward(eo_runtime *rt, const struct scene *scene, uint32_t position)
{
    const eo_view *view;
    must(eo_forward_begin(rt, position, &view), "forward", rt);
    check_frozen(rt, scene, position, view);
    scribble(rt, scene);
    must(eo_forward_end(rt, position), "forward", rt);
}

static void backward(eo_runtime *rt, const struct scene *scene, const struct pass_of *pass)
{
    static _Thread_local float seen[PARAMETERS_MAX][LAYER_ELEMENTS_MAX], values[LAYER_ELEMENTS_MAX];
    const eo_plan *plan = scene->plan;
    const struct plan_layer *layer = &plan->layers[plan->positions[pass->position].layer];
    const struct plan_parameter *parameters = &plan->parameters[layer->parameter_begin];
    const eo_view *view;
    must(eo_backward_begin(rt, pass->position, &view), "backward", rt);
    scribble(rt, scene);
    memset(seen, 0, sizeof(seen));
    check_frozen(rt, scene, pass->position, view);
    TEST_HOLDS(NULL, layer->parameter_count <= PARAMETERS_MAX);
    for (uint32_t k = 0; view->weights && k < layer->parameter_count; k++)
        read_weights(rt, scene, layer->parameter_begin + k, view, seen[k]);
    if (!layer->frozen) {
        must(eo_gradients_begin(rt, pass->position, &view), "gradients", rt);
        scribble(rt, scene);
        for (uint32_t k = 0; k < layer->parameter_count; k++) {
            if (!gets_gradient(plan, pass->position, &parameters[k]))
                continue;
            for (uint64_t i = 0; i < parameters[k].element_count; i++)
                values[i] = pass->step == SKIPPED_STEP && pass->rank == 0
                                ? INFINITY
                                : gradient_of(pass, layer->parameter_begin + k, i, seen[k][i]);
            write_gradients(rt, scene, view->gradients[parameters[k].view_index], parameters[k].element_count, values);
        }
    }
    must(eo_backward_end(rt, pass->position), "backward", rt);
}

/* Rank r adds (r + 1) at eo_step_values, and gives 10 (r + 1) with the step. */
void run_step(eo_runtime *rt, const struct scene *scene, uint32_t rank, uint32_t step)
{
    const eo_plan *plan = scene->plan;
    must(eo_step_begin(rt), "begin", rt);
    for (uint32_t b = 0; b < plan->params.micro_batches; b++) {
        if (is_left_out(plan, rank, step, b)) {
            must(eo_micro_batch_skip(rt), "skip a micro-batch", rt);
            continue;
        }
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
    eo_parameter_group groups[GROUPS];
    set_groups(step, groups);
    params.groups = scene->own_update ? NULL : groups;
    params.group_count = scene->own_update ? 0 : plan->trainer_group_count;
    params.ema_decay = scene->settings.ema ? params.ema_decay : 0;
    params.weight = weight_of(rank, step);
    params.values[2] = 10.0 * (rank + 1);
    must(eo_step_end(rt, &params, step % 2 ? &report : NULL), "end", rt);
    memset(groups, 0xff, sizeof(groups)); /* the call kept no pointer to them */
    const bool is_skipping = step > SKIPPED_STEP && plan->update_count;
    const double ranks = plan->params.rank_count;
    if (step % 2)
        TEST_EXPECT(NULL,
                    report.step == step + 1 &&
                        report.values[2] == (10 + plan->params.micro_batches) * ranks * (ranks + 1) / 2 &&
                        report.values[0] == 0 && (report.gradient_norm > 0) == (plan->update_count > 0) && report.clip_factor == 1 &&
                        report.weight == weight_of_all(plan, step) && !report.skipped && report.skipped_count == is_skipping,
                    "report of step %u: step %d, value %g, norm %g", step, (int)report.step, report.values[2],
                    report.gradient_norm);
}

struct visitor {
    const struct scene *scene;
    uint64_t at;
    const float *trained; /* NULL: as they were filled */
    uint32_t parameter, wrong;
};

static eo_status compare(void *user, const eo_parameter_info *info, const float *values)
{
    static _Thread_local float filled[LAYER_ELEMENTS_MAX];
    struct visitor *visitor = user;
    const struct scene *scene = visitor->scene;
    uint64_t at = 0;
    uint32_t k = 0;
    for (; strcmp(scene->plan->parameters[k].name, info->name) != 0; k++)
        at += scene->plan->parameters[k].element_count;
    if (info->frozen && !visitor->trained)
        as_filled(scene, k, filled);
    for (uint64_t i = 0; i < info->element_count; i++, visitor->at++) {
        const float want = visitor->trained ? visitor->trained[at + i] : info->frozen ? filled[i] : first_weight(k, i);
        if (memcmp(&values[i], &want, sizeof(want)) != 0 && visitor->wrong++ == 0)
            TEST_EXPECT(NULL, false, "%s: element %d of '%s' is %a, not %a", visitor->trained ? "trained" : "filled",
                        (int)i, info->name, (double)values[i], (double)want);
    }
    visitor->parameter++;
    return EO_OK;
}

static void check_weights(eo_runtime *rt, const struct scene *scene, const float *trained)
{
    struct visitor visitor = {.scene = scene, .trained = trained};
    must(eo_weights_visit(rt, compare, &visitor), "visit", rt);
    TEST_HOLDS(NULL, visitor.at == scene->plan->element_count && visitor.parameter == scene->plan->parameter_count);
}

/* Weights and gradients of an evaluation are what they are in a step, rounded. */
static void evaluate(eo_runtime *rt, const struct scene *scene)
{
    static _Thread_local float seen[LAYER_ELEMENTS_MAX], filled[LAYER_ELEMENTS_MAX], want[LAYER_ELEMENTS_MAX];
    const eo_plan *plan = scene->plan;
    const eo_view *view;
    must(eo_evaluation_begin(rt), "evaluation", rt);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct plan_layer *layer = &plan->layers[plan->positions[p].layer];
        must(eo_forward_begin(rt, p, &view), "forward", rt);
        check_frozen(rt, scene, p, view);
        for (uint32_t k = layer->parameter_begin; !layer->frozen && k < layer->parameter_begin + layer->parameter_count; k++) {
            const struct plan_parameter *parameter = &plan->parameters[k];
            uint32_t wrong = 0;
            read_weights(rt, scene, k, view, seen);
            for (uint64_t i = 0; i < parameter->element_count; i++)
                filled[i] = first_weight(k, i);
            as_gathered(scene, k, filled, want);
            for (uint64_t i = 0; i < parameter->element_count; i++)
                wrong += seen[i] != want[i];
            TEST_EXPECT(NULL, wrong == 0, "%u weights of '%s' are not what was filled", wrong, parameter->name);
        }
        must(eo_forward_end(rt, p), "forward", rt);
    }
    must(eo_evaluation_end(rt), "evaluation", rt);
}

static uint64_t planned_bytes(const eo_plan *plan, eo_list list)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < eo_plan_operation_count(plan, list); i++) {
        eo_plan_operation o;
        must(eo_plan_get_operation(plan, list, i, &o), "operation", NULL);
        const bool counts = o.kind == EO_OP_ALL_GATHER || o.kind == EO_OP_REDUCE_SCATTER || o.kind == EO_OP_ALL_REDUCE;
        bytes += counts ? o.bytes : 0;
    }
    return bytes;
}

/* What the collectives of a step carried is what the plan's list says. */
static void check_bytes(eo_runtime *rt, const struct scene *scene, uint32_t step, uint64_t *before)
{
    eo_runtime_stats stats;
    eo_runtime_get_stats(rt, &stats);
    const uint64_t bytes = stats.collective_bytes - *before;
    const uint64_t planned = planned_bytes(scene->plan, step == 0 ? EO_LIST_FIRST : EO_LIST_STEADY);
    TEST_EXPECT(NULL, scene->memory != EO_MEMORY_STATIC || step == UINT32_MAX || bytes == planned,
                "step %u: collectives of %llu bytes, planned %llu", step, (unsigned long long)bytes, (unsigned long long)planned);
    *before = stats.collective_bytes;
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
                                                  .dynamic_offload = scene->dynamic_offload,
                                                  .delay_seed = self->rank, .log = &eo_test_log)),
         "create", rt);
    fill(rt, scene->plan);
    check_weights(rt, scene, NULL);
    evaluate(rt, scene);
    uint64_t bytes = 0;
    check_bytes(rt, scene, UINT32_MAX, &bytes);
    for (uint32_t step = 0; step < STEPS; step++) {
        run_step(rt, scene, self->rank, step);
        check_bytes(rt, scene, step, &bytes);
    }
    check_weights(rt, scene, scene->reference);
    for (int swapped = 1; scene->settings.ema && swapped >= 0; swapped--) {
        must(eo_weights_swap_ema(rt), "swap", rt);
        check_weights(rt, scene, swapped ? scene->averages : scene->reference);
    }
    eo_runtime_destroy(&rt);
    return NULL;
}

void run(struct scene *scene)
{
    struct actor actors[RANKS_MAX];
    const uint32_t ranks = scene->settings.rank_count;
    must(eo_world_create_local(scene->worlds, eo_world_params(.rank_count = ranks, .device = device_name,
                                                              .log = &eo_test_log)),
         "world", NULL);
    for (uint32_t r = 0; r < ranks; r++)
        actors[r] = (struct actor){scene, r};
    run_as_threads(act, actors, ranks, sizeof(actors[0]));
    for (uint32_t r = 0; r < ranks; r++)
        eo_world_destroy(&scene->worlds[r]);
}

void plan_anew(struct scene *scene)
{
    eo_plan_destroy(&scene->plan);
    must(eo_plan_create(&scene->plan, scene->model, &scene->settings), "plan", NULL);
}
