/* SPDX-License-Identifier: MIT
 *
 * Experiment 1: real NCCL with several ranks on one GPU. NCCL refuses two ranks with the same host and the same bus; but
 * which host a rank is on it asks its environment (NCCL_HOSTID), and each rank here is a process with an answer of its
 * own. The ranks then talk over the loop-back socket as hosts do, with NCCL's real bootstrap, proxies and errors.
 *
 * With --kill R rank R ends itself in the middle: measured is how long the others take to be told, and to abort. Gathers and
 * reductions have a communicator and a stream each, as in the library, and one waits for the other; both are aborted in one
 * group. With --apart 1 they are aborted one by one, that first which waits for the other: NCCL is expected not to return.
 */
#include <nccl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_program.h"

enum { RANKS_MAX = 8, TEXT_BYTES = 256 };

/* How far a rank came; the parent reads it when the rank is gone. */
enum state { STATE_NONE, STATE_NO_GPU, STATE_REFUSED, STATE_RUNNING, STATE_WRONG, STATE_STUCK, STATE_TOLD, STATE_ENDED };

struct rank_result {
    _Atomic int state;
    double init_s, mean_ms;
    double told_s, abort_s; /* from the start of the iteration to the error; -1: the abort hung */
    int iterations;
    char text[TEXT_BYTES];
};

struct shared {
    _Atomic int id_is_set;
    ncclUniqueId id;
    struct rank_result ranks[RANKS_MAX];
};

struct settings {
    long long ranks, mib, iterations, kill, apart, init_seconds, step_seconds, seconds;
};

struct rank {
    const struct settings *settings;
    struct shared *shared;
    struct rank_result *result;
    int rank;
    ncclComm_t parent, gather, reduce;
    cudaStream_t stream, reduce_stream;
    cudaEvent_t gathered, reduced;
    float *buffer, *host;
    size_t count; /* floats of one rank's part */
};

static _Noreturn void leave(struct rank *self, enum state state, const char *what, const char *why)
{
    snprintf(self->result->text, TEXT_BYTES, "%s: %s", what, why);
    atomic_store(&self->result->state, state);
    fprintf(stderr, "rank %d: %s: %s\n", self->rank, what, why);
    _exit(state == STATE_NO_GPU ? GPU_NOT_TRIED : GPU_FAILED);
}

static void need(struct rank *self, cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        leave(self, STATE_WRONG, what, cudaGetErrorString(error));
}

/* With communicators that do not block, a call is over when its communicator says so. */
static ncclResult_t settle(ncclComm_t comm, ncclResult_t first, double seconds)
{
    if (first != ncclSuccess && first != ncclInProgress)
        return first;
    const double end = gpu_now_s() + seconds;
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
        if (asked != ncclSuccess)
            return asked;
        if (gpu_now_s() > end)
            return ncclInProgress;
        sched_yield();
    }
    return state;
}

static void connect_ranks(struct rank *self)
{
    const struct settings *s = self->settings;
    if (self->rank == 0) {
        const ncclResult_t result = ncclGetUniqueId(&self->shared->id);
        if (result != ncclSuccess)
            leave(self, STATE_REFUSED, "ncclGetUniqueId", ncclGetErrorString(result));
        atomic_store(&self->shared->id_is_set, 1);
    }
    while (!atomic_load(&self->shared->id_is_set))
        usleep(1000);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = 4;
    const double start = gpu_now_s();
    const ncclResult_t first = ncclCommInitRankConfig(&self->parent, (int)s->ranks, self->shared->id, self->rank, &config);
    ncclResult_t result = settle(self->parent, first, (double)s->init_seconds);
    ncclComm_t *const parts[] = {&self->gather, &self->reduce};
    for (int i = 0; i < 2 && result == ncclSuccess; i++) {
        result = ncclCommSplit(self->parent, 0, self->rank, parts[i], &config);
        if (result == ncclSuccess) /* it has only begun */
            result = settle(self->parent, ncclInProgress, (double)s->init_seconds);
        if (result == ncclSuccess)
            result = settle(*parts[i], ncclInProgress, (double)s->init_seconds);
    }
    if (result != ncclSuccess)
        leave(self, STATE_REFUSED, "the communicators",
              result == ncclInProgress ? "not connected in time" : ncclGetLastError(self->parent));
    self->result->init_s = gpu_now_s() - start;
}

static void give_up(const struct rank *self)
{
    if (!self->settings->apart)
        (void)ncclGroupStart();
    (void)ncclCommAbort(self->reduce);
    (void)ncclCommAbort(self->gather);
    (void)ncclCommAbort(self->parent);
    if (!self->settings->apart)
        (void)ncclGroupEnd();
}

