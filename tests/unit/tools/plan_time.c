/* SPDX-License-Identifier: MIT
 *
 * The time of evenodd's own steps: the plan's list on a clock; and the devices whose rates it takes.
 */
#include "tests/unit/tools/planned.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/time/plan_time.h"

static struct tool_memplan_settings timed(uint32_t ranks, eo_strategy strategy, uint32_t micro_batches)
{
    struct tool_memplan_settings s = settings_of(ranks);
    s.plan.strategy = strategy;
    s.plan.shard_group = strategy == EO_STRATEGY_HSDP ? 8 : 0;
    s.plan.seq = 2048;
    s.plan.micro_batches = micro_batches;
    s.plan.device = "cuda";
    return s;
}

static struct tool_memplan planned_llama(const struct tool_memplan_settings *settings)
{
    load("llama-3.2-1b");
    return planned(settings);
}

static struct tool_step_time time_of(const struct tool_memplan *plan, const struct tool_device_rates *rates,
                                     const struct tool_walk_rules *rules)
{
    const struct tool_plan_settings *p = &plan->settings.plan;
    const struct tool_shape shape = tool_shape_of(&config);
    const struct tool_system_settings s = {.layout = {.ranks = p->ranks, .tensor = 1, .pipeline = 1, .context = 1, .expert = 1,
                                                      .virtual_stages = 1, .batch = p->batch, .seq = p->seq,
                                                      .micro_batches = p->micro_batches},
                                           .strategy = p->strategy,
                                           .shard_group = p->shard_group};
    struct tool_step_time t;
    cr_assert_eq(tool_plan_step_time(&t, plan, &shape, &s, rates, rules), EO_OK);
    return t;
}

/* Goal: the walk is right. Method: with streams that do not disturb each other the planner's own simulation, written apart, gives
 * the same time; of every strategy, with durations of no pattern. Slower compute beside communication never makes a step shorter. */
Test(plan_time, the_walk_is_the_planners)
{
    for (int strategy = 0; strategy < EO_STRATEGY_COUNT; strategy++) {
        const struct tool_memplan_settings s = timed(16, (eo_strategy)strategy, 3);
        struct tool_memplan plan = planned_llama(&s);
        const uint32_t count = eo_plan_operation_count(plan.plan, EO_LIST_STEADY);
        double *durations = calloc(count, sizeof(*durations)), seconds, disturbed, before = 0;
        uint64_t *durations_ns = calloc(count, sizeof(*durations_ns)), step_ns;
        for (uint32_t i = 0; i < count; i++) {
            durations_ns[i] = (uint64_t)(i * 2654435761u % 1000000);
            durations[i] = (double)durations_ns[i] * 1e-9;
        }
        cr_assert_eq(eo_plan_simulate(plan.plan, EO_LIST_STEADY, durations_ns, 3, &step_ns), EO_OK);
        cr_assert_eq(tool_walk_list(plan.plan, durations, 0, &seconds), EO_OK);
        cr_assert_float_eq(seconds, (double)step_ns * 1e-9, 1e-9, "%s: %g, not %g", eo_strategy_name((eo_strategy)strategy),
                           seconds, (double)step_ns * 1e-9);
        for (int k = 1; k <= 4; k++) {
            cr_assert_eq(tool_walk_list(plan.plan, durations, 0.25 * k, &disturbed), EO_OK);
            cr_assert_geq(disturbed, fmax(seconds, before) - 1e-9);
            before = disturbed;
        }
        free(durations);
        free(durations_ns);
        tool_memplan_fini(&plan);
    }
}

/* Goal: a step is bound by what is slow. Method: links without end leave the sum of compute, products without end what the links
 * take; nodes of 16 are faster than two of 8; a further micro-batch takes as long as the one before it. */
