/* SPDX-License-Identifier: MIT
 *
 * Communicators of `shared`: lines in the segment, memory that peers read, and what passes through the stages.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/reserve.h"
#include "streams/cpu/device.h"
#include "streams/shared/files.h"
#include "streams/transports.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* -- where things lie -------------------------------------------------------------------------------------------- */

enum { REGION_SHIFT = 56 }; /* a place: region + 1, and the offset below; 0: hidden */

static uint64_t shared_place(const struct eo_comm *comm, const void *send)
{
    const struct eo_shared_region *regions = comm->end.group->shared->regions;
    for (uint64_t i = 0; i < EO_SHARED_REGIONS_MAX; i++) {
        const uint64_t offset = (uintptr_t)send - (uintptr_t)regions[i].own;
        if (regions[i].own && (uintptr_t)send >= (uintptr_t)regions[i].own && offset < regions[i].bytes)
            return (i + 1) << REGION_SHIFT | offset;
    }
    return 0;
}

static const void *shared_send_of(const struct eo_comm *comm, uint32_t rank)
{
    const struct eo_local_post *post = eo_local_post_of(&comm->end, rank);
    if (rank == comm->end.rank)
        return post->send;
    const uint64_t region = post->place >> REGION_SHIFT, offset = post->place & ((UINT64_C(1) << REGION_SHIFT) - 1);
    if (region == 0) /* hidden, or nothing at all: no peer's, but an address of ours */
        return eo_local_post_of(&comm->end, comm->end.rank)->send;
    return comm->end.group->shared->regions[region - 1].ranks[rank] + offset;
}

static bool shared_is_hidden(const struct eo_comm *comm)
{
    const struct eo_local_post *mine = eo_local_post_of(&comm->end, comm->end.rank);
    if (mine->kind == EO_LOCAL_BARRIER || mine->count == 0)
        return false;
    for (uint32_t r = 0; r < comm->end.group->params.rank_count; r++)
        if (eo_local_post_of(&comm->end, r)->place == 0)
            return true;
    return false;
}

/* -- in pieces --------------------------------------------------------------------------------------------------- */

/* Elements (bytes, of an all-gather) of each rank's part that go through its stage at a time. */
static uint64_t piece_count(const struct eo_local_post *post, uint32_t rank_count)
{
    if (post->kind == EO_LOCAL_ALL_GATHER)
        return EO_SHARED_STAGE_BYTES;
    const uint64_t elements = EO_SHARED_STAGE_BYTES / eo_dtype_bytes(post->dtype);
    return post->kind == EO_LOCAL_REDUCE_SCATTER ? elements / rank_count : elements;
}

/* What this rank sends of [begin, begin + count), into its stage: of a reduce-scatter one part for each rank. */
static void fill_stage(unsigned char *stage, const struct eo_local_post *post, uint32_t rank_count, uint64_t begin,
                       uint64_t count, uint64_t size)
{
    const unsigned char *send = post->send;
    const uint32_t parts = post->kind == EO_LOCAL_REDUCE_SCATTER ? rank_count : 1;
    for (uint64_t r = 0; r < parts; r++)
        memcpy(stage + r * count * size, send + (r * post->count + begin) * size, count * size);
}

/*
 * Everything passes through the stages, also of ranks that could be read directly. A stage is written before the rank
 * enters, and read until the readers leave: two are enough, as of posts.
 */
