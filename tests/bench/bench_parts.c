/* SPDX-License-Identifier: MIT
 *
 * A training step on the CPU, part by part: train itself, with marks around its kernels, its sums and its copies. The linker
 * puts them in (--wrap, see meson.build), so what is measured is the program that people run.
 *
 *     bench_parts ARGUMENTS OF TRAIN       with --threads 1, --memory static
 *
 * The last line of its output is JSON, a step of all ranks together, without the first two steps:
 *
 *     ranks, steps, step_s
 *     parts       {name: {calls, seconds, bytes, flops}}. A product's time is without the packing of its operands and the
 *                 storing of its results, which are parts themselves
 *
 * Times are those that pass for a thread. Communication has threads of its own, and what interrupts a thread counts in the part
 * that it is at: where threads outnumber cores, the parts may add up to more than all cores have. A mark takes some 20 ns, half
 * of them in its part.
 *
 * Bytes are those of the operands, each counted once: what has to move if nothing stays in a cache. A product of bf16 has none
 * of its own: of its operands those are counted that are packed, but not rows of A that are read where they lie. FLOPs of
 * attention are those of whole sequences, also where documents are packed.
 *
 * Not marked, so in no part: scaling, accumulation over micro-batches, averages of the weights, float8, casts.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "layers/cpu/kernels.h"
#include "layers/cpu/products/tiles.h"
#include "streams/cpu/device.h"
#include "tools/run/job.h"
#include "tools/run/step.h"

enum part {
    PRODUCT_FORWARD,
    PRODUCT_INPUT_GRADIENT,
    PRODUCT_WEIGHT_GRADIENT,
    PACKING,
    RESULTS,
    ATTENTION_FORWARD,
    ATTENTION_BACKWARD,
    NORM_FORWARD,
    NORM_BACKWARD,
    HEAD_NORMS,
    ROTATION,
    GELU,
    DROPOUT,
    SWIGLU,
    RESIDUALS,
    BIASES,
    EMBEDDING,
    CROSS_ENTROPY,
    UPDATE,
    NORM_OF_GRADIENT,
    GRADIENT_SUMS,
    CLEARING,
    COPIES,
    PART_COUNT,
};

static const char *const part_names[PART_COUNT] = {
    [PRODUCT_FORWARD] = "products forward",
    [PRODUCT_INPUT_GRADIENT] = "products of input gradients",
    [PRODUCT_WEIGHT_GRADIENT] = "products of weight gradients",
    [PACKING] = "packing of operands",
    [RESULTS] = "results of products",
    [ATTENTION_FORWARD] = "attention forward",
    [ATTENTION_BACKWARD] = "attention backward",
    [NORM_FORWARD] = "norms forward",
    [NORM_BACKWARD] = "norms backward",
    [HEAD_NORMS] = "norms of heads",
    [ROTATION] = "rotary positions",
    [GELU] = "GELU",
    [DROPOUT] = "dropout",
    [SWIGLU] = "SwiGLU",
    [RESIDUALS] = "residuals",
    [BIASES] = "biases and their gradients",
    [EMBEDDING] = "embedding",
    [CROSS_ENTROPY] = "cross-entropy",
    [UPDATE] = "optimizer",
    [NORM_OF_GRADIENT] = "norm of the gradient",
    [GRADIENT_SUMS] = "sums of gradients over ranks",
    [CLEARING] = "clearing of gradients",
    [COPIES] = "copies of gathers",
};

/* ---- what the threads count ---- */

enum { LANES_MAX = 256, FIRST_STEP = 2, COPY_BYTES_MIN = 1 << 16 };

struct count {
    uint64_t calls, ticks, bytes, flops;
};

struct counts {
    struct count parts[PART_COUNT];
};

/* One for each thread, that only it writes; rank 0's reads them at the end of a step. */
static struct lane {
    _Alignas(64) _Atomic uint64_t values[PART_COUNT][4];
} lanes[LANES_MAX];
static atomic_uint lane_count;
static _Thread_local struct lane *own_lane;
static struct counts before, after;
static uint64_t begin_ns, end_ns, begin_ticks, end_ticks;
static _Atomic uint64_t step_count; /* 0: the run is not over */
static atomic_uint rank_count;
static pthread_barrier_t all_ranks;
static pthread_once_t began = PTHREAD_ONCE_INIT;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Of the processor's own clock, where it has one that a program may read: a mark is to take little time itself. */
static uint64_t now_ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    return now_ns();
#endif
}

