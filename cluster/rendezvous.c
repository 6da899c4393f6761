/* SPDX-License-Identifier: MIT
 *
 * The callers' side of a rendezvous.
 */
#include "cluster/rendezvous_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/plain_text.h"
#include "base/thread.h"

enum {
    RANKS_MAX = 1 << 16,
    WAIT_MS_DEFAULT = 60000,
    BEAT_MS_MAX = 250,
    BEATS_IN_SILENCE = 8,
    EXCHANGE_GRACE_MS = 5000, /* in which the ranks that know who has not come say so */
    LOOK_MS = 50,             /* time is counted from look to look */
    NAME_RETRY_NS = 250000000,
};
#define LOOKUP_NS_MAX UINT64_C(15000000000) /* that a name server which does not answer takes */
_Static_assert((int)EO_EXCHANGE_MAX == (int)EO_GATHER_BYTES_MAX && (int)EO_TOKEN_BYTES == 32, "public sizes are the node's");

/* ---- create ---- */

/* Cut short it would be another one. */
static eo_status check_length(const eo_log *log, const char *field, const char *text, size_t bytes)
{
    EO_REQUIRE(log, !text || strlen(text) < bytes, "rendezvous: the %s '%.40s...' is longer than %zu bytes", field, text,
               bytes - 1);
    return EO_OK;
}

static eo_status check(const eo_rendezvous_params *p)
{
    EO_REQUIRE(p->log, p->rank_count >= 1 && p->rank_count <= RANKS_MAX, "a world of %u ranks; 1 to %d are possible",
               p->rank_count, RANKS_MAX);
    EO_REQUIRE(p->log, p->rank < p->rank_count, "rank %u in a world of %u", p->rank, p->rank_count);
    const uint32_t local_count = p->local_count ? p->local_count : 1;
    EO_REQUIRE(p->log, local_count <= p->rank_count && p->local_rank < local_count,
               "local rank %u of %u on this host, in a world of %u", p->local_rank, local_count, p->rank_count);
    EO_REQUIRE(p->log, p->rank != 0 || p->local_rank == 0, "rank 0 has local rank %u; it must be the first of its host",
               p->local_rank);
    /* It would dial rank 0 over a network that there is not. */
    EO_REQUIRE(
        p->log, p->rank == 0 || p->local_rank != 0 || local_count < p->rank_count,
        "rank %u has local rank 0, but all %u ranks are on this host, and its first is rank 0; set local_rank to the rank",
        p->rank, p->rank_count);
    EO_TRY(check_length(p->log, "address", p->address, sizeof(((struct eo_rendezvous *)NULL)->address)));
    EO_TRY(check_length(p->log, "port", p->port, sizeof(((struct eo_rendezvous *)NULL)->port)));
    EO_TRY(check_length(p->log, "job", p->job, sizeof(((struct eo_secret *)NULL)->job)));
    EO_REQUIRE(p->log, local_count == p->rank_count || (p->address && p->port),
               "the job spans several hosts (%u of %u ranks on this one), but the %s of rank 0 is missing; on one host set "
               "local_rank to the rank and local_count to rank_count",
               local_count, p->rank_count, p->address ? "port" : "address");
    return EO_OK;
}

/* Whether the name of this job's socket is in use by another user, who is then told of. */
static bool is_taken_by_other(const struct eo_rendezvous *rv)
{
    uint32_t user;
    const int fd = eo_socket_dial(&rv->local_address);
    const bool is_other = fd >= 0 && !eo_socket_is_own(fd, &user);
    if (is_other)
        eo_log_write(&rv->log, EO_LOG_ERROR, "rendezvous: rank %u cannot listen for the ranks of its host: a process of "
                     "another user (%u) uses this job's name here; give all ranks of the job a token of their own "
                     "(EVENODD_TOKEN_FILE)", rv->params.rank, user);
    if (fd >= 0)
        eo_socket_close(fd);
    return is_other;
}

