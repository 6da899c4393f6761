/* SPDX-License-Identifier: MIT
 *
 * The library's optimizers as a table of facts: planner, runtime and checkpoints ask these, and never for a name. Their rules
 * are in streams/cpu/update_body.h and state8_body.h.
 *
 * Arrays of state are of blocks: fp32 ones of one element, those in 8 bits of 256 that share a scale. A parameter then begins
 * with a block, and so does every rank's part of a layer: blocks are the same for any number of ranks, and so are results.
 */
#ifndef EO_RUNTIME_PLAN_OPTIMIZERS_H
#define EO_RUNTIME_PLAN_OPTIMIZERS_H

#include <evenodd/common.h>

#include "streams/device.h"

struct plan_optimizer {
    uint32_t state_count; /* arrays a parameter */
    float beta1, beta2;   /* for a trainer's 0 */
    uint32_t block_elements, block_words; /* words of 4 bytes */
    enum eo_rule rule, matrix_rule; /* of parameters that are matrices to it; only with Muon some are */
};

/* optimizer < EO_OPTIMIZER_COUNT */
const struct plan_optimizer *eo_plan_optimizer(eo_optimizer optimizer);

/* Of `count` elements of an array of its state: whole blocks, in words of 4 bytes. */
static inline uint64_t eo_plan_state_words(eo_optimizer optimizer, uint64_t count)
{
    return count / eo_plan_optimizer(optimizer)->block_elements * eo_plan_optimizer(optimizer)->block_words;
}

#endif
