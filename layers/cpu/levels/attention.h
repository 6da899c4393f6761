/* SPDX-License-Identifier: MIT
 *
 * Causal attention of one head at one level. Queries go in blocks of EO_QUERY_BLOCK, keys in chunks of EO_KEY_CHUNK, whose
 * operands and scores the second-level cache holds:
 *
 *              keys ->                    S = Q K^T, P = softmax(S), O = P V
 *     queries  [ block 0 | .            ]
 *              [ block 1       | .      ] a row's work ends at its diagonal, rounded up to a tile,
 *              [ block 2             | .] so little of the upper triangle is computed
 *
 * Forward, each row of queries has a maximum and a sum of the chunks before; what was summed is corrected where a chunk raises
 * the maximum (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018).
 *
 * All operands are packed into the scratch first: rows close together (in memory they are a token apart, each on a
 * page of its own), heads padded to EO_HEAD_PAD and keys to EO_TILE_PAD with zeros, so that the products need no
 * edges. K^T and V^T lie in panels [keys / PANEL][head][PANEL], K and V in columns [head / PANEL][keys][PANEL].
 */
#ifndef EO_LAYERS_CPU_LEVELS_ATTENTION_H
#define EO_LAYERS_CPU_LEVELS_ATTENTION_H

/* Rows of a tile: with two vectors a row its sums fill the registers of a level (32 or 16), less the operands. */
#if EO_LEVEL == 512
enum { TILE = 8 };
#else
enum { TILE = 4 };
#endif
enum { PANEL = 2 * V };
_Static_assert(EO_TILE_ROWS % TILE == 0 && EO_TILE_PAD % PANEL == 0 && EO_HEAD_PAD % V == 0 &&
                   EO_QUERY_BLOCK % EO_TILE_ROWS == 0 && EO_TILE_PAD % EO_TILE_ROWS == 0 &&
                   EO_KEY_CHUNK % EO_QUERY_BLOCK == 0 && EO_KEY_CHUNK % EO_TILE_PAD == 0,
               "a tile of attention has an edge");

/* What lies where in a thread's scratch; see attention_lane_floats in attention.c. */
struct lane {
    uint64_t keys, head, row; /* keys and head padded; floats of a row of scores (not a power of two: cache sets) */
    float *key_panels, *value_panels, *key_columns, *value_columns, *key_sums, *value_sums;
    float *q, *q_sums, *out_gradient, *scores, *slopes;
};

static struct lane lane_of(const struct eo_attention_head *a, bool backward)
{
    struct lane lane = {0};
    lane.keys = (a->seq + EO_TILE_PAD - 1) / EO_TILE_PAD * EO_TILE_PAD;
    lane.head = (a->head_size + EO_HEAD_PAD - 1) / EO_HEAD_PAD * EO_HEAD_PAD;
    lane.row = (lane.keys < EO_KEY_CHUNK ? lane.keys : EO_KEY_CHUNK) + EO_HEAD_PAD;
    const uint64_t all = lane.keys * lane.head;
    const uint64_t block = EO_QUERY_BLOCK * lane.head;
    float *p = a->scratch;
    lane.q = p, p += block;
    lane.q_sums = p, p += block;
    lane.scores = p, p += EO_QUERY_BLOCK * lane.row;
    lane.key_panels = p, p += all;
    if (!backward) {
        lane.value_columns = p;
        return lane;
    }
    lane.out_gradient = p, p += block;
    lane.slopes = p, p += EO_QUERY_BLOCK * lane.row;
    lane.value_panels = p, p += all;
    lane.key_columns = p, p += all;
    lane.key_sums = p, p += all;
    lane.value_sums = p;
    return lane;
}

/* ---- packing ---- */

/*
 * A head's rows lie a token apart, so the processor foresees none of them. While one block computes, the rows of the
 * next one are fetched into the second-level cache, and those that will be written are made ready for it. After the
 * last block comes, most likely, the next head, which lies beside this one. An address beyond the operand is
 * harmless.
 */
enum { LINE_ELEMENTS = 64 / sizeof(element) };

INLINE void fetch_row(const void *row, uint64_t at, uint64_t columns)
{
    for (uint64_t i = 0; i < columns; i += LINE_ELEMENTS)
        __builtin_prefetch((const void *)((uintptr_t)row + (at + i) * sizeof(element)), 0, 2);
}

