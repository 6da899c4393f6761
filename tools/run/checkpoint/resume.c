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

#include "tools/run/checkpoint/checkpoint.h"
#include "tools/run/ranks/world.h"
#include "tools/shared/open_file.h"
#include "tools/shared/weights_hash.h"

/* Of each process between two exchanges: a disk that is slow, or slower for one than for the others, keeps nobody waiting
 * for longer than an exchange may take. */
enum { ROUND_BYTES = 64 << 20 };

/* What a process says of the checkpoint that it looks at. */
struct look {
    uint64_t step; /* UINT64_MAX: it found none */
    uint64_t damaged;
    uint64_t is_named; /* the one, not the newest of a folder */
    uint64_t manifest; /* a hash of it: it has a checksum of each file's checksums, so it says which checkpoint it is */
};

struct search {
    struct tool_job *job;
    const char *folder;
    char *path;       /* TOOL_JOB_PATH_MAX bytes: of the one that is looked at */
    struct look *all; /* by process */
    uint32_t passed;  /* damaged ones */
    struct tool_problem *problem;
};

static uint32_t own_rank(const struct tool_job *job)
{
    return job->together ? job->together->environment.rank : 0;
}

static uint32_t process_count(const struct tool_job *job)
{
    return job->together ? job->shape.rank_count : 1;
}

static eo_status refuse(const struct tool_log_catch *log_catch, eo_status status, struct tool_problem *problem)
{
    const char *why = log_catch->text[0] ? log_catch->text : eo_status_text(status);
    return tool_problem_set(problem, status, "--resume: %s%s", why,
                            strstr(why, "is of another model") ? "; give --model, --granularity and --lora as that run did"
                                                               : "");
}

/* -- whether it is of this job -------------------------------------------------------------------------------------*/

static eo_status compare(struct tool_job *job, eo_checkpoint *checkpoint)
{
    eo_checkpoint_info info;
    json_t *saved;
    const bool tells = own_rank(job) == 0;
    EO_TRY(eo_checkpoint_check(checkpoint, job->plan));
    EO_TRY(tool_job_settings_read(checkpoint, &saved));
    eo_checkpoint_get_info(checkpoint, &info);
    job->first_step = info.step;
    if (saved)
        tool_job_settings_compare(job, saved, tells);
    else if (tells)
        fprintf(stderr, "%s: warning: train did not save %s: whether data and schedule are the same is unknown\n",
                program_invocation_short_name, info.path);
    json_decref(saved);
    return EO_OK;
}

static eo_status open_and_compare(struct tool_job *job, const char *path, struct tool_problem *problem)
{
    struct tool_log_catch log_catch;
    eo_checkpoint *checkpoint;
    tool_log_catch_init(&log_catch);
    const eo_log log = tool_job_log(&log_catch);
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
    char path[TOOL_JOB_PATH_MAX + 16], piece[4096];
    uint64_t hash = TOOL_HASH_START;
    size_t bytes;
    snprintf(path, sizeof(path), "%s/manifest", folder);
    struct tool_problem problem;
    FILE *file;
    if (tool_open_stream(&file, "", path, &problem) < 0)
        return 0;
    while ((bytes = fread(piece, 1, sizeof(piece), file)) > 0)
        hash = tool_hash_more(hash, piece, bytes);
    fclose(file);
    return hash;
}

static uint32_t first_damaged(const struct tool_job *job, const struct look *all)
{
    uint32_t r = 0;
    while (r < process_count(job) && !all[r].damaged)
        r++;
    return r;
}

/* They see one folder, or copies of it; a folder that changes, or hosts with folders of their own under one name, are told. */
static eo_status compare_looks(const struct tool_job *job, const struct look *all, struct tool_problem *problem)
{
    static const char advice[] = "name one folder for all ranks, and let no other run write to it";
    const bool is_whole = first_damaged(job, all) == process_count(job); /* damage may be one copy's: all go on to the next */
    for (uint32_t r = 1; r < process_count(job); r++) {
        if (all[r].is_named != all[0].is_named)
            return tool_problem_set(problem, EO_ERR_INVALID,
                                    "--resume: rank %u was given a checkpoint, but rank %u a folder of them; %s",
                                    all[0].is_named ? 0 : r, all[0].is_named ? r : 0, advice);
        if ((all[r].step == UINT64_MAX) != (all[0].step == UINT64_MAX))
            return tool_problem_set(problem, EO_ERR_INVALID, "--resume: rank %u finds a checkpoint, but rank %u none; %s",
                                    all[r].step == UINT64_MAX ? 0 : r, all[r].step == UINT64_MAX ? r : 0, advice);
        if (all[r].step != all[0].step)
            return tool_problem_set(problem, EO_ERR_INVALID,
                                    "--resume: rank 0 and rank %u find checkpoints of different steps; %s",
                                    r, advice);
        if (is_whole && all[r].manifest != all[0].manifest)
            return tool_problem_set(problem, EO_ERR_INVALID,
                                    "--resume: rank 0 and rank %u find different checkpoints of step %" PRIu64 ": their "
                                    "manifests differ; %s",
                                    r, all[0].step, advice);
    }
    return EO_OK;
}

