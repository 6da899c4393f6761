/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "tools/memplan/estimate/answer.h"
#include "tools/memplan/plan/parts.h"

struct column {
    bool known, runs;
    uint64_t parts[TOOL_SYSTEM_PART_COUNT], outside_bytes;
    struct tool_step_time step; /* if asked for */
    char refused[256];
};

/* Settings of other systems alone. */
static eo_status check_others(const struct tool_system_run *r, struct tool_problem *problem)
{
    if (r->selective || r->recompute_unit || r->recomputed_of_chunk || r->recomputed_modules)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "has no --recompute selective, block:N, uniform:N or modules; give --recompute cheap");
    if (r->precision)
        return tool_problem_set(problem, EO_ERR_INVALID, "has no --dtype %s; give bf16", tool_precision_name(r->precision));
    if (r->bf16_state || r->offload || r->nf4)
        return tool_problem_set(problem, EO_ERR_INVALID, "has no --state-dtype bf16, --offload or --frozen nf4");
    return EO_OK;
}

/* Rows of a plan in the parts of estimates: what is neither is scratch of kernels, and stands with the workspaces. */
static eo_status plan_column(struct column *out, const struct tool_estimate_request *request, struct tool_time_answer *time,
                             struct tool_problem *problem)
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
    cut.layout.seq = tool_estimate_seq(request);
    EO_TRY(check_others(&request->run, problem));
    EO_TRY(tool_system_check(TOOL_SYSTEM_EVENODD, &cut, &shape, problem));
    EO_TRY(tool_estimate_micro_batches(&settings.plan.micro_batches, request, problem));
    settings.slice = tool_estimate_slice(&request->layout);
    cut.layout.micro_batches = settings.plan.micro_batches;
    struct tool_memplan plan;
    EO_TRY(tool_memplan_create(&plan, request->config, &settings, problem));
    uint64_t parts[TOOL_PART_COUNT];
    tool_parts_of(&plan, parts);
    for (int p = 0; p < TOOL_PART_COUNT; p++)
        if (p != TOOL_PART_OUTSIDE)
            out->parts[part_of[p]] += parts[p];
    out->outside_bytes = parts[TOOL_PART_OUTSIDE];
    out->runs = plan.runs;
    struct tool_estimate_request own = *request;
    own.plan = &plan;
    const eo_status status = request->time ? tool_estimate_time(time, &own, problem) : EO_OK;
    tool_memplan_fini(&plan);
    return status;
}

static void fill_column(struct column *out, const struct tool_estimate_request *request, enum tool_system system)
{
    struct tool_problem problem = {.text = ""};
    struct tool_estimate_answer a;
    *out = (struct column){0};
    struct tool_time_answer time;
    eo_status status = system == TOOL_SYSTEM_EVENODD ? plan_column(out, request, &time, &problem)
                                                     : tool_estimate_answer_of(&a, request, system, &problem);
    if (status >= 0 && request->time && system != TOOL_SYSTEM_EVENODD)
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
            fprintf(out, " %13.*f", digits, values[s]);
        else
            fprintf(out, " %13s", "-");
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
            request->asked->plan.ranks, tool_estimate_seq(request), "part");
    for (int s = 0; s < TOOL_SYSTEM_COUNT; s++)
        fprintf(out, " %13s", tool_system_name((enum tool_system)s));
    print_columns(out, columns, request->time);
    for (int s = 0; s < TOOL_SYSTEM_COUNT; s++)
        fprintf(out, "%-13s %s%s\n", tool_system_name((enum tool_system)s), !columns[s].known ? "" : s ? "estimate; " : columns[s].runs ? "" : "planned, not run; ",
                columns[s].known ? tool_system_meaning((enum tool_system)s) : columns[s].refused);
    return EO_OK;
}
