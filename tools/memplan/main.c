/* SPDX-License-Identifier: MIT
 *
 * What a training run will hold in memory, byte for byte, before a machine is rented: the runtime's own planner, asked.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/answer.h"
#include "tools/memplan/compare.h"
#include "tools/memplan/options.h"
#include "tools/memplan/page.h"
#include "tools/memplan/systems/published.h"
#include "tools/shared/arguments.h"
#include "tools/shared/overwrite.h"

struct memplan {
    struct tool_memplan_asked asked;
    struct tool_time_answer time;
    struct tool_model_config config;
    struct tool_safetensors_check safetensors;
    struct tool_memplan plan;
    struct tool_memplan fewer; /* with fewer micro-batches, where the step is too long to be shown */
    struct tool_lifetimes lifetimes;
    struct tool_fit found;
    char remedies[512];
};

static struct tool_memplan_view view_of(const struct memplan *m)
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
                                      .time = m->asked.estimate.time ? &m->time : NULL,
                                      .remedies = m->remedies[0] ? m->remedies : NULL,
                                      .all_strategies = m->asked.all_strategies,
                                      .explain = m->asked.explain};
}

static eo_status load_model(struct memplan *m, struct tool_problem *problem)
{
    EO_TRY(tool_model_config_load(&m->config, m->asked.model, m->asked.sets, m->asked.set_count, problem));
    if (!m->config.from_file || m->asked.set_count) /* a changed config is not that of the files */
        return EO_OK;
    char folder[sizeof(m->config.source)];
    snprintf(folder, sizeof(folder), "%s", m->config.source);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    return tool_safetensors_check(slash ? folder : ".", &m->config, &m->safetensors, problem);
}

static eo_status make_plan(struct memplan *m, struct tool_problem *problem)
{
    EO_TRY(load_model(m, problem));
    const struct tool_best_kept kept = {.strategy = tool_memplan_given(&m->asked, KEY_STRATEGY) && !m->asked.all_strategies,
                                        .recompute = tool_memplan_given(&m->asked, KEY_RECOMPUTE),
                                        .batch = tool_memplan_given(&m->asked, KEY_BATCH),
                                        .granularity = tool_memplan_given(&m->asked, KEY_GRANULARITY)};
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
    return status < 0 && status != EO_ERR_UNSUPPORTED ? tool_problem_set(problem, status, "no memory") : EO_OK;
}

