/* SPDX-License-Identifier: MIT
 *
 * What two plans differ in first, by the name that stands before it in their JSON.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tools/run/ranks/world.h"

/* The last "name": before `at` that is not inside the value at `at`. */
static size_t find_name(const char *text, size_t at, char *name, size_t bytes)
{
    size_t colon = at;
    while (colon > 0 && text[colon] != ':')
        colon--;
    size_t end = colon;
    while (end > 0 && text[end] != '"')
        end--;
    size_t begin = end ? end - 1 : 0;
    while (begin > 0 && text[begin] != '"')
        begin--;
    snprintf(name, bytes, "%.*s", end > begin ? (int)(end - begin - 1) : 0, text + begin + 1);
    return colon + 1;
}

/* From the colon to where the value ends, on one line. */
static void find_value(const char *text, size_t bytes_max, size_t from, char *value, size_t bytes)
{
    while (from < bytes_max && isspace((unsigned char)text[from]))
        from++;
    size_t length = 0;
    while (from + length < bytes_max && text[from + length] && !strchr(",}\n", text[from + length]) && length < 60)
        length++;
    snprintf(value, bytes, "%.*s", (int)length, text + from);
}

void tool_job_world_difference(const char *a, const char *b, size_t bytes, size_t at, uint32_t rank, char *out,
                               size_t out_bytes)
{
    char name[80], mine[80], other[80];
    const size_t from = find_name(a, at, name, sizeof(name));
    find_value(a, bytes, from, mine, sizeof(mine));
    find_value(b, bytes, from, other, sizeof(other));
    snprintf(out, out_bytes, "\"%s\" is %s on rank 0 and %s on rank %u", name, mine, other, rank);
}
