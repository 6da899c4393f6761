/* SPDX-License-Identifier: MIT
 *
 * The proof trusts what operations say of their accesses: waits and versions come from nothing else. Here the model and the
 * kind of an operation tell what it must say, through the public API alone; and in which order passes come.
 */
#ifndef EO_TESTS_RANDOM_CASE_ACCESSES_H
#define EO_TESTS_RANDOM_CASE_ACCESSES_H

#include "tests/random/case_runner.h"

/* `out` says what is missing first; it is left alone where nothing is. */
void case_accesses(const struct random_case *c, const eo_plan *plan, struct case_outcome *out);

#endif
