/* SPDX-License-Identifier: MIT
 *
 * Whatever call fails, whenever: the training ends, with an error that says what and on which rank, or with the CPU's bits;
 * nothing that was made is left, and nothing is used after it was given up.
 * Method: a clean run tells which functions are called how often; then each fails once, on one rank (the last; the first, where
 * it calls for all), at its first, last and some call between (EO_TEST_FULL=1: more of them). Then failures on the device, a
 * lost peer and a stuck one, steps longer than the deadline of a collective, and memory that does not suffice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "micro_model.h"
#include "tests/tap/tap.h"

static bool all;
static uint32_t ended_count, tolerated_count;

/* What gives something back: when it fails, what it was to give back stays. */
static bool gives_back(const char *function)
{
    static const char *const words[] = {"Destroy", "Free", "Release", "Unmap", "Deregister", "Finalize", "Abort",
                                        "ncclCommGetAsyncError" /* asked while a communicator is finalized */};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strstr(function, words[i]))
            return true;
    return false;
}

static bool only_leaks(void)
{
    for (uint32_t i = 0; i < sim_violation_count() && i < 8; i++)
        if (strncmp(sim_violation(i), "never", 5) != 0 && strncmp(sim_violation(i), "ncclMemFree of", 14) != 0 &&
            !strstr(sim_violation(i), "still registered") && !strstr(sim_violation(i), "graph still holds"))
            return false;
    return true;
}

/* One run with a fault in it. */
static void try_fault(const struct micro_settings *settings, const struct sim_config *config, const char *what)
{
    static struct micro_result result;
    alarm(120); /* a hang of the host ends the program, with the case's name missing */
    sim_start(config);
    micro_train(settings, &result);
    const bool happened = sim_fault_happened();
    const uint32_t violations = sim_finish();
    alarm(0);
    CHECK(happened, "%s: did not happen", what);
    const eo_status status = micro_status(&result);
    const bool may_leak = result.must_exit || gives_back(what);
    CHECK(violations == 0 || (may_leak && only_leaks()), "%s: status %d: %s", what, status, sim_violation(0));
    if (status < 0) {
        ended_count++;
        CHECK(strstr(result.log, "rank") != NULL, "%s: nothing in the log says which rank: '%s' (%s)", what, result.log,
              micro_error(&result));
        CHECK(micro_error(&result)[0] != '\0', "%s: no text", what);
        CHECK(config->peer == SIM_PEER_GOOD || status != EO_ERR_DEVICE,
              "%s: waited for without a look at peers, until the simulator ended it: %s", what, micro_error(&result));
        if (all)
            printf("# %s -> %.100s\n", what, micro_error(&result));
    } else {
        tolerated_count++;
        CHECK(micro_same(&result, micro_reference(settings)), "%s: no error, and other bits", what);
    }
}

static void calls(const struct micro_settings *settings, const char *name)
{
    static struct micro_result result;
    static struct {
        const char *name;
        uint32_t rank, count;
    } functions[256];
    uint32_t function_count = 0;
    struct sim_config config = {.seed = 11, .policy = SIM_RANDOM};
    sim_start(&config);
    micro_train(settings, &result);
    CHECK(sim_finish() == 0 && micro_status(&result) == EO_OK, "the clean run: %s %s", micro_error(&result),
          sim_violation(0));
    while (sim_function(function_count) && function_count < 256) {
        const char *function = sim_function(function_count);
        const uint32_t rank = sim_calls(function, settings->ranks - 1) > 0 ? settings->ranks - 1 : 0;
        functions[function_count].name = function;
        functions[function_count].rank = rank;
        functions[function_count].count = sim_calls(function, rank);
        function_count++;
    }
    CHECK(function_count > 20, "%u functions", function_count);
    ended_count = tolerated_count = 0;
    for (uint32_t f = 0; f < function_count; f++) {
        const uint32_t rank = functions[f].rank, count = functions[f].count, tries = all ? 12 : 2;
        for (uint32_t t = 0; t < tries && t < count; t++) {
            const uint32_t ordinal = count <= tries ? t : (uint32_t)((uint64_t)t * (count - 1) / (tries - 1));
            char what[120];
            snprintf(what, sizeof(what), "%s, call %u of %u, rank %u", functions[f].name, ordinal, count, rank);
            config = (struct sim_config){.seed = 11, .policy = SIM_RANDOM, .quiet = true,
                                         .fault = {.function = functions[f].name, .rank = rank, .ordinal = ordinal}};
            try_fault(settings, &config, what);
        }
    }
    char text[200];
    snprintf(text, sizeof(text), "%s: %u functions fail: %u runs end with an error, %u go on to the CPU's bits", name,
             function_count, ended_count, tolerated_count);
    tap_case(text);
}

