/* SPDX-License-Identifier: MIT
 *
 * The loop that train and headtohead run, on a simulated GPU: in the ordinary way, and recorded once and replayed, with
 * validations between; every run ends in the same bits, close to those of the same run on the CPU.
 * Method: the tools' own job with real threads for ranks; kernels are the .cu files. What is wrong with the GPU is said
 * before anything is trained.
 * usage: sim_tools TEXT
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulator/cuda/sim.h"
#include "tests/tap/tap.h"
#include "tools/run/job.h"
#include "tools/shared/weights_hash.h"

enum { STEPS = 7 };

struct outcome {
    eo_status status;
    struct tool_problem problem;
    uint64_t hash;
    double losses[STEPS], validation;
    uint64_t replays; /* ranks that ended with a recorded step */
    uint64_t gpu_used_bytes;
    uint64_t told, ahead; /* the newest step with a report; steps issued beyond it, at most */
};

static const char *text;

static struct tool_options options_of(const char *device)
{
    struct tool_options options;
    tool_options_init(&options);
    options.text_paths = calloc(1, sizeof(*options.text_paths));
    options.text_paths[0] = text;
    options.text_path_count = 1;
    options.config = (eo_transformer_config){.family = EO_FAMILY_GPT2, .layer_count = 2, .width = 32, .head_count = 2,
                                             .kv_head_count = 2, .mlp_width = 64, .vocabulary = 256, .context = 16,
                                             .tied_head = true};
    options.plan.device = device;
    options.plan.threads = 1;
    options.plan.seq = 8;
    options.plan.batch = 1;
    options.steps = STEPS;
    options.warmup = 2;
    options.peak_seconds = 0;
    return options;
}

static void on_step(void *user, const struct tool_job_step *step)
{
    struct outcome *outcome = user;
    CHECK(step->step == outcome->told + 1, "step %llu is told after step %llu", (unsigned long long)step->step,
          (unsigned long long)outcome->told);
    outcome->told = step->step;
    outcome->losses[step->step - 1] = step->loss;
}

/* Steps that rank 0 has issued, without a report so far: on a GPU it is to be ahead. */
static void on_rank_step(void *user, struct tool_job_rank *rank, uint64_t step)
{
    struct outcome *outcome = user;
    if (rank->rank == 0 && step - outcome->told > outcome->ahead)
        outcome->ahead = step - outcome->told;
}

static void on_validation(void *user, uint64_t step, double loss)
{
    (void)step;
    ((struct outcome *)user)->validation = loss;
}

static eo_status on_end(void *user, struct tool_job_rank *rank)
{
    struct outcome *outcome = user;
    uint64_t hash;
    EO_TRY(tool_weights_hash(rank->runtime, &hash));
    if (rank->rank == 0) {
        outcome->hash = hash;
        outcome->replays = rank->graph.wanted && rank->graph.is_captured;
    }
    return EO_OK;
}

static struct outcome run(const struct tool_options *options, uint64_t val_every)
{
    struct outcome outcome = {0};
    struct tool_job job;
    outcome.status = tool_job_prepare(&job, options, val_every, &outcome.problem);
    if (outcome.status < 0)
        return outcome;
    job.hooks = (struct tool_job_hooks){.user = &outcome, .step = on_step, .rank_step = on_rank_step,
                                        .validation = on_validation, .end = on_end};
    job.reports_late = strcmp(options->plan.device, "cuda") == 0;
    outcome.status = tool_job_run(&job, &outcome.problem);
    outcome.gpu_used_bytes = job.gpu.used_bytes;
    CHECK(outcome.told == STEPS, "of %d steps %llu are told", (int)STEPS, (unsigned long long)outcome.told);
    tool_job_fini(&job);
    return outcome;
}

static struct outcome run_simulated(const struct tool_options *options, uint64_t val_every)
{
    sim_start(&(struct sim_config){.executor = SIM_THREADS, .device_bytes = 256u << 20});
    const struct outcome outcome = run(options, val_every);
    const uint32_t violations = sim_finish();
    CHECK(outcome.status == EO_OK, "%s", outcome.problem.text);
    CHECK(violations == 0, "%s", sim_violation(0));
    return outcome;
}

