/* SPDX-License-Identifier: MIT
 *
 * Plans: settings that are refused, lists and their counts, what differs and what does not.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "runtime/plan/internal.h"
#include "tests/unit/plan/models.h"

static eo_plan *plan_of(const eo_model *model, const eo_plan_params *params)
{
    eo_plan *plan;
    eo_plan_params logged = *params;
    logged.log = &eo_test_log;
    eo_test_text[0] = '\0';
    const eo_status status = eo_plan_create(&plan, model, &logged);
    cr_assert_eq(status, EO_OK, "%s", eo_test_text);
    return plan;
}

static uint32_t count_kind(const eo_plan *plan, eo_list list, eo_operation_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->schedule.lists[list].count; i++)
        count += plan->schedule.lists[list].operations[i].kind == kind;
    return count;
}

/* A list as text: the stream (none, | for communication, / for reductions), the operation, what it waits for. */
static void list_text(const eo_plan *plan, eo_list list, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < eo_plan_operation_count(plan, list); i++) {
        eo_plan_operation o, awaited;
        cr_assert_eq(eo_plan_get_operation(plan, list, i, &o), EO_OK);
        used += (size_t)snprintf(text + used, bytes - used, "%c %s", " |/"[o.stream], o.name);
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
 * Method: written from DESIGN section 5 by hand and compared as text. use0 is the embedding, without weights in
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
 * The first list is the gathers that the steady list leaves to the step before, then the steady list itself.
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
            cr_assert_geq(first->count, steady->count);
            const uint32_t prologue = first->count - steady->count;
            uint32_t behind = 0;
            for (uint32_t i = steady->count; steady->operations[--i].kind != EO_OP_NORM_SUM;)
                behind += steady->operations[i].kind == EO_OP_ALL_GATHER;
            cr_assert_eq(prologue, behind, "%s: %u gathers ahead of the first step, %u behind a step", m->name,
                         prologue, behind);
            for (uint32_t i = 0; i < prologue; i++)
                cr_assert_eq(first->operations[i].kind, EO_OP_ALL_GATHER);
            for (uint32_t i = 0; i < steady->count; i++)
                cr_assert_eq(first->operations[prologue + i].id, steady->operations[i].id);
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
            eo_plan_destroy(&plan);
        }
        eo_model_destroy(&model);
    }
}

/* -- the places of gathers ---------------------------------------------------------------------------------------- */

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

/* -- rows ----------------------------------------------------------------------------------------------------------*/

static uint32_t rows_of(const eo_plan *plan, eo_category category, const char *name_part)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < plan->row_count; r++)
        count += plan->rows[r].category == category && strstr(plan->rows[r].name, name_part) != NULL;
    return count;
}

/*
 * A frozen layer has weights and a place to gather them, and nothing else: no gradients, no state, no reduction, no
 * update.
 * Method: the rows and operations that name it.
 */
Test(plan, frozen_layers_have_weights_only)
{
    eo_model *model = eo_plan_model("frozen"); /* layers 0, 2 and 3 of six */
    eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 2));
    for (uint32_t l = 0; l < 6; l++) {
        const bool frozen = l == 0 || l == 2 || l == 3;
        char name[16];
        snprintf(name, sizeof(name), "layer%u", l);
        cr_assert_eq(rows_of(plan, EO_CATEGORY_MASTER, name), 1);
        cr_assert_eq(rows_of(plan, EO_CATEGORY_GRADIENT, name), !frozen);
        cr_assert_eq(rows_of(plan, EO_CATEGORY_OPTIMIZER, name), frozen ? 0 : 2);
    }
    cr_assert_eq(count_kind(plan, EO_LIST_STEADY, EO_OP_REDUCE_SCATTER), 3);
    cr_assert_eq(count_kind(plan, EO_LIST_STEADY, EO_OP_UPDATE), 3);
    for (uint32_t i = 0; i < plan->schedule.lists[EO_LIST_STEADY].count; i++) {
        const struct eo_operation *o = &plan->schedule.lists[EO_LIST_STEADY].operations[i];
        if (o->kind == EO_OP_REDUCE_SCATTER || o->kind == EO_OP_UPDATE || o->kind == EO_OP_NORM_PARTIAL)
            cr_assert_not(plan->layers[o->layer].frozen);
    }
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

