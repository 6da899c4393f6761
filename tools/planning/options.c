/* SPDX-License-Identifier: MIT */
#include "tools/planning/options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tools/shared/arguments.h"

void tool_option_slots(const struct argp_state *state, const char *text, struct tool_plan_settings *s)
{
    char first[64], second[64];
    tool_option_pair(state, "slots", text, "two numbers: gather buffers, gradient buffers (such as 2,2)", first, second,
                     sizeof(first));
    s->gather_slots = (uint32_t)tool_option_count(state, "slots G", first, 1, 64);
    s->gradient_slots = (uint32_t)tool_option_count(state, "slots D", second, 1, 64);
}

void tool_option_budget(const struct argp_state *state, const char *text, uint64_t *bytes, uint64_t *host)
{
    char first[64], second[64];
    const bool has_host = strchr(text, ',') != NULL;
    if (has_host)
        tool_option_pair(state, "budget", text, "bytes of the GPU and of its host (such as 80GB,128GB)", first, second, sizeof(first));
    *bytes = tool_option_bytes(state, "budget", has_host ? first : text, true);
    *host = has_host ? tool_option_bytes(state, "budget", second, true) : 0;
    if (!*bytes || (has_host && !*host))
        argp_error(state, "--budget is 0; give bytes above 0");
}

void tool_option_check_budget(const struct argp_state *state, bool on_gpu, uint64_t host)
{
    if (on_gpu && !host)
        argp_error(state, "--budget of GPUs is DEVICE,HOST: the memory of a rank on its GPU and on the host (such as 80GB,128GB)");
    if (!on_gpu && host)
        argp_error(state, "--budget of CPUs is one size: there is no other memory than the host's");
}

bool tool_option_bucketing(const struct argp_state *state, const char *text, struct tool_plan_settings *s)
{
    char first[64], second[64];
    s->gather_run = s->gradient_run = 0;
    if (strcmp(text, "auto") == 0)
        return true;
    tool_option_pair(state, "bucketing", text, "auto, or two numbers: blocks that one all-gather brings, and that one "
                     "reduce-scatter reduces (such as 4,4)", first, second, sizeof(first));
    s->gather_run = (uint32_t)tool_option_count(state, "bucketing G", first, 1, 64);
    s->gradient_run = (uint32_t)tool_option_count(state, "bucketing R", second, 1, 64);
    return false;
}

static uint32_t number_or_all(const struct argp_state *state, const char *name, const char *text)
{
    return strcmp(text, "all") == 0 ? UINT32_MAX : (uint32_t)tool_option_count(state, name, text, 0, 1 << 20);
}

void tool_option_offload_layers(const struct argp_state *state, const char *text, struct tool_plan_settings *s)
{
    s->offload_layers = number_or_all(state, "offload-layers", text);
}

void tool_option_offload_activations(const struct argp_state *state, const char *text, struct tool_plan_settings *s)
{
    s->offload_activations = number_or_all(state, "offload-activations", text);
}

void tool_option_check_offload(const struct argp_state *state, const struct tool_plan_settings *s)
{
    if (!s->offload_layers && (s->offload_slots || s->offload_gradients || s->late_updates))
        argp_error(state, "--%s needs --offload-layers N, above 0",
                   s->offload_slots       ? "offload-slots"
                   : s->offload_gradients ? "offload-gradients"
                                          : "late-updates");
    if (s->offload_layers && s->optimizer == EO_OPTIMIZER_MUON)
        argp_error(state, "--offload-layers with --optimizer muon is not possible yet; leave one of them out");
    if (s->offload_gradients && s->micro_batches > 1)
        argp_error(state, "--offload-gradients needs --micro-batches 1: gradients are added up over several");
    if (s->offload_gradients && s->gradient_run > 1)
        argp_error(state, "--bucketing %u,%u with --offload-gradients: they leave one by one; give --bucketing %u,1",
                   s->gather_run, s->gradient_run, s->gather_run);
}

void tool_option_recompute(const struct argp_state *state, const char *text, struct tool_plan_settings *s)
{
    s->recompute_blocks = 0;
    if (strcmp(text, "none") == 0) {
        s->recompute = EO_RECOMPUTE_NONE;
    } else if (strcmp(text, "cheap") == 0) {
        s->recompute = EO_RECOMPUTE_CHEAP;
    } else if (strcmp(text, "all") == 0) {
        s->recompute = EO_RECOMPUTE_BLOCKS;
        s->recompute_blocks = UINT32_MAX;
    } else if (isdigit((unsigned char)text[0])) {
        s->recompute_blocks = (uint32_t)tool_option_count(state, "recompute", text, 0, 1 << 20);
        s->recompute = s->recompute_blocks ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_NONE;
    } else {
        argp_error(state, "--recompute is '%.60s'; give none, cheap, all, or a number of blocks", text);
    }
}

void tool_option_granularity(const struct argp_state *state, const char *text, struct tool_plan_settings *s)
{
    s->half_blocks = strcmp(text, "half") == 0;
    s->unit_blocks = 0;
    s->unit_bytes = 0;
    if (strncmp(text, "blocks:", 7) == 0) {
        s->unit_blocks = (uint32_t)tool_option_count(state, "granularity blocks:N", text + 7, 1, 1 << 20);
    } else if (strncmp(text, "size:", 5) == 0) {
        s->unit_bytes = tool_option_bytes(state, "granularity size:BYTES", text + 5, true);
        if (!s->unit_bytes)
            argp_error(state, "--granularity size:0; give bytes above 0");
    } else if (!s->half_blocks && strcmp(text, "block") != 0) {
        argp_error(state, "--granularity is '%.60s'; give block, half, blocks:N or size:BYTES", text);
    }
}

