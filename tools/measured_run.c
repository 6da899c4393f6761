/* SPDX-License-Identifier: MIT */
#include "tools/measured_run.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memory_check.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/simulate_ranks.h"
#include "tools/start_delay.h"
#include "tools/step_log.h"
#include "tools/weights_hash.h"

/* Passes of blocks, which are alike: how long they took while a collective ran nearby, and while none did. */
struct pass_times {
    double with_ns, alone_ns;
    uint64_t with_count, alone_count;
};
enum { PASS_KINDS = EO_OP_BACKWARD + 1 };

/* What one rank keeps, all of it made before the first step. */
struct rank_notes {
    uint64_t *step_ns, *host_ns; /* by step, from 0 */
    eo_timeline_record *records;
    char (*names)[EO_NAME_MAX * 2]; /* of the last timeline's records, which outlive the runtime */
    uint32_t record_count, record_capacity;
    struct eo_step_span *spans; /* by step, then operation of the steady list (static mode) */
    uint64_t *durations_ns; /* likewise */
    uint64_t *complete;     /* by step: whether all operations were there */
    uint64_t previous_ns;   /* stats.step_ns one step ago */
    double collective_ns[EO_WAIT_COUNT]; /* how long collectives took, added up over the steps with a timeline */
    double exposed_ns[EO_WAIT_COUNT];    /* ... while this rank computed nothing */
    struct pass_times passes[PASS_KINDS];
    uint64_t timeline_count;
};

struct notes {
    struct eo_job *job;
    struct eo_gpu_watch *watch;
    uint32_t operation_count;
    struct rank_notes *ranks;
    uint64_t faults_first, faults_last, weights_hash;
};

static void notes_fini(struct notes *notes)
{
    for (uint32_t r = 0; notes->ranks && r < notes->job->shape.rank_count; r++) {
        struct rank_notes *rank = &notes->ranks[r];
        free(rank->step_ns);
        free(rank->host_ns);
        free(rank->records);
        free(rank->names);
        free(rank->spans);
        free(rank->durations_ns);
        free(rank->complete);
    }
    free(notes->ranks);
}

/* Touched here, so that the pages do not count as the steps' own. */
static void *touched(uint64_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (memory)
        memset(memory, 1, count * bytes);
    return memory;
}

