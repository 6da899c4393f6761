/* SPDX-License-Identifier: MIT
 *
 * Products by packed operands (tiles.h). C is cut into blocks, k into pieces, so that the packed part of B stays in
 * the second-level cache while tiles of A go by, and pieces into chunks, so that a tile of A stays in the first-level cache
 * while the panels of B go by:
 *
 *     for a block of rows, a block of columns, a piece of k:
 *         pack A (where it cannot be read in place) and B
 *         for a tile's rows, a group of panels, a chunk, a panel: multiply; after the last chunk of the last piece: finish
 *
 * Packing B costs one pass over it for every block of rows, packing A one for every block of columns; both are small beside
 * the hundreds of operations that each packed element then serves.
 */
#include "layers/cpu/products/tiles.h"
#include "layers/split.h"

enum {
    BLOCK_ROWS = 1056,       /* a multiple of the rows of every tile; a little above a round number of tokens */
    PACK_UNITS = 16,         /* of k: what is packed at a time for all tiles */
    PACKED_A_UNITS = BLOCK_ROWS * 512,
    SUMS = BLOCK_ROWS * 256, /* of a block that is summed piece by piece */
    PIECE_UNITS = EO_B_UNITS_MAX / EO_B_COLUMNS_MIN,
    ROWS_MULTIPLE = 96,      /* of the rows of every tile */
    STREAM_BYTES = 1 << 20,  /* results as large as this will have left the second-level cache when they are read */
};
_Static_assert(BLOCK_ROWS % ROWS_MULTIPLE == 0, "blocks of whole tiles");

/* A thread's scratch. */
struct lane {
    char *a, *b;
    float *sums; /* [rows / tile if there are pieces, else 1][columns / EO_PANEL][tile][EO_PANEL] */
};

struct lane_bytes {
    uint64_t a, b, sums;
};

static uint64_t round_up(uint64_t value, uint64_t multiple)
{
    return eo_split_up(value, multiple) * multiple;
}

/* How a product is cut: at most so many rows and columns of C in a block, so many units of k in a piece. */
struct blocks {
    uint64_t rows, columns, piece, pieces;
};

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : eo_split_min(value, most);
}

static struct blocks blocks_of(const struct eo_tiles *t, uint64_t m, uint64_t n, uint64_t units)
{
    struct blocks b = {.rows = eo_split_min(round_up(m, ROWS_MULTIPLE), BLOCK_ROWS), .pieces = 1};
    /* A piece holds multiples of PACK_UNITS, and up to EO_PIECE_UNITS_MIN one is enough: see lane_bytes_of. k may be 0. */
    const uint64_t all = round_up(units > 0 ? units : 1, PACK_UNITS);
    const bool whole = all * t->columns_min <= t->b_units;
    b.columns = clamp((whole ? t->b_units / all : SUMS / b.rows) / EO_PANEL * EO_PANEL, t->columns_min, t->columns_max);
    b.pieces = eo_split_up(all, t->b_units / b.columns / PACK_UNITS * PACK_UNITS);
    b.piece = round_up(eo_split_up(all, b.pieces), PACK_UNITS);
    b.columns = eo_split_min(b.columns, round_up(n, EO_PANEL));
    return b;
}

