/* SPDX-License-Identifier: MIT
 *
 * Goal: the collectives on CUDA by themselves: what they compute under every schedule, that no wait of theirs is one too
 *       few, and that whatever goes wrong (a rank that is late, gone or different, a call that fails, a mode that this
 *       NCCL runs wrongly) ends on every rank, in time, with a text that names it, and with nothing used after.
 * Method: steps of a gather, a reduction of what was gathered, and a small gather at the end, on the simulated GPU;
 *         buffers are spoiled as soon as the contract allows it. With `threads` as argument only what goes well, with a
 *         real thread a stream, for ThreadSanitizer.
 */
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulator/cuda/sim.h"
#include "streams/cuda/state.h"
#include "streams/nccl/choice.h"
#include "streams/collective.h"
#include "tests/tap/tap.h"

enum { RANKS_MAX = 4, COUNT = 512, STEPS = 4, QUEUES = 3 };

/* The version of the header, and one that no mode is refused with: an older library than the header is never used. */
#define TEXT_OF(x)                      #x
#define VERSION_OF(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)
#define HEADER_VERSION                  VERSION_OF(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)
enum { MENDED = NCCL_VERSION_CODE > 23102 ? NCCL_VERSION_CODE : 23102 };

/* Of those who wait for a rank that does not come; and of all others, who never wait so long. */
enum { SHORT_MS = 800, LONG_MS = 60000, LATE_CLOSE_MS = 5000 };

/* What one rank does otherwise, in step 2. */
enum fault { NO_FAULT, OTHER_COUNT, OTHER_LABEL, LATE, LEAVES, ABORTS, PAST_END, NEVER_OPENS, CLOSES_LATE, CLOSES_LAST };

struct run {
    uint32_t ranks;
    bool nccl, graph, several_gpus, same_gpu, tells_peers, bf16, ordered;
    bool joins;    /* the gather is one operation with another before it */
    bool quiesces; /* after a step */
    bool adopts, hurries; /* of nccl: a communicator of the caller's, which may still be made */
    bool splits;   /* a group of all, for its info */
    bool waits_in_vain; /* some rank's deadline ends it */
    const char *mode;
    enum fault fault; /* of the last rank */

    /* what came of it, by rank */
    eo_status status[RANKS_MAX];
    char text[RANKS_MAX][1024]; /* the group's failure */
    char logged[RANKS_MAX][2048];
    char logged_by_group[2048]; /* of local-cuda */
    struct eo_group_info info[RANKS_MAX], inner_info;
    uint32_t wrong, captured, closed;
    ncclUniqueId id;
    unsigned char peers[RANKS_MAX][EO_GROUP_PEER_BYTES];
    struct eo_group *group; /* of local-cuda */
};

struct rank {
    struct run *run;
    uint32_t rank;
    const struct eo_comm_ops *ops;
    struct eo_device *device;
    struct eo_group *group;
    struct eo_comm *gather, *reduce;
    ncclComm_t own;
    unsigned char *memory, *host;
    uint64_t bytes, host_bytes;
    void *graph;
    struct eo_event computed, gathered, reduced, fetched;
    struct eo_span joined; /* the two gathers */
    uint64_t between_ns;   /* a stamp */
};

static void take_log(void *user, eo_log_level level, const char *text)
{
    char *all = user;
    if (level <= EO_LOG_WARN && strlen(all) + strlen(text) + 2 < sizeof(((struct run *)NULL)->logged[0]))
        strcat(strcat(all, text), "\n");
}

static uint32_t timeout_of(const struct run *run)
{
    return run->waits_in_vain ? SHORT_MS : LONG_MS;
}

static float value_of(uint32_t rank, uint32_t step, uint32_t i)
{
    return (float)((rank * 7 + step * 3 + i) % 50);
}

static eo_status ask_split(struct rank *self)
{
    struct eo_group *inner = NULL;
    struct eo_group_place place;
    EO_TRY(self->ops->group_split(&inner, &place, self->group, self->rank, 0, self->rank));
    if (self->rank == 0)
        self->ops->group_info(inner, &self->run->inner_info);
    self->ops->group_release(inner);
    return EO_OK;
}

