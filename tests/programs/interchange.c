/* SPDX-License-Identifier: MIT
 *
 * Weights to others' files and back. Goal: each value is where readers look for it, and a round trip loses no bit on any
 * number of ranks.
 * Method: weights that are a function of name and index, written by ranks, and read by a plain reader and by other
 * numbers of ranks.
 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/programs/interchange_jobs.h"
#include "tests/programs/interchange_plain.h"

TestSuite(interchange, .init = make_folder, .fini = remove_folder, .timeout = 120);

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
            empty_folder();
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
        empty_folder();
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
        empty_folder();
    }
}

/* All names that begin so; the new words are no longer, and the header keeps its length. */
static void rename_tensors(const char *from, const char *to)
{
    static char text[1 << 16];
    char file[sizeof(path) + 24];
    snprintf(file, sizeof(file), "%s/model.safetensors", path);
    FILE *stream = fopen(file, "r+b");
    cr_assert_not_null(stream);
    cr_assert_eq(fread(text, 1, 8, stream), 8);
    const size_t bytes = (unsigned char)text[0] | (size_t)(unsigned char)text[1] << 8;
    cr_assert(bytes < sizeof(text) && fread(text, 1, bytes, stream) == bytes);
    text[bytes] = '\0';
    for (char *at = text; (at = strstr(at, from)); at += strlen(to)) {
        memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
        memcpy(at, to, strlen(to));
    }
    memset(text + strlen(text), ' ', bytes - strlen(text));
    cr_assert(fseek(stream, 8, SEEK_SET) == 0 && fwrite(text, 1, bytes, stream) == bytes && fclose(stream) == 0);
}

/* As models without a head are saved; and by safetensors' save_model, which keeps one name of a tied pair. */
Test(interchange, names_may_lack_their_first_word_and_an_embedding_be_called_its_head)
{
    static struct tool_model_config phi3 = {.family = TOOL_CONFIG_PHI3};
    static const struct {
        const eo_transformer_config *config;
        const struct tool_model_config *origin;
        const char *from, *to;
    } cases[] = {{&llama, NULL, "\"model.", "\""},
                 {&llama_tied, NULL, "\"model.", "\""},
                 {&qwen3, NULL, "\"model.", "\""},
                 {&llama, &phi3, "\"model.", "\""},
                 {&llama_tied, NULL, "model.embed_tokens.weight", "lm_head.weight"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct job job = {.settings = {.path = path, .file_bytes = TOOL_EXPORT_FILE_BYTES}, .origin = cases[i].origin};
        const uint64_t hash = run(cases[i].config, 1, EO_DTYPE_FP32, &job);
        cr_assert_eq(job.exported, EO_OK, "%s", problem.text);
        rename_tensors(cases[i].from, cases[i].to);
        cr_assert_eq(import_to(cases[i].config, 2, path, NULL, EO_DTYPE_FP32), hash, "model %zu", i);
        empty_folder();
    }
}

Test(interchange, what_came_from_bf16_goes_back_to_the_same_bytes)
{
    char second[sizeof(path) + 8];
    snprintf(second, sizeof(second), "%s-2", path);
    for (int m = 0; m < MODEL_COUNT; m++) {
        export_from(models[m].config, 2, path, EO_DTYPE_BF16, TOOL_EXPORT_FILE_BYTES);
        import_to(models[m].config, 3, path, second, EO_DTYPE_BF16);
        cr_assert(same_files(path, second), "%s", models[m].name);
        empty_folder();
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

Test(interchange, values_from_a_seed_do_not_depend_on_the_number_of_ranks)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 8};
    for (int m = 0; m < MODEL_COUNT; m++) {
        uint64_t first = 0;
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            struct job job = {.seeded = true};
            const uint64_t hash = run(models[m].config, counts[i], EO_DTYPE_FP32, &job);
            first = i ? first : hash;
            cr_assert_eq(hash, first, "%s on %u ranks", models[m].name, counts[i]);
            /* Master weights of bf16 are the same ones. */
            cr_assert_eq(run(models[m].config, counts[i], EO_DTYPE_BF16, &job), first, "%s in bf16", models[m].name);
        }
    }
}
