/* SPDX-License-Identifier: MIT
 *
 * The description of a model: what is refused, with which text, and that a refused call changes nothing.
 */
#include <criterion/criterion.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/plan/models.h"

static eo_model *start(void)
{
    eo_model *model;
    cr_assert_eq(eo_model_create(&model, eo_model_params(.name = "net", .log = &eo_test_log)), EO_OK);
    cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "first"), NULL), EO_OK);
    cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "second", .frozen = true), NULL), EO_OK);
    cr_assert_eq(eo_model_add_parameter(model,
                                        eo_parameter_params(.layer = 0, .name = "w", .dim_count = 2, .dims = {3, 5}),
                                        NULL),
                 EO_OK);
    cr_assert_eq(eo_model_add_parameter(model,
                                        eo_parameter_params(.layer = 1, .name = "v", .dim_count = 1, .dims = {7},
                                                            .no_weight_decay = true),
                                        NULL),
                 EO_OK);
    cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = 0), NULL), EO_OK);
    cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = 1), NULL), EO_OK);
    return model;
}

/* The plan of the model says all that there is: a call that changed anything would change its fingerprint. */
static uint64_t print_of(const eo_model *model)
{
    eo_plan *plan;
    eo_plan_summary summary;
    eo_test_text[0] = '\0';
    cr_assert_eq(eo_plan_create(&plan, model, eo_plan_params(.rank_count = 2, .log = &eo_test_log)), EO_OK, "%s",
                 eo_test_text);
    eo_plan_get_summary(plan, &summary);
    eo_plan_destroy(&plan);
    return summary.fingerprint;
}

#define REFUSED(call, part)                                                                                           \
    do {                                                                                                              \
        eo_test_text[0] = '\0';                                                                                       \
        cr_assert_eq(call, EO_ERR_INVALID);                                                                           \
        cr_assert(strstr(eo_test_text, part), "'%s' does not say '%s'", eo_test_text, part);                          \
        cr_assert_eq(print_of(model), before, "a refused call changed the model");                                   \
    } while (0)

/*
 * Bad layers and parameters are refused, each with a text that says what and which.
 */
Test(model, bad_layers_and_parameters_are_refused)
{
    eo_model *model = start();
    const uint64_t before = print_of(model);
    char long_name[EO_NAME_MAX + 1];
    memset(long_name, 'x', sizeof(long_name));
    long_name[EO_NAME_MAX] = '\0';
    uint32_t out = 77;
    REFUSED(eo_model_add_layer(model, eo_layer_params(.name = "first"), &out), "two layers are named 'first'");
    REFUSED(eo_model_add_layer(model, eo_layer_params(.name = NULL), &out), "needs a name");
    REFUSED(eo_model_add_layer(model, eo_layer_params(.name = ""), &out), "needs a name");
    REFUSED(eo_model_add_layer(model, eo_layer_params(.name = long_name), &out), "longer than 63");
#define PARAMETER(...) eo_model_add_parameter(model, eo_parameter_params(__VA_ARGS__), &out)
    REFUSED(PARAMETER(.layer = 0, .name = "v", .dim_count = 1, .dims = {1}), "two parameters are named 'v'");
    REFUSED(PARAMETER(.layer = 2, .name = "x", .dim_count = 1, .dims = {1}), "names layer 2");
    REFUSED(PARAMETER(.layer = 0, .name = "x"), "0 dimensions");
    REFUSED(PARAMETER(.layer = 0, .name = "x", .dim_count = 5, .dims = {1, 1, 1, 1}), "5 dimensions");
    REFUSED(PARAMETER(.layer = 0, .name = "x", .dim_count = 2, .dims = {4, 0}), "dimension 1 of parameter 'x' is 0");
    REFUSED(PARAMETER(.layer = 0, .name = "x", .dim_count = 1, .dims = {2, 3}), "1 dimensions, but dims[1] is 3");
    REFUSED(PARAMETER(.layer = 0, .name = "x", .dim_count = 2, .dims = {UINT64_MAX, 2}), "more than 2^44");
    REFUSED(PARAMETER(.layer = 1, .name = "x", .dim_count = 1, .dims = {16}, .joined = true), "joined, but no parameter");
    REFUSED(PARAMETER(.layer = 0, .name = "x", .dim_count = 1, .dims = {16}, .fp32 = true, .joined = true), "cannot be joined");
    REFUSED(PARAMETER(.layer = 0, .name = "x", .dim_count = 1, .dims = {16}, .fp32 = true, .float8_gather = true),
            "cannot be gathered in float8");
    REFUSED(PARAMETER(.layer = 0, .name = "x", .dim_count = 1, .dims = {EO_FP32_ELEMENTS_MAX + 1}, .fp32 = true),
            "at most 4194304 are possible");
    REFUSED(PARAMETER(.layer = 0, .name = "x", .dim_count = 4, .dims = {1 << 16, 1 << 16, 1 << 16, 1 << 16}),
            "more than 2^44");
    REFUSED(PARAMETER(.layer = 0, .name = "x", .dim_count = 1, .dims = {1}, .padding = (UINT64_C(1) << 44) + 1),
            "a padding of more than 2^44");
    REFUSED(PARAMETER(.layer = 0, .dim_count = 1, .dims = {1}), "needs a name");
    cr_assert_eq(out, 77, "a refused call gave an index");
    cr_assert_eq(eo_model_add_layer(NULL, eo_layer_params(.name = "x"), &out), EO_ERR_INVALID);
    cr_assert_eq(eo_model_add_layer(model, NULL, &out), EO_ERR_INVALID);
    eo_model_destroy(&model);
    cr_assert_null(model);
    eo_model_destroy(&model);
    eo_model_destroy(NULL);
}

