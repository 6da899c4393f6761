/* SPDX-License-Identifier: MIT
 *
 * What a rank does with messages of other ranks: a state machine without sockets, threads or clocks, so that sixteen
 * thousand of them can be run in one test. rendezvous_thread.c gives it links that are sockets.
 *
 *     root      rank 0
 *     leader    of each host, the rank with local rank 0; the root leads its own
 *     leaf      the other ranks of a host; linked with their leader alone
 *
 * Joining: a leaf tells its leader who it is. A leader that has all ranks of its host sends the root one message. The
 * root, when it has all ranks, tells each leader whom it belongs to in a tree of hosts (EO_NODE_FANOUT children each);
 * the leader dials that one and then leaves the root alone. Everything after goes along this tree:
 *
 *     gather    each rank has a blob; parts go up, the whole goes down. The first one, number 0, tells all who is who
 *     failure   a rank lost, or one that gave up: goes to all, over every link, once; also while ranks join, and over links
 *               that come after it
 *
 * Nothing here trusts a message: whoever is at the other end has shown that it holds the token, but may be of another
 * version of the program or wrongly started.
 */
#ifndef EO_CLUSTER_NODE_H
#define EO_CLUSTER_NODE_H

#include <evenodd/log.h>
#include <evenodd/status.h>

enum {
    EO_NODE_FANOUT = 8,
    EO_HOST_BYTES = 64,
    EO_ACTIVITY_BYTES = 112,
    EO_FAILURE_BYTES = 1024,
    EO_GATHER_BYTES_MAX = 4096, /* of one rank */
};

enum eo_message {
    EO_MESSAGE_JOIN = 1, /* leaf -> leader -> root: endpoint, ranks */
    EO_MESSAGE_WELCOME,  /* back: who answers */
    EO_MESSAGE_REFUSED,  /* back: why */
    EO_MESSAGE_PLACE,    /* root -> leader: its parent, how many children */
    EO_MESSAGE_CHILD,    /* leader -> its parent: who it is */
    EO_MESSAGE_UP,       /* a part of a gather */
    EO_MESSAGE_DOWN,     /* all of it */
    EO_MESSAGE_BEAT,     /* alive, and doing what */
    EO_MESSAGE_FAILURE,
    EO_MESSAGE_LEAVE,    /* that the link ends now is no loss */
    EO_MESSAGE_END,
};

struct eo_member {
    uint32_t rank, pid;
    char host[EO_HOST_BYTES];
    uint64_t machine; /* eo_machine_number; travels with the first gather alone */
};

/* Where a leader listens. */
struct eo_endpoint {
    uint8_t family; /* 4, 6, or 0: nowhere */
    uint16_t port;
    unsigned char address[16];
    uint32_t rank; /* who listens */
};

enum eo_link_kind {
    EO_LINK_NEW,    /* nobody has said yet what it is */
    EO_LINK_LEAF,   /* a leader's, to a rank of its host */
    EO_LINK_HOST,   /* the root's, to a leader that is not (or no longer) its child */
    EO_LINK_CHILD,  /* to a leader below */
    EO_LINK_LEADER, /* a leaf's */
    EO_LINK_ROOT,   /* a leader's, until it is placed */
    EO_LINK_PARENT,
};

/* How a link came to its end. */
enum eo_link_end {
    EO_END_CLOSED, /* by the other process, or by its kernel when it ended */
    EO_END_SILENT, /* no sign of life */
    EO_END_CUT,    /* the network gave it up: nobody says that the process has ended */
    EO_END_BROKEN, /* by this process: what came cannot be used, or there is no memory for it */
};

struct eo_node_link {
    struct eo_node_link *next;
    enum eo_link_kind kind;
    uint32_t rank;           /* of the other end, as its proof has shown, */
    enum eo_link_kind role;  /* and what the link is to it: LEADER, ROOT or PARENT; NEW where this end has dialled */
    bool known, left; /* `peer` is; it said good-bye */
    bool contributed; /* to the gather in progress */
    struct eo_member peer;
    struct eo_endpoint endpoint; /* HOST: where it listens */
    char activity[EO_ACTIVITY_BYTES]; /* what it did last */
};

struct eo_failure {
    eo_status status;
    uint32_t rank; /* whose; UINT32_MAX: nobody's */
    bool lost;     /* its process ended or does not answer; else it gave up by itself, and `text` says why */
    char text[EO_FAILURE_BYTES];
};

