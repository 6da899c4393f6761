/* SPDX-License-Identifier: MIT
 *
 * Device memory: a range of addresses a device that nobody may touch (SHADE below), and a second range at a fixed
 * distance, where the bytes really lie. A program that follows a device pointer on the host faults at once; operations
 * get the other address from sim_at_read and sim_at_write. Allocations are a page apart at least.
 */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };
#define DEVICE_SPAN (sim.config.untouched ? (uint64_t)1 << 38 : (uint64_t)1 << 34) /* addresses of one device */

static char *shade, *bytes_base; /* reserved once in the process */

static void reserve_addresses(void)
{
    if (shade)
        return;
    const size_t all = DEVICE_SPAN * SIM_DEVICES_MAX;
    shade = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bytes_base = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shade == MAP_FAILED || bytes_base == MAP_FAILED)
        abort();
}

bool sim_is_device_address(const void *at)
{
    return shade && (uintptr_t)at >= (uintptr_t)shade &&
           (uintptr_t)at < (uintptr_t)shade + DEVICE_SPAN * SIM_DEVICES_MAX;
}

void *sim_host_alias(const void *at)
{
    return sim_is_device_address(at) ? bytes_base + ((uintptr_t)at - (uintptr_t)shade) : (void *)(uintptr_t)at;
}

