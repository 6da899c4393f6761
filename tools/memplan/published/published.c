/* SPDX-License-Identifier: MIT */
#include "tools/memplan/published/published.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/published/megatron_runs.h"
#include "tools/memplan/systems/peers.h"
#include "tools/memplan/published/steps.h"

struct table {
    FILE *out;
    uint32_t wrong;
};

/* `tolerance` in percent; below 0: shown, not held. */
static void put_row(struct table *t, const char *what, const char *model, double predicted, double published,
                    const char *unit, double tolerance, const char *metric)
{
    const double error = published != 0 ? 100 * (predicted - published) / published : 0;
    const bool held = tolerance >= 0, good = !held || fabs(error) <= tolerance;
    t->wrong += !good;
    fprintf(t->out, "| %s | %s | %.*f | %.*f | %s | %+.3f %% | %s | %s |\n", what, model,
            strchr(unit, 'B') && unit[0] == 'B' && unit[1] == '\0' ? 0 : 3, predicted,
            strchr(unit, 'B') && unit[0] == 'B' && unit[1] == '\0' ? 0 : 3, published, unit, error, metric,
            !held ? "shown" : good ? "agrees" : "WRONG");
}

static bool load(struct tool_model_config *c, const char *name)
{
    struct tool_problem problem;
    return tool_model_config_load(c, name, NULL, 0, &problem) >= 0;
}

static double mib(uint64_t bytes)
{
    return floor((double)bytes / 1048576.0); /* as the logs print them */
}

/* karpathy/llm.c, start-up log and code; vocabulary padded to 50304. */
static void put_llmc(struct table *t)
{
    static const char *const rules = "llm.c (not ours)", *const metric = "allocated";
    const uint64_t p = tool_llmc_parameters(12, 768, 50304, 1024);
    put_row(t, "llm.c gpt2-124M, parameters", rules, (double)p, 124475904, "elements", 0, metric);
    put_row(t, "llm.c gpt2-124M, parameters and gradients, bf16", rules, mib(2 * p), 237, "MiB", 0, metric);
    put_row(t, "llm.c gpt2-124M, m, v, master, each fp32", rules, mib(4 * p), 474, "MiB", 0, metric);
    put_row(t, "llm.c gpt2-124M B 56 T 1024 recompute 1, activations", rules,
            (double)tool_llmc_activation_bytes(12, 768, 12, 50304, 56, 1024, 1), 19466452992.0, "B", 0, metric);
    put_row(t, "llm.c gpt2-124M B 64 T 1024 recompute 0, activations", rules,
            (double)tool_llmc_activation_bytes(12, 768, 12, 50304, 64, 1024, 0), 26676559872.0, "B", 0, "computed by its code");
    put_row(t, "llm.c gpt2-124M B 64 T 1024 recompute 1, activations", rules,
            (double)tool_llmc_activation_bytes(12, 768, 12, 50304, 64, 1024, 1), 22247374848.0, "B", 0, "computed by its code");
    put_row(t, "llm.c gpt2-xl B 16 T 1024 recompute 0, activations", rules,
            (double)tool_llmc_activation_bytes(48, 1600, 25, 50304, 16, 1024, 0), 42372104192.0, "B", 0,
            "computed by its code");
    const double all = mib(2 * 2 * p + 12 * p + tool_llmc_activation_bytes(12, 768, 12, 50304, 56, 1024, 1));
    put_row(t, "llm.c gpt2-124M B 56, whole device", rules, all, 21315, "MiB", -1, "device used: 852 MiB of it are foreign");
}

/* IST-DASLab/llmq [Allocator State]: matrices in fp8, the rest in bf16; the master copy of matrices in bf16. */
static void put_llmq(struct table *t)
{
    static struct tool_model_config c;
    if (!load(&c, "qwen2.5-0.5b"))
        return;
    const uint64_t p = tool_model_config_parameters(&c), h = c.width, kv = (uint64_t)c.kv_head_count * c.head_size;
    const uint64_t matrices = c.layer_count * (2 * h * h + 2 * h * kv + 3 * h * c.mlp_width);
    static const char *const rules = "llmq (not ours)";
    put_row(t, "llmq Qwen2.5-0.5B, m, v, gradients, each bf16", rules, mib(2 * p), 942, "MiB", 0, "allocated");
    put_row(t, "llmq Qwen2.5-0.5B, master of matrices, bf16", rules, mib(2 * matrices), 682, "MiB", 0, "allocated");
    put_row(t, "llmq Qwen2.5-0.5B, weights, fp8 and bf16", rules, mib(matrices + 2 * (p - matrices)), 601, "MiB", 0,
            "allocated");
}

