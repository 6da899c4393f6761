/* SPDX-License-Identifier: MIT
 *
 * Optimizers to give to eo_runtime_params.update, or to copy from: SGD with momentum, Lion, Adadelta and Adafactor, for
 * ranks on CPUs. `update_user` is the settings; the plan's optimizer_states are those named beside each. Padding has
 * gradients of zero and weights of zero, and all of these leave it so. Not for layers with `fp32` parameters in a plan of bf16:
 * the weights of those are not split, and would be damaged. docs/optimizers.md has each beside PyTorch's.
 */
#ifndef EO_EXAMPLES_UPDATE_RULES_H
#define EO_EXAMPLES_UPDATE_RULES_H

#include <float.h>
#include <math.h>
#include <string.h>

#include <evenodd/evenodd.h>

/* The master weight, whole or in two halves. */
static inline float rule_weight(const eo_shard *shard, uint64_t i)
{
    if (shard->weights)
        return shard->weights[i];
    const uint32_t bits = ((uint32_t)shard->weights_high[i] << 16) + (uint32_t)(int32_t)shard->weights_low[i];
    float weight;
    memcpy(&weight, &bits, sizeof(weight));
    return weight;
}

/* The high half is the nearest bf16, ties away from zero; the low one is the rest. */
static inline void rule_set_weight(const eo_shard *shard, uint64_t i, float weight)
{
    uint32_t bits;
    memcpy(&bits, &weight, sizeof(bits));
    if (shard->weights)
        shard->weights[i] = weight;
    else {
        shard->weights_high[i] = (uint16_t)((bits + 0x8000u) >> 16);
        shard->weights_low[i] = (int16_t)(uint16_t)bits;
    }
}

/* In a step with several clip groups each parameter has the scale of its own. */
static inline float rule_scale(const eo_shard *shard, uint64_t i)
{
    if (!shard->group_scales)
        return shard->gradient_scale;
    for (uint32_t k = 0; k < shard->part_count; k++)
        if (i >= shard->parts[k].at && i - shard->parts[k].at < shard->parts[k].count)
            return shard->group_scales[shard->parts[k].group];
    return 0; /* padding */
}

static inline float rule_gradient(const eo_shard *shard, uint64_t i)
{
    return shard->gradient[i] * rule_scale(shard, i);
}

/* ---- SGD with momentum: optimizer_states = 1 ---- */

struct sgd {
    float learning_rate, momentum, weight_decay;
    bool nesterov;
};

static inline void sgd_update(void *user, const eo_shard *shard)
{
    const struct sgd *o = user;
    float *velocity = shard->state[0];
    for (uint64_t i = 0; i < shard->count; i++) {
        const float weight = rule_weight(shard, i), g = rule_gradient(shard, i) + o->weight_decay * weight;
        velocity[i] = o->momentum * velocity[i] + g;
        rule_set_weight(shard, i, weight - o->learning_rate * (o->nesterov ? g + o->momentum * velocity[i] : velocity[i]));
    }
}

/* ---- Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): optimizer_states = 1 ---- */

struct lion {
    float learning_rate, beta1, beta2, weight_decay;
};

static inline void lion_update(void *user, const eo_shard *shard)
{
    const struct lion *o = user;
    float *momentum = shard->state[0];
    for (uint64_t i = 0; i < shard->count; i++) {
        const float weight = rule_weight(shard, i), g = rule_gradient(shard, i);
        const float direction = o->beta1 * momentum[i] + (1 - o->beta1) * g;
        const float sign = (float)((direction > 0) - (direction < 0));
        momentum[i] = o->beta2 * momentum[i] + (1 - o->beta2) * g;
        rule_set_weight(shard, i, weight - o->learning_rate * (sign + o->weight_decay * weight));
    }
}

/* ---- Adadelta (Zeiler, 2012): optimizer_states = 2 ---- */

struct adadelta {
    float learning_rate, rho, eps, weight_decay;
};

static inline void adadelta_update(void *user, const eo_shard *shard)
{
    const struct adadelta *o = user;
    float *squares = shard->state[0], *steps = shard->state[1];
    for (uint64_t i = 0; i < shard->count; i++) {
        const float weight = rule_weight(shard, i), g = rule_gradient(shard, i) + o->weight_decay * weight;
        squares[i] = o->rho * squares[i] + (1 - o->rho) * g * g;
        const float step = sqrtf(steps[i] + o->eps) / sqrtf(squares[i] + o->eps) * g;
        steps[i] = o->rho * steps[i] + (1 - o->rho) * step * step;
        rule_set_weight(shard, i, weight - o->learning_rate * step);
    }
}

