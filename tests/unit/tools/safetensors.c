/* SPDX-License-Identifier: MIT
 *
 * Headers of safetensors files: which are refused, and how they are held against a config.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/tools/chance.h"
#include "tools/interchange/safetensors_header.h"

static struct tool_model_config config;
static struct tool_problem problem;
static char folder[] = "/tmp/eo-safetensors-XXXXXX", path[sizeof(folder) + 64];

static void write_file(const char *name, const void *header, uint64_t header_bytes, uint64_t says, uint64_t data_bytes)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    for (int i = 0; i < 8; i++)
        fputc((int)(says >> (8 * i) & 255), file);
    fwrite(header, 1, header_bytes, file);
    fflush(file);
    cr_assert_eq(ftruncate(fileno(file), (off_t)(8 + header_bytes + data_bytes)), 0);
    fclose(file);
}

static eo_status read_header(const char *header, uint64_t data_bytes)
{
    json_t *tensors = json_object();
    uint64_t bytes = 0;
    problem.text[0] = '\0';
    write_file("t.safetensors", header, strlen(header), strlen(header), data_bytes);
    const eo_status status = tool_safetensors_read(path, 100, tensors, &bytes, &problem);
    json_decref(tensors);
    return status;
}

static void make_folder(void)
{
    cr_assert(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[sizeof(folder) + 16];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(safetensors, .init = make_folder, .fini = remove_folder);

Test(safetensors, headers_that_lie_are_refused_by_tensor)
{
#define F32(name, shape, from, to) "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"
    cr_assert_geq(read_header("{" F32("a", "[2,3]", "0", "24") "," F32("b", "[]", "24", "28") "}  ", 28), 0, "%s", problem.text);
    cr_assert_geq(read_header("{\"__metadata__\":{\"format\":\"pt\"}," F32("a", "[0]", "0", "0") "}", 0), 0, "%s", problem.text);
    static const struct {
        const char *header, *words;
        uint64_t data_bytes;
    } cases[] = {
        {"{" F32("a", "[2,3]", "0", "20") "}", "6 elements of F32, but 20 bytes", 20},
        {"{" F32("a", "[2]", "0", "8") "," F32("b", "[2]", "4", "12") "}", "inside another one", 12},
        {"{" F32("a", "[2]", "0", "8") "," F32("b", "[2]", "12", "20") "}", "after a hole", 20},
        {"{" F32("a", "[2]", "0", "8") "}", "the file at 12", 12},
        {"{" F32("a", "[2]", "0", "8") "}", "outside the file", 4},
        {"{" F32("a", "[2]", "8", "0") "}", "outside the file", 8},
        {"{" F32("a", "[-2]", "0", "8") "}", "invalid shape", 8},
        {"{" F32("a", "[4294967296,4294967296]", "0", "8") "}", "too large", 8},
        {"{" F32("a", "[9223372036854775807]", "0", "8") "}", "elements of F32", 8},
        {"{" F32("a", "[2]", "0", "8") "," F32("a", "[2]", "8", "16") "}", "duplicate", 16},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", "unknown dtype 'F33'", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "lacks", 8},
        {"{\"a\":7}", "is not an object", 8},
        {"[]", "does not begin with '{'", 0},
        {"{\"a\":", "header:", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_assert_lt(read_header(cases[i].header, cases[i].data_bytes), 0, "%s is taken", cases[i].header);
        cr_assert(strstr(problem.text, cases[i].words), "%s: '%s'", cases[i].header, problem.text);
    }
    /* Sizes that lie: more header than file, more than may be; and 100 MB that are no header. */
    json_t *tensors = json_object();
    uint64_t bytes = 0;
    static const uint64_t says[] = {3, 1000, UINT64_MAX, 100000001, 100000000};
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++) {
        write_file("t.safetensors", "{}", 2, says[i], says[i] == 100000000 ? 100000000 : 0);
        cr_assert_lt(tool_safetensors_read(path, 100, tensors, &bytes, &problem), 0, "a header of %llu bytes is taken",
                     (unsigned long long)says[i]);
    }
    json_decref(tensors);
}

Test(safetensors, mutated_headers_end_in_tensors_or_a_message, .timeout = 120)
{
    uint64_t state = 1234567u;
    char text[1024];
    uint32_t refused = 0;
    for (int round = 0; round < 3000; round++) {
        snprintf(text, sizeof(text), "{" F32("a", "[2,3]", "0", "24") "," F32("b", "[1]", "24", "28") "}");
        const size_t bytes = mutate_json(text, strlen(text), sizeof(text), &state);
        json_t *tensors = json_object();
        uint64_t sum = 0;
        write_file("t.safetensors", text, bytes, bytes, 28);
        problem.text[0] = '\0';
        if (tool_safetensors_read(path, 100, tensors, &sum, &problem) < 0) {
            refused++;
            cr_assert(problem.text[0]);
        }
        json_decref(tensors);
    }
    cr_assert_gt(refused, 1000);
}

