/* SPDX-License-Identifier: MIT */
#include "buffers/bundles.h"

#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/sort.h"

enum { WORD_BITS = 64 };

uint32_t eo_intervals_normalize(struct eo_interval *out, const struct eo_interval *in, uint32_t count)
{
    /* Insertion: there are few, and they come nearly in order. */
    for (uint32_t k = 0; k < count; k++) {
        uint32_t at = k;
        for (; at > 0 && out[at - 1].first > in[k].first; at--)
            out[at] = out[at - 1];
        out[at] = in[k];
    }
    uint32_t kept = 0;
    for (uint32_t k = 0; k < count; k++) {
        if (kept > 0 && out[k].first <= (uint64_t)out[kept - 1].last + 1) {
            if (out[k].last > out[kept - 1].last)
                out[kept - 1].last = out[k].last;
        } else {
            out[kept++] = out[k];
        }
    }
    return kept;
}

eo_status eo_placement_row_bytes(const struct eo_placement *placement, uint64_t *row_bytes)
{
    EO_ASSERT(eo_is_power_of_two(placement->align_bytes));
    uint64_t total_bytes = 0;
    for (uint32_t row = 0; row < placement->row_count; row++) {
        const uint64_t bytes = placement->rows[row].bytes;
        if (bytes > (uint64_t)INT64_MAX - placement->align_bytes)
            return EO_ERR_INVALID;
        row_bytes[row] = eo_align_up(bytes, placement->align_bytes);
        if (!eo_checked_add(total_bytes, row_bytes[row], &total_bytes) || total_bytes > INT64_MAX)
            return EO_ERR_INVALID;
    }
    return EO_OK;
}

/* What two rows are compared by. */
struct row_key {
    const struct eo_placement *placement;
    const struct eo_bundles *bundles;
    const uint32_t *interval_begin, *interval_count; /* by row, normalized */
};

