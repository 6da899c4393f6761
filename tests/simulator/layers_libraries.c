/* SPDX-License-Identifier: MIT
 *
 * Of the layers on a simulated GPU: products by cuBLASLt, attention by cuDNN and without it, and calls of both that fail.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "layers_compare.h"
#include "tests/simulator/cublaslt/cublaslt.h"
#if defined(EO_SIM_CUDNN)
#include "tests/simulator/cudnn/cudnn.h"
#endif
#include "tests/simulator/cuda/sim.h"
#include "tests/tap/tap.h"

/* Where products with an epilogue are slow, those without one and a kernel are taken. */
void choice_of_epilogues(void)
{
    for (uint32_t which = 0; which < 2; which++) {
        const struct transformer_settings s = settings_of(which * 4); /* GPT-2 has epilogues */
        const int before = sim_cublaslt_counts().fused;
        compare(&s, 14);
        const int fast = sim_cublaslt_counts().fused - before;
        sim_cublaslt_fused_is_slower = 64;
        const struct transformer_result device = run_simulated(&s, 14);
        check_close(&s, &device);
        sim_cublaslt_fused_is_slower = 0;
        const int slow = sim_cublaslt_counts().fused - before - fast;
        CHECK(slow > 0 && slow < fast, "%d products with an epilogue where they are slow, else %d", slow, fast);
    }
    tap_case("an epilogue that is slower than a kernel of its own is not taken");
}

static void know_no_plan(bool none)
{
#if defined(EO_SIM_CUDNN)
    sim_cudnn_knows_no_plan = none;
#else
    (void)none;
#endif
}

void blocks_of_queries(void)
{
    know_no_plan(true);
    for (uint32_t which = 0; which < 4; which++) {
        const struct transformer_settings s = settings_of(which);
        const struct transformer_result device = run_simulated(&s, 8), again = run_simulated(&s, 9);
        check_close(&s, &device);
        CHECK(same_bits(&device, &again), "another schedule gave other bits");
    }
    know_no_plan(false);
    tap_case("attention by products over blocks of queries agrees with the reference");
}

#if defined(EO_SIM_CUDNN)
void no_cudnn(void)
{
    const struct transformer_settings s = settings_of(2);
    know_no_plan(true);
    const struct transformer_result no_plan = run_simulated(&s, 8);
    know_no_plan(false);
    lacks = "cudnn";
    const int runs = sim_cudnn_counts().runs;
    const struct transformer_result no_library = run_simulated(&s, 8);
    lacks = NULL;
    CHECK(sim_cudnn_counts().runs == runs, "cuDNN ran");
    CHECK(same_bits(&no_plan, &no_library), "the bits are others than without a plan");
    tap_case("where cuDNN cannot be loaded, attention runs as products");
}

/* One for each length of a text that grows would take longer than its passes. */
void plans_of_logits(void)
{
    struct transformer_settings s = settings_of(2);
    const int before = sim_cudnn_counts().plans;
    (void)run_simulated(&s, 26);
    const int trained = sim_cudnn_counts().plans - before;
    s.evaluates = true;
    (void)run_simulated(&s, 26);
    const int added = sim_cudnn_counts().plans - before - 2 * trained;
    CHECK(added == 2, "%d plans for logits of 4 lengths, not one forward and one backward", added);
    tap_case("logits of texts of any length up to 128 tokens are computed by the same plans");
}

