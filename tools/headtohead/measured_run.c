/* SPDX-License-Identifier: MIT */
#include "tools/headtohead/measured_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/run/machine/memory_check.h"
#include "tools/run/reports/progress.h"
#include "tools/run/reports/report.h"
#include "tools/run/ranks/simulate.h"
#include "tools/headtohead/start_delay.h"
#include "tools/logs/step_log.h"
#include "tools/shared/json_output.h"
#include "tools/shared/weights_hash.h"

/* Passes of blocks, which are alike: how long they took while a collective ran nearby, and while none did. */
struct pass_times {
    double with_ns, alone_ns;
    uint64_t with_count, alone_count;
};
enum { PASS_KINDS = EO_OP_BACKWARD + 1 };

/* What one rank keeps, all of it made before the first step. */
struct rank_notes {
    uint64_t *host_ns; /* by step, from 0 */
    eo_timeline_record *records;
    char (*names)[EO_NAME_MAX * 2]; /* of the last timeline's records, which outlive the runtime */
    uint32_t record_count, record_capacity;
    struct tool_step_span *spans; /* by step, then operation of the steady list (static mode) */
    uint64_t *durations_ns; /* likewise */
    uint64_t *complete;     /* by step: whether all operations were there */
    double collective_ns[EO_WAIT_COUNT]; /* how long collectives took, added up over the steps with a timeline */
    double exposed_ns[EO_WAIT_COUNT];    /* ... while this rank computed nothing */
    struct pass_times passes[PASS_KINDS];
    uint64_t timeline_count;
    uint64_t resident_peak_bytes; /* of the process, when this rank had trained */
};

struct notes {
    struct tool_job *job;
    struct tool_gpu_watch *watch;
    uint32_t operation_count;
    uint64_t *step_ns; /* of rank 0, by step, from 0 */
    struct rank_notes *ranks;
    uint64_t faults_first, faults_last, weights_hash;
};

static void notes_fini(struct notes *notes)
{
    for (uint32_t r = 0; notes->ranks && r < notes->job->shape.rank_count; r++) {
        struct rank_notes *rank = &notes->ranks[r];
        free(rank->host_ns);
        free(rank->records);
        free(rank->names);
        free(rank->spans);
        free(rank->durations_ns);
        free(rank->complete);
    }
    free(notes->ranks);
    free(notes->step_ns);
}

/* Touched here, so that the pages do not count as the steps' own. */
static void *touched(uint64_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (memory)
        memset(memory, 1, count * bytes);
    return memory;
}

static eo_status notes_init(struct notes *notes, struct tool_job *job)
{
    const uint64_t steps = job->options->steps;
    *notes = (struct notes){.job = job, .operation_count = eo_plan_operation_count(job->plan, EO_LIST_STEADY)};
    notes->ranks = calloc(job->shape.rank_count, sizeof(*notes->ranks));
    for (uint32_t r = 0; notes->ranks && r < job->shape.rank_count; r++) {
        struct rank_notes *rank = &notes->ranks[r];
        rank->record_capacity = 4 * notes->operation_count + 64; /* the dynamic mode has other operations */
        rank->host_ns = touched(steps, sizeof(*rank->host_ns));
        rank->records = touched(rank->record_capacity, sizeof(*rank->records));
        rank->durations_ns = touched(steps * notes->operation_count, sizeof(*rank->durations_ns));
        rank->spans = touched(steps * notes->operation_count, sizeof(*rank->spans));
        rank->complete = calloc(steps, sizeof(*rank->complete));
        if (!rank->host_ns || !rank->records || !rank->durations_ns || !rank->spans || !rank->complete)
            return EO_ERR_NO_MEMORY;
    }
    notes->step_ns = touched(steps, sizeof(*notes->step_ns));
    return notes->ranks && notes->step_ns ? EO_OK : EO_ERR_NO_MEMORY;
}

/* --- while it runs ------------------------------------------------------------------------------------------------ */

/* The part of a span in which compute stood still. */
static uint64_t exposed_ns(const struct rank_notes *rank, const eo_timeline_record *span)
{
    uint64_t exposed = span->end_ns - span->start_ns;
    for (uint32_t i = 0; i < rank->record_count; i++) {
        const eo_timeline_record *record = &rank->records[i];
        const uint64_t begin = record->start_ns > span->start_ns ? record->start_ns : span->start_ns;
        const uint64_t end = record->end_ns < span->end_ns ? record->end_ns : span->end_ns;
        if (record->stream == EO_STREAM_COMPUTE && end > begin)
            exposed -= end - begin < exposed ? end - begin : exposed;
    }
    return exposed;
}