/* intelligent-machine-learning/dlrover, on 8 to 64 GPUs: between two world sizes all that is not sharded cancels out. */
static void put_atorch_rows(struct table *t, const char *run, const char *rule, const double bytes[4], const double mib_at[4])
{
    for (uint32_t i = 0; i + 1 < 4; i++) {
        char what[96];
        snprintf(what, sizeof(what), "ATorch %s, %u to %u GPUs", run, 8u << i, 16u << i);
        put_row(t, what, rule, (bytes[i] - bytes[i + 1]) / 1048576, mib_at[i] - mib_at[i + 1], "MiB", 2,
                "max allocated, difference");
    }
}

static void put_atorch(struct table *t)
{
    static const double mib_at[] = {39596.3, 34776.7, 32366.8, 31161.9};
    static struct tool_model_config c;
    if (!load(&c, "llama-2-7b"))
        return;
    const double p = (double)tool_model_config_parameters(&c);
    const double bytes[] = {12 * p / 8, 12 * p / 16, 12 * p / 32, 12 * p / 64};
    put_atorch_rows(t, "FSDP Llama-2-7B", "fp32 weights and two states: 12 P/W", bytes, mib_at);
}

/* Frozen weights stay in fp32, as FSDP2 shards them; adapters are small. */
static void put_atorch_lora(struct table *t)
{
    static const double mib_at[] = {33354.1, 31735.5, 30926.2, 30521.6};
    static struct tool_model_config c;
    if (!load(&c, "llama-2-7b"))
        return;
    const struct tool_shape shape = tool_shape_of(&c);
    double bytes[4];
    for (uint32_t i = 0; i < 4; i++) {
        const struct tool_system_settings s = {
            .layout = {.ranks = 8u << i, .tensor = 1, .pipeline = 1, .context = 1, .expert = 1, .virtual_stages = 1, .batch = 4,
                       .seq = 4096, .micro_batches = 1},
            .strategy = EO_STRATEGY_ZERO3,
            .recomputed_blocks = c.layer_count,
            .run = {.lora_rank = 8}};
        bytes[i] = (double)tool_system_stage(TOOL_SYSTEM_FSDP2, &shape, &s, 0).peak_bytes;
    }
    put_atorch_rows(t, "LoRA Llama-2-7B", "FSDP2 (not ours), adapters of rank 8 assumed", bytes, mib_at);
}

static void put_zero(struct table *t)
{
    const double p = 7.5e9, w = 64;
    static const char *const rules = "2 + 2 + 12 bytes";
    put_row(t, "ZeRO paper, 7.5B on 64, no sharding", rules, 16 * p * 1e-9, 120, "GB", 0.1, "computed by them");
    put_row(t, "ZeRO paper, stage 1", rules, round((4 * p + 12 * p / w) * 1e-8) / 10, 31.4, "GB", 0.1, "computed by them");
    put_row(t, "ZeRO paper, stage 2", rules, round((2 * p + 14 * p / w) * 1e-8) / 10, 16.6, "GB", 0.1, "computed by them");
    put_row(t, "ZeRO paper, stage 3", rules, round(16 * p / w * 1e-8) / 10, 1.9, "GB", 0.1, "computed by them");
}

