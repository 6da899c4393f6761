/* SPDX-License-Identifier: MIT
 *
 * Saving beside training. eo_saver_begin copies what is to be saved into memory reserved at create; a thread writes it.
 *
 * What is offloaded is written from where it lies (runtime/checkpoint/image.h), on GPUs where host memory has no room for a
 * copy: the thread passes over the layers, and the update of each waits until it has been passed, a step as a graph until all
 * have.
 *
 *     compute thread    IDLE --begin--> COPYING --copy done--> WRITING .... WRITTEN --all ranks have--> ENDING ....... IDLE
 *     saver's thread                                           file, fsync                              rank 0: commit
 *
 * The ranks agree twice, on the end of WRITING and of ENDING, by a sum that the trainer carries (runtime/checkpoint/save_sum.h),
 * so a save costs no collective. It is over when its folder has its name on the disk, or cannot have it: all ranks know which.
 *
 * Where the first sum shows that not all ranks began, those that did see it at the same step, and each leaves the save (LEFT):
 * it is IDLE again when its thread has stopped.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/thread.h"
#include "runtime/checkpoint/image.h"
#include "runtime/checkpoint/save_sum.h"
#include "runtime/internal.h"
#include "streams/patience.h"

enum saver_phase { SAVER_IDLE, SAVER_COPYING, SAVER_WRITING, SAVER_WRITTEN, SAVER_FAILED, SAVER_ENDING, SAVER_LEFT };
enum saver_job { JOB_NONE, JOB_WRITE, JOB_COMMIT, JOB_DISCARD, JOB_END };

struct eo_saver {
    struct eo_runtime *rt;
    eo_log log;
    char *folder;
    int lock; /* rank 0's, of the folder; -1: none */
    char owner_text[CHECKPOINT_OWNER_BYTES]; /* of the others: who had the lock at the first save; "": not known */
    pid_t owner; /* the process with the thread */
    uint32_t keep, blob_bytes_max;
    struct checkpoint_tables tables;
    struct checkpoint_image image;
    void *piece; /* for the thread */

    /* of the compute thread */
    enum saver_phase phase;
    bool is_given_up; /* ENDING: a rank could not write its file */
    struct save_numbers numbers; /* of the last saves, this one too */
    bool is_discarded;        /* LEFT: what was begun is, or is not this rank's to discard */
    bool is_asked, is_polled; /* since it began its value was taken, and sums were given, */
    bool is_answered;         /* of which one was of this save */
    bool is_warned;
    uint32_t verdict; /* ENDING: rank 0's, when its thread has done */
    struct eo_event copied;
    uint32_t patience_ms; /* 0: nobody waits for this rank's disk */
    eo_saver_report report;
    uint64_t copied_ns;
    uint64_t waited_ns; /* for layers to be passed */
    char error[512];

    /* between the threads */
    pthread_t thread;
    bool thread_started;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum saver_job job; /* that is to be done or being done */
    eo_status result;   /* of the last one */
    struct checkpoint_error why;
    bool has_looked; /* for later checkpoints of another run */
    uint64_t done_ns;
    uint32_t passed_layers; /* layers before this one are written; of JOB_WRITE in place */
    atomic_bool gives_up;
};

/* -- the thread ----------------------------------------------------------------------------------------------------*/

