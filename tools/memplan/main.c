/* SPDX-License-Identifier: MIT
 *
 * What a training run will hold in memory, byte for byte, before a machine is rented: the runtime's own planner, asked.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/report/compare.h"
#include "tools/memplan/page.h"
#include "tools/memplan/reply.h"
#include "tools/memplan/report/svg.h"
#include "tools/memplan/published/published.h"
#include "tools/shared/arguments.h"
#include "tools/shared/overwrite.h"

static eo_status load_model(struct tool_reply *m, struct tool_problem *problem)
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

static eo_status write_text(const struct tool_reply *m, FILE *out, bool html, struct tool_problem *problem)
{
    const struct tool_memplan_view view = tool_reply_view(m);
    if (html)
        return tool_page_html(out, m, problem);
    fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    tool_page_svg(out, &view, 0);
    return EO_OK;
}

static eo_status write_page(const struct tool_reply *m, const char *option, const char *path, bool html,
                            struct tool_problem *problem)
{
    if (!path)
        return EO_OK;
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s %s: no memory", option, path);
    eo_status status = write_text(m, memory, html, problem);
    if (fclose(memory) != 0 && status >= 0)
        status = tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s %s: no memory", option, path);
    if (status >= 0)
        status = tool_write_file(option, path, text, bytes, problem);
    free(text);
    return status;
}

/* 1 where something does not fit or differs. */
static eo_status run(struct tool_reply *m, int *result, struct tool_problem *problem)
{
    uint32_t differences = 0;
    bool fits;
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
    EO_TRY(tool_check_writable("--svg", m->asked.svg_path, problem));
    EO_TRY(tool_check_writable("--html", m->asked.html_path, problem));
    EO_TRY(load_model(m, problem));
    if (tool_reply_is_estimate(m)) {
        EO_TRY(write_page(m, "--html", m->asked.html_path, true, problem));
        EO_TRY(tool_reply_estimate(stdout, m, &fits, problem));
        *result = fits ? TOOL_EXIT_OK : TOOL_EXIT_FAILED;
        return EO_OK;
    }
    EO_TRY(tool_reply_plan(m, problem));
    if (m->asked.verify_path) {
        if (m->asked.otherwise[0])
            printf("said otherwise than the log: %s\n", m->asked.otherwise);
        EO_TRY(tool_memplan_verify(stdout, m->asked.verify_path, &m->plan, &differences, problem));
        *result = differences ? TOOL_EXIT_FAILED : TOOL_EXIT_OK;
        return EO_OK;
    }
    EO_TRY(write_page(m, "--svg", m->asked.svg_path, false, problem));
    EO_TRY(write_page(m, "--html", m->asked.html_path, true, problem));
    tool_reply_print(stdout, m);
    *result = m->plan.fits && (!m->asked.fit || m->found.found) ? TOOL_EXIT_OK : TOOL_EXIT_FAILED;
    return EO_OK;
}

int main(int argc, char **argv)
{
    static struct tool_reply m;
    m.asked = tool_memplan_defaults();
    const struct argp argp = {
        .options = tool_memplan_options,
        .parser = tool_memplan_parse,
        .doc =
            "Plans the memory of a sharded training run: the memory of each rank, to the byte.\vExit status: 0 it fits (or "
            "no fit was asked for; --compare gives no verdict), 1 it does not fit, --verify or --diff found a difference, or "
            "--published a row off its limit, 2 bad input.",
    };
    tool_arguments_parse(&argp, &(struct tool_arguments){.argc = argc, .argv = argv}, &m.asked);
    struct tool_problem problem;
    int result = TOOL_EXIT_OK;
    if (run(&m, &result, &problem) < 0) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.text);
        result = TOOL_EXIT_BAD_INPUT;
    }
    tool_reply_fini(&m);
    return tool_output_end(result);
}
