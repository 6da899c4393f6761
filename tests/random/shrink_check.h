/* SPDX-License-Identifier: MIT */
#ifndef EO_TESTS_RANDOM_SHRINK_CHECK_H
#define EO_TESTS_RANDOM_SHRINK_CHECK_H

#include <stdbool.h>

/* Of shrinking itself, as TAP lines. */
bool shrink_check(void);

#endif
