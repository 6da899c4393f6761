/* SPDX-License-Identifier: MIT */
#include "tools/memplan/search/strategies.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- what goes over the links ------------------------------------------------------------------------------------- */

/* Of a group of ranks: how many nodes it spans, and how many of its ranks share a node. */
struct span {
    uint64_t ranks, nodes, on_node;
};

static struct span span_of(uint64_t ranks, uint64_t stride, uint64_t gpus_per_node)
{
    const uint64_t on_node = stride >= gpus_per_node ? 1 : gpus_per_node / stride;
    const uint64_t together = ranks < on_node ? ranks : on_node;
    return (struct span){ranks, (ranks + together - 1) / together, together};
}

/* A ring brings each rank all of a buffer but its own part, once; an all-reduce twice, of what it reduces. A node needs
 * what it lacks once, and its ranks share that. */
static void add_received(struct tool_traffic *traffic, uint64_t bytes, uint64_t times, struct span span)
{
    traffic->received_bytes += times * bytes * (span.ranks - 1) / span.ranks;
    traffic->between_bytes += times * bytes * (span.nodes - 1) / span.nodes / span.on_node;
    traffic->collectives += span.ranks > 1;
}

struct tool_traffic tool_traffic_of(const struct tool_memplan *m)
{
    struct tool_traffic traffic = {0};
    const eo_plan_params *p = &m->summary.params;
    const struct span shard = span_of(p->shard_group, 1, m->settings.gpus_per_node);
    const struct span replicas = span_of(p->rank_count / p->shard_group, p->shard_group, m->settings.gpus_per_node);
    for (uint32_t i = 0; i < eo_plan_operation_count(m->plan, EO_LIST_STEADY); i++) {
        eo_plan_operation o;
        if (eo_plan_get_operation(m->plan, EO_LIST_STEADY, i, &o) < 0)
            continue;
        if (o.kind == EO_OP_ALL_GATHER || o.kind == EO_OP_REDUCE_SCATTER || o.kind == EO_OP_MATRIX_GATHER ||
            o.kind == EO_OP_MATRIX_SCATTER)
            add_received(&traffic, o.bytes, 1, shard);
        else if (o.kind == EO_OP_ALL_REDUCE)
            add_received(&traffic, o.bytes, 2, replicas);
    }
    return traffic;
}

/* --- columns ------------------------------------------------------------------------------------------------------ */

static uint64_t paper_bytes(eo_strategy strategy, uint64_t p, uint64_t world, uint64_t group)
{
    switch (strategy) {
    case EO_STRATEGY_DDP: return 16 * p;
    case EO_STRATEGY_ZERO1: return 4 * p + 12 * p / world;
    case EO_STRATEGY_ZERO2: return 2 * p + 14 * p / world;
    case EO_STRATEGY_ZERO3: return 16 * p / world;
    case EO_STRATEGY_HSDP: return 16 * p / group;
    case EO_STRATEGY_COUNT: break;
    }
    return 0;
}

static void make_column(struct tool_strategy_column *column, const struct tool_model_config *config,
                        const struct tool_memplan_settings *settings)
{
    struct tool_memplan_settings s = *settings;
    struct tool_memplan m;
    struct tool_problem problem;
    s.plan.strategy = column->strategy;
    s.plan.shard_group = column->group;
    tool_strategy_text(column->strategy, column->group, column->name, sizeof(column->name));
    column->paper_bytes = paper_bytes(column->strategy, tool_model_config_parameters(config), s.plan.ranks, column->group);
    if (tool_memplan_create(&m, config, &s, &problem) < 0) {
        snprintf(column->refused, sizeof(column->refused), "%.250s", problem.text);
        return;
    }
    column->summary = m.summary;
    tool_parts_of(&m, column->parts);
    column->total_bytes = m.total_bytes;
    column->fits = m.fits;
    const struct tool_traffic traffic = tool_traffic_of(&m);
    column->received_bytes = traffic.received_bytes;
    column->between_bytes = traffic.between_bytes;
    tool_memplan_fini(&m);
}

