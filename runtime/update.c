/* SPDX-License-Identifier: MIT
 *
 * The end of a step: global norm, clipping, optimizer. Both memory modes come here, with the same shards in the same
 * layout, so their results are the same bits.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/sized.h"
#include "runtime/internal.h"
#include "runtime/plan/optimizers.h"

eo_status eo_update_init(struct eo_runtime *rt)
{
    rt->update.ranges = calloc(rt->plan->parameter_count + 1, sizeof(*rt->update.ranges));
    uint32_t most = 0;
    rt->update.parts = calloc(rt->plan->parameter_count + 1, sizeof(*rt->update.parts));
    if (!rt->update.ranges || !rt->update.parts)
        return EO_ERR_NO_MEMORY;
    for (uint32_t l = 0; l < rt->plan->layer_count; l++) {
        struct layer_shard *shard = &rt->shards.layers[l];
        shard->ranges = &rt->update.ranges[rt->plan->layers[l].parameter_begin];
        shard->range_count = eo_plan_shard_ranges(rt->plan, l, rt->shards.rank, shard->ranges);
        shard->parts = &rt->update.parts[rt->plan->layers[l].parameter_begin];
        while (eo_plan_shard_part(rt->plan, l, rt->world->rank, shard->part_count, &shard->parts[shard->part_count]) >= 0)
            shard->part_count++;
        most = shard->range_count > most ? shard->range_count : most;
    }
    rt->update.updates = calloc(most + 1, sizeof(*rt->update.updates));
    rt->steps.groups = calloc(rt->plan->trainer_group_count, sizeof(*rt->steps.groups));
    rt->steps.frozen = calloc(rt->plan->group_count + 1, sizeof(*rt->steps.frozen));
    rt->steps.written = calloc((size_t)rt->plan->parameter_count + 1, sizeof(*rt->steps.written));
    if (!rt->update.updates || !rt->steps.groups || !rt->steps.frozen || !rt->steps.written)
        return EO_ERR_NO_MEMORY;
    return eo_norms_init(rt);
}

void eo_update_fini(struct eo_runtime *rt)
{
    eo_norms_fini(rt);
    free(rt->update.ranges);
    free(rt->update.updates);
    free(rt->update.parts);
    free(rt->steps.groups);
    free(rt->steps.frozen);
    free(rt->steps.written);
}

static void fill_in_defaults(eo_step_params *p, const struct plan_optimizer *optimizer)
{
    p->loss_scale = p->loss_scale != 0 ? p->loss_scale : 1;
    p->ema_decay = p->ema_decay != 0 ? p->ema_decay : 0.999f;
    p->momentum = p->momentum != 0 ? p->momentum : 0.95f;
    if (p->exact)
        return;
    p->beta1 = p->beta1 != 0 ? p->beta1 : optimizer->beta1;
    p->beta2 = p->beta2 != 0 ? p->beta2 : optimizer->beta2;
    p->eps = p->eps != 0 ? p->eps : 1e-8f;
}

/* That of the first group that says one: check_clips has refused others. */
static float clip_of(const eo_step_params *p, uint32_t clip_group)
{
    for (uint32_t g = 0; g < p->group_count; g++)
        if (p->groups[g].clip_group == clip_group && p->groups[g].clip > 0)
            return p->groups[g].clip;
    return 0;
}

/* What a group leaves out is the step's. */
static eo_parameter_group complete_group(const eo_step_params *p, const eo_parameter_group *group)
{
    eo_parameter_group g = group ? *group : (eo_parameter_group){0};
    g.clip = g.clip_group ? clip_of(p, g.clip_group) : p->clip;
    if (g.exact)
        return g;
    g.learning_rate_factor = g.learning_rate_factor != 0 ? g.learning_rate_factor : 1;
    g.weight_decay = g.weight_decay != 0 ? g.weight_decay : p->weight_decay;
    g.beta1 = g.beta1 != 0 ? g.beta1 : p->beta1;
    g.beta2 = g.beta2 != 0 ? g.beta2 : p->beta2;
    g.eps = g.eps != 0 ? g.eps : p->eps;
    return g;
}

struct number_check {
    const char *name;
    float value, limit;
    bool may_reach;
};

