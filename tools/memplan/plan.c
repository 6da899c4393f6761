/* SPDX-License-Identifier: MIT */
#include "tools/memplan/plan.h"

#include <stdio.h>
#include <string.h>

struct caught {
    char text[1024];
};

static void catch_error(void *user, eo_log_level level, const char *text)
{
    struct caught *caught = user;
    if (level == EO_LOG_ERROR)
        snprintf(caught->text, sizeof(caught->text), "%s", text);
}

const eo_model *tool_memplan_model(const struct tool_memplan *memplan)
{
    return memplan->transformer ? eo_transformer_model(memplan->transformer) : memplan->described;
}

static void fill_in(struct tool_memplan_settings *s, const struct tool_model_config *config, const eo_transformer_config *shape)
{
    struct tool_plan_settings *p = &s->plan;
    s->on_gpu = s->on_gpu || strcmp(p->device, "cuda") == 0;
    tool_plan_settings_complete(p, shape, 4096, s->on_gpu);
    if (p->recompute == EO_RECOMPUTE_BLOCKS && p->recompute_blocks > config->layer_count)
        p->recompute_blocks = config->layer_count;
    if (p->recompute == EO_RECOMPUTE_BLOCKS && p->recompute_blocks == 0)
        p->recompute = EO_RECOMPUTE_NONE;
}

static eo_status make_plan(struct tool_memplan *m, const struct tool_model_config *config, const eo_transformer_config *shape,
                           const eo_log *log)
{
    const struct tool_plan_params params = tool_plan_params_of(&m->settings.plan, shape, log);
    m->runs = tool_model_config_runs(config, m->why_not, sizeof(m->why_not));
    if (m->runs)
        EO_TRY(eo_transformer_create(&m->transformer, &params.transformer));
    else
        EO_TRY(tool_memplan_describe(&m->described, config, &m->settings.plan, log));
    return eo_plan_create(&m->plan, tool_memplan_model(m), &params.plan);
}

static eo_status check_settings(const struct tool_memplan_settings *s, const struct tool_model_config *config,
                                struct tool_problem *problem)
{
    if (s->plan.seq > config->context)
        return tool_problem_set(problem, EO_ERR_INVALID, "--seq %u is longer than the model's context of %u (%s)",
                                s->plan.seq, config->context, config->source);
    char why[200];
    if ((s->plan.unit_blocks > 1 || s->plan.unit_bytes) && !tool_model_config_runs(config, why, sizeof(why)))
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED,
                                "--granularity blocks:N and size:BYTES work for models that run; %s is planned only (%s): give "
                                "block or half",
                                config->source, why);
    return EO_OK;
}

eo_status tool_memplan_create(struct tool_memplan *out, const struct tool_model_config *config,
                              const struct tool_memplan_settings *settings, struct tool_problem *problem)
{
    struct caught caught = {.text = ""};
    const eo_log log = {.write = catch_error, .user = &caught, .level = EO_LOG_ERROR};
    *out = (struct tool_memplan){.settings = *settings};
    struct tool_memplan_settings *s = &out->settings;
    eo_transformer_config shape;
    tool_model_config_transformer(config, &shape);
    EO_TRY(tool_plan_settings_check(&s->plan, config->layer_count, problem));
    EO_TRY(check_settings(s, config, problem));
    fill_in(s, config, &shape);
    const eo_status status = make_plan(out, config, &shape, &log);
    if (status < 0) {
        tool_memplan_fini(out);
        return tool_problem_set(problem, status, "%s: %s", config->source,
                                caught.text[0] ? caught.text : eo_status_text(status));
    }
    eo_plan_get_summary(out->plan, &out->summary);
    out->device_bytes = out->summary.arena_bytes - out->summary.space_bytes[EO_SPACE_HOST];
    if (!s->on_gpu)
        out->device_bytes = out->summary.arena_bytes; /* all of it is the host's */
    if (!s->outside.given)
        s->outside = tool_outside_default(s);
    out->outside_bytes = tool_outside_bytes(&s->outside);
    out->total_bytes = out->device_bytes + out->outside_bytes;
    out->fits = s->capacity_bytes == 0 || out->total_bytes <= tool_usable_bytes(s);
    return EO_OK;
}

void tool_memplan_fini(struct tool_memplan *memplan)
{
    eo_plan_destroy(&memplan->plan);
    eo_transformer_destroy(&memplan->transformer);
    eo_model_destroy(&memplan->described);
}
