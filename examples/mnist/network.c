/* SPDX-License-Identifier: MIT */
#include "network.h"

#include <math.h>
#include <string.h>

static const struct module table[MODULES] = {
    {.name = "conv1", .kernel = 3, .out_channels = 32, .relu = true},
    {.name = "conv2", .kernel = 3, .out_channels = 64, .relu = true, .pools = true, .dropout = 0.25f},
    {.name = "fc1", .out_channels = 128, .relu = true, .dropout = 0.5f},
    {.name = "fc2", .out_channels = CLASSES},
};

bool network_init(struct module modules[MODULES], uint32_t height, uint32_t width)
{
    uint32_t channels = 1;
    memcpy(modules, table, sizeof(table));
    for (int i = 0; i < MODULES; i++) {
        struct module *m = &modules[i];
        if (height < m->kernel || width < m->kernel)
            return false;
        m->in_height = height, m->in_width = width, m->in_channels = channels;
        m->height = m->kernel ? height - m->kernel + 1 : 1;
        m->width = m->kernel ? width - m->kernel + 1 : 1;
        height = m->out_height = m->pools ? m->height / 2 : m->height;
        width = m->out_width = m->pools ? m->width / 2 : m->width;
        channels = m->out_channels;
        if (height == 0 || width == 0)
            return false;
    }
    return true;
}

uint32_t module_in(const struct module *m)
{
    return m->in_height * m->in_width * m->in_channels;
}

uint32_t module_patch(const struct module *m)
{
    return m->kernel ? m->kernel * m->kernel * m->in_channels : module_in(m);
}

uint32_t module_raw(const struct module *m)
{
    return m->height * m->width * m->out_channels;
}

uint32_t module_out(const struct module *m)
{
    return m->out_height * m->out_width * m->out_channels;
}

float network_random(const eo_random_place *place, uint32_t element)
{
    uint32_t words[4];
    eo_random_words(place, element / 4, words);
    return eo_random_unit(words[element % 4]);
}

/* What an output is multiplied by: kept ones grow, so that the mean stays. Backward draws it again. */
static float dropout_factor(const struct module *m, const struct draw *draw, uint32_t element)
{
    if (!draw->training || m->dropout <= 0)
        return 1;
    return network_random(&draw->place, element) < m->dropout ? 0 : 1 / (1 - m->dropout);
}

/* --- patches ------------------------------------------------------------------------------------------------------ */

/* Rows of a patch are contiguous in the input. */
struct rows {
    uint32_t count, elements, stride;
};

static struct rows patch_rows(const struct module *m)
{
    if (!m->kernel)
        return (struct rows){1, module_in(m), 0};
    return (struct rows){m->kernel, m->kernel * m->in_channels, m->in_width * m->in_channels};
}

static uint32_t patch_begin(const struct module *m, uint32_t y, uint32_t x)
{
    return (y * m->in_width + x) * m->in_channels;
}

/* --- one sample --------------------------------------------------------------------------------------------------- */

static void product(const struct module *m, const float *weights, const float *bias, const float *in, float *raw)
{
    const struct rows rows = patch_rows(m);
    const uint32_t outs = m->out_channels;
    for (uint32_t y = 0; y < m->height; y++)
        for (uint32_t x = 0; x < m->width; x++) {
            float *out = raw + (y * m->width + x) * outs;
            const float *weight = weights;
            memcpy(out, bias, outs * sizeof(*out));
            for (uint32_t r = 0; r < rows.count; r++) {
                const float *row = in + patch_begin(m, y, x) + r * rows.stride;
                for (uint32_t i = 0; i < rows.elements; i++, weight += outs)
                    for (uint32_t o = 0; o < outs; o++)
                        out[o] += row[i] * weight[o];
            }
        }
    for (uint32_t i = 0; m->relu && i < module_raw(m); i++)
        raw[i] = raw[i] > 0 ? raw[i] : 0;
}

