/* SPDX-License-Identifier: MIT
 *
 * Two ends of a link that hold the token, and who sits between them: it passes on what they write, changes, drops, repeats
 * and makes up bytes. Whatever it does, an end takes only messages that the other end sent, whole and in their order, and
 * only from the rank that it is. The ends themselves may send messages of any kind and length.
 *
 * The input is a list of what happens: a byte, which end, and what it takes. Random bytes are the same in every run.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cluster/bytes.h"
#include "cluster/link.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 2048};

enum { RANKS = 4, SENT_MAX = 32, WAY_MAX = 1 << 16, BODY_MAX = 4096 };
enum event { EVENT_PASS, EVENT_PASS_ALL, EVENT_MAKE_UP, EVENT_DROP, EVENT_CHANGE, EVENT_REPEAT, EVENT_SEND, EVENT_COUNT };

struct sent_message {
    enum eo_message type;
    size_t bytes;
    unsigned char first; /* all bytes of the body count up from it */
};

struct end {
    struct eo_link *link; /* NULL: it has ended */
    int way;              /* the other side of its socket */
    struct sent_message sent[SENT_MAX];
    uint32_t sent_count, taken_count; /* of its messages by the other end */
};

struct relay {
    struct end ends[2]; /* who was dialled, who dialled */
    struct eo_secret secret;
};

/* ---- random bytes ---- */

static uint64_t random_state;

static uint32_t next_number(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static void fill_bytes(void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)data)[i] = (unsigned char)next_number();
}

static const char *source_name(void)
{
    return "the same in every run";
}

static struct randombytes_implementation same_bytes = {
    .implementation_name = source_name, .random = next_number, .buf = fill_bytes};

/* ---- the ends ---- */

static void open_end(struct relay *relay, int i)
{
    int fds[2];
    FUZZ_HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    struct end *end = &relay->ends[i];
    end->way = fds[1];
    end->link = eo_link_new(fds[0], i == 1, i == 1 ? EO_LINK_LEADER : EO_LINK_NEW, "the other end", (uint32_t)i);
    FUZZ_HOLDS(end->link != NULL);
    if (i == 1) {
        end->link->wanted_rank = 0;
        end->link->state = EO_LINK_AWAITS_HELLO; /* it is connected */
    } else {
        FUZZ_HOLDS(eo_link_greet(end->link, &relay->secret) && eo_link_flush(end->link));
    }
}

static void close_end(struct end *end)
{
    eo_link_free(end->link);
    end->link = NULL;
}

static void send_message(struct end *end, enum eo_message type, size_t bytes, unsigned char first)
{
    unsigned char body[BODY_MAX];
    if (!end->link || end->link->state != EO_LINK_OPEN || end->sent_count == SENT_MAX)
        return;
    for (size_t i = 0; i < bytes; i++)
        body[i] = (unsigned char)(first + i);
    end->sent[end->sent_count++] = (struct sent_message){type, bytes, first};
    FUZZ_HOLDS(eo_link_send(end->link, type, body, bytes));
    if (!eo_link_flush(end->link))
        close_end(end);
}

/* Those of `other`, whole and in their order. */
static void take_messages_of(struct end *end, struct end *other)
{
    const unsigned char *body;
    size_t bytes;
    for (;;) {
        const int type = eo_link_message(end->link, RANKS, &body, &bytes);
        if (type == 0)
            return;
        if (type < 0) {
            close_end(end);
            return;
        }
        FUZZ_HOLDS(other->taken_count < other->sent_count);
        const struct sent_message *sent = &other->sent[other->taken_count++];
        FUZZ_HOLDS(type == (int)sent->type && type > 0 && type < EO_MESSAGE_END && bytes == sent->bytes);
        FUZZ_HOLDS(bytes <= eo_message_bytes_max(sent->type, RANKS));
        for (size_t i = 0; i < bytes; i++)
            FUZZ_HOLDS(body[i] == (unsigned char)(sent->first + i));
        eo_link_consume(end->link);
    }
}

