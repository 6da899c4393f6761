/* SPDX-License-Identifier: MIT
 *
 * What the plan keeps on disk. In a step its list says when a layer comes and goes; between steps a buffer holds the layer
 * that was taken into it last.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "runtime/internal.h"
#include "streams/cpu/available.h"

static bool is_offloaded(const struct eo_plan *plan, uint32_t layer)
{
    return plan->layers[layer].disk_row != EO_NONE;
}

/* Rows of buffers follow each other. */
static uint32_t slot_of(const struct eo_plan *plan, uint32_t layer)
{
    return plan->layers[layer].offload_row - plan->layers[plan->updates[plan->offload_begin]].offload_row;
}

static uint64_t layer_bytes(const struct eo_plan *plan, uint32_t layer)
{
    return plan->rows[plan->layers[layer].disk_row].bytes;
}

static const char *folder_or_current(const char *folder)
{
    return folder ? folder : ".";
}

/* The device has logged why. What the other ranks are told. */
static eo_status keep_reason(struct eo_runtime *rt, eo_status status)
{
    const bool on_disk = rt->device->ops->is_host_memory;
    if (status < 0)
        snprintf(rt->errors.text, sizeof(rt->errors.text), "no place for the %.1f MiB that it offloads %s%s",
                 (double)rt->plan->space_bytes[EO_SPACE_DISK] / (1 << 20), on_disk ? "in the folder " : "in the host's memory",
                 on_disk ? folder_or_current(rt->params.offload_folder) : "");
    return status;
}

eo_status eo_offload_check(struct eo_runtime *rt)
{
    const uint64_t bytes = rt->plan->space_bytes[EO_SPACE_DISK];
    if (bytes == 0)
        return EO_OK;
    const char *bound = "";
    const uint32_t sharers = eo_world_host_ranks(rt->world, rt->device->count);
    const uint64_t share = eo_memory_available(rt->world->processes ? sharers : 0, &bound) / 5 * 4 / sharers,
                   taken = bytes + rt->plan->space_bytes[EO_SPACE_HOST];
    rt->offload.copy_bytes_max = share > taken ? share - taken : 0;
    return keep_reason(
        rt, rt->device->ops->storage_check(rt->device, folder_or_current(rt->params.offload_folder), bytes, sharers));
}

static uint64_t piece_count(const struct eo_plan *plan, uint32_t row)
{
    return row == EO_NONE ? 0 : eo_div_up(plan->rows[row].bytes, EO_STORAGE_PIECE);
}

/* For each row on disk, one after the other. */
static eo_status make_sums(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    uint64_t count = 0;
    rt->offload.sum_begin = calloc(plan->row_count - plan->disk_row_begin + 1, sizeof(*rt->offload.sum_begin));
    if (!rt->offload.sum_begin)
        return EO_ERR_NO_MEMORY;
    for (uint32_t r = plan->disk_row_begin; r < plan->row_count; r++) {
        rt->offload.sum_begin[r - plan->disk_row_begin] = count;
        count += piece_count(plan, r);
    }
    rt->offload.sums = calloc(count + 1, sizeof(*rt->offload.sums));
    return rt->offload.sums ? EO_OK : EO_ERR_NO_MEMORY;
}

static uint64_t *sums_of(const struct eo_runtime *rt, uint32_t row)
{
    return rt->offload.sums ? rt->offload.sums + rt->offload.sum_begin[row - rt->plan->disk_row_begin] : NULL;
}

