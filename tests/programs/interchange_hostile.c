/* SPDX-License-Identifier: MIT
 *
 * Folders of weights that are not what they say. Goal: each is refused with the file, the field and the value, or taken;
 * nothing is read outside of the files, and nothing crashes.
 * Method: one good folder, changed in one place each; then thousands of changes by chance, from fixed seeds.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/programs/interchange_ranks.h"
#include "tests/unit/tools/chance.h"
#include "tools/interchange/export/export.h"
#include "tools/interchange/import.h"
#include "tools/interchange/safetensors_header.h"

enum { TEXT_MAX = 1 << 16 };

static char folder[] = "/tmp/evenodd-hostile-XXXXXX", path[sizeof(folder) + 80];
static struct tool_problem problem;
static struct ranks ranks;

static const eo_transformer_config config = {.family = EO_FAMILY_GPT2, .layer_count = 1, .width = 8, .head_count = 2,
                                             .vocabulary = 11, .context = 4, .tied_head = true};

/* A file's text: for safetensors the header, with the data behind it. */
struct part {
    char name[64], text[TEXT_MAX];
    size_t text_bytes, data_bytes;
    char data[TEXT_MAX];
    bool is_header;
};

static void name_path(const char *name)
{
    snprintf(path, sizeof(path), "%s/m/%s", folder, name);
}

static void read_part(struct part *part, const char *name)
{
    unsigned char length[8];
    memset(part, 0, sizeof(*part));
    snprintf(part->name, sizeof(part->name), "%s", name);
    part->is_header = strstr(name, ".safetensors") && !strstr(name, ".json");
    name_path(name);
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s", path);
    part->text_bytes = sizeof(part->text) - 1;
    if (part->is_header) {
        cr_assert_eq(fread(length, 1, 8, file), 8);
        part->text_bytes = length[0] | (size_t)length[1] << 8;
    }
    part->text_bytes = fread(part->text, 1, part->text_bytes, file);
    part->data_bytes = fread(part->data, 1, sizeof(part->data), file);
    fclose(file);
}

static void write_part(const struct part *part)
{
    name_path(part->name);
    FILE *file = fopen(path, "wb");
    cr_assert(file);
    for (int i = 0; part->is_header && i < 8; i++)
        fputc((int)((uint64_t)part->text_bytes >> (8 * i) & 255), file);
    fwrite(part->text, 1, part->text_bytes, file);
    fwrite(part->data, 1, part->data_bytes, file);
    fclose(file);
}

/* One tensor a file or so: there is an index. */
static void make_folder(void)
{
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/m", folder);
    ranks_init(&ranks, &config, 1, EO_DTYPE_FP32, 4);
    const struct tool_export_model model = {.model = ranks_model(&ranks), .config = ranks.config};
    const struct tool_export_settings settings = {.path = path, .file_bytes = 1500};
    struct tool_export export;
    static float values[4096];
    cr_assert_eq(tool_export_begin(&export, &settings, &model, &problem), EO_OK, "%s", problem.text);
    for (uint32_t k = 0; k < eo_model_parameter_count(model.model); k++)
        tool_export_put(&export, k, values);
    cr_assert_eq(tool_export_end(&export, &problem), EO_OK, "%s", problem.text);
}

static void remove_folder(void)
{
    char command[sizeof(folder) + 16];
    ranks_fini(&ranks);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(hostile, .init = make_folder, .fini = remove_folder, .timeout = 600);

/* All that is done with a folder: every element of every parameter is read. */
static eo_status use(void)
{
    struct tool_import import;
    static float values[4096];
    snprintf(path, sizeof(path), "%s/m", folder);
    problem.text[0] = '\0';
    eo_status status = tool_import_open(&import, path, &problem);
    if (status < 0)
        return status;
    status = tool_import_check(&import, "tiny", &ranks.config, &problem);
    if (status >= 0)
        status = tool_import_bind(&import, ranks_model(&ranks), &problem);
    for (uint32_t k = 0; status >= 0 && k < import.tensor_count; k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(ranks_model(&ranks), k, &info), EO_OK);
        cr_assert_leq(info.element_count, 4096);
        status = tool_import_read(&import, k, 0, info.element_count, values, &problem);
    }
    tool_import_fini(&import);
    return status;
}

static void replace(struct part *part, const char *from, const char *to)
{
    static char text[TEXT_MAX];
    char *at = strstr(part->text, from);
    cr_assert(at, "'%s' is not in %s", from, part->text);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - part->text), part->text, to, at + strlen(from));
    memcpy(part->text, text, sizeof(text));
    part->text_bytes = strlen(text);
}

