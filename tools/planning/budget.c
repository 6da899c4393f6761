/* SPDX-License-Identifier: MIT */
#include "tools/planning/budget.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- predicted time -------------------------------------------------------------------------------------------- */

/* Element-wise bytes of a block's pass over a token, in widths of the model and of the MLP, counted over norms, residuals and
 * activations as read and written once each. */
static const struct {
    double width, mlp;
} forward_bytes = {14, 3}, backward_bytes = {24, 5}, cheap_bytes = {4, 2};

enum { COPY_LATENCY_US = 100 };

struct prediction {
    const struct tool_plan_settings *settings;
    const eo_transformer_config *config;
    const struct tool_rates *rates;
    double block_flops, head_flops; /* forward and backward, of a micro-batch; of a position */
    double head_bytes;              /* each piece reads its weights twice, and adds to their gradient */
    uint32_t position_count, group; /* ranks of a group */
};

static uint32_t unit_blocks_of(const struct tool_plan_settings *settings)
{
    return settings->unit_blocks > 1 ? settings->unit_blocks : 1;
}

static double elementwise_seconds(const struct prediction *p, double width, double mlp)
{
    const eo_transformer_config *c = p->config;
    const double tokens = (double)p->settings->batch * p->settings->seq, blocks = p->settings->half_blocks ? 0.5 : unit_blocks_of(p->settings);
    const double mlp_width = c->mlp_width ? c->mlp_width : 4.0 * c->width;
    return tokens * (width * c->width + mlp * mlp_width) * blocks * (double)eo_dtype_bytes(p->settings->dtype) /
           p->rates->memory_bytes_per_s;
}

static bool is_recomputed(const struct prediction *p, uint32_t position)
{
    const uint32_t block = p->settings->half_blocks ? (position - 1) / 2 : (position - 1) * unit_blocks_of(p->settings);
    return p->settings->recompute == EO_RECOMPUTE_BLOCKS && block < p->settings->recompute_blocks;
}

static double pass_seconds(const struct prediction *p, const eo_plan_operation *o)
{
    const double speed = p->rates->products_flops_per_s;
    if (o->position == 0)
        return 0;
    if (o->position + 1 == p->position_count) /* the head does all of it in its backward pass */
        return o->kind == EO_OP_BACKWARD ? p->head_flops / speed + p->head_bytes / p->rates->memory_bytes_per_s : 0;
    const double forward =
        p->block_flops / 3 / speed + elementwise_seconds(p, forward_bytes.width, forward_bytes.mlp);
    if (o->kind == EO_OP_FORWARD)
        return forward;
    if (o->kind == EO_OP_BACKWARD)
        return p->block_flops * 2 / 3 / speed + elementwise_seconds(p, backward_bytes.width, backward_bytes.mlp);
    return is_recomputed(p, o->position)                      ? forward
           : p->settings->recompute == EO_RECOMPUTE_CHEAP ? elementwise_seconds(p, cheap_bytes.width, cheap_bytes.mlp)
                                                              : 0;
}

