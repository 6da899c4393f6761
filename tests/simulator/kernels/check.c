/* SPDX-License-Identifier: MIT
 *
 * Looks at every load and store of a kernel before it happens. The compiler calls these functions, under the names of
 * ThreadSanitizer's, which compile.py changes.
 *
 * Each piece of memory has a cell: who of the block that runs now has written and read it last, and whether earlier
 * blocks of the launch have. Pieces of a page are as large as all accesses of the launch to that page have allowed, 16, 4 or 2
 * bytes: the first access that begins or ends within a piece splits the page's cells, and each part takes what was known of
 * the whole. Cells are not cleared: a cell of an older block is found by its number. Between launches pages of cells are
 * kept, up to PAGES_KEPT, so that kernels at one place find them again.
 */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDEST = 4, WORD = 2, FINEST = 1 }; /* pieces' bytes as powers of 2 */
enum { PAGE = 1024, CELLS = PAGE >> FINEST, CACHE = 1024, SHARED_PAGES = SHARED_ROOM / PAGE + 1 };

enum {
    READ_ONCE = 1,      /* in this launch */
    WRITTEN_ONCE = 2,
    READ_EARLIER = 4,   /* by another block of this launch */
    WRITTEN_EARLIER = 8,
    ADDED_EARLIER = 16, /* by an atomic */
    IS_ATOMIC = 32,     /* the last write in this block */
};

/* Readers: a thread + 1, or several at one time. */
enum { MANY_OF_WARP = 0x4000, MANY_OF_BLOCK = 0x8000 };

struct cell {
    uint32_t block; /* their number, over all launches */
    uint16_t writer, written_at, reader, read_at;
    uint8_t flags, unused[3];
};

/* PAGE >> shift of the cells are in use. */
struct cells {
    uint32_t launch, shift;
    struct cell at[CELLS];
};

struct page {
    uintptr_t at;
    struct page *next; /* of the same hash */
    uintptr_t from, to; /* the allocation */
    struct cells cells;
};

enum { BUCKETS = 1 << 16, PAGES_KEPT = 1 << 12 /* 34 MB */ };

struct checks {
    uint32_t launch, block, first_block;
    uint64_t read_bytes, written_bytes;
    struct page *cache[CACHE];
    struct touched {
        uintptr_t at;
        struct page *page;
    } *touched; /* by this launch */
    uint32_t touched_count, touched_room, page_count;
    struct cells shared[SHARED_PAGES];
    struct page *buckets[BUCKETS];
};

/* --- the beginning and the end of things --- */

static void free_pages(struct checks *c)
{
    for (uint32_t i = 0; i < BUCKETS; i++) {
        for (struct page *page = c->buckets[i], *next; page; page = next) {
            next = page->next;
            free(page);
        }
        c->buckets[i] = NULL;
    }
    memset(c->cache, 0, sizeof(c->cache));
    c->page_count = 0;
}

void kernel_checks_begin_launch(struct runner *r)
{
    if (!r->checks && !(r->checks = calloc(1, sizeof(*r->checks))))
        abort();
    struct checks *c = r->checks;
    c->launch++;
    c->first_block = c->block + 1;
    c->read_bytes = c->written_bytes = 0;
    c->touched_count = 0;
    if (c->page_count > PAGES_KEPT)
        free_pages(c);
}

void kernel_checks_begin_block(struct runner *r)
{
    r->checks->block++;
}

void kernel_checks_end_launch(struct runner *r)
{
    const struct checks *c = r->checks;
    struct kernel_traffic traffic = {.name = r->launch->name, .read_bytes = c->read_bytes, .written_bytes = c->written_bytes};
    memcpy(traffic.grid, r->launch->grid, sizeof(traffic.grid));
    memcpy(traffic.block, r->launch->block, sizeof(traffic.block));
    if (kernel_on_traffic && !r->options.unchecked)
        kernel_on_traffic(&traffic);
}

void kernel_checks_free(struct checks *c)
{
    if (!c)
        return;
    free_pages(c);
    free(c->touched);
    free(c);
}

