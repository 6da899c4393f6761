/* SPDX-License-Identifier: MIT
 *
 * Coming together: who is there, who is refused, and the tree of hosts. Gathers come after, in node_gather.c.
 */
#include "cluster/node_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { ENTRY_BYTES = 4 + 4 + EO_HOST_BYTES, ENDPOINT_BYTES = 1 + 2 + 16 + 4 };
enum { JOIN_IS_PARTIAL = 1, JOIN_IS_OF_HOST = 2 };
enum { PRESENT_HEARD = 1, PRESENT_JOINED = 2 };

size_t eo_message_bytes_max(enum eo_message type, uint32_t rank_count)
{
    switch (type) {
    case EO_MESSAGE_JOIN: return 1 + 4 + ENDPOINT_BYTES + 4 + (size_t)rank_count * ENTRY_BYTES;
    case EO_MESSAGE_WELCOME:
    case EO_MESSAGE_CHILD: return ENTRY_BYTES;
    case EO_MESSAGE_REFUSED: return EO_FAILURE_BYTES;
    case EO_MESSAGE_PLACE: return 1 + ENDPOINT_BYTES + 4;
    case EO_MESSAGE_UP: return GATHER_HEADER_BYTES + (size_t)rank_count * (4 + EO_GATHER_BYTES_MAX);
    case EO_MESSAGE_DOWN: return GATHER_HEADER_BYTES + (size_t)rank_count * EO_GATHER_BYTES_MAX;
    case EO_MESSAGE_BEAT: return EO_ACTIVITY_BYTES;
    case EO_MESSAGE_FAILURE: return 4 + 4 + 1 + EO_FAILURE_BYTES;
    case EO_MESSAGE_LEAVE:
    case EO_MESSAGE_END: break;
    }
    return 0;
}

eo_status eo_node_init(struct eo_node *node, const struct eo_node_params *params, const struct eo_node_ops *ops,
                       void *user)
{
    *node = (struct eo_node){
        .ops = ops, .user = user, .self = params->self, .rank_count = params->rank_count,
        .local_rank = params->local_rank, .local_count = params->local_count, .endpoint = params->endpoint,
    };
    if (eo_node_is_leaf(node))
        return EO_OK;
    const bool is_root = eo_node_is_root(node);
    node->members = calloc(is_root ? node->rank_count : node->local_count, sizeof(*node->members));
    node->present = is_root ? calloc(node->rank_count, 1) : NULL;
    if (!node->members || (is_root && !node->present)) {
        eo_node_fini(node);
        return EO_ERR_NO_MEMORY;
    }
    if (is_root) {
        node->members[node->self.rank] = node->self;
        node->present[node->self.rank] = PRESENT_JOINED;
        node->host_count = 1;
    } else {
        node->members[0] = node->self;
    }
    node->member_count = 1;
    return EO_OK;
}

void eo_node_fini(struct eo_node *node)
{
    free(node->members);
    free(node->present);
    free(node->parts);
    node->members = NULL;
    node->present = NULL;
    node->parts = NULL;
}

/* ---- messages of joining ---- */

static void put_member(struct eo_writer *w, const struct eo_member *member)
{
    eo_put(w, member->rank, 4);
    eo_put(w, member->pid, 4);
    eo_put_text(w, member->host, EO_HOST_BYTES);
}

static struct eo_member get_member(struct eo_reader *r)
{
    struct eo_member member = {0};
    member.rank = (uint32_t)eo_get(r, 4);
    member.pid = (uint32_t)eo_get(r, 4);
    eo_get_text(r, member.host, EO_HOST_BYTES);
    return member;
}

static void put_endpoint(struct eo_writer *w, const struct eo_endpoint *endpoint)
{
    eo_put(w, endpoint->family, 1);
    eo_put(w, endpoint->port, 2);
    eo_put_bytes(w, endpoint->address, sizeof(endpoint->address));
    eo_put(w, endpoint->rank, 4);
}

static struct eo_endpoint get_endpoint(struct eo_reader *r)
{
    struct eo_endpoint endpoint = {.family = (uint8_t)eo_get(r, 1)};
    endpoint.port = (uint16_t)eo_get(r, 2);
    const unsigned char *address = eo_get_bytes(r, sizeof(endpoint.address));
    if (address)
        memcpy(endpoint.address, address, sizeof(endpoint.address));
    endpoint.rank = (uint32_t)eo_get(r, 4);
    return endpoint;
}

