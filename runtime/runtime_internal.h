/* SPDX-License-Identifier: MIT
 *
 * A runtime from inside. runtime.c is the front: it checks the order of calls and then hands them to the memory mode,
 * a table: static_mode.c walks the plan's list in planned memory; dynamic_mode.c is the baseline, FSDP2's behaviour
 * with memory taken and given back as it goes. What both do alike stands in update.c (norm, clip, optimizer) and
 * weights.c (weights outside the schedule).
 */
#ifndef EO_RUNTIME_RUNTIME_INTERNAL_H
#define EO_RUNTIME_RUNTIME_INTERNAL_H

#include <evenodd/runtime.h>

#include "buffers/arena.h"
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
    float *weights;
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
    /* Full weights of a layer somewhere, outside the schedule; until layer_release. */
    eo_status (*layer_gather)(struct eo_runtime *rt, uint32_t layer, void **weights);
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
    struct eo_comm *gather_comm, *reduce_comm;
    struct eo_timeline timeline;
    uint64_t step_entry[3]; /* timeline count at the begin of the last steps: [0] the newest */
    const char **names;     /* of operations, by kind and position or layer */
    struct eo_timeline_entry *open_entry; /* of the pass that is under way */
    bool restart;           /* the schedule was left (or never entered): the next step runs the first-step list */
    bool quiet;             /* no collective of ours is under way on any rank, so shards may be written */

    struct layer_shard *shards; /* by layer */
    struct shard_range *ranges;
    struct eo_adamw *adamw; /* room for the ranges of one layer */
    double *norm_local, *norm_gathered;
    struct eo_norm_result *norm_result;
    struct eo_update_scalars *scalars;
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
void eo_runtime_set_weights(struct eo_runtime *rt, uint32_t position, void *base);
void eo_runtime_set_gradients(struct eo_runtime *rt, uint32_t position, void *base);

/* Blocks the compute queue until the event has passed, and books the time under `wait`. */
eo_status eo_runtime_wait(struct eo_runtime *rt, const struct eo_event *event, eo_wait wait);

/* The name of an operation, made at create: "backward of block.3". */
const char *eo_runtime_name(const struct eo_runtime *rt, eo_operation_kind kind, uint32_t position, uint32_t layer);

/* A timeline entry for an operation that is issued now. */
struct eo_timeline_entry *eo_runtime_entry(struct eo_runtime *rt, eo_operation_kind kind, eo_stream_id stream,
                                           uint32_t position, uint32_t layer, uint32_t operation);

/* All queues empty, on all ranks; then nobody reads this rank's memory. A barrier, unless the runtime is quiet. */
eo_status eo_runtime_quiesce(struct eo_runtime *rt);

/* update.c */
eo_status eo_update_init(struct eo_runtime *rt); /* once the mode has set shards and norm pointers */
void eo_update_norm_local(struct eo_runtime *rt);
eo_status eo_update_norm_sum(struct eo_runtime *rt);
void eo_update_layer(struct eo_runtime *rt, uint32_t layer);

#endif
