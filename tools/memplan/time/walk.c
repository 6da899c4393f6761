/* SPDX-License-Identifier: MIT
 *
 * A plan's list on a clock whose streams disturb each other: an event after another.
 */
#include <stdlib.h>

#include "tools/memplan/time/plan_time.h"

enum { STEPS = 3 }; /* the first fills the streams, and the last is measured */

struct walk_operation {
    eo_stream_id stream;
    uint32_t next;                 /* of its stream; UINT32_MAX: the last */
    uint32_t waits[EO_STREAM_COUNT], wait_count;
    bool before[EO_STREAM_COUNT];  /* the wait means the step before */
    uint32_t ended;                /* times */
};

struct walk {
    struct walk_operation *operations;
    const double *durations;
    double slowdown;
    uint32_t count, first[EO_STREAM_COUNT];
    struct {
        uint32_t at, step; /* its next operation, or the one under way */
        bool active;
        double left;
    } streams[EO_STREAM_COUNT];
};

static eo_status read_list(struct walk *w, const eo_plan *plan)
{
    uint32_t last[EO_STREAM_COUNT];
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        w->first[s] = last[s] = UINT32_MAX;
    for (uint32_t i = 0; i < w->count; i++) {
        eo_plan_operation o;
        struct walk_operation *own = &w->operations[i];
        EO_TRY(eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o));
        *own = (struct walk_operation){.stream = o.stream, .next = UINT32_MAX, .wait_count = o.wait_count};
        for (uint32_t k = 0; k < o.wait_count; k++) {
            own->waits[k] = o.waits[k];
            own->before[k] = o.wait_previous_step[k];
        }
        *(last[o.stream] == UINT32_MAX ? &w->first[o.stream] : &w->operations[last[o.stream]].next) = i;
        last[o.stream] = i;
    }
    return EO_OK;
}

static bool is_ready(const struct walk *w, uint32_t operation, uint32_t step)
{
    const struct walk_operation *o = &w->operations[operation];
    for (uint32_t k = 0; k < o->wait_count; k++)
        if (w->operations[o->waits[k]].ended < step + !o->before[k])
            return false;
    return true;
}

static void start_what_can(struct walk *w)
{
    for (int s = 0; s < EO_STREAM_COUNT; s++) {
        if (w->streams[s].active || w->streams[s].at == UINT32_MAX || w->streams[s].step == STEPS)
            continue;
        w->streams[s].active = is_ready(w, w->streams[s].at, w->streams[s].step);
        w->streams[s].left = w->durations[w->streams[s].at];
    }
}

static double speed_of(const struct walk *w, int stream)
{
    for (int s = 0; stream == EO_STREAM_COMPUTE && s < EO_STREAM_COUNT; s++)
        if (s != EO_STREAM_COMPUTE && w->streams[s].active && w->streams[s].left > 0)
            return 1 / (1 + w->slowdown);
    return 1;
}

/* Seconds to the next end; below 0: nothing is under way. */
static double next_end(const struct walk *w)
{
    double least = -1;
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        if (w->streams[s].active && (least < 0 || w->streams[s].left / speed_of(w, s) < least))
            least = w->streams[s].left / speed_of(w, s);
    return least;
}

static void advance(struct walk *w, double seconds)
{
    double speeds[EO_STREAM_COUNT];
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        speeds[s] = speed_of(w, s);
    for (int s = 0; s < EO_STREAM_COUNT; s++) {
        if (!w->streams[s].active)
            continue;
        const bool ends = w->streams[s].left / speeds[s] <= seconds;
        w->streams[s].left -= seconds * speeds[s];
        if (!ends)
            continue;
        struct walk_operation *o = &w->operations[w->streams[s].at];
        o->ended++;
        w->streams[s].active = false;
        w->streams[s].step += o->next == UINT32_MAX;
        w->streams[s].at = o->next == UINT32_MAX ? w->first[s] : o->next;
    }
}

eo_status tool_walk_list(const eo_plan *plan, const double *durations, double slowdown, double *seconds)
{
    struct walk w = {.count = eo_plan_operation_count(plan, EO_LIST_STEADY), .durations = durations, .slowdown = slowdown};
    w.operations = calloc(w.count + 1, sizeof(*w.operations));
    if (!w.operations)
        return EO_ERR_NO_MEMORY;
    eo_status status = read_list(&w, plan);
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        w.streams[s].at = w.first[s];
    double now = 0, before = 0;
    while (status >= 0 && w.streams[EO_STREAM_COMPUTE].step < STEPS) {
        const uint32_t step = w.streams[EO_STREAM_COMPUTE].step;
        start_what_can(&w);
        const double rest = next_end(&w);
        if (rest < 0)
            status = EO_ERR_INVALID;
        advance(&w, rest);
        now += rest;
        if (w.streams[EO_STREAM_COMPUTE].step > step) {
            *seconds = now - before;
            before = now;
        }
    }
    free(w.operations);
    return status;
}
