/* SPDX-License-Identifier: MIT
 *
 * The simulator does what the table of CUDA's semantics says: each row is a case. What must be refused is refused with the
 * code that the header names.
 * Method: a kernel is a store of a number; whether it came before or after another shows in what a copy finds.
 */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <math.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/simulator/cuda/sim.h"
#include "tests/tap/tap.h"

static cudaStream_t a, b;
static int *memory, *host;

struct store {
    int *to;
    int value;
};

static void store_body(const void *arguments)
{
    const struct store *store = arguments;
    *(int *)sim_at_write(store->to, sizeof(int)) = store->value;
}

static cudaError_t store(int *to, int value, cudaStream_t stream)
{
    const struct store args = {to, value};
    return sim_kernel("store", stream, store_body, &args, sizeof(args), &SIM_WRITES(to, sizeof(int)), 1);
}

static void add_body(const void *arguments)
{
    const struct store *add = arguments;
    *(int *)sim_at_write(add->to, sizeof(int)) += add->value;
}

static cudaError_t add(int *to, int value, cudaStream_t stream)
{
    const struct store args = {to, value};
    return sim_kernel("add", stream, add_body, &args, sizeof(args), &SIM_WRITES(to, sizeof(int)), 1);
}

static cudaError_t fetch(const int *from, cudaStream_t stream)
{
    return cudaMemcpyAsync(host, from, sizeof(int), cudaMemcpyDeviceToHost, stream);
}

static void begin_with(const struct sim_config *config)
{
    sim_start(config);
    CHECK_IS(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaSuccess);
    CHECK_IS(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), cudaSuccess);
    CHECK_IS(cudaMalloc((void **)&memory, 4096), cudaSuccess);
    CHECK_IS(cudaHostAlloc((void **)&host, 4096, 0), cudaSuccess);
}

static void begin(void) { begin_with(&(struct sim_config){.policy = SIM_LAZY}); }

static void end(const char *name)
{
    CHECK_IS(cudaDeviceSynchronize(), cudaSuccess);
    CHECK_IS(cudaStreamDestroy(a), cudaSuccess);
    CHECK_IS(cudaStreamDestroy(b), cudaSuccess);
    CHECK_IS(cudaFree(memory), cudaSuccess);
    CHECK_IS(cudaFreeHost(host), cudaSuccess);
    CHECK(sim_finish() == 0, "%s", sim_violation(0));
    tap_case(name);
}

static cudaEvent_t event_new(unsigned flags)
{
    cudaEvent_t event = NULL;
    CHECK_IS(cudaEventCreateWithFlags(&event, flags), cudaSuccess);
    return event;
}

