/* SPDX-License-Identifier: MIT
 *
 * The options of checkpoint.
 */
#include "tests/fuzz/options.h"

#define main checkpoint_program /* its parser is its own */
#include "tools/checkpoint/main.c"
#undef main

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 512};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const struct argp argp = {.options = checkpoint_tool_options, .parser = parse_tool_option};
    struct checkpoint_tool tool = {.command = NULL};
    struct fuzz_words words = fuzz_words_of(data, bytes);
    if (fuzz_options_parse(&argp, 0, &words, &tool))
        FUZZ_HOLDS(tool.ranks <= TOOL_PLAN_RANKS_MAX && (!tool.to || tool.from) && (!tool.from || tool.command));
    free(words.text);
    return 0;
}
