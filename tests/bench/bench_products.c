/* SPDX-License-Identifier: MIT
 *
 * Speed of products of GPT-2 on one core, packing included: every table of this machine, of bf16 and of fp32, beside
 * oneDNN's sgemm on the same shapes, and beside a loop of the table's tile on operands in the first-level cache, the most it
 * can reach.
 *
 *     bench_products [TURNS [THREADS [WIDTH VOCABULARY]]]     [5, 2, 768, 50257]
 *
 * All ways take turns; a speed is the best of the turns. Prints one JSON line:
 *
 *     ways        {name: {gflops, slowest_gflops, slowest, shapes: {name: gflops}}}: the tables of bf16, best first, those of
 *                 fp32 ("fp32 ..."), and "sgemm".
 *                 `gflops`: of the products of a step, each as often as a step has it
 *                 packing_share, packing_shares {name}: of the time of these products, the packing of operands and the
 *                 loops around it
 *                 loop_gflops, loop_all_gflops: of a table's tile, on one core and on THREADS at the same time, together
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "layers/cpu/kernels.h"
#include "layers/cpu/products/tiles.h"
#include "layers/denormals.h"

enum {
    ROWS = 1024,     /* 4 sequences of 256 tokens */
    HEAD_ROWS = 512, /* a piece of the head */
    BLOCKS = 12,
    SHAPES_MAX = 15,
    WAYS_MAX = 12,
    THREADS_MAX = 64,
    LOOP_UNITS = 64, /* of k: a tile of A, a panel of B and the sums take at most 20 KiB */
    LOOP_CALLS = 4000,
    LOOP_RUNS = 5, /* of a turn */
    HUGE_PAGE = 2 << 20,
};

struct shape {
    char name[32];
    struct eo_multiply product; /* but for types, operands' values and scratch */
    double flops;
    int per_step;
    enum { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT } kind;
};

/* A table of tiles, or (NULL) sgemm. */
struct way {
    char name[32];
    const struct eo_tiles *tiles;
    eo_dtype dtype;
    double loop, loop_all, speeds[SHAPES_MAX];       /* FLOP/s, the best so far */
    double packing_speeds[SHAPES_MAX];               /* as if nothing else took time */
};

struct values {
    void *in, *weights, *out; /* x [rows][in], W [out][in], y [rows][out] */
};

struct bench {
    eo_team *team, *all;
    uint32_t shape_count, way_count;
    struct shape shapes[SHAPES_MAX];
    struct way ways[WAYS_MAX];
    struct values values[2]; /* by eo_dtype: fp32, bf16 */
    void *result, *scratch;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void need(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bench_products: %s\n", what);
        exit(1);
    }
}

static void *memory_of(uint64_t bytes)
{
    void *memory = aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (memory)
        (void)madvise(memory, bytes, MADV_HUGEPAGE); /* as the plan's memory; a wish */
    need(memory != NULL, "not enough memory");
    return memory;
}

static void *elements(eo_dtype dtype, uint64_t count)
{
    void *values = memory_of(count * eo_dtype_bytes(dtype));
    uint32_t seed = 1;
    for (uint64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        eo_element_store(dtype, values, i, (float)(int32_t)seed * 0x1p-31f);
    }
    return values;
}

/* ---- shapes ---- */

static void add_shape(struct bench *b, const char *name, int kind, int per_step, struct eo_multiply product)
{
    static const char *const kinds[] = {"forward", "input gradient", "weight gradient"};
    struct shape *shape = &b->shapes[b->shape_count++];
    product.weight_gradient = kind == WEIGHT_GRADIENT;
    *shape = (struct shape){.product = product, .kind = kind, .per_step = per_step};
    shape->flops = 2.0 * (double)product.m * (double)product.n * (double)product.k;
    snprintf(shape->name, sizeof(shape->name), "%s %s", name, kinds[kind]);
}