/* The graphs, packs and runs of the program itself: what its descriptors say is computed, node by node. */
void cudnn_cases(void)
{
    for (uint32_t which = 0; which < 4; which++) {
        struct transformer_settings s = settings_of(which & 1 ? 3 : 2);
        s.ranks = 1 + which / 2;
        s.recompute = which == 1 ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_CHEAP;
        const int runs = sim_cudnn_counts().runs;
        const struct transformer_result device = run_simulated(&s, 20);
        CHECK(sim_cudnn_counts().runs > runs, "cuDNN did not run");
        check_close(&s, &device);
        const struct transformer_result again = run_simulated(&s, 21);
        s.graph = true;
        const struct transformer_result graph = run_simulated(&s, 22);
        s.graph = false;
        s.memory = EO_MEMORY_DYNAMIC_CACHING;
        const struct transformer_result dynamic = run_simulated(&s, 23);
        CHECK(same_bits(&device, &again) && same_bits(&device, &graph) && same_bits(&device, &dynamic),
              "another schedule, a graph or dynamic memory gave other bits");
    }
    sim_cudnn_version = 90501;
    const struct transformer_settings s = settings_of(2);
    const int runs_before = sim_cudnn_counts().runs;
    const struct transformer_result without = run_simulated(&s, 25);
    sim_cudnn_version = 0;
    check_close(&s, &without);
    CHECK(sim_cudnn_counts().runs == runs_before && strstr(without.warning, "9.8.0"),
          "cuDNN 9.5.1 is taken, or not told: '%s'", without.warning);
    const struct sim_cudnn_counts counts = sim_cudnn_counts();
    CHECK(counts.refused == 0, "cuDNN would refuse: %s", counts.first_refusal);
    CHECK(counts.handles == 0 && counts.descriptors == 0, "%d handles and %d descriptors are left", counts.handles,
          counts.descriptors);
    tap_case("attention by cuDNN, from what its descriptors say: agrees with the reference, as a graph and dynamic too");

    struct transformer_settings grouped = settings_of(3); /* heads of keys are shared */
    const struct transformer_result host = run_reference(&grouped);
    grouped.device = "cuda";
    for (int64_t id = 1; id <= 14; id++) {
        for (int forgotten = 0; forgotten < 2; forgotten++) {
            const bool in_scratch = id == 5 || id == 13 || id == 14, by_value = id == 6 || id == 7 || id == 12;
            struct transformer_result device;
            if (!forgotten && (in_scratch || by_value)) /* read as it was written; without strides */
                continue;
            sim_cudnn_mistake = (struct sim_cudnn_mistake){.id = id, .elements = forgotten ? 0 : 8,
                                                           .forgotten = forgotten};
            sim_cudnn_forget_refusals();
            sim_start(&(struct sim_config){.seed = 24, .device_bytes = 512u << 20, .quiet = true});
            transformer_train(&grouped, &device);
            const bool told = device.status < 0 || sim_violation_count() > 0 || sim_cudnn_counts().refused > 0;
            CHECK(told || (!forgotten && !is_close(&device, &host, &grouped)), "tensor %d: %s is not found", (int)id,
                  forgotten ? "an id that a pack lacks" : "a wrong stride");
            CHECK(!forgotten || strstr(device.error, "cudnn"), "tensor %d: '%s'", (int)id, device.error);
        }
    }
    sim_cudnn_mistake = (struct sim_cudnn_mistake){0};
    sim_cudnn_forget_refusals();
    tap_case("a wrong stride, and an id that is left out, are found: each tensor in turn");
}
#endif

