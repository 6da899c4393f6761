/* SPDX-License-Identifier: MIT
 *
 * Weights of attention in bf16 by products of pairs, for AVX-512: from scores to an operand. Scores lie with a key in each row
 * and EO_PANEL queries side by side, so that a query's maximum and sum run down a lane. Exponentials are powers of two: scale
 * and log2(e) are one factor.
 */
#ifndef EO_LAYERS_CPU_LEVELS_ATTENTION_WEIGHTS_H
#define EO_LAYERS_CPU_LEVELS_ATTENTION_WEIGHTS_H

enum { SIDES = EO_PANEL / V }; /* vectors of a row */
#define LOG2_E 1.44269504f

/* 2^x, relative error below 2e-7, from x's whole part below and a minimax polynomial of the rest; 0 for -infinity and for
 * lanes outside the mask, NaN for NaN. */
INLINE vf v_exp2_masked(__mmask16 mask, vf x)
{
    const vf r = (vf)_mm512_reduce_ps((__m512)x, 1);
    vf q = v_set(0.00187757669f);
    q = v_fma(q, r, v_set(0.00898933969f));
    q = v_fma(q, r, v_set(0.0558263175f));
    q = v_fma(q, r, v_set(0.240153611f));
    q = v_fma(q, r, v_set(0.693153083f));
    q = v_fma(q, r, v_set(0.99999994f));
    return (vf)_mm512_maskz_scalef_ps(mask, (__m512)q, (__m512)x);
}

/* The queries, from `first` on, that see the key: a bit each. */
INLINE uint32_t sees(uint64_t first, uint64_t key)
{
    return key <= first ? UINT32_MAX : key - first < EO_PANEL ? UINT32_MAX << (key - first) : 0;
}

/* Of one side, all if not `masked`. */
INLINE __mmask16 side_mask(bool masked, uint64_t first, uint64_t key, int side)
{
    return masked ? (__mmask16)(sees(first, key) >> (side * V)) : (__mmask16)UINT16_MAX;
}

/* Units of a panel: two keys' bf16 side by side. */
INLINE void pair_store(uint32_t *units, vu even, vu odd)
{
    _mm512_storeu_si512(units, _mm512_mask_mov_epi16((__m512i)(even >> 16), 0xaaaaaaaau, (__m512i)odd));
}

/* What runs along the keys. */
struct weights_state {
    vf factor, shift[SIDES], sum[2][SIDES];
};

INLINE struct weights_state weights_open(const struct eo_attention_weights *w)
{
    struct weights_state state = {.factor = v_set(w->scale * LOG2_E)};
    for (int side = 0; side < SIDES; side++) {
        state.shift[side] = v_load(w->top + side * V) * v_set(-LOG2_E);
        state.sum[0][side] = v_load(w->sum + side * V);
        state.sum[1][side] = v_set(0);
    }
    return state;
}

/* Of two keys. NaNs here have bf16's bits alone, so rounded_number leaves them. */
INLINE void weights_pair(const struct eo_attention_weights *w, bool masked, uint64_t row, struct weights_state *state)
{
    for (int side = 0; side < SIDES; side++) {
        vf weight[2];
        for (int i = 0; i < 2; i++) {
            const vf score = v_load(w->scores + (row + (uint64_t)i) * EO_PANEL + side * V);
            weight[i] = v_exp2_masked(side_mask(masked, w->first_query, w->first_key + row + (uint64_t)i, side),
                                      v_fma(score, state->factor, state->shift[side]));
            state->sum[i][side] += weight[i];
        }
        pair_store(w->panel + row / 2 * EO_PANEL + side * V, rounded_number(weight[0]), rounded_number(weight[1]));
    }
}

INLINE void weights_close(const struct eo_attention_weights *w, const struct weights_state *state)
{
    for (int side = 0; side < SIDES; side++)
        v_store(w->sum + side * V, state->sum[0][side] + state->sum[1][side]);
}

INLINE bool weights_masked(const struct eo_attention_weights *w)
{
    return w->first_key + w->keys > w->first_query + 1;
}

#endif
