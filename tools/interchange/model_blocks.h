/* SPDX-License-Identifier: MIT
 *
 * The tensors of a block, as published files name and shape them: the one list from which names, counts, plans and the cuts of
 * other systems come.
 */
#ifndef EO_TOOLS_INTERCHANGE_MODEL_BLOCKS_H
#define EO_TOOLS_INTERCHANGE_MODEL_BLOCKS_H

#include "tools/interchange/config/model_config.h"

enum tool_tensor_kind {
    TOOL_TENSOR_WHOLE,  /* on every rank of tensor parallelism: norms, routers, low ranks, biases of what is added up */
    TOOL_TENSOR_CUT,    /* by tensor parallelism */
    TOOL_TENSOR_KV,     /* the same, but heads of k and v are copied where they are fewer than ranks */
    TOOL_TENSOR_EXPERT, /* of experts: a token meets few of them */
    TOOL_TENSOR_BUFFER, /* in files, but no parameter */
};

struct tool_block_tensor {
    const char *name; /* behind "model.layers.7."; with experts apart what follows "7.mlp.experts.3." is `each` */
    const char *each; /* NULL: one tensor */
    enum tool_tensor_kind kind;
    bool in_mlp;      /* half of the block */
    bool multiplies;  /* a token */
    bool is_fine;     /* small differences decide: no narrow gathers */
    uint32_t count;   /* alike: 1, or experts */
    uint64_t dims[3]; /* 0 behind the last */
};

enum { TOOL_BLOCK_TENSORS_MAX = 32, TOOL_FUSED_NAME_BYTES = EO_NAME_MAX + 16 };

/* Their number. */
uint32_t tool_block_tensors(const struct tool_model_config *config, uint32_t layer,
                            struct tool_block_tensor tensors[TOOL_BLOCK_TENSORS_MAX]);

/* Phi-3's files have q, k and v in one tensor, and gate and up. Of a parameter of the layers: the name there, and the rows before
 * its own. False: it lies alone, under its own name. */
bool tool_fused_tensor(const struct tool_model_config *config, const char *parameter, char name[TOOL_FUSED_NAME_BYTES],
                       uint64_t *first_row);

uint64_t tool_block_tensor_elements(const struct tool_block_tensor *tensor); /* of all that are alike */

#endif