Test(hostile, what_a_folder_says_falsely_is_refused_by_file_field_and_value)
{
    static const char index[] = "model.safetensors.index.json", first[] = "model-00001-of-00003.safetensors";
    static const struct {
        const char *file, *from, *to, *words[3];
    } cases[] = {
        {index, "\"model-00001-of-00003.safetensors\"", "\"../secret.safetensors\"",
         {"index.json", "'wte.weight'", "'../secret.safetensors'"}},
        {index, "\"model-00001-of-00003.safetensors\"", "\"/etc/passwd\"", {"'/etc/passwd'", "not a plain name", "index.json"}},
        {index, "\"model-00001-of-00003.safetensors\"", "\"..\"", {"'..'", "not a plain name", "index.json"}},
        {index, "\"model-00001-of-00003.safetensors\"", "\"\"", {"''", "not a plain name", "index.json"}},
        {index, "\"model-00001-of-00003.safetensors\"", "7", {"(no string)", "not a plain name", "index.json"}},
        {index, "\"model-00001-of-00003.safetensors\"", "null", {"(no string)", "not a plain name", "index.json"}},
        {index, "\"model-00001-of-00003.safetensors\"", "\"none.safetensors\"", {"4 files; of these only 3", "index.json", ""}},
        {index, "\"model-00001-of-00003.safetensors\"", "\"model-00002-of-00003.safetensors\"",
         {"'wte.weight' should be in", "model-00002", "but is in model-00001"}},
        {index, "\"weight_map\"", "\"weight_mop\"", {"has no weight_map", "index.json", ""}},
        {index, "\"wpe.weight\"", "\"wte.weight\"", {"duplicate", "index.json", ""}},
        {index, "\"wpe.weight\"", "\"wxe.weight\"", {"'wxe.weight'", "in none of its files", ""}},
        {first, "\"F32\"", "\"I32\"", {"'wte.weight' has dtype I32", "F32, BF16 and F16", first}},
        {first, "\"F32\"", "null", {"dtype '(none)'", "wte.weight", first}},
        {first, "\"F32\"", "\"F64\"", {"88 elements of F64, but 352 bytes", "wte.weight", first}},
        {first, "[11,8]", "[8,11]", {"has shape [8,11], but [11,8]", "wte.weight", ""}},
        {first, "[11,8]", "[88]", {"has shape [88]", "wte.weight", ""}},
        {first, "[11,8]", "[11,8,0]", {"0 elements of F32", "wte.weight", first}},
        {first, "[11,8]", "[4294967296,4294967296]", {"too large", "wte.weight", first}},
        {first, "[11,8]", "[null,8]", {"invalid shape", "wte.weight", first}},
        {first, "[0,352]", "[0,18446744073709551615]", {"header:", first, ""}},
        {first, "[0,352]", "[4,356]", {"", first, ""}},
        {first, "[0,352]", "[0,9223372036854775807]", {"outside the file", "wte.weight", first}},
        {first, "[0,352]", "null", {"lacks its shape", "wte.weight", first}},
        {first, "\"wpe.weight\"", "\"wte.weight\"", {"duplicate", first, ""}},
        {first, "\"wpe.weight\"", "\"h.9.ln_1.bias\"", {"'wpe.weight' is in none of its files", "index.json", ""}},
        {index, "\"wpe.weight\": \"model-00001-of-00003.safetensors\",", "",
         {"does not name tensor 'wpe.weight'", "index.json", first}},
        {"config.json", "\"n_embd\": 8", "\"n_embd\": 16", {"but [11,16]", "wte.weight", ""}},
        {"config.json", "\"n_layer\": 1", "\"n_layer\": 2", {"missing", "h.1.", ""}},
        {"config.json", "\"gpt2\"", "\"bert\"", {"config.json", "'bert'", ""}},
        {"config.json", "\"n_embd\": 8", "\"n_embd\": null", {"n_embd is missing", "config.json", ""}},
    };
    static struct part good, bad;
    cr_assert_eq(use(), EO_OK, "%s", problem.text);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        read_part(&good, cases[i].file);
        bad = good;
        replace(&bad, cases[i].from, cases[i].to);
        write_part(&bad);
        cr_assert_lt(use(), 0, "%s for %s in %s is taken", cases[i].to, cases[i].from, cases[i].file);
        for (int w = 0; w < 3; w++)
            cr_assert(strstr(problem.text, cases[i].words[w]), "%s for %s: '%s'", cases[i].to, cases[i].from,
                      problem.text);
        write_part(&good);
    }
    cr_assert_eq(use(), EO_OK, "%s", problem.text);
}

