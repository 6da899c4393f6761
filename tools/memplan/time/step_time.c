/* SPDX-License-Identifier: MIT */
#include "tools/memplan/time/step_time.h"

#include <math.h>
#include <string.h>

/* Fitted with the shares of tools/memplan/plan/devices.json, on rows of the half for fitting alone. */
static const double block_passes = 10.55; /* memory traffic, in kept activations of a block */
static const double head_bytes = 17.15;   /* of a logit, read and written */
static const double tensor_factor = 1.96; /* time of tensor parallelism's collectives, none hidden, in their time on the link */
static const double node_share = 0.405;   /* of node_bytes, that gathers of weights reach */
static const double fsdp_share = 0.337;        /* of network_bytes: FSDP, Megatron, DeepSpeed */
static const double planned_share = 0.431;     /* ... YaFSDP and evenodd */
static const double collective_seconds = 1e-5; /* of one, on 64 ranks; it grows with their logarithm */
static const double step_seconds = 0.072;      /* of each step, with sharded weights */
static const double four_bits = 0.516;         /* bytes of an element, with its scales (QLoRA) */
static const double overlap = 2.79;            /* of two that overlap a and b the time is (a^q + b^q)^(1/q) */

/* Of one micro-batch on one rank of the slowest stage, which is the last: it has the head. And of the model. */
struct work {
    double products, attention;                      /* flops, with what is recomputed */
    double narrow;                                   /* of `products` those of the blocks, which may be in float8 */
    double frozen, adapters;                         /* elements of the whole model: of adapters, and all else beside them */
    double useful;                                   /* flops of all ranks that share the micro-batch, nothing recomputed */
    double memory;                                   /* bytes */
    double block_elements, elements, table_elements; /* of the whole model: multiplied by a token; stored; the embedding */
    double expert_elements;                          /* of those that are stored */
    double tokens;                                   /* of the micro-batch, on all ranks that share it */
};

static struct work work_of(enum tool_system system, const struct tool_shape *s, const struct tool_system_settings *y)
{
    const struct tool_layout *l = &y->layout;
    const double h = (double)s->width, q = (double)(s->heads * s->head_size), kv = (double)(s->kv_heads * s->head_size);
    const double layers = (double)s->layers, again = y->recomputed_blocks, rest = (double)l->tensor * l->context;
    const double ups = s->gated ? 2 : 1, f = (double)(s->experts ? s->experts_per_token * s->expert_width : s->mlp_width);
    const double half = y->run.selective && system == TOOL_SYSTEM_FSDP2 ? layers / 2 : 0; /* every other product again */
    const double attention = h * (2 * q + 2 * kv), mlp = (ups + 1) * h;
    struct tool_block_average b = {
        .multiplied = attention + mlp * f,
        .stored = attention + (s->experts ? mlp * (double)(s->experts * s->expert_width) : mlp * f),
        .experts = mlp * (double)(s->experts * s->expert_width),
        .core_flops = 2 * q * l->seq,
        .kept_bytes = 8 * h + 4 * q + 4 * kv + (2 * ups + 2) * f,
    };
    (void)tool_shape_average(s, l->seq, &b);
    struct work w = {.tokens = (double)l->batch * l->seq, .table_elements = (double)s->vocabulary * h};
    w.block_elements = b.multiplied;
    w.expert_elements = b.experts * layers;
    w.elements = b.stored * layers + w.table_elements * (s->tied_head ? 1 : 2);
    const uint32_t modules = y->run.recomputed_modules; /* made again in part */
    const bool mlp_again = modules & (s->experts ? 1u << TOOL_REMAKE_EXPERTS : 1u << TOOL_REMAKE_MLP);
    const double block = 2 * w.block_elements * w.tokens, core = b.core_flops * w.tokens,
                 head = 6 * w.table_elements * w.tokens;
    /* Nothing takes the gradients of frozen matrices; adapters (rank x both sides of each) have all three passes. */
    struct tool_layout whole = *l;
    whole.tensor = whole.expert = whole.pipeline = 1;
    w.adapters = y->run.lora_rank ? layers * (double)tool_adapter_elements(s, &whole, y->run.lora_rank) : 0;
    w.frozen = y->run.lora_rank ? w.elements : 0;
    const double passes = w.frozen > 0 ? 2 : 3, head_passes = passes / 3, added = 6 * w.adapters * w.tokens;
    w.narrow = block * (passes * layers + again + half) / (l->pipeline * rest);
    w.products = w.narrow + (added / l->pipeline + head * head_passes) / rest;
    w.products += mlp_again ? 2 * mlp * f * w.tokens * layers / (l->pipeline * rest) : 0;
    w.attention = core * (3.5 * layers + (modules & 1u << TOOL_REMAKE_CORE ? layers : again)) / (rest * l->pipeline); /* backward has five products of forward's two */
    w.useful = (passes * block + 3 * core) * layers + added + head * head_passes;
    w.memory = w.tokens *
               (block_passes * b.kept_bytes * (layers + again / 3 + half / 3) / l->pipeline +
                head_bytes * (double)s->vocabulary) /
               rest;
    return w;
}

