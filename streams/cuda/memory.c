/* SPDX-License-Identifier: MIT
 *
 * Memory of the arenas.
 *
 *     GATHER, GRADIENT   one ncclMemAlloc each: what NCCL can register, and reach on its peers; where there is no NCCL,
 *                        cudaMalloc, which peers reach too
 *     PRIVATE            addresses with a gap that nothing is mapped to before and after:
 *
 *                        | gap | (rounding) arena, up to the end | gap |       a kernel that runs out of it faults
 *
 *                        by the driver's virtual memory functions, which the runtime library finds for us; where the
 *                        machine has none, cudaMalloc. Peer access is cudaMalloc's alone: other GPUs of the process reach these
 *                        addresses once eo_cuda_let_read has named them
 *     HOST               pinned, by the rank's thread, so that it lies on the NUMA node where that runs
 */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "streams/cuda/parts.h"
#include "streams/nccl/calls.h"

enum { PAGE = 4096 };
#define MALLOC_STEP ((uint64_t)2 << 20) /* cudaMalloc of whole steps is aligned to one */

static const char *const kind_names[EO_MEMORY_KIND_COUNT] = {"gathering", "gradients", "private buffers",
                                                             "pinned host buffers"};

enum source { FROM_NCCL, FROM_VIRTUAL, FROM_MALLOC, FROM_HOST };

struct eo_cuda_reservation {
    struct eo_cuda_reservation *next;
    void *memory; /* what the caller has */
    uint64_t bytes;
    enum source source;
    CUdeviceptr addresses; /* virtual: with gaps */
    uint64_t address_bytes, mapped_bytes;
    CUmemGenericAllocationHandle handle;
};

/* The driver's functions; all or none. */
struct eo_cuda_virtual {
    PFN_cuMemGetAllocationGranularity_v10020 granularity;
    PFN_cuMemAddressReserve_v10020 reserve_addresses;
    PFN_cuMemAddressFree_v10020 free_addresses;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 set_access;
    CUmemAllocationProp properties;
    uint64_t step;
};

eo_status eo_cuda_memory_init(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    struct eo_cuda_virtual *vm = calloc(1, sizeof(*vm));
    if (!vm)
        return EO_ERR_NO_MEMORY;
    const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cuMemGetAllocationGranularity", &vm->granularity},
        {"cuMemAddressReserve", &vm->reserve_addresses},
        {"cuMemAddressFree", &vm->free_addresses},
        {"cuMemCreate", &vm->create},
        {"cuMemRelease", &vm->release},
        {"cuMemMap", &vm->map},
        {"cuMemUnmap", &vm->unmap},
        {"cuMemSetAccess", &vm->set_access},
    };
    bool has_all = true;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]) && has_all; i++)
        has_all = eo_cuda_find_function(functions[i].name, functions[i].function);
    size_t step = 0;
    vm->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    vm->properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    vm->properties.location.id = cuda->device;
    if (has_all && vm->granularity(&step, &vm->properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS &&
        step > 0) {
        vm->step = step;
        cuda->virtual_memory = vm;
        return EO_OK;
    }
    free(vm);
    eo_log_write(&device->log, EO_LOG_INFO,
                 "rank %u: this GPU or driver has no virtual memory functions: private memory comes from cudaMalloc, without "
                 "guard gaps",
                 device->params.rank);
    return EO_OK;
}

/* -- sources ------------------------------------------------------------------------------------------------------ */

static cudaError_t from_malloc(struct eo_cuda_reservation *r)
{
    r->source = FROM_MALLOC;
    return cudaMalloc(&r->memory, eo_align_up(r->bytes, MALLOC_STEP));
}

/* Undoes what was done, in whatever state. */
static void free_virtual(const struct eo_cuda_virtual *vm, struct eo_cuda_reservation *r)
{
    if (r->memory)
        (void)vm->unmap(r->addresses + vm->step, r->mapped_bytes);
    if (r->handle)
        (void)vm->release(r->handle);
    if (r->addresses)
        (void)vm->free_addresses(r->addresses, r->address_bytes);
    r->memory = NULL;
    r->handle = 0;
    r->addresses = 0;
}

