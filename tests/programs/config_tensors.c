/* SPDX-License-Identifier: MIT
 *
 * What a config.json comes to, as JSON on one line: parameters, those that a token meets, and every tensor of published files
 * with its shape. usage: config_tensors MODEL
 */
#include <stdio.h>
#include <stdlib.h>

#include "tools/interchange/config/model_config.h"

int main(int argc, char **argv)
{
    static struct tool_model_config config;
    struct tool_problem problem = {""};
    if (argc != 2 || tool_model_config_load(&config, argv[1], NULL, 0, &problem) < 0) {
        fprintf(stderr, "config_tensors: %s\n", problem.text);
        return 2;
    }
    json_t *root = json_pack("{s:I, s:I, s:I, s:s, s:s, s:o}", "parameters", (json_int_t)tool_model_config_parameters(&config),
                             "active", (json_int_t)tool_model_config_active_parameters(&config), "count",
                             (json_int_t)tool_model_config_tensor_count(&config), "not_computed", config.not_computed,
                             "unknown", config.unknown, "tensors", tool_model_config_tensors(&config));
    const int failed = !root || json_dumpf(root, stdout, JSON_COMPACT | JSON_SORT_KEYS) != 0 || putchar('\n') == EOF;
    json_decref(root);
    return failed;
}
