/* SPDX-License-Identifier: MIT
 *
 * The ranks: one thread each, the same loop on all of them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "tools/run/checkpoint/checkpoint.h"
#include "tools/run/ranks/meeting.h"
#include "tools/run/step.h"
#include "tools/run/ranks/world.h"

/* As many as a host may be ahead of its GPU without waiting. */
enum { STEPS_LATE = 2 };

/* What the library has put in front already is not said twice. */
static const char *without(const char *text, const char *front)
{
    const size_t length = strlen(front);
    return strncmp(text, front, length) == 0 ? text + length : text;
}

/* The first cause is kept. That a rank is gone is only a consequence, where another says why. */
static void fail(struct tool_job_rank *rank, eo_status status, uint64_t step)
{
    struct tool_job *job = rank->job;
    char text[sizeof(rank->log_catch.text)], own[32], own_step[32];
    tool_log_catch_take(&rank->log_catch, text, sizeof(text));
    if (!text[0] && rank->runtime)
        snprintf(text, sizeof(text), "%s", eo_runtime_error(rank->runtime));
    if (!text[0])
        snprintf(text, sizeof(text), "%s", eo_status_text(status));
    snprintf(own, sizeof(own), "rank %u: ", rank->rank);
    snprintf(own_step, sizeof(own_step), "step %llu: ", (unsigned long long)step);
    const char *said = without(without(text, own), own_step);

    pthread_mutex_lock(&job->failure_mutex);
    if (job->failure == EO_OK || (job->failure == EO_ERR_COMM && status != EO_ERR_COMM)) {
        job->failure = status;
        if (step)
            tool_problem_set(&job->failure_text, status, "step %llu, rank %u: %s", (unsigned long long)step, rank->rank, said);
        else
            tool_problem_set(&job->failure_text, status, "rank %u: %s", rank->rank, said);
    }
    pthread_cond_broadcast(&job->sum_changed);
    pthread_mutex_unlock(&job->failure_mutex);
    tool_job_world_fail(job->together, atomic_load(&job->bad_input) ? EO_ERR_INVALID : status, job->failure_text.text);
    eo_world_abort(job->worlds[rank->rank - job->first_rank], text);
}

static eo_status sum_of_threads(struct tool_job *job, double *value)
{
    pthread_mutex_lock(&job->failure_mutex);
    const uint64_t turn = job->sum_turn;
    job->sum += *value;
    if (++job->sum_count == job->here_count) {
        job->sum_result = job->sum;
        job->sum = 0;
        job->sum_count = 0;
        job->sum_turn++;
        pthread_cond_broadcast(&job->sum_changed);
    }
    while (job->sum_turn == turn && job->failure == EO_OK)
        pthread_cond_wait(&job->sum_changed, &job->failure_mutex);
    const bool is_whole = job->sum_turn != turn;
    *value = job->sum_result; /* until all have taken it, for the next sum needs all */
    pthread_mutex_unlock(&job->failure_mutex);
    return is_whole ? EO_OK : EO_ERR_COMM;
}

eo_status tool_job_sum(struct tool_job_rank *rank, double *value)
{
    struct tool_job *job = rank->job;
    return job->together ? tool_job_world_sum(job->together, value) : sum_of_threads(job, value);
}

static void skip_traffic(uint64_t *first, uint64_t *last, uint64_t now)
{
    *first += now - *last;
    *last = now;
}

/* What was done since the last step is in no step's traffic. */
static void leave_out(struct tool_job_rank *rank)
{
    eo_runtime_stats now, *const first = &rank->first, *const last = &rank->last;
    eo_runtime_get_stats(rank->runtime, &now);
    skip_traffic(&first->collective_count, &last->collective_count, now.collective_count);
    skip_traffic(&first->collective_bytes, &last->collective_bytes, now.collective_bytes);
    skip_traffic(&first->allocator_calls, &last->allocator_calls, now.allocator_calls);
    skip_traffic(&first->allocated_bytes, &last->allocated_bytes, now.allocated_bytes);
    skip_traffic(&first->copied_bytes, &last->copied_bytes, now.copied_bytes);
    skip_traffic(&first->cast_bytes, &last->cast_bytes, now.cast_bytes);
    skip_traffic(&first->storage_bytes, &last->storage_bytes, now.storage_bytes);
}