static eo_status shared_run_in_pieces(const struct eo_local_work *work)
{
    struct eo_comm *comm = work->comm;
    const struct eo_local_post *post = &work->post;
    const struct eo_group *group = comm->end.group;
    const uint32_t rank = comm->end.rank, rank_count = group->params.rank_count, slot = comm->shared->slot;
    const uint64_t size = post->kind == EO_LOCAL_ALL_GATHER ? 1 : eo_dtype_bytes(post->dtype);
    const uint64_t most = piece_count(post, rank_count);
    for (uint64_t begin = 0, count; begin < post->count; begin += count) {
        unsigned char *recv = (unsigned char *)work->recv + begin * size;
        count = eo_min_u64(most, post->count - begin);
        fill_stage(eo_shared_stage(group, slot, rank, comm->end.sequence + 1), post, rank_count, begin, count, size);
        eo_local_enter(&comm->end, post);
        const eo_status status = eo_local_meet(&comm->end, false, eo_now_ns());
        for (uint32_t r = 0; r < rank_count; r++)
            comm->sends[r] = eo_shared_stage(group, slot, r, comm->end.sequence);
        if (status >= 0 && post->kind == EO_LOCAL_ALL_GATHER)
            eo_local_cpu_gather(comm, recv, post->count, count);
        else if (status >= 0)
            eo_local_cpu_reduce(comm, recv, post->kind == EO_LOCAL_REDUCE_SCATTER ? rank * count : 0, count,
                                post->dtype);
        eo_local_leave(&comm->end);
        EO_TRY(status);
    }
    return EO_OK;
}

static const struct eo_local_peers shared_peers = {
    .place = shared_place,
    .send_of = shared_send_of,
    .is_hidden = shared_is_hidden,
    .run_in_pieces = shared_run_in_pieces,
};

/* -- open and close ---------------------------------------------------------------------------------------------- */

/*
 * The slot of communicator `index`: of who came first, else any that was never used or that all have left. 0: there is none
 * yet, for the group's own is never given. Under the lock.
 */
static uint32_t take_slot(struct eo_group *group, uint64_t index)
{
    uint32_t free_slot = 0;
    for (uint32_t slot = EO_SHARED_SLOTS - 1; slot > 0; slot--) {
        const struct eo_local_line *line = eo_shared_line(group, slot);
        if (line->index == index)
            return slot;
        if (line->index == 0 || line->closed_count == group->params.rank_count)
            free_slot = slot;
    }
    if (free_slot)
        eo_shared_line_reset(eo_shared_line(group, free_slot), group->params.rank_count, index);
    return free_slot;
}

static eo_status await_slot(struct eo_group *group, uint64_t index, uint32_t *slot)
{
    struct eo_stopwatch waited = eo_stopwatch_start();
    for (;;) {
        eo_local_lock(group);
        *slot = take_slot(group, index);
        eo_local_unlock(group);
        if (*slot)
            return EO_OK;
        EO_TRY(eo_local_failure(group));
        if (eo_stopwatch_look(&waited, EO_LOOK_NS_MAX) >= group->params.timeout_ms * UINT64_C(1000000))
            return eo_local_fail(group, EO_ERR_TIMEOUT, "rank %u opens a communicator, but %d are already open on some rank",
                                 group->shared->rank, EO_SHARED_SLOTS - 1);
        (void)nanosleep(&(const struct timespec){0, 1000000}, NULL);
    }
}

static eo_status shared_open(struct eo_comm **out, struct eo_group *group, uint32_t rank, struct eo_device *device,
                             uint32_t queue, bool reduces)
{
    (void)reduces;
    *out = NULL;
    EO_REQUIRE(&group->log, rank == group->shared->rank, "communicator: rank %u is not the rank of this process, %u of %u",
               rank, group->shared->rank, group->params.rank_count);
    EO_REQUIRE(&group->log, queue != EO_QUEUE_COMPUTE && queue < device->params.queue_count,
               "communicator: queue %u; collectives run on queues 1 ... %u", queue, device->params.queue_count - 1);
    struct eo_comm *comm;
    EO_TRY(eo_local_cpu_comm_make(&comm, group, device, queue));
    comm->shared = calloc(1, sizeof(*comm->shared));
    if (!comm->shared) {
        free(comm);
        return EO_ERR_NO_MEMORY;
    }
    const uint64_t index = group->shared->opened + 1; /* 0 is a slot that was never used */
    uint32_t slot;
    eo_status status = await_slot(group, index, &slot);
    /* This rank's stages: a page fault in a step would be an allocation. */
    if (status >= 0 && madvise(eo_shared_stage(group, slot, rank, 0), 2 * EO_SHARED_STAGE_BYTES, MADV_POPULATE_WRITE) != 0 &&
        !eo_populate_is_refused(errno)) {
        eo_log_write(&group->log, EO_LOG_ERROR, "rank %u: no memory for a communicator's stages: %s", rank,
                     strerror(errno));
        status = EO_ERR_NO_MEMORY;
    }
    if (status < 0) {
        free(comm->shared);
        free(comm);
        return status;
    }
    group->shared->opened++;
    comm->peers = &shared_peers;
    comm->shared->slot = slot;
    comm->end = (struct eo_local_end){.group = group, .line = eo_shared_line(group, slot), .rank = rank};
    *out = comm;
    return EO_OK;
}

