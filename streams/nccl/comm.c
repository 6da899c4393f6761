/* SPDX-License-Identifier: MIT
 *
 * Communicators of NCCL: their memory, their collectives.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "streams/nccl/internal.h"

static const struct eo_nccl_use *use_of(const struct eo_comm *comm)
{
    return comm->reduces ? &comm->group->mode->reduce : &comm->group->mode->gather;
}

/* -- open and close ---------------------------------------------------------------------------------------------- */

enum { BARRIER_BYTES = 16 }; /* of a rank */

static eo_status init(struct eo_comm *comm)
{
    struct eo_group *group = comm->group;
    const int device = eo_cuda_of(comm->device)->device;
    if (device != group->cuda_device)
        return eo_nccl_fail(group, EO_ERR_INVALID,
                            "rank %u computes on GPU %d, but joined its world with GPU %d; give both the same device index",
                            group->rank, device, group->cuda_device);
    cudaError_t error = cudaEventCreateWithFlags(&comm->last, cudaEventDisableTiming);
    const uint64_t bytes = (uint64_t)BARRIER_BYTES * (group->params.rank_count + 1);
    if (error == cudaSuccess)
        error = cudaMalloc(&comm->barrier, bytes);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(comm->barrier, 0, bytes, comm->stream);
    if (error != cudaSuccess)
        return eo_nccl_fail_cuda(group, error, "memory of a communicator", "open");
    EO_TRY(eo_nccl_watch_init(comm));
    return eo_nccl_split(group, comm->reduces, &comm->nccl);
}

eo_status eo_nccl_open(struct eo_comm **out, struct eo_group *group, uint32_t rank, struct eo_device *device, uint32_t queue,
                       bool reduces)
{
    *out = NULL;
    EO_REQUIRE(&group->log, rank == group->rank, "communicator: rank %u opens for rank %u", group->rank, rank);
    EO_REQUIRE(&group->log, queue != EO_QUEUE_COMPUTE && queue < device->params.queue_count,
               "communicator: queue %u; collectives run on queues 1 ... %u", queue, device->params.queue_count - 1);
    EO_REQUIRE(&group->log, !group->comms[reduces],
               "communicator: a world of NCCL has one for %s, and it is open; use one "
               "runtime at a time",
               reduces ? "reductions" : "all-gathers");
    EO_TRY(eo_nccl_failure(group));
    if (device->ops != &eo_device_cuda_ops) {
        eo_log_write(&group->log, EO_LOG_ERROR, "NCCL runs on device cuda, not on %s", device->ops->name);
        return EO_ERR_UNSUPPORTED;
    }
    struct eo_comm *comm = calloc(1, sizeof(*comm));
    if (!comm)
        return EO_ERR_NO_MEMORY;
    comm->group = group;
    comm->device = device;
    comm->queue = queue;
    comm->stream = device->ops->queue_handle(device, queue);
    comm->reduces = reduces;
    group->comms[reduces] = comm;
    const eo_status status = init(comm);
    if (status < 0) {
        eo_nccl_close(comm);
        return status;
    }
    *out = comm;
    return EO_OK;
}

static void deregister(struct eo_comm *comm)
{
    for (uint32_t i = comm->region_count; i-- > 0;) {
        struct eo_nccl_region *region = &comm->regions[i];
        ncclResult_t result = ncclSuccess;
        if (region->window)
            result = ncclCommWindowDeregister(comm->nccl, region->window);
        else if (region->handle)
            result = ncclCommDeregister(comm->nccl, region->handle);
        (void)eo_nccl_settle(comm->group, comm->nccl, result, "deregistration", "close");
    }
}

void eo_nccl_close(struct eo_comm *comm)
{
    if (!comm)
        return;
    struct eo_group *group = comm->group;
    if (comm->nccl && eo_nccl_drain(comm, comm->stream, "close") >= 0)
        deregister(comm);
    if (eo_nccl_failure(group) < 0)
        eo_nccl_give_up(group);
    if (group->root->info.must_exit) {
        /* What NCCL or the device may still write to stays, and nothing is called that would wait for it. */
        comm->device->is_lost = true;
        group->comms[comm->reduces] = NULL;
        return;
    }
    eo_nccl_end(group, &comm->nccl);
    eo_nccl_watch_fini(comm);
    if (comm->last)
        (void)cudaEventDestroy(comm->last);
    if (comm->barrier)
        (void)cudaFree(comm->barrier);
    group->comms[comm->reduces] = NULL;
    free(comm);
}

