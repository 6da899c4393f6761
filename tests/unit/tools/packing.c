/* SPDX-License-Identifier: MIT
 *
 * Documents packed into rows. Goal: every pair of a token and the next one of its document is in one row, once; nothing crosses
 * a boundary, but that a text's last target is the boundary behind it; targets that do not count are -100; the order follows
 * from the seed, for any number of ranks.
 * Method: a token file written here, whose tokens tell document and place.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/run/data/batches.h"

enum { BOUNDARY = 7, SEQ = 16, DOCUMENTS = 60, TOKENS_MAX = 4000, VOCABULARY = 65000, PATH_BYTES = 64 };

static char path[PATH_BYTES];
static struct tool_problem problem;
static uint16_t all[TOKENS_MAX];
static uint32_t count, own_end; /* the header's field: 0, or a token for the end, and one */

/* A document d of `length` tokens behind its boundary: 1000 (d + 1) + place; every third ends with a boundary of its own. */
static void add_document(uint32_t d, uint32_t length)
{
    all[count++] = BOUNDARY;
    for (uint32_t i = 0; i < length; i++)
        all[count++] = (uint16_t)(1000 * (d + 1) + i);
    if (d % 3 == 0)
        all[count++] = BOUNDARY;
}

/* [first, end) of `all`, in a file whose name is written to `to`. */
static void write_part(char *to, uint32_t first, uint32_t end, uint32_t boundary, bool marks)
{
    const uint16_t vocabulary[2] = {(uint16_t)VOCABULARY, 0};
    uint32_t header[256] = {20240520, 1, end - first, 0, 0, boundary, 0, 0, marks, own_end};
    memcpy((char *)header + 12, "EOTK", 4);
    memcpy((char *)header + 16, vocabulary, 4);
    strcpy(to, "/tmp/evenodd-packing-XXXXXX");
    const int descriptor = mkstemp(to);
    FILE *file = fdopen(descriptor, "w");
    cr_assert_not_null(file);
    fwrite(header, sizeof(header), 1, file);
    fwrite(all + first, sizeof(*all), end - first, file);
    for (uint32_t i = 0; marks && i < (end - first + 7) / 8; i++)
        fputc(0xb6, file); /* of eight, the first, the fourth and the seventh do not count */
    cr_assert_eq(fclose(file), 0);
}

static void write_file(uint32_t boundary, bool marks)
{
    write_part(path, 0, count, boundary, marks);
}

