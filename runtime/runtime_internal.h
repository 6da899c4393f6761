/* SPDX-License-Identifier: MIT
 *
 * A runtime from inside. runtime.c creates and destroys it; runtime_calls.c is the front: it checks the order of the
 * trainer's calls and then hands them to the memory mode, a table: static_mode.c walks the plan's list in planned memory;
 * dynamic_mode.c is the baseline, FSDP2's behaviour with memory taken and given back as it goes. What both do alike
 * stands in update.c (norm, clip, optimizer), weights.c (weights outside the schedule) and host_memory.c (data between
 * host and device); step_graph.c records whole steps. Nothing here reads device memory: it may be a GPU's.
 */
#ifndef EO_RUNTIME_RUNTIME_INTERNAL_H
#define EO_RUNTIME_RUNTIME_INTERNAL_H

#include <evenodd/runtime.h>

#include "buffers/arena.h"
#include "runtime/flight_recorder.h"
#include "runtime/plan_internal.h"
#include "runtime/world_internal.h"
#include "streams/collective.h"
#include "streams/device.h"
#include "streams/timeline.h"

/* A run of a shard's parameters with one weight-decay setting. */
struct shard_range {
    uint64_t offset, count; /* in the shard */
    bool decays;
};

/* A rank's shard of a layer, wherever the mode keeps it. */
struct layer_shard {
    float *weights; /* fp32, or NULL where they are split: */
    uint16_t *high; /* bf16, what is gathered */
    int16_t *low;   /* NULL for frozen layers */
    float *gradient;
    float *state[EO_STATES_MAX];
    double *norm; /* sum of squares of the gradient shard */
    struct shard_range *ranges;
    uint32_t range_count;
};

enum runtime_phase { PHASE_IDLE, PHASE_STEP, PHASE_EVALUATION, PHASE_FAILED };

/* How far the trainer is with the pass at the cursor. */
enum pass_progress { PASS_NEXT, PASS_BEGUN, PASS_GRADIENTS };

struct api_pass {
    bool backward;
    uint32_t position;
};

/* Of split weights: which half is gathered. WHOLE where they are not split. */
enum weight_half { HALF_WHOLE, HALF_HIGH, HALF_LOW };

/* The host's side of what passes between host and device. */
struct runtime_host {
    struct host_step *steps;                   /* by step modulo EO_HOST_STEPS; host memory */
    struct eo_event step_done[EO_HOST_STEPS];  /* its norm is back */
    uint64_t pending[EO_HOST_STEPS];           /* the step whose result has not been looked at; 0: none */
    char *staging;                             /* a ring of pieces; host memory */
    uint64_t piece_bytes;
    struct eo_event staged[EO_STAGING_PIECES]; /* the piece has been copied */
    uint32_t next_piece;
};

/* A wait of the compute queue: written when its stamps are known. */
struct wait_record {
    uint64_t begin_ns, end_ns;
    eo_wait wait;
};

struct mode_ops {
    const char *name;
    eo_status (*init)(struct eo_runtime *rt);
    void (*fini)(struct eo_runtime *rt);
    eo_status (*step_begin)(struct eo_runtime *rt);
    eo_status (*forward_begin)(struct eo_runtime *rt, uint32_t position);
    eo_status (*forward_end)(struct eo_runtime *rt, uint32_t position);
    eo_status (*backward_begin)(struct eo_runtime *rt, uint32_t position);
    eo_status (*gradients_begin)(struct eo_runtime *rt, uint32_t position);
    eo_status (*backward_end)(struct eo_runtime *rt, uint32_t position);
    eo_status (*step_end)(struct eo_runtime *rt);
    eo_status (*evaluation_begin)(struct eo_runtime *rt);
    eo_status (*evaluation_end)(struct eo_runtime *rt);
    /* Runs every collective once, before the first step; may be NULL. */
    eo_status (*warm_up)(struct eo_runtime *rt);
    /* Full weights of a layer somewhere, outside the schedule; until layer_release. Of split weights one half at a
     * time: the next call may take its place. The compute queue comes after it. */
    eo_status (*layer_gather)(struct eo_runtime *rt, uint32_t layer, enum weight_half half, void **weights);
    void (*layer_release)(struct eo_runtime *rt, uint32_t layer, void *weights);
    void (*get_stats)(const struct eo_runtime *rt, eo_runtime_stats *out);
};

extern const struct mode_ops eo_static_mode, eo_dynamic_mode;

struct eo_runtime {
    eo_runtime_params params; /* plan and world among them */
    const struct eo_plan *plan;
    struct eo_world *world;
    eo_log log;
    char error[512];
    const struct mode_ops *mode;
    void *mode_state;

