/* SPDX-License-Identifier: MIT */
#include "buffers/free_tree.h"

#include "base/check.h"

static bool node_is_before(const struct eo_free_node *a, const struct eo_free_node *b)
{
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

/* The heap order of the treap: a mix of the address, so that the shape is random and needs no field. */
static uint64_t node_priority(const struct eo_free_node *node)
{
    uint64_t x = node->address * UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 32;
    return x * UINT64_C(0xd6e8feb86659fd93);
}

void eo_free_tree_insert(struct eo_free_node **root, struct eo_free_node *node)
{
    const uint64_t priority = node_priority(node);
    while (*root && node_priority(*root) >= priority)
        root = node_is_before(node, *root) ? &(*root)->left : &(*root)->right;
    /* Split what lies below into the parts before and after the node. */
    struct eo_free_node *rest = *root, **before = &node->left, **after = &node->right;
    while (rest) {
        if (node_is_before(rest, node)) {
            *before = rest;
            before = &rest->right;
            rest = rest->right;
        } else {
            *after = rest;
            after = &rest->left;
            rest = rest->left;
        }
    }
    *before = NULL;
    *after = NULL;
    *root = node;
}

void eo_free_tree_remove(struct eo_free_node **root, struct eo_free_node *node)
{
    while (*root != node) {
        EO_ASSERT(*root); /* else the node is not in the tree, or its key was changed */
        root = node_is_before(node, *root) ? &(*root)->left : &(*root)->right;
    }
    /* Join the two subtrees in its place. */
    struct eo_free_node *left = node->left, *right = node->right;
    while (left && right) {
        if (node_priority(left) >= node_priority(right)) {
            *root = left;
            root = &left->right;
            left = left->right;
        } else {
            *root = right;
            root = &right->left;
            right = right->left;
        }
    }
    *root = left ? left : right;
    node->left = NULL;
    node->right = NULL;
}

struct eo_free_node *eo_free_tree_best_fit(struct eo_free_node *root, uint64_t bytes)
{
    struct eo_free_node *best = NULL;
    while (root) {
        if (root->bytes >= bytes) {
            best = root;
            root = root->left;
        } else {
            root = root->right;
        }
    }
    return best;
}
