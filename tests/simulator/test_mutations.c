/* SPDX-License-Identifier: MIT
 *
 * Every wait and every record that the CUDA backend issues is needed, and then a run without it is caught; or it is
 * redundant, and then there is a proof. The same for a wait that binds to the version before. No call has another verdict.
 *
 *     caught      by the checker of accesses, by a refusal, by an error, by other bits, by times that cannot be, or, of the
 *                 events by which a stuck rank is found, by a rank that is stuck and not told, or told and not stuck
 *     implied     of a wait: by streams, events and what the host has waited for its order was there already
 *     proven      without the call every pair of conflicting accesses of the whole run is still ordered, and each byte is
 *                 written and read in the same order: so all schedules still compute the same. The host's own accesses
 *                 (pinned memory, memory that is given back) are among those accesses
 *
 * Method: a clean run numbers the calls. Then, for each, a run in which that one call is changed, and in which host threads
 * know least (sim_config.knows_least), so that what orders two accesses does so in every schedule; what is proven there
 * must be good under another policy of the scheduler as well, each call under its own. The short run takes every few of
 * them, EO_TEST_FULL=1 all, with a line for each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "micro_model.h"
#include "tests/tap/tap.h"

enum verdict { IMPLIED, PROVEN, BY_CHECKER, BY_REFUSAL, BY_ERROR, BY_BITS, BY_TIMES, BY_WATCH, UNEXPLAINED, VERDICTS };
static const char *const verdict_names[VERDICTS] = {
    "redundant: that order was there already", "redundant, proven: every pair of accesses is ordered as before",
    "caught: accesses not ordered", "caught: refused", "caught: an error", "caught: other bits",
    "caught: times that cannot be", "caught: a stuck rank is not told, or one is told that is not stuck",
    "NOT EXPLAINED: nothing is unordered, and other accesses are made"};

static bool all;
enum { TEXT_BYTES = 256, GATHERS = 1, REDUCTIONS = 2 /* communicators, in order of creation */ };
enum { CALLS_MAX = 1 << 15, PLACES_MAX = 128 };
static struct sim_call_note notes[CALLS_MAX];
static struct place {
    const void *at;
    uint32_t caught, redundant;
    char text[160];
} places[PLACES_MAX];
static uint32_t place_count;

static const struct micro_result *run(const struct micro_settings *settings, const struct sim_config *config)
{
    static struct micro_result result;
    sim_start(config);
    micro_train(settings, &result);
    return &result;
}

/* PROVEN here means only: nothing was seen. */
static enum verdict judge_once(const struct micro_settings *settings, const struct sim_config *config)
{
    const struct micro_result *reference = micro_reference(settings);
    const struct micro_result *result = run(settings, config);
    const uint32_t violations = sim_finish();
    if (sim_found_race())
        return BY_CHECKER;
    if (violations > 0)
        return BY_REFUSAL;
    if (micro_status(result) < 0)
        return BY_ERROR;
    if (!micro_same(result, reference))
        return BY_BITS;
    return result->timeline[0] ? BY_TIMES : PROVEN;
}

/* --- events by which a stuck rank is found ---
 *
 * Two runs that differ in the call alone: a rank that never comes to the collective that is issued next, or was issued
 * last; and work that takes long before one, while no rank is stuck. */

static void tell(const struct micro_settings *settings, const struct sim_config *config, char text[TEXT_BYTES])
{
    const struct micro_result *result = run(settings, config);
    const uint32_t violations = sim_finish();
    snprintf(text, TEXT_BYTES, "%s%d, %d: %.200s", violations > 0 ? "violations, " : "", result->status[0],
             result->status[1], micro_status(result) < 0 ? micro_error(result) : "");
}

/* The run without the change is made once for all changes that are held against it. */
static bool tells_otherwise(const struct micro_settings *settings, const struct sim_config *config)
{
    static struct {
        const struct micro_settings *settings;
        uint32_t comm, rank, sequence, slow, slow_rank;
        char text[TEXT_BYTES];
    } kept[4096];
    static uint32_t count;
    char text[TEXT_BYTES];
    uint32_t k = 0;
    while (k < count && !(kept[k].settings == settings && kept[k].comm == config->peer_comm &&
                          kept[k].rank == config->peer_rank && kept[k].sequence == config->peer_sequence &&
                          kept[k].slow == config->slow_operation && kept[k].slow_rank == config->slow_rank))
        k++;
    if (k == count && k + 1 < sizeof(kept) / sizeof(kept[0])) {
        struct sim_config clean = *config;
        clean.mutation = (struct sim_mutation){0};
        kept[k].settings = settings;
        kept[k].comm = config->peer_comm;
        kept[k].rank = config->peer_rank;
        kept[k].sequence = config->peer_sequence;
        kept[k].slow = config->slow_operation;
        kept[k].slow_rank = config->slow_rank;
        tell(settings, &clean, kept[k].text);
        count++;
    }
    if (k == count || kept[k].text[0] == 'v')
        return false;
    tell(settings, config, text);
    return strcmp(text, kept[k].text) != 0;
}

