/* SPDX-License-Identifier: MIT
 *
 * The rendezvous' own thread: it has all sockets, gives the node what comes, and counts time for it.
 */
#include "cluster/rendezvous_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"

enum { STRANGERS_MAX = 256, HANDSHAKE_MS = 3000, RETRY_MS = 20, LINGER_MS = 1000, FLUSH_MS = 200, GRACE_MS = 2000 };
enum { LISTENERS = 2 + EO_ADDRESSES_MAX };

static uint64_t ms_ns(uint64_t ms)
{
    return ms * 1000000u;
}

/* What it has run; a poll ends with the next beat. */
static uint64_t own_ns(struct eo_rendezvous *rv)
{
    const uint64_t look_ns = 2 * ms_ns(rv->beat_ms);
    return eo_stopwatch_look(&rv->clock, look_ns > EO_LOOK_NS_MAX ? look_ns : EO_LOOK_NS_MAX);
}

static struct eo_link *link_of(struct eo_node_link *link)
{
    return (struct eo_link *)link;
}

static void end_link(struct eo_link *link, const char *why)
{
    link->ended = true;
    eo_link_set_end(link, EO_END_BROKEN, why);
}

/* ---- what the node asks for ---- */

static void on_send(void *user, struct eo_node_link *node_link, enum eo_message type, const void *body, size_t bytes)
{
    struct eo_link *link = link_of(node_link);
    if (link->ended)
        return;
    if (!eo_link_send(link, type, body, bytes))
        end_link(link, "no memory for its messages");
    else
        (void)eo_link_flush(link);
}

static void on_drop(void *user, struct eo_node_link *link)
{
    link_of(link)->state = EO_LINK_ENDING;
}

static void on_dial(void *user, const struct eo_endpoint *endpoint)
{
    struct eo_rendezvous *rv = user;
    rv->parent_address = eo_address_of_endpoint(endpoint);
    rv->parent_rank = endpoint->rank;
    rv->dial_kind = DIAL_PARENT;
    rv->dial_at_ns = 0;
    rv->dial_why[0] = '\0'; /* of rank 0 */
}

static void on_gathered(void *user, const unsigned char *all, uint32_t bytes)
{
    struct eo_rendezvous *rv = user;
    pthread_mutex_lock(&rv->mutex);
    if (rv->recv) {
        memcpy(rv->recv, all, (size_t)rv->params.rank_count * bytes);
        rv->recv = NULL;
        rv->gathered = true;
        pthread_cond_broadcast(&rv->changed);
    }
    pthread_mutex_unlock(&rv->mutex);
}

static void on_joined(void *user, const unsigned char *all)
{
    struct eo_rendezvous *rv = user;
    struct eo_member *members = calloc(rv->params.rank_count, sizeof(*members)); /* without, they have no names */
    for (uint32_t r = 0; members && r < rv->params.rank_count; r++)
        members[r] = eo_node_member(all, r);
    pthread_mutex_lock(&rv->mutex);
    rv->members = members;
    rv->joined = true;
    pthread_cond_broadcast(&rv->changed);
    pthread_mutex_unlock(&rv->mutex);
}

static void on_failed(void *user, const struct eo_failure *failure)
{
    struct eo_rendezvous *rv = user;
    eo_rank_failure told = {.status = failure->status, .rank = failure->rank, .lost = failure->lost};
    snprintf(told.text, sizeof(told.text), "%s", failure->text);
    pthread_mutex_lock(&rv->mutex);
    rv->failure = told;
    const bool was_joined = rv->joined;
    pthread_cond_broadcast(&rv->changed);
    pthread_mutex_unlock(&rv->mutex);
    if (rv->dial_kind == DIAL_PARENT && rv->dial_why[0]) /* what the others cannot know */
        eo_teller_say(rv->teller, EO_LOG_WARN,
                      "rank %u could not reach rank %u, over which this host is linked with the others: last tried %s",
                      rv->params.rank, rv->parent_rank, rv->dial_why);
    if (rv->params.failed && was_joined) /* before, create says it */
        rv->params.failed(rv->params.user, &told);
}

