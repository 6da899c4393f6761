/* SPDX-License-Identifier: MIT
 *
 * The library's optimizers as a table of facts: planner, runtime and checkpoints ask these, and never for a name. Their rules
 * are in streams/cpu/update_body.h.
 */
#ifndef EO_RUNTIME_PLAN_OPTIMIZERS_H
#define EO_RUNTIME_PLAN_OPTIMIZERS_H

#include <evenodd/common.h>

struct plan_optimizer {
    uint32_t state_count; /* fp32 arrays a parameter */
    float beta1, beta2;   /* for a trainer's 0 */
};

/* optimizer < EO_OPTIMIZER_COUNT */
const struct plan_optimizer *eo_plan_optimizer(eo_optimizer optimizer);

#endif