/* y = x W^T and its two gradients. Rows of y are padded, as the model's logits are. */
static void add_linear(struct bench *b, const char *name, uint64_t rows, uint64_t in, uint64_t out, int per_step)
{
    const uint64_t stride = (out + 15) / 16 * 16;
    add_shape(
        b, name, FORWARD, per_step,
        (struct eo_multiply){.c_stride = stride, .a = {NULL, in, false}, .b = {NULL, in, true}, .m = rows, .n = out, .k = in});
    add_shape(
        b, name, INPUT_GRADIENT, per_step,
        (struct eo_multiply){.c_stride = in, .a = {NULL, stride, false}, .b = {NULL, in, false}, .m = rows, .n = in, .k = out});
    add_shape(
        b, name, WEIGHT_GRADIENT, per_step,
        (struct eo_multiply){.c_stride = in, .a = {NULL, stride, true}, .b = {NULL, in, false}, .m = out, .n = in, .k = rows});
}

static void add_way(struct bench *b, const char *prefix, const char *name, eo_dtype dtype, const struct eo_tiles *tiles)
{
    struct way *way = &b->ways[b->way_count++];
    need(b->way_count <= WAYS_MAX, "too many ways");
    *way = (struct way){.tiles = tiles, .dtype = dtype};
    snprintf(way->name, sizeof(way->name), "%s%s", prefix, name);
}

/* oneDNN is held to the level in use at its first product, and is to have all of this machine: before others are selected. */
static void let_sgemm_begin(void)
{
    float a[4] = {1, 2, 3, 4}, c[4];
    const struct eo_multiply p = {.types = {EO_DTYPE_FP32, EO_DTYPE_FP32}, .c = c, .c_stride = 2, .a = {a, 2, false},
                                  .b = {a, 2, false}, .m = 2, .n = 2, .k = 2};
    need(eo_cpu_multiply(NULL, &p) >= 0, "a product failed");
}

static void add_ways(struct bench *b)
{
    let_sgemm_begin();
    static const eo_dtype dtypes[] = {EO_DTYPE_BF16, EO_DTYPE_FP32};
    for (int d = 0; d < 2; d++) {
        const eo_dtype dtype = dtypes[d];
        const struct eo_tiles *last = NULL; /* levels may share a table */
        const char *level;
        for (uint32_t i = 0; (level = eo_kernels_at(i)) != NULL && strcmp(level, "reference") != 0; i++) {
            need(eo_kernels_select(level) >= 0, "a level of this machine does not run");
            if (eo_tiles_of(dtype) != last)
                add_way(b, dtype == EO_DTYPE_FP32 ? "fp32 " : "", eo_tiles_of(dtype)->name, dtype, eo_tiles_of(dtype));
            last = eo_tiles_of(dtype);
        }
    }
    add_way(b, "", "sgemm", EO_DTYPE_FP32, NULL);
}

static void prepare(struct bench *b, uint64_t width, uint64_t vocabulary)
{
    add_linear(b, "qkv", ROWS, width, 3 * width, BLOCKS);
    add_linear(b, "attention out", ROWS, width, width, BLOCKS);
    add_linear(b, "MLP up", ROWS, width, 4 * width, BLOCKS);
    add_linear(b, "MLP down", ROWS, 4 * width, width, BLOCKS);
    add_linear(b, "head", HEAD_ROWS, width, vocabulary, ROWS / HEAD_ROWS);
    const uint64_t tokens = 4 * ROWS * width, logits = HEAD_ROWS * (vocabulary + 16);
    const uint64_t weights = (vocabulary > 4 * width ? vocabulary : 4 * width) * width;
    const uint64_t out = tokens > logits ? tokens : logits;
    for (eo_dtype dtype = EO_DTYPE_FP32; dtype <= EO_DTYPE_BF16; dtype++)
        b->values[dtype] = (struct values){elements(dtype, tokens), elements(dtype, weights), elements(dtype, out)};
    b->result = elements(EO_DTYPE_FP32, weights > out ? weights : out);
    uint64_t scratch_bytes = 0;
    for (uint32_t i = 0; i < b->shape_count; i++) {
        const struct eo_multiply *p = &b->shapes[i].product;
        const uint64_t bytes = eo_product_scratch_bytes(p->m, p->n, p->k, 1);
        scratch_bytes = bytes > scratch_bytes ? bytes : scratch_bytes;
    }
    b->scratch = memory_of(scratch_bytes);
    add_ways(b);
}

