/* SPDX-License-Identifier: MIT */
#include "runtime/plan/optimizers.h"

#include "streams/state8.h"

enum { STATE8_WORDS = sizeof(struct eo_state8) / 4 };
_Static_assert(sizeof(struct eo_state8) == 4 * STATE8_WORDS, "blocks are of whole words");

static const struct plan_optimizer optimizers[EO_OPTIMIZER_COUNT] = {
    [EO_OPTIMIZER_ADAMW] = {2, 0.9f, 0.999f, 1, 1, EO_RULE_ADAMW, EO_RULE_COUNT},
    [EO_OPTIMIZER_SGD] = {1, 0.9f, 0, 1, 1, EO_RULE_SGD, EO_RULE_COUNT},
    [EO_OPTIMIZER_LION] = {1, 0.9f, 0.99f, 1, 1, EO_RULE_LION, EO_RULE_COUNT},
    [EO_OPTIMIZER_ADAMW8BIT] = {2, 0.9f, 0.999f, EO_STATE8_ELEMENTS, STATE8_WORDS, EO_RULE_ADAMW8BIT, EO_RULE_COUNT},
    [EO_OPTIMIZER_MUON] = {2, 0.9f, 0.95f, 1, 1, EO_RULE_ADAMW, EO_RULE_MUON}, /* AdamW's; matrices have the first alone */
};

const struct plan_optimizer *eo_plan_optimizer(eo_optimizer optimizer)
{
    return &optimizers[optimizer];
}
