/* SPDX-License-Identifier: MIT */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shared/arguments.h"

uint64_t tool_option_count(const struct argp_state *state, const char *name, const char *text, uint64_t least, uint64_t most)
{
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0') /* strtoull takes signs and blanks */
        argp_error(state, "--%s is '%s'; give a whole number from %llu to %llu", name, text,
                   (unsigned long long)least, (unsigned long long)most);
    if (errno == ERANGE || value < least || value > most)
        argp_error(state, "--%s is %s, too %s; give a number from %llu to %llu", name, text,
                   errno != ERANGE && value < least ? "small" : "large", (unsigned long long)least,
                   (unsigned long long)most);
    return value;
}

double tool_option_real(const struct argp_state *state, const char *name, const char *text, double least, double most)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < least || value > most)
        argp_error(state, "--%s is '%s'; give a number from %.10g to %.10g", name, text, least, most);
    if (value != 0 && (float)value == 0)
        argp_error(state, "--%s is '%s', too small: in fp32 it is 0; give a larger number", name, text);
    return value;
}

uint64_t tool_option_bytes(const struct argp_state *state, const char *name, const char *text, bool plain)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"B", 1},    {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
                 {"KB", 1e3}, {"MB", 1e6},   {"GB", 1e9},      {"TB", 1e12}};
    char *end = NULL;
    const double value = isdigit((unsigned char)text[0]) ? strtod(text, &end) : -1;
    if (end && *end == '\0' && plain)
        end = "B";
    for (size_t i = 0; end && i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(end, units[i].suffix) == 0 && isfinite(value) && value * units[i].factor < 1e18)
            return (uint64_t)(value * units[i].factor);
    argp_error(state, "--%s is '%.60s'; give bytes with their unit: 80GiB, 80GB or 85899345920B", name, text);
    return 0;
}

void tool_option_pair(const struct argp_state *state, const char *name, const char *text, const char *what, char *first,
                      char *second, size_t bytes)
{
    const char *comma = strchr(text, ',');
    if (!comma || comma == text || strlen(text) >= bytes || strchr(comma + 1, ','))
        argp_error(state, "--%s is '%.60s'; give %s", name, text, what);
    snprintf(first, bytes, "%.*s", (int)(comma - text), text);
    snprintf(second, bytes, "%s", comma + 1);
}

bool tool_option_choice(const struct argp_state *state, const char *name, const char *text, const char *first,
                        const char *second)
{
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
        argp_error(state, "--%s is '%.60s'; give %s or %s", name, text, first, second);
    return strcmp(text, second) == 0;
}
