/* SPDX-License-Identifier: MIT
 *
 * Random numbers by place (evenodd/random.h).
 */
#include <criterion/criterion.h>
#include <math.h>

#include <evenodd/random.h>

/* Goal: it is Philox4x32-10. Method: the known answers that its authors give (Random123, kat_vectors). */
Test(random, philox_has_its_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint32_t out[4];
        eo_philox4x32(known[i].counter, known[i].key, out);
        for (int k = 0; k < 4; k++)
            cr_assert_eq(out[k], known[i].answer[k], "answer %u, word %d: %08x", (unsigned)i, k, out[k]);
    }
}

/* Goal: each part of a place counts. Method: a change of one changes all words of a block. */
Test(random, every_part_of_a_place_changes_the_words)
{
    const eo_random_place places[] = {
        {.seed = 1, .step = 2, .sample = 3, .position = 4}, {.seed = 2, .step = 2, .sample = 3, .position = 4},
        {.seed = 1 + (UINT64_C(1) << 32), .step = 2, .sample = 3, .position = 4},
        {.seed = 1, .step = 3, .sample = 3, .position = 4}, {.seed = 1, .step = 2, .sample = 4, .position = 4},
        {.seed = 1, .step = 2, .sample = 3, .position = 5},
    };
    enum { PLACES = sizeof(places) / sizeof(places[0]) };
    uint32_t words[PLACES + 1][4];
    for (int p = 0; p < PLACES; p++)
        eo_random_words(&places[p], 9, words[p]);
    eo_random_words(&places[0], 10, words[PLACES]);
    for (int a = 0; a <= PLACES; a++)
        for (int b = 0; b < a; b++)
            for (int k = 0; k < 4; k++)
                cr_assert_neq(words[a][k], words[b][k], "places %d and %d", a, b);
}

/* Goal: a dropout drops its share. Method: counts of many words, within five standard deviations; and of the ends of the scale. */
Test(random, thresholds_and_units_have_their_share)
{
    enum { BLOCKS = 50000 };
    const eo_random_place place = {.seed = 99};
    uint64_t dropped = 0;
    double sum = 0;
    for (uint32_t block = 0; block < BLOCKS; block++) {
        uint32_t words[4];
        eo_random_words(&place, block, words);
        for (int k = 0; k < 4; k++) {
            dropped += words[k] < eo_random_threshold(0.1f);
            sum += (double)eo_random_unit(words[k]);
        }
    }
    const double count = 4.0 * BLOCKS;
    cr_assert_float_eq((double)dropped / count, 0.1, 5 * sqrt(0.1 * 0.9 / count));
    cr_assert_float_eq(sum / count, 0.5, 5 * sqrt(1 / 12.0 / count));
    cr_assert_eq(eo_random_threshold(0), 0);
    cr_assert(eo_random_unit(UINT32_MAX) < 1 && eo_random_unit(0) == 0);
}
