/* SPDX-License-Identifier: MIT */
#include "tools/run/options/options.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/interchange/config/model_config.h"
#include "tools/shared/arguments.h"
#include "tools/shared/overwrite.h"

enum option_key {
    OPTION_MODEL = 0x100,
    OPTION_TEXT,
    OPTION_TOKENS,
    OPTION_SHUFFLE,
    OPTION_PACK,
    OPTION_TOKENIZER,
    OPTION_INIT,
    OPTION_RANKS,
    OPTION_DEVICE,
    OPTION_DTYPE,
    OPTION_GATHER,
    OPTION_PRODUCTS,
    OPTION_REDUCE,
    OPTION_GRAPH,
    OPTION_GRAPH_TIMES,
    OPTION_CUPTI,
    OPTION_CUPTI_LIBRARY,
    OPTION_PLAN_CACHE,
    OPTION_REPEATABLE,
    OPTION_THREADS,
    OPTION_MEMORY,
    OPTION_STRATEGY,
    OPTION_SLOTS,
    OPTION_FABRIC,
    OPTION_BATCH,
    OPTION_SEQ,
    OPTION_MICRO_BATCHES,
    OPTION_STEPS,
    OPTION_OPTIMIZER,
    OPTION_LR,
    OPTION_WARMUP,
    OPTION_BETA1,
    OPTION_BETA2,
    OPTION_EPS,
    OPTION_WEIGHT_DECAY,
    OPTION_CLIP,
    OPTION_ON_NOT_FINITE,
    OPTION_DROPOUT,
    OPTION_EMA,
    OPTION_SEED,
    OPTION_SCHEDULE,
    OPTION_MINIMUM_RATE,
    OPTION_RECOMPUTE,
    OPTION_HEAD_CHUNKS,
    OPTION_BUDGET,
    OPTION_RATES,
    OPTION_MAY_CHANGE_BITS,
    OPTION_BUCKETING,
    OPTION_OFFLOAD_LAYERS,
    OPTION_OFFLOAD_SLOTS,
    OPTION_OFFLOAD_GRADIENTS,
    OPTION_OFFLOAD_ACTIVATIONS,
    OPTION_OFFLOAD_FOLDER,
    OPTION_GRANULARITY,
    OPTION_NO_PREFETCH,
    OPTION_NORMS_BESIDE,
    OPTION_IMPLICIT_PREFETCH,
    OPTION_REDUCE_INPUTS,
    OPTION_PLACE_THREADS,
    OPTION_PEAK_SECONDS,
    OPTION_PEAK_TFLOPS,
    OPTION_INSTRUCTION_SET,
    OPTION_END,
};
_Static_assert(OPTION_END - OPTION_MODEL <= 64, "options have a bit each");