static eo_status validate(struct tool_job_rank *rank, uint64_t step)
{
    struct tool_job *job = rank->job;
    const struct tool_job_hooks *hooks = &job->hooks;
    const eo_tokens tokens = {.tokens = rank->batch.tokens, .targets = rank->batch.targets, .positions = rank->batch.positions};
    const uint32_t sequences = job->shape.rank_count * job->shape.batch;
    const uint32_t batch_count = (tool_data_validation_count(&job->data, job->shape.seq) + sequences - 1) / sequences;
    const double divisor = tool_job_sums_losses(job) ? 1 : (double)job->shape.batch * job->shape.seq; /* of a batch's loss */
    double sums[2] = {0, 0}; /* of losses, and of targets */
    EO_TRY(tool_job_swap_average(rank));
    for (uint32_t i = 0; i < batch_count; i++) {
        double loss_of_batch = 0;
        tool_data_validation_batch(&job->data, &job->shape, i, rank->rank, &rank->batch);
        EO_TRY(tool_job_check_data(rank));
        EO_TRY(eo_transformer_evaluate(job->transformer, rank->runtime, rank->team, &tokens, &loss_of_batch));
        sums[0] += loss_of_batch * divisor;
        sums[1] += (double)tool_batch_counted(&rank->batch, &job->shape);
    }
    EO_TRY(eo_sum(rank->runtime, sums, 2));
    EO_TRY(tool_job_swap_average(rank));
    tool_job_step_interrupted(rank);
    leave_out(rank);
    const double loss = sums[0] / sums[1]; /* tool_data_check has seen that some count */
    tool_early_stop_see(&rank->early_stop, step, loss);
    if (rank->rank == 0 && hooks->validation)
        hooks->validation(hooks->user, step, loss);
    return EO_OK;
}

/* Whatever the driver counts on GPU 0, ours or not; 0: there is none. */
static uint64_t gpu_used(const struct tool_job *job)
{
    eo_device_facts facts;
    const eo_log silence = {0};
    const bool told = tool_options_on_gpu(job->options) && eo_device_ask(&facts, job->options->plan.device, 0, &silence) >= 0;
    return told ? facts.total_bytes - facts.free_bytes : 0;
}

/* Ranks of one host go around its devices. */
static uint32_t device_of(const struct tool_job_rank *rank)
{
    const struct tool_job *job = rank->job;
    return (job->together ? job->together->environment.local_rank : rank->rank) % job->device.device_count;
}

static bool is_on_gpu_0(const struct tool_job_rank *rank)
{
    return tool_options_on_gpu(rank->job->options) && device_of(rank) == 0;
}

/* While all ranks have what they need. */
static void watch_gpu(struct tool_job *job)
{
    const uint64_t used_bytes = gpu_used(job);
    if (used_bytes > job->gpu.used_bytes)
        job->gpu.used_bytes = used_bytes;
}

/* By a checkpoint or a validation. */
static bool is_followed(const struct tool_job *job, uint64_t step)
{
    const uint64_t save_every = job->checkpoints ? job->checkpoints->options->every : 0;
    return (save_every && step % save_every == 0) || (job->val_every && step % job->val_every == 0);
}

/* How many steps reports may be late. The first step's failures and figures are wanted at once; so are the numbers of steps
 * that are saved or validated, and what ranks say of a checkpoint under way. The same on all ranks. */
static uint64_t steps_late(const struct tool_job_rank *rank, uint64_t step)
{
    const struct tool_job *job = rank->job;
    const bool is_edge = step == job->first_step + 1 || step == job->options->steps;
    const bool has_timeline = !rank->graph.is_captured || job->options->graph_times;
    const bool is_told_at_once = is_edge || is_followed(job, step) || rank->is_saving || (job->keeps_timelines && has_timeline);
    return !job->reports_late || is_told_at_once ? 0 : STEPS_LATE;
}

