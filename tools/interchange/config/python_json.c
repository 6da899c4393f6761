/* SPDX-License-Identifier: MIT
 *
 * What Python writes beyond JSON: infinities, NaNs, and whole numbers of any size.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/interchange/config/fields.h"

/* The text with null in the place of Python's infinities and NaNs, for free(). NULL: it has none, or there is no memory. */
static char *without_infinities(const char *text, size_t bytes, size_t *out_bytes)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    char *copy = malloc(2 * bytes); /* NaN is the shortest */
    size_t used = 0, found = 0;
    bool in_string = false;
    for (size_t i = 0; copy && i < bytes;) {
        size_t w = 0, length = 0;
        while (!in_string && w < 3 && (strlen(words[w]) > bytes - i || memcmp(text + i, words[w], strlen(words[w])) != 0))
            w++;
        if (!in_string && w < 3) {
            length = strlen(words[w]);
            memcpy(copy + used, "null", 4);
            used += 4;
            found++;
        } else {
            in_string = in_string != (text[i] == '"');
            length = in_string && text[i] == '\\' && i + 1 < bytes ? 2 : 1;
            memcpy(copy + used, text + i, length);
            used += length;
        }
        i += length;
    }
    if (found) {
        *out_bytes = used;
        return copy;
    }
    free(copy);
    return NULL;
}

json_t *tool_config_parse_python(struct tool_config_reader *r, const char *text, size_t bytes, json_error_t *error)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL;
    char *copy = without_infinities(text, bytes, &bytes);
    json_t *root = json_loadb(copy ? copy : text, bytes, flags, error);
    if (root && copy)
        tool_config_note_default(r, "fields with Infinity or NaN: Python's, not JSON");
    free(copy);
    return root;
}
