/* SPDX-License-Identifier: MIT
 *
 * A checkpoint of llm.c: as it comes, and as long as its header says.
 */
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tools/interchange/llmc.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 4096};

static void open_model(const char *path, uint64_t file_bytes)
{
    static const char *const names[] = {"wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.1.attn.c_attn.bias",
                                        "h.0.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias", "h.99.ln_1.weight", "h."};
    struct tool_problem problem = {""};
    struct tool_llmc llmc;
    int file = -1;
    if (!fuzz_taken(tool_llmc_open(&llmc, &file, path, &problem), problem.text))
        return;
    FUZZ_HOLDS(file >= 0 && tool_llmc_file_bytes(&llmc) == file_bytes);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t at = 0;
        if (tool_llmc_place(&llmc, names[i], &at))
            FUZZ_HOLDS(at >= TOOL_LLMC_HEADER_BYTES && at < file_bytes);
    }
    close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_file("model.bin", data, bytes);
    open_model(path, bytes);
    int32_t header[8];
    if (bytes < TOOL_LLMC_HEADER_BYTES)
        return 0;
    memcpy(header, data, sizeof(header));
    const struct tool_llmc like = {
        .config = {.context = (uint32_t)header[2], .layer_count = (uint32_t)header[4], .width = (uint32_t)header[6]},
        .padded_vocabulary = (uint32_t)header[7],
        .element = header[1] == 5 ? TOOL_ELEMENT_BF16 : TOOL_ELEMENT_F32,
    };
    const uint64_t wanted = tool_llmc_file_bytes(&like);
    if (wanted < TOOL_LLMC_HEADER_BYTES || wanted > 1 << 20 || truncate(path, (off_t)wanted) != 0)
        return 0;
    open_model(path, wanted);
    return 0;
}