static void read_gpt2(void)
{
    static const char text[] = "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"vocab_size\":99}";
    cr_assert_geq(tool_model_config_parse(&config, "c.json", text, strlen(text), NULL, 0, &problem), 0, "%s", problem.text);
}

/* All tensors of a config, one after the other, as fp32; `change` may spoil one. */
static void write_model(const char *change)
{
    json_t *wanted = tool_model_config_tensors(&config), *header = json_object(), *shape;
    const char *name;
    uint64_t at = 0;
    json_object_foreach(wanted, name, shape) {
        uint64_t elements = 1;
        for (size_t d = 0; d < json_array_size(shape); d++)
            elements *= (uint64_t)json_integer_value(json_array_get(shape, d));
        if (strcmp(change, "missing") == 0 && strcmp(name, "ln_f.bias") == 0)
            continue;
        const bool other = strcmp(change, "shape") == 0 && strcmp(name, "ln_f.bias") == 0;
        json_object_set_new(header, name, json_pack("{s:s, s:O, s:[I, I]}", "dtype", "F32", "shape", shape,
            "data_offsets", (json_int_t)at, (json_int_t)(at + 4 * elements)));
        if (other)
            json_object_set_new(json_object_get(header, name), "shape", json_pack("[i, I]", 1, (json_int_t)elements));
        at += 4 * elements;
    }
    if (strcmp(change, "buffer") == 0) {
        json_object_set_new(header, "h.0.attn.bias", json_pack("{s:s, s:[i], s:[I, I]}", "dtype", "F32", "shape", 4,
            "data_offsets", (json_int_t)at, (json_int_t)(at + 16)));
        at += 16;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    write_file("model.safetensors", text, strlen(text), strlen(text), at);
    free(text);
    json_decref(wanted);
    json_decref(header);
}

Test(safetensors, files_beside_a_config_are_held_against_it)
{
    struct tool_safetensors_check check;
    read_gpt2();
    cr_assert_geq(tool_safetensors_check(folder, &config, &check, &problem), 0);
    cr_assert_not(check.found);
    write_model("");
    cr_assert_geq(tool_safetensors_check(folder, &config, &check, &problem), 0, "%s", problem.text);
    cr_assert(check.found && check.element_count == tool_model_config_parameters(&config));
    write_model("buffer");
    cr_assert_geq(tool_safetensors_check(folder, &config, &check, &problem), 0, "%s", problem.text);
    cr_assert_eq(check.buffer_count, 1);
    write_model("missing");
    cr_assert_lt(tool_safetensors_check(folder, &config, &check, &problem), 0);
    cr_assert(strstr(problem.text, "'ln_f.bias'"), "%s", problem.text);
    write_model("shape");
    cr_assert_lt(tool_safetensors_check(folder, &config, &check, &problem), 0);
    cr_assert(strstr(problem.text, "but [64]"), "%s", problem.text);
}

/* Parsed, a header of 100 MB of zeros would take 2 GB. */
Test(safetensors, a_header_larger_than_the_model_needs_is_refused_before_it_is_parsed)
{
    enum { HEADER_BYTES = 1400000 }; /* 28 tensors: 1 MiB and 56 times 4 KiB */
    struct tool_safetensors_check check;
    read_gpt2();
    char *header = malloc(HEADER_BYTES);
    cr_assert(header);
    memset(header, '0', HEADER_BYTES);
    for (int i = 6; i < HEADER_BYTES; i += 2)
        header[i] = ',';
    memcpy(header, "{\"a\":[", 6);
    memcpy(header + HEADER_BYTES - 2, "]}", 2);
    write_file("model.safetensors", header, HEADER_BYTES, HEADER_BYTES, 0);
    cr_assert_lt(tool_safetensors_check(folder, &config, &check, &problem), 0);
    cr_assert(strstr(problem.text, "a header of this model at most"), "%s", problem.text);
    free(header);
}

Test(safetensors, names_with_control_characters_do_not_reach_the_terminal)
{
    cr_assert_lt(read_header("{\"\\u001b[31m\":7}", 8), 0);
    cr_assert(strstr(problem.text, "'?[31m'"), "%s", problem.text);
}
