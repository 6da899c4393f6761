/* SPDX-License-Identifier: MIT
 *
 * GPT-2, Llama, Qwen2 and Qwen3 on a simulated GPU, through the layers' own CUDA code (teams, plans of products, epilogues,
 * scratch, launches, kernels): every schedule, graphs, dynamic memory and recompute end in the same bits, close to those of the
 * CPU's reference kernels, and neither the simulator, its checker of kernels nor its cuBLASLt has anything to object to.
 * Method: kernels are the .cu files themselves. Their sums go in another order than the reference's: hence a tolerance.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/simulator/cuda/sim.h"
#include "tests/simulator/cublaslt/cublaslt.h"
#if defined(EO_SIM_CUDNN)
#include "tests/simulator/cudnn/cudnn.h"
#endif
#include "tests/tap/tap.h"
#include "transformer.h"

/*
 * The norm of the gradients is a sum of double over layers, each by its shards. Halves of blocks are layers of their own: the
 * same squares in another order. A square takes part in `additions` at most (streams/sum_order.h), each of which may be off by
 * 2^-53 of a sum of positive numbers; the root halves that, and there are two norms. 0: the same bits.
 */
enum { ADDITIONS = 8704 / 32 + 5 /* a shard's lanes, folded */ + 8 /* layers */ + TRANSFORMER_RANKS_MAX };

static bool same_numbers(const struct transformer_result *a, const struct transformer_result *b, uint32_t additions)
{
    for (int step = 0; step < TRANSFORMER_STEPS; step++)
        if (!(fabs(a->norms[step] - b->norms[step]) <= additions * 0x1p-53 * b->norms[step]))
            return false;
    return memcmp(a->losses, b->losses, sizeof(a->losses)) == 0 && a->weights == b->weights;
}

enum { LAST = 2 }; /* step that all trainings have, for messages */

static bool same_bits(const struct transformer_result *a, const struct transformer_result *b)
{
    return same_numbers(a, b, 0);
}

static const char *lacks; /* of the simulated machine */
static int architecture;  /* [90] */

static struct transformer_result run_simulated(const struct transformer_settings *settings, uint64_t seed)
{
    struct transformer_result result;
    struct transformer_settings on_device = *settings;
    on_device.debug = seed % 2; /* what is dead is poisoned, and the numbers are the same */
    on_device.device = "cuda";
    const int constant = sim_cublaslt_counts().constant;
    sim_start(&(struct sim_config){.seed = seed, .device_bytes = 512u << 20, .lacks = lacks,
                                  .architecture = architecture});
    transformer_train(&on_device, &result);
    const uint32_t violations = sim_finish();
    const struct sim_cublaslt_counts counts = sim_cublaslt_counts();
    CHECK(result.status == EO_OK, "seed %llu: %s", (unsigned long long)seed, result.error);
    CHECK(violations == 0, "seed %llu: %s", (unsigned long long)seed, sim_violation(0));
    CHECK(counts.refused == 0, "cuBLASLt would refuse: %s", counts.first_refusal);
    CHECK(counts.handles == 0, "%d handles are left", counts.handles);
    CHECK(counts.constant == constant || settings->lora.rank, /* an adapter's B begins as zeros */
          "%d products of constants were run", counts.constant - constant);
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

/*
 * How far the device may be from the reference, which adds up in another order. u: half a unit of the last place.
 *
 * fp32, u = 2^-24: on the longest path to a loss lie some 800 roundings (four halves with a norm of 32 + 6, an in-product of 32
 * + 2, attention of 9 + 20 or an activation, an out-product of 32 to 64 + 2; a norm, a product and a loss of 64 for the head).
 * Independent ones grow by the root: 28 u = 1.7e-6. Seen at most: 1 u.
 * bf16, u = 2^-9: both sides round at the same places, some 22 on that path; they differ where a sum lies next to the middle of
 * two numbers, by 2 u in one element among the 18 x 64 logits whose mean the loss is. Seen at most: 4e-5.
 *
 * After an update nothing of the kind can be said: AdamW's first steps go by the sign of a gradient, and those near zero have
 * any. Two to ten times what was seen: fp32 6e-8 and 2e-6, bf16 9e-4 and 0.042.
 */
static const struct closeness {
    double first_loss, loss, first_norm, norm; /* of the value */
    double evaluation, logit;
} closeness_of[] = {
    [EO_DTYPE_FP32] = {1e-6, 2e-6, 1e-6, 2e-5, 5e-6, 1e-5},
    [EO_DTYPE_BF16] = {4e-4, 5e-3, 3e-3, 0.2, 2e-2, 6e-2},
};

static bool is_close(const struct transformer_result *device, const struct transformer_result *host, eo_dtype dtype)
{
    const struct closeness *c = &closeness_of[dtype];
    for (int step = 0; step < TRANSFORMER_STEPS && host->losses[step] != 0; step++)
        if (!(fabs(device->losses[step] / host->losses[step] - 1) < (step ? c->loss : c->first_loss)) ||
            !(fabs(device->norms[step] / host->norms[step] - 1) < (step ? c->norm : c->first_norm)))
            return false;
    return fabs(device->evaluation - host->evaluation) < c->evaluation &&
           fabs((double)device->first_logit - (double)host->first_logit) < c->logit;
}

static void check_close(const struct transformer_settings *s, const struct transformer_result *device)
{
    const struct transformer_result host = run_reference(s);
    CHECK(is_close(device, &host, s->dtype),
          "losses %g ... %g, norms %g ... %g, then %g, %g; on the CPU %g ... %g, %g ... %g, %g, %g", device->losses[0],
          device->losses[LAST], device->norms[0], device->norms[LAST], device->evaluation,
          (double)device->first_logit, host.losses[0], host.losses[LAST], host.norms[0],
          host.norms[LAST], host.evaluation, (double)host.first_logit);
}

/* The same numbers step by step, in static memory, with all activations kept, and blocks that are one layer. */
static const struct transformer_result *run_plainly(const struct transformer_settings *settings)
{
    static struct {
        struct transformer_settings settings;
        struct transformer_result result;
    } runs[96];
    static uint32_t count;
    struct transformer_settings plain;
    memcpy(&plain, settings, sizeof(plain)); /* the padding, too */
    plain.graph = false;
    plain.memory = EO_MEMORY_STATIC;
    plain.evaluates = true;
    plain.recompute = EO_RECOMPUTE_NONE;
    plain.half_blocks = false;
    plain.unit_blocks = 0;
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(&runs[i].settings, &plain, sizeof(plain)) == 0)
            return &runs[i].result;
    if (count == sizeof(runs) / sizeof(runs[0]))
        abort();
    memcpy(&runs[count].settings, &plain, sizeof(plain));
    runs[count].result = run_simulated(&plain, 100 + count);
    return &runs[count++].result;
}

