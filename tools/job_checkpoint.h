/* SPDX-License-Identifier: MIT
 *
 * Checkpoints of a training run: --checkpoint, --checkpoint-every, --checkpoint-used, --keep, --resume.
 *
 * Beside the weights a checkpoint holds the trainer's settings as JSON (job_settings.c): what the next run needs to go on
 * where this one was, and what it is held against. Batches and learning rate are functions of the step and of the seed,
 * so with the same settings a resumed run has the bits of one that was never interrupted.
 */
#ifndef EO_TOOLS_JOB_CHECKPOINT_H
#define EO_TOOLS_JOB_CHECKPOINT_H

#include <argp.h>
#include <jansson.h>

#include "tools/job.h"

enum { EO_JOB_PATH_MAX = 4096, EO_JOB_SETTINGS_MAX = 8192 };

struct eo_checkpoint_options {
    const char *folder;      /* NULL: nothing is saved */
    uint64_t every;          /* 0: only after the last step */
    uint32_t keep;           /* 0: all */
    bool used;               /* `folder` may hold checkpoints of another run */
    bool resume;
    const char *resume_path; /* NULL: the newest of `folder`, or from the start where there is none */
};

/* For struct argp's children; its input is a struct eo_checkpoint_options of zeros. */
extern const struct argp eo_checkpoint_argp;

/* Of a job; none of it but `saved_step` changes while the ranks run. */
struct eo_job_checkpoints {
    const struct eo_checkpoint_options *options;
    char resume_path[EO_JOB_PATH_MAX]; /* "": from the start */
    bool goes_back;                    /* what is newer than it in the folder that is saved to is damaged */
    char settings[EO_JOB_SETTINGS_MAX];
    uint32_t settings_bytes;
};

/* What rank 0 tells of a save that ended. */
struct eo_job_saved {
    uint64_t step, file_bytes, lost_ns, write_ns;
};

/* After eo_job_prepare: finds what to resume from and holds it against the job; sets where the job begins. Nothing is
 * written yet. Warnings go to standard error. */
EO_NODISCARD eo_status eo_job_checkpoint_prepare(struct eo_job_checkpoints *checkpoints, struct eo_job *job,
                                                 const struct eo_checkpoint_options *options,
                                                 struct eo_problem *problem);

/* On every rank, in this order. All do nothing where job->checkpoints is NULL. */
EO_NODISCARD eo_status eo_job_checkpoint_load(struct eo_job_rank *rank);  /* instead of fresh weights */
EO_NODISCARD eo_status eo_job_checkpoint_start(struct eo_job_rank *rank); /* before the first step */
double eo_job_checkpoint_value(struct eo_job_rank *rank);                 /* to be summed in each step ... */
EO_NODISCARD eo_status eo_job_checkpoint_step(struct eo_job_rank *rank, uint64_t step, double sum); /* ... and its sum */
EO_NODISCARD eo_status eo_job_checkpoint_end(struct eo_job_rank *rank, uint64_t step); /* after the last */
void eo_job_checkpoint_stop(struct eo_job_rank *rank);                    /* before the runtime goes */

/* After the run: EO_ERR_IO where one that was to be saved was not, with what there is instead. */
EO_NODISCARD eo_status eo_job_checkpoint_verdict(const struct eo_job *job, struct eo_problem *problem);

/*
 * job_resume.c: the checkpoint to go on from, and where the job begins then. Ranks that are processes read it together
 * and take the same one. With job->first_step set; resume_path is "" where the run begins from the start. Damage is told
 * on standard error. EO_ERR_IO: there is none that is whole, or the one that was named is not; EO_ERR_INVALID: it is of
 * another model.
 */
EO_NODISCARD eo_status eo_job_resume(struct eo_job_checkpoints *checkpoints, struct eo_job *job,
                                     struct eo_problem *problem);
/* Whether both are there, and one folder under two names; NULL is none. */
bool eo_job_is_same_folder(const char *a, const char *b);
/* Damaged ones that are newer get another name, so that neither --keep nor the next start counts them. One rank's. */
void eo_job_resume_set_aside(const struct eo_job_checkpoints *checkpoints, uint64_t first_step);

/* job_settings.c: what a run's results depend on, as JSON. NULL: no memory. */
json_t *eo_job_settings(const struct eo_job *job);
/* The same of weights that no run has touched yet; `origin` (NULL is taken) is the config they came with. */
json_t *eo_job_settings_of_model(const eo_transformer_config *config, const struct eo_model_config *origin);
/* The differences, if it `tells` a line each on standard error; and where in its data the run goes on. */
void eo_job_settings_compare(struct eo_job *job, const json_t *saved, bool tells);
/* The model of a checkpoint's settings; false: they say nothing of one. *published is for struct eo_export_model, to be
 * released by the caller: NULL in checkpoints of before there was such a thing. */
bool eo_job_settings_model(const json_t *settings, eo_transformer_config *config, json_t **published);

#endif
