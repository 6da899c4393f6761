/* SPDX-License-Identifier: MIT
 *
 * The kernels of the .cu files on simulated streams: a launch is an operation whose accesses are known once it has run
 * (tests/simulator/kernels/kernels.h).
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#include "tests/simulator/kernels/kernels.h"

struct launched {
    struct kernel_launch launch;
    size_t argument_bytes;
    _Alignas(16) unsigned char arguments[];
};

static struct sim_op *exploring; /* with the lock */
void (*sim_on_launch)(const char *kernel, cudaStream_t stream);

#if defined(__SANITIZE_THREAD__)
void __tsan_read_range(void *at, unsigned long bytes);
void __tsan_write_range(void *at, unsigned long bytes);
static void tell_thread_sanitizer(uintptr_t at, uint32_t bytes, bool writes)
{
    if (writes)
        __tsan_write_range((void *)at, bytes);
    else
        __tsan_read_range((void *)at, bytes);
}
#else
#define tell_thread_sanitizer NULL
#endif

/* By a stream's own thread. */
static void body(const void *arguments)
{
    struct launched *launched = (struct launched *)(uintptr_t)arguments; /* the operation's own copy */
    const struct kernel_options options = {.seed = sim.config.seed, .unchecked = true, .touched = tell_thread_sanitizer};
    const char *objection = kernel_run(&launched->launch, launched->arguments, launched->argument_bytes, &options);
    if (!objection)
        return;
    sim_mutex_lock(&sim.lock);
    sim_violate("%s", objection);
    sim_break(cudaErrorIllegalAddress, launched->launch.name);
    sim_mutex_unlock(&sim.lock);
}

static void add_range(void *user, uintptr_t from, uintptr_t to, bool writes)
{
    struct sim_work *work = user;
    if ((work->range_count & (work->range_count - 1)) == 0) { /* room for the next power of two */
        const uint32_t room = work->range_count ? 2 * work->range_count : 1;
        work->ranges = realloc(work->ranges, room * sizeof(*work->ranges));
        if (!work->ranges)
            abort();
    }
    work->ranges[work->range_count++] = (struct sim_range){sim_device_address((const void *)from), to - from, writes};
}

bool sim_explore(struct sim_op *op)
{
    struct launched *launched = op->work.arguments;
    const struct kernel_options options = {.seed = sim_mix(sim.config.seed, op->identity)};
    exploring = op;
    const char *objection = kernel_run(&launched->launch, launched->arguments, launched->argument_bytes, &options);
    exploring = NULL;
    if (objection) {
        sim_violate("%s (stream %u)", objection, op->stream->label);
        sim_break(cudaErrorIllegalAddress, op->work.name);
        return false;
    }
    kernel_each_touched(add_range, &op->work);
    return true;
}

const char *kernel_memory_at(uintptr_t at, uintptr_t *from, uintptr_t *to)
{
    static char text[200];
    const struct sim_range range = {sim_device_address((const void *)at), 1, false};
    const char *fault = sim_range_fault(&range, exploring->stream->device, text, sizeof(text));
    if (fault)
        return fault;
    const struct sim_memory *memory = sim_memory_find(range.at);
    if (memory->kind == SIM_PINNED)
        sim_deliver_to(&(struct sim_range){(const void *)(at / 512 * 512), 512, false});
    *from = (uintptr_t)sim_host_alias((const void *)memory->at);
    *to = *from + memory->bytes;
    return NULL;
}

void *kernel_host_address(void *device_address)
{
    return sim_host_alias(device_address);
}

void kernel_enqueue(const struct kernel_launch *launch, const void *arguments, size_t argument_bytes, cudaStream_t handle)
{
    int fault;
    char text[200];
    if (sim_on_launch)
        sim_on_launch(launch->name, handle);
    if (sim_enter("kernel launch", &fault)) {
        (void)sim_leave(fault == -1 ? cudaErrorLaunchOutOfResources : (cudaError_t)fault);
        return;
    }
    struct sim_stream *stream = sim_stream_of(handle);
    const char *refusal = kernel_launch_fault(launch, argument_bytes, text, sizeof(text));
    if (refusal)
        sim_violate("%s", refusal);
    if (refusal || !stream || stream->device != sim_self()->device) {
        (void)sim_leave(refusal ? cudaErrorInvalidConfiguration : cudaErrorInvalidResourceHandle);
        return;
    }
    struct sim_work work = {.kind = SIM_KERNEL, .name = launch->name, .body = body,
                            .explores = sim.config.executor == SIM_SCHEDULED,
                            .argument_bytes = sizeof(struct launched) + argument_bytes};
    struct launched *launched = work.arguments = sim_alloc(work.argument_bytes);
    launched->launch = *launch;
    launched->argument_bytes = argument_bytes;
    memcpy(launched->arguments, arguments, argument_bytes);
    (void)sim_leave(sim_issue(stream, &work));
}