static bool is_caught_by_watch(const struct micro_settings *settings, const struct sim_config *config,
                               const struct sim_call_note *note)
{
    struct sim_config other = *config;
    other.hang_ms = 5000;
    for (uint32_t comm = GATHERS; comm <= REDUCTIONS; comm++) {
        for (uint32_t back = 0; back < 2; back++) {
            if (note->collectives[comm] < back)
                continue;
            other.peer = SIM_PEER_STUCK;
            other.peer_comm = comm;
            other.peer_rank = config->mutation.rank == 0;
            other.peer_sequence = note->collectives[comm] - back;
            if (tells_otherwise(settings, &other))
                return true;
        }
    }
    other.peer = SIM_PEER_GOOD;
    other.peer_comm = other.peer_rank = other.peer_sequence = 0;
    other.slow_rank = config->mutation.rank;
    other.slow_ns = (2 * settings->timeout_ms) * UINT64_C(1000000);
    for (uint32_t back = 0; back < 10 && back < note->issued; back++) {
        other.slow_operation = note->issued - back;
        if (tells_otherwise(settings, &other))
            return true;
    }
    return false;
}

/* --- one call --- */

static enum verdict judge(const struct micro_settings *settings, const struct sim_config *config,
                          const struct sim_call_note *note, uint64_t clean_hash)
{
    const enum verdict verdict = judge_once(settings, config);
    const bool is_same = sim_conflict_hash() == clean_hash;
    CHECK(sim_mutation_happened(), "the call did not come: runs of one seed differ");
    if (verdict != PROVEN)
        return verdict;
    /* All policies would say the same: one of them is tried, another for each call. */
    struct sim_config other = *config;
    other.knows_least = false;
    other.policy = SIM_RANDOM + config->mutation.ordinal % (SIM_POLICIES - SIM_RANDOM);
    other.seed++;
    const enum verdict again = judge_once(settings, &other);
    if (again == BY_CHECKER || again == BY_BITS)
        CHECK(!is_same, "proven, and under policy %d %s: %s; %s", other.policy, verdict_names[again], note->text,
              sim_violation(0));
    if (again != PROVEN)
        return again;
    if (config->mutation.kind == SIM_DROP_RECORD && settings->world == MICRO_NCCL && is_caught_by_watch(settings, config, note))
        return BY_WATCH;
    return is_same ? PROVEN : UNEXPLAINED;
}

static void note_place(const struct sim_call_note *note, enum verdict verdict)
{
    uint32_t p = 0;
    while (p < place_count && places[p].at != note->place)
        p++;
    if (p == PLACES_MAX)
        abort();
    if (p == place_count) {
        place_count++;
        places[p].at = note->place;
        snprintf(places[p].text, sizeof(places[p].text), "%s", note->text);
    }
    places[p].caught += verdict > PROVEN;
    places[p].redundant += verdict <= PROVEN;
}

/* One kind of change in all calls of one rank. */
static void mutate(const struct micro_settings *settings, enum sim_mutation_kind kind, uint32_t rank, uint32_t stride,
                   const char *name)
{
    static const char *const kinds[] = {"", "wait left out", "record left out", "wait for the version before"};
    uint32_t counts[VERDICTS] = {0}, tried = 0, wanted = 0, note_count = 0;
    const struct sim_config clean = {.seed = 3, .policy = SIM_LAZY, .knows_least = true,
                                     .nccl_keeps_no_order = settings->explicit_order};
    const enum verdict good = judge_once(settings, &clean);
    CHECK(good == PROVEN, "the clean run: %s: %s", verdict_names[good], sim_violation(0));
    const uint64_t clean_hash = sim_conflict_hash();
    while (note_count < CALLS_MAX && sim_call_note(kind, rank, note_count, &notes[note_count]))
        note_count++;
    for (uint32_t i = 0; i < note_count; i++) {
        const struct sim_call_note note = notes[i];
        enum verdict verdict = IMPLIED;
        if (kind == SIM_DROP_RECORD || !note.redundant) {
            if (wanted++ % stride != 0)
                continue;
            struct sim_config config = clean;
            config.quiet = true;
            config.hang_ms = 300;
            config.mutation = (struct sim_mutation){kind, rank, note.place_ordinal, note.place};
            verdict = judge(settings, &config, &note, clean_hash);
            tried++;
        }
        counts[verdict]++;
        if (verdict != IMPLIED)
            note_place(&note, verdict);
        CHECK(verdict != UNEXPLAINED, "%s, call %u, %s: not explained", kinds[kind], i, note.text);
        if (all && verdict != IMPLIED)
            printf("# %s, rank %u, call %u, %s%s: %s\n", kinds[kind], rank, i, note.text, note.capturing ? " (captured)" : "",
                   verdict_names[verdict]);
    }
    CHECK(tried > 0, "nothing to try");
    for (int v = 0; v < VERDICTS; v++)
        if (counts[v] > 0)
            printf("# %u %s\n", counts[v], verdict_names[v]);
    char text[240];
    snprintf(text, sizeof(text), "%s, rank %u: %s, one at a time, %u of %u: %u are caught, %u are proven to be redundant", name,
             rank, kinds[kind], tried, wanted, tried - counts[PROVEN] - counts[UNEXPLAINED], counts[PROVEN]);
    tap_case(text);
}

