/* SPDX-License-Identifier: MIT
 *
 * What is trained on. Goal: batches do not depend on how many ranks share them; token files are read in llm.c's order;
 * what is wrong is refused with its reason. Method: files in a folder of the test's own, compared value by value.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run/data/batches.h"

static char folder[64];
static struct tool_problem problem;

static void make_folder(void)
{
    strcpy(folder, "/tmp/evenodd-data-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(data, .init = make_folder, .fini = remove_folder);

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static const char *write_bytes(const char *name, const void *bytes, size_t count)
{
    const char *path = path_of(name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, count, file), count);
    cr_assert_eq(fclose(file), 0);
    return path;
}

/* Token i is i % 251, so that a token tells its place. */
static const char *write_tokens(const char *name, int32_t magic, int32_t version, uint32_t count, long cut)
{
    int32_t header[256] = {magic, version, (int32_t)count};
    const size_t bytes = sizeof(header) + count * 2;
    char *file = malloc(bytes + 16);
    memcpy(file, header, sizeof(header));
    for (uint32_t i = 0; i < count; i++) {
        const uint16_t token = (uint16_t)(i % 251);
        memcpy(file + sizeof(header) + i * 2, &token, 2);
    }
    const char *path = write_bytes(name, file, (size_t)((long)bytes + cut));
    free(file);
    return path;
}

static void load_counting_text(struct tool_data *data, uint32_t count)
{
    char *bytes = malloc(count);
    for (uint32_t i = 0; i < count; i++)
        bytes[i] = (char)(1 + (i * 7 + i / 256) % 255); /* a text has no byte of value 0 */
    const char *path = write_bytes("counting", bytes, count);
    free(bytes);
    cr_assert_eq(tool_data_load_text(data, &path, 1, &problem), EO_OK, "%s", problem.text);
}

/* All sequences of a step in the global order: micro-batch, rank, sequence. */
static void gather_step(const struct tool_data *data, const struct tool_batch_shape *shape, uint64_t step, int32_t *out)
{
    int32_t targets[64 * 16];
    for (uint32_t m = 0; m < shape->micro_batches; m++)
        for (uint32_t r = 0; r < shape->rank_count; r++) {
            tool_data_batch(data, shape, 5, step, m, r, &(struct tool_batch){out, targets, NULL});
            out += shape->batch * shape->seq;
        }
}

Test(data, the_sequences_of_a_step_do_not_depend_on_how_they_are_shared)
{
    struct tool_data data;
    load_counting_text(&data, 5000);
    const struct tool_batch_shape shapes[] = {{1, 12, 16, 1}, {2, 6, 16, 1}, {3, 4, 16, 1}, {4, 3, 16, 1}, {2, 2, 16, 3}};
    int32_t first[12 * 16], other[12 * 16];
    for (uint64_t step = 0; step < 5; step++) {
        gather_step(&data, &shapes[0], step, first);
        for (size_t i = 1; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            gather_step(&data, &shapes[i], step, other);
            cr_assert_arr_eq(first, other, sizeof(first));
        }
    }
    tool_data_fini(&data);
}

Test(data, steps_and_seeds_differ_and_repeat)
{
    struct tool_data data;
    load_counting_text(&data, 5000);
    const struct tool_batch_shape shape = {1, 2, 16, 1};
    int32_t a[32], b[32], targets[32];
    tool_data_batch(&data, &shape, 1, 0, 0, 0, &(struct tool_batch){a, targets, NULL});
    tool_data_batch(&data, &shape, 1, 0, 0, 0, &(struct tool_batch){b, targets, NULL});
    cr_assert_arr_eq(a, b, sizeof(a));
    tool_data_batch(&data, &shape, 1, 1, 0, 0, &(struct tool_batch){b, targets, NULL});
    cr_assert_arr_neq(a, b, sizeof(a));
    tool_data_batch(&data, &shape, 2, 0, 0, 0, &(struct tool_batch){b, targets, NULL});
    cr_assert_arr_neq(a, b, sizeof(a));
    tool_data_fini(&data);
}