const void *sim_device_address(const void *alias)
{
    const uintptr_t at = (uintptr_t)alias - (uintptr_t)bytes_base;
    return bytes_base && at < DEVICE_SPAN * SIM_DEVICES_MAX ? shade + at : alias;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

/* Addresses are never given out twice in a run: a stale pointer is not somebody else's memory. */
uintptr_t sim_address_take(uint32_t device, uint64_t bytes)
{
    reserve_addresses();
    const uint64_t unit = SIM_GRANULARITY;
    uint64_t *next = &sim.device_next[device];
    const uint64_t at = round_up(*next + PAGE, unit);
    if (at + bytes + PAGE > DEVICE_SPAN)
        return 0;
    *next = at + bytes;
    return (uintptr_t)shade + device * DEVICE_SPAN + at;
}

bool sim_map(uintptr_t at, uint64_t bytes)
{
    void *real = sim_host_alias((void *)at);
    return mmap(real, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) !=
           MAP_FAILED;
}

void sim_unmap(uintptr_t at, uint64_t bytes)
{
    if (mmap(sim_host_alias((void *)at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
             0) == MAP_FAILED)
        abort();
}

bool sim_device_take(uint32_t device, uint64_t bytes)
{
    if (bytes > sim.config.device_bytes - sim.device_used[device])
        return false;
    sim.device_used[device] += bytes;
    return true;
}

void sim_device_give(uint32_t device, uint64_t bytes) { sim.device_used[device] -= bytes; }

enum { GARBAGE_BYTES = 1 << 20 };

/* A page that nobody touches costs nothing: long stretches are copies of one file, made when they are written to. -1: there is
 * none, for example because of a limit on the size of files. */
static int garbage_file(void)
{
    static int file = -2;
    if (file != -2)
        return file;
    file = memfd_create("garbage", MFD_CLOEXEC);
    void *all = file >= 0 && ftruncate(file, GARBAGE_BYTES) == 0
                    ? mmap(NULL, GARBAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                    : MAP_FAILED;
    if (all == MAP_FAILED) {
        if (file >= 0)
            close(file);
        return file = -1;
    }
    memset(all, 0xff, GARBAGE_BYTES);
    munmap(all, GARBAGE_BYTES);
    return file;
}

/* Fresh memory holds garbage: NaN, for whoever takes it for a number. */
static void fill_with_garbage(char *at, uint64_t bytes)
{
    for (; bytes >= GARBAGE_BYTES && garbage_file() >= 0; at += GARBAGE_BYTES, bytes -= GARBAGE_BYTES)
        if (mmap(at, GARBAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, garbage_file(), 0) ==
            MAP_FAILED)
            abort();
    memset(at, 0xff, bytes);
}

struct sim_memory *sim_memory_new(enum sim_memory_kind kind, uint32_t device, uint64_t bytes)
{
    const uint64_t mapped = round_up(bytes, PAGE);
    uintptr_t at;
    if (kind == SIM_PINNED) {
        void *memory = mmap(NULL, mapped + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return NULL;
        at = (uintptr_t)memory + PAGE;
        if (mprotect((void *)at, mapped, PROT_READ | PROT_WRITE) != 0)
            abort();
    } else {
        if (!sim_device_take(device, bytes))
            return NULL;
        at = sim_address_take(device, mapped);
        if (at == 0 || !sim_map(at, mapped)) {
            sim_device_give(device, bytes);
            return NULL;
        }
    }
    if (!sim.config.untouched)
        fill_with_garbage(sim_host_alias((void *)at), mapped);
    struct sim_memory *memory = sim_alloc(sizeof(*memory));
    memory->kind = kind;
    memory->device = device;
    memory->at = at;
    memory->bytes = bytes;
    memory->mapped_bytes = mapped;
    memory->next = sim.memory;
    sim.memory = memory;
    return memory;
}

void sim_memory_drop(struct sim_memory *memory)
{
    struct sim_memory **link = &sim.memory;
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    if (memory->kind == SIM_PINNED) {
        munmap((void *)(memory->at - PAGE), memory->mapped_bytes + 2 * PAGE);
    } else {
        sim_unmap(memory->at, memory->mapped_bytes);
        if (memory->kind != SIM_MAPPED)
            sim_device_give(memory->device, memory->bytes);
    }
    sim_release(memory->freed_at);
    free(memory->stretches);
    free(memory->known);
    free(memory);
}

struct sim_memory *sim_memory_find(const void *at)
{
    for (struct sim_memory *memory = sim.memory; memory; memory = memory->next)
        if ((uintptr_t)at >= memory->at && (uintptr_t)at - memory->at < memory->bytes)
            return memory;
    return NULL;
}

/*
 * What cuMemMap maps and pools hand out is reached by devices that were given access to it, and by no others: peer access is
 * cudaMalloc's. A copy between devices needs that no more than peer access, but the driver has no way round the first.
 * ncclMemAlloc gives all peers access.
 */
static bool has_access(const struct sim_memory *memory, uint32_t device, bool is_copy)
{
    switch (memory->kind) {
    case SIM_MAPPED:
    case SIM_POOL: return memory->access >> device & 1;
    case SIM_MALLOC: return is_copy || memory->device == device || sim.peer_access[device][memory->device];
    case SIM_NCCL:
    case SIM_PINNED: break;
    }
    return true;
}

const char *sim_range_fault(const struct sim_range *range, uint32_t device, bool is_copy, char *text, size_t text_bytes)
{
    const struct sim_memory *memory = sim_memory_find(range->at);
    const char *fault = NULL;
    if (!memory)
        fault = "is no device memory and not pinned";
    else if (memory->dead)
        fault = "has been freed";
    else if (range->bytes > memory->bytes - ((uintptr_t)range->at - memory->at))
        fault = "goes past the end of its allocation";
    else if (!has_access(memory, device, is_copy))
        fault = memory->device == device ? "has no access set" : "belongs to another device, whose access was not enabled";
    if (!fault)
        return NULL;
    snprintf(text, text_bytes, "%" PRIu64 " bytes at %p %s", range->bytes, range->at, fault);
    return text;
}

uint32_t sim_memory_leaks(void)
{
    uint32_t count = sim.pool_count;
    if (sim.pool_count > 0)
        sim_violate("never destroyed: %u memory pools", sim.pool_count);
    for (struct sim_memory *memory = sim.memory; memory; memory = memory->next)
        if (!memory->freed && memory->kind != SIM_MAPPED) {
            static const char *const names[] = {"cudaMalloc", "cudaMallocAsync", "cuMemMap", "ncclMemAlloc",
                                                "pinned host memory"};
            sim_violate("never freed: %" PRIu64 " bytes of %s", memory->bytes, names[memory->kind]);
            count++;
        }
    return count;
}

void sim_memory_reset(void)
{
    while (sim.memory)
        sim_memory_drop(sim.memory);
}

/* --- what an operation's body gets --- */

static const struct sim_range *declared(const void *at, uint64_t bytes, bool writes)
{
    const struct sim_op *op = sim_current_op();
    for (uint32_t i = 0; op && i < op->work.range_count; i++) {
        const struct sim_range *range = &op->work.ranges[i];
        if ((uintptr_t)at >= (uintptr_t)range->at && (uintptr_t)at - (uintptr_t)range->at <= range->bytes &&
            bytes <= range->bytes - ((uintptr_t)at - (uintptr_t)range->at) && (range->writes || !writes))
            return range;
    }
    fprintf(stderr, "simulator: %s %s %" PRIu64 " bytes at %p, which it has not declared\n", op ? op->work.name : "?",
            writes ? "writes" : "reads", bytes, at);
    abort();
}

const void *sim_at_read(const void *memory, uint64_t bytes)
{
    if (bytes == 0)
        return NULL;
    (void)declared(memory, bytes, false);
    return sim_host_alias(memory);
}

void *sim_at_write(void *memory, uint64_t bytes)
{
    if (bytes == 0)
        return NULL;
    (void)declared(memory, bytes, true);
    return sim_host_alias(memory);
}
