/* SPDX-License-Identifier: MIT */
#include "tools/run/data/packing.h"

#include <stdlib.h>
#include <string.h>

#include "tools/run/data/batches.h"

#define NONE UINT32_MAX

/* --- pieces ------------------------------------------------------------------------------------------------------- */

/* A place that goes forward: tool_data_token would walk the list of files for each token. */
struct reader {
    const struct tool_data *file;
    uint64_t first; /* of its tokens */
};

/* Returns its place in its file. */
static uint64_t go_to(struct reader *reader, uint64_t at)
{
    for (; at - reader->first >= reader->file->own_count && reader->file->next; reader->file = reader->file->next)
        reader->first += reader->file->own_count;
    return at - reader->first;
}

static uint32_t read_token(struct reader *reader, uint64_t at)
{
    const uint64_t place = go_to(reader, at);
    return tool_data_token(reader->file, place);
}

/* Where the document behind token `at` begins, or `end`. */
static uint64_t next_begin(struct reader *reader, uint32_t boundary, uint64_t at, uint64_t end)
{
    bool is_boundary = at + 1 < end && read_token(reader, at + 1) == boundary;
    for (uint64_t i = at + 1; i + 1 < end; i++) {
        const bool was_boundary = is_boundary;
        is_boundary = read_token(reader, i + 1) == boundary;
        if (was_boundary && !is_boundary)
            return i;
    }
    return end;
}

static int32_t read_target(struct reader *reader, uint64_t at)
{
    const uint64_t place = go_to(reader, at);
    return tool_data_target(reader->file, place);
}

/* Whether the boundary behind the document [begin, next) is a target of it: of a text, whose file has no other token for the
 * end. All of a text counts; the boundary before a prompt does not. */
static bool is_ended_by_next(struct reader *reader, uint32_t boundary, uint64_t begin, uint64_t next)
{
    if (read_target(reader, begin) != (int32_t)boundary || reader->file->origin.ends_itself)
        return false;
    const int32_t last = read_target(reader, next - 1);
    return last >= 0 && last != (int32_t)boundary;
}

