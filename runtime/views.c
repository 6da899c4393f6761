/* SPDX-License-Identifier: MIT
 *
 * What the trainer is handed: views of weights and gradients, and its buffers. With `debug` each is refused when its time
 * is over.
 */
#include "runtime/internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

eo_status eo_views_init(struct runtime_views *views, const struct eo_plan *plan)
{
    uint32_t total = 0, most = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const uint32_t count = plan->layers[plan->positions[p].layer].view_count;
        total += count;
        most = count > most ? count : most;
    }
    views->positions = calloc(plan->position_count, sizeof(*views->positions));
    views->pointers = calloc(2 * (size_t)total + most, sizeof(*views->pointers));
    views->buffers = calloc((size_t)plan->buffer_count + 1, sizeof(*views->buffers));
    views->hashes = calloc(most, sizeof(*views->hashes));
    views->marked = calloc((size_t)plan->buffer_count + 1, sizeof(*views->marked));
    if (!views->positions || !views->pointers || !views->buffers || !views->hashes || !views->marked)
        return EO_ERR_NO_MEMORY;
    void **next = views->pointers, *const *none = views->pointers + 2 * (size_t)total;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct position_views *view = &views->positions[p];
        const uint32_t count = plan->layers[plan->positions[p].layer].view_count;
        view->weights = next;
        view->gradients = next + count;
        next += 2 * (size_t)count;
        void *const *in_backward = plan->positions[p].backward_without_weights ? NULL : view->weights;
        view->forward = (eo_view){count, view->weights, NULL};
        view->backward = (eo_view){count, in_backward, NULL};
        view->backward_gradients = (eo_view){count, in_backward, view->gradients};
        view->backward_inputs = (eo_view){count, in_backward, none};
    }
    return EO_OK;
}

void eo_views_fini(struct runtime_views *views)
{
    free(views->positions);
    free(views->pointers);
    free(views->buffers);
    free(views->hashes);
    free(views->marked);
}

bool eo_views_gets_gradient(const struct eo_plan *plan, uint32_t position, const struct plan_parameter *parameter)
{
    const struct plan_position *p = &plan->positions[position];
    for (uint32_t z = 0; z < p->zero_count; z++) {
        const struct plan_range *range = &plan->zero_ranges[p->zero_begin + z];
        if (parameter->offset >= range->offset && parameter->offset < range->offset + range->count)
            return false;
    }
    return true;
}

void eo_views_set(void **pointers, const struct eo_plan *plan, uint32_t layer, eo_dtype dtype, void *base)
{
    const struct plan_parameter *parameters = &plan->parameters[plan->layers[layer].parameter_begin];
    for (uint32_t k = 0; k < plan->layers[layer].parameter_count; k++)
        pointers[parameters[k].view_index] = (char *)base + parameters[k].offset * eo_dtype_bytes(dtype);
}

bool eo_views_is_live(const struct runtime_cursor *cursor, const struct plan_buffer *buffer)
{
    const uint32_t position_count = cursor->plan->position_count;
    eo_moment now;
    if (buffer->persistent)
        return true;
    if (!eo_cursor_moment(cursor, &now) || (buffer->saved && now.position != buffer->first.position))
        return false;
    const uint32_t at = eo_moment_order(now, position_count);
    return eo_moment_order(buffer->first, position_count) <= at && at <= eo_moment_order(buffer->last, position_count);
}

/* -- what is said of them --------------------------------------------------------------------------------------- */

enum { MOMENT_BYTES = EO_NAME_MAX * 2 + 96 };

/* "backward of head" */
static void write_moment(const struct eo_plan *plan, eo_moment moment, char text[MOMENT_BYTES])
{
    static const char *const passes[] = {
        [EO_PASS_FORWARD] = "forward", [EO_PASS_RECOMPUTE] = "recompute", [EO_PASS_BACKWARD] = "backward"};
    snprintf(text, MOMENT_BYTES, "%s of %s", passes[moment.pass], plan->positions[moment.position].name);
}

