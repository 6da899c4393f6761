/* SPDX-License-Identifier: MIT
 *
 * The cases of the training program, one function a file of cases.
 */
#ifndef EO_TESTS_CONFORMANCE_TRAINING_TRAINING_H
#define EO_TESTS_CONFORMANCE_TRAINING_TRAINING_H

#include <stdbool.h>

void training_rank_cases(void);        /* the number of ranks changes rounding only */
void training_bit_cases(bool all);     /* nothing else changes a bit */
void training_strategy_cases(bool all); /* strategies differ in rounding only */
void training_norm_cases(void);        /* norm, clipping and optimizer against a plain computation */

#endif
