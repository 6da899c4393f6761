/* SPDX-License-Identifier: MIT
 *
 * A runtime from inside: its parts, then the whole. Nothing here reads device memory: it may be a GPU's. Calls run downwards:
 *
 *     runtime.c                                    create, destroy
 *     calls.c                                      the trainer's calls in order (cursor.h), handed to the memory mode, a table:
 *     static/, dynamic/                            the plan's list in planned memory; FSDP2's behaviour, the baseline
 *     step_graph.c, weights.c, views.c             recorded steps; weights outside the schedule; what the trainer is handed
 *     update.c, timeline.c, waits.c                a step's numbers, optimizer; entries of operations; waits and their cost
 *     norms.c                                      norm and clipping, of all and of parts
 *     float8.c, ema.c                              parts for gathers in float8; the average of the weights
 *     muon.c                                       the directions of Muon's matrices
 *     host_memory.c, communicators.c, graph_times.c, offload.c
 *     errors.c, cursor.c
 */
#ifndef EO_RUNTIME_INTERNAL_H
#define EO_RUNTIME_INTERNAL_H

#include <evenodd/runtime.h>

#include "buffers/arena.h"
#include "runtime/cursor.h"
#include "runtime/flight/recorder.h"
#include "runtime/plan/internal.h"
#include "runtime/world/internal.h"
#include "streams/collective.h"
#include "streams/trace/timeline.h"

/* A rank's shard of a layer, wherever the mode keeps it. */
struct layer_shard {
    float *weights; /* fp32, or NULL where they are split: */
    uint16_t *high; /* bf16, what is gathered */
    int16_t *low;   /* NULL for frozen layers */
    void *narrow;   /* the part as float8 gathers send it; NULL where they do not. With float8_frozen all there is, in these runs: */
    const struct plan_float8_run *narrow_runs;
    uint32_t narrow_run_count;
    float *gradient;
    float *update_gradient; /* where the update finds it: there, or fetched from disk */
    float *state[EO_STATES_MAX + 1]; /* plan.state_count; in 8 bits: struct eo_state8 */
    double *norm; /* sum of squares of the gradient shard; behind it those of norm_runs, if there are several */
    struct shard_range *norm_runs; /* with norm_parts the parameters of one group of the trainer's */
    uint32_t norm_run_count;
    /* Muon's, of layers with matrices (runtime/muon.c): the momentum of this rank's part; all of it, then what the owners made of
     * it; this rank's part of that, which lies there */
    float *direction, *matrices, *orthogonal;
    struct shard_range *ranges;
    eo_shard_part *parts;
    uint32_t range_count, part_count;
};

struct runtime_shards {
    struct layer_shard *layers;
    struct eo_device *device; /* in whose memory they lie, and where the optimizer runs: the runtime's, or the host */
    uint32_t rank; /* of this one in its group: its part of each layer */
    bool split;    /* bf16 in static mode */
};

enum { EO_NORM_LABELS = 8 }; /* more than a host may be ahead */

/* What a step's end works on, in device memory but for tables of pointers and labels. */
struct runtime_update {
    double *norm_local, *norm_gathered;
    struct eo_step_memory step;
    void *next_scalars; /* of a recorded step with late updates; NULL without */
    double *values;          /* the trainer's */
    struct eo_norm_term *terms; /* of all layers in model order, then those of norms in parts */
    uint32_t term_count;
    struct shard_range *norm_runs;
    float *group_scales; /* by group of the trainer's, for its own optimizer */
    struct eo_update_range *updates; /* room for the ranges of one layer */
    eo_shard_part *parts;
    struct shard_range *ranges;
    void *orthogonal; /* scratch of Muon */
    char labels[EO_NORM_LABELS][64]; /* of the norms' gathers, by step modulo their number */
    char sum_label[32];              /* of eo_sum's, with the count, as transports compare labels */
};

/* The trainer's view of a position. */
struct position_views {
    void **weights, **gradients; /* by parameter of the layer */
    eo_view forward, backward, backward_gradients;
    eo_view backward_inputs; /* with a NULL for each gradient */
};

struct runtime_views {
    struct position_views *positions;
    void **pointers; /* of all positions, and the NULLs */
    void **buffers;  /* the trainer's, by index; NULL: not live (dynamic mode) */
    uint64_t *hashes; /* of the weights of the pass under way, with `debug` */
    bool *marked;     /* the trainer's buffers, likewise: what lies behind them is known */
};

