/* SPDX-License-Identifier: MIT
 *
 * postmortem: a folder of files of flight recorders, a part each (at most four).
 */
#include "tests/fuzz/flight_file.h"

#define main postmortem_program /* what it tells is its own */
#include "tools/postmortem/main.c"
#undef main

const struct fuzz_limits fuzz_limits = {.megabytes = 128, .seconds = 5, .bytes = 8192};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"0.flight", "1.flight", "2.flight", "3.flight"};
    struct fuzz_part rest = {data, bytes}, part;
    struct ranks ranks = {0};
    fuzz_clear();
    for (int i = 0; i < 4 && fuzz_next_part(&rest, &part); i++)
        (void)fuzz_flight_file(names[i], part.data, part.bytes);
    if (add_folder(&ranks, fuzz_folder()))
        tell_all(&ranks);
    for (uint32_t r = 0; r < ranks.rank_count; r++)
        eo_flight_log_close(&ranks.logs[r]);
    free(ranks.logs);
    free(ranks.infos);
    return 0;
}
