/* SPDX-License-Identifier: MIT */
#include "tools/run/ranks/world.h"

#include <evenodd/world_mpi.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/plain_text.h"
#include "base/thread.h"
#include "tools/run/checkpoint/checkpoint.h"
#include "tools/shared/arguments.h"
#include "tools/shared/patient_output.h"
#include "tools/shared/told.h"

enum { SILENCE_FOUND_US = 500000, ERROR_WAIT_MS = 100, SHARED_RANKS_MAX = 64 /* evenodd/cluster.h */ };
enum world_key { WORLD_COLLECTIVES = 0x400, WORLD_JOIN, WORLD_SILENCE, WORLD_FLIGHT, WORLD_INSECURE };

static const struct argp_option world_options[] = {
    {.doc = "Ranks as processes (mpirun, srun, torchrun, evenodd-launch):", .group = 5},
    {"collectives", WORLD_COLLECTIVES, "NAME", 0,
     "shared, mpi or nccl [up to 64 ranks on one machine: shared; else mpi; with --device cuda: nccl]", 5},
    {"join-timeout", WORLD_JOIN, "S", 0, "seconds to wait for all ranks to join, and at other meetings outside of steps [60]",
     5},
    {"rank-timeout", WORLD_SILENCE, "S", 0,
     "a rank is lost after so many seconds without a sign of life, or in one collective (also for ranks as threads) [60]", 5},
    {"flight-recorder", WORLD_FLIGHT, "DIR", 0,
     "record each rank's last operations in a file of DIR, for evenodd-postmortem; also for ranks as threads [no files]", 5},
    {"insecure", WORLD_INSECURE, NULL, 0,
     "let ranks of several hosts meet without a token: anyone with access to rank 0 can then join the job and speak for its "
     "ranks", 5},
    {0},
};