/* --- order --- */

/* Whether what this thread did at this clock of its warp comes before what the current thread does now. */
static bool comes_before(const struct runner *r, uint32_t thread, uint32_t clock)
{
    const uint32_t warp = thread / WARP;
    if (warp == r->current / WARP && clock < r->warp_clock[warp])
        return true;
    return clock <= r->warp_clock_at_barrier[warp];
}

static bool readers_come_before(const struct runner *r, const struct cell *cell)
{
    if (cell->reader == MANY_OF_BLOCK)
        return cell->read_at < r->epoch;
    if (cell->reader & MANY_OF_WARP)
        return comes_before(r, (uint32_t)(cell->reader & ~MANY_OF_WARP) * WARP, cell->read_at);
    return comes_before(r, cell->reader - 1u, cell->read_at);
}

static void note_reader(const struct runner *r, struct cell *cell)
{
    const uint32_t warp = r->current / WARP, me = r->current + 1;
    if (cell->reader != 0 && cell->reader != me && !readers_come_before(r, cell)) {
        if (cell->reader == (MANY_OF_WARP | warp) || cell->reader == MANY_OF_BLOCK)
            return;
        if (!(cell->reader & MANY_OF_WARP) && (cell->reader - 1u) / WARP == warp) {
            cell->reader = (uint16_t)(MANY_OF_WARP | warp);
            cell->read_at = r->warp_clock[warp];
        } else {
            cell->reader = MANY_OF_BLOCK;
            cell->read_at = (uint16_t)r->epoch;
        }
        return;
    }
    cell->reader = (uint16_t)me;
    cell->read_at = r->warp_clock[warp];
}

enum access { READS, WRITES, ADDS /* an atomic update */ };

static _Noreturn void object_to_race(const struct runner *r, const struct cell *cell, enum access access, uintptr_t at,
                                     const char *other)
{
    static const char *const verbs[] = {"reads", "writes", "updates"};
    char who[32] = "another block";
    const uint16_t thread = strcmp(other, "read") == 0 ? cell->reader : cell->writer;
    if (thread & (MANY_OF_BLOCK | MANY_OF_WARP))
        snprintf(who, sizeof(who), "several threads");
    else if (cell->block == r->checks->block && thread > 0 && thread != r->current + 1)
        snprintf(who, sizeof(who), "thread %u", thread - 1u);
    const bool is_shared = at - (uintptr_t)r->shared < r->shared_bytes;
    kernel_object("%s %s memory at %#llx, which %s has %s, and no barrier lies between", verbs[access],
                  is_shared ? "shared" : "global", (unsigned long long)(is_shared ? at - (uintptr_t)r->shared : at), who, other);
}

/* `first_block`: of the launch; of shared memory this one. `bytes`: the cell's. */
static __attribute__((noinline)) void touch_cell(struct runner *r, struct cell *cell, uint32_t bytes, enum access access,
                                                 uintptr_t at, uint32_t first_block)
{
    struct checks *c = r->checks;
    const uint16_t me = (uint16_t)(r->current + 1);
    if (cell->block != c->block) {
        if (cell->block < first_block)
            cell->flags = 0;
        else
            cell->flags |= (uint8_t)((cell->reader ? READ_EARLIER : 0) |
                                     (!cell->writer ? 0 : cell->flags & IS_ATOMIC ? ADDED_EARLIER : WRITTEN_EARLIER));
        cell->flags &= (uint8_t)~IS_ATOMIC;
        cell->block = c->block;
        cell->writer = cell->reader = 0;
    }
    const bool both_atomic = access == ADDS && (cell->flags & IS_ATOMIC);
    if (cell->writer && cell->writer != me && !both_atomic && !comes_before(r, cell->writer - 1u, cell->written_at))
        object_to_race(r, cell, access, at, "written");
    if (cell->flags & (access == ADDS ? WRITTEN_EARLIER : WRITTEN_EARLIER | ADDED_EARLIER))
        object_to_race(r, cell, access, at, "written");
    if (access == READS) {
        if (cell->reader != me || cell->read_at != r->warp_clock[r->current / WARP])
            note_reader(r, cell);
        if (!(cell->flags & READ_ONCE))
            cell->flags |= READ_ONCE, c->read_bytes += bytes;
        return;
    }
    if (cell->flags & READ_EARLIER)
        object_to_race(r, cell, access, at, "read");
    if (cell->reader && cell->reader != me && !readers_come_before(r, cell))
        object_to_race(r, cell, access, at, "read");
    cell->writer = me;
    cell->written_at = r->warp_clock[r->current / WARP];
    cell->flags = (uint8_t)((cell->flags & ~IS_ATOMIC) | (access == ADDS ? IS_ATOMIC : 0));
    if (!(cell->flags & WRITTEN_ONCE))
        cell->flags |= WRITTEN_ONCE, c->written_bytes += bytes;
}

