/* SPDX-License-Identifier: MIT
 *
 * Failures by hand, whose smallest case is known: shrinking finds it, and tries legal cases only.
 */
#include "tests/random/shrink_check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/random/seeds.h"
#include "tests/random/shrink.h"

enum { CHECKED = 8 };

static atomic_uint *illegal; /* cases that were tried; shared with the processes that try them */

/* Three ranks, and a frozen layer that is used twice. */
static bool is_wrong(const struct random_case *c)
{
    for (uint32_t p = 0; p < c->position_count; p++)
        for (uint32_t q = 0; q < p; q++)
            if (c->positions[p].layer == c->positions[q].layer && c->layers[c->positions[p].layer].frozen)
                return c->settings.rank_count >= 3;
    return false;
}

static bool fails_by_hand(const struct random_case *c, struct case_outcome *out)
{
    if (!case_plan(c, false, out))
        atomic_fetch_add(illegal, 1);
    else if (is_wrong(c))
        snprintf(out->text, sizeof(out->text), "by hand: %u positions", c->position_count);
    return out->text[0] == '\0';
}

static bool crashes_by_hand(const struct random_case *c, struct case_outcome *out)
{
    if (!case_plan(c, false, out))
        atomic_fetch_add(illegal, 1);
    if (is_wrong(c))
        abort();
    return true;
}

static bool hangs_by_hand(const struct random_case *c, struct case_outcome *out)
{
    (void)out;
    while (is_wrong(c))
        pause();
    return true;
}

static bool is_smallest(const struct random_case *c)
{
    const eo_plan_params *s = &c->settings;
    return c->layer_count == 1 && c->position_count == 2 && c->buffer_count == 0 && c->step_count == 1 && s->rank_count == 3 &&
           c->layers[0].parameter_count == 1 && c->layers[0].elements[0] == 1 && s->strategy == EO_STRATEGY_ZERO3 &&
           s->dtype == EO_DTYPE_FP32 && s->micro_batches == 1 && random_case_is_quiet(c, 0) && random_case_is_quiet(c, 1);
}

static void check_trial(const struct case_trial *trial, const char *what)
{
    static struct random_case c;
    bool ok = true;
    uint64_t seed = 0;
    for (uint32_t checked = 0; checked < CHECKED; checked++) {
        struct case_outcome outcome;
        seed += case_attempt_seeds(trial, seed, 10000, &outcome);
        random_case_make(&c, seed++);
        (void)case_shrink(trial, &c, &outcome, 60);
        if (!is_smallest(&c)) {
            printf("# not the smallest: %s\n", outcome.text);
            random_case_print(&c, stdout);
            ok = false;
        }
    }
    tap(ok && atomic_exchange(illegal, 0) == 0, "%s", what);
}

void shrink_check(void)
{
    static const struct case_trial fails = {"by hand", random_case_make, fails_by_hand, 60},
                                   crashes = {"by hand", random_case_make, crashes_by_hand, 60},
                                   hangs = {"by hand", random_case_make, hangs_by_hand, 1};
    struct case_outcome outcome;
    illegal = mmap(NULL, sizeof(*illegal), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (illegal == MAP_FAILED)
        eo_fatal("out of memory");
    check_trial(&fails, "a case that fails becomes the smallest that does, and none on the way is illegal");
    check_trial(&crashes, "so does one that ends the process");
    const bool hung = case_attempt_seeds(&hangs, 0, 10000, &outcome) < 10000 && outcome.text[0] == 'h';
    tap(hung, "one that hangs is a failure");
}
