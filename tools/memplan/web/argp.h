/* SPDX-License-Identifier: MIT
 *
 * As much of glibc's argp as memplan's options need, for a C library without it (arguments.c).
 */
#ifndef EO_TOOLS_MEMPLAN_WEB_ARGP_H
#define EO_TOOLS_MEMPLAN_WEB_ARGP_H

#include <errno.h>
#include <stdio.h>

#include <evenodd/common.h>

enum { OPTION_ARG_OPTIONAL = 1, OPTION_HIDDEN = 2, OPTION_ALIAS = 4, OPTION_DOC = 8 };
enum { ARGP_KEY_ARG = 0, ARGP_KEY_END = 0x1000001, ARGP_ERR_UNKNOWN = E2BIG };

typedef int error_t;

struct argp_option {
    const char *name;
    int key;
    const char *arg;
    int flags;
    const char *doc;
    int group;
};

struct argp_state {
    int argc;
    char **argv;
    int next;
    void *input;
};

typedef error_t (*argp_parser_t)(int key, char *text, struct argp_state *state);

struct argp {
    const struct argp_option *options;
    argp_parser_t parser;
};

/* Ends the program, as glibc's does. */
void argp_error(const struct argp_state *state, const char *format, ...) EO_PRINTF(2, 3);

#endif
