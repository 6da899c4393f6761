/* SPDX-License-Identifier: MIT */
#include "tests/random/generator.h"

#include <string.h>

enum { LAYERS_MAX = 9, POSITIONS_MAX = 12 }; /* of a random case */

uint64_t random_hash(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b * UINT64_C(0xbf58476d1ce4e5b9) + c + 1;
    for (int round = 0; round < 2; round++) {
        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
        x ^= x >> 31;
    }
    return x;
}

struct dice {
    uint64_t seed, thrown;
};

static uint32_t throw_below(struct dice *dice, uint32_t count)
{
    return (uint32_t)(random_hash(dice->seed, dice->thrown++, 1) % count);
}

static bool one_in(struct dice *dice, uint32_t count)
{
    return throw_below(dice, count) == 0;
}

uint32_t random_case_moment(const struct random_case *c, eo_moment moment)
{
    if (moment.pass == EO_PASS_FORWARD)
        return moment.position;
    return c->position_count + 2 * (c->position_count - 1 - moment.position) + (moment.pass == EO_PASS_BACKWARD);
}

static void make_layers_of_case(struct random_case *c, struct dice *dice)
{
    static const uint32_t sizes[] = {3, 40, 300, 1500, 5000};
    const uint32_t usual = sizes[throw_below(dice, 4)], frozen = 2 + throw_below(dice, 6);
    const bool all_frozen = one_in(dice, 12);
    for (uint32_t l = 0; l < c->layer_count; l++) {
        struct case_layer *layer = &c->layers[l];
        layer->frozen = all_frozen || one_in(dice, frozen);
        layer->parameter_count = 1 + throw_below(dice, CASE_PARAMETERS_MAX);
        for (uint32_t k = 0; k < layer->parameter_count; k++) {
            const uint32_t most = one_in(dice, 3) ? sizes[throw_below(dice, 5)] : usual;
            layer->elements[k] = one_in(dice, 2) ? most : 1 + throw_below(dice, most);
        }
    }
}

/* Every layer has a use; the others, and the order, are as they come. */
static void make_positions_of_case(struct random_case *c, struct dice *dice)
{
    const bool heads = one_in(dice, 3), blind = one_in(dice, 2), partial = one_in(dice, 3);
    for (uint32_t p = 0; p < c->position_count; p++)
        c->positions[p].layer = p < c->layer_count ? p : throw_below(dice, c->layer_count);
    if (!one_in(dice, 4)) {
        for (uint32_t p = c->position_count - 1; p > 0; p--) {
            const uint32_t other = throw_below(dice, p + 1), layer = c->positions[p].layer;
            c->positions[p].layer = c->positions[other].layer;
            c->positions[other].layer = layer;
        }
    }
    for (uint32_t p = 0; p < c->position_count; p++) {
        struct case_position *position = &c->positions[p];
        const uint32_t all = (1u << c->layers[position->layer].parameter_count) - 1;
        const bool last = p + 1 == c->position_count;
        position->forward_in_backward = last ? one_in(dice, 3) : heads && one_in(dice, 4);
        position->backward_without_weights = blind && !position->forward_in_backward && one_in(dice, 4);
        position->gradients = partial ? throw_below(dice, all + 1) : all;
    }
}

static eo_moment throw_moment(const struct random_case *c, struct dice *dice)
{
    for (;;) {
        const eo_moment moment = {(eo_pass)throw_below(dice, 3), throw_below(dice, c->position_count)};
        if (moment.pass != EO_PASS_FORWARD || !c->positions[moment.position].forward_in_backward)
            return moment;
    }
}

static void make_buffers_of_case(struct random_case *c, struct dice *dice)
{
    const uint32_t most = one_in(dice, 2) ? 300 : 20000;
    c->buffer_count = throw_below(dice, CASE_BUFFERS_MAX + 1);
    for (uint32_t b = 0; b < c->buffer_count; b++) {
        struct case_buffer *buffer = &c->buffers[b];
        eo_moment first = throw_moment(c, dice), last = one_in(dice, 4) ? first : throw_moment(c, dice);
        const bool turned = random_case_moment(c, first) > random_case_moment(c, last);
        buffer->first = turned ? last : first;
        buffer->last = turned ? first : last;
        buffer->persistent = one_in(dice, 12);
        buffer->bytes = 1 + throw_below(dice, most);
    }
}

