/* SPDX-License-Identifier: MIT
 *
 * The simulated NCCL: what it computes, and that it tells what NCCL keeps quiet about.
 * Method: ranks are threads that take turns; each case makes one mistake, and the text of the first violation must name it.
 */
#include <limits.h>
#include <nccl.h>
#include <string.h>

#include "tests/simulator/cuda/sim.h"
#include "tests/tap/tap.h"

enum { RANKS = 3, COUNT = 64 };

enum mistake {
    NO_MISTAKE,
    OTHER_COUNT,
    OTHER_TYPE,
    OTHER_OP,
    OTHER_ORDER,
    UNALIGNED,
    NOT_IN_PLACE,
    PAST_END,
    OTHER_OFFSET,
    TWO_WINDOWS,
    CUDA_MALLOC,
    AVERAGE,
    COLD_CAPTURE,
    REGISTER_IN_CAPTURE,
    COMM_BEFORE_GRAPH,
    AFTER_ABORT,
    STILL_REGISTERED,
    SYMMETRIC_KERNEL,
    UNPOLLED,
    SHARED_SPLIT,
    STUCK,
    MISTAKES
};

static const struct {
    const char *name, *text;
} mistakes[MISTAKES] = {
    {"all is well", NULL},
    {"counts differ", "calls ncclAllGather of"},
    {"types differ", "calls ncclAllGather of"},
    {"operations differ", "ncclReduceScatter"},
    {"two communicators in different orders", "wait for each other for ever"},
    {"a buffer is not aligned", "not aligned to 16"},
    {"send overlaps recv by another rule than in-place calls have", "in-place"},
    {"past the end of a window", "past the end of a registered"},
    {"other offsets in the windows", "different offsets"},
    {"a second window in one allocation", "second window"},
    {"memory of cudaMalloc is registered", "cannot be registered"},
    {"gradients are averaged", "ncclAvg"},
    {"a collective is captured that never ran", "never run before"},
    {"registration while capturing", "while capturing"},
    {"a communicator goes before its graph", "graph still holds"},
    {"use after abort", "was aborted"},
    {"destroyed while memory is registered", "still registered"},
    {"a symmetric kernel below 2.30.7", "symmetric kernel"},
    {"a non-blocking communicator is not polled", "the communicator is still"},
    {"the child of a split shares with its parent", "splitShare"},
    {"a rank never comes", NULL},
};

struct world {
    enum mistake mistake;
    ncclUniqueId ids[2];
    float sums[RANKS][COUNT];
    float gathered[RANKS][RANKS * COUNT];
    uint16_t halves[RANKS][COUNT];
};

struct rank {
    struct world *world;
    int rank;
};

static void settle(ncclComm_t comm, ncclResult_t result)
{
    while (result == ncclInProgress)
        CHECK_IS(ncclCommGetAsyncError(comm, &result), ncclSuccess);
    CHECK_IS(result, ncclSuccess);
}

static void fill(float *to, int rank, cudaStream_t stream)
{
    float *host;
    CHECK_IS(cudaHostAlloc((void **)&host, RANKS * COUNT * 4, 0), cudaSuccess);
    for (int i = 0; i < RANKS * COUNT; i++)
        host[i] = (float)(rank + 1) * (1.0f + (float)i / 7);
    CHECK_IS(cudaMemcpyAsync(to, host, RANKS * COUNT * 4, cudaMemcpyHostToDevice, stream), cudaSuccess);
    CHECK_IS(cudaStreamSynchronize(stream), cudaSuccess);
    CHECK_IS(cudaFreeHost(host), cudaSuccess);
}

