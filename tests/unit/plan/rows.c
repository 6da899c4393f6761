/* SPDX-License-Identifier: MIT
 *
 * Rows of plans: of frozen layers, edges, bf16 and float8.
 */
#include "tests/unit/plan/planned.h"

#include <stdio.h>
#include <string.h>

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

static uint64_t up(uint64_t count, uint64_t unit)
{
    return (count + unit - 1) / unit * unit;
}

/*
 * Frozen weights in MXFP8 take a byte an element and one for 32; no other row has them, but for one that all blocks are widened
 * to. Vectors beside them stay as they are. Blocks do not depend on the number of ranks, so they begin with parameters and shards.
 * Method: by hand, from offsets and shards, for each rank of several worlds, fp32 and bf16; against a plan without.
 */
Test(plan, frozen_weights_in_mxfp8_have_33_bytes_for_32_elements)
{
    enum { ALIGN = 256, BLOCK = 32 };
    eo_model *model = eo_plan_model("mixed");
    for (uint32_t ranks = 1; ranks <= 8; ranks += ranks) {
        const eo_dtype dtype = ranks % 4 ? EO_DTYPE_FP32 : EO_DTYPE_BF16;
        const uint64_t each = eo_dtype_bytes(dtype);
        eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = ranks, .dtype = dtype, .float8_frozen = true));
        eo_plan *plain = plan_of(model, eo_plan_params(.rank_count = ranks, .dtype = dtype));
        uint64_t sum = 0, before = 0, parts = 0, widened = 0;
        for (uint32_t l = 0; l < plan->layer_count; l++) {
            const struct plan_layer *layer = &plan->layers[l];
            uint64_t most = 0;
            cr_assert_eq(layer->float8_frozen, layer->frozen, "here all that is frozen has a matrix");
            for (uint32_t r = 0; layer->frozen && r < ranks; r++) {
                uint64_t bytes = 0;
                for (uint32_t k = 0; k < layer->parameter_count; k++) {
                    const struct plan_parameter *p = &plan->parameters[layer->parameter_begin + k];
                    uint64_t own = 0, room = p->element_count * (p->fp32 ? 2 : 1);
                    for (uint64_t i = 0; i < room; i++)
                        own += (p->offset + i) / layer->layout.shard_count == r;
                    cr_assert(p->offset % BLOCK == 0 && layer->layout.shard_count % BLOCK == 0);
                    bytes += p->float8_gather ? up(up(own, BLOCK) / BLOCK, 16) + up(own, 16) : up(own * each, 16);
                }
                most = bytes > most ? bytes : most;
                cr_assert_eq(eo_plan_float8_runs(plan, l, r, NULL, NULL), bytes, "layer %u, rank %u", l, r);
            }
            if (!layer->frozen)
                continue;
            cr_assert(layer->shard_row == EO_NONE && layer->master_row == EO_NONE);
            cr_assert_eq(plan->rows[layer->narrow_row].bytes, up(most, ALIGN));
            cr_assert(plan->rows[layer->narrow_row].always_live && plan->rows[layer->narrow_row].space == EO_SPACE_GATHER);
            sum += up(most, ALIGN);
            before += plain->layers[l].layout.shard_count * each;
            parts += layer->part_of != EO_NONE;
            if (layer->part_of != EO_NONE && layer->layout.padded_count > widened)
                widened = layer->layout.padded_count;
        }
        cr_assert_eq(parts, 3);
        eo_plan_summary s, p;
        eo_plan_get_summary(plan, &s);
        eo_plan_get_summary(plain, &p);
        const uint64_t of_shards = s.category_bytes[EO_CATEGORY_COMPUTE_SHARD] + s.category_bytes[EO_CATEGORY_MASTER];
        const uint64_t of_plain = p.category_bytes[EO_CATEGORY_COMPUTE_SHARD] + p.category_bytes[EO_CATEGORY_MASTER];
        cr_assert_eq(of_plain - of_shards, before - sum, "%u ranks", ranks);
        const struct plan_position *one = &plan->positions[1], *other = &plan->positions[2];
        cr_assert(one->frozen_gather_row == other->frozen_gather_row && one->frozen_narrow_row != other->frozen_narrow_row);
        cr_assert_eq(plan->rows[one->frozen_gather_row].bytes, widened * each);
        /* The one frozen layer without trainable parameters has a widened row to itself, and so finds its weights there. */
        cr_assert_leq(count_kind(plan, EO_LIST_STEADY, EO_OP_ALL_GATHER), count_kind(plain, EO_LIST_STEADY, EO_OP_ALL_GATHER));
        cr_assert_gt(count_kind(plan, EO_LIST_STEADY, EO_OP_WIDEN), 0);
        eo_plan_destroy(&plan);
        eo_plan_destroy(&plain);
    }
    eo_model_destroy(&model);
}

/* Joined parameters of 16 elements would begin within a block. */
Test(plan, frozen_parameters_joined_within_a_block_are_refused)
{
    eo_model *model;
    eo_plan *plan;
    cr_assert_eq(eo_model_create(&model, eo_model_params(.name = "joined", .log = &eo_test_log)), EO_OK);
    cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "one", .frozen = true), NULL), EO_OK);
    for (int k = 0; k < 2; k++)
        cr_assert_eq(eo_model_add_parameter(model, eo_parameter_params(.name = k ? "b" : "a", .dim_count = 1, .dims = {48},
                                                                       .float8_gather = true, .joined = k), NULL), EO_OK);
    cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = 0), NULL), EO_OK);
    plan = plan_of(model, eo_plan_params(.rank_count = 2));
    eo_plan_destroy(&plan);
    cr_assert_eq(eo_plan_create(&plan, model, eo_plan_params(.rank_count = 2, .float8_frozen = true)), EO_ERR_INVALID);
    cr_assert(strstr(eo_test_text, "'a' has no multiple of 32 elements"), "'%s'", eo_test_text);
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