double tool_group_bytes(const struct tool_device_rates *rates, uint32_t group, uint32_t stride, uint32_t gpus_per_node,
                        double network_share)
{
    if ((uint64_t)group * stride <= gpus_per_node)
        return rates->node_bytes * node_share;
    return fmin(rates->network_bytes * network_share * (stride < gpus_per_node ? gpus_per_node / stride : 1),
                rates->node_bytes * node_share); /* a ring goes through the nodes, too */
}

static double together(double a, double b)
{
    return pow(pow(a, overlap) + pow(b, overlap), 1 / overlap);
}

/* All-reduces of tensor parallelism, or as many bytes of gathers and scatters; all-to-alls of experts. None is hidden. */
static double exposed_in_micro_batch(const struct tool_shape *s, const struct tool_system_settings *y,
                                     const struct tool_device_rates *r, uint32_t node, double tokens)
{
    const struct tool_layout *l = &y->layout;
    const double t = l->tensor, e = l->expert, layers = (double)s->layers / l->pipeline,
                 again = y->recomputed_blocks / (double)s->layers;
    const double bytes = 2 * tokens / l->context * (double)s->width;
    const double link = l->tensor <= node ? r->node_bytes : r->network_bytes;
    const double experts = (uint64_t)l->tensor * l->expert <= node ? r->node_bytes : r->network_bytes;
    return tensor_factor * 2 * (t - 1) / t * bytes / link * layers * (4 + 2 * again) +
           (e - 1) / e * bytes * (double)s->experts_per_token / t / experts * layers * (4 + 2 * again);
}

/* Bytes that a rank sends for its weights and gradients: with each micro-batch, and once a step. */
struct traffic {
    double each, once;
};

static struct traffic traffic_of(enum tool_system system, const struct tool_system_settings *y, double elements)
{
    /* Of an element: gathered twice, reduced once; in float8 a byte, in four bits half of one and its scales. */
    const double gathered = y->run.float8_weights ? 1 : 2, reduced = y->run.precision == TOOL_PRECISION_FP16 ? 2 : 4;
    if (system == TOOL_SYSTEM_MEGATRON)
        return (struct traffic){.once = (y->strategy == EO_STRATEGY_ZERO1 ? gathered + reduced : 2 * reduced) * elements};
    if (y->strategy == EO_STRATEGY_DDP)
        return (struct traffic){.once = 8 * elements};
    if (y->strategy == EO_STRATEGY_ZERO1)
        return (struct traffic){.once = 6 * elements};
    if (y->strategy == EO_STRATEGY_ZERO2)
        return (struct traffic){.each = 4 * elements, .once = 2 * elements};
    return (struct traffic){.each = (2 * gathered + 4) * elements, .once = y->strategy == EO_STRATEGY_HSDP ? 8 * elements / y->shard_group : 0};
}

/* Frozen weights are gathered where weights are in shards, and never reduced. */
static double frozen_traffic(enum tool_system system, const struct tool_system_settings *y, double elements)
{
    const bool gathers = system != TOOL_SYSTEM_MEGATRON && y->strategy == EO_STRATEGY_ZERO3;
    return gathers ? 2 * (y->run.nf4 ? four_bits : 2) * elements : 0;
}

