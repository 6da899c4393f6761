/* SPDX-License-Identifier: MIT
 *
 * What a training run will hold in memory, byte for byte, before a machine is rented: the runtime's own planner, asked.
 */
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shared/arguments.h"
#include "tools/memplan/answer.h"
#include "tools/memplan/compare.h"
#include "tools/memplan/estimate.h"
#include "tools/memplan/page.h"
#include "tools/memplan/published.h"
#include "tools/shared/overwrite.h"

enum memplan_key {
    KEY_MODEL = 0x100,
    KEY_SET,
    KEY_WORLD,
    KEY_NODE,
    KEY_STRATEGY,
    KEY_SEQ,
    KEY_BATCH,
    KEY_MICRO_BATCHES,
    KEY_DTYPE,
    KEY_GATHER,
    KEY_REDUCE,
    KEY_SLOTS,
    KEY_OFFLOAD_LAYERS,
    KEY_OFFLOAD_SLOTS,
    KEY_OFFLOAD_GRADIENTS,
    KEY_RECOMPUTE,
    KEY_GRANULARITY,
    KEY_HEAD_CHUNKS,
    KEY_KERNELS,
    KEY_THREADS,
    KEY_GRAPH,
    KEY_SYSTEM,
    KEY_TENSOR,
    KEY_PIPELINE,
    KEY_CONTEXT,
    KEY_EXPERT,
    KEY_VIRTUAL_STAGES,
    KEY_SEQUENCE_PARALLEL,
    KEY_GLOBAL_BATCH,
    KEY_COMPARE,
    KEY_TIME,
    KEY_TOKENS,
    KEY_PRICE,
    KEY_NETWORK,
    KEY_DEVICE_MEMORY,
    KEY_HEADROOM,
    KEY_DEVICE,
    KEY_OUTSIDE,
    KEY_FIT,
    KEY_JSON,
    KEY_CSV,
    KEY_SVG,
    KEY_HTML,
    KEY_EXPLAIN,
    KEY_DIFF,
    KEY_VERIFY,
    KEY_PUBLISHED,
    KEY_BUDGET,
    KEY_RATES,
    KEY_MAY_CHANGE_BITS,
    KEY_END,
};
_Static_assert(KEY_END - KEY_MODEL <= 64, "options have a bit each");

enum { MICRO_BATCHES_MOST = 4096 }; /* of a plan */

