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

#include "layers_compare.h"
#include "tests/simulator/cublaslt/cublaslt.h"
#include "tests/tap/tap.h"

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
