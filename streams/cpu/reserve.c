/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/reserve.h"
#include "streams/cpu/available.h"
#include "streams/cpu/device.h"
#include "streams/cpu/memory_file.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)
#define MIB             ((double)(1 << 20))

static uint64_t mapped_bytes(uint64_t bytes)
{
    return eo_align_up(eo_max_u64(bytes, 1), (uint64_t)sysconf(_SC_PAGESIZE));
}

unsigned char *eo_cpu_map(int fd, uint64_t bytes, int protection)
{
    const uint64_t extra = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 0;
    unsigned char *memory = mmap(NULL, bytes + extra, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    unsigned char *aligned = memory;
    if (extra > 0) {
        aligned = (unsigned char *)eo_align_up((uintptr_t)memory, HUGE_PAGE_BYTES);
        const uint64_t before = (uint64_t)(aligned - memory);
        if (before > 0)
            munmap(memory, before);
        if (extra > before)
            munmap(aligned + bytes, extra - before);
    }
    if (fd >= 0 && mmap(aligned, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(aligned, bytes);
        return NULL;
    }
    return aligned;
}

/* A file without a name, of which nothing is left when its processes are gone, however they went. */
static unsigned char *map_shared(struct eo_cpu *cpu, uint64_t bytes)
{
    struct eo_cpu_shared *shared = cpu->shared;
    while (shared < cpu->shared + EO_CPU_SHARED_MAX && shared->bytes > 0)
        shared++;
    if (shared == cpu->shared + EO_CPU_SHARED_MAX)
        return NULL;
    const int fd = eo_memory_file_make("evenodd", bytes);
    if (fd < 0)
        return NULL;
    unsigned char *memory = eo_cpu_map(fd, bytes, PROT_READ | PROT_WRITE);
    if (memory)
        *shared = (struct eo_cpu_shared){memory, bytes, fd};
    else
        close(fd);
    return memory;
}

const struct eo_cpu_shared *eo_cpu_shared_at(const struct eo_device *device, const void *memory)
{
    const struct eo_cpu *cpu = eo_cpu_of(device);
    for (int i = 0; i < EO_CPU_SHARED_MAX; i++)
        if (cpu->shared[i].bytes > 0 && cpu->shared[i].memory == memory)
            return &cpu->shared[i];
    return NULL;
}

/* Every page is there before the first step: a page fault in a step would be an allocation after all. `shared`: NULL
 * where the memory is this process's alone. */
static bool prefault(unsigned char *memory, uint64_t bytes, const struct eo_cpu_shared *shared)
{
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return true;
    if (!eo_populate_is_refused(errno))
        return false;
    if (shared && !eo_reserve_bytes(shared->fd, bytes)) /* else a page that cannot be had would be a signal */
        return false;
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < bytes; at += page_bytes)
        *(volatile unsigned char *)(memory + at) = 0;
    return true;
}

/* All kinds are the same here, but where other processes are to read some. */
eo_status eo_cpu_reserve(struct eo_device *device, enum eo_memory_kind kind, uint64_t bytes, void **out)
{
    *out = NULL;
    const uint32_t rank = device->params.rank;
    const char *bound;
    const uint64_t available = eo_memory_available(1, &bound), mapped = mapped_bytes(bytes);
    const bool is_shared = device->params.share_memory &&
                           (kind == EO_MEMORY_KIND_GATHER || kind == EO_MEMORY_KIND_GRADIENT);
    unsigned char *memory = NULL;
    if (bytes > INT64_MAX / 2 || bytes > available || mapped > available) {
        eo_log_write(&device->log, EO_LOG_ERROR,
                     "rank %u: out of memory: %.1f MiB needed, %.1f MiB available%s; use a smaller model or batch, more "
                     "recompute, or more machines", rank, (double)eo_max_u64(bytes, mapped) / MIB, (double)available / MIB,
                     bound);
        return EO_ERR_NO_MEMORY;
    }
    memory = is_shared ? map_shared(eo_cpu_of(device), mapped) : eo_cpu_map(-1, mapped, PROT_READ | PROT_WRITE);
    if (!memory) {
        eo_log_write(&device->log, EO_LOG_ERROR, "rank %u: out of memory: the system refused %.1f MiB: %s; %.1f MiB seemed to "
                     "be available%s", rank, (double)mapped / MIB, strerror(errno), (double)available / MIB, bound);
        return EO_ERR_NO_MEMORY;
    }
    const struct eo_cpu *cpu = eo_cpu_of(device);
    if (cpu->affinity_ops)
        cpu->affinity_ops->bind_memory(cpu->affinity, memory, mapped);
    (void)madvise(memory, mapped, MADV_HUGEPAGE); /* refused where the system has none: 4 KiB pages do */
    if (!prefault(memory, mapped, is_shared ? eo_cpu_shared_at(device, memory) : NULL)) {
        eo_log_write(&device->log, EO_LOG_ERROR, "rank %u: out of memory: cannot populate %.1f MiB (%s), %.1f MiB were "
                     "available", rank, (double)bytes / MIB, strerror(errno), (double)available / MIB);
        eo_cpu_release(device, kind, memory, bytes);
        return EO_ERR_NO_MEMORY;
    }
    *out = memory;
    return EO_OK;
}

void eo_cpu_release(struct eo_device *device, enum eo_memory_kind kind, void *memory, uint64_t bytes)
{
    if (!memory)
        return;
    struct eo_cpu_shared *shared = (struct eo_cpu_shared *)eo_cpu_shared_at(device, memory);
    if (shared) {
        close(shared->fd);
        shared->bytes = 0;
    }
    munmap(memory, mapped_bytes(bytes));
}

eo_status eo_cpu_available(struct eo_device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    const char *bound;
    *free_bytes = eo_memory_available(device->params.processes, &bound);
    *total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return EO_OK;
}
