/* SPDX-License-Identifier: MIT
 *
 * State, entry points' common part, violations, faults.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/simulator/kernels/kernels.h"

struct sim_state sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct sim_thread *self_thread;
static _Thread_local uint32_t self_generation;

uint64_t sim_mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * 0x9e3779b97f4a7c15u + b * 0xd1b54a32d192ed03u + 0x8cb92ba72f3d8dd7u;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    z = (z ^ (z >> 29)) * 0xd6e8feb86659fd93u;
    return z ^ (z >> 32);
}

uint64_t sim_next_random(void) { return sim.random = sim_mix(sim.random, sim.config.seed); }

uint64_t sim_real_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void *sim_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory)
        abort();
    return memory;
}

/* --- violations --- */

static void violate(bool is_race, const char *format, va_list arguments)
{
    char text[sizeof(sim.violations[0])];
    vsnprintf(text, sizeof(text), format, arguments);
    if (sim.violation_count < sizeof(sim.violations) / sizeof(sim.violations[0]))
        memcpy(sim.violations[sim.violation_count], text, sizeof(text));
    if (!sim.config.quiet && sim.violation_count < 8)
        fprintf(stderr, "simulator: seed %llu: %s\n", (unsigned long long)sim.config.seed, text);
    sim.violation_count++;
    sim.race_count += is_race;
}

void sim_violate(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    violate(false, format, arguments);
    va_end(arguments);
}

void sim_violate_race(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    violate(true, format, arguments);
    va_end(arguments);
}

uint32_t sim_violation_count(void) { return sim.violation_count; }
bool sim_found_race(void) { return sim.race_count > 0; }
bool sim_mutation_happened(void) { return sim.mutation_happened; }
bool sim_fault_happened(void) { return sim.fault_happened; }
uint64_t sim_order_hash(void) { return sim.order_hash; }
uint64_t sim_conflict_hash(void) { return sim.conflict_hash; }

const char *sim_violation(uint32_t index)
{
    return index < sizeof(sim.violations) / sizeof(sim.violations[0]) ? sim.violations[index] : "";
}

/* --- threads --- */

struct sim_thread *sim_thread_new(uint32_t rank)
{
    struct sim_thread *thread = sim_alloc(sizeof(*thread));
    thread->rank = rank;
    thread->next = sim.threads;
    sim.threads = thread;
    return thread;
}

/* With the lock. */
struct sim_thread *sim_self(void)
{
    if (!self_thread || self_generation != sim.generation) {
        self_thread = sim_thread_new(SIM_ANY_RANK);
        self_generation = sim.generation;
    }
    return self_thread;
}

void sim_become(struct sim_thread *thread)
{
    self_thread = thread;
    self_generation = sim.generation;
}

void sim_progress(void) { sim.progress++; }

/* --- entry points --- */

static uint32_t function_index(const char *function)
{
    for (uint32_t i = 0; i < sim.function_count; i++)
        if (sim.functions[i] == function) /* mostly: a place in the code says its own name */
            return i;
    for (uint32_t i = 0; i < sim.function_count; i++)
        if (strcmp(sim.functions[i], function) == 0)
            return i;
    if (sim.function_count == SIM_FUNCTIONS_MAX)
        abort();
    sim.functions[sim.function_count] = function;
    return sim.function_count++;
}

const char *sim_function(uint32_t index) { return index < sim.function_count ? sim.functions[index] : NULL; }

uint32_t sim_calls(const char *function, uint32_t rank)
{
    sim_mutex_lock(&sim.lock);
    const uint32_t index = function_index(function);
    uint32_t count = rank == SIM_ANY_RANK ? sim.calls[index] : 0;
    for (struct sim_thread *t = sim.threads; t && rank != SIM_ANY_RANK; t = t->next)
        count += t->rank == rank ? t->calls[index] : 0;
    sim_mutex_unlock(&sim.lock);
    return count;
}