static error_t parse_world_option(int key, char *text, struct argp_state *state)
{
    struct tool_job_world *world = state->input;
    switch (key) {
    case WORLD_COLLECTIVES:
        if (strcmp(text, "shared") != 0 && strcmp(text, "mpi") != 0 && strcmp(text, "nccl") != 0)
            argp_error(state, "--collectives is '%s'; give shared, mpi or nccl", text);
        world->collectives = text;
        return 0;
    case WORLD_JOIN:
        world->join_s = tool_option_real(state, "join-timeout", text, 0.1, 86400);
        return 0;
    case WORLD_SILENCE:
        world->silence_s = tool_option_real(state, "rank-timeout", text, 0.1, 86400);
        return 0;
    case WORLD_FLIGHT: world->flight_folder = text; return 0;
    case WORLD_INSECURE: world->insecure = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp tool_job_world_argp = {.options = world_options, .parser = parse_world_option};

eo_status tool_job_world_read(struct tool_job_world *world, struct tool_options *options, struct tool_problem *problem)
{
    pthread_mutex_init(&world->mutex, NULL);
    EO_TRY(tool_world_environment_read(&world->environment, problem));
    if (world->environment.launcher) {
        options->world_ranks = world->environment.rank_count;
        options->host_ranks = world->environment.local_count;
        options->host_rank = world->environment.local_rank;
        options->world_launcher = world->environment.launcher;
    }
    if (world->environment.is_alone) /* unless --ranks asks for threads */
        options->plan.ranks = 1;
    return EO_OK;
}

/* ---- failures ---- */

static int exit_status_of(const eo_rank_failure *failure)
{
    if (failure->lost || failure->status == EO_ERR_COMM || failure->status == EO_ERR_TIMEOUT)
        return TOOL_EXIT_RANK_LOST;
    return failure->status == EO_ERR_INVALID || failure->status == EO_ERR_UNSUPPORTED ? TOOL_EXIT_BAD_INPUT : TOOL_EXIT_FAILED;
}

/* Whatever the other threads wait for: a collective library that does not come back, a device, a lock. This thread is
 * there from the start, for what a new one needs may be held by the one that hangs. */
static void *end_in_time(void *user)
{
    struct tool_job_world *world = user;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    while (sem_wait(&world->has_failed) != 0) {
    }
    sleep(TOOL_JOB_END_SECONDS);
    _exit(atomic_load(&world->failed_exit));
}

static eo_status start_end(struct tool_job_world *world, struct tool_problem *problem)
{
    pthread_t thread;
    sem_init(&world->has_failed, 0, 0);
    const int error = pthread_create(&thread, NULL, end_in_time, world);
    if (error != 0)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY,
                                "cannot start the thread that ends this process after a lost rank: %s; %s", strerror(error),
                                eo_thread_remedy(error));
    pthread_detach(thread);
    return EO_OK;
}

/* Of input, which is told once: the ranks mostly have the same, and all of them are there to tell it. */
static bool is_refusal(eo_status status, bool is_lost)
{
    return !is_lost && (status == EO_ERR_INVALID || status == EO_ERR_UNSUPPORTED);
}

/* By the rendezvous' thread. */
static void on_failed(void *user, const eo_rank_failure *failure)
{
    struct tool_job_world *world = user;
    const uint32_t rank = world->environment.rank;
    atomic_store(&world->failed_exit, exit_status_of(failure));
    sem_post(&world->has_failed); /* first: what follows may wait for a thread that hangs */
    pthread_mutex_lock(&world->mutex);
    const bool is_own = world->gave_up && !failure->lost &&
                        (failure->rank == rank || is_refusal(failure->status, false)); /* what it refused itself is said */
    pthread_mutex_unlock(&world->mutex);
    struct pollfd standard_error = {STDERR_FILENO, POLLOUT, 0};
    if (!is_own && poll(&standard_error, 1, ERROR_WAIT_MS) != 0 && /* nobody may read it, and others wait for this thread */
        (!is_refusal(failure->status, failure->lost) || tool_told_first(rank, failure->text)))
        dprintf(STDERR_FILENO, "%s: rank %u: %s%s\n", program_invocation_short_name, rank,
                failure->lost || failure->rank == UINT32_MAX || failure->rank == rank ? "" : "another rank gave up: ",
                failure->text);
    pthread_mutex_lock(&world->mutex);
    if (world->world) {
        struct tool_log_catch log_catch; /* it would say the same again */
        tool_log_catch_init(&log_catch);
        tool_log_catch_enter(&log_catch);
        eo_world_abort(world->world, failure->text);
        tool_log_catch_enter(NULL);
    }
    pthread_mutex_unlock(&world->mutex);
}

/* mpirun that is killed takes nobody along. Elsewhere a parent may end in peace: a shell that has started a rank by hand. */
static void look_for_launcher(struct tool_job_world *world)
{
    char text[160];
    if (!world->parent || !atomic_load(&world->has_joined) || getppid() == world->parent)
        return;
    snprintf(text, sizeof(text), "rank %u: %s, process %d, the parent of this process, has ended", world->environment.rank,
             world->environment.launcher, (int)world->parent);
    eo_rendezvous_fail(world->rendezvous, EO_ERR_COMM, text);
}

/* By the rendezvous' thread, several times a second. */
static void on_activity(void *user, char *text, size_t bytes)
{
    struct tool_job_world *world = user;
    look_for_launcher(world);
    pthread_mutex_lock(&world->mutex);
    if (world->recorder)
        eo_flight_recorder_last(world->recorder, text, bytes);
    else
        snprintf(text, bytes, "its start or end");
    pthread_mutex_unlock(&world->mutex);
}

static bool names_ranks(const char *text)
{
    return strncmp(text, "rank ", 5) == 0 || strncmp(text, "step ", 5) == 0 || strncmp(text, "the ranks ", 10) == 0;
}

void tool_job_world_fail(struct tool_job_world *world, eo_status status, const char *text)
{
    eo_rank_failure failure;
    char name[32];
    if (!world || !world->rendezvous)
        return;
    /* A collective that fails because a rank is gone: the rendezvous knows better which and why, and at once. */
    for (int i = 0; i < 200 && (status == EO_ERR_COMM || status == EO_ERR_TIMEOUT); i++) {
        if (eo_rendezvous_failure(world->rendezvous, &failure))
            break;
        usleep(10000);
    }
    pthread_mutex_lock(&world->mutex);
    const bool is_first = !world->gave_up && !eo_rendezvous_failure(world->rendezvous, &failure);
    world->gave_up = world->gave_up || is_first;
    pthread_mutex_unlock(&world->mutex);
    (void)eo_text_fit(failure.text, sizeof(failure.text), text); /* as the others get it */
    eo_text_clean(failure.text);
    const bool tells = is_first && (!is_refusal(status, false) || tool_told_first(world->environment.rank, failure.text));
    eo_rendezvous_fail(world->rendezvous, status, text); /* first: nobody may read standard error any more */
    snprintf(name, sizeof(name), "rank %u: ", world->environment.rank);
    if (tells) /* now: what is still to be undone may take longer than there is time */
        dprintf(STDERR_FILENO, "%s: %s%s\n", program_invocation_short_name, names_ranks(text) ? "" : name, text);
}

/* ---- joining ---- */

/* The first rank of a host has a connection for each other one, and a file for each; rank 0 one for each host. */
static void raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/*
 * All ranks come to the same. Open MPI ends, in its own words, a process that it did not start, so this is looked at
 * before it is loaded.
 */
eo_status tool_job_world_choose(struct tool_job_world *world, const char *device, struct tool_problem *problem)
{
    const struct tool_world_environment *e = &world->environment;
    if (!world->rendezvous)
        return EO_OK;
    const eo_rank_info first = eo_rendezvous_rank_info(world->rendezvous, 0);
    uint32_t other = 0; /* the first rank on another machine */
    for (uint32_t r = e->rank_count; r-- > 1;)
        other = eo_rendezvous_rank_info(world->rendezvous, r).machine == first.machine ? other : r;
    const bool is_one = other == 0 && first.machine != 0, is_chosen = !world->collectives;
    /* Of too many ranks for it, shared says what to do where there is no mpi. */
    const bool is_shared = is_one && (e->rank_count <= SHARED_RANKS_MAX || !e->has_mpi);
    if (is_chosen)
        world->collectives = strcmp(device, "cuda") == 0 ? "nccl" : is_shared ? "shared" : "mpi";
    if (strcmp(world->collectives, "mpi") == 0 && !e->has_mpi) {
        char why[300] = "";
        const eo_rank_info odd = eo_rendezvous_rank_info(world->rendezvous, first.machine == 0 ? 0 : other);
        if (is_chosen && odd.machine == 0)
            snprintf(why, sizeof(why),
                     "rank %u (host %s) cannot identify its machine: /proc/sys/kernel/random/boot_id cannot be "
                     "read; mount /proc. Without it this leaves ",
                     first.machine == 0 ? 0 : other, odd.host);
        else if (is_chosen)
            snprintf(why, sizeof(why), "rank 0 (host %s) and rank %u (host %s) cannot read each other's memory; without GPUs "
                     "this leaves ", first.host, other, eo_rendezvous_rank_info(world->rendezvous, other).host);
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%scollectives mpi, and Open MPI must find the ranks; start them with its mpirun or with srun "
                                "--mpi=pmix (this was %s)",
                                why, e->launcher);
    }
    /* Segments of Open MPI lie in /dev/shm, where its mpirun removes those of ranks that were killed. Under srun nobody does,
     * but Slurm removes the step's own folder. */
    const char *folder = getenv("PMIX_SERVER_TMPDIR");
    if (folder && strcmp(e->launcher, "Slurm") == 0)
        (void)setenv("OMPI_MCA_btl_vader_backing_directory", folder, 0);
    if (e->rank == 0)
        printf("world: %u processes on %s machine%s by %s, collectives %s\n", e->rank_count, is_one ? "one" : "several",
               is_one ? "" : "s", e->launcher, world->collectives);
    return EO_OK;
}

