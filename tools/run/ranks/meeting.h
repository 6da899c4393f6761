/* SPDX-License-Identifier: MIT
 *
 * Ranks that are processes, while each does something that takes as long as its disk takes: a thread beside it meets the
 * others again and again, so that no deadline takes a slow disk for a loss.
 */
#ifndef EO_TOOLS_RUN_RANKS_MEETING_H
#define EO_TOOLS_RUN_RANKS_MEETING_H

#include <pthread.h>
#include <semaphore.h>

#include "tools/run/ranks/world.h"

struct tool_job_meeting {
    struct tool_job_world *world;
    pthread_t thread;
    bool has_thread, is_over;
    sem_t over;
};

/* Between the two the caller exchanges nothing else with the other processes; `world` is NULL where ranks are threads. */
void tool_job_meeting_begin(struct tool_job_meeting *meeting, struct tool_job_world *world);
/* Waits for all. A failure of any rank ends it too: the next exchange tells of it. */
void tool_job_meeting_end(struct tool_job_meeting *meeting);

#endif
