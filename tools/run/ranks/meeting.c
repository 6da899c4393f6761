/* SPDX-License-Identifier: MIT */
#include "tools/run/ranks/meeting.h"

#include <time.h>

enum { MEETING_INTERVAL_NS = 100000000 };

static bool is_over_soon(struct tool_job_meeting *meeting)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end); /* the wall clock may be set back, and the others would wait for as long */
    end.tv_nsec += MEETING_INTERVAL_NS;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    meeting->is_over = meeting->is_over || sem_clockwait(&meeting->over, CLOCK_MONOTONIC, &end) == 0;
    return meeting->is_over;
}

/* Until it is over on all ranks. */
static void *meet_again(void *arg)
{
    struct tool_job_meeting *meeting = arg;
    eo_status status = EO_OK;
    for (double busy = 1; busy > 0 && status >= 0;) {
        busy = !is_over_soon(meeting);
        status = tool_job_world_sum(meeting->world, &busy);
    }
    return NULL;
}

void tool_job_meeting_begin(struct tool_job_meeting *meeting, struct tool_job_world *world)
{
    *meeting = (struct tool_job_meeting){.world = world};
    if (!world)
        return;
    sem_init(&meeting->over, 0, 0);
    meeting->has_thread = pthread_create(&meeting->thread, NULL, meet_again, meeting) == 0;
}

void tool_job_meeting_end(struct tool_job_meeting *meeting)
{
    if (!meeting->world)
        return;
    sem_post(&meeting->over);
    if (meeting->has_thread)
        pthread_join(meeting->thread, NULL);
    else
        (void)meet_again(meeting);
    sem_destroy(&meeting->over);
}
