/* SPDX-License-Identifier: MIT */
#include "tools/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/model_config.h"
#include "tools/overwrite.h"
#include "tools/step_log.h"

enum option_key {
    OPTION_MODEL = 0x100,
    OPTION_TEXT,
    OPTION_TOKENS,
    OPTION_INIT,
    OPTION_RANKS,
    OPTION_DEVICE,
    OPTION_DTYPE,
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
    OPTION_LR,
    OPTION_WARMUP,
    OPTION_BETA1,
    OPTION_BETA2,
    OPTION_EPS,
    OPTION_WEIGHT_DECAY,
    OPTION_CLIP,
    OPTION_SEED,
    OPTION_SCHEDULE,
    OPTION_RECOMPUTE,
    OPTION_HEAD_CHUNKS,
    OPTION_GRANULARITY,
    OPTION_NO_PREFETCH,
    OPTION_IMPLICIT_PREFETCH,
    OPTION_REDUCE_INPUTS,
    OPTION_PLACE_THREADS,
    OPTION_PEAK_SECONDS,
    OPTION_PEAK_TFLOPS,
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
     "init for the shape of the --init weights [small; with --init: init]", 1},
    {"text", OPTION_TEXT, "PATH...", 0,
     "train on the bytes of files or folders; the last tenth is held back [documents of this project, 190 KB]", 1},
    {"tokens", OPTION_TOKENS, "FILE.bin...", 0, "train on token files of llm.c, one after the other, in their order", 1},
    {"init", OPTION_INIT, "PATH", 0,
     "start from a Hugging Face folder (config.json, safetensors), or a GPT-2 checkpoint of llm.c (FILE.bin)", 1},
    {.doc = "Ranks and memory:", .group = 2},
    {"ranks", OPTION_RANKS, "N", 0, "the model is sharded over so many [2; under a launcher as many as it started]", 2},
    {"device", OPTION_DEVICE, "NAME", 0, "that computes: cpu or cuda (ranks share the GPUs there are) [cpu]", 2},
    {"dtype", OPTION_DTYPE, "TYPE", 0,
     "of weights and activations as computed with: fp32 or bf16; master weights are fp32 in both [fp32]", 2},
    {"reduce", OPTION_REDUCE, "TYPE", 0, "of gradients that are reduced: fp32 or bf16 (fp32 still where a strategy adds up before) [fp32]", 2},
    {"graph", OPTION_GRAPH, "WHEN", 0, "steps run as one graph: on or off [train --device cuda --memory static: on]", 2},
    {"graph-times", OPTION_GRAPH_TIMES, "WHEN", 0,
     "of steps that run as a graph, what each operation took, at the cost of a mark on the GPU for each: on or off "
     "[with --trace: on]", 2},
    {"cupti", OPTION_CUPTI, "WHEN", 0,
     "with --device cuda: NVIDIA's CUPTI tells which kernels and copies really ran, for the report and the trace; slows "
     "the run: on or off [off]", 2},
    {"cupti-library", OPTION_CUPTI_LIBRARY, "FILE", 0, "CUPTI is loaded from there [where the loader finds libcupti]", 2},
    {"product-cache", OPTION_PLAN_CACHE, "FILE", 0,
     "with --device cuda: keep what was found out about products, for the next run [tried out in each run]", 2},
    {"repeatable", OPTION_REPEATABLE, NULL, 0,
     "with --device cuda: the same bits in every run, with slower attention and products that were not tried out", 2},
    {"threads", OPTION_THREADS, "N", 0, "of each rank [cores / ranks that may run on them; 1 with --device cuda]", 2},
    {"memory", OPTION_MEMORY, "MODE", 0,
     "static, dynamic:malloc, dynamic:pool or (with --device cuda) dynamic:caching [static]", 2},
    {"strategy", OPTION_STRATEGY, "NAME", 0,
     "what lies on a rank in parts: zero3 (everything), zero2 (gradients and optimizer state), zero1 (optimizer state), "
     "ddp (nothing), or hsdp:S (zero3 in groups of S ranks, which are replicas) [zero3]", 2},
    {"slots", OPTION_SLOTS, "G,D", 0, "gather buffers and gradient buffers [2,2]", 2},
    {"fabric", OPTION_FABRIC, "GBPS,US", 0, "a simulated link: gigabytes a second, microseconds of latency", 2},
    {"recompute", OPTION_RECOMPUTE, "WHAT", 0,
     "in backward: none, cheap (no matrix product), all, or the first N blocks [none]", 2},
    {"head-chunks", OPTION_HEAD_CHUNKS, "N", 0,
     "the head runs in so many pieces [so that logits stay below 32 MiB, on a GPU 512]", 2},
    {"granularity", OPTION_GRANULARITY, "UNIT", 0, "of sharding: block, or half (attention and MLP apart) [block]", 2},
    {"no-prefetch", OPTION_NO_PREFETCH, NULL, 0, "gather weights only when they are needed, for comparison", 2},
    {"implicit-prefetch", OPTION_IMPLICIT_PREFETCH, NULL, 0, "dynamic memory: gather as FSDP2 does by default", 2},
    {"reduce-inputs", OPTION_REDUCE_INPUTS, "K", 0, "dynamic memory: reduce-scatter inputs in flight [1]", 2},
    {"place-threads", OPTION_PLACE_THREADS, NULL, 0, "bind ranks to cores and their memory to the nearest node", 2},
    {"peak-seconds", OPTION_PEAK_SECONDS, "S", 0, "time spent on measuring the machine's matrix products [0.7]", 2},
    {"peak-tflops", OPTION_PEAK_TFLOPS, "X", 0,
     "with --device cuda: of the card's data sheet (H200, bf16, dense: 989), for the utilisation that is printed", 2},
    {.doc = "Training:", .group = 3},
    {"batch", OPTION_BATCH, "B", 0, "sequences of a rank and micro-batch [2]", 3},
    {"seq", OPTION_SEQ, "T", 0, "tokens of a sequence [256]", 3},
    {"micro-batches", OPTION_MICRO_BATCHES, "M", 0, "a step [1]", 3},
    {"steps", OPTION_STEPS, "N", 0, "of the run [train: 250, headtohead: 30]", 3},
    {"lr", OPTION_LR, "X", 0, "learning rate after warm-up [0.0006]", 3},
    {"learning-rate", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"warmup", OPTION_WARMUP, "N", 0, "steps in which the learning rate rises from 0 [a tenth, at most 20]", 3},
    {"schedule", OPTION_SCHEDULE, "NAME", 0, "after warm-up: cosine (to a tenth) or constant [cosine]", 3},
    {"beta1", OPTION_BETA1, "X", 0, "of AdamW [0.9]", 3},
    {"beta2", OPTION_BETA2, "X", 0, "of AdamW [0.95]", 3},
    {"eps", OPTION_EPS, "X", 0, "of AdamW [1e-8]", 3},
    {"weight-decay", OPTION_WEIGHT_DECAY, "X", 0, "of AdamW, on matrices [0.1]", 3},
    {"clip", OPTION_CLIP, "X", 0, "largest norm of the gradient, 0: no limit [1]", 3},
    {"seed", OPTION_SEED, "N", 0, "of weights and data [1]", 3},
    {0},
};

