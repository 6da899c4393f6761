/* SPDX-License-Identifier: MIT
 *
 * Small blobs between ranks that are not yet a group: whoever brings them together (a rendezvous, MPI, a test's pipes)
 * gives this, and a group that is joined tells the others through it where it is to be found.
 *
 * The call is collective: all ranks make the same calls in the same order with the same size, and each gets
 * recv[r * bytes ...] = what rank r sent. It blocks, and the provider owes a deadline: a rank that does not come ends
 * the call with EO_ERR_TIMEOUT or EO_ERR_COMM and a log line that names it. Only making and splitting a group, open,
 * and register_memory use it, by the calling thread; nothing in a step does. It must stay valid as long as the group.
 */
#ifndef EO_STREAMS_EXCHANGE_H
#define EO_STREAMS_EXCHANGE_H

#include <stdint.h>

#include <evenodd/status.h>

enum { EO_EXCHANGE_BYTES_MAX = 4096 }; /* of one rank, in one call */

struct eo_exchange {
    eo_status (*all_gather)(void *user, const void *send, uint32_t bytes, void *recv);
    void *user;
};

#endif