Test(data, targets_follow_their_tokens_and_the_last_tenth_is_never_trained_on)
{
    struct tool_data data;
    char bytes[1000];
    for (int i = 0; i < 1000; i++)
        bytes[i] = i < 900 ? 'a' + i % 26 : 'Z'; /* only held-back text has a Z */
    const char *path = write_bytes("text", bytes, sizeof(bytes));
    cr_assert_eq(tool_data_load_text(&data, &path, 1, &problem), EO_OK);
    cr_assert_eq(data.training_count, 900);
    const struct tool_batch_shape shape = {1, 4, 64, 1};
    int32_t tokens[256], targets[256];
    for (uint64_t step = 0; step < 200; step++) {
        tool_data_batch(&data, &shape, 1, step, 0, 0, &(struct tool_batch){tokens, targets, NULL});
        for (int i = 0; i < 256; i++) {
            cr_assert_neq(targets[i], 'Z');
            cr_assert_eq(targets[i], 'a' + (tokens[i] - 'a' + 1) % 26);
        }
    }
    tool_data_validation_batch(&data, &shape, 3, 0, &(struct tool_batch){tokens, targets, NULL});
    for (int i = 0; i < 256; i++)
        cr_assert_eq(tokens[i], 'Z');
    tool_data_fini(&data);
}

/* The sequences of a validation that count, in their order; returns how many. */
static uint32_t gather_validation(const struct tool_data *data, const struct tool_batch_shape *shape, int32_t *out)
{
    int32_t tokens[32 * 4], targets[32 * 4];
    uint32_t count = 0;
    for (uint32_t i = 0; i < 33; i++)
        for (uint32_t r = 0; r < shape->rank_count; r++) {
            tool_data_validation_batch(data, shape, i, r, &(struct tool_batch){tokens, targets, NULL});
            for (uint32_t b = 0; b < shape->batch * 4; b += 4) {
                cr_assert_eq(targets[b] < 0, targets[b + 3] < 0);
                if (targets[b] < 0)
                    continue;
                cr_assert_lt(count, 32, "more sequences than are to be looked at");
                memcpy(out + count++ * 4, tokens + b, 4 * sizeof(*out));
            }
        }
    return count;
}

/* Goal: ranks and batch change neither which held-back sequences are looked at nor their number. Method: the sequences with
 * targets, for several shapes; of many 32, of few all; none comes twice. */
Test(data, a_validation_looks_at_the_same_sequences_whatever_ranks_and_batch)
{
    const struct tool_batch_shape shapes[] = {{1, 1, 4, 1}, {1, 32, 4, 1}, {3, 5, 4, 1}, {2, 24, 4, 1}};
    const struct { uint32_t bytes, wanted; } cases[] = {{2500, 32}, {250, 6}};
    for (int c = 0; c < 2; c++) {
        struct tool_data data;
        int32_t first[32 * 4], other[32 * 4];
        load_counting_text(&data, cases[c].bytes);
        cr_assert_eq(tool_data_validation_count(&data, 4), cases[c].wanted);
        cr_assert_eq(gather_validation(&data, &shapes[0], first), cases[c].wanted);
        for (int s = 1; s < 4; s++) {
            cr_assert_eq(gather_validation(&data, &shapes[s], other), cases[c].wanted, "shape %d", s);
            cr_assert_eq(memcmp(first, other, cases[c].wanted * 4 * sizeof(*first)), 0, "shape %d", s);
        }
        for (uint32_t i = 0; i < cases[c].wanted; i++)
            for (uint32_t k = 0; k < i; k++)
                cr_assert_neq(memcmp(first + i * 4, first + k * 4, 4 * sizeof(*first)), 0, "sequence %u came before", i);
        tool_data_fini(&data);
    }
}

