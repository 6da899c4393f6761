/* SPDX-License-Identifier: MIT */
#include "tools/memplan/report/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/report/answer.h"
#include "tools/memplan/plan/layers.h"
#include "tools/planning/reduction_text.h"

/* --- layers ------------------------------------------------------------------------------------------------------- */

static bool alike(const struct tool_layer_line *a, const struct tool_layer_line *b)
{
    return a->elements == b->elements && a->shard_bytes == b->shard_bytes && a->is_part == b->is_part;
}

static void print_layers(FILE *out, const struct tool_memplan *m)
{
    uint32_t count;
    struct tool_layer_line *lines = tool_layer_lines(m, &count);
    if (!lines)
        return;
    fprintf(out, "\n  %-31s %14s %14s %9s %14s %14s\n", "layers", "elements", "padded", "padding", "shard bytes",
            "gathered bytes");
    for (uint32_t i = 0, j; i < count; i = j) {
        for (j = i + 1; j < count && alike(&lines[i], &lines[j]); j++) {
        }
        char name[160];
        if (j - i > 1)
            snprintf(name, sizeof(name), "%s ... (%u alike)", lines[i].name, j - i);
        else
            snprintf(name, sizeof(name), "%s", lines[i].name);
        fprintf(out, "  %-31s %14" PRIu64 " %14" PRIu64 " %8.4f%% %14" PRIu64 " %14" PRIu64 "\n", name, lines[i].elements,
                lines[i].padded_elements,
                100 * (double)(lines[i].padded_elements - lines[i].elements) / (double)lines[i].elements,
                lines[i].shard_bytes, lines[i].gather_bytes);
    }
    free(lines);
}

/* --- buffers against state ---------------------------------------------------------------------------------------- */

static uint64_t state_bytes(const eo_plan_summary *s)
{
    return s->category_bytes[EO_CATEGORY_MASTER] + s->category_bytes[EO_CATEGORY_COMPUTE_SHARD] +
           s->category_bytes[EO_CATEGORY_GRADIENT] + s->category_bytes[EO_CATEGORY_OPTIMIZER];
}

struct buffer_bytes {
    uint64_t slots, gather_slots /* of these */, edges, whole;
};

/* Buffers, were there slots of one size for all layers: frozen parts have slots of their own, and no gradients. Whole weights
 * are gathered in their place, but for the slots of float8. */
static uint64_t bytes_alike(const eo_plan_summary *s, const struct tool_layer_line *lines, uint32_t count,
                            const struct buffer_bytes *bytes)
{
    uint64_t gathered[2] = {0, 0}, gradient = 0, widened = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct tool_layer_line *line = &lines[i];
        gathered[line->is_part] = line->gather_bytes > gathered[line->is_part] ? line->gather_bytes : gathered[line->is_part];
        if (!line->is_frozen && line->padded_elements > gradient)
            gradient = line->padded_elements;
        if (line->is_mxfp8 && line->padded_elements > widened)
            widened = line->padded_elements;
    }
    const uint32_t gathers = s->params.shard_group > 1 ? s->params.gather_slots : 0;
    const uint64_t alike = gathers * (gathered[0] + gathered[1]) + widened * eo_dtype_bytes(s->params.dtype);
    return (bytes->whole ? bytes->gather_slots : alike) +
           s->params.gradient_slots * gradient * eo_dtype_bytes(s->params.reduce_dtype);
}