eo_status eo_offload_init(struct eo_runtime *rt, void *const *rows)
{
    const struct eo_plan *plan = rt->plan;
    const bool split = rt->shards.split;
    if (plan->space_bytes[EO_SPACE_DISK] == 0)
        return EO_OK;
    EO_TRY(keep_reason(rt, rt->device->ops->storage_open(rt->device, folder_or_current(rt->params.offload_folder),
                                                         plan->space_bytes[EO_SPACE_DISK], &rt->offload.storage)));
    if (rt->device->ops->is_host_memory) /* it lies in a file: its disk may lose what it was given */
        EO_TRY(make_sums(rt));
    for (size_t s = 0; s < sizeof(rt->offload.slots) / sizeof(rt->offload.slots[0]); s++)
        rt->offload.slots[s].layer = EO_NONE;
    for (uint32_t u = plan->offload_begin; u < plan->update_count; u++) {
        const uint32_t l = plan->updates[u], slot = slot_of(plan, l);
        const struct plan_layer *layer = &plan->layers[l];
        char *buffer = (char *)eo_align_up((uintptr_t)rows[layer->offload_row], EO_DISK_ALIGN);
        rt->offload.slots[slot] = (struct offload_slot){.memory = buffer, .layer = EO_NONE};
        rt->shards.layers[l].low = split ? (int16_t *)buffer : NULL;
        if (layer->disk_gradient_row != EO_NONE)
            rt->shards.layers[l].update_gradient =
                (float *)(buffer + eo_plan_offload_offset(plan, layer, plan->state_count));
        for (uint32_t k = 0; k < plan->state_count; k++)
            rt->shards.layers[l].state[k] = (float *)(buffer + eo_plan_offload_offset(plan, layer, k));
    }
    return EO_OK;
}

void eo_offload_fini(struct eo_runtime *rt)
{
    if (rt->offload.storage)
        rt->device->ops->storage_close(rt->device, &rt->offload.storage);
    free(rt->offload.sums);
    free(rt->offload.sum_begin);
}

static void issue(struct eo_runtime *rt, const struct eo_storage_copy *copy)
{
    rt->stats.storage_bytes += copy->bytes;
    rt->device->ops->storage_copy(rt->device, rt->offload.storage, copy);
}

/* Of a row on disk, the first `bytes`. */
static struct eo_storage_copy copy_of(const struct eo_runtime *rt, bool writes, uint32_t row, void *memory, uint64_t bytes,
                                      struct eo_span *span)
{
    return (struct eo_storage_copy){.memory = memory, .offset = rt->plan->rows[row].offset, .bytes = bytes,
                                    .queue = EO_QUEUE_COPY, .sums = sums_of(rt, row), .span = span, .writes = writes};
}

static void issue_on(struct eo_runtime *rt, struct eo_storage_copy *copy, const struct eo_operation *o)
{
    copy->queue = eo_runtime_queue(rt, o->stream);
    issue(rt, copy);
}

/* All that a position saves, as one operation. */
static void issue_saved(struct eo_runtime *rt, const struct eo_operation *o, struct eo_span *span)
{
    const struct eo_plan *plan = rt->plan;
    struct eo_storage_copy copy = {.memory = NULL};
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        const struct plan_buffer *buffer = &plan->buffers[b];
        if (buffer->disk_row == EO_NONE || buffer->first.position != o->position)
            continue;
        const bool continues = copy.memory != NULL;
        copy.goes_on = true;
        if (continues)
            issue_on(rt, &copy, o);
        copy = copy_of(rt, o->kind == EO_OP_EVICT, buffer->disk_row, rt->views.buffers[b], plan->rows[buffer->disk_row].bytes, span);
        copy.continues = continues;
    }
    issue_on(rt, &copy, o);
}

void eo_offload_issue(struct eo_runtime *rt, const struct eo_operation *o, struct eo_span *span)
{
    if (o->saved) {
        issue_saved(rt, o, span);
        return;
    }
    const struct plan_layer *layer = &rt->plan->layers[o->layer];
    void *memory = o->gradient ? (void *)rt->shards.layers[o->layer].gradient : rt->offload.slots[slot_of(rt->plan, o->layer)].memory;
    const uint32_t row = o->gradient ? layer->disk_gradient_row : layer->disk_row; /* a fetch goes on into the gradient's */
    struct eo_storage_copy copy = copy_of(rt, o->kind == EO_OP_EVICT, row, memory, eo_plan_copy_bytes(rt->plan, o), span);
    if (copy.sums && o->kind == EO_OP_FETCH && layer->disk_gradient_row != EO_NONE) { /* whose sums begin anew */
        const uint64_t first = layer_bytes(rt->plan, o->layer), rest = copy.bytes - first;
        copy.bytes = first;
        copy.goes_on = true;
        issue_on(rt, &copy, o);
        copy = copy_of(rt, false, layer->disk_gradient_row, (char *)memory + first, rest, span);
        copy.continues = true;
    }
    issue_on(rt, &copy, o);
}

