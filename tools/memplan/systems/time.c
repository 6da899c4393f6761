/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>

#include "tools/memplan/systems/answer.h"
#include "tools/shared/json_output.h"

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
             "%stime is an estimate: 6 %% off on average on published steps, 38 %% at "
             "most (memplan --published)\n",
             a->days > 0 ? "\n" : "");
}

eo_status tool_estimate_time(struct tool_time_answer *out, const struct tool_estimate_request *request,
                             struct tool_problem *problem)
{
    const struct tool_device_rates *rates = tool_device_rates_find(request->device);
    const struct tool_shape shape = tool_shape_of(request->config);
    struct tool_system_settings settings;
    if (!rates)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--time: give --device, of A100, H100 or H200: no rates are known of others");
    EO_TRY(tool_estimate_settings(&settings, request, request->system, &shape, problem));
    if (settings.run.precision || settings.run.lora_rank || settings.run.offload)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--time: no rates are known of --dtype fp16 and fp8, of --lora and of --offload; leave them out");
    const uint32_t ranks = request->asked->plan.ranks;
    struct tool_device_rates own = *rates;
    if (request->network_bytes)
        own.network_bytes = (double)request->network_bytes;
    *out = (struct tool_time_answer){
        .step = tool_step_time(request->system, &shape, &settings, &own, request->asked->gpus_per_node)};
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
