/* SPDX-License-Identifier: MIT
 *
 * From the model to tables: layout of layers, which of them are edges, and every row of the memory map.
 */
#include "runtime/plan/internal.h"
#include "runtime/plan/optimizers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"

static eo_status add_row(struct eo_plan *plan, uint32_t *out, eo_category category, eo_space space, uint64_t bytes,
                         bool always_live, const char *format, ...) EO_PRINTF(7, 8);

static eo_status add_row(struct eo_plan *plan, uint32_t *out, eo_category category, eo_space space, uint64_t bytes,
                         bool always_live, const char *format, ...)
{
    if (plan->row_count == plan->row_capacity) {
        const uint32_t larger = plan->row_capacity ? plan->row_capacity * 2 : 256;
        struct plan_row *moved = realloc(plan->rows, larger * sizeof(*moved));
        if (!moved)
            return EO_ERR_NO_MEMORY;
        plan->rows = moved;
        plan->row_capacity = larger;
    }
    struct plan_row *row = &plan->rows[plan->row_count];
    *row = (struct plan_row){
        .category = category,
        .space = space,
        .bytes = bytes,
        .always_live = always_live,
        .first_operation = EO_NONE,
        .last_operation = EO_NONE,
    };
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(row->name, sizeof(row->name), format, arguments);
    va_end(arguments);
    *out = plan->row_count++;
    return EO_OK;
}

static eo_status check_model(const struct eo_plan *plan, const struct eo_model *model)
{
    const eo_log *log = &plan->log;
    EO_REQUIRE(log, model->layer_count > 0, "model '%s' has no layers", model->name);
    EO_REQUIRE(log, model->position_count > 0, "model '%s' has no positions, so nothing would run", model->name);
    for (uint32_t l = 0; l < model->layer_count; l++) {
        EO_REQUIRE(log, model->layers[l].parameter_count > 0, "layer '%s' has no parameters", model->layers[l].name);
        uint32_t uses = 0;
        for (uint32_t p = 0; p < model->position_count; p++)
            uses += model->positions[p].layer == l;
        EO_REQUIRE(log, uses > 0, "layer '%s' has no position, so nothing would use it", model->layers[l].name);
    }
    for (uint32_t b = 0; b < model->buffer_count; b++) {
        const struct model_buffer *buffer = &model->buffers[b];
        if (buffer->persistent)
            continue;
        const eo_moment ends[2] = {buffer->first, buffer->last};
        for (int e = 0; e < 2; e++) {
            EO_REQUIRE(log, (unsigned)ends[e].pass <= EO_PASS_BACKWARD, "buffer '%s' names pass %d; passes are forward, "
                       "recompute and backward", buffer->name, (int)ends[e].pass);
            EO_REQUIRE(log, ends[e].position < model->position_count,
                       "buffer '%s' names position %u, but the model has %u", buffer->name, ends[e].position,
                       model->position_count);
            EO_REQUIRE(log,
                       ends[e].pass != EO_PASS_FORWARD || !model->positions[ends[e].position].forward_in_backward,
                       "buffer '%s' names the forward pass of '%s', but it runs in its backward pass", buffer->name,
                       model->positions[ends[e].position].name);
        }
        EO_REQUIRE(log,
                   eo_moment_order(buffer->first, model->position_count) <=
                       eo_moment_order(buffer->last, model->position_count),
                   "buffer '%s' ends before it begins", buffer->name);
        EO_REQUIRE(log,
                   !buffer->saved || (buffer->first.pass == EO_PASS_FORWARD && buffer->last.pass != EO_PASS_FORWARD &&
                                      buffer->first.position == buffer->last.position),
                   "buffer '%s' is saved, but lives from elsewhere than the forward to the backward pass of one position",
                   buffer->name);
    }
    return EO_OK;
}

