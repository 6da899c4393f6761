/* SPDX-License-Identifier: MIT
 *
 * Random numbers without state: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3",
 * 2011). A number is a function of its place alone: of seed, step, sample, position and element. So a recompute, a resumed run
 * and one on other ranks draw what was drawn before, and nothing is stored. C, C++ and CUDA; all of it inline.
 */
#ifndef EVENODD_RANDOM_H
#define EVENODD_RANDOM_H

#include <evenodd/common.h>

#include <stdint.h>

#ifdef __CUDACC__
#define EO_RANDOM_FUNCTION static inline __host__ __device__
#else
#define EO_RANDOM_FUNCTION static inline
#endif

/* Where numbers are drawn. Of step, sample and position the low 32 bits count. */
typedef struct eo_random_place {
    uint64_t seed;
    uint64_t step;     /* of the training */
    uint64_t sample;   /* the sequence in the step's global batch, counted over micro-batches and ranks: no other sharding of
                          the batch changes it. Of one draw a micro-batch: the micro-batch, likewise */
    uint32_t position; /* the use in the model: a layer's, one of two in a block */
} eo_random_place;

/* Ten rounds; out may not be counter. */
EO_RANDOM_FUNCTION void eo_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3], x = key[0], y = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p = UINT64_C(0xd2511f53) * a, q = UINT64_C(0xcd9e8d57) * c;
        a = EO_CAST(uint32_t, q >> 32) ^ b ^ x;
        c = EO_CAST(uint32_t, p >> 32) ^ d ^ y;
        b = EO_CAST(uint32_t, q);
        d = EO_CAST(uint32_t, p);
        x += 0x9e3779b9u;
        y += 0xbb67ae85u;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

/* Four words of 32 bits: elements 4 x block ... 4 x block + 3 of the place. */
EO_RANDOM_FUNCTION void eo_random_words(const eo_random_place *place, uint32_t block, uint32_t out[4])
{
    const uint32_t counter[4] = {block, place->position, EO_CAST(uint32_t, place->sample), EO_CAST(uint32_t, place->step)};
    const uint32_t key[2] = {EO_CAST(uint32_t, place->seed), EO_CAST(uint32_t, place->seed >> 32)};
    eo_philox4x32(counter, key, out);
}

/* At least 0, below 1: the word's first 24 bits. */
EO_RANDOM_FUNCTION float eo_random_unit(uint32_t word)
{
    return EO_CAST(float, word >> 8) * (1.0f / 16777216.0f);
}

/* Words from here on are kept by a dropout of that probability, from 0 to below 1; smaller ones are dropped. */
EO_RANDOM_FUNCTION uint32_t eo_random_threshold(float probability)
{
    return EO_CAST(uint32_t, EO_CAST(double, probability) * 4294967296.0);
}

#endif
