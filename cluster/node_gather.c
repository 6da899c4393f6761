/* SPDX-License-Identifier: MIT
 *
 * Gathers along the tree.
 */
#include "cluster/node_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { MEMBER_BLOB_BYTES = 4 + EO_HOST_BYTES + 8 };

/* All ranks are in the same gather with the same size, or somebody is told. */
static bool agrees(struct eo_node *node, uint64_t number, uint32_t bytes, const struct eo_node_link *from)
{
    char name[160] = "this rank";
    if (!node->gather_any && number == node->gather_number) {
        node->gather_bytes = bytes;
        node->gather_any = true;
    }
    if (number == node->gather_number && bytes == node->gather_bytes)
        return true;
    if (from)
        eo_member_text(&from->peer, name, sizeof(name));
    eo_node_give_up(node, EO_ERR_INVALID, "the ranks disagree about an exchange: %s, or a rank behind it, is in exchange %llu "
                    "with %u bytes, others are in %llu with %u", name, (unsigned long long)number, bytes,
                    (unsigned long long)node->gather_number, node->gather_bytes);
    return false;
}

static bool add_parts(struct eo_node *node, const void *data, size_t bytes)
{
    if (node->part_bytes + bytes > node->part_capacity) {
        const size_t capacity = 2 * (node->part_bytes + bytes);
        unsigned char *parts = realloc(node->parts, capacity);
        if (!parts)
            return false;
        node->parts = parts;
        node->part_capacity = capacity;
    }
    memcpy(node->parts + node->part_bytes, data, bytes);
    node->part_bytes += bytes;
    return true;
}

eo_status eo_node_gather(struct eo_node *node, const void *blob, uint32_t bytes)
{
    unsigned char rank[4];
    struct eo_writer w = {rank, rank + 4, false};
    eo_put(&w, node->self.rank, 4);
    EO_ASSERT(!node->gather_own && bytes >= 1 && bytes <= EO_GATHER_BYTES_MAX);
    if (!agrees(node, node->gather_number, bytes, NULL))
        return EO_OK; /* told by the failure */
    if (!add_parts(node, rank, 4) || !add_parts(node, blob, bytes))
        return EO_ERR_NO_MEMORY;
    node->gather_own = true;
    eo_node_look_at_gather(node);
    return EO_OK;
}

void eo_node_gather_self(struct eo_node *node)
{
    unsigned char blob[MEMBER_BLOB_BYTES];
    struct eo_writer w = {blob, blob + sizeof(blob), false};
    eo_put(&w, node->self.pid, 4);
    eo_put_text(&w, node->self.host, EO_HOST_BYTES);
    eo_put(&w, node->self.machine, 8);
    if (eo_node_gather(node, blob, sizeof(blob)) < 0)
        eo_node_give_up(node, EO_ERR_NO_MEMORY, "no memory for the ranks' names");
}

enum { NAMES_MAX = 8 };

/* Adds those whose part has not come to the failure's text, and counts them. */
static uint32_t name_late(const struct eo_node *node, enum eo_link_kind kind, uint32_t count, struct eo_failure *failure)
{
    for (const struct eo_node_link *link = node->links; link; link = link->next) {
        char name[160];
        if (link->kind != kind || link->contributed || ++count > NAMES_MAX)
            continue;
        const size_t used = strlen(failure->text);
        failure->rank = count == 1 ? link->peer.rank : UINT32_MAX;
        eo_member_text(&link->peer, name, sizeof(name));
        snprintf(failure->text + used, EO_FAILURE_BYTES / 2 - used, "%s%s%s%s", used ? ", " : "", name,
                 link->activity[0] ? " in " : "", link->activity);
    }
    return count;
}

void eo_node_gather_is_late(struct eo_node *node, double waited_s, bool for_hosts)
{
    struct eo_failure failure = {.status = EO_ERR_TIMEOUT, .rank = node->self.rank, .lost = true};
    if (eo_node_is_leaf(node) || !node->gather_any || node->gather_sent || node->failure.status != EO_OK)
        return;
    if (!node->gather_own)
        eo_member_text(&node->self, failure.text, sizeof(failure.text));
    uint32_t count = name_late(node, EO_LINK_LEAF, !node->gather_own, &failure);
    const bool is_of_host = count > 0;
    if (!is_of_host && for_hosts)
        count = name_late(node, EO_LINK_CHILD, 0, &failure);
    if (count == 0)
        return;
    const size_t used = strlen(failure.text);
    snprintf(failure.text + used, sizeof(failure.text) - used, "%s%s not reached a meeting of all ranks within %.1f s",
             count > NAMES_MAX ? " and others" : "",
             is_of_host ? count > 1 ? " have" : " has" : ", or another rank of its host or behind it, has", waited_s);
    eo_node_fail(node, &failure);
}

struct eo_member eo_node_member(const unsigned char *all, uint32_t rank)
{
    const unsigned char *blob = all + (size_t)rank * MEMBER_BLOB_BYTES;
    struct eo_reader r = {blob, blob + MEMBER_BLOB_BYTES, false};
    struct eo_member member = {.rank = rank, .pid = (uint32_t)eo_get(&r, 4)};
    eo_get_text(&r, member.host, EO_HOST_BYTES);
    member.machine = eo_get(&r, 8);
    return member;
}