static uint32_t find_group(struct eo_plan *plan, const struct model_parameter *parameter)
{
    const bool matrix = parameter->matrix && plan->params.optimizer == EO_OPTIMIZER_MUON;
    uint32_t g = 0;
    while (g < plan->group_count &&
           (plan->groups[g].group != parameter->group || plan->groups[g].no_weight_decay != parameter->no_weight_decay ||
            plan->groups[g].matrix != matrix))
        g++;
    if (g == plan->group_count)
        plan->groups[plan->group_count++] = (struct plan_group){parameter->group, parameter->no_weight_decay, matrix};
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
    plan->layer_count = model->layer_count;
    for (uint32_t l = 0; l < model->layer_count; l++) {
        const struct model_layer *from = &model->layers[l];
        struct plan_layer *layer = &plan->layers[l];
        *layer = (struct plan_layer){.frozen = from->frozen || from->frozen_count == from->parameter_count, .parts = from->parts,
                                     .view_count = from->parameter_count, .frozen_part = EO_NONE, .part_of = EO_NONE,
                                     .parameter_count = from->parameter_count};
        memcpy(layer->name, from->name, EO_NAME_MAX);
        if (!is_mixed(from))
            continue;
        layer->frozen_part = plan->layer_count++;
        layer->parameter_count -= from->frozen_count;
        struct plan_layer *part = &plan->layers[layer->frozen_part];
        *part = (struct plan_layer){.frozen = true, .parts = from->parts, .view_count = from->parameter_count, .frozen_part = EO_NONE, .part_of = l,
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
        plan->element_count += from->element_count;
    }
}

/* So that a parameter, or several that are joined, begin and end with blocks of state. Within one a run of one group may not end. */
static eo_status pad_to_blocks(const struct eo_plan *plan, const struct plan_layer *layer, uint64_t *counts)
{
    const uint32_t block = eo_plan_optimizer(plan->params.optimizer)->block_elements;
    uint64_t end = 0;
    for (uint32_t k = 0; k < layer->parameter_count && !layer->frozen && block > 1; k++) {
        const struct plan_parameter *parameter = &plan->parameters[layer->parameter_begin + k];
        end = parameter->joined ? end : 0;
        EO_REQUIRE(&plan->log, end % block == 0 || parameter->group == parameter[-1].group,
                   "parameter '%s' is joined to '%s' of another group, within a block of %u elements of optimizer %s; give them one "
                   "group, or a multiple of %u elements", parameter->name, parameter[-1].name, block,
                   eo_optimizer_name(plan->params.optimizer), block);
        end += counts[layer->parameter_begin + k];
        if (end > UINT64_MAX - block || (k + 1 < layer->parameter_count && parameter[1].joined))
            continue; /* too large: the layout says so */
        counts[layer->parameter_begin + k] += eo_align_up(end, block) - end;
    }
    return EO_OK;
}

static eo_status place_parameters(struct eo_plan *plan, uint64_t *counts, uint64_t *offsets)
{
    const uint32_t block = eo_plan_optimizer(plan->params.optimizer)->block_elements; /* in bf16 of 2 bytes */
    const uint32_t align_bytes = (uint32_t)eo_max_u64(plan->params.align_bytes, block * sizeof(uint16_t));
    EO_TRY(eo_plan_check_parts(plan));
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        struct plan_layer *layer = &plan->layers[l];
        EO_TRY(pad_to_blocks(plan, layer, counts));
        const eo_status status =
            eo_layout_compute(&layer->layout, &offsets[layer->parameter_begin], &counts[layer->parameter_begin],
                              layer->parameter_count, eo_plan_layer_ranks(plan, layer), align_bytes);
        if (status == EO_ERR_INVALID)
            eo_log_write(&plan->log, EO_LOG_ERROR, "layer '%s' is too large", layer->name);
        EO_TRY(status);
        EO_REQUIRE(&plan->log, !plan->params.float8_gather || layer->part_of == EO_NONE,
                   "layer '%s' has frozen parameters beside trainable ones, which float8_gather cannot gather yet; leave it out",
                   layer->name);
        for (uint32_t p = 0; p < layer->parameter_count; p++)
            plan->parameters[layer->parameter_begin + p].offset = offsets[layer->parameter_begin + p];
    }
    return EO_OK;
}

static eo_status make_layers(struct eo_plan *plan, const struct eo_model *model)
{
    plan->parameter_count = model->parameter_count;
    plan->layers = calloc(2 * (size_t)model->layer_count, sizeof(*plan->layers));
    plan->parameters = calloc(model->parameter_count, sizeof(*plan->parameters));
    plan->parameter_of_model = calloc(model->parameter_count, sizeof(*plan->parameter_of_model));
    plan->groups = calloc(4 * EO_GROUPS_MAX, sizeof(*plan->groups));
    uint64_t *counts = calloc(model->parameter_count, sizeof(*counts));
    uint64_t *offsets = calloc(model->parameter_count, sizeof(*offsets));
    uint32_t *filled = calloc(2 * (size_t)model->layer_count, sizeof(*filled));
    eo_status status = EO_ERR_NO_MEMORY;
    if (plan->layers && plan->parameters && plan->parameter_of_model && plan->groups && counts && offsets && filled) {
        make_layer_table(plan, model);
        make_parameter_table(plan, model, counts, filled);
        status = place_parameters(plan, counts, offsets);
    }
    free(counts);
    free(offsets);
    free(filled);
    return status;
}

/*
 * Embedding and head, when larger than what lies between them, must not decide the size of the slots. When far smaller,
 * rows of their own cost next to nothing, and in a slot they would drive out a body layer that backward reads next: one
 * more gather of it in each micro-batch, just at the turn, where nothing hides it.
 */
static void find_edges(struct eo_plan *plan, const struct eo_model *model)
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

