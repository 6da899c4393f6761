/* SPDX-License-Identifier: MIT
 *
 * The command line, as every program of ours takes it: -h, --help, --usage, --version; an unknown option is told with the
 * nearest name; what is wrong ends the program with EO_EXIT_BAD_INPUT.
 */
#ifndef EO_TOOLS_ARGUMENTS_H
#define EO_TOOLS_ARGUMENTS_H

#include <argp.h>
#include <stdbool.h>

struct eo_arguments {
    int argc;
    char **argv;
    unsigned flags;       /* of argp_parse */
    bool command_follows; /* the first word that is no option begins another program's command line */
};

void eo_arguments_parse(const struct argp *argp, const struct eo_arguments *arguments, void *input);

#endif
