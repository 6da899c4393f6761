/* SPDX-License-Identifier: MIT
 *
 * The dynamic mode from inside: what is taken and given back, by whom. runtime/dynamic/mode.c says what it does and why.
 */
#ifndef EO_RUNTIME_DYNAMIC_INTERNAL_H
#define EO_RUNTIME_DYNAMIC_INTERNAL_H

#include "buffers/allocator.h"
#include "runtime/plan/list/buffer_agenda.h"
#include "runtime/internal.h"

struct dynamic_group { /* a layer */
    void *output;    /* of its all-gather; NULL: none */
    uint64_t gather; /* the how-manieth of all it was, from 1 */
    struct eo_event gathered, copied_out;
    bool unsharded; /* its parameters are there */
};

struct dynamic_reduction {
    uint32_t position;
    void *input, *output;
    struct eo_event filled, done;
    struct eo_event landed;      /* offloaded: its output is in host memory, */
    bool is_staged, is_first;    /* beside the gradient; it is the layer's first of the step */
};

/* All in host memory, but device_norms. */
struct dynamic_offload {
    void *memory;
    uint64_t bytes;
    double *norms, *device_norms; /* sums of squares, as struct layer_shard has them, layer after layer */
    float **gradients;            /* by layer, as the next */
    bool *has_arrived;            /* a gradient of this step */
    char *staging;                /* by reduction */
    uint64_t staging_bytes;       /* of one */
    struct eo_event all_landed;
};

/* What was cast for a gather, or brought from the host; of eo_dynamic_input_queue. */
struct gather_cast {
    uint64_t gather;
    void *memory;
    void *source; /* what it was cast from, where blocks know no queues (the host's allocators) */
};

struct dynamic_state {
    struct eo_allocator *allocator;
    void *host; /* host memory: steps, then staging */
    uint64_t host_bytes;
    struct dynamic_group *groups;
    void *held; /* forward: the output of the layer before */
    struct dynamic_group *held_of;
    uint64_t gather_count;
    struct gather_cast *casts; /* a ring */
    uint32_t cast_first, cast_count, cast_capacity;
    uint32_t reduce_queue;
    struct eo_event optimizer_done;
    struct dynamic_reduction *reductions; /* in flight, a ring */
    uint32_t reduction_first, reduction_count, reduction_limit;
    struct buffer_agenda take, give;      /* by moment of a training micro-batch */
    struct buffer_agenda evaluation_take, evaluation_give; /* by position */
    uint32_t operation;                   /* counts within a step */
    struct eo_event brought, dropped;     /* offloaded: a gather's input; inputs that nobody reads any more */
    struct eo_device *host_device;        /* NULL: the device's memory is the host's */
    struct dynamic_offload offload;
};

static inline struct dynamic_state *eo_dynamic_state(const struct eo_runtime *rt)
{
    return rt->mode_state;
}

static inline uint32_t eo_dynamic_layer(const struct eo_runtime *rt, uint32_t position)
{
    return rt->plan->positions[position].layer;
}

/* memory.c; after `order`, later work of `queue` comes after the event */
eo_status eo_dynamic_take(struct eo_runtime *rt, uint32_t queue, uint64_t bytes, const char *what, void **out);
void eo_dynamic_give(struct eo_runtime *rt, uint32_t queue, void **memory);
eo_status eo_dynamic_order(struct eo_runtime *rt, uint32_t queue, const struct eo_event *event);
void eo_dynamic_copy(struct eo_runtime *rt, void *to, const void *from, uint64_t bytes);

/* A tensor for parameter k of a layer, with `size` bytes an element: a block of its own, with room for those joined to it; or
 * behind the one that it is joined to. Of the others `tensors` has NULL where they get none. */
eo_status eo_dynamic_take_tensor(struct eo_runtime *rt, const struct plan_layer *layer, uint32_t k, uint64_t size, void **tensors);
/* Of all parameters; they become NULL. */
void eo_dynamic_give_tensors(struct eo_runtime *rt, const struct plan_layer *layer, void **tensors);

struct eo_timeline_entry *eo_dynamic_entry(struct eo_runtime *rt, eo_operation_kind kind, eo_stream_id stream,
                                           uint32_t position, uint32_t layer);
void eo_dynamic_note_live(struct eo_runtime *rt, struct eo_timeline_entry *entry);

/* weights.c */
eo_status eo_dynamic_gather(struct eo_runtime *rt, uint32_t position);
EO_NODISCARD eo_status eo_dynamic_bring_whole(struct eo_runtime *rt, uint32_t layer, const void **out); /* fp32, for one more
                                                                                                       gather */
eo_status eo_dynamic_narrow(struct eo_runtime *rt, uint32_t layer); /* its part for gathers in float8 */
eo_status eo_dynamic_unshard(struct eo_runtime *rt, uint32_t position, bool backward);
void eo_dynamic_reshard(struct eo_runtime *rt, uint32_t layer);
eo_status eo_dynamic_give_held(struct eo_runtime *rt); /* the output of the layer before */
/* All gathers before this one have ended on every rank, for all have entered it: what was cast for them is not read any
 * more. */
EO_NODISCARD eo_status eo_dynamic_drop_casts(struct eo_runtime *rt, uint64_t ended_gather);

/* offload.c */
uint32_t eo_dynamic_input_queue(const struct eo_runtime *rt); /* where the inputs of gathers are made */
EO_NODISCARD eo_status eo_dynamic_offload_init(struct eo_runtime *rt); /* the shards, instead of those on the device */
void eo_dynamic_offload_fini(struct eo_runtime *rt);
/* The fp32 shard, in memory of the copy queue. */
EO_NODISCARD eo_status eo_dynamic_bring_shard(struct eo_runtime *rt, uint32_t layer, void **out);
/* A reduction's output to the host, behind it; and when its turn comes, the gradient is there. */
void eo_dynamic_send_gradient(struct eo_runtime *rt, struct dynamic_reduction *reduction);
EO_NODISCARD eo_status eo_dynamic_take_gradient(struct eo_runtime *rt, struct dynamic_reduction *reduction);
EO_NODISCARD eo_status eo_dynamic_await_gradients(struct eo_runtime *rt); /* until all are there */
void eo_dynamic_sum_on_host(struct eo_runtime *rt);                       /* of squares of all of them */

/* gradients.c */
/* The queue that a gradient shard belongs to: as a rule it is the output of a reduction. */
uint32_t eo_dynamic_gradient_queue(const struct eo_runtime *rt);
eo_status eo_dynamic_reduce(struct eo_runtime *rt, uint32_t position); /* the gradients of a pass */
eo_status eo_dynamic_finish_reduction(struct eo_runtime *rt);          /* the oldest */

#endif