static void family(const struct micro_settings *settings, const char *name, uint32_t stride)
{
    for (uint32_t rank = 0; rank < settings->ranks; rank += settings->ranks > 1 ? settings->ranks - 1 : 1) {
        mutate(settings, SIM_DROP_WAIT, rank, stride, name);
        mutate(settings, SIM_DROP_RECORD, rank, stride, name);
        mutate(settings, SIM_STALE_WAIT, rank, stride, name);
    }
}

/* Told, and no more: a compiler makes several places of one. */
static void check_places(void)
{
    CHECK(place_count > 0, "nothing waits or records");
    uint32_t idle = 0;
    for (uint32_t p = 0; p < place_count; p++) {
        idle += places[p].caught == 0;
        if (all || places[p].caught == 0)
            printf("# place %u: %u caught, %u redundant; as: %s\n", p, places[p].caught, places[p].redundant, places[p].text);
    }
    char text[160];
    snprintf(text, sizeof(text), "%u places of the program wait or record: %u have calls that are caught", place_count,
             place_count - idle);
    tap_case(text);
}

static const struct {
    const char *name;
    struct micro_settings settings;
} families[] = {
    {"local, eager", {.ranks = 2, .device = "cuda", .steps = 3, .world = MICRO_ONE_GPU}},
    {"local, graph", {.ranks = 2, .device = "cuda", .steps = 4, .world = MICRO_GPU_EACH, .graph = true,
                      .norms_beside = true}},
    {"local, gathered in float8", {.ranks = 2, .device = "cuda", .steps = 2, .world = MICRO_ONE_GPU, .dtype = EO_DTYPE_BF16,
                                   .float8_gather = true}},
    {"local, frozen in MXFP8", {.ranks = 2, .device = "cuda", .steps = 2, .world = MICRO_ONE_GPU, .dtype = EO_DTYPE_BF16,
                                .float8_frozen = true}},
    {"local, offloaded, evictions beside fetches", {.ranks = 1, .device = "cuda", .steps = 3, .world = MICRO_ONE_GPU,
                                                    .offload_layers = UINT32_MAX, .offload_slots = 1, .offload_gradients = true,
                                                    .separate_evict_stream = true}},
    {"local, dynamic", {.ranks = 2, .device = "cuda", .steps = 3, .memory = EO_MEMORY_DYNAMIC_CACHING}},
    {"NCCL, eager", {.ranks = 2, .device = "cuda", .steps = 3, .world = MICRO_NCCL, .mode = "registered",
                     .separate_reduce_stream = true, .norms_beside = true, .timeout_ms = 60}},
    {"NCCL, one launch after the other", {.ranks = 2, .device = "cuda", .steps = 2, .world = MICRO_NCCL, .mode = "plain",
                                          .separate_reduce_stream = true, .explicit_order = true, .timeout_ms = 60}},
    {"NCCL, graph", {.ranks = 2, .device = "cuda", .steps = 4, .world = MICRO_NCCL, .mode = "registered", .graph = true,
                     .graph_times = true, .timeout_ms = 60}},
};

/* With an argument: families whose name has it. */
int main(int argc, char **argv)
{
    all = getenv("EO_TEST_FULL") != NULL;
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++)
        if (argc < 2 || strstr(families[f].name, argv[1]))
            family(&families[f].settings, families[f].name, all ? 1 : 83);
    check_places();
    return tap_end();
}
