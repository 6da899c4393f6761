/* SPDX-License-Identifier: MIT
 *
 * A log of train that is gone on with: its first byte is the step, the rest the log. What is kept are whole lines, and are
 * kept again.
 */
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"
#include "tools/step_log.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 4096};

static bool resume_log(const char *path, uint64_t step, off_t *bytes)
{
    struct eo_problem problem = {""};
    struct eo_step_log log;
    struct stat info;
    if (!fuzz_taken(eo_step_log_resume(&log, path, step, &problem), problem.text))
        return false;
    eo_step_log_write(&log, json_pack("{s:I}", "step", (json_int_t)step));
    eo_step_log_close(&log);
    FUZZ_HOLDS(stat(path, &info) == 0);
    *bytes = info.st_size;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    fuzz_clear();
    const char *path = fuzz_file("log.jsonl", data + 1, bytes - 1);
    off_t once, twice;
    if (!resume_log(path, data[0], &once))
        return 0;
    FUZZ_HOLDS(resume_log(path, data[0], &twice));
    FUZZ_HOLDS(twice > once);
    return 0;
}
