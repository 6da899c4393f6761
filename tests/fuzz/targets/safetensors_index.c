/* SPDX-License-Identifier: MIT
 *
 * An index of safetensors files, and the files a.safetensors and b.safetensors beside it: a part each, those that are
 * missing are not there. Held against a GPT-2 of one layer.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/interchange/safetensors_header.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 128, .seconds = 5, .bytes = 8192};

static const char config_text[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 2, \"n_head\": 1, \"vocab_size\": 3, \"n_positions\": 2,"
    " \"torch_dtype\": \"float16\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"model.safetensors.index.json", "a.safetensors", "b.safetensors"};
    static struct tool_model_config config;
    struct tool_problem problem = {""};
    struct tool_safetensors_check check;
    struct fuzz_part rest = {data, bytes}, part;
    fuzz_clear();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && fuzz_next_part(&rest, &part); i++)
        (void)fuzz_file(names[i], part.data, part.bytes);
    FUZZ_HOLDS(tool_model_config_parse(&config, "config.json", config_text, strlen(config_text), NULL, 0, &problem) >= 0);
    if (fuzz_taken(tool_safetensors_check(fuzz_folder(), &config, &check, &problem), problem.text)) {
        FUZZ_HOLDS(check.found && check.tensor_count == 16);
        FUZZ_HOLDS(check.index_only || check.element_count == tool_model_config_parameters(&config));
    }
    return 0;
}
