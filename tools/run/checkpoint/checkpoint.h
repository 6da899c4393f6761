/* SPDX-License-Identifier: MIT
 *
 * Checkpoints of a training run: --checkpoint, --checkpoint-every, --checkpoint-in-place, --checkpoint-used, --keep, --resume.
 *
 * Beside the weights a checkpoint holds the trainer's settings as JSON (tools/run/options/settings.c): what the next run needs to go on
 * where this one was, and what it is held against. Batches and learning rate are functions of the step and of the seed,
 * so with the same settings a resumed run has the bits of one that was never interrupted.
 */
#ifndef EO_TOOLS_RUN_CHECKPOINT_CHECKPOINT_H
#define EO_TOOLS_RUN_CHECKPOINT_CHECKPOINT_H

#include <argp.h>
#include <jansson.h>

#include "tools/run/job.h"
#include "tools/shared/json_output.h"

enum { TOOL_JOB_PATH_MAX = 4096, TOOL_JOB_SETTINGS_MAX = 8192 };

struct tool_checkpoint_options {
    const char *folder;      /* NULL: nothing is saved */
    uint64_t every;          /* 0: only after the last step */
    uint32_t keep;           /* 0: all */
    bool in_place;           /* without a copy of what is offloaded, on GPUs too */
    bool used;               /* `folder` may hold checkpoints of another run */
    bool resume;
    const char *resume_path; /* NULL: the newest of `folder`, or from the start where there is none */
};

/* For struct argp's children; its input is a struct tool_checkpoint_options of zeros. */
extern const struct argp tool_checkpoint_argp;

/* Of a job; none of it but `saved_step` changes while the ranks run. */
struct tool_job_checkpoints {
    const struct tool_checkpoint_options *options;
    char resume_path[TOOL_JOB_PATH_MAX]; /* "": from the start */
    bool goes_back;                    /* what is newer than it in the folder that is saved to is damaged */
    char settings[TOOL_JOB_SETTINGS_MAX];
    uint32_t settings_bytes;
};

/* What rank 0 tells of a save that ended. */
struct tool_job_saved {
    uint64_t step, file_bytes, lost_ns, write_ns;
};

/* After tool_job_prepare: finds what to resume from and holds it against the job; sets where the job begins. Nothing is
 * written yet. Warnings go to standard error. */
EO_NODISCARD eo_status tool_job_checkpoint_prepare(struct tool_job_checkpoints *checkpoints, struct tool_job *job,
                                                   const struct tool_checkpoint_options *options, struct tool_problem *problem);

/* On every rank, in this order. All do nothing where job->checkpoints is NULL. */
EO_NODISCARD eo_status tool_job_checkpoint_load(struct tool_job_rank *rank);  /* instead of fresh weights */
EO_NODISCARD eo_status tool_job_checkpoint_start(struct tool_job_rank *rank); /* before the first step */
EO_NODISCARD eo_status tool_job_checkpoint_step(struct tool_job_rank *rank, uint64_t step, double sum); /* of eo_saver_value */
EO_NODISCARD eo_status tool_job_checkpoint_end(struct tool_job_rank *rank, uint64_t step);              /* after the last */
void tool_job_checkpoint_stop(struct tool_job_rank *rank); /* before the runtime goes */

/* After the run: EO_ERR_IO where one that was to be saved was not, with what there is instead. */
EO_NODISCARD eo_status tool_job_checkpoint_verdict(const struct tool_job *job, struct tool_problem *problem);

/*
 * tools/run/checkpoint/resume.c: the checkpoint to go on from, and where the job begins then. Ranks that are processes read it together
 * and take the same one. With job->first_step set; resume_path is "" where the run begins from the start. Damage is told
 * on standard error. EO_ERR_IO: there is none that is whole, or the one that was named is not; EO_ERR_INVALID: it is of
 * another model.
 */
EO_NODISCARD eo_status tool_job_resume(struct tool_job_checkpoints *checkpoints, struct tool_job *job,
                                       struct tool_problem *problem);
/* Whether the folder is one, and not one of several. */
bool tool_job_is_checkpoint(const char *path);
/* Whether both are there, and one folder under two names; NULL is none. */
bool tool_job_is_same_folder(const char *a, const char *b);
/* Damaged ones that are newer get another name, so that neither --keep nor the next start counts them. One rank's. */
void tool_job_resume_set_aside(const struct tool_job_checkpoints *checkpoints, uint64_t first_step);

/* tools/run/options/settings.c: what a run's results depend on, as JSON. `job` is a struct tool_job. */
void tool_job_settings(struct eo_json *json, const void *job);
/* The same for a checkpoint: with the special tokens that an export of the run would have. */
void tool_job_settings_kept(struct eo_json *json, const void *job);

/* Of what is held back from training: its length, samples of it, and how it becomes sequences. */
uint64_t tool_job_held_back_hash(const struct tool_job *job);
/* The same of weights that no run has touched yet; `import` is a struct tool_import. */
void tool_job_settings_of_import(struct eo_json *json, const void *import);
/* The differences, if it `tells` a line each on standard error; and where in its data the run goes on. */
void tool_job_settings_compare(struct tool_job *job, const json_t *saved, bool tells);
/* As they were saved; NULL: there are none. To be released by the caller. */
EO_NODISCARD eo_status tool_job_settings_read(eo_checkpoint *checkpoint, json_t **out);
/* The model of a checkpoint's settings; false: they say nothing of one. *published is for struct tool_export_model, to be
 * released by the caller: NULL in checkpoints of before there was such a thing. */
bool tool_job_settings_model(const json_t *settings, eo_transformer_config *config, struct tool_lora *lora,
                             json_t **published);

#endif
