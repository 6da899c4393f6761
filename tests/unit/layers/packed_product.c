/* SPDX-License-Identifier: MIT
 *
 * Products by packed operands, with every table that this machine runs, and with AMX's instructions in plain C
 * (layers/cpu/products/amx.h).
 * Method: sizes with odd ends, k of one piece and of several, every transposition, epilogue and type of C, strides with gaps,
 * scratch full of NaN; against sums in double of the same elements. Bounds: n terms in any order are off by at most
 * (n + 1) 2^-23 of the sum of their magnitudes, a pair's rounding included; a store to bf16 by 2^-8 of the value.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_fixture.h"
#include "layers/cpu/products/tiles.h"

extern const struct eo_tiles eo_tiles_amx_emulated;

enum { TABLES_MAX = 12, GUARD = 1 << 18, GUARD_BYTE = 0x5a }; /* behind the scratch: more than any block's sums overrun */

static uint32_t tables_of(const struct eo_tiles *tables[TABLES_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; eo_kernels_at(i); i++) {
        if (strcmp(eo_kernels_at(i), "reference") == 0)
            continue;
        cr_assert_eq(eo_kernels_select(eo_kernels_at(i)), EO_OK);
        tables[count++] = eo_tiles_of(EO_DTYPE_BF16);
    }
    tables[count++] = &eo_tiles_fp32_plain;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        tables[count++] = &eo_tiles_fp32_avx2;
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        tables[count++] = &eo_tiles_fp32_avx512;
        tables[count++] = &eo_tiles_amx_emulated; /* what follows its products is AVX-512's */
        static struct eo_tiles groups; /* groups of panels in every piece of k */
        groups = eo_tiles_amx_emulated;
        groups.name = "amx_emulated, groups of two";
        groups.chunk = 512;
        groups.group = 2;
        groups.b_units = EO_B_COLUMNS_MIN * 1024;
        tables[count++] = &groups;
    }
#endif
    return count;
}

struct product_case {
    uint64_t m, n, k;
};

static const struct product_case cases[] = {{1, 1, 1},       {3, 33, 2},   {33, 31, 17},   {64, 64, 64},   {97, 40, 96},
                                            {40, 300, 32},   {12, 5, 129}, {50, 33, 2177}, {65, 70, 2112}, {1100, 35, 33},
                                            {13, 290, 2112}, {35, 34, 0},  {100, 40, 436}, {100, 40, 612}, {1100, 512, 34},
                                            {30, 17, 70},    {30, 48, 70}}; /* more than half a panel, and half */

/* An operand's elements, and their values. */
struct values {
    void *elements;
    float *seen;
    eo_dtype dtype;
    uint64_t count;
};

static struct values values_of(eo_dtype dtype, uint64_t count)
{
    struct values v = {guarded_bytes(count * eo_dtype_bytes(dtype)), guarded(count), dtype, count};
    eo_elements_store(dtype, v.elements, 0, guarded_random(count, -1, 1), count);
    eo_elements_load(dtype, v.seen, v.elements, 0, count);
    return v;
}

static uint64_t extent(uint64_t rows, uint64_t columns, uint64_t stride)
{
    return rows == 0 || columns == 0 ? 1 : (rows - 1) * stride + columns;
}

struct scene {
    const struct product_case *size;
    const struct eo_tiles *tiles;
    struct eo_multiply p;
    struct values a, b, c, aux, bias;
    uint64_t scratch_bytes;
    double *sums, *sizes; /* of products, and of their magnitudes: the same for all tables */
};

static eo_dtype dtype_of_tiles(const struct eo_tiles *tiles)
{
    return tiles->units == EO_UNITS_FP32 ? EO_DTYPE_FP32 : EO_DTYPE_BF16;
}