/* A group's number orders --help; a row without key and name is a heading. */
static const struct argp_option option_table[] = {
    {.doc = "Model and data:", .group = 1},
    {"model", OPTION_MODEL, "MODEL", 0,
     "tiny, small, base (bytes), gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-tiny, llama-small (bytes), llama-1b, "
     "qwen2-tiny, qwen3-tiny (bytes); "
     "LAYERSxWIDTHxHEADS for another GPT-2 on bytes; a config.json of GPT-2, Llama or Mistral, or a folder with one; "
     "init for the shape of the --init weights [small; with --init: init]",
     1},
    {"text", OPTION_TEXT, "PATH...", 0,
     "train on the bytes of files or folders; the last tenth is held back [documents of this project, 190 KB]", 1},
    {"tokens", OPTION_TOKENS, "FILE.bin...", 0, "train on token files of llm.c, one after the other, in the given order", 1},
    {"shuffle", OPTION_SHUFFLE, NULL, 0, "take the sequences of --tokens in an order drawn from --seed, another in each pass", 1},
    {"pack", OPTION_PACK, "documents|none", 0,
     "fill each sequence with whole documents of --tokens, as far as they fit; none sees another. In an order drawn from --seed "
     "[none]", 1},
    {"tokenizer", OPTION_TOKENIZER, "PATH", 0,
     "tokenizer.json, or a folder with one, of the --tokens: samples are text then [that in the folder of --init or --model]", 1},
    {"init", OPTION_INIT, "PATH", 0,
     "start from a Hugging Face folder (config.json, safetensors), or a GPT-2 checkpoint of llm.c (FILE.bin)", 1},
    {.doc = "Ranks and memory:", .group = 2},
    {"ranks", OPTION_RANKS, "N", 0, "number of ranks to shard the model over [2; under a launcher the number of its ranks]", 2},
    {"world", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"device", OPTION_DEVICE, "NAME", 0, "cpu or cuda (ranks share the available GPUs) [cpu]", 2},
    {"dtype", OPTION_DTYPE, "TYPE", 0,
     "compute type of weights and activations: fp32 or bf16; master weights are fp32 in both [fp32]", 2},
    {"gather", OPTION_GATHER, "TYPE", 0,
     "type of the blocks' matrices in all-gathers: float8 (with --dtype bf16; about half the bytes, rounds weights to four "
     "bits), or dtype: that of --dtype [dtype]",
     2},
    {"products", OPTION_PRODUCTS, "TYPE", 0,
     "type of the blocks' forward products: float8 (--device cuda --dtype bf16; rounds activations and weights to four bits), "
     "or dtype: that of --dtype [dtype]",
     2},
    {"reduce", OPTION_REDUCE, "TYPE", 0,
     "type of gradients in their reduction: fp32 or bf16 (fp32 anyway after local sums of "
     "a strategy) [fp32]",
     2},
    {"graph", OPTION_GRAPH, "WHEN", 0, "run steps as one graph: on or off [train --device cuda --memory static: on]", 2},
    {"graph-times", OPTION_GRAPH_TIMES, "WHEN", 0,
     "with graphs: time each operation, at the cost of a mark on the GPU for each: on or off [with --trace: on]", 2},
    {"cupti", OPTION_CUPTI, "WHEN", 0,
     "with --device cuda: report the GPU's actual kernels and copies, by NVIDIA's CUPTI, and add them to the trace; slows the "
     "run: on or off [off]",
     2},
    {"cupti-library", OPTION_CUPTI_LIBRARY, "FILE", 0, "load CUPTI from FILE [libcupti, wherever the loader finds it]", 2},
    {"product-cache", OPTION_PLAN_CACHE, "FILE", 0,
     "with --device cuda: keep the choice of product algorithms for the next run [timed in each run]", 2},
    {"repeatable", OPTION_REPEATABLE, NULL, 0,
     "with --device cuda: the same bits in every run, with slower attention and untimed products", 2},
    {"instruction-set", OPTION_INSTRUCTION_SET, "NAME", 0,
     "with --device cpu: compute with amx, avx512_bf16, avx512, avx2, plain or reference [the best that all ranks have]", 2},
    {"threads", OPTION_THREADS, "N", 0, "threads of each rank [available cores / ranks; 1 with --device cuda]", 2},
    {"memory", OPTION_MEMORY, "MODE", 0,
     "memory mode: static, dynamic:malloc, dynamic:pool or (with --device cuda) dynamic:caching [static]", 2},
    {"strategy", OPTION_STRATEGY, "NAME", 0,
     "state to shard: zero3 (everything), zero2 (gradients and optimizer state), zero1 (optimizer state), ddp (nothing), or "
     "hsdp:S (zero3 in groups of S ranks; each group is a replica) [zero3]",
     2},
    {"slots", OPTION_SLOTS, "G,D", 0, "number of gather buffers and gradient buffers [2,2]", 2},
    {"fabric", OPTION_FABRIC, "GBPS,US", 0, "simulated link: gigabytes a second, microseconds of latency", 2},
    {"recompute", OPTION_RECOMPUTE, "WHAT", 0,
     "recompute in backward: none, cheap (no matrix product), all, or the first N blocks [none]", 2},
    {"head-chunks", OPTION_HEAD_CHUNKS, "N", 0, "pieces of the head [enough for logits below 32 MiB, in bf16 64, on a GPU 512]", 2},
    {"granularity", OPTION_GRANULARITY, "UNIT", 0,
     "unit of sharding: block, half (attention and MLP apart), blocks:N, or size:BYTES (blocks until their weights take so much) "
     "[block]",
     2},
    {"norms-beside", OPTION_NORMS_BESIDE, NULL, 0,
     "with --device cuda: take the gradient norm's sums beside backward passes; the arena may grow", 2},
    {"no-prefetch", OPTION_NO_PREFETCH, NULL, 0, "gather weights only at their use, for comparison", 2},
    {"budget", OPTION_BUDGET, "BYTES", 0,
     "memory of a rank (such as 4GiB, or available; of GPUs DEVICE,HOST): choose recompute, slots and what is offloaded for the "
     "fastest step within it; no bit changes",
     2},
    {"budget-may-change-bits", OPTION_MAY_CHANGE_BITS, NULL, 0, "with --budget: choose the pieces of the head too", 2},
    {"rates", OPTION_RATES, "FILE.json", 0,
     "with --budget: speeds of a rank; measure: at the start [measure; with --resume: those of the checkpoint]", 2},
    {"bucketing", OPTION_BUCKETING, "G,R", 0,
     "blocks that one all-gather brings, and that one reduce-scatter reduces, with buffers for all of them; auto: what is "
     "predicted to be fastest, by --fabric or --rates [1,1]",
     2},
    {"offload-layers", OPTION_OFFLOAD_LAYERS, "N", 0,
     "keep optimizer state (with bf16 also the low halves of the weights) of N layers, or all, on disk, with GPUs in host memory [0]", 2},
    {"offload-slots", OPTION_OFFLOAD_SLOTS, "N", 0, "number of these layers that are back at a time for their update [2]", 2},
    {"offload-gradients", OPTION_OFFLOAD_GRADIENTS, NULL, 0, "their gradients too, between reduction and update", 2},
    {"offload-activations", OPTION_OFFLOAD_ACTIVATIONS, "N", 0,
     "keep what N blocks, or all, save for the backward pass there too, between the passes [0]", 2},
    {"offload-folder", OPTION_OFFLOAD_FOLDER, "DIR", 0,
     "folder of the file for them; it has no name and ends with the run [that of --checkpoint, else the current one]", 2},
    {"implicit-prefetch", OPTION_IMPLICIT_PREFETCH, NULL, 0, "dynamic memory: gather as FSDP2 does by default", 2},
    {"reduce-inputs", OPTION_REDUCE_INPUTS, "K", 0, "dynamic memory: reduce-scatter inputs in flight [1]", 2},
    {"place-threads", OPTION_PLACE_THREADS, NULL, 0, "bind ranks to cores and their memory to the nearest node", 2},
    {"peak-seconds", OPTION_PEAK_SECONDS, "S", 0, "time to measure the machine's matrix products [0.7]", 2},
    {"peak-tflops", OPTION_PEAK_TFLOPS, "X", 0,
     "with --device cuda: peak speed in the card's data sheet (H200, bf16, dense: 989), to print the utilisation", 2},
    {.doc = "Training:", .group = 3},
    {"batch", OPTION_BATCH, "B", 0, "sequences in a micro-batch of a rank [2]", 3},
    {"seq", OPTION_SEQ, "T", 0, "tokens in a sequence [256]", 3},
    {"micro-batches", OPTION_MICRO_BATCHES, "M", 0, "micro-batches in a step [1]", 3},
    {"steps", OPTION_STEPS, "N", 0, "number of steps [train: 250, headtohead: 30]", 3},
    {"optimizer", OPTION_OPTIMIZER, "NAME", 0, "adamw, adamw8bit (its state in 8 bits), sgd (with momentum), lion or "
     "muon [adamw]", 3},
    {"lr", OPTION_LR, "X", 0, "learning rate after warm-up [0.0006; sgd: 0.1; lion: 0.0001]", 3},
    {"learning-rate", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"warmup", OPTION_WARMUP, "N", 0, "steps of warm-up, with a rising learning rate [a tenth, at most 20]", 3},
    {"schedule", OPTION_SCHEDULE, "NAME", 0,
     "learning rate after warm-up: cosine, linear, constant, wsd:F (constant, then a line over the last F of the steps; F [0.1]) "
     "or step:N,G (times G every N steps) [cosine]",
     3},
    {"min-lr", OPTION_MINIMUM_RATE, "X", 0, "learning rate at the end of cosine, linear and wsd [cosine: a tenth of --lr; 0]", 3},
    {"beta1", OPTION_BETA1, "X", 0, "beta1 of AdamW and Lion; momentum of SGD [0.9]", 3},
    {"momentum", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"beta2", OPTION_BETA2, "X", 0, "beta2 of AdamW and Lion [0.95; lion: 0.99]", 3},
    {"eps", OPTION_EPS, "X", 0, "AdamW's epsilon [1e-8]", 3},
    {"weight-decay", OPTION_WEIGHT_DECAY, "X", 0, "weight decay, on matrices; sgd: added to the gradient [0.1; sgd: 0; lion: 0.6]",
     3},
    {"clip", OPTION_CLIP, "X", 0, "largest norm of the gradient, 0: no limit [1]", 3},
    {"on-not-finite", OPTION_ON_NOT_FINITE, "WHAT", 0,
     "a step whose gradient is not finite: stop ends the run; skip lets it change nothing, and goes on [stop]", 3},
    {"dropout", OPTION_DROPOUT, "P", 0,
     "drop this share of what attention and MLP add to the stream; the masks are drawn anew for backward, from --seed, step and "
     "sequence [0]", 3},
    {"ema", OPTION_EMA, "DECAY", 0,
     "keep a moving average of the weights (0.999): it is validated, sampled and exported in their place [none]", 3},
    {"seed", OPTION_SEED, "N", 0, "random seed of weights and data [1]", 3},
    {0},
};