/* The descriptor, since the stream may be a patient one already. */
static eo_status be_silent(struct tool_problem *problem)
{
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    fflush(stdout);
    const bool done = nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0;
    const int error = errno;
    if (nowhere >= 0)
        close(nowhere);
    return done ? EO_OK : tool_problem_set(problem, EO_ERR_IO, "/dev/null: %s", strerror(error));
}

eo_status tool_job_world_join(struct tool_job_world *world, struct tool_problem *problem)
{
    const struct tool_world_environment *e = &world->environment;
    if (!e->launcher) {
        tool_patient_begin(&stdout, STDOUT_FILENO, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF);
        return EO_OK;
    }
    if (e->local_count < e->rank_count && !e->has_token && !world->insecure)
        return tool_problem_set(
            problem, EO_ERR_INVALID,
            "ranks of several hosts (%u of %u on this one) meet without a token: write one, name its file in "
            "EVENODD_TOKEN_FILE on all hosts (\"Tokens\" in docs/clusters.md), or give --insecure",
            e->local_count, e->rank_count);
    tool_log_catch_init(&world->log_catch);
    const eo_log log = tool_job_log(&world->log_catch);
    raise_limit();
    world->parent = strncmp(e->launcher, "mpirun", 6) == 0 ? getppid() : 0;
    EO_TRY(start_end(world, problem));
    const eo_status status = eo_rendezvous_create(&world->rendezvous, eo_rendezvous_params(
        .rank = e->rank, .rank_count = e->rank_count, .local_rank = e->local_rank, .local_count = e->local_count,
        .address = e->address[0] ? e->address : NULL, .port = e->port, .token = e->has_token ? e->token : NULL,
        .job = e->job, .timeout_ms = (uint32_t)(world->join_s * 1000), .silence_ms = (uint32_t)(world->silence_s * 1000),
        .failed = on_failed, .activity = on_activity, .user = world, .log = &log, .insecure = world->insecure));
    if (status < 0)
        return tool_problem_set(problem, status, "rank %u of %u (by %s): %s", e->rank, e->rank_count, e->launcher,
                                world->log_catch.text[0] ? world->log_catch.text : eo_status_text(status));
    atomic_store(&world->has_joined, true);
    if (e->rank != 0)
        EO_TRY(be_silent(problem));
    /* By lines: what was said is not lost when the process has to end at once. */
    tool_patient_begin(&stdout, STDOUT_FILENO, _IOLBF);
    return EO_OK;
}