static void make(struct tool_data *data, bool marks, bool hold_back)
{
    count = 0;
    for (uint32_t d = 0; d < DOCUMENTS; d++)
        add_document(d, d == 5 ? 0 : d == 6 ? 5 * SEQ + 3 : d * 7 % 23 + 1);
    write_file(BOUNDARY, marks);
    cr_assert_eq(tool_data_map_tokens(data, path, VOCABULARY, hold_back, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(tool_data_pack(data, SEQ, &problem), EO_OK, "%s", problem.text);
    unlink(path);
}

/* Where a token stands in the file: every pair that a document has occurs there once. */
static uint32_t place_of_pair(int32_t token, int32_t position, const int32_t *before)
{
    for (uint32_t i = 0; i + 1 < count; i++)
        if (all[i] == token && (position == 0 || all[i - 1] == before[0]))
            return i;
    cr_assert_fail("a token %d that the file does not have", token);
    return 0;
}

Test(packing, every_pair_of_a_document_is_in_one_row_and_none_crosses_a_boundary)
{
    struct tool_data data;
    make(&data, false, false);
    uint32_t used = 0, wanted = 0, longest = 0, ends = 0;
    for (uint32_t i = 0; i < count; i++) { /* the last token of a document that ends with the boundary has no target */
        const bool is_last = i + 1 == count || (all[i + 1] == BOUNDARY && i + 2 < count && all[i + 2] != BOUNDARY);
        wanted += !is_last || all[i] != BOUNDARY;
    }
    for (uint64_t row = 0; row < data.training.row_count; row++) {
        int32_t tokens[SEQ], targets[SEQ], positions[SEQ];
        tool_packing_row(&data.training, &data, row, SEQ, tokens, targets, positions);
        bool is_padding = false;
        for (int t = 0; t < SEQ; t++) {
            cr_assert(positions[t] == 0 || (t > 0 && positions[t] == positions[t - 1] + 1));
            is_padding = is_padding || targets[t] == -100;
            if (is_padding) {
                cr_assert_eq(targets[t], -100, "padding is at the end, and has no targets");
                continue;
            }
            used++;
            longest = positions[t] + 1 > (int32_t)longest ? (uint32_t)positions[t] + 1 : longest;
            ends += targets[t] == BOUNDARY;
            if (tokens[t] == BOUNDARY || targets[t] == BOUNDARY)
                continue;
            const uint32_t place = place_of_pair(tokens[t], positions[t], tokens + t - 1);
            cr_assert_eq(targets[t], all[place + 1]);
            cr_assert_eq(targets[t], tokens[t] + 1, "a target of another document");
            if (positions[t] > 0 && tokens[t - 1] != BOUNDARY)
                cr_assert_eq(tokens[t - 1], tokens[t] - 1, "a row's document is not in its order");
        }
    }
    cr_assert_eq(used, wanted);
    cr_assert_eq(data.training.input_count, wanted);
    cr_assert_eq(ends, DOCUMENTS - 1, "each but the empty one ends once: %u", ends);
    cr_assert_eq(longest, SEQ);
    cr_assert(data.training.row_count * SEQ < wanted + wanted / 8, "%llu rows for %u tokens", (unsigned long long)data.training.row_count,
              wanted);
    tool_data_fini(&data);
}

/* The targets of all rows that are the boundary. */
static uint32_t count_ends(const struct tool_data *data, const struct tool_packing *packing)
{
    uint32_t ends = 0;
    for (uint64_t row = 0; row < packing->row_count; row++) {
        int32_t tokens[SEQ], targets[SEQ], positions[SEQ];
        tool_packing_row(packing, data, row, SEQ, tokens, targets, positions);
        for (int t = 0; t < SEQ; t++)
            ends += targets[t] == BOUNDARY;
    }
    return ends;
}

/* Texts behind one boundary each. `mark`: of eight tokens each, the lowest first. */
static void pack_texts(struct tool_data *data, uint32_t texts, uint32_t length, uint32_t end, uint8_t mark, bool hold_back)
{
    count = 0;
    own_end = end;
    for (uint32_t d = 0; d < texts; d++)
        add_document(3 * d + 1, length);
    write_file(BOUNDARY, true);
    FILE *file = fopen(path, "r+");
    cr_assert_not_null(file);
    fseek(file, 1024 + (long)(count * sizeof(*all)), SEEK_SET);
    for (uint32_t i = 0; i < (count + 7) / 8; i++)
        fputc(mark, file);
    cr_assert_eq(fclose(file), 0);
    own_end = 0;
    cr_assert_eq(tool_data_map_tokens(data, path, VOCABULARY, hold_back, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(tool_data_pack(data, SEQ, &problem), EO_OK, "%s", problem.text);
    unlink(path);
}

/* The last document, too; one as long as a row has its end in a row of its own. */
Test(packing, a_text_ends_with_the_boundary_behind_it)
{
    static const uint32_t lengths[] = {1, SEQ - 2, SEQ - 1, SEQ, 2 * SEQ - 1};
    for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct tool_data data;
        pack_texts(&data, 20, lengths[i], 0, 0xff, false);
        cr_assert_eq(data.training.document_count, 20);
        cr_assert_eq(data.training.input_count, count, "all tokens are inputs");
        cr_assert_eq(count_ends(&data, &data.training), 20);
        tool_data_fini(&data);
    }
}

/* Completions, chats, and texts of a file whose documents begin with another token than they end with. */
Test(packing, documents_with_an_end_of_their_own_get_no_boundary)
{
    struct tool_data data;
    pack_texts(&data, 20, 7, 10, 0xff, false);
    cr_assert_eq(data.origin.end, 9);
    cr_assert_eq(data.training.input_count, count - 20);
    cr_assert_eq(count_ends(&data, &data.training), 0);
    tool_data_fini(&data);
    static const uint8_t marks[] = {0xfe, 0x7f}; /* the boundary does not count: it begins a prompt; the last token does not */
    for (int i = 0; i < 2; i++) {
        pack_texts(&data, 20, 7, 0, marks[i], false);
        cr_assert_eq(data.origin.end, BOUNDARY);
        cr_assert_eq(data.training.input_count, count - 20);
        cr_assert_eq(count_ends(&data, &data.training), 0);
        tool_data_fini(&data);
    }
}

/* The last tenth of 20 texts is two of them; that of 15 begins within one, whose second part has no begin to go by. */
Test(packing, a_text_that_is_cut_for_validation_does_not_end_there)
{
    struct tool_data data;
    pack_texts(&data, 20, 7, 0, 0xff, true);
    cr_assert_eq(count_ends(&data, &data.training), 18);
    cr_assert_eq(count_ends(&data, &data.held_back), 2);
    tool_data_fini(&data);
    pack_texts(&data, 15, 7, 0, 0xff, true);
    cr_assert_eq(data.training_count, 13 * 8 + 4);
    cr_assert_eq(count_ends(&data, &data.training), 13);
    cr_assert_eq(count_ends(&data, &data.held_back), 1);
    tool_data_fini(&data);
}

Test(packing, tokens_that_do_not_count_are_no_targets)
{
    struct tool_data data, plain;
    own_end = 10; /* then rows do not depend on which boundaries count */
    make(&data, true, false);
    make(&plain, false, false);
    cr_assert(data.counted && !plain.counted);
    uint32_t ignored = 0, counted = 0;
    for (uint64_t row = 0; row < data.training.row_count; row++) {
        int32_t tokens[2][SEQ], targets[2][SEQ], positions[SEQ];
        tool_packing_row(&data.training, &data, row, SEQ, tokens[0], targets[0], positions);
        tool_packing_row(&plain.training, &plain, row, SEQ, tokens[1], targets[1], positions);
        for (int t = 0; t < SEQ; t++) {
            cr_assert_eq(tokens[0][t], tokens[1][t]);
            cr_assert(targets[0][t] == targets[1][t] || targets[0][t] == -100);
            ignored += targets[1][t] >= 0 && targets[0][t] < 0;
            counted += targets[0][t] >= 0;
        }
    }
    cr_assert(abs((int)(5 * ignored) - (int)(3 * counted)) < (int)(counted / 4), "%u and %u", ignored, counted);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(tool_data_target(&data, i), 0xb6 >> i % 8 & 1 ? (int32_t)all[i] : -100);
    own_end = 0;
    tool_data_fini(&data);
    tool_data_fini(&plain);
}

/* Rows of `steps` steps: each rank's batches in the global order. */
static void gather(const struct tool_data *data, const struct tool_batch_shape *shape, uint64_t seed, uint32_t steps, int32_t *out)
{
    int32_t targets[64 * SEQ], positions[64 * SEQ];
    for (uint32_t step = 0; step < steps; step++)
        for (uint32_t m = 0; m < shape->micro_batches; m++)
            for (uint32_t r = 0; r < shape->rank_count; r++, out += shape->batch * SEQ)
                tool_data_batch(data, shape, seed, step, m, r, &(struct tool_batch){out, targets, positions});
}

Test(packing, a_pass_takes_every_row_once_whatever_the_number_of_ranks)
{
    struct tool_data data;
    make(&data, false, true);
    const uint64_t rows = data.training.row_count;
    const uint32_t steps = (uint32_t)(rows / 12);
    const struct tool_batch_shape one = {1, 12, SEQ, 1}, others[] = {{2, 6, SEQ, 1}, {3, 2, SEQ, 2}};
    int32_t *a = calloc(rows * SEQ, sizeof(*a)), *b = calloc(rows * SEQ, sizeof(*b));
    cr_assert_gt(steps, 2);
    gather(&data, &one, 1, steps, a);
    for (int i = 0; i < 2; i++) {
        gather(&data, &others[i], 1, steps, b);
        cr_assert_eq(memcmp(a, b, (uint64_t)steps * 12 * SEQ * sizeof(*a)), 0);
    }
    for (uint32_t i = 0; i < steps * 12; i++)
        for (uint32_t k = 0; k < i; k++)
            cr_assert_neq(memcmp(a + i * SEQ, a + k * SEQ, SEQ * sizeof(*a)), 0, "row %u came before", i);
    gather(&data, &one, 2, steps, b);
    cr_assert_neq(memcmp(a, b, (uint64_t)steps * 12 * SEQ * sizeof(*a)), 0, "the seed changes nothing");
    int32_t targets[SEQ], positions[SEQ];
    cr_assert_gt(data.held_back.row_count, 0);
    tool_data_validation_batch(&data, &(struct tool_batch_shape){1, 1, SEQ, 1}, 0, 0, &(struct tool_batch){b, targets, positions});
    cr_assert_gt(b[1], 1000 * (DOCUMENTS - 10), "held-back rows are of the last documents");
    free(a);
    free(b);
    tool_data_fini(&data);
}

Test(packing, files_without_boundaries_or_documents_are_refused)
{
    struct tool_data data;
    count = 0;
    add_document(1, 0);
    write_file(BOUNDARY, false);
    cr_assert_eq(tool_data_map_tokens(&data, path, VOCABULARY, false, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(tool_data_pack(&data, SEQ, &problem), EO_OK);
    cr_assert_eq(tool_data_check(&data, &(struct tool_batch_shape){1, 1, SEQ, 1}, false, &problem), EO_ERR_INVALID);
    cr_assert_not_null(strstr(problem.text, "0 documents of two tokens"), "%s", problem.text);
    tool_data_fini(&data);
    unlink(path);
    write_file(UINT32_MAX, false);
    cr_assert_eq(tool_data_map_tokens(&data, path, VOCABULARY, false, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(tool_data_pack(&data, SEQ, &problem), EO_ERR_INVALID);
    cr_assert_not_null(strstr(problem.text, "where documents begin"), "%s", problem.text);
    tool_data_fini(&data);
    unlink(path);
    write_file(BOUNDARY, true);
    cr_assert_eq(truncate(path, 1024 + (long)count * 2), 0);
    cr_assert_eq(tool_data_map_tokens(&data, path, VOCABULARY, false, &problem), EO_ERR_INVALID, "marks that are cut off");
    unlink(path);
}

/* Cut anywhere, at a boundary and behind one too, into files of which one is empty. */
Test(packing, documents_of_many_files_are_those_of_one)
{
    enum { FILES = 9 };
    struct tool_data one, many;
    char names[FILES][PATH_BYTES];
    const char *paths[FILES];
    make(&one, false, true);
    for (uint32_t f = 0, first = 0, end; f < FILES; f++, first = end) {
        end = f + 1 == FILES ? count : f == 4 ? first : first + f * 13 % 31;
        write_part(names[f], first, end, BOUNDARY, false);
        paths[f] = names[f];
    }
    cr_assert_eq(tool_data_map_files(&many, &(struct tool_token_files){paths, FILES, NULL}, VOCABULARY, true, &problem), EO_OK,
                 "%s", problem.text);
    cr_assert_eq(tool_data_pack(&many, SEQ, &problem), EO_OK, "%s", problem.text);
    const struct tool_packing *of_one[] = {&one.training, &one.held_back}, *of_many[] = {&many.training, &many.held_back};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(of_many[i]->piece_count, of_one[i]->piece_count);
        cr_assert_eq(memcmp(of_many[i]->pieces, of_one[i]->pieces, of_one[i]->piece_count * sizeof(struct tool_piece)), 0);
        cr_assert_eq(of_many[i]->document_count, of_one[i]->document_count);
    }
    tool_data_fini(&one);
    tool_data_fini(&many);
    for (uint32_t f = 0; f < FILES; f++)
        unlink(names[f]);
}

/* Each file says for its own documents how they end; only one token for the end of text is known as such. */
Test(packing, texts_and_documents_with_their_own_ends_are_packed_together)
{
    struct tool_data data;
    char other[PATH_BYTES];
    count = 0;
    for (uint32_t d = 0; d < 9; d++)
        add_document(3 * d + 1, 9);
    write_file(BOUNDARY, false);
    own_end = 10;
    write_part(other, 0, count, BOUNDARY, false);
    own_end = 0;
    const char *paths[] = {other, path, other};
    cr_assert_eq(tool_data_map_files(&data, &(struct tool_token_files){paths, 3, other}, VOCABULARY, true, &problem), EO_OK,
                 "%s", problem.text);
    cr_assert_eq(tool_data_pack(&data, SEQ, &problem), EO_OK, "%s", problem.text);
    cr_assert_eq(count_ends(&data, &data.training), 9);
    cr_assert_eq(count_ends(&data, &data.held_back), 0);
    cr_assert_null(tool_data_end_of_text(&data));
    tool_data_fini(&data);
    cr_assert_eq(tool_data_map_files(&data, &(struct tool_token_files){paths, 1, other}, VOCABULARY, true, &problem), EO_OK,
                 "%s", problem.text);
    cr_assert_eq(*tool_data_end_of_text(&data), 9);
    tool_data_fini(&data);
    unlink(path);
    unlink(other);
}

/* tools/tokenize takes another boundary for chats than for texts. */
Test(packing, files_with_different_boundaries_train_together_but_are_not_packed)
{
    struct tool_data data;
    char other[PATH_BYTES];
    count = 0;
    for (uint32_t d = 0; d < 9; d++)
        add_document(d, 9);
    write_file(BOUNDARY, false);
    write_part(other, 0, count, BOUNDARY + 1, false);
    const char *paths[] = {path, path, other};
    cr_assert_eq(tool_data_map_files(&data, &(struct tool_token_files){paths, 3, NULL}, VOCABULARY, false, &problem), EO_OK,
                 "%s", problem.text);
    cr_assert_eq(tool_data_check(&data, &(struct tool_batch_shape){1, 1, SEQ, 1}, false, &problem), EO_OK);
    cr_assert_eq(tool_data_pack(&data, SEQ, &problem), EO_ERR_INVALID);
    cr_assert(strstr(problem.text, "with token 7 in the first file of --tokens, but with token 8 in file 3;"), "%s",
              problem.text);
    tool_data_fini(&data);
    cr_assert_eq(tool_data_map_files(&data, &(struct tool_token_files){paths, 2, other}, VOCABULARY, true, &problem), EO_OK,
                 "%s", problem.text);
    cr_assert_eq(tool_data_pack(&data, SEQ, &problem), EO_ERR_INVALID);
    cr_assert(strstr(problem.text, "in file 3, that of --val-tokens;"), "%s", problem.text);
    tool_data_fini(&data);
    unlink(path);
    unlink(other);
}

/* Packing reads the tokens twice, and takes memory in between: there the file's tokens become `changed`. */
static const uint16_t *changed;
void *__real_calloc(size_t number, size_t bytes);
void *__wrap_calloc(size_t number, size_t bytes);
void *__wrap_calloc(size_t number, size_t bytes)
{
    if (changed) {
        const int file = open(path, O_WRONLY);
        cr_assert_eq(pwrite(file, changed, count * sizeof(*changed), 1024), (ssize_t)(count * sizeof(*changed)));
        close(file);
        changed = NULL;
    }
    return __real_calloc(number, bytes);
}

Test(packing, a_file_that_changes_while_it_is_read_is_refused)
{
    static uint16_t none[TOKENS_MAX], many[TOKENS_MAX];
    const uint16_t *const tokens[] = {none, many}; /* fewer documents, and more */
    for (uint32_t i = 0; i < TOKENS_MAX; i++) {
        none[i] = BOUNDARY;
        many[i] = i % 2 ? 9 : BOUNDARY;
    }
    for (int i = 0; i < 2; i++) {
        struct tool_data data;
        count = 0;
        for (uint32_t d = 0; d < DOCUMENTS; d++)
            add_document(d, d % 23 + 1);
        write_file(BOUNDARY, false);
        cr_assert_eq(tool_data_map_tokens(&data, path, VOCABULARY, false, &problem), EO_OK, "%s", problem.text);
        changed = tokens[i];
        cr_assert_eq(tool_data_pack(&data, SEQ, &problem), EO_ERR_IO);
        cr_assert_null(changed);
        cr_assert(strstr(problem.text, "a token file changes while it is read"), "%s", problem.text);
        tool_data_fini(&data);
        unlink(path);
    }
}
