/* SPDX-License-Identifier: MIT
 *
 * A checkpoint's file of one rank, as it lies on the disk (docs/checkpoints.md): all numbers little end first.
 *
 *     | head | section | pad | section | pad | ...
 *     0      head_bytes, a multiple of CHECKPOINT_ALIGN, as every section's place is
 *
 *     head:  checkpoint_head, layers, parameters, sections, checksums of chunks, zeros
 *
 * A section is an array of a layer (master weights in fp32, or the optimizer's state in its own form), or the trainer's
 * bytes. It is cut into chunks of CHECKPOINT_CHUNK bytes; each has a checksum, which covers the zeros that pad the last one
 * too. The head's own covers the whole head with that field zero. So every byte of a file is under a checksum.
 */
#ifndef EO_RUNTIME_CHECKPOINT_FORMAT_H
#define EO_RUNTIME_CHECKPOINT_FORMAT_H

#include <evenodd/checkpoint.h>

#include "base/arithmetic.h"
#include "runtime/plan/internal.h"

enum {
    CHECKPOINT_VERSION = 1,
    CHECKPOINT_ALIGN = 4096,      /* of places in the file and in memory: what direct writes want */
    CHECKPOINT_CHUNK = 1 << 20,   /* bytes under one checksum */
    CHECKPOINT_HEAD_MAX = 1 << 28,
    CHECKPOINT_PATH_MAX = 4096,
    CHECKPOINT_BLOB_DEFAULT = 4096,
};
#define CHECKPOINT_MAGIC "EVENODD\n"
#define CHECKPOINT_TRAINER UINT32_MAX /* the layer of the section with the trainer's bytes */

struct checkpoint_head {
    char magic[8];
    uint32_t version, head_bytes;
    uint64_t head_hash;
    uint64_t file_bytes;
    uint64_t step;
    uint64_t element_count;
    uint64_t model_hash; /* of the layers and parameters that follow: equal in all files */
    uint32_t rank, rank_count;
    uint32_t dtype, optimizer_states;
    uint32_t layer_count, parameter_count, section_count, chunk_count;
    char strategy[EO_CHECKPOINT_STRATEGY_MAX];
    char model_name[EO_NAME_MAX];
    uint32_t has_ema; /* the last of the arrays of state is the average of the weights; else 0 */
    uint32_t optimizer; /* eo_optimizer; 0 where it was the trainer's own */
    uint64_t skipped; /* steps, of `step` */
    uint32_t group_count; /* of numbers in `frozen`; 0 in files of before */
    uint32_t own_update;  /* 1: the state is of the trainer's own `update`; 0 in files of before, whosever it was */
    uint32_t reserved[8];
};

struct checkpoint_layer {
    char name[EO_NAME_MAX];
    uint32_t frozen, parameter_count; /* the parameters of a layer follow those of the layer before */
    uint64_t element_count;           /* to the end of the last parameter */
};

struct checkpoint_parameter {
    char name[EO_NAME_MAX];
    uint32_t layer, dim_count;
    uint64_t dims[EO_DIMS_MAX];
    uint64_t offset;
    uint32_t no_weight_decay, group;
};

/* Elements [offset, offset + count) of a flat layer; of the trainer's bytes, `count` bytes. */
struct checkpoint_section {
    uint32_t layer, array; /* array 0: weights */
    uint64_t offset, count;
    uint64_t file_offset, bytes; /* without the padding */
    uint32_t chunk_begin, chunk_count;
};

_Static_assert(sizeof(struct checkpoint_head) == 240 && sizeof(struct checkpoint_layer) == 80 &&
                   sizeof(struct checkpoint_parameter) == 120 && sizeof(struct checkpoint_section) == 48,
               "the format is what lies on disks");
_Static_assert(sizeof(struct checkpoint_head) % 8 == 0, "the tables that follow are aligned");

/* A head in memory, and where its tables are. */
struct checkpoint_tables {
    struct checkpoint_head *head; /* head_bytes, aligned to CHECKPOINT_ALIGN */
    struct checkpoint_layer *layers;
    struct checkpoint_parameter *parameters;
    struct checkpoint_section *sections;
    uint64_t *chunk_hashes;
    uint64_t *frozen; /* by group of the trainer: steps that left it as it was, those skipped apart. The end of the head */
};

/* Which elements of a layer a rank saves. */
struct checkpoint_range {
    uint64_t offset, count;
};

/* runtime/checkpoint/tables.c */

/* The range of a layer whose optimizer state a rank has. */
struct checkpoint_range eo_checkpoint_state_range(const struct eo_plan *plan, uint32_t layer, uint32_t rank);
/* What it saves of it: count 0 where another rank saves the same. */
struct checkpoint_range eo_checkpoint_own_range(const struct eo_plan *plan, uint32_t layer, uint32_t rank);

/* Of `count` elements of an array, in words of 4 bytes; whole blocks of the optimizer's state (runtime/plan/optimizers.h). */
uint64_t eo_checkpoint_words(const struct checkpoint_head *head, uint32_t array, uint64_t count);
uint32_t eo_checkpoint_block(const struct checkpoint_head *head, uint32_t array); /* elements */

/* The sizes of a head: from its counts. False: absurd. */
bool eo_checkpoint_head_bytes(const struct checkpoint_head *head, uint64_t *out);
/* Sets the pointers after head, whose counts are good. */
void eo_checkpoint_set_tables(struct checkpoint_tables *tables, struct checkpoint_head *head);

/*
 * The head of a rank's file with everything in it but the step, the checksums and the trainer's count of bytes, for
 * which room for blob_bytes_max is left at the end. `model` has head, layers and parameters of the model;
 * range(user, layer) says what the file holds. EO_ERR_NO_MEMORY.
 */
EO_NODISCARD eo_status eo_checkpoint_make_tables(struct checkpoint_tables *out, const struct checkpoint_tables *model,
                                                 uint32_t rank, uint32_t rank_count, uint32_t blob_bytes_max,
                                                 struct checkpoint_range (*range)(const void *user, uint32_t layer),
                                                 const void *user);
/* Layers and parameters of a plan, and what a head says of them. */
EO_NODISCARD eo_status eo_checkpoint_describe_plan(struct checkpoint_tables *out, const struct eo_plan *plan, bool own_update);
void eo_checkpoint_free_tables(struct checkpoint_tables *tables);

/* The trainer's bytes of a file: its last section. */
struct checkpoint_section *eo_checkpoint_blob_section(const struct checkpoint_tables *tables);
void eo_checkpoint_set_blob_bytes(struct checkpoint_tables *tables, uint32_t bytes);

/* "weights of block.3", "optimizer state 1 of head", "the trainer's bytes". */
void eo_checkpoint_section_text(const struct checkpoint_tables *tables, const struct checkpoint_section *section,
                                char *text, size_t bytes);

#endif
