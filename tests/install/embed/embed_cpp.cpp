// SPDX-License-Identifier: MIT
//
// Goal: a C++17 trainer includes the same header and gets the same results.
// Method: the network of embed_network.h is described and trained with what C++ offers (owners, lambdas, exceptions
// of its own between its threads and the library), on 1, 2 and 3 ranks; each must agree with the unsharded training.

#include <evenodd/evenodd.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "embed_network.h"

namespace
{

constexpr int micro_batches = 2;

// Handles as owners: the library's destroy functions take the address of the handle and write NULL.
template <auto destroy> struct destroyer {
    template <typename T> void operator()(T *handle) const { destroy(&handle); }
};
using model_ptr = std::unique_ptr<eo_model, destroyer<eo_model_destroy>>;
using plan_ptr = std::unique_ptr<eo_plan, destroyer<eo_plan_destroy>>;
using world_ptr = std::unique_ptr<eo_world, destroyer<eo_world_destroy>>;
using runtime_ptr = std::unique_ptr<eo_runtime, destroyer<eo_runtime_destroy>>;

void check(eo_status status, const char *what, const eo_runtime *runtime = nullptr)
{
    if (status < 0)
        throw std::runtime_error(std::string(what) + ": " + eo_status_text(status) + ": " +
                                 (runtime != nullptr ? eo_runtime_error(runtime) : ""));
}

model_ptr describe()
{
    eo_model *raw = nullptr;
    eo_model_params model_params = eo_model_params();
    model_params.name = "embedded";
    check(eo_model_create(&raw, &model_params), "model");
    model_ptr model(raw);

    for (uint32_t l = 0; l < EMBED_LAYERS; l++) {
        const embed_layer &layer = embed_layers[l];
        const std::string name = "layer." + std::to_string(l);
        eo_layer_params layer_params{};
        layer_params.name = name.c_str();
        layer_params.frozen = layer.frozen != 0;
        check(eo_model_add_layer(raw, &layer_params, nullptr), "layer");

        eo_parameter_params weight{};
        weight.layer = l;
        weight.name = layer.weight;
        weight.dim_count = 2;
        weight.dims[0] = uint64_t(layer.out);
        weight.dims[1] = uint64_t(layer.in);
        check(eo_model_add_parameter(raw, &weight, nullptr), "weight");

        eo_parameter_params bias{};
        bias.layer = l;
        bias.name = layer.bias;
        bias.dim_count = 1;
        bias.dims[0] = uint64_t(layer.out);
        bias.no_weight_decay = true;
        check(eo_model_add_parameter(raw, &bias, nullptr), "bias");
    }
    for (int p = 0; p < EMBED_POSITIONS; p++) {
        const std::string name = "position." + std::to_string(p);
        eo_position_params position{};
        position.layer = uint32_t(embed_layer_of[p]);
        position.name = name.c_str();
        check(eo_model_add_position(raw, &position, nullptr), "position");
    }
    return model;
}

plan_ptr make_plan(const eo_model *model, uint32_t rank_count)
{
    eo_plan *plan = nullptr;
    eo_plan_params params{};
    params.rank_count = rank_count;
    params.micro_batches = micro_batches;
    check(eo_plan_create(&plan, model, &params), "plan");
    return plan_ptr(plan);
}

struct result {
    std::vector<double> loss, norm;
    std::vector<float> weights = std::vector<float>(EMBED_WEIGHTS);
};

const float *weight_of(const eo_view *view, int index)
{
    return static_cast<const float *>(view->weights[index]);
}
float *gradient_of(const eo_view *view, int index)
{
    return static_cast<float *>(view->gradients[index]);
}

// One rank; the result is filled by rank 0.
class trainer
{
  public:
    trainer(const eo_plan *plan, eo_world *world, uint64_t seed)
        : rank(int(eo_world_rank(world))), rank_count(int(eo_world_rank_count(world))), seed(seed),
          samples(EMBED_BATCH / micro_batches / rank_count), input(size_t(samples * EMBED_IN)),
          target(size_t(samples * EMBED_OUT)),
          outputs(EMBED_POSITIONS, std::vector<float>(size_t(samples * EMBED_WIDTH))), gradients(outputs)
    {
        eo_runtime *raw = nullptr;
        eo_runtime_params params{};
        params.plan = plan;
        params.world = world;
        check(eo_runtime_create(&raw, &params), "runtime");
        runtime.reset(raw);
        std::vector<float> initial(EMBED_WEIGHTS);
        embed_initial_weights(seed, initial.data());
        for (const embed_layer &layer : embed_layers) {
            const float *weight = initial.data() + layer.offset;
            check(eo_weights_write(raw, layer.weight, weight), "write", raw);
            check(eo_weights_write(raw, layer.bias, weight + layer.in * layer.out), "write", raw);
        }
    }

    void step(int number, result &out)
    {
        eo_runtime *rt = runtime.get();
        double loss = 0;
        check(eo_step_begin(rt), "step", rt);
        for (int m = 0; m < micro_batches; m++)
            loss += micro_batch(number, (m * rank_count + rank) * samples);
        eo_step_params params{};
        params.learning_rate = float(embed_rate);
        params.beta1 = float(embed_beta1);
        params.beta2 = float(embed_beta2);
        params.eps = float(embed_eps);
        params.weight_decay = float(embed_decay);
        params.clip = float(embed_clip);
        params.values[0] = loss;
        eo_step_report report{};
        check(eo_step_end(rt, &params, &report), "step end", rt);
        if (rank == 0) {
            out.loss.push_back(report.values[0] / (micro_batches * rank_count));
            out.norm.push_back(report.gradient_norm);
        }
    }

