/* SPDX-License-Identifier: MIT
 *
 * Plans of the strategies: what lies where, how often something is sent, who owns what, and that their proofs miss no
 * wait. The short run takes a fixed part of all settings, EO_TEST_FULL=1 all.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "tests/unit/plan/mutate.h"
#include "tests/unit/plan/check.h"
#include "tests/unit/plan/models.h"

static const struct kind {
    const char *name;
    eo_strategy strategy;
    uint32_t group; /* of 4 ranks */
} kinds[] = {
    {"zero3", EO_STRATEGY_ZERO3, 4}, {"zero2", EO_STRATEGY_ZERO2, 4},  {"zero1", EO_STRATEGY_ZERO1, 4},
    {"ddp", EO_STRATEGY_DDP, 1},     {"hsdp:2", EO_STRATEGY_HSDP, 2},  {"hsdp:1", EO_STRATEGY_HSDP, 1},
    {"hsdp:4", EO_STRATEGY_HSDP, 4},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), RANKS = 4 };

static eo_plan *plan_of(const eo_model *model, const struct kind *kind, eo_plan_params params)
{
    eo_plan *plan;
    params.rank_count = RANKS;
    params.strategy = kind->strategy;
    params.shard_group = kind->strategy == EO_STRATEGY_HSDP ? kind->group : 0;
    params.log = &eo_test_log;
    eo_test_text[0] = '\0';
    const eo_status status = eo_plan_create(&plan, model, &params);
    cr_assert_eq(status, EO_OK, "%s: %s", kind->name, eo_test_text);
    return plan;
}

/* Some of the plans in bf16 gather in float8; some of the others keep frozen weights in MXFP8. */
static eo_plan *plan_with_float8(const eo_model *model, const struct kind *kind, eo_plan_params params)
{
    const bool is_mixed = strcmp(model->name, "mixed") == 0; /* frozen parameters in a layer are not gathered in float8 */
    params.float8_gather = params.dtype == EO_DTYPE_BF16 && kind->group > 1 && params.gather_slots != 3 && !is_mixed;
    params.float8_frozen = !params.float8_gather && params.micro_batches != 2 && eo_plan_freezes_matrices(model);
    return plan_of(model, kind, params);
}

/*
 * No two rows that live at one time share an address, and the lower bound is the largest sum of live bytes.
 * Method: as for zero3, eo_plan_check over small models, each strategy, settings.
 */
Test(plan_strategies, rows_that_live_at_one_time_lie_apart, .timeout = 900)
{
    uint32_t plans = 0, shared = 0;
    for (const struct plan_model *m = eo_plan_models; m->name; m++) {
        eo_model *model = eo_plan_model(m->name);
        for (int k = 0; k < KINDS; k++) {
            eo_plan_params params;
            for (uint32_t n = 0; eo_plan_settings(n, &params); n++) {
                if (!eo_test_full() && (n + (uint32_t)k) % 13 != 0)
                    continue;
                eo_plan *plan = plan_with_float8(model, &kinds[k], params);
                struct plan_check check;
                eo_plan_summary summary;
                eo_plan_get_summary(plan, &summary);
                cr_assert(eo_plan_check(plan, &check), "%s, %s, settings %u: %s", m->name, kinds[k].name, n, check.text);
                cr_assert_eq(check.lower_bound_bytes, summary.lower_bound_bytes, "%s, %s, settings %u", m->name,
                             kinds[k].name, n);
                cr_assert_leq(summary.lower_bound_bytes, summary.arena_bytes);
                shared += check.shared_pairs;
                plans++;
                eo_plan_destroy(&plan);
            }
        }
        eo_model_destroy(&model);
    }
    cr_assert_gt(shared, plans / 4, "hardly anything shares addresses: this test saw nothing");
    fprintf(stderr, "%u plans, %u pairs of rows that share addresses\n", plans, shared);
}

/*
 * No wait of any strategy's lists can be taken away.
 * Method: each in turn, and the proof must object.
 */