/* --- single options -------------------------------------------------------------------------------------------- */

static bool parse_shape(const char *text, eo_transformer_config *config)
{
    unsigned layers, width, heads;
    int used = 0;
    if (!isdigit((unsigned char)text[0]) || strlen(text) > 30 ||
        sscanf(text, "%6ux%6ux%6u%n", &layers, &width, &heads, &used) != 3 || text[used] != '\0')
        return false;
    *config = (eo_transformer_config){.family = EO_FAMILY_GPT2, .layer_count = layers, .width = width,
                                      .head_count = heads, .kv_head_count = heads, .mlp_width = 4 * width,
                                      .vocabulary = 256, .context = 256, .tied_head = true};
    return true;
}

static void parse_model(const struct argp_state *state, struct tool_options *options, const char *name)
{
    struct stat info;
    options->model_name = name;
    options->model_of_init = options->model_of_config = false;
    if (strcmp(name, "init") == 0) {
        options->model_of_init = true;
    } else if (parse_shape(name, &options->config)) {
        if (options->config.layer_count == 0 || options->config.width == 0 || options->config.head_count == 0)
            argp_error(state, "--model %s: a size of 0; layers, width and heads are at least 1", name);
        if (options->config.width % options->config.head_count)
            argp_error(state, "--model %s: %u heads do not divide the width %u; make the width a multiple of the heads",
                       name, options->config.head_count, options->config.width);
    } else if (eo_transformer_preset(name, &options->config) >= 0) {
        return;
    } else if (tool_model_preset_text(name) || strchr(name, '/') || stat(name, &info) == 0) {
        options->model_of_config = true;
    } else {
        char known[512] = "";
        for (uint32_t i = 0; eo_transformer_preset_name(i); i++)
            snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i ? ", " : "",
                     eo_transformer_preset_name(i));
        argp_error(state, "--model '%.200s' is unknown; known are %s, LAYERSxWIDTHxHEADS (such as 4x128x4), a config.json, and "
                   "a folder with one", name, known);
    }
}

const char *tool_memory_name(eo_memory memory)
{
    static const char *const names[] = {
        [EO_MEMORY_STATIC] = "static",
        [EO_MEMORY_DYNAMIC_MALLOC] = "dynamic:malloc",
        [EO_MEMORY_DYNAMIC_POOL] = "dynamic:pool",
        [EO_MEMORY_DYNAMIC_CACHING] = "dynamic:caching",
    };
    return (unsigned)memory < sizeof(names) / sizeof(names[0]) ? names[memory] : "unknown";
}