/* A collective begins and ends within the limit; a captured step is many, and what is computed between them. */
static void long_steps(void)
{
    static struct micro_result result;
    const struct micro_settings settings = {.ranks = 2, .device = "cuda", .steps = 6, .world = MICRO_NCCL, .graph = true,
                                            .mode = "registered", .timeout_ms = 60};
    for (uint64_t seed = 1; seed <= (all ? 20 : 5); seed++) {
        sim_start(&(struct sim_config){.seed = seed, .kernel_ns = 2000000});
        micro_train(&settings, &result);
        const uint32_t violations = sim_finish();
        CHECK(violations == 0 && micro_status(&result) == EO_OK && result.graphs >= 2, "seed %llu: %u steps as graphs: %s %s",
              (unsigned long long)seed, result.graphs, micro_error(&result), sim_violation(0));
        CHECK(micro_same(&result, micro_reference(&settings)), "seed %llu: other bits", (unsigned long long)seed);
    }
    tap_case("NCCL: a captured step may take longer than a collective");

    uint32_t told = 0;
    for (uint32_t sequence = 28; sequence < 70; sequence += all ? 3 : 12) {
        sim_start(&(struct sim_config){.seed = sequence, .quiet = true, .kernel_ns = 2000000, .peer = SIM_PEER_STUCK,
                                       .peer_comm = 1, .peer_rank = 1, .peer_sequence = sequence});
        micro_train(&settings, &result);
        (void)sim_finish();
        CHECK(micro_status(&result) < 0, "stuck from collective %u on: no error", sequence);
        told += strstr(result.log, "launch 'captured step' of 0 bytes") && strstr(result.log, "has begun but not ended within");
        if (all)
            printf("# %u: %.160s\n", sequence, result.log);
    }
    CHECK(told > 2, "%u captured steps were told of", told);
    tap_case("NCCL: a rank that hangs in a captured step is told, later by a few steps");
}

/* Whenever it was: what waits counts it as a moment. */
static void stopped_jobs(void)
{
    static struct micro_result result;
    for (enum micro_world world = MICRO_GPU_EACH; world <= MICRO_NCCL; world++) {
        const struct micro_settings settings = {
            .ranks = 2, .device = "cuda", .steps = 4, .world = world, .graph = true, .mode = "registered", .timeout_ms = 500};
        for (uint32_t call = 1; call < 600; call += all ? 3 : 23) {
            sim_start(
                &(struct sim_config){.seed = call, .kernel_ns = 1000000, .stopped_call = call, .stopped_ns = 60000000000});
            micro_train(&settings, &result);
            const uint32_t violations = sim_finish();
            CHECK(violations == 0 && micro_status(&result) == EO_OK, "before look %u: %s %s", call, micro_error(&result),
                  sim_violation(0));
        }
    }
    tap_case("a job that is stopped for longer than its deadlines, and goes on, has waited for nobody");
}

/* The capture is rank 0's, and all ranks issue into it: whoever fails, nobody frees memory under work that still runs. */
static void recordings(const struct micro_settings *settings)
{
    static struct micro_result result;
    const uint32_t rank = settings->ranks - 1;
    sim_start(&(struct sim_config){.seed = 11, .policy = SIM_RANDOM});
    micro_train(settings, &result);
    CHECK(sim_finish() == 0, "the clean run: %s", sim_violation(0));
    const uint32_t count = sim_calls("kernel launch", rank), recorded = 25; /* the last ones */
    CHECK(count > recorded, "%u launches", count);
    ended_count = tolerated_count = 0;
    for (uint64_t seed = 11; seed < (all ? 40 : 15); seed++) {
        for (uint32_t ordinal = count - recorded; ordinal < count; ordinal += all ? 1 : 2) {
            char what[80];
            snprintf(what, sizeof(what), "seed %u, kernel launch %u of %u, rank %u", (unsigned)seed, ordinal, count, rank);
            try_fault(settings, &(struct sim_config){.seed = seed, .policy = SIM_RANDOM, .quiet = true,
                                                     .fault = {.function = "kernel launch", .rank = rank, .ordinal = ordinal}},
                      what);
        }
    }
    CHECK(tolerated_count == 0, "%u runs went on", tolerated_count);
    tap_case("a rank that fails while a step is recorded leaves no work behind");
}

