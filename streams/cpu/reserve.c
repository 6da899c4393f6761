/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "streams/cpu/available.h"
#include "streams/cpu/device_cpu.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older kernels refuse it */
#endif

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)
#define MIB             ((double)(1 << 20))

static uint64_t mapped_bytes(uint64_t bytes)
{
    return eo_align_up(eo_max_u64(bytes, 1), (uint64_t)sysconf(_SC_PAGESIZE));
}

/* An anonymous mapping whose start is a huge page's where it is as long as one; NULL when there is no room. */
static unsigned char *map_aligned(uint64_t bytes)
{
    const uint64_t extra = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 0;
    unsigned char *memory = mmap(NULL, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (extra == 0)
        return memory;
    unsigned char *aligned = (unsigned char *)eo_align_up((uintptr_t)memory, HUGE_PAGE_BYTES);
    const uint64_t before = (uint64_t)(aligned - memory);
    if (before > 0)
        munmap(memory, before);
    if (extra > before)
        munmap(aligned + bytes, extra - before);
    return aligned;
}

/* Every page is there before the first step: a page fault in a step would be an allocation after all. */
static bool prefault(unsigned char *memory, uint64_t bytes)
{
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL)
        return false;
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < bytes; at += page_bytes)
        *(volatile unsigned char *)(memory + at) = 0;
    return true;
}

/* All kinds are the same here. */
eo_status eo_cpu_reserve(struct eo_device *device, enum eo_memory_kind kind, uint64_t bytes, void **out)
{
    *out = NULL;
    const uint32_t rank = device->params.rank;
    const uint64_t available = eo_memory_available();
    unsigned char *memory = NULL;
    if (bytes <= available && bytes <= INT64_MAX / 2)
        memory = map_aligned(mapped_bytes(bytes));
    if (!memory) {
        eo_log_write(&device->log, EO_LOG_ERROR,
                     "rank %u: out of memory: %.1f MiB needed, %.1f MiB available; use a smaller model or batch, more "
                     "recompute, or more machines", rank, (double)bytes / MIB, (double)available / MIB);
        return EO_ERR_NO_MEMORY;
    }
    const uint64_t mapped = mapped_bytes(bytes);
    const struct eo_cpu *cpu = eo_cpu_of(device);
    if (cpu->affinity_ops)
        cpu->affinity_ops->bind_memory(cpu->affinity, memory, mapped);
    (void)madvise(memory, mapped, MADV_HUGEPAGE); /* refused where the system has none: 4 KiB pages do */
    if (!prefault(memory, mapped)) {
        eo_log_write(&device->log, EO_LOG_ERROR, "rank %u: out of memory: %.1f MiB cannot be populated (%s), %.1f MiB "
                     "were available", rank, (double)bytes / MIB, strerror(errno), (double)available / MIB);
        munmap(memory, mapped);
        return EO_ERR_NO_MEMORY;
    }
    *out = memory;
    return EO_OK;
}

void eo_cpu_release(struct eo_device *device, enum eo_memory_kind kind, void *memory, uint64_t bytes)
{
    if (memory)
        munmap(memory, mapped_bytes(bytes));
}

eo_status eo_cpu_available(struct eo_device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    *free_bytes = eo_memory_available();
    *total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return EO_OK;
}
