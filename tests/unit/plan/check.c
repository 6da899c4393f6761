/* SPDX-License-Identifier: MIT */
#include "tests/unit/plan/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"

/* An operation of some run of the sequence. */
struct moment {
    const struct eo_operation *operation;
    uint32_t run;
};

/* From one overwriting access of a row up to the next: moments [begin, begin + count) of `members`. */
struct life {
    uint32_t row, begin, count;
};

struct order {
    const struct eo_plan *plan;
    struct moment *moments;
    uint32_t count, words;
    uint64_t *before; /* count x words bits: before[i] has bit j where j ends before i begins */
    struct life *lives;
    uint32_t *members;
    uint32_t life_count, member_count;
};

static void complain(struct plan_check *out, const char *format, ...) EO_PRINTF(2, 3);

static void complain(struct plan_check *out, const char *format, ...)
{
    if (out->text[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out->text, sizeof(out->text), format, arguments);
    va_end(arguments);
}

static bool is_before(const struct order *o, uint32_t earlier, uint32_t later)
{
    return o->before[(size_t)later * o->words + earlier / 64] >> (earlier % 64) & 1;
}

static void put_before(struct order *o, uint32_t earlier, uint32_t later)
{
    for (uint32_t w = 0; w < o->words; w++)
        o->before[(size_t)later * o->words + w] |= o->before[(size_t)earlier * o->words + w];
    o->before[(size_t)later * o->words + earlier / 64] |= (uint64_t)1 << (earlier % 64);
}

/* List order is a topological order: what is waited for was issued before. */
static void find_order(struct order *o, const eo_list *sequence, uint32_t runs)
{
    for (uint32_t r = 0; r < runs; r++)
        o->count += o->plan->schedule.lists[sequence[r]].count;
    o->words = (o->count + 63) / 64;
    o->moments = calloc(o->count, sizeof(*o->moments));
    o->before = calloc((size_t)o->count * o->words, sizeof(*o->before));
    EO_ASSERT(o->moments && o->before);
    uint32_t now = 0;
    for (uint32_t r = 0; r < runs; r++) {
        const struct eo_operation_list *list = &o->plan->schedule.lists[sequence[r]];
        for (uint32_t i = 0; i < list->count; i++, now++) {
            const struct eo_operation *operation = &list->operations[i];
            o->moments[now] = (struct moment){operation, r};
            bool stream_found = false;
            bool wait_found[EO_STREAM_COUNT] = {0};
            for (uint32_t j = now; j-- > 0;) {
                const struct eo_operation *other = o->moments[j].operation;
                if (!stream_found && other->stream == operation->stream) {
                    put_before(o, j, now);
                    stream_found = true;
                }
                for (int s = 0; s < EO_STREAM_COUNT; s++) {
                    if (wait_found[s] || operation->wait[s] != other->id || (int)other->stream != s)
                        continue;
                    put_before(o, j, now);
                    wait_found[s] = true;
                }
            }
        }
    }
}

static void find_lives(struct order *o)
{
    const struct eo_access *accesses = o->plan->schedule.accesses;
    uint32_t total = 0;
    for (uint32_t i = 0; i < o->count; i++)
        total += o->moments[i].operation->access_count;
    o->lives = calloc(total + 1, sizeof(*o->lives));
    o->members = calloc(total + 1, sizeof(*o->members));
    EO_ASSERT(o->lives && o->members);
    for (uint32_t row = 0; row < o->plan->row_count; row++) {
        struct life *life = NULL;
        for (uint32_t i = 0; i < o->count; i++) {
            const struct eo_operation *operation = o->moments[i].operation;
            bool touches = false, begins = true;
            for (uint32_t a = 0; a < operation->access_count; a++) {
                if (accesses[operation->access_begin + a].row != row)
                    continue;
                touches = true;
                begins = begins && accesses[operation->access_begin + a].mode == EO_WRITE;
            }
            if (!touches)
                continue;
            if (begins || !life) {
                life = &o->lives[o->life_count++];
                *life = (struct life){.row = row, .begin = o->member_count};
            }
            o->members[o->member_count++] = i;
            life->count++;
        }
    }
}

static bool life_before_life(const struct order *o, const struct life *a, const struct life *b)
{
    for (uint32_t i = 0; i < a->count; i++)
        for (uint32_t j = 0; j < b->count; j++)
            if (!is_before(o, o->members[a->begin + i], o->members[b->begin + j]))
                return false;
    return true;
}

static bool share_addresses(const struct eo_plan *plan, uint32_t a, uint32_t b)
{
    const struct plan_row *x = &plan->rows[a], *y = &plan->rows[b];
    return x->space == y->space && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

static void check_sharing(const struct order *o, struct plan_check *out)
{
    const struct eo_plan *plan = o->plan;
    for (uint32_t a = 0; a < plan->row_count; a++) {
        for (uint32_t b = a + 1; b < plan->row_count; b++) {
            if (!share_addresses(plan, a, b))
                continue;
            out->shared_pairs++;
            if (plan->rows[a].always_live || plan->rows[b].always_live)
                complain(out, "'%s' and '%s' share addresses, and one always lives", plan->rows[a].name,
                         plan->rows[b].name);
            for (uint32_t i = 0; i < o->life_count; i++) {
                for (uint32_t j = 0; o->lives[i].row == a && j < o->life_count; j++) {
                    if (o->lives[j].row == b && !life_before_life(o, &o->lives[i], &o->lives[j]) &&
                        !life_before_life(o, &o->lives[j], &o->lives[i]))
                        complain(out, "'%s' and '%s' share addresses and live at one time", plan->rows[a].name,
                                 plan->rows[b].name);
                }
            }
        }
    }
}

static void check_places(const struct eo_plan *plan, struct plan_check *out)
{
    const uint32_t align = plan->params.align_bytes;
    uint64_t base[EO_SPACE_COUNT], sum = 0, end[EO_SPACE_COUNT] = {0};
    for (int s = 0; s < EO_SPACE_COUNT; s++) {
        base[s] = sum;
        sum += plan->space_bytes[s];
    }
    for (uint32_t r = 0; r < plan->row_count; r++) {
        const struct plan_row *row = &plan->rows[r];
        if (row->offset % align)
            complain(out, "'%s' is not aligned", row->name);
        if (row->bytes > plan->space_bytes[row->space] || row->offset > plan->space_bytes[row->space] - row->bytes)
            complain(out, "'%s' leaves its reservation", row->name);
        if (plan->schedule.rows[r].address != base[row->space] + row->offset || plan->schedule.rows[r].bytes != row->bytes)
            complain(out, "'%s' was proven at another place", row->name);
        end[row->space] = eo_max_u64(end[row->space], eo_align_up(row->offset + row->bytes, align));
    }
    for (int s = 0; s < EO_SPACE_COUNT; s++)
        if (end[s] != plan->space_bytes[s])
            complain(out, "reservation %d has %llu bytes, its rows end at %llu", s,
                     (unsigned long long)plan->space_bytes[s], (unsigned long long)end[s]);
}

/* Whether all of a life is over when compute operation `n` (a moment) has ended. */
static bool over(const struct order *o, const struct life *life, uint32_t n)
{
    for (uint32_t i = 0; i < life->count; i++)
        if (o->members[life->begin + i] != n && !is_before(o, o->members[life->begin + i], n))
            return false;
    return true;
}

/* Whether no part of a life can have begun before compute operation `n` begins. */
static bool yet_to_come(const struct order *o, const struct life *life, uint32_t n)
{
    for (uint32_t i = 0; i < life->count; i++)
        if (o->members[life->begin + i] != n && !is_before(o, n, o->members[life->begin + i]))
            return false;
    return true;
}

/* Rows alive from the begin of `from` to the begin of `to` (between: from its end), neighbours on the compute stream. */
static uint64_t live_bytes(const struct order *o, uint32_t from, uint32_t to, bool between, bool *alive)
{
    uint64_t sum = 0;
    memset(alive, 0, o->plan->row_count);
    for (uint32_t i = 0; i < o->life_count; i++) {
        const struct life *life = &o->lives[i];
        bool gone, coming;
        if (between) {
            gone = over(o, life, from);
            coming = yet_to_come(o, life, to);
        } else { /* at an operation: before means before its begin, after means after its end */
            gone = coming = true;
            for (uint32_t m = 0; m < life->count; m++) {
                gone = gone && is_before(o, o->members[life->begin + m], from);
                coming = coming && is_before(o, from, o->members[life->begin + m]);
            }
        }
        alive[life->row] = alive[life->row] || !(gone || coming);
    }
    for (uint32_t r = 0; r < o->plan->row_count; r++)
        if ((alive[r] || o->plan->rows[r].always_live) && o->plan->rows[r].space != EO_SPACE_DISK)
            sum += eo_align_up(o->plan->rows[r].bytes, o->plan->params.align_bytes);
    return sum;
}

static uint64_t find_bound(const struct order *o)
{
    bool *alive = calloc(o->plan->row_count, 1);
    EO_ASSERT(alive);
    uint64_t most = 0;
    uint32_t previous = EO_NONE;
    for (uint32_t i = 0; i < o->count; i++) {
        if (o->moments[i].operation->stream != EO_STREAM_COMPUTE)
            continue;
        /* The middle run, and what lies between it and its neighbours. */
        if (o->moments[i].run == 1)
            most = eo_max_u64(most, live_bytes(o, i, i, false, alive));
        if (previous != EO_NONE && (o->moments[i].run == 1 || o->moments[previous].run == 1))
            most = eo_max_u64(most, live_bytes(o, previous, i, true, alive));
        previous = i;
    }
    free(alive);
    return most;
}

static void release(struct order *o)
{
    free(o->moments);
    free(o->before);
    free(o->lives);
    free(o->members);
}

bool eo_plan_check(const struct eo_plan *plan, struct plan_check *out)
{
    static const eo_list training[] = {EO_LIST_FIRST, EO_LIST_STEADY, EO_LIST_STEADY, EO_LIST_STEADY};
    static const eo_list forward[] = {EO_LIST_FORWARD};
    *out = (struct plan_check){0};
    check_places(plan, out);
    struct order o = {.plan = plan};
    find_order(&o, training, 4);
    find_lives(&o);
    check_sharing(&o, out);
    out->lower_bound_bytes = find_bound(&o);
    release(&o);
    struct order f = {.plan = plan};
    find_order(&f, forward, 1);
    find_lives(&f);
    check_sharing(&f, out);
    release(&f);
    return out->text[0] == '\0';
}