static void on_log(void *user, eo_log_level level, const char *text)
{
    struct eo_rendezvous *rv = user;
    eo_teller_say(rv->teller, level, "rank %u: %s", rv->params.rank, text);
}

static const struct eo_node_ops node_ops = {
    .send = on_send, .drop = on_drop, .dial = on_dial, .gathered = on_gathered, .joined = on_joined,
    .failed = on_failed, .log = on_log,
};

static void give_up(struct eo_rendezvous *rv, eo_status status, const char *format, ...) EO_PRINTF(3, 4);
static void give_up(struct eo_rendezvous *rv, eo_status status, const char *format, ...)
{
    struct eo_failure failure = {.status = status, .rank = rv->params.rank};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure.text, sizeof(failure.text), format, arguments);
    va_end(arguments);
    eo_node_fail(&rv->node, &failure);
}

/* ---- links ---- */

static void add_link(struct eo_rendezvous *rv, int fd, bool dialled, enum eo_link_kind kind, const char *name)
{
    struct eo_link *link = eo_link_new(fd, dialled, kind, name, rv->params.rank);
    if (!link)
        return;
    link->opened_ns = own_ns(rv);
    link->wanted_rank = kind == EO_LINK_ROOT ? 0 : kind == EO_LINK_PARENT ? rv->parent_rank : EO_RANK_ANY;
    link->next = rv->links;
    rv->links = link;
    if (rv->has_network)
        eo_socket_set_timeout(fd, rv->params.silence_ms);
    if (!dialled && (!eo_link_greet(link, &rv->secret) || !eo_link_flush(link)))
        end_link(link, "no greeting");
}

/* Strangers who say nothing must not keep others out: beyond so many the oldest goes. */
static void limit_strangers(struct eo_rendezvous *rv)
{
    struct eo_link *oldest = NULL;
    uint32_t count = 0;
    for (struct eo_link *link = rv->links; link; link = link->next)
        if (link->state == EO_LINK_AWAITS_PROOF && !link->ended) {
            count++;
            oldest = link; /* new ones are put in front */
        }
    if (count > STRANGERS_MAX)
        end_link(oldest, "too many silent connections");
}

static void accept_all(struct eo_rendezvous *rv, int listener)
{
    char name[96];
    for (int i = 0; i < STRANGERS_MAX; i++) {
        const int fd = eo_socket_accept(listener, name, sizeof(name));
        if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
            continue; /* of another user, or gone again */
        if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            if (rv->accept_error != errno)
                eo_teller_say(rv->teller, EO_LOG_WARN, "rank %u: cannot accept a connection: %s%s", rv->params.rank,
                              strerror(errno), errno == EMFILE ? "; raise the limit on open files (ulimit -n)" : "");
            rv->accept_error = errno;
            rv->accept_at_ns = own_ns(rv) + ms_ns(RETRY_MS); /* it waits on, and would be told again at once */
        }
        if (fd < 0)
            return;
        add_link(rv, fd, false, EO_LINK_NEW, name);
        limit_strangers(rv);
    }
}

static void refuse_stranger(struct eo_rendezvous *rv, struct eo_link *link)
{
    char text[300];
    uint32_t left_out;
    snprintf(text, sizeof(text), "refused a connection from %s: %s", link->name, link->why);
    if (eo_teller_may_say(&rv->refusals, own_ns(rv), &left_out)) {
        if (left_out)
            eo_teller_say(rv->teller, EO_LOG_WARN, "rank %u: refused %u more connections without a message for each",
                          rv->params.rank, left_out);
        eo_teller_say(rv->teller, EO_LOG_WARN, "rank %u: %s", rv->params.rank, text);
    }
    const size_t used = strlen(rv->node.refused);
    if (used + strlen(text) + 3 < sizeof(rv->node.refused))
        snprintf(rv->node.refused + used, sizeof(rv->node.refused) - used, "%s%s", used ? "; " : "", text);
    (void)eo_link_flush(link); /* its verdict */
    link->ended = true;
}

