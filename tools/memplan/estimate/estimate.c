/* SPDX-License-Identifier: MIT */
#include "tools/memplan/estimate/answer.h"

enum { TOKENS_MOST = 1 << 28 }; /* of a micro-batch: bytes stay below 64 bits */

uint32_t tool_estimate_seq(const struct tool_estimate_request *request)
{
    const uint32_t context = request->config->context, most = context < 4096 ? context : 4096;
    return request->asked->plan.seq ? request->asked->plan.seq : most;
}

struct tool_slice tool_estimate_slice(const struct tool_layout *layout)
{
    const struct tool_layout *l = layout;
    if (l->tensor == 1 && l->pipeline == 1 && l->context == 1 && l->expert == 1 && l->expert_tensor == 0)
        return (struct tool_slice){.stage = 0};
    return (struct tool_slice){.tensor = l->tensor, .pipeline = l->pipeline, .context = l->context, .stage = TOOL_SLICE_FULLEST,
                               .sequence_parallel = l->sequence_parallel, .virtual_stages = l->virtual_stages,
                               .expert = l->expert, .expert_tensor = l->expert_tensor};
}

/* Ranks with data of their own; 0: they are not whole groups. */
static uint32_t replicas_of(const struct tool_estimate_request *request)
{
    const struct tool_layout *l = &request->layout;
    const uint64_t group = (uint64_t)l->tensor * l->pipeline * l->context;
    return request->asked->plan.ranks % group ? 0 : (uint32_t)(request->asked->plan.ranks / group);
}

eo_status tool_estimate_micro_batches(uint32_t *out, const struct tool_estimate_request *request, struct tool_problem *problem)
{
    const uint32_t replicas = replicas_of(request);
    const uint64_t each = (uint64_t)request->asked->plan.batch * replicas;
    *out = request->asked->plan.micro_batches;
    if (request->global_batch == 0 || replicas == 0) /* the layout is refused later */
        return EO_OK;
    if (request->global_batch % each)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--global-batch %u is not a multiple of --batch %u x %u data-parallel ranks",
                                request->global_batch, request->asked->plan.batch, replicas);
    *out = (uint32_t)(request->global_batch / each);
    return EO_OK;
}

static eo_strategy strategy_of(const struct tool_estimate_request *request, enum tool_system system)
{
    if (request->strategy_given)
        return request->asked->plan.strategy;
    return system == TOOL_SYSTEM_MEGATRON ? EO_STRATEGY_ZERO1 : EO_STRATEGY_ZERO3;
}

/* What other systems do not have. */
static eo_status check_request(const struct tool_plan_settings *p, enum tool_system system, struct tool_problem *problem)
{
    if (system == TOOL_SYSTEM_EVENODD)
        return EO_OK;
    if (p->dtype != EO_DTYPE_BF16)
        return tool_problem_set(problem, EO_ERR_INVALID, "--dtype: other systems are planned in bf16, fp16 and fp8");
    if (p->recompute == EO_RECOMPUTE_CHEAP)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--recompute cheap is evenodd's; give none, selective, all or a number of "
                                "blocks");
    return EO_OK;
}

eo_status tool_estimate_settings(struct tool_system_settings *out, const struct tool_estimate_request *request,
                             enum tool_system system, const struct tool_shape *shape, struct tool_problem *problem)
{
    const struct tool_plan_settings *p = &request->asked->plan;
    *out = (struct tool_system_settings){.layout = request->layout,
                                         .strategy = strategy_of(request, system),
                                         .shard_group = p->shard_group,
                                         .run = request->run,
                                         .recomputed_blocks = p->recompute == EO_RECOMPUTE_BLOCKS ? p->recompute_blocks : 0,
                                         .workspace_bytes = TOOL_WORKSPACES_HOPPER};
    out->run.float8_weights = p->float8_gather;
    out->layout.ranks = p->ranks;
    out->layout.batch = p->batch;
    out->layout.seq = tool_estimate_seq(request);
    out->layout.sequence_parallel |= system == TOOL_SYSTEM_FSDP2; /* its tensor parallelism is always so */
    out->layout.vocabulary_multiple = system == TOOL_SYSTEM_MEGATRON || system == TOOL_SYSTEM_MEGATRON_FSDP ? 128 : 0;
    if (out->run.recompute_unit) /* all are, in units */
        out->recomputed_blocks = UINT32_MAX;
    if (out->run.recomputed_of_chunk)
        out->recomputed_blocks = out->run.recomputed_of_chunk * out->layout.pipeline * out->layout.virtual_stages;
    EO_TRY(tool_estimate_micro_batches(&out->layout.micro_batches, request, problem));
    EO_TRY(check_request(p, system, problem));
    if ((uint64_t)out->layout.batch * out->layout.seq > TOKENS_MOST)
        return tool_problem_set(problem, EO_ERR_INVALID, "--batch x --seq is %llu tokens; give at most %d",
                                (unsigned long long)out->layout.batch * out->layout.seq, TOKENS_MOST);
    if (out->layout.seq > request->config->context)
        return tool_problem_set(problem, EO_ERR_INVALID, "--seq %u is longer than the model's context of %u (%s)",
                                out->layout.seq, request->config->context, request->config->source);
    EO_TRY(tool_plan_settings_check(p, request->config->layer_count, request->config->tied_head, problem));
    if (out->recomputed_blocks > shape->layers)
        out->recomputed_blocks = (uint32_t)shape->layers;
    return tool_system_check(system, out, shape, problem);
}

eo_status tool_estimate_answer_of(struct tool_estimate_answer *out, const struct tool_estimate_request *request, enum tool_system system,
                           struct tool_problem *problem)
{
    struct tool_memplan_settings gpu = *request->asked;
    gpu.on_gpu = true;
    *out = (struct tool_estimate_answer){.request = request, .shape = tool_shape_of(request->config)};
    EO_TRY(tool_estimate_settings(&out->settings, request, system, &out->shape, problem));
    out->estimate = tool_system_estimate(system, &out->shape, &out->settings);
    struct tool_outside outside = gpu.outside;
    if (!outside.given) {
        outside = tool_outside_default(&gpu);
        outside.workspace_bytes = 0; /* the allocator's, and a part of the estimate */
    }
    out->outside_bytes = tool_outside_bytes(&outside);
    out->total_bytes = out->estimate.peak_bytes + out->outside_bytes;
    out->fits = gpu.capacity_bytes == 0 || out->total_bytes <= tool_usable_bytes(&gpu);
    return EO_OK;
}

eo_status tool_estimate_total(uint64_t *bytes, bool *fits, const struct tool_estimate_request *request,
                              struct tool_problem *problem)
{
    struct tool_estimate_answer a;
    EO_TRY(tool_estimate_answer_of(&a, request, request->system, problem));
    *bytes = a.total_bytes;
    *fits = a.fits;
    return EO_OK;
}
