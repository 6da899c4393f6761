/* SPDX-License-Identifier: MIT
 *
 * Each option read by itself.
 */
#include "tools/run/options/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/interchange/config/model_config.h"
#include "tools/run/machine/quota.h"
#include "tools/run/options/keys.h"
#include "tools/shared/arguments.h"
#include "tools/shared/overwrite.h"

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
        argp_error(state,
                   "--model '%.200s' is unknown; known are %s, LAYERSxWIDTHxHEADS (such as 4x128x4), a config.json, "
                   "a folder with one, and published models, such as llama-3.2-3b (memplan lists the names)",
                   name, known);
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

static void parse_schedule(const struct argp_state *state, struct tool_schedule *schedule, const char *text)
{
    char why[160];
    if (!tool_schedule_parse(schedule, text, why, sizeof(why)))
        argp_error(state, "--schedule is '%.60s'; %s", text, why);
}

static void parse_training(const struct argp_state *state, struct tool_options *o, int key, const char *text)
{
    const char *name = tool_option_name(key);
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
    case OPTION_MOMENTUM:
        o->momentum = tool_option_real(state, name, text, 0, 0.999999);
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
    const char *name = tool_option_name(key);
    char first[64], second[64];
    switch (key) {
    case OPTION_RANKS:
        o->plan.ranks = (uint32_t)tool_option_count(state, name, text, 1, TOOL_PLAN_RANKS_MAX);
        break;
    case OPTION_DEVICE: o->plan.device = tool_option_choice(state, name, text, "cpu", "cuda") ? "cuda" : "cpu"; break;
    case OPTION_DTYPE: o->plan.dtype = tool_option_dtype(state, name, text); break;
    case OPTION_GATHER: o->plan.float8_gather = tool_option_gather(state, text); break;
    case OPTION_PRODUCTS: o->plan.float8_products = tool_option_products(state, text); break;
    case OPTION_NORMS: o->plan.fp32_norms = tool_option_norms(state, text); break;
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
        o->plan.threads = (uint32_t)tool_option_count(state, name, text, 1, EO_TEAM_THREADS_MAX);
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
        o->fabric_gigabytes_per_s = tool_option_real(state, "fabric GBPS", first, 1e-6, 1e6);
        o->fabric_latency_us = tool_option_real(state, "fabric US", second, 0, 1e6);
        break;
    case OPTION_RECOMPUTE: tool_option_recompute(state, text, &o->plan); break;
    case OPTION_HEAD_CHUNKS:
        o->plan.head_chunks = (uint32_t)tool_option_count(state, name, text, 1, 1 << 20);
        break;
    case OPTION_GRANULARITY: tool_option_granularity(state, text, &o->plan); break;
    case OPTION_NORMS_BESIDE: o->plan.norms_beside = true; break;
    case OPTION_GRADIENTS_APART:
        o->plan.gradients_apart = true;
        break;
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
    case OPTION_LATE_UPDATES: o->plan.late_updates = true; break;
    case OPTION_OFFLOAD_ACTIVATIONS: tool_option_offload_activations(state, text, &o->plan); break;
    case OPTION_OFFLOAD_FOLDER: o->offload_folder = text; break;
    case OPTION_IMPLICIT_PREFETCH: o->implicit_prefetch = true; break;
    case OPTION_DYNAMIC_OFFLOAD: o->dynamic_offload = true; break;
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

bool tool_options_on_gpu(const struct tool_options *options)
{
    return strcmp(options->plan.device, "cpu") != 0;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct tool_options *options = state->input;
    if (key > OPTION_TOKENS && key < OPTION_END)
        options->given[key - OPTION_MODEL] = true;
    switch (key) {
    case OPTION_MODEL:
        options->given[0] = true;
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
    case ARGP_KEY_ARG: 
        if (!options->text_paths && !options->tokens_paths)
            argp_error(state, "'%s' belongs to no option; files and folders to train on follow --text", text);
        add_data_path(state, options, text);
        return 0;
    case ARGP_KEY_END:
        tool_options_check_together(state, options);
        return 0;
    default: break;
    }
    if (key < OPTION_RANKS || key >= OPTION_END)
        return ARGP_ERR_UNKNOWN;
    parse_memory(state, options, key, text);
    parse_training(state, options, key, text);
    return 0;
}

const struct argp tool_options_argp = {.options = tool_option_table, .parser = parse_option};

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

struct eo_processors tool_processors(void)
{
    struct eo_processors out = eo_processors_allowed();
    const uint64_t quota = tool_quota_processors("");
    if (quota && quota < out.count)
        out.count = quota;
    return out;
}

uint32_t tool_core_count(void)
{
    const uint64_t count = tool_processors().count;
    return count > 0 ? (uint32_t)count : 1;
}

uint32_t tool_threads_of(uint64_t cores, uint32_t ranks)
{
    const uint64_t part = cores / ranks;
    return part > EO_TEAM_THREADS_MAX ? EO_TEAM_THREADS_MAX : part > 0 ? (uint32_t)part : 1;
}

uint32_t tool_options_host_ranks(const struct tool_options *options)
{
    return options->world_ranks ? options->host_ranks : options->plan.ranks;
}

uint32_t tool_options_processes(const struct tool_options *options)
{
    return options->world_ranks ? options->host_ranks : 1;
}

uint32_t tool_options_process_threads(const struct tool_options *options)
{
    enum { QUEUES = 2 };
    return tool_options_host_ranks(options) / tool_options_processes(options) * (options->plan.threads + QUEUES);
}

uint32_t tool_options_gpu_ranks(const struct tool_options *options, uint32_t device_count)
{
    return options->world_ranks ? 1 : (options->plan.ranks + device_count - 1) / device_count;
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

void tool_tell_quota(const struct tool_options *options)
{
    const uint64_t allowed = eo_processors_allowed().count;
    if (tool_core_count() < allowed && !tool_option_given(options, "threads") && !tool_options_on_gpu(options))
        printf("threads: for %u of %" PRIu64 " cores, by the quota of this container or control group\n", tool_core_count(),
               allowed);
}
