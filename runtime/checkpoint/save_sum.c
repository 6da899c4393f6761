/* SPDX-License-Identifier: MIT */
#include "runtime/checkpoint/save_sum.h"

#include <stdio.h>

enum { SAVES_TOLD_APART = 1023, COUNTED_BITS_MAX = 13 };

static uint32_t count_bits(uint32_t rank_count)
{
    uint32_t bits = 1;
    while (rank_count >> bits)
        bits++;
    return bits;
}

static bool counts_begun(uint32_t rank_count)
{
    return count_bits(rank_count) <= COUNTED_BITS_MAX;
}

uint64_t eo_save_number(uint64_t step)
{
    return 1 + step % SAVES_TOLD_APART;
}

double eo_save_sum_value(const struct save_sum *sum, uint32_t rank_count)
{
    const uint32_t bits = count_bits(rank_count), from = counts_begun(rank_count) ? 3 * bits : 2 * bits;
    const uint64_t begun = counts_begun(rank_count) ? sum->begun << 2 * bits : 0;
    return (double)(sum->written | sum->failed << bits | begun | sum->verdict << from | sum->save << (from + 2));
}

struct save_sum eo_save_sum_of(double value, uint32_t rank_count)
{
    const uint32_t bits = count_bits(rank_count), from = counts_begun(rank_count) ? 3 * bits : 2 * bits;
    const uint64_t all = value >= 0 && value < 0x1p53 ? (uint64_t)value : 0, mask = (UINT64_C(1) << bits) - 1;
    if ((double)all != value)
        return (struct save_sum){0};
    return (struct save_sum){.written = all & mask,
                             .failed = all >> bits & mask,
                             .begun = counts_begun(rank_count) ? all >> 2 * bits & mask : 0,
                             .verdict = all >> from & 3,
                             .save = all >> (from + 2)};
}

void eo_save_numbers_add(struct save_numbers *numbers, uint64_t step)
{
    numbers->numbers[numbers->count++ % EO_REPORTS_KEPT] = eo_save_number(step);
}

/* Whether rank 0 is in a save in which this rank never was. Of those before there may be late sums. */
static bool is_of_another(const struct save_sum *sum, const struct save_numbers *numbers)
{
    bool is_known = sum->save == 0;
    for (uint32_t i = 0; i < EO_REPORTS_KEPT; i++)
        is_known = is_known || sum->save == numbers->numbers[i];
    return !is_known;
}

bool eo_save_sum_lacks_ranks(const struct save_sum *sum, const struct save_numbers *numbers, uint64_t step,
                             uint32_t rank_count, char text[256])
{
    const bool is_own = sum->save == eo_save_number(step), is_without_first = sum->save == 0 && sum->begun > 0;
    if (!counts_begun(rank_count) ||
        !(is_without_first || is_of_another(sum, numbers) || (is_own && sum->begun != rank_count)))
        return false;
    int used = snprintf(text, 256, "checkpoint of step %llu: ", (unsigned long long)step);
    used += is_own ? snprintf(text + used, 256 - (size_t)used, "%llu of %u ranks began", (unsigned long long)sum->begun, rank_count)
                   : snprintf(text + used, 256 - (size_t)used, "rank 0 did not begin");
    snprintf(text + used, 256 - (size_t)used,
             " this save: call eo_saver_begin on all ranks after the same step, and give eo_saver_value "
             "to every step");
    return true;
}