/* What the runtime zeroes before the gradients of a position are written: everything no gradient goes to. */
static void add_zero_ranges(struct eo_plan *plan, struct plan_position *position, const struct model_position *from)
{
    const struct plan_layer *layer = &plan->layers[position->layer];
    position->zero_begin = plan->zero_count;
    uint64_t written_end = 0;
    for (uint32_t k = 0; k <= layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &plan->parameters[layer->parameter_begin + k];
        const bool end = k == layer->parameter_count;
        bool gets_gradient = end || !from->parameters;
        for (uint32_t i = 0; !gets_gradient && i < from->parameter_count; i++)
            gets_gradient = from->parameters[i] == parameter->model_index;
        if (!gets_gradient)
            continue;
        const uint64_t begin = end ? layer->layout.padded_count : parameter->offset;
        if (begin > written_end)
            plan->zero_ranges[plan->zero_count++] = (struct plan_range){written_end, begin - written_end};
        if (!end)
            written_end = parameter->offset + parameter->element_count;
    }
    position->zero_count = plan->zero_count - position->zero_begin;
}

static eo_status make_positions(struct eo_plan *plan, const struct eo_model *model)
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
        to->use = layer->use_count++;
        layer->first_position = p;
        if (layer->frozen_part != EO_NONE)
            plan->layers[layer->frozen_part].first_position = p;
        add_zero_ranges(plan, to, from);
    }
    return EO_OK;
}

/* Updates go in the order of the first uses, so that the first gathers of the next step can begin; the last updates have
 * most time to be fetched for. */
static eo_status make_updates(struct eo_plan *plan)
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

/* In the order of updates; at least update_count: not offloaded. */
static uint32_t offloaded_place(const struct eo_plan *plan, uint32_t l)
{
    uint32_t u = plan->offload_begin;
    while (u < plan->update_count && plan->updates[u] != l)
        u++;
    return u;
}

static bool is_offloaded(const struct eo_plan *plan, uint32_t l)
{
    return offloaded_place(plan, l) < plan->update_count;
}

/* The first fetches come before their gradients are there. With replicas, a gradient that was reduced in place goes two ways
 * to its norm, too far for a row that others wait for. */
static bool offloads_gradient(const struct eo_plan *plan, uint32_t l)
{
    const bool one_way = plan->replicas == 1 || plan->params.reduce_dtype == EO_DTYPE_FP32;
    return plan->params.offload_gradients && plan->params.micro_batches == 1 && plan->layers[l].use_count == 1 && one_way &&
           is_offloaded(plan, l) && offloaded_place(plan, l) >= plan->offload_begin + plan->params.offload_slots;
}

/* Of a layer in a buffer. */
static uint64_t offload_bytes(const struct eo_plan *plan, uint32_t l)
{
    const struct plan_layer *layer = &plan->layers[l];
    return eo_plan_offload_offset(plan, layer, plan->state_count) +
           (offloads_gradient(plan, l) ? eo_align_up(layer->layout.shard_count * sizeof(float), EO_DISK_ALIGN) : 0);
}

uint64_t eo_plan_state_bytes(const struct eo_plan *plan, uint32_t state, uint64_t count)
{
    const eo_optimizer own = state == plan->ema_state ? EO_OPTIMIZER_ADAMW : plan->params.optimizer; /* the average is fp32 */
    return eo_plan_state_words(own, count) * sizeof(float);
}

uint64_t eo_plan_offload_offset(const struct eo_plan *plan, const struct plan_layer *layer, uint32_t state)
{
    const uint64_t count = layer->layout.shard_count;
    uint64_t offset = plan->params.dtype == EO_DTYPE_BF16 ? eo_align_up(count * sizeof(int16_t), EO_DISK_ALIGN) : 0;
    for (uint32_t k = 0; k < state; k++)
        offset += eo_align_up(eo_plan_state_bytes(plan, k, count), EO_DISK_ALIGN);
    return offset;
}

/* Buffers, each as large as the largest layer that passes through it, with room to begin where the disk wants it to. They
 * live as long as the run: nothing of a step waits for the last evictions. */
static eo_status make_offload_rows(struct eo_plan *plan)
{
    const uint32_t slots = plan->params.offload_slots;
    for (uint32_t s = 0; s < slots && plan->offload_begin + s < plan->update_count; s++) {
        uint64_t bytes = 0;
        for (uint32_t u = plan->offload_begin + s; u < plan->update_count; u += slots)
            bytes = eo_max_u64(bytes, offload_bytes(plan, plan->updates[u]));
        uint32_t row;
        EO_TRY(add_row(plan, &row, EO_CATEGORY_OPTIMIZER, EO_SPACE_PRIVATE, bytes + EO_DISK_ALIGN, true, "offload.slot%u", s));
        for (uint32_t u = plan->offload_begin + s; u < plan->update_count; u += slots)
            plan->layers[plan->updates[u]].offload_row = row;
    }
    return EO_OK;
}

