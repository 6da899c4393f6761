/* SPDX-License-Identifier: MIT */
#include "tools/planning/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- parameters --------------------------------------------------------------------------------------------------- */

/* A GPU wants larger products than a CPU's caches do. In bf16 a CPU may multiply so fast that reading the weights again for each
 * piece costs more. */
static uint32_t head_chunks_for(const struct tool_plan_settings *s, uint32_t vocabulary, bool on_gpu)
{
    const uint64_t tokens = (uint64_t)s->batch * s->seq;
    const uint64_t logits_bytes = tokens * vocabulary * eo_dtype_bytes(s->dtype);
    const uint64_t chunk_bytes = (uint64_t)(on_gpu ? 512 : s->dtype == EO_DTYPE_BF16 ? 64 : 32) << 20;
    const uint64_t chunks = (logits_bytes + chunk_bytes - 1) / chunk_bytes;
    return (uint32_t)(chunks < 1 ? 1 : chunks < tokens ? chunks : tokens);
}

/* Elements of a block: what a model of two has more than one of one. 0: such a model cannot be. */
static uint64_t block_elements(const eo_transformer_config *config)
{
    uint64_t counts[2] = {0, 0};
    for (uint32_t i = 0; i < 2; i++) {
        eo_transformer *transformer = NULL;
        eo_transformer_params params = {.config = *config, .seq = 1};
        params.config.layer_count = i + 1;
        if (eo_transformer_create(&transformer, &params) >= 0)
            counts[i] = eo_model_element_count(eo_transformer_model(transformer));
        eo_transformer_destroy(&transformer);
    }
    return counts[0] && counts[1] > counts[0] ? counts[1] - counts[0] : 0;
}

/* Whole blocks until their weights, as they are gathered, take so many bytes; at most all. */
static uint32_t unit_blocks_for(const struct tool_plan_settings *s, const eo_transformer_config *config)
{
    const uint64_t bytes = block_elements(config) * eo_dtype_bytes(s->dtype);
    const uint64_t blocks = bytes ? (s->unit_bytes + bytes - 1) / bytes : 1;
    return (uint32_t)(blocks < 1 ? 1 : blocks < config->layer_count ? blocks : config->layer_count);
}

void tool_plan_settings_complete(struct tool_plan_settings *s, const eo_transformer_config *config, uint32_t seq_most,
                                 bool on_gpu)
{
    if (s->seq == 0)
        s->seq = config->context < seq_most ? config->context : seq_most;
    if (s->head_chunks == 0)
        s->head_chunks = head_chunks_for(s, config->vocabulary, on_gpu);
    if (s->unit_bytes)
        s->unit_blocks = unit_blocks_for(s, config);
}

eo_status tool_plan_settings_check(const struct tool_plan_settings *s, uint32_t block_count, bool tied_head,
                                   struct tool_problem *problem)
{
    if (s->gradients_apart && (!tied_head || s->lora.rank))
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--gradients-apart is for a tied embedding that learns: %s; leave it out",
                                tied_head ? "with --lora it is frozen" : "the head has weights of its own");
    if (s->recompute == EO_RECOMPUTE_BLOCKS && s->recompute_blocks > block_count && s->recompute_blocks != UINT32_MAX)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--recompute %u: the model has only %u blocks; give at most that many, or all",
                                s->recompute_blocks, block_count);
    if (s->unit_blocks > block_count)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--granularity blocks:%u: the model has only %u blocks; give at most that many", s->unit_blocks,
                                block_count);
    if (s->head_chunks > (uint64_t)s->batch * s->seq)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--head-chunks %u: a micro-batch has only %u tokens (--batch x --seq); give at most that many",
                                s->head_chunks, s->batch * s->seq);
    return EO_OK;
}