/* Rank 0's host may start later than this one, or its name may come later than its processes. */
static eo_status await_addresses(struct eo_rendezvous *rv)
{
    const eo_rendezvous_params *p = &rv->params;
    const char *why = NULL;
    for (bool is_told = false;; is_told = true) {
        const eo_status status = eo_address_resolve(&rv->root_addresses, rv->address, rv->port, &why, &rv->log);
        if (status != EO_IN_PROGRESS)
            return status;
        if (eo_stopwatch_look(&rv->clock, LOOKUP_NS_MAX) >= p->timeout_ms * UINT64_C(1000000)) {
            eo_log_write(&rv->log, EO_LOG_ERROR,
                         "rendezvous: rank %u asked for host '%s' during %.1f s: %s; give a name or address "
                         "of rank 0's host within reach of all ranks, or wait longer for its name",
                         p->rank, rv->address, p->timeout_ms / 1000.0, why);
            return EO_ERR_IO;
        }
        if (!is_told)
            eo_log_write(&rv->log, EO_LOG_WARN, "rendezvous: host '%s' is not known yet (%s); rank %u asks again for %.1f s",
                         rv->address, why, p->rank, p->timeout_ms / 1000.0);
        (void)nanosleep(&(const struct timespec){0, NAME_RETRY_NS}, NULL);
    }
}

/* At all addresses of its name: which of them the others try is not known. */
static eo_status listen_as_root(struct eo_rendezvous *rv)
{
    const struct eo_addresses *addresses = &rv->root_addresses;
    char name[120] = "";
    uint32_t listening = 0;
    int error = 0;
    bool is_within_reach = false;
    for (uint32_t i = 0; i < addresses->count; i++)
        is_within_reach = is_within_reach || !eo_address_is_loopback(&addresses->all[i]);
    eo_address_text(&addresses->all[0], name, sizeof(name));
    /* Debian's /etc/hosts: the others would be turned away elsewhere, and only the deadline would end it. */
    EO_REQUIRE(&rv->log,
               is_within_reach || isdigit((unsigned char)rv->address[0]) || strchr(rv->address, ':') ||
                   strcmp(rv->address, "localhost") == 0,
               "rendezvous: on its own host '%s' is %s, out of reach for other hosts (see /etc/hosts there); give an "
               "address of a network",
               rv->address, name);
    for (uint32_t i = 0; i < addresses->count && error != EADDRINUSE; i++) {
        rv->root_listeners[i] = eo_socket_listen(&rv->root_addresses.all[i]);
        listening += rv->root_listeners[i] >= 0;
        if (rv->root_listeners[i] >= 0 || (error && errno != EADDRINUSE))
            continue;
        error = errno;
        eo_address_text(&addresses->all[i], name, sizeof(name));
    }
    if (listening > 0 && error != EADDRINUSE) /* there others would find another job */
        return EO_OK;
    eo_log_write(&rv->log, EO_LOG_ERROR, "rendezvous: rank 0 cannot listen at %s: %s; %s", name, strerror(error),
                 error == EADDRINUSE      ? "another job uses it; give another port"
                 : error == EADDRNOTAVAIL ? "this host has no such address; run rank 0 on the host of this address"
                                          : "give another address or port");
    return EO_ERR_IO;
}

