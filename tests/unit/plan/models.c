/* SPDX-License-Identifier: MIT */
#include "tests/unit/plan/models.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "runtime/plan/model.h"

char eo_test_text[1024];

static void keep(void *user, eo_log_level level, const char *text)
{
    (void)user;
    (void)level;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* ranks may be threads */
    pthread_mutex_lock(&lock);
    snprintf(eo_test_text, sizeof(eo_test_text), "%s", text);
    pthread_mutex_unlock(&lock);
}

const eo_log eo_test_log = {.write = keep, .level = EO_LOG_WARN};

static void must(eo_status status)
{
    if (status < 0)
        eo_fatal("the test's own model is refused: %s", eo_test_text);
}

/* A layer with a matrix of `count` elements and a bias of 3. */
static uint32_t layer(eo_model *model, uint64_t count, bool frozen)
{
    char name[EO_NAME_MAX];
    uint32_t index;
    snprintf(name, sizeof(name), "layer%u", eo_model_layer_count(model));
    must(eo_model_add_layer(model, eo_layer_params(.name = name, .frozen = frozen), &index));
    snprintf(name, sizeof(name), "matrix%u", index);
    must(eo_model_add_parameter(model,
                                eo_parameter_params(.layer = index, .name = name, .dim_count = 1, .dims = {count},
                                                    .float8_gather = true),
                                NULL));
    snprintf(name, sizeof(name), "bias%u", index);
    must(eo_model_add_parameter(
        model, eo_parameter_params(.layer = index, .name = name, .dim_count = 1, .dims = {3}, .no_weight_decay = true, .group = 1),
        NULL));
    return index;
}

static uint32_t position(eo_model *model, uint32_t layer_index, bool in_backward, bool without_weights)
{
    char name[EO_NAME_MAX];
    snprintf(name, sizeof(name), "use%u", eo_model_position_count(model));
    uint32_t index;
    must(eo_model_add_position(model,
                               eo_position_params(.layer = layer_index, .name = name,
                                                  .forward_in_backward = in_backward,
                                                  .backward_without_weights = without_weights),
                               &index));
    return index;
}

static void buffer(eo_model *model, const char *what, uint32_t p, uint64_t bytes, eo_moment first, eo_moment last)
{
    char name[EO_NAME_MAX];
    snprintf(name, sizeof(name), "%s%u", what, p);
    must(eo_model_add_buffer(model,
                             eo_buffer_params(.name = name, .bytes = bytes, .category = EO_CATEGORY_ACTIVATION,
                                              .first = first, .last = last),
                             NULL));
}

/* What a position keeps for its backward pass, what it hands on, and scratch in two passes. */
static void usual_buffers(eo_model *model, uint32_t p, uint32_t positions)
{
    buffer(model, "kept", p, 5000 + 100 * p, (eo_moment){EO_PASS_FORWARD, p}, (eo_moment){EO_PASS_BACKWARD, p});
    buffer(model, "again", p, 3000, (eo_moment){EO_PASS_RECOMPUTE, p}, (eo_moment){EO_PASS_BACKWARD, p});
    buffer(model, "scratch", p, 7000, (eo_moment){EO_PASS_FORWARD, p}, (eo_moment){EO_PASS_FORWARD, p});
    if (p + 1 < positions)
        buffer(model, "handed", p, 2000, (eo_moment){EO_PASS_FORWARD, p}, (eo_moment){EO_PASS_FORWARD, p + 1});
    if (p > 0)
        buffer(model, "error", p, 2000, (eo_moment){EO_PASS_BACKWARD, p}, (eo_moment){EO_PASS_BACKWARD, p - 1});
}

static void blocks(eo_model *model, uint32_t count)
{
    position(model, layer(model, 9000, false), false, true);
    for (uint32_t i = 0; i < count; i++)
        position(model, layer(model, 2000, false), false, false);
    position(model, layer(model, 8000, false), false, false);
    for (uint32_t p = 0; p < count + 2; p++)
        usual_buffers(model, p, count + 2);
}

static void edges(eo_model *model)
{
    blocks(model, 4);
}

static void edges_odd(eo_model *model)
{
    blocks(model, 5);
}

static void one_block(eo_model *model)
{
    blocks(model, 1);
}

static void one_layer(eo_model *model)
{
    position(model, layer(model, 1000, false), false, false);
    usual_buffers(model, 0, 1);
}

static void two_positions(eo_model *model)
{
    position(model, layer(model, 1000, false), false, false);
    position(model, layer(model, 1500, false), false, false);
    usual_buffers(model, 0, 2);
    usual_buffers(model, 1, 2);
}

/* Uniform, and no edges: the first and last layers are slots' content like all others. */
static void uniform(eo_model *model)
{
    for (uint32_t p = 0; p < 6; p++)
        position(model, layer(model, 1024, false), false, p == 0);
    for (uint32_t p = 0; p < 6; p++)
        usual_buffers(model, p, 6);
}

