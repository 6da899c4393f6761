/* SPDX-License-Identifier: MIT
 *
 * Plans: settings that are refused, what differs and what does not, and texts.
 */
#include "tests/unit/plan/planned.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/written.h"

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

/* Layers of one size, used in the order of `uses`. */
static eo_model *equal_layers(const uint32_t uses[3])
{
    eo_model *model;
    cr_assert_eq(eo_model_create(&model, NULL), EO_OK);
    for (uint32_t l = 0; l < 3; l++) {
        char name[8];
        snprintf(name, sizeof(name), "l%u", l);
        cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = name), NULL), EO_OK);
        cr_assert_eq(
            eo_model_add_parameter(model, eo_parameter_params(.layer = l, .name = name, .dim_count = 1, .dims = {300}), NULL),
            EO_OK);
    }
    for (uint32_t p = 0; p < 3; p++)
        cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = uses[p]), NULL), EO_OK);
    return model;
}

/* Goal: ranks whose models use their layers in another order are told apart. Method: layers of one size, so that rows and
 * operations are alike but for the layers. */
Test(plan, fingerprints_differ_by_the_order_of_layers)
{
    static const uint32_t orders[][3] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 1, 0}};
    const eo_plan_params settings[] = {{.rank_count = 2, .micro_batches = 3},
                                       {.rank_count = 2, .offload_layers = UINT32_MAX, .late_updates = true},
                                       {.rank_count = 2, .strategy = EO_STRATEGY_DDP}};
    enum { ORDERS = sizeof(orders) / sizeof(orders[0]) };
    for (size_t k = 0; k < sizeof(settings) / sizeof(settings[0]); k++) {
        uint64_t prints[ORDERS];
        for (uint32_t o = 0; o < ORDERS; o++) {
            eo_model *model = equal_layers(orders[o]);
            eo_plan *plan = plan_of(model, &settings[k]);
            prints[o] = plan->fingerprint;
            for (uint32_t before = 0; before < o; before++)
                cr_expect_neq(prints[o], prints[before], "settings %zu, orders %u and %u", k, before, o);
            eo_plan_destroy(&plan);
            eo_model_destroy(&model);
        }
    }
}

/* Goal: no sum of bytes wraps. Method: a layer, and layers and buffers together, that are just too large, are refused with a
 * text; each parameter and buffer is within its own bounds. */
Test(plan, what_cannot_be_counted_is_refused)
{
    enum { PARAMETERS = 8, BUFFERS = 1 << 15 };
    static const char *const texts[] = {"at most 2^47", "more than 2^61 bytes", ""};
    for (int k = 0; k < 3; k++) {
        eo_model *model;
        eo_plan *plan;
        char name[EO_NAME_MAX];
        cr_assert_eq(eo_model_create(&model, eo_model_params(.log = &eo_test_log)), EO_OK);
        cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "wide"), NULL), EO_OK);
        for (uint32_t p = 0; p < (k == 0 ? PARAMETERS + 1 : PARAMETERS); p++) {
            snprintf(name, sizeof(name), "p%u", p);
            cr_assert_eq(eo_model_add_parameter(
                             model, eo_parameter_params(.name = name, .dim_count = 2, .dims = {1 << 22, 1 << 22}), NULL),
                         EO_OK);
        }
        for (uint32_t b = 0; k == 1 && b < BUFFERS; b++) {
            snprintf(name, sizeof(name), "b%u", b);
            cr_assert_eq(eo_model_add_buffer(model,
                                             eo_buffer_params(.name = name, .bytes = UINT64_C(1) << 46, .persistent = true,
                                                              .category = EO_CATEGORY_OTHER),
                                             NULL),
                         EO_OK);
        }
        cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = 0), NULL), EO_OK);
        eo_test_text[0] = '\0';
        const eo_status status = eo_plan_create(&plan, model,
                                                eo_plan_params(.rank_count = 2, .dtype = EO_DTYPE_BF16, .offload_layers = 1,
                                                               .offload_slots = 1, .optimizer_states = 8));
        cr_expect_eq(status, k < 2 ? EO_ERR_INVALID : EO_OK, "case %d: %s", k, eo_test_text);
        cr_expect(strstr(eo_test_text, texts[k]), "case %d: '%s'", k, eo_test_text);
        if (status >= 0)
            eo_plan_destroy(&plan);
        eo_model_destroy(&model);
    }
}