/* Element of `raw` that an element of the output was taken from: of four the first that is the largest. */
static uint32_t source_of(const struct module *m, const float *raw, uint32_t y, uint32_t x, uint32_t channel)
{
    if (!m->pools)
        return (y * m->width + x) * m->out_channels + channel;
    uint32_t best = (2 * y * m->width + 2 * x) * m->out_channels + channel;
    for (uint32_t i = 1; i < 4; i++) {
        const uint32_t other = ((2 * y + i / 2) * m->width + 2 * x + i % 2) * m->out_channels + channel;
        best = raw[other] > raw[best] ? other : best;
    }
    return best;
}

void module_forward(const struct module *m, const struct draw *draw, const float *weights, const float *bias,
                    const float *in, float *raw, float *out)
{
    uint32_t element = 0;
    product(m, weights, bias, in, raw);
    for (uint32_t y = 0; y < m->out_height; y++)
        for (uint32_t x = 0; x < m->out_width; x++)
            for (uint32_t c = 0; c < m->out_channels; c++, element++)
                out[element] = raw[source_of(m, raw, y, x, c)] * dropout_factor(m, draw, element);
}

/* The slope by the product, through dropout, pooling and ReLU. */
static void raw_slope(const struct module *m, const struct draw *draw, const float *raw, const float *slope,
                      float *out)
{
    uint32_t element = 0;
    memset(out, 0, module_raw(m) * sizeof(*out));
    for (uint32_t y = 0; y < m->out_height; y++)
        for (uint32_t x = 0; x < m->out_width; x++)
            for (uint32_t c = 0; c < m->out_channels; c++, element++) {
                const uint32_t source = source_of(m, raw, y, x, c);
                if (!m->relu || raw[source] > 0)
                    out[source] += slope[element] * dropout_factor(m, draw, element);
            }
}

static float dot(const float *a, const float *b, uint32_t count)
{
    enum { LANES = 16 }; /* sums that a compiler may keep in one register */
    float lanes[LANES] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (uint32_t l = 0; l < LANES; l++)
            lanes[l] += a[i + l] * b[i + l];
    for (; i < count; i++)
        sum += a[i] * b[i];
    for (uint32_t l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

void module_backward(const struct module *m, const struct draw *draw, const float *weights, const float *in,
                     const float *raw, const float *slope, float *in_slope, float *weight_gradient, float *bias_gradient,
                     float *scratch)
{
    const struct rows rows = patch_rows(m);
    const uint32_t outs = m->out_channels;
    raw_slope(m, draw, raw, slope, scratch);
    if (in_slope)
        memset(in_slope, 0, module_in(m) * sizeof(*in_slope));
    for (uint32_t y = 0; y < m->height; y++)
        for (uint32_t x = 0; x < m->width; x++) {
            const float *own = scratch + (y * m->width + x) * outs;
            uint32_t line = 0; /* of the weights */
            for (uint32_t o = 0; o < outs; o++)
                bias_gradient[o] += own[o];
            for (uint32_t r = 0; r < rows.count; r++)
                for (uint32_t i = 0; i < rows.elements; i++, line++) {
                    const uint32_t at = patch_begin(m, y, x) + r * rows.stride + i;
                    for (uint32_t o = 0; o < outs; o++)
                        weight_gradient[line * outs + o] += in[at] * own[o];
                    if (in_slope)
                        in_slope[at] += dot(weights + line * outs, own, outs);
                }
        }
}

float network_loss(const float out[CLASSES], uint32_t label, float scale, float *slope)
{
    float largest = out[0], sum = 0;
    for (int c = 1; c < CLASSES; c++)
        largest = out[c] > largest ? out[c] : largest;
    for (int c = 0; c < CLASSES; c++)
        sum += expf(out[c] - largest);
    for (uint32_t c = 0; slope && c < CLASSES; c++)
        slope[c] = scale * (expf(out[c] - largest) / sum - (c == label ? 1 : 0));
    return logf(sum) + largest - out[label];
}