/* What a caller brings. */
static eo_status make_own(struct rank *self, uint32_t index)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t state = ncclInProgress;
    if (cudaSetDevice((int)index) != cudaSuccess)
        return EO_ERR_DEVICE;
    ncclResult_t result = ncclCommInitRankConfig(&self->own, (int)self->run->ranks, self->run->id, (int)self->rank, &config);
    if (self->run->hurries)
        return result == ncclInProgress ? EO_OK : EO_ERR_COMM;
    while (result == ncclInProgress && ncclCommGetAsyncError(self->own, &state) == ncclSuccess && state == ncclInProgress)
        sim_yield();
    return result == ncclInProgress && state == ncclSuccess ? EO_OK : EO_ERR_COMM;
}

static eo_status open_rank(struct rank *self, const eo_log *log)
{
    struct run *run = self->run;
    const uint32_t r = self->rank, index = run->nccl || run->several_gpus ? (run->same_gpu ? 0 : r) : 0;
    EO_TRY(eo_device_create(&self->device, "cuda",
                            &(struct eo_device_params){.queue_count = QUEUES, .ring_capacity = 16, .rank = r,
                                                       .rank_count = run->ranks, .device_index = index,
                                                       .event_count = 8, .stamp_count = 64, .log = log}));
    if (run->nccl) {
        if (run->adopts)
            EO_TRY(make_own(self, index));
        const struct eo_group_join join = {.rank = r, .device_index = index, .id = run->adopts ? NULL : &run->id,
                                           .communicator = self->own, .mode = run->mode,
                                           .peers = run->tells_peers ? run->peers : NULL,
                                           .ordered_launches = run->ordered};
        EO_TRY(self->ops->group_create(&self->group, &(const struct eo_group_params){
                                                         .rank_count = run->ranks, .timeout_ms = timeout_of(run), .join = &join,
                                                         .log = log}));
    } else {
        self->group = run->group;
    }
    if (run->splits)
        EO_TRY(ask_split(self));
    if (run->fault == NEVER_OPENS && r == run->ranks - 1)
        return EO_ERR_IO;
    EO_TRY(self->ops->open(&self->gather, self->group, r, self->device, EO_QUEUE_COMM, false));
    EO_TRY(self->ops->open(&self->reduce, self->group, r, self->device, EO_QUEUE_REDUCE, true));
    self->bytes = 4 * (2 * (uint64_t)COUNT * run->ranks + 2 * COUNT) + 64 * (run->ranks + 1);
    self->host_bytes = 8 * COUNT;
    EO_TRY(self->device->ops->reserve(self->device, EO_MEMORY_KIND_GATHER, self->bytes, (void **)&self->memory));
    EO_TRY(self->device->ops->reserve(self->device, EO_MEMORY_KIND_HOST, self->host_bytes, (void **)&self->host));
    if (self->ops->register_memory) {
        EO_TRY(self->ops->register_memory(self->gather, self->memory, self->bytes));
        EO_TRY(self->ops->register_memory(self->reduce, self->memory, self->bytes));
    }
    return self->ops->quiesce(self->gather);
}