/*
 * Embedding and head, when larger than the body, have rows of their own, and the slots have the body's size; when they
 * are not larger, they are in the slots like all others.
 * Method: the largest slot against the largest layer of the body.
 */
Test(plan, edges_do_not_decide_the_size_of_slots)
{
    eo_model *model = eo_plan_model("edges"), *uniform = eo_plan_model("uniform");
    eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 2));
    uint64_t slot = 0;
    for (uint32_t r = 0; r < plan->row_count; r++)
        if (strncmp(plan->rows[r].name, "gather.slot", 11) == 0 && plan->rows[r].bytes > slot)
            slot = plan->rows[r].bytes;
    cr_assert_eq(slot, plan->layers[1].layout.padded_count * 4);
    cr_assert(plan->layers[0].edge && plan->layers[5].edge && !plan->layers[1].edge);
    cr_assert_eq(rows_of(plan, EO_CATEGORY_GATHER_BUFFER, "gather.use"), 2);
    cr_assert_eq(rows_of(plan, EO_CATEGORY_GRADIENT_BUFFER, "gradient.use"), 2);
    eo_plan_destroy(&plan);
    plan = plan_of(uniform, eo_plan_params(.rank_count = 2));
    cr_assert_eq(rows_of(plan, EO_CATEGORY_GATHER_BUFFER, "gather."), 2);
    cr_assert_eq(rows_of(plan, EO_CATEGORY_GRADIENT_BUFFER, "gradient."), 2);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
    eo_model_destroy(&uniform);
}

/*
 * In bf16 the weights lie in two halves, and a parameter has 16 bytes of state a rank: 2 + 2 for the weight, 4 for the
 * gradient, 8 for AdamW; the same as in fp32. What is gathered has 2 bytes, what is reduced 4, or 2 where so asked.
 * Method: bytes by category over the padded shards.
 */
Test(plan, bf16_has_split_master_weights_and_16_bytes_a_parameter)
{
    eo_model *model = eo_plan_model("edges");
    for (int reduce = 0; reduce < 2; reduce++) {
        eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 4, .dtype = EO_DTYPE_BF16,
                                                      .reduce_dtype = reduce ? EO_DTYPE_BF16 : EO_DTYPE_FP32));
        uint64_t shards = 0;
        for (uint32_t l = 0; l < plan->layer_count; l++)
            shards += plan->layers[l].layout.shard_count;
        eo_plan_summary summary;
        eo_plan_get_summary(plan, &summary);
        cr_assert_eq(summary.category_bytes[EO_CATEGORY_MASTER], 2 * shards);
        cr_assert_eq(summary.category_bytes[EO_CATEGORY_COMPUTE_SHARD], 2 * shards);
        cr_assert_eq(summary.category_bytes[EO_CATEGORY_GRADIENT], 4 * shards);
        cr_assert_eq(summary.category_bytes[EO_CATEGORY_OPTIMIZER], 8 * shards);
        cr_assert_eq(plan->rows[plan->positions[1].gather_row].bytes, 2 * plan->layers[1].layout.padded_count);
        cr_assert_eq(plan->rows[plan->positions[1].buffer_row].bytes,
                     (reduce ? 2 : 4) * plan->layers[1].layout.padded_count);
        eo_plan_destroy(&plan);
    }
    eo_model_destroy(&model);
}

/*
 * What a rank sends in float8 has a byte for each element of a matrix, two for others, and a scale a matrix.
 * Method: by hand, from offsets and shards, for each layer and rank; rows, collectives and the runs of all ranks.
 */
