/* SPDX-License-Identifier: MIT
 *
 * A product as cuBLASLt sees it: pure functions, tested without a device.
 *
 * cuBLASLt counts columns first. A row-major matrix with rows `stride` apart is, to it, the transposed matrix with
 * leading dimension `stride`. So instead of C = A B it computes C^T = B^T A^T, and that lies in memory as C row-major:
 * our B is its A, our A is its B, m and n change places, and a bias along our columns is one along its rows, which is
 * what its epilogue adds.
 */
#ifndef EO_LAYERS_CUDA_PRODUCTS_SHAPE_H
#define EO_LAYERS_CUDA_PRODUCTS_SHAPE_H

#include "layers/kernel_ops.h"

/* Several products of one shape: operands of the next one begin `step` elements further. count 1: one product. */
struct eo_cuda_batch {
    uint64_t count, a_step, b_step, c_step;
};

/* What a plan is found by. Compared as bytes: all fields are 64 bits wide. */
struct eo_product_key {
    uint64_t m, n, k;
    uint64_t a_stride, b_stride, c_stride, aux_stride;
    uint64_t batch, a_step, b_step, c_step;
    uint64_t compute, result; /* eo_dtype of A, B, bias and aux; of C. A and B in float8: bias and aux are C's */
    uint64_t a_transposed, b_transposed, accumulate, epilogue;
    uint64_t alignment; /* of the least aligned pointer: 16, or less */
};
enum { EO_PRODUCT_KEY_FIELDS = sizeof(struct eo_product_key) / sizeof(uint64_t) };

/* NULL pointers (a product to be prepared) count as aligned. batch NULL: one product. */
struct eo_product_key eo_product_key_of(const struct eo_multiply *product, const struct eo_cuda_batch *batch);
/* Of a float8 product, whose operands lie in its scratch. */
struct eo_product_key eo_product_key_of_float8(const struct eo_multiply *product);
/* Of bias and aux. */
eo_dtype eo_product_value_type(const struct eo_product_key *key);
uint64_t eo_product_key_hash(const struct eo_product_key *key);

/* One matrix, columns first. */
struct eo_product_matrix {
    uint64_t rows, columns, leading;
    bool transpose; /* cuBLASLt's op for it */
    uint64_t step;  /* of a batch */
    eo_dtype dtype;
};

/* d = op(a) op(b), as cuBLASLt is told. */
struct eo_product_layout {
    struct eo_product_matrix a, b, d;
};
struct eo_product_layout eo_product_layout_of(const struct eo_product_key *key);

/* Of the vector that the epilogue reads or writes. */
uint64_t eo_product_bias_bytes(const struct eo_product_key *key);

/* Bytes from the first element of a matrix to behind its last, the whole batch. */
uint64_t eo_product_matrix_bytes(const struct eo_product_matrix *matrix, uint64_t batch);

#endif