    struct eo_device *device;
    uint64_t memory_free_bytes, memory_total_bytes; /* of the device; the host's before any rank took of it */
    uint32_t memory_ranks;                          /* that are about to */
    uint64_t free_bytes; /* of the device, when it was last looked at what others take of it */
    struct eo_comm *world_comm;                /* norms and what stands outside the schedule; captured steps */
    struct eo_comm *gather_comm, *reduce_comm; /* of the group that holds a copy in parts */
    struct eo_comm *replica_comm;              /* NULL: no replicas */
    struct eo_comm *comms[4];                  /* all of them, each once, in the order of opening */
    uint32_t comm_count;
    bool is_connected;                         /* all are open */
    bool plans_differ;                         /* the ranks' */
    struct eo_group *shard_group, *replica_group; /* split from the world's; NULL: that itself */
    uint32_t shard_rank;                       /* in its group: which part it has */
    struct eo_timeline timeline;
    uint64_t step_entry[3]; /* timeline count at the begin of the last steps: [0] the newest */
    const char **names;     /* of operations, by kind and position or layer */
    struct eo_timeline_entry *open_entry; /* of the pass that is under way */
    bool restart;           /* the schedule was left (or never entered): the next step runs the first-step list */
    struct runtime_host host;
    uint64_t newest_step;   /* whose norm was issued last */
    struct eo_event drained[EO_QUEUES_MAX], issued, outside; /* for the queues, at no time twice */
    struct wait_record *waits; /* a ring: those not booked yet are [wait_begin, wait_end) */
    uint64_t wait_begin, wait_end;
    uint32_t wait_capacity;

    void *graph;            /* a recorded step; NULL: none */
    bool record_next;       /* the next step is to be recorded */
    bool recording;
    bool steps_in_graph;    /* the step before was a graph: `restart` is for ordinary steps only */
    uint64_t graph_collectives, graph_collective_bytes;
    struct graph_times *graph_times;

    bool quiet;             /* no collective of ours is under way on any rank, so shards may be written */

    struct layer_shard *shards; /* by layer */
    struct shard_range *ranges;
    bool split;             /* the shards are: bf16 in static mode */
    struct eo_adamw *adamw; /* room for the ranges of one layer */
    double *norm_local, *norm_gathered;
    struct eo_norm_result *norm_result;
    struct eo_update_scalars *scalars;
    double *values;               /* the trainer's, in device memory */
    const double **norm_partials; /* of the layers that have one, in model order */
    uint32_t norm_partial_count;
    void **buffers;        /* the trainer's, by index; NULL: not live (dynamic mode) */

    void **weight_pointers, **gradient_pointers; /* by position, then parameter of the layer */
    uint32_t *pointer_begin;                     /* by position */
    eo_view *forward_views, *backward_views, *gradient_views; /* by position */

    enum runtime_phase phase;
    struct api_pass *passes; /* of a micro-batch */
    uint32_t pass_count, pass, micro_batch;
    enum pass_progress progress;

    uint64_t step; /* finished ones */
    uint64_t step_begin_ns;
    eo_step_params step_params;
    eo_step_report report;
    eo_runtime_stats stats;
};

/* runtime.c */
eo_status eo_runtime_fail(struct eo_runtime *rt, eo_status status, const char *format, ...) EO_PRINTF(3, 4);

/* A line for what others take of the device for us, since the call before; `what` NULL: only looks. */
void eo_runtime_log_outside(struct eo_runtime *rt, const char *what);

/* runtime_calls.c: what the trainer may call next, for messages. */
void eo_runtime_expected_text(const struct eo_runtime *rt, char *text, size_t bytes);

/* runtime_views.c */
eo_status eo_runtime_views_init(struct eo_runtime *rt);
void eo_runtime_views_fini(struct eo_runtime *rt);
void eo_runtime_set_weights(struct eo_runtime *rt, uint32_t position, void *base);
void eo_runtime_set_gradients(struct eo_runtime *rt, uint32_t position, void *base);

/* runtime_timeline.c: the names of operations, made at create: "backward of block.3". */
eo_status eo_runtime_names_init(struct eo_runtime *rt);
void eo_runtime_names_fini(struct eo_runtime *rt);
size_t eo_runtime_name_count(const struct eo_plan *plan);

/* A timeline entry for an operation that is issued now. */
struct eo_timeline_entry *eo_runtime_entry(struct eo_runtime *rt, eo_operation_kind kind, eo_stream_id stream,
                                           uint32_t position, uint32_t layer, uint32_t operation);

/* What is added from now on is of another step. */
void eo_runtime_begin_entries(struct eo_runtime *rt);

/* For profilers: what is issued between the two is called `name`. */
static inline void eo_runtime_range_begin(struct eo_runtime *rt, const char *name)
{
    if (rt->device->ops->range_begin)
        rt->device->ops->range_begin(rt->device, name);
}

