/* SPDX-License-Identifier: MIT */
#include "cluster/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "cluster/bytes.h"

enum { MAGIC = 0x6e6f7665 }; /* "evon" */
enum { HEAD_BYTES = 4 + 2 + 2, HELLO_BYTES = HEAD_BYTES + EO_NONCE_BYTES };
enum { PROOF_BYTES = HEAD_BYTES + EO_NONCE_BYTES + EO_SHA256_BYTES, VERDICT_BYTES = HEAD_BYTES + EO_SHA256_BYTES };
enum { MESSAGE_HEAD_BYTES = 8, READ_BYTES = 1 << 16 };
enum verdict { VERDICT_GOOD = 1, VERDICT_TOKEN = 2, VERDICT_VERSION = 3 };

struct eo_link *eo_link_new(int fd, bool dialled, enum eo_link_kind kind, const char *name)
{
    struct eo_link *link = calloc(1, sizeof(*link));
    if (!link) {
        close(fd);
        return NULL;
    }
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* a Unix socket does not know it */
    link->fd = fd;
    link->state = dialled ? EO_LINK_CONNECTING : EO_LINK_AWAITS_PROOF;
    link->kind = kind;
    snprintf(link->name, sizeof(link->name), "%s", name);
    return link;
}

void eo_link_free(struct eo_link *link)
{
    if (!link)
        return;
    if (link->fd >= 0)
        close(link->fd);
    free(link->in);
    free(link->out);
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

static bool write_bytes(struct eo_link *link, const void *data, size_t bytes)
{
    if (bytes == 0)
        return true;
    if (link->out_end + bytes > link->out_capacity) {
        if (link->out)
            memmove(link->out, link->out + link->out_begin, link->out_end - link->out_begin);
        link->out_end -= link->out_begin;
        link->out_begin = 0;
        if (link->out_end + bytes > link->out_capacity) {
            const size_t capacity = 2 * (link->out_end + bytes);
            unsigned char *out = realloc(link->out, capacity);
            if (!out)
                return false;
            link->out = out;
            link->out_capacity = capacity;
        }
    }
    memcpy(link->out + link->out_end, data, bytes);
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
            return false;
        }
        link->out_begin += (size_t)sent;
    }
    link->out_begin = link->out_end = 0;
    if (link->out_capacity > 1 << 20) { /* that was a large one */
        free(link->out);
        link->out = NULL;
        link->out_capacity = 0;
    }
    return true;
}

bool eo_link_send(struct eo_link *link, enum eo_message type, const void *body, size_t bytes)
{
    unsigned char head[MESSAGE_HEAD_BYTES];
    struct eo_writer w = {head, head + sizeof(head), false};
    eo_put(&w, bytes, 4);
    eo_put(&w, type, 2);
    eo_put(&w, 0, 2);
    return write_bytes(link, head, sizeof(head)) && write_bytes(link, body, bytes);
}

/* ---- handshake ---- */

static void put_head(struct eo_writer *w, enum verdict verdict)
{
    eo_put(w, MAGIC, 4);
    eo_put(w, EO_PROTOCOL_VERSION, 2);
    eo_put(w, verdict, 2);
}

static void make_proof(const struct eo_link *link, const struct eo_secret *secret, const char *side,
                       unsigned char out[EO_SHA256_BYTES])
{
    struct eo_hmac mac;
    eo_hmac_init(&mac, secret->token, sizeof(secret->token));
    eo_hmac_add(&mac, side, strlen(side) + 1);
    eo_hmac_add(&mac, secret->job, strlen(secret->job) + 1);
    eo_hmac_add(&mac, link->nonces, sizeof(link->nonces));
    eo_hmac_end(&mac, out);
}

