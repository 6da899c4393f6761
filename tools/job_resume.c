/* SPDX-License-Identifier: MIT
 *
 * Which checkpoint a run goes on from. One that is named is that one, and what is wrong with it ends the run. In a folder
 * of several it is the newest that is whole: each is read once before anything depends on it, a piece by each process, and
 * one in which any of them finds damage is passed over by all.
 *
 *     newest -> whole? --all say yes--> compare with the job, go on from it
 *         ^       |
 *         |       one says no: it is told what is wrong
 *         +-- the next older
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/job_checkpoint.h"
#include "tools/job_world.h"
#include "tools/weights_hash.h"

/* What a process says of the checkpoint that it has looked at. */
struct look {
    uint64_t step; /* UINT64_MAX: it found none */
    uint64_t damaged;
    uint64_t is_named; /* the one, not the newest of a folder */
    uint64_t manifest; /* a hash of it: it has a checksum of each file's checksums, so it says which checkpoint it is */
};

static uint32_t own_rank(const struct eo_job *job)
{
    return job->together ? job->together->environment.rank : 0;
}

static uint32_t process_count(const struct eo_job *job)
{
    return job->together ? job->shape.rank_count : 1;
}

static eo_status refuse(const struct eo_log_catch *log_catch, eo_status status, struct eo_problem *problem)
{
    return eo_problem_set(problem, status, "--resume: %s", log_catch->text[0] ? log_catch->text : eo_status_text(status));
}

/* -- whether it is of this job -------------------------------------------------------------------------------------*/

static eo_status compare(struct eo_job *job, eo_checkpoint *checkpoint)
{
    static char text[EO_JOB_SETTINGS_MAX];
    uint32_t bytes = sizeof(text);
    eo_checkpoint_info info;
    const bool tells = own_rank(job) == 0;
    TOOLS_TRY(eo_checkpoint_check(checkpoint, job->plan));
    TOOLS_TRY(eo_checkpoint_blob(checkpoint, 0, text, &bytes));
    eo_checkpoint_get_info(checkpoint, &info);
    job->first_step = info.step;
    json_t *saved = json_loadb(text, bytes, 0, NULL);
    if (saved)
        eo_job_settings_compare(job, saved, tells);
    else if (tells)
        fprintf(stderr, "%s: warning: %s was not saved by train: that data and schedule are the same is not known\n",
                program_invocation_short_name, info.path);
    json_decref(saved);
    return EO_OK;
}

static eo_status open_and_compare(struct eo_job *job, const char *path, struct eo_problem *problem)
{
    struct eo_log_catch log_catch;
    eo_checkpoint *checkpoint;
    eo_log_catch_init(&log_catch);
    const eo_log log = eo_job_log(&log_catch);
    eo_status status = eo_checkpoint_open(&checkpoint, path, &log);
    if (status >= 0)
        status = compare(job, checkpoint);
    eo_checkpoint_close(&checkpoint);
    return status < 0 ? refuse(&log_catch, status, problem) : EO_OK;
}

/* -- the newest that is whole --------------------------------------------------------------------------------------*/

/* 0: there is none, or it cannot be read. */
static uint64_t hash_manifest(const char *folder)
{
    char path[EO_JOB_PATH_MAX + 16], piece[4096];
    uint64_t hash = EO_HASH_START;
    size_t bytes;
    snprintf(path, sizeof(path), "%s/manifest", folder);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while ((bytes = fread(piece, 1, sizeof(piece), file)) > 0)
        hash = eo_hash_more(hash, piece, bytes);
    fclose(file);
    return hash;
}

static uint32_t first_damaged(const struct eo_job *job, const struct look *all)
{
    uint32_t r = 0;
    while (r < process_count(job) && !all[r].damaged)
        r++;
    return r;
}

