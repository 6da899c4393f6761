/* SPDX-License-Identifier: MIT
 *
 * Layers with the layout of their parameters, edges, positions, and the order of updates.
 */
#include "runtime/plan/tables/tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/mxfp8.h"
#include "runtime/plan/optimizers.h"

static uint32_t find_group(struct eo_plan *plan, const struct model_parameter *parameter)
{
    const bool matrix = parameter->matrix && plan->params.optimizer == EO_OPTIMIZER_MUON;
    const bool fp32 = parameter->fp32 && plan->params.dtype == EO_DTYPE_BF16;
    uint32_t g = 0;
    while (g < plan->group_count &&
           (plan->groups[g].group != parameter->group || plan->groups[g].no_weight_decay != parameter->no_weight_decay ||
            plan->groups[g].matrix != matrix || plan->groups[g].fp32 != fp32))
        g++;
    if (g == plan->group_count)
        plan->groups[plan->group_count++] = (struct plan_group){parameter->group, parameter->no_weight_decay, matrix, fp32};
    if (parameter->group >= plan->trainer_group_count)
        plan->trainer_group_count = parameter->group + 1;
    return g;
}

static bool is_mixed(const struct model_layer *layer)
{
    return !layer->frozen && layer->frozen_count > 0 && layer->frozen_count < layer->parameter_count;
}

/* The trainer's layers, then the frozen parts of those that are mixed. */
static void make_layer_table(struct eo_plan *plan, const struct eo_model *model)
{
    plan->layer_count = plan->trainer_layer_count = model->layer_count;
    for (uint32_t l = 0; l < model->layer_count; l++) {
        const struct model_layer *from = &model->layers[l];
        struct plan_layer *layer = &plan->layers[l];
        *layer = (struct plan_layer){.frozen = from->frozen || from->frozen_count == from->parameter_count,
                                     .parts = from->parts,
                                     .view_count = from->parameter_count,
                                     .frozen_part = EO_NONE,
                                     .part_of = EO_NONE,
                                     .parameter_count = from->parameter_count};
        memcpy(layer->name, from->name, EO_NAME_MAX);
        if (!is_mixed(from))
            continue;
        layer->frozen_part = plan->layer_count++;
        layer->parameter_count -= from->frozen_count;
        struct plan_layer *part = &plan->layers[layer->frozen_part];
        *part = (struct plan_layer){.frozen = true,
                                    .parts = from->parts,
                                    .view_count = from->parameter_count,
                                    .frozen_part = EO_NONE,
                                    .part_of = l,
                                    .parameter_count = from->frozen_count};
        memcpy(part->name, from->name, EO_NAME_MAX); /* rows of one name are numbered */
    }
    for (uint32_t l = 0, begin = 0; l < plan->layer_count; l++) {
        plan->layers[l].parameter_begin = begin;
        begin += plan->layers[l].parameter_count;
    }
}

static void make_parameter_table(struct eo_plan *plan, const struct eo_model *model, uint64_t *counts, uint32_t *filled)
{
    for (uint32_t p = 0; p < model->parameter_count; p++) {
        const struct model_parameter *from = &model->parameters[p];
        const uint32_t part = plan->layers[from->layer].frozen_part, l = from->frozen && part != EO_NONE ? part : from->layer;
        const uint32_t index = plan->layers[l].parameter_begin + filled[l]++;
        struct plan_parameter *to = &plan->parameters[index];
        memcpy(to->name, from->name, EO_NAME_MAX);
        memcpy(to->dims, from->dims, sizeof(to->dims));
        to->layer = l;
        to->model_index = p;
        to->view_index = from->index;
        to->dim_count = from->dim_count;
        to->element_count = from->element_count;
        to->group = find_group(plan, from);
        to->float8_gather = from->float8_gather;
        to->joined = from->joined;
        plan->parameter_of_model[p] = index;
        counts[index] = to->room = from->element_count + from->padding;
        to->fp32 = plan->groups[to->group].fp32;
        plan->layers[l].has_fp32 = plan->layers[l].has_fp32 || to->fp32;
        plan->element_count += from->element_count;
    }
}

