/* SPDX-License-Identifier: MIT
 *
 * Experiment 3: what communication waits for behind matrix products, and what products lose beside it.
 *
 *     stream A   product | product | product | ...          back to back, normal priority
 *                        o         o                        each end is an event
 *     stream B           +-> [small kernels] communication  waits for the event, as a gradient's reduction does
 *
 * Ready is the event's time on stream B, before the small kernels. Started is what block 0 of the communication kernel
 * reads from the device's clock. The two clocks are tied together on the idle device, with the same small kernels, so a
 * delay is what there is beyond that of an idle device. Copies have no first instruction: theirs is the time from ready
 * to done beyond that of an idle device.
 */
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "giveway_kernels.h"
#include "gpu_program.h"

enum { ITERATIONS_MAX = 1000, IDLE_RUNS = 20, ALONE_RUNS = 30 };
#define WORKSPACE_BYTES ((size_t)32 << 20)
#define MEMORY_BYTES ((uint64_t)1 << 30) /* beyond every cache */

enum kind { KIND_KERNEL, KIND_COPY, KIND_BATCH };
static const char *const kind_names[] = {"kernel", "memcpy", "memcpy_batch"};

struct way {
    enum kind kind;
    int blocks, cluster, smalls;
    bool high;
    int sm_target; /* 0: products take all */
};

struct product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulAlgo_t algorithm;
    uint16_t *a, *b, *c;
    void *workspace;
};

struct bench {
    long long iterations, size, nanoseconds;
    struct product product;
    int multiprocessors;
    cudaStream_t compute, equal, high;
    cudaEvent_t base, begin, end;
    cudaEvent_t passed[ITERATIONS_MAX], ready[ITERATIONS_MAX], done[ITERATIONS_MAX];
    uint64_t *starts; /* of the device: iterations x GIVEWAY_BLOCKS_MAX */
    uint64_t *host_starts;
    unsigned long long *moved;
    uint64_t *clock; /* of the device: at, step */
    float *small;
    char *memory;
    uint64_t copy_bytes;
};

struct figures {
    double delay_p50_us, delay_p99_us, delay_max_us, last_p50_us, alone_ms, with_ms;
};

static void blas(cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "%s: cuBLASLt status %d\n", what, (int)status);
    exit(GPU_FAILED);
}

/* --- the product --------------------------------------------------------------------------------------------------- */

static void fill_matrix(uint16_t *device, size_t count, uint64_t seed)
{
    uint16_t *host = malloc(count * sizeof(*host));
    if (!host) {
        fprintf(stderr, "no memory for a matrix\n");
        exit(GPU_FAILED);
    }
    for (size_t i = 0; i < count; i++) {
        const float value = gpu_random(&seed);
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        host[i] = (uint16_t)(bits >> 16);
    }
    GPU_TRY(cudaMemcpy(device, host, count * sizeof(*host), cudaMemcpyHostToDevice));
    GPU_TRY(cudaDeviceSynchronize()); /* the copy may return before it has arrived, and our streams do not wait for it */
    free(host);
}

static void product_init(struct product *p, uint64_t size)
{
    const size_t count = size * size;
    blas(cublasLtCreate(&p->handle), "cublasLtCreate");
    blas(cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    blas(cublasLtMatrixLayoutCreate(&p->layout, CUDA_R_16BF, size, size, (int64_t)size), "cublasLtMatrixLayoutCreate");
    GPU_TRY(cudaMalloc((void **)&p->a, count * 2));
    GPU_TRY(cudaMalloc((void **)&p->b, count * 2));
    GPU_TRY(cudaMalloc((void **)&p->c, count * 2));
    GPU_TRY(cudaMalloc(&p->workspace, WORKSPACE_BYTES));
    fill_matrix(p->a, count, 1); /* zeros would draw less power, and so run faster */
    fill_matrix(p->b, count, 2);
}

/* The first choice of the heuristics for so many multiprocessors; false: they have none. */
static bool product_aim(struct product *p, int sm_target)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    const uint64_t workspace = WORKSPACE_BYTES;
    const int32_t target = sm_target;
    int count = 0;
    blas(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &target, sizeof(target)),
         "SM_COUNT_TARGET");
    blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    blas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                              sizeof(workspace)), "MAX_WORKSPACE_BYTES");
    blas(cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->layout, p->layout, p->layout, p->layout, preference,
                                        1, &result, &count), "cublasLtMatmulAlgoGetHeuristic");
    blas(cublasLtMatmulPreferenceDestroy(preference), "cublasLtMatmulPreferenceDestroy");
    if (count > 0)
        p->algorithm = result.algo;
    return count > 0;
}

