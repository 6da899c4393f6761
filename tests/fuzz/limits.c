/* SPDX-License-Identifier: MIT
 *
 * Under libFuzzer: the target's limits are the first of its options, so they hold however it is started; an option of
 * the command line comes later and wins.
 */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

enum { SANITIZER_MEGABYTES = 192, OPTIONS_MAX = 64 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
const char *__asan_default_options(void);

/* What is freed would count as used for long. A request for too much fails as it does without the sanitizer: then
 * -malloc_limit_mb has told already. */
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=16:allocator_may_return_null=1:detect_stack_use_after_return=0";
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char texts[5][40];
    static char *all[OPTIONS_MAX];
    int count = 0;
    snprintf(texts[0], sizeof(texts[0]), "-rss_limit_mb=%u", fuzz_limits.megabytes + SANITIZER_MEGABYTES);
    snprintf(texts[1], sizeof(texts[1]), "-malloc_limit_mb=%u", fuzz_limits.megabytes);
    snprintf(texts[2], sizeof(texts[2]), "-timeout=%u", fuzz_limits.seconds);
    snprintf(texts[3], sizeof(texts[3]), "-max_len=%u", fuzz_limits.bytes);
    snprintf(texts[4], sizeof(texts[4]), "-close_fd_mask=3"); /* what parsers print */
    all[count++] = (*argv)[0];
    for (int i = 0; i < 5; i++)
        all[count++] = texts[i];
    for (int i = 1; i < *argc && count + 1 < OPTIONS_MAX; i++)
        all[count++] = (*argv)[i];
    *argc = count;
    *argv = all;
    return 0;
}
