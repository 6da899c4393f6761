/* SPDX-License-Identifier: MIT
 *
 * Transformers on top of evenodd.h: GPT-2, Llama and what is like it (Mistral, Qwen2, Qwen3, SmolLM3, Phi-3) with their
 * kernels. A second library (evenodd_layers), the first client of the public API: whatever it does, any trainer can do.
 */
#ifndef EVENODD_LAYERS_H
#define EVENODD_LAYERS_H

#include <evenodd/evenodd.h>
#include <evenodd/random.h>

/* Llama is all that has rotary positions, RMSNorm and SwiGLU: Qwen2 is Llama with qkv_bias, Qwen3 Llama with qk_norm,
 * SmolLM3 Llama with unrotated_interval. */
typedef enum eo_family { EO_FAMILY_GPT2, EO_FAMILY_LLAMA } eo_family;

/* How positions are stretched for a context that is longer than the one before. A pair of a head's elements turns by
 * theta^(-2i / head_size) from position to position: that frequency is scaled. */
typedef enum eo_rope_kind {
    EO_ROPE_PLAIN,  /* as it is */
    EO_ROPE_LINEAR, /* divided by factor */
    EO_ROPE_LLAMA3, /* by how often the pair turns over original_context: at most low_freq_factor times, and it is divided
                       by factor; at least high_freq_factor times, and it is as it is; between them a blend of both */
} eo_rope_kind;

typedef struct eo_rope_scaling {
    eo_rope_kind kind;         /* [plain] */
    float factor;              /* of linear and llama3, at least 1 */
    float low_freq_factor;     /* of llama3, as the two below */
    float high_freq_factor;    /* above low_freq_factor */
    uint32_t original_context;
} eo_rope_scaling;

typedef struct eo_transformer_config {
    eo_family family;
    uint32_t layer_count;
    uint32_t width;
    uint32_t head_count;
    uint32_t kv_head_count; /* [head_count] key/value heads; GPT-2: head_count */
    uint32_t head_size;     /* [width / head_count] Llama: any even one */
    uint32_t mlp_width;     /* [4 x width] */
    uint32_t vocabulary;
    uint32_t context;       /* longest sequence; GPT-2 has that many positions */
    bool tied_head;         /* the head multiplies by the token embedding */
    float norm_eps;         /* [1e-5] above 0: rows that are all alike have no spread to divide by */
    float rope_theta;       /* [500000] Llama */
    bool qkv_bias;          /* Llama: the products to q, k and v have biases; GPT-2 has them always */
    bool qk_norm;           /* Llama: RMSNorm over each head of q and k, before they are rotated */
    eo_rope_scaling rope_scaling; /* [plain] Llama */
    float initial_deviation;      /* [0.02] of weights at the start (initializer_range) */
    uint32_t unrotated_interval;  /* [0: none] Llama: of so many blocks the last has no rotary positions (SmolLM3: 4) */
} eo_transformer_config;

/* tiny, small, base, gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-tiny, llama-small, llama-1b,
 * qwen2-tiny, qwen3-tiny; EO_ERR_INVALID. */
#define eo_transformer_preset EO_OF_API(eo_transformer_preset)
EO_EXPORT EO_NODISCARD eo_status eo_transformer_preset(const char *name, eo_transformer_config *out);
EO_EXPORT const char *eo_transformer_preset_name(uint32_t index); /* NULL past the last */

typedef enum eo_recompute {
    EO_RECOMPUTE_NONE,  /* keep everything backward needs */
    EO_RECOMPUTE_CHEAP, /* no matrix product: norms of heads (qk_norm) again, and on GPUs GPT-2's GELU. Other norms and activation
                           functions are not kept in any case, but for the norm of the first half that adapters train: the
                           kernels of their gradients give them again */
    EO_RECOMPUTE_BLOCKS,/* the first `recompute_blocks` blocks keep only their input */
} eo_recompute;

/*
 * Low-rank adapters (LoRA): beside a linear layer of a block, y = x W^T + b, stands alpha / rank (x A^T) B^T, and nothing else of
 * the model is trained. A [rank][in] and B [out][rank] are parameters of the block's layer, named as the layer with
 * "lora_A.weight" and "lora_B.weight" in the place of "weight". All else is frozen: no gradient, no optimizer state, no reduction.
 */
typedef struct eo_lora {
    uint32_t rank;       /* [0: no adapters] at most the width of the layers */
    float alpha;         /* [2 x rank] */
    const char *targets; /* ["all-linear"] the last parts of layers' names, with + between: "q_proj+v_proj", "attn.c_proj". Copied */
} eo_lora;

