/* SPDX-License-Identifier: MIT */
#include "tools/shared/json_output.h"

#include <stdlib.h>

void tool_write_to_stream(void *file, const char *text, size_t bytes)
{
    fwrite(text, 1, bytes, file);
}

char *tool_json_text(uint32_t indent, void (*write)(struct eo_json *json, const void *user), const void *user)
{
    char *text = NULL;
    size_t bytes;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory)
        return NULL;
    struct eo_json json = {.write = tool_write_to_stream, .user = memory, .indent = indent};
    write(&json, user);
    if (fclose(memory) == 0)
        return text;
    free(text);
    return NULL;
}

uint64_t tool_json_values(const char *text, uint64_t bytes)
{
    uint64_t values = 0;
    for (uint64_t i = 0; i < bytes; i++)
        values += text[i] == '{' ? 4 : text[i] == ',' || text[i] == '[';
    return values;
}

void tool_json_value(struct eo_json *json, const void *user)
{
    const json_t *value = user;
    const char *key;
    json_t *member;
    size_t i;
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_OBJECT:
        eo_json_write(json, "{");
        json_object_foreach((json_t *)user, key, member) {
            eo_json_write(json, "%s:", key);
            tool_json_value(json, member);
        }
        eo_json_write(json, "}");
        return;
    case JSON_ARRAY:
        eo_json_write(json, "[");
        json_array_foreach(value, i, member)
            tool_json_value(json, member);
        eo_json_write(json, "]");
        return;
    case JSON_STRING: eo_json_write(json, "%s", json_string_value(value)); return;
    case JSON_INTEGER: eo_json_write(json, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); return;
    case JSON_REAL: eo_json_write(json, "%g", json_real_value(value)); return;
    case JSON_TRUE:
    case JSON_FALSE: eo_json_write(json, "%i", json_is_true(value)); return;
    case JSON_NULL: eo_json_write(json, "null"); return;
    }
}