/* gather -> copy -> reduce-scatter in place -> its result kept, the buffer spoiled -> a small gather */
static eo_status issue_step(struct rank *self, uint32_t step)
{
    const struct run *run = self->run;
    const struct eo_device_ops *device = self->device->ops;
    const uint64_t size = run->bf16 ? 2 : 4, slice = COUNT * size, whole = slice * run->ranks;
    unsigned char *all = self->memory, *full = all + whole, *shard = full + whole, *sum = shard + slice;
    unsigned char *norm = self->memory + self->bytes - 64 * (run->ranks + 1);
    const bool odd = run->fault && self->rank == run->ranks - 1 && step == 2;
    if (odd && run->fault == LEAVES)
        return EO_ERR_IO;
    if (odd && run->fault == ABORTS)
        self->ops->group_abort(self->group, self->rank, "its loss is a number no more");
    if (odd && run->fault == LATE)
        for (const uint64_t until = eo_now_ns() + 2 * SHORT_MS * UINT64_C(1000000); eo_now_ns() < until;)
            sim_yield();
    device->record(self->device, EO_QUEUE_COMPUTE, &self->computed);
    EO_TRY(device->wait(self->device, EO_QUEUE_COMM, &self->computed));
    const uint64_t bytes = odd && run->fault == OTHER_COUNT ? slice - 16
                           : odd && run->fault == PAST_END  ? self->bytes
                                                            : slice;
    if (run->joins) {
        self->ops->join(self->gather, 2);
        EO_TRY(self->ops->all_gather(self->gather, all, shard, slice, "block.1", &self->joined));
        if (!run->nccl) /* there the first begins with the last */
            device->stamp(self->device, EO_QUEUE_COMM, &self->between_ns);
    }
    EO_TRY(self->ops->all_gather(self->gather, all, shard, bytes, odd && run->fault == OTHER_LABEL ? "block.3" : "block.2",
                                 run->joins ? &self->joined : NULL));
    device->record(self->device, EO_QUEUE_COMM, &self->gathered);
    EO_TRY(device->wait(self->device, EO_QUEUE_COMPUTE, &self->gathered));
    device->copy(self->device, EO_QUEUE_COMPUTE, full, all, whole);
    device->record(self->device, EO_QUEUE_COMPUTE, &self->computed);
    EO_TRY(device->wait(self->device, EO_QUEUE_REDUCE, &self->computed));
    EO_TRY(self->ops->reduce_scatter(self->reduce, full + slice * self->rank, full, COUNT,
                                     run->bf16 ? EO_DTYPE_BF16 : EO_DTYPE_FP32, "gradients", NULL));
    device->record(self->device, EO_QUEUE_REDUCE, &self->reduced);
    EO_TRY(device->wait(self->device, EO_QUEUE_COMPUTE, &self->reduced));
    device->copy(self->device, EO_QUEUE_COMPUTE, sum, full + slice * self->rank, slice);
    device->zero(self->device, full, whole); /* nobody reads it any more */
    device->record(self->device, EO_QUEUE_COMPUTE, &self->computed);
    EO_TRY(device->wait(self->device, EO_QUEUE_COMM, &self->computed));
    EO_TRY(self->ops->all_gather(self->gather, norm, norm + 64 * run->ranks, 64, "norm", NULL));
    device->record(self->device, EO_QUEUE_COMM, &self->gathered);
    return device->wait(self->device, EO_QUEUE_COMPUTE, &self->gathered);
}

static eo_status await(struct rank *self, const struct eo_event *event)
{
    while (!self->device->ops->is_complete(self->device, event)) {
        EO_TRY(self->ops->poll(self->gather));
        EO_TRY(self->ops->poll(self->reduce));
        sim_yield();
    }
    EO_TRY(self->ops->poll(self->gather));
    return self->device->ops->await(self->device, event);
}

static void write_value(unsigned char *to, bool bf16, uint32_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (bf16)
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16); /* small whole numbers are exact */
    else
        ((float *)to)[i] = value;
}

static float read_value(const unsigned char *from, bool bf16, uint32_t i)
{
    const uint32_t bits = bf16 ? (uint32_t)((const uint16_t *)from)[i] << 16 : 0;
    float value;
    if (!bf16)
        return ((const float *)from)[i];
    memcpy(&value, &bits, 4);
    return value;
}

static eo_status run_step(struct rank *self, uint32_t step)
{
    struct run *run = self->run;
    const struct eo_device_ops *device = self->device->ops;
    const uint64_t size = run->bf16 ? 2 : 4, slice = COUNT * size;
    unsigned char *shard = self->memory + 2 * slice * run->ranks, *sum = shard + slice;
    for (uint32_t i = 0; i < COUNT; i++)
        write_value(self->host, run->bf16, i, value_of(self->rank, step, i));
    device->upload(self->device, shard, self->host, slice);
    if (run->graph && step == 1) {
        EO_TRY(self->ops->capture_begin(self->gather));
        EO_TRY(issue_step(self, step));
        EO_TRY(self->ops->capture_end(self->gather, &self->graph));
        __atomic_fetch_add(&run->captured, 1, __ATOMIC_RELAXED);
    }
    if (self->graph)
        EO_TRY(self->ops->graph_launch(self->gather, self->graph));
    else
        EO_TRY(issue_step(self, step));
    device->download(self->device, self->host + 4 * COUNT, sum, slice);
    device->record(self->device, EO_QUEUE_COMPUTE, &self->fetched);
    if (run->quiesces)
        EO_TRY(self->ops->quiesce(self->gather));
    EO_TRY(await(self, &self->fetched));
    if (run->joins && !run->nccl) {
        device->resolve_stamps(self->device);
        if (self->joined.start_ns > self->between_ns || self->joined.end_ns < self->between_ns)
            __atomic_fetch_add(&run->wrong, 1, __ATOMIC_RELAXED);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        const float wanted = value_of(self->rank, step, i) * (float)run->ranks;
        if (read_value(self->host + 4 * COUNT, run->bf16, i) != wanted)
            __atomic_fetch_add(&run->wrong, 1, __ATOMIC_RELAXED);
    }
    return EO_OK;
}

