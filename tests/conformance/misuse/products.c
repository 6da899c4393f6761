/* SPDX-License-Identifier: MIT
 *
 * A product of the trainer's that fails in a step with Muon: other ranks have its layers' updates by then, or wait for it.
 */
#include <stdio.h>
#include <string.h>

#include "tests/conformance/misuse/misuse.h"

static eo_status product_status; /* of rank 1, in step 2 */

struct multiplier {
    uint32_t rank, step;
};

static float element_of(const float *values, bool transposed, uint64_t row, uint64_t column, uint64_t rows, uint64_t columns)
{
    return values[transposed ? column * rows + row : row * columns + column];
}

static eo_status multiply_or_fail(void *user, const eo_matrix_product *p)
{
    struct multiplier *self = user;
    if (self->rank == 1 && self->step == 2) {
        self->step = 3; /* the next try works */
        return product_status;
    }
    for (uint64_t i = 0; i < p->m; i++)
        for (uint64_t j = 0; j < p->n; j++) {
            float sum = p->accumulate ? p->c[i * p->n + j] : 0;
            for (uint64_t k = 0; k < p->k; k++)
                sum += element_of(p->a, p->transpose_a, i, k, p->m, p->k) * element_of(p->b, p->transpose_b, k, j, p->k, p->n);
            p->c[i * p->n + j] = sum;
        }
    return EO_OK;
}

static void play_failing_product(struct actor *self)
{
    struct multiplier multiplier = {.rank = self->rank, .step = 1};
    struct scene *scene = self->scene;
    eo_runtime *rt;
    must(eo_runtime_create(&rt, eo_runtime_params(.plan = scene->plan, .world = scene->worlds[self->rank], .log = &eo_test_log,
                                                  .product = multiply_or_fail, .product_user = &multiplier)),
         "runtime");
    fill_all(scene, rt);
    must(whole_step(scene, rt), "step");
    multiplier.step = 2;
    scene->statuses[self->rank] = whole_step(scene, rt);
    snprintf(scene->texts[self->rank], sizeof(scene->texts[0]), "%s", eo_runtime_error(rt));
    TEST_HOLDS(NULL, eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL) == EO_ERR_INVALID);
    TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), "only eo_runtime_destroy"), "'%s'", eo_runtime_error(rt));
    eo_runtime_destroy(&rt);
}

/* Six layers, as the scenes' others: a matrix of Muon's and a bias each. */
static void open_muon(struct scene *scene)
{
    char name[32];
    *scene = (struct scene){.ranks = 2};
    must(eo_model_create(&scene->model, eo_model_params(.name = "matrices", .log = &eo_test_log)), "model");
    for (uint32_t l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof(name), "layer%u", l);
        must(eo_model_add_layer(scene->model, eo_layer_params(.name = name), NULL), "layer");
        snprintf(name, sizeof(name), "matrix%u", l);
        must(eo_model_add_parameter(
                 scene->model, eo_parameter_params(.layer = l, .name = name, .dim_count = 2, .dims = {16, 16}, .matrix = true),
                 NULL),
             "matrix");
        snprintf(name, sizeof(name), "bias%u", l);
        must(eo_model_add_parameter(scene->model, eo_parameter_params(.layer = l, .name = name, .dim_count = 1, .dims = {16}),
                                    NULL),
             "bias");
        must(eo_model_add_position(scene->model, eo_position_params(.layer = l), NULL), "position");
    }
    must(eo_plan_create(&scene->plan, scene->model,
                        eo_plan_params(.rank_count = 2, .optimizer = EO_OPTIMIZER_MUON, .log = &eo_test_log)),
         "plan");
    must(eo_world_create_local(scene->worlds, eo_world_params(.rank_count = 2, .timeout_ms = 3000, .log = &eo_test_log)),
         "world");
}

/*
 * Refusals among the statuses would else leave a step that may be ended again. Want of memory stays what it is.
 */
void failing_product(void)
{
    static const eo_status statuses[] = {EO_ERR_INVALID, EO_ERR_UNSUPPORTED, EO_ERR_IO, EO_ERR_DEVICE, EO_ERR_NO_MEMORY};
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        struct scene scene;
        open_muon(&scene);
        product_status = statuses[i];
        run_ranks(&scene, play_failing_product);
        for (uint32_t r = 0; r < 2; r++) {
            const eo_status own = product_status == EO_ERR_NO_MEMORY ? EO_ERR_NO_MEMORY : EO_ERR_DEVICE;
            TEST_EXPECT(NULL, scene.statuses[r] == (r == 1 ? own : EO_ERR_COMM), "'%s', rank %u: '%s'",
                        eo_status_text(product_status), r, eo_status_text(scene.statuses[r]));
            TEST_EXPECT(NULL,
                        strstr(scene.texts[r], "a product of parameter 'matrix") && strstr(scene.texts[r], "for Muon: ") &&
                            strstr(scene.texts[r], eo_status_text(product_status)),
                        "'%s'", scene.texts[r]);
        }
        close_scene(&scene);
    }
}
