/* SPDX-License-Identifier: MIT
 *
 * A plan from outside: settings in, tables made, proof run, questions answered.
 */
#include <evenodd/plan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/hashing.h"
#include "base/sized.h"
#include "runtime/plan/internal.h"
#include "runtime/plan/optimizers.h"
#include "runtime/plan/proof/proof.h"

enum { RANKS_MAX = 1 << 16, MICRO_BATCHES_MAX = 1 << 12, SLOTS_MAX = 64, ALIGN_MIN = 64, ALIGN_MAX = 1 << 21 };

/* Arrays of state: the optimizer's, unless a trainer's own wants others. */
static eo_status take_optimizer(struct eo_plan *plan)
{
    eo_plan_params *p = &plan->params;
    const eo_log *log = &plan->log;
    EO_REQUIRE(log, (unsigned)p->optimizer < EO_OPTIMIZER_COUNT, "unknown optimizer %d", (int)p->optimizer);
    const struct plan_optimizer *optimizer = eo_plan_optimizer(p->optimizer);
    EO_REQUIRE(log, p->optimizer == EO_OPTIMIZER_ADAMW || p->optimizer_states == 0 || p->optimizer_states == EO_NO_STATE ||
               p->optimizer_states == optimizer->state_count, "optimizer %s has %u optimizer states a parameter, not %u; leave "
               "optimizer_states out", eo_optimizer_name(p->optimizer), optimizer->state_count, p->optimizer_states);
    EO_REQUIRE(log, p->optimizer != EO_OPTIMIZER_MUON || p->optimizer_states != EO_NO_STATE,
               "optimizer muon without state: a matrix moves along its momentum; leave optimizer_states out");
    p->optimizer_states = p->optimizer_states == EO_NO_STATE ? 0
                          : p->optimizer_states              ? p->optimizer_states
                                                             : optimizer->state_count;
    EO_REQUIRE(log, p->optimizer_states <= EO_STATES_MAX, "%u optimizer states; at most %d are possible",
               p->optimizer_states, EO_STATES_MAX);
    plan->state_count = p->optimizer_states + p->ema;
    plan->ema_state = p->ema ? p->optimizer_states : EO_NONE;
    return EO_OK;
}

