/* SPDX-License-Identifier: MIT
 *
 * The conformance program of a device on the simulated GPU: the CUDA device's own code, under a few schedules. A pair of
 * accesses that nothing orders, or anything left behind, is a violation even where the results are right. Then what a
 * machine may lack, and calls that fail. The short run takes one schedule, EO_TEST_FULL=1 all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulator/cuda/sim.h"
#include "streams/cpu/available.h"
#include "streams/device.h"
#include "tests/conformance/device/table.h"
#include "tests/conformance/ranks.h"

struct lines {
    char text[2000];
};

static void keep_line(void *user, eo_log_level level, const char *text)
{
    struct lines *lines = user;
    const size_t used = strlen(lines->text);
    (void)snprintf(lines->text + used, sizeof(lines->text) - used, "%s\n", text);
}

/* The body on the one host thread of a simulation with these settings. */
static void simulate(const struct sim_config *config, void *(*body)(void *argument), void *argument)
{
    sim_start(config);
    sim_run_ranks(1, body, &argument);
    TEST_EXPECT(NULL, sim_finish() == 0, "seed %llu: %s", (unsigned long long)config->seed, sim_violation(0));
}

static void *run_cases(void *argument)
{
    TEST_HOLDS(NULL, test_device_table("cuda"));
    return argument;
}

struct refusal {
    eo_status wanted;
    const char *words;
    const char *fault; /* the function that fails, or NULL */
};

/* Create fails, says `words`, and leaves nothing behind. */
static void *run_refusal(void *argument)
{
    const struct refusal *refusal = argument;
    struct lines lines = {""};
    const eo_log log = {.write = keep_line, .user = &lines, .level = EO_LOG_WARN};
    const struct eo_device_params params = {.queue_count = 3, .ring_capacity = 8, .rank_count = 1, .event_count = 4,
                                            .stamp_count = 4, .log = &log};
    struct eo_device *device = NULL;
    const eo_status status = eo_device_create(&device, "cuda", &params);
    TEST_EXPECT(NULL, status == refusal->wanted, "%s, not %s: %s (%s)", eo_status_text(status),
                eo_status_text(refusal->wanted), lines.text, refusal->fault ? refusal->fault : "nothing fails");
    TEST_EXPECT(NULL, strstr(lines.text, refusal->words), "no '%s' in: %s", refusal->words, lines.text);
    TEST_HOLDS(NULL, device == NULL);
    eo_device_destroy(&device);
    return NULL;
}

static void refuses(struct sim_config config, eo_status wanted, const char *words)
{
    struct refusal refusal = {wanted, words, config.fault.function};
    config.quiet = true;
    simulate(&config, run_refusal, &refusal);
}

static struct eo_device *create_gpu(const eo_log *log)
{
    const struct eo_device_params params = {
        .queue_count = 3, .ring_capacity = 8, .rank_count = 1, .event_count = 4, .stamp_count = 4, .log = log};
    struct eo_device *device = NULL;
    TEST_HOLDS(NULL, eo_device_create(&device, "cuda", &params) == EO_OK);
    return device;
}

/* Collectives and copies are for others to wait for; compute may come later. */
static void *ask_for_priorities(void *argument)
{
    struct eo_device *device = create_gpu(NULL);
    int compute = 0, other = 0;
    TEST_HOLDS(NULL, cudaStreamGetPriority(device->ops->queue_handle(device, EO_QUEUE_COMPUTE), &compute) == cudaSuccess);
    for (uint32_t q = EO_QUEUE_COMPUTE + 1; q < device->params.queue_count; q++) {
        TEST_HOLDS(NULL, cudaStreamGetPriority(device->ops->queue_handle(device, q), &other) == cudaSuccess);
        TEST_EXPECT(NULL, other < compute, "queue %u has priority %d, compute %d", q, other, compute); /* lower goes first */
    }
    eo_device_destroy(&device);
    return argument;
}

