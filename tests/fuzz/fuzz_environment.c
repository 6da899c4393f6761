/* SPDX-License-Identifier: MIT
 *
 * What launchers put into the environment: NAME=VALUE a line. The value of EVENODD_TOKEN_FILE is what stands in a file.
 */
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/world_environment.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 1024};

static void set_variables(char *text)
{
    char *rest = NULL;
    static const char file[] = "EVENODD_TOKEN_FILE";
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, '=');
        if (!value || value == line)
            continue;
        *value++ = '\0';
        FUZZ_HOLDS(setenv(line, strcmp(line, file) == 0 ? fuzz_file("token", value, strlen(value)) : value, 1) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct eo_world_environment e;
    struct eo_problem problem = {""};
    char *text = fuzz_text(data, bytes);
    (void)fuzz_folder(); /* of $TMPDIR */
    clearenv();
    set_variables(text);
    if (fuzz_taken(eo_world_environment_read(&e, &problem), problem.text)) {
        FUZZ_HOLDS(e.rank < e.rank_count && e.local_rank < e.local_count && e.local_count <= e.rank_count);
        FUZZ_HOLDS(e.rank_count == 1 || e.launcher);
        FUZZ_HOLDS(memchr(e.address, 0, sizeof(e.address)) && memchr(e.port, 0, sizeof(e.port)) &&
                   memchr(e.job, 0, sizeof(e.job)));
    }
    clearenv();
    free(text);
    return 0;
}