/* --- numbers --------------------------------------------------------------------------------------------------- */

uint64_t eo_option_count(const struct argp_state *state, const char *name, const char *text, uint64_t least,
                         uint64_t most)
{
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0') /* strtoull takes signs and blanks */
        argp_error(state, "--%s is '%s'; give a whole number from %llu to %llu", name, text,
                   (unsigned long long)least, (unsigned long long)most);
    if (errno == ERANGE || value < least || value > most)
        argp_error(state, "--%s is %s, which is too %s; give a number from %llu to %llu", name, text,
                   errno != ERANGE && value < least ? "small" : "large", (unsigned long long)least,
                   (unsigned long long)most);
    return value;
}

double eo_option_real(const struct argp_state *state, const char *name, const char *text, double least, double most)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < least || value > most)
        argp_error(state, "--%s is '%s'; give a number from %g to %g", name, text, least, most);
    return value;
}

/* "A,B" into two texts of `bytes` each. */
static void split_pair(const struct argp_state *state, const char *name, const char *text, const char *what,
                       char *first, char *second, size_t bytes)
{
    const char *comma = strchr(text, ',');
    if (!comma || comma == text || strlen(text) >= bytes || strchr(comma + 1, ','))
        argp_error(state, "--%s is '%s'; give %s", name, text, what);
    snprintf(first, bytes, "%.*s", (int)(comma - text), text);
    snprintf(second, bytes, "%s", comma + 1);
}

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

