/* SPDX-License-Identifier: MIT
 *
 * Lists of plans: their operations as written, their counts, the places of gathers.
 */
#include "tests/unit/plan/planned.h"

#include <stdio.h>
#include <string.h>

/* A list as text: the stream (none, | for communication, / for reductions, > for copies), the operation, what it waits for. */
static void list_text(const eo_plan *plan, eo_list list, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < eo_plan_operation_count(plan, list); i++) {
        eo_plan_operation o, awaited;
        cr_assert_eq(eo_plan_get_operation(plan, list, i, &o), EO_OK);
        used += (size_t)snprintf(text + used, bytes - used, "%c %s", " |/><"[o.stream], o.name);
        for (uint32_t w = 0; w < o.wait_count; w++) {
            cr_assert_eq(eo_plan_get_operation(plan, list, o.waits[w], &awaited), EO_OK);
            used += (size_t)snprintf(text + used, bytes - used, " <- %s%s", awaited.name,
                                     o.wait_previous_step[w] ? " of the step before" : "");
        }
        used += (size_t)snprintf(text + used, bytes - used, "\n");
        cr_assert_lt(used, bytes);
    }
}

/*
 * The steady list of four equal blocks between larger edges, with two slots each, is the one written here.
 * Method: written by hand and compared as text. use0 is the embedding, without weights in
 * backward; use5 the head, still there at the turn, as blocks 3 and 4 are.
 */
static const char steady_of_four_blocks[] =
    "  forward of use0 <- all-gather of use0 of the step before\n"
    "| all-gather of use2 <- update of layer2 of the step before\n"
    "  forward of use1 <- all-gather of use1 of the step before\n"
    "| all-gather of use3 <- forward of use1\n"
    "  forward of use2 <- all-gather of use2\n"
    "| all-gather of use4 <- forward of use2\n"
    "  forward of use3 <- all-gather of use3\n"
    "| all-gather of use5\n" /* as soon as two passes ahead allow; its row is its own */
    "  forward of use4 <- all-gather of use4\n"
    "  forward of use5 <- all-gather of use5\n"
    "  recompute of use5\n"
    "  backward of use5\n"
    "| reduce-scatter of use5 <- backward of use5\n"
    "  recompute of use4\n"
    "  backward of use4\n"
    "| all-gather of use2 <- backward of use4\n" /* gather first: there are as many gradient buffers */
    "| reduce-scatter of use4\n"
    "  recompute of use3\n"
    "  norm partial of use5 <- reduce-scatter of use5\n"
    "  backward of use3\n"
    "| all-gather of use1 <- backward of use3\n"
    "| reduce-scatter of use3\n"
    "  recompute of use2 <- all-gather of use2\n"
    "  norm partial of use4 <- reduce-scatter of use4\n" /* which also frees the gradient buffer for use2 */
    "  backward of use2\n"
    "| reduce-scatter of use2 <- backward of use2\n"
    "  recompute of use1 <- all-gather of use1\n"
    "  norm partial of use3 <- reduce-scatter of use3\n"
    "  backward of use1\n"
    "| reduce-scatter of use1 <- backward of use1\n"
    "  recompute of use0\n" /* the embedding is not gathered in backward */
    "  norm partial of use2 <- reduce-scatter of use2\n"
    "  backward of use0\n"
    "| reduce-scatter of use0 <- backward of use0\n"
    "  norm partial of use1 <- reduce-scatter of use1\n"
    "  norm partial of use0 <- reduce-scatter of use0\n"
    "  local norm\n"
    "| all-gather of norms <- local norm\n"
    "  norm <- all-gather of norms\n"
    "  update of layer0\n"
    "| all-gather of use0 <- update of layer0\n"
    "  update of layer1\n"
    "| all-gather of use1 <- update of layer1\n"
    "  update of layer2\n"
    "  update of layer3\n"
    "  update of layer4\n"
    "  update of layer5\n";

Test(plan, steady_list_of_four_blocks_is_as_written)
{
    eo_model *model = eo_plan_model_of_blocks(4);
    eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 2));
    static char text[1 << 16];
    list_text(plan, EO_LIST_STEADY, text, sizeof(text));
    cr_assert_str_eq(text, steady_of_four_blocks);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

