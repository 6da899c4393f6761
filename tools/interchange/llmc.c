/* SPDX-License-Identifier: MIT */
#include "tools/interchange/llmc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/interchange/foreign.h"
#include "tools/shared/open_file.h"

enum {
    CHECKPOINT_MAGIC = 20240326,
    CHECKPOINT_VERSION_FP32 = 3,
    CHECKPOINT_VERSION_BF16 = 5,
    CHECKPOINT_PADDING = 128, /* of the vocabulary, as llm.c writes it */
    CHECKPOINT_LAYERS_MAX = 1 << 12,
    CHECKPOINT_WIDTH_MAX = 1 << 16,
    CHECKPOINT_VOCABULARY_MAX = 1 << 20,
    CHECKPOINT_CONTEXT_MAX = 1 << 20,
};
/* 12 h h L is the largest term: no sum below can wrap. */
_Static_assert((uint64_t)CHECKPOINT_LAYERS_MAX * CHECKPOINT_WIDTH_MAX * CHECKPOINT_WIDTH_MAX <= UINT64_MAX / 4096,
               "the size of a checkpoint can overflow");

static const float llmc_eps = 1e-5F; /* of its norms: fixed in llm.c */

/* The kinds in the order of the file: name, and how many values a layer has in terms of the width h. */
static const struct kind {
    const char *name;
    uint32_t squares, widths; /* squares x h x h + widths x h */
} kinds[] = {
    {"ln_1.weight", 0, 1},        {"ln_1.bias", 0, 1},
    {"attn.c_attn.weight", 3, 0}, {"attn.c_attn.bias", 0, 3},
    {"attn.c_proj.weight", 1, 0}, {"attn.c_proj.bias", 0, 1},
    {"ln_2.weight", 0, 1},        {"ln_2.bias", 0, 1},
    {"mlp.c_fc.weight", 4, 0},    {"mlp.c_fc.bias", 0, 4},
    {"mlp.c_proj.weight", 4, 0},  {"mlp.c_proj.bias", 0, 1},
};
enum { KIND_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

static uint64_t kind_count(const struct tool_llmc *llmc, const struct kind *kind)
{
    const uint64_t h = llmc->config.width;
    return (kind->squares * h + kind->widths) * h;
}

static uint64_t embedding_count(const struct tool_llmc *llmc)
{
    return ((uint64_t)llmc->padded_vocabulary + llmc->config.context) * llmc->config.width;
}

static uint64_t value_count(const struct tool_llmc *llmc)
{
    uint64_t count = embedding_count(llmc) + 2 * (uint64_t)llmc->config.width;
    for (int k = 0; k < KIND_COUNT; k++)
        count += kind_count(llmc, &kinds[k]) * llmc->config.layer_count;
    return count;
}

uint64_t tool_llmc_file_bytes(const struct tool_llmc *llmc)
{
    return TOOL_LLMC_HEADER_BYTES + tool_element_bytes(llmc->element) * value_count(llmc);
}

/* Which value of the file is the parameter's first. */
static bool find_value(const struct tool_llmc *llmc, const char *name, uint64_t *value)
{
    const eo_transformer_config *c = &llmc->config;
    uint64_t offset = embedding_count(llmc);
    unsigned layer = 0;
    int used = 0;
    const bool in_block = sscanf(name, "h.%u.%n", &layer, &used) == 1 && used > 0 && layer < c->layer_count;
    *value = 0;
    if (strcmp(name, "wte.weight") == 0)
        return true;
    *value = (uint64_t)llmc->padded_vocabulary * c->width;
    if (strcmp(name, "wpe.weight") == 0)
        return true;
    for (int k = 0; k < KIND_COUNT; k++) {
        const uint64_t count = kind_count(llmc, &kinds[k]);
        *value = offset + layer * count;
        if (in_block && strcmp(name + used, kinds[k].name) == 0)
            return true;
        offset += count * c->layer_count;
    }
    *value = offset + (strcmp(name, "ln_f.bias") == 0 ? c->width : 0);
    return strcmp(name, "ln_f.weight") == 0 || strcmp(name, "ln_f.bias") == 0;
}

bool tool_llmc_place(const struct tool_llmc *llmc, const char *name, uint64_t *at)
{
    uint64_t value;
    if (!find_value(llmc, name, &value))
        return false;
    *at = TOOL_LLMC_HEADER_BYTES + value * tool_element_bytes(llmc->element);
    return true;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static eo_status check_size(const char *path, const char *what, int32_t value, int32_t most, struct tool_problem *problem)
{
    if (value < 1 || value > most)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: the header's %s is %d, outside 1 to %d; the file is damaged or not a checkpoint of llm.c",
                                path, what, value, most);
    return EO_OK;
}

static eo_status read_header(struct tool_llmc *llmc, const char *path, const int32_t *header, struct tool_problem *problem)
{
    const char *hint = tool_foreign_file_hint(header);
    if (header[0] != CHECKPOINT_MAGIC)
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: begins with %d, but GPT-2 checkpoints of llm.c begin with %d%s",
                                path, header[0], CHECKPOINT_MAGIC,
                                hint[0] ? hint : "; make one with its train_gpt2.py, or with --export");
    if (header[1] != CHECKPOINT_VERSION_FP32 && header[1] != CHECKPOINT_VERSION_BF16)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: has version %d; readable are versions %d (fp32) and %d (bf16)", path, header[1],
                                CHECKPOINT_VERSION_FP32, CHECKPOINT_VERSION_BF16);
    EO_TRY(check_size(path, "context", header[2], CHECKPOINT_CONTEXT_MAX, problem));
    EO_TRY(check_size(path, "vocabulary", header[3], CHECKPOINT_VOCABULARY_MAX, problem));
    EO_TRY(check_size(path, "layer count", header[4], CHECKPOINT_LAYERS_MAX, problem));
    EO_TRY(check_size(path, "head count", header[5], CHECKPOINT_WIDTH_MAX, problem));
    EO_TRY(check_size(path, "width", header[6], CHECKPOINT_WIDTH_MAX, problem));
    EO_TRY(check_size(path, "padded vocabulary", header[7], CHECKPOINT_VOCABULARY_MAX + 4096, problem));
    if (header[7] < header[3])
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: the padded vocabulary of %d is smaller than the vocabulary of %d; the file "
                                "is damaged",
                                path, header[7], header[3]);
    if (header[6] % header[5])
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: %d heads do not divide the width %d; the file is damaged or holds another kind of model",
                                path, header[5], header[6]);
    llmc->element = header[1] == CHECKPOINT_VERSION_BF16 ? TOOL_ELEMENT_BF16 : TOOL_ELEMENT_F32;
    llmc->padded_vocabulary = (uint32_t)header[7];
    llmc->config = (eo_transformer_config){
        .family = EO_FAMILY_GPT2, .layer_count = (uint32_t)header[4], .width = (uint32_t)header[6],
        .head_count = (uint32_t)header[5], .kv_head_count = (uint32_t)header[5],
        .mlp_width = 4 * (uint32_t)header[6], .vocabulary = (uint32_t)header[3], .context = (uint32_t)header[2],
        .tied_head = true,
    };
    return EO_OK;
}