static eo_status write_page(const struct memplan *m, const char *option, const char *path, bool html,
                            struct tool_problem *problem)
{
    if (!path)
        return EO_OK;
    const struct tool_memplan_view view = view_of(m);
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s %s: no memory", option, path);
    if (html) {
        uint32_t count = 0;
        struct tool_page_point *points = tool_page_points(&view, &count);
        if (points)
            tool_page_html(memory, &view, points, count);
        free(points);
    } else {
        fprintf(memory, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        tool_page_svg(memory, &view);
    }
    fclose(memory);
    const eo_status status = tool_write_file(option, path, text, bytes, problem);
    free(text);
    return status;
}

static void print_plan(struct memplan *m)
{
    if (!m->asked.csv && !m->asked.json && (m->asked.fit ? !m->found.found : !m->plan.fits))
        tool_answer_remedies(&m->config, &m->asked.settings, m->remedies, sizeof(m->remedies));
    const struct tool_memplan_view view = view_of(m);
    if (m->asked.csv || m->asked.json)
        tool_report_warnings(stderr, &view);
    if (m->asked.csv) {
        tool_report_csv(stdout, &view);
    } else if (m->asked.json) {
        tool_report_json(stdout, &view);
    } else {
        tool_report_plan(stdout, &view);
        if (m->asked.estimate.time)
            printf("%s", m->time.text);
    }
}

/* Of the plan as it was found and filled in. */
static eo_status take_time(struct memplan *m, struct tool_problem *problem)
{
    if (!m->asked.estimate.time)
        return EO_OK;
    m->asked.estimate.config = &m->config;
    m->asked.estimate.asked = &m->plan.settings;
    m->asked.estimate.device = m->asked.device ? m->asked.device->name : NULL;
    return tool_estimate_time(&m->time, &m->asked.estimate, problem);
}

static eo_status estimate(struct memplan *m, int *result, struct tool_problem *problem)
{
    bool fits = true;
    EO_TRY(load_model(m, problem));
    m->asked.estimate.config = &m->config;
    m->asked.estimate.asked = &m->asked.settings;
    m->asked.estimate.device = m->asked.device ? m->asked.device->name : NULL;
    if (m->asked.compare)
        return tool_estimate_compare(stdout, &m->asked.estimate, problem);
    const struct tool_layouts_kept kept = {.tensor = tool_memplan_given(&m->asked, KEY_TENSOR),
                                           .pipeline = tool_memplan_given(&m->asked, KEY_PIPELINE),
                                           .virtual_stages = tool_memplan_given(&m->asked, KEY_VIRTUAL_STAGES),
                                           .batch = tool_memplan_given(&m->asked, KEY_BATCH),
                                           .recompute = tool_memplan_given(&m->asked, KEY_RECOMPUTE)};
    if (m->asked.fit) {
        EO_TRY(tool_estimate_layouts(stdout, &m->asked.estimate, &kept, &fits, problem));
        *result = fits ? TOOL_EXIT_OK : TOOL_EXIT_FAILED;
        return EO_OK;
    }
    EO_TRY(tool_estimate_print(stdout, &m->asked.estimate, m->asked.json, &fits, problem));
    *result = fits ? TOOL_EXIT_OK : TOOL_EXIT_FAILED;
    return EO_OK;
}

/* 1 where something does not fit or differs. */
static eo_status run(struct memplan *m, int *result, struct tool_problem *problem)
{
    uint32_t differences = 0;
    *result = TOOL_EXIT_OK;
    if (m->asked.published) {
        *result = tool_published_print(stdout) ? TOOL_EXIT_FAILED : TOOL_EXIT_OK;
        return EO_OK;
    }
    if (m->asked.diff_a) {
        EO_TRY(tool_memplan_diff(stdout, m->asked.diff_a, m->asked.diff_b, &differences, problem));
        *result = differences ? TOOL_EXIT_FAILED : TOOL_EXIT_OK;
        return EO_OK;
    }
    if (m->asked.compare || m->asked.estimate.system != TOOL_SYSTEM_EVENODD)
        return estimate(m, result, problem);
    const struct tool_input inputs[] = {
        {"--model", m->asked.model}, {"--verify", m->asked.verify_path}, {"--rates", m->asked.budget.rates_path}};
    EO_TRY(tool_check_writable("--svg", m->asked.svg_path, problem));
    EO_TRY(tool_check_writable("--html", m->asked.html_path, problem));
    EO_TRY(tool_overwrite_no_input("--svg", m->asked.svg_path, inputs, 3, problem));
    EO_TRY(tool_overwrite_no_input("--html", m->asked.html_path, inputs, 3, problem));
    EO_TRY(make_plan(m, problem));
    EO_TRY(take_time(m, problem));
    if (m->asked.verify_path) {
        if (m->asked.otherwise[0])
            printf("said otherwise than the log: %s\n", m->asked.otherwise);
        EO_TRY(tool_memplan_verify(stdout, m->asked.verify_path, &m->plan, &differences, problem));
        *result = differences ? TOOL_EXIT_FAILED : TOOL_EXIT_OK;
        return EO_OK;
    }
    EO_TRY(write_page(m, "--svg", m->asked.svg_path, false, problem));
    EO_TRY(write_page(m, "--html", m->asked.html_path, true, problem));
    print_plan(m);
    *result = m->plan.fits && (!m->asked.fit || m->found.found) ? TOOL_EXIT_OK : TOOL_EXIT_FAILED;
    return EO_OK;
}

int main(int argc, char **argv)
{
    static struct memplan m;
    m.asked = tool_memplan_defaults();
    const struct argp argp = {
        .options = tool_memplan_options,
        .parser = tool_memplan_parse,
        .doc = "Plans the memory of a sharded training run: the memory of each rank, to the byte.\vExit status: 0 it fits (or "
               "no fit was asked for), 1 it does not fit, or --verify or --diff found a difference, 2 bad input.",
    };
    tool_arguments_parse(&argp, &(struct tool_arguments){.argc = argc, .argv = argv}, &m.asked);
    struct tool_problem problem;
    int result = TOOL_EXIT_OK;
    if (run(&m, &result, &problem) < 0) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.text);
        result = TOOL_EXIT_BAD_INPUT;
    }
    tool_lifetimes_fini(&m.lifetimes);
    tool_memplan_fini(&m.fewer);
    tool_memplan_fini(&m.plan);
    return tool_output_end(result);
}