static void fetch(void *host, const void *from, size_t bytes)
{
    CHECK_IS(cudaMemcpy(host, from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
}

static void capture(struct rank *self, ncclComm_t comm, float *memory, cudaStream_t stream)
{
    const enum mistake mistake = self->world->mistake;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    void *handle;
    CHECK_IS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    if (mistake == REGISTER_IN_CAPTURE)
        (void)ncclCommRegister(comm, memory, 4096, &handle);
    else if (mistake == COLD_CAPTURE)
        settle(comm, ncclAllReduce(memory, memory, COUNT, ncclFloat32, ncclSum, comm, stream));
    else
        settle(comm, ncclAllGather(memory, memory + 2048, COUNT, ncclFloat32, comm, stream));
    CHECK_IS(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    CHECK_IS(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int i = 0; i < 2; i++)
        CHECK_IS(cudaGraphLaunch(exec, stream), cudaSuccess);
    CHECK_IS(cudaStreamSynchronize(stream), cudaSuccess);
    if (mistake == COMM_BEFORE_GRAPH)
        settle(comm, ncclCommFinalize(comm));
    CHECK_IS(cudaGraphExecDestroy(exec), cudaSuccess);
    CHECK_IS(cudaGraphDestroy(graph), cudaSuccess);
}

/* Success, and under way: the window is there when the communicator has settled. */
static void register_window(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *window, int flags)
{
    *window = NULL;
    CHECK_IS(ncclCommWindowRegister(comm, memory, bytes, window, flags), ncclSuccess);
    settle(comm, ncclInProgress);
    if (!*window)
        tap_note(__FILE__, __LINE__, "a settled communicator has no window");
}

static void *rank_main(void *argument)
{
    struct rank *self = argument;
    struct world *world = self->world;
    const enum mistake mistake = world->mistake;
    const int r = self->rank;
    cudaStream_t stream;
    float *memory, *plain;
    ncclComm_t comm, other;
    ncclWindow_t window = NULL, second = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = r == 0 || mistake == UNPOLLED ? 0 : 1;
    config.splitShare = mistake == SHARED_SPLIT;
    CHECK_IS(cudaSetDevice(r), cudaSuccess);
    CHECK_IS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ncclResult_t result = ncclCommInitRankConfig(&comm, RANKS, world->ids[0], r, &config);
    if (mistake == UNPOLLED)
        (void)ncclCommRegister(comm, NULL, 0, (void **)&second);
    settle(comm, result);
    result = ncclCommSplit(comm, 0, r, &other, NULL);
    CHECK_IS(result, ncclSuccess);
    settle(comm, ncclInProgress); /* then the other is there */
    settle(other, ncclInProgress);
    CHECK_IS(ncclMemAlloc((void **)&memory, 65536), ncclSuccess);
    CHECK_IS(cudaMalloc((void **)&plain, 65536), cudaSuccess);
    fill(memory, r, stream);
    if (mistake == PAST_END || mistake == OTHER_OFFSET || mistake == TWO_WINDOWS || mistake == SYMMETRIC_KERNEL ||
        mistake == STILL_REGISTERED)
        register_window(comm, memory, mistake == PAST_END ? 4096 : 16384, &window,
                        mistake == SYMMETRIC_KERNEL ? NCCL_WIN_COLL_SYMMETRIC : 0);
    if (mistake == TWO_WINDOWS) {
        register_window(comm, memory + 8192, 8192, &second, NCCL_WIN_COLL_SYMMETRIC);
        CHECK_IS(ncclCommWindowDeregister(comm, window), ncclSuccess);
        register_window(comm, memory, 8192, &window, NCCL_WIN_COLL_SYMMETRIC);
    }
    if (mistake == CUDA_MALLOC) {
        void *handle;
        CHECK_IS(ncclCommRegister(comm, plain, 4096, &handle), ncclSuccess);
        CHECK_IS(ncclCommDeregister(comm, handle), ncclSuccess);
    }
    const bool odd = r == 1;
    float *gathered = memory + 2048, *sum = memory + 4096;
    const size_t at = mistake == UNALIGNED ? 1 : mistake == OTHER_OFFSET && odd ? 16 : mistake == PAST_END ? 900 : 0;
    if (mistake == OTHER_ORDER && odd)
        settle(other, ncclReduceScatter(memory, sum, COUNT, ncclFloat32, ncclSum, other, stream));
    settle(comm, ncclAllGather(memory + at, mistake == NOT_IN_PLACE ? memory + at + 16 : gathered,
                               mistake == OTHER_COUNT && odd ? COUNT / 2 : mistake == PAST_END ? 256 : COUNT,
                               mistake == OTHER_TYPE && odd ? ncclInt32 : ncclFloat32, comm, stream));
    if (mistake != OTHER_ORDER || !odd)
        settle(other, ncclReduceScatter(memory, sum, COUNT, ncclFloat32,
                                        mistake == AVERAGE ? ncclAvg : mistake == OTHER_OP && odd ? ncclMax : ncclSum,
                                        other, stream));
    if (mistake == COLD_CAPTURE || mistake == REGISTER_IN_CAPTURE || mistake == COMM_BEFORE_GRAPH || mistake == NO_MISTAKE)
        capture(self, comm, memory, stream);
    const cudaError_t ended = cudaStreamSynchronize(stream);
    CHECK_IS(ended, mistake == STUCK || (mistake == OTHER_ORDER) ? cudaErrorLaunchTimeout : cudaSuccess);
    if (mistake == NO_MISTAKE) {
        fetch(world->gathered[r], gathered, sizeof(world->gathered[r]));
        fetch(world->sums[r], sum, sizeof(world->sums[r]));
        settle(comm, ncclReduceScatter(memory, memory + COUNT / 2 * r, COUNT, ncclBfloat16, ncclSum, comm, stream));
        CHECK_IS(cudaStreamSynchronize(stream), cudaSuccess);
    }
    if (mistake == AFTER_ABORT) {
        CHECK_IS(ncclCommAbort(comm), ncclSuccess);
        CHECK_IS(ncclAllGather(memory, gathered, COUNT, ncclFloat32, comm, stream), ncclInvalidUsage);
    }
    if (window && mistake != STILL_REGISTERED)
        (void)ncclCommWindowDeregister(comm, window);
    if (mistake == TWO_WINDOWS)
        (void)ncclCommWindowDeregister(comm, second);
    if (mistake != AFTER_ABORT && ended == cudaSuccess) {
        CHECK_IS(ncclCommDestroy(comm), ncclSuccess);
        CHECK_IS(ncclCommDestroy(other), ncclSuccess);
        CHECK_IS(ncclMemFree(memory), ncclSuccess);
        CHECK_IS(cudaFree(plain), cudaSuccess);
        CHECK_IS(cudaStreamDestroy(stream), cudaSuccess);
    }
    return NULL;
}

static void run(enum mistake mistake, uint64_t seed)
{
    static struct world world;
    static struct rank ranks[RANKS];
    void *arguments[RANKS];
    sim_start(&(struct sim_config){.seed = seed,
                                   .quiet = mistake != NO_MISTAKE,
                                   .hang_ms = 200,
                                   .peer = mistake == STUCK ? SIM_PEER_STUCK : SIM_PEER_GOOD,
                                   .peer_rank = 2,
                                   .nccl_version = mistake == SYMMETRIC_KERNEL ? 23006 : 23102});
    memset(&world, 0, sizeof(world));
    world.mistake = mistake;
    CHECK_IS(ncclGetUniqueId(&world.ids[0]), ncclSuccess);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){&world, r};
        arguments[r] = &ranks[r];
    }
    sim_run_ranks(RANKS, rank_main, arguments);
    for (int r = 0; mistake == NO_MISTAKE && r < RANKS; r++) {
        for (int i = 0; i < COUNT; i++) {
            const float first = 1.0f + (float)(r * COUNT + i) / 7;
            CHECK(world.sums[r][i] == first * 1 + first * 2 + first * 3, "rank %d element %d", r, i);
            for (int o = 0; o < RANKS; o++)
                CHECK(world.gathered[r][o * COUNT + i] == (float)(o + 1) * (1.0f + (float)i / 7), "rank %d", r);
        }
    }
}

int main(void)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        run(NO_MISTAKE, seed);
        CHECK(sim_finish() == 0, "seed %llu: %s", (unsigned long long)seed, sim_violation(0));
    }
    tap_case("gathers, sums in rank order and captured collectives come out right under all policies, nothing is told");
    for (enum mistake mistake = NO_MISTAKE + 1; mistake < MISTAKES; mistake++) {
        run(mistake, mistake);
        CHECK(mistake == STUCK ? sim_fault_happened() : sim_violation_count() > 0, "nothing was told");
        CHECK(!mistakes[mistake].text || strstr(sim_violation(0), mistakes[mistake].text), "told instead: %s",
              sim_violation(0));
        tap_case(mistakes[mistake].name);
    }
    uint64_t hashes[2];
    for (int i = 0; i < 2; i++) {
        run(NO_MISTAKE, 17);
        hashes[i] = sim_order_hash();
    }
    CHECK(hashes[0] == hashes[1], "%llx %llx", (unsigned long long)hashes[0], (unsigned long long)hashes[1]);
    tap_case("a run of three ranks repeats itself, operation by operation");
    return tap_end();
}
