/* SPDX-License-Identifier: MIT
 *
 * What the ranks tell each other of a save: one number, summed as the collectives do, read by each.
 */
#include <criterion/criterion.h>

#include <math.h>

#include "runtime/checkpoint/save_sum.h"

static const uint32_t worlds[] = {1, 2, 3, 4, 7, 8, 63, 64, 1000, 4095, 4096, 8191, 8192, 20000};
enum { WORLDS = sizeof(worlds) / sizeof(worlds[0]), COUNTED_RANKS_MAX = 8191 };

static bool is_same(struct save_sum a, struct save_sum b)
{
    return a.written == b.written && a.failed == b.failed && a.begun == b.begun && a.verdict == b.verdict && a.save == b.save;
}

/* Method: each rank's own number, of three ranks in four that have written; added in the order of the ranks. */
Test(save_sum, of_all_ranks_is_read_to_the_last_bit)
{
    for (uint32_t w = 0; w < WORLDS; w++) {
        const uint32_t ranks = worlds[w];
        for (uint64_t verdict = VERDICT_NONE; verdict <= VERDICT_NOT_NAMED; verdict++)
            for (uint64_t step = 0; step < 2100; step += 1 + step / 7) {
                struct save_sum all = {.verdict = verdict, .save = eo_save_number(step)};
                double sum = 0;
                for (uint32_t r = 0; r < ranks; r++) {
                    const struct save_sum own = {.written = r % 4 != 1, .failed = r % 4 == 1, .begun = 1,
                                                 .verdict = r ? 0 : verdict, .save = r ? 0 : all.save};
                    sum += eo_save_sum_value(&own, ranks);
                    all.written += own.written, all.failed += own.failed;
                    all.begun += ranks <= COUNTED_RANKS_MAX;
                }
                cr_assert(sum < 0x1p53);
                cr_assert(is_same(eo_save_sum_of(sum, ranks), all), "%u ranks, step %llu", ranks, (unsigned long long)step);
            }
    }
}

Test(save_sum, of_something_else_is_none)
{
    const double values[] = {0, -1, 0.5, 3.25, -0.0, NAN, INFINITY, -INFINITY, 0x1p53, 0x1p60};
    for (uint32_t w = 0; w < WORLDS; w++)
        for (uint32_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
            cr_assert(is_same(eo_save_sum_of(values[i], worlds[w]), (struct save_sum){0}), "%g", values[i]);
}

/* A sum that comes late is of one of the last saves; between as many of them numbers do not repeat. */
Test(save_sum, numbers_of_saves_that_may_meet_differ)
{
    for (uint64_t step = 0; step < 3000; step++) {
        cr_assert(eo_save_number(step) > 0);
        for (uint64_t later = 1; later < 512; later++)
            cr_assert_neq(eo_save_number(step), eo_save_number(step + later));
    }
}

static const char *lacking(struct save_sum sum, const struct save_numbers *numbers, uint64_t step, uint32_t ranks, char text[256])
{
    text[0] = '\0';
    return eo_save_sum_lacks_ranks(&sum, numbers, step, ranks, text) ? text : NULL;
}

Test(save_sum, tells_who_did_not_begin)
{
    char text[256];
    struct save_numbers numbers = {{0}, 0};
    for (uint64_t step = 10; step <= 50; step += 10)
        eo_save_numbers_add(&numbers, step);
    const uint64_t own = eo_save_number(50), before = eo_save_number(40), other = eo_save_number(51);

    cr_assert_null(lacking((struct save_sum){.begun = 4, .save = own}, &numbers, 50, 4, text));
    cr_assert_null(lacking((struct save_sum){0}, &numbers, 50, 4, text), "a step before all that began");
    cr_assert_null(lacking((struct save_sum){.begun = 4, .save = before}, &numbers, 50, 4, text), "late, of the save before");
    cr_assert_null(lacking((struct save_sum){.begun = 2, .save = before}, &numbers, 50, 4, text), "late, as some had left it");

    cr_assert_not_null(lacking((struct save_sum){.begun = 3, .save = own}, &numbers, 50, 4, text));
    cr_assert(strstr(text, "checkpoint of step 50: 3 of 4 ranks began this save: call"), "%s", text);
    cr_assert_not_null(lacking((struct save_sum){.begun = 3}, &numbers, 50, 4, text));
    cr_assert(strstr(text, "rank 0 did not begin this save"), "%s", text);
    cr_assert_not_null(lacking((struct save_sum){.begun = 4, .save = other}, &numbers, 50, 4, text), "rank 0 began another");
    cr_assert(strstr(text, "rank 0 did not begin this save"), "%s", text);

    cr_assert_not_null(lacking((struct save_sum){.begun = 8190, .save = own}, &numbers, 50, 8191, text));
    cr_assert_null(lacking((struct save_sum){.save = own}, &numbers, 50, 8192, text), "too many to be counted");
}
