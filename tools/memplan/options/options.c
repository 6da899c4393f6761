/* SPDX-License-Identifier: MIT */
#include "tools/memplan/options/options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shared/arguments.h"
#include "tools/planning/options.h"

struct tool_memplan_asked tool_memplan_defaults(void)
{
    return (struct tool_memplan_asked){
        .settings = {.plan = {.ranks = 8,
                              .strategy = EO_STRATEGY_ZERO3,
                              .batch = 1,
                              .micro_batches = 1,
                              .dtype = EO_DTYPE_BF16,
                              .reduce_dtype = EO_DTYPE_FP32,
                              .gather_slots = 2,
                              .gradient_slots = 2,
                              .device = "cuda",
                              .threads = 1},
                     .gpus_per_node = 8},
        .estimate = {.layout = {.tensor = 1, .pipeline = 1, .context = 1, .expert = 1, .virtual_stages = 1}},
    };
}

/* "5%", or bytes. */
static void parse_headroom(const struct argp_state *state, struct tool_memplan_asked *m, const char *text)
{
    char *end;
    const double share = isdigit((unsigned char)text[0]) ? strtod(text, &end) : -1;
    m->headroom_share = m->headroom_bytes = 0;
    if (share < 0 || strcmp(end, "%") != 0)
        m->headroom_bytes = tool_option_bytes(state, "headroom", text, false);
    else if (share < 100)
        m->headroom_share = share / 100;
    else
        argp_error(state, "--headroom is '%.60s'; give less than all of the device", text);
}

static eo_dtype parse_dtype(const struct argp_state *state, const char *name, const char *text)
{
    return tool_option_choice(state, name, text, "bf16", "fp32") ? EO_DTYPE_FP32 : EO_DTYPE_BF16;
}

static void parse_strategy(const struct argp_state *state, struct tool_memplan_asked *m, const char *text)
{
    m->all_strategies = strcmp(text, "all") == 0;
    if (!tool_strategy_parse(m->all_strategies ? "zero3" : text, &m->settings.plan))
        argp_error(state, "--strategy is '%.60s'; give ddp, zero1, zero2, zero3, hsdp:S or all", text);
}

static void parse_recompute(const struct argp_state *state, struct tool_memplan_asked *m, const char *text)
{
    m->others_recompute = tool_system_parse_recompute(text, &m->estimate.run);
    if (!m->others_recompute && strpbrk(text, ":,_"))
        argp_error(state, "--recompute is '%.60s'; of Megatron's give uniform:N, block:N (N above 0) or modules: core_attn, "
                   "layernorm, mlp, moe, moe_act", text);
    tool_option_recompute(state, m->others_recompute ? "none" : text, &m->settings.plan);
}

/* fp16 and fp8 are of other systems, whose sums are of 16 bits and more. */
static void parse_run_dtype(const struct argp_state *state, struct tool_memplan_asked *m, const char *text)
{
    enum tool_precision *precision = &m->estimate.run.precision;
    *precision = strcmp(text, "fp16") == 0 ? TOOL_PRECISION_FP16 : strcmp(text, "fp8") == 0 ? TOOL_PRECISION_FP8 : TOOL_PRECISION_BF16;
    m->settings.plan.dtype = *precision ? EO_DTYPE_BF16 : parse_dtype(state, "dtype", text);
}

static void parse_offload(const struct argp_state *state, struct tool_memplan_asked *m, const char *text)
{
    struct tool_system_run *run = &m->estimate.run;
    const size_t length = strcspn(text, ":");
    run->to_disk = strcmp(text + length, ":disk") == 0;
    run->offload = length == 9 && strncmp(text, "optimizer", 9) == 0 ? TOOL_OFFLOAD_OPTIMIZER
                   : length == 7 && strncmp(text, "weights", 7) == 0 ? TOOL_OFFLOAD_WEIGHTS
                                                                     : TOOL_OFFLOAD_NONE;
    if (!run->offload || (text[length] && !run->to_disk))
        argp_error(state, "--offload is '%.60s'; give optimizer, weights, optimizer:disk or weights:disk", text);
}

/* nf4 and bf16 are of other systems. */
static void parse_frozen(const struct argp_state *state, struct tool_memplan_asked *m, const char *text)
{
    m->estimate.run.nf4 = strcmp(text, "nf4") == 0;
    m->others_frozen = m->estimate.run.nf4 || strcmp(text, "bf16") == 0;
    if (!m->others_frozen && strcmp(text, "mxfp8") != 0 && strcmp(text, "dtype") != 0)
        argp_error(state, "--frozen is '%.60s'; give mxfp8 or dtype, of other systems nf4 or bf16", text);
    m->settings.plan.float8_frozen = strcmp(text, "mxfp8") == 0;
}

/* Settings of other systems' runs. */
static void parse_others(const struct argp_state *state, struct tool_memplan_asked *m, int key, const char *text)
{
    struct tool_system_run *run = &m->estimate.run;
    switch (key) {
    case KEY_STATE_DTYPE: run->bf16_state = !tool_option_choice(state, "state-dtype", text, "bf16", "fp32"); break;
    case KEY_OFFLOAD: parse_offload(state, m, text); break;
    default: break;
    }
}

