/* SPDX-License-Identifier: MIT
 *
 * argp_error and their like are ours, found before the C library's. They leave the parser's function, not argp_parse,
 * which so frees what is its own: each parser is called by one of the guards below.
 */
#include "tests/fuzz/options.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { GUARDS = 8, WORDS_MAX = 64 };

static jmp_buf way_out;
static bool is_guarded;
static argp_parser_t guarded[GUARDS]; /* the program's parser, then its children's */

static _Noreturn void leave_parser(const char *format, va_list arguments)
{
    char text[8192];
    FUZZ_HOLDS(is_guarded);
    FUZZ_HOLDS(!format || vsnprintf(text, sizeof(text), format, arguments) > 0);
    longjmp(way_out, 1);
}

void argp_error(const struct argp_state *state, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    leave_parser(format, arguments);
}

void argp_failure(const struct argp_state *state, int status, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    leave_parser(format, arguments);
}

void argp_state_help(const struct argp_state *state, FILE *stream, unsigned flags)
{
    va_list none;
    memset(&none, 0, sizeof(none));
    leave_parser(NULL, none);
}

static error_t call_guarded(argp_parser_t parser, int key, char *text, struct argp_state *state)
{
    if (setjmp(way_out)) {
        is_guarded = false;
        return EINVAL;
    }
    is_guarded = true;
    const error_t error = parser(key, text, state);
    is_guarded = false;
    return error;
}

#define GUARD(number)                                                                                                 \
    static error_t guard_##number(int key, char *text, struct argp_state *state)                                      \
    {                                                                                                                 \
        return call_guarded(guarded[number], key, text, state);                                                       \
    }
GUARD(0)
GUARD(1)
GUARD(2)
GUARD(3)
GUARD(4)
GUARD(5)
GUARD(6)
GUARD(7)

static const argp_parser_t guards[GUARDS] = {guard_0, guard_1, guard_2, guard_3, guard_4, guard_5, guard_6, guard_7};

struct fuzz_words fuzz_words_of(const uint8_t *data, size_t bytes)
{
    static char program[] = "program";
    struct fuzz_words words = {.text = fuzz_text(data, bytes), .words = {program}, .count = 1};
    for (char *at = words.text; at && *at && words.count <= WORDS_MAX;) {
        words.words[words.count++] = at;
        at = strchr(at, '\n');
        if (at)
            *at++ = '\0';
    }
    return words;
}

bool fuzz_options_parse(const struct argp *argp, unsigned flags, struct fuzz_words *words, void *input)
{
    struct argp own = *argp, parsers[GUARDS];
    struct argp_child children[GUARDS] = {{0}};
    guarded[0] = argp->parser;
    own.parser = guards[0];
    own.children = children;
    for (int i = 0; argp->children && argp->children[i].argp; i++) {
        FUZZ_HOLDS(i + 2 < GUARDS && !argp->children[i].argp->children);
        parsers[i] = *argp->children[i].argp;
        guarded[i + 1] = parsers[i].parser;
        parsers[i].parser = guards[i + 1];
        children[i] = argp->children[i];
        children[i].argp = &parsers[i];
    }
    return argp_parse(&own, words->count, words->words, flags | ARGP_SILENT, NULL, input) == 0;
}