static struct timespec saver_deadline(uint32_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += (time_t)(ms / 1000) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

/* A file's sections are in the order of layers: those before this one are written. */
static void pass_layers(struct eo_saver *saver, uint32_t layer)
{
    pthread_mutex_lock(&saver->mutex);
    saver->passed_layers = layer;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
}

/* On a GPU there is a copy of what is not offloaded, and a recorded step waits when it is launched. */
static bool is_read_there(const struct eo_runtime *rt, uint32_t layer)
{
    const bool is_copied = layer != EO_NONE && !rt->device->ops->is_host_memory && rt->plan->layers[layer].disk_row == EO_NONE;
    return rt->saver && rt->saver->phase == SAVER_WRITING && !is_copied && !rt->graph.recording;
}

/* Whether the thread need not be waited for any more, after some milliseconds. */
static bool has_passed(struct eo_saver *saver, uint32_t layer)
{
    enum { ROUND_MS = 100 };
    const struct timespec until = saver_deadline(ROUND_MS);
    int result = 0;
    pthread_mutex_lock(&saver->mutex);
    while (saver->job == JOB_WRITE && saver->passed_layers <= layer && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&saver->changed, &saver->mutex, &until);
    const bool has = saver->job != JOB_WRITE || saver->passed_layers > layer;
    pthread_mutex_unlock(&saver->mutex);
    return has;
}

/* Where the world has failed, the thread gives up: its file would belong to no checkpoint. */
void eo_saver_await_layer(struct eo_runtime *rt, uint32_t layer)
{
    struct eo_saver *saver = rt->saver;
    char failure[8] = "";
    if (!is_read_there(rt, layer))
        return;
    const uint64_t begin_ns = eo_now_ns();
    while (!has_passed(saver, layer)) {
        eo_world_failure(rt->world, failure, sizeof(failure));
        if (failure[0])
            atomic_store(&saver->gives_up, true);
    }
    saver->waited_ns += eo_now_ns() - begin_ns;
}

static const void *image_part(void *user, const struct checkpoint_section *section, uint64_t at, uint64_t bytes,
                              void *piece, struct checkpoint_error *error)
{
    struct eo_saver *saver = user;
    if (atomic_load_explicit(&saver->gives_up, memory_order_relaxed)) {
        (void)eo_checkpoint_io_error(error, 0, "checkpoint of step %llu: abandoned, the run ends",
                                     (unsigned long long)saver->tables.head->step);
        return NULL;
    }
    if (section->layer != CHECKPOINT_TRAINER)
        pass_layers(saver, section->layer);
    return eo_image_part(&saver->image, section, at, bytes, piece, error);
}

/* Who resumes takes the highest step, so this run's checkpoints would be passed over. */
static void tell_later(struct eo_saver *saver, uint64_t step)
{
    const uint64_t latest = eo_checkpoint_latest(saver->folder);
    if (latest > step)
        snprintf(saver->why.text, sizeof(saver->why.text),
                 "checkpoint of step %llu: %s has one of step %llu, of another run or a resumed one: eo_checkpoint_find takes "
                 "that; move it, or save elsewhere",
                 (unsigned long long)step, saver->folder, (unsigned long long)latest);
}

/* Rank 0 has the lock. Without it nothing is removed either: it may be another run's. The others look whose it is. */
static eo_status run_job(struct eo_saver *saver, enum saver_job job)
{
    if (saver->rt->world->rank == 0)
        EO_TRY(eo_checkpoint_keep_lock(&saver->lock, saver->folder, &saver->why));
    else
        EO_TRY(eo_checkpoint_same_owner(saver->owner_text, saver->folder, &saver->why));
    switch (job) {
    case JOB_WRITE:
        return eo_checkpoint_write_file(saver->folder, &saver->tables, image_part, saver, saver->piece, &saver->why);
    case JOB_COMMIT: {
        const uint64_t step = saver->tables.head->step;
        const eo_status status = eo_checkpoint_commit(saver->folder, &saver->tables, saver->keep, &saver->why);
        if (status < 0)
            eo_checkpoint_discard(saver->folder, step);
        else if (!saver->has_looked && !saver->why.text[0])
            tell_later(saver, step);
        saver->has_looked = saver->has_looked || status >= 0;
        return status;
    }
    case JOB_DISCARD: eo_checkpoint_discard(saver->folder, saver->tables.head->step); return EO_OK;
    case JOB_NONE:
    case JOB_END:
    default: return EO_OK;
    }
}

static void *saver_main(void *arg)
{
    struct eo_saver *saver = arg;
    pthread_mutex_lock(&saver->mutex);
    while (saver->job != JOB_END) {
        if (saver->job == JOB_NONE) {
            pthread_cond_wait(&saver->changed, &saver->mutex);
            continue;
        }
        const enum saver_job job = saver->job;
        pthread_mutex_unlock(&saver->mutex);
        const eo_status result = run_job(saver, job);
        pthread_mutex_lock(&saver->mutex);
        saver->result = result;
        saver->done_ns = eo_now_ns();
        saver->job = JOB_NONE;
        pthread_cond_broadcast(&saver->changed);
    }
    pthread_mutex_unlock(&saver->mutex);
    return NULL;
}

static void give_job(struct eo_saver *saver, enum saver_job job)
{
    pthread_mutex_lock(&saver->mutex);
    EO_ASSERT(saver->job == JOB_NONE);
    saver->job = job;
    saver->result = EO_OK;
    saver->passed_layers = 0;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
}

/* Whether the thread has nothing to do, after at most so many milliseconds. */
static bool is_idle(struct eo_saver *saver, uint32_t patience_ms)
{
    const struct timespec until = saver_deadline(patience_ms);
    pthread_mutex_lock(&saver->mutex);
    while (patience_ms && saver->job != JOB_NONE &&
           pthread_cond_timedwait(&saver->changed, &saver->mutex, &until) != ETIMEDOUT)
        ;
    const bool idle = saver->job == JOB_NONE;
    pthread_mutex_unlock(&saver->mutex);
    return idle;
}

/* Without signals a limit on the size of files is an error to be told. */
static eo_status start_thread(struct eo_saver *saver)
{
    pthread_condattr_t clock;
    pthread_mutex_init(&saver->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&saver->changed, &clock);
    pthread_condattr_destroy(&clock);
    const int error = eo_thread_start(&saver->thread, saver_main, saver);
    saver->thread_started = error == 0;
    if (saver->thread_started)
        return EO_OK;
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->mutex);
    eo_log_write(&saver->rt->log, EO_LOG_ERROR, "rank %u: cannot start the thread for checkpoints: %s; %s",
                 saver->rt->world->rank, strerror(error), eo_thread_remedy(error));
    return EO_ERR_NO_MEMORY;
}