static eo_status open_sockets(struct eo_rendezvous *rv)
{
    const eo_rendezvous_params *p = &rv->params;
    rv->has_network = p->local_count < p->rank_count;
    rv->local_address = eo_address_within_host(&rv->secret, rv->host, rv->address, rv->port);
    EO_REQUIRE(&rv->log, !rv->has_network || p->token || p->insecure,
               "rendezvous at %s without a token: ranks of several hosts must prove their membership in the job; give all of "
               "them the same 256 bits, or allow an insecure rendezvous", rv->address);
    if (rv->has_network && !p->token && p->rank == 0)
        eo_log_write(&rv->log, EO_LOG_WARN, "rendezvous at %s is insecure: without a token, anyone with access to it can join "
                     "this job, and read and change its messages", rv->address);
    if (rv->has_network && p->local_rank == 0)
        EO_TRY(await_addresses(rv));
    if (rv->has_network && p->rank == 0)
        EO_TRY(listen_as_root(rv));
    if (p->local_count > 1 && p->local_rank == 0) {
        rv->local_listener = eo_socket_listen(&rv->local_address);
        if (rv->local_listener < 0) {
            const bool taken = errno == EADDRINUSE;
            if (taken && is_taken_by_other(rv))
                return EO_ERR_INVALID;
            eo_log_write(&rv->log, EO_LOG_ERROR, "rendezvous: rank %u cannot listen for the ranks of its host: %s%s",
                         p->rank, strerror(taken ? EADDRINUSE : errno), taken ? "; another process is the first of this job "
                         "here: local ranks are repeated, or an earlier run is still there" : "");
            return taken ? EO_ERR_INVALID : EO_ERR_IO;
        }
    }
    return EO_OK;
}

static void copy_texts(struct eo_rendezvous *rv)
{
    const eo_rendezvous_params *p = &rv->params;
    snprintf(rv->address, sizeof(rv->address), "%s", p->address ? p->address : "");
    snprintf(rv->port, sizeof(rv->port), "%s", p->port ? p->port : "");
    if (p->host)
        snprintf(rv->host, sizeof(rv->host), "%s", p->host);
    else if (gethostname(rv->host, sizeof(rv->host)) != 0)
        snprintf(rv->host, sizeof(rv->host), "?");
    rv->host[sizeof(rv->host) - 1] = '\0';
}

static eo_status start(struct eo_rendezvous *rv)
{
    eo_rendezvous_params *p = &rv->params;
    if (p->local_count == 0)
        p->local_count = 1;
    if (p->timeout_ms == 0)
        p->timeout_ms = WAIT_MS_DEFAULT;
    if (p->silence_ms == 0)
        p->silence_ms = WAIT_MS_DEFAULT;
    rv->beat_ms = p->silence_ms / BEATS_IN_SILENCE < BEAT_MS_MAX ? p->silence_ms / BEATS_IN_SILENCE + 1 : BEAT_MS_MAX;
    copy_texts(rv);
    EO_REQUIRE(&rv->log, !p->token || !sodium_is_zero(p->token, EO_TOKEN_BYTES),
               "rendezvous: a token of zeros is easy to guess; draw 256 random bits");
    if (!eo_secret_init(&rv->secret, p->token, p->job ? p->job : "")) {
        eo_log_write(&rv->log, EO_LOG_ERROR, "rendezvous: this system has no random bytes");
        return EO_ERR_IO;
    }
    EO_TRY(open_sockets(rv));
    rv->teller = eo_teller_new(&rv->log);
    if (!rv->teller)
        return EO_ERR_NO_MEMORY;
    rv->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (rv->wake < 0) {
        eo_log_write(&rv->log, EO_LOG_ERROR, "rendezvous: %s", strerror(errno));
        return EO_ERR_IO;
    }
    const int error = eo_thread_start(&rv->thread, eo_rendezvous_main, rv);
    if (error != 0) {
        eo_log_write(&rv->log, EO_LOG_ERROR, "rendezvous: cannot start a thread: %s; %s", strerror(error),
                     eo_thread_remedy(error));
        return EO_ERR_NO_MEMORY;
    }
    rv->has_thread = true;
    return EO_OK;
}

/* Its own thread keeps the deadline; it ends in `joined` or a failure. */
static eo_status await_all(struct eo_rendezvous *rv)
{
    pthread_mutex_lock(&rv->mutex);
    while (!rv->joined && rv->failure.status == EO_OK)
        pthread_cond_wait(&rv->changed, &rv->mutex);
    /* What comes after joining is `failed`'s to tell. */
    const eo_status status = rv->joined ? EO_OK : rv->failure.lost ? EO_ERR_COMM : rv->failure.status;
    pthread_mutex_unlock(&rv->mutex);
    return status;
}

