/* SPDX-License-Identifier: MIT
 *
 * Rows with lifetimes apart share addresses. Of those at an address the live ones count, as far as the runtime's place in its
 * list says which: in a pass the trainer's buffers of that moment, the pass's weights and gradients, and what lives always.
 * Where it says nothing (collectives, the optimizer), any row at the address does.
 */
#include "rows.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "runtime/static/internal.h"
#include "tests/simulator/cuda/sim.h"

enum { FOLLOWED_MAX = 16 };

/* Where ranks are threads, keeps two of them from one place. No pthread mutex: to those, ranks give way. */
static atomic_flag lock = ATOMIC_FLAG_INIT;
static struct followed {
    const eo_runtime *runtime;
    const struct eo_arena *arena;
} followed[FOLLOWED_MAX];

static void lock_rows(void)
{
    while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
        ;
}

static void unlock_rows(void)
{
    atomic_flag_clear_explicit(&lock, memory_order_release);
}

static bool buffer_is_live(const struct eo_plan *plan, uint32_t row, eo_moment now)
{
    const uint32_t count = plan->position_count, at = eo_moment_order(now, count);
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        const struct plan_buffer *buffer = &plan->buffers[b];
        if (buffer->row == row)
            return eo_moment_order(buffer->first, count) <= at && at <= eo_moment_order(buffer->last, count);
    }
    return false;
}

static bool is_live(const eo_runtime *rt, uint32_t row)
{
    const struct eo_plan *plan = rt->plan;
    eo_moment now;
    if (plan->rows[row].always_live)
        return true;
    if (!eo_cursor_moment(&rt->cursor, &now))
        return false;
    const struct plan_position *position = &plan->positions[now.position];
    return row == position->gather_row || row == position->frozen_gather_row ||
           (now.pass == EO_PASS_BACKWARD && row == position->buffer_row) ||
           buffer_is_live(plan, row, now);
}

static uint32_t rows_at(const void *at, struct sim_row *out, uint32_t room)
{
    uint32_t count = 0;
    bool live = false;
    lock_rows();
    for (struct followed *f = followed; f < followed + FOLLOWED_MAX; f++) {
        const struct eo_plan *plan = f->runtime ? f->runtime->plan : NULL;
        for (uint32_t r = 0; plan && r < plan->row_count && count < room; r++) {
            const struct plan_row *row = &plan->rows[r];
            if (row->space == EO_SPACE_HOST || row->space == EO_SPACE_DISK)
                continue;
            const uintptr_t from = (uintptr_t)f->arena->base[row->space] + row->offset;
            /* Debug mode poisons whole words. */
            const uint64_t bytes = (row->bytes + 3) / 4 * 4;
            if ((uintptr_t)at - from >= bytes)
                continue;
            const bool lives = is_live(f->runtime, r);
            if (live && !lives)
                continue;
            if (lives && !live)
                count = 0;
            live = lives;
            out[count++] = (struct sim_row){from, from + bytes, row->name};
        }
    }
    unlock_rows();
    return count;
}

void rows_follow(const eo_runtime *runtime)
{
    struct followed *f = followed;
    if (runtime->mode != &eo_static_mode)
        return;
    lock_rows();
    while (f < followed + FOLLOWED_MAX && f->runtime)
        f++;
    if (f == followed + FOLLOWED_MAX)
        abort();
    *f = (struct followed){runtime, &eo_static_state(runtime)->arena};
    sim_rows_at = rows_at;
    unlock_rows();
}

void rows_forget(const eo_runtime *runtime)
{
    lock_rows();
    for (struct followed *f = followed; runtime && f < followed + FOLLOWED_MAX; f++)
        if (f->runtime == runtime)
            f->runtime = NULL;
    unlock_rows();
}
