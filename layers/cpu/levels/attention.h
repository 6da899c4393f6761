/* SPDX-License-Identifier: MIT
 *
 * Causal attention of one head at one level. Queries go in blocks of EO_QUERY_BLOCK against all keys before them:
 *
 *              keys ->                    S = Q K^T, P = softmax(S), O = P V
 *     queries  [ block 0 | .            ]
 *              [ block 1       | .      ] a row's work ends at its diagonal, rounded up to a tile,
 *              [ block 2             | .] so little of the upper triangle is computed
 *
 * All operands are packed into the scratch first: rows close together (in memory they are a token apart, each on a
 * page of its own), heads padded to EO_HEAD_PAD and keys to EO_TILE_PAD with zeros, so that the products need no
 * edges. K^T and V^T lie in panels [keys / PANEL][head][PANEL].
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
                   EO_QUERY_BLOCK % EO_TILE_ROWS == 0 && EO_TILE_PAD % EO_TILE_ROWS == 0,
               "a tile of attention has an edge");

/* What lies where in a thread's scratch; see attention_lane_floats in attention.c. */
struct lane {
    uint64_t keys, head, row; /* keys and head padded; floats of a row of scores (not a power of two: cache sets) */
    float *key_panels, *value_panels, *keys_packed, *values_packed, *key_sums, *value_sums;
    float *q, *q_sums, *out_gradient, *scores, *slopes;
};