static void make_settings_of_case(struct random_case *c, struct dice *dice)
{
    static const uint32_t alignments[] = {0, 64, 128, 512, 4096};
    eo_plan_params *s = &c->settings;
    s->rank_count = 1 + throw_below(dice, CASE_RANKS_MAX - 1);
    s->strategy = (eo_strategy)throw_below(dice, EO_STRATEGY_COUNT);
    if (s->strategy == EO_STRATEGY_HSDP)
        do
            s->shard_group = 1 + throw_below(dice, s->rank_count);
        while (s->rank_count % s->shard_group != 0);
    s->micro_batches = 1 + throw_below(dice, 4);
    s->gather_slots = 1 + throw_below(dice, one_in(dice, 4) ? 8 : 3);
    s->gradient_slots = 1 + throw_below(dice, one_in(dice, 4) ? 8 : 3);
    s->dtype = (eo_dtype)throw_below(dice, 2);
    s->reduce_dtype = (eo_dtype)throw_below(dice, 2);
    s->optimizer_states = 2 + throw_below(dice, 2);
    s->align_bytes = alignments[throw_below(dice, 5)];
    s->no_prefetch = one_in(dice, 4);
    s->separate_reduce_stream = one_in(dice, 3);
    s->separate_reservations = one_in(dice, 4);
}

eo_dtype random_case_dtype(const struct random_case *c, uint32_t layer, uint32_t k)
{
    return c->layers[layer].fp32 >> k & 1 ? EO_DTYPE_FP32 : c->settings.dtype;
}

uint32_t random_case_ranks(const struct random_case *c, uint32_t step)
{
    return c->resume_ranks && step >= c->resume_step ? c->resume_ranks : c->settings.rank_count;
}

uint32_t random_case_groups(const struct random_case *c)
{
    uint32_t groups = 1;
    for (uint32_t l = 0; l < c->layer_count; l++)
        for (uint32_t k = 0; k < c->layers[l].parameter_count; k++)
            groups = groups > c->layers[l].groups[k] ? groups : c->layers[l].groups[k] + 1;
    return groups;
}

bool random_case_spoils(const struct random_case *c, uint32_t *position, uint32_t *parameter)
{
    for (uint32_t p = 0; p < c->position_count; p++) {
        const struct case_layer *layer = &c->layers[c->positions[p].layer];
        for (uint32_t k = 0; k < layer->parameter_count && !layer->frozen; k++) {
            if (!((c->positions[p].gradients & ~layer->frozen_parts) >> k & 1))
                continue;
            *position = p;
            *parameter = k;
            return true;
        }
    }
    return false;
}

static bool has_later_use(const struct random_case *c, uint32_t position)
{
    for (uint32_t p = position + 1; p < c->position_count; p++)
        if (c->positions[p].layer == c->positions[position].layer)
            return true;
    return false;
}

/* A matrix has one size that its sides can have. Norms by group are needed for clips apart. A step of SGD is as long as its
 * gradient: clipped ones would be no integers, and its weights are larger than float8 holds. */
static void settle_optimizer(struct random_case *c)
{
    eo_plan_params *s = &c->settings;
    uint32_t position, parameter;
    const bool no_muon = s->optimizer == EO_OPTIMIZER_MUON && (c->memory != EO_MEMORY_STATIC || s->offload_layers);
    if (c->own_optimizer || no_muon)
        s->optimizer = EO_OPTIMIZER_ADAMW;
    if (s->optimizer != EO_OPTIMIZER_ADAMW)
        s->optimizer_states = 0;
    if (s->optimizer == EO_OPTIMIZER_SGD) {
        s->float8_gather = false;
        memset(c->clips, 0, sizeof(c->clips));
    }
    for (uint32_t l = 0; l < c->layer_count; l++) {
        struct case_layer *layer = &c->layers[l];
        for (uint32_t k = 0; k < CASE_PARAMETERS_MAX; k++)
            if (k >= layer->parameter_count || layer->elements[k] % CASE_MATRIX_LARGE ||
                layer->elements[k] > CASE_MATRIX_LARGE * CASE_MATRIX_LARGE)
                layer->matrix &= ~(1u << k);
        layer->tall &= layer->matrix;
    }
    for (uint32_t g = 0; g < CASE_GROUPS_MAX && !s->norm_parts; g++)
        c->clip_groups[g] = 0;
    c->skips = random_case_spoils(c, &position, &parameter) ? c->skips & ((1u << c->step_count) - 1) : 0;
}