/*
 * The first list is the gathers that the steady list leaves to the step before, then the steady list itself, without late
 * updates, which are a list of their own.
 * Method: same events by id; in front nothing but gathers, as many as stand behind the updates of the steady list.
 */
Test(plan, first_list_is_a_prologue_and_the_steady_list)
{
    for (const struct plan_model *m = eo_plan_models; m->name; m++) {
        eo_model *model = eo_plan_model(m->name);
        eo_plan_params params;
        for (uint32_t n = 0; eo_plan_settings(n, &params); n++) {
            params.rank_count = 1 + n % 3;
            eo_plan *plan = plan_of(model, &params);
            const struct eo_operation_list *first = &plan->schedule.lists[EO_LIST_FIRST];
            const struct eo_operation_list *steady = &plan->schedule.lists[EO_LIST_STEADY];
            const struct eo_operation_list *updates = &plan->schedule.lists[EO_LIST_UPDATES];
            cr_assert_geq(first->count + updates->count, steady->count);
            const uint32_t prologue = first->count + updates->count - steady->count;
            uint32_t behind = 0, late = 0;
            for (uint32_t i = steady->count; steady->operations[--i].kind != EO_OP_NORM_SUM;)
                behind += steady->operations[i].kind == EO_OP_ALL_GATHER;
            cr_assert_eq(prologue, behind, "%s: %u gathers ahead of the first step, %u behind a step", m->name,
                         prologue, behind);
            for (uint32_t i = 0; i < prologue; i++)
                cr_assert_eq(first->operations[i].kind, EO_OP_ALL_GATHER);
            for (uint32_t i = 0; i < steady->count; i++) {
                const bool is_late = late < updates->count && updates->operations[late].id == steady->operations[i].id;
                cr_assert_eq(is_late, steady->operations[i].late);
                late += is_late;
                if (!is_late)
                    cr_assert_eq(first->operations[prologue + i - late].id, steady->operations[i].id);
            }
            cr_assert_eq(late, updates->count);
            cr_assert_eq(updates->count > 0, params.late_updates && plan->offload_begin < plan->update_count);
            for (uint32_t i = 0; i < first->count; i++)
                for (int s = 0; s < EO_STREAM_COUNT; s++)
                    cr_assert_not(first->operations[i].wait[s] != EO_NONE && first->operations[i].wait_previous_run[s],
                                  "%s: the first step waits for a step before it", m->name);
            eo_plan_destroy(&plan);
        }
        eo_model_destroy(&model);
    }
}

/*
 * U blocks between two edges, G gather buffers, M micro-batches: as many collectives as counted by hand.
 *
 *     forward   embedding, U blocks, head                              U + 2
 *     backward  the head and the last G blocks are still there,        U - G
 *               the embedding's backward pass reads no weights
 *     later micro-batches find the first G blocks, which backward used last; edges share addresses and are gathered
 *     again: 2 + (U - G) forward, U - G backward
 *
 * Every position is reduced once a micro-batch. One rank gathers nothing, and reduces only what is added up.
 */
Test(plan, collectives_are_as_many_as_counted_by_hand)
{
    for (uint32_t blocks = 3; blocks <= 9; blocks++) {
        eo_model *model = eo_plan_model_of_blocks(blocks);
        for (uint32_t c = 0; c < 27; c++) {
            const uint32_t slots = 1 + c % 3, batches = 1 + c / 3 % 3, gradient_slots = 1 + c / 9;
            eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 4, .gather_slots = slots,
                                                          .gradient_slots = gradient_slots, .micro_batches = batches));
            const uint32_t away = blocks - slots;
            cr_assert_eq(count_kind(plan, EO_LIST_STEADY, EO_OP_ALL_GATHER),
                         blocks + 2 + away + (batches - 1) * (2 + 2 * away), "%u blocks, %u slots, %u micro-batches",
                         blocks, slots, batches);
            cr_assert_eq(count_kind(plan, EO_LIST_STEADY, EO_OP_REDUCE_SCATTER), batches * (blocks + 2));
            cr_assert_eq(count_kind(plan, EO_LIST_STEADY, EO_OP_ACCUMULATE), (batches - 1) * (blocks + 2));
            cr_assert_eq(count_kind(plan, EO_LIST_STEADY, EO_OP_NORM_GATHER), 1);
            cr_assert_eq(count_kind(plan, EO_LIST_STEADY, EO_OP_UPDATE), blocks + 2);
            cr_assert_eq(count_kind(plan, EO_LIST_FORWARD, EO_OP_ALL_GATHER), blocks + 2);
            cr_assert_eq(count_kind(plan, EO_LIST_FORWARD, EO_OP_FORWARD), blocks + 2);
            for (uint32_t i = 0; i < plan->schedule.lists[EO_LIST_FORWARD].count; i++) {
                const uint32_t batch = plan->schedule.lists[EO_LIST_FORWARD].operations[i].micro_batch;
                cr_assert(batch == 0 || batch == EO_NONE, "operation %u of forward alone is of micro-batch %u", i, batch);
            }
            eo_plan_destroy(&plan);
        }
        eo_model_destroy(&model);
    }
}

