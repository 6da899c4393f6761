/* SPDX-License-Identifier: MIT */
#include "tests/random/generator.h"

static eo_status add_layer_of_case(eo_model *model, const struct random_case *c, uint32_t l)
{
    const struct case_layer *layer = &c->layers[l];
    char name[EO_NAME_MAX];
    snprintf(name, sizeof(name), "layer%u", l);
    eo_status status =
        eo_model_add_layer(model, eo_layer_params(.name = name, .frozen = layer->frozen, .parts = layer->parts), NULL);
    for (uint32_t k = 0; k < layer->parameter_count && status >= 0; k++) {
        snprintf(name, sizeof(name), "layer%u.%u", l, k);
        const bool matrix = layer->matrix >> k & 1, tall = layer->tall >> k & 1;
        const uint32_t large = matrix ? CASE_MATRIX_LARGE : layer->elements[k], small = layer->elements[k] / large;
        status = eo_model_add_parameter(model, eo_parameter_params(.layer = l, .name = name, .dim_count = matrix ? 2 : 1,
                                                                   .dims = {matrix && !tall ? small : large,
                                                                            !matrix ? 0 : tall ? small : large},
                                                                   .matrix = matrix, .group = layer->groups[k],
                                                                   .float8_gather = layer->float8 >> k & 1,
                                                                   .fp32 = layer->fp32 >> k & 1,
                                                                   .frozen = layer->frozen_parts >> k & 1), NULL);
    }
    return status;
}

static eo_status add_position_of_case(eo_model *model, const struct random_case *c, uint32_t p)
{
    const struct case_position *position = &c->positions[p];
    uint32_t parameters[CASE_PARAMETERS_MAX], count = 0, first = 0;
    char name[EO_NAME_MAX];
    for (uint32_t l = 0; l < position->layer; l++)
        first += c->layers[l].parameter_count;
    for (uint32_t k = 0; k < c->layers[position->layer].parameter_count; k++)
        if (position->gradients >> k & 1)
            parameters[count++] = first + k;
    const bool all = count == c->layers[position->layer].parameter_count;
    snprintf(name, sizeof(name), "use%u", p);
    return eo_model_add_position(model,
                                 eo_position_params(.layer = position->layer, .name = name,
                                                    .forward_in_backward = position->forward_in_backward,
                                                    .backward_without_weights = position->backward_without_weights,
                                                    .parameters = all ? NULL : parameters, .parameter_count = all ? 0 : count,
                                                    .adds_gradients = position->adds),
                                 NULL);
}

eo_status random_case_model(const struct random_case *c, const eo_log *log, eo_model **out)
{
    char name[EO_NAME_MAX];
    snprintf(name, sizeof(name), "seed %llu", (unsigned long long)c->seed);
    eo_status status = eo_model_create(out, eo_model_params(.name = name, .log = log));
    for (uint32_t l = 0; l < c->layer_count && status >= 0; l++)
        status = add_layer_of_case(*out, c, l);
    for (uint32_t p = 0; p < c->position_count && status >= 0; p++)
        status = add_position_of_case(*out, c, p);
    for (uint32_t b = 0; b < c->buffer_count && status >= 0; b++) {
        const struct case_buffer *buffer = &c->buffers[b];
        snprintf(name, sizeof(name), "buffer%u", b);
        status = eo_model_add_buffer(*out, eo_buffer_params(.name = name, .bytes = buffer->bytes,
                                                            .category = EO_CATEGORY_ACTIVATION, .first = buffer->first,
                                                            .last = buffer->last, .persistent = buffer->persistent,
                                                            .saved = buffer->saved), NULL);
    }
    if (c->graph && status >= 0)
        status = eo_model_add_buffer(*out, eo_buffer_params(.name = "step", .bytes = sizeof(uint32_t), .persistent = true,
                                                            .category = EO_CATEGORY_OTHER), NULL);
    if (status < 0)
        eo_model_destroy(out);
    return status;
}
