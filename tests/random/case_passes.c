/* SPDX-License-Identifier: MIT */
#include "eo_config.h"
#include "tests/random/case_rank.h"

static struct case_call call_of_case(const struct case_rank *self, const char *name,
                                     void (*kernel)(const struct case_call *, const void *const *, void *const *))
{
    const struct random_case *c = self->world->c;
    struct case_call call = {.name = name, .kernel = kernel, .c = c, .expected = self->world->expected,
                             .verdict = self->world->verdict, .version = UINT32_MAX, .place.rank = self->rank};
    if (c->graph) {
        call.in[1] = eo_buffer(self->rt, c->buffer_count);
        call.in_bytes[1] = sizeof(uint32_t);
    }
    return call;
}

static eo_status launch_call(struct case_rank *self, const struct case_call *call)
{
    return self->world->ranks->launch(call, eo_runtime_stream(self->rt));
}

/* -- buffers ---------------------------------------------------------------------------------------------------------*/

static bool is_within(const struct random_case *c, const struct case_buffer *buffer, eo_moment now)
{
    const uint32_t moment = random_case_moment(c, now);
    if (buffer->saved && now.position != buffer->first.position)
        return false;
    return buffer->persistent || (random_case_moment(c, buffer->first) <= moment &&
                                  moment <= random_case_moment(c, buffer->last));
}

/* Fills a buffer at its first use, and else looks whether it holds what it was filled with. `content`: of an evaluation, or
 * 0: of a micro-batch. That of persistent ones is always the same. */
static eo_status use_buffer(struct case_rank *self, uint32_t index, const struct integer_place *place, uint64_t content)
{
    const struct case_buffer *buffer = &self->world->c->buffers[index];
    struct case_call call = call_of_case(self, "buffer", case_fill_buffer);
    void *at = eo_buffer(self->rt, index);
    if (!at) {
        case_complain(self->world->verdict, "buffers: buffer %u is not there", index);
        return EO_ERR_INVALID;
    }
    call.place = *place;
    call.buffer = index;
    call.content = buffer->persistent ? 1 : content;
    const uint64_t wanted = call.content ? call.content : case_content(place->step, place->micro_batch);
    if (self->holds[index] != wanted) {
        call.out[0] = at;
        call.out_bytes[0] = buffer->bytes;
    } else {
        call.kernel = case_look_at_buffer;
        call.in[0] = at;
        call.in_bytes[0] = buffer->bytes;
    }
    self->holds[index] = wanted;
    return launch_call(self, &call);
}

/* All that may be used in this pass. */
static eo_status use_buffers(struct case_rank *self, eo_pass pass, const struct integer_place *place, uint64_t content)
{
    const struct random_case *c = self->world->c;
    const eo_moment now = {pass, place->position};
    for (uint32_t b = 0; b < c->buffer_count; b++) {
        const struct case_buffer *buffer = &c->buffers[b];
        if (!is_within(c, buffer, now)) {
            if (c->debug && !EO_DEBUG_ABORT && eo_buffer(self->rt, b))
                case_complain(self->world->verdict, "buffers: buffer %u is given out when it is not live", b);
            continue;
        }
        EO_TRY(use_buffer(self, b, place, content));
    }
    return EO_OK;
}

/* In a forward-only run, at the moment that evenodd/model.h names. */
static eo_status use_evaluation_buffers(struct case_rank *self, uint32_t p, uint64_t content)
{
    const struct random_case *c = self->world->c;
    const eo_pass pass = c->positions[p].forward_in_backward ? EO_PASS_BACKWARD : EO_PASS_FORWARD;
    const struct integer_place place = {.rank = self->rank, .position = p};
    for (uint32_t b = 0; b < c->buffer_count; b++)
        if (is_within(c, &c->buffers[b], (eo_moment){pass, p}))
            EO_TRY(use_buffer(self, b, &place, content));
    return EO_OK;
}

/* -- weights and gradients -------------------------------------------------------------------------------------------*/

static uint64_t element_bytes(eo_dtype dtype) { return dtype == EO_DTYPE_BF16 ? 2 : 4; }

/* In planned memory a position has the same pointers in every pass, step and evaluation. They are aligned in all modes. */
static void check_pointer(struct case_rank *self, const void **first, const void *now, eo_dtype dtype)
{
    if ((uintptr_t)now % (16 * element_bytes(dtype)) != 0)
        case_complain(self->world->verdict, "views: a weight or gradient is not aligned");
    if (self->world->c->memory == EO_MEMORY_STATIC && *first && *first != now)
        case_complain(self->world->verdict, "views: a weight or gradient has moved");
    *first = now;
}

/* `version`: outside steps, else UINT32_MAX. */
static eo_status look_at_weights(struct case_rank *self, const struct integer_place *place, const eo_view *view,
                                 uint32_t version)
{
    const struct random_case *c = self->world->c;
    const struct case_layer *layer = &c->layers[c->positions[place->position].layer];
    for (uint32_t k = 0; view->weights && k < layer->parameter_count; k++) {
        struct case_call call = call_of_case(self, "look at weights", case_look_at_weights);
        check_pointer(self, &self->weights_at[place->position][k], view->weights[k], c->settings.dtype);
        call.version = version;
        call.place = *place;
        call.place.parameter = k;
        call.in[0] = view->weights[k];
        call.in_bytes[0] = layer->elements[k] * element_bytes(random_case_dtype(c, c->positions[place->position].layer, k));
        EO_TRY(launch_call(self, &call));
    }
    return EO_OK;
}

