/* SPDX-License-Identifier: MIT
 *
 * Capture and graphs. A capture turns what is issued to its streams into nodes; each stream has its tips, the nodes that
 * its next one comes after. A graph's nodes that were captured on one stream are a chain; an instance has an internal
 * stream for each chain, and a launch issues the nodes there, between two markers on the stream that launches. So nodes
 * that no edge orders are as unordered as operations of different streams.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* --- graphs --- */

static struct sim_graph *graph_new(uint32_t device, uint32_t magic)
{
    struct sim_graph *graph = sim_alloc(sizeof(*graph));
    graph->magic = magic;
    graph->device = device;
    graph->is_instance = magic == SIM_MAGIC_EXEC;
    graph->next = sim.graphs;
    sim.graphs = graph;
    return graph;
}

static struct sim_graph *graph_of(const void *handle, uint32_t magic)
{
    for (struct sim_graph *graph = sim.graphs; graph; graph = graph->next)
        if (graph == handle)
            return graph->magic == magic ? graph : NULL;
    return NULL;
}

static void graph_drop(struct sim_graph *graph)
{
    struct sim_graph **link = &sim.graphs;
    while (*link != graph)
        link = &(*link)->next;
    *link = graph->next;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        sim_work_free(&graph->nodes[i].work);
        free(graph->nodes[i].dependencies);
    }
    for (uint32_t c = 0; graph->chains && c < graph->chain_count; c++) {
        struct sim_stream *chain = graph->chains[c];
        chain->destroyed = true;
        if (!chain->last || atomic_load(&chain->last->done))
            sim_stream_drop(chain);
    }
    free(graph->chains);
    free(graph->nodes);
    sim_release(graph->last);
    free(graph);
}

void sim_graphs_reset(void)
{
    while (sim.captures) {
        struct sim_capture *next = sim.captures->next;
        free(sim.captures);
        sim.captures = next;
    }
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next)
        stream->capture = NULL;
    while (sim.graphs)
        graph_drop(sim.graphs);
}

uint32_t sim_graph_leaks(void)
{
    uint32_t count = 0;
    for (const struct sim_graph *graph = sim.graphs; graph; graph = graph->next) {
        sim_violate("never destroyed: a %s of %u nodes", graph->is_instance ? "cudaGraphExec_t" : "cudaGraph_t",
                    graph->node_count);
        count++;
    }
    return count;
}

bool sim_graph_uses(const struct sim_comm *comm)
{
    for (const struct sim_graph *graph = sim.graphs; graph; graph = graph->next)
        for (uint32_t i = 0; i < graph->comm_count; i++)
            if (graph->comms[i] == comm)
                return true;
    return false;
}

/* --- capture --- */

struct sim_capture *sim_capture_by_id(uint64_t id)
{
    for (struct sim_capture *capture = sim.captures; capture; capture = capture->next)
        if (capture->id == id)
            return capture;
    return NULL;
}

void sim_capture_spoil(struct sim_capture *capture) { capture->invalid = true; }

/*
 * Calls that could wait for a captured stream behind the runtime's back. Which captures count depends on their mode.
 */
cudaError_t sim_unsafe_call(const char *function)
{
    (void)function;
    for (struct sim_capture *capture = sim.captures; capture; capture = capture->next) {
        const bool own = capture->thread == sim_self() && capture->mode != cudaStreamCaptureModeRelaxed;
        if (own || capture->mode == cudaStreamCaptureModeGlobal) {
            sim_capture_spoil(capture);
            return cudaErrorStreamCaptureUnsupported;
        }
    }
    return cudaSuccess;
}

cudaError_t sim_capture_refuses(struct sim_stream *stream, const char *call)
{
    (void)call;
    if (stream->legacy)
        return sim_capture_refuses_default(stream);
    if (!stream->capture)
        return cudaSuccess;
    if (stream->capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    sim_capture_spoil(stream->capture);
    return cudaErrorStreamCaptureUnsupported;
}

/* What runs on the default stream would wait for blocking streams, the capturing ones among them. */
cudaError_t sim_capture_refuses_default(const struct sim_stream *legacy)
{
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        if (stream->capture && stream->blocking && stream->device == legacy->device) {
            sim_capture_spoil(stream->capture);
            return cudaErrorStreamCaptureImplicit;
        }
    }
    return cudaSuccess;
}

