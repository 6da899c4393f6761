/* SPDX-License-Identifier: MIT
 *
 * Common to the tests of the kernels: operands between guards, random values, every level with every team, tolerances.
 * The tables "cpu" and "reference" are two writings of the same kernels: each is held against the other.
 *
 * A guarded operand ends at a page that cannot be touched, so reading or writing one float too far is a crash; before
 * it stands a pattern that guards_hold() looks at.
 */
#ifndef EO_TESTS_UNIT_LAYERS_KERNEL_FIXTURE_H
#define EO_TESTS_UNIT_LAYERS_KERNEL_FIXTURE_H

#include "layers/kernel_ops.h"

/* The types of fp32 kernels. */
#define FP32 ((struct eo_types){EO_DTYPE_FP32, EO_DTYPE_FP32})

/* Floats, or bytes, without defined content; freed by guards_free. */
float *guarded(uint64_t count);
void *guarded_bytes(uint64_t size);
float *guarded_random(uint64_t count, float low, float high);
float *guarded_copy(const float *values, uint64_t count);
int32_t *guarded_tokens(uint64_t count, uint32_t below);
void guards_hold(const char *what); /* fails the test if something was written before an operand */
void guards_free(void);             /* of this process; checks first */

/* Fails the test where |a - b| > absolute + relative * |b|, and where a is not finite. b is the reference. */
void expect_close(const char *what, const float *a, const float *b, uint64_t count, double relative, double absolute);

/* Calls one kernel or a few of a table. Must write all of `out`. */
typedef void kernel_run(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg);

/* out[0..count) of the table "reference". */
float *reference_result(kernel_run *run, void *arg, uint64_t count);

/*
 * Calls `run` with the table "cpu" for every level of this machine: with no team, then with teams of 1, 2 and 3 threads,
 * and compares the bits of out[0..count) with those of no team.
 */
void every_level_and_team(kernel_run *run, void *arg, uint64_t count, const float *expected, double relative,
                          double absolute, const char *what);

#endif
