/* SPDX-License-Identifier: MIT
 *
 * Causal attention and its gradients for a sample of rows, on the host, from the definition and in double.
 */
#ifndef EO_TESTS_GPU_SDPA_REFERENCE_H
#define EO_TESTS_GPU_SDPA_REFERENCE_H

#include "layers/kernel_ops.h"

/* Rows of a packed matrix [batch x seq][3 parts], as fp32 on the host. What the device computed is told apart. */
struct sdpa_host {
    struct eo_attention_shape shape;
    const float *q, *k, *v;          /* strides of the shape */
    const float *out_gradient;       /* stride of the shape */
    const float *out, *log_sum_exp;  /* the device's; out is needed for gradients, log_sum_exp for those of keys */
    const float *q_gradient, *k_gradient, *v_gradient; /* the device's */
};

/* The largest difference from the reference, over the largest value of the reference. */
struct sdpa_errors {
    double out, log_sum_exp, q_gradient, k_gradient, v_gradient;
    uint64_t row_count; /* of queries that were compared */
};

/* About `rows` rows of queries, and as many of keys, evenly spread, the last included. */
struct sdpa_errors sdpa_compare(const struct sdpa_host *host, uint32_t rows);

#endif
