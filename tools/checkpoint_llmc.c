/* SPDX-License-Identifier: MIT */
#include "tools/checkpoint_llmc.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CHECKPOINT_HEADER_INTS = 256,
    CHECKPOINT_HEADER_BYTES = CHECKPOINT_HEADER_INTS * 4,
    CHECKPOINT_MAGIC = 20240326,
    CHECKPOINT_VERSION = 3,
    CHECKPOINT_LAYERS_MAX = 1 << 12,
    CHECKPOINT_WIDTH_MAX = 1 << 16,
    CHECKPOINT_VOCABULARY_MAX = 1 << 20,
    CHECKPOINT_CONTEXT_MAX = 1 << 20,
};
/* 12 h h L is the largest term: no sum below can wrap. */
_Static_assert((uint64_t)CHECKPOINT_LAYERS_MAX * CHECKPOINT_WIDTH_MAX * CHECKPOINT_WIDTH_MAX <= UINT64_MAX / 4096,
               "the size of a checkpoint can overflow");

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

static uint64_t kind_count(const struct eo_llmc *checkpoint, const struct kind *kind)
{
    const uint64_t h = checkpoint->config.width;
    return (kind->squares * h + kind->widths) * h;
}

static uint64_t embedding_count(const struct eo_llmc *checkpoint)
{
    return ((uint64_t)checkpoint->padded_vocabulary + checkpoint->config.context) * checkpoint->config.width;
}

static uint64_t value_count(const struct eo_llmc *checkpoint)
{
    uint64_t count = embedding_count(checkpoint) + 2 * (uint64_t)checkpoint->config.width;
    for (int k = 0; k < KIND_COUNT; k++)
        count += kind_count(checkpoint, &kinds[k]) * checkpoint->config.layer_count;
    return count;
}

const float *eo_llmc_values(const struct eo_llmc *checkpoint, const char *name)
{
    const eo_transformer_config *c = &checkpoint->config;
    uint64_t offset = embedding_count(checkpoint);
    if (strcmp(name, "wte.weight") == 0)
        return checkpoint->values;
    if (strcmp(name, "wpe.weight") == 0)
        return checkpoint->values + (uint64_t)checkpoint->padded_vocabulary * c->width;
    unsigned layer = 0;
    int used = 0;
    const bool in_block = sscanf(name, "h.%u.%n", &layer, &used) == 1 && used > 0 && layer < c->layer_count;
    for (int k = 0; k < KIND_COUNT; k++) {
        const uint64_t count = kind_count(checkpoint, &kinds[k]);
        if (in_block && strcmp(name + used, kinds[k].name) == 0)
            return checkpoint->values + offset + layer * count;
        offset += count * c->layer_count;
    }
    if (strcmp(name, "ln_f.weight") == 0)
        return checkpoint->values + offset;
    if (strcmp(name, "ln_f.bias") == 0)
        return checkpoint->values + offset + c->width;
    return NULL;
}

static eo_status check_size(const char *path, const char *what, int32_t value, int32_t most,
                            struct eo_problem *problem)
{
    if (value < 1 || value > most)
        return eo_problem_set(problem, EO_ERR_INVALID,
                              "--init %s: the header's %s is %d, and 1 to %d make sense; the file is damaged or no "
                              "checkpoint of llm.c", path, what, value, most);
    return EO_OK;
}

static eo_status read_header(struct eo_llmc *checkpoint, const char *path, const int32_t *header,
                             struct eo_problem *problem)
{
    if (header[0] != CHECKPOINT_MAGIC)
        return eo_problem_set(problem, EO_ERR_INVALID,
                              "--init %s: begins with %d, where GPT-2 checkpoints of llm.c have %d; make one with its "
                              "train_gpt2.py", path, header[0], CHECKPOINT_MAGIC);
    if (header[1] != CHECKPOINT_VERSION)
        return eo_problem_set(problem, EO_ERR_INVALID,
                              "--init %s: is of version %d%s, and version %d (fp32) can be read; export it in fp32",
                              path, header[1], header[1] == 5 ? " (bf16)" : "", CHECKPOINT_VERSION);
    TOOLS_TRY(check_size(path, "context", header[2], CHECKPOINT_CONTEXT_MAX, problem));
    TOOLS_TRY(check_size(path, "vocabulary", header[3], CHECKPOINT_VOCABULARY_MAX, problem));
    TOOLS_TRY(check_size(path, "layer count", header[4], CHECKPOINT_LAYERS_MAX, problem));
    TOOLS_TRY(check_size(path, "head count", header[5], CHECKPOINT_WIDTH_MAX, problem));
    TOOLS_TRY(check_size(path, "width", header[6], CHECKPOINT_WIDTH_MAX, problem));
    TOOLS_TRY(check_size(path, "padded vocabulary", header[7], CHECKPOINT_VOCABULARY_MAX + 4096, problem));
    if (header[7] < header[3])
        return eo_problem_set(problem, EO_ERR_INVALID,
                              "--init %s: the padded vocabulary of %d is smaller than the vocabulary of %d; the file "
                              "is damaged", path, header[7], header[3]);
    if (header[6] % header[5])
        return eo_problem_set(problem, EO_ERR_INVALID, "--init %s: %d heads do not divide the width %d; the file is "
                              "damaged or of another kind of model", path, header[5], header[6]);
    checkpoint->padded_vocabulary = (uint32_t)header[7];
    checkpoint->config = (eo_transformer_config){
        .family = EO_FAMILY_GPT2, .layer_count = (uint32_t)header[4], .width = (uint32_t)header[6],
        .head_count = (uint32_t)header[5], .kv_head_count = (uint32_t)header[5],
        .mlp_width = 4 * (uint32_t)header[6], .vocabulary = (uint32_t)header[3], .context = (uint32_t)header[2],
        .tied_head = true,
    };
    return EO_OK;
}

