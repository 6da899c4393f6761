/* SPDX-License-Identifier: MIT */
#include "tests/conformance/over_mpi.h"

#include <stdio.h>

#include "tests/conformance/ranks.h"
#include "streams/mpi/mpi.h"

int test_over_mpi(const char *why_not, void (*before)(uint32_t rank_count), void (*cases)(uint32_t rank_count))
{
    const struct eo_mpi_ops *mpi = eo_mpi_find();
    struct eo_group_place place;
    struct eo_mpi_exchange *outside;
    if (!mpi || why_not)
        return tap_skip_all("%s", mpi ? why_not : "MPI is not built in");
    if (mpi->place(NULL, &place, NULL) < 0 || mpi->exchange_open(&outside, NULL, 0, NULL) < 0 ||
        place.rank_count > TEST_RANKS_MAX) {
        puts("Bail out! MPI cannot be started, or has too many ranks");
        return 1;
    }
    const struct eo_exchange exchange = mpi->exchange_of(outside);
    if (before)
        before(place.rank_count);
    test_use_started("mpi", place.rank, place.rank_count, &exchange);
    cases(place.rank_count);
    const int result = tap_end();
    mpi->exchange_close(outside);
    mpi->stop();
    return result;
}
