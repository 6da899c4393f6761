/* SPDX-License-Identifier: MIT
 *
 * Headers of safetensors files: what tensors there are, and whether they are those of a config. The tensors' bytes are
 * not read. A header is not trusted: every size and offset is checked against the file.
 */
#ifndef EO_TOOLS_INTERCHANGE_SAFETENSORS_HEADER_H
#define EO_TOOLS_INTERCHANGE_SAFETENSORS_HEADER_H

#include "tools/interchange/config/model_config.h"

struct tool_safetensors_check {
    bool found;             /* there was a file or an index */
    bool index_only;        /* shards are not there: names and total were compared, shapes not */
    bool has_pointers;      /* of Git LFS, instead of some files or all: those are not there */
    uint32_t file_count;
    uint64_t tensor_count, buffer_count; /* buffers: no parameters, such as rotary_emb.inv_freq */
    uint64_t element_count; /* of parameters, where headers were read */
    uint64_t bytes;         /* of all tensors, or the index's total_size */
};

/*
 * Adds the tensors of one file to `tensors`, an object of name to {"shape": [...], "bytes": n, "dtype": "F32", "at": byte
 * of the file, "path": file}. A header that is larger than so many tensors need is refused before it is parsed.
 * EO_OK, EO_ERR_IO, EO_ERR_INVALID (which file, which tensor, what), EO_ERR_NO_MEMORY.
 */
EO_NODISCARD eo_status tool_safetensors_read(const char *path, uint64_t tensor_count_max, json_t *tensors,
                                             uint64_t *tensor_bytes, struct tool_problem *problem);

/* What lies in `folder`, held against the config. Nothing there is no error; what cannot be like the config is left alone
 * (files_differ). */
EO_NODISCARD eo_status tool_safetensors_check(const char *folder, const struct tool_model_config *config,
                                              struct tool_safetensors_check *out, struct tool_problem *problem);

/* The same, and the tensors as tool_safetensors_read describes them, where their files are there. */
EO_NODISCARD eo_status tool_safetensors_collect(const char *folder, const struct tool_model_config *config, json_t *tensors,
                                                struct tool_safetensors_check *out, struct tool_problem *problem);

/* GPT-2's names come with "transformer." and without. */
const char *tool_safetensors_plain_name(const struct tool_model_config *config, const char *name);

/* GPT-2's matrices, but for the embeddings, lie [in][out]; `name` is a plain one. */
bool tool_safetensors_is_transposed(const struct tool_model_config *config, const char *name);

#endif