void random_case_settle(struct random_case *c)
{
    const uint32_t group = c->settings.strategy == EO_STRATEGY_HSDP  ? c->settings.shard_group
                           : c->settings.strategy == EO_STRATEGY_DDP ? 1
                                                                     : c->settings.rank_count;
    bool any = false, any_adds = false;
    for (uint32_t l = 0; l < c->layer_count; l++) {
        struct case_layer *layer = &c->layers[l];
        const uint32_t all = (1u << layer->parameter_count) - 1;
        layer->frozen_parts &= all;
        if (layer->frozen || layer->frozen_parts == all || c->memory != EO_MEMORY_STATIC)
            layer->frozen_parts = 0;
        c->layers[l].float8 &= (1u << c->layers[l].parameter_count) - 1;
        layer->fp32 &= all & ~layer->float8;
        any = any || c->layers[l].float8;
        if (layer->parts < 2 || group % layer->parts != 0)
            layer->parts = 0;
        else
            c->settings.gather_run = c->settings.gradient_run = 0; /* no collective joins layers of different ranks */
    }
    c->settings.float8_gather = c->settings.float8_gather && any && group > 1 && c->settings.dtype == EO_DTYPE_BF16;
    for (uint32_t l = 0; l < c->layer_count && c->settings.float8_gather; l++)
        c->layers[l].frozen_parts = 0; /* not gathered in float8 yet */
    for (uint32_t p = 0; p < c->position_count; p++) {
        c->positions[p].gradients &= ~c->layers[c->positions[p].layer].frozen_parts;
        c->positions[p].adds = c->positions[p].adds && has_later_use(c, p);
        const struct case_layer *layer = &c->layers[c->positions[p].layer];
        any_adds =
            any_adds || (c->positions[p].adds && !layer->frozen && layer->frozen_parts != (1u << layer->parameter_count) - 1);
    }
    c->settings.gradients_apart = c->settings.gradients_apart && any_adds;
    for (uint32_t b = 0; b < c->buffer_count; b++) {
        struct case_buffer *buffer = &c->buffers[b];
        buffer->saved = buffer->saved && buffer->first.pass == EO_PASS_FORWARD && buffer->last.pass != EO_PASS_FORWARD &&
                        buffer->first.position == buffer->last.position;
    }
    settle_optimizer(c);
    if (c->resume_step == 0 || c->resume_step >= c->step_count)
        c->resume_ranks = 0;
    if (c->resume_ranks == 0)
        c->resume_step = c->resume_group = 0;
    if (c->settings.strategy != EO_STRATEGY_HSDP)
        c->resume_group = 0;
    else if (c->resume_ranks && (!c->resume_group || c->resume_ranks % c->resume_group != 0))
        c->resume_group = 1;
}

/* Settings that came later: from a dice of their own, so that the rest of a seed's case is as it was. */
static void make_later_of_case(struct random_case *c)
{
    struct dice dice = {c->seed ^ 0xf8, 0};
    for (uint32_t l = 0; l < c->layer_count; l++)
        c->layers[l].float8 = throw_below(&dice, 8);
    c->settings.float8_gather = !one_in(&dice, 3);
    c->settings.norms_beside = one_in(&dice, 2);
    const bool mixes = one_in(&dice, 2);
    for (uint32_t l = 0; l < c->layer_count && mixes; l++)
        c->layers[l].frozen_parts = throw_below(&dice, 8);
    c->settings.float8_gather = c->settings.float8_gather && !mixes;
    random_case_settle(c);
}

