/* SPDX-License-Identifier: MIT
 *
 * The course of a run, for its report: losses and times of its steps, in memory that does not grow with them. Up to
 * TOOL_COURSE_POINTS steps are as they were. Of longer runs a point of the curve is the mean of some steps, and medians are
 * those of as many steps taken at random.
 */
#ifndef EO_TOOLS_RUN_REPORTS_COURSE_H
#define EO_TOOLS_RUN_REPORTS_COURSE_H

#include <stdint.h>

enum { TOOL_COURSE_POINTS = 1 << 14, TOOL_COURSE_LAST = 10 };

struct tool_course {
    uint64_t step_count;
    double first_loss, last_losses[TOOL_COURSE_LAST];
    double losses[TOOL_COURSE_POINTS]; /* means of 2^width_log2 steps; the last one perhaps of fewer */
    uint32_t point_count, width_log2;
    double sum; /* of the last point */
    uint64_t seen, finite;
    double step_s[TOOL_COURSE_POINTS], host_s[TOOL_COURSE_POINTS]; /* after the first step, of the steps taken */
    uint32_t taken;
    double first_step_s, first_host_s;
};

/* A loss that is not finite counts in no mean. */
void tool_course_step(struct tool_course *course, double loss, double step_s, double host_s);

/* Without the first step, which finds everything cold, where there are others. They sort. */
double tool_course_step_s(struct tool_course *course);
double tool_course_host_s(struct tool_course *course);

/* Of the last ten steps that counted, of one where there are fewer; NAN: of none. */
double tool_course_last_loss(const struct tool_course *course);

#endif