static void scene_open(struct scene *s, eo_dtype dtype, const struct product_case *size, uint32_t way, uint32_t threads)
{
    const bool ta = way & 1, tb = way & 2;
    *s = (struct scene){.size = size};
    struct eo_multiply *p = &s->p;
    *p = (struct eo_multiply){.types = {dtype, way & 4 ? EO_DTYPE_FP32 : dtype}, .m = size->m, .n = size->n, .k = size->k};
    p->epilogue = (enum eo_epilogue)(way / 8 % 4);
    p->remakes = way & 32;
    p->weight_gradient = p->epilogue == EO_EPILOGUE_NONE && way & 4;
    p->accumulate = p->epilogue == EO_EPILOGUE_NONE && way & 32;
    const uint64_t gap = way / 2 % 3;
    p->a = (struct eo_operand){NULL, (ta ? p->m : p->k) + gap, ta};
    p->b = (struct eo_operand){NULL, (tb ? p->k : p->n) + gap, tb};
    p->c_stride = p->n + gap;
    p->aux_stride = p->n + 2 * gap;
    s->a = values_of(dtype, ta ? extent(p->k, p->m, p->a.stride) : extent(p->m, p->k, p->a.stride));
    s->b = values_of(dtype, tb ? extent(p->n, p->k, p->b.stride) : extent(p->k, p->n, p->b.stride));
    s->c = values_of(p->weight_gradient ? p->types.gradient : dtype, extent(p->m, p->n, p->c_stride));
    s->aux = values_of(dtype, extent(p->m, p->n, p->aux_stride));
    s->bias = values_of(dtype, p->n);
    p->a.values = s->a.elements;
    p->b.values = s->b.elements;
    p->c = s->c.elements;
    p->aux = s->aux.elements;
    p->bias = s->bias.elements;
    s->scratch_bytes = eo_product_scratch_bytes(p->m, p->n, p->k, threads);
    p->scratch = aligned_alloc(64, s->scratch_bytes + GUARD);
    memset((char *)p->scratch + s->scratch_bytes, GUARD_BYTE, GUARD);
}