/* Comparisons that a NaN does not pass. */
static eo_status check_numbers(struct eo_runtime *rt, const char *where, const struct number_check *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(numbers[i].value >= 0 && (numbers[i].may_reach ? numbers[i].value <= numbers[i].limit
                                                             : numbers[i].value < numbers[i].limit)))
            return eo_runtime_fail(rt, EO_ERR_INVALID, "%s%s is %g; it must be %s", where, numbers[i].name,
                                   (double)numbers[i].value,
                                   numbers[i].limit > 1   ? "finite and not negative"
                                   : numbers[i].may_reach ? "from 0 to 1"
                                                          : "at least 0 and below 1");
    return EO_OK;
}

static eo_status check_clip(struct eo_runtime *rt, const eo_step_params *params, uint32_t group, const char *where)
{
    const eo_parameter_group *g = &params->groups[group];
    if (g->clip_group >= EO_GROUPS_MAX)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%sclip_group is %u; it must be below %d", where, g->clip_group, EO_GROUPS_MAX);
    if (g->clip_group == 0)
        return g->clip == 0 ? EO_OK : eo_runtime_fail(rt, EO_ERR_INVALID, "%sclip is %g without a clip_group; the step's clip is "
                                                      "that of clip_group 0", where, (double)g->clip);
    if (!rt->plan->params.norm_parts)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%sclip_group is %u, but the plan has no norms by group; plan with norm_parts",
                               where, g->clip_group);
    const float clip = clip_of(params, g->clip_group);
    if (g->clip != 0 && g->clip != clip)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%sclip is %g, that of another group of clip_group %u is %g; give it once", where,
                               (double)g->clip, g->clip_group, (double)clip);
    return EO_OK;
}

/* The callback does not see them. */
static eo_status check_own_update(struct eo_runtime *rt, const eo_parameter_group *g, const char *where)
{
    const bool has_numbers =
        g->learning_rate_factor != 0 || g->weight_decay != 0 || g->beta1 != 0 || g->beta2 != 0 || g->eps != 0;
    if (!rt->params.update || !(g->frozen || g->exact || has_numbers))
        return EO_OK;
    return eo_runtime_fail(rt, EO_ERR_INVALID,
                           "%s%s would have no effect: the optimizer is the trainer's own `update`; keep numbers by "
                           "group there, and go by eo_shard_part.group",
                           where, g->frozen ? "frozen" : "numbers of the optimizer");
}

static eo_status check_groups(struct eo_runtime *rt, const eo_step_params *params, const char *call)
{
    if (params->group_count > rt->plan->trainer_group_count || (params->group_count && !params->groups))
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%s: %u groups%s; the model's parameters are of groups 0 to %u", call,
                               params->group_count, params->groups ? "" : " at NULL", rt->plan->trainer_group_count - 1);
    for (uint32_t i = 0; i < params->group_count; i++) {
        const eo_parameter_group *g = &params->groups[i];
        const struct number_check numbers[] = {
            {"learning_rate_factor", g->learning_rate_factor, FLT_MAX, true},
            {"weight_decay", g->weight_decay, FLT_MAX, true},
            {"beta1", g->beta1, 1, false},
            {"beta2", g->beta2, 1, false},
            {"eps", g->eps, FLT_MAX, true},
            {"clip", g->clip, INFINITY, true},
        };
        char where[80];
        snprintf(where, sizeof(where), "%s: groups[%u].", call, i);
        EO_TRY(check_numbers(rt, where, numbers, sizeof(numbers) / sizeof(numbers[0])));
        EO_TRY(check_clip(rt, params, i, where));
        EO_TRY(check_own_update(rt, g, where));
    }
    return EO_OK;
}

/* A number that nobody reads was meant for another: training would go on with other numbers than the trainer thinks. `exact` asks
 * for all of the optimizers' numbers. */
static eo_status check_read(struct eo_runtime *rt, const eo_step_params *params, const char *call)
{
    const eo_optimizer optimizer = rt->plan->params.optimizer;
    const bool is_own = rt->params.update != NULL, is_sgd = optimizer == EO_OPTIMIZER_SGD && !is_own,
               is_lion = optimizer == EO_OPTIMIZER_LION && !is_own;
    bool gives_beta2 = params->beta2 != 0 && !params->exact, gives_eps = params->eps != 0 && !params->exact;
    for (uint32_t i = 0; i < params->group_count; i++) {
        const eo_parameter_group *g = &params->groups[i];
        gives_beta2 = gives_beta2 || (g->beta2 != 0 && !g->exact);
        gives_eps = gives_eps || (g->eps != 0 && !g->exact);
    }
    const struct {
        bool is_unread;
        const char *name, *why;
    } numbers[] = {
        {params->momentum != 0 && (optimizer != EO_OPTIMIZER_MUON || is_own), "momentum",
         is_sgd   ? "it is that of Muon's matrices; SGD's is beta1"
         : is_own ? "the optimizer is the trainer's own `update`"
                  : "it is that of Muon's matrices"},
        {params->ema_decay != 0 && !rt->plan->params.ema, "ema_decay", "the plan has no average; plan with ema"},
        {is_sgd && gives_beta2, "beta2", "SGD has none"},
        {(is_sgd || is_lion) && gives_eps, "eps", is_sgd ? "SGD has none" : "Lion has none"},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i].is_unread)
            return eo_runtime_fail(rt, EO_ERR_INVALID, "%s: %s would have no effect: %s", call, numbers[i].name, numbers[i].why);
    return EO_OK;
}

