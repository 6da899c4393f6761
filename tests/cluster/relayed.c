/* SPDX-License-Identifier: MIT
 *
 * Goal: who is in the way between two ranks reads nothing of what they say and can put nothing in: what was changed, left
 * out, repeated, moved, made up or sent back is taken by nobody, ends the connection, and is told as what it is. A
 * handshake of which one bit was changed, or that was heard before, opens nothing.
 * Method: two links with the test between them, which carries their bytes; then two ranks that join through a relay.
 */
#include <evenodd/cluster.h>

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/link.h"
#include "tests/cluster/free_port.h"
#include "tests/tap/tap.h"
#include "tests/tap/threads.h"

enum { HELLO = 76, PROOF = 108, VERDICT = 40, RANKS = 4, HEAD = 8 + EO_SEAL_BYTES };
static const unsigned char token[EO_TOKEN_BYTES] = {1, 2, 3};
static struct eo_secret secret;

/* ---- two links ---- */

/* The ends 0 (was dialled) and 1 (dialled), and the test's end of each one's socket. */
struct pair {
    struct eo_link *links[2];
    int far[2];
};

static void open_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0)
            exit(1);
        p->far[i] = ends[1];
        p->links[i] = eo_link_new(ends[0], i == 1, i ? EO_LINK_ROOT : EO_LINK_NEW, "relay", (uint32_t)i);
        if (!p->links[i])
            exit(1);
    }
    p->links[1]->state = EO_LINK_AWAITS_HELLO;
    p->links[1]->wanted_rank = 0;
    if (!eo_link_greet(p->links[0], &secret))
        exit(1);
}

static void close_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        eo_link_free(p->links[i]);
        close(p->far[i]);
    }
}

/* What link `from` has written. */
static size_t take_from(struct pair *p, int from, unsigned char *data, size_t most)
{
    if (!eo_link_flush(p->links[from]))
        return 0;
    const ssize_t got = recv(p->far[from], data, most, 0);
    return got > 0 ? (size_t)got : 0;
}

static enum eo_link_result give_to(struct pair *p, int to, const unsigned char *data, size_t bytes)
{
    enum eo_link_result result = EO_LINK_GOES_ON;
    if (bytes && send(p->far[to], data, bytes, 0) != (ssize_t)bytes)
        exit(1);
    for (size_t left = bytes; left > 0 && result == EO_LINK_GOES_ON; left -= left < PROOF ? left : PROOF)
        result = eo_link_read(p->links[to], &secret); /* it takes no more at a time than it wants */
    return result;
}

/* Carries the handshake, with one bit of message `changed` (0 ... 2) at `byte` flipped; `changed` 3: none. */
static bool shake_hands(struct pair *p, int changed, size_t byte)
{
    unsigned char data[1000];
    bool open[2] = {false, false};
    for (int message = 0; message < 3; message++) {
        const int from = message == 1, to = !from;
        const size_t bytes = take_from(p, from, data, sizeof(data));
        if (bytes == 0)
            break;
        if (message == changed)
            data[byte] ^= (unsigned char)(1u << byte % 8);
        open[to] = give_to(p, to, data, bytes) == EO_LINK_IS_OPEN;
    }
    return changed == 2 ? open[1] : changed < 2 ? open[0] || open[1] : open[0] && open[1];
}

static void handshakes(void)
{
    static const size_t sizes[] = {HELLO, PROOF, VERDICT};
    struct pair p;
    uint32_t tried = 0, opened = 0;
    open_pair(&p);
    const bool good = shake_hands(&p, 3, 0);
    close_pair(&p);
    for (int message = 0; message < 3; message++)
        for (size_t byte = 0; byte < sizes[message]; byte++, tried++) {
            open_pair(&p);
            opened += shake_hands(&p, message, byte);
            close_pair(&p);
        }
    tap(good && opened == 0, "a handshake opens both ends, and none of %u of which one bit was changed", tried);
}

static void heard_before(void)
{
    struct pair p;
    unsigned char hello[HELLO], proof[PROOF], other[HELLO];
    open_pair(&p);
    bool good = take_from(&p, 0, hello, sizeof(hello)) == HELLO && give_to(&p, 1, hello, HELLO) == EO_LINK_GOES_ON &&
                take_from(&p, 1, proof, sizeof(proof)) == PROOF && give_to(&p, 0, proof, PROOF) == EO_LINK_IS_OPEN;
    close_pair(&p);
    open_pair(&p);
    good = good && take_from(&p, 0, other, sizeof(other)) == HELLO && give_to(&p, 0, proof, PROOF) == EO_LINK_IS_REFUSED;
    tap(good && strstr(p.links[0]->why, "does not hold the token"), "a proof that was heard before proves nothing: %s",
        p.links[0]->why);
    close_pair(&p);
    open_pair(&p);
    p.links[0]->own_rank = 2; /* a rank of the job, and another one than was to be */
    if (p.links[0]->out)
        p.links[0]->out_begin = p.links[0]->out_end;
    p.links[0]->shake->transcript.bytes = 0;
    good = eo_link_greet(p.links[0], &secret) && !shake_hands(&p, 3, 0);
    tap(good && strstr(p.links[1]->why, "rank 2 answered in place of rank 0"),
        "a rank that stands where another was to be is found out: %s", p.links[1]->why);
    close_pair(&p);
}