struct eo_node_ops {
    /* `body` lives during the call. */
    void (*send)(void *user, struct eo_node_link *link, enum eo_message type, const void *body, size_t bytes);
    void (*drop)(void *user, struct eo_node_link *link); /* ends it when what was sent has left; not within the call */
    void (*dial)(void *user, const struct eo_endpoint *endpoint); /* later: eo_node_up(EO_LINK_PARENT) */
    /* `all`: rank_count x bytes, by rank, during the call. Number 0 is the node's own: then `joined` is called. */
    void (*gathered)(void *user, const unsigned char *all, uint32_t bytes);
    void (*joined)(void *user, const unsigned char *all); /* eo_node_member takes them out */
    void (*failed)(void *user, const struct eo_failure *failure); /* once */
    void (*log)(void *user, eo_log_level level, const char *text);
};

struct eo_node {
    const struct eo_node_ops *ops;
    void *user;
    struct eo_member self;
    uint32_t rank_count, local_rank, local_count;
    struct eo_endpoint endpoint;

    struct eo_node_link *links;
    struct eo_node_link *up; /* leaf: its leader; leader: the root, then its parent; root: none */
    uint32_t leaf_count;     /* that have joined */
    uint32_t child_count;    /* hosts below */
    uint32_t parent_rank;    /* leader, once it is placed */
    bool told_root, placed, joined;
    struct eo_failure failure; /* status 0: none */

    /* the root's */
    struct eo_member *members; /* by rank; on a leader those of its host, in order of coming */
    unsigned char *present;    /* by rank: 0 not heard of, 1 heard of, 2 joined */
    uint32_t member_count, host_count;
    char refused[512];         /* who, and why */

    /* the gather in progress */
    uint64_t gather_number;
    uint32_t gather_bytes; /* of a rank */
    bool gather_own, gather_any, gather_sent;
    unsigned char *parts;  /* rank and blob, in order of coming */
    size_t part_bytes, part_capacity;
};

struct eo_node_params {
    struct eo_member self;
    uint32_t rank_count, local_rank, local_count;
    struct eo_endpoint endpoint;
};

EO_NODISCARD eo_status eo_node_init(struct eo_node *node, const struct eo_node_params *params,
                                    const struct eo_node_ops *ops, void *user);
void eo_node_fini(struct eo_node *node);

/* A rank alone in its world, or a host alone: nothing comes in that would start it. */
void eo_node_start(struct eo_node *node);

/* A link is there, its other end has the token. `kind` is NEW for one that came in. The caller owns `link`. */
void eo_node_up(struct eo_node *node, struct eo_node_link *link, enum eo_link_kind kind);
/* A whole message. False: it makes no sense, drop the link. */
bool eo_node_take(struct eo_node *node, struct eo_node_link *link, enum eo_message type, const unsigned char *body,
                  size_t bytes);
/* The link has ended; the node forgets it. `why`: in words, where it is SILENT for how long. */
void eo_node_down(struct eo_node *node, struct eo_node_link *link, enum eo_link_end end, const char *why);

/* This rank's blob of the next gather; one at a time. EO_ERR_NO_MEMORY. */
EO_NODISCARD eo_status eo_node_gather(struct eo_node *node, const void *blob, uint32_t bytes);
void eo_node_fail(struct eo_node *node, const struct eo_failure *failure);
/* What lies on all links to say on, at every beat. */
void eo_node_beat(struct eo_node *node, const char *activity);
void eo_node_leave(struct eo_node *node);
/* A leader that waits for ranks of its host tells the root which have come, so that the root can say who is missing. */
void eo_node_tell_partial(struct eo_node *node);
/* Who has not come, as words. */
void eo_node_missing(const struct eo_node *node, char *text, size_t bytes);
/*
 * The gather in progress (`gather_any`) waits for too long: that is the failure, with the names of who has not come. The
 * first rank of a host knows which of its host's have; where it lacks none of them it waits for other hosts, whose own
 * first ranks know better, so it says something only when it is asked `for_hosts` too.
 */
void eo_node_gather_is_late(struct eo_node *node, double waited_s, bool for_hosts);

/* The largest body that a message of this kind may have in a world of so many ranks. */
size_t eo_message_bytes_max(enum eo_message type, uint32_t rank_count);
/* Of what `joined` is given; `all` has a part of every rank. */
struct eo_member eo_node_member(const unsigned char *all, uint32_t rank);
/* "rank 3 (host lab-2, process 4711)" */
void eo_member_text(const struct eo_member *member, char *text, size_t bytes);

#endif