/* `room` pieces at most are kept. Returns their number. */
static uint64_t cut(struct tool_piece *pieces, uint64_t room, const struct tool_data *data, uint64_t first, uint64_t end,
                    uint32_t seq, struct tool_packing *sums)
{
    const uint32_t boundary = data->origin.boundary;
    const bool is_whole = end == data->count || tool_data_token(data, end) == boundary; /* the last one; else it was cut */
    struct reader ahead = {data, 0}, reader = ahead;
    uint64_t count = 0;
    sums->document_count = sums->input_count = 0;
    for (uint64_t begin = first, next; begin < end; begin = next) {
        next = next_begin(&ahead, boundary, begin, end);
        const bool is_ended = (next < end || is_whole) && is_ended_by_next(&reader, boundary, begin, next);
        const uint64_t inputs = next - begin - 1 + is_ended;
        sums->document_count += inputs > 0;
        sums->input_count += inputs;
        for (uint64_t done = 0; done < inputs; done += seq, count++) {
            const bool is_last = inputs - done <= seq;
            if (count < room)
                pieces[count] = (struct tool_piece){.begin = begin + done,
                                                    .length = is_last ? (uint32_t)(inputs - done) : seq,
                                                    .is_ended = is_last && is_ended,
                                                    .next = NONE};
        }
    }
    return count;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Rows by the room that is left in them: a list for each, and a bit where it is not empty. */
struct rooms {
    uint32_t *first; /* [seq + 1] */
    uint64_t *bits;
    uint32_t *next; /* of a row */
    uint32_t seq;
};

static void rooms_fini(struct rooms *rooms)
{
    free(rooms->first);
    free(rooms->bits);
    free(rooms->next);
}

static bool rooms_init(struct rooms *rooms, uint32_t seq, uint64_t rows)
{
    *rooms = (struct rooms){malloc(((uint64_t)seq + 1) * sizeof(uint32_t)), calloc(seq / 64 + 1, sizeof(uint64_t)),
                            malloc((rows ? rows : 1) * sizeof(uint32_t)), seq};
    if (!rooms->first || !rooms->bits || !rooms->next)
        return false;
    memset(rooms->first, 0xff, ((uint64_t)seq + 1) * sizeof(uint32_t));
    return true;
}

static void rooms_put(struct rooms *rooms, uint32_t row, uint32_t room)
{
    rooms->next[row] = rooms->first[room];
    rooms->first[room] = row;
    rooms->bits[room / 64] |= (uint64_t)1 << room % 64;
}

/* The least room of at least `length`; 0: there is none. */
static uint32_t rooms_find(const struct rooms *rooms, uint32_t length)
{
    uint64_t bits = rooms->bits[length / 64] & ~(uint64_t)0 << length % 64;
    for (uint32_t word = length / 64;; bits = rooms->bits[word]) {
        if (bits)
            return word * 64 + (uint32_t)__builtin_ctzll(bits);
        if (++word > rooms->seq / 64)
            return 0;
    }
}

static uint32_t rooms_take(struct rooms *rooms, uint32_t room)
{
    const uint32_t row = rooms->first[room];
    rooms->first[room] = rooms->next[row];
    if (rooms->first[room] == NONE)
        rooms->bits[room / 64] &= ~((uint64_t)1 << room % 64);
    return row;
}

/* The pieces' numbers, the longest first; equal ones in their order. False: no memory. */
static bool order_by_length(const struct tool_packing *p, uint32_t seq, uint32_t *order)
{
    uint64_t *at = calloc((uint64_t)seq + 2, sizeof(*at));
    if (!at)
        return false;
    for (uint64_t i = 0; i < p->piece_count; i++)
        at[seq - p->pieces[i].length + 1]++;
    for (uint32_t k = 0; k < seq; k++)
        at[k + 1] += at[k];
    for (uint64_t i = 0; i < p->piece_count; i++)
        order[at[seq - p->pieces[i].length]++] = (uint32_t)i;
    free(at);
    return true;
}

static void place(struct tool_packing *p, const uint32_t *order, struct rooms *rooms, uint32_t seq)
{
    for (uint64_t i = 0; i < p->piece_count; i++) {
        struct tool_piece *piece = &p->pieces[order[i]];
        const uint32_t found = rooms_find(rooms, piece->length), room = found ? found : seq;
        const uint32_t row = found ? rooms_take(rooms, found) : (uint32_t)p->row_count++;
        piece->next = found ? p->rows[row] : NONE;
        p->rows[row] = order[i];
        if (room > piece->length)
            rooms_put(rooms, row, room - piece->length);
    }
}

eo_status tool_packing_make(struct tool_packing *out, const struct tool_data *data, uint64_t first, uint64_t end, uint32_t seq,
                            struct tool_problem *problem)
{
    struct tool_packing p = {0};
    struct rooms rooms = {0};
    p.piece_count = cut(NULL, 0, data, first, end, seq, &p);
    if (p.piece_count >= NONE)
        return tool_problem_set(problem, EO_ERR_INVALID, "--pack: %llu documents are too many; give fewer token files",
                                (unsigned long long)p.piece_count);
    const uint64_t count = p.piece_count ? p.piece_count : 1;
    p.pieces = malloc(count * sizeof(*p.pieces));
    p.rows = malloc(count * sizeof(*p.rows));
    uint32_t *order = malloc(count * sizeof(*order));
    bool has_memory = p.pieces && p.rows && order && rooms_init(&rooms, seq, count), is_same = true;
    if (has_memory) {
        is_same = cut(p.pieces, p.piece_count, data, first, end, seq, &p) == p.piece_count;
        has_memory = is_same && order_by_length(&p, seq, order);
    }
    if (has_memory)
        place(&p, order, &rooms, seq);
    free(order);
    rooms_fini(&rooms);
    if (has_memory) {
        *out = p;
        return EO_OK;
    }
    tool_packing_fini(&p);
    if (!is_same)
        return tool_problem_set(problem, EO_ERR_IO, "--pack: a token file changes while it is read");
    return tool_problem_set(problem, EO_ERR_NO_MEMORY, "--pack: no memory to pack %llu documents", (unsigned long long)count);
}

void tool_packing_fini(struct tool_packing *packing)
{
    free(packing->pieces);
    free(packing->rows);
    *packing = (struct tool_packing){0};
}

void tool_packing_row(const struct tool_packing *packing, const struct tool_data *data, uint64_t row, uint32_t seq,
                      int32_t *tokens, int32_t *targets, int32_t *positions)
{
    uint32_t at = 0;
    for (uint32_t k = packing->rows[row]; k != NONE; k = packing->pieces[k].next) {
        const struct tool_piece *piece = &packing->pieces[k];
        for (uint32_t i = 0; i < piece->length; i++, at++) {
            tokens[at] = (int32_t)tool_data_token(data, piece->begin + i);
            if (i + 1 < piece->length || !piece->is_ended)
                targets[at] = tool_data_target(data, piece->begin + i + 1);
            positions[at] = (int32_t)i;
        }
        if (piece->is_ended)
            targets[at - 1] = (int32_t)data->origin.boundary;
    }
    for (int32_t i = 0; at < seq; i++, at++) {
        tokens[at] = 0;
        targets[at] = -100;
        positions[at] = i;
    }
}