static struct sim_node *add_node(struct sim_graph *graph)
{
    if (graph->node_count == graph->node_capacity) {
        graph->node_capacity = graph->node_capacity ? 2 * graph->node_capacity : 64;
        graph->nodes = realloc(graph->nodes, graph->node_capacity * sizeof(*graph->nodes));
        if (!graph->nodes)
            abort();
    }
    struct sim_node *node = &graph->nodes[graph->node_count++];
    memset(node, 0, sizeof(*node));
    return node;
}

static void set_tips(struct sim_stream *stream, const uint32_t *tips, uint32_t count)
{
    uint32_t *copy = sim_alloc((count + 1) * sizeof(*copy));
    if (count > 0)
        memcpy(copy, tips, count * sizeof(*copy));
    free(stream->tips);
    stream->tips = copy;
    stream->tip_count = count;
}

static cudaError_t add_captured(struct sim_stream *stream, struct sim_work *work, struct sim_event *wait)
{
    struct sim_capture *capture = stream->capture;
    if (capture->invalid) {
        sim_work_free(work);
        return cudaErrorStreamCaptureInvalidated;
    }
    struct sim_graph *graph = capture->graph;
    struct sim_node *node = add_node(graph);
    node->work = *work;
    node->wait = wait;
    node->chain = stream->chain;
    node->stream_key = stream->key;
    node->priority = stream->priority;
    node->device = stream->device;
    node->dependency_count = stream->tip_count;
    node->dependencies = sim_alloc((stream->tip_count + 1) * sizeof(*node->dependencies));
    if (stream->tip_count > 0)
        memcpy(node->dependencies, stream->tips, stream->tip_count * sizeof(*node->dependencies));
    set_tips(stream, &(uint32_t){graph->node_count - 1}, 1);
    if (work->collective) {
        struct sim_comm *comm = sim_collective_comm(work->collective);
        uint32_t at = 0;
        while (at < graph->comm_count && graph->comms[at] != comm)
            at++;
        if (at == graph->comm_count && at < sizeof(graph->comms) / sizeof(graph->comms[0]))
            graph->comms[graph->comm_count++] = comm;
    }
    return cudaSuccess;
}

cudaError_t sim_capture_add(struct sim_stream *stream, struct sim_work *work)
{
    return add_captured(stream, work, NULL);
}

/* Whether every node of `wanted` is one of `tips` or comes before one. */
static bool reaches(const struct sim_graph *graph, const uint32_t *tips, uint32_t tip_count, const uint32_t *wanted,
                    uint32_t wanted_count)
{
    bool *before = sim_alloc((graph->node_count + 1) * sizeof(*before));
    for (uint32_t i = 0; i < tip_count; i++)
        before[tips[i]] = true;
    for (uint32_t n = graph->node_count; n-- > 0;) /* edges lead to smaller numbers only */
        for (uint32_t d = 0; before[n] && d < graph->nodes[n].dependency_count; d++)
            before[graph->nodes[n].dependencies[d]] = true;
    bool all = true;
    for (uint32_t i = 0; i < wanted_count; i++)
        all = all && before[wanted[i]];
    free(before);
    return all;
}

bool sim_capture_implies(const struct sim_stream *stream, const struct sim_event *event)
{
    return stream->capture && stream->capture->id == event->capture_id &&
           reaches(stream->capture->graph, stream->tips, stream->tip_count, event->tips, event->tip_count);
}

