/* SPDX-License-Identifier: MIT
 *
 * The order of a step. A step is a row of passes (forward and backward uses of positions, micro-batch after
 * micro-batch); around each pass stand the collectives and the runtime's own operations:
 *
 *     [widen] [recompute] [accumulate, norm partial of what was reduced long enough ago] PASS [gathers] [reduce-scatter]
 *
 * - A gather stands directly after the last pass that used its buffer's old content, but at most as many passes ahead
 *   of its use as there are gather buffers. The first ones of a step stand at the end of the step before, after the
 *   update of their layer; in the first-step list at its head.
 * - What a buffer still holds is not gathered again. The rows of edges share their addresses with others, so there
 *   this holds only from one pass to the next.
 * - Gather and reduce-scatter that become ready together: the gather first where there are at least as many gradient
 *   as gather buffers, for then the reduction has until the pass after next; else the reduction first.
 * - Neighbours of the body may be gathered, or reduced, by one collective: it stands where the last of them would.
 * - What is offloaded is fetched for its update and evicted after it; a fetch stands directly behind the eviction that
 *   frees its buffer, the first ones at the head of the step.
 * - With late updates the offloaded layers are updated in the next step, each before the first gather or pass that needs it.
 * - A reduce-scatter can only overwrite. The first of a step lands in the gradient shard, later ones in place, and an
 *   accumulate adds the rank's slice before the buffer's next writer.
 *
 * What a strategy changes (runtime/plan/strategy.c has the facts):
 *
 * - Resident weights are gathered once a step, directly after the update of their layer, whoever uses them when.
 * - Whole gradients are added to their sum on the compute stream; at the last contribution the sum is reduced.
 * - With replicas the layer's gradient shard is all-reduced when it has all contributions, and taken in after that.
 *
 * Gathers in float8 land in gather buffers, too; what a pass uses is widened before it, into a row for the whole body. A
 * buffer may still hold what this row holds no more: then nothing is gathered, but widened again. The parts to be sent are made
 * after the update of their layer.
 *
 * What an operation reads and writes stands in its accesses (passes.c, reductions.c, ...); waits are derived from those
 * (runtime/plan/list/waits.c).
 */
#include "runtime/plan/list/builder.h"

#include <stdlib.h>
#include <string.h>

/* What a row of gathered weights holds while the passes go by. */
struct row_content {
    uint32_t layer;
    int64_t last_user; /* pass; -1: none */
    bool stays;        /* nothing else lies there */
};

static bool is_held(const struct eo_plan *plan, const struct row_content *content, uint32_t layer, int64_t pass)
{
    return content->layer == layer && (content->stays || !plan->layers[layer].edge || content->last_user + 1 >= pass);
}

static void use(struct row_content *content, uint32_t layer, int64_t pass)
{
    content->layer = layer;
    content->last_user = pass;
}

/* Which passes find their weights, and after which pass the others' gathers stand. In float8 there are two rows to find them
 * in: widened, and as they were gathered. */