/* --- the cells of a page --- */

static inline uint32_t fitting_shift(uintptr_t at, uint32_t bytes)
{
    const uintptr_t both = at | bytes;
    return both % (1u << WIDEST) == 0 ? WIDEST : both % (1u << WORD) == 0 ? WORD : FINEST;
}

static void split_cells(struct cells *cells, uint32_t shift)
{
    const uint32_t parts = 1u << (cells->shift - shift);
    for (uint32_t i = PAGE >> cells->shift; i-- > 0;) {
        const struct cell whole = cells->at[i];
        for (uint32_t p = 0; p < parts; p++)
            cells->at[i * parts + p] = whole;
    }
    cells->shift = shift;
}

/* Pieces as small as this access asks for; as large, where it is the launch's first. */
static inline void fit_cells(const struct checks *c, struct cells *cells, uintptr_t at, uint32_t bytes)
{
    const uint32_t shift = fitting_shift(at, bytes);
    if (cells->launch != c->launch) {
        cells->launch = c->launch;
        cells->shift = shift;
    } else if (shift < cells->shift) {
        split_cells(cells, shift);
    }
}

static inline void enter_cell(struct runner *r, struct cell *cell, uint32_t bytes, enum access access, uintptr_t at,
                              uint32_t first_block)
{
    struct checks *c = r->checks;
    const uint16_t me = (uint16_t)(r->current + 1), now = r->warp_clock[r->current / WARP];
    if (cell->block >= first_block || access == ADDS)
        touch_cell(r, cell, bytes, access, at, first_block);
    else if (access == READS) /* the first of the launch, as most are */
        *cell = (struct cell){c->block, 0, 0, me, now, READ_ONCE, {0}}, c->read_bytes += bytes;
    else
        *cell = (struct cell){c->block, me, now, 0, 0, WRITTEN_ONCE, {0}}, c->written_bytes += bytes;
}

/* Bytes `from` to `to` of the page. Neighbours of which the same was known come to the same. */
static inline void touch_cells(struct runner *r, struct cells *cells, uint32_t from, uint32_t to, enum access access,
                               uintptr_t at, uint32_t first_block)
{
    struct checks *c = r->checks;
    const uint32_t grain = 1u << cells->shift;
    struct cell *cell = &cells->at[from >> cells->shift], *const end = &cells->at[(to + grain - 1) >> cells->shift];
    if (cell + 1 == end) {
        enter_cell(r, cell, grain, access, at, first_block);
        return;
    }
    while (cell < end) {
        const uint64_t read_bytes = c->read_bytes, written_bytes = c->written_bytes;
        const struct cell before = *cell, *const first = cell;
        enter_cell(r, cell, grain, access, at, first_block);
        const uint64_t more_read = c->read_bytes - read_bytes, more_written = c->written_bytes - written_bytes;
        for (cell++; cell < end && memcmp(cell, &before, sizeof(before)) == 0; cell++) {
            *cell = *first;
            c->read_bytes += more_read;
            c->written_bytes += more_written;
        }
    }
}

/* --- shared memory --- */