Test(plan_time, steps_are_bound_by_what_is_slow)
{
    const struct tool_walk_rules plain = {.network_share = 0.5};
    struct tool_device_rates rates = *tool_device_rates_find("H100");
    struct tool_memplan_settings s = timed(16, EO_STRATEGY_ZERO3, 1);
    struct tool_memplan plan = planned_llama(&s);
    const struct tool_step_time usual = time_of(&plan, &rates, &plain);
    cr_assert_float_eq(usual.seconds, usual.compute_seconds + usual.exposed_seconds, 1e-12);
    cr_assert(usual.mfu > 0.05 && usual.mfu < 0.7);
    rates.network_bytes = rates.node_bytes = 1e18;
    const struct tool_step_time free_links = time_of(&plan, &rates, &plain);
    cr_assert_float_eq(free_links.seconds, usual.compute_seconds, 1e-3 * usual.compute_seconds);
    rates = *tool_device_rates_find("H100");
    rates.product_flops = rates.memory_bytes = 1e22;
    const double speed = tool_group_bytes(&rates, 16, 1, 8, plain.network_share);
    const double sent = 15.0 / 16 * (2 + 2 + 4) * (double)tool_model_config_parameters(&config);
    const struct tool_step_time free_products = time_of(&plan, &rates, &plain);
    cr_assert_lt(free_products.compute_seconds, 1e-6);
    cr_assert(free_products.seconds > 0.8 * sent / speed && free_products.seconds < 1.1 * sent / speed,
              "%g of %g", free_products.seconds, sent / speed);
    cr_assert_str_eq(free_products.bound_by, "communication");
    tool_memplan_fini(&plan);
    rates = *tool_device_rates_find("A100-80GB");
    double exposed = 0;
    for (uint32_t node = 16; node >= 2; node /= 2) {
        s.gpus_per_node = node;
        plan = planned_llama(&s);
        const double more = time_of(&plan, &rates, &tool_walk_rules).exposed_seconds;
        cr_assert(exposed == 0 ? more > 0 : more > 1.05 * exposed, "nodes of %u: %g after %g", node, more, exposed);
        exposed = more;
        tool_memplan_fini(&plan);
    }
    rates = *tool_device_rates_find("H100");
    s.gpus_per_node = 8;
    struct tool_step_time of[3];
    static const uint32_t counts[] = {4, 8, 20};
    for (int i = 0; i < 3; i++) {
        s = timed(16, EO_STRATEGY_ZERO3, counts[i]);
        plan = planned_llama(&s);
        of[i] = time_of(&plan, &rates, &tool_walk_rules);
        tool_memplan_fini(&plan);
    }
    const struct tool_step_time longer = tool_step_longer(&of[0], 4, &of[1], 8, 20);
    cr_assert_float_eq(longer.seconds, of[2].seconds, 1e-6 * of[2].seconds);
    cr_assert_float_eq(longer.mfu, of[2].mfu, 1e-6);
    cr_assert_float_eq(longer.exposed_seconds, of[2].exposed_seconds, 1e-6 * of[2].seconds);
}

static double work(double rows, double columns)
{
    const double small = fmin(rows, columns), large = fmax(rows, columns);
    return 2 * 5 * small * small * (2 * large + small);
}

/* Goal: Muon's iteration takes its time. Method: all else takes none; the products by formula, each rank a part of them. */
Test(plan_time, muon_takes_its_products)
{
    struct tool_memplan_settings s = timed(16, EO_STRATEGY_ZERO3, 1);
    struct tool_device_rates rates = *tool_device_rates_find("H100");
    cr_assert_float_eq(rates.fp32_flops, 67e12, 1e9);
    s.plan.optimizer = EO_OPTIMIZER_MUON;
    struct tool_memplan plan = planned_llama(&s);
    rates.product_flops = rates.memory_bytes = 1e22;
    rates.fp32_flops = 1e14;
    const double width = config.width, kv = width / config.head_count * config.kv_head_count, mlp = config.mlp_width;
    const double block = 2 * work(width, width) + 2 * work(width, kv) + 3 * work(width, mlp);
    const double expected = config.layer_count * block / 16 / (1e14 * rates.product_share);
    const double seconds = time_of(&plan, &rates, &tool_walk_rules).compute_seconds;
    cr_assert_float_eq(seconds, expected, 1e-4 * expected, "%g, not %g", seconds, expected);
    tool_memplan_fini(&plan);
}

/* Goal: sums of whole gradients take the time of the whole. Method: zero1 adds up what ddp does; it updates and takes the norm
 * of a part, 28 bytes an element and 4, and with an average 40. */
