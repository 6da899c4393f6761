/* SPDX-License-Identifier: MIT
 *
 * Images and labels of examples/mnist, a part each: as they come, and with counts that fit. All that is taken can be read.
 */
#include <stdio.h>
#include <string.h>

#include "examples/mnist/idx.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 8192};

enum { IMAGES_HEAD = 16, LABELS_HEAD = 8, COUNT_AT = 4 };

/* A refusal is a line on standard error, which is libFuzzer's log. */
static bool read_quietly(struct images *images)
{
    static FILE *nowhere;
    FILE *const log = stderr;
    if (!nowhere)
        nowhere = fopen("/dev/null", "we");
    FUZZ_HOLDS(nowhere != NULL);
    stderr = nowhere;
    const bool good = images_read(images, fuzz_folder(), "train");
    stderr = log;
    return good;
}

static void use_files(const uint8_t *pixels, size_t pixel_bytes, const uint8_t *labels, size_t label_bytes)
{
    struct images images;
    unsigned sum = 0;
    (void)fuzz_file("train-images-idx3-ubyte", pixels, pixel_bytes);
    (void)fuzz_file("train-labels-idx1-ubyte", labels, label_bytes);
    if (!read_quietly(&images)) {
        FUZZ_HOLDS(!images.pixels && !images.labels && images.count == 0);
        return;
    }
    const size_t size = (size_t)images.height * images.width;
    FUZZ_HOLDS(images.count * size + IMAGES_HEAD == pixel_bytes && images.count + LABELS_HEAD == label_bytes);
    for (size_t i = 0; i < images.count; i++) {
        FUZZ_HOLDS(images.labels[i] < 10);
        for (size_t k = 0; k < size; k++)
            sum += images.pixels[i * size + k];
    }
    FUZZ_HOLDS(sum < UINT32_MAX);
    images_free(&images);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_part rest = {data, bytes}, pixels = {NULL, 0}, labels = {NULL, 0};
    (void)fuzz_next_part(&rest, &pixels);
    (void)fuzz_next_part(&rest, &labels);
    use_files(pixels.data, pixels.bytes, labels.data, labels.bytes);
    if (pixels.bytes < IMAGES_HEAD || labels.bytes < LABELS_HEAD)
        return 0;
    uint8_t *images = (uint8_t *)fuzz_text(pixels.data, pixels.bytes), *classes = (uint8_t *)fuzz_text(labels.data, labels.bytes);
    const size_t pixel_count = (size_t)images[11] * images[15], size = pixel_count > 0 ? pixel_count : 1;
    size_t count = (pixels.bytes - IMAGES_HEAD) / size;
    count = count < labels.bytes - LABELS_HEAD ? count : labels.bytes - LABELS_HEAD;
    images[COUNT_AT] = images[COUNT_AT + 1] = classes[COUNT_AT] = classes[COUNT_AT + 1] = 0;
    images[COUNT_AT + 2] = classes[COUNT_AT + 2] = (uint8_t)(count >> 8);
    images[COUNT_AT + 3] = classes[COUNT_AT + 3] = (uint8_t)count;
    use_files(images, IMAGES_HEAD + count * size, classes, LABELS_HEAD + count);
    free(images);
    free(classes);
    return 0;
}