static eo_status take_params(struct eo_plan *plan, const eo_plan_params *params)
{
    const eo_log *log = &plan->log;
    eo_plan_params *p = &plan->params;
    *p = *params;
    p->log = NULL;
    p->rank_count = p->rank_count ? p->rank_count : 1;
    p->micro_batches = p->micro_batches ? p->micro_batches : 1;
    p->gather_slots = p->gather_slots ? p->gather_slots : 2;
    p->gradient_slots = p->gradient_slots ? p->gradient_slots : 2;
    p->gather_run = p->gather_run ? p->gather_run : 1;
    p->gradient_run = p->gradient_run ? p->gradient_run : 1;
    p->align_bytes = p->align_bytes ? p->align_bytes : 256;
    p->offload_slots = p->offload_layers == 0 ? 0 : p->offload_slots ? p->offload_slots : 2;
    EO_TRY(take_optimizer(plan));
    EO_REQUIRE(log, p->rank_count <= RANKS_MAX, "%u ranks; at most %d are possible", p->rank_count, RANKS_MAX);
    EO_REQUIRE(log, p->micro_batches <= MICRO_BATCHES_MAX, "%u micro-batches; at most %d are possible",
               p->micro_batches, MICRO_BATCHES_MAX);
    EO_REQUIRE(log, p->gather_slots <= SLOTS_MAX && p->gradient_slots <= SLOTS_MAX,
               "slots %u,%u; at most %d of each are possible", p->gather_slots, p->gradient_slots, SLOTS_MAX);
    EO_REQUIRE(log, p->gather_run <= SLOTS_MAX / p->gather_slots && p->gradient_run <= SLOTS_MAX / p->gradient_slots,
               "runs %u,%u with slots %u,%u: a slot has a buffer for each position of a run; at most %d of each kind are possible",
               p->gather_run, p->gradient_run, p->gather_slots, p->gradient_slots, SLOTS_MAX);
    EO_REQUIRE(log, !p->no_prefetch || p->gather_run == 1,
               "gather_run %u with no_prefetch: gathers stand at their use then; leave one of them out", p->gather_run);
    EO_REQUIRE(log, !p->offload_gradients || p->gradient_run == 1,
               "gradient_run %u with offload_gradients: offloaded gradients leave one by one; leave one of them out",
               p->gradient_run);
    EO_REQUIRE(log, params->offload_layers || (!params->offload_slots && !params->offload_gradients),
               "offload_slots or offload_gradients without offload_layers would have no effect; leave them out");
    EO_REQUIRE(log, !p->offload_layers || p->optimizer_states || p->ema || p->dtype == EO_DTYPE_BF16,
               "offload_layers without optimizer state: in fp32 nothing of a layer could lie on disk; leave it out");
    EO_REQUIRE(log, !p->late_updates || p->offload_layers,
               "late_updates without offload_layers would have no effect; leave it out");
    EO_REQUIRE(log, !p->late_updates || !p->no_prefetch,
               "late_updates with no_prefetch: they hide copies, which no_prefetch does not; leave one of them out");
    EO_REQUIRE(log, p->offload_slots <= SLOTS_MAX, "%u slots for offloaded layers; at most %d are possible", p->offload_slots,
               SLOTS_MAX);
    EO_REQUIRE(log, eo_is_power_of_two(p->align_bytes) && p->align_bytes >= ALIGN_MIN && p->align_bytes <= ALIGN_MAX,
               "alignment %u is not a power of two from %d to %d", p->align_bytes, ALIGN_MIN, ALIGN_MAX);
    EO_REQUIRE(log, p->dtype <= EO_DTYPE_BF16 && p->reduce_dtype <= EO_DTYPE_BF16, "unknown element type");
    EO_REQUIRE(log, !p->float8_gather || p->dtype == EO_DTYPE_BF16,
               "float8_gather needs dtype bf16, which gathered weights are widened to; dtype is %s", eo_dtype_name(p->dtype));
    EO_REQUIRE(log, !p->float8_gather || !p->float8_frozen,
               "float8_gather with float8_frozen: frozen weights are gathered in MXFP8, and no others in float8 yet; leave one of them "
               "out");
    EO_REQUIRE(log, p->optimizer != EO_OPTIMIZER_MUON || !p->offload_layers,
               "offload_layers with optimizer muon is not possible yet; leave one of them out");
    EO_TRY(eo_plan_take_strategy(plan));
    EO_REQUIRE(log, !p->float8_gather || p->shard_group > 1,
               "float8_gather would have no effect: strategy %s on %u rank%s gathers no weights; leave it out",
               eo_strategy_name(p->strategy), p->rank_count, p->rank_count == 1 ? "" : "s");
    return EO_OK;
}

/* An operation is recorded where any list has a wait for it. */
static eo_status mark_records(struct eo_plan *plan)
{
    bool *waited = calloc(plan->schedule.id_count + 1, sizeof(*waited));
    if (!waited)
        return EO_ERR_NO_MEMORY;
    for (int round = 0; round < 2; round++) {
        for (int list = 0; list < EO_LIST_COUNT; list++) {
            for (uint32_t i = 0; i < plan->schedule.lists[list].count; i++) {
                struct eo_operation *operation = &plan->schedule.lists[list].operations[i];
                for (int s = 0; round == 0 && s < EO_STREAM_COUNT; s++)
                    if (operation->wait[s] != EO_NONE)
                        waited[operation->wait[s]] = true;
                if (round == 1)
                    operation->record = waited[operation->id];
            }
        }
    }
    free(waited);
    return EO_OK;
}

static void name_operation(void *user, const struct eo_operation *operation, char *text, size_t bytes)
{
    eo_plan_operation_text(user, operation, text, bytes);
}

struct proof_run {
    eo_list list;
    uint8_t turn;
};

/* Each turn that a training can take from run to run, at least once; after late updates, if any are left. What stands before a
 * step after an evaluation is what weights calls leave, which is less than an evaluation alone does. Runs of a list that the
 * plan does not have are empty. */