/* Of a span on the compute stream: how much of it a collective ran. */
static uint64_t shared_ns(const struct rank_notes *rank, const eo_timeline_record *span)
{
    uint64_t shared = 0;
    for (uint32_t i = 0; i < rank->record_count; i++) {
        const eo_timeline_record *record = &rank->records[i];
        const uint64_t begin = record->start_ns > span->start_ns ? record->start_ns : span->start_ns;
        const uint64_t end = record->end_ns < span->end_ns ? record->end_ns : span->end_ns;
        if (tool_collective_of(record->kind) >= 0 && record->stream != EO_STREAM_COMPUTE && end > begin)
            shared += end - begin;
    }
    return shared;
}

/* Blocks have numbers in their names, as "forward of block.3". Half a pass in company counts as such. */
static void keep_pass(struct rank_notes *rank, const eo_timeline_record *record, uint64_t duration_ns)
{
    if (!duration_ns || record->stream != EO_STREAM_COMPUTE || !record->name || !strchr(record->name, '.') ||
        record->kind < EO_OP_FORWARD || record->kind > EO_OP_BACKWARD)
        return;
    struct pass_times *times = &rank->passes[record->kind];
    const uint64_t shared = shared_ns(rank, record);
    if (2 * shared >= duration_ns) {
        times->with_ns += (double)duration_ns;
        times->with_count++;
    } else if (shared == 0) {
        times->alone_ns += (double)duration_ns;
        times->alone_count++;
    }
}

/* The timeline is that of the step before `step`: the collectives at the end of a step go on into the next one. */
static void keep_timeline(struct notes *notes, struct rank_notes *rank, const struct tool_job_rank *job_rank, uint64_t step)
{
    rank->record_count = eo_runtime_timeline(job_rank->runtime, rank->records, rank->record_capacity);
    uint64_t *durations_ns = rank->durations_ns + (step - 2) * notes->operation_count;
    struct tool_step_span *spans = rank->spans + (step - 2) * notes->operation_count;
    uint32_t found = 0;
    for (uint32_t i = 0; i < rank->record_count; i++) {
        const eo_timeline_record *record = &rank->records[i];
        const uint64_t duration_ns = record->end_ns > record->start_ns ? record->end_ns - record->start_ns : 0;
        const int collective = tool_collective_of(record->kind);
        keep_pass(rank, record, duration_ns);
        if (collective >= 0 && duration_ns) {
            rank->collective_ns[collective] += (double)duration_ns;
            rank->exposed_ns[collective] += (double)exposed_ns(rank, record);
        }
        if (record->operation < notes->operation_count) {
            durations_ns[record->operation] = duration_ns;
            spans[record->operation] = (struct tool_step_span){record->ready_ns, record->start_ns, record->end_ns};
            found++;
        }
    }
    rank->timeline_count++;
    rank->complete[step - 2] = found == notes->operation_count;
}

static void on_rank_step(void *user, struct tool_job_rank *job_rank, uint64_t step)
{
    struct notes *notes = user;
    struct rank_notes *rank = &notes->ranks[job_rank->rank];
    rank->host_ns[step - 1] = job_rank->host_ns;
    /* Step 1 runs the first-step list; a graph's times are known where they were asked for. */
    if (step >= 3 && (!job_rank->graph.is_captured || job_rank->job->options->graph_times))
        keep_timeline(notes, rank, job_rank, step);
    if (job_rank->rank == 0) {
        notes->faults_last = tool_process_fault_count();
        if (step == 1) {
            notes->faults_first = notes->faults_last;
            tool_gpu_watch_from_now(notes->watch);
        }
    }
}

static void on_step(void *user, const struct tool_job_step *step)
{
    struct notes *notes = user;
    notes->step_ns[step->step - 1] = step->step_ns;
}

static eo_status keep_names(struct rank_notes *rank)
{
    rank->names = calloc(rank->record_count + 1, sizeof(*rank->names));
    if (!rank->names)
        return EO_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < rank->record_count; i++) {
        if (rank->records[i].name)
            snprintf(rank->names[i], sizeof(rank->names[i]), "%s", rank->records[i].name);
        rank->records[i].name = rank->names[i];
    }
    return EO_OK;
}

