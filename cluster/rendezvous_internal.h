/* SPDX-License-Identifier: MIT
 *
 * A rendezvous from inside: what the caller's threads and the rendezvous' own share, and how the latter is started.
 */
#ifndef EO_CLUSTER_RENDEZVOUS_INTERNAL_H
#define EO_CLUSTER_RENDEZVOUS_INTERNAL_H

#include <pthread.h>

#include <evenodd/cluster.h>

#include "base/clock.h"
#include "cluster/link.h"
#include "cluster/sockets.h"
#include "cluster/teller.h"

enum { DIAL_ROOT, DIAL_LEADER, DIAL_PARENT };

struct eo_rendezvous {
    eo_rendezvous_params params; /* texts are copied to: */
    char address[256], port[16], host[EO_HOST_BYTES];
    struct eo_secret secret;
    eo_log log;               /* of the caller's threads; the rendezvous' own has: */
    struct eo_teller *teller;
    uint32_t beat_ms;

    pid_t owner; /* the process with the thread */
    pthread_t thread;
    bool has_thread;
    int wake; /* an eventfd: look at what is asked */

    pthread_mutex_t mutex; /* of what follows, down to the line */
    pthread_cond_t changed;
    bool joined, stop, leave;
    eo_rank_failure failure;
    struct eo_member *members;
    const void *send;    /* a gather is asked for */
    void *recv;          /* where it goes, NULL: nobody waits (any more) */
    uint32_t bytes;
    bool asked, gathered;
    bool wants_to_fail;
    struct eo_failure own_failure;

    /* ---- the thread's own */
    struct eo_node node;
    struct eo_addresses root_addresses;
    uint32_t root_at; /* of these, where the next try goes */
    struct eo_address local_address, parent_address;
    int root_listeners[EO_ADDRESSES_MAX], local_listener, child_listener;
    bool has_network; /* ranks on other hosts */
    struct eo_link *links;
    int dial_kind;        /* of the link upwards; -1: none is to be dialled */
    uint32_t parent_rank;
    uint64_t dial_at_ns;
    char dial_why[160];   /* the last try failed */
    uint64_t accept_at_ns; /* not before: there were no files for another connection */
    int accept_error;
    struct eo_teller_limit refusals;
    struct eo_stopwatch clock; /* since create; times below are of it: a job that was stopped whole waited for nobody */
    uint64_t join_end_ns, partial_ns, tick_ns, end_ns;
    uint64_t gather_number, gather_ns; /* the exchange in progress, and when its first part came */
    bool told_partial;
    struct pollfd *polls;
    uint32_t poll_capacity, first_link;
};

void *eo_rendezvous_main(void *rendezvous);

#endif