/* The last rank comes to its close late, or when all others have closed. */
static void come_late(const struct rank *self)
{
    const struct run *run = self->run;
    const uint64_t until_ns = eo_now_ns() + LATE_CLOSE_MS * UINT64_C(1000000);
    while (self->rank == run->ranks - 1 &&
           ((run->fault == CLOSES_LATE && eo_now_ns() < until_ns) || (run->fault == CLOSES_LAST && run->closed < self->rank)))
        sim_yield();
}

static void *run_rank(void *arg)
{
    struct rank *self = arg;
    struct run *run = self->run;
    const uint32_t r = self->rank;
    const eo_log log = {take_log, run->logged[r], EO_LOG_WARN};
    eo_status status = open_rank(self, &log);
    for (uint32_t step = 0; step < STEPS && status >= 0; step++)
        status = run_step(self, step);
    run->status[r] = status;
    if (self->group)
        self->ops->group_failure(self->group, run->text[r], sizeof(run->text[r]));
    if (self->graph)
        self->ops->graph_destroy(self->gather, &self->graph);
    come_late(self);
    self->ops->close(self->gather);
    self->ops->close(self->reduce);
    __atomic_fetch_add(&run->closed, 1, __ATOMIC_RELAXED);
    if (self->group && self->ops->group_info)
        self->ops->group_info(self->group, &run->info[r]);
    if (self->memory)
        self->device->ops->release(self->device, EO_MEMORY_KIND_GATHER, self->memory, self->bytes);
    if (self->host)
        self->device->ops->release(self->device, EO_MEMORY_KIND_HOST, self->host, self->host_bytes);
    if (self->device)
        eo_device_destroy(&self->device);
    self->ops->group_release(self->group);
    if (self->own && !run->info[r].must_exit)
        (void)ncclCommDestroy(self->own);
    return NULL;
}

/* Runs it; returns the simulator's violations. Leaks are among them unless the group says that the process must end. */
static uint32_t perform(struct run *run, const struct sim_config *config)
{
    struct rank ranks[RANKS_MAX];
    void *arguments[RANKS_MAX];
    const eo_log log = {take_log, run->logged_by_group, EO_LOG_ERROR};
    memset(ranks, 0, sizeof(ranks));
    sim_start(config);
    const struct eo_comm_ops *ops = eo_comm_find(run->nccl ? "nccl" : "local-cuda");
    if (run->nccl) {
        CHECK_IS(ops->group_id(&run->id, &log), EO_OK);
        for (uint32_t r = 0; r < run->ranks && run->tells_peers; r++) {
            CHECK_IS(ops->group_peer(run->peers[r], run->same_gpu ? 0 : r, NULL, &log), EO_OK);
            ((struct eo_nccl_member *)run->peers[r])->process = 100 + r;
        }
    } else {
        CHECK_IS(ops->group_create(&run->group, &(const struct eo_group_params){
                                                    .rank_count = run->ranks, .timeout_ms = timeout_of(run), .log = &log}),
                 EO_OK);
    }
    for (uint32_t r = 0; r < run->ranks; r++) {
        ranks[r] = (struct rank){.run = run, .rank = r, .ops = ops};
        arguments[r] = &ranks[r];
    }
    sim_run_ranks(run->ranks, run_rank, arguments);
    return sim_finish();
}

/* -- what is computed ---------------------------------------------------------------------------------------------- */

static void good(struct run run, const struct sim_config *config)
{
    const uint32_t violations = perform(&run, config);
    for (uint32_t r = 0; r < run.ranks; r++)
        CHECK(run.status[r] == EO_OK, "seed %llu, rank %u of %u: status %d: %s", (unsigned long long)config->seed, r,
              run.ranks, run.status[r], run.text[r]);
    CHECK(run.wrong == 0 && violations == 0, "seed %llu, %u ranks: %u values are wrong; %u violations: %s",
          (unsigned long long)config->seed, run.ranks, run.wrong, violations, sim_violation(0));
    CHECK(!run.graph || run.captured == run.ranks, "%u ranks captured", run.captured);
}