static eo_status on_end(void *user, struct tool_job_rank *rank)
{
    struct notes *notes = user;
    uint64_t hash;
    notes->ranks[rank->rank].resident_peak_bytes = tool_process_resident_peak();
    EO_TRY(keep_names(&notes->ranks[rank->rank]));
    EO_TRY(tool_weights_hash(rank->runtime, &hash));
    if (rank->rank == 0)
        notes->weights_hash = hash;
    return EO_OK;
}

/* --- afterwards --------------------------------------------------------------------------------------------------- */

/* Each step's own durations on all ranks, run through the plan's list; the median over steps, and that of the same
 * steps as rank 0 measured them. */
static void simulate_steps(const struct notes *notes, double *simulated_s, double *measured_s)
{
    const uint64_t steps = notes->job->options->steps;
    const uint32_t rank_count = notes->job->shape.rank_count;
    double *simulated = calloc(steps, sizeof(*simulated)), *measured = calloc(steps, sizeof(*measured));
    const uint64_t *durations_ns[TOOL_RUN_RANKS_MAX];
    uint64_t count = 0;
    for (uint64_t s = 1; simulated && measured && s < steps; s++) {
        bool complete = true;
        uint64_t ns;
        for (uint32_t r = 0; r < rank_count; r++) {
            durations_ns[r] = notes->ranks[r].durations_ns + s * notes->operation_count;
            complete = complete && notes->ranks[r].complete[s];
        }
        if (complete && tool_simulate_ranks(notes->job->plan, rank_count, durations_ns, 3, &ns) >= 0) {
            simulated[count] = (double)ns * 1e-9;
            measured[count++] = (double)notes->step_ns[s] * 1e-9;
        }
    }
    *simulated_s = simulated ? tool_median(simulated, count) : 0;
    *measured_s = measured ? tool_median(measured, count) : 0;
    free(simulated);
    free(measured);
}

/* The list with the median of each operation. */
static double simulate_medians(const struct notes *notes, const struct rank_notes *rank)
{
    const uint64_t steps = notes->job->options->steps;
    double *values = calloc(steps, sizeof(*values));
    uint64_t *medians_ns = calloc(notes->operation_count, sizeof(*medians_ns)), ns = 0, count = 0;
    for (uint32_t o = 0; values && medians_ns && o < notes->operation_count; o++) {
        count = 0;
        for (uint64_t s = 1; s < steps; s++)
            if (rank->complete[s])
                values[count++] = (double)rank->durations_ns[s * notes->operation_count + o];
        medians_ns[o] = (uint64_t)tool_median(values, count);
    }
    if (count == 0 || eo_plan_simulate(notes->job->plan, EO_LIST_STEADY, medians_ns, 3, &ns) < 0)
        ns = 0;
    free(values);
    free(medians_ns);
    return (double)ns * 1e-9;
}

static void write_simulation(struct eo_json *json, const struct notes *notes)
{
    double simulated_s, measured_s, medians_s = 0;
    simulate_steps(notes, &simulated_s, &measured_s);
    for (uint32_t r = 0; r < notes->job->shape.rank_count; r++) { /* the others wait for the slowest */
        const double medians = simulate_medians(notes, &notes->ranks[r]);
        medians_s = medians > medians_s ? medians : medians_s;
    }
    eo_json_write(json, "'simulated_s': %g, 'simulated_medians_s': %g, 'simulated_measured_s': %g", simulated_s, medians_s,
                  measured_s);
}

/* Bytes that rank 0 sends in a step. A gather or reduction over g ranks sends (g - 1) / g of the buffer, an all-reduce that
 * twice. Static: of the plan's list. The dynamic modes are zero3: of what was counted. */
static double sent_bytes(const struct notes *notes)
{
    const struct tool_job *job = notes->job;
    const eo_plan_params *p = &job->summary.params;
    const double ranks = p->rank_count, group = p->shard_group, replicas = ranks / group;
    double bytes = 0;
    if (job->options->memory != EO_MEMORY_STATIC) {
        const eo_runtime_stats *first = &job->ranks[0].first, *last = &job->ranks[0].last;
        const double steps = last->steps > first->steps ? (double)(last->steps - first->steps) : 1;
        return (double)(last->collective_bytes - first->collective_bytes) / steps * (ranks - 1) / ranks;
    }
    for (uint32_t i = 0; i < notes->operation_count; i++) {
        eo_plan_operation o;
        if (eo_plan_get_operation(job->plan, EO_LIST_STEADY, i, &o) < 0)
            continue;
        if (o.kind == EO_OP_ALL_REDUCE)
            bytes += (double)o.bytes * 2 * (replicas - 1) / replicas;
        else if (tool_collective_of(o.kind) >= 0 && o.kind != EO_OP_NORM_GATHER)
            bytes += (double)o.bytes * (group - 1) / group;
    }
    return bytes;
}

