/* SPDX-License-Identifier: MIT
 *
 * The options of launch.
 */
#include "tests/fuzz/options.h"

#define main launch_program /* its parser is its own */
#include "tools/launch/main.c"
#undef main

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 1024};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const struct argp argp = {.options = launch_options, .parser = parse};
    struct settings settings = {.launch = {.grace_s = 6}};
    struct fuzz_words words = fuzz_words_of(data, bytes);
    if (fuzz_options_parse(&argp, ARGP_IN_ORDER, &words, &settings)) {
        FUZZ_HOLDS(settings.rank_count >= 1 && settings.rank_count <= TOOL_LAUNCH_RANKS_MAX && settings.command);
        for (uint32_t turn = 0; turn < RESTART_RANKS_MAX + 2; turn++)
            FUZZ_HOLDS(ranks_of_turn(&settings, turn) >= 1 && ranks_of_turn(&settings, turn) <= most_ranks(&settings));
    }
    free(words.text);
    return 0;
}