/* What is offloaded lies in the host's memory, which all ranks of the host share. */
static void *ask_for_room_on_the_host(void *argument)
{
    struct lines lines = {""};
    const eo_log log = {.write = keep_line, .user = &lines, .level = EO_LOG_WARN};
    struct eo_device *device = create_gpu(&log);
    const char *bound;
    const uint64_t free_bytes = eo_memory_available(1, &bound); /* within a factor of two, whatever else runs here */
    TEST_HOLDS(NULL, device->ops->storage_check(device, NULL, free_bytes / 100, 1) == EO_OK);
    TEST_HOLDS(NULL, device->ops->storage_check(device, NULL, free_bytes * 2, 1) == EO_ERR_IO);
    TEST_HOLDS(NULL, device->ops->storage_check(device, NULL, free_bytes / 100, 200) == EO_ERR_IO);
    TEST_EXPECT(NULL, strstr(lines.text, "needed by each of 200 ranks"), "said: %s", lines.text);
    eo_device_destroy(&device);
    return argument;
}

/* What is too large for any GPU is refused, and the device serves on, though the driver speaks of an invalid argument. */
static void *ask_for_64_tib(void *argument)
{
    struct eo_device *device = create_gpu(NULL);
    for (int kind = 0; kind < EO_MEMORY_KIND_COUNT; kind++) {
        void *memory = NULL;
        if (kind == EO_MEMORY_KIND_HOST)
            continue;
        TEST_HOLDS(NULL, device->ops->reserve(device, (enum eo_memory_kind)kind, (uint64_t)1 << 46, &memory) == EO_ERR_NO_MEMORY);
        TEST_HOLDS(NULL, device->ops->reserve(device, (enum eo_memory_kind)kind, 1 << 20, &memory) == EO_OK && memory);
        device->ops->release(device, (enum eo_memory_kind)kind, memory, 1 << 20);
    }
    TEST_HOLDS(NULL, device->ops->drain(device) == EO_OK);
    eo_device_destroy(&device);
    return argument;
}

/* A host that is out of memory says nothing of the GPU, which has room. */
static void *ask_the_host(void *argument)
{
    struct lines lines = {""};
    const eo_log log = {.write = keep_line, .user = &lines, .level = EO_LOG_WARN};
    struct eo_device *device = create_gpu(&log);
    void *memory = NULL;
    TEST_HOLDS(NULL, device->ops->reserve(device, EO_MEMORY_KIND_HOST, 3 << 20, &memory) == EO_ERR_NO_MEMORY);
    TEST_EXPECT(NULL, strstr(lines.text, "the host gave no 3.0 MiB of pinned memory") && !strstr(lines.text, "are free"),
                "said: %s", lines.text);
    TEST_HOLDS(NULL, device->ops->drain(device) == EO_OK);
    eo_device_destroy(&device);
    return argument;
}

static void what_is_missing_is_said(void)
{
    refuses((struct sim_config){.no_driver = true}, EO_ERR_UNSUPPORTED, "driver");
    refuses((struct sim_config){.no_device = true}, EO_ERR_UNSUPPORTED, "finds no GPU");
    test_report("a machine without a driver, or without a GPU, is told what it lacks", 1);
    simulate(&(struct sim_config){.seed = 1}, ask_for_priorities, NULL);
    test_report("all other queues go before compute", 1);
    simulate(&(struct sim_config){.seed = 1}, ask_for_room_on_the_host, NULL);
    test_report("what is offloaded must have room in the host's memory, for all ranks together", 1);
    simulate(&(struct sim_config){.seed = 1}, ask_for_64_tib, NULL);
    test_report("a reservation of 64 TiB is memory that is not there, and no failure of the device", 1);
    simulate(
        &(struct sim_config){.seed = 1,
                             .quiet = true,
                             .fault = {.function = "cudaHostAlloc", .rank = SIM_ANY_RANK, .error = cudaErrorMemoryAllocation}},
        ask_the_host, NULL);
    test_report("missing pinned memory is the host's, in the host's words", 1);
    static const char *const calls[] = {
        "cudaSetDevice",
        SIM_NAME_OF(cudaGetDeviceProperties),
        "cudaStreamCreateWithPriority",
        "cudaEventCreateWithFlags",
        "cudaMalloc",
        "cudaMemGetInfo",
        "cudaEventRecord",
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        const struct sim_config config = {
            .fault = {.function = calls[i], .rank = SIM_ANY_RANK, .error = cudaErrorUnknown}};
        refuses(config, EO_ERR_DEVICE, "rank 0: ");
    }
    refuses((struct sim_config){.fault = {.function = "cudaMalloc", .rank = SIM_ANY_RANK,
                                          .error = cudaErrorMemoryAllocation}},
            EO_ERR_NO_MEMORY, "cudaMalloc");
    test_report("a call that fails while the device is made is named, and nothing is left behind", 1);
}