static bool plan_gathers(struct list_builder *b)
{
    const struct eo_plan *plan = b->plan;
    struct row_content *contents = malloc(plan->row_count * sizeof(*contents));
    if (!contents)
        return false;
    for (uint32_t r = 0; r < plan->row_count; r++)
        contents[r] = (struct row_content){EO_NONE, -1, plan->rows[r].always_live};
    int64_t after = -1;
    const int64_t ahead = plan->params.no_prefetch ? 1 : (int64_t)plan->params.gather_slots * plan->params.gather_run;
    for (uint32_t t = 0; t < b->pass_count; t++) {
        struct list_pass *pass = &b->passes[t];
        pass->gather_after = after; /* of what needs none: as those before it, so that it holds up none behind it */
        if (!pass->reads_weights)
            continue;
        const struct plan_position *position = &plan->positions[pass->position];
        const uint32_t l = position->layer;
        pass->widens_frozen = position->frozen_gather_row != position->frozen_narrow_row &&
                              !is_held(plan, &contents[position->frozen_gather_row], l, t);
        if (position->frozen_gather_row != EO_NONE)
            use(&contents[position->frozen_gather_row], l, t);
        struct row_content *used = &contents[position->gather_row], *gathered = &contents[position->narrow_row];
        if (plan->params.shard_group == 1) { /* at most widened */
            pass->resident = true;
            pass->widens = used != gathered && !is_held(plan, used, l, t);
            use(used, l, t);
            continue;
        }
        const bool is_there = is_held(plan, used, l, t);
        const bool at_once = gathered->stays && !plan->params.no_prefetch && !eo_list_is_late(plan, pass);
        pass->resident = is_there || is_held(plan, gathered, l, t);
        pass->widens = !is_there && used != gathered;
        if (!pass->resident) {
            const int64_t earliest = at_once ? -1 : (int64_t)t - ahead;
            if (earliest > after)
                after = earliest;
            if (gathered->last_user > after)
                after = gathered->last_user;
            pass->gather_after = after;
        }
        if (!is_there)
            use(gathered, l, t);
        use(used, l, t);
    }
    free(contents);
    return true;
}

/* Neighbours of one run, on one way through the model. */
static bool goes_with(const struct eo_plan *plan, const struct list_pass *a, const struct list_pass *b, uint32_t run)
{
    const uint32_t x = plan->positions[a->position].body, y = plan->positions[b->position].body;
    const bool is_next = b->position == (a->backward ? a->position - 1 : a->position + 1);
    return is_next && x != EO_NONE && y != EO_NONE && x / run == y / run && a->backward == b->backward &&
           a->micro_batch == b->micro_batch;
}

/* Gathers of neighbours become one, which stands where the last of them would: buffers for all of them are free then. */
static void join_gathers(struct list_builder *b)
{
    const struct eo_plan *plan = b->plan;
    for (uint32_t t = 0; t < b->pass_count; t += 1 + b->passes[t].brings) {
        struct list_pass *first = &b->passes[t];
        if (!first->reads_weights || first->resident)
            continue;
        for (uint32_t n = t + 1; n < b->pass_count && goes_with(plan, &b->passes[n - 1], &b->passes[n], plan->params.gather_run); n++) {
            struct list_pass *next = &b->passes[n];
            const struct plan_layer *x = &plan->layers[plan->positions[first->position].layer];
            const struct plan_layer *y = &plan->layers[plan->positions[next->position].layer];
            if (!next->reads_weights || next->resident || next->gather_after >= t || x->frozen != y->frozen ||
                x->float8_gather != y->float8_gather || (x->frozen_part == EO_NONE) != (y->frozen_part == EO_NONE))
                break;
            first->gather_after = next->gather_after;
            first->brings++;
            next->is_brought = true;
        }
    }
}

static bool make_passes(struct list_builder *b, uint32_t batches, bool forward_only)
{
    const struct eo_plan *plan = b->plan;
    b->pass_count = 0;
    for (uint32_t m = 0; m < batches; m++) {
        for (uint32_t p = 0; p < plan->position_count; p++)
            if (forward_only || !plan->positions[p].forward_in_backward)
                b->passes[b->pass_count++] = (struct list_pass){.position = p, .micro_batch = m, .reads_weights = true};
        for (uint32_t p = plan->position_count; !forward_only && p-- > 0;)
            b->passes[b->pass_count++] = (struct list_pass){
                .backward = true,
                .position = p,
                .micro_batch = m,
                .reads_weights = !plan->positions[p].backward_without_weights,
            };
    }
    b->next_gather = 0;
    if (!plan_gathers(b))
        return false;
    join_gathers(b);
    return true;
}

enum { KEEP_LATE = 1, KEEP_OTHERS = 2, KEEP_ALL = 3 };

