/* SPDX-License-Identifier: MIT
 *
 * A tokenizer.json: what is taken has tokens whose bytes can be read, whatever their number.
 */
#include "tests/fuzz/fuzz.h"
#include "tools/interchange/tokenizer.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 128, .seconds = 5, .bytes = 4096};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tool_problem problem = {""};
    struct tool_tokenizer tokenizer;
    if (!fuzz_taken(tool_tokenizer_load(&tokenizer, "--tokenizer", fuzz_file("tokenizer.json", data, bytes), &problem),
                    problem.text))
        return 0;
    FUZZ_HOLDS(tokenizer.count > 0 && tokenizer.hash != 0);
    unsigned sum = 0;
    const uint32_t looked_at = tokenizer.count < 100000 ? tokenizer.count : 100000;
    for (uint32_t i = 0; i <= looked_at; i++) {
        uint32_t length;
        const char *text = tool_tokenizer_text(&tokenizer, i, &length);
        for (uint32_t b = 0; b < length; b++)
            sum += (unsigned char)text[b];
    }
    FUZZ_HOLDS(sum < UINT32_MAX);
    uint32_t none;
    (void)tool_tokenizer_text(&tokenizer, UINT32_MAX, &none);
    FUZZ_HOLDS(none == 0);
    tool_tokenizer_fini(&tokenizer);
    return 0;
}