/* Likewise; of a plan in fp32 they change nothing. */
static void make_types_of_case(struct random_case *c)
{
    struct dice dice = {c->seed ^ 0xf32, 0};
    if (one_in(&dice, 2))
        return;
    for (uint32_t l = 0; l < c->layer_count; l++) {
        c->layers[l].fp32 = throw_below(&dice, 8);
        c->layers[l].float8 &= one_in(&dice, 2) ? ~c->layers[l].fp32 : ~0u;
    }
    random_case_settle(c);
}

/* Likewise. */
static void make_runs_of_case(struct random_case *c)
{
    struct dice dice = {c->seed ^ 0xb0c, 0};
    const uint32_t gather = 1 + throw_below(&dice, 5), gradient = 1 + throw_below(&dice, 5);
    eo_plan_params *s = &c->settings;
    if (one_in(&dice, 2))
        return;
    if (!s->no_prefetch)
        s->gather_run = gather;
    if (!s->offload_gradients)
        s->gradient_run = gradient;
}

/* Likewise. */
static void make_late_of_case(struct random_case *c)
{
    struct dice dice = {c->seed ^ 0x1a7e, 0};
    c->settings.late_updates = c->settings.offload_layers && !c->settings.no_prefetch && !c->own_optimizer && one_in(&dice, 2);
}

/* Likewise. */
static void make_evictions_of_case(struct random_case *c)
{
    struct dice dice = {c->seed ^ 0xe71c, 0};
    c->settings.separate_evict_stream = (c->settings.offload_layers || c->settings.offload_activations) && one_in(&dice, 2);
}

/* Likewise. */
static void make_inputs_of_case(struct random_case *c)
{
    struct dice dice = {c->seed ^ 0x1297, 0};
    c->settings.input_gradients = one_in(&dice, 2);
    for (uint32_t s = 0; s <= c->step_count && c->settings.input_gradients; s++)
        for (uint32_t a = 0; a < CASE_ACTIONS_MAX; a++)
            if (c->actions[s][a] == CASE_EVALUATES && one_in(&dice, 2))
                c->actions[s][a] = CASE_FINDS_INPUTS;
}

/* Likewise. */
static void make_added_of_case(struct random_case *c)
{
    struct dice dice = {c->seed ^ 0xadd5, 0};
    const bool adds = one_in(&dice, 2);
    for (uint32_t p = 0; p < c->position_count; p++)
        c->positions[p].adds = adds && !one_in(&dice, 3);
    c->settings.gradients_apart = adds && one_in(&dice, 4);
    random_case_settle(c);
}

/* Likewise. */
static void make_saved_of_case(struct random_case *c)
{
    struct dice dice = {c->seed ^ 0x5a7ed, 0};
    if (one_in(&dice, 2))
        return;
    for (uint32_t b = 0; b < c->buffer_count; b++) {
        struct case_buffer *buffer = &c->buffers[b];
        const uint32_t p = throw_below(&dice, c->position_count);
        const eo_pass last = one_in(&dice, 3) ? EO_PASS_RECOMPUTE : EO_PASS_BACKWARD;
        if (buffer->persistent || one_in(&dice, 4) || c->positions[p].forward_in_backward)
            continue;
        buffer->first = (eo_moment){EO_PASS_FORWARD, p};
        buffer->last = (eo_moment){last, p};
        buffer->saved = true;
    }
    if (c->memory == EO_MEMORY_STATIC && !one_in(&dice, 4))
        c->settings.offload_activations = one_in(&dice, 2) ? UINT32_MAX : 1 + throw_below(&dice, c->position_count);
}

/* Likewise: groups of parameters with norms of their own. An average of the weights is planned and updated, and changes
 * none of the numbers. */
static void make_groups_of_case(struct random_case *c)
{
    struct dice dice = {c->seed ^ 0x9a27, 0};
    const uint32_t groups = 1 + throw_below(&dice, CASE_GROUPS_MAX);
    c->settings.norm_parts = one_in(&dice, 2);
    c->settings.ema = one_in(&dice, 4) && c->memory == EO_MEMORY_STATIC;
    for (uint32_t l = 0; l < c->layer_count; l++)
        for (uint32_t k = 0; k < c->layers[l].parameter_count; k++)
            c->layers[l].groups[k] = throw_below(&dice, groups);
}

/* Likewise: an optimizer whose step goes against the gradient's sign, as AdamW's does here; Muon's matrices are products of
 * case_sign_product. */