/* The operations from `begin` on. */
static bool keep_list(struct list_builder *b, eo_list list, uint32_t begin, int kept)
{
    struct eo_operation_list *out = &b->plan->schedule.lists[list];
    out->operations = malloc((b->count + 1) * sizeof(*out->operations));
    if (b->failed || !out->operations)
        return false;
    for (uint32_t i = begin; i < b->count; i++)
        if (kept & (b->operations[i].late ? KEEP_LATE : KEEP_OTHERS))
            out->operations[out->count++] = b->operations[i];
    return true;
}

/* The position whose saved buffers come back into the slot that this one's backward pass leaves; EO_NONE: none. */
static uint32_t next_saved(const struct eo_plan *plan, uint32_t position)
{
    const uint32_t saved = plan->positions[position].saved;
    uint32_t p = position;
    while (p > 0 && saved != EO_NONE && saved >= EO_SAVED_SLOTS)
        if (plan->positions[--p].saved == saved - EO_SAVED_SLOTS)
            return p;
    return EO_NONE;
}

/* Each with what stands around it. */
static void add_passes(struct list_builder *b)
{
    const struct eo_plan *plan = b->plan;
    const bool gather_first = plan->params.gradient_slots >= plan->params.gather_slots;
    for (uint32_t t = 0; t < b->pass_count; t++) {
        const struct list_pass *pass = &b->passes[t];
        if (plan->params.no_prefetch)
            eo_list_add_gathers(b, (int64_t)t - 1);
        if (pass->backward)
            eo_list_finish_late_updates(b);
        else
            eo_list_add_late_updates(b, pass);
        b->late_pass = pass + 1;
        if (!pass->backward) {
            eo_list_take_in(b, t, eo_fold_forward(pass->position, false), false);
            eo_list_add_widening(b, pass, eo_fold_forward(pass->position, false));
            eo_list_add_pass(b, EO_OP_FORWARD, pass);
            eo_list_add_saved(b, EO_OP_EVICT, pass, pass->position);
        } else {
            if (plan->params.no_prefetch)
                eo_list_add_saved(b, EO_OP_FETCH, pass, pass->position);
            eo_list_add_widening(b, pass, eo_fold_before_backward(b, pass->position));
            eo_list_add_pass(b, EO_OP_RECOMPUTE, pass);
            eo_list_take_in(b, t, eo_fold_backward(b, pass->position, FOLD_TAKE_IN), false);
            eo_list_add_pass(b, EO_OP_BACKWARD, pass);
            if (!plan->params.no_prefetch)
                eo_list_add_saved(b, EO_OP_FETCH, pass, next_saved(plan, pass->position));
        }
        const struct plan_position *position = &plan->positions[pass->position];
        const bool reduces = pass->backward && !b->inputs_alone && position->buffer_row != EO_NONE && position->contributes;
        if (reduces && !gather_first)
            eo_list_add_reduction(b, t);
        if (!plan->params.no_prefetch)
            eo_list_add_gathers(b, t);
        if (reduces && gather_first)
            eo_list_add_reduction(b, t);
    }
}

/* Steady: the body. First: its first gathers, then the body, without updates of a step before. */
static bool make_training_lists(struct list_builder *b)
{
    const struct eo_plan *plan = b->plan;
    if (!make_passes(b, plan->params.micro_batches, false))
        return false;
    b->late_update = plan->params.late_updates ? plan->offload_begin : plan->update_count;
    b->late_pass = b->passes;
    b->holds_late = true;
    if (!plan->params.no_prefetch)
        eo_list_add_gathers(b, -1);
    const uint32_t prologue = b->count;
    b->holds_late = false;
    if (!plan->params.no_prefetch) {
        eo_list_add_first_fetches(b);
        eo_list_add_gathers(b, -1);
    }
    add_passes(b);
    eo_list_add_step_end(b);
    return keep_list(b, EO_LIST_FIRST, 0, KEEP_OTHERS) && keep_list(b, EO_LIST_STEADY, prologue, KEEP_ALL) &&
           keep_list(b, EO_LIST_UPDATES, 0, KEEP_LATE);
}