/* Goal: a gather brings what a layer's own ranks send. Method: a layer in two parts on four ranks against one of two ranks. */
Test(plan, gathers_of_a_layer_in_parts_are_of_its_ranks)
{
    uint64_t bytes[2] = {0};
    for (uint32_t k = 0; k < 2; k++) {
        eo_model *model;
        cr_assert_eq(eo_model_create(&model, NULL), EO_OK);
        cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "layer", .parts = k ? 2 : 1), NULL), EO_OK);
        cr_assert_eq(
            eo_model_add_parameter(
                model, eo_parameter_params(.name = "a", .dim_count = 2, .dims = {96, 64}, .float8_gather = true), NULL),
            EO_OK);
        cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "whole"), NULL), EO_OK);
        cr_assert_eq(
            eo_model_add_parameter(model, eo_parameter_params(.layer = 1, .name = "b", .dim_count = 1, .dims = {64}), NULL),
            EO_OK);
        for (uint32_t l = 0; l < 2; l++)
            cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = l), NULL), EO_OK);
        eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = k ? 4 : 2, .dtype = EO_DTYPE_BF16, .float8_gather = true));
        for (uint32_t i = 0; i < eo_plan_operation_count(plan, EO_LIST_STEADY); i++) {
            eo_plan_operation o;
            cr_assert_eq(eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o), EO_OK);
            bytes[k] += o.kind == EO_OP_ALL_GATHER && o.layer == 0 ? o.bytes : 0;
        }
        for (uint32_t rank = 0; rank < (k ? 4 : 2); rank++) {
            eo_shard_range parts, whole;
            cr_assert(eo_plan_shard_range(plan, 0, rank, &parts) == EO_OK && parts.offset == rank % 2 * parts.count);
            cr_assert(eo_plan_shard_range(plan, 1, rank, &whole) == EO_OK && whole.offset == rank * whole.count);
        }
        eo_plan_destroy(&plan);
        eo_model_destroy(&model);
    }
    cr_assert_gt(bytes[0], 0);
    cr_assert_eq(bytes[1], bytes[0], "%llu, not %llu", (unsigned long long)bytes[1], (unsigned long long)bytes[0]);
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
        {{.rank_count = 2, .float8_frozen = true}, "has no frozen parameter with .float8_gather"},
        {{.rank_count = 2, .float8_frozen = true, .dtype = EO_DTYPE_BF16, .float8_gather = true}, "leave one of them out"},
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
Test(plan, texts_name_every_row)
{
    static struct written text, json;
    eo_model *model = eo_plan_model("tied");
    eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 2));
    eo_plan_print(plan, take_written, &text);
    eo_plan_write_json(plan, take_written, &json);
    eo_plan_summary summary;
    eo_plan_get_summary(plan, &summary);
    for (uint32_t r = 0; r < summary.row_count; r++) {
        eo_plan_row row;
        cr_assert_eq(eo_plan_get_row(plan, r, &row), EO_OK);
        cr_assert(strstr(json.text, row.name), "%s", row.name);
        cr_assert_eq(row.first[0] == '\0', plan->rows[r].always_live, "%s", row.name);
        cr_assert(row.category != EO_CATEGORY_OPTIMIZER || row.space == EO_SPACE_PRIVATE, "%s", row.name);
    }
    eo_plan_row row;
    cr_assert_eq(eo_plan_get_row(plan, summary.row_count, &row), EO_ERR_INVALID);
    eo_plan_operation operation;
    cr_assert_eq(eo_plan_get_operation(plan, EO_LIST_STEADY, summary.operation_count, &operation), EO_ERR_INVALID);
    int depth = 0;
    for (size_t i = 0; i < json.used; i++) {
        depth += json.text[i] == '{' || json.text[i] == '[';
        depth -= json.text[i] == '}' || json.text[i] == ']';
        cr_assert(depth > 0 || i + 2 >= json.used);
    }
    cr_assert_eq(depth, 0);
    cr_assert(strstr(text.text, "gather"));
    cr_assert(strstr(json.text, "\"always_live\":true") && strstr(json.text, "\"always_live\":false"));
    cr_assert(strstr(json.text, "\"layer\":1") && strstr(json.text, "\"position\":1"));
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

/* Goal: settings that were given stand in both texts. Method: what comes before the bytes, without the fingerprint, differs for
 * all of them. */
Test(plan, texts_have_every_setting)
{
    static const eo_plan_params settings[] = {
        {.gather_slots = 3},
        {.gradient_slots = 3},
        {.gather_run = 2},
        {.gradient_run = 2},
        {.offload_layers = 1},
        {.offload_layers = 1, .offload_slots = 1},
        {.offload_layers = 1, .offload_gradients = true},
        {.offload_layers = 1, .late_updates = true},
        {.offload_activations = 1},
        {.ema = true},
        {.optimizer_states = 3},
        {.optimizer = EO_OPTIMIZER_LION},
        {.no_prefetch = true},
        {.separate_reduce_stream = true},
        {.offload_layers = 1, .separate_evict_stream = true},
        {.separate_reservations = true},
        {.norms_beside = true},
        {.norm_parts = true},
        {.draft = true},
        {.align_bytes = 512},
        {.micro_batches = 2},
        {.dtype = EO_DTYPE_BF16},
        {.reduce_dtype = EO_DTYPE_BF16},
    };
    enum { COUNT = sizeof(settings) / sizeof(settings[0]) };
    static struct written text, heads[2][COUNT + 1];
    eo_model *model = eo_plan_model("edges");
    for (uint32_t k = 0; k <= COUNT; k++) {
        eo_plan_params params = k < COUNT ? settings[k] : (eo_plan_params){0};
        params.rank_count = 2;
        eo_plan *plan = plan_of(model, &params);
        for (int form = 0; form < 2; form++) {
            text.used = 0;
            (form ? eo_plan_write_json : eo_plan_print)(plan, take_written, &text);
            char *end = strstr(text.text, form ? "arena_bytes" : "bytes of one rank"),
                 *print = strstr(text.text, "fingerprint ");
            cr_assert(end);
            if (print && print < end)
                memset(print, ' ', strlen("fingerprint ") + 16);
            *end = '\0';
            memcpy(heads[form][k].text, text.text, (size_t)(end - text.text) + 1);
            for (uint32_t before = 0; before < k; before++)
                cr_expect_str_neq(heads[form][k].text, heads[form][before].text, "settings %u and %u, form %d", before, k,
                                  form);
        }
        eo_plan_destroy(&plan);
    }
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