/*
 * Bad positions and buffers are refused; what can only be seen once all is known is refused by the planner.
 */
Test(model, bad_positions_and_buffers_are_refused)
{
    eo_model *model = start();
    const uint64_t before = print_of(model);
    static const uint32_t not_of_the_layer[] = {1}, no_such[] = {9};
#define POSITION(...) eo_model_add_position(model, eo_position_params(__VA_ARGS__), NULL)
    REFUSED(POSITION(.layer = 2), "names layer 2");
    REFUSED(POSITION(.layer = 0, .forward_in_backward = true, .backward_without_weights = true), "backward needs its weights");
    REFUSED(POSITION(.layer = 0, .parameter_count = 1), "no parameters");
    REFUSED(POSITION(.layer = 0, .parameters = not_of_the_layer, .parameter_count = 1), "not one of layer 'first'");
    REFUSED(POSITION(.layer = 0, .parameters = no_such, .parameter_count = 1), "parameter 9");
#define BUFFER(...) eo_model_add_buffer(model, eo_buffer_params(__VA_ARGS__), NULL)
    REFUSED(BUFFER(.name = "b", .category = EO_CATEGORY_SCRATCH), "0 bytes");
    REFUSED(BUFFER(.name = "b", .bytes = UINT64_MAX, .category = EO_CATEGORY_SCRATCH), "2^46");
    REFUSED(BUFFER(.name = "b", .bytes = 1, .category = EO_CATEGORY_MASTER), "category");
    REFUSED(BUFFER(.name = "b", .bytes = 1, .category = EO_CATEGORY_COUNT), "category");
    REFUSED(BUFFER(.bytes = 1, .category = EO_CATEGORY_SCRATCH), "needs a name");
    REFUSED(BUFFER(.name = "b", .bytes = 1, .category = EO_CATEGORY_SCRATCH, .persistent = true, .saved = true),
            "persistent and saved");
    eo_model_destroy(&model);
}

/* Names of buffers are said to be unique in the model, as others are. */
Test(model, two_buffers_of_one_name_are_refused)
{
    eo_model *model = start();
    cr_assert_eq(BUFFER(.name = "b", .bytes = 1, .category = EO_CATEGORY_SCRATCH, .persistent = true), EO_OK);
    const uint64_t before = print_of(model);
    REFUSED(BUFFER(.name = "b", .bytes = 1, .category = EO_CATEGORY_SCRATCH, .persistent = true),
            "two buffers are named 'b'");
    eo_model_destroy(&model);
}

/* Goal: many names are told apart. Method: more parameters than the index of names first has room for; each is found, none
 * may be given again, and a shorter or longer name is another. */
Test(model, each_of_many_parameters_is_found_by_its_name)
{
    enum { COUNT = 3000 };
    eo_model *model = start();
    const uint32_t before = eo_model_parameter_count(model);
    char name[EO_NAME_MAX];
    uint32_t found, out;
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "block.%u.weight", i);
        cr_assert_eq(PARAMETER(.layer = 0, .name = name, .dim_count = 1, .dims = {1}), EO_OK);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "block.%u.weight", i);
        cr_assert_eq(eo_model_find_parameter(model, name, &found), EO_OK);
        cr_assert_eq(found, before + i);
        cr_assert_eq(PARAMETER(.layer = 0, .name = name, .dim_count = 1, .dims = {1}), EO_ERR_INVALID);
        snprintf(name, sizeof(name), "block.%u.weigh", i);
        cr_assert_eq(eo_model_find_parameter(model, name, &found), EO_ERR_INVALID);
    }
    cr_assert_eq(eo_model_parameter_count(model), before + COUNT);
    eo_model_destroy(&model);
}

/*
 * Checkpoints cannot hold control characters, so no name has them; all else is taken.
 */
