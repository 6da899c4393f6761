/* SPDX-License-Identifier: MIT
 *
 * Goal: who has the token, and sends what makes no sense, is dropped, and takes no memory for what it announces.
 * Method: a link whose other end is the test; a node that is given messages made of chance, whole and changed ones, and answers
 * to what it has not asked yet.
 */
#include <evenodd/cluster.h>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/bytes.h"
#include "cluster/link.h"
#include "cluster/node.h"
#include "cluster/sockets.h"
#include "tests/tap/tap.h"

enum { MESSAGES = 50000, RANKS = 8 };

/* ---- a link ---- */

static struct eo_secret secret;

static bool shake_hands(struct eo_link *was_dialled, struct eo_link *dialled)
{
    dialled->state = EO_LINK_AWAITS_HELLO;
    return eo_link_greet(was_dialled, &secret) && eo_link_flush(was_dialled) &&
           eo_link_read(dialled, &secret) == EO_LINK_GOES_ON && eo_link_flush(dialled) &&
           eo_link_read(was_dialled, &secret) == EO_LINK_IS_OPEN && eo_link_flush(was_dialled) &&
           eo_link_read(dialled, &secret) == EO_LINK_IS_OPEN;
}

/* What is announced, and a little of it, is sent; the result of taking it, and what memory was taken. */
static int announce(uint32_t bytes, uint32_t type, uint32_t rank_count, size_t *capacity)
{
    int ends[2];
    unsigned char head[8], sealed[sizeof(head) + EO_SEAL_BYTES];
    const unsigned char *body;
    size_t body_bytes;
    struct eo_writer w = {head, head + sizeof(head), false};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0)
        exit(1);
    struct eo_link *a = eo_link_new(ends[0], false, EO_LINK_NEW, "a", 0), *b = eo_link_new(ends[1], true, EO_LINK_PARENT, "b", 1);
    if (!a || !b || !shake_hands(a, b))
        exit(1);
    eo_put(&w, bytes, 4);
    eo_put(&w, type, 2);
    eo_put(&w, 0, 2);
    (void)crypto_secretstream_xchacha20poly1305_push(&b->seals, sealed, NULL, head, sizeof(head), NULL, 0, 0);
    int result = eo_link_flush(b) && send(ends[1], sealed, sizeof(sealed), 0) == sizeof(sealed) &&
                 send(ends[1], head, 4, 0) == 4 ? 0 : -2;
    if (eo_link_read(a, &secret) != EO_LINK_GOES_ON)
        result = -2;
    else
        result = eo_link_message(a, rank_count, &body, &body_bytes);
    *capacity = a->in_capacity;
    eo_link_free(a);
    eo_link_free(b);
    return result;
}

/* More than a socket takes at once: the rest waits for its reader, and no byte is lost. */
static bool passes_whole(size_t bytes)
{
    int ends[2];
    const unsigned char *body = NULL;
    size_t taken = 0;
    unsigned char *sent = malloc(bytes);
    if (!sent || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0)
        exit(1);
    struct eo_link *a = eo_link_new(ends[0], false, EO_LINK_NEW, "a", 0),
                   *b = eo_link_new(ends[1], true, EO_LINK_PARENT, "b", 1);
    if (!a || !b || !shake_hands(a, b))
        exit(1);
    for (size_t i = 0; i < bytes; i++)
        sent[i] = (unsigned char)(i * 7 + i / 251);
    bool holds = eo_link_send(b, EO_MESSAGE_UP, sent, bytes) && eo_link_flush(b) && eo_link_has_output(b) && !b->is_shut;
    int type = 0;
    while (holds && type == 0) {
        holds = eo_link_read(a, &secret) == EO_LINK_GOES_ON && eo_link_flush(b);
        type = eo_link_message(a, 16384, &body, &taken);
    }
    holds = holds && type == EO_MESSAGE_UP && taken == bytes && memcmp(body, sent, bytes) == 0 && !eo_link_has_output(b);
    eo_link_free(a);
    eo_link_free(b);
    free(sent);
    return holds;
}

