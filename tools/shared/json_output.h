/* SPDX-License-Identifier: MIT
 *
 * Where the programs' JSON goes: streams and texts. Jansson only reads, and this bounds how much.
 */
#ifndef EO_TOOLS_SHARED_JSON_OUTPUT_H
#define EO_TOOLS_SHARED_JSON_OUTPUT_H

#include <jansson.h>

#include "base/json_writer.h"

/* For eo_write_fn: to a FILE. */
void tool_write_to_stream(void *file, const char *text, size_t bytes);

/* What write writes, for free(). NULL: no memory. */
char *tool_json_text(uint32_t indent, void (*write)(struct eo_json *json, const void *user), const void *user);

/*
 * About how many values a text has, an object as four: for a limit before jansson takes memory for each, up to 230 bytes. Each
 * but the first of its list comes after a comma, each list and object after its bracket. Those in texts count too.
 */
uint64_t tool_json_values(const char *text, uint64_t bytes);

/* A value that was read, a json_t; NULL: null. */
void tool_json_value(struct eo_json *json, const void *value);

#endif