/* -- create and destroy --------------------------------------------------------------------------------------------*/

struct own_ranges {
    const struct eo_plan *plan;
    uint32_t rank;
};

static struct checkpoint_range own_range(const void *user, uint32_t layer)
{
    const struct own_ranges *own = user;
    return eo_checkpoint_own_range(own->plan, layer, own->rank);
}

uint64_t eo_saver_bytes(const eo_plan *plan, uint32_t rank, uint32_t blob_bytes_max)
{
    if (!plan || rank >= plan->params.rank_count)
        return 0;
    uint64_t bytes = eo_align_up(blob_bytes_max ? blob_bytes_max : CHECKPOINT_BLOB_DEFAULT, CHECKPOINT_ALIGN);
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        const uint64_t count = eo_checkpoint_own_range(plan, l, rank).count;
        bytes += eo_align_up(count * sizeof(float), CHECKPOINT_ALIGN);
        for (uint32_t k = 0; k < plan->state_count && !plan->layers[l].frozen; k++)
            bytes += eo_align_up(eo_plan_state_bytes(plan, k, count), CHECKPOINT_ALIGN);
    }
    return bytes;
}

/* Not where steps would lose time for memory that is there: copies on a GPU's host are faster than disks. */
static bool is_to_be_in_place(const struct eo_runtime *rt, const eo_saver_params *params)
{
    if (rt->saver || !eo_image_may_be_in_place(rt))
        return false;
    if (rt->device->ops->is_host_memory || params->in_place)
        return true;
    return eo_saver_bytes(rt->plan, rt->world->rank, params->blob_bytes_max) > rt->offload.copy_bytes_max;
}

/* That others may wait for a rank whose updates wait for its disk. The same on all ranks, for only some of them may be in
 * place. */
static uint32_t patience_ms(const struct eo_runtime *rt, uint32_t blob_bytes_max)
{
    const uint64_t stall_ms = 60000, bytes_per_ms = 20000; /* of a slow disk */
    uint64_t most = 0;
    if (!eo_image_may_be_in_place(rt))
        return 0;
    for (uint32_t r = 0; r < rt->world->rank_count; r++)
        most = eo_max_u64(most, eo_saver_bytes(rt->plan, r, blob_bytes_max));
    return (uint32_t)eo_min_u64(stall_ms + most / bytes_per_ms, UINT32_MAX);
}

/* The thread writes there, wherever the trainer goes meanwhile. As it is given where that is nowhere. NULL: no memory. */
static char *absolute(const char *folder)
{
    char here[CHECKPOINT_PATH_MAX];
    if (folder[0] == '/' || !getcwd(here, sizeof(here)) || strlen(here) + strlen(folder) + 2 > sizeof(here))
        return strdup(folder);
    char *path;
    return asprintf(&path, "%s/%s", here, folder) < 0 ? NULL : path;
}