/* ---- Adafactor (Shazeer and Stern, 2018): optimizer_states = 1 ---- */

/* A parameter of a layer: a matrix, or of one row a vector. `offset`: its first element in the flat layer. */
struct adafactor_parameter {
    uint32_t layer;
    uint64_t offset, rows, columns;
};

/*
 * Of a matrix only the sums of rows and of columns are remembered, so it needs matrices whole: strategy ddp, where a rank
 * has all of each layer. The sums lie at the begin of the parameter's part of the state, rows first.
 */
struct adafactor {
    float learning_rate, beta2_decay, eps, clip; /* 0.01, -0.8, 0.001, 1 */
    const struct adafactor_parameter *parameters;
    uint32_t parameter_count;
};

static inline void adafactor_factors(const eo_shard *shard, const struct adafactor_parameter *p, float *rows, float *columns,
                                     float rest)
{
    for (uint64_t r = 0; r < p->rows; r++) {
        double sum = 0;
        for (uint64_t c = 0; c < p->columns; c++)
            sum += pow((double)rule_gradient(shard, p->offset + r * p->columns + c), 2);
        rows[r] += rest * ((float)(sum / (double)p->columns) - rows[r]);
    }
    for (uint64_t c = 0; c < p->columns; c++) {
        double sum = 0;
        for (uint64_t r = 0; r < p->rows; r++)
            sum += pow((double)rule_gradient(shard, p->offset + r * p->columns + c), 2);
        columns[c] += rest * ((float)(sum / (double)p->rows) - columns[c]);
    }
}

/* The gradient over the root of the estimate of its square. */
static inline double adafactor_direction(const eo_shard *shard, const struct adafactor_parameter *p, double mean, uint64_t i)
{
    const float *state = shard->state[0] + p->offset;
    const double estimate = p->rows > 1 ? (double)state[i / p->columns] * (double)state[p->rows + i % p->columns] / mean
                                        : (double)state[i];
    return (double)rule_gradient(shard, p->offset + i) / sqrt(fmax(estimate, (double)FLT_EPSILON * (double)FLT_EPSILON));
}

static inline void adafactor_parameter_update(const struct adafactor *o, const eo_shard *shard,
                                              const struct adafactor_parameter *p)
{
    const uint64_t count = p->rows * p->columns;
    const float rest = (float)pow((double)shard->step, (double)o->beta2_decay);
    float *state = shard->state[0] + p->offset;
    double mean = 0, weights = 0, directions = 0;
    if (p->rows > 1)
        adafactor_factors(shard, p, state, state + p->rows, rest);
    for (uint64_t i = 0; p->rows == 1 && i < count; i++)
        state[i] += rest * (rule_gradient(shard, p->offset + i) * rule_gradient(shard, p->offset + i) - state[i]);
    for (uint64_t r = 0; p->rows > 1 && r < p->rows; r++)
        mean += (double)state[r] / (double)p->rows;
    mean = fmax(mean, (double)FLT_EPSILON);
    for (uint64_t i = 0; i < count; i++) {
        weights += pow((double)rule_weight(shard, p->offset + i), 2);
        directions += pow(adafactor_direction(shard, p, mean, i), 2);
    }
    const double rate = fmin((double)o->learning_rate, 1 / sqrt((double)shard->step));
    const double size = fmax((double)o->eps, sqrt(weights / (double)count)) * rate;
    const double scale = size / fmax(1, sqrt(directions / (double)count) / (double)o->clip);
    for (uint64_t i = 0; i < count; i++)
        rule_set_weight(shard, p->offset + i, (float)((double)rule_weight(shard, p->offset + i) -
                                                      scale * adafactor_direction(shard, p, mean, i)));
}

static inline void adafactor_update(void *user, const eo_shard *shard)
{
    const struct adafactor *o = user;
    for (uint32_t k = 0; k < o->parameter_count; k++)
        if (o->parameters[k].layer == shard->layer)
            adafactor_parameter_update(o, shard, &o->parameters[k]);
}

#endif
