/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>

#include "tools/memplan/estimate/answer.h"
#include "tools/memplan/time/plan_time.h"
#include "tools/shared/json_output.h"

/* Of published steps that no constant was fitted on. A test computes them. */
static const char *error_of(enum tool_system system)
{
    return system == TOOL_SYSTEM_EVENODD
               ? "the plan's list on a clock, an estimate: YaFSDP's published steps come out 3 % off on average, 6 % at most; one "
                 "H100 took a fifth less (docs/gpu.md)"
               : "time is an estimate: 6 % off on average on published steps, 38 % at most";
}

static void time_text(struct tool_time_answer *a, const struct tool_estimate_request *request)
{
    const struct tool_step_time *t = &a->step;
    int used = snprintf(
        a->text, sizeof(a->text),
        "time: %.3f s a step, %.0f tokens/s, MFU %.1f %%; bound by %s; communication not hidden %.3f s, pipeline bubble "
        "%.3f s\n",
        t->seconds, t->tokens_per_second, 100 * t->mfu, t->bound_by, t->exposed_seconds, t->bubble_seconds);
    if (a->days > 0)
        used += snprintf(a->text + used, sizeof(a->text) - (size_t)used, "training: %.4g tokens take %.1f days on %u GPUs",
                         request->tokens, a->days, request->asked->plan.ranks);
    if (a->cost > 0)
        used += snprintf(a->text + used, sizeof(a->text) - (size_t)used, " and cost %.0f at %g an hour and GPU", a->cost,
                         request->price);
    snprintf(a->text + used, sizeof(a->text) - (size_t)used,
             "%s%s (memplan --published)\n", a->days > 0 ? "\n" : "", error_of(request->system));
}

static eo_status walk_with(struct tool_step_time *out, uint32_t micro_batches, uint32_t stage,
                           const struct tool_estimate_request *request, const struct tool_shape *shape,
                           const struct tool_system_settings *settings, const struct tool_device_rates *rates,
                           struct tool_problem *problem)
{
    struct tool_memplan_settings asked = request->plan->settings;
    struct tool_system_settings fewer = *settings;
    struct tool_memplan plan;
    asked.plan.micro_batches = fewer.layout.micro_batches = micro_batches;
    asked.slice.stage = stage;
    EO_TRY(request->scratch ? tool_memplan_create_next(&plan, request->config, &asked, request->scratch, problem)
                            : tool_memplan_create(&plan, request->config, &asked, problem));
    const eo_status status = tool_plan_step_time(out, &plan, shape, &fewer, rates, &tool_walk_rules);
    tool_memplan_fini(&plan);
    return status;
}

/* A long step is walked with a few micro-batches, and with more of them: between the first and the last all are alike, so each
 * further one takes as long. Interleaved stages take them in groups of as many as there are stages. */
static eo_status walk_stage(struct tool_step_time *out, uint32_t stage, const struct tool_estimate_request *request,
                            const struct tool_shape *shape, const struct tool_system_settings *settings,
                            const struct tool_device_rates *rates, struct tool_problem *problem)
{
    const struct tool_layout *l = &settings->layout;
    const uint32_t unit = l->virtual_stages > 1 ? l->pipeline : 1, few = (4 + unit - 1) / unit * unit, more = 2 * few;
    struct tool_step_time fewer, further;
    if (l->micro_batches <= more && l->pipeline == 1)
        return tool_plan_step_time(out, request->plan, shape, settings, rates, &tool_walk_rules);
    if (l->micro_batches <= more)
        return walk_with(out, l->micro_batches, stage, request, shape, settings, rates, problem);
    EO_TRY(walk_with(&fewer, few, stage, request, shape, settings, rates, problem));
    EO_TRY(walk_with(&further, more, stage, request, shape, settings, rates, problem));
    *out = tool_step_longer(&fewer, few, &further, more, l->micro_batches);
    return EO_OK;
}

