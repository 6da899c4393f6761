/* SPDX-License-Identifier: MIT
 *
 * Weights to others' files and back. Goal: each value is where readers look for it, a round trip loses no bit on any
 * number of ranks, and a failure to write leaves nothing.
 * Method: weights that are a function of name and index, written by ranks, and read by a plain reader and by other
 * numbers of ranks; files that may not grow beyond a size, for every size.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "tests/programs/interchange_plain.h"
#include "tests/programs/interchange_ranks.h"
#include "tools/interchange/convert.h"
#include "tools/interchange/export/export.h"
#include "tools/interchange/import.h"
#include "tools/run/checkpoint/checkpoint.h"
#include "tools/shared/weights_hash.h"

static char folder[] = "/tmp/evenodd-interchange-XXXXXX", path[sizeof(folder) + 64];
static struct tool_problem problem;

static void make_folder(void)
{
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/model", folder);
}

static void remove_folder(void)
{
    char command[sizeof(folder) + 16];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(interchange, .init = make_folder, .fini = remove_folder, .timeout = 120);

/* Sizes of which none is a multiple of another, so that no mistake of rows for columns stays hidden. */
#define SMALL .layer_count = 2, .width = 24, .head_count = 3, .vocabulary = 37, .context = 11
static const eo_transformer_config gpt2 = {.family = EO_FAMILY_GPT2, SMALL, .tied_head = true},
    gpt2_wide = {.family = EO_FAMILY_GPT2, SMALL, .mlp_width = 56, .tied_head = false},
    llama = {.family = EO_FAMILY_LLAMA, SMALL, .kv_head_count = 1, .mlp_width = 40, .tied_head = false},
    llama_tied = {.family = EO_FAMILY_LLAMA, SMALL, .kv_head_count = 3, .mlp_width = 40, .tied_head = true},
    qwen2 = {.family = EO_FAMILY_LLAMA, SMALL, .kv_head_count = 1, .mlp_width = 40, .tied_head = true, .qkv_bias = true},
    qwen3 = {.family = EO_FAMILY_LLAMA, SMALL, .kv_head_count = 1, .head_size = 10, .mlp_width = 40, .qk_norm = true},
    llama3 = {.family = EO_FAMILY_LLAMA, SMALL, .kv_head_count = 1, .mlp_width = 40, .rope_scaling = {
        .kind = EO_ROPE_LLAMA3, .factor = 8.3F, .low_freq_factor = 1, .high_freq_factor = 4.7F, .original_context = 6}},
    linear = {.family = EO_FAMILY_LLAMA, SMALL, .kv_head_count = 1, .mlp_width = 40,
              .rope_scaling = {.kind = EO_ROPE_LINEAR, .factor = 2.6F}};
static const struct {
    const char *name;
    const eo_transformer_config *config;
} models[] = {{"gpt2", &gpt2},   {"gpt2, its own head", &gpt2_wide}, {"llama", &llama}, {"llama, tied", &llama_tied},
              {"qwen2", &qwen2}, {"qwen3", &qwen3},   {"llama3", &llama3}};
enum { MODEL_COUNT = sizeof(models) / sizeof(models[0]) };

/* --- weights that tell their place -------------------------------------------------------------------------------- */

static float value_of(const char *name, uint64_t index)
{
    uint64_t x = tool_hash_more(TOOL_HASH_START, name, strlen(name)) + index;
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
    return (float)((double)(x >> 40) / (1 << 24) - 0.5);
}

static eo_status produce(void *user, uint64_t offset, uint64_t count, float *values)
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

struct job {
    struct tool_export_settings settings;
    const struct tool_import *import; /* NULL: values that tell their place */
    const char *seeded;             /* not NULL: from the seed */
    const struct tool_model_config *origin;
    eo_status exported;
    uint64_t hash;
};

static struct tool_export_model model_of(const struct ranks *ranks)
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

static uint64_t run(const eo_transformer_config *config, uint32_t rank_count, eo_dtype dtype, struct job *job)
{
    struct ranks ranks;
    ranks_init(&ranks, config, rank_count, dtype, 0);
    ranks_run(&ranks, live, job);
    ranks_fini(&ranks);
    return job->hash;
}