static const struct argp_option option_table[] = {
    {.doc = "Model:", .group = 1},
    {"model", KEY_MODEL, "PATH|NAME", 0,
     "a config.json of Hugging Face, a folder with one (its safetensors are checked too), "
     "or a known name; a wrong name lists them",
     1},
    {"set", KEY_SET, "KEY=VALUE", 0, "change a field of the config; repeatable", 1},
    {.doc = "Run:", .group = 2},
    {"ranks", KEY_WORLD, "N", 0, "number of ranks, one a GPU [8]", 2},
    {"world", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"gpus-per-node", KEY_NODE, "N", 0, "GPUs of a node [8]", 2},
    {"strategy", KEY_STRATEGY, "NAME", 0,
     "sharding: ddp, zero1, zero2, zero3 or hsdp:S (zero3 in groups of S ranks; each "
     "group is a replica); all: zero3, beside a table of all [zero3]",
     2},
    {"batch", KEY_BATCH, "B", 0, "sequences in a micro-batch of a rank [1]", 2},
    {"seq", KEY_SEQ, "T", 0, "tokens in a sequence [4096, or the model's context]", 2},
    {"micro-batches", KEY_MICRO_BATCHES, "M", 0, "micro-batches in a step [1]", 2},
    {"dtype", KEY_DTYPE, "TYPE", 0, "type of activations and gathered weights: bf16 or fp32 [bf16]", 2},
    {"gather", KEY_GATHER, "TYPE", 0, "type of the blocks' matrices in all-gathers: float8, or dtype: that of --dtype [dtype]",
     2},
    {"reduce", KEY_REDUCE, "TYPE", 0, "type of gradients in their reduction: fp32 or bf16 [fp32]", 2},
    {"slots", KEY_SLOTS, "G,D", 0, "number of gather buffers and gradient buffers [2,2]", 2},
    {"offload-layers", KEY_OFFLOAD_LAYERS, "N", 0,
     "optimizer state (with bf16 also the low halves of the weights) of N layers, or all, on disk [0]", 2},
    {"offload-slots", KEY_OFFLOAD_SLOTS, "N", 0, "number of these layers in memory at a time [2]", 2},
    {"offload-gradients", KEY_OFFLOAD_GRADIENTS, NULL, 0, "their gradients on disk too, between reduction and update", 2},
    {"budget", KEY_BUDGET, "BYTES", 0,
     "with --kernels cpu: choose recompute, slots and what lies on disk as train --budget does, by the speeds of --rates", 2},
    {"budget-may-change-bits", KEY_MAY_CHANGE_BITS, NULL, 0, "with --budget: choose the pieces of the head too", 2},
    {"rates", KEY_RATES, "FILE.json", 0, "with --budget: speeds of a rank, as train takes them", 2},
    {"recompute", KEY_RECOMPUTE, "WHAT", 0,
     "recompute in backward: none, cheap (no matrix product), all, or the first N "
     "blocks [none]",
     2},
    {"granularity", KEY_GRANULARITY, "UNIT", 0, "unit of sharding: block, or half (attention and MLP apart) [block]", 2},
    {"head-chunks", KEY_HEAD_CHUNKS, "N", 0, "pieces of the head [as in train]", 2},
    {"kernels", KEY_KERNELS, "NAME", 0, "cuda or cpu: plan the scratch memory of these kernels [cuda]", 2},
    {"threads", KEY_THREADS, "N", 0, "threads of a rank, for CPU kernels [1]", 2},
    {"graph", KEY_GRAPH, NULL, 0, "plan steps as graphs: the tokens of all micro-batches of a step lie on the device", 2},
    {.doc = "Systems and layouts:", .group = 3},
    {"system", KEY_SYSTEM, "NAME", 0, "evenodd, or an estimate for megatron, fsdp2 or deepspeed [evenodd]", 3},
    {"tp", KEY_TENSOR, "N", 0, "ranks that share each layer's products (megatron, fsdp2) [1]", 3},
    {"pp", KEY_PIPELINE, "N", 0, "stages of a pipeline [1]", 3},
    {"cp", KEY_CONTEXT, "N", 0, "ranks that share each sequence [1]", 3},
    {"ep", KEY_EXPERT, "N", 0, "ranks that share the experts (megatron) [1]", 3},
    {"virtual-stages", KEY_VIRTUAL_STAGES, "N", 0, "stages of each rank, interleaved [1]", 3},
    {"sequence-parallel", KEY_SEQUENCE_PARALLEL, NULL, 0, "tensor ranks share norms and residuals too; fsdp2 always does", 3},
    {"global-batch", KEY_GLOBAL_BATCH, "G", 0, "sequences of a step, of all ranks: sets --micro-batches", 3},
    {"compare", KEY_COMPARE, NULL, 0, "all systems side by side", 3},
    {"time", KEY_TIME, NULL, 0, "estimate the time of a step, on --device A100-*, H100* or H200", 3},
    {"tokens", KEY_TOKENS, "N", 0, "estimate the days of a training: 15T, 300B", 3},
    {"price", KEY_PRICE, "X", 0, "... and what it costs: the price of an hour of a GPU, as 2.5 or 2.5/h", 3},
    {"network", KEY_NETWORK, "BYTES", 0, "... with so much a second from a GPU to other nodes [A100: 25GB, H100, H200: 50GB]", 3},
    {.doc = "Machine:", .group = 4},
    {"device", KEY_DEVICE, "NAME", 0, "a GPU of the table; a wrong name lists them", 4},
    {"device-memory", KEY_DEVICE_MEMORY, "BYTES", 0, "with a unit: 80GiB, 80GB, 85899345920B", 4},
    {"headroom", KEY_HEADROOM, "SHARE", 0, "keep so much of the device free, here and in every search: 5%, or bytes [0]", 4},
    {"outside", KEY_OUTSIDE, "BYTES", 0,
     "memory outside the plan: context, NCCL, libraries [published figures, named in the "
     "report]",
     4},
    {"fit", KEY_FIT, "WHAT", 0,
     "search the limit of a fit: max-batch, max-seq, min-gpus, min-recompute, best-strategy, "
     "max-layers, or best (strategy, recompute, batch and granularity together, but for those that you give)",
     4},
    {.doc = "Output:", .group = 5},
    {"json", KEY_JSON, NULL, 0, "the plan as JSON, on standard output", 5},
    {"csv", KEY_CSV, NULL, 0, "the plan's rows as CSV, on standard output", 5},
    {"svg", KEY_SVG, "FILE", 0, "write a picture of the arena through a step", 5},
    {"html", KEY_HTML, "FILE", 0, "write a page in one file, with sliders", 5},
    {"explain", KEY_EXPLAIN, NULL, 0, "phases, layers, buffers, other projects, and every row's formula with its numbers", 5},
    {"diff", KEY_DIFF, "A.json B.json", 0, "compare two plans of --json; exit status 1 if they differ", 5},
    {"verify", KEY_VERIFY, "LOG", 0, "compare the plan with a log of train, or with the output of train --plan", 5},
    {"published", KEY_PUBLISHED, NULL, 0, "published figures of other projects beside predictions by formulae", 5},
    {0},
};

