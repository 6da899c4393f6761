/* SPDX-License-Identifier: MIT */
#include "fake_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/element.h"
#include "runtime/plan/model.h"

/* What may come next: a call of `kind` for `position`. */
enum fake_call { CALL_FORWARD_BEGIN, CALL_FORWARD_END, CALL_BACKWARD_BEGIN, CALL_GRADIENTS_BEGIN, CALL_BACKWARD_END };

struct eo_runtime {
    const eo_model *model;
    float loss_scale;
    eo_dtype weight_dtype, gradient_dtype;
    double step_values[4];
    uint64_t fill_piece;
    bool evaluation, inputs_alone;
    enum fake_call next;
    uint32_t position;
    float **weights, **gradients; /* of every parameter */
    float **left;                 /* what an earlier use adds to */
    void **buffers;               /* NULL: not live */
    uint64_t live_bytes, peak_bytes;
    void **view_weights, **view_gradients; /* of the pass, by place in the layer */
    bool *view_inside; /* joined: in the block of the one before */
    uint32_t view_count;
    eo_view view;
};

static void fail(const char *what, uint32_t position)
{
    fprintf(stderr, "fake runtime: %s (position %u)\n", what, position);
    abort();
}

/* Before a piece of memory stands its size, and behind it what nobody may write. */
enum { HEAD = 64, GUARD = 4096, GUARD_BYTE = 0x5a };

static void *filled(uint64_t bytes)
{
    char *memory = aligned_alloc(HEAD, HEAD + (bytes + GUARD + HEAD - 1) / HEAD * HEAD);
    if (!memory)
        fail("no memory", 0);
    memcpy(memory, &bytes, sizeof(bytes));
    memset(memory + HEAD, 0xff, bytes); /* NaN as float */
    memset(memory + HEAD + bytes, GUARD_BYTE, GUARD);
    return memory + HEAD;
}

static void give_back(void *memory)
{
    uint64_t bytes;
    if (!memory)
        return;
    memcpy(&bytes, (char *)memory - HEAD, sizeof(bytes));
    for (uint32_t i = 0; i < GUARD; i++)
        if (((const char *)memory)[bytes + i] != GUARD_BYTE)
            fail("memory behind a buffer or view was written", i);
    free((char *)memory - HEAD);
}

eo_runtime *fake_create(const eo_model *model, float loss_scale)
{
    eo_runtime *rt = calloc(1, sizeof(*rt));
    rt->model = model;
    rt->loss_scale = loss_scale;
    rt->weights = calloc(model->parameter_count, sizeof(*rt->weights));
    rt->gradients = calloc(model->parameter_count, sizeof(*rt->gradients));
    rt->left = calloc(model->parameter_count, sizeof(*rt->left));
    rt->view_weights = calloc(model->parameter_count, sizeof(void *));
    rt->view_gradients = calloc(model->parameter_count, sizeof(void *));
    rt->view_inside = calloc(model->parameter_count, sizeof(*rt->view_inside));
    rt->buffers = calloc(model->buffer_count, sizeof(void *));
    for (uint32_t k = 0; k < model->parameter_count; k++) {
        rt->weights[k] = calloc(model->parameters[k].element_count, sizeof(float));
        rt->gradients[k] = calloc(model->parameters[k].element_count, sizeof(float));
        rt->left[k] = calloc(model->parameters[k].element_count, sizeof(float));
    }
    fake_restart(rt);
    return rt;
}

void fake_set_types(eo_runtime *rt, eo_dtype weights, eo_dtype gradients)
{
    rt->weight_dtype = weights;
    rt->gradient_dtype = gradients;
}

static void free_views(eo_runtime *rt)
{
    for (uint32_t k = 0; k < rt->view_count; k++) {
        if (!rt->view_inside[k]) {
            give_back(rt->view_weights[k]);
            give_back(rt->view_gradients[k]);
        }
        rt->view_weights[k] = rt->view_gradients[k] = NULL;
    }
}

/* Only what always lives is left. */
void fake_set_inputs_alone(eo_runtime *rt, bool inputs_alone)
{
    rt->inputs_alone = inputs_alone;
}

