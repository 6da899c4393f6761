/* SPDX-License-Identifier: MIT
 *
 * memplan --verify: a log of train, or what train --plan prints, held against the plan of a small GPT-2.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/memplan/report/compare.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 4096};

static const char config_text[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 8, \"n_head\": 1, \"vocab_size\": 16, \"n_positions\": 8}";

static void make_plan(struct tool_memplan *memplan)
{
    static struct tool_model_config config;
    const struct tool_memplan_settings settings = {.plan = {.ranks = 2,
                                                            .strategy = EO_STRATEGY_ZERO3,
                                                            .batch = 1,
                                                            .seq = 8,
                                                            .micro_batches = 1,
                                                            .gather_slots = 1,
                                                            .gradient_slots = 1,
                                                            .device = "cpu",
                                                            .threads = 1},
                                                   .gpus_per_node = 2};
    struct tool_problem problem = {""};
    FUZZ_HOLDS(tool_model_config_parse(&config, "config.json", config_text, strlen(config_text), NULL, 0, &problem) >= 0);
    FUZZ_HOLDS(tool_memplan_create(memplan, &config, &settings, &problem) >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct tool_memplan memplan;
    static FILE *nowhere;
    struct tool_problem problem = {""};
    uint32_t count = 0;
    if (!nowhere) {
        nowhere = fopen("/dev/null", "we");
        FUZZ_HOLDS(nowhere != NULL);
        make_plan(&memplan);
    }
    (void)fuzz_taken(tool_memplan_verify(nowhere, fuzz_file("log.jsonl", data, bytes), &memplan, &count, &problem),
                     problem.text);
    return 0;
}
