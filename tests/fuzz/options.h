/* SPDX-License-Identifier: MIT
 *
 * A program's options: a word a line. A usage error, which ends a program, ends the parsing here.
 */
#ifndef EO_TESTS_FUZZ_OPTIONS_H
#define EO_TESTS_FUZZ_OPTIONS_H

#include <argp.h>

#include "tests/fuzz/fuzz.h"

/* Whether they were taken. `words` has to live as long as what was parsed into `input`. */
struct fuzz_words {
    char *text, *words[66];
    int count;
};
struct fuzz_words fuzz_words_of(const uint8_t *data, size_t bytes);
bool fuzz_options_parse(const struct argp *argp, unsigned flags, struct fuzz_words *words, void *input);

#endif
