/* SPDX-License-Identifier: MIT
 *
 * cuDNN's backend API as far as attention calls it. A graph of operations is taken at its word: checked as cuDNN checks it, and
 * then computed node by node, from the sizes, strides, types and ids that the descriptors give. Nothing here knows what
 * attention is, but that a graph whose operations do not come in the order of one has no plan.
 */
#ifndef EO_TESTS_SIMULATOR_CUDNN_CUDNN_H
#define EO_TESTS_SIMULATOR_CUDNN_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Since the program's start, but for what is alive. */
struct sim_cudnn_counts {
    int handles, descriptors; /* that are alive */
    int plans, runs, refused;
    char first_refusal[160];
};
struct sim_cudnn_counts sim_cudnn_counts(void);
void sim_cudnn_forget_refusals(void);

/* A mistake in what the program describes: the tensor's row has other elements between it and the next, or its id is left out
 * of packs. id 0: none. */
extern struct sim_cudnn_mistake {
    int64_t id, elements;
    bool forgotten;
} sim_cudnn_mistake;
extern bool sim_cudnn_knows_no_plan; /* the heuristics find nothing, for any graph */
extern size_t sim_cudnn_version; /* 0: the header's */

#endif