Test(hostile, an_index_with_a_wrong_total_is_taken_for_the_files_say_it)
{
    static const char *const totals[] = {"\"total_size\": 1", "\"total_size\": -", "\"total_size\": 0."};
    static struct part good, bad;
    read_part(&good, "model.safetensors.index.json");
    for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
        bad = good;
        replace(&bad, "\"total_size\": ", totals[i]);
        write_part(&bad);
        cr_assert_eq(use(), EO_OK, "%s: %s", totals[i], problem.text);
    }
    write_part(&good);
}

static void value_at(uint32_t bits, const char *words)
{
    static struct part part, kept;
    read_part(&part, "model-00001-of-00003.safetensors");
    kept = part;
    memcpy(part.data + 4 * 9, &bits, 4);
    write_part(&part);
    cr_assert_eq(use(), EO_ERR_INVALID);
    cr_assert(strstr(problem.text, words), "%s", problem.text);
    write_part(&kept);
}

Test(hostile, values_that_are_not_finite_are_named_by_tensor_and_element)
{
    value_at(0x7fc00000, "element 9 of 'wte.weight' is nan");
    value_at(0x7f800000, "element 9 of 'wte.weight' is inf");
    value_at(0xff800000, "element 9 of 'wte.weight' is -inf");
    cr_assert_eq(use(), EO_OK, "%s", problem.text);
}

Test(hostile, folders_that_lack_a_part_say_which)
{
    static struct part part;
    static const struct { const char *file, *words; } cases[] = {
        {"config.json", "config.json: No such file"}, {"model-00003-of-00003.safetensors", "names 3 files; of these only 2"},
        {"model.safetensors.index.json", "has neither model.safetensors nor"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        read_part(&part, cases[i].file);
        name_path(cases[i].file);
        cr_assert_eq(unlink(path), 0);
        cr_assert_lt(use(), 0);
        cr_assert(strstr(problem.text, cases[i].words), "%s", problem.text);
        name_path(cases[i].file);
        cr_assert_eq(mkfifo(path, 0600), 0); /* is not waited for */
        cr_assert_lt(use(), 0);
        name_path(cases[i].file);
        cr_assert_eq(unlink(path), 0);
        write_part(&part);
        cr_assert_eq(use(), EO_OK, "%s", problem.text);
    }
}

/* transformers leaves the index of an earlier model there where it saves one file, and reads that file. */
Test(hostile, one_file_is_read_whatever_an_index_beside_it_says)
{
    static struct part part;
    static float values[4096];
    char one[sizeof(folder) + 32];
    snprintf(path, sizeof(path), "%s/one", folder);
    const struct tool_export_model model = {.model = ranks_model(&ranks), .config = ranks.config};
    struct tool_export export;
    cr_assert_eq(tool_export_begin(&export, &(struct tool_export_settings){.path = path, .file_bytes = 1 << 30}, &model, &problem), EO_OK, "%s", problem.text);
    for (uint32_t k = 0; k < eo_model_parameter_count(model.model); k++)
        tool_export_put(&export, k, values);
    cr_assert_eq(tool_export_end(&export, &problem), EO_OK, "%s", problem.text);
    read_part(&part, "model.safetensors.index.json");
    replace(&part, "\"wpe.weight\"", "\"other.weight\"");
    write_part(&part);
    cr_assert_lt(use(), 0, "the index says falsely");
    snprintf(one, sizeof(one), "%s/one/model.safetensors", folder);
    name_path("model.safetensors");
    cr_assert_eq(rename(one, path), 0);
    cr_assert_eq(use(), EO_OK, "%s", problem.text);
    read_part(&part, "model.safetensors");
    replace(&part, "\"wpe.weight\"", "\"module.wpe.weight\"");
    write_part(&part);
    cr_assert_lt(use(), 0);
    cr_assert(strstr(problem.text, "of this config; take 'module.' off the names"), "%s", problem.text);
}

static void write_text(const char *name, const char *text)
{
    name_path(name);
    FILE *file = fopen(path, "wb");
    cr_assert(file);
    fprintf(file, "%-400s", text);
    fclose(file);
}

static void refuses(const char *what, const char *words)
{
    cr_assert_lt(use(), 0, "%s is taken", what);
    cr_assert(strstr(problem.text, words), "%s: %s", what, problem.text);
}

static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1234567\n";

Test(hostile, files_that_are_something_else_are_called_by_what_they_are)
{
    static const struct {
        const char *text, *words;
    } cases[] = {{"PK\003\004 and so on", "a file of PyTorch or NumPy"},
                 {"\x80\002\x8a\n and so on", "a file of PyTorch or NumPy"},
                 {"GGUF\003", "this is GGUF"},
                 {"<!DOCTYPE html>", "a page of the web"},
                 {pointer, "git lfs pull"}};
    static struct part part;
    static const char first[] = "model-00001-of-00003.safetensors";
    struct tool_import import;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_text("model.safetensors", cases[i].text);
        if (cases[i].text == pointer) /* beside an index whose files are there */
            cr_assert_eq(use(), EO_OK, "%s", problem.text);
        else
            refuses(cases[i].text, cases[i].words);
        write_text("m.bin", cases[i].text);
        for (off_t bytes = 100; bytes <= 4096; bytes += 3996) { /* fewer than a header of llm.c, and more */
            name_path("m.bin");
            cr_assert_eq(truncate(path, bytes), 0);
            cr_assert_lt(tool_import_open(&import, path, &problem), 0);
            cr_assert(strstr(problem.text, cases[i].words), "%s", problem.text);
        }
    }
    name_path("model.safetensors");
    cr_assert_eq(unlink(path), 0);
    read_part(&part, first);
    write_text(first, pointer);
    refuses("a pointer of Git LFS beside two files", "of these only 2 are there; get those that are pointers of Git LFS");
    write_part(&part);
    name_path("model.safetensors");
    cr_assert_eq(symlink("gone", path), 0);
    refuses("a link to nothing", "model.safetensors: No such file");
    name_path("model.safetensors");
    cr_assert_eq(unlink(path), 0);
    name_path("model.safetensors.index.json");
    cr_assert_eq(unlink(path), 0);
    write_text("model.safetensors", pointer);
    refuses("a pointer of Git LFS alone", "git lfs pull");
    name_path("model.safetensors");
    cr_assert_eq(unlink(path), 0);
    write_text("pytorch_model.bin", "PK");
    refuses("a pickle alone", "pytorch_model.bin is there, of pickles");
}

