/* SPDX-License-Identifier: MIT
 *
 * Trainings of the micro model on the simulated GPU end in the bits of the CPU device's, whatever the schedule, with one
 * to four ranks, eager and as a graph, static and dynamic, in fp32 and bf16 (gathered in float8, too), on one GPU, on one each,
 * through NCCL; and the simulator has nothing to object to.
 * Method: seeds; each stands for a policy of the scheduler and its numbers. The short run takes a few of them, EO_TEST_FULL=1
 * all. With `one`, `each`, `nccl`, `offloaded` or `muon` as argument that part alone; with `threads` a real thread a stream,
 * for ThreadSanitizer; with `canary` it must find something.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eo_config.h"
#include "micro_model.h"
#include "tests/tap/tap.h"

enum { SEEDS_ALL = 200, SEEDS_SHORT = 4 };

/* The short run's: together they have every value of what follows from a seed (vary), already the first three for dynamic
 * memory. Then those of offloaded layers and of Muon, with every strategy that eight seeds have. */
static const uint64_t seeds_of_short[SEEDS_SHORT] = {5, 6, 7, 2};
static const uint64_t seeds_offloaded[SEEDS_SHORT] = {3, 4, 5, 6}, seeds_of_muon[SEEDS_SHORT] = {3, 5, 6, 7};

static void compare(const struct micro_settings *settings, const struct sim_config *config)
{
    static struct micro_result result;
    const struct micro_result *reference = micro_reference(settings);
    CHECK(micro_status(reference) == EO_OK, "the CPU's run: %s", micro_error(reference));
    sim_start(config);
    micro_train(settings, &result);
    const uint32_t violations = sim_finish();
    CHECK(micro_status(&result) == EO_OK, "seed %llu: %s", (unsigned long long)config->seed, micro_error(&result));
    CHECK(violations == 0, "seed %llu, %u ranks: %s", (unsigned long long)config->seed, settings->ranks, sim_violation(0));
    CHECK(micro_same(&result, reference), "seed %llu, %u ranks, %s: other bits than the CPU's (loss %.17g, there %.17g)",
          (unsigned long long)config->seed, settings->ranks, settings->dtype == EO_DTYPE_BF16 ? "bf16" : "fp32",
          result.losses[settings->steps - 1], reference->losses[settings->steps - 1]);
    const uint32_t ordinary = settings->leaves || settings->ordinary_step ? 3 : 2;
    CHECK(!settings->graph || result.graphs == settings->steps - ordinary, "%u steps ran as a graph", result.graphs);
}

/* What else is chosen follows from the seed, so that the same seed is the same run. */
static void vary(struct micro_settings *settings, uint64_t seed)
{
    static const char *const modes[] = {"plain", "registered"};
    settings->steps = 5;
    settings->micro_batches = 1 + seed % 2;
    settings->waits_each_step = seed / 2 % 2;
    settings->graph_times = settings->graph && seed / 2 % 3 == 0;
    settings->separate_reduce_stream = seed / 4 % 3 == 0;
    settings->norms_beside = seed / 2 % 2 == settings->ranks % 2;
    settings->norm_parts = seed % 3 != 1;
    settings->reduce_dtype = settings->dtype == EO_DTYPE_BF16 && seed % 5 == 0 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
    settings->float8_gather = settings->dtype == EO_DTYPE_BF16 && settings->ranks > 1 &&
                              settings->strategy != EO_STRATEGY_DDP && seed % 4 > 1;
    settings->evaluates = seed % 7 == 0;
    settings->debug = settings->memory == EO_MEMORY_STATIC && seed % 3 != 2;
    settings->mode = modes[seed % 2];
    settings->own_communicator = seed % 4 == 3;
    settings->reduce_inputs = 1 + seed % 3;
    settings->implicit_prefetch = seed / 3 % 2;
    if (settings->memory != EO_MEMORY_STATIC)
        settings->memory = EO_MEMORY_DYNAMIC_MALLOC + seed % 3;
}

