/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "tools/memplan/report/compare.h"
#include "tools/memplan/options/options.h"
#include "tools/shared/arguments.h"
#include "tools/shared/overwrite.h"
#include "tools/planning/options.h"

static void check_budget(const struct argp_state *state, const struct tool_memplan_asked *m)
{
    static const enum memplan_key chosen[] = {KEY_RECOMPUTE,         KEY_SLOTS, KEY_OFFLOAD_LAYERS, KEY_OFFLOAD_SLOTS,
                                              KEY_OFFLOAD_GRADIENTS, KEY_LATE_UPDATES, KEY_OFFLOAD_ACTIVATIONS, KEY_FIT, KEY_VERIFY, KEY_HEAD_CHUNKS};
    const size_t count = sizeof(chosen) / sizeof(chosen[0]) - !m->budget.request.may_change_bits;
    if (!m->budget.request.bytes && (m->budget.rates_path || m->budget.request.may_change_bits))
        argp_error(state, "--%s needs --budget BYTES, the memory of a rank",
                   m->budget.rates_path ? "rates" : "budget-may-change-bits");
    if (!m->budget.request.bytes)
        return;
    if (!m->budget.rates_path)
        argp_error(state, "--budget needs --rates FILE.json, the speeds of a rank; train measures them");
    for (size_t i = 0; i < count; i++)
        if (tool_memplan_given(m, chosen[i]))
            argp_error(state, "--budget chooses by itself; leave --%s out", tool_memplan_option_name(chosen[i]));
    tool_option_check_budget(state, strcmp(m->settings.plan.device, "cpu") != 0, m->budget.request.host_bytes);
}

/* An option as train writes it in a log; false: there is none of the name. `text` may be NULL. */
static bool take_logged_option(const struct argp_state *state, struct tool_memplan_asked *m, const char *name, char *text)
{
    const bool no_prefetch = strcmp(name, "no-prefetch") == 0, norms = strcmp(name, "log-norms") == 0; /* no options here */
    if (no_prefetch)
        m->settings.plan.no_prefetch = true;
    if (norms)
        m->settings.plan.norm_parts = true;
    for (const struct argp_option *row = tool_memplan_options; row->name || row->doc; row++)
        if (row->name && strcmp(row->name, name) == 0 && row->key >= KEY_WORLD && row->key <= KEY_GRAPH && !row->arg == !text) {
            if (!(m->given & tool_memplan_bit((enum memplan_key)row->key)))
                tool_memplan_parse_run(state, m, row->key, text);
            return true;
        }
    return (no_prefetch || norms) && !text;
}

/* A run's settings are in its log. What is said otherwise counts, and is told before any row. */
static void take_log(const struct argp_state *state, struct tool_memplan_asked *m)
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
static void check_estimate(const struct argp_state *state, struct tool_memplan_asked *m)
{
    static const enum memplan_key known[] = {
        KEY_MODEL, KEY_SET, KEY_WORLD, KEY_NODE, KEY_STRATEGY, KEY_SEQ, KEY_BATCH, KEY_MICRO_BATCHES, KEY_DTYPE, KEY_RECOMPUTE,
        KEY_SYSTEM, KEY_TENSOR, KEY_PIPELINE, KEY_CONTEXT, KEY_EXPERT, KEY_EXPERT_TENSOR, KEY_VIRTUAL_STAGES,
        KEY_SEQUENCE_PARALLEL,
        KEY_GLOBAL_BATCH, KEY_COMPARE, KEY_TIME, KEY_TOKENS, KEY_PRICE, KEY_NETWORK, KEY_DEVICE_MEMORY, KEY_HEADROOM,
        KEY_DEVICE, KEY_DEVICES, KEY_OUTSIDE, KEY_JSON, KEY_HTML, KEY_GATHER, KEY_OPTIMIZER, KEY_STATE_DTYPE, KEY_OFFLOAD, KEY_LORA, KEY_FROZEN};
    tool_memplan_bits others = m->given;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        others &= ~tool_memplan_bit(known[i]);
    if (m->fit == TOOL_FIT_BEST && !m->compare)
        others &= ~tool_memplan_bit(KEY_FIT);
    if (m->fit && m->fit != TOOL_FIT_BEST && !m->compare)
        argp_error(state, "--fit: of another system --fit best alone is searched; other limits are of evenodd's plans");
    for (int key = KEY_MODEL; others && key < KEY_END; key++)
        if (others & tool_memplan_bit((enum memplan_key)key))
            argp_error(state, "--%s is of evenodd's plans; leave it out, or --%s", tool_memplan_option_name(key),
                       m->compare ? "compare" : "system");
    if (m->settings.plan.float8_frozen)
        argp_error(state, "--frozen mxfp8 is of evenodd's plans; other systems are planned with bf16 or nf4");
    if (m->settings.plan.lora.alpha > 0 || m->settings.plan.lora.targets[0])
        argp_error(state, "--lora: adapters of other systems stand beside all products; give a rank alone");
    if (m->fit && m->json)
        argp_error(state, "--fit best of another system prints a table; leave --json out");
    if (m->compare && m->json)
        argp_error(state, "--compare prints a table; for --json give --system");
    if (m->compare && m->html_path)
        argp_error(state, "--compare prints a table; for --html give --system");
    if (m->all_strategies)
        argp_error(state, "--strategy all is of evenodd's plans; give one");
}

