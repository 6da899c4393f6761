/* SPDX-License-Identifier: MIT */
#include "tools/run/learning_rate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* Of the way from the minimum (0) to the learning rate (1), at `done` of the steps after warm-up (0 to 1). */
static double cosine(const struct tool_schedule *schedule, const struct tool_schedule_run *run, double done)
{
    (void)schedule, (void)run;
    return 0.5 * (1 + cos(pi * done));
}

static double linear(const struct tool_schedule *schedule, const struct tool_schedule_run *run, double done)
{
    (void)schedule, (void)run;
    return 1 - done;
}

static double stable_then_decay(const struct tool_schedule *schedule, const struct tool_schedule_run *run, double done)
{
    const double left = (1 - done) * (double)(run->steps - run->warmup), decay = schedule->decay_part * (double)run->steps;
    return left < decay ? left / decay : 1;
}

static const struct kind {
    const char *name;
    const char *numbers; /* behind a colon */
    double (*level)(const struct tool_schedule *schedule, const struct tool_schedule_run *run, double done); /* NULL: no minimum */
    double minimum_part; /* of the learning rate */
} kinds[] = {
    [TOOL_SCHEDULE_COSINE] = {"cosine", NULL, cosine, 0.1},
    [TOOL_SCHEDULE_LINEAR] = {"linear", NULL, linear, 0},
    [TOOL_SCHEDULE_CONSTANT] = {"constant", NULL, NULL, 0},
    [TOOL_SCHEDULE_WSD] = {"wsd", "F, the part of the steps that decays, above 0 and at most 1 (such as wsd:0.2)",
                           stable_then_decay, 0},
    [TOOL_SCHEDULE_STEP] = {"step", "N,G: every N steps times G, above 0 and at most 1 (such as step:100,0.7)", NULL, 0},
};
enum { KIND_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

static bool parse_factor(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out > 0 && *out <= 1;
}

static bool parse_numbers(struct tool_schedule *schedule, enum tool_schedule_kind kind, const char *numbers)
{
    if (kind == TOOL_SCHEDULE_WSD) {
        schedule->decay_part = 0.1;
        return !numbers || parse_factor(numbers, &schedule->decay_part);
    }
    if (kind != TOOL_SCHEDULE_STEP)
        return !numbers;
    char *end;
    if (!numbers || numbers[0] < '1' || numbers[0] > '9')
        return false;
    schedule->every = strtoull(numbers, &end, 10);
    return *end == ',' && end - numbers < 19 && parse_factor(end + 1, &schedule->factor);
}

bool tool_schedule_parse(struct tool_schedule *schedule, const char *text, char *why, size_t why_bytes)
{
    const char *colon = strchr(text, ':');
    const size_t length = colon ? (size_t)(colon - text) : strlen(text);
    for (int k = 0; k < KIND_COUNT; k++) {
        if (strlen(kinds[k].name) != length || strncmp(kinds[k].name, text, length) != 0)
            continue;
        schedule->kind = (enum tool_schedule_kind)k;
        if (parse_numbers(schedule, schedule->kind, colon ? colon + 1 : NULL))
            return true;
        if (kinds[k].numbers)
            snprintf(why, why_bytes, "%s takes %s", kinds[k].name, kinds[k].numbers);
        else
            snprintf(why, why_bytes, "%s takes no number", kinds[k].name);
        return false;
    }
    snprintf(why, why_bytes, "give cosine, linear, constant, wsd:F or step:N,G");
    return false;
}

const char *tool_schedule_text(const struct tool_schedule *s, char text[TOOL_SCHEDULE_TEXT_MAX])
{
    int used = snprintf(text, TOOL_SCHEDULE_TEXT_MAX, "%s", kinds[s->kind].name);
    if (s->kind == TOOL_SCHEDULE_WSD)
        snprintf(text + used, (size_t)(TOOL_SCHEDULE_TEXT_MAX - used), ":%g", s->decay_part);
    else if (s->kind == TOOL_SCHEDULE_STEP)
        snprintf(text + used, (size_t)(TOOL_SCHEDULE_TEXT_MAX - used), ":%llu,%g", (unsigned long long)s->every, s->factor);
    return text;
}

bool tool_schedule_has_minimum(const struct tool_schedule *schedule)
{
    return kinds[schedule->kind].level != NULL;
}

double tool_schedule_at(const struct tool_schedule *schedule, const struct tool_schedule_run *run, uint64_t step)
{
    const struct kind *kind = &kinds[schedule->kind];
    const double rate = run->learning_rate;
    if (step < run->warmup)
        return rate * (double)(step + 1) / (double)run->warmup;
    const uint64_t since = step - run->warmup;
    if (schedule->kind == TOOL_SCHEDULE_STEP)
        return rate * pow(schedule->factor, (double)(since / schedule->every));
    if (!kind->level || run->steps <= run->warmup)
        return rate;
    const double least = run->minimum >= 0 && rate > 0 ? run->minimum / rate : kind->minimum_part;
    const double level = kind->level(schedule, run, (double)since / (double)(run->steps - run->warmup));
    return rate * (least + (1 - least) * level);
}
