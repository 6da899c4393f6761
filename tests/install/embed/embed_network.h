/* SPDX-License-Identifier: MIT
 *
 * The network that the embedding programs train, for C11 and C++17: sizes, data, kernels in fp32, and the same
 * training once more, unsharded and in double, which is what they must agree with. None of it knows evenodd.
 *
 *     position   0 input   1 body    2 fixed   3 body    4 head
 *     layer      0         1         2         1         3
 *     sizes      7 -> 13   13 -> 13  13 -> 13  13 -> 13  13 -> 5      all but the head with tanh
 *
 * The body is used twice (tied), `fixed` is not trained (frozen), and no size is a multiple of anything, so that
 * every shard needs padding. The loss is half the mean square of the error.
 */
#ifndef EO_TESTS_INSTALL_EMBED_EMBED_NETWORK_H
#define EO_TESTS_INSTALL_EMBED_EMBED_NETWORK_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum {
    EMBED_LAYERS = 4,
    EMBED_POSITIONS = 5,
    EMBED_PARAMETERS = 2 * EMBED_LAYERS, /* weight and bias of each layer */
    EMBED_WIDTH = 13,
    EMBED_IN = 7,
    EMBED_OUT = 5,
    EMBED_BATCH = 12, /* samples of a step, over all ranks and micro-batches */
    EMBED_STEPS = 20,
    EMBED_WEIGHTS = 13 * 7 + 13 + 2 * (13 * 13 + 13) + 5 * 13 + 5,
};

struct embed_layer {
    const char *weight, *bias; /* names */
    int in, out, frozen;
    int offset; /* of weight[out][in] in an array of all weights; bias[out] follows */
};

static const struct embed_layer embed_layers[EMBED_LAYERS] = {
    {"input.weight", "input.bias", 7, 13, 0, 0},
    {"body.weight", "body.bias", 13, 13, 0, 104},
    {"fixed.weight", "fixed.bias", 13, 13, 1, 286},
    {"head.weight", "head.bias", 13, 5, 0, 468},
};
static const int embed_layer_of[EMBED_POSITIONS] = {0, 1, 2, 1, 3};

static inline int embed_has_tanh(int position)
{
    return position + 1 < EMBED_POSITIONS;
}

/* The settings of both trainings. */
static const double embed_rate = 0.02, embed_beta1 = 0.9, embed_beta2 = 0.95, embed_eps = 1e-8, embed_decay = 0.1,
                    embed_clip = 0.2, embed_momentum = 0.9;

/* --- data --- */

/* A number in [-1, 1) that depends on nothing but its arguments (the finaliser of SplitMix64, Steele et al. 2014). */
static inline float embed_number(uint64_t seed, uint64_t index)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15u + index + 1;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (float)((double)(z >> 40) / (double)(1 << 23) - 1.0);
}

static inline void embed_sample(uint64_t seed, int step, int sample, float *input, float *target)
{
    const uint64_t first = ((uint64_t)step * EMBED_BATCH + (uint64_t)sample) * EMBED_IN;
    for (int i = 0; i < EMBED_IN; i++)
        input[i] = embed_number(seed + 1, first + (uint64_t)i);
    for (int o = 0; o < EMBED_OUT; o++)
        target[o] = sinf(2 * input[o] + input[o + 1] * input[o + 2]);
}

static inline void embed_initial_weights(uint64_t seed, float *weights)
{
    for (int l = 0; l < EMBED_LAYERS; l++) {
        const struct embed_layer *layer = &embed_layers[l];
        const float scale = 1.5f / sqrtf((float)layer->in);
        const int count = layer->out * layer->in;
        for (int i = 0; i < count + layer->out; i++)
            weights[layer->offset + i] =
                (i < count ? scale : 0.1f) * embed_number(seed, (uint64_t)(layer->offset + i));
    }
}

/* --- kernels: n samples, row-major --- */

static inline void embed_forward(const struct embed_layer *l, int has_tanh, int n, const float *weight,
                                 const float *bias, const float *x, float *y)
{
    for (int s = 0; s < n; s++) {
        for (int o = 0; o < l->out; o++) {
            float sum = bias[o];
            for (int i = 0; i < l->in; i++)
                sum += weight[o * l->in + i] * x[s * l->in + i];
            y[s * l->out + o] = has_tanh ? tanhf(sum) : sum;
        }
    }
}

/* From the gradient of y to that of what tanh was taken of, in place. */
static inline void embed_tanh_gradient(const struct embed_layer *l, int n, const float *y, float *dy)
{
    for (int i = 0; i < n * l->out; i++)
        dy[i] *= 1 - y[i] * y[i];
}

static inline void embed_input_gradient(const struct embed_layer *l, int n, const float *weight, const float *dy,
                                        float *dx)
{
    memset(dx, 0, sizeof(*dx) * (size_t)(n * l->in));
    for (int s = 0; s < n; s++)
        for (int o = 0; o < l->out; o++)
            for (int i = 0; i < l->in; i++)
                dx[s * l->in + i] += dy[s * l->out + o] * weight[o * l->in + i];
}

static inline void embed_weight_gradient(const struct embed_layer *l, int n, const float *x, const float *dy,
                                         float *dweight, float *dbias)
{
    memset(dweight, 0, sizeof(*dweight) * (size_t)(l->out * l->in));
    memset(dbias, 0, sizeof(*dbias) * (size_t)l->out);
    for (int s = 0; s < n; s++) {
        for (int o = 0; o < l->out; o++) {
            for (int i = 0; i < l->in; i++)
                dweight[o * l->in + i] += dy[s * l->out + o] * x[s * l->in + i];
            dbias[o] += dy[s * l->out + o];
        }
    }
}