/* Enough for every table, and for a smaller product: units are at most k. */
static struct lane_bytes lane_bytes_of(uint64_t m, uint64_t n, uint64_t k)
{
    const uint64_t rows = eo_split_min(round_up(m, ROWS_MULTIPLE), BLOCK_ROWS), columns = round_up(n, EO_PANEL);
    const uint64_t units = eo_split_min(round_up(k, PACK_UNITS), PIECE_UNITS);
    return (struct lane_bytes){
        .a = eo_split_min(rows * units, PACKED_A_UNITS) * EO_UNIT_BYTES,
        .b = eo_split_min(eo_split_min(columns, EO_B_COLUMNS_MAX) * units, EO_B_UNITS_MAX) * EO_UNIT_BYTES,
        .sums = (k > EO_PIECE_UNITS_MIN ? eo_split_min(rows * columns, SUMS)
                                        : EO_TILE_ROWS_MAX * eo_split_min(columns, EO_B_COLUMNS_MAX)) *
                sizeof(float),
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
    struct blocks blocks;
    bool stream;
};

static const void *operand_at(const struct part *part, const struct eo_operand *o, uint64_t stored_row, uint64_t i)
{
    return eo_element_at(part->p.types.compute, o->values, stored_row * o->stride + i);
}

/* Elements of k in a piece of units. */
static uint64_t piece_elements(const struct part *part, uint64_t piece)
{
    const uint64_t size = part->blocks.piece * eo_tiles_unit_elements(part->tiles);
    return eo_split_min(size, part->p.k - piece * size);
}

static uint64_t piece_units(const struct part *part, uint64_t piece)
{
    return eo_tiles_units(part->tiles, piece_elements(part, piece));
}

/* Whether a piece of A is read where it is, but for a last tile of fewer rows. */
static bool reads_in_place(const struct part *part, uint64_t piece)
{
    const struct eo_tiles *t = part->tiles;
    return !part->p.a.transposed && t->units != EO_UNITS_WIDENED &&
           piece_elements(part, piece) % (eo_tiles_unit_elements(t) * t->unit_block) == 0;
}

/* Rows of A, or (b) columns of B, from `first` on, in a piece of k. */
static struct eo_pack pack_of(const struct part *part, bool b, uint64_t first, uint64_t lines, uint64_t piece)
{
    const struct eo_operand *o = b ? &part->p.b : &part->p.a;
    const bool along = o->transposed == b; /* stored rows are lines */
    const uint64_t from = piece * part->blocks.piece * eo_tiles_unit_elements(part->tiles);
    return (struct eo_pack){
        .from = along ? operand_at(part, o, first, from) : operand_at(part, o, from, first),
        .stride = o->stride,
        .along = along,
        .lines = lines,
        .k = piece_elements(part, piece),
        .units = piece_units(part, piece),
        .row = EO_PACK_BLOCK,
        .block = (b ? EO_PANEL : part->tiles->rows) * EO_PACK_BLOCK,
    };
}

/* Tiles of A, or (b) panels of B, one after the other. Where k goes from stored row to stored row, each of them is read once
 * for all tiles, in turn: a tile alone would fetch a few bytes of every row. */
static void pack_lines(const struct part *part, bool b, char *to, uint64_t first, uint64_t lines, uint64_t piece)
{
    const struct eo_tiles *t = part->tiles;
    const uint64_t width = b ? EO_PANEL : t->rows;
    const struct eo_pack all = pack_of(part, b, first, lines, piece);
    if (!all.along && t->pack_across && (b || !t->by_rows)) {
        t->pack_across(t->units, to, width, &all);
        return;
    }
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
    const bool in_place = reads_in_place(part, piece);
    if (in_place && rows == t->rows)
        return (struct eo_tile_a){pack_of(part, false, first + row, rows, piece).from,
                                  part->p.a.stride * eo_dtype_bytes(part->p.types.compute), EO_UNIT_BYTES};
    char *at = part->lane.a + (in_place ? 0 : row * piece_units(part, piece) * EO_UNIT_BYTES);
    if (in_place)
        pack_lines(part, false, at, first + row, rows, piece);
    const uint64_t unit = (uint64_t)t->rows * EO_UNIT_BYTES;
    return (struct eo_tile_a){at, t->by_rows ? EO_PACK_BLOCK * EO_UNIT_BYTES : EO_UNIT_BYTES, unit};
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

/* The rows of a tile, and some panels, of a block; the sums of the first of them. */
struct group {
    uint64_t row, rows, column, columns;
    float *sums;
};

static void chunk_run(const struct part *part, const struct block *b, const struct group *g, uint64_t piece,
                      const struct eo_tile_a *a, uint64_t from, uint64_t chunk)
{
    const struct eo_tiles *t = part->tiles;
    const uint64_t units = piece_units(part, piece), end = eo_split_min(from + chunk, units);
    const bool is_last = piece + 1 == part->blocks.pieces && end == units;
    float *sums = g->sums;
    for (uint64_t column = g->column; column < g->column + g->columns; column += EO_PANEL, sums += t->rows * EO_PANEL) {
        if (is_last && !part->stream)
            fetch_result(part, b->row + g->row, g->rows, b->column + column);
        const char *panel = part->lane.b + (column * units + from * EO_PANEL) * EO_UNIT_BYTES;
        (b->columns - column <= EO_PANEL / 2 ? t->multiply_half : t->multiply)(sums, a, panel, end - from, piece + from > 0);
        if (is_last)
            t->finish(&part->p, b->row + g->row, g->rows, b->column + column, eo_split_min(EO_PANEL, b->columns - column), sums,
                      part->stream);
    }
}

static void group_run(const struct part *part, const struct block *b, const struct group *g, uint64_t piece,
                      const struct eo_tile_a *tile, uint64_t chunk)
{
    const uint64_t units = piece_units(part, piece);
    uint64_t from = 0;
    do { /* once where k is 0, too */
        const struct eo_tile_a a = {(const char *)tile->values + from * tile->unit, tile->row, tile->unit};
        chunk_run(part, b, g, piece, &a, from, chunk);
        from += chunk;
    } while (from < units);
}

/* Units of k and panels that stay in the first-level cache. Of a long k a tile of A comes from farther away: all panels take
 * what is there of it. */
static uint64_t cached_units(const struct eo_tiles *t, uint64_t units, uint64_t *panels)
{
    const bool is_short = t->group && units <= 3 * (uint64_t)t->chunk;
    const uint64_t chunks = t->chunk ? eo_split_up(units, is_short ? t->chunk : t->chunk / 2) : 1;
    *panels = is_short ? t->group : EO_B_COLUMNS_MAX / EO_PANEL;
    return chunks > 1 ? round_up(eo_split_up(units, chunks), t->unit_block) : units;
}

static void block_piece(const struct part *part, const struct block *b, uint64_t piece)
{
    const struct eo_tiles *t = part->tiles;
    uint64_t panels;
    const uint64_t chunk = cached_units(t, piece_units(part, piece), &panels), columns = round_up(b->columns, EO_PANEL);
    for (uint64_t row = 0; row < b->rows; row += t->rows) {
        struct group g = {.row = row, .rows = eo_split_min(t->rows, b->rows - row), .columns = panels * EO_PANEL};
        const struct eo_tile_a tile = tile_of(part, b->row, row, g.rows, piece);
        for (; g.column < b->columns; g.column += g.columns) {
            g.columns = eo_split_min(g.columns, columns - g.column);
            g.sums = part->lane.sums + (part->blocks.pieces > 1 ? row * columns + g.column * t->rows : 0);
            group_run(part, b, &g, piece, &tile, chunk);
        }
    }
}

/* Rows of a block: what is packed of A finds room. */
static uint64_t block_rows(const struct part *part)
{
    const struct blocks *b = &part->blocks;
    return reads_in_place(part, 0) && reads_in_place(part, b->pieces - 1)
               ? b->rows
               : eo_split_min(b->rows, PACKED_A_UNITS / b->piece / ROWS_MULTIPLE * ROWS_MULTIPLE);
}

static bool may_stream(const struct eo_tiles *t, const struct eo_multiply *p)
{
    const uint64_t row_bytes = p->c_stride * eo_dtype_bytes(p->weight_gradient ? p->types.gradient : p->types.compute);
    return t->streams && !p->accumulate && (uintptr_t)p->c % 64 == 0 && row_bytes % 64 == 0 && p->m * row_bytes >= STREAM_BYTES;
}

static void part_run(struct part *part)
{
    const struct eo_tiles *t = part->tiles;
    part->blocks = blocks_of(t, part->p.m, part->p.n, eo_tiles_units(t, part->p.k));
    part->stream = may_stream(t, &part->p);
    const uint64_t rows = block_rows(part), columns = part->blocks.columns, pieces = part->blocks.pieces;
    if (t->begin)
        t->begin();
    for (uint64_t row = 0; row < part->p.m; row += rows) {
        for (uint64_t column = 0; column < part->p.n; column += columns) {
            const struct block block = {row, eo_split_min(rows, part->p.m - row), column,
                                        eo_split_min(columns, part->p.n - column)};
            for (uint64_t piece = 0; piece < pieces; piece++) {
                if (row == 0 || columns < part->p.n || pieces > 1)
                    pack_lines(part, true, part->lane.b, block.column, block.columns, piece);
                if (!reads_in_place(part, piece) && (column == 0 || pieces > 1))
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

/* Each thread packs what its part shares with others: all of B where rows are cut, all of A, unless it reads that in place,
 * where columns are. */
static bool cut_by_columns(const struct eo_tiles *t, const struct eo_multiply *p, uint32_t thread_count)
{
    const bool in_place = !p->a.transposed && t->units != EO_UNITS_WIDENED;
    return p->n > p->m || (in_place && p->n / thread_count >= t->columns_min);
}

/* One part a thread, k never cut among them. */
void eo_product_run(eo_team *team, const struct eo_tiles *tiles, const struct eo_multiply *p)
{
    const uint32_t thread_count = eo_team_thread_count(team);
    struct job job = {.tiles = tiles, .p = p, .bytes = lane_bytes_of(p->m, p->n, p->k),
                      .by_columns = cut_by_columns(tiles, p, thread_count)};
    const uint64_t side = job.by_columns ? p->n : p->m, unit = job.by_columns ? EO_PANEL : tiles->rows;
    if (p->m == 0 || p->n == 0)
        return;
    job.size = round_up(eo_split_up(side, thread_count), unit);
    eo_team_run(team, (uint32_t)eo_split_up(side, job.size), job_task, &job);
}
