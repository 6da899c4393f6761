/* SPDX-License-Identifier: MIT */
#include "runtime/plan/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/hashing.h"
#include "base/plain_text.h"
#include "base/sized.h"
#include "buffers/layout.h"

/* Bounds of a model. A plan has its own, of layers and of all rows. */
enum { LAYERS_MAX = 1 << 12, PARAMETERS_MAX = 1 << 18, POSITIONS_MAX = 1 << 13, BUFFERS_MAX = 1 << 18 };
#define PARAMETER_ELEMENTS_MAX ((uint64_t)1 << 44)
#define BUFFER_BYTES_MAX ((uint64_t)1 << 46)

static eo_status grow(void **array, uint32_t *capacity, uint32_t count, size_t item_bytes)
{
    if (count < *capacity)
        return EO_OK;
    const uint32_t larger = *capacity ? *capacity * 2 : 16;
    void *moved = realloc(*array, larger * item_bytes);
    if (!moved)
        return EO_ERR_NO_MEMORY;
    *array = moved;
    *capacity = larger;
    return EO_OK;
}

static eo_status copy_name(const eo_log *log, char *to, const char *name, const char *what)
{
    EO_REQUIRE(log, name && name[0], "a %s needs a name", what);
    EO_REQUIRE(log, strlen(name) < EO_NAME_MAX, "the name of %s '%.40s...' is longer than %d bytes", what, name,
               EO_NAME_MAX - 1);
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) /* a checkpoint with such a name would be refused */
        EO_REQUIRE(log, !eo_text_is_control(c), "the name of a %s has a control character (0x%02x at byte %td); leave it out",
                   what, *c, (const char *)c - name);
    memset(to, 0, EO_NAME_MAX);
    memcpy(to, name, strlen(name));
    return EO_OK;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* The slot with this name, or the free one for it. Items begin with their names. */
static uint32_t *name_slot(const struct model_names *names, const void *items, size_t item_bytes, const char *name)
{
    uint32_t at = (uint32_t)eo_hash64(name, strlen(name)) & (names->slot_count - 1);
    while (names->slots[at] && strcmp((const char *)items + (names->slots[at] - 1) * item_bytes, name) != 0)
        at = (at + 1) & (names->slot_count - 1);
    return &names->slots[at];
}

static eo_status grow_names(struct model_names *names, const void *items, size_t item_bytes)
{
    if (2 * (names->count + 1) <= names->slot_count)
        return EO_OK;
    struct model_names larger = {.slot_count = names->slot_count ? 2 * names->slot_count : 32, .count = names->count};
    larger.slots = calloc(larger.slot_count, sizeof(*larger.slots));
    if (!larger.slots)
        return EO_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < names->count; i++)
        *name_slot(&larger, items, item_bytes, (const char *)items + i * item_bytes) = i + 1;
    free(names->slots);
    *names = larger;
    return EO_OK;
}