static double operation_seconds(const struct prediction *p, const eo_plan *plan, const eo_plan_operation *o)
{
    const struct tool_rates *r = p->rates;
    eo_shard_range shard = {0};
    if (o->layer != UINT32_MAX && eo_plan_shard_range(plan, o->layer, 0, &shard) < 0)
        return 0;
    const double elements = (double)shard.count;
    switch ((int)o->kind) { /* the norm takes nothing */
    case EO_OP_FORWARD:
    case EO_OP_RECOMPUTE:
    case EO_OP_BACKWARD: return pass_seconds(p, o);
    case EO_OP_ALL_GATHER:
    case EO_OP_REDUCE_SCATTER:
    case EO_OP_MATRIX_GATHER:
    case EO_OP_MATRIX_SCATTER:
    case EO_OP_ALL_REDUCE:
    case EO_OP_NORM_GATHER: return (double)o->bytes / r->link_bytes_per_s + r->link_latency_s;
    case EO_OP_ACCUMULATE: return 12 * elements / r->memory_bytes_per_s;
    case EO_OP_NORM_PARTIAL: return 4 * elements / r->memory_bytes_per_s;
    case EO_OP_NARROW: return 5 * elements / r->memory_bytes_per_s; /* read twice in bf16, written in float8 */
    case EO_OP_WIDEN: return (1 + eo_dtype_bytes(p->settings->dtype)) * elements * p->group / r->memory_bytes_per_s;
    case EO_OP_DIRECTION: return TOOL_DIRECTION_BYTES * elements / r->memory_bytes_per_s;
    case EO_OP_ORTHOGONALIZE:
        return o->flops / shard.ranks / tool_rates_fp32_products(r) +
               TOOL_ORTHOGONALIZE_BYTES * elements / r->memory_bytes_per_s;
    case EO_OP_UPDATE: return tool_update_bytes(p->settings->optimizer) * elements / r->memory_bytes_per_s;
    case EO_OP_FETCH:
    case EO_OP_EVICT: return (double)o->bytes / r->disk_bytes_per_s + COPY_LATENCY_US * 1e-6;
    default: return 0;
    }
}

eo_status tool_predict_step(const eo_plan *plan, const eo_transformer *transformer, const struct tool_plan_settings *settings,
                            const eo_transformer_config *config, const struct tool_rates *rates, double *seconds)
{
    enum { STEPS = 3, LONGEST_S = 1000000 }; /* of an operation: sums of them stay numbers of 64 bits */
    const uint32_t count = eo_plan_operation_count(plan, EO_LIST_STEADY);
    const double tokens = (double)settings->batch * settings->seq;
    const uint32_t unit = unit_blocks_of(settings), units = (config->layer_count + unit - 1) / unit;
    struct prediction p = {.settings = settings,
                           .config = config,
                           .rates = rates,
                           .head_flops = 6.0 * config->vocabulary * config->width * tokens,
                           .head_bytes = 2.0 * settings->head_chunks * config->vocabulary * config->width *
                                         (double)(eo_dtype_bytes(settings->dtype) + eo_dtype_bytes(settings->reduce_dtype)),
                           .position_count = 2 + units * (settings->half_blocks ? 2 : 1)};
    eo_plan_summary summary;
    eo_plan_get_summary(plan, &summary);
    p.group = summary.params.shard_group;
    p.block_flops = (eo_transformer_flops(transformer) - p.head_flops) / (p.position_count - 2);
    uint64_t *durations_ns = calloc(count, sizeof(*durations_ns)), step_ns = 0;
    eo_status status = durations_ns ? EO_OK : EO_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < count && status >= 0; i++) {
        eo_plan_operation o;
        status = eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o);
        if (status >= 0)
            durations_ns[i] = (uint64_t)(fmin(operation_seconds(&p, plan, &o), LONGEST_S) * 1e9);
    }
    if (status >= 0)
        status = eo_plan_simulate(plan, EO_LIST_STEADY, durations_ns, STEPS, &step_ns);
    free(durations_ns);
    *seconds = (double)step_ns * 1e-9;
    return status;
}

static bool is_on_gpu(const struct tool_plan_settings *settings)
{
    return strcmp(settings->device, "cpu") != 0;
}

