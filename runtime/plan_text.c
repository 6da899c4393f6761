/* SPDX-License-Identifier: MIT
 *
 * A plan for people and as JSON, and the names of things.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "runtime/plan_internal.h"

const char *eo_category_name(eo_category category)
{
    static const char *const names[EO_CATEGORY_COUNT] = {
        [EO_CATEGORY_MASTER] = "master weights",
        [EO_CATEGORY_COMPUTE_SHARD] = "compute shards",
        [EO_CATEGORY_GRADIENT] = "gradient shards",
        [EO_CATEGORY_OPTIMIZER] = "optimizer state",
        [EO_CATEGORY_GATHER_BUFFER] = "gather buffers",
        [EO_CATEGORY_GRADIENT_BUFFER] = "gradient buffers",
        [EO_CATEGORY_ACTIVATION] = "activations",
        [EO_CATEGORY_SCRATCH] = "recompute and scratch",
        [EO_CATEGORY_HEAD] = "head",
        [EO_CATEGORY_OTHER] = "other",
    };
    return (unsigned)category < EO_CATEGORY_COUNT ? names[category] : "unknown";
}

const char *eo_operation_kind_name(eo_operation_kind kind)
{
    static const char *const names[EO_OP_KIND_COUNT] = {
        [EO_OP_ALL_GATHER] = "all-gather",
        [EO_OP_FORWARD] = "forward",
        [EO_OP_RECOMPUTE] = "recompute",
        [EO_OP_BACKWARD] = "backward",
        [EO_OP_REDUCE_SCATTER] = "reduce-scatter",
        [EO_OP_ALL_REDUCE] = "all-reduce",
        [EO_OP_ACCUMULATE] = "accumulate",
        [EO_OP_NORM_PARTIAL] = "norm partial",
        [EO_OP_NORM_LOCAL] = "local norm",
        [EO_OP_NORM_GATHER] = "all-gather of norms",
        [EO_OP_NORM_SUM] = "norm",
        [EO_OP_UPDATE] = "update",
    };
    return (unsigned)kind < EO_OP_KIND_COUNT ? names[kind] : "unknown";
}

void eo_plan_operation_text(const struct eo_plan *plan, const struct eo_operation *operation, char *text,
                            size_t bytes)
{
    const char *kind = operation->fence ? "fence after the norms" : eo_operation_kind_name(operation->kind);
    const char *what = operation->position != EO_NONE ? plan->positions[operation->position].name
                       : operation->layer != EO_NONE  ? plan->layers[operation->layer].name
                                                      : NULL;
    int used = what ? snprintf(text, bytes, "%s of %s", kind, what) : snprintf(text, bytes, "%s", kind);
    if (operation->micro_batch != EO_NONE && plan->params.micro_batches > 1 && used > 0 && (size_t)used < bytes)
        snprintf(text + used, bytes - (size_t)used, " (micro-batch %u)", operation->micro_batch);
}

struct writer {
    eo_write_fn write;
    void *user;
};

static void put(const struct writer *w, const char *format, ...) EO_PRINTF(2, 3);

static void put(const struct writer *w, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    const int used = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (used > 0)
        w->write(w->user, line, (size_t)used < sizeof(line) ? (size_t)used : sizeof(line) - 1);
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static const char *dtype_name(eo_dtype dtype)
{
    return dtype == EO_DTYPE_BF16 ? "bf16" : "fp32";
}

static void print_rows(const struct eo_plan *plan, const struct writer *w)
{
    static const char *const spaces[EO_SPACE_COUNT] = {"gather", "gradient", "private", "host"};
    put(w, "\n  %-36s %-22s %-9s %14s %14s  %s\n", "row", "category", "space", "offset", "bytes", "live");
    for (uint32_t r = 0; r < plan->row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(plan, r, &row) < 0)
            continue;
        put(w, "  %-36s %-22s %-9s %14llu %14llu  ", row.name, eo_category_name(row.category), spaces[row.space],
            (unsigned long long)row.offset, (unsigned long long)row.bytes);
        if (row.always_live)
            put(w, "always\n");
        else
            put(w, "%s ... %s\n", row.first, row.last);
    }
}

static void print_operations(const struct eo_plan *plan, const struct writer *w)
{
    const struct eo_operation_list *list = &plan->schedule.lists[EO_LIST_STEADY];
    put(w, "\n  the steady step, %u operations; communication is indented\n", list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        eo_plan_operation o;
        if (eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o) < 0)
            continue;
        put(w, "  %5u %s%s", i, o.stream == EO_STREAM_COMPUTE ? "" : "        ", o.name);
        if (o.bytes)
            put(w, ", %.2f MiB", mib(o.bytes));
        for (uint32_t k = 0; k < o.wait_count; k++) {
            if (o.waits[k] == EO_NONE)
                continue;
            put(w, "%s %u%s", k ? "," : "   waits for", o.waits[k],
                o.wait_previous_step[k] ? " of the step before" : "");
        }
        put(w, "\n");
    }
}

void eo_plan_print(const eo_plan *plan, eo_write_fn write, void *user)
{
    const struct writer w = {write, user};
    eo_plan_summary s;
    if (!plan || !write)
        return;
    eo_plan_get_summary(plan, &s);
    put(&w, "plan of '%s': %llu parameters in %u layers, %u positions\n", plan->model_name,
        (unsigned long long)s.element_count, plan->layer_count, plan->position_count);
    put(&w, "  strategy %s, ranks %u in %u group%s of %u\n", eo_strategy_name(s.params.strategy), s.params.rank_count,
        plan->replicas, plan->replicas == 1 ? "" : "s", s.params.shard_group);
    put(&w, "  ranks %u, micro-batches %u, slots %u,%u, dtype %s, reduce %s, alignment %u, fingerprint %016llx\n",
        s.params.rank_count, s.params.micro_batches, s.params.gather_slots, s.params.gradient_slots,
        dtype_name(s.params.dtype), dtype_name(s.params.reduce_dtype), s.params.align_bytes,
        (unsigned long long)s.fingerprint);
    put(&w, "\n  %-24s %16s %12s %16s %12s\n", "bytes of one rank", "rows", "MiB", "live at peak", "MiB");
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        if (s.category_bytes[c])
            put(&w, "  %-24s %16llu %12.2f %16llu %12.2f\n", eo_category_name((eo_category)c),
                (unsigned long long)s.category_bytes[c], mib(s.category_bytes[c]),
                (unsigned long long)s.category_bytes_at_peak[c], mib(s.category_bytes_at_peak[c]));
    put(&w, "  %-24s %16llu %12.2f   to be reserved (gather %llu, gradient %llu, private %llu, host %llu)\n", "arena",
        (unsigned long long)s.arena_bytes, mib(s.arena_bytes), (unsigned long long)s.space_bytes[EO_SPACE_GATHER],
        (unsigned long long)s.space_bytes[EO_SPACE_GRADIENT], (unsigned long long)s.space_bytes[EO_SPACE_PRIVATE],
        (unsigned long long)s.space_bytes[EO_SPACE_HOST]);
    put(&w, "  %-24s %16llu %12.2f   arena / lower bound %.4f\n", "lower bound",
        (unsigned long long)s.lower_bound_bytes, mib(s.lower_bound_bytes),
        (double)s.arena_bytes / (double)s.lower_bound_bytes);
    print_rows(plan, &w);
    print_operations(plan, &w);
}

/* Names come from the trainer and may hold anything. */
static void put_json_text(const struct writer *w, const char *text)
{
    put(w, "\"");
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            put(w, "\\%c", c);
        else if (c < 0x20)
            put(w, "\\u%04x", c);
        else
            put(w, "%c", c);
    }
    put(w, "\"");
}