/* -- memory ------------------------------------------------------------------------------------------------------ */

/* NCCL goes on without what it did not give; what runs then is told. */
static void tell_fallback(struct eo_comm *comm, const char *text)
{
    struct eo_group_info *info = &comm->group->info;
    snprintf(comm->reduces ? info->reduce : info->gather, sizeof(info->gather), "%s", text);
}

/* Where NCCL 2.28 has no window it gives a registration of the same type, which lies on the host; a window lies on the GPU. */
static bool is_stand_in(const struct eo_group *group, ncclWindow_t window)
{
    struct cudaPointerAttributes attributes;
    if (group->facts.run_version >= NCCL_VERSION(2, 29, 0))
        return false;
    if (cudaPointerGetAttributes(&attributes, window) == cudaSuccess)
        return attributes.type != cudaMemoryTypeDevice;
    (void)cudaGetLastError();
    return false;
}

/* One window for a whole reservation, which is one allocation: a window maps all of it, and two in one corrupt it. */
static eo_status register_window(struct eo_comm *comm, struct eo_nccl_region *region)
{
    struct eo_group *group = comm->group;
    EO_REQUIRE(&group->log, (uintptr_t)region->base % NCCL_WIN_REQUIRED_ALIGNMENT == 0,
               "rank %u: a window of NCCL must begin at a multiple of %d, but this reservation is at %p", group->rank,
               NCCL_WIN_REQUIRED_ALIGNMENT, region->base);
    const ncclResult_t result = ncclCommWindowRegister(comm->nccl, region->base, region->bytes, &region->window,
                                                       NCCL_WIN_COLL_SYMMETRIC);
    EO_TRY(eo_nccl_settle_begun(group, comm->nccl, result, "ncclCommWindowRegister", "registration"));
    if (!region->window || is_stand_in(group, region->window)) {
        tell_fallback(comm, "kernels: NCCL gave no window");
        eo_log_write(&group->log, EO_LOG_WARN,
                     "rank %u: NCCL gave no window for %llu bytes (GPUs without peer access, or NCCL_WIN_ENABLE=0 or "
                     "NCCL_CUMEM_ENABLE=0): these collectives run as kernels",
                     group->rank, (unsigned long long)region->bytes);
    }
    return EO_OK;
}

static eo_status register_buffer(struct eo_comm *comm, struct eo_nccl_region *region)
{
    struct eo_group *group = comm->group;
    const ncclResult_t result = ncclCommRegister(comm->nccl, region->base, region->bytes, &region->handle);
    EO_TRY(eo_nccl_settle(group, comm->nccl, result, "ncclCommRegister", "registration"));
    if (!region->handle) {
        tell_fallback(comm, "kernels: NCCL registered nothing");
        eo_log_write(&group->log, EO_LOG_WARN,
                     "rank %u: NCCL did not register %llu bytes (NCCL_LOCAL_REGISTER=0?): collectives copy through its own "
                     "buffers", group->rank, (unsigned long long)region->bytes);
    }
    return EO_OK;
}