static void unmap_region(const struct eo_group *group, struct eo_shared_region *region)
{
    for (uint32_t r = 0; r < group->params.rank_count; r++)
        if (r != group->shared->rank && region->ranks[r])
            munmap((void *)region->ranks[r], region->bytes);
    memset(region, 0, sizeof(*region));
}

static void shared_close(struct eo_comm *comm)
{
    if (!comm)
        return;
    struct eo_group *group = comm->end.group;
    eo_local_cpu_await_all(comm);
    for (uint32_t i = 0; i < EO_SHARED_REGIONS_MAX; i++) {
        struct eo_shared_region *region = &group->shared->regions[i];
        if ((comm->shared->regions >> i & 1) && --region->users == 0)
            unmap_region(group, region);
    }
    eo_local_lock(group);
    atomic_store(&eo_local_self(&comm->end)->closed, true);
    comm->end.line->closed_count++;
    eo_gate_notify(&comm->end.line->gate);
    eo_local_unlock(group);
    free(comm->shared);
    free(comm);
}

/* -- memory ------------------------------------------------------------------------------------------------------ */

struct memory_told {
    uint64_t bytes;
    uint32_t known; /* the region that it is already; else which it is to be */
    bool is_new, can_be_shared;
    char name[EO_DOOR_NAME_BYTES]; /* where this rank is called */
};

/* All ranks' files: each maps those of the others. */
static eo_status map_peers(struct eo_shared_files *files, struct eo_shared_region *region, const struct memory_told *all,
                           int own)
{
    struct eo_group *group = files->group;
    char names[EO_LOCAL_RANKS_MAX][EO_DOOR_NAME_BYTES];
    int taken[EO_LOCAL_RANKS_MAX];
    eo_status status = EO_OK;
    for (uint32_t r = 0; r < group->params.rank_count; r++)
        memcpy(names[r], all[r].name, sizeof(names[r]));
    const eo_status handed = eo_shared_files_hand_over(files, names, own, region->bytes, taken);
    if (handed < 0)
        return eo_local_fail(group, handed, "rank %u: %s%s", group->shared->rank, files->why, eo_shared_remedy(errno));
    for (uint32_t r = 0; r < group->params.rank_count; r++) {
        region->ranks[r] = r == group->shared->rank ? region->own
                           : status < 0             ? NULL
                                                    : eo_shared_map(taken[r], region->bytes, false);
        if (taken[r] >= 0)
            close(taken[r]);
        if (!region->ranks[r] && status >= 0)
            status = eo_local_fail(group, EO_ERR_NO_MEMORY, "rank %u cannot map the memory of rank %u: %s",
                                   group->shared->rank, r, strerror(errno));
    }
    return status;
}