static eo_status tell_steps(struct tool_job_rank *rank, uint64_t last, struct tool_job_step *result, bool *stop)
{
    const struct tool_job_hooks *hooks = &rank->job->hooks;
    bool has = true;
    while (has) {
        EO_TRY(tool_job_step_next(rank, last, result, stop, &has));
        if (has && rank->rank == 0 && hooks->step)
            hooks->step(hooks->user, result);
    }
    return EO_OK;
}

static eo_status run_steps(struct tool_job_rank *rank, uint64_t *step)
{
    struct tool_job *job = rank->job;
    const struct tool_job_hooks *hooks = &job->hooks;
    struct tool_job_step result = {0};
    bool stop = false;
    rank->told_step = *step;
    rank->is_apart = true;
    rank->early_stop = job->early_stop;
    if (tool_early_stop_lacks(&rank->early_stop, job->val_every, *step)) {
        EO_TRY(validate(rank, *step));
        rank->saved_step = UINT64_MAX; /* no checkpoint has this loss, also if no step follows */
    }
    while (!stop && *step < job->options->steps && !tool_early_stop_is_due(&rank->early_stop)) {
        const uint64_t index = (*step)++; /* from here on failures are this step's */
        const uint64_t late = steps_late(rank, *step);
        EO_TRY(tool_job_step_run(rank, index, late == 0));
        rank->is_apart = is_followed(job, *step) || (late == 0 && job->keeps_timelines);
        rank->step_count = *step - job->first_step;
        eo_runtime_get_stats(rank->runtime, &rank->last);
        if (rank->step_count == 1)
            rank->first = rank->last;
        if (rank->rank == 0 && (rank->step_count == 2 || *step == job->options->steps))
            watch_gpu(job);
        if (hooks->rank_step)
            hooks->rank_step(hooks->user, rank, *step);
        EO_TRY(tell_steps(rank, *step - late, &result, &stop));
        if (stop)
            EO_TRY(tell_steps(rank, *step, &result, &stop));
        rank->stopped = stop;
        const bool validates = job->val_every && *step % job->val_every == 0;
        const bool is_left = stop && rank->saver; /* who is told to stop may not have the time, and saves */
        if (validates && !is_left)                /* before a checkpoint: who goes on from it does not lack the loss */
            EO_TRY(validate(rank, *step));
        eo_flight_recorder_note(rank->recorder, "checkpoint");
        EO_TRY(tool_job_checkpoint_step(rank, *step, result.saved_sum));
        eo_flight_recorder_note(rank->recorder, NULL);
    }
    return tool_job_checkpoint_end(rank, *step);
}

/* Where all ranks have come: EO_ERR_COMM if one of them could not. Barriers need every rank, so that one comes here too. */
static eo_status meet(struct tool_job_rank *rank, eo_status own)
{
    struct tool_job *job = rank->job;
    double none = 0;
    if (own < 0)
        atomic_store(&job->broken, true);
    pthread_barrier_wait(&job->barrier);
    const bool is_broken = atomic_load(&job->broken);
    pthread_barrier_wait(&job->barrier); /* what breaks from here on is for the next meeting */
    return is_broken ? EO_ERR_COMM : tool_job_world_sum(job->together, &none);
}

static eo_status measure_together(struct tool_job_rank *rank, eo_status started)
{
    struct tool_job *job = rank->job;
    EO_TRY(meet(rank, started));
    if (job->options->peak_seconds > 0)
        tool_job_measure_peak(rank);
    pthread_barrier_wait(&job->barrier);
    if (rank->rank == job->first_rank)
        for (uint32_t r = 0; r < job->here_count; r++)
            job->peak_flops_per_s += job->ranks[r].peak_flops_per_s;
    return tool_job_world_sum(job->together, &job->peak_flops_per_s);
}