void fake_restart(eo_runtime *rt)
{
    rt->live_bytes = 0;
    for (uint32_t b = 0; b < rt->model->buffer_count; b++) {
        const struct model_buffer *buffer = &rt->model->buffers[b];
        if (!buffer->persistent) {
            give_back(rt->buffers[b]);
            rt->buffers[b] = NULL;
        } else {
            rt->live_bytes += buffer->bytes;
            if (!rt->buffers[b])
                rt->buffers[b] = filled(buffer->bytes);
        }
    }
    free_views(rt);
    rt->evaluation = false;
    rt->next = CALL_FORWARD_BEGIN;
    rt->position = 0;
}

void fake_destroy(eo_runtime *rt)
{
    fake_restart(rt);
    for (uint32_t b = 0; b < rt->model->buffer_count; b++)
        give_back(rt->buffers[b]);
    for (uint32_t k = 0; k < rt->model->parameter_count; k++) {
        free(rt->weights[k]);
        free(rt->gradients[k]);
        free(rt->left[k]);
    }
    free(rt->weights);
    free(rt->gradients);
    free(rt->left);
    free(rt->view_weights);
    free(rt->view_gradients);
    free(rt->view_inside);
    free(rt->buffers);
    free(rt);
}

float *fake_weights(eo_runtime *rt, uint32_t parameter)
{
    return rt->weights[parameter];
}

float *fake_gradients(eo_runtime *rt, uint32_t parameter)
{
    return rt->gradients[parameter];
}

void fake_clear_gradients(eo_runtime *rt)
{
    for (uint32_t k = 0; k < rt->model->parameter_count; k++)
        memset(rt->gradients[k], 0, rt->model->parameters[k].element_count * sizeof(float));
}

void fake_set_fill_piece(eo_runtime *rt, uint64_t elements)
{
    rt->fill_piece = elements;
}

uint64_t fake_peak_bytes(const eo_runtime *rt)
{
    return rt->peak_bytes;
}

/* ---- lifetimes ---- */

static uint32_t order_of(const eo_runtime *rt, eo_pass pass, uint32_t position)
{
    return eo_moment_order((eo_moment){pass, position}, rt->model->position_count);
}

static bool covers(const eo_runtime *rt, const struct model_buffer *buffer, uint32_t order)
{
    return buffer->persistent || (eo_moment_order(buffer->first, rt->model->position_count) <= order &&
                                  order <= eo_moment_order(buffer->last, rt->model->position_count));
}

/* Takes what begins to live and gives back what does so no more. */
static void enter(eo_runtime *rt, uint32_t order)
{
    for (uint32_t b = 0; b < rt->model->buffer_count; b++) {
        const bool head = rt->evaluation && rt->model->positions[rt->position].forward_in_backward;
        const uint32_t backward = order_of(rt, EO_PASS_BACKWARD, rt->position);
        const struct model_buffer *buffer = &rt->model->buffers[b];
        const bool live = covers(rt, buffer, order) || (head && covers(rt, buffer, backward));
        if (live && !rt->buffers[b]) {
            rt->buffers[b] = filled(buffer->bytes);
            rt->live_bytes += buffer->bytes;
        } else if (!live && rt->buffers[b]) {
            give_back(rt->buffers[b]);
            rt->buffers[b] = NULL;
            rt->live_bytes -= buffer->bytes;
        }
    }
    if (rt->live_bytes > rt->peak_bytes)
        rt->peak_bytes = rt->live_bytes;
}

void *eo_buffer(const eo_runtime *rt, uint32_t buffer)
{
    if (buffer >= rt->model->buffer_count)
        fail("there is no such buffer", buffer);
    if (!rt->buffers[buffer]) {
        fprintf(stderr, "fake runtime: buffer %s is not live\n", rt->model->buffers[buffer].name);
        fail("a buffer is not live", rt->position);
    }
    return rt->buffers[buffer];
}

/* ---- passes ---- */

static bool is_frozen(const eo_runtime *rt, uint32_t k)
{
    return rt->model->parameters[k].frozen || rt->model->layers[rt->model->parameters[k].layer].frozen;
}

static bool position_trains(const eo_runtime *rt, uint32_t position)
{
    for (uint32_t k = 0; k < rt->model->parameter_count; k++)
        if (rt->model->parameters[k].layer == rt->model->positions[position].layer && !is_frozen(rt, k))
            return true;
    return false;
}