INLINE void ready_row(const void *row, uint64_t at, uint64_t columns)
{
    for (uint64_t i = 0; i < columns; i += LINE_ELEMENTS)
        __builtin_prefetch((const void *)((uintptr_t)row + (at + i) * sizeof(element)), 1, 2);
}

/* Elements from a head's first row to row `row` of what comes after the block at `first`. */
static uint64_t row_to_come(const struct eo_attention_head *a, uint64_t first, uint64_t row, uint64_t stride)
{
    const uint64_t next = first + EO_QUERY_BLOCK;
    return next < a->seq ? (next + row) * stride : row * stride + a->head_size;
}

static void pack_rows(float *out, const element *in, uint64_t in_stride, uint64_t rows, uint64_t rows_padded, uint64_t columns,
                      uint64_t columns_padded)
{
    for (uint64_t row = 0; row < rows; row++, out += columns_padded) {
        FOR_VECTORS(i, columns, STORE(out + i, LOAD(in + row * in_stride + i)););
        memset(out + columns, 0, (columns_padded - columns) * sizeof(float));
    }
    memset(out, 0, (rows_padded - rows) * columns_padded * sizeof(float));
}

/* [key][head] to columns [head / PANEL][keys][PANEL], the last ones narrower where V columns are left. */
static void pack_columns(float *out, const element *in, uint64_t in_stride, const struct eo_attention_head *a,
                         const struct lane *lane)
{
    for (uint64_t column = 0; column < lane->head; column += PANEL, out += PANEL * lane->keys) {
        const uint64_t width = lane->head - column < PANEL ? V : PANEL;
        const uint64_t columns = a->head_size <= column ? 0 : a->head_size - column;
        uint64_t key = 0;
        for (; columns >= PANEL && key < a->seq; key++) {
            v_store(out + key * PANEL, LOAD_WHOLE(in + key * in_stride + column));
            v_store(out + key * PANEL + V, LOAD_WHOLE(in + key * in_stride + column + V));
        }
        pack_rows(out + key * width, in + key * in_stride + column, in_stride, a->seq - key, lane->keys - key,
                  columns < width ? columns : width, width);
    }
}

static void unpack_rows(element *out, uint64_t out_stride, const float *in, uint64_t in_stride, uint64_t rows, uint64_t columns)
{
    for (uint64_t row = 0; row < rows; row++)
        FOR_VECTORS(i, columns, STORE(out + row * out_stride + i, LOAD(in + row * in_stride + i)););
}

typedef float quad __attribute__((vector_size(16)));

INLINE quad quad_of(const element *in)
{
#ifdef EO_ELEMENT_BF16
    typedef uint16_t halves __attribute__((vector_size(8)));
    typedef uint32_t words __attribute__((vector_size(16)));
    halves h;
    memcpy(&h, in, sizeof(h));
    return (quad)(__builtin_convertvector(h, words) << 16);
#else
    quad q;
    memcpy(&q, in, sizeof(q));
    return q;
#endif
}

/* 4 x 4 elements, transposed in registers. */
INLINE void transpose_quad(float *out, uint64_t out_stride, const element *in, uint64_t in_stride)
{
    quad r[4];
    for (int i = 0; i < 4; i++)
        r[i] = quad_of(in + (uint64_t)i * in_stride);
    const quad a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    const quad b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const quad c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const quad d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
    for (int i = 0; i < 4; i++)
        memcpy(out + (uint64_t)i * out_stride, &r[i], sizeof(quad));
}

/* [key][head] to panels [keys / PANEL][head][PANEL], padding included. */
static void pack_panels(float *panels, const element *in, uint64_t in_stride, const struct eo_attention_head *a,
                        const struct lane *lane)
{
    for (uint64_t key = 0; key < lane->keys; key += 4) {
        float *out = panels + key / PANEL * PANEL * lane->head + key % PANEL;
        uint64_t i = 0;
        if (key + 4 <= a->seq)
            for (; i + 4 <= a->head_size; i += 4)
                transpose_quad(out + i * PANEL, PANEL, in + key * in_stride + i, in_stride);
        for (; i < lane->head; i++)
            for (uint64_t at = 0; at < 4; at++)
                out[i * PANEL + at] = key + at < a->seq && i < a->head_size ? float_of(in[(key + at) * in_stride + i]) : 0;
    }
}

/* ---- products of tiles ---- */