/* The sixteen configurations of YaFSDP's README; no memory was published, so blocks that were recomputed are compared. */
static void put_yafsdp(struct table *t)
{
    static const struct {
        const char *model;
        uint32_t world, tokens, published;
        uint64_t peak_full, peak_cheap;
    } rows[] = {
        {"llama-2-7b", 64, 2048, 0, 13307372672, 10790790272},    {"llama-2-7b", 64, 4096, 0, 22289998976, 17256834176},
        {"llama-2-7b", 64, 8192, 0, 40255251584, 30188921984},    {"llama-2-7b", 128, 2048, 0, 12359782976, 9843200576},
        {"llama-2-7b", 128, 4096, 0, 21342409280, 16309244480},   {"llama-2-7b", 128, 8192, 0, 39307661888, 29241332288},
        {"llama-2-13b", 128, 2048, 0, 19563566032, 15620920272},  {"llama-2-13b", 128, 4096, 0, 33488786384, 25603494864},
        {"llama-34b", 128, 2048, 0, 36700370048, 29150622848},    {"llama-34b", 256, 2048, 0, 34327747136, 26777999936},
        {"llama-34b", 256, 4096, 5, 57974970944, 42875476544},    {"llama-2-70b", 256, 2048, 10, 60780210752, 46016260672},
        {"llama-2-70b", 256, 4096, 50, 106437569088, 76909668928}, {"llama-3-8b", 64, 2048, 0, 18484716672, 15531926656},
        {"llama-3-8b", 64, 4096, 0, 28405818496, 22500238464},    {"llama-3-70b", 256, 2048, 20, 63625783872, 48861833792},
    };
    static struct tool_model_config c;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!load(&c, rows[i].model))
            continue;
        const struct tool_yafsdp_estimate e =
            tool_yafsdp_estimate(&c, rows[i].world, rows[i].tokens, (uint64_t)((79.15 - 2.0) * 1073741824.0));
        char what[128];
        snprintf(what, sizeof(what), "YaFSDP %s, %u GPUs, %u tokens, peak, nothing recomputed (they: %u blocks; least by this: "
                 "%u)", rows[i].model, rows[i].world, rows[i].tokens, rows[i].published, e.least_recompute_full);
        put_row(t, what, "YaFSDP v1 (not ours)", (double)e.peak_full_bytes, (double)rows[i].peak_full, "B", 0,
                "worked out from its code");
        snprintf(what, sizeof(what), "the same, cheap recompute (least: %u)", e.least_recompute_cheap);
        put_row(t, what, "YaFSDP v1 (not ours)", (double)e.peak_cheap_bytes, (double)rows[i].peak_cheap, "B", 0,
                "worked out from its code");
    }
}

/* torchtitan prints what its allocator reserved, with what it holds and cannot use. */
static void put_torchtitan(struct table *t)
{
    static struct tool_model_config c;
    if (!load(&c, "llama-3-8b"))
        return;
    const double p = (double)tool_model_config_parameters(&c);
    put_row(t, "torchtitan Llama-3.1-8B, 8 to 128 GPUs", "16 P/W", 16 * p * (1.0 / 8 - 1.0 / 128) / 1073741824, 82.4 - 67.0,
            "GiB", -1, "reserved, difference");
    put_row(t, "torchtitan Llama-3.1-8B, 8 to 128 GPUs, compiled", "16 P/W", 16 * p * (1.0 / 8 - 1.0 / 128) / 1073741824,
            77.0 - 62.0, "GiB", -1, "reserved, difference");
}