/* The first contribution of a step is written into the shard; the other uses of a tied layer are added. */
Test(plan, one_rank_reduces_only_what_is_added)
{
    static const struct {
        const char *model;
        uint32_t added;
    } cases[] = {{"tied", 1}, {"tied_in_the_middle", 2}};
    for (int c = 0; c < 2; c++) {
        eo_model *model = eo_plan_model(cases[c].model);
        eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 1));
        cr_assert_eq(count_kind(plan, EO_LIST_STEADY, EO_OP_REDUCE_SCATTER), cases[c].added);
        cr_assert_eq(count_kind(plan, EO_LIST_STEADY, EO_OP_ACCUMULATE), cases[c].added);
        eo_plan_destroy(&plan);
        eo_model_destroy(&model);
    }
}

struct pass {
    uint32_t at, position; /* list index */
    uint32_t row;          /* of the weights that it reads, or EO_NONE */
};

static uint32_t passes_of(const eo_plan *plan, const struct eo_operation_list *list, struct pass *passes, uint32_t most)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct eo_operation *o = &list->operations[i];
        if (o->kind != EO_OP_FORWARD && o->kind != EO_OP_BACKWARD)
            continue;
        const struct plan_position *position = &plan->positions[o->position];
        const bool reads = o->kind == EO_OP_FORWARD || !position->backward_without_weights;
        cr_assert_lt(count, most);
        passes[count++] = (struct pass){i, o->position, reads ? position->gather_row : EO_NONE};
    }
    return count;
}

/* The number of the pass that a gather is for. */
static uint32_t use_of(const struct pass *passes, uint32_t count, uint32_t gather, uint32_t position)
{
    for (uint32_t t = 0; t < count; t++)
        if (passes[t].at > gather && passes[t].position == position && passes[t].row != EO_NONE)
            return t;
    return EO_NONE;
}

static uint32_t last_before(const struct pass *passes, uint32_t count, uint32_t at)
{
    uint32_t last = EO_NONE;
    for (uint32_t t = 0; t < count; t++)
        if (passes[t].at < at)
            last = t;
    return last;
}

/*
 * A gather stands directly after the last pass that used its buffer's old content, at most G passes ahead of its use,
 * in the order of use; so a gather that stands after pass t stands there for one of three reasons: pass t used its
 * buffer, pass t - 1 is more than G passes ahead, or the gather before it stands there too. And between the same two
 * passes the gather comes before the reduction exactly where there are at least as many gradient as gather buffers.
 * Method: the three reasons, for each gather that stands inside the step, of every model and setting.
 */