/* So that a parameter, or several that are joined, begin and end with blocks of state. Within one a run of one group may not
 * end. */
static eo_status pad_to_state_blocks(const struct eo_plan *plan, const struct plan_layer *layer, uint64_t *counts)
{
    const uint32_t block = eo_plan_optimizer(plan->params.optimizer)->block_elements;
    uint64_t end = 0;
    for (uint32_t k = 0; k < layer->parameter_count && !layer->frozen && block > 1; k++) {
        const struct plan_parameter *parameter = &plan->parameters[layer->parameter_begin + k];
        end = parameter->joined ? end : 0;
        EO_REQUIRE(
            &plan->log, end % block == 0 || parameter->group == parameter[-1].group,
            "parameter '%s' is joined to '%s' of another group, within a block of %u elements of optimizer %s; give them one "
            "group, or a multiple of %u elements",
            parameter->name, parameter[-1].name, block, eo_optimizer_name(plan->params.optimizer), block);
        end += counts[layer->parameter_begin + k];
        if (end > UINT64_MAX - block || (k + 1 < layer->parameter_count && parameter[1].joined))
            continue; /* too large: the layout says so */
        counts[layer->parameter_begin + k] += eo_align_up(end, block) - end;
    }
    return EO_OK;
}

/* And a frozen one with blocks of MXFP8. A shard is a multiple of them, for it is one of 64 bytes of bf16. */
static eo_status pad_to_mxfp8_blocks(const struct eo_plan *plan, const struct plan_layer *layer, uint64_t *counts)
{
    for (uint32_t k = layer->parameter_begin; k < layer->parameter_begin + layer->parameter_count; k++) {
        const bool is_before_joined = k + 1 < layer->parameter_begin + layer->parameter_count && plan->parameters[k + 1].joined;
        EO_REQUIRE(&plan->log, !is_before_joined || counts[k] % EO_MXFP8_BLOCK == 0,
                   "parameter '%s' has no multiple of %d elements, but another is joined to it: with float8_frozen it would begin within "
                   "a block; leave joined out", plan->parameters[k].name, EO_MXFP8_BLOCK);
        if (counts[k] <= UINT64_MAX - EO_MXFP8_BLOCK)
            counts[k] = eo_align_up(counts[k], EO_MXFP8_BLOCK);
    }
    return EO_OK;
}

static eo_status pad_to_blocks(const struct eo_plan *plan, const struct plan_layer *layer, uint64_t *counts)
{
    return eo_plan_is_float8_frozen(plan, layer) ? pad_to_mxfp8_blocks(plan, layer, counts) : pad_to_state_blocks(plan, layer, counts);
}

/* Floats in the place of bf16. */
static void double_fp32(struct eo_plan *plan, const struct plan_layer *layer, uint64_t *counts, bool *whole)
{
    for (uint32_t k = layer->parameter_begin; k < layer->parameter_begin + layer->parameter_count; k++) {
        whole[k] = plan->parameters[k].fp32;
        counts[k] *= whole[k] ? 2 : 1;
        plan->parameters[k].room *= whole[k] ? 2 : 1;
    }
}

