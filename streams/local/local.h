/* SPDX-License-Identifier: MIT
 *
 * What the local collectives of every device share: ranks are threads of one process that read each other's memory.
 * The ranks of `shared` are processes and meet in the same way: what ranks write for each other (eo_local_common, lines)
 * then lies in memory that all have mapped, at addresses of their own, and each process has groups of its own.
 *
 *     group   what all ranks share: the lines; and with the groups that were split from it (its family) the first
 *             failure, the lock and the link, which are the root's
 *     line    the n-th communicator of every rank, together
 *     end     one rank's end of a line; a backend's communicator begins with it
 *
 * How ranks meet in collective s of a line: each rank writes its post (what it is about to do, and where its data lies)
 * and raises `entered` to s; waits for every other rank to have entered s, and compares their posts with its own; reads
 * their data (or, where work is enqueued, has enqueued that); raises `done` to s. A reduce-scatter also waits for all
 * to be done.
 *
 * An all-reduce is two of them: each rank sums its slice in place, and then, all having entered a second time and so
 * left the first, fetches the others' slices.
 *
 * Two posts a rank are enough: a rank that enters s + 2 has seen everybody in s + 1, and who is there has finished s
 * and reads nobody's post of it again.
 */
#ifndef EO_STREAMS_LOCAL_LOCAL_H
#define EO_STREAMS_LOCAL_LOCAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "streams/collective.h"
#include "streams/fabric.h"
#include "streams/gate.h"

enum { EO_LOCAL_RANKS_MAX = 64 }; /* threads of one process, or processes of one machine */
enum { EO_LOCAL_LABEL_BYTES = 64 };

enum eo_local_kind { EO_LOCAL_ALL_GATHER, EO_LOCAL_REDUCE_SCATTER, EO_LOCAL_ALL_REDUCE, EO_LOCAL_BARRIER };

/* A rank's part in one collective. */
struct eo_local_post {
    enum eo_local_kind kind;
    eo_dtype dtype;
    uint64_t count; /* bytes of an all-gather's send, elements of a reduce-scatter's recv, of an all-reduce's buffer */
    const char *label;
    const void *send; /* this and the label are addresses of the rank that posts; between processes there are */
    uint64_t place;   /* where send lies, as `shared` tells it, and labels[] */
    uint64_t entered_ns;
};

struct eo_local_rank {
    _Alignas(64) _Atomic uint64_t entered; /* collectives begun: its post of the latest is valid */
    _Alignas(64) _Atomic uint64_t done;    /* of these, those in which it reads nobody's data any more */
    _Atomic bool closed;
    struct eo_local_post posts[2]; /* of collective s: posts[s & 1] */
    char labels[2][EO_LOCAL_LABEL_BYTES]; /* theirs, between processes */
    void *shared; /* the backend's, read by peers: written at open, lives as long as the line */
};

struct eo_local_line {
    struct eo_group *group;
    struct eo_local_line *next;
    uint64_t index;
    uint32_t closed_count;
    void (*drop)(void *shared); /* what ends it for a rank; NULL where there is nothing to end */
    struct eo_gate gate; /* any change of a rank, or a failure of the group */
    struct {
        uint64_t sequence, end_ns;
    } link[2]; /* by parity as posts; under the lock */
    struct eo_local_rank ranks[];
};

/* A rank's part in the splits of a group: of the n-th, answers[n & 1] (two are enough, as of posts). */
struct eo_local_splitter {
    _Atomic uint64_t entered; /* splits begun: its answer to the latest is valid */
    struct {
        uint32_t color, key;
        struct eo_group *group; /* of its color, if this rank was the first to take it; under the lock */
    } answers[2];
};

/* Of a family, wherever its ranks are. */
struct eo_local_common {
    pthread_mutex_t lock; /* its owner may be killed: taken by eo_local_lock */
    _Atomic int failure;  /* eo_status; written once, after the text */
    char text[1024];
    struct eo_fabric fabric;
};