/* In pieces: a checkpoint may be larger than what is left of memory. */
static eo_status check_finite(const struct tool_llmc *llmc, int file, const char *path, struct tool_problem *problem)
{
    enum { PIECE = 1 << 16 };
    const uint32_t element_bytes = tool_element_bytes(llmc->element);
    const uint64_t count = value_count(llmc);
    float *values = malloc(2 * PIECE * sizeof(*values));
    if (!values)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory", path);
    eo_status status = EO_OK;
    for (uint64_t i = 0; status >= 0 && i < count; i += PIECE) {
        const uint64_t part = count - i < PIECE ? count - i : PIECE;
        status =
            tool_read_at(file, path, values + PIECE, part * element_bytes, TOOL_LLMC_HEADER_BYTES + i * element_bytes, problem);
        if (status >= 0)
            tool_elements_decode(values, values + PIECE, part, llmc->element);
        for (uint64_t k = 0; status >= 0 && k < part; k++)
            if (!isfinite(values[k]))
                status =
                    tool_problem_set(problem, EO_ERR_INVALID,
                                     "%s: value %llu (byte %llu of the file) is %g; the checkpoint is damaged, use an earlier "
                                     "one",
                                     path, (unsigned long long)(i + k),
                                     (unsigned long long)(TOOL_LLMC_HEADER_BYTES + (i + k) * element_bytes), (double)values[k]);
    }
    free(values);
    return status;
}

