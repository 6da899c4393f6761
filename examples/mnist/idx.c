/* SPDX-License-Identifier: MIT */
#include "idx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 10, SIDE_MAX = 64, COUNT_MAX = 1 << 20, PATH_BYTES_MAX = 4096, DIMS_MAX = 3 };

static bool refuse(const char *path, const char *why)
{
    fprintf(stderr, "mnist: %s: %s\n", path, why);
    return false;
}

/* Numbers are written with their highest byte first. */
static bool read_number(FILE *file, uint32_t *out)
{
    unsigned char b[4];
    if (fread(b, 1, sizeof(b), file) != sizeof(b))
        return false;
    *out = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    return true;
}

/* The head is 0, 0, 8 (bytes), the number of dimensions; then the dimensions. */
static bool read_body(FILE *file, const char *path, uint32_t dim_count, uint32_t *dims, uint8_t **out)
{
    uint32_t magic;
    uint64_t bytes = 1;
    if (!read_number(file, &magic) || magic != 0x800 + dim_count)
        return refuse(path, "is no IDX file of bytes with so many dimensions; take MNIST's files, unpacked, or those of digits.py");
    for (uint32_t d = 0; d < dim_count; d++) {
        if (!read_number(file, &dims[d]) || dims[d] == 0 || dims[d] > (d == 0 ? COUNT_MAX : SIDE_MAX))
            return refuse(path, "has a dimension that is 0, too large or cut off");
        bytes *= dims[d];
    }
    const long head = ftell(file);
    if (head < 0 || fseek(file, 0, SEEK_END) != 0 || (uint64_t)ftell(file) != (uint64_t)head + bytes || fseek(file, head, SEEK_SET) != 0)
        return refuse(path, "its length is not what its head says; copy it again");
    *out = malloc(bytes);
    if (!*out)
        return refuse(path, "no memory for it");
    if (fread(*out, 1, bytes, file) != bytes)
        return refuse(path, "cannot be read");
    return true;
}

static bool read_file(const char *folder, const char *part, const char *kind, uint32_t dim_count, uint32_t *dims, uint8_t **out)
{
    char path[PATH_BYTES_MAX];
    if (snprintf(path, sizeof(path), "%s/%s-%s-idx%u-ubyte", folder, part, kind, dim_count) >= (int)sizeof(path))
        return refuse(folder, "the path is too long");
    FILE *file = fopen(path, "rb");
    if (!file)
        return refuse(path, strerror(errno));
    const bool good = read_body(file, path, dim_count, dims, out);
    fclose(file);
    return good;
}

bool images_read(struct images *images, const char *folder, const char *part)
{
    uint32_t dims[DIMS_MAX], label_count;
    *images = (struct images){0};
    bool good = read_file(folder, part, "images", DIMS_MAX, dims, &images->pixels) &&
                read_file(folder, part, "labels", 1, &label_count, &images->labels);
    if (good && label_count != dims[0])
        good = refuse(folder, "has another number of labels than of images");
    for (uint32_t i = 0; good && i < label_count; i++)
        if (images->labels[i] >= CLASSES)
            good = refuse(folder, "has a label above 9");
    if (!good) {
        images_free(images);
        return false;
    }
    images->count = dims[0];
    images->height = dims[1];
    images->width = dims[2];
    return true;
}

void images_free(struct images *images)
{
    free(images->pixels);
    free(images->labels);
    *images = (struct images){0};
}
