/* SPDX-License-Identifier: MIT
 *
 * The same as tests/simulator/cuda/wraps.c for evenodd's own gate and clock, and for the meeting of ranks in the local collectives, which passes a
 * gate without waiting where all are there already.
 */
#include "internal.h"

#include "streams/gate.h"
#include "streams/local/local.h"

void __real_eo_gate_notify(struct eo_gate *gate);
bool __real_eo_gate_wait(struct eo_gate *gate, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns);
eo_status __real_eo_local_meet(struct eo_local_end *end, bool to_leave, uint64_t from_ns);
void __real_eo_local_enter(struct eo_local_end *end, const struct eo_local_post *post);
void __wrap_eo_local_enter(struct eo_local_end *end, const struct eo_local_post *post);
uint64_t __real_eo_now_ns(void);
uint64_t __wrap_eo_now_ns(void);
void __wrap_eo_gate_notify(struct eo_gate *gate);
bool __wrap_eo_gate_wait(struct eo_gate *gate, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns);
eo_status __wrap_eo_local_meet(struct eo_local_end *end, bool to_leave, uint64_t from_ns);

/* Deadlines are in virtual time. */
uint64_t __wrap_eo_now_ns(void)
{
    sim_mutex_lock(&sim.lock);
    const uint64_t now_ns = sim.is_started && sim_self()->takes_turns ? sim_now_ns() : 0;
    sim_mutex_unlock(&sim.lock);
    return now_ns ? now_ns : __real_eo_now_ns();
}

static bool is_simulated(void) { return sim.is_started && sim.config.executor == SIM_SCHEDULED; }

static void pass_on(const struct eo_gate *gate, bool is_release)
{
    sim_mutex_lock(&sim.lock);
    if (is_release)
        sim_host_release(gate);
    else
        sim_host_acquire(gate);
    sim_mutex_unlock(&sim.lock);
}

void __wrap_eo_gate_notify(struct eo_gate *gate)
{
    if (is_simulated())
        pass_on(gate, true);
    __real_eo_gate_notify(gate);
}

bool __wrap_eo_gate_wait(struct eo_gate *gate, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns)
{
    sim_mutex_lock(&sim.lock);
    const bool takes_turns = is_simulated() && sim_self()->takes_turns;
    sim_mutex_unlock(&sim.lock);
    if (!takes_turns)
        return __real_eo_gate_wait(gate, ready, arg, deadline_ns);
    while (!ready(arg)) {
        if (deadline_ns != 0 && __wrap_eo_now_ns() > deadline_ns)
            return false;
        sim_yield();
    }
    pass_on(gate, false);
    return true;
}

/* What a rank knows when it comes to a meeting, all know who leave it: that alone is sure. */
void __wrap_eo_local_enter(struct eo_local_end *end, const struct eo_local_post *post)
{
    if (is_simulated()) {
        sim_mutex_lock(&sim.lock);
        sim_meeting_enter(&end->line->ranks[end->rank].posts[(end->sequence + 1) & 1]);
        sim_mutex_unlock(&sim.lock);
    }
    __real_eo_local_enter(end, post);
}

eo_status __wrap_eo_local_meet(struct eo_local_end *end, bool to_leave, uint64_t from_ns)
{
    const eo_status status = __real_eo_local_meet(end, to_leave, from_ns);
    if (!is_simulated())
        return status;
    pass_on(&end->line->gate, false);
    sim_mutex_lock(&sim.lock);
    for (uint32_t r = 0; status >= 0 && r < end->group->params.rank_count; r++)
        sim_meeting_join(&end->line->ranks[r].posts[end->sequence & 1]);
    sim_mutex_unlock(&sim.lock);
    return status;
}
