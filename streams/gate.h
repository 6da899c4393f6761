/* SPDX-License-Identifier: MIT
 *
 * A gate: where threads sleep until some condition over atomics holds. No lock, and no system call while nobody sleeps.
 *
 *     who changes the condition            who waits for it
 *     store the atomics (release)          eo_gate_wait(gate, ready, arg, deadline)
 *     eo_gate_notify(gate)                 ready() loads the atomics (acquire)
 *
 * No wake-up is lost: notify raises the epoch before it looks for sleepers, a sleeper counts itself before it reads the
 * epoch and then looks at the condition, and the kernel puts it to sleep only while the epoch is still the one it read.
 */
#ifndef EO_STREAMS_GATE_H
#define EO_STREAMS_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zero is a gate. Between processes it lies in memory that they share. */
struct eo_gate {
    _Atomic uint32_t epoch;
    _Atomic uint32_t sleepers;
    bool between_processes;
};

void eo_gate_notify(struct eo_gate *gate);

/*
 * Returns true when ready(arg) has returned true, false when `deadline_ns` (of eo_now_ns; 0: none) has passed first.
 * Spins for two microseconds at most: ranks have more threads than the machine has cores.
 */
bool eo_gate_wait(struct eo_gate *gate, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns);

#endif
