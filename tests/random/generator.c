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
    s->rank_count = 1 + throw_below(dice, CASE_RANKS_MAX);
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

/* A matrix has one size that its sides can have. Norms by group are needed for clips apart. */
static void settle_optimizer(struct random_case *c)
{
    eo_plan_params *s = &c->settings;
    uint32_t position, parameter;
    const bool no_muon = s->optimizer == EO_OPTIMIZER_MUON && (c->memory != EO_MEMORY_STATIC || s->offload_layers);
    if (c->own_optimizer || no_muon)
        s->optimizer = EO_OPTIMIZER_ADAMW;
    if (s->optimizer != EO_OPTIMIZER_ADAMW)
        s->optimizer_states = 0;
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
    bool any = false;
    for (uint32_t l = 0; l < c->layer_count; l++) {
        struct case_layer *layer = &c->layers[l];
        const uint32_t all = (1u << layer->parameter_count) - 1;
        layer->frozen_parts &= all;
        if (layer->frozen || layer->frozen_parts == all || c->memory != EO_MEMORY_STATIC)
            layer->frozen_parts = 0;
        c->layers[l].float8 &= (1u << c->layers[l].parameter_count) - 1;
        layer->fp32 &= all & ~layer->float8;
        any = any || c->layers[l].float8;
    }
    c->settings.float8_gather = c->settings.float8_gather && any && group > 1 && c->settings.dtype == EO_DTYPE_BF16;
    for (uint32_t l = 0; l < c->layer_count && c->settings.float8_gather; l++)
        c->layers[l].frozen_parts = 0; /* not gathered in float8 yet */
    for (uint32_t p = 0; p < c->position_count; p++)
        c->positions[p].gradients &= ~c->layers[c->positions[p].layer].frozen_parts;
    for (uint32_t b = 0; b < c->buffer_count; b++) {
        struct case_buffer *buffer = &c->buffers[b];
        buffer->saved = buffer->saved && buffer->first.pass == EO_PASS_FORWARD && buffer->last.pass != EO_PASS_FORWARD &&
                        buffer->first.position == buffer->last.position;
    }
    settle_optimizer(c);
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

static eo_status add_layer_of_case(eo_model *model, const struct random_case *c, uint32_t l)
{
    const struct case_layer *layer = &c->layers[l];
    char name[EO_NAME_MAX];
    snprintf(name, sizeof(name), "layer%u", l);
    eo_status status = eo_model_add_layer(model, eo_layer_params(.name = name, .frozen = layer->frozen), NULL);
    for (uint32_t k = 0; k < layer->parameter_count && status >= 0; k++) {
        snprintf(name, sizeof(name), "layer%u.%u", l, k);
        const bool matrix = layer->matrix >> k & 1, tall = layer->tall >> k & 1;
        const uint32_t large = matrix ? CASE_MATRIX_LARGE : layer->elements[k], small = layer->elements[k] / large;
        status = eo_model_add_parameter(model, eo_parameter_params(.layer = l, .name = name, .dim_count = matrix ? 2 : 1,
                                                                   .dims = {matrix && !tall ? small : large,
                                                                            !matrix ? 0 : tall ? small : large},
                                                                   .matrix = matrix, .group = layer->groups[k],
                                                                   .float8_gather = layer->float8 >> k & 1,
                                                                   .fp32 = layer->fp32 >> k & 1,
                                                                   .frozen = layer->frozen_parts >> k & 1), NULL);
    }
    return status;
}

static eo_status add_position_of_case(eo_model *model, const struct random_case *c, uint32_t p)
{
    const struct case_position *position = &c->positions[p];
    uint32_t parameters[CASE_PARAMETERS_MAX], count = 0, first = 0;
    char name[EO_NAME_MAX];
    for (uint32_t l = 0; l < position->layer; l++)
        first += c->layers[l].parameter_count;
    for (uint32_t k = 0; k < c->layers[position->layer].parameter_count; k++)
        if (position->gradients >> k & 1)
            parameters[count++] = first + k;
    const bool all = count == c->layers[position->layer].parameter_count;
    snprintf(name, sizeof(name), "use%u", p);
    return eo_model_add_position(model, eo_position_params(.layer = position->layer, .name = name,
                                                           .forward_in_backward = position->forward_in_backward,
                                                           .backward_without_weights = position->backward_without_weights,
                                                           .parameters = all ? NULL : parameters,
                                                           .parameter_count = all ? 0 : count), NULL);
}

eo_status random_case_model(const struct random_case *c, const eo_log *log, eo_model **out)
{
    char name[EO_NAME_MAX];
    snprintf(name, sizeof(name), "seed %llu", (unsigned long long)c->seed);
    eo_status status = eo_model_create(out, eo_model_params(.name = name, .log = log));
    for (uint32_t l = 0; l < c->layer_count && status >= 0; l++)
        status = add_layer_of_case(*out, c, l);
    for (uint32_t p = 0; p < c->position_count && status >= 0; p++)
        status = add_position_of_case(*out, c, p);
    for (uint32_t b = 0; b < c->buffer_count && status >= 0; b++) {
        const struct case_buffer *buffer = &c->buffers[b];
        snprintf(name, sizeof(name), "buffer%u", b);
        status = eo_model_add_buffer(*out, eo_buffer_params(.name = name, .bytes = buffer->bytes,
                                                            .category = EO_CATEGORY_ACTIVATION, .first = buffer->first,
                                                            .last = buffer->last, .persistent = buffer->persistent,
                                                            .saved = buffer->saved), NULL);
    }
    if (c->graph && status >= 0)
        status = eo_model_add_buffer(*out, eo_buffer_params(.name = "step", .bytes = sizeof(uint32_t), .persistent = true,
                                                            .category = EO_CATEGORY_OTHER), NULL);
    if (status < 0)
        eo_model_destroy(out);
    return status;
}

static void print_settings(const struct random_case *c, FILE *out)
{
    static const char *const memories[] = {"static", "malloc", "pool", "caching"};
    const eo_plan_params *s = &c->settings;
    fprintf(out, "# seed %llu: %s, %u ranks, %u micro-batches, slots %u,%u, weights %s, reductions %s, states %u",
            (unsigned long long)c->seed, eo_strategy_name(s->strategy), s->rank_count, s->micro_batches, s->gather_slots,
            s->gradient_slots, s->float8_gather ? "bf16 gathered in float8" : s->dtype ? "bf16" : "fp32", s->reduce_dtype ? "bf16" : "fp32", s->optimizer_states);
    if (s->shard_group)
        fprintf(out, ", groups of %u", s->shard_group);
    if (s->align_bytes)
        fprintf(out, ", align %u", s->align_bytes);
    if (s->offload_layers)
        fprintf(out, ", %u layers offloaded by %u%s", s->offload_layers, s->offload_slots,
                s->offload_gradients ? " with gradients" : "");
    if (s->offload_activations)
        fprintf(out, ", saved buffers of %u positions offloaded", s->offload_activations);
    if (s->gather_run > 1 || s->gradient_run > 1)
        fprintf(out, ", runs %u,%u", s->gather_run, s->gradient_run);
    if (c->memory != EO_MEMORY_STATIC)
        fprintf(out, ", memory %s with %u reductions", memories[c->memory], c->reduce_inputs);
    if (c->delay_seed)
        fprintf(out, ", delays %llu", (unsigned long long)c->delay_seed);
    const struct {
        bool is_set;
        const char *name;
    } flags[] = {{s->no_prefetch, "no prefetch"}, {s->separate_reduce_stream, "reduce stream"},
                 {s->norms_beside, "norms beside"}, {s->separate_reservations, "reservations"}, {c->implicit_prefetch, "implicit prefetch"},
                 {c->debug, "debug"}, {c->own_optimizer, "own optimizer"}, {c->zero_gradients, "zero gradients"},
                 {c->graph, "graph"}, {s->norm_parts, "norms by layer and group"}, {s->ema, "average"}};
    for (size_t f = 0; f < sizeof(flags) / sizeof(flags[0]); f++)
        if (flags[f].is_set)
            fprintf(out, ", %s", flags[f].name);
    if (s->optimizer != EO_OPTIMIZER_ADAMW)
        fprintf(out, ", optimizer %s", eo_optimizer_name(s->optimizer));
    fprintf(out, ", clips %g, %g, %g; of groups %u %u %u %u", (double)c->clips[0], (double)c->clips[1], (double)c->clips[2],
            c->clip_groups[0], c->clip_groups[1], c->clip_groups[2], c->clip_groups[3]);
    fputs("\n", out);
}

static void print_steps(const struct random_case *c, FILE *out)
{
    static const char *const actions[] = {"", "evaluation", "sum", "visit", "read", "read and write", "replace"};
    fprintf(out, "#   steps:");
    for (uint32_t s = 0; s <= c->step_count; s++) {
        for (uint32_t a = 0; a < CASE_ACTIONS_MAX; a++)
            if (c->actions[s][a] != CASE_NOTHING)
                fprintf(out, " (%s)", actions[c->actions[s][a]]);
        if (s < c->step_count)
            fprintf(out, " %u%s", s, c->skips >> s & 1 ? " is skipped" : "");
    }
    fputs("\n", out);
}

void random_case_print(const struct random_case *c, FILE *out)
{
    static const char *const passes[] = {"forward", "recompute", "backward"};
    print_settings(c, out);
    print_steps(c, out);
    for (uint32_t l = 0; l < c->layer_count; l++) {
        fprintf(out, "#   layer %u:", l);
        for (uint32_t k = 0; k < c->layers[l].parameter_count; k++)
            fprintf(out, " %u (group %u)%s%s%s", c->layers[l].elements[k], c->layers[l].groups[k],
                    !(c->layers[l].matrix >> k & 1) ? "" : c->layers[l].tall >> k & 1 ? " (tall matrix)" : " (matrix)",
                    c->layers[l].float8 >> k & 1 ? " (float8)" : c->layers[l].fp32 >> k & 1 ? " (fp32)" : "",
                    c->layers[l].frozen_parts >> k & 1 ? " (frozen)" : "");
        fprintf(out, "%s\n", c->layers[l].frozen ? ", frozen" : "");
    }
    for (uint32_t p = 0; p < c->position_count; p++)
        fprintf(out, "#   position %u: layer %u, gradients %x%s%s\n", p, c->positions[p].layer, c->positions[p].gradients,
                c->positions[p].forward_in_backward ? ", forward in backward" : "",
                c->positions[p].backward_without_weights ? ", backward without weights" : "");
    for (uint32_t b = 0; b < c->buffer_count; b++) {
        const struct case_buffer *buffer = &c->buffers[b];
        if (buffer->persistent)
            fprintf(out, "#   buffer %u: %u bytes, persistent\n", b, buffer->bytes);
        else
            fprintf(out, "#   buffer %u: %u bytes, %s of %u to %s of %u%s\n", b, buffer->bytes, passes[buffer->first.pass],
                    buffer->first.position, passes[buffer->last.pass], buffer->last.position, buffer->saved ? ", saved" : "");
    }
}
