/* SPDX-License-Identifier: MIT
 *
 * Goal: whatever model and settings the API takes are planned, proven and trained.
 * Method: cases by seed (generator.h): layers used in any order and any number of times, frozen ones, heads, buffers of any
 *         lifetime, every strategy, slots, streams and element types. Plans are proven over five steps, some held against
 *         their lists in another way; some cases are trained, and compared with integers (integer_model.h). What fails is made
 *         smaller before it is printed (shrink.h).
 *
 *     random                          what the short run takes
 *     random few                      a tenth of it, for sanitizers
 *     random plans FIRST COUNT        the plans of these seeds
 *     random runs FIRST COUNT         and trainings
 *     random processes FIRST COUNT    and trainings whose ranks are processes
 *     random shrink                   failures by hand are made as small as they can be
 *     random deep                     64 and 200 layers with every strategy, and with dynamic memory
 *     random show SEED                prints a case, and what becomes of it
 */
#include <stdlib.h>
#include <string.h>

#include "tests/random/seeds.h"
#include "tests/random/shrink_check.h"

enum { SHORT_PLANS = 8000, SHORT_RUNS = 500, SHORT_PROCESSES = 50, CLOSELY_EVERY = 50 };

static bool plan_holds(const struct random_case *c, struct case_outcome *out)
{
    return case_plan(c, c->seed % CLOSELY_EVERY == 0, out);
}

static bool run_holds(const struct random_case *c, struct case_outcome *out)
{
    return case_run(c, &case_threads, out);
}

static bool processes_hold(const struct random_case *c, struct case_outcome *out)
{
    return case_run(c, &case_processes, out);
}

static const struct case_trial plan_trial = {"plan", random_case_make, plan_holds, 60};
static const struct case_trial parts_trial = {"plan with parts", random_case_make_with_parts, plan_holds, 60};
static const struct case_trial thread_trial = {"run", random_case_make, run_holds, 60};
static const struct case_trial process_trial = {"run of processes", random_case_make, processes_hold, 60};

static void plan_seeds(uint64_t first, uint64_t count)
{
    try_seeds(&plan_trial, "models and settings are planned and proven", first, count);
    try_seeds(&parts_trial, "and so are layers that a part of the group shares", first, count / 4);
}

static void run_seeds(uint64_t first, uint64_t count)
{
    try_seeds(&thread_trial, "trainings end in the numbers of a computation without shards", first, count);
}

static void run_processes(uint64_t first, uint64_t count)
{
    try_seeds(&process_trial, "and where ranks are processes", first, count);
}

static void run_deep_case(const struct random_case *c)
{
    struct case_outcome outcome;
    const bool ok = case_plan(c, false, &outcome) && case_run(c, &case_threads, &outcome);
    if (!ok)
        printf("# %s\n", outcome.text);
    tap(ok, "%u layers, %s, %s memory", c->layer_count, eo_strategy_name(c->settings.strategy),
        c->memory == EO_MEMORY_STATIC ? "static" : "dynamic");
}

static void run_deep(void)
{
    static const uint32_t depths[] = {64, 200};
    static struct random_case c;
    for (int d = 0; d < 2; d++) {
        for (uint32_t s = 0; s < EO_STRATEGY_COUNT; s++) {
            random_case_make_deep(&c, depths[d], (eo_strategy)s);
            run_deep_case(&c);
        }
    }
    random_case_make_deep(&c, 64, EO_STRATEGY_ZERO3);
    c.memory = EO_MEMORY_DYNAMIC_MALLOC; /* nothing waits for a reduction before 60 are under way */
    c.settings.separate_reduce_stream = true;
    c.reduce_inputs = 60;
    run_deep_case(&c);
}

static void show(uint64_t seed)
{
    static struct random_case c;
    struct case_outcome outcome;
    random_case_make(&c, seed);
    random_case_print(&c, stdout);
    const bool planned = case_plan(&c, true, &outcome);
    printf("# plan: %s\n", planned ? "ok" : outcome.text);
    const bool ran = planned && case_run(&c, &case_threads, &outcome);
    printf("# run: %s\n", ran ? "ok" : outcome.text);
    tap(ran, "seed %llu", (unsigned long long)seed);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, count = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    const bool few = strcmp(what, "few") == 0;
    if (argc == 1 || few) {
        shrink_check();
        plan_seeds(0, few ? SHORT_PLANS / 10 : SHORT_PLANS);
        run_seeds(0, few ? SHORT_RUNS / 10 : SHORT_RUNS);
        run_processes(0, few ? SHORT_PROCESSES / 10 : SHORT_PROCESSES);
    } else if (strcmp(what, "plans") == 0) {
        plan_seeds(first, count);
    } else if (strcmp(what, "runs") == 0) {
        run_seeds(first, count);
    } else if (strcmp(what, "processes") == 0) {
        run_processes(first, count);
    } else if (strcmp(what, "shrink") == 0) {
        shrink_check();
    } else if (strcmp(what, "deep") == 0) {
        run_deep();
    } else if (strcmp(what, "show") == 0) {
        show(first);
    } else {
        fprintf(stderr, "random: '%s' is none of few, plans, runs, processes, shrink, deep, show\n", what);
        return 2;
    }
    return tap_end();
}