static uint64_t export_from(const eo_transformer_config *config, uint32_t rank_count, const char *to, eo_dtype dtype,
                            uint64_t file_bytes)
{
    struct job job = {.settings = {.path = to, .dtype = dtype, .file_bytes = file_bytes}};
    run(config, rank_count, EO_DTYPE_FP32, &job);
    cr_assert_eq(job.exported, EO_OK, "%s", problem.text);
    return job.hash;
}

/* What ranks have that start from the files. */
static uint64_t import_to(const eo_transformer_config *config, uint32_t rank_count, const char *from, const char *to,
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

/* --- what is written ---------------------------------------------------------------------------------------------- */

static double rounded(float value, eo_dtype dtype)
{
    if (dtype == EO_DTYPE_FP32)
        return (double)value;
    int exponent;
    const double fraction = frexp((double)value, &exponent); /* 8 bits of it are kept */
    return ldexp(round(ldexp(fraction, 8)), exponent - 8);   /* round() takes ties away from zero */
}

/* The published GPT-2, whose head is its embedding, has no prefix; beside a head of its own the model has. */
static void check_plain(const struct ranks *ranks, bool is_gpt2, eo_dtype dtype)
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

/* transformers would begin to drop: its default is 0.1. */
static void check_dropout(void)
{
    static const char *const keys[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    char config[sizeof(path) + 16];
    snprintf(config, sizeof(config), "%s/config.json", path);
    json_t *object = json_load_file(config, 0, NULL);
    for (int i = 0; i < 3; i++) {
        const json_t *value = json_object_get(object, keys[i]);
        cr_assert(json_is_real(value) && json_number_value(value) == 0, "%s of a GPT-2 is no 0.0", keys[i]);
    }
    json_decref(object);
}

Test(interchange, a_plain_reader_finds_every_value_where_the_family_has_it)
{
    for (int m = 0; m < MODEL_COUNT; m++)
        for (int variant = 0; variant < 3; variant++) {
            const eo_dtype dtype = variant == 1 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
            struct ranks ranks;
            export_from(models[m].config, 1 + (uint32_t)variant, path, dtype, variant == 2 ? 4000 : TOOL_EXPORT_FILE_BYTES);
            ranks_init(&ranks, models[m].config, 1, EO_DTYPE_FP32, 0);
            check_plain(&ranks, ranks.config.family == EO_FAMILY_GPT2, dtype);
            if (ranks.config.family == EO_FAMILY_GPT2)
                check_dropout();
            ranks_fini(&ranks);
            remove_folder();
            cr_assert_eq(mkdir(folder, 0700), 0);
        }
}

Test(interchange, a_round_trip_loses_no_bit_on_any_number_of_ranks)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 8};
    for (int m = 0; m < MODEL_COUNT; m++) {
        const uint64_t hash = export_from(models[m].config, 3, path, EO_DTYPE_FP32, m % 2 ? 3000 : TOOL_EXPORT_FILE_BYTES);
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
            cr_assert_eq(import_to(models[m].config, counts[i], path, NULL, EO_DTYPE_FP32), hash, "%s on %u ranks",
                         models[m].name, counts[i]);
        remove_folder();
        cr_assert_eq(mkdir(folder, 0700), 0);
    }
}

/* Rows [at, at + rows) of a tensor are the parameter's. */
static void check_part(const struct plain_tensor *tensor, uint64_t at, uint64_t rows, const char *parameter)
{
    cr_assert_leq(at + rows, tensor->rows, "%s", parameter);
    for (uint64_t i = 0; i < rows * tensor->columns; i++)
        cr_assert_eq(tensor->values[at * tensor->columns + i], (double)value_of(parameter, i), "%s [%d]", parameter, (int)i);
}

/* Goal: a model that came from Phi-3 goes back so: q, k and v in one tensor, gate and up in one. Method: a plain reader looks at
 * each part, in one file and in many; then ranks start from it. */
