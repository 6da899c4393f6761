/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "tools/memplan/estimate/answer.h"
#include "tools/memplan/plan/parts.h"
#include "tools/shared/json_output.h"

static void layout_text(const struct tool_layout *l, char *text, size_t bytes)
{
    const struct {
        const char *name;
        uint32_t count;
    } cuts[] = {
        {"tp", l->tensor}, {"pp", l->pipeline}, {"cp", l->context}, {"dp", tool_layout_data_parallel(l)}, {"ep", l->expert}};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++)
        if (cuts[i].count > 1 && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, " %s%u", cuts[i].name, cuts[i].count);
}

/* Where the line would be too long, the tokens are left out: the settings have them. */
static void print_verdict(FILE *out, const struct tool_estimate_answer *a)
{
    const struct tool_memplan_settings *asked = a->request->asked;
    const char *source = a->request->config->source;
    char cuts[96], what[256], verdict[96], tokens[32];
    layout_text(&a->settings.layout, cuts, sizeof(cuts));
    const size_t length = strlen(source);
    snprintf(what, sizeof(what), "%s, %u%s%s, %s%s", length > 24 ? source + length - 24 : source, asked->plan.ranks,
             a->request->device ? " x " : " GPUs", a->request->device ? a->request->device : "",
             tool_system_name(a->request->system), cuts);
    snprintf(tokens, sizeof(tokens), ", %u tokens", a->settings.layout.seq);
    if (asked->capacity_bytes == 0)
        snprintf(verdict, sizeof(verdict), "%.1f GiB (estimate)", tool_gib(a->total_bytes));
    else
        snprintf(verdict, sizeof(verdict), "%s, %.1f of %.1f GiB (estimate)", a->fits ? "FITS" : "DOES NOT FIT",
                 tool_gib(a->total_bytes), tool_gib(tool_usable_bytes(asked)));
    const bool room = strlen(what) + strlen(tokens) + strlen(": ") + strlen(verdict) <= TOOL_ANSWER_COLUMNS;
    fprintf(out, "%s%s: %s\n", what, room ? tokens : "", verdict);
}

static void print_peak(FILE *out, const struct tool_estimate_answer *a)
{
    bool told[TOOL_SYSTEM_PART_COUNT] = {false};
    const int digits = a->total_bytes < (uint64_t)1000 << 30; /* a line has its columns */
    fprintf(out, "peak (stage %u of %u):", a->estimate.stage + 1, a->settings.layout.pipeline);
    for (int n = 0; n < 4; n++) { /* the largest four */
        int most = -1;
        for (int p = 0; p < TOOL_SYSTEM_PART_COUNT; p++)
            if (!told[p] && (most < 0 || a->estimate.parts[p] > a->estimate.parts[most]))
                most = p;
        told[most] = true;
        fprintf(out, " %s %.*f,", tool_system_part_name((enum tool_system_part)most), digits,
                tool_gib(a->estimate.parts[most]));
    }
    fprintf(out, " outside %.1f\n", tool_gib(a->outside_bytes));
}

/* Another setting's total; nothing where the system has none such, or it saves nothing. */
static void print_try(FILE *out, const struct tool_estimate_request *request, uint64_t now_bytes, uint32_t *count,
                      const char *format, ...) EO_PRINTF(5, 6);

static void print_try(FILE *out, const struct tool_estimate_request *request, uint64_t now_bytes, uint32_t *count,
                      const char *format, ...)
{
    struct tool_estimate_answer a;
    struct tool_problem problem;
    if (*count >= 3 || tool_estimate_answer_of(&a, request, request->system, &problem) < 0 || a.total_bytes >= now_bytes)
        return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(out, "%s", (*count)++ ? "; " : "try: ");
    vfprintf(out, format, arguments);
    va_end(arguments);
    fprintf(out, " %.1f%s", tool_gib(a.total_bytes), *count == 1 ? " GiB" : "");
}

