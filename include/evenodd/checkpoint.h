/* SPDX-License-Identifier: MIT
 *
 * Checkpoints: a folder a step, in it a file a rank and a manifest. docs/checkpoints.md has the format.
 *
 *     FOLDER/step-000000000120/manifest rank-00000 rank-00001 ...
 *
 * What is saved: master weights in fp32, optimizer state, the number of the step, the model's description, and bytes of
 * the trainer's own. A folder gets its name when everything in it is on the disk, so one that has the name is whole;
 * until then it ends in ".new". Every byte is under a checksum.
 *
 * A checkpoint can be loaded by any number of ranks, with any strategy, slot count and element type; every rank reads
 * what is its own, in pieces of a megabyte.
 *
 *     eo_saver        writes, beside training        eo_checkpoint   an opened one
 */
#ifndef EVENODD_CHECKPOINT_H
#define EVENODD_CHECKPOINT_H

#include <evenodd/common.h>
#include <evenodd/log.h>
#include <evenodd/model.h>
#include <evenodd/plan.h>
#include <evenodd/runtime.h>
#include <evenodd/status.h>

#define EO_CHECKPOINT_FILE_MAX 24     /* bytes of a file's name in a checkpoint, with its end */
#define EO_CHECKPOINT_STRATEGY_MAX 32 /* bytes of a strategy's name */

typedef struct eo_saver eo_saver;
typedef struct eo_checkpoint eo_checkpoint;

typedef struct eo_saver_params {
    eo_runtime *runtime;      /* required; must outlive the saver */
    const char *folder;       /* required: where checkpoints go; made by rank 0 if it is not there, but not
                                 the folders above it. One for all ranks */
    uint32_t keep;            /* [0: all] when a new one is whole, it and the keep - 1 highest steps below it stay. If you restarted
                                 from an older checkpoint, later ones of the old run stay, and eo_checkpoint_find picks
                                 them. Use a new folder */
    uint32_t blob_bytes_max;  /* [4096] of the trainer's own */
    const eo_log *log;        /* [silence] copied; called from the saver's thread too */
    bool in_place;            /* with GPUs: no copy of what is offloaded [only where host memory has no room for one] */
} eo_saver_params;
#define eo_saver_params(...) EO_PARAMS(eo_saver_params, __VA_ARGS__)

typedef struct eo_saver_report {
    uint64_t step;        /* of the checkpoint that the others are of; 0: there was none */
    bool is_written;      /* now: it is whole, and its folder has its name on the disk */
    uint64_t file_bytes;  /* of this rank's file */
    uint64_t copy_ns;     /* the time lost by steps: in eo_saver_begin, and in waits for the saver's thread */
    uint64_t write_ns;    /* from the return of eo_saver_begin until the file was on the disk */
} eo_saver_report;

typedef struct eo_checkpoint_info {
    const char *path;          /* the folder; lives as long as the checkpoint */
    const char *model_name;    /* likewise */
    const char *strategy;      /* how it was sharded when it was saved; likewise */
    uint64_t step;
    uint32_t rank_count;       /* files */
    eo_dtype dtype;            /* that was computed with; what is saved is fp32 */
    uint32_t optimizer_states; /* arrays a parameter */
    uint32_t layer_count, parameter_count;
    uint64_t element_count;    /* parameters in the usual sense */
    uint64_t bytes;            /* of all files */
    bool own_update;           /* the state is of the trainer's own optimizer (eo_runtime_params.update); versions before 10 of
                                  EO_API did not write it down */
} eo_checkpoint_info;

/* Elements [offset, offset + count) of a flat layer, in one rank's file. */
typedef struct eo_checkpoint_layer {
    const char *name;       /* lives as long as the checkpoint */
    bool frozen;            /* then there is no optimizer state */
    uint64_t element_count; /* of the flat layer: its parameters, and what lies between them */
} eo_checkpoint_layer;

typedef struct eo_checkpoint_parameter {
    uint64_t offset;        /* element of the flat layer at which it begins */
    eo_parameter_info info; /* which may grow: nothing may ever stand behind it */
} eo_checkpoint_parameter;

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Host memory that a rank of this plan needs for saving (pinned on a GPU), beside the plan: reserved by
 * eo_saver_create, and given back by eo_saver_destroy. Less is taken where a checkpoint is written in place, see
 * eo_saver_begin.
 */
EO_EXPORT uint64_t eo_saver_bytes(const eo_plan *plan, uint32_t rank, uint32_t blob_bytes_max);

/*
 * Reserves the memory, starts the thread that writes. A relative folder is one of the current directory now, wherever the
 * process goes later. Rank 0 makes the folder and locks it (FOLDER/.lock) until its saver is destroyed or its process ends (of
 * a killed one: and those that it has forked, unless they run another program); that it cannot be locked is a warning in the
 * runtime's log. Not collective. EO_OK, EO_ERR_INVALID: another run writes there, the folder cannot be made or written to,
 * FOLDER/.lock is no file, or a parameter is wrong, EO_ERR_NO_MEMORY.
 */