/* A config without its weights is planned all the same. */
Test(hostile, a_pointer_of_git_lfs_is_no_file_for_a_plan)
{
    static struct tool_model_config read;
    struct tool_safetensors_check check;
    snprintf(path, sizeof(path), "%s/m", folder);
    cr_assert_eq(tool_model_config_load(&read, path, NULL, 0, &problem), EO_OK, "%s", problem.text);
    write_text("model-00001-of-00003.safetensors", pointer);
    write_text("model-00002-of-00003.safetensors", pointer);
    write_text("model-00003-of-00003.safetensors", pointer);
    snprintf(path, sizeof(path), "%s/m", folder);
    cr_assert_eq(tool_safetensors_check(path, &read, &check, &problem), EO_OK, "%s", problem.text);
    cr_assert(check.index_only && check.has_pointers);
    refuses("an index of pointers", "pointers of Git LFS");
}

Test(hostile, surplus_tensors_are_named_with_what_can_be_done)
{
    static const struct {
        const char *name, *words;
    } cases[] = {{"language_model.wpe.weight", "take 'language_model.' off the names"},
                 {"model._orig_mod.wpe.weight", "take 'model._orig_mod.' off the names"},
                 {"h.0._fsdp_wrapped_module.w", "take '_fsdp_wrapped_module.' out of the names"},
                 {"h.0.attn.c_attn.qweight", "the weights are quantized"},
                 {"h.0.attn.c_attn.weight.quant_state.bitsandbytes__nf4", "the weights are quantized"},
                 {"transformer.wte.weight", "'transformer.wte.weight' is there twice"},
                 {"v_head.summary.bias", "'v_head.summary.bias' does not belong to a model of this config"}};
    static struct part good, bad, index;
    char more[96], many[2048] = "";
    read_part(&good, "model-00001-of-00003.safetensors");
    read_part(&index, "model.safetensors.index.json");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(more, sizeof(more), "\"%s\"", cases[i].name);
        bad = good;
        replace(&bad, "\"wpe.weight\"", more);
        write_part(&bad);
        bad = index;
        replace(&bad, "\"wpe.weight\"", more);
        write_part(&bad);
        refuses(cases[i].name, cases[i].words);
    }
    for (int i = 0; i < 24; i++) /* more than the model may have, which is refused before names are compared */
        snprintf(many + strlen(many), sizeof(many) - strlen(many),
                 "\"h.%d.scales\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[0,0]},", i);
    snprintf(many + strlen(many), sizeof(many) - strlen(many), "\"wpe.weight\"");
    bad = good;
    replace(&bad, "\"wpe.weight\"", many);
    write_part(&bad);
    write_part(&index);
    refuses("24 tensors more", "'h.0.scales' does not belong to a model of this config; the weights are quantized");
}