eo_status eo_update_take_params(struct eo_runtime *rt, const eo_step_params *params, const char *call)
{
    if (!params)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%s: params is NULL; the optimizer needs a learning rate", call);
    const struct number_check numbers[] = {
        {"learning_rate", params->learning_rate, FLT_MAX, true},
        {"beta1", params->beta1, 1, false},
        {"beta2", params->beta2, 1, false},
        {"eps", params->eps, FLT_MAX, true},
        {"weight_decay", params->weight_decay, FLT_MAX, true},
        {"clip", params->clip, INFINITY, true}, /* infinite: no gradient is too large */
        {"ema_decay", params->ema_decay, 1, true},
        {"momentum", params->momentum, 1, false},
        {"loss_scale", params->loss_scale, FLT_MAX, true},
        {"weight", (float)params->weight, FLT_MAX, true},
    };
    char where[64];
    snprintf(where, sizeof(where), "%s: ", call);
    EO_TRY(check_numbers(rt, where, numbers, sizeof(numbers) / sizeof(numbers[0])));
    if (params->learning_rate == 0 && !params->exact && !params->exact_rate && !rt->params.update && rt->plan->update_count > 0)
        return eo_runtime_fail(rt, EO_ERR_INVALID,
                               "%s: learning_rate is 0, which the optimizer takes for not given; if it is meant, as where a "
                               "warmup begins, set .exact_rate: the weights stay, and the optimizer's state goes on",
                               call);
    if ((unsigned)params->on_not_finite > EO_SKIP)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "%s: on_not_finite is %d; it is EO_STOP or EO_SKIP", call,
                               (int)params->on_not_finite);
    EO_TRY(check_groups(rt, params, call));
    EO_TRY(check_read(rt, params, call));
    rt->steps.params = *params;
    fill_in_defaults(&rt->steps.params, eo_plan_optimizer(rt->plan->params.optimizer));
    for (uint32_t g = 0; g < rt->plan->trainer_group_count; g++)
        rt->steps.groups[g] = complete_group(&rt->steps.params, g < params->group_count ? &params->groups[g] : NULL);
    rt->steps.clips_apart = false;
    for (uint32_t g = 0; g < rt->plan->trainer_group_count; g++)
        rt->steps.clips_apart = rt->steps.clips_apart || rt->steps.groups[g].clip_group;
    rt->steps.params.groups = rt->steps.groups;
    return EO_OK;
}

eo_status eo_update_begin(struct eo_runtime *rt)
{
    return rt->steps.finished + 1 > EO_HOST_STEPS ? eo_host_finish_steps(rt, rt->steps.finished + 1 - EO_HOST_STEPS) : EO_OK;
}

/* The steps that were not skipped, with the one that is under way; `unknown` of them may turn out otherwise. */
static double applied_steps(const struct eo_runtime *rt, uint32_t unknown)
{
    return (double)(rt->steps.finished + 1 - rt->steps.skipped - rt->steps.skipped_here) - unknown;
}

/* Those of a group: a step that froze it is none of them, skipped or not. */
static double applied_steps_of(const struct eo_runtime *rt, uint32_t group, uint32_t unknown)
{
    const bool was_frozen = eo_host_freezes(rt, rt->steps.finished, group); /* the one step that may not have ended */
    return applied_steps(rt, was_frozen ? 1 : unknown) - (double)rt->steps.frozen[group];
}