static void send_join(struct eo_node *node, bool is_partial)
{
    const bool of_host = !eo_node_is_leaf(node);
    const uint32_t count = of_host ? node->member_count : 1;
    const size_t bytes_max = eo_message_bytes_max(EO_MESSAGE_JOIN, count);
    unsigned char *body = malloc(bytes_max);
    if (!body) {
        eo_node_give_up(node, EO_ERR_NO_MEMORY, "no memory to join");
        return;
    }
    struct eo_writer w = {body, body + bytes_max, false};
    eo_put(&w, (is_partial ? JOIN_IS_PARTIAL : 0) | (of_host ? JOIN_IS_OF_HOST : 0), 1);
    eo_put(&w, node->rank_count, 4);
    put_endpoint(&w, &node->endpoint);
    eo_put(&w, count, 4);
    for (uint32_t i = 0; i < count; i++)
        put_member(&w, of_host ? &node->members[i] : &node->self);
    EO_ASSERT(!w.overran);
    node->ops->send(node->user, node->up, EO_MESSAGE_JOIN, body, (size_t)(w.at - body));
    free(body);
}

static void send_member(struct eo_node *node, struct eo_node_link *link, enum eo_message type)
{
    unsigned char body[ENTRY_BYTES];
    struct eo_writer w = {body, body + sizeof(body), false};
    put_member(&w, &node->self);
    node->ops->send(node->user, link, type, body, sizeof(body));
}

/* Says why to both sides. The link's end is then no loss. */
static void refuse(struct eo_node *node, struct eo_node_link *link, const struct eo_member *who, const char *why)
{
    char name[160], text[640];
    eo_member_text(who, name, sizeof(name));
    snprintf(text, sizeof(text), "refused %s: %s", name, why);
    node->ops->log(node->user, EO_LOG_WARN, text);
    const size_t used = strlen(node->refused);
    snprintf(node->refused + used, sizeof(node->refused) - used, "%s%s", used ? "; " : "", text);
    node->ops->send(node->user, link, EO_MESSAGE_REFUSED, why, strlen(why) + 1);
    link->left = true;
    node->ops->drop(node->user, link);
}

/* ---- the root has all: the tree of hosts ---- */

/*
 * Hosts are numbered as they came, the root's own is 0; host h belongs to host (h - 1) / FANOUT. Links are a list with
 * the newest first, so those of hosts are counted down.
 */
static void place_hosts(struct eo_node *node)
{
    const uint32_t host_count = node->host_count;
    struct eo_node_link **by_host = calloc(host_count, sizeof(*by_host));
    if (!by_host) {
        eo_node_give_up(node, EO_ERR_NO_MEMORY, "no memory for %u hosts", host_count);
        return;
    }
    uint32_t h = host_count;
    for (struct eo_node_link *link = node->links; link; link = link->next)
        if (link->kind == EO_LINK_HOST && !link->left && h > 1)
            by_host[--h] = link;
    if (h != 1) {
        eo_node_give_up(node, EO_ERR_COMM, "a host left while others were joining");
        free(by_host);
        return;
    }
    for (h = 0; h < host_count; h++) {
        const uint64_t first = (uint64_t)h * EO_NODE_FANOUT + 1;
        const uint32_t children = first >= host_count ? 0
                                  : host_count - first < EO_NODE_FANOUT ? (uint32_t)(host_count - first)
                                                                        : (uint32_t)EO_NODE_FANOUT;
        if (h == 0) {
            node->child_count = children;
            continue;
        }
        const uint32_t parent = (h - 1) / EO_NODE_FANOUT;
        unsigned char body[1 + ENDPOINT_BYTES + 4];
        struct eo_writer w = {body, body + sizeof(body), false};
        eo_put(&w, parent == 0, 1);
        put_endpoint(&w, parent == 0 ? &node->endpoint : &by_host[parent]->endpoint);
        eo_put(&w, children, 4);
        node->ops->send(node->user, by_host[h], EO_MESSAGE_PLACE, body, sizeof(body));
        if (parent == 0)
            by_host[h]->kind = EO_LINK_CHILD; /* else it goes when it has its parent */
    }
    free(by_host);
}

