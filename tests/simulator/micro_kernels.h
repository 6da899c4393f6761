/* SPDX-License-Identifier: MIT
 *
 * The kernels of the micro model, as calls: what to run, on what, and which bytes it touches.
 */
#ifndef EO_TESTS_SIMULATOR_MICRO_KERNELS_H
#define EO_TESTS_SIMULATOR_MICRO_KERNELS_H

#include <evenodd/evenodd.h>

enum { MICRO_INPUTS = 4, MICRO_OUTPUTS = 2 };

struct micro_call {
    const char *name;
    void (*kernel)(const struct micro_call *call, const void *const *in, void *const *out);
    const void *in[MICRO_INPUTS];
    uint64_t in_bytes[MICRO_INPUTS];
    void *out[MICRO_OUTPUTS];
    uint64_t out_bytes[MICRO_OUTPUTS];
    uint32_t samples, in_width, out_width;
    eo_dtype weights, gradients;
    bool bends; /* softsign after the product */
    bool transpose_a, transpose_b, accumulate; /* of a product of Muon */
    float scale;
};

/* y = W x + b, bent. in: W, b, x; out: y */
void micro_forward(const struct micro_call *call, const void *const *in, void *const *out);
/* dy becomes the gradient of W x + b. in: y; out: dy */
void micro_bend_gradient(const struct micro_call *call, const void *const *in, void *const *out);
/* in: W, dy; out: dx */
void micro_input_gradient(const struct micro_call *call, const void *const *in, void *const *out);
/* in: x, dy; out: dW, db */
void micro_weight_gradient(const struct micro_call *call, const void *const *in, void *const *out);
/* in: y, target; out: dy, the loss (a double, added to) */
void micro_loss(const struct micro_call *call, const void *const *in, void *const *out);

/* C[samples][out_width] (+)= A B, with in_width terms; in: A, B; out: C */
void micro_product(const struct micro_call *call, const void *const *in, void *const *out);

/* At once where stream is NULL and the device is the CPU, else enqueued. */
eo_status micro_run(const struct micro_call *call, bool on_host, void *stream);

#endif
