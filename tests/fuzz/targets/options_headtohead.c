/* SPDX-License-Identifier: MIT
 *
 * The options of headtohead.
 */
#include "tests/fuzz/options.h"

#define main headtohead_program /* its parser is its own */
#include "tools/headtohead/main.c"
#undef main

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 1024};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const struct argp_child children[] = {{.argp = &tool_options_argp}, {0}};
    const struct argp argp = {.options = head_options, .parser = parse_head_option, .children = children};
    struct settings settings = {.runs = RUNS_DEFAULT, .figures = -1};
    tool_options_init(&settings.common);
    settings.common.steps = STEPS_DEFAULT;
    struct fuzz_words words = fuzz_words_of(data, bytes);
    if (fuzz_options_parse(&argp, ARGP_IN_ORDER, &words, &settings))
        FUZZ_HOLDS(settings.runs >= 1 && settings.common.steps >= 4 && settings.common.plan.ranks <= TOOL_RUN_RANKS_MAX);
    tool_options_fini(&settings.common);
    free(words.text);
    return 0;
}
