/* SPDX-License-Identifier: MIT
 *
 * The cases of the program `collectives`, by subject; each file adds its own lines of TAP for one number of ranks.
 */
#ifndef EO_TESTS_CONFORMANCE_COLLECTIVES_COLLECTIVES_H
#define EO_TESTS_CONFORMANCE_COLLECTIVES_COLLECTIVES_H

#include <stdint.h>

void values_cases(uint32_t rank_count);   /* what is in the buffers afterwards */
void groups_cases(uint32_t rank_count);   /* all-reduce, groups inside a group */
void order_cases(uint32_t rank_count);    /* many in a row, delays, who may overwrite what when */
void failure_cases(uint32_t rank_count);  /* disagreement, late ranks, aborts */
void fabric_cases(uint32_t rank_count);   /* time */
void lost_cases(uint32_t rank_count);     /* processes that end */
void late_cases(uint32_t rank_count);     /* over mpi: a rank that is late before there is a group */

#endif