eo_status eo_rendezvous_create(eo_rendezvous **out, const eo_rendezvous_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!params)
        return EO_ERR_INVALID;
    EO_TRY(check(params));
    struct eo_rendezvous *rv = calloc(1, sizeof(*rv));
    if (!rv)
        return EO_ERR_NO_MEMORY;
    rv->params = *params;
    rv->log = params->log ? *params->log : (eo_log){0};
    rv->wake = rv->local_listener = rv->child_listener = -1;
    for (int i = 0; i < EO_ADDRESSES_MAX; i++)
        rv->root_listeners[i] = -1;
    rv->owner = getpid();
    rv->clock = eo_stopwatch_start();
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&rv->mutex, NULL);
    pthread_cond_init(&rv->changed, &clock);
    pthread_condattr_destroy(&clock);
    eo_status status = start(rv);
    if (status >= 0)
        status = await_all(rv);
    if (status < 0) {
        if (rv->failure.status < 0)
            eo_log_write(&rv->log, EO_LOG_ERROR, "%s", rv->failure.text);
        eo_rendezvous_destroy(&rv);
        return status;
    }
    *out = rv;
    return EO_OK;
}

/* ---- use ---- */

static void wake(struct eo_rendezvous *rv)
{
    const uint64_t one = 1;
    if (write(rv->wake, &one, sizeof(one)) < 0) {
        /* it is full: so it wakes anyway */
    }
}

static struct timespec deadline_in(uint64_t ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    const uint64_t ns = (uint64_t)end.tv_nsec + ms * 1000000u;
    end.tv_sec += (time_t)(ns / 1000000000u);
    end.tv_nsec = (long)(ns % 1000000000u);
    return end;
}

eo_status eo_rendezvous_all_gather(eo_rendezvous *rv, const void *send, uint32_t bytes, void *recv)
{
    if (!rv || !send || !recv)
        return EO_ERR_INVALID;
    EO_REQUIRE(&rv->log, bytes >= 1 && bytes <= EO_EXCHANGE_MAX, "an exchange of %u bytes a rank; 1 to %d are possible",
               bytes, EO_EXCHANGE_MAX);
    const uint64_t limit_ns = ((uint64_t)rv->params.timeout_ms + EXCHANGE_GRACE_MS) * 1000000u;
    struct eo_stopwatch waited = eo_stopwatch_start();
    pthread_mutex_lock(&rv->mutex);
    /* After a failure nothing is exchanged: this rank's part of the exchange that failed may be on its way still. */
    const eo_status failed = rv->failure.status < 0 ? rv->failure.status
                             : rv->wants_to_fail    ? rv->own_failure.status
                                                    : EO_OK;
    if (failed < 0) {
        pthread_mutex_unlock(&rv->mutex);
        return failed;
    }
    if (rv->recv) {
        pthread_mutex_unlock(&rv->mutex);
        eo_log_write(&rv->log, EO_LOG_ERROR, "two exchanges at one time; make all of them from one thread");
        return EO_ERR_INVALID;
    }
    rv->send = send;
    rv->recv = recv;
    rv->bytes = bytes;
    rv->asked = true;
    rv->gathered = false;
    wake(rv);
    while (!rv->gathered && rv->failure.status == EO_OK && eo_stopwatch_look(&waited, EO_LOOK_NS_MAX) < limit_ns) {
        const struct timespec next = deadline_in(LOOK_MS);
        (void)pthread_cond_timedwait(&rv->changed, &rv->mutex, &next);
    }
    const bool is_late = !rv->gathered && rv->failure.status == EO_OK; /* and nobody knows who is missing */
    const eo_status status = rv->gathered ? EO_OK : is_late ? EO_ERR_TIMEOUT : rv->failure.status;
    rv->recv = NULL;
    rv->asked = false;
    pthread_mutex_unlock(&rv->mutex);
    if (is_late) {
        char text[200];
        snprintf(text, sizeof(text), "rank %u waited %u ms for the others in an exchange; some did not come",
                 rv->params.rank, rv->params.timeout_ms + EXCHANGE_GRACE_MS);
        eo_log_write(&rv->log, EO_LOG_ERROR, "%s", text);
        eo_rendezvous_fail(rv, EO_ERR_TIMEOUT, text);
    }
    return status;
}

