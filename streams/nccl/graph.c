/* SPDX-License-Identifier: MIT
 *
 * Captured steps with NCCL: each rank captures its own, and all capture, or none; and all launch in the same order.
 */
#include "base/check.h"
#include "streams/nccl/internal.h"

eo_status eo_nccl_capture_begin(struct eo_comm *comm)
{
    struct eo_group *group = comm->group, *root = group->root;
    EO_TRY(eo_nccl_failure(group));
    if (!group->mode->captures && group->params.rank_count > 1) {
        eo_log_write(&group->log, EO_LOG_WARN,
                     "mode '%s' of NCCL counts captured collectives differently, and the first step is not captured: steps run "
                     "one by one; for graphs use mode registered", group->mode->name);
        return EO_ERR_UNSUPPORTED;
    }
    EO_TRY(comm->device->ops->capture_begin(comm->device));
    root->is_capturing = true;
    root->epoch++;
    return EO_OK;
}

eo_status eo_nccl_capture_end(struct eo_comm *comm, void **graph)
{
    struct eo_group *group = comm->group, *root = group->root;
    *graph = NULL;
    const eo_status status = comm->device->ops->capture_end(comm->device, graph);
    root->is_capturing = false;
    root->epoch++;
    if (*graph)
        root->graph_count++;
    return status < 0 ? status : eo_nccl_failure(group);
}

/* The device joins its queues around the launch. */
eo_status eo_nccl_graph_launch(struct eo_comm *comm, void *graph)
{
    static const char label[] = "captured step";
    struct eo_group *group = comm->group, *root = group->root;
    const cudaStream_t compute = comm->device->ops->queue_handle(comm->device, EO_QUEUE_COMPUTE);
    struct eo_nccl_flight *flight;
    EO_TRY(eo_nccl_failure(group));
    EO_TRY(eo_nccl_flight_begin(comm, compute, "launch", label, 0, &flight));
    EO_TRY(eo_nccl_flight_is_step(comm, compute, flight));
    const eo_status status = comm->device->ops->graph_launch(comm->device, graph);
    if (status < 0)
        return eo_nccl_fail(group, status, "rank %u of %u: a captured step could not be launched", group->rank,
                            group->params.rank_count);
    root->epoch++;
    return eo_nccl_flight_end(comm, compute, flight);
}

/* The device waits for the graph's last run, and a rank that is gone would make that endless. */
void eo_nccl_graph_destroy(struct eo_comm *comm, void **graph)
{
    if (!*graph)
        return;
    (void)eo_nccl_drain(comm, comm->device->ops->queue_handle(comm->device, EO_QUEUE_COMPUTE), "destroying a graph");
    if (comm->device->is_lost) {
        *graph = NULL;
        return;
    }
    comm->device->ops->graph_destroy(comm->device, graph);
    comm->group->root->graph_count--;
}
