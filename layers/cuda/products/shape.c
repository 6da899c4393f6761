/* SPDX-License-Identifier: MIT */
#include "layers/cuda/products/shape.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { FULL_ALIGNMENT = 16 }; /* what kernels of cuBLASLt ask for at most, and kernel_ops.h promises for whole tensors */

static uint64_t alignment_of(const void *pointer)
{
    const uintptr_t address = (uintptr_t)pointer;
    for (uint64_t alignment = FULL_ALIGNMENT; alignment > 1; alignment /= 2)
        if (address % alignment == 0)
            return alignment;
    return 1;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct eo_product_key eo_product_key_of(const struct eo_multiply *p, const struct eo_cuda_batch *batch)
{
    struct eo_product_key key = {
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a_stride = p->a.stride,
        .b_stride = p->b.stride,
        .c_stride = p->c_stride,
        .batch = 1,
        .compute = p->types.compute,
        .result = p->weight_gradient ? p->types.gradient : p->types.compute,
        .a_transposed = p->a.transposed,
        .b_transposed = p->b.transposed,
        .accumulate = p->accumulate || p->residual, /* beta 1, the result's own layout: the pointer alone differs */
        .epilogue = p->epilogue,
        .alignment = least(least(alignment_of(p->a.values), alignment_of(p->b.values)), alignment_of(p->c)),
    };
    if (batch != NULL && batch->count > 1) {
        key.batch = batch->count;
        key.a_step = batch->a_step;
        key.b_step = batch->b_step;
        key.c_step = batch->c_step;
    }
    if (p->epilogue == EO_EPILOGUE_BIAS)
        key.alignment = least(key.alignment, alignment_of(p->bias));
    if (p->epilogue == EO_EPILOGUE_BIAS_GRADIENT)
        key.alignment = least(key.alignment, alignment_of(p->bias_gradient));
    if (p->residual)
        key.alignment = least(key.alignment, alignment_of(p->residual));
    if (p->epilogue == EO_EPILOGUE_GELU_GRADIENT) {
        key.aux_stride = p->aux_stride;
        key.alignment = least(key.alignment, alignment_of(p->aux));
    }
    return key;
}

struct eo_product_key eo_product_key_of_float8(const struct eo_multiply *p)
{
    struct eo_multiply rounded = *p;
    rounded.a = (struct eo_operand){NULL, p->k, false};
    rounded.b = (struct eo_operand){NULL, p->k, true};
    struct eo_product_key key = eo_product_key_of(&rounded, NULL);
    key.compute = EO_DTYPE_FLOAT8;
    return key;
}

eo_dtype eo_product_value_type(const struct eo_product_key *key)
{
    return (eo_dtype)(key->compute == EO_DTYPE_FLOAT8 ? key->result : key->compute);
}

uint64_t eo_product_key_hash(const struct eo_product_key *key)
{
    return XXH64(key, sizeof(*key), 0);
}

/* A stored matrix [rows][columns] read columns first is [columns][rows]; transposed, its stored rows are columns. */
static struct eo_product_matrix operand(uint64_t rows, uint64_t columns, uint64_t stride, bool transposed,
                                        uint64_t step, eo_dtype dtype)
{
    return (struct eo_product_matrix){
        .rows = transposed ? rows : columns,
        .columns = transposed ? columns : rows,
        .leading = stride,
        .transpose = transposed,
        .step = step,
        .dtype = dtype,
    };
}

struct eo_product_layout eo_product_layout_of(const struct eo_product_key *key)
{
    const eo_dtype compute = (eo_dtype)key->compute;
    return (struct eo_product_layout){
        .a = operand(key->k, key->n, key->b_stride, key->b_transposed, key->b_step, compute),
        .b = operand(key->m, key->k, key->a_stride, key->a_transposed, key->a_step, compute),
        .d = operand(key->m, key->n, key->c_stride, false, key->c_step, (eo_dtype)key->result),
    };
}

uint64_t eo_product_bias_bytes(const struct eo_product_key *key)
{
    if (key->epilogue == EO_EPILOGUE_BIAS_GRADIENT)
        return key->m * eo_dtype_bytes((eo_dtype)key->result);
    return key->n * eo_dtype_bytes(eo_product_value_type(key));
}

uint64_t eo_product_matrix_bytes(const struct eo_product_matrix *matrix, uint64_t batch)
{
    const uint64_t last = (batch - 1) * matrix->step + (matrix->columns - 1) * matrix->leading + matrix->rows;
    return last * eo_dtype_bytes(matrix->dtype);
}
