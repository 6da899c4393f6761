/* SPDX-License-Identifier: MIT
 *
 * memplan --diff: two plans as JSON, a part each.
 */
#include "tests/fuzz/fuzz.h"
#include "tools/memplan/report/compare.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 4096};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static FILE *nowhere;
    struct fuzz_part rest = {data, bytes}, a = {NULL, 0}, b = {NULL, 0};
    struct tool_problem problem = {""};
    uint32_t count = 0;
    if (!nowhere)
        nowhere = fopen("/dev/null", "we");
    FUZZ_HOLDS(nowhere != NULL);
    (void)fuzz_next_part(&rest, &a);
    (void)fuzz_next_part(&rest, &b);
    const char *path = fuzz_file("a.json", a.data, a.bytes);
    (void)fuzz_taken(tool_memplan_diff(nowhere, path, fuzz_file("b.json", b.data, b.bytes), &count, &problem), problem.text);
    if (fuzz_taken(tool_memplan_diff(nowhere, path, path, &count, &problem), problem.text))
        FUZZ_HOLDS(count == 0);
    return 0;
}
