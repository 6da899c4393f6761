/* SPDX-License-Identifier: MIT
 *
 * Plans of memplan in tests: a model and its settings, the plan of both.
 */
#ifndef EO_TESTS_UNIT_TOOLS_PLANNED_H
#define EO_TESTS_UNIT_TOOLS_PLANNED_H

#include <criterion/criterion.h>

#include "tools/memplan/plan/plan.h"

static struct tool_model_config config;

static struct tool_problem problem;

/* The defaults of these tests. */
static inline struct tool_memplan_settings settings_of(uint32_t ranks)
{
    return (struct tool_memplan_settings){.plan = {.ranks = ranks,
                                                   .strategy = EO_STRATEGY_ZERO3,
                                                   .batch = 1,
                                                   .seq = 128,
                                                   .micro_batches = 1,
                                                   .dtype = EO_DTYPE_BF16,
                                                   .reduce_dtype = EO_DTYPE_FP32,
                                                   .gather_slots = 2,
                                                   .gradient_slots = 2,
                                                   .device = "cpu",
                                                   .threads = 1},
                                          .gpus_per_node = 8};
}

static inline void load_with(const char *model, const char *const *sets, uint32_t count)
{
    cr_assert_geq(tool_model_config_load(&config, model, sets, count, &problem), 0, "%s", problem.text);
}

static inline void load(const char *model)
{
    load_with(model, NULL, 0);
}

static inline struct tool_memplan planned(const struct tool_memplan_settings *settings)
{
    struct tool_memplan plan;
    cr_assert_geq(tool_memplan_create(&plan, &config, settings, &problem), 0, "%s", problem.text);
    return plan;
}

/* The n-th setting of a grid: slots, micro-batches, recompute, element types, pieces of the head, granularity. */
static inline struct tool_memplan_settings setting(uint32_t world, uint32_t n)
{
    struct tool_memplan_settings s = settings_of(world);
    static const uint32_t slots[][2] = {{2, 2}, {1, 1}, {3, 2}, {2, 1}};
    s.plan.gather_slots = slots[n % 4][0];
    s.plan.gradient_slots = slots[n % 4][1];
    s.plan.micro_batches = n / 4 % 2 ? 3 : 1;
    s.plan.recompute = n / 8 % 4 == 0 ? EO_RECOMPUTE_NONE : n / 8 % 4 == 1 ? EO_RECOMPUTE_CHEAP : EO_RECOMPUTE_BLOCKS;
    s.plan.recompute_blocks = n / 8 % 4 == 2 ? 1 : n / 8 % 4 == 3 ? UINT32_MAX : 0;
    s.plan.dtype = n / 3 % 2 ? EO_DTYPE_FP32 : EO_DTYPE_BF16;
    s.plan.reduce_dtype = s.plan.dtype == EO_DTYPE_BF16 && n / 5 % 2 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
    s.plan.float8_gather = s.plan.dtype == EO_DTYPE_BF16 && world > 1 && n % 5 < 3;
    s.plan.head_chunks = 1 + n % 3;
    s.plan.half_blocks = n / 7 % 2;
    s.plan.batch = 1 + n % 2;
    return s;
}

#endif
