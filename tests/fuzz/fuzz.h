/* SPDX-License-Identifier: MIT
 *
 * Fuzz targets: a file a target, a parser each, with libFuzzer's entry point. Whatever bytes come, the parser refuses
 * them or takes them, within the target's memory and time.
 *
 *     libFuzzer       clang: makes bytes up                             tools/dev fuzz, tests/fuzz/limits.c
 *     replay          any compiler: gives it the files of its corpus    meson test --suite fuzz, tests/fuzz/replay.c
 */
#ifndef EO_TESTS_FUZZ_FUZZ_H
#define EO_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <evenodd/status.h>

/* Of one input. */
struct fuzz_limits {
    unsigned megabytes; /* of memory, the sanitizer's own left out */
    unsigned seconds;
    unsigned bytes;     /* libFuzzer makes none that is longer */
};
extern const struct fuzz_limits fuzz_limits; /* each target has its own */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* What must hold whatever came in. The report shows the line. */
#define FUZZ_HOLDS(condition) ((condition) ? (void)0 : abort())

/* A refusal says why, and no input may use up the memory. Returns whether the input was taken. */
bool fuzz_taken(eo_status status, const char *why);

/* ---- tests/fuzz/files.c: for parsers that take a path ---- */

/* A folder of this process, in $TMPDIR, or in memory where there is /dev/shm; it goes when the process ends. */
const char *fuzz_folder(void);
/* The path of a file in it that holds these bytes. `name` may have folders in it. Valid until 8 calls later. */
const char *fuzz_file(const char *name, const void *data, size_t bytes);
/* All that is in the folder goes. */
void fuzz_clear(void);

/* Inputs of several parts: a line "====" stands between them. False: there are no more. */
struct fuzz_part {
    const uint8_t *data;
    size_t bytes;
};
bool fuzz_next_part(struct fuzz_part *rest, struct fuzz_part *part);
/* A copy that ends with a zero, to be freed. */
char *fuzz_text(const uint8_t *data, size_t bytes);

#endif
