/* SPDX-License-Identifier: MIT */
#include "tools/memplan/systems/estimate.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "tools/memplan/parts.h"
#include "tools/shared/json_output.h"

enum { TOKENS_MOST = 1 << 28 }; /* of a micro-batch: bytes stay below 64 bits */

/* --- settings ----------------------------------------------------------------------------------------------------- */

static uint32_t seq_of(const struct tool_estimate_request *request)
{
    const uint32_t context = request->config->context, most = context < 4096 ? context : 4096;
    return request->asked->plan.seq ? request->asked->plan.seq : most;
}

/* Ranks with data of their own; 0: they are not whole groups. */
static uint32_t replicas_of(const struct tool_estimate_request *request)
{
    const struct tool_layout *l = &request->layout;
    const uint64_t group = (uint64_t)l->tensor * l->pipeline * l->context;
    return request->asked->plan.ranks % group ? 0 : (uint32_t)(request->asked->plan.ranks / group);
}

eo_status tool_estimate_micro_batches(uint32_t *out, const struct tool_estimate_request *request, struct tool_problem *problem)
{
    const uint32_t replicas = replicas_of(request);
    const uint64_t each = (uint64_t)request->asked->plan.batch * replicas;
    *out = request->asked->plan.micro_batches;
    if (request->global_batch == 0 || replicas == 0) /* the layout is refused later */
        return EO_OK;
    if (request->global_batch % each)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--global-batch %u is not a multiple of --batch %u x %u data-parallel ranks",
                                request->global_batch, request->asked->plan.batch, replicas);
    *out = (uint32_t)(request->global_batch / each);
    return EO_OK;
}

static eo_strategy strategy_of(const struct tool_estimate_request *request, enum tool_system system)
{
    if (request->strategy_given)
        return request->asked->plan.strategy;
    return system == TOOL_SYSTEM_MEGATRON ? EO_STRATEGY_ZERO1 : EO_STRATEGY_ZERO3;
}

/* What other systems do not have. */
static eo_status check_request(const struct tool_plan_settings *p, enum tool_system system, struct tool_problem *problem)
{
    if (system == TOOL_SYSTEM_EVENODD)
        return EO_OK;
    if (p->dtype != EO_DTYPE_BF16)
        return tool_problem_set(problem, EO_ERR_INVALID, "--dtype: other systems are planned in bf16 alone");
    if (p->recompute == EO_RECOMPUTE_CHEAP)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--recompute cheap is evenodd's; give none, selective, all or a number of "
                                "blocks");
    return EO_OK;
}