struct tool_plan_params tool_plan_params_of(const struct tool_plan_settings *s, const eo_transformer_config *config,
                                            const eo_log *log)
{
    return (struct tool_plan_params){
        .transformer = {.config = *config,
                        .batch = s->batch,
                        .seq = s->seq,
                        .recompute = s->recompute,
                        .recompute_blocks = s->recompute_blocks,
                        .head_chunks = s->head_chunks,
                        .thread_count = s->threads,
                        .half_blocks = s->half_blocks,
                        .unit_blocks = s->unit_blocks,
                        .dtype = s->dtype,
                        .reduce_dtype = s->reduce_dtype,
                        .device = s->device,
                        .token_slots = s->graph ? s->micro_batches : 1,
                        .dropout = (float)s->dropout,
                        .float8_products = s->float8_products,
                        .fp32_norms = s->fp32_norms,
                        .lora = {.rank = s->lora.rank, .alpha = (float)s->lora.alpha, .targets = s->lora.targets},
                        .packed = s->packed,
                        .log = log},
        .plan = {.rank_count = s->ranks,
                 .micro_batches = s->micro_batches,
                 .gather_slots = s->gather_slots,
                 .gradient_slots = s->gradient_slots,
                 .gather_run = s->gather_run,
                 .gradient_run = s->gradient_run,
                 .dtype = s->dtype,
                 .reduce_dtype = s->reduce_dtype,
                 .offload_layers = s->offload_layers,
                 .offload_slots = s->offload_slots,
                 .offload_gradients = s->offload_gradients,
                 .late_updates = s->late_updates,
                 .offload_activations = s->offload_activations,
                 .no_prefetch = s->no_prefetch,
                 .float8_gather = s->float8_gather,
                 .ema = s->ema_decay > 0,
                 .optimizer = s->optimizer,
                 .norms_beside = s->norms_beside,
                 .norm_parts = s->norm_parts,
                 .gradients_apart = s->gradients_apart,
                 .separate_evict_stream = strcmp(s->device, "cuda") == 0 && (s->offload_layers || s->offload_activations),
                 .float8_frozen = s->float8_frozen,
                 .strategy = s->strategy,
                 .shard_group = s->strategy == EO_STRATEGY_HSDP ? s->shard_group : 0,
                 .log = log},
    };
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

bool tool_strategy_parse(const char *text, struct tool_plan_settings *s)
{
    s->shard_group = 0;
    for (int k = 0; k < EO_STRATEGY_COUNT; k++) {
        s->strategy = (eo_strategy)k;
        if (s->strategy != EO_STRATEGY_HSDP && strcmp(text, eo_strategy_name(s->strategy)) == 0)
            return true;
    }
    char *end;
    const bool is_hsdp = strncmp(text, "hsdp:", 5) == 0 && isdigit((unsigned char)text[5]);
    const unsigned long size = is_hsdp ? strtoul(text + 5, &end, 10) : 0;
    s->strategy = EO_STRATEGY_HSDP;
    s->shard_group = (uint32_t)size;
    return size >= 1 && size <= TOOL_PLAN_RANKS_MAX && *end == '\0';
}

bool tool_optimizer_parse(const char *text, eo_optimizer *out)
{
    for (int i = 0; i < EO_OPTIMIZER_COUNT; i++)
        if (strcmp(text, eo_optimizer_name((eo_optimizer)i)) == 0) {
            *out = (eo_optimizer)i;
            return true;
        }
    return false;
}

double tool_update_bytes(const struct tool_plan_settings *settings)
{
    static const double state_bytes[EO_OPTIMIZER_COUNT] = {8, 4, 4, 2 + 2 * 4. / 256, 8};
    const double ema_bytes =
        settings->ema_decay > 0 ? 4 + 2 * 4 : 0; /* a pass of its own: weights are read, the average moves */
    return 4 + 2 * (4 + state_bytes[settings->optimizer]) + ema_bytes;
}

void tool_strategy_text(eo_strategy strategy, uint32_t group, char *text, size_t bytes)
{
    if (strategy == EO_STRATEGY_HSDP)
        snprintf(text, bytes, "%s:%u", eo_strategy_name(strategy), group);
    else
        snprintf(text, bytes, "%s", eo_strategy_name(strategy));
}

const char *tool_gather_text(const struct tool_plan_settings *s)
{
    return eo_dtype_name(s->float8_gather ? EO_DTYPE_FLOAT8 : s->dtype);
}

const char *tool_frozen_text(const struct tool_plan_settings *s)
{
    return s->float8_frozen ? "mxfp8" : eo_dtype_name(s->dtype);
}

const char *tool_product_text(const struct tool_plan_settings *s)
{
    return eo_dtype_name(s->float8_products ? EO_DTYPE_FLOAT8 : s->dtype);
}

const char *tool_granularity_text(const struct tool_plan_settings *s, char text[TOOL_GRANULARITY_TEXT_MAX])
{
    if (s->unit_blocks > 1)
        snprintf(text, TOOL_GRANULARITY_TEXT_MAX, "blocks:%u", s->unit_blocks);
    else
        snprintf(text, TOOL_GRANULARITY_TEXT_MAX, "%s", s->half_blocks ? "half" : "block");
    return text;
}

const char *tool_lora_text(const struct tool_lora *lora, char text[TOOL_LORA_TEXT_MAX])
{
    text[0] = '\0';
    if (lora->rank)
        snprintf(text, TOOL_LORA_TEXT_MAX, "r=%u,alpha=%.9g,targets=%s", lora->rank, lora->alpha > 0 ? lora->alpha : 2.0 * lora->rank,
                 lora->targets[0] ? lora->targets : "all-linear");
    return text;
}

bool tool_recomputes_gelu(const eo_transformer_config *config, const struct tool_plan_settings *settings)
{
    return config->family == EO_FAMILY_GPT2 && strcmp(settings->device, "cpu") != 0;
}

void tool_recompute_text(const struct tool_plan_settings *s, char *text, size_t bytes)
{
    if (s->recompute == EO_RECOMPUTE_BLOCKS && s->recompute_blocks == UINT32_MAX)
        snprintf(text, bytes, "all");
    else if (s->recompute == EO_RECOMPUTE_BLOCKS)
        snprintf(text, bytes, "%u", s->recompute_blocks);
    else
        snprintf(text, bytes, "%s", s->recompute == EO_RECOMPUTE_CHEAP ? "cheap" : "none");
}

const char *tool_plan_warning(const char *warning, char *text, size_t bytes)
{
    static const char field[] = "offload_activations";
    const bool is_field = strncmp(warning, field, strlen(field)) == 0;
    snprintf(text, bytes, "%s%s", is_field ? "--offload-activations" : "", warning + (is_field ? strlen(field) : 0));
    return text;
}

void tool_plan_settings_words(const struct tool_plan_settings *s, char text[TOOL_PLAN_WORDS_MAX])
{
    char strategy[32], recompute[32], offload[64] = "", layers[16] = "all", ema[32] = "", dropout[32] = "", bucketing[48] = "";
    char optimizer[32] = "", activations[40] = "";
    char granularity[TOOL_GRANULARITY_TEXT_MAX], adapters[TOOL_LORA_TEXT_MAX], lora[TOOL_LORA_TEXT_MAX + 32] = "";
    if (s->lora.rank)
        snprintf(lora, sizeof(lora), " --lora %s%s", tool_lora_text(&s->lora, adapters), s->float8_frozen ? " --frozen mxfp8" : "");
    if (s->offload_layers != UINT32_MAX)
        snprintf(layers, sizeof(layers), "%u", s->offload_layers);
    if (s->offload_layers)
        snprintf(offload, sizeof(offload), " --offload-layers %s --offload-slots %u", layers,
                 s->offload_slots ? s->offload_slots : 2);
    if (s->offload_activations == UINT32_MAX)
        snprintf(activations, sizeof(activations), " --offload-activations all");
    else if (s->offload_activations)
        snprintf(activations, sizeof(activations), " --offload-activations %u", s->offload_activations);
    if (s->ema_decay > 0)
        snprintf(ema, sizeof(ema), " --ema %.9g", s->ema_decay);
    if (s->optimizer)
        snprintf(optimizer, sizeof(optimizer), " --optimizer %s", eo_optimizer_name(s->optimizer));
    if (s->dropout > 0)
        snprintf(dropout, sizeof(dropout), " --dropout %.9g", s->dropout);
    if (s->gather_run > 1 || s->gradient_run > 1)
        snprintf(bucketing, sizeof(bucketing), " --bucketing %u,%u", s->gather_run ? s->gather_run : 1,
                 s->gradient_run ? s->gradient_run : 1);
    tool_strategy_text(s->strategy, s->shard_group, strategy, sizeof(strategy));
    tool_recompute_text(s, recompute, sizeof(recompute));
    snprintf(text, TOOL_PLAN_WORDS_MAX,
             "--ranks %u --strategy %s --batch %u --seq %u --micro-batches %u --dtype %s --reduce %s --slots %u,%u "
             "--recompute %s --granularity %s --head-chunks %u --kernels %s --threads %u%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s",
             s->ranks, strategy, s->batch, s->seq, s->micro_batches, eo_dtype_name(s->dtype), eo_dtype_name(s->reduce_dtype),
             s->gather_slots, s->gradient_slots, recompute, tool_granularity_text(s, granularity), s->head_chunks, s->device,
             s->threads, lora, dropout, optimizer, ema, bucketing, offload, activations,
             s->offload_gradients ? " --offload-gradients" : "", s->late_updates ? " --late-updates" : "",
             s->graph ? " --graph" : "", s->no_prefetch ? " --no-prefetch" : "", s->norms_beside ? " --norms-beside" : "",
             s->gradients_apart ? " --gradients-apart" : "", s->norm_parts ? " --log-norms" : "",
             s->float8_gather ? " --gather float8" : "", s->float8_products ? " --products float8" : "",
             s->fp32_norms ? " --norms fp32" : "", s->packed ? " --pack documents" : "");
}