/* The next try is at the next address of rank 0's host: not each may be within reach. */
static void dial_later(struct eo_rendezvous *rv)
{
    rv->dial_at_ns = own_ns(rv) + ms_ns(RETRY_MS);
    if (rv->dial_kind == DIAL_ROOT)
        rv->root_at = (rv->root_at + 1) % rv->root_addresses.count;
}

static const struct eo_address *dialled_address(const struct eo_rendezvous *rv)
{
    return rv->dial_kind == DIAL_LEADER ? &rv->local_address
           : rv->dial_kind == DIAL_ROOT ? &rv->root_addresses.all[rv->root_at]
                                        : &rv->parent_address;
}

static void dial(struct eo_rendezvous *rv)
{
    static const enum eo_link_kind kinds[] = {
        [DIAL_ROOT] = EO_LINK_ROOT, [DIAL_LEADER] = EO_LINK_LEADER, [DIAL_PARENT] = EO_LINK_PARENT};
    char name[96];
    const struct eo_address *address = dialled_address(rv);
    eo_address_text(address, name, sizeof(name));
    const int fd = eo_socket_dial(address);
    rv->dial_at_ns = UINT64_MAX; /* until this one has failed */
    uint32_t user;
    if (fd >= 0 && address->storage.ss_family == AF_UNIX && !eo_socket_is_own(fd, &user)) {
        eo_socket_close(fd);
        give_up(rv, EO_ERR_INVALID, "rank %u cannot join: on this host a process of another user (%u) listens under this job's "
                "name; give all ranks of the job a token of their own (EVENODD_TOKEN_FILE)", rv->params.rank, user);
        return;
    }
    if (fd >= 0) {
        add_link(rv, fd, true, kinds[rv->dial_kind], name);
        return;
    }
    snprintf(rv->dial_why, sizeof(rv->dial_why), "%s: %s", name, strerror(errno));
    dial_later(rv);
}

/* Only a leader whom others than the root may belong to has to listen. */
static void listen_for_children(struct eo_rendezvous *rv, const struct eo_link *link)
{
    struct eo_address address = {.bytes = sizeof(address.storage)};
    if (rv->params.rank_count - rv->params.local_count <= EO_NODE_FANOUT)
        return;
    if (getsockname(link->fd, (struct sockaddr *)&address.storage, &address.bytes) == 0) {
        struct eo_endpoint any = eo_address_endpoint(&address);
        any.port = 0;
        address = eo_address_of_endpoint(&any);
        rv->child_listener = eo_socket_listen(&address);
    }
    if (rv->child_listener < 0)
        give_up(rv, EO_ERR_IO, "rank %u cannot listen for other hosts: %s", rv->params.rank, strerror(errno));
    else
        rv->node.endpoint = eo_address_endpoint(&address);
}

static void on_open(struct eo_rendezvous *rv, struct eo_link *link)
{
    if (link->kind != EO_LINK_NEW)
        rv->dial_kind = -1;
    if (link->kind == EO_LINK_ROOT)
        listen_for_children(rv, link);
    link->in_node = true;
    eo_node_up(&rv->node, &link->node, link->kind);
}

static void take_messages(struct eo_rendezvous *rv, struct eo_link *link)
{
    const unsigned char *body;
    size_t bytes;
    while (link->state == EO_LINK_OPEN && !link->ended) {
        const int type = eo_link_message(link, rv->params.rank_count, &body, &bytes);
        if (type == 0)
            return;
        if (type < 0 || !eo_node_take(&rv->node, &link->node, (enum eo_message)type, body, bytes)) {
            eo_link_set_end(link, EO_END_BROKEN, "it sent an invalid message");
            eo_node_down(&rv->node, &link->node, EO_END_BROKEN, link->why); /* who may still be told */
            link->in_node = false;
            link->ended = true;
            return;
        }
        eo_link_consume(link);
    }
}

static void on_connected(struct eo_link *link)
{
    const int error = eo_socket_error(link->fd);
    if (error)
        end_link(link, strerror(error));
    else
        link->state = EO_LINK_AWAITS_HELLO;
}