static void unequal(eo_model *model)
{
    static const uint64_t sizes[] = {300, 5000, 17, 2500, 900, 4100, 1};
    for (uint32_t p = 0; p < 7; p++)
        position(model, layer(model, sizes[p], false), false, false);
    for (uint32_t p = 0; p < 7; p++)
        usual_buffers(model, p, 7);
}

/* The head multiplies by the embedding, and runs in its backward pass. */
static void tied(eo_model *model)
{
    const uint32_t embedding = layer(model, 9000, false);
    position(model, embedding, false, true);
    for (uint32_t p = 1; p < 4; p++)
        position(model, layer(model, 2000, false), false, false);
    position(model, embedding, true, false);
    for (uint32_t p = 0; p < 4; p++)
        usual_buffers(model, p, 4);
    buffer(model, "logits", 4, 20000, (eo_moment){EO_PASS_BACKWARD, 4}, (eo_moment){EO_PASS_BACKWARD, 4});
    buffer(model, "hidden", 4, 2000, (eo_moment){EO_PASS_FORWARD, 3}, (eo_moment){EO_PASS_RECOMPUTE, 4});
}

/* A layer in the middle is used three times, next to itself and further off; it is no edge. */
static void tied_in_the_middle(eo_model *model)
{
    position(model, layer(model, 2500, false), false, false);
    const uint32_t shared = layer(model, 2000, false);
    position(model, shared, false, false);
    position(model, shared, false, false);
    position(model, layer(model, 1000, false), false, false);
    position(model, shared, false, false);
    position(model, layer(model, 2600, false), true, false);
    for (uint32_t p = 0; p < 5; p++)
        usual_buffers(model, p, 5);
}

static void frozen(eo_model *model)
{
    for (uint32_t p = 0; p < 6; p++)
        position(model, layer(model, p == 0 ? 9000 : 2000, p == 0 || p == 2 || p == 3), false, p == 0);
    for (uint32_t p = 0; p < 6; p++)
        usual_buffers(model, p, 6);
}

static void frozen_tied(eo_model *model)
{
    const uint32_t embedding = layer(model, 9000, true);
    position(model, embedding, false, true);
    position(model, layer(model, 2000, true), false, false);
    position(model, layer(model, 2000, false), false, false);
    position(model, embedding, true, false);
    for (uint32_t p = 0; p < 3; p++)
        usual_buffers(model, p, 3);
}

/* A layer of a frozen matrix, a trainable pair beside it, and a frozen vector behind, as an adapter of low rank has it. */
static uint32_t mixed_layer(eo_model *model, uint64_t count)
{
    static const struct {
        const char *name;
        uint64_t count; /* 0: the matrix's */
        bool frozen, fp32;
    } parts[] = {{"base", 0, true, false}, {"down", 37, false, true}, {"up", 129, false, false}, {"shift", 11, true, true}};
    char name[EO_NAME_MAX];
    uint32_t index;
    snprintf(name, sizeof(name), "layer%u", eo_model_layer_count(model));
    must(eo_model_add_layer(model, eo_layer_params(.name = name), &index));
    for (int k = 0; k < 4; k++) {
        snprintf(name, sizeof(name), "%s%u", parts[k].name, index);
        must(eo_model_add_parameter(model,
                                    eo_parameter_params(.layer = index, .name = name, .dim_count = 1,
                                                        .dims = {parts[k].count ? parts[k].count : count}, .group = k % 2,
                                                        .frozen = parts[k].frozen, .float8_gather = k == 0, .fp32 = parts[k].fp32),
                                    NULL));
    }
    return index;
}

static void mixed(eo_model *model)
{
    position(model, layer(model, 900, false), false, true);
    const uint32_t shared = mixed_layer(model, 2000);
    position(model, shared, false, false);
    position(model, mixed_layer(model, 500), false, false);
    position(model, layer(model, 700, true), false, false);
    position(model, shared, false, false);
    position(model, mixed_layer(model, 5000), true, false);
    for (uint32_t p = 0; p < 5; p++)
        usual_buffers(model, p, 5);
}

/* A layer with two norms around a matrix, and a router of `count` elements, all but the matrix in fp32. */
static uint32_t routed_layer(eo_model *model, uint64_t matrix, uint64_t router, bool frozen)
{
    const struct {
        const char *name;
        uint64_t count;
        bool fp32;
    } parts[] = {{"norm", 65, true}, {"matrix", matrix, false}, {"norm_behind", 64, true}, {"router", router, true}};
    char name[EO_NAME_MAX];
    uint32_t index;
    snprintf(name, sizeof(name), "layer%u", eo_model_layer_count(model));
    must(eo_model_add_layer(model, eo_layer_params(.name = name, .frozen = frozen), &index));
    for (int k = 0; k < 4; k++) {
        snprintf(name, sizeof(name), "%s%u", parts[k].name, index);
        must(eo_model_add_parameter(model,
                                    eo_parameter_params(.layer = index, .name = name, .dim_count = 1, .dims = {parts[k].count},
                                                        .group = k % 3 ? 1 : 0, .float8_gather = !parts[k].fp32,
                                                        .padding = k == 3 ? 5 : 0, .fp32 = parts[k].fp32),
                                    NULL));
    }
    return index;
}

