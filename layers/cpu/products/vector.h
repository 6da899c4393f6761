/* SPDX-License-Identifier: MIT
 *
 * The inner part of the reference product at one level. Each sum is taken in order of k, by a product and an addition
 * that round each: the same bits at every level.
 */
#ifndef EO_LAYERS_CPU_PRODUCTS_VECTOR_H
#define EO_LAYERS_CPU_PRODUCTS_VECTOR_H

enum { PRODUCT_VECTORS = EO_PRODUCT_PANEL / V };
#if EO_LEVEL == 512
enum { PRODUCT_ROWS = 4 }; /* as many sums as hide the latency of an addition and fit the registers */
#elif EO_LEVEL == 256
enum { PRODUCT_ROWS = 2 };
#else
enum { PRODUCT_ROWS = 1 };
#endif
_Static_assert(EO_PRODUCT_PANEL % V == 0 && EO_PRODUCT_BAND % PRODUCT_ROWS == 0, "a tile of a product has an edge");

/* sums[row][column] += sum over i < depth of a[row][i] b[i][column] */
static void product_tile(float *sums, const float *a, const float *b, uint64_t rows, uint64_t depth)
{
    for (uint64_t row = 0; row < rows; row += PRODUCT_ROWS) {
        vf sum[PRODUCT_ROWS][PRODUCT_VECTORS];
        for (int r = 0; r < PRODUCT_ROWS; r++)
            for (int v = 0; v < PRODUCT_VECTORS; v++)
                sum[r][v] = v_load(sums + (row + (uint64_t)r) * EO_PRODUCT_PANEL + v * V);
        for (uint64_t i = 0; i < depth; i++) {
            for (int r = 0; r < PRODUCT_ROWS; r++) {
                const vf factor = v_set(a[(row + (uint64_t)r) * EO_PRODUCT_DEPTH + i]);
                for (int v = 0; v < PRODUCT_VECTORS; v++)
                    sum[r][v] += factor * v_load(b + i * EO_PRODUCT_PANEL + v * V);
            }
        }
        for (int r = 0; r < PRODUCT_ROWS; r++)
            for (int v = 0; v < PRODUCT_VECTORS; v++)
                v_store(sums + (row + (uint64_t)r) * EO_PRODUCT_PANEL + v * V, sum[r][v]);
    }
}

#endif
