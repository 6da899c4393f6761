/* SPDX-License-Identifier: MIT
 *
 * Every wait and every record that the CUDA backend issues is needed, or redundant: with one of them left out, or bound to
 * the version before, a training is caught by the checker of accesses, by another refusal, or by its bits.
 * What is left is spare: an entry or exit event of the local collectives whose order a later event gives again before
 * anybody touches the bytes. That is tried under every policy of the scheduler, and must be two thirds of them at most; the
 * collectives' own waits, one by one where each is needed, are in test_sim_comms.c.
 * Method: a clean run numbers the calls and says which are redundant, by streams and events alone: a wait whose order was
 * there already; a record that no wait that counts binds to, that no host thread asks for, or only for its time. Then a
 * run for each of the others with that one call changed. The short run takes every few of them, EO_TEST_FULL=1 all, with
 * a line for each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "micro_model.h"
#include "sim_check.h"

enum verdict { REDUNDANT, BY_CHECKER, BY_REFUSAL, BY_ERROR, BY_BITS, HOST_ONLY, SPARE, VERDICTS };
static const char *const verdict_names[VERDICTS] = {
    "redundant: that order was there already", "caught: accesses not ordered", "caught: refused", "caught: an error",
    "caught: other bits", "for the host alone, which asks at other places too",
    "spare: what touches the same bytes is ordered by what comes later too"};

static bool all;
enum { CALLS_MAX = 1 << 15 };
static struct sim_call_note notes[2][CALLS_MAX];
static uint32_t note_counts[2];

static struct micro_result run(const struct micro_settings *settings, const struct sim_config *config)
{
    static struct micro_result result;
    sim_start(config);
    micro_train(settings, &result);
    return result;
}

static enum verdict judge_once(const struct micro_settings *settings, const struct sim_config *config)
{
    const struct micro_result *reference = micro_reference(settings);
    const struct micro_result result = run(settings, config);
    const uint32_t violations = sim_finish();
    if (sim_found_race())
        return BY_CHECKER;
    if (violations > 0)
        return BY_REFUSAL;
    if (micro_status(&result) < 0)
        return BY_ERROR;
    return micro_same(&result, reference) ? SPARE : BY_BITS;
}

/* What one schedule lets through is tried under the others: bits that depend on it show in one of them. */
static enum verdict judge(const struct micro_settings *settings, const struct sim_config *config,
                          const struct sim_call_note *note)
{
    const enum verdict verdict = judge_once(settings, config);
    CHECK(sim_mutation_happened(), "the call did not come: runs of one seed differ");
    if (verdict != SPARE)
        return verdict;
    for (enum sim_policy policy = SIM_LAZY; policy < SIM_POLICIES; policy++) {
        struct sim_config other = *config;
        other.policy = policy;
        other.seed++;
        const enum verdict again = judge_once(settings, &other); /* host memory shows by its bits alone */
        if (again != SPARE)
            return again;
    }
    return config->mutation.kind == SIM_DROP_RECORD && !note->orders ? HOST_ONLY : SPARE;
}

static bool is_redundant(enum sim_mutation_kind kind, const struct sim_call_note *note)
{
    return kind == SIM_DROP_RECORD ? !note->orders && !note->tells : note->redundant;
}

/* One kind of change in all calls of one rank. */
static void mutate(const struct micro_settings *settings, enum sim_mutation_kind kind, uint32_t rank, uint32_t stride,
                   const char *name)
{
    static const char *const kinds[] = {"", "wait left out", "record left out", "wait for the version before"};
    uint32_t counts[VERDICTS] = {0}, tried = 0, wanted = 0;
    const int list = kind == SIM_DROP_RECORD;
    struct sim_config config = {.seed = 3, .policy = SIM_RANDOM};
    (void)run(settings, &config);
    CHECK(sim_finish() == 0, "the clean run: %s", sim_violation(0));
    note_counts[list] = 0;
    while (note_counts[list] < CALLS_MAX &&
           sim_call_note(kind, rank, note_counts[list], &notes[list][note_counts[list]]))
        note_counts[list]++;
    for (uint32_t i = 0; i < note_counts[list]; i++) {
        const struct sim_call_note note = notes[list][i];
        enum verdict verdict = REDUNDANT;
        if (!is_redundant(kind, &note) && !(kind == SIM_STALE_WAIT && note.capturing)) {
            if (wanted++ % stride != 0)
                continue;
            config = (struct sim_config){.seed = 3, .policy = SIM_RANDOM, .quiet = true, .hang_ms = 300,
                                         .mutation = {kind, rank, i}};
            verdict = judge(settings, &config, &note);
            tried++;
        }
        counts[verdict]++;
        if (all && verdict != REDUNDANT)
            printf("# %s, rank %u, call %u, %s%s: %s\n", kinds[kind], rank, i, note.text, note.capturing ? " (captured)" : "",
                   verdict_names[verdict]);
    }
    const uint32_t caught = counts[BY_CHECKER] + counts[BY_REFUSAL] + counts[BY_ERROR] + counts[BY_BITS];
    CHECK(tried > 0 && 3 * caught >= tried, "%u tried, %u caught", tried, caught);
    for (int v = 0; v < VERDICTS; v++)
        if (counts[v] > 0)
            printf("# %u %s\n", counts[v], verdict_names[v]);
    char text[200];
    snprintf(text, sizeof(text), "%s, rank %u: %s, one at a time, %u of %u that are not redundant: %u are caught, %u are "
             "spare under all schedules", name,
             rank, kinds[kind], tried, wanted, caught, tried - caught);
    check_case(text);
}

static void family(const struct micro_settings *settings, const char *name, uint32_t stride)
{
    for (uint32_t rank = 0; rank < settings->ranks; rank += settings->ranks > 1 ? settings->ranks - 1 : 1) {
        mutate(settings, SIM_DROP_WAIT, rank, stride, name);
        mutate(settings, SIM_DROP_RECORD, rank, stride, name);
        mutate(settings, SIM_STALE_WAIT, rank, stride, name);
    }
}

int main(void)
{
    all = getenv("EO_TEST_FULL") != NULL;
    const uint32_t stride = all ? 1 : 41;
    family(&(struct micro_settings){.ranks = 2, .device = "cuda", .steps = 3, .world = MICRO_ONE_GPU}, "local, eager",
           stride);
    family(&(struct micro_settings){.ranks = 2, .device = "cuda", .steps = 4, .world = MICRO_GPU_EACH, .graph = true},
           "local, graph", stride);
    family(&(struct micro_settings){.ranks = 2, .device = "cuda", .steps = 3, .memory = EO_MEMORY_DYNAMIC_CACHING},
           "local, dynamic", stride);
    family(&(struct micro_settings){.ranks = 2, .device = "cuda", .steps = 3, .world = MICRO_NCCL, .mode = "registered",
                                    .separate_reduce_stream = true, .timeout_ms = 700}, "NCCL, eager",
           stride);
    return check_end();
}
