/* SPDX-License-Identifier: MIT */
#include "tests/conformance/device/cuda_sides.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hashing.h"

enum { GUARD_BYTES = 512, GUARD = 0xA5, TENSORS_MAX = 64, ALIGN = 256 };

struct sides sides;

static struct {
    uint64_t first, last; /* of the device's memory: its tensor */
    void *host;
} pieces[TENSORS_MAX];
static uint32_t piece_count;
static uint64_t random_state = 88172645463325252u;

void sides_must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    printf("Bail out! %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

/* On the kernels' own stream: cudaMemcpy may return before its bytes are on the device, and is on another stream. */
void sides_copy(void *to, const void *from, uint64_t bytes, enum cudaMemcpyKind kind)
{
    sides_must(cudaMemcpyAsync(to, from, bytes, kind, sides.stream), "cudaMemcpyAsync");
    sides_must(cudaStreamSynchronize(sides.stream), "a kernel before a copy, or the copy");
}

void sides_guard(void)
{
    sides_must(cudaMemsetAsync(sides.memory, GUARD, sides.memory_bytes, sides.stream), "cudaMemsetAsync");
}

/* ---- tensors ---- */

static float random_between(float low, float high)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return low + (high - low) * (float)(random_state >> 40) / 16777216.0F;
}

static struct tensor tensor_of(eo_dtype dtype, uint64_t bytes)
{
    const uint64_t first = sides.used + GUARD_BYTES + sides.offset;
    if (piece_count == TENSORS_MAX || first + bytes + GUARD_BYTES > sides.memory_bytes) {
        printf("Bail out! a case needs more than %llu MiB\n", (unsigned long long)(sides.memory_bytes >> 20));
        exit(1);
    }
    struct tensor t = {.dtype = dtype, .count = bytes / eo_dtype_bytes(dtype)};
    t.at[DEVICE] = sides.memory + first;
    t.at[HOST] = calloc(1, bytes + 64);
    pieces[piece_count].first = first;
    pieces[piece_count].last = first + bytes;
    pieces[piece_count++].host = t.at[HOST];
    if (sides.on_tensor)
        sides.on_tensor(t.at[DEVICE], bytes);
    sides.used = (first + bytes + GUARD_BYTES + ALIGN - 1) / ALIGN * ALIGN;
    return t;
}

void tensor_put(const struct tensor *t, const void *bytes)
{
    const uint64_t size = t->count * eo_dtype_bytes(t->dtype);
    if (bytes != t->at[HOST])
        memcpy(t->at[HOST], bytes, size);
    sides_copy(t->at[DEVICE], bytes, size, cudaMemcpyHostToDevice);
}

struct tensor tensor_strided(eo_dtype dtype, uint64_t rows, uint64_t width, uint64_t stride, float low, float high)
{
    struct tensor t = tensor_of(dtype, ((rows - 1) * stride + width) * eo_dtype_bytes(dtype));
    for (uint64_t i = 0; i < t.count; i++)
        eo_element_store(dtype, t.at[HOST], i, random_between(low, high));
    t.rows = rows, t.width = width, t.stride = stride;
    tensor_put(&t, t.at[HOST]);
    return t;
}

struct tensor tensor_random(eo_dtype dtype, uint64_t rows, uint64_t width, float low, float high)
{
    return tensor_strided(dtype, rows, width, width, low, high);
}

struct tensor tensor_unset(eo_dtype dtype, uint64_t rows, uint64_t width)
{
    struct tensor t = tensor_of(dtype, rows * width * eo_dtype_bytes(dtype));
    for (uint64_t i = 0; i < t.count; i++)
        eo_element_store(dtype, t.at[HOST], i, NAN);
    t.rows = rows, t.width = t.stride = width;
    tensor_put(&t, t.at[HOST]);
    return t;
}

struct tensor tensor_tokens(uint64_t count, uint32_t below)
{
    struct tensor t = tensor_of(EO_DTYPE_FP32, count * sizeof(int32_t));
    for (uint64_t i = 0; i < count; i++)
        ((int32_t *)t.at[HOST])[i] = (int32_t)random_between(0, (float)below);
    tensor_put(&t, t.at[HOST]);
    return t;
}

struct tensor tensor_bytes(uint64_t bytes)
{
    const uint64_t offset = sides.offset;
    sides.offset = 0; /* scratch is always aligned */
    struct tensor t = tensor_of(EO_DTYPE_FP32, (bytes + 7) / 8 * 8 + 8);
    sides.offset = offset;
    memset(t.at[HOST], 0xff, t.count * sizeof(float)); /* NaN: what a kernel has not written is garbage */
    tensor_put(&t, t.at[HOST]);
    return t;
}

void *tensor_at(const struct tensor *t, enum side side, uint64_t element)
{
    return (char *)t->at[side] + element * eo_dtype_bytes(t->dtype);
}

/* ---- comparisons ---- */

void expect_that(bool condition, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!condition)
        tap_vnote(__FILE__, __LINE__, format, arguments);
    va_end(arguments);
}

void expect_status(eo_status status, const char *what)
{
    expect_that(status == EO_OK, "%s: %s", what, eo_status_text(status));
}

static void *fetched(const struct tensor *t)
{
    const uint64_t bytes = t->count * eo_dtype_bytes(t->dtype);
    void *copy = malloc(bytes);
    sides_copy(copy, t->at[DEVICE], bytes, cudaMemcpyDeviceToHost);
    return copy;
}

uint64_t device_hash(const struct tensor *t)
{
    unsigned char *bytes = fetched(t);
    const uint64_t hash = eo_hash64(bytes, t->count * eo_dtype_bytes(t->dtype));
    free(bytes);
    return hash;
}

