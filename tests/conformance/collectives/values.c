/* SPDX-License-Identifier: MIT
 *
 * Goal: every byte of a result is the right one, and no byte beside it changes.
 * Method: values that differ for every rank, index and call; sizes around vectors and the streaming limit; guards
 * around every result; in place and not. Sums are held against a plain loop, bit for bit.
 */
#include "tests/conformance/collectives/collectives.h"

#include <stdlib.h>
#include <string.h>

#include "base/float_mode.h"
#include "tests/conformance/ranks.h"

enum { GUARD_BYTES = 256, GUARD = 0xa5, MEMORY_BYTES = 48 << 20 };

static const uint64_t counts[] = {0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 1000, 4099, 70001, 2100003};

static unsigned char *guarded(struct test_rank *self, uint64_t bytes)
{
    unsigned char *memory = test_take(self, bytes + 2 * GUARD_BYTES);
    memset(memory, GUARD, bytes + 2 * GUARD_BYTES);
    return memory + GUARD_BYTES;
}

static void release_guarded(struct test_rank *self, unsigned char *memory, uint64_t bytes)
{
    for (int i = 0; i < GUARD_BYTES; i++) {
        TEST_EXPECT(self, memory[-1 - i] == GUARD, "a byte before the buffer was written");
        TEST_EXPECT(self, memory[bytes + (uint64_t)i] == GUARD, "a byte after the buffer was written");
    }
    test_give(self, memory - GUARD_BYTES);
}

static void gather_once(struct test_rank *self, uint64_t bytes, bool in_place)
{
    const uint64_t salt = bytes * 2 + in_place;
    unsigned char *recv = guarded(self, bytes * self->rank_count);
    unsigned char *send = in_place ? recv + self->rank * bytes : guarded(self, bytes);
    for (uint64_t i = 0; i < bytes; i++)
        send[i] = (unsigned char)test_hash(salt, self->rank, i);
    TEST_HOLDS(self, self->ops->all_gather(self->gather, recv, send, bytes, "values", NULL) == EO_OK);
    TEST_HOLDS(self, self->ops->quiesce(self->gather) == EO_OK);
    for (uint32_t r = 0; r < self->rank_count; r++) {
        for (uint64_t i = 0; i < bytes; i++)
            TEST_EXPECT(self, recv[r * bytes + i] == (unsigned char)test_hash(salt, r, i),
                        "%llu bytes a rank, in place %d: byte %llu of rank %u", (unsigned long long)bytes, in_place,
                        (unsigned long long)i, r);
    }
    for (uint64_t i = 0; i < bytes; i++)
        TEST_EXPECT(self, send[i] == (unsigned char)test_hash(salt, self->rank, i), "the send buffer was written");
    release_guarded(self, recv, bytes * self->rank_count);
    if (!in_place)
        release_guarded(self, send, bytes);
}

static void all_gather_body(struct test_rank *self)
{
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        gather_once(self, counts[k], false);
        gather_once(self, counts[k], true);
    }
    gather_once(self, (uint64_t)17000001 / self->rank_count, false); /* streamed, and not a whole number of vectors */
}