/* Offloaded gradients are reduced into two rows in turn, and leave from there. */
static eo_status make_gradient_slots(struct eo_plan *plan)
{
    enum { SLOTS = 2 };
    for (uint32_t s = 0; s < SLOTS; s++) {
        uint64_t count = 0;
        for (uint32_t u = plan->offload_begin + s; u < plan->update_count; u += SLOTS)
            if (offloads_gradient(plan, plan->updates[u]))
                count = eo_max_u64(count, plan->layers[plan->updates[u]].layout.shard_count);
        uint32_t row;
        if (count == 0)
            continue;
        EO_TRY(add_row(plan, &row, EO_CATEGORY_GRADIENT, EO_SPACE_GRADIENT,
                       eo_align_up(count * sizeof(float), EO_DISK_ALIGN) + EO_DISK_ALIGN, false, "gradient.offload%u", s));
        for (uint32_t u = plan->offload_begin + s; u < plan->update_count; u += SLOTS)
            if (offloads_gradient(plan, plan->updates[u]))
                plan->layers[plan->updates[u]].gradient_row = plan->layers[plan->updates[u]].sum_row = row;
    }
    return EO_OK;
}

static bool has_saved(const struct eo_model *model, uint32_t position)
{
    for (uint32_t b = 0; b < model->buffer_count; b++)
        if (model->buffers[b].saved && model->buffers[b].first.position == position)
            return true;
    return false;
}

/* Which positions' saved buffers leave after the forward pass. Those that are needed first stay in the slots. */
static void find_saved(struct eo_plan *plan, const struct eo_model *model)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < plan->position_count; p++)
        plan->positions[p].saved = count < plan->params.offload_activations && has_saved(model, p) ? count++ : EO_NONE;
    for (uint32_t p = 0; p < plan->position_count; p++)
        plan->positions[p].leaves = plan->positions[p].saved != EO_NONE && plan->positions[p].saved + EO_SAVED_SLOTS < count;
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        plan->buffers[b].disk_row = EO_NONE;
        plan->buffers[b].shared =
            model->buffers[b].saved && plan->positions[model->buffers[b].first.position].saved != EO_NONE;
    }
}

/* The bytes of a slot's buffer `place`: of positions whose buffer that is, the most. `row`, if not NULL, becomes theirs. */
static uint64_t saved_bytes(struct eo_plan *plan, const struct eo_model *model, uint32_t slot, uint32_t place, const uint32_t *row)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        uint32_t at = 0;
        for (uint32_t b = 0; plan->positions[p].saved != EO_NONE && plan->positions[p].saved % EO_SAVED_SLOTS == slot &&
                             b < plan->buffer_count; b++) {
            if (!plan->buffers[b].shared || model->buffers[b].first.position != p || at++ != place)
                continue;
            bytes = eo_max_u64(bytes, model->buffers[b].bytes);
            if (row)
                plan->buffers[b].row = *row;
        }
    }
    return bytes;
}

/* With room to begin where the disk wants it to. */
static eo_status make_saved_rows(struct eo_plan *plan, const struct eo_model *model)
{
    for (uint32_t slot = 0; slot < EO_SAVED_SLOTS; slot++)
        for (uint32_t place = 0;; place++) {
            const uint64_t bytes = saved_bytes(plan, model, slot, place, NULL);
            uint32_t row;
            if (bytes == 0)
                break;
            EO_TRY(add_row(plan, &row, EO_CATEGORY_ACTIVATION, EO_SPACE_PRIVATE, eo_align_up(bytes, EO_DISK_ALIGN) + EO_DISK_ALIGN,
                           false, "saved.slot%u.%u", slot, place));
            (void)saved_bytes(plan, model, slot, place, &row);
        }
    return EO_OK;
}

static eo_status make_disk_rows(struct eo_plan *plan, const struct eo_model *model)
{
    plan->disk_row_begin = plan->row_count;
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].shared && plan->positions[model->buffers[b].first.position].leaves)
            EO_TRY(add_row(plan, &plan->buffers[b].disk_row, EO_CATEGORY_ACTIVATION, EO_SPACE_DISK,
                           eo_align_up(model->buffers[b].bytes, EO_DISK_ALIGN), true, "disk.%s", model->buffers[b].name));
    for (uint32_t u = plan->offload_begin; u < plan->update_count; u++) {
        struct plan_layer *layer = &plan->layers[plan->updates[u]];
        EO_TRY(add_row(plan, &layer->disk_row, EO_CATEGORY_OPTIMIZER, EO_SPACE_DISK,
                       eo_plan_offload_offset(plan, layer, plan->state_count), true, "disk.%s", layer->name));
        if (offloads_gradient(plan, plan->updates[u]))
            EO_TRY(add_row(plan, &layer->disk_gradient_row, EO_CATEGORY_GRADIENT, EO_SPACE_DISK,
                           eo_align_up(layer->layout.shard_count * sizeof(float), EO_DISK_ALIGN), true, "disk.gradient.%s",
                           layer->name));
    }
    return EO_OK;
}

