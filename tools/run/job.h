/* SPDX-License-Identifier: MIT
 *
 * A training run: data, model, plan and ranks. Each rank is a thread with a team, a runtime and the loop.
 *
 *     prepare   checks everything that can be checked; reserves nothing, writes nothing
 *     run       starts the ranks, runs the steps, calls the program's hooks
 *
 * A rank that fails says so to the world, so the others end too; the first cause is kept.
 */
#ifndef EO_TOOLS_RUN_JOB_H
#define EO_TOOLS_RUN_JOB_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include <evenodd/layers.h>

#include "tools/run/data/batches.h"
#include "tools/run/early_stop.h"
#include "tools/interchange/import.h"
#include "tools/interchange/config/model_config.h"
#include "tools/interchange/tokenizer.h"
#include "tools/run/options/options.h"
#include "tools/shared/clock.h"
#include "tools/shared/problem.h"

struct tool_job;
struct tool_job_checkpoints;
struct tool_job_world;
struct tool_job_saved;

/* The errors that were logged on behalf of a rank: the first is the cause, what follows from it comes after. */
struct tool_log_catch {
    pthread_mutex_t mutex;
    char text[1500];
    bool tells; /* what is only for information goes to standard output */
};

/* Memory of GPU 0 beside the plan, measured before the first step; `used` is the driver's own figure, at most. */
struct tool_gpu_memory {
    uint64_t planned_bytes;                               /* of all ranks on it */
    uint64_t start_bytes, communicator_bytes, team_bytes; /* CUDA and others; communicators; products and attention */
    uint64_t used_bytes;                                  /* 0: there is no GPU */
};

/* Where a rank is with steps as graphs. */
struct tool_job_graph {
    bool wanted;      /* until it turns out that there are none */
    bool is_steady;   /* the step before was one, and nothing came between */
    bool is_captured;
};

/* A step that has been issued: on a GPU its report may come later. */
struct tool_job_issued {
    uint64_t begin_ns;         /* on the host */
    uint64_t step_ns, host_ns; /* both of the host */
    bool is_apart;             /* something came between it and the step before */
};
enum { TOOL_JOB_ISSUED_MAX = 4 }; /* that may be without a report: as many as the runtime keeps */

struct tool_job_rank {
    struct tool_job *job;
    uint32_t rank;
    pthread_t thread;
    struct tool_log_catch log_catch;
    eo_team *team;
    eo_flight_recorder *recorder; /* NULL: none */
    eo_runtime *runtime;
    struct tool_batch batch;
    uint64_t counted;           /* targets of the step that count */
    struct tool_job_graph graph;
    double peak_flops_per_s;    /* measured, of this rank while all others measured too */
    eo_runtime_stats first;     /* after the first step */
    eo_runtime_stats last;      /* after the last */
    uint64_t host_ns;           /* of the last step; see struct tool_job_step */
    struct tool_job_issued issued[TOOL_JOB_ISSUED_MAX]; /* by step */
    uint64_t told_step;         /* the newest with a report, from 1 */
    uint64_t told_done_ns;      /* when that one was done */
    uint64_t told_ns;           /* of those told, but for the first, added up */
    bool is_apart;              /* the next step is the first, or comes after a validation, checkpoint or timeline */
    uint64_t step_count;        /* that were run */
    bool stopped;               /* before the end, as all ranks were */
    struct tool_early_stop early_stop;
    eo_saver *saver;            /* NULL: nothing is saved */
    uint64_t saved_step;        /* of the newest checkpoint that was begun */
    uint64_t saving_ns;         /* that its step waited for the one before */
    bool is_saving;             /* a checkpoint is under way, on all ranks */
    uint32_t unsaved_count;     /* checkpoints that could not be written, the same on all ranks */
    uint64_t unsaved_step;      /* of the last of them */
    bool is_ending;             /* the last step is over: only what was saved is waited for */
    uint64_t resident_bytes;    /* of the rank's process, at most, until its training ended */
};

/* What the ranks know together after a step. */
struct tool_job_step {
    uint64_t step;     /* from 1 */
    double loss;       /* mean over the global batch */
    double gradient_norm, learning_rate;
    const double *layer_norms; /* --log-norms: by layer of the model; else none. For the call alone */
    uint32_t layer_count;
    uint64_t step_ns;  /* of the host on a CPU; on a GPU its own: from the end of the step before to the end of this one */
    uint64_t host_ns;  /* of the host's time for it, what was no wait for the GPU; 0 on a CPU */
    double saved_sum;  /* of what the ranks say of a checkpoint under way */
    bool skipped;      /* it was not finite, and changed nothing; */
    uint64_t skipped_count; /* so far, those of earlier runs included */
};

/* Each may be NULL. */
struct tool_job_hooks {
    void *user;
    /* Rank 0, before the first step: all have their weights. */
    eo_status (*begin)(void *user, const struct tool_job_rank *rank, struct tool_problem *problem);
    void (*step)(void *user, const struct tool_job_step *step);   /* rank 0, after each step */
    void (*validation)(void *user, uint64_t step, double loss);         /* rank 0 */
    void (*saved)(void *user, const struct tool_job_saved *saved);      /* rank 0: all ranks' files are written */
    void (*rank_step)(void *user, struct tool_job_rank *rank, uint64_t step); /* every rank, after each step, from 1 */
    eo_status (*end)(void *user, struct tool_job_rank *rank);                 /* every rank: may use the runtime */
};

