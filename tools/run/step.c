/* SPDX-License-Identifier: MIT */
#include "tools/run/step.h"

#include <errno.h>
#include <stdio.h>

#include "tools/shared/mapped_file.h"

/* The trainer's scalars of a step, summed over the ranks. */
enum { VALUE_LOSS, VALUE_STOP, VALUE_SAVED };

eo_status tool_job_check_data(struct tool_job_rank *rank)
{
    struct tool_problem problem;
    const eo_log log = tool_job_log(&rank->log_catch);
    const eo_status status = tool_map_check(&problem);
    if (status < 0)
        log.write(log.user, EO_LOG_ERROR, problem.text);
    return status;
}

static eo_status next_batch(struct tool_job_rank *rank, uint64_t step, uint32_t micro_batch, eo_tokens *out)
{
    struct tool_job *job = rank->job;
    const struct tool_batch *batch = &rank->batch;
    tool_data_batch(&job->data, &job->shape, job->options->seed, step, micro_batch, rank->rank, batch);
    rank->counted = (micro_batch ? rank->counted : 0) + tool_batch_counted(batch, &job->shape);
    *out = (eo_tokens){
        .tokens = batch->tokens,
        .targets = batch->targets,
        .positions = batch->positions,
        .random = {.seed = job->options->seed, .step = step,
                   .sample = ((uint64_t)micro_batch * job->shape.rank_count + rank->rank) * job->shape.batch},
    };
    return tool_job_check_data(rank);
}

/* On the CPU a loss is there when its micro-batch is, and ends the run if it is not finite; on a GPU nobody waits for it before
 * the step's end. */
static bool adds_losses_on_device(const struct tool_job *job)
{
    return tool_options_on_gpu(job->options) || job->options->skips;
}

static eo_status run_micro_batches(struct tool_job_rank *rank, uint64_t step, double *loss)
{
    struct tool_job *job = rank->job;
    double sum = 0;
    for (uint32_t m = 0; m < job->shape.micro_batches; m++) {
        eo_tokens tokens;
        EO_TRY(next_batch(rank, step, m, &tokens));
        double mean = 0;
        EO_TRY(eo_transformer_micro_batch(job->transformer, rank->runtime, rank->team, &tokens,
                                          adds_losses_on_device(job) ? NULL : &mean));
        sum += mean;
    }
    *loss = tool_job_sums_losses(job) ? sum : sum / job->shape.micro_batches;
    return EO_OK;
}

static eo_step_params step_params(struct tool_job_rank *rank, uint64_t step, double loss)
{
    const struct tool_job *job = rank->job;
    const struct tool_options *o = job->options;
    return (eo_step_params){
        .learning_rate = (float)tool_options_learning_rate(o, step),
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .eps = (float)o->eps,
        .weight_decay = (float)o->weight_decay,
        .exact = true,
        .ema_decay = (float)o->plan.ema_decay,
        .momentum = o->plan.optimizer == EO_OPTIMIZER_MUON ? (float)o->momentum : 0,
        .clip = (float)o->clip,
        .on_not_finite = o->skips ? EO_SKIP : EO_STOP,
        .weight = tool_job_sums_losses(job) ? (double)rank->counted : 0,
        .values = {[VALUE_LOSS] = loss, [VALUE_STOP] = job->stop && *job->stop, [VALUE_SAVED] = eo_saver_value(rank->saver)},
    };
}

static eo_status ordinary_step(struct tool_job_rank *rank, uint64_t step, eo_step_report *report)
{
    double loss;
    EO_TRY(eo_step_begin(rank->runtime));
    EO_TRY(run_micro_batches(rank, step, &loss));
    const eo_step_params params = step_params(rank, step, loss);
    return eo_step_end(rank->runtime, &params, report);
}

/* ---- graphs ---- */

/* What a recorded step reads must be on the device before: the host is not asked when it is replayed. */
static eo_status load_batches(struct tool_job_rank *rank, uint64_t step)
{
    for (uint32_t m = 0; m < rank->job->shape.micro_batches; m++) {
        eo_tokens tokens;
        EO_TRY(next_batch(rank, step, m, &tokens));
        tokens.slot = m;
        EO_TRY(eo_transformer_load(rank->job->transformer, rank->runtime, &tokens));
    }
    return EO_OK;
}

static eo_status recorded_step(struct tool_job_rank *rank, const eo_step_params *params, eo_step_report *report)
{
    const struct tool_job *job = rank->job;
    EO_TRY(eo_step_capture(rank->runtime));
    EO_TRY(eo_step_begin(rank->runtime));
    for (uint32_t m = 0; m < job->shape.micro_batches; m++)
        EO_TRY(eo_transformer_micro_batch(job->transformer, rank->runtime, rank->team, &(eo_tokens){.slot = m},
                                          NULL));
    return eo_step_end(rank->runtime, params, report);
}