/* Down to all below, then to this rank. `body` is the whole message. */
static void finish(struct eo_node *node, const unsigned char *body, size_t bytes)
{
    const uint64_t number = node->gather_number++;
    const uint32_t blob_bytes = node->gather_bytes;
    for (struct eo_node_link *link = node->links; link; link = link->next) {
        if (link->kind == EO_LINK_LEAF || link->kind == EO_LINK_CHILD)
            node->ops->send(node->user, link, EO_MESSAGE_DOWN, body, bytes);
        link->contributed = false;
    }
    free(node->parts);
    node->parts = NULL;
    node->part_bytes = node->part_capacity = 0;
    node->gather_own = node->gather_any = node->gather_sent = false;
    node->joined = true;
    if (number == 0)
        node->ops->joined(node->user, body + GATHER_HEADER_BYTES);
    else
        node->ops->gathered(node->user, body + GATHER_HEADER_BYTES, blob_bytes);
}

/* The root puts the parts in their places: each rank once. */
static void assemble(struct eo_node *node)
{
    const size_t bytes = GATHER_HEADER_BYTES + (size_t)node->rank_count * node->gather_bytes;
    unsigned char *body = malloc(bytes), *seen = calloc(node->rank_count, 1);
    uint32_t count = 0;
    if (body && seen) {
        struct eo_writer w = {body, body + bytes, false};
        eo_put(&w, node->gather_number, 8);
        eo_put(&w, node->gather_bytes, 4);
        struct eo_reader r = {node->parts, node->parts + node->part_bytes, false};
        while (r.at < r.end) {
            const uint32_t rank = (uint32_t)eo_get(&r, 4);
            const unsigned char *blob = eo_get_bytes(&r, node->gather_bytes);
            if (!blob || rank >= node->rank_count || seen[rank])
                break;
            memcpy(w.at + (size_t)rank * node->gather_bytes, blob, node->gather_bytes);
            seen[rank] = 1;
            count++;
        }
        if (count == node->rank_count)
            finish(node, body, bytes);
        else
            eo_node_give_up(node, EO_ERR_COMM, "a damaged exchange of the ranks: %u of %u parts are good", count,
                            node->rank_count);
    } else {
        eo_node_give_up(node, EO_ERR_NO_MEMORY, "no memory for an exchange of %zu bytes", bytes);
    }
    free(body);
    free(seen);
}

void eo_node_look_at_gather(struct eo_node *node)
{
    uint32_t contributed = 0;
    if (!node->gather_own || !node->placed || node->failure.status != EO_OK)
        return;
    for (const struct eo_node_link *link = node->links; link; link = link->next)
        contributed += link->contributed;
    const uint32_t below = (eo_node_is_leaf(node) ? 0 : node->local_count - 1) + node->child_count;
    if (contributed < below)
        return;
    if (eo_node_is_root(node)) {
        assemble(node);
    } else if (node->up) {
        const size_t bytes = GATHER_HEADER_BYTES + node->part_bytes;
        unsigned char *body = malloc(bytes);
        if (!body) {
            eo_node_give_up(node, EO_ERR_NO_MEMORY, "no memory for an exchange of %zu bytes", bytes);
            return;
        }
        struct eo_writer w = {body, body + bytes, false};
        eo_put(&w, node->gather_number, 8);
        eo_put(&w, node->gather_bytes, 4);
        eo_put_bytes(&w, node->parts, node->part_bytes);
        node->ops->send(node->user, node->up, EO_MESSAGE_UP, body, bytes);
        free(body);
        node->gather_own = false; /* sent once; a new one begins when this has come down */
        node->gather_sent = true;
    }
}

bool eo_node_take_up(struct eo_node *node, struct eo_node_link *link, struct eo_reader *r)
{
    const uint64_t number = eo_get(r, 8);
    const uint32_t bytes = (uint32_t)eo_get(r, 4);
    const size_t left = (size_t)(r->end - r->at);
    if (r->overran || (link->kind != EO_LINK_LEAF && link->kind != EO_LINK_CHILD) || link->contributed ||
        bytes == 0 || bytes > EO_GATHER_BYTES_MAX || left == 0 || left % (4 + bytes))
        return false;
    if (!agrees(node, number, bytes, link))
        return true;
    if (!add_parts(node, r->at, left)) {
        eo_node_give_up(node, EO_ERR_NO_MEMORY, "no memory for an exchange");
        return true;
    }
    link->contributed = true;
    eo_node_look_at_gather(node);
    return true;
}

/* Only an answer to this rank's own part: before it the size is not known, and the caller's memory may be smaller. */
bool eo_node_take_down(struct eo_node *node, struct eo_node_link *link, const unsigned char *body, size_t bytes)
{
    struct eo_reader r = {body, body + bytes, false};
    const uint64_t number = eo_get(&r, 8);
    const uint32_t blob_bytes = (uint32_t)eo_get(&r, 4);
    if (r.overran || link != node->up || !node->gather_sent || number != node->gather_number ||
        blob_bytes != node->gather_bytes || bytes != GATHER_HEADER_BYTES + (size_t)node->rank_count * blob_bytes)
        return false;
    finish(node, body, bytes);
    return true;
}
