/* SPDX-License-Identifier: MIT
 *
 * The same training with planned and with dynamic memory, in turn, each run in a process of its own (so that its peaks
 * are its own), and what they cost side by side. A child is this program again, with two hidden options: which mode,
 * and where to tell its figures.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/shared/arguments.h"
#include "tools/headtohead/comparison.h"
#include "tools/run/job.h"
#include "tools/run/machine/memory_check.h"
#include "tools/headtohead/measured_run.h"
#include "tools/shared/overwrite.h"
#include "tools/run/machine/processor.h"
#include "tools/run/reports/report.h"
#include "tools/logs/step_log.h"
#include "tools/shared/world_environment.h"

enum head_key { HEAD_RUNS = 0x200, HEAD_JSON, HEAD_HTML, HEAD_COMPARE, HEAD_ONE_RUN, HEAD_FIGURES };
enum { RUNS_DEFAULT = 3, STEPS_DEFAULT = 30 };

static const struct argp_option head_options[] = {
    {.doc = "Comparison:", .group = 4},
    {"compare", HEAD_COMPARE, "LIST", 0,
     "compare these instead of the memory modes: strategies (zero3, zero2, zero1, ddp, hsdp:S), units (one-unit, auto-wrap:BYTES, "
     "block, half, blocks:N), no-recompute, recompute:WHAT, fp32, bf16, memory modes; such as ddp,zero3,auto-wrap:8MiB",
     4},
    {"runs", HEAD_RUNS, "R", 0, "runs of each, in alternating order [3]", 4},
    {"json", HEAD_JSON, "FILE", 0, "write all figures, and those of each run", 4},
    {"html", HEAD_HTML, "FILE", 0, "write a page in one file, with step times, memory and timelines", 4},
    {"one-run", HEAD_ONE_RUN, "MODE", OPTION_HIDDEN, NULL, 4},
    {"figures", HEAD_FIGURES, "DESCRIPTOR", OPTION_HIDDEN, NULL, 4},
    {0},
};

struct settings {
    struct tool_options common;
    uint32_t runs;
    const char *json_path, *html_path;
    struct tool_variant variants[TOOL_VARIANTS_MAX]; /* of --compare */
    int variant_count;                               /* 0: the memory modes are compared */
    bool one_run;
    int figures; /* file descriptor of the parent's pipe */
    char **arguments; /* of the command line */
};

static void parse_compare(const struct argp_state *state, struct settings *settings, const char *text)
{
    char why[400];
    settings->variant_count = tool_variants_parse(settings->variants, text, why, sizeof(why));
    if (!settings->variant_count)
        argp_error(state, "--compare %.200s: %s", text, why);
}

/* Each variant of --compare sets one option, which the others leave as it is. */
static void check_compare(const struct argp_state *state, const struct settings *settings)
{
    const bool is_child = settings->one_run;
    for (int v = 0; v < settings->variant_count && !is_child; v++) {
        const struct tool_variant *variant = &settings->variants[v];
        if (variant->option && tool_option_given(&settings->common, variant->option + 2))
            argp_error(state, "%s is set by %s in --compare; leave it out", variant->option, variant->name);
        if (variant->memory != EO_MEMORY_STATIC && tool_option_given(&settings->common, "strategy"))
            argp_error(state, "--strategy: %s in --compare is zero3 always; leave one of them out", variant->name);
    }
}

/* What dynamic memory lacks, before the static runs have taken their time. */
static void check_dynamic(const struct argp_state *state, const struct settings *settings)
{
    static const char *const offloads[] = {"offload-layers", "offload-activations", "offload-folder"};
    static const char *const remedy = "compare variants of static memory alone (--compare), or use train";
    const struct tool_options *o = &settings->common;
    bool has_dynamic = settings->variant_count == 0;
    for (int v = 0; v < settings->variant_count; v++)
        has_dynamic = has_dynamic || settings->variants[v].memory != EO_MEMORY_STATIC;
    for (size_t i = 0; has_dynamic && !o->dynamic_offload && i < sizeof(offloads) / sizeof(offloads[0]); i++)
        if (tool_option_given(o, offloads[i]))
            argp_error(state, "--%s needs planned memory; give --dynamic-offload, which offloads the others too, %s",
                       offloads[i], remedy);
    if (has_dynamic && tool_option_given(o, "bucketing"))
        argp_error(state, "--bucketing needs planned memory; %s", remedy);
    if (has_dynamic && o->plan.norms_beside)
        argp_error(state, "--norms-beside needs planned memory; %s", remedy);
    if (has_dynamic && o->plan.optimizer == EO_OPTIMIZER_MUON)
        argp_error(state, "--optimizer muon needs planned memory; %s", remedy);
    if (has_dynamic && o->dynamic_offload && o->plan.float8_gather)
        argp_error(state,
                   "--gather float8 with --dynamic-offload: what comes from the host is gathered as it lies there; leave one "
                   "of them out");
}