static void serve(struct eo_rendezvous *rv, struct eo_link *link, short events)
{
    if (link->ended)
        return;
    if (link->state == EO_LINK_CONNECTING) {
        on_connected(link);
        return;
    }
    if (events & (POLLIN | POLLHUP | POLLERR)) {
        switch (eo_link_read(link, &rv->secret)) {
        case EO_LINK_GOES_ON: break;
        case EO_LINK_IS_OPEN: on_open(rv, link); break;
        case EO_LINK_HAS_ENDED: link->ended = true; break;
        case EO_LINK_IS_REFUSED:
            if (link->kind == EO_LINK_NEW)
                refuse_stranger(rv, link);
            else
                give_up(rv, EO_ERR_INVALID, "rank %u cannot join at %s: %s", rv->params.rank, link->name, link->why);
            link->ended = true;
            break;
        }
        take_messages(rv, link); /* what came before its end, too */
    }
    if (!link->ended)
        (void)eo_link_flush(link);
}

/* When all is written, and then until the other end closes: so nothing is lost on its way. */
static void wind_up(struct eo_rendezvous *rv)
{
    for (struct eo_link *link = rv->links; link; link = link->next)
        if (link->state == EO_LINK_ENDING && !link->is_shut && !eo_link_has_output(link)) {
            link->is_shut = true;
            (void)shutdown(link->fd, SHUT_WR);
        }
}

/* Those that have ended: the node is told, and may end others. */
static void bury(struct eo_rendezvous *rv)
{
    for (struct eo_link **place = &rv->links; *place;) {
        struct eo_link *link = *place;
        if (!link->ended) {
            place = &link->next;
            continue;
        }
        *place = link->next;
        if (link->in_node)
            eo_node_down(&rv->node, &link->node, link->end, link->why);
        else if (link->kind != EO_LINK_NEW && rv->dial_kind >= 0) {
            snprintf(rv->dial_why, sizeof(rv->dial_why), "%.70s: %.80s", link->name, link->why);
            dial_later(rv);
        }
        eo_link_free(link);
        place = &rv->links; /* the list may have changed */
    }
}

/* ---- time ---- */

/* Time in which this thread itself did not run is nobody's silence. */
static void tick(struct eo_rendezvous *rv, uint64_t now)
{
    char activity[EO_ACTIVITY_BYTES] = "";
    uint64_t passed_ns = now - rv->tick_ns;
    if (passed_ns > 2 * ms_ns(rv->beat_ms))
        passed_ns = 2 * ms_ns(rv->beat_ms);
    rv->tick_ns = now;
    if (rv->params.activity)
        rv->params.activity(rv->params.user, activity, sizeof(activity));
    eo_node_beat(&rv->node, activity);
    for (struct eo_link *link = rv->links; link; link = link->next) {
        if (link->ended || link->state == EO_LINK_ENDING)
            continue;
        link->silent_ns += passed_ns;
        if (link->state != EO_LINK_OPEN) {
            if (now - link->opened_ns > ms_ns(HANDSHAKE_MS))
                end_link(link, "no answer");
        } else if (link->silent_ns > ms_ns(rv->params.silence_ms)) {
            char waited[32];
            snprintf(waited, sizeof(waited), "%.1f s", rv->params.silence_ms / 1000.0);
            eo_link_set_end(link, EO_END_SILENT, waited);
            link->ended = true;
        }
    }
}

/* Counted from the first that came, so a rank that never comes itself tells of itself. */
static void look_at_exchange(struct eo_rendezvous *rv, uint64_t now)
{
    const uint64_t limit_ns = ms_ns(rv->params.timeout_ms);
    if (!rv->node.gather_any || rv->gather_number != rv->node.gather_number) {
        rv->gather_number = rv->node.gather_number;
        rv->gather_ns = now;
    } else if (now - rv->gather_ns >= limit_ns) {
        eo_node_gather_is_late(&rv->node, rv->params.timeout_ms / 1000.0, now - rv->gather_ns >= limit_ns + ms_ns(GRACE_MS / 2));
    }
}

