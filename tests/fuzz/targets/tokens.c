/* SPDX-License-Identifier: MIT
 *
 * A file of tokens of llm.c: as it comes, and with a count that fits. Batches are made of what is taken.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/run/data/batches.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 4096};

enum { VOCABULARY = 50257, HEADER_BYTES = 1024, BATCH = 2, SEQ = 4 };

static void use_tokens(const uint8_t *file_data, size_t bytes, bool hold_back)
{
    const struct tool_batch_shape shape = {.rank_count = 2, .batch = BATCH, .seq = SEQ, .micro_batches = 2};
    struct tool_problem problem = {""};
    struct tool_data data;
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ], positions[BATCH * SEQ];
    const struct tool_batch batch = {tokens, targets, positions};
    if (!fuzz_taken(tool_data_map_tokens(&data, fuzz_file("tokens.bin", file_data, bytes), VOCABULARY, hold_back, &problem),
                    problem.text))
        return;
    if (bytes % 2 && !fuzz_taken(tool_data_pack(&data, SEQ, &problem), problem.text)) {
        tool_data_fini(&data);
        return;
    }
    if (fuzz_taken(tool_data_check(&data, &shape, hold_back, &problem), problem.text))
        for (uint64_t step = 0; step < 5; step++) {
            tool_data_batch(&data, &shape, 1, step * step * 1000000007u, 1, 1, &batch);
            for (int i = 0; i < BATCH * SEQ; i++)
                FUZZ_HOLDS(tokens[i] >= 0 && tokens[i] < VOCABULARY && targets[i] >= -100 && targets[i] < VOCABULARY);
            if (hold_back)
                tool_data_validation_batch(&data, &shape, (uint32_t)step, 1, &batch);
        }
    tool_data_fini(&data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    use_tokens(data, bytes, false);
    if (bytes < HEADER_BYTES)
        return 0;
    uint8_t *mended = (uint8_t *)fuzz_text(data, bytes);
    int32_t magic;
    memcpy(&magic, data, sizeof(magic));
    const size_t token_bytes = magic == 20240520 ? 2 : 4;
    const uint32_t count = (uint32_t)((bytes - HEADER_BYTES) / token_bytes);
    memcpy(mended + 8, &count, sizeof(count));
    use_tokens(mended, HEADER_BYTES + count * token_bytes, true);
    free(mended);
    return 0;
}