struct runtime_float8 {
    struct plan_float8_run *room; /* of one rank's part of a layer */
    struct eo_float8_run *runs;   /* of all ranks' */
    struct eo_mxfp8_run *mxfp8_runs;
    struct plan_float8_run *frozen_runs; /* of this rank's parts of frozen layers */
    bool stale; /* weights were changed outside of steps, the parts to be sent were not */
};

struct runtime_ema {
    bool is_begun;   /* by a step or a checkpoint; until then it is the weights */
    bool is_swapped; /* it lies where the weights do */
};

struct runtime_comms {
    struct eo_comm *world;           /* norms and what stands outside the schedule; captured steps */
    struct eo_comm *gather, *reduce; /* of the group that holds a copy in parts */
    struct eo_comm *replica;         /* NULL: no replicas */
    struct eo_comm *all[4];          /* each once, in the order of opening */
    uint32_t count;
    bool are_open;                                /* all of them */
    struct eo_group *shard_group, *replica_group; /* split from the world's; NULL: that itself */
    bool quiet; /* no collective of ours is under way on any rank, so shards may be written */
};

enum { EO_REPORTS_KEPT = 4 }; /* more than a host may be ahead, and the step just ended */

struct runtime_steps {
    uint64_t finished;
    uint64_t skipped; /* of those before the runtime, told by a checkpoint */
    uint64_t skipped_here; /* since its creation, of steps whose end is known */
    uint64_t newest; /* whose norm was issued last */
    uint64_t begin_ns;
    bool is_late; /* updates of the last step are left to the next one */
    bool *written; /* since the step before, outside of steps: by parameter of the plan, then whether a checkpoint was loaded */
    bool restart; /* the schedule was left (or never entered): the next step runs the first-step list */
    eo_step_params params;
    eo_parameter_group *groups; /* of params */
    uint64_t *frozen;           /* by group of the plan: steps that ended, were not skipped, and left it as it was */
    bool clips_apart; /* one of them has a clip_group above 0 */
    double *layer_norms; /* of the reports; NULL without norm_parts */
    eo_group_norm *group_norms;
    eo_step_report reports[EO_REPORTS_KEPT]; /* by step modulo their number: those of which the end is known */
};

struct runtime_graph {
    void *recorded;   /* a step; NULL: none */
    bool record_next; /* the next step is to be recorded */
    bool recording;
    bool ran_last; /* the step before was a graph: `steps.restart` is for ordinary steps only */
    uint64_t collectives, collective_bytes, storage_bytes;
    struct graph_times *times;
};

struct runtime_timeline {
    struct eo_timeline ring;
    uint64_t step_begin[3]; /* the ring's count at the begin of the last steps: [0] the newest */
    uint64_t step_end[3];   /* at their ends: evaluations and what else comes between steps lies behind */
    const char **names;     /* of operations, by kind and position or layer */
    struct eo_timeline_entry *open; /* of the pass under way */
};

/* What a step in flight has in host memory: its parameters on their way up, its norm on the way back. */
struct host_step {
    struct eo_step_memory memory;
    eo_not_finite on_not_finite;
    uint64_t done_ns; /* a stamp: its norm is back; 0: not told yet */
};