eo_status tool_budget_evaluate(const struct tool_plan_settings *settings, const eo_transformer_config *config,
                               const struct tool_rates *rates, const eo_log *log, struct tool_budget_option *out)
{
    eo_transformer *transformer = NULL;
    eo_plan *plan = NULL;
    const struct tool_plan_params params = tool_plan_params_of(settings, config, log);
    *out = (struct tool_budget_option){.settings = *settings};
    EO_TRY(eo_transformer_create(&transformer, &params.transformer));
    eo_status status = eo_plan_create(&plan, eo_transformer_model(transformer), &params.plan);
    if (status >= 0) {
        eo_plan_summary summary;
        eo_plan_get_summary(plan, &summary);
        out->arena_bytes = summary.arena_bytes;
        out->disk_bytes = summary.space_bytes[EO_SPACE_DISK];
        if (is_on_gpu(settings)) {
            out->arena_bytes -= summary.space_bytes[EO_SPACE_HOST];
            out->host_bytes = out->disk_bytes + summary.space_bytes[EO_SPACE_HOST];
        } else if (out->disk_bytes > 0) {
            out->cache_bytes = (uint64_t)rates->disk_cache_bytes;
        }
        out->memory_bytes = out->arena_bytes + out->cache_bytes;
        status = tool_predict_step(plan, transformer, settings, config, rates, &out->step_s);
    }
    for (uint32_t i = 0; status >= 0 && i < eo_plan_operation_count(plan, EO_LIST_STEADY); i++) {
        eo_plan_operation o;
        status = eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o);
        out->layer_count += status >= 0 && o.kind == EO_OP_UPDATE;
    }
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
    return status;
}

/* ---- the search ------------------------------------------------------------------------------------------------- */

enum { FEW_LAYERS = 10, OPTIONS_MAX = 8192 };

struct search {
    const eo_transformer_config *config;
    const struct tool_rates *rates;
    const eo_log *log;
    uint64_t budget_bytes, host_bytes;
    uint32_t head_chunks; /* without a budget */
    struct tool_budget_option options[OPTIONS_MAX];
    uint32_t count, layer_count; /* layers with an update */
    bool offloads_layers; /* not possible with Muon */
};

static eo_status try_settings(struct search *s, const struct tool_plan_settings *settings)
{
    if (s->count == OPTIONS_MAX)
        return EO_OK;
    EO_TRY(tool_budget_evaluate(settings, s->config, s->rates, s->log, &s->options[s->count]));
    s->options[s->count].changes_bits = settings->head_chunks != s->head_chunks;
    s->layer_count = s->options[s->count++].layer_count;
    return EO_OK;
}

static bool fits_host(const struct search *s, const struct tool_budget_option *o)
{
    return s->host_bytes == 0 || o->host_bytes <= s->host_bytes;
}

static bool has_disk(const struct search *s)
{
    return s->rates->disk_bytes_per_s > 0;
}

/* Where each comes once, and leaves alone. */
static bool may_offload_gradients(const struct tool_plan_settings *settings)
{
    return settings->micro_batches == 1 && settings->gradient_run <= 1;
}

/* A graph is a step with its own updates. */
static bool may_update_late(const struct tool_plan_settings *settings)
{
    return !settings->no_prefetch && !is_on_gpu(settings);
}

static eo_status try_early_and_late(struct search *s, struct tool_plan_settings settings)
{
    settings.late_updates = false;
    EO_TRY(try_settings(s, &settings));
    settings.late_updates = may_update_late(&settings);
    return settings.late_updates ? try_settings(s, &settings) : EO_OK;
}

/* Each number of a few layers on disk, by one, two or four buffers; with gradients by one or two. */
static eo_status try_offloading(struct search *s, struct tool_plan_settings settings)
{
    const uint32_t most = s->offloads_layers ? s->layer_count : 0;
    for (uint32_t layers = 1; layers <= most; layers++)
        for (uint32_t slots = 1; slots <= 4 && slots <= layers; slots *= 2) {
            settings.offload_layers = layers;
            settings.offload_slots = slots;
            settings.offload_gradients = false;
            EO_TRY(try_early_and_late(s, settings));
            settings.offload_gradients = may_offload_gradients(&settings) && slots <= 2 && layers > slots;
            if (settings.offload_gradients)
                EO_TRY(try_early_and_late(s, settings));
        }
    return EO_OK;
}

static void set_level(struct tool_plan_settings *settings, uint32_t level)
{
    settings->recompute = level == 0 ? EO_RECOMPUTE_NONE : level == 1 ? EO_RECOMPUTE_CHEAP : EO_RECOMPUTE_BLOCKS;
    settings->recompute_blocks = level < 2 ? 0 : level - 1;
}