/* Seconds of a step that a rank waits for its host: gradients go there and weights come back, the host updates, and a disk has the
 * state. None of it is hidden. With weights on the host each gather begins with the rank's shard from there. */
static double offload_seconds(enum tool_system system, const struct tool_system_settings *y, const struct tool_device_rates *r,
                              double shard, double frozen_shard)
{
    if (!y->run.offload)
        return 0;
    const double weight = system == TOOL_SYSTEM_FSDP2 ? 4 : 2, micros = y->layout.micro_batches;
    const double gathers = y->run.offload == TOOL_OFFLOAD_WEIGHTS ? 2 * micros * weight * (shard + frozen_shard) : weight * shard;
    const double disk = y->run.to_disk ? 2 * 16 * shard / r->disk_bytes : 0; /* fp32 weights, two states and gradients, both ways */
    return (gathers + 4 * shard) / r->host_bytes + 28 * shard / r->host_memory_bytes + disk;
}

/* Seconds on the links, with each micro-batch and once a step; and elements that a rank updates. */
struct exchange {
    double each, once, updated;
};

/* Fewer ranks hold the same experts than hold the same of all else, and they stand further apart. Of frozen weights adapters
 * alone are trained. */
static struct exchange exchange_of(enum tool_system system, const struct work *w, const struct tool_system_settings *y,
                                   const struct tool_device_rates *rates, uint32_t gpus_per_node, double share)
{
    const struct tool_layout *l = &y->layout;
    const uint32_t model = l->tensor * l->pipeline, cut = tool_layout_expert_tensor(l) * l->expert;
    const struct {
        double trained, frozen;
        uint32_t ranks, stride;
    } groups[] = {{(w->frozen > 0 ? w->adapters : w->elements - w->expert_elements) / model, w->frozen / model,
                   l->ranks / model, l->tensor},
                  {w->frozen > 0 ? 0 : w->expert_elements / cut / l->pipeline, 0, tool_layout_expert_same(l), cut}};
    struct exchange sent = {0};
    for (int i = 0; i < 2; i++) {
        const uint32_t same = groups[i].ranks, most = y->strategy == EO_STRATEGY_HSDP ? y->shard_group : same,
                       group = most < same ? most : same;
        struct traffic bytes = traffic_of(system, y, groups[i].trained);
        bytes.each += frozen_traffic(system, y, groups[i].frozen);
        sent.each +=
            (group - 1.0) / group * bytes.each / tool_group_bytes(rates, group, groups[i].stride, gpus_per_node, share);
        sent.once += same > 1 ? bytes.once / tool_group_bytes(rates, same, groups[i].stride, gpus_per_node, share) : 0;
        sent.updated += groups[i].trained / (y->strategy == EO_STRATEGY_DDP ? 1 : group);
    }
    return sent;
}

static const char *largest_of(const double *seconds, const char *const *names, int count)
{
    int most = 0;
    for (int i = 1; i < count; i++)
        if (seconds[i] > seconds[most])
            most = i;
    return names[most];
}

