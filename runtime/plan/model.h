/* SPDX-License-Identifier: MIT
 *
 * What eo_model_* collected, for the planner.
 */
#ifndef EO_RUNTIME_PLAN_MODEL_H
#define EO_RUNTIME_PLAN_MODEL_H

#include <evenodd/model.h>
#include <evenodd/plan.h>

struct model_layer {
    char name[EO_NAME_MAX];
    bool frozen;
    uint32_t parts; /* at least 1 */
    uint32_t parameter_count, frozen_count;
};

struct model_parameter {
    char name[EO_NAME_MAX];
    uint32_t layer;
    uint32_t index; /* in its layer */
    uint32_t dim_count;
    uint64_t dims[EO_DIMS_MAX];
    uint64_t element_count, padding;
    bool no_weight_decay, float8_gather, joined, frozen, matrix, fp32;
    uint32_t group;
};

struct model_position {
    char name[EO_NAME_MAX];
    uint32_t layer;
    bool forward_in_backward, backward_without_weights, adds_gradients;
    uint32_t *parameters; /* NULL: all of the layer */
    uint32_t parameter_count;
};

struct model_buffer {
    char name[EO_NAME_MAX];
    uint64_t bytes;
    eo_category category;
    eo_moment first, last;
    bool persistent, saved;
};

/* Where a name is, by its hash: index + 1, or 0 in a free slot. At most half of the slots are taken. */
struct model_names {
    uint32_t *slots;
    uint32_t slot_count, count;
};

struct eo_model {
    char name[EO_NAME_MAX];
    eo_log log;
    struct model_layer *layers;
    struct model_parameter *parameters;
    struct model_position *positions;
    struct model_buffer *buffers;
    uint32_t layer_count, parameter_count, position_count, buffer_count;
    uint32_t layer_capacity, parameter_capacity, position_capacity, buffer_capacity;
    struct model_names layer_names, parameter_names, buffer_names;
    uint64_t element_count;
};

/* Logs as errors that a plan of it failed by a fault of ours, and all that is needed to see it again (model_text.c). */
void eo_model_report(const eo_log *log, const struct eo_model *model, const eo_plan_params *params);

/* Place of a moment in a micro-batch of P positions: forward(0 ... P-1), then recompute and backward of P-1 ... 0. */
static inline uint32_t eo_moment_order(eo_moment moment, uint32_t position_count)
{
    if (moment.pass == EO_PASS_FORWARD)
        return moment.position;
    const uint32_t turned = position_count - 1 - moment.position;
    return position_count + 2 * turned + (moment.pass == EO_PASS_BACKWARD);
}

#endif