Test(plan_strategies, no_wait_can_be_missing, .timeout = 900)
{
    uint32_t waits[KINDS] = {0};
    for (const struct plan_model *m = eo_plan_models; m->name; m++) {
        eo_model *model = eo_plan_model(m->name);
        for (int k = 1; k < KINDS; k++) {
            eo_plan_params params;
            for (uint32_t n = 0; eo_plan_settings(n, &params); n++) {
                if (!eo_test_full() && (n + (uint32_t)k) % 17 != 0)
                    continue;
                eo_plan *plan = plan_with_float8(model, &kinds[k], params);
                struct eo_mutations found[EO_LIST_COUNT];
                cr_assert_eq(eo_mutate_lists(&plan->schedule, found), EO_OK);
                for (int list = 0; list < EO_LIST_COUNT; list++) {
                    cr_assert_eq(found[list].uncaught, 0, "%s, %s, settings %u: %u waits of list %d can be missing",
                                 m->name, kinds[k].name, n, found[list].uncaught, list);
                    waits[k] += found[list].caught;
                }
                eo_plan_destroy(&plan);
            }
        }
        eo_model_destroy(&model);
    }
    for (int k = 1; k < KINDS; k++) {
        cr_assert_gt(waits[k], 50, "%s", kinds[k].name);
        fprintf(stderr, "%s: %u waits taken away and missed\n", kinds[k].name, waits[k]);
    }
}

static uint32_t count_kind(const eo_plan *plan, eo_operation_kind kind, uint64_t *bytes)
{
    uint32_t count = 0;
    *bytes = 0;
    for (uint32_t i = 0; i < eo_plan_operation_count(plan, EO_LIST_STEADY); i++) {
        eo_plan_operation o;
        cr_assert_eq(eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o), EO_OK);
        count += o.kind == kind;
        *bytes += o.kind == kind ? o.bytes : 0;
    }
    return count;
}

/*
 * With zero2 and zero1 frozen weights in MXFP8 lie on each rank as they were gathered: once, not in each step. They are widened
 * into buffers, one for all of the body.
 * Method: rows against the parts of all ranks; a step's gathers against those of a plan in which nothing is in MXFP8.
 */
Test(plan_strategies, frozen_weights_in_mxfp8_stay_as_they_were_gathered)
{
    static const char *const models[] = {"mixed", "frozen", "frozen_tied", "all_frozen"};
    for (uint32_t n = 0; n < 8; n++) {
        const struct kind *kind = &kinds[1 + n % 2];
        eo_model *model = eo_plan_model(models[n / 2]);
        eo_plan *plan = plan_of(model, kind, (eo_plan_params){.float8_frozen = true}), *plain = plan_of(model, kind, (eo_plan_params){0});
        uint64_t bytes, plain_bytes;
        uint32_t body_row = EO_NONE;
        for (uint32_t p = 0; p < plan->position_count; p++) {
            const struct plan_position *position = &plan->positions[p];
            const struct plan_layer *layer = &plan->layers[position->layer];
            const bool is_part = layer->frozen_part != EO_NONE;
            const struct plan_layer *frozen = is_part ? &plan->layers[layer->frozen_part] : layer;
            const uint32_t narrow = is_part ? position->frozen_narrow_row : position->narrow_row;
            const uint32_t wide = is_part ? position->frozen_gather_row : position->gather_row;
            if (!frozen->float8_frozen)
                continue;
            cr_assert(plan->rows[narrow].always_live && !plan->rows[wide].always_live, "%s", models[n / 2]);
            cr_assert_eq(plan->rows[narrow].bytes, frozen->narrow_bytes * RANKS);
            cr_assert_geq(plan->rows[wide].bytes, frozen->layout.padded_count * sizeof(float));
            if (is_part && !layer->edge && body_row != EO_NONE)
                cr_assert_eq(wide, body_row);
            body_row = is_part && !layer->edge ? wide : body_row;
        }
        const uint32_t count = count_kind(plan, EO_OP_ALL_GATHER, &bytes), plain_count = count_kind(plain, EO_OP_ALL_GATHER, &plain_bytes);
        cr_assert(count == plain_count && bytes == plain_bytes, "%s, %s: %u gathers and not %u", models[n / 2], kind->name, count, plain_count);
        cr_assert_gt(count_kind(plan, EO_OP_WIDEN, &bytes), 0);
        eo_plan_destroy(&plan);
        eo_plan_destroy(&plain);
        eo_model_destroy(&model);
    }
}

/*
 * A step sends what its strategy says, as often as counted by hand.
 * Method: four equal blocks between an embedding and a head of their own, fp32: 6 layers with one use each, with 1 and
 * 3 micro-batches.
 */