static eo_status read_file(struct tool_llmc *llmc, int file, uint64_t file_bytes, const char *path,
                           struct tool_problem *problem)
{
    int32_t header[TOOL_LLMC_HEADER_INTS] = {0};
    if (file_bytes < TOOL_LLMC_HEADER_BYTES) {
        EO_TRY(tool_read_at(file, path, header, file_bytes < 8 ? file_bytes : 8, 0, problem));
        return tool_problem_set(
            problem, EO_ERR_INVALID,
            "%s: has %llu bytes, fewer than the header's %d; it is truncated or not a checkpoint of llm.c%s", path,
            (unsigned long long)file_bytes, TOOL_LLMC_HEADER_BYTES, tool_foreign_file_hint(header));
    }
    EO_TRY(tool_read_at(file, path, header, sizeof(header), 0, problem));
    EO_TRY(read_header(llmc, path, header, problem));
    const uint64_t wanted = tool_llmc_file_bytes(llmc);
    if (file_bytes != wanted)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: has %llu bytes, but its header's model needs %llu in %s; it is %s: copy or make it again",
                                path, (unsigned long long)file_bytes, (unsigned long long)wanted,
                                llmc->element == TOOL_ELEMENT_BF16 ? "bf16" : "fp32",
                                file_bytes < wanted ? "truncated" : "too long");
    return check_finite(llmc, file, path, problem);
}

eo_status tool_llmc_open(struct tool_llmc *llmc, int *file, const char *path, struct tool_problem *problem)
{
    struct tool_llmc opened = {.element = TOOL_ELEMENT_F32};
    uint64_t file_bytes;
    int descriptor;
    EO_TRY(tool_open_input(&descriptor, &file_bytes, "", path, problem));
    const eo_status status = read_file(&opened, descriptor, file_bytes, path, problem);
    if (status < 0) {
        close(descriptor);
        return status;
    }
    *llmc = opened;
    *file = descriptor;
    return EO_OK;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

bool tool_llmc_describe(struct tool_llmc *llmc, const eo_transformer_config *config, eo_dtype dtype, char *why,
                        size_t why_bytes)
{
    const eo_transformer_config *c = config;
    why[0] = '\0';
    if (c->family != EO_FAMILY_GPT2)
        snprintf(why, why_bytes, "it holds only GPT-2, and this is a Llama");
    else if (!c->tied_head)
        snprintf(why, why_bytes, "its head is the embedding, but this model has its own head");
    else if (c->mlp_width != 4 * (uint64_t)c->width)
        snprintf(why, why_bytes, "its MLP is 4 times as wide as the model, but this one is %u of %u", c->mlp_width,
                 c->width);
    else if (c->layer_count > CHECKPOINT_LAYERS_MAX || c->width > CHECKPOINT_WIDTH_MAX ||
             c->vocabulary > CHECKPOINT_VOCABULARY_MAX || c->context > CHECKPOINT_CONTEXT_MAX)
        snprintf(why, why_bytes, "it holds at most %d layers, %d of width, %d words and %d positions",
                 CHECKPOINT_LAYERS_MAX, CHECKPOINT_WIDTH_MAX, CHECKPOINT_VOCABULARY_MAX, CHECKPOINT_CONTEXT_MAX);
    else if (c->norm_eps != 0 && c->norm_eps != llmc_eps)
        snprintf(why, why_bytes, "its norms' epsilon is %g, but this model's is %g", (double)llmc_eps, (double)c->norm_eps);
    *llmc = (struct tool_llmc){
        .config = *config,
        .element = dtype == EO_DTYPE_BF16 ? TOOL_ELEMENT_BF16 : TOOL_ELEMENT_F32,
        .padded_vocabulary = (c->vocabulary + CHECKPOINT_PADDING - 1) / CHECKPOINT_PADDING * CHECKPOINT_PADDING,
    };
    return why[0] == '\0';
}

void tool_llmc_header(const struct tool_llmc *llmc, int32_t header[TOOL_LLMC_HEADER_INTS])
{
    const eo_transformer_config *c = &llmc->config;
    const int32_t first[] = {
        CHECKPOINT_MAGIC,        llmc->element == TOOL_ELEMENT_BF16 ? CHECKPOINT_VERSION_BF16 : CHECKPOINT_VERSION_FP32,
        (int32_t)c->context,     (int32_t)c->vocabulary,
        (int32_t)c->layer_count, (int32_t)c->head_count,
        (int32_t)c->width,       (int32_t)llmc->padded_vocabulary};
    memset(header, 0, TOOL_LLMC_HEADER_BYTES);
    memcpy(header, first, sizeof(first));
}