/* A block of its own, with room for those joined to it (parameters of a layer follow each other); or behind the one before. */
static void *tensor_of(const eo_runtime *rt, uint32_t k, void *const *tensor, eo_dtype dtype)
{
    const struct model_parameter *parameter = &rt->model->parameters[k];
    uint64_t count = parameter->element_count;
    if (parameter->joined)
        return (char *)tensor[-1] + parameter[-1].element_count * eo_dtype_bytes(dtype);
    for (uint32_t n = 1; k + n < rt->model->parameter_count && parameter[n].joined; n++)
        count += parameter[n].element_count;
    return filled(count * eo_dtype_bytes(dtype));
}

static void open_view(eo_runtime *rt, bool weights)
{
    const uint32_t layer = rt->model->positions[rt->position].layer;
    rt->view_count = 0;
    for (uint32_t k = 0; k < rt->model->parameter_count; k++) {
        if (rt->model->parameters[k].layer != layer)
            continue;
        const uint64_t count = rt->model->parameters[k].element_count;
        const eo_dtype dtype = rt->model->parameters[k].fp32 ? EO_DTYPE_FP32 : rt->weight_dtype;
        rt->view_weights[rt->view_count] = NULL;
        rt->view_inside[rt->view_count] = rt->model->parameters[k].joined;
        if (weights) {
            rt->view_weights[rt->view_count] = tensor_of(rt, k, rt->view_weights + rt->view_count, dtype);
            eo_elements_store(dtype, rt->view_weights[rt->view_count], 0, rt->weights[k], count);
        }
        rt->view_count++;
    }
    rt->view = (eo_view){.parameter_count = rt->view_count, .weights = weights ? rt->view_weights : NULL};
}

static void close_view(eo_runtime *rt)
{
    free_views(rt);
    rt->view_count = 0;
}

static void expect(const eo_runtime *rt, enum fake_call call, uint32_t position)
{
    if (rt->next != call || rt->position != position)
        fail("a call out of order", position);
}

static bool has_forward(const eo_runtime *rt, uint32_t position)
{
    return rt->evaluation || !rt->model->positions[position].forward_in_backward;
}

eo_status eo_forward_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    expect(rt, CALL_FORWARD_BEGIN, position);
    enter(rt, order_of(rt, EO_PASS_FORWARD, position));
    open_view(rt, true);
    *view = &rt->view;
    rt->next = CALL_FORWARD_END;
    return EO_OK;
}

eo_status eo_forward_end(eo_runtime *rt, uint32_t position)
{
    expect(rt, CALL_FORWARD_END, position);
    close_view(rt);
    const uint32_t last = rt->model->position_count - 1;
    rt->next = CALL_FORWARD_BEGIN;
    do
        rt->position++;
    while (rt->position <= last && !has_forward(rt, rt->position));
    if (rt->position > last && !rt->evaluation) {
        rt->position = last;
        rt->next = CALL_BACKWARD_BEGIN;
    }
    return EO_OK;
}

eo_status eo_backward_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    expect(rt, CALL_BACKWARD_BEGIN, position);
    enter(rt, order_of(rt, EO_PASS_RECOMPUTE, position));
    open_view(rt, !rt->model->positions[position].backward_without_weights);
    *view = &rt->view;
    rt->next = position_trains(rt, position) ? CALL_GRADIENTS_BEGIN : CALL_BACKWARD_END;
    return EO_OK;
}

eo_status eo_gradients_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    expect(rt, CALL_GRADIENTS_BEGIN, position);
    enter(rt, order_of(rt, EO_PASS_BACKWARD, position));
    const uint32_t layer = rt->model->positions[position].layer;
    uint32_t place = 0;
    for (uint32_t k = 0; k < rt->model->parameter_count; k++)
        if (rt->model->parameters[k].layer == layer) {
            rt->view_gradients[place] =
                rt->inputs_alone || is_frozen(rt, k) ? NULL : tensor_of(rt, k, rt->view_gradients + place, rt->gradient_dtype);
            if (rt->view_gradients[place] && rt->model->positions[position].adds_gradients)
                eo_elements_store(rt->gradient_dtype, rt->view_gradients[place], 0, rt->left[k],
                                  rt->model->parameters[k].element_count);
            place++;
        }
    rt->view.gradients = rt->view_gradients;
    *view = &rt->view;
    rt->next = CALL_BACKWARD_END;
    return EO_OK;
}

