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
#include "collectives.h"

#include <stdio.h>
#include <string.h>

#include "ranks.h"
#include "streams/mpi/mpi.h"

static void all_cases(uint32_t rank_count)
{
    values_cases(rank_count);
    groups_cases(rank_count);
    order_cases(rank_count);
    failure_cases(rank_count);
    if (test_kind() == TEST_STARTED)
        return;
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

static int over_mpi(const char *why_not)
{
    const struct eo_mpi_ops *mpi = eo_mpi_find();
    struct eo_group_place place;
    struct eo_mpi_exchange *outside;
    if (!mpi || why_not) {
        printf("1..0 # SKIP %s\n", mpi ? why_not : "MPI is not built in");
        return 0;
    }
    if (mpi->place(NULL, &place, NULL) < 0 || mpi->exchange_open(&outside, NULL, 0, NULL) < 0 ||
        place.rank_count > TEST_RANKS_MAX) {
        puts("Bail out! MPI cannot be started, or has too many ranks");
        return 1;
    }
    const struct eo_exchange exchange = mpi->exchange_of(outside);
    test_use_started("mpi", place.rank, place.rank_count, &exchange);
    all_cases(place.rank_count);
    const int result = test_finish();
    mpi->exchange_close(outside);
    mpi->stop();
    return result;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "mpi") == 0)
        return over_mpi(argc > 2 ? argv[2] : NULL);
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
    return test_finish();
}
