/* SPDX-License-Identifier: MIT */
#include "runtime/plan/optimizers.h"

static const struct plan_optimizer optimizers[EO_OPTIMIZER_COUNT] = {
    [EO_OPTIMIZER_ADAMW] = {2, 0.9f, 0.999f},
    [EO_OPTIMIZER_SGD] = {1, 0.9f, 0},
    [EO_OPTIMIZER_LION] = {1, 0.9f, 0.99f},
};

const struct plan_optimizer *eo_plan_optimizer(eo_optimizer optimizer)
{
    return &optimizers[optimizer];
}
