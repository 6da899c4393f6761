/* SPDX-License-Identifier: MIT
 *
 * The free blocks of a pool by size, then address: a treap, so that best fit costs the logarithm of their number.
 * The nodes lie in the blocks' own descriptors; nothing is allocated.
 */
#ifndef EO_BUFFERS_FREE_TREE_H
#define EO_BUFFERS_FREE_TREE_H

#include <evenodd/common.h>

struct eo_free_node {
    struct eo_free_node *left, *right;
    uint64_t bytes, address; /* the key; not changed while in the tree */
};

void eo_free_tree_insert(struct eo_free_node **root, struct eo_free_node *node);
void eo_free_tree_remove(struct eo_free_node **root, struct eo_free_node *node);
/* The smallest block of at least `bytes`, of those the one at the lowest address; NULL if there is none. */
struct eo_free_node *eo_free_tree_best_fit(struct eo_free_node *root, uint64_t bytes);

#endif
