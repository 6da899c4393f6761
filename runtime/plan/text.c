/* SPDX-License-Identifier: MIT
 *
 * A plan for people and as JSON.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "base/json_writer.h"
#include "runtime/plan/internal.h"

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

static void print_rows(const struct eo_plan *plan, const struct writer *w)
{
    static const char *const spaces[EO_SPACE_COUNT] = {"gather", "gradient", "private", "host", "disk"};
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
                o.wait_previous_step[k] ? " of the previous step" : "");
        }
        put(w, "\n");
    }
}

/* What the lines above do not say, where it was given. */
static void print_more_settings(const eo_plan_params *p, const struct writer *w)
{
    const struct {
        bool is_set;
        const char *name;
    } flags[] = {{p->offload_gradients, "offload_gradients"},
                 {p->late_updates, "late_updates"},
                 {p->ema, "ema"},
                 {p->no_prefetch, "no_prefetch"},
                 {p->separate_reduce_stream, "separate_reduce_stream"},
                 {p->separate_evict_stream, "separate_evict_stream"},
                 {p->separate_reservations, "separate_reservations"},
                 {p->norms_beside, "norms_beside"},
                 {p->gradients_apart, "gradients_apart"},
                 {p->norm_parts, "norm_parts"},
                 {p->draft, "draft"},
                 {p->input_gradients, "input_gradients"}};
    put(w, "  optimizer_states %u", p->optimizer_states);
    if (p->gather_run > 1 || p->gradient_run > 1)
        put(w, ", runs %u,%u", p->gather_run, p->gradient_run);
    if (p->offload_layers)
        put(w, ", offload_layers %u, offload_slots %u", p->offload_layers, p->offload_slots);
    if (p->offload_activations)
        put(w, ", offload_activations %u", p->offload_activations);
    for (size_t f = 0; f < sizeof(flags) / sizeof(flags[0]); f++)
        if (flags[f].is_set)
            put(w, ", %s", flags[f].name);
    put(w, "\n");
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
    put(&w, "  ranks %u, micro-batches %u, slots %u,%u, dtype %s, reduce %s, %soptimizer %s, alignment %u, fingerprint %016llx\n",
        s.params.rank_count, s.params.micro_batches, s.params.gather_slots, s.params.gradient_slots,
        eo_dtype_name(s.params.dtype), eo_dtype_name(s.params.reduce_dtype), s.params.float8_gather ? "gather float8, " : s.params.float8_frozen ? "frozen mxfp8, " : "",
        eo_optimizer_name(s.params.optimizer), s.params.align_bytes, (unsigned long long)s.fingerprint);
    print_more_settings(&s.params, &w);
    put(&w, "\n  %-24s %16s %12s\n", "bytes of one rank", "live at peak", "MiB");
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        if (s.category_bytes_at_peak[c])
            put(&w, "  %-24s %16llu %12.2f\n", eo_category_name((eo_category)c),
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

static void write_list(const struct eo_plan *plan, struct eo_json *json, eo_list list)
{
    for (uint32_t i = 0; i < eo_plan_operation_count(plan, list); i++) {
        eo_plan_operation o;
        if (eo_plan_get_operation(plan, list, i, &o) < 0)
            continue;
        eo_json_write(json, "\n{'kind': %s, 'name': %s, 'id': %u, 'stream': %d,", eo_operation_kind_name(o.kind), o.name, o.id,
                      (int)o.stream);
        if (o.position != EO_NONE)
            eo_json_write(json, "'position': %u,", o.position);
        if (o.layer != EO_NONE)
            eo_json_write(json, "'layer': %u,", o.layer);
        if (o.flops > 0)
            eo_json_write(json, "'flops': %g,", o.flops);
        eo_json_write(json, "'micro_batch': %u, 'bytes': %" PRIu64 ", 'dtype': %s, 'waits': [", o.micro_batch, o.bytes,
                      eo_dtype_name(o.dtype));
        for (uint32_t k = 0; k < o.wait_count; k++)
            eo_json_write(json, "{'operation': %u, 'previous_step': %i}", o.waits[k], o.wait_previous_step[k]);
        eo_json_write(json, "]}");
    }
}

static void write_more_settings(const eo_plan_params *p, struct eo_json *json)
{
    eo_json_write(
        json,
        "'runs': [%u, %u], 'optimizer_states': %u, 'offload_layers': %u, 'offload_slots': %u, 'offload_gradients': %i,"
        "'offload_activations': %u, 'late_updates': %i, 'ema': %i, 'no_prefetch': %i, 'separate_reduce_stream': %i,"
        "'separate_reservations': %i, 'norms_beside': %i, 'norm_parts': %i, 'draft': %i, 'input_gradients': %i,"
        "'gradients_apart': %i, 'separate_evict_stream': %i,",
        p->gather_run, p->gradient_run, p->optimizer_states, p->offload_layers, p->offload_slots, p->offload_gradients,
        p->offload_activations, p->late_updates, p->ema, p->no_prefetch, p->separate_reduce_stream, p->separate_reservations,
        p->norms_beside, p->norm_parts, p->draft, p->input_gradients, p->gradients_apart,
        p->separate_evict_stream);
}

void eo_plan_write_json(const eo_plan *plan, eo_write_fn write, void *user)
{
    struct eo_json json = {.write = write, .user = user};
    eo_plan_summary s;
    if (!plan || !write)
        return;
    eo_plan_get_summary(plan, &s);
    eo_json_write(&json,
                  "{'schema': 1, 'model': %s, 'parameters': %" PRIu64 ", 'strategy': %s, 'shard_group': %u, 'ranks': %u,"
                  "'micro_batches': %u, 'slots': [%u, %u], 'dtype': %s, 'reduce_dtype': %s, 'float8_gather': %i,"
                  "'float8_frozen': %i, 'optimizer': %s, 'align_bytes': %u,",
                  plan->model_name, s.element_count, eo_strategy_name(s.params.strategy), s.params.shard_group,
                  s.params.rank_count, s.params.micro_batches, s.params.gather_slots, s.params.gradient_slots,
                  eo_dtype_name(s.params.dtype), eo_dtype_name(s.params.reduce_dtype), s.params.float8_gather,
                  s.params.float8_frozen, eo_optimizer_name(s.params.optimizer), s.params.align_bytes);
    write_more_settings(&s.params, &json);
    eo_json_write(&json,
                  "'arena_bytes': %" PRIu64 ", 'lower_bound_bytes': %" PRIu64 ", 'fingerprint': %016" PRIx64 ", 'spaces': [",
                  s.arena_bytes, s.lower_bound_bytes, s.fingerprint);
    for (int k = 0; k < EO_SPACE_COUNT; k++)
        eo_json_write(&json, "%" PRIu64, s.space_bytes[k]);
    eo_json_write(&json, "], 'categories': {");
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        eo_json_write(&json, "%s: {'bytes': %" PRIu64 ", 'at_peak': %" PRIu64 "}", eo_category_name((eo_category)c),
                      s.category_bytes[c], s.category_bytes_at_peak[c]);
    eo_json_write(&json, "}, 'rows': [");
    for (uint32_t r = 0; r < plan->row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(plan, r, &row) < 0)
            continue;
        eo_json_write(&json,
                      "\n{'name': %s, 'category': %s, 'space': %d, 'offset': %" PRIu64 ", 'bytes': %" PRIu64
                      ", 'always_live': %i, 'first': %s, 'last': %s}",
                      row.name, eo_category_name(row.category), (int)row.space, row.offset, row.bytes, row.always_live,
                      row.first, row.last);
    }
    eo_json_write(&json, "], 'first_step': [");
    write_list(plan, &json, EO_LIST_FIRST);
    eo_json_write(&json, "], 'steady_step': [");
    write_list(plan, &json, EO_LIST_STEADY);
    eo_json_write(&json, "], 'forward_only': [");
    write_list(plan, &json, EO_LIST_FORWARD);
    if (plan->params.late_updates) {
        eo_json_write(&json, "], 'late_updates': [");
        write_list(plan, &json, EO_LIST_UPDATES);
    }
    if (plan->params.input_gradients) {
        eo_json_write(&json, "], 'inputs_alone': [");
        write_list(plan, &json, EO_LIST_INPUTS);
    }
    eo_json_write(&json, "]}");
    write(user, "\n", 1);
}