static void multiply(const struct product *p, cudaStream_t stream)
{
    const float one = 1, zero = 0;
    blas(cublasLtMatmul(p->handle, p->operation, &one, p->a, p->layout, p->b, p->layout, &zero, p->c, p->layout, p->c,
                        p->layout, &p->algorithm, p->workspace, WORKSPACE_BYTES, stream), "cublasLtMatmul");
}

/* --- one way ------------------------------------------------------------------------------------------------------- */

static void communicate(struct bench *b, const struct way *way, cudaStream_t stream, int iteration)
{
    char *from = b->memory, *to = b->memory + MEMORY_BYTES / 2;
    GPU_TRY(cudaEventRecord(b->ready[iteration], stream));
    for (int i = 0; i < way->smalls; i++)
        GPU_TRY(giveway_small(b->small, stream));
    if (way->kind == KIND_KERNEL) {
        GPU_TRY(giveway_communicate(b->starts + (size_t)iteration * GIVEWAY_BLOCKS_MAX, b->moved, b->memory,
                                    MEMORY_BYTES, way->blocks, way->cluster, (uint64_t)b->nanoseconds, stream));
    } else if (way->kind == KIND_COPY) {
        GPU_TRY(cudaMemcpyAsync(to, from, b->copy_bytes, cudaMemcpyDeviceToDevice, stream));
    } else {
        struct cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream,
                                                  .flags = cudaMemcpyFlagPreferOverlapWithCompute};
        void *targets[1] = {to};
        const void *sources[1] = {from};
        size_t sizes[1] = {b->copy_bytes}, first[1] = {0};
#if CUDART_VERSION >= 13000
        GPU_TRY(cudaMemcpyBatchAsync(targets, sources, sizes, 1, &attributes, first, 1, stream));
#else
        void *source = (void *)(uintptr_t)sources[0];
        size_t failed;
        GPU_TRY(cudaMemcpyBatchAsync(targets, &source, sizes, 1, &attributes, first, 1, &failed, stream));
#endif
    }
    GPU_TRY(cudaEventRecord(b->done[iteration], stream));
}

static double between_us(cudaEvent_t from, cudaEvent_t to)
{
    float ms = 0;
    GPU_TRY(cudaEventElapsedTime(&ms, from, to));
    return (double)ms * 1e3;
}

/* The device's clock at event `base`, as an idle device shows it. */
static uint64_t tie_clocks(struct bench *b, cudaStream_t stream)
{
    uint64_t clock[2];
    GPU_TRY(cudaDeviceSynchronize());
    GPU_TRY(cudaEventRecord(b->base, stream));
    GPU_TRY(giveway_clock(b->clock, b->clock + 1, stream));
    GPU_TRY(cudaDeviceSynchronize());
    GPU_TRY(cudaMemcpy(clock, b->clock, sizeof(clock), cudaMemcpyDeviceToHost));
    return clock[0];
}

/* From ready to the first and the last block's start, or for copies to done, in us. All is done. */
static void delays(struct bench *b, const struct way *way, uint64_t base_ns, int count, double *first, double *last)
{
    GPU_TRY(cudaMemcpy(b->host_starts, b->starts, (size_t)count * GIVEWAY_BLOCKS_MAX * sizeof(uint64_t),
                       cudaMemcpyDeviceToHost));
    for (int i = 0; i < count; i++) {
        if (way->kind != KIND_KERNEL) {
            first[i] = last[i] = between_us(b->ready[i], b->done[i]);
            continue;
        }
        const uint64_t *starts = b->host_starts + (size_t)i * GIVEWAY_BLOCKS_MAX;
        uint64_t least = starts[0], most = starts[0];
        for (int block = 1; block < way->blocks; block++) {
            least = starts[block] < least ? starts[block] : least;
            most = starts[block] > most ? starts[block] : most;
        }
        const double ready = between_us(b->base, b->ready[i]);
        first[i] = ((double)least - (double)base_ns) * 1e-3 - ready;
        last[i] = ((double)most - (double)base_ns) * 1e-3 - ready;
    }
}

static double alone_ms(struct bench *b)
{
    multiply(&b->product, b->compute);
    GPU_TRY(cudaEventRecord(b->begin, b->compute));
    for (int i = 0; i < ALONE_RUNS; i++)
        multiply(&b->product, b->compute);
    GPU_TRY(cudaEventRecord(b->end, b->compute));
    GPU_TRY(cudaDeviceSynchronize());
    return between_us(b->begin, b->end) * 1e-3 / ALONE_RUNS;
}

static struct figures measure(struct bench *b, const struct way *way)
{
    static double first[ITERATIONS_MAX], last[ITERATIONS_MAX];
    struct figures figures;
    const cudaStream_t stream = way->high ? b->high : b->equal;
    const int count = (int)b->iterations;
    figures.alone_ms = alone_ms(b);