/* "15T", or "2.5/h". */
static void parse_money(const struct argp_state *state, struct tool_memplan_asked *m, int key, const char *text)
{
    static const struct { const char *unit; double factor; int key; } units[] = {
        {"", 1, KEY_TOKENS},     {"K", 1e3, KEY_TOKENS}, {"M", 1e6, KEY_TOKENS}, {"B", 1e9, KEY_TOKENS},
        {"T", 1e12, KEY_TOKENS}, {"", 1, KEY_PRICE},     {"/h", 1, KEY_PRICE}};
    char *end;
    const double value = strtod(text, &end);
    const bool good = isdigit((unsigned char)text[0]) && value > 0 && value < 1e18;
    for (size_t i = 0; good && i < sizeof(units) / sizeof(units[0]); i++)
        if (key == units[i].key && strcmp(end, units[i].unit) == 0) {
            *(key == KEY_TOKENS ? &m->estimate.tokens : &m->estimate.price) = value * units[i].factor;
            m->estimate.time = true;
            return;
        }
    argp_error(state, "--%s is '%.60s'; give a number above 0, such as %s", tool_memplan_option_name(key), text,
               key == KEY_TOKENS ? "15T" : "2.5/h");
}

static void parse_system(const struct argp_state *state, struct tool_memplan_asked *m, int key, const char *text)
{
    struct tool_layout *l = &m->estimate.layout;
    uint32_t *const counts[] = {&l->tensor, &l->pipeline, &l->context, &l->expert, &l->expert_tensor, &l->virtual_stages};
    switch (key) {
    case KEY_SYSTEM:
        if (!tool_system_parse(text, &m->estimate.system))
            argp_error(state, "--system is '%.60s'; give evenodd, megatron, megatron-fsdp, fsdp2 or deepspeed", text);
        break;
    case KEY_TENSOR:
    case KEY_PIPELINE:
    case KEY_CONTEXT:
    case KEY_EXPERT:
    case KEY_EXPERT_TENSOR:
    case KEY_VIRTUAL_STAGES:
        *counts[key - KEY_TENSOR] = (uint32_t)tool_option_count(state, tool_memplan_option_name(key), text, 1, 4096);
        break;
    case KEY_SEQUENCE_PARALLEL: l->sequence_parallel = true; break;
    case KEY_GLOBAL_BATCH:
        m->estimate.global_batch = (uint32_t)tool_option_count(state, "global-batch", text, 1, 1 << 24);
        break;
    case KEY_COMPARE: m->compare = true; break;
    case KEY_TIME: m->estimate.time = true; break;
    case KEY_NETWORK: m->estimate.network_bytes = tool_option_bytes(state, "network", text, false); break;
    case KEY_TOKENS:
    case KEY_PRICE: parse_money(state, m, key, text); break;
    default: break;
    }
}

/* Some are of other systems alone (checks.c). */
static void parse_optimizer(const struct argp_state *state, struct tool_memplan_asked *m, const char *text)
{
    if (!tool_state_kind_parse(text, &m->estimate.run.optimizer))
        argp_error(state, "--optimizer is '%.60s'; give adamw, adamw8bit, muon, sgd or lion", text);
    (void)tool_optimizer_parse(text, &m->settings.plan.optimizer); /* evenodd has all of them */
}

