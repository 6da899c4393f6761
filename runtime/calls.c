/* SPDX-License-Identifier: MIT
 *
 * The trainer's calls, from eo_step_begin to eo_input_gradients_end: their order is checked, then the memory mode has them.
 */
#include "runtime/internal.h"

#include "base/check.h"

static eo_status out_of_order(struct eo_runtime *rt, const char *call, uint32_t position)
{
    char expected[EO_NAME_MAX * 2 + 128], of[EO_POSITION_TEXT_BYTES] = "a position out of range";
    eo_cursor_expected_text(&rt->cursor, expected, sizeof(expected));
    if (position < rt->plan->position_count)
        eo_cursor_position_text(rt->plan, position, of);
    return eo_runtime_fail(rt, EO_ERR_INVALID, "%s was expected, got %s%s%s", expected, call, position == EO_NONE ? "" : " of ",
                           position == EO_NONE ? "" : of);
}

static eo_status check_view(struct eo_runtime *rt, const eo_view **view, const char *call)
{
    return !rt || view ? EO_OK : eo_runtime_fail(rt, EO_ERR_INVALID, "%s: view is NULL", call);
}

#define TRY_ORDER(condition, call, position)                                                                          \
    do {                                                                                                              \
        if (!rt)                                                                                                      \
            return EO_ERR_INVALID;                                                                                    \
        if (!(condition))                                                                                             \
            return out_of_order(rt, call, position);                                                                  \
    } while (0)

static eo_status begin_anew(struct eo_runtime *rt)
{
    EO_TRY(eo_float8_refresh(rt));
    return eo_runtime_order_queues(rt);
}

eo_status eo_step_begin(eo_runtime *rt)
{
    TRY_ORDER(rt->cursor.phase == PHASE_IDLE, "eo_step_begin", EO_NONE);
    EO_TRY(eo_runtime_check_process(rt, "eo_step_begin"));
    EO_TRY(eo_ema_begin(rt, "eo_step_begin"));
    EO_TRY(eo_update_begin(rt));
    EO_TRY(eo_graph_take_times(rt));
    if (rt->graph.record_next)
        EO_TRY(eo_graph_begin(rt));
    else if (rt->steps.restart && rt->steps.is_late) /* after a graph, whose updates the first-step list would leave out */
        EO_TRY(eo_runtime_leave_schedule(rt, "eo_step_begin"));
    if (rt->steps.restart && !rt->graph.recording)
        EO_TRY(begin_anew(rt)); /* after weights that were filled, or a graph */
    rt->steps.begin_ns = eo_now_ns();
    if (!rt->graph.recording)
        eo_runtime_begin_entries(&rt->timeline);
    eo_cursor_start(&rt->cursor, PHASE_STEP);
    rt->comms.quiet = rt->graph.ran_last = false;
    rt->device->ops->zero(rt->device, rt->update.values, EO_STEP_VALUES * sizeof(*rt->update.values));
    return rt->mode->step_begin(rt);
}

eo_status eo_forward_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    EO_TRY(check_view(rt, view, "eo_forward_begin"));
    TRY_ORDER(eo_cursor_is_at(&rt->cursor, false, position, PASS_NEXT), "begin of forward", position);
    EO_TRY(rt->mode->forward_begin(rt, position));
    rt->cursor.progress = PASS_BEGUN;
    *view = &rt->views.positions[position].forward;
    return eo_read_only_begin(rt, position, *view);
}

eo_status eo_forward_end(eo_runtime *rt, uint32_t position)
{
    TRY_ORDER(eo_cursor_is_at(&rt->cursor, false, position, PASS_BEGUN), "end of forward", position);
    EO_TRY(eo_read_only_end(rt, position, &rt->views.positions[position].forward));
    eo_cursor_next(&rt->cursor);
    return rt->mode->forward_end(rt, position);
}

eo_status eo_backward_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    EO_TRY(check_view(rt, view, "eo_backward_begin"));
    TRY_ORDER(eo_cursor_is_at(&rt->cursor, true, position, PASS_NEXT), "begin of backward", position);
    EO_TRY(rt->mode->backward_begin(rt, position));
    rt->cursor.progress = PASS_BEGUN;
    *view = &rt->views.positions[position].backward;
    return eo_read_only_begin(rt, position, *view);
}

eo_status eo_gradients_begin(eo_runtime *rt, uint32_t position, const eo_view **view)
{
    EO_TRY(check_view(rt, view, "eo_gradients_begin"));
    TRY_ORDER(eo_cursor_is_at(&rt->cursor, true, position, PASS_BEGUN) && rt->plan->positions[position].buffer_row != EO_NONE,
              "eo_gradients_begin", position);
    EO_TRY(rt->mode->gradients_begin(rt, position));
    rt->cursor.progress = PASS_GRADIENTS;
    *view = rt->cursor.phase == PHASE_INPUTS ? &rt->views.positions[position].backward_inputs
                                             : &rt->views.positions[position].backward_gradients;
    eo_read_only_mark_buffers(rt);
    return EO_OK;
}

eo_status eo_backward_end(eo_runtime *rt, uint32_t position)
{
    const bool frozen = rt && position < rt->plan->position_count && rt->plan->positions[position].buffer_row == EO_NONE;
    TRY_ORDER(eo_cursor_is_at(&rt->cursor, true, position, frozen ? PASS_BEGUN : PASS_GRADIENTS), "end of backward", position);
    EO_TRY(eo_read_only_end(rt, position, &rt->views.positions[position].backward));
    if (frozen)
        EO_TRY(rt->mode->gradients_begin(rt, position)); /* an operation all the same, without a buffer */
    else if (rt->params.debug && rt->mode->check_gradients && rt->cursor.phase == PHASE_STEP)
        EO_TRY(rt->mode->check_gradients(rt, position));
    eo_cursor_next(&rt->cursor);
    return rt->mode->backward_end(rt, position);
}