/* Large and small, of both signs, so that sums in another order or another precision have other bits. */
static float value_of(uint64_t salt, uint32_t rank, uint64_t index)
{
    const uint64_t hash = test_hash(salt, rank, index);
    const float fraction = (float)(hash & 0xffffff) / 16777216.0f - 0.5f;
    return fraction * (float)(1u << (hash >> 40) % 24);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Ties to even, told as the choice of the nearer neighbour. */
static uint16_t round_bf16(float value)
{
    const uint32_t low = bits_of(value) & 0xffff;
    const uint16_t high = (uint16_t)(bits_of(value) >> 16);
    return low > 0x8000 || (low == 0x8000 && high % 2) ? (uint16_t)(high + 1) : high;
}

static uint16_t bf16_value(uint64_t salt, uint32_t rank, uint64_t index)
{
    return (uint16_t)(bits_of(value_of(salt, rank, index)) >> 16);
}

/* Not inlined: gcc 12 at -O2 makes one load of this and of the fp32 branch beside it in expected_sum(), and loses the
 * cut to 16 bits (gone with -fno-code-hoisting). */
__attribute__((noinline)) static float widened(uint16_t value)
{
    return float_of((uint32_t)value << 16);
}

static void fill(void *values, uint64_t count, eo_dtype dtype, uint64_t salt, uint32_t rank)
{
    for (uint64_t i = 0; i < count; i++) {
        if (dtype == EO_DTYPE_BF16)
            ((uint16_t *)values)[i] = bf16_value(salt, rank, i);
        else
            ((float *)values)[i] = value_of(salt, rank, i);
    }
}

static uint32_t expected_sum(uint32_t rank_count, eo_dtype dtype, uint64_t salt, uint64_t index)
{
    float sum = 0;
    for (uint32_t r = 0; r < rank_count; r++) {
        const float x = dtype == EO_DTYPE_BF16 ? widened(bf16_value(salt, r, index)) : value_of(salt, r, index);
        sum = r == 0 ? x : sum + x;
    }
    return dtype == EO_DTYPE_BF16 ? round_bf16(sum) : bits_of(sum);
}

static void reduce_once(struct test_rank *self, uint64_t count, eo_dtype dtype, bool in_place)
{
    const uint64_t size = dtype == EO_DTYPE_BF16 ? 2 : 4, all = count * self->rank_count;
    const uint64_t salt = count * 4 + dtype * 2 + in_place;
    unsigned char *send = guarded(self, all * size);
    fill(send, all, dtype, salt, self->rank);
    unsigned char *recv = in_place ? send + self->rank * count * size : guarded(self, count * size);
    TEST_HOLDS(self, self->ops->reduce_scatter(self->reduce, recv, send, count, dtype, "values", NULL) == EO_OK);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_REDUCE) == EO_OK);
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t got = dtype == EO_DTYPE_BF16 ? ((uint16_t *)recv)[i] : bits_of(((float *)recv)[i]);
        const uint32_t want = expected_sum(self->rank_count, dtype, salt, self->rank * count + i);
        TEST_EXPECT(self, got == want, "%s, %llu elements, in place %d: element %llu is %08x, not %08x",
                    dtype == EO_DTYPE_BF16 ? "bf16" : "fp32", (unsigned long long)count, in_place,
                    (unsigned long long)i, got, want);
    }
    /* The other ranks' slices of the input are as they were. */
    for (uint64_t i = 0; i < all; i++) {
        if (in_place && i / count == self->rank)
            continue;
        const uint32_t got = dtype == EO_DTYPE_BF16 ? ((uint16_t *)send)[i] : bits_of(((float *)send)[i]);
        const uint32_t want = dtype == EO_DTYPE_BF16 ? bf16_value(salt, self->rank, i)
                                                     : bits_of(value_of(salt, self->rank, i));
        TEST_EXPECT(self, got == want, "element %llu of the send buffer was written", (unsigned long long)i);
    }
    if (!in_place)
        release_guarded(self, recv, count * size);
    release_guarded(self, send, all * size);
}

static void reduce_scatter_body(struct test_rank *self)
{
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        for (int variant = 0; variant < 4; variant++)
            reduce_once(self, counts[k], variant & 1 ? EO_DTYPE_BF16 : EO_DTYPE_FP32, (variant & 2) != 0);
    }
    reduce_once(self, (uint64_t)4500001 / self->rank_count, EO_DTYPE_FP32, false); /* streamed */
    reduce_once(self, (uint64_t)4500001 / self->rank_count, EO_DTYPE_FP32, true);
}

/* 1e8 + 1 - 1e8: 0 from left to right in fp32, 1 in any other order or in double. A rank each. */
static void rank_order_body(struct test_rank *self)
{
    enum { COUNT = 37 };
    static const float terms[3] = {1e8f, 1.0f, -1e8f};
    float send[COUNT * TEST_RANKS_MAX], recv[COUNT];
    for (uint32_t i = 0; i < COUNT * self->rank_count; i++)
        send[i] = self->rank < 3 ? terms[self->rank] : 0.0f;
    TEST_HOLDS(self, self->ops->reduce_scatter(self->reduce, recv, send, COUNT, EO_DTYPE_FP32, "order", NULL) == EO_OK);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_REDUCE) == EO_OK);
    const float want = self->rank_count >= 3 ? 0.0f : 1e8f;
    for (uint32_t i = 0; i < COUNT; i++)
        TEST_EXPECT(self, recv[i] == want, "element %u is %g, not %g", i, (double)recv[i], (double)want);
}