static enum sim_executor executor = SIM_SCHEDULED;

static void all_good(struct run run, int nccl_version, uint32_t ranks_min, uint32_t seeds, const char *name)
{
    for (uint32_t ranks = ranks_min; ranks <= RANKS_MAX; ranks++) {
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            run.ranks = ranks;
            run.bf16 = seed % 3 == 0;
            run.ordered = seed % 2;
            run.tells_peers = seed % 2;
            good(run, &(const struct sim_config){.seed = seed, .device_count = RANKS_MAX, .nccl_version = nccl_version,
                                                     .executor = executor});
        }
    }
    tap_case(name);
}

/* Every wait of an eager step of 2 ranks left out once. Some order nothing that this step touches: those have to be few
 * and in the small gather alone. */
static void mutations(void)
{
    const struct run run = {.ranks = 2};
    struct run fresh = run;
    (void)perform(&fresh, &(const struct sim_config){.seed = 1});
    uint32_t needed = 0, caught = 0;
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct sim_call_note note;
        uint32_t count = 0;
        for (fresh = run, (void)perform(&fresh, &(const struct sim_config){.seed = 1});
             sim_call_note(SIM_DROP_WAIT, rank, count, &note); count++)
            ;
        for (uint32_t ordinal = 0; ordinal < count; ordinal++) {
            bool found = false;
            fresh = run;
            (void)perform(&fresh, &(const struct sim_config){.seed = 1});
            if (!sim_call_note(SIM_DROP_WAIT, rank, ordinal, &note) || note.redundant)
                continue;
            needed++;
            for (uint64_t seed = 1; seed <= 3 && !found; seed++) {
                fresh = run;
                found = perform(&fresh, &(const struct sim_config){
                                            .seed = seed, .quiet = true,
                                            .mutation = {.kind = SIM_DROP_WAIT, .rank = rank, .ordinal = ordinal}}) > 0 ||
                        fresh.wrong > 0;
            }
            caught += found;
        }
    }
    CHECK(needed > 40, "%u waits", needed);
    CHECK(caught * 10 >= needed * 7, "of %u waits %u were missed when they were left out", needed, caught);
    tap_case("local-cuda: leaving out a wait is noticed");
}

/* -- what goes wrong ------------------------------------------------------------------------------------------------ */

static void bad(const char *name, struct run run, struct sim_config config, eo_status wanted, const char *text)
{
    config.quiet = true;
    config.device_count = config.device_count ? config.device_count : RANKS_MAX;
    const uint64_t begin_ns = eo_now_ns();
    const uint32_t violations = perform(&run, &config);
    const uint64_t took_ms = (eo_now_ns() - begin_ns) / 1000000;
    bool is_told = false, must_exit = false;
    for (uint32_t r = 0; r < run.ranks; r++) {
        CHECK(run.status[r] < 0, "rank %u ended well", r);
        is_told = is_told || ((strstr(run.text[r], text) || strstr(run.logged[r], text) ||
                               strstr(run.logged_by_group, text)) && run.status[r] == wanted);
        must_exit = must_exit || run.info[r].must_exit;
    }
    CHECK(must_exit == (strstr(name, "process must end") != NULL), "%s", must_exit ? "work is left" : "nothing is left");
    CHECK(is_told, "no rank ended with %d and '%s'; rank 0 with %d: %s %s", wanted, text, run.status[0], run.text[0],
          run.logged[0]);
    CHECK(took_ms < LONG_MS / 2, "it took %llu ms", (unsigned long long)took_ms);
    for (uint32_t i = 0; i < violations; i++)
        CHECK(sim_violation(i)[0] == '\0' || (must_exit && strstr(sim_violation(i), "never ")), "violation: %s",
              sim_violation(i));
    tap_case(name);
}