static bool row_is_always(const struct row_key *key, uint32_t row)
{
    const struct eo_placement *placement = key->placement;
    if (placement->rows[row].always)
        return true;
    const struct eo_interval *intervals = key->bundles->intervals + key->interval_begin[row];
    return key->interval_count[row] == 1 && intervals[0].first == 0 && intervals[0].last + 1 == placement->time_count;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_lifetimes(const struct row_key *key, uint32_t a, uint32_t b)
{
    const int space = compare_u64(key->placement->rows[a].space, key->placement->rows[b].space);
    if (space != 0)
        return space;
    const bool a_always = row_is_always(key, a), b_always = row_is_always(key, b);
    if (a_always || b_always)
        return (int)b_always - (int)a_always;
    if (key->interval_count[a] != key->interval_count[b])
        return compare_u64(key->interval_count[a], key->interval_count[b]);
    const struct eo_interval *a_intervals = key->bundles->intervals + key->interval_begin[a];
    const struct eo_interval *b_intervals = key->bundles->intervals + key->interval_begin[b];
    for (uint32_t k = 0; k < key->interval_count[a]; k++) {
        const int first = compare_u64(a_intervals[k].first, b_intervals[k].first);
        if (first != 0)
            return first;
        const int last = compare_u64(a_intervals[k].last, b_intervals[k].last);
        if (last != 0)
            return last;
    }
    return 0;
}

static int compare_rows(uint32_t a, uint32_t b, const void *user)
{
    const struct row_key *key = user;
    const int lifetimes = compare_lifetimes(key, a, b);
    if (lifetimes != 0)
        return lifetimes;
    const int bytes = compare_u64(key->bundles->row_bytes[b], key->bundles->row_bytes[a]);
    /* The index last: the order is total, so it is the same everywhere. */
    return bytes != 0 ? bytes : compare_u64(a, b);
}

static void gather_bundles(struct eo_bundles *bundles, const struct row_key *key)
{
    const struct eo_placed_row *rows = key->placement->rows;
    for (uint32_t k = 0; k < bundles->ordered_count; k++) {
        const uint32_t row = bundles->row_order[k];
        if (k == 0 || compare_lifetimes(key, bundles->row_order[k - 1], row) != 0) {
            struct eo_bundle *bundle = &bundles->bundles[bundles->bundle_count++];
            *bundle = (struct eo_bundle){.space = rows[row].space,
                                         .always = row_is_always(key, row),
                                         .row_begin = k,
                                         .interval_begin = key->interval_begin[row],
                                         .interval_count = key->interval_count[row]};
            const struct eo_interval *intervals = bundles->intervals + bundle->interval_begin;
            for (uint32_t i = 0; !bundle->always && i < bundle->interval_count; i++)
                bundle->duration += (uint64_t)intervals[i].last - intervals[i].first + 1;
            bundle->first = bundle->interval_count > 0 ? intervals[0].first : 0;
        }
        struct eo_bundle *bundle = &bundles->bundles[bundles->bundle_count - 1];
        bundle->row_count++;
        bundle->bytes += bundles->row_bytes[row];
    }
}

/*
 * One walk over time with the set of live bundles: whoever begins meets all that are live. `begins` and `ends` are
 * lists by point: heads[t] is the first bundle interval + 1, next[] leads on.
 */
struct time_lists {
    uint32_t *begin_heads, *end_heads; /* time_count each */
    uint32_t *begin_next, *end_next;   /* by interval */
    uint32_t *owners;                  /* by interval: its bundle */
    uint64_t *live;                    /* the set */
};

static void walk_time(struct eo_bundles *bundles, uint32_t time_count, const struct time_lists *lists)
{
    uint64_t live_bytes = 0, space_live_bytes[EO_PLACEMENT_SPACES_MAX] = {0};
    uint32_t peak_time = 0;
    for (uint32_t b = 0; b < bundles->bundle_count; b++) {
        const struct eo_bundle *bundle = &bundles->bundles[b];
        if (bundle->always) {
            live_bytes += bundle->bytes;
            space_live_bytes[bundle->space] += bundle->bytes;
        }
    }
    bundles->bound_bytes = live_bytes;
    memcpy(bundles->space_bound_bytes, space_live_bytes, sizeof(space_live_bytes));
    for (uint32_t time = 0; time < time_count; time++) {
        for (uint32_t link = lists->begin_heads[time]; link != 0; link = lists->begin_next[link - 1]) {
            const uint32_t b = lists->owners[link - 1];
            const struct eo_bundle *bundle = &bundles->bundles[b];
            lists->live[b / WORD_BITS] |= UINT64_C(1) << b % WORD_BITS;
            uint64_t *line = bundles->conflicts + (size_t)b * bundles->conflict_words;
            for (uint32_t word = 0; word < bundles->conflict_words; word++)
                line[word] |= lists->live[word];
            live_bytes += bundle->bytes;
            space_live_bytes[bundle->space] += bundle->bytes;
            bundles->space_bound_bytes[bundle->space] =
                eo_max_u64(bundles->space_bound_bytes[bundle->space], space_live_bytes[bundle->space]);
        }
        if (live_bytes > bundles->bound_bytes) {
            bundles->bound_bytes = live_bytes;
            peak_time = time;
        }
        for (uint32_t link = lists->end_heads[time]; link != 0; link = lists->end_next[link - 1]) {
            const uint32_t b = lists->owners[link - 1];
            lists->live[b / WORD_BITS] &= ~(UINT64_C(1) << b % WORD_BITS);
            live_bytes -= bundles->bundles[b].bytes;
            space_live_bytes[bundles->bundles[b].space] -= bundles->bundles[b].bytes;
        }
    }
    for (uint32_t b = 0; b < bundles->bundle_count; b++) {
        struct eo_bundle *bundle = &bundles->bundles[b];
        const struct eo_interval *intervals = bundles->intervals + bundle->interval_begin;
        for (uint32_t i = 0; !bundle->always && i < bundle->interval_count; i++)
            bundle->at_peak |= intervals[i].first <= peak_time && peak_time <= intervals[i].last;
    }
}

/* Only the one that began later knows of the other: tell the earlier one. */
static void mirror_conflicts(struct eo_bundles *bundles)
{
    for (uint32_t b = 0; b < bundles->bundle_count; b++) {
        const uint64_t *line = eo_bundles_conflicts(bundles, b);
        for (uint32_t word = 0; word < bundles->conflict_words; word++) {
            for (uint64_t bits = line[word]; bits != 0; bits &= bits - 1) {
                const uint32_t other = word * WORD_BITS + (uint32_t)__builtin_ctzll(bits);
                bundles->conflicts[(size_t)other * bundles->conflict_words + b / WORD_BITS] |= UINT64_C(1)
                                                                                              << b % WORD_BITS;
            }
        }
    }
}

static eo_status find_conflicts(struct eo_bundles *bundles, uint32_t time_count, uint32_t interval_total)
{
    bundles->conflict_words = (uint32_t)eo_div_up(bundles->bundle_count, WORD_BITS);
    bundles->conflicts = calloc((size_t)bundles->bundle_count * bundles->conflict_words + 1, sizeof(uint64_t));
    uint64_t *live = calloc(bundles->conflict_words + 1, sizeof(*live));
    uint32_t *links = calloc(2 * (size_t)time_count + 3 * (size_t)interval_total + 1, sizeof(*links));
    const bool have_memory = bundles->conflicts && live && links;
    if (have_memory) {
        const struct time_lists lists = {.begin_heads = links,
                                         .end_heads = links + time_count,
                                         .begin_next = links + 2 * (size_t)time_count,
                                         .end_next = links + 2 * (size_t)time_count + interval_total,
                                         .owners = links + 2 * (size_t)time_count + 2 * (size_t)interval_total,
                                         .live = live};
        for (uint32_t b = 0; b < bundles->bundle_count; b++) {
            const struct eo_bundle *bundle = &bundles->bundles[b];
            for (uint32_t i = 0; !bundle->always && i < bundle->interval_count; i++) {
                const uint32_t index = bundle->interval_begin + i;
                const struct eo_interval interval = bundles->intervals[index];
                lists.owners[index] = b;
                lists.begin_next[index] = lists.begin_heads[interval.first];
                lists.begin_heads[interval.first] = index + 1;
                lists.end_next[index] = lists.end_heads[interval.last];
                lists.end_heads[interval.last] = index + 1;
            }
        }
        walk_time(bundles, time_count, &lists);
        mirror_conflicts(bundles);
    }
    free(links);
    free(live);
    return have_memory ? EO_OK : EO_ERR_NO_MEMORY;
}

/* `scratch` holds two numbers a row. */
static eo_status bundles_build(struct eo_bundles *bundles, const struct eo_placement *placement, uint32_t *scratch)
{
    EO_TRY(eo_placement_row_bytes(placement, bundles->row_bytes));
    uint32_t *interval_begin = scratch, *interval_count = scratch + placement->row_count;
    uint32_t interval_total = 0;
    for (uint32_t row = 0; row < placement->row_count; row++) {
        const struct eo_placed_row *placed = &placement->rows[row];
        EO_ASSERT(placed->space < placement->space_count);
        const uint32_t count = placed->always ? 0 : placed->interval_count;
        const struct eo_interval *in = count > 0 ? placement->intervals + placed->interval_begin : NULL;
        for (uint32_t i = 0; i < count; i++)
            EO_ASSERT(in[i].first <= in[i].last && in[i].last < placement->time_count);
        interval_begin[row] = interval_total;
        interval_count[row] = eo_intervals_normalize(bundles->intervals + interval_total, in, count);
        interval_total += interval_count[row];
        if (placed->bytes > 0)
            bundles->row_order[bundles->ordered_count++] = row;
    }
    struct row_key key = {placement, bundles, interval_begin, interval_count};
    eo_sort(bundles->row_order, bundles->ordered_count, compare_rows, &key);
    gather_bundles(bundles, &key);
    return find_conflicts(bundles, placement->time_count, interval_total);
}

eo_status eo_bundles_init(struct eo_bundles *bundles, const struct eo_placement *placement)
{
    *bundles = (struct eo_bundles){0};
    uint64_t interval_total = 0;
    for (uint32_t row = 0; row < placement->row_count; row++)
        interval_total += placement->rows[row].always ? 0 : placement->rows[row].interval_count;
    if (interval_total > UINT32_MAX - 1)
        return EO_ERR_INVALID;
    const size_t row_room = (size_t)placement->row_count + 1; /* never 0: malloc(0) may be NULL */
    bundles->bundles = malloc(row_room * sizeof(*bundles->bundles));
    bundles->row_order = malloc(row_room * sizeof(*bundles->row_order));
    bundles->row_bytes = malloc(row_room * sizeof(*bundles->row_bytes));
    bundles->intervals = malloc((interval_total + 1) * sizeof(*bundles->intervals));
    uint32_t *scratch = malloc(2 * row_room * sizeof(*scratch));
    eo_status status = EO_ERR_NO_MEMORY;
    if (bundles->bundles && bundles->row_order && bundles->row_bytes && bundles->intervals && scratch)
        status = bundles_build(bundles, placement, scratch);
    free(scratch);
    if (status < 0)
        eo_bundles_fini(bundles);
    return status;
}

void eo_bundles_fini(struct eo_bundles *bundles)
{
    free(bundles->bundles);
    free(bundles->row_order);
    free(bundles->row_bytes);
    free(bundles->intervals);
    free(bundles->conflicts);
    *bundles = (struct eo_bundles){0};
}