#define eo_saver_create EO_OF_API(eo_saver_create)
EO_EXPORT EO_NODISCARD eo_status eo_saver_create(eo_saver **out, const eo_saver_params *params);
/* Whether it writes in place what is offloaded. *copy_bytes (NULL is taken) gets what it reserved in host memory. */
EO_EXPORT bool eo_saver_is_in_place(const eo_saver *saver, uint64_t *copy_bytes);
/* Waits for its thread; a checkpoint that is not whole by then never will be. Writes NULL. Before the runtime's. */
EO_EXPORT void eo_saver_destroy(eo_saver **saver);

/*
 * Saves the state after the last finished step: copies it to the reserved memory, and leaves the writing to the saver's
 * thread. A run with state in a file on disk has no copy: the thread reads from shards and file; updates, fills and loads
 * wait until it has read the values they change (one saver of a runtime; others copy). On a GPU, in place means: what is
 * offloaded is read from where it lies in host memory, the rest is copied; a recorded step waits until this rank's file is
 * written. One rank's disk may keep the others waiting: until the save is over collectives have more time than their timeout,
 * by a minute and what the largest file of a rank takes at 20 MB/s.
 * The schedule goes on as it was; with late updates those that are left are made first, and the next step gathers all
 * weights anew.
 * Between steps; every rank, after the same step. Allocates nothing; waits for the copy (on a GPU it is only issued, unless
 * in place).
 * EO_OK, EO_IN_PROGRESS: the save before is not over, nothing was begun (on all ranks alike; a warning where some steps have
 * ended since and eo_saver_value or eo_saver_poll was forgotten), EO_ERR_INVALID.
 */
EO_EXPORT EO_NODISCARD eo_status eo_saver_begin(eo_saver *saver, const void *blob, uint32_t blob_bytes);

/*
 * How a save ends: all ranks must know when all have written, and then when rank 0 has named the folder. What
 * eo_saver_value() gives is added up over the ranks (as one of eo_step_params.values, or by eo_sum), and the sum is given
 * to eo_saver_poll() on all of them, after every step. Sums may be given some steps late, as eo_runtime_get_report gives
 * them, but in order, and on all ranks equally late. Neither waits nor allocates.
 *
 * EO_OK           no save is under way; *report says whether one just ended
 * EO_IN_PROGRESS
 * EO_ERR_IO       a rank could not write its file, or had not begun this save (told in worlds of up to 8191 ranks), or rank 0
 *                 could not write the manifest, or the folder could not get its name: this
 *                 save is given up, what was saved before is as it was, and training may go on. *report has its step.
 *                 eo_saver_error() says why on the rank where it was. Told once
 */
EO_EXPORT double eo_saver_value(eo_saver *saver);
EO_EXPORT EO_NODISCARD eo_status eo_saver_poll(eo_saver *saver, double sum, eo_saver_report *report);

/* Waits until the save that is under way is whole, the folder named and older ones removed. Collective, between steps;
 * leaves the schedule, as eo_sum does. All of them have begun it. On
 * CPUs, without late updates, also after a step that was EO_ERR_NOT_FINITE, when all else is refused. Statuses
 * of eo_saver_poll, and of eo_sum. */
EO_EXPORT EO_NODISCARD eo_status eo_saver_wait(eo_saver *saver, eo_saver_report *report);

/* Why the last save failed; "": it did not, or not on this rank. Until the next eo_saver_begin. */
EO_EXPORT const char *eo_saver_error(const eo_saver *saver);

/*
 * The folder of the newest checkpoint: `folder` itself where it is one, else the one in it of the highest step.
 * *step (NULL is taken) gets its step. EO_OK, EO_ERR_IO (logged), EO_IN_PROGRESS: there is no checkpoint in it, nor
 * an error (the folder may not be there).
 */
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_find(char *path, size_t path_bytes, uint64_t *step, const char *folder,
                                                    const eo_log *log);

/*
 * The newest one in a folder of checkpoints of a step below *step, which becomes its step: the one to go back to when a
 * later one is damaged. UINT64_MAX finds the newest of all. A folder that has a checkpoint's name and no manifest is found
 * too: opening it says what is missing. Statuses of eo_checkpoint_find.
 */
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_find_before(char *path, size_t path_bytes, uint64_t *step,
                                                           const char *folder, const eo_log *log);