Test(plan, gathers_stand_as_early_as_they_may)
{
    uint32_t gathers = 0, together = 0;
    for (const struct plan_model *m = eo_plan_models; m->name; m++) {
        eo_model *model = eo_plan_model(m->name);
        eo_plan_params params;
        for (uint32_t n = 0; eo_plan_settings(n, &params); n++) {
            if (params.no_prefetch)
                continue;
            params.rank_count = 2;
            eo_plan *plan = plan_of(model, &params);
            const struct eo_operation_list *list = &plan->schedule.lists[EO_LIST_FIRST];
            struct pass passes[256];
            const uint32_t count = passes_of(plan, list, passes, 256);
            uint32_t previous_after = EO_NONE;
            for (uint32_t i = passes[0].at; i < passes[count - 1].at; i++) {
                const struct eo_operation *o = &list->operations[i];
                if (o->kind != EO_OP_ALL_GATHER)
                    continue;
                const uint32_t use = use_of(passes, count, i, o->position), after = last_before(passes, count, i);
                const uint32_t row = plan->positions[o->position].gather_row;
                cr_assert_neq(use, EO_NONE);
                for (uint32_t t = after + 1; t < use; t++)
                    cr_assert_neq(passes[t].row, row, "%s: a gather overwrites what is still used", m->name);
                cr_assert_leq(use - after, params.gather_slots, "%s: %u passes ahead with %u buffers", m->name,
                              use - after, params.gather_slots);
                cr_assert(passes[after].row == row || use - after == params.gather_slots || previous_after == after,
                          "%s: the gather for pass %u stands later than it must, after pass %u", m->name, use, after);
                previous_after = after;
                gathers++;
                const struct eo_operation *beside[2] = {&list->operations[i - 1], &list->operations[i + 1]};
                for (int b = 0; b < 2; b++) {
                    if (beside[b]->kind != EO_OP_REDUCE_SCATTER)
                        continue;
                    together++;
                    cr_assert_eq(b == 1, params.gradient_slots >= params.gather_slots, "%s", m->name);
                }
            }
            eo_plan_destroy(&plan);
        }
        eo_model_destroy(&model);
    }
    cr_assert_gt(gathers, 2000);
    cr_assert_gt(together, 500);
}

static const char steady_in_float8[] =
    "  widen of use0 <- all-gather of use0 of the step before\n"
    "  forward of use0\n"
    "| all-gather of use2 <- narrow of layer2 of the step before\n"
    "  widen of use1 <- all-gather of use1 of the step before\n"
    "  forward of use1\n"
    "| all-gather of use3 <- widen of use1\n" /* the buffer is free when it has been widened, not when it has been used */
    "  widen of use2 <- all-gather of use2\n"
    "  forward of use2\n"
    "| all-gather of use4 <- widen of use2\n"
    "  widen of use3 <- all-gather of use3\n"
    "  forward of use3\n"
    "| all-gather of use5\n"
    "  widen of use4 <- all-gather of use4\n"
    "  forward of use4\n"
    "  widen of use5 <- all-gather of use5\n"
    "  forward of use5\n"
    "  recompute of use5\n"
    "  backward of use5\n"
    "| reduce-scatter of use5 <- backward of use5\n"
    "  recompute of use4\n" /* widened last in forward, so it is still there */
    "  backward of use4\n"
    "| all-gather of use2\n"
    "| reduce-scatter of use4 <- backward of use4\n"
    "  widen of use3\n" /* its buffer still holds what was gathered for forward */
    "  recompute of use3\n"
    "  norm partial of use5 <- reduce-scatter of use5\n"
    "  backward of use3\n"
    "| all-gather of use1 <- widen of use3\n"
    "| reduce-scatter of use3 <- backward of use3\n"
    "  widen of use2 <- all-gather of use2\n"
    "  recompute of use2\n"
    "  norm partial of use4 <- reduce-scatter of use4\n"
    "  backward of use2\n"
    "| reduce-scatter of use2 <- backward of use2\n"
    "  widen of use1 <- all-gather of use1\n"
    "  recompute of use1\n"
    "  norm partial of use3 <- reduce-scatter of use3\n"
    "  backward of use1\n"
    "| reduce-scatter of use1 <- backward of use1\n"
    "  recompute of use0\n"
    "  norm partial of use2 <- reduce-scatter of use2\n"
    "  backward of use0\n"
    "| reduce-scatter of use0 <- backward of use0\n"
    "  norm partial of use1 <- reduce-scatter of use1\n"
    "  norm partial of use0 <- reduce-scatter of use0\n"
    "  local norm\n"
    "| all-gather of norms <- local norm\n"
    "  norm <- all-gather of norms\n"
    "  update of layer0\n"
    "  narrow of layer0\n"
    "| all-gather of use0 <- narrow of layer0\n" /* what is sent is made once a step */
    "  update of layer1\n"
    "  narrow of layer1\n"
    "| all-gather of use1 <- narrow of layer1\n"
    "  update of layer2\n"
    "  narrow of layer2\n"
    "  update of layer3\n"
    "  narrow of layer3\n"
    "  update of layer4\n"
    "  narrow of layer4\n"
    "  update of layer5\n"
    "  narrow of layer5\n";

