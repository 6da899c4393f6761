/* SPDX-License-Identifier: MIT
 *
 * Looks at checkpoints, checks them, makes others of them.
 */
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "tools/shared/arguments.h"
#include "tools/interchange/convert.h"
#include "tools/run/checkpoint/checkpoint.h"

enum { OPTION_RANKS = 'n', OPTION_DTYPE = 0x500 };

static const struct argp_option checkpoint_tool_options[] = {
    {"ranks", OPTION_RANKS, "N", 0, "reshard, convert to a checkpoint: number of files to write [convert: 1]", 0},
    {"world", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"dtype", OPTION_DTYPE, "TYPE", 0, "convert to other formats: element type, fp32 or bf16 [fp32]", 0},
    {0},
};

struct checkpoint_tool {
    const char *command, *from, *to;
    uint32_t ranks;
    eo_dtype dtype;
    uint64_t given;
};

static error_t parse_tool_option(int key, char *text, struct argp_state *state)
{
    struct checkpoint_tool *tool = state->input;
    switch (key) {
    case OPTION_RANKS:
        tool->ranks = (uint32_t)tool_option_count(state, "ranks", text, 1, TOOL_PLAN_RANKS_MAX);
        return 0;
    case OPTION_DTYPE:
        tool->given |= 2;
        tool->dtype = tool_option_dtype(state, "dtype", text);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0)
            tool->command = text;
        else if (state->arg_num == 1)
            tool->from = text;
        else if (state->arg_num == 2)
            tool->to = text;
        else
            argp_error(state, "'%s' is one word too many", text);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* -- errors --------------------------------------------------------------------------------------------------------*/

static void print_error(void *user, eo_log_level level, const char *text)
{
    uint32_t *count = user;
    struct tool_problem problem;
    *count += level == EO_LOG_ERROR;
    (void)tool_problem_set(&problem, EO_ERR_IO, "%s", text); /* for a terminal */
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.text);
}

static uint32_t error_count;
static const eo_log tool_log = {.write = print_error, .user = &error_count, .level = EO_LOG_WARN};

static int exit_of(eo_status status)
{
    if (status >= 0)
        return TOOL_EXIT_OK;
    if (error_count == 0)
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, eo_status_text(status));
    return status == EO_ERR_INVALID || status == EO_ERR_IO || status == EO_ERR_UNSUPPORTED ? TOOL_EXIT_BAD_INPUT
                                                                                           : TOOL_EXIT_FAILED;
}

static eo_status told(eo_status status, const struct tool_problem *problem)
{
    if (status >= 0)
        return status;
    const bool is_of_train = strncmp(problem->text, "--init ", 7) == 0; /* its option for what FROM is here */
    tool_log.write(tool_log.user, EO_LOG_ERROR, problem->text + (is_of_train ? 7 : 0));
    return status;
}

/* -- which ---------------------------------------------------------------------------------------------------------*/

static bool is_checkpoint(const char *path)
{
    char manifest[TOOL_JOB_PATH_MAX];
    struct stat info;
    snprintf(manifest, sizeof(manifest), "%s/manifest", path);
    return stat(manifest, &info) == 0;
}

static eo_status holds_none(const char *from)
{
    struct tool_problem problem;
    return told(tool_problem_set(&problem, EO_ERR_IO, "%s: holds no checkpoint; check the path", from), &problem);
}

/* The checkpoint itself, or the newest of a folder. */
static eo_status open_newest(eo_checkpoint **out, const char *from)
{
    char path[TOOL_JOB_PATH_MAX];
    *out = NULL;
    const eo_status found = eo_checkpoint_find(path, sizeof(path), NULL, from, &tool_log);
    if (found == EO_IN_PROGRESS)
        return holds_none(from);
    return found < 0 ? found : eo_checkpoint_open(out, path, &tool_log);
}

static int is_a_step(const struct dirent *entry)
{
    return strncmp(entry->d_name, "step-", 5) == 0 && strspn(entry->d_name + 5, "0123456789") >= 12 &&
           entry->d_name[5 + strspn(entry->d_name + 5, "0123456789")] == '\0';
}

