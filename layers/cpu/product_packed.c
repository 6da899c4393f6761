/* SPDX-License-Identifier: MIT
 *
 * Products by packed operands (product_tiles.h). C is cut into blocks, k into pieces, so that the packed part of B stays in
 * the second-level cache while tiles of A go by:
 *
 *     for a block of columns, a block of rows, a piece of k:
 *         pack A (where it cannot be read in place) and B, multiply tile by tile; after the last piece: finish
 *
 * Packing B costs one pass over it for every block of rows, packing A one for every block of columns; both are small beside
 * the hundreds of operations that each packed element then serves.
 */
#include "layers/cpu/product_tiles.h"
#include "layers/split.h"

enum {
    BLOCK_COLUMNS = 256,
    BLOCK_ROWS = 1056,   /* a multiple of the rows of every tile; a little above a round number of tokens */
    PIECE_UNITS = 1024,  /* of k */
    PACK_UNITS = 16,     /* of k: what is packed at a time for all tiles */
    PACKED_A_UNITS = BLOCK_ROWS * PIECE_UNITS / 2,
    ROWS_MULTIPLE = 96,  /* of the rows of every tile */
};
_Static_assert(BLOCK_ROWS % ROWS_MULTIPLE == 0 && BLOCK_COLUMNS % EO_PANEL == 0, "blocks of whole tiles");

/* A thread's scratch. */
struct lane {
    char *a, *b;
    float *sums; /* [rows / tile][columns / EO_PANEL][tile][EO_PANEL] */
};

struct lane_bytes {
    uint64_t a, b, sums;
};

static uint64_t round_up(uint64_t value, uint64_t multiple)
{
    return eo_split_up(value, multiple) * multiple;
}

/* Units are at most k, and are padded to the largest block of a table. */
static struct lane_bytes lane_bytes_of(uint64_t m, uint64_t n, uint64_t k)
{
    const uint64_t rows = eo_split_min(round_up(m, ROWS_MULTIPLE), BLOCK_ROWS);
    const uint64_t columns = eo_split_min(round_up(n, EO_PANEL), BLOCK_COLUMNS);
    const uint64_t units = eo_split_min(round_up(k, 16), PIECE_UNITS);
    return (struct lane_bytes){
        .a = eo_split_min(rows * units, PACKED_A_UNITS) * EO_UNIT_BYTES,
        .b = columns * units * EO_UNIT_BYTES,
        .sums = (k > PIECE_UNITS ? rows * columns : EO_TILE_ROWS_MAX * EO_PANEL) * sizeof(float),
    };
}

uint64_t eo_product_scratch_bytes(uint64_t m, uint64_t n, uint64_t k, uint32_t thread_count)
{
    const struct lane_bytes bytes = lane_bytes_of(m, n, k);
    return thread_count * (bytes.a + bytes.b + bytes.sums);
}

/* ---- a thread's part ---- */

struct part {
    const struct eo_tiles *tiles;
    struct eo_multiply p; /* C's part, with its operands */
    struct lane lane;
    bool in_place;           /* A is read where it is, but for a last tile of fewer rows */
    uint64_t piece, pieces;  /* units of a piece of k, and how many of them */
};

static const void *operand_at(const struct part *part, const struct eo_operand *o, uint64_t stored_row, uint64_t i)
{
    return eo_element_at(part->p.types.compute, o->values, stored_row * o->stride + i);
}

/* Elements of k in a piece of units. */
static uint64_t piece_elements(const struct part *part, uint64_t piece)
{
    const uint64_t size = part->piece * eo_tiles_unit_elements(part->tiles);
    return eo_split_min(size, part->p.k - piece * size);
}

static uint64_t piece_units(const struct part *part, uint64_t piece)
{
    return eo_tiles_units(part->tiles, piece_elements(part, piece));
}