eo_dtype tool_option_dtype(const struct argp_state *state, const char *name, const char *text)
{
    return tool_option_choice(state, name, text, "fp32", "bf16") ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
}

/* Files of Phi-3 have several layers in one, by another name. */
static void take_targets(const struct argp_state *state, const char *text, struct tool_lora *lora)
{
    static const char *const fused[][2] = {{"qkv_proj", "q_proj+k_proj+v_proj"}, {"gate_up_proj", "gate_proj+up_proj"}};
    size_t used = 0;
    for (const char *next = text; next; next = strchr(next, '+') ? strchr(next, '+') + 1 : NULL) {
        const int length = (int)strcspn(next, "+");
        char name[TOOL_LORA_TARGETS_MAX];
        snprintf(name, sizeof(name), "%.*s", length, next);
        if (length == 0)
            argp_error(state, "--lora targets has an empty name");
        const char *layers = strcmp(name, fused[0][0]) == 0 ? fused[0][1] : strcmp(name, fused[1][0]) == 0 ? fused[1][1] : name;
        used += (size_t)snprintf(lora->targets + used, sizeof(lora->targets) - used, "%s%s", used ? "+" : "", layers);
        if (used >= sizeof(lora->targets))
            argp_error(state, "--lora targets has more than %d characters; give all-linear, or fewer names", TOOL_LORA_TARGETS_MAX - 1);
    }
}

static void take_lora_part(const struct argp_state *state, const char *part, struct tool_lora *lora)
{
    const char *value = strchr(part, '=');
    if (!value || strncmp(part, "r=", 2) == 0) {
        lora->rank = (uint32_t)tool_option_count(state, "lora r", value ? value + 1 : part, 1, 1 << 16);
    } else if (strncmp(part, "alpha=", 6) == 0) {
        lora->alpha = tool_option_real(state, "lora alpha", value + 1, 1e-6, 1e6);
    } else if (strncmp(part, "targets=", 8) == 0 && value[1] != '\0') {
        take_targets(state, value + 1, lora);
    } else {
        argp_error(state, "--lora has '%.60s'; give a rank, or r=RANK,alpha=X,targets=NAME+NAME (such as "
                   "r=16,alpha=32,targets=q_proj+v_proj)", part);
    }
}

void tool_option_lora(const struct argp_state *state, const char *text, struct tool_lora *lora)
{
    char part[TOOL_LORA_TARGETS_MAX + 16];
    uint32_t given = 0; /* bits of first letters */
    *lora = (struct tool_lora){.rank = 0};
    for (const char *next = text; next; next = strchr(next, ',') ? strchr(next, ',') + 1 : NULL) {
        const size_t length = strcspn(next, ",");
        snprintf(part, sizeof(part), "%.*s", (int)(length < sizeof(part) ? length : sizeof(part) - 1), next);
        take_lora_part(state, part, lora);
        const uint32_t bit = 1u << ((strchr(part, '=') ? part[0] : 'r') & 31);
        if (given & bit)
            argp_error(state, "--lora has '%.60s' after another", part);
        given |= bit;
    }
    if (!lora->rank)
        argp_error(state, "--lora '%.60s' has no rank; give r=RANK", text);
}

double tool_option_ema(const struct argp_state *state, const char *text)
{
    const double decay = tool_option_real(state, "ema", text, 0, 0.9999999);
    if (!(decay > 0))
        argp_error(state, "--ema %s: the decay lies between 0 and 1, such as 0.999; without an average leave it out", text);
    return decay;
}

bool tool_option_gather(const struct argp_state *state, const char *text)
{
    return tool_option_choice(state, "gather", text, "dtype", "float8");
}

bool tool_option_products(const struct argp_state *state, const char *text)
{
    return tool_option_choice(state, "products", text, "dtype", "float8");
}

bool tool_option_norms(const struct argp_state *state, const char *text)
{
    return tool_option_choice(state, "norms", text, "dtype", "fp32");
}

bool tool_option_frozen(const struct argp_state *state, const char *text)
{
    return tool_option_choice(state, "frozen", text, "dtype", "mxfp8");
}

void tool_option_check_frozen(const struct argp_state *state, const struct tool_plan_settings *s)
{
    if (s->float8_frozen && !s->lora.rank)
        argp_error(state, "--frozen mxfp8: nothing is frozen; give --lora");
}

void tool_option_check_lora(const struct argp_state *state, const struct tool_plan_settings *s)
{
    if (s->lora.rank && s->optimizer == EO_OPTIMIZER_MUON)
        argp_error(state, "--lora with --optimizer muon: Muon moves matrices of the blocks, which are frozen, and AdamW all "
                          "else; give --optimizer adamw");
}

void tool_option_check_products(const struct argp_state *state, const struct tool_plan_settings *s, const char *device_option)
{
    if (s->float8_products && (s->dtype != EO_DTYPE_BF16 || strcmp(s->device, "cuda") != 0))
        argp_error(state, "--products float8 needs %s and --dtype bf16: float8 products run on GPUs alone", device_option);
}

void tool_option_check_gather(const struct argp_state *state, const struct tool_plan_settings *s)
{
    if (!s->float8_gather)
        return;
    if (s->dtype != EO_DTYPE_BF16)
        argp_error(state, "--gather float8 needs --dtype bf16: float8 weights are widened to it");
    if (s->strategy == EO_STRATEGY_DDP || (s->strategy == EO_STRATEGY_HSDP && s->shard_group == 1) || s->ranks == 1)
        argp_error(state, "--gather float8 has no effect: with --%s no weights are gathered; leave it out",
                   s->ranks == 1 ? "ranks 1" : "strategy ddp or hsdp:1");
}