static inline void eo_runtime_range_end(struct eo_runtime *rt)
{
    if (rt->device->ops->range_end)
        rt->device->ops->range_end(rt->device);
}

/* runtime_waits.c: blocks the compute queue until the event has passed, and books the time under `wait`, */
eo_status eo_runtime_wait(struct eo_runtime *rt, const struct eo_event *event, eo_wait wait);
/* in the statistics once its stamps are known, oldest first. */
void eo_runtime_book_waits(struct eo_runtime *rt);

/* What is issued to the communication queues from now on comes after what is on the compute queue. */
eo_status eo_runtime_order_queues(struct eo_runtime *rt);

/* An all-gather outside the schedule, after what is on the compute queue, and before what is issued to it next. */
eo_status eo_runtime_gather(struct eo_runtime *rt, struct eo_comm *comm, void *recv, const void *send,
                            uint64_t send_bytes, const char *label, eo_wait wait);

/* All queues empty, on all ranks; then nobody reads this rank's memory. A barrier, unless the runtime is quiet. */
eo_status eo_runtime_quiesce(struct eo_runtime *rt);

/* communicators.c */
eo_status eo_communicators_check(const eo_log *log, const struct eo_plan *plan, const struct eo_world *world);
eo_status eo_communicators_open(struct eo_runtime *rt);
void eo_communicators_close(struct eo_runtime *rt); /* of a runtime that was opened in part, too */

/* update.c */
eo_status eo_update_init(struct eo_runtime *rt); /* once the mode has set shards and norm pointers */
/* Checks what `call` was given and takes it, with the defaults filled in, or changes nothing. */
eo_status eo_update_take_params(struct eo_runtime *rt, const eo_step_params *params, const char *call);
eo_status eo_update_begin(struct eo_runtime *rt); /* of a step: room for it in host memory; may wait for the last but one */
void eo_update_upload_scalars(struct eo_runtime *rt);
void eo_update_norm_local(struct eo_runtime *rt);
eo_status eo_update_norm_sum(struct eo_runtime *rt);
void eo_update_download_result(struct eo_runtime *rt);
void eo_update_layer(struct eo_runtime *rt, uint32_t layer);
eo_status eo_update_finish(struct eo_runtime *rt, eo_step_report *report);

/* host_memory.c: of these only upload does not wait for the device. */
void eo_host_set(struct eo_runtime *rt, void *steps, void *staging);
eo_status eo_host_await(struct eo_runtime *rt, const struct eo_event *event, const char *what);
eo_status eo_host_drain(struct eo_runtime *rt);
eo_status eo_host_upload(struct eo_runtime *rt, void *to, const void *from, uint64_t bytes);
eo_status eo_host_download(struct eo_runtime *rt, void *to, const void *from, uint64_t bytes);
/* A piece of the ring, of host.piece_bytes; and when copies from it have been issued. */
eo_status eo_host_piece(struct eo_runtime *rt, void **piece);
void eo_host_piece_issued(struct eo_runtime *rt);
struct host_step *eo_host_step(struct eo_runtime *rt, uint64_t step);
void eo_host_step_issued(struct eo_runtime *rt, uint64_t step); /* the copy of its norm to the host was */
/* Waits for the norms of all steps up to this one. EO_ERR_NOT_FINITE. */
eo_status eo_host_finish_steps(struct eo_runtime *rt, uint64_t last);

/* step_graph.c */
eo_status eo_graph_begin(struct eo_runtime *rt);
eo_status eo_graph_end(struct eo_runtime *rt);
eo_status eo_graph_launch(struct eo_runtime *rt);
void eo_graph_fini(struct eo_runtime *rt);

/* graph_times.c: when the operations of a recorded step ran, where that is wanted. */
uint32_t eo_graph_stamp_count(const eo_runtime_params *params);
eo_status eo_graph_times_init(struct eo_runtime *rt);
void eo_graph_times_fini(struct eo_runtime *rt);
void eo_graph_times_begin(struct eo_runtime *rt); /* of a recording */
void eo_graph_times_end(struct eo_runtime *rt);   /* it is the graph now */
struct eo_timeline_entry *eo_graph_times_entry(struct eo_runtime *rt);
void eo_graph_times_wait(struct eo_runtime *rt, eo_wait wait); /* the compute queue has waited */
void eo_graph_times_launch(struct eo_runtime *rt);   /* is about to be */
void eo_graph_times_launched(struct eo_runtime *rt); /* has been */
/* Puts the latest launch's times into the timeline, if it has run, or (`waits`) when it has. */
eo_status eo_graph_times_take(struct eo_runtime *rt, bool waits);

#endif