static eo_status saver_init(struct eo_saver *saver, const eo_saver_params *params)
{
    struct eo_runtime *rt = saver->rt;
    struct checkpoint_tables model;
    saver->piece = aligned_alloc(CHECKPOINT_ALIGN, CHECKPOINT_PIECE);
    const bool in_place = is_to_be_in_place(rt, params);
    saver->patience_ms = patience_ms(rt, params->blob_bytes_max);
    if (in_place)
        rt->saver = saver;
    if (!saver->piece)
        return EO_ERR_NO_MEMORY;
    EO_TRY(eo_checkpoint_describe_plan(&model, rt->plan, rt->params.update != NULL));
    const eo_status status = eo_checkpoint_make_tables(&saver->tables, &model, rt->world->rank, rt->world->rank_count,
                                                       saver->blob_bytes_max, own_range,
                                                       &(struct own_ranges){rt->plan, rt->world->rank});
    eo_checkpoint_free_tables(&model);
    EO_TRY(status);
    EO_TRY(eo_image_init(&saver->image, rt, &saver->tables, saver->blob_bytes_max, in_place));
    return start_thread(saver);
}

eo_status eo_saver_create(eo_saver **out, const eo_saver_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!params || !params->runtime)
        return EO_ERR_INVALID;
    struct eo_runtime *rt = params->runtime;
    if (!params->folder || !params->folder[0])
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_saver_create needs a folder for the checkpoints");
    struct eo_saver *saver = calloc(1, sizeof(*saver));
    if (!saver)
        return EO_ERR_NO_MEMORY;
    saver->rt = rt;
    rt->saver_count++;
    saver->log = params->log ? *params->log : (eo_log){0};
    saver->keep = params->keep;
    saver->blob_bytes_max = params->blob_bytes_max ? params->blob_bytes_max : CHECKPOINT_BLOB_DEFAULT;
    saver->lock = -1;
    saver->owner = getpid();
    saver->folder = absolute(params->folder);
    eo_status status = !saver->folder         ? EO_ERR_NO_MEMORY
                       : rt->world->rank == 0 ? eo_checkpoint_lock(&saver->lock, saver->folder, &rt->log, &saver->why)
                                              : eo_checkpoint_check_writable(saver->folder, &saver->why);
    if (status < 0) {
        (void)eo_runtime_fail(rt, status, "%s", saver->why.text[0] ? saver->why.text : "memory for checkpoints");
        eo_saver_destroy(&saver);
        return status;
    }
    status = saver_init(saver, params);
    if (status < 0) {
        (void)eo_runtime_fail(rt, status, "memory and thread for checkpoints (%.1f MiB of host memory)",
                              (double)saver->image.bytes / (1 << 20));
        eo_saver_destroy(&saver);
    }
    *out = saver;
    return status;
}

static void end_thread(struct eo_saver *saver)
{
    atomic_store(&saver->gives_up, true);
    while (!is_idle(saver, 1000))
        ;
    give_job(saver, JOB_END);
    pthread_join(saver->thread, NULL);
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->mutex);
}

bool eo_saver_is_in_place(const eo_saver *saver, uint64_t *copy_bytes)
{
    if (copy_bytes)
        *copy_bytes = saver ? saver->image.bytes : 0;
    return saver && saver->image.is_in_place;
}

/* A step that stopped for its norm did so on all ranks, which can go on to speak of their save. On a GPU, whose steps run
 * ahead, each rank may have learned it after another one; and updates that are late stay unmade. */
static bool has_stopped(const struct eo_runtime *rt)
{
    return rt->cursor.phase == PHASE_FAILED && rt->errors.is_not_finite && rt->device->ops->is_host_memory &&
           !rt->steps.is_late;
}

static bool may_still_end(const struct eo_runtime *rt)
{
    return rt->cursor.phase != PHASE_FAILED || has_stopped(rt);
}

