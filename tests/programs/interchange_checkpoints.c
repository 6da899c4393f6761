/* SPDX-License-Identifier: MIT
 *
 * Others' files and our checkpoints: a folder that becomes a checkpoint and a folder again is the same, and what a config says
 * of a model stays with it.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/programs/interchange_jobs.h"
#include "tools/interchange/convert.h"
#include "tools/run/checkpoint/checkpoint.h"

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
        {&smollm3, "no_rope_layers", "[1,0]"},
        {&smollm3, "no_rope_layer_interval", "2"},
        {&smollm3, "pad_token_id", "null"},
        {&llama, "rope_scaling", NULL},
        {&llama, "no_rope_layers", NULL},
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

/* Goal: scaled positions, and blocks without any, stay with their weights, to the bit. Method: through a config.json, and
 * through the settings that a checkpoint keeps; those of before know nothing of it, and those of later kinds are not taken for
 * plain ones. */
Test(interchange, positions_are_scaled_alike_after_an_export_and_from_a_checkpoint)
{
    const eo_transformer_config *const configs[] = {&llama, &linear, &llama3, &smollm3};
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        eo_transformer_config config;
        struct tool_model_config read;
        json_t *published = NULL, *settings = settings_of(configs[i], NULL);
        struct tool_lora lora;
        cr_assert(tool_job_settings_model(settings, &config, &lora, &published));
        cr_assert(same_scaling(&config.rope_scaling, &configs[i]->rope_scaling));
        cr_assert_eq(config.unrotated_interval, configs[i]->unrotated_interval);
        config.rope_theta = 10000;
        config.norm_eps = 1e-5F;
        const struct tool_export_model model = {.config = config};
        char *text = tool_json_text(2, tool_export_config, &(struct tool_export_config){&model, EO_DTYPE_FP32});
        cr_assert_eq(tool_model_config_parse(&read, "c", text, strlen(text), NULL, 0, &problem), EO_OK, "%s", problem.text);
        cr_assert(same_scaling(&read.rope_scaling, &configs[i]->rope_scaling), "%s", text);
        cr_assert_eq(read.unrotated_interval, configs[i]->unrotated_interval, "%s", text);
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
        empty_folder();
    }
}