struct memplan {
    const char *model, *sets[TOOL_CONFIG_SETS_MAX];
    uint32_t set_count;
    struct tool_memplan_settings settings;
    const struct tool_device_memory *device;
    double headroom_share;
    uint64_t headroom_bytes;
    enum tool_fit_kind fit;
    bool json, csv, explain, published, all_strategies;
    const char *svg_path, *html_path, *diff_a, *diff_b, *verify_path;
    char otherwise[TOOL_PLAN_WORDS_MAX]; /* what the command line says otherwise than the log of --verify */
    uint64_t given;
    struct tool_estimate_request estimate;
    struct tool_time_answer time;
    bool compare;

    struct tool_model_config config;
    struct tool_safetensors_check safetensors;
    struct tool_memplan plan;
    struct tool_memplan fewer; /* with fewer micro-batches, where the step is too long to be shown */
    struct tool_lifetimes lifetimes;
    struct tool_fit found;
    struct tool_memplan_budget budget;
    char remedies[512];
};

/* --- options ------------------------------------------------------------------------------------------------------ */

static const char *name_of(int key)
{
    for (const struct argp_option *row = option_table; row->name || row->doc; row++)
        if (row->name && row->key == key)
            return row->name;
    return "";
}

static uint64_t bit_of(enum memplan_key key)
{
    return (uint64_t)1 << (key - KEY_MODEL);
}

/* "5%", or bytes. */
static void parse_headroom(const struct argp_state *state, struct memplan *m, const char *text)
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

static void parse_strategy(const struct argp_state *state, struct memplan *m, const char *text)
{
    m->all_strategies = strcmp(text, "all") == 0;
    if (!tool_strategy_parse(m->all_strategies ? "zero3" : text, &m->settings.plan))
        argp_error(state, "--strategy is '%.60s'; give ddp, zero1, zero2, zero3, hsdp:S or all", text);
}

static void parse_device(const struct argp_state *state, struct memplan *m, const char *text)
{
    m->device = tool_device_memory_find(text);
    if (m->device) {
        m->settings.capacity_bytes = m->device->bytes;
        m->settings.on_gpu = true;
        return;
    }
    char known[512] = "";
    for (uint32_t i = 0; tool_device_memory_at(i); i++)
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i ? ", " : "", tool_device_memory_at(i)->name);
    argp_error(state, "--device '%.60s' is not in the table: %s; give any other by --device-memory", text, known);
}

static void parse_recompute(const struct argp_state *state, struct memplan *m, const char *text)
{
    m->estimate.selective = strcmp(text, "selective") == 0;
    tool_option_recompute(state, m->estimate.selective ? "none" : text, &m->settings.plan);
}

/* "15T", or "2.5/h". */
static void parse_money(const struct argp_state *state, struct memplan *m, int key, const char *text)
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
    argp_error(state, "--%s is '%.60s'; give a number above 0, such as %s", name_of(key), text,
               key == KEY_TOKENS ? "15T" : "2.5/h");
}