static struct lane lane_of(const struct eo_attention_head *a, bool backward)
{
    struct lane lane = {0};
    lane.keys = (a->seq + EO_TILE_PAD - 1) / EO_TILE_PAD * EO_TILE_PAD;
    lane.head = (a->head_size + EO_HEAD_PAD - 1) / EO_HEAD_PAD * EO_HEAD_PAD;
    lane.row = lane.keys + EO_HEAD_PAD;
    const uint64_t all = lane.keys * lane.head;
    const uint64_t block = EO_QUERY_BLOCK * lane.head;
    float *p = a->scratch;
    lane.q = p, p += block;
    lane.q_sums = p, p += block;
    lane.scores = p, p += EO_QUERY_BLOCK * lane.row;
    lane.key_panels = p, p += all;
    if (!backward) {
        lane.values_packed = p;
        return lane;
    }
    lane.out_gradient = p, p += block;
    lane.slopes = p, p += EO_QUERY_BLOCK * lane.row;
    lane.value_panels = p, p += all;
    lane.keys_packed = p, p += all;
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

/* scores[block][keys] = block panels, up to the diagonal of the block that begins at query `first`. */
static void block_scores(float *scores, const float *block, const float *panels, uint64_t first, uint64_t rows,
                         const struct lane *lane)
{
    const uint64_t rows_up = round_rows(rows);
    for (uint64_t key = 0; key < first + rows_up; key += PANEL) {
        const float *panel = panels + key * lane->head;
        uint64_t row = key > first ? (key - first) / TILE * TILE : 0;
        for (; row < rows_up; row += TILE)
            tile(&(struct tile_product){.c = scores + row * lane->row + key, .a = block + row * lane->head, .b = panel,
                                        .c_stride = lane->row, .a_row = lane->head, .a_k = 1, .b_stride = PANEL,
                                        .k = lane->head}, 0, 2);
    }
}

/* out[block][head] = weights[block][keys] packed[keys][head] */
static void block_times_keys(float *out, const float *weights, const float *packed, uint64_t first, uint64_t rows,
                             const struct lane *lane)
{
    for (uint64_t row = 0; row < rows; row += TILE)
        tile_rows(&(struct tile_product){.c = out + row * lane->head, .a = weights + row * lane->row, .b = packed,
                                         .c_stride = lane->head, .a_row = lane->row, .a_k = 1, .b_stride = lane->head,
                                         .k = round_rows(first + row + 1)}, lane->head);
}

/* sums[keys][head] += weights[block][keys]^T block[block][head] */
static void block_to_keys(float *sums, const float *weights, const float *block, uint64_t first, uint64_t rows,
                          const struct lane *lane)
{
    for (uint64_t key = 0; key < first + rows; key += TILE) {
        const uint64_t row = key > first ? (key - first) / EO_TILE_ROWS * EO_TILE_ROWS : 0;
        tile_rows(&(struct tile_product){.c = sums + key * lane->head, .a = weights + row * lane->row + key,
                                         .b = block + row * lane->head, .c_stride = lane->head, .a_row = 1,
                                         .a_k = lane->row, .b_stride = lane->head, .k = rows - row, .add_to = true},
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

/* Turns scores into exponentials of their distance from the maximum; returns their sum. */
static float exponentials(float *row, uint64_t count, float scale_by, float *max_out)
{
    mask_row(row, count);
    vf max = v_set(-INFINITY);
    for (uint64_t i = 0; i < count; i += V)
        max = v_max(max, v_load(row + i));
    const float most = v_max_element(max), top = most * scale_by;
    for (uint64_t i = 0; is_far(top) && i < count; i += V)
        v_store(row + i, v_load(row + i) - v_set(most));
    const vf factor = v_set(scale_by);
    const vf shift = v_set(is_far(top) ? 0 : -top);
    vf sum = v_set(0);
    for (uint64_t i = 0; i < count; i += V) {
        const vf e = v_exp(v_fma(v_load(row + i), factor, shift));
        sum += e;
        v_store(row + i, e);
    }
    zero_tail(row, count);
    *max_out = top;
    return v_sum(sum);
}

static void attention_forward(const struct eo_attention_head *a)
{
    const struct lane lane = lane_of(a, false);
    const float scale_by = (float)(1 / sqrt(a->head_size));
    const element *q = a->q;
    pack_panels(lane.key_panels, a->k, a->kv_stride, a, &lane);
    pack_rows(lane.values_packed, a->v, a->kv_stride, a->seq, lane.keys, a->head_size, lane.head);
    for (uint64_t first = 0; first < a->seq; first += EO_QUERY_BLOCK) {
        const uint64_t rows = a->seq - first < EO_QUERY_BLOCK ? a->seq - first : EO_QUERY_BLOCK;
        pack_rows(lane.q, q + first * a->q_stride, a->q_stride, rows, round_rows(rows), a->head_size, lane.head);
        block_scores(lane.scores, lane.q, lane.key_panels, first, rows, &lane);
        float inverse[EO_QUERY_BLOCK];
        for (uint64_t row = 0; row < rows; row++) {
            float max = 0;
            ready_row(a->out, (first + row) * a->out_stride, a->head_size);
            fetch_row(a->q, row_to_come(a, first, row, a->q_stride), a->head_size);
            fetch_row(a->k, (first + row) * a->kv_stride + a->head_size, a->head_size);
            fetch_row(a->v, (first + row) * a->kv_stride + a->head_size, a->head_size);
            const float sum = exponentials(lane.scores + row * lane.row, first + row + 1, scale_by, &max);
            inverse[row] = 1 / sum;
            if (a->log_sum_exp != NULL)
                a->log_sum_exp[first + row] = max + logf(sum);
        }
        block_times_keys(lane.q_sums, lane.scores, lane.values_packed, first, rows, &lane);
        for (uint64_t row = 0; row < rows; row++) {
            const float *from = lane.q_sums + row * lane.head;
            element *to = (element *)a->out + (first + row) * a->out_stride;
            const vf factor = v_set(inverse[row]);
            FOR_VECTORS(i, a->head_size, STORE(to + i, LOAD(from + i) * factor););
        }
    }
}

/* scores: from raw scores to weights P; slopes: from dP to dS = P (dP - delta) scale. No sum runs over what is behind the
 * diagonal, so nothing there needs a mask. */
static void slopes_row(float *scores, float *slopes, uint64_t count, float scale_by, float log_sum_exp, float delta)
{
    const vf factor = v_set(scale_by);
    const vf shift = v_set(-log_sum_exp);
    const vf less = v_set(delta);
    const bool far = is_far(log_sum_exp);
    float top;
    const vf inverse = v_set(far ? 1 / exponentials(scores, count, scale_by, &top) : 1);
    for (uint64_t i = 0; i < count; i += V) {
        const vf p = far ? v_load(scores + i) * inverse : v_exp(v_fma(v_load(scores + i), factor, shift));
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

static void attention_backward_block(const struct eo_attention_head *a, const struct lane *lane, uint32_t member,
                                     uint64_t first, uint64_t rows)
{
    const uint64_t offset = (uint64_t)member * a->head_size;
    const float scale_by = (float)(1 / sqrt(a->head_size));
    const element *out_gradient = (const element *)a->out_gradient + first * a->out_stride + offset;
    const element *out = (const element *)a->saved_out + first * a->out_stride + offset;
    const float *log_sum_exp = a->saved_log_sum_exp + member * a->statistic_stride + first;
    pack_rows(lane->q, (const element *)a->q + first * a->q_stride + offset, a->q_stride, rows, round_rows(rows), a->head_size,
              lane->head);
    pack_rows(lane->out_gradient, out_gradient, a->out_stride, rows, round_rows(rows), a->head_size, lane->head);
    block_scores(lane->scores, lane->q, lane->key_panels, first, rows, lane);
    block_scores(lane->slopes, lane->out_gradient, lane->value_panels, first, rows, lane);
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t q_to_come = offset + row_to_come(a, first, row, a->q_stride);
        const uint64_t out_to_come = offset + row_to_come(a, first, row, a->out_stride);
        const uint64_t kv_row = (first + row) * a->kv_stride;
        ready_row(a->q_gradient, (first + row) * a->q_stride + offset, a->head_size);
        ready_row(a->k_gradient, kv_row, a->head_size);
        ready_row(a->v_gradient, kv_row, a->head_size);
        fetch_row(a->q, q_to_come, a->head_size);
        fetch_row(a->out_gradient, out_to_come, a->head_size);
        fetch_row(a->saved_out, out_to_come, a->head_size);
        fetch_row(a->k, kv_row + a->head_size, a->head_size);
        fetch_row(a->v, kv_row + a->head_size, a->head_size);
        const float delta = row_dot(lane->out_gradient + row * lane->head, out + row * a->out_stride, a->head_size);
        slopes_row(lane->scores + row * lane->row, lane->slopes + row * lane->row, first + row + 1, scale_by,
                   log_sum_exp[row], delta);
    }
    block_to_keys(lane->value_sums, lane->scores, lane->out_gradient, first, rows, lane);
    block_to_keys(lane->key_sums, lane->slopes, lane->q, first, rows, lane);
    block_times_keys(lane->q_sums, lane->slopes, lane->keys_packed, first, rows, lane);
    unpack_rows((element *)a->q_gradient + first * a->q_stride + offset, a->q_stride, lane->q_sums, lane->head, rows,
                a->head_size);
}

/* The gradients may lie over q, k and v: a block of q is written after its last use, k and v were packed. */
static void attention_backward(const struct eo_attention_head *a)
{
    const struct lane lane = lane_of(a, true);
    pack_panels(lane.key_panels, a->k, a->kv_stride, a, &lane);
    pack_panels(lane.value_panels, a->v, a->kv_stride, a, &lane);
    pack_rows(lane.keys_packed, a->k, a->kv_stride, a->seq, lane.keys, a->head_size, lane.head);
    memset(lane.key_sums, 0, lane.keys * lane.head * sizeof(float));
    memset(lane.value_sums, 0, lane.keys * lane.head * sizeof(float));
    for (uint32_t member = 0; member < a->group; member++)
        for (uint64_t first = 0; first < a->seq; first += EO_QUERY_BLOCK) {
            const uint64_t rest = a->seq - first;
            attention_backward_block(a, &lane, member, first, rest < EO_QUERY_BLOCK ? rest : EO_QUERY_BLOCK);
        }
    unpack_rows(a->k_gradient, a->kv_stride, lane.key_sums, lane.head, a->seq, a->head_size);
    unpack_rows(a->v_gradient, a->kv_stride, lane.value_sums, lane.head, a->seq, a->head_size);
}

#endif