/* ---- between steps ---- */

/* Behind who has read or written slots: compute, and evictions on a queue of their own. */
static eo_status order_moves(struct eo_runtime *rt)
{
    const struct eo_device_ops *ops = rt->device->ops;
    EO_TRY(eo_runtime_order_queues(rt));
    if (rt->device->params.queue_count <= EO_QUEUE_EVICT)
        return EO_OK;
    ops->record(rt->device, EO_QUEUE_EVICT, &rt->queues.outside);
    RUNTIME_TRY(rt, ops->wait(rt->device, EO_QUEUE_COPY, &rt->queues.outside), "storage of rank %u", rt->world->rank);
    return EO_OK;
}

static void move_slot(struct eo_runtime *rt, bool writes, const struct offload_slot *slot, uint32_t layer)
{
    const struct eo_storage_copy copy =
        copy_of(rt, writes, rt->plan->layers[layer].disk_row, slot->memory, layer_bytes(rt->plan, layer), NULL);
    issue(rt, &copy);
}

static eo_status await(struct eo_runtime *rt)
{
    rt->device->ops->record(rt->device, EO_QUEUE_COPY, &rt->queues.outside);
    RUNTIME_TRY(rt, rt->device->ops->await(rt->device, &rt->queues.outside), "storage of rank %u", rt->world->rank);
    return EO_OK;
}

eo_status eo_offload_take(struct eo_runtime *rt, uint32_t layer, bool writes)
{
    if (!rt->offload.storage || !is_offloaded(rt->plan, layer))
        return EO_OK;
    struct offload_slot *slot = &rt->offload.slots[slot_of(rt->plan, layer)];
    if (slot->layer != layer) {
        EO_TRY(order_moves(rt));
        if (slot->is_changed)
            move_slot(rt, true, slot, slot->layer);
        move_slot(rt, false, slot, layer);
        EO_TRY(await(rt));
        *slot = (struct offload_slot){.memory = slot->memory, .layer = layer};
    }
    slot->is_changed = slot->is_changed || writes;
    return EO_OK;
}

eo_status eo_offload_settle(struct eo_runtime *rt)
{
    bool was_used = false;
    for (uint32_t s = 0; rt->offload.storage && s < rt->plan->params.offload_slots; s++)
        was_used = was_used || rt->offload.slots[s].layer != EO_NONE;
    if (was_used)
        EO_TRY(order_moves(rt));
    for (uint32_t s = 0; rt->offload.storage && s < rt->plan->params.offload_slots; s++) {
        struct offload_slot *slot = &rt->offload.slots[s];
        if (slot->is_changed)
            move_slot(rt, true, slot, slot->layer);
        *slot = (struct offload_slot){.memory = slot->memory, .layer = EO_NONE};
    }
    return EO_OK;
}

eo_status eo_offload_finish(struct eo_runtime *rt)
{
    EO_TRY(eo_offload_settle(rt));
    if (!rt->offload.storage)
        return EO_OK;
    EO_TRY(order_moves(rt));
    return await(rt);
}

