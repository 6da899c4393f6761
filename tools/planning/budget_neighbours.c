/* SPDX-License-Identifier: MIT */
#include "tools/planning/budget_search.h"

/* Settings as numbers, each with its least and most. */
enum dial { LEVEL, LAYERS, LAYER_BUFFERS, GRADIENTS, LATE, ACTIVATIONS, GATHER_BUFFERS, GRADIENT_BUFFERS, DIALS };
enum {
    BUFFERS_MAX = 4,
    MOVES_MAX = 4 * DIALS,
    STAYING = 2 /* of blocks with activations on disk: the last ones stay in memory */
};

struct dials {
    uint32_t at[DIALS];
};

/* What one dial does to another: ends of a range, or one step. */
struct move {
    enum dial dial;
    int32_t by; /* INT32_MIN and INT32_MAX: to the end */
};

static uint32_t beyond(uint32_t count, uint32_t least)
{
    return count > least ? count - least : 0;
}

/* What a block saves may lie in a buffer of its own kind and go nowhere, which can be placed better. Of few layers that is
 * tried. */
static uint32_t blocks_alone(const struct tool_budget_search *s)
{
    return s->layer_count <= TOOL_BUDGET_FEW_LAYERS;
}

static struct dials dials_of(const struct tool_budget_search *s, const struct tool_plan_settings *p)
{
    const uint32_t blocks = s->config->layer_count, saved = p->offload_activations;
    return (struct dials){{
        [LEVEL] = tool_budget_level_of(p),
        [LAYERS] = p->offload_layers < s->layer_count ? p->offload_layers : s->layer_count,
        [LAYER_BUFFERS] = p->offload_slots,
        [GRADIENTS] = p->offload_gradients,
        [LATE] = p->late_updates,
        [ACTIVATIONS] = saved == 0 ? 0 : beyond(saved < blocks ? saved : blocks, STAYING) + blocks_alone(s),
        [GATHER_BUFFERS] = p->gather_slots,
        [GRADIENT_BUFFERS] = p->gradient_slots,
    }};
}

static uint32_t least_of(enum dial dial)
{
    return dial == GATHER_BUFFERS || dial == GRADIENT_BUFFERS;
}

static uint32_t most_of(const struct tool_budget_search *s, enum dial dial)
{
    const uint32_t blocks = s->config->layer_count;
    const uint32_t most[DIALS] = {
        [LEVEL] = 1 + blocks,
        [LAYERS] = s->offloads_layers ? s->layer_count : 0,
        [LAYER_BUFFERS] = s->offloads_layers ? BUFFERS_MAX : 0,
        [GRADIENTS] = s->offloads_layers,
        [LATE] = s->offloads_layers,
        [ACTIVATIONS] = tool_budget_has_disk(s) && blocks > STAYING ? blocks - STAYING + blocks_alone(s) : 0,
        [GATHER_BUFFERS] = 2,
        [GRADIENT_BUFFERS] = 2,
    };
    return most[dial];
}

/* What cannot be is left out: late updates of no layers, more buffers than layers. */
static struct tool_plan_settings settings_of(const struct tool_budget_search *s, const struct tool_plan_settings *from,
                                             const struct dials *d)
{
    struct tool_plan_settings p = *from;
    const uint32_t layers = d->at[LAYERS], buffers = d->at[LAYER_BUFFERS] ? d->at[LAYER_BUFFERS] : 1;
    tool_budget_set_level(&p, d->at[LEVEL]);
    p.offload_layers = layers;
    p.offload_slots = buffers < layers ? buffers : layers;
    p.offload_gradients = d->at[GRADIENTS] && layers > p.offload_slots && tool_budget_may_offload_gradients(&p);
    p.late_updates = d->at[LATE] && layers > 0 && tool_budget_may_update_late(&p);
    const uint32_t at = d->at[ACTIVATIONS], alone = blocks_alone(s), saved = at <= alone ? at : at - alone + STAYING;
    p.offload_activations = saved && saved == s->config->layer_count ? UINT32_MAX : saved;
    p.gather_slots = d->at[GATHER_BUFFERS];
    p.gradient_slots = d->at[GRADIENT_BUFFERS];
    return p;
}