Test(hostile, a_tied_head_may_stand_for_the_embedding_but_must_have_its_shape)
{
    static struct part part;
    read_part(&part, "model.safetensors.index.json");
    replace(&part, "\"wte.weight\"", "\"lm_head.weight\"");
    write_part(&part);
    read_part(&part, "model-00001-of-00003.safetensors");
    replace(&part, "\"wte.weight\"", "\"lm_head.weight\"");
    write_part(&part);
    cr_assert_eq(use(), EO_OK, "%s", problem.text);
    replace(&part, "[11,8]", "[8,11]");
    write_part(&part);
    refuses("a head of another shape", "'lm_head.weight' has shape [8,11], but [11,8]");
}

Test(hostile, an_empty_tensor_and_a_padded_vocabulary_are_told)
{
    static struct part good, bad;
    read_part(&good, "model-00001-of-00003.safetensors");
    bad = good;
    replace(&bad, "[11,8]", "[12,8]");
    replace(&bad, "[4,8]", "[3,8]");
    replace(&bad, "[0,352]", "[0,384]");
    replace(&bad, "[352,480]", "[384,480]");
    write_part(&bad);
    refuses("twelve words",
            "'wte.weight' has shape [12,8], but [11,8] by the config; a padded vocabulary is read with vocab_size 12");
    bad = good;
    replace(&bad, "[11,8]", "[0]");
    replace(&bad, "[0,352]", "[0,0]");
    replace(&bad, "[4,8]", "[120]");
    replace(&bad, "[352,480]", "[0,480]");
    write_part(&bad);
    refuses("no word", "'wte.weight' has shape [0], but [11,8] by the config; it is empty");
}

/* Old files have masks of GPT-2's attention, which nothing reads. */
Test(hostile, an_index_may_name_other_buffers_than_the_files_have)
{
    static const char mask[] = "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},";
    static struct part part;
    char more[160];
    read_part(&part, "model.safetensors.index.json");
    replace(&part, "\"wpe.weight\"", "\"h.0.attn.bias\": \"model-00001-of-00003.safetensors\", \"wpe.weight\"");
    write_part(&part);
    cr_assert_eq(use(), EO_OK, "%s", problem.text);
    read_part(&part, "model-00001-of-00003.safetensors");
    snprintf(more, sizeof(more), "\"h.0.attn.masked_bias\":%s\"wpe.weight\"", mask);
    replace(&part, "\"wpe.weight\"", more);
    write_part(&part);
    cr_assert_eq(use(), EO_OK, "%s", problem.text);
}

/* --- by chance ---------------------------------------------------------------------------------------------------- */

static void mutate(struct part *part, uint64_t *state)
{
    static const char *const pieces[] = {
        "null", "-1", "1e999", "18446744073709551616", "9223372036854775807", "4294967296", "{", "}", "[", "]", "\"", ",",
        ":", "0", "1", "[0,0]", "\"F16\"", "\"BF16\"", "\\u0000", "\xff", "..", "/", "\"__metadata__\":{},", " "};
    part->text_bytes =
        mutate_text(part->text, part->text_bytes, TEXT_MAX, pieces, sizeof(pieces) / sizeof(pieces[0]), 3, 9, state);
    if (next_random(state) % 8 == 0 && part->data_bytes)
        part->data_bytes -= next_random(state) % part->data_bytes;
}

Test(hostile, folders_changed_by_chance_end_in_weights_or_a_message)
{
    static const char *const names[] = {"config.json", "model.safetensors.index.json",
                                        "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"};
    static struct part good, bad;
    uint64_t state = 88172645463325252u;
    const int rounds = getenv("EO_TEST_FULL") ? 8000 : 400;
    int refused = 0, taken = 0;
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        read_part(&good, names[n]);
        for (int round = 0; round < rounds; round++) {
            bad = good;
            mutate(&bad, &state);
            write_part(&bad);
            if (use() < 0) {
                cr_assert(problem.text[0], "no message");
                refused++;
            } else {
                taken++;
            }
        }
        write_part(&good);
    }
    cr_assert(refused > rounds && taken > 0, "%d refused, %d taken", refused, taken);
    cr_assert_eq(use(), EO_OK, "%s", problem.text);
}