/* Whole pieces, so that their sums can be compared. */
eo_status eo_offload_peek(struct eo_runtime *rt, uint32_t layer, uint64_t at, uint64_t bytes, void *room, void **out)
{
    const uint32_t row = rt->plan->layers[layer].disk_row;
    const uint64_t begin = at / EO_STORAGE_PIECE * EO_STORAGE_PIECE;
    const uint64_t end = eo_min_u64(eo_align_up(at + bytes, EO_STORAGE_PIECE), rt->plan->rows[row].bytes);
    struct eo_storage_copy copy = copy_of(rt, false, row, room, end - begin, NULL);
    copy.offset += begin;
    if (copy.sums)
        copy.sums += begin / EO_STORAGE_PIECE;
    *out = (char *)room + (at - begin);
    return rt->device->ops->storage_peek(rt->offload.storage, &copy);
}

/* ---- how fast it is ---- */

static eo_status move_once(struct eo_device *device, struct eo_storage *storage, void *memory, uint64_t bytes, uint64_t *sums,
                           uint64_t *ns)
{
    struct eo_event moved = {0};
    const uint64_t begin_ns = eo_now_ns();
    for (int writes = 1; writes >= 0; writes--)
        device->ops->storage_copy(device, storage,
                                  &(const struct eo_storage_copy){.memory = memory, .bytes = bytes, .queue = EO_QUEUE_COPY, .sums = sums, .writes = writes});
    device->ops->record(device, EO_QUEUE_COPY, &moved);
    const eo_status status = device->ops->await(device, &moved);
    *ns = eo_now_ns() - begin_ns;
    return status;
}

static eo_status create_device(struct eo_device **device, const eo_log *log)
{
    return eo_device_create(
        device, "cpu",
        &(struct eo_device_params){
            .queue_count = 4, .ring_capacity = 4, .rank_count = 1, .event_count = 4, .stamp_count = 4, .log = log});
}

eo_status eo_storage_cache_bytes(const char *folder, const eo_log *log, uint64_t *bytes)
{
    const eo_log own = log ? *log : (eo_log){0};
    struct eo_device *device = NULL;
    struct eo_storage *storage = NULL;
    if (!bytes)
        return EO_ERR_INVALID;
    *bytes = 0;
    EO_TRY(create_device(&device, &own));
    folder = folder_or_current(folder);
    eo_status status = device->ops->storage_check(device, folder, EO_STORAGE_PIECE, 1);
    if (status >= 0)
        status = device->ops->storage_open(device, folder, EO_STORAGE_PIECE, &storage);
    if (status >= 0)
        *bytes = device->ops->storage_cache_bytes(storage);
    if (storage)
        device->ops->storage_close(device, &storage);
    eo_device_destroy(&device);
    return status;
}

eo_status eo_storage_measure(const char *folder, const eo_log *log, double *bytes_per_s)
{
    enum { BYTES = 96 << 20 };
    uint64_t sums[BYTES / EO_STORAGE_PIECE] = {0};
    const eo_log own = log ? *log : (eo_log){0};
    struct eo_device *device = NULL;
    struct eo_storage *storage = NULL;
    uint64_t ns = 0;
    if (!bytes_per_s)
        return EO_ERR_INVALID;
    *bytes_per_s = 0;
    EO_TRY(create_device(&device, &own));
    void *memory = NULL; /* as a plan's buffers are reserved: on huge pages, where there are some, a copy takes half the time */
    folder = folder_or_current(folder);
    eo_status status = device->ops->storage_check(device, folder, BYTES, 1);
    if (status >= 0)
        status = device->ops->reserve(device, EO_MEMORY_KIND_PRIVATE, BYTES, &memory);
    if (status >= 0)
        status = device->ops->storage_open(device, folder, BYTES, &storage);
    if (status >= 0) {
        memset(memory, 1, BYTES);
        status = move_once(device, storage, memory, BYTES, sums, &ns); /* what was never written takes longer to write */
    }
    if (status >= 0)
        status = move_once(device, storage, memory, BYTES, sums, &ns);
    if (status >= 0)
        *bytes_per_s = 2.0 * BYTES * 1e9 / (double)(ns ? ns : 1);
    if (storage)
        device->ops->storage_close(device, &storage);
    device->ops->release(device, EO_MEMORY_KIND_PRIVATE, memory, BYTES);
    eo_device_destroy(&device);
    return status;
}