Test(interchange, parts_of_phi3_lie_in_one_tensor)
{
    static struct tool_model_config origin = {.family = TOOL_CONFIG_PHI3};
    for (int many = 0; many < 2; many++) {
        struct job job = {.settings = {.path = path, .file_bytes = many ? 3000 : TOOL_EXPORT_FILE_BYTES}, .origin = &origin};
        struct plain_tensor tensor;
        const uint64_t hash = run(&llama, 2, EO_DTYPE_FP32, &job);
        cr_assert_eq(job.exported, EO_OK, "%s", problem.text);
        cr_assert(plain_find(path, "model.layers.1.self_attn.qkv_proj.weight", &tensor));
        cr_assert(tensor.rows == 24 + 8 + 8 && tensor.columns == 24);
        check_part(&tensor, 0, 24, "model.layers.1.self_attn.q_proj.weight");
        check_part(&tensor, 24, 8, "model.layers.1.self_attn.k_proj.weight");
        check_part(&tensor, 32, 8, "model.layers.1.self_attn.v_proj.weight");
        free(tensor.values);
        cr_assert(plain_find(path, "model.layers.0.mlp.gate_up_proj.weight", &tensor));
        cr_assert(tensor.rows == 2 * 40 && tensor.columns == 24);
        check_part(&tensor, 0, 40, "model.layers.0.mlp.gate_proj.weight");
        check_part(&tensor, 40, 40, "model.layers.0.mlp.up_proj.weight");
        free(tensor.values);
        cr_assert_eq(plain_count(path), 3 + 2 * 6);
        cr_assert_eq(import_to(&llama, 3, path, NULL, EO_DTYPE_FP32), hash);
        remove_folder();
        cr_assert_eq(mkdir(folder, 0700), 0);
    }
}

static bool same_files(const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof(command), "diff -r %s %s >/dev/null", a, b);
    return system(command) == 0;
}

Test(interchange, what_came_from_bf16_goes_back_to_the_same_bytes)
{
    char second[sizeof(path) + 8];
    snprintf(second, sizeof(second), "%s-2", path);
    for (int m = 0; m < MODEL_COUNT; m++) {
        export_from(models[m].config, 2, path, EO_DTYPE_BF16, TOOL_EXPORT_FILE_BYTES);
        import_to(models[m].config, 3, path, second, EO_DTYPE_BF16);
        cr_assert(same_files(path, second), "%s", models[m].name);
        remove_folder();
        cr_assert_eq(mkdir(folder, 0700), 0);
    }
}

Test(interchange, checkpoints_of_llmc_go_out_and_in)
{
    char file[sizeof(path) + 8], second[sizeof(path) + 8];
    snprintf(file, sizeof(file), "%s.bin", path);
    snprintf(second, sizeof(second), "%s-2.bin", path);
    const uint64_t hash = export_from(&gpt2, 3, file, EO_DTYPE_FP32, TOOL_EXPORT_FILE_BYTES);
    cr_assert_eq(import_to(&gpt2, 2, file, second, EO_DTYPE_FP32), hash);
    cr_assert(same_files(file, second));
    struct stat info;
    cr_assert_eq(stat(file, &info), 0);
    /* 37 words become 128; a layer has 12 w w + 13 w. */
    cr_assert_eq(info.st_size, 1024 + 4 * ((128 + 11) * 24 + 2 * (12 * 24 * 24 + 13 * 24) + 2 * 24));
    unlink(second);
    unlink(file);
    export_from(&gpt2, 3, file, EO_DTYPE_BF16, TOOL_EXPORT_FILE_BYTES);
    import_to(&gpt2, 2, file, second, EO_DTYPE_BF16);
    cr_assert(same_files(file, second));
}