Test(plan, float8_gathers_send_a_byte_an_element)
{
    enum { RANKS = 4, ALIGN = 256 };
    eo_model *model = eo_plan_model("edges");
    eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = RANKS, .dtype = EO_DTYPE_BF16, .float8_gather = true));
    eo_plan *plain = plan_of(model, eo_plan_params(.rank_count = RANKS, .dtype = EO_DTYPE_BF16));
    uint64_t sum = 0, most[6] = {0};
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        const struct plan_layer *layer = &plan->layers[l];
        uint64_t seen = 0;
        for (uint32_t r = 0; r < RANKS; r++) {
            uint64_t bytes = 16; /* one scale, and what aligns the weights */
            uint32_t count;
            struct plan_float8_run runs[2];
            for (uint64_t k = 0; k < 2; k++) {
                uint64_t own = 0;
                const struct plan_parameter *parameter = &plan->parameters[layer->parameter_begin + k];
                for (uint64_t i = 0; i < parameter->element_count; i++)
                    own += (parameter->offset + i) / layer->layout.shard_count == r;
                bytes += (own * (k == 0 ? 1 : 2) + 15) / 16 * 16;
            }
            cr_assert_eq(eo_plan_float8_runs(plan, l, r, runs, &count), bytes, "layer %u, rank %u", l, r);
            for (uint32_t i = 0; i < count; i++) {
                cr_assert_eq(runs[i].scale, runs[i].parameter == 0 ? 0 : EO_NONE);
                cr_assert_eq(plan->parameters[layer->parameter_begin + runs[i].parameter].offset + runs[i].from,
                             r * layer->layout.shard_count + runs[i].at);
                seen += runs[i].count;
            }
            most[l] = bytes > most[l] ? bytes : most[l];
        }
        most[l] = (most[l] + ALIGN - 1) / ALIGN * ALIGN;
        cr_assert_eq(seen, plan->parameters[layer->parameter_begin].element_count + 3, "each element is sent once");
        cr_assert_eq(plan->rows[layer->narrow_row].bytes, most[l]);
        cr_assert(plan->rows[layer->narrow_row].always_live && plan->rows[layer->narrow_row].space == EO_SPACE_GATHER);
        sum += most[l];
    }
    for (uint32_t i = 0; i < eo_plan_operation_count(plan, EO_LIST_STEADY); i++) {
        eo_plan_operation o;
        cr_assert_eq(eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o), EO_OK);
        if (o.kind == EO_OP_ALL_GATHER)
            cr_assert(o.bytes == RANKS * most[o.layer] && o.dtype == EO_DTYPE_FLOAT8, "%s", o.name);
    }
    eo_plan_summary s, before;
    eo_plan_get_summary(plan, &s);
    eo_plan_get_summary(plain, &before);
    cr_assert_eq(s.category_bytes[EO_CATEGORY_COMPUTE_SHARD], before.category_bytes[EO_CATEGORY_COMPUTE_SHARD] + sum);
    cr_assert_eq(s.category_bytes[EO_CATEGORY_MASTER], before.category_bytes[EO_CATEGORY_MASTER]);
    /* Two slots of the largest block, and a row for all widened ones. */
    const uint64_t block = 2 * plan->layers[1].layout.padded_count;
    cr_assert_eq(plan->rows[plan->positions[1].gather_row].bytes, block);
    cr_assert_eq(plan->positions[1].gather_row, plan->positions[4].gather_row);
    cr_assert_eq(plan->rows[plan->positions[1].narrow_row].bytes, RANKS * most[1]);
    cr_assert_neq(plan->positions[1].narrow_row, plan->positions[2].narrow_row);
    cr_assert_lt(RANKS * most[0] * 10, 2 * plan->layers[0].layout.padded_count * 6, "about half");
    eo_plan_destroy(&plan);
    eo_plan_destroy(&plain);
    eo_model_destroy(&model);
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

/* -- settings and fingerprints -------------------------------------------------------------------------------------*/

/*
 * Plans are equal exactly where model and settings are: their fingerprints tell.
 * Method: each setting changed alone, and models that differ in one thing, all against each other; and twice the same.
 */
