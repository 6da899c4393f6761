/* SPDX-License-Identifier: MIT
 *
 * A config.json of Hugging Face, and settings of --set (a part each). What is taken can be counted and listed.
 */
#include <jansson.h>

#include "tests/fuzz/fuzz.h"
#include "tools/interchange/config/model_config.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 256, .seconds = 5, .bytes = 4096};

enum { SETS_MAX = 4 };

static void use_config(const struct tool_model_config *config)
{
    char why[200];
    eo_transformer_config layers;
    FUZZ_HOLDS(config->layer_count >= 1 && config->layer_count <= TOOL_CONFIG_LAYERS_MAX);
    FUZZ_HOLDS(config->width >= 1 && config->head_count >= 1 && config->vocabulary >= 1 && config->context >= 1);
    FUZZ_HOLDS(config->default_count <= TOOL_CONFIG_DEFAULTS_MAX);
    FUZZ_HOLDS(tool_model_config_active_parameters(config) <= tool_model_config_parameters(config));
    if (tool_model_config_runs(config, why, sizeof(why)))
        tool_model_config_transformer(config, &layers);
    else
        FUZZ_HOLDS(why[0]);
    json_t *tensors = tool_model_config_tensors(config);
    FUZZ_HOLDS(tensors != NULL);
    json_decref(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct tool_model_config config;
    struct tool_problem problem = {""};
    struct fuzz_part rest = {data, bytes}, text = {NULL, 0}, set;
    char *sets[SETS_MAX];
    uint32_t set_count = 0;
    (void)fuzz_next_part(&rest, &text);
    while (set_count < SETS_MAX && fuzz_next_part(&rest, &set))
        sets[set_count++] = fuzz_text(set.data, set.bytes);
    if (fuzz_taken(tool_model_config_parse(&config, "config.json", (const char *)text.data, text.bytes,
                                           (const char *const *)sets, set_count, &problem),
                   problem.text))
        use_config(&config);
    while (set_count > 0)
        free(sets[--set_count]);
    return 0;
}
