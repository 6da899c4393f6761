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

void eo_rope_table(float *table, uint32_t seq, uint32_t head_size, float theta, const eo_rope_scaling *scaling)
{
    /* A few positions from each start that libm gives: a turn after the other, in double, is as exact as a float can tell,
     * and long contexts do not wait for it. */
    enum { TURNS = 64 };
    const uint32_t half = head_size / 2;
    for (uint32_t first = 0; first < seq; first += TURNS) {
        const uint32_t end = seq - first < TURNS ? seq : first + TURNS;
        for (uint32_t i = 0; i < half; i++) {
            const double frequency = scaled_frequency(pow(theta, -2.0 * i / head_size), scaling);
            const double step_cosine = cos(frequency), step_sine = sin(frequency);
            double cosine = cos(first * frequency), sine = sin(first * frequency);
            for (uint32_t position = first; position < end; position++) {
                float *row = table + (uint64_t)position * head_size;
                row[i] = (float)cosine;
                row[half + i] = (float)sine;
                const double turned = cosine * step_cosine - sine * step_sine;
                sine = sine * step_cosine + cosine * step_sine;
                cosine = turned;
            }
        }
    }
}