/* The host's side of what passes between host and device. */
struct runtime_host {
    struct host_step steps[EO_HOST_STEPS];     /* by step modulo their number */
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

/* A ring: those not booked yet are [begin, end). */
struct runtime_waits {
    struct wait_record *records;
    uint64_t begin, end;
    uint32_t capacity;
};

/* Events between queues, at no time used twice. */
struct runtime_queues {
    struct eo_event drained[EO_QUEUES_MAX], issued, outside;
};

/* Memory of the device; the host's, before any rank takes some. */
struct runtime_memory {
    uint64_t free_bytes, total_bytes;
    uint32_t ranks;           /* about to take from it */
    uint64_t seen_free_bytes; /* at the last look at memory outside the plan */
};

struct offload_slot {
    void *memory;
    uint32_t layer;  /* between steps: whose content it holds; EO_NONE */
    bool is_changed; /* the disk has an older one */
};

struct runtime_offload {
    struct eo_storage *storage; /* NULL: nothing is offloaded */
    uint64_t copy_bytes_max;    /* with GPUs: of a copy of it all in the host's memory, beside what is offloaded */
    struct offload_slot slots[64];
    uint64_t *sums, *sum_begin; /* of the file's pieces; the first one of each row on disk. NULL: storage is no file */
};

struct runtime_errors {
    char text[512];
    uint32_t count; /* of texts, ever */
    bool plans_differ; /* the ranks' */
    bool is_not_finite; /* what ended it was a gradient norm, on all ranks */
};

/* Of split weights: which half is gathered. WHOLE where they are not split. */
enum weight_half { HALF_WHOLE, HALF_HIGH, HALF_LOW };

/* A memory mode. */
struct mode_ops {
    eo_status (*init)(struct eo_runtime *rt);
    void (*fini)(struct eo_runtime *rt);
    eo_status (*step_begin)(struct eo_runtime *rt);
    eo_status (*forward_begin)(struct eo_runtime *rt, uint32_t position);
    eo_status (*forward_end)(struct eo_runtime *rt, uint32_t position);
    eo_status (*backward_begin)(struct eo_runtime *rt, uint32_t position);
    eo_status (*gradients_begin)(struct eo_runtime *rt, uint32_t position);
    eo_status (*check_gradients)(struct eo_runtime *rt, uint32_t position); /* in debug mode, before backward_end; may be NULL */
    eo_status (*backward_end)(struct eo_runtime *rt, uint32_t position);
    eo_status (*step_end)(struct eo_runtime *rt);
    /* Makes a layer's part for float8 gathers anew, on the compute queue; called for layers that have one. */
    eo_status (*narrow)(struct eo_runtime *rt, uint32_t layer);
    eo_status (*finish_updates)(struct eo_runtime *rt); /* that are left of the last step; may be NULL */
    eo_status (*evaluation_begin)(struct eo_runtime *rt); /* may be NULL */
    eo_status (*evaluation_end)(struct eo_runtime *rt);
    /* Runs every collective once, before the first step; may be NULL. */
    eo_status (*warm_up)(struct eo_runtime *rt);
    /* Full weights of a layer somewhere, outside the schedule; until layer_release. Of split weights one half at a
     * time: the next call may take its place. The compute queue comes after it. layer_release may be NULL. */
    eo_status (*layer_gather)(struct eo_runtime *rt, uint32_t layer, enum weight_half half, void **weights);
    void (*layer_release)(struct eo_runtime *rt, uint32_t layer, void *weights);
    /* Memory of the plan that the host may use between steps, until the next call of another kind; NULL: there is none. May
     * be NULL. */
    void *(*idle_memory)(struct eo_runtime *rt, uint64_t bytes);
    void (*get_stats)(const struct eo_runtime *rt, eo_runtime_stats *out); /* beyond rt->stats; may be NULL */
};

extern const struct mode_ops eo_static_mode, eo_dynamic_mode;

struct eo_runtime {
    pid_t owner;              /* the process with its threads */
    eo_runtime_params params; /* plan and world among them */
    const struct eo_plan *plan;
    struct eo_world *world;
    struct eo_device *device;
    eo_log log;
    const struct mode_ops *mode;
    void *mode_state;

    struct runtime_cursor cursor;
    struct runtime_steps steps;
    struct runtime_graph graph;

    struct runtime_shards shards;
    struct runtime_update update;
    struct runtime_views views;
    struct runtime_host host;
    struct runtime_float8 float8;
    struct runtime_ema ema;

    struct runtime_comms comms;
    struct runtime_queues queues;
    struct runtime_waits waits;