static bool gives_gradient(const struct model_position *position, uint32_t parameter)
{
    for (uint32_t i = 0; i < position->parameter_count; i++)
        if (position->parameters[i] == parameter)
            return true;
    return position->parameters == NULL;
}

/* Whether the use before it, whose backward pass comes next, adds to its gradients. */
static bool is_added_to(const eo_runtime *rt, uint32_t position)
{
    const struct model_position *positions = rt->model->positions;
    for (uint32_t p = position; p-- > 0;)
        if (positions[p].layer == positions[position].layer)
            return positions[p].adds_gradients;
    return false;
}

eo_status eo_backward_end(eo_runtime *rt, uint32_t position)
{
    expect(rt, CALL_BACKWARD_END, position);
    const struct model_position *use = &rt->model->positions[position];
    const bool is_left = is_added_to(rt, position);
    uint32_t place = 0;
    for (uint32_t k = 0; k < rt->model->parameter_count; k++) {
        if (rt->model->parameters[k].layer != use->layer)
            continue;
        const void *gradient = rt->view_gradients[place++];
        const bool is_there = !is_frozen(rt, k) && (use->adds_gradients || gives_gradient(use, k));
        for (uint64_t i = 0; i < rt->model->parameters[k].element_count; i++) {
            const float value = is_there ? eo_element_load(rt->gradient_dtype, gradient, i) : 0;
            if (is_left)
                rt->left[k][i] = value;
            else
                rt->gradients[k][i] += value;
        }
    }
    close_view(rt);
    if (position == 0)
        fake_restart(rt);
    else
        rt->position--, rt->next = CALL_BACKWARD_BEGIN;
    return EO_OK;
}

eo_status eo_evaluation_begin(eo_runtime *rt)
{
    expect(rt, CALL_FORWARD_BEGIN, 0);
    rt->evaluation = true;
    return EO_OK;
}

eo_status eo_evaluation_end(eo_runtime *rt)
{
    expect(rt, CALL_FORWARD_BEGIN, rt->model->position_count);
    fake_restart(rt);
    return EO_OK;
}

double *eo_step_values(const eo_runtime *rt)
{
    return ((eo_runtime *)(uintptr_t)rt)->step_values;
}

const char *eo_runtime_device(const eo_runtime *rt)
{
    (void)rt;
    return "cpu";
}

uint32_t eo_runtime_rank(const eo_runtime *rt)
{
    (void)rt;
    return 0;
}

/* There is no plan: the types are what it would say. */
const eo_plan *eo_runtime_plan(const eo_runtime *rt)
{
    return (const eo_plan *)(const void *)rt;
}

void eo_plan_get_summary_sized(const eo_plan *plan, eo_plan_summary *out, size_t out_bytes)
{
    (void)out_bytes;
    const eo_runtime *rt = (const eo_runtime *)(const void *)plan;
    *out = (eo_plan_summary){.params = {.dtype = rt->weight_dtype, .reduce_dtype = rt->gradient_dtype}};
}

/* Of devices whose memory is not the host's: this one's is. */
eo_status eo_runtime_upload(eo_runtime *rt, void *to, const void *from, uint64_t bytes)
{
    fail("an upload", rt->position);
    return EO_OK;
}

eo_status eo_runtime_download(eo_runtime *rt, void *to, const void *from, uint64_t bytes)
{
    fail("a download", rt->position);
    return EO_OK;
}

float eo_loss_scale(const eo_runtime *rt)
{
    return rt->loss_scale;
}

eo_status eo_weights_fill(eo_runtime *rt, uint32_t parameter,
                          eo_status (*produce)(void *user, uint64_t offset, uint64_t count, float *values), void *user)
{
    const uint64_t all = rt->model->parameters[parameter].element_count;
    const uint64_t piece = rt->fill_piece ? rt->fill_piece : all;
    for (uint64_t offset = 0; offset < all; offset += piece)
        EO_TRY(produce(user, offset, all - offset < piece ? all - offset : piece, rt->weights[parameter] + offset));
    return EO_OK;
}
