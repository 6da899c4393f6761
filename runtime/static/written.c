/* SPDX-License-Identifier: MIT
 *
 * In debug mode: whether a pass has written its gradients, all of them and nothing beside. What lies between the gradients of
 * a layer is reduced and counts in the norm, so it must be the zero that it was at eo_gradients_begin.
 */
#include "runtime/static/internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"

enum { ROOM = 1 << 16 };

/* The poison is a signalling NaN; what is added to it makes it this quiet one. */
static uint32_t added_poison(const struct eo_runtime *rt)
{
    return EO_POISON | (rt->plan->params.reduce_dtype == EO_DTYPE_BF16 ? 0x40U : 0x400000U);
}

/* The first element of a range whose bits are the poison's, added to or not (`poisoned`), or not zero; `count` if there is
 * none. Its bits go to `bits`. */
static eo_status find_element(struct eo_runtime *rt, const char *gradients, const struct plan_range *range, bool poisoned,
                              uint64_t *found, uint32_t *bits)
{
    const uint64_t size = eo_dtype_bytes(rt->plan->params.reduce_dtype);
    const uint32_t poison = EO_POISON, added = added_poison(rt), nothing = 0;
    char room[ROOM];
    for (*found = 0; *found < range->count;) {
        const uint64_t part = eo_min_u64(ROOM / size, range->count - *found);
        EO_TRY(eo_host_download(rt, room, gradients + (range->offset + *found) * size, part * size));
        for (uint64_t i = 0; i < part; i++, ++*found) {
            const char *at = room + i * size;
            if (poisoned ? memcmp(at, &poison, size) != 0 && memcmp(at, &added, size) != 0 : memcmp(at, &nothing, size) == 0)
                continue;
            *bits = 0;
            memcpy(bits, at, size);
            return EO_OK;
        }
    }
    return EO_OK;
}

static eo_status fail_beside(struct eo_runtime *rt, const struct plan_position *position, uint64_t at)
{
    const struct plan_layer *layer = &rt->plan->layers[position->layer];
    const struct plan_parameter *before = NULL, *parameters = &rt->plan->parameters[layer->parameter_begin];
    for (uint32_t k = 0; k < layer->parameter_count && parameters[k].offset <= at; k++)
        before = &parameters[k];
    EO_ASSERT(before);
    if (at < before->offset + before->element_count)
        return eo_runtime_fail(rt, EO_ERR_INVALID,
                               "a gradient of '%s' was written in backward of %s, which was planned to have none", before->name,
                               position->name);
    return eo_runtime_fail(rt, EO_ERR_INVALID,
                           "element %" PRIu64 " of the gradient of '%s' was written in backward of %s; it has %" PRIu64
                           " (or the next parameter was written before its begin)",
                           at - before->offset, before->name, position->name, before->element_count);
}

/* Elements of a gradient that are neither 0 nor -0. */
static eo_status count_numbers(struct eo_runtime *rt, uint32_t position, const struct plan_parameter *parameter,
                               uint64_t *count)
{
    const uint64_t size = eo_dtype_bytes(rt->plan->params.reduce_dtype);
    const char *gradient =
        (const char *)eo_static_state(rt)->rows[rt->plan->positions[position].buffer_row] + parameter->offset * size;
    const uint32_t sign = size == sizeof(uint16_t) ? 0x8000 : 0x80000000;
    char room[ROOM];
    *count = 0;
    for (uint64_t from = 0; from < parameter->element_count; from += ROOM / size) {
        const uint64_t part = eo_min_u64(ROOM / size, parameter->element_count - from);
        EO_TRY(eo_host_download(rt, room, gradient + from * size, part * size));
        for (uint64_t i = 0; i < part; i++) {
            uint32_t bits = 0;
            memcpy(&bits, room + i * size, size);
            *count += (bits & ~sign) != 0;
        }
    }
    return EO_OK;
}

/* Of a gradient that was added to, most elements are still no zeros. Of a few that says nothing. */
static eo_status check_added(struct eo_runtime *rt, uint32_t position)
{
    enum { FEW = 256 };
    const struct plan_position *p = &rt->plan->positions[position];
    const struct plan_layer *layer = &rt->plan->layers[p->layer];
    const uint64_t *left = eo_static_state(rt)->left;
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        uint64_t now;
        EO_TRY(count_numbers(rt, position, parameter, &now));
        if (left[k] >= FEW && now < left[k] / 2)
            return eo_runtime_fail(
                rt, EO_ERR_INVALID,
                "the gradient of '%s' was overwritten in backward of %s, which adds to what %s left there: of %" PRIu64
                " elements that were not 0, %" PRIu64 " are",
                parameter->name, p->name, rt->plan->positions[p->adds_to].name, left[k], left[k] - now);
    }
    return EO_OK;
}

eo_status eo_static_note_left(struct eo_runtime *rt, uint32_t position)
{
    const struct plan_layer *layer = &rt->plan->layers[rt->plan->positions[position].layer];
    if (rt->graph.recording)
        return EO_OK;
    for (uint32_t k = 0; k < layer->parameter_count; k++)
        EO_TRY(count_numbers(rt, position, &rt->plan->parameters[layer->parameter_begin + k], &eo_static_state(rt)->left[k]));
    return EO_OK;
}

eo_status eo_static_check_written(struct eo_runtime *rt, uint32_t position)
{
    const struct plan_position *p = &rt->plan->positions[position];
    const struct plan_layer *layer = &rt->plan->layers[p->layer];
    const char *gradients = eo_static_state(rt)->rows[p->buffer_row];
    const uint64_t size = eo_dtype_bytes(rt->plan->params.reduce_dtype);
    const uint32_t added = added_poison(rt);
    uint64_t found;
    uint32_t bits = 0;
    if (rt->graph.recording)
        return EO_OK;
    if (p->adds_to != EO_NONE)
        EO_TRY(check_added(rt, position));
    for (uint32_t k = 0; k < layer->parameter_count && !rt->params.zero_gradients && !p->adds_to_zeros; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        const struct plan_range own = {parameter->offset, parameter->element_count};
        if (!eo_views_gets_gradient(rt->plan, position, parameter))
            continue;
        EO_TRY(find_element(rt, gradients, &own, true, &found, &bits));
        if (found == own.count)
            continue;
        const bool was_added = memcmp(&bits, &added, size) == 0;
        return eo_runtime_fail(rt, EO_ERR_INVALID,
                               "the gradient of '%s' was %s in backward of %s (element %" PRIu64 " of %" PRIu64 ")%s",
                               parameter->name, was_added ? "added to, not written," : "not written", p->name, found, own.count,
                               was_added ? ": set zero_gradients; or it comes of a buffer before its first write"
                                         : ", or it is what a buffer held before its first write");
    }
    for (uint32_t z = 0; z < p->zero_count; z++) {
        const struct plan_range *range = &rt->plan->zero_ranges[p->zero_begin + z];
        EO_TRY(find_element(rt, gradients, range, false, &found, &bits));
        if (found < range->count)
            return fail_beside(rt, p, range->offset + found);
    }
    return EO_OK;
}