/* All processes say what they have seen; alone it is what the one has. */
static eo_status exchange(const struct search *search, const struct look *mine)
{
    const struct tool_job *job = search->job;
    if (!job->together) {
        *search->all = *mine;
        return EO_OK;
    }
    const eo_status status = eo_rendezvous_all_gather(job->together->rendezvous, mine, sizeof(*mine), search->all);
    if (status < 0)
        return tool_problem_set(search->problem, status, "--resume: the ranks could not agree: %s", eo_status_text(status));
    return compare_looks(job, search->all, search->problem);
}

/* What came of this process's part goes to all; *finder becomes the first that found damage, or the number of processes. */
static eo_status share(const struct search *search, struct look *mine, eo_status status, const struct tool_log_catch *log_catch,
                       uint32_t *finder)
{
    mine->damaged = status == EO_ERR_IO;
    if (status < 0 && !mine->damaged)
        return refuse(log_catch, status, search->problem);
    EO_TRY(exchange(search, mine));
    *finder = first_damaged(search->job, search->all);
    return EO_OK;
}

/* All processes together, in rounds, until one finds damage or everything has been read. */
static eo_status look_at(const struct search *search, uint64_t step, struct tool_log_catch *log_catch, uint32_t *finder)
{
    const struct tool_job *job = search->job;
    const uint32_t count = process_count(job);
    const eo_log log = tool_job_log(log_catch);
    struct look mine = {.step = step, .manifest = hash_manifest(search->path)};
    eo_checkpoint_info info = {0};
    eo_checkpoint *checkpoint;
    eo_status status = eo_checkpoint_open(&checkpoint, search->path, &log);
    if (status >= 0) {
        eo_checkpoint_get_info(checkpoint, &info);
        status = eo_checkpoint_check(checkpoint, job->plan); /* of another model: no older one would be better */
    }
    status = share(search, &mine, status, log_catch, finder);
    const uint32_t rounds = (uint32_t)(info.bytes / ((uint64_t)ROUND_BYTES * count)) + 1;
    for (uint32_t k = 0; status >= 0 && *finder == count && k < rounds; k++)
        status = share(search, &mine, eo_checkpoint_verify_part(checkpoint, k * count + own_rank(job), rounds * count),
                       log_catch, finder);
    eo_checkpoint_close(&checkpoint);
    return status;
}

/* One after the other, by all processes in step. EO_IN_PROGRESS: there is none, or, with search->passed > 0, none is
 * whole. */
static eo_status find_whole(struct search *search)
{
    for (uint64_t step = UINT64_MAX;; search->passed++) {
        struct tool_log_catch log_catch;
        uint32_t finder = 0;
        tool_log_catch_init(&log_catch);
        const eo_log log = tool_job_log(&log_catch);
        const eo_status found = eo_checkpoint_find_before(search->path, TOOL_JOB_PATH_MAX, &step, search->folder, &log);
        if (found < 0)
            return refuse(&log_catch, found, search->problem);
        if (found == EO_IN_PROGRESS) {
            EO_TRY(exchange(search, &(struct look){.step = UINT64_MAX}));
            return EO_IN_PROGRESS;
        }
        EO_TRY(look_at(search, step, &log_catch, &finder));
        if (finder == process_count(search->job))
            return EO_OK;
        if (finder == own_rank(search->job))
            fprintf(stderr, "%s: --resume: warning: %s\n", program_invocation_short_name, log_catch.text);
    }
}

