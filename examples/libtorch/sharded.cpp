// SPDX-License-Identifier: MIT
//
// A network of libtorch, sharded: libtorch computes the passes, evenodd has weights, gradients and the optimizer's state. A
// layer is a torch::nn::Sequential. Its parameters are tensors by from_blob on evenodd's gather buffers, their gradients
// tensors on its gradient buffers: nothing is copied, and autograd adds into place.
//
//     ./sharded                        2 ranks as threads
//     evenodd-launch -n 2 ./sharded    as processes
//     ./sharded plain                  libtorch alone, on the batches of 2 ranks: the same losses, up to the order of sums
//
// Compile with the flags of libtorch and of `pkg-config evenodd`; tests/programs/libtorch_runs.py does.
#include <torch/torch.h>

#include <evenodd/evenodd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace
{

constexpr int64_t batch = 16, side = 12, classes = 10;
constexpr int steps = 20;
constexpr float learning_rate = 3e-3f, weight_decay = 0.01f;

using Network = std::vector<torch::nn::Sequential>;

// The generator is the process's: ranks that are threads make their networks one after the other.
Network make_network()
{
    using namespace torch::nn;
    torch::manual_seed(1);
    return {Sequential(Conv2d(Conv2dOptions(1, 8, 3)), ReLU(), MaxPool2d(2)),
            Sequential(Flatten(), Linear(8 * 5 * 5, 64), GELU()),
            Sequential(LayerNorm(LayerNormOptions({64})), Linear(64, 64), GELU()), Sequential(Linear(64, classes))};
}

// Noise; the label is the lit half's.
std::pair<torch::Tensor, torch::Tensor> batch_of(uint32_t rank, int step)
{
    auto generator = at::detail::createCPUGenerator(uint64_t(1000 * step) + rank);
    const torch::Tensor labels = torch::randint(classes, {batch}, generator, torch::kLong);
    torch::Tensor images = torch::rand({batch, 1, side, side}, generator);
    images += torch::nn::functional::one_hot(labels, side).to(torch::kFloat).view({batch, 1, 1, side});
    return {images, labels};
}

void check(eo_status status, const char *what, const eo_runtime *rt = nullptr)
{
    if (status < 0)
        throw std::runtime_error(std::string(what) + ": " + (rt ? eo_runtime_error(rt) : eo_status_text(status)));
}

template <auto destroy> struct destroyer {
    template <typename T> void operator()(T *handle) const { destroy(&handle); }
};
using model_ptr = std::unique_ptr<eo_model, destroyer<eo_model_destroy>>;
using plan_ptr = std::unique_ptr<eo_plan, destroyer<eo_plan_destroy>>;
using world_ptr = std::unique_ptr<eo_world, destroyer<eo_world_destroy>>;
using runtime_ptr = std::unique_ptr<eo_runtime, destroyer<eo_runtime_destroy>>;
using rendezvous_ptr = std::unique_ptr<eo_rendezvous, destroyer<eo_rendezvous_destroy>>;

plan_ptr make_plan(const Network &network, uint32_t ranks)
{
    eo_model *raw = nullptr;
    const eo_model_params model_params{};
    check(eo_model_create(&raw, &model_params), "model");
    const model_ptr model(raw);
    for (uint32_t i = 0; i < network.size(); i++) {
        const std::string name = "layer" + std::to_string(i);
        eo_layer_params layer{};
        layer.name = name.c_str();
        check(eo_model_add_layer(raw, &layer, nullptr), "layer");
        for (const auto &item : network[i]->named_parameters()) {
            const std::string full = name + "." + item.key();
            eo_parameter_params parameter{};
            parameter.layer = i;
            parameter.name = full.c_str();
            parameter.dim_count = uint32_t(item.value().dim());
            for (uint32_t d = 0; d < parameter.dim_count; d++)
                parameter.dims[d] = uint64_t(item.value().size(d));
            check(eo_model_add_parameter(raw, &parameter, nullptr), full.c_str());
        }
        eo_position_params position{};
        position.layer = i;
        check(eo_model_add_position(raw, &position, nullptr), "position");
    }
    eo_plan *plan = nullptr;
    eo_plan_params params{};
    params.rank_count = ranks;
    check(eo_plan_create(&plan, raw, &params), "plan");
    return plan_ptr(plan);
}

eo_status copy_values(void *tensor, uint64_t offset, uint64_t count, float *values)
{
    std::memcpy(values, static_cast<torch::Tensor *>(tensor)->const_data_ptr<float>() + offset, count * sizeof(float));
    return EO_OK;
}

class Rank
{
  public:
    Rank(const eo_plan *plan, eo_world *world, Network own) : network(std::move(own)), passes(network.size())
    {
        eo_runtime_params params{};
        params.plan = plan;
        params.world = world;
        params.zero_gradients = true; // autograd adds
        check(eo_runtime_create(&rt, &params), "runtime");
        owner.reset(rt);
        uint32_t index = 0;
        for (auto &layer : network)
            for (torch::Tensor &parameter : layer->parameters())
                check(eo_weights_fill(rt, index++, copy_values, &parameter), "fill", rt);
    }

    // The mean loss of all ranks.
    double step(torch::Tensor x, const torch::Tensor &labels)
    {
        check(eo_step_begin(rt), "step", rt);
        for (uint32_t p = 0; p < network.size(); p++)
            x = forward(p, x);
        const torch::Tensor out = x.detach().requires_grad_(), loss = torch::cross_entropy_loss(out, labels);
        (loss * eo_loss_scale(rt)).backward();
        torch::Tensor gradient = out.grad();
        for (uint32_t p = uint32_t(network.size()); p-- > 0;)
            gradient = backward(p, gradient);
        eo_step_params end{};
        end.learning_rate = learning_rate;
        end.weight_decay = weight_decay;
        end.values[0] = loss.item<double>();
        eo_step_report report{};
        check(eo_step_end(rt, &end, &report), "step", rt);
        return report.values[0] * eo_loss_scale(rt);
    }

  private:
    struct Pass {
        torch::Tensor input, output;
        bool is_bound;
    };

    // A graph per layer, cut at its input. In static mode a position has the same pointers in every pass, so parameters are
    // bound once; what autograd has saved of them is there again in the backward pass.
    torch::Tensor forward(uint32_t position, const torch::Tensor &x)
    {
        Pass &pass = passes[position];
        const eo_view *view = nullptr;
        check(eo_forward_begin(rt, position, &view), "forward", rt);
        uint32_t k = 0;
        if (!std::exchange(pass.is_bound, true))
            for (torch::Tensor &parameter : network[position]->parameters())
                parameter.set_data(torch::from_blob(view->weights[k++], parameter.sizes().vec()));
        pass.input = x.detach().requires_grad_(position > 0);
        pass.output = network[position]->forward(pass.input);
        check(eo_forward_end(rt, position), "forward", rt);
        return pass.output;
    }

    torch::Tensor backward(uint32_t position, const torch::Tensor &gradient)
    {
        Pass &pass = passes[position];
        const eo_view *view = nullptr;
        check(eo_backward_begin(rt, position, &view), "backward", rt);
        check(eo_gradients_begin(rt, position, &view), "gradients", rt);
        uint32_t k = 0;
        for (torch::Tensor &parameter : network[position]->parameters())
            parameter.mutable_grad() = torch::from_blob(view->gradients[k++], parameter.sizes().vec());
        pass.output.backward(gradient);
        check(eo_backward_end(rt, position), "backward", rt);
        pass.output.reset(); // the graph
        return pass.input.grad();
    }

    Network network;
    std::vector<Pass> passes;
    eo_runtime *rt = nullptr;
    runtime_ptr owner;
};

void train(const eo_plan *plan, eo_world *world, Network network)
{
    Rank rank(plan, world, std::move(network));
    for (int step = 0; step < steps; step++) {
        const auto [images, labels] = batch_of(eo_world_rank(world), step);
        const double loss = rank.step(images, labels);
        if (eo_world_rank(world) == 0)
            std::printf("step %d loss %.6f\n", step + 1, loss);
    }
}

void train_plain(uint32_t ranks)
{
    Network network = make_network();
    std::vector<torch::Tensor> parameters;
    for (auto &layer : network)
        for (auto &parameter : layer->parameters())
            parameters.push_back(parameter);
    torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(learning_rate).weight_decay(weight_decay));
    for (int step = 0; step < steps; step++) {
        std::vector<torch::Tensor> images(ranks), labels(ranks);
        for (uint32_t r = 0; r < ranks; r++)
            std::tie(images[r], labels[r]) = batch_of(r, step);
        torch::Tensor x = torch::cat(images);
        for (auto &layer : network)
            x = layer->forward(x);
        const torch::Tensor loss = torch::cross_entropy_loss(x, torch::cat(labels));
        optimizer.zero_grad();
        loss.backward();
        optimizer.step();
        std::printf("step %d loss %.6f\n", step + 1, loss.item<double>());
    }
}

