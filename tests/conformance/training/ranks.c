/* SPDX-License-Identifier: MIT
 *
 * 1, 2, 3 and 4 ranks train to the same losses.
 */
#include <math.h>
#include <string.h>

#include "tests/conformance/ranks.h"
#include "tests/conformance/training/runs.h"
#include "tests/conformance/training/training.h"

/*
 * Losses and norms agree to 1e-5 over 20 steps on the same global batches of 12 sequences, for both families, with sizes
 * that need padding; and they fall, or there was nothing to agree on.
 * Method: one rank is the reference; the others' shards, reductions and batches are cut differently.
 */
static void same_losses_on_any_number_of_ranks(eo_family family)
{
    struct train_result one, many;
    train_run(&(struct train_settings){.family = family, .ranks = 1, .steps = 20}, &one);
    TEST_EXPECT(NULL, one.losses[19] < 0.9 * one.losses[0], "the loss went from %g to %g", one.losses[0], one.losses[19]);
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        train_run(&(struct train_settings){.family = family, .ranks = ranks, .steps = 20}, &many);
        train_expect_near("another number of ranks", &one, &many, 1e-5);
        TEST_EXPECT(NULL, many.weights_hash != one.weights_hash || ranks == 1,
                    "%u ranks gave the very bits of one: was it sharded at all?", ranks);
    }
    train_run(&(struct train_settings){.family = family, .ranks = 2, .micro_batches = 3, .steps = 20}, &many);
    train_expect_near("micro-batches", &one, &many, 1e-5);
}

void training_rank_cases(void)
{
    same_losses_on_any_number_of_ranks(EO_FAMILY_GPT2);
    test_report("GPT-2: same losses on 1, 2, 3, 4 ranks, and in micro-batches", 4);
    same_losses_on_any_number_of_ranks(EO_FAMILY_LLAMA);
    test_report("Llama: same losses on 1, 2, 3, 4 ranks, and in micro-batches", 4);
}
