/* SPDX-License-Identifier: MIT */
#include "tests/programs/interchange_plain.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char *header;
    uint64_t header_bytes, file_bytes;
    FILE *file;
};

static int open_text(const char *path, struct text *text)
{
    unsigned char length[8];
    text->file = fopen(path, "rb");
    if (!text->file || fread(length, 1, 8, text->file) != 8)
        return 0;
    text->header_bytes = 0;
    for (int i = 7; i >= 0; i--)
        text->header_bytes = text->header_bytes << 8 | length[i];
    text->header = calloc(1, text->header_bytes + 1);
    const int read = fread(text->header, 1, text->header_bytes, text->file) == text->header_bytes;
    fseek(text->file, 0, SEEK_END);
    text->file_bytes = (uint64_t)ftell(text->file);
    return read;
}

static void close_text(struct text *text)
{
    fclose(text->file);
    free(text->header);
}

static double of_bits(const unsigned char *bytes, const char *dtype)
{
    if (strcmp(dtype, "F32") == 0) {
        const uint32_t bits = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
        float value;
        memcpy(&value, &bits, 4);
        return (double)value;
    }
    /* bf16: sign, 8 bits of exponent, 7 of fraction */
    const uint32_t bits = bytes[0] | (uint32_t)bytes[1] << 8;
    const int exponent = (int)(bits >> 7 & 255);
    const double value = exponent ? ldexp(1 + (bits & 127) / 128.0, exponent - 127) : ldexp((bits & 127) / 128.0, -126);
    return bits >> 15 ? -value : value;
}

static int read_entry(struct text *text, const char *entry, struct plain_tensor *out)
{
    unsigned long long begin = 0, end = 0;
    const char *shape = strstr(entry, "\"shape\":["), *offsets = strstr(entry, "\"data_offsets\":[");
    if (sscanf(entry, "{\"dtype\":\"%7[A-Z0-9]", out->dtype) != 1 || !shape || !offsets ||
        sscanf(offsets, "\"data_offsets\":[%llu,%llu]", &begin, &end) != 2)
        return 0;
    unsigned long long first = 0, second = 0;
    const int dimensions = sscanf(shape, "\"shape\":[%llu,%llu]", &first, &second);
    out->rows = dimensions == 2 ? first : 1;
    out->columns = dimensions == 2 ? second : first;
    const uint64_t count = out->rows * out->columns, bytes = end - begin, each = strcmp(out->dtype, "F32") == 0 ? 4 : 2;
    unsigned char *data = malloc(bytes + 1);
    out->values = calloc(count, sizeof(double));
    fseek(text->file, (long)(8 + text->header_bytes + begin), SEEK_SET);
    const int read = bytes == count * each && fread(data, 1, bytes, text->file) == bytes;
    for (uint64_t i = 0; read && i < count; i++)
        out->values[i] = of_bits(data + i * each, out->dtype);
    free(data);
    return read;
}

int plain_find(const char *folder, const char *name, struct plain_tensor *out)
{
    char pattern[512], quoted[256];
    glob_t files;
    int found = 0;
    snprintf(pattern, sizeof(pattern), "%s/*.safetensors", folder);
    snprintf(quoted, sizeof(quoted), "\"%s\":", name);
    if (glob(pattern, 0, NULL, &files) != 0)
        return 0;
    for (size_t i = 0; i < files.gl_pathc && !found; i++) {
        struct text text;
        if (!open_text(files.gl_pathv[i], &text))
            break;
        const char *entry = strstr(text.header, quoted);
        if (entry)
            found = read_entry(&text, entry + strlen(quoted), out);
        close_text(&text);
    }
    globfree(&files);
    return found;
}

int plain_count(const char *folder)
{
    char pattern[512];
    glob_t files;
    int count = 0;
    snprintf(pattern, sizeof(pattern), "%s/*.safetensors", folder);
    if (glob(pattern, 0, NULL, &files) != 0)
        return -1;
    for (size_t i = 0; i < files.gl_pathc && count >= 0; i++) {
        struct text text;
        unsigned long long end = 0, begin = 0;
        if (!open_text(files.gl_pathv[i], &text))
            return -1;
        for (const char *at = text.header; (at = strstr(at, "\"data_offsets\":[")) != NULL; at++, count++)
            if (sscanf(at, "\"data_offsets\":[%llu,%llu]", &begin, &end) != 2)
                return -1;
        if (8 + text.header_bytes + end != text.file_bytes)
            count = -1;
        close_text(&text);
    }
    globfree(&files);
    return count;
}