/* The hash gathers weights, so it may rise above the training's. What the first rank saw that had trained is without it. */
static uint64_t resident_peak(const struct notes *notes)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < notes->job->shape.rank_count; r++)
        if (notes->ranks[r].resident_peak_bytes < least)
            least = notes->ranks[r].resident_peak_bytes;
    return least;
}

static void write_counts(struct eo_json *json, const struct notes *notes)
{
    const struct tool_job *job = notes->job;
    uint64_t calls = 0, allocated = 0, copied = 0, cast = 0, arena = 0, live = 0, reserved = 0, steps = 1;
    uint64_t moved = 0, offloaded = 0;
#define KEEP_LARGER(into, value) into = (value) > into ? (value) : into
    for (uint32_t r = 0; r < job->shape.rank_count; r++) {
        const eo_runtime_stats *first = &job->ranks[r].first, *last = &job->ranks[r].last;
        steps = job->ranks[r].step_count > 1 ? job->ranks[r].step_count - 1 : 1;
        KEEP_LARGER(calls, last->allocator_calls - first->allocator_calls);
        KEEP_LARGER(allocated, last->allocated_bytes - first->allocated_bytes);
        KEEP_LARGER(copied, last->copied_bytes - first->copied_bytes);
        KEEP_LARGER(cast, last->cast_bytes - first->cast_bytes);
        KEEP_LARGER(moved, last->storage_bytes - first->storage_bytes);
        KEEP_LARGER(offloaded, last->offload_bytes);
        KEEP_LARGER(arena, last->arena_bytes);
        KEEP_LARGER(live, last->live_peak_bytes);
        KEEP_LARGER(reserved, last->reserved_peak_bytes);
    }
#undef KEEP_LARGER
    const double per_step = 1.0 / (double)steps;
    const eo_runtime_stats *first = &job->ranks[0].first, *last = &job->ranks[0].last;
    eo_json_write(json, "'collectives': %g, 'sent_bytes': %g", (double)(last->collective_count - first->collective_count) * per_step,
                  sent_bytes(notes));
    eo_json_write(json, "'offload_bytes': %" PRIu64 ", 'offload_moved_bytes': %g", offloaded, (double)moved * per_step);
    eo_json_write(json,
                  "'allocator_calls': %g, 'allocated_bytes': %g, 'copied_bytes': %g, 'cast_bytes': %g, 'page_faults': %g,"
                  "'arena_bytes': %" PRIu64 ", 'live_peak_bytes': %" PRIu64 ", 'reserved_peak_bytes': %" PRIu64
                  ", 'resident_peak_bytes': %" PRIu64,
                  (double)calls * per_step, (double)allocated * per_step, (double)copied * per_step, (double)cast * per_step,
                  (double)(notes->faults_last - notes->faults_first) * per_step, arena, live,
                  reserved > arena ? reserved : arena, resident_peak(notes));
}

/* 1: a collective slows no product down; 0: not known, for all or none of the passes had company. */
static double slowdown(const struct notes *notes)
{
    double with_ns = 0, alone_ns = 0;
    for (uint32_t r = 0; r < notes->job->shape.rank_count; r++) {
        for (int kind = 0; kind < PASS_KINDS; kind++) {
            const struct pass_times *times = &notes->ranks[r].passes[kind];
            if (times->with_count == 0 || times->alone_count == 0)
                continue;
            with_ns += times->with_ns;
            alone_ns += times->alone_ns / (double)times->alone_count * (double)times->with_count;
        }
    }
    return alone_ns > 0 ? with_ns / alone_ns : 0;
}

static void write_kinds(struct eo_json *json, const char *name, const double values[EO_WAIT_COUNT])
{
    eo_json_write(json, "%s: {'all_gather': %g, 'reduce_scatter': %g, 'norm': %g, 'fetch': %g}", name,
                  values[EO_WAIT_ALL_GATHER], values[EO_WAIT_REDUCE_SCATTER], values[EO_WAIT_NORM], values[EO_WAIT_FETCH]);
}