/* What a function would say when its n-th call goes wrong and the test names no error. */
static int fitting_error(const char *function)
{
    static const char *const memory[] = {"Malloc", "HostAlloc", "cuMemCreate", "cuMemAddressReserve", "cuMemMap"};
    if (strncmp(function, "nccl", 4) == 0)
        return strcmp(function, "ncclMemAlloc") == 0 ? ncclUnhandledCudaError : ncclSystemError;
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
        if (strstr(function, memory[i]))
            return cudaErrorMemoryAllocation;
    if (strstr(function, "Synchronize") || strstr(function, "Query")) /* what they tell is what ran */
        return cudaErrorLaunchFailure;
    return strncmp(function, "cu", 2) == 0 ? cudaErrorUnknown : -1;
}

static bool is_one_of(const char *function, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(function, names[i]) == 0)
            return true;
    return false;
}

/* The functions that answer whatever has happened to the context. */
static bool always_answers(const char *function)
{
    static const char *const names[] = {"cudaGetLastError", "cudaPeekAtLastError", "cudaGetErrorString",
                                        "cudaGetErrorName", "cudaRuntimeGetVersion", "cudaDriverGetVersion"};
    return is_one_of(function, names, sizeof(names) / sizeof(names[0])) || strncmp(function, "nccl", 4) == 0;
}

/* Calls that change nothing that another thread could see: no place to give the turn away. */
static bool is_private(const char *function)
{
    static const char *const names[] = {
        "cudaEventCreateWithFlags", "cudaEventDestroy", "cudaStreamIsCapturing", "cudaEventElapsedTime",
        "cudaGetLastError",         "cudaGetDevice",    "cudaSetDevice",         "cuCtxGetCurrent",
        "cuCtxSetCurrent"};
    return is_one_of(function, names, sizeof(names) / sizeof(names[0]));
}

/* Of those that answer to a thread without a context, and leave it without one. */
static bool needs_context(const char *function)
{
    static const char *const names[] = {
        "cudaGetDeviceCount",     "cudaSetDevice",         "cudaGetDevice",           SIM_NAME_OF(cudaGetDeviceProperties),
        "cudaDeviceGetAttribute", "cudaDeviceGetPCIBusId", "cudaDeviceCanAccessPeer", "cudaGetDriverEntryPointByVersion",
        "cuCtxGetCurrent",        "cuCtxSetCurrent"};
    return !is_one_of(function, names, sizeof(names) / sizeof(names[0]));
}

static void use_context(struct sim_thread *self, const char *function)
{
    const uint32_t bit = UINT32_C(1) << self->device;
    if ((self->has_context && self->used & bit) || !needs_context(function))
        return;
    self->has_context = true;
    self->used |= bit;
}

bool sim_enter(const char *function, int *fault)
{
    *fault = 0;
    sim_mutex_lock(&sim.lock);
    if (!sim.is_started) {
        sim_mutex_unlock(&sim.lock);
        sim_start(&(struct sim_config){0});
        sim_mutex_lock(&sim.lock);
    }
    struct sim_thread *self = sim_self();
    if (self->takes_turns && !is_private(function) && sim_next_random() % 8 == 0)
        sim_pass_turn(self);
    if (self->forgiven)
        return false;
    const uint32_t index = function_index(function), ordinal = self->calls[index]++;
    const struct sim_fault *planned = &sim.config.fault;
    const uint32_t total = sim.calls[index]++;
    if (planned->function && strcmp(planned->function, function) == 0 &&
        (planned->rank == SIM_ANY_RANK ? total == planned->ordinal
                                       : self->rank == planned->rank && ordinal == planned->ordinal)) {
        sim.fault_happened = true;
        *fault = planned->error ? planned->error : fitting_error(function);
        if ((strncmp(function, "cuda", 4) == 0 || strcmp(function, "kernel launch") == 0) &&
            (*fault == cudaErrorIllegalAddress || *fault == cudaErrorLaunchFailure))
            sim_break((cudaError_t)*fault, function);
        return *fault != 0;
    }
    if (always_answers(function))
        return false;
    if (sim.config.no_driver)
        *fault = cudaErrorInsufficientDriver;
    else if (sim.config.no_device)
        *fault = cudaErrorNoDevice;
    else if (sim.broken != cudaSuccess)
        *fault = sim.broken;
    else
        use_context(self, function);
    return *fault != 0;
}