static void multiply_nothing(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add)
{
    (void)sums, (void)a, (void)panel, (void)units, (void)add;
}

static void finish_nothing(const struct eo_multiply *p, uint64_t row, uint64_t rows, uint64_t column, uint64_t columns,
                           const float *sums, bool stream)
{
    (void)p, (void)row, (void)rows, (void)column, (void)columns, (void)sums, (void)stream;
}

/* tiles: NULL: sgemm. */
static double product_seconds(struct bench *b, const struct way *way, const struct eo_tiles *tiles, const struct shape *shape)
{
    const struct values *v = &b->values[way->dtype];
    struct eo_multiply p = shape->product;
    p.types = (struct eo_types){way->dtype, EO_DTYPE_FP32};
    p.a.values = shape->kind == FORWARD ? v->in : v->out;
    p.b.values = shape->kind == WEIGHT_GRADIENT ? v->in : v->weights;
    p.c = b->result;
    p.scratch = b->scratch;
    const double begin = now_s();
    if (tiles)
        eo_product_run(b->team, tiles, &p);
    else
        need(eo_cpu_multiply(b->team, &p) >= 0, "a product failed");
    return now_s() - begin;
}

/* ---- the loop ---- */

struct loop {
    const struct eo_tiles *tiles;
    const void *operand; /* elements in the tiles' type */
    pthread_barrier_t barrier;
    double flops_per_s[THREADS_MAX];
};

static void loop_task(void *arg, uint32_t index)
{
    struct loop *loop = arg;
    const struct eo_tiles *t = loop->tiles;
    _Alignas(64) char a[EO_TILE_ROWS_MAX * LOOP_UNITS * EO_UNIT_BYTES], panel[EO_PANEL * LOOP_UNITS * EO_UNIT_BYTES];
    _Alignas(64) float sums[EO_TILE_ROWS_MAX * EO_PANEL];
    memcpy(a, loop->operand, sizeof(a));
    memcpy(panel, loop->operand, sizeof(panel));
    const struct eo_tile_a tile = t->by_rows ? (struct eo_tile_a){a, LOOP_UNITS * EO_UNIT_BYTES, EO_UNIT_BYTES}
                                             : (struct eo_tile_a){a, EO_UNIT_BYTES, (uint64_t)t->rows * EO_UNIT_BYTES};
    const double flops = 2.0 * t->rows * EO_PANEL * LOOP_UNITS * eo_tiles_unit_elements(t) * LOOP_CALLS;
    pthread_barrier_wait(&loop->barrier);
    if (t->begin)
        t->begin();
    const double begin = now_s();
    for (int call = 0; call < LOOP_CALLS; call++)
        t->multiply(sums, &tile, panel, LOOP_UNITS, false);
    loop->flops_per_s[index] = flops / (now_s() - begin);
    if (t->end)
        t->end();
}

/* FLOP/s of all threads of the team together. */
static double loop_speed(const struct bench *b, const struct eo_tiles *tiles, eo_team *team)
{
    const uint32_t count = eo_team_thread_count(team);
    struct loop loop = {.tiles = tiles};
    loop.operand = b->values[loop.tiles->units == EO_UNITS_PAIRS ? EO_DTYPE_BF16 : EO_DTYPE_FP32].in;
    need(pthread_barrier_init(&loop.barrier, NULL, count) == 0, "no barrier");
    eo_team_run(team, count, loop_task, &loop);
    pthread_barrier_destroy(&loop.barrier);
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += loop.flops_per_s[i];
    return sum;
}

/* ---- turns and results ---- */

static void keep_largest(double *best, double value)
{
    *best = value > *best ? value : *best;
}

