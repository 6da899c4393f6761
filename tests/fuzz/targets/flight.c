/* SPDX-License-Identifier: MIT
 *
 * A file of a flight recorder: all that a reader can ask of it.
 */
#include "tests/fuzz/flight_file.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 4096};

enum { ENTRIES_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    eo_flight_log *flight = NULL;
    if (!fuzz_taken(eo_flight_log_open(&flight, fuzz_flight_file("rank.flight", data, bytes), NULL), NULL))
        return 0;
    const eo_flight_info info = eo_flight_log_info(flight);
    FUZZ_HOLDS(info.first <= info.count && memchr(info.host, 0, sizeof(info.host)) && memchr(info.note, 0, sizeof(info.note)));
    const uint64_t end = info.count - info.first > ENTRIES_MAX ? info.first + ENTRIES_MAX : info.count;
    for (uint64_t i = info.first; i < end; i++) {
        eo_flight_entry entry;
        if (eo_flight_log_entry(flight, i, &entry))
            FUZZ_HOLDS(strlen(entry.name) < FLIGHT_NAME_BYTES && entry.kind && entry.kind[0]);
    }
    eo_flight_entry none;
    FUZZ_HOLDS(!eo_flight_log_entry(flight, info.count, &none) && !eo_flight_log_entry(flight, UINT64_MAX, &none));
    FUZZ_HOLDS(info.first == 0 || !eo_flight_log_entry(flight, info.first - 1, &none));
    eo_flight_log_close(&flight);
    FUZZ_HOLDS(!flight);
    return 0;
}