static struct eo_group_scalars group_scalars(const struct eo_runtime *rt, uint32_t index)
{
    const struct plan_group *group = &rt->plan->groups[index];
    const eo_parameter_group *g = &rt->steps.groups[group->group];
    struct eo_group_scalars out = {
        .learning_rate = rt->steps.params.learning_rate * g->learning_rate_factor,
        .beta1 = g->beta1,
        .beta2 = g->beta2,
        .eps = fmaxf(g->eps, FLT_MIN), /* moments of 0 are no step, instead of 0 / 0; lost beside any other */
        .weight_decay = group->no_weight_decay ? 0 : g->weight_decay,
        .frozen = g->frozen,
        .clip = group->group,
        .momentum = rt->steps.params.momentum,
    };
    for (uint32_t k = 0; k < EO_STEPS_UNKNOWN; k++) {
        const double steps = applied_steps_of(rt, index, k);
        out.bias_correction1[k] = (float)(1 - pow(g->beta1, steps));
        out.bias_correction2[k] = (float)(1 - pow(g->beta2, steps));
    }
    return out;
}

_Static_assert((int)EO_STEPS_UNKNOWN == (int)EO_HOST_STEPS, "the step itself, and what may not have ended before it");

void eo_update_upload_scalars(struct eo_runtime *rt, void *to)
{
    const eo_step_params *p = &rt->steps.params;
    struct host_step *at = eo_host_step(&rt->host, rt->steps.finished + 1);
    const struct eo_step_memory *from = &at->memory;
    at->on_not_finite = p->on_not_finite;
    *from->scalars = (struct eo_update_scalars){
        .skipped = rt->steps.skipped_here,
        .clip = p->clip,
        .weight = p->weight,
        .loss_scale = p->loss_scale,
        .ema_decay = p->ema_decay,
        .group_count = rt->plan->group_count,
        .clips_apart = rt->steps.clips_apart,
    };
    memcpy(from->scalars->values, p->values, sizeof(p->values));
    for (uint32_t g = 0; g < rt->plan->group_count; g++)
        from->groups[g] = group_scalars(rt, g);
    for (uint32_t g = 0; g < from->clip_count; g++)
        from->clips[g] = (struct eo_clip_scalars){rt->steps.groups[g].clip_group, rt->steps.groups[g].clip};
    rt->device->ops->upload(rt->device, to, from->scalars, eo_plan_scalars_bytes(rt->plan));
}

eo_status eo_update_finish(struct eo_runtime *rt, eo_step_report *report, size_t report_bytes)
{
    /* Else it is looked at when its place in host memory is needed: at the same step on all ranks. */
    const bool is_known = !rt->device->ops->queue_handle(rt->device, EO_QUEUE_COMPUTE);
    if (report || is_known)
        EO_TRY(eo_host_finish_steps(rt, rt->steps.finished + 1));
    rt->steps.finished++;
    memset(rt->steps.written, 0, (size_t)rt->plan->parameter_count + 1);
    if (rt->params.recorder)
        eo_flight_recorder_finish(rt->params.recorder, rt->steps.finished);
    rt->stats.steps++;
    rt->stats.step_ns += eo_now_ns() - rt->steps.begin_ns;
    rt->cursor.phase = PHASE_IDLE;
    eo_give_sized(report, report_bytes, &rt->steps.reports[rt->steps.finished % EO_REPORTS_KEPT], sizeof(eo_step_report));
    return EO_OK;
}

eo_status eo_runtime_get_report_sized(eo_runtime *rt, uint64_t step, eo_step_report *out, size_t out_bytes)
{
    if (!rt || !out)
        return EO_ERR_INVALID;
    EO_TRY(eo_runtime_check_idle(rt, "eo_runtime_get_report"));
    if (step > rt->steps.finished || step + EO_REPORTS_KEPT <= rt->steps.finished)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_runtime_get_report: step %llu; of the last %d steps there are reports, up "
                               "to step %llu", (unsigned long long)step, (int)EO_REPORTS_KEPT,
                               (unsigned long long)rt->steps.finished);
    EO_TRY(eo_host_finish_steps(rt, step));
    const eo_step_report *report = &rt->steps.reports[step % EO_REPORTS_KEPT];
    if (report->step != step || step == 0)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_runtime_get_report: step %llu was not run by this runtime",
                               (unsigned long long)step);
    eo_give_sized(out, out_bytes, report, sizeof(*report));
    return EO_OK;
}

static float *update_gradient(const struct layer_shard *shard)
{
    return shard->update_gradient ? shard->update_gradient : shard->gradient;
}

/* Those that are as long as the part, and fp32. */
static uint32_t shown_states(const struct eo_plan *plan, const struct plan_layer *layer)
{
    return eo_plan_optimizer(plan->params.optimizer)->block_words > 1 ? 0
           : eo_plan_is_sparse(layer, 1)                              ? 1
                                                                      : plan->params.optimizer_states;
}

