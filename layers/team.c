/* SPDX-License-Identifier: MIT */
#include "layers/team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/float_mode.h"
#include "base/pause.h"
#include "base/thread.h"
#include "layers/checks.h"
#include "layers/cpu/kernels.h"

enum { TEAM_SPINS = 1000 };

/* `state` of a team: run number in the high half, then whether workers may still join, then how many have. */
#define TEAM_OPEN   ((uint64_t)1 << 31)
#define TEAM_ACTIVE (TEAM_OPEN - 1)

/*
 * A run is published by one store of `state`. A worker joins by a compare-and-swap that raises the number of active
 * ones while the run is open; it reads the task only after that. The caller closes the run when no index is left and
 * waits for those who joined: a worker that wakes too late finds the run closed and touches nothing. So a sleeping or
 * displaced worker never holds up the caller.
 */
struct cpu_team {
    struct eo_team base;
    _Alignas(64) _Atomic uint64_t state;
    _Alignas(64) _Atomic uint32_t next; /* index to hand out */
    void (*task)(void *arg, uint32_t index);
    void *arg;
    uint32_t count;
    uint64_t float_mode;

    _Alignas(64) pthread_mutex_t mutex;
    pthread_cond_t work; /* workers sleep here */
    pthread_cond_t idle; /* the caller sleeps here */
    _Atomic uint32_t sleepers;
    _Atomic bool caller_sleeps;
    _Atomic bool stop;
    uint32_t thread_count;
    uint32_t worker_count; /* of those that were started */
    pthread_t *workers;
    eo_log log;
};

static void take_tasks(struct cpu_team *team)
{
    for (;;) {
        const uint32_t index = atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed);
        if (index >= team->count)
            return;
        team->task(team->arg, index);
    }
}

/* True when this thread has joined an open run other than `done`. */
static bool join_run(struct cpu_team *team, uint64_t done, uint64_t *run)
{
    uint64_t state = atomic_load(&team->state);
    while ((state & TEAM_OPEN) && state >> 32 != done)
        if (atomic_compare_exchange_weak(&team->state, &state, state + 1)) {
            *run = state >> 32;
            return true;
        }
    return false;
}

static void leave_run(struct cpu_team *team)
{
    const uint64_t before = atomic_fetch_sub(&team->state, 1);
    if ((before & TEAM_ACTIVE) == 1 && atomic_load(&team->caller_sleeps)) {
        pthread_mutex_lock(&team->mutex);
        pthread_cond_signal(&team->idle);
        pthread_mutex_unlock(&team->mutex);
    }
}

/* `sleepers` rises before the last look at `state`, and the caller publishes before it looks at `sleepers`: one of
 * the two sees the other. */
static bool wait_for_run(struct cpu_team *team, uint64_t done, uint64_t *run)
{
    for (int spin = 0; spin < TEAM_SPINS; spin++) {
        if (join_run(team, done, run))
            return true;
        eo_spin_pause();
    }
    bool joined = false;
    pthread_mutex_lock(&team->mutex);
    atomic_fetch_add(&team->sleepers, 1);
    while (!(joined = join_run(team, done, run)) && !atomic_load(&team->stop))
        pthread_cond_wait(&team->work, &team->mutex);
    atomic_fetch_sub(&team->sleepers, 1);
    pthread_mutex_unlock(&team->mutex);
    return joined;
}

static void *team_worker(void *arg)
{
    struct cpu_team *team = arg;
    uint64_t run = 0;
    while (wait_for_run(team, run, &run)) {
        eo_float_mode_set(team->float_mode);
        take_tasks(team);
        leave_run(team);
    }
    return NULL;
}

static bool run_is_idle(struct cpu_team *team)
{
    return (atomic_load(&team->state) & TEAM_ACTIVE) == 0;
}

static void wait_until_idle(struct cpu_team *team)
{
    for (int spin = 0; spin < TEAM_SPINS; spin++) {
        if (run_is_idle(team))
            return;
        eo_spin_pause();
    }
    pthread_mutex_lock(&team->mutex);
    atomic_store(&team->caller_sleeps, true);
    while (!run_is_idle(team))
        pthread_cond_wait(&team->idle, &team->mutex);
    atomic_store(&team->caller_sleeps, false);
    pthread_mutex_unlock(&team->mutex);
}

void eo_team_run(eo_team *base, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    struct cpu_team *team = (struct cpu_team *)base; /* its first member */
    if (team == NULL || team->worker_count == 0 || count <= 1) {
        for (uint32_t index = 0; index < count; index++)
            task(arg, index);
        return;
    }
    const uint64_t run = (atomic_load(&team->state) >> 32) + 1;
    team->task = task;
    team->arg = arg;
    team->count = count;
    team->float_mode = eo_float_mode_get();
    atomic_store_explicit(&team->next, 0, memory_order_relaxed);
    atomic_store(&team->state, run << 32 | TEAM_OPEN);
    if (atomic_load(&team->sleepers) > 0) {
        pthread_mutex_lock(&team->mutex);
        pthread_cond_broadcast(&team->work);
        pthread_mutex_unlock(&team->mutex);
    }
    take_tasks(team);
    atomic_fetch_and(&team->state, ~TEAM_OPEN);
    wait_until_idle(team);
}

