/* SPDX-License-Identifier: MIT
 *
 * GPT-2, Llama, Qwen2 and Qwen3 on a simulated GPU, through the layers' own CUDA code (teams, plans of products, epilogues, scratch,
 * launches): every training ends in the bits of the CPU's reference kernels, and neither the simulator nor its cuBLASLt has
 * anything to object to.
 * Method: kernels are the reference's twins. Where attention is computed by products, sums go in another order: there
 * losses are compared with a tolerance.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"
#include "sim_check.h"
#include "sim_cublaslt.h"
#include "sim_transformer.h"
#include "twin_layers.h"

static bool same_bits(const struct transformer_result *a, const struct transformer_result *b)
{
    return memcmp(a->losses, b->losses, sizeof(a->losses)) == 0 && memcmp(a->norms, b->norms, sizeof(a->norms)) == 0 &&
           a->weights == b->weights && a->evaluation == b->evaluation && a->first_logit == b->first_logit;
}

static struct transformer_result run_simulated(const struct transformer_settings *settings, uint64_t seed)
{
    struct transformer_result result;
    struct transformer_settings on_device = *settings;
    on_device.device = "cuda";
    sim_start(&(struct sim_config){.seed = seed, .device_bytes = 512u << 20});
    transformer_train(&on_device, &result);
    const uint32_t violations = sim_finish();
    const struct sim_cublaslt_counts counts = sim_cublaslt_counts();
    CHECK(result.status == EO_OK, "seed %llu: %s", (unsigned long long)seed, result.error);
    CHECK(violations == 0, "seed %llu: %s", (unsigned long long)seed, sim_violation(0));
    CHECK(counts.refused == 0, "cuBLASLt would refuse: %s", counts.first_refusal);
    CHECK(counts.handles == 0, "%d handles are left", counts.handles);
    return result;
}

static struct transformer_result run_reference(const struct transformer_settings *settings)
{
    struct transformer_result result;
    struct transformer_settings on_host = *settings;
    on_host.device = "cpu";
    on_host.graph = false;
    transformer_train(&on_host, &result);
    CHECK(result.status == EO_OK, "on the CPU: %s", result.error);
    return result;
}

static void compare(const struct transformer_settings *settings, uint64_t seed)
{
    const struct transformer_result device = run_simulated(settings, seed), host = run_reference(settings);
    CHECK(same_bits(&device, &host), "family %d, dtype %d/%d, ranks %u, seed %llu: loss %.9g, norm %.9g; on the CPU %.9g, %.9g",
          settings->family, settings->dtype, settings->reduce_dtype, settings->ranks, (unsigned long long)seed,
          device.losses[TRANSFORMER_STEPS - 1], device.norms[TRANSFORMER_STEPS - 1], host.losses[TRANSFORMER_STEPS - 1],
          host.norms[TRANSFORMER_STEPS - 1]);
    CHECK(device.losses[TRANSFORMER_STEPS - 1] < device.losses[0], "nothing was learned: %g, then %g", device.losses[0],
          device.losses[TRANSFORMER_STEPS - 1]);
}

static struct transformer_settings settings_of(uint32_t which)
{
    return (struct transformer_settings){
        .family = which & 1 ? EO_FAMILY_LLAMA : EO_FAMILY_GPT2,
        .dtype = which & 2 ? EO_DTYPE_BF16 : EO_DTYPE_FP32,
        .ranks = 1 + (which >> 2 & 1),
        .micro_batches = 1 + (which >> 1 & 1),
    };
}

/* Qwen2, Qwen3, and both at once; the rest as in settings_of. */
static struct transformer_settings qwen_of(uint32_t which)
{
    struct transformer_settings s = settings_of(which | 1);
    s.qkv_bias = which % 3 != 1;
    s.qk_norm = which % 3 != 0;
    return s;
}

static void qwen_cases(void)
{
    for (uint32_t which = 0; which < 8; which++) {
        struct transformer_settings s = qwen_of(which);
        compare(&s, 10);
        s.recompute = which & 1 ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_CHEAP;
        s.half_blocks = which & 2;
        s.graph = which & 1;
        s.evaluates = true;
        compare(&s, 11);
        s.recompute = EO_RECOMPUTE_CHEAP;
        s.graph = false;
        s.odd_widths = s.dtype == EO_DTYPE_FP32;
        s.memory = EO_MEMORY_DYNAMIC_POOL;
        compare(&s, 12);
    }
    check_case("biases of q, k and v, and norms of heads: the same bits");
}

