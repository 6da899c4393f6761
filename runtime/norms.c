/* SPDX-License-Identifier: MIT
 *
 * The gradient's norm: sums of squares of the ranks' shards, added up over the layers, then over the ranks. With norm_parts
 * those of each layer and of each group of the trainer's come with them:
 *
 *     a layer's norm row    [ all | run 0 | run 1 | ... ]      runs of one group; none where there is one alone
 *     what a rank brings    [ all | values, weight | layer 0, 1 ... | group 0, 1 ... ]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hashing.h"
#include "runtime/internal.h"

/* Neighbours of one group among the ranges of the optimizer, which are finer. */
static void find_runs(struct eo_runtime *rt, uint32_t l)
{
    struct layer_shard *shard = &rt->shards.layers[l];
    shard->norm_runs = &rt->update.norm_runs[rt->plan->layers[l].parameter_begin];
    for (uint32_t i = 0; i < shard->range_count; i++) {
        struct shard_range range = shard->ranges[i];
        range.group = rt->plan->groups[range.group].group;
        struct shard_range *last = shard->norm_runs + shard->norm_run_count;
        if (shard->norm_run_count && last[-1].group == range.group)
            last[-1].count = range.offset + range.count - last[-1].offset; /* zeros between them */
        else
            shard->norm_runs[shard->norm_run_count++] = range;
    }
    EO_ASSERT(shard->norm_run_count <= 1 || shard->norm_run_count < eo_plan_layer_sums(rt->plan, &rt->plan->layers[l]));
}

static void add_term(struct eo_runtime *rt, const double *partial, uint32_t into)
{
    rt->update.terms[rt->update.term_count++] = (struct eo_norm_term){partial, into};
}

static void add_terms_of_parts(struct eo_runtime *rt, uint32_t l)
{
    const struct layer_shard *shard = &rt->shards.layers[l];
    const uint32_t groups_begin = EO_NORM_VALUES + rt->update.step.layer_count;
    add_term(rt, shard->norm, EO_NORM_VALUES + l);
    for (uint32_t i = 0; i < shard->norm_run_count; i++)
        add_term(rt, shard->norm + (shard->norm_run_count > 1 ? 1 + i : 0), groups_begin + shard->norm_runs[i].group);
}

eo_status eo_norms_init(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    const bool parts = plan->params.norm_parts;
    rt->update.terms = calloc(2 * (uint64_t)plan->layer_count + plan->parameter_count + 1, sizeof(*rt->update.terms));
    rt->update.norm_runs = calloc(plan->parameter_count + 1, sizeof(*rt->update.norm_runs));
    rt->update.group_scales = calloc(plan->trainer_group_count + 1, sizeof(*rt->update.group_scales));
    if (!rt->update.terms || !rt->update.norm_runs || !rt->update.group_scales)
        return EO_ERR_NO_MEMORY;
    if (parts) {
        rt->steps.layer_norms = calloc((uint64_t)EO_REPORTS_KEPT * plan->trainer_layer_count, sizeof(*rt->steps.layer_norms));
        rt->steps.group_norms = calloc((uint64_t)EO_REPORTS_KEPT * plan->trainer_group_count, sizeof(*rt->steps.group_norms));
        if (!rt->steps.layer_norms || !rt->steps.group_norms)
            return EO_ERR_NO_MEMORY;
    }
    for (uint32_t l = 0; l < plan->layer_count && parts; l++)
        if (!plan->layers[l].frozen)
            find_runs(rt, l);
    /* The world's norm counts each gradient once: replicas give nothing but their values. */
    const bool counts = rt->world->rank == rt->shards.rank;
    for (uint32_t l = 0; l < plan->layer_count && counts; l++)
        if (!plan->layers[l].frozen)
            add_term(rt, rt->shards.layers[l].norm, 0);
    for (uint32_t l = 0; l < plan->layer_count && counts && parts; l++)
        if (!plan->layers[l].frozen)
            add_terms_of_parts(rt, l);
    return EO_OK;
}

void eo_norms_fini(struct eo_runtime *rt)
{
    free(rt->update.terms);
    free(rt->update.norm_runs);
    free(rt->update.group_scales);
    free(rt->steps.layer_norms);
    free(rt->steps.group_norms);
}