static struct lane *lane(void)
{
    if (!own_lane) {
        const unsigned index = atomic_fetch_add(&lane_count, 1);
        if (index >= LANES_MAX) {
            fprintf(stderr, "bench_parts: too many threads\n");
            exit(1);
        }
        own_lane = &lanes[index];
    }
    return own_lane;
}

static void add(enum part part, struct count c)
{
    const uint64_t values[4] = {c.calls, c.ticks, c.bytes, c.flops};
    _Atomic uint64_t *to = lane()->values[part];
    for (int i = 0; i < 4; i++)
        atomic_store_explicit(&to[i], atomic_load_explicit(&to[i], memory_order_relaxed) + values[i], memory_order_relaxed);
}

static void end(enum part part, uint64_t since, uint64_t bytes, uint64_t flops)
{
    add(part, (struct count){1, now_ticks() - since, bytes, flops});
}

static struct counts all_counts(void)
{
    struct counts sums = {0};
    const unsigned count = atomic_load(&lane_count);
    for (unsigned l = 0; l < count; l++) {
        for (int p = 0; p < PART_COUNT; p++) {
            sums.parts[p].calls += atomic_load(&lanes[l].values[p][0]);
            sums.parts[p].ticks += atomic_load(&lanes[l].values[p][1]);
            sums.parts[p].bytes += atomic_load(&lanes[l].values[p][2]);
            sums.parts[p].flops += atomic_load(&lanes[l].values[p][3]);
        }
    }
    return sums;
}

/* ---- kernels ---- */

static uint64_t size_of(struct eo_types types)
{
    return eo_dtype_bytes(types.compute);
}

/* `operands`: rows x width elements, each read or written once. */
#define BYTES(a, operands) ((uint64_t)(operands) * (a)->rows * (a)->width * size_of((a)->types))

static void need_one_thread(const eo_team *team)
{
    if (eo_team_thread_count(team) > 1) {
        fprintf(stderr, "bench_parts: give --threads 1: marks are a rank's own thread's\n");
        exit(2);
    }
}

static _Thread_local int kernel_depth; /* that of bf16 may leave its work to that of fp32 */

#define MARKED(function, arguments, part, bytes, flops)                    \
    eo_status __real_##function(eo_team *team, const struct arguments *a); \
    eo_status __wrap_##function(eo_team *team, const struct arguments *a); \
    eo_status __wrap_##function(eo_team *team, const struct arguments *a)  \
    {                                                                      \
        const uint64_t since = now_ticks();                                \
        need_one_thread(team);                                             \
        kernel_depth++;                                                    \
        const eo_status status = __real_##function(team, a);               \
        if (--kernel_depth == 0)                                           \
            end(part, since, bytes, flops);                                \
        return status;                                                     \
    }

static uint64_t head_elements(const struct eo_head_norm *a)
{
    return a->rows * ((uint64_t)(a->head_count[0] + a->head_count[1]) * a->head_size + a->copied);
}

static uint64_t attention_bytes(const struct eo_attention *a, uint64_t of_queries, uint64_t of_keys)
{
    const struct eo_attention_shape *s = &a->shape;
    const uint64_t rows = (uint64_t)s->batch * s->seq * s->head_size * size_of(a->types);
    return rows * (of_queries * s->head_count + of_keys * s->kv_head_count);
}

/* Causal: half of the square. */
static uint64_t attention_flops(const struct eo_attention *a, uint64_t products)
{
    const struct eo_attention_shape *s = &a->shape;
    return products * s->batch * s->seq * s->seq * s->head_count * s->head_size;
}

MARKED(eo_cpu_norm_forward, eo_norm, NORM_FORWARD, BYTES(a, a->branch ? 4 : 2), 0)
MARKED(eo_cpu_norm_backward, eo_norm_gradient, NORM_BACKWARD, BYTES(a, 3 + (a->skip_gradient != NULL) + (a->again != NULL)), 0)
MARKED(eo_cpu_head_norm_forward, eo_head_norm, HEAD_NORMS, 2 * head_elements(a) * size_of(a->types), 0)
MARKED(eo_cpu_head_norm_backward, eo_head_norm_gradient, HEAD_NORMS,
       3 * a->rows * (a->head_count[0] + a->head_count[1]) * a->head_size * size_of(a->types), 0)
