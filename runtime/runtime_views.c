/* SPDX-License-Identifier: MIT
 *
 * What the trainer is handed: views of weights and gradients, and its buffers. With `debug` each is refused when its time
 * is over.
 */
#include "runtime/runtime_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

eo_status eo_runtime_views_init(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    uint32_t total = 0;
    rt->pointer_begin = calloc(plan->position_count, sizeof(*rt->pointer_begin));
    if (!rt->pointer_begin)
        return EO_ERR_NO_MEMORY;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        rt->pointer_begin[p] = total;
        total += plan->layers[plan->positions[p].layer].parameter_count;
    }
    rt->weight_pointers = calloc(total, sizeof(void *));
    rt->gradient_pointers = calloc(total, sizeof(void *));
    rt->forward_views = calloc(plan->position_count, sizeof(eo_view));
    rt->backward_views = calloc(plan->position_count, sizeof(eo_view));
    rt->gradient_views = calloc(plan->position_count, sizeof(eo_view));
    if (!rt->weight_pointers || !rt->gradient_pointers || !rt->forward_views || !rt->backward_views ||
        !rt->gradient_views)
        return EO_ERR_NO_MEMORY;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        void *const *weights = rt->weight_pointers + rt->pointer_begin[p];
        const uint32_t count = plan->layers[plan->positions[p].layer].parameter_count;
        void *const *in_backward = plan->positions[p].backward_without_weights ? NULL : weights;
        rt->forward_views[p] = (eo_view){count, weights, NULL};
        rt->backward_views[p] = (eo_view){count, in_backward, NULL};
        rt->gradient_views[p] = (eo_view){count, in_backward, rt->gradient_pointers + rt->pointer_begin[p]};
    }
    return EO_OK;
}

void eo_runtime_views_fini(struct eo_runtime *rt)
{
    free(rt->weight_pointers);
    free(rt->gradient_pointers);
    free(rt->pointer_begin);
    free(rt->forward_views);
    free(rt->backward_views);
    free(rt->gradient_views);
}

void eo_runtime_set_weights(struct eo_runtime *rt, uint32_t position, void *base)
{
    const struct plan_layer *layer = &rt->plan->layers[rt->plan->positions[position].layer];
    for (uint32_t k = 0; k < layer->parameter_count; k++)
        rt->weight_pointers[rt->pointer_begin[position] + k] =
            (char *)base +
            rt->plan->parameters[layer->parameter_begin + k].offset * eo_dtype_bytes(rt->plan->params.dtype);
}

void eo_runtime_set_gradients(struct eo_runtime *rt, uint32_t position, void *base)
{
    const struct plan_layer *layer = &rt->plan->layers[rt->plan->positions[position].layer];
    for (uint32_t k = 0; k < layer->parameter_count; k++)
        rt->gradient_pointers[rt->pointer_begin[position] + k] =
            (char *)base +
            rt->plan->parameters[layer->parameter_begin + k].offset * eo_dtype_bytes(rt->plan->params.reduce_dtype);
}

/* The pass that is under way; false: none is. */
static bool find_moment(const struct eo_runtime *rt, eo_moment *now)
{
    if (rt->progress == PASS_NEXT || (rt->phase != PHASE_STEP && rt->phase != PHASE_EVALUATION))
        return false;
    *now = (eo_moment){EO_PASS_FORWARD, rt->pass};
    if (rt->phase == PHASE_STEP) {
        now->position = rt->passes[rt->pass].position;
        if (rt->passes[rt->pass].backward)
            now->pass = rt->progress == PASS_GRADIENTS ? EO_PASS_BACKWARD : EO_PASS_RECOMPUTE;
    } else if (rt->plan->positions[rt->pass].forward_in_backward) {
        now->pass = EO_PASS_BACKWARD;
    }
    return true;
}

/* Whether a buffer is live in the pass that is under way. */
static bool is_live(const struct eo_runtime *rt, const struct plan_buffer *buffer)
{
    const uint32_t position_count = rt->plan->position_count;
    eo_moment now;
    if (buffer->persistent)
        return true;
    if (!find_moment(rt, &now))
        return false;
    const uint32_t at = eo_moment_order(now, position_count);
    return eo_moment_order(buffer->first, position_count) <= at && at <= eo_moment_order(buffer->last, position_count);
}