/* Another schedule, a graph, dynamic memory, recompute, halves of blocks: the same bits. */
static void compare(const struct transformer_settings *settings, uint64_t seed)
{
    const struct transformer_result device = run_simulated(settings, seed), *plain = run_plainly(settings);
    CHECK(same_numbers(&device, plain, settings->half_blocks || settings->unit_blocks ? ADDITIONS : 0) &&
              (!settings->evaluates || (device.evaluation == plain->evaluation && device.first_logit == plain->first_logit)),
          "family %d, dtype %d/%d, ranks %u, recompute %d, halves %d, seed %llu: loss %.17g, norm %.17g; in the plain run "
          "%.17g, %.17g",
          settings->family, settings->dtype, settings->reduce_dtype, settings->ranks, settings->recompute,
          settings->half_blocks, (unsigned long long)seed, device.losses[LAST],
          device.norms[LAST], plain->losses[LAST], plain->norms[LAST]);
    check_close(settings, &device);
    if (settings->recompute != EO_RECOMPUTE_NONE) {
        struct transformer_settings kept = *settings;
        kept.recompute = EO_RECOMPUTE_NONE;
        const struct transformer_result again = run_reference(settings), once = run_reference(&kept);
        CHECK(same_bits(&again, &once), "on the CPU recompute %d gives other bits", settings->recompute);
    }
    CHECK(settings->steps < TRANSFORMER_STEPS || device.losses[TRANSFORMER_STEPS - 1] < device.losses[0],
          "nothing was learned: %g, then %g", device.losses[0], device.losses[TRANSFORMER_STEPS - 1]);
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

/* The short run takes four of the eight: every combination of both, each type, one and two ranks. */
static void qwen_cases(bool all)
{
    for (uint32_t which = 0; which < 8; which++) {
        if (!all && which != 2 && which != 3 && which != 5 && which != 7)
            continue;
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
    tap_case("biases of q, k and v, and norms of heads: the same bits");
}

/* The table of angles is made on the host; the kernels on the device must read that one. */
static void rope_scaling_cases(void)
{
    static const eo_rope_scaling scalings[] = {
        {.kind = EO_ROPE_LINEAR, .factor = 4},
        {.kind = EO_ROPE_LLAMA3, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 32},
    };
    for (uint32_t which = 0; which < 4; which++) {
        struct transformer_settings s = settings_of(which | 1);
        const struct transformer_result plain = run_reference(&s);
        s.rope_scaling = scalings[which % 2];
        s.graph = which & 2;
        compare(&s, 13);
        const struct transformer_result scaled = run_reference(&s);
        CHECK(scaled.losses[0] != plain.losses[0], "scaled positions give the loss of plain ones, %g", plain.losses[0]);
    }
    tap_case("scaled rotary positions: the same bits");
}

/* Documents in one sequence, targets that do not count: the last operations of attention, embedding and loss differ. */
static void packed_cases(void)
{
    for (uint32_t which = 0; which < 8; which++) {
        struct transformer_settings s = settings_of(which);
        s.packed = true;
        s.graph = which & 1;
        s.evaluates = true;
        s.recompute = which & 1 ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_NONE;
        const struct transformer_result packed = run_reference(&s);
        compare(&s, 15);
        s.packed = false;
        CHECK(run_reference(&s).losses[0] != packed.losses[0], "packed documents give the loss of one, %g", packed.losses[0]);
    }
    tap_case("packed documents and targets that do not count: the same bits");
}

/* GELU rides on no product that an adapter adds to; q, k and v are one product, and adapters add to parts of it. What is frozen
 * lies in MXFP8 in half of the cases. */
static void adapter_cases(void)
{
    static const char *const targets[] = {"all-linear", "all-linear", "c_attn", "k_proj+down_proj", "c_fc", "q_proj+v_proj",
                                          "mlp.c_proj", "up_proj"};
    for (uint32_t which = 0; which < 8; which++) {
        struct transformer_settings s = settings_of(which);
        s.lora = (eo_lora){.rank = which & 4 ? 3 : 8, .targets = targets[which]};
        s.evaluates = which & 1;
        s.float8_frozen = which & 1;
        compare(&s, 15);
        s.recompute = which & 1 ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_CHEAP;
        s.half_blocks = which & 2;
        s.graph = !(which & 2);
        s.odd_widths = which & 4;
        s.dtype = EO_DTYPE_FP32;
        s.float8_frozen = !(which & 1);
        compare(&s, 16);
    }
    tap_case("adapters alone are trained: the same bits under every schedule, close to the reference");
}

static void same_bits_cases(uint32_t seeds)
{
    for (uint32_t which = 0; which < 8; which++)
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            struct transformer_settings s = settings_of(which);
            s.steps = TRANSFORMER_STEPS;
            compare(&s, seed);
        }
    tap_case("both families, fp32 and bf16, one and two ranks: the same bits under every schedule, close to the reference");

    for (uint32_t which = 0; which < 4; which++) {
        struct transformer_settings s = settings_of(which);
        s.graph = true;
        s.ranks = 2;
        s.steps = TRANSFORMER_STEPS;
        compare(&s, 1);
        s.graph = false;
        s.memory = EO_MEMORY_DYNAMIC_POOL;
        compare(&s, 2);
    }
    tap_case("as a graph, and with dynamic memory: the same bits");

    for (uint32_t which = 0; which < 4; which++) {
        struct transformer_settings s = settings_of(which);
        s.recompute = which & 1 ? EO_RECOMPUTE_CHEAP : EO_RECOMPUTE_BLOCKS;
        s.head_chunks = 5;
        s.evaluates = true;
        compare(&s, 3);
        s.recompute = which & 1 ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_CHEAP;
        s.half_blocks = true;
        compare(&s, 4);
        s.half_blocks = false;
        s.unit_blocks = 2;
        compare(&s, 5);
    }
    tap_case("recompute, half blocks, two blocks a layer, the head in pieces, evaluation and logits: the same bits");

    for (uint32_t which = 0; which < 2; which++) {
        struct transformer_settings s = settings_of(which | 2);
        s.reduce_dtype = EO_DTYPE_BF16;
        s.ranks = 2;
        compare(&s, 5);
    }
    tap_case("gradients reduced in bf16: the same bits");
}

/* The matrices' products run on the team: owners of two ranks have other ones. */
static void muon_cases(void)
{
    for (uint32_t which = 0; which < 8; which++) {
        struct transformer_settings s = settings_of(which);
        s.optimizer = EO_OPTIMIZER_MUON;
        s.evaluates = which & 1;
        compare(&s, 30);
        s.graph = true;
        s.recompute = which & 1 ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_CHEAP;
        s.odd_widths = s.dtype == EO_DTYPE_FP32;
        compare(&s, 31);
        s.optimizer = EO_OPTIMIZER_ADAMW;
        const struct transformer_result other = run_reference(&s);
        s.optimizer = EO_OPTIMIZER_MUON;
        CHECK(run_reference(&s).losses[LAST] != other.losses[LAST], "Muon gives the loss of AdamW, %g", other.losses[LAST]);
    }
    tap_case("Muon, as a graph too: the same bits under every schedule, close to the reference");
}

/* Norms of fp32 beside bf16 matrices, those of heads too. */
static void fp32_norms_cases(void)
{
    for (uint32_t which = 2; which < 4; which++) {
        struct transformer_settings s = settings_of(which);
        s.fp32_norms = true;
        s.qk_norm = which & 1;
        s.ranks = 2;
        compare(&s, 40);
        const struct transformer_result fp32 = run_reference(&s);
        s.fp32_norms = false;
        CHECK(run_reference(&s).losses[LAST] != fp32.losses[LAST], "fp32 norms give the loss of bf16 ones, %g",
              fp32.losses[LAST]);
    }
    tap_case("norms of fp32 beside bf16 matrices: the same bits, close to the reference");
}

/* Forward products in float8: all of a block's run so; where the device or its cuBLASLt has none, they are bf16's. */
static void float8_cases(void)
{
    for (uint32_t which = 0; which < 4; which++) {
        struct transformer_settings s = settings_of(which | 2);
        s.float8_products = true;
        s.ranks = 1 + which / 2;
        const int before = sim_cublaslt_counts().float8;
        compare(&s, 20);
        CHECK(sim_cublaslt_counts().float8 - before >= 2 * 4 * 3,
              "%d products in float8: four of a block, two blocks, three steps", sim_cublaslt_counts().float8 - before);
        s.graph = which / 2;
        s.memory = s.graph ? EO_MEMORY_STATIC : EO_MEMORY_DYNAMIC_POOL;
        s.recompute = s.graph ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_CHEAP;
        compare(&s, 21);
    }
    tap_case("forward products in float8: the same bits, close to the reference, which rounds the same operands");

    struct transformer_settings s = settings_of(2);
    s.float8_products = true;
    const struct transformer_result all = run_simulated(&s, 22);
    sim_cublaslt_no_float8_width = 96; /* q, k and v */
    const struct transformer_result some = run_simulated(&s, 22);
    sim_cublaslt_no_float8_width = 0;
    const int before = sim_cublaslt_counts().float8;
    architecture = 80;
    const struct transformer_result none = run_simulated(&s, 22);
    architecture = 0;
    CHECK(sim_cublaslt_counts().float8 == before, "products in float8 on a device without");
    CHECK(strstr(none.warning, "products stay bf16"), "no warning, but '%s'", none.warning);
    CHECK(all.losses[0] != some.losses[0] && some.losses[0] != none.losses[0] && all.losses[0] != none.losses[0],
          "losses %.17g, %.17g, %.17g", all.losses[0], some.losses[0], none.losses[0]);
    tap_case("a product that cuBLASLt or the device has not in float8 is bf16's");
}

/* Rows whose widths are no multiples of 8 elements: epilogues are kernels of their own, and round once more in bf16. */
static void odd_widths(void)
{
    for (uint32_t which = 0; which < 2; which++) {
        struct transformer_settings s = settings_of(which);
        s.odd_widths = true;
        compare(&s, 6);
        s.dtype = EO_DTYPE_BF16;
        s.recompute = EO_RECOMPUTE_CHEAP; /* GELU again, of what its product's kernel kept */
        compare(&s, 7);
    }
    tap_case("odd widths run as well, the same bits");
}

/* Where products with an epilogue are slow, those without one and a kernel are taken. */
static void choice_of_epilogues(void)
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

static void blocks_of_queries(void)
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
static void no_cudnn(void)
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
static void plans_of_logits(void)
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
static void cudnn_cases(void)
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
            CHECK(told || (!forgotten && !is_close(&device, &host, grouped.dtype)), "tensor %d: %s is not found", (int)id,
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
static void failures(void)
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
static void errors_left_unread(void)
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
    CHECK(sim_cublaslt_counts().checks - checks == count_plans(path), "%d plans checked of %d",
          sim_cublaslt_counts().checks - checks, count_plans(path));
    CHECK(same_bits(&first, &second), "other bits with the file");
    remove(path);
    tap_case("with a file of plans nothing is chosen a second time");
}

int main(void)
{
    same_bits_cases(getenv("EO_TEST_FULL") ? 20 : 1); /* and by another seed in run_plainly */
    qwen_cases(getenv("EO_TEST_FULL"));
    rope_scaling_cases();
    packed_cases();
    muon_cases();
    adapter_cases();
    odd_widths();
    fp32_norms_cases();
    float8_cases();
    choice_of_epilogues();
    blocks_of_queries();
#if defined(EO_SIM_CUDNN)
    cudnn_cases();
    plans_of_logits();
    no_cudnn();
#endif
    failures();
    errors_left_unread();
    plan_cache();
    return tap_end();
}
