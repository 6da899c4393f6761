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
#ifndef EO_TOOLS_IMPORT_H
#define EO_TOOLS_IMPORT_H

#include <pthread.h>

#include <evenodd/layers.h>

#include "tools/checkpoint_llmc.h"
#include "tools/model_config.h"
#include "tools/problem.h"

/* Where a parameter lies. */
struct eo_import_tensor {
    const char *name; /* the model's */
    uint32_t file;
    enum eo_element element;
    bool transposed;
    uint64_t at;            /* byte of the file */
    uint64_t rows, columns; /* of the parameter: [out][in]; a vector is one row */
};

struct eo_import {
    char path[4096];
    bool is_folder;
    eo_transformer_config config;         /* of the model in the files */
    struct eo_model_config *model_config; /* of a folder */
    struct eo_llmc llmc;                  /* of a file */
    json_t *headers;                      /* of a folder, until it is bound */
    uint32_t file_count, tensor_count;
    struct eo_import_file {
        char *path;
        int file;
    } *files;
    struct eo_import_tensor *tensors;     /* by the model's parameter */
};

/* EO_OK, EO_ERR_INVALID, EO_ERR_IO, EO_ERR_UNSUPPORTED, EO_ERR_NO_MEMORY; then there is nothing to finish. */
EO_NODISCARD eo_status eo_import_open(struct eo_import *import, const char *path, struct eo_problem *problem);

/* Whether the model is the one in the files; the problem says in what they differ. */
EO_NODISCARD eo_status eo_import_check(const struct eo_import *import, const char *model_name,
                                       const eo_transformer_config *config, struct eo_problem *problem);

EO_NODISCARD eo_status eo_import_bind(struct eo_import *import, const eo_model *model, struct eo_problem *problem);

/* Elements [offset, offset + count) of a parameter. EO_ERR_IO, EO_ERR_INVALID: a value is not finite. Several threads
 * may read. */
EO_NODISCARD eo_status eo_import_read(const struct eo_import *import, uint32_t parameter, uint64_t offset, uint64_t count,
                                      float *values, struct eo_problem *problem);

/* A number for what is to be read, so that copies can be compared: names, shapes and types of all parameters, and some bytes of
 * each. EO_ERR_IO. */
EO_NODISCARD eo_status eo_import_fingerprint(const struct eo_import *import, uint64_t *out, struct eo_problem *problem);

/* Fills this rank's shards. All ranks must call it. */
EO_NODISCARD eo_status eo_import_load(const struct eo_import *import, eo_runtime *runtime, struct eo_problem *problem);

void eo_import_fini(struct eo_import *import);

#endif