static void parse_model(const struct argp_state *state, struct eo_options *options, const char *name)
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
    } else if (eo_model_preset_text(name) || strchr(name, '/') || stat(name, &info) == 0) {
        options->model_of_config = true;
    } else {
        char known[512] = "";
        for (uint32_t i = 0; eo_transformer_preset_name(i); i++)
            snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i ? ", " : "",
                     eo_transformer_preset_name(i));
        argp_error(state, "--model '%.200s' is not known; there are %s, LAYERSxWIDTHxHEADS (such as 4x128x4), a "
                   "config.json, and a folder with one", name, known);
    }
}

const char *eo_memory_name(eo_memory memory)
{
    static const char *const names[] = {
        [EO_MEMORY_STATIC] = "static",
        [EO_MEMORY_DYNAMIC_MALLOC] = "dynamic:malloc",
        [EO_MEMORY_DYNAMIC_POOL] = "dynamic:pool",
        [EO_MEMORY_DYNAMIC_CACHING] = "dynamic:caching",
    };
    return (unsigned)memory < sizeof(names) / sizeof(names[0]) ? names[memory] : "unknown";
}

bool eo_memory_parse(const char *text, eo_memory *out)
{
    for (int mode = EO_MEMORY_STATIC; mode <= EO_MEMORY_DYNAMIC_CACHING; mode++)
        if (strcmp(text, eo_memory_name((eo_memory)mode)) == 0) {
            *out = (eo_memory)mode;
            return true;
        }
    return false;
}

static void parse_recompute(const struct argp_state *state, struct eo_options *options, const char *text)
{
    options->recompute_blocks = 0;
    if (strcmp(text, "none") == 0) {
        options->recompute = EO_RECOMPUTE_NONE;
    } else if (strcmp(text, "cheap") == 0) {
        options->recompute = EO_RECOMPUTE_CHEAP;
    } else if (strcmp(text, "all") == 0) {
        options->recompute = EO_RECOMPUTE_BLOCKS;
        options->recompute_blocks = UINT32_MAX;
    } else if (isdigit((unsigned char)text[0])) {
        options->recompute_blocks = (uint32_t)eo_option_count(state, "recompute", text, 0, 1 << 20);
        options->recompute = options->recompute_blocks ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_NONE;
    } else {
        argp_error(state, "--recompute is '%s'; give none, cheap, all, or a number of blocks", text);
    }
}

static void add_path(const struct argp_state *state, const char ***paths, uint32_t *count, const char *path)
{
    const char **more = realloc(*paths, (*count + 1) * sizeof(*more));
    if (!more)
        argp_failure(state, EO_EXIT_FAILED, ENOMEM, "%s", path);
    *paths = more;
    more[(*count)++] = path;
}

/* Words behind --text or --tokens, which may also be given more than once: paths add up. */
static void add_data_path(const struct argp_state *state, struct eo_options *options, const char *path)
{
    if (options->words_are_tokens)
        add_path(state, &options->tokens_paths, &options->tokens_path_count, path);
    else
        add_path(state, &options->text_paths, &options->text_path_count, path);
}

/* One of two words; true for the second. */
static bool parse_choice(const struct argp_state *state, const char *name, const char *text, const char *first,
                         const char *second)
{
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
        argp_error(state, "--%s is '%s'; give %s or %s", name, text, first, second);
    return strcmp(text, second) == 0;
}

static eo_dtype parse_dtype(const struct argp_state *state, const char *name, const char *text)
{
    return parse_choice(state, name, text, "fp32", "bf16") ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
}

static const char *name_of(int key)
{
    for (const struct argp_option *row = option_table; row->name || row->doc; row++)
        if (row->key == key)
            return row->name;
    return NULL;
}