/* C[TILE][...] (+)= A[TILE][k] B[k][...]; a_row and a_k: floats between rows and columns of A. */
struct tile_product {
    float *c;
    const float *a, *b;
    uint64_t c_stride, a_row, a_k, b_stride, k;
    bool add_to;
};

/* For `vectors` vectors of columns, from `column` on. */
INLINE void tile(const struct tile_product *t, uint64_t column, int vectors)
{
    float *c = t->c + column;
    const float *b = t->b + column;
    vf sums[TILE][2];
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < vectors; j++)
            sums[i][j] = t->add_to ? v_load(c + (uint64_t)i * t->c_stride + (uint64_t)(j * V)) : v_set(0);
    for (uint64_t at = 0; at < t->k; at++, b += t->b_stride) {
        vf bs[2];
        for (int j = 0; j < vectors; j++)
            bs[j] = v_load(b + j * V);
        for (int i = 0; i < TILE; i++) {
            const vf x = v_set(t->a[(uint64_t)i * t->a_row + at * t->a_k]);
            for (int j = 0; j < vectors; j++)
                sums[i][j] = v_fma(x, bs[j], sums[i][j]);
        }
    }
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < vectors; j++)
            v_store(c + (uint64_t)i * t->c_stride + (uint64_t)(j * V), sums[i][j]);
}

/* For `columns` columns (a multiple of V). */
INLINE void tile_rows(const struct tile_product *t, uint64_t columns)
{
    uint64_t j = 0;
    for (; j + PANEL <= columns; j += PANEL)
        tile(t, j, 2);
    for (; j < columns; j += V)
        tile(t, j, 1);
}

static uint64_t round_rows(uint64_t rows)
{
    return (rows + EO_TILE_ROWS - 1) / EO_TILE_ROWS * EO_TILE_ROWS;
}

/* A block of queries against a chunk of keys: the first of them, the rows of the block, and the keys from the chunk's first to
 * the block's first query. A block's diagonal lies within one chunk. */
struct chunk {
    uint64_t first, rows, diagonal;
};

/* Keys of the chunk up to the query of row `row`. */
static uint64_t keys_of_row(const struct chunk *c, uint64_t row)
{
    return c->diagonal + row + 1 < EO_KEY_CHUNK ? c->diagonal + row + 1 : EO_KEY_CHUNK;
}

/* scores[block][keys] = block panels, up to the diagonal. */
static void block_scores(float *scores, const float *block, const float *panels, const struct chunk *c, const struct lane *lane)
{
    const uint64_t rows_up = round_rows(c->rows), keys = keys_of_row(c, rows_up - 1);
    for (uint64_t key = 0; key < keys; key += PANEL) {
        const float *panel = panels + (c->first + key) * lane->head;
        uint64_t row = key > c->diagonal ? (key - c->diagonal) / TILE * TILE : 0;
        for (; row < rows_up; row += TILE)
            tile(&(struct tile_product){.c = scores + row * lane->row + key, .a = block + row * lane->head, .b = panel,
                                        .c_stride = lane->row, .a_row = lane->head, .a_k = 1, .b_stride = PANEL,
                                        .k = lane->head}, 0, 2);
    }
}

/* out[block][head] (+)= weights[block][keys] columns[keys][head] */
static void block_times_keys(float *out, const float *weights, const float *columns, const struct chunk *c,
                             const struct lane *lane)
{
    for (uint64_t column = 0; column < lane->head; column += PANEL) {
        const uint64_t width = lane->head - column < PANEL ? V : PANEL;
        for (uint64_t row = 0; row < c->rows; row += TILE) {
            const struct tile_product t = {.c = out + row * lane->head + column,
                                           .a = weights + row * lane->row,
                                           .b = columns + column * lane->keys + c->first * width,
                                           .c_stride = lane->head,
                                           .a_row = lane->row,
                                           .a_k = 1,
                                           .b_stride = width,
                                           .k = round_rows(keys_of_row(c, row)),
                                           .add_to = c->first > 0};
            width == PANEL ? tile(&t, 0, 2) : tile(&t, 0, 1);
        }
    }
}