/* ---- messages ---- */

enum { MESSAGES = 4, BODY = EO_ACTIVITY_BYTES, SEALED = HEAD + BODY + EO_SEAL_BYTES };

enum change { NOTHING, FLIPPED, DROPPED, REPEATED, SWAPPED, MADE_UP, SENT_BACK, CHANGES };

/* How many of the messages are taken as they were sent; -1: one that was not. */
static int count_taken(struct pair *p, bool *refused)
{
    const unsigned char *body;
    size_t bytes;
    int taken = 0, type;
    while ((type = eo_link_message(p->links[0], RANKS, &body, &bytes)) > 0) {
        if (type != EO_MESSAGE_BEAT || bytes != BODY || body[0] != 'a' + taken || body[BODY - 1] != 'z')
            return -1;
        eo_link_consume(p->links[0]);
        taken++;
    }
    *refused = type < 0;
    return taken;
}

/* Four messages of link 1 as they left it, and a stream's head before them; what link 0 makes of them after the change. */
static bool is_found(enum change change, size_t byte, int expected)
{
    struct pair p;
    unsigned char data[EO_STREAM_HEAD_BYTES + (MESSAGES + 1) * SEALED], body[BODY], *first = data + EO_STREAM_HEAD_BYTES;
    unsigned char spare[SEALED];
    bool refused = false;
    open_pair(&p);
    if (!shake_hands(&p, 3, 0))
        exit(1);
    for (int i = 0; i < MESSAGES; i++) {
        memset(body, 'z', sizeof(body));
        body[0] = (unsigned char)('a' + i);
        if (!eo_link_send(p.links[change == SENT_BACK ? 0 : 1], EO_MESSAGE_BEAT, body, sizeof(body)))
            exit(1);
    }
    size_t bytes = take_from(&p, change == SENT_BACK ? 0 : 1, data, sizeof(data));
    if (change == SENT_BACK) { /* with a head of its own stream before it */
        memmove(first, data + bytes - MESSAGES * SEALED, MESSAGES * SEALED);
        bytes = take_from(&p, 1, data, EO_STREAM_HEAD_BYTES) + MESSAGES * SEALED;
    }
    if (bytes != EO_STREAM_HEAD_BYTES + MESSAGES * SEALED)
        exit(1);
    if (change == FLIPPED)
        data[byte] ^= (unsigned char)(1u << byte % 8);
    if (change == DROPPED)
        memmove(first + SEALED, first + 2 * SEALED, 2 * SEALED);
    if (change == REPEATED)
        memcpy(first + 2 * SEALED, first + SEALED, SEALED);
    if (change == SWAPPED) {
        memcpy(spare, first + SEALED, SEALED);
        memcpy(first + SEALED, first + 2 * SEALED, SEALED);
        memcpy(first + 2 * SEALED, spare, SEALED);
    }
    if (change == MADE_UP)
        memset(first + SEALED, 7, SEALED);
    if (change == DROPPED)
        bytes -= SEALED;
    give_to(&p, 0, data, bytes);
    const int taken = count_taken(&p, &refused);
    const bool told = change == NOTHING ? !refused : refused && p.links[0]->end == EO_END_BROKEN &&
                      strstr(p.links[0]->why, "was changed, lost, repeated or inserted");
    if (taken != expected || !told)
        printf("# change %d at %zu: %d taken, %s: %s\n", (int)change, byte, taken, refused ? "refused" : "open",
               p.links[0]->why);
    close_pair(&p);
    return taken == expected && told;
}

