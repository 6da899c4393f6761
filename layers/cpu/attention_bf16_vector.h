/* SPDX-License-Identifier: MIT
 *
 * The vectors' part of attention in bf16 (attention_bf16.c), at one level: between the products' sums and their operands.
 * Scores lie with a key in each row and EO_PANEL queries side by side, so that a query's maximum and sum run down a lane.
 */
#ifndef EO_LAYERS_CPU_ATTENTION_BF16_VECTOR_H
#define EO_LAYERS_CPU_ATTENTION_BF16_VECTOR_H

/* Whether each query, from `first` on, may see the key, which is not before `first`. */
INLINE vi sees(uint64_t first, uint64_t key)
{
    static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vi queries;
    memcpy(&queries, lanes, sizeof(queries));
    return queries >= (int32_t)(key - first);
}

/* Units of a panel: two keys' bf16 side by side. */
INLINE void pair_store(uint32_t *units, vu even, vu odd)
{
    const vu pair = (even >> 16) | (odd & 0xffff0000u);
    memcpy(units, &pair, sizeof(pair));
}

INLINE vf weight_of(vf score, vf factor, vf shift, uint64_t query, uint64_t key)
{
    const vf e = v_exp(v_fma(score, factor, shift));
    return key > query ? v_pick(sees(query, key), e, v_set(0)) : e;
}

/* For V queries, from column `c` on. */
INLINE void weights_column(const struct eo_attention_weights *w, uint64_t c)
{
    const uint64_t query = w->first_query + c;
    const float *scores = w->scores + c;
    vf max = v_set(-INFINITY);
    for (uint64_t i = 0; i < w->keys; i++) {
        vf s = v_load(scores + i * EO_PANEL);
        if (w->first_key + i > query)
            s = v_pick(sees(query, w->first_key + i), s, v_set(-INFINITY));
        max = v_max(max, s);
    }
    const vf factor = v_set(w->scale), old = v_load(w->max + c);
    const vf top = v_max(old, max * factor), shift = v_set(0) - top, correction = v_exp(old - top);
    vf sum = v_load(w->sum + c) * correction;
    for (uint64_t i = 0; i < w->keys; i += 2) {
        const vf even = weight_of(v_load(scores + i * EO_PANEL), factor, shift, query, w->first_key + i);
        const vf odd = weight_of(v_load(scores + (i + 1) * EO_PANEL), factor, shift, query, w->first_key + i + 1);
        sum += even + odd;
        pair_store(w->panel + i / 2 * EO_PANEL + c, rounded_bits(even), rounded_bits(odd));
    }
    v_store(w->max + c, top);
    v_store(w->sum + c, sum);
    v_store(w->correction + c, correction);
}

static void attention_weights(const struct eo_attention_weights *w)
{
    for (uint64_t c = 0; c < EO_PANEL; c += V)
        weights_column(w, c);
}

INLINE void slopes_column(const struct eo_attention_slopes *s, uint64_t c)
{
    const uint64_t query = s->first_query + c;
    const vf factor = v_set(s->scale), shift = v_set(0) - v_load(s->log_sum_exp + c), delta = v_load(s->delta + c);
    for (uint64_t i = 0; i < s->keys; i += 2) {
        vu bits[2];
        for (uint64_t j = 0; j < 2; j++) {
            const uint64_t at = (i + j) * EO_PANEL + c;
            const vf weight = weight_of(v_load(s->scores + at), factor, shift, query, s->first_key + i + j);
            bits[j] = rounded_bits(weight * ((v_load(s->weight_gradients + at) - delta) * factor));
            STORE_WHOLE(s->weight_rows + (i + j) * s->row_stride + c, weight);
            const vh slope = high_halves(bits[j]);
            memcpy(s->slope_rows + (i + j) * s->row_stride + c, &slope, sizeof(slope));
        }
        pair_store(s->slope_panel + i / 2 * EO_PANEL + c, bits[0], bits[1]);
    }
}

static void attention_slopes(const struct eo_attention_slopes *s)
{
    for (uint64_t c = 0; c < EO_PANEL; c += V)
        slopes_column(s, c);
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

static void attention_store(void *to, uint64_t stride, const float *from, uint64_t from_stride, uint64_t rows, uint64_t columns)
{
    for (uint64_t row = 0; row < rows; row++) {
        element *out = (element *)to + row * stride;
        const float *in = from + row * from_stride;
        FOR_VECTORS(i, columns, STORE(out + i, LOAD(in + i)););
    }
}

#endif