static CUresult let_reach(const struct eo_cuda_virtual *vm, const struct eo_cuda_reservation *r, int device)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return vm->set_access(r->addresses + vm->step, r->mapped_bytes, &access, 1);
}

static cudaError_t from_virtual(const struct eo_cuda *cuda, struct eo_cuda_reservation *r)
{
    const struct eo_cuda_virtual *vm = cuda->virtual_memory;
    r->source = FROM_VIRTUAL;
    r->mapped_bytes = eo_align_up(r->bytes, vm->step);
    r->address_bytes = r->mapped_bytes + 2 * vm->step;
    CUresult result = vm->reserve_addresses(&r->addresses, r->address_bytes, vm->step, 0, 0);
    if (result == CUDA_SUCCESS)
        result = vm->create(&r->handle, r->mapped_bytes, &vm->properties, 0);
    if (result == CUDA_SUCCESS)
        result = vm->map(r->addresses + vm->step, r->mapped_bytes, 0, r->handle, 0);
    if (result == CUDA_SUCCESS) {
        /* At the end: running past it is the commoner mistake. */
        r->memory = (void *)(r->addresses + vm->step + r->mapped_bytes - eo_align_up(r->bytes, PAGE));
        result = let_reach(vm, r, cuda->device);
    }
    for (int peer = 0; peer < EO_CUDA_PEERS_MAX && result == CUDA_SUCCESS; peer++)
        if (cuda->readers >> peer & 1)
            result = let_reach(vm, r, peer);
    if (result != CUDA_SUCCESS)
        free_virtual(vm, r);
    return (cudaError_t)result; /* the driver's codes are the runtime's */
}

static cudaError_t from_nccl(struct eo_device *device, struct eo_cuda_reservation *r)
{
    r->source = FROM_NCCL;
    const ncclResult_t result = ncclMemAlloc(&r->memory, r->bytes);
    if (result == ncclSuccess)
        return cudaSuccess;
    r->memory = NULL;
    (void)cudaGetLastError();
    uint64_t free_bytes = 0, total_bytes = 0;
    const bool is_short = eo_cuda_available(device, &free_bytes, &total_bytes) == EO_OK && free_bytes < r->bytes;
    if (!is_short)
        eo_log_write(&device->log, EO_LOG_ERROR, "rank %u: ncclMemAlloc: %s: %s", device->params.rank,
                     ncclGetErrorString(result), ncclGetLastError(NULL));
    return is_short ? cudaErrorMemoryAllocation : cudaErrorUnknown;
}

static cudaError_t take(struct eo_device *device, enum eo_memory_kind kind, struct eo_cuda_reservation *r)
{
    const struct eo_cuda *cuda = eo_cuda_of(device);
    if (kind == EO_MEMORY_KIND_HOST) {
        r->source = FROM_HOST;
        return cudaHostAlloc(&r->memory, r->bytes, cudaHostAllocPortable);
    }
    if (kind == EO_MEMORY_KIND_PRIVATE)
        return cuda->virtual_memory ? from_virtual(cuda, r) : from_malloc(r);
    /* Silently: worlds of NCCL have loaded it before, others do without. */
    return eo_nccl_load(NULL) >= 0 ? from_nccl(device, r) : from_malloc(r);
}

static void give_back(const struct eo_cuda *cuda, struct eo_cuda_reservation *r)
{
    if (!r->memory)
        return;
    switch (r->source) {
    case FROM_NCCL: (void)ncclMemFree(r->memory); break;
    case FROM_VIRTUAL: free_virtual(cuda->virtual_memory, r); break;
    case FROM_MALLOC: (void)cudaFree(r->memory); break;
    case FROM_HOST: (void)cudaFreeHost(r->memory); break;
    }
    r->memory = NULL;
}

/* -- the table's --------------------------------------------------------------------------------------------------- */

static cudaError_t clear(const struct eo_cuda *cuda, const struct eo_cuda_reservation *r)
{
    const cudaStream_t stream = cuda->streams[EO_QUEUE_COMPUTE];
    if (r->source == FROM_HOST) {
        memset(r->memory, 0, r->bytes);
        return cudaSuccess;
    }
    const cudaError_t error = cudaMemsetAsync(r->memory, 0, r->bytes, stream);
    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

/* Drivers call a size far beyond the GPU's an invalid argument. */
static bool is_too_much(struct eo_device *device, cudaError_t error, uint64_t bytes)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    if (error != cudaErrorInvalidValue)
        return error == cudaErrorMemoryAllocation;
    return eo_cuda_available(device, &free_bytes, &total_bytes) == EO_OK && bytes > total_bytes;
}

