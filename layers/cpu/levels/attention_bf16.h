/* SPDX-License-Identifier: MIT
 *
 * The vectors' part of attention in bf16 by products of pairs (attention_bf16.c), for AVX-512: between the products' sums and
 * their operands.
 */
#ifndef EO_LAYERS_CPU_LEVELS_ATTENTION_BF16_H
#define EO_LAYERS_CPU_LEVELS_ATTENTION_BF16_H

#include "layers/cpu/levels/attention_weights.h"

enum { TOP_ROWS = 4 }; /* maxima side by side, to hide their latency */

INLINE void scores_max(const struct eo_attention_weights *w, bool masked, vf max[SIDES])
{
    vf m[TOP_ROWS][SIDES];
    for (int i = 0; i < TOP_ROWS * SIDES; i++)
        m[i / SIDES][i % SIDES] = v_set(-INFINITY);
    for (uint64_t row = 0; row < w->keys; row += TOP_ROWS)
        for (int i = 0; i < TOP_ROWS; i++)
            for (int side = 0; side < SIDES; side++) {
                const __mmask16 mask = side_mask(masked, w->first_query, w->first_key + row + (uint64_t)i, side);
                const vf score = v_load(w->scores + (row + (uint64_t)i) * EO_PANEL + side * V);
                m[i][side] = (vf)_mm512_mask_max_ps((__m512)m[i][side], mask, (__m512)m[i][side], (__m512)score);
            }
    for (int side = 0; side < SIDES; side++)
        max[side] = v_max(v_max(m[0][side], m[1][side]), v_max(m[2][side], m[3][side]));
}

/* A weight may exceed 1 by this power of e: so tops rise seldom, and sums are seldom corrected. */
#define TOP_SLACK 8.0f

static bool attention_top(const struct eo_attention_weights *w)
{
    vf max[SIDES];
    if (weights_masked(w))
        scores_max(w, true, max);
    else
        scores_max(w, false, max);
    bool rises = false;
    for (int side = 0; side < SIDES; side++) {
        const vf old = v_load(w->top + side * V), found = max[side] * v_set(w->scale);
        const __mmask16 higher = _mm512_cmp_ps_mask((__m512)found, (__m512)(old + v_set(TOP_SLACK)), _CMP_GT_OQ);
        const vf top = (vf)_mm512_mask_mov_ps((__m512)old, higher, (__m512)found);
        /* where the top stays, not even infinity less infinity counts */
        const vf factor = v_exp2_masked(higher, (old - top) * v_set(LOG2_E));
        const vf correction = (vf)_mm512_mask_mov_ps(_mm512_set1_ps(1), higher, (__m512)factor);
        v_store(w->top + side * V, top);
        v_store(w->sum + side * V, v_load(w->sum + side * V) * correction);
        v_store(w->correction + side * V, correction);
        rises = rises || higher != 0;
    }
    return rises;
}

INLINE void weights_of(const struct eo_attention_weights *w, bool masked)
{
    struct weights_state state = weights_open(w);
    for (uint64_t row = 0; row < w->keys; row += 2)
        weights_pair(w, masked, row, &state);
    weights_close(w, &state);
}

static void attention_weights(const struct eo_attention_weights *weights)
{
    const struct eo_attention_weights w = *weights; /* a copy: stores cannot change it */
    if (weights_masked(&w))
        weights_of(&w, true);
    else
        weights_of(&w, false);
}

/* A row of A: the upper halves of all queries in turn. */
INLINE void row_store(uint16_t *to, vu first, vu second)
{
    static const uint16_t upper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                       33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16((__m512i)first, _mm512_loadu_si512(upper), (__m512i)second));
}

INLINE void slopes_of(const struct eo_attention_slopes *s, bool masked)
{
    const vf factor = v_set(s->scale * LOG2_E);
    vf shift[SIDES], delta[SIDES];
    for (int side = 0; side < SIDES; side++) {
        shift[side] = v_load(s->log_sum_exp + side * V) * v_set(-LOG2_E);
        delta[side] = v_load(s->delta + side * V);
    }
    for (uint64_t row = 0; row < s->keys; row += 2) {
        vu slope[2][SIDES];
        for (uint64_t i = 0; i < 2; i++) {
            vf weight[SIDES], w_slope[SIDES];
            for (int side = 0; side < SIDES; side++) {
                const uint64_t at = (row + i) * EO_PANEL + (uint64_t)side * V;
                weight[side] = v_exp2_masked(side_mask(masked, s->first_query, s->first_key + row + i, side),
                                             v_fma(v_load(s->scores + at), factor, shift[side]));
                w_slope[side] = weight[side] * (v_load(s->weight_gradients + at) - delta[side]);
                slope[i][side] = rounded_number(w_slope[side]);
            }
            row_store(s->weight_rows + (row + i) * s->row_stride, rounded_number(weight[0]), rounded_number(weight[1]));
            row_store(s->slope_rows + (row + i) * s->row_stride, slope[i][0], slope[i][1]);
        }
        for (int side = 0; side < SIDES; side++)
            pair_store(s->slope_panel + row / 2 * EO_PANEL + side * V, slope[0][side], slope[1][side]);
    }
}

static void attention_slopes(const struct eo_attention_slopes *slopes)
{
    const struct eo_attention_slopes s = *slopes; /* a copy: stores cannot change it */
    if (s.first_key + s.keys > s.first_query + 1)
        slopes_of(&s, true);
    else
        slopes_of(&s, false);
}

static void attention_scale(float *sums, uint64_t rows, const float *factors)
{
    for (uint64_t c = 0; c < EO_PANEL; c += V) {
        const vf factor = v_load(factors + c);
        for (uint64_t row = 0; row < rows; row++)
            v_store(sums + row * EO_PANEL + c, v_load(sums + row * EO_PANEL + c) * factor);
    }
}

static float attention_dot(const void *a, const void *b, uint64_t count)
{
    const element *x = a, *y = b;
    vf sum = v_set(0);
    FOR_VECTORS(i, count, sum = v_fma(LOAD(x + i), LOAD(y + i), sum););
    return v_sum(sum);
}

static void attention_store(void *to, uint64_t stride, const float *from, uint64_t from_stride, uint64_t rows, uint64_t columns,
                            float factor)
{
    const vf by = v_set(factor);
    for (uint64_t row = 0; row < rows; row++) {
        element *out = (element *)to + row * stride;
        const float *in = from + row * from_stride;
        FOR_VECTORS(i, columns, STORE(out + i, LOAD(in + i) * by););
    }
}

#endif
