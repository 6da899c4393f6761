/* SPDX-License-Identifier: MIT
 *
 * A reader of safetensors that shares nothing with the one under test: it takes files as well-formed, and finds a
 * tensor's entry by its name in the text of the header.
 */
#ifndef EO_TESTS_PROGRAMS_INTERCHANGE_PLAIN_H
#define EO_TESTS_PROGRAMS_INTERCHANGE_PLAIN_H

#include <stdint.h>

struct plain_tensor {
    char dtype[8];
    uint64_t rows, columns; /* as the shape says; a vector has 1 row */
    double *values;         /* to be freed by the caller */
};

/* 1, or 0: the folder has no such tensor. Looks through all of its .safetensors files. */
int plain_find(const char *folder, const char *name, struct plain_tensor *out);

/* How many tensors are in the folder's files; -1: a file cannot be read, or its last tensor does not end where it ends. */
int plain_count(const char *folder);

#endif