#if EO_FLOAT_MODE_FLUSH
/* Sums of denormals are denormals, and zeros for who flushes them: in turns, both already under way at one time. */
static void float_mode_body(struct test_rank *self)
{
    enum { COUNT = 37, TIMES = 4 };
    const uint64_t mode = eo_float_mode_get();
    float *send = test_take(self, COUNT * self->rank_count * sizeof(float)), recv[TIMES][COUNT];
    for (uint32_t i = 0; i < COUNT * self->rank_count; i++)
        send[i] = float_of(1000);
    for (int t = 0; t < TIMES; t++) {
        eo_float_mode_set(mode | (t % 2 ? EO_FLOAT_MODE_FLUSH : 0));
        TEST_HOLDS(self, self->ops->reduce_scatter(self->reduce, recv[t], send, COUNT, EO_DTYPE_FP32, "mode", NULL) == EO_OK);
    }
    eo_float_mode_set(mode);
    TEST_HOLDS(self, self->ops->quiesce(self->reduce) == EO_OK);
    const uint32_t ranks = self->rank_count;
    for (int t = 0; t < TIMES && ranks > 1; t++)
        for (uint32_t i = 0; i < COUNT; i++)
            TEST_EXPECT(self, bits_of(recv[t][i]) == (t % 2 ? 0 : 1000 * ranks), "sum %d, element %u has the bits %u", t, i,
                        bits_of(recv[t][i]));
    test_give(self, send);
}
#endif

/* Halves between two bf16: to the even one on both sides; a sum that is not a number stays one; infinities stay. */
static void bf16_rounding_body(struct test_rank *self)
{
    enum { COUNT = 21, CASES = 5 };
    /* rank 0's value, rank 1's value, the sum; 0x3f80 is 1, 0x3b80 half of its last place */
    static const uint16_t cases[CASES][3] = {{0x3f80, 0x3b80, 0x3f80},
                                             {0xbf80, 0xbb80, 0xbf80},
                                             {0x3f81, 0x3b80, 0x3f82},
                                             {0x7f80, 0xff80, 0x7fc0},
                                             {0x7f7f, 0x7f7f, 0x7f80}};
    if (self->rank_count != 2)
        return; /* the table has two addends */
    uint16_t send[COUNT * 2], recv[COUNT];
    for (uint32_t i = 0; i < COUNT * 2; i++)
        send[i] = cases[i % COUNT % CASES][self->rank];
    TEST_HOLDS(self, self->ops->reduce_scatter(self->reduce, recv, send, COUNT, EO_DTYPE_BF16, "ties", NULL) == EO_OK);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_REDUCE) == EO_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint16_t want = cases[i % CASES][2];
        TEST_EXPECT(self, want == 0x7fc0 ? (recv[i] & 0x7fff) > 0x7f80 : recv[i] == want,
                    "element %u is %04x, not %04x", i, recv[i], want);
    }
}

void values_cases(uint32_t rank_count)
{
    const struct test_settings settings = {.rank_count = rank_count, .memory_bytes = MEMORY_BYTES};
    test_run_ranks(&settings, all_gather_body);
    test_report("an all-gather puts every rank's bytes in their place and touches nothing else", rank_count);
    test_run_ranks(&settings, reduce_scatter_body);
    test_report("a reduce-scatter has the bits of a plain sum and touches nothing else", rank_count);
    test_run_ranks(&settings, rank_order_body);
    test_report("sums are taken in rank order in fp32", rank_count);
#if EO_FLOAT_MODE_FLUSH
    test_run_ranks(&settings, float_mode_body);
    test_report("sums are made in the floating-point mode of who asks for them", rank_count);
#endif
    test_run_ranks(&settings, bf16_rounding_body);
    test_report("bf16 sums are rounded once, ties to even", rank_count);
}