/* Which layer the slots are as large as, and what it would be were embedding and head treated otherwise. */
static void print_treatments(FILE *out, const struct tool_memplan *m, const struct buffer_bytes *bytes)
{
    const eo_plan_summary *s = &m->summary;
    const uint64_t live = s->category_bytes_at_peak[EO_CATEGORY_GATHER_BUFFER] +
                          s->category_bytes_at_peak[EO_CATEGORY_GRADIENT_BUFFER] - bytes->whole;
    uint32_t count, largest = 0, block = 0;
    struct tool_layer_line *lines = tool_layer_lines(m, &count);
    for (uint32_t i = 0; lines && i < count; i++) {
        largest = lines[i].padded_elements > lines[largest].padded_elements ? i : largest;
        if (strncmp(lines[i].name, "block.", 6) == 0 && (strncmp(lines[block].name, "block.", 6) != 0 ||
                                                         lines[i].padded_elements > lines[block].padded_elements))
            block = i;
    }
    if (lines && !bytes->edges && !bytes->whole)
        fprintf(out, "  %s sets them: it is the largest layer, and embedding and head go through slots of its size\n",
                lines[largest].name);
    if (lines && bytes->edges) {
        const uint64_t alike = bytes_alike(s, lines, count, bytes);
        fprintf(out,
                "  %s sets the slots; the largest layer is %s: slots of its size, for all layers, would take %.3f GiB all the "
                "time; with rows of their own %.3f GiB of buffers are live at the peak, a saving of %.3f GiB\n",
                lines[block].name, lines[largest].name, tool_gib(alike), tool_gib(live),
                alike > live ? tool_gib(alike - live) : -tool_gib(live - alike));
    }
    free(lines);
}

static void print_buffers(FILE *out, const struct tool_memplan *m)
{
    const eo_plan_summary *s = &m->summary;
    uint64_t state = state_bytes(s);
    uint64_t buffers = s->category_bytes[EO_CATEGORY_GATHER_BUFFER] + s->category_bytes[EO_CATEGORY_GRADIENT_BUFFER];
    struct buffer_bytes bytes = {0};
    for (uint32_t r = 0; r < s->row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(m->plan, r, &row) < 0 ||
            (row.category != EO_CATEGORY_GATHER_BUFFER && row.category != EO_CATEGORY_GRADIENT_BUFFER))
            continue;
        const bool is_slot = strstr(row.name, ".slot") || strcmp(row.name, "gather.widened") == 0 ||
                             strcmp(row.name, "gather.frozen.widened") == 0;
        *(row.always_live ? &bytes.whole : is_slot ? &bytes.slots : &bytes.edges) += row.bytes;
        bytes.gather_slots += !row.always_live && is_slot && row.category == EO_CATEGORY_GATHER_BUFFER ? row.bytes : 0;
    }
    buffers -= bytes.whole; /* weights that stay are no buffers */
    state += bytes.whole;
    if (bytes.whole)
        fprintf(out, "\n  whole weights, gathered after each update: %.3f GiB\n", tool_gib(bytes.whole));
    fprintf(out, "\n  buffers: slots for the blocks %.3f GiB, rows of their own for embedding and head %.3f GiB\n",
            tool_gib(bytes.slots), tool_gib(bytes.edges));
    if (bytes.slots)
        print_treatments(out, m, &bytes);
    const double ratio = state ? (double)buffers / (double)state : 0;
    fprintf(out, "  buffers / %s: %.2f%s\n", bytes.whole ? "state" : "sharded state", ratio,
            ratio > 1 ? "  WARNING: the buffers exceed the sharded state; use fewer slots, --granularity half or fewer ranks"
                      : "");
}

/* --- phases ------------------------------------------------------------------------------------------------------- */

static void print_phase(FILE *out, const char *name, const struct tool_phase_peak *peak, bool is_peak)
{
    if (!peak->bytes)
        return;
    fprintf(out, "  %-16s %10.3f GiB%s  at %s\n    ", name, tool_gib(peak->bytes), is_peak ? "  <- the peak" : "",
            peak->operation);
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        if (peak->category_bytes[c] >= peak->bytes / 1000)
            fprintf(out, " %s %.3f;", eo_category_name((eo_category)c), tool_gib(peak->category_bytes[c]));
    fprintf(out, "\n");
}

