/* SPDX-License-Identifier: MIT */
#include "kernel_fixture.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OPERANDS_MAX = 2048, PATTERN = 0x5a };

static struct {
    unsigned char *base;
    uint64_t bytes;  /* mapped, with the closed page */
    uint64_t offset; /* of the operand */
} operands[OPERANDS_MAX];
static uint32_t operand_count;
static uint32_t seed = 12345;

void *guarded_bytes(uint64_t size)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t body = (size + 64 + page - 1) / page * page; /* at least 64 bytes of pattern */
    cr_assert(operand_count < OPERANDS_MAX);
    unsigned char *base = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(base != MAP_FAILED);
    cr_assert_eq(mprotect(base + body, page, PROT_NONE), 0);
    memset(base, PATTERN, body - size);
    memset(base + body - size, 0xff, size); /* NaN: what is read without having been written shows */
    operands[operand_count].base = base;
    operands[operand_count].bytes = body + page;
    operands[operand_count].offset = body - size;
    operand_count++;
    return base + body - size;
}

float *guarded(uint64_t count)
{
    return guarded_bytes(count * sizeof(float));
}

static uint32_t random_bits(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed;
}

float *guarded_random(uint64_t count, float low, float high)
{
    float *values = guarded(count);
    for (uint64_t i = 0; i < count; i++)
        values[i] = low + (high - low) * (float)(random_bits() >> 8) * 0x1p-24f;
    return values;
}

float *guarded_copy(const float *values, uint64_t count)
{
    float *copy = guarded(count);
    memcpy(copy, values, count * sizeof(float));
    return copy;
}

int32_t *guarded_tokens(uint64_t count, uint32_t below)
{
    int32_t *tokens = guarded_bytes(count * sizeof(int32_t));
    for (uint64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)(random_bits() % below);
    return tokens;
}

void guards_hold(const char *what)
{
    for (uint32_t i = 0; i < operand_count; i++) {
        const unsigned char *base = operands[i].base; /* each byte is the one before, so all are the first */
        cr_assert(base[0] == PATTERN && memcmp(base, base + 1, operands[i].offset - 1) == 0, "%s wrote before operand %u", what,
                  i);
    }
}

void guards_free(void)
{
    guards_hold("a kernel");
    for (uint32_t i = 0; i < operand_count; i++)
        munmap(operands[i].base, operands[i].bytes);
    operand_count = 0;
}

void expect_close(const char *what, const float *a, const float *b, uint64_t count, double relative, double absolute)
{
    for (uint64_t i = 0; i < count; i++) {
        const double error = fabs((double)a[i] - b[i]);
        cr_assert(isfinite(a[i]) && error <= absolute + relative * fabs(b[i]),
                  "%s, %s: element %lu of %lu is %.9g, the reference says %.9g", what, eo_kernels_name(),
                  (unsigned long)i, (unsigned long)count, a[i], b[i]);
    }
}

float *reference_result(kernel_run *run, void *arg, uint64_t count)
{
    float *out = guarded(count);
    run(&eo_kernels_reference_ops, NULL, out, arg);
    return out;
}

static void one_level(kernel_run *run, void *arg, uint64_t count, const float *expected, double relative, double absolute,
                      const char *what)
{
    float *alone = guarded(count);
    run(&eo_kernels_cpu_ops, NULL, alone, arg);
    expect_close(what, alone, expected, count, relative, absolute);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        eo_team *team = NULL;
        cr_assert_eq(eo_team_create(&team, threads), EO_OK);
        float *out = guarded(count);
        run(&eo_kernels_cpu_ops, team, out, arg);
        eo_team_destroy(&team);
        cr_assert_eq(memcmp(out, alone, count * sizeof(float)), 0, "%s, %s: %u threads give other bits", what,
                     eo_kernels_name(), threads);
    }
}

void every_level_and_team(kernel_run *run, void *arg, uint64_t count, const float *expected, double relative,
                          double absolute, const char *what)
{
    static const char *const names[] = {"plain", "avx2", "avx512"};
    uint32_t level_count = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const eo_status status = eo_kernels_select(names[i]);
        if (status == EO_ERR_UNSUPPORTED)
            continue;
        cr_assert_eq(status, EO_OK);
        cr_assert_str_eq(eo_kernels_name(), names[i]);
        level_count++;
        one_level(run, arg, count, expected, relative, absolute, what);
    }
    cr_assert(level_count >= 1, "no level ran");
    guards_hold(what);
}
