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

/* A handler. The first process of a container outlives signals that it does not handle, so it exits with a shell's status. */
static inline void tool_end_by_signal(int number)
{
    sigset_t set;
    signal(number, SIG_DFL);
    raise(number);
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + number);
}

#endif
