/* SPDX-License-Identifier: MIT
 *
 * The trainer's calls, from eo_step_begin to eo_evaluation_end: their order is checked, then the memory mode has them.
 */
#include "runtime/runtime_internal.h"

#include <stdio.h>

#include "base/check.h"

void eo_runtime_expected_text(const struct eo_runtime *rt, char *text, size_t bytes)
{
    if (rt->phase == PHASE_FAILED) {
        snprintf(text, bytes, "nothing but eo_runtime_destroy after the error before");
    } else if (rt->phase == PHASE_IDLE) {
        snprintf(text, bytes, "eo_step_begin or eo_evaluation_begin");
    } else if (rt->phase == PHASE_EVALUATION) {
        if (rt->pass == rt->plan->position_count)
            snprintf(text, bytes, "eo_evaluation_end");
        else
            snprintf(text, bytes, "%s forward of %s", rt->progress == PASS_NEXT ? "begin of" : "end of",
                     rt->plan->positions[rt->pass].name);
    } else if (rt->micro_batch == rt->plan->params.micro_batches) {
        snprintf(text, bytes, "eo_step_end");
    } else {
        const struct api_pass *pass = &rt->passes[rt->pass];
        const bool frozen = rt->plan->positions[pass->position].buffer_row == EO_NONE;
        const char *what = rt->progress == PASS_NEXT                                  ? "begin of"
                           : pass->backward && rt->progress == PASS_BEGUN && !frozen ? "eo_gradients_begin in"
                                                                                      : "end of";
        snprintf(text, bytes, "%s %s of %s", what, pass->backward ? "backward" : "forward",
                 rt->plan->positions[pass->position].name);
    }
}

static eo_status out_of_order(struct eo_runtime *rt, const char *call, uint32_t position)
{
    char expected[EO_NAME_MAX * 2 + 64];
    eo_runtime_expected_text(rt, expected, sizeof(expected));
    const char *of = position == EO_NONE                       ? ""
                     : position < rt->plan->position_count ? rt->plan->positions[position].name
                                                           : "a position that does not exist";
    return eo_runtime_fail(rt, EO_ERR_INVALID, "%s was expected, got %s%s%s", expected, call,
                           position == EO_NONE ? "" : " of ", of);
}

static bool is_next(const struct eo_runtime *rt, bool backward, uint32_t position, enum pass_progress progress)
{
    if (rt->progress != progress)
        return false;
    if (rt->phase == PHASE_EVALUATION)
        return !backward && rt->pass == position && position < rt->plan->position_count;
    return rt->phase == PHASE_STEP && rt->micro_batch < rt->plan->params.micro_batches &&
           rt->passes[rt->pass].backward == backward && rt->passes[rt->pass].position == position;
}

static void next_pass(struct eo_runtime *rt)
{
    rt->progress = PASS_NEXT;
    rt->pass++;
    if (rt->phase == PHASE_STEP && rt->pass == rt->pass_count) {
        rt->pass = 0;
        rt->micro_batch++;
    }
}

#define TRY_ORDER(condition, call, position)                                                                          \
    do {                                                                                                              \
        if (!rt)                                                                                                      \
            return EO_ERR_INVALID;                                                                                    \
        if (!(condition))                                                                                             \
            return out_of_order(rt, call, position);                                                                  \
    } while (0)

eo_status eo_step_begin(eo_runtime *rt)
{
    TRY_ORDER(rt->phase == PHASE_IDLE, "eo_step_begin", EO_NONE);
    EO_TRY(eo_update_begin(rt));
    EO_TRY(eo_graph_times_take(rt, true));
    if (rt->record_next)
        EO_TRY(eo_graph_begin(rt));
    else if (rt->restart)
        EO_TRY(eo_runtime_order_queues(rt)); /* after weights that were filled, or a graph */
    rt->step_begin_ns = eo_now_ns();
    if (!rt->recording)
        eo_runtime_begin_entries(rt);
    rt->phase = PHASE_STEP;
    rt->pass = rt->micro_batch = 0;
    rt->progress = PASS_NEXT;
    rt->quiet = rt->steps_in_graph = false;
    rt->device->ops->zero(rt->device, rt->values, EO_STEP_VALUES * sizeof(*rt->values));
    return rt->mode->step_begin(rt);
}