static eo_status settings_of(struct tool_system_settings *out, const struct tool_estimate_request *request,
                             enum tool_system system, const struct tool_shape *shape, struct tool_problem *problem)
{
    const struct tool_plan_settings *p = &request->asked->plan;
    *out = (struct tool_system_settings){.layout = request->layout,
                                         .strategy = strategy_of(request, system),
                                         .shard_group = p->shard_group,
                                         .selective = request->selective,
                                         .recomputed_blocks = p->recompute == EO_RECOMPUTE_BLOCKS ? p->recompute_blocks : 0,
                                         .workspace_bytes = TOOL_WORKSPACES_HOPPER};
    out->layout.ranks = p->ranks;
    out->layout.batch = p->batch;
    out->layout.seq = seq_of(request);
    out->layout.sequence_parallel |= system == TOOL_SYSTEM_FSDP2; /* its tensor parallelism is always so */
    out->layout.vocabulary_multiple = system == TOOL_SYSTEM_MEGATRON ? 128 : 0;
    EO_TRY(tool_estimate_micro_batches(&out->layout.micro_batches, request, problem));
    EO_TRY(check_request(p, system, problem));
    if ((uint64_t)out->layout.batch * out->layout.seq > TOKENS_MOST)
        return tool_problem_set(problem, EO_ERR_INVALID, "batch x seq is %llu tokens; give at most %d",
                                (unsigned long long)out->layout.batch * out->layout.seq, TOKENS_MOST);
    if (out->layout.seq > request->config->context)
        return tool_problem_set(problem, EO_ERR_INVALID, "--seq %u is longer than the model's context of %u (%s)",
                                out->layout.seq, request->config->context, request->config->source);
    EO_TRY(tool_plan_settings_check(p, request->config->layer_count, problem));
    if (out->recomputed_blocks > shape->layers)
        out->recomputed_blocks = (uint32_t)shape->layers;
    return tool_system_check(system, out, shape, problem);
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static void time_text(struct tool_time_answer *a, const struct tool_estimate_request *request)
{
    const struct tool_step_time *t = &a->step;
    int used = snprintf(
        a->text, sizeof(a->text),
        "time: %.3f s a step, %.0f tokens/s, MFU %.1f %%; bound by %s; communication not hidden %.3f s, pipeline bubble "
        "%.3f s\n",
        t->seconds, t->tokens_per_second, 100 * t->mfu, t->bound_by, t->exposed_seconds, t->bubble_seconds);
    if (a->days > 0)
        used += snprintf(a->text + used, sizeof(a->text) - (size_t)used, "training: %.4g tokens take %.1f days on %u GPUs",
                         request->tokens, a->days, request->asked->plan.ranks);
    if (a->cost > 0)
        used += snprintf(a->text + used, sizeof(a->text) - (size_t)used, " and cost %.0f at %g an hour and GPU", a->cost,
                         request->price);
    snprintf(a->text + used, sizeof(a->text) - (size_t)used,
             "%stime is an estimate: 6 %% off on average on published steps, 38 %% at "
             "most (memplan --published)\n",
             a->days > 0 ? "\n" : "");
}

eo_status tool_estimate_time(struct tool_time_answer *out, const struct tool_estimate_request *request,
                             struct tool_problem *problem)
{
    const struct tool_device_rates *rates = tool_device_rates_find(request->device);
    const struct tool_shape shape = tool_shape_of(request->config);
    struct tool_system_settings settings;
    if (!rates)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--time: give --device, of A100, H100 or H200: no rates are known of others");
    EO_TRY(settings_of(&settings, request, request->system, &shape, problem));
    const uint32_t ranks = request->asked->plan.ranks;
    struct tool_device_rates own = *rates;
    if (request->network_bytes)
        own.network_bytes = (double)request->network_bytes;
    *out = (struct tool_time_answer){
        .step = tool_step_time(request->system, &shape, &settings, &own, request->asked->gpus_per_node)};
    out->days = request->tokens / out->step.tokens_per_second / 86400;
    out->cost = out->days * 24 * ranks * request->price;
    time_text(out, request);
    return EO_OK;
}

void tool_estimate_time_json(struct eo_json *json, const struct tool_time_answer *time)
{
    const struct tool_step_time nothing = {.seconds = NAN, .tokens_per_second = NAN, .mfu = NAN, .exposed_seconds = NAN};
    const struct tool_step_time *t = time ? &time->step : &nothing; /* JSON has no NaN: null */
    eo_json_write(json,
                  "'step_seconds': %g, 'tokens_per_second': %g, 'mfu': %g, 'exposed_comm_seconds': %g, 'bound_by':", t->seconds,
                  t->tokens_per_second, t->mfu, t->exposed_seconds);
    if (time)
        eo_json_write(json, "%s", t->bound_by);
    else
        eo_json_write(json, "null");
    eo_json_write(json, "'days': %g, 'cost': %g", time && time->days > 0 ? time->days : NAN,
                  time && time->cost > 0 ? time->cost : NAN);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

struct answer {
    const struct tool_estimate_request *request;
    struct tool_shape shape;
    struct tool_system_settings settings;
    struct tool_system_estimate estimate;
    uint64_t outside_bytes, total_bytes;
    bool fits;
};

static eo_status answer_of(struct answer *out, const struct tool_estimate_request *request, enum tool_system system,
                           struct tool_problem *problem)
{
    struct tool_memplan_settings gpu = *request->asked;
    gpu.on_gpu = true;
    *out = (struct answer){.request = request, .shape = tool_shape_of(request->config)};
    EO_TRY(settings_of(&out->settings, request, system, &out->shape, problem));
    out->estimate = tool_system_estimate(system, &out->shape, &out->settings);
    struct tool_outside outside = gpu.outside;
    if (!outside.given) {
        outside = tool_outside_default(&gpu);
        outside.workspace_bytes = 0; /* the allocator's, and a part of the estimate */
    }
    out->outside_bytes = tool_outside_bytes(&outside);
    out->total_bytes = out->estimate.peak_bytes + out->outside_bytes;
    out->fits = gpu.capacity_bytes == 0 || out->total_bytes <= tool_usable_bytes(&gpu);
    return EO_OK;
}

eo_status tool_estimate_total(uint64_t *bytes, bool *fits, const struct tool_estimate_request *request,
                              struct tool_problem *problem)
{
    struct answer a;
    EO_TRY(answer_of(&a, request, request->system, problem));
    *bytes = a.total_bytes;
    *fits = a.fits;
    return EO_OK;
}

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
static void print_verdict(FILE *out, const struct answer *a)
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

static void print_peak(FILE *out, const struct answer *a)
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

/* Another setting's total; nothing where the system has none such. */
static void print_try(FILE *out, const struct tool_estimate_request *request, uint32_t *count, const char *format, ...)
    EO_PRINTF(4, 5);

static void print_try(FILE *out, const struct tool_estimate_request *request, uint32_t *count, const char *format, ...)
{
    struct answer a;
    struct tool_problem problem;
    if (*count >= 3 || answer_of(&a, request, request->system, &problem) < 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(out, "%s", (*count)++ ? "; " : "try: ");
    vfprintf(out, format, arguments);
    va_end(arguments);
    fprintf(out, " %.1f%s", tool_gib(a.total_bytes), *count == 1 ? " GiB" : "");
}

static void print_tries(FILE *out, const struct answer *a)
{
    struct tool_memplan_settings asked = *a->request->asked;
    struct tool_estimate_request other = *a->request;
    uint32_t count = 0;
    other.asked = &asked;
    if (a->settings.recomputed_blocks < a->shape.layers) {
        asked.plan.recompute = EO_RECOMPUTE_BLOCKS;
        asked.plan.recompute_blocks = UINT32_MAX;
        print_try(out, &other, &count, "--recompute all");
        asked = *a->request->asked;
    }
    if (other.layout.tensor * 2 <= asked.gpus_per_node) {
        other.layout.tensor *= 2;
        other.layout.sequence_parallel = true;
        print_try(out, &other, &count, "--tp %u --sequence-parallel", other.layout.tensor);
        other.layout = a->request->layout;
    }
    other.layout.pipeline *= 2;
    print_try(out, &other, &count, "--pp %u", other.layout.pipeline);
    fprintf(out, "%s\n", count ? "" : "try: a smaller batch, or more GPUs");
}

static void print_table(FILE *out, const struct answer *a)
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

static void print_notes(FILE *out, const struct answer *a)
{
    const struct tool_layout *l = &a->settings.layout;
    char strategy[32], recompute[32] = "none";
    tool_strategy_text(a->settings.strategy, 0, strategy, sizeof(strategy));
    if (a->settings.recomputed_blocks)
        snprintf(recompute, sizeof(recompute), "%u of %u blocks", a->settings.recomputed_blocks, (uint32_t)a->shape.layers);
    fprintf(out, "settings: %u data-parallel ranks, %s, batch %u x %u tokens, %u micro-batches, recompute %s%s\n",
            tool_layout_data_parallel(l), strategy, l->batch, l->seq, l->micro_batches,
            a->settings.recomputed_blocks || !a->settings.selective ? recompute : "selective",
            l->sequence_parallel ? ", sequence parallel" : "");
    fprintf(out, "state: %.3f GiB of weights, gradients and optimizer, on the fullest rank\n",
            tool_gib(a->estimate.state_bytes));
    fprintf(out, "meaning: %s\n", tool_system_meaning(a->request->system));
    fprintf(out, "error: %s\n", tool_system_error(a->request->system));
    fprintf(out, "estimate: by the system's rules, not its planner; a dynamic allocator wants a fifth of the device besides\n");
}

static void write_json(FILE *out, const struct answer *a, const struct tool_time_answer *time)
{
    const struct tool_memplan_settings *asked = a->request->asked;
    const struct tool_layout *l = &a->settings.layout;
    char strategy[32];
    tool_strategy_text(a->settings.strategy, 0, strategy, sizeof(strategy));
    struct eo_json json = {.write = tool_write_to_stream, .user = out, .indent = 1};
    eo_json_write(&json,
                  "{'schema': 1, 'estimate': %i, 'settings': {'system': %s, 'model': %s, 'world': %u, 'tp': %u, 'pp': %u,"
                  "'cp': %u, 'ep': %u, 'data_parallel': %u, 'virtual_stages': %u, 'sequence_parallel': %i, 'strategy': %s,"
                  "'batch': %u, 'seq': %u, 'micro_batches': %u, 'recomputed_blocks': %u, 'selective': %i}",
                  true, tool_system_name(a->request->system), a->request->config->source, l->ranks, l->tensor, l->pipeline,
                  l->context, l->expert, tool_layout_data_parallel(l), l->virtual_stages, l->sequence_parallel, strategy,
                  l->batch, l->seq, l->micro_batches, a->settings.recomputed_blocks, a->settings.selective);
    eo_json_write(&json, "'parameters': %" PRIu64 ", 'stage': %u, 'parts_at_peak': {",
                  tool_model_config_parameters(a->request->config), a->estimate.stage);
    for (int p = 0; p < TOOL_SYSTEM_PART_COUNT; p++)
        eo_json_write(&json, "%s: %" PRIu64, tool_system_part_name((enum tool_system_part)p), a->estimate.parts[p]);
    eo_json_write(&json,
                  "}, 'state_bytes': %" PRIu64 ", 'activation_bytes': %" PRIu64 ", 'peak_bytes': %" PRIu64
                  ", 'memory_meaning': %s, 'memory_error': %s, 'outside_bytes': %" PRIu64 ", 'total_bytes': %" PRIu64
                  ", 'headroom_bytes': %" PRIu64 ", 'fits': %i, 'capacity_bytes':",
                  a->estimate.state_bytes, a->estimate.activation_bytes, a->estimate.peak_bytes,
                  tool_system_meaning(a->request->system), tool_system_error(a->request->system), a->outside_bytes,
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
    struct answer a;
    EO_TRY(answer_of(&a, request, request->system, problem));
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

/* --- side by side ------------------------------------------------------------------------------------------------- */

struct column {
    bool known;
    uint64_t parts[TOOL_SYSTEM_PART_COUNT], outside_bytes;
    struct tool_step_time step; /* if asked for */
    char refused[256];
};

/* Rows of a plan in the parts of estimates: what is neither is scratch of kernels, and stands with the workspaces. */
static eo_status plan_column(struct column *out, const struct tool_estimate_request *request, struct tool_problem *problem)
{
    static const enum tool_system_part part_of[TOOL_PART_COUNT] = {
        [TOOL_PART_ACTIVATIONS] = TOOL_SYSTEM_ACTIVATIONS,
        [TOOL_PART_OPTIMIZER] = TOOL_SYSTEM_OPTIMIZER,
        [TOOL_PART_WEIGHTS] = TOOL_SYSTEM_WEIGHTS,
        [TOOL_PART_GRADIENTS] = TOOL_SYSTEM_GRADIENTS,
        [TOOL_PART_BUFFERS] = TOOL_SYSTEM_BUFFERS,
        [TOOL_PART_SCRATCH] = TOOL_SYSTEM_WORKSPACES,
        [TOOL_PART_HEAD] = TOOL_SYSTEM_HEAD,
        [TOOL_PART_OTHER] = TOOL_SYSTEM_WORKSPACES,
        [TOOL_PART_GAPS] = TOOL_SYSTEM_WORKSPACES,
        [TOOL_PART_OUTSIDE] = TOOL_SYSTEM_PART_COUNT,
    };
    struct tool_memplan_settings settings = *request->asked;
    struct tool_system_settings cut = {.layout = request->layout, .strategy = settings.plan.strategy};
    const struct tool_shape shape = tool_shape_of(request->config);
    cut.layout.ranks = settings.plan.ranks;
    cut.layout.seq = seq_of(request);
    if (request->selective)
        return tool_problem_set(problem, EO_ERR_INVALID, "has no --recompute selective; give --recompute cheap");
    EO_TRY(tool_system_check(TOOL_SYSTEM_EVENODD, &cut, &shape, problem));
    EO_TRY(tool_estimate_micro_batches(&settings.plan.micro_batches, request, problem));
    struct tool_memplan plan;
    EO_TRY(tool_memplan_create(&plan, request->config, &settings, problem));
    uint64_t parts[TOOL_PART_COUNT];
    tool_parts_of(&plan, parts);
    for (int p = 0; p < TOOL_PART_COUNT; p++)
        if (p != TOOL_PART_OUTSIDE)
            out->parts[part_of[p]] += parts[p];
    out->outside_bytes = parts[TOOL_PART_OUTSIDE];
    tool_memplan_fini(&plan);
    return EO_OK;
}

static void fill_column(struct column *out, const struct tool_estimate_request *request, enum tool_system system)
{
    struct tool_problem problem = {.text = ""};
    struct answer a;
    *out = (struct column){0};
    eo_status status =
        system == TOOL_SYSTEM_EVENODD ? plan_column(out, request, &problem) : answer_of(&a, request, system, &problem);
    struct tool_time_answer time;
    if (status >= 0 && request->time)
        status = tool_estimate_time(&time, request, &problem);
    out->known = status >= 0;
    snprintf(out->refused, sizeof(out->refused), "%s", problem.text);
    if (out->known && request->time)
        out->step = time.step;
    if (status < 0 || system == TOOL_SYSTEM_EVENODD)
        return;
    memcpy(out->parts, a.estimate.parts, sizeof(out->parts));
    out->outside_bytes = a.outside_bytes;
}

/* One of TOOL_SYSTEM_PART_COUNT and two more rows. */
static uint64_t cell_of(const struct column *column, int row)
{
    if (row < TOOL_SYSTEM_PART_COUNT)
        return column->parts[row];
    uint64_t bytes = column->outside_bytes;
    for (int p = 0; row > TOOL_SYSTEM_PART_COUNT && p < TOOL_SYSTEM_PART_COUNT; p++)
        bytes += column->parts[p];
    return bytes;
}

static void print_row(FILE *out, const char *name, const struct column *columns, const double values[TOOL_SYSTEM_COUNT],
                      int digits)
{
    fprintf(out, "\n  %-12s", name);
    for (int s = 0; s < TOOL_SYSTEM_COUNT; s++)
        if (columns[s].known)
            fprintf(out, " %10.*f", digits, values[s]);
        else
            fprintf(out, " %10s", "-");
}

static void print_columns(FILE *out, const struct column columns[TOOL_SYSTEM_COUNT], bool time)
{
    double values[3][TOOL_SYSTEM_COUNT];
    for (int p = 0; p <= TOOL_SYSTEM_PART_COUNT + 1; p++) {
        for (int s = 0; s < TOOL_SYSTEM_COUNT; s++)
            values[0][s] = tool_gib(cell_of(&columns[s], p));
        print_row(out,
                  p < TOOL_SYSTEM_PART_COUNT    ? tool_system_part_name((enum tool_system_part)p)
                  : p == TOOL_SYSTEM_PART_COUNT ? "outside"
                                                : "total",
                  columns, values[0], 3);
    }
    for (int s = 0; s < TOOL_SYSTEM_COUNT; s++) {
        values[0][s] = columns[s].step.seconds;
        values[1][s] = columns[s].step.tokens_per_second;
        values[2][s] = 100 * columns[s].step.mfu;
    }
    if (time) {
        print_row(out, "step, s", columns, values[0], 3);
        print_row(out, "tokens/s", columns, values[1], 0);
        print_row(out, "MFU, %", columns, values[2], 1);
    }
    fprintf(out, "\n\n");
}

eo_status tool_estimate_compare(FILE *out, const struct tool_estimate_request *request, struct tool_problem *problem)
{
    struct column columns[TOOL_SYSTEM_COUNT];
    struct tool_estimate_request each = *request;
    uint32_t known = 0;
    for (int s = 0; s < TOOL_SYSTEM_COUNT; s++) {
        each.system = (enum tool_system)s;
        fill_column(&columns[s], &each, (enum tool_system)s);
        known += columns[s].known;
    }
    if (known == 0)
        return tool_problem_set(problem, EO_ERR_INVALID, "%s", columns[TOOL_SYSTEM_MEGATRON].refused);
    fprintf(out, "%s, %u ranks, %u tokens; GiB of the fullest rank\n\n  %-12s", request->config->source,
            request->asked->plan.ranks, seq_of(request), "part");
    for (int s = 0; s < TOOL_SYSTEM_COUNT; s++)
        fprintf(out, " %10s", tool_system_name((enum tool_system)s));
    print_columns(out, columns, request->time);
    for (int s = 0; s < TOOL_SYSTEM_COUNT; s++)
        fprintf(out, "%-10s %s%s\n", tool_system_name((enum tool_system)s), columns[s].known && s ? "estimate; " : "",
                columns[s].known ? tool_system_meaning((enum tool_system)s) : columns[s].refused);
    return EO_OK;
}