static void print_tries(FILE *out, const struct tool_estimate_answer *a)
{
    struct tool_memplan_settings asked = *a->request->asked;
    struct tool_estimate_request other = *a->request;
    uint32_t count = 0;
    other.asked = &asked;
    if (a->settings.recomputed_blocks < a->shape.layers) {
        asked.plan.recompute = EO_RECOMPUTE_BLOCKS;
        asked.plan.recompute_blocks = UINT32_MAX;
        other.run.selective = false;
        other.run.recompute_unit = other.run.recomputed_of_chunk = other.run.recomputed_modules = 0;
        print_try(out, &other, a->total_bytes, &count, "--recompute all");
        asked = *a->request->asked;
        other.run = a->request->run;
    }
    if (other.layout.tensor * 2 <= asked.gpus_per_node) {
        other.layout.tensor *= 2;
        other.layout.sequence_parallel = true;
        print_try(out, &other, a->total_bytes, &count, "--tp %u --sequence-parallel", other.layout.tensor);
        other.layout = a->request->layout;
    }
    other.layout.pipeline *= 2;
    print_try(out, &other, a->total_bytes, &count, "--pp %u", other.layout.pipeline);
    fprintf(out, "%s\n", count ? "" : "try: a smaller batch, or more GPUs");
}

static void print_table(FILE *out, const struct tool_estimate_answer *a)
{
    fprintf(out, "\n  %-12s %18s %10s %6s\n", "part", "bytes", "GiB", "share");
    for (int p = 0; p < TOOL_SYSTEM_PART_COUNT; p++)
        fprintf(out, "  %-12s %18" PRIu64 " %10.3f %6.1f\n", tool_system_part_name((enum tool_system_part)p),
                a->estimate.parts[p], tool_gib(a->estimate.parts[p]),
                100.0 * (double)a->estimate.parts[p] / (double)a->total_bytes);
    fprintf(out, "  %-12s %18" PRIu64 " %10.3f %6.1f\n", "outside", a->outside_bytes, tool_gib(a->outside_bytes),
            100.0 * (double)a->outside_bytes / (double)a->total_bytes);
    fprintf(out, "  %-12s %18" PRIu64 " %10.3f %6.1f\n\n", "total", a->total_bytes, tool_gib(a->total_bytes), 100.0);
}

/* ", fp8, adamw8bit": what is not as usual. */
static void run_text(const struct tool_system_run *r, char *text, size_t bytes)
{
    static const char *const places[TOOL_OFFLOAD_COUNT] = {"", "optimizer", "weights and optimizer"};
    char lora[48] = "", unit[48] = "", offload[64] = "";
    if (r->lora_rank)
        snprintf(lora, sizeof(lora), ", LoRA of rank %u%s", r->lora_rank, r->nf4 ? " on nf4" : "");
    if (r->recompute_unit > 1)
        snprintf(unit, sizeof(unit), " in units of %u", r->recompute_unit);
    if (r->offload)
        snprintf(offload, sizeof(offload), ", %s on the %s", places[r->offload], r->to_disk ? "disk" : "host");
    snprintf(text, bytes, "%s%s%s%s%s%s%s%s%s", unit, r->recomputed_modules ? ", modules again" : "",
             r->precision ? ", " : "", r->precision ? tool_precision_name(r->precision) : "",
             r->optimizer ? ", " : "", r->optimizer ? tool_state_kind_name(r->optimizer) : "",
             r->bf16_state ? ", state in bf16" : "", lora, offload);
}

static void print_notes(FILE *out, const struct tool_estimate_answer *a)
{
    const struct tool_layout *l = &a->settings.layout;
    char strategy[32], recompute[32] = "none";
    tool_strategy_text(a->settings.strategy, 0, strategy, sizeof(strategy));
    if (a->settings.recomputed_blocks)
        snprintf(recompute, sizeof(recompute), "%u of %u blocks", a->settings.recomputed_blocks, (uint32_t)a->shape.layers);
    char more[160];
    run_text(&a->settings.run, more, sizeof(more));
    fprintf(out, "settings: %u data-parallel ranks, %s, batch %u x %u tokens, %u micro-batches, recompute %s%s%s\n",
            tool_layout_data_parallel(l), strategy, l->batch, l->seq, l->micro_batches,
            a->settings.recomputed_blocks || !a->settings.run.selective ? recompute : "selective",
            l->sequence_parallel ? ", sequence parallel" : "", more);
    fprintf(out, "state: %.3f GiB of weights, gradients and optimizer, on the fullest rank\n",
            tool_gib(a->estimate.state_bytes));
    if (a->estimate.host_bytes || a->estimate.disk_bytes)
        fprintf(out, "offloaded: %.3f GiB of the host's memory, %.3f GiB of disk, for each rank\n",
                tool_gib(a->estimate.host_bytes), tool_gib(a->estimate.disk_bytes));
    fprintf(out, "meaning: %s\n", tool_system_meaning(a->request->system));
    fprintf(out, "error: %s\n", tool_system_error(a->request->system));
    fprintf(out, "estimate: by the system's rules, not its planner; a dynamic allocator wants a fifth of the device besides\n");
}

