/* SPDX-License-Identifier: MIT
 *
 * The network of PyTorch's MNIST example, and of its tutorial on FSDP: two convolutions, a pooling, two linear layers, with
 * ReLU and dropout between them. Plain loops over one sample at a time.
 *
 * Every module is the same product: a patch of its input, times its weights [patch][out], plus the bias. The patch of a linear
 * layer is all of its input. Data lie [row][column][channel].
 */
#ifndef MNIST_NETWORK_H
#define MNIST_NETWORK_H

#include <evenodd/random.h>
#include <stdbool.h>

enum { MODULES = 4, CLASSES = 10 };

struct module {
    const char *name;
    uint32_t kernel;     /* side of a patch; 0: all of the input */
    uint32_t out_channels;
    bool relu, pools;    /* pools: the largest of 2 x 2 */
    float dropout;       /* part that is left out in training */
    /* filled in by network_init */
    uint32_t in_height, in_width, in_channels; /* of its input */
    uint32_t height, width;                    /* of the product */
    uint32_t out_height, out_width;            /* after pooling */
};

/* Which numbers are drawn: the same for a sample of a step, wherever it is computed. */
struct draw {
    eo_random_place place; /* its position is the module */
    bool training;         /* else nothing is left out */
};

/* For images of this size. False: they are too small. */
bool network_init(struct module modules[MODULES], uint32_t height, uint32_t width);

uint32_t module_patch(const struct module *m); /* elements of a patch: rows of the weights */
uint32_t module_in(const struct module *m);    /* elements of its input */
uint32_t module_raw(const struct module *m);   /* ... of its product */
uint32_t module_out(const struct module *m);   /* ... of its output */

/* `raw` is the product after ReLU, which backward reads again. */
void module_forward(const struct module *m, const struct draw *draw, const float *weights, const float *bias,
                    const float *in, float *raw, float *out);

/* Adds to the gradients. `slope` is the loss's by the output; `in_slope` (NULL: not wanted) gets the one by the input. `scratch`
 * has module_raw elements. */
void module_backward(const struct module *m, const struct draw *draw, const float *weights, const float *in,
                     const float *raw, const float *slope, float *in_slope, float *weight_gradient, float *bias_gradient,
                     float *scratch);

/* Log-softmax and its loss for the label; `slope` (NULL: not wanted) gets the loss's by `out`, times `scale`. */
float network_loss(const float out[CLASSES], uint32_t label, float scale, float *slope);

/* From 0 to below 1, of an element of the place: no order of calls matters. */
float network_random(const eo_random_place *place, uint32_t element);

#endif
