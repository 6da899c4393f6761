/* SPDX-License-Identifier: MIT
 *
 * Signals that end a program.
 */
#ifndef EO_TOOLS_SHARED_END_SIGNALS_H
#define EO_TOOLS_SHARED_END_SIGNALS_H

#include <signal.h>
#include <unistd.h>

/* From the first one on the same signal is the same one: `timeout` sends it twice, and who ends all processes of a job
 * (systemd, scancel) reaches a rank directly, and again by its launcher. */
enum { TOOL_SAME_SIGNAL_NS = 500000000 };

/* Of the calling thread and those that it starts. A parent may have left it blocked, and then nothing handles it. */
static inline void tool_unblock_signal(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* A handler. The first process of a container outlives signals that it does not handle, so it exits with a shell's status. */
static inline void tool_end_by_signal(int number)
{
    signal(number, SIG_DFL);
    raise(number);
    tool_unblock_signal(number);
    _exit(128 + number);
}

#endif