eo_status eo_nccl_register(struct eo_comm *comm, void *memory, uint64_t bytes)
{
    struct eo_group *group = comm->group;
    EO_TRY(eo_nccl_failure(group));
    EO_REQUIRE(&group->log, comm->region_count < EO_NCCL_REGIONS_MAX, "registration: more than %d reservations",
               (int)EO_NCCL_REGIONS_MAX);
    EO_REQUIRE(&group->log, comm->sequence == 0, "registration: after the first collective");
    struct eo_nccl_region *region = &comm->regions[comm->region_count];
    *region = (struct eo_nccl_region){.base = memory, .bytes = bytes};
    const uint64_t begin_ns = eo_now_ns();
    const bool is_wanted = use_of(comm)->memory != EO_NCCL_MEMORY_PLAIN && group->params.rank_count > 1;
    if (is_wanted && use_of(comm)->memory == EO_NCCL_MEMORY_WINDOW)
        EO_TRY(register_window(comm, region));
    else if (is_wanted)
        EO_TRY(register_buffer(comm, region));
    comm->region_count++;
    if (!is_wanted)
        return EO_OK;
    const uint64_t took_ns = eo_now_ns() - begin_ns;
    group->root->info.register_ns += took_ns;
    group->root->info.registered_bytes += bytes;
    eo_log_write(&group->log, EO_LOG_INFO, "NCCL: %.1f MiB for %s registered in %.1f ms: %s",
                 (double)bytes / (1 << 20), comm->reduces ? "reduce-scatters" : "all-gathers", (double)took_ns / 1e6,
                 comm->reduces ? group->info.reduce : group->info.gather);
    return EO_OK;
}

/* NCCL looks at where an operation begins, and never at where it ends. */
static eo_status check_range(struct eo_comm *comm, const void *memory, uint64_t bytes, const char *what,
                             const char *label, bool *is_outside)
{
    for (uint32_t i = 0; i < comm->region_count; i++) {
        const struct eo_nccl_region *region = &comm->regions[i];
        const enum eo_nccl_place place = eo_nccl_place_of(memory, bytes, region->base, region->bytes);
        EO_REQUIRE(&comm->group->log, place != EO_NCCL_PAST_END,
                   "rank %u, '%s': %s (%llu bytes from %llu of a reservation of %llu) goes past its end",
                   comm->group->rank, label, what, (unsigned long long)bytes,
                   (unsigned long long)((const char *)memory - (const char *)region->base),
                   (unsigned long long)region->bytes);
        if (place == EO_NCCL_INSIDE)
            return EO_OK;
    }
    *is_outside = true;
    return EO_OK;
}

/* `part` lies in `whole` only as slice `rank` of it, or not at all. */
static bool is_apart_or_slice(const void *part, const void *whole, uint64_t part_bytes, uint32_t rank,
                              uint32_t rank_count)
{
    const uintptr_t p = (uintptr_t)part, w = (uintptr_t)whole;
    return p == w + rank * part_bytes || p + part_bytes <= w || p >= w + part_bytes * rank_count;
}

static eo_status check_buffers(struct eo_comm *comm, const void *part, const void *whole, uint64_t part_bytes,
                               bool part_is_send, const char *label)
{
    struct eo_group *group = comm->group;
    bool is_outside = false;
    EO_TRY(check_range(comm, part, part_bytes, part_is_send ? "send" : "recv", label, &is_outside));
    EO_TRY(check_range(comm, whole, part_bytes * group->params.rank_count, part_is_send ? "recv" : "send", label,
                       &is_outside));
    EO_REQUIRE(&group->log, is_apart_or_slice(part, whole, part_bytes, group->rank, group->params.rank_count),
               "rank %u, '%s': send and recv overlap, but not as slice %u", group->rank, label, group->rank);
    if (is_outside && comm->region_count && group->root->info.outside_count++ == 0)
        eo_log_write(&group->log, EO_LOG_INFO, "rank %u: '%s' uses unregistered memory: such collectives run as plain kernels",
                     group->rank, label);
    return EO_OK;
}

/* -- collectives ------------------------------------------------------------------------------------------------- */

/*
 * Kernels of two communicators that start in different orders on two ranks, and do not all fit on the GPU, wait for
 * each other for ever. NCCL keeps the order of the calls when NCCL_LAUNCH_ORDER_IMPLICIT=1; else they run one by one.
 */
static eo_status keep_order(struct eo_comm *comm, const char *label)
{
    const struct eo_group *root = comm->group->root;
    for (const struct eo_group *member = root; member && !root->ordered_launches; member = member->next) {
        for (int i = 0; i < 2; i++) {
            const struct eo_comm *other = member->comms[i];
            if (!other || other->stream == comm->stream || other->sequence == 0 || other->last_epoch != root->epoch ||
                member->params.rank_count == 1 || comm->group->params.rank_count == 1)
                continue;
            const cudaError_t error = cudaStreamWaitEvent(comm->stream, other->last, 0);
            if (error != cudaSuccess)
                return eo_nccl_fail_cuda(comm->group, error, "cudaStreamWaitEvent", label);
        }
    }
    return EO_OK;
}