static void parse_training(const struct argp_state *state, struct eo_options *o, int key, const char *text)
{
    const char *name = name_of(key);
    switch (key) {
    case OPTION_BATCH: o->batch = (uint32_t)eo_option_count(state, name, text, 1, 1 << 20); break;
    case OPTION_SEQ: o->seq = (uint32_t)eo_option_count(state, name, text, 1, 1 << 20); break;
    case OPTION_MICRO_BATCHES: o->micro_batches = (uint32_t)eo_option_count(state, name, text, 1, 4096); break;
    case OPTION_STEPS: o->steps = eo_option_count(state, name, text, 1, 1000000000); break;
    case OPTION_LR: o->learning_rate = eo_option_real(state, name, text, 0, 1e30); break;
    case OPTION_WARMUP: o->warmup = eo_option_count(state, name, text, 0, 1000000000); break;
    case OPTION_SCHEDULE: o->constant_schedule = parse_choice(state, name, text, "cosine", "constant"); break;
    case OPTION_BETA1: o->beta1 = eo_option_real(state, name, text, 0, 0.999999); break;
    case OPTION_BETA2: o->beta2 = eo_option_real(state, name, text, 0, 0.999999); break;
    case OPTION_EPS: o->eps = eo_option_real(state, name, text, 0, 1); break;
    case OPTION_WEIGHT_DECAY: o->weight_decay = eo_option_real(state, name, text, 0, 1000); break;
    case OPTION_CLIP: o->clip = eo_option_real(state, name, text, 0, 1e30); break;
    case OPTION_SEED: o->seed = eo_option_count(state, name, text, 0, UINT64_MAX); break;
    default: break;
    }
}

static void parse_memory(const struct argp_state *state, struct eo_options *o, int key, const char *text)
{
    const char *name = name_of(key);
    char first[64], second[64];
    switch (key) {
    case OPTION_RANKS: o->ranks = (uint32_t)eo_option_count(state, name, text, 1, EO_PLAN_RANKS_MAX); break;
    case OPTION_DEVICE: o->device = parse_choice(state, name, text, "cpu", "cuda") ? "cuda" : "cpu"; break;
    case OPTION_DTYPE: o->dtype = parse_dtype(state, name, text); break;
    case OPTION_REDUCE: o->reduce_dtype = parse_dtype(state, name, text); break;
    case OPTION_GRAPH: o->graph = parse_choice(state, name, text, "off", "on"); break;
    case OPTION_GRAPH_TIMES: o->graph_times = parse_choice(state, name, text, "off", "on"); break;
    case OPTION_CUPTI: o->cupti = parse_choice(state, name, text, "off", "on"); break;
    case OPTION_CUPTI_LIBRARY: o->cupti_library = text; break;
    case OPTION_PLAN_CACHE: o->plan_cache = text; break;
    case OPTION_REPEATABLE: o->repeatable = true; break;
    case OPTION_THREADS: o->threads = (uint32_t)eo_option_count(state, name, text, 1, 1024); break;
    case OPTION_MEMORY:
        if (!eo_memory_parse(text, &o->memory))
            argp_error(state, "--memory is '%s'; give static, dynamic:malloc, dynamic:pool or dynamic:caching", text);
        break;
    case OPTION_STRATEGY:
        if (!eo_strategy_parse(text, &o->strategy, &o->shard_group))
            argp_error(state, "--strategy is '%.60s'; give zero3, zero2, zero1, ddp or hsdp:S", text);
        break;
    case OPTION_SLOTS:
        split_pair(state, name, text, "two numbers: gather buffers, gradient buffers (such as 2,2)", first, second,
                   sizeof(first));
        o->gather_slots = (uint32_t)eo_option_count(state, name, first, 1, 64);
        o->gradient_slots = (uint32_t)eo_option_count(state, name, second, 1, 64);
        break;
    case OPTION_FABRIC:
        split_pair(state, name, text, "two numbers: gigabytes a second, microseconds (such as 12.5,10)", first,
                   second, sizeof(first));
        o->fabric_gigabytes_per_s = eo_option_real(state, name, first, 1e-6, 1e6);
        o->fabric_latency_us = eo_option_real(state, name, second, 0, 1e6);
        break;
    case OPTION_RECOMPUTE: parse_recompute(state, o, text); break;
    case OPTION_HEAD_CHUNKS: o->head_chunks = (uint32_t)eo_option_count(state, name, text, 1, 1 << 20); break;
    case OPTION_GRANULARITY: o->half_blocks = parse_choice(state, name, text, "block", "half"); break;
    case OPTION_NO_PREFETCH: o->no_prefetch = true; break;
    case OPTION_IMPLICIT_PREFETCH: o->implicit_prefetch = true; break;
    case OPTION_REDUCE_INPUTS: o->reduce_inputs = (uint32_t)eo_option_count(state, name, text, 1, 64); break;
    case OPTION_PLACE_THREADS: o->place_threads = true; break;
    case OPTION_PEAK_SECONDS: o->peak_seconds = eo_option_real(state, name, text, 0, 3600); break;
    case OPTION_PEAK_TFLOPS: o->peak_tflops = eo_option_real(state, name, text, 1e-3, 1e9); break;
    default: break;
    }
}