static void parse_system(const struct argp_state *state, struct memplan *m, int key, const char *text)
{
    struct tool_layout *l = &m->estimate.layout;
    uint32_t *const counts[] = {&l->tensor, &l->pipeline, &l->context, &l->expert, &l->virtual_stages};
    switch (key) {
    case KEY_SYSTEM:
        if (!tool_system_parse(text, &m->estimate.system))
            argp_error(state, "--system is '%.60s'; give evenodd, megatron, fsdp2 or deepspeed", text);
        break;
    case KEY_TENSOR:
    case KEY_PIPELINE:
    case KEY_CONTEXT:
    case KEY_EXPERT:
    case KEY_VIRTUAL_STAGES:
        *counts[key - KEY_TENSOR] = (uint32_t)tool_option_count(state, name_of(key), text, 1, 4096);
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

static void parse_run(const struct argp_state *state, struct memplan *m, int key, const char *text)
{
    struct tool_plan_settings *s = &m->settings.plan;
    const char *name = name_of(key);
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
        s->micro_batches = (uint32_t)tool_option_count(state, name, text, 1, MICRO_BATCHES_MOST);
        break;
    case KEY_DTYPE: s->dtype = parse_dtype(state, name, text); break;
    case KEY_GATHER: s->float8_gather = tool_option_gather(state, text); break;
    case KEY_REDUCE: s->reduce_dtype = parse_dtype(state, name, text); break;
    case KEY_SLOTS: tool_option_slots(state, text, s); break;
    case KEY_OFFLOAD_LAYERS: tool_option_offload_layers(state, text, s); break;
    case KEY_OFFLOAD_GRADIENTS:
        s->offload_gradients = true;
        break;
    case KEY_OFFLOAD_SLOTS: s->offload_slots = (uint32_t)tool_option_count(state, "offload-slots", text, 1, 64); break;
    case KEY_RECOMPUTE: parse_recompute(state, m, text); break;
    case KEY_GRANULARITY: s->half_blocks = tool_option_choice(state, name, text, "block", "half"); break;
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

static void parse_rest(struct argp_state *state, struct memplan *m, int key, char *text)
{
    switch (key) {
    case KEY_MODEL: m->model = text; break;
    case KEY_SET:
        if (m->set_count == TOOL_CONFIG_SETS_MAX)
            argp_error(state, "--set is given more than %d times", TOOL_CONFIG_SETS_MAX);
        m->sets[m->set_count++] = text;
        break;
    case KEY_DEVICE: parse_device(state, m, text); break;
    case KEY_HEADROOM:
        parse_headroom(state, m, text);
        break;
    case KEY_DEVICE_MEMORY: m->settings.capacity_bytes = tool_option_bytes(state, "device-memory", text, false); break;
    case KEY_OUTSIDE:
        m->settings.outside = (struct tool_outside){.context_bytes = tool_option_bytes(state, "outside", text, false), .given = true};
        break;
    case KEY_FIT:
        if (!tool_fit_parse(text, &m->fit))
            argp_error(state,
                       "--fit is '%.60s'; give max-batch, max-seq, min-gpus, min-recompute, best-strategy, "
                       "max-layers or best",
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
        m->budget.request.bytes = tool_option_bytes(state, "budget", text, true);
        if (!m->budget.request.bytes)
            argp_error(state, "--budget is 0; give bytes above 0");
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

static void check_budget(const struct argp_state *state, const struct memplan *m)
{
    static const enum memplan_key chosen[] = {KEY_RECOMPUTE,         KEY_SLOTS, KEY_OFFLOAD_LAYERS, KEY_OFFLOAD_SLOTS,
                                              KEY_OFFLOAD_GRADIENTS, KEY_FIT,   KEY_VERIFY,         KEY_HEAD_CHUNKS};
    const size_t count = sizeof(chosen) / sizeof(chosen[0]) - !m->budget.request.may_change_bits;
    if (!m->budget.request.bytes && (m->budget.rates_path || m->budget.request.may_change_bits))
        argp_error(state, "--%s needs --budget BYTES, the memory of a rank",
                   m->budget.rates_path ? "rates" : "budget-may-change-bits");
    if (!m->budget.request.bytes)
        return;
    if (!m->budget.rates_path)
        argp_error(state, "--budget needs --rates FILE.json, the speeds of a rank; train measures them");
    for (size_t i = 0; i < count; i++)
        if (m->given & bit_of(chosen[i]))
            argp_error(state, "--budget chooses by itself; leave --%s out", name_of(chosen[i]));
    if (strcmp(m->settings.plan.device, "cpu") != 0 || m->settings.on_gpu)
        argp_error(state, "--budget needs --kernels cpu, and no --device: offloading works on CPUs only");
}

/* An option as train writes it in a log; false: there is none of the name. `text` may be NULL. */
static bool take_logged_option(const struct argp_state *state, struct memplan *m, const char *name, char *text)
{
    if (strcmp(name, "no-prefetch") == 0)
        m->settings.plan.no_prefetch = true;
    for (const struct argp_option *row = option_table; row->name || row->doc; row++)
        if (row->name && strcmp(row->name, name) == 0 && row->key >= KEY_WORLD && row->key <= KEY_GRAPH && !row->arg == !text) {
            if (!(m->given & bit_of((enum memplan_key)row->key)))
                parse_run(state, m, row->key, text);
            return true;
        }
    return strcmp(name, "no-prefetch") == 0 && !text;
}

/* A run's settings are in its log. What is said otherwise counts, and is told before any row. */
static void take_log(const struct argp_state *state, struct memplan *m)
{
    char words[TOOL_PLAN_WORDS_MAX], own[TOOL_PLAN_WORDS_MAX], *rest = words, *other = own;
    if (!tool_memplan_logged_settings(m->verify_path, words) || words[0] == '\0')
        return;
    char logged[TOOL_PLAN_WORDS_MAX];
    snprintf(logged, sizeof(logged), "%s", words);
    for (char *word = strtok_r(words, " ", &rest), *next; word; word = next) {
        next = strtok_r(NULL, " ", &rest);
        char *value = next && strncmp(next, "--", 2) != 0 ? next : NULL;
        if (strncmp(word, "--", 2) != 0 || !take_logged_option(state, m, word + 2, value))
            argp_error(state, "--verify %s: its settings have '%.60s', which is no option here", m->verify_path, word);
        if (value)
            next = strtok_r(NULL, " ", &rest);
    }
    tool_plan_settings_words(&m->settings.plan, own);
    size_t used = 0;
    rest = logged;
    char *a = strtok_r(logged, " ", &rest), *b = strtok_r(own, " ", &other), *name = b;
    for (; b && used < sizeof(m->otherwise); a = a ? strtok_r(NULL, " ", &rest) : NULL, b = strtok_r(NULL, " ", &other)) {
        const char *separator = used ? ", " : "";
        if (!a) /* flags stand last */
            used += (size_t)snprintf(m->otherwise + used, sizeof(m->otherwise) - used, "%s%s (not the log)", separator, b);
        else if (strncmp(b, "--", 2) == 0)
            name = b;
        else if (strcmp(a, b) != 0)
            used += (size_t)snprintf(m->otherwise + used, sizeof(m->otherwise) - used, "%s%s %s (the log: %s)", separator, name,
                                     b, a);
    }
}

/* Options of evenodd's plans alone, which an estimate would pass over. */
static void check_estimate(const struct argp_state *state, struct memplan *m)
{
    static const enum memplan_key known[] = {
        KEY_MODEL, KEY_SET, KEY_WORLD, KEY_NODE, KEY_STRATEGY, KEY_SEQ, KEY_BATCH, KEY_MICRO_BATCHES, KEY_DTYPE, KEY_RECOMPUTE,
        KEY_SYSTEM, KEY_TENSOR, KEY_PIPELINE, KEY_CONTEXT, KEY_EXPERT, KEY_VIRTUAL_STAGES, KEY_SEQUENCE_PARALLEL,
        KEY_GLOBAL_BATCH, KEY_COMPARE, KEY_TIME, KEY_TOKENS, KEY_PRICE, KEY_NETWORK, KEY_DEVICE_MEMORY, KEY_HEADROOM,
        KEY_DEVICE, KEY_OUTSIDE, KEY_JSON};
    uint64_t others = m->given;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        others &= ~bit_of(known[i]);
    if (m->fit == TOOL_FIT_BEST && !m->compare)
        others &= ~bit_of(KEY_FIT);
    for (int key = KEY_MODEL; others && key < KEY_END; key++)
        if (others & bit_of((enum memplan_key)key))
            argp_error(state, "--%s is of evenodd's plans; leave it out, or --%s", name_of(key),
                       m->compare ? "compare" : "system");
    if (m->fit && m->json)
        argp_error(state, "--fit best of another system prints a table; leave --json out");
    if (m->compare && m->json)
        argp_error(state, "--compare prints a table; for --json give --system");
    if (m->all_strategies)
        argp_error(state, "--strategy all is of evenodd's plans; give one");
}

/* Another system's layout, or evenodd's own with words of the layout. */
static void check_systems(const struct argp_state *state, struct memplan *m)
{
    struct tool_problem problem;
    struct tool_estimate_request *e = &m->estimate;
    const struct tool_layout *l = &e->layout;
    const bool others = m->compare || e->system != TOOL_SYSTEM_EVENODD;
    e->strategy_given = others ? m->given & bit_of(KEY_STRATEGY) : true;
    if (e->price > 0 && e->tokens <= 0)
        argp_error(state, "--price: of what? give --tokens");
    if (e->network_bytes && !e->time && !m->fit)
        argp_error(state, "--network decides times; give --time too");
    if (m->given & bit_of(KEY_GLOBAL_BATCH) && m->given & bit_of(KEY_MICRO_BATCHES))
        argp_error(state, "--global-batch and --micro-batches are both given; one of them is enough");
    if (others) {
        check_estimate(state, m);
        return;
    }
    if (l->tensor > 1 || l->pipeline > 1 || l->context > 1 || l->expert > 1 || l->virtual_stages > 1 || l->sequence_parallel)
        argp_error(state, "--tp, --pp, --cp, --ep, --virtual-stages and --sequence-parallel are of other systems; give "
                   "--system megatron or fsdp2");
    if (e->selective)
        argp_error(state, "--recompute selective is of other systems; give none, cheap, all or a number of blocks");
    e->asked = &m->settings;
    if (tool_estimate_micro_batches(&m->settings.plan.micro_batches, e, &problem) < 0)
        argp_error(state, "%s", problem.text);
    if (m->settings.plan.micro_batches > MICRO_BATCHES_MOST)
        argp_error(state, "--global-batch %u is %u micro-batches of a rank; give at most %d", e->global_batch,
                   m->settings.plan.micro_batches, MICRO_BATCHES_MOST);
}

static void check_together(const struct argp_state *state, struct memplan *m)
{
    struct tool_memplan_settings *s = &m->settings;
    const uint64_t alone = bit_of(KEY_DIFF) | bit_of(KEY_PUBLISHED);
    const uint64_t outputs = bit_of(KEY_JSON) | bit_of(KEY_CSV) | bit_of(KEY_SVG) | bit_of(KEY_HTML) | bit_of(KEY_EXPLAIN) |
                             bit_of(KEY_FIT) | bit_of(KEY_TIME) | bit_of(KEY_TOKENS) | bit_of(KEY_PRICE);
    if (m->given & alone && m->given & (m->given - 1))
        argp_error(state, "--diff and --published stand alone; leave the other options out");
    if (m->given & alone)
        return;
    if (m->verify_path)
        take_log(state, m);
    check_systems(state, m);
    if (m->verify_path && m->given & outputs)
        argp_error(state, "--verify prints differences and nothing else; leave --json, --csv, --svg, --html, --explain, --fit, "
                   "--time, --tokens and --price out");
    if (!m->model)
        argp_error(state, "--model is missing: a config.json, a folder with one, or a name such as llama-3-8b");
    if (m->json && m->csv)
        argp_error(state, "--json and --csv both write to standard output; give one of them");
    if (m->device && (m->given & (uint64_t)1 << (KEY_DEVICE_MEMORY - KEY_MODEL)))
        argp_error(state, "--device and --device-memory are both given; one of them is enough");
    if ((m->given & (uint64_t)1 << (KEY_DEVICE_MEMORY - KEY_MODEL)) && s->capacity_bytes == 0)
        argp_error(state, "--device-memory is 0; give a size above 0");
    if (s->plan.strategy == EO_STRATEGY_HSDP && s->plan.ranks % s->plan.shard_group)
        argp_error(state, "--strategy hsdp:%u: groups of %u do not divide --ranks %u", s->plan.shard_group, s->plan.shard_group,
                   s->plan.ranks);
    tool_option_check_gather(state, &s->plan, "ranks 1");
    check_budget(state, m);
    if (!m->verify_path && s->plan.ranks > s->gpus_per_node && s->plan.ranks % s->gpus_per_node) /* it moves no byte */
        argp_error(state, "--ranks %u is not a multiple of --gpus-per-node %u", s->plan.ranks, s->gpus_per_node);
    if (m->given & bit_of(KEY_HEADROOM) && s->capacity_bytes == 0)
        argp_error(state, "--headroom: of what? give --device NAME or --device-memory BYTES");
    s->headroom_bytes = m->headroom_bytes + (uint64_t)(m->headroom_share * (double)s->capacity_bytes);
    if (s->capacity_bytes && s->headroom_bytes >= s->capacity_bytes)
        argp_error(state, "--headroom leaves nothing of the device's %.1f GiB", tool_gib(s->capacity_bytes));
    if (tool_overwrite_is_same(m->svg_path, m->html_path))
        argp_error(state, "--svg and --html both name %s; give them a file each", m->svg_path);
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct memplan *m = state->input;
    if (key >= KEY_MODEL && key < KEY_END) {
        m->given |= (uint64_t)1 << (key - KEY_MODEL);
        parse_run(state, m, key, text);
        parse_system(state, m, key, text);
        parse_rest(state, m, key, text);
        return 0;
    }
    if (key == ARGP_KEY_ARG)
        argp_error(state, "'%.60s' belongs to no option", text);
    if (key == ARGP_KEY_END)
        check_together(state, m);
    return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
}

/* --- planning ----------------------------------------------------------------------------------------------------- */

static struct tool_memplan_view view_of(const struct memplan *m)
{
    return (struct tool_memplan_view){.config = &m->config,
                                      .memplan = &m->plan,
                                      .lifetimes = m->lifetimes.live ? &m->lifetimes : NULL,
                                      .shown = m->fewer.plan ? &m->fewer : &m->plan,
                                      .safetensors = &m->safetensors,
                                      .device = m->device,
                                      .fit = m->fit ? &m->found : NULL,
                                      .budget = m->budget.request.bytes ? &m->budget : NULL,
                                      .asked = &m->settings,
                                      .time = m->estimate.time ? &m->time : NULL,
                                      .remedies = m->remedies[0] ? m->remedies : NULL,
                                      .all_strategies = m->all_strategies,
                                      .explain = m->explain};
}

static eo_status load_model(struct memplan *m, struct tool_problem *problem)
{
    EO_TRY(tool_model_config_load(&m->config, m->model, m->sets, m->set_count, problem));
    if (!m->config.from_file || m->set_count) /* a changed config is not that of the files */
        return EO_OK;
    char folder[sizeof(m->config.source)];
    snprintf(folder, sizeof(folder), "%s", m->config.source);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    return tool_safetensors_check(slash ? folder : ".", &m->config, &m->safetensors, problem);
}

static eo_status make_plan(struct memplan *m, struct tool_problem *problem)
{
    EO_TRY(load_model(m, problem));
    const struct tool_best_kept kept = {.strategy = m->given & bit_of(KEY_STRATEGY) && !m->all_strategies,
                                        .recompute = m->given & bit_of(KEY_RECOMPUTE),
                                        .batch = m->given & bit_of(KEY_BATCH),
                                        .granularity = m->given & bit_of(KEY_GRANULARITY)};
    if (m->fit) /* the settings as given must be good, whatever the search then changes */
        EO_TRY(tool_fit_search(&m->found, m->fit, &m->config, &m->settings, &kept, problem));
    if (m->budget.request.bytes)
        EO_TRY(tool_memplan_budget_choose(&m->budget, &m->config, &m->settings, problem));
    EO_TRY(tool_memplan_create(&m->plan, &m->config, &m->settings, problem));
    struct tool_memplan_settings fewer = m->plan.settings;
    fewer.plan.micro_batches = TOOL_LIFETIMES_MICRO_BATCHES;
    if (eo_plan_operation_count(m->plan.plan, EO_LIST_STEADY) > TOOL_LIFETIMES_OPERATIONS &&
        m->plan.settings.plan.micro_batches > fewer.plan.micro_batches)
        EO_TRY(tool_memplan_create(&m->fewer, &m->config, &fewer, problem));
    const eo_status status = tool_lifetimes_create(&m->lifetimes, m->fewer.plan ? &m->fewer : &m->plan);
    return status < 0 && status != EO_ERR_UNSUPPORTED ? tool_problem_set(problem, status, "no memory") : EO_OK;
}

static eo_status write_page(const struct memplan *m, const char *option, const char *path, bool html,
                            struct tool_problem *problem)
{
    if (!path)
        return EO_OK;
    const struct tool_memplan_view view = view_of(m);
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s %s: no memory", option, path);
    if (html) {
        uint32_t count = 0;
        struct tool_page_point *points = tool_page_points(&view, &count);
        if (points)
            tool_page_html(memory, &view, points, count);
        free(points);
    } else {
        fprintf(memory, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        tool_page_svg(memory, &view);
    }
    fclose(memory);
    const eo_status status = tool_write_file(option, path, text, bytes, problem);
    free(text);
    return status;
}

static void print_plan(struct memplan *m)
{
    if (!m->csv && !m->json && (m->fit ? !m->found.found : !m->plan.fits))
        tool_answer_remedies(&m->config, &m->settings, m->remedies, sizeof(m->remedies));
    const struct tool_memplan_view view = view_of(m);
    if (m->csv || m->json)
        tool_report_warnings(stderr, &view);
    if (m->csv) {
        tool_report_csv(stdout, &view);
    } else if (m->json) {
        tool_report_json(stdout, &view);
    } else {
        tool_report_plan(stdout, &view);
        if (m->estimate.time)
            printf("%s", m->time.text);
    }
}

/* Of the plan as it was found and filled in. */
static eo_status take_time(struct memplan *m, struct tool_problem *problem)
{
    if (!m->estimate.time)
        return EO_OK;
    m->estimate.config = &m->config;
    m->estimate.asked = &m->plan.settings;
    m->estimate.device = m->device ? m->device->name : NULL;
    return tool_estimate_time(&m->time, &m->estimate, problem);
}

static eo_status estimate(struct memplan *m, int *result, struct tool_problem *problem)
{
    bool fits = true;
    EO_TRY(load_model(m, problem));
    m->estimate.config = &m->config;
    m->estimate.asked = &m->settings;
    m->estimate.device = m->device ? m->device->name : NULL;
    if (m->compare)
        return tool_estimate_compare(stdout, &m->estimate, problem);
    const struct tool_layouts_kept kept = {.tensor = m->given & bit_of(KEY_TENSOR),
                                           .pipeline = m->given & bit_of(KEY_PIPELINE),
                                           .virtual_stages = m->given & bit_of(KEY_VIRTUAL_STAGES),
                                           .batch = m->given & bit_of(KEY_BATCH),
                                           .recompute = m->given & bit_of(KEY_RECOMPUTE)};
    if (m->fit) {
        EO_TRY(tool_estimate_layouts(stdout, &m->estimate, &kept, &fits, problem));
        *result = fits ? TOOL_EXIT_OK : TOOL_EXIT_FAILED;
        return EO_OK;
    }
    EO_TRY(tool_estimate_print(stdout, &m->estimate, m->json, &fits, problem));
    *result = fits ? TOOL_EXIT_OK : TOOL_EXIT_FAILED;
    return EO_OK;
}

/* 1 where something does not fit or differs. */
static eo_status run(struct memplan *m, int *result, struct tool_problem *problem)
{
    uint32_t differences = 0;
    *result = TOOL_EXIT_OK;
    if (m->published) {
        *result = tool_published_print(stdout) ? TOOL_EXIT_FAILED : TOOL_EXIT_OK;
        return EO_OK;
    }
    if (m->diff_a) {
        EO_TRY(tool_memplan_diff(stdout, m->diff_a, m->diff_b, &differences, problem));
        *result = differences ? TOOL_EXIT_FAILED : TOOL_EXIT_OK;
        return EO_OK;
    }
    if (m->compare || m->estimate.system != TOOL_SYSTEM_EVENODD)
        return estimate(m, result, problem);
    const struct tool_input inputs[] = {{"--model", m->model}, {"--verify", m->verify_path}, {"--rates", m->budget.rates_path}};
    EO_TRY(tool_check_writable("--svg", m->svg_path, problem));
    EO_TRY(tool_check_writable("--html", m->html_path, problem));
    EO_TRY(tool_overwrite_no_input("--svg", m->svg_path, inputs, 3, problem));
    EO_TRY(tool_overwrite_no_input("--html", m->html_path, inputs, 3, problem));
    EO_TRY(make_plan(m, problem));
    EO_TRY(take_time(m, problem));
    if (m->verify_path) {
        if (m->otherwise[0])
            printf("said otherwise than the log: %s\n", m->otherwise);
        EO_TRY(tool_memplan_verify(stdout, m->verify_path, &m->plan, &differences, problem));
        *result = differences ? TOOL_EXIT_FAILED : TOOL_EXIT_OK;
        return EO_OK;
    }
    EO_TRY(write_page(m, "--svg", m->svg_path, false, problem));
    EO_TRY(write_page(m, "--html", m->html_path, true, problem));
    print_plan(m);
    *result = m->plan.fits && (!m->fit || m->found.found) ? TOOL_EXIT_OK : TOOL_EXIT_FAILED;
    return EO_OK;
}

int main(int argc, char **argv)
{
    static struct memplan m = {
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
    const struct argp argp = {
        .options = option_table,
        .parser = parse_option,
        .doc = "Plans the memory of a sharded training run: the memory of each rank, to the byte.\vExit status: 0 it fits (or "
               "no fit was asked for), 1 it does not fit, or --verify or --diff found a difference, 2 bad input.",
    };
    tool_arguments_parse(&argp, &(struct tool_arguments){.argc = argc, .argv = argv}, &m);
    struct tool_problem problem;
    int result = TOOL_EXIT_OK;
    if (run(&m, &result, &problem) < 0) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.text);
        result = TOOL_EXIT_BAD_INPUT;
    }
    tool_lifetimes_fini(&m.lifetimes);
    tool_memplan_fini(&m.fewer);
    tool_memplan_fini(&m.plan);
    return tool_output_end(result);
}