static bool has_another_stream(const struct eo_comm *comm)
{
    for (const struct eo_group *member = comm->group->root; member; member = member->next)
        for (int i = 0; i < 2; i++)
            if (member->comms[i] && member->comms[i]->stream != comm->stream)
                return true;
    return false;
}

static eo_status mark_order(struct eo_comm *comm, const char *label)
{
    if (comm->group->root->ordered_launches || comm->group->params.rank_count == 1 || !has_another_stream(comm))
        return EO_OK;
    const cudaError_t error = cudaEventRecord(comm->last, comm->stream);
    comm->last_epoch = comm->group->root->epoch;
    return error == cudaSuccess ? EO_OK : eo_nccl_fail_cuda(comm->group, error, "cudaEventRecord", label);
}

enum request_kind { REQUEST_ALL_GATHER, REQUEST_REDUCE_SCATTER, REQUEST_ALL_REDUCE };

static const char *const request_names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce"};

struct request {
    enum request_kind kind;
    const char *label;
    void *recv;
    const void *send;
    uint64_t count, bytes; /* of a slice */
    ncclDataType_t type;
    struct eo_span *span;
};

/* Sums only: an average loses NCCL's fast ways, and rounds. */
static ncclResult_t call_nccl(const struct eo_comm *comm, const struct request *r)
{
    if (r->kind == REQUEST_ALL_GATHER)
        return ncclAllGather(r->send, r->recv, r->count, r->type, comm->nccl, comm->stream);
    if (r->kind == REQUEST_REDUCE_SCATTER)
        return ncclReduceScatter(r->send, r->recv, r->count, r->type, ncclSum, comm->nccl, comm->stream);
    return ncclAllReduce(r->send, r->recv, r->count, r->type, ncclSum, comm->nccl, comm->stream);
}

/* What stands around an operation, of one request or several. */
static eo_status begin_operation(struct eo_comm *comm, const struct request *r, bool joins)
{
    if (r->span)
        r->span->ready_ns = eo_now_ns();
    EO_TRY(keep_order(comm, r->label));
    if (r->span)
        comm->device->ops->stamp(comm->device, comm->queue, &r->span->start_ns);
    EO_TRY(eo_nccl_flight_begin(comm, comm->stream, request_names[r->kind], r->label, r->bytes, &comm->flight));
    if (!joins)
        return EO_OK;
    EO_TRY(eo_nccl_settle(comm->group, comm->nccl, ncclGroupStart(), "ncclGroupStart", r->label));
    comm->in_group = true;
    return EO_OK;
}

static eo_status end_operation(struct eo_comm *comm, const struct request *r, bool joins)
{
    if (joins) {
        comm->in_group = false;
        EO_TRY(eo_nccl_settle(comm->group, comm->nccl, ncclGroupEnd(), "ncclGroupEnd", r->label));
    }
    EO_TRY(eo_nccl_flight_end(comm, comm->stream, comm->flight));
    EO_TRY(mark_order(comm, r->label));
    if (r->span)
        comm->device->ops->stamp(comm->device, comm->queue, &r->span->end_ns);
    return EO_OK;
}

static eo_status check_request(struct eo_comm *comm, const struct request *r)
{
    bool is_outside = false;
    EO_TRY(eo_nccl_failure(comm->group));
    if (r->kind == REQUEST_ALL_REDUCE)
        return check_range(comm, r->recv, r->bytes, "buffer", r->label, &is_outside);
    EO_REQUIRE(&comm->group->log, comm->reduces == (r->kind == REQUEST_REDUCE_SCATTER), "'%s': %s", r->label,
               comm->reduces ? "an all-gather on the communicator for reduce-scatters"
                             : "a reduce-scatter on the communicator for all-gathers");
    return comm->reduces ? check_buffers(comm, r->recv, r->send, r->bytes, false, r->label)
                         : check_buffers(comm, r->send, r->recv, r->bytes, true, r->label);
}