static eo_status prove(struct eo_plan *plan)
{
    static const struct proof_run ordinary[] = {
        {EO_LIST_FORWARD, 0}, /* an evaluation before the first step */
        {EO_LIST_FIRST, EO_TURN_QUIET | EO_TURN_ORDER},
        {EO_LIST_STEADY, 0},
        {EO_LIST_STEADY, EO_TURN_SAVE},
        {EO_LIST_INPUTS, EO_TURN_QUIET | EO_TURN_ORDER},
        {EO_LIST_FORWARD, EO_TURN_QUIET | EO_TURN_ORDER},
        {EO_LIST_FIRST, EO_TURN_QUIET | EO_TURN_ORDER | EO_TURN_WEIGHTS | EO_TURN_SAVE},
        {EO_LIST_STEADY, EO_TURN_GRAPH},
        {EO_LIST_FIRST, EO_TURN_ORDER | EO_TURN_SAVE}, /* after a graph */
    };
    static const struct proof_run late[] = {
        {EO_LIST_FORWARD, 0},
        {EO_LIST_FIRST, EO_TURN_QUIET | EO_TURN_ORDER},
        {EO_LIST_STEADY, 0},
        {EO_LIST_STEADY, 0},
        {EO_LIST_UPDATES, EO_TURN_QUIET},
        {EO_LIST_FIRST, EO_TURN_QUIET | EO_TURN_ORDER | EO_TURN_SAVE},
        {EO_LIST_UPDATES, EO_TURN_QUIET},
        {EO_LIST_INPUTS, EO_TURN_QUIET | EO_TURN_ORDER},
        {EO_LIST_FORWARD, EO_TURN_QUIET | EO_TURN_ORDER},
        {EO_LIST_FIRST, EO_TURN_QUIET | EO_TURN_ORDER | EO_TURN_WEIGHTS | EO_TURN_SAVE},
        {EO_LIST_STEADY, EO_TURN_GRAPH},
        {EO_LIST_STEADY, EO_TURN_GRAPH},
        {EO_LIST_UPDATES, EO_TURN_QUIET}, /* before an ordinary step, too */
        {EO_LIST_FIRST, EO_TURN_QUIET | EO_TURN_ORDER | EO_TURN_SAVE},
        {EO_LIST_STEADY, 0},
    };
    enum { RUNS = sizeof(ordinary) / sizeof(ordinary[0]), LATE_RUNS = sizeof(late) / sizeof(late[0]) };
    const uint32_t count = plan->params.late_updates ? LATE_RUNS : RUNS;
    const struct proof_run *runs = plan->params.late_updates ? late : ordinary;
    eo_list sequence[LATE_RUNS];
    uint8_t turns[LATE_RUNS];
    _Static_assert((int)RUNS <= (int)LATE_RUNS, "room for both");
    for (uint32_t i = 0; i < count; i++) {
        sequence[i] = runs[i].list;
        turns[i] = runs[i].turn;
    }
    const struct eo_proof_params params = {.schedule = &plan->schedule, .sequence = sequence, .turns = turns,
                                           .sequence_count = count, .namer = name_operation, .namer_user = plan};
    struct eo_hazard hazard;
    const eo_status status = eo_proof_run(&params, &hazard);
    if (status == EO_ERR_SCHEDULE)
        eo_log_write(&plan->log, EO_LOG_ERROR, "the schedule of model '%s' has a hazard: %s", plan->model_name, hazard.text);
    return status;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    return eo_hash64_more(hash, &word, sizeof(word));
}