/* They see one folder, or copies of it; a folder that changes, or hosts with folders of their own under one name, are told. */
static eo_status compare_looks(const struct eo_job *job, const struct look *all, struct eo_problem *problem)
{
    static const char advice[] = "name one folder that all ranks see, and let no other run write to it";
    const bool is_whole = first_damaged(job, all) == process_count(job); /* damage may be one copy's: all go on to the next */
    for (uint32_t r = 1; r < process_count(job); r++) {
        if (all[r].is_named != all[0].is_named)
            return eo_problem_set(problem, EO_ERR_INVALID, "--resume: rank %u was given a checkpoint, and rank %u a folder of "
                                  "them; %s", all[0].is_named ? 0 : r, all[0].is_named ? r : 0, advice);
        if ((all[r].step == UINT64_MAX) != (all[0].step == UINT64_MAX))
            return eo_problem_set(problem, EO_ERR_INVALID, "--resume: rank %u finds a checkpoint, and rank %u none; %s",
                                  all[r].step == UINT64_MAX ? 0 : r, all[r].step == UINT64_MAX ? r : 0, advice);
        if (all[r].step != all[0].step)
            return eo_problem_set(problem, EO_ERR_INVALID, "--resume: rank 0 and rank %u look at checkpoints of different "
                                  "steps; %s", r, advice);
        if (is_whole && all[r].manifest != all[0].manifest)
            return eo_problem_set(problem, EO_ERR_INVALID, "--resume: rank 0 and rank %u look at different checkpoints of "
                                  "step %" PRIu64 ": their manifests differ; %s", r, all[0].step, advice);
    }
    return EO_OK;
}

/* All processes say what they have seen; alone it is what the one has. */
static eo_status exchange(struct eo_job *job, const struct look *mine, struct look *all, struct eo_problem *problem)
{
    if (!job->together) {
        *all = *mine;
        return EO_OK;
    }
    const eo_status status = eo_rendezvous_all_gather(job->together->rendezvous, mine, sizeof(*mine), all);
    if (status < 0)
        return eo_problem_set(problem, status, "--resume: the ranks could not agree: %s", eo_status_text(status));
    return compare_looks(job, all, problem);
}

/* This process's piece of it. EO_OK: whole as far as that goes; EO_ERR_IO: damaged, or a file is missing. */
static eo_status look_at(const struct eo_job *job, const char *path, const eo_log *log)
{
    eo_checkpoint *checkpoint;
    eo_status status = eo_checkpoint_open(&checkpoint, path, log);
    if (status >= 0)
        status = eo_checkpoint_check(checkpoint, job->plan); /* of another model: no older one would be better */
    if (status >= 0)
        status = eo_checkpoint_verify_part(checkpoint, own_rank(job), process_count(job));
    eo_checkpoint_close(&checkpoint);
    return status;
}

/* One after the other, by all processes in step. EO_IN_PROGRESS: there is none, or, with *damaged > 0, none is whole. */
static eo_status find_whole(struct eo_job *job, const char *folder, char *path, struct look *all, uint32_t *damaged,
                            struct eo_problem *problem)
{
    for (uint64_t step = UINT64_MAX;; ++*damaged) {
        struct eo_log_catch log_catch;
        struct look mine = {.step = UINT64_MAX};
        eo_log_catch_init(&log_catch);
        const eo_log log = eo_job_log(&log_catch);
        eo_status status = eo_checkpoint_find_before(path, EO_JOB_PATH_MAX, &step, folder, &log);
        const bool found = status == EO_OK;
        if (found) {
            status = look_at(job, path, &log);
            mine = (struct look){.step = step, .damaged = status == EO_ERR_IO, .manifest = hash_manifest(path)};
        }
        if (status < 0 && !mine.damaged)
            return refuse(&log_catch, status, problem);
        TOOLS_TRY(exchange(job, &mine, all, problem));
        const uint32_t finder = first_damaged(job, all);
        if (!found || finder == process_count(job))
            return status;
        if (finder == own_rank(job))
            fprintf(stderr, "%s: --resume: warning: %s\n", program_invocation_short_name, log_catch.text);
    }
}

static eo_status newest_whole(struct eo_job_checkpoints *checkpoints, struct eo_job *job, const char *folder,
                              struct look *all, struct eo_problem *problem)
{
    uint32_t damaged = 0;
    const eo_status status = find_whole(job, folder, checkpoints->resume_path, all, &damaged, problem);
    if (status == EO_IN_PROGRESS && damaged)
        return eo_problem_set(problem, EO_ERR_IO, "--resume: no checkpoint in %s is whole, so there is nothing to go on "
                              "from; begin again in another folder", folder);
    checkpoints->goes_back = status == EO_OK && damaged;
    if (checkpoints->goes_back && own_rank(job) == 0)
        fprintf(stderr, "%s: --resume: warning: the run goes back to %s: what is newer is damaged\n",
                program_invocation_short_name, checkpoints->resume_path);
    return status;
}

/* -- both ----------------------------------------------------------------------------------------------------------*/

static bool is_a_checkpoint(const char *path)
{
    char manifest[EO_JOB_PATH_MAX + 16];
    snprintf(manifest, sizeof(manifest), "%s/manifest", path);
    return access(manifest, F_OK) == 0;
}