MARKED(eo_cpu_rotate, eo_rotation, ROTATION, 2 * a->rows * a->head_count * a->head_size * size_of(a->types), 0)
MARKED(eo_cpu_dropout, eo_dropout, DROPOUT, BYTES(a, a->residual ? 3 : 2), 0)
MARKED(eo_cpu_gelu_forward, eo_gelu, GELU, BYTES(a, 2), 0)
MARKED(eo_cpu_gelu_backward, eo_gelu_gradient, GELU, BYTES(a, a->again ? 4 : 3), 0)
MARKED(eo_cpu_swiglu_forward, eo_swiglu, SWIGLU, BYTES(a, 3), 0)
MARKED(eo_cpu_swiglu_backward, eo_swiglu, SWIGLU, BYTES(a, a->out ? 6 : 5), 0)
MARKED(eo_cpu_residual_add, eo_residual, RESIDUALS, BYTES(a, 3), 0)
MARKED(eo_cpu_bias_add, eo_bias, BIASES, BYTES(a, 2), 0)
MARKED(eo_cpu_column_sums, eo_column_sums, BIASES, BYTES(a, 1), 0)
MARKED(eo_cpu_embedding_forward, eo_embedding, EMBEDDING, BYTES(a, a->position_table ? 3 : 2), 0)
MARKED(eo_cpu_embedding_backward, eo_embedding_gradient, EMBEDDING,
       BYTES(a, 1) + ((a->adds ? 2 * a->rows : a->vocabulary) + (a->position_gradient ? a->positions : 0)) * a->width *
                         eo_dtype_bytes(a->types.gradient),
       0)
MARKED(eo_cpu_cross_entropy, eo_loss, CROSS_ENTROPY, a->rows * a->vocabulary * size_of(a->types) * (a->backward ? 2 : 1), 0)
MARKED(eo_cpu_attention_forward, eo_attention, ATTENTION_FORWARD, attention_bytes(a, 2, 2), attention_flops(a, 2))
MARKED(eo_cpu_attention_backward, eo_attention, ATTENTION_BACKWARD, attention_bytes(a, 4, 4), attention_flops(a, 5))
MARKED(eo_cpu_attention_bf16_forward, eo_attention, ATTENTION_FORWARD, attention_bytes(a, 2, 2), attention_flops(a, 2))
MARKED(eo_cpu_attention_bf16_backward, eo_attention, ATTENTION_BACKWARD, attention_bytes(a, 4, 4), attention_flops(a, 5))

/* ---- products ---- */

static enum part product_part(const struct eo_multiply *p)
{
    return p->weight_gradient ? PRODUCT_WEIGHT_GRADIENT : p->b.transposed ? PRODUCT_FORWARD : PRODUCT_INPUT_GRADIENT;
}

static uint64_t product_flops(const struct eo_multiply *p)
{
    return 2 * p->m * p->n * p->k;
}

MARKED(eo_cpu_multiply, eo_multiply, product_part(a), (a->m * a->n + a->m * a->k + a->k * a->n) * size_of(a->types),
       product_flops(a))

/* The tiles of the product that a thread is at. */
static _Thread_local const struct eo_tiles *tiles_now;

static void marked_pack(enum eo_units kind, void *to, uint64_t width, bool by_rows, const struct eo_pack *pack)
{
    const uint64_t since = now_ticks(), units = pack->end - pack->begin;
    tiles_now->pack(kind, to, width, by_rows, pack);
    end(PACKING, since, pack->lines * units * (kind == EO_UNITS_WIDENED ? 2 : 4) + width * units * EO_UNIT_BYTES, 0);
}

static void marked_pack_across(enum eo_units kind, void *to, uint64_t width, const struct eo_pack *pack)
{
    const uint64_t since = now_ticks();
    tiles_now->pack_across(kind, to, width, pack);
    end(PACKING, since, pack->lines * pack->units * (EO_UNIT_BYTES + (kind == EO_UNITS_WIDENED ? 2 : 4)), 0);
}