static void links(void)
{
    size_t capacity;
    tap(announce(UINT32_MAX, EO_MESSAGE_UP, 16384, &capacity) == -1 && capacity < 1 << 20,
        "a message of 4 GiB is refused when it is announced");
    tap(announce((uint32_t)eo_message_bytes_max(EO_MESSAGE_UP, 16384), EO_MESSAGE_UP, 16384, &capacity) == 0 &&
            capacity < 1 << 20, "the largest that may be is waited for, and takes memory as it comes: %zu bytes", capacity);
    tap(announce((uint32_t)eo_message_bytes_max(EO_MESSAGE_BEAT, 4) + 1, EO_MESSAGE_BEAT, 4, &capacity) == -1,
        "a byte more than its kind may have is refused");
    tap(announce(4, 0, 4, &capacity) == -1 && announce(4, EO_MESSAGE_END, 4, &capacity) == -1 &&
            announce(4, 0xffff, 4, &capacity) == -1, "so are kinds that are not known");
    tap(passes_whole(eo_message_bytes_max(EO_MESSAGE_UP, 16384) / 8),
        "a message larger than its socket's buffer arrives whole");
}

/* Data that nobody takes are given up by the kernel: the same error as of a host that is cut off. */
static void timed_out(void)
{
    static char data[1 << 20];
    const unsigned int timeout_ms = 50;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    enum eo_link_result result = EO_LINK_GOES_ON;
    const int listener = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, bytes) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &bytes) != 0 ||
        connect(from, (struct sockaddr *)&address, bytes) != 0)
        exit(1);
    struct eo_link *link = eo_link_new(from, false, EO_LINK_NEW, "a", 0);
    if (!link || setsockopt(from, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms)) != 0)
        exit(1);
    while (send(from, data, sizeof(data), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) { /* until nobody takes more */
    }
    for (int i = 0; i < 1000 && result == EO_LINK_GOES_ON; i++) {
        struct pollfd look = {.fd = from, .events = POLLIN};
        if (poll(&look, 1, 10) == 1)
            result = eo_link_read(link, &secret);
    }
    tap(result == EO_LINK_HAS_ENDED && link->end == EO_END_CUT, "a link that has timed out was not closed by a process: %s",
        link->why);
    eo_link_free(link);
    close(listener);
}

/* ---- a node ---- */

static uint64_t state = 88172645463325252u;

static uint32_t chance(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 16) % below);
}

struct hostile {
    struct eo_node node;
    struct eo_node_link links[RANKS];
    bool is_up[RANKS];
    uint32_t taken, refused, failures;
    size_t parts_most;
};

static void on_send(void *user, struct eo_node_link *link, enum eo_message type, const void *body, size_t bytes)
{
    volatile unsigned char last = bytes ? ((const unsigned char *)body)[bytes - 1] : 0; /* it is all there to be read */
    (void)last;
}

static void on_drop(void *user, struct eo_node_link *link)
{
}

static void on_dial(void *user, const struct eo_endpoint *endpoint)
{
}

static void on_gathered(void *user, const unsigned char *all, uint32_t bytes)
{
    volatile unsigned char last = all[RANKS * (size_t)bytes - 1];
    (void)last;
}

static void on_joined(void *user, const unsigned char *all)
{
    for (uint32_t r = 0; r < RANKS; r++)
        (void)eo_node_member(all, r);
}

static void on_failed(void *user, const struct eo_failure *failure)
{
    ((struct hostile *)user)->failures += memchr(failure->text, 0, sizeof(failure->text)) != NULL;
}

static void on_log(void *user, eo_log_level level, const char *text)
{
}

static const struct eo_node_ops ops = {on_send, on_drop, on_dial, on_gathered, on_joined, on_failed, on_log};

