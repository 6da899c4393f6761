/* SPDX-License-Identifier: MIT
 *
 * memplan in a page: the program's own options, checks, plan and report. It differs from the program in two words: --svg
 * takes the picture's width in pixels, and writes it behind the JSON; no word but --devices asks for the lists that a page chooses from.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/plan/devices.h"
#include "tools/memplan/reply.h"
#include "tools/memplan/report/svg.h"
#include "tools/shared/arguments.h"
#include "tools/shared/json_output.h"

static void write_lists(FILE *out)
{
    struct eo_json json = {.write = tool_write_to_stream, .user = out};
    eo_json_write(&json, "{'models': [");
    for (uint32_t i = 0; eo_transformer_preset_name(i); i++)
        eo_json_write(&json, "%s", eo_transformer_preset_name(i));
    for (uint32_t i = 0; tool_model_preset_name(i); i++)
        eo_json_write(&json, "%s", tool_model_preset_name(i));
    eo_json_write(&json, "], 'devices': [");
    for (uint32_t i = 0; tool_device_memory_at(i); i++)
        eo_json_write(&json, "{'name': %s, 'bytes': %" PRIu64 ", 'timed': %i}", tool_device_memory_at(i)->name,
                      tool_device_memory_at(i)->bytes, tool_device_rates_find(tool_device_memory_at(i)->name) != NULL);
    eo_json_write(&json, "], 'systems': [");
    for (int s = 0; s < TOOL_SYSTEM_COUNT; s++)
        eo_json_write(&json, "%s", tool_system_name((enum tool_system)s));
    eo_json_write(&json, "], 'categories': [");
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        eo_json_write(&json, "{'name': %s, 'colour': %s}", eo_category_name((eo_category)c), tool_page_colour((eo_category)c));
    eo_json_write(&json, "], 'options': [");
    for (const struct argp_option *row = tool_memplan_options; row->name || row->doc; row++)
        if (row->name && !(row->flags & OPTION_ALIAS))
            eo_json_write(&json, "{'name': %s, 'value': %s, 'doc': %s}", row->name, row->arg, row->doc);
    eo_json_write(&json, "]}");
}

static eo_status answer(struct tool_reply *m, int *result, struct tool_problem *problem)
{
    bool fits = true;
    if (m->asked.published || m->asked.diff_a || m->asked.verify_path || m->asked.html_path)
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--published, --diff, --verify and --html: use the program");
    EO_TRY(tool_model_config_load(&m->config, m->asked.model, m->asked.sets, m->asked.set_count, problem));
    if (tool_reply_is_estimate(m)) {
        EO_TRY(tool_reply_estimate(stdout, m, &fits, problem));
    } else {
        EO_TRY(tool_reply_plan(m, problem));
        tool_reply_print(stdout, m);
        fits = m->plan.fits && (!m->asked.fit || m->found.found);
        const struct tool_memplan_view view = tool_reply_view(m);
        if (m->asked.svg_path)
            tool_page_svg(stdout, &view, (uint32_t)atoi(m->asked.svg_path));
    }
    *result = fits ? TOOL_EXIT_OK : TOOL_EXIT_FAILED;
    return EO_OK;
}

int main(int argc, char **argv)
{
    static struct tool_reply m;
    struct tool_problem problem;
    int result = TOOL_EXIT_OK;
    setvbuf(stdout, NULL, _IOFBF, 1 << 18);
    const bool with_devices = argc == 3 && strcmp(argv[1], "--devices") == 0;
    if (argc == 1 || with_devices) {
        if (with_devices && tool_devices_read(argv[2], &problem) < 0)
            fprintf(stderr, "memplan: %s\n", problem.text); /* the plan is refused, too; the table is as it was */
        write_lists(stdout);
        return TOOL_EXIT_OK;
    }
    m.asked = tool_memplan_defaults();
    const struct argp argp = {.options = tool_memplan_options, .parser = tool_memplan_parse};
    tool_arguments_parse(&argp, &(struct tool_arguments){.argc = argc, .argv = argv}, &m.asked);
    if (answer(&m, &result, &problem) < 0) {
        fprintf(stderr, "memplan: %s\n", problem.text);
        return TOOL_EXIT_BAD_INPUT;
    }
    return result;
}