static void marked_finish(const struct eo_multiply *p, uint64_t row, uint64_t rows, uint64_t column, uint64_t columns,
                          const float *sums, bool stream)
{
    const uint64_t since = now_ticks(), size = size_of(p->types);
    const uint64_t c_size = p->weight_gradient ? eo_dtype_bytes(p->types.gradient) : size;
    tiles_now->finish(p, row, rows, column, columns, sums, stream);
    const uint64_t others = (p->residual != NULL) + (p->epilogue == EO_EPILOGUE_BIAS_GELU) +
                            (p->epilogue == EO_EPILOGUE_GELU_GRADIENT) * (p->remakes ? 2 : 1);
    end(RESULTS, since, rows * columns * (c_size * (p->accumulate ? 2 : 1) + size * others), 0);
}

static uint64_t ticks_of_own(enum part part)
{
    return atomic_load_explicit(&lane()->values[part][1], memory_order_relaxed);
}

void __real_eo_product_run(eo_team *team, const struct eo_tiles *tiles, const struct eo_multiply *p);
void __wrap_eo_product_run(eo_team *team, const struct eo_tiles *tiles, const struct eo_multiply *p);
void __wrap_eo_product_run(eo_team *team, const struct eo_tiles *tiles, const struct eo_multiply *p)
{
    struct eo_tiles marked = *tiles;
    marked.pack = marked_pack;
    marked.pack_across = tiles->pack_across ? marked_pack_across : NULL;
    marked.finish = marked_finish;
    need_one_thread(team);
    tiles_now = tiles;
    const uint64_t inner = ticks_of_own(PACKING) + ticks_of_own(RESULTS), since = now_ticks();
    __real_eo_product_run(team, &marked, p);
    const uint64_t apart = ticks_of_own(PACKING) + ticks_of_own(RESULTS) - inner;
    end(product_part(p), since + apart, 0, product_flops(p));
}

/* ---- streams ---- */

void __real_eo_cpu_update(struct eo_device *device, enum eo_rule rule, const struct eo_update_range *ranges,
                          uint32_t range_count, const struct eo_step_memory *step);
void __wrap_eo_cpu_update(struct eo_device *device, enum eo_rule rule, const struct eo_update_range *ranges,
                          uint32_t range_count, const struct eo_step_memory *step);
void __wrap_eo_cpu_update(struct eo_device *device, enum eo_rule rule, const struct eo_update_range *ranges,
                          uint32_t range_count, const struct eo_step_memory *step)
{
    const uint64_t since = now_ticks();
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < range_count; i++) { /* weights and state are read and written, the gradient is read */
        const uint64_t state = (ranges[i].first_moment != NULL) + (ranges[i].second_moment != NULL);
        bytes += ranges[i].count * (8 + state * (rule == EO_RULE_ADAMW8BIT ? 2 : 8) + 4);
    }
    __real_eo_cpu_update(device, rule, ranges, range_count, step);
    end(UPDATE, since, bytes, 0);
}

void __real_eo_cpu_zero(struct eo_device *device, void *memory, uint64_t bytes);
void __wrap_eo_cpu_zero(struct eo_device *device, void *memory, uint64_t bytes);
void __wrap_eo_cpu_zero(struct eo_device *device, void *memory, uint64_t bytes)
{
    const uint64_t since = now_ticks();
    __real_eo_cpu_zero(device, memory, bytes);
    end(CLEARING, since, bytes, 0);
}

/* What gathers copy, in large pieces; most other copies are small. */
void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes)
{
    if (bytes < COPY_BYTES_MIN)
        return __real_memcpy(to, from, bytes);
    const uint64_t since = now_ticks();
    __real_memcpy(to, from, bytes);
    end(COPIES, since, 2 * bytes, 0);
    return to;
}

static const struct eo_cpu_kernels *kernels_now;

static void marked_stream_copy(void *to, const void *from, uint64_t bytes)
{
    const uint64_t since = now_ticks();
    kernels_now->stream_copy(to, from, bytes);
    end(COPIES, since, 2 * bytes, 0);
}

static void marked_sum_fp32(float *out, const float *const *in, uint32_t in_count, uint64_t count, bool stream)
{
    const uint64_t since = now_ticks();
    kernels_now->sum_fp32(out, in, in_count, count, stream);
    end(GRADIENT_SUMS, since, (in_count + 1) * count * sizeof(float), 0);
}