static eo_model *small_model(const char *name, uint64_t rows, uint64_t columns, bool no_weight_decay, bool subset)
{
    eo_model *model;
    cr_assert_eq(eo_model_create(&model, eo_model_params(.name = name, .log = &eo_test_log)), EO_OK);
    cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "layer"), NULL), EO_OK);
    cr_assert_eq(eo_model_add_parameter(model,
                                        eo_parameter_params(.name = "a", .dim_count = 2, .dims = {rows, columns},
                                                            .no_weight_decay = no_weight_decay),
                                        NULL),
                 EO_OK);
    cr_assert_eq(eo_model_add_parameter(model, eo_parameter_params(.name = "b", .dim_count = 1, .dims = {64}), NULL),
                 EO_OK);
    const uint32_t first = 0;
    cr_assert_eq(eo_model_add_position(model,
                                       eo_position_params(.parameters = subset ? &first : NULL,
                                                          .parameter_count = subset),
                                       NULL),
                 EO_OK);
    return model;
}

Test(plan, fingerprints_differ_where_plans_do)
{
    const eo_plan_params settings[] = {
        {.rank_count = 2},
        {.rank_count = 3},
        {.rank_count = 2, .micro_batches = 2},
        {.rank_count = 2, .gather_slots = 3},
        {.rank_count = 2, .gradient_slots = 1},
        {.rank_count = 2, .dtype = EO_DTYPE_BF16},
        {.rank_count = 2, .reduce_dtype = EO_DTYPE_BF16},
        {.rank_count = 2, .optimizer_states = 3},
        {.rank_count = 2, .align_bytes = 512},
        {.rank_count = 2, .no_prefetch = true},
        {.rank_count = 2, .separate_reduce_stream = true},
        {.rank_count = 2, .norms_beside = true},
        {.rank_count = 2, .dtype = EO_DTYPE_BF16, .float8_gather = true},
    };
    enum { SETTINGS = sizeof(settings) / sizeof(settings[0]), MODELS = 6 };
    eo_model *const models[MODELS] = {
        eo_plan_model("edges"),
        small_model("small", 8, 16, false, false),
        small_model("other name", 8, 16, false, false),
        small_model("small", 16, 8, false, false), /* the same bytes in another shape */
        small_model("small", 8, 16, true, false),
        small_model("small", 8, 16, false, true),
    };
    uint64_t prints[SETTINGS + MODELS];
    for (uint32_t i = 0; i < SETTINGS + MODELS - 1; i++) {
        const eo_model *model = i < SETTINGS ? models[0] : models[i - SETTINGS + 1];
        uint64_t again[2];
        for (int k = 0; k < 2; k++) {
            eo_plan_summary summary;
            eo_plan *plan = plan_of(model, &settings[i < SETTINGS ? i : 0]);
            eo_plan_get_summary(plan, &summary);
            again[k] = summary.fingerprint;
            eo_plan_destroy(&plan);
        }
        cr_assert_eq(again[0], again[1]);
        prints[i] = again[0];
        for (uint32_t j = 0; j < i; j++)
            cr_assert_neq(prints[i], prints[j], "%u and %u have one fingerprint", j, i);
    }
    for (int m = 0; m < MODELS; m++)
        eo_model_destroy((eo_model **)&models[m]);
}

/*
 * Settings that make no sense are refused with a text that names them; nothing is made.
 */
