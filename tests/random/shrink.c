/* SPDX-License-Identifier: MIT */
#include "tests/random/shrink.h"

#include <string.h>
#include <time.h>

struct shrinking {
    const struct case_trial *trial;
    struct random_case *c;
    struct case_outcome *outcome;
    double ends_s;
    uint32_t tried;
};

static double shrink_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* By the text's first words: a smaller case that fails for another reason is another failure. */
static bool fails_alike(const struct case_outcome *a, const struct case_outcome *b)
{
    const size_t length = strcspn(a->text, ":0123456789'");
    return length == strcspn(b->text, ":0123456789'") && memcmp(a->text, b->text, length) == 0;
}

static bool is_over(const struct shrinking *s) { return shrink_clock_s() > s->ends_s; }

/* Takes the smaller case if it fails too. */
static bool take_smaller(struct shrinking *s, struct random_case *smaller)
{
    struct case_outcome outcome;
    random_case_settle(smaller);
    if (is_over(s) || memcmp(smaller, s->c, sizeof(*smaller)) == 0)
        return false;
    s->tried++;
    if (case_attempt(s->trial, smaller, &outcome) || !fails_alike(&outcome, s->outcome))
        return false;
    *s->c = *smaller;
    *s->outcome = outcome;
    return true;
}

/* -- what can go -----------------------------------------------------------------------------------------------------*/

/* One step fewer: without the step at `step`, and what comes before it. */
static void drop_step(struct random_case *c, uint32_t step)
{
    for (uint32_t s = step; s < c->step_count; s++)
        memcpy(c->actions[s], c->actions[s + 1], sizeof(c->actions[s]));
    memset(c->actions[c->step_count--], 0, sizeof(c->actions[0]));
}

/* A buffer that began or ended at a position that is gone does so in the backward pass of its neighbour, in order. */
static eo_moment moved_moment(const struct random_case *c, eo_moment moment, uint32_t gone)
{
    if (moment.position > gone || moment.position == c->position_count)
        moment.position--;
    if (moment.pass == EO_PASS_FORWARD && c->positions[moment.position].forward_in_backward)
        moment.pass = EO_PASS_RECOMPUTE;
    return moment;
}

static void drop_position(struct random_case *c, uint32_t position)
{
    c->position_count--;
    for (uint32_t p = position; p < c->position_count; p++)
        c->positions[p] = c->positions[p + 1];
    memset(&c->positions[c->position_count], 0, sizeof(c->positions[0]));
    for (uint32_t b = 0; b < c->buffer_count; b++) {
        struct case_buffer *buffer = &c->buffers[b];
        const eo_moment first = moved_moment(c, buffer->first, position), last = moved_moment(c, buffer->last, position);
        const bool turned = random_case_moment(c, first) > random_case_moment(c, last);
        buffer->first = turned ? last : first;
        buffer->last = turned ? first : last;
    }
}

/* With its positions. false: nothing would be left. */
static bool drop_layer(struct random_case *c, uint32_t layer)
{
    for (uint32_t p = c->position_count; p-- > 0;) {
        if (c->positions[p].layer != layer)
            continue;
        if (c->position_count == 1)
            return false;
        drop_position(c, p);
    }
    c->layer_count--;
    for (uint32_t l = layer; l < c->layer_count; l++)
        c->layers[l] = c->layers[l + 1];
    memset(&c->layers[c->layer_count], 0, sizeof(c->layers[0]));
    for (uint32_t p = 0; p < c->position_count; p++)
        c->positions[p].layer -= c->positions[p].layer > layer;
    return true;
}

static bool is_last_use(const struct random_case *c, uint32_t position)
{
    for (uint32_t p = 0; p < c->position_count; p++)
        if (p != position && c->positions[p].layer == c->positions[position].layer)
            return false;
    return true;
}

static void drop_parameter(struct random_case *c, uint32_t layer)
{
    struct case_layer *of = &c->layers[layer];
    of->elements[--of->parameter_count] = 0;
    for (uint32_t p = 0; p < c->position_count; p++)
        if (c->positions[p].layer == layer)
            c->positions[p].gradients &= (1u << of->parameter_count) - 1;
}

/* Groups of hsdp become as small as they have to. */
static void set_ranks(struct random_case *c, uint32_t count)
{
    c->settings.rank_count = count;
    while (c->settings.shard_group > 1 && count % c->settings.shard_group != 0)
        c->settings.shard_group--;
}

/* -- one kind at a time; true: something went ------------------------------------------------------------------------*/

static bool shrink_steps(struct shrinking *s)
{
    bool went = false;
    for (uint32_t step = s->c->step_count; step-- > 0 && s->c->step_count > 1;) {
        struct random_case smaller = *s->c;
        drop_step(&smaller, step);
        went = take_smaller(s, &smaller) || went;
    }
    for (uint32_t step = 0; step <= s->c->step_count; step++) {
        for (uint32_t a = 0; a < CASE_ACTIONS_MAX; a++) {
            struct random_case smaller = *s->c;
            smaller.actions[step][a] = CASE_NOTHING;
            went = take_smaller(s, &smaller) || went;
        }
    }
    return went;
}

static bool shrink_model(struct shrinking *s)
{
    bool went = false;
    for (uint32_t l = s->c->layer_count; l-- > 0 && s->c->layer_count > 1;) {
        struct random_case smaller = *s->c;
        went = (drop_layer(&smaller, l) && take_smaller(s, &smaller)) || went;
    }
    for (uint32_t p = s->c->position_count; p-- > 0 && s->c->position_count > 1;) {
        struct random_case smaller = *s->c;
        if (is_last_use(&smaller, p))
            continue;
        drop_position(&smaller, p);
        went = take_smaller(s, &smaller) || went;
    }
    for (uint32_t b = s->c->buffer_count; b-- > 0;) {
        struct random_case smaller = *s->c;
        memmove(&smaller.buffers[b], &smaller.buffers[b + 1], (smaller.buffer_count - b - 1) * sizeof(smaller.buffers[0]));
        memset(&smaller.buffers[--smaller.buffer_count], 0, sizeof(smaller.buffers[0]));
        went = take_smaller(s, &smaller) || went;
    }
    return went;
}