static void family(enum micro_world world, uint32_t seeds, const char *name, enum sim_executor executor)
{
    static const char *const kinds[] = {"static", "static as a graph", "dynamic", "dynamic, offloaded to the host"};
    for (uint32_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
        const uint32_t kind_seeds = kind >= 2 && seeds == SEEDS_SHORT ? 3 : seeds; /* three modes, in turn */
        for (uint32_t bf16 = 0; bf16 < 2; bf16++) {
            for (uint32_t ranks = 1; ranks <= MICRO_RANKS; ranks++) {
                for (uint32_t s = 0; s < kind_seeds; s++) {
                    const uint64_t seed = seeds == SEEDS_SHORT ? seeds_of_short[s] : s + 1;
                    struct micro_settings settings = {
                        .ranks = ranks, .device = "cuda", .world = world, .graph = kind == 1,
                        .memory = kind >= 2 ? EO_MEMORY_DYNAMIC_MALLOC : EO_MEMORY_STATIC,
                        .dtype = bf16 ? EO_DTYPE_BF16 : EO_DTYPE_FP32};
                    vary(&settings, seed);
                    settings.dynamic_offload = kind == 3;
                    settings.float8_gather = settings.float8_gather && kind != 3;
                    compare(&settings, &(struct sim_config){.seed = seed, .executor = executor});
                }
            }
        }
        char text[160];
        snprintf(text, sizeof(text), "%s, %s: 1 to 4 ranks, fp32 and bf16, %u of %d seeds: the CPU's bits", name,
                 kinds[kind], kind_seeds, SEEDS_ALL);
        tap_case(text);
    }
}

/* A step is recorded only where it follows another of the schedule, also when that was left after eo_step_capture. */
static void left_captures(enum sim_executor executor)
{
    if (EO_DEBUG_ABORT) /* what is refused aborts */
        return;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct micro_settings settings = {.ranks = 2, .device = "cuda", .world = (enum micro_world)(seed % 3), .graph = true,
                                          .leaves = MICRO_EVALUATES + seed % 3, .dtype = seed % 2 ? EO_DTYPE_BF16 : EO_DTYPE_FP32};
        vary(&settings, seed);
        compare(&settings, &(struct sim_config){.seed = seed, .executor = executor});
    }
    tap_case("after eo_step_capture an evaluation, eo_sum or weights: that step is refused, run in the ordinary way, and the "
             "next is recorded");
}

static const char *const world_names[] = {"ranks on one GPU", "a GPU each", "NCCL"};

/* Eager and as a graph, in fp32 and in bf16. */
static struct micro_settings settings_of(uint32_t ranks, uint32_t world, uint64_t seed)
{
    return (struct micro_settings){.ranks = ranks, .device = "cuda", .world = (enum micro_world)world, .graph = seed % 2,
                                   .dtype = seed / 2 % 2 ? EO_DTYPE_BF16 : EO_DTYPE_FP32};
}

static void end_case(uint32_t world, const char *what, uint32_t seeds)
{
    char text[160];
    snprintf(text, sizeof(text), "%s: %s, %u seeds, eager and as a graph: the CPU's bits", world_names[world], what, seeds);
    tap_case(text);
}

/* Optimizer state, low halves and gradients in the host's memory, copied by a stream of their own, in a graph too; or updated
 * in the next step. */
static void offloaded(uint32_t seeds, enum sim_executor executor)
{
    for (uint32_t world = 0; world < 3; world++) {
        for (uint32_t ranks = 1; ranks <= MICRO_RANKS; ranks++) {
            for (uint32_t s = 0; s < seeds; s++) {
                const uint64_t seed = seeds == SEEDS_SHORT ? seeds_offloaded[s] : s + 1;
                struct micro_settings settings = settings_of(ranks, world, seed);
                if (ranks > 1)
                    settings.strategy = (eo_strategy[]){EO_STRATEGY_ZERO3, EO_STRATEGY_ZERO2, EO_STRATEGY_DDP}[seed % 3];
                vary(&settings, seed / 2 + 1);
                settings.offload_layers = seed % 4 ? UINT32_MAX : 2;
                settings.offload_slots = 1 + seed / 3 % 3;
                settings.offload_gradients = settings.micro_batches == 1 && seed % 5 < 3;
                settings.late_updates = seed / 2 % 2;
                settings.separate_evict_stream = (seed + ranks) % 2;
                settings.ordinary_step = settings.graph && seed / 4 % 2 ? 3 : 0;
                compare(&settings, &(struct sim_config){.seed = seed, .executor = executor});
            }
        }
        end_case(world, "offloaded to the host's memory, 1 to 4 ranks", seeds);
    }
}