Test(plan, bad_settings_are_refused_with_a_text)
{
    static const struct {
        eo_plan_params params;
        const char *text;
    } cases[] = {
        {{.rank_count = 70000}, "70000 ranks"},
        {{.micro_batches = 5000}, "5000 micro-batches"},
        {{.gather_slots = 65}, "slots 65,2"},
        {{.gradient_slots = 1000}, "slots 2,1000"},
        {{.align_bytes = 96}, "alignment 96"},
        {{.align_bytes = 32}, "alignment 32"},
        {{.align_bytes = 1u << 22}, "alignment 4194304"},
        {{.optimizer_states = 9}, "9 optimizer states"},
        {{.dtype = (eo_dtype)7}, "element type"},
        {{.reduce_dtype = (eo_dtype)7}, "element type"},
        {{.dtype = EO_DTYPE_FLOAT8}, "element type"},
        {{.rank_count = 2, .float8_gather = true}, "needs dtype bf16"},
        {{.rank_count = 1, .dtype = EO_DTYPE_BF16, .float8_gather = true}, "zero3 on 1 rank gathers no weights"},
        {{.rank_count = 4, .dtype = EO_DTYPE_BF16, .float8_gather = true, .strategy = EO_STRATEGY_DDP},
         "ddp on 4 ranks gathers no weights"},
    };
    eo_model *model = eo_plan_model("edges");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eo_plan_params params = cases[i].params;
        eo_plan *plan = (eo_plan *)model;
        params.log = &eo_test_log;
        eo_test_text[0] = '\0';
        cr_assert_eq(eo_plan_create(&plan, model, &params), EO_ERR_INVALID);
        cr_assert_null(plan);
        cr_assert(strstr(eo_test_text, cases[i].text), "case %zu: '%s'", i, eo_test_text);
    }
    eo_plan *plan;
    eo_model *unmarked = small_model("small", 8, 16, false, false);
    const eo_plan_params float8 = {.rank_count = 2, .dtype = EO_DTYPE_BF16, .float8_gather = true, .log = &eo_test_log};
    cr_assert_eq(eo_plan_create(&plan, unmarked, &float8), EO_ERR_INVALID);
    cr_assert(strstr(eo_test_text, "model 'small' has no parameter with .float8_gather"), "'%s'", eo_test_text);
    eo_model_destroy(&unmarked);
    cr_assert_eq(eo_plan_create(&plan, NULL, eo_plan_params(.rank_count = 1)), EO_ERR_INVALID);
    cr_assert_eq(eo_plan_create(NULL, model, eo_plan_params(.rank_count = 1)), EO_ERR_INVALID);
    eo_model_destroy(&model);
}

/*
 * A list run against a clock: where every operation takes 1, what is serial adds up and what is not overlaps.
 * Method: all of communication at 0 gives the number of compute operations; all of compute at 0 the number of
 * collectives; and a step of the steady list lies between the larger of both and their sum.
 */
Test(plan, simulation_adds_up)
{
    eo_model *model = eo_plan_model("edges");
    eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 2));
    const struct eo_operation_list *list = &plan->schedule.lists[EO_LIST_STEADY];
    uint64_t compute_only[256], comm_only[256], both[256], compute = 0, comm = 0, out;
    cr_assert_lt(list->count, 256);
    for (uint32_t i = 0; i < list->count; i++) {
        const bool on_compute = list->operations[i].stream == EO_STREAM_COMPUTE;
        compute_only[i] = on_compute;
        comm_only[i] = !on_compute;
        both[i] = 1;
        compute += on_compute;
        comm += !on_compute;
    }
    cr_assert_eq(eo_plan_simulate(plan, EO_LIST_STEADY, compute_only, 3, &out), EO_OK);
    cr_assert_eq(out, compute);
    cr_assert_eq(eo_plan_simulate(plan, EO_LIST_STEADY, comm_only, 3, &out), EO_OK);
    cr_assert_eq(out, comm);
    cr_assert_eq(eo_plan_simulate(plan, EO_LIST_STEADY, both, 3, &out), EO_OK);
    cr_assert(out >= (compute > comm ? compute : comm) && out <= compute + comm, "%llu", (unsigned long long)out);
    cr_assert_lt(out, compute + comm, "nothing overlaps");
    cr_assert_eq(eo_plan_simulate(plan, EO_LIST_STEADY, both, 0, &out), EO_ERR_INVALID);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

/*
 * What is printed and written holds every row and operation.
 * Method: names looked up in the texts, braces of the JSON counted.
 */
struct text {
    char bytes[1 << 19];
    size_t used;
};

