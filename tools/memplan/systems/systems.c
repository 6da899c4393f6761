/* SPDX-License-Identifier: MIT */
#include "tools/memplan/systems/systems.h"

#include <string.h>

static const struct {
    const char *name, *meaning, *error;
} systems[TOOL_SYSTEM_COUNT] = {
    {"evenodd", "device: the arena, to the byte, and what lies outside it", "none: a run reserves the plan"},
    {"megatron", "allocated: torch.cuda.max_memory_allocated of the fullest rank; the allocator reserves more",
     "on runs of its own tests: peak 0.9 % at the median, 4.4 % at most; state 1.7 % (memplan --published)"},
    {"fsdp2", "active: max_active of PyTorch's allocator; torchtitan's runs reserved up to 1.32 times as much",
     "4 and 6 % below two published runs; nine others reserved 0.99 to 1.32 times it (memplan --published)"},
    {"deepspeed", "allocated, with the default sizes of its buckets", "no published run is held against it"},
};

static const char *const part_names[TOOL_SYSTEM_PART_COUNT] = {"weights",     "gradients", "optimizer", "buffers",
                                                               "activations", "head",      "workspaces"};

const char *tool_system_name(enum tool_system system)
{
    return systems[system].name;
}

const char *tool_system_meaning(enum tool_system system)
{
    return systems[system].meaning;
}

const char *tool_system_error(enum tool_system system)
{
    return systems[system].error;
}

const char *tool_system_part_name(enum tool_system_part part)
{
    return part_names[part];
}

bool tool_system_parse(const char *text, enum tool_system *out)
{
    for (int s = 0; s < TOOL_SYSTEM_COUNT; s++)
        if (strcmp(text, systems[s].name) == 0) {
            *out = (enum tool_system)s;
            return true;
        }
    return false;
}

eo_status tool_system_check(enum tool_system system, const struct tool_system_settings *settings,
                            const struct tool_shape *shape, struct tool_problem *problem)
{
    const struct tool_layout *l = &settings->layout;
    const bool cut = l->tensor > 1 || l->pipeline > 1 || l->context > 1 || l->expert > 1;
    if (cut && (system == TOOL_SYSTEM_EVENODD || system == TOOL_SYSTEM_DEEPSPEED))
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--system %s is planned for data parallelism alone; leave --tp, --pp, --cp "
                                "and --ep out, or give --system megatron or fsdp2",
                                systems[system].name);
    if (system == TOOL_SYSTEM_FSDP2 && l->expert > 1)
        return tool_problem_set(problem, EO_ERR_INVALID, "--ep: --system fsdp2 is planned without expert parallelism");
    if (system == TOOL_SYSTEM_MEGATRON && settings->strategy != EO_STRATEGY_ZERO1 && settings->strategy != EO_STRATEGY_DDP)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--strategy: --system megatron takes zero1 (its distributed optimizer) or "
                                "ddp");
    if (system == TOOL_SYSTEM_FSDP2 && settings->strategy != EO_STRATEGY_ZERO3)
        return tool_problem_set(problem, EO_ERR_INVALID, "--strategy: --system fsdp2 is planned with zero3 alone");
    if (system == TOOL_SYSTEM_DEEPSPEED && settings->strategy == EO_STRATEGY_HSDP)
        return tool_problem_set(problem, EO_ERR_INVALID, "--strategy: --system deepspeed takes ddp, zero1, zero2 or zero3");
    return tool_layout_check(l, shape, problem);
}

/* --- activations -------------------------------------------------------------------------------------------------- */

static uint64_t tokens_of(const struct tool_layout *l)
{
    return (uint64_t)l->batch * l->seq / l->context;
}

static uint64_t split_of(const struct tool_layout *l)
{
    return l->sequence_parallel ? l->tensor : 1;
}

/* Bytes of a token that a block keeps for its backward pass. Korthikanti et al. (arXiv 2205.05198) for any width of k, v and
 * MLP: inputs of norms and of products, and masks of dropout, are divided by sequence parallelism alone. */
static uint64_t block_bytes(const struct tool_shape *s, const struct tool_system_settings *y)
{
    const struct tool_layout *l = &y->layout;
    const uint64_t t = l->tensor, h = s->width, q = s->heads * s->head_size, kv = s->kv_heads * s->head_size;
    const uint64_t ups = s->gated ? 2 : 1, inner = (s->experts ? s->experts_per_token * s->expert_width : s->mlp_width);
    const uint64_t whole = 8 * h + (s->drops_residual ? 2 * h : 0);
    const uint64_t core = y->math_attention && !y->selective ? (s->drops_attention ? 5 : 2) * s->heads * l->seq : 0;
    const uint64_t routed = s->experts ? 4 * h * s->experts_per_token + 12 * s->experts : 0; /* permuted in and out; router */
    return whole / split_of(l) + (4 * q + 4 * kv + 4 * s->heads + core + (2 * ups + 2) * inner + routed) / t;
}