/* The next item gets this name; no other has it. */
static eo_status take_name(const eo_log *log, struct model_names *names, const void *items, size_t item_bytes, const char *name,
                           const char *what)
{
    EO_TRY(grow_names(names, items, item_bytes));
    uint32_t *slot = name_slot(names, items, item_bytes, name);
    EO_REQUIRE(log, *slot == 0, "two %s are named '%s'", what, name);
    *slot = ++names->count;
    return EO_OK;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

eo_status eo_model_create(eo_model **out, const eo_model_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    const eo_log log = params && params->log ? *params->log : (eo_log){0};
    const char *name = params && params->name ? params->name : "model";
    eo_model *model = calloc(1, sizeof(*model));
    if (!model)
        return EO_ERR_NO_MEMORY;
    model->log = log;
    const eo_status status = copy_name(&log, model->name, name, "model");
    if (status < 0) {
        eo_model_destroy(&model);
        return status;
    }
    *out = model;
    return EO_OK;
}

void eo_model_destroy(eo_model **model)
{
    if (!model || !*model)
        return;
    for (uint32_t i = 0; i < (*model)->position_count; i++)
        free((*model)->positions[i].parameters);
    free((*model)->layers);
    free((*model)->parameters);
    free((*model)->positions);
    free((*model)->buffers);
    free((*model)->layer_names.slots);
    free((*model)->parameter_names.slots);
    free((*model)->buffer_names.slots);
    free(*model);
    *model = NULL;
}

eo_status eo_model_add_layer(eo_model *model, const eo_layer_params *params, uint32_t *out)
{
    if (!model || !params)
        return EO_ERR_INVALID;
    struct model_layer layer = {.frozen = params->frozen, .parts = params->parts ? params->parts : 1};
    EO_TRY(copy_name(&model->log, layer.name, params->name, "layer"));
    EO_REQUIRE(&model->log, model->layer_count < LAYERS_MAX, "more than %d layers", LAYERS_MAX);
    EO_TRY(grow((void **)&model->layers, &model->layer_capacity, model->layer_count, sizeof(layer)));
    EO_TRY(take_name(&model->log, &model->layer_names, model->layers, sizeof(layer), layer.name, "layers"));
    model->layers[model->layer_count] = layer;
    if (out)
        *out = model->layer_count;
    model->layer_count++;
    return EO_OK;
}

/* Behind the layer's last parameter so far; trainable and frozen ones lie apart. */
static bool may_be_joined(const eo_model *model, uint32_t layer, bool frozen)
{
    for (uint32_t p = model->parameter_count; p-- > 0;)
        if (model->parameters[p].layer == layer)
            return model->parameters[p].frozen == frozen && model->parameters[p].padding == 0 &&
                   !model->parameters[p].fp32 && model->parameters[p].element_count % EO_LAYOUT_UNIT == 0;
    return false;
}

eo_status eo_model_add_parameter(eo_model *model, const eo_parameter_params *params, uint32_t *out)
{
    if (!model || !params)
        return EO_ERR_INVALID;
    const eo_log *log = &model->log;
    struct model_parameter parameter = {.layer = params->layer, .no_weight_decay = params->no_weight_decay,
                                        .float8_gather = params->float8_gather, .joined = params->joined,
                                        .matrix = params->matrix, .fp32 = params->fp32,
                                        .group = params->group, .frozen = params->frozen};
    EO_TRY(copy_name(log, parameter.name, params->name, "parameter"));
    EO_REQUIRE(log, params->layer < model->layer_count, "parameter '%s' names layer %u, but the model has %u",
               parameter.name, params->layer, model->layer_count);
    EO_REQUIRE(log, params->group < EO_GROUPS_MAX, "parameter '%s' is of group %u; groups are below %d", parameter.name,
               params->group, EO_GROUPS_MAX);
    EO_REQUIRE(log, params->dim_count >= 1 && params->dim_count <= EO_DIMS_MAX,
               "parameter '%s' has %u dimensions; 1 to %d are possible", parameter.name, params->dim_count,
               EO_DIMS_MAX);
    EO_REQUIRE(log, model->parameter_count < PARAMETERS_MAX, "more than %d parameters", PARAMETERS_MAX);
    uint64_t count = 1;
    for (uint32_t i = 0; i < params->dim_count; i++) {
        EO_REQUIRE(log, params->dims[i] >= 1, "dimension %u of parameter '%s' is 0", i, parameter.name);
        EO_REQUIRE(log, eo_checked_mul(count, params->dims[i], &count) && count <= PARAMETER_ELEMENTS_MAX,
                   "parameter '%s' has more than 2^44 elements", parameter.name);
        parameter.dims[i] = params->dims[i];
    }
    for (uint32_t i = params->dim_count; i < EO_DIMS_MAX; i++)
        EO_REQUIRE(log, params->dims[i] == 0, "parameter '%s' has %u dimensions, but dims[%u] is %llu", parameter.name,
                   params->dim_count, i, (unsigned long long)params->dims[i]);
    EO_REQUIRE(log, params->padding <= PARAMETER_ELEMENTS_MAX, "parameter '%s' has a padding of more than 2^44 elements",
               parameter.name);
    EO_REQUIRE(log, !params->matrix || params->dim_count == 2, "parameter '%s' is a matrix, but has %u dimensions; a matrix has "
               "2", params->name, params->dim_count);
    EO_REQUIRE(log, !params->fp32 || count <= EO_FP32_ELEMENTS_MAX, "parameter '%s' of %llu elements is fp32, which lies whole on "
               "one rank; at most %d are possible", parameter.name, (unsigned long long)count, EO_FP32_ELEMENTS_MAX);
    EO_REQUIRE(log, !params->fp32 || (!params->joined && !params->float8_gather), "parameter '%s' is fp32, and so it cannot be %s; "
               "leave one of them out", parameter.name, params->joined ? "joined" : "gathered in float8");
    EO_REQUIRE(log, !params->joined || may_be_joined(model, params->layer, params->frozen),
               "parameter '%s' is joined, but no parameter with a multiple of %d elements, without padding and fp32, comes before it in "
               "its layer", parameter.name, EO_LAYOUT_UNIT);
    EO_TRY(grow((void **)&model->parameters, &model->parameter_capacity, model->parameter_count,
                sizeof(parameter)));
    EO_TRY(take_name(&model->log, &model->parameter_names, model->parameters, sizeof(parameter), parameter.name, "parameters"));
    parameter.dim_count = params->dim_count;
    parameter.element_count = count;
    parameter.padding = params->padding;
    parameter.index = model->layers[params->layer].parameter_count++;
    model->layers[params->layer].frozen_count += params->frozen;
    model->parameters[model->parameter_count] = parameter;
    model->element_count += count;
    if (out)
        *out = model->parameter_count;
    model->parameter_count++;
    return EO_OK;
}

eo_status eo_model_add_position(eo_model *model, const eo_position_params *params, uint32_t *out)
{
    if (!model || !params)
        return EO_ERR_INVALID;
    const eo_log *log = &model->log;
    EO_REQUIRE(log, params->layer < model->layer_count, "position %u names layer %u, but the model has %u",
               model->position_count, params->layer, model->layer_count);
    EO_REQUIRE(log, model->position_count < POSITIONS_MAX, "more than %d positions", POSITIONS_MAX);
    const struct model_layer *layer = &model->layers[params->layer];
    struct model_position position = {
        .layer = params->layer,
        .forward_in_backward = params->forward_in_backward,
        .backward_without_weights = params->backward_without_weights,
        .adds_gradients = params->adds_gradients,
    };
    EO_TRY(copy_name(log, position.name, params->name ? params->name : layer->name, "position"));
    EO_REQUIRE(log, !(params->forward_in_backward && params->backward_without_weights),
               "position '%s': its forward runs in backward, so backward needs its weights", position.name);
    EO_REQUIRE(log, params->parameters || params->parameter_count == 0,
               "position '%s' has parameter_count %u and no parameters", position.name, params->parameter_count);
    for (uint32_t i = 0; i < params->parameter_count; i++)
        EO_REQUIRE(log,
                   params->parameters[i] < model->parameter_count &&
                       model->parameters[params->parameters[i]].layer == params->layer,
                   "position '%s' gives a gradient to parameter %u, not one of layer '%s'", position.name,
                   params->parameters[i], layer->name);
    for (uint32_t i = 0; i < params->parameter_count; i++)
        EO_REQUIRE(log, !model->parameters[params->parameters[i]].frozen, "position '%s' gives a gradient to parameter '%s', "
                   "which is frozen", position.name, model->parameters[params->parameters[i]].name);
    EO_TRY(grow((void **)&model->positions, &model->position_capacity, model->position_count, sizeof(position)));
    if (params->parameters) {
        position.parameters = malloc((params->parameter_count + 1) * sizeof(uint32_t));
        if (!position.parameters)
            return EO_ERR_NO_MEMORY;
        memcpy(position.parameters, params->parameters, params->parameter_count * sizeof(uint32_t));
        position.parameter_count = params->parameter_count;
    }
    model->positions[model->position_count] = position;
    if (out)
        *out = model->position_count;
    model->position_count++;
    return EO_OK;
}

/* Positions may be added after the buffers that name them, so their range is checked when planning. */
eo_status eo_model_add_buffer(eo_model *model, const eo_buffer_params *params, uint32_t *out)
{
    if (!model || !params)
        return EO_ERR_INVALID;
    const eo_log *log = &model->log;
    struct model_buffer buffer = {
        .bytes = params->bytes,
        .category = params->category,
        .first = params->first,
        .last = params->last,
        .persistent = params->persistent,
        .saved = params->saved,
    };
    EO_TRY(copy_name(log, buffer.name, params->name, "buffer"));
    EO_REQUIRE(log, params->bytes >= 1 && params->bytes <= BUFFER_BYTES_MAX,
               "buffer '%s' has %llu bytes; 1 to 2^46 are possible", buffer.name, (unsigned long long)params->bytes);
    EO_REQUIRE(log, params->category >= EO_CATEGORY_ACTIVATION && params->category < EO_CATEGORY_COUNT,
               "buffer '%s' has category %d; trainers' buffers are activations, scratch, head or other", buffer.name,
               (int)params->category);
    EO_REQUIRE(log, !params->persistent || !params->saved,
               "buffer '%s' is persistent and saved: one keeps it in memory, the other lets it leave; leave one of them out",
               buffer.name);
    EO_REQUIRE(log, model->buffer_count < BUFFERS_MAX, "more than %d buffers", BUFFERS_MAX);
    EO_TRY(grow((void **)&model->buffers, &model->buffer_capacity, model->buffer_count, sizeof(buffer)));
    EO_TRY(take_name(&model->log, &model->buffer_names, model->buffers, sizeof(buffer), buffer.name, "buffers"));
    model->buffers[model->buffer_count] = buffer;
    if (out)
        *out = model->buffer_count;
    model->buffer_count++;
    return EO_OK;
}

uint32_t eo_model_layer_count(const eo_model *model)
{
    return model ? model->layer_count : 0;
}

uint32_t eo_model_position_count(const eo_model *model)
{
    return model ? model->position_count : 0;
}

uint32_t eo_model_parameter_count(const eo_model *model)
{
    return model ? model->parameter_count : 0;
}

uint64_t eo_model_element_count(const eo_model *model)
{
    return model ? model->element_count : 0;
}

const char *eo_model_position_name(const eo_model *model, uint32_t position)
{
    return model && position < model->position_count ? model->positions[position].name : "none";
}

const char *eo_model_layer_name(const eo_model *model, uint32_t layer)
{
    return model && layer < model->layer_count ? model->layers[layer].name : "none";
}

eo_status eo_model_find_parameter(const eo_model *model, const char *name, uint32_t *out)
{
    if (!model || !name || !out)
        return EO_ERR_INVALID;
    const uint32_t slot =
        model->parameter_count ? *name_slot(&model->parameter_names, model->parameters, sizeof(*model->parameters), name) : 0;
    if (slot) {
        *out = slot - 1;
        return EO_OK;
    }
    eo_log_write(&model->log, EO_LOG_ERROR, "model '%s' has no parameter '%s'", model->name, name);
    return EO_ERR_INVALID;
}

eo_status eo_model_parameter_sized(const eo_model *model, uint32_t parameter, eo_parameter_info *out, size_t out_bytes)
{
    if (!model || !out || parameter >= model->parameter_count)
        return EO_ERR_INVALID;
    const struct model_parameter *p = &model->parameters[parameter];
    eo_parameter_info info = {
        .name = p->name,
        .layer = p->layer,
        .dim_count = p->dim_count,
        .element_count = p->element_count,
        .padding = p->padding,
        .no_weight_decay = p->no_weight_decay,
        .float8_gather = p->float8_gather,
        .group = p->group,
        .fp32 = p->fp32,
        .frozen = model->layers[p->layer].frozen || p->frozen,
    };
    memcpy(info.dims, p->dims, sizeof(info.dims));
    eo_give_sized(out, out_bytes, &info, sizeof(info));
    return EO_OK;
}
