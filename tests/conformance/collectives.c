/* SPDX-License-Identifier: MIT
 *
 * The collectives of streams/collective.h, on 1, 2, 3 and 4 ranks.
 */
#include "collectives.h"

#include <stdio.h>

#include "ranks.h"

int main(void)
{
    for (uint32_t rank_count = 1; rank_count <= TEST_RANKS_MAX; rank_count++) {
        values_cases(rank_count);
        groups_cases(rank_count);
        order_cases(rank_count);
        failure_cases(rank_count);
        fabric_cases(rank_count);
    }
    return test_finish();
}
