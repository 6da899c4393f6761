/* SPDX-License-Identifier: MIT
 *
 * What does not fit into the GPU's memory: pinned host memory, so that copies run beside kernels, on the queues for them. A
 * captured step holds the copies like its kernels.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "streams/cpu/available.h"
#include "streams/cuda/parts.h"

struct eo_storage {
    char *memory;
    uint64_t bytes;
};

/* Pinned pages are never given back to others: some are left to the rest of the machine. */
eo_status eo_cuda_storage_check(struct eo_device *device, const char *folder, uint64_t bytes, uint32_t sharers)
{
    const char *bound = "";
    const uint64_t free_bytes = eo_memory_available(device->params.processes, &bound), ranks = sharers ? sharers : 1;
    (void)folder;
    if (bytes <= free_bytes / 5 * 4 / ranks)
        return EO_OK;
    eo_log_write(&device->log, EO_LOG_ERROR,
                 "rank %u: the host's memory has no room for what is offloaded: %.1f MiB needed by each of %llu ranks, %.1f MiB "
                 "free%s, of which at most 80 %% are pinned; offload fewer layers, or use more machines",
                 device->params.rank, (double)bytes / (1 << 20), (unsigned long long)ranks, (double)free_bytes / (1 << 20), bound);
    return EO_ERR_IO;
}

eo_status eo_cuda_storage_open(struct eo_device *device, const char *folder, uint64_t bytes, struct eo_storage **out)
{
    void *memory = NULL;
    (void)folder;
    *out = calloc(1, sizeof(**out));
    eo_status status = *out ? eo_cuda_reserve(device, EO_MEMORY_KIND_HOST, bytes, &memory) : EO_ERR_NO_MEMORY;
    if (status < 0) {
        free(*out);
        *out = NULL;
        return status;
    }
    **out = (struct eo_storage){memory, bytes};
    return EO_OK;
}

void eo_cuda_storage_close(struct eo_device *device, struct eo_storage **storage)
{
    if (*storage)
        eo_cuda_release(device, EO_MEMORY_KIND_HOST, (*storage)->memory, (*storage)->bytes);
    free(*storage);
    *storage = NULL;
}

eo_status eo_cuda_storage_peek(struct eo_storage *storage, const struct eo_storage_copy *copy)
{
    memcpy(copy->memory, storage->memory + copy->offset, copy->bytes);
    return EO_OK;
}

void eo_cuda_storage_copy(struct eo_device *device, struct eo_storage *storage, const struct eo_storage_copy *copy)
{
    char *host = storage->memory + copy->offset;
    const enum cudaMemcpyKind kind = copy->writes ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    if (copy->span && !copy->continues)
        eo_cuda_stamp(device, copy->queue, &copy->span->start_ns);
    (void)eo_cuda_note(device,
                       cudaMemcpyAsync(copy->writes ? host : copy->memory, copy->writes ? copy->memory : host, copy->bytes, kind,
                                       eo_cuda_of(device)->streams[copy->queue]),
                       copy->writes ? "an eviction to host memory" : "a fetch from host memory");
    if (copy->span && !copy->goes_on)
        eo_cuda_stamp(device, copy->queue, &copy->span->end_ns);
}