void tool_shown_text(const struct tool_memplan_view *view, char *text, size_t bytes)
{
    const eo_plan_summary *all = &view->memplan->summary, *shown = &view->shown->summary;
    text[0] = '\0';
    if (view->shown == view->memplan)
        return;
    const int used = snprintf(text, bytes, "of a step with %u micro-batches in place of %u: those between the first and the "
                              "last are alike", view->shown->settings.plan.micro_batches,
                              view->memplan->settings.plan.micro_batches);
    if (shown->lower_bound_bytes != all->lower_bound_bytes)
        snprintf(text + used, bytes - (size_t)used, "; its lower bound is %" PRIu64 " bytes, the whole step's %" PRIu64,
                 shown->lower_bound_bytes, all->lower_bound_bytes);
}

static void print_phases(FILE *out, const struct tool_memplan_view *view)
{
    const struct tool_lifetimes *t = view->lifetimes;
    if (!t) {
        fprintf(out, "\n  phases: left out, the step has too many operations\n");
        return;
    }
    char shown[320];
    tool_shown_text(view, shown, sizeof(shown));
    fprintf(out, "\n  phases (largest sum of live bytes in each)%s%s\n", shown[0] ? ", " : "", shown);
    print_phase(out, "end of forward", &t->forward_end, false);
    for (int p = 0; p < TOOL_PHASE_COUNT; p++)
        print_phase(out, tool_phase_name((enum tool_phase)p), &t->phases[p], t->phases[p].bytes == t->peak_bytes);
}

/* --- strategies --------------------------------------------------------------------------------------------------- */

static void print_strategies(FILE *out, const struct tool_memplan_view *view)
{
    struct tool_strategy_column columns[TOOL_STRATEGY_COLUMNS];
    const uint32_t count = tool_strategy_columns(columns, view->config, &view->memplan->settings);
    tool_strategy_print(out, columns, count, view->memplan->settings.capacity_bytes);
}

/* --- peers -------------------------------------------------------------------------------------------------------- */