/* --- all of them together -------------------------------------------------------------------------------------- */

static bool is_given(const struct eo_options *options, int key)
{
    return options->given & (uint64_t)1 << (key - OPTION_MODEL);
}

bool eo_option_memory_given(const struct eo_options *options)
{
    return is_given(options, OPTION_MEMORY);
}

bool eo_option_threads_given(const struct eo_options *options)
{
    return is_given(options, OPTION_THREADS);
}

bool eo_option_graph_given(const struct eo_options *options)
{
    return is_given(options, OPTION_GRAPH);
}

bool eo_option_graph_times_given(const struct eo_options *options)
{
    return is_given(options, OPTION_GRAPH_TIMES);
}

bool eo_options_on_gpu(const struct eo_options *options)
{
    return strcmp(options->device, "cpu") != 0;
}

const char *eo_dtype_name(eo_dtype dtype)
{
    return dtype == EO_DTYPE_BF16 ? "bf16" : "fp32";
}

bool eo_strategy_parse(const char *text, eo_strategy *out, uint32_t *group)
{
    *group = 0;
    for (int k = 0; k < EO_STRATEGY_COUNT; k++) {
        *out = (eo_strategy)k;
        if (*out != EO_STRATEGY_HSDP && strcmp(text, eo_strategy_name(*out)) == 0)
            return true;
    }
    char *end;
    const unsigned long size = strncmp(text, "hsdp:", 5) == 0 && isdigit((unsigned char)text[5]) ? strtoul(text + 5, &end, 10) : 0;
    *out = EO_STRATEGY_HSDP;
    *group = (uint32_t)size;
    return size >= 1 && size <= EO_PLAN_RANKS_MAX && *end == '\0';
}

void eo_strategy_text(eo_strategy strategy, uint32_t group, char *text, size_t bytes)
{
    if (strategy == EO_STRATEGY_HSDP)
        snprintf(text, bytes, "%s:%u", eo_strategy_name(strategy), group);
    else
        snprintf(text, bytes, "%s", eo_strategy_name(strategy));
}

/* Groups and modes; how many ranks there are may be known from the environment alone: then the plan refuses groups. */
static void check_strategy(const struct argp_state *state, struct eo_options *o)
{
    if (o->strategy == EO_STRATEGY_HSDP && is_given(o, OPTION_RANKS) && o->ranks % o->shard_group)
        argp_error(state, "--strategy hsdp:%u: groups of %u do not divide --ranks %u", o->shard_group, o->shard_group,
                   o->ranks);
    if (o->strategy == EO_STRATEGY_ZERO3 || o->memory == EO_MEMORY_STATIC)
        return;
    if (is_given(o, OPTION_MEMORY))
        argp_error(state, "--strategy %s is for --memory static: the dynamic modes are FSDP2's full sharding, zero3",
                   eo_strategy_name(o->strategy));
    o->strategy = EO_STRATEGY_ZERO3; /* a comparison's other side */
    o->shard_group = 0;
}

