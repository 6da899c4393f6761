/* SPDX-License-Identifier: MIT
 *
 * Two ranks fit a line: the example of the README, word for word.
 */
#include <evenodd/evenodd.h>
#include <stdio.h>
#include <threads.h>
#define DO(call) if ((status = (call)) < 0) break
static eo_plan *plan;
static int rank_main(void *world) /* fits y = 3 x - 1 */
{
    eo_runtime *rt; const eo_view *view; eo_step_report report;
    eo_status status = eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = world));
    for (int step = 0; step < 300 && status >= 0; step++) {
        const float x = (float)(step % 7 - 3) + 0.5f * (float)eo_world_rank(world);
        DO(eo_step_begin(rt)); DO(eo_forward_begin(rt, 0, &view)); /* the weights are here */
        const float *w = view->weights[0], error = w[0] * x + w[1] - (3 * x - 1);
        DO(eo_forward_end(rt, 0)); DO(eo_backward_begin(rt, 0, &view));
        DO(eo_gradients_begin(rt, 0, &view)); /* the gradient buffer is free */
        float *gradient = view->gradients[0], scaled = error * eo_loss_scale(rt);
        gradient[0] = scaled * x, gradient[1] = scaled;
        DO(eo_backward_end(rt, 0)); /* the reduction may start */
        DO(eo_step_end(rt, eo_step_params(.learning_rate = 0.05f, .values = {error * error}), &report));
    }
    if (status < 0) eo_world_abort(world, eo_status_text(status)); /* or the others wait for this rank */
    else if (eo_world_rank(world) == 0) printf("sum of squared errors: %g\n", report.values[0]);
    eo_runtime_destroy(&rt);
    return status < 0;
}
int main(void)
{
    eo_model *model = NULL; eo_world *worlds[2] = {NULL}; thrd_t threads[2]; int failed[2] = {1, 1};
    const bool made = eo_model_create(&model, eo_model_params(.name = "a line")) >= 0 &&
        eo_model_add_layer(model, eo_layer_params(.name = "line"), NULL) >= 0 &&
        eo_model_add_parameter(model, eo_parameter_params(.name = "w", .dim_count = 1, .dims = {2}), NULL) >= 0 &&
        eo_model_add_position(model, eo_position_params(.layer = 0), NULL) >= 0 &&
        eo_plan_create(&plan, model, eo_plan_params(.rank_count = 2)) >= 0 &&
        eo_world_create_local(worlds, eo_world_params(.rank_count = 2)) >= 0;
    for (int r = 0; r < 2 && made; r++) thrd_create(&threads[r], rank_main, worlds[r]);
    for (int r = 0; r < 2 && made; r++) thrd_join(threads[r], &failed[r]);
    for (int r = 0; r < 2; r++) eo_world_destroy(&worlds[r]);
    eo_plan_destroy(&plan), eo_model_destroy(&model);
    return failed[0] || failed[1];
}