static void look_if_complete(struct eo_node *node)
{
    if (node->failure.status != EO_OK || eo_node_is_leaf(node) || node->told_root)
        return;
    if (!eo_node_is_root(node)) {
        if (node->up && node->leaf_count + 1 == node->local_count) {
            node->told_root = true;
            send_join(node, false);
        }
        return;
    }
    if (node->member_count < node->rank_count)
        return;
    node->told_root = node->placed = true;
    place_hosts(node);
    eo_node_gather_self(node);
}

/* ---- who comes ---- */

/* NULL, or why not. */
static const char *judge(struct eo_node *node, const struct eo_member *who, uint32_t rank_count, char *text,
                         size_t bytes)
{
    const struct eo_member *there = NULL;
    char name[160];
    if (rank_count != node->rank_count) {
        snprintf(text, bytes, "it was started for a world of %u ranks, this one has %u; start all ranks with the same number",
                 rank_count, node->rank_count);
        return text;
    }
    if (who->rank >= node->rank_count) {
        snprintf(text, bytes, "there is no rank %u in a world of %u", who->rank, node->rank_count);
        return text;
    }
    if (eo_node_is_root(node) && node->present[who->rank] == PRESENT_JOINED)
        there = &node->members[who->rank];
    for (uint32_t i = 0; !eo_node_is_root(node) && i < node->member_count; i++)
        if (node->members[i].rank == who->rank)
            there = &node->members[i];
    if (there) {
        eo_member_text(there, name, sizeof(name));
        snprintf(text, bytes, "%s has already joined; give each process a rank of its own", name);
        return text;
    }
    if (node->placed) {
        snprintf(text, bytes, "all ranks have already joined");
        return text;
    }
    return NULL;
}

static void add_member(struct eo_node *node, const struct eo_member *who)
{
    if (eo_node_is_root(node)) {
        node->members[who->rank] = *who;
        node->present[who->rank] = PRESENT_JOINED;
    } else {
        node->members[node->member_count] = *who;
    }
    node->member_count++;
}

static bool take_leaf(struct eo_node *node, struct eo_node_link *link, uint32_t rank_count, struct eo_reader *r)
{
    char text[512];
    const struct eo_member who = get_member(r);
    if (r->overran || who.rank != link->rank || link->role != EO_LINK_LEADER)
        return false;
    const char *why = judge(node, &who, rank_count, text, sizeof(text));
    if (!why && node->leaf_count + 1 >= node->local_count) {
        snprintf(text, sizeof(text), "this host already has its %u ranks", node->local_count);
        why = text;
    }
    if (why) {
        refuse(node, link, &who, why);
        return true;
    }
    add_member(node, &who);
    node->leaf_count++;
    link->kind = EO_LINK_LEAF;
    link->peer = who;
    link->known = true;
    send_member(node, link, EO_MESSAGE_WELCOME);
    look_if_complete(node);
    return true;
}

/* All ranks of a host or none. */
static bool take_host(struct eo_node *node, struct eo_node_link *link, uint32_t rank_count, uint32_t count,
                      bool is_partial, struct eo_reader *r)
{
    char text[512];
    struct eo_reader again = *r;
    const char *why = NULL;
    if (!eo_node_is_root(node) || count == 0 || count > rank_count || link->role != EO_LINK_ROOT)
        return false;
    struct eo_member who = {0};
    for (uint32_t i = 0; i < count && !why; i++) {
        who = get_member(r);
        if (r->overran || (i == 0 && who.rank != link->rank)) /* a leader names itself first */
            return false;
        why = judge(node, &who, rank_count, text, sizeof(text));
    }
    if (why) {
        refuse(node, link, &who, why);
        return true;
    }
    for (uint32_t i = 0; i < count; i++) {
        who = get_member(&again);
        if (is_partial) {
            node->members[who.rank] = who;
            node->present[who.rank] = PRESENT_HEARD;
        } else if (node->present[who.rank] != PRESENT_JOINED) {
            add_member(node, &who);
        } else { /* twice in one message */
            eo_node_give_up(node, EO_ERR_INVALID, "two processes of host %s claim rank %u", who.host,
                            who.rank);
            return true;
        }
        if (i == 0)
            link->peer = who;
    }
    link->known = true;
    if (is_partial)
        return true;
    link->kind = EO_LINK_HOST;
    node->host_count++;
    send_member(node, link, EO_MESSAGE_WELCOME);
    look_if_complete(node);
    return true;
}