static void check_device(const struct argp_state *state, struct eo_options *o)
{
    const bool on_gpu = eo_options_on_gpu(o);
    if (o->memory == EO_MEMORY_DYNAMIC_CACHING && !on_gpu)
        argp_error(state, "--memory dynamic:caching is a GPU's allocator; with --device cpu try dynamic:pool");
    if (o->graph && !on_gpu)
        argp_error(state, "--graph on: a CPU has no graphs; leave it out, or use --device cuda");
    if (o->graph && o->memory != EO_MEMORY_STATIC && is_given(o, OPTION_MEMORY))
        argp_error(state, "--graph on is for --memory static: addresses must stay, and with %s they move",
                   eo_memory_name(o->memory));
    if ((o->cupti || o->cupti_library) && !on_gpu)
        argp_error(state, "--cupti is for --device cuda: it tells what a GPU runs");
    if (o->cupti_library && !o->cupti)
        argp_error(state, "--cupti-library is for --cupti on; add that, or leave it out");
    if (o->graph_times && is_given(o, OPTION_GRAPH_TIMES) && !on_gpu)
        argp_error(state, "--graph-times on is for --device cuda: a CPU has no graphs, and tells its times anyway");
    if (o->plan_cache && !on_gpu)
        argp_error(state, "--product-cache is for --device cuda; leave it out");
    if (o->repeatable && !on_gpu)
        argp_error(state, "--repeatable is for --device cuda: a CPU's bits are always the same");
    if (o->peak_tflops > 0 && !on_gpu)
        argp_error(state, "--peak-tflops is for --device cuda; a CPU's peak is measured (--peak-seconds)");
    if (on_gpu && is_given(o, OPTION_FABRIC))
        argp_error(state, "--fabric is for --device cpu: on a GPU the real link counts");
    if (!is_given(o, OPTION_GRAPH))
        o->graph = on_gpu;
    o->graph = o->graph && o->memory == EO_MEMORY_STATIC;
    if (on_gpu && o->threads == 0)
        o->threads = 1; /* they only issue work */
}

void eo_options_check_mode(const struct argp_state *state, const struct eo_options *o)
{
    const char *memory = eo_memory_name(o->memory);
    const bool is_static = o->memory == EO_MEMORY_STATIC;
    if (is_static && o->implicit_prefetch)
        argp_error(state, "--implicit-prefetch is for --memory dynamic:...; in static memory the plan says when weights are "
                   "gathered (--no-prefetch: not before they are needed)");
    if (is_static && is_given(o, OPTION_REDUCE_INPUTS))
        argp_error(state, "--reduce-inputs is for --memory dynamic:...; in static memory gradient buffers are counted by "
                   "--slots G,D");
    if (!is_static && is_given(o, OPTION_SLOTS))
        argp_error(state, "--slots is for --memory static: %s takes buffers as it needs them (--reduce-inputs)", memory);
    if (o->graph_times && is_given(o, OPTION_GRAPH_TIMES) && !o->graph)
        argp_error(state, "--graph-times on is for steps that run as a graph (--graph on, --memory static)");
}

