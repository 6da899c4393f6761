/* SPDX-License-Identifier: MIT
 *
 * Failures, told over every link, and the end of links.
 */
#include "cluster/node_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void eo_member_text(const struct eo_member *member, char *text, size_t bytes)
{
    snprintf(text, bytes, "rank %u (host %s, process %u)", member->rank, member->host, member->pid);
}

void eo_node_tell_failure(struct eo_node *node, struct eo_node_link *link)
{
    const struct eo_failure *failure = &node->failure;
    unsigned char body[4 + 4 + 1 + EO_FAILURE_BYTES];
    struct eo_writer w = {body, body + sizeof(body), false};
    eo_put(&w, (uint32_t)failure->status, 4);
    eo_put(&w, failure->rank, 4);
    eo_put(&w, failure->lost, 1);
    eo_put_text(&w, failure->text, EO_FAILURE_BYTES);
    node->ops->send(node->user, link, EO_MESSAGE_FAILURE, body, sizeof(body));
}

void eo_node_fail(struct eo_node *node, const struct eo_failure *failure)
{
    if (node->failure.status != EO_OK)
        return;
    node->failure = *failure;
    for (struct eo_node_link *link = node->links; link; link = link->next)
        if (!link->left)
            eo_node_tell_failure(node, link);
    node->ops->failed(node->user, &node->failure);
}

void eo_node_give_up(struct eo_node *node, eo_status status, const char *format, ...)
{
    struct eo_failure failure = {.status = status, .rank = node->self.rank};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure.text, sizeof(failure.text), format, arguments);
    va_end(arguments);
    eo_node_fail(node, &failure);
}

bool eo_node_take_failure(struct eo_node *node, struct eo_reader *r)
{
    struct eo_failure failure = {.status = (eo_status)(int32_t)eo_get(r, 4)};
    failure.rank = (uint32_t)eo_get(r, 4);
    failure.lost = eo_get(r, 1) != 0;
    eo_get_text(r, failure.text, sizeof(failure.text));
    if (r->overran || failure.status >= 0)
        return false;
    eo_node_fail(node, &failure);
    return true;
}

/* Also to a leader that has told who of its host has come, and lacks others. */
static bool is_between_members(const struct eo_node_link *link)
{
    return link->kind != EO_LINK_NEW || link->known;
}

static void forget(struct eo_node *node, const struct eo_node_link *link)
{
    struct eo_node_link **place = &node->links;
    while (*place && *place != link)
        place = &(*place)->next;
    if (*place)
        *place = link->next;
    if (node->up == link)
        node->up = NULL;
}

void eo_node_down(struct eo_node *node, struct eo_node_link *link, enum eo_link_end end, const char *why)
{
    static const char *const texts[] = {
        [EO_END_CLOSED] = "%s is lost: its process has ended (%s)",
        [EO_END_SILENT] = "%s has not answered for %s: it hangs, or its host is cut off",
        [EO_END_CUT] = "%s has not answered (%s): it hangs, or its host is cut off",
        [EO_END_BROKEN] = "%s is lost: its connection was closed: %s",
    };
    if (end != EO_END_BROKEN) /* else the other end can still be told */
        forget(node, link);
    if (link->left || node->failure.status != EO_OK || !is_between_members(link)) {
        forget(node, link);
        return;
    }
    struct eo_failure failure = {.status = end == EO_END_SILENT || end == EO_END_CUT ? EO_ERR_TIMEOUT : EO_ERR_COMM,
                                 .rank = link->known ? link->peer.rank : UINT32_MAX, .lost = true};
    char name[160] = "rank 0";
    if (link->known)
        eo_member_text(&link->peer, name, sizeof(name));
    else if (link->kind == EO_LINK_LEADER)
        snprintf(name, sizeof(name), "the first rank of this host");
    snprintf(failure.text, sizeof(failure.text), texts[end], name, why);
    const size_t used = strlen(failure.text);
    if (link->activity[0])
        snprintf(failure.text + used, sizeof(failure.text) - used, "; last heard of in %s", link->activity);
    eo_node_fail(node, &failure);
    forget(node, link);
}

void eo_node_beat(struct eo_node *node, const char *activity)
{
    unsigned char body[EO_ACTIVITY_BYTES];
    struct eo_writer w = {body, body + sizeof(body), false};
    eo_put_text(&w, activity, sizeof(body));
    for (struct eo_node_link *link = node->links; link; link = link->next)
        if (!link->left)
            node->ops->send(node->user, link, EO_MESSAGE_BEAT, body, sizeof(body));
}

void eo_node_leave(struct eo_node *node)
{
    for (struct eo_node_link *link = node->links; link; link = link->next) {
        if (!link->left)
            node->ops->send(node->user, link, EO_MESSAGE_LEAVE, NULL, 0);
        link->left = true; /* whatever ends from now on */
    }
}