static void sum_runs(struct eo_device *device, const struct layer_shard *shard, uint32_t queue, double *sums)
{
    for (uint32_t i = 0; i < shard->norm_run_count && shard->norm_run_count > 1; i++)
        device->ops->sum_squares(device, queue, sums + 1 + i, shard->gradient + shard->norm_runs[i].offset,
                                 shard->norm_runs[i].count, NULL);
}

void eo_norms_of_runs(struct eo_runtime *rt, uint32_t l, uint32_t queue)
{
    sum_runs(rt->device, &rt->shards.layers[l], queue, rt->shards.layers[l].norm);
}

void eo_norms_of_layer(struct eo_runtime *rt, uint32_t l, uint32_t queue, struct eo_span *span)
{
    const struct layer_shard *shard = &rt->shards.layers[l];
    rt->device->ops->sum_squares(rt->device, queue, shard->norm, shard->gradient, rt->plan->layers[l].layout.shard_count, span);
    eo_norms_of_runs(rt, l, queue);
}

void eo_norms_on_host(struct eo_runtime *rt, uint32_t l, double *sums)
{
    const struct layer_shard *shard = &rt->shards.layers[l];
    struct eo_device *host = rt->shards.device;
    host->ops->sum_squares(host, EO_QUEUE_COMPUTE, sums, shard->gradient, rt->plan->layers[l].layout.shard_count, NULL);
    sum_runs(host, shard, EO_QUEUE_COMPUTE, sums);
}

void eo_norms_local(struct eo_runtime *rt)
{
    rt->device->ops->norm_local(rt->device, rt->update.norm_local, rt->update.terms, rt->update.term_count, &rt->update.step,
                                rt->update.values);
}

/* The host need not know the norm to go on: the update changes nothing where it is not finite. A trainer's optimizer must. */
eo_status eo_norms_sum(struct eo_runtime *rt)
{
    rt->device->ops->norm_sum(rt->device, rt->update.norm_gathered, rt->world->rank_count, &rt->update.step);
    if (rt->graph.recording)
        return EO_OK;
    eo_host_download_result(rt, rt->steps.finished + 1);
    return rt->params.update ? eo_host_finish_steps(rt, rt->steps.finished + 1) : EO_OK;
}

const char *eo_norms_label(struct eo_runtime *rt)
{
    const eo_step_params *p = &rt->steps.params;
    const uint64_t step = rt->steps.finished + 1;
    char *label = rt->update.labels[step % EO_NORM_LABELS];
    const float numbers[] = {p->learning_rate, p->beta1,     p->beta2,      p->eps,      p->weight_decay,
                             p->clip,          p->ema_decay, p->loss_scale, p->momentum, (float)p->on_not_finite};
    uint64_t hash = eo_hash64(numbers, sizeof(numbers));
    for (uint32_t i = 0; i < rt->plan->trainer_group_count; i++) {
        const eo_parameter_group *g = &rt->steps.groups[i];
        const float more[] = {g->learning_rate_factor, g->weight_decay, g->beta1, g->beta2, g->eps, g->clip, g->frozen,
                              (float)g->clip_group};
        hash = eo_hash64_more(hash, more, sizeof(more));
    }
    const uint64_t writes = eo_hash64(rt->steps.written, (size_t)rt->plan->parameter_count + 1);
    snprintf(label, sizeof(rt->update.labels[0]), EO_NORM_LABEL "%" PRIu64 ", params %06x, writes %06x", step,
             (unsigned)(hash & 0xffffff), (unsigned)(writes & 0xffffff));
    return label;
}

const float *eo_norms_group_scales(struct eo_runtime *rt, const struct eo_step_memory *of)
{
    if (!rt->steps.clips_apart)
        return NULL;
    const double divisor = (of->norm->weight > 0 ? of->norm->weight : 1) * of->scalars->loss_scale;
    for (uint32_t g = 0; g < of->clip_count; g++)
        rt->update.group_scales[g] = (float)(of->clip_results[g].clip_factor / divisor);
    return rt->update.group_scales;
}