/* FSDP2 by its own rules: pytorch/torchtitan#165 published active bytes; others what was reserved, which holds more. */
static void put_fsdp2(struct table *t)
{
    enum recompute { NONE, SELECTIVE, FULL };
    static const struct {
        const char *what, *model;
        uint32_t ranks, tensor, batch, seq;
        enum recompute recompute;
        bool active;
        double gib;
    } rows[] = {
        {"torchtitan#165 Llama-2-7B, 8 GPUs, full recompute", "llama-2-7b", 8, 1, 8, 2048, FULL, true, 22.73},
        {"torchtitan#165 Llama-2-7B, 8 GPUs, selective", "llama-2-7b", 8, 1, 8, 2048, SELECTIVE, true, 49.54},
        {"torchtitan#165 Llama-2-7B, 8 GPUs, full, compiled", "llama-2-7b", 8, 1, 8, 2048, FULL, false, 28.8},
        {"torchtitan#165 Llama-2-7B, 8 GPUs, selective, compiled", "llama-2-7b", 8, 1, 8, 2048, SELECTIVE, false, 53.83},
        {"torchtitan#165 Llama-2-7B, batch 16, selective, compiled", "llama-2-7b", 8, 1, 16, 2048, SELECTIVE, false, 88.23},
        {"torchtitan#165 Llama-2-7B, 8 GPUs, no recompute, compiled", "llama-2-7b", 8, 1, 8, 2048, NONE, false, 90.28},
        {"torchtitan Llama-3-8B, 8 GPUs, selective", "llama-3-8b", 8, 1, 2, 8192, SELECTIVE, false, 82.4},
        {"torchtitan Llama-3-8B, 8 GPUs, selective, compiled", "llama-3-8b", 8, 1, 2, 8192, SELECTIVE, false, 77.0},
        {"torchtitan Llama-3-8B, 128 GPUs, selective", "llama-3-8b", 128, 1, 2, 8192, SELECTIVE, false, 67.0},
        {"torchtitan Llama-3-8B, 128 GPUs, selective, compiled", "llama-3-8b", 128, 1, 2, 8192, SELECTIVE, false, 62.0},
        {"torchtitan Llama-3-70B, 256 GPUs, tp 8, full, compiled", "llama-3-70b", 256, 8, 16, 8192, FULL, false, 71.9},
    };
    static struct tool_model_config c;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!load(&c, rows[i].model))
            continue;
        const struct tool_shape shape = tool_shape_of(&c);
        const struct tool_system_settings s = {
            .layout = {.ranks = rows[i].ranks, .tensor = rows[i].tensor, .pipeline = 1, .context = 1, .expert = 1,
                       .virtual_stages = 1, .sequence_parallel = true, .batch = rows[i].batch, .seq = rows[i].seq,
                       .micro_batches = 1},
            .strategy = EO_STRATEGY_ZERO3,
            .run = {.selective = rows[i].recompute == SELECTIVE},
            .recomputed_blocks = rows[i].recompute == FULL ? c.layer_count : 0};
        const struct tool_system_estimate e = tool_system_estimate(TOOL_SYSTEM_FSDP2, &shape, &s);
        put_row(t, rows[i].what, "FSDP2 (not ours)", (double)e.peak_bytes / 1073741824, rows[i].gib, "GiB",
                rows[i].active ? 10 : -1, rows[i].active ? "max active" : "max reserved");
    }
}

/* NVIDIA/Megatron-LM#482 names neither the sequence nor the optimizer: 2048 tokens and the distributed one are assumed. */
static void put_megatron_482(struct table *t)
{
    static const struct {
        const char *what;
        uint32_t tensor, pipeline, batch, micro_batches;
        double gb;
    } rows[] = {{"Megatron-LM#482 Llama-2-7B, dp 4, pp 2, batch 2", 1, 2, 2, 256, 49.5},
                {"Megatron-LM#482 Llama-2-7B, tp 8, batch 4", 8, 1, 4, 32, 28.6}};
    static struct tool_model_config c;
    if (!load(&c, "llama-2-7b"))
        return;
    const struct tool_shape shape = tool_shape_of(&c);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct tool_system_settings s = {
            .layout = {.ranks = 8, .tensor = rows[i].tensor, .pipeline = rows[i].pipeline, .context = 1, .expert = 1,
                       .virtual_stages = 1, .batch = rows[i].batch, .seq = 2048, .micro_batches = rows[i].micro_batches,
                       .vocabulary_multiple = 128},
            .strategy = EO_STRATEGY_ZERO1,
            .workspace_bytes = TOOL_WORKSPACES_HOPPER};
        const struct tool_system_estimate e = tool_system_estimate(TOOL_SYSTEM_MEGATRON, &shape, &s);
        put_row(t, rows[i].what, "Megatron (not ours)", (double)e.peak_bytes * 1e-9, rows[i].gb, "GB", -1, "not stated");
    }
}

