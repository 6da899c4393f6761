/* SPDX-License-Identifier: MIT
 *
 * Threads of the library's own.
 */
#ifndef EO_BASE_THREAD_H
#define EO_BASE_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* The calling thread takes no signal until the next call. Those that a thread's own fault raises stay as its caller has them,
 * for a handler that tells of it. */
static inline void eo_signals_hold(sigset_t *before)
{
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    sigset_t others;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&others, faults[i]);
    pthread_sigmask(SIG_BLOCK, &others, before);
}

static inline void eo_signals_release(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Starts a thread that takes no signal of the process: these are the trainer's, and a handler would run at a time nobody
 * expects. 0, or an errno. */
static inline int eo_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
    sigset_t before;
    eo_signals_hold(&before);
    const int error = pthread_create(thread, NULL, run, argument);
    eo_signals_release(&before);
    return error;
}

/* What helps where none could be started. Docker before 20.10.10 refuses clone3 so, which newer C libraries call. */
static inline const char *eo_thread_remedy(int error)
{
    return error == EPERM ? "a filter of system calls refuses clone3: update Docker (20.10.10) or the filter"
                          : "raise the limit on processes (ulimit -u; in a container pids.max of its control group) or "
                            "addresses (ulimit -v)";
}

#endif
