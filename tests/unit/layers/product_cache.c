/* SPDX-License-Identifier: MIT
 *
 * The file of plans: what was written is read again, what is not ours is not used, and what is damaged does no harm.
 * Method: a team with plans but without a device; cuBLASLt's version and the table's search stand here.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/cuda/internal.h"

static size_t version = 130000;

size_t cublasLtGetVersion(void)
{
    return version;
}

/* As in layers/cuda/products/plan.c, but for the text. */
struct eo_product_plan *eo_cuda_plan_find(struct eo_cuda_team *team, const struct eo_product_key *key)
{
    uint32_t place = (uint32_t)eo_product_key_hash(key) % EO_CUDA_PLANS_MAX;
    while (team->plans[place].state != EO_PLAN_NONE && memcmp(&team->plans[place].key, key, sizeof(*key)) != 0)
        place = (place + 1) % EO_CUDA_PLANS_MAX;
    team->plans[place].key = *key;
    return &team->plans[place];
}

static char path[64];
static struct eo_cuda_team *made[4];
static int made_count;

static struct eo_cuda_team *make_team(const char *device_name)
{
    struct eo_cuda_team *team = calloc(1, sizeof(*team));
    team->plans = calloc(EO_CUDA_PLANS_MAX, sizeof(team->plans[0]));
    team->plan_cache = path;
    strcpy(team->device_name, device_name);
    made[made_count++] = team;
    return team;
}

static struct eo_product_key key_of(uint64_t m)
{
    const struct eo_multiply product = {.types = {EO_DTYPE_BF16, EO_DTYPE_FP32},
                                        .c_stride = 64,
                                        .a = {NULL, 32, false},
                                        .b = {NULL, 32, true},
                                        .m = m,
                                        .n = 64,
                                        .k = 32,
                                        .epilogue = EO_EPILOGUE_BIAS};
    return eo_product_key_of(&product, NULL);
}

static void add_plan(struct eo_cuda_team *team, uint64_t m, bool timed)
{
    const struct eo_product_key key = key_of(m);
    struct eo_product_plan *plan = eo_cuda_plan_find(team, &key);
    plan->state = EO_PLAN_READY;
    plan->fused = m % 2 == 0;
    plan->timed = timed;
    for (uint64_t i = 0; i < 8; i++)
        plan->algorithm.data[i] = m << 32 | i;
    team->plan_count++;
    team->plans_changed = true;
}

static const struct eo_product_plan *plan_of(struct eo_cuda_team *team, uint64_t m)
{
    const struct eo_product_key key = key_of(m);
    return eo_cuda_plan_find(team, &key);
}

static void setup(void)
{
    snprintf(path, sizeof(path), "/tmp/evenodd-plans-%ld", (long)getpid());
    struct eo_cuda_team *team = make_team("NVIDIA H200");
    add_plan(team, 16, true);
    add_plan(team, 17, true);
    add_plan(team, 18, false);
    eo_cuda_plans_write(team);
    cr_assert_not(team->plans_changed);
}

static void teardown(void)
{
    remove(path);
    for (int i = 0; i < made_count; i++) {
        free(made[i]->plans);
        free(made[i]);
    }
}

TestSuite(product_cache, .init = setup, .fini = teardown);

Test(product_cache, plans_that_were_timed_are_read_again)
{
    struct eo_cuda_team *team = make_team("NVIDIA H200");
    eo_cuda_plans_read(team);
    cr_assert_eq(team->plan_count, 2);
    cr_assert_eq(plan_of(team, 16)->state, EO_PLAN_READ);
    cr_assert(plan_of(team, 16)->fused && !plan_of(team, 17)->fused);
    for (uint64_t i = 0; i < 8; i++)
        cr_assert_eq(plan_of(team, 17)->algorithm.data[i], 17ul << 32 | i);
    cr_assert_eq(plan_of(team, 18)->state, EO_PLAN_NONE);
}

Test(product_cache, a_file_of_another_device_or_version_is_not_used)
{
    struct eo_cuda_team *other = make_team("NVIDIA H100"), *longer = make_team("NVIDIA H200 NVL");
    eo_cuda_plans_read(other);
    eo_cuda_plans_read(longer);
    cr_assert_eq(other->plan_count + longer->plan_count, 0);
    version++;
    struct eo_cuda_team *newer = make_team("NVIDIA H200");
    eo_cuda_plans_read(newer);
    cr_assert_eq(newer->plan_count, 0);
}

Test(product_cache, a_file_cut_anywhere_gives_whole_plans_or_none)
{
    static char text[8192];
    FILE *file = fopen(path, "r");
    const size_t bytes = fread(text, 1, sizeof(text), file);
    fclose(file);
    cr_assert(bytes > 200 && bytes < sizeof(text));
    for (size_t cut = 0; cut < bytes; cut++) {
        file = fopen(path, "w");
        fwrite(text, 1, cut, file);
        fclose(file);
        struct eo_cuda_team *team = make_team("NVIDIA H200");
        made_count--;
        eo_cuda_plans_read(team);
        cr_assert(team->plan_count < 2);
        for (uint64_t i = 0; i < EO_CUDA_PLANS_MAX; i++)
            if (team->plans[i].state != EO_PLAN_NONE)
                cr_assert_eq(team->plans[i].algorithm.data[7], team->plans[i].key.m << 32 | 7);
        free(team->plans);
        free(team);
    }
}