/* Tensor and pipeline parallel, ZeRO-1: only the optimizer's state is sharded. */
static void put_atorch_3d(struct table *t)
{
    static const double mib_at[] = {31132.3, 26309.4, 23901.8, 22695.7};
    static struct tool_model_config c;
    if (!load(&c, "llama-2-7b"))
        return;
    const struct tool_shape shape = tool_shape_of(&c);
    double bytes[4];
    for (uint32_t i = 0; i < 4; i++) {
        const struct tool_system_settings s = {
            .layout = {.ranks = 8u << i, .tensor = 2, .pipeline = 2, .context = 1, .expert = 1, .virtual_stages = 1, .batch = 1,
                       .seq = 4096, .micro_batches = 64},
            .strategy = EO_STRATEGY_ZERO1};
        bytes[i] = (double)tool_system_stage(TOOL_SYSTEM_MEGATRON, &shape, &s, 0).peak_bytes;
    }
    put_atorch_rows(t, "3D Llama-2-7B, tp 2, pp 2", "12 bytes of a stage, in shards", bytes, mib_at);
}

static void put_deepspeed(struct table *t)
{
    const double p = 2851e6;
    put_row(t, "DeepSpeed ZeRO-2, 2851e6 on 8, documented", "4 P + 16 P/W", (4 * p + 16 * p / 8) / 1073741824, 15.93, "GiB",
            0.05, "its estimator");
    put_row(t, "DeepSpeed ZeRO-3, 2851e6 on 8, largest leaf 32e6", "4 largest + 18 P/W",
            (4 * 32e6 + 18 * p / 8) / 1073741824, 6.09, "GiB", 0.2, "its estimator");
}

enum { MEGATRON_RUNS_MAX = 64 };

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* "median 0.8 %, most 2.9 %", of the held runs of one half. */
static void tell_errors(FILE *out, bool fitting, bool peak)
{
    double errors[MEGATRON_RUNS_MAX];
    size_t count = 0;
    struct tool_megatron_run run;
    for (uint32_t i = 0; i < MEGATRON_RUNS_MAX && tool_megatron_run_at(i, &run); i++)
        if (run.held && run.fitting == fitting)
            errors[count++] = 100 * (peak ? fabs((double)run.estimated_peak_bytes / (double)run.peak_bytes - 1)
                                          : fabs((double)run.estimated_allocated_bytes / (double)run.allocated_bytes - 1));
    qsort(errors, count, sizeof(errors[0]), compare_doubles);
    fprintf(out, "%s %.1f %% at the median, %.1f %% at most", peak ? ", peak" : "state", errors[count / 2], errors[count - 1]);
}

/* Constants of the estimate may be fitted on one half of these; the limit is that of both. */
static void put_megatron_runs(struct table *t)
{
    static const char *const rules[] = {"Megatron (not ours)", "Megatron (not ours), fitted half"};
    struct tool_megatron_run run;
    for (uint32_t i = 0; tool_megatron_run_at(i, &run); i++) {
        char what[128];
        snprintf(what, sizeof(what), "Megatron-LM %s, state", run.name);
        put_row(t, what, rules[run.fitting], mib(run.estimated_allocated_bytes), mib(run.allocated_bytes), "MiB",
                run.held ? 6 : -1, "allocated between steps, last stage");
        snprintf(what, sizeof(what), "Megatron-LM %s, peak", run.name);
        put_row(t, what, rules[run.fitting], mib(run.estimated_peak_bytes), mib(run.peak_bytes), "MiB", run.held ? 6 : -1,
                "max allocated, last stage");
    }
}

uint32_t tool_published_print(FILE *out)
{
    struct table t = {.out = out};
    fprintf(out, "| figure | by the rules of | predicted | published | unit | error | metric | "
            "|\n|---|---|---:|---:|---|---:|---|---|\n");
    put_llmc(&t);
    put_llmq(&t);
    put_atorch(&t);
    put_atorch_lora(&t);
    put_zero(&t);
    put_deepspeed(&t);
    put_yafsdp(&t);
    put_torchtitan(&t);
    put_fsdp2(&t);
    put_atorch_3d(&t);
    put_megatron_482(&t);
    put_megatron_runs(&t);
    for (int fitting = 0; fitting < 2; fitting++) {
        fprintf(out, "\nMegatron-LM, %s: ", fitting ? "the half for fitting" : "the other half");
        tell_errors(out, fitting, false);
        tell_errors(out, fitting, true);
    }
    fprintf(out, "\n\n");
    tool_published_steps_print(out);
    tool_published_choices_print(out);
    return t.wrong;
}
