/* SPDX-License-Identifier: MIT
 *
 * In debug mode: whether a pass has left the weights of its view as they were. What a trainer writes there is lost or becomes the
 * weight, by strategy and number of ranks.
 */
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

eo_status eo_read_only_begin(struct eo_runtime *rt, uint32_t position, const eo_view *view)
{
    return look_at_view(rt, position, view, NULL);
}

eo_status eo_read_only_end(struct eo_runtime *rt, uint32_t position, const eo_view *view)
{
    const struct plan_parameter *found = NULL;
    EO_TRY(look_at_view(rt, position, view, &found));
    if (!found)
        return EO_OK;
    return eo_runtime_fail(rt, EO_ERR_INVALID,
                           "weights of '%s' were written in %s of %s; they are read only: write gradients, or change weights "
                           "between steps by eo_weights_write",
                           found->name, view == &rt->views.positions[position].forward ? "forward" : "backward",
                           rt->plan->positions[position].name);
}