typedef struct eo_transformer_params {
    eo_transformer_config config;
    uint32_t batch;            /* [1] sequences a rank and micro-batch */
    uint32_t seq;              /* [config.context] tokens a sequence */
    eo_recompute recompute;    /* [none] */
    uint32_t recompute_blocks; /* of EO_RECOMPUTE_BLOCKS: at least 1; above layer_count means all */
    uint32_t head_chunks;      /* [1] the head runs over batch x seq tokens in so many pieces */
    uint32_t thread_count;     /* [1] of the largest team that will run it: the kernels' scratch is placed for so many */
    bool half_blocks;          /* [false] attention and MLP are layers of their own */
    eo_dtype dtype;            /* [EO_DTYPE_FP32] of activations and weights as computed with: the plan's dtype */
    eo_dtype reduce_dtype;     /* [EO_DTYPE_FP32] of gradients of weights: the plan's reduce_dtype */
    const char *device;        /* ["cpu"] what will run it: "cpu" or "cuda"; decides kernels and scratch, in every build */
    uint32_t token_slots;      /* [1] batches of tokens kept on the device: one a micro-batch for captured steps */
    const eo_log *log;         /* [silence] copied */
    uint32_t unit_blocks;      /* [1] blocks of a layer: fewer and larger collectives, larger buffers. The last layer has what is
                                  left. A layer is recomputed whole. Not with half_blocks */
    float dropout;             /* [0] below 1: of what each half of a block adds to the stream (GPT-2's resid_pdrop), in
                                  micro-batches alone. Masks are drawn from eo_tokens.random, again in backward: none is stored */
    bool summed_loss;          /* [false] every loss is the sum over its targets, not their mean, and gradients are of that sum:
                                  give the step's count of targets as eo_step_params.weight. Targets below 0 (PyTorch's
                                  ignore_index, -100) then do not count: their loss and gradient are 0 */
    bool packed;               /* [false] a sequence holds documents, one behind the other, that do not see each other:
                                  eo_tokens.positions says where each begins. On CUDA attention then goes without cuDNN */
    bool float8_products;      /* [false] with bf16: forward products of the blocks' matrices in float8 (e4m3), activations and
                                  weights rounded with a scale each row; backward products stay bf16. On a GPU of compute
                                  capability 9.0 with cuBLASLt 12.9; other GPUs say so and stay with bf16. Not on CPUs */
    eo_lora lora;              /* [none] static mode, and no float8 gathers */
    bool fp32_norms;           /* [false] with bf16: weights and biases of norms, those of heads too, are fp32 in views and
                                  gathers (eo_parameter_params.fp32). Each then lies whole on one rank */
} eo_transformer_params;
#define eo_transformer_params(...) EO_PARAMS(eo_transformer_params, __VA_ARGS__)

/* Immutable after create: one object serves all ranks and runtimes. */
typedef struct eo_transformer eo_transformer;

/*
 * What computes the products of one rank. On the CPU: its calling thread and thread_count - 1 others, which inherit the
 * caller's placement. On a GPU: a stream, the handles of its libraries and their workspace. A team serves one rank at a
 * time.
 */
typedef struct eo_team eo_team;

enum { EO_TEAM_THREADS_MAX = 1024 };

typedef struct eo_team_params {
    const char *device;     /* ["cpu"] "cuda" */
    uint32_t thread_count;  /* [1] CPU: at most EO_TEAM_THREADS_MAX */
    uint32_t device_index;  /* CUDA: the world's device_index of this rank */
    void *stream;           /* CUDA: eo_runtime_stream() of the runtime it will serve, which must outlive it */
    const char *plan_cache; /* [none] CUDA: a file of product plans that were chosen by timing; read and rewritten */
    bool repeatable;        /* [false] CUDA: the same bits in every run: attention the slower way (cuDNN's adds up the
                               gradient of queries as blocks come), products timed only where plan_cache keeps them */
    const eo_log *log;      /* [silence] copied */
} eo_team_params;
#define eo_team_params(...) EO_PARAMS(eo_team_params, __VA_ARGS__)

/*
 * tokens and targets: batch x seq, each below the vocabulary, memory of the host, read during the call only; with summed_loss
 * a target may be below 0. `slot`: which of the transformer's token_slots takes them. Both NULL: what eo_transformer_load put
 * into the slot.
 */
typedef struct eo_tokens {
    const int32_t *tokens;
    const int32_t *targets;
    uint32_t slot; /* [0] */
    eo_random_place random; /* with dropout: `sample` of the first sequence, the others follow; `position` is set inside. Goes
                               to the device with the tokens */
    const int32_t *positions; /* with packed: batch x seq, of the tokens in their documents: 0 at a document's first, then one
                                 more than before it. A document's last target is of the trainer's choice (-100: none) */
} eo_tokens;

