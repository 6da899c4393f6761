/* SPDX-License-Identifier: MIT
 *
 * Goal: the name of rank 0's host may come to be known later than its processes, on any host; of several addresses one that
 * both ends have is enough; a name that nobody knows ends the wait with the reason.
 * Method: ranks are threads with a rendezvous each, as on two hosts. What a rank is told of the name is the test's own:
 * getaddrinfo is replaced (meson.build). Addresses are of the loopback, which is this host's from 127.0.0.1 on.
 */
#include <evenodd/cluster.h>

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/cluster/free_port.h"
#include "tests/tap/tap.h"
#include "tests/tap/threads.h"

enum { RANKS = 2, ADDRESSES = 2, TIMEOUT_MS = 4000, LATER_MS = 700, HAS_NONE = 99999999 };

/* What a rank's name server knows: nothing until then, but `error`; then addresses as numbers. */
struct names {
    int error;
    uint32_t later_ms;
    const char *addresses[ADDRESSES];
};

struct rank {
    struct names names;
    uint32_t rank, asked;
    uint64_t begin_ns;
    eo_status status;
    char log_text[2000];
    const char *port_text;
};

static char port[16];
static _Thread_local struct rank *self;

int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    struct addrinfo **end = out;
    self->asked++;
    if (eo_now_ns() - self->begin_ns < self->names.later_ms * UINT64_C(1000000))
        return self->names.error;
    for (int i = 0; i < ADDRESSES && self->names.addresses[i]; i++, end = &(*end)->ai_next)
        if (__real_getaddrinfo(self->names.addresses[i], service, hints, end) != 0)
            exit(1);
    return 0;
}

static void keep_text(void *user, eo_log_level level, const char *text)
{
    struct rank *rank = user;
    const size_t used = strlen(rank->log_text);
    snprintf(rank->log_text + used, sizeof(rank->log_text) - used, "%s\n", text);
}

static void *rank_life(void *arg)
{
    static const unsigned char token[EO_TOKEN_BYTES] = {0xa5};
    static const char *const hosts[RANKS] = {"north", "south"};
    eo_rendezvous *rv = NULL;
    self = arg;
    const eo_log log = {.write = keep_text, .user = self, .level = EO_LOG_WARN};
    self->begin_ns = eo_now_ns();
    self->status = eo_rendezvous_create(&rv, &(const eo_rendezvous_params){
        .rank = self->rank, .rank_count = RANKS, .local_count = 1, .address = "localhost",
        .port = self->port_text ? self->port_text : port, .token = token, .job = "names", .host = hosts[self->rank],
        .timeout_ms = TIMEOUT_MS, .silence_ms = 20000, .log = &log});
    eo_rendezvous_destroy(&rv);
    return NULL;
}

static void meet(struct rank *ranks)
{
    choose_free_port(port);
    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r].rank = r;
    run_as_threads(rank_life, ranks, RANKS, sizeof(*ranks));
}

static bool have_met(const struct rank *ranks)
{
    for (uint32_t r = 0; r < RANKS; r++)
        if (ranks[r].status < 0)
            printf("# rank %u: status %d: %s\n", r, ranks[r].status, ranks[r].log_text);
    return ranks[0].status == EO_OK && ranks[1].status == EO_OK;
}

static uint32_t count_of(const char *text, const char *part)
{
    uint32_t count = 0;
    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

static void later(void)
{
    static const int errors[] = {EAI_NONAME, EAI_AGAIN, EAI_FAIL};
    static const char *const names[] = {"EAI_NONAME", "EAI_AGAIN", "EAI_FAIL"};
    for (int i = 0; i < 3; i++) {
        struct rank ranks[RANKS] = {{.names = {errors[i], i == 1 ? 0 : LATER_MS, {"127.0.0.1"}}},
                                    {.names = {errors[i], LATER_MS, {"127.0.0.1"}}}};
        meet(ranks);
        tap(have_met(ranks) && ranks[1].asked > 1 && count_of(ranks[1].log_text, "host 'localhost' is not known yet") == 1,
            "a name that is known later (%s) is asked for again, and told of once", names[i]);
    }
}

static void several(void)
{
    static const struct {
        const char *root[ADDRESSES], *other[ADDRESSES], *what;
    } cases[] = {
        {{"192.0.2.1", "127.0.0.2"}, {"127.0.0.2"}, "rank 0 listens at those addresses of its name that its host has"},
        {{"127.0.0.2", "127.0.0.3"}, {"127.0.0.3"}, "rank 0 listens at all addresses of its name"},
        {{"127.0.0.2"}, {"127.0.0.4", "127.0.0.2"}, "a rank tries the next address where nobody answers at the first"},
        {{"127.0.0.2", "127.0.0.2"}, {"127.0.0.2"}, "an address that a name has twice is one"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rank ranks[RANKS] = {0};
        memcpy(ranks[0].names.addresses, cases[i].root, sizeof(cases[i].root));
        memcpy(ranks[1].names.addresses, cases[i].other, sizeof(cases[i].other));
        meet(ranks);
        tap(have_met(ranks), "%s", cases[i].what);
    }
}

static void refused(void)
{
    struct rank ranks[RANKS] = {{.names = {EAI_NONAME, HAS_NONE, {NULL}}}, {.names = {EAI_NONAME, HAS_NONE, {NULL}}}};
    meet(ranks);
    tap(ranks[0].status == EO_ERR_IO && ranks[1].status == EO_ERR_IO && ranks[0].asked > 2 &&
            strstr(ranks[1].log_text, "rank 1 asked for host 'localhost' during 4.0 s: ") &&
            strstr(ranks[1].log_text, "give a name or address of rank 0's host"),
        "a name that is never known is told of at the deadline, with what to do");

    struct rank bad[RANKS] = {{.names = {EAI_FAMILY, HAS_NONE, {NULL}}}, {.names = {0, 0, {"127.0.0.1"}}, .port_text = "65536"}};
    meet(bad);
    tap(bad[0].status == EO_ERR_IO && bad[0].asked == 1 && bad[1].status == EO_ERR_INVALID && bad[1].asked == 0,
        "other failures, and a port that is none, end it at once");
}

int main(void)
{
    later();
    several();
    refused();
    return tap_end();
}
