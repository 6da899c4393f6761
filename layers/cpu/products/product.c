/* SPDX-License-Identifier: MIT
 *
 * Matrix products: oneDNN's sgemm on parts of C, one thread each.
 *
 * oneDNN is often built with OpenMP and would then start threads of its own in each call. Rows split by us are faster
 * (309-321 against 253 GFLOP/s, measured on two cores), so its team is held to one thread around each call:
 * omp_set_num_threads counts for the calling thread alone. The runtime of OpenMP is looked up in the process, not
 * linked: an oneDNN built without it has no such symbol, and needs none.
 */
#include "layers/cpu/kernels.h"
#include "layers/cpu/products/tiles.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include "base/thread.h"
#include "layers/kernel_table.h"
#include "layers/split.h"

static int (*omp_get_max)(void);
static void (*omp_set)(int count);
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

/* oneDNN takes a bound once: that of the first product, as programs try several sets before. */
static const struct bound {
    const char *level;
    dnnl_cpu_isa_t set;
} bounds[] = {{"amx", dnnl_cpu_isa_avx512_core_amx},
              {"avx512_bf16", dnnl_cpu_isa_avx512_core_bf16},
              {"avx512", dnnl_cpu_isa_avx512_core},
              {"avx2", dnnl_cpu_isa_avx2},
              {"plain", dnnl_cpu_isa_sse41}};
static const struct bound *_Atomic bound_picked;

void eo_product_bound(const char *level)
{
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        if (strcmp(bounds[i].level, level) == 0)
            atomic_store_explicit(&bound_picked, &bounds[i], memory_order_relaxed);
}

static void set_up_library(void)
{
    const struct bound *bound = atomic_load_explicit(&bound_picked, memory_order_relaxed);
    if (bound != NULL)
        (void)dnnl_set_max_cpu_isa(bound->set); /* refused once somebody else has used it */
    /* POSIX lets an object pointer stand for a function here; C does not, hence the way through memory. */
    *(void **)&omp_get_max = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    *(void **)&omp_set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
}

static dnnl_status_t sgemm_one_thread(const struct eo_multiply *p)
{
    pthread_once(&library_once, set_up_library);
    const int before = omp_get_max != NULL && omp_set != NULL ? omp_get_max() : 1;
    if (before != 1)
        omp_set(1);
    const dnnl_status_t status =
        dnnl_sgemm(p->a.transposed ? 'T' : 'N', p->b.transposed ? 'T' : 'N', (dnnl_dim_t)p->m, (dnnl_dim_t)p->n,
                   (dnnl_dim_t)p->k, 1.0f, p->a.values, (dnnl_dim_t)p->a.stride, p->b.values, (dnnl_dim_t)p->b.stride,
                   p->accumulate ? 1.0f : 0.0f, p->c, (dnnl_dim_t)p->c_stride);
    if (before != 1)
        omp_set(before);
    return status;
}

struct product_job {
    struct eo_multiply all;
    uint64_t part; /* rows, or columns, of a task */
    bool by_columns;
    _Atomic(dnnl_status_t) status; /* the first failure's */
};

static void product_task(void *arg, uint32_t index)
{
    struct product_job *job = arg;
    const uint64_t first = index * job->part;
    struct eo_multiply p = job->all;
    if (job->by_columns) {
        p.n = eo_split_min(job->part, p.n - first);
        p.b.values = (const float *)p.b.values + (p.b.transposed ? first * p.b.stride : first);
        p.c = (float *)p.c + first;
    } else {
        p.m = eo_split_min(job->part, p.m - first);
        p.a.values = (const float *)p.a.values + (p.a.transposed ? first : first * p.a.stride);
        p.c = (float *)p.c + first * p.c_stride;
    }
    dnnl_status_t before = dnnl_success;
    const dnnl_status_t status = sgemm_one_thread(&p);
    if (status != dnnl_success)
        atomic_compare_exchange_strong(&job->status, &before, status);
}