/* The loss (a mean over n samples); its gradient, times scale, goes to dy. */
static inline double embed_loss(int n, const float *y, const float *target, float scale, float *dy)
{
    double loss = 0;
    for (int i = 0; i < n * EMBED_OUT; i++) {
        const float error = y[i] - target[i];
        loss += 0.5 * error * error;
        dy[i] = error * scale / (float)(n * EMBED_OUT);
    }
    return loss / (n * EMBED_OUT);
}

/* --- the same training, unsharded, in double --- */

struct embed_reference {
    double weights[EMBED_WEIGHTS], gradients[EMBED_WEIGHTS];
    double state[2][EMBED_WEIGHTS]; /* AdamW's moments; SGD uses the first */
    double loss[EMBED_STEPS], norm[EMBED_STEPS];
};

/* One sample, by the chain rule written out; gradients are added up. */
static inline double embed_reference_sample(struct embed_reference *r, const float *input, const float *target)
{
    double h[EMBED_POSITIONS + 1][EMBED_WIDTH] = {{0}}, d[EMBED_WIDTH] = {0}, below[EMBED_WIDTH], loss = 0;
    for (int i = 0; i < EMBED_IN; i++)
        h[0][i] = (double)input[i];
    for (int p = 0; p < EMBED_POSITIONS; p++) {
        const struct embed_layer *l = &embed_layers[embed_layer_of[p]];
        const double *w = r->weights + l->offset, *b = w + l->in * l->out;
        for (int o = 0; o < l->out; o++) {
            double sum = b[o];
            for (int i = 0; i < l->in; i++)
                sum += w[o * l->in + i] * h[p][i];
            h[p + 1][o] = embed_has_tanh(p) ? tanh(sum) : sum;
        }
    }
    for (int o = 0; o < EMBED_OUT; o++) {
        d[o] = (h[EMBED_POSITIONS][o] - (double)target[o]) / (EMBED_OUT * EMBED_BATCH);
        loss += 0.5 * d[o] * (h[EMBED_POSITIONS][o] - (double)target[o]);
    }
    for (int p = EMBED_POSITIONS - 1; p >= 0; p--) {
        const struct embed_layer *l = &embed_layers[embed_layer_of[p]];
        const double *w = r->weights + l->offset;
        double *dw = r->gradients + l->offset, *db = dw + l->in * l->out;
        memset(below, 0, sizeof(below));
        for (int o = 0; o < l->out; o++) {
            const double dz = embed_has_tanh(p) ? d[o] * (1 - h[p + 1][o] * h[p + 1][o]) : d[o];
            for (int i = 0; i < l->in; i++) {
                below[i] += dz * w[o * l->in + i];
                dw[o * l->in + i] += dz * h[p][i];
            }
            db[o] += dz;
        }
        memcpy(d, below, sizeof(d));
    }
    return loss;
}

static inline void embed_reference_update(struct embed_reference *r, int step, double factor, int sgd)
{
    for (int l = 0; l < EMBED_LAYERS; l++) {
        const struct embed_layer *layer = &embed_layers[l];
        const int count = layer->in * layer->out;
        for (int i = layer->offset; !layer->frozen && i < layer->offset + count + layer->out; i++) {
            const double g = r->gradients[i] * factor, decay = i < layer->offset + count ? embed_decay : 0;
            double *m = &r->state[0][i], *v = &r->state[1][i];
            if (sgd) {
                *m = embed_momentum * *m + g;
                r->weights[i] -= embed_rate * *m;
                continue;
            }
            *m = embed_beta1 * *m + (1 - embed_beta1) * g;
            *v = embed_beta2 * *v + (1 - embed_beta2) * g * g;
            const double m_hat = *m / (1 - pow(embed_beta1, step + 1)), v_hat = *v / (1 - pow(embed_beta2, step + 1));
            r->weights[i] -= embed_rate * (m_hat / (sqrt(v_hat) + embed_eps) + decay * r->weights[i]);
        }
    }
}

static inline void embed_reference_train(struct embed_reference *r, uint64_t seed, int sgd)
{
    float initial[EMBED_WEIGHTS], input[EMBED_IN], target[EMBED_OUT];
    memset(r, 0, sizeof(*r));
    embed_initial_weights(seed, initial);
    for (int i = 0; i < EMBED_WEIGHTS; i++)
        r->weights[i] = (double)initial[i];
    for (int step = 0; step < EMBED_STEPS; step++) {
        memset(r->gradients, 0, sizeof(r->gradients));
        for (int s = 0; s < EMBED_BATCH; s++) {
            embed_sample(seed, step, s, input, target);
            r->loss[step] += embed_reference_sample(r, input, target);
        }
        double squares = 0;
        for (int l = 0; l < EMBED_LAYERS; l++) {
            const struct embed_layer *layer = &embed_layers[l];
            for (int i = 0; !layer->frozen && i < (layer->in + 1) * layer->out; i++)
                squares += r->gradients[layer->offset + i] * r->gradients[layer->offset + i];
        }
        r->norm[step] = sqrt(squares);
        embed_reference_update(r, step, r->norm[step] > embed_clip ? embed_clip / r->norm[step] : 1, sgd);
    }
}

#endif