static bool shrink_parts(struct shrinking *s)
{
    bool went = false;
    struct random_case smaller;
    for (uint32_t l = 0; l < s->c->layer_count; l++) {
        while (s->c->layers[l].parameter_count > 1) {
            smaller = *s->c;
            drop_parameter(&smaller, l);
            if (!take_smaller(s, &smaller))
                break;
            went = true;
        }
        smaller = *s->c;
        smaller.layers[l].frozen = false;
        went = take_smaller(s, &smaller) || went;
        for (uint32_t k = 0; k < s->c->layers[l].parameter_count; k++) {
            smaller = *s->c;
            smaller.layers[l].elements[k] = 1;
            went = take_smaller(s, &smaller) || went;
        }
    }
    for (uint32_t p = 0; p < s->c->position_count; p++) {
        smaller = *s->c;
        smaller.positions[p].backward_without_weights = smaller.positions[p].forward_in_backward = false;
        smaller.positions[p].adds = false;
        smaller.positions[p].gradients = (1u << smaller.layers[smaller.positions[p].layer].parameter_count) - 1;
        went = take_smaller(s, &smaller) || went;
    }
    for (uint32_t b = 0; b < s->c->buffer_count; b++) {
        smaller = *s->c;
        smaller.buffers[b].bytes = 1;
        went = take_smaller(s, &smaller) || went;
    }
    return went;
}

static bool shrink_settings(struct shrinking *s)
{
    bool went = false;
    enum { WAYS = 31 };
    for (uint32_t ranks = 1; ranks < s->c->settings.rank_count; ranks++) {
        struct random_case smaller = *s->c;
        set_ranks(&smaller, ranks);
        if (take_smaller(s, &smaller))
            went = true;
    }
    for (uint32_t way = 0; way < WAYS; way++) {
        struct random_case smaller = *s->c;
        eo_plan_params *settings = &smaller.settings;
        switch (way) {
        case 0:
            settings->micro_batches = 1;
            break;
        case 1:
            settings->gather_slots = 1;
            break;
        case 2:
            settings->gradient_slots = 1;
            break;
        case 3:
            settings->dtype = EO_DTYPE_FP32;
            break;
        case 4:
            settings->reduce_dtype = EO_DTYPE_FP32;
            break;
        case 5:
            settings->optimizer_states = 2;
            break;
        case 6:
            settings->align_bytes = 0;
            break;
        case 7:
            settings->no_prefetch = false;
            break;
        case 8:
            settings->separate_reduce_stream = settings->separate_evict_stream = false;
            break;
        case 9:
            settings->separate_reservations = false;
            break;
        case 10:
            settings->strategy = EO_STRATEGY_ZERO3;
            settings->shard_group = 0;
            break;
        case 11:
            smaller.memory = EO_MEMORY_STATIC;
            smaller.reduce_inputs = 0;
            smaller.implicit_prefetch = false;
            break;
        case 12:
            smaller.debug = false;
            break;
        case 13:
            smaller.own_optimizer = false;
            break;
        case 14:
            smaller.delay_seed = 0;
            break;
        case 15:
            smaller.zero_gradients = false;
            break;
        case 16:
            smaller.graph = false;
            break;
        case 17:
            settings->offload_layers = settings->offload_slots = 0;
            settings->offload_gradients = settings->late_updates = false;
            settings->offload_activations = 0;
            break;
        case 18:
            settings->float8_gather = false;
            break;
        case 19:
            settings->norms_beside = settings->gradients_apart = false;
            break;
        case 20:
            for (uint32_t l = 0; l < smaller.layer_count; l++)
                smaller.layers[l].frozen_parts = 0;
            break;
        case 21:
            for (uint32_t l = 0; l < smaller.layer_count; l++)
                smaller.layers[l].fp32 = 0;
            break;
        case 23:
            settings->norm_parts = settings->ema = false;
            break;
        case 22:
            settings->gather_run = settings->gradient_run = 0;
            break;
        case 24:
            settings->optimizer = EO_OPTIMIZER_ADAMW;
            break;
        case 25:
            smaller.skips = 0;
            break;
        case 26:
            memset(smaller.clips, 0, sizeof(smaller.clips));
            memset(smaller.clip_groups, 0, sizeof(smaller.clip_groups));
            break;
        case 27:
            for (uint32_t l = 0; l < smaller.layer_count; l++)
                smaller.layers[l].matrix = 0;
            break;
        case 28:
            smaller.resume_ranks = 0;
            break;
        case 29:
            for (uint32_t l = 0; l < smaller.layer_count; l++)
                smaller.layers[l].parts = 0;
            break;
        default:
            smaller.implicit_prefetch = false;
            smaller.reduce_inputs = 0;
            break;
        }
        went = take_smaller(s, &smaller) || went;
    }
    return went;
}

uint32_t case_shrink(const struct case_trial *trial, struct random_case *c, struct case_outcome *outcome, double seconds_max)
{
    struct shrinking s = {.trial = trial, .c = c, .outcome = outcome, .ends_s = shrink_clock_s() + seconds_max};
    bool went = true;
    while (went && !is_over(&s)) {
        went = shrink_model(&s);
        went = shrink_steps(&s) || went;
        went = shrink_settings(&s) || went;
        went = shrink_parts(&s) || went;
    }
    return s.tried;
}