uint32_t eo_team_thread_count(const eo_team *team)
{
    if (team == NULL || team->backend != &eo_team_cpu_backend)
        return 1;
    return ((const struct cpu_team *)team)->thread_count;
}

static void team_parallel_run(void *team, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    eo_team_run(team, count, task, arg);
}

eo_parallel eo_team_parallel(eo_team *team)
{
    return (eo_parallel){.run = team_parallel_run, .team = team, .thread_count = eo_team_thread_count(team)};
}

void eo_team_tell(const eo_team *team, const char *what)
{
    if (team == NULL)
        return;
    const eo_log *log = &((const struct cpu_team *)team)->log;
    if (team->layer)
        eo_layers_log(log, EO_LOG_ERROR, "rank %u, %s, %s: %s", team->rank, team->layer, team->pass, what);
    else
        eo_layers_log(log, EO_LOG_ERROR, "%s", what);
}

static eo_status start_workers(struct cpu_team *team)
{
    if (team->thread_count == 1)
        return EO_OK;
    team->workers = calloc(team->thread_count - 1, sizeof(*team->workers));
    if (team->workers == NULL)
        return EO_ERR_NO_MEMORY;
    while (team->worker_count < team->thread_count - 1) {
        const int error = eo_thread_start(&team->workers[team->worker_count], team_worker, team);
        if (error != 0) {
            eo_layers_log(&team->log, EO_LOG_ERROR, "team: thread %u of %u could not be started: %s; %s%s",
                          team->worker_count + 2, team->thread_count, strerror(error),
                          error == EAGAIN ? "lower thread_count, or " : "", eo_thread_remedy(error));
            return EO_ERR_NO_MEMORY;
        }
        team->worker_count++;
    }
    return EO_OK;
}

static void team_destroy(eo_team *base)
{
    struct cpu_team *t = (struct cpu_team *)base;
    pthread_mutex_lock(&t->mutex);
    atomic_store(&t->stop, true);
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->mutex);
    for (uint32_t worker = 0; worker < t->worker_count; worker++)
        pthread_join(t->workers[worker], NULL);
    pthread_cond_destroy(&t->work);
    pthread_cond_destroy(&t->idle);
    pthread_mutex_destroy(&t->mutex);
    free(t->workers);
    free(t);
}

static eo_status team_create(eo_team **out, const eo_team_params *params)
{
    LAYERS_REQUIRE(params->log, params->thread_count <= EO_TEAM_THREADS_MAX,
                   "team: %u threads; at most %d are possible; lower thread_count", params->thread_count, EO_TEAM_THREADS_MAX);
    struct cpu_team *team = aligned_alloc(64, sizeof(*team));
    if (team == NULL)
        return EO_ERR_NO_MEMORY;
    *team =
        (struct cpu_team){.base = {.backend = &eo_team_cpu_backend, .owner = getpid()}, .thread_count = params->thread_count};
    if (params->log)
        team->log = *params->log;
    pthread_mutex_init(&team->mutex, NULL); /* cannot fail on Linux without attributes */
    pthread_cond_init(&team->work, NULL);
    pthread_cond_init(&team->idle, NULL);
    const eo_status status = start_workers(team);
    if (status < 0) {
        team_destroy(&team->base); /* joins those that were started */
        return status;
    }
    *out = &team->base;
    return EO_OK;
}

static uint64_t team_memory_bytes(const eo_team *team)
{
    (void)team;
    return 0;
}

static const struct eo_kernel_ops *const cpu_kernels[] = {
    &eo_kernels_cpu_ops, &eo_kernels_cpu_bf16_ops, &eo_kernels_reference_ops, NULL};

const struct eo_team_backend eo_team_cpu_backend = {
    .device = "cpu",
    .kernels = cpu_kernels,
    .create = team_create,
    .destroy = team_destroy,
    .memory_bytes = team_memory_bytes,
    .measure = eo_cpu_product_measure,
};

/* ---- of any backend ---- */

const struct eo_team_backend *eo_team_backend_of(const eo_team *team)
{
    return team == NULL ? &eo_team_cpu_backend : team->backend;
}

eo_status eo_team_create(eo_team **out, uint32_t thread_count)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (thread_count == 0)
        return EO_ERR_INVALID;
    return team_create(out, eo_team_params(.device = "cpu", .thread_count = thread_count));
}

void eo_team_destroy(eo_team **team)
{
    if (team == NULL || *team == NULL)
        return;
    eo_team *t = *team;
    *team = NULL;
    if (t->owner != getpid()) /* its threads are another process's */
        return;
    t->backend->destroy(t);
}

uint64_t eo_team_memory_bytes(const eo_team *team)
{
    return eo_team_backend_of(team)->memory_bytes(team);
}

eo_status eo_product_measure(eo_team *team, const eo_product *product, double *flops_per_s)
{
    if (product == NULL || flops_per_s == NULL || product->m == 0 || product->n == 0 || product->k == 0)
        return EO_ERR_INVALID;
    return eo_team_backend_of(team)->measure(team, product, flops_per_s);
}