/*
 * Gathers stand where those in bf16 do, and are as many. Between them and a pass the weights are widened, once for a row of
 * passes of one layer; what is sent is made after the update.
 * Method: written by hand, for four equal blocks between larger edges, with two slots each, and compared as text.
 */
Test(plan, float8_weights_are_widened_before_their_use)
{
    static char text[16384];
    eo_model *model = eo_plan_model("edges");
    eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 2, .dtype = EO_DTYPE_BF16, .float8_gather = true));
    eo_plan *plain = plan_of(model, eo_plan_params(.rank_count = 2, .dtype = EO_DTYPE_BF16));
    list_text(plan, EO_LIST_STEADY, text, sizeof(text));
    cr_assert_str_eq(text, steady_in_float8);
    for (int list = 0; list < EO_LIST_COUNT; list++)
        cr_assert_eq(count_kind(plan, (eo_list)list, EO_OP_ALL_GATHER), count_kind(plain, (eo_list)list, EO_OP_ALL_GATHER));
    eo_plan_destroy(&plan);
    eo_plan_destroy(&plain);
    eo_model_destroy(&model);
}

/*
 * Late updates stand in front of the forward passes of the next step, each before the first gather of its layer, with the way
 * back of its layer and the fetch of the next behind it; the last ones fetch for the next round. They are the list of updates.
 * Method: written by hand, for the last four layers of four equal blocks between larger edges, with two slots each.
 */
static const char steady_with_late_updates[] =
    "  forward of use0 <- all-gather of use0 of the step before\n"
    "  update of layer2 <- fetch of layer2 of the step before\n"
    "> eviction of layer2 <- update of layer2\n"
    "> fetch of layer4\n"
    "| all-gather of use2 <- update of layer2\n"
    "  forward of use1 <- all-gather of use1 of the step before\n"
    "  update of layer3 <- fetch of layer3 of the step before\n"
    "> eviction of layer3 <- update of layer3\n"
    "> fetch of layer5\n"
    "| all-gather of use3 <- update of layer3\n"
    "  forward of use2 <- all-gather of use2\n"
    "  update of layer4 <- fetch of layer4\n"
    "> eviction of layer4 <- update of layer4\n"
    "> fetch of layer2\n"
    "| all-gather of use4 <- update of layer4\n"
    "  forward of use3 <- all-gather of use3\n"
    "  update of layer5 <- fetch of layer5\n"
    "> eviction of layer5 <- update of layer5\n"
    "> fetch of layer3\n"
    "| all-gather of use5 <- update of layer5\n"
    "  forward of use4 <- all-gather of use4\n"
    "  forward of use5 <- all-gather of use5\n"
    "  recompute of use5\n"
    "  backward of use5\n"
    "| reduce-scatter of use5 <- backward of use5\n"
    "  recompute of use4\n"
    "  backward of use4\n"
    "| all-gather of use2 <- backward of use4\n"
    "| reduce-scatter of use4\n"
    "  recompute of use3\n"
    "  norm partial of use5 <- reduce-scatter of use5\n"
    "  backward of use3\n"
    "| all-gather of use1 <- backward of use3\n"
    "| reduce-scatter of use3\n"
    "  recompute of use2 <- all-gather of use2\n"
    "  norm partial of use4 <- reduce-scatter of use4\n"
    "  backward of use2\n"
    "| reduce-scatter of use2 <- backward of use2\n"
    "  recompute of use1 <- all-gather of use1\n"
    "  norm partial of use3 <- reduce-scatter of use3\n"
    "  backward of use1\n"
    "| reduce-scatter of use1 <- backward of use1\n"
    "  recompute of use0\n"
    "  norm partial of use2 <- reduce-scatter of use2\n"
    "  backward of use0\n"
    "| reduce-scatter of use0 <- backward of use0\n"
    "  norm partial of use1 <- reduce-scatter of use1\n"
    "  norm partial of use0 <- reduce-scatter of use0\n"
    "  local norm\n"
    "| all-gather of norms <- local norm\n"
    "  norm <- all-gather of norms\n"
    "  update of layer0\n"
    "| all-gather of use0 <- update of layer0\n"
    "  update of layer1\n"
    "| all-gather of use1 <- update of layer1\n";