Test(plan_strategies, collectives_are_as_many_as_counted_by_hand)
{
    eo_model *model = eo_plan_model_of_blocks(4);
    for (uint32_t batches = 1; batches <= 3; batches += 2) {
        const uint32_t all = 6 * batches;
        const struct {
            uint32_t gathers, reductions, all_reduces; /* UINT32_MAX: not counted here */
        } want[KINDS] = {
            {UINT32_MAX, all, 0}, /* zero3 */
            {6, all, 0},          /* zero2 */
            {6, 6, 0},            /* zero1 */
            {0, 0, 6},            /* ddp */
            {UINT32_MAX, all, 6}, /* hsdp:2 */
            {0, 0, 6},            /* hsdp:1 */
            {UINT32_MAX, all, 0}, /* hsdp:4 */
        };
        uint32_t of_zero3 = 0;
        for (int k = 0; k < KINDS; k++) {
            eo_plan *plan = plan_of(model, &kinds[k], (eo_plan_params){.micro_batches = batches});
            uint64_t bytes, padded = 0;
            for (uint32_t l = 0; l < plan->layer_count; l++)
                padded += plan->layers[l].layout.padded_count;
            const uint32_t gathers = count_kind(plan, EO_OP_ALL_GATHER, &bytes);
            of_zero3 = k == 0 ? gathers : of_zero3;
            cr_assert_eq(gathers, want[k].gathers == UINT32_MAX ? of_zero3 : want[k].gathers, "%s: %u gathers",
                         kinds[k].name, gathers);
            cr_assert_eq(count_kind(plan, EO_OP_REDUCE_SCATTER, &bytes), want[k].reductions, "%s", kinds[k].name);
            cr_assert_eq(bytes, padded * 4 * want[k].reductions / 6, "%s: %llu bytes", kinds[k].name,
                         (unsigned long long)bytes);
            cr_assert_eq(count_kind(plan, EO_OP_ALL_REDUCE, &bytes), want[k].all_reduces, "%s", kinds[k].name);
            cr_assert_eq(bytes, want[k].all_reduces ? padded * 4 / kinds[k].group : 0, "%s: %llu bytes", kinds[k].name,
                         (unsigned long long)bytes);
            eo_plan_destroy(&plan);
        }
    }
    eo_model_destroy(&model);
}

/*
 * Optimizer state, weights and gradients take what the strategy's table says, and less is held where more is sharded.
 * Method: bytes by category against the padded elements of a layer and the size of the groups; then arenas compared.
 */
Test(plan_strategies, memory_is_what_the_table_says)
{
    eo_model *model = eo_plan_model_of_blocks(8);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (uint32_t batches = 1; batches <= 3; batches += 2) {
            uint64_t arena[KINDS];
            for (int k = 0; k < KINDS; k++) {
                const struct kind *kind = &kinds[k];
                eo_plan *plan = plan_of(model, kind, (eo_plan_params){.micro_batches = batches,
                                                                      .dtype = bf16 ? EO_DTYPE_BF16 : EO_DTYPE_FP32});
                uint64_t padded = 0, largest = 0;
                for (uint32_t l = 0; l < plan->layer_count; l++) {
                    const uint64_t count = plan->layers[l].layout.padded_count;
                    padded += count;
                    largest = count > largest ? count : largest;
                }
                const uint64_t weight = bf16 ? 2 : 4, part = padded / kind->group;
                const bool resident = kind->strategy == EO_STRATEGY_ZERO2 || kind->strategy == EO_STRATEGY_ZERO1;
                eo_plan_summary s;
                eo_plan_get_summary(plan, &s);
                const uint64_t *bytes = s.category_bytes;
                cr_assert_eq(bytes[EO_CATEGORY_OPTIMIZER], 8 * part, "%s", kind->name);
                cr_assert_eq(bytes[EO_CATEGORY_MASTER] + bytes[EO_CATEGORY_COMPUTE_SHARD], 4 * part, "%s", kind->name);
                if (resident)
                    cr_assert_eq(bytes[EO_CATEGORY_GATHER_BUFFER], weight * padded, "%s", kind->name);
                if (kind->group == 1)
                    cr_assert_eq(bytes[EO_CATEGORY_GATHER_BUFFER], 0, "%s", kind->name);
                const bool has_sum = kind->strategy == EO_STRATEGY_ZERO1 && batches > 1;
                cr_assert_eq(bytes[EO_CATEGORY_GRADIENT], 4 * part + (has_sum ? 4 * padded : 0), "%s", kind->name);
                arena[k] = s.arena_bytes;
                eo_plan_destroy(&plan);
            }
            /* zero3 <= zero2 <= zero1 <= ddp, and zero3 = hsdp:4 <= hsdp:2 <= hsdp:1 = ddp */
            cr_assert(arena[0] < arena[1] && arena[1] <= arena[2] && arena[2] < arena[3]);
            cr_assert(arena[0] == arena[6] && arena[6] < arena[4] && arena[4] < arena[5] && arena[5] == arena[3]);
            cr_assert_eq(arena[1] == arena[2], batches == 1, "with one micro-batch zero1 has nothing to add up");
        }
    }
    eo_model_destroy(&model);
}

