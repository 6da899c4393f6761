/* SPDX-License-Identifier: MIT */
#include "tools/memplan/published/steps.h"

#include <math.h>
#include <stdio.h>

/* Tokens a second and GPU. */
static double speed_of(const struct tool_published_step *s, double seconds)
{
    return (double)s->seq * s->batch * s->micro_batches / (s->tensor * s->pipeline) / seconds;
}

enum { STEPS_MAX = 512 };

/* All of them, estimated once. */
static const struct tool_published_step *all_steps(uint32_t *count)
{
    static struct tool_published_step steps[STEPS_MAX];
    static uint32_t known;
    while (known < STEPS_MAX && tool_published_step_at(known, &steps[known]))
        known++;
    *count = known;
    return steps;
}

static bool are_choices(const struct tool_published_step *a, const struct tool_published_step *b)
{
    return a->source == b->source && a->model == b->model && a->device[0] == b->device[0] && a->ranks == b->ranks &&
           a->seq == b->seq && a->small_memory == b->small_memory;
}

bool tool_published_choice_at(uint32_t index, struct tool_published_choice *out)
{
    uint32_t count;
    const struct tool_published_step *steps = all_steps(&count);
    for (uint32_t i = 0; i < count; i++) {
        double estimated = 0;
        bool is_first = true;
        *out = (struct tool_published_choice){.count = 0};
        for (uint32_t k = 0; k < count; k++) {
            const struct tool_published_step *s = &steps[k];
            if (!are_choices(&steps[i], s))
                continue;
            is_first = is_first && k >= i;
            out->count++;
            out->best = fmax(out->best, speed_of(s, s->seconds));
            if (speed_of(s, s->estimated_seconds) > estimated) {
                estimated = speed_of(s, s->estimated_seconds);
                out->recommended = *s;
                out->recommended_speed = speed_of(s, s->seconds);
            }
        }
        if (is_first && out->count > 1 && index-- == 0)
            return true;
    }
    return false;
}

void tool_published_choices_print(FILE *out)
{
    struct tool_published_choice c;
    double most = 1;
    fprintf(out, "\n| published choices | GPUs | tokens | layouts | recommended | its tokens/s and GPU | the best's | ratio |\n"
                 "|---|---:|---:|---:|---|---:|---:|---:|\n");
    for (uint32_t i = 0; tool_published_choice_at(i, &c); i++) {
        const struct tool_published_step *s = &c.recommended;
        most = fmax(most, c.best / c.recommended_speed);
        fprintf(out, "| %s %s | %u %s | %u | %u | tp%u pp%u, batch %u, %u blocks recomputed%s | %.0f | %.0f | %.3f |\n", s->source,
                s->model, s->ranks, s->device, s->seq, c.count, s->tensor, s->pipeline, s->batch, s->recomputed_blocks,
                s->selective ? ", selective" : "", c.recommended_speed, c.best, c.best / c.recommended_speed);
    }
    fprintf(out, "\nThe layout that the estimate recommends is at most %.3f x slower than the best of the published ones.\n", most);
}