/* sums[keys][head] += weights[block][keys]^T block[block][head] */
static void block_to_keys(float *sums, const float *weights, const float *block, const struct chunk *c, const struct lane *lane)
{
    const uint64_t keys = keys_of_row(c, c->rows - 1);
    for (uint64_t key = 0; key < keys; key += TILE) {
        const uint64_t row = key > c->diagonal ? (key - c->diagonal) / EO_TILE_ROWS * EO_TILE_ROWS : 0;
        tile_rows(&(struct tile_product){.c = sums + (c->first + key) * lane->head,
                                         .a = weights + row * lane->row + key,
                                         .b = block + row * lane->head,
                                         .c_stride = lane->head,
                                         .a_row = 1,
                                         .a_k = lane->row,
                                         .b_stride = lane->head,
                                         .k = c->rows - row,
                                         .add_to = true},
                  lane->head);
    }
}

/* ---- rows of scores ---- */

/* Whole vectors can run over [0, count): what is behind the diagonal is below every score, and vanishes ... */
static void mask_row(float *row, uint64_t count)
{
    for (; count % V != 0; count++)
        row[count] = -INFINITY;
}

/* ... and is zero where the next products read it. */
static void zero_tail(float *row, uint64_t count)
{
    for (; count % EO_TILE_PAD != 0; count++)
        row[count] = 0;
}

/* Beyond such a largest score its rounding would show in the exponentials, and beyond 1e9 be all of them: there distances are
 * taken before they are scaled. */
INLINE bool is_far(float top)
{
    return fabsf(top) > 0x1p20f;
}

/* Of a row of queries and the chunks of keys so far: the largest score, what is taken from scaled scores, the sum of
 * exponentials. */
struct softmax {
    float most, sum;
    double base;
};

static const struct softmax softmax_begin = {-INFINITY, 0, 0};

static bool all_lowest(const float *row, uint64_t count)
{
    uint64_t i = 0;
    while (i < count && row[i] == -INFINITY)
        i++;
    return i == count;
}

/* Turns scores into exponentials and adds them to the row's. Returns the factor for what was summed before. `far`: take
 * distances first, whatever the scores. */
static float exponentials(float *row, uint64_t count, float scale_by, bool far, struct softmax *s)
{
    mask_row(row, count);
    vf max = v_set(-INFINITY);
    for (uint64_t i = 0; i < count; i += V)
        max = v_max(max, v_load(row + i));
    const float chunk_most = v_max_element(max);
    const float most = s->most > chunk_most ? s->most : chunk_most, top = most * scale_by;
    if (most == -INFINITY && all_lowest(row, count)) { /* chunks to come may have more; none, and 0 / 0 shows */
        memset(row, 0, count * sizeof(*row));
        zero_tail(row, count);
        return 1;
    }
    far = far || is_far(top);
    const double base = far ? (double)most * (double)scale_by : (double)top;
    for (uint64_t i = 0; far && i < count; i += V)
        v_store(row + i, v_load(row + i) - v_set(most));
    const vf factor = v_set(scale_by);
    const vf shift = v_set(far ? 0 : -top);
    vf sum = v_set(0);
    for (uint64_t i = 0; i < count; i += V) {
        const vf e = v_exp(v_fma(v_load(row + i), factor, shift));
        sum += e;
        v_store(row + i, e);
    }
    zero_tail(row, count);
    const float correction = most == s->most ? 1 : v_exp(v_set((float)(s->base - base)))[0];
    *s = (struct softmax){most, s->sum == 0 ? v_sum(sum) : v_fma(v_set(s->sum), v_set(correction), v_set(v_sum(sum)))[0], base};
    return correction;
}

static void scale_row(float *row, uint64_t count, float factor)
{
    for (uint64_t i = 0; i < count; i += V)
        v_store(row + i, v_load(row + i) * v_set(factor));
}

static void forward_chunk(const struct eo_attention_head *a, const struct lane *lane, const struct chunk *c,
                          struct softmax *softmax)
{
    const float scale_by = (float)(1 / sqrt(a->head_size));
    const uint64_t first = c->first + c->diagonal;
    block_scores(lane->scores, lane->q, lane->key_panels, c, lane);
    for (uint64_t row = 0; row < c->rows; row++) {
        if (c->first == 0) {
            ready_row(a->out, (first + row) * a->out_stride, a->head_size);
            fetch_row(a->q, row_to_come(a, first, row, a->q_stride), a->head_size);
            fetch_row(a->k, (first + row) * a->kv_stride + a->head_size, a->head_size);
            fetch_row(a->v, (first + row) * a->kv_stride + a->head_size, a->head_size);
        }
        const float correction =
            exponentials(lane->scores + row * lane->row, keys_of_row(c, row), scale_by, false, &softmax[row]);
        if (c->first > 0 && correction != 1)
            scale_row(lane->q_sums + row * lane->head, lane->head, correction);
    }
    block_times_keys(lane->q_sums, lane->scores, lane->value_columns, c, lane);
}