    // Every parameter in model order, one layer at a time: the library calls back into C++.
    void read(result &out)
    {
        struct visitor {
            result *out;
            size_t at;
        } visitor{rank == 0 ? &out : nullptr, 0};
        const auto visit = [](void *user, const eo_parameter_info *parameter, const float *values) -> eo_status {
            auto *v = static_cast<struct visitor *>(user);
            if (v->out != nullptr)
                std::copy(values, values + parameter->element_count, v->out->weights.begin() + long(v->at));
            v->at += parameter->element_count;
            return EO_OK;
        };
        check(eo_weights_visit(runtime.get(), visit, &visitor), "visit", runtime.get());
    }

  private:
    double micro_batch(int number, int first)
    {
        eo_runtime *rt = runtime.get();
        for (int s = 0; s < samples; s++)
            embed_sample(seed, number, first + s, &input[size_t(s * EMBED_IN)], &target[size_t(s * EMBED_OUT)]);
        const eo_view *view = nullptr;
        for (int p = 0; p < EMBED_POSITIONS; p++) {
            check(eo_forward_begin(rt, uint32_t(p), &view), "forward", rt);
            embed_forward(&layer_at(p), embed_has_tanh(p), samples, weight_of(view, 0), weight_of(view, 1), below(p),
                          outputs[size_t(p)].data());
            check(eo_forward_end(rt, uint32_t(p)), "forward end", rt);
        }
        double loss = 0;
        for (int p = EMBED_POSITIONS - 1; p >= 0; p--) {
            check(eo_backward_begin(rt, uint32_t(p), &view), "backward", rt);
            const float *y = outputs[size_t(p)].data();
            float *dy = gradients[size_t(p)].data();
            if (p == EMBED_POSITIONS - 1)
                loss = embed_loss(samples, y, target.data(), eo_loss_scale(rt), dy);
            else
                embed_tanh_gradient(&layer_at(p), samples, y, dy);
            if (p > 0)
                embed_input_gradient(&layer_at(p), samples, weight_of(view, 0), dy, gradients[size_t(p - 1)].data());
            if (layer_at(p).frozen == 0) {
                check(eo_gradients_begin(rt, uint32_t(p), &view), "gradients", rt);
                embed_weight_gradient(&layer_at(p), samples, below(p), dy, gradient_of(view, 0),
                                      gradient_of(view, 1));
            }
            check(eo_backward_end(rt, uint32_t(p)), "backward end", rt);
        }
        return loss;
    }

    static const embed_layer &layer_at(int p) { return embed_layers[embed_layer_of[p]]; }
    const float *below(int p) const { return p > 0 ? outputs[size_t(p - 1)].data() : input.data(); }

    int rank, rank_count;
    uint64_t seed;
    int samples; // a micro-batch
    std::vector<float> input, target;
    std::vector<std::vector<float>> outputs, gradients;
    runtime_ptr runtime;
};

result train(uint32_t rank_count, uint64_t seed)
{
    const model_ptr model = describe();
    const plan_ptr plan = make_plan(model.get(), rank_count);
    std::vector<eo_world *> handles(rank_count);
    eo_world_params params{};
    params.rank_count = rank_count;
    check(eo_world_create_local(handles.data(), &params), "world");
    const std::vector<world_ptr> worlds(handles.begin(), handles.end());

    result out;
    std::vector<std::string> errors(rank_count);
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < rank_count; r++) {
        threads.emplace_back([&, r] {
            try {
                trainer one(plan.get(), worlds[r].get(), seed);
                for (int step = 0; step < EMBED_STEPS; step++)
                    one.step(step, out);
                one.read(out);
            } catch (const std::exception &error) {
                errors[r] = error.what();
                eo_world_abort(worlds[r].get(), error.what());
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    for (const std::string &error : errors)
        if (!error.empty())
            throw std::runtime_error(error);
    return out;
}

bool agrees(const result &run, const embed_reference &reference)
{
    double worst = 0, largest = 0;
    const auto hold = [&](double got, double wanted, double scale) {
        const double distance = std::fabs(got - wanted) / scale;
        worst = distance > worst || std::isnan(distance) ? distance : worst;
    };
    for (size_t step = 0; step < EMBED_STEPS; step++) {
        hold(run.loss.at(step), reference.loss[step], reference.loss[step]);
        hold(run.norm.at(step), reference.norm[step], reference.norm[step]);
    }
    for (const double weight : reference.weights)
        largest = std::fmax(largest, std::fabs(weight));
    for (size_t i = 0; i < EMBED_WEIGHTS; i++)
        hold(double(run.weights[i]), reference.weights[i], largest);
    std::printf("# largest relative distance to the unsharded training: %.2g\n", worst);
    return worst <= 1e-5;
}

} // namespace

int main()
{
    static embed_reference reference;
    embed_reference_train(&reference, 3, 0);
    int failures = 0;
    std::printf("1..3\n");
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        bool good = false;
        try {
            good = agrees(train(ranks, 3), reference);
        } catch (const std::exception &error) {
            std::printf("# %s\n", error.what());
        }
        failures += !good;
        std::printf("%s %u - C++17: %u ranks agree with the unsharded training\n", good ? "ok" : "not ok", ranks,
                    ranks);
    }
    return failures != 0;
}
