/* SPDX-License-Identifier: MIT
 *
 * The gradient of every layer of a model, on a GPU against the CPU: the same weights and tokens, one step, through the
 * public API alone. TAP, a case a layer; a layer's error is its largest difference over its largest value.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <evenodd/layers.h>

#include "gpu_program.h"
#include "tests/tap/tap.h"

enum { LAYERS_MAX = 64, SIDES = 2 };
static const double limit_fp32 = 1e-4, limit_bf16 = 5e-2; /* bf16: a rounding of 2^-9 in every tensor on the way */

struct settings {
    long long batch, seq;
    const char *model, *dtype, *reduce, *device;
};

/* One of the two runs. */
struct side {
    eo_runtime *runtime;
    float *gradients[LAYERS_MAX];
    uint64_t counts[LAYERS_MAX];
    double loss, norm;
};

static void write_log(void *user, eo_log_level level, const char *text)
{
    (void)user;
    (void)level;
    printf("# %s\n", text);
}

static const eo_log side_log = {.write = write_log, .level = EO_LOG_WARN};

static void must(eo_status status, const char *call)
{
    if (status >= 0)
        return;
    if (status != EO_ERR_UNSUPPORTED) {
        printf("Bail out! %s: %s\n", call, eo_status_text(status));
        exit(GPU_FAILED);
    }
    tap_skip_all("%s: %s", call, eo_status_text(status));
    exit(GPU_NOT_TRIED);
}

static void *memory(uint64_t bytes)
{
    void *result = malloc(bytes ? bytes : 1);
    must(result ? EO_OK : EO_ERR_NO_MEMORY, "memory");
    return result;
}

/* Instead of an optimizer: the gradient is what is wanted. */
static void keep_gradient(void *user, const eo_shard *shard)
{
    struct side *side = user;
    if (shard->layer >= LAYERS_MAX)
        return;
    float *values = memory(shard->count * sizeof(float));
    must(eo_runtime_download(side->runtime, values, shard->gradient, shard->count * sizeof(float)), "download");
    side->gradients[shard->layer] = values;
    side->counts[shard->layer] = shard->count;
}

static void run_side(struct side *side, const struct settings *s, const char *device, const eo_tokens *tokens)
{
    const bool on_cpu = strcmp(device, "cpu") == 0;
    const eo_dtype dtype = strcmp(s->dtype, "bf16") == 0 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
    const eo_dtype reduce = strcmp(s->reduce, "bf16") == 0 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
    eo_transformer_config config;
    eo_transformer *transformer;
    eo_plan *plan;
    eo_world *world;
    eo_team *team;
    eo_step_report report;
    must(eo_transformer_preset(s->model, &config), "--model");
    must(eo_world_create_local(&world, eo_world_params(.device = device, .log = &side_log)), device);
    must(eo_transformer_create(&transformer,
                               eo_transformer_params(.config = config, .batch = (uint32_t)s->batch,
                                                     .seq = (uint32_t)s->seq, .dtype = dtype, .reduce_dtype = reduce,
                                                     .device = device, .log = &side_log)), "model");
    must(eo_plan_create(&plan, eo_transformer_model(transformer),
                        eo_plan_params(.dtype = dtype, .reduce_dtype = reduce, .log = &side_log)), "plan");
    must(eo_runtime_create(&side->runtime, eo_runtime_params(.plan = plan, .world = world, .update = keep_gradient,
                                                             .update_user = side, .log = &side_log)), "runtime");
    must(on_cpu ? eo_team_create(&team, 1)
                : eo_team_create_on(&team, eo_team_params(.device = device, .log = &side_log,
                                                          .stream = eo_runtime_stream(side->runtime))), "team");
    must(eo_transformer_prepare(transformer, side->runtime, team), "prepare");
    must(eo_transformer_initialise(transformer, side->runtime, 1), "initialise");
    must(eo_step_begin(side->runtime), "begin");
    must(eo_transformer_micro_batch(transformer, side->runtime, team, tokens, &side->loss), "micro-batch");
    must(eo_step_end(side->runtime, &(eo_step_params){.learning_rate = 0.1f}, &report), "end");
    side->norm = report.gradient_norm;
    eo_team_destroy(&team);
    eo_runtime_destroy(&side->runtime);
    eo_world_destroy(&world);
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
}

/* Largest difference over largest value. What is not finite is far from everything. */
static double error_of(const float *is, const float *expected, uint64_t count)
{
    double difference = 0, value = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double d = fabs((double)is[i] - (double)expected[i]);
        if (!isfinite(d))
            return INFINITY;
        difference = fmax(difference, d);
        value = fmax(value, fabs((double)expected[i]));
    }
    return value > 0 ? difference / value : INFINITY; /* a gradient of zeros was never computed */
}

static int report(const struct side *sides, double limit)
{
    for (uint32_t layer = 0; layer < LAYERS_MAX; layer++) {
        const struct side *cpu = &sides[0], *other = &sides[1];
        if (!cpu->gradients[layer] && !other->gradients[layer])
            continue;
        const bool both = cpu->gradients[layer] && other->gradients[layer] && cpu->counts[layer] == other->counts[layer];
        const double error = both ? error_of(other->gradients[layer], cpu->gradients[layer], cpu->counts[layer]) : INFINITY;
        tap(error <= limit, "gradient of layer %u, %llu values: largest error %.2e (limit %.0e)", layer,
            (unsigned long long)cpu->counts[layer], error, limit);
    }
    const double loss_error = fabs(sides[1].loss - sides[0].loss), norm_error = fabs(sides[1].norm / sides[0].norm - 1);
    tap(tap_program.count > 1 && loss_error <= limit && norm_error <= limit, "loss %.6f and norm %.6f against %.6f and %.6f",
        sides[1].loss, sides[1].norm, sides[0].loss, sides[0].norm);
    return tap_end() ? GPU_FAILED : GPU_HELD;
}

int main(int argc, char **argv)
{
    struct settings s = {.batch = 2, .seq = 96, .model = "tiny", .dtype = "fp32", .reduce = "fp32", .device = "cuda"};
    const struct gpu_option options[] = {
        {.name = "batch", .least = 1, .most = 256, .value = &s.batch},
        {.name = "seq", .least = 1, .most = 8192, .value = &s.seq},
        {.name = "model", .text = &s.model},
        {.name = "dtype", .text = &s.dtype},
        {.name = "reduce", .text = &s.reduce},
        {.name = "device", .text = &s.device},
    };
    gpu_options(argc, argv, options, sizeof(options) / sizeof(options[0]),
                "gradients of all layers of a model, of a device against those of the CPU");
    static struct side sides[SIDES];
    const uint64_t count = (uint64_t)s.batch * (uint64_t)s.seq;
    int32_t *tokens = memory(count * sizeof(*tokens)), *targets = memory(count * sizeof(*targets));
    uint64_t state = 12345;
    for (uint64_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)(128 + 127 * gpu_random(&state));
        targets[i] = (int32_t)(128 + 127 * gpu_random(&state));
    }
    const eo_tokens batch = {.tokens = tokens, .targets = targets};
    run_side(&sides[1], &s, s.device, &batch); /* first: a device that is not there is known at once */
    run_side(&sides[0], &s, "cpu", &batch);
    const int result = report(sides, strcmp(s.dtype, "bf16") == 0 ? limit_bf16 : limit_fp32);
    for (int side = 0; side < SIDES; side++)
        for (uint32_t layer = 0; layer < LAYERS_MAX; layer++)
            free(sides[side].gradients[layer]);
    free(tokens);
    free(targets);
    return result;
}
