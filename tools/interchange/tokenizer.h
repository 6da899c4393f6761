/* SPDX-License-Identifier: MIT
 *
 * A tokenizer of Hugging Face's tokenizers library (tokenizer.json), as far as samples need it: the bytes of a token. Text is
 * turned into tokens elsewhere (tools/tokenize).
 */
#ifndef EO_TOOLS_INTERCHANGE_TOKENIZER_H
#define EO_TOOLS_INTERCHANGE_TOKENIZER_H

#include "tools/shared/problem.h"

struct tool_tokenizer {
    uint64_t hash;       /* of the file's bytes: FNV-1a, 64 bits; token files name it (tools/run/data/batches.h) */
    uint32_t count;      /* of tokens, the highest number + 1; 0: no tokenizer */
    uint32_t *begins;    /* count + 1 places in `bytes` */
    char *bytes;
};

/* A tokenizer.json, or a folder with one. `option`: that named it. EO_ERR_IO, EO_ERR_NO_MEMORY; EO_ERR_INVALID: no tokenizer;
 * EO_ERR_UNSUPPORTED: one whose tokens are turned into text in a way that this does not know. Of this and of any other that cannot
 * be understood `hash` alone is set: token files of another tokenizer are refused all the same. */
EO_NODISCARD eo_status tool_tokenizer_load(struct tool_tokenizer *tokenizer, const char *option, const char *path,
                                           struct tool_problem *problem);

/* The bytes of a token; none of a number that it does not have. */
const char *tool_tokenizer_text(const struct tool_tokenizer *tokenizer, uint32_t token, uint32_t *bytes);
void tool_tokenizer_fini(struct tool_tokenizer *tokenizer);

#endif
