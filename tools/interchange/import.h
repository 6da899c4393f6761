/* SPDX-License-Identifier: MIT
 *
 * Weights from files that others wrote: a Hugging Face folder (config.json and model.safetensors, in one file or with an
 * index), or a GPT-2 checkpoint of llm.c. Only what is asked for is read, so each rank reads its own shards.
 *
 *     open    what model it is; headers checked
 *     bind    held against the model that is to have the weights: where each of its parameters lies
 *     read    a range of one parameter
 *
 * GPT-2's matrices lie [in][out] in safetensors, and [out][in] here and with llm.c.
 */
#ifndef EO_TOOLS_INTERCHANGE_IMPORT_H
#define EO_TOOLS_INTERCHANGE_IMPORT_H

#include <pthread.h>

#include <evenodd/layers.h>

#include "tools/interchange/llmc.h"
#include "tools/interchange/config/model_config.h"
#include "tools/shared/problem.h"

/* Where a parameter lies. */
struct tool_import_tensor {
    const char *name; /* the model's */
    uint32_t file;
    enum tool_element element;
    bool transposed;
    uint64_t at;            /* byte of the file */
    uint64_t rows, columns; /* of the parameter: [out][in]; a vector is one row */
    bool is_absent;         /* an adapter that the files do not have: it is not loaded */
};

struct tool_import {
    char path[4096];
    bool is_folder;
    eo_transformer_config config;         /* of the model in the files */
    struct tool_model_config *model_config; /* of a folder */
    struct tool_llmc llmc;                  /* of a file */
    json_t *headers;                      /* of a folder, until it is bound */
    double adapter_dropout;               /* which adapters had that are bound: nothing here computes it */
    uint32_t file_count, tensor_count;
    struct tool_import_file {
        char *path;
        int file;
    } * files;
    struct tool_import_tensor *tensors; /* by the model's parameter */
};

/* EO_OK, EO_ERR_INVALID, EO_ERR_IO, EO_ERR_UNSUPPORTED, EO_ERR_NO_MEMORY; then there is nothing to finish. */
EO_NODISCARD eo_status tool_import_open(struct tool_import *import, const char *path, struct tool_problem *problem);

/* Whether the model is the one in the files; the problem says in what they differ. */
EO_NODISCARD eo_status tool_import_check(const struct tool_import *import, const char *model_name,
                                         const eo_transformer_config *config, struct tool_problem *problem);

EO_NODISCARD eo_status tool_import_bind(struct tool_import *import, const eo_model *model, struct tool_problem *problem);

/* After bind: adapters of PEFT's folder, which must be those of the model and of `lora`, filled in. */
EO_NODISCARD eo_status tool_import_bind_adapters(struct tool_import *import, const char *folder, const eo_model *model,
                                                 const eo_lora *lora, struct tool_problem *problem);

/* Elements [offset, offset + count) of a parameter. EO_ERR_IO, EO_ERR_INVALID: a value is not finite. Several threads
 * may read. */
EO_NODISCARD eo_status tool_import_read(const struct tool_import *import, uint32_t parameter, uint64_t offset, uint64_t count,
                                        float *values, struct tool_problem *problem);

/* A number for what is to be read, so that copies can be compared: names, shapes and types of all parameters, and some bytes of
 * each. EO_ERR_IO. */
EO_NODISCARD eo_status tool_import_fingerprint(const struct tool_import *import, uint64_t *out, struct tool_problem *problem);

/* Fills this rank's shards. All ranks must call it. */
EO_NODISCARD eo_status tool_import_load(const struct tool_import *import, eo_runtime *runtime, struct tool_problem *problem);

void tool_import_fini(struct tool_import *import);

#endif