static void read_end(struct relay *relay, int i)
{
    struct end *end = &relay->ends[i];
    while (end->link) {
        const size_t before = end->link->in_bytes;
        const enum eo_link_state state = end->link->state;
        switch (eo_link_read(end->link, &relay->secret)) {
        case EO_LINK_IS_OPEN: FUZZ_HOLDS(end->link->node.rank == (uint32_t)!i); break;
        case EO_LINK_GOES_ON: break;
        case EO_LINK_HAS_ENDED:
        case EO_LINK_IS_REFUSED: close_end(end); return;
        }
        if (end->link->state == EO_LINK_OPEN)
            take_messages_of(end, &relay->ends[!i]);
        if (end->link && !eo_link_flush(end->link))
            close_end(end);
        if (end->link && end->link->in_bytes == before && end->link->state == state)
            return; /* nothing more has come */
    }
}

/* ---- who sits between them ---- */

/* Up to `most` bytes that end i wrote, to the other end, which reads them. */
static void pass_bytes(struct relay *relay, int i, size_t most, size_t changed_at, unsigned char change, bool twice)
{
    static unsigned char bytes[WAY_MAX];
    const ssize_t got = recv(relay->ends[i].way, bytes, most < WAY_MAX ? most : WAY_MAX, 0);
    if (got <= 0)
        return;
    if (change)
        bytes[changed_at % (size_t)got] ^= change;
    for (int times = 0; times < 1 + twice; times++)
        (void)send(relay->ends[!i].way, bytes, (size_t)got, MSG_NOSIGNAL); /* it may have ended */
    read_end(relay, !i);
}

static void let_happen(struct relay *relay, enum event event, int i, struct eo_reader *r)
{
    unsigned char made[256], dropped[256];
    size_t bytes = (size_t)eo_get(r, 1);
    switch (event) {
    case EVENT_PASS: pass_bytes(relay, i, bytes + 1, 0, 0, false); break;
    case EVENT_PASS_ALL: pass_bytes(relay, i, WAY_MAX, 0, 0, false); break;
    case EVENT_MAKE_UP:
        bytes = bytes < (size_t)(r->end - r->at) ? bytes : (size_t)(r->end - r->at);
        if (bytes)
            memcpy(made, eo_get_bytes(r, bytes), bytes);
        (void)send(relay->ends[!i].way, made, bytes, MSG_NOSIGNAL);
        read_end(relay, !i);
        break;
    case EVENT_DROP: (void)!recv(relay->ends[i].way, dropped, bytes, 0); break;
    case EVENT_CHANGE: pass_bytes(relay, i, WAY_MAX, bytes, (unsigned char)eo_get(r, 1), false); break;
    case EVENT_REPEAT: pass_bytes(relay, i, bytes + 1, 0, 0, true); break;
    case EVENT_SEND: {
        const size_t body_bytes = (size_t)eo_get(r, 2) % (BODY_MAX + 1);
        send_message(&relay->ends[i], (enum eo_message)(bytes % (EO_MESSAGE_END + 3)), body_bytes, (unsigned char)bytes);
        break;
    }
    case EVENT_COUNT: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool is_set;
    struct eo_reader r = {data, data + bytes, false};
    struct relay relay = {0};
    if (!is_set)
        FUZZ_HOLDS(randombytes_set_implementation(&same_bytes) == 0);
    is_set = true;
    random_state = 1;
    FUZZ_HOLDS(eo_secret_init(&relay.secret, (const unsigned char *)"32 bytes that nobody else knows.", "job"));
    open_end(&relay, 0);
    open_end(&relay, 1);
    while (!r.overran && r.at < r.end && (relay.ends[0].link || relay.ends[1].link)) {
        const uint64_t what = eo_get(&r, 1);
        let_happen(&relay, (enum event)(what / 2 % EVENT_COUNT), what % 2, &r);
    }
    for (int i = 0; i < 2; i++) {
        close_end(&relay.ends[i]);
        close(relay.ends[i].way);
    }
    return 0;
}