static eo_status zero_gradients(struct eo_runtime *rt, uint32_t position)
{
    const struct plan_layer *layer = &rt->plan->layers[rt->plan->positions[position].layer];
    const eo_view *view;
    if (rt->plan->positions[position].buffer_row == EO_NONE)
        return EO_OK;
    EO_TRY(eo_gradients_begin(rt, position, &view));
    if (rt->plan->positions[position].adds_to != EO_NONE)
        return EO_OK;
    for (uint32_t k = layer->parameter_begin; k < layer->parameter_begin + layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[k];
        if (view->gradients[parameter->view_index])
            rt->device->ops->zero(rt->device, view->gradients[parameter->view_index],
                                  parameter->element_count * eo_dtype_bytes(rt->plan->params.reduce_dtype));
    }
    return EO_OK;
}

eo_status eo_micro_batch_skip(eo_runtime *rt)
{
    TRY_ORDER(rt->cursor.phase == PHASE_STEP && rt->cursor.pass == 0 && rt->cursor.progress == PASS_NEXT &&
                  !eo_cursor_is_past(&rt->cursor, PHASE_STEP),
              "eo_micro_batch_skip", EO_NONE);
    const eo_view *view;
    for (uint32_t p = 0; p < rt->plan->position_count; p++) {
        if (rt->plan->positions[p].forward_in_backward)
            continue;
        EO_TRY(eo_forward_begin(rt, p, &view));
        EO_TRY(eo_forward_end(rt, p));
    }
    for (uint32_t p = rt->plan->position_count; p-- > 0;) {
        EO_TRY(eo_backward_begin(rt, p, &view));
        EO_TRY(zero_gradients(rt, p));
        EO_TRY(eo_backward_end(rt, p));
    }
    return EO_OK;
}

eo_status eo_step_end_sized(eo_runtime *rt, const eo_step_params *params, eo_step_report *report, size_t report_bytes)
{
    TRY_ORDER(eo_cursor_is_past(&rt->cursor, PHASE_STEP), "eo_step_end", EO_NONE);
    EO_TRY(eo_update_take_params(rt, params, "eo_step_end"));
    const bool recording = rt->graph.recording;
    if (!recording)
        eo_update_upload_scalars(rt, rt->update.step.scalars);
    else
        eo_graph_take_scalars(rt);
    EO_TRY(rt->mode->step_end(rt));
    if (recording)
        EO_TRY(eo_graph_end(rt));
    else
        eo_runtime_end_entries(&rt->timeline);
    eo_runtime_book_waits(rt);
    EO_TRY(eo_update_finish(rt, report, report_bytes));
    return report ? eo_graph_take_times(rt) : EO_OK;
}

/* An evaluation, or a run for inputs. */
static eo_status begin_beside_steps(struct eo_runtime *rt, enum runtime_phase phase, const char *call)
{
    EO_TRY(eo_runtime_check_process(rt, call));
    EO_TRY(eo_runtime_leave_schedule(rt, call));
    eo_cursor_start(&rt->cursor, phase);
    EO_TRY(begin_anew(rt));
    rt->comms.quiet = false;
    return rt->mode->evaluation_begin ? rt->mode->evaluation_begin(rt) : EO_OK;
}

static eo_status end_beside_steps(struct eo_runtime *rt, const char *call)
{
    EO_TRY(rt->mode->evaluation_end(rt));
    EO_TRY(eo_runtime_quiesce(rt, call));
    rt->cursor.phase = PHASE_IDLE;
    return EO_OK;
}

eo_status eo_evaluation_begin(eo_runtime *rt)
{
    TRY_ORDER(rt->cursor.phase == PHASE_IDLE, "eo_evaluation_begin", EO_NONE);
    return begin_beside_steps(rt, PHASE_EVALUATION, "eo_evaluation_begin");
}

eo_status eo_evaluation_end(eo_runtime *rt)
{
    TRY_ORDER(eo_cursor_is_past(&rt->cursor, PHASE_EVALUATION), "eo_evaluation_end", EO_NONE);
    return end_beside_steps(rt, "eo_evaluation_end");
}

eo_status eo_input_gradients_begin(eo_runtime *rt)
{
    TRY_ORDER(rt->cursor.phase == PHASE_IDLE, "eo_input_gradients_begin", EO_NONE);
    if (!rt->plan->params.input_gradients)
        return eo_runtime_fail(rt, EO_ERR_INVALID,
                               "eo_input_gradients_begin: the plan has no list for it; set "
                               "eo_plan_params.input_gradients");
    return begin_beside_steps(rt, PHASE_INPUTS, "eo_input_gradients_begin");
}

eo_status eo_input_gradients_end(eo_runtime *rt)
{
    TRY_ORDER(eo_cursor_is_past(&rt->cursor, PHASE_INPUTS), "eo_input_gradients_end", EO_NONE);
    return end_beside_steps(rt, "eo_input_gradients_end");
}

float eo_loss_scale(const eo_runtime *rt)
{
    return !rt ? 0 : 1.0f / ((float)rt->world->rank_count * (float)rt->plan->params.micro_batches);
}