/* Rows of A, or (b) columns of B, from `first` on, in a piece of k. */
static struct eo_pack pack_of(const struct part *part, bool b, uint64_t first, uint64_t lines, uint64_t piece)
{
    const struct eo_operand *o = b ? &part->p.b : &part->p.a;
    const bool along = o->transposed == b; /* stored rows are lines */
    const uint64_t from = piece * part->piece * eo_tiles_unit_elements(part->tiles);
    return (struct eo_pack){
        .from = along ? operand_at(part, o, first, from) : operand_at(part, o, from, first),
        .stride = o->stride,
        .along = along,
        .lines = lines,
        .k = piece_elements(part, piece),
        .units = piece_units(part, piece),
    };
}

/* Tiles of A, or (b) panels of B, one after the other. Where k goes from stored row to stored row, each of them is read once
 * for all tiles, in turn: a tile alone would fetch a few bytes of every row. */
static void pack_lines(const struct part *part, bool b, char *to, uint64_t first, uint64_t lines, uint64_t piece)
{
    const struct eo_tiles *t = part->tiles;
    const uint64_t width = b ? EO_PANEL : t->rows;
    const struct eo_pack all = pack_of(part, b, first, lines, piece);
    const uint64_t step = all.along ? all.units : PACK_UNITS;
    for (uint64_t unit = 0; unit < all.units; unit += step) {
        for (uint64_t line = 0; line < lines; line += width) {
            struct eo_pack pack = pack_of(part, b, first + line, eo_split_min(width, lines - line), piece);
            pack.begin = unit;
            pack.end = eo_split_min(unit + step, all.units);
            t->pack(t->units, to + line * all.units * EO_UNIT_BYTES, width, !b && t->by_rows, &pack);
        }
    }
}

/* The tile of A at `row` of the block at `first`. */
static struct eo_tile_a tile_of(const struct part *part, uint64_t first, uint64_t row, uint64_t rows, uint64_t piece)
{
    const struct eo_tiles *t = part->tiles;
    const uint64_t units = piece_units(part, piece);
    if (part->in_place && rows == t->rows)
        return (struct eo_tile_a){pack_of(part, false, first + row, rows, piece).from,
                                  part->p.a.stride * eo_dtype_bytes(part->p.types.compute), EO_UNIT_BYTES};
    char *at = part->lane.a + (part->in_place ? 0 : row * units * EO_UNIT_BYTES);
    if (part->in_place)
        pack_lines(part, false, at, first + row, rows, piece);
    return t->by_rows ? (struct eo_tile_a){at, units * EO_UNIT_BYTES, EO_UNIT_BYTES}
                      : (struct eo_tile_a){at, EO_UNIT_BYTES, (uint64_t)t->rows * EO_UNIT_BYTES};
}

struct block {
    uint64_t row, rows, column, columns;
};

/* What `finish` will write, or add to, arrives while the tile is multiplied. */
static void fetch_result(const struct part *part, uint64_t row, uint64_t rows, uint64_t column)
{
    const uint64_t bytes = eo_dtype_bytes(part->p.weight_gradient ? part->p.types.gradient : part->p.types.compute);
    const char *at = (const char *)part->p.c + (row * part->p.c_stride + column) * bytes;
    for (uint64_t r = 0; r < rows; r++, at += part->p.c_stride * bytes)
        for (uint64_t i = 0; i < EO_PANEL * bytes; i += 64)
            __builtin_prefetch(at + i, 1, 3);
}

static void block_piece(const struct part *part, const struct block *b, uint64_t piece)
{
    const struct eo_tiles *t = part->tiles;
    const uint64_t units = piece_units(part, piece), panels = eo_split_up(b->columns, EO_PANEL);
    for (uint64_t row = 0; row < b->rows; row += t->rows) {
        const uint64_t rows = eo_split_min(t->rows, b->rows - row);
        const struct eo_tile_a a = tile_of(part, b->row, row, rows, piece);
        for (uint64_t panel = 0; panel < panels; panel++) {
            const uint64_t column = panel * EO_PANEL;
            float *sums = part->lane.sums;
            if (part->pieces > 1)
                sums += (row / t->rows * panels + panel) * t->rows * EO_PANEL;
            if (piece + 1 == part->pieces)
                fetch_result(part, b->row + row, rows, b->column + column);
            t->multiply(sums, &a, part->lane.b + column * units * EO_UNIT_BYTES, units, piece > 0);
            if (piece + 1 == part->pieces)
                t->finish(&part->p, b->row + row, rows, b->column + column, eo_split_min(EO_PANEL, b->columns - column), sums);
        }
    }
}