static eo_status make_shard_rows(struct eo_plan *plan)
{
    const bool split = plan->params.dtype == EO_DTYPE_BF16;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        struct plan_layer *layer = &plan->layers[l];
        const uint64_t count = layer->layout.shard_count;
        layer->master_row = layer->gradient_row = layer->sum_row = layer->norm_row = layer->narrow_row = EO_NONE;
        if (split) {
            EO_TRY(add_row(plan, &layer->shard_row, EO_CATEGORY_COMPUTE_SHARD, EO_SPACE_GATHER, count * 2, true,
                           "weights.high.%s", layer->name));
            /* Frozen weights never move, so there is no remainder to remember. */
            if (!layer->frozen && !is_offloaded(plan, l))
                EO_TRY(add_row(plan, &layer->master_row, EO_CATEGORY_MASTER, EO_SPACE_PRIVATE, count * 2, true,
                               "weights.low.%s", layer->name));
        } else {
            EO_TRY(add_row(plan, &layer->shard_row, EO_CATEGORY_MASTER, EO_SPACE_GATHER, count * 4, true,
                           "weights.%s", layer->name));
            layer->master_row = layer->shard_row;
        }
        /* Made once a step, and not once a gather: a conversion in place of two in each micro-batch, and no gather waits for
         * the compute stream. */
        if (layer->float8_gather)
            EO_TRY(add_row(plan, &layer->narrow_row, EO_CATEGORY_COMPUTE_SHARD, EO_SPACE_GATHER, layer->narrow_bytes, true,
                           "weights.float8.%s", layer->name));
        if (layer->frozen)
            continue;
        /* With one micro-batch a gradient lives from its reduction to its update: activations lie there before. */
        if (!offloads_gradient(plan, l))
            EO_TRY(add_row(plan, &layer->gradient_row, EO_CATEGORY_GRADIENT, EO_SPACE_GRADIENT, count * 4, false,
                           "gradient.%s", layer->name));
        layer->sum_row = layer->gradient_row;
        for (uint32_t k = 0; k < plan->state_count && !is_offloaded(plan, l); k++)
            EO_TRY(k == plan->ema_state
                       ? add_row(plan, &layer->state_rows[k], EO_CATEGORY_OPTIMIZER, EO_SPACE_PRIVATE,
                                 eo_plan_state_bytes(plan, k, count), true, "ema.%s", layer->name)
                       : add_row(plan, &layer->state_rows[k], EO_CATEGORY_OPTIMIZER, EO_SPACE_PRIVATE,
                                 eo_plan_state_bytes(plan, k, count), true, "state%u.%s", k, layer->name));
        EO_TRY(add_row(plan, &layer->norm_row, EO_CATEGORY_OTHER, EO_SPACE_PRIVATE, sizeof(double), true, "norm.%s",
                       layer->name));
    }
    return EO_OK;
}

/* With one rank a shard is the layer: there is nothing to gather, nor to reduce if it is written once a step. */
static void find_direct(struct eo_plan *plan, bool alone)
{
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct plan_position *position = &plan->positions[p];
        const struct plan_layer *layer = &plan->layers[position->layer];
        position->buffer_row = EO_NONE;
        if (alone)
            position->gather_row = position->narrow_row = layer->shard_row;
        position->direct = alone && !layer->frozen && layer->use_count == 1 && plan->params.micro_batches == 1 &&
                           plan->params.reduce_dtype == EO_DTYPE_FP32;
        if (position->direct)
            position->buffer_row = layer->gradient_row;
    }
}

/* Where gradients stay whole until the last contribution, a rank that keeps a part of them has a row for their sum. What
 * has one contribution a step is reduced from its buffer: there is nothing to add up. */
static eo_status make_sum_rows(struct eo_plan *plan)
{
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        struct plan_layer *layer = &plan->layers[l];
        const bool is_sum = layer->use_count * plan->params.micro_batches > 1;
        layer->whole = plan->whole_gradients && !layer->frozen && (is_sum || plan->params.shard_group == 1);
        if (layer->whole && plan->params.shard_group > 1)
            EO_TRY(add_row(plan, &layer->sum_row, EO_CATEGORY_GRADIENT, EO_SPACE_GRADIENT,
                           layer->layout.padded_count * sizeof(float), false, "sum.%s", layer->name));
    }
    return EO_OK;
}

/* Full weights that stay: a row a layer, whatever uses it. */
static eo_status make_resident_rows(struct eo_plan *plan)
{
    const uint64_t bytes = eo_dtype_bytes(plan->params.dtype);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct plan_position *position = &plan->positions[p];
        const struct plan_layer *layer = &plan->layers[position->layer];
        position->gather_row = plan->positions[layer->first_position].gather_row;
        if (layer->first_position == p)
            EO_TRY(add_row(plan, &position->gather_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER,
                           layer->layout.padded_count * bytes, true, "gather.%s", layer->name));
        position->narrow_row = position->gather_row;
    }
    return EO_OK;
}

/* What a gather of the layer brings; 0 where there is none, or where it lands in the weights that stay. */
static uint64_t gathered_bytes(const struct eo_plan *plan, const struct plan_layer *layer)
{
    if (layer->float8_gather)
        return layer->narrow_bytes * eo_plan_layer_ranks(plan, layer);
    return plan->params.shard_group == 1 || plan->resident ? 0
                                                           : layer->layout.padded_count * eo_dtype_bytes(plan->params.dtype);
}