static void messages(void)
{
    static const struct {
        enum change change;
        int taken;
        const char *text;
    } cases[] = {
        {NOTHING, MESSAGES, "messages that nobody touched are taken"},
        {DROPPED, 1, "after one that was left out none is taken"},
        {REPEATED, 2, "one that comes a second time is not taken"},
        {SWAPPED, 1, "of two that have changed places none is taken"},
        {MADE_UP, 1, "what was made up is not taken"},
        {SENT_BACK, 0, "what a rank has said itself is not taken from it again"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        tap(is_found(cases[i].change, 0, cases[i].taken), "%s", cases[i].text);
    bool good = true;
    for (size_t byte = 0; byte < EO_STREAM_HEAD_BYTES + 2 * SEALED; byte++)
        good = good && is_found(FLIPPED, byte, byte < EO_STREAM_HEAD_BYTES + SEALED ? 0 : 1);
    tap(good, "a message of which one bit was changed is not taken, nor any after it (%d places)",
        EO_STREAM_HEAD_BYTES + 2 * SEALED);
}

/* ---- ranks that join through a relay ---- */

static char port[16], relay_port[16];
static _Atomic bool tampers, ends;
static unsigned char heard[1 << 20];
static size_t heard_bytes;

struct rank {
    uint32_t rank;
    eo_rendezvous *rendezvous;
    eo_status status;
    char text[1000];
};

static void keep_text(void *user, eo_log_level level, const char *text)
{
    snprintf(user, 1000, "%s", text);
}

static void *join_main(void *arg)
{
    struct rank *r = arg;
    const eo_log log = {.write = keep_text, .user = r->text, .level = EO_LOG_WARN};
    const eo_rendezvous_params params = {
        .rank = r->rank, .rank_count = 2, .address = "127.0.0.1", .port = r->rank ? relay_port : port, .token = token,
        .job = "a job's name", .host = r->rank ? "southern host" : "northern host", .timeout_ms = 20000, .silence_ms = 4000,
        .log = &log,
    };
    r->status = eo_rendezvous_create(&r->rendezvous, &params);
    return NULL;
}

static int listen_at(const char *where)
{
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                        .sin_port = htons((uint16_t)atoi(where))};
    const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 4) != 0)
        exit(1);
    return fd;
}

/* Carries all between rank 1 (ends[1]) and rank 0, keeps it, and in the end changes a byte of what rank 1 says. */
static void *relay_main(void *listener)
{
    int sides[2];
    sides[1] = accept(*(int *)listener, NULL, NULL);
    sides[0] = dial_port(port);
    while (!ends) {
        struct pollfd polls[2] = {{sides[0], POLLIN, 0}, {sides[1], POLLIN, 0}};
        unsigned char data[4096];
        (void)poll(polls, 2, 100);
        for (int i = 0; i < 2; i++) {
            const ssize_t got = polls[i].revents ? recv(sides[i], data, sizeof(data), 0) : 0;
            if (polls[i].revents && got <= 0) {
                shutdown(sides[!i], SHUT_WR);
                ends = true;
            }
            if (got <= 0)
                continue;
            if (heard_bytes + (size_t)got <= sizeof(heard)) {
                memcpy(heard + heard_bytes, data, (size_t)got);
                heard_bytes += (size_t)got;
            }
            if (i == 1 && tampers)
                data[0] ^= 1;
            if (send(sides[!i], data, (size_t)got, MSG_NOSIGNAL) < 0)
                ends = true;
        }
    }
    close(sides[0]);
    close(sides[1]);
    return NULL;
}

static void whole_ranks(void)
{
    static struct rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    pthread_t relay;
    eo_rank_failure failures[2] = {{0}};
    choose_free_port(port);
    do
        choose_free_port(relay_port);
    while (strcmp(port, relay_port) == 0);
    int listener = listen_at(relay_port);
    pthread_create(&relay, NULL, relay_main, &listener);
    run_as_threads(join_main, ranks, 2, sizeof(ranks[0]));
    if (!tap(ranks[0].status == EO_OK && ranks[1].status == EO_OK, "two ranks join through a relay that changes nothing")) {
        printf("# %s / %s\n", ranks[0].text, ranks[1].text);
        exit(tap_end());
    }
    const bool is_read = memmem(heard, heard_bytes, "southern host", 13) || memmem(heard, heard_bytes, "northern host", 13) ||
                         memmem(heard, heard_bytes, "a job's name", 12) || memmem(heard, heard_bytes, token, sizeof(token));
    tap(heard_bytes > 500 && !is_read, "in the %zu bytes that it has seen there is no name of theirs", heard_bytes);
    tampers = true;
    for (int i = 0; i < 1000 && !(failures[0].status < 0 && failures[1].status < 0); i++) {
        usleep(10000);
        for (int r = 0; r < 2; r++)
            (void)eo_rendezvous_failure(ranks[r].rendezvous, &failures[r]);
    }
    tap(failures[0].status == EO_ERR_COMM && strstr(failures[0].text, "rank 1 (host southern host") &&
            strstr(failures[0].text, "a message was changed, lost, repeated or inserted on its way"),
        "a byte that it changes ends the connection: %s", failures[0].text);
    tap(failures[1].status < 0 && strcmp(failures[0].text, failures[1].text) == 0, "and both ranks learn of it: %s",
        failures[1].text);
    for (int r = 0; r < 2; r++)
        eo_rendezvous_destroy(&ranks[r].rendezvous);
    ends = true;
    pthread_join(relay, NULL);
    close(listener);
}

int main(void)
{
    if (!eo_secret_init(&secret, token, "relayed"))
        return 1;
    handshakes();
    heard_before();
    messages();
    whole_ranks();
    return tap_end();
}
