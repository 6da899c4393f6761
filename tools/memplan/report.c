/* SPDX-License-Identifier: MIT */
#include "tools/memplan/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/layers.h"
#include "tools/shared/reduction_text.h"

/* --- layers ------------------------------------------------------------------------------------------------------- */

static bool alike(const struct tool_layer_line *a, const struct tool_layer_line *b)
{
    return a->elements == b->elements && a->shard_bytes == b->shard_bytes;
}

static void print_layers(FILE *out, const struct tool_memplan *m)
{
    uint32_t count;
    struct tool_layer_line *lines = tool_layer_lines(m, &count);
    if (!lines)
        return;
    fprintf(out, "\n  %-24s %14s %14s %12s %14s %14s\n", "layers", "elements", "padded", "padding", "shard bytes",
            "gathered bytes");
    for (uint32_t i = 0, j; i < count; i = j) {
        for (j = i + 1; j < count && alike(&lines[i], &lines[j]); j++) {
        }
        char name[160];
        if (j - i > 1)
            snprintf(name, sizeof(name), "%s ... (%u alike)", lines[i].name, j - i);
        else
            snprintf(name, sizeof(name), "%s", lines[i].name);
        fprintf(out, "  %-24s %14" PRIu64 " %14" PRIu64 " %11.4f%% %14" PRIu64 " %14" PRIu64 "\n", name, lines[i].elements,
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

/* Which layer the slots are as large as, and what it would be were embedding and head treated otherwise. */
static void print_treatments(FILE *out, const struct tool_memplan *m, uint64_t edges)
{
    const eo_plan_summary *s = &m->summary;
    const uint64_t reduce = eo_dtype_bytes(s->params.reduce_dtype);
    const uint64_t live = s->category_bytes_at_peak[EO_CATEGORY_GATHER_BUFFER] +
                          s->category_bytes_at_peak[EO_CATEGORY_GRADIENT_BUFFER];
    uint32_t count, largest = 0, block = 0;
    struct tool_layer_line *lines = tool_layer_lines(m, &count);
    for (uint32_t i = 0; lines && i < count; i++) {
        largest = lines[i].padded_elements > lines[largest].padded_elements ? i : largest;
        if (strncmp(lines[i].name, "block.", 6) == 0 && (strncmp(lines[block].name, "block.", 6) != 0 ||
                                                         lines[i].padded_elements > lines[block].padded_elements))
            block = i;
    }
    if (lines && !edges)
        fprintf(out, "  %s sets them: it is the largest layer, and embedding and head go through slots of its size\n",
                lines[largest].name);
    if (lines && edges) {
        const uint64_t alike = s->params.gather_slots * lines[largest].gather_bytes +
                               s->params.gradient_slots * lines[largest].padded_elements * reduce;
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
    uint64_t slots = 0, edges = 0, whole = 0;
    for (uint32_t r = 0; r < s->row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(m->plan, r, &row) < 0 ||
            (row.category != EO_CATEGORY_GATHER_BUFFER && row.category != EO_CATEGORY_GRADIENT_BUFFER))
            continue;
        const bool is_slot = strstr(row.name, ".slot") || strcmp(row.name, "gather.widened") == 0;
        *(row.always_live ? &whole : is_slot ? &slots : &edges) += row.bytes;
    }
    buffers -= whole < buffers ? whole : buffers; /* weights that stay are no buffers */
    state += whole;
    if (whole)
        fprintf(out, "\n  whole weights, gathered after each update: %.3f GiB\n", tool_gib(whole));
    fprintf(out, "\n  buffers: slots for the blocks %.3f GiB, rows of their own for embedding and head %.3f GiB\n",
            tool_gib(slots), tool_gib(edges));
    if (slots)
        print_treatments(out, m, edges);
    const double ratio = state ? (double)buffers / (double)state : 0;
    fprintf(out, "  buffers / %s: %.2f%s\n", whole ? "state" : "sharded state", ratio,
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
    const struct tool_megatron_estimate g = tool_megatron_estimate(view->config, s->ranks, s->batch, s->seq);
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
            "activations %.3f GiB\n",
            tool_gib(g.state_bytes), tool_gib(g.state_distributed_bytes), tool_gib(g.activation_bytes));
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static void print_head(FILE *out, const struct tool_memplan_view *view)
{
    const struct tool_model_config *c = view->config;
    const struct tool_memplan *m = view->memplan;
    const struct tool_plan_settings *s = &m->settings.plan;
    char recompute[32], strategy[32], reduced[96];
    tool_reduction_text(m->plan, reduced, sizeof(reduced));
    tool_recompute_text(s, recompute, sizeof(recompute));
    tool_strategy_text(s->strategy, s->shard_group, strategy, sizeof(strategy));
    fprintf(out, "%s: %s, %" PRIu64 " parameters", c->source, tool_config_family_name(c->family), m->summary.element_count);
    if (c->expert_count)
        fprintf(out, " (%" PRIu64 " active per token)", tool_model_config_active_parameters(c));
    const bool other_kernels = m->settings.on_gpu && strcmp(s->device, "cpu") == 0;
    fprintf(out, "\n  %s\n", !m->runs        ? "planned, not run:"
                             : other_kernels ? "planned with the rows of the CPU's kernels"
                                             : "planned as trained; a run reserves the same rows");
    if (!m->runs)
        fprintf(out, "    %s; memplan itself describes rows and lifetimes, after the layers' rules\n", m->why_not);
    for (uint32_t i = 0; i < c->default_count; i++)
        fprintf(out, "  %s %s\n", i == 0 ? "the config leaves unset:" : "                        ", c->defaults[i]);
    if (view->safetensors && view->safetensors->found)
        fprintf(out, "  safetensors: %" PRIu64 " tensors in %u file%s agree with the config in %s (%" PRIu64 " bytes%s)\n",
                view->safetensors->tensor_count, view->safetensors->file_count,
                view->safetensors->file_count == 1 ? "" : "s",
                view->safetensors->index_only ? "name and total; the files are missing" : "name, shape and total",
                view->safetensors->bytes, view->safetensors->buffer_count ? ", with buffers" : "");
    fprintf(out, "  %s over %u rank%s (%u a node), %u sequence%s x %u token%s x %u micro-batch%s, %s, %sreduced in %s\n",
            strategy, s->ranks, tool_plural(s->ranks), m->settings.gpus_per_node, s->batch, tool_plural(s->batch), s->seq,
            tool_plural(s->seq), s->micro_batches, s->micro_batches == 1 ? "" : "es", eo_dtype_name(s->dtype),
            s->float8_gather ? "blocks' matrices gathered in float8, " : "", reduced);
    fprintf(out, "  slots %u,%u, recompute %s, granularity %s, head in %u piece%s, scratch of the %s kernels\n",
            s->gather_slots, s->gradient_slots, recompute, s->half_blocks ? "half" : "block", s->head_chunks,
            s->head_chunks == 1 ? "" : "s", s->device);
    if (other_kernels)
        fprintf(out, "  NOTE: the scratch rows are those of the CPU's kernels, so the figures differ from a run on a GPU; a "
                "build with CUDA plans it exactly\n");
}

static void print_total(FILE *out, const struct tool_memplan_view *view)
{
    const struct tool_memplan *m = view->memplan;
    const eo_plan_summary *s = &m->summary;
    char outside[512];
    tool_outside_text(m, outside, sizeof(outside));
    const double above = s->lower_bound_bytes ? (double)s->arena_bytes / (double)s->lower_bound_bytes : 1;
    fprintf(out, "  %-24s %16" PRIu64 " %10.3f    lower bound %" PRIu64 " (%.3f GiB), %.2f %% above it\n", "arena",
            s->arena_bytes, tool_gib(s->arena_bytes), s->lower_bound_bytes, tool_gib(s->lower_bound_bytes), 100 * (above - 1));
    if (above > 1.05)
        tool_report_hole(out, view);
    if (m->device_bytes != s->arena_bytes)
        fprintf(out, "  %-24s %16" PRIu64 " %10.3f    the arena less %" PRIu64 " bytes of pinned host memory\n",
                "on the device", m->device_bytes, tool_gib(m->device_bytes), s->arena_bytes - m->device_bytes);
    fprintf(out, "  %-24s %16" PRIu64 " %10.3f    %s\n", "outside the arena", m->outside_bytes, tool_gib(m->outside_bytes),
            outside);
    fprintf(out, "  %-24s %16" PRIu64 " %10.3f    = %.3f GB\n", "total", m->total_bytes, tool_gib(m->total_bytes),
            (double)m->total_bytes * 1e-9);
    if (m->settings.capacity_bytes == 0)
        return;
    fprintf(out, "  %-24s %16" PRIu64 " %10.3f    %s%s%s\n", "capacity", m->settings.capacity_bytes,
            tool_gib(m->settings.capacity_bytes), view->device ? view->device->name : "as given", view->device ? ": " : "",
            view->device ? view->device->source : "");
    if (m->fits)
        fprintf(out, "  FITS, with %.3f GiB left\n", tool_gib(m->settings.capacity_bytes - m->total_bytes));
    else
        fprintf(out, "  DOES NOT FIT: %.3f GiB are lacking\n", tool_gib(m->total_bytes - m->settings.capacity_bytes));
}

static void point_text(const struct tool_fit *fit, const struct tool_fit_point *point, char *text, size_t bytes)
{
    const char *const whats[] = {"", "batch", "seq", "world", "recompute", "strategy", "layers"};
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

static void print_fit(FILE *out, const struct tool_fit *fit)
{
    char answer[768] = "nothing fits", neighbour[768] = "no further one to try";
    if (fit->found)
        point_text(fit, &fit->answer, answer, sizeof(answer));
    if (fit->neighbour.known)
        point_text(fit, &fit->neighbour, neighbour, sizeof(neighbour));
    fprintf(out, "\n  %s: %s; %s (%u plan%s)\n", tool_fit_name(fit->kind), answer, neighbour, fit->plan_count,
            tool_plural(fit->plan_count));
    if (fit->kind == TOOL_FIT_MIN_RECOMPUTE)
        fprintf(out, "    --recompute cheap (no matrix product), %s\n",
                fit->cheap_fits ? "fits too" : "does not fit");
    if (fit->note[0])
        fprintf(out, "    %s\n", fit->note);
}

void tool_report_plan(FILE *out, const struct tool_memplan_view *view)
{
    const eo_plan_summary *s = &view->memplan->summary;
    print_head(out, view);
    fprintf(out, "\n  %-24s %16s %10s %16s %10s\n", "bytes of one rank", "rows", "GiB", "live at the peak", "GiB");
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        if (s->category_bytes[c])
            fprintf(out, "  %-24s %16" PRIu64 " %10.3f %16" PRIu64 " %10.3f\n", eo_category_name((eo_category)c),
                    s->category_bytes[c], tool_gib(s->category_bytes[c]), s->category_bytes_at_peak[c],
                    tool_gib(s->category_bytes_at_peak[c]));
    print_total(out, view);
    if (view->fit)
        print_fit(out, view->fit);
    print_phases(out, view);
    print_layers(out, view->memplan);
    print_buffers(out, view->memplan);
    if (view->all_strategies)
        print_strategies(out, view);
    print_peers(out, view);
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