struct eo_group {
    struct eo_group_params params;
    eo_log log;
    _Atomic uint32_t references; /* of this process */
    struct eo_local_common *common; /* the root's `own`, or in memory that processes share */
    struct eo_group *root; /* itself, where it was not split from another */
    struct eo_group *next; /* of the family */
    struct eo_local_line *lines;
    struct eo_gate split_gate;
    struct eo_local_splitter *splitters; /* by rank */
    struct eo_local_common own;
    struct eo_shared_group *shared; /* of ranks that are processes; NULL where they are threads, as these are then: */
    struct eo_local_line *(*line_at)(const struct eo_group *group, uint32_t k); /* the k-th of theirs; NULL: there is none */
    void (*wake)(struct eo_group *group);                   /* all who sleep in a line of the group */
    bool (*is_gone)(struct eo_group *group, uint32_t rank); /* its process has ended */
    void (*drop)(struct eo_group *group);                   /* the last reference is gone: ends `shared` */
    uint64_t opened[]; /* by rank */
};

struct eo_local_end {
    struct eo_group *group;
    struct eo_local_line *line;
    uint32_t rank;
    uint64_t sequence; /* of the meeting in progress; the thread that runs the collectives alone uses it */
    uint64_t number;   /* of the collective, where that is another: some take several meetings. 0: it is not */
};

/* For the backends' tables. */
eo_status eo_local_group_create(struct eo_group **out, const struct eo_group_params *params);
void eo_local_group_release(struct eo_group *group);
void eo_local_group_abort(struct eo_group *group, uint32_t rank, const char *reason);
void eo_local_group_failure(struct eo_group *group, char *text, size_t bytes);
eo_status eo_local_group_split(struct eo_group **out, struct eo_group_place *place, struct eo_group *parent,
                               uint32_t rank, uint32_t color, uint32_t key);

/* With a reference for each rank; `root` NULL: it is one. */
eo_status eo_local_group_make(struct eo_group **out, const struct eo_group_params *params, struct eo_group *root);

/* The first failure counts: it is logged and kept, and all ranks are woken. Returns the failure that counts. */
eo_status eo_local_fail(struct eo_group *group, eo_status status, const char *format, ...) EO_PRINTF(3, 4);

static inline eo_status eo_local_failure(const struct eo_group *group)
{
    return (eo_status)atomic_load(&group->common->failure);
}

/* What lies under it is right at every moment: nothing has to be mended after an owner that was killed. */
void eo_local_lock(struct eo_group *group);
void eo_local_unlock(struct eo_group *group);

/* Joins the rank's next line. EO_ERR_INVALID for a rank or queue that cannot be, EO_ERR_NO_MEMORY. */
eo_status eo_local_end_open(struct eo_local_end *end, struct eo_group *group, uint32_t rank,
                            const struct eo_device *device, uint32_t queue, void *shared);
/* Leaves it; `drop` (or NULL) takes the ranks' `shared` once all have left. */
void eo_local_end_close(struct eo_local_end *end, void (*drop)(void *shared));

static inline struct eo_local_rank *eo_local_self(const struct eo_local_end *end)
{
    return &end->line->ranks[end->rank];
}

/* Of the collective in progress; a peer's is valid from eo_local_meet on. */
static inline const struct eo_local_post *eo_local_post_of(const struct eo_local_end *end, uint32_t rank)
{
    return &end->line->ranks[rank].posts[end->sequence & 1];
}

/* The part of an all-reduce that rank r sums. */
struct eo_local_slice {
    uint64_t begin, count;
};

static inline struct eo_local_slice eo_local_slice_of(const struct eo_group *group, uint64_t count, uint32_t r)
{
    const uint64_t ranks = group->params.rank_count, line = 64; /* slices begin where vectors like to */
    const uint64_t share = (count / ranks + (count % ranks != 0) + line - 1) / line * line;
    const uint64_t begin = share * r < count ? share * r : count;
    return (struct eo_local_slice){begin, share < count - begin ? share : count - begin};
}

/* Begins the next collective. */
void eo_local_enter(struct eo_local_end *end, const struct eo_local_post *post);
/* Waits until all have entered (and do the same), or until all are done. */
eo_status eo_local_meet(struct eo_local_end *end, bool to_leave, uint64_t from_ns);
void eo_local_leave(struct eo_local_end *end);

/* A piece of a wait, of which so much is left; whether it has come. Between pieces the caller looks for what wakes nobody. */
bool eo_local_await_look(struct eo_gate *gate, bool (*ready)(void *arg), void *arg, uint64_t *left_ns);
/* Until no peer reads this rank's memory (or has enqueued all that does); false at the deadline. */
bool eo_local_await_readers(struct eo_local_end *end);

#endif
