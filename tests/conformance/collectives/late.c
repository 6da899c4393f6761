/* SPDX-License-Identifier: MIT
 *
 * Goal: who has given up waiting for a late rank in an exchange over MPI gets nothing written into its memory afterwards.
 * Method: the last rank comes long after the deadline. The others then use the memory that they gave for something else,
 * and let MPI work until the last has had its answer.
 */
#include "tests/conformance/collectives/collectives.h"

#include <string.h>

#include "streams/mpi/mpi.h"
#include "tests/conformance/ranks.h"

enum { LATE_TIMEOUT_MS = 1000, LATE_MS = 2500, LATE_BYTES = EO_EXCHANGE_BYTES_MAX };

static bool holds_only(const unsigned char *memory, size_t bytes, unsigned char value)
{
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != value)
            return false;
    return true;
}

static void exchange_body(struct test_rank *self)
{
    static unsigned char mine[LATE_BYTES], all[TEST_RANKS_MAX * LATE_BYTES];
    const struct eo_mpi_ops *mpi = eo_mpi_find();
    const bool is_late = self->rank + 1 == self->rank_count;
    struct eo_mpi_exchange *outside = NULL;
    test_barrier(self);
    TEST_HOLDS(self, mpi->exchange_open(&outside, NULL, LATE_TIMEOUT_MS, NULL) == EO_OK);
    if (!outside)
        return;
    const struct eo_exchange exchange = mpi->exchange_of(outside);
    memset(mine, (int)self->rank + 1, sizeof(mine));
    TEST_HOLDS(self, exchange.all_gather(exchange.user, mine, sizeof(mine), all) == EO_OK);
    for (uint32_t r = 0; r < self->rank_count; r++)
        TEST_EXPECT(self, holds_only(all + r * LATE_BYTES, LATE_BYTES, (unsigned char)(r + 1)), "in time: what rank %u sent",
                    r);
    if (is_late)
        test_pause_ms(LATE_MS);
    const eo_status status = exchange.all_gather(exchange.user, mine, sizeof(mine), all);
    if (!is_late) {
        TEST_EXPECT(self, status == EO_ERR_TIMEOUT, "%s", eo_status_text(status));
        memset(mine, 77, sizeof(mine));
        memset(all, 77, sizeof(all));
        TEST_HOLDS(self, exchange.all_gather(exchange.user, mine, sizeof(mine), all) == EO_ERR_COMM);
        mpi->exchange_close(outside);
    }
    test_barrier(self); /* over an exchange of its own, which waits for the late */
    if (is_late) {
        TEST_EXPECT(self, status == EO_OK, "%s", eo_status_text(status));
        for (uint32_t r = 0; r < self->rank_count; r++)
            TEST_EXPECT(self, holds_only(all + r * LATE_BYTES, LATE_BYTES, (unsigned char)(r + 1)), "late: what rank %u sent",
                        r);
        mpi->exchange_close(outside);
    } else {
        TEST_EXPECT(self, holds_only(mine, sizeof(mine), 77) && holds_only(all, sizeof(all), 77),
                    "memory was written to after the "
                    "deadline");
    }
}

void late_cases(uint32_t rank_count)
{
    const struct test_settings settings = {.rank_count = rank_count};
    test_run_ranks(&settings, exchange_body);
    test_report("an exchange that a rank came too late to writes nothing any more, and refuses another", rank_count);
}
