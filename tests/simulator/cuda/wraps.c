/* SPDX-License-Identifier: MIT
 *
 * What host threads block on, linked in place by --wrap. A thread that takes turns must not block while it has its turn,
 * so it looks, and gives the turn away, until it finds what it waits for. On the way the checker learns what one host
 * thread passes to another: what was known at an unlock is known after the next lock of the same mutex.
 */
#include "internal.h"

#include <errno.h>
#include <time.h>

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *deadline);
int __wrap_nanosleep(const struct timespec *duration, struct timespec *rest);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *duration, struct timespec *rest);
int __real_clock_nanosleep(clockid_t clock, int flags, const struct timespec *duration, struct timespec *rest);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *argument);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *argument);
int __wrap_pthread_detach(pthread_t thread);
int __real_pthread_detach(pthread_t thread);
int __wrap_pthread_join(pthread_t thread, void **result);
int __real_pthread_join(pthread_t thread, void **result);

static bool is_simulated(void) { return sim.is_started && sim.config.executor == SIM_SCHEDULED; }

static bool takes_turns(void)
{
    if (!is_simulated())
        return false;
    sim_mutex_lock(&sim.lock);
    const bool takes = sim_self()->takes_turns;
    sim_mutex_unlock(&sim.lock);
    return takes;
}

static void pass_on(const void *object, bool is_release)
{
    sim_mutex_lock(&sim.lock);
    if (is_release)
        sim_host_release(object);
    else
        sim_host_acquire(object);
    sim_mutex_unlock(&sim.lock);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (!is_simulated())
        return sim_mutex_lock(mutex);
    if (!takes_turns()) {
        const int error = sim_mutex_lock(mutex);
        pass_on(mutex, false);
        return error;
    }
    int error;
    while ((error = pthread_mutex_trylock(mutex)) == EBUSY)
        sim_yield();
    pass_on(mutex, false);
    return error;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (is_simulated())
        pass_on(mutex, true);
    return sim_mutex_unlock(mutex);
}

/* Waking for nothing is allowed: the caller looks at its condition. */
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    if (!takes_turns())
        return sim_cond_wait(cond, mutex);
    (void)__wrap_pthread_mutex_unlock(mutex);
    sim_yield();
    return __wrap_pthread_mutex_lock(mutex);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *deadline)
{
    if (!takes_turns())
        return sim_cond_timedwait(cond, mutex, deadline);
    (void)__wrap_pthread_mutex_unlock(mutex);
    sim_yield();
    sim_mutex_lock(&sim.lock); /* deadlines were made from the virtual clock */
    const uint64_t now_ns = sim_now_ns();
    sim_mutex_unlock(&sim.lock);
    const bool late = now_ns >= (uint64_t)deadline->tv_sec * 1000000000u + (uint64_t)deadline->tv_nsec;
    (void)__wrap_pthread_mutex_lock(mutex);
    return late ? ETIMEDOUT : 0;
}

int __wrap_nanosleep(const struct timespec *duration, struct timespec *rest)
{
    if (!takes_turns())
        return sim_sleep(duration, rest);
    sim_yield();
    return 0;
}

int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *duration, struct timespec *rest)
{
    if (!takes_turns())
        return __real_clock_nanosleep(clock, flags, duration, rest);
    sim_yield();
    return 0;
}

/* A small number is no thread of the system's. */
static bool is_of_turns(pthread_t thread) { return thread <= SIM_TURNS_MAX; }

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *argument)
{
    const uint32_t number = is_simulated() ? sim_start_thread(main, argument) : 0;
    if (!number)
        return __real_pthread_create(thread, attributes, main, argument);
    *thread = number;
    return 0;
}

int __wrap_pthread_detach(pthread_t thread) { return is_of_turns(thread) ? 0 : __real_pthread_detach(thread); }

/* Nobody here asks for its result. */
int __wrap_pthread_join(pthread_t thread, void **result)
{
    if (!is_of_turns(thread))
        return __real_pthread_join(thread, result);
    sim_await_thread((uint32_t)thread);
    return 0;
}