bool tool_memory_parse(const char *text, eo_memory *out)
{
    for (int mode = EO_MEMORY_STATIC; mode <= EO_MEMORY_DYNAMIC_CACHING; mode++)
        if (strcmp(text, tool_memory_name((eo_memory)mode)) == 0) {
            *out = (eo_memory)mode;
            return true;
        }
    return false;
}

static void add_path(const struct argp_state *state, const char ***paths, uint32_t *count, const char *path)
{
    const char **more = realloc(*paths, (*count + 1) * sizeof(*more));
    if (!more)
        argp_failure(state, TOOL_EXIT_FAILED, ENOMEM, "%s", path);
    *paths = more;
    more[(*count)++] = path;
}

/* Words behind --text or --tokens, which may also be given more than once: paths add up. */
static void add_data_path(const struct argp_state *state, struct tool_options *options, const char *path)
{
    if (options->words_are_tokens)
        add_path(state, &options->tokens_paths, &options->tokens_path_count, path);
    else
        add_path(state, &options->text_paths, &options->text_path_count, path);
}

static const char *name_of(int key)
{
    for (const struct argp_option *row = option_table; row->name || row->doc; row++)
        if (row->key == key)
            return row->name;
    return NULL;
}

static void parse_schedule(const struct argp_state *state, struct tool_schedule *schedule, const char *text)
{
    char why[160];
    if (!tool_schedule_parse(schedule, text, why, sizeof(why)))
        argp_error(state, "--schedule is '%.60s'; %s", text, why);
}

static void parse_training(const struct argp_state *state, struct tool_options *o, int key, const char *text)
{
    const char *name = name_of(key);
    switch (key) {
    case OPTION_BATCH:
        o->plan.batch = (uint32_t)tool_option_count(state, name, text, 1, 1 << 20);
        break;
    case OPTION_SEQ:
        o->plan.seq = (uint32_t)tool_option_count(state, name, text, 1, 1 << 20);
        break;
    case OPTION_MICRO_BATCHES:
        o->plan.micro_batches = (uint32_t)tool_option_count(state, name, text, 1, 4096);
        break;
    case OPTION_STEPS:
        o->steps = tool_option_count(state, name, text, 1, 1000000000);
        break;
    case OPTION_OPTIMIZER:
        if (!tool_optimizer_parse(text, &o->plan.optimizer))
            argp_error(state, "--optimizer is '%.60s'; give adamw, adamw8bit, sgd, lion or muon", text);
        break;
    case OPTION_LR:
        o->learning_rate = tool_option_real(state, name, text, 0, 1e30);
        break;
    case OPTION_WARMUP:
        o->warmup = tool_option_count(state, name, text, 0, 1000000000);
        break;
    case OPTION_SCHEDULE: parse_schedule(state, &o->schedule, text); break;
    case OPTION_MINIMUM_RATE:
        o->minimum_rate = tool_option_real(state, name, text, 0, 1e30);
        break;
    case OPTION_BETA1:
        o->beta1 = tool_option_real(state, name, text, 0, 0.999999);
        break;
    case OPTION_BETA2:
        o->beta2 = tool_option_real(state, name, text, 0, 0.999999);
        break;
    case OPTION_EPS:
        o->eps = tool_option_real(state, name, text, 0, 1);
        break;
    case OPTION_WEIGHT_DECAY:
        o->weight_decay = tool_option_real(state, name, text, 0, 1000);
        break;
    case OPTION_CLIP:
        o->clip = tool_option_real(state, name, text, 0, 1e30);
        break;
    case OPTION_ON_NOT_FINITE: o->skips = tool_option_choice(state, name, text, "stop", "skip"); break;
    case OPTION_DROPOUT: o->plan.dropout = tool_option_real(state, name, text, 0, 0.99); break;
    case OPTION_EMA: o->plan.ema_decay = tool_option_ema(state, text); break;
    case OPTION_SEED:
        o->seed = tool_option_count(state, name, text, 0, UINT64_MAX);
        break;
    default: break;
    }
}

/* Before any kernel runs. */
static const char *select_instruction_set(const struct argp_state *state, const char *text)
{
    char all[96] = "";
    if (eo_kernels_select(text) >= 0)
        return text;
    for (uint32_t i = 0; eo_kernels_at(i); i++) {
        const size_t used = strlen(all);
        snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "", eo_kernels_at(i));
    }
    argp_error(state, "--instruction-set '%.40s' is not available on this machine; it has %s", text, all);
    return NULL;
}