void eo_saver_destroy(eo_saver **pointer)
{
    if (!pointer || !*pointer)
        return;
    struct eo_saver *saver = *pointer;
    *pointer = NULL;
    if (saver->owner != getpid()) /* thread and lock are another process's */
        return;
    struct eo_device *device = saver->rt->device;
    if (saver->phase != SAVER_IDLE && saver->phase != SAVER_LEFT && may_still_end(saver->rt))
        eo_log_write(&saver->log, EO_LOG_WARN,
                     "rank %u: eo_saver_destroy: the save of step %llu is not over, and is dropped: call "
                     "eo_saver_wait on all ranks before it",
                     saver->rt->world->rank, (unsigned long long)saver->report.step);
    if (saver->thread_started)
        end_thread(saver);
    if (saver->rt->saver == saver)
        saver->rt->saver = NULL;
    saver->rt->saver_count--;
    if (saver->phase != SAVER_IDLE)
        eo_patience_end(saver->patience_ms);
    /* The device still writes there. Where a peer is lost, what waited for it is given up first. */
    if ((saver->phase == SAVER_COPYING || saver->phase == SAVER_LEFT) && !device->is_lost && eo_host_drain(saver->rt) < 0 &&
        !device->is_lost)
        (void)device->ops->drain(device);
    eo_image_fini(&saver->image);
    eo_checkpoint_free_tables(&saver->tables);
    eo_checkpoint_unlock(saver->lock);
    free(saver->piece);
    free(saver->folder);
    free(saver);
}

/* -- copying -------------------------------------------------------------------------------------------------------*/

/* In place the thread passes layers from the end of begin on, so that updates know what to wait for. */
static eo_status copy_image(struct eo_saver *saver)
{
    struct eo_device *device = saver->rt->device;
    EO_TRY(eo_image_copy(&saver->image));
    device->ops->record(device, EO_QUEUE_COMPUTE, &saver->copied);
    return saver->image.is_in_place && !device->ops->is_host_memory
               ? eo_host_await(saver->rt, &saver->copied, "waiting for the copy of a checkpoint")
               : EO_OK;
}

/* A save that nobody carries on never ends, and the next one never begins. Sums may come some steps late. */
static void warn_if_forgotten(struct eo_saver *saver)
{
    const char *lacks =
        !saver->is_asked      ? "eo_saver_value was not called since: give its value to every step on all ranks "
                                "(eo_step_params.values)"
        : !saver->is_polled   ? "eo_saver_poll was not called since: give it the sum of these values after every step"
        : !saver->is_answered ? "eo_saver_poll was given other sums than those of eo_saver_value: take that place of "
                                "eo_step_report.values; or rank 0 did not begin this save"
                              : NULL;
    if (!lacks || saver->is_warned || saver->rt->steps.finished < saver->report.step + EO_REPORTS_KEPT)
        return;
    saver->is_warned = true;
    eo_log_write(&saver->log, EO_LOG_WARN, "rank %u: the save of step %llu is not over: %s", saver->rt->world->rank,
                 (unsigned long long)saver->report.step, lacks);
}

eo_status eo_saver_begin(eo_saver *saver, const void *blob, uint32_t blob_bytes)
{
    if (!saver)
        return EO_ERR_INVALID;
    struct eo_runtime *rt = saver->rt;
    const uint64_t begin_ns = eo_now_ns();
    EO_TRY(eo_runtime_check_idle(rt, "eo_saver_begin"));
    if (blob_bytes && !blob)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_saver_begin: %u trainer's bytes, but blob is NULL", blob_bytes);
    if (blob_bytes > saver->blob_bytes_max)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_saver_begin: %u trainer's bytes, but room for %u: raise eo_saver_params.blob_bytes_max", blob_bytes,
                               saver->blob_bytes_max);
    if (saver->phase != SAVER_IDLE) {
        warn_if_forgotten(saver);
        return EO_IN_PROGRESS;
    }
    EO_TRY(eo_ema_make(rt, "eo_saver_begin")); /* before the first step too */
    if (rt->steps.is_late)
        EO_TRY(eo_runtime_leave_schedule(rt, "eo_saver_begin"));
    EO_TRY(eo_host_finish_steps(rt, rt->steps.finished)); /* to know how many were skipped */
    saver->tables.head->step = rt->steps.finished;
    saver->tables.head->skipped = rt->steps.skipped + rt->steps.skipped_here;
    for (uint32_t g = 0; g < rt->plan->group_count; g++)
        saver->tables.frozen[rt->plan->groups[g].group] = rt->steps.frozen[g];
    saver->error[0] = '\0';
    eo_image_set_blob(&saver->image, blob, blob_bytes, saver->blob_bytes_max);
    eo_checkpoint_set_blob_bytes(&saver->tables, blob_bytes);
    EO_TRY(copy_image(saver));
    saver->phase = SAVER_COPYING;
    eo_save_numbers_add(&saver->numbers, rt->steps.finished);
    eo_patience_begin(saver->patience_ms);
    saver->copied_ns = eo_now_ns();
    saver->waited_ns = 0;
    saver->is_asked = saver->is_polled = saver->is_answered = saver->is_warned = false;
    saver->report = (eo_saver_report){.step = rt->steps.finished, .file_bytes = saver->tables.head->file_bytes,
                                      .copy_ns = saver->copied_ns - begin_ns};
    if (rt->device->ops->is_host_memory || saver->image.is_in_place) { /* the copy is there */
        give_job(saver, JOB_WRITE);
        saver->phase = SAVER_WRITING;
    }
    return EO_OK;
}

