/* SPDX-License-Identifier: MIT
 *
 * A checkpoint's file of one rank: as it comes, and with checksums that fit, beside a manifest that names it. The file is
 * as long as its head says, what the input lacks is zeros. What is taken is read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hashing.h"
#include "runtime/checkpoint/files.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 8192};

enum { FILE_MAX = 1 << 18, ELEMENTS_MAX = 1 << 14 };

/* The file in memory: FILE_MAX bytes at an aligned address. */
static _Alignas(CHECKPOINT_ALIGN) unsigned char image[FILE_MAX];

static size_t load_image(const uint8_t *data, size_t bytes)
{
    struct checkpoint_head *head = (struct checkpoint_head *)image;
    memset(image, 0, sizeof(image));
    memcpy(image, data, bytes);
    return bytes >= sizeof(*head) && head->file_bytes >= bytes && head->file_bytes <= FILE_MAX ? head->file_bytes : bytes;
}

static bool read_head(size_t bytes)
{
    struct checkpoint_tables tables;
    struct checkpoint_error error = {""};
    const bool good = fuzz_taken(eo_checkpoint_read_head(&tables, fuzz_file("rank-00000", image, bytes), &error), error.text);
    if (good)
        eo_checkpoint_free_tables(&tables);
    return good;
}

static void mend_head(size_t bytes)
{
    struct checkpoint_head *head = (struct checkpoint_head *)image;
    if (bytes < sizeof(*head) || head->head_bytes > bytes)
        return;
    head->head_hash = 0;
    head->head_hash = eo_hash64(image, head->head_bytes);
}

/* Of a head that was found good. */
static void mend_chunks(void)
{
    struct checkpoint_tables tables = {0};
    eo_checkpoint_set_tables(&tables, (struct checkpoint_head *)image);
    for (uint32_t s = 0; s < tables.head->section_count; s++) {
        const struct checkpoint_section *section = &tables.sections[s];
        const uint64_t padded = eo_align_up(section->bytes, CHECKPOINT_ALIGN);
        for (uint32_t c = 0; c < section->chunk_count; c++) {
            const uint64_t at = (uint64_t)c * CHECKPOINT_CHUNK;
            const uint64_t part = padded - at < CHECKPOINT_CHUNK ? padded - at : CHECKPOINT_CHUNK;
            tables.chunk_hashes[section->chunk_begin + c] = eo_hash64(image + section->file_offset + at, part);
        }
    }
}

static void write_manifest_of(const struct checkpoint_head *head)
{
    char text[512];
    size_t used = (size_t)snprintf(text, sizeof(text), "evenodd-checkpoint %d\nstep %" PRIu64 "\nranks 1\n"
                                   "file rank-00000 %" PRIu64 " %016" PRIx64 "\n", CHECKPOINT_VERSION, head->step,
                                   head->file_bytes, head->head_hash);
    used += (size_t)snprintf(text + used, sizeof(text) - used, "end %016" PRIx64 "\n", eo_hash64(text, used));
    (void)fuzz_file("manifest", text, used);
}

static void use_checkpoint(eo_checkpoint *checkpoint)
{
    static float values[ELEMENTS_MAX];
    static unsigned char blob[FILE_MAX];
    eo_checkpoint_info info;
    eo_checkpoint_get_info(checkpoint, &info);
    for (uint32_t p = 0; p < info.parameter_count; p++) {
        eo_checkpoint_parameter parameter;
        FUZZ_HOLDS(eo_checkpoint_get_parameter(checkpoint, p, &parameter) >= 0);
        FUZZ_HOLDS(parameter.info.name && parameter.info.name[0] && parameter.info.element_count > 0);
    }
    for (uint32_t l = 0; l < info.layer_count; l++) {
        eo_checkpoint_layer layer;
        FUZZ_HOLDS(eo_checkpoint_get_layer(checkpoint, l, &layer) >= 0);
        const uint64_t count = layer.element_count < ELEMENTS_MAX ? layer.element_count : ELEMENTS_MAX;
        for (uint32_t array = 0; array <= info.optimizer_states; array++) { /* of a frozen layer only the first is there */
            const bool first = fuzz_taken(eo_checkpoint_read(checkpoint, l, array, 0, count, values), NULL);
            const bool last = fuzz_taken(eo_checkpoint_read(checkpoint, l, array, layer.element_count - count, count, values),
                                         NULL);
            FUZZ_HOLDS(layer.frozen || (first && last));
        }
    }
    uint32_t blob_bytes = sizeof(blob);
    FUZZ_HOLDS(fuzz_taken(eo_checkpoint_blob(checkpoint, 0, blob, &blob_bytes), NULL) && blob_bytes < sizeof(blob));
    FUZZ_HOLDS(fuzz_taken(eo_checkpoint_verify(checkpoint), NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const size_t file_bytes = load_image(data, bytes);
    eo_checkpoint *checkpoint = NULL;
    (void)read_head(file_bytes);
    mend_head(file_bytes);
    if (!read_head(file_bytes))
        return 0;
    mend_chunks();
    mend_head(file_bytes);
    FUZZ_HOLDS(read_head(file_bytes));
    write_manifest_of((struct checkpoint_head *)image);
    if (fuzz_taken(eo_checkpoint_open(&checkpoint, fuzz_folder(), NULL), NULL))
        use_checkpoint(checkpoint);
    eo_checkpoint_close(&checkpoint);
    return 0;
}