/* Begins as a message of its kind does, and goes on by chance; or all of it does. */
static size_t make_message(enum eo_message type, unsigned char *body)
{
    const size_t most = eo_message_bytes_max(type, RANKS);
    struct eo_writer w = {body, body + most, false};
    const bool is_upward = type == EO_MESSAGE_UP || type == EO_MESSAGE_DOWN;
    const uint32_t blob = 1 + chance(100), count = 1 + chance(RANKS);
    if (type == EO_MESSAGE_JOIN) {
        eo_put(&w, chance(4), 1);
        eo_put(&w, chance(8) ? RANKS : chance(100), 4);
        for (int i = 0; i < 23; i++)
            eo_put(&w, chance(256), 1);
        eo_put(&w, chance(4) ? 1 : chance(RANKS + 4), 4);
    } else if (is_upward) {
        eo_put(&w, chance(3) ? chance(2) : chance(100), 8);
        eo_put(&w, chance(3) ? 68 : blob, 4);
    }
    const size_t wanted = type == EO_MESSAGE_UP ? 12 + count * (4 + 68u) : (size_t)chance((uint32_t)most + 1);
    while ((size_t)(w.at - body) < wanted && !w.overran)
        eo_put(&w, chance(3) ? chance(RANKS + 1) : chance(256), chance(2) ? 4 : 1);
    return w.overran || chance(10) == 0 ? chance((uint32_t)most + 1) : (size_t)(w.at - body);
}

static void begin_node(struct hostile *h, uint32_t rank, uint32_t local_rank)
{
    static const enum eo_link_kind kinds[] = {EO_LINK_ROOT, EO_LINK_LEADER, EO_LINK_PARENT};
    memset(h->links, 0, sizeof(h->links));
    memset(h->is_up, 0, sizeof(h->is_up));
    const struct eo_node_params params = {.self = {.rank = rank, .pid = 4711, .host = "here"}, .rank_count = RANKS, .local_rank = local_rank,
                                          .local_count = 1 + chance(3) + local_rank};
    if (eo_node_init(&h->node, &params, &ops, h) < 0)
        exit(1);
    eo_node_start(&h->node);
    for (uint32_t i = 0; i < RANKS; i++) {
        const bool is_up = i == 0 && rank != 0;
        eo_node_up(&h->node, &h->links[i], !is_up ? EO_LINK_NEW : local_rank ? EO_LINK_LEADER : kinds[chance(2) * 2]);
        h->is_up[i] = true;
    }
}

static void give_message(struct hostile *h, unsigned char *body)
{
    const uint32_t i = chance(RANKS);
    const enum eo_message type = (enum eo_message)(1 + chance(EO_MESSAGE_END - 1));
    if (!h->is_up[i]) {
        memset(&h->links[i], 0, sizeof(h->links[i]));
        eo_node_up(&h->node, &h->links[i], EO_LINK_NEW);
        h->is_up[i] = true;
    }
    const size_t bytes = make_message(type, body);
    struct eo_node_link *link = &h->links[i];
    if (link->kind == EO_LINK_NEW && chance(4)) { /* one whose proof is of the rank and the role that it says to have */
        const size_t at = type == EO_MESSAGE_JOIN ? 32 : 0;
        struct eo_reader r = {body + at, body + at + 4, false};
        link->rank = (uint32_t)eo_get(&r, 4);
        link->role = type == EO_MESSAGE_CHILD ? EO_LINK_PARENT : body[0] & 2 ? EO_LINK_ROOT : EO_LINK_LEADER;
    }
    unsigned char *exact = malloc(bytes + 1); /* a read past its end is a read past the block's */
    memcpy(exact, body, bytes);
    const bool taken = eo_node_take(&h->node, &h->links[i], type, exact, bytes);
    free(exact);
    h->taken += taken;
    h->refused += !taken;
    if (!taken) {
        eo_node_down(&h->node, &h->links[i], EO_END_BROKEN, "it sent an invalid message");
        h->is_up[i] = false;
    }
    if (h->node.part_capacity > h->parts_most)
        h->parts_most = h->node.part_capacity;
    if (chance(50) == 0)
        eo_node_gather_is_late(&h->node, 1.0, chance(2));
    if (chance(50) == 0)
        eo_node_beat(&h->node, "anything");
}

