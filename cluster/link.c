/* SPDX-License-Identifier: MIT */
#include "cluster/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cluster/bytes.h"
#include "cluster/sockets.h"

enum { MAGIC = 0x6e6f7665 }; /* "evon" */
enum { HEAD_BYTES = 4 + 2 + 2, SELF_BYTES = 4 + EO_NONCE_BYTES + EO_KEY_BYTES };
enum {
    HELLO_BYTES = HEAD_BYTES + SELF_BYTES,
    PROOF_BYTES = HEAD_BYTES + SELF_BYTES + EO_PROOF_BYTES,
    VERDICT_BYTES = HEAD_BYTES + EO_PROOF_BYTES,
};
enum { MESSAGE_HEAD_BYTES = 8, READ_BYTES = 1 << 16, BUFFER_BYTES_KEPT = 1 << 20 };
enum verdict { VERDICT_GOOD = 1, VERDICT_TOKEN = 2, VERDICT_VERSION = 3 };

struct eo_link *eo_link_new(int fd, bool dialled, enum eo_link_kind kind, const char *name, uint32_t rank)
{
    struct eo_link *link = calloc(1, sizeof(*link));
    struct eo_link_shake *shake = calloc(1, sizeof(*shake));
    if (!link || !shake) {
        free(link);
        free(shake);
        eo_socket_close(fd);
        return NULL;
    }
    link->shake = shake;
    link->own_rank = rank;
    link->wanted_rank = EO_RANK_ANY;
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* a Unix socket does not know it */
    link->fd = fd;
    link->state = dialled ? EO_LINK_CONNECTING : EO_LINK_AWAITS_PROOF;
    link->kind = kind;
    snprintf(link->name, sizeof(link->name), "%s", name);
    return link;
}

static void end_shake(struct eo_link *link)
{
    if (link->shake)
        sodium_memzero(link->shake, sizeof(*link->shake));
    free(link->shake);
    link->shake = NULL;
}

void eo_link_free(struct eo_link *link)
{
    if (!link)
        return;
    end_shake(link);
    free(link->body);
    if (link->fd >= 0)
        eo_socket_close(link->fd);
    free(link->in);
    free(link->out);
    sodium_memzero(link, sizeof(*link));
    free(link);
}

void eo_link_set_end(struct eo_link *link, enum eo_link_end end, const char *why)
{
    if (link->why[0])
        return;
    link->end = end;
    snprintf(link->why, sizeof(link->why), "%s", why);
}

static void set_end_by_errno(struct eo_link *link, int error)
{
    const bool is_closed = error == ECONNRESET || error == EPIPE || error == ECONNREFUSED;
    const bool is_cut = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN ||
                        error == ENETDOWN || error == ENETRESET;
    eo_link_set_end(link, is_closed ? EO_END_CLOSED : is_cut ? EO_END_CUT : EO_END_BROKEN, strerror(error));
}

/* ---- output ---- */

/* Where so many bytes can be written; NULL: no memory. */
static unsigned char *room_to_write(struct eo_link *link, size_t bytes)
{
    if (link->out_end + bytes > link->out_capacity) {
        if (link->out)
            memmove(link->out, link->out + link->out_begin, link->out_end - link->out_begin);
        link->out_end -= link->out_begin;
        link->out_begin = 0;
        if (link->out_end + bytes > link->out_capacity) {
            const size_t capacity = 2 * (link->out_end + bytes);
            unsigned char *out = realloc(link->out, capacity);
            if (!out)
                return NULL;
            link->out = out;
            link->out_capacity = capacity;
        }
    }
    return link->out + link->out_end;
}

static bool write_bytes(struct eo_link *link, const void *data, size_t bytes)
{
    unsigned char *to = room_to_write(link, bytes);
    if (!to)
        return false;
    memcpy(to, data, bytes);
    link->out_end += bytes;
    return true;
}

