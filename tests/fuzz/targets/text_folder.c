/* SPDX-License-Identifier: MIT
 *
 * A folder of text: a part a file, its name in the first line. The first file is also taken by its name.
 */
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/run/data/batches.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 4096};

enum { BATCH = 2, SEQ = 8, PROMPT = 16 };

static void use_text(const char *const *paths, uint32_t path_count)
{
    const struct tool_batch_shape shape = {.rank_count = 2, .batch = BATCH, .seq = SEQ, .micro_batches = 1};
    struct tool_problem problem = {""};
    struct tool_data data;
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    const struct tool_batch batch = {tokens, targets, NULL};
    if (!fuzz_taken(tool_data_load_text(&data, paths, path_count, &problem), problem.text))
        return;
    if (fuzz_taken(tool_data_check(&data, &shape, true, &problem), problem.text)) {
        tool_data_batch(&data, &shape, 7, 3, 0, 1, &batch);
        tool_data_validation_batch(&data, &shape, 2, 1, &batch);
        tool_data_prompt(&data, PROMPT, tokens);
    }
    tool_data_fini(&data);
}

/* Names within the folder, and such as the file system has. */
static bool is_name(const char *name)
{
    const size_t bytes = strlen(name);
    if (bytes == 0 || bytes > 100 || name[0] == '/' || name[bytes - 1] == '/' || strstr(name, "//") || strstr(name, ".."))
        return false;
    return strncmp(name, "./", 2) != 0 && !strstr(name, "/./") && (bytes < 2 || strcmp(name + bytes - 2, "/.") != 0) &&
           strcmp(name, ".") != 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_part rest = {data, bytes}, part;
    char first[512] = "", folder[300];
    char names[8][101];
    uint32_t count = 0;
    fuzz_clear();
    while (count < 8 && fuzz_next_part(&rest, &part)) {
        const uint8_t *line_end = part.bytes ? memchr(part.data, '\n', part.bytes) : NULL;
        char *name = line_end ? fuzz_text(part.data, (size_t)(line_end - part.data)) : NULL;
        bool good = name && is_name(name);
        for (uint32_t i = 0; good && i < count; i++) { /* a file is no folder of another one */
            const size_t shorter = strlen(names[i]) < strlen(name) ? strlen(names[i]) : strlen(name);
            good = strncmp(names[i], name, shorter) != 0;
        }
        if (good) {
            const char *path = fuzz_file(name, line_end + 1, part.bytes - (size_t)(line_end + 1 - part.data));
            if (count == 0)
                snprintf(first, sizeof(first), "%s", path);
            snprintf(names[count++], sizeof(names[0]), "%s", name);
        }
        free(name);
    }
    snprintf(folder, sizeof(folder), "%s", fuzz_folder());
    const char *const all[] = {folder, first};
    use_text(all, 1);
    if (first[0])
        use_text(all, 2);
    return 0;
}