static void events(void)
{
    begin();
    cudaEvent_t event = event_new(cudaEventDisableTiming);
    CHECK_IS(cudaEventQuery(event), cudaSuccess);
    CHECK_IS(cudaStreamWaitEvent(a, event, 0), cudaSuccess);
    CHECK_IS(cudaEventSynchronize(event), cudaSuccess);
    CHECK_IS(cudaEventDestroy(event), cudaSuccess);
    end("an event never recorded is complete, and waiting for it waits for nothing");

    begin_with(&(struct sim_config){.quiet = true});
    cudaStream_t gone;
    event = event_new(0);
    CHECK_IS(cudaEventDestroy(event), cudaSuccess);
    CHECK_IS(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
    CHECK_IS(cudaEventRecord(event, a), cudaErrorInvalidResourceHandle);
    CHECK_IS(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    CHECK_IS(cudaGetLastError(), cudaSuccess);
    CHECK(sim_violation_count() == 2 && strstr(sim_violation(0), "an event"), "%s", sim_violation(0));
    CHECK_IS(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking), cudaSuccess);
    CHECK_IS(cudaStreamDestroy(gone), cudaSuccess);
    CHECK_IS(cudaStreamQuery(gone), cudaErrorInvalidResourceHandle);
    CHECK(strstr(sim_violation(2), "a stream"), "%s", sim_violation(2));
    CHECK_IS(cudaFree(memory + 1), cudaErrorInvalidValue);
    CHECK_IS(cudaFreeHost(memory), cudaErrorInvalidValue);
    CHECK(sim_violation_count() == 5 && strstr(sim_violation(3), "cudaFree"), "%s", sim_violation(3));
    sim_start(&(struct sim_config){0});
    tap_case("what was destroyed, or is no beginning of an allocation, is refused and told");

    begin();
    event = event_new(0);
    store(memory, 1, a);
    CHECK_IS(cudaEventRecord(event, a), cudaSuccess);
    CHECK_IS(cudaStreamWaitEvent(b, event, 0), cudaSuccess); /* of version 1 */
    store(memory + 1, 2, a);
    CHECK_IS(cudaEventRecord(event, a), cudaSuccess);
    fetch(memory, b);
    CHECK_IS(cudaStreamSynchronize(b), cudaSuccess);
    CHECK(*host == 1, "the wait for the first record did not hold: %d", *host);
    CHECK_IS(cudaEventQuery(event), cudaErrorNotReady); /* lazily: nothing asked for the second */
    cudaGetLastError();
    CHECK_IS(cudaEventSynchronize(event), cudaSuccess);
    CHECK_IS(cudaEventQuery(event), cudaSuccess);
    CHECK_IS(cudaEventDestroy(event), cudaSuccess);
    end("a wait keeps the version it saw; a new record makes the event incomplete again");

    begin();
    event = event_new(0);
    cudaEvent_t later = event_new(0), untimed = event_new(cudaEventDisableTiming);
    float ms = -1;
    CHECK_IS(cudaEventElapsedTime(&ms, event, later), cudaErrorInvalidResourceHandle);
    cudaEventRecord(event, a);
    for (int i = 0; i < 100; i++)
        add(memory, 1, a);
    cudaEventRecord(later, a);
    cudaEventRecord(untimed, a);
    CHECK_IS(cudaEventElapsedTime(&ms, event, later), cudaErrorNotReady);
    CHECK_IS(cudaStreamSynchronize(a), cudaSuccess);
    CHECK_IS(cudaEventElapsedTime(&ms, event, later), cudaSuccess);
    CHECK(ms > 0.01f, "%f ms", (double)ms);
    CHECK_IS(cudaEventElapsedTime(&ms, event, untimed), cudaErrorInvalidResourceHandle);
    cudaGetLastError();
    cudaEventDestroy(event);
    cudaEventDestroy(later);
    cudaEventDestroy(untimed);
    end("elapsed time: 400 without records or without timing, 600 while not complete, else the virtual time");

    begin();
    event = event_new(0);
    cudaStream_t c;
    int least, greatest, priority;
    CHECK_IS(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
    CHECK_IS(cudaStreamCreateWithPriority(&c, cudaStreamNonBlocking, greatest - 7), cudaSuccess);
    CHECK_IS(cudaStreamGetPriority(c, &priority), cudaSuccess);
    CHECK(priority == greatest && least == 0, "priority %d", priority);
    store(memory, 5, c);
    cudaEventRecord(event, c);
    cudaStreamWaitEvent(a, event, 0);
    CHECK_IS(cudaEventDestroy(event), cudaSuccess);
    CHECK_IS(cudaStreamDestroy(c), cudaSuccess);
    fetch(memory, a);
    CHECK_IS(cudaStreamSynchronize(a), cudaSuccess);
    CHECK(*host == 5, "%d", *host);
    cudaGetLastError();
    end("streams and events are destroyed at once with work pending, which still runs; priorities are clamped");
}

static void hosts(void)
{
    begin_with(&(struct sim_config){.policy = SIM_LAZY, .quiet = true});
    int wild = 7;
    store(memory, 3, a);
    CHECK_IS(cudaMemset(memory + 1, 0, 4), cudaSuccess); /* comes back before it is done */
    CHECK_IS(cudaMemcpy(&wild, memory, 4, cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK(wild == -1, "the default stream waited for one that does not block: %d", wild);
    CHECK_IS(cudaDeviceSynchronize(), cudaSuccess);
    CHECK(sim_violation_count() == 1 && sim_found_race(), "a copy that nothing orders after the store was let through");
    begin_with(&(struct sim_config){.policy = SIM_LAZY, .quiet = true});
    CHECK_IS(cudaMemcpyAsync(memory, &wild, 4, cudaMemcpyHostToDevice, a), cudaSuccess);
    CHECK(strstr(sim_violation(0), "not pinned") != NULL, "%s", sim_violation(0));
    CHECK_IS(store((int *)(void *)host + 4096, 1, a), cudaErrorInvalidValue);
    CHECK(strstr(sim_violation(1), "no device memory") != NULL, "%s", sim_violation(1));
    CHECK_IS(store(memory + 1024, 1, a), cudaErrorInvalidValue);
    CHECK(strstr(sim_violation(2), "no device memory") != NULL, "%s", sim_violation(2));
    cudaGetLastError();
    const struct store args = {memory, 1};
    CHECK_IS(sim_kernel("long", a, store_body, &args, sizeof(args), &SIM_WRITES(memory, 4100), 1), cudaErrorInvalidValue);
    CHECK(strstr(sim_violation(3), "past the end") != NULL, "%s", sim_violation(3));
    CHECK(sim_violation_count() == 4, "%u violations", sim_violation_count());
    sim_start(&(struct sim_config){0});
    tap_case("non-blocking streams do not wait for the default one; pageable, wild and short memory is told");

    begin();
    CHECK_IS(store(memory, 1, a), cudaSuccess);
    CHECK_IS(cudaSetDevice(99), cudaErrorInvalidDevice);
    CHECK_IS(store(memory, 2, a), cudaErrorInvalidDevice); /* the launch reports what nobody took */
    CHECK_IS(store(memory, 2, a), cudaSuccess);
    end("an error that nobody has taken is reported by the next launch, once");

    begin_with(&(struct sim_config){.policy = SIM_LAZY, .fail_operation = 2, .fail_rank = 16, .quiet = true});
    store(memory, 1, a);
    store(memory, 2, a);
    CHECK_IS(cudaStreamSynchronize(a), cudaErrorLaunchFailure);
    CHECK_IS(cudaMalloc((void **)&memory, 4), cudaErrorLaunchFailure);
    CHECK_IS(cudaGetLastError(), cudaErrorLaunchFailure);
    CHECK_IS(cudaGetLastError(), cudaErrorLaunchFailure);
    sim_start(&(struct sim_config){0});
    tap_case("a failure on the device is sticky: every later call returns it");

    int count = -1;
    sim_start(&(struct sim_config){.no_driver = true});
    CHECK_IS(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    sim_start(&(struct sim_config){.no_device = true});
    CHECK_IS(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    sim_start(&(struct sim_config){.device_bytes = 1 << 20});
    void *big;
    CHECK_IS(cudaMalloc(&big, 2 << 20), cudaErrorMemoryAllocation);
    CHECK_IS(cudaGetLastError(), cudaErrorMemoryAllocation);
    CHECK_IS(cudaMalloc(&big, 1 << 20), cudaSuccess);
    CHECK_IS(cudaFree(big), cudaSuccess);
    sim_start(&(struct sim_config){.fault = {.function = "cudaMalloc", .ordinal = 1, .rank = SIM_ANY_RANK}});
    CHECK_IS(cudaMalloc(&big, 8), cudaSuccess);
    CHECK_IS(cudaMalloc(&big, 8), cudaErrorMemoryAllocation);
    CHECK_IS(cudaMalloc(&big, 8), cudaSuccess);
    CHECK(sim_fault_happened(), "the fault was not told");
    sim_start(&(struct sim_config){.quiet = true});
    CHECK_IS(cudaMalloc(&big, 8), cudaSuccess);
    CHECK(sim_finish() == 1, "a leak was not told");
    tap_case("35 without a driver, 100 without a device, 2 when memory is short; the n-th call fails; leaks are told");
}

/* --- captures --- */

static cudaGraph_t end_capture(cudaStream_t stream, cudaError_t wanted)
{
    cudaGraph_t graph = (cudaGraph_t)(void *)host;
    CHECK_IS(cudaStreamEndCapture(stream, &graph), wanted);
    CHECK((graph != NULL) == (wanted == cudaSuccess), "a failed capture gives no graph");
    cudaGetLastError();
    return graph;
}

static void *end_elsewhere(void *stream)
{
    cudaGraph_t graph;
    CHECK_IS(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureWrongThread);
    return NULL;
}

static void *malloc_elsewhere(void *wanted)
{
    void *at = NULL;
    CHECK_IS(cudaMalloc(&at, 16), *(cudaError_t *)wanted);
    if (at)
        CHECK_IS(cudaFree(at), cudaSuccess);
    return NULL;
}

static void in_thread(void *(*body)(void *arg), void *arg)
{
    pthread_t thread;
    CHECK_IS(pthread_create(&thread, NULL, body, arg), 0);
    pthread_join(thread, NULL);
}

static void captures(void)
{
    begin();
    cudaEvent_t fork = event_new(cudaEventDisableTiming), join = event_new(cudaEventDisableTiming);
    cudaGraphExec_t exec;
    store(memory, 1, a);
    CHECK_IS(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    CHECK_IS(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
    add(memory, 1, a);
    CHECK_IS(cudaEventRecord(fork, a), cudaSuccess);
    CHECK_IS(cudaStreamWaitEvent(b, fork, 0), cudaSuccess);
    add(memory, 10, b);
    CHECK_IS(cudaEventRecord(join, b), cudaSuccess);
    CHECK_IS(cudaStreamWaitEvent(a, join, 0), cudaSuccess);
    add(memory, 100, a);
    cudaGetLastError();
    cudaGraph_t graph = end_capture(a, cudaSuccess);
    fetch(memory, a);
    cudaStreamSynchronize(a);
    CHECK(*host == 1, "what was captured ran: %d", *host);
    CHECK_IS(cudaEventQuery(fork), cudaErrorCapturedEvent);
    CHECK_IS(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority), cudaSuccess);
    CHECK_IS(cudaGraphDestroy(graph), cudaSuccess);
    for (int i = 0; i < 3; i++)
        CHECK_IS(cudaGraphLaunch(exec, a), cudaSuccess);
    fetch(memory, a);
    cudaStreamSynchronize(a);
    CHECK(*host == 334, "%d", *host);
    CHECK_IS(cudaGraphExecDestroy(exec), cudaSuccess);
    CHECK_IS(cudaEventDestroy(fork), cudaSuccess);
    CHECK_IS(cudaEventDestroy(join), cudaSuccess);
    cudaGetLastError();
    end("a capture with a fork and a join records, and runs when its graph is launched, again and again");

    begin();
    CHECK_IS(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    CHECK_IS(cudaStreamSynchronize(a), cudaErrorStreamCaptureUnsupported);
    CHECK_IS(store(memory, 1, a), cudaErrorStreamCaptureInvalidated);
    end_capture(a, cudaErrorStreamCaptureInvalidated);
    CHECK_IS(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal), cudaErrorStreamCaptureUnsupported);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    void *at;
    CHECK_IS(cudaMalloc(&at, 16), cudaErrorStreamCaptureUnsupported);
    end_capture(a, cudaErrorStreamCaptureInvalidated);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed);
    CHECK_IS(cudaMalloc(&at, 16), cudaSuccess);
    CHECK_IS(cudaGraphDestroy(end_capture(a, cudaSuccess)), cudaSuccess);
    CHECK_IS(cudaFree(at), cudaSuccess);
    cudaError_t wanted = cudaSuccess;
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    in_thread(malloc_elsewhere, &wanted);
    CHECK_IS(cudaGraphDestroy(end_capture(a, cudaSuccess)), cudaSuccess);
    wanted = cudaErrorStreamCaptureUnsupported;
    cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
    in_thread(malloc_elsewhere, &wanted);
    end_capture(a, cudaErrorStreamCaptureInvalidated);
    end("900 for what could wait (by mode and thread), 901 after it; never on the default stream");

    begin();
    fork = event_new(cudaEventDisableTiming);
    join = event_new(cudaEventDisableTiming);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    cudaStreamBeginCapture(b, cudaStreamCaptureModeThreadLocal);
    add(memory, 1, a);
    cudaEventRecord(fork, a);
    CHECK_IS(cudaStreamWaitEvent(b, fork, 0), cudaErrorStreamCaptureMerge);
    end_capture(a, cudaErrorStreamCaptureInvalidated);
    end_capture(b, cudaErrorStreamCaptureInvalidated);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    CHECK_IS(add(memory, 1, a), cudaSuccess);
    cudaEventRecord(fork, a);
    cudaStreamWaitEvent(b, fork, 0);
    cudaGraph_t none;
    CHECK_IS(cudaStreamEndCapture(b, &none), cudaErrorStreamCaptureUnmatched);
    cudaGetLastError();
    CHECK_IS(add(memory, 1, b), cudaSuccess);
    end_capture(a, cudaErrorStreamCaptureUnjoined);
    cudaEventRecord(fork, b);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    CHECK_IS(cudaStreamWaitEvent(a, fork, 0), cudaErrorStreamCaptureIsolation);
    end_capture(a, cudaErrorStreamCaptureInvalidated);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    in_thread(end_elsewhere, a);
    CHECK_IS(cudaGraphDestroy(end_capture(a, cudaSuccess)), cudaSuccess);
    CHECK_IS(cudaStreamEndCapture(a, &none), cudaErrorIllegalState);
    cudaStream_t blocking;
    cudaStreamCreate(&blocking);
    cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed);
    CHECK_IS(cudaMemset(memory, 0, 4), cudaErrorStreamCaptureImplicit);
    end_capture(blocking, cudaErrorStreamCaptureInvalidated);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(fork, a);
    CHECK_IS(cudaEventSynchronize(fork), cudaErrorCapturedEvent);
    end_capture(a, cudaErrorStreamCaptureInvalidated);
    cudaStreamDestroy(blocking);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    end("902 merge, 903 not begun here, 904 not joined, 905 across the boundary, 906 implicit, 907 captured event, 908 "
        "thread");

    begin();
    fork = event_new(0);
    join = event_new(0);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    CHECK_IS(cudaEventRecordWithFlags(fork, a, cudaEventRecordExternal), cudaSuccess);
    add(memory, 1, a);
    CHECK_IS(cudaEventRecordWithFlags(join, a, cudaEventRecordExternal), cudaSuccess);
    graph = end_capture(a, cudaSuccess);
    CHECK_IS(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    CHECK_IS(cudaGraphLaunch(exec, a), cudaSuccess);
    CHECK_IS(cudaEventSynchronize(join), cudaSuccess);
    float ms = 0;
    CHECK_IS(cudaEventElapsedTime(&ms, fork, join), cudaSuccess);
    CHECK(ms > 0, "%f ms", (double)ms);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    end("external records in a graph are events that can be read after its launch");

    begin_with(&(struct sim_config){.quiet = true});
    cudaStream_t urgent;
    cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -5);
    fork = event_new(0);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    add(memory, 1, a);
    cudaEventRecord(fork, a);
    cudaStreamWaitEvent(urgent, fork, 0);
    add(memory, 1, urgent);
    cudaEventRecord(fork, urgent);
    cudaStreamWaitEvent(a, fork, 0);
    graph = end_capture(a, cudaSuccess);
    CHECK_IS(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    CHECK(strstr(sim_violation(0), "UseNodePriority") != NULL, "%s", sim_violation(0));
    sim_start(&(struct sim_config){0});
    tap_case("priorities that a graph loses are told");
}

/* --- order --- */

static uint32_t races(bool waits, enum sim_policy policy)
{
    begin_with(&(struct sim_config){.quiet = true, .policy = policy, .seed = 5});
    cudaEvent_t event = event_new(cudaEventDisableTiming);
    store(memory, 1, a);
    cudaEventRecord(event, a);
    if (waits)
        cudaStreamWaitEvent(b, event, 0);
    fetch(memory, b);
    cudaEventDestroy(event);
    cudaDeviceSynchronize();
    return sim_violation_count();
}

static void orders(void)
{
    for (enum sim_policy policy = SIM_RANDOM; policy < SIM_POLICIES; policy++) {
        CHECK(races(true, policy) == 0, "policy %d: %s", policy, sim_violation(0));
        CHECK(races(false, policy) == 1 && sim_found_race(), "policy %d found no race", policy);
        CHECK(strstr(sim_violation(0), "store") && strstr(sim_violation(0), "cudaMemcpyAsync"), "%s", sim_violation(0));
    }
    tap_case("a pair that nothing orders is told with both names, under every policy, whatever the data was");

    begin_with(&(struct sim_config){.quiet = true, .policy = SIM_LAZY});
    store(memory, 1, a);
    CHECK_IS(cudaStreamSynchronize(a), cudaSuccess);
    fetch(memory, b);
    fetch(memory + 1, a); /* into the same host bytes */
    CHECK_IS(cudaDeviceSynchronize(), cudaSuccess);
    CHECK(sim_violation_count() == 1, "%u violations; %s", sim_violation_count(), sim_violation(0));
    sim_start(&(struct sim_config){0});
    tap_case("a host wait orders what is issued after it; two writes to pinned memory are a pair like any other");

    begin_with(&(struct sim_config){.quiet = true, .policy = SIM_EAGER});
    void *block, *again;
    cudaMallocAsync(&block, 4096, a);
    CHECK_IS(store(block, 1, a), cudaSuccess);
    cudaFreeAsync(block, a);
    cudaMallocAsync(&again, 4096, a);
    CHECK_IS(store(again, 2, a), cudaSuccess);
    CHECK_IS(cudaDeviceSynchronize(), cudaSuccess);
    CHECK(again == block && sim_violation_count() == 0, "%s", sim_violation(0));
    cudaFreeAsync(again, a);
    CHECK_IS(store(again, 3, b), cudaSuccess);
    CHECK_IS(cudaDeviceSynchronize(), cudaSuccess);
    CHECK(sim_found_race(), "use after cudaFreeAsync on another stream was let through");
    sim_start(&(struct sim_config){0});
    tap_case("the stream-ordered allocator: reuse in its stream's order, use of a freed block is told");

    uint64_t hashes[3];
    for (int i = 0; i < 3; i++) {
        begin_with(&(struct sim_config){.seed = i == 2 ? 8 : 7, .policy = SIM_RANDOM});
        for (int k = 0; k < 20; k++) {
            add(memory, 1, a);
            add(memory + 1, 1, b);
        }
        cudaDeviceSynchronize();
        hashes[i] = sim_order_hash();
    }
    sim_start(&(struct sim_config){0});
    CHECK(hashes[0] == hashes[1] && hashes[1] != hashes[2], "%llx %llx %llx", (unsigned long long)hashes[0],
          (unsigned long long)hashes[1], (unsigned long long)hashes[2]);
    tap_case("the same seed gives the same order, another seed another");
}

/* --- devices --- */

/* Of the driver, of its tenth version. */
static void find(const char *name, void *function)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    CHECK_IS(cudaGetDriverEntryPointByVersion(name, function, 10020, cudaEnableDefault, &found), cudaSuccess);
}

/* A page of device 0 at addresses of its own, reached by it alone. */
static CUdeviceptr map_page(size_t *step)
{
    PFN_cuMemGetAllocationGranularity_v10020 granularity;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemSetAccess_v10020 set_access;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = 0;
    find("cuMemGetAllocationGranularity", &granularity);
    find("cuMemAddressReserve", &reserve);
    find("cuMemCreate", &create);
    find("cuMemMap", &map);
    find("cuMemSetAccess", &set_access);
    CHECK_IS(granularity(step, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), CUDA_SUCCESS);
    CHECK_IS(reserve(&at, *step, *step, 0, 0), CUDA_SUCCESS);
    CHECK_IS(create(&handle, *step, &properties, 0), CUDA_SUCCESS);
    CHECK_IS(map(at, *step, 0, handle, 0), CUDA_SUCCESS);
    CHECK_IS(set_access(at, *step, &access, 1), CUDA_SUCCESS);
    return at;
}

/* By a stream of device 1: a kernel's store, and a copy to device 1. */
static void reach(int *at, int *there, cudaStream_t stream, bool stores, bool copies)
{
    CHECK_IS(store(at, 1, stream), stores ? cudaSuccess : cudaErrorInvalidValue);
    CHECK_IS(cudaMemcpyAsync(there, at, sizeof(int), cudaMemcpyDeviceToDevice, stream),
             copies ? cudaSuccess : cudaErrorInvalidValue);
    CHECK_IS(cudaStreamSynchronize(stream), cudaSuccess);
    (void)cudaGetLastError(); /* a launch would tell it again */
}

static void peers(void)
{
    begin_with(&(struct sim_config){.quiet = true, .policy = SIM_EAGER});
    const struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                                .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    const struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = 1},
                                             .flags = cudaMemAccessFlagsProtReadWrite};
    PFN_cuMemSetAccess_v10020 set_access;
    size_t step = 0;
    int *mapped = (int *)map_page(&step), *alone, *shared, *there;
    cudaMemPool_t pools[2];
    for (int p = 0; p < 2; p++)
        CHECK_IS(cudaMemPoolCreate(&pools[p], &properties), cudaSuccess);
    CHECK_IS(cudaMemPoolSetAccess(pools[1], &access, 1), cudaSuccess);
    CHECK_IS(cudaMallocFromPoolAsync((void **)&alone, 256, pools[0], a), cudaSuccess);
    CHECK_IS(cudaMallocFromPoolAsync((void **)&shared, 256, pools[1], a), cudaSuccess);
    CHECK_IS(store(mapped, 1, a), cudaSuccess);
    CHECK_IS(cudaStreamSynchronize(a), cudaSuccess);

    cudaStream_t stream;
    CHECK_IS(cudaSetDevice(1), cudaSuccess);
    CHECK_IS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    CHECK_IS(cudaMalloc((void **)&there, 4096), cudaSuccess);
    reach(memory, there, stream, false, true);
    CHECK_IS(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
    reach(memory, there, stream, true, true);
    reach(mapped, there, stream, false, false);
    reach(alone, there, stream, false, false);
    reach(shared, there, stream, true, true);
    find("cuMemSetAccess", &set_access);
    CHECK_IS(set_access((CUdeviceptr)mapped, step, &(const CUmemAccessDesc){
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, 1), CUDA_SUCCESS);
    reach(mapped, there, stream, true, true);
    CHECK(strstr(sim_violation(0), "access was not enabled") != NULL, "%s", sim_violation(0));
    sim_start(&(struct sim_config){0});
    tap_case("peer access is cudaMalloc's, and copies need none; mapped memory and pools are reached by who was given access");
}

/* As since CUDA 12. */
static void contexts(void)
{
    CUresult (*get)(CUcontext *), (*set)(CUcontext);
    CUcontext none, first;
    cudaStream_t stream;
    for (int goes_back = 0; goes_back < 3; goes_back++) { /* not; by its context; by its number */
        sim_start(&(struct sim_config){.quiet = true});
        find("cuCtxGetCurrent", &get);
        find("cuCtxSetCurrent", &set);
        CHECK(get(&none) == CUDA_SUCCESS && none == NULL, "a thread begins with a context");
        CHECK_IS(cudaSetDevice(1), cudaSuccess);
        CHECK(get(&first) == CUDA_SUCCESS && first != NULL, "cudaSetDevice made no context");
        CHECK_IS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
        CHECK_IS(cudaStreamDestroy(stream), cudaSuccess);
        if (goes_back == 1)
            CHECK_IS(set(first), CUDA_SUCCESS);
        if (goes_back == 2)
            CHECK_IS(cudaSetDevice(0), cudaSuccess);
        CHECK((sim_finish() > 0) == (goes_back == 2), "'%s'", sim_violation(0));
        CHECK(goes_back < 2 || strstr(sim_violation(0), "a context on GPU 0"), "'%s'", sim_violation(0));
    }
    sim_start(&(struct sim_config){0});
    tap_case("cudaSetDevice makes a context, and one that its thread does not use is told");
}

int main(void)
{
    contexts();
    events();
    hosts();
    captures();
    orders();
    peers();
    return tap_end();
}
