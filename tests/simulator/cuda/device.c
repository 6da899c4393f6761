/* SPDX-License-Identifier: MIT
 *
 * Devices, errors, versions; and the driver's entry points for virtual memory.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- errors --- */

cudaError_t cudaGetLastError(void)
{
    CUDA_BEGIN();
    struct sim_thread *self = sim_self();
    const cudaError_t error = sim.broken != cudaSuccess ? sim.broken : self->last_error;
    self->last_error = cudaSuccess;
    sim_unlock();
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    CUDA_BEGIN();
    const cudaError_t error = sim.broken != cudaSuccess ? sim.broken : sim_self()->last_error;
    sim_unlock();
    return error;
}

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorStubLibrary, "cudaErrorStubLibrary", "CUDA driver is a stub library"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing "
                                                       "stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread", "attempt to terminate a thread-local capture "
                                                                             "sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].code == error)
            return errors[i].text;
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].code == error)
            return errors[i].name;
    return "unrecognized error code";
}

/* --- versions and devices --- */

cudaError_t cudaRuntimeGetVersion(int *version)
{
    CUDA_BEGIN();
    *version = CUDART_VERSION;
    CUDA_END(cudaSuccess);
}

bool sim_lacks(const char *library) { return sim.config.lacks && strstr(sim.config.lacks, library); }

/* 0 without a driver, and no error. */
cudaError_t cudaDriverGetVersion(int *version)
{
    CUDA_BEGIN();
    *version = sim.config.no_driver ? 0 : CUDART_VERSION;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    CUDA_BEGIN();
    *count = (int)sim.config.device_count;
    CUDA_END(cudaSuccess);
}

static bool is_device(int device) { return device >= 0 && (uint32_t)device < sim.config.device_count; }

cudaError_t cudaSetDevice(int device)
{
    CUDA_BEGIN();
    if (!is_device(device))
        CUDA_END(cudaErrorInvalidDevice);
    struct sim_thread *self = sim_self();
    self->device = (uint32_t)device;
    self->has_context = true;
    self->chosen |= UINT32_C(1) << device;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaGetDevice(int *device)
{
    CUDA_BEGIN();
    *device = (int)sim_self()->device;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    CUDA_BEGIN();
    if (!is_device(device))
        CUDA_END(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof(*properties));
    snprintf(properties->name, sizeof(properties->name), "simulated device %d", device);
    properties->totalGlobalMem = sim.config.device_bytes;
    properties->major = sim.config.architecture / 10;
    properties->minor = sim.config.architecture % 10;
    properties->multiProcessorCount = 132;
    properties->maxThreadsPerBlock = 1024;
    properties->warpSize = 32;
    properties->concurrentKernels = 1;
    properties->asyncEngineCount = 3;
    properties->pciBusID = device + 1;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    CUDA_BEGIN();
    if (!is_device(device))
        CUDA_END(cudaErrorInvalidDevice);
    switch ((int)attribute) {
    case cudaDevAttrComputeCapabilityMajor:
        *value = sim.config.architecture / 10;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = sim.config.architecture % 10;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = 132;
        break;
    case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        break;
    case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        break;
    case cudaDevAttrPciBusId:
        *value = device + 1;
        break;
    default:
        *value = 0;
        break;
    }
    CUDA_END(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    CUDA_BEGIN();
    if (!is_device(device))
        CUDA_END(cudaErrorInvalidDevice);
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", device + 1);
    CUDA_END(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    CUDA_BEGIN();
    if (!is_device(device) || !is_device(peer))
        CUDA_END(cudaErrorInvalidDevice);
    *can = device != peer;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    CUDA_BEGIN();
    if (!is_device(peer) || flags != 0 || (uint32_t)peer == sim_self()->device)
        CUDA_END(cudaErrorInvalidDevice);
    bool *access = &sim.peer_access[sim_self()->device][peer];
    if (*access)
        CUDA_END(cudaErrorPeerAccessAlreadyEnabled);
    *access = true;
    CUDA_END(cudaSuccess);
}

/* --- virtual memory --- */

struct sim_physical {
    struct sim_physical *next;
    uint32_t device;
    uint64_t bytes;
    uint32_t mappings;
    bool released;
};

struct sim_span_reserved {
    struct sim_span_reserved *next;
    uintptr_t at;
    uint64_t bytes;
};

static struct sim_physical *physical_of(CUmemGenericAllocationHandle handle)
{
    for (struct sim_physical *physical = sim.physical; physical; physical = physical->next)
        if ((CUmemGenericAllocationHandle)(uintptr_t)physical == handle)
            return physical;
    return NULL;
}

static void reap_physical(struct sim_physical *physical)
{
    if (!physical->released || physical->mappings > 0)
        return;
    struct sim_physical **link = &sim.physical;
    while (*link != physical)
        link = &(*link)->next;
    *link = physical->next;
    sim_device_give(physical->device, physical->bytes);
    free(physical);
}

#define DRIVER_BEGIN()                                                                                                \
    do {                                                                                                              \
        int sim_fault_code;                                                                                           \
        if (sim_enter(__func__ + sizeof("sim_") - 1, &sim_fault_code)) {                                              \
            sim_unlock();                                                                                             \
            return (CUresult)sim_fault_code;                                                                          \
        }                                                                                                             \
    } while (0)
#define DRIVER_END(result)                                                                                            \
    do {                                                                                                              \
        const CUresult sim_result = (result);                                                                         \
        sim_unlock();                                                                                                 \
        return sim_result;                                                                                            \
    } while (0)

static CUresult sim_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                                  CUmemAllocationGranularity_flags option)
{
    (void)option;
    DRIVER_BEGIN();
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || !is_device(prop->location.id))
        DRIVER_END(CUDA_ERROR_INVALID_VALUE);
    *granularity = SIM_GRANULARITY;
    DRIVER_END(CUDA_SUCCESS);
}

static CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                                unsigned long long flags)
{
    DRIVER_BEGIN();
    if (sim_unsafe_call("cuMemCreate") != cudaSuccess)
        DRIVER_END(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (flags != 0 || bytes == 0 || bytes % SIM_GRANULARITY != 0 || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_device(prop->location.id))
        DRIVER_END(CUDA_ERROR_INVALID_VALUE);
    if (!sim_device_take((uint32_t)prop->location.id, bytes))
        DRIVER_END(CUDA_ERROR_OUT_OF_MEMORY);
    struct sim_physical *physical = sim_alloc(sizeof(*physical));
    physical->device = (uint32_t)prop->location.id;
    physical->bytes = bytes;
    physical->next = sim.physical;
    sim.physical = physical;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    DRIVER_END(CUDA_SUCCESS);
}

static CUresult sim_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    DRIVER_BEGIN();
    struct sim_physical *physical = physical_of(handle);
    if (!physical || physical->released)
        DRIVER_END(CUDA_ERROR_INVALID_VALUE);
    physical->released = true;
    reap_physical(physical);
    DRIVER_END(CUDA_SUCCESS);
}