static void parse_memory(const struct argp_state *state, struct tool_options *o, int key, const char *text)
{
    const char *name = name_of(key);
    char first[64], second[64];
    switch (key) {
    case OPTION_RANKS:
        o->plan.ranks = (uint32_t)tool_option_count(state, name, text, 1, TOOL_PLAN_RANKS_MAX);
        break;
    case OPTION_DEVICE: o->plan.device = tool_option_choice(state, name, text, "cpu", "cuda") ? "cuda" : "cpu"; break;
    case OPTION_DTYPE: o->plan.dtype = tool_option_dtype(state, name, text); break;
    case OPTION_GATHER: o->plan.float8_gather = tool_option_gather(state, text); break;
    case OPTION_PRODUCTS: o->plan.float8_products = tool_option_products(state, text); break;
    case OPTION_REDUCE: o->plan.reduce_dtype = tool_option_dtype(state, name, text); break;
    case OPTION_GRAPH: o->plan.graph = tool_option_choice(state, name, text, "off", "on"); break;
    case OPTION_GRAPH_TIMES: o->graph_times = tool_option_choice(state, name, text, "off", "on"); break;
    case OPTION_CUPTI: o->cupti = tool_option_choice(state, name, text, "off", "on"); break;
    case OPTION_CUPTI_LIBRARY: o->cupti_library = text; break;
    case OPTION_PLAN_CACHE: o->plan_cache = text; break;
    case OPTION_REPEATABLE: o->repeatable = true; break;
    case OPTION_INSTRUCTION_SET:
        o->instruction_set = select_instruction_set(state, text);
        break;
    case OPTION_THREADS:
        o->plan.threads = (uint32_t)tool_option_count(state, name, text, 1, 1024);
        break;
    case OPTION_MEMORY:
        if (!tool_memory_parse(text, &o->memory))
            argp_error(state, "--memory is '%s'; give static, dynamic:malloc, dynamic:pool or dynamic:caching", text);
        break;
    case OPTION_STRATEGY:
        if (!tool_strategy_parse(text, &o->plan))
            argp_error(state, "--strategy is '%.60s'; give zero3, zero2, zero1, ddp or hsdp:S", text);
        break;
    case OPTION_SLOTS: tool_option_slots(state, text, &o->plan); break;
    case OPTION_FABRIC:
        tool_option_pair(state, name, text, "two numbers: gigabytes a second, microseconds (such as 12.5,10)", first, second,
                         sizeof(first));
        o->fabric_gigabytes_per_s = tool_option_real(state, name, first, 1e-6, 1e6);
        o->fabric_latency_us = tool_option_real(state, name, second, 0, 1e6);
        break;
    case OPTION_RECOMPUTE: tool_option_recompute(state, text, &o->plan); break;
    case OPTION_HEAD_CHUNKS:
        o->plan.head_chunks = (uint32_t)tool_option_count(state, name, text, 1, 1 << 20);
        break;
    case OPTION_GRANULARITY: tool_option_granularity(state, text, &o->plan); break;
    case OPTION_NORMS_BESIDE: o->plan.norms_beside = true; break;
    case OPTION_NO_PREFETCH: o->plan.no_prefetch = true; break;
    case OPTION_BUDGET:
        o->budget_available = strcmp(text, "available") == 0;
        o->budget_bytes = o->budget_host_bytes = 0;
        if (!o->budget_available)
            tool_option_budget(state, text, &o->budget_bytes, &o->budget_host_bytes);
        break;
    case OPTION_MAY_CHANGE_BITS:
        o->budget_may_change_bits = true;
        break;
    case OPTION_RATES:
        o->measures_rates = strcmp(text, "measure") == 0;
        o->rates_path = o->measures_rates ? NULL : text;
        break;
    case OPTION_BUCKETING: o->bucketing_auto = tool_option_bucketing(state, text, &o->plan); break;
    case OPTION_OFFLOAD_LAYERS: tool_option_offload_layers(state, text, &o->plan); break;
    case OPTION_OFFLOAD_SLOTS: o->plan.offload_slots = (uint32_t)tool_option_count(state, name, text, 1, 64); break;
    case OPTION_OFFLOAD_GRADIENTS:
        o->plan.offload_gradients = true;
        break;
    case OPTION_OFFLOAD_ACTIVATIONS: tool_option_offload_activations(state, text, &o->plan); break;
    case OPTION_OFFLOAD_FOLDER: o->offload_folder = text; break;
    case OPTION_IMPLICIT_PREFETCH: o->implicit_prefetch = true; break;
    case OPTION_REDUCE_INPUTS:
        o->reduce_inputs = (uint32_t)tool_option_count(state, name, text, 1, 64);
        break;
    case OPTION_PLACE_THREADS: o->place_threads = true; break;
    case OPTION_PEAK_SECONDS:
        o->peak_seconds = tool_option_real(state, name, text, 0, 3600);
        break;
    case OPTION_PEAK_TFLOPS:
        o->peak_tflops = tool_option_real(state, name, text, 1e-3, 1e9);
        break;
    default: break;
    }
}

/* --- all of them together -------------------------------------------------------------------------------------- */

static bool is_given(const struct tool_options *options, int key)
{
    return options->given & (uint64_t)1 << (key - OPTION_MODEL);
}

bool tool_option_given(const struct tool_options *options, const char *name)
{
    for (const struct argp_option *row = option_table; row->name || row->doc; row++)
        if (row->name && strcmp(row->name, name) == 0)
            return is_given(options, row->key);
    abort(); /* a name of ours */
}

bool tool_options_on_gpu(const struct tool_options *options)
{
    return strcmp(options->plan.device, "cpu") != 0;
}

/* Groups and modes; how many ranks there are may be known from the environment alone: then the plan refuses groups. */
static void check_strategy(const struct argp_state *state, struct tool_options *o)
{
    if (o->plan.strategy == EO_STRATEGY_HSDP && is_given(o, OPTION_RANKS) && o->plan.ranks % o->plan.shard_group)
        argp_error(state, "--strategy hsdp:%u: groups of %u do not divide --ranks %u", o->plan.shard_group, o->plan.shard_group,
                   o->plan.ranks);
    if (o->plan.strategy == EO_STRATEGY_ZERO3 || o->memory == EO_MEMORY_STATIC)
        return;
    if (is_given(o, OPTION_MEMORY))
        argp_error(state, "--strategy %s needs --memory static: the dynamic modes are FSDP2's full sharding, zero3",
                   eo_strategy_name(o->plan.strategy));
    o->plan.strategy = EO_STRATEGY_ZERO3; /* a comparison's other side */
    o->plan.shard_group = 0;
}

