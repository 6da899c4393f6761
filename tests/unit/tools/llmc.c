/* SPDX-License-Identifier: MIT
 *
 * Checkpoints of llm.c. Goal: what is right arrives in the weights, each value at its place and the vocabulary's
 * padding left out; what is wrong is refused with its reason. Method: files whose value i is a function of i, changed
 * in one place each.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/interchange/import.h"

enum { CONTEXT = 8, VOCABULARY = 10, PADDED = 16, LAYERS = 2, HEADS = 2, WIDTH = 8 };
enum { BLOCK = 12 * WIDTH * WIDTH + 13 * WIDTH };
enum { VALUES = (PADDED + CONTEXT) * WIDTH + LAYERS * BLOCK + 2 * WIDTH };

static char path[64];
static struct tool_problem problem;

struct file {
    int32_t header[256];
    float values[VALUES];
};

static void make_path(void)
{
    strcpy(path, "/tmp/evenodd-llmc-XXXXXX");
    const int file = mkstemp(path);
    cr_assert_geq(file, 0);
    close(file);
}

static void remove_path(void)
{
    unlink(path);
}

TestSuite(llmc, .init = make_path, .fini = remove_path);

static float value_of(int i)
{
    return (float)i * 0.001F + 0.5F;
}

static struct file *good_file(void)
{
    struct file *file = calloc(1, sizeof(*file));
    const int32_t header[] = {20240326, 3, CONTEXT, VOCABULARY, LAYERS, HEADS, WIDTH, PADDED};
    memcpy(file->header, header, sizeof(header));
    for (int i = 0; i < VALUES; i++)
        file->values[i] = value_of(i);
    return file;
}

static void write_file(const struct file *file, long cut)
{
    FILE *out = fopen(path, "w");
    char *padded = calloc(1, sizeof(*file) + 16);
    memcpy(padded, file, sizeof(*file));
    cr_assert_not_null(out);
    cr_assert_eq(fwrite(padded, 1, (size_t)((long)sizeof(*file) + cut), out), (size_t)((long)sizeof(*file) + cut));
    cr_assert_eq(fclose(out), 0);
    free(padded);
}

static void must_refuse(const struct file *file, long cut, const char *word)
{
    struct tool_import import;
    write_file(file, cut);
    cr_assert_eq(tool_import_open(&import, path, &problem), EO_ERR_INVALID, "taken, though %s", word);
    cr_assert_not_null(strstr(problem.text, word), "'%s' is not in: %s", word, problem.text);
    cr_assert_not_null(strstr(problem.text, path));
}

static uint64_t value_at(const struct tool_import *import, const char *name)
{
    uint64_t at = 0;
    cr_assert(tool_llmc_place(&import->llmc, name, &at), "%s", name);
    return (at - sizeof(((struct file *)0)->header)) / 4;
}

Test(llmc, a_good_file_tells_its_shape)
{
    struct tool_import import;
    struct file *file = good_file();
    uint64_t at;
    write_file(file, 0);
    cr_assert_eq(tool_import_open(&import, path, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(import.config.layer_count, LAYERS);
    cr_assert_eq(import.config.width, WIDTH);
    cr_assert_eq(import.config.head_count, HEADS);
    cr_assert_eq(import.config.vocabulary, VOCABULARY);
    cr_assert_eq(import.config.context, CONTEXT);
    cr_assert_eq(tool_llmc_file_bytes(&import.llmc), sizeof(*file));
    cr_assert_eq(value_at(&import, "wpe.weight"), PADDED * WIDTH);
    /* Each kind lies over all layers: the second block's first norm follows that of the first. */
    cr_assert_eq(value_at(&import, "h.1.ln_1.weight"), (PADDED + CONTEXT) * WIDTH + WIDTH);
    cr_assert_eq(value_at(&import, "ln_f.bias"), VALUES - WIDTH);
    cr_assert_not(tool_llmc_place(&import.llmc, "h.2.ln_1.weight", &at));
    cr_assert_not(tool_llmc_place(&import.llmc, "lm_head.weight", &at));
    tool_import_fini(&import);
    free(file);
}

