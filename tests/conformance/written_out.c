/* SPDX-License-Identifier: MIT */
#include "tests/conformance/written_out.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/ranks.h"
#include "runtime/plan/internal.h"
#include "streams/bf16.h"
#include "tests/unit/plan/models.h"

const char *device_name;

void must(eo_status status, const char *what, const eo_runtime *rt)
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

/* Not a bf16 number, as a rule. Some are small for as long as a block of MXFP8 is. */
float first_weight(uint32_t parameter, uint64_t i)
{
    return ldexpf(unit(17, parameter, i), -3 * (int)(i / 40 % 3));
}

struct pass_of {
    uint32_t rank, step, micro_batch, position;
};

static bool is_left_out(const eo_plan *plan, uint32_t rank, uint32_t step, uint32_t micro_batch)
{
    return step == SHORT_STEP && rank + 1 == plan->params.rank_count && micro_batch + 1 == plan->params.micro_batches;
}

static float gradient_of(const struct pass_of *pass, uint32_t parameter, uint64_t i, float weight)
{
    const uint64_t salt = ((uint64_t)pass->step * 64 + pass->micro_batch) * 64 + pass->position;
    volatile float scaled = weight * 0.125f, noise = unit(salt, pass->rank, parameter * UINT64_C(65536) + i);
    return scaled + noise;
}

enum { GROUPS = 2 };

/* The first group leaves what it can to the step. */
static void set_groups(uint32_t step, eo_parameter_group groups[GROUPS])
{
    groups[0] = (eo_parameter_group){.learning_rate_factor = step % 2 ? 0.75f : 0};
    groups[1] = (eo_parameter_group){.learning_rate_factor = 2, .weight_decay = 0.25f, .beta1 = 0.875f, .beta2 = 0.99f,
                                     .eps = 1e-6f, .frozen = step == FREEZING_STEP, .exact = true};
}

static eo_step_params step_params(uint32_t step)
{
    return (eo_step_params){.learning_rate = 1e-2f / (float)(step + 1), .weight_decay = 0.1f, .ema_decay = 0.75f,
                            .on_not_finite = EO_SKIP, .loss_scale = step == WEIGHTED_STEP ? 1.5f : 0};
}

static double weight_of(uint32_t rank, uint32_t step)
{
    return step == WEIGHTED_STEP ? 7.0 * rank : 0;
}

static double weight_of_all(const eo_plan *plan, uint32_t step)
{
    double sum = 0;
    for (uint32_t r = 0; r < plan->params.rank_count; r++)
        sum += weight_of(r, step);
    return sum;
}

/* What gradients are multiplied by. */
static float gradient_scale(const eo_plan *plan, uint32_t step)
{
    const double weight = weight_of_all(plan, step), loss_scale = step == WEIGHTED_STEP ? 1.5 : 1;
    return (float)(1 / ((weight > 0 ? weight : 1) * loss_scale));
}

/* Parameter k of the plan, as the trainer described it. */
static bool is_narrow(const struct scene *scene, uint32_t k)
{
    eo_parameter_info info;
    must(eo_model_parameter(scene->model, scene->plan->parameters[k].model_index, &info), "parameter", NULL);
    return scene->settings.dtype == EO_DTYPE_BF16 && !info.fp32;
}

static float in_type(bool narrow, float weight)
{
    return narrow ? eo_bf16_to_float(eo_bf16_round(weight)) : weight;
}

/* The smallest power of two that brings `largest` to 448. */
static double float8_scale(double largest)
{
    double scale = ldexp(1, -100);
    while (largest / scale > 448)
        scale *= 2;
    return scale;
}

/* To four significant bits, ties to even, but no finer than 2^-9 of the scale. */
static float in_float8(float weight, double scale)
{
    int exponent;
    (void)frexp((double)weight / scale, &exponent);
    const double unit = ldexp(scale, exponent - 4 > -9 ? exponent - 4 : -9);
    return (float)(nearbyint((double)weight / unit) * unit);
}

