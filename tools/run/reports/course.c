/* SPDX-License-Identifier: MIT */
#include "tools/run/reports/course.h"

#include <evenodd/random.h>
#include <math.h>

#include "tools/run/reports/report.h"

/* The last point is full, and room for the next one is needed. */
static void halve_points(struct tool_course *course)
{
    for (uint32_t p = 0; p < TOOL_COURSE_POINTS / 2; p++) {
        const double a = course->losses[2 * p], b = course->losses[2 * p + 1];
        course->losses[p] = isnan(a) ? b : isnan(b) ? a : (a + b) / 2;
    }
    course->point_count = TOOL_COURSE_POINTS / 2;
    course->width_log2++;
}

static void add_loss(struct tool_course *course, double loss)
{
    if (course->point_count == 0 || course->seen == UINT64_C(1) << course->width_log2) {
        if (course->point_count == TOOL_COURSE_POINTS)
            halve_points(course);
        course->point_count++;
        course->sum = 0;
        course->seen = course->finite = 0;
    }
    course->seen++;
    course->sum += isfinite(loss) ? loss : 0;
    course->finite += isfinite(loss) != 0;
    course->losses[course->point_count - 1] = course->finite ? course->sum / (double)course->finite : NAN;
}

/* Each step is as likely to be among those taken: every second one, say, would be that of every checkpoint or of none. */
static void add_times(struct tool_course *course, double step_s, double host_s)
{
    uint64_t at = course->taken;
    if (at == TOOL_COURSE_POINTS) {
        uint32_t random[4];
        eo_random_words(&(eo_random_place){.step = course->step_count}, 0, random);
        at = random[0] % course->step_count;
    } else {
        course->taken++;
    }
    if (at < TOOL_COURSE_POINTS) {
        course->step_s[at] = step_s;
        course->host_s[at] = host_s;
    }
}

void tool_course_step(struct tool_course *course, double loss, double step_s, double host_s)
{
    if (course->step_count == 0) {
        course->first_loss = loss;
        course->first_step_s = step_s;
        course->first_host_s = host_s;
    } else {
        add_times(course, step_s, host_s);
    }
    course->last_losses[course->step_count++ % TOOL_COURSE_LAST] = loss;
    add_loss(course, loss);
}

double tool_course_step_s(struct tool_course *course)
{
    return course->taken ? tool_median(course->step_s, course->taken) : course->first_step_s;
}

double tool_course_host_s(struct tool_course *course)
{
    return course->taken ? tool_median(course->host_s, course->taken) : course->first_host_s;
}

double tool_course_last_loss(const struct tool_course *course)
{
    const uint64_t count = course->step_count < TOOL_COURSE_LAST ? 1 : TOOL_COURSE_LAST;
    double sum = 0;
    uint64_t finite = 0;
    for (uint64_t i = course->step_count - count; i < course->step_count; i++) {
        const double loss = course->last_losses[i % TOOL_COURSE_LAST];
        sum += isfinite(loss) ? loss : 0;
        finite += isfinite(loss) != 0;
    }
    return finite ? sum / (double)finite : NAN;
}
