/* SPDX-License-Identifier: MIT
 *
 * A training without kernels for the tests of checkpoints: gradients are numbers made of (step, layer, element), given by
 * rank 0 alone, so that sums over ranks are exact, and any world ends in the same bits.
 *
 *     position   0 input   1 body    2 fixed (frozen)   3 body again   4 head
 */
#ifndef EO_TESTS_CHECKPOINT_SAVED_TRAINING_H
#define EO_TESTS_CHECKPOINT_SAVED_TRAINING_H

#include <evenodd/evenodd.h>

#include "tests/tap/tap.h"

enum { SAVED_RANKS_MAX = 8 };

struct saved_settings {
    uint32_t ranks;
    eo_strategy strategy;
    uint32_t shard_group, gather_slots;
    eo_dtype dtype;
    eo_memory memory;
    uint32_t body_rows; /* [301] of the body's matrix: another model */
    const char *body;   /* ["body"] the layer's name */
    bool thaws;         /* "fixed" is trained */
    uint32_t states;    /* [2] */
    bool ema;
    eo_optimizer optimizer;
    bool fp32;          /* of biases and the fixed matrix */
    uint32_t padding;   /* elements behind the body's matrix and the head's bias */
    bool updates;       /* by an `update` of the trainer's own */
    bool joined;        /* the body's bias to its matrix, whose rows are then a multiple of 16 */
};

struct saved_rank {
    const struct saved_settings *settings;
    uint32_t rank;
    eo_model *model;
    eo_plan *plan;
    eo_world *world;
    eo_runtime *runtime;
    const eo_log *log;
    void *shared; /* the case's own */
    uint32_t gradients; /* told by the runtime's `gradient` */
    bool breaks;        /* one of the next gradients is no number */
};

/* Runs body on every rank of a world of threads. False: a rank could not start, or something did not hold. */
bool saved_run(const struct saved_settings *settings, void (*body)(struct saved_rank *self), void *shared);

/* Fresh weights; steps until `until` are finished; the weights' hash. Failures are noted. */
void saved_initialise(struct saved_rank *self);
void saved_steps(struct saved_rank *self, uint64_t until);
uint64_t saved_hash(struct saved_rank *self);
/* A step with a value, whatever it ends with. */
eo_status saved_step(struct saved_rank *self, double value, double *sum);

/* A step that carries the saver's value. The status of its poll. */
eo_status saved_step_with(struct saved_rank *self, eo_saver *saver, eo_saver_report *report);
/* The same, and the poll gets the sum of an earlier step, as on a GPU whose host runs ahead. */
eo_status saved_step_late(struct saved_rank *self, eo_saver *saver, uint64_t late, eo_saver_report *report);

/* Saves after the last step and waits; the status. */
eo_status saved_save(struct saved_rank *self, const char *folder, uint32_t keep, const void *blob, uint32_t bytes);
/* Loads the newest checkpoint of a folder. */
eo_status saved_load(struct saved_rank *self, const char *folder);

/* All arrays of all layers of the newest checkpoint in a folder, and its step: 0 when it cannot be read. */
uint64_t saved_folder_hash(const char *folder);

/* The texts that were logged since the last call, kept for the calling thread's next look. */
extern const eo_log saved_log;
const char *saved_log_text(void); /* and forgets it at the next call of saved_log_clear */
void saved_log_clear(void);

/* A fresh folder; removed with all in it. */
void saved_folder_make(char *path, size_t bytes);
void saved_folder_remove(const char *path);

/* Checkpoints in a folder whose names end so: "" all, ".new" those without their name. */
uint32_t saved_count_entries(const char *folder, const char *suffix);

/* The files of cases. */
void checkpoint_world_cases(void);
void checkpoint_beside_cases(void);
void checkpoint_damage_cases(void);
void checkpoint_failure_cases(void);
void checkpoint_folder_cases(void);
void checkpoint_unreadable_cases(void);

#endif
