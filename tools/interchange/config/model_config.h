/* SPDX-License-Identifier: MIT
 *
 * The shape of a published model: a Hugging Face config.json (a file, or a folder with one), or a name from a table.
 * What a file leaves out takes its family's default, and the list of those says so. An unknown family is refused, never
 * guessed.
 */
#ifndef EO_TOOLS_INTERCHANGE_CONFIG_MODEL_CONFIG_H
#define EO_TOOLS_INTERCHANGE_CONFIG_MODEL_CONFIG_H

#include <jansson.h>

#include <evenodd/layers.h>

#include "tools/shared/problem.h"

enum {
    TOOL_CONFIG_BYTES_MAX = 4 << 20,  /* of a config.json */
    TOOL_CONFIG_VALUES_MAX = 1 << 16, /* of it, by tool_json_values */
    TOOL_CONFIG_LAYERS_MAX = 4096,
    TOOL_CONFIG_EXPERTS_MAX = 65536,
    TOOL_CONFIG_EXPERTS_ALL_MAX = 1 << 16, /* of all layers together; large published models have some 20,000 */
    TOOL_CONFIG_DEFAULTS_MAX = 40,
    TOOL_CONFIG_SETS_MAX = 64,
    TOOL_CONFIG_FIXED_MAX = 4,
};

enum tool_config_family {
    TOOL_CONFIG_GPT2,
    TOOL_CONFIG_LLAMA,
    TOOL_CONFIG_MISTRAL,
    TOOL_CONFIG_QWEN2,
    TOOL_CONFIG_QWEN3,
    TOOL_CONFIG_MIXTRAL,
    TOOL_CONFIG_QWEN3_MOE,
    TOOL_CONFIG_SMOLLM3,
    TOOL_CONFIG_PHI3,    /* a Llama whose files have q, k and v in one tensor, and gate and up */
    TOOL_CONFIG_PLANNED, /* from here on without kernels, and read by one table */
    TOOL_CONFIG_GEMMA2 = TOOL_CONFIG_PLANNED,
    TOOL_CONFIG_GEMMA3,
    TOOL_CONFIG_GPT_OSS,
    TOOL_CONFIG_DEEPSEEK_V3,
    TOOL_CONFIG_QWEN2_MOE,
    TOOL_CONFIG_QWEN3_NEXT,
    TOOL_CONFIG_OLMO2,
    TOOL_CONFIG_FAMILY_COUNT,
};

/* How tokens of a block meet. */
enum tool_mixer {
    TOOL_MIXER_FULL,
    TOOL_MIXER_WINDOW, /* of `window` tokens */
    TOOL_MIXER_LINEAR, /* a gated delta rule: a state of fixed size goes from token to token */
};

/* Where attention and MLP have their norms. */
enum tool_norms { TOOL_NORMS_BEFORE, TOOL_NORMS_AFTER, TOOL_NORMS_BOTH };

struct tool_model_config {
    char source[4096];   /* the file, or the name in the table */
    bool from_file;
    enum tool_config_family family;
    uint32_t layer_count, width, head_count, kv_head_count, head_size, mlp_width, vocabulary, context;
    bool tied_head;
    bool qkv_bias, out_bias, mlp_bias; /* GPT-2 has all of them; here they are those of the others */
    bool qk_norm;
    uint32_t expert_count, experts_per_token, expert_width; /* expert_count 0: every layer is dense */
    bool dense[TOOL_CONFIG_LAYERS_MAX];                     /* of a model with experts: this layer has none */
    double norm_eps, rope_theta;
    double initializer_range;          /* 0: the config does not say */
    uint32_t stored_bytes;             /* of a parameter in the published files; 0: the config does not say */
    eo_rope_scaling rope_scaling;
    uint32_t unrotated_interval;       /* of so many blocks the last has no rotary positions; 0: all have */
    uint32_t window;                   /* attention reaches back so many tokens, less than the context; 0: to the first */
    /* Decide no byte, and mostly "": what the layers do not compute, keys that are not known, dropout, which is not taken. */
    char not_computed[512], unknown[512], dropouts[256], residual_dropouts[128];
    bool drops_embedding, drops_residual, drops_attention; /* dropout that the file asks for */
    uint32_t default_count;
    char defaults[TOOL_CONFIG_DEFAULTS_MAX][96]; /* "head_dim = 128 (hidden_size / num_attention_heads)" */
    /* Fields that stayed as they were in the file, though by default they follow one that --set has changed. */
    uint32_t fixed_count;
    char fixed[TOOL_CONFIG_FIXED_MAX][96]; /* "n_inner = 3072 (by default 4 x n_embd)" */