static void offload_nothing(struct tool_plan_settings *settings)
{
    settings->offload_layers = settings->offload_slots = 0;
    settings->offload_gradients = settings->late_updates = false;
}

static eo_status try_few(struct search *s, struct tool_plan_settings settings)
{
    for (uint32_t level = 0; level < s->config->layer_count + 2; level++) {
        set_level(&settings, level);
        offload_nothing(&settings);
        EO_TRY(try_settings(s, &settings));
        EO_TRY(try_offloading(s, settings));
    }
    return EO_OK;
}

/* Between two numbers, of which `high` fits: where a line through their bytes meets the budget; every third time the middle. */
static uint32_t next_probe(const struct search *s, uint32_t low, uint64_t low_bytes, uint32_t high, uint64_t high_bytes,
                           uint32_t probe)
{
    const uint32_t middle = low + (high - low) / 2;
    if (probe % 3 == 2 || low_bytes <= high_bytes)
        return middle;
    if (low_bytes <= s->budget_bytes)
        return low + 1;
    const double share = (double)(low_bytes - s->budget_bytes) / (double)(low_bytes - high_bytes);
    const uint32_t at = low + (uint32_t)ceil(share * (high - low));
    return at <= low ? low + 1 : at >= high ? high - 1 : at;
}

/* The least number of *field, of at most `most`, that fits: more of it takes less memory and more time. None of it takes
 * `none_bytes`, and is tried elsewhere. */
static eo_status narrow(struct search *s, const struct tool_plan_settings *settings, uint32_t *field, uint32_t most,
                        uint64_t none_bytes)
{
    *field = most;
    EO_TRY(try_settings(s, settings));
    uint64_t low_bytes = none_bytes, high_bytes = s->options[s->count - 1].memory_bytes;
    if (high_bytes > s->budget_bytes)
        return EO_OK;
    for (uint32_t low = 0, high = most, probe = 0; high - low > 1; probe++) {
        *field = next_probe(s, low, low_bytes, high, high_bytes, probe);
        EO_TRY(try_settings(s, settings));
        const uint64_t bytes = s->options[s->count - 1].memory_bytes;
        const bool fits = bytes <= s->budget_bytes;
        *(fits ? &high : &low) = *field;
        *(fits ? &high_bytes : &low_bytes) = bytes;
    }
    return EO_OK;
}

/* Layers whose state the host has room for, if it lies there in equal parts, which the check of each plan makes good. */
static eo_status find_most_layers(struct search *s, struct tool_plan_settings settings, uint32_t *most)
{
    *most = s->layer_count;
    if (s->host_bytes == 0 || !s->offloads_layers)
        return EO_OK;
    settings.offload_layers = s->layer_count;
    settings.offload_slots = 1;
    EO_TRY(try_settings(s, &settings));
    const uint64_t all_bytes = s->options[s->count - 1].host_bytes;
    if (all_bytes > s->host_bytes)
        *most = (uint32_t)((double)s->layer_count * (double)s->host_bytes / (double)all_bytes);
    return EO_OK;
}

/* Of many layers: for no, all and all but one layers on disk the least recompute that fits, and for some settings of recompute
 * the least number of layers on disk. The one is the embedding, the first to be updated. One buffer takes the least memory.
 * Late updates cost no memory where gradients are on disk too. */