/* The two collectives are on their streams; waits for them and for errors. Leaves the program where there is one. */
static void await_iteration(struct rank *self, double start)
{
    for (;;) {
        const cudaError_t running = cudaStreamQuery(self->stream);
        if (running == cudaSuccess)
            return;
        if (running != cudaErrorNotReady)
            need(self, running, "the collectives");
        (void)cudaGetLastError();
        ncclResult_t state = ncclSuccess;
        (void)ncclCommGetAsyncError(self->gather, &state);
        if (state == ncclSuccess)
            (void)ncclCommGetAsyncError(self->reduce, &state);
        const double waited = gpu_now_s() - start;
        const bool told = state != ncclSuccess && state != ncclInProgress;
        if (told || waited > (double)self->settings->step_seconds) {
            self->result->told_s = waited;
            snprintf(self->result->text, TEXT_BYTES, "%s", told ? ncclGetLastError(self->gather) : "no error, and no end");
            atomic_store(&self->result->state, told ? STATE_TOLD : STATE_STUCK);
            fprintf(stderr, "rank %d: %s, after %.2f s\n", self->rank, self->result->text, waited);
            self->result->abort_s = -1;
            const double before = gpu_now_s();
            give_up(self); /* may hang: the parent has a time limit */
            self->result->abort_s = gpu_now_s() - before;
            _exit(GPU_FAILED);
        }
        sched_yield();
    }
}

/* All-gather of parts that hold rank + 1, then their sum: (rank + 1) x ranks in each rank's own part. */
static void iterate(struct rank *self, int iteration)
{
    const int ranks = (int)self->settings->ranks;
    float *mine = self->buffer + self->count * (size_t)self->rank;
    for (size_t i = 0; i < self->count; i++)
        self->host[i] = (float)(self->rank + 1 + iteration % 3);
    need(self, cudaMemcpyAsync(mine, self->host, self->count * sizeof(float), cudaMemcpyHostToDevice, self->stream), "upload");
    need(self, cudaStreamSynchronize(self->stream), "upload");
    const double start = gpu_now_s();
    ncclResult_t result =
        settle(self->gather, ncclAllGather(mine, self->buffer, self->count, ncclFloat, self->gather, self->stream), 20);
    need(self, cudaEventRecord(self->gathered, self->stream), "an event");
    need(self, cudaStreamWaitEvent(self->reduce_stream, self->gathered, 0), "an event");
    if (result == ncclSuccess)
        result = settle(
            self->reduce,
            ncclReduceScatter(self->buffer, mine, self->count, ncclFloat, ncclSum, self->reduce, self->reduce_stream), 20);
    need(self, cudaEventRecord(self->reduced, self->reduce_stream), "an event");
    need(self, cudaStreamWaitEvent(self->stream, self->reduced, 0), "an event");
    if (result != ncclSuccess) {
        self->result->told_s = gpu_now_s() - start;
        leave(self, STATE_TOLD, "issue of a collective", ncclGetErrorString(result));
    }
    await_iteration(self, start);
    self->result->mean_ms += (gpu_now_s() - start) * 1e3 / (double)self->settings->iterations;
    need(self, cudaMemcpy(self->host, mine, self->count * sizeof(float), cudaMemcpyDeviceToHost), "download");
    const float expected = (float)((self->rank + 1 + iteration % 3) * ranks);
    for (size_t i = 0; i < self->count; i++) {
        if (self->host[i] != expected) {
            char text[TEXT_BYTES];
            snprintf(text, sizeof(text), "iteration %d, element %zu is %g, not %g", iteration, i,
                     (double)self->host[i], (double)expected);
            leave(self, STATE_WRONG, "wrong sum", text);
        }
    }
    self->result->iterations = iteration + 1;
}