/* All that ranks must agree on. */
static uint64_t fingerprint(struct eo_plan *plan)
{
    const eo_plan_params *p = &plan->params;
    uint64_t hash = eo_hash64(plan->model_name, strlen(plan->model_name));
    const uint64_t settings[] = {p->rank_count,   p->micro_batches, p->gather_slots, p->gradient_slots,
                                 p->dtype,        p->reduce_dtype,  p->align_bytes,  p->optimizer_states,
                                 p->no_prefetch,  p->separate_reduce_stream, p->separate_reservations,
                                 p->strategy,     p->shard_group};
    hash = eo_hash64_more(hash, settings, sizeof(settings));
    if (p->gather_run > 1 || p->gradient_run > 1)
        hash = mix(mix(hash, p->gather_run), p->gradient_run);
    if (p->offload_layers)
        hash = mix(mix(mix(hash, p->offload_layers), p->offload_slots), p->offload_gradients);
    if (p->offload_activations)
        hash = mix(mix(hash, 3), p->offload_activations); /* another word than ema's */
    if (p->ema)
        hash = mix(hash, p->ema);
    if (p->norms_beside)
        hash = mix(hash, 2); /* another word than ema's */
    if (p->norm_parts)
        hash = mix(hash, 4); /* likewise */
    if (p->late_updates)
        hash = mix(hash, 6);
    if (p->optimizer)
        hash = mix(mix(hash, 3), p->optimizer);
    if (p->input_gradients)
        hash = mix(hash, 8);
    if (p->gradients_apart)
        hash = mix(hash, 10);
    if (p->separate_evict_stream)
        hash = mix(hash, 11);
    plan->settings_print = hash;
    for (uint32_t i = 0; i < plan->parameter_count; i++) {
        const struct plan_parameter *parameter = &plan->parameters[i];
        hash = mix(mix(eo_hash64_more(hash, parameter->name, strlen(parameter->name)), parameter->offset),
                   parameter->element_count);
        if (parameter->room != parameter->element_count)
            hash = mix(hash, parameter->room);
        for (uint32_t d = 0; d < parameter->dim_count; d++)
            hash = mix(hash, parameter->dims[d]);
        const struct plan_group *group = &plan->groups[parameter->group];
        hash = mix(hash, group->no_weight_decay);
        if (group->matrix)
            hash = mix(mix(hash, 5), parameter->owner);
        if (group->group)
            hash = mix(hash, group->group);
        if (plan->layers[parameter->layer].parts > 1)
            hash = mix(mix(hash, 3), plan->layers[parameter->layer].parts);
        if (parameter->joined)
            hash = mix(hash, parameter->joined);
        if (p->float8_gather)
            hash = mix(hash, parameter->float8_gather);
        if (p->float8_frozen)
            hash = mix(mix(hash, 9), parameter->float8_gather);
        if (parameter->fp32)
            hash = mix(hash, 7);
    }
    plan->parameters_print = hash;
    for (uint32_t i = 0; i < plan->zero_count; i++)
        hash = mix(mix(hash, plan->zero_ranges[i].offset), plan->zero_ranges[i].count);
    for (uint32_t r = 0; r < plan->row_count; r++)
        hash = mix(mix(hash, plan->schedule.rows[r].address), plan->rows[r].bytes);
    for (int list = 0; list < EO_LIST_COUNT; list++) {
        for (uint32_t i = 0; i < plan->schedule.lists[list].count; i++) {
            const struct eo_operation *o = &plan->schedule.lists[list].operations[i];
            hash = mix(hash, (uint64_t)o->kind << 32 | o->position);
            hash = mix(hash, (uint64_t)o->layer << 32 | (uint64_t)o->stream << 16 | (uint64_t)o->descends << 8 | o->more);
            hash = mix(hash, (uint64_t)o->wait[EO_STREAM_COMPUTE] << 32 | o->wait[EO_STREAM_COMM]);
            hash = mix(hash, o->wait[EO_STREAM_REDUCE]);
            if (p->offload_layers || p->offload_activations)
                hash = mix(hash, o->wait[EO_STREAM_COPY]);
            if (p->separate_evict_stream)
                hash = mix(hash, o->wait[EO_STREAM_EVICT]);
            uint64_t previous = 0;
            for (int s = 0; s < EO_STREAM_COUNT; s++)
                previous |= (uint64_t)o->wait_previous_run[s] << s;
            hash = mix(hash, previous);
        }
    }
    return hash;
}

eo_status eo_plan_create(eo_plan **out, const eo_model *model, const eo_plan_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!model)
        return EO_ERR_INVALID;
    EO_REQUIRE(&model->log, params, "eo_plan_create: params is NULL; eo_plan_params(.rank_count = 2) has all else as it is by default");
    eo_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return EO_ERR_NO_MEMORY;
    plan->log = params->log ? *params->log : model->log;
    atomic_init(&plan->users, 1);
    eo_status status = take_params(plan, params);
    if (status >= 0)
        status = eo_plan_make_tables(plan, model);
    if (status >= 0)
        status = eo_plan_make_lists(plan);
    if (status >= 0)
        status = eo_plan_make_memory(plan);
    if (status >= 0)
        status = mark_records(plan);
    if (status >= 0 && !plan->params.draft)
        status = prove(plan);
    if (status == EO_ERR_SCHEDULE)
        eo_model_report(&plan->log, model, &plan->params);
    if (status < 0) {
        eo_plan_destroy(&plan);
        return status;
    }
    plan->fingerprint = fingerprint(plan);
    plan->log = (eo_log){0};
    *out = plan;
    return EO_OK;
}

void eo_plan_use(const eo_plan *plan)
{
    atomic_fetch_add(&((eo_plan *)(uintptr_t)plan)->users, 1);
}

void eo_plan_leave(const eo_plan *plan)
{
    eo_plan *mine = (eo_plan *)(uintptr_t)plan;
    eo_plan_destroy(&mine);
}