/* torchtitan's selective recompute by operation keeps every other product, attention's output and the block's input. */
static uint64_t selective_bytes(const struct tool_shape *s, const struct tool_layout *l)
{
    const uint64_t q = s->heads * s->head_size, kv = s->kv_heads * s->head_size, ups = s->gated ? 2 : 1;
    const uint64_t inner = s->experts ? s->experts_per_token * s->expert_width : s->mlp_width;
    return (q + 2 * kv + 2 * s->width + ups * inner + 2 * q + 4 * s->heads + 2 * s->width) / l->tensor;
}

/* Of `blocks` in flight; the first of a stage are the recomputed ones and keep their input. */
static uint64_t kept_bytes(const struct tool_shape *s, const struct tool_system_settings *y, uint64_t blocks, uint64_t block)
{
    const uint64_t recomputed = blocks * y->recomputed_blocks / s->layers;
    return tokens_of(&y->layout) * ((blocks - recomputed) * block + recomputed * 2 * s->width / split_of(&y->layout));
}

/* --- systems ------------------------------------------------------------------------------------------------------ */

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void add_up(struct tool_system_estimate *e)
{
    e->state_bytes = e->parts[TOOL_SYSTEM_WEIGHTS] + e->parts[TOOL_SYSTEM_GRADIENTS] + e->parts[TOOL_SYSTEM_OPTIMIZER];
    e->activation_bytes = e->parts[TOOL_SYSTEM_ACTIVATIONS] + e->parts[TOOL_SYSTEM_HEAD];
    e->peak_bytes = 0;
    for (int p = 0; p < TOOL_SYSTEM_PART_COUNT; p++)
        e->peak_bytes += e->parts[p];
}

/* bf16 weights, fp32 gradients, fp32 master weights and two states. Either the logits are there (bf16, and fp32 that becomes
 * their gradient), or a block is in backward: its gradients, and what it recomputes. */
static struct tool_system_estimate megatron(const struct tool_shape *s, const struct tool_system_settings *y, uint32_t stage)
{
    const struct tool_layout *l = &y->layout;
    const struct tool_stage_elements n = tool_stage_elements(s, l, stage);
    const uint64_t same = l->ranks / (l->tensor * l->pipeline), shards = y->strategy == EO_STRATEGY_ZERO1 ? same : 1;
    const uint64_t expert_shards = y->strategy == EO_STRATEGY_ZERO1 ? max_u64(same / l->expert, 1) : 1;
    const uint64_t tokens = tokens_of(l), split = split_of(l), block = block_bytes(s, y);
    const uint64_t in_flight = tool_blocks_in_flight(s, l, stage),
                   chunk = s->layers / ((uint64_t)l->pipeline * l->virtual_stages);
    struct tool_system_estimate e = {.stage = stage};
    e.parts[TOOL_SYSTEM_WEIGHTS] = 2 * (n.dense + n.experts);
    e.parts[TOOL_SYSTEM_GRADIENTS] = 4 * (n.dense + n.experts);
    e.parts[TOOL_SYSTEM_OPTIMIZER] = 12 * n.dense / shards + 12 * n.experts / expert_shards;
    e.parts[TOOL_SYSTEM_WORKSPACES] = y->workspace_bytes;
    e.parts[TOOL_SYSTEM_ACTIVATIONS] = kept_bytes(s, y, in_flight, block);
    if (stage == 0 && s->drops_residual)
        e.parts[TOOL_SYSTEM_ACTIVATIONS] += in_flight / chunk * tokens * s->width / split;
    const uint64_t head =
        stage + 1 == l->pipeline ? tokens * (4 * s->width / split + 6 * tool_padded_vocabulary(s, l) / l->tensor) : 0;
    const uint64_t backward = tokens * (4 * s->width / split + (y->recomputed_blocks ? block : 0));
    e.parts[head > backward ? TOOL_SYSTEM_HEAD : TOOL_SYSTEM_ACTIVATIONS] += max_u64(head, backward);
    add_up(&e);
    return e;
}

/* fp32 weights and two states in shards, bf16 gathers, fp32 reduction. Three moments: at the logits (no gradients yet, unless
 * there are more micro-batches), at the first block of backward, and at its end. A pipeline keeps gathered weights and whole
 * gradients of its stage from the first micro-batch to the last. */