/* Muon: directions, gathers of matrices, products on their owners and scatters of the results, under every strategy; averages of
 * the weights and steps that clip are other tests'. */
static void muon(uint32_t seeds, enum sim_executor executor)
{
    for (uint32_t world = 0; world < 3; world++) {
        for (uint32_t ranks = 1; ranks <= MICRO_RANKS; ranks++) {
            for (uint32_t s = 0; s < seeds; s++) {
                const uint64_t seed = seeds == SEEDS_SHORT ? seeds_of_muon[s] : s + 1;
                struct micro_settings settings = settings_of(ranks, world, seed);
                settings.optimizer = EO_OPTIMIZER_MUON;
                if (ranks > 1 && seed % 4 == 3)
                    settings.strategy = (eo_strategy[]){EO_STRATEGY_ZERO2, EO_STRATEGY_ZERO1, EO_STRATEGY_DDP}[seed / 4 % 3];
                if (ranks == 4 && seed % 4 == 2) {
                    settings.strategy = EO_STRATEGY_HSDP;
                    settings.shard_group = 2;
                }
                vary(&settings, seed / 2 + 1);
                compare(&settings, &(struct sim_config){.seed = seed, .executor = executor});
            }
        }
        end_case(world, "Muon, 1 to 4 ranks", seeds);
    }
}

/* Plain loops of the host cannot stand in for it. */
static void muon_without_a_product(void)
{
    static struct micro_result result;
    const struct micro_settings settings = {.ranks = 1, .device = "cuda", .optimizer = EO_OPTIMIZER_MUON, .no_product = true};
    if (EO_DEBUG_ABORT)
        return;
    sim_start(&(struct sim_config){.seed = 1});
    micro_train(&settings, &result);
    CHECK(sim_finish() == 0 && micro_status(&result) == EO_ERR_INVALID && strstr(result.log, "needs a matrix product"), "%s",
          result.log);
    tap_case("Muon without a product is refused on a GPU");
}

/* Nothing of the recording has run, but a rank alone cannot leave it. Of NCCL the others learn by its own errors. */
static void muon_with_a_product_refused(void)
{
    static struct micro_result result;
    for (enum micro_world world = MICRO_ONE_GPU; world < MICRO_NCCL; world++) {
        const struct micro_settings settings = {.ranks = 2,
                                                .device = "cuda",
                                                .world = world,
                                                .graph = true,
                                                .steps = 4,
                                                .timeout_ms = 2000,
                                                .optimizer = EO_OPTIMIZER_MUON,
                                                .refuses_product = true};
        sim_start(&(struct sim_config){.seed = 1, .quiet = true});
        micro_train(&settings, &result);
        CHECK(sim_finish() == 0, "%s", sim_violation(0));
        CHECK(result.status[1] == EO_ERR_DEVICE && strstr(result.error[1], "a product of parameter"), "%s", result.error[1]);
        CHECK(
            (result.status[0] == EO_ERR_COMM && strstr(result.error[0], "rank 1 gave up: rank 1: a product")) ||
                (result.status[0] == EO_ERR_DEVICE && strstr(result.error[0], "rank 0: step 3")), /* its recording has ended */
            "%s", result.error[0]);
    }
    tap_case("Muon's product refused while a step is recorded ends all ranks, on one GPU and on one each");
}

struct strategy_case {
    eo_strategy strategy;
    uint32_t ranks, group;
};

/* Through every kind of world: each result is the CPU's of the same strategy. */
static void in_all_worlds(const struct strategy_case *cases, size_t count, bool float8_frozen, uint32_t seeds,
                          enum sim_executor executor, const char *what)
{
    for (uint32_t world = 0; world < 3; world++) {
        for (size_t c = 0; c < count; c++) {
            for (uint64_t seed = 1; seed <= seeds; seed++) {
                struct micro_settings settings = settings_of(cases[c].ranks, world, seed);
                settings.strategy = cases[c].strategy;
                settings.shard_group = cases[c].group;
                vary(&settings, seed / 2 + 1);
                settings.float8_gather = settings.float8_gather && !float8_frozen;
                settings.float8_frozen = float8_frozen;
                compare(&settings, &(struct sim_config){.seed = seed, .executor = executor});
            }
        }
        end_case(world, what, seeds);
    }
}