/* Of a layer whose gather lands in `narrow_row`: widened weights have a row for all of the body, one for each edge. */
static eo_status place_gather(struct eo_plan *plan, struct plan_position *position, uint32_t narrow_row, uint32_t *body_row)
{
    const struct plan_layer *layer = &plan->layers[position->layer];
    position->narrow_row = narrow_row;
    if (!layer->float8_gather)
        position->gather_row = narrow_row;
    else if (!plan->resident && layer->edge)
        return add_row(plan, &position->gather_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER,
                       layer->layout.padded_count * sizeof(uint16_t), false, "gather.%s.widened", position->name);
    else if (!plan->resident)
        position->gather_row = *body_row;
    return EO_OK;
}

/* Slots for the body, as many for each as positions go in one collective, sized by the largest layer that uses each; rows of
 * their own for edges, one a position. */
static eo_status make_buffer_rows(struct eo_plan *plan)
{
    const bool alone = plan->params.shard_group == 1;
    const uint32_t gather_slots = plan->params.gather_slots * plan->params.gather_run;
    const uint32_t gradient_slots = plan->params.gradient_slots * plan->params.gradient_run;
    const uint64_t reduce_bytes = eo_dtype_bytes(plan->params.reduce_dtype);
    uint64_t gather_bytes[64] = {0}, gradient_count[64] = {0}, widened_count = 0;
    uint32_t gather_row[64], gradient_row[64], widened_row = EO_NONE;
    uint32_t body = 0;
    find_direct(plan, alone);
    if (plan->resident)
        EO_TRY(make_resident_rows(plan));
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct plan_layer *layer = &plan->layers[plan->positions[p].layer];
        plan->positions[p].body = layer->edge ? EO_NONE : body;
        if (layer->edge)
            continue;
        uint64_t *g = &gather_bytes[body % gather_slots], *d = &gradient_count[body % gradient_slots];
        *g = eo_max_u64(*g, gathered_bytes(plan, layer));
        if (layer->float8_gather && !plan->resident)
            widened_count = eo_max_u64(widened_count, layer->layout.padded_count);
        if (!layer->frozen && !plan->positions[p].direct)
            *d = eo_max_u64(*d, layer->layout.padded_count);
        body++;
    }
    for (uint32_t s = 0; s < gather_slots; s++)
        if (gather_bytes[s])
            EO_TRY(add_row(plan, &gather_row[s], EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, gather_bytes[s], false,
                           "gather.slot%u", s));
    if (widened_count)
        EO_TRY(add_row(plan, &widened_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, widened_count * sizeof(uint16_t), false,
                       "gather.widened"));
    for (uint32_t s = 0; s < gradient_slots; s++)
        if (gradient_count[s])
            EO_TRY(add_row(plan, &gradient_row[s], EO_CATEGORY_GRADIENT_BUFFER, EO_SPACE_GRADIENT,
                           gradient_count[s] * reduce_bytes, false, "gradient.slot%u", s));
    body = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct plan_position *position = &plan->positions[p];
        const struct plan_layer *layer = &plan->layers[position->layer];
        const bool buffered = !layer->frozen && !position->direct;
        const uint64_t bytes = gathered_bytes(plan, layer);
        if (layer->edge) {
            uint32_t row;
            if (bytes) {
                EO_TRY(add_row(plan, &row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, bytes, false, "gather.%s",
                               position->name));
                EO_TRY(place_gather(plan, position, row, NULL));
            }
            if (buffered)
                EO_TRY(add_row(plan, &position->buffer_row, EO_CATEGORY_GRADIENT_BUFFER, EO_SPACE_GRADIENT,
                               layer->layout.padded_count * reduce_bytes, false, "gradient.%s.buffer", position->name));
        } else {
            if (bytes)
                EO_TRY(place_gather(plan, position, gather_row[body % gather_slots], &widened_row));
            if (buffered)
                position->buffer_row = gradient_row[body % gradient_slots];
            body++;
        }
    }
    return EO_OK;
}

uint64_t eo_plan_scalars_bytes(const struct eo_plan *plan)
{
    return eo_align_up(sizeof(struct eo_update_scalars) + plan->group_count * sizeof(struct eo_group_scalars), 8);
}

uint64_t eo_plan_result_bytes(const struct eo_plan *plan)
{
    return eo_align_up(sizeof(struct eo_norm_result) + plan->group_count * sizeof(struct eo_group_result), 8);
}

/* Where the frozen part of a position's layer is gathered to: as the layer itself, in rows of their own. So a part is there
 * whenever its layer is. */