static eo_status issue_checked(struct eo_comm *comm, const struct request *request)
{
    const bool joins = comm->joined > 0, begins = !joins || comm->joined == comm->join_count;
    const bool ends = !joins || --comm->joined == 0;
    if (begins)
        EO_TRY(begin_operation(comm, request, joins));
    const ncclResult_t result = call_nccl(comm, request);
    if (!joins || result != ncclInProgress) /* inside a group nothing has begun */
        EO_TRY(eo_nccl_settle(comm->group, comm->nccl, result, request_names[request->kind], request->label));
    return ends ? end_operation(comm, request, joins) : EO_OK;
}

/* A group that is left open would swallow this thread's calls of NCCL ever after, those of its next world too. What was in it
 * is issued, without the rest: nobody may wait for that. */
static eo_status issue(struct eo_comm *comm, const struct request *request)
{
    eo_status status = check_request(comm, request);
    if (status >= 0)
        status = issue_checked(comm, request);
    if (status >= 0)
        return status;
    comm->joined = 0;
    if (!comm->in_group)
        return status;
    comm->in_group = false;
    (void)ncclGroupEnd();
    return eo_nccl_fail(comm->group, status, "rank %u of %u, '%s': a part of joined collectives could not be issued",
                        comm->group->rank, comm->group->params.rank_count, request->label);
}

void eo_nccl_join(struct eo_comm *comm, uint32_t count)
{
    comm->joined = comm->join_count = count;
}

eo_status eo_nccl_all_gather(struct eo_comm *comm, void *recv, const void *send, uint64_t send_bytes,
                             const char *label, struct eo_span *span)
{
    return issue(comm, &(const struct request){REQUEST_ALL_GATHER, label ? label : "", recv, send, send_bytes, send_bytes,
                                               ncclUint8, span});
}

static ncclDataType_t type_of(eo_dtype dtype)
{
    return dtype == EO_DTYPE_BF16 ? ncclBfloat16 : ncclFloat32;
}

eo_status eo_nccl_reduce_scatter(struct eo_comm *comm, void *recv, const void *send, uint64_t recv_count,
                                 eo_dtype dtype, const char *label, struct eo_span *span)
{
    return issue(comm, &(const struct request){REQUEST_REDUCE_SCATTER, label ? label : "", recv, send, recv_count,
                                               recv_count * eo_dtype_bytes(dtype), type_of(dtype), span});
}

/* On either communicator. */
eo_status eo_nccl_all_reduce(struct eo_comm *comm, void *buffer, uint64_t count, eo_dtype dtype, const char *label,
                             struct eo_span *span)
{
    return issue(comm, &(const struct request){REQUEST_ALL_REDUCE, label ? label : "", buffer, buffer, count,
                                               count * eo_dtype_bytes(dtype), type_of(dtype), span});
}

/* NCCL's collectives have left a rank's memory when they end there, so the queue's end is enough for that; the gather
 * of nothing much makes it a barrier. */
eo_status eo_nccl_quiesce(struct eo_comm *comm)
{
    static const char label[] = EO_QUIESCE_LABEL;
    struct eo_group *group = comm->group;
    struct eo_nccl_flight *flight;
    char *own = (char *)comm->barrier + (size_t)BARRIER_BYTES * group->params.rank_count;
    EO_TRY(eo_nccl_drain(comm, comm->stream, label));
    if (group->params.rank_count == 1)
        return EO_OK;
    EO_TRY(keep_order(comm, label));
    EO_TRY(eo_nccl_flight_begin(comm, comm->stream, "ncclAllGather", label, BARRIER_BYTES, &flight));
    const ncclResult_t result = ncclAllGather(own, comm->barrier, BARRIER_BYTES, ncclUint8, comm->nccl, comm->stream);
    EO_TRY(eo_nccl_settle(group, comm->nccl, result, "ncclAllGather", label));
    EO_TRY(eo_nccl_flight_end(comm, comm->stream, flight));
    EO_TRY(mark_order(comm, label));
    return eo_nccl_drain(comm, comm->stream, label);
}