static void make_optimizer_of_case(struct random_case *c)
{
    static const eo_optimizer others[] = {EO_OPTIMIZER_MUON, EO_OPTIMIZER_MUON, EO_OPTIMIZER_ADAMW8BIT, EO_OPTIMIZER_LION};
    struct dice dice = {c->seed ^ 0x0b71, 0};
    c->settings.optimizer = one_in(&dice, 3) ? EO_OPTIMIZER_ADAMW : others[throw_below(&dice, 4)];
    c->own_optimizer = c->own_optimizer && c->settings.optimizer != EO_OPTIMIZER_MUON;
    random_case_settle(c);
    for (uint32_t l = 0; l < c->layer_count && c->settings.optimizer == EO_OPTIMIZER_MUON; l++) {
        struct case_layer *layer = &c->layers[l];
        layer->matrix = throw_below(&dice, 8);
        layer->tall = throw_below(&dice, 8);
        for (uint32_t k = 0; k < layer->parameter_count; k++)
            if (layer->matrix >> k & 1)
                layer->elements[k] = CASE_MATRIX_LARGE * (1 + throw_below(&dice, CASE_MATRIX_LARGE));
    }
    for (uint32_t i = 0; i < CASE_CLIPS_MAX; i++)
        c->clips[i] = one_in(&dice, 2) ? 0 : (float)(1 + throw_below(&dice, 1000)) / 8;
    for (uint32_t g = 0; g < CASE_GROUPS_MAX; g++)
        c->clip_groups[g] = throw_below(&dice, CASE_CLIPS_MAX);
    c->skips = one_in(&dice, 3) ? throw_below(&dice, 1u << CASE_STEPS_MAX) : 0;
    random_case_settle(c);
}

/* Likewise: SGD, and as many ranks as are drawn nowhere else: a number that divides no size. */
static void make_rare_of_case(struct random_case *c)
{
    struct dice dice = {c->seed ^ 0x56d, 0};
    if (one_in(&dice, 5) && c->settings.optimizer == EO_OPTIMIZER_ADAMW && !c->own_optimizer)
        c->settings.optimizer = EO_OPTIMIZER_SGD;
    if (one_in(&dice, 8)) {
        c->settings.rank_count = CASE_RANKS_MAX;
        c->settings.shard_group = c->settings.strategy != EO_STRATEGY_HSDP ? 0 : one_in(&dice, 2) ? 1 : CASE_RANKS_MAX;
    }
    if (one_in(&dice, 4)) {
        c->resume_ranks = 1 + throw_below(&dice, CASE_RANKS_MAX);
        c->resume_step = 1 + throw_below(&dice, CASE_STEPS_MAX);
        c->resume_group = c->settings.strategy == EO_STRATEGY_HSDP ? 1 + throw_below(&dice, c->resume_ranks) : 0;
    }
    random_case_settle(c);
}

/* Few cases have none; a replacement comes once in a gap at most. Graphs need gaps without. */
static void make_actions_of_case(struct random_case *c, struct dice *dice)
{
    const uint32_t rare = 1 + throw_below(dice, 6);
    c->step_count = c->graph ? CASE_STEPS_MAX - throw_below(dice, 3) : 1 + throw_below(dice, CASE_STEPS_MAX);
    for (uint32_t s = 0; s <= c->step_count; s++) {
        bool replaced = false;
        for (uint32_t a = 0; a < CASE_ACTIONS_MAX; a++) {
            uint32_t action = one_in(dice, rare) ? throw_below(dice, CASE_ACTION_COUNT) : CASE_NOTHING;
            if (action == CASE_REPLACES && replaced)
                action = CASE_EVALUATES;
            replaced = replaced || action == CASE_REPLACES;
            c->actions[s][a] = (uint8_t)action;
        }
        if (c->graph && !one_in(dice, 4))
            memset(c->actions[s], CASE_NOTHING, sizeof(c->actions[s]));
    }
}

bool random_case_is_quiet(const struct random_case *c, uint32_t step)
{
    for (uint32_t a = 0; a < CASE_ACTIONS_MAX; a++)
        if (c->actions[step][a] != CASE_NOTHING)
            return false;
    return true;
}

