/* SPDX-License-Identifier: MIT
 *
 * A link: a socket to another rank, whose two ends have shown each other that they hold the token.
 *
 *     who was dialled     magic, version, 0, rank, 32 random bytes, key
 *     who dialled         magic, version, role, rank, 32 random bytes, key, proof
 *     who was dialled     magic, version, verdict, proof
 *
 * Proofs and keys are seal.h's; nothing that came is used before the proof over all of it holds, but the version, to say so
 * where it is another. Then messages, each direction a stream of its own that is encrypted, authenticated and numbered:
 * a sealed head (length of the body (4), kind (2), zero (2)), and the sealed body. Nothing is read that was not asked for:
 * sizes are known, or bounded by the kind of message, and memory grows with what has come, not with what is announced.
 * Sockets do not block; whoever does not finish the handshake in time is dropped.
 */
#ifndef EO_CLUSTER_LINK_H
#define EO_CLUSTER_LINK_H

#include <sys/socket.h>

#include "cluster/node.h"
#include "cluster/seal.h"

#define EO_RANK_ANY UINT32_MAX
enum { EO_PROTOCOL_VERSION = 3, EO_NONCE_BYTES = 32 };

enum eo_link_state {
    EO_LINK_CONNECTING,
    EO_LINK_AWAITS_HELLO,   /* dialled */
    EO_LINK_AWAITS_VERDICT, /* dialled */
    EO_LINK_AWAITS_PROOF,   /* was dialled */
    EO_LINK_OPEN,
    EO_LINK_ENDING,         /* nothing is taken any more; what is written leaves */
};

/* While hands are shaken. */
struct eo_link_shake {
    struct eo_transcript transcript;
    struct eo_key_pair keys;
    unsigned char other[EO_KEY_BYTES];
    uint32_t rank, role; /* that the other end says to have */
};

struct eo_link {
    struct eo_node_link node; /* first: the node knows links by it */
    struct eo_link *next;
    int fd;
    enum eo_link_state state;
    enum eo_link_kind kind;   /* that it becomes when it is open */
    char name[96];            /* of the other end's address */
    uint64_t opened_ns, silent_ns;
    uint32_t own_rank, wanted_rank; /* of the other end, of a link that was dialled; EO_RANK_ANY */
    struct eo_link_shake *shake;    /* NULL: it is over */
    crypto_secretstream_xchacha20poly1305_state seals, opens;
    unsigned char open_key[EO_KEY_BYTES]; /* until the other end's stream has begun */
    bool opens_begun, has_head;
    uint32_t body_bytes, body_type; /* of the message that is coming, has_head */
    unsigned char *body;            /* opened */
    size_t body_capacity;
    unsigned char *in, *out;
    size_t in_bytes, in_capacity, out_begin, out_end, out_capacity;
    bool ended, in_node;      /* to be freed; the node knows it */
    bool is_shut;             /* it writes no more; what has come can still be read */
    enum eo_link_end end;     /* how it ended, and in words: */
    char why[128];
};

enum eo_link_result {
    EO_LINK_GOES_ON,
    EO_LINK_IS_OPEN,    /* from now on it takes messages */
    EO_LINK_HAS_ENDED,  /* `why` says why */
    EO_LINK_IS_REFUSED, /* the other end, or this one, does not hold the token or is of another version: `why` */
};

/* Takes a connected or connecting socket. NULL: no memory, and it is closed. `rank`: this process's. */
struct eo_link *eo_link_new(int fd, bool dialled, enum eo_link_kind kind, const char *name, uint32_t rank);
void eo_link_free(struct eo_link *link);

/* Of one that was dialled: says hello. False: no memory. */
bool eo_link_greet(struct eo_link *link, const struct eo_secret *secret);

/* The first reason for its end stays. */
void eo_link_set_end(struct eo_link *link, enum eo_link_end end, const char *why);

/* Reads what there is, and goes on with the handshake. */
enum eo_link_result eo_link_read(struct eo_link *link, const struct eo_secret *secret);
/* The next whole message of an open link, 0: there is none; -1: it cannot be one, `why`. Valid until the next call. */
int eo_link_message(struct eo_link *link, uint32_t rank_count, const unsigned char **body, size_t *bytes);
void eo_link_consume(struct eo_link *link);

/* Writes as much as the socket takes. False: the other end takes no more. What it said before can be read, and then its end. */
bool eo_link_flush(struct eo_link *link);
/* Nothing where the link writes no more. False: no memory. */
bool eo_link_send(struct eo_link *link, enum eo_message type, const void *body, size_t bytes);

static inline bool eo_link_has_output(const struct eo_link *link)
{
    return link->out_begin < link->out_end;
}

#endif