static eo_status try_many(struct search *s, struct tool_plan_settings settings)
{
    const uint32_t blocks = s->config->layer_count;
    uint32_t all;
    uint64_t none_bytes = 0;
    EO_TRY(find_most_layers(s, settings, &all));
    const bool late = may_update_late(&settings);
    const struct {
        uint32_t layers, slots;
        bool gradients, late;
    } disk[] = {{0, 0, false, false}, {all - 1, 2, false, false}, {all, 2, false, false}, {all, 2, false, true}, {all, 2, true, true},
                {all, 1, false, false}, {all, 1, false, true}, {all, 1, true, true}};
    const uint32_t levels[] = {0, 1, 1 + blocks / 2, 1 + blocks};
    for (size_t d = 0; d < (s->offloads_layers && all > 1 ? sizeof(disk) / sizeof(disk[0]) : 1); d++) { /* the first is none */
        settings.offload_layers = disk[d].layers;
        settings.offload_slots = disk[d].slots;
        settings.offload_gradients = disk[d].gradients && may_offload_gradients(&settings);
        settings.late_updates = disk[d].late && late;
        if (disk[d].late && !late && !settings.offload_gradients)
            continue; /* stood before */
        for (uint32_t level = 0; level < 2; level++) {
            set_level(&settings, level);
            EO_TRY(try_settings(s, &settings));
            none_bytes = level == 0 ? s->options[s->count - 1].memory_bytes : none_bytes;
        }
        set_level(&settings, 2);
        EO_TRY(narrow(s, &settings, &settings.recompute_blocks, blocks, none_bytes));
    }
    for (size_t l = 0; s->offloads_layers && all > 1 && l < sizeof(levels) / sizeof(levels[0]); l++) {
        set_level(&settings, levels[l]);
        offload_nothing(&settings);
        EO_TRY(try_settings(s, &settings));
        none_bytes = s->options[s->count - 1].memory_bytes;
        settings.offload_slots = 4;
        EO_TRY(narrow(s, &settings, &settings.offload_layers, all, none_bytes));
        settings.late_updates = late;
        if (late)
            EO_TRY(narrow(s, &settings, &settings.offload_layers, all, none_bytes));
    }
    return EO_OK;
}

/* What all blocks save, or half of them, beside all state or none; where it is computed again there is less to move. Of many
 * layers each plan takes its time. */
static eo_status try_activations(struct search *s, struct tool_plan_settings settings)
{
    const uint32_t blocks[] = {s->config->layer_count / 2, UINT32_MAX};
    const uint32_t choices = !has_disk(s) ? 0 : s->offloads_layers ? 8 : 4;
    for (uint32_t choice = 0; choice < choices; choice += s->layer_count > FEW_LAYERS ? 2 : 1) {
        set_level(&settings, choice & 1);
        settings.offload_activations = blocks[choice >> 1 & 1];
        settings.offload_layers = choice & 4 ? s->layer_count : 0;
        settings.offload_slots = choice & 4 && s->layer_count ? 2 : 0;
        EO_TRY(settings.offload_layers ? try_early_and_late(s, settings) : try_settings(s, &settings));
    }
    return EO_OK;
}

static eo_status try_all(struct search *s, struct tool_plan_settings settings)
{
    for (uint32_t slots = 2; slots >= 1; slots--) {
        settings.gather_slots = settings.gradient_slots = slots;
        offload_nothing(&settings);
        if (slots == 2) { /* everything in memory, and the number of layers */
            set_level(&settings, 0);
            EO_TRY(try_settings(s, &settings));
        }
        EO_TRY(s->layer_count <= FEW_LAYERS ? try_few(s, settings) : try_many(s, settings));
        EO_TRY(try_activations(s, settings));
    }
    return EO_OK;
}

/* The head in one piece, and in up to eight times as many. */
static eo_status try_pieces(struct search *s, struct tool_plan_settings settings)
{
    enum { MORE = 8 };
    const uint64_t tokens = (uint64_t)settings.batch * settings.seq, most = (uint64_t)MORE * s->head_chunks;
    for (uint64_t pieces = 2 * (uint64_t)s->head_chunks; pieces <= most && pieces <= tokens; pieces *= 2) {
        settings.head_chunks = (uint32_t)pieces;
        EO_TRY(try_all(s, settings));
    }
    settings.head_chunks = 1;
    return s->head_chunks > 1 ? try_all(s, settings) : EO_OK;
}

