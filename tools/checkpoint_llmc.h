/* SPDX-License-Identifier: MIT
 *
 * GPT-2 checkpoints of llm.c, version 3 (fp32): a header of 256 int32, then each kind of parameter over all layers,
 * matrices as [out][in]. The vocabulary is padded at its end; the padding is left out.
 */
#ifndef EO_TOOLS_CHECKPOINT_LLMC_H
#define EO_TOOLS_CHECKPOINT_LLMC_H

#include <evenodd/layers.h>

#include "tools/problem.h"

struct eo_llmc {
    eo_transformer_config config; /* of the model in the file */
    uint32_t padded_vocabulary;
    const float *values;
    void *map;
    size_t map_bytes;
};

/* Maps and checks the file: header, size, every value finite. EO_ERR_IO, EO_ERR_INVALID; then it changes nothing. */
EO_NODISCARD eo_status eo_llmc_open(struct eo_llmc *checkpoint, const char *path,
                                          struct eo_problem *problem);
void eo_llmc_fini(struct eo_llmc *checkpoint);

/* Whether the model is the one in the file; the problem says in what they differ. */
EO_NODISCARD eo_status eo_llmc_check(const struct eo_llmc *checkpoint, const char *path,
                                           const char *model_name, const eo_transformer_config *config,
                                           struct eo_problem *problem);

/* Fills this rank's shards. All ranks must call it. */
EO_NODISCARD eo_status eo_llmc_load(const struct eo_llmc *checkpoint, const eo_model *model,
                                          eo_runtime *runtime);

/* Where a parameter of this name lies among the values; NULL: the file has none. */
const float *eo_llmc_values(const struct eo_llmc *checkpoint, const char *name);

#endif
