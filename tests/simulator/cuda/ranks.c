/* SPDX-License-Identifier: MIT
 *
 * The host threads of the ranks. Under SCHEDULED they take turns: each has a stack of its own and all share one thread of
 * the system, which goes from one to the next where the seed says, and where one waits. So a run repeats itself.
 */
#include "internal.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { STACK_BYTES = 1 << 20 };

/* The clock of threads that take turns: a look at it takes time, and so does waiting when nothing can happen. */
enum { FIRST_NS = 1000000000, CALL_NS = 500, IDLE_NS = 1000000 };

/* Whoever has looked since anything happened looks in vain, and comes last. */
static bool is_idle(const struct sim_thread *thread) { return thread->idle_mark == sim.progress + sim.host_progress; }

static struct sim_thread *pick_turn(void)
{
    uint32_t count = 0, busy_count = 0;
    for (uint32_t r = 0; r < sim.rank_count; r++) {
        count += !sim.ranks[r]->finished;
        busy_count += !sim.ranks[r]->finished && !is_idle(sim.ranks[r]);
    }
    if (count == 0)
        return NULL;
    uint32_t wanted = (uint32_t)(sim_next_random() % (busy_count ? busy_count : count));
    for (uint32_t r = 0;; r++)
        if (!sim.ranks[r]->finished && (busy_count == 0 || !is_idle(sim.ranks[r])) && wanted-- == 0)
            return sim.ranks[r];
}

/* With the lock, which belongs to the system's thread and so goes along. */
void sim_pass_turn(struct sim_thread *self)
{
    struct sim_thread *next = pick_turn();
    if (next == self)
        return;
    sim_become(next);
    (void)swapcontext(&self->context, next ? &next->context : &sim.before);
    sim_become(self);
}

bool sim_pause(struct sim_patience *patience)
{
    struct sim_thread *self = sim_self();
    const uint64_t now = sim_now_ns();
    if (patience->begin_ns == 0 || patience->progress != sim.progress) {
        patience->begin_ns = now;
        patience->progress = sim.progress;
    }
    if (self->idle_progress != sim.progress) {
        self->idle_progress = sim.progress;
        self->idle_polls = 0;
    }
    if (now - patience->begin_ns > (uint64_t)sim.config.hang_ms * 1000000u)
        return false;
    if (self->takes_turns) {
        self->idle_mark = sim.progress + sim.host_progress;
        sim_pass_turn(self);
        if (++self->idle_polls <= 64)
            return true;
    }
    /* Nobody gets on: what is awaited is time, which costs nothing here, or a thread that takes no turns. */
    sim.host_ns += IDLE_NS;
    if (self->takes_turns && self->idle_polls % 1024 != 0)
        return true;
    sim_mutex_unlock(&sim.lock);
    (void)sim_sleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    sim_mutex_lock(&sim.lock);
    return true;
}

bool sim_polls_in_vain(void)
{
    if (sim.config.executor != SIM_SCHEDULED)
        return false;
    if (sim.idle_progress != sim.progress + sim.host_progress) {
        sim.idle_progress = sim.progress + sim.host_progress;
        sim.idle_since_ns = sim.host_ns;
    }
    return sim.host_ns - sim.idle_since_ns > 4 * (uint64_t)sim.config.hang_ms * 1000000u;
}

uint64_t sim_now_ns(void)
{
    if (!sim_self()->takes_turns)
        return sim_real_ns();
    sim.host_ns += CALL_NS;
    if (++sim.clock_calls == sim.config.stopped_call)
        sim.host_ns += sim.config.stopped_ns;
    if (sim.virtual_ns > sim.host_ns)
        sim.host_ns = sim.virtual_ns;
    return FIRST_NS + sim.host_ns;
}

void sim_yield(void)
{
    sim_mutex_lock(&sim.lock);
    if (sim_self()->takes_turns)
        (void)sim_pause(&(struct sim_patience){0});
    sim_mutex_unlock(&sim.lock);
}