/* What begins in this pass is written; what ends here, and began in one before, is read. */
static void add_forward_buffers(struct list_builder *b, uint32_t p)
{
    const struct eo_plan *plan = b->plan;
    const struct buffer_agenda *first = &b->evaluation_first, *last = &b->evaluation_last;
    for (uint32_t i = first->begin[p]; i < first->begin[p + 1]; i++)
        eo_list_access(b, plan->buffers[first->buffers[i]].row, EO_WRITE, eo_subject(SUBJECT_BUFFER, first->buffers[i]),
                       EO_VERSION_MICRO_BATCH, 0, 1);
    for (uint32_t i = last->begin[p]; i < last->begin[p + 1]; i++)
        if (eo_evaluation_life(plan, &plan->buffers[last->buffers[i]]).first != p)
            eo_list_access(b, plan->buffers[last->buffers[i]].row, EO_READ, eo_subject(SUBJECT_BUFFER, last->buffers[i]),
                           EO_VERSION_MICRO_BATCH, 0, 1);
}

/* Forward only, on the same rows: each buffer holds from the first to the last forward pass that its lifetime covers. */
static bool make_forward_list(struct list_builder *b)
{
    const struct eo_plan *plan = b->plan;
    b->count = 0;
    if (!make_passes(b, 1, true))
        return false;
    if (!plan->params.no_prefetch)
        eo_list_add_gathers(b, -1);
    for (uint32_t t = 0; t < b->pass_count; t++) {
        const struct list_pass *pass = &b->passes[t];
        const struct plan_position *position = &plan->positions[pass->position];
        if (plan->params.no_prefetch)
            eo_list_add_gathers(b, (int64_t)t - 1);
        eo_list_add_widening(b, pass, 0);
        eo_list_operation(b, EO_OP_FORWARD, EO_STREAM_COMPUTE, pass->position, position->layer, 0, 0);
        eo_list_read_weights(b, position);
        add_forward_buffers(b, pass->position);
        eo_list_operation_end(b);
        if (!plan->params.no_prefetch)
            eo_list_add_gathers(b, t);
    }
    return keep_list(b, EO_LIST_FORWARD, 0, KEEP_ALL);
}

/* A micro-batch of the first-step list, less gradients of weights and what is done with them. */
static bool make_inputs_list(struct list_builder *b)
{
    b->count = 0;
    if (!b->plan->params.input_gradients)
        return keep_list(b, EO_LIST_INPUTS, 0, KEEP_ALL);
    b->inputs_alone = true;
    if (!make_passes(b, 1, false))
        return false;
    if (!b->plan->params.no_prefetch)
        eo_list_add_gathers(b, -1);
    add_passes(b);
    return keep_list(b, EO_LIST_INPUTS, 0, KEEP_ALL);
}

static void hold_from_the_start(struct eo_schedule *schedule, uint32_t row, uint32_t subject)
{
    schedule->rows[row].initialised = schedule->rows[row].saved = true;
    schedule->rows[row].initial_subject = subject;
}