/* The slowest stage sets the pace: the last has the head, and the first the blocks that recompute begins with. */
static eo_status walk_plan(struct tool_step_time *out, const struct tool_estimate_request *request,
                           const struct tool_shape *shape, const struct tool_system_settings *settings,
                           const struct tool_device_rates *rates, struct tool_problem *problem)
{
    struct tool_step_time first;
    EO_TRY(walk_stage(out, settings->layout.pipeline - 1, request, shape, settings, rates, problem));
    if (settings->layout.pipeline == 1)
        return EO_OK;
    EO_TRY(walk_stage(&first, 0, request, shape, settings, rates, problem));
    *out = first.seconds > out->seconds ? first : *out;
    return EO_OK;
}

static eo_status refuse_device(const struct tool_estimate_request *request, struct tool_problem *problem)
{
    char known[512] = "";
    const struct tool_device_memory *device;
    for (uint32_t i = 0; (device = tool_device_memory_at(i)); i++)
        if (tool_device_rates_find(device->name) && strlen(known) < sizeof(known) - 1)
            snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", known[0] ? ", " : "", device->name);
    return tool_problem_set(
        problem, EO_ERR_INVALID, "%s: %s%s; give --device, one of %s, or another with its rates in a file of --devices",
        request->tokens > 0 ? "--tokens" : "--time", request->device ? "no rates are known of " : "of which device",
        request->device ? request->device : "", known);
}

eo_status tool_estimate_time(struct tool_time_answer *out, const struct tool_estimate_request *request,
                             struct tool_problem *problem)
{
    const struct tool_device_rates *rates = tool_device_rates_find(request->device);
    const struct tool_shape shape = tool_shape_of(request->config);
    struct tool_system_settings settings;
    if (!rates)
        return refuse_device(request, problem);
    EO_TRY(tool_estimate_settings(&settings, request, request->system, &shape, problem));
    if (settings.run.precision == TOOL_PRECISION_FP8 && rates->float8_flops <= 0)
        return tool_problem_set(problem, EO_ERR_INVALID, "--time: --device %s has no products in float8; give bf16", request->device);
    if (request->asked->plan.optimizer == EO_OPTIMIZER_MUON && request->system == TOOL_SYSTEM_EVENODD && rates->fp32_flops <= 0)
        return tool_problem_set(problem, EO_ERR_INVALID, "--time: --optimizer muon iterates in fp32, and fp32_flops of --device %s is not "
                                "known; give it in a file of --devices", request->device);
    if (settings.run.offload && (rates->host_memory_bytes <= 0 || (settings.run.to_disk && rates->disk_bytes <= 0)))
        return tool_problem_set(problem, EO_ERR_INVALID, "--time: --offload: host_memory_bytes_per_s and disk_bytes_per_s of --device %s "
                                "are not known", request->device);
    const uint32_t ranks = request->asked->plan.ranks;
    struct tool_device_rates own = *rates;
    if (request->network_bytes)
        own.network_bytes = (double)request->network_bytes;
    *out = (struct tool_time_answer){0};
    if (request->system != TOOL_SYSTEM_EVENODD)
        out->step = tool_step_time(request->system, &shape, &settings, &own, request->asked->gpus_per_node);
    else if (walk_plan(&out->step, request, &shape, &settings, &own, problem) < 0)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "--time: no memory for the list of operations");
    out->days = request->tokens / out->step.tokens_per_second / 86400;
    out->cost = out->days * 24 * ranks * request->price;
    time_text(out, request);
    return EO_OK;
}

void tool_estimate_time_json(struct eo_json *json, const struct tool_time_answer *time)
{
    const struct tool_step_time nothing = {.seconds = NAN, .tokens_per_second = NAN, .mfu = NAN, .exposed_seconds = NAN};
    const struct tool_step_time *t = time ? &time->step : &nothing; /* JSON has no NaN: null */
    eo_json_write(json,
                  "'step_seconds': %g, 'tokens_per_second': %g, 'mfu': %g, 'exposed_comm_seconds': %g, 'bound_by':", t->seconds,
                  t->tokens_per_second, t->mfu, t->exposed_seconds);
    if (time)
        eo_json_write(json, "%s", t->bound_by);
    else
        eo_json_write(json, "null");
    eo_json_write(json, "'days': %g, 'cost': %g", time && time->days > 0 ? time->days : NAN,
                  time && time->cost > 0 ? time->cost : NAN);
}
