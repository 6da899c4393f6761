/* SPDX-License-Identifier: MIT
 *
 * Weights outside the schedule: filled, visited, read and written by name; and sums over ranks. All of them leave the
 * schedule, so the next step runs the first-step list.
 */
#include <inttypes.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "runtime/runtime_internal.h"

static eo_status leave_schedule(struct eo_runtime *rt, const char *call)
{
    if (!rt)
        return EO_ERR_INVALID;
    if (rt->phase != PHASE_IDLE)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%s is for between steps: end the step or evaluation first", call);
    EO_TRY(eo_runtime_quiesce(rt));
    rt->restart = true;
    return EO_OK;
}

/* The part of a parameter that lies in this rank's shard: elements [*from, *from + result) of the parameter. */
static uint64_t own_part(const struct eo_runtime *rt, const struct plan_parameter *parameter, uint64_t *from,
                         float **values)
{
    const struct plan_layer *layer = &rt->plan->layers[parameter->layer];
    const uint64_t shard_begin = layer->layout.shard_count * rt->world->rank;
    const uint64_t begin = eo_max_u64(shard_begin, parameter->offset);
    const uint64_t end =
        eo_min_u64(shard_begin + layer->layout.shard_count, parameter->offset + parameter->element_count);
    if (begin >= end)
        return 0;
    *from = begin - parameter->offset;
    *values = rt->shards[parameter->layer].weights + (begin - shard_begin);
    return end - begin;
}

eo_status eo_weights_fill(eo_runtime *rt, uint32_t parameter,
                          void (*produce)(void *user, uint64_t offset, uint64_t count, float *values), void *user)
{
    EO_TRY(leave_schedule(rt, "eo_weights_fill"));
    if (!produce || parameter >= rt->plan->parameter_count)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_weights_fill: there is no parameter %" PRIu32, parameter);
    uint64_t from;
    float *values;
    const uint64_t count =
        own_part(rt, &rt->plan->parameters[rt->plan->parameter_of_model[parameter]], &from, &values);
    if (count)
        produce(user, from, count, values);
    return EO_OK;
}

static eo_parameter_info parameter_info(const struct eo_plan *plan, const struct plan_parameter *parameter)
{
    eo_parameter_info info = {
        .name = parameter->name,
        .layer = parameter->layer,
        .dim_count = parameter->dim_count,
        .element_count = parameter->element_count,
        .no_weight_decay = parameter->no_weight_decay,
        .frozen = plan->layers[parameter->layer].frozen,
    };
    memcpy(info.dims, parameter->dims, sizeof(info.dims));
    return info;
}

/* One layer gathered, its parameters visited. No barrier: others may already be at the next layer. */
static eo_status visit_layer(struct eo_runtime *rt, uint32_t l,
                             void (*visit)(void *user, const eo_parameter_info *parameter, const float *values),
                             void *user)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    void *weights = NULL;
    rt->quiet = false;
    EO_TRY(rt->mode->layer_gather(rt, l, &weights));
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        const eo_parameter_info info = parameter_info(rt->plan, parameter);
        visit(user, &info, (const float *)weights + parameter->offset);
    }
    rt->mode->layer_release(rt, l, weights);
    return EO_OK;
}

eo_status eo_weights_visit(eo_runtime *rt,
                           void (*visit)(void *user, const eo_parameter_info *parameter, const float *values),
                           void *user)
{
    EO_TRY(leave_schedule(rt, "eo_weights_visit"));
    if (!visit)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_weights_visit needs a function to call");
    for (uint32_t l = 0; l < rt->plan->layer_count; l++)
        EO_TRY(visit_layer(rt, l, visit, user));
    return eo_runtime_quiesce(rt);
}

static const struct plan_parameter *find_parameter(struct eo_runtime *rt, const char *name)
{
    for (uint32_t p = 0; name && p < rt->plan->parameter_count; p++)
        if (strcmp(rt->plan->parameters[p].name, name) == 0)
            return &rt->plan->parameters[p];
    return NULL;
}

struct wanted {
    const char *name;
    float *values;
};

static void copy_wanted(void *user, const eo_parameter_info *parameter, const float *values)
{
    const struct wanted *wanted = user;
    if (wanted->values && strcmp(parameter->name, wanted->name) == 0)
        memcpy(wanted->values, values, parameter->element_count * sizeof(float));
}

eo_status eo_weights_read(eo_runtime *rt, const char *name, float *values)
{
    EO_TRY(leave_schedule(rt, "eo_weights_read"));
    const struct plan_parameter *parameter = find_parameter(rt, name);
    if (!parameter)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "there is no parameter '%s'", name ? name : "(null)");
    struct wanted wanted = {name, values};
    EO_TRY(visit_layer(rt, parameter->layer, copy_wanted, &wanted));
    return eo_runtime_quiesce(rt);
}

static void copy_given(void *user, uint64_t offset, uint64_t count, float *values)
{
    memcpy(values, (const float *)user + offset, count * sizeof(float));
}

eo_status eo_weights_write(eo_runtime *rt, const char *name, const float *values)
{
    EO_TRY(leave_schedule(rt, "eo_weights_write"));
    const struct plan_parameter *parameter = find_parameter(rt, name);
    if (!parameter || !values)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "there is no parameter '%s', or no values for it",
                               name ? name : "(null)");
    return eo_weights_fill(rt, parameter->model_index, copy_given, (void *)values);
}

eo_status eo_sum(eo_runtime *rt, double *values, uint32_t count)
{
    EO_TRY(leave_schedule(rt, "eo_sum"));
    if (!values || count > 16)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_sum of %" PRIu32 " values; at most 16 are possible", count);
    for (uint32_t begin = 0; begin < count; begin += EO_NORM_VALUES) {
        const uint32_t part = (uint32_t)eo_min_u64(count - begin, EO_NORM_VALUES);
        struct eo_event done;
        rt->quiet = false;
        memset(rt->norm_local, 0, EO_NORM_VALUES * sizeof(double));
        memcpy(rt->norm_local, values + begin, part * sizeof(double));
        EO_TRY(rt->world->ops->all_gather(rt->gather_comm, rt->norm_gathered, rt->norm_local,
                                          EO_NORM_VALUES * sizeof(double), "sum of values", NULL));
        rt->device->ops->record(rt->device, EO_QUEUE_COMM, &done);
        EO_TRY(eo_runtime_wait(rt, &done, EO_WAIT_NORM));
        for (uint32_t v = 0; v < part; v++) {
            double sum = 0;
            for (uint32_t r = 0; r < rt->world->rank_count; r++)
                sum += rt->norm_gathered[(size_t)r * EO_NORM_VALUES + v];
            values[begin + v] = sum;
        }
        EO_TRY(eo_runtime_quiesce(rt)); /* nobody reads norm_local any more */
    }
    return EO_OK;
}
