/* SPDX-License-Identifier: MIT
 *
 * A run of train: its settings, and what it comes to.
 */
#ifndef EO_TOOLS_TRAIN_TRAIN_H
#define EO_TOOLS_TRAIN_TRAIN_H

#include <limits.h>

#include "tools/interchange/export/export.h"
#include "tools/run/budget.h"
#include "tools/run/checkpoint/checkpoint.h"
#include "tools/run/machine/gpu_watch.h"
#include "tools/run/reports/course.h"
#include "tools/run/reports/logs.h"
#include "tools/run/reports/progress.h"
#include "tools/run/reports/trace_merge.h"
#include "tools/run/ranks/world_threads.h"

struct train_settings {
    struct tool_options common;
    struct tool_export_settings export;
    struct tool_checkpoint_options checkpoint;
    uint64_t val_every, patience;
    uint32_t sample_count;
    bool no_hash;
    struct tool_run_log_paths logs;
    const char *trace_path;
    struct tool_job_world *world; /* of struct train */
};

struct train {
    struct train_settings settings;
    struct tool_job job;
    struct tool_job_world world;
    struct tool_job_checkpoints checkpoints;
    struct tool_progress progress;
    struct tool_run_logs logs;
    struct tool_course course; /* of the steps that were run */
    uint64_t skipped_count;
    struct tool_trace_text *traces; /* by rank, and one of the GPUs */
    struct tool_gpu_watch watch;
    struct tool_budget_option chosen; /* by --budget */
    uint64_t weights_hash;
    bool is_trace_lost;
    struct tool_problem export_problem; /* "": the weights were exported, or nobody asked for it */
    int32_t *sample;
    uint32_t prompt_count, sample_made;
    eo_model *adapters;        /* of an export: NULL, or the adapters alone; */
    eo_transformer *unadapted; /* NULL, or the model without them */
    char base_path[PATH_MAX];
};

/* options.c: of train alone; its input is a struct train_settings. */
extern const struct argp tool_train_argp;

/* export.c: everything is checked before anything is written; an export with adapters is described first. */
EO_NODISCARD eo_status tool_train_describe_adapters(struct train *train, struct tool_problem *problem);
EO_NODISCARD eo_status tool_train_check_export(const struct train *train, struct tool_problem *problem);
/* Collective. What cannot be written is told at the end, with what the run came to. */
EO_NODISCARD eo_status tool_train_export(struct train *train, struct tool_job_rank *rank);

/* report.c */
void tool_train_report(struct train *train);

#endif