/* Options that evenodd's plans do not have. */
static void check_no_others(const struct argp_state *state, const struct tool_memplan_asked *m)
{
    static const enum memplan_key others[] = {KEY_STATE_DTYPE, KEY_OFFLOAD};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (tool_memplan_given(m, others[i]))
            argp_error(state, "--%s is of other systems; leave it out, or give --system", tool_memplan_option_name(others[i]));
    if (m->others_frozen)
        argp_error(state, "--frozen %s is of other systems; give mxfp8 or dtype, or --system", m->estimate.run.nf4 ? "nf4" : "bf16");
    if (m->estimate.run.precision)
        argp_error(state, "--dtype %s is of other systems; give bf16 or fp32, and --gather float8 for gathers",
                   tool_precision_name(m->estimate.run.precision));
}

/* A rank's part beside groups of the trainer. */
static void check_slice(const struct argp_state *state, struct tool_memplan_asked *m)
{
    m->settings.slice = tool_estimate_slice(&m->estimate.layout);
    if (m->verify_path || m->budget.request.bytes || m->all_strategies || m->explain || m->settings.plan.lora.rank)
        argp_error(state, "--tp, --pp, --cp and --ep plan a rank's part; leave --verify, --budget, --strategy all, --explain and --lora "
                   "out");
    if (m->html_path && m->fit)
        argp_error(state, "--html: of a rank's part (--tp, --pp, --cp, --ep) give the settings that --fit finds");
    if (m->fit == TOOL_FIT_MIN_GPUS || m->fit == TOOL_FIT_MAX_LAYERS || m->fit == TOOL_FIT_BEST_STRATEGY)
        argp_error(state, "--fit: of a rank's part (--tp, --pp, --cp, --ep) give max-batch, max-seq, min-recompute, best or best-layout");
}

/* Another system's layout, or evenodd's own with words of the layout. */
static void check_systems(const struct argp_state *state, struct tool_memplan_asked *m)
{
    struct tool_problem problem;
    struct tool_estimate_request *e = &m->estimate;
    const struct tool_layout *l = &e->layout;
    const bool others = m->compare || e->system != TOOL_SYSTEM_EVENODD;
    e->strategy_given = others ? tool_memplan_given(m, KEY_STRATEGY) : true;
    if (e->price > 0 && e->tokens <= 0)
        argp_error(state, "--price: of what? give --tokens");
    if (e->network_bytes && !e->time && !m->fit)
        argp_error(state, "--network decides times; give --time too");
    if (tool_memplan_given(m, KEY_GLOBAL_BATCH) && tool_memplan_given(m, KEY_MICRO_BATCHES))
        argp_error(state, "--global-batch and --micro-batches are both given; one of them is enough");
    if (others) {
        check_estimate(state, m);
        return;
    }
    if (l->virtual_stages > 1 && l->pipeline == 1)
        argp_error(state, "--virtual-stages %u: of which pipeline? give --pp", l->virtual_stages);
    if (l->tensor > 1 || l->pipeline > 1 || l->context > 1 || l->expert > 1 || l->expert_tensor)
        check_slice(state, m);
    else if (l->sequence_parallel)
        argp_error(state, "--sequence-parallel: of how many ranks? give --tp");
    if (m->others_recompute)
        argp_error(state, "--recompute selective, block:N, uniform:N and modules are of other systems; give none, cheap, all or a "
                   "number of blocks");
    check_no_others(state, m);
    tool_option_check_lora(state, &m->settings.plan);
    if (m->fit == TOOL_FIT_BEST_LAYOUT && (!m->device_name || !tool_device_rates_find(m->device->name) || !e->global_batch))
        argp_error(state, "--fit best-layout goes by time: give --global-batch, and --device of A100, H100, H200 or B200");
    if (m->fit == TOOL_FIT_BEST_LAYOUT && (m->html_path || m->settings.plan.lora.rank))
        argp_error(state, "--fit best-layout: for --html give the layout that it finds, and leave --lora out");
    e->asked = &m->settings;
    if (m->fit == TOOL_FIT_MIN_GPUS && !tool_memplan_given(m, KEY_WORLD))
        m->settings.plan.ranks = (uint32_t)tool_fit_world_unit(&m->settings);
    if (m->fit == TOOL_FIT_MIN_GPUS || m->fit == TOOL_FIT_BEST_LAYOUT) /* each world and layout has its own */
        return;
    if (tool_estimate_micro_batches(&m->settings.plan.micro_batches, e, &problem) < 0)
        argp_error(state, "%s", problem.text);
    if (m->settings.plan.micro_batches > TOOL_MICRO_BATCHES_MOST)
        argp_error(state, "--global-batch %u is %u micro-batches of a rank; give at most %d", e->global_batch,
                   m->settings.plan.micro_batches, TOOL_MICRO_BATCHES_MOST);
}