static void turn(const struct tool_budget_search *s, struct dials *d, const struct move *m)
{
    const int64_t least = least_of(m->dial), most = most_of(s, m->dial);
    int64_t to = m->by == INT32_MIN ? least : m->by == INT32_MAX ? most : (int64_t)d->at[m->dial] + m->by;
    to = to < least ? least : to > most ? most : to;
    d->at[m->dial] = (uint32_t)to;
}

static uint32_t list_moves(const struct tool_budget_search *s, struct move moves[MOVES_MAX])
{
    uint32_t count = 0;
    for (enum dial dial = 0; dial < DIALS; dial++) {
        if (most_of(s, dial) <= least_of(dial))
            continue;
        moves[count++] = (struct move){dial, -1};
        moves[count++] = (struct move){dial, 1};
        if (most_of(s, dial) - least_of(dial) > 1 && dial != LAYER_BUFFERS) {
            moves[count++] = (struct move){dial, INT32_MIN};
            moves[count++] = (struct move){dial, INT32_MAX};
        }
    }
    return count;
}

/* Settings at the first number of a dial, from none to all of it, where they fit. The embedding is the first to be updated, and
 * all but it may take less than all. */
static eo_status try_line(struct tool_budget_search *s, const struct tool_plan_settings *from, struct dials d, enum dial dial)
{
    if (most_of(s, dial) == 0)
        return EO_OK;
    d.at[dial] = 0;
    struct tool_plan_settings p = settings_of(s, from, &d);
    EO_TRY(tool_budget_try(s, &p));
    const struct tool_budget_option *none = s->last;
    if (tool_budget_fits(s, none) || none->step_s >= s->best_s)
        return EO_OK;
    if (dial == LEVEL) {
        tool_budget_set_level(&p, 1);
        EO_TRY(tool_budget_try(s, &p));
        tool_budget_set_level(&p, 2);
        return tool_budget_narrow(s, &p, &p.recompute_blocks, s->config->layer_count, none);
    }
    if (dial == ACTIVATIONS) {
        d.at[ACTIVATIONS] = most_of(s, ACTIVATIONS);
        p = settings_of(s, from, &d); /* of all blocks, for which another number stands */
        EO_TRY(tool_budget_try(s, &p));
        return tool_budget_narrow(s, &p, &p.offload_activations, s->config->layer_count - 1, none);
    }
    for (uint32_t most = s->layers_most, i = 0; most > 0 && i < 2; most--, i++) {
        d.at[LAYERS] = most;
        p = settings_of(s, from, &d);
        EO_TRY(tool_budget_narrow(s, &p, &p.offload_layers, most, none));
    }
    return EO_OK;
}

/* One dial turned; of few layers, whose drafts take little time, any two, of many one and then along another. */
eo_status tool_budget_try_neighbours(struct tool_budget_search *s, const struct tool_plan_settings *settings)
{
    static const enum dial lines[] = {LAYERS, LEVEL, ACTIVATIONS};
    const struct tool_plan_settings own = *settings;
    const struct dials from = dials_of(s, &own);
    const bool is_small = s->layer_count <= TOOL_BUDGET_FEW_LAYERS;
    struct move moves[MOVES_MAX];
    const uint32_t count = list_moves(s, moves);
    for (uint32_t m = 0; m < count; m++) {
        struct dials once = from;
        turn(s, &once, &moves[m]);
        const struct tool_plan_settings next = settings_of(s, &own, &once);
        EO_TRY(tool_budget_try(s, &next));
        for (size_t l = 0; !is_small && l < sizeof(lines) / sizeof(lines[0]); l++)
            if (moves[m].dial != lines[l])
                EO_TRY(try_line(s, &own, once, lines[l]));
        for (uint32_t n = m + 1; is_small && n < count; n++) {
            struct dials twice = once;
            turn(s, &twice, &moves[n]);
            const struct tool_plan_settings after = settings_of(s, &own, &twice);
            EO_TRY(tool_budget_try(s, &after));
        }
    }
    return EO_OK;
}
