/* SPDX-License-Identifier: MIT
 *
 * What files and tensors are that other programs wrote, where they are not what was asked for: hints at the end of a refusal.
 */
#ifndef EO_TOOLS_INTERCHANGE_FOREIGN_H
#define EO_TOOLS_INTERCHANGE_FOREIGN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { TOOL_FOREIGN_HINT_BYTES = 160 };

/* Of a file that begins with these 8 bytes; "": unknown. */
const char *tool_foreign_file_hint(const void *first);

/* Instead of a file, git without its extension LFS leaves a few lines that name it. */
bool tool_foreign_is_pointer(const char *path);

/* Of a folder without readable weights, or adapters, where `pickles` may be, the last of them NULL. */
const char *tool_foreign_folder_hint(const char *folder, const char *const *pickles, char hint[TOOL_FOREIGN_HINT_BYTES]);

/* Of a tensor that is none of `wanted`, an object of their names. */
const char *tool_foreign_tensor_hint(const char *name, const json_t *wanted, char hint[TOOL_FOREIGN_HINT_BYTES]);

/* Of a tensor with another shape than the one wanted. */
const char *tool_foreign_shape_hint(const json_t *shape, const json_t *wanted, bool is_table,
                                    char hint[TOOL_FOREIGN_HINT_BYTES]);

#endif
