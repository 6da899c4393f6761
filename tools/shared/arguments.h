/* SPDX-License-Identifier: MIT
 *
 * The command line, as every program of ours takes it: -h, --help, --usage, --version; an unknown option is told with the
 * nearest name; what is wrong ends the program with TOOL_EXIT_BAD_INPUT. Before, closed standard streams are occupied and
 * SIGXFSZ is ignored, so no file is opened earlier.
 */
#ifndef EO_TOOLS_SHARED_ARGUMENTS_H
#define EO_TOOLS_SHARED_ARGUMENTS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <evenodd/common.h>

struct tool_arguments {
    int argc;
    char **argv;
    unsigned flags;       /* of argp_parse */
    bool command_follows; /* the first word that is no option begins another program's command line */
};

void tool_arguments_parse(const struct argp *argp, const struct tool_arguments *arguments, void *input);

/* glibc's argp_error, for words that may be a terminal's commands, or end within a character where they were cut. */
void tool_arguments_error(const struct argp_state *state, const char *format, ...) EO_PRINTF(2, 3);
#define argp_error tool_arguments_error

/* --- option_values.c --- */

/* The value of --name. What is wrong ends the program with a usage error; ranges include both ends. */
uint64_t tool_option_count(const struct argp_state *state, const char *name, const char *text, uint64_t least, uint64_t most);
/* Bytes with their unit: 80GiB, 80GB, 85899345920B; `plain`: or without one. */
uint64_t tool_option_bytes(const struct argp_state *state, const char *name, const char *text, bool plain);
double tool_option_real(const struct argp_state *state, const char *name, const char *text, double least, double most);
/* One of two words; true for the second. */
bool tool_option_choice(const struct argp_state *state, const char *name, const char *text, const char *first,
                        const char *second);
/* "A,B" into two texts of `bytes` each. */
void tool_option_pair(const struct argp_state *state, const char *name, const char *text, const char *what, char *first,
                      char *second, size_t bytes);

#endif
