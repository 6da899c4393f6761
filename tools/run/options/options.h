/* SPDX-License-Identifier: MIT
 *
 * The options that training programs share: which model, which data, how it is run. A program adds its own argp
 * options and takes these in as a child parser. All that can be judged without opening a file is judged here; what is
 * wrong ends the program with TOOL_EXIT_BAD_INPUT before anything is written.
 */
#ifndef EO_TOOLS_RUN_OPTIONS_OPTIONS_H
#define EO_TOOLS_RUN_OPTIONS_OPTIONS_H

#include "base/processors.h"
#include "tools/planning/options.h"
#include "tools/run/learning_rate.h"
#include "tools/planning/settings.h"
#include "tools/shared/problem.h"
#include "tools/planning/rates.h"

enum {
    TOOL_RUN_RANKS_MAX = 64, /* ranks are threads of the process */
    TOOL_OPTIONS_MAX = 96,
};

struct tool_options {
    const char *model_name; /* as it was given */
    eo_transformer_config config;
    bool model_of_init;   /* --model init: the shape comes from the checkpoint */
    bool model_of_config; /* a config.json, a folder with one, or a published model: read in tool_job_prepare */
    uint32_t kept_window; /* of the checkpoint that --resume takes: its model's context was cut to it; 0: it was not */

    const char **text_paths; /* NULL: the default text */
    uint32_t text_path_count;
    const char **tokens_paths; /* NULL: text */
    uint32_t tokens_path_count;
    const char *val_tokens_path; /* NULL: what is held back is a part of the others */
    bool shuffle;            /* token files */
    const char *tokenizer_path; /* NULL: that of --init or --model, if it has one */
    bool words_are_tokens;   /* words that follow belong to --tokens, and not to --text */
    const char *init_path;   /* NULL: fresh weights */
    const char *adapter_path; /* NULL: fresh adapters */

    struct tool_plan_settings plan; /* a step is a graph: where the device has them */
    bool graph_times;       /* ... whose operations tell their times */
    bool cupti;             /* what GPUs really ran is listened to */
    const char *cupti_library; /* NULL: where the loader finds it */
    const char *instruction_set; /* NULL: chosen by measurement (tools/run/machine/processor.h) */
    uint64_t budget_bytes;  /* of a rank's arena; 0: no budget */
    uint64_t budget_host_bytes; /* with GPUs, where budget_bytes are the device's */
    bool budget_available;  /* the budget is what there is */
    bool bucketing_auto;    /* plan.gather_run and gradient_run are chosen */
    bool budget_may_change_bits;
    bool head_is_chosen;    /* its pieces are part of the choice, and plan.head_chunks has them */
    const char *rates_path; /* NULL: measured, or those of the checkpoint that --resume takes */
    bool measures_rates;    /* ... measured, whatever the checkpoint has */
    struct tool_rates rates;    /* of the choice; 0: nothing was chosen */
    struct tool_rates bucketing_rates; /* of the choice of plan.gather_run and gradient_run; likewise */
    const char *offload_folder; /* NULL: the current one */
    const char *plan_cache; /* NULL: the GPU's products are tried out in each run */
    bool repeatable;        /* a GPU's bits are the same in every run */
    uint32_t world_ranks, host_ranks; /* ranks are processes: how many, and on this host; 0: threads of this one */
    uint32_t host_rank;               /* then, which of them this is */
    const char *world_launcher;       /* who started them */
    eo_memory memory;
    double fabric_gigabytes_per_s, fabric_latency_us;
    bool place_threads, implicit_prefetch, dynamic_offload;
    uint32_t reduce_inputs;

    uint64_t steps, warmup, seed;
    double learning_rate, beta1, beta2, eps, weight_decay, clip;
    double momentum; /* of SGD, which has it in beta1 too, and of Muon */
    struct tool_schedule schedule;
    double minimum_rate; /* negative: the schedule's own */
    bool skips;          /* steps that are not finite */

    double peak_tflops;  /* of a GPU, as its data sheet says; 0: not told */
    double peak_seconds; /* spent on measuring the machine's products; 0: none */
    bool saves;          /* checkpoints, which take memory of the host */
    bool plan_only;      /* no data, no memory: ranks may be many */

    bool given[TOOL_OPTIONS_MAX]; /* options that were given, by key from the first one */
};

/* For struct argp's children; its input is a struct tool_options that tool_options_init has filled. */
extern const struct argp tool_options_argp;

void tool_options_init(struct tool_options *options);
void tool_options_fini(struct tool_options *options);

/* Whether an output may be written: a new file, or one of its kind (overwrite.h), that is nothing the options read. NULL: no
 * file. */
EO_NODISCARD eo_status tool_options_check_output(const struct tool_options *options, const char *option, const char *path,
                                                 struct tool_problem *problem);

/* For programs that run one memory mode: refuses what says nothing to it. */
void tool_options_check_mode(const struct argp_state *state, const struct tool_options *options);

/* Whether an option of the table was given, and not left to its default: "memory". */
bool tool_option_given(const struct tool_options *options, const char *name);

/* Says on standard error when there are more threads than cores. */
void tool_warn_of_many_threads(const struct tool_options *options);

/* Says on standard output where a quota leaves fewer threads than there are cores. */
void tool_tell_quota(const struct tool_options *options);

/* Learning rate of the step with this index, from 0. */
double tool_options_learning_rate(const struct tool_options *options, uint64_t step);

bool tool_options_on_gpu(const struct tool_options *options);
const char *tool_memory_name(eo_memory memory);

/* False: not a name of a memory mode. */
bool tool_memory_parse(const char *text, eo_memory *out);

/* Those that this thread may run on, counted up to the quota of processor time. */
struct eo_processors tool_processors(void);
/* The same, at least 1. */
uint32_t tool_core_count(void);

/* Threads of each of the ranks that share so many cores: at least 1, at most those of a team. */
uint32_t tool_threads_of(uint64_t cores, uint32_t ranks);

/* Ranks that share this host's memory and devices. */
uint32_t tool_options_host_ranks(const struct tool_options *options);
/* That these are in. */
uint32_t tool_options_processes(const struct tool_options *options);
uint32_t tool_options_process_threads(const struct tool_options *options); /* about as many in each */
/* That share a GPU, of those that this process sees. Processes have one each, however many they see: NCCL takes no two on one.
 */
uint32_t tool_options_gpu_ranks(const struct tool_options *options, uint32_t device_count);

#endif