/* What this rank tells of it: the region that it is, or the first free one. */
static struct memory_told describe(const struct eo_group *group, const void *memory, uint64_t bytes,
                                   const struct eo_cpu_shared *own)
{
    const struct eo_shared_region *regions = group->shared->regions;
    struct memory_told told;
    memset(&told, 0, sizeof(told)); /* it travels, gaps included */
    told.bytes = own ? own->bytes : bytes;
    told.known = EO_SHARED_REGIONS_MAX;
    told.is_new = true;
    told.can_be_shared = own != NULL;
    for (uint32_t i = EO_SHARED_REGIONS_MAX; i-- > 0;) {
        if (!regions[i].own && told.is_new)
            told.known = i;
        if (regions[i].own == memory && memory) {
            told.known = i;
            told.is_new = false;
        }
    }
    return told;
}

/* `is_visible`: all ranks can share it. */
static eo_status tell_memory(struct eo_group *group, const struct memory_told *mine, struct memory_told *all, bool *is_visible)
{
    EO_TRY(eo_shared_tell(group, "peers' shared memory", mine, sizeof(*mine), all));
    *is_visible = mine->known < EO_SHARED_REGIONS_MAX;
    for (uint32_t r = 0; r < group->params.rank_count; r++) {
        if (all[r].bytes != mine->bytes || all[r].known != mine->known || all[r].is_new != mine->is_new)
            return eo_local_fail(group, EO_ERR_COMM,
                                 "ranks disagree: rank %u reserves %llu bytes for collectives, rank %u %llu; give all ranks the "
                                 "same model and settings", r, (unsigned long long)all[r].bytes,
                                 group->shared->rank, (unsigned long long)mine->bytes);
        *is_visible = *is_visible && all[r].can_be_shared;
    }
    return EO_OK;
}

static eo_status shared_register_memory(struct eo_comm *comm, void *memory, uint64_t bytes)
{
    struct eo_group *group = comm->end.group;
    const struct eo_cpu_shared *own = eo_cpu_shared_at(comm->device, memory);
    struct memory_told mine = describe(group, memory, bytes, own), all[EO_LOCAL_RANKS_MAX];
    struct eo_shared_files files = {.door = -1};
    bool is_visible = false;
    if (mine.is_new && !eo_shared_files_open(&files, group, group->params.rank_count))
        return eo_local_fail(group, EO_ERR_IO, "rank %u has no sockets to pass its memory to the others: %s%s",
                             group->shared->rank, strerror(errno), eo_shared_remedy(errno));
    memcpy(mine.name, files.name, sizeof(mine.name));
    eo_status status = tell_memory(group, &mine, all, &is_visible);
    if (status >= 0 && is_visible && mine.is_new) {
        struct eo_shared_region *region = &group->shared->regions[mine.known];
        region->own = memory;
        region->bytes = mine.bytes;
        status = map_peers(&files, region, all, own->fd);
        if (status < 0)
            unmap_region(group, region);
    }
    if (mine.is_new)
        eo_shared_files_close(&files);
    if (status < 0 || !is_visible) /* on all ranks alike */
        return status;
    group->shared->regions[mine.known].users++;
    comm->shared->regions |= 1u << mine.known;
    /* Nobody uses the region before all have it. */
    uint8_t done = 1, all_done[EO_LOCAL_RANKS_MAX];
    return eo_shared_tell(group, "peers' shared memory, mapped", &done, 1, all_done);
}

const struct eo_comm_ops eo_comm_shared_ops = {
    .name = "shared",
    .shares_memory = true,
    .group_create = eo_shared_group_create,
    .group_release = eo_local_group_release,
    .group_abort = eo_local_group_abort,
    .group_failure = eo_local_group_failure,
    .group_split = eo_shared_group_split,
    .open = shared_open,
    .close = shared_close,
    .all_gather = eo_local_cpu_all_gather,
    .reduce_scatter = eo_local_cpu_reduce_scatter,
    .all_reduce = eo_local_cpu_all_reduce,
    .join = eo_local_cpu_join,
    .quiesce = eo_local_cpu_quiesce,
    .register_memory = shared_register_memory,
};