static const char late_updates[] =
    "  update of layer2\n"
    "> eviction of layer2 <- update of layer2\n"
    "> fetch of layer4\n"
    "  update of layer3\n"
    "> eviction of layer3 <- update of layer3\n"
    "> fetch of layer5\n"
    "  update of layer4 <- fetch of layer4\n"
    "> eviction of layer4 <- update of layer4\n"
    "  update of layer5 <- fetch of layer5\n"
    "> eviction of layer5 <- update of layer5\n";

/* A stream of their own for evictions: a buffer's next fetch waits for what leaves it. */
static const char late_updates_apart[] =
    "  update of layer2\n"
    "< eviction of layer2 <- update of layer2\n"
    "> fetch of layer4 <- eviction of layer2\n"
    "  update of layer3\n"
    "< eviction of layer3 <- update of layer3\n"
    "> fetch of layer5 <- eviction of layer3\n"
    "  update of layer4 <- fetch of layer4\n"
    "< eviction of layer4 <- update of layer4\n"
    "  update of layer5 <- fetch of layer5\n"
    "< eviction of layer5 <- update of layer5\n";

Test(plan, late_updates_stand_before_the_gathers_of_the_next_step)
{
    static char text[16384];
    eo_model *model = eo_plan_model_of_blocks(4);
    eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 2, .offload_layers = 4, .late_updates = true));
    list_text(plan, EO_LIST_STEADY, text, sizeof(text));
    cr_assert_str_eq(text, steady_with_late_updates);
    list_text(plan, EO_LIST_UPDATES, text, sizeof(text));
    cr_assert_str_eq(text, late_updates);
    eo_plan_destroy(&plan);
    plan = plan_of(model, eo_plan_params(.rank_count = 2, .offload_layers = 4, .late_updates = true, .separate_evict_stream = true));
    list_text(plan, EO_LIST_UPDATES, text, sizeof(text));
    cr_assert_str_eq(text, late_updates_apart);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

static uint32_t find_operation(const eo_plan *plan, eo_list list, uint32_t id, eo_plan_operation *out)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < eo_plan_operation_count(plan, list); i++) {
        eo_plan_operation o;
        cr_assert_eq(eo_plan_get_operation(plan, list, i, &o), EO_OK);
        if (o.id == id && found++ == 0)
            *out = o;
    }
    return found;
}

/*
 * Who reads the lists can tell which operation of the step before a wait means, where that step ran the first list.
 * Method: it is there under the same id, once, and is the same by kind and name. Names would not do: gathers of a position
 * repeat them.
 */
Test(plan, an_operation_has_the_same_id_in_all_lists)
{
    static const eo_plan_params settings[] = {{.rank_count = 2},
                                              {.rank_count = 2, .micro_batches = 3, .gather_slots = 1},
                                              {.rank_count = 2, .offload_layers = UINT32_MAX, .offload_slots = 1},
                                              {.rank_count = 2, .offload_layers = UINT32_MAX, .late_updates = true}};
    uint32_t waits = 0, moved = 0;
    for (size_t k = 0; k < sizeof(settings) / sizeof(settings[0]); k++) {
        eo_model *model = eo_plan_model("edges");
        eo_plan *plan = plan_of(model, &settings[k]);
        for (uint32_t i = 0; i < eo_plan_operation_count(plan, EO_LIST_STEADY); i++) {
            eo_plan_operation o, awaited, before, at_that_place;
            cr_assert_eq(eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o), EO_OK);
            cr_assert_eq(find_operation(plan, EO_LIST_STEADY, o.id, &before), 1, "%s", o.name);
            for (uint32_t w = 0; w < o.wait_count; w++) {
                if (!o.wait_previous_step[w])
                    continue;
                cr_assert_eq(eo_plan_get_operation(plan, EO_LIST_STEADY, o.waits[w], &awaited), EO_OK);
                cr_assert_eq(find_operation(plan, EO_LIST_FIRST, awaited.id, &before), 1, "%s waits for %s", o.name,
                             awaited.name);
                cr_assert(before.kind == awaited.kind && strcmp(before.name, awaited.name) == 0, "%s", before.name);
                moved += eo_plan_get_operation(plan, EO_LIST_FIRST, o.waits[w], &at_that_place) < 0 ||
                         at_that_place.id != awaited.id;
                waits++;
            }
        }
        eo_plan_destroy(&plan);
        eo_model_destroy(&model);
    }
    cr_assert(waits >= 10 && moved > 0, "%u waits, %u at another place: this test saw nothing", waits, moved);
}