static bool take_join(struct eo_node *node, struct eo_node_link *link, struct eo_reader *r)
{
    const uint64_t flags = eo_get(r, 1);
    const uint32_t rank_count = (uint32_t)eo_get(r, 4);
    link->endpoint = get_endpoint(r);
    link->endpoint.rank = link->rank;
    const uint32_t count = (uint32_t)eo_get(r, 4);
    if (r->overran || link->kind != EO_LINK_NEW || eo_node_is_leaf(node))
        return false;
    if (flags & JOIN_IS_OF_HOST)
        return take_host(node, link, rank_count, count, flags & JOIN_IS_PARTIAL, r);
    return count == 1 && take_leaf(node, link, rank_count, r);
}

static bool take_place(struct eo_node *node, struct eo_node_link *link, struct eo_reader *r)
{
    const bool is_parent = eo_get(r, 1) != 0;
    const struct eo_endpoint endpoint = get_endpoint(r);
    const uint32_t child_count = (uint32_t)eo_get(r, 4);
    if (r->overran || link->kind != EO_LINK_ROOT || node->placed || child_count > EO_NODE_FANOUT)
        return false;
    node->child_count = child_count;
    node->placed = true;
    node->parent_rank = endpoint.rank;
    if (is_parent) {
        link->kind = EO_LINK_PARENT;
    } else {
        node->up = NULL;
        node->ops->dial(node->user, &endpoint);
    }
    eo_node_gather_self(node);
    return true;
}

static bool take_child(struct eo_node *node, struct eo_node_link *link, struct eo_reader *r)
{
    const struct eo_member who = get_member(r);
    uint32_t count = 0;
    for (const struct eo_node_link *other = node->links; other; other = other->next)
        count += other->kind == EO_LINK_CHILD;
    if (r->overran || link->kind != EO_LINK_NEW || link->role != EO_LINK_PARENT || who.rank != link->rank ||
        eo_node_is_leaf(node) || count >= EO_NODE_FANOUT)
        return false;
    link->kind = EO_LINK_CHILD;
    link->peer = who;
    link->known = true;
    send_member(node, link, EO_MESSAGE_WELCOME);
    return true;
}

static bool take_welcome(struct eo_node_link *link, struct eo_reader *r)
{
    const struct eo_member who = get_member(r);
    if (r->overran || who.rank != link->rank || (link->kind != EO_LINK_LEADER && link->kind != EO_LINK_ROOT && link->kind != EO_LINK_PARENT))
        return false;
    link->peer = who;
    link->known = true;
    return true;
}

static bool take_refused(struct eo_node *node, struct eo_node_link *link, struct eo_reader *r, size_t bytes)
{
    char why[EO_FAILURE_BYTES], name[160];
    eo_get_text(r, why, bytes < sizeof(why) ? bytes : sizeof(why));
    if (bytes == 0 || link != node->up)
        return false;
    eo_member_text(&node->self, name, sizeof(name));
    link->left = true;
    eo_node_give_up(node, EO_ERR_INVALID, "%s was refused: %s", name, why);
    return true;
}

/* A leader that lacks ranks of its host has not joined yet, and may tell that one of them is lost. */
static bool is_awaited_leader(const struct eo_node *node, const struct eo_node_link *link)
{
    return eo_node_is_root(node) && link->role == EO_LINK_ROOT && link->rank < node->rank_count &&
           node->present[link->rank] != PRESENT_JOINED;
}

bool eo_node_take(struct eo_node *node, struct eo_node_link *link, enum eo_message type, const unsigned char *body,
                  size_t bytes)
{
    struct eo_reader r = {body, body + bytes, false};
    if (link->kind == EO_LINK_NEW && type != EO_MESSAGE_JOIN && type != EO_MESSAGE_CHILD && type != EO_MESSAGE_BEAT &&
        type != EO_MESSAGE_LEAVE && !(type == EO_MESSAGE_FAILURE && is_awaited_leader(node, link)))
        return false;
    switch (type) {
    case EO_MESSAGE_JOIN: return take_join(node, link, &r);
    case EO_MESSAGE_WELCOME: return take_welcome(link, &r);
    case EO_MESSAGE_REFUSED: return take_refused(node, link, &r, bytes);
    case EO_MESSAGE_PLACE: return take_place(node, link, &r);
    case EO_MESSAGE_CHILD: return take_child(node, link, &r);
    case EO_MESSAGE_UP: return eo_node_take_up(node, link, &r);
    case EO_MESSAGE_DOWN: return eo_node_take_down(node, link, body, bytes);
    case EO_MESSAGE_BEAT: eo_get_text(&r, link->activity, sizeof(link->activity)); return !r.overran;
    case EO_MESSAGE_FAILURE: return eo_node_take_failure(node, &r);
    case EO_MESSAGE_LEAVE: link->left = true; return true;
    case EO_MESSAGE_END: break;
    }
    return false;
}