/* A parameter's weights as passes see them. In float8 each rank has a scale for its part. */
static void as_gathered(const struct scene *scene, uint32_t k, const float *weights, float *seen)
{
    const struct plan_parameter *parameter = &scene->plan->parameters[k];
    const uint64_t shard = scene->plan->layers[parameter->layer].layout.shard_count, count = parameter->element_count;
    const bool narrow = is_narrow(scene, k);
    for (uint64_t i = 0; i < count; i++)
        seen[i] = in_type(narrow, weights[i]);
    for (uint64_t begin = 0, end; scene->settings.float8_gather && parameter->float8_gather && begin < count; begin = end) {
        double largest = 0;
        for (end = begin; end < count && (parameter->offset + end) / shard == (parameter->offset + begin) / shard; end++)
            largest = fmax(largest, fabs((double)seen[end]));
        const double scale = float8_scale(largest);
        for (uint64_t i = begin; i < end; i++)
            seen[i] = in_float8(seen[i], scale);
    }
}

/* A frozen parameter's weights, of which nothing else is kept: in MXFP8 with a scale for 32 elements each. */
static void as_filled(const struct scene *scene, uint32_t k, float *seen)
{
    const struct plan_parameter *parameter = &scene->plan->parameters[k];
    const bool narrow = is_narrow(scene, k), in_mxfp8 = scene->settings.float8_frozen && parameter->float8_gather;
    for (uint64_t begin = 0; begin < parameter->element_count; begin += 32) {
        const uint64_t end = begin + 32 < parameter->element_count ? begin + 32 : parameter->element_count;
        double largest = 0;
        for (uint64_t i = begin; i < end; i++)
            largest = fmax(largest, fabs((double)first_weight(k, i)));
        const double scale = float8_scale(largest);
        for (uint64_t i = begin; i < end; i++)
            seen[i] = in_mxfp8 ? in_float8(first_weight(k, i), scale) : in_type(narrow, first_weight(k, i));
    }
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

/* -- sums, in the order of the strategy ------------------------------------------------------------------------------*/

/* What a rank writes into its gradient buffer. */
static float contribution(const struct scene *scene, const struct pass_of *pass, uint32_t parameter, uint64_t i,
                          float weight)
{
    const float value =
        is_left_out(scene->plan, pass->rank, pass->step, pass->micro_batch) ? 0 : gradient_of(pass, parameter, i, weight);
    return scene->settings.reduce_dtype == EO_DTYPE_BF16 ? eo_bf16_to_float(eo_bf16_round(value)) : value;
}

/* A contribution summed over a group of ranks, in their order, and rounded as it lands. */
static float reduced(const struct scene *scene, struct pass_of pass, uint32_t group, uint32_t parameter, uint64_t i,
                     float weight)
{
    const uint32_t size = scene->plan->params.shard_group;
    volatile float sum = 0;
    for (uint32_t r = 0; r < size; r++) {
        pass.rank = group * size + r;
        const float value = contribution(scene, &pass, parameter, i, weight);
        sum = r == 0 ? value : sum + value;
    }
    return scene->settings.reduce_dtype == EO_DTYPE_BF16 ? eo_bf16_to_float(eo_bf16_round(sum)) : sum;
}

/* All contributions of a step added up: of a group's sums, or of one rank's own; `weight` as it was gathered. */
static float added_up(const struct scene *scene, uint32_t step, uint32_t unit_index, bool of_rank, uint32_t k, uint64_t i,
                      float weight)
{
    const eo_plan *plan = scene->plan;
    const struct plan_parameter *parameter = &plan->parameters[k];
    volatile float gradient = 0;
    bool first = true;
    for (uint32_t b = 0; b < plan->params.micro_batches; b++) {
        for (uint32_t p = plan->position_count; p-- > 0;) {
            if (plan->positions[p].layer != parameter->layer)
                continue;
            const float seen = plan->positions[p].backward_without_weights ? 0 : weight;
            const struct pass_of pass = {unit_index, step, b, p};
            const float more = !gets_gradient(plan, p, parameter) ? 0
                               : of_rank ? contribution(scene, &pass, k, i, seen)
                                         : reduced(scene, pass, unit_index, k, i, seen);
            gradient = first ? more : gradient + more;
            first = false;
        }
    }
    return gradient;
}

/* Written from the table of strategies in evenodd/plan.h. */
static float global_gradient(const struct scene *scene, uint32_t step, uint32_t k, uint64_t i, float weight)
{
    const eo_plan_params *p = &scene->plan->params;
    uint32_t contributions = 0;
    for (uint32_t q = 0; q < scene->plan->position_count; q++)
        contributions += scene->plan->positions[q].layer == scene->plan->parameters[k].layer;
    contributions *= p->micro_batches;
    const bool stays_whole = p->strategy == EO_STRATEGY_DDP || (p->strategy == EO_STRATEGY_ZERO1 && contributions > 1) ||
                             (p->strategy == EO_STRATEGY_HSDP && p->shard_group == 1 && p->rank_count > 1);
    const uint32_t units = stays_whole ? p->rank_count : p->rank_count / p->shard_group;
    volatile float sum = 0;
    for (uint32_t u = 0; u < units; u++) {
        const float part = added_up(scene, step, u, stays_whole, k, i, weight);
        sum = u == 0 ? part : sum + part;
    }
    return sum;
}

struct moments {
    float m, v;
};

/* `applied`: of the steps that were not skipped, this one included. */
static float adamw(float weight, float gradient, struct moments *at, uint32_t step, uint32_t applied,
                   const struct plan_group *group)
{
    const eo_step_params params = step_params(step);
    eo_parameter_group groups[GROUPS];
    set_groups(step, groups);
    const eo_parameter_group *g = &groups[group->group];
    const float beta1 = g->exact ? g->beta1 : 0.9f, beta2 = g->exact ? g->beta2 : 0.999f, eps = g->exact ? g->eps : 1e-8f;
    const float rate = params.learning_rate * (g->learning_rate_factor != 0 ? g->learning_rate_factor : 1);
    const float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    const float weight_decay = group->no_weight_decay ? 0 : g->exact ? g->weight_decay : params.weight_decay;
    if (g->frozen)
        return weight;
    volatile float a = beta1 * at->m, b = rest1 * gradient, c = beta2 * at->v, d = rest2 * gradient, e = d * gradient;
    volatile float m = a + b, v = c + e;
    volatile float mean = m / (float)(1 - pow(beta1, applied)), variance = v / (float)(1 - pow(beta2, applied));
    volatile float root = sqrtf(variance), sum = root + eps, ratio = mean / sum;
    volatile float decay = weight_decay * weight, both = ratio + decay;
    volatile float change = rate * both;
    at->m = m;
    at->v = v;
    return weight - change;
}

/* An average begins as the weights do. */
static void train_parameter(const struct scene *scene, uint32_t k, float *weights, float *averages)
{
    static float seen[LAYER_ELEMENTS_MAX];
    static struct moments moments[LAYER_ELEMENTS_MAX];
    const eo_plan *plan = scene->plan;
    const struct plan_parameter *parameter = &plan->parameters[k];
    const bool frozen = plan->layers[parameter->layer].frozen;
    memset(moments, 0, sizeof(moments));
    for (uint64_t i = 0; i < parameter->element_count; i++)
        weights[i] = first_weight(k, i);
    if (frozen)
        as_filled(scene, k, weights);
    memcpy(averages, weights, parameter->element_count * sizeof(*weights));
    for (uint32_t step = 0, applied = 1; step < STEPS && !frozen; step++) {
        if (step == SKIPPED_STEP)
            continue;
        as_gathered(scene, k, weights, seen);
        for (uint64_t i = 0; i < parameter->element_count; i++) {
            volatile float gradient = global_gradient(scene, step, k, i, seen[i]) * gradient_scale(plan, step);
            weights[i] = adamw(weights[i], gradient, &moments[i], step, applied, &plan->groups[parameter->group]);
            volatile float apart = weights[i] - averages[i], more = (1.0f - step_params(step).ema_decay) * apart;
            averages[i] = averages[i] + more;
        }
        applied++;
    }
}

void make_reference(struct scene *scene)
{
    uint64_t at = 0;
    scene->reference = malloc(2 * scene->plan->element_count * sizeof(float));
    scene->averages = scene->reference + scene->plan->element_count;
    for (uint32_t k = 0; k < scene->plan->parameter_count; k++) {
        train_parameter(scene, k, scene->reference + at, scene->averages + at);
        at += scene->plan->parameters[k].element_count;
    }
}

/* -- the same through the runtime ------------------------------------------------------------------------------------*/

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

void plan_anew(struct scene *scene)
{
    eo_plan_destroy(&scene->plan);
    must(eo_plan_create(&scene->plan, scene->model, &scene->settings), "plan", NULL);
}
