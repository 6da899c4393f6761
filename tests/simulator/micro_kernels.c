/* SPDX-License-Identifier: MIT */
#include "micro_kernels.h"

#include <math.h>
#include <string.h>

#include "tests/simulator/cuda/sim.h"
#include "streams/bf16.h"

static float weight_at(const struct micro_call *call, const void *weights, uint32_t i)
{
    return call->weights == EO_DTYPE_BF16 ? eo_bf16_to_float(((const uint16_t *)weights)[i]) : ((const float *)weights)[i];
}

static void put_gradient(const struct micro_call *call, void *to, uint32_t i, float value)
{
    if (call->gradients == EO_DTYPE_BF16)
        ((uint16_t *)to)[i] = eo_bf16_round(value);
    else
        ((float *)to)[i] = value;
}

void micro_forward(const struct micro_call *call, const void *const *in, void *const *out)
{
    const float *x = in[2];
    float *y = out[0];
    for (uint32_t s = 0; s < call->samples; s++) {
        for (uint32_t o = 0; o < call->out_width; o++) {
            float sum = weight_at(call, in[1], o);
            for (uint32_t i = 0; i < call->in_width; i++)
                sum += weight_at(call, in[0], o * call->in_width + i) * x[s * call->in_width + i];
            y[s * call->out_width + o] = call->bends ? sum / (1 + fabsf(sum)) : sum;
        }
    }
}

void micro_bend_gradient(const struct micro_call *call, const void *const *in, void *const *out)
{
    const float *y = in[0];
    float *dy = out[0];
    for (uint32_t i = 0; i < call->samples * call->out_width; i++) {
        const float rest = 1 - fabsf(y[i]);
        dy[i] *= rest * rest;
    }
}

void micro_input_gradient(const struct micro_call *call, const void *const *in, void *const *out)
{
    const float *dy = in[1];
    float *dx = out[0];
    for (uint32_t s = 0; s < call->samples; s++) {
        for (uint32_t i = 0; i < call->in_width; i++) {
            float sum = 0;
            for (uint32_t o = 0; o < call->out_width; o++)
                sum += dy[s * call->out_width + o] * weight_at(call, in[0], o * call->in_width + i);
            dx[s * call->in_width + i] = sum;
        }
    }
}

void micro_weight_gradient(const struct micro_call *call, const void *const *in, void *const *out)
{
    const float *x = in[0], *dy = in[1];
    for (uint32_t o = 0; o < call->out_width; o++) {
        float bias = 0;
        for (uint32_t s = 0; s < call->samples; s++)
            bias += dy[s * call->out_width + o];
        put_gradient(call, out[1], o, bias);
        for (uint32_t i = 0; i < call->in_width; i++) {
            float sum = 0;
            for (uint32_t s = 0; s < call->samples; s++)
                sum += dy[s * call->out_width + o] * x[s * call->in_width + i];
            if (out[0])
                put_gradient(call, out[0], o * call->in_width + i, sum);
        }
    }
}

void micro_loss(const struct micro_call *call, const void *const *in, void *const *out)
{
    const float *y = in[0], *target = in[1];
    float *dy = out[0];
    double loss = 0;
    for (uint32_t i = 0; i < call->samples * call->out_width; i++) {
        const float error = y[i] - target[i];
        loss += 0.5 * (double)error * (double)error;
        dy[i] = error * call->scale / (float)(call->samples * call->out_width);
    }
    *(double *)out[1] += loss / (call->samples * call->out_width);
}

void micro_product(const struct micro_call *call, const void *const *in, void *const *out)
{
    const float *a = in[0], *b = in[1];
    const uint32_t rows = call->samples, columns = call->out_width, terms = call->in_width;
    float *c = out[0];
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t j = 0; j < columns; j++) {
            float sum = call->accumulate ? c[i * columns + j] : 0;
            for (uint32_t k = 0; k < terms; k++)
                sum += a[call->transpose_a ? k * rows + i : i * terms + k] *
                       b[call->transpose_b ? j * terms + k : k * columns + j];
            c[i * columns + j] = sum;
        }
    }
}

static void resolve_and_run(const void *arguments)
{
    const struct micro_call *call = arguments;
    const void *in[MICRO_INPUTS];
    void *out[MICRO_OUTPUTS];
    for (int i = 0; i < MICRO_INPUTS; i++)
        in[i] = sim_at_read(call->in[i], call->in_bytes[i]);
    for (int i = 0; i < MICRO_OUTPUTS; i++)
        out[i] = sim_at_write(call->out[i], call->out_bytes[i]);
    call->kernel(call, in, out);
}

eo_status micro_run(const struct micro_call *call, bool on_host, void *stream)
{
    if (on_host) {
        call->kernel(call, call->in, call->out);
        return EO_OK;
    }
    struct sim_range ranges[MICRO_INPUTS + MICRO_OUTPUTS];
    for (int i = 0; i < MICRO_INPUTS; i++)
        ranges[i] = SIM_READS(call->in[i], call->in_bytes[i]);
    for (int i = 0; i < MICRO_OUTPUTS; i++)
        ranges[MICRO_INPUTS + i] = SIM_WRITES(call->out[i], call->out_bytes[i]);
    const cudaError_t error = sim_kernel(call->name, stream, resolve_and_run, call, sizeof(*call), ranges,
                                         MICRO_INPUTS + MICRO_OUTPUTS);
    return error == cudaSuccess ? EO_OK : EO_ERR_DEVICE;
}