static __attribute__((noinline)) void touch_shared(struct runner *r, uintptr_t at, uint32_t bytes, enum access access)
{
    const uint32_t from = (uint32_t)(at - (uintptr_t)r->shared), to = from + bytes;
    const struct piece *piece = r->pieces;
    while (piece < r->pieces + r->piece_count && (from < piece->from || to > piece->to))
        piece++;
    if (piece == r->pieces + r->piece_count)
        kernel_object("%s %u bytes at %u of shared memory, beyond what was asked for", access == READS ? "reads" : "writes",
                      bytes, from);
    if (r->options.unchecked)
        return;
    struct checks *c = r->checks;
    const uint64_t read_bytes = c->read_bytes, written_bytes = c->written_bytes;
    for (uint32_t begin = from, end; begin < to; begin = end) {
        struct cells *cells = &c->shared[begin / PAGE];
        end = begin / PAGE * PAGE + PAGE < to ? begin / PAGE * PAGE + PAGE : to;
        fit_cells(c, cells, begin, end - begin);
        touch_cells(r, cells, begin % PAGE, end - begin / PAGE * PAGE, access, at, c->block);
        for (uint32_t i = begin % PAGE; access == READS && i < end - begin / PAGE * PAGE; i += 1u << cells->shift)
            if (cells->at[i >> cells->shift].writer == 0)
                kernel_object("reads shared memory at %u, which no thread of the block has written", from);
    }
    c->read_bytes = read_bytes; /* of global memory alone */
    c->written_bytes = written_bytes;
}

/* --- global memory --- */

static struct page *page_at(struct checks *c, uintptr_t at)
{
    const uintptr_t number = at / PAGE;
    struct page **cached = &c->cache[number % CACHE];
    if (*cached && (*cached)->at == number)
        return *cached;
    struct page **bucket = &c->buckets[(number ^ number >> 16) % BUCKETS], *page = *bucket;
    while (page && page->at != number)
        page = page->next;
    if (!page) {
        page = calloc(1, sizeof(*page));
        if (!page)
            abort();
        page->at = number;
        page->next = *bucket;
        *bucket = page;
        c->page_count++;
    }
    *cached = page;
    return page;
}

static void enter_page(struct checks *c, struct page *page)
{
    page->from = page->to = 0;
    if (c->touched_count == c->touched_room) {
        c->touched_room = c->touched_room ? 2 * c->touched_room : 256;
        c->touched = realloc(c->touched, c->touched_room * sizeof(c->touched[0]));
        if (!c->touched)
            abort();
    }
    c->touched[c->touched_count++] = (struct touched){page->at, page};
}

static __attribute__((noinline)) void touch_global(struct runner *r, uintptr_t at, uint32_t bytes, enum access access)
{
    if (r->options.unchecked) {
        if (r->options.touched)
            r->options.touched(at, bytes, access != READS);
        return;
    }
    struct checks *c = r->checks;
    struct page *page = page_at(c, at);
    if (page->cells.launch != c->launch)
        enter_page(c, page);
    if (at < page->from || at + bytes > page->to) {
        const char *fault = kernel_memory_at(at, &page->from, &page->to);
        if (fault || at + bytes > page->to)
            kernel_object("%s %u bytes: %s", access == READS ? "reads" : "writes", bytes,
                          fault ? fault : "beyond the end of an allocation or row");
    }
    const uint32_t first = (uint32_t)(at % PAGE), here = first + bytes > PAGE ? PAGE - first : bytes;
    fit_cells(c, &page->cells, at, here);
    touch_cells(r, &page->cells, first, first + here, access, at, c->first_block);
    if (here < bytes) /* the rest lies in the next page */
        touch_global(r, at + here, bytes - here, access);
}

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = ((const struct touched *)a)->at, y = ((const struct touched *)b)->at;
    return (x > y) - (x < y);
}