/* One checkpoint, or all of a folder in the order of their steps. None at all is an error where `wants_some`. */
static eo_status for_each(const char *from, bool wants_some, eo_status (*visit)(const char *path))
{
    struct dirent **entries = NULL;
    if (is_checkpoint(from))
        return visit(from);
    const int count = scandir(from, &entries, is_a_step, alphasort);
    eo_status first = EO_OK;
    struct tool_problem problem;
    if (count < 0)
        return told(tool_problem_set(&problem, EO_ERR_IO, "%s: %s; check the path", from, strerror(errno)), &problem);
    for (int i = 0; i < count; i++) {
        char path[TOOL_JOB_PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s", from, entries[i]->d_name);
        const eo_status status = visit(path);
        first = first < 0 ? first : status;
        free(entries[i]);
    }
    free(entries);
    if (count == 0 && wants_some)
        return holds_none(from);
    if (count == 0)
        printf("%s: no checkpoints\n", from);
    return first;
}

/* -- commands ------------------------------------------------------------------------------------------------------*/

static eo_status list_one(const char *path)
{
    eo_checkpoint *checkpoint;
    eo_checkpoint_info info;
    struct stat when;
    char manifest[TOOL_JOB_PATH_MAX + 16], saved[32] = "";
    EO_TRY(eo_checkpoint_open(&checkpoint, path, &tool_log));
    eo_checkpoint_get_info(checkpoint, &info);
    snprintf(manifest, sizeof(manifest), "%s/manifest", path);
    if (stat(manifest, &when) == 0) {
        struct tm local;
        strftime(saved, sizeof(saved), "%Y-%m-%d %H:%M:%S", localtime_r(&when.st_mtime, &local));
    }
    printf("%-32s  step %8llu  %5u rank%s %-6s %s  %10.1f MiB  %s: %.2f million parameters in %u layers, %u states of "
           "%s\n",
           path, (unsigned long long)info.step, info.rank_count, info.rank_count == 1 ? " " : "s", info.strategy, saved,
           (double)info.bytes / (1 << 20), info.model_name, (double)info.element_count * 1e-6, info.layer_count,
           info.optimizer_states,
           info.own_update ? "the trainer's own optimizer" : eo_optimizer_name(eo_checkpoint_optimizer(checkpoint)));
    eo_checkpoint_close(&checkpoint);
    return EO_OK;
}

static eo_status verify_one(const char *path)
{
    eo_checkpoint *checkpoint;
    eo_checkpoint_info info;
    EO_TRY(eo_checkpoint_open(&checkpoint, path, &tool_log));
    const eo_status status = eo_checkpoint_verify(checkpoint);
    eo_checkpoint_get_info(checkpoint, &info);
    if (status >= 0)
        printf("%s: good, %.1f MiB in %u file%s\n", path, (double)info.bytes / (1 << 20), info.rank_count,
               info.rank_count == 1 ? "" : "s");
    eo_checkpoint_close(&checkpoint);
    return status;
}

static eo_status reshard(const struct checkpoint_tool *tool)
{
    eo_checkpoint *checkpoint;
    EO_TRY(open_newest(&checkpoint, tool->from));
    const eo_status status = eo_checkpoint_reshard(checkpoint, tool->to, tool->ranks, &tool_log);
    eo_checkpoint_info info;
    eo_checkpoint_get_info(checkpoint, &info);
    if (status >= 0)
        printf("%s, of %u rank%s, is now in %s, of %u\n", info.path, info.rank_count, tool_plural(info.rank_count), tool->to,
               tool->ranks);
    eo_checkpoint_close(&checkpoint);
    return status;
}

/* The shape of the model is in the trainer's bytes, where train was the trainer; and whether it kept an average. */
static eo_status model_of(eo_checkpoint *checkpoint, struct tool_convert_model *what, struct tool_lora *lora,
                          json_t **published)
{
    json_t *settings;
    EO_TRY(tool_job_settings_read(checkpoint, &settings));
    const bool known = tool_job_settings_model(settings, &what->config, lora, published);
    what->averaged = json_number_value(json_object_get(json_object_get(settings, "settings"), "ema")) > 0;
    json_decref(settings);
    if (!known) {
        print_error(&error_count, EO_LOG_ERROR,
                    "the checkpoint does not hold its model's shape: train did not save it; a program of yours can read it by "
                    "eo_checkpoint_open and eo_checkpoint_read (evenodd/checkpoint.h)");
        return EO_ERR_UNSUPPORTED;
    }
    return EO_OK;
}

static eo_status convert_to_others(const struct checkpoint_tool *tool)
{
    const struct tool_export_settings settings = {.path = tool->to, .dtype = tool->dtype, .file_bytes = TOOL_EXPORT_FILE_BYTES};
    eo_checkpoint *checkpoint;
    struct tool_convert_model what = {.averaged = false};
    struct tool_lora lora;
    struct tool_problem problem;
    json_t *published = NULL;
    EO_TRY(open_newest(&checkpoint, tool->from));
    eo_status status = model_of(checkpoint, &what, &lora, &published);
    what.published = published;
    what.lora = (eo_lora){lora.rank, (float)lora.alpha, lora.targets};
    if (status >= 0)
        status = told(tool_convert_to_files(checkpoint, &what, &settings, &problem), &problem);
    if (status >= 0 && what.averaged)
        printf("the average of the weights (--ema) stands in their place\n");
    json_decref(published);
    eo_checkpoint_close(&checkpoint);
    return status;
}

static eo_status convert_from_others(const struct checkpoint_tool *tool)
{
    struct tool_import import;
    struct tool_problem problem;
    EO_TRY(told(tool_import_open(&import, tool->from, &problem), &problem));
    if (import.model_config)
        tool_model_config_tell(import.model_config, import.model_config->source, true, 0);
    char *text = tool_json_text(0, tool_job_settings_of_import, &import);
    eo_status status = EO_ERR_NO_MEMORY;
    if (text)
        status = told(
            tool_convert_from_files(&import, tool->to, tool->ranks ? tool->ranks : 1, text, (uint32_t)strlen(text), &problem),
            &problem);
    free(text);
    tool_import_fini(&import);
    return status;
}

/* Ours to others, or others' to ours: what lies there says which. */
static eo_status convert(const struct checkpoint_tool *tool)
{
    char path[TOOL_JOB_PATH_MAX];
    const eo_log silence = {0};
    const bool is_ours = eo_checkpoint_find(path, sizeof(path), NULL, tool->from, &silence) == EO_OK ||
                         is_checkpoint(tool->from);
    if (is_ours ? tool->ranks > 0 : (tool->given & 2) > 0) {
        print_error(&error_count, EO_LOG_ERROR,
                    is_ours ? "convert: --ranks is for a checkpoint to write; leave it out"
                            : "convert: --dtype is for other formats, a checkpoint is fp32; leave it out");
        return EO_ERR_INVALID;
    }
    const eo_status status = is_ours ? convert_to_others(tool) : convert_from_others(tool);
    if (status >= 0)
        printf("%s is now in %s\n", tool->from, tool->to);
    return status;
}

static int run_tool(const struct argp *argp, const struct checkpoint_tool *tool)
{
    static const struct {
        const char *name;
        bool writes;
    } commands[] = {{"ls", false}, {"verify", false}, {"convert", true}, {"reshard", true}};
    size_t c = 0;
    while (c < sizeof(commands) / sizeof(commands[0]) && tool->command && strcmp(tool->command, commands[c].name) != 0)
        c++;
    struct tool_problem unknown;
    (void)tool_problem_set(&unknown, EO_ERR_INVALID, "'%s' is no command; give ls, verify, convert or reshard",
                           tool->command ? tool->command : "");
    const char *wrong = !tool->command                                      ? "give a command: ls, verify, convert or reshard"
                        : c == sizeof(commands) / sizeof(commands[0])       ? unknown.text
                        : !tool->from || !tool->from[0]                     ? "give the checkpoint, or its folder"
                        : commands[c].writes && (!tool->to || !tool->to[0]) ? "give the folder or file to write"
                        : !commands[c].writes && tool->to    ? "this command writes nothing; leave the last word out"
                        : c == 3 && !tool->ranks             ? "reshard: give the new number of ranks with --ranks"
                        : c != 2 && (tool->given & 2)        ? "--dtype is for convert"
                        : !commands[c].writes && tool->ranks ? "--ranks is for reshard and convert"
                                                             : NULL;
    if (wrong) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, wrong);
        argp_help(argp, stderr, ARGP_HELP_SEE, program_invocation_short_name);
        return TOOL_EXIT_BAD_INPUT;
    }
    return exit_of(c == 0   ? for_each(tool->from, false, list_one)
                   : c == 1 ? for_each(tool->from, true, verify_one)
                   : c == 2 ? convert(tool)
                            : reshard(tool));
}

int main(int argc, char **argv)
{
    struct checkpoint_tool tool = {.command = NULL};
    const struct argp argp = {
        .options = checkpoint_tool_options, .parser = parse_tool_option,
        .args_doc = "ls FOLDER\nverify FOLDER\nconvert FROM TO\nreshard FROM TO --ranks N",
        .doc = "Lists and verifies checkpoints of train, and converts them.\vFOLDER and FROM are a checkpoint, or a folder of "
               "checkpoints: ls and verify read all of them, convert and reshard the newest. convert writes a Hugging Face "
               "folder, or a GPT-2 checkpoint of llm.c if TO ends in .bin. From either of these it makes a checkpoint.",
    };
    tool_arguments_parse(&argp, &(struct tool_arguments){.argc = argc, .argv = argv}, &tool);
    return tool_output_end(run_tool(&argp, &tool));
}
