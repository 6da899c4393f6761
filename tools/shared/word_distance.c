/* SPDX-License-Identifier: MIT */
#include "tools/shared/word_distance.h"

#include <string.h>

static char dashed(char letter)
{
    return letter == '_' ? '-' : letter;
}

static size_t shorter(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Damerau's distance, restricted; `_` is as good as `-`. */
size_t tool_word_distance(const char *wrong, size_t length, const char *name)
{
    size_t rows[3][TOOL_WORD_BYTES_MAX + 1]; /* of the last three letters of `wrong`, in turn */
    const size_t width = shorter(strlen(name), TOOL_WORD_BYTES_MAX);
    for (size_t i = 0; i <= width; i++)
        rows[0][i] = i;
    for (size_t w = 1; w <= length; w++) {
        size_t *row = rows[w % 3], *before = rows[(w + 2) % 3], *before_that = rows[(w + 1) % 3];
        const char letter = dashed(wrong[w - 1]);
        row[0] = w;
        for (size_t i = 1; i <= width; i++) {
            const size_t changed = before[i - 1] + (letter != dashed(name[i - 1]));
            row[i] = shorter(changed, shorter(before[i], row[i - 1]) + 1);
            if (w > 1 && i > 1 && letter == dashed(name[i - 2]) && dashed(wrong[w - 2]) == dashed(name[i - 1]))
                row[i] = shorter(row[i], before_that[i - 2] + 1);
        }
    }
    return rows[length % 3][width];
}