bool eo_link_greet(struct eo_link *link)
{
    unsigned char hello[HELLO_BYTES];
    struct eo_writer w = {hello, hello + sizeof(hello), false};
    if (getrandom(link->nonces[0], EO_NONCE_BYTES, 0) != EO_NONCE_BYTES)
        return false;
    put_head(&w, VERDICT_GOOD);
    eo_put_bytes(&w, link->nonces[0], EO_NONCE_BYTES);
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

static bool read_head(struct eo_reader *r, uint32_t *version, uint32_t *verdict)
{
    const bool is_ours = eo_get(r, 4) == MAGIC;
    *version = (uint32_t)eo_get(r, 2);
    *verdict = (uint32_t)eo_get(r, 2);
    return is_ours;
}

static enum eo_link_result on_hello(struct eo_link *link, struct eo_reader *r, const struct eo_secret *secret)
{
    uint32_t version, verdict;
    unsigned char answer[PROOF_BYTES], proof[EO_SHA256_BYTES];
    if (!read_head(r, &version, &verdict))
        return refused(link, "it is not evenodd that listens there");
    if (version != EO_PROTOCOL_VERSION)
        return refused(link, "it speaks version %u, this process version %d: run the same program everywhere", version,
                       EO_PROTOCOL_VERSION);
    memcpy(link->nonces[0], eo_get_bytes(r, EO_NONCE_BYTES), EO_NONCE_BYTES);
    if (getrandom(link->nonces[1], EO_NONCE_BYTES, 0) != EO_NONCE_BYTES)
        return EO_LINK_HAS_ENDED;
    struct eo_writer w = {answer, answer + sizeof(answer), false};
    put_head(&w, VERDICT_GOOD);
    eo_put_bytes(&w, link->nonces[1], EO_NONCE_BYTES);
    make_proof(link, secret, "dialled", proof);
    eo_put_bytes(&w, proof, sizeof(proof));
    link->state = EO_LINK_AWAITS_VERDICT;
    return write_bytes(link, answer, sizeof(answer)) ? EO_LINK_GOES_ON : EO_LINK_HAS_ENDED;
}

static enum eo_link_result on_proof(struct eo_link *link, struct eo_reader *r, const struct eo_secret *secret)
{
    uint32_t version, unused;
    unsigned char answer[VERDICT_BYTES], proof[EO_SHA256_BYTES] = {0};
    const bool is_ours = read_head(r, &version, &unused);
    memcpy(link->nonces[1], eo_get_bytes(r, EO_NONCE_BYTES), EO_NONCE_BYTES);
    make_proof(link, secret, "dialled", proof);
    const bool holds = eo_equal_in_constant_time(proof, eo_get_bytes(r, EO_SHA256_BYTES), EO_SHA256_BYTES);
    const enum verdict verdict = version != EO_PROTOCOL_VERSION ? VERDICT_VERSION
                                 : is_ours && holds             ? VERDICT_GOOD
                                                                : VERDICT_TOKEN;
    struct eo_writer w = {answer, answer + sizeof(answer), false};
    put_head(&w, verdict);
    if (verdict == VERDICT_GOOD)
        make_proof(link, secret, "was dialled", proof);
    else
        memset(proof, 0, sizeof(proof));
    eo_put_bytes(&w, proof, sizeof(proof));
    if (!is_ours)
        return refused(link, "it is not evenodd that calls");
    if (!write_bytes(link, answer, sizeof(answer)))
        return EO_LINK_HAS_ENDED;
    if (verdict == VERDICT_VERSION)
        return refused(link, "it speaks version %u, this process version %d", version, EO_PROTOCOL_VERSION);
    if (verdict == VERDICT_TOKEN)
        return refused(link, "it does not hold the token of this job");
    link->state = EO_LINK_OPEN;
    return EO_LINK_IS_OPEN;
}

static enum eo_link_result on_verdict(struct eo_link *link, struct eo_reader *r, const struct eo_secret *secret)
{
    uint32_t version, verdict;
    unsigned char proof[EO_SHA256_BYTES];
    if (!read_head(r, &version, &verdict))
        return refused(link, "it is not evenodd that listens there");
    if (verdict == VERDICT_VERSION)
        return refused(link, "it speaks version %u, this process version %d: run the same program everywhere", version,
                       EO_PROTOCOL_VERSION);
    make_proof(link, secret, "was dialled", proof);
    if (verdict != VERDICT_GOOD ||
        !eo_equal_in_constant_time(proof, eo_get_bytes(r, EO_SHA256_BYTES), EO_SHA256_BYTES))
        return refused(link, "the tokens differ: give all ranks of the job the same one");
    link->state = EO_LINK_OPEN;
    return EO_LINK_IS_OPEN;
}

static size_t handshake_bytes(enum eo_link_state state)
{
    return state == EO_LINK_AWAITS_HELLO ? HELLO_BYTES : state == EO_LINK_AWAITS_PROOF ? PROOF_BYTES : VERDICT_BYTES;
}

static enum eo_link_result shake_hands(struct eo_link *link, const struct eo_secret *secret)
{
    const size_t bytes = handshake_bytes(link->state);
    if (link->in_bytes < bytes)
        return EO_LINK_GOES_ON;
    struct eo_reader r = {link->in, link->in + bytes, false};
    const enum eo_link_result result = link->state == EO_LINK_AWAITS_HELLO   ? on_hello(link, &r, secret)
                                       : link->state == EO_LINK_AWAITS_PROOF ? on_proof(link, &r, secret)
                                                                             : on_verdict(link, &r, secret);
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
        eo_link_set_end(link, EO_END_BROKEN, "no memory for what it sends");
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

int eo_link_message(struct eo_link *link, uint32_t rank_count, const unsigned char **body, size_t *bytes)
{
    struct eo_reader r = {link->in, link->in + link->in_bytes, false};
    const size_t body_bytes = eo_get(&r, 4);
    const int type = (int)eo_get(&r, 2);
    (void)eo_get(&r, 2);
    if (r.overran)
        return 0;
    if (type == 0 || type >= EO_MESSAGE_END || body_bytes > eo_message_bytes_max((enum eo_message)type, rank_count))
        return -1;
    *body = eo_get_bytes(&r, body_bytes);
    *bytes = body_bytes;
    return r.overran ? 0 : type;
}

void eo_link_consume(struct eo_link *link, size_t body_bytes)
{
    const size_t used = MESSAGE_HEAD_BYTES + body_bytes;
    link->in_bytes -= used;
    memmove(link->in, link->in + used, link->in_bytes);
}