static void check_together(const struct argp_state *state, struct eo_options *o)
{
    check_device(state, o);
    check_strategy(state, o);
    if (o->text_paths && o->tokens_paths)
        argp_error(state, "--text and --tokens are both given; train on one of them");
    if (o->init_path && !is_given(o, OPTION_MODEL)) { /* the shape of the files, then */
        o->model_of_init = true;
        o->model_name = "init";
    }
    if (o->model_of_init && !o->init_path)
        argp_error(state, "--model init takes the shape of weights that are there; name them with --init FILE.bin, or "
                   "a folder");
    if (is_given(o, OPTION_WARMUP) && o->warmup > o->steps)
        argp_error(state, "--warmup %llu is longer than the run of --steps %llu; give fewer",
                   (unsigned long long)o->warmup, (unsigned long long)o->steps);
    if (!is_given(o, OPTION_WARMUP))
        o->warmup = o->steps / 10 < 20 ? o->steps / 10 : 20;
    if (o->no_prefetch && o->memory != EO_MEMORY_STATIC && is_given(o, OPTION_MEMORY))
        argp_error(state, "--no-prefetch is for --memory static; with %s try --implicit-prefetch",
                   eo_memory_name(o->memory));
    if (o->memory != EO_MEMORY_STATIC) /* a comparison's other side */
        o->no_prefetch = false;
    if (o->world_ranks && is_given(o, OPTION_RANKS) && o->ranks != o->world_ranks)
        argp_error(state, "--ranks is %u, and %s has started %u; leave --ranks out", o->ranks, o->world_launcher,
                   o->world_ranks);
    if (o->world_ranks)
        o->ranks = o->world_ranks;
    if (!o->plan_only && !o->world_ranks && o->ranks > EO_RUN_RANKS_MAX)
        argp_error(state, "--ranks is %u; at most %d run in one process (--plan takes more)", o->ranks,
                   EO_RUN_RANKS_MAX);
    const uint32_t sharing = eo_options_host_ranks(o);
    if (o->threads == 0)
        o->threads = eo_core_count() / sharing ? eo_core_count() / sharing : 1;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct eo_options *options = state->input;
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

const struct argp eo_options_argp = {.options = option_table, .parser = parse_option};

static bool is_file_or_folder(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0;
}

eo_status eo_options_check_output(const struct eo_options *options, const char *option, const char *path,
                                  struct eo_problem *problem)
{
    const struct eo_input inputs[] = {
        {"--val-tokens", options->val_tokens_path}, {"--init", options->init_path},
        {"--cupti-library", options->cupti_library},
        {"--model", is_file_or_folder(options->model_name) && options->model_of_config ? options->model_name : NULL},
    };
    TOOLS_TRY(eo_check_writable(option, path, problem));
    TOOLS_TRY(eo_overwrite_no_input(option, path, inputs, sizeof(inputs) / sizeof(inputs[0]), problem));
    for (uint32_t i = 0; i < options->text_path_count; i++) {
        const struct eo_input text = {"--text", options->text_paths[i]};
        TOOLS_TRY(eo_overwrite_no_input(option, path, &text, 1, problem));
    }
    for (uint32_t i = 0; i < options->tokens_path_count; i++) {
        const struct eo_input tokens = {"--tokens", options->tokens_paths[i]};
        TOOLS_TRY(eo_overwrite_no_input(option, path, &tokens, 1, problem));
    }
    return EO_OK;
}

void eo_options_init(struct eo_options *options)
{
    *options = (struct eo_options){
        .model_name = "small", .device = "cpu", .ranks = 2, .gather_slots = 2, .gradient_slots = 2, .reduce_inputs = 1,
        .batch = 2, .micro_batches = 1, .steps = 250, .seed = 1,
        .learning_rate = 0.0006, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1,
        .peak_seconds = 0.7,
    };
    if (eo_transformer_preset(options->model_name, &options->config) < 0)
        abort(); /* a preset of ours */
}

void eo_options_fini(struct eo_options *options)
{
    free(options->text_paths);
    free(options->tokens_paths);
    options->text_paths = options->tokens_paths = NULL;
}

double eo_options_learning_rate(const struct eo_options *options, uint64_t step)
{
    if (step < options->warmup)
        return options->learning_rate * (double)(step + 1) / (double)options->warmup;
    if (options->constant_schedule || options->steps <= options->warmup)
        return options->learning_rate;
    const double done = (double)(step - options->warmup) / (double)(options->steps - options->warmup);
    return options->learning_rate * (0.1 + 0.45 * (1 + cos(3.14159265358979323846 * done)));
}

uint32_t eo_core_count(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof(cores), &cores) != 0)
        return 1;
    const int count = CPU_COUNT(&cores);
    return count > 0 ? (uint32_t)count : 1;
}

uint32_t eo_options_host_ranks(const struct eo_options *options)
{
    return options->world_ranks ? options->host_ranks : options->ranks;
}

void eo_warn_of_many_threads(const struct eo_options *options)
{
    if (options->world_ranks) /* who starts processes also binds them */
        return;
    const uint64_t threads = (uint64_t)options->ranks * options->threads;
    if (threads > eo_core_count())
        fprintf(stderr, "%s: warning: --ranks %u x --threads %u are more threads than the %u cores that may be used; "
                "it will be slow, lower one of them\n", program_invocation_short_name, options->ranks,
                options->threads, eo_core_count());
}