static void local_failures(void)
{
    const struct run run = {.ranks = 3};
    struct run r = run;
    r.fault = OTHER_COUNT;
    bad("local-cuda: ranks that disagree on a size are named", r, (struct sim_config){.seed = 1}, EO_ERR_COMM,
        "all-gather 'block.2' of 2032 bytes");
    r.fault = OTHER_LABEL;
    bad("local-cuda: ranks that issue another collective are named", r, (struct sim_config){.seed = 2}, EO_ERR_COMM,
        "all-gather 'block.3'");
    r.fault = LATE;
    r.waits_in_vain = true;
    bad("local-cuda: a late rank is named at the deadline", r, (struct sim_config){.seed = 3}, EO_ERR_TIMEOUT,
        "rank 2 has not entered all-gather 'block.2'");
    r.waits_in_vain = false;
    r.fault = LEAVES;
    bad("local-cuda: a rank that has left is named", r, (struct sim_config){.seed = 4}, EO_ERR_COMM,
        "rank 2 has closed its communicator");
    r.fault = ABORTS;
    bad("local-cuda: a rank that gives up tells all why", r, (struct sim_config){.seed = 5}, EO_ERR_COMM,
        "rank 2 gave up: its loss is a number no more");
    r = run;
    r.graph = true;
    r.fault = NO_FAULT;
    bad("local-cuda: a graph that cannot be made is told on all ranks", r,
        (struct sim_config){.seed = 6, .fault = {.function = "cudaGraphInstantiate", .rank = 0}}, EO_ERR_DEVICE,
        "cudaGraphInstantiate");
    r.graph = false;
    bad("local-cuda: a copy that cannot be issued names rank and collective", r,
        (struct sim_config){.seed = 7, .fault = {.function = "cudaMemcpyAsync", .rank = 1, .ordinal = 4}}, EO_ERR_DEVICE,
        "CUDA error");
    r.several_gpus = true;
    bad("local-cuda: GPUs that cannot be made to reach each other are told", r,
        (struct sim_config){.seed = 8, .fault = {.function = "cudaDeviceEnablePeerAccess", .rank = 1}}, EO_ERR_DEVICE,
        "cudaDeviceEnablePeerAccess");
}