static void collect(void *user, const char *text, size_t bytes)
{
    struct text *out = user;
    cr_assert_lt(out->used + bytes, sizeof(out->bytes));
    memcpy(out->bytes + out->used, text, bytes);
    out->used += bytes;
    out->bytes[out->used] = '\0';
}

Test(plan, texts_name_every_row)
{
    static struct text text, json;
    eo_model *model = eo_plan_model("tied");
    eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 2));
    eo_plan_print(plan, collect, &text);
    eo_plan_write_json(plan, collect, &json);
    eo_plan_summary summary;
    eo_plan_get_summary(plan, &summary);
    for (uint32_t r = 0; r < summary.row_count; r++) {
        eo_plan_row row;
        cr_assert_eq(eo_plan_get_row(plan, r, &row), EO_OK);
        cr_assert(strstr(json.bytes, row.name), "%s", row.name);
    }
    eo_plan_row row;
    cr_assert_eq(eo_plan_get_row(plan, summary.row_count, &row), EO_ERR_INVALID);
    eo_plan_operation operation;
    cr_assert_eq(eo_plan_get_operation(plan, EO_LIST_STEADY, summary.operation_count, &operation), EO_ERR_INVALID);
    int depth = 0;
    for (size_t i = 0; i < json.used; i++) {
        depth += json.bytes[i] == '{' || json.bytes[i] == '[';
        depth -= json.bytes[i] == '}' || json.bytes[i] == ']';
        cr_assert(depth > 0 || i + 2 >= json.used);
    }
    cr_assert_eq(depth, 0);
    cr_assert(strstr(text.bytes, "gather"));
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

/*
 * A row is known by its name: no two have the same, also where a layer is an edge twice, and where buffers are called as
 * rows of ours.
 */
static void expect_unique_names(const eo_plan *plan)
{
    for (uint32_t r = 0; r < plan->row_count; r++)
        for (uint32_t before = 0; before < r; before++)
            cr_expect_str_neq(plan->rows[r].name, plan->rows[before].name, "rows %u and %u", before, r);
}

Test(plan, rows_have_names_of_their_own)
{
    static const char *const buffers[] = {"norm.local", "norm.local #2", "weights.embedding", "gather.slot0",
                                          "gather.embedding", "gradient.embedding.buffer #2", "host.steps", "own"};
    eo_model *model = NULL;
    uint32_t embedding, block;
    cr_assert_eq(eo_model_create(&model, NULL), EO_OK);
    cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "embedding"), &embedding), EO_OK);
    cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "slot0"), &block), EO_OK);
    cr_assert_eq(eo_model_add_parameter(
        model, eo_parameter_params(.layer = embedding, .name = "e", .dim_count = 1, .dims = {9000}), NULL), EO_OK);
    cr_assert_eq(eo_model_add_parameter(
        model, eo_parameter_params(.layer = block, .name = "b", .dim_count = 1, .dims = {100}), NULL), EO_OK);
    for (int p = 0; p < 3; p++)
        cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = p == 1 ? block : embedding), NULL), EO_OK);
    for (size_t b = 0; b < sizeof(buffers) / sizeof(buffers[0]); b++)
        cr_assert_eq(eo_model_add_buffer(model, eo_buffer_params(.name = buffers[b], .bytes = 8, .persistent = true,
                                                                 .category = EO_CATEGORY_OTHER), NULL), EO_OK);
    for (eo_strategy s = EO_STRATEGY_ZERO3; s < EO_STRATEGY_COUNT; s++) {
        for (uint32_t micro_batches = 1; micro_batches <= 2; micro_batches++) {
            eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 4, .strategy = s, .micro_batches = micro_batches,
                                                          .shard_group = s == EO_STRATEGY_HSDP ? 2 : 0));
            expect_unique_names(plan);
            eo_plan_row own;
            cr_assert_eq(eo_plan_get_row(plan, plan->buffers[7].row, &own), EO_OK);
            cr_expect_str_eq(own.name, "own");
            eo_plan_destroy(&plan);
        }
    }
    eo_model_destroy(&model);
}
