/* SPDX-License-Identifier: MIT */
#include "tests/programs/interchange_jobs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/programs/interchange_plain.h"
#include "tools/shared/weights_hash.h"

char folder[FOLDER_BYTES] = "/tmp/evenodd-interchange-XXXXXX", path[PATH_BYTES];
struct tool_problem problem;

void make_folder(void)
{
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/model", folder);
}

void remove_folder(void)
{
    char command[sizeof(folder) + 16];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

void empty_folder(void)
{
    remove_folder();
    cr_assert_eq(mkdir(folder, 0700), 0);
}

/* Sizes of which none is a multiple of another, so that no mistake of rows for columns stays hidden. */
#define SMALL .layer_count = 2, .width = 24, .head_count = 3, .vocabulary = 37, .context = 11
const eo_transformer_config
    gpt2 = {.family = EO_FAMILY_GPT2, SMALL, .tied_head = true},
    gpt2_wide = {.family = EO_FAMILY_GPT2, SMALL, .mlp_width = 56, .tied_head = false},
    llama = {.family = EO_FAMILY_LLAMA, SMALL, .kv_head_count = 1, .mlp_width = 40, .tied_head = false},
    llama_tied = {.family = EO_FAMILY_LLAMA, SMALL, .kv_head_count = 3, .mlp_width = 40, .tied_head = true},
    qwen2 = {.family = EO_FAMILY_LLAMA, SMALL, .kv_head_count = 1, .mlp_width = 40, .tied_head = true, .qkv_bias = true},
    qwen3 = {.family = EO_FAMILY_LLAMA, SMALL, .kv_head_count = 1, .head_size = 10, .mlp_width = 40, .qk_norm = true},
    llama3 = {.family = EO_FAMILY_LLAMA,
              SMALL,
              .kv_head_count = 1,
              .mlp_width = 40,
              .rope_scaling = {.kind = EO_ROPE_LLAMA3,
                               .factor = 8.3F,
                               .low_freq_factor = 1,
                               .high_freq_factor = 4.7F,
                               .original_context = 6}},
    linear = {.family = EO_FAMILY_LLAMA,
              SMALL,
              .kv_head_count = 1,
              .mlp_width = 40,
              .rope_scaling = {.kind = EO_ROPE_LINEAR, .factor = 2.6F}},
    smollm3 = {
        .family = EO_FAMILY_LLAMA, SMALL, .kv_head_count = 1, .mlp_width = 40, .tied_head = true, .unrotated_interval = 2};
const struct known_model models[MODEL_COUNT] = {{"gpt2", &gpt2},     {"gpt2, its own head", &gpt2_wide},
                                                {"llama", &llama},   {"llama, tied", &llama_tied},
                                                {"qwen2", &qwen2},   {"qwen3", &qwen3},
                                                {"llama3", &llama3}, {"smollm3", &smollm3}};

float value_of(const char *name, uint64_t index)
{
    uint64_t x = tool_hash_more(TOOL_HASH_START, name, strlen(name)) + index;
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
    return (float)((double)(x >> 40) / (1 << 24) - 0.5);
}

eo_status produce(void *user, uint64_t offset, uint64_t count, float *values)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = value_of(user, offset + i);
    return EO_OK;
}

static void fill(struct ranks_rank *rank)
{
    const eo_model *model = ranks_model(rank->ranks);
    for (uint32_t k = 0; k < eo_model_parameter_count(model); k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(model, k, &info), EO_OK);
        cr_assert_eq(eo_weights_fill(rank->runtime, k, produce, (void *)(uintptr_t)info.name), EO_OK);
    }
}

struct tool_export_model model_of(const struct ranks *ranks)
{
    return (struct tool_export_model){.model = ranks_model(ranks), .config = ranks->config};
}

static void live(void *user, struct ranks_rank *rank)
{
    struct job *job = user;
    struct tool_problem mine;
    uint64_t hash = 0;
    if (job->import)
        cr_assert_eq(tool_import_load(job->import, rank->runtime, &mine), EO_OK, "%s", mine.text);
    else if (job->seeded)
        cr_assert_eq(eo_transformer_initialise(rank->ranks->transformer, rank->runtime, 7), EO_OK);
    else
        fill(rank);
    cr_assert_eq(tool_weights_hash(rank->runtime, &hash), EO_OK);
    if (job->settings.path) {
        struct tool_export_model model = model_of(rank->ranks);
        model.origin = job->origin;
        const eo_status status =
            tool_export_weights(&job->settings, &model, rank->runtime, rank->rank == 0, NULL, rank->rank ? &mine : &problem);
        if (rank->rank == 0)
            job->exported = status;
        else
            cr_assert_eq(status, EO_OK, "rank %u", rank->rank);
    }
    if (rank->rank == 0)
        job->hash = hash;
}