    /* Of families that are planned, not run. With `window` 0 no block has one; else `mixers` say which. */
    enum tool_norms norms;
    bool wide_qk_norm;     /* over all heads together */
    bool gates_heads;      /* q has as many columns again, which gate attention's output */
    bool sinks;            /* a number a head, in the sum of attention's weights */
    bool expert_bias;      /* of experts and router */
    bool gates_shared;     /* the shared expert */
    uint32_t shared_width; /* of the expert that every token meets; 0: none */
    /* Attention through low ranks (MLA): head_size is nope + rope, kv_head_count head_count. kv_rank 0: none; q_rank 0: of k
     * and v alone. */
    struct tool_latent {
        uint32_t q_rank, kv_rank, nope, rope, value;
    } latent;
    struct tool_linear {
        uint32_t key_heads, value_heads, key_size, value_size, kernel /* of the convolution */;
    } linear;
    uint8_t mixers[TOOL_CONFIG_LAYERS_MAX]; /* enum tool_mixer */
    bool mixers_listed;                     /* in the file, one by one */
    char files_differ[64];                  /* why published files have other tensors than these; "": they have not */
};

/* Whole path of a file or folder, or a name of the table or of eo_transformer_preset; `sets` are KEY=VALUE. */
EO_NODISCARD eo_status tool_model_config_load(struct tool_model_config *config, const char *model, const char *const *sets,
                                              uint32_t set_count, struct tool_problem *problem);

/* The text of a file, for free(); a 0 stands behind it. */
EO_NODISCARD eo_status tool_model_config_read(const char *path, char **text, size_t *bytes, struct tool_problem *problem);

/* One of the known names: tool_model_config_load prefers them to files. An unknown one is refused with the list. */
bool tool_model_config_is_name(const char *model);
EO_NODISCARD eo_status tool_model_config_named(struct tool_model_config *config, const char *name, const char *const *sets,
                                               uint32_t set_count, struct tool_problem *problem);

/* The text of a config.json; `source` is named in messages. */
EO_NODISCARD eo_status tool_model_config_parse(struct tool_model_config *config, const char *source, const char *text,
                                               size_t bytes, const char *const *sets, uint32_t set_count,
                                               struct tool_problem *problem);

const char *tool_config_family_name(enum tool_config_family family);

static inline bool tool_config_has_experts(const struct tool_model_config *config, uint32_t layer)
{
    return config->expert_count && !config->dense[layer];
}

uint64_t tool_model_config_layer_parameters(const struct tool_model_config *config, uint32_t layer);
uint64_t tool_model_config_parameters(const struct tool_model_config *config);
uint64_t tool_model_config_active_parameters(const struct tool_model_config *config); /* that one token meets */

/* Forward flops of a token's attention core, in all blocks: half of `seq` tokens before it on average, fewer in a window; of
 * the delta rule three products with a head's state. */
double tool_model_config_core_flops(const struct tool_model_config *config, uint32_t seq);

/* False: the library's layers cannot run it, `why` (at least 160 bytes) says for what. */
bool tool_model_config_runs(const struct tool_model_config *config, char *why, size_t why_bytes);
void tool_model_config_transformer(const struct tool_model_config *config, eo_transformer_config *out);

/* The same for weights that were trained with it: with a window, the context is what the window holds. EO_ERR_UNSUPPORTED: the
 * layers would compute another model. */
EO_NODISCARD eo_status tool_model_config_transformer_exact(const struct tool_model_config *config, eo_transformer_config *out,
                                                           struct tool_problem *problem);

/* On standard error: what is computed otherwise than the file says, or may be. `has_weights`: see above. `dropout`: the run's
 * own, in place of the file's on the residual stream. */
void tool_model_config_tell(const struct tool_model_config *config, const char *name, bool has_weights, double dropout);

/* The file's dropouts that a run with this one does not take: "embd_pdrop 0.1, resid_pdrop 0.1"; "" if there are none. */
enum { TOOL_CONFIG_DROPOUT_BYTES_MAX = 400 };
void tool_model_config_dropouts(const struct tool_model_config *config, double dropout,
                                char text[TOOL_CONFIG_DROPOUT_BYTES_MAX]);

/* model_presets.c: the text of a config.json by name, or NULL; names by index, NULL past the last. */
const char *tool_model_preset_text(const char *name);
const char *tool_model_preset_name(uint32_t index);

/* How many tensors published files have of it. */
uint64_t tool_model_config_tensor_count(const struct tool_model_config *config);

/*
 * Names and shapes as published files have them: an object of name to a list of sizes, to be released by the caller.
 * NULL: no memory.
 */
json_t *tool_model_config_tensors(const struct tool_model_config *config);

/* What to say of a path that is not there and looks like something else: a Hub id. "": nothing. */
const char *tool_model_path_hint(const char *path);

#endif
