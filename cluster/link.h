/* SPDX-License-Identifier: MIT
 *
 * A link: a socket to another rank, whose two ends have shown each other that they hold the token.
 *
 *     who was dialled     magic, version, 32 random bytes
 *     who dialled         magic, version, 32 random bytes, proof
 *     who was dialled     magic, version, verdict, proof
 *
 * A proof is the HMAC, with the token, of which side it is, the job and both random numbers; it is compared in constant
 * time. Then messages: length of the body (4), kind (2), zero (2), body. Nothing is read that was not asked for: sizes
 * are known, or bounded by the kind of message, and memory grows with what has come, not with what is announced.
 * Sockets do not block; whoever does not finish the handshake in time is dropped.
 */
#ifndef EO_CLUSTER_LINK_H
#define EO_CLUSTER_LINK_H

#include <sys/socket.h>

#include "cluster/node.h"
#include "cluster/sha256.h"

enum { EO_PROTOCOL_VERSION = 1, EO_NONCE_BYTES = 32 };

enum eo_link_state {
    EO_LINK_CONNECTING,
    EO_LINK_AWAITS_HELLO,   /* dialled */
    EO_LINK_AWAITS_VERDICT, /* dialled */
    EO_LINK_AWAITS_PROOF,   /* was dialled */
    EO_LINK_OPEN,
    EO_LINK_ENDING,         /* nothing is taken any more; what is written leaves */
};

/* What both ends must share. */
struct eo_secret {
    unsigned char token[32];
    char job[256];
};

struct eo_link {
    struct eo_node_link node; /* first: the node knows links by it */
    struct eo_link *next;
    int fd;
    enum eo_link_state state;
    enum eo_link_kind kind;   /* that it becomes when it is open */
    char name[96];            /* of the other end's address */
    uint64_t opened_ns, silent_ns;
    unsigned char nonces[2][EO_NONCE_BYTES]; /* of who was dialled, of who dialled */
    unsigned char *in, *out;
    size_t in_bytes, in_capacity, out_begin, out_end, out_capacity;
    bool ended, in_node;      /* to be freed; the node knows it */
    bool is_shut;             /* it writes no more */
    enum eo_link_end end;     /* how it ended, and in words: */
    char why[128];
};

enum eo_link_result {
    EO_LINK_GOES_ON,
    EO_LINK_IS_OPEN,    /* from now on it takes messages */
    EO_LINK_HAS_ENDED,  /* `why` says why */
    EO_LINK_IS_REFUSED, /* the other end, or this one, does not hold the token or is of another version: `why` */
};

/* Takes a connected or connecting socket. NULL: no memory, and it is closed. */
struct eo_link *eo_link_new(int fd, bool dialled, enum eo_link_kind kind, const char *name);
void eo_link_free(struct eo_link *link);

/* Of one that was dialled: says hello. False: no random bytes, no memory. */
bool eo_link_greet(struct eo_link *link);

/* The first reason for its end stays. */
void eo_link_set_end(struct eo_link *link, enum eo_link_end end, const char *why);

/* Reads what there is, and goes on with the handshake. */
enum eo_link_result eo_link_read(struct eo_link *link, const struct eo_secret *secret);
/* The next whole message of an open link, 0: there is none; -1: it is too long. Valid until the next call. */
int eo_link_message(struct eo_link *link, uint32_t rank_count, const unsigned char **body, size_t *bytes);
void eo_link_consume(struct eo_link *link, size_t body_bytes);

/* Writes as much as the socket takes. False: it has ended. */
bool eo_link_flush(struct eo_link *link);
bool eo_link_send(struct eo_link *link, enum eo_message type, const void *body, size_t bytes);

static inline bool eo_link_has_output(const struct eo_link *link)
{
    return link->out_begin < link->out_end;
}

#endif