uint64_t run(const eo_transformer_config *config, uint32_t rank_count, eo_dtype dtype, struct job *job)
{
    struct ranks ranks;
    ranks_init(&ranks, config, rank_count, dtype, 0);
    ranks_run(&ranks, live, job);
    ranks_fini(&ranks);
    return job->hash;
}

uint64_t export_from(const eo_transformer_config *config, uint32_t rank_count, const char *to, eo_dtype dtype,
                            uint64_t file_bytes)
{
    struct job job = {.settings = {.path = to, .dtype = dtype, .file_bytes = file_bytes}};
    run(config, rank_count, EO_DTYPE_FP32, &job);
    cr_assert_eq(job.exported, EO_OK, "%s", problem.text);
    return job.hash;
}

uint64_t import_to(const eo_transformer_config *config, uint32_t rank_count, const char *from, const char *to,
                          eo_dtype dtype)
{
    struct tool_import import;
    struct ranks ranks;
    struct job job = {.settings = {.path = to, .dtype = dtype, .file_bytes = TOOL_EXPORT_FILE_BYTES}, .import = &import};
    ranks_init(&ranks, config, rank_count, EO_DTYPE_FP32, 0);
    cr_assert_eq(tool_import_open(&import, from, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(tool_import_check(&import, "same", &ranks.config, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(tool_import_bind(&import, ranks_model(&ranks), &problem), EO_OK, "%s", problem.text);
    ranks_run(&ranks, live, &job);
    cr_assert_eq(job.exported, EO_OK, "%s", problem.text);
    tool_import_fini(&import);
    ranks_fini(&ranks);
    return job.hash;
}

static double rounded(float value, eo_dtype dtype)
{
    if (dtype == EO_DTYPE_FP32)
        return (double)value;
    int exponent;
    const double fraction = frexp((double)value, &exponent); /* 8 bits of it are kept */
    return ldexp(round(ldexp(fraction, 8)), exponent - 8);   /* round() takes ties away from zero */
}

/* The published GPT-2, whose head is its embedding, has no prefix; beside a head of its own the model has. */
void check_plain(const struct ranks *ranks, bool is_gpt2, eo_dtype dtype)
{
    const eo_model *model = ranks_model(ranks);
    for (uint32_t k = 0; k < eo_model_parameter_count(model); k++) {
        eo_parameter_info info;
        struct plain_tensor tensor;
        char name[128];
        cr_assert_eq(eo_model_parameter(model, k, &info), EO_OK);
        const bool has_prefix = is_gpt2 && !ranks->config.tied_head && strcmp(info.name, "lm_head.weight") != 0;
        snprintf(name, sizeof(name), "%s%s", has_prefix ? "transformer." : "", info.name);
        cr_assert(plain_find(path, name, &tensor), "%s", name);
        cr_assert_str_eq(tensor.dtype, dtype == EO_DTYPE_BF16 ? "BF16" : "F32");
        const bool turned = is_gpt2 && strstr(name, ".c_") && info.dim_count == 2;
        const uint64_t rows = info.dim_count == 2 ? info.dims[0] : 1, columns = info.element_count / rows;
        cr_assert_eq(tensor.rows, turned ? columns : rows, "%s", name);
        cr_assert_eq(tensor.columns, turned ? rows : columns, "%s", name);
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < columns; c++)
                cr_assert_eq(tensor.values[turned ? c * rows + r : r * columns + c],
                             rounded(value_of(info.name, r * columns + c), dtype), "%s [%d][%d]", name, (int)r, (int)c);
        free(tensor.values);
    }
    cr_assert_eq(plain_count(path), (int)eo_model_parameter_count(model));
}

bool same_files(const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof(command), "diff -r %s %s >/dev/null", a, b);
    return system(command) == 0;
}