/* -- what is said of them --------------------------------------------------------------------------------------- */

enum { MOMENT_BYTES = EO_NAME_MAX * 2 + 96 };

/* "backward of head" */
static void write_moment(const struct eo_runtime *rt, eo_moment moment, char text[MOMENT_BYTES])
{
    static const char *const passes[] = {
        [EO_PASS_FORWARD] = "forward", [EO_PASS_RECOMPUTE] = "recompute", [EO_PASS_BACKWARD] = "backward"};
    snprintf(text, MOMENT_BYTES, "%s of %s", passes[moment.pass], rt->plan->positions[moment.position].name);
}

/* "in backward of head", or "outside a pass (what comes next: begin of forward of head)" */
static void write_now(const struct eo_runtime *rt, char text[MOMENT_BYTES + 64])
{
    char moment[MOMENT_BYTES];
    eo_moment now;
    if (!find_moment(rt, &now)) {
        eo_runtime_expected_text(rt, moment, sizeof(moment));
        snprintf(text, MOMENT_BYTES + 64, "outside a pass (what comes next: %s)", moment);
        return;
    }
    write_moment(rt, now, moment);
    snprintf(text, MOMENT_BYTES + 64, "in %s%s%s", moment,
             now.pass == EO_PASS_RECOMPUTE ? " (before eo_gradients_begin)" : "",
             rt->phase == PHASE_EVALUATION ? " in an evaluation" : "");
}

static void say_not_live(const struct eo_runtime *rt, const struct plan_buffer *buffer)
{
    char first[MOMENT_BYTES], last[MOMENT_BYTES], now[MOMENT_BYTES + 64];
    write_moment(rt, buffer->first, first);
    write_moment(rt, buffer->last, last);
    write_now(rt, now);
    eo_log_write(&rt->log, EO_LOG_ERROR, "rank %u: buffer '%s' lives from %s to %s; asked for %s", rt->world->rank,
                 rt->plan->rows[buffer->row].name, first, last, now);
}

void *eo_buffer(const eo_runtime *rt, uint32_t buffer)
{
    if (!rt || buffer >= rt->plan->buffer_count)
        return NULL;
    if (rt->params.debug && !is_live(rt, &rt->plan->buffers[buffer])) {
        say_not_live(rt, &rt->plan->buffers[buffer]);
        return NULL;
    }
    return rt->buffers[buffer];
}

/* The position whose view it is, or EO_NONE. */
static uint32_t view_position(const struct eo_runtime *rt, const eo_view *view, const char **pass)
{
    const struct {
        const eo_view *views;
        const char *pass;
    } tables[] = {{rt->forward_views, "forward"}, {rt->backward_views, "backward"}, {rt->gradient_views, "backward"}};
    for (int t = 0; t < 3; t++) {
        for (uint32_t p = 0; p < rt->plan->position_count; p++) {
            if (view != &tables[t].views[p])
                continue;
            *pass = tables[t].pass;
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
    if (position == EO_NONE || rt->progress == PASS_NEXT)
        return true;
    const bool backward = pass[0] == 'b';
    if (rt->phase == PHASE_EVALUATION)
        return backward || rt->pass != position;
    return rt->phase != PHASE_STEP || rt->passes[rt->pass].backward != backward ||
           rt->passes[rt->pass].position != position;
}

static void *from_view(const eo_runtime *rt, const eo_view *view, void *const *pointers, uint32_t index,
                       const char *what)
{
    if (!view || !pointers || index >= view->parameter_count)
        return NULL;
    if (eo_view_is_stale(rt, view)) {
        const char *pass = "a";
        const uint32_t position = view_position(rt, view, &pass);
        char now[MOMENT_BYTES + 64];
        write_now(rt, now);
        eo_log_write(&rt->log, EO_LOG_ERROR, "rank %u: %s of %s used after its %s pass has ended; asked for %s",
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