void eo_plan_destroy(eo_plan **plan)
{
    if (!plan || !*plan)
        return;
    eo_plan *p = *plan;
    *plan = NULL;
    if (atomic_fetch_sub(&p->users, 1) > 1)
        return;
    free(p->layers);
    free(p->parameters);
    free(p->parameter_of_model);
    free(p->positions);
    free(p->buffers);
    free(p->groups);
    free(p->zero_ranges);
    free(p->updates);
    free(p->rows);
    free(p->places);
    free(p->schedule.accesses);
    free(p->schedule.rows);
    for (int list = 0; list < EO_LIST_COUNT; list++)
        free(p->schedule.lists[list].operations);
    free(p);
}

static void summarize(const eo_plan *plan, eo_plan_summary *out)
{
    *out = (eo_plan_summary){
        .params = plan->params,
        .element_count = plan->element_count,
        .lower_bound_bytes = plan->lower_bound_bytes,
        .row_count = plan->row_count,
        .operation_count = plan->schedule.lists[EO_LIST_STEADY].count,
        .fingerprint = plan->fingerprint,
    };
    for (int s = 0; s < EO_SPACE_COUNT; s++) {
        out->space_bytes[s] = plan->space_bytes[s];
        out->arena_bytes += s == EO_SPACE_DISK ? 0 : plan->space_bytes[s];
    }
    for (uint32_t r = 0; r < plan->disk_row_begin; r++)
        out->category_bytes[plan->rows[r].category] += eo_align_up(plan->rows[r].bytes, plan->params.align_bytes);
    memcpy(out->category_bytes_at_peak, plan->category_bytes_at_peak, sizeof(out->category_bytes_at_peak));
}

void eo_plan_get_summary_sized(const eo_plan *plan, eo_plan_summary *out, size_t out_bytes)
{
    eo_plan_summary summary = {0};
    if (plan)
        summarize(plan, &summary);
    eo_give_sized(out, out_bytes, &summary, sizeof(summary));
}

static void describe_row(const eo_plan *plan, const struct plan_row *r, eo_plan_row *out)
{
    *out = (eo_plan_row){
        .name = r->name,
        .category = r->category,
        .space = r->space,
        .offset = r->offset,
        .bytes = r->bytes,
        .always_live = r->always_live,
    };
    const struct eo_operation *operations = plan->schedule.lists[EO_LIST_STEADY].operations;
    if (r->first_operation != EO_NONE) {
        eo_plan_operation_text(plan, &operations[r->first_operation], out->first, sizeof(out->first));
        eo_plan_operation_text(plan, &operations[r->last_operation], out->last, sizeof(out->last));
    }
}

eo_status eo_plan_get_row_sized(const eo_plan *plan, uint32_t row, eo_plan_row *out, size_t out_bytes)
{
    eo_plan_row full;
    if (!plan || !out || row >= plan->row_count)
        return EO_ERR_INVALID;
    describe_row(plan, &plan->rows[row], &full);
    eo_give_sized(out, out_bytes, &full, sizeof(full));
    return EO_OK;
}

uint32_t eo_plan_operation_count(const eo_plan *plan, eo_list list)
{
    return plan && (unsigned)list < EO_LIST_COUNT ? plan->schedule.lists[list].count : 0;
}

uint64_t eo_plan_copy_bytes(const struct eo_plan *plan, const struct eo_operation *o)
{
    const struct plan_layer *layer = &plan->layers[o->layer];
    uint64_t saved = 0;
    for (uint32_t b = 0; o->saved && b < plan->buffer_count; b++)
        if (plan->buffers[b].disk_row != EO_NONE && plan->buffers[b].first.position == o->position)
            saved += plan->rows[plan->buffers[b].disk_row].bytes;
    if (o->saved)
        return saved;
    const uint64_t state = plan->rows[layer->disk_row].bytes;
    if (layer->disk_gradient_row == EO_NONE)
        return state;
    const uint64_t gradient = plan->rows[layer->disk_gradient_row].bytes;
    return o->gradient ? gradient : o->kind == EO_OP_FETCH ? state + gradient : state;
}

/* As a rule ids of a list follow each other. */
static uint32_t find_id(const struct eo_operation_list *list, uint32_t id)
{
    const uint32_t guess = list->count ? id - list->operations[0].id : 0;
    if (guess < list->count && list->operations[guess].id == id)
        return guess;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->operations[i].id == id)
            return i;
    return EO_NONE;
}