/* ---- links ---- */

/* Not before there is a parent: until then a loss on either side is told over this link alone. */
static void leave_root(struct eo_node *node)
{
    for (struct eo_node_link *link = node->links; link; link = link->next) {
        if (link->kind != EO_LINK_ROOT || link->left)
            continue;
        node->ops->send(node->user, link, EO_MESSAGE_LEAVE, NULL, 0);
        link->left = true;
        node->ops->drop(node->user, link);
    }
}

void eo_node_start(struct eo_node *node)
{
    if (eo_node_is_leaf(node))
        node->placed = true;
    look_if_complete(node);
}

void eo_node_up(struct eo_node *node, struct eo_node_link *link, enum eo_link_kind kind)
{
    link->kind = kind;
    link->next = node->links;
    node->links = link;
    if (kind != EO_LINK_NEW)
        node->up = link;
    if (kind == EO_LINK_LEADER) {
        send_join(node, false);
        eo_node_gather_self(node);
    } else if (kind == EO_LINK_ROOT) {
        look_if_complete(node);
    } else if (kind == EO_LINK_PARENT) {
        send_member(node, link, EO_MESSAGE_CHILD);
        leave_root(node);
        eo_node_look_at_gather(node);
    }
    if (node->failure.status != EO_OK) /* before there was a link to tell it over */
        eo_node_tell_failure(node, link);
}

void eo_node_tell_partial(struct eo_node *node)
{
    if (!eo_node_is_leaf(node) && !eo_node_is_root(node) && node->up && !node->told_root)
        send_join(node, true);
}

/* The root, which has heard of all: who is still linked with it alone. */
static void say_unlinked(const struct eo_node *node, char *text, size_t bytes)
{
    enum { NAMES_MAX = 4 };
    uint32_t count = 0;
    size_t used = (size_t)snprintf(text, bytes, "all ranks came, but not all were notified");
    for (const struct eo_node_link *link = node->links; link; link = link->next) {
        char name[160];
        if (link->kind != EO_LINK_HOST || link->left || ++count > NAMES_MAX)
            continue;
        eo_member_text(&link->peer, name, sizeof(name));
        used += (size_t)snprintf(text + used, used < bytes ? bytes - used : 0, "%s%s", count == 1 ? ": " : ", ", name);
    }
    if (count && used < bytes)
        snprintf(text + used, bytes - used, "%s could not connect to another host; see the messages there",
                 count > NAMES_MAX ? " and others" : "");
}

void eo_node_missing(const struct eo_node *node, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    if (!eo_node_is_root(node)) {
        if (!node->up && node->placed && !eo_node_is_leaf(node))
            snprintf(text, bytes, "rank %u, over which this host is linked with the others, did not answer", node->parent_rank);
        else if (!node->up)
            snprintf(text, bytes, "%s", eo_node_is_leaf(node) ? "the first rank of this host did not answer: it has not "
                     "started, or has another token, job, address or port" : "rank 0 did not answer");
        else if (!eo_node_is_leaf(node) && !node->told_root)
            snprintf(text, bytes, "of the %u ranks of this host, %u have come", node->local_count, node->leaf_count + 1);
        else
            snprintf(text, bytes, "not all ranks reached rank 0; its message names the missing ones");
        return;
    }
    for (uint32_t r = 0; r < node->rank_count && used + 40 < bytes;) {
        uint32_t end = r;
        while (end < node->rank_count && !node->present[end])
            end++;
        if (end > r) {
            used += (size_t)snprintf(text + used, bytes - used, end - r == 1 ? "%s%u" : "%s%u ... %u",
                                     used ? ", " : "missing: rank ", r, end - 1);
        }
        r = end + (end == r);
    }
    if (!used) {
        say_unlinked(node, text, bytes);
        used = strlen(text);
    }
    if (node->refused[0] && used < bytes)
        snprintf(text + used, bytes - used, "; %s", node->refused);
}
