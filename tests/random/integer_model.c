/* SPDX-License-Identifier: MIT */
#include "tests/random/integer_model.h"

#include <stdlib.h>
#include <string.h>

int32_t integer_first_weight(const struct random_case *c, uint32_t layer, uint32_t parameter, uint64_t element)
{
    return 2 * (int32_t)(random_hash(c->seed, 100 * layer + parameter, element) % 4) - 3;
}

int32_t integer_replaced_weight(const struct random_case *c, uint32_t step, uint64_t element)
{
    return 2 * (int32_t)(random_hash(c->seed, 9000 + step, element) % 4) - 3;
}

/* With SGD one rank and micro-batch gives an element's gradient, from -1 to 1: as all of it goes into the weight. */
static int32_t gradient_of_sgd(const struct random_case *c, const struct integer_place *at, uint64_t element)
{
    const uint64_t who = random_hash(c->seed ^ 0x56d, 4 * at->step + at->parameter, element);
    const bool gives = who % random_case_ranks(c, at->step) == at->rank && (who >> 32) % c->settings.micro_batches == at->micro_batch;
    return gives ? (int32_t)(random_hash(who, at->position, element) % 3) - 1 : 0;
}

int32_t integer_gradient(const struct random_case *c, const struct integer_place *at, uint64_t element, int32_t weight)
{
    if (c->settings.optimizer == EO_OPTIMIZER_SGD)
        return gradient_of_sgd(c, at, element);
    const uint64_t who = (((uint64_t)at->step * 8 + at->rank) * 8 + at->micro_batch) * 4 + at->parameter;
    const uint64_t number = random_hash(c->seed ^ who << 20, at->position, element);
    return weight * ((int32_t)(number % 3) - 1) + (int32_t)(number / 3 % 5) - 2;
}

int32_t integer_update(const struct random_case *c, int32_t weight, int32_t gradient)
{
    if (c->settings.optimizer == EO_OPTIMIZER_SGD)
        return weight - 2 * gradient;
    if (!c->own_optimizer)
        return weight - 2 * ((gradient > 0) - (gradient < 0));
    const int32_t rest = (((weight + 2 * gradient) % 16) + 16) % 16;
    return rest > 8 ? rest - 16 : rest;
}

double integer_value(uint32_t step, uint32_t rank)
{
    return 10.0 * step + rank + 1;
}

static bool take_versions(struct integer_model *model, const struct random_case *c)
{
    for (uint32_t v = 0; v <= INTEGER_IN(c->step_count); v++)
        for (uint32_t l = 0; l < c->layer_count; l++)
            for (uint32_t k = 0; k < c->layers[l].parameter_count; k++)
                if (!(model->weights[v][l][k] = malloc(c->layers[l].elements[k] * sizeof(int32_t))))
                    return false;
    return true;
}

/* The sum of all contributions to an element in a step. */
static int32_t integer_sum(const struct random_case *c, uint32_t step, uint32_t l, uint32_t k, uint64_t element,
                           int32_t weight)
{
    const uint32_t rank_count = random_case_ranks(c, step);
    int32_t sum = 0;
    for (uint32_t p = 0; p < c->position_count; p++) {
        const struct case_position *position = &c->positions[p];
        if (position->layer != l || !(position->gradients >> k & 1))
            continue;
        const int32_t seen = position->backward_without_weights ? 0 : weight;
        for (uint32_t rank = 0; rank < rank_count; rank++)
            for (uint32_t b = 0; b < c->settings.micro_batches; b++)
                sum += integer_gradient(c, &(struct integer_place){step, rank, b, p, k}, element, seen);
    }
    return sum;
}

static bool is_replaced(const struct random_case *c, uint32_t step, uint32_t l, uint32_t k)
{
    uint32_t parameter = k;
    for (uint32_t before = 0; before < l; before++)
        parameter += c->layers[before].parameter_count;
    return memchr(c->actions[step], CASE_REPLACES, CASE_ACTIONS_MAX) && random_case_parameter(c, step) == parameter;
}

/* From before the gap at `step` to before the next. */
static void train_parameter(struct integer_model *model, const struct random_case *c, uint32_t step, uint32_t l, uint32_t k)
{
    const int32_t *before = model->weights[INTEGER_BEFORE(step)][l][k];
    int32_t *in = model->weights[INTEGER_IN(step)][l][k];
    const bool replaced = is_replaced(c, step, l, k), is_frozen = c->layers[l].frozen || c->layers[l].frozen_parts >> k & 1;
    for (uint32_t i = 0; i < c->layers[l].elements[k]; i++)
        in[i] = replaced ? integer_replaced_weight(c, step, i) : before[i];
    if (step == c->step_count)
        return;
    int32_t *after = model->weights[INTEGER_BEFORE(step + 1)][l][k];
    memcpy(after, in, c->layers[l].elements[k] * sizeof(*in));
    for (uint32_t i = 0; i < c->layers[l].elements[k] && !is_frozen && !(c->skips >> step & 1); i++) {
        const int32_t gradient = integer_sum(c, step, l, k, i, in[i]);
        const double square = (double)gradient * gradient;
        model->norms[step] += square;
        model->layer_norms[step][l] += square;
        model->group_norms[step][c->layers[l].groups[k]] += square;
        after[i] = integer_update(c, in[i], gradient);
    }
}

bool integer_model_train(struct integer_model *model, const struct random_case *c)
{
    memset(model, 0, sizeof(*model));
    if (!take_versions(model, c))
        return false;
    for (uint32_t l = 0; l < c->layer_count; l++) {
        for (uint32_t k = 0; k < c->layers[l].parameter_count; k++) {
            for (uint32_t i = 0; i < c->layers[l].elements[k]; i++)
                model->weights[0][l][k][i] = integer_first_weight(c, l, k, i);
            for (uint32_t step = 0; step <= c->step_count; step++)
                train_parameter(model, c, step, l, k);
        }
    }
    return true;
}

void integer_model_end(struct integer_model *model)
{
    for (uint32_t v = 0; v < INTEGER_VERSIONS; v++)
        for (uint32_t l = 0; l < CASE_LAYERS_MAX; l++)
            for (uint32_t k = 0; k < CASE_PARAMETERS_MAX; k++)
                free(model->weights[v][l][k]);
    memset(model, 0, sizeof(*model));
}