static eo_status graph_step(struct tool_job_rank *rank, uint64_t step, eo_step_report *report)
{
    EO_TRY(load_batches(rank, step));
    const eo_step_params params = step_params(rank, step, 0);
    if (rank->graph.is_captured)
        return eo_step_replay(rank->runtime, &params, report);
    EO_TRY(recorded_step(rank, &params, report));
    rank->graph.is_captured = true;
    return EO_OK;
}

/* Without graphs the same step runs in the ordinary way; all ranks learn it together. */
static eo_status fall_back(struct tool_job_rank *rank)
{
    char why[sizeof(rank->log_catch.text)];
    rank->graph.wanted = false;
    tool_log_catch_take(&rank->log_catch, why, sizeof(why));
    if (rank->rank == 0)
        fprintf(stderr, "%s: --graph on: steps cannot run as a graph here, but run one operation after the other: %s\n",
                program_invocation_short_name, why[0] ? why : eo_runtime_error(rank->runtime));
    return EO_OK;
}

static eo_status run_step(struct tool_job_rank *rank, uint64_t step, eo_step_report *report)
{
    if (rank->graph.wanted && rank->graph.is_steady) {
        const eo_status status = graph_step(rank, step, report);
        if (status != EO_ERR_UNSUPPORTED)
            return status;
        EO_TRY(fall_back(rank));
    }
    EO_TRY(ordinary_step(rank, step, report));
    rank->graph.is_steady = true;
    return EO_OK;
}

eo_status tool_job_step_run(struct tool_job_rank *rank, uint64_t step, bool wants_report)
{
    const struct tool_job *job = rank->job;
    const uint64_t begin_ns = tool_now_ns();
    eo_step_report report;
    eo_runtime_stats before, after;
    eo_runtime_get_stats(rank->runtime, &before);
    EO_TRY(run_step(rank, step, wants_report ? &report : NULL));
    const uint64_t step_ns = tool_now_ns() - begin_ns;
    eo_runtime_get_stats(rank->runtime, &after);
    const uint64_t waited_ns = after.host_wait_ns - before.host_wait_ns;
    rank->host_ns = tool_options_on_gpu(job->options) && step_ns > waited_ns ? step_ns - waited_ns : 0;
    rank->issued[(step + 1) % TOOL_JOB_ISSUED_MAX] = (struct tool_job_issued){begin_ns, step_ns, rank->host_ns, rank->is_apart};
    return EO_OK;
}

/* The host is ahead of a GPU, so its times are none of the GPU's steps. A step that does not follow the one before at once has
 * begun when the host did: then the GPU had nothing to do. */
static uint64_t step_ns_of(const struct tool_job_rank *rank, const eo_step_report *report)
{
    const struct tool_job_issued *issued = &rank->issued[report->step % TOOL_JOB_ISSUED_MAX];
    const uint64_t from_ns = issued->is_apart ? issued->begin_ns : rank->told_done_ns;
    return tool_options_on_gpu(rank->job->options) && report->done_ns > from_ns ? report->done_ns - from_ns : issued->step_ns;
}

/* Whether to go on is decided by all ranks together: a wish to stop travels with the step's own numbers. */
eo_status tool_job_step_next(struct tool_job_rank *rank, uint64_t last, struct tool_job_step *out, bool *stop, bool *has)
{
    const struct tool_job *job = rank->job;
    const uint64_t step = rank->told_step + 1;
    eo_step_report report;
    *has = step <= last;
    if (!*has)
        return EO_OK;
    EO_TRY(eo_runtime_get_report(rank->runtime, step, &report));
    rank->told_step = step;
    const double sequences = (double)job->shape.rank_count * (adds_losses_on_device(job) ? job->shape.micro_batches : 1);
    const double loss_count = !tool_job_sums_losses(job) ? sequences : report.weight > 0 ? report.weight : 1;
    *out = (struct tool_job_step){
        .step = step,
        .loss = report.values[VALUE_LOSS] / loss_count,
        .gradient_norm = report.gradient_norm,
        .layer_norms = report.layer_norms,
        .layer_count = report.layer_count,
        .skipped = report.skipped,
        .skipped_count = report.skipped_count,
        .learning_rate = tool_options_learning_rate(job->options, step - 1),
        .step_ns = step_ns_of(rank, &report),
        .host_ns = rank->issued[step % TOOL_JOB_ISSUED_MAX].host_ns,
        .saved_sum = report.values[VALUE_SAVED],
    };
    rank->told_done_ns = report.done_ns;
    rank->told_ns += step > job->first_step + 1 ? out->step_ns : 0;
    *stop = *stop || report.values[VALUE_STOP] > 0;
    return EO_OK;
}

void tool_job_step_interrupted(struct tool_job_rank *rank)
{
    rank->graph.is_steady = false;
}

eo_status tool_job_swap_average(struct tool_job_rank *rank)
{
    if (!(rank->job->options->plan.ema_decay > 0))
        return EO_OK;
    tool_job_step_interrupted(rank);
    return eo_weights_swap_ema(rank->runtime);
}
