/* SPDX-License-Identifier: MIT
 *
 * Weights as files hold them: fp32, bf16 or fp16, little-endian, at no particular alignment; and reads and writes of a
 * file's bytes that are complete or say why not.
 */
#ifndef EO_TOOLS_INTERCHANGE_ELEMENTS_H
#define EO_TOOLS_INTERCHANGE_ELEMENTS_H

#include <evenodd/common.h>

#include "tools/shared/problem.h"

enum tool_element { TOOL_ELEMENT_F32, TOOL_ELEMENT_BF16, TOOL_ELEMENT_F16 };

uint32_t tool_element_bytes(enum tool_element element);

/* False: a dtype of safetensors that is none of the three. */
bool tool_element_find(const char *dtype, enum tool_element *out);
const char *tool_element_name(enum tool_element element);

/* Exact. `values` and `bytes` do not overlap. */
void tool_elements_decode(float *values, const void *bytes, uint64_t count, enum tool_element element);

/* F32: exact. BF16: to nearest, ties away from zero, as weights are rounded that are computed with. Not F16. */
void tool_elements_encode(void *bytes, const float *values, uint64_t count, enum tool_element element);

/* All of the bytes, or EO_ERR_IO; `path` is named. */
EO_NODISCARD eo_status tool_read_at(int file, const char *path, void *data, uint64_t bytes, uint64_t at,
                                    struct tool_problem *problem);
EO_NODISCARD eo_status tool_write_at(int file, const char *path, const void *data, uint64_t bytes, uint64_t at,
                                     struct tool_problem *problem);

#endif