static eo_shard shard_of(const struct eo_runtime *rt, uint32_t l, float gradient_scale)
{
    const struct layer_shard *shard = &rt->shards.layers[l];
    const struct plan_layer *layer = &rt->plan->layers[l];
    return (eo_shard){
        .layer = l,
        .offset = layer->layout.shard_count * rt->shards.rank,
        .count = layer->layout.shard_count,
        .weights = shard->weights,
        .weights_high = shard->high,
        .weights_low = shard->low,
        .gradient = update_gradient(shard),
        .state = (float *const *)shard->state,
        .state_count = shown_states(rt->plan, layer),
        .gradient_scale = gradient_scale,
        .step = (uint64_t)applied_steps(rt, 0),
        .parts = shard->parts,
        .part_count = shard->part_count,
    };
}

static void call_update(struct eo_runtime *rt, uint32_t l)
{
    const struct eo_step_memory *step = &eo_host_step(&rt->host, rt->steps.finished + 1)->memory;
    if (isnan(step->norm->gradient_scale)) /* a skipped step */
        return;
    eo_shard shard = shard_of(rt, l, step->norm->gradient_scale);
    shard.group_scales = eo_norms_group_scales(rt, step);
    rt->params.update(rt->params.update_user, &shard);
}

void eo_update_call_gradient(struct eo_runtime *rt, uint32_t l)
{
    const eo_shard shard =
        shard_of(rt, l, rt->params.update ? eo_host_step(&rt->host, rt->steps.finished + 1)->memory.norm->gradient_scale : 0);
    rt->params.gradient(rt->params.gradient_user, &shard);
}

float *eo_shard_weights(const struct eo_runtime *rt, const struct layer_shard *shard, const struct shard_range *range)
{
    if (!rt->shards.split)
        return shard->weights + range->offset;
    return rt->plan->groups[range->group].fp32 ? (float *)(void *)(shard->high + range->offset) : NULL;
}

/* The host's optimizer reads what the host has sent, and what came back. */
const struct eo_step_memory *eo_update_memory(struct eo_runtime *rt)
{
    return rt->shards.device == rt->device ? &rt->update.step : &eo_host_step(&rt->host, rt->steps.finished + 1)->memory;
}

void eo_update_ranges(struct eo_runtime *rt, uint32_t l, bool matrices, enum eo_rule rule)
{
    const struct layer_shard *shard = &rt->shards.layers[l];
    const eo_optimizer optimizer = rt->plan->params.optimizer;
    const uint32_t state_count = eo_plan_optimizer(optimizer)->state_count;
    uint32_t count = 0;
    for (uint32_t i = 0; i < shard->range_count; i++) {
        const struct shard_range *range = &shard->ranges[i];
        if (rt->plan->groups[range->group].matrix != matrices)
            continue;
        const uint64_t state_offset = eo_plan_state_words(optimizer, range->offset);
        float *weights = eo_shard_weights(rt, shard, range);
        const uint64_t second_offset = matrices ? state_offset : eo_plan_state_words(optimizer, range->second);
        float *second = rule == EO_RULE_DIRECTION ? shard->direction
                        : matrices                ? shard->orthogonal
                        : state_count > 1         ? shard->state[1]
                                                  : NULL;
        rt->update.updates[count++] = (struct eo_update_range){
            .weights = weights,
            .high = weights ? NULL : shard->high + range->offset,
            .low = weights ? NULL : shard->low + range->offset,
            .first_moment = shard->state[0] + state_offset,
            .second_moment = second ? second + second_offset : NULL,
            .gradient = update_gradient(shard) + range->offset,
            .count = range->count,
            .group = range->group,
        };
    }
    rt->shards.device->ops->update(rt->shards.device, rule, rt->update.updates, count, eo_update_memory(rt));
}

static void update_weights(struct eo_runtime *rt, uint32_t l)
{
    const struct plan_optimizer *optimizer = eo_plan_optimizer(rt->plan->params.optimizer);
    if (rt->params.update) {
        call_update(rt, l);
        return;
    }
    eo_update_ranges(rt, l, false, optimizer->rule);
    if (rt->plan->layers[l].has_matrices)
        eo_update_ranges(rt, l, true, optimizer->matrix_rule);
}

void eo_update_layer(struct eo_runtime *rt, uint32_t l)
{
    eo_saver_await_layer(rt, l);
    if (rt->params.gradient && !rt->plan->layers[l].has_matrices) /* else it was called before the direction was taken */
        eo_update_call_gradient(rt, l);
    update_weights(rt, l);
    eo_ema_update(rt, l);
}
