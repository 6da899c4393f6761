/* SPDX-License-Identifier: MIT */
#include "tools/run/checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run/step.h"
#include "tools/shared/overwrite.h"
#include "tools/shared/told.h"

/* -- before the ranks start ----------------------------------------------------------------------------------------*/

/* A run that goes on from none of a folder's checkpoints keeps away from them: it would save beside them, --keep would take
 * the highest steps for its own, and a later --resume whichever is newest. Started again it finds those of its life before. */
static eo_status check_unused(const struct tool_job *job, const struct tool_checkpoint_options *options,
                              struct tool_problem *problem)
{
    char path[TOOL_JOB_PATH_MAX], parent[TOOL_JOB_PATH_MAX + 4];
    struct tool_log_catch log_catch;
    tool_log_catch_init(&log_catch);
    const eo_log log = tool_job_log(&log_catch);
    const char *from = options->resume && !options->resume_path ? options->folder : options->resume_path;
    snprintf(parent, sizeof(parent), "%s/..", from ? from : "");
    if (options->used || job->restart || tool_job_is_same_folder(options->folder, from) ||
        (from && tool_job_is_same_folder(options->folder, parent)))
        return EO_OK;
    const eo_status found = eo_checkpoint_find(path, sizeof(path), NULL, options->folder, &log);
    if (found == EO_IN_PROGRESS)
        return EO_OK;
    if (found < 0)
        return tool_problem_set(problem, found,
                                "--checkpoint %s: whether it holds checkpoints of another run cannot be told: %s; "
                                "name another folder, or save there all the same with --checkpoint-used",
                                options->folder, log_catch.text[0] ? log_catch.text : eo_status_text(found));
    return tool_problem_set(problem, EO_ERR_INVALID,
                            "--checkpoint %s: holds checkpoints of another run, the newest is %s; continue from them with "
                            "--resume, name another folder, or save beside them with --checkpoint-used",
                            options->folder, path);
}

eo_status tool_job_checkpoint_prepare(struct tool_job_checkpoints *checkpoints, struct tool_job *job,
                                      const struct tool_checkpoint_options *options, struct tool_problem *problem)
{
    *checkpoints = (struct tool_job_checkpoints){.options = options};
    if (!options->folder && !options->resume)
        return EO_OK;
    job->checkpoints = checkpoints;
    EO_TRY(tool_check_folder("--checkpoint", options->folder, problem)); /* made with the first checkpoint */
    if (options->folder)
        EO_TRY(check_unused(job, options, problem));
    if (options->resume)
        EO_TRY(tool_job_resume(checkpoints, job, problem));
    char *settings = tool_json_text(0, tool_job_settings_kept, job);
    const size_t bytes = settings ? strlen(settings) : 0;
    const bool has_room = bytes + TOOL_EARLY_STOP_BYTES_MAX <= sizeof(checkpoints->settings);
    if (has_room)
        memcpy(checkpoints->settings, settings ? settings : "", bytes);
    free(settings);
    if (!has_room)
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED,
                                "--checkpoint: the settings of this run and model take %zu bytes; checkpoints hold %zu", bytes,
                                sizeof(checkpoints->settings) - TOOL_EARLY_STOP_BYTES_MAX);
    if (bytes == 0)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "--checkpoint: no memory for the settings");
    checkpoints->settings_bytes = (uint32_t)bytes;
    return EO_OK;
}

/* -- every rank ----------------------------------------------------------------------------------------------------*/

eo_status tool_job_checkpoint_load(struct tool_job_rank *rank)
{
    const eo_log log = tool_job_log(&rank->log_catch);
    eo_checkpoint *checkpoint;
    eo_status status = eo_checkpoint_open(&checkpoint, rank->job->checkpoints->resume_path, &log);
    if (status >= 0)
        status = eo_checkpoint_load(checkpoint, rank->runtime);
    eo_checkpoint_close(&checkpoint);
    if (status == EO_ERR_IO || status == EO_ERR_INVALID)
        atomic_store(&rank->job->bad_input, true);
    return status;
}

eo_status tool_job_checkpoint_start(struct tool_job_rank *rank)
{
    const struct tool_job *job = rank->job;
    if (!job->checkpoints || !job->checkpoints->options->folder)
        return EO_OK;
    char resumed[TOOL_JOB_PATH_MAX + 4];
    snprintf(resumed, sizeof(resumed), "%s/..", job->checkpoints->resume_path);
    const bool is_there =
        job->checkpoints->resume_path[0] && tool_job_is_same_folder(resumed, job->checkpoints->options->folder);
    rank->saved_step = is_there ? job->first_step : UINT64_MAX;
    const eo_status status = eo_saver_create(
        &rank->saver, eo_saver_params(.runtime = rank->runtime, .folder = job->checkpoints->options->folder,
                                      .keep = job->checkpoints->options->keep, .blob_bytes_max = TOOL_JOB_SETTINGS_MAX,
                                      .in_place = job->checkpoints->options->in_place));
    /* Another run writes there: of a job that was started again its former life, whose host or file server still says so. */
    if (status == EO_ERR_INVALID && !job->restart)
        atomic_store(&rank->job->bad_input, true);
    if (status >= 0 && rank->rank == 0) /* all have loaded what they go on from, or read only that */
        tool_job_resume_set_aside(job->checkpoints, job->first_step);
    return status;
}

