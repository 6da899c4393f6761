/* SPDX-License-Identifier: MIT
 *
 * For programs of ranks.h that mpirun has started, one process a rank.
 */
#ifndef EO_TESTS_CONFORMANCE_OVER_MPI_H
#define EO_TESTS_CONFORMANCE_OVER_MPI_H

#include <stdint.h>

/* Runs `cases` with this process as one of the ranks, and returns the program's exit status. `before` (may be NULL) runs
 * while ranks are still threads. With `why_not` all is skipped, for that reason. */
int test_over_mpi(const char *why_not, void (*before)(uint32_t rank_count), void (*cases)(uint32_t rank_count));

#endif