    uint64_t base_ns = tie_clocks(b, stream);
    for (int i = 0; i < IDLE_RUNS; i++) {
        communicate(b, way, stream, i);
        GPU_TRY(cudaStreamSynchronize(stream));
    }
    delays(b, way, base_ns, IDLE_RUNS, first, last);
    const double idle_first = gpu_quantile(first, IDLE_RUNS, 0.5), idle_last = gpu_quantile(last, IDLE_RUNS, 0.5);

    base_ns = tie_clocks(b, stream);
    multiply(&b->product, b->compute);
    GPU_TRY(cudaEventRecord(b->begin, b->compute));
    for (int i = 0; i < count; i++) {
        multiply(&b->product, b->compute);
        GPU_TRY(cudaEventRecord(b->passed[i], b->compute));
        GPU_TRY(cudaStreamWaitEvent(stream, b->passed[i], 0));
        communicate(b, way, stream, i);
    }
    multiply(&b->product, b->compute); /* the last communication has a product beside it, too */
    GPU_TRY(cudaEventRecord(b->end, b->compute));
    GPU_TRY(cudaDeviceSynchronize());
    figures.with_ms = between_us(b->begin, b->end) * 1e-3 / (count + 1);
    delays(b, way, base_ns, count, first, last);
    figures.delay_p50_us = gpu_quantile(first, (size_t)count, 0.5) - idle_first;
    figures.delay_p99_us = gpu_quantile(first, (size_t)count, 0.99) - idle_first;
    figures.delay_max_us = first[count - 1] - idle_first; /* sorted */
    figures.last_p50_us = gpu_quantile(last, (size_t)count, 0.5) - idle_last;
    return figures;
}

/* --- all ways ------------------------------------------------------------------------------------------------------ */

static void report(struct bench *b, const struct way *way, FILE *csv)
{
    if (!product_aim(&b->product, way->sm_target)) {
        printf("products on %d multiprocessors: cuBLASLt has none\n", way->sm_target);
        return;
    }
    const struct figures f = measure(b, way);
    const double slowdown = 100 * (f.with_ms / f.alone_ms - 1);
    printf("%-12s blocks %3d, cluster %d, small kernels %d, priority %-5s, products on %3d: starts %8.1f us late "
           "(p99 %8.1f, all blocks %8.1f); product %.3f -> %.3f ms, %+.1f %%\n",
           kind_names[way->kind], way->blocks, way->cluster, way->smalls, way->high ? "high" : "equal",
           way->sm_target ? way->sm_target : b->multiprocessors, f.delay_p50_us, f.delay_p99_us, f.last_p50_us,
           f.alone_ms, f.with_ms, slowdown);
    printf("{\"experiment\": \"E3\", \"way\": \"%s\", \"blocks\": %d, \"cluster\": %d, \"small_kernels\": %d, "
           "\"high_priority\": %s, \"sm_target\": %d, \"delay_p50_us\": %.2f, \"delay_p99_us\": %.2f, "
           "\"last_block_p50_us\": %.2f, \"product_alone_ms\": %.4f, \"product_with_ms\": %.4f}\n",
           kind_names[way->kind], way->blocks, way->cluster, way->smalls, way->high ? "true" : "false", way->sm_target,
           f.delay_p50_us, f.delay_p99_us, f.last_p50_us, f.alone_ms, f.with_ms);
    fflush(stdout);
    if (csv)
        fprintf(csv, "%s,%d,%d,%d,%s,%d,%.2f,%.2f,%.2f,%.2f,%.4f,%.4f,%.2f\n", kind_names[way->kind], way->blocks,
                way->cluster, way->smalls, way->high ? "high" : "equal", way->sm_target, f.delay_p50_us,
                f.delay_p99_us, f.delay_max_us, f.last_p50_us, f.alone_ms, f.with_ms, slowdown);
}

