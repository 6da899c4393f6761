/* SPDX-License-Identifier: MIT */
#include "tools/memplan/reply.h"

#include "tools/memplan/report/answer.h"

struct tool_memplan_view tool_reply_view(const struct tool_reply *m)
{
    return (struct tool_memplan_view){.config = &m->config,
                                      .memplan = &m->plan,
                                      .lifetimes = m->lifetimes.live ? &m->lifetimes : NULL,
                                      .shown = m->fewer.plan ? &m->fewer : &m->plan,
                                      .safetensors = &m->safetensors,
                                      .device = m->asked.device,
                                      .fit = m->asked.fit ? &m->found : NULL,
                                      .budget = m->asked.budget.request.bytes ? &m->asked.budget : NULL,
                                      .asked = &m->asked.settings,
                                      .global_batch = m->asked.estimate.global_batch,
                                      .time = m->asked.estimate.time ? &m->time : NULL,
                                      .remedies = m->remedies[0] ? m->remedies : NULL,
                                      .all_strategies = m->asked.all_strategies,
                                      .explain = m->asked.explain};
}

/* Of the plan as it was found and filled in. */
static eo_status take_time(struct tool_reply *m, struct tool_problem *problem)
{
    if (!m->asked.estimate.time)
        return EO_OK;
    m->asked.estimate.config = &m->config;
    m->asked.estimate.asked = &m->plan.settings;
    m->asked.estimate.plan = &m->plan;
    m->asked.estimate.device = m->asked.device ? m->asked.device->name : NULL;
    const struct tool_slice *slice = &m->plan.settings.slice; /* a search may have found it */
    m->asked.estimate.layout.tensor = slice->tensor ? slice->tensor : 1;
    m->asked.estimate.layout.pipeline = slice->pipeline ? slice->pipeline : 1;
    m->asked.estimate.layout.sequence_parallel = slice->sequence_parallel;
    return tool_estimate_time(&m->time, &m->asked.estimate, problem);
}

eo_status tool_reply_plan(struct tool_reply *m, struct tool_problem *problem)
{
    const bool has_rates = m->asked.device && tool_device_rates_find(m->asked.device->name);
    const struct tool_best_kept kept = {.strategy = tool_memplan_given(&m->asked, KEY_STRATEGY) && !m->asked.all_strategies,
                                        .recompute = tool_memplan_given(&m->asked, KEY_RECOMPUTE),
                                        .batch = tool_memplan_given(&m->asked, KEY_BATCH),
                                        .granularity = tool_memplan_given(&m->asked, KEY_GRANULARITY),
                                        .tensor = tool_memplan_given(&m->asked, KEY_TENSOR),
                                        .pipeline = tool_memplan_given(&m->asked, KEY_PIPELINE),
                                        .global_batch = m->asked.estimate.global_batch,
                                        .clock = has_rates ? &m->asked.estimate : NULL};
    m->asked.estimate.device = has_rates ? m->asked.device->name : NULL;
    if (m->asked.fit) /* the settings as given must be good, whatever the search then changes */
        EO_TRY(tool_fit_search(&m->found, m->asked.fit, &m->config, &m->asked.settings, &kept, problem));
    if (m->asked.budget.request.bytes)
        EO_TRY(tool_memplan_budget_choose(&m->asked.budget, &m->config, &m->asked.settings, problem));
    EO_TRY(tool_memplan_create(&m->plan, &m->config, &m->asked.settings, problem));
    struct tool_memplan_settings fewer = m->plan.settings;
    fewer.plan.micro_batches = TOOL_LIFETIMES_MICRO_BATCHES;
    if (eo_plan_operation_count(m->plan.plan, EO_LIST_STEADY) > TOOL_LIFETIMES_OPERATIONS &&
        m->plan.settings.plan.micro_batches > fewer.plan.micro_batches)
        EO_TRY(tool_memplan_create(&m->fewer, &m->config, &fewer, problem));
    const eo_status status = tool_lifetimes_create(&m->lifetimes, m->fewer.plan ? &m->fewer : &m->plan);
    return status < 0 && status != EO_ERR_UNSUPPORTED ? tool_problem_set(problem, status, "no memory") : take_time(m, problem);
}

void tool_reply_print(FILE *out, struct tool_reply *m)
{
    if (!m->asked.csv && !m->asked.json && (m->asked.fit ? !m->found.found : !m->plan.fits))
        tool_answer_remedies(&m->config, &m->asked.settings, m->asked.estimate.global_batch, m->remedies, sizeof(m->remedies));
    const struct tool_memplan_view view = tool_reply_view(m);
    if (m->asked.csv || m->asked.json)
        tool_report_warnings(stderr, &view);
    if (m->asked.csv) {
        tool_report_csv(out, &view);
    } else if (m->asked.json) {
        tool_report_json(out, &view);
    } else {
        tool_report_plan(out, &view);
        if (m->asked.estimate.time)
            fprintf(out, "%s", m->time.text);
    }
}

bool tool_reply_is_estimate(const struct tool_reply *m)
{
    return m->asked.compare || m->asked.estimate.system != TOOL_SYSTEM_EVENODD;
}

eo_status tool_reply_estimate(FILE *out, struct tool_reply *m, bool *fits, struct tool_problem *problem)
{
    *fits = true;
    m->asked.estimate.config = &m->config;
    m->asked.estimate.asked = &m->asked.settings;
    m->asked.estimate.device = m->asked.device ? m->asked.device->name : NULL;
    if (m->asked.compare)
        return tool_estimate_compare(out, &m->asked.estimate, problem);
    const struct tool_layouts_kept kept = {.tensor = tool_memplan_given(&m->asked, KEY_TENSOR),
                                           .pipeline = tool_memplan_given(&m->asked, KEY_PIPELINE),
                                           .virtual_stages = tool_memplan_given(&m->asked, KEY_VIRTUAL_STAGES),
                                           .batch = tool_memplan_given(&m->asked, KEY_BATCH),
                                           .recompute = tool_memplan_given(&m->asked, KEY_RECOMPUTE)};
    if (m->asked.fit)
        return tool_estimate_layouts(out, &m->asked.estimate, &kept, fits, problem);
    return tool_estimate_print(out, &m->asked.estimate, m->asked.json, fits, problem);
}

void tool_reply_fini(struct tool_reply *m)
{
    tool_lifetimes_fini(&m->lifetimes);
    tool_memplan_fini(&m->fewer);
    tool_memplan_fini(&m->plan);
}
