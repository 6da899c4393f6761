/* SPDX-License-Identifier: MIT */
#ifndef EO_TESTS_RANDOM_SHRINK_CHECK_H
#define EO_TESTS_RANDOM_SHRINK_CHECK_H

/* Of shrinking itself, as TAP lines. */
void shrink_check(void);

#endif
