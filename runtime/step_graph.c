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
 * host stand outside. With late updates they are uploaded beside those of the step before, which its updates, at the head of the
 * graph, read; the graph copies them over behind these.
 */
#include "base/check.h"
#include "runtime/graph_times.h"
#include "runtime/internal.h"

static eo_status check_graphs(struct eo_runtime *rt, const char *call)
{
    const char *missing = !rt->world->ops->capture_begin          ? "this device has no graphs"
                          : rt->params.memory != EO_MEMORY_STATIC ? "dynamic memory cannot be recorded"
                          : rt->params.update                     ? "the trainer's own optimizer needs the norm on the host"
                                                                  : NULL;
    if (missing)
        return eo_runtime_fail(rt, EO_ERR_UNSUPPORTED, "%s: %s; run ordinary steps", call, missing);
    EO_TRY(eo_runtime_check_idle(rt, call));
    if (rt->steps.restart && !rt->graph.ran_last)
        return eo_runtime_fail(rt, EO_ERR_INVALID,
                               "%s: the next step runs the first-step list after create, an evaluation, a change of weights or, with "
                               "late updates, a checkpoint; "
                               "run one ordinary step first", call);
    return EO_OK;
}

eo_status eo_step_capture(eo_runtime *rt)
{
    if (!rt)
        return EO_ERR_INVALID;
    EO_TRY(check_graphs(rt, "eo_step_capture"));
    rt->graph.record_next = true;
    return EO_OK;
}

/* Compute goes on when what is on the other queues has ended. */
static eo_status join_queues(struct eo_runtime *rt, const char *what)
{
    const struct eo_device_ops *ops = rt->device->ops;
    for (uint32_t q = 1; q < rt->device->params.queue_count; q++) {
        ops->record(rt->device, q, &rt->queues.drained[q]);
        RUNTIME_TRY(rt, ops->wait(rt->device, EO_QUEUE_COMPUTE, &rt->queues.drained[q]), "%s", what);
    }
    return EO_OK;
}

eo_status eo_graph_begin(struct eo_runtime *rt)
{
    rt->graph.record_next = false;
    if (rt->steps.restart && !rt->graph.ran_last) /* since eo_step_capture */
        return eo_runtime_fail(rt, EO_ERR_INVALID,
                               "step %llu cannot be recorded: an evaluation, eo_sum or weights call after eo_step_capture left "
                               "the schedule; run this step in the ordinary way, then capture again",
                               (unsigned long long)rt->steps.finished + 1);
    eo_graph_times_begin(rt->graph.times);
    EO_TRY(eo_offload_settle(rt));
    EO_TRY(join_queues(rt, "before a step is recorded"));
    if (rt->world->ops->capture_begin(rt->comms.world) < 0)
        return eo_runtime_fail(rt, EO_ERR_UNSUPPORTED,
                               "step %llu cannot be recorded (see the log before); run it in the ordinary way",
                               (unsigned long long)rt->steps.finished + 1);
    rt->graph.recording = true;
    rt->graph.collectives = rt->stats.collective_count;
    rt->graph.collective_bytes = rt->stats.collective_bytes;
    rt->graph.storage_bytes = rt->stats.storage_bytes;
    return EO_OK;
}

eo_status eo_graph_take_times(struct eo_runtime *rt)
{
    const struct eo_event *done = eo_graph_times_untold(rt->graph.times);
    if (!done)
        return EO_OK;
    EO_TRY(eo_host_await(rt, done, "waiting for the times of a recorded step"));
    const uint64_t begin_ns = eo_now_ns();
    eo_runtime_begin_entries(&rt->timeline);
    eo_graph_times_tell(rt->graph.times, rt->device, &rt->timeline.ring, rt->stats.wait_ns);
    eo_runtime_end_entries(&rt->timeline);
    if (rt->params.recorder)
        eo_flight_recorder_count(rt->params.recorder, rt->timeline.ring.count);
    rt->stats.host_wait_ns += eo_now_ns() - begin_ns;
    return EO_OK;
}

void eo_graph_take_scalars(struct eo_runtime *rt)
{
    if (rt->update.next_scalars)
        rt->device->ops->copy(rt->device, EO_QUEUE_COMPUTE, rt->update.step.scalars, rt->update.next_scalars,
                              eo_plan_scalars_bytes(rt->plan));
}