/* Of equal times, the one that leaves the disk alone. */
static bool is_better(const struct tool_budget_option *a, const struct tool_budget_option *b)
{
    if (a->step_s != b->step_s)
        return a->step_s < b->step_s;
    return a->disk_bytes < b->disk_bytes || (a->disk_bytes == b->disk_bytes && a->memory_bytes < b->memory_bytes);
}

/* The next faster ones that take more memory, each the least memory for its time; at least 2 % are worth a line. */
static void find_next(const struct search *s, struct tool_budget_choice *out)
{
    const double worth = 0.98;
    const struct tool_budget_option *from = out->found ? &out->chosen : &out->least;
    while (out->next_count < TOOL_BUDGET_NEXT) {
        const struct tool_budget_option *next = NULL;
        for (uint32_t i = 0; i < s->count; i++) {
            const struct tool_budget_option *o = &s->options[i];
            if (fits_host(s, o) && o->memory_bytes > s->budget_bytes && o->step_s < worth * from->step_s &&
                (!next || o->memory_bytes < next->memory_bytes ||
                 (o->memory_bytes == next->memory_bytes && is_better(o, next))))
                next = o;
        }
        if (!next)
            return;
        out->next[out->next_count++] = *next;
        from = next;
    }
}

/* Of memory; where the host is too small for any, first of that. */
static bool takes_less(const struct search *s, const struct tool_budget_option *a, const struct tool_budget_option *b)
{
    if (fits_host(s, a) != fits_host(s, b))
        return fits_host(s, a);
    if (!fits_host(s, a) && a->host_bytes != b->host_bytes)
        return a->host_bytes < b->host_bytes;
    return a->memory_bytes < b->memory_bytes;
}

static eo_status search_options(struct search *s, const struct tool_plan_settings *settings, bool may_change_bits,
                                struct tool_budget_choice *out)
{
    EO_TRY(try_all(s, *settings));
    if (may_change_bits)
        EO_TRY(try_pieces(s, *settings));
    out->everything = out->least = s->options[0];
    out->plan_count = s->count;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct tool_budget_option *o = &s->options[i];
        if (takes_less(s, o, &out->least))
            out->least = *o;
        if (fits_host(s, o) && o->memory_bytes <= s->budget_bytes && (!out->found || is_better(o, &out->chosen))) {
            out->found = true;
            out->chosen = *o;
        }
    }
    find_next(s, out);
    return EO_OK;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

eo_status tool_budget_find(const struct tool_plan_settings *settings, const eo_transformer_config *config,
                           const struct tool_budget_request *request, struct tool_budget_choice *out,
                           struct tool_problem *problem)
{
    const eo_log silence = {0};
    *out = (struct tool_budget_choice){.found = false};
    struct search *s = calloc(1, sizeof(*s));
    if (!s)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "--budget: no memory for the search");
    s->config = config;
    s->rates = &request->rates;
    s->log = &silence;
    s->offloads_layers = request->rates.disk_bytes_per_s > 0 && settings->optimizer != EO_OPTIMIZER_MUON;
    s->budget_bytes = request->bytes;
    s->host_bytes = request->host_bytes;
    s->head_chunks = settings->head_chunks;
    const eo_status status = search_options(s, settings, request->may_change_bits, out);
    free(s);
    if (status < 0)
        return tool_problem_set(problem, status,
                                "--budget: no plan of this job can be made: %s; without --budget the reason is "
                                "told",
                                eo_status_text(status));
    if (out->found)
        return EO_OK;
    char text[160], cache[48] = "";
    tool_budget_text(&out->least, text, sizeof(text));
    if (out->least.cache_bytes)
        snprintf(cache, sizeof(cache), ", %.1f of them page cache", mib(out->least.cache_bytes));
    if (request->host_bytes)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--budget: %.1f MiB of a device and %.1f MiB of its host are too few; the least is %llu bytes "
                                "(%.1f MiB) of the device, with %llu (%.1f MiB) of the host: %s; a smaller --batch or --seq, or "
                                "more --ranks, takes less",
                                mib(request->bytes), mib(request->host_bytes), (unsigned long long)out->least.memory_bytes,
                                mib(out->least.memory_bytes), (unsigned long long)out->least.host_bytes,
                                mib(out->least.host_bytes), text);
    return tool_problem_set(problem, EO_ERR_INVALID,
                            "--budget: %llu bytes a rank (%.1f MiB) are too few; the least is %llu (%.1f MiB%s): %s; a smaller "
                            "--batch or --seq, more --ranks%s, takes less",
                            (unsigned long long)request->bytes, mib(request->bytes),
                            (unsigned long long)out->least.memory_bytes, mib(out->least.memory_bytes), cache, text,
                            request->rates.disk_bytes_per_s > 0 ? "" : ", or a disk by --offload-folder");
}