static void attention_forward(const struct eo_attention_head *a)
{
    const struct lane lane = lane_of(a, false);
    const element *q = a->q;
    pack_panels(lane.key_panels, a->k, a->kv_stride, a, &lane);
    pack_columns(lane.value_columns, a->v, a->kv_stride, a, &lane);
    for (uint64_t first = 0; first < a->seq; first += EO_QUERY_BLOCK) {
        const uint64_t rows = a->seq - first < EO_QUERY_BLOCK ? a->seq - first : EO_QUERY_BLOCK;
        struct softmax softmax[EO_QUERY_BLOCK];
        for (uint64_t row = 0; row < rows; row++)
            softmax[row] = softmax_begin;
        pack_rows(lane.q, q + first * a->q_stride, a->q_stride, rows, round_rows(rows), a->head_size, lane.head);
        for (uint64_t key = 0; key <= first; key += EO_KEY_CHUNK)
            forward_chunk(a, &lane, &(struct chunk){key, rows, first - key}, softmax);
        for (uint64_t row = 0; row < rows; row++) {
            const float *from = lane.q_sums + row * lane.head;
            element *to = (element *)a->out + (first + row) * a->out_stride;
            const vf factor = v_set(1 / softmax[row].sum);
            FOR_VECTORS(i, a->head_size, STORE(to + i, LOAD(from + i) * factor););
            if (a->log_sum_exp != NULL)
                a->log_sum_exp[first + row] = (float)(softmax[row].base + (double)logf(softmax[row].sum));
        }
    }
}

/* scores: from raw scores to weights P; slopes: from dP to dS = P (dP - delta) scale. `far`: of the whole row, where its scores
 * are so large, else NULL. No sum runs over what is behind the diagonal, so nothing there needs a mask. */
static void slopes_row(float *scores, float *slopes, uint64_t count, float scale_by, float log_sum_exp, float delta,
                       const struct softmax *far)
{
    const vf factor = v_set(scale_by);
    const vf less = v_set(delta);
    const vf shift = v_set(-log_sum_exp), most = v_set(far ? far->most : 0), inverse = v_set(far ? 1 / far->sum : 1);
    for (uint64_t i = 0; i < count; i += V) {
        const vf score = v_load(scores + i);
        const vf p = far ? v_exp((score - most) * factor) * inverse : v_exp(v_fma(score, factor, shift));
        v_store(scores + i, p);
        v_store(slopes + i, p * ((v_load(slopes + i) - less) * factor));
    }
    zero_tail(scores, count);
    zero_tail(slopes, count);
}

static float row_dot(const float *a, const element *b, uint64_t count)
{
    vf sum = v_set(0);
    FOR_VECTORS(i, count, sum = v_fma(LOAD(a + i), LOAD(b + i), sum););
    return v_sum(sum);
}

/* What log_sum_exp cannot tell of rows with far scores: their largest and sums, from the scores again. */
static void far_rows(const struct lane *lane, uint64_t first, uint64_t rows, float scale_by, struct softmax *softmax)
{
    for (uint64_t row = 0; row < rows; row++)
        softmax[row] = softmax_begin;
    for (uint64_t key = 0; key <= first; key += EO_KEY_CHUNK) {
        const struct chunk c = {key, rows, first - key};
        block_scores(lane->scores, lane->q, lane->key_panels, &c, lane);
        for (uint64_t row = 0; row < rows; row++)
            exponentials(lane->scores + row * lane->row, keys_of_row(&c, row), scale_by, true, &softmax[row]);
    }
}

/* A block of queries of one head of the group, all chunks of keys. */
struct backward_block {
    uint64_t first, rows, offset; /* offset: elements from the group's first head */
    const float *log_sum_exp;
    float scale, delta[EO_QUERY_BLOCK];
    struct softmax softmax[EO_QUERY_BLOCK]; /* of far rows */
};

