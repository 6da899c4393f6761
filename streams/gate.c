/* SPDX-License-Identifier: MIT */
#include "streams/gate.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/pause.h"

enum { SPINS = 40 }; /* a pause takes some 50 ns on current cores: two microseconds in all */

/* The kernel finds a private futex by its address alone, which is quicker. */
static int scope_of(const struct eo_gate *gate)
{
    return gate->between_processes ? 0 : FUTEX_PRIVATE_FLAG;
}

void eo_gate_notify(struct eo_gate *gate)
{
    atomic_fetch_add(&gate->epoch, 1);
    if (atomic_load(&gate->sleepers) != 0)
        syscall(SYS_futex, &gate->epoch, FUTEX_WAKE | scope_of(gate), INT_MAX, NULL, NULL, 0);
}

/* False at the deadline. Woken for nothing is fine: the caller looks again. */
static bool sleep_on(struct eo_gate *gate, uint32_t epoch, uint64_t deadline_ns)
{
    const struct timespec until = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    /* The bitset form takes an absolute time of the monotonic clock. */
    const long result = syscall(SYS_futex, &gate->epoch, FUTEX_WAIT_BITSET | scope_of(gate), epoch,
                                deadline_ns != 0 ? &until : NULL, NULL, FUTEX_BITSET_MATCH_ANY);
    if (result == 0 || errno == EAGAIN || errno == EINTR)
        return true;
    EO_ASSERT(errno == ETIMEDOUT);
    return false;
}

bool eo_gate_wait(struct eo_gate *gate, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns)
{
    for (uint32_t i = 0; i < SPINS; i++) {
        if (ready(arg))
            return true;
        eo_spin_pause();
    }
    bool in_time = true;
    for (;;) {
        atomic_fetch_add(&gate->sleepers, 1);
        const uint32_t epoch = atomic_load(&gate->epoch);
        const bool is_ready = ready(arg);
        if (!is_ready && in_time)
            in_time = sleep_on(gate, epoch, deadline_ns);
        atomic_fetch_sub(&gate->sleepers, 1);
        if (is_ready)
            return true;
        if (!in_time)
            return ready(arg); /* it may have come true with the deadline */
    }
}