static eo_status find(struct eo_job_checkpoints *checkpoints, struct eo_job *job, const char *folder, struct look *all,
                      struct eo_problem *problem)
{
    char *path = checkpoints->resume_path;
    const bool is_named = is_a_checkpoint(folder);
    if (is_named && strlen(folder) >= EO_JOB_PATH_MAX)
        return eo_problem_set(problem, EO_ERR_INVALID, "--resume: a path of %zu bytes; give another", strlen(folder));
    if (is_named)
        snprintf(path, EO_JOB_PATH_MAX, "%s", folder);
    else
        TOOLS_TRY(newest_whole(checkpoints, job, folder, all, problem));
    if (!path[0])
        return EO_IN_PROGRESS;
    TOOLS_TRY(open_and_compare(job, path, problem));
    const struct look mine = {.step = job->first_step, .is_named = true, .manifest = hash_manifest(path)};
    return is_named ? exchange(job, &mine, all, problem) : EO_OK;
}

/* Later steps of a run that was left are not removed by --keep, and a later --resume would take them. */
static void warn_of_later(const struct eo_job_checkpoints *checkpoints, uint64_t step)
{
    char path[EO_JOB_PATH_MAX];
    uint64_t newest = UINT64_MAX;
    const char *folder = checkpoints->options->folder;
    const eo_log silence = {0};
    if (folder && eo_checkpoint_find_before(path, sizeof(path), &newest, folder, &silence) == EO_OK && newest > step)
        fprintf(stderr, "%s: warning: %s is of a later step than the one this run begins with, and a --resume without a "
                "folder would take it: move it away\n", program_invocation_short_name, path);
}

static bool is_same_folder(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return a && stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

eo_status eo_job_resume(struct eo_job_checkpoints *checkpoints, struct eo_job *job, struct eo_problem *problem)
{
    const struct eo_checkpoint_options *options = checkpoints->options;
    const char *folder = options->resume_path ? options->resume_path : options->folder;
    struct look *all = calloc(job->shape.rank_count, sizeof(*all));
    if (!all)
        return eo_problem_set(problem, EO_ERR_NO_MEMORY, "--resume: no memory");
    const eo_status status = find(checkpoints, job, folder, all, problem);
    free(all);
    if (status < 0)
        return status;
    if (status == EO_IN_PROGRESS && options->resume_path)
        return eo_problem_set(problem, EO_ERR_IO, "--resume %s: there is no checkpoint in it; check the path, or leave "
                              "--resume out", options->resume_path);
    if (status == EO_IN_PROGRESS)
        printf("no checkpoint in %s yet: from the start\n", options->folder);
    if (job->first_step > job->options->steps)
        return eo_problem_set(problem, EO_ERR_INVALID, "--resume: %s is of step %" PRIu64 ", and --steps is %" PRIu64
                              "; give as many steps as the run is to have in all", checkpoints->resume_path,
                              job->first_step, job->options->steps);
    checkpoints->goes_back = checkpoints->goes_back && is_same_folder(options->folder, folder);
    if (status == EO_OK && !checkpoints->goes_back && own_rank(job) == 0)
        warn_of_later(checkpoints, job->first_step);
    return EO_OK;
}

/* -- damaged ones out of the way -----------------------------------------------------------------------------------*/

/* "PATH.damaged", or, where there is one already, "PATH.damaged-2" ... */
static bool rename_damaged(const char *path, char *to, size_t bytes)
{
    enum { TRIES = 100 };
    for (int i = 1; i <= TRIES; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof(number), "-%d", i);
        snprintf(to, bytes, "%s.damaged%s", path, number);
        if (rename(path, to) == 0)
            return true;
        if (errno != EEXIST && errno != ENOTEMPTY)
            return false;
    }
    return false;
}

void eo_job_resume_set_aside(const struct eo_job_checkpoints *checkpoints, uint64_t first_step)
{
    char path[EO_JOB_PATH_MAX], to[EO_JOB_PATH_MAX + 32];
    const eo_log silence = {0};
    uint64_t step = UINT64_MAX;
    while (checkpoints->goes_back &&
           eo_checkpoint_find_before(path, sizeof(path), &step, checkpoints->options->folder, &silence) == EO_OK &&
           step > first_step) {
        if (rename_damaged(path, to, sizeof(to)))
            fprintf(stderr, "%s: %s is called %s now\n", program_invocation_short_name, path, to);
        else
            fprintf(stderr, "%s: warning: %s cannot be renamed: %s; --keep counts it as one that is whole\n",
                    program_invocation_short_name, path, strerror(errno));
    }
}
