/* SPDX-License-Identifier: MIT */
#include "buffers/placement.h"

#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/sort.h"
#include "buffers/bundles.h"

/* A run of addresses given to (rows of) a bundle. */
struct piece {
    uint64_t begin, end;
    uint32_t bundle;
};

/* One space while it fills: pieces by address, above a floor of what is always live. */
struct shelf {
    struct piece *pieces;
    uint32_t piece_count;
    uint64_t floor_bytes, top_bytes;
    uint64_t capacity_bytes; /* no piece ends above it */
};

/* A placement of all spaces, and the orders that gave it. */
struct round {
    struct eo_placed_row *rows;
    uint32_t *space_order[EO_PLACEMENT_SPACES_MAX];
    uint64_t space_bytes[EO_PLACEMENT_SPACES_MAX];
    uint64_t total_bytes;
};

/* Where a trial stood before a bundle of its order. */
struct step {
    uint64_t top_bytes; /* of the last space */
    uint64_t work;      /* since the trial began */
};

struct solver {
    struct eo_placement *placement;
    struct eo_bundles bundles;
    struct shelf shelves[EO_PLACEMENT_SPACES_MAX];
    struct eo_placed_row *rows; /* of the trial; placement->rows holds the best */
    uint32_t *order, *best_order;
    uint32_t order_count;
    struct step *steps;                             /* by place in order[], of the trial */
    uint32_t *space_order[EO_PLACEMENT_SPACES_MAX]; /* of the spaces before the last, in the round under way */
    uint32_t space_order_count[EO_PLACEMENT_SPACES_MAX];
    struct round best; /* of all rounds */
    uint64_t random;
    uint64_t *changes; /* by point: scratch */
    uint64_t work; /* pieces looked at: the measure of time, so that the result does not depend on the machine */
};

#define UNPLACED UINT32_MAX /* of out_space */
#define WORK_MAX (UINT64_C(2) << 20)
enum { IDLE_TRIALS_MAX = 64 }; /* promotions that bring nothing, before the search gives up */
#define ROUNDS_WORK_MAX \
    (UINT64_C(4) << 30) /* divided by the bundles: after that no new round begins. Of many a round takes long */
enum {
    IDLE_ROUNDS_MAX = 64,
    ROUND_SHUFFLE = 4,      /* every so manieth round shuffles, the others swap a few */
    ROUND_SWAPS_MAX = 3,
    GOOD_ENOUGH_SHARE = 500 /* of the bound: what is left to gain is not worth a search */
};

/* Where a search stands: all pieces before this one are looked at, and nothing lower fits. */
struct place {
    uint64_t at;
    uint32_t piece;
};

/* The lowest address from `from` on at which `bytes` conflict with nothing; UINT64_MAX if they would end above the capacity. */
static uint64_t shelf_find_from(struct solver *solver, const struct shelf *shelf, uint32_t bundle, uint64_t bytes, struct place *from)
{
    const uint64_t *conflicts = eo_bundles_conflicts(&solver->bundles, bundle);
    uint64_t at = from->at;
    uint32_t k = from->piece;
    /* The sum stays below 2^64. Without a branch on conflicts, which nothing could foresee. */
    for (; k < shelf->piece_count; k++) {
        const struct piece *piece = &shelf->pieces[k];
        if (piece->begin >= at + bytes)
            break; /* the gap is large enough, and all that follow lie above it */
        const uint64_t conflict = conflicts[piece->bundle / 64] >> piece->bundle % 64 & 1;
        at = eo_max_u64(at, piece->end & -conflict);
    }
    solver->work += k + 1;
    *from = (struct place){at, k};
    return at <= shelf->capacity_bytes && bytes <= shelf->capacity_bytes - at ? at : UINT64_MAX;
}

static uint64_t shelf_find(struct solver *solver, const struct shelf *shelf, uint32_t bundle, uint64_t bytes)
{
    struct place from = {shelf->floor_bytes, 0};
    return shelf_find_from(solver, shelf, bundle, bytes, &from);
}

