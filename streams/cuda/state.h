/* SPDX-License-Identifier: MIT
 *
 * The CUDA device as its own parts and the collectives that run on it see it; its first failure; captures.
 *
 *     queue 0     a stream of the lowest priority, queues 1 ... of the highest: when a block of a collective and one of
 *                 a product wait for room, the collective's gets it
 *     event       a cudaEvent_t without timing from a fixed pool, taken at the first record
 *     stamp       a timing event from a fixed ring, until resolve_stamps turns it into a time; in a captured step one
 *                 that every launch records anew
 *
 * Only CUDA's runtime library is linked, the static one; of the driver's own functions some are asked for at run time
 * (streams/cuda/driver.c).
 * The first failure is kept, as on the CPU: functions without a status note it, later waits return it. After an error
 * that CUDA calls sticky nothing works on this GPU in this process any more.
 *
 * The rank's thread has the GPU as its current device from init on, and keeps it if it had none before. Another thread that
 * calls has to set it.
 */
#ifndef EO_STREAMS_CUDA_STATE_H
#define EO_STREAMS_CUDA_STATE_H

#include <cuda_runtime_api.h>

#include "streams/cpu/affinity.h"
#include "streams/cuda/errors.h"
#include "streams/device.h"

enum { EO_CUDA_PEERS_MAX = 64 }; /* GPUs of a process that take part */

struct eo_cuda_reservation;
struct eo_cuda_virtual;

struct eo_cuda_stamp {
    cudaEvent_t event;
    uint64_t *ns;
};

struct eo_cuda {
    int device;           /* CUDA's number */
    void *context_before; /* what the thread had: it gets it back at fini */
    char name[64];
    cudaStream_t streams[EO_QUEUES_MAX];
    eo_status error; /* the first */

    cudaEvent_t *events;
    uint32_t event_count, events_taken;
    uint64_t sequence;
    cudaEvent_t ends[EO_QUEUES_MAX]; /* where queues are when a capture or a launch joins them */
    cudaEvent_t fork;                /* from where they go on */

    /* A capture under way, whoever began it, and how many there have been. Events that were recorded in one belong to
     * its graph; see cuda_wait. */
    bool is_capturing;
    uint64_t capture_count;
    eo_status capture_error;

    struct eo_cuda_stamp *stamps; /* ring: [stamps_resolved, stamps_taken) are out */
    uint64_t stamps_taken, stamps_resolved;
    struct eo_cuda_stamp *graph_stamps; /* of the capture that graph_stamps_capture counts */
    uint32_t graph_stamps_taken;
    uint64_t graph_stamps_capture;
    cudaEvent_t base;
    double base_ns; /* eo_now_ns() when `base` came */

    double *chunks; /* device memory: EO_SUM_CHUNKS_MAX partial sums for each queue, whose sums may run side by side */

    struct eo_cuda_reservation *reservations;
    struct eo_cuda_virtual *virtual_memory; /* NULL: private memory is cudaMalloc's */
    uint64_t readers;                       /* a bit a GPU: see eo_cuda_let_read */
    uint64_t used_at_start_bytes;           /* of the GPU, when this device had its context and nothing else */

    const struct eo_affinity_ops *affinity_ops; /* NULL: threads stay where they are */
    struct eo_affinity *affinity;
};

extern const struct eo_device_ops eo_device_cuda_ops;

static inline struct eo_cuda *eo_cuda_of(const struct eo_device *device)
{
    return device->state;
}

/* Notes and logs what a call gave; EO_OK for cudaSuccess. `operation` names it in the log. While capturing, the
 * failure is the capture's, unless it is sticky. */
eo_status eo_cuda_note(struct eo_device *device, cudaError_t error, const char *operation);

#define EO_CUDA_TRY(device, operation, call)                                                                          \
    do {                                                                                                              \
        const cudaError_t eo_cuda_try_error = (call);                                                                 \
        if (eo_cuda_try_error != cudaSuccess)                                                                         \
            return eo_cuda_note(device, eo_cuda_try_error, operation);                                                \
    } while (0)

/*
 * driver.c: the context that the calling thread has, to be given back later. NULL: it has none, and there is nothing to give
 * back: it keeps the GPU that was set. By the GPU's number it would get one: cudaSetDevice makes the context of a GPU that
 * nobody chose, some hundred MiB there of each process.
 */
void *eo_cuda_context(void);
void eo_cuda_context_give_back(void *context);

/* memory.c: a GPU whose ranks read this one's memory, in collectives of one process: what there is, and what will be reserved. */
cudaError_t eo_cuda_let_read(struct eo_device *device, int peer);

/* Looks whether the queue is being captured, and counts captures. */
bool eo_cuda_sees_capture(struct eo_device *device, uint32_t queue);

#endif
