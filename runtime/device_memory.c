/* SPDX-License-Identifier: MIT
 *
 * A look at a device before anything is reserved on it: its memory, and how fast it copies.
 */
#include "base/check.h"
#include "runtime/world/internal.h"
#include "streams/device.h"

eo_status eo_device_ask(eo_device_facts *out, const char *device, uint32_t device_index, const eo_log *log)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = (eo_device_facts){0};
    struct eo_device *opened = NULL;
    EO_TRY(eo_device_create(&opened, device ? device : "cpu", &(struct eo_device_params){
        .queue_count = 1, .rank_count = 1, .device_index = device_index, .log = log}));
    const eo_status status = opened->ops->available(opened, &out->free_bytes, &out->total_bytes);
    out->device_count = opened->count ? opened->count : 1;
    eo_device_destroy(&opened);
    return status;
}

/* ---- copies ----------------------------------------------------------------------------------------------------- */

enum { BYTES_MOST = 256 << 20, BYTES_LEAST = 1 << 20, ROUNDS = 4 };

struct copies {
    struct eo_device *device;
    uint64_t bytes;
    void *from, *to, *host;
};

static void keep_best(double *best, uint64_t bytes, uint64_t ns)
{
    const double rate = (double)bytes * 1e9 / (double)(ns ? ns : 1);
    *best = rate > *best ? rate : *best;
}

static eo_status copy_once(const struct copies *c, eo_device_rates *out)
{
    const struct eo_device_ops *ops = c->device->ops;
    struct eo_span within = {0}, fetch = {0}, evict = {0};
    const uint64_t half = c->bytes / 2;
    ops->stamp(c->device, EO_QUEUE_COMPUTE, &within.start_ns);
    ops->copy(c->device, EO_QUEUE_COMPUTE, c->to, c->from, c->bytes);
    ops->stamp(c->device, EO_QUEUE_COMPUTE, &within.end_ns);
    EO_TRY(ops->drain(c->device)); /* each alone */
    ops->copy_host(c->device, EO_QUEUE_COPY, c->to, c->host, half, false, &fetch); /* as in a step: both at a time */
    ops->copy_host(c->device, EO_QUEUE_EVICT, (char *)c->host + half, c->from, half, true, &evict);
    EO_TRY(ops->drain(c->device));
    ops->resolve_stamps(c->device);
    keep_best(&out->memory_bytes_per_s, 2 * c->bytes, within.end_ns - within.start_ns);
    keep_best(&out->host_bytes_per_s, 2 * half, (fetch.end_ns - fetch.start_ns) + (evict.end_ns - evict.start_ns));
    return EO_OK;
}

static eo_status take_memory(struct copies *c)
{
    const struct eo_device_ops *ops = c->device->ops;
    uint64_t free_bytes = 0, total_bytes = 0;
    EO_TRY(ops->available(c->device, &free_bytes, &total_bytes));
    c->bytes = free_bytes / 8 < BYTES_MOST ? free_bytes / 8 / BYTES_LEAST * BYTES_LEAST : BYTES_MOST;
    c->bytes = c->bytes > BYTES_LEAST ? c->bytes : BYTES_LEAST;
    EO_TRY(ops->reserve(c->device, EO_MEMORY_KIND_PRIVATE, c->bytes, &c->from));
    EO_TRY(ops->reserve(c->device, EO_MEMORY_KIND_PRIVATE, c->bytes, &c->to));
    return ops->reserve(c->device, EO_MEMORY_KIND_HOST, c->bytes, &c->host);
}

static void give_memory(const struct copies *c)
{
    const struct eo_device_ops *ops = c->device->ops;
    if (c->from)
        ops->release(c->device, EO_MEMORY_KIND_PRIVATE, c->from, c->bytes);
    if (c->to)
        ops->release(c->device, EO_MEMORY_KIND_PRIVATE, c->to, c->bytes);
    if (c->host)
        ops->release(c->device, EO_MEMORY_KIND_HOST, c->host, c->bytes);
}

eo_status eo_device_measure(eo_device_rates *out, const char *device, uint32_t device_index, const eo_log *log)
{
    struct copies c = {0};
    if (!out || !device)
        return EO_ERR_INVALID;
    *out = (eo_device_rates){0};
    EO_TRY(eo_device_create(&c.device, device, &(struct eo_device_params){
        .queue_count = EO_QUEUES_MAX, .rank_count = 1, .device_index = device_index, .ring_capacity = 8, .stamp_count = 32,
        .log = log}));
    eo_status status = EO_OK;
    if (c.device->ops->is_host_memory) {
        eo_log_write(&c.device->log, EO_LOG_ERROR, "device %s has no memory of its own: time the host's", device);
        status = EO_ERR_UNSUPPORTED;
    }
    if (status >= 0)
        status = take_memory(&c);
    for (int round = 0; round < ROUNDS && status >= 0; round++) {
        if (round == 1) /* the first one finds everything cold */
            *out = (eo_device_rates){0};
        status = copy_once(&c, out);
    }
    give_memory(&c);
    eo_device_destroy(&c.device);
    return status;
}