/* The first failure of work comes up at the next wait, names the operation, and stays. */
static void *run_failure(void *argument)
{
    struct lines lines = {""};
    const eo_log log = {.write = keep_line, .user = &lines, .level = EO_LOG_ERROR};
    struct eo_device *device = create_gpu(&log);
    void *memory = NULL;
    TEST_HOLDS(NULL, device->ops->reserve(device, EO_MEMORY_KIND_PRIVATE, 4096, &memory) == EO_OK);
    TEST_HOLDS(NULL, device->ops->drain(device) == EO_OK);
    device->ops->zero(device, memory, 4096);
    TEST_HOLDS(NULL, device->ops->drain(device) == EO_ERR_DEVICE);
    TEST_HOLDS(NULL, device->ops->drain(device) == EO_ERR_DEVICE);
    TEST_EXPECT(NULL, strstr(lines.text, "zero: ") && strstr(lines.text, "lost to this process"), "%s", lines.text);
    device->ops->release(device, EO_MEMORY_KIND_PRIVATE, memory, 4096);
    eo_device_destroy(&device);
    return argument;
}

static void failed_work_is_named_and_stays(void)
{
    const struct sim_config config = {.quiet = true, /* the first clears what is reserved */
                                      .fault = {.function = "cudaMemsetAsync", .rank = SIM_ANY_RANK, .ordinal = 1,
                                                .error = cudaErrorIllegalAddress}};
    simulate(&config, run_failure, NULL);
    test_report("work that fails is named at the next wait, and the failure stays", 1);
}