eo_status eo_forward_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    TRY_ORDER(view && is_next(rt, false, position, PASS_NEXT), "begin of forward", position);
    EO_TRY(rt->mode->forward_begin(rt, position));
    rt->progress = PASS_BEGUN;
    *view = &rt->forward_views[position];
    return EO_OK;
}

eo_status eo_forward_end(eo_runtime *rt, uint32_t position)
{
    TRY_ORDER(is_next(rt, false, position, PASS_BEGUN), "end of forward", position);
    next_pass(rt);
    return rt->mode->forward_end(rt, position);
}

eo_status eo_backward_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    TRY_ORDER(view && is_next(rt, true, position, PASS_NEXT), "begin of backward", position);
    EO_TRY(rt->mode->backward_begin(rt, position));
    rt->progress = PASS_BEGUN;
    *view = &rt->backward_views[position];
    return EO_OK;
}

eo_status eo_gradients_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    TRY_ORDER(view && is_next(rt, true, position, PASS_BEGUN) &&
                  rt->plan->positions[position].buffer_row != EO_NONE,
              "eo_gradients_begin", position);
    EO_TRY(rt->mode->gradients_begin(rt, position));
    rt->progress = PASS_GRADIENTS;
    *view = &rt->gradient_views[position];
    return EO_OK;
}

eo_status eo_backward_end(eo_runtime *rt, uint32_t position)
{
    const bool frozen = rt && position < rt->plan->position_count &&
                        rt->plan->positions[position].buffer_row == EO_NONE;
    TRY_ORDER(is_next(rt, true, position, frozen ? PASS_BEGUN : PASS_GRADIENTS), "end of backward", position);
    if (frozen)
        EO_TRY(rt->mode->gradients_begin(rt, position)); /* an operation all the same, without a buffer */
    next_pass(rt);
    return rt->mode->backward_end(rt, position);
}

eo_status eo_step_end(eo_runtime *rt, const eo_step_params *params, eo_step_report *report)
{
    TRY_ORDER(rt->phase == PHASE_STEP && rt->micro_batch == rt->plan->params.micro_batches &&
                  rt->progress == PASS_NEXT,
              "eo_step_end", EO_NONE);
    EO_TRY(eo_update_take_params(rt, params, "eo_step_end"));
    if (rt->recording) {
        EO_TRY(rt->mode->step_end(rt));
        EO_TRY(eo_graph_end(rt));
        EO_TRY(eo_graph_launch(rt));
        eo_runtime_book_waits(rt);
        EO_TRY(eo_update_finish(rt, report));
        return report ? eo_graph_times_take(rt, true) : EO_OK;
    }
    eo_update_upload_scalars(rt);
    EO_TRY(rt->mode->step_end(rt));
    eo_runtime_book_waits(rt);
    return eo_update_finish(rt, report);
}

eo_status eo_evaluation_begin(eo_runtime *rt)
{
    TRY_ORDER(rt->phase == PHASE_IDLE, "eo_evaluation_begin", EO_NONE);
    EO_TRY(eo_runtime_quiesce(rt));
    rt->phase = PHASE_EVALUATION;
    rt->pass = 0;
    rt->progress = PASS_NEXT;
    rt->quiet = rt->steps_in_graph = false;
    rt->restart = true;
    EO_TRY(eo_runtime_order_queues(rt));
    return rt->mode->evaluation_begin(rt);
}

eo_status eo_evaluation_end(eo_runtime *rt)
{
    TRY_ORDER(rt->phase == PHASE_EVALUATION && rt->pass == rt->plan->position_count && rt->progress == PASS_NEXT,
              "eo_evaluation_end", EO_NONE);
    EO_TRY(rt->mode->evaluation_end(rt));
    EO_TRY(eo_runtime_quiesce(rt));
    rt->phase = PHASE_IDLE;
    return EO_OK;
}

float eo_loss_scale(const eo_runtime *rt)
{
    return !rt ? 0 : 1.0f / ((float)rt->world->rank_count * (float)rt->plan->params.micro_batches);
}