Test(plan_time, sums_of_zero1_are_those_of_ddp)
{
    for (int ema = 0; ema < 2; ema++) {
        struct tool_device_rates rates = *tool_device_rates_find("H100");
        rates.memory_bytes = 1e9;
        double seconds[2], elements = 0;
        for (int k = 0; k < 2; k++) {
            struct tool_memplan_settings s = timed(16, k ? EO_STRATEGY_ZERO1 : EO_STRATEGY_DDP, 2);
            s.plan.ema_decay = ema ? 0.9 : 0;
            struct tool_memplan plan = planned_llama(&s);
            seconds[k] = time_of(&plan, &rates, &tool_walk_rules).compute_seconds;
            elements = (double)plan.summary.element_count;
            tool_memplan_fini(&plan);
        }
        const double less = elements * 15 / 16 * (28 + 4 + 12 * ema) / 1e9;
        cr_assert_float_eq(seconds[0] - seconds[1], less, 0.01 * less, "%g, not %g", seconds[0] - seconds[1], less);
    }
}

static eo_status parse(const char *text)
{
    json_t *root = json_loads(text, 0, NULL);
    cr_assert_not_null(root, "%s", text);
    const eo_status status = tool_devices_parse(root, "own.json", &problem);
    json_decref(root);
    return status;
}

/* Goal: there is one table. Method: devices of the file in the sources are those that memplan knows, each figure with a source;
 * and so are those of a user's file, which replaces devices of the same name. */
Test(plan_time, devices_are_those_of_the_file)
{
    json_t *root = json_load_file(EO_SOURCE_ROOT "/tools/memplan/plan/devices.json", 0, NULL), *row;
    size_t i;
    cr_assert_not_null(root);
    json_array_foreach(json_object_get(root, "devices"), i, row) {
        const struct tool_device_memory *memory = tool_device_memory_at((uint32_t)i);
        cr_assert(memory && memory == tool_device_memory_find(json_string_value(json_object_get(row, "name"))));
        const json_t *figure = json_object_get(row, "memory_bytes");
        cr_assert_eq(memory->bytes, (uint64_t)json_number_value(json_object_get(figure, "value")));
        cr_assert_str_eq(memory->source, json_string_value(json_object_get(figure, "source")));
    }
    cr_assert_null(tool_device_memory_at((uint32_t)i));
    json_decref(root);
    cr_assert_float_eq(tool_device_rates_find("A100-80GB")->product_flops, 312e12, 1);
    cr_assert_float_eq(tool_device_rates_find("h200")->memory_bytes, 4.8e12, 1); /* its own; the rest is H100's */
    cr_assert_float_eq(tool_device_rates_find("H200")->node_bytes, 360e9, 1);
    cr_assert_null(tool_device_rates_find("T4"));
    cr_assert_eq(parse("{\"devices\": [{\"name\": \"mine\", \"like\": \"H100\", \"product_flops\": {\"value\": 5e14, \"source\": \"measured\"}},"
                       "{\"name\": \"T4\", \"memory_bytes\": {\"value\": 1e10, \"source\": \"measured\"}}]}"), EO_OK);
    cr_assert_float_eq(tool_device_rates_find("mine")->product_flops, 5e14, 1);
    cr_assert_eq(tool_device_memory_find("T4")->bytes, 10000000000u);
}

/* Goal: a wrong file is refused by name. */
Test(plan_time, devices_that_cannot_be_are_refused)
{
    static const struct { const char *text, *words; } cases[] = {
        {"[]", "no list"},
        {"{\"devices\": []}", "no list"},
        {"{\"devices\": [1]}", "no \"name\""},
        {"{\"devices\": [{\"name\": \"x\"}]}", "device x: 'memory_bytes'"},
        {"{\"devices\": [{\"name\": \"x\", \"memory_bytes\": {\"value\": -1, \"source\": \"s\"}}]}", "'memory_bytes'"},
        {"{\"devices\": [{\"name\": \"x\", \"memory_bytes\": {\"value\": 5}}]}", "'memory_bytes'"},
        {"{\"devices\": [{\"name\": \"x\", \"like\": \"y\"}]}", "like y, which does not stand before"},
        {"{\"devices\": [{\"name\": \"x\", \"like\": \"T4\", \"product_flops\": {\"value\": 1e12, \"source\": \"s\"}}]}", "not all of"},
        {"{\"devices\": [{\"name\": \"x\", \"like\": \"H100\", \"product_share\": {\"value\": 2, \"source\": \"s\"}}]}", "above 1"},
    };
    cr_assert_not_null(tool_device_memory_at(0));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_assert_eq(parse(cases[i].text), EO_ERR_INVALID, "case %zu", i);
        cr_assert(strstr(problem.text, cases[i].words) && strstr(problem.text, "own.json"), "case %zu: %s", i, problem.text);
    }
    cr_assert_null(tool_device_memory_find("x"));
}
