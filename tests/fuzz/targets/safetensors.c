/* SPDX-License-Identifier: MIT
 *
 * The header of a safetensors file: as it comes, and with a length that fits.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/interchange/safetensors_header.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 128, .seconds = 5, .bytes = 4096};

enum { TENSORS_MAX = 64, LENGTH_BYTES = 8 };

static void read_tensors(const uint8_t *data, size_t bytes)
{
    struct tool_problem problem = {""};
    uint64_t tensor_bytes = 0;
    const char *path = fuzz_file("model.safetensors", data, bytes), *name;
    json_t *tensors = json_object(), *entry;
    if (fuzz_taken(tool_safetensors_read(path, TENSORS_MAX, tensors, &tensor_bytes, &problem), problem.text)) {
        FUZZ_HOLDS(tensor_bytes <= bytes);
        json_object_foreach(tensors, name, entry) {
            const json_int_t at = json_integer_value(json_object_get(entry, "at"));
            const json_int_t length = json_integer_value(json_object_get(entry, "bytes"));
            FUZZ_HOLDS(at >= LENGTH_BYTES && length >= 0 && (uint64_t)at + (uint64_t)length <= bytes);
            FUZZ_HOLDS(strcmp(json_string_value(json_object_get(entry, "path")), path) == 0);
        }
    }
    json_decref(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    read_tensors(data, bytes);
    const uint8_t *end = bytes > LENGTH_BYTES ? memrchr(data + LENGTH_BYTES, '}', bytes - LENGTH_BYTES) : NULL;
    if (!end)
        return 0;
    uint8_t *mended = (uint8_t *)fuzz_text(data, bytes);
    for (int i = 0; i < LENGTH_BYTES; i++)
        mended[i] = (uint8_t)((uint64_t)(end + 1 - data - LENGTH_BYTES) >> (8 * i));
    read_tensors(mended, bytes);
    free(mended);
    return 0;
}
