/* SPDX-License-Identifier: MIT */
#include "layers/kernel_ops.h"

#include <math.h>

uint64_t eo_rope_table_floats(uint32_t seq, uint32_t head_size)
{
    return (uint64_t)seq * head_size;
}

static double scaled_frequency(double frequency, const eo_rope_scaling *s)
{
    if (!s || s->kind == EO_ROPE_PLAIN)
        return frequency;
    double kept = 0; /* the part of it that is not divided */
    if (s->kind == EO_ROPE_LLAMA3) {
        const double turns = s->original_context * frequency / 6.283185307179586477;
        kept = (turns - (double)s->low_freq_factor) / ((double)s->high_freq_factor - (double)s->low_freq_factor);
        kept = fmin(fmax(kept, 0), 1);
    }
    return kept * frequency + (1 - kept) * frequency / (double)s->factor;
}

enum { TURNS = 64, TILE = 16 };

/* Pairs first ... end - 1 of all positions. A few positions from each start that libm gives: a turn after the other, in double, is as
 * exact as a float can tell, and long contexts do not wait for it. */
static void fill_pairs(float *table, uint32_t seq, uint32_t head_size, const double *frequencies, uint32_t first, uint32_t end)
{
    const uint32_t half = head_size / 2;
    double step_cosine[TILE], step_sine[TILE];
    for (uint32_t i = first; i < end; i++) {
        step_cosine[i - first] = cos(frequencies[i - first]);
        step_sine[i - first] = sin(frequencies[i - first]);
    }
    for (uint32_t from = 0; from < seq; from += TURNS) {
        const uint32_t to = seq - from < TURNS ? seq : from + TURNS;
        for (uint32_t i = first; i < end; i++) {
            const uint32_t k = i - first;
            double cosine = cos(from * frequencies[k]), sine = sin(from * frequencies[k]);
            for (uint32_t position = from; position < to; position++) {
                float *row = table + (uint64_t)position * head_size;
                row[i] = (float)cosine;
                row[half + i] = (float)sine;
                const double turned = cosine * step_cosine[k] - sine * step_sine[k];
                sine = sine * step_cosine[k] + cosine * step_sine[k];
                cosine = turned;
            }
        }
    }
}

void eo_rope_table(float *table, uint32_t seq, uint32_t head_size, float theta, const eo_rope_scaling *scaling)
{
    const uint32_t half = head_size / 2;
    for (uint32_t first = 0; first < half; first += TILE) {
        const uint32_t end = half - first < TILE ? half : first + TILE;
        double frequencies[TILE];
        for (uint32_t i = first; i < end; i++)
            frequencies[i - first] = scaled_frequency(pow(theta, -2.0 * i / head_size), scaling);
        fill_pairs(table, seq, head_size, frequencies, first, end);
    }
}