static void look_at_deadlines(struct eo_rendezvous *rv, uint64_t now)
{
    if (rv->node.failure.status < 0)
        return;
    if (rv->node.joined) {
        look_at_exchange(rv, now);
        return;
    }
    if (!rv->told_partial && now >= rv->partial_ns && rv->node.up) { /* else when there is somebody to tell */
        rv->told_partial = true;
        eo_node_tell_partial(&rv->node);
    }
    if (now < rv->join_end_ns)
        return;
    char missing[700];
    eo_node_missing(&rv->node, missing, sizeof(missing));
    const char *also = rv->dial_kind >= 0 && rv->dial_why[0] ? "; last tried " : rv->accept_error ? "; here: " : "";
    give_up(rv, EO_ERR_TIMEOUT, "not all %u ranks have come within %.1f s: %s%s%s", rv->params.rank_count,
            rv->params.timeout_ms / 1000.0, missing, also,
            rv->dial_kind >= 0 ? rv->dial_why : rv->accept_error ? strerror(rv->accept_error) : "");
}

static int poll_ms(const struct eo_rendezvous *rv, uint64_t now)
{
    uint64_t until = rv->tick_ns + ms_ns(rv->beat_ms);
    if (rv->dial_kind >= 0 && rv->dial_at_ns < until)
        until = rv->dial_at_ns;
    if (rv->end_ns && rv->end_ns < until)
        until = rv->end_ns;
    if (rv->accept_at_ns > now && rv->accept_at_ns < until)
        until = rv->accept_at_ns;
    return until <= now ? 0 : (int)((until - now) / 1000000u + 1);
}

/* ---- the loop ---- */

static void look_at_wishes(struct eo_rendezvous *rv)
{
    unsigned char blob[EO_GATHER_BYTES_MAX];
    uint64_t count;
    if (read(rv->wake, &count, sizeof(count)) < 0) {
        /* nothing there */
    }
    pthread_mutex_lock(&rv->mutex);
    const bool gather = rv->asked && rv->node.joined && rv->node.failure.status == EO_OK;
    const bool fail = rv->wants_to_fail && rv->node.failure.status == EO_OK, stop = rv->stop;
    const uint32_t bytes = rv->bytes;
    if (gather) {
        memcpy(blob, rv->send, bytes);
        rv->asked = false;
    }
    pthread_mutex_unlock(&rv->mutex);
    if (gather && eo_node_gather(&rv->node, blob, bytes) < 0)
        give_up(rv, EO_ERR_NO_MEMORY, "rank %u: no memory for an exchange", rv->params.rank);
    if (fail)
        eo_node_fail(&rv->node, &rv->own_failure);
    if (!stop || rv->end_ns)
        return;
    rv->end_ns = own_ns(rv) + ms_ns(rv->leave ? LINGER_MS : FLUSH_MS);
    if (rv->leave)
        eo_node_leave(&rv->node);
    for (struct eo_link *link = rv->links; link; link = link->next)
        link->state = EO_LINK_ENDING;
}

/* The eventfd, open listeners, the links. No more: the limit on open files is poll's limit too. */
static uint32_t fill_polls(struct eo_rendezvous *rv)
{
    int listeners[LISTENERS] = {rv->local_listener, rv->child_listener};
    uint32_t count = 1 + LISTENERS;
    memcpy(listeners + 2, rv->root_listeners, sizeof(rv->root_listeners));
    for (const struct eo_link *link = rv->links; link; link = link->next)
        count++;
    if (count > rv->poll_capacity) {
        struct pollfd *polls = realloc(rv->polls, 2 * count * sizeof(*polls));
        if (!polls)
            return 0;
        rv->polls = polls;
        rv->poll_capacity = 2 * count;
    }
    rv->polls[0] = (struct pollfd){.fd = rv->wake, .events = POLLIN};
    const bool accepts = own_ns(rv) >= rv->accept_at_ns;
    count = 1;
    for (int i = 0; i < LISTENERS && accepts; i++)
        if (listeners[i] >= 0)
            rv->polls[count++] = (struct pollfd){.fd = listeners[i], .events = POLLIN};
    rv->first_link = count;
    for (const struct eo_link *link = rv->links; link; link = link->next)
        rv->polls[count++] = (struct pollfd){
            .fd = link->fd,
            .events = (short)(link->state == EO_LINK_CONNECTING ? POLLOUT
                              : eo_link_has_output(link)        ? POLLIN | POLLOUT
                                                                : POLLIN)};
    return count;
}