/* A matrix product of a step: C[m][n] (+)= A[m][k] B[k][n], with A and B as stored (row-major) or transposed. */
typedef struct eo_product {
    const char *name;
    uint64_t m, n, k;
    bool transpose_a, transpose_b;
    uint64_t per_micro_batch; /* how often a micro-batch runs it */
    eo_dtype dtype;           /* [EO_DTYPE_FP32] of A and B, and of C but for gradients of weights */
} eo_product;

#ifdef __cplusplus
extern "C" {
#endif

#define eo_team_create EO_OF_API(eo_team_create)
EO_EXPORT EO_NODISCARD eo_status eo_team_create(eo_team **out, uint32_t thread_count); /* on the CPU */

/* EO_OK, EO_ERR_INVALID, EO_ERR_NO_MEMORY, EO_ERR_UNSUPPORTED (logged: the device is not built in or not there). */
#define eo_team_create_on EO_OF_API(eo_team_create_on)
EO_EXPORT EO_NODISCARD eo_status eo_team_create_on(eo_team **out, const eo_team_params *params);
/* Whether this machine has the libraries that a team on the device ("cpu", "cuda") loads; the device itself is asked by
 * eo_device_ask. EO_OK, EO_ERR_UNSUPPORTED (not built in, or a library cannot be loaded: logged with the remedy). */
EO_EXPORT EO_NODISCARD eo_status eo_team_ask(const char *device, const eo_log *log);
EO_EXPORT void eo_team_destroy(eo_team **team);
EO_EXPORT eo_parallel eo_team_parallel(eo_team *team); /* for eo_runtime_params.parallel; CPU */
/* For eo_runtime_params.product: `team` is an eo_team, or NULL: the calling thread. A GPU's is made after the runtime whose
 * stream it works on: there give a function of your own that passes your team on. */
EO_EXPORT EO_NODISCARD eo_status eo_team_product(void *team, const eo_matrix_product *product);
EO_EXPORT uint64_t eo_team_memory_bytes(const eo_team *team); /* device memory it holds outside the plan */

/* Checks the config, describes the model. EO_OK, EO_ERR_INVALID (logged), EO_ERR_NO_MEMORY. */
#define eo_transformer_create EO_OF_API(eo_transformer_create)
EO_EXPORT EO_NODISCARD eo_status eo_transformer_create(eo_transformer **out, const eo_transformer_params *params);
EO_EXPORT void eo_transformer_destroy(eo_transformer **transformer);
EO_EXPORT const eo_model *eo_transformer_model(const eo_transformer *transformer);
EO_EXPORT const eo_transformer_params *eo_transformer_get_params(const eo_transformer *transformer); /* filled in */

/*
 * GPT-2's initialisation (normal with config.initial_deviation, residual projections scaled by 1 / sqrt(2 layers), ones and
 * zeros) from the seed; each rank fills its own shards, and the values do not depend on the world size.
 */
EO_EXPORT EO_NODISCARD eo_status eo_transformer_initialise(const eo_transformer *transformer, eo_runtime *runtime,
                                                           uint64_t seed);
/* The adapters alone, as eo_transformer_initialise does them: A uniform within 1 / sqrt(in), B zero, so the model computes as
 * without them. */
EO_EXPORT EO_NODISCARD eo_status eo_transformer_initialise_adapters(const eo_transformer *transformer, eo_runtime *runtime,
                                                                    uint64_t seed);
/* Whether a parameter of the model belongs to an adapter. */
EO_EXPORT bool eo_transformer_is_adapter(const eo_transformer *transformer, uint32_t parameter);

/*
 * Once for each runtime, after it and its team were created and before the first step: brings tables to the device and
 * lets the team choose and build its plans, which takes time and memory of its own. On the CPU it does nothing. Not
 * collective.
 */
EO_EXPORT EO_NODISCARD eo_status eo_transformer_prepare(const eo_transformer *transformer, eo_runtime *runtime,
                                                        eo_team *team);

/* Puts tokens into their slot on the device, for a micro-batch with NULL tokens or a captured step that is replayed. */
EO_EXPORT EO_NODISCARD eo_status eo_transformer_load(const eo_transformer *transformer, eo_runtime *runtime,
                                                     const eo_tokens *tokens);

/*
 * Forward and backward of one micro-batch, between eo_step_begin and eo_step_end. *loss is the rank's mean over its
 * tokens (with summed_loss the sum over its targets), unscaled; the host waits for it. loss NULL: it is added to
 * eo_step_values(runtime)[0] instead, and nothing waits. Allocates nothing, but for products in fp32 on a CPU: oneDNN takes
 * its buffer from the heap. EO_ERR_NOT_FINITE: *loss is not finite; the log names the position.
 */
EO_EXPORT EO_NODISCARD eo_status eo_transformer_micro_batch(const eo_transformer *transformer, eo_runtime *runtime,
                                                            eo_team *team, const eo_tokens *tokens, double *loss);

/* Loss of a batch, as a micro-batch has it, on the forward-only list. Targets below 0 do not count, without summed_loss too;
 * there the divisor stays batch x seq. Collective, between steps. */
EO_EXPORT EO_NODISCARD eo_status eo_transformer_evaluate(const eo_transformer *transformer, eo_runtime *runtime,
                                                         eo_team *team, const eo_tokens *tokens, double *loss);

/* Logits (vocabulary floats) of token `position` of sequence 0, after a forward-only run over `tokens` (batch x seq;
 * only what lies before `position` matters). Collective, between steps. */
EO_EXPORT EO_NODISCARD eo_status eo_transformer_logits(const eo_transformer *transformer, eo_runtime *runtime,
                                                       eo_team *team, const int32_t *tokens, uint32_t position,
                                                       float *logits);

/*
 * Text, token after token: a copy of all weights and a cache of keys and values, in host memory that is allocated at create
 * beside the plan (eo_decoder_bytes), so that a token costs one look at each weight, and no collective. For kernels whose
 * memory is the host's. Logits are those of eo_transformer_logits up to rounding.
 *
 * create is collective, between steps; `out` NULL: this rank keeps nothing. thread_count: of the largest team that run will be
 * given [1]; it may be larger than the transformer's. The transformer must outlive the decoder.
 * EO_ERR_UNSUPPORTED: the kernels are a device's, on all ranks alike; EO_ERR_NO_MEMORY: here, where the other ranks go on.
 *
 * run is not collective: `count` tokens behind those that came before, at most seq of the transformer together, on a team of
 * at most thread_count; logits (vocabulary floats) are of the last one, NULL: not wanted. Allocates nothing, but for products
 * in fp32, as eo_transformer_micro_batch. forget: the next token is the first one again.
 */
typedef struct eo_decoder eo_decoder;
EO_EXPORT uint64_t eo_decoder_bytes(const eo_transformer *transformer, uint32_t thread_count);
#define eo_decoder_create EO_OF_API(eo_decoder_create)
EO_EXPORT EO_NODISCARD eo_status eo_decoder_create(eo_decoder **out, const eo_transformer *transformer, eo_runtime *runtime,
                                                   uint32_t thread_count);
EO_EXPORT EO_NODISCARD eo_status eo_decoder_run(eo_decoder *decoder, eo_team *team, const int32_t *tokens, uint32_t count,
                                                float *logits);
EO_EXPORT uint32_t eo_decoder_count(const eo_decoder *decoder); /* tokens since the last forget */
EO_EXPORT void eo_decoder_forget(eo_decoder *decoder);
EO_EXPORT void eo_decoder_destroy(eo_decoder **decoder);

/* Useful FLOPs of one micro-batch of one rank, forward and backward, without recompute:
 * 6 x multiplied parameters x tokens + 6 x layers x heads x head size x seq x tokens (causal attention). Frozen parameters
 * beside adapters count 4: their gradients are not computed. */
EO_EXPORT double eo_transformer_flops(const eo_transformer *transformer);

/* The products of a micro-batch, and how fast this machine runs one now with this team (best of a few runs, FLOP/s;
 * memory is allocated for the time of the call). At most `capacity` are copied; their number is returned. */
EO_EXPORT uint32_t eo_transformer_products(const eo_transformer *transformer, eo_product *products,
                                           uint32_t capacity);
EO_EXPORT EO_NODISCARD eo_status eo_product_measure(eo_team *team, const eo_product *product, double *flops_per_s);

/* Which kernels a model runs on: one of the names below, or "cuda". */
EO_EXPORT const char *eo_transformer_kernels(const eo_transformer *transformer);

/*
 * The instruction set of the CPU that kernels use: "amx", "avx512_bf16", "avx512", "avx2" or "plain". The first two differ
 * from the third in their products of bf16. `select` forces a slower one, for tests (process-wide, before any use);
 * "reference" takes the kernels in plain C: a model stays with them, or without; between the others it follows the set in
 * use. Products in fp32 are oneDNN's: they go by the last set that was selected before the first of them, and then stay with
 * it. EO_ERR_UNSUPPORTED: this machine cannot run it. `at` counts the names that this machine can run, best first; NULL behind
 * the last.
 */
EO_EXPORT const char *eo_kernels_name(void);
EO_EXPORT EO_NODISCARD eo_status eo_kernels_select(const char *name);
EO_EXPORT const char *eo_kernels_at(uint32_t index);

#ifdef __cplusplus
}
#endif

#endif
