/* SPDX-License-Identifier: MIT
 *
 * What launchers put into the environment: NAME=VALUE a line. The value of EVENODD_TOKEN_FILE is what stands in a file.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tools/shared/world_environment.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 1024};

enum { VARIABLES_MAX = 128 };

/* An array of our own: of what setenv is given, glibc keeps a copy for ever. */
static void set_variables(char *text)
{
    static const char file[] = "EVENODD_TOKEN_FILE=";
    static char *variables[VARIABLES_MAX + 1], token[4200];
    char *rest = NULL;
    uint32_t count = 0;
    for (char *line = strtok_r(text, "\n", &rest); line && count < VARIABLES_MAX; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, file, sizeof(file) - 1) == 0) {
            const char *value = line + sizeof(file) - 1;
            snprintf(token, sizeof(token), "%s%s", file, fuzz_file("token", value, strlen(value)));
            line = token;
        }
        if (strchr(line, '=') > line)
            variables[count++] = line;
    }
    variables[count] = NULL;
    environ = variables;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tool_world_environment e;
    struct tool_problem problem = {""};
    char *text = fuzz_text(data, bytes);
    (void)fuzz_folder(); /* of $TMPDIR */
    set_variables(text);
    if (fuzz_taken(tool_world_environment_read(&e, &problem), problem.text)) {
        FUZZ_HOLDS(e.rank < e.rank_count && e.local_rank < e.local_count && e.local_count <= e.rank_count);
        FUZZ_HOLDS(e.rank_count == 1 || e.launcher);
        FUZZ_HOLDS(memchr(e.address, 0, sizeof(e.address)) && memchr(e.port, 0, sizeof(e.port)) &&
                   memchr(e.job, 0, sizeof(e.job)));
    }
    environ = NULL;
    free(text);
    return 0;
}
