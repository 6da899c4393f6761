/* SPDX-License-Identifier: MIT
 *
 * A job whose ranks are processes: one of them is this one. What the launcher says, the meeting of the ranks, and the
 * end: when a rank is lost, all others say so and end with TOOL_EXIT_RANK_LOST within TOOL_JOB_END_SECONDS, whatever else
 * the process waits for.
 *
 *     read     before the options are parsed: they learn how many ranks there are
 *     join     waits for all; only rank 0 writes to standard output from then on
 *     choose   the collectives, where nobody has named them
 *     agree    all were started alike and have the same plan, or the first difference is named
 *     create   the world, for tool_job_run
 *     leave    the end
 */
#ifndef EO_TOOLS_RUN_RANKS_WORLD_H
#define EO_TOOLS_RUN_RANKS_WORLD_H

#include <argp.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "tools/run/checkpoint/checkpoint.h"
#include "tools/shared/world_environment.h"

enum { TOOL_JOB_END_SECONDS = 1 };

struct tool_job_world {
    struct tool_world_environment environment;
    const char *collectives;    /* NULL until they are chosen */
    double join_s, silence_s;   /* 0: the library's */
    bool insecure;              /* several hosts without a token */

    eo_rendezvous *rendezvous;  /* NULL: ranks are threads of this process */
    struct tool_log_catch log_catch; /* of the rendezvous, for its life: what ends the job is told by on_failed */
    pthread_mutex_t mutex;
    eo_world *world;            /* under the mutex: while it is there, a failure aborts it */
    eo_flight_recorder *recorder; /* under the mutex: what this rank does */
    const char *flight_folder;  /* NULL: no files */
    uint64_t left_ns;           /* the exchange of figures (tools/run/ranks/gather.h) */
    sem_t has_failed;           /* wakes the thread that ends the process */
    _Atomic int failed_exit;    /* what the first failure makes of the exit status; 0: none */
    atomic_bool has_joined;
    pid_t parent;               /* whose end is the job's; 0: nobody's */
    bool gave_up;               /* this rank did, and has said why */
    bool is_over;               /* the work of all ranks is done: a status of this one alone ends nobody else */
};

/* Options beside struct tool_options that decide what the ranks do together. */
struct tool_job_choices {
    const struct tool_checkpoint_options *checkpoint;
    const char *export_path; /* NULL: nothing is exported */
    uint32_t sample_count;
    bool merged, no_hash; /* --export-merged, --hash off */
};

/* --collectives, --join-timeout, --rank-timeout, --insecure; the input is a struct tool_job_world. */
extern const struct argp tool_job_world_argp;

EO_NODISCARD eo_status tool_job_world_read(struct tool_job_world *world, struct tool_options *options,
                                           struct tool_problem *problem);
EO_NODISCARD eo_status tool_job_world_join(struct tool_job_world *world, struct tool_problem *problem);
/* By machine; prints what they are. Collectives that cannot be are refused. */
EO_NODISCARD eo_status tool_job_world_choose(struct tool_job_world *world, const char *device, struct tool_problem *problem);
/* tools/run/ranks/agree.c: EO_ERR_INVALID where a rank was started with other options, data, model or --init than rank 0. */
EO_NODISCARD eo_status tool_job_world_agree(struct tool_job_world *world, const struct tool_job *job,
                                            const struct tool_job_choices *choices, struct tool_problem *problem);
EO_NODISCARD eo_status tool_job_world_create(struct tool_job_world *world, struct tool_job *job, const eo_log *log);
void tool_job_world_destroy(struct tool_job_world *world, struct tool_job *job);
/* In words: what stands at the first difference (`at`) of two pieces of plans as JSON. */
void tool_job_world_difference(const char *a, const char *b, size_t bytes, size_t at, uint32_t rank, char *out,
                               size_t out_bytes);
/* Before the ranks have theirs: the folder; what an earlier job with more ranks or restarts left in it goes. */
EO_NODISCARD eo_status tool_job_recorder_prepare(struct tool_job *job, struct tool_problem *problem);
/* A recorder for this rank, where the job wants one; and its end. */
EO_NODISCARD eo_status tool_job_recorder_start(struct tool_job_rank *rank);
void tool_job_recorder_stop(struct tool_job_rank *rank);
/* Sum over the processes, and a barrier. Without a rendezvous it does nothing. */
EO_NODISCARD eo_status tool_job_world_sum(struct tool_job_world *world, double *value);
/* Tells the others why this rank ends. */
void tool_job_world_fail(struct tool_job_world *world, eo_status status, const char *text);
/* What ended this rank has been printed. */
bool tool_job_world_was_told(struct tool_job_world *world);
/* Waits for all where nothing failed. Returns the exit status: `status`, or what a failure of any rank makes of it. */
int tool_job_world_leave(struct tool_job_world *world, int status);

#endif
