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

struct angles {
    double cosine[TILE], sine[TILE];
};

static void find_angles(struct angles *angles, const double *frequencies, uint32_t count, double position)
{
    for (uint32_t k = 0; k < count; k++) {
        angles->cosine[k] = cos(position * frequencies[k]);
        angles->sine[k] = sin(position * frequencies[k]);
    }
}

/* `count` pairs of all positions, from the pair that table begins at. A few positions from each start that libm gives: a turn
 * after the other, in double, is as exact as a float can tell, and long contexts do not wait for it. */
static void fill_pairs(float *table, uint32_t seq, uint32_t head_size, const double *frequencies, uint32_t count)
{
    struct angles at, step;
    find_angles(&step, frequencies, count, 1);
    for (uint32_t position = 0; position < seq; position++) {
        float *cosines = table + (uint64_t)position * head_size, *sines = cosines + head_size / 2;
        if (position % TURNS == 0)
            find_angles(&at, frequencies, count, position);
        for (uint32_t k = 0; k < count; k++) {
            cosines[k] = (float)at.cosine[k];
            sines[k] = (float)at.sine[k];
            const double turned = at.cosine[k] * step.cosine[k] - at.sine[k] * step.sine[k];
            at.sine[k] = at.sine[k] * step.cosine[k] + at.cosine[k] * step.sine[k];
            at.cosine[k] = turned;
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
        fill_pairs(table + first, seq, head_size, frequencies, end - first);
    }
}