cudaError_t sim_capture_join(struct sim_stream *stream, struct sim_event *event, unsigned int flags)
{
    struct sim_capture *capture = stream->capture, *from = sim_capture_by_id(event->capture_id);
    if (capture && capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (capture && (flags & cudaEventWaitExternal)) {
        struct sim_work work = {.kind = SIM_MARKER, .name = "external wait"};
        return add_captured(stream, &work, event);
    }
    if (capture && event->capture_id == 0) {
        sim_capture_spoil(capture);
        return cudaErrorStreamCaptureIsolation;
    }
    if (!from) {
        if (capture)
            sim_capture_spoil(capture);
        return capture ? cudaErrorStreamCaptureIsolation : cudaErrorCapturedEvent;
    }
    if (from->invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (!capture) {
        if (stream->legacy) {
            sim_capture_spoil(from);
            return cudaErrorStreamCaptureImplicit;
        }
        stream->capture = from;
        stream->chain = from->graph->chain_count++;
        set_tips(stream, event->tips, event->tip_count);
        return cudaSuccess;
    }
    if (from != capture) {
        sim_capture_spoil(capture);
        sim_capture_spoil(from);
        return cudaErrorStreamCaptureMerge;
    }
    uint32_t count = stream->tip_count;
    uint32_t *tips = sim_alloc((count + event->tip_count + 1) * sizeof(*tips));
    if (count > 0)
        memcpy(tips, stream->tips, count * sizeof(*tips));
    for (uint32_t i = 0; i < event->tip_count; i++) {
        bool known = false;
        for (uint32_t k = 0; k < count; k++)
            known = known || tips[k] == event->tips[i];
        if (!known)
            tips[count++] = event->tips[i];
    }
    set_tips(stream, tips, count);
    free(tips);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    CUDA_BEGIN();
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream)
        CUDA_END(cudaErrorInvalidResourceHandle);
    if (stream->legacy)
        CUDA_END(cudaErrorStreamCaptureUnsupported);
    if (stream->capture)
        CUDA_END(cudaErrorIllegalState);
    struct sim_capture *capture = sim_alloc(sizeof(*capture));
    capture->id = ++sim.capture_id;
    capture->mode = mode;
    capture->thread = sim_self();
    capture->origin = stream;
    capture->graph = graph_new(stream->device, SIM_MAGIC_GRAPH);
    capture->graph->chain_count = 1;
    capture->next = sim.captures;
    sim.captures = capture;
    stream->capture = capture;
    stream->chain = 0;
    set_tips(stream, NULL, 0);
    CUDA_END(cudaSuccess);
}

static void forget_capture(struct sim_capture *capture)
{
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next)
        if (stream->capture == capture)
            stream->capture = NULL;
    struct sim_capture **link = &sim.captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    free(capture);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out)
{
    int fault;
    if (out)
        *out = NULL;
    if (sim_enter(__func__, &fault)) { /* a capture ends whatever comes of it */
        struct sim_stream *origin = sim_stream_of(handle);
        if (origin && origin->capture && origin->capture->origin == origin) {
            struct sim_graph *graph = origin->capture->graph;
            forget_capture(origin->capture);
            graph_drop(graph);
        }
        return sim_leave((cudaError_t)fault);
    }
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream)
        CUDA_END(cudaErrorInvalidResourceHandle);
    struct sim_capture *capture = stream->capture;
    if (!capture)
        CUDA_END(cudaErrorIllegalState);
    if (capture->origin != stream)
        CUDA_END(cudaErrorStreamCaptureUnmatched);
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != sim_self())
        CUDA_END(cudaErrorStreamCaptureWrongThread);
    cudaError_t error = capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    struct sim_graph *graph = capture->graph;
    for (const struct sim_stream *other = sim.streams; other && error == cudaSuccess; other = other->next)
        if (other->capture == capture && other != stream &&
            !reaches(graph, stream->tips, stream->tip_count, other->tips, other->tip_count))
            error = cudaErrorStreamCaptureUnjoined;
    forget_capture(capture);
    if (error != cudaSuccess)
        graph_drop(graph);
    else if (out)
        *out = (cudaGraph_t)graph;
    CUDA_END(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    CUDA_BEGIN();
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream || !status)
        CUDA_END(stream ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
    const cudaError_t refused = stream->legacy ? sim_capture_refuses_default(stream) : cudaSuccess;
    *status = !stream->capture           ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    CUDA_END(refused);
}

/* --- instances --- */