void kernel_each_touched(void (*each)(void *user, uintptr_t from, uintptr_t to, bool writes), void *user)
{
    const struct checks *c = kernel_runner->checks;
    uintptr_t from = 0, to = 0;
    bool writes = false;
    qsort(c->touched, c->touched_count, sizeof(c->touched[0]), by_address);
    for (uint32_t p = 0; p < c->touched_count; p++) {
        const struct page *page = c->touched[p].page;
        const uint32_t grain = 1u << page->cells.shift;
        for (uint32_t i = 0; i * grain < PAGE; i++) {
            const struct cell *cell = &page->cells.at[i];
            const uintptr_t at = page->at * PAGE + i * grain;
            if (cell->block < c->first_block)
                continue;
            if (at != to || writes != ((cell->flags & WRITTEN_ONCE) != 0)) {
                if (to > from)
                    each(user, from, to, writes);
                from = at;
                writes = cell->flags & WRITTEN_ONCE;
            }
            to = at + grain;
        }
    }
    if (to > from)
        each(user, from, to, writes);
}

/* --- most accesses: one cell, on a page that this launch knows already --- */

static inline bool is_one_cell(const struct checks *c, const struct cells *cells, uintptr_t at, uint32_t bytes)
{
    return cells->launch == c->launch && bytes == 1u << cells->shift && (at & (bytes - 1)) == 0;
}

/* False: nothing was done, and touch_shared is to look at it, for what would be an objection too. */
static inline bool touch_shared_cell(struct runner *r, uintptr_t at, uint32_t bytes, enum access access)
{
    struct checks *c = r->checks;
    const uint32_t from = (uint32_t)(at - (uintptr_t)r->shared);
    struct cells *cells = &c->shared[from / PAGE];
    struct cell *cell = &cells->at[from % PAGE >> cells->shift];
    const uint16_t me = (uint16_t)(r->current + 1), now = r->warp_clock[r->current / WARP];
    const struct piece *piece = r->pieces, *const end = r->pieces + r->piece_count;
    while (piece < end && (from < piece->from || from + bytes > piece->to))
        piece++;
    if (piece == end || access == ADDS || !is_one_cell(c, cells, from, bytes))
        return false;
    if (cell->block != c->block) {
        if (access == WRITES)
            *cell = (struct cell){c->block, me, now, 0, 0, WRITTEN_ONCE, {0}};
        return access == WRITES;
    }
    if (!cell->writer || (cell->writer != me && !comes_before(r, cell->writer - 1u, cell->written_at)))
        return false;
    if (access == READS) {
        if (cell->reader != me || cell->read_at != now)
            note_reader(r, cell);
        return true;
    }
    if (cell->reader && cell->reader != me && !readers_come_before(r, cell))
        return false;
    cell->writer = me;
    cell->written_at = now;
    cell->flags &= (uint8_t)~IS_ATOMIC;
    return true;
}

static inline bool touch_global_cell(struct runner *r, uintptr_t at, uint32_t bytes, enum access access)
{
    struct checks *c = r->checks;
    struct page *page = c->cache[at / PAGE % CACHE];
    if (!page || page->at != at / PAGE || !is_one_cell(c, &page->cells, at, bytes) || at < page->from || at + bytes > page->to)
        return false;
    struct cell *cell = &page->cells.at[at % PAGE >> page->cells.shift];
    if (access == READS && cell->block == c->block && cell->reader == r->current + 1 && cell->writer == 0 &&
        cell->read_at == r->warp_clock[r->current / WARP])
        return true; /* once more */
    enter_cell(r, cell, bytes, access, at, c->first_block);
    return true;
}

/* --- what the compiler calls --- */

static inline void touch(uintptr_t at, uint32_t bytes, enum access access)
{
    struct runner *r = kernel_runner;
    if (!r || r->current == NONE || at - r->stacks < r->stacks_end - r->stacks ||
        at - r->arguments_at < r->arguments_end - r->arguments_at)
        return; /* the host's own, or a thread's */
    if (at - (uintptr_t)r->shared < SHARED_ROOM) {
        if (!touch_shared_cell(r, at, bytes, access))
            touch_shared(r, at, bytes, access);
    } else if (!touch_global_cell(r, at, bytes, access)) {
        touch_global(r, at, bytes, access);
    }
}