static eo_status start_tokens(struct tool_job_rank *rank)
{
    const uint64_t tokens = (uint64_t)rank->job->shape.batch * rank->job->shape.seq;
    struct tool_batch *b = &rank->batch;
    b->tokens = calloc(tokens, sizeof(*b->tokens));
    b->targets = calloc(tokens, sizeof(*b->targets));
    b->positions = rank->job->data.is_packed ? calloc(tokens, sizeof(*b->positions)) : NULL;
    return b->tokens && b->targets && (b->positions || !rank->job->data.is_packed) ? EO_OK : EO_ERR_NO_MEMORY;
}

static eo_status start_team(struct tool_job_rank *rank)
{
    const struct tool_options *o = rank->job->options;
    const eo_log log = tool_job_log(&rank->log_catch);
    return eo_team_create_on(&rank->team, eo_team_params(
        .device = o->plan.device, .thread_count = o->plan.threads, .device_index = device_of(rank),
        .stream = rank->runtime ? eo_runtime_stream(rank->runtime) : NULL, .plan_cache = o->plan_cache,
        .repeatable = o->repeatable, .log = &log));
}

/* A GPU's team is there after the runtime, and before the first step. */
static eo_status product_of_team(void *user, const eo_matrix_product *product)
{
    const struct tool_job_rank *rank = user;
    return eo_team_product(rank->team, product);
}

/* A folder or a disk that cannot hold what is offloaded is the caller's to mend. */
static eo_status start_runtime(struct tool_job_rank *rank)
{
    struct tool_job *job = rank->job;
    const struct tool_options *o = job->options;
    const eo_log log = tool_job_log(&rank->log_catch);
    const eo_status status = eo_runtime_create(&rank->runtime, eo_runtime_params(
        .plan = job->plan, .world = job->worlds[rank->rank - job->first_rank], .memory = o->memory,
        .product = product_of_team, .product_user = rank,
        .parallel = rank->team ? eo_team_parallel(rank->team) : (eo_parallel){0}, .place_threads = o->place_threads,
        .graph_times = o->graph_times, .recorder = rank->recorder,
        .offload_folder = o->offload_folder, .dynamic_implicit_prefetch = o->implicit_prefetch, .dynamic_reduce_inputs = o->reduce_inputs,
        .dynamic_offload = o->dynamic_offload && o->memory != EO_MEMORY_STATIC, .log = &log));
    if (tool_plan_settings_offload(&o->plan) && (status == EO_ERR_INVALID || status == EO_ERR_IO))
        atomic_store(&job->bad_input, true);
    return status;
}

/* A CPU's threads serve the runtime too; a GPU's team works on the runtime's stream. When a runtime is there, the plan's
 * memory of all ranks is, so that what the GPU loses then is for the team. */
static eo_status start_gpu(struct tool_job_rank *rank)
{
    struct tool_job *job = rank->job;
    EO_TRY(start_runtime(rank));
    pthread_mutex_lock(&job->team_mutex);
    const uint64_t before = is_on_gpu_0(rank) ? gpu_used(job) : 0;
    eo_status status = start_team(rank);
    if (status >= 0)
        status = eo_transformer_prepare(job->transformer, rank->runtime, rank->team);
    const uint64_t after = is_on_gpu_0(rank) ? gpu_used(job) : 0;
    if (is_on_gpu_0(rank)) {
        eo_runtime_stats stats;
        eo_runtime_get_stats(rank->runtime, &stats);
        job->gpu.team_bytes += after > before ? after - before : 0;
        job->gpu.planned_bytes += job->summary.arena_bytes - job->summary.space_bytes[EO_SPACE_HOST];
        if (tool_options_gpu_ranks(job->options, job->device.device_count) == 1) /* ranks that share a GPU see each other's */
            job->gpu.communicator_bytes = stats.outside_bytes;
    }
    pthread_mutex_unlock(&job->team_mutex);
    return status;
}