/* Without the flag every node gets the launching stream's priority. */
static void check_priorities(const struct sim_graph *graph)
{
    for (uint32_t i = 1; i < graph->node_count && !graph->uses_priorities; i++) {
        if (graph->nodes[i].priority != graph->nodes[0].priority) {
            sim_violate("a graph of streams with different priorities, instantiated without "
                        "cudaGraphInstantiateFlagUseNodePriority: they are lost");
            return;
        }
    }
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t handle, unsigned long long flags)
{
    CUDA_BEGIN();
    CUDA_UNSAFE();
    if (out)
        *out = NULL;
    const struct sim_graph *graph = graph_of(handle, SIM_MAGIC_GRAPH);
    if (!out || !graph)
        CUDA_END(cudaErrorInvalidValue);
    struct sim_graph *instance = graph_new(graph->device, SIM_MAGIC_EXEC);
    instance->uses_priorities = flags & cudaGraphInstantiateFlagUseNodePriority;
    instance->chain_count = graph->chain_count;
    instance->comm_count = graph->comm_count;
    memcpy(instance->comms, graph->comms, sizeof(graph->comms));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct sim_node *from = &graph->nodes[i];
        struct sim_node *node = add_node(instance);
        *node = *from;
        sim_work_copy(&node->work, &from->work);
        node->dependencies = sim_alloc((from->dependency_count + 1) * sizeof(*node->dependencies));
        if (from->dependency_count > 0)
            memcpy(node->dependencies, from->dependencies, from->dependency_count * sizeof(*node->dependencies));
    }
    check_priorities(instance);
    const uint64_t number = ((uint64_t)(sim_self()->rank & 0xff) << 32) + (1u << 20) + sim_self()->streams_made;
    instance->chains = sim_alloc(instance->chain_count * sizeof(struct sim_stream *));
    for (uint32_t c = 0; c < instance->chain_count; c++) {
        uint32_t device = instance->device; /* one capture may have streams of several */
        uint64_t key = c; /* which chain a stream became may hang on the order of turns: of the stream it keeps a name */
        for (uint32_t i = instance->node_count; i-- > 0;) {
            const struct sim_node *node = &instance->nodes[i];
            device = node->chain == c ? node->device : device;
            key = node->chain == c ? node->stream_key : key;
        }
        instance->chains[c] = sim_stream_new(device, sim_mix(key, number), true);
    }
    sim_self()->streams_made += instance->chain_count;
    *out = (cudaGraphExec_t)instance;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiate(out, graph, flags);
}

static struct sim_point *marker(struct sim_stream *stream, const char *name, struct sim_point *const *after,
                                uint32_t count)
{
    struct sim_work work = {.kind = SIM_MARKER, .name = name};
    struct sim_op *op = sim_op_new(stream, &work);
    for (uint32_t i = 0; i < count; i++)
        sim_op_after(op, after[i]);
    return sim_submit(op);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle)
{
    CUDA_BEGIN();
    struct sim_graph *graph = graph_of(handle, SIM_MAGIC_EXEC);
    struct sim_stream *stream = sim_stream_of(stream_handle);
    if (!graph || !stream)
        CUDA_END(graph ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue);
    if (stream->capture) {
        sim_capture_spoil(stream->capture);
        CUDA_END(cudaErrorNotSupported);
    }
    struct sim_point *entry = sim_retain(marker(stream, "graph launch", &graph->last, graph->last ? 1 : 0));
    struct sim_point **points = sim_alloc((graph->node_count + 1) * sizeof(struct sim_point *));
    bool *has_successor = sim_alloc((graph->node_count + 1) * sizeof(*has_successor));
    for (uint32_t i = 0; i < graph->node_count; i++) {
        struct sim_node *node = &graph->nodes[i];
        struct sim_stream *chain = graph->chains[node->chain];
        chain->rank = stream->rank;
        struct sim_work work;
        sim_work_copy(&work, &node->work);
        struct sim_op *op = sim_op_new(chain, &work);
        for (uint32_t d = 0; d < node->dependency_count; d++) {
            sim_op_after(op, points[node->dependencies[d]]);
            has_successor[node->dependencies[d]] = true;
        }
        if (node->dependency_count == 0)
            sim_op_after(op, entry);
        if (node->wait)
            sim_op_after(op, node->wait->point);
        points[i] = sim_retain(sim_submit(op));
        if (node->work.event)
            sim_event_set(node->work.event, points[i]);
    }
    uint32_t leaf_count = 0;
    struct sim_point **leaves = sim_alloc((graph->node_count + 1) * sizeof(struct sim_point *));
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (!has_successor[i])
            leaves[leaf_count++] = points[i];
    sim_release(graph->last);
    graph->last = sim_retain(marker(stream, "graph", leaves, leaf_count));
    for (uint32_t i = 0; i < graph->node_count; i++)
        sim_release(points[i]);
    sim_release(entry);
    free(points);
    free(leaves);
    free(has_successor);
    sim_policy_step();
    CUDA_END(sim.broken);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle)
{
    CUDA_BEGIN();
    struct sim_graph *graph = graph_of(handle, SIM_MAGIC_EXEC);
    if (!graph)
        CUDA_END(cudaErrorInvalidValue);
    graph_drop(graph);
    CUDA_END(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle)
{
    CUDA_BEGIN();
    struct sim_graph *graph = graph_of(handle, SIM_MAGIC_GRAPH);
    if (!graph)
        CUDA_END(cudaErrorInvalidValue);
    graph_drop(graph);
    CUDA_END(cudaSuccess);
}
