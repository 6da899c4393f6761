/* SPDX-License-Identifier: MIT
 *
 * A product as the body of a simulated kernel, by the reference kernels.
 */
#ifndef EO_TESTS_SIMULATOR_CUBLASLT_PRODUCT_H
#define EO_TESTS_SIMULATOR_CUBLASLT_PRODUCT_H

#include "layers/kernel_ops.h"
#include "cublaslt.h"

struct sim_cublaslt_product {
    struct eo_multiply multiply;
    uint64_t batch, a_step, b_step, c_step;
    const float *a_scales, *b_scales; /* of float8 operands: of our A's rows and B's columns */
    struct {
        uint64_t a, b, c, bias, aux, bias_gradient;
    } bytes;
};

extern struct sim_cublaslt_counts sim_cublaslt_counted;

/* `arguments`: the product. */
void sim_cublaslt_product(const void *arguments);

#endif