static eo_status load_files(struct tool_job_rank *rank)
{
    struct tool_problem problem;
    const eo_status status = tool_import_load(&rank->job->import, rank->runtime, &problem);
    if (status < 0) {
        const eo_log log = tool_job_log(&rank->log_catch);
        log.write(log.user, EO_LOG_ERROR, problem.text);
        if (status == EO_ERR_INVALID)
            atomic_store(&rank->job->bad_input, true);
    }
    return status;
}

static eo_status start_weights(struct tool_job_rank *rank)
{
    struct tool_job *job = rank->job;
    if (job->checkpoints && job->checkpoints->resume_path[0])
        return tool_job_checkpoint_load(rank);
    if (job->options->init_path) {
        EO_TRY(eo_transformer_initialise_adapters(job->transformer, rank->runtime, job->options->seed));
        return load_files(rank); /* those that they have */
    }
    return eo_transformer_initialise(job->transformer, rank->runtime, job->options->seed);
}

static eo_status begin(struct tool_job_rank *rank)
{
    struct tool_problem problem;
    const struct tool_job_hooks *hooks = &rank->job->hooks;
    const eo_status status = rank->rank == 0 && hooks->begin ? hooks->begin(hooks->user, rank, &problem) : EO_OK;
    if (status < 0) {
        const eo_log log = tool_job_log(&rank->log_catch);
        log.write(log.user, EO_LOG_ERROR, problem.text);
        atomic_store(&rank->job->bad_input, true);
    }
    return status;
}

static eo_status rank_life(struct tool_job_rank *rank, uint64_t *step)
{
    struct tool_job *job = rank->job;
    *step = job->first_step;
    EO_TRY(run_steps(rank, step));
    *step = 0; /* what fails now is no step's */
    return job->hooks.end ? job->hooks.end(job->hooks.user, rank) : EO_OK;
}

static eo_status start(struct tool_job_rank *rank)
{
    EO_TRY(tool_job_recorder_start(rank));
    EO_TRY(start_tokens(rank));
    return tool_options_on_gpu(rank->job->options) ? start_gpu(rank) : start_team(rank);
}

/* Who fails says so, and does not let the others wait for it. */
static eo_status load(struct tool_job_rank *rank)
{
    struct tool_job_meeting meeting;
    eo_status status = rank->runtime ? EO_OK : start_runtime(rank);
    if (status < 0) {
        fail(rank, status, 0);
        return status;
    }
    tool_job_meeting_begin(&meeting, rank->job->together);
    status = start_weights(rank);
    if (status < 0)
        fail(rank, status, 0);
    tool_job_meeting_end(&meeting);
    return status;
}

/* A long log takes its time to be continued: the first collective would be too late for the others. */
static eo_status open_outputs(struct tool_job_rank *rank)
{
    struct tool_job_meeting meeting;
    eo_status status = tool_job_checkpoint_start(rank);
    tool_job_meeting_begin(&meeting, rank->job->together);
    if (status >= 0)
        status = begin(rank);
    if (status < 0)
        fail(rank, status, 0);
    tool_job_meeting_end(&meeting);
    return status;
}

/* Who fails says so before it meets the others: they may wait for it elsewhere, and not come. Nothing is written until all
 * have their weights. */
static void run_rank(struct tool_job_rank *rank)
{
    uint64_t step = 0;
    eo_status own = start(rank);
    if (own < 0)
        fail(rank, own, 0);
    eo_status status = measure_together(rank, own);
    if (status >= 0) {
        own = load(rank);
        status = meet(rank, own);
    }
    if (status >= 0)
        status = meet(rank, open_outputs(rank));
    if (status >= 0)
        status = rank_life(rank, &step);
    if (status < 0)
        fail(rank, status, step);
}

static void *rank_main(void *arg)
{
    struct tool_job_rank *rank = arg;
    char name[16]; /* for debuggers and top -H */
    snprintf(name, sizeof(name), "eo-rank-%u", rank->rank);
    pthread_setname_np(pthread_self(), name);
    tool_log_catch_enter(&rank->log_catch);
    run_rank(rank);
    tool_job_checkpoint_stop(rank);
    if (tool_options_on_gpu(rank->job->options)) /* its stream is the runtime's */
        eo_team_destroy(&rank->team);
    eo_runtime_destroy(&rank->runtime);
    eo_team_destroy(&rank->team);
    tool_job_recorder_stop(rank);
    free(rank->batch.tokens);
    free(rank->batch.targets);
    free(rank->batch.positions);
    return NULL;
}