static void print_peers(FILE *out, const struct tool_memplan_view *view)
{
    const struct tool_memplan *m = view->memplan;
    const struct tool_plan_settings *s = &m->settings.plan;
    const struct tool_fsdp2_estimate f = tool_fsdp2_estimate(view->config, s->ranks);
    const struct tool_deepspeed_estimate d = tool_deepspeed_estimate(view->config, s->ranks);
    const uint32_t again = s->recompute == EO_RECOMPUTE_BLOCKS ? s->recompute_blocks : 0;
    const struct tool_megatron_estimate g = tool_megatron_estimate(view->config, s->ranks, s->batch, s->seq, again);
    uint64_t transport = m->summary.category_bytes_at_peak[EO_CATEGORY_GATHER_BUFFER] +
                         m->summary.category_bytes_at_peak[EO_CATEGORY_GRADIENT_BUFFER];
    fprintf(out, "\n  other projects, by their own rules (estimates, neither planned nor run here)\n");
    fprintf(out, "    FSDP2, bf16 parameters, fp32 reduction, groups of n = %" PRIu64 " elements, activations apart:\n",
            f.group_elements);
    fprintf(out,
            "      state 16 P/W %.3f GiB; transport live, prefetch of one: forward %.3f, backward %.3f (k = 1), %.3f "
            "(k = 2) GiB\n",
            tool_gib(f.state_bytes), tool_gib(f.forward_live_bytes), tool_gib(f.backward_live_bytes[0]),
            tool_gib(f.backward_live_bytes[1]));
    fprintf(out,
            "      reserved at least: forward %.3f, backward %.3f (k = 1), %.3f (k = 2) GiB; here, with slots %u,%u, "
            "buffers live at the peak: %.3f GiB\n",
            tool_gib(f.forward_reserved_bytes), tool_gib(f.backward_reserved_bytes[0]), tool_gib(f.backward_reserved_bytes[1]),
            s->gather_slots, s->gradient_slots, tool_gib(transport));
    fprintf(out,
            "    DeepSpeed's estimators (no activations), largest leaf %" PRIu64 ": ZeRO-2 %.3f GiB by its code, %.3f by "
            "its documentation; ZeRO-3 %.3f GiB\n",
            d.largest_elements, tool_gib(d.zero2_code_bytes), tool_gib(d.zero2_documented_bytes), tool_gib(d.zero3_bytes));
    fprintf(out,
            "    Megatron-LM's report, one tensor and pipeline rank: state %.3f GiB, with its distributed optimizer %.3f; "
            "activations %.3f GiB with selective recompute, full of %u layers\n",
            tool_gib(g.state_bytes), tool_gib(g.state_distributed_bytes), tool_gib(g.activation_bytes), again);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* 8.03 B, 124 M. */
static void count_text(uint64_t count, char *text, size_t bytes)
{
    static const struct {
        double size;
        const char *name;
    } units[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        const double value = (double)count / units[i].size;
        if (value < 1)
            continue;
        snprintf(text, bytes, "%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, units[i].name);
        return;
    }
    snprintf(text, bytes, "%" PRIu64, count);
}

static void print_head(FILE *out, const struct tool_memplan_view *view)
{
    const struct tool_model_config *c = view->config;
    const struct tool_memplan *m = view->memplan;
    const struct tool_plan_settings *s = &m->settings.plan;
    char recompute[32], reduced[96], count[32], granularity[TOOL_GRANULARITY_TEXT_MAX];
    tool_reduction_text(m->plan, reduced, sizeof(reduced));
    tool_recompute_text(s, recompute, sizeof(recompute));
    const uint64_t parameters = tool_model_config_parameters(c);
    count_text(parameters, count, sizeof(count));
    fprintf(out, "\n%s, %s parameters", tool_config_family_name(c->family), count);
    count_text(tool_model_config_active_parameters(c), count, sizeof(count));
    if (c->expert_count)
        fprintf(out, " (%s for a token)", count);
    count_text(m->summary.element_count, count, sizeof(count));
    if (m->summary.element_count < parameters) /* --tp, --pp, --ep */
        fprintf(out, ", %s in a rank's part of it", count);
    fprintf(out, ", %s, %s%s%sreduced in %s, recompute %s\n", eo_dtype_name(s->dtype),
            s->fp32_norms ? "norms in fp32, " : "",
            s->float8_products ? "forward products in float8, " : "",
            s->float8_gather   ? "blocks' matrices gathered in float8, "
            : s->float8_frozen ? "blocks' frozen matrices in mxfp8, "
                               : "",
            reduced, recompute);
    fprintf(out, "%u sequence%s x %u token%s x %u micro-batch%s, ", s->batch, tool_plural(s->batch), s->seq,
            tool_plural(s->seq), s->micro_batches, s->micro_batches == 1 ? "" : "es");
    fprintf(out, "%u GPU%s a node, slots %u,%u, granularity %s, head in %u piece%s, %s kernels\n", m->settings.gpus_per_node,
            tool_plural(m->settings.gpus_per_node), s->gather_slots, s->gradient_slots, tool_granularity_text(s, granularity),
            s->head_chunks, tool_plural(s->head_chunks), s->device);
}

/* --- what the reader has to know of the plan ---------------------------------------------------------------------- */

/* A byte for each element that a dropout may zero. Flash attention keeps none of its weights'. */
static uint64_t mask_bytes(const struct tool_model_config *c, const struct tool_plan_settings *s)
{
    const uint64_t row = (uint64_t)s->batch * s->seq * c->width;
    return (c->drops_embedding ? row : 0) + (c->drops_residual && !(s->dropout > 0) ? 2 * row * c->layer_count : 0);
}

void tool_report_warnings(FILE *out, const struct tool_memplan_view *view)
{
    const struct tool_model_config *c = view->config;
    const struct tool_memplan *m = view->memplan;
    char dropouts[TOOL_CONFIG_DROPOUT_BYTES_MAX];
    if (m->settings.on_gpu && strcmp(m->settings.plan.device, "cpu") == 0)
        fprintf(out, "note: the scratch rows are those of the CPU's kernels; --kernels cuda plans a GPU's\n");
    if (m->warning[0])
        fprintf(out, "note: %s\n", m->warning);
    tool_model_config_dropouts(c, m->settings.plan.dropout, dropouts);
    if (dropouts[0])
        fprintf(out,
                "note: the config's dropout (%s) is not taken; --dropout P drops on the residual stream and stores no masks; "
                "elsewhere masks take %.3f GiB%s\n",
                dropouts, tool_gib(mask_bytes(c, &m->settings.plan)),
                c->drops_attention ? ", and more without flash attention" : "");
    if (c->not_computed[0])
        fprintf(out, "note: not planned, as the layers do not compute it: %s\n", c->not_computed);
    if (c->unknown[0])
        fprintf(out, "note: unknown keys of the config: %s; if they change the model, the plan is of another one\n",
                c->unknown);
    for (uint32_t i = 0; i < c->fixed_count; i++)
        fprintf(out, "note: the config fixes %s; --set %.*s=null lets it follow\n", c->fixed[i], (int)strcspn(c->fixed[i], " "),
                c->fixed[i]);
}

static void print_notes(FILE *out, const struct tool_memplan_view *view)
{
    const struct tool_model_config *c = view->config;
    const struct tool_memplan *m = view->memplan;
    char shown[320];
    tool_shown_text(view, shown, sizeof(shown));
    if (shown[0])
        fprintf(out, "note: place and phases of the peak are those %s\n", shown);
    if (!m->runs)
        fprintf(out, "note: planned, not run: %s%s\n", m->why_not,
                m->described ? "; memplan itself describes rows and lifetimes, after the layers' rules" : "");
    tool_report_warnings(out, view);
    for (uint32_t i = 0; i < c->default_count; i++)
        fprintf(out, "%s %s\n", i == 0 ? "note: the config leaves unset:" : "                              ", c->defaults[i]);
    if (c->files_differ[0] && c->from_file)
        fprintf(out, "note: safetensors beside the config are not compared with it: %s\n", c->files_differ);
    if (view->safetensors && view->safetensors->found)
        fprintf(out, "note: safetensors: %" PRIu64 " tensors in %u file%s agree with the config in %s (%" PRIu64 " bytes%s)\n",
                view->safetensors->tensor_count, view->safetensors->file_count, view->safetensors->file_count == 1 ? "" : "s",
                view->safetensors->index_only ? "name and total; the files are missing" : "name, shape and total",
                view->safetensors->bytes, view->safetensors->buffer_count ? ", with buffers" : "");
}

static void print_arena(FILE *out, const struct tool_memplan_view *view)
{
    const struct tool_memplan *m = view->memplan;
    const eo_plan_summary *s = &m->summary;
    char outside[512];
    tool_outside_text(m, outside, sizeof(outside));
    fprintf(out, "\n  arena: %" PRIu64 " bytes, %.2f %% above its lower bound of %" PRIu64 "\n", s->arena_bytes,
            s->lower_bound_bytes ? 100 * ((double)s->arena_bytes / (double)s->lower_bound_bytes - 1) : 0, s->lower_bound_bytes);
    if (m->device_bytes != s->arena_bytes)
        fprintf(out, "  of it on the device: %" PRIu64 " bytes; %" PRIu64 " are pinned memory of the host\n", m->device_bytes,
                s->arena_bytes - m->device_bytes);
    fprintf(out, "  outside the arena: %s\n", outside);
    if (view->device)
        fprintf(out, "  capacity: %" PRIu64 " bytes, %s: %s\n", m->settings.capacity_bytes, view->device->name,
                view->device->source);
    fprintf(out, "  live at the peak, by category:\n");
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        if (s->category_bytes_at_peak[c])
            fprintf(out, "    %-24s %16" PRIu64 " %10.3f GiB\n", eo_category_name((eo_category)c), s->category_bytes_at_peak[c],
                    tool_gib(s->category_bytes_at_peak[c]));
}

static void point_text(const struct tool_fit *fit, const struct tool_fit_point *point, char *text, size_t bytes)
{
    const char *const whats[] = {"", "batch", "seq", "ranks", "recompute", "strategy", "layers", "batch", "batch"};
    char value[64];
    if (fit->kind == TOOL_FIT_BEST_STRATEGY)
        tool_strategy_text((eo_strategy)(point->value & 0xff), (uint32_t)(point->value >> 8), value, sizeof(value));
    else
        snprintf(value, sizeof(value), "%" PRIu64, point->value);
    if (point->refused[0])
        snprintf(text, bytes, "%s %s cannot be planned: %s", whats[fit->kind], value, point->refused);
    else if (point->total_bytes <= fit->capacity_bytes)
        snprintf(text, bytes, "%s %s fits with %.3f GiB left", whats[fit->kind], value,
                 tool_gib(fit->capacity_bytes - point->total_bytes));
    else
        snprintf(text, bytes, "%s %s lacks %.3f GiB", whats[fit->kind], value,
                 tool_gib(point->total_bytes - fit->capacity_bytes));
}

static void print_fit(FILE *out, const struct tool_memplan_view *view)
{
    const struct tool_fit *fit = view->fit;
    char answer[768] = "nothing fits", neighbour[768] = "no further one to try";
    if (fit->found)
        point_text(fit, &fit->answer, answer, sizeof(answer));
    if (fit->neighbour.known)
        point_text(fit, &fit->neighbour, neighbour, sizeof(neighbour));
    fprintf(out, "\n  %s: %s; %s (%u plan%s)\n", tool_fit_name(fit->kind), answer, neighbour, fit->plan_count,
            tool_plural(fit->plan_count));
    if (fit->kind == TOOL_FIT_MIN_RECOMPUTE && fit->has_cheap)
        fprintf(out, "    --recompute cheap (no product again), %s\n",
                fit->cheap_fits ? "fits too" : "does not fit");
    if (fit->note[0])
        fprintf(out, "    %s\n", fit->note);
    if (fit->found && (fit->kind == TOOL_FIT_BEST || fit->kind == TOOL_FIT_BEST_LAYOUT))
        fprintf(out, "    the fastest %s\n", fit->by_clock ? "by the clock of --time, an estimate"
                                                        : "by a rule: no rates of the device are known");
    if (!fit->found && view->remedies)
        fprintf(out, "    would fit: %s\n", view->remedies);
}

void tool_report_plan(FILE *out, const struct tool_memplan_view *view)
{
    const eo_plan_summary *s = &view->memplan->summary;
    tool_answer_print(out, view);
    if (view->fit)
        print_fit(out, view);
    if (view->budget)
        tool_memplan_budget_print(out, view->budget);
    print_head(out, view);
    print_notes(out, view);
    if (view->all_strategies)
        print_strategies(out, view);
    if (!view->explain && s->arena_bytes > s->lower_bound_bytes + s->lower_bound_bytes / 20)
        tool_report_hole(out, view);
    if (!view->explain)
        return;
    print_arena(out, view);
    print_phases(out, view);
    print_layers(out, view->memplan);
    print_buffers(out, view->memplan);
    print_peers(out, view);
    tool_report_explain(out, view);
}

void tool_report_csv(FILE *out, const struct tool_memplan_view *view)
{
    static const char *const spaces[EO_SPACE_COUNT] = {"gather", "gradient", "private", "host", "disk"};
    fprintf(out, "name,class,space,bytes,offset,first,last\n");
    for (uint32_t r = 0; r < view->memplan->summary.row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(view->memplan->plan, r, &row) >= 0)
            fprintf(out, "%s,%s,%s,%" PRIu64 ",%" PRIu64 ",%s,%s\n", row.name, eo_category_name(row.category),
                    spaces[row.space], row.bytes, row.offset, row.always_live ? "always" : row.first,
                    row.always_live ? "always" : row.last);
    }
}