uint32_t random_case_parameter(const struct random_case *c, uint32_t step)
{
    uint32_t count = 0;
    for (uint32_t l = 0; l < c->layer_count; l++)
        count += c->layers[l].parameter_count;
    return (uint32_t)(random_hash(c->seed, 77, step) % count);
}

void random_case_make(struct random_case *out, uint64_t seed)
{
    struct dice dice = {seed, 0};
    memset(out, 0, sizeof(*out));
    out->seed = seed;
    out->position_count = 1 + throw_below(&dice, POSITIONS_MAX);
    out->layer_count = 1 + throw_below(&dice, out->position_count < LAYERS_MAX ? out->position_count : LAYERS_MAX);
    make_layers_of_case(out, &dice);
    make_positions_of_case(out, &dice);
    make_buffers_of_case(out, &dice);
    make_settings_of_case(out, &dice);
    out->memory = out->settings.strategy == EO_STRATEGY_ZERO3 && one_in(&dice, 3)
                      ? (eo_memory)throw_below(&dice, EO_MEMORY_DYNAMIC_CACHING + 1)
                      : EO_MEMORY_STATIC;
    out->debug = one_in(&dice, 2);
    out->own_optimizer = one_in(&dice, 2);
    out->delay_seed = one_in(&dice, 2) ? 1 + throw_below(&dice, 1000) : 0;
    out->reduce_inputs = one_in(&dice, 2) ? 1 + throw_below(&dice, 60) : 0;
    out->implicit_prefetch = one_in(&dice, 3);
    out->zero_gradients = one_in(&dice, 5);
    out->graph = out->memory == EO_MEMORY_STATIC && !out->own_optimizer && one_in(&dice, 2);
    make_actions_of_case(out, &dice);
    if (out->memory == EO_MEMORY_STATIC && one_in(&dice, 3)) {
        out->settings.offload_layers = one_in(&dice, 2) ? UINT32_MAX : 1 + throw_below(&dice, LAYERS_MAX);
        out->settings.offload_slots = throw_below(&dice, 5);
        out->settings.offload_gradients = one_in(&dice, 2);
    }
    make_later_of_case(out);
    make_types_of_case(out);
    make_runs_of_case(out);
    make_saved_of_case(out);
    make_groups_of_case(out);
    make_optimizer_of_case(out);
    make_rare_of_case(out);
    make_late_of_case(out);
    make_evictions_of_case(out);
    make_inputs_of_case(out);
    make_added_of_case(out);
}

void random_case_make_with_parts(struct random_case *out, uint64_t seed)
{
    random_case_make(out, seed);
    struct dice dice = {seed ^ 0x9a275, 0};
    out->settings.rank_count = 2 + throw_below(&dice, CASE_RANKS_MAX - 1);
    out->settings.shard_group = out->settings.strategy == EO_STRATEGY_HSDP ? out->settings.rank_count : 0;
    const bool all = one_in(&dice, 4);
    for (uint32_t l = 0; l < out->layer_count; l++)
        out->layers[l].parts = one_in(&dice, 4) ? out->settings.rank_count : 1 + throw_below(&dice, 3);
    for (uint32_t l = 0; l < out->layer_count && all; l++)
        out->layers[l].parts = out->settings.rank_count;
    random_case_settle(out);
}

void random_case_make_deep(struct random_case *out, uint32_t layers, eo_strategy strategy)
{
    memset(out, 0, sizeof(*out));
    out->seed = layers;
    out->layer_count = out->position_count = layers;
    for (uint32_t p = 0; p < layers; p++) {
        out->layers[p] = (struct case_layer){.parameter_count = 1, .elements = {5}};
        out->positions[p] = (struct case_position){.layer = p, .gradients = 1};
    }
    out->settings = (eo_plan_params){.rank_count = strategy == EO_STRATEGY_HSDP ? 4 : 2, .strategy = strategy,
                                     .shard_group = strategy == EO_STRATEGY_HSDP ? 2 : 0, .micro_batches = 2};
    out->debug = true;
    out->step_count = 3;
    out->actions[0][0] = out->actions[3][0] = CASE_EVALUATES;
    out->delay_seed = 7; /* collectives that come late, so that many wait in a queue */
}
