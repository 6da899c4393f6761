/* SPDX-License-Identifier: MIT
 *
 * The machine's peak for the products of this very step: each shape is run by all ranks at once, as in the step, and
 * the speeds are averaged by the time that each shape takes.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/run/job.h"

enum { PRODUCTS_MAX = 64 };

static double flops_of(const eo_product *product)
{
    return 2.0 * (double)product->m * (double)product->n * (double)product->k * (double)product->per_micro_batch;
}

static int by_flops(const void *a, const void *b)
{
    const double x = flops_of(a), y = flops_of(b);
    return x < y ? 1 : x > y ? -1 : 0;
}

bool tool_job_would_gain_by_bf16(const struct tool_job *job)
{
    const struct tool_plan_settings *plan = &job->options->plan;
    const char *set = eo_kernels_name();
    return !tool_options_on_gpu(job->options) && plan->dtype == EO_DTYPE_FP32 &&
           (strcmp(set, "amx") == 0 || strcmp(set, "avx512_bf16") == 0);
}

static uint64_t operand_bytes(const eo_product *p)
{
    return eo_dtype_bytes(p->dtype) * (p->m * p->k + p->k * p->n + p->m * p->n);
}

/* What the largest product of an fp32 run would gain. All ranks at once, again. */
static void measure_bf16(struct tool_job_rank *rank, eo_product product)
{
    double fp32 = 0, bf16 = 0;
    if (!tool_job_would_gain_by_bf16(rank->job) || operand_bytes(&product) > rank->job->summary.arena_bytes ||
        eo_product_measure(rank->team, &product, &fp32) < 0)
        return;
    product.dtype = EO_DTYPE_BF16;
    if (eo_product_measure(rank->team, &product, &bf16) >= 0 && fp32 > 0 && rank->rank == 0)
        rank->job->bf16_gain = bf16 / fp32;
}

void tool_job_measure_peak(struct tool_job_rank *rank)
{
    struct tool_job *job = rank->job;
    eo_product products[PRODUCTS_MAX];
    const uint32_t count = eo_transformer_products(job->transformer, products, PRODUCTS_MAX);
    const uint64_t begin_ns = tool_now_ns();
    double flops = 0, seconds = 0;
    qsort(products, count, sizeof(products[0]), by_flops); /* the most important ones, should time run out */
    for (uint32_t i = 0; i < count; i++) {
        /* Rank 0's clock decides for all: a rank alone on the machine would be faster than in the step. */
        if (rank->rank == 0 && (double)(tool_now_ns() - begin_ns) * 1e-9 >= job->options->peak_seconds)
            atomic_store(&job->measured, true);
        pthread_barrier_wait(&job->barrier);
        const bool enough = atomic_load(&job->measured);
        pthread_barrier_wait(&job->barrier);
        if (enough)
            break;
        double speed = 0;
        if (operand_bytes(&products[i]) > job->summary.arena_bytes)
            continue;
        if (eo_product_measure(rank->team, &products[i], &speed) >= 0 && speed > 0) {
            flops += flops_of(&products[i]);
            seconds += flops_of(&products[i]) / speed;
        }
    }
    rank->peak_flops_per_s = seconds > 0 ? flops / seconds : 0;
    if (count > 0)
        measure_bf16(rank, products[0]);
}
