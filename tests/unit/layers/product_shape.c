/* SPDX-License-Identifier: MIT
 *
 * A row-major product and what cuBLASLt, which counts columns first, is told to compute are the same numbers.
 * Method: a product written down by cuBLASLt's own definition runs on the layout that we give it, against the product
 * written down row by row; every combination of transposed operands, strides wider than rows, batches.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "layers/cuda/products/shape.h"

enum { VALUES = 4096 };

static float value_of(uint64_t seed)
{
    return (float)((seed * 2654435761u >> 7) % 17) - 8;
}

/* Element (row, column) of op(matrix), columns first. */
static double column_first(const float *values, const struct eo_product_matrix *matrix, uint64_t row, uint64_t column)
{
    return matrix->transpose ? values[row * matrix->leading + column] : values[column * matrix->leading + row];
}

/* d = op(a) op(b). op(x) has the rows and columns of x, or of its transpose. */
static void multiply_columns_first(const struct eo_product_layout *layout, const float *a, const float *b, float *d)
{
    const uint64_t inner = layout->a.transpose ? layout->a.rows : layout->a.columns;
    cr_assert_eq(layout->d.rows, layout->a.transpose ? layout->a.columns : layout->a.rows);
    cr_assert_eq(layout->d.columns, layout->b.transpose ? layout->b.rows : layout->b.columns);
    cr_assert_eq(inner, layout->b.transpose ? layout->b.columns : layout->b.rows);
    cr_assert(layout->a.leading >= layout->a.rows && layout->b.leading >= layout->b.rows &&
              layout->d.leading >= layout->d.rows);
    for (uint64_t row = 0; row < layout->d.rows; row++)
        for (uint64_t column = 0; column < layout->d.columns; column++) {
            double sum = 0;
            for (uint64_t i = 0; i < inner; i++)
                sum += column_first(a, &layout->a, row, i) * column_first(b, &layout->b, i, column);
            d[column * layout->d.leading + row] = (float)sum;
        }
}

static double row_first(const float *values, const struct eo_operand *operand, uint64_t row, uint64_t column)
{
    return operand->transposed ? values[column * operand->stride + row] : values[row * operand->stride + column];
}

static void check_product(uint64_t m, uint64_t n, uint64_t k, bool a_transposed, bool b_transposed, uint64_t more)
{
    static float a[VALUES], b[VALUES], c[VALUES], d[VALUES];
    for (int i = 0; i < VALUES; i++) {
        a[i] = value_of((uint64_t)i);
        b[i] = value_of((uint64_t)i + VALUES);
        c[i] = d[i] = 99;
    }
    const struct eo_multiply product = {
        .c = c,
        .c_stride = n + more,
        .a = {a, (a_transposed ? m : k) + more, a_transposed},
        .b = {b, (b_transposed ? k : n) + 2 * more, b_transposed},
        .m = m,
        .n = n,
        .k = k,
    };
    for (uint64_t row = 0; row < m; row++)
        for (uint64_t column = 0; column < n; column++) {
            double sum = 0;
            for (uint64_t i = 0; i < k; i++)
                sum += row_first(a, &product.a, row, i) * row_first(b, &product.b, i, column);
            c[row * product.c_stride + column] = (float)sum;
        }
    const struct eo_product_key key = eo_product_key_of(&product, NULL);
    const struct eo_product_layout layout = eo_product_layout_of(&key);
    multiply_columns_first(&layout, b, a, d); /* our B is its A */
    cr_assert_arr_eq(c, d, sizeof(c), "m %d n %d k %d transposed %d %d", (int)m, (int)n, (int)k, a_transposed,
                     b_transposed);
    cr_assert_eq(eo_product_matrix_bytes(&layout.d, 1), ((m - 1) * product.c_stride + n) * sizeof(float));
}

Test(product_shape, a_product_columns_first_lies_in_memory_as_the_row_major_one)
{
    for (int transposed = 0; transposed < 4; transposed++)
        for (uint64_t more = 0; more < 4; more += 3) {
            check_product(5, 7, 3, transposed & 1, transposed & 2, more);
            check_product(1, 6, 9, transposed & 1, transposed & 2, more);
            check_product(8, 1, 4, transposed & 1, transposed & 2, more);
        }
}

static struct eo_multiply linear_layer(void)
{
    return (struct eo_multiply){
        .types = {EO_DTYPE_BF16, EO_DTYPE_FP32},
        .c = (void *)(uintptr_t)0x1000,
        .c_stride = 64,
        .a = {(void *)(uintptr_t)0x2000, 32, false},
        .b = {(void *)(uintptr_t)0x3000, 32, true},
        .m = 16,
        .n = 64,
        .k = 32,
    };
}