/* Products, kernels and attention that fail inside a layer, on the second of two ranks. */
void failures(void)
{
    static const struct {
        const char *function, *what;
        int error;
        bool is_lost;
    } faults[] = {
        {"cublasLtMatmul", "cublasLtMatmul", 0, false},
        {"kernel launch", "kernel ", cudaErrorLaunchOutOfResources, false},
        {"kernel launch", "kernel ", cudaErrorIllegalAddress, true},
#if defined(EO_SIM_CUDNN)
        {"cudnnBackendExecute", "attention ", 0, false},
#endif
    };
    struct transformer_settings s = settings_of(3);
    uint32_t forward = 0, backward = 0, told = 0;
    s.ranks = 2;
    s.steps = 2;
    s.device = "cuda";
    for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++) {
        struct transformer_result result;
        sim_start(&(struct sim_config){.seed = 30, .device_bytes = 512u << 20});
        transformer_train(&s, &result);
        const uint32_t count = sim_calls(faults[f].function, 1);
        CHECK(sim_finish() == 0 && result.status == EO_OK && count > 4, "the clean run: %u calls", count);
        for (uint32_t ordinal = count / 3; ordinal < count; ordinal += 1 + count / 23) {
            sim_start(&(struct sim_config){.seed = 30, .device_bytes = 512u << 20, .quiet = true,
                                           .fault = {.function = faults[f].function, .rank = 1, .ordinal = ordinal,
                                                     .error = faults[f].error}});
            transformer_train(&s, &result);
            const bool is_timing = f < 2 && result.status == EO_OK; /* then another algorithm is taken */
            CHECK(sim_fault_happened() && (is_timing || result.status < 0), "%s, call %u: did not happen, or was not told",
                  faults[f].function, ordinal);
            if (is_timing)
                continue;
            CHECK(strstr(result.error, faults[f].is_lost ? "rank " : "rank 1"), "%s, call %u: status %d, which rank? '%s'", faults[f].function, ordinal, result.status, result.error);
            if (!strstr(result.error, faults[f].what)) /* a kernel of the step's end, which the runtime tells */
                continue;
            const bool is_layer = strstr(result.error, "embedding") || strstr(result.error, "block") ||
                                  strstr(result.error, "head");
            told += is_layer;
            forward += strstr(result.error, "forward: ") != NULL;
            backward += strstr(result.error, "backward: ") != NULL;
            CHECK(is_layer || strstr(result.error, "step"), "%s, call %u: which layer? '%s'", faults[f].function, ordinal,
                  result.error);
            CHECK(!faults[f].is_lost || strstr(result.error, "lost to this process"), "%s, call %u: is it lost? '%s'",
                  faults[f].function, ordinal, result.error);
        }
    }
    CHECK(forward > 3 && backward > 3 && told > 20, "%u told, %u forward, %u backward", told, forward, backward);
    tap_case("a product, a kernel or attention that fails is told with its rank, layer and pass, and whether the GPU is lost");
}

/* What fails in the trainer's own code is not evenodd's. */
void errors_left_unread(void)
{
    struct transformer_settings s = settings_of(3);
    const struct transformer_result plain = run_simulated(&s, 32);
    s.leaves_error = true;
    const struct transformer_result device = run_simulated(&s, 32);
    CHECK(same_bits(&plain, &device), "other bits");
    CHECK(strstr(device.warning, "nobody has read its error: invalid device ordinal"), "warned: '%s'", device.warning);
    tap_case("an error of CUDA that the trainer left unread is told, and is no kernel's");
}

static int count_plans(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[4096];
    int count = 0;
    while (file && fgets(line, sizeof(line), file))
        count += strncmp(line, "plan ", 5) == 0;
    if (file)
        fclose(file);
    return count;
}

void plan_cache(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/tmp/evenodd-sim-plans-%ld", (long)getpid());
    struct transformer_settings s = settings_of(2);
    s.plan_cache = path;
    const int before = sim_cublaslt_counts().heuristics;
    const struct transformer_result first = run_simulated(&s, 10);
    const int chosen = sim_cublaslt_counts().heuristics - before, checks = sim_cublaslt_counts().checks;
    const struct transformer_result second = run_simulated(&s, 11);
    CHECK(chosen > 0 && sim_cublaslt_counts().heuristics - before == chosen, "%d plans chosen, then %d more", chosen,
          sim_cublaslt_counts().heuristics - before - chosen);
    CHECK(sim_cublaslt_counts().checks - checks == count_plans(path), "%d plans checked of %d",
          sim_cublaslt_counts().checks - checks, count_plans(path));
    CHECK(same_bits(&first, &second), "other bits with the file");
    remove(path);
    tap_case("with a file of plans nothing is chosen a second time");
}
