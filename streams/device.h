/* SPDX-License-Identifier: MIT
 *
 * A device: its memory, its streams, its events and the element-wise kernels the runtime itself needs.
 *
 *     queue 0   compute: the caller's. On the CPU it is the calling thread itself: what is called here runs at once,
 *               and a wait blocks it
 *     queue 1.. communication: work is enqueued and runs in order. On the CPU a worker thread each, with a fixed ring
 *
 * An event is a point in a queue. A wait binds to the record that was current when the wait was called.
 * Nothing here allocates after init, but for reserve().
 */
#ifndef EO_STREAMS_DEVICE_H
#define EO_STREAMS_DEVICE_H

#include <evenodd/common.h>
#include <evenodd/log.h>
#include <evenodd/status.h>

enum { EO_QUEUE_COMPUTE = 0, EO_QUEUE_COMM = 1, EO_QUEUE_REDUCE = 2, EO_QUEUES_MAX = 3 };

/* The trainer's threads; see eo_parallel in evenodd/runtime.h. run == NULL: the calling thread alone. */
struct eo_workers {
    void (*run)(void *team, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg);
    void *team;
    uint32_t thread_count;
};

/* sequence 0: never recorded; waiting for it returns at once. */
struct eo_event {
    uint32_t queue;
    uint64_t sequence;
};

/* When a piece of work was issued, could start, and ended; written by whoever runs it, before its event completes. */
struct eo_span {
    uint64_t ready_ns, start_ns, end_ns;
};

struct eo_device_params {
    uint32_t queue_count;   /* compute included: 2, or 3 with a stream for reductions */
    uint32_t ring_capacity; /* items that may wait in one communication queue; issuing more is a bug and aborts */
    uint32_t rank, rank_count;
    bool place_threads;     /* bind calling thread, workers and memory, where hwloc is built in */
    uint64_t delay_seed;    /* 0: none; else random delays before queue items and in waits, for tests */
    struct eo_workers workers;
    const eo_log *log;      /* copied */
};

/* One AdamW range; arrays of `count`. *gradient_scale lies in device memory (the clip factor). */
struct eo_adamw {
    float *weights, *first_moment, *second_moment;
    const float *gradient;
    uint64_t count;
    const float *gradient_scale;
    float learning_rate, beta1, beta2, eps, weight_decay;
    float bias_correction1, bias_correction2; /* 1 - beta^step */
};

struct eo_device {
    const struct eo_device_ops *ops;
    eo_log log;
    struct eo_device_params params;
    void *state; /* the backend's */
};

/*
 * Waits return the first error of the queue they wait for (a collective that failed), and go on returning it.
 * Element-wise kernels run on the compute queue; results do not depend on the number of workers.
 */
struct eo_device_ops {
    const char *name;
    eo_status (*init)(struct eo_device *device); /* device->params are set */
    void (*fini)(struct eo_device *device);      /* after failed init too; waits for the queues */

    /* Zeroed, prefaulted, aligned to a page at least (huge pages where the system gives them). EO_ERR_NO_MEMORY. */
    eo_status (*reserve)(struct eo_device *device, uint64_t bytes, void **out);
    void (*release)(struct eo_device *device, void *memory, uint64_t bytes);

    void (*record)(struct eo_device *device, uint32_t queue, struct eo_event *event);
    /* What is issued to `queue` from now on runs after the event. Queue 0 on the CPU: blocks. */
    eo_status (*wait)(struct eo_device *device, uint32_t queue, const struct eo_event *event);
    bool (*is_complete)(struct eo_device *device, const struct eo_event *event);
    eo_status (*drain)(struct eo_device *device); /* the host waits for all queues */

    void (*zero)(struct eo_device *device, void *memory, uint64_t bytes);
    void (*copy)(struct eo_device *device, void *to, const void *from, uint64_t bytes);
    /* to[i] += from[i] */
    void (*accumulate)(struct eo_device *device, float *to, const float *from, uint64_t count);
    /* *out = sum of squares of values, accumulated in double in an order fixed by `count` alone */
    void (*sum_squares)(struct eo_device *device, double *out, const float *values, uint64_t count);
    /* accumulate, then sum_squares of the result, in one pass; the same bits as one after the other */
    void (*accumulate_sum_squares)(struct eo_device *device, double *out, float *to, const float *from,
                                   uint64_t count);
    void (*adamw)(struct eo_device *device, const struct eo_adamw *ranges, uint32_t range_count);
};

/* Picks the backend by name ("cpu"), copies params, calls init. EO_ERR_UNSUPPORTED where it is not built. */
EO_NODISCARD eo_status eo_device_create(struct eo_device **out, const char *name,
                                        const struct eo_device_params *params);
void eo_device_destroy(struct eo_device **device);

uint64_t eo_now_ns(void); /* monotonic */

#endif