static eo_status run_ranks(struct tool_job *job, struct tool_problem *problem)
{
    const uint32_t rank_count = job->here_count;
    uint32_t started = 0;
    int error = 0;
    pthread_barrier_init(&job->barrier, NULL, rank_count);
    pthread_mutex_init(&job->team_mutex, NULL);
    pthread_cond_init(&job->sum_changed, NULL);
    job->gpu.start_bytes = job->device.total_bytes - job->device.free_bytes;
    while (started < rank_count) {
        struct tool_job_rank *rank = &job->ranks[started];
        *rank = (struct tool_job_rank){.job = job, .rank = job->first_rank + started, .graph.wanted = job->options->plan.graph};
        tool_log_catch_init(&rank->log_catch);
        rank->log_catch.tells = job->tells && started == 0;
        error = pthread_create(&rank->thread, NULL, rank_main, rank);
        if (error != 0)
            break;
        started++;
    }
    if (started < rank_count) {
        /* The others stand at the barrier and could not be told: there is nothing to save yet. */
        fprintf(stderr, "%s: cannot start the thread of rank %u: %s; %s%s\n", program_invocation_short_name, started,
                strerror(error), error == EAGAIN ? "lower --ranks, or " : "", eo_thread_remedy(error));
        exit(TOOL_EXIT_FAILED);
    }
    for (uint32_t r = 0; r < rank_count; r++)
        pthread_join(job->ranks[r].thread, NULL);
    pthread_barrier_destroy(&job->barrier);
    pthread_mutex_destroy(&job->team_mutex);
    pthread_cond_destroy(&job->sum_changed);
    if (job->failure < 0)
        *problem = job->failure_text;
    return job->failure;
}

eo_status tool_job_run(struct tool_job *job, struct tool_problem *problem)
{
    const struct tool_options *o = job->options;
    struct tool_log_catch log_catch;
    tool_log_catch_init(&log_catch);
    const eo_log log = tool_job_log(NULL); /* the world is all ranks': what it says belongs to the one that calls */
    job->here_count = job->together ? 1 : job->shape.rank_count;
    job->first_rank = job->together ? job->together->environment.rank : 0;
    job->told_count = job->here_count;
    const uint32_t told = job->first_rank == 0 ? job->shape.rank_count : 1; /* rank 0 learns the others' figures */
    job->ranks = calloc(told, sizeof(*job->ranks));
    if (!job->ranks)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "no memory for %u ranks", told);
    tool_log_catch_enter(&log_catch);
    eo_status status =
        job->together ? tool_job_world_create(job->together, job, &log)
                      : eo_world_create_local(
                            job->worlds, eo_world_params(.rank_count = job->shape.rank_count, .device = o->plan.device,
                                                         .fabric_gigabytes_per_s = o->fabric_gigabytes_per_s,
                                                         .fabric_latency_us = o->fabric_latency_us,
                                                         .timeout_ms = (uint32_t)(job->rank_timeout_s * 1000), .log = &log));
    tool_log_catch_enter(NULL);
    if (status < 0) {
        tool_problem_set(problem, status, "cannot connect the ranks: %s",
                         log_catch.text[0] ? log_catch.text : eo_status_text(status));
        if (job->together && (status == EO_ERR_INVALID || status == EO_ERR_UNSUPPORTED))
            atomic_store(&job->bad_input, true); /* who was started where, and with what */
        tool_job_world_fail(job->together, status, problem->text);
        return status;
    }
    status = run_ranks(job, problem);
    if (job->together)
        tool_job_world_destroy(job->together, job);
    for (uint32_t r = 0; r < job->here_count; r++)
        eo_world_destroy(&job->worlds[r]);
    return status;
}