static void bench_init(struct bench *b)
{
    int lowest, highest;
    GPU_TRY(cudaDeviceGetAttribute(&b->multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    GPU_TRY(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    GPU_TRY(cudaStreamCreateWithPriority(&b->compute, cudaStreamNonBlocking, lowest));
    GPU_TRY(cudaStreamCreateWithPriority(&b->equal, cudaStreamNonBlocking, lowest));
    GPU_TRY(cudaStreamCreateWithPriority(&b->high, cudaStreamNonBlocking, highest));
    GPU_TRY(cudaEventCreate(&b->base));
    GPU_TRY(cudaEventCreate(&b->begin));
    GPU_TRY(cudaEventCreate(&b->end));
    for (int i = 0; i < ITERATIONS_MAX; i++) {
        GPU_TRY(cudaEventCreateWithFlags(&b->passed[i], cudaEventDisableTiming));
        GPU_TRY(cudaEventCreate(&b->ready[i]));
        GPU_TRY(cudaEventCreate(&b->done[i]));
    }
    const size_t starts_bytes = (size_t)ITERATIONS_MAX * GIVEWAY_BLOCKS_MAX * sizeof(uint64_t);
    GPU_TRY(cudaMalloc((void **)&b->starts, starts_bytes));
    GPU_TRY(cudaMallocHost((void **)&b->host_starts, starts_bytes));
    GPU_TRY(cudaMalloc((void **)&b->moved, sizeof(*b->moved)));
    GPU_TRY(cudaMalloc((void **)&b->clock, 2 * sizeof(*b->clock)));
    GPU_TRY(cudaMalloc((void **)&b->small, 256 * sizeof(float)));
    GPU_TRY(cudaMalloc((void **)&b->memory, MEMORY_BYTES));
    GPU_TRY(cudaMemset(b->starts, 0, starts_bytes));
    GPU_TRY(cudaMemset(b->small, 0, 256 * sizeof(float)));
    GPU_TRY(cudaMemset(b->memory, 0, MEMORY_BYTES));
    product_init(&b->product, (uint64_t)b->size);
}

/* Copies move what 16 blocks move in their time, so that the two can be compared. */
static void weigh(struct bench *b)
{
    uint64_t clock[2];
    unsigned long long moved = 0;
    const struct way way = {.kind = KIND_KERNEL, .blocks = 16, .cluster = 1};
    communicate(b, &way, b->equal, 0); /* loads the kernel */
    GPU_TRY(cudaDeviceSynchronize());
    GPU_TRY(cudaMemset(b->moved, 0, sizeof(*b->moved)));
    GPU_TRY(cudaDeviceSynchronize()); /* of the stream that ours do not wait for */
    communicate(b, &way, b->equal, 0);
    GPU_TRY(cudaDeviceSynchronize());
    GPU_TRY(cudaMemcpy(&moved, b->moved, sizeof(moved), cudaMemcpyDeviceToHost));
    b->copy_bytes = moved / 2 / 4096 * 4096;
    b->copy_bytes = b->copy_bytes < 4096 ? 4096 : b->copy_bytes > MEMORY_BYTES / 2 ? MEMORY_BYTES / 2 : b->copy_bytes;
    (void)tie_clocks(b, b->equal);
    GPU_TRY(cudaMemcpy(clock, b->clock, sizeof(clock), cudaMemcpyDeviceToHost));
    printf("the device's clock ticks every %llu ns; 16 blocks move %llu bytes in %lld us, which is what copies move\n",
           (unsigned long long)clock[1], moved, b->nanoseconds / 1000);
}

int main(int argc, char **argv)
{
    static struct bench b = {.iterations = 200, .size = 8192, .nanoseconds = 200000};
    static const int blocks[] = {2, 5, 16, 24};
    const char *csv_path = NULL;
    const struct gpu_option options[] = {
        {.name = "iterations", .least = IDLE_RUNS, .most = ITERATIONS_MAX, .value = &b.iterations},
        {.name = "size", .least = 256, .most = 32768, .value = &b.size},
        {.name = "nanoseconds", .least = 1000, .most = 1000000, .value = &b.nanoseconds},
        {.name = "csv", .text = &csv_path},
    };
    gpu_options(argc, argv, options, sizeof(options) / sizeof(options[0]),
                "start delay of communication behind matrix products, and their slowdown");
    gpu_need_device();
    FILE *csv = csv_path ? fopen(csv_path, "w") : NULL;
    if (csv_path && !csv) {
        perror(csv_path);
        return GPU_NOT_TRIED;
    }
    if (csv)
        fprintf(csv, "way,blocks,cluster,small_kernels,priority,sm_target,delay_p50_us,delay_p99_us,delay_max_us,"
                     "last_block_p50_us,product_alone_ms,product_with_ms,slowdown_percent\n");
    struct cudaDeviceProp properties;
    GPU_TRY(cudaGetDeviceProperties(&properties, 0));
    bench_init(&b);
    weigh(&b);
    for (int i = 0; i < 4; i++) {
        for (int cluster = 1; cluster <= 4; cluster += 3) {
            if (blocks[i] % cluster != 0 || (cluster > 1 && properties.major < 9))
                continue; /* NCCL falls back to 1 there */
            for (int bits = 0; bits < 8; bits++) {
                const struct way way = {.kind = KIND_KERNEL, .blocks = blocks[i], .cluster = cluster,
                                        .smalls = bits & 1 ? 2 : 0, .high = bits & 2,
                                        .sm_target = bits & 4 ? b.multiprocessors - blocks[i] : 0};
                report(&b, &way, csv);
            }
        }
    }
    for (int bits = 0; bits < 4; bits++) {
        const struct way way = {.kind = bits & 1 ? KIND_BATCH : KIND_COPY, .high = bits & 2};
        report(&b, &way, csv);
    }
    if (csv && fclose(csv) != 0) {
        perror(csv_path);
        return GPU_FAILED;
    }
    return GPU_HELD;
}