/* "in backward of head", or "outside a pass (what comes next: begin of forward of head)" */
static void write_now(const struct eo_runtime *rt, char text[MOMENT_BYTES + 64])
{
    char moment[MOMENT_BYTES];
    eo_moment now;
    if (!eo_cursor_moment(&rt->cursor, &now)) {
        eo_cursor_expected_text(&rt->cursor, moment, sizeof(moment));
        snprintf(text, MOMENT_BYTES + 64, "outside a pass (next: %s)", moment);
        return;
    }
    write_moment(rt->plan, now, moment);
    snprintf(text, MOMENT_BYTES + 64, "in %s%s%s", moment, now.pass == EO_PASS_RECOMPUTE ? " (before eo_gradients_begin)" : "",
             rt->cursor.phase == PHASE_EVALUATION ? " in an evaluation" : "");
}

static void say_not_live(const struct eo_runtime *rt, const struct plan_buffer *buffer)
{
    char first[MOMENT_BYTES], last[MOMENT_BYTES], now[MOMENT_BYTES + 64];
    write_moment(rt->plan, buffer->first, first);
    write_moment(rt->plan, buffer->last, last);
    write_now(rt, now);
    eo_log_write(&rt->log, EO_LOG_ERROR, "rank %u: buffer '%s' lives from %s to %s; asked for %s", rt->world->rank,
                 rt->plan->rows[buffer->row].name, first, last, now);
}

void *eo_buffer(const eo_runtime *rt, uint32_t buffer)
{
    if (!rt || buffer >= rt->plan->buffer_count)
        return NULL;
    if (rt->params.debug && !eo_views_is_live(&rt->cursor, &rt->plan->buffers[buffer])) {
        say_not_live(rt, &rt->plan->buffers[buffer]);
        return NULL;
    }
    return rt->views.buffers[buffer];
}

/* The position whose view it is, or EO_NONE. */
static uint32_t view_position(const eo_runtime *rt, const eo_view *view, const char **pass)
{
    for (uint32_t p = 0; p < rt->plan->position_count; p++) {
        const struct position_views *views = &rt->views.positions[p];
        const bool forward = view == &views->forward;
        if (forward || view == &views->backward || view == &views->backward_gradients || view == &views->backward_inputs) {
            *pass = forward ? "forward" : "backward";
            return p;
        }
    }
    return EO_NONE;
}

bool eo_view_is_stale(const eo_runtime *rt, const eo_view *view)
{
    const char *pass = "";
    if (!rt || !rt->params.debug)
        return false;
    const uint32_t position = view_position(rt, view, &pass);
    return position == EO_NONE || rt->cursor.progress == PASS_NEXT ||
           !eo_cursor_is_at(&rt->cursor, pass[0] == 'b', position, rt->cursor.progress);
}

static void *from_view(const eo_runtime *rt, const eo_view *view, void *const *pointers, uint32_t index, const char *what)
{
    if (!view || !pointers || index >= view->parameter_count)
        return NULL;
    if (eo_view_is_stale(rt, view)) {
        const char *pass = "a";
        const uint32_t position = view_position(rt, view, &pass);
        char now[MOMENT_BYTES + 64];
        write_now(rt, now);
        eo_log_write(&rt->log, EO_LOG_ERROR, "rank %u: %s of %s used after the end of its %s pass; asked for %s",
                     rt->world->rank, what, position != EO_NONE ? rt->plan->positions[position].name : "another runtime",
                     pass, now);
        return NULL;
    }
    return pointers[index];
}

void *eo_view_weight(const eo_runtime *rt, const eo_view *view, uint32_t index)
{
    return from_view(rt, view, view ? view->weights : NULL, index, "weights");
}

void *eo_view_gradient(const eo_runtime *rt, const eo_view *view, uint32_t index)
{
    return from_view(rt, view, view ? view->gradients : NULL, index, "gradients");
}
