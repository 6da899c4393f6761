/* SPDX-License-Identifier: MIT
 *
 * Keys of a config.json that decide no byte, but what is computed. Each is read, or found to say what the layers compute
 * anyway, or listed in the config: as not computed, or as not known.
 */
#ifndef EO_TOOLS_INTERCHANGE_CONFIG_KEYS_H
#define EO_TOOLS_INTERCHANGE_CONFIG_KEYS_H

#include "tools/interchange/config/model_config.h"

/*
 * rope_scaling, or rope_parameters of newer files. *theta: 0 where the file does not say it. EO_ERR_INVALID: a value that
 * cannot be, or two that contradict each other. A kind that is not computed is listed.
 */
EO_NODISCARD eo_status tool_config_read_rope(struct tool_model_config *config, const json_t *object, double *theta,
                                             struct tool_problem *problem);

/* Whether a key means anything in this family: what --set may add to a file. */
bool tool_config_knows_key(enum tool_config_family family, const char *key);
/* Of those, the one that is nearest to a wrong one, or means the same in another family. */
const char *tool_config_nearest_key(enum tool_config_family family, const char *wrong);

/* Keys of a family that is planned, not run, one after the other: `index` begins with 0; NULL past the last. */
const char *tool_config_planned_key(enum tool_config_family family, uint32_t *index);

/* Of a file whose text_config was read: what lies around it. */
void tool_config_judge_outer(struct tool_model_config *config, const json_t *outer);

/* Everything else. After the config was read. */
void tool_config_judge_keys(struct tool_model_config *config, const json_t *object);

#endif