static void nodes(void)
{
    static struct hostile h;
    unsigned char *body = malloc(eo_message_bytes_max(EO_MESSAGE_UP, RANKS) + 8);
    uint32_t lives = 0;
    char missing[700];
    if (!body)
        exit(1);
    for (uint32_t given = 0; given < MESSAGES; lives++) {
        begin_node(&h, lives % 3 == 0 ? 0 : 1 + chance(RANKS - 1), lives % 3 == 2 ? 1 : 0);
        for (uint32_t i = 0; i < 200 && (h.node.failure.status == EO_OK || i < 50); i++, given++)
            give_message(&h, body);
        eo_node_missing(&h.node, missing, sizeof(missing));
        eo_node_fini(&h.node);
    }
    free(body);
    tap(h.taken > MESSAGES / 100 && h.refused > MESSAGES / 100, "%d messages of chance to %u nodes: %u taken, %u refused, "
        "nothing read or written where it must not be", MESSAGES, lives, h.taken, h.refused);
    tap(h.failures > 100 && h.parts_most <= 4 * eo_message_bytes_max(EO_MESSAGE_UP, RANKS),
        "%u failures told, and no more than %zu bytes kept", h.failures, h.parts_most);
}

/* Who reads "its process has ended" looks for a crash: it is said only where a process has closed its end. */
static void ends_of_links(void)
{
    static const struct {
        enum eo_link_end end;
        const char *why, *text;
        eo_status status;
    } cases[] = {
        {EO_END_CLOSED, "connection closed", "rank 1 (host there, process 7) is lost: its process has ended (connection "
         "closed)", EO_ERR_COMM},
        {EO_END_SILENT, "2.0 s", "rank 1 (host there, process 7) has not answered for 2.0 s: it hangs, or its host is cut off",
         EO_ERR_TIMEOUT},
        {EO_END_CUT, "Connection timed out", "rank 1 (host there, process 7) has not answered (Connection timed out): it "
         "hangs, or its host is cut off", EO_ERR_TIMEOUT},
        {EO_END_BROKEN, "it sent an invalid message", "rank 1 (host there, process 7) is lost: its connection was "
         "closed: it sent an invalid message", EO_ERR_COMM},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static struct hostile h;
        begin_node(&h, 0, 0);
        h.links[0].kind = EO_LINK_LEAF;
        h.links[0].known = true;
        h.links[0].peer = (struct eo_member){.rank = 1, .pid = 7, .host = "there"};
        eo_node_down(&h.node, &h.links[0], cases[i].end, cases[i].why);
        tap(strcmp(h.node.failure.text, cases[i].text) == 0 && h.node.failure.status == cases[i].status, "%s",
            h.node.failure.text);
        eo_node_fini(&h.node);
    }
    static struct hostile h;
    begin_node(&h, 0, 0);
    eo_node_down(&h.node, &h.links[0], EO_END_CLOSED, "connection closed");
    tap(h.node.failure.status == EO_OK, "the end of one who has not said its rank is no loss");
    eo_node_fini(&h.node);
}

static bool is_taken(struct hostile *h, uint64_t number, uint32_t blob_bytes)
{
    const size_t bytes = 12 + RANKS * (size_t)blob_bytes;
    unsigned char *body = calloc(1, bytes); /* of this size, so that a read past its end is one past the block's */
    struct eo_writer w = {body, body + bytes, false};
    eo_put(&w, number, 8);
    eo_put(&w, blob_bytes, 4);
    const bool taken = eo_node_take(&h->node, &h->links[0], EO_MESSAGE_DOWN, body, bytes);
    free(body);
    return taken;
}