static CUresult sim_cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint,
                                        unsigned long long flags)
{
    (void)hint;
    DRIVER_BEGIN();
    if (bytes == 0 || bytes % SIM_GRANULARITY != 0 || flags != 0 || alignment > SIM_GRANULARITY)
        DRIVER_END(CUDA_ERROR_INVALID_VALUE);
    if (bytes > (size_t)1 << 40) /* more addresses than it has is no lack of memory to a driver */
        DRIVER_END(CUDA_ERROR_INVALID_VALUE);
    const uintptr_t at = sim_address_take(sim_self()->device, bytes);
    if (at == 0)
        DRIVER_END(CUDA_ERROR_OUT_OF_MEMORY);
    struct sim_span_reserved *reserved = sim_alloc(sizeof(*reserved));
    reserved->at = at;
    reserved->bytes = bytes;
    reserved->next = sim.reserved;
    sim.reserved = reserved;
    *out = at;
    DRIVER_END(CUDA_SUCCESS);
}

static CUresult sim_cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
    DRIVER_BEGIN();
    for (const struct sim_memory *memory = sim.memory; memory; memory = memory->next)
        if (memory->kind == SIM_MAPPED && memory->at >= at && memory->at < at + bytes)
            DRIVER_END(CUDA_ERROR_INVALID_VALUE); /* still mapped */
    for (struct sim_span_reserved **link = &sim.reserved; *link; link = &(*link)->next) {
        if ((*link)->at == at && (*link)->bytes == bytes) {
            struct sim_span_reserved *gone = *link;
            *link = gone->next;
            free(gone);
            DRIVER_END(CUDA_SUCCESS);
        }
    }
    DRIVER_END(CUDA_ERROR_INVALID_VALUE);
}

static CUresult sim_cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                             unsigned long long flags)
{
    DRIVER_BEGIN();
    struct sim_physical *physical = physical_of(handle);
    const struct sim_span_reserved *reserved = sim.reserved;
    while (reserved && !(at >= reserved->at && at - reserved->at < reserved->bytes))
        reserved = reserved->next;
    if (!physical || !reserved || offset != 0 || flags != 0 || bytes != physical->bytes ||
        at % SIM_GRANULARITY != 0 || bytes > reserved->bytes - (at - reserved->at) || physical->mappings > 0)
        DRIVER_END(CUDA_ERROR_INVALID_VALUE);
    if (!sim_map(at, bytes))
        DRIVER_END(CUDA_ERROR_OUT_OF_MEMORY);
    if (!sim.config.untouched)
        memset(sim_host_alias((void *)(uintptr_t)at), 0xff, bytes);
    struct sim_memory *memory = sim_alloc(sizeof(*memory));
    *memory = (struct sim_memory){.next = sim.memory, .kind = SIM_MAPPED, .device = physical->device, .at = at,
                                  .bytes = bytes, .mapped_bytes = bytes, .physical = physical};
    sim.memory = memory;
    physical->mappings++;
    DRIVER_END(CUDA_SUCCESS);
}

