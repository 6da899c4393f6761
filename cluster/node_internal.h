/* SPDX-License-Identifier: MIT
 *
 * What the state machine's files share: node_join.c sees node_gather.c, and both see node_failure.c.
 */
#ifndef EO_CLUSTER_NODE_INTERNAL_H
#define EO_CLUSTER_NODE_INTERNAL_H

#include "cluster/bytes.h"
#include "cluster/node.h"

enum { GATHER_HEADER_BYTES = 8 + 4 };

static inline bool eo_node_is_root(const struct eo_node *node)
{
    return node->self.rank == 0;
}

static inline bool eo_node_is_leaf(const struct eo_node *node)
{
    return node->local_rank != 0;
}

/* This rank's failure, told to all. */
void eo_node_give_up(struct eo_node *node, eo_status status, const char *format, ...) EO_PRINTF(3, 4);
/* The node's failure, over one link. */
void eo_node_tell_failure(struct eo_node *node, struct eo_node_link *link);
bool eo_node_take_failure(struct eo_node *node, struct eo_reader *r);

/* Gather number 0: this rank's own member. */
void eo_node_gather_self(struct eo_node *node);
/* Sends what is complete. */
void eo_node_look_at_gather(struct eo_node *node);
bool eo_node_take_up(struct eo_node *node, struct eo_node_link *link, struct eo_reader *r);
bool eo_node_take_down(struct eo_node *node, struct eo_node_link *link, const unsigned char *body, size_t bytes);

#endif