Test(data, folders_are_read_by_name_without_what_is_hidden_binary_or_built)
{
    mkdir(path_of("b"), 0700);
    mkdir(path_of(".git"), 0700);
    mkdir(path_of("build"), 0700);
    write_bytes("z.txt", "last", 4);
    write_bytes("b/inner.txt", "mid", 3);
    write_bytes("a.txt", "first", 5);
    write_bytes("c.bin", "\0binary", 7);
    write_bytes(".git/config", "hidden", 6);
    write_bytes("build/build.ninja", "built", 5);
    write_bytes("build/text.txt", "built", 5);
    struct tool_data data;
    const char *path = folder;
    cr_assert_eq(tool_data_load_text(&data, &path, 1, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(data.count, 12);
    cr_assert_eq(memcmp(data.tokens, "firstmidlast", 12), 0);
    cr_assert_eq(data.file_count, 3);
    tool_data_fini(&data);
}

Test(data, text_that_is_missing_empty_or_short_is_refused)
{
    struct tool_data data;
    const char *path = path_of("nothing");
    cr_assert_lt(tool_data_load_text(&data, &path, 1, &problem), 0);
    cr_assert_not_null(strstr(problem.text, "nothing"));
    path = write_bytes("empty", "", 0);
    cr_assert_lt(tool_data_load_text(&data, &path, 1, &problem), 0);
    load_counting_text(&data, 100); /* 90 to train on */
    const struct tool_batch_shape fits = {2, 1, 89, 1}, too_long = {2, 1, 90, 1}, too_many = {2, 2, 45, 1};
    cr_assert_eq(tool_data_check(&data, &fits, false, &problem), EO_OK);
    cr_assert_lt(tool_data_check(&data, &too_long, false, &problem), 0);
    cr_assert_not_null(strstr(problem.text, "shorter than a batch"));
    cr_assert_lt(tool_data_check(&data, &too_many, false, &problem), 0);
    cr_assert_lt(tool_data_check(&data, &fits, true, &problem), 0);
    cr_assert_not_null(strstr(problem.text, "--val-every"));
    tool_data_fini(&data);
}

/* Sequence by sequence: rank after rank of a micro-batch, as llm.c shares them. */
static void expect_in_order(const struct tool_data *data, const struct tool_batch_shape *shape, uint64_t step, uint64_t *next)
{
    int32_t tokens[96], targets[96];
    for (uint32_t m = 0; m < shape->micro_batches; m++)
        for (uint32_t r = 0; r < shape->rank_count; r++) {
            tool_data_batch(data, shape, 1, step, m, r, &(struct tool_batch){tokens, targets, NULL});
            for (uint32_t b = 0; b < shape->batch; b++, ++*next)
                for (uint32_t t = 0; t < 8; t++) {
                    cr_assert_eq(tokens[b * 8 + t], (int32_t)(*next % 12 * 8 + t), "step %d", (int)step);
                    cr_assert_eq(targets[b * 8 + t], tokens[b * 8 + t] + 1);
                }
        }
}

/* 100 tokens are 12 pieces of 8 and what follows the last. Ranks that go on take the next piece, in the middle of a pass too. */
Test(data, token_files_are_read_in_order_and_no_piece_is_left_out_or_read_twice_in_a_pass)
{
    struct tool_data data;
    const char *path = write_tokens("tokens.bin", 20240520, 1, 100, 0);
    cr_assert_eq(tool_data_map_tokens(&data, path, 251, false, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(data.count, 100);
    const struct tool_batch_shape shapes[] = {{2, 2, 8, 2}, {3, 1, 8, 1}, {1, 5, 8, 1}, {2, 4, 8, 1}, {1, 12, 8, 1}};
    uint64_t next = 0, step = 0;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        data.origin_step = step;
        data.origin_sequence = next;
        for (int k = 0; k < 4; k++, step++)
            expect_in_order(&data, &shapes[i], step, &next);
    }
    const struct tool_batch_shape fits[] = {{1, 12, 8, 1}, {3, 4, 8, 9}}, too_long[] = {{1, 13, 8, 1}, {9, 12, 8, 1}};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(tool_data_check(&data, &fits[i], false, &problem), EO_OK);
        cr_assert_lt(tool_data_check(&data, &too_long[i], false, &problem), 0);
    }
    tool_data_fini(&data);
}

/* 243 tokens are 30 pieces of 8 and what follows the last: 5 steps of 6 sequences are a pass. */
Test(data, shuffled_token_files_give_each_piece_once_a_pass_however_ranks_share_them)
{
    struct tool_data data;
    const char *path = write_tokens("tokens.bin", 20240520, 1, 243, 0);
    cr_assert_eq(tool_data_map_tokens(&data, path, 251, false, &problem), EO_OK, "%s", problem.text);
    data.is_shuffled = true;
    const struct tool_batch_shape shapes[] = {{1, 6, 8, 1}, {2, 3, 8, 1}, {3, 1, 8, 2}};
    int32_t own[48], other[48], passes[2][30];
    for (int pass = 0; pass < 2; pass++) {
        int seen[30] = {0};
        for (int step = 0; step < 5; step++) {
            gather_step(&data, &shapes[0], (uint64_t)(pass * 5 + step), own);
            for (int i = 1; i < 3; i++) {
                gather_step(&data, &shapes[i], (uint64_t)(pass * 5 + step), other);
                cr_assert_arr_eq(own, other, sizeof(own));
            }
            for (int b = 0; b < 6; b++) {
                cr_assert_eq(own[b * 8] % 8, 0);
                cr_assert_eq(own[b * 8 + 7], own[b * 8] + 7);
                passes[pass][step * 6 + b] = own[b * 8];
                cr_assert_eq(seen[own[b * 8] / 8]++, 0);
            }
        }
    }
    cr_assert_arr_neq(passes[0], passes[1], sizeof(passes[0]));
    gather_step(&data, &shapes[0], 3, own); /* a run that goes on: step 3 is its first */
    data.origin_step = 3;
    data.origin_sequence = 18;
    gather_step(&data, &shapes[1], 3, other);
    cr_assert_arr_eq(own, other, sizeof(own));
    cr_assert_eq(tool_data_check(&data, &(struct tool_batch_shape){9, 30, 8, 1}, false, &problem), EO_OK); /* each rank draws its own */
    cr_assert_lt(tool_data_check(&data, &(struct tool_batch_shape){1, 31, 8, 1}, false, &problem), 0);
    tool_data_fini(&data);
}

Test(data, a_token_file_of_another_magic_version_length_or_vocabulary_is_refused)
{
    struct tool_data data;
    const struct { int32_t magic, version; long cut; const char *word; } cases[] = {
        {20240521, 1, 0, "20240521"}, {20240520, 2, 0, "version 2"}, {20240520, 1, -1, "cut off"},
        {20240520, 1, 2, "header"}, {20240520, 1, -1500, "header"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *path = write_tokens("bad.bin", cases[i].magic, cases[i].version, 300, cases[i].cut);
        cr_assert_eq(tool_data_map_tokens(&data, path, 251, false, &problem), EO_ERR_INVALID);
        cr_assert_not_null(strstr(problem.text, cases[i].word), "%s", problem.text);
        cr_assert_not_null(strstr(problem.text, "bad.bin"));
    }
    const char *path = write_tokens("good.bin", 20240520, 1, 300, 0);
    cr_assert_eq(tool_data_map_tokens(&data, path, 250, false, &problem), EO_ERR_INVALID);
    cr_assert_not_null(strstr(problem.text, "token 250 is 250"), "%s", problem.text);
    cr_assert_lt(tool_data_map_tokens(&data, path_of("missing"), 251, false, &problem), 0);
    cr_assert_lt(tool_data_map_tokens(&data, folder, 251, false, &problem), 0);
}

/* Goal: several token files are one; a file of its own is held back whole. Method: the tokens that both ways give. */
Test(data, token_files_are_read_as_one_and_what_is_held_back_may_have_its_own)
{
    struct tool_data data;
    char first[256], second[256], held_back[256];
    strcpy(first, write_tokens("first.bin", 20240520, 1, 20, 0));
    strcpy(second, write_tokens("second.bin", 20240520, 1, 30, 0));
    strcpy(held_back, write_tokens("held.bin", 20240520, 1, 40, 0));
    const char *paths[] = {first, second};
    const struct tool_token_files all = {paths, 2, NULL}, apart = {paths, 2, held_back}, missing = {paths, 2, "/nothing"};
    const struct tool_batch_shape shape = {1, 2, 12, 1};
    int32_t tokens[24], targets[24];

    cr_assert_eq(tool_data_map_files(&data, &all, 251, true, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(data.count, 50);
    cr_assert_eq(data.training_count, 45);
    cr_assert_eq(data.file_count, 2);
    tool_data_batch(&data, &shape, 1, 0, 0, 0, &(struct tool_batch){tokens, targets, NULL});
    for (int i = 0; i < 24; i++) {
        cr_assert_eq(tokens[i], i < 20 ? i : i - 20);
        cr_assert_eq(targets[i], i + 1 < 20 ? i + 1 : i + 1 - 20);
    }
    tool_data_fini(&data);

    cr_assert_eq(tool_data_map_files(&data, &apart, 251, true, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(data.training_count, 50);
    cr_assert_eq(data.count, 90);
    tool_data_prompt(&data, 3, tokens);
    cr_assert(tokens[0] == 0 && tokens[1] == 1 && tokens[2] == 2);
    cr_assert_eq(tool_data_validation_count(&data, 12), 3);
    for (uint32_t b = 0; b < 8; b++) { /* of the last file alone: each sequence counts on */
        tool_data_validation_batch(&data, &shape, b, 0, &(struct tool_batch){tokens, targets, NULL});
        for (int i = 0; i < 11; i++)
            cr_assert(tokens[i + 1] == tokens[i] + 1 && targets[i] == (b < 2 ? tokens[i] + 1 : -100) && targets[11] < 40);
    }
    tool_data_fini(&data);
    cr_assert_lt(tool_data_map_files(&data, &missing, 251, true, &problem), 0);
    const char *one_bad[] = {first, "/nothing"};
    cr_assert_lt(tool_data_map_files(&data, &(struct tool_token_files){one_bad, 2, NULL}, 251, true, &problem), 0);
}

/* `count` tokens with a boundary each ten; those of [first, end) count as targets. */
static const char *write_marked(const char *name, uint32_t count, uint32_t first, uint32_t end)
{
    uint32_t header[256] = {20240520, 1, count, 0, 251, 0, 0, 0, 1};
    char *file = calloc(1, sizeof(header) + count * 3);
    memcpy(header + 3, "EOTK", 4);
    memcpy(file, header, sizeof(header));
    for (uint32_t i = 0; i < count; i++) {
        const uint16_t token = (uint16_t)(i % 10);
        memcpy(file + sizeof(header) + i * 2, &token, 2);
        file[sizeof(header) + count * 2 + i / 8] |= (char)((i >= first && i < end) << i % 8);
    }
    const char *path = write_bytes(name, file, sizeof(header) + count * 2 + (count + 7) / 8);
    free(file);
    return path;
}

/* Goal: no validation without a target, which would have no loss. Method: what counts lies before, in and behind the last tenth
 * of 1000 tokens; in a file of its own; packed and not. */
Test(data, held_back_tokens_of_which_none_counts_are_refused)
{
    const struct tool_batch_shape shape = {1, 1, 8, 1};
    const struct { uint32_t first, end; const char *word; } cases[] = {
        {0, 900, "--tokens: the last tenth: none of the tokens counts in the loss, in any of the "}, {0, 901, "the last tenth"},
        {0, 902, NULL}, {900, 1000, "none of the tokens counts in the loss; tools/tokenize"},
    };
    for (int c = 0; c < 8; c++) {
        struct tool_data data;
        const char *path = write_marked("marked.bin", 1000, cases[c / 2].first, cases[c / 2].end), *word = cases[c / 2].word;
        const struct tool_token_files files = {&path, 1, NULL};
        eo_status status = tool_data_map_files(&data, &files, 251, true, &problem);
        const bool is_mapped = status >= 0;
        if (is_mapped && c % 2)
            status = tool_data_pack(&data, shape.seq, &problem);
        if (status >= 0)
            status = tool_data_check(&data, &shape, true, &problem);
        cr_assert_eq(status, word ? EO_ERR_INVALID : EO_OK, "case %d: %s", c, problem.text);
        cr_assert(!word || strstr(problem.text, word), "case %d: %s", c, problem.text);
        if (is_mapped) {
            cr_assert_eq(tool_data_check(&data, &shape, false, &problem), EO_OK, "no validation, nothing to refuse");
            tool_data_fini(&data);
        }
    }
    char train[256];
    strcpy(train, write_marked("marked.bin", 1000, 0, 1000));
    const char *path = train;
    const struct tool_token_files apart = {&path, 1, write_marked("apart.bin", 1000, 0, 0)};
    struct tool_data data;
    cr_assert_eq(tool_data_map_files(&data, &apart, 251, true, &problem), EO_ERR_INVALID);
    cr_assert_not_null(strstr(problem.text, "--val-tokens"), "%s", problem.text);
}

/* Goal: what is no text is refused where it is named; JSON is trained on and told. */
Test(data, files_that_are_no_text_are_refused_and_json_is_told)
{
    struct tool_data data;
    const struct { const char *name, *bytes; size_t count; const char *word; } cases[] = {
        {"a.parquet", "PAR1abcdefgh", 12, "Parquet"}, {"b.gz", "\x1f\x8b\x08\x01xyz", 7, "gzip"},
        {"c.txt", "text\0text", 9, "value 0"}, {"d.bin", "\x88\xd8\x34\x01", 4, "token file"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *path = write_bytes(cases[i].name, cases[i].bytes, cases[i].count);
        cr_assert_eq(tool_data_load_text(&data, &path, 1, &problem), EO_ERR_INVALID);
        cr_assert(strstr(problem.text, cases[i].word) && strstr(problem.text, cases[i].name), "%s", problem.text);
    }
    const char *path = write_bytes("e.jsonl", "{\"text\":\"a\"}\n", 13);
    cr_assert_eq(tool_data_load_text(&data, &path, 1, &problem), EO_OK);
    cr_assert(strstr(data.warning, "e.jsonl") && strstr(data.warning, "jq"), "%s", data.warning);
    tool_data_fini(&data);
    path = write_bytes("f.txt", "plain \xc3\xa4\n", 9);
    cr_assert_eq(tool_data_load_text(&data, &path, 1, &problem), EO_OK);
    cr_assert_eq(data.warning[0], '\0');
    tool_data_fini(&data);
}

Test(data, a_token_file_that_holds_no_round_is_refused)
{
    struct tool_data data;
    const char *path = write_tokens("tokens.bin", 20240520, 1, 32, 0);
    cr_assert_eq(tool_data_map_tokens(&data, path, 251, false, &problem), EO_OK);
    const struct tool_batch_shape shape = {2, 2, 8, 1}; /* needs one more: the last target */
    cr_assert_lt(tool_data_check(&data, &shape, false, &problem), 0);
    tool_data_fini(&data);
}