/* The other ranks learn by their deadlines alone. */
static void nccl_failures(void)
{
    const struct run run = {.ranks = 2, .nccl = true, .mode = "plain", .waits_in_vain = true};
    struct run r = run;
    const char *const modes[] = {"plain", "registered"};
    for (uint32_t comm = 1; comm <= 2; comm++) {
        for (uint32_t m = 0; m < 2; m++) {
            char name[160];
            r = run;
            r.mode = modes[m];
            const struct sim_config stuck = {.seed = comm, .peer = SIM_PEER_STUCK, .peer_rank = 1, .peer_comm = comm,
                                             .peer_sequence = comm == 1 ? 4 : 2};
            struct sim_config lost = stuck;
            lost.peer = SIM_PEER_LOST;
            snprintf(name, sizeof(name), "nccl, %s: a rank that never comes to a %s ends in time", modes[m],
                     comm == 1 ? "gather" : "reduction");
            bad(name, r, stuck, EO_ERR_TIMEOUT, comm == 1 ? "ncclAllGather '" : "ncclReduceScatter 'gradients'");
            snprintf(name, sizeof(name), "nccl, %s: a rank that is lost in a %s is told", modes[m],
                     comm == 1 ? "gather" : "reduction");
            bad(name, r, lost, EO_ERR_COMM, "NCCL result 6");
        }
    }
    r = run;
    r.graph = true;
    bad("nccl: a rank that never comes to a captured step: nothing is aborted, and the process must end", r,
        (struct sim_config){.seed = 3, .peer = SIM_PEER_STUCK, .peer_rank = 1, .peer_comm = 1, .peer_sequence = 8},
        EO_ERR_TIMEOUT, "launch 'captured step'");
    r = run;
    r.ranks = 3;
    r.mode = "zero";
    bad("nccl, zero: nothing is aborted, and the process must end", r,
        (struct sim_config){.seed = 3, .peer = SIM_PEER_STUCK, .peer_rank = 1, .peer_comm = 1, .peer_sequence = 4},
        EO_ERR_TIMEOUT, "ncclAllGather '");
    r.graph = true;
    bad("nccl, zero: steps are not captured", r, (struct sim_config){.seed = 4}, EO_ERR_UNSUPPORTED, "for graphs use mode");
    r = run;
    r.mode = "zero";
    if (NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 2))
        bad("nccl, zero: refused with 2 ranks below 2.31.2", r, (struct sim_config){.seed = 5}, EO_ERR_UNSUPPORTED,
            "refused with NCCL " HEADER_VERSION " and 2 ranks");
    else
        tap_skip("nccl, zero: refused with 2 ranks below 2.31.2", "the header is of NCCL " HEADER_VERSION);
    r.mode = "symmetric";
    if (NCCL_VERSION_CODE < NCCL_VERSION(2, 30, 7))
        bad("nccl, symmetric: refused below 2.30.7", r, (struct sim_config){.seed = 6}, EO_ERR_UNSUPPORTED,
            "NCCL 2.30.7 or newer");
    else
        tap_skip("nccl, symmetric: refused below 2.30.7", "the header is of NCCL " HEADER_VERSION);
    r = run;
    bad("nccl: a library older than its header is refused", r, (struct sim_config){.seed = 7, .nccl_version = 22707},
        EO_ERR_UNSUPPORTED, "NCCL 2.27.7 is loaded, evenodd was built with " HEADER_VERSION);
    r.same_gpu = r.tells_peers = true;
    bad("nccl: two ranks on one GPU are named before NCCL is asked", r, (struct sim_config){.seed = 8}, EO_ERR_INVALID,
        "ranks 0 and 1 are both on GPU");
    r.tells_peers = false;
    bad("nccl: two ranks on one GPU that nobody told of: what it most likely is", r, (struct sim_config){.seed = 9},
        EO_ERR_INVALID, "usually means two ranks on one GPU");
    r = run;
    r.fault = PAST_END;
    bad("nccl: an operation past the end of its registration is refused", r, (struct sim_config){.seed = 10},
        EO_ERR_INVALID, "goes past its end");
    r.joins = true;
    bad("nccl: so is one that is joined to another, and no group of NCCL's is left open", r, (struct sim_config){.seed = 10},
        EO_ERR_INVALID, "goes past its end");
    r = run;
    r.quiesces = true;
    bad("nccl: who waits for gathers alone ends in time behind a reduction that never ends", r,
        (struct sim_config){.seed = 13, .peer = SIM_PEER_STUCK, .peer_rank = 1, .peer_comm = 2, .peer_sequence = 2},
        EO_ERR_TIMEOUT, "ncclReduceScatter 'gradients'");
    bad("nccl: a call that waits for room behind a reduction that never ends is aborted after that", run,
        (struct sim_config){
            .seed = 13, .nccl_room = 1, .peer = SIM_PEER_STUCK, .peer_rank = 1, .peer_comm = 2, .peer_sequence = 2},
        EO_ERR_TIMEOUT, "ncclAllGather has been in progress");
    r = run;
    r.adopts = true;
    r.fault = NEVER_OPENS;
    bad("nccl: a given communicator whose split never ends is left alone, and the process must end", r,
        (struct sim_config){.seed = 14}, EO_ERR_TIMEOUT, "ncclCommSplit has been in progress");
    r = run;
    r.fault = ABORTS;
    bad("nccl: a rank that gives up says why, the others end by their deadline", r, (struct sim_config){.seed = 11},
        EO_ERR_COMM, "rank 1 gave up: its loss is a number no more");
    static const char *const calls[] = {"ncclCommInitRankConfig", "ncclCommSplit", "ncclCommRegister", "ncclAllGather",
                                        "ncclReduceScatter"};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        char name[128];
        r = run;
        r.mode = "registered";
        snprintf(name, sizeof(name), "nccl: %s fails on one rank", calls[i]);
        bad(name, r, (struct sim_config){.seed = 12, .fault = {.function = calls[i], .rank = 1}}, EO_ERR_COMM, calls[i]);
    }
}

/* Inside NCCL the ranks of a machine wait for each other when they destroy a communicator. */
static void closes(void)
{
    struct run run = {.ranks = 3, .nccl = true, .waits_in_vain = true, .fault = CLOSES_LATE};
    CHECK_IS(perform(&run, &(const struct sim_config){.seed = 1}), 0);
    CHECK(run.status[0] == EO_OK && !run.info[0].must_exit && run.logged[0][0] == '\0', "%s", run.logged[0]);
    tap_case("nccl: who closes waits for a rank that comes late to it");

    run = (struct run){.ranks = 3, .nccl = true, .waits_in_vain = true, .fault = CLOSES_LAST};
    const uint32_t violations = perform(&run, &(const struct sim_config){.seed = 2, .quiet = true});
    for (uint32_t r = 0; r < 2; r++)
        CHECK(run.info[r].must_exit && strstr(run.logged[r], "ncclCommDestroy has not returned within 10800 ms"),
              "rank %u: '%s'", r, run.logged[r]);
    for (uint32_t i = 0; i < violations; i++)
        CHECK(sim_violation(i)[0] == '\0' || strstr(sim_violation(i), "never "), "violation: %s", sim_violation(i));
    tap_case("nccl: but not for ever, and the process must end");
}