struct tool_step_time tool_step_time(enum tool_system system, const struct tool_shape *shape,
                                     const struct tool_system_settings *settings, const struct tool_device_rates *rates,
                                     uint32_t gpus_per_node)
{
    static const char *const names[] = {"products", "memory", "communication", "pipeline bubble", "start and end of the step"};
    const struct tool_layout *l = &settings->layout;
    const struct work w = work_of(system, shape, settings);
    const uint32_t model = l->tensor * l->pipeline, same = l->ranks / model;
    const uint32_t group = settings->strategy == EO_STRATEGY_HSDP ? settings->shard_group : same;
    const bool sharded = system != TOOL_SYSTEM_MEGATRON && settings->strategy != EO_STRATEGY_DDP && group > 1;
    const double share = system == TOOL_SYSTEM_EVENODD ? planned_share : fsdp_share;
    const double micros = l->micro_batches, frozen = w.frozen / model;
    const bool narrow = settings->run.precision == TOOL_PRECISION_FP8;
    const struct exchange sent = exchange_of(system, &w, settings, rates, gpus_per_node, share);
    const double wide = rates->product_flops * rates->product_share;
    const double products = (w.products - w.narrow) / wide +
                            w.narrow / (narrow ? rates->float8_flops * rates->float8_share : wide) +
                            w.attention / (rates->product_flops * rates->attention_share);
    const double unpacked = settings->run.nf4 ? 3 * (four_bits + 2) * frozen : 0; /* in each pass: read in four bits, written */
    const double memory = (w.memory + unpacked) / rates->memory_bytes, compute = products + memory;
    const double micro = compute + exposed_in_micro_batch(shape, settings, rates, gpus_per_node, w.tokens);
    const double latency = sharded ? collective_seconds * 3 * (double)shape->layers * log2(group > 2 ? group : 2) / 6 : 0;
    const double each = sent.each > 0 ? together(micro, sent.each + latency) : micro;
    const double once = sent.once > 0 ? together(micro, sent.once) - micro : 0;
    const double ends = sharded ? (group - 1.0) / group * (w.frozen > 0 ? 2 : 6) * w.table_elements / l->tensor /
                                      tool_group_bytes(rates, group, l->tensor, gpus_per_node, share)
                                : 0;
    struct tool_step_time t = {.compute_seconds = micros * compute};
    t.bubble_seconds = micro * (l->pipeline - 1.0) / l->virtual_stages;
    t.exposed_seconds = micros * (each - compute) + once + ends;
    const double shards = settings->strategy == EO_STRATEGY_DDP ? 1 : group;
    t.rest_seconds = (settings->run.offload ? offload_seconds(system, settings, rates, sent.updated, frozen / shards)
                                            : 28 * sent.updated / rates->memory_bytes) +
                     (sharded ? step_seconds : 0);
    t.seconds = t.compute_seconds + t.bubble_seconds + t.exposed_seconds + t.rest_seconds;
    const double step_tokens = w.tokens * micros * tool_layout_data_parallel(l);
    t.tokens_per_second = step_tokens / t.seconds;
    t.mfu = w.useful * micros * tool_layout_data_parallel(l) / (t.seconds * l->ranks * rates->product_flops);
    const double seconds[] = {micros * products, micros * memory, t.exposed_seconds, t.bubble_seconds, t.rest_seconds};
    t.bound_by = largest_of(seconds, names, 5);
    return t;
}

struct tool_pass_seconds tool_pass_seconds(const struct tool_shape *shape, const struct tool_system_settings *settings,
                                           const struct tool_device_rates *rates, uint32_t gpus_per_node)
{
    const struct tool_layout *l = &settings->layout;
    struct tool_system_settings once = *settings;
    once.recomputed_blocks = 0;
    const struct work w = work_of(TOOL_SYSTEM_EVENODD, shape, &once);
    const double blocks = (double)shape->layers / l->pipeline, rest = (double)l->tensor * l->context;
    const double passes = w.frozen > 0 ? 2 : 3; /* LoRA has no backward products of its weights */
    const double head = 2 * passes * w.table_elements * w.tokens / rest,
                 head_memory = w.tokens * head_bytes * (double)shape->vocabulary / rest / rates->memory_bytes;
    const double speed = rates->product_flops * rates->product_share;
    const double products = (w.products - head) / blocks / speed,
                 attention = w.attention / blocks / (rates->product_flops * rates->flash_share),
                 memory = (w.memory / rates->memory_bytes - head_memory) / blocks;
    const double sent = exposed_in_micro_batch(shape, &once, rates, gpus_per_node, w.tokens) / blocks;
    struct tool_pass_seconds p = {.forward = products / passes + attention / 3.5 + memory / 3 + sent / 2,
                                  .backward = products * (1 - 1 / passes) + attention * 2.5 / 3.5 + memory * 2 / 3 + sent / 2,
                                  .head = head / speed + head_memory,
                                  .expert_share = (double)shape->experts_per_token * (double)shape->expert_width *
                                                  (shape->gated ? 3 : 2) * (double)shape->width / w.block_elements,
                                  .useful_flops = w.useful};
    p.memory_share = (memory * blocks + head_memory) / ((p.forward + p.backward) * blocks + p.head);
    return p;
}