/* ---- meetings ---- */

eo_status tool_job_world_sum(struct tool_job_world *world, double *value)
{
    if (!world || !world->rendezvous)
        return EO_OK;
    double *all = calloc(world->environment.rank_count, sizeof(*all));
    if (!all)
        return EO_ERR_NO_MEMORY;
    const eo_status status = eo_rendezvous_all_gather(world->rendezvous, value, sizeof(*value), all);
    *value = 0;
    for (uint32_t r = 0; r < world->environment.rank_count; r++)
        *value += all[r];
    free(all);
    return status;
}

/* ---- the world ---- */

eo_status tool_job_world_create(struct tool_job_world *world, struct tool_job *job, const eo_log *log)
{
    const struct tool_options *o = job->options;
    eo_world *made = NULL;
    const char *implicit = getenv("NCCL_LAUNCH_ORDER_IMPLICIT"); /* 0 is off, as without the variable */
    EO_TRY(eo_world_create_joined(&made, eo_world_join_params(
        .rendezvous = world->rendezvous, .device = o->plan.device, .device_index = world->environment.local_rank,
        .collectives = world->collectives, .launch_order_is_implicit = implicit && strcmp(implicit, "1") == 0,
        .node = getenv("NCCL_HOSTID"),
        /* a second more: who is silent is the rendezvous' to find, who is late in a collective is its own */
        .timeout_ms = (uint32_t)((world->silence_s > 0 ? world->silence_s : 60) * 1000) + 1000,
        .fabric_gigabytes_per_s = o->fabric_gigabytes_per_s, .fabric_latency_us = o->fabric_latency_us, .log = log)));
    eo_rank_failure failure;
    pthread_mutex_lock(&world->mutex);
    world->world = job->worlds[0] = made;
    if (eo_rendezvous_failure(world->rendezvous, &failure)) /* while it was made */
        eo_world_abort(made, failure.text);
    pthread_mutex_unlock(&world->mutex);
    return EO_OK;
}

void tool_job_world_destroy(struct tool_job_world *world, struct tool_job *job)
{
    pthread_mutex_lock(&world->mutex);
    world->world = NULL;
    pthread_mutex_unlock(&world->mutex);
    eo_world_destroy(&job->worlds[0]);
}

bool tool_job_world_was_told(struct tool_job_world *world)
{
    eo_rank_failure failure;
    return world->rendezvous && (world->gave_up || eo_rendezvous_failure(world->rendezvous, &failure));
}

static void on_finalize_is_late(int number)
{
    static const char text[] = "MPI_Finalize does not return: a rank has ended before it, or hangs; all output is already "
                               "written\n";
    struct pollfd standard_error = {STDERR_FILENO, POLLOUT, 0};
    if (poll(&standard_error, 1, 0) == 1 && write(STDERR_FILENO, text, sizeof(text) - 1) < 0) {
        /* nobody reads it */
    }
    _exit(TOOL_EXIT_RANK_LOST);
}

/* A world over mpi has started it. It waits for all ranks, in its own way, when nobody else watches any more. */
static void stop_mpi(const struct tool_job_world *world)
{
    signal(SIGALRM, on_finalize_is_late);
    alarm((unsigned int)ceil(world->silence_s > 0 ? world->silence_s : 60));
    eo_mpi_stop();
    alarm(0);
}

int tool_job_world_leave(struct tool_job_world *world, int status)
{
    eo_rank_failure failure;
    if (!world->rendezvous)
        return status;
    if (status != TOOL_EXIT_OK && !world->is_over && !eo_rendezvous_failure(world->rendezvous, &failure)) {
        world->gave_up = true; /* whoever chose the status has said why */
        tool_job_world_fail(world, status == TOOL_EXIT_BAD_INPUT ? EO_ERR_INVALID : EO_ERR_IO, "it ended with an error");
    }
    /* Who does not answer may have been the way to others, which then find out by themselves, a beat later. A launcher that
     * ends all when the first one ends must not end them before. */
    if (eo_rendezvous_failure(world->rendezvous, &failure) && failure.lost && failure.status == EO_ERR_TIMEOUT)
        usleep(SILENCE_FOUND_US);
    eo_rendezvous_destroy(&world->rendezvous); /* its thread has ended: nothing changes any more */
    const int failed_exit = atomic_load(&world->failed_exit);
    if (failed_exit == TOOL_EXIT_OK)
        stop_mpi(world); /* after a failure it could wait for ever */
    if (failed_exit == TOOL_EXIT_RANK_LOST || (failed_exit != TOOL_EXIT_OK && !world->gave_up))
        return failed_exit;
    return status;
}
