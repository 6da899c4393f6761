/* SPDX-License-Identifier: MIT
 *
 * Batches of what was read in by token_files.c or text_folder.c.
 */
#include "tools/run/data/batches.h"

#include <stdlib.h>

uint64_t tool_data_draw(uint64_t seed, uint64_t k)
{
    /* The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators"), twice. */
    uint64_t x = k;
    for (int round = 0; round < 2; round++) {
        x += seed + 0x9e3779b97f4a7c15u;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        x ^= x >> 31;
    }
    return x;
}

const uint32_t *tool_data_end_of_text(const struct tool_data *data)
{
    for (const struct tool_data *next = data->next; next; next = next->next)
        if (next->origin.is_known && next->origin.end != data->origin.end)
            return NULL;
    return data->origin.is_known ? &data->origin.end : NULL;
}

/* One for all files: tools/tokenize takes one for chats, and another for texts. */
static eo_status check_boundaries(const struct tool_data *data, struct tool_problem *problem)
{
    const uint32_t first = data->origin.boundary;
    uint32_t number = 1;
    for (const struct tool_data *file = data; file; file = file->next, number++) {
        if (!file->origin.is_known || file->origin.boundary == UINT32_MAX)
            return tool_problem_set(problem, EO_ERR_INVALID,
                                    "--pack documents: the token files say nothing of where documents begin; make them with "
                                    "tools/tokenize, without --boundary none");
        if (file->origin.boundary != first)
            return tool_problem_set(problem, EO_ERR_INVALID,
                                    "--pack documents: documents begin with token %u in the first file of --tokens, but with "
                                    "token %u in file %u%s; make both with the same --boundary of tools/tokenize",
                                    first, file->origin.boundary, number,
                                    number > data->file_count ? ", that of --val-tokens" : "");
    }
    return EO_OK;
}

eo_status tool_data_pack(struct tool_data *data, uint32_t seq, struct tool_problem *problem)
{
    EO_TRY(check_boundaries(data, problem));
    EO_TRY(tool_packing_make(&data->training, data, 0, data->training_count, seq, problem));
    EO_TRY(tool_packing_make(&data->held_back, data, data->training_count, data->count, seq, problem));
    data->is_packed = true;
    return EO_OK;
}

static eo_status check_packed(const struct tool_data *data, const struct tool_batch_shape *shape, bool validation,
                              struct tool_problem *problem)
{
    if (data->training.row_count < shape->batch)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--pack documents: %llu documents of two tokens and more fill %llu rows of --seq %u, fewer than "
                                "--batch %u; give more text, or a smaller --batch or --seq",
                                (unsigned long long)data->training.document_count, (unsigned long long)data->training.row_count,
                                shape->seq, shape->batch);
    if (validation && !data->held_back.row_count)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--pack documents: what is held back for --val-every has no document of two tokens; give more "
                                "text, or --val-tokens");
    return EO_OK;
}

static eo_status check_lengths(const struct tool_data *data, const struct tool_batch_shape *shape, bool validation,
                               struct tool_problem *problem)
{
    const char *option = data->is_text ? "--text" : "--tokens";
    const uint64_t batch_tokens = (uint64_t)shape->batch * shape->seq;
    const uint64_t needed = 1 + (data->is_text || data->is_shuffled ? batch_tokens : batch_tokens * shape->rank_count);
    const uint64_t held_back = data->count - data->training_count;
    if (data->training_count < needed)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: %llu token%s to train on %s shorter than a batch of %llu (--batch %u x --seq %u%s, and "
                                "one); give more text, or a smaller --batch or --seq",
                                option, (unsigned long long)data->training_count, tool_plural(data->training_count),
                                data->training_count == 1 ? "is" : "are", (unsigned long long)needed, shape->batch, shape->seq,
                                data->is_text || data->is_shuffled ? "" : " x --ranks");
    if (validation && data->is_held_apart && held_back < (uint64_t)shape->seq + 1)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--val-tokens: %llu token%s %s too short for --seq %u; give more, or a "
                                "smaller --seq",
                                (unsigned long long)held_back, tool_plural(held_back), held_back == 1 ? "is" : "are",
                                shape->seq);
    if (validation && held_back < (uint64_t)shape->seq + 1)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: the last tenth, %llu token%s, is too short for --val-every with --seq %u; give more "
                                "text or a smaller --seq",
                                option, (unsigned long long)held_back, tool_plural(held_back), shape->seq);
    return EO_OK;
}

static void copy_sequence(const struct tool_data *data, uint64_t begin, uint32_t seq, int32_t *tokens, int32_t *targets)
{
    for (uint32_t t = 0; t < seq; t++) {
        tokens[t] = (int32_t)tool_data_token(data, begin + t);
        targets[t] = tool_data_target(data, begin + t + 1);
    }
}

static void put_row(const struct tool_data *data, const struct tool_packing *packing, uint64_t row, uint32_t seq, uint32_t b,
                    const struct tool_batch *out)
{
    const uint64_t at = (uint64_t)b * seq;
    tool_packing_row(packing, data, row, seq, out->tokens + at, out->targets + at, out->positions + at);
}

uint64_t tool_batch_counted(const struct tool_batch *batch, const struct tool_batch_shape *shape)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < (uint64_t)shape->batch * shape->seq; i++)
        count += batch->targets[i] >= 0;
    return count;
}

/* The k-th of `count` in an order drawn from the seed: rounds of a Feistel network on the next power of 4 are a permutation of
 * it, and what falls outside goes through once more (Black and Rogaway, "Ciphers with Arbitrary Finite Domains"). */