static void shelf_put(struct shelf *shelf, uint32_t bundle, uint64_t begin, uint64_t bytes)
{
    uint32_t low = 0, high = shelf->piece_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (shelf->pieces[middle].begin <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(shelf->pieces + low + 1, shelf->pieces + low, (shelf->piece_count - low) * sizeof(*shelf->pieces));
    shelf->pieces[low] = (struct piece){begin, begin + bytes, bundle};
    shelf->piece_count++;
    shelf->top_bytes = eo_max_u64(shelf->top_bytes, begin + bytes);
}

/* The rows of a bundle that have no place yet, one after the other from `begin`. */
static void place_rows(struct solver *solver, const struct eo_bundle *bundle, uint32_t space, uint64_t begin)
{
    for (uint32_t k = 0; k < bundle->row_count; k++) {
        const uint32_t row = solver->bundles.row_order[bundle->row_begin + k];
        if (solver->rows[row].out_space != UNPLACED)
            continue;
        solver->rows[row].out_space = space;
        solver->rows[row].out_offset = begin;
        begin += solver->bundles.row_bytes[row];
    }
}

/* Each row by itself, where it fits. Returns the bytes of those that found no place. */
static uint64_t split_bundle(struct solver *solver, uint32_t b, uint32_t space)
{
    const struct eo_bundle *bundle = &solver->bundles.bundles[b];
    struct shelf *shelf = &solver->shelves[space];
    uint64_t rest_bytes = 0, failed_bytes = UINT64_MAX, placed_bytes = 0;
    struct place from = {0};
    for (uint32_t k = 0; k < bundle->row_count; k++) {
        const uint32_t row = solver->bundles.row_order[bundle->row_begin + k];
        const uint64_t bytes = solver->bundles.row_bytes[row];
        if (solver->rows[row].out_space != UNPLACED)
            continue;
        if (bytes != placed_bytes) /* else it goes on behind the one before, which is a piece more */
            from = (struct place){shelf->floor_bytes, 0};
        const uint64_t at = bytes < failed_bytes ? shelf_find_from(solver, shelf, b, bytes, &from) : UINT64_MAX;
        if (at == UINT64_MAX) {
            rest_bytes += bytes;
            failed_bytes = bytes; /* rows come largest first: skips only those of the same size */
            continue;
        }
        shelf_put(shelf, b, at, bytes);
        placed_bytes = bytes;
        from = (struct place){at + bytes, from.piece + 1};
        solver->rows[row].out_space = space;
        solver->rows[row].out_offset = at;
    }
    return rest_bytes;
}

/* Into a hole of an earlier space, whole or by rows; what is left into the last one, where it may raise the top. */
static void place_bundle(struct solver *solver, uint32_t b, uint32_t space_begin, uint32_t space_last)
{
    const struct eo_bundle *bundle = &solver->bundles.bundles[b];
    uint64_t bytes = bundle->bytes;
    for (uint32_t space = space_begin; space < space_last; space++) {
        const uint64_t at = shelf_find(solver, &solver->shelves[space], b, bytes);
        if (at != UINT64_MAX) {
            shelf_put(&solver->shelves[space], b, at, bytes);
            place_rows(solver, bundle, space, at);
            return;
        }
    }
    for (uint32_t space = space_begin; space < space_last && bytes > 0 && bundle->row_count > 1; space++)
        bytes = split_bundle(solver, b, space);
    if (bytes == 0)
        return;
    struct shelf *last = &solver->shelves[space_last];
    uint64_t at = shelf_find(solver, last, b, bytes);
    if (at + bytes > last->top_bytes && bundle->row_count > 1) {
        /* Whole it would raise the top: fill holes with rows of it first. */
        last->capacity_bytes = last->top_bytes;
        bytes = split_bundle(solver, b, space_last);
        last->capacity_bytes = INT64_MAX;
        if (bytes == 0)
            return;
        at = shelf_find(solver, last, b, bytes);
    }
    shelf_put(last, b, at, bytes);
    place_rows(solver, bundle, space_last, at);
}

/* Takes back what the trial before placed of order[begin] and what follows it. */
static void take_back(struct solver *solver, uint32_t space_begin, uint32_t space_last, uint32_t begin)
{
    const struct eo_bundles *bundles = &solver->bundles;
    for (uint32_t k = begin; k < solver->order_count; k++) {
        const struct eo_bundle *bundle = &bundles->bundles[solver->order[k]];
        for (uint32_t r = 0; r < bundle->row_count; r++)
            solver->rows[bundles->row_order[bundle->row_begin + r]].out_space = UNPLACED;
    }
    for (uint32_t space = space_begin; space <= space_last; space++) {
        struct shelf *shelf = &solver->shelves[space];
        uint32_t kept = 0;
        for (uint32_t k = 0; k < shelf->piece_count; k++) {
            const struct eo_bundle *bundle = &bundles->bundles[shelf->pieces[k].bundle];
            if (solver->rows[bundles->row_order[bundle->row_begin]].out_space != UNPLACED)
                shelf->pieces[kept++] = shelf->pieces[k];
        }
        shelf->piece_count = kept;
    }
}

/*
 * Places the bundles of order[] into spaces up to space_last, the only one that grows. Returns its size. Gives up, with
 * part of them placed, when that is no longer below `limit_bytes`. The first `same` bundles are those of the trial before
 * in the same order: they stay where they are, and their work counts as if it were done again.
 */
static uint64_t run_trial(struct solver *solver, uint32_t space_begin, uint32_t space_last, uint64_t limit_bytes, uint32_t same)
{
    const uint64_t work_before = solver->work;
    struct shelf *last = &solver->shelves[space_last];
    if (same == 0)
        solver->steps[0] = (struct step){.top_bytes = last->floor_bytes};
    take_back(solver, space_begin, space_last, same);
    last->top_bytes = solver->steps[same].top_bytes;
    last->capacity_bytes = INT64_MAX;
    solver->work += solver->steps[same].work;
    for (uint32_t k = same; k < solver->order_count && last->top_bytes < limit_bytes; k++) {
        place_bundle(solver, solver->order[k], space_begin, space_last);
        solver->steps[k + 1] = (struct step){last->top_bytes, solver->work - work_before};
    }
    return last->top_bytes;
}

enum order_key { BY_DURATION, BY_BYTES, BY_AREA, BY_BEGIN, ORDER_KEYS };

struct order_by {
    const struct eo_bundle *bundles;
    enum order_key key;
    bool peak_first;
};

static int compare_descending(uint64_t a, uint64_t b)
{
    return (a < b) - (a > b);
}

static int compare_bundles(uint32_t a_index, uint32_t b_index, const void *user)
{
    const struct order_by *by = user;
    const struct eo_bundle *a = &by->bundles[a_index], *b = &by->bundles[b_index];
    if (by->peak_first && a->at_peak != b->at_peak)
        return a->at_peak ? -1 : 1;
    int result = 0;
    switch (by->key) {
    case BY_DURATION:
        result = compare_descending(a->duration, b->duration);
        break;
    case BY_BYTES:
        result = compare_descending(a->bytes, b->bytes);
        break;
    case BY_AREA: {
        const double a_area = (double)a->bytes * (double)a->duration, b_area = (double)b->bytes * (double)b->duration;
        result = (a_area < b_area) - (a_area > b_area);
        break;
    }
    case BY_BEGIN:
        result = -compare_descending(a->first, b->first);
        break;
    case ORDER_KEYS:
        break;
    }
    if (result == 0)
        result = compare_descending(a->duration, b->duration);
    if (result == 0)
        result = compare_descending(a->bytes, b->bytes);
    return result != 0 ? result : -compare_descending(a_index, b_index);
}

/* The best so far, in placement->rows and best_order[]. */
static void keep_trial(struct solver *solver)
{
    for (uint32_t k = 0; k < solver->order_count; k++) {
        const struct eo_bundle *bundle = &solver->bundles.bundles[solver->order[k]];
        for (uint32_t r = 0; r < bundle->row_count; r++) {
            const uint32_t row = solver->bundles.row_order[bundle->row_begin + r];
            solver->placement->rows[row].out_space = solver->rows[row].out_space;
            solver->placement->rows[row].out_offset = solver->rows[row].out_offset;
        }
    }
    memcpy(solver->best_order, solver->order, solver->order_count * sizeof(*solver->order));
}

/*
 * Moves the bundle that made the top what it is towards the front: others then have to find their place around it. Returns
 * where to: how many bundles before it are as they were. All of them: nothing was moved.
 */
static uint32_t promote_highest(struct solver *solver, uint32_t space_last)
{
    const struct shelf *shelf = &solver->shelves[space_last];
    uint32_t highest = UINT32_MAX;
    for (uint32_t k = shelf->piece_count; k-- > 0 && highest == UINT32_MAX;)
        if (shelf->pieces[k].end == shelf->top_bytes)
            highest = shelf->pieces[k].bundle;
    for (uint32_t k = 0; k < solver->order_count; k++) {
        if (solver->order[k] != highest)
            continue;
        const uint32_t to = k / 2;
        memmove(solver->order + to + 1, solver->order + to, (k - to) * sizeof(*solver->order));
        solver->order[to] = highest;
        return k != to ? to : solver->order_count;
    }
    return solver->order_count;
}

/* Places the bundles of one space. Returns the least size of space_last that was found. */
static uint64_t search(struct solver *solver, uint32_t space, uint32_t space_begin, uint64_t bound_bytes)
{
    solver->order_count = 0;
    for (uint32_t b = 0; b < solver->bundles.bundle_count; b++)
        if (solver->bundles.bundles[b].space == space && !solver->bundles.bundles[b].always)
            solver->order[solver->order_count++] = b;
    uint64_t best_bytes = UINT64_MAX;
    const uint64_t work_limit = solver->placement->draft ? 0 : solver->work + WORK_MAX;
    for (uint32_t k = 0; k < 2 * ORDER_KEYS && best_bytes > bound_bytes && (k == 0 || solver->work < work_limit); k++) {
        struct order_by by = {solver->bundles.bundles, k % ORDER_KEYS, k >= ORDER_KEYS};
        eo_sort(solver->order, solver->order_count, compare_bundles, &by);
        const uint64_t bytes = run_trial(solver, space_begin, space, best_bytes, 0);
        if (bytes < best_bytes) {
            best_bytes = bytes;
            keep_trial(solver);
        }
    }
    memcpy(solver->order, solver->best_order, solver->order_count * sizeof(*solver->order));
    uint32_t same = 0;
    for (uint32_t idle = 0; best_bytes > bound_bytes && solver->work < work_limit && idle < IDLE_TRIALS_MAX; idle++) {
        const uint64_t bytes = run_trial(solver, space_begin, space, best_bytes, same);
        if (bytes < best_bytes) {
            best_bytes = bytes;
            keep_trial(solver);
            idle = 0;
        }
        same = promote_highest(solver, space);
        if (same == solver->order_count)
            break;
    }
    if (space + 1 == solver->placement->space_count)
        return best_bytes;
    /* Once more, for the pieces: they are what the last space's rows find their holes between. */
    memcpy(solver->order, solver->best_order, solver->order_count * sizeof(*solver->order));
    return run_trial(solver, space_begin, space, UINT64_MAX, 0);
}

/* What is always live lies at the bottom of its space. */
static void place_always(struct solver *solver)
{
    for (uint32_t b = 0; b < solver->bundles.bundle_count; b++) {
        const struct eo_bundle *bundle = &solver->bundles.bundles[b];
        if (!bundle->always)
            continue;
        struct shelf *shelf = &solver->shelves[bundle->space];
        for (uint32_t k = 0; k < bundle->row_count; k++) {
            const uint32_t row = solver->bundles.row_order[bundle->row_begin + k];
            solver->placement->rows[row].out_space = bundle->space;
            solver->placement->rows[row].out_offset = shelf->floor_bytes;
            shelf->floor_bytes += solver->bundles.row_bytes[row];
        }
        shelf->top_bytes = shelf->floor_bytes;
    }
}

/*
 * What the last space cannot be smaller than, once the others are placed: the bytes of its rows that fit into no hole
 * of theirs, and what is left of the bound on all spaces. Reaching it ends the search.
 */
static uint64_t last_space_bound(struct solver *solver, uint64_t earlier_bytes)
{
    const struct eo_bundles *bundles = &solver->bundles;
    const uint32_t last = solver->placement->space_count - 1, time_count = solver->placement->time_count;
    memset(solver->changes, 0, ((size_t)time_count + 1) * sizeof(*solver->changes));
    for (uint32_t b = 0; b < bundles->bundle_count; b++) {
        const struct eo_bundle *bundle = &bundles->bundles[b];
        if (bundle->space != last || bundle->always)
            continue;
        uint64_t forced_bytes = 0;
        for (uint32_t k = 0; k < bundle->row_count; k++) {
            const uint64_t bytes = bundles->row_bytes[bundles->row_order[bundle->row_begin + k]];
            bool fits = false;
            for (uint32_t space = 0; space < last && !fits; space++)
                fits = shelf_find(solver, &solver->shelves[space], b, bytes) != UINT64_MAX;
            if (fits)
                break; /* rows come largest first */
            forced_bytes += bytes;
        }
        for (uint32_t i = 0; i < bundle->interval_count; i++) {
            const struct eo_interval interval = bundles->intervals[bundle->interval_begin + i];
            solver->changes[interval.first] += forced_bytes;
            solver->changes[interval.last + 1] -= forced_bytes; /* modulo 2^64; the sums are right */
        }
    }
    uint64_t live_bytes = solver->shelves[last].floor_bytes;
    uint64_t bound_bytes = bundles->bound_bytes - eo_min_u64(bundles->bound_bytes, earlier_bytes);
    for (uint32_t time = 0; time < time_count; time++) {
        live_bytes += solver->changes[time];
        bound_bytes = eo_max_u64(bound_bytes, live_bytes);
    }
    return bound_bytes;
}

/* What a round begins with: nothing but what is always live. */
static void empty_shelves(struct solver *solver)
{
    for (uint32_t space = 0; space < solver->placement->space_count; space++) {
        struct shelf *shelf = &solver->shelves[space];
        shelf->piece_count = 0;
        shelf->top_bytes = shelf->floor_bytes;
        shelf->capacity_bytes = INT64_MAX;
    }
}

/* The bundles of one space in a given order. */
static uint64_t place_in_order(struct solver *solver, uint32_t space)
{
    solver->order_count = solver->space_order_count[space];
    memcpy(solver->order, solver->space_order[space], solver->order_count * sizeof(*solver->order));
    const uint64_t bytes = run_trial(solver, space, space, UINT64_MAX, 0);
    keep_trial(solver);
    return bytes;
}

/*
 * Places everything: the spaces before the last in the orders of space_order[], or, in the first round, in the best that
 * search finds; then the last, whose rows fill their holes. Returns the total; gives up above limit_bytes.
 */
static uint64_t run_round(struct solver *solver, bool is_first, uint64_t limit_bytes)
{
    struct eo_placement *placement = solver->placement;
    const uint32_t last = placement->space_count - 1;
    uint64_t earlier_bytes = 0;
    empty_shelves(solver);
    for (uint32_t space = 0; space < last; space++) {
        struct shelf *shelf = &solver->shelves[space];
        if (is_first) {
            placement->space_bytes[space] = search(solver, space, space, solver->bundles.space_bound_bytes[space]);
            solver->space_order_count[space] = solver->order_count;
            memcpy(solver->space_order[space], solver->order, solver->order_count * sizeof(*solver->order));
        } else {
            placement->space_bytes[space] = place_in_order(solver, space);
        }
        earlier_bytes += placement->space_bytes[space];
        shelf->capacity_bytes = placement->space_bytes[space];
    }
    if (earlier_bytes >= limit_bytes)
        return UINT64_MAX;
    placement->space_bytes[last] = search(solver, last, 0, last_space_bound(solver, earlier_bytes));
    return earlier_bytes + placement->space_bytes[last];
}

/* xorshift64 with a fixed seed: the same plan everywhere, each time. */
static uint32_t random_below(struct solver *solver, uint32_t count)
{
    solver->random ^= solver->random << 13;
    solver->random ^= solver->random >> 7;
    solver->random ^= solver->random << 17;
    return (uint32_t)(solver->random % count);
}

static void swap(uint32_t *a, uint32_t *b)
{
    const uint32_t kept = *a;
    *a = *b;
    *b = kept;
}

/* Other orders for the spaces before the last: near the best known ones, or, now and then, any. */
static bool disturb_orders(struct solver *solver)
{
    bool changed = false;
    for (uint32_t space = 0; space + 1 < solver->placement->space_count; space++) {
        const uint32_t count = solver->space_order_count[space];
        uint32_t *order = solver->space_order[space];
        if (count < 2)
            continue;
        changed = true;
        memcpy(order, solver->best.space_order[space], count * sizeof(*order));
        if (random_below(solver, ROUND_SHUFFLE) == 0) {
            for (uint32_t k = count - 1; k > 0; k--)
                swap(&order[k], &order[random_below(solver, k + 1)]);
            continue;
        }
        for (uint32_t swaps = 1 + random_below(solver, ROUND_SWAPS_MAX); swaps > 0; swaps--)
            swap(&order[random_below(solver, count)], &order[random_below(solver, count)]);
    }
    return changed;
}

static void keep_round(struct solver *solver, uint64_t total_bytes)
{
    const struct eo_placement *placement = solver->placement;
    solver->best.total_bytes = total_bytes;
    memcpy(solver->best.space_bytes, placement->space_bytes, sizeof(solver->best.space_bytes));
    if (placement->row_count > 0)
        memcpy(solver->best.rows, placement->rows, placement->row_count * sizeof(*placement->rows));
    for (uint32_t space = 0; space + 1 < placement->space_count; space++)
        memcpy(solver->best.space_order[space], solver->space_order[space],
               solver->space_order_count[space] * sizeof(**solver->space_order));
}

/*
 * The smallest earlier space is not always the best: its holes may suit what is to fill them badly. So rounds with
 * other orders of the earlier spaces follow, while there is something to gain.
 */
static void solve(struct solver *solver)
{
    struct eo_placement *placement = solver->placement;
    place_always(solver);
    keep_round(solver, run_round(solver, true, UINT64_MAX));
    const uint64_t good_bytes = solver->bundles.bound_bytes + solver->bundles.bound_bytes / GOOD_ENOUGH_SHARE;
    const uint64_t work_limit = placement->draft ? 0 : solver->work + ROUNDS_WORK_MAX / (solver->bundles.bundle_count + 1);
    for (uint32_t idle = 0; idle < IDLE_ROUNDS_MAX && solver->best.total_bytes > good_bytes &&
                            solver->work < work_limit && disturb_orders(solver);
         idle++) {
        const uint64_t total_bytes = run_round(solver, false, solver->best.total_bytes);
        if (total_bytes < solver->best.total_bytes) {
            keep_round(solver, total_bytes);
            idle = 0;
        }
    }
    if (placement->row_count > 0)
        memcpy(placement->rows, solver->best.rows, placement->row_count * sizeof(*placement->rows));
    memcpy(placement->space_bytes, solver->best.space_bytes, sizeof(placement->space_bytes));
    placement->total_bytes = solver->best.total_bytes;
}

static eo_status solver_init(struct solver *solver, struct eo_placement *placement)
{
    *solver = (struct solver){.placement = placement, .random = UINT64_C(88172645463325252)};
    EO_TRY(eo_bundles_init(&solver->bundles, placement));
    const size_t row_room = (size_t)placement->row_count + 1; /* never 0: malloc(0) may be NULL */
    solver->rows = malloc(row_room * sizeof(*solver->rows));
    solver->order = malloc(row_room * sizeof(*solver->order));
    solver->best_order = malloc(row_room * sizeof(*solver->best_order));
    solver->steps = malloc((row_room + 1) * sizeof(*solver->steps));
    solver->changes = malloc(((size_t)placement->time_count + 1) * sizeof(*solver->changes));
    solver->best.rows = malloc(row_room * sizeof(*solver->best.rows));
    bool have_memory =
        solver->rows && solver->order && solver->best_order && solver->steps && solver->changes && solver->best.rows;
    for (uint32_t space = 0; space < placement->space_count; space++) {
        solver->shelves[space].pieces = malloc(row_room * sizeof(struct piece));
        solver->space_order[space] = malloc(row_room * sizeof(uint32_t));
        solver->best.space_order[space] = malloc(row_room * sizeof(uint32_t));
        have_memory =
            have_memory && solver->shelves[space].pieces && solver->space_order[space] && solver->best.space_order[space];
    }
    return have_memory ? EO_OK : EO_ERR_NO_MEMORY;
}

static void solver_fini(struct solver *solver)
{
    for (uint32_t space = 0; space < EO_PLACEMENT_SPACES_MAX; space++) {
        free(solver->shelves[space].pieces);
        free(solver->space_order[space]);
        free(solver->best.space_order[space]);
    }
    free(solver->best.rows);
    free(solver->rows);
    free(solver->order);
    free(solver->best_order);
    free(solver->steps);
    free(solver->changes);
    eo_bundles_fini(&solver->bundles);
}

eo_status eo_placement_solve(struct eo_placement *placement)
{
    EO_ASSERT(placement->space_count > 0 && placement->space_count <= EO_PLACEMENT_SPACES_MAX);
    struct solver solver;
    const eo_status status = solver_init(&solver, placement);
    if (status == EO_OK) {
        for (uint32_t row = 0; row < placement->row_count; row++) {
            placement->rows[row].out_space = placement->rows[row].space; /* rows of 0 bytes stay here */
            placement->rows[row].out_offset = 0;
        }
        memset(placement->space_bytes, 0, sizeof(placement->space_bytes));
        solve(&solver);
    }
    solver_fini(&solver);
    return status;
}