static void check_device(const struct argp_state *state, struct tool_options *o)
{
    const bool on_gpu = tool_options_on_gpu(o);
    if (o->memory == EO_MEMORY_DYNAMIC_CACHING && !on_gpu)
        argp_error(state, "--memory dynamic:caching is a GPU's allocator; with --device cpu use dynamic:pool");
    if (o->plan.graph && !on_gpu)
        argp_error(state, "--graph on: a CPU has no graphs; leave it out, or use --device cuda");
    if (o->plan.graph && o->memory != EO_MEMORY_STATIC && is_given(o, OPTION_MEMORY))
        argp_error(state, "--graph on needs --memory static: graphs need fixed addresses, and with %s they move",
                   tool_memory_name(o->memory));
    if ((o->cupti || o->cupti_library) && !on_gpu)
        argp_error(state, "--cupti needs --device cuda: it reports GPU activity");
    if (o->cupti_library && !o->cupti)
        argp_error(state, "--cupti-library needs --cupti on; add that, or leave it out");
    if (o->graph_times && is_given(o, OPTION_GRAPH_TIMES) && !on_gpu)
        argp_error(state, "--graph-times on needs --device cuda: a CPU has no graphs, and always reports its times");
    if (o->plan_cache && !on_gpu)
        argp_error(state, "--product-cache needs --device cuda; leave it out");
    if (on_gpu && is_given(o, OPTION_INSTRUCTION_SET))
        argp_error(state, "--instruction-set needs --device cpu; leave it out");
    if (o->plan.norms_beside && (!on_gpu || o->memory != EO_MEMORY_STATIC))
        argp_error(state, "--norms-beside needs --device cuda and --memory static; leave it out");
    if (o->repeatable && !on_gpu)
        argp_error(state, "--repeatable needs --device cuda: a CPU's bits are always the same");
    if (o->peak_tflops > 0 && !on_gpu)
        argp_error(state, "--peak-tflops needs --device cuda; a CPU's peak is measured (--peak-seconds)");
    if (on_gpu && is_given(o, OPTION_FABRIC))
        argp_error(state, "--fabric needs --device cpu: a GPU uses its real link");
    if (!is_given(o, OPTION_GRAPH))
        o->plan.graph = on_gpu;
    o->plan.graph = o->plan.graph && o->memory == EO_MEMORY_STATIC;
    if (on_gpu && o->plan.threads == 0)
        o->plan.threads = 1; /* they only issue work */
}

void tool_options_check_mode(const struct argp_state *state, const struct tool_options *o)
{
    const char *memory = tool_memory_name(o->memory);
    const bool is_static = o->memory == EO_MEMORY_STATIC;
    if (is_static && o->implicit_prefetch)
        argp_error(state, "--implicit-prefetch needs --memory dynamic:...; in static memory the plan decides the time of "
                   "gathers (--no-prefetch: at the weights' use)");
    if (is_static && is_given(o, OPTION_REDUCE_INPUTS))
        argp_error(state, "--reduce-inputs needs --memory dynamic:...; in static memory --slots G,D sets the number of "
                   "gradient buffers");
    if (!is_static && is_given(o, OPTION_SLOTS))
        argp_error(state, "--slots needs --memory static: %s takes buffers on demand (--reduce-inputs)", memory);
    if (o->graph_times && is_given(o, OPTION_GRAPH_TIMES) && !o->plan.graph)
        argp_error(state, "--graph-times on needs steps as a graph (--graph on, --memory static)");
}

