/* SPDX-License-Identifier: MIT
 *
 * A checkpoint's manifest: as it comes, and with a checksum that fits in its last line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hashing.h"
#include "runtime/checkpoint/files.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 128, .seconds = 5, .bytes = 4096};

enum { END_BYTES = 21 };

static void read_manifest(const char *text, size_t bytes)
{
    struct checkpoint_manifest manifest;
    struct checkpoint_error error = {""};
    const eo_status status = eo_checkpoint_read_manifest(&manifest, fuzz_file("manifest", text, bytes), &error);
    if (!fuzz_taken(status, error.text))
        return;
    FUZZ_HOLDS(manifest.rank_count > 0);
    for (uint32_t r = 0; r < manifest.rank_count; r++)
        FUZZ_HOLDS(memchr(manifest.files[r].name, 0, sizeof(manifest.files[r].name)) && manifest.files[r].name[0]);
    free(manifest.files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    read_manifest((const char *)data, bytes);
    if (bytes < END_BYTES)
        return 0;
    char *mended = fuzz_text(data, bytes);
    const size_t before = bytes - END_BYTES;
    char end[END_BYTES + 1];
    snprintf(end, sizeof(end), "end %016" PRIx64 "\n", eo_hash64(mended, before));
    memcpy(mended + before, end, END_BYTES);
    read_manifest(mended, bytes);
    free(mended);
    return 0;
}