struct tool_job {
    const struct tool_options *options;
    uint64_t val_every;                /* 0: never */
    struct tool_early_stop early_stop; /* of a run that goes on: what was seen before. Patience and data are set after prepare */
    const volatile sig_atomic_t *stop; /* NULL, or: end after the current step, or where reports are late, up to two later */
    bool reports_late;                 /* the host may be ahead of the GPU: hooks->step comes up to two steps later */
    bool keeps_timelines;              /* of steps that have one: their reports are not late */
    struct tool_job_hooks hooks;
    const struct tool_job_checkpoints *checkpoints; /* NULL: none (tools/run/checkpoint/checkpoint.h) */
    uint64_t first_step;               /* finished before this run: of the checkpoint it goes on from */

    /* prepare */
    eo_transformer_config config;
    struct tool_model_config *model_config; /* NULL: the model is of no config.json */
    eo_transformer *transformer;
    eo_plan *plan;
    eo_plan_summary summary;
    struct tool_data data;
    struct tool_tokenizer tokenizer; /* count 0: tokens are shown as numbers */
    struct tool_import import; /* --init */
    struct tool_batch_shape shape;
    uint64_t needed_bytes, available_bytes; /* of memory, estimated and asked */
    eo_device_facts device;

    /* run; the ranks of this process are all, or one of a world of processes: worlds and ranks are counted from it */
    struct tool_job_world *together; /* NULL: ranks are threads. Set after prepare */
    uint32_t first_rank, here_count;
    uint32_t told_count;       /* ranks whose figures are known, afterwards: those of this process; on rank 0 all (tools/run/ranks/gather.h) */
    double rank_timeout_s;     /* 0: the library's, for the longest wait in one collective. Set after prepare */
    const char *flight_folder; /* NULL: what the ranks did last is not kept in files. Set after prepare */
    uint32_t restart;          /* that the launcher counts. Set after prepare */
    eo_world *worlds[TOOL_RUN_RANKS_MAX];
    struct tool_job_rank *ranks;
    pthread_barrier_t barrier;  /* for measuring all at once */
    atomic_bool broken;         /* a rank could not start */
    atomic_bool bad_input;      /* found by a rank before the first step: files that hold what they may not */
    atomic_bool measured;       /* the time for measuring is over */
    double peak_flops_per_s;    /* of all ranks together; 0: not measured */
    double bf16_gain;           /* speed of rank 0's largest product in bf16 against fp32; 0: not measured */
    struct tool_gpu_memory gpu;
    bool tells;                 /* set before run: rank 0's device, communicators and memory are printed */
    pthread_mutex_t team_mutex; /* one rank at a time, so that what it takes is seen */
    pthread_mutex_t failure_mutex;
    pthread_cond_t sum_changed; /* of what follows, and of `failure` (tool_job_sum) */
    uint32_t sum_count;         /* ranks that have come to the sum that is under way */
    uint64_t sum_turn;
    double sum, sum_result;     /* of this one so far, and of the one before */
    eo_status failure;          /* of the first cause; EO_OK: none */
    struct tool_problem failure_text;
};

/* The model alone, by --model or --init. */
EO_NODISCARD eo_status tool_job_config(const struct tool_options *options, eo_transformer_config *out,
                                       struct tool_problem *problem);
/* `options`, and whatever val_every and hooks are set to before run, must outlive the job. With options->plan_only
 * it stops after the plan. */
EO_NODISCARD eo_status tool_job_prepare(struct tool_job *job, const struct tool_options *options, uint64_t val_every,
                                        struct tool_problem *problem);
EO_NODISCARD eo_status tool_job_run(struct tool_job *job, struct tool_problem *problem);
void tool_job_fini(struct tool_job *job);

/* Losses are sums over the targets that count, and a step's weight is their number: not every target counts. */
bool tool_job_sums_losses(const struct tool_job *job);

/* Sum over all ranks, beside the runtime: where they are threads they wait for as long as it takes, where they are processes
 * for --join-timeout. Collective. EO_ERR_COMM, EO_ERR_TIMEOUT: a rank has failed. */
EO_NODISCARD eo_status tool_job_sum(struct tool_job_rank *rank, double *value);

/* On standard error: what is doubtful of the data, what a config.json left to its family's defaults, and what of it is not
 * computed. */
void tool_job_tell_model(const struct tool_job *job);

/* The settings of its plan as options, for memplan --verify. */
void tool_job_plan_words(const struct tool_job *job, char text[TOOL_PLAN_WORDS_MAX]);

/* What the planner and layers are made of, for other sizes too: neither is kept when it fails. */
EO_NODISCARD eo_status tool_job_plan(const struct tool_options *options, const eo_transformer_config *config, const eo_log *log,
                                     eo_transformer **transformer, eo_plan **plan);

/* Bytes that a run with this plan takes on this host, all its ranks and what is not in the plan; with --device cuda, on one
 * of so many GPUs. */
uint64_t tool_job_estimate(const struct tool_options *options, const eo_plan_summary *summary, uint32_t device_count);

/* Of these on a CPU those that are in no plan. */
uint64_t tool_job_beside_plans(const struct tool_options *options);

/* A log that keeps errors in `log_catch`, or, if that is NULL, in the one of the calling rank's thread; warnings go to
 * standard error. */
eo_log tool_job_log(struct tool_log_catch *log_catch);
/* Copies what was kept, and forgets it. */
void tool_log_catch_take(struct tool_log_catch *log_catch, char *text, size_t bytes);
void tool_log_catch_init(struct tool_log_catch *log_catch);
void tool_log_catch_enter(struct tool_log_catch *log_catch); /* becomes the calling thread's */

/* tools/run/machine/peak.c: fills rank->peak_flops_per_s. Every rank calls it at the same time. */
void tool_job_measure_peak(struct tool_job_rank *rank);
/* An fp32 run on a processor with instructions for bf16. */
bool tool_job_would_gain_by_bf16(const struct tool_job *job);

#endif