void tool_memplan_parse_run(const struct argp_state *state, struct tool_memplan_asked *m, int key, const char *text)
{
    struct tool_plan_settings *s = &m->settings.plan;
    const char *name = tool_memplan_option_name(key);
    switch (key) {
    case KEY_WORLD:
        s->ranks = (uint32_t)tool_option_count(state, name, text, 1, TOOL_PLAN_RANKS_MAX);
        break;
    case KEY_NODE:
        m->settings.gpus_per_node = (uint32_t)tool_option_count(state, name, text, 1, 1024);
        break;
    case KEY_STRATEGY: parse_strategy(state, m, text); break;
    case KEY_SEQ:
        s->seq = (uint32_t)tool_option_count(state, name, text, 1, 1 << 24);
        break;
    case KEY_BATCH:
        s->batch = (uint32_t)tool_option_count(state, name, text, 1, 1 << 20);
        break;
    case KEY_MICRO_BATCHES:
        s->micro_batches = (uint32_t)tool_option_count(state, name, text, 1, TOOL_MICRO_BATCHES_MOST);
        break;
    case KEY_DTYPE: parse_run_dtype(state, m, text); break;
    case KEY_GATHER: s->float8_gather = tool_option_gather(state, text); break;
    case KEY_PACK: s->packed = tool_option_choice(state, name, text, "none", "documents"); break;
    case KEY_DROPOUT: s->dropout = tool_option_real(state, name, text, 0, 0.99); break;
    case KEY_OPTIMIZER: parse_optimizer(state, m, text); break;
    case KEY_EMA: s->ema_decay = tool_option_ema(state, text); break;
    case KEY_PRODUCTS: s->float8_products = tool_option_products(state, text); break;
    case KEY_NORMS: s->fp32_norms = tool_option_norms(state, text); break;
    case KEY_LORA:
        tool_option_lora(state, text, &s->lora);
        m->estimate.run.lora_rank = s->lora.rank;
        break;
    case KEY_FROZEN: parse_frozen(state, m, text); break;
    case KEY_REDUCE: s->reduce_dtype = parse_dtype(state, name, text); break;
    case KEY_SLOTS: tool_option_slots(state, text, s); break;
    case KEY_NORMS_BESIDE: s->norms_beside = true; break;
    case KEY_GRADIENTS_APART:
        s->gradients_apart = true;
        break;
    case KEY_BUCKETING:
        if (tool_option_bucketing(state, text, s))
            argp_error(state, "--bucketing auto is train's: it prints what it chose; give that here");
        break;
    case KEY_OFFLOAD_LAYERS: tool_option_offload_layers(state, text, s); break;
    case KEY_OFFLOAD_ACTIVATIONS: tool_option_offload_activations(state, text, s); break;
    case KEY_OFFLOAD_GRADIENTS:
        s->offload_gradients = true;
        break;
    case KEY_LATE_UPDATES: s->late_updates = true; break;
    case KEY_OFFLOAD_SLOTS: s->offload_slots = (uint32_t)tool_option_count(state, "offload-slots", text, 1, 64); break;
    case KEY_RECOMPUTE: parse_recompute(state, m, text); break;
    case KEY_GRANULARITY: tool_option_granularity(state, text, s); break;
    case KEY_HEAD_CHUNKS:
        s->head_chunks = (uint32_t)tool_option_count(state, name, text, 1, 1 << 28);
        break;
    case KEY_KERNELS: s->device = tool_option_choice(state, name, text, "cuda", "cpu") ? "cpu" : "cuda"; break;
    case KEY_THREADS:
        s->threads = (uint32_t)tool_option_count(state, name, text, 1, 1024);
        break;
    case KEY_GRAPH: s->graph = true; break;
    default: break;
    }
}

static void parse_rest(struct argp_state *state, struct tool_memplan_asked *m, int key, char *text)
{
    switch (key) {
    case KEY_MODEL: m->model = text; break;
    case KEY_SET:
        if (m->set_count == TOOL_CONFIG_SETS_MAX)
            argp_error(state, "--set is given more than %d times", TOOL_CONFIG_SETS_MAX);
        m->sets[m->set_count++] = text;
        break;
    case KEY_DEVICE: m->device_name = text; break;
    case KEY_DEVICES: m->devices_path = text; break;
    case KEY_HEADROOM:
        parse_headroom(state, m, text);
        break;
    case KEY_DEVICE_MEMORY: m->settings.capacity_bytes = tool_option_bytes(state, "device-memory", text, false); break;
    case KEY_OUTSIDE:
        m->settings.outside =
            (struct tool_outside){.context_bytes = tool_option_bytes(state, "outside", text, false), .given = true};
        break;
    case KEY_FIT:
        if (!tool_fit_parse(text, &m->fit))
            argp_error(state,
                       "--fit is '%.60s'; give max-batch, max-seq, min-gpus, min-recompute, best-strategy, "
                       "max-layers, best or best-layout",
                       text);
        break;
    case KEY_JSON: m->json = true; break;
    case KEY_CSV: m->csv = true; break;
    case KEY_SVG: m->svg_path = text; break;
    case KEY_HTML: m->html_path = text; break;
    case KEY_EXPLAIN: m->explain = true; break;
    case KEY_VERIFY: m->verify_path = text; break;
    case KEY_PUBLISHED: m->published = true; break;
    case KEY_MAY_CHANGE_BITS: m->budget.request.may_change_bits = true; break;
    case KEY_RATES:
        m->budget.rates_path = text;
        break;
    case KEY_BUDGET:
        tool_option_budget(state, text, &m->budget.request.bytes, &m->budget.request.host_bytes);
        break;
    case KEY_DIFF:
        m->diff_a = text;
        if (state->next >= state->argc)
            argp_error(state, "--diff takes two files");
        m->diff_b = state->argv[state->next++];
        break;
    default: break;
    }
}
error_t tool_memplan_parse(int key, char *text, struct argp_state *state)
{
    struct tool_memplan_asked *m = state->input;
    if (key >= KEY_MODEL && key < KEY_END) {
        m->given |= tool_memplan_bit((enum memplan_key)key);
        if (m->word_count == TOOL_ASKED_WORDS_MAX)
            argp_error(state, "more than %d options", TOOL_ASKED_WORDS_MAX);
        m->words[m->word_count++] = (struct tool_asked_word){(enum memplan_key)key, text};
        tool_memplan_parse_run(state, m, key, text);
        parse_system(state, m, key, text);
        parse_others(state, m, key, text);
        parse_rest(state, m, key, text);
        return 0;
    }
    if (key == ARGP_KEY_ARG)
        argp_error(state, "'%.60s' belongs to no option", text);
    if (key == ARGP_KEY_END)
        tool_memplan_check_together(state, m);
    return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
}