void kernel_touch_atomic(void *at, uint32_t bytes)
{
    if ((uintptr_t)at % bytes != 0)
        kernel_object("an atomic of %u bytes at %p is not aligned", bytes, at);
    touch((uintptr_t)at, bytes, ADDS);
}

#define ACCESSES(bytes)                                                                                               \
    void kernel_tsan_read##bytes(uintptr_t at);                                                                       \
    void kernel_tsan_read##bytes(uintptr_t at) { touch(at, bytes, READS); }                                           \
    void kernel_tsan_write##bytes(uintptr_t at);                                                                      \
    void kernel_tsan_write##bytes(uintptr_t at) { touch(at, bytes, WRITES); }                                         \
    void kernel_tsan_volatile_read##bytes(uintptr_t at);                                                              \
    void kernel_tsan_volatile_read##bytes(uintptr_t at) { touch(at, bytes, READS); }                                  \
    void kernel_tsan_volatile_write##bytes(uintptr_t at);                                                             \
    void kernel_tsan_volatile_write##bytes(uintptr_t at) { touch(at, bytes, WRITES); }                                \
    void kernel_tsan_unaligned_read##bytes(uintptr_t at);                                                             \
    void kernel_tsan_unaligned_read##bytes(uintptr_t at) { touch(at, bytes, READS); }                                 \
    void kernel_tsan_unaligned_write##bytes(uintptr_t at);                                                            \
    void kernel_tsan_unaligned_write##bytes(uintptr_t at) { touch(at, bytes, WRITES); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

static void touch_range(uintptr_t at, size_t bytes, enum access access)
{
    for (; bytes > 0; at++, bytes--) {
        const uint32_t piece = at % 16 == 0 && bytes >= 16 ? 16 : 1;
        touch(at, piece, access);
        at += piece - 1, bytes -= piece - 1;
    }
}

void kernel_tsan_init(void);
void kernel_tsan_init(void) {}
void kernel_tsan_func_entry(void *caller);
void kernel_tsan_func_entry(void *caller) { (void)caller; }
void kernel_tsan_func_exit(void);
void kernel_tsan_func_exit(void) {}
void kernel_tsan_read_range(uintptr_t at, size_t bytes);
void kernel_tsan_read_range(uintptr_t at, size_t bytes) { touch_range(at, bytes, READS); }
void kernel_tsan_write_range(uintptr_t at, size_t bytes);
void kernel_tsan_write_range(uintptr_t at, size_t bytes) { touch_range(at, bytes, WRITES); }

/* Larger assignments, which the compiler makes calls of. */
void *kernel_memcpy(void *to, const void *from, size_t bytes);
void *kernel_memcpy(void *to, const void *from, size_t bytes)
{
    touch_range((uintptr_t)from, bytes, READS);
    touch_range((uintptr_t)to, bytes, WRITES);
    return memcpy(to, from, bytes);
}

void *kernel_memmove(void *to, const void *from, size_t bytes);
void *kernel_memmove(void *to, const void *from, size_t bytes)
{
    touch_range((uintptr_t)from, bytes, READS);
    touch_range((uintptr_t)to, bytes, WRITES);
    return memmove(to, from, bytes);
}

void *kernel_memset(void *to, int value, size_t bytes);
void *kernel_memset(void *to, int value, size_t bytes)
{
    touch_range((uintptr_t)to, bytes, WRITES);
    return memset(to, value, bytes);
}

/* Of UBSan's own ABI, as far as it is read here. */
struct alignment_fault {
    const char *file;
    uint32_t line, column;
    const struct {
        uint16_t kind, info;
        char name[];
    } *type;
    unsigned char log_alignment, kind;
};

void kernel_ubsan_handle_type_mismatch_v1(const struct alignment_fault *fault, uintptr_t at);
void kernel_ubsan_handle_type_mismatch_v1(const struct alignment_fault *fault, uintptr_t at)
{
    if (kernel_runner && kernel_runner->current != NONE)
        kernel_object("%s:%u: %#llx is not aligned for %s", fault->file, fault->line, (unsigned long long)at,
                      fault->type->name);
}