Test(interchange, models_that_a_format_has_no_place_for_are_refused_before_training)
{
    char file[sizeof(path) + 8];
    snprintf(file, sizeof(file), "%s.bin", path);
    static const struct { const eo_transformer_config *config; const char *words; } cases[] = {
        {&llama, "this is a Llama"}, {&gpt2_wide, "head is the embedding"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ranks ranks;
        ranks_init(&ranks, cases[i].config, 1, EO_DTYPE_FP32, 0);
        const struct tool_export_model model = model_of(&ranks);
        const struct tool_export_settings settings = {.path = file, .file_bytes = TOOL_EXPORT_FILE_BYTES};
        cr_assert_eq(tool_export_check(&settings, &model, &problem), EO_ERR_UNSUPPORTED);
        cr_assert(strstr(problem.text, cases[i].words), "%s", problem.text);
        ranks_fini(&ranks);
    }
}

/* Files to a checkpoint of ours on some ranks, and that to files. */
static void convert_there_and_back(const struct tool_export_settings *to, uint32_t rank_count, const char *checkpoints)
{
    char found[512];
    struct tool_import import;
    eo_checkpoint *checkpoint;
    const eo_log silence = {0};
    cr_assert_eq(tool_import_open(&import, path, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(tool_convert_from_files(&import, checkpoints, rank_count, "{}", 2, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(eo_checkpoint_find(found, sizeof(found), NULL, checkpoints, &silence), EO_OK);
    cr_assert_eq(eo_checkpoint_open(&checkpoint, found, &silence), EO_OK);
    cr_assert_eq(tool_convert_to_files(checkpoint, &(struct tool_convert_model){.config = import.config}, to, &problem), EO_OK, "%s", problem.text);
    eo_transformer_config other = import.config;
    other.vocabulary++;
    const struct tool_export_settings elsewhere = {.path = "/tmp/evenodd-interchange-none", .file_bytes = 1 << 20};
    cr_assert_eq(tool_convert_to_files(checkpoint, &(struct tool_convert_model){.config = other}, &elsewhere, &problem), EO_ERR_INVALID);
    cr_assert(strstr(problem.text, "it belongs to another model"), "%s", problem.text);
    cr_assert_neq(access(elsewhere.path, F_OK), 0);
    eo_checkpoint_close(&checkpoint);
    tool_import_fini(&import);
}

static json_t *settings_of(const eo_transformer_config *config, struct tool_model_config *from)
{
    static struct tool_import import;
    import.config = *config;
    import.model_config = from;
    char *text = tool_json_text(0, tool_job_settings_of_import, &import);
    json_t *settings = json_loads(text, 0, NULL);
    free(text);
    cr_assert_not_null(settings);
    return settings;
}

/* Checkpoints of before they kept it say nothing of where the model was published: they are what their numbers say. */
Test(interchange, a_checkpoint_says_of_which_family_its_model_is_and_an_older_one_may_not)
{
    static struct tool_model_config origin = {.family = TOOL_CONFIG_MISTRAL};
    for (int old = 0; old < 2; old++) {
        eo_transformer_config config;
        json_t *settings = settings_of(&llama, &origin), *published = NULL;
        struct tool_lora lora;
        if (old)
            cr_assert_eq(json_object_del(json_object_get(settings, "model"), "published"), 0);
        cr_assert(tool_job_settings_model(settings, &config, &lora, &published));
        cr_assert_eq(published == NULL, old);
        cr_assert_eq(config.width, llama.width);
        const struct tool_export_model model = {.config = config, .published = published};
        char *text = tool_json_text(2, tool_export_config, &(struct tool_export_config){&model, EO_DTYPE_FP32});
        json_t *file = json_loads(text, 0, NULL);
        cr_assert_str_eq(json_string_value(json_object_get(file, "model_type")), old ? "llama" : "mistral");
        free(text);
        json_decref(file);
        json_decref(published);
        json_decref(settings);
    }
}

static bool same_scaling(const eo_rope_scaling *a, const eo_rope_scaling *b)
{
    return a->kind == b->kind && a->factor == b->factor && a->low_freq_factor == b->low_freq_factor &&
           a->high_freq_factor == b->high_freq_factor && a->original_context == b->original_context;
}

/* Goal: what older or stricter readers ask for is there: the older key of linear scaling alone; of Qwen's window, which is off,
 * both numbers. Method: the object of a config.json. */
Test(interchange, a_config_has_what_strict_readers_ask_for)
{
    static const struct {
        const eo_transformer_config *config;
        const char *key, *value;
    } cases[] = {
        {&linear, "rope_scaling", "{\"type\":\"linear\",\"factor\":2.6}"},
        {&qwen2, "sliding_window", "11"},
        {&qwen2, "max_window_layers", "2"},
        {&qwen2, "use_sliding_window", "false"},
        {&qwen3, "sliding_window", "null"},
        {&qwen3, "max_window_layers", "2"},
        {&qwen3, "use_sliding_window", "false"},
        {&llama, "rope_scaling", NULL},
        {&llama, "max_window_layers", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct tool_export_model model = {.config = *cases[i].config};
        char *text = tool_json_text(2, tool_export_config, &(struct tool_export_config){&model, EO_DTYPE_FP32});
        json_t *file = json_loads(text, 0, NULL);
        char *value = json_dumps(json_object_get(file, cases[i].key), JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        cr_assert((!value && !cases[i].value) || (value && cases[i].value && strcmp(value, cases[i].value) == 0), "%s: %s",
                  cases[i].key, text);
        free(value);
        free(text);
        json_decref(file);
    }
}

/* Goal: scaled positions stay with their weights, to the bit. Method: through a config.json, and through the settings that a
 * checkpoint keeps; those of before know nothing of it, and those of later kinds are not taken for plain ones. */
Test(interchange, positions_are_scaled_alike_after_an_export_and_from_a_checkpoint)
{
    const eo_transformer_config *const configs[] = {&llama, &linear, &llama3};
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        eo_transformer_config config;
        struct tool_model_config read;
        json_t *published = NULL, *settings = settings_of(configs[i], NULL);
        struct tool_lora lora;
        cr_assert(tool_job_settings_model(settings, &config, &lora, &published));
        cr_assert(same_scaling(&config.rope_scaling, &configs[i]->rope_scaling));
        config.rope_theta = 10000;
        config.norm_eps = 1e-5F;
        const struct tool_export_model model = {.config = config};
        char *text = tool_json_text(2, tool_export_config, &(struct tool_export_config){&model, EO_DTYPE_FP32});
        cr_assert_eq(tool_model_config_parse(&read, "c", text, strlen(text), NULL, 0, &problem), EO_OK, "%s", problem.text);
        cr_assert(same_scaling(&read.rope_scaling, &configs[i]->rope_scaling), "%s", text);
        cr_assert_str_empty(read.not_computed);
        cr_assert_str_empty(read.unknown);
        json_t *rope = json_object_get(json_object_get(settings, "model"), "rope_scaling");
        if (rope) {
            json_object_set_new(rope, "rope_type", json_string("yarn"));
            cr_assert_not(tool_job_settings_model(settings, &config, &lora, &published));
        }
        free(text);
        json_decref(published);
        json_decref(settings);
    }
}

/* Goal: the deviation of weights at the start stays with the model. Method: as above; one that was never said is not written.
 */
Test(interchange, the_initial_deviation_is_kept_by_an_export_and_by_a_checkpoint)
{
    for (int given = 0; given < 2; given++) {
        static struct tool_model_config read;
        eo_transformer_config config = llama, back;
        json_t *published = NULL;
        struct tool_lora lora;
        config.initial_deviation = given ? 0.041666666F : 0;
        json_t *settings = settings_of(&config, NULL);
        cr_assert(tool_job_settings_model(settings, &back, &lora, &published));
        cr_assert_eq(back.initial_deviation, config.initial_deviation);
        back.rope_theta = 10000;
        back.norm_eps = 1e-5F;
        const struct tool_export_model model = {.config = back};
        char *text = tool_json_text(2, tool_export_config, &(struct tool_export_config){&model, EO_DTYPE_FP32});
        cr_assert_eq(strstr(text, "initializer_range") != NULL, given == 1);
        cr_assert_eq(tool_model_config_parse(&read, "c", text, strlen(text), NULL, 0, &problem), EO_OK, "%s", problem.text);
        tool_model_config_transformer(&read, &back);
        cr_assert_eq(back.initial_deviation, config.initial_deviation);
        free(text);
        json_decref(published);
        json_decref(settings);
    }
}

/* A value that no weight may have, in the last file. */
static void spoil(const char *file)
{
    static const unsigned char nan_bits[] = {0, 0, 0xc0, 0x7f};
    FILE *open = fopen(file, "r+b");
    cr_assert(open && fseek(open, -4, SEEK_END) == 0 && fwrite(nan_bits, 1, 4, open) == 4);
    fclose(open);
}

Test(interchange, a_folder_that_cannot_become_a_checkpoint_leaves_nothing)
{
    char file[sizeof(path) + 32], checkpoints[sizeof(path) + 8];
    struct tool_import import;
    snprintf(file, sizeof(file), "%s/model.safetensors", path);
    snprintf(checkpoints, sizeof(checkpoints), "%s-3", path);
    export_from(&llama, 2, path, EO_DTYPE_FP32, TOOL_EXPORT_FILE_BYTES);
    spoil(file);
    cr_assert_eq(tool_import_open(&import, path, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(tool_convert_from_files(&import, checkpoints, 3, "", 0, &problem), EO_ERR_INVALID);
    cr_assert(strstr(problem.text, "is nan; the weights are damaged"), "%s", problem.text);
    cr_assert_neq(access(checkpoints, F_OK), 0);
    tool_import_fini(&import);
}

Test(interchange, a_folder_that_becomes_a_checkpoint_and_a_folder_again_is_the_same)
{
    char second[sizeof(path) + 8], checkpoints[sizeof(path) + 8];
    snprintf(second, sizeof(second), "%s-2", path);
    snprintf(checkpoints, sizeof(checkpoints), "%s-3", path);
    for (int m = 0; m < MODEL_COUNT; m++) {
        const struct tool_export_settings to = {.path = second, .file_bytes = TOOL_EXPORT_FILE_BYTES};
        export_from(models[m].config, 2, path, EO_DTYPE_FP32, TOOL_EXPORT_FILE_BYTES);
        convert_there_and_back(&to, 1 + (uint32_t)m % 3, checkpoints);
        cr_assert(same_files(path, second), "%s", models[m].name);
        remove_folder();
        cr_assert_eq(mkdir(folder, 0700), 0);
    }
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

static int count_entries(const char *where)
{
    DIR *open = opendir(where);
    int count = 0;
    cr_assert(open);
    while (readdir(open))
        count++;
    closedir(open);
    return count - 2;
}

/* Nothing more than `limit` bytes goes into a file, as on a disk that is full. */
static void limit_files(rlim_t limit)
{
    const struct rlimit value = {limit, RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &value), 0);
}

static void fail_at_every_size(const char *to, eo_dtype dtype, uint64_t file_bytes, rlim_t whole)
{
    int failed = 0;
    for (rlim_t limit = 0; limit < whole; limit += whole / 97 + 1, failed++) {
        struct job job = {.settings = {.path = to, .dtype = dtype, .file_bytes = file_bytes}};
        limit_files(limit);
        run(&gpt2, 2, EO_DTYPE_FP32, &job);
        limit_files(RLIM_INFINITY);
        cr_assert_eq(job.exported, EO_ERR_IO, "%d of %d bytes are enough", (int)limit, (int)whole);
        cr_assert(strstr(problem.text, "File too large"), "%s", problem.text);
        cr_assert_eq(count_entries(folder), 0, "something is left of a write that failed at %d", (int)limit);
    }
    cr_assert_gt(failed, 50);
}

static rlim_t largest_file(const char *where)
{
    char command[512];
    unsigned long size = 0;
    snprintf(command, sizeof(command), "find %s -type f -printf '%%s\\n' | sort -n | tail -n 1", where);
    FILE *pipe = popen(command, "r");
    cr_assert(pipe && fscanf(pipe, "%lu", &size) == 1);
    pclose(pipe);
    return size;
}

Test(interchange, a_write_that_fails_anywhere_leaves_nothing)
{
    char file[sizeof(path) + 8];
    snprintf(file, sizeof(file), "%s.bin", path);
    const struct { const char *to; eo_dtype dtype; uint64_t file_bytes;
    } cases[] = {{path, EO_DTYPE_FP32, TOOL_EXPORT_FILE_BYTES}, {path, EO_DTYPE_BF16, 2000},
                 {file, EO_DTYPE_FP32, TOOL_EXPORT_FILE_BYTES}};
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        export_from(&gpt2, 2, cases[i].to, cases[i].dtype, cases[i].file_bytes);
        const rlim_t whole = largest_file(folder);
        remove_folder();
        cr_assert_eq(mkdir(folder, 0700), 0);
        fail_at_every_size(cases[i].to, cases[i].dtype, cases[i].file_bytes, whole);
    }
}

static void refuse_place(const char *to, const char *words)
{
    struct ranks ranks;
    ranks_init(&ranks, &gpt2, 1, EO_DTYPE_FP32, 0);
    const struct tool_export_model model = model_of(&ranks);
    const struct tool_export_settings settings = {.path = to, .file_bytes = TOOL_EXPORT_FILE_BYTES};
    cr_assert_lt(tool_export_check(&settings, &model, &problem), 0, "%s is taken", to);
    cr_assert(strstr(problem.text, words), "%s", problem.text);
    ranks_fini(&ranks);
}

Test(interchange, a_place_that_cannot_be_written_is_told_before_training)
{
    char inner[sizeof(path) + 32];
    struct ranks ranks;
    ranks_init(&ranks, &gpt2, 1, EO_DTYPE_FP32, 0);
    const struct tool_export_model model = model_of(&ranks);
    struct tool_export_settings settings = {.path = path, .file_bytes = TOOL_EXPORT_FILE_BYTES};
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(tool_export_check(&settings, &model, &problem), EO_OK, "an empty folder: %s", problem.text);
    export_from(&gpt2, 1, path, EO_DTYPE_FP32, TOOL_EXPORT_FILE_BYTES);
    refuse_place(path, "already exists");
    snprintf(inner, sizeof(inner), "%s/none/model", path);
    refuse_place(inner, "create it");
    snprintf(inner, sizeof(inner), "%s/config.json/model", path);
    refuse_place(inner, "create it");
    ranks_fini(&ranks);
}

static void put_all(struct tool_export *export, const eo_model *model)
{
    for (uint32_t k = 0; k < eo_model_parameter_count(model); k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(model, k, &info), EO_OK);
        float *values = malloc(info.element_count * sizeof(*values));
        produce((void *)(uintptr_t)info.name, 0, info.element_count, values);
        tool_export_put(export, k, values);
        free(values);
    }
}

Test(interchange, a_name_that_is_taken_meanwhile_costs_no_weights)
{
    char inner[sizeof(path) + 32];
    struct tool_export export;
    struct ranks ranks;
    ranks_init(&ranks, &gpt2, 1, EO_DTYPE_FP32, 0);
    const struct tool_export_model model = model_of(&ranks);
    const struct tool_export_settings settings = {.path = path, .file_bytes = TOOL_EXPORT_FILE_BYTES};
    cr_assert_eq(tool_export_begin(&export, &settings, &model, &problem), EO_OK, "%s", problem.text);
    put_all(&export, model.model);
    snprintf(inner, sizeof(inner), "%s/other", path);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(mkdir(inner, 0700), 0);
    cr_assert_eq(tool_export_end(&export, &problem), EO_ERR_IO);
    const char *where = strstr(problem.text, "all of it is in ");
    cr_assert(where, "%s", problem.text);
    tool_export_remove_left(folder, path); /* the next export does not take it for one that was killed */
    snprintf(path, sizeof(path), "%s", where + strlen("all of it is in "));
    check_plain(&ranks, true, EO_DTYPE_FP32);
    ranks_fini(&ranks);
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

Test(interchange, values_from_a_seed_do_not_depend_on_the_number_of_ranks)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 8};
    for (int m = 0; m < MODEL_COUNT; m++) {
        uint64_t first = 0;
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            struct job job = {.seeded = "yes"};
            const uint64_t hash = run(models[m].config, counts[i], EO_DTYPE_FP32, &job);
            first = i ? first : hash;
            cr_assert_eq(hash, first, "%s on %u ranks", models[m].name, counts[i]);
            /* Master weights of bf16 are the same ones. */
            cr_assert_eq(run(models[m].config, counts[i], EO_DTYPE_BF16, &job), first, "%s in bf16", models[m].name);
        }
    }
}