/* After --devices, wherever it stands. */
static void find_device(const struct argp_state *state, struct tool_memplan_asked *m)
{
    struct tool_problem problem;
    const char *text = m->device_name;
    if (m->devices_path && tool_devices_read(m->devices_path, &problem) < 0)
        argp_error(state, "%s", problem.text);
    if (!text)
        return;
    m->device = tool_device_memory_find(text);
    if (m->device) {
        m->settings.capacity_bytes = m->device->bytes;
        m->settings.on_gpu = true;
        return;
    }
    char known[1024] = "";
    for (uint32_t i = 0; tool_device_memory_at(i) && strlen(known) < sizeof(known) - 1; i++)
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i ? ", " : "", tool_device_memory_at(i)->name);
    argp_error(state, "--device '%.60s' is not in the table: %s; give any other by --device-memory", text, known);
}

void tool_memplan_check_together(const struct argp_state *state, struct tool_memplan_asked *m)
{
    struct tool_memplan_settings *s = &m->settings;
    const tool_memplan_bits alone = tool_memplan_bit(KEY_DIFF) | tool_memplan_bit(KEY_PUBLISHED);
    const tool_memplan_bits outputs = tool_memplan_bit(KEY_JSON) | tool_memplan_bit(KEY_CSV) | tool_memplan_bit(KEY_SVG) |
                             tool_memplan_bit(KEY_HTML) | tool_memplan_bit(KEY_EXPLAIN) | tool_memplan_bit(KEY_FIT) |
                             tool_memplan_bit(KEY_TIME) | tool_memplan_bit(KEY_TOKENS) | tool_memplan_bit(KEY_PRICE);
    if (m->given & alone && m->given & (m->given - 1))
        argp_error(state, "--diff and --published stand alone; leave the other options out");
    if (m->given & alone)
        return;
    if (m->verify_path)
        take_log(state, m);
    find_device(state, m);
    check_systems(state, m);
    if (m->verify_path && m->given & outputs)
        argp_error(state, "--verify prints differences and nothing else; leave --json, --csv, --svg, --html, --explain, --fit, "
                   "--time, --tokens and --price out");
    if (!m->model)
        argp_error(state, "--model is missing: a config.json, a folder with one, or a name such as llama-3-8b");
    if (m->json && m->csv)
        argp_error(state, "--json and --csv both write to standard output; give one of them");
    if (m->device && tool_memplan_given(m, KEY_DEVICE_MEMORY))
        argp_error(state, "--device and --device-memory are both given; one of them is enough");
    if (tool_memplan_given(m, KEY_DEVICE_MEMORY) && s->capacity_bytes == 0)
        argp_error(state, "--device-memory is 0; give a size above 0");
    if (s->plan.strategy == EO_STRATEGY_HSDP && s->plan.ranks % s->plan.shard_group)
        argp_error(state, "--strategy hsdp:%u: groups of %u do not divide --ranks %u", s->plan.shard_group, s->plan.shard_group,
                   s->plan.ranks);
    tool_option_check_gather(state, &s->plan);
    tool_option_check_products(state, &s->plan, "--kernels cuda");
    tool_option_check_frozen(state, &s->plan);
    check_budget(state, m);
    tool_option_check_offload(state, &s->plan);
    if (!m->verify_path && s->plan.ranks > s->gpus_per_node && s->plan.ranks % s->gpus_per_node) /* it moves no byte */
        argp_error(state, "--ranks %u is not a multiple of --gpus-per-node %u", s->plan.ranks, s->gpus_per_node);
    if (tool_memplan_given(m, KEY_HEADROOM) && s->capacity_bytes == 0)
        argp_error(state, "--headroom: of what? give --device NAME or --device-memory BYTES");
    s->headroom_bytes = m->headroom_bytes + (uint64_t)(m->headroom_share * (double)s->capacity_bytes);
    if (s->capacity_bytes && s->headroom_bytes >= s->capacity_bytes)
        argp_error(state, "--headroom leaves nothing of the device's %.1f GiB", tool_gib(s->capacity_bytes));
    if (tool_overwrite_is_same(m->svg_path, m->html_path))
        argp_error(state, "--svg and --html both name %s; give them a file each", m->svg_path);
}
