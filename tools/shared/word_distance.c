/* SPDX-License-Identifier: MIT */
#include "tools/shared/word_distance.h"

#include <stdio.h>
#include <string.h>

#include "base/plain_text.h"

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

eo_status tool_check_keys(const json_t *object, const char *const *known, const char *what, struct tool_problem *problem)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const char *nearest = known[0];
        size_t least = SIZE_MAX, far;
        for (const char *const *name = known; *name; name++)
            if ((far = tool_word_distance(key, strlen(key), *name)) < least) {
                least = far;
                nearest = *name;
            }
        if (least == 0 && strcmp(key, nearest) == 0)
            continue;
        char shown[TOOL_WORD_BYTES_MAX];
        snprintf(shown, sizeof(shown), "%s", key);
        eo_text_clean(shown);
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: '%s' is no key of it; did you mean '%s'?", what, shown, nearest);
    }
    return EO_OK;
}