static void serve_all(struct eo_rendezvous *rv, uint32_t count)
{
    uint32_t i = rv->first_link;
    for (struct eo_link *link = rv->links; link && i < count; link = link->next, i++)
        if (rv->polls[i].revents)
            serve(rv, link, rv->polls[i].revents);
    for (i = 1; i < rv->first_link; i++) /* after the links: new ones come in front of the list */
        if (rv->polls[i].revents)
            accept_all(rv, rv->polls[i].fd);
}

/* Whom nobody is awaited from any more has nothing to say here. */
static void close_listeners(struct eo_rendezvous *rv)
{
    uint32_t children = 0;
    for (int i = 0; i < EO_ADDRESSES_MAX && rv->node.placed; i++)
        if (rv->root_listeners[i] >= 0) {
            eo_socket_close(rv->root_listeners[i]);
            rv->root_listeners[i] = -1;
        }
    if (rv->child_listener < 0 || !rv->node.placed)
        return;
    for (const struct eo_link *link = rv->links; link; link = link->next)
        children += link->node.kind == EO_LINK_CHILD;
    if (children >= rv->node.child_count) {
        eo_socket_close(rv->child_listener);
        rv->child_listener = -1;
    }
}

static bool is_over(struct eo_rendezvous *rv)
{
    if (!rv->end_ns)
        return false;
    return own_ns(rv) >= rv->end_ns || !rv->links;
}

static void run(struct eo_rendezvous *rv)
{
    eo_node_start(&rv->node);
    while (!is_over(rv)) {
        uint64_t now = own_ns(rv);
        if (rv->dial_kind >= 0 && now >= rv->dial_at_ns && !rv->end_ns && rv->node.failure.status == EO_OK)
            dial(rv);
        const uint32_t count = fill_polls(rv);
        const int ready = count ? poll(rv->polls, count, poll_ms(rv, now)) : 0;
        if (ready > 0)
            serve_all(rv, count);
        look_at_wishes(rv);
        wind_up(rv);
        now = own_ns(rv);
        if (now >= rv->tick_ns + ms_ns(rv->beat_ms))
            tick(rv, now);
        bury(rv);
        look_at_deadlines(rv, now);
        close_listeners(rv);
    }
}

void *eo_rendezvous_main(void *rendezvous)
{
    struct eo_rendezvous *rv = rendezvous;
    const eo_rendezvous_params *p = &rv->params;
    pthread_setname_np(pthread_self(), "eo-control");
    struct eo_machine machine;
    eo_machine_read(&machine);
    struct eo_node_params params = {
        .self = {.rank = p->rank, .pid = (uint32_t)getpid(), .machine = eo_machine_number(&machine)},
        .rank_count = p->rank_count, .local_rank = p->local_rank, .local_count = p->local_count,
    };
    snprintf(params.self.host, sizeof(params.self.host), "%s", rv->host);
    rv->dial_kind = p->local_rank != 0 ? DIAL_LEADER : p->rank != 0 ? DIAL_ROOT : -1;
    rv->tick_ns = own_ns(rv);
    rv->partial_ns = ms_ns(p->timeout_ms) / 2;
    rv->join_end_ns = ms_ns(p->timeout_ms) + (p->rank == 0 ? 0 : ms_ns(GRACE_MS));
    if (eo_node_init(&rv->node, &params, &node_ops, rv) < 0) {
        on_failed(rv, &(struct eo_failure){.status = EO_ERR_NO_MEMORY, .rank = p->rank, .text = "no memory"});
        return NULL;
    }
    run(rv);
    for (struct eo_link *link = rv->links; link;) {
        struct eo_link *next = link->next;
        eo_link_free(link);
        link = next;
    }
    eo_node_fini(&rv->node);
    return NULL;
}
