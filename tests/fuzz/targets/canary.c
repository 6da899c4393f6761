/* SPDX-License-Identifier: MIT
 *
 * A target that is wrong on purpose, for the test of what replays them (tests/fuzz/driver.sh).
 */
#include <signal.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 1, .bytes = 64};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static volatile bool goes_on = true;
    FUZZ_HOLDS(bytes != 5 || memcmp(data, "abort", 5) != 0);
    if (bytes == 5 && memcmp(data, "crash", 5) == 0)
        raise(SIGSEGV);
    if (bytes == 4 && memcmp(data, "hang", 4) == 0)
        while (goes_on) {
        }
    if (bytes == 4 && memcmp(data, "grow", 4) == 0) {
        const size_t much = (size_t)512 << 20;
        char *memory = malloc(much);
        (void)fuzz_taken(memory ? EO_OK : EO_ERR_NO_MEMORY, "no memory");
        for (size_t i = 0; i < much; i += 4096)
            ((volatile char *)memory)[i] = 1;
        free(memory);
    }
    return 0;
}