static bool make_schedule_rows(struct eo_plan *plan)
{
    struct eo_schedule *schedule = &plan->schedule;
    schedule->rows = calloc(plan->row_count, sizeof(*schedule->rows));
    if (!schedule->rows)
        return false;
    schedule->row_count = plan->row_count;
    for (uint32_t r = 0; r < plan->row_count; r++)
        schedule->rows[r] = (struct eo_schedule_row){.name = plan->rows[r].name, .bytes = plan->rows[r].bytes,
                                                     .always = plan->rows[r].always_live};
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        struct eo_schedule_row *row = &schedule->rows[plan->buffers[b].row];
        row->trainers = !plan->buffers[b].persistent && !plan->buffers[b].shared;
        row->first = plan->buffers[b].first;
        row->last = plan->buffers[b].last;
    }
    schedule->rows[plan->norm_result_row].initialised = true; /* counts skipped steps */
    schedule->rows[plan->norm_result_row].initial_subject = eo_subject(SUBJECT_NORM_RESULT, 0);
    schedule->rows[plan->values_row].initialised = true;
    schedule->rows[plan->values_row].initial_subject = eo_subject(SUBJECT_VALUES, 0);
    for (int f = 0; f < 2 && plan->fence_row != EO_NONE; f++) { /* before the first step nobody reads */
        const uint32_t row = f ? plan->fenced_row : plan->fence_row;
        schedule->rows[row].initialised = true;
        schedule->rows[row].initial_subject = eo_subject(SUBJECT_FENCED, (uint32_t)f);
    }
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        const struct plan_layer *layer = &plan->layers[l];
        if (layer->shard_row != EO_NONE)
            hold_from_the_start(schedule, layer->shard_row, eo_subject(SUBJECT_WEIGHTS, l));
        if (layer->float8_gather) { /* the runtime makes it of weights that were filled or loaded */
            hold_from_the_start(schedule, layer->narrow_row, eo_subject(SUBJECT_NARROW_WEIGHTS, l));
            schedule->rows[layer->narrow_row].saved = layer->float8_frozen;
        }
        if (layer->frozen)
            continue;
        if (layer->disk_row != EO_NONE) {
            hold_from_the_start(schedule, layer->disk_row, eo_subject(SUBJECT_OFFLOADED, l));
            continue;
        }
        if (layer->master_row != layer->shard_row)
            hold_from_the_start(schedule, layer->master_row, eo_subject(SUBJECT_LOW_WEIGHTS, l));
        for (uint32_t k = 0; k < plan->state_count; k++)
            hold_from_the_start(schedule, layer->state_rows[k], eo_subject(SUBJECT_STATE + k, l));
    }
    return true;
}

eo_status eo_plan_make_lists(struct eo_plan *plan)
{
    const uint32_t moments = 3 * plan->position_count;
    const uint64_t passes = (uint64_t)plan->params.micro_batches * 2 * plan->position_count;
    const bool widens = plan->params.float8_gather || plan->params.float8_frozen;
    const uint32_t fold_parts = widens + (uint32_t)(plan->whole_gradients ? FOLD_PARTS : FOLD_ADD);
    struct list_builder b = {
        .plan = plan, .fold_parts = fold_parts, .fold_widens = widens, .end_fold = (2 + fold_parts) * plan->position_count};
    b.passes = calloc(passes, sizeof(*b.passes));
    b.pending = calloc(passes, sizeof(*b.pending));
    b.pass_accesses = calloc(moments, sizeof(*b.pass_accesses));
    const bool ok = b.passes && b.pending && b.pass_accesses && eo_buffer_agenda_make(&b.first, plan, AGENDA_FIRST) >= 0 &&
                    eo_buffer_agenda_make(&b.last, plan, AGENDA_LAST) >= 0 &&
                    eo_buffer_agenda_make(&b.evaluation_first, plan, AGENDA_EVALUATION_FIRST) >= 0 &&
                    eo_buffer_agenda_make(&b.evaluation_last, plan, AGENDA_EVALUATION_LAST) >= 0 && make_training_lists(&b) &&
                    make_forward_list(&b) && make_inputs_list(&b) && make_schedule_rows(plan);
    plan->schedule.accesses = b.accesses;
    plan->schedule.access_count = b.access_count;
    plan->schedule.id_count = b.next_id;
    plan->schedule.micro_batches = plan->params.micro_batches;
    plan->places = b.places;
    plan->fold_count = b.end_fold;
    plan->batch_fold_count = (2 + fold_parts) * plan->position_count;
    free(b.operations);
    free(b.passes);
    free(b.pending);
    free(b.pass_accesses);
    eo_buffer_agenda_free(&b.first);
    eo_buffer_agenda_free(&b.last);
    eo_buffer_agenda_free(&b.evaluation_first);
    eo_buffer_agenda_free(&b.evaluation_last);
    return ok && !b.failed ? EO_OK : EO_ERR_NO_MEMORY;
}