static void take_turn(struct bench *b)
{
    for (uint32_t w = 0; w < b->way_count; w++) {
        struct way *way = &b->ways[w];
        for (int run = 0; run < LOOP_RUNS && way->tiles; run++) {
            keep_largest(&way->loop, loop_speed(b, way->tiles, b->team));
            keep_largest(&way->loop_all, loop_speed(b, way->tiles, b->all));
        }
        struct eo_tiles packing = {0};
        if (way->tiles) {
            packing = *way->tiles;
            packing.multiply = packing.multiply_half = multiply_nothing;
            packing.finish = finish_nothing;
        }
        for (uint32_t i = 0; i < b->shape_count; i++) {
            const struct shape *shape = &b->shapes[i];
            keep_largest(&way->speeds[i], shape->flops / product_seconds(b, way, way->tiles, shape));
            if (way->tiles)
                keep_largest(&way->packing_speeds[i], shape->flops / product_seconds(b, way, &packing, shape));
        }
    }
}

static void print_way(const struct bench *b, const struct way *way)
{
    double flops = 0, seconds = 0, packing = 0;
    uint32_t slowest = 0;
    for (uint32_t i = 0; i < b->shape_count; i++) {
        flops += b->shapes[i].flops * b->shapes[i].per_step;
        seconds += b->shapes[i].flops * b->shapes[i].per_step / way->speeds[i];
        if (way->tiles)
            packing += b->shapes[i].flops * b->shapes[i].per_step / way->packing_speeds[i];
        slowest = way->speeds[i] < way->speeds[slowest] ? i : slowest;
    }
    printf("\"%s\": {\"gflops\": %.1f, \"slowest_gflops\": %.1f, \"slowest\": \"%s\", \"shapes\": {", way->name,
           flops / seconds * 1e-9, way->speeds[slowest] * 1e-9, b->shapes[slowest].name);
    for (uint32_t i = 0; i < b->shape_count; i++)
        printf("%s\"%s\": %.1f", i ? ", " : "", b->shapes[i].name, way->speeds[i] * 1e-9);
    printf("}");
    if (way->tiles) {
        printf(", \"packing_shares\": {");
        for (uint32_t i = 0; i < b->shape_count; i++)
            printf("%s\"%s\": %.4f", i ? ", " : "", b->shapes[i].name, way->speeds[i] / way->packing_speeds[i]);
        printf("}, \"packing_share\": %.4f, \"loop_gflops\": %.1f, \"loop_all_gflops\": %.1f", packing / seconds,
               way->loop * 1e-9, way->loop_all * 1e-9);
    }
    printf("}");
}

int main(int argc, char **argv)
{
    static struct bench b;
    const int turns = argc > 1 ? atoi(argv[1]) : 5, thread_count = argc > 2 ? atoi(argv[2]) : 2;
    const int width = argc > 3 ? atoi(argv[3]) : 768, vocabulary = argc > 4 ? atoi(argv[4]) : 50257;
    if (turns < 1 || thread_count < 1 || thread_count > THREADS_MAX || width < 8 || vocabulary < 8) {
        fprintf(stderr, "usage: bench_products [TURNS [THREADS [WIDTH VOCABULARY]]]\n");
        return 2;
    }
    prepare(&b, (uint64_t)width, (uint64_t)vocabulary);
    need(eo_team_create(&b.team, 1) >= 0 && eo_team_create(&b.all, (uint32_t)thread_count) >= 0, "no threads");
    const uint64_t saved = eo_flush_denormals_begin();
    for (int turn = 0; turn < turns; turn++)
        take_turn(&b);
    eo_flush_denormals_end(saved);
    printf("{\"turns\": %d, \"threads\": %d, \"width\": %d, \"vocabulary\": %d, \"ways\": {", turns, thread_count, width,
           vocabulary);
    for (uint32_t w = 0; w < b.way_count; w++) {
        printf("%s", w ? ", " : "");
        print_way(&b, &b.ways[w]);
    }
    printf("}}\n");
    eo_team_destroy(&b.team);
    eo_team_destroy(&b.all);
    return 0;
}