static eo_status notes_init(struct notes *notes, struct eo_job *job)
{
    const uint64_t steps = job->options->steps;
    *notes = (struct notes){.job = job, .operation_count = eo_plan_operation_count(job->plan, EO_LIST_STEADY)};
    notes->ranks = calloc(job->shape.rank_count, sizeof(*notes->ranks));
    for (uint32_t r = 0; notes->ranks && r < job->shape.rank_count; r++) {
        struct rank_notes *rank = &notes->ranks[r];
        rank->record_capacity = 4 * notes->operation_count + 64; /* the dynamic mode has other operations */
        rank->step_ns = touched(steps, sizeof(*rank->step_ns));
        rank->host_ns = touched(steps, sizeof(*rank->host_ns));
        rank->records = touched(rank->record_capacity, sizeof(*rank->records));
        rank->durations_ns = touched(steps * notes->operation_count, sizeof(*rank->durations_ns));
        rank->spans = touched(steps * notes->operation_count, sizeof(*rank->spans));
        rank->complete = calloc(steps, sizeof(*rank->complete));
        if (!rank->step_ns || !rank->host_ns || !rank->records || !rank->durations_ns || !rank->spans ||
            !rank->complete)
            return EO_ERR_NO_MEMORY;
    }
    return notes->ranks ? EO_OK : EO_ERR_NO_MEMORY;
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
        if (eo_collective_of(record->kind) >= 0 && record->stream != EO_STREAM_COMPUTE && end > begin)
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
static void keep_timeline(struct notes *notes, struct rank_notes *rank, const struct eo_job_rank *job_rank,
                          uint64_t step)
{
    rank->record_count = eo_runtime_timeline(job_rank->runtime, rank->records, rank->record_capacity);
    uint64_t *durations_ns = rank->durations_ns + (step - 2) * notes->operation_count;
    struct eo_step_span *spans = rank->spans + (step - 2) * notes->operation_count;
    uint32_t found = 0;
    for (uint32_t i = 0; i < rank->record_count; i++) {
        const eo_timeline_record *record = &rank->records[i];
        const uint64_t duration_ns = record->end_ns > record->start_ns ? record->end_ns - record->start_ns : 0;
        const int collective = eo_collective_of(record->kind);
        keep_pass(rank, record, duration_ns);
        if (collective >= 0 && duration_ns) {
            rank->collective_ns[collective] += (double)duration_ns;
            rank->exposed_ns[collective] += (double)exposed_ns(rank, record);
        }
        if (record->operation < notes->operation_count) {
            durations_ns[record->operation] = duration_ns;
            spans[record->operation] = (struct eo_step_span){record->ready_ns, record->start_ns, record->end_ns};
            found++;
        }
    }
    rank->timeline_count++;
    rank->complete[step - 2] = found == notes->operation_count;
}

static void on_rank_step(void *user, struct eo_job_rank *job_rank, uint64_t step)
{
    struct notes *notes = user;
    struct rank_notes *rank = &notes->ranks[job_rank->rank];
    rank->step_ns[step - 1] = job_rank->last.step_ns - rank->previous_ns;
    rank->previous_ns = job_rank->last.step_ns;
    rank->host_ns[step - 1] = job_rank->host_ns;
    /* Step 1 runs the first-step list; a graph's times are known where they were asked for. */
    if (step >= 3 && (!job_rank->graph.is_captured || job_rank->job->options->graph_times))
        keep_timeline(notes, rank, job_rank, step);
    if (job_rank->rank == 0) {
        notes->faults_last = eo_process_fault_count();
        if (step == 1) {
            notes->faults_first = notes->faults_last;
            eo_gpu_watch_from_now(notes->watch);
        }
    }
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

static eo_status on_end(void *user, struct eo_job_rank *rank)
{
    struct notes *notes = user;
    uint64_t hash;
    TOOLS_TRY(keep_names(&notes->ranks[rank->rank]));
    TOOLS_TRY(eo_weights_hash(rank->runtime, &hash));
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
    const uint64_t *durations_ns[EO_RUN_RANKS_MAX];
    uint64_t count = 0;
    for (uint64_t s = 1; simulated && measured && s < steps; s++) {
        bool complete = true;
        uint64_t ns;
        for (uint32_t r = 0; r < rank_count; r++) {
            durations_ns[r] = notes->ranks[r].durations_ns + s * notes->operation_count;
            complete = complete && notes->ranks[r].complete[s];
        }
        if (complete && eo_simulate_ranks(notes->job->plan, rank_count, durations_ns, 3, &ns) >= 0) {
            simulated[count] = (double)ns * 1e-9;
            measured[count++] = (double)notes->ranks[0].step_ns[s] * 1e-9;
        }
    }
    *simulated_s = simulated ? eo_median(simulated, count) : 0;
    *measured_s = measured ? eo_median(measured, count) : 0;
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
        medians_ns[o] = (uint64_t)eo_median(values, count);
    }
    if (count == 0 || eo_plan_simulate(notes->job->plan, EO_LIST_STEADY, medians_ns, 3, &ns) < 0)
        ns = 0;
    free(values);
    free(medians_ns);
    return (double)ns * 1e-9;
}

static void add_simulation(const struct notes *notes, json_t *out)
{
    double simulated_s, measured_s, medians_s = 0;
    simulate_steps(notes, &simulated_s, &measured_s);
    for (uint32_t r = 0; r < notes->job->shape.rank_count; r++) { /* the others wait for the slowest */
        const double medians = simulate_medians(notes, &notes->ranks[r]);
        medians_s = medians > medians_s ? medians : medians_s;
    }
    json_object_set_new(out, "simulated_s", json_real(simulated_s));
    json_object_set_new(out, "simulated_medians_s", json_real(medians_s));
    json_object_set_new(out, "simulated_measured_s", json_real(measured_s));
}

static void add_counts(const struct notes *notes, json_t *out)
{
    const struct eo_job *job = notes->job;
    uint64_t calls = 0, allocated = 0, copied = 0, cast = 0, arena = 0, live = 0, reserved = 0, steps = 1;
#define KEEP_LARGER(into, value) into = (value) > into ? (value) : into
    for (uint32_t r = 0; r < job->shape.rank_count; r++) {
        const eo_runtime_stats *first = &job->ranks[r].first, *last = &job->ranks[r].last;
        steps = job->ranks[r].step_count > 1 ? job->ranks[r].step_count - 1 : 1;
        KEEP_LARGER(calls, last->allocator_calls - first->allocator_calls);
        KEEP_LARGER(allocated, last->allocated_bytes - first->allocated_bytes);
        KEEP_LARGER(copied, last->copied_bytes - first->copied_bytes);
        KEEP_LARGER(cast, last->cast_bytes - first->cast_bytes);
        KEEP_LARGER(arena, last->arena_bytes);
        KEEP_LARGER(live, last->live_peak_bytes);
        KEEP_LARGER(reserved, last->reserved_peak_bytes);
    }
#undef KEEP_LARGER
    const double per_step = 1.0 / (double)steps;
    json_object_set_new(out, "allocator_calls", json_real((double)calls * per_step));
    json_object_set_new(out, "allocated_bytes", json_real((double)allocated * per_step));
    json_object_set_new(out, "copied_bytes", json_real((double)copied * per_step));
    json_object_set_new(out, "cast_bytes", json_real((double)cast * per_step));
    json_object_set_new(out, "page_faults",
                        json_real((double)(notes->faults_last - notes->faults_first) * per_step));
    json_object_set_new(out, "arena_bytes", json_integer((json_int_t)arena));
    json_object_set_new(out, "live_peak_bytes", json_integer((json_int_t)live));
    json_object_set_new(out, "reserved_peak_bytes", json_integer((json_int_t)(reserved > arena ? reserved : arena)));
    json_object_set_new(out, "resident_peak_bytes", json_integer((json_int_t)eo_process_resident_peak()));
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

static void add_waits(const struct notes *notes, json_t *out)
{
    static const char *const names[EO_WAIT_COUNT] = {"all_gather", "reduce_scatter", "norm"};
    const struct eo_job *job = notes->job;
    json_t *waits = json_object(), *collectives = json_object(), *exposed = json_object();
    for (int w = 0; w < EO_WAIT_COUNT; w++) {
        double wait_ns = 0, collective_ns = 0, open_ns = 0;
        for (uint32_t r = 0; r < job->shape.rank_count; r++) {
            const struct eo_job_rank *rank = &job->ranks[r];
            const struct rank_notes *kept = &notes->ranks[r];
            if (rank->step_count > 1)
                wait_ns += (double)(rank->last.wait_ns[w] - rank->first.wait_ns[w]) / (double)(rank->step_count - 1);
            if (kept->timeline_count) {
                collective_ns += kept->collective_ns[w] / (double)kept->timeline_count;
                open_ns += kept->exposed_ns[w] / (double)kept->timeline_count;
            }
        }
        json_object_set_new(waits, names[w], json_real(wait_ns * 1e-9 / job->shape.rank_count));
        json_object_set_new(collectives, names[w], json_real(collective_ns * 1e-9 / job->shape.rank_count));
        json_object_set_new(exposed, names[w], json_real(open_ns * 1e-9 / job->shape.rank_count));
    }
    json_object_set_new(out, "wait_s", waits);
    json_object_set_new(out, "collective_s", collectives);
    json_object_set_new(out, "exposed_s", exposed);
    json_object_set_new(out, "pass_slowdown", json_real(slowdown(notes)));
    json_object_set_new(out, "timeline_steps", json_integer((json_int_t)notes->ranks[0].timeline_count));
}

static void add_gpu(const struct notes *notes, json_t *out)
{
    const uint64_t steps = notes->job->ranks[0].step_count;
    const double per_step = steps > 1 ? 1.0 / (double)(steps - 1) : 0;
    if (!notes->watch->profile)
        return;
    const struct eo_gpu_sums sums = eo_gpu_watch_sums(notes->watch);
    const struct { const char *name; double value; } members[] = {
        {"kernels", (double)sums.count[EO_GPU_KERNEL]}, {"copies", (double)sums.count[EO_GPU_COPY]},
        {"peer_copies", (double)sums.count[EO_GPU_PEER_COPY]}, {"fills", (double)sums.count[EO_GPU_FILL]},
        {"kernel_s", sums.seconds[EO_GPU_KERNEL]},
        {"copy_s", sums.seconds[EO_GPU_COPY] + sums.seconds[EO_GPU_PEER_COPY]},
    };
    json_t *gpu = json_object();
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
        json_object_set_new(gpu, members[i].name, json_real(members[i].value * per_step));
    json_object_set_new(out, "gpu", gpu);
}

/* Of the static mode: what is waited for stands in the plan. Clocks of GPUs are compared to some microseconds. */
static void add_delays(const struct notes *notes, json_t *out)
{
    static const char *const names[EO_WAIT_COUNT] = {"all_gather", "reduce_scatter", "norm"};
    const struct eo_step_span *spans[EO_RUN_RANKS_MAX];
    const uint64_t *complete[EO_RUN_RANKS_MAX];
    const uint32_t rank_count = notes->job->shape.rank_count;
    struct eo_start_delays delays;
    for (uint32_t r = 0; r < rank_count; r++) {
        spans[r] = notes->ranks[r].spans;
        complete[r] = notes->ranks[r].complete;
    }
    const uint64_t slack_ns = eo_options_on_gpu(notes->job->options) ? 20000 : 0;
    if (eo_start_delays(notes->job->plan, rank_count, notes->job->options->steps, spans, complete, slack_ns, &delays) >= 0) {
        json_t *mean = json_object(), *late = json_object(), *each = json_array();
        for (int w = 0; w < EO_WAIT_COUNT; w++) {
            const double count = (double)delays.kinds[w].count;
            json_object_set_new(mean, names[w], json_real(count > 0 ? delays.kinds[w].delay_s / count : 0));
            json_object_set_new(late, names[w], json_real(count > 0 ? delays.kinds[w].late_s / count : 0));
        }
        for (uint32_t i = 0; i < notes->operation_count; i++) {
            const struct eo_start_delay *d = &delays.operations[i];
            eo_plan_operation operation;
            if (d->count && eo_plan_get_operation(notes->job->plan, EO_LIST_STEADY, i, &operation) >= 0)
                json_array_append_new(each, json_pack("[s, f, f]", operation.name, d->delay_s / (double)d->count,
                                                      d->late_s / (double)d->count));
        }
        json_object_set_new(out, "start_delay_s", mean);
        json_object_set_new(out, "late_ranks_s", late);
        json_object_set_new(out, "start_delays", each);
        json_object_set_new(out, "delayed_collectives", json_integer((json_int_t)(delays.kinds[EO_WAIT_ALL_GATHER].count +
                                                                                  delays.kinds[EO_WAIT_REDUCE_SCATTER].count)));
        json_object_set_new(out, "early_collectives", json_integer((json_int_t)delays.early_count));
    }
    free(delays.operations);
}

static void add_categories(const struct eo_job *job, json_t *out)
{
    json_t *categories = json_object();
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        if (job->summary.category_bytes_at_peak[c])
            json_object_set_new(categories, eo_category_name((eo_category)c),
                                json_integer((json_int_t)job->summary.category_bytes_at_peak[c]));
    json_object_set_new(out, "categories", categories);
    json_object_set_new(out, "planned_bytes", json_integer((json_int_t)job->summary.arena_bytes));
    json_object_set_new(out, "lower_bound_bytes", json_integer((json_int_t)job->summary.lower_bound_bytes));
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

static void add_timeline(const struct notes *notes, json_t *out)
{
    const uint64_t begin_ns = timeline_begin(notes);
    json_t *ranks = json_array();
    for (uint32_t r = 0; r < notes->job->shape.rank_count; r++) {
        json_t *records = json_array();
        for (uint32_t i = 0; i < notes->ranks[r].record_count; i++) {
            const eo_timeline_record *record = &notes->ranks[r].records[i];
            json_array_append_new(records, json_pack("[i, i, s, f, f, I]", (int)record->kind, (int)record->stream,
                record->name, since(begin_ns, record->start_ns),
                since(begin_ns, record->end_ns), (json_int_t)record->live_bytes));
        }
        json_array_append_new(ranks, records);
    }
    json_object_set_new(out, "timeline", ranks);
}

static json_t *describe_run(const struct notes *notes)
{
    const struct eo_job *job = notes->job;
    char hash[32];
    snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)notes->weights_hash);
    json_t *steps = json_array(), *hosts = json_array();
    for (uint64_t s = 1; s < job->options->steps; s++)
        json_array_append_new(steps, json_real((double)notes->ranks[0].step_ns[s] * 1e-9));
    for (uint64_t s = 1; s < job->options->steps; s++)
        json_array_append_new(hosts, json_real((double)notes->ranks[0].host_ns[s] * 1e-9));
    json_t *out = json_pack("{s:s, s:s, s:I, s:o, s:o}", "mode", eo_memory_name(job->options->memory), "weights_hash", hash,
                            "tokens_per_step", (json_int_t)eo_step_tokens(job), "steps_s", steps, "host_s",
                            hosts);
    add_counts(notes, out);
    add_waits(notes, out);
    add_gpu(notes, out);
    add_categories(job, out);
    if (job->options->memory == EO_MEMORY_STATIC) {
        add_simulation(notes, out);
        add_delays(notes, out);
    }
    add_timeline(notes, out);
    return out;
}

eo_status eo_measured_run(struct eo_job *job, struct eo_gpu_watch *watch, int out, struct eo_problem *problem)
{
    struct notes notes;
    eo_status status = notes_init(&notes, job);
    if (status < 0) {
        notes_fini(&notes);
        return eo_problem_set(problem, status, "no memory for what %llu steps are measured in",
                              (unsigned long long)job->options->steps);
    }
    job->hooks = (struct eo_job_hooks){.user = &notes, .rank_step = on_rank_step, .end = on_end};
    notes.watch = watch;
    status = eo_job_run(job, problem);
    eo_gpu_watch_stop(watch);
    if (status >= 0) {
        json_t *run = describe_run(&notes);
        if (json_dumpfd(run, out, JSON_COMPACT) != 0)
            status = eo_problem_set(problem, EO_ERR_IO, "the figures of the run cannot be handed over");
        json_decref(run);
    }
    notes_fini(&notes);
    return status;
}