static void same_bits_cases(uint32_t seeds)
{
    for (uint32_t which = 0; which < 8; which++)
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            const struct transformer_settings s = settings_of(which);
            compare(&s, seed);
        }
    check_case("both families, fp32 and bf16, one and two ranks: the reference's bits");

    for (uint32_t which = 0; which < 4; which++) {
        struct transformer_settings s = settings_of(which);
        s.graph = true;
        s.ranks = 2;
        compare(&s, 1);
        s.graph = false;
        s.memory = EO_MEMORY_DYNAMIC_POOL;
        compare(&s, 2);
    }
    check_case("as a graph, and with dynamic memory: the same bits");

    for (uint32_t which = 0; which < 4; which++) {
        struct transformer_settings s = settings_of(which);
        s.recompute = which & 1 ? EO_RECOMPUTE_CHEAP : EO_RECOMPUTE_BLOCKS;
        s.head_chunks = 5;
        s.evaluates = true;
        compare(&s, 3);
        s.recompute = which & 1 ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_CHEAP;
        s.half_blocks = true;
        compare(&s, 4);
    }
    check_case("recompute, half blocks, the head in pieces, evaluation and logits: the same bits");

    for (uint32_t which = 0; which < 2; which++) {
        struct transformer_settings s = settings_of(which | 2);
        s.reduce_dtype = EO_DTYPE_BF16;
        s.ranks = 2;
        compare(&s, 5);
    }
    check_case("gradients reduced in bf16: the same bits");
}

/* Rows whose widths are no multiples of 8 elements: epilogues are kernels of their own, and round once more in bf16. */
static void odd_widths(void)
{
    for (uint32_t which = 0; which < 2; which++) {
        struct transformer_settings s = settings_of(which);
        s.odd_widths = true;
        compare(&s, 6);
        s.dtype = EO_DTYPE_BF16;
        const struct transformer_result device = run_simulated(&s, 7), host = run_reference(&s);
        for (int step = 0; step < TRANSFORMER_STEPS; step++)
            CHECK(fabs(device.losses[step] - host.losses[step]) < 2e-2, "step %d: %g, on the CPU %g", step,
                  device.losses[step], host.losses[step]);
    }
    check_case("odd widths run as well: in fp32 the same bits");
}

static void blocks_of_queries(void)
{
    twin_attention_by_blocks = true;
    for (uint32_t which = 0; which < 4; which++) {
        struct transformer_settings s = settings_of(which);
        const double tolerance = s.dtype == EO_DTYPE_BF16 ? 2e-2 : 1e-4;
        const struct transformer_result device = run_simulated(&s, 8), host = run_reference(&s);
        const struct transformer_result again = run_simulated(&s, 9);
        for (int step = 0; step < TRANSFORMER_STEPS; step++)
            CHECK(fabs(device.losses[step] - host.losses[step]) < tolerance &&
                      fabs(device.norms[step] / host.norms[step] - 1) < 10 * tolerance,
                  "step %d: loss %g, norm %g; on the CPU %g, %g", step, device.losses[step], device.norms[step],
                  host.losses[step], host.norms[step]);
        CHECK(same_bits(&device, &again), "another schedule gave other bits");
    }
    twin_attention_by_blocks = false;
    check_case("attention by products over blocks of queries agrees with the reference");
}

static void plan_cache(void)
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
    CHECK(sim_cublaslt_counts().checks - checks == chosen, "%d plans checked of %d", sim_cublaslt_counts().checks - checks,
          chosen);
    CHECK(same_bits(&first, &second), "other bits with the file");
    remove(path);
    check_case("with a file of plans nothing is chosen a second time");
}

int main(void)
{
    same_bits_cases(getenv("EO_TEST_FULL") ? 20 : 2);
    qwen_cases();
    odd_widths();
    blocks_of_queries();
    plan_cache();
    return check_end();
}
