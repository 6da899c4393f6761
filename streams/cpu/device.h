/* SPDX-License-Identifier: MIT
 *
 * The CPU device as its own parts and the collectives that run on it see it.
 */
#ifndef EO_STREAMS_CPU_DEVICE_H
#define EO_STREAMS_CPU_DEVICE_H

#include "base/check.h"
#include "streams/cpu/affinity.h"
#include "streams/cpu/kernels.h"
#include "streams/cpu/queue.h"
#include "streams/device.h"

enum { EO_CPU_SHARED_MAX = 8 };

/* A reservation that other processes can map. It is gone with the last process that has it. */
struct eo_cpu_shared {
    void *memory;
    uint64_t bytes; /* mapped ones */
    int fd;
};

struct eo_cpu {
    struct eo_cpu_queue queues[EO_QUEUES_MAX]; /* that of EO_QUEUE_COMPUTE is not used: it is the calling thread */
    uint64_t compute_sequence;
    struct eo_delay delay; /* of the calling thread */
    const struct eo_cpu_kernels *kernels;
    const struct eo_affinity_ops *affinity_ops; /* NULL: threads stay where they are */
    struct eo_affinity *affinity;
    struct eo_cpu_shared shared[EO_CPU_SHARED_MAX]; /* bytes == 0: free */
    char storage_failure[512];          /* written once, by the queue's thread: after an error it runs no more items */
    atomic_bool has_storage_failed;     /* ... and it is there */
    double partials[EO_SUM_CHUNKS_MAX]; /* sums are made of no more, and nothing allocates after init */
};

extern const struct eo_device_ops eo_device_cpu_ops;

static inline struct eo_cpu *eo_cpu_of(const struct eo_device *device)
{
    return device->state;
}

/* Enqueues work on a communication queue (1 ...). Copies `bytes` of arguments; never waits, never allocates. */
static inline void eo_cpu_enqueue(struct eo_device *device, uint32_t queue, eo_cpu_work_fn run, const void *arguments,
                                  size_t bytes)
{
    EO_ASSERT(queue != EO_QUEUE_COMPUTE && queue < device->params.queue_count);
    eo_cpu_queue_issue(&eo_cpu_of(device)->queues[queue], run, arguments, bytes);
}

/* reserve.c */
eo_status eo_cpu_reserve(struct eo_device *device, enum eo_memory_kind kind, uint64_t bytes, void **out);
void eo_cpu_release(struct eo_device *device, enum eo_memory_kind kind, void *memory, uint64_t bytes);
eo_status eo_cpu_available(struct eo_device *device, uint64_t *free_bytes, uint64_t *total_bytes);
/* The shared reservation that begins at `memory`; NULL where it is none. */
const struct eo_cpu_shared *eo_cpu_shared_at(const struct eo_device *device, const void *memory);
/* Maps a file from its start, aligned for huge pages where it is as long as one; NULL when there is no room. -1: no
 * file, but memory of this process alone. */
unsigned char *eo_cpu_map(int fd, uint64_t bytes, int protection);

/* storage.c */
eo_status eo_cpu_storage_check(struct eo_device *device, const char *folder, uint64_t bytes, uint32_t sharers);
eo_status eo_cpu_storage_open(struct eo_device *device, const char *folder, uint64_t bytes, struct eo_storage **out);
void eo_cpu_storage_close(struct eo_device *device, struct eo_storage **storage);
const char *eo_cpu_storage_failure(const struct eo_device *device);
void eo_cpu_storage_copy(struct eo_device *device, struct eo_storage *storage, const struct eo_storage_copy *copy);
eo_status eo_cpu_storage_peek(struct eo_storage *storage, const struct eo_storage_copy *copy);
uint64_t eo_cpu_storage_cache_bytes(const struct eo_storage *storage);

/* streams/cpu/elementwise.c; chunks are spread over the trainer's threads: large enough to be worth waking one, small enough
 * to share a layer's shard between a few */
#define EO_CPU_CHUNK_ELEMENTS ((uint64_t)1 << 17)
void eo_cpu_run_chunks(struct eo_device *device, uint64_t chunk_count, void (*task)(void *arg, uint32_t index), void *arg);
void eo_cpu_zero(struct eo_device *device, void *memory, uint64_t bytes);
void eo_cpu_fill(struct eo_device *device, void *memory, uint32_t pattern, uint64_t bytes);
void eo_cpu_copy(struct eo_device *device, void *to, const void *from, uint64_t bytes);
void eo_cpu_copy_on(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes);
void eo_cpu_copy_host(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes, bool to_host,
                      struct eo_span *span);
void eo_cpu_cast_bf16(struct eo_device *device, uint32_t queue, uint16_t *to, const float *from, uint64_t count);
void eo_cpu_accumulate(struct eo_device *device, float *to, const void *from, eo_dtype dtype, bool overwrite,
                       uint64_t count);
void eo_cpu_sum_squares(struct eo_device *device, uint32_t queue, double *out, const float *values, uint64_t count,
                        struct eo_span *span);
void eo_cpu_accumulate_sum_squares(struct eo_device *device, double *out, float *to, const void *from, eo_dtype dtype,
                                   bool overwrite, uint64_t count);
void eo_cpu_norm_local(struct eo_device *device, double *out, const struct eo_norm_term *terms, uint32_t count,
                       const struct eo_step_memory *step, const double *device_values);
void eo_cpu_norm_sum(struct eo_device *device, const double *gathered, uint32_t rank_count, const struct eo_step_memory *step);
void eo_cpu_update(struct eo_device *device, enum eo_rule rule, const struct eo_update_range *ranges, uint32_t range_count,
                   const struct eo_step_memory *step);
void eo_cpu_combine(struct eo_device *device, float *out, const float *a, float x, const float *b, float y,
                    const double *squares, uint64_t count);
void eo_cpu_average(struct eo_device *device, const struct eo_average *average, enum eo_average_mode mode,
                    const struct eo_update_scalars *scalars, const struct eo_norm_result *norm);

/* streams/cpu/float8.c */
void eo_cpu_narrow(struct eo_device *device, const struct eo_float8_run *runs, uint32_t run_count);
void eo_cpu_widen(struct eo_device *device, const struct eo_float8_run *runs, uint32_t run_count);
void eo_cpu_widen_mxfp8(struct eo_device *device, const struct eo_mxfp8_run *runs, uint32_t run_count);

#endif