static eo_status place_parameters(struct eo_plan *plan, uint64_t *counts, bool *whole, uint64_t *offsets)
{
    const uint32_t block = eo_plan_optimizer(plan->params.optimizer)->block_elements; /* in bf16 of 2 bytes */
    const uint32_t align_bytes = (uint32_t)eo_max_u64(plan->params.align_bytes, block * sizeof(uint16_t));
    EO_TRY(eo_plan_check_parts(plan));
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        struct plan_layer *layer = &plan->layers[l];
        EO_TRY(pad_to_blocks(plan, layer, counts));
        double_fp32(plan, layer, counts, whole);
        const eo_status status =
            eo_layout_compute(&layer->layout, &offsets[layer->parameter_begin], &counts[layer->parameter_begin],
                              &whole[layer->parameter_begin], layer->parameter_count, eo_plan_layer_ranks(plan, layer),
                              align_bytes);
        if (status == EO_ERR_INVALID)
            eo_log_write(&plan->log, EO_LOG_ERROR, "layer '%s' is too large", layer->name);
        EO_TRY(status);
        EO_REQUIRE(&plan->log, layer->layout.padded_count <= EO_LAYER_ELEMENTS_MAX,
                   "layer '%s' has %llu elements with its padding; at most 2^47 are possible", layer->name,
                   (unsigned long long)layer->layout.padded_count);
        EO_REQUIRE(
            &plan->log, !plan->params.float8_gather || layer->part_of == EO_NONE,
            "layer '%s' has frozen parameters beside trainable ones, which float8_gather cannot gather yet; leave it out",
            layer->name);
        for (uint32_t p = 0; p < layer->parameter_count; p++)
            plan->parameters[layer->parameter_begin + p].offset = offsets[layer->parameter_begin + p];
    }
    return EO_OK;
}

eo_status eo_plan_make_layers(struct eo_plan *plan, const struct eo_model *model)
{
    plan->parameter_count = model->parameter_count;
    plan->layers = calloc(2 * (size_t)model->layer_count, sizeof(*plan->layers));
    plan->parameters = calloc(model->parameter_count, sizeof(*plan->parameters));
    plan->parameter_of_model = calloc(model->parameter_count, sizeof(*plan->parameter_of_model));
    plan->groups = calloc(8 * EO_GROUPS_MAX, sizeof(*plan->groups));
    uint64_t *counts = calloc(model->parameter_count, sizeof(*counts));
    uint64_t *offsets = calloc(model->parameter_count, sizeof(*offsets));
    uint32_t *filled = calloc(2 * (size_t)model->layer_count, sizeof(*filled));
    bool *whole = calloc(model->parameter_count, sizeof(*whole));
    eo_status status = EO_ERR_NO_MEMORY;
    if (plan->layers && plan->parameters && plan->parameter_of_model && plan->groups && counts && offsets && filled && whole) {
        make_layer_table(plan, model);
        make_parameter_table(plan, model, counts, filled);
        status = place_parameters(plan, counts, whole, offsets);
    }
    free(counts);
    free(offsets);
    free(filled);
    free(whole);
    return status;
}

/*
 * Embedding and head, when larger than what lies between them, must not decide the size of the slots. When far smaller,
 * rows of their own cost next to nothing, and in a slot they would drive out a body layer that backward reads next: one
 * more gather of it in each micro-batch, just at the turn, where nothing hides it.
 */
void eo_plan_find_edges(struct eo_plan *plan, const struct eo_model *model)
{
    enum { SMALL_SHARE = 8 }; /* of a body layer */
    const uint32_t ends[2] = {model->positions[0].layer, model->positions[model->position_count - 1].layer};
    uint64_t body = 0;
    for (uint32_t l = 0; l < plan->layer_count; l++)
        if (l != ends[0] && l != ends[1] && plan->layers[l].part_of == EO_NONE)
            body = eo_max_u64(body, plan->layers[l].layout.padded_count);
    for (int e = 0; e < 2; e++) {
        const uint64_t count = plan->layers[ends[e]].layout.padded_count;
        plan->layers[ends[e]].edge = body > 0 && (count > body || count <= body / SMALL_SHARE);
    }
}

/* From a position itself, or from those that it adds to. */
static bool gets_gradient(const struct eo_plan *plan, const struct eo_model *model, uint32_t p, uint32_t parameter)
{
    for (; p != EO_NONE; p = plan->positions[p].adds_to) {
        const struct model_position *from = &model->positions[p];
        if (!from->parameters)
            return true;
        for (uint32_t i = 0; i < from->parameter_count; i++)
            if (from->parameters[i] == parameter)
                return true;
    }
    return false;
}

