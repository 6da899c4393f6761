/* SPDX-License-Identifier: MIT
 *
 * The kernels of the .cu files on simulated streams: a launch is an operation whose accesses are known once it has run
 * (tests/simulator/kernels/kernels.h).
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulator/kernels/kernels.h"

struct launched {
    struct kernel_launch launch;
    size_t argument_bytes;
    uint32_t row_count; /* that it may touch; they stand behind the arguments */
    _Alignas(16) unsigned char arguments[];
};

static struct sim_op *exploring; /* with the lock */
static struct pointed {
    bool collects; /* the pointers among a launch's arguments */
    struct sim_row *rows;
    uint32_t count, room;
} pointed; /* with the lock */
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

static struct sim_row *rows_of(struct launched *launched)
{
    return (struct sim_row *)(void *)(launched->arguments + (launched->argument_bytes + 15) / 16 * 16);
}

/* Memory with rows: NULL, or why this byte is in none that the kernel was given. Of several at one place the farthest. */
static const char *narrow_to_row(const struct sim_memory *memory, uintptr_t at, uintptr_t *from, uintptr_t *to, char *text,
                                 size_t text_bytes)
{
    struct launched *launched = exploring->work.arguments;
    const struct sim_row *rows = rows_of(launched), *nearest = NULL, *around = NULL;
    for (uint32_t i = 0; i < launched->row_count; i++) {
        if (rows[i].from < memory->at || rows[i].from >= memory->at + memory->bytes)
            continue;
        if (at - rows[i].from < rows[i].to - rows[i].from && (!around || rows[i].to > around->to))
            around = &rows[i];
        if (!nearest || (rows[i].from <= at && rows[i].from > nearest->from))
            nearest = &rows[i];
    }
    if (around) {
        *from += around->from - memory->at;
        *to = *from + (around->to - around->from);
        return NULL;
    }
    if (nearest)
        snprintf(text, text_bytes, "outside the rows of its arguments, %lld bytes from the beginning of row %s, of %llu bytes",
                 (long long)(at - nearest->from), nearest->name, (unsigned long long)(nearest->to - nearest->from));
    return nearest ? text : NULL;
}

const char *kernel_memory_at(uintptr_t at, uintptr_t *from, uintptr_t *to)
{
    static char text[400];
    const struct sim_range range = {sim_device_address((const void *)at), 1, false};
    const char *fault = sim_range_fault(&range, exploring->stream->device, false, text, sizeof(text));
    if (fault)
        return fault;
    const struct sim_memory *memory = sim_memory_find(range.at);
    if (memory->kind == SIM_PINNED)
        sim_deliver_to(&(struct sim_range){(const void *)(at / 512 * 512), 512, false});
    *from = (uintptr_t)sim_host_alias((const void *)memory->at);
    *to = *from + memory->bytes;
    return narrow_to_row(memory, (uintptr_t)range.at, from, to, text, sizeof(text));
}

static void collect(const void *at)
{
    struct sim_row rows[SIM_ROWS_AT_MAX];
    const uint32_t count = sim_is_device_address(at) ? sim_rows_at(at, rows, SIM_ROWS_AT_MAX) : 0;
    for (uint32_t i = 0; i < count; i++) {
        bool is_known = false;
        for (uint32_t k = 0; k < pointed.count && !is_known; k++)
            is_known = pointed.rows[k].from == rows[i].from && pointed.rows[k].to == rows[i].to;
        if (is_known)
            continue;
        if (pointed.count == pointed.room) {
            pointed.room = pointed.room ? 2 * pointed.room : 64;
            pointed.rows = realloc(pointed.rows, pointed.room * sizeof(*pointed.rows));
            if (!pointed.rows)
                abort();
        }
        pointed.rows[pointed.count++] = rows[i];
    }
}

void *kernel_host_address(void *device_address)
{
    if (!pointed.collects)
        return sim_host_alias(device_address);
    collect(device_address);
    return device_address;
}

/* Of the pointers among a launch's arguments, which stay what they are. */
static void collect_rows(const struct kernel_launch *launch, void *arguments)
{
    pointed.count = 0;
    if (!sim_rows_at || sim.config.executor != SIM_SCHEDULED)
        return;
    pointed.collects = true;
    launch->reach(arguments);
    pointed.collects = false;
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
    struct launched *launched = sim_alloc(sizeof(*launched) + argument_bytes);
    memcpy(launched->arguments, arguments, argument_bytes);
    collect_rows(launch, launched->arguments);
    launched->launch = *launch;
    launched->argument_bytes = argument_bytes;
    launched->row_count = pointed.count;
    const size_t head_bytes = (size_t)((unsigned char *)rows_of(launched) - (unsigned char *)launched);
    struct sim_work work = {.kind = SIM_KERNEL,
                            .name = launch->name,
                            .body = body,
                            .explores = sim.config.executor == SIM_SCHEDULED,
                            .argument_bytes = head_bytes + pointed.count * sizeof(struct sim_row)};
    work.arguments = launched = realloc(launched, work.argument_bytes);
    if (!launched)
        abort();
    if (pointed.count > 0)
        memcpy(rows_of(launched), pointed.rows, pointed.count * sizeof(struct sim_row));
    (void)sim_leave(sim_issue(stream, &work));
}