static eo_status launch_graph(struct eo_runtime *rt)
{
    eo_saver_await_layer(rt, EO_NONE); /* the graph's updates cannot wait for their layers */
    EO_TRY(eo_graph_take_times(rt)); /* the launch writes others */
    eo_runtime_mark_graph(rt);
    eo_update_upload_scalars(rt, rt->update.next_scalars ? rt->update.next_scalars : rt->update.step.scalars);
    eo_graph_times_launch(rt->graph.times, rt->device);
    RUNTIME_TRY(rt, rt->world->ops->graph_launch(rt->comms.world, rt->graph.recorded), "step %llu as a graph",
                (unsigned long long)rt->steps.finished + 1);
    if (!eo_graph_times_launched(rt->graph.times, rt->device, rt->steps.finished))
        eo_runtime_begin_entries(&rt->timeline); /* without an entry */
    eo_host_download_result(rt, rt->steps.finished + 1);
    return EO_OK;
}

eo_status eo_graph_end(struct eo_runtime *rt)
{
    void *graph = NULL;
    rt->graph.recording = false;
    rt->steps.restart = true; /* events of the recording are none that later steps can wait for */
    if (rt->world->ops->capture_end(rt->comms.world, &graph) < 0) {
        if (graph) /* made, of a group that has failed meanwhile */
            rt->world->ops->graph_destroy(rt->comms.world, &graph);
        rt->cursor.phase = PHASE_IDLE;
        rt->graph.ran_last = false;
        return eo_runtime_fail(rt, EO_ERR_UNSUPPORTED,
                               "step %llu could not be recorded (see the log before), and nothing of it ran; run it in the "
                               "ordinary way", (unsigned long long)rt->steps.finished + 1);
    }
    if (rt->graph.recorded)
        rt->world->ops->graph_destroy(rt->comms.world, &rt->graph.recorded);
    rt->graph.recorded = graph;
    eo_graph_times_end(rt->graph.times);
    rt->graph.ran_last = true;
    rt->graph.collectives = rt->stats.collective_count - rt->graph.collectives;
    rt->graph.collective_bytes = rt->stats.collective_bytes - rt->graph.collective_bytes;
    rt->graph.storage_bytes = rt->stats.storage_bytes - rt->graph.storage_bytes;
    return launch_graph(rt);
}

eo_status eo_step_replay_sized(eo_runtime *rt, const eo_step_params *params, eo_step_report *report, size_t report_bytes)
{
    if (!rt)
        return EO_ERR_INVALID;
    EO_TRY(check_graphs(rt, "eo_step_replay"));
    if (!rt->graph.recorded)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_step_replay: no step was recorded; call eo_step_capture first");
    EO_TRY(eo_update_take_params(rt, params, "eo_step_replay"));
    EO_TRY(eo_ema_begin(rt, "eo_step_replay"));
    rt->steps.begin_ns = eo_now_ns();
    EO_TRY(eo_update_begin(rt));
    EO_TRY(eo_offload_settle(rt));
    if (!rt->graph.ran_last)
        EO_TRY(join_queues(rt, "before a recorded step"));
    rt->steps.restart = rt->graph.ran_last = true;
    rt->comms.quiet = false;
    rt->stats.collective_count += rt->graph.collectives;
    rt->stats.collective_bytes += rt->graph.collective_bytes;
    rt->stats.storage_bytes += rt->graph.storage_bytes;
    EO_TRY(launch_graph(rt));
    EO_TRY(eo_update_finish(rt, report, report_bytes));
    return report ? eo_graph_take_times(rt) : EO_OK;
}

void eo_graph_fini(struct eo_runtime *rt)
{
    void *begun = NULL; /* beside one that was recorded before */
    if (rt->graph.recording)
        (void)rt->world->ops->capture_end(rt->comms.world, &begun);
    rt->graph.recording = false;
    if (begun)
        rt->world->ops->graph_destroy(rt->comms.world, &begun);
    if (rt->graph.recorded)
        rt->world->ops->graph_destroy(rt->comms.world, &rt->graph.recorded);
    rt->graph.recorded = NULL;
}
