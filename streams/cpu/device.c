/* SPDX-License-Identifier: MIT */
#include "streams/cpu/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/thread.h"

static void bind_worker(void *arg)
{
    const struct eo_cpu *cpu = arg;
    cpu->affinity_ops->bind_thread(cpu->affinity);
}

static eo_status cpu_init(struct eo_device *device)
{
    struct eo_cpu *cpu = aligned_alloc(_Alignof(struct eo_cpu), sizeof(*cpu));
    if (!cpu)
        return EO_ERR_NO_MEMORY;
    memset(cpu, 0, sizeof(*cpu));
    device->state = cpu;
    const struct eo_device_params *params = &device->params;
    cpu->kernels = eo_cpu_kernels_best();
    const uint32_t threads = params->workers.run ? params->workers.thread_count : 1;
    eo_log_write(&device->log, EO_LOG_INFO, "rank %u: device cpu, kernels %s, %u thread%s for element-wise work",
                 params->rank, cpu->kernels->name, threads, threads == 1 ? "" : "s");
    if (params->place_threads) {
        const struct eo_affinity_ops *ops = eo_affinity_best();
        const struct eo_affinity_share share = {
            .rank = params->rank,
            .index = params->share_ranks ? params->share_rank : params->rank,
            .count = params->share_ranks ? params->share_ranks : params->rank_count,
        };
        EO_TRY(ops->init(&cpu->affinity, &share, &device->log));
        cpu->affinity_ops = ops; /* set only now: fini undoes what init has done */
        ops->bind_thread(cpu->affinity);
    }
    eo_delay_init(&cpu->delay, params->delay_seed, params->rank, EO_QUEUE_COMPUTE);
    for (uint32_t i = 1; i < params->queue_count; i++) {
        struct eo_cpu_queue *queue = &cpu->queues[i];
        queue->index = i;
        queue->rank = params->rank;
        queue->queues = cpu->queues;
        eo_delay_init(&queue->delay, params->delay_seed, params->rank, i);
        if (cpu->affinity_ops) {
            queue->bind = bind_worker;
            queue->bind_arg = cpu;
        }
        const int error = eo_cpu_queue_init(queue, params->ring_capacity);
        if (error != 0) {
            eo_log_write(&device->log, EO_LOG_ERROR, "rank %u: cannot start the worker thread of queue %u: %s; %s",
                         params->rank, i, strerror(error), eo_thread_remedy(error));
            return EO_ERR_NO_MEMORY;
        }
    }
    return EO_OK;
}

static void cpu_fini(struct eo_device *device)
{
    struct eo_cpu *cpu = device->state;
    if (!cpu)
        return;
    /* All are drained before the first ends: items of one queue may wait for another. */
    for (uint32_t i = 1; i < device->params.queue_count; i++) {
        if (cpu->queues[i].thread_started)
            (void)eo_cpu_queue_await(&cpu->queues[i], atomic_load(&cpu->queues[i].issued));
    }
    for (uint32_t i = 1; i < device->params.queue_count; i++)
        eo_cpu_queue_fini(&cpu->queues[i]);
    if (cpu->affinity_ops)
        cpu->affinity_ops->fini(cpu->affinity);
    free(cpu);
    device->state = NULL;
}

static void cpu_record(struct eo_device *device, uint32_t queue, struct eo_event *event)
{
    struct eo_cpu *cpu = eo_cpu_of(device);
    EO_ASSERT(queue < device->params.queue_count);
    event->queue = queue;
    if (queue == EO_QUEUE_COMPUTE) {
        eo_delay_sleep(&cpu->delay);
        event->sequence = ++cpu->compute_sequence;
    } else {
        event->sequence = eo_cpu_queue_point(&cpu->queues[queue]);
    }
}

