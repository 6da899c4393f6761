/* SPDX-License-Identifier: MIT
 *
 * Attention: which of the ways computes a shape, and the table of what they have built.
 */
#include <stdlib.h>
#include <string.h>

#include "layers/cuda/internal.h"

static bool same_shape(const struct eo_attention_shape *a, const struct eo_attention_shape *b)
{
    return a->batch == b->batch && a->seq == b->seq && a->head_count == b->head_count &&
           a->kv_head_count == b->kv_head_count && a->head_size == b->head_size && a->q_stride == b->q_stride &&
           a->kv_stride == b->kv_stride && a->out_stride == b->out_stride && a->packed == b->packed;
}

static struct eo_cuda_attention_plan *find(struct eo_cuda_team *team, const struct eo_attention *attention)
{
    for (uint32_t i = 0; i < team->attention_count; i++) {
        struct eo_cuda_attention_plan *plan = team->attentions[i];
        if (plan->types.compute == attention->types.compute && same_shape(&plan->shape, &attention->shape))
            return plan;
    }
    return NULL;
}

static eo_status build(struct eo_cuda_team *team, struct eo_cuda_attention_plan *plan)
{
    const struct eo_attention_shape *s = &plan->shape;
    for (const struct eo_cuda_attention_ops *const *way = eo_cuda_attention_ways; *way; way++) {
        if (!(*way)->supports(plan->types, s) || (team->repeatable && !(*way)->repeatable))
            continue;
        const eo_status status = (*way)->prepare(team, plan->types, s, &plan->state);
        if (status == EO_ERR_UNSUPPORTED)
            continue;
        EO_TRY(status);
        plan->ops = *way;
        eo_layers_log(&team->log, EO_LOG_INFO, "cuda: attention of %u x %u tokens, %u heads (%u of keys) of %u by %s%s",
                      s->batch, s->seq, s->head_count, s->kv_head_count, s->head_size, (*way)->name,
                      s->packed ? ", for packed documents are none of cuDNN's" : "");
        return EO_OK;
    }
    eo_layers_log(&team->log, EO_LOG_ERROR, "cuda: no way to compute attention with heads of %u", s->head_size);
    return EO_ERR_UNSUPPORTED;
}

static void release(struct eo_cuda_team *team, struct eo_cuda_attention_plan *plan)
{
    plan->ops->release(team, plan->state);
    free(plan);
}

/* The first ones are the training's. */
static eo_status forget_last(struct eo_cuda_team *team)
{
    CUDA_TRY(team, cudaStreamSynchronize(team->stream), "waiting for attention");
    release(team, team->attentions[--team->attention_count]);
    return EO_OK;
}

static eo_status find_or_build(struct eo_cuda_team *team, const struct eo_attention *attention,
                               struct eo_cuda_attention_plan **out)
{
    *out = find(team, attention);
    if (*out)
        return EO_OK;
    if (team->attention_count == EO_CUDA_ATTENTIONS_MAX)
        EO_TRY(forget_last(team));
    struct eo_cuda_attention_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return EO_ERR_NO_MEMORY;
    plan->types = attention->types;
    plan->shape = attention->shape;
    const eo_status status = build(team, plan);
    if (status < 0) {
        free(plan);
        return status;
    }
    team->attentions[team->attention_count++] = plan;
    *out = plan;
    return EO_OK;
}

eo_status eo_cuda_attention_prepare(eo_team *team, const struct eo_attention *attention)
{
    struct eo_cuda_attention_plan *plan;
    return find_or_build(eo_cuda_team_of(team), attention, &plan);
}

eo_status eo_cuda_attention_forward(eo_team *team, const struct eo_attention *attention)
{
    struct eo_cuda_attention_plan *plan;
    EO_TRY(find_or_build(eo_cuda_team_of(team), attention, &plan));
    return plan->ops->forward(eo_cuda_team_of(team), plan->state, attention);
}

eo_status eo_cuda_attention_backward(eo_team *team, const struct eo_attention *attention)
{
    struct eo_cuda_attention_plan *plan;
    EO_TRY(find_or_build(eo_cuda_team_of(team), attention, &plan));
    return plan->ops->backward(eo_cuda_team_of(team), plan->state, attention);
}

void eo_cuda_attentions_release(struct eo_cuda_team *team)
{
    for (uint32_t i = 0; i < team->attention_count; i++)
        release(team, team->attentions[i]);
    team->attention_count = 0;
    for (const struct eo_cuda_attention_ops *const *way = eo_cuda_attention_ways; *way; way++)
        if ((*way)->close)
            (*way)->close(team);
}
