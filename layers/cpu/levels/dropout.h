/* SPDX-License-Identifier: MIT
 *
 * Dropout at one level: the words of many blocks at a time (evenodd/random.h). The bits are those of layers/reference/dropout.c.
 */
#ifndef EO_LAYERS_CPU_LEVELS_DROPOUT_H
#define EO_LAYERS_CPU_LEVELS_DROPOUT_H

#include <evenodd/random.h>

enum { LANES = V / 2, WORDS_AT_ONCE = 4 * LANES, DROP_ELEMENTS = 8 * WORDS_AT_ONCE };

typedef uint64_t vq __attribute__((vector_size(4 * V)));

/* Of each lane the lower half counts. */
INLINE vq multiply_halves(vq a, uint32_t factor)
{
#if EO_LEVEL == 512
    return (vq)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(factor));
#elif EO_LEVEL == 256
    return (vq)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(factor));
#else
    return (a & UINT32_MAX) * (uint64_t)factor;
#endif
}

/* eo_random_words of LANES blocks, a block a lane; above the words' 32 bits may be anything until the end. */
INLINE void draw_words(const eo_random_place *place, uint32_t block, uint32_t words[WORDS_AT_ONCE])
{
    uint32_t x = (uint32_t)place->seed, y = (uint32_t)(place->seed >> 32);
    vq a, b = (vq){0} + place->position, c = (vq){0} + (uint32_t)place->sample, d = (vq){0} + (uint32_t)place->step;
    for (uint32_t lane = 0; lane < LANES; lane++)
        a[lane] = (uint32_t)(block + lane);
    for (int round = 0; round < 10; round++) {
        const vq p = multiply_halves(a, 0xd2511f53u), q = multiply_halves(c, 0xcd9e8d57u);
        a = (q >> 32) ^ b ^ (uint64_t)x;
        c = (p >> 32) ^ d ^ (uint64_t)y;
        b = q;
        d = p;
        x += 0x9e3779b9u;
        y += 0xbb67ae85u;
    }
    const vq ab = (a & UINT32_MAX) | b << 32, cd = (c & UINT32_MAX) | d << 32;
#if EO_LEVEL == 512
    const vq first = __builtin_shufflevector(ab, cd, 0, 8, 1, 9, 2, 10, 3, 11);
    const vq second = __builtin_shufflevector(ab, cd, 4, 12, 5, 13, 6, 14, 7, 15);
#elif EO_LEVEL == 256
    const vq first = __builtin_shufflevector(ab, cd, 0, 4, 1, 5), second = __builtin_shufflevector(ab, cd, 2, 6, 3, 7);
#else
    const vq first = __builtin_shufflevector(ab, cd, 0, 2), second = __builtin_shufflevector(ab, cd, 1, 3);
#endif
    memcpy(words, &first, sizeof(first));
    memcpy(words + V, &second, sizeof(second));
}

/* `count` elements of a row, the first of them the place's `at`th. Pointers stand at them. */
INLINE void drop_elements(const eo_random_place *place, uint64_t at, float probability, element *out, const element *in,
                          const element *residual, const element *bias, uint64_t count)
{
    const vu threshold = (vu){0} + eo_random_threshold(probability);
    const vf scale = v_set(1.0f / (1.0f - probability));
    uint32_t words[3 + DROP_ELEMENTS + WORDS_AT_ONCE + V]; /* from the begin of the first block on; the last load is of V */
    const uint64_t skip = at % 4;
    for (uint64_t word = 0; word < skip + count; word += WORDS_AT_ONCE)
        draw_words(place, (uint32_t)((at + word) / 4), words + word);
    FOR_VECTORS(i, count, {
        vu word;
        memcpy(&word, words + skip + i, sizeof(word));
        const vf value = (LOAD(in + i) + (bias ? LOAD(bias + i) : v_set(0))) * scale;
        const vf kept = v_pick(word >= threshold, value, v_set(0));
        STORE(out + i, (residual ? LOAD(residual + i) : v_set(0)) + kept);
    });
}

static void dropout(const struct eo_dropout *d, uint64_t first_row)
{
    const element *bias = d->bias, *residual = d->residual;
    for (uint64_t row = first_row; row < first_row + d->rows; row++) {
        eo_random_place place = *d->place;
        place.sample += row / d->seq;
        place.position = d->position;
        for (uint64_t i = 0; i < d->width; i += DROP_ELEMENTS) {
            const uint64_t at = row * d->width + i, count = d->width - i < DROP_ELEMENTS ? d->width - i : DROP_ELEMENTS;
            drop_elements(&place, row % d->seq * d->width + i, d->probability, (element *)d->out + at, (const element *)d->in + at,
                          residual ? residual + at : NULL, bias ? bias + i : NULL, count);
        }
    }
}

#endif
