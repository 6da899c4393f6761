/* SPDX-License-Identifier: MIT
 *
 * The CUDA device as its own parts and the collectives that run on it see it.
 *
 *     queue 0     a stream of the lowest priority, queues 1 ... of the highest: when a block of a collective and one of
 *                 a product wait for room, the collective's gets it
 *     event       a cudaEvent_t without timing from a fixed pool, taken at the first record
 *     stamp       a timing event from a fixed ring, until resolve_stamps turns it into a time; in a captured step one
 *                 that every launch records anew
 *
 * Only CUDA's runtime library is linked; of the driver's own functions some are asked for at run time (memory_cuda.c).
 * The first failure is kept, as on the CPU: functions without a status note it, later waits return it. After an error
 * that CUDA calls sticky nothing works on this GPU in this process any more.
 *
 * The rank's thread has the GPU as its current device from init on. Another thread that calls has to set it.
 */
#ifndef EO_STREAMS_CUDA_DEVICE_CUDA_H
#define EO_STREAMS_CUDA_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "streams/cpu/affinity.h"
#include "streams/cuda/errors_cuda.h"
#include "streams/device.h"

struct eo_cuda_reservation;
struct eo_cuda_virtual;

struct eo_cuda_stamp {
    cudaEvent_t event;
    uint64_t *ns;
};

struct eo_cuda {
    int device;        /* CUDA's number */
    int device_before; /* what the thread had: it gets it back at fini. -1: unknown */
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

    double *chunks; /* device memory: room for the partial sums of sum_squares */

    struct eo_cuda_reservation *reservations;
    struct eo_cuda_virtual *virtual_memory; /* NULL: private memory is cudaMalloc's */
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

/* choose_cuda.c: the GPU, with everything that can be wrong about it, made current. */
eo_status eo_cuda_choose(struct eo_device *device);

/* Looks whether the queue is being captured, and counts captures. */
bool eo_cuda_sees_capture(struct eo_device *device, uint32_t queue);

/* memory_cuda.c */
eo_status eo_cuda_memory_init(struct eo_device *device);
void eo_cuda_memory_fini(struct eo_device *device);
eo_status eo_cuda_reserve(struct eo_device *device, enum eo_memory_kind kind, uint64_t bytes, void **out);
void eo_cuda_release(struct eo_device *device, enum eo_memory_kind kind, void *memory, uint64_t bytes);
eo_status eo_cuda_available(struct eo_device *device, uint64_t *free_bytes, uint64_t *total_bytes);
/* Of the GPU, in use for what is not an arena: since init, by this process and all others. Log's and tools' figure. */
uint64_t eo_cuda_outside_bytes(struct eo_device *device);

/* stamps_cuda.c */
eo_status eo_cuda_stamps_init(struct eo_device *device);
void eo_cuda_stamps_fini(struct eo_device *device);
void eo_cuda_stamp(struct eo_device *device, uint32_t queue, uint64_t *ns);
void eo_cuda_resolve_stamps(struct eo_device *device);
void eo_cuda_resolve_graph_stamps(struct eo_device *device);
void eo_cuda_stamps_anchor(struct eo_device *device); /* all queues are empty: compares the clocks anew */

/* ranges_cuda.c: for profilers */
void eo_cuda_name_streams(const struct eo_device *device);
void eo_cuda_range_begin(struct eo_device *device, const char *name);
void eo_cuda_range_end(struct eo_device *device);

/* graph_cuda.c */
eo_status eo_cuda_capture_begin(struct eo_device *device);
eo_status eo_cuda_capture_end(struct eo_device *device, void **graph);
eo_status eo_cuda_graph_launch(struct eo_device *device, void *graph);
void eo_cuda_graph_destroy(struct eo_device *device, void **graph);

/* elementwise_cuda.c */
void eo_cuda_upload(struct eo_device *device, void *to, const void *from_host, uint64_t bytes);
void eo_cuda_download(struct eo_device *device, void *to_host, const void *from, uint64_t bytes);
void eo_cuda_zero(struct eo_device *device, void *memory, uint64_t bytes);
void eo_cuda_fill_memory(struct eo_device *device, void *memory, uint32_t pattern, uint64_t bytes);
void eo_cuda_copy(struct eo_device *device, void *to, const void *from, uint64_t bytes);
void eo_cuda_cast(struct eo_device *device, uint32_t queue, uint16_t *to, const float *from, uint64_t count);
void eo_cuda_add(struct eo_device *device, float *to, const void *from, eo_dtype dtype, bool overwrite,
                 uint64_t count);
void eo_cuda_squares(struct eo_device *device, double *out, const float *values, uint64_t count);
void eo_cuda_add_squares(struct eo_device *device, double *out, float *to, const void *from, eo_dtype dtype,
                         bool overwrite, uint64_t count);
void eo_cuda_local_norm(struct eo_device *device, double *out, const double *const *partials, uint32_t count,
                        const struct eo_update_scalars *scalars, const double *device_values);
void eo_cuda_sum_norms(struct eo_device *device, struct eo_norm_result *out, const double *gathered,
                       uint32_t rank_count, const struct eo_update_scalars *scalars);
void eo_cuda_update(struct eo_device *device, const struct eo_adamw *ranges, uint32_t range_count,
                    const struct eo_update_scalars *scalars, const struct eo_norm_result *norm);

/* allocator_cuda.c: the table's; caching_cuda.c: "caching" */
const struct eo_device_allocator_ops *eo_cuda_allocator(const char *kind);
extern const struct eo_device_allocator_ops eo_cuda_caching_ops;

#endif