static void devices(const struct micro_settings *settings, const char *name)
{
    ended_count = tolerated_count = 0;
    for (uint32_t n = 1; n < 300; n += all ? 7 : 73) {
        char what[80];
        snprintf(what, sizeof(what), "operation %u of rank 0 fails on the device", n);
        try_fault(settings, &(struct sim_config){.seed = n, .quiet = true, .fail_operation = n}, what);
    }
    CHECK(tolerated_count == 0, "%u runs went on", tolerated_count);
    char text[200];
    snprintf(text, sizeof(text), "%s: a failure on the device ends the training: %u of %u", name, ended_count, ended_count);
    tap_case(text);
}

static void drop_text(void *user, const char *text, size_t bytes) {}

/* Calls that wait for all that a device has to do, without a status to tell of a peer. */
static void write_trace(void *user, uint32_t rank, uint32_t step, eo_runtime *runtime)
{
    eo_runtime_write_trace(runtime, drop_text, NULL);
}

static void give_up_save(void *user, uint32_t rank, uint32_t step, eo_runtime *runtime)
{
    eo_saver *saver;
    eo_status begun = eo_saver_create(&saver, eo_saver_params(.runtime = runtime, .folder = user));
    if (begun == EO_OK)
        begun = eo_saver_begin(saver, NULL, 0);
    (void)begun; /* it may have been too late */
    eo_saver_destroy(&saver);
}

static void peers(void (*after_step)(void *user, uint32_t rank, uint32_t step, eo_runtime *runtime), const char *when)
{
    char folder[] = "/tmp/evenodd-faults-XXXXXX", lock[64], text[160];
    const struct micro_settings settings = {.ranks = 3,
                                            .device = "cuda",
                                            .steps = 3,
                                            .world = MICRO_NCCL,
                                            .mode = "registered",
                                            .timeout_ms = 300,
                                            .after_step = after_step,
                                            .user = folder};
    CHECK(mkdtemp(folder) != NULL, "no folder");
    for (enum sim_peer peer = SIM_PEER_STUCK; peer <= SIM_PEER_LOST; peer++) {
        ended_count = tolerated_count = 0;
        for (uint32_t comm = 1; comm <= 2; comm++) {
            for (uint32_t sequence = 0; sequence < 30; sequence += all ? 3 : 13) {
                char what[80];
                snprintf(what, sizeof(what), "rank 1 is %s from collective %u of communicator %u on",
                         peer == SIM_PEER_STUCK ? "stuck" : "lost", sequence, comm);
                try_fault(&settings, &(struct sim_config){.seed = sequence, .quiet = true, .peer = peer, .peer_comm = comm,
                                                          .peer_rank = 1, .peer_sequence = sequence}, what);
            }
        }
        CHECK(tolerated_count == 0 && ended_count > 0, "%u runs went on", tolerated_count);
        snprintf(text, sizeof(text), "NCCL: a rank that %s%s",
                 peer == SIM_PEER_STUCK ? "hangs on the device is told by the deadline"
                                        : "is gone is told by NCCL's asynchronous error",
                 when);
        tap_case(text);
    }
    snprintf(lock, sizeof(lock), "%s/.lock", folder);
    (void)unlink(lock);
    (void)rmdir(folder);
}