static void scene_run(struct scene *s, const struct eo_tiles *tiles)
{
    s->tiles = tiles;
    eo_elements_store(s->c.dtype, s->c.elements, 0, s->c.seen, s->c.count); /* as they were before other tables */
    eo_elements_store(s->aux.dtype, s->aux.elements, 0, s->aux.seen, s->aux.count);
    memset(s->p.scratch, 0xff, s->scratch_bytes);
    eo_product_run(NULL, tiles, &s->p);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

static void scene_sum(struct scene *s)
{
    const struct eo_multiply *p = &s->p;
    s->sums = calloc(p->m * p->n, sizeof(*s->sums));
    s->sizes = calloc(p->m * p->n, sizeof(*s->sizes));
    for (uint64_t at = 0; at < p->m * p->n; at++) {
        const uint64_t row = at / p->n, column = at % p->n;
        for (uint64_t i = 0; i < p->k; i++) {
            const double a = s->a.seen[p->a.transposed ? i * p->a.stride + row : row * p->a.stride + i];
            const double b = s->b.seen[p->b.transposed ? column * p->b.stride + i : i * p->b.stride + column];
            s->sums[at] += a * b;
            s->sizes[at] += fabs(a * b);
        }
    }
}

/* The value, and how far a right one may be from it. gelu's slope is at most 1.13, and its second derivative 1.13, too. */
static double expected_at(const struct scene *s, uint64_t row, uint64_t column, double *bound)
{
    const struct eo_multiply *p = &s->p;
    const double size = s->sizes[row * p->n + column];
    double sum = s->sums[row * p->n + column];
    const double old = s->c.seen[row * p->c_stride + column], aux = s->aux.seen[row * p->aux_stride + column];
    const double store = s->c.dtype == EO_DTYPE_BF16 ? 0x1p-8 : 0x1p-23;
    *bound = (double)(p->k + 1) * 0x1p-23 * size;
    switch (p->epilogue) {
    case EO_EPILOGUE_NONE:
    case EO_EPILOGUE_BIAS_GRADIENT: /* not of this table */
        sum += p->accumulate ? old : 0;
        break;
    case EO_EPILOGUE_BIAS:
        sum += s->bias.seen[column];
        break;
    case EO_EPILOGUE_BIAS_GELU:
        sum += s->bias.seen[column];
        const float stored = eo_element_load(s->aux.dtype, s->aux.elements, row * p->aux_stride + column);
        *bound += store * fabs(sum) + 0x1p-22 * (fabs(sum) + 1);
        cr_assert(fabs(stored - sum) <= *bound, "%s: aux [%lu][%lu] is %.9g, not %.9g", s->tiles->name, (unsigned long)row,
                  (unsigned long)column, stored, sum);
        *bound = 1e-6 * (fabs(stored) + 1); /* GELU is taken of the stored value */
        sum = gelu(stored);
        break;
    case EO_EPILOGUE_GELU_GRADIENT:
        sum *= gelu_slope(aux);
        const double again = eo_element_load(s->aux.dtype, s->aux.elements, row * p->aux_stride + column);
        const double now = p->remakes ? gelu(aux) : aux;
        cr_assert(fabs(again - now) <= p->remakes * (store * fabs(now) + 1e-6 * (fabs(aux) + 1)),
                  "%s: aux [%lu][%lu] is %.9g, not %.9g", s->tiles->name, (unsigned long)row, (unsigned long)column, again,
                  now);
        *bound *= 1.13;
        *bound += 1e-6 * size; /* of the slope in fp32 */
        break;
    }
    *bound += store * fabs(sum) + 0x1p-22 * (fabs(sum) + fabs(old) + 1);
    return sum;
}

static void scene_check(const struct scene *s, uint32_t way)
{
    const struct eo_multiply *p = &s->p;
    const char *guard = (const char *)p->scratch + s->scratch_bytes; /* each byte is the one before, so all are the first */
    cr_assert(guard[0] == GUARD_BYTE && memcmp(guard, guard + 1, GUARD - 1) == 0,
              "%s, %lu x %lu x %lu, way %u: bytes behind the scratch are written", s->tiles->name, (unsigned long)p->m,
              (unsigned long)p->n, (unsigned long)p->k, way);
    guards_hold(s->tiles->name);
    for (uint64_t i = 0; i < s->c.count; i++) {
        const uint64_t row = i / p->c_stride, column = i % p->c_stride;
        const float got = eo_element_load(s->c.dtype, s->c.elements, i);
        double bound = 0, expected = s->c.seen[i]; /* between rows nothing changes */
        if (column < p->n)
            expected = expected_at(s, row, column, &bound);
        cr_assert(fabs(got - expected) <= bound, "%s, %lu x %lu x %lu, way %u: [%lu][%lu] is %.9g, not %.9g, off by at most %.3g",
                  s->tiles->name, (unsigned long)p->m, (unsigned long)p->n, (unsigned long)p->k, way, (unsigned long)row,
                  (unsigned long)column, got, expected, bound);
    }
}

static void scene_close(struct scene *s)
{
    free(s->p.scratch);
    free(s->sums);
    free(s->sizes);
    guards_free();
}

Test(packed_product, matches_in_every_table_way_and_size)
{
    const struct eo_tiles *tables[TABLES_MAX];
    const uint32_t count = tables_of(tables);
    cr_assert(count >= 2);
    for (uint32_t d = 0; d < 2; d++) {
        const eo_dtype dtype = d ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
        for (uint32_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
            const uint64_t terms = cases[c].m * cases[c].n * cases[c].k;
            const uint32_t step = terms > 10000000 ? 6
                                  : terms > 100000 ? 5
                                                   : 1; /* 6: no gaps, so that stores pass the caches */
            for (uint32_t way = c % 2; way < 64; way += step) {
                struct scene s;
                scene_open(&s, dtype, &cases[c], way, 1);
                scene_sum(&s);
                for (uint32_t t = 0; t < count; t++) {
                    if (dtype_of_tiles(tables[t]) != dtype)
                        continue;
                    scene_run(&s, tables[t]);
                    scene_check(&s, way);
                }
                scene_close(&s);
            }
        }
    }
}

Test(packed_product, has_the_same_bits_for_any_team)
{
    const struct eo_tiles *tables[TABLES_MAX];
    const uint32_t count = tables_of(tables);
    static const struct product_case sizes[] = {{100, 50, 65}, {30, 200, 2200}, {1100, 800, 34}, {100, 130, 612}};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) }; /* one block, pieces, blocks, a piece that is nearly two */
    for (uint32_t t = 0; t < count; t++) {
        for (uint32_t c = 0; c < SIZES; c++) {
            struct scene s;
            scene_open(&s, dtype_of_tiles(tables[t]), &sizes[c], 18, 3); /* with GELU, without gaps */
            scene_run(&s, tables[t]);
            const uint64_t c_bytes = s.c.count * eo_dtype_bytes(s.c.dtype), aux_bytes = s.aux.count * eo_dtype_bytes(s.aux.dtype);
            char *first = malloc(c_bytes + aux_bytes);
            memcpy(first, s.c.elements, c_bytes);
            memcpy(first + c_bytes, s.aux.elements, aux_bytes);
            for (uint32_t threads = 1; threads <= 3; threads++) {
                eo_team *team = NULL;
                cr_assert_eq(eo_team_create(&team, threads), EO_OK);
                memset(s.p.scratch, 0xff, s.scratch_bytes);
                memset(s.aux.elements, 0, aux_bytes);
                eo_product_run(team, s.tiles, &s.p);
                cr_assert(memcmp(first, s.c.elements, c_bytes) == 0 && memcmp(first + c_bytes, s.aux.elements, aux_bytes) == 0,
                          "%s, %u threads", s.tiles->name, threads);
                eo_team_destroy(&team);
            }
            free(first);
            scene_close(&s);
        }
    }
}