static void fallback(void)
{
    struct run run;
    for (int i = 0; i < 2; i++) { /* NCCL 2.28 gives something else in its place */
        run = (struct run){.ranks = 3, .nccl = true, .mode = "zero"};
        const int version = i == 0 ? NCCL_VERSION_CODE : MENDED;
        CHECK_IS(perform(&run, &(const struct sim_config){.seed = 1, .nccl_version = version, .nccl_no_symmetric = true}), 0);
        CHECK(run.status[0] == EO_OK && run.wrong == 0, "%s", run.text[0]);
        CHECK(strcmp(run.info[0].mode, "zero") == 0 && strstr(run.info[0].gather, "NCCL gave no window"), "'%s'",
              run.info[0].gather);
        CHECK(strstr(run.logged[0], "gave no window"), "'%s'", run.logged[0]);
    }
    tap_case("nccl: windows that NCCL does not give are told");
    run = (struct run){.ranks = 3, .nccl = true, .splits = true};
    CHECK_IS(perform(&run, &(const struct sim_config){.seed = 1}), 0);
    CHECK(run.info[0].mode && strcmp(run.info[0].mode, "registered") == 0, "the mode is %s", run.info[0].mode);
    CHECK(run.info[0].registered_bytes > 0 && run.info[0].built_version == NCCL_VERSION_CODE, "registered %llu bytes",
          (unsigned long long)run.info[0].registered_bytes);
    CHECK(run.inner_info.mode && strcmp(run.inner_info.mode, "registered") == 0 &&
              strcmp(run.inner_info.gather, run.info[0].gather) == 0 && run.inner_info.built_version == NCCL_VERSION_CODE,
          "of a group inside: mode %s, gathers by '%s'", run.inner_info.mode, run.inner_info.gather);
    tap_case("nccl: registered is what is chosen, and its figures are told");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "threads") == 0)
        executor = SIM_THREADS;
    const uint32_t seeds = getenv("EO_TEST_FULL") ? 40 : 6;
    all_good((struct run){0}, 0, 1, seeds, "local-cuda, one GPU: sums and gathers are right under every schedule");
    all_good((struct run){.several_gpus = true}, 0, 1, seeds, "local-cuda, a GPU each");
    all_good((struct run){.graph = true}, 0, 1, seeds, "local-cuda, one GPU, all ranks as one graph");
    all_good((struct run){.graph = true, .several_gpus = true}, 0, 1, seeds, "local-cuda, a GPU each, as one graph");
    all_good((struct run){.joins = true}, 0, 1, seeds, "local-cuda, joined gathers, which have one span");
    all_good((struct run){.nccl = true, .mode = "plain"}, 0, 1, seeds, "nccl, plain");
    all_good((struct run){.nccl = true, .mode = "plain", .graph = true}, 0, 1, seeds, "nccl, plain, as graphs");
    all_good((struct run){.nccl = true, .mode = "registered"}, 0, 1, seeds, "nccl, registered");
    all_good((struct run){.nccl = true, .mode = "registered", .joins = true, .quiesces = true}, 0, 1, seeds,
             "nccl, joined gathers");
    all_good((struct run){.nccl = true, .adopts = true}, 0, 1, seeds, "nccl, on a communicator of the caller's");
    all_good((struct run){.nccl = true, .adopts = true, .hurries = true}, 0, 1, seeds, "nccl, on one that is still being made");
    all_good((struct run){.nccl = true, .mode = "registered", .graph = true}, 0, 1, seeds, "nccl, registered, as graphs");
    all_good((struct run){.nccl = true, .mode = "zero"}, 0, 3, seeds, "nccl, zero, from 3 ranks on");
    all_good((struct run){.nccl = true, .mode = "zero"}, MENDED, 1, seeds, "nccl 2.31.2 or newer, zero");
    all_good((struct run){.nccl = true, .mode = "symmetric", .graph = true}, MENDED, 1, seeds,
             "nccl 2.31.2 or newer, symmetric");
    if (executor == SIM_THREADS)
        return tap_end();
    mutations();
    local_failures();
    nccl_failures();
    closes();
    fallback();
    return tap_end();
}