/* Everything no gradient goes to: the runtime zeroes it before the gradients of a position are written. */
static void add_zero_ranges(struct eo_plan *plan, const struct eo_model *model, uint32_t p)
{
    struct plan_position *position = &plan->positions[p];
    const struct plan_layer *layer = &plan->layers[position->layer];
    position->zero_begin = plan->zero_count;
    uint64_t written_end = 0;
    for (uint32_t k = 0; k <= layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &plan->parameters[layer->parameter_begin + k];
        const bool end = k == layer->parameter_count;
        if (!end && !gets_gradient(plan, model, p, parameter->model_index))
            continue;
        const uint64_t begin = end ? layer->layout.padded_count : parameter->offset;
        if (begin > written_end)
            plan->zero_ranges[plan->zero_count++] = (struct plan_range){written_end, begin - written_end};
        if (!end)
            written_end = parameter->offset + parameter->element_count;
    }
    position->zero_count = plan->zero_count - position->zero_begin;
}

eo_status eo_plan_make_positions(struct eo_plan *plan, const struct eo_model *model)
{
    plan->position_count = model->position_count;
    plan->positions = calloc(model->position_count, sizeof(*plan->positions));
    uint64_t zero_capacity = 0;
    for (uint32_t p = 0; p < model->position_count; p++)
        zero_capacity += plan->layers[model->positions[p].layer].parameter_count + 1;
    plan->zero_ranges = calloc(zero_capacity, sizeof(*plan->zero_ranges));
    if (!plan->positions || !plan->zero_ranges)
        return EO_ERR_NO_MEMORY;
    for (uint32_t p = model->position_count; p-- > 0;) { /* backward order, so that uses count as gradients come */
        const struct model_position *from = &model->positions[p];
        struct plan_position *to = &plan->positions[p];
        struct plan_layer *layer = &plan->layers[from->layer];
        memcpy(to->name, from->name, EO_NAME_MAX);
        to->layer = from->layer;
        to->forward_in_backward = from->forward_in_backward;
        to->backward_without_weights = from->backward_without_weights;
        const bool adds = from->adds_gradients && !layer->frozen;
        to->adds_to = adds && !plan->params.gradients_apart ? layer->first_position : EO_NONE;
        to->adds_to_zeros = adds && plan->params.gradients_apart;
        to->contributes = true;
        if (to->adds_to != EO_NONE)
            plan->positions[to->adds_to].contributes = false;
        else
            layer->contribution_count++;
        to->contribution = layer->contribution_count - 1;
        layer->use_count++;
        layer->first_position = p;
        if (layer->frozen_part != EO_NONE)
            plan->layers[layer->frozen_part].first_position = p;
        add_zero_ranges(plan, model, p);
    }
    return EO_OK;
}

/* Updates go in the order of the first uses, so that the first gathers of the next step can begin; the last updates have
 * most time to be fetched for. */
eo_status eo_plan_make_updates(struct eo_plan *plan)
{
    plan->updates = calloc(plan->layer_count + 1, sizeof(*plan->updates));
    if (!plan->updates)
        return EO_ERR_NO_MEMORY;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const uint32_t l = plan->positions[p].layer;
        if (plan->layers[l].first_position == p && !plan->layers[l].frozen)
            plan->updates[plan->update_count++] = l;
    }
    const uint32_t offloaded = (uint32_t)eo_min_u64(plan->params.offload_layers, plan->update_count);
    plan->offload_begin = plan->update_count - offloaded;
    for (uint32_t l = 0; l < plan->layer_count; l++)
        plan->layers[l].disk_row = plan->layers[l].offload_row = plan->layers[l].disk_gradient_row = EO_NONE;
    return EO_OK;
}
