/* SPDX-License-Identifier: MIT
 *
 * The command line without glibc: options in full, --name VALUE or --name=VALUE.
 */
#include "tools/shared/arguments.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shared/problem.h"

void argp_error(const struct argp_state *state, const char *format, ...)
{
    va_list arguments;
    (void)state;
    fprintf(stderr, "memplan: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nTry `memplan --help' or `memplan --usage' for more information.\n");
    exit(TOOL_EXIT_BAD_INPUT);
}

static const struct argp_option *option_of(const struct argp *argp, const char *name, size_t length)
{
    const struct argp_option *meant = NULL;
    for (const struct argp_option *row = argp->options; row->name || row->doc; row++) {
        meant = row->flags & OPTION_ALIAS ? meant : row;
        if (row->name && strncmp(row->name, name, length) == 0 && row->name[length] == '\0')
            return meant;
    }
    return NULL;
}

void tool_arguments_parse(const struct argp *argp, const struct tool_arguments *arguments, void *input)
{
    struct argp_state state = {.argc = arguments->argc, .argv = arguments->argv, .next = 1, .input = input};
    while (state.next < state.argc) {
        char *word = state.argv[state.next++], *value = NULL;
        const bool is_option = strncmp(word, "--", 2) == 0;
        const size_t length = is_option ? strcspn(word + 2, "=") : 0;
        const struct argp_option *row = is_option ? option_of(argp, word + 2, length) : NULL;
        if (!row)
            argp_error(&state, is_option ? "%.60s: no such option" : "'%.60s' belongs to no option", word);
        if (row->arg && word[2 + length] == '=')
            value = word + 3 + length;
        else if (row->arg && state.next < state.argc)
            value = state.argv[state.next++];
        if (!row->arg != !value)
            argp_error(&state, "option '--%s' %s", row->name, row->arg ? "requires an argument" : "doesn't allow an argument");
        argp->parser(row->key, value, &state);
    }
    argp->parser(ARGP_KEY_END, NULL, &state);
}