/* A program leaves "not ready" of an event unread, then the error of a call that failed: neither is a kernel's. */
static void *leave_errors(void *argument)
{
    struct lines lines = {""};
    const eo_log log = {.write = keep_line, .user = &lines, .level = EO_LOG_WARN};
    struct eo_device *device = create_gpu(&log);
    void *memory = NULL;
    cudaEvent_t event;
    TEST_HOLDS(NULL, device->ops->reserve(device, EO_MEMORY_KIND_PRIVATE, 4096, &memory) == EO_OK);
    TEST_HOLDS(NULL, cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    bool is_pending = false;
    for (int i = 0; i < 100 && !is_pending; i++) {
        device->ops->fill(device, memory, 1, 4096);
        TEST_HOLDS(NULL, cudaEventRecord(event, device->ops->queue_handle(device, EO_QUEUE_COMPUTE)) == cudaSuccess);
        is_pending = cudaEventQuery(event) == cudaErrorNotReady;
    }
    TEST_HOLDS(NULL, is_pending);
    device->ops->fill(device, memory, 2, 4096);
    TEST_HOLDS(NULL, device->ops->drain(device) == EO_OK && lines.text[0] == '\0');
    TEST_HOLDS(NULL, cudaSetDevice(99) == cudaErrorInvalidDevice);
    device->ops->fill(device, memory, 3, 4096);
    TEST_HOLDS(NULL, device->ops->drain(device) == EO_OK);
    TEST_EXPECT(NULL, strstr(lines.text, "nobody has read its error: invalid device ordinal"), "said: '%s'", lines.text);
    TEST_HOLDS(NULL, cudaEventDestroy(event) == cudaSuccess);
    device->ops->release(device, EO_MEMORY_KIND_PRIVATE, memory, 4096);
    eo_device_destroy(&device);
    return argument;
}

/* --- which GPU --- */

/* As a rank's process does at its start. */
static void *ask_for_the_third(void *argument)
{
    const int before = *(const int *)argument;
    const struct eo_device_params params = {
        .queue_count = 2, .ring_capacity = 8, .rank_count = 1, .event_count = 4, .device_index = 2};
    struct eo_device *device = NULL;
    void *memory;
    int after = -1;
    if (before >= 0) {
        TEST_HOLDS(NULL, cudaSetDevice(before) == cudaSuccess);
        TEST_HOLDS(NULL, cudaMalloc(&memory, 64) == cudaSuccess && cudaFree(memory) == cudaSuccess);
    }
    TEST_HOLDS(NULL, eo_device_create(&device, "cuda", &params) == EO_OK);
    eo_device_destroy(&device);
    TEST_HOLDS(NULL, cudaGetDevice(&after) == cudaSuccess && after == (before >= 0 ? before : 2));
    return argument;
}

/* --- rows of memory --- */

enum { ROW_BYTES = 1024 };
static uintptr_t rows_begin;

static uint32_t three_rows(const void *at, struct sim_row *out, uint32_t room)
{
    static const char *const names[] = {"first", "second", "third"};
    const uint64_t row = ((uintptr_t)at - rows_begin) / ROW_BYTES;
    if ((uintptr_t)at < rows_begin || row >= 3 || room == 0)
        return 0;
    *out = (struct sim_row){rows_begin + row * ROW_BYTES, rows_begin + (row + 1) * ROW_BYTES, names[row]};
    return 1;
}

struct reach {
    bool by_kernel;
    uint64_t at, bytes;
};

static void *reach_rows(void *argument)
{
    const struct reach *reach = argument;
    struct eo_device *device = create_gpu(NULL);
    void *memory = NULL;
    TEST_HOLDS(NULL, device->ops->reserve(device, EO_MEMORY_KIND_PRIVATE, 4 * ROW_BYTES, &memory) == EO_OK);
    TEST_HOLDS(NULL, device->ops->drain(device) == EO_OK);
    rows_begin = (uintptr_t)memory;
    sim_rows_at = three_rows;
    if (reach->by_kernel)
        device->ops->fill(device, (char *)memory + reach->at, 7, reach->bytes);
    else
        device->ops->zero(device, (char *)memory + reach->at, reach->bytes);
    (void)device->ops->drain(device);
    sim_rows_at = NULL;
    device->ops->release(device, EO_MEMORY_KIND_PRIVATE, memory, 4 * ROW_BYTES);
    eo_device_destroy(&device);
    return argument;
}

static void rows_are_what_may_be_touched(void)
{
    static const struct {
        struct reach reach;
        const char *words;
    } cases[] = {
        {{true, ROW_BYTES, ROW_BYTES}, NULL},
        {{false, ROW_BYTES, ROW_BYTES}, NULL},
        {{true, ROW_BYTES, ROW_BYTES + 4}, "outside the rows of its arguments, 1024 bytes from the beginning of row second"},
        {{true, 2 * ROW_BYTES + 512, ROW_BYTES}, "outside the rows of its arguments"},
        {{false, 512, ROW_BYTES}, "go past the end of row first, 512 bytes on"},
        {{true, 3 * ROW_BYTES, ROW_BYTES}, NULL}, /* no row: the allocation counts */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct reach reach = cases[i].reach;
        void *argument = &reach;
        sim_start(&(struct sim_config){.seed = 1 + i, .quiet = true});
        sim_run_ranks(1, reach_rows, &argument);
        const bool found = sim_finish() > 0 && cases[i].words && strstr(sim_violation(0), cases[i].words);
        TEST_EXPECT(NULL, cases[i].words ? found : sim_violation_count() == 0, "case %zu: '%s'", i, sim_violation(0));
    }
    test_report("a kernel or a copy that leaves the row that it was given is found", 1);
}

int main(void)
{
    test_event_elements = 1 << 16; /* here a seed decides how late they are */
    for (uint64_t seed = 1; seed <= (getenv("EO_TEST_FULL") ? 3 : 1); seed++)
        simulate(&(const struct sim_config){.seed = seed, .device_bytes = (uint64_t)512 << 20}, run_cases, NULL);
    test_report("the device's cases on a simulated GPU: nothing unordered, nothing left behind", 1);
    what_is_missing_is_said();
    failed_work_is_named_and_stays();
    simulate(&(struct sim_config){.policy = SIM_LAZY}, leave_errors, NULL);
    test_report("an error that the program left unread is no kernel's: told, and \"not ready\" is none", 1);
    for (int before = -1; before < 2; before++)
        simulate(&(struct sim_config){0}, ask_for_the_third, &before);
    test_report("a device on the third GPU makes no context on another, and gives back the GPU that its thread had", 1);
    rows_are_what_may_be_touched();
    return tap_end();
}
