/* SPDX-License-Identifier: MIT
 *
 * Time by cause: what a rank waits for is told under the collective that another rank is late with.
 * Method: of two ranks one pauses, in step 1 within a forward pass, in step 2 within the last backward pass, in step 3 before
 * the step's end. The other must have waited for gathers, then for reductions, then for the norm, for most of the pause.
 */
#include <stdio.h>
#include <stdlib.h>

#include <evenodd/evenodd.h>

#include "tests/conformance/ranks.h"
#include "tests/tap/threads.h"

enum { BLOCKS = 6, ELEMENTS = 64, RANKS = 2, PAUSE_MS = 60, CAUSES = EO_WAIT_NORM + 1 };

static const char *const causes[CAUSES] = {
    [EO_WAIT_ALL_GATHER] = "gathers", [EO_WAIT_REDUCE_SCATTER] = "reductions", [EO_WAIT_NORM] = "the norm"};

struct waiting {
    eo_plan *plan;
    eo_world *worlds[RANKS];
    eo_memory memory;
    double waited_ms[CAUSES]; /* of rank 0 */
};

struct waiting_rank {
    struct waiting *run;
    uint32_t rank;
};

static void must(const eo_runtime *rt, eo_status status)
{
    if (status >= 0)
        return;
    printf("Bail out! %s\n", eo_runtime_error(rt));
    exit(1);
}

static void pause_at(const struct waiting_rank *self, eo_wait cause, eo_wait paused)
{
    if (self->rank == 1 && cause == paused)
        test_pause_ms(PAUSE_MS);
}

static void step(const struct waiting_rank *self, eo_runtime *rt, eo_wait cause)
{
    const eo_view *view;
    must(rt, eo_step_begin(rt));
    for (uint32_t p = 0; p < BLOCKS; p++) {
        must(rt, eo_forward_begin(rt, p, &view));
        if (p == 1)
            pause_at(self, EO_WAIT_ALL_GATHER, cause);
        must(rt, eo_forward_end(rt, p));
    }
    for (uint32_t p = BLOCKS; p-- > 0;) {
        must(rt, eo_backward_begin(rt, p, &view));
        must(rt, eo_gradients_begin(rt, p, &view));
        for (uint32_t i = 0; i < ELEMENTS; i++)
            ((float *)view->gradients[0])[i] = 1;
        if (p == 0)
            pause_at(self, EO_WAIT_REDUCE_SCATTER, cause);
        must(rt, eo_backward_end(rt, p));
    }
    pause_at(self, EO_WAIT_NORM, cause);
    must(rt, eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL));
}

static void *train(void *arg)
{
    const struct waiting_rank *self = arg;
    static const eo_wait paused[] = {EO_WAIT_ALL_GATHER, EO_WAIT_REDUCE_SCATTER, EO_WAIT_NORM};
    eo_runtime *rt = NULL;
    eo_runtime_stats before, after;
    must(rt, eo_runtime_create(&rt, eo_runtime_params(.plan = self->run->plan, .world = self->run->worlds[self->rank],
                                                      .memory = self->run->memory)));
    for (int s = 0; s < 3; s++) {
        eo_runtime_get_stats(rt, &before);
        step(self, rt, paused[s]);
        eo_runtime_get_stats(rt, &after);
        if (self->rank == 0)
            self->run->waited_ms[paused[s]] = (double)(after.wait_ns[paused[s]] - before.wait_ns[paused[s]]) * 1e-6;
    }
    eo_runtime_destroy(&rt);
    return NULL;
}

static void wait_for_each(eo_memory memory, bool separate, const char *name)
{
    struct waiting run = {.memory = memory};
    struct waiting_rank ranks[RANKS];
    eo_model *model;
    char layer[EO_NAME_MAX];
    must(NULL, eo_model_create(&model, NULL));
    for (uint32_t l = 0; l < BLOCKS; l++) {
        snprintf(layer, sizeof(layer), "block%u", l);
        must(NULL, eo_model_add_layer(model, eo_layer_params(.name = layer), NULL));
        must(NULL, eo_model_add_parameter(
                       model, eo_parameter_params(.layer = l, .name = layer, .dim_count = 1, .dims = {ELEMENTS}), NULL));
        must(NULL, eo_model_add_position(model, eo_position_params(.layer = l), NULL));
    }
    must(NULL, eo_plan_create(&run.plan, model, eo_plan_params(.rank_count = RANKS, .separate_reduce_stream = separate)));
    must(NULL, eo_world_create_local(run.worlds, eo_world_params(.rank_count = RANKS)));
    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r] = (struct waiting_rank){&run, r};
    run_as_threads(train, ranks, RANKS, sizeof(ranks[0]));
    for (int w = 0; w < CAUSES; w++)
        TEST_EXPECT(NULL, !causes[w] || run.waited_ms[w] > PAUSE_MS / 2, "%.1f of %d ms are told as waits for %s",
                    run.waited_ms[w], PAUSE_MS, causes[w]);
    for (uint32_t r = 0; r < RANKS; r++)
        eo_world_destroy(&run.worlds[r]);
    eo_plan_destroy(&run.plan);
    eo_model_destroy(&model);
    test_report(name, RANKS);
}

int main(void)
{
    wait_for_each(EO_MEMORY_STATIC, false, "static: waits are told under what was late");
    wait_for_each(EO_MEMORY_STATIC, true, "static, with a reduce stream: waits are told under what was late");
    wait_for_each(EO_MEMORY_DYNAMIC_POOL, false, "dynamic: waits are told under what was late");
    return tap_end();
}