/* The first message of a link that has proven rank 2 and this role. */
static bool is_welcome(enum eo_message type, uint32_t rank, enum eo_link_kind role)
{
    static struct hostile h;
    unsigned char body[1 + 4 + 23 + 4 + 8 + EO_HOST_BYTES] = {0};
    struct eo_writer w = {body, body + sizeof(body), false};
    begin_node(&h, 0, 0);
    h.links[1].rank = 2;
    h.links[1].role = role;
    if (type == EO_MESSAGE_JOIN) { /* of a rank alone: flags, ranks, an endpoint, and one member */
        eo_put(&w, 0, 1);
        eo_put(&w, RANKS, 4);
        w.at += 23;
        eo_put(&w, 1, 4);
    }
    eo_put(&w, rank, 4);
    w.at += 4 + EO_HOST_BYTES;
    const bool taken = eo_node_take(&h.node, &h.links[1], type, body, (size_t)(w.at - body));
    eo_node_fini(&h.node);
    return taken;
}

static void proven_and_said(void)
{
    tap(is_welcome(EO_MESSAGE_CHILD, 2, EO_LINK_PARENT) && !is_welcome(EO_MESSAGE_CHILD, 3, EO_LINK_PARENT) &&
            !is_welcome(EO_MESSAGE_CHILD, 2, EO_LINK_LEADER),
        "a child is of the rank and the role that it has proven");
    tap(is_welcome(EO_MESSAGE_JOIN, 2, EO_LINK_LEADER) && !is_welcome(EO_MESSAGE_JOIN, 3, EO_LINK_LEADER) &&
            !is_welcome(EO_MESSAGE_JOIN, 2, EO_LINK_PARENT),
        "so is a rank of this host");
}

/* A leaf's parts of the first exchange, of `blob_bytes` each. */
static bool is_part_taken(uint32_t blob_bytes, size_t parts_bytes)
{
    static struct hostile h;
    const size_t bytes = 12 + parts_bytes;
    unsigned char *body = calloc(1, bytes);
    struct eo_writer w = {body, body + bytes, false};
    begin_node(&h, 0, 0);
    h.links[1].kind = EO_LINK_LEAF;
    eo_put(&w, 0, 8);
    eo_put(&w, blob_bytes, 4);
    const bool taken = eo_node_take(&h.node, &h.links[1], EO_MESSAGE_UP, body, bytes);
    eo_node_fini(&h.node);
    free(body);
    return taken;
}

static void ragged_parts(void)
{
    enum { BYTES = 8 + EO_HOST_BYTES, PART = 4 + BYTES };
    tap(is_part_taken(BYTES, PART) && !is_part_taken(BYTES, 0) && !is_part_taken(BYTES, PART + 1) && !is_part_taken(0, 4) &&
            !is_part_taken(EO_GATHER_BYTES_MAX + 1, 4 + EO_GATHER_BYTES_MAX + 1),
        "parts of an exchange are whole, and neither empty nor larger than any may be");
}

/* The whole of an exchange cannot be there before this rank has given its part. */
static void answers_to_nothing(void)
{
    enum { MEMBER_BYTES = 76 };
    static struct hostile h;
    begin_node(&h, 1, 0); /* leads a host, and has not been placed */
    tap(!is_taken(&h, 0, 0) && !h.node.joined, "the end of the first exchange is refused before a host has its place");
    eo_node_fini(&h.node);
    begin_node(&h, 1, 1); /* a leaf gives its first part at once */
    const bool joined = is_taken(&h, 0, MEMBER_BYTES);
    tap(joined && !is_taken(&h, 1, MEMBER_BYTES) && !is_taken(&h, 1, 0),
        "so is that of the next one before this rank has begun it, whatever size it has");
    eo_node_fini(&h.node);
}

int main(void)
{
    static const unsigned char token[EO_TOKEN_BYTES] = {7, 8, 9};
    if (!eo_secret_init(&secret, token, "hostile"))
        return 1;
    links();
    nodes();
    answers_to_nothing();
    proven_and_said();
    ragged_parts();
    ends_of_links();
    timed_out();
    return tap_end();
}