static struct tool_system_estimate fsdp2(const struct tool_shape *s, const struct tool_system_settings *y, uint32_t stage)
{
    const struct tool_layout *l = &y->layout;
    const struct tool_stage_elements n = tool_stage_elements(s, l, stage);
    const uint64_t shards = l->ranks / (l->tensor * l->pipeline), all = n.dense + n.experts, tokens = tokens_of(l);
    const uint64_t full = block_bytes(s, y), block = y->selective ? selective_bytes(s, l) : full;
    const uint64_t kept = kept_bytes(s, y, tool_blocks_in_flight(s, l, stage), block), whole = l->pipeline > 1 ? 6 * all : 0;
    const bool last = stage + 1 == l->pipeline;
    struct tool_system_estimate e = {.stage = stage}, best = e;
    for (int moment = 0; moment < 3; moment++) {
        if (moment == 0 && !last)
            continue;
        e.parts[TOOL_SYSTEM_WEIGHTS] = 4 * all / shards;
        e.parts[TOOL_SYSTEM_GRADIENTS] = moment == 2 || l->micro_batches > 1 ? 4 * all / shards : 0;
        e.parts[TOOL_SYSTEM_OPTIMIZER] = 8 * all / shards;
        e.parts[TOOL_SYSTEM_BUFFERS] = whole ? whole : moment == 0 ? 2 * n.head + 2 * n.largest_block : 14 * n.largest_block;
        e.parts[TOOL_SYSTEM_ACTIVATIONS] = moment == 2 ? tokens * full : kept + (moment == 1 ? tokens * full : 0);
        e.parts[TOOL_SYSTEM_HEAD] = moment == 0 ? tokens * 16 * s->vocabulary / l->tensor : 0;
        add_up(&e);
        if (e.peak_bytes > best.peak_bytes)
            best = e;
    }
    best.state_bytes = 16 * all / shards;
    return best;
}

/* 2 + 2 + 12 bytes; buckets of 5e8 elements, 1e9 live elements of stage 3: its defaults. Modules as they come, so a block keeps
 * more than fused kernels do: 56 widths were measured for Llama-3-8B, of the formula's 34. */
static struct tool_system_estimate deepspeed(const struct tool_shape *s, const struct tool_system_settings *y)
{
    const struct tool_layout *l = &y->layout;
    const struct tool_stage_elements n = tool_stage_elements(s, l, 0);
    const uint64_t all = n.dense + n.experts, bucket = all < 500000000 ? all : 500000000,
                   live = all < 1000000000 ? all : 1000000000;
    const uint64_t full = block_bytes(s, y) * (s->gated ? 56 : 34) / 34, tokens = tokens_of(l), w = l->ranks;
    const eo_strategy stage = y->strategy;
    struct tool_system_estimate e = {.stage = 0};
    e.parts[TOOL_SYSTEM_WEIGHTS] = 2 * all / (stage == EO_STRATEGY_ZERO3 ? w : 1);
    e.parts[TOOL_SYSTEM_GRADIENTS] = 2 * all / (stage == EO_STRATEGY_ZERO3 || stage == EO_STRATEGY_ZERO2 ? w : 1);
    e.parts[TOOL_SYSTEM_OPTIMIZER] = 12 * all / (stage == EO_STRATEGY_DDP ? 1 : w);
    e.parts[TOOL_SYSTEM_BUFFERS] = 2 * bucket + (stage == EO_STRATEGY_ZERO3 ? 2 * live : 0);
    e.parts[TOOL_SYSTEM_ACTIVATIONS] = kept_bytes(s, y, s->layers, full);
    const uint64_t head = tokens * 16 * s->vocabulary, again = y->recomputed_blocks ? tokens * full : 0;
    e.parts[head > again ? TOOL_SYSTEM_HEAD : TOOL_SYSTEM_ACTIVATIONS] += max_u64(head, again);
    add_up(&e);
    return e;
}

struct tool_system_estimate tool_system_stage(enum tool_system system, const struct tool_shape *shape,
                                              const struct tool_system_settings *settings, uint32_t stage)
{
    return system == TOOL_SYSTEM_MEGATRON ? megatron(shape, settings, stage)
           : system == TOOL_SYSTEM_FSDP2  ? fsdp2(shape, settings, stage)
                                          : deepspeed(shape, settings);
}

struct tool_system_estimate tool_system_estimate(enum tool_system system, const struct tool_shape *shape,
                                                 const struct tool_system_settings *settings)
{
    struct tool_system_estimate most = tool_system_stage(system, shape, settings, 0);
    for (uint32_t stage = 1; stage < settings->layout.pipeline; stage++) {
        const struct tool_system_estimate e = tool_system_stage(system, shape, settings, stage);
        if (e.peak_bytes > most.peak_bytes)
            most = e;
    }
    return most;
}
