/* SPDX-License-Identifier: MIT */
#include "tools/shared/arguments.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plain_text.h"
#include "tools/shared/patient_output.h"
#include "tools/shared/problem.h"
#include "tools/shared/told.h"
#include "tools/shared/word_distance.h"

enum { DOOR_USAGE = 0x900, NAME_BYTES_MAX = TOOL_WORD_BYTES_MAX };

/* ---- errors ---- */

/* Ranks that launch has started have the same command line. */
static void leave_if_told(const char *text)
{
    if (!tool_told_first(tool_told_rank(), text))
        exit(TOOL_EXIT_BAD_INPUT);
}

#undef argp_error
void tool_arguments_error(const struct argp_state *state, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    (void)eo_text_format(text, sizeof(text), format, arguments);
    va_end(arguments);
    eo_text_clean(text);
    leave_if_told(text);
    argp_error(state, "%s", text);
}

/* ---- help and version ---- */

static const struct argp_option door_options[] = {
    {"help", 'h', NULL, 0, "this list", -1},
    {NULL, '?', NULL, OPTION_HIDDEN, NULL, -1},
    {"usage", DOOR_USAGE, NULL, 0, "a short list of the options", -1},
    {"version", 'V', NULL, 0, "the version", -1},
    {0},
};

static error_t parse_door_option(int key, char *text, struct argp_state *state)
{
    (void)text;
    switch (key) {
    case 'h':
    case '?':
        argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK);
        exit(tool_output_end(TOOL_EXIT_OK));
    case DOOR_USAGE:
        argp_state_help(state, state->out_stream, ARGP_HELP_USAGE);
        exit(tool_output_end(TOOL_EXIT_OK));
    case 'V':
        printf("%s (evenodd) %s\n", state->name, eo_version());
        exit(tool_output_end(TOOL_EXIT_OK));
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp door_argp = {.options = door_options, .parser = parse_door_option};

static error_t hand_input_on(int key, char *text, struct argp_state *state)
{
    (void)text;
    if (key != ARGP_KEY_INIT)
        return ARGP_ERR_UNKNOWN;
    state->child_inputs[0] = state->input;
    return 0;
}

/* ---- unknown options ---- */

/* A word, or the part of a word before '=', held against all names. */
struct lookup {
    const char *word;
    size_t length;
    bool is_known, takes_value; /* it is a name, or the beginning of one */
    bool is_whole;              /* all of a name: beginnings of others count no more */
    const char *nearest;
    size_t nearest_distance;
};

static void look_at_name(struct lookup *look, const char *name, bool takes_value)
{
    if (strncmp(name, look->word, look->length) == 0 && !look->is_whole) {
        look->is_known = true;
        look->takes_value = takes_value;
        look->is_whole = name[look->length] == '\0';
    }
    const size_t name_length = strlen(name);
    size_t far = tool_word_distance(look->word, look->length, name);
    if (name_length >= 3 && look->length > name_length && strncmp(look->word, name, name_length) == 0)
        far = far < 2 ? far : 2; /* --batch-size for --batch */
    if (far < look->nearest_distance) {
        look->nearest = name;
        look->nearest_distance = far;
    }
}

static void look_at_all(struct lookup *look, const struct argp *argp)
{
    bool takes_value = false;
    for (const struct argp_option *row = argp->options; row && (row->name || row->doc || row->key); row++) {
        if (!(row->flags & OPTION_ALIAS))
            takes_value = row->arg && !(row->flags & OPTION_ARG_OPTIONAL);
        if (row->name && !(row->flags & OPTION_DOC))
            look_at_name(look, row->name, takes_value);
    }
    for (const struct argp_child *child = argp->children; child && child->argp; child++)
        look_at_all(look, child->argp);
}

/* Whether the next word is the option's value. Ends the program where there is no such option. */
static bool check_option(const struct argp *argp, const char *word)
{
    struct lookup look = {.word = word, .length = strcspn(word, "="), .nearest_distance = NAME_BYTES_MAX};
    if (look.length == 0) /* argp says what it is */
        return false;
    if (look.length <= NAME_BYTES_MAX)
        look_at_all(&look, argp);
    if (look.is_known)
        return look.takes_value && word[look.length] != '=';
    char name[NAME_BYTES_MAX + 1];
    snprintf(name, sizeof(name), "%.*s", (int)look.length, word);
    eo_text_clean(name);
    leave_if_told(name);
    fprintf(stderr, "%s: --%s: no such option", program_invocation_short_name, name);
    if (look.nearest && look.nearest_distance < look.length &&
        (look.nearest_distance <= 2 || look.nearest_distance <= look.length / 3))
        fprintf(stderr, "; did you mean --%s?", look.nearest);
    fprintf(stderr, "\nTry `%s --help' for all of them.\n", program_invocation_short_name);
    exit(TOOL_EXIT_BAD_INPUT);
}

/* "-n 3": the last letter of a word may want the next one. */
static bool short_takes_value(const struct argp *argp, const char *word)
{
    const char last = word[strlen(word) - 1];
    bool takes_value = false;
    for (const struct argp_option *row = argp->options; row && (row->name || row->doc || row->key); row++)
        if (row->key == last && row->arg && !(row->flags & OPTION_ARG_OPTIONAL))
            takes_value = word[1] == last; /* else what follows the first letter is its value */
    for (const struct argp_child *child = argp->children; child && child->argp; child++)
        takes_value = takes_value || short_takes_value(child->argp, word);
    return takes_value;
}

static void check_options(const struct argp *argp, const struct tool_arguments *arguments)
{
    for (int i = 1; i < arguments->argc; i++) {
        const char *word = arguments->argv[i];
        if (strcmp(word, "--") == 0 || (word[0] != '-' && arguments->command_follows))
            return;
        if (strncmp(word, "--", 2) == 0)
            i += check_option(argp, word + 2);
        else if (word[0] == '-' && word[1] != '\0')
            i += short_takes_value(argp, word);
    }
}

/* A closed standard stream would become the next file that is opened, and what is printed would go there. What takes its place
 * here can be neither read nor written, as before. */
static void occupy_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/", O_PATH); /* the lowest number that is free */
}

void tool_arguments_parse(const struct argp *argp, const struct tool_arguments *arguments, void *input)
{
    occupy_standard_streams();
    if (fcntl(STDOUT_FILENO, F_GETFL) & O_NONBLOCK) /* a pipe of node's or ssh's: it takes what fits, and fails */
        tool_patient_begin(&stdout, STDOUT_FILENO, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF);
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the call that meets it */
    const struct argp_child children[] = {{.argp = argp}, {.argp = &door_argp}, {0}};
    const struct argp all = {.parser = hand_input_on, .children = children};
    argp_err_exit_status = TOOL_EXIT_BAD_INPUT;
    if (arguments->argc > 0)
        arguments->argv[0] = program_invocation_short_name; /* as getopt's own words begin */
    check_options(&all, arguments);
    const error_t error = argp_parse(&all, arguments->argc, arguments->argv, arguments->flags | ARGP_NO_HELP, NULL, input);
    if (error) { /* not of an option: that has been told, and ended the program */
        fprintf(stderr, "%s: the command line cannot be read: %s\n", program_invocation_short_name, strerror(error));
        exit(TOOL_EXIT_FAILED);
    }
}
