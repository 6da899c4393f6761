/* SPDX-License-Identifier: MIT
 *
 * Whole trainings on ranks of one process. EO_TEST_FULL=1 runs every combination, else a fixed part of them.
 */
#include "tests/conformance/training/training.h"

#include <stdlib.h>

#include "tests/conformance/ranks.h"

int main(void)
{
    const char *full = getenv("EO_TEST_FULL");
    training_norm_cases();
    training_rank_cases();
    training_strategy_cases(full && full[0] == '1');
    training_bit_cases(full && full[0] == '1');
    return tap_end();
}
