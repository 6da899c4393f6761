/* SPDX-License-Identifier: MIT */
#include "tests/conformance/written_out_network.h"

#include <math.h>
#include <string.h>

#include "streams/bf16.h"
#include "tests/conformance/ranks.h"

static float unit(uint64_t salt, uint64_t a, uint64_t b)
{
    return (float)(int32_t)(uint32_t)test_hash(salt, a, b) / 2147483648.0f;
}

/* Not a bf16 number, as a rule. Some are small for as long as a block of MXFP8 is. */
float first_weight(uint32_t parameter, uint64_t i)
{
    return ldexpf(unit(17, parameter, i), -3 * (int)(i / 40 % 3));
}

bool is_left_out(const eo_plan *plan, uint32_t rank, uint32_t step, uint32_t micro_batch)
{
    return step == SHORT_STEP && rank + 1 == plan->params.rank_count && micro_batch + 1 == plan->params.micro_batches;
}

float gradient_of(const struct pass_of *pass, uint32_t parameter, uint64_t i, float weight)
{
    const uint64_t salt = ((uint64_t)pass->step * 64 + pass->micro_batch) * 64 + pass->position;
    volatile float scaled = weight * 0.125f, noise = unit(salt, pass->rank, parameter * UINT64_C(65536) + i);
    return scaled + noise;
}

/* The first group leaves what it can to the step. */
void set_groups(uint32_t step, eo_parameter_group groups[GROUPS])
{
    groups[0] = (eo_parameter_group){.learning_rate_factor = step % 2 ? 0.75f : 0};
    groups[1] = (eo_parameter_group){.learning_rate_factor = 2, .weight_decay = 0.25f, .beta1 = 0.875f, .beta2 = 0.99f,
                                     .eps = 1e-6f, .frozen = step == FREEZING_STEP, .exact = true};
}

eo_step_params step_params(uint32_t step)
{
    return (eo_step_params){.learning_rate = 1e-2f / (float)(step + 1), .weight_decay = 0.1f,
                            .ema_decay = step % 3 == 1 ? 1 : 0.75f, .on_not_finite = EO_SKIP,
                            .loss_scale = step == WEIGHTED_STEP ? 1.5f : 0};
}

double weight_of(uint32_t rank, uint32_t step)
{
    return step == WEIGHTED_STEP ? 7.0 * rank : 0;
}

double weight_of_all(const eo_plan *plan, uint32_t step)
{
    double sum = 0;
    for (uint32_t r = 0; r < plan->params.rank_count; r++)
        sum += weight_of(r, step);
    return sum;
}

/* What gradients are multiplied by. */
float gradient_scale(const eo_plan *plan, uint32_t step)
{
    const double weight = weight_of_all(plan, step), loss_scale = step == WEIGHTED_STEP ? 1.5 : 1;
    return (float)(1 / ((weight > 0 ? weight : 1) * loss_scale));
}

/* Parameter k of the plan, as the trainer described it. */
bool is_narrow(const struct scene *scene, uint32_t k)
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
void as_gathered(const struct scene *scene, uint32_t k, const float *weights, float *seen)
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
void as_filled(const struct scene *scene, uint32_t k, float *seen)
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

bool gets_gradient(const eo_plan *plan, uint32_t position, const struct plan_parameter *parameter)
{
    const struct plan_position *p = &plan->positions[position];
    for (uint32_t z = 0; z < p->zero_count; z++) {
        const struct plan_range *range = &plan->zero_ranges[p->zero_begin + z];
        if (parameter->offset >= range->offset && parameter->offset < range->offset + range->count)
            return false;
    }
    return true;
}