static uint64_t block_rows(const struct part *part)
{
    return part->in_place ? BLOCK_ROWS
                          : eo_split_min(BLOCK_ROWS, PACKED_A_UNITS / part->piece / ROWS_MULTIPLE * ROWS_MULTIPLE);
}

static void part_run(struct part *part)
{
    const struct eo_tiles *t = part->tiles;
    const uint64_t units = eo_tiles_units(t, part->p.k);
    part->pieces = units > 0 ? eo_split_up(units, PIECE_UNITS) : 1; /* k may be 0 */
    part->piece = units > 0 ? round_up(eo_split_up(units, part->pieces), 16) : 16;
    part->in_place = !part->p.a.transposed && t->units != EO_UNITS_WIDENED &&
                     part->p.k % (eo_tiles_unit_elements(t) * t->unit_block) == 0;
    const uint64_t rows = block_rows(part);
    if (t->begin)
        t->begin();
    for (uint64_t row = 0; row < part->p.m; row += rows) {
        for (uint64_t column = 0; column < part->p.n; column += BLOCK_COLUMNS) {
            const struct block block = {row, eo_split_min(rows, part->p.m - row), column,
                                        eo_split_min(BLOCK_COLUMNS, part->p.n - column)};
            for (uint64_t piece = 0; piece < part->pieces; piece++) {
                pack_lines(part, true, part->lane.b, block.column, block.columns, piece);
                if (!part->in_place && (column == 0 || part->pieces > 1))
                    pack_lines(part, false, part->lane.a, block.row, block.rows, piece);
                block_piece(part, &block, piece);
            }
        }
    }
    if (t->end)
        t->end();
}

/* ---- a team's product ---- */

struct job {
    const struct eo_tiles *tiles;
    const struct eo_multiply *p;
    struct lane_bytes bytes;
    uint64_t size; /* rows, or columns, of a thread's part */
    bool by_columns;
};

static void job_task(void *arg, uint32_t index)
{
    const struct job *job = arg;
    struct part part = {.tiles = job->tiles, .p = *job->p};
    struct eo_multiply *p = &part.p;
    const eo_dtype dtype = p->types.compute, c_dtype = p->weight_gradient ? p->types.gradient : dtype;
    const uint64_t first = index * job->size;
    char *scratch = (char *)p->scratch + index * (job->bytes.a + job->bytes.b + job->bytes.sums);
    part.lane = (struct lane){scratch, scratch + job->bytes.a, (float *)(void *)(scratch + job->bytes.a + job->bytes.b)};
    if (job->by_columns) {
        p->n = eo_split_min(job->size, p->n - first);
        p->b.values = eo_element_at(dtype, p->b.values, p->b.transposed ? first * p->b.stride : first);
        p->c = eo_element_at_mutable(c_dtype, p->c, first);
        p->aux = eo_element_at_mutable(dtype, p->aux, first);
        p->bias = eo_element_at(dtype, p->bias, first);
    } else {
        p->m = eo_split_min(job->size, p->m - first);
        p->a.values = eo_element_at(dtype, p->a.values, p->a.transposed ? first : first * p->a.stride);
        p->c = eo_element_at_mutable(c_dtype, p->c, first * p->c_stride);
        p->aux = eo_element_at_mutable(dtype, p->aux, first * p->aux_stride);
    }
    part_run(&part);
}

/* One part a thread, k never cut among them. The longer side is cut. */
void eo_product_run(eo_team *team, const struct eo_tiles *tiles, const struct eo_multiply *p)
{
    struct job job = {.tiles = tiles, .p = p, .bytes = lane_bytes_of(p->m, p->n, p->k), .by_columns = p->n > p->m};
    const uint64_t side = job.by_columns ? p->n : p->m, unit = job.by_columns ? EO_PANEL : tiles->rows;
    if (p->m == 0 || p->n == 0)
        return;
    job.size = round_up(eo_split_up(side, eo_team_thread_count(team)), unit);
    eo_team_run(team, (uint32_t)eo_split_up(side, job.size), job_task, &job);
}