static eo_status product_status(const eo_team *team, const struct eo_multiply *p, dnnl_status_t status)
{
    if (status == dnnl_success)
        return EO_OK;
    /* Another oneDNN in the process, as libtorch has one, shares inline functions of C++ with this one: those of the first. */
    const char *remedy = status == dnnl_out_of_memory   ? "; free memory of the host"
                         : status == dnnl_unimplemented ? "; if libtorch is linked, name evenodd_layers before it"
                                                        : "";
    char text[200];
    snprintf(text, sizeof(text), "oneDNN's product of %" PRIu64 " x %" PRIu64 " x %" PRIu64 " failed: %s%s", p->m, p->n, p->k,
             dnnl_status2str(status), remedy);
    eo_team_tell(team, text);
    return status == dnnl_out_of_memory ? EO_ERR_NO_MEMORY : EO_ERR_DEVICE;
}

/* One part a thread, k never cut. The longer side is cut, in multiples of the block that oneDNN computes. */
enum { PRODUCT_BLOCK = 48 };

/*
 * Up to version 3.11 oneDNN's kernels keep a pointer into their buffer in the stack pointer
 * (https://github.com/uxlfoundation/oneDNN/issues/4845): the system would write a handler's frame into the heap. So no signal
 * comes during a product; the team's other threads take none ever.
 */
eo_status eo_cpu_multiply(eo_team *team, const struct eo_multiply *p)
{
    struct product_job job = {.all = *p, .by_columns = p->n > p->m};
    const uint64_t side = job.by_columns ? p->n : p->m;
    if (p->m == 0 || p->n == 0)
        return EO_OK;
    job.part = eo_split_up(eo_split_up(side, eo_team_thread_count(team)), PRODUCT_BLOCK) * PRODUCT_BLOCK;
    sigset_t before;
    eo_signals_hold(&before);
    eo_team_run(team, (uint32_t)eo_split_up(side, job.part), product_task, &job);
    eo_signals_release(&before);
    return product_status(team, p, job.status);
}

/* ---- how fast this machine runs a product ---- */

enum { MEASURE_RUNS = 5 };
#define MEASURE_ELEMENTS_MAX ((uint64_t)1 << 40)

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *measure_operand(eo_dtype dtype, uint64_t rows, uint64_t columns)
{
    if (rows == 0 || columns == 0 || rows > MEASURE_ELEMENTS_MAX / columns)
        return NULL;
    void *values = malloc(rows * columns * eo_dtype_bytes(dtype));
    for (uint64_t i = 0; values != NULL && i < rows * columns; i++)
        eo_element_store(dtype, values, i, (float)(i % 61) * 0.01f - 0.3f);
    return values;
}

static eo_status measure_runs(eo_team *team, const struct eo_multiply *product, double *flops_per_s)
{
    const struct eo_kernel_ops *kernels = eo_kernels_reference_selected()                 ? &eo_kernels_reference_ops
                                          : product->types.compute == EO_DTYPE_FP32 ? &eo_kernels_cpu_ops
                                                                                    : &eo_kernels_cpu_bf16_ops;
    double best = 0;
    for (int run = 0; run < MEASURE_RUNS; run++) {
        const double begin = seconds_now();
        const eo_status status = kernels->multiply(team, product);
        const double speed =
            2.0 * (double)product->m * (double)product->n * (double)product->k / (seconds_now() - begin);
        if (status < 0)
            return status;
        best = speed > best ? speed : best;
    }
    *flops_per_s = best;
    return EO_OK;
}

eo_status eo_cpu_product_measure(eo_team *team, const eo_product *p, double *flops_per_s)
{
    void *a = measure_operand(p->dtype, p->m, p->k);
    void *b = measure_operand(p->dtype, p->k, p->n);
    void *c = measure_operand(p->dtype, p->m, p->n);
    void *scratch = aligned_alloc(64, eo_product_scratch_bytes(p->m, p->n, p->k, eo_team_thread_count(team)));
    const struct eo_multiply product = {
        .types = {p->dtype, EO_DTYPE_FP32},
        .c = c,
        .c_stride = p->n,
        .a = {a, p->transpose_a ? p->m : p->k, p->transpose_a},
        .b = {b, p->transpose_b ? p->k : p->n, p->transpose_b},
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .scratch = scratch,
    };
    eo_status status = EO_ERR_NO_MEMORY;
    if (a != NULL && b != NULL && c != NULL && scratch != NULL)
        status = measure_runs(team, &product, flops_per_s);
    free(a);
    free(b);
    free(c);
    free(scratch);
    return status;
}
