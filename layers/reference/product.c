/* SPDX-License-Identifier: MIT
 *
 * The reference product: blocks of both operands are converted to fp32 on the stack, and each element's sum goes through
 * k in order.
 */
#include <math.h>

#include "layers/kernel_table.h"
#include "layers/reference/kernels.h"

/* ---- GELU, the tanh form ---- */

static const float gelu_factor = 0.7978845608F; /* sqrt(2 / pi) */

static float gelu(float x)
{
    return 0.5F * x * (1 + tanhf(gelu_factor * (x + 0.044715F * x * x * x)));
}

/* Beyond +-12 it is 0 or 1, and x^2 may be infinite. */
static float gelu_slope(float at)
{
    const float x = at > 12 ? 12 : at < -12 ? -12 : at;
    const float t = tanhf(gelu_factor * (x + 0.044715F * x * x * x));
    return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * gelu_factor * (1 + 3 * 0.044715F * x * x);
}

void eo_ref_gelu_forward(const struct eo_gelu *g)
{
    const eo_dtype dtype = g->types.compute;
    for (uint64_t i = 0; i < g->rows * g->width; i++) {
        const float bias = g->bias ? eo_element_load(dtype, g->bias, i % g->width) : 0;
        eo_element_store(dtype, g->out, i, gelu(eo_element_load(dtype, g->in, i) + bias));
    }
}

void eo_ref_gelu_gradient(void *values, const void *aux, void *again, eo_dtype dtype, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const float x = eo_element_load(dtype, aux, i);
        eo_element_store(dtype, values, i, eo_element_load(dtype, values, i) * gelu_slope(x));
        if (again)
            eo_element_store(dtype, again, i, gelu(x));
    }
}

/* ---- the product ---- */

struct blocks {
    float sums[EO_PRODUCT_BAND][EO_PRODUCT_PANEL];
    float a[EO_PRODUCT_BAND][EO_PRODUCT_DEPTH];
    float b[EO_PRODUCT_DEPTH][EO_PRODUCT_PANEL];
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* to[rows][columns], `to_stride` apart, gets the part of the operand that begins at (row, column); zeros behind it up to
 * the block's size, so that the tile needs no edges. */
static void block_load(eo_dtype dtype, float *to, uint64_t to_stride, uint64_t to_rows, const struct eo_operand *from,
                       uint64_t row, uint64_t rows, uint64_t column, uint64_t columns)
{
    memset(to, 0, to_rows * to_stride * sizeof(float));
    if (from->transposed) {
        for (uint64_t j = 0; j < columns; j++)
            for (uint64_t i = 0; i < rows; i++)
                to[i * to_stride + j] = eo_element_load(dtype, from->values, (column + j) * from->stride + row + i);
    } else {
        for (uint64_t i = 0; i < rows; i++)
            eo_elements_load(dtype, to + i * to_stride, from->values, (row + i) * from->stride + column, columns);
    }
}

static void element_finish(const struct eo_multiply *p, eo_dtype c_dtype, uint64_t row, uint64_t column, float sum)
{
    const eo_dtype dtype = p->types.compute;
    const uint64_t at = row * p->c_stride + column, aux_at = row * p->aux_stride + column;
    if (p->residual)
        sum += eo_element_load(dtype, p->residual, at);
    switch (p->epilogue) {
    case EO_EPILOGUE_NONE:
    case EO_EPILOGUE_BIAS_GRADIENT: /* not of this table */
        if (p->accumulate)
            sum = eo_element_load(c_dtype, p->c, at) + sum;
        break;
    case EO_EPILOGUE_BIAS:
        sum += eo_element_load(dtype, p->bias, column);
        break;
    case EO_EPILOGUE_BIAS_GELU:
        sum += eo_element_load(dtype, p->bias, column);
        eo_element_store(dtype, p->aux, aux_at, sum);
        sum = gelu(eo_element_load(dtype, p->aux, aux_at));
        break;
    case EO_EPILOGUE_GELU_GRADIENT:
        sum *= gelu_slope(eo_element_load(dtype, p->aux, aux_at));
        if (p->remakes)
            eo_element_store(dtype, p->aux, aux_at, gelu(eo_element_load(dtype, p->aux, aux_at)));
        break;
    }
    eo_element_store(c_dtype, p->c, at, sum);
}

void eo_ref_multiply(const struct eo_multiply *p)
{
    const eo_dtype dtype = p->types.compute;
    const eo_dtype c_dtype = p->weight_gradient ? p->types.gradient : dtype;
    const struct eo_kernel_table *kernels = eo_kernels();
    _Alignas(64) struct blocks blocks;
    for (uint64_t row = 0; row < p->m; row += EO_PRODUCT_BAND) {
        const uint64_t rows = least(EO_PRODUCT_BAND, p->m - row);
        for (uint64_t column = 0; column < p->n; column += EO_PRODUCT_PANEL) {
            const uint64_t columns = least(EO_PRODUCT_PANEL, p->n - column);
            memset(blocks.sums, 0, sizeof(blocks.sums));
            for (uint64_t i = 0; i < p->k; i += EO_PRODUCT_DEPTH) {
                const uint64_t depth = least(EO_PRODUCT_DEPTH, p->k - i);
                block_load(dtype, blocks.a[0], EO_PRODUCT_DEPTH, EO_PRODUCT_BAND, &p->a, row, rows, i, depth);
                block_load(dtype, blocks.b[0], EO_PRODUCT_PANEL, EO_PRODUCT_DEPTH, &p->b, i, depth, column, columns);
                kernels->product_tile(blocks.sums[0], blocks.a[0], blocks.b[0], EO_PRODUCT_BAND, depth);
            }
            for (uint64_t r = 0; r < rows; r++)
                for (uint64_t c = 0; c < columns; c++)
                    element_finish(p, c_dtype, row + r, column + c, blocks.sums[r][c]);
        }
    }
}