/* -- the end of a save ---------------------------------------------------------------------------------------------*/

const char *eo_saver_error(const eo_saver *saver)
{
    return saver ? saver->error : "";
}

static void keep_error(struct eo_saver *saver)
{
    snprintf(saver->error, sizeof(saver->error), "%s", saver->why.text);
    eo_log_write(&saver->log, EO_LOG_ERROR, "%s", saver->error);
}

/* What the thread has done since. */
static void look_at_thread(struct eo_saver *saver)
{
    if (!is_idle(saver, 0))
        return;
    if (saver->phase == SAVER_WRITING) {
        saver->phase = saver->result < 0 ? SAVER_FAILED : SAVER_WRITTEN;
        saver->report.write_ns = saver->done_ns - saver->copied_ns;
        if (saver->result < 0)
            keep_error(saver);
    } else if (saver->phase == SAVER_ENDING && saver->rt->world->rank == 0 && saver->verdict == 0) {
        saver->verdict = saver->is_given_up || saver->result < 0 ? VERDICT_NOT_NAMED : VERDICT_NAMED;
        if (saver->result < 0)
            keep_error(saver);
        else if (!saver->is_given_up && saver->why.text[0])
            eo_log_write(&saver->log, EO_LOG_WARN, "%s", saver->why.text);
    }
}

/* The thread is asked first, so that what it has done counts in this sum. */
double eo_saver_value(eo_saver *saver)
{
    if (!saver)
        return 0;
    look_at_thread(saver);
    saver->is_asked = true;
    if (saver->phase == SAVER_IDLE || saver->phase == SAVER_LEFT)
        return 0;
    const struct eo_world *world = saver->rt->world;
    const struct save_sum own = {.written = saver->phase == SAVER_WRITTEN,
                                 .failed = saver->phase == SAVER_FAILED,
                                 .begun = 1,
                                 .verdict = saver->phase == SAVER_ENDING ? saver->verdict : VERDICT_NONE,
                                 .save = world->rank == 0 ? eo_save_number(saver->report.step) : 0};
    return eo_save_sum_value(&own, world->rank_count);
}

/* All ranks have written, or one could not: what remains is rank 0's to do. */
static void begin_end(struct eo_saver *saver, bool failed)
{
    saver->phase = SAVER_ENDING;
    saver->is_given_up = failed;
    saver->verdict = VERDICT_NONE;
    if (saver->rt->world->rank == 0)
        give_job(saver, failed ? JOB_DISCARD : JOB_COMMIT);
}

/* What this rank could not write has been told before. The thread may be at work, and `why` is its own then. */
static void leave(struct eo_saver *saver, const char *text)
{
    if (saver->phase != SAVER_FAILED) {
        snprintf(saver->error, sizeof(saver->error), "%s", text);
        eo_log_write(&saver->log, EO_LOG_ERROR, "%s", text);
    }
    atomic_store(&saver->gives_up, true);
    saver->is_given_up = saver->is_answered = true;
    saver->is_discarded = saver->rt->world->rank != 0;
    saver->phase = SAVER_LEFT;
}