void tool_budget_take(struct tool_plan_settings *settings, const struct tool_plan_settings *chosen)
{
    settings->recompute = chosen->recompute;
    settings->recompute_blocks = chosen->recompute_blocks;
    settings->gather_slots = chosen->gather_slots;
    settings->gradient_slots = chosen->gradient_slots;
    settings->offload_layers = chosen->offload_layers;
    settings->offload_slots = chosen->offload_slots;
    settings->offload_gradients = chosen->offload_gradients;
    settings->late_updates = chosen->late_updates;
    settings->offload_activations = chosen->offload_activations;
    settings->head_chunks = chosen->head_chunks;
}

void tool_budget_print(FILE *out, const char *indent, const struct tool_budget_choice *choice,
                       const struct tool_budget_request *request)
{
    char text[160];
    tool_budget_text(&choice->chosen, text, sizeof(text));
    fprintf(out, "%sbudget: %.1f MiB a rank: %s; %.1f MiB", indent, mib(request->bytes), text, mib(choice->chosen.arena_bytes));
    if (choice->chosen.cache_bytes)
        fprintf(out, " and %.1f MiB of page cache", mib(choice->chosen.cache_bytes));
    if (request->host_bytes)
        fprintf(out, " and %.1f of %.1f MiB of the host", mib(choice->chosen.host_bytes), mib(request->host_bytes));
    fprintf(out, ", predicted %.3f s a step\n", choice->chosen.step_s);
    for (uint32_t i = 0; i < choice->next_count; i++) {
        tool_budget_text(&choice->next[i], text, sizeof(text));
        fprintf(out, "%s  %.1f MiB would give %.3f s: %s\n", indent, mib(choice->next[i].memory_bytes), choice->next[i].step_s,
                text);
    }
}

void tool_budget_text(const struct tool_budget_option *option, char *text, size_t bytes)
{
    const struct tool_plan_settings *s = &option->settings;
    char recompute[32];
    tool_recompute_text(s, recompute, sizeof(recompute));
    int used = snprintf(text, bytes, "recompute %s, slots %u,%u", recompute, s->gather_slots, s->gradient_slots);
    if (s->offload_layers && used > 0 && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, ", %u of %u layers %s%s by %u buffer%s",
                         s->offload_layers < option->layer_count ? s->offload_layers : option->layer_count, option->layer_count,
                         is_on_gpu(s) ? "in host memory" : "on disk", s->offload_gradients ? " with gradients" : "", s->offload_slots, tool_plural(s->offload_slots));
    if (s->late_updates && used > 0 && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, ", updated late");
    if (s->offload_activations == UINT32_MAX && used > 0 && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, ", activations of all blocks %s", is_on_gpu(s) ? "in host memory" : "on disk");
    else if (s->offload_activations && used > 0 && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, ", activations of %u block%s %s",
                         s->offload_activations, tool_plural(s->offload_activations), is_on_gpu(s) ? "in host memory" : "on disk");
    if (option->changes_bits && used > 0 && (size_t)used < bytes)
        snprintf(text + used, bytes - (size_t)used, ", head in %u piece%s", s->head_chunks, tool_plural(s->head_chunks));
}
