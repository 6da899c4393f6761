/* SPDX-License-Identifier: MIT */
#include "tools/memplan/systems/systems.h"

#include <stdlib.h>
#include <string.h>

#include "tools/memplan/systems/state.h"

enum { STRATEGY_DDP = 1, STRATEGY_ZERO1 = 2, STRATEGY_ZERO2 = 4, STRATEGY_ZERO3 = 8 };

/* What a system can do. */
static const struct {
    const char *name, *meaning, *error, *strategies;
    uint32_t strategy_bits;
    bool tensor, pipeline, experts, modules /* recomputed one by one */, selective, nf4;
    enum tool_offload offload_most;
} systems[TOOL_SYSTEM_COUNT] = {
    {"evenodd", "device: the arena, to the byte, and what lies outside it", "none: a run reserves the plan", "", 15,
     true, true, true, false, false, false, TOOL_OFFLOAD_NONE},
    {"megatron", "allocated: torch.cuda.max_memory_allocated of the fullest rank; the allocator reserves more",
     "on runs of its own tests: peak 0.9 % at the median, 4.4 % at most; state 1.7 % (memplan --published)",
     "zero1 (its distributed optimizer) or ddp", STRATEGY_DDP | STRATEGY_ZERO1, true, true, true, true, true, false,
     TOOL_OFFLOAD_OPTIMIZER},
    {"megatron-fsdp", "allocated: torch.cuda.max_memory_allocated; the allocator reserves more",
     "on one run of its own tests: peak and state below 1 % (memplan --published)", "ddp, zero1, zero2 or zero3",
     STRATEGY_DDP | STRATEGY_ZERO1 | STRATEGY_ZERO2 | STRATEGY_ZERO3, true, false, true, true, true, false, TOOL_OFFLOAD_NONE},
    {"fsdp2", "active: max_active of PyTorch's allocator; torchtitan's runs reserved up to 1.32 times as much",
     "4 and 6 % below two published runs; nine others reserved 0.99 to 1.32 times it (memplan --published)", "zero3",
     STRATEGY_ZERO3, true, true, false, false, true, true, TOOL_OFFLOAD_WEIGHTS},
    {"deepspeed", "allocated, with the default sizes of its buckets", "no published run is held against it",
     "ddp, zero1, zero2 or zero3", STRATEGY_DDP | STRATEGY_ZERO1 | STRATEGY_ZERO2 | STRATEGY_ZERO3, false, false, false, false,
     false, true, TOOL_OFFLOAD_WEIGHTS},
};

static const char *const part_names[TOOL_SYSTEM_PART_COUNT] = {"weights",     "gradients", "optimizer", "buffers",
                                                               "activations", "head",      "workspaces"};
static const char *const precision_names[TOOL_PRECISION_COUNT] = {"bf16", "fp16", "fp8"};
static const char *const kind_names[TOOL_STATE_COUNT] = {"adamw", "adamw8bit", "muon", "sgd", "lion"};
static const char *const module_names[TOOL_REMAKE_COUNT] = {"core_attn", "layernorm", "mlp", "moe", "moe_act"};

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

const char *tool_precision_name(enum tool_precision precision)
{
    return precision_names[precision];
}

const char *tool_state_kind_name(enum tool_state_kind kind)
{
    return kind_names[kind];
}

/* --- words -------------------------------------------------------------------------------------------------------- */

static int index_of(const char *text, size_t length, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && strncmp(text, names[i], length) == 0)
            return i;
    return -1;
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

bool tool_state_kind_parse(const char *text, enum tool_state_kind *out)
{
    const int i = index_of(text, strlen(text), kind_names, TOOL_STATE_COUNT);
    *out = i < 0 ? TOOL_STATE_ADAMW : (enum tool_state_kind)i;
    return i >= 0;
}

static bool parse_modules(const char *text, uint32_t *bits)
{
    *bits = 0;
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ",");
        const int i = index_of(at, length, module_names, TOOL_REMAKE_COUNT);
        if (i < 0)
            return false;
        *bits |= 1u << i;
        at += length;
        if (*at == '\0')
            return true;
    }
}