    struct runtime_timeline timeline;
    struct runtime_memory memory;
    struct runtime_offload offload;
    struct eo_saver *saver; /* that reads shards where they lie; NULL: none does */
    uint32_t saver_count;
    struct runtime_errors errors;
    eo_runtime_stats stats;
};

/* errors.c */
eo_status eo_runtime_fail(struct eo_runtime *rt, eo_status status, const char *format, ...) EO_PRINTF(3, 4);

/* For the world's failures: as EO_TRY, with a message. */
#define RUNTIME_TRY(rt, call, ...)                                                                                             \
    do {                                                                                                                       \
        const eo_status try_status = (call);                                                                                   \
        if (try_status < 0)                                                                                                    \
            return eo_runtime_fail(rt, try_status, __VA_ARGS__);                                                               \
    } while (0)

eo_status eo_runtime_check_process(struct eo_runtime *rt, const char *call);
eo_status eo_runtime_check_idle(struct eo_runtime *rt, const char *call); /* NULL is refused, too */

/* A line for what others take of the device for us, since the call before; `what` NULL: only looks. */
void eo_runtime_log_outside(struct eo_runtime *rt, const char *what);

/* views.c */
EO_NODISCARD eo_status eo_views_init(struct runtime_views *views, const struct eo_plan *plan);
void eo_views_fini(struct runtime_views *views);
/* Whether a trainable parameter has a gradient in the backward pass of a position. */
bool eo_views_gets_gradient(const struct eo_plan *plan, uint32_t position, const struct plan_parameter *parameter);
/* A position's pointers to the parameters of a layer that lies at `base`: its own, or that one's frozen part. */
void eo_views_set(void **pointers, const struct eo_plan *plan, uint32_t layer, eo_dtype dtype, void *base);

/* Whether a buffer is live in the pass that is under way. */
bool eo_views_is_live(const struct runtime_cursor *cursor, const struct plan_buffer *buffer);

/* read_only.c: with `debug` notes the weights of a view, and refuses the end of a pass that has written some, or has written
 * behind a buffer. More buffers may be live once gradients have begun. */
void eo_read_only_mark_buffers(struct eo_runtime *rt);
eo_status eo_read_only_begin(struct eo_runtime *rt, uint32_t position, const eo_view *view);
eo_status eo_read_only_end(struct eo_runtime *rt, uint32_t position, const eo_view *view);

/* timeline.c: the names of operations, made at create: "backward of block.3". */
eo_status eo_runtime_names_init(struct runtime_timeline *timeline, const struct eo_plan *plan);
void eo_runtime_names_fini(struct runtime_timeline *timeline, const struct eo_plan *plan);
size_t eo_runtime_name_count(const struct eo_plan *plan);
/* Of a gather outside the schedule: ranks that read different layers must be told. */
const char *eo_runtime_weights_name(const struct eo_runtime *rt, uint32_t layer);

/* A timeline entry for an operation that is issued now. */
struct eo_timeline_entry *eo_runtime_entry(struct eo_runtime *rt, eo_operation_kind kind, eo_stream_id stream,
                                           uint32_t position, uint32_t layer, uint32_t operation);

/* For the flight recorder: the step that is issued now is a graph. */
void eo_runtime_mark_graph(struct eo_runtime *rt);

/* What is added from now on is of another step; of none. */
void eo_runtime_begin_entries(struct runtime_timeline *timeline);
void eo_runtime_end_entries(struct runtime_timeline *timeline);

/* Operations between the two have this name for profilers. */
void eo_runtime_range_begin(struct eo_runtime *rt, const char *name);
void eo_runtime_range_end(struct eo_runtime *rt);

/* A pass of the trainer's begins and ends on the compute queue. */
void eo_runtime_open_pass(struct eo_runtime *rt, struct eo_timeline_entry *entry);
void eo_runtime_close_pass(struct eo_runtime *rt);

/* waits.c: blocks the compute queue until the event has passed, and books the time under `wait`, */
eo_status eo_runtime_wait(struct eo_runtime *rt, const struct eo_event *event, eo_wait wait);
/* in the statistics once its stamps are known, oldest first. */
void eo_runtime_book_waits(struct eo_runtime *rt);

/* What is issued to the communication queues from now on comes after what is on the compute queue. */
eo_status eo_runtime_order_queues(struct eo_runtime *rt);

/* An all-gather outside the schedule, after what is on the compute queue, and before what is issued to it next. */
eo_status eo_runtime_gather(struct eo_runtime *rt, struct eo_comm *comm, void *recv, const void *send, uint64_t send_bytes,
                            const char *label, eo_wait wait);

/* All queues empty, on all ranks; then nobody reads this rank's memory. A barrier, unless the runtime is quiet. `call`: the
 * trainer's, for errors. */
eo_status eo_runtime_quiesce(struct eo_runtime *rt, const char *call);

/* Quiesces; the next step runs the first-step list. Collective, so after all that this rank alone may refuse. */
eo_status eo_runtime_leave_schedule(struct eo_runtime *rt, const char *call);

/* communicators.c */
eo_status eo_communicators_check(const eo_log *log, const struct eo_plan *plan, const struct eo_world *world);
eo_status eo_communicators_open(struct eo_runtime *rt);
void eo_communicators_close(struct runtime_comms *comms, const struct eo_world *world); /* opened in part, too */

/* Where the weights of a run lie, if they are not split; else NULL. */
float *eo_shard_weights(const struct eo_runtime *rt, const struct layer_shard *shard, const struct shard_range *range);
/* Elements [from, from + count) of this rank's shard of split weights, as the host reads them: `high` of all the shard, `low`
 * from `from` on (NULL: there are none). weights.c */
void eo_shard_join(const struct eo_runtime *rt, uint32_t layer, const uint16_t *high, const int16_t *low, uint64_t from,
                   uint64_t count, float *out);

/* update.c */
eo_status eo_update_init(struct eo_runtime *rt); /* once the mode has set shards and norm pointers */
void eo_update_fini(struct eo_runtime *rt);
/* Checks what `call` was given and takes it, with the defaults filled in, or changes nothing. */
eo_status eo_update_take_params(struct eo_runtime *rt, const eo_step_params *params, const char *call);
eo_status eo_update_begin(struct eo_runtime *rt); /* of a step: room for it in host memory; may wait for the last but one */
/* Into `to`, in device memory. */
void eo_update_upload_scalars(struct eo_runtime *rt, void *to);
void eo_update_layer(struct eo_runtime *rt, uint32_t layer);
eo_status eo_update_finish(struct eo_runtime *rt, eo_step_report *report, size_t report_bytes);

void eo_update_call_gradient(struct eo_runtime *rt, uint32_t layer); /* the trainer's callback, which is there */
/* Of the step under way, where the shards' device finds it. */
const struct eo_step_memory *eo_update_memory(struct eo_runtime *rt);
/* The ranges of a layer that are Muon's matrices, or the others. */
void eo_update_ranges(struct eo_runtime *rt, uint32_t layer, bool matrices, enum eo_rule rule);

/* norms.c */
EO_NODISCARD eo_status eo_norms_init(struct eo_runtime *rt); /* once the ranges of the update are known */
void eo_norms_fini(struct eo_runtime *rt);
/* The sum of squares of this rank's shard, and those of its runs; these alone, where another call gave the first. */
void eo_norms_of_layer(struct eo_runtime *rt, uint32_t layer, uint32_t queue, struct eo_span *span);
void eo_norms_on_host(struct eo_runtime *rt, uint32_t layer, double *sums); /* the same sums, by the device of the shards */
void eo_norms_of_runs(struct eo_runtime *rt, uint32_t layer, uint32_t queue);
void eo_norms_local(struct eo_runtime *rt);
EO_NODISCARD eo_status eo_norms_sum(struct eo_runtime *rt);
/* Of the gather of this step's norms: transports that compare labels so find ranks at other steps, with other numbers, or with
 * other parameters written before. */
#define EO_NORM_LABEL "norms of step "
const char *eo_norms_label(struct eo_runtime *rt);
/* What the host knows of a step: eo_shard.group_scales. */
const float *eo_norms_group_scales(struct eo_runtime *rt, const struct eo_step_memory *of);

/* muon.c: the direction of this rank's part of the matrices; of those it owns, the orthogonal ones in their place. */
void eo_muon_direction(struct eo_runtime *rt, uint32_t layer);
EO_NODISCARD eo_status eo_muon_orthogonalize(struct eo_runtime *rt, uint32_t layer);

/* host_memory.c: of these only upload does not wait for the device. */
void eo_host_set(struct runtime_host *host, const struct eo_plan *plan, void *steps, void *staging);
eo_status eo_host_await(struct eo_runtime *rt, const struct eo_event *event, const char *what);
eo_status eo_host_drain(struct eo_runtime *rt);
eo_status eo_host_upload(struct eo_runtime *rt, void *to, const void *from, uint64_t bytes);
eo_status eo_host_download(struct eo_runtime *rt, void *to, const void *from, uint64_t bytes);
/* Floats of a shard, `produce`d in pieces; `offset`: of the first, for produce. */
typedef eo_status (*eo_produce_fn)(void *user, uint64_t offset, uint64_t count, float *values);
eo_status eo_host_fill(struct eo_runtime *rt, float *to, uint64_t offset, uint64_t count, eo_produce_fn produce, void *user);
/* A piece of the ring, of host.piece_bytes; and when copies from it have been issued. */
eo_status eo_host_piece(struct eo_runtime *rt, void **piece);
void eo_host_piece_issued(struct eo_runtime *rt);
struct host_step *eo_host_step(struct runtime_host *host, uint64_t step);
/* Whether a step that has not been looked at leaves the group, one of the plan, as it is. */
bool eo_host_freezes(const struct eo_runtime *rt, uint64_t step, uint32_t group);
void eo_host_download_result(struct eo_runtime *rt, uint64_t step); /* issues the copy of its norm to the host */
/* Waits for the norms of all steps up to this one. EO_ERR_NOT_FINITE. */
eo_status eo_host_finish_steps(struct eo_runtime *rt, uint64_t last);

_Static_assert((int)EO_STREAM_EVICT == (int)EO_QUEUE_EVICT && (int)EO_STREAM_COUNT == (int)EO_QUEUES_MAX,
               "a stream has the number of its queue");

/* The device's queue for a stream's work: where copies go one way at a time, one queue makes both streams' in issue order. */
static inline uint32_t eo_runtime_queue(const struct eo_runtime *rt, eo_stream_id stream)
{
    return stream == EO_STREAM_EVICT && rt->device->params.queue_count <= EO_QUEUE_EVICT ? EO_QUEUE_COPY : (uint32_t)stream;
}

/* offload.c */
EO_NODISCARD eo_status eo_offload_check(struct eo_runtime *rt); /* room on the disk, before any rank takes some of it */
EO_NODISCARD eo_status eo_offload_init(struct eo_runtime *rt, void *const *rows); /* and the pointers of offloaded shards */
void eo_offload_fini(struct eo_runtime *rt); /* after the queues have ended */
void eo_offload_issue(struct eo_runtime *rt, const struct eo_operation *operation, struct eo_span *span);
/* Between steps: the layer's arrays are in memory until another layer is taken. `writes`: the caller changes them. */
EO_NODISCARD eo_status eo_offload_take(struct eo_runtime *rt, uint32_t layer, bool writes);
EO_NODISCARD eo_status eo_offload_settle(struct eo_runtime *rt); /* what was taken goes back: before a step */
EO_NODISCARD eo_status eo_offload_finish(struct eo_runtime *rt); /* and all of it is on the disk */
/* Of an offloaded layer's arrays on disk; then, by any thread. `at` and `room` are multiples of EO_STORAGE_ALIGN; the room is of
 * two EO_STORAGE_PIECE more than `bytes`, and *out in it. EO_ERR_IO: logged. */
EO_NODISCARD eo_status eo_offload_peek(struct eo_runtime *rt, uint32_t layer, uint64_t at, uint64_t bytes, void *room,
                                       void **out);

/* checkpoint/saver.c: before a layer's shard is written, or its write recorded; EO_NONE: any layer's, and a recording. Blocks
 * while a save still reads it where it lies. */
void eo_saver_await_layer(struct eo_runtime *rt, uint32_t layer);

/* float8.c */
eo_status eo_float8_init(struct eo_runtime *rt);
void eo_float8_fini(struct runtime_float8 *float8);
/* A rank's part of a layer, from bf16 to what is sent; what was gathered of a layer, to bf16 weights by parameter. */
void eo_float8_narrow_shard(struct eo_runtime *rt, uint32_t layer, uint16_t *wide, void *narrow);
void eo_float8_widen_layer(struct eo_runtime *rt, uint32_t layer, void *gathered, void *const *weights);
/* Of a frozen layer, in the plan's dtype, from what was gathered to the layer's flat weights; */
void eo_float8_widen_frozen(struct eo_runtime *rt, uint32_t layer, const void *gathered, void *weights);
/* and of this rank's shard elements [from, from + count), from its part as the host reads it. */
void eo_float8_read_frozen(const struct eo_runtime *rt, uint32_t layer, const void *narrow, uint64_t from, uint64_t count, float *out);
eo_status eo_float8_refresh(struct eo_runtime *rt); /* before a list that gathers; no peer reads this rank's parts */

/* ema.c: nothing where the plan has no average. */
eo_status eo_ema_make(struct eo_runtime *rt, const char *call);  /* between steps: there is one, and it lies in its place */
eo_status eo_ema_begin(struct eo_runtime *rt, const char *call); /* before a step: there is one, and it lies in its place */
eo_status eo_ema_check(struct eo_runtime *rt, const char *call); /* it lies in its place */
void eo_ema_update(struct eo_runtime *rt, uint32_t layer);

/* step_graph.c */
eo_status eo_graph_begin(struct eo_runtime *rt);
void eo_graph_take_scalars(struct eo_runtime *rt); /* recorded: the launch's scalars take the place of the step before's */
eo_status eo_graph_end(struct eo_runtime *rt); /* and launches it */
/* Waits for the latest launch, if its times are wanted, and puts them into the timeline. */
eo_status eo_graph_take_times(struct eo_runtime *rt);
void eo_graph_fini(struct eo_runtime *rt);

#endif
