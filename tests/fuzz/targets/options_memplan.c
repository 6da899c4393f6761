/* SPDX-License-Identifier: MIT
 *
 * The options of memplan.
 */
#include "tests/fuzz/options.h"

#include "tools/memplan/options/options.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 1024};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct tool_memplan_asked m;
    m = tool_memplan_defaults();
    const struct argp argp = {.options = tool_memplan_options, .parser = tool_memplan_parse};
    struct fuzz_words words = fuzz_words_of(data, bytes);
    if (fuzz_options_parse(&argp, 0, &words, &m)) {
        FUZZ_HOLDS(m.diff_a || m.published || m.model);
        FUZZ_HOLDS(m.settings.plan.ranks >= 1 && m.settings.gpus_per_node >= 1 && m.set_count <= TOOL_CONFIG_SETS_MAX);
        FUZZ_HOLDS(!m.diff_a == !m.diff_b);
    }
    free(words.text);
    return 0;
}
