/* SPDX-License-Identifier: MIT */
#include "tools/interchange/elements.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    uint32_t bytes;
} elements[] = {
    [TOOL_ELEMENT_F32] = {"F32", 4},
    [TOOL_ELEMENT_BF16] = {"BF16", 2},
    [TOOL_ELEMENT_F16] = {"F16", 2},
};

uint32_t tool_element_bytes(enum tool_element element)
{
    return elements[element].bytes;
}

const char *tool_element_name(enum tool_element element)
{
    return elements[element].name;
}

bool tool_element_find(const char *dtype, enum tool_element *out)
{
    for (int e = TOOL_ELEMENT_F32; e <= TOOL_ELEMENT_F16; e++)
        if (strcmp(dtype, elements[e].name) == 0) {
            *out = (enum tool_element)e;
            return true;
        }
    return false;
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* 5 bits of exponent, 10 of fraction. */
static float float_of_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent)
        return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = (float)fraction * 0x1p-24F;
    return sign ? -small : small;
}

void tool_elements_decode(float *values, const void *bytes, uint64_t count, enum tool_element element)
{
    const char *at = bytes;
    if (element == TOOL_ELEMENT_F32) {
        memcpy(values, bytes, count * sizeof(*values));
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, at + 2 * i, sizeof(half));
        values[i] = element == TOOL_ELEMENT_BF16 ? float_of_bits((uint32_t)half << 16) : float_of_half(half);
    }
}

static uint16_t round_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x8000) >> 16);
}

void tool_elements_encode(void *bytes, const float *values, uint64_t count, enum tool_element element)
{
    char *at = bytes;
    if (element == TOOL_ELEMENT_F32) {
        memcpy(bytes, values, count * sizeof(*values));
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint16_t half = round_bf16(values[i]);
        memcpy(at + 2 * i, &half, sizeof(half));
    }
}

eo_status tool_read_at(int file, const char *path, void *data, uint64_t bytes, uint64_t at, struct tool_problem *problem)
{
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t got = pread(file, (char *)data + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tool_problem_set(problem, EO_ERR_IO, "%s: cannot be read at byte %llu: %s", path,
                                    (unsigned long long)(at + done), strerror(errno));
        if (got == 0)
            return tool_problem_set(problem, EO_ERR_IO, "%s: ends at byte %llu, but was longer at its opening", path,
                                    (unsigned long long)(at + done));
        done += (uint64_t)got;
    }
    return EO_OK;
}

eo_status tool_write_at(int file, const char *path, const void *data, uint64_t bytes, uint64_t at, struct tool_problem *problem)
{
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t put = pwrite(file, (const char *)data + done, bytes - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return tool_problem_set(problem, EO_ERR_IO, "%s: cannot be written at byte %llu: %s", path,
                                    (unsigned long long)(at + done), strerror(errno));
        done += (uint64_t)put;
    }
    return EO_OK;
}