/* Parts come in order, lie inside of the shard, and where the place of their parameter says. */
static uint64_t elements_in_parts(const eo_plan *plan, uint32_t layer, uint32_t rank, const eo_shard_range *range)
{
    uint64_t elements = 0, end = 0;
    eo_shard_part part;
    for (uint32_t i = 0; eo_plan_shard_part(plan, layer, rank, i, &part) == EO_OK; i++) {
        eo_parameter_place place;
        cr_assert_eq(eo_plan_parameter_place(plan, part.parameter, &place), EO_OK);
        cr_assert(part.at >= end && part.count > 0 && part.at + part.count <= range->count);
        cr_assert(place.layer == layer && place.group == part.group && part.from + part.count <= place.count);
        cr_assert_eq(place.offset + part.from, range->offset + part.at);
        end = part.at + part.count;
        elements += part.count;
    }
    return elements;
}

/*
 * Owners: the ranks of one replica have each element of a layer once, all replicas alike.
 * Method: every strategy, every layer, counted.
 */
Test(plan_strategies, every_element_has_one_owner_a_replica)
{
    eo_model *model = eo_plan_model("unequal");
    eo_shard_range range;
    for (int k = 0; k < KINDS; k++) {
        eo_plan *plan = plan_of(model, &kinds[k], (eo_plan_params){0});
        uint64_t elements = 0;
        for (uint32_t l = 0; l < plan->layer_count; l++) {
            for (uint32_t rank = 0; rank < RANKS; rank++) {
                cr_assert_eq(eo_plan_shard_range(plan, l, rank, &range), EO_OK);
                if (range.replica == 0)
                    elements += elements_in_parts(plan, l, rank, &range);
                cr_assert_eq(range.replica, rank / kinds[k].group, "%s", kinds[k].name);
                cr_assert_eq(range.offset, rank % kinds[k].group * range.count, "%s", kinds[k].name);
                cr_assert_eq(range.count * kinds[k].group, plan->layers[l].layout.padded_count, "%s", kinds[k].name);
            }
        }
        cr_assert_eq(elements, eo_model_element_count(model), "%s", kinds[k].name);
        cr_assert_eq(eo_plan_shard_range(plan, plan->layer_count, 0, &range), EO_ERR_INVALID);
        cr_assert_eq(eo_plan_shard_range(plan, 0, RANKS, &range), EO_ERR_INVALID);
        eo_plan_destroy(&plan);
    }
    eo_model_destroy(&model);
}

/* Goal: what cannot be is refused with a text, and plans of two strategies are never taken for one. */
Test(plan_strategies, bad_settings_are_refused_and_fingerprints_differ)
{
    static const struct {
        eo_plan_params params;
        const char *text;
    } cases[] = {
        {{.rank_count = 4, .strategy = EO_STRATEGY_HSDP}, "needs the size of its groups"},
        {{.rank_count = 4, .strategy = EO_STRATEGY_HSDP, .shard_group = 3}, "groups of 3 do not divide 4 ranks"},
        {{.rank_count = 4, .strategy = EO_STRATEGY_HSDP, .shard_group = 8}, "groups of 8 do not divide 4 ranks"},
        {{.rank_count = 4, .strategy = EO_STRATEGY_ZERO1, .shard_group = 2}, "shard_group is for hsdp"},
        {{.rank_count = 4, .strategy = (eo_strategy)9}, "unknown strategy 9"},
    };
    eo_model *model = eo_plan_model("edges");
    uint64_t prints[KINDS];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eo_plan_params params = cases[i].params;
        eo_plan *plan;
        params.log = &eo_test_log;
        cr_assert_eq(eo_plan_create(&plan, model, &params), EO_ERR_INVALID);
        cr_assert(strstr(eo_test_text, cases[i].text), "case %zu: '%s'", i, eo_test_text);
    }
    for (int k = 0; k < KINDS; k++) {
        eo_plan *plan = plan_of(model, &kinds[k], (eo_plan_params){0});
        eo_plan_summary s;
        eo_plan_get_summary(plan, &s);
        prints[k] = s.fingerprint;
        for (int j = 0; j < k; j++)
            cr_assert_neq(prints[j], prints[k], "%s and %s", kinds[j].name, kinds[k].name);
        eo_plan_destroy(&plan);
    }
    eo_model_destroy(&model);
}