static _Noreturn void run_rank(struct rank *self)
{
    const struct settings *s = self->settings;
    char host[32], why[TEXT_BYTES];
    snprintf(host, sizeof(host), "rank-share-%d", self->rank);
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_NET", "Socket", 0);
    if (gpu_device_count(why, sizeof(why)) == 0)
        leave(self, STATE_NO_GPU, "rank_share", why);
    int lowest, highest;
    need(self, cudaSetDevice(0), "cudaSetDevice");
    need(self, cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    need(self, cudaStreamCreateWithPriority(&self->stream, cudaStreamNonBlocking, highest), "a stream");
    need(self, cudaStreamCreateWithPriority(&self->reduce_stream, cudaStreamNonBlocking, highest), "a stream");
    need(self, cudaEventCreateWithFlags(&self->gathered, cudaEventDisableTiming), "an event");
    need(self, cudaEventCreateWithFlags(&self->reduced, cudaEventDisableTiming), "an event");
    self->count = ((size_t)s->mib << 20) / sizeof(float) / (size_t)s->ranks;
    self->host = malloc(self->count * sizeof(float));
    if (!self->host)
        leave(self, STATE_WRONG, "memory", "none");
    need(self, cudaMalloc((void **)&self->buffer, self->count * (size_t)s->ranks * sizeof(float)), "device memory");
    connect_ranks(self);
    atomic_store(&self->result->state, STATE_RUNNING);
    for (int i = 0; i < (int)s->iterations; i++) {
        if (self->rank == (int)s->kill && i == (int)s->iterations / 2)
            kill(getpid(), SIGKILL);
        iterate(self, i);
    }
    ncclComm_t const all[] = {self->gather, self->reduce, self->parent};
    for (int i = 0; i < 3; i++) {
        (void)settle(all[i], ncclCommFinalize(all[i]), 20);
        (void)ncclCommDestroy(all[i]);
    }
    atomic_store(&self->result->state, STATE_ENDED);
    _exit(GPU_HELD);
}

/* Waits for the children; those that are left at the end of the time are killed. */
static void await_ranks(pid_t *children, int count, double seconds)
{
    const double end = gpu_now_s() + seconds;
    for (int left = count; left > 0;) {
        left = 0;
        for (int r = 0; r < count; r++) {
            if (children[r] > 0 && waitpid(children[r], NULL, WNOHANG) != 0)
                children[r] = 0;
            left += children[r] > 0;
        }
        if (left > 0 && gpu_now_s() > end) {
            for (int r = 0; r < count; r++)
                if (children[r] > 0)
                    kill(children[r], SIGKILL);
        }
        usleep(10000);
    }
}

static const char *text_of(enum state state)
{
    switch (state) {
    case STATE_NONE: return "not begun";
    case STATE_NO_GPU: return "no GPU";
    case STATE_REFUSED: return "refused";
    case STATE_RUNNING: return "ended from outside";
    case STATE_WRONG: return "wrong";
    case STATE_STUCK: return "stuck, and told nothing";
    case STATE_TOLD: return "told";
    case STATE_ENDED: return "ended well";
    }
    return "?";
}

static int report(const struct settings *s, struct shared *shared)
{
    bool held = true, no_gpu = false;
    for (int r = 0; r < (int)s->ranks; r++) {
        const struct rank_result *result = &shared->ranks[r];
        const enum state state = (enum state)atomic_load(&shared->ranks[r].state);
        const bool killed = r == (int)s->kill;
        held = held && state == (killed ? STATE_RUNNING : s->kill >= 0 ? STATE_TOLD : STATE_ENDED);
        no_gpu = no_gpu || state == STATE_NO_GPU;
        printf("rank %d: %s%s%s; init %.2f s, %d iterations, %.3f ms each", r, killed ? "killed" : text_of(state),
               result->text[0] ? ": " : "", result->text, result->init_s, result->iterations, result->mean_ms);
        if (state == STATE_TOLD || state == STATE_STUCK)
            printf("; given up after %.2f s, the abort %s %.2f s", result->told_s,
                   result->abort_s < 0 ? "hung" : "took", result->abort_s);
        printf("\n");
        printf("{\"experiment\": \"E1\", \"ranks\": %lld, \"mib\": %lld, \"kill\": %lld, \"rank\": %d, \"state\": \"%s\", "
               "\"init_s\": %.3f, \"iterations\": %d, \"iteration_ms\": %.3f, \"error_s\": %.3f, \"abort_s\": %.3f}\n",
               s->ranks, s->mib, s->kill, r, killed ? "killed" : text_of(state), result->init_s, result->iterations,
               result->mean_ms, result->told_s, result->abort_s);
    }
    return no_gpu ? GPU_NOT_TRIED : held ? GPU_HELD : GPU_FAILED;
}

int main(int argc, char **argv)
{
    struct settings s = {.ranks = 2, .mib = 64, .iterations = 20, .kill = -1, .init_seconds = 60, .step_seconds = 20,
                         .seconds = 110};
    const struct gpu_option options[] = {
        {.name = "ranks", .least = 2, .most = RANKS_MAX, .value = &s.ranks},
        {.name = "mib", .least = 1, .most = 4096, .value = &s.mib},
        {.name = "iterations", .least = 2, .most = 100000, .value = &s.iterations},
        {.name = "kill", .least = -1, .most = RANKS_MAX - 1, .value = &s.kill},
        {.name = "apart", .least = 0, .most = 1, .value = &s.apart},
        {.name = "init-seconds", .least = 1, .most = 600, .value = &s.init_seconds},
        {.name = "step-seconds", .least = 1, .most = 600, .value = &s.step_seconds},
        {.name = "seconds", .least = 1, .most = 3600, .value = &s.seconds},
    };
    gpu_options(argc, argv, options, sizeof(options) / sizeof(options[0]),
                "NCCL ranks as processes that share a GPU; --kill R ends one");
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return GPU_NOT_TRIED;
    }
    /* Before any call of CUDA: a context does not survive a fork. */
    pid_t children[RANKS_MAX];
    fflush(NULL);
    for (int r = 0; r < (int)s.ranks; r++) {
        children[r] = fork();
        if (children[r] == 0) {
            struct rank self = {.settings = &s, .shared = shared, .result = &shared->ranks[r], .rank = r};
            run_rank(&self);
        }
    }
    await_ranks(children, (int)s.ranks, (double)s.seconds);
    return report(&s, shared);
}