static void write_idle_times(struct eo_json *json, const struct notes *notes)
{
    const struct tool_job *job = notes->job;
    const double scale = 1e-9 / job->shape.rank_count;
    double wait_s[EO_WAIT_COUNT] = {0}, collective_s[EO_WAIT_COUNT] = {0}, exposed_s[EO_WAIT_COUNT] = {0};
    for (int w = 0; w < EO_WAIT_COUNT; w++) {
        for (uint32_t r = 0; r < job->shape.rank_count; r++) {
            const struct tool_job_rank *rank = &job->ranks[r];
            const struct rank_notes *kept = &notes->ranks[r];
            if (rank->step_count > 1)
                wait_s[w] += scale * (double)(rank->last.wait_ns[w] - rank->first.wait_ns[w]) / (double)(rank->step_count - 1);
            if (kept->timeline_count) {
                collective_s[w] += scale * kept->collective_ns[w] / (double)kept->timeline_count;
                exposed_s[w] += scale * kept->exposed_ns[w] / (double)kept->timeline_count;
            }
        }
    }
    write_kinds(json, "wait_s", wait_s);
    write_kinds(json, "collective_s", collective_s);
    write_kinds(json, "exposed_s", exposed_s);
    eo_json_write(json, "'pass_slowdown': %g, 'timeline_steps': %" PRIu64, slowdown(notes), notes->ranks[0].timeline_count);
}

static void write_gpu(struct eo_json *json, const struct notes *notes)
{
    const uint64_t steps = notes->job->ranks[0].step_count;
    const double per_step = steps > 1 ? 1.0 / (double)(steps - 1) : 0;
    if (!notes->watch->profile)
        return;
    const struct tool_gpu_sums sums = tool_gpu_watch_sums(notes->watch);
    eo_json_write(json, "'gpu': {'kernels': %g, 'copies': %g, 'peer_copies': %g, 'fills': %g, 'kernel_s': %g, 'copy_s': %g}",
                  (double)sums.count[EO_GPU_KERNEL] * per_step, (double)sums.count[EO_GPU_COPY] * per_step,
                  (double)sums.count[EO_GPU_PEER_COPY] * per_step, (double)sums.count[EO_GPU_FILL] * per_step,
                  sums.seconds[EO_GPU_KERNEL] * per_step,
                  (sums.seconds[EO_GPU_COPY] + sums.seconds[EO_GPU_PEER_COPY]) * per_step);
}

/* Of the static mode: what is waited for stands in the plan. Clocks of GPUs are compared to some microseconds. */
static void write_delays(struct eo_json *json, const struct notes *notes)
{
    const struct tool_step_span *spans[TOOL_RUN_RANKS_MAX];
    const uint64_t *complete[TOOL_RUN_RANKS_MAX];
    const uint32_t rank_count = notes->job->shape.rank_count;
    struct tool_start_delays delays;
    for (uint32_t r = 0; r < rank_count; r++) {
        spans[r] = notes->ranks[r].spans;
        complete[r] = notes->ranks[r].complete;
    }
    const uint64_t slack_ns = tool_options_on_gpu(notes->job->options) ? 20000 : 0;
    if (tool_start_delays(notes->job->plan, rank_count, notes->job->options->steps, spans, complete, slack_ns, &delays) >= 0) {
        double mean_s[EO_WAIT_COUNT], late_s[EO_WAIT_COUNT];
        for (int w = 0; w < EO_WAIT_COUNT; w++) {
            const double count = (double)delays.kinds[w].count;
            mean_s[w] = count > 0 ? delays.kinds[w].delay_s / count : 0;
            late_s[w] = count > 0 ? delays.kinds[w].late_s / count : 0;
        }
        write_kinds(json, "start_delay_s", mean_s);
        write_kinds(json, "late_ranks_s", late_s);
        eo_json_write(json, "'start_delays': [");
        for (uint32_t i = 0; i < notes->operation_count; i++) {
            const struct tool_start_delay *d = &delays.operations[i];
            eo_plan_operation operation;
            if (d->count && eo_plan_get_operation(notes->job->plan, EO_LIST_STEADY, i, &operation) >= 0)
                eo_json_write(json, "[%s, %g, %g]", operation.name, d->delay_s / (double)d->count,
                              d->late_s / (double)d->count);
        }
        eo_json_write(json, "], 'delayed_collectives': %" PRIu64 ", 'early_collectives': %" PRIu64,
                      delays.kinds[EO_WAIT_ALL_GATHER].count + delays.kinds[EO_WAIT_REDUCE_SCATTER].count, delays.early_count);
    }
    free(delays.operations);
}