double tolerance_of(eo_dtype dtype, uint64_t sum_length)
{
    const double rounding = dtype == EO_DTYPE_BF16 ? 1.0 / 128 : 0;
    return rounding + 4e-7 * (8 + sqrt((double)sum_length));
}

double root_mean_square(const struct tensor *t)
{
    double sum = 0;
    uint64_t finite = 0;
    for (uint64_t row = 0; row < t->rows; row++)
        for (uint64_t i = 0; i < t->width; i++) {
            const double x = eo_element_load(t->dtype, t->at[HOST], row * t->stride + i);
            sum += isfinite(x) ? x * x : 0;
            finite += isfinite(x);
        }
    return finite ? sqrt(sum / (double)finite) : 0;
}

/* `terms` NULL: `scale` for each. */
static void compare_sides(const char *what, const struct tensor *t, double tolerance, double scale, const double *terms)
{
    void *device = fetched(t);
    double worst = 0;
    uint64_t worst_at = 0, different = 0;
    for (uint64_t i = 0; i < t->count; i++) {
        const bool between = i % t->stride >= t->width;
        const double a = eo_element_load(t->dtype, device, i), b = eo_element_load(t->dtype, t->at[HOST], i);
        const double size = fabs(b) + (terms ? terms[i] : scale);
        const bool same = memcmp((char *)device + i * eo_dtype_bytes(t->dtype),
                                 tensor_at(t, HOST, i), eo_dtype_bytes(t->dtype)) == 0;
        if (same || (!between && tolerance > 0 && fabs(a - b) <= tolerance * size) || (!between && isnan(a) && isnan(b)))
            continue;
        const double error = fabs(a - b) / (size + 1e-30);
        if (different++ == 0 || error > worst || !isfinite(a)) {
            worst = error;
            worst_at = i;
        }
    }
    expect_that(different == 0, "%s: %llu of %llu differ; at %llu: %.9g, the reference has %.9g (error %.3g, allowed %.3g)",
                what, (unsigned long long)different, (unsigned long long)t->count, (unsigned long long)worst_at,
                (double)eo_element_load(t->dtype, device, worst_at),
                (double)eo_element_load(t->dtype, t->at[HOST], worst_at), worst, tolerance);
    free(device);
}

void expect_equal(const char *what, const struct tensor *t, double tolerance)
{
    compare_sides(what, t, tolerance, root_mean_square(t), NULL);
}

void expect_equal_of_terms(const char *what, const struct tensor *t, double tolerance, double *terms)
{
    compare_sides(what, t, tolerance, 0, terms);
    free(terms);
}

double *row_sizes(const struct tensor *t)
{
    double *sizes = calloc(t->rows, sizeof(*sizes));
    for (uint64_t row = 0; row < t->rows; row++) {
        struct tensor one = *t;
        one.at[HOST] = tensor_at(t, HOST, row * t->stride);
        one.rows = 1;
        sizes[row] = root_mean_square(&one);
    }
    return sizes;
}

double *terms_of_rows(const struct tensor *t)
{
    double *terms = calloc(t->count, sizeof(*terms)), *sizes = row_sizes(t);
    for (uint64_t i = 0; i < t->count; i++)
        terms[i] = sizes[i / t->stride];
    free(sizes);
    return terms;
}

double *terms_of_losses(const struct tensor *logits)
{
    double *terms = calloc(logits->rows, sizeof(*terms));
    for (uint64_t i = 0; i < logits->count; i++) {
        const double x = fabs((double)eo_element_load(logits->dtype, logits->at[HOST], i));
        if (i % logits->stride < logits->width && isfinite(x))
            terms[i / logits->stride] = fmax(terms[i / logits->stride], x);
    }
    return terms;
}

double *terms_of_loss_gradient(const struct tensor *logits, const struct tensor *targets, double scale)
{
    double *terms = calloc(logits->count, sizeof(*terms));
    for (uint64_t row = 0; row < logits->rows; row++) {
        const int32_t target = ((const int32_t *)targets->at[HOST])[row];
        if (target >= 0)
            terms[row * logits->stride + (uint64_t)target] = scale;
    }
    return terms;
}

/* ---- cases ---- */

static void check_guards(const char *what)
{
    unsigned char *all = malloc(sides.used + GUARD_BYTES);
    uint64_t at = 0;
    sides_copy(all, sides.memory, sides.used, cudaMemcpyDeviceToHost);
    for (uint32_t p = 0; p <= piece_count; p++) {
        const uint64_t end = p < piece_count ? pieces[p].first : sides.used;
        for (; at < end; at++)
            if (all[at] != GUARD) {
                expect_that(false, "%s wrote %llu bytes %s tensor %u", what,
                            (unsigned long long)(p < piece_count && end - at <= GUARD_BYTES / 2 ? end - at
                                                 : p > 0                                        ? at - pieces[p - 1].last + 1
                                                                                                : at),
                            p < piece_count && end - at <= GUARD_BYTES / 2 ? "before" : "behind", p);
                break;
            }
        at = p < piece_count ? pieces[p].last : at;
    }
    free(all);
}

void part_end(const char *what)
{
    check_guards(what);
    sides_must(cudaMemsetAsync(sides.memory, GUARD, sides.used, sides.stream), "cudaMemsetAsync");
    for (uint32_t p = 0; p < piece_count; p++)
        free(pieces[p].host);
    if (sides.on_tensor)
        sides.on_tensor(NULL, 0);
    piece_count = 0;
    sides.used = 0;
}