static void marked_sum_bf16(uint16_t *out, const uint16_t *const *in, uint32_t in_count, uint64_t count)
{
    const uint64_t since = now_ticks();
    kernels_now->sum_bf16(out, in, in_count, count);
    end(GRADIENT_SUMS, since, (in_count + 1) * count * sizeof(uint16_t), 0);
}

static double marked_sum_squares(const float *values, uint64_t count)
{
    const uint64_t since = now_ticks();
    const double sum = kernels_now->sum_squares(values, count);
    end(NORM_OF_GRADIENT, since, count * sizeof(float), 0);
    return sum;
}

static struct eo_cpu_kernels marked_kernels;
static pthread_once_t kernels_once = PTHREAD_ONCE_INIT;

const struct eo_cpu_kernels *__real_eo_cpu_kernels_best(void);
const struct eo_cpu_kernels *__wrap_eo_cpu_kernels_best(void);

static void mark_kernels(void)
{
    kernels_now = __real_eo_cpu_kernels_best();
    marked_kernels = *kernels_now;
    marked_kernels.sum_squares = marked_sum_squares;
    marked_kernels.stream_copy = marked_stream_copy;
    marked_kernels.sum_fp32 = marked_sum_fp32;
    marked_kernels.sum_bf16 = marked_sum_bf16;
}

const struct eo_cpu_kernels *__wrap_eo_cpu_kernels_best(void)
{
    pthread_once(&kernels_once, mark_kernels);
    return &marked_kernels;
}

/* ---- steps ---- */

static void print_parts(void)
{
    const double steps = (double)atomic_load(&step_count);
    if (!(steps > 0))
        return;
    const double tick_s = (double)(end_ns - begin_ns) * 1e-9 / (double)(end_ticks - begin_ticks);
    printf("{\"ranks\": %u, \"steps\": %.0f, \"step_s\": %.6f, \"parts\": {", rank_count, steps,
           (double)(end_ns - begin_ns) * 1e-9 / steps);
    const char *comma = "";
    for (int p = 0; p < PART_COUNT; p++) {
        const struct count *from = &before.parts[p], *to = &after.parts[p];
        if (to->calls == from->calls)
            continue;
        printf("%s\"%s\": {\"calls\": %.2f, \"seconds\": %.9f, \"bytes\": %.0f, \"flops\": %.0f}", comma, part_names[p],
               (double)(to->calls - from->calls) / steps, (double)(to->ticks - from->ticks) * tick_s / steps,
               (double)(to->bytes - from->bytes) / steps, (double)(to->flops - from->flops) / steps);
        comma = ", ";
    }
    printf("}}\n");
}

eo_status __real_tool_job_step_run(struct tool_job_rank *rank, uint64_t step, bool wants_report);
eo_status __wrap_tool_job_step_run(struct tool_job_rank *rank, uint64_t step, bool wants_report);

/* All ranks stand still while rank 0 reads their counts: steps are counted whole. */
static void look_at(const struct tool_job_rank *rank, struct counts *counts, uint64_t *ns, uint64_t *ticks)
{
    pthread_barrier_wait(&all_ranks);
    if (rank->rank == 0) {
        *counts = all_counts();
        *ns = now_ns();
        *ticks = now_ticks();
    }
    pthread_barrier_wait(&all_ranks);
}

static void begin_once(void)
{
    pthread_barrier_init(&all_ranks, NULL, rank_count);
    atexit(print_parts);
}

eo_status __wrap_tool_job_step_run(struct tool_job_rank *rank, uint64_t step, bool wants_report)
{
    const struct tool_job *job = rank->job;
    if (step == FIRST_STEP) {
        rank_count = job->shape.rank_count;
        pthread_once(&began, begin_once);
        look_at(rank, &before, &begin_ns, &begin_ticks);
    }
    const eo_status status = __real_tool_job_step_run(rank, step, wants_report);
    if (status < 0) { /* the others would wait for this rank */
        fprintf(stderr, "bench_parts: a step failed\n");
        exit(1);
    }
    if (step >= FIRST_STEP && step + 1 == job->options->steps) {
        look_at(rank, &after, &end_ns, &end_ticks);
        atomic_store(&step_count, step + 1 - FIRST_STEP);
    }
    return status;
}
