/* SPDX-License-Identifier: MIT
 *
 * Checkpoints of ours to files that others read, and back: what tools/checkpoint convert does.
 */
#ifndef EO_TOOLS_INTERCHANGE_CONVERT_H
#define EO_TOOLS_INTERCHANGE_CONVERT_H

#include <evenodd/checkpoint.h>

#include "tools/interchange/export/export.h"
#include "tools/interchange/import.h"

/* What a checkpoint's weights are of; the checkpoint itself knows names and sizes, and not how many heads there are. */
struct tool_convert_model {
    eo_transformer_config config;
    const json_t *published; /* NULL, or what tool_export_published made of it */
    eo_lora lora;            /* then its adapters are what is written */
    bool averaged;           /* the run kept an average of the weights: it goes in their place, as train exports it */
};

/*
 * Weights of a checkpoint to a Hugging Face folder or a file of llm.c (settings->path says which). One parameter is held at a time.
 * Under the path there is the whole model or nothing.
 *
 * EO_ERR_INVALID, EO_ERR_UNSUPPORTED: the checkpoint is of another model, the format has no place for it, the path is
 * taken; EO_ERR_IO; EO_ERR_NO_MEMORY.
 */
EO_NODISCARD eo_status tool_convert_to_files(eo_checkpoint *checkpoint, const struct tool_convert_model *what,
                                             const struct tool_export_settings *settings, struct tool_problem *problem);

/*
 * Weights of a Hugging Face folder or a file of llm.c to a checkpoint of step 0 in `folder`, of so many ranks, with
 * optimizer state of zeros; `blob` goes to each rank as the trainer's own. `import` is open and not yet bound. Pieces of a
 * few megabytes are held at a time.
 */
EO_NODISCARD eo_status tool_convert_from_files(struct tool_import *import, const char *folder, uint32_t rank_count,
                                               const void *blob, uint32_t blob_bytes, struct tool_problem *problem);

#endif