static void backward_chunk(const struct lane *lane, const struct backward_block *b, const struct chunk *c)
{
    block_scores(lane->scores, lane->q, lane->key_panels, c, lane);
    block_scores(lane->slopes, lane->out_gradient, lane->value_panels, c, lane);
    for (uint64_t row = 0; row < c->rows; row++)
        slopes_row(lane->scores + row * lane->row, lane->slopes + row * lane->row, keys_of_row(c, row), b->scale,
                   b->log_sum_exp[row], b->delta[row], is_far(b->log_sum_exp[row]) ? &b->softmax[row] : NULL);
    block_to_keys(lane->value_sums, lane->scores, lane->out_gradient, c, lane);
    block_to_keys(lane->key_sums, lane->slopes, lane->q, c, lane);
    block_times_keys(lane->q_sums, lane->slopes, lane->key_columns, c, lane);
}

/* Before the first chunk: operands, and all that is of rows alone. */
static void backward_begin(const struct eo_attention_head *a, const struct lane *lane, struct backward_block *b)
{
    const element *out_gradient = (const element *)a->out_gradient + b->first * a->out_stride + b->offset;
    const element *out = (const element *)a->saved_out + b->first * a->out_stride + b->offset;
    const uint64_t rows_up = round_rows(b->rows);
    pack_rows(lane->q, (const element *)a->q + b->first * a->q_stride + b->offset, a->q_stride, b->rows, rows_up, a->head_size,
              lane->head);
    pack_rows(lane->out_gradient, out_gradient, a->out_stride, b->rows, rows_up, a->head_size, lane->head);
    bool any_far = false;
    for (uint64_t row = 0; row < b->rows; row++) {
        const uint64_t q_to_come = b->offset + row_to_come(a, b->first, row, a->q_stride);
        const uint64_t out_to_come = b->offset + row_to_come(a, b->first, row, a->out_stride);
        const uint64_t kv_row = (b->first + row) * a->kv_stride;
        ready_row(a->q_gradient, (b->first + row) * a->q_stride + b->offset, a->head_size);
        ready_row(a->k_gradient, kv_row, a->head_size);
        ready_row(a->v_gradient, kv_row, a->head_size);
        fetch_row(a->q, q_to_come, a->head_size);
        fetch_row(a->out_gradient, out_to_come, a->head_size);
        fetch_row(a->saved_out, out_to_come, a->head_size);
        fetch_row(a->k, kv_row + a->head_size, a->head_size);
        fetch_row(a->v, kv_row + a->head_size, a->head_size);
        b->delta[row] = row_dot(lane->out_gradient + row * lane->head, out + row * a->out_stride, a->head_size);
        any_far |= is_far(b->log_sum_exp[row]);
    }
    if (any_far)
        far_rows(lane, b->first, b->rows, b->scale, b->softmax);
}

/* The gradients may lie over q, k and v: a block of q is written after its last use, k and v were packed. */
static void attention_backward(const struct eo_attention_head *a)
{
    const struct lane lane = lane_of(a, true);
    pack_panels(lane.key_panels, a->k, a->kv_stride, a, &lane);
    pack_panels(lane.value_panels, a->v, a->kv_stride, a, &lane);
    pack_columns(lane.key_columns, a->k, a->kv_stride, a, &lane);
    memset(lane.key_sums, 0, lane.keys * lane.head * sizeof(float));
    memset(lane.value_sums, 0, lane.keys * lane.head * sizeof(float));
    struct backward_block b = {.scale = (float)(1 / sqrt(a->head_size))};
    for (uint32_t member = 0; member < a->group; member++)
        for (b.first = 0; b.first < a->seq; b.first += EO_QUERY_BLOCK) {
            b.rows = a->seq - b.first < EO_QUERY_BLOCK ? a->seq - b.first : EO_QUERY_BLOCK;
            b.offset = (uint64_t)member * a->head_size;
            b.log_sum_exp = a->saved_log_sum_exp + member * a->statistic_stride + b.first;
            backward_begin(a, &lane, &b);
            for (uint64_t key = 0; key <= b.first; key += EO_KEY_CHUNK)
                backward_chunk(&lane, &b, &(struct chunk){key, b.rows, b.first - key});
            unpack_rows((element *)a->q_gradient + b.first * a->q_stride + b.offset, a->q_stride, lane.q_sums, lane.head,
                        b.rows, a->head_size);
        }
    unpack_rows(a->k_gradient, a->kv_stride, lane.key_sums, lane.head, a->seq, a->head_size);
    unpack_rows(a->v_gradient, a->kv_stride, lane.value_sums, lane.head, a->seq, a->head_size);
}

#endif
