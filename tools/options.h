/* SPDX-License-Identifier: MIT
 *
 * The options that training programs share: which model, which data, how it is run. A program adds its own argp
 * options and takes these in as a child parser. All that can be judged without opening a file is judged here; what is
 * wrong ends the program with EO_EXIT_BAD_INPUT before anything is written.
 */
#ifndef EO_TOOLS_OPTIONS_H
#define EO_TOOLS_OPTIONS_H

#include <argp.h>

#include <evenodd/layers.h>

#include "tools/problem.h"

enum {
    EO_RUN_RANKS_MAX = 64,     /* ranks are threads of the process */
    EO_PLAN_RANKS_MAX = 65536, /* a plan needs none */
};

struct eo_options {
    const char *model_name; /* as it was given */
    eo_transformer_config config;
    bool model_of_init;   /* --model init: the shape comes from the checkpoint */
    bool model_of_config; /* a config.json, a folder with one, or a published model: read in eo_job_prepare */

    const char **text_paths; /* NULL: the default text */
    uint32_t text_path_count;
    const char **tokens_paths; /* NULL: text */
    uint32_t tokens_path_count;
    const char *val_tokens_path; /* NULL: what is held back is a part of the others */
    bool words_are_tokens;   /* words that follow belong to --tokens, and not to --text */
    const char *init_path;   /* NULL: fresh weights */

    const char *device;     /* "cpu", "cuda" */
    eo_dtype dtype, reduce_dtype;
    bool graph;             /* steps as graphs, where the device has them */
    bool graph_times;       /* ... whose operations tell their times */
    bool cupti;             /* what GPUs really ran is listened to */
    const char *cupti_library; /* NULL: where the loader finds it */
    const char *plan_cache; /* NULL: the GPU's products are tried out in each run */
    bool repeatable;        /* a GPU's bits are the same in every run */
    uint32_t ranks, threads;
    uint32_t world_ranks, host_ranks; /* ranks are processes: how many, and on this host; 0: threads of this one */
    uint32_t host_rank;               /* then, which of them this is */
    const char *world_launcher;       /* who started them */
    eo_memory memory;
    eo_strategy strategy;
    uint32_t shard_group; /* of hsdp */
    uint32_t gather_slots, gradient_slots;
    double fabric_gigabytes_per_s, fabric_latency_us;
    bool no_prefetch, place_threads, implicit_prefetch;
    uint32_t reduce_inputs;

    uint32_t batch, seq, micro_batches;
    uint64_t steps, warmup, seed;
    double learning_rate, beta1, beta2, eps, weight_decay, clip;
    bool constant_schedule;

    eo_recompute recompute;
    uint32_t recompute_blocks;
    uint32_t head_chunks;
    bool half_blocks;
    double peak_tflops;  /* of a GPU, as its data sheet says; 0: not told */
    double peak_seconds; /* spent on measuring the machine's products; 0: none */
    bool saves;          /* checkpoints, which take memory of the host */
    bool plan_only;      /* no data, no memory: ranks may be many */

    uint64_t given; /* a bit for each option that was given, by its place in the table */
};

/* For struct argp's children; its input is a struct eo_options that eo_options_init has filled. */
extern const struct argp eo_options_argp;

void eo_options_init(struct eo_options *options);
void eo_options_fini(struct eo_options *options);

/* Ends the program with a usage error that names the option. Ranges include both ends. */
uint64_t eo_option_count(const struct argp_state *state, const char *name, const char *text, uint64_t least,
                         uint64_t most);
double eo_option_real(const struct argp_state *state, const char *name, const char *text, double least, double most);

/* Whether an output may be written: a new file, or one of its kind (overwrite.h), that is nothing the options read. NULL: no
 * file. */
EO_NODISCARD eo_status eo_options_check_output(const struct eo_options *options, const char *option, const char *path,
                                               struct eo_problem *problem);

/* For programs that run one memory mode: refuses what says nothing to it. */
void eo_options_check_mode(const struct argp_state *state, const struct eo_options *options);

/* Whether --memory was given, and not left to its default. */
bool eo_option_memory_given(const struct eo_options *options);
bool eo_option_graph_given(const struct eo_options *options);
bool eo_option_threads_given(const struct eo_options *options);
bool eo_option_graph_times_given(const struct eo_options *options);

/* Says on standard error when there are more threads than cores. */
void eo_warn_of_many_threads(const struct eo_options *options);

/* Learning rate of the step with this index, from 0: warm-up, then constant or a cosine down to a tenth. */
double eo_options_learning_rate(const struct eo_options *options, uint64_t step);

bool eo_options_on_gpu(const struct eo_options *options);
const char *eo_memory_name(eo_memory memory);
const char *eo_dtype_name(eo_dtype dtype);

/* ddp, zero1, zero2, zero3, or hsdp:S, whose S goes to *group (else 0). False: none of them. */
bool eo_strategy_parse(const char *text, eo_strategy *out, uint32_t *group);
/* As it is given: "hsdp:8". */
void eo_strategy_text(eo_strategy strategy, uint32_t group, char *text, size_t bytes);

/* False: not a name of a memory mode. */
bool eo_memory_parse(const char *text, eo_memory *out);

/* Cores this process may use, at least 1. */
uint32_t eo_core_count(void);
/* Ranks that share this host's memory and devices. */
uint32_t eo_options_host_ranks(const struct eo_options *options);

#endif