void train_threads(uint32_t ranks)
{
    const plan_ptr plan = make_plan(make_network(), ranks);
    std::vector<eo_world *> handles(ranks);
    eo_world_params params{};
    params.rank_count = ranks;
    check(eo_world_create_local(handles.data(), &params), "world");
    const std::vector<world_ptr> worlds(handles.begin(), handles.end());
    std::vector<std::string> errors(ranks);
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < ranks; r++)
        threads.emplace_back([&, r, network = make_network()]() mutable {
            try {
                train(plan.get(), worlds[r].get(), std::move(network));
            } catch (const std::exception &error) {
                errors[r] = error.what();
                eo_world_abort(worlds[r].get(), error.what()); // or the other rank waits for this one
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    for (const std::string &error : errors)
        if (!error.empty())
            throw std::runtime_error(error);
}

uint32_t number_of(const char *name)
{
    const char *text = std::getenv(name);
    return text ? uint32_t(std::strtoul(text, nullptr, 10)) : 0;
}

// One host; examples/processes.c has other launchers, several hosts, and the report of a lost rank.
void train_process(uint32_t ranks)
{
    const char *job = std::getenv("EVENODD_JOB"), *restart = std::getenv("EVENODD_RESTART");
    const std::string start = std::string(job ? job : "") + "." + (restart ? restart : "");
    eo_rendezvous_params params{};
    params.rank = params.local_rank = number_of("EVENODD_RANK");
    params.rank_count = params.local_count = ranks;
    params.job = start.c_str();
    eo_rendezvous *rendezvous = nullptr;
    check(eo_rendezvous_create(&rendezvous, &params), "rendezvous");
    const rendezvous_ptr rendezvous_owner(rendezvous);
    try {
        eo_world_join_params join{};
        join.rendezvous = rendezvous;
        eo_world *world = nullptr;
        check(eo_world_create_joined(&world, &join), "world");
        const world_ptr world_owner(world);
        const plan_ptr plan = make_plan(make_network(), ranks);
        train(plan.get(), world, make_network());
    } catch (const std::exception &error) {
        eo_rendezvous_fail(rendezvous, EO_ERR_COMM, error.what());
        throw;
    }
}

} // namespace

int main(int argc, char **argv)
{
    try {
        torch::set_num_threads(1);
        if (argc > 1 && std::string(argv[1]) == "plain")
            train_plain(2);
        else if (number_of("EVENODD_RANKS") > 0)
            train_process(number_of("EVENODD_RANKS"));
        else
            train_threads(2);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
