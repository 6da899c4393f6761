/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/reserve.h"
#include "streams/cpu/device.h"
#include "streams/cpu/memory_file.h"
#include "streams/shared/files.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22 /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE_BYTES_MAX = 64 << 10 }; /* of any kernel; a stage and the whole segment are of whole pages, or none are populated */

/* common, lines, and from the next page on stages */
static uint64_t line_bytes(uint32_t rank_count)
{
    return sizeof(struct eo_local_line) + rank_count * sizeof(struct eo_local_rank);
}

static uint64_t lines_begin(void)
{
    return eo_align_up(sizeof(struct eo_local_common), _Alignof(struct eo_local_line));
}

static uint64_t stages_begin(uint32_t rank_count)
{
    return eo_align_up(lines_begin() + EO_SHARED_SLOTS * line_bytes(rank_count), PAGE_BYTES_MAX);
}

uint64_t eo_shared_segment_bytes(uint32_t rank_count)
{
    return stages_begin(rank_count) + (uint64_t)EO_SHARED_SLOTS * rank_count * 2 * EO_SHARED_STAGE_BYTES;
}

struct eo_local_common *eo_shared_common_of(unsigned char *segment)
{
    return (struct eo_local_common *)segment;
}

static struct eo_local_line *line_at(unsigned char *segment, uint32_t rank_count, uint32_t slot)
{
    return (struct eo_local_line *)(segment + lines_begin() + slot * line_bytes(rank_count));
}

struct eo_local_line *eo_shared_line(const struct eo_group *group, uint32_t slot)
{
    return line_at(group->shared->segment, group->params.rank_count, slot);
}

unsigned char *eo_shared_stage(const struct eo_group *group, uint32_t slot, uint32_t rank, uint64_t sequence)
{
    const uint64_t rank_count = group->params.rank_count;
    return group->shared->segment + stages_begin(group->params.rank_count) +
           ((slot * rank_count + rank) * 2 + (sequence & 1)) * EO_SHARED_STAGE_BYTES;
}

/* Nobody is in it, and nobody sleeps at its gate. */
void eo_shared_line_reset(struct eo_local_line *line, uint32_t rank_count, uint64_t index)
{
    memset(line, 0, line_bytes(rank_count));
    line->gate.between_processes = true;
    line->index = index;
}

unsigned char *eo_shared_segment_make(uint32_t rank_count, bool is_root, int *fd)
{
    const uint64_t bytes = eo_shared_segment_bytes(rank_count);
    *fd = eo_memory_file_make("evenodd group", bytes);
    if (*fd < 0)
        return NULL;
    unsigned char *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    /* All but the stages, which are populated by who opens a communicator. */
    if (segment == MAP_FAILED || !eo_reserve_bytes(*fd, stages_begin(rank_count))) {
        if (segment != MAP_FAILED)
            munmap(segment, bytes);
        close(*fd);
        *fd = -1;
        return NULL;
    }
    if (is_root) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&eo_shared_common_of(segment)->lock, &attributes);
        pthread_mutexattr_destroy(&attributes);
    }
    for (uint32_t slot = 0; slot < EO_SHARED_SLOTS; slot++)
        eo_shared_line_reset(line_at(segment, rank_count, slot), rank_count, 0);
    return segment;
}

unsigned char *eo_shared_map(int fd, uint64_t bytes, bool may_write)
{
    unsigned char *memory = eo_cpu_map(fd, bytes, PROT_READ | (may_write ? PROT_WRITE : 0));
    if (!memory)
        return NULL;
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    /* Whoever reserved it has made its pages; here they get addresses before a step would. Older kernels: in the first. */
    if (!may_write)
        (void)madvise(memory, bytes, MADV_POPULATE_READ);
    return memory;
}