static uint64_t shuffled(uint64_t k, uint64_t count, uint64_t seed)
{
    enum { ROUNDS = 4 };
    uint32_t half = 1;
    while (half < 31 && count > (uint64_t)1 << 2 * half)
        half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = k >> half, right = k & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            const uint64_t mixed = left ^ (tool_data_draw(seed + round, right) & mask);
            left = right;
            right = mixed;
        }
        k = left << half | right;
    } while (k >= count);
    return k;
}

/* Where sequence k of the run begins. */
static uint64_t place_of(const struct tool_data *data, uint64_t seq, uint64_t seed, uint64_t k)
{
    if (data->is_text)
        return tool_data_draw(seed, k) % (data->training_count - seq);
    const uint64_t count = (data->training_count - 1) / seq;
    return (data->is_shuffled ? shuffled(k % count, count, tool_data_draw(seed, k / count)) : k % count) * seq;
}

void tool_data_batch(const struct tool_data *data, const struct tool_batch_shape *shape, uint64_t seed, uint64_t step,
                     uint32_t micro_batch, uint32_t rank, const struct tool_batch *out)
{
    const uint64_t batch = shape->batch, seq = shape->seq;
    const uint64_t global_batch = shape->rank_count * batch * shape->micro_batches;
    const uint64_t steps = step - data->origin_step;
    const uint64_t first =
        data->origin_sequence + steps * global_batch + ((uint64_t)micro_batch * shape->rank_count + rank) * batch;
    for (uint32_t b = 0; b < shape->batch; b++) {
        const uint64_t count = data->training.row_count, k = first + b;
        if (data->is_packed)
            put_row(data, &data->training, shuffled(k % count, count, tool_data_draw(seed, k / count)), shape->seq, b, out);
        else
            copy_sequence(data, place_of(data, seq, seed, k), shape->seq, out->tokens + b * seq, out->targets + b * seq);
    }
}

static bool has_target(const struct tool_data *data, uint32_t seq, const struct tool_batch *row)
{
    const struct tool_batch_shape one = {1, 1, seq, 1};
    for (uint32_t k = 0; k < tool_data_validation_count(data, seq); k++) {
        tool_data_validation_batch(data, &one, k, 0, row);
        if (tool_batch_counted(row, &one))
            return true;
    }
    return false;
}

/* A loss of no target is no number: no validation could tell anything. */
static eo_status check_validation(const struct tool_data *data, uint32_t seq, struct tool_problem *problem)
{
    int32_t *row = calloc(seq, 3 * sizeof(*row));
    if (!row)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "--val-every: no memory for a sequence of --seq %u", seq);
    const bool has = has_target(data, seq, &(struct tool_batch){row, row + seq, row + 2 * (uint64_t)seq});
    free(row);
    return has ? EO_OK
               : tool_problem_set(
                     problem, EO_ERR_INVALID,
                     "%s: none of the tokens counts in the loss, in any of the %u sequences that --val-every looks "
                     "at; give --val-tokens FILE.bin with more that count",
                     data->is_held_apart ? "--val-tokens" : "--tokens: the last tenth", tool_data_validation_count(data, seq));
}

eo_status tool_data_check(const struct tool_data *data, const struct tool_batch_shape *shape, bool validation,
                          struct tool_problem *problem)
{
    EO_TRY(data->is_packed ? check_packed(data, shape, validation, problem) : check_lengths(data, shape, validation, problem));
    return validation ? check_validation(data, shape->seq, problem) : EO_OK;
}

static uint64_t held_back_sequences(const struct tool_data *data, uint32_t seq)
{
    const uint64_t tokens = data->count - data->training_count;
    return data->is_packed ? data->held_back.row_count : tokens ? (tokens - 1) / seq : 0;
}

uint32_t tool_data_validation_count(const struct tool_data *data, uint32_t seq)
{
    enum { VALIDATION_SEQUENCES = 32 };
    const uint64_t count = held_back_sequences(data, seq);
    return count < VALIDATION_SEQUENCES ? (uint32_t)count : VALIDATION_SEQUENCES;
}

void tool_data_validation_batch(const struct tool_data *data, const struct tool_batch_shape *shape, uint32_t index,
                                uint32_t rank, const struct tool_batch *out)
{
    const uint64_t count = held_back_sequences(data, shape->seq);
    const uint32_t wanted = tool_data_validation_count(data, shape->seq);
    for (uint32_t b = 0; b < shape->batch; b++) {
        const uint64_t k = ((uint64_t)index * shape->rank_count + rank) * shape->batch + b;
        /* A seed of its own: the places stay the same whatever --seed is, so that runs can be compared. */
        const uint64_t place = shuffled(k % wanted, count, 0x76616c6964617465u), at = (uint64_t)b * shape->seq;
        if (data->is_packed)
            put_row(data, &data->held_back, place, shape->seq, b, out);
        else
            copy_sequence(data, data->training_count + place * shape->seq, shape->seq, out->tokens + at, out->targets + at);
        for (uint32_t t = 0; k >= wanted && t < shape->seq; t++) /* it was there: it fills a batch, and does not count */
            out->targets[at + t] = -100;
    }
}

void tool_data_prompt(const struct tool_data *data, uint32_t count, int32_t *tokens)
{
    uint64_t begin = data->training_count;
    while (data->is_text && begin < data->count && begin > 0 && tool_data_token(data, begin - 1) != '\n')
        begin++;
    if (begin + count > data->count) /* little or nothing is held back */
        begin = data->count > count ? data->count - count : 0;
    for (uint32_t t = 0; t < count; t++)
        tokens[t] = begin + t < data->count ? (int32_t)tool_data_token(data, begin + t) : 0;
}
