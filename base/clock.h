/* SPDX-License-Identifier: MIT */
#ifndef EO_BASE_CLOCK_H
#define EO_BASE_CLOCK_H

#include <stdint.h>

uint64_t eo_now_ns(void); /* monotonic */
void eo_pause(void);      /* 20 us, between two looks */

/*
 * How long this process has waited, counted from look to look. The time between two counts as EO_LOOK_NS_MAX at most, or what
 * the caller says: a job that was stopped whole (SIGSTOP, a suspended batch job), and goes on, has waited for nobody meanwhile.
 */
#define EO_LOOK_NS_MAX UINT64_C(100000000)

struct eo_stopwatch {
    uint64_t looked_ns, counted_ns;
};

static inline struct eo_stopwatch eo_stopwatch_start(void)
{
    return (struct eo_stopwatch){.looked_ns = eo_now_ns()};
}

/* What has been counted since the start. */
static inline uint64_t eo_stopwatch_look(struct eo_stopwatch *watch, uint64_t look_ns_max)
{
    const uint64_t now_ns = eo_now_ns(), passed_ns = now_ns - watch->looked_ns;
    watch->looked_ns = now_ns;
    return watch->counted_ns += passed_ns < look_ns_max ? passed_ns : look_ns_max;
}

#endif