bool eo_link_flush(struct eo_link *link)
{
    if (link->state == EO_LINK_CONNECTING)
        return true;
    while (eo_link_has_output(link)) {
        const ssize_t sent = send(link->fd, link->out + link->out_begin, link->out_end - link->out_begin, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (sent < 0) {
            set_end_by_errno(link, errno);
            link->out_begin = link->out_end = 0;
            link->is_shut = true;
            return false;
        }
        link->out_begin += (size_t)sent;
    }
    link->out_begin = link->out_end = 0;
    if (link->out_capacity > BUFFER_BYTES_KEPT) { /* that was a large one */
        free(link->out);
        link->out = NULL;
        link->out_capacity = 0;
    }
    return true;
}

/* Written in one piece: half a message would leave the streams of both ends apart. */
bool eo_link_send(struct eo_link *link, enum eo_message type, const void *body, size_t bytes)
{
    if (link->is_shut)
        return true;
    unsigned char head[MESSAGE_HEAD_BYTES];
    const size_t sealed_bytes = sizeof(head) + EO_SEAL_BYTES + (bytes ? bytes + EO_SEAL_BYTES : 0);
    struct eo_writer w = {head, head + sizeof(head), false};
    unsigned char *to = room_to_write(link, sealed_bytes);
    if (!to)
        return false;
    eo_put(&w, bytes, 4);
    eo_put(&w, type, 2);
    eo_put(&w, 0, 2);
    (void)crypto_secretstream_xchacha20poly1305_push(&link->seals, to, NULL, head, sizeof(head), NULL, 0, 0);
    if (bytes)
        (void)crypto_secretstream_xchacha20poly1305_push(&link->seals, to + sizeof(head) + EO_SEAL_BYTES, NULL, body, bytes,
                                                         NULL, 0, 0);
    link->out_end += sealed_bytes;
    return true;
}

/* ---- handshake ---- */

static void put_head(struct eo_writer *w, uint32_t verdict_or_role)
{
    eo_put(w, MAGIC, 4);
    eo_put(w, EO_PROTOCOL_VERSION, 2);
    eo_put(w, verdict_or_role, 2);
}

/* This end, with a key for this link alone; into the transcript as well. */
static void put_self(struct eo_writer *w, struct eo_link *link, uint32_t role)
{
    unsigned char nonce[EO_NONCE_BYTES];
    const unsigned char *begin = w->at;
    randombytes_buf(nonce, sizeof(nonce));
    crypto_kx_keypair(link->shake->keys.open, link->shake->keys.hidden);
    put_head(w, role);
    eo_put(w, link->own_rank, 4);
    eo_put_bytes(w, nonce, sizeof(nonce));
    eo_put_bytes(w, link->shake->keys.open, EO_KEY_BYTES);
    eo_transcript_add(&link->shake->transcript, begin, (size_t)(w->at - begin));
}

/* The other end, whose head was read. */
static void get_self(struct eo_reader *r, struct eo_link *link, uint32_t role, const unsigned char *begin)
{
    struct eo_link_shake *shake = link->shake;
    shake->role = role;
    shake->rank = (uint32_t)eo_get(r, 4);
    (void)eo_get_bytes(r, EO_NONCE_BYTES);
    memcpy(shake->other, eo_get_bytes(r, EO_KEY_BYTES), EO_KEY_BYTES);
    eo_transcript_add(&shake->transcript, begin, (size_t)(r->at - begin));
}

static void begin_transcript(struct eo_link *link, const struct eo_secret *secret)
{
    eo_transcript_add(&link->shake->transcript, "evenodd control", 16);
    eo_transcript_add(&link->shake->transcript, secret->job, sizeof(secret->job));
}

bool eo_link_greet(struct eo_link *link, const struct eo_secret *secret)
{
    unsigned char hello[HELLO_BYTES];
    struct eo_writer w = {hello, hello + sizeof(hello), false};
    begin_transcript(link, secret);
    put_self(&w, link, 0);
    return write_bytes(link, hello, sizeof(hello));
}

static enum eo_link_result refused(struct eo_link *link, const char *format, ...) EO_PRINTF(2, 3);
static enum eo_link_result refused(struct eo_link *link, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(link->why, sizeof(link->why), format, arguments);
    va_end(arguments);
    return EO_LINK_IS_REFUSED;
}

/* Both ends hold the token: from here on all is sealed. */
static enum eo_link_result open_link(struct eo_link *link, const struct eo_secret *secret, enum eo_side side)
{
    struct eo_link_shake *shake = link->shake;
    unsigned char send[EO_KEY_BYTES], head[EO_STREAM_HEAD_BYTES];
    if (!eo_keys_derive(send, link->open_key, secret, &shake->transcript, side, &shake->keys, shake->other))
        return refused(link, "it sent an invalid key");
    (void)crypto_secretstream_xchacha20poly1305_init_push(&link->seals, head, send);
    sodium_memzero(send, sizeof(send));
    link->node.rank = shake->rank;
    link->node.role = (enum eo_link_kind)shake->role;
    end_shake(link);
    if (!write_bytes(link, head, sizeof(head)))
        return EO_LINK_HAS_ENDED;
    link->state = EO_LINK_OPEN;
    return EO_LINK_IS_OPEN;
}

static enum eo_link_result on_hello(struct eo_link *link, struct eo_reader *r, const struct eo_secret *secret)
{
    unsigned char answer[PROOF_BYTES], proof[EO_PROOF_BYTES];
    struct eo_writer w = {answer, answer + sizeof(answer), false};
    begin_transcript(link, secret);
    get_self(r, link, 0, link->in);
    put_self(&w, link, link->kind);
    eo_proof_make(proof, secret, &link->shake->transcript, EO_SIDE_DIALLED);
    eo_put_bytes(&w, proof, sizeof(proof));
    link->state = EO_LINK_AWAITS_VERDICT;
    return write_bytes(link, answer, sizeof(answer)) ? EO_LINK_GOES_ON : EO_LINK_HAS_ENDED;
}

static bool answer_proof(struct eo_link *link, const struct eo_secret *secret, enum verdict verdict)
{
    unsigned char answer[VERDICT_BYTES], proof[EO_PROOF_BYTES] = {0};
    struct eo_writer w = {answer, answer + sizeof(answer), false};
    put_head(&w, verdict);
    if (verdict == VERDICT_GOOD)
        eo_proof_make(proof, secret, &link->shake->transcript, EO_SIDE_WAS_DIALLED);
    eo_put_bytes(&w, proof, sizeof(proof));
    return write_bytes(link, answer, sizeof(answer));
}

static enum eo_link_result on_proof(struct eo_link *link, struct eo_reader *r, uint32_t role, const struct eo_secret *secret)
{
    get_self(r, link, role, link->in);
    const bool holds = eo_proof_holds(eo_get_bytes(r, EO_PROOF_BYTES), secret, &link->shake->transcript, EO_SIDE_DIALLED);
    if (!answer_proof(link, secret, holds ? VERDICT_GOOD : VERDICT_TOKEN))
        return EO_LINK_HAS_ENDED;
    if (!holds)
        return refused(link, "it does not hold the token of this job");
    return open_link(link, secret, EO_SIDE_WAS_DIALLED);
}

static enum eo_link_result on_verdict(struct eo_link *link, struct eo_reader *r, uint32_t verdict,
                                      const struct eo_secret *secret)
{
    const unsigned char *proof = eo_get_bytes(r, EO_PROOF_BYTES);
    if (verdict != VERDICT_GOOD || !eo_proof_holds(proof, secret, &link->shake->transcript, EO_SIDE_WAS_DIALLED))
        return refused(link, "the tokens differ; give all ranks of the job the same one");
    if (link->wanted_rank != EO_RANK_ANY && link->shake->rank != link->wanted_rank)
        return refused(link, "rank %u answered in place of rank %u", link->shake->rank, link->wanted_rank);
    return open_link(link, secret, EO_SIDE_DIALLED);
}

static size_t handshake_bytes(enum eo_link_state state)
{
    return state == EO_LINK_AWAITS_HELLO ? HELLO_BYTES : state == EO_LINK_AWAITS_PROOF ? PROOF_BYTES : VERDICT_BYTES;
}

static const char *first_difference(const unsigned char *data, size_t bytes)
{
    static const unsigned char magic[4] = {MAGIC & 0xff, MAGIC >> 8 & 0xff, MAGIC >> 16 & 0xff, MAGIC >> 24 & 0xff};
    return memcmp(data, magic, bytes < 4 ? bytes : 4) != 0 ? "it is not evenodd" : NULL;
}

/* What is no handshake, or one of another version, is refused as soon as that is seen: another version's is not as long. */
static enum eo_link_result shake_hands(struct eo_link *link, const struct eo_secret *secret)
{
    const bool calls = link->state == EO_LINK_AWAITS_PROOF;
    const size_t bytes = handshake_bytes(link->state);
    struct eo_reader r = {link->in, link->in + bytes, false};
    const char *stranger = first_difference(link->in, link->in_bytes);
    if (stranger)
        return refused(link, "%s (it %s)", stranger, calls ? "calls" : "listens there");
    if (link->in_bytes < HEAD_BYTES)
        return EO_LINK_GOES_ON;
    (void)eo_get(&r, 4);
    const uint32_t version = (uint32_t)eo_get(&r, 2), verdict_or_role = (uint32_t)eo_get(&r, 2);
    if (version != EO_PROTOCOL_VERSION || (!calls && verdict_or_role == VERDICT_VERSION)) {
        if (calls && !answer_proof(link, secret, VERDICT_VERSION))
            return EO_LINK_HAS_ENDED;
        return refused(link, "it speaks version %u, this process version %d%s", version, EO_PROTOCOL_VERSION,
                       calls ? "" : "; run the same program everywhere");
    }
    if (link->in_bytes < bytes)
        return EO_LINK_GOES_ON;
    const enum eo_link_result result = link->state == EO_LINK_AWAITS_HELLO ? on_hello(link, &r, secret)
                                       : calls ? on_proof(link, &r, verdict_or_role, secret)
                                               : on_verdict(link, &r, verdict_or_role, secret);
    link->in_bytes -= bytes;
    memmove(link->in, link->in + bytes, link->in_bytes);
    return result;
}

/* ---- input ---- */

static bool make_room(struct eo_link *link, size_t bytes)
{
    if (link->in_capacity - link->in_bytes >= bytes)
        return true;
    const size_t capacity = 2 * (link->in_bytes + bytes);
    unsigned char *in = realloc(link->in, capacity);
    if (!in)
        return false;
    link->in = in;
    link->in_capacity = capacity;
    return true;
}

enum eo_link_result eo_link_read(struct eo_link *link, const struct eo_secret *secret)
{
    /* A stranger may send no more than its handshake takes. */
    const bool is_open = link->state == EO_LINK_OPEN || link->state == EO_LINK_ENDING;
    const size_t wanted = is_open ? READ_BYTES : handshake_bytes(link->state) - link->in_bytes;
    if (!make_room(link, wanted)) {
        eo_link_set_end(link, EO_END_BROKEN, "no memory for its data");
        return EO_LINK_HAS_ENDED;
    }
    const ssize_t got = recv(link->fd, link->in + link->in_bytes, wanted, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
        return EO_LINK_GOES_ON;
    if (got <= 0) {
        if (got == 0)
            eo_link_set_end(link, EO_END_CLOSED, "connection closed");
        else
            set_end_by_errno(link, errno);
        return EO_LINK_HAS_ENDED;
    }
    link->in_bytes += (size_t)got;
    link->silent_ns = 0;
    if (link->state == EO_LINK_ENDING)
        link->in_bytes = 0;
    return is_open ? EO_LINK_GOES_ON : shake_hands(link, secret);
}

static void drop_input(struct eo_link *link, size_t bytes)
{
    link->in_bytes -= bytes;
    memmove(link->in, link->in + bytes, link->in_bytes);
}

/* Opens what comes next, if it is there in full, and was sealed as the next one by the other end. 1, 0, -1. */
static int open_next(struct eo_link *link, unsigned char *out, size_t bytes)
{
    const size_t sealed_bytes = bytes + EO_SEAL_BYTES;
    unsigned char tag;
    if (link->in_bytes < sealed_bytes)
        return 0;
    if (crypto_secretstream_xchacha20poly1305_pull(&link->opens, out, NULL, &tag, link->in, sealed_bytes, NULL, 0) != 0) {
        eo_link_set_end(link, EO_END_BROKEN, "a message was changed, lost, repeated or inserted on its way; check who can "
                        "reach this network");
        return -1;
    }
    drop_input(link, sealed_bytes);
    return 1;
}

/* A head is believed when it has been opened, and its length then bounded by its kind. */
static int open_head(struct eo_link *link, uint32_t rank_count)
{
    unsigned char head[MESSAGE_HEAD_BYTES];
    struct eo_reader r = {head, head + sizeof(head), false};
    if (!link->opens_begun) {
        if (link->in_bytes < EO_STREAM_HEAD_BYTES)
            return 0;
        (void)crypto_secretstream_xchacha20poly1305_init_pull(&link->opens, link->in, link->open_key);
        sodium_memzero(link->open_key, sizeof(link->open_key));
        drop_input(link, EO_STREAM_HEAD_BYTES);
        link->opens_begun = true;
    }
    const int opened = open_next(link, head, sizeof(head));
    if (opened <= 0)
        return opened;
    link->body_bytes = (uint32_t)eo_get(&r, 4);
    link->body_type = (uint32_t)eo_get(&r, 2);
    link->has_head = true;
    if (link->body_type == 0 || link->body_type >= EO_MESSAGE_END ||
        link->body_bytes > eo_message_bytes_max((enum eo_message)link->body_type, rank_count)) {
        eo_link_set_end(link, EO_END_BROKEN, "it sent an invalid message");
        return -1;
    }
    return 1;
}

/* Kept, so that beats allocate nothing. */
static bool make_room_for_body(struct eo_link *link)
{
    if (link->body_bytes <= link->body_capacity)
        return true;
    free(link->body);
    link->body = malloc(link->body_bytes);
    link->body_capacity = link->body ? link->body_bytes : 0;
    return link->body != NULL;
}

int eo_link_message(struct eo_link *link, uint32_t rank_count, const unsigned char **body, size_t *bytes)
{
    static const unsigned char no_body[1];
    if (!link->has_head) {
        const int opened = open_head(link, rank_count);
        if (opened <= 0)
            return opened;
    }
    *bytes = link->body_bytes;
    *body = no_body;
    if (link->body_bytes == 0)
        return (int)link->body_type;
    if (link->in_bytes < link->body_bytes + (size_t)EO_SEAL_BYTES)
        return 0;
    if (!make_room_for_body(link)) {
        eo_link_set_end(link, EO_END_BROKEN, "no memory for its data");
        return -1;
    }
    *body = link->body;
    const int opened = open_next(link, link->body, link->body_bytes);
    return opened <= 0 ? opened : (int)link->body_type;
}

void eo_link_consume(struct eo_link *link)
{
    link->has_head = false;
    if (link->body_capacity > BUFFER_BYTES_KEPT) {
        free(link->body);
        link->body = NULL;
        link->body_capacity = 0;
    }
}