/* Parameters in fp32 beside others: in edges, between them, tied, frozen, and larger than a shard would be. */
static void fp32_beside(eo_model *model)
{
    const uint32_t embedding = routed_layer(model, 9000, 300, false);
    position(model, embedding, false, true);
    position(model, routed_layer(model, 2000, 217, false), false, false);
    position(model, routed_layer(model, 300, 900, false), false, false);
    position(model, routed_layer(model, 1500, 128, true), false, false);
    position(model, layer(model, 2000, false), false, false);
    position(model, embedding, true, false);
    for (uint32_t p = 0; p < 5; p++)
        usual_buffers(model, p, 5);
}

/* No gradients: between two norms there may be no other collective. */
static void all_frozen(eo_model *model)
{
    for (uint32_t p = 0; p < 3; p++)
        position(model, layer(model, 1500, true), false, false);
    for (uint32_t p = 0; p < 3; p++)
        usual_buffers(model, p, 3);
}

/* Nothing but weights: nothing on the compute stream beside the passes tells time. */
static void bare(eo_model *model)
{
    for (uint32_t p = 0; p < 5; p++)
        position(model, layer(model, 1500, false), false, false);
    must(eo_model_add_buffer(model,
                             eo_buffer_params(.name = "table", .bytes = 777, .category = EO_CATEGORY_OTHER,
                                              .persistent = true),
                             NULL));
}

const struct plan_model eo_plan_models[] = {
    {"edges", edges},
    {"edges_odd", edges_odd},
    {"one_block", one_block},
    {"one_layer", one_layer},
    {"two_positions", two_positions},
    {"uniform", uniform},
    {"unequal", unequal},
    {"tied", tied},
    {"tied_in_the_middle", tied_in_the_middle},
    {"frozen", frozen},
    {"frozen_tied", frozen_tied},
    {"all_frozen", all_frozen},
    {"bare", bare},
    {"mixed", mixed},
    {"fp32_beside", fp32_beside},
    {NULL, NULL},
};

static eo_model *create(const char *name)
{
    eo_model *model;
    must(eo_model_create(&model, eo_model_params(.name = name, .log = &eo_test_log)));
    return model;
}

eo_model *eo_plan_model(const char *name)
{
    for (const struct plan_model *m = eo_plan_models; m->name; m++) {
        if (strcmp(m->name, name) != 0)
            continue;
        eo_model *model = create(name);
        m->describe(model);
        return model;
    }
    eo_fatal("there is no model '%s'", name);
}

eo_model *eo_plan_model_of_blocks(uint32_t count)
{
    eo_model *model = create("blocks");
    blocks(model, count);
    return model;
}

bool eo_plan_freezes_matrices(const eo_model *model)
{
    bool any = false;
    for (uint32_t p = 0; p < model->parameter_count; p++) {
        const struct model_parameter *parameter = &model->parameters[p];
        any = any || (parameter->float8_gather && (parameter->frozen || model->layers[parameter->layer].frozen));
    }
    return any;
}

bool eo_plan_settings(uint32_t n, eo_plan_params *out)
{
    static const uint32_t slots[][2] = {{1, 1}, {2, 2}, {3, 2}, {2, 1}, {1, 2}};
    static const eo_dtype types[][2] = {{EO_DTYPE_FP32, EO_DTYPE_FP32},
                                        {EO_DTYPE_BF16, EO_DTYPE_FP32},
                                        {EO_DTYPE_BF16, EO_DTYPE_BF16}};
    static const uint32_t batches[] = {1, 2, 3};
    const uint32_t s = n % 5, t = n / 5 % 3, b = n / 15 % 3, x = n / 45;
    if (x >= 4)
        return false;
    *out = (eo_plan_params){
        .gather_slots = slots[s][0],
        .gradient_slots = slots[s][1],
        .dtype = types[t][0],
        .reduce_dtype = types[t][1],
        .micro_batches = batches[b],
        .no_prefetch = x & 1,
        .separate_reduce_stream = x >> 1,
        .norms_beside = n % 4 == 1,
        .offload_layers = n % 7 == 5   ? UINT32_MAX
                          : n % 7 == 6 ? 2
                                       : 0,
        .offload_slots = n % 7 >= 5 ? n % 4 : 0,
        .offload_gradients = n % 7 >= 5 && n % 2,
        .late_updates = n % 7 >= 5 && !(x & 1) && n % 3,
        .separate_evict_stream = n % 7 >= 5 && n / 7 % 2,
        .input_gradients = n % 3 != 1,
        .log = &eo_test_log,
    };
    return true;
}

bool eo_test_full(void)
{
    const char *text = getenv("EO_TEST_FULL");
    return text && text[0] == '1';
}
