/* SPDX-License-Identifier: MIT
 *
 * In debug mode: whether a pass has left the weights of its view as they were. What a trainer writes there is lost or becomes
 * the weight, by strategy and number of ranks. And, on CPUs, whether it has written behind one of its buffers: up to where the
 * next row may begin lies nothing, so a pattern there must stay.
 */
#include <string.h>

#include "base/arithmetic.h"
#include "base/hashing.h"
#include "runtime/internal.h"

static eo_status hash_weights(struct eo_runtime *rt, const char *weights, uint64_t bytes, uint64_t *hash)
{
    enum { ROOM = 1 << 16 };
    char room[ROOM];
    *hash = 0;
    for (uint64_t at = 0; at < bytes; at += ROOM) {
        const uint64_t part = eo_min_u64(ROOM, bytes - at);
        EO_TRY(eo_host_download(rt, room, weights + at, part));
        *hash = eo_hash64_more(*hash, room, part);
    }
    return EO_OK;
}

/* With `found` NULL their hashes are noted; else compared, and the first parameter that differs goes to *found. */
static eo_status look_at_layer(struct eo_runtime *rt, uint32_t layer, void *const *weights, const struct plan_parameter **found)
{
    const struct plan_layer *l = &rt->plan->layers[layer];
    for (uint32_t k = 0; k < l->parameter_count; k++) {
        const struct plan_parameter *p = &rt->plan->parameters[l->parameter_begin + k];
        const uint64_t size = p->fp32 ? sizeof(float) : eo_dtype_bytes(rt->plan->params.dtype);
        uint64_t hash;
        EO_TRY(hash_weights(rt, weights[p->view_index], p->element_count * size, &hash));
        if (!found)
            rt->views.hashes[p->view_index] = hash;
        else if (rt->views.hashes[p->view_index] != hash)
            *found = *found ? *found : p;
    }
    return EO_OK;
}

static eo_status look_at_view(struct eo_runtime *rt, uint32_t position, const eo_view *view,
                              const struct plan_parameter **found)
{
    const uint32_t layer = rt->plan->positions[position].layer;
    if (!rt->params.debug || rt->graph.recording || !view->weights)
        return EO_OK;
    EO_TRY(look_at_layer(rt, layer, view->weights, found));
    if (rt->plan->layers[layer].frozen_part != EO_NONE)
        EO_TRY(look_at_layer(rt, rt->plan->layers[layer].frozen_part, view->weights, found));
    return EO_OK;
}

/* What lies behind a buffer in its row's room; 0 bytes: nothing does, or it is not known. */
static uint64_t room_behind(const struct eo_runtime *rt, uint32_t buffer, char **begin)
{
    const struct plan_buffer *b = &rt->plan->buffers[buffer];
    const uint64_t bytes = eo_align_up(rt->plan->rows[b->row].bytes, sizeof(uint32_t));
    const bool is_known = rt->params.debug && rt->params.memory == EO_MEMORY_STATIC && rt->device->ops->is_host_memory &&
                          rt->cursor.phase == PHASE_STEP && !b->shared && eo_views_is_live(&rt->cursor, b);
    *begin = is_known ? (char *)rt->views.buffers[buffer] + bytes : NULL;
    return is_known ? eo_align_up(bytes, rt->plan->params.align_bytes) - bytes : 0;
}

void eo_read_only_mark_buffers(struct eo_runtime *rt)
{
    for (uint32_t b = 0; rt->params.debug && b < rt->plan->buffer_count; b++) {
        char *begin;
        const uint64_t bytes = room_behind(rt, b, &begin);
        if (bytes > 0 && !rt->views.marked[b])
            rt->device->ops->fill(rt->device, begin, EO_POISON, bytes);
        rt->views.marked[b] = rt->views.marked[b] || bytes > 0;
    }
}

/* Buffers whose life has ended inside the pass are others' room now. */
static eo_status check_buffers(struct eo_runtime *rt, const char *pass, uint32_t position)
{
    enum { ROOM = 4096 };
    for (uint32_t b = 0; rt->params.debug && b < rt->plan->buffer_count; b++) {
        char room[ROOM], *begin;
        const uint32_t pattern = EO_POISON;
        const uint64_t bytes = eo_min_u64(room_behind(rt, b, &begin), ROOM);
        const bool is_marked = rt->views.marked[b];
        rt->views.marked[b] = false;
        if (!is_marked || bytes == 0)
            continue;
        EO_TRY(eo_host_download(rt, room, begin, bytes));
        for (uint64_t at = 0; at < bytes; at += sizeof(pattern))
            if (memcmp(room + at, &pattern, sizeof(pattern)) != 0)
                return eo_runtime_fail(rt, EO_ERR_INVALID,
                                       "%s of %s has written behind buffer '%s', which has %llu bytes; what lies "
                                       "there may be overwritten too",
                                       pass, rt->plan->positions[position].name, rt->plan->rows[rt->plan->buffers[b].row].name,
                                       (unsigned long long)rt->plan->rows[rt->plan->buffers[b].row].bytes);
    }
    return EO_OK;
}

eo_status eo_read_only_begin(struct eo_runtime *rt, uint32_t position, const eo_view *view)
{
    eo_read_only_mark_buffers(rt);
    return look_at_view(rt, position, view, NULL);
}

eo_status eo_read_only_end(struct eo_runtime *rt, uint32_t position, const eo_view *view)
{
    const struct plan_parameter *found = NULL;
    const bool is_forward = view == &rt->views.positions[position].forward;
    EO_TRY(check_buffers(rt, is_forward ? "forward" : "backward", position));
    EO_TRY(look_at_view(rt, position, view, &found));
    if (!found)
        return EO_OK;
    return eo_runtime_fail(rt, EO_ERR_INVALID,
                           "weights of '%s' were written in %s of %s; they are read only: write gradients, or change weights "
                           "between steps by eo_weights_write",
                           found->name, is_forward ? "forward" : "backward", rt->plan->positions[position].name);
}