Test(packed_product, with_amx_itself)
{
    const struct eo_tiles *tables[TABLES_MAX];
    bool has_amx = false;
    for (uint32_t t = tables_of(tables); t > 0; t--)
        has_amx = has_amx || strcmp(tables[t - 1]->name, "amx") == 0;
    if (eo_kernels_select("amx") == EO_ERR_UNSUPPORTED)
        cr_skip_test("this processor has no AMX: its instructions in plain C were tested, if it has AVX-512");
    cr_assert(has_amx, "the tests above left it out");
}

/* GELU_GRADIENT makes of BIAS_GELU's aux what BIAS_GELU made of it, to the bit, and leaves what lies between rows. */
Test(packed_product, makes_gelu_again)
{
    const struct eo_tiles *tables[TABLES_MAX];
    const uint32_t count = tables_of(tables);
    for (uint32_t t = 0; t < count; t++) {
        for (uint32_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
            struct scene s;
            scene_open(&s, dtype_of_tiles(tables[t]), &cases[c], 16, 1); /* BIAS_GELU; its result lies as aux does */
            const uint64_t bytes = s.aux.count * eo_dtype_bytes(s.aux.dtype);
            void *const gelu = memcpy(guarded_bytes(bytes), s.aux.elements, bytes);
            s.p.c = gelu;
            s.p.c_stride = s.p.aux_stride;
            memset(s.p.scratch, 0xff, s.scratch_bytes);
            eo_product_run(NULL, tables[t], &s.p);
            s.p.c = s.c.elements;
            s.p.c_stride = s.p.n + (s.p.aux_stride - s.p.n) / 2;
            s.p.epilogue = EO_EPILOGUE_GELU_GRADIENT;
            s.p.remakes = true;
            eo_product_run(NULL, tables[t], &s.p);
            cr_assert_eq(memcmp(s.aux.elements, gelu, bytes), 0, "%s, %lu x %lu x %lu", tables[t]->name, (unsigned long)s.p.m,
                         (unsigned long)s.p.n, (unsigned long)s.p.k);
            scene_close(&s);
        }
    }
}

/* A row of NaN and one of infinities stay what they are, each beside numbers. */
Test(packed_product, keeps_what_is_not_finite)
{
    enum { SIDE = 64 };
    static uint16_t a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
    const struct eo_tiles *tables[TABLES_MAX];
    const uint32_t count = tables_of(tables);
    for (uint32_t i = 0; i < SIDE; i++) {
        a[i][0] = eo_element_to_bf16(i == 1 ? NAN : i == 2 ? INFINITY : 1);
        b[0][i] = eo_element_to_bf16(i % 3 == 0 ? 1 : 2);
    }
    struct eo_multiply p = {.types = {EO_DTYPE_BF16, EO_DTYPE_FP32}, .c = c, .c_stride = SIDE, .a = {a, SIDE, false},
                            .b = {b, SIDE, false}, .m = SIDE, .n = SIDE, .k = SIDE};
    p.scratch = aligned_alloc(64, eo_product_scratch_bytes(SIDE, SIDE, SIDE, 1));
    for (uint32_t t = 0; t < count; t++) {
        if (tables[t]->units == EO_UNITS_FP32)
            continue;
        eo_product_run(NULL, tables[t], &p);
        for (uint32_t i = 0; i < SIDE; i++)
            cr_assert(isnan(eo_element_from_bf16(c[1][i])) && isinf(eo_element_from_bf16(c[2][i])) &&
                      eo_element_from_bf16(c[3][i]) == (i % 3 == 0 ? 1 : 2), "%s, column %u", tables[t]->name, i);
    }
    free(p.scratch);
}

Test(packed_product, scratch_grows_with_sizes_up_to_a_bound)
{
    const uint64_t large = eo_product_scratch_bytes(1 << 20, 1 << 20, 1 << 20, 1);
    cr_assert(large < (uint64_t)8 << 20);
    cr_assert_eq(eo_product_scratch_bytes(1 << 20, 1 << 20, 1 << 20, 3), 3 * large);
    cr_assert(eo_product_scratch_bytes(16, 32, 32, 1) < 40 << 10);
    cr_assert_eq(eo_product_scratch_bytes(100, 100, 100, 1) % 64, 0);
}