static void write_json(FILE *out, const struct tool_estimate_answer *a, const struct tool_time_answer *time)
{
    const struct tool_memplan_settings *asked = a->request->asked;
    const struct tool_layout *l = &a->settings.layout;
    char strategy[32];
    tool_strategy_text(a->settings.strategy, 0, strategy, sizeof(strategy));
    struct eo_json json = {.write = tool_write_to_stream, .user = out, .indent = 1};
    eo_json_write(&json,
                  "{'schema': 1, 'estimate': %i, 'settings': {'system': %s, 'model': %s, 'world': %u, 'tp': %u, 'pp': %u,"
                  "'cp': %u, 'ep': %u, 'data_parallel': %u, 'virtual_stages': %u, 'sequence_parallel': %i, 'strategy': %s,"
                  "'batch': %u, 'seq': %u, 'micro_batches': %u, 'recomputed_blocks': %u, 'selective': %i, 'recompute_unit': %u, 'dtype': %s, 'optimizer': %s, 'bf16_state': %i,"
                  "'lora': %u}",
                  true, tool_system_name(a->request->system), a->request->config->source, l->ranks, l->tensor, l->pipeline,
                  l->context, l->expert, tool_layout_data_parallel(l), l->virtual_stages, l->sequence_parallel, strategy,
                  l->batch, l->seq, l->micro_batches, a->settings.recomputed_blocks, a->settings.run.selective, a->settings.run.recompute_unit,
                  tool_precision_name(a->settings.run.precision), tool_state_kind_name(a->settings.run.optimizer),
                  a->settings.run.bf16_state, a->settings.run.lora_rank);
    eo_json_write(&json, "'parameters': %" PRIu64 ", 'stage': %u, 'parts_at_peak': {",
                  tool_model_config_parameters(a->request->config), a->estimate.stage);
    for (int p = 0; p < TOOL_SYSTEM_PART_COUNT; p++)
        eo_json_write(&json, "%s: %" PRIu64, tool_system_part_name((enum tool_system_part)p), a->estimate.parts[p]);
    eo_json_write(&json,
                  "}, 'state_bytes': %" PRIu64 ", 'activation_bytes': %" PRIu64 ", 'peak_bytes': %" PRIu64
                  ", 'memory_meaning': %s, 'memory_error': %s, 'host_bytes': %" PRIu64 ", 'disk_bytes': %" PRIu64 ", 'outside_bytes': %" PRIu64 ", 'total_bytes': %" PRIu64
                  ", 'headroom_bytes': %" PRIu64 ", 'fits': %i, 'capacity_bytes':",
                  a->estimate.state_bytes, a->estimate.activation_bytes, a->estimate.peak_bytes,
                  tool_system_meaning(a->request->system), tool_system_error(a->request->system), a->estimate.host_bytes,
                  a->estimate.disk_bytes, a->outside_bytes,
                  a->total_bytes, asked->headroom_bytes, a->fits);
    if (asked->capacity_bytes)
        eo_json_write(&json, "%" PRIu64, asked->capacity_bytes);
    else
        eo_json_write(&json, "null");
    tool_estimate_time_json(&json, time);
    eo_json_write(&json, "}");
    fputc('\n', out);
}

eo_status tool_estimate_print(FILE *out, const struct tool_estimate_request *request, bool json, bool *fits,
                              struct tool_problem *problem)
{
    struct tool_estimate_answer a;
    EO_TRY(tool_estimate_answer_of(&a, request, request->system, problem));
    *fits = a.fits;
    struct tool_time_answer time;
    if (request->time)
        EO_TRY(tool_estimate_time(&time, request, problem));
    if (json) {
        write_json(out, &a, request->time ? &time : NULL);
        return EO_OK;
    }
    print_verdict(out, &a);
    print_peak(out, &a);
    print_tries(out, &a);
    print_table(out, &a);
    if (request->time)
        fprintf(out, "%s", time.text);
    print_notes(out, &a);
    return EO_OK;
}