static void write_planned(struct eo_json *json, const eo_plan_summary *s)
{
    eo_json_write(json, "'categories': {");
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        if (s->category_bytes_at_peak[c])
            eo_json_write(json, "%s: %" PRIu64, eo_category_name((eo_category)c), s->category_bytes_at_peak[c]);
    eo_json_write(json, "}, 'planned_bytes': %" PRIu64 ", 'lower_bound_bytes': %" PRIu64, s->arena_bytes, s->lower_bound_bytes);
}

static uint64_t timeline_begin(const struct notes *notes)
{
    uint64_t begin_ns = UINT64_MAX;
    for (uint32_t r = 0; r < notes->job->shape.rank_count; r++)
        for (uint32_t i = 0; i < notes->ranks[r].record_count; i++)
            if (notes->ranks[r].records[i].ready_ns < begin_ns)
                begin_ns = notes->ranks[r].records[i].ready_ns;
    return begin_ns;
}

static double since(uint64_t begin_ns, uint64_t ns)
{
    return ns > begin_ns ? (double)(ns - begin_ns) * 1e-9 : 0;
}

static void write_timeline(struct eo_json *json, const struct notes *notes)
{
    const uint64_t begin_ns = timeline_begin(notes);
    eo_json_write(json, "'timeline': [");
    for (uint32_t r = 0; r < notes->job->shape.rank_count; r++) {
        eo_json_write(json, "[");
        for (uint32_t i = 0; i < notes->ranks[r].record_count; i++) {
            const eo_timeline_record *record = &notes->ranks[r].records[i];
            eo_json_write(json, "[%d, %d, %s, %g, %g, %" PRIu64 "]", (int)record->kind, (int)record->stream, record->name,
                          since(begin_ns, record->start_ns), since(begin_ns, record->end_ns), record->live_bytes);
        }
        eo_json_write(json, "]");
    }
    eo_json_write(json, "]");
}

static void write_run(struct eo_json *json, const void *user)
{
    const struct notes *notes = user;
    const struct tool_job *job = notes->job;
    eo_json_write(json, "{'mode': %s, 'weights_hash': %016" PRIx64 ", 'tokens_per_step': %" PRIu64 ", 'steps_s': [",
                  tool_memory_name(job->options->memory), notes->weights_hash, tool_step_inputs(job));
    for (uint64_t s = 1; s < job->options->steps; s++)
        eo_json_write(json, "%g", (double)notes->step_ns[s] * 1e-9);
    eo_json_write(json, "], 'host_s': [");
    for (uint64_t s = 1; s < job->options->steps; s++)
        eo_json_write(json, "%g", (double)notes->ranks[0].host_ns[s] * 1e-9);
    eo_json_write(json, "]");
    write_counts(json, notes);
    write_idle_times(json, notes);
    write_gpu(json, notes);
    write_planned(json, &job->summary);
    if (job->options->memory == EO_MEMORY_STATIC) {
        write_simulation(json, notes);
        write_delays(json, notes);
    }
    write_timeline(json, notes);
    eo_json_write(json, "}");
}

eo_status tool_measured_run(struct tool_job *job, struct tool_gpu_watch *watch, int out, struct tool_problem *problem)
{
    struct notes notes;
    eo_status status = notes_init(&notes, job);
    if (status < 0) {
        notes_fini(&notes);
        return tool_problem_set(problem, status, "no memory for the measurements of %llu steps",
                                (unsigned long long)job->options->steps);
    }
    job->hooks = (struct tool_job_hooks){.user = &notes, .step = on_step, .rank_step = on_rank_step, .end = on_end};
    notes.watch = watch;
    job->reports_late = tool_options_on_gpu(job->options);
    job->keeps_timelines = true;
    status = tool_job_run(job, problem);
    tool_gpu_watch_stop(watch);
    if (status >= 0) {
        char *text = tool_json_text(0, write_run, &notes);
        if (!text || dprintf(out, "%s", text) < 0)
            status = tool_problem_set(problem, EO_ERR_IO, "cannot pass on the figures of the run");
        free(text);
    }
    notes_fini(&notes);
    return status;
}