static error_t parse_head_option(int key, char *text, struct argp_state *state)
{
    struct settings *settings = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &settings->common; return 0;
    case HEAD_RUNS:
        settings->runs = (uint32_t)tool_option_count(state, "runs", text, 1, 1000);
        return 0;
    case HEAD_COMPARE: parse_compare(state, settings, text); return 0;
    case HEAD_JSON: settings->json_path = text; return 0;
    case HEAD_HTML: settings->html_path = text; return 0;
    case HEAD_ONE_RUN:
        settings->one_run = true;
        if (!tool_memory_parse(text, &settings->common.memory))
            argp_error(state, "--one-run is '%s', not a memory mode", text);
        return 0;
    case HEAD_FIGURES:
        settings->figures = (int)tool_option_count(state, "figures", text, 3, 1 << 20);
        return 0;
    case ARGP_KEY_END:
        check_compare(state, settings);
        check_dynamic(state, settings);
        if (tool_option_given(&settings->common, "memory"))
            argp_error(state, "--memory: headtohead runs all modes; leave it out, or use train");
        if (tool_option_given(&settings->common, "budget"))
            argp_error(state, "--budget needs planned memory alone; use train");
        if (!tool_option_given(&settings->common, "graph")) /* what compute waits for is seen in no graph */
            settings->common.plan.graph = false;
        if (settings->common.steps < 4)
            argp_error(state, "--steps %llu are too few to compare; give at least 4",
                       (unsigned long long)settings->common.steps);
        if (tool_overwrite_is_same(settings->json_path, settings->html_path))
            argp_error(state, "--json and --html both name %s; give them a file each", settings->json_path);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int complain(const struct tool_problem *problem, int exit_status)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem->text);
    return exit_status;
}

/* --- the child ---------------------------------------------------------------------------------------------------- */

static int one_run(struct settings *settings)
{
    struct tool_problem problem;
    struct tool_job job;
    settings->common.peak_seconds = 0; /* would add to the resident peak */
    if (tool_processor_choose(NULL, &settings->common, false, &problem) < 0 ||
        tool_job_prepare(&job, &settings->common, 0, &problem) < 0)
        return complain(&problem, TOOL_EXIT_BAD_INPUT);
    struct tool_gpu_watch watch;
    if (tool_gpu_watch_start(&watch, &settings->common, &problem) < 0) {
        tool_job_fini(&job);
        return complain(&problem, TOOL_EXIT_BAD_INPUT);
    }
    const eo_status status = tool_measured_run(&job, &watch, settings->figures, &problem);
    tool_gpu_watch_fini(&watch);
    tool_job_fini(&job);
    return status < 0 ? complain(&problem, TOOL_EXIT_FAILED) : TOOL_EXIT_OK;
}

/* --- the parent --------------------------------------------------------------------------------------------------- */

static void become_child(const struct settings *settings, const struct tool_variant *variant, int figures, pid_t parent)
{
    size_t count = 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would read the figures */
    if (getppid() != parent)                /* it ended before the line above */
        _exit(TOOL_EXIT_FAILED);
    while (settings->arguments[count])
        count++;
    char descriptor[16];
    snprintf(descriptor, sizeof(descriptor), "%d", figures);
    const char **arguments = calloc(count + 7, sizeof(*arguments));
    if (!arguments)
        _exit(TOOL_EXIT_FAILED);
    memcpy(arguments, settings->arguments, count * sizeof(*arguments));
    const char *const more[] = {"--one-run",  tool_memory_name(variant->memory), "--figures", descriptor, variant->option,
                                variant->value};
    memcpy(arguments + count, more, (variant->option ? 6 : 4) * sizeof(more[0]));
    execv("/proc/self/exe", (char **)(uintptr_t)arguments);
    fprintf(stderr, "%s: cannot start itself by /proc/self/exe: %s; mount /proc\n", program_invocation_short_name,
            strerror(errno));
    _exit(TOOL_EXIT_FAILED);
}