static eo_status make_frozen_rows(struct eo_plan *plan)
{
    const uint32_t slots = plan->params.gather_slots * plan->params.gather_run;
    uint64_t bytes[64] = {0};
    uint32_t rows[64], body = 0;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t s = 0; round == 1 && s < slots; s++)
            if (bytes[s])
                EO_TRY(add_row(plan, &rows[s], EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, bytes[s], false,
                               "gather.frozen.slot%u", s));
        body = 0;
        for (uint32_t p = 0; p < plan->position_count; p++) {
            struct plan_position *position = &plan->positions[p];
            const struct plan_layer *layer = &plan->layers[position->layer];
            const uint32_t slot = layer->edge ? 0 : body++ % slots;
            position->frozen_gather_row = EO_NONE;
            if (layer->frozen_part == EO_NONE)
                continue;
            const struct plan_layer *part = &plan->layers[layer->frozen_part];
            const uint64_t part_bytes = part->layout.padded_count * eo_dtype_bytes(plan->params.dtype);
            if (plan->params.shard_group == 1)
                position->frozen_gather_row = part->shard_row;
            else if (round == 1 && plan->resident && layer->first_position != p)
                position->frozen_gather_row = plan->positions[layer->first_position].frozen_gather_row;
            else if (round == 1 && (plan->resident || layer->edge))
                EO_TRY(add_row(plan, &position->frozen_gather_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, part_bytes,
                               plan->resident, "gather.frozen.%s", plan->resident ? layer->name : position->name));
            else if (round == 1)
                position->frozen_gather_row = rows[slot];
            else if (!plan->resident && !layer->edge)
                bytes[slot] = eo_max_u64(bytes[slot], part_bytes);
        }
    }
    return EO_OK;
}

/* No more than a layer has: small models are not to be decided by it. */
uint64_t eo_plan_staging_bytes(const struct eo_plan *plan)
{
    uint64_t count = 0;
    for (uint32_t l = 0; l < plan->layer_count; l++)
        count = eo_max_u64(count, plan->layers[l].layout.shard_count);
    const uint64_t bytes = eo_max_u64(EO_STAGING_BYTES_MIN, eo_align_up(2 * sizeof(float) * count, 64));
    return eo_min_u64(EO_STAGING_BYTES_MAX, bytes);
}

/* Peers read a rank's norm until they have ended the gather. A reduction of the next step comes after that, on all ranks;
 * where no layer has one there is a fence. */
static eo_status make_fence_rows(struct eo_plan *plan)
{
    bool trains = false;
    for (uint32_t l = 0; l < plan->layer_count; l++)
        trains = trains || !plan->layers[l].frozen;
    plan->fence_row = plan->fenced_row = EO_NONE;
    if (trains || plan->params.rank_count == 1)
        return EO_OK;
    EO_TRY(add_row(plan, &plan->fence_row, EO_CATEGORY_OTHER, EO_SPACE_GATHER, sizeof(double), true, "norm.fence"));
    return add_row(plan, &plan->fenced_row, EO_CATEGORY_OTHER, EO_SPACE_GATHER, sizeof(double) * plan->params.rank_count,
                   true, "norm.fenced");
}

/* Muon's, taken by the layers in turn. Activations lie there before. */
static eo_status make_matrix_rows(struct eo_plan *plan)
{
    uint64_t part_counts[EO_MATRIX_SLOTS] = {0}, counts[EO_MATRIX_SLOTS] = {0};
    uint32_t parts[EO_MATRIX_SLOTS], matrices[EO_MATRIX_SLOTS], slot = 0;
    plan->orthogonal_row = EO_NONE;
    for (int round = 0; round < 2; round++) {
        for (uint32_t s = 0; round == 1 && s < EO_MATRIX_SLOTS && part_counts[s]; s++) {
            EO_TRY(add_row(plan, &parts[s], EO_CATEGORY_SCRATCH, EO_SPACE_GRADIENT, part_counts[s] * sizeof(float), false,
                           "muon.part%u", s));
            matrices[s] = parts[s];
            if (counts[s] > part_counts[s])
                EO_TRY(add_row(plan, &matrices[s], EO_CATEGORY_SCRATCH, EO_SPACE_GRADIENT, counts[s] * sizeof(float), false,
                               "muon.matrices%u", s));
        }
        slot = 0;
        for (uint32_t u = 0; u < plan->update_count; u++) {
            struct plan_layer *layer = &plan->layers[plan->updates[u]];
            if (!layer->has_matrices)
                continue;
            const uint32_t s = plan->params.shard_group > 1 ? slot++ % EO_MATRIX_SLOTS : 0;
            part_counts[s] = eo_max_u64(part_counts[s], layer->layout.shard_count);
            counts[s] = eo_max_u64(counts[s], layer->layout.padded_count);
            layer->direction_row = parts[s];
            layer->matrices_row = matrices[s];
        }
    }
    return part_counts[0] == 0 ? EO_OK
                               : add_row(plan, &plan->orthogonal_row, EO_CATEGORY_SCRATCH, EO_SPACE_PRIVATE,
                                         eo_plan_orthogonal_bytes(plan), false, "muon.scratch");
}

