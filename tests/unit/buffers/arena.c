/* SPDX-License-Identifier: MIT
 *
 * The arena: reserves all or nothing, hands out what the plan says, and after seal nothing.
 * Method: a device that counts and can fail; exact addresses; every row around the end of a reservation.
 */
#include "buffers/arena.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct counting_device {
    struct eo_device device;
    uint32_t reserved_count, released_count;
    uint64_t live_bytes;
    int live_of_kind[EO_MEMORY_KIND_COUNT];
    uint32_t fail_at; /* the reservation that fails, from 1 */
    char text[1000];
};

static eo_status counting_reserve(struct eo_device *device, enum eo_memory_kind kind, uint64_t bytes, void **out)
{
    struct counting_device *counting = device->state;
    counting->live_of_kind[kind]++;
    if (++counting->reserved_count == counting->fail_at) {
        counting->live_of_kind[kind]--;
        *out = &counting->text; /* rubbish: what a failed call leaves must not be released */
        return EO_ERR_NO_MEMORY;
    }
    *out = calloc(1, bytes);
    counting->live_bytes += bytes;
    return EO_OK;
}

static void counting_release(struct eo_device *device, enum eo_memory_kind kind, void *memory, uint64_t bytes)
{
    struct counting_device *counting = device->state;
    counting->released_count++;
    counting->live_of_kind[kind]--;
    counting->live_bytes -= bytes;
    free(memory);
}

static const struct eo_device_ops counting_ops = {
    .name = "counting", .reserve = counting_reserve, .release = counting_release};

static void keep_text(void *user, eo_log_level level, const char *text)
{
    struct counting_device *counting = user;
    if (level == EO_LOG_ERROR)
        strncpy(counting->text, text, sizeof(counting->text) - 1);
}

static void counting_init(struct counting_device *counting, uint32_t fail_at)
{
    *counting = (struct counting_device){.fail_at = fail_at};
    counting->device.ops = &counting_ops;
    counting->device.state = counting;
    counting->device.log = (eo_log){.write = keep_text, .user = counting, .level = EO_LOG_ERROR};
}

static const uint64_t SPACES[] = {4096, 0, 1000};
static const enum eo_memory_kind KINDS[] = {EO_MEMORY_KIND_GATHER, EO_MEMORY_KIND_GRADIENT, EO_MEMORY_KIND_HOST};

Test(arena, reserves_every_space_once_and_gives_all_back)
{
    struct counting_device counting;
    struct eo_arena arena;
    counting_init(&counting, 0);
    cr_assert_eq(eo_arena_init(&arena, &counting.device, SPACES, KINDS, 3), EO_OK);
    cr_assert_eq(counting.reserved_count, 2, "an empty space needs no reservation");
    cr_assert_eq(counting.live_bytes, 5096);
    cr_assert_eq(arena.reserved_bytes, 5096);
    cr_assert_eq(counting.live_of_kind[EO_MEMORY_KIND_GATHER], 1);
    cr_assert_eq(counting.live_of_kind[EO_MEMORY_KIND_HOST], 1);
    cr_assert_null(arena.base[1]);
    eo_arena_fini(&arena);
    cr_assert_eq(counting.released_count, 2);
    cr_assert_eq(counting.live_bytes, 0);
    for (int kind = 0; kind < EO_MEMORY_KIND_COUNT; kind++)
        cr_assert_eq(counting.live_of_kind[kind], 0, "released as another kind");
    eo_arena_fini(&arena);
    cr_assert_eq(counting.released_count, 2, "fini twice is harmless");
}

Test(arena, reserves_nothing_when_one_space_fails_and_says_which)
{
    for (uint32_t fail_at = 1; fail_at <= 2; fail_at++) {
        struct counting_device counting;
        struct eo_arena arena;
        counting_init(&counting, fail_at);
        cr_assert_eq(eo_arena_init(&arena, &counting.device, SPACES, KINDS, 3), EO_ERR_NO_MEMORY);
        cr_assert_eq(counting.live_bytes, 0);
        cr_assert_eq(counting.released_count, fail_at - 1);
        cr_assert_not_null(strstr(counting.text, fail_at == 1 ? "space 0 of 4096 bytes" : "space 2 of 1000 bytes"),
                           "log: %s", counting.text);
        eo_arena_fini(&arena);
        cr_assert_eq(counting.released_count, fail_at - 1);
    }
}

