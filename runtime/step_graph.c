/* SPDX-License-Identifier: MIT
 *
 * Whole steps as one graph: the steady list, recorded once.
 *
 *     step n     ordinary, ends with the first gathers of the next step
 *     step n+1   recorded: begin ... passes ... end; then the scalars are uploaded and the graph is launched
 *     step n+2   scalars uploaded, launched again
 *
 * The graph begins and ends on the compute stream, and all of it has run when its end has: so no wait inside it is for
 * anything before it. What the step before left on the communication streams is waited for before the first launch.
 * The step's scalars (learning rate, step number, ...) lie in device memory; only that and the norm's way back to the
 * host stand outside.
 */
#include "base/check.h"
#include "runtime/runtime_internal.h"

static eo_status check_graphs(struct eo_runtime *rt, const char *call)
{
    const char *missing = !rt->world->ops->capture_begin ? "this device has no graphs"
                          : rt->mode != &eo_static_mode  ? "memory that comes and goes cannot be recorded"
                          : rt->params.update            ? "the trainer's own optimizer needs the norm on the host"
                                                         : NULL;
    if (missing)
        return eo_runtime_fail(rt, EO_ERR_UNSUPPORTED, "%s: %s; run ordinary steps", call, missing);
    if (rt->phase != PHASE_IDLE)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%s is for between steps: end the step or evaluation first", call);
    if (rt->restart && !rt->steps_in_graph)
        return eo_runtime_fail(rt, EO_ERR_INVALID,
                               "%s: the next step runs the first-step list, for the step before was not of the "
                               "schedule (create, evaluation, weights): run one in the ordinary way first", call);
    return EO_OK;
}

eo_status eo_step_capture(eo_runtime *rt)
{
    if (!rt)
        return EO_ERR_INVALID;
    EO_TRY(check_graphs(rt, "eo_step_capture"));
    rt->record_next = true;
    return EO_OK;
}

/* Compute goes on when what is on the other queues has ended. */
static eo_status join_queues(struct eo_runtime *rt)
{
    const struct eo_device_ops *ops = rt->device->ops;
    for (uint32_t q = 1; q < rt->device->params.queue_count; q++) {
        ops->record(rt->device, q, &rt->drained[q]);
        EO_TRY(ops->wait(rt->device, EO_QUEUE_COMPUTE, &rt->drained[q]));
    }
    return EO_OK;
}

eo_status eo_graph_begin(struct eo_runtime *rt)
{
    rt->record_next = false;
    if (rt->restart && !rt->steps_in_graph) /* since eo_step_capture */
        return eo_runtime_fail(rt, EO_ERR_INVALID,
                               "step %llu cannot be recorded: after eo_step_capture the schedule was left (evaluation, eo_sum, "
                               "weights), so it gathers what others find; run it in the ordinary way, then capture again",
                               (unsigned long long)rt->step + 1);
    eo_graph_times_begin(rt);
    const eo_status status = join_queues(rt);
    if (status < 0)
        return eo_runtime_fail(rt, status, "before a step is recorded");
    if (rt->world->ops->capture_begin(rt->world_comm) < 0)
        return eo_runtime_fail(rt, EO_ERR_UNSUPPORTED,
                               "step %llu cannot be recorded (see the log before): run it in the ordinary way",
                               (unsigned long long)rt->step + 1);
    rt->recording = true;
    rt->graph_collectives = rt->stats.collective_count;
    rt->graph_collective_bytes = rt->stats.collective_bytes;
    return EO_OK;
}

eo_status eo_graph_end(struct eo_runtime *rt)
{
    void *graph = NULL;
    rt->recording = false;
    rt->restart = true; /* events of the recording are none that later steps can wait for */
    if (rt->world->ops->capture_end(rt->world_comm, &graph) < 0) {
        rt->phase = PHASE_IDLE;
        rt->steps_in_graph = false;
        return eo_runtime_fail(rt, EO_ERR_UNSUPPORTED,
                               "step %llu could not be recorded (see the log before); nothing of it was run: run it "
                               "in the ordinary way", (unsigned long long)rt->step + 1);
    }
    if (rt->graph)
        rt->world->ops->graph_destroy(rt->world_comm, &rt->graph);
    rt->graph = graph;
    eo_graph_times_end(rt);
    rt->steps_in_graph = true;
    rt->graph_collectives = rt->stats.collective_count - rt->graph_collectives;
    rt->graph_collective_bytes = rt->stats.collective_bytes - rt->graph_collective_bytes;
    return EO_OK;
}

eo_status eo_graph_launch(struct eo_runtime *rt)
{
    EO_TRY(eo_graph_times_take(rt, true)); /* the launch writes others */
    eo_update_upload_scalars(rt);
    eo_graph_times_launch(rt);
    const eo_status status = rt->world->ops->graph_launch(rt->world_comm, rt->graph);
    if (status < 0)
        return eo_runtime_fail(rt, status, "step %llu as a graph", (unsigned long long)rt->step + 1);
    eo_graph_times_launched(rt);
    eo_update_download_result(rt);
    return EO_OK;
}

eo_status eo_step_replay(eo_runtime *rt, const eo_step_params *params, eo_step_report *report)
{
    if (!rt)
        return EO_ERR_INVALID;
    EO_TRY(check_graphs(rt, "eo_step_replay"));
    if (!rt->graph)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_step_replay: no step was recorded; see eo_step_capture");
    EO_TRY(eo_update_take_params(rt, params, "eo_step_replay"));
    rt->step_begin_ns = eo_now_ns();
    EO_TRY(eo_update_begin(rt));
    if (!rt->steps_in_graph) {
        const eo_status status = join_queues(rt);
        if (status < 0)
            return eo_runtime_fail(rt, status, "before a recorded step");
    }
    rt->restart = rt->steps_in_graph = true;
    rt->quiet = false;
    rt->stats.collective_count += rt->graph_collectives;
    rt->stats.collective_bytes += rt->graph_collective_bytes;
    EO_TRY(eo_graph_launch(rt));
    EO_TRY(eo_update_finish(rt, report));
    return report ? eo_graph_times_take(rt, true) : EO_OK;
}

void eo_graph_fini(struct eo_runtime *rt)
{
    if (rt->recording)
        (void)rt->world->ops->capture_end(rt->world_comm, &rt->graph);
    rt->recording = false;
    if (rt->graph)
        rt->world->ops->graph_destroy(rt->world_comm, &rt->graph);
    rt->graph = NULL;
}