static eo_status make_other_rows(struct eo_plan *plan, const struct eo_model *model)
{
    const uint64_t norm_bytes = EO_NORM_VALUES * sizeof(double);
    EO_TRY(add_row(plan, &plan->norm_local_row, EO_CATEGORY_OTHER, EO_SPACE_GATHER, norm_bytes, true, "norm.local"));
    EO_TRY(add_row(plan, &plan->norm_gathered_row, EO_CATEGORY_OTHER, EO_SPACE_GATHER,
                   norm_bytes * plan->params.rank_count, true, "norm.gathered"));
    EO_TRY(make_fence_rows(plan));
    EO_TRY(add_row(plan, &plan->norm_result_row, EO_CATEGORY_OTHER, EO_SPACE_PRIVATE,
                   eo_plan_result_bytes(plan), true, "norm.result"));
    EO_TRY(add_row(plan, &plan->scalars_row, EO_CATEGORY_OTHER, EO_SPACE_PRIVATE, eo_plan_scalars_bytes(plan), true,
                   "step.scalars"));
    EO_TRY(add_row(plan, &plan->values_row, EO_CATEGORY_OTHER, EO_SPACE_PRIVATE, EO_STEP_VALUES * sizeof(double), true,
                   "step.values"));
    plan->buffer_count = model->buffer_count;
    plan->buffers = calloc(model->buffer_count + 1, sizeof(*plan->buffers));
    if (!plan->buffers)
        return EO_ERR_NO_MEMORY;
    find_saved(plan, model);
    EO_TRY(make_saved_rows(plan, model));
    for (uint32_t b = 0; b < model->buffer_count; b++) {
        const struct model_buffer *from = &model->buffers[b];
        struct plan_buffer *to = &plan->buffers[b];
        to->first = from->first;
        to->last = from->last;
        to->persistent = from->persistent;
        to->saved = from->saved;
        if (to->shared)
            continue;
        EO_TRY(add_row(plan, &to->row, from->category, EO_SPACE_PRIVATE, from->bytes, from->persistent, "%s", from->name));
    }
    plan->host_row_begin = plan->row_count;
    EO_TRY(add_row(plan, &plan->host_steps_row, EO_CATEGORY_OTHER, EO_SPACE_HOST,
                   EO_HOST_STEPS * (eo_plan_scalars_bytes(plan) + eo_plan_result_bytes(plan)), true, "host.steps"));
    EO_TRY(add_row(plan, &plan->staging_row, EO_CATEGORY_OTHER, EO_SPACE_HOST,
                   EO_STAGING_PIECES * eo_plan_staging_bytes(plan), true, "host.staging"));
    return make_disk_rows(plan, model);
}

static int by_name(const void *a, const void *b)
{
    const struct plan_row *one = *(const struct plan_row *const *)a, *other = *(const struct plan_row *const *)b;
    const int order = strcmp(one->name, other->name);
    return order ? order : one < other ? -1 : 1;
}

/* Uses of one layer may share a name, and a trainer may call a buffer as we call a row: all but the first are numbered. */
static eo_status make_names_unique(struct eo_plan *plan)
{
    struct plan_row **rows = calloc(plan->row_count, sizeof(*rows));
    if (!rows)
        return EO_ERR_NO_MEMORY;
    for (uint32_t r = 0; r < plan->row_count; r++)
        rows[r] = &plan->rows[r];
    for (bool found = true; found;) { /* a new name may be taken too; each round makes them longer than a trainer's */
        found = false;
        qsort(rows, plan->row_count, sizeof(*rows), by_name);
        for (uint32_t first = 0, r = 1; r < plan->row_count; r++) {
            if (strcmp(rows[first]->name, rows[r]->name) != 0) {
                first = r;
                continue;
            }
            const size_t used = strlen(rows[r]->name);
            snprintf(rows[r]->name + used, sizeof(rows[r]->name) - used, " #%u", r - first + 1);
            found = true;
        }
    }
    free(rows);
    return EO_OK;
}

eo_status eo_plan_make_tables(struct eo_plan *plan, const struct eo_model *model)
{
    memcpy(plan->model_name, model->name, EO_NAME_MAX);
    EO_TRY(check_model(plan, model));
    EO_TRY(make_layers(plan, model));
    EO_TRY(eo_plan_take_float8(plan));
    EO_TRY(eo_plan_own_matrices(plan));
    find_edges(plan, model);
    EO_TRY(make_positions(plan, model));
    EO_TRY(make_updates(plan));
    EO_TRY(make_shard_rows(plan));
    EO_TRY(make_offload_rows(plan));
    EO_TRY(make_gradient_slots(plan));
    EO_TRY(make_sum_rows(plan));
    EO_TRY(make_buffer_rows(plan));
    EO_TRY(make_frozen_rows(plan));
    EO_TRY(make_matrix_rows(plan));
    EO_TRY(make_other_rows(plan, model));
    return make_names_unique(plan);
}