static eo_status check_finite(const struct eo_llmc *checkpoint, const char *path, struct eo_problem *problem)
{
    const uint64_t count = value_count(checkpoint);
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(checkpoint->values[i]))
            return eo_problem_set(problem, EO_ERR_INVALID,
                                  "--init %s: value %llu (byte %llu of the file) is %g; the checkpoint is spoiled, "
                                  "use an earlier one", path, (unsigned long long)i,
                                  (unsigned long long)(CHECKPOINT_HEADER_BYTES + 4 * i),
                                  (double)checkpoint->values[i]);
    return EO_OK;
}

static eo_status map_checkpoint(struct eo_llmc *checkpoint, int file, const char *path,
                                struct eo_problem *problem)
{
    struct stat info;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode))
        return eo_problem_set(problem, EO_ERR_INVALID, "--init %s: is no file", path);
    const uint64_t file_bytes = (uint64_t)info.st_size;
    if (file_bytes < CHECKPOINT_HEADER_BYTES)
        return eo_problem_set(problem, EO_ERR_INVALID, "--init %s: has %llu bytes, fewer than the header's %d; it is "
                              "truncated or no checkpoint of llm.c", path, (unsigned long long)file_bytes,
                              CHECKPOINT_HEADER_BYTES);
    checkpoint->map = mmap(NULL, (size_t)file_bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (checkpoint->map == MAP_FAILED) {
        checkpoint->map = NULL;
        return eo_problem_set(problem, EO_ERR_IO, "--init %s: cannot be mapped: %s", path, strerror(errno));
    }
    checkpoint->map_bytes = (size_t)file_bytes;
    checkpoint->values = (const float *)checkpoint->map + CHECKPOINT_HEADER_INTS;
    TOOLS_TRY(read_header(checkpoint, path, checkpoint->map, problem));
    const uint64_t wanted = CHECKPOINT_HEADER_BYTES + 4 * value_count(checkpoint);
    if (file_bytes != wanted)
        return eo_problem_set(problem, EO_ERR_INVALID,
                              "--init %s: has %llu bytes, and its header's model takes %llu; it is %s: copy or make it "
                              "again", path, (unsigned long long)file_bytes, (unsigned long long)wanted,
                              file_bytes < wanted ? "truncated" : "too long");
    return check_finite(checkpoint, path, problem);
}

eo_status eo_llmc_open(struct eo_llmc *checkpoint, const char *path, struct eo_problem *problem)
{
    struct eo_llmc opened = {0};
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return eo_problem_set(problem, EO_ERR_IO, "--init %s: cannot be opened: %s; check the path", path,
                              strerror(errno));
    const eo_status status = map_checkpoint(&opened, file, path, problem);
    close(file);
    if (status < 0) {
        eo_llmc_fini(&opened);
        return status;
    }
    *checkpoint = opened;
    return EO_OK;
}

void eo_llmc_fini(struct eo_llmc *checkpoint)
{
    if (checkpoint->map)
        munmap(checkpoint->map, checkpoint->map_bytes);
    *checkpoint = (struct eo_llmc){0};
}

/* The preset of this shape, or the words that make one. */
static const char *matching_model(const eo_transformer_config *config)
{
    for (uint32_t i = 0; eo_transformer_preset_name(i); i++) {
        eo_transformer_config preset;
        if (eo_transformer_preset(eo_transformer_preset_name(i), &preset) >= 0 &&
            preset.family == config->family && preset.layer_count == config->layer_count &&
            preset.width == config->width && preset.head_count == config->head_count &&
            preset.vocabulary == config->vocabulary && preset.context == config->context)
            return eo_transformer_preset_name(i);
    }
    return "init"; /* the shape of the file */
}

eo_status eo_llmc_check(const struct eo_llmc *checkpoint, const char *path, const char *model_name,
                              const eo_transformer_config *config, struct eo_problem *problem)
{
    const eo_transformer_config *file = &checkpoint->config;
    const struct { const char *what; uint32_t file, model; } sizes[] = {
        {"layers", file->layer_count, config->layer_count}, {"width", file->width, config->width},
        {"heads", file->head_count, config->head_count}, {"vocabulary", file->vocabulary, config->vocabulary},
        {"context", file->context, config->context}, {"MLP width", file->mlp_width, config->mlp_width},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (sizes[i].file != sizes[i].model)
            return eo_problem_set(problem, EO_ERR_INVALID,
                                  "--init %s: is of another shape: %s %u, where --model %s has %u; use --model %s",
                                  path, sizes[i].what, sizes[i].file, model_name, sizes[i].model,
                                  matching_model(file));
    return EO_OK;
}

static void produce_values(void *user, uint64_t offset, uint64_t count, float *values)
{
    memcpy(values, (const float *)user + offset, count * sizeof(*values));
}

eo_status eo_llmc_load(const struct eo_llmc *checkpoint, const eo_model *model, eo_runtime *runtime)
{
    for (uint32_t k = 0; k < eo_model_parameter_count(model); k++) {
        eo_parameter_info info;
        TOOLS_TRY(eo_model_parameter(model, k, &info));
        const float *values = eo_llmc_values(checkpoint, info.name);
        if (!values)
            return EO_ERR_INVALID;
        TOOLS_TRY(eo_weights_fill(runtime, k, produce_values, (void *)(uintptr_t)values));
    }
    return EO_OK;
}
