/* SPDX-License-Identifier: MIT */
#include "tools/interchange/config/fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

eo_status tool_config_refuse(struct tool_config_reader *r, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return tool_problem_set(r->problem, EO_ERR_INVALID, "%s: %s", r->config->source, text);
}

void tool_config_note_default(struct tool_config_reader *r, const char *format, ...)
{
    struct tool_model_config *c = r->config;
    if (c->default_count == TOOL_CONFIG_DEFAULTS_MAX)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->defaults[c->default_count++], sizeof(c->defaults[0]), format, arguments);
    va_end(arguments);
}

/* NULL: absent or null. */
json_t *tool_config_field(const struct tool_config_reader *r, const char *key)
{
    json_t *value = json_object_get(r->object, key);
    return json_is_null(value) ? NULL : value;
}

void tool_config_show_value(const json_t *value, char *text, size_t bytes)
{
    char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    snprintf(text, bytes, "%.80s", dump ? dump : "?");
    free(dump);
}

/* A whole number; files hold 4096.0 at times. */
eo_status tool_config_take_whole(struct tool_config_reader *r, const char *key, json_t *value, uint64_t least, uint64_t most,
                                 uint32_t *out)
{
    char shown[96];
    tool_config_show_value(value, shown, sizeof(shown));
    const double real = json_is_number(value) ? json_number_value(value) : NAN;
    if (!isfinite(real) || real != floor(real))
        return tool_config_refuse(r, "%s is %s; a whole number is needed", key, shown);
    if (real < (double)least || real > (double)most)
        return tool_config_refuse(r, "%s is %s; %" PRIu64 " to %" PRIu64 " are possible", key, shown, least, most);
    *out = (uint32_t)real;
    return EO_OK;
}

eo_status tool_config_take_count_or(struct tool_config_reader *r, const char *key, uint64_t most, uint32_t fallback,
                                    const char *why, uint32_t *out)
{
    json_t *value = tool_config_field(r, key);
    if (value)
        return tool_config_take_whole(r, key, value, 1, most, out);
    *out = fallback;
    tool_config_note_default(r, "%s = %u (%s)", key, fallback, why);
    return EO_OK;
}

eo_status tool_config_take_real_or(struct tool_config_reader *r, const char *key, double fallback, double *out)
{
    json_t *value = tool_config_field(r, key);
    if (!value) {
        *out = fallback;
        tool_config_note_default(r, "%s = %g", key, fallback);
        return EO_OK;
    }
    *out = json_is_number(value) ? json_number_value(value) : NAN;
    if (!tool_config_is_above_zero(*out)) {
        char shown[96];
        tool_config_show_value(value, shown, sizeof(shown));
        return tool_config_refuse(r, "%s is %s; a number above 0 in fp32 is needed", key, shown);
    }
    return EO_OK;
}

eo_status tool_config_take_flag_or(struct tool_config_reader *r, const char *key, bool fallback, bool *out)
{
    json_t *value = tool_config_field(r, key);
    *out = fallback;
    if (!value) {
        tool_config_note_default(r, "%s = %s", key, fallback ? "true" : "false");
        return EO_OK;
    }
    if (!json_is_boolean(value)) {
        char shown[96];
        tool_config_show_value(value, shown, sizeof(shown));
        return tool_config_refuse(r, "%s is %s; true or false is needed", key, shown);
    }
    *out = json_is_true(value);
    return EO_OK;
}