static eo_status cpu_wait(struct eo_device *device, uint32_t queue, const struct eo_event *event)
{
    struct eo_cpu *cpu = eo_cpu_of(device);
    EO_ASSERT(queue < device->params.queue_count && event->queue < device->params.queue_count);
    if (event->sequence == 0 || event->queue == EO_QUEUE_COMPUTE)
        return EO_OK; /* what the calling thread recorded, it has done */
    if (queue == EO_QUEUE_COMPUTE) {
        eo_delay_sleep(&cpu->delay);
        return eo_cpu_queue_await(&cpu->queues[event->queue], event->sequence);
    }
    eo_cpu_queue_order_after(&cpu->queues[queue], event->queue, event->sequence);
    return eo_cpu_queue_error(&cpu->queues[event->queue]);
}

static bool cpu_is_complete(struct eo_device *device, const struct eo_event *event)
{
    const struct eo_cpu *cpu = eo_cpu_of(device);
    return event->queue == EO_QUEUE_COMPUTE ||
           atomic_load_explicit(&cpu->queues[event->queue].completed, memory_order_acquire) >= event->sequence;
}

static eo_status cpu_await(struct eo_device *device, const struct eo_event *event)
{
    return cpu_wait(device, EO_QUEUE_COMPUTE, event);
}

static eo_status cpu_drain(struct eo_device *device)
{
    struct eo_cpu *cpu = eo_cpu_of(device);
    eo_status first = EO_OK;
    for (uint32_t i = 1; i < device->params.queue_count; i++) {
        const eo_status status = eo_cpu_queue_await(&cpu->queues[i], atomic_load(&cpu->queues[i].issued));
        if (first == EO_OK)
            first = status;
    }
    return first;
}

static void *cpu_queue_handle(struct eo_device *device, uint32_t queue)
{
    return NULL;
}

/* Work of the compute queue has run when the call that gave it returns; that of others has spans of its own. */
static void cpu_stamp(struct eo_device *device, uint32_t queue, uint64_t *ns)
{
    EO_ASSERT(queue == EO_QUEUE_COMPUTE);
    *ns = eo_now_ns();
}

static void cpu_resolve_stamps(struct eo_device *device)
{
}

const struct eo_device_ops eo_device_cpu_ops = {
    .name = "cpu",
    .is_host_memory = true,
    .init = cpu_init,
    .fini = cpu_fini,
    .reserve = eo_cpu_reserve,
    .release = eo_cpu_release,
    .available = eo_cpu_available,
    .record = cpu_record,
    .wait = cpu_wait,
    .is_complete = cpu_is_complete,
    .await = cpu_await,
    .drain = cpu_drain,
    .queue_handle = cpu_queue_handle,
    .stamp = cpu_stamp,
    .resolve_stamps = cpu_resolve_stamps,
    .upload = eo_cpu_copy,
    .download = eo_cpu_copy,
    .zero = eo_cpu_zero,
    .fill = eo_cpu_fill,
    .copy = eo_cpu_copy_on,
    .copy_host = eo_cpu_copy_host,
    .cast_bf16 = eo_cpu_cast_bf16,
    .narrow = eo_cpu_narrow,
    .widen = eo_cpu_widen,
    .widen_mxfp8 = eo_cpu_widen_mxfp8,
    .accumulate = eo_cpu_accumulate,
    .sum_squares = eo_cpu_sum_squares,
    .accumulate_sum_squares = eo_cpu_accumulate_sum_squares,
    .norm_local = eo_cpu_norm_local,
    .norm_sum = eo_cpu_norm_sum,
    .update = eo_cpu_update,
    .combine = eo_cpu_combine,
    .average = eo_cpu_average,
    .storage_check = eo_cpu_storage_check,
    .storage_open = eo_cpu_storage_open,
    .storage_close = eo_cpu_storage_close,
    .storage_copy = eo_cpu_storage_copy,
    .storage_failure = eo_cpu_storage_failure,
    .storage_peek = eo_cpu_storage_peek,
    .storage_cache_bytes = eo_cpu_storage_cache_bytes,
};