void eo_rendezvous_fail(eo_rendezvous *rv, eo_status status, const char *text)
{
    if (!rv || status >= 0)
        return;
    pthread_mutex_lock(&rv->mutex);
    if (!rv->wants_to_fail) {
        rv->own_failure = (struct eo_failure){.status = status, .rank = rv->params.rank};
        (void)eo_text_fit(rv->own_failure.text, sizeof(rv->own_failure.text), text ? text : "no reason given");
        rv->wants_to_fail = true;
    }
    pthread_mutex_unlock(&rv->mutex);
    wake(rv);
}

bool eo_rendezvous_failure(eo_rendezvous *rv, eo_rank_failure *out)
{
    eo_rank_failure failure = {0};
    if (rv) {
        pthread_mutex_lock(&rv->mutex);
        failure = rv->failure;
        pthread_mutex_unlock(&rv->mutex);
    }
    if (out)
        *out = failure;
    return failure.status < 0;
}

uint32_t eo_rendezvous_rank(const eo_rendezvous *rv)
{
    return rv ? rv->params.rank : 0;
}

uint32_t eo_rendezvous_rank_count(const eo_rendezvous *rv)
{
    return rv ? rv->params.rank_count : 0;
}

eo_rank_info eo_rendezvous_rank_info(const eo_rendezvous *rv, uint32_t rank)
{
    eo_rank_info info = {0};
    if (rv && rank < rv->params.rank_count && rv->members) {
        info.process = rv->members[rank].pid;
        info.machine = rv->members[rank].machine;
        snprintf(info.host, sizeof(info.host), "%s", rv->members[rank].host);
    }
    return info;
}

/* ---- destroy ---- */

static void close_if_open(int fd)
{
    if (fd >= 0)
        eo_socket_close(fd);
}

void eo_rendezvous_destroy(eo_rendezvous **rendezvous)
{
    if (!rendezvous || !*rendezvous)
        return;
    struct eo_rendezvous *rv = *rendezvous;
    if (rv->has_thread && pthread_equal(pthread_self(), rv->thread)) {
        eo_log_write(&rv->log, EO_LOG_ERROR,
                     "rank %u: eo_rendezvous_destroy within `failed` or `activity`, whose thread cannot "
                     "wait for itself: end the process by _exit, or destroy from another thread",
                     rv->params.rank);
        return;
    }
    *rendezvous = NULL;
    if (rv->owner != getpid()) /* thread and sockets are another process's */
        return;
    if (rv->has_thread) {
        unsigned char mine = 0, *all = malloc(rv->params.rank_count);
        pthread_mutex_lock(&rv->mutex);
        const bool together = all && rv->joined && rv->failure.status == EO_OK && !rv->wants_to_fail;
        pthread_mutex_unlock(&rv->mutex);
        const bool all_came = together && eo_rendezvous_all_gather(rv, &mine, 1, all) >= 0;
        free(all);
        pthread_mutex_lock(&rv->mutex);
        rv->stop = true;
        rv->leave = all_came;
        pthread_mutex_unlock(&rv->mutex);
        wake(rv);
        pthread_join(rv->thread, NULL);
    }
    eo_teller_free(rv->teller);
    if (rv->wake >= 0)
        close(rv->wake);
    for (int i = 0; i < EO_ADDRESSES_MAX; i++)
        close_if_open(rv->root_listeners[i]);
    close_if_open(rv->local_listener);
    close_if_open(rv->child_listener);
    pthread_mutex_destroy(&rv->mutex);
    pthread_cond_destroy(&rv->changed);
    free(rv->members);
    free(rv->polls);
    sodium_memzero(&rv->secret, sizeof(rv->secret));
    free(rv);
}