static void put_json_list(const struct eo_plan *plan, const struct writer *w, eo_list list)
{
    put(w, "[");
    for (uint32_t i = 0; i < eo_plan_operation_count(plan, list); i++) {
        eo_plan_operation o;
        if (eo_plan_get_operation(plan, list, i, &o) < 0)
            continue;
        put(w, "%s\n    {\"kind\": \"%s\", \"name\": ", i ? "," : "", eo_operation_kind_name(o.kind));
        put_json_text(w, o.name);
        put(w, ", \"stream\": %d, \"micro_batch\": %u, \"bytes\": %llu, \"waits\": [", (int)o.stream, o.micro_batch,
            (unsigned long long)o.bytes);
        for (uint32_t k = 0; k < o.wait_count; k++)
            put(w, "%s{\"operation\": %u, \"previous_step\": %s}", k ? ", " : "", o.waits[k],
                o.wait_previous_step[k] ? "true" : "false");
        put(w, "]}");
    }
    put(w, "]");
}

void eo_plan_write_json(const eo_plan *plan, eo_write_fn write, void *user)
{
    const struct writer w = {write, user};
    eo_plan_summary s;
    if (!plan || !write)
        return;
    eo_plan_get_summary(plan, &s);
    put(&w, "{\"schema\": 1, \"model\": ");
    put_json_text(&w, plan->model_name);
    put(&w,
        ", \"parameters\": %llu, \"strategy\": \"%s\", \"shard_group\": %u, \"ranks\": %u, \"micro_batches\": %u, \"slots\": [%u, %u], \"dtype\": \"%s\","
        " \"reduce_dtype\": \"%s\", \"align_bytes\": %u,\n  \"arena_bytes\": %llu, \"lower_bound_bytes\": %llu,"
        " \"fingerprint\": \"%016llx\",\n  \"categories\": {",
        (unsigned long long)s.element_count, eo_strategy_name(s.params.strategy), s.params.shard_group,
        s.params.rank_count, s.params.micro_batches, s.params.gather_slots,
        s.params.gradient_slots, dtype_name(s.params.dtype), dtype_name(s.params.reduce_dtype), s.params.align_bytes,
        (unsigned long long)s.arena_bytes, (unsigned long long)s.lower_bound_bytes,
        (unsigned long long)s.fingerprint);
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        put(&w, "%s\"%s\": {\"bytes\": %llu, \"at_peak\": %llu}", c ? ", " : "", eo_category_name((eo_category)c),
            (unsigned long long)s.category_bytes[c], (unsigned long long)s.category_bytes_at_peak[c]);
    put(&w, "},\n  \"rows\": [");
    for (uint32_t r = 0; r < plan->row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(plan, r, &row) < 0)
            continue;
        put(&w, "%s\n    {\"name\": ", r ? "," : "");
        put_json_text(&w, row.name);
        put(&w, ", \"category\": \"%s\", \"space\": %d, \"offset\": %llu, \"bytes\": %llu, \"first\": ",
            eo_category_name(row.category), (int)row.space, (unsigned long long)row.offset,
            (unsigned long long)row.bytes);
        put_json_text(&w, row.first);
        put(&w, ", \"last\": ");
        put_json_text(&w, row.last);
        put(&w, "}");
    }
    put(&w, "],\n  \"first_step\": ");
    put_json_list(plan, &w, EO_LIST_FIRST);
    put(&w, ",\n  \"steady_step\": ");
    put_json_list(plan, &w, EO_LIST_STEADY);
    put(&w, ",\n  \"forward_only\": ");
    put_json_list(plan, &w, EO_LIST_FORWARD);
    put(&w, "}\n");
}
