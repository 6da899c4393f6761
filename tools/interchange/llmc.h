/* SPDX-License-Identifier: MIT
 *
 * GPT-2 checkpoints of llm.c, version 3 (fp32) and 5 (bf16): a header of 256 int32, then each kind of parameter over all
 * layers, matrices as [out][in]. The vocabulary is padded at its end; the padding is left out on the way in, and is
 * zeros on the way out.
 */
#ifndef EO_TOOLS_INTERCHANGE_LLMC_H
#define EO_TOOLS_INTERCHANGE_LLMC_H

#include <evenodd/layers.h>

#include "tools/interchange/elements.h"
#include "tools/shared/problem.h"

enum { TOOL_LLMC_HEADER_INTS = 256, TOOL_LLMC_HEADER_BYTES = TOOL_LLMC_HEADER_INTS * 4 };

struct tool_llmc {
    eo_transformer_config config; /* of the model in the file */
    uint32_t padded_vocabulary;
    enum tool_element element;
};

/* Checks header, size and that every value is finite. EO_ERR_IO, EO_ERR_INVALID; then it changes nothing, and else
 * *file is open. */
EO_NODISCARD eo_status tool_llmc_open(struct tool_llmc *llmc, int *file, const char *path, struct tool_problem *problem);

/* The byte of the file at which the parameter of this name begins; false: the file has none. */
bool tool_llmc_place(const struct tool_llmc *llmc, const char *name, uint64_t *at);
uint64_t tool_llmc_file_bytes(const struct tool_llmc *llmc);

/* For writing. False: `why` (at least 160 bytes) says what such files have no place for. */
bool tool_llmc_describe(struct tool_llmc *llmc, const eo_transformer_config *config, eo_dtype dtype, char *why,
                        size_t why_bytes);
void tool_llmc_header(const struct tool_llmc *llmc, int32_t header[TOOL_LLMC_HEADER_INTS]);

#endif