/* Without a wait: the thread ends at its next piece, and then rank 0's discards what there is. Files of others that are still
 * written then go with the next save. */
static eo_status go_on_leaving(struct eo_saver *saver, eo_saver_report *report)
{
    struct eo_device *device = saver->rt->device;
    if (!device->ops->is_complete(device, &saver->copied) || !is_idle(saver, 0))
        return EO_IN_PROGRESS;
    if (!saver->is_discarded) {
        saver->is_discarded = true;
        give_job(saver, JOB_DISCARD);
        return EO_IN_PROGRESS;
    }
    atomic_store(&saver->gives_up, false);
    saver->phase = SAVER_IDLE;
    eo_patience_end(saver->patience_ms);
    saver->report.is_written = false;
    if (report)
        *report = saver->report;
    return EO_ERR_IO;
}

static eo_status take_sum(struct eo_saver *saver, double sum, eo_saver_report *report)
{
    struct eo_device *device = saver->rt->device;
    if (report)
        *report = (eo_saver_report){0};
    if (saver->phase == SAVER_IDLE)
        return EO_OK;
    if (saver->phase == SAVER_LEFT)
        return go_on_leaving(saver, report);
    if (saver->phase == SAVER_COPYING && device->ops->is_complete(device, &saver->copied)) {
        give_job(saver, JOB_WRITE);
        saver->phase = SAVER_WRITING;
    }
    saver->is_polled = true;
    const uint32_t ranks = saver->rt->world->rank_count;
    const struct save_sum s = eo_save_sum_of(sum, ranks);
    char text[256];
    if (saver->phase != SAVER_ENDING && eo_save_sum_lacks_ranks(&s, &saver->numbers, saver->report.step, ranks, text)) {
        leave(saver, text);
        return EO_IN_PROGRESS;
    }
    if (s.save != eo_save_number(saver->report.step)) /* of a save before this one, or none */
        return EO_IN_PROGRESS;
    saver->is_answered = true;
    if (saver->phase != SAVER_ENDING) {
        if (s.written + s.failed == ranks)
            begin_end(saver, s.failed > 0);
        return EO_IN_PROGRESS;
    }
    if (s.verdict == VERDICT_NONE)
        return EO_IN_PROGRESS;
    saver->phase = SAVER_IDLE;
    eo_patience_end(saver->patience_ms);
    saver->report.is_written = s.verdict == VERDICT_NAMED;
    saver->report.copy_ns += saver->waited_ns;
    if (report)
        *report = saver->report;
    return saver->report.is_written ? EO_OK : EO_ERR_IO;
}

eo_status eo_saver_poll(eo_saver *saver, double sum, eo_saver_report *report)
{
    if (!saver)
        return EO_ERR_INVALID;
    const eo_status status = take_sum(saver, sum, report);
    if (status == EO_IN_PROGRESS)
        warn_if_forgotten(saver);
    return status;
}

/* Nobody waits long for another here, however long a disk takes: a rank that is lost is noticed. */
static eo_status await_end(eo_saver *saver, eo_saver_report *report)
{
    enum { ROUND_MS = 200 };
    struct eo_runtime *rt = saver->rt;
    if (saver->phase == SAVER_COPYING)
        EO_TRY(eo_host_await(rt, &saver->copied, "waiting for the copy of a checkpoint"));
    eo_status status = take_sum(saver, 0, report);
    while (status == EO_IN_PROGRESS) {
        (void)is_idle(saver, ROUND_MS);
        double sum = eo_saver_value(saver);
        if (saver->phase != SAVER_LEFT) /* the others have nothing more to say */
            EO_TRY(eo_sum(rt, &sum, 1));
        status = take_sum(saver, sum, report);
    }
    return status;
}

eo_status eo_saver_wait(eo_saver *saver, eo_saver_report *report)
{
    if (!saver)
        return EO_ERR_INVALID;
    struct eo_runtime *rt = saver->rt;
    const bool stopped = has_stopped(rt);
    if (stopped)
        rt->cursor.phase = PHASE_IDLE; /* for sums of this save alone */
    const eo_status status = await_end(saver, report);
    if (stopped)
        rt->cursor.phase = PHASE_FAILED;
    return status;
}