Test(arena, sizes_that_overflow_are_refused)
{
    const uint64_t spaces[] = {UINT64_MAX, 1};
    struct counting_device counting;
    struct eo_arena arena;
    counting_init(&counting, 0);
    cr_assert_eq(eo_arena_init(&arena, &counting.device, spaces, KINDS, 2), EO_ERR_INVALID);
    cr_assert_eq(counting.reserved_count, 0);
}

Test(arena, take_gives_the_place_the_plan_has_chosen)
{
    struct counting_device counting;
    struct eo_arena arena;
    counting_init(&counting, 0);
    cr_assert_eq(eo_arena_init(&arena, &counting.device, SPACES, KINDS, 3), EO_OK);
    cr_assert_eq(eo_arena_take(&arena, "all", 0, 0, 4096), arena.base[0]);
    cr_assert_eq(eo_arena_take(&arena, "part", 0, 256, 100), (char *)arena.base[0] + 256, "rows may overlap");
    cr_assert_eq(eo_arena_take(&arena, "last byte", 2, 999, 1), (char *)arena.base[2] + 999);
    cr_assert_eq(eo_arena_take(&arena, "nothing", 2, 1000, 0), (char *)arena.base[2] + 1000);
    cr_assert_null(eo_arena_take(&arena, "nothing", 1, 0, 0));
    cr_assert_eq(arena.taken_count, 5);
    eo_arena_fini(&arena);
}

static void take_from_sealed_or_not(bool seal, uint32_t space, uint64_t offset, uint64_t bytes)
{
    struct counting_device counting;
    struct eo_arena arena;
    counting_init(&counting, 0);
    if (eo_arena_init(&arena, &counting.device, SPACES, KINDS, 3) != EO_OK)
        exit(1);
    (void)eo_arena_take(&arena, "honest", 0, 0, 16); /* what follows aborts, not this */
    if (seal)
        eo_arena_seal(&arena);
    (void)eo_arena_take(&arena, "the culprit", space, offset, bytes);
    eo_arena_fini(&arena);
}

Test(arena, take_after_seal_aborts, .signal = SIGABRT)
{
    take_from_sealed_or_not(true, 0, 0, 16);
}

Test(arena, the_same_take_before_seal_does_not_abort)
{
    take_from_sealed_or_not(false, 0, 0, 16);
}

/* Criterion expects the same end of every parameter, so each of these rows is one that must abort. */
struct bad_row {
    uint32_t space;
    uint64_t offset, bytes;
};

ParameterizedTestParameters(arena, a_row_outside_its_reservation_aborts)
{
    static struct bad_row rows[] = {
        {0, 4096, 1}, {0, 1, 4096}, {0, 0, 4097}, {0, UINT64_MAX, 2}, {0, 2, UINT64_MAX},
        {1, 0, 1},    {1, 1, 0},    {2, 1000, 1}, {3, 0, 0},          {3, 0, 1},
    };
    return cr_make_param_array(struct bad_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct bad_row *row, arena, a_row_outside_its_reservation_aborts, .signal = SIGABRT)
{
    take_from_sealed_or_not(false, row->space, row->offset, row->bytes);
}

Test(arena, poison_is_nan_in_both_types)
{
    const uint32_t pattern = EO_POISON;
    float whole, half;
    memcpy(&whole, &pattern, sizeof(whole));
    cr_assert(isnan(whole));
    for (int k = 0; k < 2; k++) {
        const uint32_t widened = pattern >> 16 * k << 16; /* a bf16 is the upper half of a float */
        memcpy(&half, &widened, sizeof(half));
        cr_assert(isnan(half));
    }
}