/* The figures of one run. NULL: it failed, *exit_status says how; the child has said why. */
static json_t *run_child(const struct settings *settings, const struct tool_variant *variant, int *exit_status)
{
    int ends[2];
    *exit_status = TOOL_EXIT_FAILED;
    if (pipe(ends) != 0)
        return NULL;
    fflush(NULL);
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(ends[0]);
        become_child(settings, variant, ends[1], parent);
    }
    close(ends[1]);
    json_error_t error;
    FILE *stream = child > 0 ? fdopen(ends[0], "r") : NULL;
    json_t *run = stream ? json_loadf(stream, 0, &error) : NULL;
    if (stream)
        fclose(stream);
    else
        close(ends[0]);
    int state = 0;
    while (child > 0 && waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    if (child > 0 && WIFEXITED(state))
        *exit_status = WEXITSTATUS(state);
    if (run && *exit_status == TOOL_EXIT_OK)
        return run;
    if (child > 0 && WIFSIGNALED(state))
        fprintf(stderr, "%s: the run of %s was killed by signal %d (%s)\n", program_invocation_short_name, variant->name,
                WTERMSIG(state), strsignal(WTERMSIG(state)));
    else if (*exit_status == TOOL_EXIT_OK || child < 0)
        fprintf(stderr, "%s: the run of %s did not start, or reported nothing\n", program_invocation_short_name,
                variant->name);
    *exit_status = *exit_status == TOOL_EXIT_BAD_INPUT ? TOOL_EXIT_BAD_INPUT : TOOL_EXIT_FAILED;
    json_decref(run);
    return NULL;
}

static double mean_step_ms(const json_t *run)
{
    const json_t *steps = json_object_get(run, "steps_s");
    double sum = 0;
    for (size_t i = 0; i < json_array_size(steps); i++)
        sum += json_number_value(json_array_get(steps, i));
    return json_array_size(steps) ? 1e3 * sum / (double)json_array_size(steps) : 0;
}

/* Forward and backward in turn: no mode always runs on the machine that the same other one has warmed. */
static int run_all(const struct settings *settings, struct tool_comparison *comparison)
{
    for (uint32_t round = 0; round < settings->runs; round++) {
        for (int i = 0; i < comparison->mode_count; i++) {
            const int mode = round % 2 ? comparison->mode_count - 1 - i : i;
            int exit_status;
            json_t *run = run_child(settings, &comparison->variants[mode], &exit_status);
            if (!run)
                return exit_status;
            printf("run %u of %u, %-15s %9.2f ms a step, weights_hash %s\n", round + 1, settings->runs,
                   comparison->variants[mode].name, mean_step_ms(run),
                   json_string_value(json_object_get(run, "weights_hash")));
            fflush(stdout);
            json_array_append_new(comparison->runs[mode], run);
        }
    }
    return TOOL_EXIT_OK;
}

static void describe(const struct settings *settings, struct tool_comparison *comparison)
{
    size_t used = 0;
    for (char **argument = settings->arguments + 1; *argument && used < sizeof(comparison->settings); argument++)
        used += (size_t)snprintf(comparison->settings + used, sizeof(comparison->settings) - used, "%s%s",
                                 used ? " " : "", *argument);
    char model[160] = "unknown processor", line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(model, sizeof(model), "%.150s", strchr(line, ':') + 2);
            break;
        }
    }
    if (file)
        fclose(file);
    const struct tool_options *o = &settings->common;
    const bool has_vectors = o->plan.dtype == EO_DTYPE_BF16 || o->plan.reduce_dtype == EO_DTYPE_FP32;
    snprintf(comparison->machine, sizeof(comparison->machine), "%s, %u core%s, kernels %s", model, tool_core_count(),
             tool_plural(tool_core_count()),
             tool_options_on_gpu(o) ? o->plan.device
             : has_vectors          ? eo_kernels_name()
                                    : "reference");
}

static eo_status write_json(const struct settings *settings, const struct tool_comparison *comparison,
                            struct tool_problem *problem)
{
    if (!settings->json_path)
        return EO_OK;
    char *text = tool_json_text(1, tool_comparison_json, comparison);
    const eo_status status = text ? tool_write_file("--json", settings->json_path, text, strlen(text), problem)
                                  : tool_problem_set(problem, EO_ERR_NO_MEMORY, "--json: no memory");
    free(text);
    return status;
}

static eo_status write_page(const struct settings *settings, const struct tool_comparison *comparison,
                            struct tool_problem *problem)
{
    if (!settings->html_path)
        return EO_OK;
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "--html: no memory");
    tool_comparison_write_page(comparison, stream);
    eo_status status = fclose(stream) == 0 ? EO_OK : tool_problem_set(problem, EO_ERR_NO_MEMORY, "--html: no memory");
    if (status >= 0)
        status = tool_write_file("--html", settings->html_path, text, bytes, problem);
    free(text);
    return status;
}