static void rank_begin(void)
{
    struct sim_thread *self = sim_self();
    sim_mutex_unlock(&sim.lock);
    self->main(self->argument);
    sim_mutex_lock(&sim.lock);
    self->finished = true;
    sim_pass_turn(self); /* and never back */
    abort();
}

static struct sim_thread *add_turn(uint32_t rank, void *(*main)(void *argument), void *argument)
{
    const struct sim_thread *creator = sim_self();
    struct sim_thread *thread = sim_thread_new(rank);
    if (sim.rank_count == SIM_TURNS_MAX)
        abort();
    sim.ranks[sim.rank_count++] = thread;
    thread->takes_turns = true;
    thread->main = main;
    thread->argument = argument;
    thread->clock = creator->clock; /* its device is 0, whatever the creator's */
    thread->asked = creator->asked;
    thread->issued = creator->issued;
    thread->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (thread->stack == MAP_FAILED || getcontext(&thread->context) != 0)
        abort();
    thread->context.uc_stack.ss_sp = thread->stack;
    thread->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&thread->context, rank_begin, 0);
    return thread;
}

/* A thread that a rank starts takes turns as well. Its handle is none of the system's: it can be joined or detached. */
uint32_t sim_start_thread(void *(*main)(void *argument), void *argument)
{
    sim_mutex_lock(&sim.lock);
    const bool takes_turns = sim.is_started && sim_self()->takes_turns;
    if (takes_turns)
        (void)add_turn(SIM_ANY_RANK, main, argument);
    const uint32_t number = takes_turns ? sim.rank_count : 0;
    sim_mutex_unlock(&sim.lock);
    return number;
}

void sim_await_thread(uint32_t number)
{
    sim_mutex_lock(&sim.lock);
    struct sim_thread *self = sim_self(), *thread = sim.ranks[number - 1];
    while (!thread->finished)
        (void)sim_pause(&(struct sim_patience){0});
    sim_clock_join(&self->clock, &thread->clock);
    sim_clock_join(&self->asked, &thread->asked);
    sim_mutex_unlock(&sim.lock);
}

static void run_in_turns(uint32_t count, void *(*main)(void *argument), void *const *arguments)
{
    sim_mutex_lock(&sim.lock);
    struct sim_thread *outside = sim_self();
    sim.rank_count = 0;
    for (uint32_t r = 0; r < count; r++)
        (void)add_turn(r, main, arguments[r]);
    struct sim_thread *first = pick_turn();
    sim_become(first);
    (void)swapcontext(&sim.before, &first->context);
    sim_become(outside);
    for (uint32_t r = 0; r < sim.rank_count; r++) {
        sim_clock_join(&outside->clock, &sim.ranks[r]->clock);
        sim_clock_join(&outside->asked, &sim.ranks[r]->clock);
        sim_clock_join(&outside->asked, &sim.ranks[r]->asked);
        sim_clock_join(&outside->issued, &sim.ranks[r]->issued);
        munmap(sim.ranks[r]->stack, STACK_BYTES);
    }
    sim.rank_count = 0;
    sim_mutex_unlock(&sim.lock);
}

struct start {
    uint32_t rank;
    void *(*main)(void *argument);
    void *argument;
};

static void *thread_begin(void *argument)
{
    const struct start *start = argument;
    sim_mutex_lock(&sim.lock);
    sim_become(sim_thread_new(start->rank));
    sim_mutex_unlock(&sim.lock);
    return start->main(start->argument);
}

void sim_run_ranks(uint32_t count, void *(*main)(void *argument), void *const *arguments)
{
    if (count > SIM_RANKS_MAX)
        abort();
    if (sim.config.executor == SIM_SCHEDULED) {
        run_in_turns(count, main, arguments);
        return;
    }
    pthread_t threads[SIM_RANKS_MAX];
    struct start starts[SIM_RANKS_MAX];
    for (uint32_t r = 0; r < count; r++) {
        starts[r] = (struct start){r, main, arguments[r]};
        if (pthread_create(&threads[r], NULL, thread_begin, &starts[r]) != 0)
            abort();
    }
    for (uint32_t r = 0; r < count; r++)
        pthread_join(threads[r], NULL);
}
