/* SPDX-License-Identifier: MIT
 *
 * How long a plan with its proof takes, for a model of 70 billion parameters (80 layers) over 1024 ranks with 8
 * micro-batches, and how that grows with the number of operations. Prints one JSON line:
 *
 *     plan_ms         median of eo_plan_create
 *     model_ms        median of describing the model, which comes before it
 *     operations      of the steady list
 *     growth          time an operation of twice the layers, over that of this model: 1 is linear
 *     growth_batches  likewise with twice the micro-batches
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <evenodd/layers.h>

enum { RUNS = 9, LAYERS = 80, MICRO_BATCHES = 8, RANKS = 1024 };

struct result {
    double plan_ms, model_ms;
    uint32_t operation_count;
    uint64_t arena_bytes;
};

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values)
{
    qsort(values, RUNS, sizeof(*values), by_value);
    return values[RUNS / 2];
}

static void need(eo_status status, const char *what)
{
    if (status < 0) {
        fprintf(stderr, "bench_plan: %s: %s\n", what, eo_status_text(status));
        exit(1);
    }
}

static struct result measure(uint32_t layers, uint32_t micro_batches)
{
    struct result result = {0};
    double plan_ms[RUNS], model_ms[RUNS];
    for (int run = 0; run < RUNS; run++) {
        eo_transformer *transformer;
        eo_plan *plan;
        const double begin_ms = now_ms();
        need(eo_transformer_create(&transformer, eo_transformer_params(
            .config = {.family = EO_FAMILY_LLAMA, .layer_count = layers, .width = 8192, .head_count = 64,
                       .kv_head_count = 8, .mlp_width = 28672, .vocabulary = 128256, .context = 8192},
            .batch = 1, .seq = 8192, .head_chunks = 128)), "model");
        const double described_ms = now_ms();
        need(eo_plan_create(&plan, eo_transformer_model(transformer), eo_plan_params(
            .rank_count = RANKS, .micro_batches = micro_batches)), "plan");
        plan_ms[run] = now_ms() - described_ms;
        model_ms[run] = described_ms - begin_ms;
        eo_plan_summary summary;
        eo_plan_get_summary(plan, &summary);
        result.operation_count = summary.operation_count;
        result.arena_bytes = summary.arena_bytes;
        eo_plan_destroy(&plan);
        eo_transformer_destroy(&transformer);
    }
    result.plan_ms = median(plan_ms);
    result.model_ms = median(model_ms);
    return result;
}

static double growth(const struct result *larger, const struct result *smaller)
{
    return larger->plan_ms / larger->operation_count / (smaller->plan_ms / smaller->operation_count);
}

int main(void)
{
    const struct result once = measure(LAYERS, MICRO_BATCHES);
    const struct result layers = measure(2 * LAYERS, MICRO_BATCHES), batches = measure(LAYERS, 2 * MICRO_BATCHES);
    printf("{\"plan_ms\": %.3f, \"model_ms\": %.3f, \"operations\": %u, \"arena_bytes\": %llu, \"growth\": %.3f, "
           "\"growth_batches\": %.3f}\n",
           once.plan_ms, once.model_ms, once.operation_count, (unsigned long long)once.arena_bytes,
           growth(&layers, &once), growth(&batches, &once));
    return 0;
}
