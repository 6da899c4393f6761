/* SPDX-License-Identifier: MIT
 *
 * A flight recorder for each rank: in files where --flight-recorder names a folder; in memory alone where ranks are
 * processes, so that each can tell the others what it does.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/job_world.h"

static eo_status make_folder(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ? EO_OK : EO_ERR_IO;
}

/* Each start of a job has files of its own, so that a restart does not write over what led to it. */
static eo_status file_of(const struct eo_job_rank *rank, char *path, size_t bytes)
{
    const struct eo_job *job = rank->job;
    int used = snprintf(path, bytes, "%s", job->flight_folder);
    eo_status status = make_folder(path);
    if (status >= 0 && job->restart && used > 0 && (size_t)used < bytes) {
        used += snprintf(path + used, bytes - (size_t)used, "/restart-%u", job->restart);
        status = make_folder(path);
    }
    if (status >= 0 && (size_t)used + 24 < bytes)
        snprintf(path + used, bytes - (size_t)used, "/rank-%05u.flight", rank->rank);
    return status;
}

/* Of processes: who they are, which all of them know; of threads, who we are. */
static uint64_t run_of(const struct eo_job *job)
{
    uint64_t hash = 14695981039346656037u ^ (uint64_t)getpid();
    if (!job->together)
        return hash;
    hash = 14695981039346656037u;
    for (uint32_t r = 0; r < job->shape.rank_count; r++) {
        const eo_rank_info info = eo_rendezvous_rank_info(job->together->rendezvous, r);
        for (const char *c = info.host; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 1099511628211u;
        hash = (hash ^ info.process) * 1099511628211u;
    }
    return hash;
}

eo_status eo_job_recorder_start(struct eo_job_rank *rank)
{
    struct eo_job *job = rank->job;
    const eo_log log = eo_job_log(&rank->log_catch);
    char path[4096], host[64] = "";
    if (!job->flight_folder && !job->together)
        return EO_OK;
    if (job->flight_folder && file_of(rank, path, sizeof(path)) < 0) {
        log.write(log.user, EO_LOG_ERROR, "--flight-recorder: the folder cannot be made");
        return EO_ERR_IO;
    }
    (void)gethostname(host, sizeof(host) - 1);
    TOOLS_TRY(eo_flight_recorder_create(&rank->recorder, eo_flight_recorder_params(
        .path = job->flight_folder ? path : NULL, .rank = rank->rank, .rank_count = job->shape.rank_count, .host = host,
        .run = run_of(job), .log = &log)));
    if (job->together) {
        pthread_mutex_lock(&job->together->mutex);
        job->together->recorder = rank->recorder;
        pthread_mutex_unlock(&job->together->mutex);
    }
    return EO_OK;
}

void eo_job_recorder_stop(struct eo_job_rank *rank)
{
    struct eo_job *job = rank->job;
    if (job->together) {
        pthread_mutex_lock(&job->together->mutex);
        job->together->recorder = NULL;
        pthread_mutex_unlock(&job->together->mutex);
    }
    eo_flight_recorder_destroy(&rank->recorder);
}
