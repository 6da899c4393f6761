/* SPDX-License-Identifier: MIT
 *
 * The options of memplan.
 */
#include "tests/fuzz/options.h"

#define main memplan_program /* its parser is its own */
#include "tools/memplan/main.c"
#undef main

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 1024};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct memplan m;
    m = (struct memplan){.settings = {.plan = {.ranks = 8,
                                               .strategy = EO_STRATEGY_ZERO3,
                                               .batch = 1,
                                               .micro_batches = 1,
                                               .gather_slots = 2,
                                               .gradient_slots = 2,
                                               .device = "cuda",
                                               .threads = 1},
                                      .gpus_per_node = 8},
                         .estimate = {.layout = {.tensor = 1, .pipeline = 1, .context = 1, .expert = 1, .virtual_stages = 1}}};
    const struct argp argp = {.options = option_table, .parser = parse_option};
    struct fuzz_words words = fuzz_words_of(data, bytes);
    if (fuzz_options_parse(&argp, 0, &words, &m)) {
        FUZZ_HOLDS(m.diff_a || m.published || m.model);
        FUZZ_HOLDS(m.settings.plan.ranks >= 1 && m.settings.gpus_per_node >= 1 && m.set_count <= TOOL_CONFIG_SETS_MAX);
        FUZZ_HOLDS(!m.diff_a == !m.diff_b);
    }
    free(words.text);
    return 0;
}
