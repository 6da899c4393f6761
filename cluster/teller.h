/* SPDX-License-Identifier: MIT
 *
 * Says what the rendezvous' thread has to say, by a thread of its own: who writes a log may wait for a reader, and signs of
 * life must not. What does not fit any more is counted and said later.
 *
 * Strangers can make it say something as often as they like: `warn` says a few at a time, then how many more there were.
 */
#ifndef EO_CLUSTER_TELLER_H
#define EO_CLUSTER_TELLER_H

#include <pthread.h>
#include <stdbool.h>

#include <evenodd/log.h>

enum { EO_TELLER_QUEUE = 16, EO_TELLER_TEXT_BYTES = 768, EO_TELLER_BURST = 5, EO_TELLER_PAUSE_S = 10 };

struct eo_teller; /* outlives its owner where the log's function does not return */

/* NULL: no memory or thread. Starts no thread where nobody listens. */
struct eo_teller *eo_teller_new(const eo_log *log);
/* Waits a second at most for what is still to be said. NULL is taken. */
void eo_teller_free(struct eo_teller *teller);

/* Never waits. */
void eo_teller_say(struct eo_teller *teller, eo_log_level level, const char *format, ...) EO_PRINTF(3, 4);

/* The limit for one kind of message; one thread. */
struct eo_teller_limit {
    uint64_t begin_ns;       /* of the burst */
    uint32_t said, left_out; /* since then */
};

/* Whether one more may be said now; *left_out: how many were not, before it, to be said with it. */
bool eo_teller_may_say(struct eo_teller_limit *limit, uint64_t now_ns, uint32_t *left_out);

#endif