/* A checkpoint that cannot be written is no reason to stop: what is there stays, and the next one may do. It counts for the
 * exit status. */
static void tell_end(struct tool_job_rank *rank, eo_status status, const eo_saver_report *report)
{
    const struct tool_job_hooks *hooks = &rank->job->hooks;
    const char *error = eo_saver_error(rank->saver);
    if (status != EO_IN_PROGRESS)
        rank->is_saving = false;
    if (status == EO_ERR_IO) {
        rank->unsaved_count++;
        rank->unsaved_step = report->step;
    }
    if (status == EO_ERR_IO && error[0] && tool_told_first(rank->rank, error)) /* a full disk is met by all ranks */
        fprintf(stderr, "%s: rank %u: %s; earlier checkpoints are unchanged%s\n", program_invocation_short_name,
                rank->rank, error, rank->is_ending ? "" : ", training continues");
    if (status == EO_OK && report->is_written && rank->rank == 0 && hooks->saved) {
        const struct tool_job_saved saved = {report->step, report->file_bytes, report->copy_ns + rank->saving_ns,
                                             report->write_ns};
        hooks->saved(hooks->user, &saved);
    }
}

static eo_status wait_for_save(struct tool_job_rank *rank)
{
    eo_saver_report report;
    const eo_status status = eo_saver_wait(rank->saver, &report);
    tool_job_step_interrupted(rank);
    tell_end(rank, status, &report);
    return status == EO_ERR_IO ? EO_OK : status;
}

static eo_status begin_save(struct tool_job_rank *rank, uint64_t step)
{
    const struct tool_job_checkpoints *checkpoints = rank->job->checkpoints;
    char settings[TOOL_JOB_SETTINGS_MAX];
    memcpy(settings, checkpoints->settings, checkpoints->settings_bytes);
    const uint32_t bytes =
        tool_early_stop_write(&rank->early_stop, settings, checkpoints->settings_bytes, sizeof(settings));
    const uint64_t begin_ns = tool_now_ns();
    rank->saving_ns = 0;
    eo_status status = eo_saver_begin(rank->saver, settings, bytes);
    if (status == EO_IN_PROGRESS) { /* the disk is slower than training: none is left out, this step waits */
        EO_TRY(wait_for_save(rank));
        rank->saving_ns = tool_now_ns() - begin_ns;
        status = eo_saver_begin(rank->saver, settings, bytes);
    }
    rank->saved_step = step;
    rank->is_saving = true;
    if (rank->job->options->plan.late_updates) /* they were made for it */
        tool_job_step_interrupted(rank);
    return status;
}

eo_status tool_job_checkpoint_step(struct tool_job_rank *rank, uint64_t step, double sum)
{
    const struct tool_job *job = rank->job;
    eo_saver_report report;
    if (!rank->saver)
        return EO_OK;
    const eo_status status = eo_saver_poll(rank->saver, sum, &report);
    tell_end(rank, status, &report);
    if (status < 0 && status != EO_ERR_IO)
        return status;
    const uint64_t every = job->checkpoints->options->every;
    return every && step % every == 0 ? begin_save(rank, step) : EO_OK;
}

eo_status tool_job_checkpoint_end(struct tool_job_rank *rank, uint64_t step)
{
    if (!rank->saver)
        return EO_OK;
    if (rank->saved_step != step)
        EO_TRY(begin_save(rank, step));
    rank->is_ending = true;
    return wait_for_save(rank);
}

eo_status tool_job_checkpoint_verdict(const struct tool_job *job, struct tool_problem *problem)
{
    const struct tool_job_rank *rank = &job->ranks[0]; /* all ranks know the same */
    char path[TOOL_JOB_PATH_MAX];
    const eo_log silence = {0};
    if (!rank->unsaved_count)
        return EO_OK;
    const char *folder = job->checkpoints->options->folder;
    const bool is_there = eo_checkpoint_find(path, sizeof(path), NULL, folder, &silence) == EO_OK;
    return tool_problem_set(problem, EO_ERR_IO,
                            "--checkpoint %s: %u of the run's checkpoints could not be written, the last of "
                            "them of step %" PRIu64 "; %s%s",
                            folder, rank->unsaved_count, rank->unsaved_step,
                            is_there ? "the newest checkpoint there is " : "no checkpoint exists", is_there ? path : "");
}

void tool_job_checkpoint_stop(struct tool_job_rank *rank)
{
    eo_saver_destroy(&rank->saver);
}