static void memory(void)
{
    static struct micro_result result;
    const struct micro_settings settings = {.ranks = 2, .device = "cuda", .world = MICRO_GPU_EACH};
    uint32_t refused = 0, ran = 0;
    for (uint64_t kib = 64; kib <= 4096; kib *= 2) {
        sim_start(&(struct sim_config){.quiet = true, .device_bytes = kib << 10});
        micro_train(&settings, &result);
        CHECK(sim_finish() == 0, "%llu KiB: %s", (unsigned long long)kib, sim_violation(0));
        ran += micro_status(&result) == EO_OK;
        refused += micro_status(&result) == EO_ERR_NO_MEMORY;
        CHECK(micro_status(&result) == EO_OK || strstr(result.log, "memory") || strstr(result.log, "MiB"), "%llu KiB: %s",
              (unsigned long long)kib, result.log);
        if (all)
            printf("# %llu KiB: %s\n", (unsigned long long)kib, micro_error(&result));
    }
    CHECK(ran > 0 && refused > 0 && ran + refused == 7, "%u ran, %u were refused for want of memory", ran, refused);
    tap_case("device memory that does not hold the plan is refused at create, with nothing left");

    /* Three on one GPU: where it holds the plan of one or two, all are told before any of it is taken. */
    const struct micro_settings together = {.ranks = 3, .device = "cuda", .world = MICRO_ONE_GPU};
    uint32_t told = 0;
    for (uint64_t kib = 64; kib <= 1024; kib += 32) {
        sim_start(&(struct sim_config){.quiet = true, .device_bytes = kib << 10});
        micro_train(&together, &result);
        CHECK(sim_finish() == 0, "%llu KiB: %s", (unsigned long long)kib, sim_violation(0));
        told += micro_status(&result) == EO_ERR_NO_MEMORY && strstr(result.log, "needed by each of its 3 ranks");
    }
    CHECK(told > 0, "nobody was told that three ranks share a GPU");
    tap_case("ranks that share a GPU must have room on it together");

    const struct sim_config lacking[] = {{.no_driver = true}, {.no_device = true}, {.architecture = 52}};
    for (int i = 0; i < 2; i++) {
        sim_start(&lacking[i]);
        micro_train(&settings, &result);
        CHECK(sim_finish() == 0 && micro_status(&result) < 0 && result.log[0], "%d: %s", i, micro_error(&result));
        if (all)
            printf("# %s\n", micro_error(&result));
    }
    tap_case("no driver and no device are told");
}

/* Before anything is trained, on every rank, and nothing hangs. */
static void plans(void)
{
    for (enum micro_world world = MICRO_ONE_GPU; world <= MICRO_NCCL; world++) {
        const struct micro_settings settings = {.ranks = 3, .device = "cuda", .steps = 2, .world = world, .mode = "plain",
                                                .other_plan = true, .timeout_ms = 2000};
        static struct micro_result result;
        sim_start(&(struct sim_config){.seed = 5 + world});
        micro_train(&settings, &result);
        CHECK(sim_finish() == 0, "%s", sim_violation(0));
        for (uint32_t r = 0; r < settings.ranks; r++)
            CHECK(result.status[r] < 0 && strstr(result.error[r], "eo_runtime_create"), "rank %u: status %d: %s", r,
                  result.status[r], result.error[r]);
        CHECK(strstr(result.log, "has another plan (fingerprint"), "'%s'", result.log);
    }
    tap_case("unequal plans are told on every rank, before a step, on one GPU, on one each, through NCCL");
}

int main(void)
{
    all = getenv("EO_TEST_FULL") != NULL;
    const struct micro_settings eager = {.ranks = 2, .device = "cuda", .steps = 3},
                                graph = {.ranks = 2, .device = "cuda", .steps = 4, .world = MICRO_GPU_EACH, .graph = true,
                                         .graph_times = true, .waits_each_step = true},
                                dynamic = {.ranks = 2, .device = "cuda", .steps = 3,
                                           .memory = EO_MEMORY_DYNAMIC_CACHING},
                                pool = {.ranks = 1, .device = "cuda", .steps = 3, .memory = EO_MEMORY_DYNAMIC_POOL},
                                nccl = {.ranks = 2, .device = "cuda", .steps = 4, .world = MICRO_NCCL, .graph = true,
                                        .mode = "registered", .timeout_ms = 2000},
                                groups = {.ranks = 4, .device = "cuda", .steps = 3, .strategy = EO_STRATEGY_HSDP,
                                          .shard_group = 2, .timeout_ms = 2000},
                                nccl_groups = {.ranks = 4, .device = "cuda", .steps = 3, .world = MICRO_NCCL,
                                               .strategy = EO_STRATEGY_HSDP, .shard_group = 2, .mode = "registered",
                                               .timeout_ms = 2000};
    calls(&eager, "local, eager");
    calls(&graph, "local, graph");
    calls(&dynamic, "local, dynamic:caching");
    calls(&pool, "one rank, dynamic:pool");
    calls(&nccl, "NCCL, graph");
    calls(&groups, "local, hsdp:2");
    calls(&nccl_groups, "NCCL, hsdp:2");
    long_steps();
    stopped_jobs();
    recordings(&graph);
    devices(&eager, "local");
    devices(&nccl, "NCCL");
    peers(NULL, "");
    peers(write_trace, ", also to who writes a trace");
    peers(give_up_save, ", also to who ends a save while it copies");
    plans();
    memory();
    return tap_end();
}