uint32_t tool_strategy_columns(struct tool_strategy_column *columns, const struct tool_model_config *config,
                               const struct tool_memplan_settings *settings)
{
    static const eo_strategy strategies[TOOL_STRATEGY_COLUMNS] = {EO_STRATEGY_DDP, EO_STRATEGY_ZERO1, EO_STRATEGY_ZERO2,
                                                                  EO_STRATEGY_HSDP, EO_STRATEGY_ZERO3};
    const bool is_given = settings->plan.strategy == EO_STRATEGY_HSDP;
    const uint32_t group = is_given ? settings->plan.shard_group : settings->gpus_per_node;
    uint32_t count = 0;
    for (int k = 0; k < TOOL_STRATEGY_COLUMNS; k++) {
        const bool is_hsdp = strategies[k] == EO_STRATEGY_HSDP;
        if (is_hsdp && !is_given && group >= settings->plan.ranks)
            continue; /* one group: zero3 */
        columns[count] = (struct tool_strategy_column){.strategy = strategies[k], .group = is_hsdp ? group : 0};
        make_column(&columns[count++], config, settings);
    }
    return count;
}

static int compare_columns(const void *a, const void *b)
{
    const struct tool_strategy_column *x = a, *y = b;
    if (x->between_bytes != y->between_bytes)
        return x->between_bytes < y->between_bytes ? -1 : 1;
    if (x->received_bytes != y->received_bytes)
        return x->received_bytes < y->received_bytes ? -1 : 1;
    return (x->total_bytes > y->total_bytes) - (x->total_bytes < y->total_bytes);
}

void tool_strategy_sort(struct tool_strategy_column *columns, uint32_t count)
{
    qsort(columns, count, sizeof(*columns), compare_columns);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void print_line(FILE *out, const char *name, const struct tool_strategy_column *columns, uint32_t count,
                       uint64_t (*value)(const struct tool_strategy_column *column, int which), int which)
{
    fprintf(out, "    %-24s", name);
    for (uint32_t c = 0; c < count; c++)
        if (columns[c].refused[0])
            fprintf(out, " %12s", "-");
        else
            fprintf(out, " %12.3f", tool_gib(value(&columns[c], which)));
    fprintf(out, "\n");
}

static uint64_t part_of(const struct tool_strategy_column *column, int which)
{
    return column->parts[which];
}

enum { FIGURE_ARENA, FIGURE_TOTAL, FIGURE_RECEIVED, FIGURE_BETWEEN, FIGURE_PAPER };

static uint64_t figure_of(const struct tool_strategy_column *column, int which)
{
    const uint64_t figures[] = {[FIGURE_ARENA] = column->summary.arena_bytes,
                                [FIGURE_TOTAL] = column->total_bytes,
                                [FIGURE_RECEIVED] = column->received_bytes,
                                [FIGURE_BETWEEN] = column->between_bytes,
                                [FIGURE_PAPER] = column->paper_bytes};
    return figures[which];
}

void tool_strategy_print(FILE *out, const struct tool_strategy_column *columns, uint32_t count, uint64_t capacity_bytes)
{
    fprintf(out, "\n  strategies, each planned (GiB of one rank at its peak)\n    %-24s", "");
    for (uint32_t c = 0; c < count; c++)
        fprintf(out, " %12s", columns[c].name);
    fprintf(out, "\n");
    for (int k = 0; k < TOOL_PART_COUNT; k++) {
        bool is_there = false;
        for (uint32_t c = 0; c < count; c++)
            is_there = is_there || columns[c].parts[k];
        if (is_there)
            print_line(out, tool_part_name((enum tool_part)k), columns, count, part_of, k);
    }
    print_line(out, "total", columns, count, figure_of, FIGURE_TOTAL);
    if (capacity_bytes) {
        fprintf(out, "    %-24s", "");
        for (uint32_t c = 0; c < count; c++)
            fprintf(out, " %12s", columns[c].refused[0] ? "-" : columns[c].fits ? "FITS" : "DOES NOT FIT");
        fprintf(out, "\n");
    }
    print_line(out, "arena, as reserved", columns, count, figure_of, FIGURE_ARENA);
    print_line(out, "received in a step", columns, count, figure_of, FIGURE_RECEIVED);
    print_line(out, "... between nodes", columns, count, figure_of, FIGURE_BETWEEN);
    print_line(out, "ZeRO paper's state", columns, count, figure_of, FIGURE_PAPER);
    for (uint32_t c = 0; c < count; c++)
        if (columns[c].refused[0])
            fprintf(out, "    %s: %s\n", columns[c].name, columns[c].refused);
}