bool tool_system_parse_recompute(const char *text, struct tool_system_run *out)
{
    static const char *const methods[] = {"uniform:", "block:"};
    out->selective = strcmp(text, "selective") == 0;
    out->recompute_unit = out->recomputed_of_chunk = out->recomputed_modules = 0;
    for (int i = 0; i < 2; i++) {
        const size_t length = strlen(methods[i]);
        if (strncmp(text, methods[i], length) != 0)
            continue;
        char *end;
        const unsigned long n = strtoul(text + length, &end, 10);
        *(i == 0 ? &out->recompute_unit : &out->recomputed_of_chunk) = (uint32_t)n;
        return text[length] >= '1' && text[length] <= '9' && *end == '\0' && n <= 1 << 20;
    }
    return out->selective || parse_modules(text, &out->recomputed_modules);
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

static eo_status check_run(enum tool_system system, const struct tool_system_settings *settings,
                           const struct tool_shape *shape, struct tool_problem *problem)
{
    const struct tool_system_run *r = &settings->run;
    const char *name = systems[system].name;
    const bool by_expert = r->recomputed_modules & (1u << TOOL_REMAKE_EXPERTS | 1u << TOOL_REMAKE_EXPERT_ACTIVATION);
    if ((r->recomputed_modules || r->recompute_unit || r->recomputed_of_chunk) && !systems[system].modules)
        return tool_problem_set(problem, EO_ERR_INVALID, "--recompute of modules, block:N and uniform:N are Megatron's; --system "
                                "%s takes none, %sall or a number of blocks", name, systems[system].selective ? "selective, " : "");
    if (by_expert && shape->experts == 0)
        return tool_problem_set(problem, EO_ERR_INVALID, "--recompute moe: the model has no experts");
    if (r->selective && !systems[system].selective)
        return tool_problem_set(problem, EO_ERR_INVALID, "--recompute selective: --system %s takes none, all or a number", name);
    if (r->offload > systems[system].offload_most)
        return tool_problem_set(problem, EO_ERR_INVALID, "--offload: --system %s %s", name,
                                systems[system].offload_most ? "takes optimizer alone" : "is planned without offloading");
    if (r->offload == TOOL_OFFLOAD_OPTIMIZER && system == TOOL_SYSTEM_FSDP2)
        return tool_problem_set(problem, EO_ERR_INVALID, "--offload optimizer: FSDP2's policy moves all state; give weights");
    if (r->offload && system == TOOL_SYSTEM_DEEPSPEED &&
        settings->strategy != EO_STRATEGY_ZERO3 && (r->offload == TOOL_OFFLOAD_WEIGHTS || settings->strategy == EO_STRATEGY_DDP))
        return tool_problem_set(problem, EO_ERR_INVALID, "--offload: DeepSpeed's %s; give --strategy zero3",
                                r->offload == TOOL_OFFLOAD_WEIGHTS ? "stage 3 alone moves weights" : "ddp moves nothing");
    if (r->to_disk && (system != TOOL_SYSTEM_DEEPSPEED || settings->strategy != EO_STRATEGY_ZERO3))
        return tool_problem_set(problem, EO_ERR_INVALID, "--offload to disk: DeepSpeed's stage 3 alone does; give --system "
                                "deepspeed --strategy zero3");
    if (r->nf4 && (r->lora_rank == 0 || !systems[system].nf4))
        return tool_problem_set(problem, EO_ERR_INVALID, r->lora_rank ? "--frozen nf4: --system %s keeps frozen weights in bf16"
                                : "--frozen nf4: nothing is frozen with --system %s; give --lora RANK", name);
    if (r->lora_rank && system == TOOL_SYSTEM_MEGATRON_FSDP)
        return tool_problem_set(problem, EO_ERR_INVALID, "--lora: --system megatron-fsdp is planned without adapters");
    if (r->precision == TOOL_PRECISION_FP16 && system == TOOL_SYSTEM_MEGATRON_FSDP)
        return tool_problem_set(problem, EO_ERR_INVALID, "--dtype fp16: --system megatron-fsdp is planned in bf16 and fp8");
    if (r->precision == TOOL_PRECISION_FP8 && system == TOOL_SYSTEM_DEEPSPEED)
        return tool_problem_set(problem, EO_ERR_INVALID, "--dtype fp8: --system deepspeed is planned in bf16 and fp16");
    if (r->float8_weights && r->precision != TOOL_PRECISION_FP8 && system != TOOL_SYSTEM_EVENODD)
        return tool_problem_set(problem, EO_ERR_INVALID, "--gather float8: with --system %s give --dtype fp8", name);
    return EO_OK;
}

eo_status tool_system_check(enum tool_system system, const struct tool_system_settings *settings,
                            const struct tool_shape *shape, struct tool_problem *problem)
{
    static const uint32_t bits[EO_STRATEGY_COUNT] = {[EO_STRATEGY_DDP] = STRATEGY_DDP,
                                                     [EO_STRATEGY_ZERO1] = STRATEGY_ZERO1,
                                                     [EO_STRATEGY_ZERO2] = STRATEGY_ZERO2,
                                                     [EO_STRATEGY_ZERO3] = STRATEGY_ZERO3};
    const struct tool_layout *l = &settings->layout;
    const char *name = systems[system].name;
    if ((l->tensor > 1 || l->context > 1 || l->sequence_parallel) && !systems[system].tensor)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--system %s is planned for data parallelism alone; leave --tp, --pp, --cp, --ep and "
                                "--sequence-parallel out, or give --system megatron or fsdp2", name);
    if (l->pipeline > 1 && !systems[system].pipeline)
        return tool_problem_set(problem, EO_ERR_INVALID, "--pp: --system %s is planned without a pipeline", name);
    if ((l->expert > 1 || l->expert_tensor) && !systems[system].experts)
        return tool_problem_set(problem, EO_ERR_INVALID, "--ep: --system %s is planned without expert parallelism", name);
    if (system != TOOL_SYSTEM_EVENODD && !(systems[system].strategy_bits & bits[settings->strategy]))
        return tool_problem_set(problem, EO_ERR_INVALID, "--strategy: --system %s takes %s", name, systems[system].strategies);
    EO_TRY(check_run(system, settings, shape, problem));
    EO_TRY(tool_layout_check(l, shape, problem));
    const uint64_t chunk = shape->layers / ((uint64_t)l->pipeline * l->virtual_stages);
    if (settings->run.recompute_unit > chunk)
        return tool_problem_set(problem, EO_ERR_INVALID, "--recompute uniform:%u: a stage's chunk has only %llu blocks",
                                settings->run.recompute_unit, (unsigned long long)chunk);
    return EO_OK;
}

/* --- estimates ---------------------------------------------------------------------------------------------------- */

struct tool_system_estimate tool_system_stage(enum tool_system system, const struct tool_shape *shape,
                                              const struct tool_system_settings *settings, uint32_t stage)
{
    switch ((int)system) {
    case TOOL_SYSTEM_MEGATRON: return tool_estimate_megatron(shape, settings, stage);
    case TOOL_SYSTEM_MEGATRON_FSDP: return tool_estimate_megatron_fsdp(shape, settings);
    case TOOL_SYSTEM_FSDP2: return tool_estimate_fsdp2(shape, settings, stage);
    default: return tool_estimate_deepspeed(shape, settings);
    }
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
