/* SPDX-License-Identifier: MIT
 *
 * What the ranks tell each other of a save: one number, summed over the ranks with each step (eo_saver_value, eo_saver_poll).
 *
 * It is an integer of fields, from the lowest bits on. Each of the first three counts ranks, in as many bits as the world
 * needs. Rank 0 alone adds the last two, so a sum that is read late is taken neither for the next word of the same save nor for
 * one of the next save. All of a world of 8191 ranks is below 2^53, thus exact; a larger one does not count who has begun.
 *
 *     written | failed | in a save | verdict: 1 named, 2 not named | the save, by its step
 */
#ifndef EO_RUNTIME_CHECKPOINT_SAVE_SUM_H
#define EO_RUNTIME_CHECKPOINT_SAVE_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/internal.h"

enum { VERDICT_NONE, VERDICT_NAMED, VERDICT_NOT_NAMED };

struct save_sum {
    uint64_t written, failed, begun, verdict, save;
};

/* Of the save of this step, at least 1. Numbers repeat, far more saves apart than there are sums still to be read. */
uint64_t eo_save_number(uint64_t step);

double eo_save_sum_value(const struct save_sum *sum, uint32_t rank_count);
/* Of what is no such sum, zeros. */
struct save_sum eo_save_sum_of(double value, uint32_t rank_count);

/* The last saves that a rank began: what is older is not in the sums that are still to be read. */
struct save_numbers {
    uint64_t numbers[EO_REPORTS_KEPT];
    uint32_t count;
};
void eo_save_numbers_add(struct save_numbers *numbers, uint64_t step);

/* Whether `sum`, read by a rank that is in the save of `step`, shows that not all ranks began this save; `text` says so then.
 * Never of a world too large to count them. */
bool eo_save_sum_lacks_ranks(const struct save_sum *sum, const struct save_numbers *numbers, uint64_t step,
                             uint32_t rank_count, char text[256]);

#endif
