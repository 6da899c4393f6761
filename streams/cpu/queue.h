/* SPDX-License-Identifier: MIT
 *
 * A communication queue of the CPU device: a fixed ring of work items and the worker thread that runs them in order.
 *
 *     issued     items ever enqueued, by the device's calling thread     an event is the value of `issued` at its record
 *     completed  items done, raised by the worker                        it is complete when completed >= its sequence
 *
 * The ring holds one item in progress and `capacity` waiting behind it. Issuing more is a bug of the caller: abort.
 * The first item that fails fails the queue for good: later items are not run, waits return the error.
 */
#ifndef EO_STREAMS_CPU_QUEUE_H
#define EO_STREAMS_CPU_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>

#include "streams/cpu/delay.h"
#include "streams/device.h"
#include "streams/gate.h"

enum { EO_CPU_ARGUMENT_BYTES = 128 };

/* `arguments` is the item's copy, aligned to 16. A negative status fails the queue. */
typedef eo_status (*eo_cpu_work_fn)(void *arguments);

struct eo_cpu_item {
    _Alignas(16) unsigned char arguments[EO_CPU_ARGUMENT_BYTES];
    eo_cpu_work_fn run;           /* NULL: only a point to wait for */
    uint64_t wait[EO_QUEUES_MAX]; /* sequences of the other queues that come first; 0: none */
    uint64_t float_mode;          /* of who issued it, and so of who runs it */
};

struct eo_cpu_queue {
    _Alignas(64) _Atomic uint64_t issued;
    struct eo_gate work; /* the worker waits for items */
    _Alignas(64) _Atomic uint64_t completed;
    _Atomic int error; /* eo_status */
    struct eo_gate done; /* others wait for the worker */
    _Alignas(64) _Atomic bool stop;
    struct eo_cpu_item *ring;
    uint32_t ring_items, index, rank;
    uint64_t pending_wait[EO_QUEUES_MAX]; /* for the next item that is issued */
    struct eo_cpu_queue *queues;          /* the device's, by number */
    struct eo_delay delay;
    void (*bind)(void *bind_arg); /* run by the worker before anything else; may be NULL */
    void *bind_arg;
    pthread_t thread;
    bool thread_started;
};

/* `queue` is zeroed; index, rank, queues, delay and bind are set. Starts the worker. 0, or an errno. */
EO_NODISCARD int eo_cpu_queue_init(struct eo_cpu_queue *queue, uint32_t capacity);
/* Waits for what was issued. Also after a failed init. */
void eo_cpu_queue_fini(struct eo_cpu_queue *queue);

void eo_cpu_queue_issue(struct eo_cpu_queue *queue, eo_cpu_work_fn run, const void *arguments, size_t bytes);
/* The sequence that stands for all issued so far, waits included. */
uint64_t eo_cpu_queue_point(struct eo_cpu_queue *queue);
/* What is issued from now on comes after `sequence` of queue `other`. */
void eo_cpu_queue_order_after(struct eo_cpu_queue *queue, uint32_t other, uint64_t sequence);
/* Blocks. The queue's error, or EO_OK. */
eo_status eo_cpu_queue_await(struct eo_cpu_queue *queue, uint64_t sequence);
eo_status eo_cpu_queue_error(const struct eo_cpu_queue *queue);

#endif