Test(model, names_have_no_control_characters)
{
    static const char *const names[] = {"b\tias", "bias\n", "\x01", "bi\x7f", "bi\xc2\x9b"};
    eo_model *model = start();
    uint32_t out;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        eo_model *other;
        eo_test_text[0] = '\0';
        cr_assert_eq(eo_model_create(&other, eo_model_params(.name = names[i], .log = &eo_test_log)), EO_ERR_INVALID);
        cr_assert(strstr(eo_test_text, "control character"), "'%s'", eo_test_text);
        cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = names[i]), NULL), EO_ERR_INVALID);
        cr_assert_eq(PARAMETER(.layer = 0, .name = names[i], .dim_count = 1, .dims = {1}), EO_ERR_INVALID);
        cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = 0, .name = names[i]), NULL), EO_ERR_INVALID);
    }
    cr_assert_eq(PARAMETER(.layer = 0, .name = "\xc3\x84 \"\\ ", .dim_count = 1, .dims = {1}), EO_OK);
    eo_model_destroy(&model);
}

static void expect_no_plan(const eo_model *model, const char *part)
{
    eo_plan *plan;
    eo_test_text[0] = '\0';
    cr_assert_eq(eo_plan_create(&plan, model, eo_plan_params(.rank_count = 2, .log = &eo_test_log)), EO_ERR_INVALID);
    cr_assert_null(plan);
    cr_assert(strstr(eo_test_text, part), "'%s' does not say '%s'", eo_test_text, part);
}

/*
 * Models that cannot run are refused by the planner, with the name of what is wrong.
 */
Test(model, models_that_cannot_run_have_no_plan)
{
    eo_model *model;
    cr_assert_eq(eo_model_create(&model, eo_model_params(.name = "net", .log = &eo_test_log)), EO_OK);
    expect_no_plan(model, "no layers");
    cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "first"), NULL), EO_OK);
    expect_no_plan(model, "no positions");
    cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = 0), NULL), EO_OK);
    expect_no_plan(model, "layer 'first' has no parameters; work without parameters belongs to the pass of a neighbour");
    cr_assert_eq(eo_model_add_parameter(model, eo_parameter_params(.name = "w", .dim_count = 1, .dims = {1}), NULL),
                 EO_OK);
    cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "second"), NULL), EO_OK);
    cr_assert_eq(eo_model_add_parameter(model,
                                        eo_parameter_params(.layer = 1, .name = "v", .dim_count = 1, .dims = {1}),
                                        NULL),
                 EO_OK);
    expect_no_plan(model, "layer 'second' has no position");
    cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = 1, .adds_gradients = true), NULL), EO_OK);
    expect_no_plan(model, "position 'second' adds gradients, but no later position uses layer 'second'");
    eo_model_destroy(&model);

    static const struct {
        eo_moment first, last;
        const char *text;
    } lives[] = {
        {{EO_PASS_FORWARD, 5}, {EO_PASS_FORWARD, 5}, "names position 5"},
        {{EO_PASS_FORWARD, 0}, {EO_PASS_BACKWARD, 9}, "names position 9"},
        {{(eo_pass)4, 0}, {EO_PASS_BACKWARD, 0}, "names pass 4"},
        {{EO_PASS_BACKWARD, 1}, {EO_PASS_FORWARD, 1}, "ends before it begins: it lives from backward of"},
        {{EO_PASS_BACKWARD, 0}, {EO_PASS_BACKWARD, 1}, "ends before it begins"},
        {{EO_PASS_FORWARD, 2}, {EO_PASS_BACKWARD, 2}, "runs in its backward pass"},
    };
    for (size_t i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
        model = start();
        cr_assert_eq(eo_model_add_position(model,
                                           eo_position_params(.layer = 0, .name = "head", .forward_in_backward = true),
                                           NULL),
                     EO_OK);
        cr_assert_eq(BUFFER(.name = "b", .bytes = 1, .category = EO_CATEGORY_SCRATCH, .first = lives[i].first,
                            .last = lives[i].last),
                     EO_OK);
        expect_no_plan(model, lives[i].text);
        eo_model_destroy(&model);
    }
}

/*
 * What was described is given back.
 */
Test(model, answers_are_what_was_described)
{
    eo_model *model = start();
    uint32_t index;
    eo_parameter_info info;
    cr_assert_eq(eo_model_layer_count(model), 2);
    cr_assert_eq(eo_model_position_count(model), 2);
    cr_assert_eq(eo_model_parameter_count(model), 2);
    cr_assert_eq(eo_model_element_count(model), 22);
    cr_assert_str_eq(eo_model_position_name(model, 1), "second");
    cr_assert_eq(eo_model_find_parameter(model, "v", &index), EO_OK);
    cr_assert_eq(index, 1);
    cr_assert_eq(eo_model_find_parameter(model, "x", &index), EO_ERR_INVALID);
    cr_assert_eq(eo_model_parameter(model, 1, &info), EO_OK);
    cr_assert(info.frozen && info.no_weight_decay && info.layer == 1 && info.element_count == 7);
    cr_assert_eq(eo_model_parameter(model, 0, &info), EO_OK);
    cr_assert(!info.frozen && info.dim_count == 2 && info.dims[0] == 3 && info.dims[1] == 5);
    cr_assert_eq(eo_model_parameter(model, 2, &info), EO_ERR_INVALID);
    eo_model_destroy(&model);
}