static void check_budget(const struct argp_state *state, const struct tool_options *o)
{
    static const int chosen[] = {OPTION_RECOMPUTE,         OPTION_SLOTS,      OPTION_OFFLOAD_LAYERS, OPTION_OFFLOAD_SLOTS,
                                 OPTION_OFFLOAD_GRADIENTS, OPTION_OFFLOAD_ACTIVATIONS, OPTION_HEAD_CHUNKS};
    const size_t count = sizeof(chosen) / sizeof(chosen[0]) - !o->budget_may_change_bits;
    if (!is_given(o, OPTION_BUDGET)) {
        if ((is_given(o, OPTION_RATES) && !o->bucketing_auto) || o->budget_may_change_bits)
            argp_error(state, "--%s needs --budget BYTES, the memory of a rank",
                       o->budget_may_change_bits ? "budget-may-change-bits" : "rates");
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (is_given(o, chosen[i]))
            argp_error(state, "--budget chooses --%s; leave one of them out", name_of(chosen[i]));
    tool_option_check_budget(state, tool_options_on_gpu(o), o->budget_host_bytes);
    if (tool_options_on_gpu(o) && (!o->rates_path || o->measures_rates))
        argp_error(state, "--budget with --device cuda needs --rates FILE.json: nothing measures a GPU's speeds");
    if (o->memory != EO_MEMORY_STATIC)
        argp_error(state, "--budget needs --memory static: it bounds what is planned");
}

static void check_bucketing(const struct argp_state *state, const struct tool_options *o)
{
    if (!is_given(o, OPTION_BUCKETING))
        return;
    if (o->memory != EO_MEMORY_STATIC || o->plan.no_prefetch)
        argp_error(state, "--bucketing needs --memory static, and no --no-prefetch: the plan joins gathers ahead of their use");
    if (o->plan.gradient_run > 1 && o->plan.offload_gradients)
        argp_error(state, "--bucketing %u,%u with --offload-gradients: they leave one by one; give --bucketing %u,1",
                   o->plan.gather_run, o->plan.gradient_run, o->plan.gather_run);
    if (o->plan.gather_run * o->plan.gather_slots > 64 || o->plan.gradient_run * o->plan.gradient_slots > 64)
        argp_error(state, "--bucketing %u,%u with --slots %u,%u: a slot has a buffer for each block; at most 64 of each kind are "
                   "possible", o->plan.gather_run, o->plan.gradient_run, o->plan.gather_slots, o->plan.gradient_slots);
    if (o->bucketing_auto && tool_options_on_gpu(o) && (!o->rates_path || o->measures_rates))
        argp_error(state, "--bucketing auto with --device cuda needs --rates FILE.json: nothing measures the link of GPUs");
}

/* What is not given is as usual with the optimizer. */
static void complete_optimizer(const struct argp_state *state, struct tool_options *o)
{
    static const struct {
        double learning_rate, beta2, weight_decay;
    } usual[EO_OPTIMIZER_COUNT] = {
        [EO_OPTIMIZER_ADAMW] = {0.0006, 0.95, 0.1},
        [EO_OPTIMIZER_SGD] = {0.1, 0, 0},
        [EO_OPTIMIZER_LION] = {0.0001, 0.99, 0.6},
        [EO_OPTIMIZER_ADAMW8BIT] = {0.0006, 0.95, 0.1},
        [EO_OPTIMIZER_MUON] = {0.0006, 0.95, 0.1},
    };
    const bool has_eps = o->plan.optimizer != EO_OPTIMIZER_SGD && o->plan.optimizer != EO_OPTIMIZER_LION;
    if (!has_eps && is_given(o, OPTION_EPS))
        argp_error(state, "--eps is AdamW's; with --optimizer %s leave it out", eo_optimizer_name(o->plan.optimizer));
    if (o->plan.optimizer == EO_OPTIMIZER_SGD && is_given(o, OPTION_BETA2))
        argp_error(state, "--beta2: SGD has none; with --optimizer sgd leave it out");
    if (!is_given(o, OPTION_LR))
        o->learning_rate = usual[o->plan.optimizer].learning_rate;
    if (!is_given(o, OPTION_BETA2))
        o->beta2 = usual[o->plan.optimizer].beta2;
    if (!is_given(o, OPTION_WEIGHT_DECAY))
        o->weight_decay = usual[o->plan.optimizer].weight_decay;
}

static void check_together(const struct argp_state *state, struct tool_options *o)
{
    complete_optimizer(state, o);
    check_device(state, o);
    check_strategy(state, o);
    if (o->text_paths && o->tokens_paths)
        argp_error(state, "--text and --tokens are both given; give one of them");
    if (o->tokenizer_path && !o->tokens_paths)
        argp_error(state, "--tokenizer needs --tokens; bytes of a text need none");
    if (o->plan.packed && !o->tokens_paths && !o->plan_only)
        argp_error(state, "--pack documents needs --tokens; a text has no documents");
    if (o->shuffle && !o->tokens_paths)
        argp_error(state, "--shuffle needs --tokens; places in a text are drawn anyway");
    if (o->init_path && !is_given(o, OPTION_MODEL)) { /* the shape of the files, then */
        o->model_of_init = true;
        o->model_name = "init";
    }
    if (o->model_of_init && !o->init_path)
        argp_error(state, "--model init takes the shape of existing weights; name them with --init FILE.bin, or a folder");
    if (is_given(o, OPTION_WARMUP) && o->warmup > o->steps)
        argp_error(state, "--warmup %llu is longer than the run of --steps %llu; give fewer",
                   (unsigned long long)o->warmup, (unsigned long long)o->steps);
    if (!is_given(o, OPTION_WARMUP))
        o->warmup = o->steps / 10 < 20 ? o->steps / 10 : 20;
    if (o->minimum_rate > o->learning_rate)
        argp_error(state, "--min-lr %g is above --lr %g; give a smaller one", o->minimum_rate, o->learning_rate);
    if (is_given(o, OPTION_MINIMUM_RATE) && !tool_schedule_has_minimum(&o->schedule))
        argp_error(state, "--min-lr belongs to --schedule cosine, linear and wsd; leave it out");
    check_budget(state, o);
    check_bucketing(state, o);
    if (!o->plan.offload_layers && !is_given(o, OPTION_BUDGET) &&
        (is_given(o, OPTION_OFFLOAD_SLOTS) || o->plan.offload_gradients))
        argp_error(state, "%s needs --offload-layers N, the number of offloaded layers",
                   is_given(o, OPTION_OFFLOAD_SLOTS) ? "--offload-slots" : "--offload-gradients");
    if (o->plan.offload_gradients && o->plan.micro_batches > 1)
        argp_error(state, "--offload-gradients needs --micro-batches 1: gradients are added up over several");
    if (is_given(o, OPTION_OFFLOAD_FOLDER) && tool_options_on_gpu(o))
        argp_error(state, "--offload-folder needs --device cpu: with GPUs the host's memory takes what is offloaded");
    if (tool_plan_settings_offload(&o->plan) && o->memory != EO_MEMORY_STATIC)
        argp_error(state, "--offload-%s needs --memory static: what is offloaded is planned",
                   o->plan.offload_layers ? "layers" : "activations");
    if (o->plan.no_prefetch && o->memory != EO_MEMORY_STATIC && is_given(o, OPTION_MEMORY))
        argp_error(state, "--no-prefetch needs --memory static; with %s use --implicit-prefetch", tool_memory_name(o->memory));
    if (o->memory != EO_MEMORY_STATIC) /* a comparison's other side */
        o->plan.no_prefetch = false;
    if (o->world_ranks && is_given(o, OPTION_RANKS) && o->plan.ranks != o->world_ranks)
        argp_error(state, "--ranks is %u, but %s has started %u; leave --ranks out", o->plan.ranks, o->world_launcher,
                   o->world_ranks);
    if (o->world_ranks)
        o->plan.ranks = o->world_ranks;
    if (!o->plan_only && !o->world_ranks && o->plan.ranks > TOOL_RUN_RANKS_MAX)
        argp_error(state, "--ranks is %u, but at most %d run in one process (--plan takes more)", o->plan.ranks,
                   TOOL_RUN_RANKS_MAX);
    tool_option_check_gather(state, &o->plan, "ranks 1");
    tool_option_check_products(state, &o->plan, "--device cuda");
    const uint32_t sharing = tool_options_host_ranks(o);
    if (o->plan.threads == 0)
        o->plan.threads = tool_core_count() / sharing ? tool_core_count() / sharing : 1;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct tool_options *options = state->input;
    if (key > OPTION_TOKENS && key < OPTION_END)
        options->given |= (uint64_t)1 << (key - OPTION_MODEL);
    switch (key) {
    case OPTION_MODEL:
        options->given |= 1;
        parse_model(state, options, text);
        return 0;
    case OPTION_TEXT:
    case OPTION_TOKENS:
        options->words_are_tokens = key == OPTION_TOKENS;
        add_data_path(state, options, text);
        return 0;
    case OPTION_SHUFFLE: options->shuffle = true; return 0;
    case OPTION_PACK: options->plan.packed = tool_option_choice(state, "pack", text, "none", "documents"); return 0;
    case OPTION_TOKENIZER: options->tokenizer_path = text; return 0;
    case OPTION_INIT: options->init_path = text; return 0;
    case ARGP_KEY_ARG: /* --text and --tokens take all words that follow */
        if (!options->text_paths && !options->tokens_paths)
            argp_error(state, "'%s' belongs to no option; files and folders to train on follow --text", text);
        add_data_path(state, options, text);
        return 0;
    case ARGP_KEY_END: check_together(state, options); return 0;
    default: break;
    }
    if (key < OPTION_RANKS || key >= OPTION_END)
        return ARGP_ERR_UNKNOWN;
    parse_memory(state, options, key, text);
    parse_training(state, options, key, text);
    return 0;
}

const struct argp tool_options_argp = {.options = option_table, .parser = parse_option};

static bool is_file_or_folder(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0;
}

eo_status tool_options_check_output(const struct tool_options *options, const char *option, const char *path,
                                    struct tool_problem *problem)
{
    const struct tool_input inputs[] = {
        {"--val-tokens", options->val_tokens_path},
        {"--init", options->init_path},
        {"--init-adapter", options->adapter_path},
        {"--tokenizer", options->tokenizer_path},
        {"--rates", options->rates_path},
        {"--cupti-library", options->cupti_library},
        {"--model", is_file_or_folder(options->model_name) && options->model_of_config ? options->model_name : NULL},
    };
    EO_TRY(tool_check_writable(option, path, problem));
    EO_TRY(tool_overwrite_no_input(option, path, inputs, sizeof(inputs) / sizeof(inputs[0]), problem));
    for (uint32_t i = 0; i < options->text_path_count; i++) {
        const struct tool_input text = {"--text", options->text_paths[i]};
        EO_TRY(tool_overwrite_no_input(option, path, &text, 1, problem));
    }
    for (uint32_t i = 0; i < options->tokens_path_count; i++) {
        const struct tool_input tokens = {"--tokens", options->tokens_paths[i]};
        EO_TRY(tool_overwrite_no_input(option, path, &tokens, 1, problem));
    }
    return EO_OK;
}

void tool_options_init(struct tool_options *options)
{
    *options = (struct tool_options){
        .model_name = "small",
        .plan = {.ranks = 2, .gather_slots = 2, .gradient_slots = 2, .batch = 2, .micro_batches = 1, .device = "cpu"},
        .reduce_inputs = 1,
        .steps = 250,
        .seed = 1,
        .minimum_rate = -1,
        .beta1 = 0.9,
        .eps = 1e-8,
        .clip = 1,
        .peak_seconds = 0.7,
    };
    if (eo_transformer_preset(options->model_name, &options->config) < 0)
        abort(); /* a preset of ours */
}

void tool_options_fini(struct tool_options *options)
{
    free(options->text_paths);
    free(options->tokens_paths);
    options->text_paths = options->tokens_paths = NULL;
}

double tool_options_learning_rate(const struct tool_options *options, uint64_t step)
{
    const struct tool_schedule_run run = {options->learning_rate, options->minimum_rate, options->warmup, options->steps};
    return tool_schedule_at(&options->schedule, &run, step);
}

uint32_t tool_core_count(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof(cores), &cores) != 0)
        return 1;
    const int count = CPU_COUNT(&cores);
    return count > 0 ? (uint32_t)count : 1;
}

uint32_t tool_options_host_ranks(const struct tool_options *options)
{
    return options->world_ranks ? options->host_ranks : options->plan.ranks;
}

void tool_warn_of_many_threads(const struct tool_options *options)
{
    if (options->world_ranks) /* who starts processes also binds them */
        return;
    const uint64_t threads = (uint64_t)options->plan.ranks * options->plan.threads;
    if (threads > tool_core_count())
        fprintf(stderr,
                "%s: warning: --ranks %u x --threads %u are more threads than the %u available cores; it will be slow, lower "
                "one of them\n",
                program_invocation_short_name, options->plan.ranks, options->plan.threads, tool_core_count());
}
