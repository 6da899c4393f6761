/* SPDX-License-Identifier: MIT
 *
 * Fields of a config.json on their way into a config: each is taken, or has a default, which is noted, or is refused with its
 * name and value.
 */
#ifndef EO_TOOLS_INTERCHANGE_CONFIG_FIELDS_H
#define EO_TOOLS_INTERCHANGE_CONFIG_FIELDS_H

#include "tools/interchange/config/model_config.h"

enum {
    TOOL_CONFIG_WIDTH_MAX = 1 << 20,
    TOOL_CONFIG_MLP_MAX = 1 << 24,
    TOOL_CONFIG_VOCABULARY_MAX = 1 << 30,
    TOOL_CONFIG_CONTEXT_MAX = 1 << 24,
    TOOL_CONFIG_HEAD_SIZE_MAX = 1 << 16,
};

/* Fields of one file on their way into a config. */
struct tool_config_reader {
    json_t *object;
    bool is_preset; /* a shape of the layers: nobody has written its fields down */
    bool is_nested; /* the text_config of a larger model */
    struct tool_model_config *config;
    struct tool_problem *problem;
};

eo_status tool_config_refuse(struct tool_config_reader *r, const char *format, ...) EO_PRINTF(2, 3);
void tool_config_note_default(struct tool_config_reader *r, const char *format, ...) EO_PRINTF(2, 3);

json_t *tool_config_field(const struct tool_config_reader *r, const char *key); /* NULL: absent or null */
void tool_config_show_value(const json_t *value, char *text, size_t bytes);

/* A whole number; files hold 4096.0 at times. */
EO_NODISCARD eo_status tool_config_take_whole(struct tool_config_reader *r, const char *key, json_t *value, uint64_t least,
                                              uint64_t most, uint32_t *out);

/* Above 0 as a float, too: to the layers 0 is a default. */
static inline bool tool_config_is_above_zero(double number)
{
    return number > 0 && number <= 1e30 && (float)number > 0;
}

/* From 1 on. */
EO_NODISCARD eo_status tool_config_take_count_or(struct tool_config_reader *r, const char *key, uint64_t most,
                                                 uint32_t fallback, const char *why, uint32_t *out);
EO_NODISCARD eo_status tool_config_take_real_or(struct tool_config_reader *r, const char *key, double fallback, double *out);
EO_NODISCARD eo_status tool_config_take_flag_or(struct tool_config_reader *r, const char *key, bool fallback, bool *out);

/* For texts that are no JSON: null for Python's infinities and NaNs, which is noted, and whole numbers as reals. NULL: *error.
 */
json_t *tool_config_parse_python(struct tool_config_reader *r, const char *text, size_t bytes, json_error_t *error);

/* The family's own name of a field; a name that is none of its aliases stays. */
const char *tool_config_own_name(enum tool_config_family family, const char *name);
/* Aliases of the object get it. Two names that differ in their values are refused. */
EO_NODISCARD eo_status tool_config_rename_aliases(struct tool_config_reader *r);

/* By family, after it was found. */
EO_NODISCARD eo_status tool_config_read_gpt2(struct tool_config_reader *r);
EO_NODISCARD eo_status tool_config_read_others(struct tool_config_reader *r); /* Llama's like */
EO_NODISCARD eo_status tool_config_read_planned(struct tool_config_reader *r);

/* decoder_sparse_step and mlp_only_layers; experts against their limits. */
EO_NODISCARD eo_status tool_config_read_dense_layers(struct tool_config_reader *r);
EO_NODISCARD eo_status tool_config_check_experts(struct tool_config_reader *r);

#endif