static eo_status newest_whole(struct tool_job_checkpoints *checkpoints, struct search *search)
{
    const eo_status status = find_whole(search);
    if (status == EO_IN_PROGRESS && search->passed)
        return tool_problem_set(search->problem, EO_ERR_IO,
                                "--resume: no checkpoint in %s is whole, so the run cannot continue; begin again in another "
                                "folder",
                                search->folder);
    checkpoints->goes_back = status == EO_OK && search->passed;
    if (checkpoints->goes_back && own_rank(search->job) == 0)
        fprintf(stderr, "%s: --resume: warning: the run goes back to %s: newer ones are damaged\n",
                program_invocation_short_name, search->path);
    return status;
}

/* -- both ----------------------------------------------------------------------------------------------------------*/

bool tool_job_is_checkpoint(const char *path)
{
    char manifest[TOOL_JOB_PATH_MAX + 16];
    snprintf(manifest, sizeof(manifest), "%s/manifest", path);
    return access(manifest, F_OK) == 0;
}

static eo_status find(struct tool_job_checkpoints *checkpoints, struct search *search)
{
    const char *folder = search->folder;
    const bool is_named = tool_job_is_checkpoint(folder);
    if (is_named && strlen(folder) >= TOOL_JOB_PATH_MAX)
        return tool_problem_set(search->problem, EO_ERR_INVALID, "--resume: a path of %zu bytes; give another", strlen(folder));
    if (is_named)
        snprintf(search->path, TOOL_JOB_PATH_MAX, "%s", folder);
    else
        EO_TRY(newest_whole(checkpoints, search));
    if (!search->path[0])
        return EO_IN_PROGRESS;
    EO_TRY(open_and_compare(search->job, search->path, search->problem));
    const struct look mine = {.step = search->job->first_step, .is_named = true, .manifest = hash_manifest(search->path)};
    return is_named ? exchange(search, &mine) : EO_OK;
}

/* Later steps of a run that was left are not removed by --keep, and a later --resume would take them. */
static void warn_of_later(const struct tool_job_checkpoints *checkpoints, uint64_t step)
{
    char path[TOOL_JOB_PATH_MAX];
    uint64_t newest = UINT64_MAX;
    const char *folder = checkpoints->options->folder;
    const eo_log silence = {0};
    if (folder && eo_checkpoint_find_before(path, sizeof(path), &newest, folder, &silence) == EO_OK && newest > step)
        fprintf(stderr, "%s: warning: %s is newer than the first step of this run, so a --resume without a folder would take "
                "it: move it away\n", program_invocation_short_name, path);
}

bool tool_job_is_same_folder(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return a && b && stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

eo_status tool_job_resume(struct tool_job_checkpoints *checkpoints, struct tool_job *job, struct tool_problem *problem)
{
    const struct tool_checkpoint_options *options = checkpoints->options;
    const char *folder = options->resume_path ? options->resume_path : options->folder;
    struct search search = {.job = job, .folder = folder, .path = checkpoints->resume_path, .problem = problem};
    search.all = calloc(process_count(job), sizeof(*search.all));
    if (!search.all)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "--resume: no memory");
    const eo_status status = find(checkpoints, &search);
    free(search.all);
    if (status < 0)
        return status;
    if (status == EO_IN_PROGRESS && options->resume_path)
        return tool_problem_set(problem, EO_ERR_IO,
                                "--resume %s: holds no checkpoint; check the path, or leave --resume out",
                                options->resume_path);
    if (status == EO_IN_PROGRESS)
        printf("no checkpoint in %s yet: from the start\n", options->folder);
    if (job->first_step > job->options->steps)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--resume: %s is of step %" PRIu64 ", but --steps is %" PRIu64 "; --steps counts all steps of "
                                "the run, so give more",
                                checkpoints->resume_path, job->first_step, job->options->steps);
    checkpoints->goes_back = checkpoints->goes_back && tool_job_is_same_folder(options->folder, folder);
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

void tool_job_resume_set_aside(const struct tool_job_checkpoints *checkpoints, uint64_t first_step)
{
    char path[TOOL_JOB_PATH_MAX], to[TOOL_JOB_PATH_MAX + 32];
    const eo_log silence = {0};
    uint64_t step = UINT64_MAX;
    while (checkpoints->goes_back &&
           eo_checkpoint_find_before(path, sizeof(path), &step, checkpoints->options->folder, &silence) == EO_OK &&
           step > first_step) {
        if (rename_damaged(path, to, sizeof(to)))
            fprintf(stderr, "%s: renamed %s to %s\n", program_invocation_short_name, path, to);
        else
            fprintf(stderr, "%s: warning: cannot rename %s: %s; --keep counts it as a whole one\n",
                    program_invocation_short_name, path, strerror(errno));
    }
}
