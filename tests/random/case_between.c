/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "tests/random/case_rank.h"

static eo_status sum_of_ranks(struct case_rank *self)
{
    const double count = self->world->c->settings.rank_count;
    double values[16];
    for (int i = 0; i < 16; i++)
        values[i] = i + self->rank;
    EO_TRY(eo_sum(self->rt, values, 16));
    for (int i = 0; i < 16; i++)
        if (values[i] != i * count + count * (count - 1) / 2)
            case_complain(self->world->verdict, "sum: value %d is %g", i, values[i]);
    return EO_OK;
}

static void compare_parameter(struct case_rank *self, uint32_t parameter, const float *values)
{
    const struct random_case *c = self->world->c;
    uint32_t l = 0, k = parameter;
    while (k >= c->layers[l].parameter_count)
        k -= c->layers[l++].parameter_count;
    for (uint32_t i = 0; i < c->layers[l].elements[k]; i++) {
        const int32_t want = self->world->expected->weights[self->version][l][k][i];
        if (values[i] == (float)want)
            continue;
        case_complain(self->world->verdict, "weights: rank %u: before step %u element %u of parameter %u.%u is %.9g, not %d",
                      self->rank, self->version / 2, i, l, k, (double)values[i], want);
        return;
    }
}

static eo_status visit_parameter(void *user, const eo_parameter_info *info, const float *values)
{
    struct case_rank *self = user;
    uint32_t l, parameter;
    if (sscanf(info->name, "layer%u.%u", &l, &parameter) != 2)
        case_complain(self->world->verdict, "weights: parameter '%s' was visited", info->name);
    while (l-- > 0)
        parameter += self->world->c->layers[l].parameter_count;
    compare_parameter(self, parameter, values);
    return EO_OK;
}

eo_status case_visit(struct case_rank *self)
{
    return eo_weights_visit(self->rt, visit_parameter, self);
}

struct new_weights {
    const struct random_case *c;
    uint32_t layer, parameter; /* as they are at first */
    uint32_t step;             /* or as they are replaced then, if not UINT32_MAX */
};

static eo_status give_new_weights(void *user, uint64_t offset, uint64_t count, float *values)
{
    const struct new_weights *of = user;
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)(of->step == UINT32_MAX ? integer_first_weight(of->c, of->layer, of->parameter, offset + i)
                                                   : integer_replaced_weight(of->c, of->step, offset + i));
    return EO_OK;
}

eo_status case_first_weights(struct case_rank *self)
{
    struct new_weights of = {.c = self->world->c, .step = UINT32_MAX};
    uint32_t index = 0;
    for (of.layer = 0; of.layer < of.c->layer_count; of.layer++)
        for (of.parameter = 0; of.parameter < of.c->layers[of.layer].parameter_count; of.parameter++)
            EO_TRY(eo_weights_fill(self->rt, index++, give_new_weights, &of));
    return EO_OK;
}

/* Not all ranks want what is read. */
static eo_status read_parameter(struct case_rank *self, uint32_t step, bool writes)
{
    const struct random_case *c = self->world->c;
    const uint32_t parameter = random_case_parameter(c, step);
    uint32_t l = 0, k = parameter;
    char name[EO_NAME_MAX];
    while (k >= c->layers[l].parameter_count)
        k -= c->layers[l++].parameter_count;
    snprintf(name, sizeof(name), "layer%u.%u", l, k);
    const bool wants = writes || random_hash(c->seed, self->rank, step) % 3 != 0;
    float *values = calloc(c->layers[l].elements[k], sizeof(*values));
    if (!values)
        return EO_ERR_NO_MEMORY;
    eo_status status = eo_weights_read(self->rt, name, wants ? values : NULL);
    if (status >= 0 && wants)
        compare_parameter(self, parameter, values);
    if (status >= 0 && writes)
        status = eo_weights_write(self->rt, name, values);
    free(values);
    return status;
}

eo_status case_action(struct case_rank *self, uint32_t step, uint32_t index)
{
    struct new_weights of = {.c = self->world->c, .step = step};
    switch (self->world->c->actions[step][index]) {
    case CASE_EVALUATES:
        return case_evaluation(self, 1000 + 8 * step + index);
    case CASE_FINDS_INPUTS:
        return case_inputs_alone(self, 1000 + 8 * step + index);
    case CASE_SUMS:
        return sum_of_ranks(self);
    case CASE_VISITS:
        return case_visit(self);
    case CASE_READS:
        return read_parameter(self, step, false);
    case CASE_WRITES:
        return read_parameter(self, step, true);
    case CASE_REPLACES:
        self->version = INTEGER_IN(step);
        return eo_weights_fill(self->rt, random_case_parameter(of.c, step), give_new_weights, &of);
    default:
        return EO_OK;
    }
}