/*
 * Reads the manifest and all files' heads and checks them against each other; no weights yet. Allocates. What is wrong
 * is logged with the file's name. One thread at a time. EO_OK, EO_ERR_IO (damaged, or files are missing),
 * EO_ERR_UNSUPPORTED (of a version that this library does not know), EO_ERR_NO_MEMORY. Here and in what reads a checkpoint
 * below EO_ERR_DEVICE: a file cannot be opened or read for a reason outside of it, such as its permissions or too many open
 * files; whether the checkpoint is damaged is not known.
 */
#define eo_checkpoint_open EO_OF_API(eo_checkpoint_open)
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_open(eo_checkpoint **out, const char *path, const eo_log *log);
EO_EXPORT void eo_checkpoint_close(eo_checkpoint **checkpoint);

/* Whose state it holds; of a trainer's own optimizer (eo_runtime_params.update) EO_OPTIMIZER_ADAMW. */
EO_EXPORT eo_optimizer eo_checkpoint_optimizer(const eo_checkpoint *checkpoint);
EO_EXPORT void eo_checkpoint_get_info(const eo_checkpoint *checkpoint, eo_checkpoint_info *out);
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_get_layer(const eo_checkpoint *checkpoint, uint32_t layer,
                                                         eo_checkpoint_layer *out);
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_get_parameter_sized(const eo_checkpoint *checkpoint, uint32_t parameter,
                                                                   eo_checkpoint_parameter *out, size_t out_bytes);
EO_CALLER EO_NODISCARD eo_status eo_checkpoint_get_parameter(const eo_checkpoint *checkpoint, uint32_t parameter,
                                                             eo_checkpoint_parameter *out)
{
    return eo_checkpoint_get_parameter_sized(checkpoint, parameter, out, sizeof(*out));
}
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_find_parameter(const eo_checkpoint *checkpoint, const char *name,
                                                              uint32_t *out);

/* Whether it is of the plan's model: EO_ERR_INVALID, with the first field in which they differ logged. */
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_check(const eo_checkpoint *checkpoint, const eo_plan *plan);

/* What the trainer of that rank gave to eo_saver_begin: *bytes of it (`data` has room for at most *bytes before). */
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_blob(eo_checkpoint *checkpoint, uint32_t rank, void *data,
                                                    uint32_t *bytes);

/*
 * Fills this rank's shards and optimizer state, and sets the number of the step. Every rank must call it before the
 * next step, between steps: after a step it waits for all ranks. The next step gathers all weights anew: a little slower, same
 * bits, and it cannot be captured. EO_ERR_INVALID: another model, and nothing was changed (the
 * runtime logs what differs, see eo_runtime_error); EO_ERR_IO: a file is damaged, named with its section; then the runtime's
 * weights are worth nothing, and only its destruction is left. The other ranks do not learn of it by themselves: agree on
 * another checkpoint and make new runtimes, or call eo_world_abort.
 */
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_load(eo_checkpoint *checkpoint, eo_runtime *runtime);

/* Elements of a flat layer: array 0 is the weights, 1 ... the optimizer's. Beyond its end there are zeros. */
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_read(eo_checkpoint *checkpoint, uint32_t layer, uint32_t array,
                                                    uint64_t offset, uint64_t count, float *values);

/* Reads everything: each damaged section is logged, with its file. EO_OK, EO_ERR_IO. */
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_verify(eo_checkpoint *checkpoint);

/* One of `part_count` pieces of that, of the same size: ranks that each read one have read everything. Statuses as there,
 * and EO_ERR_INVALID. */
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_verify_part(eo_checkpoint *checkpoint, uint32_t part,
                                                           uint32_t part_count);

/*
 * Writes it once more into `folder`, for another number of ranks, sharded evenly, layer by layer. The trainer's bytes
 * of rank 0 go to all. The folder is locked meanwhile. EO_OK, EO_ERR_IO, EO_ERR_INVALID (another run writes there, or
 * the folder cannot be made),
 * EO_ERR_NO_MEMORY.
 */
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_reshard(eo_checkpoint *checkpoint, const char *folder,
                                                       uint32_t rank_count, const eo_log *log);

/*
 * Writes a checkpoint of step 0 into `folder`, of the plan's ranks, with weights that `produce` gives (a range of one of
 * the model's parameters, in any order) and optimizer state of zeros, layer by layer; `blob` goes to all ranks as the
 * trainer's own. A status below 0 of `produce` ends it. Statuses of eo_checkpoint_reshard, and of `produce`.
 */
EO_EXPORT EO_NODISCARD eo_status eo_checkpoint_make(const eo_plan *plan, const char *folder,
                                                    eo_status (*produce)(void *user, uint32_t parameter,
                                                                         uint64_t offset, uint64_t count,
                                                                         float *values),
                                                    void *user, const void *blob, uint32_t blob_bytes,
                                                    const eo_log *log);

#ifdef __cplusplus
}
#endif

#endif