/* Of a gather or reduction, all its positions. */
static uint64_t exchanged_bytes(const struct eo_plan *plan, const struct eo_operation *o, eo_dtype dtype)
{
    uint64_t bytes = 0;
    for (uint32_t part = 0; part <= o->more; part++) {
        const struct plan_layer *layer = &plan->layers[plan->positions[eo_operation_position(o, part)].layer];
        const uint32_t ranks = eo_plan_layer_ranks(plan, layer); /* of its frozen part, too */
        bytes += dtype == EO_DTYPE_FLOAT8 ? layer->narrow_bytes * ranks : layer->layout.padded_count * eo_dtype_bytes(dtype);
        const struct plan_layer *frozen = o->with_frozen ? &plan->layers[layer->frozen_part] : NULL;
        if (frozen)
            bytes += frozen->float8_gather ? frozen->narrow_bytes * ranks
                                           : frozen->layout.padded_count * eo_dtype_bytes(plan->params.dtype);
    }
    return bytes;
}

static void describe_operation(const eo_plan *plan, eo_list list, const struct eo_operation *o, eo_plan_operation *out)
{
    *out = (eo_plan_operation){
        .kind = o->kind,
        .stream = o->stream,
        .position = o->position,
        .layer = o->layer,
        .micro_batch = o->micro_batch == EO_NONE ? 0 : o->micro_batch,
        .id = o->id,
    };
    const struct plan_layer *layer = o->layer == EO_NONE ? NULL : &plan->layers[o->layer];
    if (o->kind == EO_OP_ALL_GATHER)
        out->dtype = layer->float8_gather ? EO_DTYPE_FLOAT8 : plan->params.dtype;
    else if (o->kind == EO_OP_REDUCE_SCATTER && !o->whole)
        out->dtype = plan->params.reduce_dtype;
    if (o->kind == EO_OP_ALL_GATHER || o->kind == EO_OP_REDUCE_SCATTER)
        out->bytes = exchanged_bytes(plan, o, out->dtype);
    else if (o->kind == EO_OP_MATRIX_GATHER || o->kind == EO_OP_MATRIX_SCATTER)
        out->bytes = layer->layout.padded_count * sizeof(float);
    else if (o->kind == EO_OP_ALL_REDUCE)
        out->bytes = layer->layout.shard_count * sizeof(float);
    else if (o->kind == EO_OP_ACCUMULATE)
        out->bytes = (o->whole ? layer->layout.padded_count : layer->layout.shard_count) * sizeof(float);
    else if (o->kind == EO_OP_FETCH || o->kind == EO_OP_EVICT)
        out->bytes = eo_plan_copy_bytes(plan, o);
    else if (o->kind == EO_OP_NORM_GATHER)
        out->bytes = plan->rows[o->fence ? plan->fenced_row : plan->norm_gathered_row].bytes;
    if (o->kind == EO_OP_ORTHOGONALIZE)
        out->flops = eo_plan_layer_orthogonal_flops(plan, o->layer);
    if (!plan->params.draft)
        eo_plan_operation_text(plan, o, out->name, sizeof(out->name));
    for (int s = 0; s < EO_STREAM_COUNT; s++) {
        if (o->wait[s] == EO_NONE)
            continue;
        out->waits[out->wait_count] = find_id(&plan->schedule.lists[list], o->wait[s]);
        out->wait_previous_step[out->wait_count++] = o->wait_previous_run[s];
    }
}

eo_status eo_plan_get_operation_sized(const eo_plan *plan, eo_list list, uint32_t operation, eo_plan_operation *out,
                                      size_t out_bytes)
{
    eo_plan_operation full;
    if (!plan || !out || (unsigned)list >= EO_LIST_COUNT || operation >= plan->schedule.lists[list].count)
        return EO_ERR_INVALID;
    describe_operation(plan, list, &plan->schedule.lists[list].operations[operation], &full);
    eo_give_sized(out, out_bytes, &full, sizeof(full));
    return EO_OK;
}

eo_status eo_plan_get_access(const eo_plan *plan, eo_list list, uint32_t operation, uint32_t access, eo_plan_access *out)
{
    if (!plan || !out || (unsigned)list >= EO_LIST_COUNT || operation >= plan->schedule.lists[list].count)
        return EO_ERR_INVALID;
    const struct eo_operation *o = &plan->schedule.lists[list].operations[operation];
    if (access >= o->access_count)
        return EO_ERR_INVALID;
    const struct eo_access *from = &plan->schedule.accesses[o->access_begin + access];
    *out = (eo_plan_access){from->row, from->mode != EO_WRITE, from->mode != EO_READ};
    return EO_OK;
}