/* Everything is checked, and nothing kept: the children do it again. */
static eo_status check(const struct settings *settings, struct tool_problem *problem)
{
    struct tool_job job;
    EO_TRY(tool_options_check_output(&settings->common, "--json", settings->json_path, problem));
    EO_TRY(tool_options_check_output(&settings->common, "--html", settings->html_path, problem));
    EO_TRY(tool_options_check_output(&settings->common, "--product-cache", settings->common.plan_cache, problem));
    EO_TRY(tool_processor_choose(NULL, &settings->common, true, problem));
    EO_TRY(tool_job_prepare(&job, &settings->common, 0, problem));
    tool_job_tell_model(&job);
    tool_report_start(&job);
    tool_job_fini(&job);
    return EO_OK;
}

static int compare(const struct settings *settings)
{
    struct tool_problem problem;
    struct tool_comparison comparison = {
        .run_count = settings->runs,
        .sums = settings->variant_count ? TOOL_SUMS_CHOSEN
                : settings->common.plan.strategy != EO_STRATEGY_ZERO3 && settings->common.plan.strategy != EO_STRATEGY_ZERO2
                    ? TOOL_SUMS_STRATEGY
                    : TOOL_SUMS_EQUAL,
        .sums_in_time = tool_options_on_gpu(&settings->common) && !settings->common.repeatable,
        .mode_count = settings->variant_count};
    memcpy(comparison.variants, settings->variants, sizeof(comparison.variants));
    if (!settings->variant_count)
        comparison.mode_count = tool_variants_of_memory(comparison.variants, tool_options_on_gpu(&settings->common));
    if (check(settings, &problem) < 0)
        return complain(&problem, TOOL_EXIT_BAD_INPUT);
    tool_warn_of_many_threads(&settings->common);
    if (settings->common.plan.strategy != EO_STRATEGY_ZERO3 && !settings->variant_count)
        printf("strategy %s works only with static memory; the dynamic modes are FSDP2's full sharding, zero3\n",
               eo_strategy_name(settings->common.plan.strategy));
    describe(settings, &comparison);
    for (int mode = 0; mode < comparison.mode_count; mode++)
        comparison.runs[mode] = json_array();
    int result = run_all(settings, &comparison);
    if (result == TOOL_EXIT_OK) {
        tool_comparison_sum_up(&comparison);
        tool_comparison_print(&comparison, stdout);
        if (write_json(settings, &comparison, &problem) < 0)
            result = complain(&problem, TOOL_EXIT_FAILED);
        if (write_page(settings, &comparison, &problem) < 0)
            result = complain(&problem, TOOL_EXIT_FAILED);
        if (!comparison.equal && !comparison.sums_in_time)
            result = TOOL_EXIT_FAILED;
    }
    for (int mode = 0; mode < comparison.mode_count; mode++)
        json_decref(comparison.runs[mode]);
    return result;
}

int main(int argc, char **argv)
{
    static struct settings settings;
    const struct argp_child children[] = {{.argp = &tool_options_argp}, {0}};
    const struct argp argp = {
        .options = head_options, .parser = parse_head_option, .children = children,
        .doc = "Runs the same training with static and with dynamic memory in turn, and compares.",
    };
    tool_process_spare_addresses();
    tool_options_init(&settings.common);
    settings.common.steps = STEPS_DEFAULT;
    settings.runs = RUNS_DEFAULT;
    settings.figures = -1;
    settings.arguments = argv;
    struct tool_world_environment environment;
    struct tool_problem problem;
    if (tool_world_environment_read(&environment, &problem) < 0)
        return complain(&problem, TOOL_EXIT_BAD_INPUT);
    if (environment.launcher) {
        (void)tool_problem_set(&problem, EO_ERR_UNSUPPORTED,
                               "%s has started %u of it, but each would compare its own ranks as threads (--ranks); start it "
                               "alone",
                               environment.launcher, environment.rank_count);
        return complain(&problem, TOOL_EXIT_BAD_INPUT);
    }
    /* ARGP_IN_ORDER keeps argv as it was given: the children get it too. */
    tool_arguments_parse(&argp, &(struct tool_arguments){.argc = argc, .argv = argv, .flags = ARGP_IN_ORDER}, &settings);
    const int result = settings.one_run && settings.figures >= 0 ? one_run(&settings) : compare(&settings);
    tool_options_fini(&settings.common);
    return tool_output_end(result);
}
