// SPDX-License-Identifier: MIT
//
// examples/line.c in C++17: two ranks fit y = 3 x - 1. Handles have owners, and a failed call is an exception.
#include <evenodd/evenodd.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace
{

constexpr uint32_t rank_count = 2;

// The library's destroy functions take the address of a handle.
template <auto destroy> struct destroyer {
    template <typename T> void operator()(T *handle) const { destroy(&handle); }
};
using model_ptr = std::unique_ptr<eo_model, destroyer<eo_model_destroy>>;
using plan_ptr = std::unique_ptr<eo_plan, destroyer<eo_plan_destroy>>;
using world_ptr = std::unique_ptr<eo_world, destroyer<eo_world_destroy>>;
using runtime_ptr = std::unique_ptr<eo_runtime, destroyer<eo_runtime_destroy>>;

void check(eo_status status, const char *what)
{
    if (status < 0)
        throw std::runtime_error(std::string(what) + ": " + eo_status_text(status));
}

// C++ assigns the fields of a parameter struct; those left at zero have their defaults.
plan_ptr make_plan()
{
    eo_model *raw_model = nullptr;
    eo_model_params model_params{};
    model_params.name = "a line";
    check(eo_model_create(&raw_model, &model_params), "model");
    const model_ptr model(raw_model);

    eo_layer_params layer{};
    layer.name = "line";
    check(eo_model_add_layer(raw_model, &layer, nullptr), "layer");
    eo_parameter_params parameter{};
    parameter.name = "w";
    parameter.dim_count = 1;
    parameter.dims[0] = 2;
    check(eo_model_add_parameter(raw_model, &parameter, nullptr), "parameter");
    const eo_position_params position{};
    check(eo_model_add_position(raw_model, &position, nullptr), "position");

    eo_plan *plan = nullptr;
    eo_plan_params plan_params{};
    plan_params.rank_count = rank_count;
    check(eo_plan_create(&plan, raw_model, &plan_params), "plan");
    return plan_ptr(plan);
}

double fit(const eo_plan *plan, eo_world *world)
{
    eo_runtime *rt = nullptr;
    eo_runtime_params params{};
    params.plan = plan;
    params.world = world;
    check(eo_runtime_create(&rt, &params), "runtime");
    const runtime_ptr owner(rt);

    eo_step_report report{};
    for (int step = 0; step < 300; step++) {
        const float x = float(step % 7 - 3) + 0.5f * float(eo_world_rank(world));
        const eo_view *view = nullptr;
        check(eo_step_begin(rt), "step");
        check(eo_forward_begin(rt, 0, &view), "forward"); // the weights are here
        const auto *w = static_cast<const float *>(view->weights[0]);
        const float error = w[0] * x + w[1] - (3 * x - 1);
        check(eo_forward_end(rt, 0), "forward");
        check(eo_backward_begin(rt, 0, &view), "backward");
        check(eo_gradients_begin(rt, 0, &view), "gradients"); // the gradient buffer is free
        auto *gradient = static_cast<float *>(view->gradients[0]);
        gradient[0] = error * x * eo_loss_scale(rt);
        gradient[1] = error * eo_loss_scale(rt);
        check(eo_backward_end(rt, 0), "backward"); // the reduction may start
        eo_step_params step_params{};
        step_params.learning_rate = 0.05f;
        step_params.values[0] = double(error) * double(error);
        check(eo_step_end(rt, &step_params, &report), "step");
    }
    return report.values[0];
}

} // namespace

int main()
{
    try {
        const plan_ptr plan = make_plan();
        std::vector<eo_world *> handles(rank_count);
        eo_world_params params{};
        params.rank_count = rank_count;
        check(eo_world_create_local(handles.data(), &params), "world");
        const std::vector<world_ptr> worlds(handles.begin(), handles.end());

        std::vector<double> sums(rank_count);
        std::vector<std::string> errors(rank_count);
        std::vector<std::thread> threads;
        for (uint32_t r = 0; r < rank_count; r++) {
            threads.emplace_back([&, r] {
                try {
                    sums[r] = fit(plan.get(), worlds[r].get());
                } catch (const std::exception &error) {
                    errors[r] = error.what();
                    eo_world_abort(worlds[r].get(), error.what()); // or the other rank waits for this one
                }
            });
        }
        for (std::thread &thread : threads)
            thread.join();
        for (const std::string &error : errors)
            if (!error.empty())
                throw std::runtime_error(error);
        std::cout << "sum of squared errors: " << sums[0] << "\n";
        return 0;
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