static void tell_missing_memory(struct eo_device *device, enum eo_memory_kind kind, uint64_t bytes)
{
    const double mib = 1 << 20;
    uint64_t free_bytes = 0, total_bytes = 0;
    if (kind == EO_MEMORY_KIND_HOST) {
        eo_log_write(
            &device->log, EO_LOG_ERROR,
            "rank %u: the host gave no %.1f MiB of pinned memory. Offload fewer layers, use fewer ranks on this host, or "
            "end other processes there",
            device->params.rank, (double)bytes / mib);
        return;
    }
    (void)eo_cuda_available(device, &free_bytes, &total_bytes);
    eo_log_write(&device->log, EO_LOG_ERROR,
                 "rank %u: GPU %d has no %.1f MiB for %s: %.1f MiB of %.1f MiB are free. Use more ranks, a smaller batch, or "
                 "end other processes there (nvidia-smi)",
                 device->params.rank, eo_cuda_of(device)->device, (double)bytes / mib, kind_names[kind],
                 (double)free_bytes / mib, (double)total_bytes / mib);
}

eo_status eo_cuda_reserve(struct eo_device *device, enum eo_memory_kind kind, uint64_t bytes, void **out)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    *out = NULL;
    struct eo_cuda_reservation *r = calloc(1, sizeof(*r));
    if (!r)
        return EO_ERR_NO_MEMORY;
    r->bytes = eo_max_u64(bytes, 1);
    cudaError_t error = take(device, kind, r);
    if (error == cudaSuccess)
        error = clear(cuda, r);
    if (error == cudaSuccess) {
        r->next = cuda->reservations;
        cuda->reservations = r;
        *out = r->memory;
        return EO_OK;
    }
    give_back(cuda, r);
    free(r);
    if (!is_too_much(device, error, bytes))
        return eo_cuda_note(device, error, "reserving memory");
    /* No failure of the device: the caller may ask for less. */
    (void)cudaGetLastError();
    tell_missing_memory(device, kind, bytes);
    return EO_ERR_NO_MEMORY;
}

void eo_cuda_release(struct eo_device *device, enum eo_memory_kind kind, void *memory, uint64_t bytes)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    if (!memory || device->is_lost)
        return;
    struct eo_cuda_reservation **link = &cuda->reservations;
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    struct eo_cuda_reservation *r = *link;
    EO_ASSERT(r && r->bytes == eo_max_u64(bytes, 1));
    *link = r->next;
    for (uint32_t i = 0; i < device->params.queue_count; i++) /* unmapping does not wait for who still uses it */
        (void)cudaStreamSynchronize(cuda->streams[i]);
    give_back(cuda, r);
    free(r);
    (void)cudaGetLastError();
}

cudaError_t eo_cuda_let_read(struct eo_device *device, int peer)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    EO_ASSERT(peer >= 0 && peer < EO_CUDA_PEERS_MAX);
    if (peer == cuda->device || cuda->readers >> peer & 1)
        return cudaSuccess;
    for (const struct eo_cuda_reservation *r = cuda->reservations; r; r = r->next) {
        const CUresult result = r->source == FROM_VIRTUAL ? let_reach(cuda->virtual_memory, r, peer) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            return (cudaError_t)result;
    }
    cuda->readers |= UINT64_C(1) << peer;
    return cudaSuccess;
}

void eo_cuda_memory_fini(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    while (cuda->reservations) {
        struct eo_cuda_reservation *r = cuda->reservations;
        cuda->reservations = r->next;
        give_back(cuda, r);
        free(r);
    }
    free(cuda->virtual_memory);
    cuda->virtual_memory = NULL;
}

eo_status eo_cuda_available(struct eo_device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    size_t free_now = 0, total = 0;
    *free_bytes = *total_bytes = 0;
    EO_CUDA_TRY(device, "cudaMemGetInfo", cudaMemGetInfo(&free_now, &total));
    *free_bytes = free_now;
    *total_bytes = total;
    return EO_OK;
}