void sim_unlock(void) { sim_mutex_unlock(&sim.lock); }

bool sim_is_to_fail(const char *function)
{
    int fault;
    const bool fails = sim_enter(function, &fault);
    const char *planned = sim.config.fault.function;
    sim_unlock();
    return fails && planned && strcmp(planned, function) == 0;
}

cudaError_t sim_leave(cudaError_t error)
{
    if (error != cudaSuccess)
        sim_self()->last_error = error;
    sim_unlock();
    return error;
}

void sim_break(cudaError_t error, const char *what)
{
    if (sim.broken == cudaSuccess) {
        sim.broken = error;
        snprintf(sim.broken_by, sizeof(sim.broken_by), "%s", what);
        sim_progress();
    }
}

/* --- start and end --- */

static void forget(void)
{
    sim_graphs_reset();
    sim_nccl_reset();
    sim_streams_reset(); /* what never ran may be the record of an event */
    sim_events_reset();
    sim_vmm_reset();
    sim_deliveries_reset();
    sim_memory_reset();
    sim_host_forget();
    while (sim.threads) {
        struct sim_thread *next = sim.threads->next;
        free(sim.threads->grouped);
        free(sim.threads);
        sim.threads = next;
    }
    free(sim.notes);
}

void sim_start(const struct sim_config *config)
{
    sim_mutex_lock(&sim.lock);
    if (sim.is_started)
        forget();
    const uint32_t generation = sim.generation + 1;
    /* The lock is held; only what comes after it is cleared. */
    memset((char *)&sim + offsetof(struct sim_state, config), 0, sizeof(sim) - offsetof(struct sim_state, config));
    sim.generation = generation;
    sim.config = *config;
    if (sim.config.device_count == 0)
        sim.config.device_count = 4;
    if (sim.config.device_bytes == 0)
        sim.config.device_bytes = (uint64_t)256 << 20;
    if (sim.config.hang_ms == 0)
        sim.config.hang_ms = 20000;
    if (sim.config.architecture == 0)
        sim.config.architecture = 90;
    if (sim.config.nccl_version == 0)
        sim.config.nccl_version = NCCL_VERSION_CODE;
    if (sim.config.policy == SIM_BY_SEED)
        sim.config.policy = (enum sim_policy)(1 + sim_mix(sim.config.seed, 77) % (SIM_POLICIES - 1));
    sim.random = sim_mix(sim.config.seed, 1);
    sim.notes = sim_alloc(SIM_NOTES_MAX * sizeof(*sim.notes));
    kernel_forget_loaded();
    sim.is_started = true;
    sim_mutex_unlock(&sim.lock);
}

/* A context takes some hundred MiB of its GPU for each process, and cudaSetDevice makes one. After a fault, or on a GPU for
 * which there are no kernels, a thread may have given up before it used its own. */
static void check_contexts(void)
{
    const bool is_whole = !sim.fault_happened && sim.config.architecture == 90;
    for (const struct sim_thread *thread = sim.threads; thread && is_whole; thread = thread->next)
        for (uint32_t d = 0; d < SIM_DEVICES_MAX; d++)
            if ((thread->chosen & ~thread->used) >> d & 1)
                sim_violate("rank %u: cudaSetDevice made a context on GPU %u, which this thread does not use", thread->rank, d);
}

uint32_t sim_finish(void)
{
    sim_mutex_lock(&sim.lock);
    /* After a fault that poisons the context nothing can be given back. */
    if (sim.is_started && sim.broken == cudaSuccess) {
        check_contexts();
        (void)(sim_graph_leaks() + sim_event_leaks() + sim_stream_leaks() + sim_nccl_leaks() + sim_vmm_leaks() + sim_memory_leaks());
    }
    const uint32_t count = sim.violation_count;
    sim_mutex_unlock(&sim.lock);
    return count;
}
