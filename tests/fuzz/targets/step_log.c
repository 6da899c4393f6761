/* SPDX-License-Identifier: MIT
 *
 * A log of train that is gone on with: its first byte is the step, the rest the log. What comes of it are whole lines of JSON,
 * those of earlier steps and the new one.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/logs/step_log.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 4096};

static void check_lines(const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    int count = 0;
    FUZZ_HOLDS(file != NULL);
    for (ssize_t bytes; (bytes = getline(&line, &room, file)) > 0; count++) {
        json_t *object = json_loads(line, 0, NULL);
        FUZZ_HOLDS(object && line[bytes - 1] == '\n' && strlen(line) == (size_t)bytes);
        json_decref(object);
    }
    FUZZ_HOLDS(count > 0);
    free(line);
    fclose(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tool_problem problem = {""};
    struct tool_step_log log;
    if (bytes == 0)
        return 0;
    fuzz_clear();
    const char *path = fuzz_file("log.jsonl", data + 1, bytes - 1);
    const struct tool_step_log_kept kept = {data[0], data[0]};
    if (!fuzz_taken(tool_step_log_resume(&log, "--log", path, &kept, &problem), problem.text))
        return 0;
    struct eo_json line = tool_step_log_line(&log);
    eo_json_write(&line, "{'step': %d, 'grad_norm': 1.5}", data[0] + 1);
    tool_step_log_end(&log);
    tool_step_log_close(&log);
    check_lines(path);
    return 0;
}