static void strategies(uint32_t seeds, enum sim_executor executor)
{
    static const struct strategy_case cases[] = {{EO_STRATEGY_ZERO2, 2, 0}, {EO_STRATEGY_ZERO1, 3, 0}, {EO_STRATEGY_DDP, 2, 0},
                                                 {EO_STRATEGY_DDP, 3, 0}, {EO_STRATEGY_HSDP, 4, 2}};
    in_all_worlds(cases, sizeof(cases) / sizeof(cases[0]), false, seeds, executor, "zero2, zero1, ddp and hsdp");
}

/* Gathers by copy engine have a policy and windows of their own: the group of replicas, which only reduces, has neither. Its
 * three ranks run in that mode; the two of a shard's group, for which NCCL of this age has none, as registered. */
static void replicas_beside_copy_engines(enum sim_executor executor)
{
    struct micro_settings settings = {
        .ranks = 6, .device = "cuda", .world = MICRO_NCCL, .strategy = EO_STRATEGY_HSDP, .shard_group = 2};
    vary(&settings, 1);
    settings.mode = "zero";
    compare(&settings, &(struct sim_config){.seed = 1, .executor = executor, .device_count = 6});
    tap_case("NCCL, hsdp in mode zero, three replicas: no reduction by a symmetric kernel, the CPU's bits");
}

/* Frozen weights in MXFP8: gathered each time, once, or not at all, and widened before their use. */
static void frozen(uint32_t seeds, enum sim_executor executor)
{
    static const struct strategy_case cases[] = {
        {EO_STRATEGY_ZERO3, 1, 0}, {EO_STRATEGY_ZERO3, 2, 0}, {EO_STRATEGY_ZERO3, 3, 0}, {EO_STRATEGY_ZERO2, 2, 0},
        {EO_STRATEGY_ZERO1, 3, 0}, {EO_STRATEGY_DDP, 2, 0}, {EO_STRATEGY_HSDP, 4, 2}};
    in_all_worlds(cases, sizeof(cases) / sizeof(cases[0]), true, seeds, executor, "frozen weights in MXFP8, all strategies");
}

int main(int argc, char **argv)
{
    const bool threads = argc > 1 && strcmp(argv[1], "threads") == 0, full = getenv("EO_TEST_FULL") != NULL;
    const uint32_t seeds = threads ? (full ? 12 : 1) : full ? SEEDS_ALL : SEEDS_SHORT;
    const enum sim_executor executor = threads ? SIM_THREADS : SIM_SCHEDULED;
    if (argc > 1 && strcmp(argv[1], "canary") == 0) { /* a wait left out: for ThreadSanitizer to find */
        static struct micro_result result;
        const struct micro_settings settings = {.ranks = 2, .device = "cuda", .waits_each_step = true};
        for (uint32_t ordinal = 0; ordinal < 8; ordinal++) {
            sim_start(&(struct sim_config){.executor = SIM_THREADS, .quiet = true,
                                           .mutation = {.kind = SIM_DROP_WAIT, .ordinal = ordinal}});
            micro_train(&settings, &result);
        }
        tap_case("eight waits were left out, one at a time, and nothing was told");
        return tap_end();
    }
    static const char *const words[] = {"one", "each", "nccl"};
    for (uint32_t world = 0; world < 3; world++)
        if (argc < 2 || threads || strcmp(argv[1], words[world]) == 0)
            family((enum micro_world)world, seeds, world_names[world], executor);
    if (argc < 2 || (strcmp(argv[1], "offloaded") != 0 && strcmp(argv[1], "muon") != 0)) {
        strategies(threads ? 1 : full ? 60 : 3, executor);
        replicas_beside_copy_engines(executor);
        frozen(threads ? 1 : full ? 40 : 2, executor);
    }
    if (argc < 2 || threads || strcmp(argv[1], "muon") == 0)
        muon(seeds, executor);
    if (argc < 2 || strcmp(argv[1], "muon") == 0) {
        muon_without_a_product();
        muon_with_a_product_refused();
    }
    if (argc < 2 || threads || strcmp(argv[1], "offloaded") == 0)
        offloaded(threads ? 1 : full ? SEEDS_ALL : SEEDS_SHORT, executor);
    left_captures(executor);
    return tap_end();
}
