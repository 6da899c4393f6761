/* SPDX-License-Identifier: MIT
 *
 * Goal: headtohead tells weights that differ where they should be equal, and figures of its modes by medians. Method: runs made up
 * here; the verdict and the figures by hand.
 */
#include <criterion/criterion.h>

#include <string.h>

#include "tools/headtohead/comparison.h"

/* Of two modes with two runs each; a hash is left out where it is NULL. */
static void sum_up(struct tool_comparison *comparison, enum tool_sums sums, const char *const hashes[4])
{
    static const char *const steps[4] = {"[4, 2, 9]", "[3, 5, 1]", "[8, 8, 8]", "[1, 3, 6]"};
    *comparison = (struct tool_comparison){.run_count = 2, .mode_count = 2, .sums = sums};
    for (int mode = 0; mode < 2; mode++) {
        comparison->runs[mode] = json_array();
        for (int r = 0; r < 2; r++) {
            json_t *run = json_pack("{s:o, s:i}", "steps_s", json_loads(steps[2 * mode + r], 0, NULL), "tokens_per_step", 30);
            if (hashes[2 * mode + r])
                json_object_set_new(run, "weights_hash", json_string(hashes[2 * mode + r]));
            json_array_append_new(comparison->runs[mode], run);
        }
    }
    tool_comparison_sum_up(comparison);
    json_decref(comparison->runs[0]);
    json_decref(comparison->runs[1]);
}

Test(comparison, weights_that_should_be_equal_and_are_not_are_told)
{
    static const struct {
        const char *hashes[4];
        enum tool_sums sums;
        bool equal;
        const char *verdict;
    } cases[] = {
        {{"a", "a", "a", "a"}, TOOL_SUMS_EQUAL, true, "All runs end with the same weights."},
        {{"a", "a", "a", "b"}, TOOL_SUMS_EQUAL, false, "do NOT end with the same weights: this is a bug"},
        {{"a", "a", "b", "b"}, TOOL_SUMS_EQUAL, false, "do NOT end with the same weights: this is a bug"},
        {{"a", "a", "b", "b"}, TOOL_SUMS_STRATEGY, true, "runs of each mode end with the same weights"},
        {{"a", "a", "b", "b"}, TOOL_SUMS_CHOSEN, true, "runs of each variant end with the same weights"},
        {{"a", "a", "b", "c"}, TOOL_SUMS_CHOSEN, false, "this is a bug"},
        {{"b", "a", "a", "a"}, TOOL_SUMS_STRATEGY, false, "this is a bug"},
        {{"a", "a", "a", NULL}, TOOL_SUMS_EQUAL, false, "this is a bug"},
        {{NULL, NULL, NULL, NULL}, TOOL_SUMS_EQUAL, false, "this is a bug"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tool_comparison comparison;
        sum_up(&comparison, cases[i].sums, cases[i].hashes);
        cr_assert_eq(comparison.equal, cases[i].equal, "case %zu", i);
        cr_assert(strstr(tool_comparison_verdict(&comparison), cases[i].verdict), "case %zu: %s", i,
                  tool_comparison_verdict(&comparison));
        comparison.sums_in_time = true;
        cr_assert_eq(!strstr(tool_comparison_verdict(&comparison), "as they may"), cases[i].equal, "case %zu", i);
    }
}

Test(comparison, figures_are_medians_and_ratios_are_of_a_round)
{
    struct tool_comparison comparison;
    sum_up(&comparison, TOOL_SUMS_EQUAL, (const char *const[4]){"a", "a", "a", "a"});
    const struct tool_mode_figures *first = &comparison.figures[0], *second = &comparison.figures[1];
    cr_assert(first->step_s == 3.5 && first->step_min_s == 1 && first->step_p99_s == 9);
    cr_assert(second->step_s == 7 && second->step_min_s == 1 && second->step_p99_s == 8);
    cr_assert(first->ratio == 1 && first->ratio_low == 1 && first->ratio_high == 1);
    cr_assert(second->ratio == 1.5 && second->ratio_low == 1 && second->ratio_high == 2); /* 8 / 4 and 3 / 3 */
    cr_assert(first->tokens_per_s == 30 / 3.5 && strcmp(second->weights_hash, "a") == 0);
}