Test(product_shape, a_weight_gradient_is_in_the_type_of_gradients)
{
    struct eo_multiply product = linear_layer();
    struct eo_product_key key = eo_product_key_of(&product, NULL);
    cr_assert_eq(eo_product_layout_of(&key).d.dtype, EO_DTYPE_BF16);
    product.weight_gradient = true;
    key = eo_product_key_of(&product, NULL);
    cr_assert_eq(eo_product_layout_of(&key).d.dtype, EO_DTYPE_FP32);
    cr_assert_eq(eo_product_layout_of(&key).a.dtype, EO_DTYPE_BF16);
}

Test(product_shape, what_was_prepared_without_pointers_is_found_with_aligned_ones_only)
{
    struct eo_multiply product = linear_layer(), prepared = product;
    prepared.c = NULL;
    prepared.a.values = prepared.b.values = NULL;
    const struct eo_product_key first = eo_product_key_of(&prepared, NULL);
    struct eo_product_key second = eo_product_key_of(&product, NULL);
    cr_assert_arr_eq(&first, &second, sizeof(first));
    cr_assert_eq(eo_product_key_hash(&first), eo_product_key_hash(&second));
    product.b.values = (void *)(uintptr_t)0x3004;
    second = eo_product_key_of(&product, NULL);
    cr_assert_eq(second.alignment, 4);
    product.b.values = (void *)(uintptr_t)0x3002;
    second = eo_product_key_of(&product, NULL);
    cr_assert_eq(second.alignment, 2);
}

Test(product_shape, bias_and_auxiliary_tensor_count_only_where_the_epilogue_has_them)
{
    struct eo_multiply product = linear_layer();
    product.bias = (void *)(uintptr_t)0x4002;
    product.aux = (void *)(uintptr_t)0x5008;
    product.aux_stride = 64;
    struct eo_product_key key = eo_product_key_of(&product, NULL);
    cr_assert_eq(key.alignment, 16);
    cr_assert_eq(key.aux_stride, 0);
    product.epilogue = EO_EPILOGUE_GELU_GRADIENT;
    key = eo_product_key_of(&product, NULL);
    cr_assert_eq(key.alignment, 8);
    cr_assert_eq(key.aux_stride, 64);
    product.epilogue = EO_EPILOGUE_BIAS;
    key = eo_product_key_of(&product, NULL);
    cr_assert_eq(key.alignment, 2);
    cr_assert_eq(key.aux_stride, 0);
    cr_assert_eq(eo_product_bias_bytes(&key), product.n * eo_dtype_bytes(product.types.compute));
    product.residual = (void *)(uintptr_t)0x6002;
    key = eo_product_key_of(&product, NULL);
    cr_assert(key.accumulate && key.alignment == 2, "a residual is added as an old result is");
    product.residual = NULL;
    product.epilogue = EO_EPILOGUE_BIAS_GRADIENT;
    product.bias_gradient = (void *)(uintptr_t)0x4004;
    product.weight_gradient = true;
    product.types.gradient = EO_DTYPE_FP32;
    key = eo_product_key_of(&product, NULL);
    cr_assert_eq(key.alignment, 4, "the gradient's, not the bias's");
    cr_assert_eq(eo_product_bias_bytes(&key), product.m * 4);
}

Test(product_shape, a_batch_ends_with_its_last_product)
{
    const struct eo_multiply product = linear_layer();
    const struct eo_cuda_batch batch = {3, 8, 16, 1000};
    const struct eo_product_key key = eo_product_key_of(&product, &batch);
    const struct eo_product_layout layout = eo_product_layout_of(&key);
    cr_assert_eq(layout.a.step, 16, "our B is its A");
    cr_assert_eq(layout.b.step, 8);
    cr_assert_eq(eo_product_matrix_bytes(&layout.d, 3), (2 * 1000 + 15 * 64 + 64) * 2);
    const struct eo_cuda_batch one = {1, 8, 16, 1000};
    const struct eo_product_key single = eo_product_key_of(&product, &one), none = eo_product_key_of(&product, NULL);
    cr_assert_arr_eq(&single, &none, sizeof(none), "the steps of one product are nobody's");
}

Test(product_shape, keys_that_differ_in_one_field_have_different_hashes)
{
    const struct eo_multiply product = linear_layer();
    const struct eo_product_key key = eo_product_key_of(&product, NULL);
    for (int i = 0; i < EO_PRODUCT_KEY_FIELDS; i++) {
        struct eo_product_key other = key;
        ((uint64_t *)&other)[i] ^= 1;
        cr_assert_neq(eo_product_key_hash(&key), eo_product_key_hash(&other), "field %d", i);
    }
}