Test(llmc, what_is_damaged_is_refused)
{
    struct file *file = good_file();
    must_refuse(file, -4, "truncated");
    must_refuse(file, -(long)sizeof(file->values), "truncated");
    must_refuse(file, -(long)sizeof(*file) + 100, "truncated");
    must_refuse(file, 8, "too long");
    file->header[0] = 20240327;
    must_refuse(file, 0, "20240327");
    file->header[0] = 20240326;
    file->header[1] = 4;
    must_refuse(file, 0, "version 4");
    file->header[1] = 5; /* half as many bytes */
    must_refuse(file, 0, "too long");
    file->header[1] = 3;
    const struct { int place; int32_t value; const char *word; } sizes[] = {
        {2, 0, "context"}, {3, -1, "vocabulary"}, {4, INT32_MAX, "layer count"}, {5, 3, "heads do not divide"},
        {6, 0, "width"}, {7, VOCABULARY - 1, "padded vocabulary"}, {4, LAYERS + 1, "truncated"},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const int32_t kept = file->header[sizes[i].place];
        file->header[sizes[i].place] = sizes[i].value;
        must_refuse(file, 0, sizes[i].word);
        file->header[sizes[i].place] = kept;
    }
    free(file);
}

Test(llmc, values_that_are_not_finite_are_refused_wherever_they_stand)
{
    struct file *file = good_file();
    const int places[] = {0, VALUES / 2, VALUES - 1};
    for (int i = 0; i < 3; i++) {
        file->values[places[i]] = i == 1 ? INFINITY : NAN;
        char word[32];
        snprintf(word, sizeof(word), "value %d", places[i]);
        must_refuse(file, 0, word);
        file->values[places[i]] = 0;
    }
    free(file);
}

Test(llmc, another_shape_is_named)
{
    struct tool_import import;
    struct file *file = good_file();
    write_file(file, 0);
    cr_assert_eq(tool_import_open(&import, path, &problem), EO_OK);
    eo_transformer_config config = import.config;
    cr_assert_eq(tool_import_check(&import, "same", &config, &problem), EO_OK);
    config.layer_count++;
    cr_assert_eq(tool_import_check(&import, "other", &config, &problem), EO_ERR_INVALID);
    cr_assert_not_null(strstr(problem.text, "layers 2"), "%s", problem.text);
    tool_import_fini(&import);
    free(file);
}

/* Every element of every parameter is held against the value of its place in the file. */
static eo_status compare_parameter(void *user, const eo_parameter_info *parameter, const float *values)
{
    const int first = (int)value_at(user, parameter->name);
    for (uint64_t i = 0; i < parameter->element_count; i++)
        cr_assert_eq(values[i], value_of(first + (int)i), "%s[%d]", parameter->name, (int)i);
    return EO_OK;
}

Test(llmc, loaded_weights_are_those_of_the_file)
{
    struct tool_import import;
    struct file *file = good_file();
    eo_transformer *transformer;
    eo_plan *plan;
    eo_world *world;
    eo_runtime *runtime;
    write_file(file, 0);
    cr_assert_eq(tool_import_open(&import, path, &problem), EO_OK);
    cr_assert_eq(eo_transformer_create(&transformer, eo_transformer_params(.config = import.config)), EO_OK);
    cr_assert_eq(tool_import_bind(&import, eo_transformer_model(transformer), &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(eo_plan_create(&plan, eo_transformer_model(transformer), eo_plan_params(.rank_count = 1)), EO_OK);
    cr_assert_eq(eo_world_create_local(&world, eo_world_params(.rank_count = 1)), EO_OK);
    cr_assert_eq(eo_runtime_create(&runtime, eo_runtime_params(.plan = plan, .world = world)), EO_OK);
    cr_assert_eq(tool_import_load(&import, runtime, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(eo_weights_visit(runtime, compare_parameter, &import), EO_OK);
    eo_runtime_destroy(&runtime);
    eo_world_destroy(&world);
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
    tool_import_fini(&import);
    free(file);
}
