/* SPDX-License-Identifier: MIT
 *
 * What a plan depends on beside its model. train, headtohead and memplan fill in these settings; one function makes the
 * parameters of the transformer and of the plan from them. A new setting is a field here and a line in tool_plan_params_of.
 */
#ifndef EO_TOOLS_PLANNING_SETTINGS_H
#define EO_TOOLS_PLANNING_SETTINGS_H

#include <evenodd/layers.h>

#include "tools/shared/problem.h"

enum { TOOL_PLAN_RANKS_MAX = 65536 }; /* a plan needs none of them */

/* Low-rank adapters; rank 0: none. */
enum { TOOL_LORA_TARGETS_MAX = 160 };
struct tool_lora {
    uint32_t rank;
    double alpha; /* 0: twice the rank */
    char targets[TOOL_LORA_TARGETS_MAX]; /* "": all-linear */
};

struct tool_plan_settings {
    uint32_t ranks;
    eo_strategy strategy;
    uint32_t shard_group; /* of hsdp */
    uint32_t batch, seq, micro_batches; /* seq 0: open */
    eo_dtype dtype, reduce_dtype;
    bool float8_gather;
    uint32_t gather_slots, gradient_slots;
    bool no_prefetch;
    bool norms_beside, norm_parts;
    bool gradients_apart; /* a tied embedding's two gradients */
    eo_recompute recompute;
    uint32_t recompute_blocks;
    bool half_blocks;
    uint32_t unit_blocks; /* of a unit of sharding; 0: one, or by unit_bytes */
    uint64_t unit_bytes;  /* of its weights as gathered, at least: whole blocks; 0: not asked for */
    uint32_t head_chunks; /* 0: open */
    uint32_t offload_layers, offload_slots; /* UINT32_MAX: all; 0: the default */
    bool offload_gradients, late_updates;
    const char *device;   /* of the kernels: "cpu", "cuda" */
    uint32_t threads;     /* of a rank, on a CPU */
    double dropout;       /* of each half of a block; 0: none */
    double ema_decay;     /* of the average of the weights; 0: there is none */
    bool graph;           /* a step is a graph: tokens of all its micro-batches lie on the device */
    uint32_t gather_run, gradient_run; /* positions a collective; 0: 1 */
    uint32_t offload_activations;      /* blocks; UINT32_MAX: all */
    eo_optimizer optimizer;
    bool float8_products; /* forward products of blocks, on a GPU */
    bool fp32_norms;      /* with bf16: norms keep fp32 weights */
    struct tool_lora lora;
    bool float8_frozen;   /* the blocks' frozen matrices in MXFP8 */
    bool packed;          /* documents in each sequence: their positions lie on the device */
};

static inline bool tool_plan_settings_offload(const struct tool_plan_settings *settings)
{
    return settings->offload_layers || settings->offload_activations;
}

struct tool_plan_params {
    eo_transformer_params transformer;
    eo_plan_params plan;
};

/* Fills in what is open: seq is the model's context, at most seq_most; the logits of a piece of the head stay below 32 MiB,
 * in bf16 64, on a GPU 512. */
void tool_plan_settings_complete(struct tool_plan_settings *settings, const eo_transformer_config *config, uint32_t seq_most,
                                 bool on_gpu);

/* "block", "half", "blocks:4". */
enum { TOOL_GRANULARITY_TEXT_MAX = 24 };
const char *tool_granularity_text(const struct tool_plan_settings *settings, char text[TOOL_GRANULARITY_TEXT_MAX]);

/* EO_ERR_INVALID: more blocks to recompute, or in a unit, than the model has; gradients apart that are none. */
EO_NODISCARD eo_status tool_plan_settings_check(const struct tool_plan_settings *settings, uint32_t block_count, bool tied_head,
                                                struct tool_problem *problem);

/* Nothing is open any more; texts are the settings' own. */
struct tool_plan_params tool_plan_params_of(const struct tool_plan_settings *settings, const eo_transformer_config *config,
                                            const eo_log *log);

/* ddp, zero1, zero2, zero3, or hsdp:S. False: none of them. */
bool tool_strategy_parse(const char *text, struct tool_plan_settings *settings);

/* adamw, adamw8bit, sgd or lion. False: none of them. */
bool tool_optimizer_parse(const char *text, eo_optimizer *out);

/* What an update reads and writes of memory for each weight: weight, gradient and states, and the average; in bf16 the two
 * halves are a weight. */
double tool_update_bytes(const struct tool_plan_settings *settings);
/* And of Muon: the direction; the iteration, 24 in each of its steps. */
enum { TOOL_DIRECTION_BYTES = 16, TOOL_ORTHOGONALIZE_BYTES = 20 + 5 * 24 };

/* As they are given: "hsdp:8", "cheap"; of gathers and products: their type. */
void tool_strategy_text(eo_strategy strategy, uint32_t group, char *text, size_t bytes);
const char *tool_gather_text(const struct tool_plan_settings *settings);
const char *tool_frozen_text(const struct tool_plan_settings *settings); /* of frozen matrices */
const char *tool_product_text(const struct tool_plan_settings *settings); /* forward, of blocks */
/* "r=16,alpha=32,targets=q_proj+v_proj"; "": none. */
enum { TOOL_LORA_TEXT_MAX = TOOL_LORA_TARGETS_MAX + 64 };
const char *tool_lora_text(const struct tool_lora *lora, char text[TOOL_LORA_TEXT_MAX]);
void tool_recompute_text(const struct tool_plan_settings *settings, char *text, size_t bytes);

/* A cheap recompute makes q and k behind norms of heads again (qk_norm), and on GPUs GPT-2's GELU. Without either it is as none. */
bool tool_recomputes_gelu(const eo_transformer_config *config, const struct tool_plan_settings *settings);

/* A warning of the planner, which begins with a field, with the option of that name. Returns `text`. */
const char *tool_plan_warning(const char *warning, char *text, size_t bytes);

/* All of them as options, "--ranks 4 --batch 2 ...": what train writes for memplan --verify. Nothing is open any more. */
enum { TOOL_PLAN_WORDS_MAX = 1024 };
void tool_plan_settings_words(const struct tool_plan_settings *settings, char text[TOOL_PLAN_WORDS_MAX]);

#endif
