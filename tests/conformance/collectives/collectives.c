/* SPDX-License-Identifier: MIT
 *
 * The collectives of streams/collective.h, on 1, 2, 3 and 4 ranks.
 *
 *     collectives                 threads, over local
 *     collectives shared          processes, over shared; 1, 2 and 3 ranks
 *     collectives shared all      4 ranks too; and with threads
 *     collectives shared threads  these alone, which a thread sanitizer understands
 *     mpirun -n N collectives mpi one of N ranks that were started so, over mpi
 */
#include "tests/conformance/collectives/collectives.h"

#include <stdio.h>
#include <string.h>

#include "tests/conformance/over_mpi.h"
#include "tests/conformance/ranks.h"

static void all_cases(uint32_t rank_count)
{
    values_cases(rank_count);
    groups_cases(rank_count);
    order_cases(rank_count);
    failure_cases(rank_count);
    if (test_kind() == TEST_STARTED) {
        late_cases(rank_count);
        return;
    }
    fabric_cases(rank_count);
    if (test_kind() == TEST_LOCAL)
        return;
    if (test_kind() == TEST_SHARED_PROCESSES)
        lost_cases(rank_count);
    test_hide_memory(true); /* memory that nobody has told the communicators of */
    values_cases(rank_count);
    order_cases(rank_count);
    test_hide_memory(false);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "mpi") == 0)
        return test_over_mpi(argc > 2 ? argv[2] : NULL, NULL, all_cases);
    const bool is_shared = argc > 1 && strcmp(argv[1], "shared") == 0, is_all = !is_shared || argc > 2;
    const bool are_threads = is_shared && argc > 2 && strcmp(argv[2], "threads") == 0;
    if (is_shared)
        test_use(TEST_SHARED_PROCESSES);
    for (uint32_t rank_count = 1; rank_count <= (is_all ? TEST_RANKS_MAX : 3) && !are_threads; rank_count++)
        all_cases(rank_count);
    if (is_shared && is_all) {
        test_use(TEST_SHARED_THREADS);
        for (uint32_t rank_count = 1; rank_count <= TEST_RANKS_MAX; rank_count++)
            all_cases(rank_count);
    }
    return tap_end();
}
