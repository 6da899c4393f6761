/* SPDX-License-Identifier: MIT */
#include "tests/random/case_calls.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "streams/bf16.h"

void case_complain(struct case_verdict *verdict, const char *format, ...)
{
    if (atomic_exchange(&verdict->is_told, true))
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->outcome.text, sizeof(verdict->outcome.text), format, arguments);
    va_end(arguments);
}

/* A step that is run again reads its number. */
static uint32_t step_of(const struct case_call *call, const void *const *in)
{
    uint32_t step = call->place.step;
    if (in[1])
        memcpy(&step, in[1], sizeof(step));
    return step < CASE_STEPS_MAX ? step : 0;
}

static float number_at(const void *numbers, eo_dtype dtype, uint32_t i)
{
    return dtype == EO_DTYPE_FP32 ? ((const float *)numbers)[i] : eo_bf16_to_float(((const uint16_t *)numbers)[i]);
}

void case_look_at_weights(const struct case_call *call, const void *const *in, void *const *out)
{
    const uint32_t version = call->version == UINT32_MAX ? INTEGER_IN(step_of(call, in)) : call->version;
    const uint32_t l = call->c->positions[call->place.position].layer, k = call->place.parameter;
    (void)out;
    for (uint32_t i = 0; i < call->c->layers[l].elements[k]; i++) {
        const float weight = number_at(in[0], random_case_dtype(call->c, l, k), i);
        const int32_t want = call->expected->weights[version][l][k][i];
        if (weight == (float)want)
            continue;
        case_complain(call->verdict, "weights: rank %u, step %u, position %u sees %g, not %d, in element %u of parameter %u.%u",
                      call->place.rank, version / 2, call->place.position, (double)weight, want, i, l, k);
        return;
    }
}

/* What is there of the uses that a position adds to. */
static int32_t given_before(const struct case_call *call, struct integer_place place, uint64_t element)
{
    const struct random_case *c = call->c;
    const uint32_t l = c->positions[place.position].layer, k = place.parameter;
    const int32_t weight = call->expected->weights[INTEGER_IN(place.step)][l][k][element];
    int32_t sum = 0;
    for (bool adds = c->positions[place.position].adds && !c->settings.gradients_apart; adds;
         adds = c->positions[place.position].adds) {
        do
            place.position++;
        while (c->positions[place.position].layer != l);
        const struct case_position *before = &c->positions[place.position];
        if (before->gradients >> k & 1)
            sum += integer_gradient(c, &place, element, before->backward_without_weights ? 0 : weight);
    }
    return sum;
}

void case_give_gradients(const struct case_call *call, const void *const *in, void *const *out)
{
    const struct random_case *c = call->c;
    const uint32_t l = c->positions[call->place.position].layer;
    struct integer_place place = call->place;
    uint32_t position, parameter;
    place.step = step_of(call, in);
    const bool spoils = c->skips >> place.step & 1 && place.rank == 0 && place.micro_batch == 0 &&
                        random_case_spoils(c, &position, &parameter) && place.position == position &&
                        place.parameter == parameter;
    for (uint32_t i = 0; i < c->layers[l].elements[place.parameter]; i++) {
        const int32_t weight = in[0] ? (int32_t)number_at(in[0], random_case_dtype(c, l, place.parameter), i) : 0;
        const int32_t before = given_before(call, place, i);
        const float gradient = spoils && i == 0 ? INFINITY : (float)(before + integer_gradient(c, &place, i, weight));
        if ((c->zero_gradients || c->positions[place.position].adds) &&
            number_at(out[0], c->settings.reduce_dtype, i) != (float)before)
            case_complain(call->verdict, "gradients: rank %u, position %u finds %g, not %d", place.rank, place.position,
                          (double)number_at(out[0], c->settings.reduce_dtype, i), before);
        if (c->settings.reduce_dtype == EO_DTYPE_FP32)
            ((float *)out[0])[i] = gradient;
        else
            ((uint16_t *)out[0])[i] = eo_bf16_round(gradient);
    }
}

static unsigned char byte_of(const struct case_call *call, const void *const *in)
{
    const uint64_t content = call->content ? call->content : case_content(step_of(call, in), call->place.micro_batch);
    return (unsigned char)(random_hash(content, call->buffer, call->place.rank) & 0xff);
}

void case_fill_buffer(const struct case_call *call, const void *const *in, void *const *out)
{
    memset(out[0], byte_of(call, in), call->out_bytes[0]);
}

void case_look_at_buffer(const struct case_call *call, const void *const *in, void *const *out)
{
    const unsigned char *bytes = in[0], want = byte_of(call, in);
    (void)out;
    for (uint64_t i = 0; i < call->in_bytes[0]; i++) {
        if (bytes[i] == want)
            continue;
        case_complain(call->verdict, "buffers: rank %u, position %u: buffer %u does not hold at byte %u what was written",
                      call->place.rank, call->place.position, call->buffer, (uint32_t)i);
        return;
    }
}

void case_fold_weights(const struct case_call *call, const void *const *in, void *const *out)
{
    const float *gradients = in[0];
    for (uint64_t i = 0; i < call->in_bytes[0] / sizeof(float); i++) {
        float *weight = (float *)out[0] + i;
        uint16_t *high = (uint16_t *)out[0] + i;
        int16_t *low = (int16_t *)out[1] + i;
        const float value = out[1] ? eo_bf16_join(*high, *low) : *weight;
        const float next = (float)integer_update(call->c, (int32_t)value, (int32_t)gradients[i]);
        if (out[1])
            eo_bf16_split(next, high, low);
        else
            *weight = next;
    }
}

void case_sign_product(const struct case_call *call, const void *const *in, void *const *out)
{
    const float *from = in[0];
    float *to = out[0];
    for (uint64_t i = 0; i < call->out_bytes[0] / sizeof(float); i++)
        to[i] = from ? (float)((from[i] > 0) - (from[i] < 0)) : 0;
}

eo_status case_launch_at_once(const struct case_call *call, void *stream)
{
    (void)stream;
    call->kernel(call, call->in, call->out);
    return EO_OK;
}