/* tolerance 0: the same bits. */
static void expect_close(const char *what, const struct outcome *a, const struct outcome *b, double tolerance)
{
    CHECK(tolerance > 0 || a->hash == b->hash, "%s: weights_hash %016llx, not %016llx", what, (unsigned long long)a->hash,
          (unsigned long long)b->hash);
    CHECK(fabs(a->validation - b->validation) <= tolerance, "%s: validation %.12g, not %.12g", what, a->validation,
          b->validation);
    for (int step = 0; step < STEPS; step++)
        CHECK(fabs(a->losses[step] - b->losses[step]) <= tolerance, "%s: step %d: loss %.12g, not %.12g", what, step,
              a->losses[step], b->losses[step]);
}

static void compare(uint32_t which)
{
    struct tool_options options = options_of("cpu");
    options.plan.dtype = which & 1 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
    options.plan.ranks = 1 + (which >> 1 & 1);
    options.plan.micro_batches = 1 + (which >> 2 & 1);
    const uint64_t val_every = which & 1 ? 3 : 0;
    const struct outcome host = run(&options, val_every);
    CHECK(host.status == EO_OK, "%s", host.problem.text);
    options.plan.device = "cuda";
    options.peak_seconds = 0.01; /* products are measured too */
    const struct outcome eager = run_simulated(&options, val_every);
    /* The CPU adds up in another order: the bounds of test_layers.c, times a loss of 5.5. */
    expect_close("operation by operation", &eager, &host, which & 1 ? 2e-2 : 1e-5);
    CHECK(eager.gpu_used_bytes > 0, "the driver was not asked");
    CHECK(host.ahead == 1 && eager.ahead == 3, "%llu steps are issued before the first of them is told, on the CPU %llu",
          (unsigned long long)eager.ahead, (unsigned long long)host.ahead);
    options.plan.graph = true;
    const struct outcome graph = run_simulated(&options, val_every);
    expect_close("as a graph", &graph, &eager, 0);
    CHECK(graph.replays == 1, "no step was recorded");
    options.plan.graph = false;
    options.memory = EO_MEMORY_DYNAMIC_CACHING;
    const struct outcome dynamic = run_simulated(&options, val_every);
    expect_close("dynamic:caching", &dynamic, &eager, 0);
    tool_options_fini(&options);
}

static void refuse(const struct sim_config *config, const struct tool_options *options, const char *words)
{
    sim_start(config);
    struct tool_job job;
    struct tool_problem problem = {0};
    const eo_status status = tool_job_prepare(&job, options, 0, &problem);
    CHECK(status < 0, "accepted, but: %s", words);
    CHECK(strstr(problem.text, words), "'%s' does not say '%s'", problem.text, words);
    (void)sim_finish();
}

static void refusals(void)
{
    struct tool_options options = options_of("cuda");
    refuse(&(struct sim_config){.no_driver = true}, &options, "driver");
    refuse(&(struct sim_config){.no_device = true}, &options, "no GPU");
    options.plan.batch = 4096;
    refuse(&(struct sim_config){.device_bytes = 128u << 20}, &options, "not enough GPU memory");
    refuse(&(struct sim_config){.device_bytes = 128u << 20}, &options, "activations");
    refuse(&(struct sim_config){.device_bytes = 128u << 20}, &options, "would fit");
    refuse(&(struct sim_config){.device_bytes = 128u << 20}, &options, "MiB are free");
    tool_options_fini(&options);
}

int main(int argc, char **argv)
{
    text = argc > 1 ? argv[1] : "README.md";
    for (uint32_t which = 0; which < 8; which++)
        compare(which);
    tap_case("train's loop on a GPU, with graphs and without, ends in the same bits, close to the CPU's");
    refusals();
    tap_case("a GPU that cannot do it is refused before anything is trained");
    return tap_end();
}