static eo_status give_gradients(struct case_rank *self, const struct integer_place *place, const eo_view *view)
{
    const struct random_case *c = self->world->c;
    const struct case_position *position = &c->positions[place->position];
    const struct case_layer *layer = &c->layers[position->layer];
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        struct case_call call = call_of_case(self, "gradients", case_give_gradients);
        if (!(position->gradients >> k & 1))
            continue;
        check_pointer(self, &self->gradients_at[place->position][k], view->gradients[k], c->settings.reduce_dtype);
        call.place = *place;
        call.place.parameter = k;
        if (view->weights) {
            call.in[0] = view->weights[k];
            call.in_bytes[0] = layer->elements[k] * element_bytes(random_case_dtype(c, position->layer, k));
        }
        call.out[0] = view->gradients[k];
        call.out_bytes[0] = layer->elements[k] * element_bytes(c->settings.reduce_dtype);
        EO_TRY(launch_call(self, &call));
    }
    return EO_OK;
}

static bool is_fp32(const struct random_case *c, uint32_t parameter)
{
    uint32_t l = 0;
    for (; parameter >= c->layers[l].parameter_count; l++)
        parameter -= c->layers[l].parameter_count;
    return c->layers[l].fp32 >> parameter & 1;
}

void case_update(void *user, const eo_shard *shard)
{
    struct case_rank *self = user;
    for (uint32_t i = 0; i < shard->part_count; i++) {
        const eo_shard_part *part = &shard->parts[i];
        const bool is_split = !shard->weights && !is_fp32(self->world->c, part->parameter);
        struct case_call call = call_of_case(self, "optimizer", case_fold_weights);
        call.in[0] = shard->gradient + part->at;
        call.in_bytes[0] = part->count * sizeof(float);
        call.out[0] = shard->weights ? (void *)(shard->weights + part->at) : shard->weights_high + part->at;
        call.out[1] = is_split ? shard->weights_low + part->at : NULL;
        call.out_bytes[0] = part->count * (is_split ? sizeof(uint16_t) : sizeof(float));
        call.out_bytes[1] = is_split ? part->count * sizeof(uint16_t) : 0;
        if (launch_call(self, &call) < 0)
            case_complain(self->world->verdict, "optimizer: not launched");
    }
}

/* -- passes --------------------------------------------------------------------------------------------------------*/

static void look_for_gradients(const struct case_rank *self, const eo_view *view)
{
    for (uint32_t k = 0; k < view->parameter_count; k++)
        if (view->gradients[k])
            case_complain(self->world->verdict, "inputs alone: a gradient of a weight is handed out");
}

/* Of a micro-batch, or, with a content, for gradients of inputs alone. */
static eo_status passes(struct case_rank *self, const struct integer_place *of, uint32_t version, uint64_t content)
{
    const struct random_case *c = self->world->c;
    struct integer_place place = *of;
    const eo_view *view;
    for (uint32_t p = 0; p < c->position_count; p++) {
        place.position = p;
        if (c->positions[p].forward_in_backward)
            continue;
        EO_TRY(eo_forward_begin(self->rt, p, &view));
        EO_TRY(look_at_weights(self, &place, view, version));
        EO_TRY(use_buffers(self, EO_PASS_FORWARD, &place, content));
        EO_TRY(eo_forward_end(self->rt, p));
    }
    for (uint32_t p = c->position_count; p-- > 0;) {
        place.position = p;
        EO_TRY(eo_backward_begin(self->rt, p, &view));
        EO_TRY(look_at_weights(self, &place, view, version));
        EO_TRY(use_buffers(self, EO_PASS_RECOMPUTE, &place, content));
        if (!c->layers[c->positions[p].layer].frozen) {
            EO_TRY(eo_gradients_begin(self->rt, p, &view));
            EO_TRY(use_buffers(self, EO_PASS_BACKWARD, &place, content));
            if (content)
                look_for_gradients(self, view);
            else
                EO_TRY(give_gradients(self, &place, view));
        }
        EO_TRY(eo_backward_end(self->rt, p));
    }
    return EO_OK;
}

eo_status case_micro_batch(struct case_rank *self, uint32_t step, uint32_t b)
{
    return passes(self, &(struct integer_place){.step = step, .rank = self->rank, .micro_batch = b}, UINT32_MAX, 0);
}

eo_status case_inputs_alone(struct case_rank *self, uint64_t content)
{
    EO_TRY(eo_input_gradients_begin(self->rt));
    EO_TRY(passes(self, &(struct integer_place){.rank = self->rank}, self->version, content));
    return eo_input_gradients_end(self->rt);
}

eo_status case_evaluation(struct case_rank *self, uint64_t content)
{
    const struct random_case *c = self->world->c;
    const eo_view *view;
    EO_TRY(eo_evaluation_begin(self->rt));
    for (uint32_t p = 0; p < c->position_count; p++) {
        const struct integer_place place = {.rank = self->rank, .position = p};
        EO_TRY(eo_forward_begin(self->rt, p, &view));
        EO_TRY(look_at_weights(self, &place, view, self->version));
        EO_TRY(use_evaluation_buffers(self, p, content));
        EO_TRY(eo_forward_end(self->rt, p));
    }
    return eo_evaluation_end(self->rt);
}

/* Of an iteration the last one, `to` += G `from` or `from` G, leaves the signs of `from`. The others may be anything. */
eo_status case_product(void *user, const eo_matrix_product *product)
{
    struct case_rank *self = user;
    struct case_call call = call_of_case(self, "product", case_sign_product);
    call.out[0] = product->c;
    call.out_bytes[0] = product->m * product->n * sizeof(float);
    if (product->accumulate) {
        call.in[0] = product->m > product->n ? product->a : product->b;
        call.in_bytes[0] = call.out_bytes[0];
    }
    return launch_call(self, &call);
}
