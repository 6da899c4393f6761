/* SPDX-License-Identifier: MIT
 *
 * A flight recorder for each rank: in files where --flight-recorder names a folder; in memory alone where ranks are
 * processes, so that each can tell the others what it does.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run/ranks/world.h"
#include "tools/shared/overwrite.h"
#include "tools/shared/weights_hash.h"

#define FILE_FORMAT "rank-%05u.flight"
#define RESTART_FORMAT "restart-%u"

/* Each start of a job has files of its own, so that a restart does not write over what led to it. */
static void folder_of(const struct tool_job *job, char *path, size_t bytes)
{
    if (job->restart)
        snprintf(path, bytes, "%s/" RESTART_FORMAT, job->flight_folder, job->restart);
    else
        snprintf(path, bytes, "%s", job->flight_folder);
}

static eo_status make_folder(const char *path, struct tool_problem *problem)
{
    EO_TRY(tool_check_folder("--flight-recorder", path, problem));
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return tool_problem_set(problem, EO_ERR_INVALID, "--flight-recorder %s: cannot be created: %s", path, strerror(errno));
    return EO_OK;
}

/* The number in a name such as rank-00003.flight; false: it is no such name. */
static bool number_in(const char *name, const char *format, uint32_t *number)
{
    char same[64];
    if (sscanf(name, format, number) != 1)
        return false;
    snprintf(same, sizeof(same), format, *number);
    return strcmp(same, name) == 0;
}

/* Files of ranks from `first` on: an earlier job with more of them has left them. */
static void remove_files(const char *folder, uint32_t first)
{
    char path[4096];
    uint32_t rank;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (number_in(entry->d_name, FILE_FORMAT, &rank) && rank >= first &&
            (size_t)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) < sizeof(path))
            (void)unlink(path);
    if (entries)
        closedir(entries);
}

/* An earlier job's, of starts that this one has not come to. */
static void remove_restarts(const struct tool_job *job)
{
    char path[4096];
    uint32_t restart;
    DIR *entries = opendir(job->flight_folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (number_in(entry->d_name, RESTART_FORMAT, &restart) && restart > job->restart &&
            (size_t)snprintf(path, sizeof(path), "%s/%s", job->flight_folder, entry->d_name) < sizeof(path)) {
            remove_files(path, 0);
            (void)rmdir(path); /* not, where somebody has put something into it */
        }
    if (entries)
        closedir(entries);
}

/* What an earlier job has left is no part of this one. None of it has a name that a rank of this start gives. */
eo_status tool_job_recorder_prepare(struct tool_job *job, struct tool_problem *problem)
{
    char path[4096];
    if (!job->flight_folder)
        return EO_OK;
    folder_of(job, path, sizeof(path));
    EO_TRY(make_folder(job->flight_folder, problem));
    EO_TRY(make_folder(path, problem));
    remove_files(path, job->shape.rank_count);
    remove_restarts(job);
    return EO_OK;
}

/* Of processes: who they are, which all of them know; of threads, who we are. */
static uint64_t run_of(const struct tool_job *job)
{
    uint64_t hash = TOOL_HASH_START;
    if (!job->together)
        return hash ^ (uint64_t)getpid();
    for (uint32_t r = 0; r < job->shape.rank_count; r++) {
        const eo_rank_info info = eo_rendezvous_rank_info(job->together->rendezvous, r);
        hash = tool_hash_more(hash, info.host, strlen(info.host));
        hash = tool_hash_more(hash, &info.process, sizeof(info.process));
    }
    return hash;
}

eo_status tool_job_recorder_start(struct tool_job_rank *rank)
{
    struct tool_job *job = rank->job;
    const eo_log log = tool_job_log(&rank->log_catch);
    char folder[4096], path[4096 + 32] = "", host[64] = "";
    if (!job->flight_folder && !job->together)
        return EO_OK;
    if (job->flight_folder) {
        folder_of(job, folder, sizeof(folder));
        snprintf(path, sizeof(path), "%s/" FILE_FORMAT, folder, rank->rank);
    }
    (void)gethostname(host, sizeof(host) - 1);
    EO_TRY(eo_flight_recorder_create(&rank->recorder, eo_flight_recorder_params(
        .path = job->flight_folder ? path : NULL, .rank = rank->rank, .rank_count = job->shape.rank_count, .host = host,
        .run = run_of(job), .log = &log)));
    if (job->together) {
        pthread_mutex_lock(&job->together->mutex);
        job->together->recorder = rank->recorder;
        pthread_mutex_unlock(&job->together->mutex);
    }
    return EO_OK;
}

void tool_job_recorder_stop(struct tool_job_rank *rank)
{
    struct tool_job *job = rank->job;
    if (job->together) {
        pthread_mutex_lock(&job->together->mutex);
        job->together->recorder = NULL;
        pthread_mutex_unlock(&job->together->mutex);
    }
    eo_flight_recorder_destroy(&rank->recorder);
}