static CUresult sim_cuMemUnmap(CUdeviceptr at, size_t bytes)
{
    DRIVER_BEGIN();
    struct sim_memory *memory = sim_memory_find((void *)(uintptr_t)at);
    if (!memory || memory->kind != SIM_MAPPED || memory->at != at || memory->bytes != bytes)
        DRIVER_END(CUDA_ERROR_INVALID_VALUE);
    /* The real call waits for nothing: what still runs on the memory faults. */
    struct sim_physical *physical = memory->physical;
    sim_host_frees(memory, "cuMemUnmap");
    sim_memory_drop(memory);
    physical->mappings--;
    reap_physical(physical);
    DRIVER_END(CUDA_SUCCESS);
}

static CUresult sim_cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
    DRIVER_BEGIN();
    bool found = false;
    for (struct sim_memory *memory = sim.memory; memory; memory = memory->next) {
        if (memory->kind != SIM_MAPPED || memory->at < at || memory->at >= at + bytes)
            continue;
        found = true;
        for (size_t i = 0; i < count; i++) {
            const bool good = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE && is_device(desc[i].location.id);
            if (good)
                memory->access |= UINT32_C(1) << desc[i].location.id;
        }
    }
    DRIVER_END(found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* A context is known by its GPU's number, from 1. */
static CUresult sim_cuCtxGetCurrent(CUcontext *context)
{
    DRIVER_BEGIN();
    const struct sim_thread *self = sim_self();
    *context = (CUcontext)(uintptr_t)(self->has_context ? self->device + 1 : 0);
    DRIVER_END(CUDA_SUCCESS);
}

static CUresult sim_cuCtxSetCurrent(CUcontext context)
{
    DRIVER_BEGIN();
    struct sim_thread *self = sim_self();
    self->has_context = context != NULL;
    if (context)
        self->device = (uint32_t)(uintptr_t)context - 1;
    DRIVER_END(CUDA_SUCCESS);
}

static CUresult sim_cuGetErrorString(CUresult error, const char **text)
{
    *text = cudaGetErrorString((cudaError_t)error); /* the numbers agree where both have them */
    return CUDA_SUCCESS;
}

static CUresult sim_cuGetErrorName(CUresult error, const char **text)
{
    *text = cudaGetErrorName((cudaError_t)error);
    return CUDA_SUCCESS;
}

static CUresult sim_cuDeviceGet(CUdevice *device, int ordinal)
{
    DRIVER_BEGIN();
    *device = ordinal;
    DRIVER_END(is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

static CUresult sim_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    DRIVER_BEGIN();
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        *value = 1;
        break;
    default:
        *value = 0;
        break;
    }
    DRIVER_END(is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

typedef void (*any_function)(void);
static const struct {
    const char *name;
    any_function function;
} entry_points[] = {
#define ENTRY(name) {#name, (any_function)sim_##name}
    ENTRY(cuMemGetAllocationGranularity),
    ENTRY(cuMemCreate),
    ENTRY(cuMemRelease),
    ENTRY(cuMemAddressReserve),
    ENTRY(cuMemAddressFree),
    ENTRY(cuMemMap),
    ENTRY(cuMemUnmap),
    ENTRY(cuMemSetAccess),
    ENTRY(cuGetErrorString),
    ENTRY(cuDeviceGet),
    ENTRY(cuGetErrorName),
    ENTRY(cuDeviceGetAttribute),
    ENTRY(cuCtxGetCurrent),
    ENTRY(cuCtxSetCurrent),
#undef ENTRY
};

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *status)
{
    (void)version;
    (void)flags;
    CUDA_BEGIN();
    *function = NULL;
    for (size_t i = 0; i < sizeof(entry_points) / sizeof(entry_points[0]); i++)
        if (strcmp(entry_points[i].name, symbol) == 0)
            memcpy(function, &entry_points[i].function, sizeof(*function));
    if (status)
        *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    CUDA_END(*function || status ? cudaSuccess : cudaErrorSymbolNotFound);
}

void sim_vmm_reset(void)
{
    while (sim.memory && sim.physical) { /* mappings go with their memory */
        struct sim_memory *memory = sim.memory;
        while (memory && memory->kind != SIM_MAPPED)
            memory = memory->next;
        if (!memory)
            break;
        sim_memory_drop(memory);
    }
    while (sim.physical) {
        struct sim_physical *next = sim.physical->next;
        free(sim.physical);
        sim.physical = next;
    }
    while (sim.reserved) {
        struct sim_span_reserved *next = sim.reserved->next;
        free(sim.reserved);
        sim.reserved = next;
    }
}

uint32_t sim_vmm_leaks(void)
{
    uint32_t count = 0;
    for (const struct sim_physical *physical = sim.physical; physical; physical = physical->next, count++)
        sim_violate("never released: %llu bytes of cuMemCreate%s", (unsigned long long)physical->bytes,
                    physical->mappings ? ", still mapped" : "");
    for (const struct sim_span_reserved *reserved = sim.reserved; reserved; reserved = reserved->next, count++)
        sim_violate("never freed: %llu addresses of cuMemAddressReserve", (unsigned long long)reserved->bytes);
    return count;
}
